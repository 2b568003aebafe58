//! `mae train`: a binarised folder and a recipe in, checkpoints out.

mod display;
mod flags;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, ensure};
use mae_data::Segmentation;
use mae_data::pairs::detect_languages;
use mae_data::{IndexedDataset, ParallelDataset};
use mae_eval::validator::BleuValidator;
use mae_model::{Translator, folder};
use mae_train::config::assignment;
use mae_train::validate::Validator;
use mae_train::{Learner, Outcome, RunConfig, Trainer};

use self::display::Display;
use self::flags::{Flags, ResetFlags};
use crate::device::DeviceArgs;
use crate::recipes;

/// Train a translation model.
///
/// Takes a folder that `mae preprocess` (or fairseq-preprocess) has written. Run it again with the same --save-dir and
/// it goes on where it stopped, bit for bit; Ctrl-C finishes the current update, saves and exits.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mae train data-bin --recipe multi30k-mae7 --save-dir runs/mae7 --max-epoch 30
  mae train data-bin --recipe iwslt14-base --system mae6 --seed 2 --save-dir runs/mae6-2
  mae train data-bin --recipe my.toml --set train.clip_norm=0.1 --save-dir runs/clipped
  mae train ted-bin --recipe wmt14-mae7 --finetune-from-model wmt/checkpoint_best --free gates+out --subset 5% --save-dir runs/ftg+

A recipe is a TOML file with [model] and [train]; flags override its keys, and --set overrides any key.
The run's folder gets checkpoint_best, checkpoint_last, run.toml (everything the run used) and log.jsonl.")]
pub struct Args {
    /// Folder with dict.*.txt and train.*.{bin,idx}.
    #[arg(required_unless_present_any = ["dry_run", "list_recipes"])]
    data: Option<PathBuf>,
    /// Recipe: a name or a .toml file.
    #[arg(long, default_value = "iwslt14-mae7", value_name = "NAME|FILE")]
    recipe: String,
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

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.list_recipes {
        recipes::names().iter().for_each(|name| println!("{name}"));
        return Ok(ExitCode::SUCCESS);
    }
    let config = resolve(&args)?;
    let Some(data) = args.data.as_deref().filter(|_| !args.dry_run) else {
        print!("{}", config.to_toml());
        return Ok(ExitCode::SUCCESS);
    };
    let (source, target) = match (&args.source_lang, &args.target_lang) {
        (Some(source), Some(target)) => (source.clone(), target.clone()),
        _ => detect_languages(data)?,
    };
    let train = ParallelDataset::open(data, "train", &source, &target)?;
    let valid_prefix = data.join(format!("{}.{source}-{target}.{source}", args.valid_subset));
    let valid = if IndexedDataset::exists(&valid_prefix) {
        Some(ParallelDataset::open(data, &args.valid_subset, &source, &target)?)
    } else {
        eprintln!("mae: {} has no `{}` set: training without validation", data.display(), args.valid_subset);
        None
    };
    let codes = Segmentation::load(data)?;
    let outcome = train_and_show(&args, data, config, &train, valid.as_ref(), codes.as_ref())?;
    if outcome == Outcome::Interrupted {
        eprintln!("mae: stopped and saved; the same command goes on from here");
    }
    Ok(ExitCode::SUCCESS)
}

/// The run's configuration: recipe, then system, flags and --set.
fn resolve(args: &Args) -> Result<RunConfig> {
    let mut layers = recipes::layers(&args.recipe)?;
    layers.extend(args.flags.layers()?);
    for text in &args.overrides {
        layers.push(assignment(text)?);
    }
    if let Some(system) = &args.system {
        let heads = RunConfig::from_layers(&layers)?.model.encoder_attention_heads;
        layers.push(recipes::system(system, heads)?);
    }
    Ok(RunConfig::from_layers(&layers)?)
}

fn train_and_show(
    args: &Args,
    data: &Path,
    config: RunConfig,
    train: &ParallelDataset,
    valid: Option<&ParallelDataset>,
    codes: Option<&Segmentation>,
) -> Result<Outcome> {
    let resets = args.resets.resets();
    ensure!(
        config.train.finetune_from_model.is_empty() || resets.names().is_empty(),
        "--finetune-from-model begins everything but the weights anew: leave --reset-* out"
    );
    let device = args.device.open()?;
    let types = [train.src_vocab.len(), train.tgt_vocab.len()];
    folder::check_sharing(&config.model, &train.src_vocab, &train.tgt_vocab)?;
    let model = Translator::new(&config.model, types, &device, config.train.seed)?;
    if !args.json {
        let mixture = &config.model.mixture;
        println!(
            "{}: {:?}, {} experts per attention",
            config.model.arch,
            mixture.system,
            config.model.experts().count()
        );
        let pairs = match config.train.subset {
            1.0 => format!("{} training pairs", train.len()),
            part => format!("{} % of {} training pairs", 100.0 * part, train.len()),
        };
        let trained = model.params().count(config.train.free.groups());
        let trained =
            if trained == model.size() { String::new() } else { format!(" ({trained} of them trained)") };
        println!("{} parameters{trained}, {} + {} types, {pairs}", model.size(), types[0], types[1]);
        println!("{}", device.describe());
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
    let validator = match (config.train.eval_bleu_beam, valid) {
        (beam, Some(valid)) if beam > 0 => {
            Some(Box::new(BleuValidator::new(valid, codes, beam)) as Box<dyn Validator>)
        }
        _ => None,
    };
    let trainer = Trainer {
        learner: Learner::new(model, &config.train),
        config,
        train,
        valid,
        codes,
        folder: args.save_dir.clone(),
        tensorboard: args.tensorboard_logdir.clone(),
        resets,
        validator,
        stop: &stop,
        writer: mae_train::checkpoint::Writer::new(),
    };
    let mut display = Display::new(&args.save_dir, device.is_gpu(), args.json);
    let (_, outcome) = trainer.run(|event| display.show(event))?;
    Ok(outcome)
}
