//! Models and batches for benchmarks.

use anyhow::{Result, ensure};
use mae_data::vocab::{EOS, SPECIALS, VocabOptions};
use mae_data::{BatchSampler, MemoryDataset, PackedBatch, ParallelDataset, SamplerOptions, Sentences, Vocab};
use mae_engine::{Rng, Stream};
use mae_model::ModelConfig;
use mae_train::{Recipe, RunConfig};

use super::peer::Flags;

/// Size of the model; by default that of the IWSLT14 task.
#[derive(Clone, clap::Args)]
pub struct Shape {
    /// Width of the model.
    #[arg(long, default_value_t = 512)]
    pub width: usize,
    /// Inner width of the feed-forward sublayers.
    #[arg(long, default_value_t = 1024)]
    pub inner: usize,
    /// Layers of the encoder and of the decoder.
    #[arg(long, default_value_t = 6)]
    pub layers: usize,
    /// Number of attention heads.
    #[arg(long, default_value_t = 8)]
    pub heads: usize,
    /// Number of types in the source dictionary.
    #[arg(long, default_value_t = 8848)]
    pub src_vocab: usize,
    /// Number of types in the target dictionary.
    #[arg(long, default_value_t = 6632)]
    pub tgt_vocab: usize,
}

impl Shape {
    /// Checks the sizes.
    pub fn check(&self) -> Result<()> {
        check_sizes([self.width, self.inner, self.layers, self.heads])?;
        let specials = SPECIALS.len();
        for (flag, types) in [("src-vocab", self.src_vocab), ("tgt-vocab", self.tgt_vocab)] {
            ensure!(types > specials, "--{flag} must be above {specials}, the special tokens");
        }
        Ok(())
    }

    /// Configuration of `variant` with these sizes.
    pub fn config(&self, variant: &str) -> Result<RunConfig> {
        let mut recipe = Recipe::load("iwslt14-base")?;
        for (key, value) in [
            ("encoder_embed_dim", self.width),
            ("encoder_ffn_embed_dim", self.inner),
            ("encoder_layers", self.layers),
            ("decoder_layers", self.layers),
            ("encoder_attention_heads", self.heads),
        ] {
            recipe = recipe.set(&format!("model.{key}={value}"))?;
        }
        Ok(recipe.with_system(variant)?.config()?)
    }

    /// Sizes as flags of the peer.
    pub fn flags(&self) -> Flags {
        vec![
            ("width", self.width.to_string()),
            ("inner", self.inner.to_string()),
            ("layers", self.layers.to_string()),
            ("heads", self.heads.to_string()),
            ("src-vocab", self.src_vocab.to_string()),
            ("tgt-vocab", self.tgt_vocab.to_string()),
        ]
    }
}

/// Returns an error if a width, inner width, number of layers or number of heads is 0.
pub fn check_sizes(sizes: [usize; 4]) -> Result<()> {
    for (flag, size) in ["width", "inner", "layers", "heads"].into_iter().zip(sizes) {
        ensure!(size > 0, "--{flag} must be above 0");
    }
    Ok(())
}

/// Tokens of the longest sentence, including the end mark.
pub const LONGEST: usize = 175;

/// Batches of random words with the lengths of IWSLT14 after 10,000 merges: ln(source) normal with mean 3.0 and
/// deviation 0.62, ln(target/source) with mean −0.05 and deviation 0.18, as the peer draws them.
pub fn batches(
    shape: &Shape,
    model: &ModelConfig,
    max_tokens: u32,
    count: usize,
) -> Result<Vec<PackedBatch>> {
    let stream = Rng::new(1, 0).stream(0);
    let sentences = 40_000;
    let length = |value: f64| (value as usize).clamp(2, LONGEST - 1) + 1;
    let (mut sources, mut targets) = (MemoryDataset::default(), MemoryDataset::default());
    for i in 0..sentences {
        let normal = |column: u32| f64::from(stream.normal(i, column));
        let source = length((3.0 + 0.62 * normal(0)).exp());
        let target = length(source as f64 * (-0.05 + 0.18 * normal(1)).exp());
        sources.push(&random_sentence(stream, i, 1000, source, shape.src_vocab));
        targets.push(&random_sentence(stream, i, 2000, target, shape.tgt_vocab));
    }
    let vocab =
        std::sync::Arc::new(Vocab::from_counts(std::iter::empty::<(&str, u64)>(), VocabOptions::default()));
    let data = ParallelDataset {
        src: Sentences::Memory(sources),
        tgt: Sentences::Memory(targets),
        src_vocab: vocab.clone(),
        tgt_vocab: vocab,
    };
    let positions = model.max_positions as u32;
    let options = SamplerOptions {
        max_tokens,
        max_positions: Some((positions, positions)),
        ..SamplerOptions::default()
    };
    let sampler = BatchSampler::new(&data.lengths(), options)?;
    Ok(sampler.epoch(1).iter().take(count).map(|ids| PackedBatch::from_pairs(&data, ids)).collect())
}

/// Random sentence of `len` ids, ending with the end mark, drawn from row `row` of the stream.
pub fn random_sentence(stream: Stream, row: u32, column: u32, len: usize, types: usize) -> Vec<u32> {
    let word = |j: usize| 4 + (stream.uniform(row, column + j as u32) * (types - 4) as f32) as u32;
    (0..len - 1).map(|j| word(j).min(types as u32 - 1)).chain([EOS]).collect()
}
