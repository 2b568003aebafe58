//! What a language model is: sizes, how its vocabulary is cut, and which row of the paper's tables.

use serde::{Deserialize, Serialize};

use crate::config::{Activation, DecoderGate, Mixture, NormOrder, is_default};
use crate::folder::Task;
use crate::kind::Config;
use crate::stack::{Side, StackConfig};
use crate::{Error, Result, limits};

/// Sizes and choices of a language model. Key names are fairseq's where the meaning is the same. Layer norms stand before
/// each sublayer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LmConfig {
    /// The architecture this began as; for people.
    #[serde(default = "custom")]
    pub arch: String,
    /// Number of layers.
    pub decoder_layers: usize,
    /// D.
    pub decoder_embed_dim: usize,
    /// Inner width of the feed-forward sublayers.
    pub decoder_ffn_embed_dim: usize,
    /// H.
    pub decoder_attention_heads: usize,
    /// Dropout of embeddings and of each sublayer's output.
    #[serde(default)]
    pub dropout: f32,
    /// Dropout of attention probabilities.
    #[serde(default)]
    pub attention_dropout: f32,
    /// Dropout after the activation.
    #[serde(default)]
    pub activation_dropout: f32,
    /// Activation of the feed-forward sublayers. This key and the next are not written if they have their defaults.
    #[serde(default, skip_serializing_if = "is_default")]
    pub activation: Activation,
    /// Width of a head; 0: D / H. Other widths are those of models with fewer heads than they began with.
    #[serde(default, skip_serializing_if = "is_default")]
    pub head_dim: usize,
    /// Where the vocabulary is cut into bands, for adaptive input and softmax; empty: one embedding table that serves
    /// the output too.
    #[serde(default)]
    pub adaptive_softmax_cutoff: Vec<usize>,
    /// Band i has embeddings of width D / factor^i.
    #[serde(default = "factor")]
    pub adaptive_softmax_factor: usize,
    /// Dropout of the softmax' input and of the tails' projections.
    #[serde(default)]
    pub adaptive_softmax_dropout: f32,
    /// Whether the softmax uses the embeddings of the input.
    #[serde(default = "yes")]
    pub tie_adaptive_weights: bool,
    /// Whether the tails use the projections of the input, transposed.
    #[serde(default = "yes")]
    pub tie_adaptive_proj: bool,
    /// Whether there is a layer norm at the end.
    #[serde(default)]
    pub final_norm: bool,
    /// Tokens of the longest block (fairseq's `tokens_per_sample`).
    #[serde(default = "max_positions")]
    pub max_positions: usize,
    /// How heads are mixed.
    #[serde(default = "mixture")]
    pub mixture: Mixture,
}

fn custom() -> String {
    "custom".into()
}

fn factor() -> usize {
    4
}

fn yes() -> bool {
    true
}

/// Positions of the architectures, where nothing else is asked for.
pub fn max_positions() -> usize {
    512
}

/// Gates of language models read the last 100 inputs.
fn mixture() -> Mixture {
    Mixture { gate_window: 100, ..Mixture::default() }
}

/// The architectures that [`LmConfig::arch`] knows: fairseq's for WikiText-103, and smaller ones.
pub const ARCHITECTURES: [&str; 3] =
    ["transformer_lm_wiki103", "transformer_lm_small", "transformer_lm_tiny"];

impl LmConfig {
    /// A named architecture.
    pub fn arch(name: &str) -> Result<Self> {
        let (layers, width, inner, dropout, cutoff) = match name {
            "transformer_lm_wiki103" => (16, 1024, 4096, 0.3, vec![20_000, 60_000]),
            "transformer_lm_small" => (8, 512, 2048, 0.1, vec![20_000, 60_000]),
            "transformer_lm_tiny" => (3, 256, 512, 0.2, vec![4_000, 12_000]),
            _ => {
                let known = ARCHITECTURES.join(", ");
                return Err(Error::Config(vec![format!(
                    "no language model architecture is called `{name}`; there are {known}"
                )]));
            }
        };
        Ok(Self {
            arch: name.into(),
            decoder_layers: layers,
            decoder_embed_dim: width,
            decoder_ffn_embed_dim: inner,
            decoder_attention_heads: 8,
            dropout,
            attention_dropout: 0.1,
            activation_dropout: 0.1,
            activation: Activation::Relu,
            head_dim: 0,
            adaptive_softmax_cutoff: cutoff,
            adaptive_softmax_factor: factor(),
            adaptive_softmax_dropout: if name == "transformer_lm_wiki103" { 0.2 } else { 0.0 },
            tie_adaptive_weights: true,
            tie_adaptive_proj: true,
            final_norm: false,
            max_positions: max_positions(),
            mixture: mixture(),
        })
    }

