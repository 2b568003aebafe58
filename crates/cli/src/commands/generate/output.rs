//! Layouts of translations and scores.

use std::path::Path;

use anyhow::Context;
use mae_data::{Vocab, segmentation};
use mae_translate::{GateRows, Gates, Hypothesis, TextForm, Translated};
use serde::ser::{Serialize, SerializeMap, Serializer};

use super::input::{Input, TextOptions};
use crate::outputs::check_place;
use crate::stream::Output;

/// The layout of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// S-, T-, H-, D-, P- lines; scores in base 2.
    Fairseq,
    /// One line per sentence.
    Plain,
    /// One object per sentence; scores in nats.
    Jsonl,
    /// Nothing: BLEU and speed are enough.
    Nothing,
}

/// Writes blocks, one per sentence.
pub struct Printer {
    sink: Sink,
    style: Style,
    /// Form of text that the user gives; D lines are plain text unless it is tokenised.
    form: TextForm,
    remove_bpe: bool,
}

#[derive(serde::Serialize)]
struct TranslationLine<'a> {
    id: usize,
    source: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gates: Option<ByAttention<'a>>,
    hypotheses: Vec<HypothesisLine<'a>>,
}

#[derive(serde::Serialize)]
struct HypothesisLine<'a> {
    tokens: Vec<&'a str>,
    text: String,
    score: f32,
    logprobs: &'a [f32],
    #[serde(skip_serializing_if = "Option::is_none")]
    gates: Option<ByAttention<'a>>,
}

/// Gates as an object: a list of probabilities for an attention with one gate per sentence, a list of such
/// lists, one per target token, for the others.
struct ByAttention<'a>(&'a [Gates]);

impl Serialize for ByAttention<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for gates in self.0 {
            match &gates.rows {
                GateRows::Sentence(row) => map.serialize_entry(&gates.attention, row)?,
                GateRows::Tokens(rows) => map.serialize_entry(&gates.attention, rows)?,
            }
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
struct ScoreLine<'a> {
    id: usize,
    tokens: Vec<&'a str>,
    logprobs: &'a [f32],
    sum: f64,
}

impl Printer {
    /// Writes to `path`, or to standard output.
    pub fn open(path: Option<&Path>, style: Style, text: TextOptions) -> anyhow::Result<Self> {
        Ok(Self { sink: Sink::open(path)?, style, form: text.form, remove_bpe: text.remove_bpe })
    }

    /// Target ids as text of tokens.
    pub fn text(&self, input: &Input<'_>, ids: &[u32]) -> String {
        self.string(input, &input.data.tgt_vocab, ids)
    }

    /// Target ids in the form of the input.
    fn finished(&self, input: &Input<'_>, ids: &[u32]) -> String {
        self.in_form(input, ids, input.form)
    }

    /// Target ids as text; plain text where the model folder says how.
    fn in_form(&self, input: &Input<'_>, ids: &[u32], form: TextForm) -> String {
        let tokens = self.text(input, ids);
        match (form, input.models.tools()) {
            (TextForm::Lines, Some(tools)) if self.remove_bpe => tools.plain(&tokens),
            _ => tokens,
        }
    }

    fn string(&self, input: &Input<'_>, vocab: &Vocab, ids: &[u32]) -> String {
        let line = vocab.string(ids);
        if self.remove_bpe { segmentation::join(input.models.codes(), &line) } else { line }
    }

