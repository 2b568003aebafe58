//! BPE codes: no panic, and whatever the merges are, pieces join to the text they were cut from.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mae_data::Bpe;
use mae_data::bpe::{self, Codes};

const TEXT: &str = "ein Haus der Tage, äöü 日本 a b ab aab";

fuzz_target!(|bytes: &[u8]| {
    let Ok(codes) = Codes::load(mae_fuzz::file("bpe.codes", bytes)) else { return };
    let pieces = Bpe::new(&codes).segment_line(TEXT);
    assert_eq!(bpe::join(&pieces), TEXT);
    let copy = mae_fuzz::folder().join("copy.codes");
    codes.save(&copy).expect("codes can be written");
    Codes::load(&copy).ok();
});
