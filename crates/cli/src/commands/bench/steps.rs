//! Shared parts of `mae bench train` and `mae bench train-lm`: timed rounds of updates, ours and a peer's in turn.

use std::time::Instant;

use anyhow::{Result, ensure};
use mae_data::PackedBatch;
use mae_engine::Device;
use mae_engine::collective::{Ending, Team};
use mae_engine::cpu::gemm;
use mae_engine::cuda::profile::OpTime;
use mae_model::{Config, Model};
use mae_train::plan::{StepKind, Steps, step_kinds};
use mae_train::{Learner, Share, TrainConfig};

use super::measurement::{Measurement, gib, report};
use super::overlap;
use super::peer::{Flags, Output};
use crate::device::DeviceArgs;
use crate::training::ranks::{self, DdpDtype, RanksArgs};

/// Flags of both commands.
#[derive(clap::Args)]
pub struct Timing {
    /// Systems to measure: base, mae7, mae6, uni-mae7, nobcd.
    #[arg(long, value_delimiter = ',', default_value = "base,mae7", value_name = "NAMES")]
    pub variants: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Number of updates to time in each round.
    #[arg(long, default_value_t = 10)]
    pub steps: usize,
    /// On a GPU: also run one update op by op and print the time of each kernel and product.
    #[arg(long)]
    profile: bool,
    /// Also measure the sum of gradients over processes, alone and with the step, and print how much of it is hidden. One
    /// process sums with MAE_COLLECTIVE=nccl only.
    #[arg(long)]
    overlap: bool,
    /// Numbers in which gradients travel between processes.
    #[arg(long, value_enum, default_value_t, value_name = "TYPE")]
    ddp_dtype: DdpDtype,
    /// Number of rounds, in which we and the peer take turns. The output has medians over the rounds and the ratio of
    /// the best rounds.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    ranks: RanksArgs,
}

/// Opened device with the settings of the benchmark.
pub struct Bench<'a> {
    timing: &'a Timing,
    pub device: Device,
    team: Team,
    threads: usize,
    /// On the CPU: GFLOP/s of one large product.
    product_peak: Option<f64>,
    /// Name of the unit: tokens or target tokens.
    tokens: &'static str,
}

impl<'a> Bench<'a> {
    /// Opens the device and prints its description.
    pub fn open(timing: &'a Timing, tokens: &'static str) -> Result<Self> {
        ensure!(timing.steps > 0 && timing.rounds > 0, "--steps and --rounds must be above 0");
        let launch = timing.ranks.launch()?;
        let device = timing.device.open_for(launch.as_ref().map_or(0, |launch| launch.place.local_rank))?;
        ensure!(
            device.is_gpu() || !timing.profile,
            "--profile is for GPUs: it prints the time of their kernels. Leave it out, or choose one with --device cuda"
        );
        // With MAE_COLLECTIVE=nccl, sums of one rank are measured, too.
        let team = ranks::team(launch.as_ref(), &device)?.sending(timing.ddp_dtype.into());
        if !timing.output.json && team.place().is_first() {
            println!("{}", device.describe());
            team.describe().into_iter().for_each(|ranks| println!("{ranks}"));
        }
        let product_peak = (!device.is_gpu()).then(product_peak);
        Ok(Self { timing, device, team, threads: rayon::current_num_threads(), product_peak, tokens })
    }

    /// Ends the part of this process.
    pub fn finish(self) -> Result<()> {
        self.team.host().barrier()?;
        self.team.host().leave(Ending::Finished);
        Ok(())
    }

