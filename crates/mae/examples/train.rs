//! Trains a small mixture on a made-up corpus, and scores what it translates: `cargo run --release -p mae
//! --example train`.

mod common;

use std::error::Error;

use mae::train::log::Event;
use mae::{Device, TranslateOptions, Translator, metrics};

fn main() -> Result<(), Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let (device, data) = (Device::auto(), common::corpus(place.path())?);

    // Every closure that takes an event is an observer.
    let mut observer = |event: &Event| match event {
        Event::Train(line) => println!("update {}: {:.2} bits per token", line.num_updates, line.loss),
        Event::Valid(found) => println!(
            "epoch {}, development set: {:.2} bits per token, BLEU {:.1}",
            found.epoch,
            found.loss,
            found.bleu.unwrap_or_default()
        ),
        _ => {}
    };
    let summary = common::run(&data, place.path(), &device)?.observer(&mut observer).train()?;
    println!("{} updates of {} parameters", summary.progress.updates, summary.trained_parameters);

    let translator = Translator::load(&summary.model, &device)?;
    let read = |name: &str| std::fs::read_to_string(place.path().join(name));
    let (sources, references) = (read("valid.en")?, read("valid.de")?);
    let sources: Vec<&str> = sources.lines().collect();
    let references: Vec<&str> = references.lines().collect();
    let found = translator.translate(&sources, &TranslateOptions::default())?;
    let texts: Vec<&str> = found.iter().map(|translation| translation.text()).collect();
    println!(
        "BLEU {:.1}, chrF {:.1}",
        metrics::bleu(&texts, &references)?,
        metrics::chrf(&texts, &references)?
    );
    Ok(())
}
