//! The parts of a network that encoder and decoder share. Activations are matrices `[rows, D]`.

use mae_model::config::{Activation, ModelConfig, NormOrder};

use super::store::Store;
use crate::onnx::{Attribute, Graph, Value};

/// ε of norms.
const EPSILON: f32 = 1e-5;
/// Added to scores of padding.
const MASKED: f32 = -1e9;

/// A graph and the weights that it takes its parameters from.
pub(super) struct Network<'n, 'a> {
    pub(super) graph: Graph,
    pub(super) store: &'n mut Store<'a>,
    pub(super) config: &'a ModelConfig,
    /// True if heads are weighted by gates.
    pub(super) gated: bool,
}

/// Queries, keys and values, `[B, H, T, K]`, and what else an attention computes with.
pub(super) struct Attending<'v> {
    pub(super) query: &'v Value,
    pub(super) key: &'v Value,
    pub(super) value: &'v Value,
    /// Added to scores.
    pub(super) mask: Option<&'v Value>,
    /// Head weights, `[B, T or 1, H, 1]`.
    pub(super) weights: Option<&'v Value>,
}

impl Network<'_, '_> {
    /// Width of a head.
    pub(super) fn head_dim(&self) -> usize {
        match self.config.head_dim {
            0 => self.config.encoder_embed_dim / self.config.encoder_attention_heads,
            width => width,
        }
    }

    pub(super) fn heads(&self) -> usize {
        self.config.encoder_attention_heads
    }

    pub(super) fn parameter(&mut self, name: &str) -> Value {
        self.store.parameter(&mut self.graph, name)
    }

    /// W·x + b for each row.
    pub(super) fn linear(&mut self, x: &Value, name: &str) -> Value {
        let weight = self.parameter(&format!("{name}.weight"));
        let bias = self.parameter(&format!("{name}.bias"));
        self.graph.op("Gemm", &[x, &weight, &bias], &[Attribute::Int("transB", 1)])
    }

    pub(super) fn norm(&mut self, x: &Value, name: &str) -> Value {
        let (weight, bias) =
            (self.parameter(&format!("{name}.weight")), self.parameter(&format!("{name}.bias")));
        let attributes = [Attribute::Int("axis", -1), Attribute::Float("epsilon", EPSILON)];
        self.graph.op("LayerNormalization", &[x, &weight, &bias], &attributes)
    }

    pub(super) fn reshape(&mut self, x: &Value, shape: &[i64]) -> Value {
        let shape = self.graph.ints(shape);
        self.graph.op("Reshape", &[x, &shape], &[])
    }

    pub(super) fn transpose(&mut self, x: &Value, order: &[i64]) -> Value {
        self.graph.op("Transpose", &[x], &[Attribute::Ints("perm", order)])
    }

    fn times(&mut self, x: &Value, factor: f32) -> Value {
        let factor = self.graph.number(factor);
        self.graph.op("Mul", &[x, &factor], &[])
    }

    /// Embeddings of ids, `[…, D]`, before positions are added.
    pub(super) fn embed(&mut self, table: &str, ids: &Value) -> Value {
        let table = self.parameter(table);
        let rows = self.graph.op("Gather", &[&table, ids], &[]);
        match self.config.no_scale_embedding {
            true => rows,
            false => self.times(&rows, (self.config.encoder_embed_dim as f32).sqrt()),
        }
    }

    /// The layers of a side; `sublayer` computes the attention of this name.
    pub(super) fn stack(
        &mut self,
        side: &str,
        attentions: &[&str],
        x: Value,
        mut attention: impl FnMut(&mut Self, usize, &str, &Value) -> Value,
    ) -> Value {
        let layers = if side == "encoder" { self.config.encoder_layers } else { self.config.decoder_layers };
        let mut x = x;
        for layer in 0..layers {
            let at = format!("{side}.layers.{layer}");
            for part in attentions {
                let name = format!("{at}.{part}");
                x = self.sublayer(x, &format!("{name}_layer_norm"), |network, x| {
                    attention(network, layer, &name, x)
                });
            }
            x = self.sublayer(x, &format!("{at}.final_layer_norm"), |network, x| network.feed(&at, x));
        }
        match self.config.norm {
            NormOrder::Post => x,
            NormOrder::Pre => self.norm(&x, &format!("{side}.layer_norm")),
        }
    }

    fn sublayer(&mut self, x: Value, norm: &str, compute: impl FnOnce(&mut Self, &Value) -> Value) -> Value {
        let input = match self.config.norm {
            NormOrder::Post => x.clone(),
            NormOrder::Pre => self.norm(&x, norm),
        };
        let output = compute(self, &input);
        let sum = self.graph.op("Add", &[&x, &output], &[]);
        match self.config.norm {
            NormOrder::Post => self.norm(&sum, norm),
            NormOrder::Pre => sum,
        }
    }

