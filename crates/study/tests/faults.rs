//! A study whose process ends at operations of the disk: the next session finishes it with the same result.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use mae_data::files::faults::{Fault, Faults};
use mae_data::preprocess::{PreprocessOptions, preprocess};
use mae_engine::Device;
use mae_study::job::{Job, Work};
use mae_study::observer::{Event, Observer};
use mae_study::protocol::{Test, Translation};
use mae_study::result::RunResult;
use mae_study::runner::Checkpoints;
use mae_study::session::Session;
use mae_train::run::Sets;

const RECIPE: &str = "[model]\narch = \"transformer_tiny\"\nencoder_layers = 1\ndecoder_layers = 1\n\
    encoder_embed_dim = 16\nencoder_ffn_embed_dim = 16\nencoder_attention_heads = 4\nmax_positions = 32\n[train]\n\
    max_update = 3\nmax_tokens = 60\nmemory_check = false\nkeep_last_epochs = 2";

struct Silent;

impl Observer for Silent {
    fn event(&mut self, _: &Event<'_>) {}
}

/// One session; the result, if the run is done.
fn session(data: &Path, out: &Path) -> Option<RunResult> {
    let test = Test::Translation(Translation { beam: 1, draws: 1, average: 2, ..Translation::default() });
    let session = Session {
        sets: Sets { folder: data, languages: None, valid: "valid" },
        out,
        parent: None,
        test: &test,
        checkpoints: Checkpoints::Remove,
        commit: None,
    };
    let recipe = RECIPE.parse::<mae_train::Recipe>().unwrap().with_system("mae3").unwrap();
    let jobs = [Job { system: "mae3".into(), seed: 1, name: "mae3-1".into(), work: Work::Train(recipe) }];
    let left = session.check(&jobs, &mut Silent).ok()?;
    left.run(&Device::cpu(), &AtomicBool::new(false), &mut Silent).ok()?;
    RunResult::read(&out.join("mae3-1")).ok()?
}

/// A result without its times.
fn timeless(result: RunResult) -> serde_json::Value {
    let mut json = serde_json::to_value(&result).unwrap();
    for (key, value) in json.as_object_mut().unwrap() {
        if key.contains("seconds") {
            value.take();
        }
    }
    json
}

#[test]
fn a_study_is_finished_with_the_same_result_wherever_it_ended() {
    let home = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let at = |name: &str| home.path().join(name);
    for (split, count) in [("train", 24), ("valid", 4), ("test", 4)] {
        for lang in ["de", "en"] {
            let text: String = (0..count).map(|i| format!("{lang} {} {}\n", i % 5, i * i % 7)).collect();
            fs::write(at(&format!("{split}.{lang}")), text).unwrap();
        }
    }
    let prefix = |split: &str| Some(at(split).display().to_string());
    let options = PreprocessOptions {
        trainpref: prefix("train"),
        validpref: prefix("valid"),
        testpref: prefix("test"),
        ..PreprocessOptions::new("de", "en", at("bin"))
    };
    preprocess(&options, |_| ()).unwrap();
    let faults = Faults::of(&at("whole"), Fault::None);
    let want = timeless(session(&at("bin"), &at("whole")).unwrap());
    let count = faults.operations().len();
    assert!(count > 100, "{count}");
    for number in (1..=count).step_by(5) {
        for fault in [Fault::End(number), Fault::Fail(number)] {
            let out = at(&format!("{fault:?}"));
            let faults = Faults::of(&out, fault);
            let ended = session(&at("bin"), &out);
            drop(faults);
            let _quick = Faults::of(&out, Fault::None);
            let found = session(&at("bin"), &out).unwrap_or_else(|| panic!("{fault:?}: no result"));
            assert_eq!(timeless(found), want, "{fault:?}");
            assert!(ended.is_none_or(|ended| timeless(ended) == want), "{fault:?}");
            fs::remove_dir_all(&out).unwrap();
        }
    }
}
