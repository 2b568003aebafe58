//! What a model is: sizes, norm order, sharing, and which row of the paper's tables.

use mae_data::vocab::{BOS, EOS, PAD};
use serde::{Deserialize, Serialize};

use crate::experts::Experts;
use crate::folder::Task;
use crate::kind::Config;
pub use crate::mixture::{CrossGate, DecoderGate, GateReads, Mixture, SamplingUnit};
use crate::stack::{Side, StackConfig};
pub use crate::system::System;
use crate::translator::Marks;
use crate::{Error, Result, limits};

/// Sizes and choices of a translation model. Key names are fairseq's where the meaning is the same; encoder and
/// decoder have the same width, inner width and heads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelConfig {
    /// The architecture this began as; for people.
    #[serde(default = "custom")]
    pub arch: String,
    /// Layers of the encoder.
    pub encoder_layers: usize,
    /// Layers of the decoder.
    pub decoder_layers: usize,
    /// D.
    pub encoder_embed_dim: usize,
    /// Inner width of the feed-forward sublayers.
    pub encoder_ffn_embed_dim: usize,
    /// H.
    pub encoder_attention_heads: usize,
    /// Dropout of embeddings and of each sublayer's output.
    #[serde(default)]
    pub dropout: f32,
    /// Dropout of attention probabilities.
    #[serde(default)]
    pub attention_dropout: f32,
    /// Dropout after the activation.
    #[serde(default)]
    pub activation_dropout: f32,
    /// Activation of the feed-forward sublayers. This key and the next six are not written if they have their defaults.
    #[serde(default, skip_serializing_if = "is_default")]
    pub activation: Activation,
    /// Width of a head; 0: D / H. Other widths are those of models with fewer heads than they began with.
    #[serde(default, skip_serializing_if = "is_default")]
    pub head_dim: usize,
    /// Position vectors.
    #[serde(default, skip_serializing_if = "is_default")]
    pub positions: Positions,
    /// True if embeddings are not multiplied by √D.
    #[serde(default, skip_serializing_if = "is_default")]
    pub no_scale_embedding: bool,
    /// First symbol that the decoder reads.
    #[serde(default, skip_serializing_if = "is_default")]
    pub decoder_start: DecoderStart,
    /// True if the projection to the vocabulary has a bias.
    #[serde(default, skip_serializing_if = "is_default")]
    pub output_bias: bool,
    /// End of source sentences.
    #[serde(default, skip_serializing_if = "is_default")]
    pub source_end: SourceEnd,
    /// Where layer norms stand.
    #[serde(default)]
    pub norm: NormOrder,
    /// Which embeddings are one.
    #[serde(default)]
    pub share_embeddings: Sharing,
    /// The longest sentence, in tokens with the end mark.
    #[serde(default = "max_positions")]
    pub max_positions: usize,
    /// How heads are mixed.
    #[serde(default)]
    pub mixture: Mixture,
}

fn custom() -> String {
    "custom".into()
}

fn max_positions() -> usize {
    1024
}

/// True if a key has its default.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Where layer norms stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NormOrder {
    /// After each residual sum (fairseq's default for translation).
    #[default]
    Post,
    /// Before each sublayer, and once at the end of each stack.
    Pre,
}

/// Activation of feed-forward sublayers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// max(0, x).
    #[default]
    Relu,
    /// x·σ(x), also called SiLU.
    Swish,
    /// x·Φ(x), with the distribution function Φ of the normal distribution (not its approximation by tanh).
    Gelu,
}

/// Position vectors, which are added to embeddings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Positions {
    /// fairseq's sinusoids; a sentence begins with position 2.
    #[default]
    Fairseq,
    /// The sinusoids of Hugging Face's Marian; a sentence begins with position 0.
    Marian,
    /// Parameters `{encoder,decoder}.embed_positions.weight` `[max_positions, D]`, which are never trained.
    Table,
}

/// First symbol that the decoder reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecoderStart {
    /// The end mark, `</s>` (fairseq).
    #[default]
    Eos,
    /// `<pad>` (Marian).
    Pad,
    /// `<s>`.
    Bos,
}