    /// Times and reports every kind of step of `variant`. `tflop` is the number of operations, in units of 10¹², of the
    /// matrix products of one forward pass; `flags` are the peer's, besides those that all peers know.
    pub fn measure<M: Model>(
        &self,
        variant: &str,
        learner: Learner<M>,
        data: &[PackedBatch],
        tflop: f64,
        mut flags: Flags,
    ) -> Result<()> {
        let Self { timing, device, product_peak, team, .. } = self;
        let mut learner = learner.among(team.clone());
        let name = if device.is_gpu() { "cuda" } else { "cpu" };
        flags.extend([
            ("variant", variant.to_owned()),
            ("device", name.to_owned()),
            ("steps", timing.steps.to_string()),
            ("threads", self.threads.to_string()),
        ]);
        let system = learner.model.config().mixture().system;
        let kinds = step_kinds(system, &TrainConfig::default());
        let steps: Vec<&str> = kinds.iter().map(|kind| kind.short()).collect();
        // Untimed warm-up: allocates buffers and fills caches with one step of each kind. A GPU runs every shape twice:
        // once op by op, and once to capture it.
        let warm_up = if device.is_gpu() { [data, data].concat() } else { data[..1].to_vec() };
        let mut peaks = Vec::new();
        for step in &steps {
            device.reset_memory_peak();
            time(&mut learner, &warm_up, step)?;
            peaks.push(device.memory_peak());
        }
        let mut rounds: Vec<Vec<Round>> = steps.iter().map(|_| Vec::new()).collect();
        for _ in 0..timing.rounds {
            let own: Vec<Timed> =
                steps.iter().map(|step| time(&mut learner, data, step)).collect::<Result<_>>()?;
            let peers = timing.output.run_peer(&flags)?;
            for ((step, own), rounds) in steps.iter().zip(own).zip(&mut rounds) {
                let what = format!("{variant}'s {step} step");
                let peer = timing.output.of_peer(&peers, &what, |line| line.step == *step)?;
                let peer_memory = peer.and_then(|line| line.peak_gpu_mib);
                rounds.push(Round { own, peer: peer.map(|line| line.tokens_per_s), peer_memory });
            }
        }
        if timing.profile {
            for step in &steps {
                let (done, times) = device.profile(|| time(&mut learner, &data[..1], step));
                done?;
                if team.place().is_first() {
                    print_profile(variant, step, &times);
                }
            }
        }
        let ranks = team.place().size;
        let tokens = ranks * data.iter().map(PackedBatch::tgt_tokens).sum::<usize>();
        let is_first = team.place().is_first();
        for ((step, rounds), peak) in steps.iter().zip(&rounds).zip(peaks) {
            let of = |value: &dyn Fn(&Round) -> f64| median(rounds.iter().map(value).collect());
            let seconds = of(&|round| round.own.seconds);
            let with_peer = timing.output.peer.is_some();
            let rate = |round: &Round| tokens as f64 / round.own.seconds;
            let best = |value: &dyn Fn(&Round) -> f64| rounds.iter().map(value).fold(f64::NAN, f64::max);
            let measurement = Measurement {
                variant,
                step,
                device: name,
                threads: self.threads,
                rounds: timing.rounds,
                ms_per_update: 1e3 * seconds / data.len() as f64,
                tokens_per_s: tokens as f64 / seconds,
                tokens_per_update: tokens as f64 / data.len() as f64,
                product_share: product_peak.map(|_| of(&|round| round.own.product_share)),
                product_gflops: product_peak.map(|_| of(&|round| round.own.product_gflops)),
                product_peak_gflops: *product_peak,
                // Forward pass, gradient of the input, gradient of the weight; a G step skips the last.
                tflop_per_update: tflop * if *step == "G" { 2.0 } else { 3.0 },
                peak_memory_gib: gib(peak),
                memory_gib: gib(device.memory_held()),
                peer_tokens_per_s: with_peer.then(|| of(&|round| round.peer.unwrap_or(f64::NAN))),
                peer_peak_memory_gib: rounds
                    .iter()
                    .find_map(|round| round.peer_memory)
                    .map(|mib| mib / 1024.0),
                ratio_to_peer: with_peer.then(|| of(&|round| rate(round) / round.peer.unwrap_or(f64::NAN))),
                ratio_of_best: with_peer.then(|| best(&rate) / best(&|round| round.peer.unwrap_or(f64::NAN))),
            };
            if is_first {
                report(&measurement, self.tokens, timing.output.json);
            }
        }
        for kind in kinds.iter().filter(|kind| timing.overlap && **kind != StepKind::G) {
            let (again, overlap) = overlap::measure(learner, team, data, *kind, timing.rounds)?;
            learner = again;
            if is_first {
                overlap.report(variant, timing.ddp_dtype, timing.output.json);
            }
        }
        Ok(())
    }
}

/// Our own updates of one round.
pub(super) struct Timed {
    pub(super) seconds: f64,
    product_share: f64,
    product_gflops: f64,
}

/// One round: our time, and the tokens per second and peak memory in MiB of the peer right after it.
struct Round {
    own: Timed,
    peer: Option<f64>,
    peer_memory: Option<f64>,
}

/// Times one step on every batch. Several processes take the same batch each, so that all have the same work.
pub(super) fn time<M: Model>(learner: &mut Learner<M>, data: &[PackedBatch], step: &str) -> Result<Timed> {
    gemm::meter_reset();
    let ranks = learner.team().place().size;
    let shares: Vec<Share> = data.iter().map(|batch| share(batch, ranks)).collect();
    learner.team().host().barrier()?;
    let begun = Instant::now();
    let mut last = None;
    for batch in &shares {
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

/// An update in which every process has this batch.
fn share(batch: &PackedBatch, ranks: usize) -> Share {
    let own = Share::whole(vec![batch.clone()]);
    let times = ranks as u64;
    Share {
        batches: ranks,
        sentences: times * own.sentences,
        source_tokens: times * own.source_tokens,
        target_tokens: times * own.target_tokens,
        ..own
    }
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

/// Median of the values.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// GFLOP/s of a product of 2,048 cubed, best of five.
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
