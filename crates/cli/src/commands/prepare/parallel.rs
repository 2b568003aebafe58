//! `mae prepare parallel`: any two aligned files.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use mae_data::lines::find_text;
use mae_data::moses::{CjkWords, CleanOptions, Dashes};
use mae_data::prepare::{CleanWhen, Corpus, HoldOut, Pieces, PrepareOptions, Text, TextRules};

use super::Common;

const EXAMPLES: &str = "\
Examples:
  Hold 2,000 pairs out for validation and 2,000 for testing:
    mae prepare parallel -s de -t en --source corpus.de.gz \\
        --target corpus.en.gz --out my-corpus

  Use validation and test texts that exist (train.de, train.en, valid.de, …), lower-cased:
    mae prepare parallel -s de -t en --train train --valid valid --test test \\
        --lowercase --out my-corpus

  Chinese, by the pieces of a SentencePiece model:
    mae prepare parallel -s zh -t en --train train --valid valid --test test \\
        --spm zh-en.model \\
        --out my-corpus";

/// Prepare any two aligned files, where line n of one translates line n of the other; plain, gzip or zstd.
///
/// Training pairs are cleaned as for IWSLT14. Given validation and test texts are not cleaned; missing ones are held
/// out of the training text, spread evenly over it.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Parallel {
    #[command(flatten)]
    pub common: Common,
    /// Training text: PREFIX.SRC and PREFIX.TGT, also with .gz or .zst appended; can be repeated.
    #[arg(long, value_name = "PREFIX", conflicts_with_all = ["source", "target"])]
    train: Vec<String>,
    /// Source side of the training text.
    #[arg(long, value_name = "FILE", requires = "target")]
    source: Option<PathBuf>,
    /// Target side of the training text.
    #[arg(long, value_name = "FILE", requires = "source")]
    target: Option<PathBuf>,
    /// Validation text: PREFIX.SRC and PREFIX.TGT.
    #[arg(long, value_name = "PREFIX")]
    valid: Option<String>,
    /// Test text: PREFIX.SRC and PREFIX.TGT.
    #[arg(long, value_name = "PREFIX")]
    test: Option<String>,
    /// Number of training pairs to hold out for validation if no text is given.
    #[arg(long, value_name = "N", default_value_t = 2000, conflicts_with = "valid")]
    valid_size: u64,
    /// Number of training pairs to hold out for testing if no text is given.
    #[arg(long, value_name = "N", default_value_t = 2000, conflicts_with = "test")]
    test_size: u64,

    /// Tokeniser of the text.
    #[arg(long, value_name = "HOW", value_enum, default_value_t = Tokenize::Moses, help_heading = "Text")]
    tokenize: Tokenize,
    /// Normalise punctuation first, as Moses does, and replace non-printing characters with blanks.
    #[arg(long, help_heading = "Text")]
    normalize: bool,
    /// Convert all text to lower case.
    #[arg(long, help_heading = "Text")]
    lowercase: bool,

    /// Smallest number of tokens on a side.
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Cleaning")]
    min_len: usize,
    /// Largest number of tokens on a side.
    #[arg(long, value_name = "N", default_value_t = 175, help_heading = "Cleaning")]
    max_len: usize,
    /// Largest ratio between the numbers of tokens of the two sides.
    #[arg(long, value_name = "X", default_value_t = 1.5, help_heading = "Cleaning")]
    ratio: f64,
    /// Keep all pairs.
    #[arg(long, conflicts_with_all = ["min_len", "max_len", "ratio"], help_heading = "Cleaning")]
    no_clean: bool,

    /// Number of merges to learn; 0: none.
    #[arg(long, value_name = "N", default_value_t = 10_000, help_heading = "Pieces")]
    bpe: usize,
    /// Segment texts with this tokenizer.json of Hugging Face's `tokenizers`; implies --tokenize none.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["bpe", "separate_codes", "tokenize"], help_heading = "Pieces")]
    tokenizer: Option<PathBuf>,
    /// Segment texts with this SentencePiece model, for Chinese and Japanese too; implies --tokenize none and --no-clean,
    /// because lengths in words mean nothing there.
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["bpe", "separate_codes", "tokenize", "tokenizer", "min_len", "max_len", "ratio"], help_heading = "Pieces")]
    spm: Option<PathBuf>,
    /// Build one dictionary for both languages; needed to share all embeddings.
    #[arg(long, help_heading = "Pieces")]
    joined_dictionary: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Tokenize {
    /// Tokens of Moses.
    Moses,
    /// Tokens of Moses with dashes split: `well @-@ known`.
    Aggressive,
    /// Tokens of Moses, and each Chinese, Japanese and Korean character a token.
    Characters,
    /// The text as it is.
    None,
}

