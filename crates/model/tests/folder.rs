//! Model folders: they come back bit for bit, and what does not fit is refused by name.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use mae_data::Vocab;
use mae_data::bpe::Codes;
use mae_data::vocab::VocabOptions;
use mae_engine::Device;
use mae_model::config::{Mixture, NormOrder, Sharing, System};
use mae_model::folder::{self, ModelFolder};
use mae_model::{ModelConfig, Translator};

const TYPES: [usize; 2] = [19, 17];

fn tiny(system: System) -> ModelConfig {
    let mut config = ModelConfig::arch("transformer_tiny").unwrap();
    (config.encoder_layers, config.decoder_layers) = (2, 2);
    (config.encoder_embed_dim, config.encoder_ffn_embed_dim) = (12, 14);
    (config.encoder_attention_heads, config.max_positions) = (3, 40);
    config.mixture = Mixture { system, gate_hidden: 5, ..Mixture::default() };
    config
}

fn new(config: &ModelConfig, seed: u64) -> Translator {
    Translator::new(config, TYPES, &Device::cpu(), seed).unwrap()
}

fn vocab(types: usize) -> Arc<Vocab> {
    let words = (4..types).map(|i| (format!("w{i}"), 1));
    Arc::new(Vocab::from_counts(words, VocabOptions { padding_factor: 1, ..VocabOptions::default() }))
}

fn folder_of(model: Translator) -> ModelFolder {
    let codes = Codes { merges: vec![("a".into(), "b</w>".into())], ..Codes::default() };
    ModelFolder {
        model,
        source: vocab(TYPES[0]),
        target: vocab(TYPES[1]),
        codes: Some(codes.into()),
        text: Default::default(),
    }
}

#[test]
fn a_folder_comes_back_bit_for_bit() {
    for config in [
        tiny(System::MAE),
        ModelConfig { norm: NormOrder::Pre, share_embeddings: Sharing::None, ..tiny(System::BASE) },
    ] {
        let place = tempfile::tempdir().unwrap();
        let before = folder_of(new(&config, 8));
        before.save(place.path()).unwrap();
        let after = ModelFolder::load(place.path(), &Device::cpu()).unwrap();
        assert_eq!(after.model.config(), &config);
        assert_eq!((after.source, after.target, after.codes), (before.source, before.target, before.codes));
        for parameter in before.model.params().named() {
            let bits = |model: &Translator| {
                model.params().get(parameter.name).unwrap().iter().map(|v| v.to_bits()).collect::<Vec<_>>()
            };
            assert_eq!(bits(&after.model), bits(&before.model), "{}", parameter.name);
        }
    }
}

#[test]
fn a_folder_that_does_not_fit_is_refused_by_name() {
    let place = tempfile::tempdir().unwrap();
    let model = new(&tiny(System::MAE), 9);
    let mut tensors: Vec<(String, Vec<usize>, Vec<f32>)> = model
        .params()
        .named()
        .map(|p| (p.name.to_owned(), p.shape.to_vec(), model.params().get(p.name).unwrap()))
        .collect();
    folder_of(model).save(place.path()).unwrap();
    let refused = |place: &Path| match ModelFolder::load(place, &Device::cpu()) {
        Ok(_) => panic!("the folder was accepted"),
        Err(error) => error.to_string(),
    };
    let missing = tensors.iter().position(|(name, ..)| name.ends_with("1.self_attn.gate.fc2.bias")).unwrap();
    tensors.remove(missing);
    let turned = tensors.iter_mut().find(|(name, ..)| name == "decoder.layers.0.fc1.weight").unwrap();
    turned.1 = vec![12, 14];
    tensors.push(("decoder.extra".into(), vec![1], vec![0.0]));
    let tensors: Vec<_> =
        tensors.iter().map(|(name, shape, values)| (&**name, &**shape, &**values)).collect();
    folder::write_tensors(&place.path().join(folder::WEIGHTS), &tensors, BTreeMap::new()).unwrap();
    let error = refused(place.path());
    for part in [
        "`encoder.layers.1.self_attn.gate.fc2.bias` is missing; expected shape [3]",
        "`decoder.layers.0.fc1.weight` has shape [12, 14]; expected [14, 12]",
        "`decoder.extra` is not a parameter of this model",
    ] {
        assert!(error.contains(part), "{error}");
    }
    std::fs::write(place.path().join(folder::WEIGHTS), b"not weights").unwrap();
    assert!(refused(place.path()).contains("not a whole safetensors file"));
    std::fs::remove_file(place.path().join(folder::CONFIG)).unwrap();
    assert!(refused(place.path()).contains(folder::CONFIG));
}
