//! Files of torch.save: tensors of what is accepted can be read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mae_exchange::torch::Checkpoint;

fuzz_target!(|bytes: &[u8]| {
    let Ok(file) = Checkpoint::parse(bytes) else { return };
    let root = file.pickle().root;
    for id in file.pickle().get(root, "model").into_iter().chain([root]) {
        for tensor in file.tensors(id).unwrap_or_default().values() {
            assert_eq!(tensor.read().len(), tensor.len());
        }
    }
});
