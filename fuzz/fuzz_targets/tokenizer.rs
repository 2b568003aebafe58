//! `tokenizer.json`: what is accepted can cut text and join it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mae_data::Tokenizer;

fuzz_target!(|json: &str| {
    let Ok(tokenizer) = Tokenizer::parse(json) else { return };
    let pieces = tokenizer.segment_line("Ein Haus, 30 Tage: äöü\t日本 \u{a0}x");
    tokenizer.join(&pieces);
    tokenizer.segment_line("");
});
