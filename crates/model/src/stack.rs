//! A stack of sublayers: attention and feed-forward, each followed by dropout, the residual sum and a norm.
//!
//! Post-norm: `x ← norm_i(x + drop(f_i(x)))`. Pre-norm: `x ← x + drop(f_i(norm_i(x)))` and one norm at the end. Both
//! are one loop: between sublayers runs a pair (stream, input of the next sublayer); the op that follows a sublayer
//! adds to the stream and norms the sum with the norm that comes next in that order.

use mae_engine::ops::linear::Activation;
use mae_engine::ops::residual_norm::LayerNorm;
use mae_engine::{Device, ParamId, ParamsBuilder, Segments, Tape, Tensor, Var};

use crate::attention::{AttentionState, Kind, MixtureAttention, Pass, SearchRoom, StepContext, linear};
use crate::config::{ModelConfig, NormOrder};
use crate::groups::REST;

enum Sublayer {
    Attention(MixtureAttention),
    FeedForward { fc1: [ParamId; 2], fc2: [ParamId; 2], dropout: f32 },
}

/// Which stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Self-attention and feed-forward.
    Encoder,
    /// Causal self-attention, attention to the memory, feed-forward.
    Decoder,
}

/// The layers of an encoder or decoder.
pub struct Stack {
    sublayers: Vec<Sublayer>,
    /// One per sublayer; pre-norm has one more, at the end.
    norms: Vec<LayerNorm>,
    order: NormOrder,
    dropout: f32,
}

impl Stack {
    /// Declares the parameters `<encoder|decoder>.layers.<i>.*`; `experts` is M.
    pub fn declare(params: &mut ParamsBuilder, side: Side, config: &ModelConfig, experts: &Tensor) -> Self {
        let (name, layers) = match side {
            Side::Encoder => ("encoder", config.encoder_layers),
            Side::Decoder => ("decoder", config.decoder_layers),
        };
        let (width, inner) = (config.encoder_embed_dim, config.encoder_ffn_embed_dim);
        let (mut sublayers, mut norms) = (Vec::new(), Vec::new());
        for layer in 0..layers {
            let at = format!("{name}.layers.{layer}");
            let attentions: &[(&str, Kind)] = match side {
                Side::Encoder => &[("self_attn", Kind::Encoder)],
                Side::Decoder => &[("self_attn", Kind::Decoder), ("encoder_attn", Kind::Cross)],
            };
            for (part, kind) in attentions {
                let attention =
                    MixtureAttention::declare(params, &format!("{at}.{part}"), *kind, config, experts);
                sublayers.push(Sublayer::Attention(attention));
                norms.push(declare_norm(params, &format!("{at}.{part}_layer_norm"), width));
            }
            let mut map = |part: &str, rows: usize, cols: usize| {
                [
                    params.matrix(format!("{at}.{part}.weight"), [rows, cols], REST),
                    params.vector(format!("{at}.{part}.bias"), rows, REST),
                ]
            };
            let (fc1, fc2) = (map("fc1", inner, width), map("fc2", width, inner));
            sublayers.push(Sublayer::FeedForward { fc1, fc2, dropout: config.activation_dropout });
            norms.push(declare_norm(params, &format!("{at}.final_layer_norm"), width));
        }
        if config.norm == NormOrder::Pre {
            norms.push(declare_norm(params, &format!("{name}.layer_norm"), width));
        }
        Self { sublayers, norms, order: config.norm, dropout: config.dropout }
    }

    /// x `[N, D]` through all layers; decoders are given the encoder's output as `memory`.
    pub fn forward(
        &self,
        pass: &mut Pass<'_, '_>,
        x: Var,
        rows: &Segments,
        memory: Option<(&Var, &Segments)>,
    ) -> Var {
        self.run(pass, x, |pass, index, input| match &self.sublayers[index] {
            Sublayer::Attention(attention) => attention.forward(pass, input, rows, memory),
            feed_forward => feed_forward.feed(pass.tape, input),
        })
    }

    /// Room for the states of all attentions in a search; feed-forward sublayers remember nothing.
    pub(crate) fn room(&self, device: &Device, room: SearchRoom, width: usize) -> Vec<AttentionState> {
        let room = |sublayer: &Sublayer| match sublayer {
            Sublayer::Attention(attention) => attention.room(device, room, width),
            Sublayer::FeedForward { .. } => AttentionState::nothing(),
        };
        self.sublayers.iter().map(room).collect()
    }

    /// Makes the states those before the first step.
    pub(crate) fn start(
        &self,
        pass: &mut Pass<'_, '_>,
        memory: &Var,
        keys: &Segments,
        states: &mut [AttentionState],
    ) {
        for (sublayer, state) in self.sublayers.iter().zip(states) {
            if let Sublayer::Attention(attention) = sublayer {
                attention.start(pass, memory, keys, state);
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
            Sublayer::Attention(attention) => attention.step(pass, input, &mut states[index], at),
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
            let after = pass.tape.residual_norm(&stream, &output, self.dropout, self.norms[next]);
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
        let Self::FeedForward { fc1, fc2, dropout } = self else {
            unreachable!("attentions are handled before")
        };
        let inner = tape.linear(x, fc1[0], fc1[1], Activation::Relu, *dropout);
        linear(tape, &inner, *fc2)
    }
}

fn declare_norm(params: &mut ParamsBuilder, name: &str, width: usize) -> LayerNorm {
    LayerNorm {
        weight: params.vector(format!("{name}.weight"), width, REST),
        bias: params.vector(format!("{name}.bias"), width, REST),
    }
}