impl Parallel {
    /// The choices.
    pub fn options(&self) -> mae_data::Result<PrepareOptions> {
        let tokenize = match self.tokenize {
            _ if self.tokenizer.is_some() || self.spm.is_some() => None,
            Tokenize::Moses | Tokenize::Characters => Some(Dashes::Keep),
            Tokenize::Aggressive => Some(Dashes::Split),
            Tokenize::None => None,
        };
        let rules = TextRules {
            normalize: self.normalize,
            tokenize,
            cjk_words: match self.tokenize {
                Tokenize::Characters => CjkWords::Characters,
                _ => CjkWords::Whole,
            },
            lowercase: self.lowercase,
            ..TextRules::default()
        };
        let clean = CleanOptions { ratio: Some(self.ratio), ..CleanOptions::new(self.min_len, self.max_len) };
        let options = PrepareOptions {
            train_rules: rules.clone(),
            eval_rules: rules,
            clean: (!self.no_clean && self.spm.is_none()).then_some((clean, CleanWhen::BeforePieces)),
            hold_out: HoldOut::Sizes { valid: self.valid_size, test: self.test_size },
            joined_dictionary: self.joined_dictionary,
            ..PrepareOptions::new(&self.common.source_lang, &self.common.target_lang, &self.common.out)
        };
        let options = self.common.choose(options, self.bpe)?;
        let tokenizer = self.tokenizer.clone().map(Pieces::Tokenizer);
        Ok(match tokenizer.or_else(|| self.spm.clone().map(Pieces::SentencePiece)) {
            Some(pieces) => PrepareOptions { pieces, ..options },
            None => options,
        })
    }

    /// The files.
    pub fn corpus(&self) -> anyhow::Result<Corpus> {
        let train: Vec<Text> = match (&self.source, &self.target) {
            (Some(source), Some(target)) => vec![Text::plain(source, target)],
            _ => self.train.iter().map(|prefix| self.find(prefix)).collect::<Result<_, _>>()?,
        };
        anyhow::ensure!(
            !train.is_empty(),
            "no training text: give --train PREFIX, or --source FILE and --target FILE"
        );
        let one =
            |prefix: &Option<String>| prefix.iter().map(|prefix| self.find(prefix)).collect::<Result<_, _>>();
        let corpus = Corpus { train, valid: one(&self.valid)?, test: one(&self.test)? };
        let ours = ["", "tmp"].map(|folder| self.common.out.join(folder));
        let texts = [&corpus.train, &corpus.valid, &corpus.test].into_iter().flatten();
        for path in texts.flat_map(|text| [&text.src, &text.tgt]) {
            // The folder of a bare name is the one we are in.
            let folder = Path::new(".").join(path);
            let folder = folder.parent().and_then(|folder| folder.canonicalize().ok());
            anyhow::ensure!(
                !ours.iter().any(|out| folder.is_some() && out.canonicalize().ok() == folder),
                "{} lies in the folder --out, where files of the same names are written; name another folder",
                path.display()
            );
        }
        Ok(corpus)
    }

    /// Both sides of PREFIX, compressed or not.
    fn find(&self, prefix: &str) -> mae_data::Result<Text> {
        let (src, tgt) = (&self.common.source_lang, &self.common.target_lang);
        Ok(Text::plain(find_text(prefix, src)?, find_text(prefix, tgt)?))
    }
}
