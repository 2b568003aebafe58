//! The encoder: ids of sentences to a memory.

use mae_model::gate::GateInput;
use mae_model::pass::Kind;

use super::network::{Attending, Network};
use crate::onnx::{Dim, Element, Value};

const SHAPE: [Dim<'_>; 2] = [Dim::Free("batch"), Dim::Free("source")];

impl Network<'_, '_> {
    /// Inputs `input_ids` and `attention_mask` `[batch, source]`, output `memory` `[batch, source, D]`.
    pub(super) fn encoder(&mut self) {
        let width = self.config.encoder_embed_dim;
        let ids = self.graph.input("input_ids", Element::I64, &SHAPE);
        let mask = self.graph.input("attention_mask", Element::I64, &SHAPE);
        let [mask, added] = self.masks(&mask);
        let sizes = self.graph.op("Shape", &[&ids], &[]);
        let embedded = self.embed("encoder.embed_tokens.weight", &ids);
        let positions = self.positions("encoder");
        let (zero, one, two) = (self.graph.ints(&[0]), self.graph.ints(&[1]), self.graph.ints(&[2]));
        let length = self.graph.op("Slice", &[&sizes, &one, &two], &[]);
        let positions = self.graph.op("Slice", &[&positions, &zero, &length, &zero], &[]);
        let x = self.graph.op("Add", &[&embedded, &positions], &[]);
        let x = self.reshape(&x, &[-1, width as i64]);
        let by_head = self.with_sizes(&sizes, &[self.heads(), self.head_dim()]);
        let whole = self.with_sizes(&sizes, &[width]);
        let output = self.stack("encoder", &["self_attn"], x, |network, _, name, x| {
            let project = |network: &mut Self, part: &str| {
                network.project_heads(x, &format!("{name}.{part}_proj"), &by_head)
            };
            let [query, key, value] = ["q", "k", "v"].map(|part| project(network, part));
            let weights = network.gated.then(|| network.encoder_gate(name, x, (&whole, &mask), &sizes));
            let (mask, weights) = (Some(&added), weights.as_ref());
            network.attend(name, &Attending { query: &query, key: &key, value: &value, mask, weights })
        });
        let memory = self.graph.op("Reshape", &[&output, &whole], &[]);
        let dims = [SHAPE[0], SHAPE[1], Dim::Fixed(width)];
        self.graph.output("memory", &memory, Element::F32, &dims);
    }

    /// Head weights that multiply `[B, S, H, K]`.
    fn encoder_gate(
        &mut self,
        name: &str,
        x: &Value,
        (whole, mask): (&Value, &Value),
        sizes: &Value,
    ) -> Value {
        let heads = self.heads();
        if GateInput::of(Kind::Encoder, &self.config.mixture) == GateInput::Position {
            let weights = self.gate(name, x);
            let shape = self.with_sizes(sizes, &[heads, 1]);
            return self.graph.op("Reshape", &[&weights, &shape], &[]);
        }
        let sentences = self.graph.op("Reshape", &[x, whole], &[]);
        let mean = self.sentence_mean(&sentences, mask);
        let weights = self.gate(name, &mean);
        self.reshape(&weights, &[-1, 1, heads as i64, 1])
    }

    /// The shape `[B, S, …]` for sizes `[B, S]`.
    pub(super) fn with_sizes(&mut self, sizes: &Value, more: &[usize]) -> Value {
        let more: Vec<i64> = more.iter().map(|&size| size as i64).collect();
        let more = self.graph.ints(&more);
        self.graph.op("Concat", &[sizes, &more], &[crate::onnx::Attribute::Int("axis", 0)])
    }

    /// Position vectors of a side, `[max_positions, D]`.
    pub(super) fn positions(&mut self, side: &str) -> Value {
        let (rows, width) = (self.config.max_positions, self.config.encoder_embed_dim);
        match crate::sinusoids::of(self.config.positions, rows, width) {
            Some(table) => self.store.made(&mut self.graph, "positions", &[rows, width], table),
            None => self.parameter(&format!("{side}.embed_positions.weight")),
        }
    }
}
