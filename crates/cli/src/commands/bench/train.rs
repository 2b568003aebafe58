//! `mae bench train`: target tokens per second of each kind of step.

use std::time::Instant;

use anyhow::{Result, ensure};
use mae_engine::cpu::gemm;
use mae_engine::cuda::profile::OpTime;
use mae_model::Translator;
use mae_model::config::System;
use mae_train::Learner;
use mae_train::plan::Steps;
use serde::Serialize;

use super::peer::Output;
use super::shapes::{Shape, batches};
use crate::device::DeviceArgs;

/// Training speed: target tokens per second of F and G steps.
///
/// Batches are packed to --max-tokens target tokens; lengths are drawn to look like IWSLT14. With --peer, the peer runs
/// in turn with each variant, and ratios are printed.
#[derive(clap::Args)]
#[command(after_help = "Example, from the repository's root, with PyTorch installed:
  mae bench train --threads 2 --peer \"python3 tools/oracle/bench.py\"")]
pub struct Args {
    /// Systems to measure: base, mae7, mae6, uni-mae7, nobcd.
    #[arg(long, value_delimiter = ',', default_value = "base,mae7", value_name = "NAMES")]
    variants: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Target tokens per batch.
    #[arg(long, default_value_t = 2048)]
    max_tokens: u32,
    /// Token budget of the peer, which counts padding [default: the same].
    #[arg(long)]
    peer_max_tokens: Option<u32>,
    /// Updates to time in each round.
    #[arg(long, default_value_t = 10)]
    steps: usize,
    /// On a GPU: also run one update op by op and print the time of each kernel and product.
    #[arg(long)]
    profile: bool,
    /// Rounds; ours and the peer take turns. Medians over the rounds are printed, and the ratio of the best rounds.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    #[command(flatten)]
    shape: Shape,
    #[command(flatten)]
    output: Output,
}

