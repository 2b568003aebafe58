//! `mae bench decode`: sentences and tokens per second of greedy and beam search.

use std::time::Instant;

use anyhow::{Result, ensure};
use mae_data::{MemoryDataset, PackedBatch, Sentences};
use mae_engine::Rng;
use mae_model::{ExpertMode, Translator};
use mae_translate::{SearchOptions, Searcher};
use serde::Serialize;

use super::peer::{Flags, Output};
use super::shapes::{Shape, random_sentence};
use crate::device::DeviceArgs;

const EXAMPLES: &str = "\
Examples:
  Measure with two threads, beside PyTorch (from the repository's root, with PyTorch installed):
    mae bench decode --threads 2 --peer 'python3 tools/oracle/decode_bench.py'";

/// Measure translation: greedy and beam search with random weights and a fixed length.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Systems to measure: base, mae7, mae6, …
    #[arg(long, value_delimiter = ',', default_value = "base,mae7", value_name = "NAMES")]
    variants: Vec<String>,
    /// Beam sizes to measure; 1 is greedy search.
    #[arg(long, value_delimiter = ',', default_value = "1,5", value_name = "N,…")]
    beams: Vec<usize>,
    /// Number of sentences, translated in one batch.
    #[arg(long, default_value_t = 32)]
    sentences: usize,
    /// Tokens per source sentence and per translation.
    #[arg(long, default_value_t = 25)]
    length: usize,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    output: Output,
}

/// One measurement.
#[derive(Serialize)]
struct Measurement<'a> {
    variant: &'a str,
    beam: usize,
    device: &'static str,
    threads: usize,
    sentences_per_s: f64,
    tokens_per_s: f64,
    peer_tokens_per_s: Option<f64>,
    ratio_to_peer: Option<f64>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    ensure!(args.sentences > 0 && args.length > 1, "--sentences must be above 0 and --length above 1");
    args.shape.check()?;
    let threads = rayon::current_num_threads();
    let device = args.device.open()?;
    let stream = Rng::new(2, 0).stream(0);
    let sources: MemoryDataset = (0..args.sentences)
        .map(|i| random_sentence(stream, i as u32, 0, args.length, args.shape.src_vocab))
        .collect();
    let ids: Vec<u32> = (0..args.sentences as u32).collect();
    let batch = PackedBatch::from_sources(&Sentences::Memory(sources), &ids);
    for variant in &args.variants {
        let config = args.shape.config(variant)?;
        let positions = config.model.max_positions;
        ensure!(args.length <= positions, "--length {}: the model has {positions} positions", args.length);
        let types = [args.shape.src_vocab, args.shape.tgt_vocab];
        let model = Translator::new(&config.model, types, &device, 1)?;
        let peers = args.output.run_peer(&peer_flags(&args, variant, threads))?;
        for &beam in &args.beams {
            let what = format!("{variant} with beam {beam}");
            let peer = args.output.of_peer(&peers, &what, |line| line.beam == Some(beam))?;
            let peer = peer.map(|line| line.tokens_per_s);
            // The end mark is neither allowed earlier nor left out later: every translation has the same length.
            let (min_len, max_len_b) = (args.length - 1, args.length - 1);
            let options = SearchOptions { beam, min_len, max_len_b, ..SearchOptions::default() };
            let mut searcher = Searcher::new(&model, &options, &ExpertMode::Mix)?;
            // A GPU runs steps of a kind once op by op and captures them the second time.
            for _ in 0..if device.is_gpu() { 2 } else { 1 } {
                searcher.search(&batch)?;
            }
            let begun = Instant::now();
            let found = searcher.search(&batch)?;
            let seconds = begun.elapsed().as_secs_f64();
            let tokens: usize =
                found.iter().filter_map(|best| best.first()).map(|best| best.tokens.len()).sum();
            let tokens_per_s = tokens as f64 / seconds;
            report(
                &args,
                &Measurement {
                    variant,
                    beam,
                    device: if device.is_gpu() { "cuda" } else { "cpu" },
                    threads,
                    sentences_per_s: args.sentences as f64 / seconds,
                    tokens_per_s,
                    peer_tokens_per_s: peer,
                    ratio_to_peer: peer.map(|peer| tokens_per_s / peer),
                },
            );
        }
    }
    Ok(())
}

fn peer_flags(args: &Args, variant: &str, threads: usize) -> Flags {
    let beams: Vec<String> = args.beams.iter().map(usize::to_string).collect();
    let mut flags = args.shape.flags();
    flags.extend([
        ("variant", variant.to_owned()),
        ("beams", beams.join(",")),
        ("sentences", args.sentences.to_string()),
        ("length", args.length.to_string()),
        ("src-lengths", args.length.to_string()),
        ("threads", threads.to_string()),
    ]);
    flags
}

fn report(args: &Args, m: &Measurement<'_>) {
    if args.output.json {
        println!("{}", serde_json::to_string(m).expect("measurements can be written as JSON"));
        return;
    }
    let kind = if m.beam == 1 { "greedy".to_owned() } else { format!("beam {}", m.beam) };
    println!(
        "{} {kind}, {}, {} threads: {:.1} sentences/s, {:.0} target tokens/s",
        m.variant, m.device, m.threads, m.sentences_per_s, m.tokens_per_s
    );
    if let (Some(peer), Some(ratio)) = (m.peer_tokens_per_s, m.ratio_to_peer) {
        println!("  peer: {peer:.0} target tokens/s; ratio {ratio:.2}");
    }
}
