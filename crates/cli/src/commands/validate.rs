//! `mae validate`: loss, perplexity and BLEU of a model on a data set.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use mae_data::ParallelDataset;
use mae_data::pairs::detect_languages;
use mae_eval::validator::BleuValidator;
use mae_model::ExpertMode;
use mae_model::experts::Experts;
use mae_model::folder::{self, ModelFolder, Task};
use mae_train::TrainConfig;
use mae_train::dictionaries::mismatch;
use mae_train::validate::{HeadWeights, development_loss};
use serde::Serialize;

use crate::data_arg::DataArg;
use crate::device::InferenceArgs;
use crate::exit::ExitCode;
use crate::model_arg::model_folder;

const EXAMPLES: &str = "\
Examples:
  Measure the loss on the development set:
    mae validate runs/mae7/checkpoint_best --data data-bin --split valid

  Measure loss and BLEU on two splits, as JSON:
    mae validate runs/mae7/checkpoint_best --data data-bin --split valid,test \\
        --bleu --json";

/// Measure loss, perplexity, gate entropy and BLEU of a model on a binarised data set.
///
/// Losses are in bits per target token, including end marks, and perplexity is 2 to the power of the plain loss, as in
/// fairseq.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Model folder, or the folder of a run.
    #[arg(value_parser = model_folder())]
    model: PathBuf,
    #[command(flatten)]
    data: DataArg,
    /// Splits to measure, separated by commas.
    #[arg(
        long,
        aliases = ["valid-subset", "gen-subset"],
        default_value = "valid",
        value_delimiter = ',',
        value_name = "NAME"
    )]
    split: Vec<String>,
    /// Source language [default: from the file names].
    #[arg(short = 's', long, value_name = "LANG", requires = "target_lang")]
    source_lang: Option<String>,
    /// Target language [default: from the file names].
    #[arg(short = 't', long, value_name = "LANG", requires = "source_lang")]
    target_lang: Option<String>,
    /// Label smoothing ε; the plain loss does not depend on it.
    #[arg(long, default_value_t = 0.1)]
    label_smoothing: f32,
    /// Largest number of source tokens, and of target tokens, in a batch.
    #[arg(long, default_value_t = 4096)]
    max_tokens: u32,
    /// Also translate and compute fairseq's BLEU, on whitespace tokens with pieces joined.
    #[arg(long)]
    bleu: bool,
    /// Beam size of the translation.
    #[arg(long, default_value_t = 5, requires = "bleu")]
    beam: usize,
    /// Print one JSON object per split.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: InferenceArgs,
}

#[derive(Serialize)]
struct Report<'a> {
    split: &'a str,
    sentences: u64,
    skipped: u64,
    /// Target tokens, end marks counted.
    tokens: u64,
    /// Bits per target token.
    loss: f64,
    nll_loss: f64,
    ppl: f64,
    /// In nats.
    gate_entropy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    head_weights: Option<HeadWeights>,
    bleu: Option<f64>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    if !(0.0..1.0).contains(&args.label_smoothing) || args.max_tokens == 0 || args.beam == 0 {
        bail!("--label-smoothing must be in [0, 1), --max-tokens and --beam above 0");
    }
    if folder::task(&args.model)? == Task::LanguageModeling {
        bail!("{} is a language model: measure it with `mae eval-lm {0} --data DIR`", args.model.display());
    }
    let folder = ModelFolder::load(&args.model, &args.device.open(&args.model)?)
        .with_context(|| format!("model {}", args.model.display()))?;
    let data = args.data.needed("")?;
    let (from, to) = match (&args.source_lang, &args.target_lang) {
        (Some(from), Some(to)) => (from.clone(), to.clone()),
        _ => detect_languages(&data)?,
    };
    let config = TrainConfig {
        label_smoothing: args.label_smoothing,
        max_tokens: args.max_tokens,
        ..TrainConfig::default()
    };
    for split in &args.split {
        let pairs = open_split(&folder, &args.model, &data, split, (&from, &to))?;
        let ModelFolder { model, codes, .. } = &folder;
        let found = development_loss(model, &pairs, &config)?;
        let bleu = args.bleu.then(|| {
            BleuValidator::new(&pairs, codes.as_ref(), args.beam).bleu_with(model, &ExpertMode::Mix)
        });
        let report = Report {
            split,
            sentences: found.sentences,
            skipped: found.skipped,
            tokens: found.tokens,
            loss: found.loss,
            nll_loss: found.nll_loss,
            ppl: found.ppl,
            gate_entropy: found.gate_entropy,
            head_weights: found.head_weights,
            bleu: bleu.transpose()?,
        };
        if args.json {
            println!("{}", serde_json::to_string(&report)?);
        } else {
            print(&report, &args, model.config().experts());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A split of a folder, which must have been made with the dictionaries of the model in `path`.
pub(super) fn open_split(
    model: &ModelFolder,
    path: &Path,
    data: &Path,
    split: &str,
    (from, to): (&str, &str),
) -> Result<ParallelDataset> {
    let pairs = ParallelDataset::open(data, split, from, to)?;
    let faults = [
        mismatch("source dictionaries", &model.source, &pairs.src_vocab),
        mismatch("target dictionaries", &model.target, &pairs.tgt_vocab),
    ];
    let faults: Vec<String> = faults.iter().flatten().map(ToString::to_string).collect();
    ensure!(
        faults.is_empty(),
        "{} was not made for {1}:\n  {2}\n  to prepare the data for this model: mae preprocess --srcdict {1}/{3} --tgtdict \
         {1}/{4}, with the model's codes",
        data.display(),
        path.display(),
        faults.join("\n  "),
        folder::SOURCE_DICT,
        folder::TARGET_DICT
    );
    Ok(pairs)
}

fn print(report: &Report<'_>, args: &Args, experts: Option<Experts>) {
    let Report { split, sentences, skipped, tokens, loss, nll_loss, ppl, .. } = report;
    println!("{split}: {sentences} sentence pairs, {tokens} target tokens");
    if *skipped > 0 {
        println!(
            "  {skipped} pairs are longer than model.max_positions and are left out of the loss (for BLEU their sources are cut)"
        );
    }
    println!(
        "  loss {loss:.3} bits/token (label smoothing {}), nll {nll_loss:.3} bits/token, ppl {ppl:.2}",
        args.label_smoothing
    );
    if let (Some(entropy), Some(experts)) = (report.gate_entropy, experts) {
        let experts = experts.count();
        let most = (experts as f64).ln();
        println!(
            "  gate entropy {entropy:.3} nats (without favourites: ln {experts} = {most:.3}; untrained gates are close to \
             that, and `mae analyze` shows theirs)"
        );
    }
    if let Some(HeadWeights { mean, deviation }) = report.head_weights {
        println!(
            "  head weights {mean:.3} ± {deviation:.3} (plain attention: 1; entropy is not defined for weights)"
        );
    }
    if let Some(bleu) = report.bleu {
        println!("  BLEU {bleu:.2} (beam {}, whitespace tokens, BPE pieces joined)", args.beam);
    }
}
