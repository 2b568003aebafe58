//! Progress of a run, for people or as JSON lines.

use std::io::{self, Write};

use indicatif::ProgressBar;
use mae_model::folder::{Stored, stored};
use mae_train::artifacts::LAST;
use mae_train::log::Event;
use mae_train::memory::tokens_of;
use mae_train::run::{Observer, Progress, Start};

use super::pace::Pace;
use crate::progress;
use crate::training::stop::ClosedPipe;

/// Stream and form of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output, for people.
    Text,
    /// Standard output, as JSON lines.
    Json,
    /// Standard error, where standard output is for something else.
    Errors,
}

/// Shows the progress of a run.
pub struct Display {
    output: Output,
    bar: ProgressBar,
    gpu: bool,
    pace: Pace,
    /// Told when nobody reads the output any more.
    closed: Option<ClosedPipe>,
}

impl Display {
    /// Shows nothing yet.
    pub fn new(output: Output) -> Self {
        Self { output, bar: ProgressBar::hidden(), gpu: false, pace: Pace::default(), closed: None }
    }

    /// Ends the run, which is saved, when nobody reads the output any more. Without it the program ends.
    #[must_use]
    pub fn on_closed_pipe(mut self, closed: ClosedPipe) -> Self {
        self.closed = Some(closed);
        self
    }

    /// Prints a line on standard output.
    fn print(&self, text: &str) {
        let Some(closed) = &self.closed else { return println!("{text}") };
        match writeln!(io::stdout(), "{text}") {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => closed.stop(),
            // The usual message.
            Err(_) => println!("{text}"),
            Ok(()) => {}
        }
    }

    /// Prints a line on standard error. A run does not end because nobody reads its warnings.
    fn warn(&self, text: &str) {
        match &self.closed {
            None => eprintln!("{text}"),
            Some(_) => drop(writeln!(io::stderr(), "{text}")),
        }
    }

    /// Prints a line for people.
    pub fn say(&self, text: &str) {
        self.bar.suspend(|| match (self.output, &self.closed) {
            (Output::Text, _) => self.print(text),
            (Output::Errors, None) => eprintln!("{text}"),
            (Output::Errors, Some(closed)) => {
                if writeln!(io::stderr(), "{text}")
                    .is_err_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
                {
                    closed.stop();
                }
            }
            (Output::Json, _) => {}
        });
    }
}

/// The model, the data and the device of a run, for people.
fn introduction(start: &Start) -> String {
    let Start { architecture, system, heads, parameters, data, device, .. } = start;
    let experts = start.experts.map_or(String::new(), |experts| format!(" and {experts} experts"));
    let trained = match start.trained_parameters {
        trained if trained == *parameters => String::new(),
        trained => format!(" ({trained} of them trained)"),
    };
    let ranks = start.ranks.as_ref().map_or(String::new(), |ranks| format!("\n{ranks}; this is the first:"));
    format!(
        "{architecture}: {system}, {heads} heads{experts} per attention\n{parameters} parameters{trained}, {data}{ranks}\n\
         {device}"
    )
}

/// Epochs and updates, for people.
pub fn progress_in_words(Progress { epochs, updates }: Progress) -> String {
    let count = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    format!("{} ({})", count(updates, "update"), count(epochs, "whole epoch"))
}

impl Observer for Display {
    fn started(&mut self, start: &Start) {
        self.gpu = start.on_gpu;
        if !start.has_development_set {
            self.warn("mae: the data has no `valid` set: training without validation");
        }
        self.say(&introduction(start));
        if let (Some(progress), Output::Text) = (start.resumed, self.output) {
            let folder = start.folder.display();
            self.say(&format!("resumes from {folder}/{LAST}, after {}", progress_in_words(progress)));
        }
    }

    fn event(&mut self, event: &Event) {
        if self.output == Output::Json {
            if !matches!(event, Event::Update { .. }) {
                self.print(&serde_json::to_string(event).expect("events can be written as JSON"));
            }
            return;
        }
        match event {
            Event::Finetuned { from, new_gates } => {
                let gates = if *new_gates {
                    "; it has no gates: new ones begin without favourites, and the model computes what it did"
                } else {
                    ""
                };
                self.say(&format!("begins with the weights of {}{gates}", from.display()));
                if stored(from).is_ok_and(|stored| stored == Stored::Int8) {
                    self.warn(&format!(
                        "mae: the weights of {} were rounded to 8-bit integers (`mae quantize`); the model that they were made \
                         from is a better start",
                        from.display()
                    ));
                }
            }
            Event::Reset { what } => {
                self.warn(&format!("mae: this run resumes without its {}", what.join(", ")))
            }
            Event::Memory(used) => self.say(&format!(
                "the largest batch ({}) takes {:.2} GiB of {} memory, parameters and optimiser included",
                tokens_of((used.source_tokens, used.target_tokens)),
                used.bytes as f64 / (1u64 << 30) as f64,
                if self.gpu { "GPU" } else { "main" }
            )),
            Event::Changed { lines } => {
                self.warn(&format!(
                    "mae: this run resumes with other choices than before: {}",
                    lines.join("; ")
                ));
            }
            Event::Skipped { pairs, tokens, of_tokens, examples } => {
                let some: Vec<String> = examples.iter().map(u64::to_string).collect();
                let share = 100.0 * *tokens as f64 / *of_tokens as f64;
                self.warn(&format!(
                    "mae: {pairs} training pairs or blocks with {tokens} target tokens ({share:.1} % of all) are longer than \
                     train.max_tokens or model.max_positions and are left out (numbers {}, …); raise these, or cut a text \
                     with --sample-break-mode none",
                    some.join(", ")
                ));
            }
            Event::Epoch { epoch, updates, done } => {
                self.bar = progress::bar(*updates, &format!("epoch {epoch}"));
                self.bar.set_position(*done);
                self.pace.begin(*epoch, *updates, *done);
            }
            Event::Update { done } => {
                self.bar.set_position(*done);
                if let Some(text) = self.pace.update(*done, self.bar.is_hidden()) {
                    self.say(&text);
                }
            }
            Event::Train(line) => {
                self.pace.told();
                let text = format!(
                    "loss {:.3} bits/token, ppl {:.2}, lr {:.2e}, {:.0} target tokens/s",
                    line.loss, line.ppl, line.lr, line.wps
                );
                self.bar.set_message(text.clone());
                if self.bar.is_hidden() {
                    self.say(&format!("epoch {} update {}: {text}", line.epoch, line.num_updates));
                }
            }
            Event::Valid(valid) => {
                self.bar.finish_and_clear();
                let mut text = format!(
                    "epoch {} update {}: valid loss {:.3} bits/token, nll {:.3}, ppl {:.2}",
                    valid.epoch, valid.num_updates, valid.loss, valid.nll_loss, valid.ppl
                );
                if valid.skipped > 0 {
                    text.push_str(&format!(
                        " ({} tokens; {} pairs or blocks are too long and left out)",
                        valid.tokens, valid.skipped
                    ));
                }
                if let Some(bleu) = valid.bleu {
                    text.push_str(&format!(", BLEU {bleu:.2}"));
                }
                if let Some(entropy) = valid.gate_entropy {
                    text.push_str(&format!(", gate entropy {entropy:.3} nats"));
                }
                if let Some(weights) = valid.head_weights {
                    text.push_str(&format!(", head weights {:.3} ± {:.3}", weights.mean, weights.deviation));
                }
                if valid.is_best {
                    text.push_str(" (best so far)");
                }
                self.say(&text);
            }
            // The error that follows reports it.
            Event::NotFinite(_) | Event::Saved { .. } => {}
        }
    }
}
