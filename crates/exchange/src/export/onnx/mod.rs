//! Graphs of ONNX, which keep the gates: the encoder, the first step of the decoder, and a step with caches.
//!
//! | file | inputs | outputs |
//! |---|---|---|
//! | `encoder.onnx` | `input_ids`, `attention_mask` `[batch, source]` | `memory` `[batch, source, D]` |
//! | `first_step.onnx` | `token` `[batch]`, `attention_mask`, `memory` | `logits` `[batch, types]`, `present.*` |
//! | `step.onnx` | `token`, `attention_mask`, `past.*` | `logits`, those of `present.*` that change |
//!
//! Sentences are padded on the right. Caches have the batch as their first axis, so that a search moves hypotheses by
//! gathering rows: keys and values `{self,cross}.LAYER.{key,value}`, and what gates remember, `….sum` (of all inputs so
//! far), `….recent` (the last inputs) or `….weights` (of gates that read the source). The search itself is the caller's.
//! Weights are in `weights.bin`, which the three graphs share; `model.json` holds the ids of symbols.

mod decoder;
mod encoder;
mod network;
mod store;

use std::path::Path;

use mae_data::vocab::{BOS, EOS, PAD, UNK};
use mae_data::{Segmentation, files};
use mae_model::config::{SourceEnd, System};
use mae_model::folder::{SOURCE_DICT, TARGET_DICT};
use serde_json::json;

use super::{Folder, HeadWeights, Weights, attentions, check_empty};
use crate::onnx::Graph;
use crate::{Error, Result};
use decoder::Step;
use network::Network;
use store::{Store, WEIGHTS};

/// Writes a model to the folder `to`, which must not exist or be empty. Its gates are kept, unless heads are to have
/// other weights for good.
pub fn export(folder: &Folder, heads: &HeadWeights, to: &Path) -> Result<()> {
    check_empty(to)?;
    let config = &folder.config;
    let weights = Weights::with_gates(folder, heads)?;
    let gated = config.mixture.system.is_gated() && *heads == HeadWeights::Ones;
    if gated {
        check_gates(folder, &weights)?;
    }
    let mut store = Store::new(&weights);
    let mut graph = |name, build: &dyn Fn(&mut Network<'_, '_>)| {
        let mut network = Network { graph: Graph::new(name), store: &mut store, config, gated };
        build(&mut network);
        network.graph.finish()
    };
    let (tables, types) = ((weights.decoder_embedding(), weights.output()), folder.target.len());
    let graphs = [
        ("encoder.onnx", graph("encoder", &|network| network.encoder())),
        ("first_step.onnx", graph("first_step", &|network| network.decoder(Step::First, tables, types))),
        ("step.onnx", graph("step", &|network| network.decoder(Step::Later, tables, types))),
    ];
    let facts = json!({
        "system": config.mixture.name(config.encoder_attention_heads),
        "gates": gated,
        "symbols": {"begin": BOS, "pad": PAD, "end": EOS, "unknown": UNK},
        "decoder_start": config.decoder_start.id(),
        "source_end": config.source_end == SourceEnd::Mark,
        "max_positions": config.max_positions,
    });
    files::replace_folder(to, |aside| {
        files::write_with(&aside.join(WEIGHTS), |out| store.write(out))?;
        for (name, bytes) in &graphs {
            files::write(aside.join(name), bytes)?;
        }
        let facts = serde_json::to_vec_pretty(&facts).expect("JSON can always be written");
        files::write(aside.join("model.json"), &facts)?;
        folder.source.save(aside.join(SOURCE_DICT))?;
        folder.target.save(aside.join(TARGET_DICT))?;
        Segmentation::save(folder.codes.as_ref(), aside)?;
        folder.text.save(aside)?;
        Ok::<(), Error>(())
    })
}

/// Returns an error if parameters of a gate are missing, or do not have the shapes that the configuration says.
fn check_gates(folder: &Folder, weights: &Weights<'_>) -> Result<()> {
    let config = &folder.config;
    let (width, heads, hidden) =
        (config.encoder_embed_dim, config.encoder_attention_heads, config.mixture.gate_hidden);
    let layers: Vec<(&str, Vec<usize>)> = match config.experts().map(|experts| experts.count()) {
        Some(experts) => vec![
            ("norm.weight", vec![width]),
            ("norm.bias", vec![width]),
            ("norm.running_mean", vec![width]),
            ("norm.running_var", vec![width]),
            ("fc1.weight", vec![hidden, width]),
            ("fc1.bias", vec![hidden]),
            ("fc2.weight", vec![experts, hidden]),
            ("fc2.bias", vec![experts]),
        ],
        None if config.mixture.system == System::MOH => {
            let [shared, _] = config.mixture.routed(heads);
            vec![
                ("shared.weight", vec![shared, width]),
                ("routed.weight", vec![heads - shared, width]),
                ("between.weight", vec![2, width]),
            ]
        }
        None => vec![("proj.weight", vec![heads, width]), ("proj.bias", vec![heads])],
    };
    if config.mixture.system == System::L0 {
        let fault = "L0 gates are the same for all inputs: convert the model to base with mean gates, then export that";
        return Err(Error::unsupported(&folder.path, vec![fault.into()]));
    }
    let mut faults = Vec::new();
    for attention in attentions(config) {
        for (layer, shape) in &layers {
            let name = format!("{attention}.gate.{layer}");
            match weights.tensors.get(&name) {
                Some(tensor) if tensor.shape() == shape => {}
                Some(tensor) => {
                    faults.push(format!("`{name}` has shape {:?}; expected {shape:?}", tensor.shape()))
                }
                None => faults.push(format!("`{name}` is missing")),
            }
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(Error::unsupported(folder.weights.path(), faults)) }
}
