//! `mae bench serve`: latency and throughput of a running server under load.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mae_data::{BadUtf8, LineReader};
use mae_serve::load::LoadTest;
use serde::Serialize;

const EXAMPLES: &str = "\
Examples:
  Ask a server at four rates, for 20 s each, with the sentences of a file:
    mae bench serve --pair de-en --source test.de --rates 5,10,20,40

  Ask for lists of 32 lines, more than the server can answer, for five minutes:
    mae bench serve --pair de-en --source test.de --batch 32 --rates 50 \\
        --seconds 300";

/// Measure a running `mae serve`: requests of one line arrive at random times, at given mean rates.
///
/// The load is open: requests do not wait for earlier answers, and times count from the moment a request was due. Every
/// request is counted once: answered; refused (429 or 503 with Retry-After); failed (another answer); lost (sent, and not
/// answered in time); unsent (no connection was free in time). Surplus are answers that nobody asked for, or that differ
/// from an earlier one to the same text.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Address of the server
    #[arg(long, default_value = "127.0.0.1:5000", value_name = "ADDRESS")]
    server: SocketAddr,
    /// Source and target language
    #[arg(long, value_name = "SOURCE-TARGET")]
    pair: String,
    /// Model, if several translate between these languages
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// File of texts, one per line; requests take lines at random
    #[arg(long, value_name = "FILE")]
    source: PathBuf,
    /// Lines of a request
    #[arg(long, default_value_t = 1, value_name = "N")]
    batch: usize,
    /// Mean rates, in requests per second
    #[arg(long, value_delimiter = ',', default_value = "1,5,10,20", value_name = "N,…")]
    rates: Vec<f64>,
    /// Connections at once; requests that are due wait for one
    #[arg(long, default_value_t = 200, value_name = "N")]
    connections: usize,
    /// Seconds of each rate
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Seconds that a request waits for a connection at most, and then for its answer
    #[arg(long, default_value_t = 60.0)]
    patience: f64,
    /// Seed of times and lines
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Print a JSON object per rate
    #[arg(long)]
    json: bool,
}

/// Results at one rate.
#[derive(Serialize)]
struct Row {
    rate: f64,
    due: usize,
    answered: usize,
    refused: usize,
    failed: usize,
    lost: usize,
    unsent: usize,
    surplus: usize,
    answers_per_s: f64,
    p50_ms: f64,
    p90_ms: f64,
    p99_ms: f64,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<()> {
    let (source, target) = args
        .pair
        .split_once('-')
        .with_context(|| format!("--pair {}: expected two codes such as de-en", args.pair))?;
    let [duration, patience] =
        [("--seconds", args.seconds), ("--patience", args.patience)].map(|(flag, seconds)| {
            Duration::try_from_secs_f64(seconds).with_context(|| format!("{flag} {seconds}: this is no time"))
        });
    let (duration, patience) = (duration?, patience?);
    let mut texts = Vec::new();
    let mut reader = LineReader::open(&args.source, BadUtf8::Replace)?;
    while let Some(line) = reader.next_line()? {
        if !line.trim().is_empty() {
            texts.push(line.to_owned());
        }
    }
    ensure!(!texts.is_empty(), "{} holds no text", args.source.display());
    ensure!(args.batch > 0, "--batch 0: a request needs a line");
    let test = LoadTest {
        address: args.server,
        languages: (source.to_owned(), target.to_owned()),
        model: args.model.clone(),
        texts,
        batch: args.batch,
        rate: 1.0,
        connections: args.connections,
        duration,
        patience,
        seed: args.seed,
    };
    if !args.json {
        println!(
            "requests/s  answered  refused  failed   lost  unsent  surplus  answers/s   p50 ms   p90 ms   p99 ms"
        );
    }
    for &rate in &args.rates {
        ensure!(rate > 0.0, "--rates {rate}: rates must be above 0");
        let report = LoadTest { rate, ..test.clone() }.run()?;
        let ms = |share| 1e3 * report.percentile(share);
        let row = Row {
            rate,
            due: report.due,
            answered: report.answered,
            refused: report.refused,
            failed: report.failed,
            lost: report.lost,
            unsent: report.unsent,
            surplus: report.surplus,
            answers_per_s: report.throughput(),
            p50_ms: ms(0.5),
            p90_ms: ms(0.9),
            p99_ms: ms(0.99),
        };
        if args.json {
            println!("{}", serde_json::to_string(&row)?);
        } else {
            let Row { answered, refused, failed, lost, unsent, surplus, answers_per_s, .. } = row;
            let Row { p50_ms, p90_ms, p99_ms, .. } = row;
            println!(
                "{rate:10.1}  {answered:8}  {refused:7}  {failed:6}  {lost:5}  {unsent:6}  {surplus:7}  \
                 {answers_per_s:9.1}  {p50_ms:7.1}  {p90_ms:7.1}  {p99_ms:7.1}"
            );
        }
    }
    Ok(())
}
