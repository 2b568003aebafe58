//! `mae analyze`: what the gates and experts of a trained model do.

mod importance;
mod language;
mod tables;
mod translation;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use mae_data::files;
use mae_engine::Params;
use mae_eval::analysis::one_expert::{OneExpert, Random};
use mae_eval::analysis::{Analysis, Options};
use mae_model::folder::{Task, task};
use mae_model::system::{Mixes, System};
use mae_model::{Config, Model};
use mae_train::run::recorded_keys;
use mae_train::validate::untrained_gates;
use serde::Serialize;

use crate::data_arg::DataArg;
use crate::device::DeviceArgs;
use crate::exit::ExitCode;
use crate::lm_text::BlockArgs;
use crate::model_arg::model_folder;
use crate::outputs::{check_place, unless_nobody_reads};
use crate::page::{self, page};
use importance::Importance;

const EXAMPLES: &str = "\
Examples:
  Write a page about the gates and experts of a translation model:
    mae analyze runs/mae7/checkpoint_best --data data-bin --html mae7.html

  Also translate with one expert at a time, and print JSON:
    mae analyze runs/mae7/checkpoint_best --data data-bin --split valid \\
        --one-expert --json

  Show which experts serve which domain (one tag per sentence pair in test.domain):
    mae analyze runs/mae7/average --data data-bin --tags test.domain

  Show which heads a model needs, of any system:
    mae analyze runs/base/average --data data-bin --split valid --importance

  Analyse a language model on binarised data or on plain text:
    mae analyze runs/lm/checkpoint_best --data wiki-bin \\
        --tokens-per-sample 512 \\
        --context-window 480 --html lm.html
    mae analyze runs/lm/checkpoint_best --text chapter.txt

The page is a single file that works offline. docs/analysis.md explains the numbers.";

/// Analyse the gates and experts of a trained model, as in section 5.1 of the paper.
///
/// Reports for each attention the entropy of its gates, the share of sentences (or positions, if gates are per
/// position) that each expert leads, head weights, the words that go with each expert (by log-likelihood ratio), and
/// whether the experts have collapsed; beside them the same figures of the gates before their training. The gates come from a pass with the reference translations or, for a language model, from a pass
/// over a text in the blocks of `mae eval-lm`, each token once.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Model folder, or the folder of a run.
    #[arg(value_parser = model_folder())]
    model: PathBuf,
    #[command(flatten)]
    data: DataArg,
    /// Split to analyse [default: test].
    #[arg(long, alias = "gen-subset", value_name = "NAME")]
    split: Option<String>,
    /// Text to analyse a language model on, in place of DATA (plain, .gz or .zst; `-` is standard input). It is
    /// segmented with the model's codes, if it has any.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["DataArg", "split"])]
    text: Option<PathBuf>,
    /// Source language [default: from the file names].
    #[arg(short = 's', long, value_name = "LANG", requires = "target_lang")]
    source_lang: Option<String>,
    /// Target language [default: from the file names].
    #[arg(short = 't', long, value_name = "LANG", requires = "source_lang")]
    target_lang: Option<String>,
    /// Smallest count of a word in the PMI.
    #[arg(long, default_value_t = 10, value_name = "N")]
    min_count: u64,
    /// Number of words to list per expert and attention.
    #[arg(long, default_value_t = 10, value_name = "N")]
    top_words: usize,
    /// Number of sentences whose gates are in the page and the JSON, spread evenly over the split. For a text, passages
    /// of 64 tokens; fewer if their gates would exceed a million values.
    #[arg(long, default_value_t = 100, value_name = "N")]
    sentences: usize,
    /// Also evaluate with one expert per attention: BLEU, or the perplexity of a language model, compared with the
    /// mixture. This takes a translation of the split for the mixture, one for the gates' favourites and one for each
    /// draw; for a text, a pass in place of a translation.
    #[arg(long, visible_alias = "bleu")]
    one_expert: bool,
    /// Number of draws of random experts.
    #[arg(long, default_value_t = 5, requires = "one_expert", value_name = "N")]
    draws: usize,
    /// Beam size of the translations [default: 5].
    #[arg(long, requires = "one_expert", value_name = "N")]
    beam: Option<usize>,
    /// Seed of the first draw; further draws use the following numbers.
    #[arg(long, default_value_t = 1, requires = "one_expert", value_name = "N")]
    seed: u64,
    /// File with one tag per sentence pair of the split, such as its domain: report the gates of each tag.
    #[arg(long, value_name = "FILE", conflicts_with = "text")]
    tags: Option<PathBuf>,
    /// Also measure how much each head matters (Michel et al., 2019), and the loss without the least important heads, a
    /// tenth of them at a time. This takes a pass forward and back, and ten passes. Any system has heads.
    #[arg(long)]
    importance: bool,
    /// Seed of the untrained gates that are reported beside the trained ones [default: that of the run that the model is
    /// from, else 1].
    #[arg(long, value_name = "N")]
    untrained_seed: Option<u64>,
    /// Print one JSON object in place of tables.
    #[arg(long)]
    json: bool,
    /// Write an HTML page; the file appears when it is complete.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten, next_help_heading = "Language models")]
    blocks: BlockArgs,
}

