//! `mae train` on several processes: the model of one process with `--update-freq`, and ranks that end.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::common::{Sandbox, lines};

/// A prepared corpus of short sentences.
fn corpus() -> Sandbox {
    let sandbox = Sandbox::new();
    let words = ["eins", "zwei", "drei", "vier", "fünf", "sechs"];
    let sentence = |i: usize, shift: usize| {
        let picked = (0..2 + i % 4).map(|j| words[(i * 5 + j * (1 + i % 3) + shift) % 6]);
        picked.collect::<Vec<_>>().join(" ")
    };
    for (split, from, to) in [("train", 0, 300), ("valid", 300, 320)] {
        for (lang, shift) in [("de", 0), ("en", 1)] {
            let text: Vec<String> = (from..to).map(|i| sentence(i, shift)).collect();
            sandbox.write(&format!("{split}.{lang}"), lines(&text));
        }
    }
    let files = ["--trainpref", "train", "--validpref", "valid", "--destdir", "bin"];
    sandbox.mae(&["preprocess", "-s", "de", "-t", "en"], &files).succeeded();
    sandbox
}

/// A model and a run small enough for a test.
const SMALL: &[&str] = &[
    "train",
    "bin",
    "--recipe",
    "multi30k-mae7",
    "--max-tokens",
    "100",
    "--device",
    "cpu",
    "--threads",
    "1",
    "--set",
    "model.encoder_embed_dim=32",
    "--set",
    "model.encoder_ffn_embed_dim=48",
    "--set",
    "model.mixture.gate_hidden=16",
    "--set",
    "train.gate_every_updates=3",
];

/// The program, without variables of a launcher that has started the tests.
fn mae(sandbox: &Sandbox) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mae"));
    for name in ["RANK", "WORLD_SIZE", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_STEP_NUM_TASKS"] {
        command.env_remove(name);
    }
    command.current_dir(sandbox.path("")).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Starts ranks that train, as torchrun does; `more` has further words of each rank.
fn ranks(sandbox: &Sandbox, more: &[&[&str]]) -> Vec<Child> {
    ranks_of(sandbox, SMALL, more)
}

fn ranks_of(sandbox: &Sandbox, words: &[&str], more: &[&[&str]]) -> Vec<Child> {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port().to_string();
    drop(free);
    let size = more.len();
    more.iter()
        .enumerate()
        .map(|(rank, own)| {
            let mut child = mae(sandbox);
            child
                .args(words)
                .args(*own)
                .env("RANK", rank.to_string())
                .env("LOCAL_RANK", rank.to_string())
                .env("WORLD_SIZE", size.to_string())
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", &port);
            child.spawn().unwrap()
        })
        .collect()
}

