//! Shows which experts the gates of a model prefer for a sentence:
//! `cargo run --release -p mae --example gates [MODEL [LINE]]`.

mod common;

use std::error::Error;

use mae::{Device, ExpertChoice, Gates, TranslateOptions, Translator};

fn main() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let device = Device::auto();
    let translator = Translator::load(common::model(place.path(), &device)?, &device)?;
    let line = std::env::args().nth(2).unwrap_or_else(|| "four two six".into());

    let options = TranslateOptions::default().with_gates();
    let found = translator.translate(&[&line], &options)?.remove(0);
    println!("{line} -> {}", found.text());
    println!("encoder, a gate for the whole sentence:");
    found.encoder_gates().into_iter().flatten().for_each(|gates| show(gates, &["(sentence)"]));
    println!("decoder, a gate for each token:");
    let pieces: Vec<&str> = found.best().tokens.iter().map(|token| token.piece.as_str()).collect();
    found.best().gates.iter().flatten().for_each(|gates| show(gates, &pieces));

    for experts in [ExpertChoice::Argmax, ExpertChoice::Number(0)] {
        let options = TranslateOptions { experts, ..TranslateOptions::default() };
        println!("with expert {experts}: {}", translator.translate(&[&line], &options)?[0].text());
    }
    Ok(())
}

fn show(gates: &Gates, pieces: &[&str]) {
    println!("  {:?} attention of layer {}", gates.kind, gates.layer());
    for (piece, gate) in pieces.iter().zip(gates.rows.rows()) {
        let shares: Vec<String> = gate.iter().map(|share| format!("{:3.0} %", 100.0 * share)).collect();
        println!("    {piece:<12} {}", shares.join(" "));
    }
}