/// Everything that was found: what `--json` prints and the page shows.
#[derive(Serialize)]
struct Found {
    model: String,
    /// The folder, or the file of a text.
    data: String,
    split: Option<String>,
    system: System,
    analysis: Analysis,
    one_expert: Option<OneExpert>,
    #[serde(skip_serializing_if = "Option::is_none")]
    importance: Option<Importance>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    check_place(args.html.as_deref())?;
    let found = match task(&args.model)? {
        Task::Translation => translation::find(&args)?,
        Task::LanguageModeling => language::find(&args)?,
    };
    // First what may have taken long to find; a page that cannot be written loses nothing.
    let mut text = Vec::new();
    if args.json {
        serde_json::to_writer(&mut text, &found)?;
        text.push(b'\n');
    } else {
        tables::print(&mut text, &found)?;
    }
    let printed = std::io::stdout().write_all(&text);
    if let Some(path) = &args.html {
        let html = page(&format!("Experts of {}", found.model), page::ANALYSIS, &found)?;
        files::write(path, html.as_bytes())?;
        eprintln!("the page is in {}", path.display());
    }
    unless_nobody_reads(printed.context("cannot write to standard output"))
}

impl Args {
    fn options(&self) -> Options {
        Options { min_count: self.min_count, top_words: self.top_words, sentences: self.sentences }
    }

    /// The gates of a model before its training, which stand beside.
    fn untrained<M: Model>(&self, model: &M) -> Result<Option<Arc<Params>>> {
        if !model.config().mixture().system.is_gated() {
            return Ok(None);
        }
        let mut keys = recorded_keys(&self.model).unwrap_or_default();
        keys.seed = self.untrained_seed.unwrap_or(keys.seed);
        Ok(Some(untrained_gates(model, &keys)?))
    }

    fn random(&self) -> Random {
        Random { draws: self.draws, seed: self.seed }
    }

    fn split(&self) -> &str {
        self.split.as_deref().unwrap_or("test")
    }

    /// An error where there is nothing to analyse.
    fn check_system(&self, system: System) -> Result<()> {
        ensure!(
            system.mixes() != Mixes::Nothing || self.importance,
            "{} has no experts (it is {system}); analyse a model of one of the other systems, or the importance of its heads \
             (--importance)",
            self.model.display()
        );
        ensure!(
            system.mixes() != Mixes::Nothing || self.html.is_none(),
            "--html shows gates and experts: {} has none (it is {system}); leave --html out",
            self.model.display()
        );
        ensure!(
            system.has_experts() || !self.one_expert,
            "--one-expert needs experts: {} has none (it is {system}); leave --one-expert out",
            self.model.display()
        );
        Ok(())
    }

    /// Result with the names of model and data.
    fn found(
        &self,
        system: System,
        analysis: Analysis,
        one_expert: Option<OneExpert>,
        importance: Option<Importance>,
    ) -> Found {
        let folder = self.data.folder();
        let place = self.text.as_ref().or(folder.as_ref());
        Found {
            model: self.model.display().to_string(),
            data: place.map(|path| path.display().to_string()).unwrap_or_default(),
            split: self.data.folder().is_some().then(|| self.split().to_owned()),
            system,
            analysis,
            one_expert,
            importance,
        }
    }
}
