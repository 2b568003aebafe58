//! Disks that are full or read-only, output that nobody takes, and processes that die as they write.

use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use super::{Sandbox, TRAIN, contents, folder, mae};

/// Runs a line of shell in the folder; `MAE` is the program.
fn shell(sandbox: &Sandbox, line: &str) -> Output {
    let line = line.replace("MAE", env!("CARGO_BIN_EXE_mae")).replace("TRAIN", TRAIN);
    Command::new("sh").args(["-c", &line]).current_dir(sandbox.path("")).output().expect("there is a shell")
}

/// Files cannot grow beyond some blocks: a disk that is full in the middle of a file.
#[test]
fn a_full_disk_loses_nothing_and_leaves_nothing() {
    for (name, blocks, args, word) in [
        (
            "preprocess",
            0,
            "preprocess -s de -t en --trainpref train --validpref valid --destdir bin",
            "/train.de-en.de.bin",
        ),
        (
            "prepare",
            0,
            "prepare parallel -s de -t en --train train --valid-size 2 --test-size 2 --out new",
            "/tmp/",
        ),
        ("learn-bpe", 0, "learn-bpe train.de -s 9 -o new", "new"),
        ("tokenize", 0, "tokenize -l de train.de -o valid.de", "valid.de"),
        ("checkpoints", 8, "TRAIN", "run/checkpoint_"),
        (
            "translations",
            0,
            "generate run/checkpoint_last --source valid.de --device cpu --output valid.en",
            "valid.en",
        ),
        ("average", 4, "average --inputs run/checkpoint_last run/checkpoint_best --output mean", "mean."),
    ] {
        let sandbox = folder();
        let before = contents(&sandbox.path(""));
        let output = shell(&sandbox, &format!("ulimit -f {blocks}; exec MAE {args}"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{name}: {output:?}");
        assert!(said.contains("File too large") && said.contains(word), "{name}: {said}");
        let after = contents(&sandbox.path(""));
        for (path, bytes) in
            before.iter().filter(|(path, _)| !path.ends_with("run.toml") && !path.ends_with("log.jsonl"))
        {
            assert!(after.get(path) == Some(bytes), "{name}: {} was changed", path.display());
        }
        let left: Vec<_> = after.keys().filter(|path| path.to_string_lossy().contains(".tmp")).collect();
        assert!(left.is_empty(), "{name}: {left:?}");
    }
}

#[test]
fn full_standard_output_is_told() {
    let sandbox = folder();
    for args in [
        "score --sys valid.de --ref valid.en",
        "train --list-recipes",
        "generate run/checkpoint_last --source valid.de --plain --device cpu",
        "tokenize -l de valid.de",
        "preprocess -s de -t en --trainpref train --destdir new",
        "validate run/checkpoint_last --data bin --device cpu",
        "interactive run/checkpoint_last --device cpu < valid.de",
    ] {
        let output = shell(&sandbox, &format!("exec MAE {args} > /dev/full"));
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args}: {output:?}");
        assert!(said.contains("No space left on device") && !said.contains("panicked"), "{args}: {said}");
    }
    let nobody = shell(&sandbox, "MAE train --list-recipes | true");
    assert!(nobody.stderr.is_empty(), "{nobody:?}");
}

/// `/proc` takes no files, not even from root, to whom permissions mean nothing.
#[test]
fn folders_that_cannot_be_written_to_are_named() {
    let sandbox = folder();
    let locked = sandbox.path("locked");
    std::fs::create_dir(&locked).unwrap();
    let mut permissions = std::fs::metadata(&locked).unwrap().permissions();
    permissions.set_readonly(true);
    std::fs::set_permissions(&locked, permissions).unwrap();
    let is_root = std::fs::write(locked.join("probe"), "").is_ok();
    for place in
        if is_root { &["/proc/mae", "valid.de/x"][..] } else { &["/proc/mae", "valid.de/x", "locked/x"] }
    {
        for args in [
            "preprocess -s de -t en --trainpref train --destdir PLACE",
            "prepare parallel -s de -t en --train train --valid-size 2 --test-size 2 --out PLACE",
            "train bin --recipe multi30k-mae7 --device cpu --save-dir PLACE",
            "generate run/checkpoint_last --source valid.de --device cpu --output PLACE",
            "tokenize -l de valid.de -o PLACE",
            "average --inputs run/checkpoint_last --output PLACE",
        ] {
            let run = mae(&sandbox, &args.replace("PLACE", place));
            assert!(run.failed().contains(place), "{args}: {}", run.stderr);
        }
    }
}

/// A run that saves after every update is killed again and again, at other moments each time; each time it goes on from
/// a checkpoint that is whole, and not from an older one than before.
#[test]
fn kills_in_the_middle_of_checkpoints_lose_no_checkpoint() {
    let sandbox = folder();
    let args = TRAIN.replace("--max-update 2", "--max-update 100000");
    // Of the checkpoint, or of the one before where a kill fell between two renames; none while a run renames.
    let saved = || {
        let folders = ["checkpoint_last", "checkpoint_last.old"].map(|name| sandbox.path("run").join(name));
        let state =
            folders.iter().find_map(|folder| std::fs::read_to_string(folder.join("state.json")).ok())?;
        let state: serde_json::Value = serde_json::from_str(&state).unwrap();
        state["counters"]["updates"].as_u64()
    };
    let mut reached = saved().expect("there is a checkpoint");
    for round in 0..12 {
        let mut child = Command::new(env!("CARGO_BIN_EXE_mae"))
            .args(args.split_whitespace())
            .args(["--save-interval-updates", "1", "--set", "train.memory_check=false"])
            .current_dir(sandbox.path(""))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let begun = Instant::now();
        while saved().is_none_or(|updates| updates <= reached) {
            assert!(
                begun.elapsed() < Duration::from_secs(120),
                "round {round}: nothing was saved in two minutes"
            );
            std::thread::sleep(Duration::from_micros(300));
        }
        // Kills fall on other moments of the writing each time.
        std::thread::sleep(Duration::from_micros(700 * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let now = saved().expect("there is a checkpoint");
        assert!(now > reached, "round {round}: from update {reached} back to {now}");
        reached = now;
    }
    let more = TRAIN.replace("--max-update 2", &format!("--max-update {}", reached + 2));
    mae(&sandbox, &more).succeeded();
    assert_eq!(saved(), Some(reached + 2));
    mae(&sandbox, "generate run/checkpoint_last --source valid.de --device cpu --max-len-b 5 --beam 1")
        .succeeded();
}

#[test]
fn what_killed_runs_left_goes_away() {
    let sandbox = folder();
    std::fs::create_dir_all(sandbox.path("new/tmp")).unwrap();
    let ours = [
        "new/code.tmp",
        "new/tmp/test.de.tmp",
        "new/train.en.tmp",
        "bin/test.de-en.en.bin.tmp",
        "bin/dict.de.txt.tmp",
    ];
    let theirs = ["new/notes.tmp", "bin/notes.tmp", "bin/test.de-fr.fr.bin.tmp"];
    ours.iter().chain(&theirs).for_each(|name| sandbox.write(name, "half"));
    mae(
        &sandbox,
        "prepare parallel -s de -t en --train train --valid-size 2 --test-size 0 --bpe 5 --out new",
    )
    .succeeded();
    mae(&sandbox, "preprocess -s de -t en --trainpref train --validpref valid --destdir bin").succeeded();
    ours.iter().for_each(|name| assert!(!sandbox.path(name).exists(), "{name} is still there"));
    theirs.iter().for_each(|name| assert!(sandbox.path(name).exists(), "{name} is not ours"));
}
