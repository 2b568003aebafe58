//! `mae quantize` and `--compute-type` from the outside.

use std::sync::Arc;

use mae_data::Vocab;
use mae_data::vocab::VocabOptions;
use mae_engine::Device;
use mae_model::folder::ModelFolder;
use mae_model::{ModelConfig, Translator};

use crate::common::place::Place;

/// A model wide enough for matrices of 8 bits, in `wide`.
fn place() -> Place {
    let place = Place::new(None);
    let mut config = ModelConfig::arch("transformer_tiny").unwrap();
    (config.encoder_layers, config.decoder_layers) = (1, 1);
    (config.encoder_embed_dim, config.encoder_ffn_embed_dim) = (64, 256);
    config.max_positions = 12;
    let words = ["a", "b", "c", "d"].map(str::to_owned).into_iter().chain((0..300).map(|i| format!("w{i}")));
    let words = Arc::new(Vocab::from_counts(words.map(|word| (word, 1)), VocabOptions::default()));
    let model = Translator::new(&config, [words.len(); 2], &Device::cpu(), 3).unwrap();
    let folder =
        ModelFolder { model, source: words.clone(), target: words, codes: None, text: Default::default() };
    folder.save(&place.path("wide")).unwrap();
    place
}

#[test]
fn a_folder_of_8_bits_translates_as_the_flag_does() {
    let place = place();
    let run = |args: &str| {
        let printed = place.mae(args, "");
        assert!(printed.success, "{args}: {}", printed.err);
        printed.out
    };
    let said = run("quantize wide --out small");
    assert!(said.starts_with("small: 0.") && said.contains("MB before"), "{said}");
    let translate = |model: &str, compute: &str| {
        run(&format!("generate {model} --source src --max-len-b 9 --device cpu --compute-type {compute}"))
    };
    let int8 = translate("wide", "int8");
    assert_eq!(translate("small", "auto"), int8);
    assert_eq!(translate("small", "int8"), int8);
    assert_ne!(translate("wide", "f32"), int8, "scores differ");
    assert_eq!(translate("wide", "auto"), translate("wide", "f32"));
    assert_ne!(translate("wide", "bf16"), translate("wide", "f32"), "scores differ");
    let lines = place.mae("interactive small --device cpu --max-len-b 9", "a b\nc\n");
    assert!(lines.success, "{}", lines.err);
}

#[test]
fn mistakes_are_explained() {
    let place = place();
    assert!(place.mae("quantize wide --out small", "").success);
    for (args, words) in [
        ("quantize small --out twice", "the weights are 8-bit integers already"),
        ("quantize wide --out wide", "--out wide is a model that is read"),
        ("quantize nowhere --out small", "nowhere is not a model folder"),
        ("average --inputs small small --output mean", "small/config.toml: the weights are 8-bit integers;"),
        ("convert small --system mae3 --out gated --device cpu", "use the model that they were made from"),
        ("export ct2 small --out ct2", "the weights are 8-bit integers; use"),
        (
            "generate wide --source src --device cpu --compute-type int4",
            "int4 is none of auto, f32, bf16 and int8",
        ),
    ] {
        let printed = place.mae(args, "");
        assert!(!printed.success && printed.err.contains(words), "{args}: {}{}", printed.out, printed.err);
    }
    assert!(!place.path("twice").exists() && !place.path("mean").exists() && !place.path("ct2").exists());
}
