//! `.idx` and `.bin`: once opened, every sentence can be read. The first two bytes say how many belong to the index.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mae_data::IndexedDataset;

fuzz_target!(|bytes: &[u8]| {
    let Some((size, rest)) = bytes.split_first_chunk::<2>() else { return };
    let (idx, bin) = rest.split_at(rest.len().min(u16::from_le_bytes(*size).into()));
    let prefix = mae_fuzz::file("set.idx", idx).with_extension("");
    mae_fuzz::file("set.bin", bin);
    let Ok(dataset) = IndexedDataset::open(&prefix) else { return };
    let tokens: usize = (0..dataset.len()).map(|i| dataset.get(i).len()).sum();
    assert_eq!(tokens as u64, dataset.tokens());
    assert!(dataset.find_wrong(|_| None::<()>).is_none());
});