    fn feed(&mut self, at: &str, x: &Value) -> Value {
        let x = self.linear(x, &format!("{at}.fc1"));
        let x = match self.config.activation {
            Activation::Relu => self.graph.op("Relu", &[&x], &[]),
            Activation::Swish => {
                let gate = self.graph.op("Sigmoid", &[&x], &[]);
                self.graph.op("Mul", &[&x, &gate], &[])
            }
            Activation::Gelu => {
                let scaled = self.times(&x, std::f32::consts::FRAC_1_SQRT_2);
                let erf = self.graph.op("Erf", &[&scaled], &[]);
                let one = self.graph.number(1.0);
                let both = self.graph.op("Add", &[&erf, &one], &[]);
                let product = self.graph.op("Mul", &[&x, &both], &[]);
                self.times(&product, 0.5)
            }
        };
        self.linear(&x, &format!("{at}.fc2"))
    }

    /// A projection, `[rows, H·K]`, as `[B, H, T, K]`; `shape` is `[B, T, H, K]`.
    pub(super) fn project_heads(&mut self, x: &Value, name: &str, shape: &Value) -> Value {
        let projected = self.linear(x, name);
        let split = self.graph.op("Reshape", &[&projected, shape], &[]);
        self.transpose(&split, &[0, 2, 1, 3])
    }

    /// The output of an attention, `[rows, D]`.
    pub(super) fn attend(&mut self, name: &str, attending: &Attending<'_>) -> Value {
        let Attending { query, key, value, mask, weights } = *attending;
        let inner = (self.heads() * self.head_dim()) as i64;
        let turned = self.transpose(key, &[0, 1, 3, 2]);
        let scores = self.graph.op("MatMul", &[query, &turned], &[]);
        let mut scores = self.times(&scores, (self.head_dim() as f32).sqrt().recip());
        if let Some(mask) = mask {
            scores = self.graph.op("Add", &[&scores, mask], &[]);
        }
        let shares = self.graph.op("Softmax", &[&scores], &[Attribute::Int("axis", -1)]);
        let context = self.graph.op("MatMul", &[&shares, value], &[]);
        let mut context = self.transpose(&context, &[0, 2, 1, 3]);
        if let Some(weights) = weights {
            context = self.graph.op("Mul", &[&context, weights], &[]);
        }
        let rows = self.reshape(&context, &[-1, inner]);
        self.linear(&rows, &format!("{name}.out_proj"))
    }

    /// The mask `[B, S]`, 1 for tokens and 0 for padding, as numbers, and as what is added to scores, `[B, 1, 1, S]`.
    pub(super) fn masks(&mut self, mask: &Value) -> [Value; 2] {
        let numbers = self.graph.op("Cast", &[mask], &[Attribute::Int("to", 1)]);
        let one = self.graph.number(1.0);
        let padding = self.graph.op("Sub", &[&one, &numbers], &[]);
        let added = self.times(&padding, MASKED);
        let axes = self.graph.ints(&[1, 2]);
        [numbers, self.graph.op("Unsqueeze", &[&added, &axes], &[])]
    }

    /// The mean of each sentence of x `[B, S, D]` over its tokens, `[B, D]`.
    pub(super) fn sentence_mean(&mut self, x: &Value, mask: &Value) -> Value {
        let (first, last) = (self.graph.ints(&[1]), self.graph.ints(&[2]));
        let mask = self.graph.op("Unsqueeze", &[mask, &last], &[]);
        let kept = self.graph.op("Mul", &[x, &mask], &[]);
        let flat = [Attribute::Int("keepdims", 0)];
        let sum = self.graph.op("ReduceSum", &[&kept, &first], &flat);
        let count = self.graph.op("ReduceSum", &[&mask, &first], &flat);
        self.graph.op("Div", &[&sum, &count], &[])
    }