impl DecoderStart {
    /// Id of the symbol.
    pub fn id(self) -> u32 {
        match self {
            Self::Eos => EOS,
            Self::Pad => PAD,
            Self::Bos => BOS,
        }
    }
}

/// End of source sentences.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceEnd {
    /// The end mark, `</s>`.
    #[default]
    Mark,
    /// No mark: the encoder does not read those that batches hold (OpenNMT). An empty sentence keeps it.
    None,
}

/// Which embeddings are one matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharing {
    /// Source, target and output each have their own.
    None,
    /// Target and output (`--share-decoder-input-output-embed`).
    #[default]
    Decoder,
    /// All three (`--share-all-embeddings`); needs one dictionary for both sides.
    All,
}

/// The architectures that `arch` knows: fairseq's names, and a small one for small machines.
pub const ARCHITECTURES: [&str; 4] = [
    "transformer_iwslt_de_en",
    "transformer_wmt_en_de",
    "transformer_vaswani_wmt_en_de_big",
    "transformer_tiny",
];

impl ModelConfig {
    /// A named architecture. `transformer_iwslt_de_en` has 8 heads, as the paper needs, where fairseq's has 4.
    pub fn arch(name: &str) -> Result<Self> {
        let (layers, width, inner, heads, dropout) = match name {
            "transformer_iwslt_de_en" => (6, 512, 1024, 8, 0.3),
            "transformer_wmt_en_de" => (6, 512, 2048, 8, 0.1),
            "transformer_vaswani_wmt_en_de_big" => (6, 1024, 4096, 16, 0.3),
            "transformer_tiny" => (3, 256, 512, 8, 0.3),
            _ => {
                let known = ARCHITECTURES.join(", ");
                return Err(Error::Config(vec![format!(
                    "no architecture is called `{name}`; there are {known}"
                )]));
            }
        };
        Ok(Self {
            arch: name.into(),
            encoder_layers: layers,
            decoder_layers: layers,
            encoder_embed_dim: width,
            encoder_ffn_embed_dim: inner,
            encoder_attention_heads: heads,
            dropout,
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            activation: Activation::Relu,
            head_dim: 0,
            positions: Positions::Fairseq,
            no_scale_embedding: false,
            decoder_start: DecoderStart::Eos,
            output_bias: false,
            source_end: SourceEnd::Mark,
            norm: NormOrder::Post,
            share_embeddings: Sharing::Decoder,
            max_positions: max_positions(),
            mixture: Mixture::default(),
        })
    }

    /// The experts of each attention; `None` for systems without.
    pub fn experts(&self) -> Option<Experts> {
        self.mixture.experts(self.encoder_attention_heads)
    }

    /// Marks of sentences as the model reads them.
    pub fn marks(&self) -> Marks {
        Marks { start: self.decoder_start, source_end: self.source_end }
    }

    /// What one of the stacks is made of.
    pub fn stack(&self, side: Side) -> StackConfig<'_> {
        StackConfig {
            side,
            layers: if side == Side::Encoder { self.encoder_layers } else { self.decoder_layers },
            width: self.encoder_embed_dim,
            inner: self.encoder_ffn_embed_dim,
            heads: self.encoder_attention_heads,
            head_dim: self.head_dim,
            activation: self.activation,
            dropout: self.dropout,
            attention_dropout: self.attention_dropout,
            activation_dropout: self.activation_dropout,
            norm: self.norm,
            final_norm: true,
            mixture: &self.mixture,
        }
    }

    /// All faults at once.
    pub fn check(&self) -> Result<()> {
        let mut faults = Vec::new();
        let mut require = |holds: bool, fault: String| {
            if !holds {
                faults.push(fault);
            }
        };
        let layers = self.encoder_layers > 0 && self.decoder_layers > 0;
        require(layers, "encoder_layers and decoder_layers must be above 0".into());
        require(self.max_positions > 1, "max_positions must be above 1".into());
        self.stack(Side::Encoder).check("encoder", &mut require);
        limits::check(&self.stacks(), self.max_positions, &mut require);
        if faults.is_empty() { Ok(()) } else { Err(Error::Config(faults)) }
    }
}

