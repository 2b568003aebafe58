//! `mae bench decode`: tokens per second of greedy and beam search, beside a peer with the same weights.

mod cell;
mod peer_files;

use std::time::Instant;

use anyhow::{Result, ensure};
use mae_data::{MemoryDataset, PackedBatch, Sentences};
use mae_engine::{ComputeType, Device, Rng};
use mae_model::{ExpertMode, Translator};
use mae_translate::{SearchOptions, Searcher};

use super::peer::{Flags, Output};
use super::shapes::{Shape, random_sentence};
use crate::device::DeviceArgs;
use cell::{Cell, Own, processor};
use peer_files::PeerFiles;

const EXAMPLES: &str = "\
Examples:
  Measure with two threads, beside CTranslate2 with the same weights (from the repository's root,
  with a python3 that has the package ctranslate2):
    mae bench decode --device cpu --threads 2 --rounds 3 --peer

  Measure one number type and one size of batches, beside PyTorch:
    mae bench decode --compute-types f32 --batches 32 \\
        --peer 'python3 tools/oracle/decode_bench.py'";

/// Program that is the peer where none is named.
const CT2: &str = "python3 tools/ct2_bench.py";

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
    /// Number of sentences.
    #[arg(long, default_value_t = 32)]
    sentences: usize,
    /// Sentences in a batch [default: all of them; on a CPU also 1, with a quarter of the sentences].
    #[arg(long, value_delimiter = ',', value_name = "N,…")]
    batches: Vec<usize>,
    /// Number types to measure on a CPU.
    #[arg(long, value_delimiter = ',', default_value = "f32,int8", value_name = "TYPES")]
    compute_types: Vec<ComputeType>,
    /// Tokens per source sentence and per translation.
    #[arg(long, default_value_t = 25)]
    length: usize,
    /// Number of rounds, in which we and the peer take turns; our systems take turns batch by batch, and every other
    /// round begins with the last one. The output has medians over the rounds; what a system costs beside the first one
    /// is the mean of both orders.
    #[arg(long, default_value_t = 1)]
    rounds: usize,
    #[command(flatten)]
    device: DeviceArgs,
    #[command(flatten)]
    shape: Shape,
    /// Command of a peer that takes the same flags and prints JSON lines [default without a value: CTranslate2, by
    /// tools/ct2_bench.py].
    #[arg(long, value_name = "COMMAND", num_args = 0..=1, default_missing_value = CT2)]
    peer: Option<String>,
    /// Print one JSON object per measurement.
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    ensure!(args.sentences > 0 && args.length > 1, "--sentences must be above 0 and --length above 1");
    ensure!(args.rounds > 0 && !args.batches.contains(&0), "--rounds and --batches must be above 0");
    args.shape.check()?;
    let device = args.device.open()?;
    let processor = processor();
    if !args.json {
        println!("{processor}\n{}", device.describe());
    }
    let output = Output { peer: args.peer.clone(), json: args.json };
    let stream = Rng::new(2, 0).stream(0);
    let sources: Vec<Vec<u32>> = (0..args.sentences)
        .map(|i| random_sentence(stream, i as u32, 0, args.length, args.shape.src_vocab))
        .collect();
    let files = match &args.peer {
        Some(_) => Some(PeerFiles::write(&args.shape, &sources)?),
        None => None,
    };
    let mut cells = args.cells(&device);
    for round in 0..args.rounds {
        // What is loaded first can lie better in memory: on some machines by several percent.
        let mut order: Vec<usize> = (0..args.variants.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for compute in args.compute_types_on(&device) {
            let load = |&number: &usize| Ok((number, args.model(&args.variants[number], &device, compute)?));
            let models: Vec<(usize, Translator)> = order.iter().map(load).collect::<Result<_>>()?;
            for cell in cells.iter_mut().filter(|cell| cell.compute == compute) {
                args.measure(&models, &sources, cell)?;
            }
        }
        if let Some(files) = &files {
            let lines = output.run_peer(&args.peer_flags(files))?;
            for cell in &mut cells {
                let what = format!("beam {} in batches of {}, {}", cell.beam, cell.batch, cell.compute);
                let line = output.of_peer(&lines, &what, |line| cell.is_measured_by(line))?;
                cell.peer.extend(line.map(|line| line.tokens_per_s));
            }
        }
    }
    for number in 0..args.variants.len() {
        for cell in &cells {
            let measured = cell.measured(number, &args.variants, args.length, &processor);
            match args.json {
                true => println!("{}", serde_json::to_string(&measured)?),
                false => println!("{measured}"),
            }
        }
    }
    Ok(())
}