    /// Head weights `[rows, H]` of an attention whose gate reads x `[rows, D]`.
    pub(super) fn gate(&mut self, attention: &str, x: &Value) -> Value {
        let gate = format!("{attention}.gate");
        if self.store.has(&format!("{gate}.proj.weight")) {
            let logits = self.linear(x, &format!("{gate}.proj"));
            let open = self.graph.op("Sigmoid", &[&logits], &[]);
            return self.times(&open, 2.0);
        }
        if self.store.has(&format!("{gate}.routed.weight")) {
            return self.routed_heads(&gate, x);
        }
        let (scale, shift) = self.batch_norm(&format!("{gate}.norm"));
        let normed = self.graph.op("Mul", &[x, &scale], &[]);
        let normed = self.graph.op("Add", &[&normed, &shift], &[]);
        let hidden = self.linear(&normed, &format!("{gate}.fc1"));
        let hidden = self.graph.op("Tanh", &[&hidden], &[]);
        let logits = self.linear(&hidden, &format!("{gate}.fc2"));
        let shares = self.graph.op("Softmax", &[&logits], &[Attribute::Int("axis", -1)]);
        let matrix = self.config.experts().map(|experts| experts.matrix()).unwrap_or_default();
        let shape = [matrix.len() / self.heads(), self.heads()];
        let experts = self.store.made(&mut self.graph, "experts", &shape, matrix);
        self.graph.op("MatMul", &[&shares, &experts], &[])
    }

    /// Head weights of MoH: shared heads, and of the others the largest of each row.
    fn routed_heads(&mut self, gate: &str, x: &Value) -> Value {
        let [shared, active] = self.config.mixture.routed(self.heads());
        let last = Attribute::Int("axis", -1);
        let [of_shared, of_routed, between] = ["shared", "routed", "between"].map(|part| {
            let weight = self.parameter(&format!("{gate}.{part}.weight"));
            self.graph.op("Gemm", &[x, &weight], &[Attribute::Int("transB", 1)])
        });
        let mask = self.largest(&of_routed, self.heads() - shared, active);
        let [of_shared, of_routed, between] =
            [of_shared, of_routed, between].map(|logits| self.graph.op("Softmax", &[&logits], &[last]));
        let kept = self.graph.op("Mul", &[&of_routed, &mask], &[]);
        let axis = self.graph.ints(&[1]);
        let sum = self.graph.op("ReduceSum", &[&kept, &axis], &[]);
        let of_routed = self.graph.op("Div", &[&kept, &sum], &[]);
        let weights = [(of_shared, shared, 0), (of_routed, active, 1)].map(|(part, heads, column)| {
            let [first, end] = [column, column + 1].map(|at| self.graph.ints(&[at]));
            let factor = self.graph.op("Slice", &[&between, &first, &end, &axis], &[]);
            let factor = self.times(&factor, 2.0 * heads as f32);
            self.graph.op("Mul", &[&part, &factor], &[])
        });
        self.graph.op("Concat", &[&weights[0], &weights[1]], &[last])
    }

    /// 1 for the `count` largest of each row of x `[rows, columns]`, of equal ones the first; 0 for others.
    fn largest(&mut self, x: &Value, columns: usize, count: usize) -> Value {
        let axes = [1, 2].map(|axis| self.graph.ints(&[axis]));
        let [others, own] = axes.each_ref().map(|axis| self.graph.op("Unsqueeze", &[x, axis], &[]));
        let number = [Attribute::Int("to", 1)];
        let [larger, equal] = ["Greater", "Equal"].map(|comparison| {
            let holds = self.graph.op(comparison, &[&others, &own], &[]);
            self.graph.op("Cast", &[&holds], &number)
        });
        let earlier = (0..columns * columns).map(|i| f32::from(i % columns < i / columns)).collect();
        let earlier = self.store.made(&mut self.graph, "earlier", &[columns, columns], earlier);
        let equal = self.graph.op("Mul", &[&equal, &earlier], &[]);
        let before = self.graph.op("Add", &[&larger, &equal], &[]);
        let before = self.graph.op("ReduceSum", &[&before, &axes[1]], &[Attribute::Int("keepdims", 0)]);
        let limit = self.graph.number(count as f32);
        let chosen = self.graph.op("Less", &[&before, &limit], &[]);
        self.graph.op("Cast", &[&chosen], &number)
    }

    /// A norm by running statistics as a factor and a summand of each column.
    fn batch_norm(&mut self, name: &str) -> (Value, Value) {
        let part = |part: &str| self.store.values(&format!("{name}.{part}"));
        let (weight, bias, mean, variance) =
            (part("weight"), part("bias"), part("running_mean"), part("running_var"));
        let scale: Vec<f32> = weight.iter().zip(&variance).map(|(w, v)| w / (v + EPSILON).sqrt()).collect();
        let shift: Vec<f32> = bias.iter().zip(mean.iter().zip(&scale)).map(|(b, (m, s))| b - m * s).collect();
        let width = [scale.len()];
        let scale = self.store.made(&mut self.graph, &format!("{name}.scale"), &width, scale);
        (scale, self.store.made(&mut self.graph, &format!("{name}.shift"), &width, shift))
    }
}