impl Config for ModelConfig {
    const TASK: Task = Task::Translation;
    const DEFAULT_ARCH: &'static str = "transformer_iwslt_de_en";
    const UNWRITTEN: &'static [(&'static str, &'static str)] = &[
        ("activation", "relu"),
        ("head_dim", "0"),
        ("positions", "fairseq"),
        ("no_scale_embedding", "false"),
        ("decoder_start", "eos"),
        ("output_bias", "false"),
        ("source_end", "mark"),
    ];

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
        self.encoder_attention_heads
    }

    fn stacks(&self) -> Vec<StackConfig<'_>> {
        vec![self.stack(Side::Encoder), self.stack(Side::Decoder)]
    }

    fn max_positions(&self) -> usize {
        self.max_positions
    }

    fn sizes(&self) -> Vec<(&'static str, String)> {
        vec![
            ("encoder_layers", self.encoder_layers.to_string()),
            ("decoder_layers", self.decoder_layers.to_string()),
            ("encoder_embed_dim", self.encoder_embed_dim.to_string()),
            ("encoder_ffn_embed_dim", self.encoder_ffn_embed_dim.to_string()),
            ("encoder_attention_heads", self.encoder_attention_heads.to_string()),
            ("norm", format!("{:?}", self.norm).to_lowercase()),
            ("share_embeddings", format!("{:?}", self.share_embeddings).to_lowercase()),
            ("activation", format!("{:?}", self.activation).to_lowercase()),
            ("head_dim", self.head_dim.to_string()),
            ("positions", format!("{:?}", self.positions).to_lowercase()),
            ("no_scale_embedding", self.no_scale_embedding.to_string()),
            ("decoder_start", format!("{:?}", self.decoder_start).to_lowercase()),
            ("output_bias", self.output_bias.to_string()),
            ("source_end", format!("{:?}", self.source_end).to_lowercase()),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn architectures_are_valid_and_survive_a_round_trip() {
        for name in ARCHITECTURES {
            let config = ModelConfig::arch(name).unwrap();
            config.check().unwrap();
            assert_eq!(toml::from_str::<ModelConfig>(&toml::to_string(&config).unwrap()).unwrap(), config);
        }
    }

    /// Files of models that use no newer key are those of version 0.1.
    #[test]
    fn newer_keys_are_written_where_they_differ_from_their_defaults() {
        let config = ModelConfig::arch("transformer_tiny").unwrap();
        let text = toml::to_string(&config).unwrap();
        for (key, default) in ModelConfig::UNWRITTEN {
            assert!(!text.contains(&format!("\n{key} = ")), "{key} in {text}");
            let default = default.parse::<toml::Value>().map_or(format!("\"{default}\""), |v| v.to_string());
            let explicit = format!("{key} = {default}\n{text}");
            assert_eq!(toml::from_str::<ModelConfig>(&explicit).unwrap(), config, "{key}");
        }
        let marian = ModelConfig {
            activation: Activation::Swish,
            head_dim: 16,
            positions: Positions::Marian,
            no_scale_embedding: true,
            decoder_start: DecoderStart::Pad,
            output_bias: true,
            source_end: SourceEnd::None,
            ..config
        };
        marian.check().unwrap();
        let text = toml::to_string(&marian).unwrap();
        assert!(
            ModelConfig::UNWRITTEN.iter().all(|(key, _)| text.contains(&format!("\n{key} = "))),
            "{text}"
        );
        assert_eq!(toml::from_str::<ModelConfig>(&text).unwrap(), marian);
    }

    #[test]
    fn all_faults_come_at_once() {
        let mut config = ModelConfig::arch("transformer_tiny").unwrap();
        config.encoder_attention_heads = 7;
        config.dropout = 1.0;
        config.mixture = Mixture { system: System::MAE, dropped_heads: 9, ..Mixture::default() };
        let text = config.check().unwrap_err().to_string();
        for part in ["encoder_attention_heads = 7", "dropout = 1", "dropped_heads = 9"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn unknown_keys_are_refused() {
        let text = toml::to_string(&ModelConfig::arch("transformer_tiny").unwrap()).unwrap();
        let error = toml::from_str::<ModelConfig>(&format!("heads = 3\n{text}")).unwrap_err().to_string();
        assert!(error.contains("heads"), "{error}");
    }
}
