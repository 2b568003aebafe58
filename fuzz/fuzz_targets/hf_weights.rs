//! Safetensors of Hugging Face: tensors of all number formats can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mae_exchange::import::hf::safetensors;

fuzz_target!(|bytes: &[u8]| {
    for tensor in safetensors(bytes).unwrap_or_default().values() {
        assert_eq!(tensor.read().len(), tensor.len());
    }
});
