//! `mae train`: a binarised folder and a recipe in, checkpoints out.

mod flags;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};
use mae_data::TextDataset;
use mae_eval::validator;
use mae_model::folder::Task;
use mae_train::run::{Progress, Run};
use mae_train::{Outcome, Recipe, recipe};

use self::flags::{Flags, ResetFlags};
use crate::data_arg::data_bin;
use crate::device::DeviceArgs;
use crate::exit::ExitCode;
use crate::training::display::{Display, Output, progress_in_words};
use crate::training::ranks::{self, RanksArgs};
use crate::training::stop::Stop;

const EXAMPLES: &str = "\
Examples:
  Train MAE-7 by a recipe; run the same command again to continue after an interruption:
    mae train data-bin --recipe multi30k-mae7 --save-dir runs/mae7 \\
        --max-epoch 30

  Change the system, the seed or any other key of a recipe:
    mae train data-bin --recipe iwslt14-base --system mae6 --seed 2 \\
        --save-dir runs/mae6-2
    mae train data-bin --recipe my.toml --set train.clip_norm=0.1 \\
        --save-dir runs/clipped

  Fine-tune gates and attention outputs of a trained model on a part of other data:
    mae train ted-bin --recipe wmt14-mae7 \\
        --finetune-from-model wmt/checkpoint_best \\
        --free gates+out --subset 5% --save-dir runs/ftg+

  Train a language model on data of `mae preprocess --only-source`:
    mae train wiki-bin --recipe wikitext2-mae7 --save-dir runs/lm

  Train with two processes, or on all GPUs of a machine (docs/distributed.md):
    mpirun -n 2 mae train data-bin --recipe iwslt14-mae7 --save-dir runs/mae7
    torchrun --no-python --nproc-per-node 8 mae train data-bin \\
        --recipe wmt14-mae7 --save-dir runs/mae7

A recipe is a TOML file with [model] and [train]. Flags override its keys; --set overrides any key.
The recipe's architecture decides whether the model translates or is a language model.
The run's folder gets checkpoint_best, checkpoint_last, run.toml (the complete configuration) and
log.jsonl.";

