//! What people see of a run.

use std::path::Path;

use indicatif::ProgressBar;
use mae_train::log::Event;
use mae_train::memory::tokens_of;

use crate::progress;

/// Where it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// Standard output, for people.
    Output,
    /// Standard output, as JSON lines.
    Json,
    /// Standard error, where standard output is for something else.
    Errors,
}

/// What people see of a run.
pub struct Display<'a> {
    to: To,
    gpu: bool,
    bar: ProgressBar,
    folder: &'a Path,
}

impl<'a> Display<'a> {
    /// Of a run in `folder`, on a GPU or not.
    pub fn new(folder: &'a Path, gpu: bool, to: To) -> Self {
        Self { to, gpu, bar: ProgressBar::hidden(), folder }
    }

    /// Says something, where it is for people.
    pub fn say(&self, text: &str) {
        match self.to {
            To::Output => println!("{text}"),
            To::Errors => eprintln!("{text}"),
            To::Json => {}
        }
    }

    /// Shows an event.
    pub fn show(&mut self, event: &Event) {
        if self.to == To::Json {
            if !matches!(event, Event::Update { .. }) {
                println!("{}", serde_json::to_string(event).expect("events can be written as JSON"));
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
            }
            Event::Reset { what } => eprintln!("mae: this run goes on without its {}", what.join(", ")),
            Event::Memory(used) => self.say(&format!(
                "the largest batch ({}) takes {:.2} GiB of {} memory, parameters and optimiser included",
                tokens_of((used.source_tokens, used.target_tokens)),
                used.bytes as f64 / (1u64 << 30) as f64,
                if self.gpu { "GPU" } else { "main" }
            )),
            Event::Changed { lines } => {
                eprintln!("mae: this run goes on with other choices than before: {}", lines.join("; "));
            }
            Event::Skipped { pairs, tokens, of_tokens, examples } => {
                let some: Vec<String> = examples.iter().map(u64::to_string).collect();
                let share = 100.0 * *tokens as f64 / *of_tokens as f64;
                eprintln!(
                    "mae: {pairs} training pairs or blocks with {tokens} target tokens ({share:.1} % of all) are longer than \
                     train.max_tokens or model.max_positions and are left out (numbers {}, …); raise these, or cut a text \
                     with --sample-break-mode none",
                    some.join(", ")
                );
            }
            Event::Epoch { epoch, updates, done } => {
                self.bar = progress::bar(*updates, &format!("epoch {epoch}"));
                self.bar.set_position(*done);
            }
            Event::Update { done } => self.bar.set_position(*done),
            Event::Train(line) => {
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
                    text.push_str(&format!(" (best so far, saved in {})", self.folder.display()));
                }
                self.say(&text);
            }
            // The error that follows tells it.
            Event::NotFinite(_) | Event::Saved { .. } => {}
        }
    }
}
