//! `mae train`: a binarised folder and a recipe in, checkpoints out.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use indicatif::ProgressBar;
use mae_data::Segmentation;
use mae_data::pairs::detect_languages;
use mae_data::{IndexedDataset, ParallelDataset};
use mae_eval::validator::BleuValidator;
use mae_model::{Translator, folder};
use mae_train::config::assignment;
use mae_train::log::Event;
use mae_train::validate::Validator;
use mae_train::{Learner, Outcome, RunConfig, Trainer};
use toml::Table;

use crate::device::DeviceArgs;
use crate::{progress, recipes};

/// Train a translation model.
///
/// Takes a folder that `mae preprocess` (or fairseq-preprocess) has written. Run it again with the same --save-dir and
/// it goes on where it stopped, bit for bit; Ctrl-C finishes the current update, saves and exits.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mae train data-bin --recipe multi30k-mae7 --save-dir runs/mae7 --max-epoch 30
  mae train data-bin --recipe iwslt14-base --system mae6 --seed 2 --save-dir runs/mae6-2
  mae train data-bin --recipe my.toml --set train.clip_norm=0.1 --save-dir runs/clipped

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
    /// Write events as JSON lines to standard output instead of progress bars.
    #[arg(long)]
    json: bool,
    /// Print the resolved configuration and exit.
    #[arg(long)]
    dry_run: bool,
}

/// Flags that fairseq users know; each stands for one key.
#[derive(clap::Args)]
#[command(next_help_heading = "Keys by their fairseq names")]
struct Flags {
    /// model.arch
    #[arg(long)]
    arch: Option<String>,
    /// model.dropout
    #[arg(long)]
    dropout: Option<f32>,
    /// model.share_embeddings = "all"
    #[arg(long)]
    share_all_embeddings: bool,
    /// train.seed
    #[arg(long)]
    seed: Option<u64>,
    /// train.lr
    #[arg(long)]
    lr: Option<f64>,
    /// train.warmup_updates
    #[arg(long)]
    warmup_updates: Option<u64>,
    /// train.weight_decay
    #[arg(long)]
    weight_decay: Option<f32>,
    /// train.clip_norm
    #[arg(long)]
    clip_norm: Option<f64>,
    /// train.label_smoothing
    #[arg(long)]
    label_smoothing: Option<f32>,
    /// train.max_tokens
    #[arg(long)]
    max_tokens: Option<u32>,
    /// train.update_freq
    #[arg(long)]
    update_freq: Option<usize>,
    /// train.max_epoch
    #[arg(long)]
    max_epoch: Option<u64>,
    /// train.max_update
    #[arg(long)]
    max_update: Option<u64>,
    /// train.patience
    #[arg(long)]
    patience: Option<u64>,
    /// train.save_interval_updates
    #[arg(long)]
    save_interval_updates: Option<u64>,
    /// train.keep_last_epochs
    #[arg(long)]
    keep_last_epochs: Option<usize>,
    /// train.log_interval
    #[arg(long)]
    log_interval: Option<u64>,
    /// train.eval_bleu_beam = 5
    #[arg(long)]
    eval_bleu: bool,
    /// train.best_checkpoint_metric (loss or bleu)
    #[arg(long)]
    best_checkpoint_metric: Option<String>,
}

