//! Device that a command computes on.

use std::path::Path;

use anyhow::{Context, Result, bail};
use mae_engine::cuda::compile::cache_folder;
use mae_engine::{ComputeType, Device, Numbers};
use mae_model::folder::for_inference;

/// `1 thread`, `2 threads`, …
pub fn threads_in_words(count: usize) -> String {
    if count == 1 { "1 thread".to_owned() } else { format!("{count} threads") }
}

/// Flags of every command that computes.
#[derive(Clone, Debug, clap::Args)]
pub struct DeviceArgs {
    /// Device: `cpu`, `cuda`, `cuda:1` (by number) or `auto` (the first GPU, or the CPU if no GPU can be used) [default:
    /// the variable MAE_DEVICE, else auto].
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
    /// Number type: bf16 (with f32 sums and master weights) or f32, which is slower. On a CPU, bf16 is for training, on
    /// processors with AMX or AVX-512 BF16 [default: bf16 on a GPU, f32 on a CPU].
    #[arg(long, value_name = "TYPE")]
    precision: Option<Precision>,
}

/// Flags of commands that compute with a trained model.
#[derive(Clone, Debug, clap::Args)]
pub struct InferenceArgs {
    #[command(flatten)]
    device: DeviceArgs,
    /// Number type on a CPU: f32; bf16 (weights of 16 bits); int8 (products of 8-bit integers); auto: that of the model
    /// folder, which is f32 unless `mae quantize` wrote it.
    #[arg(long, default_value_t, value_name = "TYPE")]
    compute_type: ComputeType,
}

impl InferenceArgs {
    /// Opens the device for inference with the model in `folder`.
    pub fn open(&self, folder: &Path) -> Result<Device> {
        Ok(for_inference(&self.device()?, folder)?)
    }

    /// Opens the device for models in the number type.
    pub fn device(&self) -> Result<Device> {
        let device = self.device.open()?;
        let named = || format!("--compute-type {} is for CPUs (--device cpu)", self.compute_type);
        device.holding(self.compute_type).with_context(named)
    }
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Precision {
    Bf16,
    F32,
}

impl DeviceArgs {
    /// Opens the device. With `auto`, a note on standard error says why no GPU can be used, once on each machine.
    pub fn open(&self) -> Result<Device> {
        self.open_for(0)
    }

    /// The same for one of several processes on this machine: each takes the GPU of its number, unless one is named.
    pub fn open_for(&self, local_rank: usize) -> Result<Device> {
        let numbers = match self.precision {
            Some(Precision::F32) => Numbers::F32,
            Some(Precision::Bf16) | None => Numbers::Bf16,
        };
        let cpu = || match self.precision {
            Some(Precision::Bf16) => Device::cpu_with(Numbers::Bf16).context("--precision bf16"),
            Some(Precision::F32) | None => Ok(Device::cpu()),
        };
        let (flag, wanted) = match (&self.device, std::env::var("MAE_DEVICE")) {
            (Some(device), _) => ("--device ", device.clone()),
            (None, Ok(device)) if !device.is_empty() => ("MAE_DEVICE=", device),
            _ => ("--device ", "auto".to_owned()),
        };
        match wanted.as_str() {
            "cpu" => cpu(),
            "auto" => Device::cuda(own_gpu(local_rank), numbers).or_else(|error| {
                note_once(&format!("{error}; using the CPU"));
                cpu()
            }),
            name => {
                let own = own_gpu(local_rank).to_string();
                let number = match name.split_once(':') {
                    None if name == "cuda" => own.as_str(),
                    Some(("cuda", number)) => number,
                    _ => bail!("{flag}{name}: expected auto, cpu, cuda or cuda:NUMBER"),
                };
                let ordinal =
                    number.parse().with_context(|| format!("{flag}{name}: {number} is not a number"))?;
                Device::cuda(ordinal, numbers).with_context(|| format!("{flag}{name}"))
            }
        }
    }
}

/// The GPU of a process; with more processes than GPUs they share them.
fn own_gpu(local_rank: usize) -> usize {
    match local_rank {
        0 => 0,
        rank => mae_engine::cuda::gpus().map_or(0, |gpus| rank % gpus.len().max(1)),
    }
}

/// Prints a note, unless it was printed before on this machine: the cache folder remembers the last one.
fn note_once(note: &str) {
    let memory = cache_folder().map(|folder| folder.join("device-note"));
    if memory.as_ref().and_then(|file| std::fs::read_to_string(file).ok()).as_deref() == Some(note) {
        return;
    }
    let is_remembered = memory.is_some_and(|file| {
        file.parent().map(std::fs::create_dir_all);
        std::fs::write(file, note).is_ok()
    });
    // Without a cache folder the note comes again.
    let once = if is_remembered { "; this note is not repeated" } else { "" };
    eprintln!("mae: {note} (MAE_DEVICE=cpu or --device cpu chooses it{once})");
}
