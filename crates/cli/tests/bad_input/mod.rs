//! Malformed input of every kind, given to the program as users do. Each case has a name. It is refused with words that
//! name the place and the remedy, or repaired and counted; nothing that was there is lost, nothing is left half written.

mod data;
mod disk;
mod model;
mod safety;
mod text;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::common::{Run, Sandbox, lines};

/// Something wrong: its name, what makes it so, the command, and words that its answer must have.
type Case = (&'static str, fn(&Sandbox), &'static str, &'static [&'static str]);

/// A model and a run small enough for tests.
const TRAIN: &str = "train bin --recipe multi30k-mae7 --save-dir run --max-update 2 --max-tokens 100 --threads 1 --device cpu \
                     --set model.encoder_embed_dim=16 --set model.encoder_ffn_embed_dim=16 --set model.encoder_layers=1 \
                     --set model.decoder_layers=1 --set model.mixture.gate_hidden=8 --set model.max_positions=64";

/// A folder with a parallel text (`train.*`, `valid.*`), its binarised folder `bin` and a run of one update, `run`.
fn folder() -> Sandbox {
    static FILES: OnceLock<BTreeMap<PathBuf, Vec<u8>>> = OnceLock::new();
    let files = FILES.get_or_init(|| {
        let sandbox = Sandbox::new();
        for (split, count) in [("train", 40), ("valid", 8)] {
            for (lang, words) in
                [("de", ["hund", "haus", "tag", "kind"]), ("en", ["dog", "house", "day", "child"])]
            {
                let line = |i: usize| format!("{} {}", words[i % 4], words[(i / 4) % 4]);
                sandbox.write(&format!("{split}.{lang}"), lines(&(0..count).map(line).collect::<Vec<_>>()));
            }
        }
        let preprocess = "preprocess -s de -t en --trainpref train --validpref valid --destdir bin --bpe 6";
        mae(&sandbox, preprocess).succeeded();
        mae(&sandbox, &TRAIN.replace("--max-update 2", "--max-update 1")).succeeded();
        contents(&sandbox.path(""))
    });
    let sandbox = Sandbox::new();
    for (name, bytes) in files {
        let path = sandbox.path("").join(name);
        fs::create_dir_all(path.parent().expect("a file lies in a folder")).unwrap();
        fs::write(path, bytes).unwrap();
    }
    sandbox
}

fn mae(sandbox: &Sandbox, args: &str) -> Run {
    sandbox.mae(&args.replace("TRAIN", TRAIN).split_whitespace().collect::<Vec<_>>(), &[])
}

/// All files below a folder.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file() {
                let name = path.strip_prefix(folder).unwrap().to_owned();
                files.insert(name, fs::read(path).unwrap());
            }
        }
    }
    files
}

/// Each case must end with an error in these words, and leave every file as it was and no other in the run's folder.
#[track_caller]
fn refused(cases: &[Case]) {
    check(cases, &[], |run| (run.failed_in_words(), run.stderr.clone()));
}

/// Each case must succeed, and tell what was done about it in these words.
#[track_caller]
fn repaired(cases: &[Case]) {
    check(cases, &["run/run.toml", "run/log.jsonl"], |run| {
        (run.is_success(), format!("{}{}", run.stdout, run.stderr))
    });
}

/// Runs each case; `may_change` are the files of a run that goes on.
#[track_caller]
fn check(cases: &[Case], may_change: &[&str], judge: impl Fn(&Run) -> (bool, String)) {
    let mut faults = Vec::new();
    for (name, spoil, args, words) in cases {
        let sandbox = folder();
        spoil(&sandbox);
        let before = contents(&sandbox.path(""));
        let run = mae(&sandbox, args);
        let (right, answer) = judge(&run);
        let mut fault = |what: &str| faults.push(format!("{name}: {what}\n{}{}", run.stdout, run.stderr));
        if !right {
            fault("it did not end as it must");
        }
        for word in words.iter().filter(|word| !answer.contains(**word)) {
            fault(&format!("no `{word}` in the answer"));
        }
        let after = contents(&sandbox.path(""));
        for (path, bytes) in &before {
            let may_change = may_change.iter().any(|name| path.as_path() == Path::new(name));
            if !may_change && after.get(path) != Some(bytes) {
                fault(&format!("{} was changed", path.display()));
            }
        }
        for path in after.keys().filter(|path| path.starts_with("run") && !before.contains_key(*path)) {
            fault(&format!("{} is new in the run's folder", path.display()));
        }
        for path in after.keys().filter(|path| path.to_string_lossy().contains(".tmp")) {
            fault(&format!("{} was left", path.display()));
        }
    }
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n\n"));
}

/// Takes the last `count` bytes of a file away.
fn cut(sandbox: &Sandbox, name: &str, count: usize) {
    let bytes = fs::read(sandbox.path(name)).unwrap();
    sandbox.write(name, &bytes[..bytes.len() - count]);
}

/// Writes `new` over the bytes from `at`.
fn poke(sandbox: &Sandbox, name: &str, at: usize, new: &[u8]) {
    let mut bytes = fs::read(sandbox.path(name)).unwrap();
    bytes[at..at + new.len()].copy_from_slice(new);
    sandbox.write(name, bytes);
}

/// Puts `new` for `old`, which must be there.
fn replace(sandbox: &Sandbox, name: &str, old: &str, new: &str) {
    let text = fs::read_to_string(sandbox.path(name)).unwrap();
    assert!(text.contains(old), "{name} has no `{old}`");
    sandbox.write(name, text.replacen(old, new, 1));
}

/// Writes the lines of a file in another order or number.
fn rewrite(sandbox: &Sandbox, name: &str, change: impl Fn(&mut Vec<&str>)) {
    let text = fs::read_to_string(sandbox.path(name)).unwrap();
    let mut all = text.lines().collect();
    change(&mut all);
    sandbox.write(name, lines(&all));
}

fn remove(sandbox: &Sandbox, name: &str) {
    fs::remove_file(sandbox.path(name)).unwrap();
}

fn copy(sandbox: &Sandbox, from: &str, to: &str) {
    fs::copy(sandbox.path(from), sandbox.path(to)).unwrap();
}
