//! `mae bench train-lm`: tokens per second for each kind of training step of a language model.

use anyhow::{Result, ensure};
use mae_data::PackedBatch;
use mae_engine::Rng;
use mae_engine::ops::adaptive::Bands;
use mae_model::LanguageModel;
use mae_model::lm::LmConfig;
use mae_train::{Learner, Recipe, RunConfig};

use super::peer::Flags;
use super::shapes::check_sizes;
use super::steps::{Bench, Timing};

const EXAMPLES: &str = "\
Examples:
  Measure on a GPU, beside PyTorch (from the repository's root, with PyTorch installed):
    mae bench train-lm --device cuda --steps 20 --rounds 3 \\
        --peer 'python3 tools/oracle/lm_bench.py --compile'

  Measure a smaller model, for CPUs:
    mae bench train-lm --layers 3 --width 256 --inner 512 --vocab 33280 \\
        --cutoffs 4000,12000 \\
        --tokens-per-sample 128 --max-tokens 2048";

/// Measure training of language models: tokens per second of F and G steps.
///
/// Each update is one batch of --max-tokens tokens in full blocks. Words are drawn with the frequencies of Wikipedia's
/// text, so that the bands of the vocabulary get realistic shares. The default model is transformer_lm_wiki103 with
/// the dictionary of WikiText-103, trained as in the recipe wiki103-base. With --peer, the peer runs in turn with each
/// variant, and ratios are printed.
#[derive(clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Tokens per update, a multiple of --tokens-per-sample.
    #[arg(long, default_value_t = 4096)]
    max_tokens: usize,
    /// Tokens per block.
    #[arg(long, default_value_t = 512)]
    tokens_per_sample: usize,
    #[command(flatten)]
    timing: Timing,
    #[command(flatten)]
    shape: LmSizes,
}

/// Size of the model; by default that of transformer_lm_wiki103.
#[derive(clap::Args)]
struct LmSizes {
    /// Width of the model.
    #[arg(long, default_value_t = 1024)]
    width: usize,
    /// Inner width of the feed-forward sublayers.
    #[arg(long, default_value_t = 4096)]
    inner: usize,
    /// Number of layers.
    #[arg(long, default_value_t = 16)]
    layers: usize,
    /// Number of attention heads.
    #[arg(long, default_value_t = 8)]
    heads: usize,
    /// Number of types in the dictionary.
    #[arg(long, default_value_t = 267_744)]
    vocab: usize,
    /// Ids that divide the vocabulary into bands; an empty list gives a plain softmax.
    #[arg(long, default_value = "20000,60000", value_name = "N,…")]
    cutoffs: String,
}

/// Runs the command.
pub fn run(args: Args) -> Result<()> {
    let Args { max_tokens, tokens_per_sample, timing, shape } = &args;
    ensure!(
        *tokens_per_sample > 0 && *max_tokens > 0 && max_tokens % tokens_per_sample == 0,
        "--max-tokens {max_tokens} must be a multiple of --tokens-per-sample {tokens_per_sample}"
    );
    shape.check()?;
    let bench = Bench::open(timing, "tokens")?;
    for variant in &timing.variants {
        let config = shape.config(variant, *max_tokens, *tokens_per_sample)?;
        let model = LanguageModel::new(&config.model, shape.vocab, &bench.device, 1)?;
        let data = batches(shape.vocab, timing.steps, *max_tokens, *tokens_per_sample);
        let tflop = tflop(&config.model, model.bands(), &data);
        let mut flags = shape.flags();
        flags.push(("max-tokens", max_tokens.to_string()));
        flags.push(("tokens-per-sample", tokens_per_sample.to_string()));
        bench.measure(variant, Learner::new(model, &config.train), &data, tflop, flags)?;
    }
    bench.finish()
}

impl LmSizes {
    /// Checks the sizes.
    fn check(&self) -> Result<()> {
        check_sizes([self.width, self.inner, self.layers, self.heads])?;
        ensure!(self.vocab > FIRST_WORD, "--vocab must be above {FIRST_WORD}");
        Ok(())
    }

    /// Configuration of `variant` with these sizes.
    fn config(
        &self,
        variant: &str,
        max_tokens: usize,
        tokens_per_sample: usize,
    ) -> Result<RunConfig<LmConfig>> {
        let mut recipe = Recipe::load("wiki103-base")?;
        for (key, value) in [
            ("model.decoder_embed_dim", self.width.to_string()),
            ("model.decoder_ffn_embed_dim", self.inner.to_string()),
            ("model.decoder_layers", self.layers.to_string()),
            ("model.decoder_attention_heads", self.heads.to_string()),
            ("model.adaptive_softmax_cutoff", format!("[{}]", self.cutoffs)),
            ("model.max_positions", tokens_per_sample.to_string()),
            ("train.tokens_per_sample", tokens_per_sample.to_string()),
            ("train.max_tokens", max_tokens.to_string()),
        ] {
            recipe = recipe.set(&format!("{key}={value}"))?;
        }
        Ok(recipe.with_system(variant)?.config()?)
    }

