//! `mae convert`: gates into a model, gates out of it, heads out of it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::{PathBufValueParser, TypedValueParser};
use mae_data::pairs::detect_languages;
use mae_data::{BlockOptions, Blocks, BreakMode, Corpus, files};
use mae_model::batches::TextLoss;
use mae_model::convert::{
    Conversion, ConversionFault, Converted, Convertible, Fold, Ranking, Removal, Removed, convert,
};
use mae_model::folder::{ModelFolder, Task, check_full, task};
use mae_model::lm::LmFolder;
use mae_model::{Config, groups};
use serde::Serialize;

use super::validate::open_split;
use crate::data_arg::data_bin;
use crate::device::DeviceArgs;
use crate::exit::ExitCode;
use crate::lm_text::{Source, load};
use crate::model_arg::model_folder;
use crate::outputs::check_model_place;

const EXAMPLES: &str = "\
Examples:
  Give a plain transformer gates that change nothing, and fit them to a domain:
    mae convert runs/base/checkpoint_best --system mae7 --out base-mae7
    mae train domain-bin --finetune-from-model base-mae7 --recipe iwslt14-mae7 \\
        --free gates --save-dir runs/fitted

  Make a plain transformer of one expert of a model, or of the means of its gates:
    mae convert runs/mae7/checkpoint_best --system base --expert 3 --out expert3
    mae convert runs/mae7/checkpoint_best --system base --mean-gates \\
        --data data-bin --out mean

  Remove the two least important heads of every attention, and say what it costs:
    mae convert runs/base/checkpoint_best --drop-heads 2 --data data-bin \\
        --split valid --out small";

/// Add gates to a model, fold them away, or remove heads.
///
/// New gates weigh all heads 1, so that the model computes what it did before: no bit of its logits changes on a CPU if
/// there are 4, 8 or 16 heads. MoH is an exception: it uses some of the heads at each position, so the model must be trained
/// on. Heads are removed from all attentions alike; the matrices become smaller.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Model folder, or the folder of a run.
    #[arg(value_parser = model_folder())]
    model: PathBuf,
    /// Folder to write.
    #[arg(long, visible_alias = "output", value_name = "DIR")]
    out: PathBuf,
    /// New system: base, mae7, mae6, uni-mae7, nobcd, sigmoid, moh, l0, …; the number counts the heads that each expert keeps.
    #[arg(long, default_value = "base", value_name = "NAME")]
    system: String,
    /// Fold this expert away for all sentences; experts are counted from 0.
    #[arg(long, value_name = "N", conflicts_with = "mean_gates")]
    expert: Option<usize>,
    /// Fold the mean over --data of what the gates weigh each head.
    #[arg(long, requires = "data")]
    mean_gates: bool,
    /// Number of heads to remove from every attention, or their share (0.25).
    #[arg(long, value_name = "N", requires = "data")]
    drop_heads: Option<Heads>,
    /// Heads to remove first: those that matter least to the loss (Michel et al., 2019), or those with the smallest
    /// mean weight.
    #[arg(long, value_name = "RANKING", default_value = "importance", requires = "drop_heads")]
    by: By,
    /// Binarised data set to measure the loss on before and after, and the heads.
    #[arg(long, value_name = "DIR", value_parser = PathBufValueParser::new().map(|folder| data_bin(&folder)))]
    data: Option<PathBuf>,
    /// Split of the data set.
    #[arg(long, default_value = "valid", value_name = "NAME", requires = "data")]
    split: String,
    /// Hidden width of new gates [default: that of the model's configuration].
    #[arg(long, value_name = "N")]
    gate_hidden: Option<usize>,
    /// Seed of the first layers of new gates.
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// Print one JSON object.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// A number of heads, or a share of them.
#[derive(Clone, Copy, Debug)]
enum Heads {
    Count(usize),
    Share(f64),
}

impl std::str::FromStr for Heads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text.parse::<usize>(), text.parse::<f64>()) {
            (Ok(count), _) if count > 0 => Ok(Self::Count(count)),
            (Err(_), Ok(share)) if share > 0.0 && share < 1.0 => Ok(Self::Share(share)),
            _ => Err("expected a number of heads, 1 or more, or a share between 0 and 1".into()),
        }
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum By {
    Importance,
    Weight,
}

/// Result of a conversion.
#[derive(Serialize)]
struct Report {
    system: String,
    heads: usize,
    /// Trained parameters.
    parameters: usize,
    /// Weight of every head by new gates.
    #[serde(skip_serializing_if = "Option::is_none")]
    uniform_weight: Option<f32>,
    removed: Vec<Removed>,
    /// Loss on the data set before and after.
    losses: Option<[TextLoss; 2]>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    check_model_place("--out", &args.out, &[&args.model])?;
    check_full(&args.model)?;
    let report = match task(&args.model)? {
        Task::Translation => translation(&args)?,
        Task::LanguageModeling => language(&args)?,
    };
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
    } else {
        args.print(&report);
    }
    Ok(ExitCode::SUCCESS)
}