fn end(child: Child) -> Output {
    child.wait_with_output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[track_caller]
fn same_files(sandbox: &Sandbox, one: &str, other: &str) {
    for name in ["model.safetensors", "optimizer.safetensors"] {
        let read = |run: &str| std::fs::read(sandbox.path(run).join("checkpoint_last").join(name)).unwrap();
        assert!(read(one) == read(other), "{one} and {other} have other values in {name}");
    }
}

#[test]
fn processes_make_the_model_of_one() {
    let sandbox = corpus();
    let alone = ["--max-update", "12", "--update-freq", "2", "--save-dir", "alone"];
    sandbox.mae(SMALL, &alone).succeeded();
    let words = ["--max-update", "12", "--save-dir", "two", "--distributed-world-size", "2"];
    let outputs: Vec<Output> = ranks(&sandbox, &[&words, &words]).into_iter().map(end).collect();
    for output in &outputs {
        assert!(output.status.success(), "{}", stderr(output));
    }
    let printed = String::from_utf8_lossy(&outputs[0].stdout);
    assert!(printed.contains("2 processes, connected by TCP"), "{printed}");
    assert!(outputs[1].stdout.is_empty(), "only the first rank prints");
    same_files(&sandbox, "alone", "two");
}

#[test]
fn sums_and_their_overlap_are_measured_by_all_ranks() {
    let sandbox = corpus();
    let sums =
        ["bench", "allreduce", "--device", "cpu", "--mib", "1", "--rounds", "1", "--ddp-dtype", "bf16"];
    let small = "--width 16 --inner 16 --heads 2 --layers 1 --src-vocab 64 --tgt-vocab 64 --max-tokens 256";
    let steps = "bench train --overlap --device cpu --threads 1 --steps 1 --rounds 1 --variants base";
    let steps: Vec<&str> = steps.split(' ').chain(small.split(' ')).collect();
    for (words, parts) in [
        (&sums[..], vec!["2 processes, connected by TCP", "1 MiB, bf16", "GB/s"]),
        (&steps, vec!["base F step, 2 ranks", "as f32: step alone", "at the same time", "slices, complete"]),
    ] {
        let outputs: Vec<Output> = ranks_of(&sandbox, words, &[&[], &[]]).into_iter().map(end).collect();
        assert!(outputs.iter().all(|output| output.status.success()), "{}", stderr(&outputs[0]));
        let printed = String::from_utf8_lossy(&outputs[0].stdout);
        parts.iter().for_each(|part| assert!(printed.contains(part), "{part}: {printed}"));
        assert!(outputs[1].stdout.is_empty(), "only the first rank prints");
    }
}

#[test]
fn another_configuration_and_a_wrong_number_are_refused() {
    let sandbox = corpus();
    let words = ["--max-update", "3", "--save-dir", "run"];
    let other = [&words[..], &["--lr", "0.5"]].concat();
    let outputs: Vec<Output> = ranks(&sandbox, &[&words, &other]).into_iter().map(end).collect();
    let error = stderr(&outputs[0]);
    assert!(
        error.contains("rank 1 cannot take part") && error.contains("train.lr is 0.5 on rank 1"),
        "{error}"
    );
    assert!(outputs.iter().all(|output| output.status.code() == Some(1)));
    assert!(!sandbox.path("run/log.jsonl").exists());
    let error = sandbox.mae(SMALL, &["--distributed-world-size", "4"]).failed().to_owned();
    assert!(error.contains("mpirun -n 4") && error.contains("--update-freq 4"), "{error}");
}

#[test]
fn a_rank_that_is_killed_is_named_and_the_run_resumes() {
    let sandbox = corpus();
    let words = ["--max-update", "40", "--save-interval-updates", "2", "--save-dir", "killed"];
    let mut children = ranks(&sandbox, &[&words, &words, &words]);
    let begun = Instant::now();
    while !sandbox.path("killed/checkpoint_last").exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no checkpoint");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut victim = children.remove(1);
    let process = victim.id();
    victim.kill().unwrap();
    victim.wait().unwrap();
    let ended: Vec<Output> = children.into_iter().map(end).collect();
    // A fast machine may have finished all updates before.
    if ended.iter().any(|output| !output.status.success()) {
        for output in &ended {
            let error = stderr(output);
            assert!(error.contains("rank 1") && error.contains(&format!("process {process}")), "{error}");
        }
    }
    let outputs = ranks(&sandbox, &[&words, &words, &words]).into_iter().map(end);
    outputs.for_each(|output| assert!(output.status.success(), "{}", stderr(&output)));
    let whole =
        ["--max-update", "40", "--save-interval-updates", "2", "--update-freq", "3", "--save-dir", "whole"];
    sandbox.mae(SMALL, &whole).succeeded();
    same_files(&sandbox, "killed", "whole");
}

/// Runs where the variable names a launcher of MPI, as `.ci/run` does.
#[test]
fn mpi_makes_the_model_of_one_process() {
    let Some(launcher) = std::env::var_os("MAE_MPIEXEC").map(PathBuf::from) else { return };
    let sandbox = corpus();
    sandbox.mae(SMALL, &["--max-update", "12", "--update-freq", "2", "--save-dir", "alone"]).succeeded();
    let output = Command::new(launcher)
        .args(["-n", "2", env!("CARGO_BIN_EXE_mae")])
        .args(SMALL)
        .args(["--max-update", "12", "--save-dir", "two"])
        .current_dir(sandbox.path(""))
        .output()
        .expect("the launcher starts");
    assert!(output.status.success(), "{}", stderr(&output));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("2 processes, MPI"), "{printed}");
    same_files(&sandbox, "alone", "two");
}
