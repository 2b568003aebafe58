//! Peer: another program that measures the same work and prints JSON lines, run between our own rounds.

use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// One measurement as the peer prints it; other fields are ignored.
#[derive(Debug, Deserialize)]
pub struct Line {
    /// Kind of step, `F`, `G` or `joint`, if steps are measured.
    #[serde(default)]
    pub step: String,
    /// Beam size, if search is measured.
    pub beam: Option<usize>,
    /// Sentences in a batch; any, where it is not said.
    pub batch: Option<usize>,
    /// Number type; any, where it is not said.
    pub compute_type: Option<String>,
    /// Target tokens per second, without padding.
    #[serde(rename = "target_tokens_per_s")]
    pub tokens_per_s: f64,
    /// Peak of the GPU memory in use, if the peer reports it.
    pub peak_gpu_mib: Option<f64>,
}

/// Flags of the peer without their dashes, and their values.
pub type Flags = Vec<(&'static str, String)>;

/// Flags that every benchmark has.
#[derive(clap::Args)]
pub struct Output {
    /// Command of a peer that takes the same flags and prints JSON lines.
    #[arg(long, value_name = "COMMAND")]
    pub peer: Option<String>,
    /// Print one JSON object per measurement.
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// Runs the peer with these flags; no lines without a peer.
    pub fn run_peer(&self, flags: &Flags) -> Result<Vec<Line>> {
        let Some(command) = &self.peer else { return Ok(Vec::new()) };
        let mut all: Vec<String> =
            flags.iter().flat_map(|(name, value)| [format!("--{name}"), value.clone()]).collect();
        all.push("--json".into());
        run(command, &all)
    }

    /// Finds the line of the peer that `wanted` accepts; `None` without a peer. `what` names it in the error.
    pub fn of_peer<'l>(
        &self,
        lines: &'l [Line],
        what: &str,
        wanted: impl Fn(&Line) -> bool,
    ) -> Result<Option<&'l Line>> {
        let Some(command) = &self.peer else { return Ok(None) };
        let line = lines.iter().find(|line| wanted(line));
        line.map(Some).with_context(|| format!("--peer {command}: the peer printed no measurement of {what}"))
    }
}

/// Runs `command` (split at spaces) with `flags` appended and reads its JSON lines.
fn run(command: &str, flags: &[String]) -> Result<Vec<Line>> {
    let mut words = command.split_whitespace();
    let Some(program) = words.next() else { bail!("--peer needs a command") };
    let output = Command::new(program)
        .args(words)
        .args(flags)
        .stderr(std::process::Stdio::inherit())
        .output()
        .with_context(|| format!("--peer {command}"))?;
    if !output.status.success() {
        bail!("--peer {command}: ended with {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with('{')).collect();
    ensure!(
        !lines.is_empty(),
        "--peer {command}: the peer printed no JSON line with a measurement, but {}",
        if text.trim().is_empty() { "nothing".to_owned() } else { format!("`{}`", text.trim()) }
    );
    let parse = |line| {
        serde_json::from_str(line).with_context(|| format!("--peer {command}: the peer printed {line}"))
    };
    lines.into_iter().map(parse).collect()
}
