//! Flags that `mae generate` and `mae interactive` share.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail, ensure};
use mae_model::ExpertMode;
use mae_translate::{
    BatchLimits, Choice, Error, ExpertChoice, ExpertFault, GateReport, GroupOptions, Models, Sampling,
    SearchOptions, Shortlist, Side, TextForm,
};

use super::output::Style;
use crate::device::InferenceArgs;
use crate::model_arg::model_in;

/// The models, and how they are run.
#[derive(clap::Args)]
pub struct ModelArgs {
    /// Model folder with model.safetensors, config.toml and dictionaries, as `mae train` writes it, or the folder of a run,
    /// whose best model is used. Several folders
    /// separated by colons (a:b:c) form an ensemble, which averages their probabilities; they need the same
    /// dictionaries
    pub model: String,
    #[command(flatten)]
    pub device: InferenceArgs,
    /// Experts of a mixture that translate, in every attention of encoder and decoder: `mix` (all, by the gates), `argmax`
    /// (the gates' favourite), `random` (one drawn per sentence and attention, all equally likely), or the number of one, from 0
    #[arg(long, value_name = "WHICH", default_value_t)]
    expert: ExpertChoice,
    /// Seed of --sampling and --expert random; draws depend only on the seed and the line number
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl ModelArgs {
    /// Loads the folders of `a:b:c`.
    pub fn load(&self) -> anyhow::Result<Models> {
        // A folder may have a colon in its name.
        let paths: Vec<&str> = if Path::new(&self.model).is_dir() {
            vec![&self.model]
        } else {
            self.model.split(':').filter(|name| !name.is_empty()).collect()
        };
        ensure!(!paths.is_empty(), "no model is named in `{}`", self.model);
        let paths: Vec<PathBuf> = paths.into_iter().map(|path| model_in(Path::new(path))).collect();
        let device = self.device.device()?;
        Models::load(&paths, &device).map_err(|error| match error {
            Error::LanguageModel { path } => anyhow!(
                "{} is a language model, which does not translate: `mae continue {0} --prompt TEXT` continues \
                 a text, `mae eval-lm {0} --data DIR` measures it",
                path.display()
            ),
            other => other.into(),
        })
    }

    /// Returns how experts combine; fails where a model has no such experts.
    pub fn mode(&self, models: &Models) -> anyhow::Result<ExpertMode> {
        let mode = self.expert.mode(self.seed);
        models.check_experts(&mode).map_err(|error| match error {
            Error::Experts { model, fault } => no_such_experts(&model, fault),
            other => other.into(),
        })?;
        Ok(mode)
    }
}

/// The message about `--expert` for a model that has no such experts.
pub fn no_such_experts(model: &str, fault: ExpertFault) -> anyhow::Error {
    match fault {
        ExpertFault::NoMixture(system) => {
            anyhow!("--expert needs a mixture: the model {model} has none ({system}); leave --expert out")
        }
        ExpertFault::NoGates(system) => anyhow!(
            "--expert argmax needs gates: the model {model} has none ({system}); use `random` or the number of an expert"
        ),
        ExpertFault::NoSuchExpert { number, .. } => anyhow!("--expert {number}: the model {model} {fault}"),
        other => anyhow!("the model {model} {other}"),
    }
}

/// Form of text.
#[derive(clap::Args)]
pub struct TextArgs {
    /// Do not apply the rules of the model folder's text.json (tokeniser, lower case): the text is tokenised already, and
    /// translations stay tokenised
    #[arg(long)]
    tokenized: bool,
    /// Do not apply the model's BPE codes either: the text is segmented already
    #[arg(long)]
    no_bpe: bool,
}

impl TextArgs {
    /// The form of the text.
    pub fn form(&self) -> TextForm {
        match (self.no_bpe, self.tokenized) {
            (true, _) => TextForm::Pieces,
            (false, true) => TextForm::Tokens,
            (false, false) => TextForm::Lines,
        }
    }
}

/// Flags of the search.
#[derive(clap::Args)]
#[command(next_help_heading = "Search")]
pub struct SearchArgs {
    /// Beam size; 1 is greedy search
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub beam: usize,
    /// Number of translations to print per sentence, the best first
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub nbest: usize,
    /// Length penalty: scores are divided by length^X. Below 1 favours short translations, above 1 long ones
    #[arg(long, value_name = "X", default_value_t = 1.0, allow_negative_numbers = true)]
    lenpen: f32,
    /// Penalty subtracted from the log-probability of `<unk>`: above 0 makes it rarer
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    unkpen: f32,
    /// Longest translation: A·(source tokens) + B tokens
    #[arg(long, value_name = "A", default_value_t = 0.0)]
    max_len_a: f32,
    /// See --max-len-a
    #[arg(long, value_name = "B", default_value_t = 200)]
    max_len_b: usize,
    /// Shortest translation, in tokens
    #[arg(long, value_name = "N", default_value_t = 1)]
    min_len: usize,
    /// Rank by log-probability without dividing by the length
    #[arg(long)]
    unnormalized: bool,
    /// Do not repeat sequences of N tokens in a translation; 0: no limit
    #[arg(long, value_name = "N", default_value_t = 0)]
    no_repeat_ngram_size: usize,
    /// Sample `--beam` translations per sentence instead of searching for the most likely ones
    #[arg(long)]
    sampling: bool,
    /// Sample from the K most likely tokens
    #[arg(long, value_name = "K", requires = "sampling")]
    sampling_topk: Option<usize>,
    /// Sample from the smallest set of most likely tokens whose total probability is at least P
    #[arg(long, value_name = "P", requires = "sampling")]
    sampling_topp: Option<f32>,
    /// Temperature that divides logits: above 1 flattens distributions, below 1 sharpens them
    #[arg(long, value_name = "T", default_value_t = 1.0)]
    temperature: f32,
    /// Split the beam into G groups that avoid each other's tokens
    #[arg(long, value_name = "G", conflicts_with = "sampling")]
    diverse_beam_groups: Option<usize>,
    /// Cost of a token for every time that a group before it has chosen it, in nats
    #[arg(long, value_name = "X", default_value_t = 0.5, requires = "diverse_beam_groups")]
    diverse_beam_strength: f32,

