//! `mae train`: a binarised folder and a recipe in, checkpoints out.

mod flags;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use mae_data::TextDataset;
use mae_model::Config;
use mae_model::folder::Task;
use mae_train::config::{assignment, task};
use mae_train::{Outcome, RunConfig, checkpoint};
use toml::Table;

use self::flags::{Flags, ResetFlags};
use crate::device::DeviceArgs;
use crate::recipes;
use crate::training::display::{Display, To};
use crate::training::material::{Material, Pairs, Sets, Text};
use crate::training::{ConfigOf, Session, Stop, introduction};

const EXAMPLES: &str = "\
Examples:
  Train MAE-7 by a recipe; run the same command again to continue after an interruption:
    mae train data-bin --recipe multi30k-mae7 --save-dir runs/mae7 --max-epoch 30

  Change the system, the seed or any other key of a recipe:
    mae train data-bin --recipe iwslt14-base --system mae6 --seed 2 --save-dir runs/mae6-2
    mae train data-bin --recipe my.toml --set train.clip_norm=0.1 --save-dir runs/clipped

  Fine-tune gates and attention outputs of a trained model on a part of other data:
    mae train ted-bin --recipe wmt14-mae7 --finetune-from-model wmt/checkpoint_best \\
        --free gates+out --subset 5% --save-dir runs/ftg+

  Train a language model on data of `mae preprocess --only-source`:
    mae train wiki-bin --recipe wikitext2-mae7 --save-dir runs/lm

A recipe is a TOML file with [model] and [train]. Flags override its keys; --set overrides any key.
The recipe's architecture decides whether the model translates or is a language model.
The run's folder gets checkpoint_best, checkpoint_last, run.toml (the complete configuration) and
log.jsonl.";

/// Train a translation model or a language model.
///
/// Takes a folder that `mae preprocess` (or fairseq-preprocess) has written. Run it again with the same --save-dir and
/// it goes on where it stopped, bit for bit; Ctrl-C finishes the current update, saves and exits with code 130 (SIGTERM
/// with 143), so that what follows `&&` does not begin; --stop-after exits with 0.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folder with dict.*.txt and train.*.{bin,idx}; of a language model dict.txt and train.{bin,idx}.
    #[arg(required_unless_present_any = ["dry_run", "list_recipes"])]
    data: Option<PathBuf>,
    /// Recipe: a name or a .toml file [default: iwslt14-mae7; of language models wiki103-mae7].
    #[arg(long, value_name = "NAME|FILE")]
    recipe: Option<String>,
    /// What is trained [default: what the recipe is for, or the data].
    #[arg(long, value_name = "TASK")]
    task: Option<TaskName>,
    /// Print the names of all recipes and exit.
    #[arg(long)]
    list_recipes: bool,
    /// Where checkpoints and the log go.
    #[arg(long, default_value = "checkpoints", value_name = "DIR")]
    save_dir: PathBuf,
    /// System of the paper: base, nobcd, uni-mae7, uni-mae6, mae7, mae6, or any number of heads kept.
    #[arg(long, value_name = "NAME")]
    system: Option<String>,
    /// Source language [default: from the file names].
    #[arg(short = 's', long, value_name = "LANG", requires = "target_lang")]
    source_lang: Option<String>,
    /// Target language [default: from the file names].
    #[arg(short = 't', long, value_name = "LANG", requires = "source_lang")]
    target_lang: Option<String>,
    /// Development set.
    #[arg(long, default_value = "valid", value_name = "NAME")]
    valid_subset: String,
    /// Override any key, as in train.lr=0.001 or model.norm=pre; may be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    resets: ResetFlags,
    /// Write TensorBoard's event files to this folder, in train/ and valid/.
    #[arg(long, value_name = "DIR")]
    tensorboard_logdir: Option<PathBuf>,
    /// Stop and save after so many minutes; the same command goes on.
    #[arg(long, value_name = "MINUTES")]
    stop_after: Option<f64>,
    /// Write events as JSON lines to standard output instead of progress bars.
    #[arg(long)]
    json: bool,
    /// Print the resolved configuration and exit.
    #[arg(long)]
    dry_run: bool,
}

/// fairseq's names.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum TaskName {
    #[value(name = "translation")]
    Translation,
    #[value(name = "language_modeling")]
    LanguageModeling,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.list_recipes {
        recipes::names().iter().for_each(|name| println!("{name}"));
        return Ok(ExitCode::SUCCESS);
    }
    let layers = layers(&args)?;
    match task(&layers) {
        Task::Translation => train::<Pairs>(&args, layers),
        Task::LanguageModeling => train::<Text>(&args, layers),
    }
}

