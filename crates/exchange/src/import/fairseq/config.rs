//! Configurations of models by the options of a checkpoint and the shapes of its tensors.

use mae_model::config::{Activation, Mixture, ModelConfig, NormOrder, Positions, Sharing};
use mae_model::lm::LmConfig;

use super::super::same;
use super::{FIRST_POSITION, Import};
use crate::{Error, Result};

impl Import<'_> {
    /// Refuses options that change what a model computes, by name.
    fn refuse(&self, faults: &mut Vec<String>) {
        let keys = [
            "layernorm_embedding",
            "no_token_positional_embeddings",
            "no_cross_attention",
            "cross_self_attention",
            "character_embeddings",
            "encoder_normalize_output",
            "no_decoder_final_norm",
            "add_bos_token_to_source",
            "scale_attn",
            "scale_fc",
            "scale_heads",
        ];
        let is_lm = !self.found.tensors.keys().any(|name| name.starts_with("encoder."));
        let set =
            keys.iter().filter(|key| self.args.is_set(key) && !(is_lm && **key == "no_decoder_final_norm"));
        faults.extend(set.map(|key| format!("`{key}` = True is not supported")));
    }

    fn activation(&self, faults: &mut Vec<String>) -> Activation {
        match self.args.text("activation_fn").unwrap_or("relu") {
            "relu" => Activation::Relu,
            "swish" | "silu" => Activation::Swish,
            "gelu" => Activation::Gelu,
            other => {
                faults.push(format!("`activation_fn` = {other} is not supported; relu, swish and gelu are"));
                Activation::Relu
            }
        }
    }

    pub(super) fn translation_config(&self, one_dictionary: bool) -> Result<ModelConfig> {
        let (found, args) = (&self.found, &self.args);
        let mut faults = Vec::new();
        self.refuse(&mut faults);
        let activation = self.activation(&mut faults);
        let matrix = |name: &str| found.matrix(name).map_err(|fault| self.fault(fault));
        let [_, width] = matrix("encoder.embed_tokens.weight")?;
        let [inner, _] = matrix("encoder.layers.0.fc1.weight")?;
        let heads = args.size("encoder_attention_heads");
        let heads = heads.ok_or_else(|| self.fault("`encoder_attention_heads` is missing"))?;
        if args.size("decoder_attention_heads").is_some_and(|other| other != heads) {
            faults.push("`decoder_attention_heads` differs from `encoder_attention_heads`".into());
        }
        let pre = args.is_set("encoder_normalize_before");
        if pre != args.is_set("decoder_normalize_before") {
            faults.push("`encoder_normalize_before` and `decoder_normalize_before` differ".into());
        }
        if pre
            && ["encoder", "decoder"]
                .iter()
                .any(|side| !found.tensors.contains_key(&format!("{side}.layer_norm.weight")))
        {
            faults.push("`encoder.layer_norm` or `decoder.layer_norm` is missing: pre-norm models without are not supported".into());
        }
        if args.sizes("adaptive_softmax_cutoff").is_some() {
            faults.push("`adaptive_softmax_cutoff` is not supported in translation models".into());
        }
        let learned = [args.is_set("encoder_learned_pos"), args.is_set("decoder_learned_pos")];
        if learned[0] != learned[1] {
            faults.push("`encoder_learned_pos` and `decoder_learned_pos` differ".into());
        }
        let rows = |side: &str| {
            let table = found.tensors.get(&format!("{side}.embed_positions.weight"));
            table.and_then(|table| table.shape().first()).map(|rows| rows.saturating_sub(FIRST_POSITION))
        };
        let asked = |key: &str| args.size(key).unwrap_or(1024);
        let max_positions = match learned[0] {
            true => rows("encoder").unwrap_or(0).min(rows("decoder").unwrap_or(0)),
            false => asked("max_source_positions").min(asked("max_target_positions")),
        };
        if !faults.is_empty() {
            return Err(Error::unsupported(self.path, faults));
        }
        let get = |name: &str| found.tensors.get(name);
        let equal = |a: Option<&_>, b: Option<&_>| matches!((a, b), (Some(a), Some(b)) if same(a, b));
        let decoder = get("decoder.embed_tokens.weight");
        let output = get("decoder.output_projection.weight").or_else(|| get("decoder.embed_out"));
        let tied = output.is_none() || equal(decoder, output);
        let all = tied && one_dictionary && equal(get("encoder.embed_tokens.weight"), decoder);
        Ok(ModelConfig {
            arch: args.text("arch").or_else(|| args.text("_name")).unwrap_or("fairseq").to_owned(),
            encoder_layers: found.layers(|i| format!("encoder.layers.{i}.fc1.weight")),
            decoder_layers: found.layers(|i| format!("decoder.layers.{i}.fc1.weight")),
            encoder_embed_dim: width,
            encoder_ffn_embed_dim: inner,
            encoder_attention_heads: heads,
            activation,
            positions: if learned[0] { Positions::Table } else { Positions::Fairseq },
            no_scale_embedding: args.is_set("no_scale_embedding"),
            norm: if pre { NormOrder::Pre } else { NormOrder::Post },
            share_embeddings: match (tied, all) {
                (_, true) => Sharing::All,
                (true, false) => Sharing::Decoder,
                (false, false) => Sharing::None,
            },
            max_positions,
            mixture: Mixture::default(),
            dropout: 0.0,
            ..ModelConfig::arch("transformer_tiny")?
        })
    }

    pub(super) fn language_config(&self) -> Result<LmConfig> {
        let (found, args) = (&self.found, &self.args);
        let mut faults = Vec::new();
        self.refuse(&mut faults);
        let activation = self.activation(&mut faults);
        let cutoffs = args.sizes("adaptive_softmax_cutoff").unwrap_or_default();
        if !cutoffs.is_empty() {
            if args.sizes("adaptive_input_cutoff").unwrap_or_default() != cutoffs {
                faults.push("`adaptive_input_cutoff` differs from `adaptive_softmax_cutoff`".into());
            }
            let factors =
                ["adaptive_input_factor", "adaptive_softmax_factor"].map(|key| args.size(key).unwrap_or(4));
            if factors[0] != factors[1] {
                faults.push("`adaptive_input_factor` differs from `adaptive_softmax_factor`".into());
            }
        }
        if args.is_set("decoder_learned_pos") {
            faults.push("`decoder_learned_pos` = True is not supported in language models".into());
        }
        if args.is_set("no_scale_embedding") {
            faults.push("`no_scale_embedding` = True is not supported in language models".into());
        }
        // `transformer_lm` is pre-norm unless it says otherwise; very old ones say nothing.
        if args.value("decoder_normalize_before").is_some() && !args.is_set("decoder_normalize_before") {
            faults.push("`decoder_normalize_before` = False is not supported in language models".into());
        }
        let get = |name: &str| found.tensors.get(name);
        let equal = |a: &str, b: &str| matches!((get(a), get(b)), (Some(a), Some(b)) if same(a, b));
        let embeddings = "decoder.embed_tokens.embeddings.1";
        let tail = "decoder.adaptive_softmax.tail.0";
        let tied = equal(&format!("{embeddings}.0.weight"), &format!("{tail}.2.weight"))
            || get("decoder.adaptive_softmax.head.class_proj.weight").is_some();
        let tied_projection = equal(&format!("{embeddings}.1.weight"), &format!("{tail}.0.weight"));
        if cutoffs.is_empty()
            && let Some(output) = get("decoder.output_projection.weight").or_else(|| get("decoder.embed_out"))
            && !get("decoder.embed_tokens.weight").is_some_and(|embedding| same(embedding, output))
        {
            faults.push(
                "`share_decoder_input_output_embed` = False is not supported in language models".into(),
            );
        }
        let [inner, width] =
            found.matrix("decoder.layers.0.fc1.weight").map_err(|fault| self.fault(fault))?;
        let heads = args.size("decoder_attention_heads");
        let heads = heads.ok_or_else(|| self.fault("`decoder_attention_heads` is missing"))?;
        if !faults.is_empty() {
            return Err(Error::unsupported(self.path, faults));
        }
        let positions = ["max_target_positions", "tokens_per_sample"].iter().find_map(|key| args.size(key));
        Ok(LmConfig {
            arch: args.text("arch").or_else(|| args.text("_name")).unwrap_or("fairseq").to_owned(),
            decoder_layers: found.layers(|i| format!("decoder.layers.{i}.fc1.weight")),
            decoder_embed_dim: width,
            decoder_ffn_embed_dim: inner,
            decoder_attention_heads: heads,
            head_dim: 0,
            activation,
            dropout: 0.0,
            attention_dropout: 0.0,
            activation_dropout: 0.0,
            adaptive_softmax_factor: args.size("adaptive_softmax_factor").unwrap_or(4),
            adaptive_softmax_dropout: 0.0,
            tie_adaptive_weights: cutoffs.is_empty() || tied,
            tie_adaptive_proj: cutoffs.is_empty() || (tied && tied_projection),
            adaptive_softmax_cutoff: cutoffs,
            final_norm: get("decoder.layer_norm.weight").is_some(),
            max_positions: positions.unwrap_or(1024),
            mixture: Mixture { gate_window: 100, ..Mixture::default() },
        })
    }
}
