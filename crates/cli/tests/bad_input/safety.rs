//! Work that must not be lost or destroyed: signals, closed pipes, two writers, files cut off while in use; and small
//! files that ask for much.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mae_data::files::FolderLock;

use super::{Sandbox, TRAIN, folder, mae, refused, replace, rewrite};

/// Starts a run without end that saves at its end only, and waits until it has logged updates.
fn long_run(sandbox: &Sandbox) -> Child {
    let child = Command::new(env!("CARGO_BIN_EXE_mae"))
        .args(TRAIN.replace("--max-update 2", "--max-update 1000000").split_whitespace())
        .args(["--set", "train.log_interval=1", "--set", "train.memory_check=false"])
        .args(["--set", "train.save_interval=0", "--set", "train.validate_interval=0"])
        .current_dir(sandbox.path(""))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let (log, begun) = (sandbox.path("run/log.jsonl"), Instant::now());
    let lines = || fs::read_to_string(&log).map_or(0, |text| text.lines().count());
    while lines() < 20 {
        assert!(begun.elapsed() < Duration::from_secs(120), "no update in two minutes");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// Waits for the end of a run; its exit code and what it said.
fn end(child: Child) -> (Option<i32>, String) {
    let output = child.wait_with_output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

fn updates(sandbox: &Sandbox) -> u64 {
    let state = fs::read_to_string(sandbox.path("run/checkpoint_last/state.json")).unwrap();
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    state["counters"]["updates"].as_u64().unwrap()
}

#[test]
#[cfg(unix)]
fn a_terminal_that_is_closed_and_a_pipe_that_is_closed_save_the_run() {
    let sandbox = folder();
    let child = long_run(&sandbox);
    Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap();
    let (code, said) = end(child);
    assert_eq!((code, said.contains("stopped and saved")), (Some(129), true), "{said}");
    let saved = updates(&sandbox);
    assert!(saved >= 10, "{saved}");

    let line = TRAIN.replace("--max-update 2", "--max-update 1000000 --set train.log_interval=1");
    let line = format!("{} {line} 2>said | head -n 3", env!("CARGO_BIN_EXE_mae"));
    Command::new("sh").args(["-c", &line]).current_dir(sandbox.path("")).output().unwrap();
    let said = fs::read_to_string(sandbox.path("said")).unwrap();
    assert!(said.contains("stopped and saved") && updates(&sandbox) > saved, "{said}");
}

#[test]
fn one_folder_has_one_writer() {
    let sandbox = folder();
    let mut child = long_run(&sandbox);
    let second = mae(&sandbox, "TRAIN");
    assert!(second.failed().contains("run is in use by another process ("), "{}", second.stderr);
    child.kill().unwrap();
    child.wait().unwrap();
    // The lock of a killed process is no obstacle.
    mae(&sandbox, "TRAIN").succeeded();

    // The other commands that write folders, while somebody else writes there.
    let at = |name: &str| sandbox.path(name);
    let _held = [
        FolderLock::take(&at("bin")).unwrap(),
        FolderLock::take(&at("prepared")).unwrap(),
        FolderLock::take(&at("quick")).unwrap(),
        FolderLock::take_beside(&at("mean")).unwrap(),
        FolderLock::take_beside(&at("small")).unwrap(),
    ];
    for command in [
        "preprocess -s de -t en --trainpref train --validpref valid --destdir bin",
        "prepare parallel -s de -t en --train train --valid valid --test valid --bpe 20 --out prepared",
        "quickstart --pairs 100 --max-update 1 --dir quick",
        "average --inputs run/checkpoint_last --output mean",
        "quantize run/checkpoint_last --out small",
    ] {
        let run = mae(&sandbox, command);
        assert!(run.failed().contains("is in use by another process ("), "{command}: {}", run.stderr);
    }
}

/// Four gigabytes of addresses are too few for the stacks of so many threads.
#[test]
#[cfg(target_os = "linux")]
fn threads_that_cannot_be_made_are_told() {
    let sandbox = folder();
    for command in [
        "score --sys valid.de --ref valid.de --threads 4096",
        "preprocess -s de -t en --trainpref train --destdir other --workers 4096",
    ] {
        let line = format!("ulimit -v 4000000; exec {} {command}", env!("CARGO_BIN_EXE_mae"));
        let run = Command::new("sh").args(["-c", &line]).current_dir(sandbox.path("")).output().unwrap();
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.code() == Some(1) && said.contains("ask for fewer with --threads"), "{run:?}");
    }
}

#[test]
#[cfg(unix)]
fn data_that_is_cut_off_while_in_use_is_told() {
    let sandbox = folder();
    let child = long_run(&sandbox);
    fs::OpenOptions::new()
        .write(true)
        .open(sandbox.path("bin/train.de-en.de.bin"))
        .and_then(|file| file.set_len(0))
        .unwrap();
    let (code, said) = end(child);
    assert!(
        code == Some(1) && said.contains("was cut off or changed while it was in use"),
        "{code:?} {said}"
    );
}

#[test]
#[cfg(unix)]
fn folders_need_no_unicode_names() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let sandbox = folder();
    let name = OsStr::from_bytes(b"r\xff");
    let args = TRAIN.replace("--save-dir run", "--json");
    let output = Command::new(env!("CARGO_BIN_EXE_mae"))
        .args(args.split_whitespace())
        .arg("--save-dir")
        .arg(name)
        .current_dir(sandbox.path(""))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(sandbox.path("").join(name).join("checkpoint_last").is_dir());
}

#[test]
fn small_files_that_ask_for_much_are_refused() {
    const GENERATE: &str = "generate run/checkpoint_last --source valid.de --device cpu";
    const CONFIG: &str = "run/checkpoint_last/config.toml";
    refused(&[
        (
            "wide layers beside few weights",
            |s| replace(s, CONFIG, "encoder_ffn_embed_dim = 16", "encoder_ffn_embed_dim = 60000"),
            GENERATE,
            &["config.toml", "not of one model"],
        ),
        (
            "many layers beside few weights",
            |s| replace(s, CONFIG, "encoder_layers = 1", "encoder_layers = 1000"),
            GENERATE,
            &["config.toml", "not of one model"],
        ),
        (
            "positions without end",
            |s| {
                replace(s, CONFIG, "max_positions = 64", "max_positions = 1048576");
                replace(s, CONFIG, "encoder_embed_dim = 16", "encoder_embed_dim = 64");
            },
            GENERATE,
            &["config.toml"],
        ),
        (
            "the widest beam",
            |_| {},
            "generate run/checkpoint_last --source valid.de --device cpu --beam 18446744073709551615",
            &["1000 is the most"],
        ),
        (
            "a wide beam",
            |_| {},
            "generate run/checkpoint_last --source valid.de --device cpu --beam 4294967296",
            &["1000 is the most"],
        ),
        ("threads", |_| {}, "score --sys valid.de --ref valid.en --threads 20000", &["4096 is the most"]),
        (
            "workers",
            |_| {},
            "preprocess -s de -t en --trainpref train --destdir other --workers 1000000",
            &["--workers 1000000: 4096 is the most"],
        ),
        (
            "letters that are kept",
            |s| s.write("letters.de", "THISPROTECTED 0123456789\n"),
            "tokenize -l de --protect . letters.de",
            &["too short to be kept", "--protect"],
        ),
        (
            "a colour in a dictionary",
            |s| rewrite(s, "bin/dict.de.txt", |lines| lines.insert(0, "\u{1b}[31mred")),
            "TRAIN",
            &["dict.de.txt, line 1", "\\u{1b}[31mred"],
        ),
    ]);
}

#[test]
fn files_of_users_beside_an_output_stay() {
    let sandbox = folder();
    sandbox.write("out.tmp", "precious");
    fs::create_dir(sandbox.path("mean.old")).unwrap();
    sandbox.write("mean.old/notes", "precious");
    mae(&sandbox, "tokenize -l de train.de -o out").succeeded();
    for _ in 0..2 {
        mae(&sandbox, "average --inputs run/checkpoint_last --output mean").succeeded();
    }
    for name in ["out.tmp", "mean.old/notes"] {
        assert_eq!(fs::read_to_string(sandbox.path(name)).unwrap(), "precious", "{name}");
    }
}
