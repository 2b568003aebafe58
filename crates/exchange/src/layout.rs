//! Names and shapes of the parameters of model folders without gates.

use mae_model::config::{ModelConfig, NormOrder, Positions, Sharing};
use mae_model::lm::LmConfig;

/// A parameter: its name and its shape.
pub(crate) type Named = (String, Vec<usize>);

/// Sizes of a stack.
struct Stack<'a> {
    side: &'a str,
    layers: usize,
    width: usize,
    /// Heads × width of a head.
    inside: usize,
    inner: usize,
    cross: bool,
    final_norm: bool,
}

/// Parameters of a translation model with dictionaries of these sizes.
pub(crate) fn translation(config: &ModelConfig, [source, target]: [usize; 2]) -> Vec<Named> {
    let width = config.encoder_embed_dim;
    let head = if config.head_dim == 0 { width / config.encoder_attention_heads } else { config.head_dim };
    let stack = |side, layers, cross| Stack {
        side,
        layers,
        width,
        inside: head * config.encoder_attention_heads,
        inner: config.encoder_ffn_embed_dim,
        cross,
        final_norm: config.norm == NormOrder::Pre,
    };
    let mut all = vec![("encoder.embed_tokens.weight".to_owned(), vec![source, width])];
    if config.share_embeddings != Sharing::All {
        all.push(("decoder.embed_tokens.weight".into(), vec![target, width]));
    }
    if config.share_embeddings == Sharing::None {
        all.push(("decoder.embed_out".into(), vec![target, width]));
    }
    if config.output_bias {
        all.push(("decoder.output_projection.bias".into(), vec![target]));
    }
    if config.positions == Positions::Table {
        for side in ["encoder", "decoder"] {
            all.push((format!("{side}.embed_positions.weight"), vec![config.max_positions, width]));
        }
    }
    stack("encoder", config.encoder_layers, false).push(&mut all);
    stack("decoder", config.decoder_layers, true).push(&mut all);
    all
}

/// Parameters of a language model with a dictionary of this size.
pub(crate) fn language(config: &LmConfig, types: usize) -> Vec<Named> {
    let (cutoffs, width) = (&config.adaptive_softmax_cutoff, config.decoder_embed_dim);
    let mut all = Vec::new();
    if cutoffs.is_empty() {
        all.push(("decoder.embed_tokens.weight".into(), vec![types, width]));
    } else {
        let ends: Vec<usize> = cutoffs.iter().copied().chain([types]).collect();
        let head = "decoder.adaptive_softmax.head";
        match config.tie_adaptive_weights {
            true => all.push((format!("{head}.class_proj.weight"), vec![cutoffs.len(), width])),
            false => all.push((format!("{head}.weight"), vec![cutoffs[0] + cutoffs.len(), width])),
        }
        for band in 0..ends.len() {
            let size = ends[band] - band.checked_sub(1).map_or(0, |before| ends[before]);
            let inner = config.band_width(band);
            let embeddings = format!("decoder.embed_tokens.embeddings.{band}");
            all.push((format!("{embeddings}.0.weight"), vec![size, inner]));
            all.push((format!("{embeddings}.1.weight"), vec![width, inner]));
            let Some(tail) = band.checked_sub(1).map(|tail| format!("decoder.adaptive_softmax.tail.{tail}"))
            else {
                continue;
            };
            if !config.tie_adaptive_proj {
                all.push((format!("{tail}.0.weight"), vec![inner, width]));
            }
            if !config.tie_adaptive_weights {
                all.push((format!("{tail}.2.weight"), vec![size, inner]));
            }
        }
    }
    let stack = Stack {
        side: "decoder",
        layers: config.decoder_layers,
        width,
        inside: width,
        inner: config.decoder_ffn_embed_dim,
        cross: false,
        final_norm: config.final_norm,
    };
    stack.push(&mut all);
    all
}

impl Stack<'_> {
    fn push(&self, all: &mut Vec<Named>) {
        let Self { side, width, inside, inner, .. } = *self;
        let mut linear = |name: String, rows: usize, cols: usize| {
            all.push((format!("{name}.weight"), vec![rows, cols]));
            all.push((format!("{name}.bias"), vec![rows]));
        };
        for layer in 0..self.layers {
            let at = format!("{side}.layers.{layer}");
            for attention in ["self_attn", "encoder_attn"].into_iter().take(1 + usize::from(self.cross)) {
                for part in ["q_proj", "k_proj", "v_proj"] {
                    linear(format!("{at}.{attention}.{part}"), inside, width);
                }
                linear(format!("{at}.{attention}.out_proj"), width, inside);
            }
            linear(format!("{at}.fc1"), inner, width);
            linear(format!("{at}.fc2"), width, inner);
        }
        let mut norm = |name: String| {
            all.push((format!("{name}.weight"), vec![width]));
            all.push((format!("{name}.bias"), vec![width]));
        };
        for layer in 0..self.layers {
            let at = format!("{side}.layers.{layer}");
            norm(format!("{at}.self_attn_layer_norm"));
            if self.cross {
                norm(format!("{at}.encoder_attn_layer_norm"));
            }
            norm(format!("{at}.final_layer_norm"));
        }
        if self.final_norm {
            norm(format!("{side}.layer_norm"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mae_engine::Device;
    use mae_model::{LanguageModel, Translator};

    use super::*;

    #[test]
    fn names_and_shapes_are_those_of_models() {
        let sorted = |named: Vec<Named>| -> BTreeMap<String, Vec<usize>> { named.into_iter().collect() };
        let of = |params: &mae_engine::Params| -> BTreeMap<String, Vec<usize>> {
            params.named().map(|p| (p.name.to_owned(), p.shape.to_vec())).collect()
        };
        let base = ModelConfig {
            encoder_embed_dim: 16,
            encoder_ffn_embed_dim: 24,
            encoder_attention_heads: 2,
            max_positions: 32,
            ..ModelConfig::arch("transformer_tiny").unwrap()
        };
        for (share_embeddings, norm, positions, output_bias) in [
            (Sharing::None, NormOrder::Pre, Positions::Table, true),
            (Sharing::Decoder, NormOrder::Post, Positions::Fairseq, false),
            (Sharing::All, NormOrder::Post, Positions::Marian, true),
        ] {
            let config = ModelConfig { share_embeddings, norm, positions, output_bias, ..base.clone() };
            let types = if share_embeddings == Sharing::All { [9, 9] } else { [9, 11] };
            let model = Translator::zeroed(&config, types, &Device::cpu()).unwrap();
            assert_eq!(sorted(translation(&config, types)), of(model.params()));
        }
        for (cutoffs, tied, final_norm) in
            [(vec![], true, true), (vec![6, 10], true, false), (vec![6, 10], false, true)]
        {
            let config = LmConfig {
                decoder_embed_dim: 16,
                decoder_ffn_embed_dim: 24,
                adaptive_softmax_cutoff: cutoffs,
                adaptive_softmax_factor: 2,
                tie_adaptive_weights: tied,
                tie_adaptive_proj: tied,
                final_norm,
                ..LmConfig::arch("transformer_lm_tiny").unwrap()
            };
            let model = LanguageModel::zeroed(&config, 20, &Device::cpu()).unwrap();
            assert_eq!(sorted(language(&config, 20)), of(model.params()));
        }
    }
}
