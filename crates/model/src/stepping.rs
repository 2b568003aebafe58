//! The decoder one token at a time, many hypotheses at once. Sentences join and leave between steps.

use std::collections::HashMap;

use mae_engine::ops::decode::Spans;
use mae_engine::{Device, Ids, Replays, Segments, Tape, Tensor, VocabularySubset};

use crate::attention::{Newcomers, SearchRoom};
use crate::pass::{ExpertMode, Pass};
use crate::slots::Slots;
use crate::stack_state::{StackState, Step};
use crate::translator::Translator;

/// State of decoding between steps. It lasts for one sentence after the other; on a GPU, steps are captured once and
/// replayed.
pub struct DecoderState {
    stack: StackState,
    /// The sentence of each hypothesis.
    sentences: Vec<u32>,
    slots: Slots,
    spans: Spans,
    /// Inputs by the number of rows.
    inputs: HashMap<usize, StepInputs>,
    /// Inputs of sentences that join.
    joins: HashMap<JoinShape, JoinInputs>,
    captured_joins: Replays<JoinShape, ()>,
    /// The types whose logits are computed; `None`: all.
    types: Option<VocabularySubset>,
}

/// Values of a buffer that encoding many sentences takes and steps do not: it is given back, so that keys and values find
/// room.
const LARGE: usize = 1 << 19;

/// Room for sentences that join together; on a GPU rounded up, so that few kinds of passes are captured.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct JoinShape {
    sentences: usize,
    source: usize,
    longest: usize,
}

impl JoinShape {
    fn around(device: &Device, starts: &[u32]) -> Self {
        let (sentences, source) = (starts.len() - 1, starts.last().map_or(0, |&end| end as usize));
        let longest = Segments::longest_of(starts);
        match device.is_gpu() {
            false => Self { sentences, source, longest },
            true => Self {
                sentences: sentences.next_multiple_of(128),
                source: source.next_multiple_of(512),
                longest: longest.next_power_of_two().max(64),
            },
        }
    }
}

/// Sentences that join together.
struct JoinInputs {
    source: Ids,
    keys: Segments,
    /// Number of each sentence in the search.
    sentences: Ids,
    /// Row of the search's memory for each token.
    rows: Ids,
}

impl JoinInputs {
    fn new(device: &Device, shape: JoinShape) -> Self {
        let JoinShape { sentences, source, longest } = shape;
        Self {
            source: Ids::with_room(device, source),
            keys: Segments::with_room(device, sentences, source, longest),
            sentences: Ids::with_room(device, sentences),
            rows: Ids::with_room(device, source),
        }
    }
}

/// Input of a step.
struct StepInputs {
    tokens: Ids,
    sentences: Ids,
    /// Each hypothesis is a sentence of one row.
    rows: Segments,
}

impl StepInputs {
    fn new(device: &Device, rows: usize) -> Self {
        let starts: Vec<u32> = (0..=rows as u32).collect();
        Self {
            tokens: Ids::with_room(device, rows),
            sentences: Ids::with_room(device, rows),
            rows: Segments::from_host(device, &starts),
        }
    }
}

impl DecoderState {
    /// The largest search that there is room for.
    pub fn room(&self) -> SearchRoom {
        self.stack.room()
    }

    /// How many of the first sentences with so many source tokens each can join now.
    pub fn fitting(&self, lengths: &[usize]) -> usize {
        self.slots.fitting(lengths)
    }
}

impl Translator {
    /// Room for searches of up to this size, all with the same kind of experts: steps that were captured are replayed.
    pub fn search_room(&self, room: SearchRoom) -> DecoderState {
        let device = self.params().device();
        DecoderState {
            stack: StackState::new(self.decoder(), device, room, self.config().encoder_embed_dim),
            sentences: Vec::new(),
            slots: Slots::new(room.sentences, room.source),
            spans: Spans::new(device, room.sentences),
            inputs: HashMap::new(),
            joins: HashMap::new(),
            captured_joins: Replays::default(),
            types: None,
        }
    }

