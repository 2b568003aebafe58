//! The decoder, a token at a time: the first step makes caches of a memory, a later one takes and gives them.

use mae_model::gate::GateInput;
use mae_model::pass::Kind;

use super::network::{Attending, Network};
use crate::onnx::{Attribute, Dim, Element, Value};

/// Step that a graph computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The first, from the encoder's memory.
    First,
    /// Any other, from caches.
    Later,
}

const BATCH: Dim<'_> = Dim::Free("batch");
const SOURCE: Dim<'_> = Dim::Free("source");

/// What all attentions of a step share.
struct Context {
    step: Step,
    /// The memory `[B, S, D]` and its sizes `[B, S]`, in the first step.
    memory: Option<(Value, Value)>,
    /// The mask of the memory, as numbers and as what is added to scores.
    mask: [Value; 2],
    /// Number of tokens so far with this one, as a number `[1]`.
    count: Value,
}

impl Network<'_, '_> {
    /// Inputs `token` `[batch]`, `attention_mask` `[batch, source]`, and `memory` or the caches `past.*`; outputs `logits`
    /// `[batch, types]` and the caches `present.*`.
    pub(super) fn decoder(&mut self, step: Step, (embedding, output): (&str, &str), types: usize) {
        let width = self.config.encoder_embed_dim;
        let token = self.graph.input("token", Element::I64, &[BATCH]);
        let mask = self.graph.input("attention_mask", Element::I64, &[BATCH, SOURCE]);
        let mask = self.masks(&mask);
        let memory = (step == Step::First).then(|| {
            let memory = self.graph.input("memory", Element::F32, &[BATCH, SOURCE, Dim::Fixed(width)]);
            let (zero, two) = (self.graph.ints(&[0]), self.graph.ints(&[2]));
            let shape = self.graph.op("Shape", &[&memory], &[]);
            (memory, self.graph.op("Slice", &[&shape, &zero, &two], &[]))
        });
        let position = match step {
            Step::First => self.graph.ints(&[0]),
            Step::Later => {
                let past = self.past("self.0.key", &self.cache("past"));
                let shape = self.graph.op("Shape", &[&past], &[]);
                let (two, three) = (self.graph.ints(&[2]), self.graph.ints(&[3]));
                self.graph.op("Slice", &[&shape, &two, &three], &[])
            }
        };
        let one = self.graph.ints(&[1]);
        let count = self.graph.op("Add", &[&position, &one], &[]);
        let count = self.graph.op("Cast", &[&count], &[Attribute::Int("to", 1)]);
        let table = self.positions("decoder");
        let position = self.graph.op("Gather", &[&table, &position], &[]);
        let embedded = self.embed(embedding, &token);
        let x = self.graph.op("Add", &[&embedded, &position], &[]);
        let context = Context { step, memory, mask, count };
        let features = self.stack("decoder", &["self_attn", "encoder_attn"], x, |network, layer, name, x| {
            match name.ends_with("self_attn") {
                true => network.self_attention(&context, layer, name, x),
                false => network.cross_attention(&context, layer, name, x),
            }
        });
        let matrix = self.parameter(output);
        let mut inputs = vec![features, matrix];
        if self.config.output_bias {
            inputs.push(self.parameter("decoder.output_projection.bias"));
        }
        let inputs: Vec<&Value> = inputs.iter().collect();
        let logits = self.graph.op("Gemm", &inputs, &[Attribute::Int("transB", 1)]);
        self.graph.output("logits", &logits, Element::F32, &[BATCH, Dim::Fixed(types)]);
    }

