//! A stack of sublayers: attention and feed-forward, each followed by dropout, the residual sum and a norm.
//!
//! Post-norm: `x ← norm_i(x + drop(f_i(x)))`. Pre-norm: `x ← x + drop(f_i(norm_i(x)))` and, unless it is left out, one
//! norm at the end. Both are one loop: between sublayers runs a pair (stream, input of the next sublayer); the op that
//! follows a sublayer adds to the stream and norms the sum with the norm that comes next in that order.

use mae_engine::ops::activation::Curve;
use mae_engine::ops::decode::SlotTensor;
use mae_engine::ops::linear::Activation as Fused;
use mae_engine::ops::residual_norm::LayerNorm;
use mae_engine::{Device, ParamId, Params, ParamsBuilder, Segments, Tape, Var};

use crate::Result;
use crate::attention::{
    AttendedMemory, AttentionConfig, AttentionState, MemoryProjection, MixtureAttention, Newcomers,
    SearchRoom, StepContext, linear,
};
use crate::config::{Activation, Mixture, NormOrder};
use crate::groups::REST;
use crate::pass::{ExpertMode, Kind, Pass};

enum Sublayer {
    /// An attention, and its number among those to the memory; 0 for the others.
    Attention(MixtureAttention, usize),
    FeedForward {
        fc1: [ParamId; 2],
        fc2: [ParamId; 2],
        activation: Activation,
        dropout: f32,
    },
}

/// Side of a stack: encoder or decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Self-attention and feed-forward.
    Encoder,
    /// Causal self-attention, attention to the memory, feed-forward.
    Decoder,
    /// Causal self-attention and feed-forward: a decoder without a memory.
    LanguageModel,
}

/// Configuration of a stack, in a translation model or a language model.
#[derive(Clone, Copy, Debug)]
pub struct StackConfig<'a> {
    /// Side of a stack: encoder or decoder.
    pub side: Side,
    /// Number of layers.
    pub layers: usize,
    /// D.
    pub width: usize,
    /// Inner width of the feed-forward sublayers.
    pub inner: usize,
    /// H.
    pub heads: usize,
    /// Width of a head; 0: D / H.
    pub head_dim: usize,
    /// Activation of the feed-forward sublayers.
    pub activation: Activation,
    /// Dropout of each sublayer's output.
    pub dropout: f32,
    /// Dropout of attention probabilities.
    pub attention_dropout: f32,
    /// Dropout after the activation.
    pub activation_dropout: f32,
    /// Position of layer norms.
    pub norm: NormOrder,
    /// True if pre-norm has a norm at the end.
    pub final_norm: bool,
    /// Mixture of the heads.
    pub mixture: &'a Mixture,
}

impl StackConfig<'_> {
    /// One of the attentions.
    pub fn attention(&self, kind: Kind) -> AttentionConfig<'_> {
        let Self { width, heads, head_dim, attention_dropout: dropout, mixture, .. } = *self;
        AttentionConfig { kind, width, heads, head_dim, dropout, mixture }
    }

    /// Tells `require` what must hold, and the fault where it does not; `side` begins the names of keys.
    pub(crate) fn check(&self, side: &str, require: &mut impl FnMut(bool, String)) {
        let Self { width, heads, mixture, .. } = *self;
        require(
            width > 0 && width.is_multiple_of(2),
            format!("{side}_embed_dim = {width} must be even and above 0"),
        );
        let divides = heads > 0 && (self.head_dim > 0 || width.is_multiple_of(heads));
        require(divides, format!("{side}_attention_heads = {heads} must divide {side}_embed_dim = {width}"));
        require(self.inner > 0, format!("{side}_ffn_embed_dim must be above 0"));
        for (key, p) in [
            ("dropout", self.dropout),
            ("attention_dropout", self.attention_dropout),
            ("activation_dropout", self.activation_dropout),
        ] {
            require((0.0..1.0).contains(&p), format!("{key} = {p} must be at least 0 and below 1"));
        }
        mixture.check(&self.attention(Kind::Encoder), require);
    }
}

