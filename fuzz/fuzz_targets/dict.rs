//! `dict.txt`: no panic, and what was read is written and read again as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mae_data::Vocab;
use mae_data::vocab::SPECIALS;

fuzz_target!(|bytes: &[u8]| {
    let Ok(vocab) = Vocab::load(mae_fuzz::file("dict.txt", bytes)) else { return };
    let copy = mae_fuzz::folder().join("copy.txt");
    vocab.save(&copy).expect("a dictionary can be written");
    // A first token that begins with a byte-order mark, or with what zstd files begin with, is not read as text.
    let first = vocab.symbol(SPECIALS.len() as u32);
    if !first.starts_with('\u{feff}') && first.get(1..4) != Some("*M\x18") {
        assert!(Vocab::load(&copy).expect("our own file can be read") == vocab);
    }
    vocab.encode_line("the <unk> </s> house");
});