    /// Sizes as flags of the peer.
    fn flags(&self) -> Flags {
        vec![
            ("width", self.width.to_string()),
            ("inner", self.inner.to_string()),
            ("layers", self.layers.to_string()),
            ("heads", self.heads.to_string()),
            ("vocab", self.vocab.to_string()),
            ("cutoffs", self.cutoffs.clone()),
        ]
    }
}

/// First id of a word; special tokens come before it.
const FIRST_WORD: usize = 4;

/// Batches of full blocks of random words. The word of rank r has a frequency proportional to 1 / (r · (1 + r/20,000)^0.9),
/// fitted to the articles of Wikipedia that WikiText-103 is made of: 93 % of the tokens are among the 20,000 most frequent
/// words, 4 % among the next 40,000, 2.5 % beyond. The peer draws words in the same way.
fn batches(vocab: usize, count: usize, tokens: usize, per_block: usize) -> Vec<PackedBatch> {
    let weight = |rank: usize| 1.0 / (rank as f64 * (1.0 + rank as f64 / 20_000.0).powf(0.9));
    let below: Vec<f64> = (1..=vocab - FIRST_WORD)
        .scan(0.0, |sum, rank| {
            *sum += weight(rank);
            Some(*sum)
        })
        .collect();
    let total = below[below.len() - 1];
    let stream = Rng::new(1, 0).stream(0);
    let word = |batch: usize, at: usize| {
        // 24 bits are too few for the rarest words, so two numbers make one.
        let (high, low) =
            (stream.uniform(batch as u32, 2 * at as u32), stream.uniform(batch as u32, 2 * at as u32 + 1));
        let drawn = (f64::from(high) + f64::from(low) / f64::from(1 << 24)) * total;
        (FIRST_WORD + below.partition_point(|&sum| sum <= drawn).min(below.len() - 1)) as u32
    };
    let batch = |number: usize| {
        // One word more than targets: each target follows its input.
        let words: Vec<u32> = (0..=tokens).map(|at| word(number, at)).collect();
        PackedBatch {
            prev: words[..tokens].to_vec(),
            tgt: words[1..].to_vec(),
            tgt_starts: (0..=tokens / per_block).map(|block| (block * per_block) as u32).collect(),
            ids: (0..(tokens / per_block) as u32).collect(),
            ..PackedBatch::default()
        }
    };
    (0..count).map(batch).collect()
}

/// Operations of matrix products in the forward pass of an average update, in units of 10¹²: 2 for each weight and row.
/// Products inside attention and gates are not counted.
fn tflop(config: &LmConfig, bands: &Bands, data: &[PackedBatch]) -> f64 {
    let (d, inner) = (config.decoder_embed_dim as f64, config.decoder_ffn_embed_dim as f64);
    let layers = config.decoder_layers as f64 * (4.0 * d * d + 2.0 * d * inner);
    let products = |batch: &PackedBatch| {
        let (input, output) = (bands.counts(&batch.prev), bands.counts(&batch.tgt));
        let tokens = batch.tgt_tokens() as f64;
        let head = d * (bands.range(0).len() + bands.count() - 1) as f64;
        let mut sum = tokens * (layers + head);
        if bands.count() > 1 {
            for band in 0..bands.count() {
                let width = config.band_width(band) as f64;
                sum += input[band] as f64 * d * width;
                if band > 0 {
                    sum += output[band] as f64 * width * (d + bands.range(band).len() as f64);
                }
            }
        }
        sum
    };
    2.0 * data.iter().map(products).sum::<f64>() / data.len() as f64 / 1e12
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_get_the_shares_of_real_text() {
        let bands = Bands::new(&[20_000, 60_000], 267_744);
        let data = batches(267_744, 10, 4096, 512);
        let mut counts = [0; 3];
        for batch in &data {
            assert_eq!((batch.sentences(), batch.tgt_tokens()), (8, 4096));
            assert_eq!(batch.prev[1..], batch.tgt[..4095]);
            bands.counts(&batch.tgt).iter().zip(&mut counts).for_each(|(n, sum)| *sum += n);
        }
        let share = |band: usize| counts[band] as f64 / 40_960.0;
        assert!((0.92..0.945).contains(&share(0)), "{counts:?}");
        assert!((0.035..0.05).contains(&share(1)) && (0.018..0.032).contains(&share(2)), "{counts:?}");
        assert_ne!(data[0].tgt, data[1].tgt);
    }

    #[test]
    fn products_of_the_forward_pass_are_those_of_the_weights() {
        let config = LmConfig::arch("transformer_lm_wiki103").unwrap();
        let bands = Bands::new(&[20_000, 60_000], 267_744);
        // One token of the first band: every weight of the layers, the first band's projection and the head.
        let batch =
            PackedBatch { prev: vec![5], tgt: vec![6], tgt_starts: vec![0, 1], ..PackedBatch::default() };
        let weights = 16 * 12 * 1024 * 1024 + 1024 * 1024 + 20_002 * 1024;
        assert!((tflop(&config, &bands, &[batch]) * 1e12 / 2.0 - f64::from(weights)).abs() < 1.0);
    }
}
