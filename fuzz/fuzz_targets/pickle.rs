//! Pickles: any bytes are an error or inert data, whose parts can be asked for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mae_exchange::pickle::{Limits, read};

fuzz_target!(|bytes: &[u8]| {
    let Ok((pickle, length)) = read(bytes, Limits::default()) else { return };
    assert!(length <= bytes.len());
    for id in 0..pickle.values().len() {
        pickle.call(id);
        pickle.sizes(id);
        pickle.get(id, "model");
    }
});