/// The layers of an encoder or decoder.
pub struct Stack {
    /// Decoders: the keys and values of the memory.
    memory: Option<MemoryProjection>,
    sublayers: Vec<Sublayer>,
    /// One per sublayer; pre-norm may have one more, at the end.
    norms: Vec<LayerNorm>,
    order: NormOrder,
    dropout: f32,
}

impl Stack {
    /// Declares the parameters `<encoder|decoder>.layers.<i>.*` of a stack on `device`.
    pub fn declare(params: &mut ParamsBuilder, config: &StackConfig<'_>, device: &Device) -> Result<Self> {
        let (name, attentions): (_, &[(&str, Kind)]) = match config.side {
            Side::Encoder => ("encoder", &[("self_attn", Kind::Encoder)]),
            Side::Decoder => ("decoder", &[("self_attn", Kind::Decoder), ("encoder_attn", Kind::Cross)]),
            Side::LanguageModel => ("decoder", &[("self_attn", Kind::Decoder)]),
        };
        let StackConfig { width, inner, .. } = *config;
        let to_memory = attentions.iter().find(|(_, kind)| *kind == Kind::Cross);
        let memory = to_memory.map(|(part, kind)| {
            let names: Vec<_> =
                (0..config.layers).map(|layer| format!("{name}.layers.{layer}.{part}")).collect();
            MemoryProjection::declare(params, &names, &config.attention(*kind))
        });
        let (mut sublayers, mut norms) = (Vec::new(), Vec::new());
        for layer in 0..config.layers {
            let at = format!("{name}.layers.{layer}");
            for (part, kind) in attentions {
                let name = format!("{at}.{part}");
                let attention = MixtureAttention::declare(params, &name, &config.attention(*kind), device)?;
                sublayers.push(Sublayer::Attention(attention, if *kind == Kind::Cross { layer } else { 0 }));
                norms.push(declare_norm(params, &format!("{at}.{part}_layer_norm"), width));
            }
            let mut map = |part: &str, rows: usize, cols: usize| {
                [
                    params.matrix(format!("{at}.{part}.weight"), [rows, cols], REST),
                    params.vector(format!("{at}.{part}.bias"), rows, REST),
                ]
            };
            let (fc1, fc2) = (map("fc1", inner, width), map("fc2", width, inner));
            let StackConfig { activation, activation_dropout: dropout, .. } = *config;
            sublayers.push(Sublayer::FeedForward { fc1, fc2, activation, dropout });
            norms.push(declare_norm(params, &format!("{at}.final_layer_norm"), width));
        }
        if config.norm == NormOrder::Pre && config.final_norm {
            norms.push(declare_norm(params, &format!("{name}.layer_norm"), width));
        }
        Ok(Self { memory, sublayers, norms, order: config.norm, dropout: config.dropout })
    }

    /// x `[N, D]` through all layers; decoders are given the encoder's output as `memory`.
    pub fn forward(
        &self,
        pass: &mut Pass<'_, '_>,
        x: Var,
        rows: &Segments,
        memory: Option<(&Var, &Segments)>,
    ) -> Var {
        let projected = self.memory.as_ref().zip(memory).map(|(projection, (states, sentences))| {
            (states, sentences, projection.project(pass.tape, states))
        });
        self.run(pass, x, |pass, index, input| match &self.sublayers[index] {
            Sublayer::Attention(attention, part) => {
                let memory = projected.as_ref().map(|(states, sentences, kv)| AttendedMemory {
                    states,
                    sentences,
                    kv: kv.part(*part),
                });
                attention.forward(pass, input, rows, memory)
            }
            feed_forward => feed_forward.feed(pass.tape, input),
        })
    }

    /// Room for keys and values of the sources of a search; `None` for stacks without a memory.
    pub(crate) fn memory_room(&self, device: &Device, room: SearchRoom) -> Option<SlotTensor> {
        let room_for =
            |memory: &MemoryProjection| SlotTensor::activations(device, [room.source, memory.width()]);
        self.memory.as_ref().map(room_for)
    }

