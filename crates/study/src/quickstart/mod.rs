//! The whole story on a made-up corpus: prepare it, train one system, translate held-out lines, look at the gates.
//!
//! | room | contents |
//! |---|---|
//! | `mod` | corpus, training and evaluation |
//! | `folder` | the folder: files of an earlier quickstart are replaced, other files are not |
//! | `line` | a sentence pair |
//! | [`report`] | results of one system |

mod folder;
mod line;
pub mod report;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use mae_data::bpe::{Bpe, LearnOptions, WordCounts, learn};
use mae_data::files::{self, FolderLock};
use mae_data::grammar::{self, two_tasks};
use mae_data::vocab::VocabOptions;
use mae_data::{ParallelDataset, TextRecord, TextRules, Vocab};
use mae_engine::Device;
use mae_engine::collective::Team;
use mae_eval::bleu::{BleuConfig, BleuStats, Tokenizer, exact_match};
use mae_eval::gates::summarise;
use mae_model::ExpertMode;
use mae_train::checkpoint::Resets;
use mae_train::run::{self, Pairs, Session, Trained};
use mae_train::validate::untrained_gates;
use mae_train::{Recipe, RunConfig, artifacts};
use mae_translate::{SearchOptions, best_lines};

use self::line::Line;
use self::report::{Example, GateReport, Report};
use crate::error::{QuickstartFault, Result};

/// Held-out lines that the model is scored on.
const HELD_OUT: usize = 500;
/// Merges of the joint BPE.
const MERGES: usize = 500;
/// Held-out lines that a report shows.
const EXAMPLES: usize = 5;

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
type Side = fn(&Line) -> &str;

/// Corpus of a quickstart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topic {
    /// English numbers, dates, times and prices with their German.
    #[default]
    Numbers,
    /// Two tasks behind a cue word, and a model that is too small for both ([`two_tasks`]).
    TwoTasks,
}

impl Topic {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Numbers, Self::TwoTasks];

    /// Name in commands.
    pub fn name(self) -> &'static str {
        match self {
            Self::Numbers => "numbers",
            Self::TwoTasks => "two-tasks",
        }
    }

    /// Draws pairs.
    fn draw(self, pairs: usize, seed: u64) -> Vec<Line> {
        let line = |source, target, kind| Line { source, target, kind };
        match self {
            Self::Numbers => grammar::generate(pairs, seed)
                .into_iter()
                .map(|pair| line(pair.source, pair.target, pair.kind.to_string()))
                .collect(),
            Self::TwoTasks => two_tasks::generate(pairs, seed)
                .into_iter()
                .map(|pair| line(pair.source, pair.target, pair.task.cue().to_owned()))
                .collect(),
        }
    }

    /// Endings of the files of both sides.
    fn languages(self) -> [&'static str; 2] {
        match self {
            Self::Numbers => ["en", "de"],
            Self::TwoTasks => ["src", "tgt"],
        }
    }

    fn recipe(self) -> Result<Recipe> {
        Ok(match self {
            Self::Numbers => RECIPE.parse()?,
            Self::TwoTasks => Recipe::load("two-tasks-mae7")?,
        })
    }
}

/// Size and folder of a quickstart.
#[derive(Clone, Debug)]
pub struct Quickstart {
    /// The corpus.
    pub topic: Topic,
    /// Sentence pairs to train on.
    pub pairs: usize,
    /// Seed of the corpus and of the training.
    pub seed: u64,
    /// Folder for everything.
    pub folder: PathBuf,
    /// Updates to train for; those of the recipe, if not given.
    pub updates: Option<u64>,
}

/// The corpus, prepared.
pub struct Prepared {
    pairs: Pairs,
    test: ParallelDataset,
    held_out: Vec<Line>,
    /// Keeps others from the folder as long as the corpus is used.
    _lock: FolderLock,
}