impl Args {
    /// Number types that are measured; a GPU has that of `--precision`.
    fn compute_types_on(&self, device: &Device) -> Vec<ComputeType> {
        if device.is_gpu() { vec![ComputeType::Auto] } else { self.compute_types.clone() }
    }

    fn cells(&self, device: &Device) -> Vec<Cell> {
        let batches = match (&self.batches[..], device.is_gpu()) {
            ([], true) => vec![self.sentences],
            ([], false) if self.sentences == 1 => vec![1],
            ([], false) => vec![1, self.sentences],
            (given, _) => given.to_vec(),
        };
        let mut cells = Vec::new();
        for compute in self.compute_types_on(device) {
            for &batch in &batches {
                for &beam in &self.beams {
                    let own = vec![Own::default(); self.variants.len()];
                    let on_gpu = device.is_gpu();
                    cells.push(Cell { on_gpu, compute, batch, beam, own, peer: Vec::new() });
                }
            }
        }
        cells
    }

    /// A model with random weights, the same in all number types.
    fn model(&self, variant: &str, device: &Device, compute: ComputeType) -> Result<Translator> {
        let config = self.shape.config(variant)?.model;
        let positions = config.max_positions;
        ensure!(self.length <= positions, "--length {}: the model has {positions} positions", self.length);
        let types = [self.shape.src_vocab, self.shape.tgt_vocab];
        Ok(Translator::new(&config, types, &device.holding(compute)?, 1)?)
    }

    /// Measures models, each with the number of its variant. They take turns batch by batch, so that what else the machine
    /// does slows all of them alike.
    fn measure(&self, models: &[(usize, Translator)], sources: &[Vec<u32>], cell: &mut Cell) -> Result<()> {
        // The end mark is neither allowed earlier nor left out later: every translation has the same length.
        let (min_len, max_len_b) = (self.length - 1, self.length - 1);
        let options = SearchOptions { beam: cell.beam, min_len, max_len_b, ..SearchOptions::default() };
        let searchers = models
            .iter()
            .map(|(number, model)| Ok((*number, Searcher::new(model, &options, &ExpertMode::Mix)?)));
        let mut searchers = searchers.collect::<Result<Vec<_>>>()?;
        let count = if cell.batch == 1 { sources.len().div_ceil(4) } else { sources.len() };
        let batches: Vec<PackedBatch> = sources[..count].chunks(cell.batch).map(pack).collect();
        for (_, searcher) in &mut searchers {
            // Models are new in every round. A GPU runs steps of a kind once op by op and captures them the second time.
            (0..if cell.on_gpu { 2 } else { 1 }).try_for_each(|_| searcher.search(&batches[0]).map(drop))?;
        }
        let (mut tokens, mut seconds) = (vec![0; models.len()], vec![Vec::new(); models.len()]);
        for batch in &batches {
            for (number, searcher) in &mut searchers {
                let begun = Instant::now();
                let found = searcher.search(batch)?;
                seconds[*number].push(begun.elapsed().as_secs_f64());
                let best = found.iter().filter_map(|best| best.first());
                tokens[*number] += best.map(|best| best.tokens.len()).sum::<usize>();
            }
        }
        for (own, (tokens, seconds)) in cell.own.iter_mut().zip(tokens.into_iter().zip(seconds)) {
            own.rates.push(tokens as f64 / seconds.iter().sum::<f64>());
            own.seconds.push(seconds);
        }
        Ok(())
    }

    fn peer_flags(&self, files: &PeerFiles) -> Flags {
        let list = |values: &[usize]| values.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        let types: Vec<String> = self.compute_types.iter().map(ComputeType::to_string).collect();
        let batches = if self.batches.is_empty() { vec![1, self.sentences] } else { self.batches.clone() };
        let mut flags = self.shape.flags();
        flags.extend([
            ("variant", "base".to_owned()),
            ("beams", list(&self.beams)),
            ("batches", list(&batches)),
            ("compute-types", types.join(",")),
            ("sentences", self.sentences.to_string()),
            ("length", self.length.to_string()),
            ("src-lengths", self.length.to_string()),
            ("threads", rayon::current_num_threads().to_string()),
        ]);
        flags.extend(files.flags());
        flags
    }
}

/// A batch of source sentences.
fn pack(sources: &[Vec<u32>]) -> PackedBatch {
    let sentences: MemoryDataset = sources.iter().cloned().collect();
    let ids: Vec<u32> = (0..sources.len() as u32).collect();
    PackedBatch::from_sources(&Sentences::Memory(sentences), &ids)
}
