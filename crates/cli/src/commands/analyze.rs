//! `mae analyze`: what the gates and experts of a trained model do.

mod tables;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use mae_data::ParallelDataset;
use mae_data::pairs::detect_languages;
use mae_eval::analysis::one_expert::{self, OneExpert};
use mae_eval::analysis::{Analysis, Options, analyse};
use mae_model::config::System;
use mae_model::folder::{ModelFolder, write_aside};
use mae_train::finetune::dictionary_fault;
use serde::Serialize;

use super::generate::unless_nobody_reads;
use crate::device::DeviceArgs;
use crate::page::{self, page};
use crate::progress;

/// See what the gates and experts of a trained model do: the paper's section 5.1, for any model and data.
///
/// Per attention of encoder and decoder: the entropy of its gates, which experts lead how many sentences (or target positions,
/// where gates are per position), the weights of heads, the words that go with each expert (PMI), and whether a few experts
/// take everything. Gates are those of a pass with the reference translations.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  mae analyze runs/mae7/checkpoint_best --data data-bin --html mae7.html
  mae analyze runs/mae7/checkpoint_best --data data-bin --split valid --bleu --json > mae7.json

The page is one file that needs no network. What the numbers mean: docs/analysis.md.")]
pub struct Args {
    /// Model folder.
    model: PathBuf,
    /// Folder with dict.*.txt and the splits.
    #[arg(long, value_name = "DIR")]
    data: PathBuf,
    /// Split to analyse.
    #[arg(long, alias = "gen-subset", default_value = "test", value_name = "NAME")]
    split: String,
    /// Source language [default: from the file names].
    #[arg(short = 's', long, value_name = "LANG", requires = "target_lang")]
    source_lang: Option<String>,
    /// Target language [default: from the file names].
    #[arg(short = 't', long, value_name = "LANG", requires = "source_lang")]
    target_lang: Option<String>,
    /// Words that come less often than this are left out of the PMI.
    #[arg(long, default_value_t = 10, value_name = "N")]
    min_count: u64,
    /// Words listed per expert and attention.
    #[arg(long, default_value_t = 10, value_name = "N")]
    top_words: usize,
    /// Sentences whose gates go into the page and the JSON, evenly spread over the split.
    #[arg(long, default_value_t = 100, value_name = "N")]
    sentences: usize,
    /// Translate with one expert per attention as well: BLEU against the mixture's. Costs a translation of the split for the
    /// mixture, one for the gates' favourites, and one for each draw.
    #[arg(long)]
    bleu: bool,
    /// Draws of random experts.
    #[arg(long, default_value_t = 5, requires = "bleu", value_name = "N")]
    draws: usize,
    /// Beam of the translations.
    #[arg(long, default_value_t = 5, requires = "bleu")]
    beam: usize,
    /// Seed of the first draw; the others take the numbers after it.
    #[arg(long, default_value_t = 1, requires = "bleu", value_name = "N")]
    seed: u64,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
    /// Write a page to look at (aside, then renamed).
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Everything that was found: what `--json` prints and the page shows.
#[derive(Serialize)]
struct Found {
    model: String,
    data: String,
    split: String,
    system: System,
    analysis: Analysis,
    one_expert: Option<OneExpert>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<ExitCode> {
    if args.beam == 0 {
        bail!("--beam 0 finds nothing; it must be at least 1");
    }
    let folder = ModelFolder::load(&args.model, &args.device.open()?)
        .with_context(|| format!("model {}", args.model.display()))?;
    let system = folder.model.config().mixture.system;
    if system == System::Base {
        bail!(
            "{} has no experts (it is BASE); analyse a model of one of the other systems",
            args.model.display()
        );
    }
    let data = args.open(&folder)?;
    let ModelFolder { model, codes, .. } = folder;
    let bar = progress::bar(data.len() as u64, "Reading gates");
    let options = Options { min_count: args.min_count, top_words: args.top_words, sentences: args.sentences };
    let analysis = analyse(&model, &data, codes.as_ref(), options, |done| bar.set_position(done))?;
    bar.finish_and_clear();
    if analysis.sentences == 0 {
        bail!("{}: {} has no sentence pairs that fit into the model", args.data.display(), args.split);
    }
    let one_expert = if args.bleu {
        let options = one_expert::Options { beam: args.beam, draws: args.draws, seed: args.seed };
        let bar = progress::bar(options.translations(&model) as u64, "Translating the split");
        let scores = one_expert::evaluate(&model, &data, codes.as_ref(), options, || bar.inc(1))?;
        bar.finish_and_clear();
        Some(scores)
    } else {
        None
    };
    let found = Found {
        model: args.model.display().to_string(),
        data: args.data.display().to_string(),
        split: args.split.clone(),
        system,
        analysis,
        one_expert,
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
        write_aside(path, html.as_bytes())?;
        eprintln!("the page is in {}", path.display());
    }
    unless_nobody_reads(printed.context("cannot write to standard output"))
}

impl Args {
    /// The split, which must have been made with the model's dictionaries.
    fn open(&self, folder: &ModelFolder) -> Result<ParallelDataset> {
        let (from, to) = match (&self.source_lang, &self.target_lang) {
            (Some(from), Some(to)) => (from.clone(), to.clone()),
            _ => detect_languages(&self.data)?,
        };
        let data = ParallelDataset::open(&self.data, &self.split, &from, &to)?;
        let faults = [
            dictionary_fault("source", &folder.source, &data.src_vocab),
            dictionary_fault("target", &folder.target, &data.tgt_vocab),
        ];
        let faults: Vec<String> = faults.into_iter().flatten().collect();
        if !faults.is_empty() {
            bail!(
                "{} was not made for {}:\n  {}",
                self.data.display(),
                self.model.display(),
                faults.join("\n  ")
            );
        }
        Ok(data)
    }
}