    /// Shortlist: only words that translate words of the source, and those that may always come. The file is written by
    /// `mae make-shortlist`, or is CTranslate2's vmap.txt or a lexical table of Marian. For CPUs
    #[arg(long, value_name = "FILE")]
    shortlist: Option<PathBuf>,

    /// Largest number of source tokens, and of hypotheses (sentences × beam), in a batch
    #[arg(long, value_name = "N", default_value_t = 4096)]
    max_tokens: u32,
    /// Largest number of sentences in a batch
    #[arg(long, value_name = "N", visible_alias = "max-sentences")]
    batch_size: Option<u32>,
}

impl SearchArgs {
    /// Options of the search, checked.
    pub fn options(&self, models: &ModelArgs) -> anyhow::Result<SearchOptions> {
        let choice = match (self.sampling, self.diverse_beam_groups) {
            (true, _) => Choice::Sample(Sampling { topk: self.sampling_topk, topp: self.sampling_topp }),
            (_, Some(groups)) => Choice::Diverse { groups, strength: self.diverse_beam_strength },
            _ => Choice::Best,
        };
        let options = SearchOptions {
            beam: self.beam,
            nbest: self.nbest,
            lenpen: self.lenpen,
            unkpen: self.unkpen,
            max_len_a: self.max_len_a,
            max_len_b: self.max_len_b,
            min_len: self.min_len,
            normalise: !self.unnormalized,
            no_repeat_ngram_size: self.no_repeat_ngram_size,
            temperature: self.temperature,
            choice,
            seed: models.seed,
            shortlist: None,
        };
        options.check()?;
        Ok(options)
    }

    /// Reads the shortlist, if there is one, for the dictionaries of these models; pairs that they do not have are told.
    pub fn read_shortlist(&self, models: &Models) -> anyhow::Result<Option<Arc<Shortlist>>> {
        let Some(path) = &self.shortlist else { return Ok(None) };
        let [source, target] = [Side::Source, Side::Target].map(|side| models.dictionary(side));
        let (shortlist, counts) = Shortlist::load(path, source, target).context("--shortlist")?;
        if counts.unknown > 0 {
            eprintln!(
                "mae: --shortlist {}: {} of {} pairs have words that the dictionaries lack; they are left out",
                path.display(),
                counts.unknown,
                counts.pairs
            );
        }
        Ok(Some(Arc::new(shortlist)))
    }

    /// Limits of batches.
    pub fn limits(&self) -> anyhow::Result<BatchLimits> {
        ensure!(
            self.max_tokens > 0 && self.batch_size != Some(0),
            "--max-tokens and --batch-size must be at least 1"
        );
        let (max_tokens, max_sentences) = (self.max_tokens, self.batch_size);
        Ok(BatchLimits { max_tokens, max_sentences, ..BatchLimits::default() })
    }
}

/// Flags of the output.
#[derive(clap::Args)]
#[command(next_help_heading = "Output")]
pub struct OutputArgs {
    /// Join BPE pieces (`@@ `) in all output; `--remove-bpe=false` keeps them
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_value_t = true,
          default_missing_value = "true", action = clap::ArgAction::Set)]
    pub remove_bpe: bool,
    /// Output file, in place of standard output; it appears when it is complete
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Print one line per input line: the best translation (with --score-reference: the natural-log probability)
    #[arg(long, conflicts_with = "jsonl")]
    plain: bool,
    /// Print one JSON object per sentence: id, source, target and hypotheses with tokens, text, score and natural-log
    /// probabilities (with --score-reference: id, tokens, logprobs, sum)
    #[arg(long)]
    jsonl: bool,
    /// In the JSON also the gates: for each attention by name the probabilities of its experts (sigmoid gates: the weights
    /// of its heads), of the decoder's a list per target token
    #[arg(long)]
    pub gates: bool,
}

impl OutputArgs {
    /// Options of everything that is translated.
    pub fn group(&self, search: SearchOptions, mode: ExpertMode) -> GroupOptions {
        let gates = if self.gates { GateReport::All } else { GateReport::None };
        GroupOptions { search, mode, gates }
    }

    /// Layout of the output; fails where it contradicts the search or the models.
    pub fn style(&self, search: &SearchArgs, models: &Models) -> anyhow::Result<Style> {
        if self.plain && search.nbest > 1 {
            bail!(
                "--plain gives one line per sentence, --nbest {} more; leave one of them out",
                search.nbest
            );
        }
        if self.gates && !self.jsonl {
            bail!("--gates are part of the JSON; give --jsonl, too");
        }
        if self.gates && models.named().count() > 1 {
            bail!("--gates shows the gates of one model; give one, not an ensemble");
        }
        Ok(match (self.plain, self.jsonl) {
            (true, _) => Style::Plain,
            (_, true) => Style::Jsonl,
            _ => Style::Fairseq,
        })
    }
}