impl Flags {
    fn layers(&self) -> Result<Vec<Table>> {
        let text = |value: &dyn std::fmt::Display| value.to_string();
        let given = [
            ("model.arch", self.arch.clone()),
            ("model.dropout", self.dropout.as_ref().map(|v| text(v))),
            ("model.share_embeddings", self.share_all_embeddings.then(|| "all".into())),
            ("train.seed", self.seed.as_ref().map(|v| text(v))),
            ("train.lr", self.lr.as_ref().map(|v| text(v))),
            ("train.warmup_updates", self.warmup_updates.as_ref().map(|v| text(v))),
            ("train.weight_decay", self.weight_decay.as_ref().map(|v| text(v))),
            ("train.clip_norm", self.clip_norm.as_ref().map(|v| text(v))),
            ("train.label_smoothing", self.label_smoothing.as_ref().map(|v| text(v))),
            ("train.max_tokens", self.max_tokens.as_ref().map(|v| text(v))),
            ("train.update_freq", self.update_freq.as_ref().map(|v| text(v))),
            ("train.max_epoch", self.max_epoch.as_ref().map(|v| text(v))),
            ("train.max_update", self.max_update.as_ref().map(|v| text(v))),
            ("train.patience", self.patience.as_ref().map(|v| text(v))),
            ("train.save_interval_updates", self.save_interval_updates.as_ref().map(|v| text(v))),
            ("train.keep_last_epochs", self.keep_last_epochs.as_ref().map(|v| text(v))),
            ("train.log_interval", self.log_interval.as_ref().map(|v| text(v))),
            ("train.eval_bleu_beam", self.eval_bleu.then(|| "5".into())),
            ("train.best_checkpoint_metric", self.best_checkpoint_metric.clone()),
        ];
        let layer =
            |(key, value): (&str, Option<String>)| value.map(|v| Ok(assignment(&format!("{key}={v}"))?));
        given.into_iter().filter_map(layer).collect()
    }
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
        println!(
            "{} parameters, {} + {} types, {} training pairs",
            model.size(),
            types[0],
            types[1],
            train.len()
        );
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
            Some(Box::new(BleuValidator::new(valid, beam)) as Box<dyn Validator>)
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
        validator,
        stop: &stop,
        writer: mae_train::checkpoint::Writer::new(),
    };
    let mut display = Display { json: args.json, bar: ProgressBar::hidden(), folder: &args.save_dir };
    let (_, outcome) = trainer.run(|event| display.show(event))?;
    Ok(outcome)
}

/// What people see of a run.
struct Display<'a> {
    json: bool,
    bar: ProgressBar,
    folder: &'a Path,
}

impl Display<'_> {
    fn show(&mut self, event: &Event) {
        if self.json {
            if !matches!(event, Event::Update { .. }) {
                println!("{}", serde_json::to_string(event).expect("events can be written as JSON"));
            }
            return;
        }
        match event {
            Event::Changed { lines } => {
                eprintln!("mae: this run goes on with other choices than before: {}", lines.join("; "));
            }
            Event::Skipped { pairs, examples } => {
                let some: Vec<String> = examples.iter().map(u64::to_string).collect();
                eprintln!(
                    "mae: {pairs} training pairs are longer than train.max_tokens or model.max_positions and are left out \
                     (numbers {}, …)",
                    some.join(", ")
                );
            }
            Event::Epoch { epoch, updates, done } => {
                self.bar = progress::bar(*updates, &format!("epoch {epoch}"));
                self.bar.set_position(*done);
            }
            Event::Update { done } => self.bar.set_position(*done),
            Event::Train(line) => {
                let text = format!(
                    "loss {:.3} bits/token, ppl {:.2}, lr {:.2e}, {:.0} target tokens/s",
                    line.loss, line.ppl, line.lr, line.wps
                );
                self.bar.set_message(text.clone());
                if self.bar.is_hidden() {
                    println!("epoch {} update {}: {text}", line.epoch, line.num_updates);
                }
            }
            Event::Valid(valid) => {
                self.bar.finish_and_clear();
                let mut text = format!(
                    "epoch {} update {}: valid loss {:.3} bits/token, nll {:.3}, ppl {:.2}",
                    valid.epoch, valid.num_updates, valid.loss, valid.nll_loss, valid.ppl
                );
                if let Some(bleu) = valid.bleu {
                    text.push_str(&format!(", BLEU {bleu:.2}"));
                }
                if let Some(entropy) = valid.gate_entropy {
                    text.push_str(&format!(", gate entropy {entropy:.3} nats"));
                }
                if valid.is_best {
                    text.push_str(&format!(" (best so far, saved in {})", self.folder.display()));
                }
                println!("{text}");
            }
            Event::Saved { .. } => {}
        }
    }
}
