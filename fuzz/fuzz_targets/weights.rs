//! `model.safetensors`. Input that begins with `{` is a header; its length before it and numbers enough for the model
//! after it are added. Any other is the whole file.
#![no_main]

use std::cell::RefCell;

use libfuzzer_sys::fuzz_target;
use mae_engine::Device;
use mae_model::config::{Mixture, System};
use mae_model::{ModelConfig, Translator, folder};

thread_local! {
    static MODEL: RefCell<Translator> = RefCell::new(model());
}

/// The smallest model; `seeds/weights/header.json` is the header of its file.
fn model() -> Translator {
    let mut config = ModelConfig::arch("transformer_tiny").expect("the architecture is there");
    (config.encoder_layers, config.decoder_layers) = (1, 1);
    (config.encoder_embed_dim, config.encoder_ffn_embed_dim) = (4, 4);
    (config.encoder_attention_heads, config.max_positions) = (2, 8);
    config.mixture = Mixture { system: System::MAE, gate_hidden: 4, ..Mixture::default() };
    Translator::zeroed(&config, [8, 8], &Device::cpu()).expect("the configuration is valid")
}

fuzz_target!(|bytes: &[u8]| {
    MODEL.with_borrow_mut(|model| {
        let mut file = Vec::new();
        if bytes.first() == Some(&b'{') {
            file.extend((bytes.len() as u64).to_le_bytes());
            file.extend(bytes);
            file.resize(file.len() + 4 * model.size(), 0);
        } else {
            file.extend(bytes);
        }
        folder::load_weights(&mae_fuzz::file("model.safetensors", &file), model.params_mut()).ok();
    });
});