    /// Room for the states of all attentions in a search; feed-forward sublayers remember nothing.
    pub(crate) fn room(&self, device: &Device, room: SearchRoom, width: usize) -> Vec<AttentionState> {
        let room = |sublayer: &Sublayer| match sublayer {
            Sublayer::Attention(attention, _) => attention.room(device, room, width),
            Sublayer::FeedForward { .. } => AttentionState::nothing(),
        };
        self.sublayers.iter().map(room).collect()
    }

    /// Puts what a search must know about sources that join it: `kept` gets keys and values.
    pub(crate) fn admit(
        &self,
        pass: &mut Pass<'_, '_>,
        new: &Newcomers<'_>,
        (states, kept): (&mut [AttentionState], Option<&mut SlotTensor>),
    ) {
        if let (Some(projection), Some(kept)) = (&self.memory, kept) {
            projection.put(pass.tape, new.memory, kept, new.rows);
        }
        for (sublayer, state) in self.sublayers.iter().zip(states) {
            if let Sublayer::Attention(attention, _) = sublayer {
                attention.admit(pass, new, state);
            }
        }
    }

    /// Prepares the first step of a search.
    pub(crate) fn prepare(
        &self,
        params: &Params,
        mode: &ExpertMode,
        room: SearchRoom,
        states: &mut [AttentionState],
    ) {
        for (sublayer, state) in self.sublayers.iter().zip(states) {
            if let Sublayer::Attention(attention, _) = sublayer {
                attention.prepare(params, mode, room, state);
            }
        }
    }

    /// One new row per hypothesis through all layers.
    pub(crate) fn step(
        &self,
        pass: &mut Pass<'_, '_>,
        x: Var,
        states: &mut [AttentionState],
        at: &StepContext<'_>,
    ) -> Var {
        self.run(pass, x, |pass, index, input| match &self.sublayers[index] {
            Sublayer::Attention(attention, part) => {
                attention.step(pass, input, &mut states[index], at, *part)
            }
            feed_forward => feed_forward.feed(pass.tape, input),
        })
    }

    fn run<'p>(
        &self,
        pass: &mut Pass<'_, 'p>,
        x: Var,
        mut sublayer: impl FnMut(&mut Pass<'_, 'p>, usize, &Var) -> Var,
    ) -> Var {
        let mut stream = x;
        let mut input = match self.order {
            NormOrder::Post => stream.clone(),
            NormOrder::Pre => pass.tape.layer_norm(&stream, self.norms[0]),
        };
        for index in 0..self.sublayers.len() {
            let output = sublayer(pass, index, &input);
            let next = match self.order {
                NormOrder::Post => index,
                NormOrder::Pre => index + 1,
            };
            let Some(norm) = self.norms.get(next) else {
                return pass.tape.residual(&stream, &output, self.dropout);
            };
            let after = pass.tape.residual_norm(&stream, &output, self.dropout, *norm);
            stream = match self.order {
                NormOrder::Post => after.normed.clone(),
                NormOrder::Pre => after.sum,
            };
            input = after.normed;
        }
        input
    }
}

impl Sublayer {
    fn feed(&self, tape: &mut Tape<'_>, x: &Var) -> Var {
        let Self::FeedForward { fc1, fc2, activation, dropout } = self else {
            unreachable!("attentions are handled before")
        };
        let smooth = |tape: &mut Tape<'_>, curve: Curve| {
            let sums = linear(tape, x, *fc1);
            tape.activate(&sums, curve, *dropout)
        };
        let inner = match activation {
            Activation::Relu => tape.linear(x, fc1[0], fc1[1], Fused::Relu, *dropout),
            Activation::Swish => smooth(tape, Curve::Swish),
            Activation::Gelu => smooth(tape, Curve::Gelu),
        };
        linear(tape, &inner, *fc2)
    }
}

fn declare_norm(params: &mut ParamsBuilder, name: &str, width: usize) -> LayerNorm {
    LayerNorm {
        weight: params.vector(format!("{name}.weight"), width, REST),
        bias: params.vector(format!("{name}.bias"), width, REST),
    }
}
