//! What `mae quickstart` does: make a corpus, prepare it, train one system, translate held-out lines, look at the gates.

pub mod corpus;
mod folder;
mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use mae_data::bpe::{Bpe, LearnOptions, WordCounts, learn};
use mae_data::vocab::VocabOptions;
use mae_data::{ParallelDataset, Segmentation, Vocab};
use mae_engine::Device;
use mae_eval::bleu::{BleuConfig, BleuStats, exact_match};
use mae_eval::gates::summarise;
use mae_eval::translate::translate;
use mae_model::folder::write_aside;
use mae_model::{ExpertMode, Translator};
use mae_train::checkpoint::{Resets, TextSide};
use mae_train::log::Event;
use mae_train::{Learner, RunConfig, Trainer};
use mae_translate::SearchOptions;

use crate::training::write_record;
use crate::{progress, recipes};
use corpus::Pair;
pub use report::{Report, print_comparison};

/// Held-out lines that the model is scored on.
const HELD_OUT: usize = 500;
/// Merges of the joint BPE.
const MERGES: usize = 500;
/// Updates between two lines of progress, about, where there is no terminal for a bar.
const SAY_EVERY: u64 = 100;

/// The model and its training: small enough for two cores and two minutes. Gates take their G step in every fifth
/// update rather than in every fifth epoch, because there are only a few epochs.
const RECIPE: &str = r#"
[model]
arch = "transformer_tiny"
encoder_layers = 2
decoder_layers = 2
encoder_embed_dim = 128
encoder_ffn_embed_dim = 256
dropout = 0.0
share_embeddings = "all"

[model.mixture]
gate_hidden = 64
gate_dropout = 0.1

[train]
lr = 3e-3
warmup_updates = 150
max_tokens = 1600
max_update = 900
gate_every_updates = 5
log_interval = 20
label_smoothing = 0.1
"#;

/// One side of a pair.
type Side = fn(&Pair) -> &str;

/// What to do.
pub struct Quickstart {
    /// Sentence pairs to train on.
    pub pairs: usize,
    /// Seed of the corpus and of the training.
    pub seed: u64,
    /// Where everything goes.
    pub folder: PathBuf,
    /// Updates to train for.
    pub updates: Option<u64>,
}

/// The corpus, prepared.
pub struct Prepared {
    train: ParallelDataset,
    test: ParallelDataset,
    held_out: Vec<Pair>,
    codes: Segmentation,
}

impl Quickstart {
    /// Makes the corpus, learns the segmentation, writes both as text files, and encodes them.
    pub fn prepare(&self) -> Result<Prepared> {
        ensure!(self.pairs > 0, "--pairs must be above 0");
        ensure!(self.updates != Some(0), "--updates must be above 0");
        let wanted = self.pairs + HELD_OUT;
        ensure!(
            wanted as u64 <= corpus::capacity(),
            "--pairs {}: the grammar has {} sentences, {HELD_OUT} of which are held out",
            self.pairs,
            corpus::capacity()
        );
        let mut pairs = corpus::generate(wanted, self.seed);
        let held_out = pairs.split_off(self.pairs);
        std::fs::create_dir_all(&self.folder).with_context(|| format!("--dir {}", self.folder.display()))?;
        let mut counts = WordCounts::default();
        for pair in &pairs {
            counts.add_line(&pair.source);
            counts.add_line(&pair.target);
        }
        let codes = learn(&counts, LearnOptions { merges: MERGES, ..LearnOptions::default() }, |_| {})?;
        let bpe = Bpe::new(&codes);
        let segment = |pairs: &[Pair], side: Side| -> Vec<String> {
            bpe.segment_lines(&pairs.iter().map(side).collect::<Vec<_>>())
        };
        let sides: [(&str, Side); 2] = [("en", |p| &p.source), ("de", |p| &p.target)];
        let mut pieces = WordCounts::default();
        let (mut encoded, mut files) = (Vec::new(), Vec::new());
        for (name, pairs) in [("train", &pairs), ("test", &held_out)] {
            for (lang, side) in sides {
                let text: String = pairs.iter().flat_map(|pair| [side(pair), "\n"]).collect();
                files.push((self.folder.join(format!("{name}.{lang}")), text));
                let lines = segment(pairs, side);
                if name == "train" {
                    lines.iter().for_each(|line| pieces.add_line(line));
                }
                encoded.push(lines);
            }
        }
        folder::check_texts(&self.folder, &files)?;
        for (path, text) in &files {
            write_aside(path, text.as_bytes())?;
        }
        let vocab = Arc::new(Vocab::from_counts(pieces.iter(), VocabOptions::default()));
        let train = ParallelDataset::from_lines(&encoded[0], &encoded[1], vocab.clone(), vocab.clone())?;
        let test = ParallelDataset::from_lines(&encoded[2], &encoded[3], vocab.clone(), vocab)?;
        Ok(Prepared { train, test, held_out, codes: codes.into() })
    }

