//! Device that a command computes on.

use anyhow::{Context, Result, bail};
use mae_engine::{Device, Numbers};

/// Flags of every command that computes.
#[derive(Clone, Debug, clap::Args)]
pub struct DeviceArgs {
    /// Device: `cpu`, `cuda`, `cuda:1` (by number) or `auto` (the first GPU, or the CPU if no GPU can be used).
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: String,
    /// Number type on a GPU: bf16 (with f32 sums and master weights) or f32, which is slower.
    #[arg(long, default_value = "bf16", value_name = "TYPE")]
    precision: Precision,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Precision {
    Bf16,
    F32,
}

impl DeviceArgs {
    /// Opens the device. With `auto`, a note on standard error says why no GPU can be used.
    pub fn open(&self) -> Result<Device> {
        let numbers = match self.precision {
            Precision::Bf16 => Numbers::Bf16,
            Precision::F32 => Numbers::F32,
        };
        match self.device.as_str() {
            "cpu" => Ok(Device::cpu()),
            "auto" => Ok(Device::cuda(0, numbers).unwrap_or_else(|error| {
                eprintln!("mae: {error}; using the CPU");
                Device::cpu()
            })),
            name => {
                let number = match name.split_once(':') {
                    None if name == "cuda" => "0",
                    Some(("cuda", number)) => number,
                    _ => bail!("--device {name}: expected auto, cpu, cuda or cuda:NUMBER"),
                };
                let ordinal =
                    number.parse().with_context(|| format!("--device {name}: {number} is not a number"))?;
                Device::cuda(ordinal, numbers).with_context(|| format!("--device {name}"))
            }
        }
    }
}