/// Train a translation model or a language model.
///
/// Reads a folder written by `mae preprocess` or fairseq-preprocess. The same command with the same --save-dir
/// continues an interrupted run, bit for bit. Ctrl-C finishes the current update, saves and exits with code 130
/// (SIGTERM: 143), so that commands after `&&` do not start; --stop-after exits with 0.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Folder with dict.*.txt and train.*.{bin,idx}, for language models dict.txt and train.{bin,idx}; or the folder
    /// --out of `mae prepare`.
    #[arg(required_unless_present_any = ["dry_run", "list_recipes"])]
    data: Option<PathBuf>,
    /// Recipe: a name (see `mae recipes`) or a .toml file [default: iwslt14-mae7; for language models wiki103-mae7; with
    /// --arch a plain transformer].
    #[arg(long, value_name = "NAME|FILE")]
    recipe: Option<String>,
    /// Task [default: from the recipe or the data].
    #[arg(long, value_name = "TASK")]
    task: Option<TaskName>,
    /// Print the names of all recipes and exit; `mae recipes` describes them.
    #[arg(long, hide = true)]
    list_recipes: bool,
    /// Folder for checkpoints and the log.
    #[arg(long, default_value = "checkpoints", value_name = "DIR")]
    save_dir: PathBuf,
    /// System of the paper: base, nobcd, uni-mae7, uni-mae6, mae7, mae6, or with another number of heads kept.
    #[arg(long, value_name = "NAME")]
    system: Option<String>,
    /// Source language [default: from the file names].
    #[arg(short = 's', long, value_name = "LANG", requires = "target_lang")]
    source_lang: Option<String>,
    /// Target language [default: from the file names].
    #[arg(short = 't', long, value_name = "LANG", requires = "source_lang")]
    target_lang: Option<String>,
    /// Name of the development set.
    #[arg(long, default_value = "valid", value_name = "NAME")]
    valid_subset: String,
    /// Override any key, as in train.lr=0.001 or model.norm=pre; can be repeated.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    overrides: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Save and stop after this many minutes; the same command continues.
    #[arg(long, value_name = "MINUTES")]
    stop_after: Option<f64>,
    /// Folder for event files of TensorBoard, in train/ and valid/.
    #[arg(long, value_name = "DIR")]
    tensorboard_logdir: Option<PathBuf>,
    /// Print events as JSON lines in place of progress bars.
    #[arg(long)]
    json: bool,
    /// Print the resolved configuration and exit.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    ranks: RanksArgs,
    #[command(flatten)]
    resets: ResetFlags,
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
        recipe::names().iter().for_each(|name| println!("{name}"));
        return Ok(ExitCode::SUCCESS);
    }
    let recipe = configure(&args)?;
    match args.data.as_deref().filter(|_| !args.dry_run) {
        Some(data) => train(&args, recipe, &data_bin(data)),
        None => {
            print!("{}", recipe.to_toml()?);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The recipe with flags, --set and --system on top, for the task that is asked for.
fn configure(args: &Args) -> Result<Recipe> {
    let flags = args.flags.apply(Recipe::default())?;
    let over = args.overrides.iter().try_fold(flags, |recipe, text| recipe.set(text))?;
    let wanted = args.task.map(|name| match name {
        TaskName::Translation => Task::Translation,
        TaskName::LanguageModeling => Task::LanguageModeling,
    });
    let of_data = || match &args.data {
        Some(data) if TextDataset::is_in(data_bin(data)) => Task::LanguageModeling,
        _ => over.task(),
    };
    let (name, base) = match (&args.recipe, wanted.unwrap_or_else(of_data)) {
        (Some(name), _) => (name.as_str(), Recipe::load(name)?),
        // An architecture alone is a plain transformer, as in fairseq.
        (None, _) if over.names_architecture() => ("of the architecture", Recipe::default()),
        (None, Task::Translation) => ("iwslt14-mae7", Recipe::load("iwslt14-mae7")?),
        (None, Task::LanguageModeling) => ("wiki103-mae7", Recipe::load("wiki103-mae7")?),
    };
    let recipe = over.layers().iter().cloned().fold(base, Recipe::with);
    let found = recipe.task();
    if let Some(wanted) = wanted.filter(|wanted| *wanted != found) {
        bail!("--task asks for a {wanted}, the recipe {name} and the flags for a {found}; see `mae recipes`");
    }
    match &args.system {
        Some(system) => Ok(recipe.with_system(system)?),
        None => Ok(recipe),
    }
}

/// Trains on what it finds in the folder.
fn train(args: &Args, recipe: Recipe, data: &Path) -> Result<ExitCode> {
    let (config, resets) = (recipe.train_config()?, args.resets.resets());
    ensure!(
        config.finetune_from_model.is_empty() || resets.names().is_empty(),
        "--finetune-from-model begins everything but the weights anew: leave --reset-* out"
    );
    let launch = args.ranks.launch()?;
    let device = args.device.open_for(launch.as_ref().map_or(0, |launch| launch.place.local_rank))?;
    let team = ranks::team(launch.as_ref(), &device)?;
    let place = team.place();
    let stop = Stop::new(args.stop_after)?;
    let is_endless = config.max_epoch == 0 && config.max_update == 0 && config.patience == 0;
    if is_endless && args.stop_after.is_none() && place.is_first() {
        eprintln!(
            "mae: no end is set (--max-epoch, --max-update, --patience, --stop-after): trains until Ctrl-C"
        );
    }
    let _answering = place.is_first().then(|| stop.answer("finishing the update and saving the run".into()));
    let before = if place.is_first() { Progress::of(&args.save_dir)? } else { None };
    let output = if args.json { Output::Json } else { Output::Text };
    let mut display = Display::new(output).on_closed_pipe(stop.on_closed_pipe());
    let mut run = Run::new(data, recipe)
        .save_dir(&args.save_dir)
        .device(&device)
        .development_set(&args.valid_subset)
        .resets(resets)
        .bleu(validator::bleu)
        .stop(stop.flag())
        .team(team);
    if place.is_first() {
        run = run.observer(&mut display);
    }
    if let Some((source, target)) = args.source_lang.as_deref().zip(args.target_lang.as_deref()) {
        run = run.languages(source, target);
    }
    if let Some(folder) = &args.tensorboard_logdir {
        run = run.tensorboard(folder);
    }
    let summary = match run.train() {
        Ok(summary) => summary,
        Err(error) => return ranks::failure(place, error),
    };
    if !place.is_first() {
        let interrupted = summary.outcome == Outcome::Interrupted;
        return Ok(if interrupted { stop.exit_code() } else { ExitCode::SUCCESS });
    }
    let now = progress_in_words(summary.progress);
    match summary.outcome {
        Outcome::Interrupted => {
            writeln!(io::stderr(), "mae: stopped and saved after {now}; the same command resumes it").ok();
            return Ok(stop.exit_code());
        }
        Outcome::OutOfPatience => {
            let patience = config.patience;
            display.say(&format!("ended after {now}: train.patience = {patience} validations without progress"));
        }
        Outcome::Finished if before == Some(summary.progress) => display.say(&format!(
            "nothing left to train: {now} are what --max-epoch and --max-update ask for; raise them, or choose another \
             --save-dir"
        )),
        Outcome::Finished => display.say(&format!("finished after {now}, saved in {}", args.save_dir.display())),
    }
    Ok(ExitCode::SUCCESS)
}
