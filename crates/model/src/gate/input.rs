//! Inputs of gates: in a whole pass, and one position at a time.

use mae_engine::ops::decode::{InputWindow, Lineage, Room, RunningSum};
use mae_engine::{Device, Segments, Tape, Var};

use super::{Input, Needs, Reading};
use crate::config::{CrossGate, DecoderGate, GateReads, Mixture};
use crate::pass::{Kind, Rows};

/// Input of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateInput {
    /// The mean of the queries' sentence.
    Sentence,
    /// The running mean of the queries, of all or of the last few.
    Running(Option<usize>),
    /// The mean of the sentence that keys and values come from.
    Source,
    /// The query of each position by itself.
    Position,
}

/// The keys and values' rows and whose they are, of attentions to another sequence.
pub(crate) type Memory<'a> = Option<(&'a Var, &'a Segments)>;

impl GateInput {
    /// The input of an attention of this kind, as the keys of `mixture` say.
    pub fn of(kind: Kind, mixture: &Mixture) -> Self {
        let window = (mixture.gate_window > 0).then_some(mixture.gate_window);
        match (kind, mixture.cross_gate, mixture.gate_input, mixture.decoder_gate) {
            (Kind::Cross, CrossGate::Source, ..) => Self::Source,
            (_, _, GateReads::Position, _) => Self::Position,
            (Kind::Encoder, ..) | (.., DecoderGate::Whole) => Self::Sentence,
            (.., DecoderGate::Causal) => Self::Running(window),
        }
    }

    /// Unit that has its own gate.
    pub fn rows(self) -> Rows {
        match self {
            Self::Sentence | Self::Source => Rows::Sentences,
            Self::Running(_) | Self::Position => Rows::Positions,
        }
    }

    /// Reads a whole pass: x `[N, D]` are the queries.
    pub(crate) fn read<'a>(
        self,
        tape: &mut Tape<'_>,
        needs: Needs,
        attention: &'a str,
        (x, sentences): (&Var, &'a Segments),
        memory: Memory<'a>,
    ) -> Reading<'a> {
        let (var, segments) = match (self, memory) {
            (Self::Source, Some(memory)) => memory,
            _ => (x, sentences),
        };
        let per_position = self.rows() == Rows::Positions;
        let mut mean = |var: &Var| match self {
            Self::Sentence | Self::Source => tape.segment_mean(var, segments),
            Self::Running(window) => tape.running_mean(var, segments, window),
            Self::Position => var.clone(),
        };
        Reading {
            attention,
            count: if per_position { var.rows() } else { segments.count() },
            sentences: per_position.then_some(segments),
            input: match needs {
                Needs::Nothing => Input::Nothing,
                Needs::Values => Input::Plain(mean(&var.detach())),
                Needs::Gradient => Input::Plain(mean(var)),
            },
        }
    }

    /// The same before the first step of a search: for gates over the source, and those that read nothing.
    pub(crate) fn read_source<'a>(
        tape: &mut Tape<'_>,
        needs: Needs,
        attention: &'a str,
        (memory, sentences): (&Var, &Segments),
    ) -> Reading<'a> {
        let input = match needs {
            Needs::Nothing => Input::Nothing,
            Needs::Values | Needs::Gradient => Input::Plain(tape.segment_mean(memory, sentences)),
        };
        Reading { attention, count: sentences.count(), sentences: None, input }
    }

    /// State that must be kept between steps.
    pub(crate) fn state(self, device: &Device, room: Room, width: usize) -> InputState {
        match self {
            Self::Source | Self::Position => InputState::Nothing,
            Self::Running(Some(window)) => InputState::Window(InputWindow::new(device, window, room, width)),
            Self::Sentence | Self::Running(None) => InputState::Sum(RunningSum::new(device, room, width)),
        }
    }
}

/// State of a gate's input between steps.
pub(crate) enum InputState {
    /// Nothing.
    Nothing,
    /// The sum of all inputs, one row per hypothesis.
    Sum(RunningSum),
    /// The last few inputs.
    Window(InputWindow),
}

impl InputState {
    /// Reads one new row per hypothesis, which is remembered from now on.
    pub(crate) fn step<'a>(
        &mut self,
        tape: &mut Tape<'_>,
        needs: Needs,
        attention: &'a str,
        (x, lineage): (&Var, &Lineage),
    ) -> Reading<'a> {
        let input = match self {
            _ if needs == Needs::Nothing => Input::Nothing,
            Self::Nothing => Input::Plain(x.clone()),
            Self::Sum(sum) => Input::Plain(Var::constant(tape.running_step(x, sum, lineage, None))),
            Self::Window(window) => Input::Plain(Var::constant(tape.window_step(x, window, lineage))),
        };
        Reading { attention, count: x.rows(), sentences: None, input }
    }
}
