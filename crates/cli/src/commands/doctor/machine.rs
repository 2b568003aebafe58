//! Description of the machine: libraries, GPUs, speed.

use std::path::PathBuf;
use std::time::Instant;

use mae_engine::cpu::gemm::{instructions, kernel_name};
use mae_engine::cuda::{GpuInfo, compile, gpus, library};
use mae_engine::suite::speed;
use mae_engine::{Device, Numbers, Result};
use serde::Serialize;

use crate::device::threads_in_words;
use crate::exit::ExitCode;

/// Everything that the command prints.
#[derive(Serialize)]
struct Machine {
    cpu: Cpu,
    libraries: Vec<Library>,
    /// Newest CUDA version that the driver supports.
    driver: Option<String>,
    /// Version of NVRTC.
    compiler: Option<String>,
    cache: Option<PathBuf>,
    gpus: Vec<Gpu>,
    /// Measurements of the first GPU.
    measured: Option<Measured>,
    /// Reason why no GPU can be used, if none can.
    no_gpu: Option<String>,
}

#[derive(Serialize)]
struct Cpu {
    threads: usize,
    /// Name of the implementation of matrix products.
    kernel: &'static str,
    /// The instructions that it uses.
    instructions: &'static str,
    gflop_per_s: f64,
}

#[derive(Serialize)]
struct Library {
    name: &'static str,
    purpose: &'static str,
    path: Option<PathBuf>,
}

#[derive(Serialize)]
struct Gpu {
    number: usize,
    name: String,
    capability: String,
    memory_bytes: usize,
}

#[derive(Serialize)]
struct Measured {
    kernels: usize,
    kernel_seconds: f64,
    /// Relative error of a product, ‖gpu − cpu‖/‖cpu‖.
    bf16_error: f64,
    f32_error: f64,
    /// Bytes read and written.
    copy_gb_per_s: f64,
    product_size: usize,
    bf16_tflop_per_s: f64,
}

/// Inspects the machine and prints the result.
pub fn run(json: bool) -> anyhow::Result<ExitCode> {
    let machine = inspect();
    if json {
        println!("{}", serde_json::to_string_pretty(&machine)?);
    } else {
        print(&machine);
    }
    // A GPU that cannot be used is a failure; no GPU at all is not.
    let broken = machine.measured.is_none() && !machine.gpus.is_empty();
    Ok(if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn inspect() -> Machine {
    let found: Vec<GpuInfo> = gpus().unwrap_or_default();
    let (measured, no_gpu) = match measure() {
        Ok(measured) => (Some(measured), None),
        Err(error) => (None, Some(error.to_string())),
    };
    let version = |[major, minor]: [i32; 2]| format!("{major}.{minor}");
    let library = |library: &library::Library| Library {
        name: library.name,
        purpose: library.purpose,
        path: library.path.clone(),
    };
    Machine {
        cpu: Cpu {
            threads: rayon::current_num_threads(),
            kernel: kernel_name(),
            instructions: instructions(),
            gflop_per_s: speed::cpu_products() / 1e9,
        },
        libraries: library::libraries().iter().map(library).collect(),
        driver: found.first().map(|gpu| version(gpu.driver)),
        compiler: compile::compiler_version().map(version),
        cache: compile::cache_folder(),
        gpus: found
            .into_iter()
            .map(|gpu| Gpu {
                number: gpu.ordinal,
                name: gpu.name,
                capability: version(gpu.capability),
                memory_bytes: gpu.memory,
            })
            .collect(),
        measured,
        no_gpu,
    }
}

fn measure() -> Result<Measured> {
    let device = Device::cuda(0, Numbers::Bf16)?;
    let begin = Instant::now();
    let kernels = device.compile_kernels()?;
    let kernel_seconds = begin.elapsed().as_secs_f64();
    let bf16_error = speed::product_error(&device, Numbers::Bf16)?;
    let f32_error = speed::product_error(&Device::cuda(0, Numbers::F32)?, Numbers::F32)?;
    let copy_gb_per_s = speed::copies(&device)? / 1e9;
    let (product_size, rate) = speed::products(&device)?;
    let bf16_tflop_per_s = rate / 1e12;
    Ok(Measured {
        kernels,
        kernel_seconds,
        bf16_error,
        f32_error,
        copy_gb_per_s,
        product_size,
        bf16_tflop_per_s,
    })
}

fn print(machine: &Machine) {
    let (cpu, line) = (&machine.cpu, |what: &str, text: String| println!("{what:18} {text}"));
    let products = format!("products with {}", cpu.instructions);
    let threads = threads_in_words(cpu.threads);
    line("CPU", format!("{threads}, {products}, {:.0} GFLOP/s", cpu.gflop_per_s));
    for Library { name, purpose, path } in &machine.libraries {
        let place = path.as_ref().map_or("not found".into(), |path| path.display().to_string());
        line(name, format!("{place} ({purpose})"));
    }
    let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "none".into());
    line("driver", machine.driver.as_ref().map_or("none".into(), |version| format!("for CUDA {version}")));
    line("NVRTC", or_none(&machine.compiler));
    let cache = machine.cache.as_ref().map_or("none".into(), |path| path.display().to_string());
    line("kernel cache", cache);
    for Gpu { number, name, capability, memory_bytes } in &machine.gpus {
        let memory = *memory_bytes as f64 / (1u64 << 30) as f64;
        line(&format!("GPU {number}"), format!("{name}, compute capability {capability}, {memory:.1} GiB"));
    }
    if let Some(m) = &machine.measured {
        line("kernels", format!("{} versions compiled or read in {:.1} s", m.kernels, m.kernel_seconds));
        line("products, error", format!("bf16 {:.1e}, f32 {:.1e} (of the CPU's)", m.bf16_error, m.f32_error));
        line("copies", format!("{:.0} GB/s, read and written", m.copy_gb_per_s));
        let size = m.product_size;
        line(
            "products",
            format!("{:.0} TFLOP/s, bf16, [{size}, {size}]·[{size}, {size}]", m.bf16_tflop_per_s),
        );
    }
    if let Some(reason) = &machine.no_gpu {
        println!("{reason}");
    }
}