/// One measurement.
#[derive(Serialize)]
struct Measurement<'a> {
    variant: &'a str,
    step: &'static str,
    device: &'a str,
    threads: usize,
    /// Rounds that the figures are medians of.
    rounds: usize,
    ms_per_update: f64,
    tokens_per_s: f64,
    tokens_per_update: f64,
    /// On the CPU: share of the time spent in matrix products, their rate, and the rate of one large product: what the
    /// rate could be at best.
    product_share: Option<f64>,
    product_gflops: Option<f64>,
    product_peak_gflops: Option<f64>,
    /// Floating-point operations of the products of one update, in units of 10¹².
    tflop_per_update: f64,
    /// Memory held, in GiB.
    memory_gib: f64,
    peer_tokens_per_s: Option<f64>,
    /// Median over the rounds of our rate by the peer's.
    ratio_to_peer: Option<f64>,
    /// Our best round by the peer's best: what is left when nobody else disturbs the machine.
    ratio_of_best: Option<f64>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    ensure!(args.steps > 0 && args.rounds > 0, "--steps and --rounds must be above 0");
    let threads = rayon::current_num_threads();
    let device = args.device.open()?;
    let name = if device.is_gpu() { "cuda" } else { "cpu" };
    let peak = (!device.is_gpu()).then(product_peak);
    if !args.output.json {
        println!("{}", device.describe());
    }
    for variant in &args.variants {
        let config = args.shape.config(variant)?;
        let data = batches(&args.shape, &config.model, args.max_tokens, args.steps)?;
        let model = Translator::new(&config.model, [args.shape.src_vocab, args.shape.tgt_vocab], &device, 1)?;
        let mut learner = Learner::new(model, &config.train);
        // NoBCD learns gates and all the rest in one step.
        let (steps, warm_up_steps) = match config.model.mixture.system {
            System::Mae => (&["F", "G"][..], Steps::GThenF),
            System::Nobcd => (&["joint"][..], Steps::Joint),
            System::Base | System::Uniform => (&["F"][..], Steps::F),
        };
        // Untimed: buffers are allocated and caches warm after one step of each kind; a GPU sees every shape twice,
        // runs it once op by op and captures it the second time.
        let warm_up = if device.is_gpu() { [&data[..], &data[..]].concat() } else { data[..1].to_vec() };
        for batch in warm_up.chunks(1) {
            learner.update(batch, warm_up_steps, 1)?.wait()?;
        }
        let mut rounds: Vec<Vec<Round>> = steps.iter().map(|_| Vec::new()).collect();
        for _ in 0..args.rounds {
            let own: Vec<Timed> =
                steps.iter().map(|step| time(&mut learner, &data, step)).collect::<Result<_>>()?;
            let peers = args.output.run_peer(&args.shape, &peer_flags(&args, variant, name, threads))?;
            for ((step, own), rounds) in steps.iter().zip(own).zip(&mut rounds) {
                let peer = peers.iter().find(|line| line.step == *step).map(|line| line.tokens_per_s);
                rounds.push(Round { own, peer });
            }
        }
        if args.profile {
            for step in steps {
                let (done, times) = device.profile(|| time(&mut learner, &data[..1], step));
                done?;
                print_profile(variant, step, &times);
            }
        }
        let tokens: usize = data.iter().map(mae_data::PackedBatch::tgt_tokens).sum();
        for (step, rounds) in steps.iter().zip(&rounds) {
            let of = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value).collect());
            let seconds = of(&|round| round.own.seconds);
            let with_peer = args.output.peer.is_some();
            let rate = |round: &Round| tokens as f64 / round.own.seconds;
            let best = |value: &dyn Fn(&Round) -> f64| rounds.iter().map(value).fold(f64::NAN, f64::max);
            report(
                &args,
                &Measurement {
                    variant,
                    step,
                    device: name,
                    threads,
                    rounds: args.rounds,
                    ms_per_update: 1e3 * seconds / data.len() as f64,
                    tokens_per_s: tokens as f64 / seconds,
                    tokens_per_update: tokens as f64 / data.len() as f64,
                    product_share: peak.map(|_| of(&|round| round.own.product_share)),
                    product_gflops: peak.map(|_| of(&|round| round.own.product_gflops)),
                    product_peak_gflops: peak,
                    tflop_per_update: tflop(&args.shape, &data, step),
                    memory_gib: device.memory_held() as f64 / (1u64 << 30) as f64,
                    peer_tokens_per_s: with_peer.then(|| of(&|round| round.peer.unwrap_or(f64::NAN))),
                    ratio_to_peer: with_peer
                        .then(|| of(&|round| rate(round) / round.peer.unwrap_or(f64::NAN))),
                    ratio_of_best: with_peer
                        .then(|| best(&rate) / best(&|round| round.peer.unwrap_or(f64::NAN))),
                },
            );
        }
    }
    Ok(())
}

/// Our own updates of one round.
struct Timed {
    seconds: f64,
    product_share: f64,
    product_gflops: f64,
}

/// One round: ours, and the peer's target tokens per second right after.
struct Round {
    own: Timed,
    peer: Option<f64>,
}

/// Times one step on every batch.
fn time(learner: &mut Learner, data: &[mae_data::PackedBatch], step: &str) -> Result<Timed> {
    gemm::meter_reset();
    let begun = Instant::now();
    let mut last = None;
    for batch in data.chunks(1) {
        match step {
            "G" => learner.gate_update(batch)?,
            "joint" => last = Some(learner.update(batch, Steps::Joint, 1)?),
            _ => last = Some(learner.update(batch, Steps::F, 1)?),
        }
    }
    last.map(mae_train::learner::PendingUpdate::wait).transpose()?;
    learner.model.params().device().wait()?;
    let (seconds, meter) = (begun.elapsed().as_secs_f64(), gemm::meter());
    Ok(Timed {
        seconds,
        product_share: meter.seconds / seconds,
        product_gflops: meter.flops / meter.seconds / 1e9,
    })
}

/// Kernels and products of one update, the longest first.
fn print_profile(variant: &str, step: &str, times: &[OpTime]) {
    let total: f64 = times.iter().map(|op| op.milliseconds).sum();
    let count: usize = times.iter().map(|op| op.count).sum();
    println!("{variant} {step} step, op by op: {total:.3} ms in {count} kernels and products");
    for op in times {
        let each = 1e3 * op.milliseconds / op.count as f64;
        println!("  {:7.1} us  {:4} x {each:6.1} us  {}", 1e3 * op.milliseconds, op.count, op.name);
    }
}

