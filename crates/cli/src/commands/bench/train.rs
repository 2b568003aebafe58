//! `mae bench train`: target tokens per second of each kind of step.

use std::time::Instant;

use anyhow::{Result, ensure};
use mae_engine::Device;
use mae_engine::cpu::gemm;
use mae_model::Translator;
use mae_train::Learner;
use mae_train::plan::Steps;
use serde::Serialize;

use super::peer::Output;
use super::shapes::{Shape, batches};

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
    /// Where to run; only the CPU so far.
    #[arg(long, default_value = "cpu")]
    device: String,
    /// Target tokens per batch.
    #[arg(long, default_value_t = 2048)]
    max_tokens: u32,
    /// Updates to time in each round.
    #[arg(long, default_value_t = 10)]
    steps: usize,
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
    /// Share of the time spent in matrix products, and their rate.
    product_share: f64,
    product_gflops: f64,
    /// The rate of one large product on this machine: what the rate above could be at best.
    product_peak_gflops: f64,
    peer_tokens_per_s: Option<f64>,
    /// Median over the rounds of our rate by the peer's.
    ratio_to_peer: Option<f64>,
    /// Our best round by the peer's best: what is left when nobody else disturbs the machine.
    ratio_of_best: Option<f64>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    ensure!(args.device == "cpu", "--device {}: only the CPU can be measured so far", args.device);
    ensure!(args.steps > 0 && args.rounds > 0, "--steps and --rounds must be above 0");
    let threads = rayon::current_num_threads();
    let peak = product_peak();
    for variant in &args.variants {
        let config = args.shape.config(variant)?;
        let data = batches(&args.shape, &config.model, args.max_tokens, args.steps)?;
        let device = Device::cpu();
        let model = Translator::new(&config.model, [args.shape.src_vocab, args.shape.tgt_vocab], &device, 1)?;
        let mut learner = Learner::new(model, &config.train);
        let gated = config.model.mixture.system.is_gated();
        // One untimed step of each kind: buffers are allocated, caches warm.
        learner.update(&data[..1], if gated { Steps::GThenF } else { Steps::F }, 1)?;
        let steps = if gated { &["F", "G"][..] } else { &["F"][..] };
        let mut rounds: Vec<Vec<Round>> = steps.iter().map(|_| Vec::new()).collect();
        for _ in 0..args.rounds {
            let own: Vec<Timed> =
                steps.iter().map(|step| time(&mut learner, &data, step)).collect::<Result<_>>()?;
            let peers = args.output.run_peer(&args.shape, &peer_flags(&args, variant, threads))?;
            for ((step, own), rounds) in steps.iter().zip(own).zip(&mut rounds) {
                let peer = peers.iter().find(|line| line.step == *step).map(|line| line.tokens_per_s);
                rounds.push(Round { own, peer });
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
                    device: &args.device,
                    threads,
                    rounds: args.rounds,
                    ms_per_update: 1e3 * seconds / data.len() as f64,
                    tokens_per_s: tokens as f64 / seconds,
                    tokens_per_update: tokens as f64 / data.len() as f64,
                    product_share: of(&|round| round.own.product_share),
                    product_gflops: of(&|round| round.own.product_gflops),
                    product_peak_gflops: peak,
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
    for batch in data.chunks(1) {
        if step == "G" {
            learner.gate_step(batch, 1)?;
        } else {
            learner.update(batch, Steps::F, 1)?;
        }
    }
    let (seconds, meter) = (begun.elapsed().as_secs_f64(), gemm::meter());
    Ok(Timed {
        seconds,
        product_share: meter.seconds / seconds,
        product_gflops: meter.flops / meter.seconds / 1e9,
    })
}

/// The middle value.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

fn peer_flags(args: &Args, variant: &str, threads: usize) -> Vec<(&'static str, String)> {
    vec![
        ("variant", variant.to_owned()),
        ("device", args.device.clone()),
        ("max-tokens", args.max_tokens.to_string()),
        ("steps", args.steps.to_string()),
        ("threads", threads.to_string()),
    ]
}

fn report(args: &Args, m: &Measurement<'_>) {
    if args.output.json {
        println!("{}", serde_json::to_string(m).expect("measurements can be written as JSON"));
        return;
    }
    println!(
        "{} {} step, {}, {} threads: {:.0} ms/update, {:.0} target tokens/s ({:.0} tokens/update); \
         products {:.0} % of the time at {:.0} GFLOP/s (one large product: {:.0})",
        m.variant,
        m.step,
        m.device,
        m.threads,
        m.ms_per_update,
        m.tokens_per_s,
        m.tokens_per_update,
        100.0 * m.product_share,
        m.product_gflops,
        m.product_peak_gflops
    );
    if let (Some(peer), Some(ratio)) = (m.peer_tokens_per_s, m.ratio_to_peer) {
        let best = m.ratio_of_best.unwrap_or(f64::NAN);
        println!(
            "  peer: {peer:.0} target tokens/s; ratio {ratio:.2} (median of {} rounds), {best:.2} (best rounds)",
            m.rounds
        );
    }
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
