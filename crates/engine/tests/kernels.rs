//! Every kernel file compiles, for the oldest GPUs that can be used and for the newest we know, in both number types.
//! No GPU is needed, only NVRTC; where it is missing the test says so, and fails if `MAE_REQUIRE_NVRTC` is 1.

use std::io::Write;

use mae_engine::cuda::compile::{AttentionKind, Unit, compiler_version};
use mae_engine::{Device, Numbers};
use rayon::prelude::*;

/// Compute capabilities: A100, H100, and a recent one for desks.
const CAPABILITIES: [[i32; 2]; 3] = [[8, 0], [9, 0], [12, 0]];

#[test]
fn every_kernel_file_compiles() {
    let Some([major, minor]) = compiler_version() else {
        let required = std::env::var_os("MAE_REQUIRE_NVRTC").is_some_and(|value| value == "1");
        assert!(
            !required,
            "MAE_REQUIRE_NVRTC is 1 and libnvrtc was not found; MAE_CUDA_LIBS names its folder"
        );
        // Not by `eprintln!`, which tests that pass keep to themselves.
        let text =
            b"NOT RUN: libnvrtc was not found, no kernel was compiled; MAE_CUDA_LIBS names its folder\n";
        return std::io::stderr().write_all(text).unwrap_or_default();
    };
    let (begin, jobs) = (std::time::Instant::now(), jobs());
    let compile = |(unit, bf16, capability): &(Unit, bool, [i32; 2])| {
        let fault = match unit.check(*bf16, *capability) {
            Err(error) => error.to_string(),
            // Products of whole tiles that wait for each other, for want of registers, say.
            Ok(log) => log.lines().find(|line| line.contains("serialized"))?.to_owned(),
        };
        Some(format!("{unit:?} for {capability:?}, BF16 = {bf16}: {fault}"))
    };
    let failures: Vec<String> = jobs.par_iter().with_max_len(1).filter_map(compile).collect();
    let text = failures.join("\n");
    assert!(failures.is_empty(), "{} of {} do not compile:\n{text}", failures.len(), jobs.len());
    let seconds = begin.elapsed().as_secs_f64();
    println!("NVRTC {major}.{minor}: {} versions of the kernel files in {seconds:.1} s", jobs.len());
}

/// Every file for every capability and number type. In f32, attention emulates tensor cores by straight code, over
/// which NVRTC takes up to a minute for wide heads: there, a few versions for narrow ones must do.
fn jobs() -> Vec<(Unit, bool, [i32; 2])> {
    let kinds =
        [(false, false, 0, false), (false, true, 1, false), (true, true, 2, false), (true, true, 2, true)];
    let kinds = kinds.map(|(causal, dropout, weights, long)| AttentionKind {
        head: 5,
        causal,
        dropout,
        weights,
        long,
    });
    let narrow = [Unit::attention_forward, Unit::attention_backward].map(|unit| kinds.map(unit));
    let plain = Unit::every_file(false).into_iter().filter(|unit| !unit.is_attention());
    let f32: Vec<Unit> = narrow.into_iter().flatten().chain(plain).collect();
    let mut jobs = Vec::new();
    for capability in CAPABILITIES {
        jobs.extend(Unit::every_file(true).into_iter().map(|unit| (unit, true, capability)));
        jobs.extend(f32.iter().map(|unit| (unit.clone(), false, capability)));
    }
    jobs
}

/// Whatever is missing here, a GPU that cannot be opened is a sentence, and no panic.
#[test]
fn a_missing_gpu_is_one_sentence() {
    for numbers in [Numbers::Bf16, Numbers::F32] {
        let error = Device::cuda(9_999, numbers).expect_err("no machine has ten thousand GPUs").to_string();
        assert!(error.starts_with("no GPU can be used: ") && !error.contains('\n'), "{error}");
    }
}