/// The middle value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

fn peer_flags(args: &Args, variant: &str, device: &str, threads: usize) -> Vec<(&'static str, String)> {
    vec![
        ("variant", variant.to_owned()),
        ("device", device.to_owned()),
        ("max-tokens", args.peer_max_tokens.unwrap_or(args.max_tokens).to_string()),
        ("steps", args.steps.to_string()),
        ("threads", threads.to_string()),
    ]
}

fn report(args: &Args, m: &Measurement<'_>) {
    if args.output.json {
        println!("{}", serde_json::to_string(m).expect("measurements can be written as JSON"));
        return;
    }
    let threads = if m.device == "cpu" { format!(", {} threads", m.threads) } else { String::new() };
    println!(
        "{} {} step, {}{threads}: {:.2} ms/update, {:.0} target tokens/s ({:.0} tokens/update); \
         {:.2} TFLOP/update in products, {:.1} TFLOP/s",
        m.variant,
        m.step,
        m.device,
        m.ms_per_update,
        m.tokens_per_s,
        m.tokens_per_update,
        m.tflop_per_update,
        1e3 * m.tflop_per_update / m.ms_per_update,
    );
    if let (Some(share), Some(rate), Some(peak)) = (m.product_share, m.product_gflops, m.product_peak_gflops)
    {
        println!(
            "  products {:.0} % of the time at {rate:.0} GFLOP/s (one large product: {peak:.0})",
            100.0 * share
        );
    }
    println!("  {:.2} GiB of memory held", m.memory_gib);
    if let (Some(peer), Some(ratio)) = (m.peer_tokens_per_s, m.ratio_to_peer) {
        let best = m.ratio_of_best.unwrap_or(f64::NAN);
        println!(
            "  peer: {peer:.0} target tokens/s; ratio {ratio:.2} (median of {} rounds), {best:.2} (best rounds)",
            m.rounds
        );
    }
}

/// Operations of the products of a mean update, in units of 10¹²: 2 for each weight and row forward, and again for the
/// gradient of the input and (F step) of the weight. Attention's own products and the gates' are left out.
fn tflop(shape: &Shape, data: &[mae_data::PackedBatch], step: &str) -> f64 {
    let (d, inner) = (shape.width as f64, shape.inner as f64);
    let mean = |tokens: fn(&mae_data::PackedBatch) -> usize| {
        data.iter().map(tokens).sum::<usize>() as f64 / data.len() as f64
    };
    let (source, target) = (mean(mae_data::PackedBatch::src_tokens), mean(mae_data::PackedBatch::tgt_tokens));
    let feed_forward = 2.0 * d * inner;
    let encoder = source * (4.0 * d * d + feed_forward);
    // The decoder's cross-attention projects keys and values of the source.
    let decoder = target * (6.0 * d * d + feed_forward) + source * 2.0 * d * d;
    let vocabulary = target * d * shape.tgt_vocab as f64;
    let weights = shape.layers as f64 * (encoder + decoder) + vocabulary;
    let passes = if step == "G" { 2.0 } else { 3.0 };
    2.0 * passes * weights / 1e12
}

/// GFLOP/s of a product of 2,048 cubed, the best of five.
fn product_peak() -> f64 {
    let n = 2048;
    let (a, b) = (vec![0.5; n * n], vec![0.25; n * n]);
    let mut c = vec![0.0; n * n];
    let mut best = 0f64;
    for _ in 0..5 {
        let begun = Instant::now();
        gemm::gemm(
            [n, n, n],
            gemm::Mat::new(&a, n),
            gemm::Mat::new(&b, n).t(),
            &mut c,
            gemm::Into::Overwrite,
            gemm::Precision::Full,
        );
        best = best.max(2.0 * (n as f64).powi(3) / begun.elapsed().as_secs_f64() / 1e9);
    }
    best
}
