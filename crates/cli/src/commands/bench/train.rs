//! `mae bench train`: target tokens per second for each kind of training step of a translation model.

use anyhow::{Result, ensure};
use mae_data::PackedBatch;
use mae_model::Translator;
use mae_train::Learner;

use super::shapes::{LONGEST, Shape, batches};
use super::steps::{Bench, Timing};

const EXAMPLES: &str = "\
Examples:
  Measure with two threads, beside PyTorch (from the repository's root, with PyTorch installed):
    mae bench train --threads 2 --peer 'python3 tools/oracle/bench.py'";

/// Measure training of translation models: target tokens per second of F and G steps.
///
/// Batches are packed to --max-tokens target tokens, with sentence lengths like those of IWSLT14. With --peer, the peer
/// runs in turn with each variant, and ratios are printed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Target tokens per batch.
    #[arg(long, default_value_t = 2048)]
    max_tokens: u32,
    /// Tokens per batch of the peer, including padding [default: --max-tokens].
    #[arg(long)]
    peer_max_tokens: Option<u32>,
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    shape: Shape,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let Args { max_tokens, peer_max_tokens, timing, shape } = &args;
    shape.check()?;
    ensure!(*max_tokens >= LONGEST as u32, "--max-tokens must be at least {LONGEST}, the longest sentence");
    let bench = Bench::open(timing, "target tokens")?;
    for variant in &timing.variants {
        let config = shape.config(variant)?;
        let data = batches(shape, &config.model, *max_tokens, timing.steps)?;
        let model = Translator::new(&config.model, [shape.src_vocab, shape.tgt_vocab], &bench.device, 1)?;
        let learner = Learner::new(model, &config.train);
        let mut flags = shape.flags();
        flags.push(("max-tokens", peer_max_tokens.unwrap_or(*max_tokens).to_string()));
        bench.measure(variant, learner, &data, tflop(shape, &data), flags)?;
    }
    bench.finish()
}

/// Operations of matrix products in the forward pass of an average update, in units of 10¹²: 2 for each weight and row.
/// Products inside attention and gates are not counted.
fn tflop(shape: &Shape, data: &[PackedBatch]) -> f64 {
    let (d, inner) = (shape.width as f64, shape.inner as f64);
    let mean =
        |tokens: fn(&PackedBatch) -> usize| data.iter().map(tokens).sum::<usize>() as f64 / data.len() as f64;
    let (source, target) = (mean(PackedBatch::src_tokens), mean(PackedBatch::tgt_tokens));
    let feed_forward = 2.0 * d * inner;
    let encoder = source * (4.0 * d * d + feed_forward);
    // The decoder's cross-attention projects keys and values of the source.
    let decoder = target * (6.0 * d * d + feed_forward) + source * 2.0 * d * d;
    let vocabulary = target * d * shape.tgt_vocab as f64;
    2.0 * (shape.layers as f64 * (encoder + decoder) + vocabulary) / 1e12
}