    /// Writes the translations of sentence `i` of the input, of which there is at least one.
    pub fn translation(&mut self, input: &Input<'_>, i: usize, found: &Translated) -> anyhow::Result<()> {
        let target = input.references.as_ref().map(|lines| lines[i].as_str());
        match self.style {
            Style::Plain => {
                let text = self.finished(input, &found.hypotheses[0].tokens);
                self.sink.line(format_args!("{text}"))
            }
            Style::Nothing => Ok(()),
            Style::Fairseq => self.block(input, i, &found.hypotheses),
            Style::Jsonl => {
                let source = self.string(input, &input.data.src_vocab, &input.data.src.get(i));
                let gates = found.gates.as_ref();
                let each = found.hypotheses.iter().enumerate().map(|(rank, hypothesis)| HypothesisLine {
                    tokens: tokens(input, &hypothesis.tokens),
                    text: self.finished(input, &hypothesis.tokens),
                    score: hypothesis.score,
                    logprobs: &hypothesis.positional,
                    gates: gates.map(|gates| ByAttention(&gates.hypotheses[rank])),
                });
                let line = TranslationLine {
                    id: input.first + i,
                    source,
                    target,
                    gates: gates.map(|gates| ByAttention(&gates.encoder)),
                    hypotheses: each.collect(),
                };
                self.sink.json(&line)
            }
        }
    }

    /// Writes the natural-log probabilities of the reference of sentence `i` of the input.
    pub fn score(&mut self, input: &Input<'_>, i: usize, log_probs: &[f32]) -> anyhow::Result<()> {
        let reference = input.data.tgt.get(i);
        let sum: f64 = log_probs.iter().map(|&p| f64::from(p)).sum();
        match self.style {
            Style::Nothing => Ok(()),
            Style::Plain => self.sink.line(format_args!("{sum:.6}")),
            Style::Jsonl => {
                let id = input.first + i;
                let line = ScoreLine { id, tokens: tokens(input, &reference), logprobs: log_probs, sum };
                self.sink.json(&line)
            }
            Style::Fairseq => {
                let score = (sum / log_probs.len() as f64) as f32;
                let scored = Hypothesis { tokens: reference, score, positional: log_probs.to_vec() };
                self.block(input, i, &[scored])
            }
        }
    }

    /// fairseq's lines.
    fn block(&mut self, input: &Input<'_>, i: usize, found: &[Hypothesis]) -> anyhow::Result<()> {
        let id = input.first + i;
        let source = self.string(input, &input.data.src_vocab, &input.data.src.get(i));
        self.sink.line(format_args!("S-{id}\t{source}"))?;
        if let Some(references) = &input.references {
            self.sink.line(format_args!("T-{id}\t{}", references[i]))?;
        }
        for hypothesis in found {
            let (text, score) = (self.text(input, &hypothesis.tokens), base2(hypothesis.score));
            self.sink.line(format_args!("H-{id}\t{score}\t{text}"))?;
            let plain = self.in_form(input, &hypothesis.tokens, self.form);
            self.sink.line(format_args!("D-{id}\t{score}\t{plain}"))?;
            let each = hypothesis.positional.iter().map(|&p| format!("{:.4}", base2(p)));
            self.sink.line(format_args!("P-{id}\t{}", each.collect::<Vec<_>>().join(" ")))?;
        }
        Ok(())
    }

    /// Hands over what was written so far to whoever reads it.
    pub fn flush(&mut self) -> anyhow::Result<()> {
        self.sink.flush()
    }

    /// Completes the output; a file appears under its name only now.
    pub fn finish(self) -> anyhow::Result<()> {
        self.sink.0.finish()
    }
}

fn tokens<'a>(input: &'a Input<'_>, ids: &[u32]) -> Vec<&'a str> {
    ids.iter().map(|&id| input.data.tgt_vocab.symbol(id)).collect()
}

/// A natural logarithm in base 2.
fn base2(value: f32) -> f32 {
    (f64::from(value) / std::f64::consts::LN_2) as f32
}

/// Lines for whoever reads them.
struct Sink(Output);

impl Sink {
    fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        check_place(path)?;
        Ok(Self(Output::open(path)?))
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) -> anyhow::Result<()> {
        let written = writeln!(self.0.out(), "{line}");
        written.with_context(|| self.0.complaint())
    }

    /// An error also where nobody reads any more: then there is no more to translate.
    fn flush(&mut self) -> anyhow::Result<()> {
        let flushed = self.0.out().flush();
        flushed.with_context(|| self.0.complaint())
    }

    fn json(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        let line = serde_json::to_string(value)?;
        self.line(format_args!("{line}"))
    }
}