    /// Shape of keys and values with a free length.
    fn cache<'d>(&self, length: &'d str) -> [Dim<'d>; 4] {
        [BATCH, Dim::Fixed(self.heads()), Dim::Free(length), Dim::Fixed(self.head_dim())]
    }

    /// A cache that is given; the key of the first layer is asked for twice.
    fn past(&mut self, name: &str, dims: &[Dim<'_>]) -> Value {
        self.graph.input(&format!("past.{name}"), Element::F32, dims)
    }

    fn present(&mut self, name: &str, value: &Value, dims: &[Dim<'_>]) {
        self.graph.output(&format!("present.{name}"), value, Element::F32, dims);
    }

    fn self_attention(&mut self, context: &Context, layer: usize, name: &str, x: &Value) -> Value {
        let shape = self.graph.ints(&[-1, 1, self.heads() as i64, self.head_dim() as i64]);
        let query = self.project_heads(x, &format!("{name}.q_proj"), &shape);
        let [key, value] = ["key", "value"].map(|part| {
            let new = self.project_heads(x, &format!("{name}.{}_proj", &part[..1]), &shape);
            let cache = format!("self.{layer}.{part}");
            let all = match context.step {
                Step::First => new,
                Step::Later => {
                    let past = self.past(&cache, &self.cache("past"));
                    self.graph.op("Concat", &[&past, &new], &[Attribute::Int("axis", 2)])
                }
            };
            self.present(&cache, &all, &self.cache("present"));
            all
        });
        let weights = self.step_gate(context, Kind::Decoder, &format!("self.{layer}"), name, x);
        let weights = weights.as_ref();
        self.attend(name, &Attending { query: &query, key: &key, value: &value, mask: None, weights })
    }

    fn cross_attention(&mut self, context: &Context, layer: usize, name: &str, x: &Value) -> Value {
        let shape = self.graph.ints(&[-1, 1, self.heads() as i64, self.head_dim() as i64]);
        let query = self.project_heads(x, &format!("{name}.q_proj"), &shape);
        let [key, value] = ["key", "value"].map(|part| {
            let cache = format!("cross.{layer}.{part}");
            let Some((memory, sizes)) = &context.memory else {
                return self.past(&cache, &self.cache("source"));
            };
            let rows = self.reshape(memory, &[-1, self.config.encoder_embed_dim as i64]);
            let shape = self.with_sizes(sizes, &[self.heads(), self.head_dim()]);
            let made = self.project_heads(&rows, &format!("{name}.{}_proj", &part[..1]), &shape);
            self.present(&cache, &made, &self.cache("source"));
            made
        });
        let weights = self.step_gate(context, Kind::Cross, &format!("cross.{layer}"), name, x);
        let (mask, weights) = (Some(&context.mask[1]), weights.as_ref());
        self.attend(name, &Attending { query: &query, key: &key, value: &value, mask, weights })
    }

    /// Head weights that multiply `[B, 1, H, K]`, if the model has gates.
    fn step_gate(
        &mut self,
        context: &Context,
        kind: Kind,
        cache: &str,
        name: &str,
        x: &Value,
    ) -> Option<Value> {
        if !self.gated {
            return None;
        }
        let weights = match GateInput::of(kind, &self.config.mixture) {
            GateInput::Source => self.source_gate(context, cache, name),
            GateInput::Position => self.gate(name, x),
            GateInput::Sentence | GateInput::Running(None) => {
                let mean = self.running_mean(context, cache, x);
                self.gate(name, &mean)
            }
            GateInput::Running(Some(window)) => {
                let mean = self.window_mean(context, cache, x, window);
                self.gate(name, &mean)
            }
        };
        Some(self.reshape(&weights, &[-1, 1, self.heads() as i64, 1]))
    }

    /// Weights over the source, which stay the same at all steps.
    fn source_gate(&mut self, context: &Context, cache: &str, name: &str) -> Value {
        let (cache, dims) = (format!("{cache}.weights"), [BATCH, Dim::Fixed(self.heads())]);
        let Some((memory, _)) = &context.memory else { return self.past(&cache, &dims) };
        let mean = self.sentence_mean(memory, &context.mask[0]);
        let weights = self.gate(name, &mean);
        self.present(&cache, &weights, &dims);
        weights
    }

    /// The mean of all inputs so far, whose sum is a cache.
    fn running_mean(&mut self, context: &Context, cache: &str, x: &Value) -> Value {
        let (cache, dims) = (format!("{cache}.sum"), [BATCH, Dim::Fixed(self.config.encoder_embed_dim)]);
        let sum = match context.step {
            Step::First => x.clone(),
            Step::Later => {
                let past = self.past(&cache, &dims);
                self.graph.op("Add", &[&past, x], &[])
            }
        };
        self.present(&cache, &sum, &dims);
        self.graph.op("Div", &[&sum, &context.count], &[])
    }

    /// The mean of the last inputs, which are a cache.
    fn window_mean(&mut self, context: &Context, cache: &str, x: &Value, window: usize) -> Value {
        let (cache, width) = (format!("{cache}.recent"), Dim::Fixed(self.config.encoder_embed_dim));
        let axis = self.graph.ints(&[1]);
        let new = self.graph.op("Unsqueeze", &[x, &axis], &[]);
        let recent = match context.step {
            Step::First => new,
            Step::Later => {
                let past = self.past(&cache, &[BATCH, Dim::Free("recent_past"), width]);
                let all = self.graph.op("Concat", &[&past, &new], &[Attribute::Int("axis", 1)]);
                let (from, to) = (self.graph.ints(&[-(window as i64)]), self.graph.ints(&[i64::MAX]));
                self.graph.op("Slice", &[&all, &from, &to, &axis], &[])
            }
        };
        self.present(&cache, &recent, &[BATCH, Dim::Free("recent_present"), width]);
        let attributes = [Attribute::Ints("axes", &[1]), Attribute::Int("keepdims", 0)];
        self.graph.op("ReduceMean", &[&recent], &attributes)
    }
}