/// Recipe, flags and --set, for the task that is asked for.
fn layers(args: &Args) -> Result<Vec<Table>> {
    let mut over = args.flags.layers()?;
    for text in &args.overrides {
        over.push(assignment(text)?);
    }
    let wanted = args.task.map(|name| match name {
        TaskName::Translation => Task::Translation,
        TaskName::LanguageModeling => Task::LanguageModeling,
    });
    let of_data = || match &args.data {
        Some(data) if TextDataset::is_in(data) => Task::LanguageModeling,
        _ => task(&over),
    };
    let recipe = match (&args.recipe, wanted.unwrap_or_else(of_data)) {
        (Some(name), _) => name,
        (None, Task::Translation) => "iwslt14-mae7",
        (None, Task::LanguageModeling) => "wiki103-mae7",
    };
    let mut layers = recipes::layers(recipe)?;
    layers.extend(over);
    let found = task(&layers);
    if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
        bail!(
            "--task asks for a {wanted}, the recipe {recipe} and the flags for a {found}; see --list-recipes"
        );
    }
    Ok(layers)
}

/// The run's configuration: layers, then the system.
fn resolve<C: Config>(args: &Args, mut layers: Vec<Table>) -> Result<RunConfig<C>> {
    if let Some(system) = &args.system {
        let heads = RunConfig::<C>::from_layers(&layers)?.model.heads();
        layers.push(recipes::system(system, heads)?);
    }
    Ok(RunConfig::from_layers(&layers)?)
}

/// Resolves the configuration, then trains on what it finds in the folder.
fn train<D: Material>(args: &Args, layers: Vec<Table>) -> Result<ExitCode> {
    let config: ConfigOf<D> = resolve(args, layers)?;
    let Some(data) = args.data.as_deref().filter(|_| !args.dry_run) else {
        print!("{}", config.to_toml());
        return Ok(ExitCode::SUCCESS);
    };
    let resets = args.resets.resets();
    ensure!(
        config.train.finetune_from_model.is_empty() || resets.names().is_empty(),
        "--finetune-from-model begins everything but the weights anew: leave --reset-* out"
    );
    let languages = args.source_lang.as_deref().zip(args.target_lang.as_deref());
    let material = D::open(Sets { folder: data, languages, valid: &args.valid_subset }, &config.train)?;
    let device = args.device.open()?;
    let to = if args.json { To::Json } else { To::Output };
    let mut display = Display::new(&args.save_dir, device.is_gpu(), to);
    let size = material.size(config.train.subset);
    let (introduced, patience) = (config.clone(), config.train.patience);
    let stop = Stop::new(args.stop_after)?;
    if config.train.max_epoch == 0
        && config.train.max_update == 0
        && patience == 0
        && args.stop_after.is_none()
    {
        eprintln!(
            "mae: no end is set (--max-epoch, --max-update, --patience, --stop-after): trains until Ctrl-C"
        );
    }
    let session = Session {
        data,
        material: &material,
        device: &device,
        folder: &args.save_dir,
        tensorboard: args.tensorboard_logdir.clone(),
        resets,
        stop: &stop,
    };
    let before = Progress::of(&args.save_dir)?;
    let introduce = |model: &D::Model| {
        if !args.json {
            println!("{}", introduction(&introduced, model, &size, &device));
            if let Some(before) = &before {
                println!("goes on from {}/checkpoint_last, after {before}", args.save_dir.display());
            }
        }
    };
    let outcome = session.run(config, introduce, |event| display.show(event))?;
    let Some(now) = Progress::of(&args.save_dir)? else { return Ok(ExitCode::SUCCESS) };
    match outcome {
        Outcome::Interrupted => {
            eprintln!("mae: stopped and saved after {now}; the same command goes on from here");
            return Ok(stop.exit_code());
        }
        Outcome::OutOfPatience => {
            display.say(&format!("ended after {now}: train.patience = {patience} validations without progress"));
        }
        Outcome::Finished if before.as_ref() == Some(&now) => display.say(&format!(
            "nothing left to train: {now} are what --max-epoch and --max-update ask for; raise them, or choose another \
             --save-dir"
        )),
        Outcome::Finished => display.say(&format!("finished after {now}, saved in {}", args.save_dir.display())),
    }
    Ok(ExitCode::SUCCESS)
}

/// How far a run has come.
#[derive(PartialEq, Eq)]
struct Progress {
    epochs: u64,
    updates: u64,
}

impl Progress {
    /// As `checkpoint_last` of a run's folder says, if there is one.
    fn of(folder: &Path) -> Result<Option<Self>> {
        let state = checkpoint::state(folder)?;
        Ok(state.map(|state| Self { epochs: state.epoch - 1, updates: state.counters.updates }))
    }
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        write!(f, "{} ({})", count(self.updates, "update"), count(self.epochs, "whole epoch"))
    }
}