impl Quickstart {
    /// Makes the corpus, learns the segmentation, writes both as text files, and encodes them.
    pub fn prepare(&self) -> Result<Prepared> {
        let most = grammar::capacity() - HELD_OUT as u64;
        let too_many = self.topic == Topic::Numbers && self.pairs as u64 > most;
        if self.pairs == 0 || too_many {
            let (pairs, held_out) = (self.pairs, HELD_OUT);
            return Err(QuickstartFault::Pairs { pairs, most, held_out }.into());
        }
        if self.updates == Some(0) {
            return Err(QuickstartFault::Updates.into());
        }
        let mut pairs = self.topic.draw(self.pairs + HELD_OUT, self.seed);
        let held_out = pairs.split_off(self.pairs);
        let lock = FolderLock::take(&self.folder)?;
        let mut counts = WordCounts::default();
        for pair in &pairs {
            counts.add_line(&pair.source);
            counts.add_line(&pair.target);
        }
        let codes = learn(&counts, LearnOptions { merges: MERGES, ..LearnOptions::default() }, |_| {})?;
        let bpe = Bpe::new(&codes);
        let segment = |pairs: &[Line], side: Side| -> Vec<String> {
            bpe.segment_lines(&pairs.iter().map(side).collect::<Vec<_>>())
        };
        let [source, target] = self.topic.languages();
        let sides: [(&str, Side); 2] = [(source, |line| &line.source), (target, |line| &line.target)];
        let mut pieces = WordCounts::default();
        let (mut encoded, mut texts) = (Vec::new(), Vec::new());
        for (name, pairs) in [("train", &pairs), ("test", &held_out)] {
            for (lang, side) in sides {
                let text: String = pairs.iter().flat_map(|pair| [side(pair), "\n"]).collect();
                texts.push((self.folder.join(format!("{name}.{lang}")), text));
                let lines = segment(pairs, side);
                if name == "train" {
                    lines.iter().for_each(|line| pieces.add_line(line));
                }
                encoded.push(lines);
            }
        }
        folder::check_texts(&self.folder, &texts)?;
        for (path, text) in &texts {
            files::write(path, text.as_bytes())?;
        }
        let vocab = Arc::new(Vocab::from_counts(pieces.iter(), VocabOptions::default()));
        let train = ParallelDataset::from_lines(&encoded[0], &encoded[1], vocab.clone(), vocab.clone())?;
        let test = ParallelDataset::from_lines(&encoded[2], &encoded[3], vocab.clone(), vocab)?;
        let [source, target] = self.topic.languages();
        let record = TextRecord::new(source, target, TextRules::default());
        let pairs = Pairs { train, valid: None, codes: Some(codes.into()), record };
        Ok(Prepared { pairs, test, held_out, _lock: lock })
    }

    /// Returns the configuration of a system.
    pub fn config(&self, system: &str) -> Result<RunConfig> {
        let mut config: RunConfig = self.topic.recipe()?.with_system(system)?.config()?;
        config.train.seed = self.seed;
        if let Some(updates) = self.updates {
            config.train.max_update = updates;
        }
        Ok(config)
    }

    /// Trains `system`, translates the held-out lines, looks at the gates.
    pub fn run(&self, data: &Prepared, system: &str, observer: &mut dyn run::Observer) -> Result<Report> {
        let begun = Instant::now();
        let config = self.config(system)?;
        let (updates, folder) = (config.train.max_update, self.folder.join(system));
        folder::forget_earlier_run(&folder)?;
        let session = Session {
            data: &format!("{} {}, seed {}", self.pairs, folder::CORPUS, self.seed),
            material: &data.pairs,
            device: &Device::cpu(),
            folder: &folder,
            tensorboard: None,
            resets: Resets::default(),
            bleu: None,
            stop: &AtomicBool::new(false),
            lock: None,
            team: Team::alone(),
        };
        let keys = config.train.clone();
        let Trained { model, .. } = session.train(config, observer)?;
        let options = SearchOptions { max_len_a: 2.0, max_len_b: 10, ..SearchOptions::default() };
        let side = (&*data.test.tgt_vocab, data.pairs.codes.as_ref());
        let lines = best_lines(&model, &data.test.src, side, &options, &ExpertMode::Mix)?;
        let mut bleu = BleuStats::new(BleuConfig { tokenizer: Tokenizer::None, ..BleuConfig::default() });
        for (line, pair) in lines.iter().zip(&data.held_out) {
            bleu.add(line, &[&pair.target])?;
        }
        let exact_match = exact_match(lines.iter().zip(data.held_out.iter().map(|pair| &pair.target)));
        let kind = model.config().mixture.system;
        let learns = kind.is_gated() && kind.has_experts();
        let untrained = learns.then(|| untrained_gates(&model, &keys)).transpose()?;
        let gates = summarise(&model, &data.test, untrained.as_ref())?;
        let gates = GateReport::new(gates, &data.held_out);
        let example = |(pair, line): (&Line, &String)| Example {
            source: pair.source.clone(),
            target: pair.target.clone(),
            translation: line.clone(),
        };
        let bleu = bleu.score();
        Ok(Report {
            corpus: self.topic.name(),
            system: system.to_owned(),
            pairs: self.pairs,
            seed: self.seed,
            parameters: model.size(),
            updates,
            seconds: begun.elapsed().as_secs_f64(),
            exact_match,
            bleu: bleu.score,
            bleu_signature: format!("BLEU|{}", bleu.signature),
            gates,
            examples: data.held_out.iter().zip(&lines).map(example).take(EXAMPLES).collect(),
            model: folder.join(artifacts::LAST).display().to_string(),
        })
    }
}
