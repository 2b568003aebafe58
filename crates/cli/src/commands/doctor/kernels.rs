//! Comparison of every op of the GPU with the CPU.

use std::time::Instant;

use mae_engine::Numbers;
use mae_engine::suite::{self, Choice, Row};
use serde_json::json;

use crate::exit::ExitCode;

/// Number types to test.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Modes {
    /// Activations in bfloat16.
    Bf16,
    /// All numbers in f32.
    F32,
    /// Both, one after the other.
    Both,
}

impl Modes {
    fn all(self) -> &'static [Numbers] {
        match self {
            Self::Bf16 => &[Numbers::Bf16],
            Self::F32 => &[Numbers::F32],
            Self::Both => &[Numbers::F32, Numbers::Bf16],
        }
    }
}

/// Runs the suite and prints its table, the worst rows last.
pub fn run(modes: Modes, choice: Choice<'_>, json: bool) -> anyhow::Result<ExitCode> {
    let begin = Instant::now();
    let mut rows: Vec<Row> = Vec::new();
    eprintln!(
        "mae: running every op on the GPU and the CPU; kernels that are not in the cache are compiled first"
    );
    let outcome =
        modes.all().iter().try_for_each(|&numbers| suite::run(0, numbers, choice, |row| rows.push(row)));
    if rows.is_empty() {
        outcome?;
        anyhow::bail!("--filter {}: no op or case contains this text", choice.filter);
    }
    rows.sort_by(|a, b| a.severity().total_cmp(&b.severity()));
    let failed = rows.iter().filter(|row| !row.ok()).count();
    let seconds = begin.elapsed().as_secs_f64();
    if json {
        let rows: Vec<_> = rows.iter().map(object).collect();
        let object = json!({ "rows": rows, "failed": failed, "seconds": seconds });
        println!("{}", serde_json::to_string_pretty(&object)?);
    } else {
        print(&rows);
        let verdict =
            if failed == 0 { "all within their tolerance".into() } else { format!("{failed} FAILED") };
        println!("{} comparisons in {seconds:.1} s: {verdict}", rows.len());
    }
    // Comparisons are printed before the error that ended them.
    outcome?;
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn name(numbers: Numbers) -> &'static str {
    match numbers {
        Numbers::Bf16 => "bf16",
        Numbers::F32 => "f32",
    }
}

fn object(row: &Row) -> serde_json::Value {
    json!({
        "op": row.op,
        "case": row.case,
        "numbers": name(row.numbers),
        "quantity": row.quantity,
        "error": row.error,
        "worst_row": row.worst_row,
        "tolerance": row.tolerance,
        "failure": row.failure,
        "ok": row.ok(),
    })
}

fn print(rows: &[Row]) {
    let width = |text: fn(&Row) -> &str| rows.iter().map(|row| text(row).chars().count()).max().unwrap_or(0);
    let (op, quantity) = (width(|row| row.op), width(|row| &row.quantity));
    println!("{:op$}  type  {:quantity$}     error  worst row   allowed          case", "op", "quantity");
    for row in rows {
        let verdict = if row.ok() { "ok" } else { "FAILED" };
        println!(
            "{:op$}  {:4}  {:quantity$}  {:8.1e}   {:8.1e}  {:8.1e}  {verdict:6}  {}",
            row.op,
            name(row.numbers),
            row.quantity,
            row.error,
            row.worst_row,
            row.tolerance,
            row.case
        );
        if let Some(failure) = &row.failure {
            println!("    {failure}");
        }
    }
}