    /// What the layers are made of.
    pub fn stack(&self) -> StackConfig<'_> {
        StackConfig {
            side: Side::LanguageModel,
            layers: self.decoder_layers,
            width: self.decoder_embed_dim,
            inner: self.decoder_ffn_embed_dim,
            heads: self.decoder_attention_heads,
            head_dim: self.head_dim,
            activation: self.activation,
            dropout: self.dropout,
            attention_dropout: self.attention_dropout,
            activation_dropout: self.activation_dropout,
            norm: NormOrder::Pre,
            final_norm: self.final_norm,
            mixture: &self.mixture,
        }
    }

    /// Width of the embeddings of a band.
    pub fn band_width(&self, band: usize) -> usize {
        (0..band).fold(self.decoder_embed_dim, |width, _| width / self.adaptive_softmax_factor)
    }

    /// All faults at once.
    pub fn check(&self) -> Result<()> {
        let mut faults = Vec::new();
        let mut require = |holds: bool, fault: String| {
            if !holds {
                faults.push(fault);
            }
        };
        require(self.decoder_layers > 0, "decoder_layers must be above 0".into());
        require(self.max_positions > 1, "max_positions must be above 1".into());
        self.stack().check("decoder", &mut require);
        limits::check(&self.stacks(), self.max_positions, &mut require);
        let (cutoffs, factor) = (&self.adaptive_softmax_cutoff, self.adaptive_softmax_factor);
        let rise = cutoffs.first() != Some(&0) && cutoffs.windows(2).all(|w| w[0] < w[1]);
        require(rise, format!("adaptive_softmax_cutoff = {cutoffs:?} must rise and begin above 0"));
        require(factor > 0, "adaptive_softmax_factor must be above 0".into());
        if factor > 0 {
            let narrowest = self.band_width(cutoffs.len());
            require(
                narrowest > 0,
                format!(
                    "adaptive_softmax_factor = {factor} leaves the last of {} bands no width",
                    cutoffs.len() + 1
                ),
            );
        }
        require(
            self.tie_adaptive_weights || !self.tie_adaptive_proj,
            "tie_adaptive_proj = true needs tie_adaptive_weights = true".into(),
        );
        let p = self.adaptive_softmax_dropout;
        require(
            (0.0..1.0).contains(&p),
            format!("adaptive_softmax_dropout = {p} must be at least 0 and below 1"),
        );
        require(
            self.mixture.decoder_gate == DecoderGate::Causal,
            "mixture.decoder_gate = \"whole\" would let a language model read what it is to predict".into(),
        );
        if faults.is_empty() { Ok(()) } else { Err(Error::Config(faults)) }
    }

    /// An error where the dictionary is too small for the cutoffs.
    pub fn check_types(&self, types: usize) -> Result<()> {
        match self.adaptive_softmax_cutoff.last() {
            Some(&last) if last >= types => Err(Error::Config(vec![format!(
                "adaptive_softmax_cutoff = {:?} with a dictionary of {types} types: cutoffs must be below that; give \
                 smaller ones, [{}, {}] for example, or none, [], for a plain softmax",
                self.adaptive_softmax_cutoff,
                types / 6,
                types / 2
            )])),
            _ => Ok(()),
        }
    }
}

impl Config for LmConfig {
    const TASK: Task = Task::LanguageModeling;
    const DEFAULT_ARCH: &'static str = "transformer_lm_wiki103";
    const UNWRITTEN: &'static [(&'static str, &'static str)] = &[("activation", "relu"), ("head_dim", "0")];

    fn named(arch: &str) -> Result<Self> {
        Self::arch(arch)
    }

    fn name(&self) -> &str {
        &self.arch
    }

    fn check(&self) -> Result<()> {
        self.check()
    }

    fn mixture(&self) -> &Mixture {
        &self.mixture
    }

    fn heads(&self) -> usize {
        self.decoder_attention_heads
    }

    fn stacks(&self) -> Vec<StackConfig<'_>> {
        vec![self.stack()]
    }

    fn max_positions(&self) -> usize {
        self.max_positions
    }

    fn sizes(&self) -> Vec<(&'static str, String)> {
        vec![
            ("decoder_layers", self.decoder_layers.to_string()),
            ("decoder_embed_dim", self.decoder_embed_dim.to_string()),
            ("decoder_ffn_embed_dim", self.decoder_ffn_embed_dim.to_string()),
            ("decoder_attention_heads", self.decoder_attention_heads.to_string()),
            ("adaptive_softmax_cutoff", format!("{:?}", self.adaptive_softmax_cutoff)),
            ("adaptive_softmax_factor", self.adaptive_softmax_factor.to_string()),
            ("tie_adaptive_weights", self.tie_adaptive_weights.to_string()),
            ("tie_adaptive_proj", self.tie_adaptive_proj.to_string()),
            ("final_norm", self.final_norm.to_string()),
            ("activation", format!("{:?}", self.activation).to_lowercase()),
            ("head_dim", self.head_dim.to_string()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_valid_and_survive_a_round_trip() {
        for name in ARCHITECTURES {
            let config = LmConfig::arch(name).unwrap();
            config.check().unwrap();
            assert_eq!(toml::from_str::<LmConfig>(&toml::to_string(&config).unwrap()).unwrap(), config);
        }
    }

    #[test]
    fn all_faults_come_at_once() {
        let mut config = LmConfig::arch("transformer_lm_tiny").unwrap();
        config.decoder_attention_heads = 7;
        config.adaptive_softmax_cutoff = vec![10, 10];
        config.adaptive_softmax_factor = 300;
        config.mixture.decoder_gate = DecoderGate::Whole;
        let text = config.check().unwrap_err().to_string();
        for part in [
            "decoder_attention_heads = 7",
            "adaptive_softmax_cutoff = [10, 10]",
            "adaptive_softmax_factor = 300",
            "mixture.decoder_gate",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_dictionary_that_is_too_small_is_refused() {
        let config = LmConfig::arch("transformer_lm_tiny").unwrap();
        config.check_types(12_001).unwrap();
        let text = config.check_types(12_000).unwrap_err().to_string();
        assert!(text.contains("[4000, 12000]") && text.contains("12000 types"), "{text}");
    }
}
