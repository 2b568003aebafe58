//! `mae train`: a binarised folder and a recipe in, checkpoints out.

mod display;
mod flags;
mod material;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail, ensure};
use mae_data::TextDataset;
use mae_engine::Device;
use mae_model::folder::{self, Task};
use mae_model::{Config, Model};
use mae_train::config::{assignment, task};
use mae_train::{Learner, Outcome, RunConfig, Trainer};
use toml::Table;

use self::display::Display;
use self::flags::{Flags, ResetFlags};
use self::material::{Material, Pairs, Text};
use crate::device::DeviceArgs;
use crate::recipes;

/// Train a translation model or a language model.
///
/// Takes a folder that `mae preprocess` (or fairseq-preprocess) has written. Run it again with the same --save-dir and
/// it goes on where it stopped, bit for bit; Ctrl-C finishes the current update, saves and exits.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mae train data-bin --recipe multi30k-mae7 --save-dir runs/mae7 --max-epoch 30
  mae train data-bin --recipe iwslt14-base --system mae6 --seed 2 --save-dir runs/mae6-2
  mae train data-bin --recipe my.toml --set train.clip_norm=0.1 --save-dir runs/clipped
  mae train ted-bin --recipe wmt14-mae7 --finetune-from-model wmt/checkpoint_best --free gates+out --subset 5% --save-dir runs/ftg+
  mae train wiki-bin --recipe wikitext2-mae7 --save-dir runs/lm            (after mae preprocess --only-source)

A recipe is a TOML file with [model] and [train]; flags override its keys, and --set overrides any key. Its architecture
says whether the model translates or is a language model.
The run's folder gets checkpoint_best, checkpoint_last, run.toml (everything the run used) and log.jsonl.")]
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
    #[arg(short = 's', long, value_name = "LANG")]
    source_lang: Option<String>,
    /// Target language [default: from the file names].
    #[arg(short = 't', long, value_name = "LANG")]
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
    let config: RunConfig<<D::Model as Model>::Config> = resolve(args, layers)?;
    let Some(data) = args.data.as_deref().filter(|_| !args.dry_run) else {
        print!("{}", config.to_toml());
        return Ok(ExitCode::SUCCESS);
    };
    let material = D::open(args, data, &config.train)?;
    if train_and_show(args, data, config, &material)? == Outcome::Interrupted {
        eprintln!("mae: stopped and saved; the same command goes on from here");
    }
    Ok(ExitCode::SUCCESS)
}

fn train_and_show<D: Material>(
    args: &Args,
    data: &Path,
    config: RunConfig<<D::Model as Model>::Config>,
    material: &D,
) -> Result<Outcome> {
    let resets = args.resets.resets();
    ensure!(
        config.train.finetune_from_model.is_empty() || resets.names().is_empty(),
        "--finetune-from-model begins everything but the weights anew: leave --reset-* out"
    );
    let device = args.device.open()?;
    let model = material.model(&config.model, &device, config.train.seed)?;
    if !args.json {
        introduce(&config, &model, &material.size(config.train.subset), &device);
    }
    std::fs::create_dir_all(&args.save_dir)
        .with_context(|| format!("--save-dir {}", args.save_dir.display()))?;
    let record =
        format!("# mae {}\n# data: {}\n\n{}", env!("CARGO_PKG_VERSION"), data.display(), config.to_toml());
    folder::write_aside(&args.save_dir.join("run.toml"), record.as_bytes())?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        // A second signal ends the process at once.
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())?;
        signal_hook::flag::register(signal, stop.clone())?;
    }
    let (train, valid) = material.corpora();
    let trainer = Trainer {
        learner: Learner::new(model, &config.train),
        train,
        valid,
        text: material.text(),
        folder: args.save_dir.clone(),
        tensorboard: args.tensorboard_logdir.clone(),
        resets,
        validator: material.validator(&config.train),
        config,
        stop: &stop,
        writer: mae_train::checkpoint::Writer::new(),
    };
    let mut display = Display::new(&args.save_dir, device.is_gpu(), args.json);
    let (_, outcome) = trainer.run(|event| display.show(event))?;
    Ok(outcome)
}

/// What is about to be trained.
fn introduce<M: Model>(config: &RunConfig<M::Config>, model: &M, data: &str, device: &Device) {
    let mixture = config.model.mixture();
    let experts = mae_model::experts::Experts { heads: config.model.heads(), dropped: mixture.dropped_heads };
    println!("{}: {:?}, {} experts per attention", config.model.name(), mixture.system, experts.count());
    let all = model.params().count(mae_model::groups::trained());
    let trained = model.params().count(config.train.free.groups());
    let trained = if trained == all { String::new() } else { format!(" ({trained} of them trained)") };
    println!("{all} parameters{trained}, {data}");
    println!("{}", device.describe());
}
