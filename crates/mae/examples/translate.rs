//! Translates lines: `cargo run --release -p mae --example translate [MODEL [LINE…]]`.

mod common;

use std::error::Error;

use mae::{Device, TranslateOptions, Translator};

fn main() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let device = Device::auto();
    println!("computing on {device:?}");
    let translator = Translator::load(common::model(place.path(), &device)?, &device)?;

    let given: Vec<String> = std::env::args().skip(2).collect();
    let lines = if given.is_empty() { vec!["one two three".into(), "seven eleven".into()] } else { given };
    for (line, found) in
        lines.iter().zip(translator.translate(&lines, &TranslateOptions::default().nbest(2))?)
    {
        println!("{line} ({} unknown words)", found.source.unknown);
        for hypothesis in found.nbest() {
            let pieces: Vec<&str> = hypothesis.tokens.iter().map(|token| token.piece.as_str()).collect();
            println!("  {:6.2} nats  {}  {pieces:?}", hypothesis.score, hypothesis.text);
        }
    }
    Ok(())
}