    /// From now on, steps compute the logits of these types only, in this order; `None`: of all types. A CPU reads less of
    /// the vocabulary then.
    ///
    /// # Panics
    ///
    /// On a GPU, and for ids that the target dictionary does not have.
    pub fn restrict(&self, state: &mut DecoderState, types: Option<&[u32]>) {
        let (vocabulary, bias) = self.output();
        state.types = types.map(|types| self.params().vocabulary_subset(vocabulary, bias, types));
    }

    /// Encodes sentences, which join with one hypothesis each, after the present ones. `starts` are their boundaries in
    /// `source`.
    ///
    /// # Panics
    ///
    /// If there is no room for them: [`DecoderState::fitting`].
    pub fn admit(
        &self,
        state: &mut DecoderState,
        source: &[u32],
        starts: &[u32],
        mode: &ExpertMode,
    ) -> mae_engine::Result<()> {
        let DecoderState { stack, slots, spans, joins, captured_joins, .. } = state;
        let (source, starts) = self.config().marks().source(source, starts);
        let (mut changes, mut rows) = (Vec::new(), Vec::new());
        for boundary in starts.windows(2) {
            let length = (boundary[1] - boundary[0]) as usize;
            let (sentence, first) = slots.take(length).expect("callers ask for room first");
            let span = first as u32..(first + length) as u32;
            changes.push((sentence, span.start, span.end));
            rows.extend(span);
        }
        let sentences: Vec<u32> = changes.iter().map(|change| change.0).collect();
        let device = self.params().device();
        let shape = JoinShape::around(device, &starts);
        let inputs = joins.entry(shape).or_insert_with(|| JoinInputs::new(device, shape));
        inputs.source.load(&source);
        inputs.keys.load(&starts);
        inputs.sentences.load(&sentences);
        inputs.rows.load(&rows);
        spans.set(changes);
        let (attentions, mut kept) = stack.begin(sentences.len());
        state.sentences.extend(sentences);
        let mut join = || {
            let mut tape = Tape::evaluation(self.params());
            let mut pass = Pass { tape: &mut tape, mode, probe: None };
            let memory = self.encode(&mut pass, &inputs.source, &inputs.keys);
            let JoinInputs { keys, sentences, rows, .. } = &*inputs;
            let new = Newcomers { memory: &memory.output, keys, sentences, rows };
            self.decoder().admit(&mut pass, &new, (attentions, kept.as_deref_mut()));
            Ok(())
        };
        // A replay does nothing on the host.
        let joined = if mode.reads_host() { join() } else { captured_joins.run(device, shape, join) };
        device.trim_large(LARGE);
        joined
    }

    /// New hypothesis i continues old hypothesis `parents[i]`; those not named leave, and so do sentences without
    /// hypotheses.
    pub fn reorder(&self, state: &mut DecoderState, parents: &[u32]) {
        state.sentences = parents.iter().map(|&parent| state.sentences[parent as usize]).collect();
        state.slots.keep(&state.sentences);
        state.stack.reorder(parents);
    }

    /// Reads one token per hypothesis, the end mark before the first; returns the logits of the next,
    /// `[R, V]` or one for each type that [`Translator::restrict`] named, on a GPU with surplus rows at the end.
    pub fn step(
        &self,
        state: &mut DecoderState,
        tokens: &[u32],
        mode: &ExpertMode,
    ) -> mae_engine::Result<Tensor> {
        assert_eq!(tokens.len(), state.sentences.len(), "one token per hypothesis");
        let device = self.params().device();
        let DecoderState { stack, sentences, spans, inputs, types, .. } = state;
        let rows = stack.rows(device, tokens.len());
        let inputs = inputs.entry(rows).or_insert_with(|| StepInputs::new(device, rows));
        inputs.tokens.load(&self.previous_tokens(tokens));
        inputs.sentences.load(sentences);
        let memory = Some((&inputs.sentences, &*spans));
        let step = Step { stack: self.decoder(), params: self.params(), rows, mode, memory };
        stack.step(
            &step,
            |tape, lineage| self.embed_targets(tape, &inputs.tokens, &inputs.rows, lineage),
            |tape, features| match types {
                Some(types) => tape.subset_logits(features, types),
                None => self.logits(tape, features),
            },
        )
    }
}