fn translation(args: &Args) -> Result<Report> {
    let folder = ModelFolder::load(&args.model, &args.device.open()?)
        .with_context(|| format!("model {}", args.model.display()))?;
    let pairs = match &args.data {
        Some(data) => {
            let (from, to) = detect_languages(data)?;
            Some(open_split(&folder, &args.model, data, &args.split, (&from, &to))?)
        }
        None => None,
    };
    let (model, report) = args.converted(&folder.model, pairs.as_ref().map(|pairs| pairs as &dyn Corpus))?;
    let new = ModelFolder { model, ..folder };
    files::replace_folder(&args.out, |place| new.save(place))?;
    Ok(report)
}

fn language(args: &Args) -> Result<Report> {
    let folder = load(&args.model, &args.device.open()?)?;
    let blocks = match &args.data {
        Some(data) => {
            let opened = Source::Split(data, &args.split).open(&folder, &args.model)?;
            let tokens_per_sample = folder.model.config().max_positions;
            let options = BlockOptions { tokens_per_sample, context_window: 0, break_mode: BreakMode::None };
            Some(Blocks::new(opened.data.lines, options)?)
        }
        None => None,
    };
    let (model, report) =
        args.converted(&folder.model, blocks.as_ref().map(|blocks| blocks as &dyn Corpus))?;
    let new = LmFolder { model, ..folder };
    files::replace_folder(&args.out, |place| new.save(place))?;
    Ok(report)
}

/// Adds the flags that help.
fn name_flags(error: mae_model::Error) -> anyhow::Error {
    let help = match &error {
        mae_model::Error::Conversion(ConversionFault::TrainedGates { .. }) => {
            "(--expert N, or --mean-gates with --data DIR)"
        }
        _ => return error.into(),
    };
    anyhow::anyhow!("{error} {help}")
}

impl Args {
    /// The new model, and what to say about it.
    fn converted<M: Convertible>(&self, model: &M, text: Option<&dyn Corpus>) -> Result<(M, Report)> {
        let heads = model.config().heads();
        let removal = self.drop_heads.map(|drop| Removal {
            heads: match drop {
                Heads::Count(count) => count,
                Heads::Share(share) => ((share * heads as f64).round() as usize).max(1),
            },
            by: match self.by {
                By::Importance => Ranking::Importance,
                By::Weight => Ranking::Weight,
            },
        });
        let conversion = Conversion {
            system: self.system.clone(),
            fold: match self.expert {
                Some(expert) => Fold::Expert(expert),
                None if self.mean_gates => Fold::Mean,
                None => Fold::Uniform,
            },
            removal,
            gate_hidden: self.gate_hidden,
            seed: self.seed,
        };
        let Converted { model, removed, losses, uniform_weight } =
            convert(model, &conversion, text).map_err(name_flags)?;
        let config = model.config();
        let report = Report {
            system: config.mixture().name(config.heads()),
            heads: config.heads(),
            parameters: model.params().count(groups::trained()),
            uniform_weight,
            removed,
            losses,
        };
        Ok((model, report))
    }

    fn print(&self, report: &Report) {
        let Report { system, heads, parameters, .. } = report;
        println!("{}: {system}, {heads} heads, {parameters} parameters", self.out.display());
        for Removed { attention, heads } in &report.removed {
            let noun = if heads.len() == 1 { "head" } else { "heads" };
            let heads: Vec<String> = heads.iter().map(ToString::to_string).collect();
            println!("  {attention}: without {noun} {}", heads.join(", "));
        }
        match report.uniform_weight {
            Some(1.0) => println!("  new gates weigh every head 1: no bit changes in f32"),
            Some(weight) => println!("  new gates weigh every head {weight}, which is 1 but for rounding"),
            None if report.system == "moh" => {
                println!(
                    "  MoH uses some of the heads at each position: train the model on before you use it"
                );
            }
            None => {}
        }
        if let Some([before, after]) = report.losses {
            println!(
                "  loss on {} {}: {:.4} bits/token before, {:.4} after ({} target tokens)",
                self.data.as_deref().unwrap_or(Path::new("")).display(),
                self.split,
                before.loss,
                after.loss,
                before.tokens
            );
            if before.skipped > 0 {
                println!("  {} are longer than model.max_positions and were left out", before.skipped);
            }
        }
    }
}
