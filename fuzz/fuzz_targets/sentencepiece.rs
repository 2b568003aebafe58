//! SentencePiece models: what is accepted can cut text and join it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mae_data::SentencePiece;

fuzz_target!(|bytes: &[u8]| {
    let Ok(model) = SentencePiece::parse(bytes) else { return };
    let line = "Ein Haus, 30 Tage: äöü\t日本 \u{a0}x <s> ▁ｆ";
    let pieces: Vec<String> = model.encode(line).into_iter().map(|piece| piece.text).collect();
    model.decode(&pieces);
    let line = model.segment_line(line);
    model.join(&line);
    model.segment_line("");
});