    /// Trains `system`, translates the held-out lines, looks at the gates.
    pub fn run(&self, data: &Prepared, system: &str, quiet: bool) -> Result<Report> {
        let begun = Instant::now();
        let config = self.config(system)?;
        let types = [data.train.src_vocab.len(), data.train.tgt_vocab.len()];
        let model = Translator::new(&config.model, types, &Device::cpu(), config.train.seed)?;
        let run = self.folder.join(system);
        folder::forget_earlier_run(&run)?;
        std::fs::create_dir_all(&run).with_context(|| format!("cannot make the folder {}", run.display()))?;
        let corpus = format!("{} {}, seed {}", self.pairs, folder::CORPUS, self.seed);
        write_record(&run, &corpus, &config)?;
        let (parameters, updates) = (model.size(), config.train.max_update);
        let bar = if quiet {
            indicatif::ProgressBar::hidden()
        } else {
            progress::bar(updates, &format!("training {system}"))
        };
        let stop = AtomicBool::new(false);
        let trainer = Trainer {
            learner: Learner::new(model, &config.train),
            config,
            train: &data.train,
            valid: None,
            text: TextSide::of_pairs(&data.train, Some(&data.codes)),
            folder: run.clone(),
            tensorboard: None,
            resets: Resets::default(),
            validator: None,
            stop: &stop,
            writer: mae_train::checkpoint::Writer::new(),
        };
        let mut next_to_say = SAY_EVERY;
        let (learner, _) = trainer.run(|event| match event {
            Event::Update { .. } => bar.inc(1),
            Event::Train(line) => {
                let loss = format!("loss {:.2} bits/token", line.loss);
                if bar.is_hidden() && !quiet && line.num_updates >= next_to_say {
                    eprintln!("training {system}: update {} of {updates}, {loss}", line.num_updates);
                    next_to_say = line.num_updates - line.num_updates % SAY_EVERY + SAY_EVERY;
                }
                bar.set_message(loss);
            }
            _ => {}
        })?;
        bar.finish_and_clear();
        let model = learner.model;
        let options = SearchOptions { max_len_a: 2.0, max_len_b: 10, ..SearchOptions::default() };
        let lines = translate(
            &model,
            &data.test.src,
            (&data.test.tgt_vocab, Some(&data.codes)),
            &options,
            &ExpertMode::Mix,
        )?;
        let mut bleu = BleuStats::new(BleuConfig {
            tokenizer: mae_eval::bleu::Tokenizer::None,
            ..BleuConfig::default()
        });
        for (line, pair) in lines.iter().zip(&data.held_out) {
            bleu.add(line, &[&pair.target])?;
        }
        let exact = exact_match(lines.iter().zip(data.held_out.iter().map(|pair| &pair.target)));
        let gates = summarise(&model, &data.test)?;
        let seconds = begun.elapsed().as_secs_f64();
        Ok(Report::new(
            system,
            self,
            parameters,
            updates,
            seconds,
            &bleu.score(),
            exact,
            gates,
            &data.held_out,
            &lines,
            &run,
        ))
    }

    fn config(&self, system: &str) -> Result<RunConfig> {
        let recipe: toml::Table = RECIPE.parse().expect("the recipe in the program is valid TOML");
        let plain: RunConfig = RunConfig::from_layers(std::slice::from_ref(&recipe))?;
        let heads = plain.model.encoder_attention_heads;
        let mut config: RunConfig = RunConfig::from_layers(&[recipe, recipes::system(system, heads)?])?;
        config.train.seed = self.seed;
        if let Some(updates) = self.updates {
            config.train.max_update = updates;
        }
        Ok(config)
    }
}
