//! model.bin of CTranslate2: variables of what is accepted can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mae_exchange::ct2::Variables;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = Variables::parse(bytes) else { return };
    for tensor in file.tensors.values() {
        assert_eq!(tensor.read().len(), tensor.len());
    }
});
