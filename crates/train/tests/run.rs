//! Whole runs: from a folder and a recipe to checkpoints, seen by an observer.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mae_data::bpe::WordCounts;
use mae_data::grammar;
use mae_data::pairs::side_path;
use mae_data::vocab::VocabOptions;
use mae_data::{DatasetWriter, ParallelDataset, Vocab};
use mae_engine::Device;
use mae_engine::collective::Team;
use mae_train::checkpoint::Resets;
use mae_train::history::History;
use mae_train::log::Event;
use mae_train::run::{DataSize, Observer, Pairs, Progress, Session, Start};
use mae_train::{Error, Outcome, Recipe, Run, RunSummary, artifacts};

const RECIPE: &str = "[model]\narch = \"transformer_tiny\"\nencoder_layers = 1\ndecoder_layers = 1\n\
    encoder_embed_dim = 16\nencoder_ffn_embed_dim = 24\nencoder_attention_heads = 4\n[model.mixture]\n\
    system = \"mae\"\ngate_hidden = 8\n[train]\nmax_tokens = 200\nmax_update = 6\nlog_interval = 2\n\
    save_interval_updates = 3\ngate_every_updates = 2";

fn recipe() -> Recipe {
    RECIPE.parse().unwrap()
}

/// Splits of quickstart's corpus: name, first pair, number of pairs.
const SPLITS: [(&str, usize, usize); 2] = [("train", 0, 60), ("valid", 60, 8)];

/// Both sides of some pairs.
fn sides(first: usize, pairs: usize) -> [Vec<String>; 2] {
    let pairs = &grammar::generate(first + pairs, 1)[first..];
    [pairs.iter().map(|p| p.source.clone()).collect(), pairs.iter().map(|p| p.target.clone()).collect()]
}

fn vocabs() -> [Vocab; 2] {
    sides(0, 60).map(|lines| {
        let mut counts = WordCounts::default();
        lines.iter().for_each(|line| counts.add_line(line));
        Vocab::from_counts(counts.iter(), VocabOptions::default())
    })
}

/// Writes a binarised folder with these splits.
fn binarise(folder: &Path, splits: &[(&str, usize, usize)]) {
    let languages = ["en", "de"];
    for (language, vocab) in languages.into_iter().zip(vocabs()) {
        vocab.save(folder.join(format!("dict.{language}.txt"))).unwrap();
    }
    for &(split, first, pairs) in splits {
        for ((lines, language), vocab) in sides(first, pairs).into_iter().zip(languages).zip(vocabs()) {
            let path = side_path(folder, split, languages, language);
            let mut writer = DatasetWriter::create(path, vocab.len()).unwrap();
            lines.iter().for_each(|line| writer.push(&vocab.encode_line(line)).unwrap());
            writer.finish().unwrap();
        }
    }
}

/// Keeps everything that it sees.
#[derive(Default)]
struct Recorder {
    starts: Vec<Start>,
    events: Vec<Event>,
    summaries: Vec<RunSummary>,
}

impl Observer for Recorder {
    fn started(&mut self, start: &Start) {
        self.starts.push(start.clone());
    }

    fn event(&mut self, event: &Event) {
        self.events.push(event.clone());
    }

    fn finished(&mut self, summary: &RunSummary) {
        self.summaries.push(summary.clone());
    }
}

#[test]
fn a_run_is_observed_stopped_and_resumed() {
    let home = tempfile::tempdir().unwrap();
    let (data, save) = (home.path().join("data"), home.path().join("run"));
    std::fs::create_dir(&data).unwrap();
    binarise(&data, &SPLITS);
    let mut seen = Recorder::default();
    let stop = AtomicBool::new(true);
    let first = Run::new(&data, recipe()).save_dir(&save).stop(&stop).observer(&mut seen).train().unwrap();
    assert_eq!(first.outcome, Outcome::Interrupted);
    assert_eq!(first.progress, Progress { epochs: 0, updates: 1 });
    assert_eq!(first.model, save.join(artifacts::LAST), "there was no validation yet");
    stop.store(false, Ordering::Relaxed);
    let last = Run::new(&data, recipe())
        .save_dir(&save)
        .languages("en", "de")
        .stop(&stop)
        .observer(&mut seen)
        .train()
        .unwrap();
    assert_eq!((last.outcome, last.progress.updates), (Outcome::Finished, 6));
    assert_eq!(last.model, save.join(artifacts::BEST));
    assert_eq!(seen.summaries, [first, last.clone()]);
    let [start, resumed] = &seen.starts[..] else { panic!("{:?}", seen.starts) };
    assert_eq!((start.resumed, resumed.resumed.unwrap().updates), (None, 1));
    assert_eq!((start.heads, start.experts, start.has_development_set), (4, Some(4), true));
    assert!(matches!(start.data, DataSize::Pairs { pairs: 60, part: 1.0, .. }), "{:?}", start.data);
    assert_eq!((start.parameters, start.folder.as_path()), (last.parameters, save.as_path()));
    let count = |is: fn(&Event) -> bool| seen.events.iter().filter(|event| is(event)).count();
    assert_eq!(count(|event| matches!(event, Event::Update { .. })), 6);
    assert!(count(|event| matches!(event, Event::Valid(_))) >= 2);
    // The log has what was seen.
    let history = History::read(&save).unwrap();
    assert_eq!((history.summary().updates, history.note), (6, None));
    assert_eq!(history.config["train.max_update"], "6");
    assert_eq!(history.valid.len(), count(|event| matches!(event, Event::Valid(_))));
}

#[test]
fn faults_of_runs_have_names() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path();
    binarise(data, &SPLITS);
    let save = data.join("run");
    let direction = Run::new(data, recipe()).languages("de", "en").save_dir(&save).train().unwrap_err();
    assert!(matches!(&direction, Error::OtherDirection { target, .. } if target == "en"), "{direction}");
    let bleu = recipe().set("train.eval_bleu_beam=2").unwrap();
    let error = Run::new(data, bleu).save_dir(&save).train().unwrap_err();
    assert!(matches!(&error, Error::Config(faults) if faults[0].contains("train.eval_bleu_beam")), "{error}");
    let missing = Run::new(data, recipe()).development_set("dev").save_dir(&save).train();
    assert!(missing.unwrap_err().to_string().contains("dev.en-de"));
}

/// A run on sets in memory gives the same model as one on the folder that holds them.
#[test]
fn sets_in_memory_train_the_same_model() {
    let home = tempfile::tempdir().unwrap();
    binarise(home.path(), &SPLITS[..1]);
    let [source, target] = sides(0, 60);
    let [from, to] = vocabs().map(Arc::new);
    let train = ParallelDataset::from_lines(&source, &target, from, to).unwrap();
    let session = Session {
        data: "a corpus in memory",
        material: &Pairs { train, valid: None, codes: None, record: Default::default() },
        device: &Device::cpu(),
        folder: &home.path().join("memory"),
        tensorboard: None,
        resets: Resets::default(),
        bleu: None,
        stop: &AtomicBool::new(false),
        lock: None,
        team: Team::alone(),
    };
    let mut updates = 0;
    let trained = session.train(recipe().config().unwrap(), &mut |event: &Event| {
        updates += u64::from(matches!(event, Event::Update { .. }));
    });
    assert_eq!((trained.unwrap().summary.progress.updates, updates), (6, 6));
    Run::new(home.path(), recipe()).save_dir(home.path().join("folder")).train().unwrap();
    let weights = |run: &str| std::fs::read(home.path().join(run).join("checkpoint_last/model.safetensors"));
    assert!(weights("memory").unwrap() == weights("folder").unwrap());
}
