//! Number types of inference: packed weights compute what flat ones do, and folders of 8-bit integers are a quarter of
//! the size, come back to the bit and are refused by name where they do not fit.

use std::path::Path;
use std::sync::Arc;

use mae_data::Vocab;
use mae_data::vocab::VocabOptions;
use mae_engine::ops::decode::Room;
use mae_engine::{ComputeType, Device, Ids, Segments, Tape};
use mae_model::config::{Mixture, System};
use mae_model::folder::{self, ModelFolder, Stored};
use mae_model::lm::LmFolder;
use mae_model::quantise::quantise;
use mae_model::{
    DecoderState, ExpertMode, LanguageModel, LmConfig, ModelConfig, Pass, SearchRoom, Translator,
};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

const TYPES: usize = 300;

fn vocab() -> Arc<Vocab> {
    let words = (4..TYPES).map(|i| (format!("w{i}"), 1));
    Arc::new(Vocab::from_counts(words, VocabOptions { padding_factor: 1, ..VocabOptions::default() }))
}

/// A model with gates, wide enough for matrices that are packed.
fn save(place: &Path) {
    let mut config = ModelConfig::arch("transformer_tiny").unwrap();
    (config.encoder_layers, config.decoder_layers) = (1, 1);
    (config.encoder_embed_dim, config.encoder_ffn_embed_dim) = (96, 256);
    (config.encoder_attention_heads, config.max_positions) = (4, 40);
    config.mixture = Mixture { system: System::MAE, gate_hidden: 192, ..Mixture::default() };
    let model = Translator::new(&config, [TYPES; 2], &Device::cpu(), 5).unwrap();
    ModelFolder { model, source: vocab(), target: vocab(), codes: None, text: Default::default() }
        .save(place)
        .unwrap();
}

fn holding(compute: ComputeType) -> Device {
    Device::cpu().holding(compute).unwrap()
}

/// Encoder output for sentences that share a pass.
fn encoded(model: &Translator, source: &[u32], starts: &[u32]) -> Vec<f32> {
    let device = model.params().device();
    let mut tape = Tape::evaluation(model.params());
    let mut pass = Pass { tape: &mut tape, mode: &ExpertMode::Mix, probe: None };
    let (source, rows) = (Ids::from_host(device, source), Segments::from_host(device, starts));
    model.encode(&mut pass, &source, &rows).output.tensor().to_host()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}

/// Logits of a hypothesis of the last of these sentences at each step of a search with two hypotheses for each.
fn searched(model: &Translator, sentences: &[&[u32]]) -> Vec<Vec<f32>> {
    let count = sentences.len();
    let room = SearchRoom { steps: Room { rows: 2 * count, steps: 5 }, sentences: count, source: 200 };
    let (mut state, mode) = (model.search_room(room), ExpertMode::Mix);
    let ends = sentences.iter().scan(0, |end, sentence| {
        *end += sentence.len() as u32;
        Some(*end)
    });
    let starts: Vec<u32> = [0].into_iter().chain(ends).collect();
    model.admit(&mut state, &sentences.concat(), &starts, &mode).unwrap();
    let mut tokens = vec![2; count];
    let step = |state: &mut DecoderState, tokens: &[u32]| {
        let logits = model.step(state, tokens, &mode).unwrap();
        logits.to_host()[(tokens.len() - 1) * logits.cols()..].to_vec()
    };
    let mut found = vec![step(&mut state, &tokens)];
    for parents in [[0, 0], [1, 0], [1, 1], [0, 1]] {
        // Of one hypothesis of each sentence there are two from the second step on.
        let each = if found.len() == 1 { 1 } else { 2 };
        let parents: Vec<u32> =
            (0..count as u32).flat_map(|i| parents.map(|parent| each * i + parent)).collect();
        model.reorder(&mut state, &parents);
        tokens = (0..2 * count).map(|i| 5 + (i % 2 + found.len()) as u32).collect();
        found.push(step(&mut state, &tokens));
    }
    found
}

/// Keys and values are rounded where matrices are, and a sentence alone finds the bits that it finds among others: here
/// those have more tokens than are projected at a time.
#[test]
fn searches_keep_rounded_keys_and_values_and_sentences_do_not_change_each_other() {
    let place = tempfile::tempdir().unwrap();
    save(place.path());
    let long: Vec<u32> = (0..37).map(|i| 5 + i % 20).chain([2]).collect();
    let crowd: [&[u32]; 5] = [&long, &long[9..], &long, &long, &[20, 21, 2]];
    let load = |compute| ModelFolder::load(place.path(), &holding(compute)).unwrap().model;
    let want = searched(&load(ComputeType::F32), &crowd).concat();
    for (compute, most) in [(ComputeType::F32, 0.0), (ComputeType::Bf16, 0.05), (ComputeType::Int8, 0.2)] {
        let model = load(compute);
        let found = searched(&model, &crowd);
        assert_eq!(found, searched(&model, &crowd[4..]), "{compute}");
        let difference = largest_difference(&found.concat(), &want);
        assert!(difference <= most, "{compute}: {difference}");
    }
}

#[test]
fn all_types_compute_nearly_the_same_and_rows_not_by_their_neighbours() {
    let place = tempfile::tempdir().unwrap();
    save(place.path());
    let (source, starts) = ([7, 8, 9, 2, 20, 21, 2], [0, 4, 7]);
    let flat = ModelFolder::load(place.path(), &Device::cpu()).unwrap().model;
    let want = encoded(&flat, &source, &starts);
    for (compute, most) in [(ComputeType::F32, 1e-5), (ComputeType::Bf16, 0.05), (ComputeType::Int8, 0.2)] {
        let model = ModelFolder::load(place.path(), &holding(compute)).unwrap().model;
        let found = encoded(&model, &source, &starts);
        let difference = largest_difference(&found, &want);
        assert!(difference < most, "{compute}: {difference}");
        // bf16 and int8 do round.
        assert!(compute == ComputeType::F32 || difference > 1e-4, "{compute}: {difference}");
        assert_eq!(encoded(&model, &source[4..], &[0, 3]), found[4 * 96..], "{compute}");
        let error = model.params().snapshot().err().unwrap().to_string();
        assert!(error.contains(&format!("is held in {compute}")), "{error}");
        let back = model.params().get("encoder.layers.0.fc1.weight").unwrap();
        let exact = flat.params().get("encoder.layers.0.fc1.weight").unwrap();
        assert!(largest_difference(&back, &exact) <= if compute == ComputeType::F32 { 0.0 } else { 1e-2 });
    }
}

#[test]
fn a_folder_of_integers_computes_what_the_model_computes_in_int8() {
    let place = tempfile::tempdir().unwrap();
    let (model, out) = (place.path().join("model"), place.path().join("int8"));
    save(&model);
    let sizes = quantise(&model, &out).unwrap();
    assert!(sizes.after * 5 < sizes.before * 2, "{sizes:?}");
    assert_eq!(folder::stored(&out).unwrap(), Stored::Int8);
    let bytes = std::fs::read(out.join(folder::WEIGHTS)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    for (name, kind) in [
        ("encoder.layers.0.self_attn.gate.fc1.weight", Dtype::I8),
        // Small, and vectors.
        ("encoder.layers.0.self_attn.gate.fc2.weight", Dtype::F32),
        ("encoder.layers.0.self_attn.gate.norm.running_var", Dtype::F32),
        ("decoder.embed_tokens.weight", Dtype::I8),
    ] {
        assert_eq!(file.tensor(name).unwrap().dtype(), kind, "{name}");
    }
    let (source, starts) = ([7, 8, 9, 2, 20, 21, 2], [0, 4, 7]);
    let load = |folder: &Path, compute| ModelFolder::load(folder, &holding(compute)).unwrap().model;
    let want = encoded(&load(&model, ComputeType::Int8), &source, &starts);
    assert_eq!(encoded(&load(&out, ComputeType::Auto), &source, &starts), want);
    // In f32, with the numbers that the integers stand for.
    let f32s = encoded(&load(&out, ComputeType::F32), &source, &starts);
    assert!(f32s != want && largest_difference(&f32s, &want) < 0.2);
    let again = quantise(&out, &place.path().join("twice")).err().unwrap().to_string();
    assert!(again.contains("8-bit integers already"), "{again}");
}

#[test]
fn language_models_are_folders_of_integers_too() {
    let place = tempfile::tempdir().unwrap();
    let (folder, out) = (place.path().join("lm"), place.path().join("int8"));
    let mut config = LmConfig::arch("transformer_lm_tiny").unwrap();
    (config.adaptive_softmax_cutoff, config.max_positions) = (vec![100], 9);
    let model = LanguageModel::new(&config, TYPES, &Device::cpu(), 1).unwrap();
    LmFolder { model, dictionary: vocab(), codes: None }.save(&folder).unwrap();
    let sizes = quantise(&folder, &out).unwrap();
    assert!(sizes.after < sizes.before, "{sizes:?}");
    let logits = |folder: &Path, compute| {
        let model = LmFolder::load(folder, &holding(compute)).unwrap().model;
        let mut state = model.state(mae_engine::ops::decode::Room { rows: 2, steps: 3 });
        model.start(&mut state, 2);
        model.step(&mut state, &[2, 2], &ExpertMode::Mix).unwrap();
        model.step(&mut state, &[7, 250], &ExpertMode::Mix).unwrap().to_host()
    };
    let int8 = logits(&out, ComputeType::Auto);
    assert_eq!(int8, logits(&folder, ComputeType::Int8));
    let exact = logits(&folder, ComputeType::F32);
    assert!(largest_difference(&exact, &logits(&folder, ComputeType::Auto)) < 1e-4);
    assert!(int8 != exact && largest_difference(&int8, &exact) < 1.0);
}

/// Changes name, type, shape and bytes of a tensor.
type Change<'a> = &'a dyn Fn(&mut String, &mut Dtype, &mut Vec<usize>, &mut Vec<u8>);

/// Rewrites the weights of a folder.
fn rewrite(folder: &Path, change: Change<'_>) {
    let path = folder.join(folder::WEIGHTS);
    let bytes = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let tensors: Vec<_> = file
        .tensors()
        .into_iter()
        .map(|(mut name, view)| {
            let (mut kind, mut shape, mut data) = (view.dtype(), view.shape().to_vec(), view.data().to_vec());
            change(&mut name, &mut kind, &mut shape, &mut data);
            (name, kind, shape, data)
        })
        .collect();
    let views = tensors
        .iter()
        .map(|(name, kind, shape, data)| (name, TensorView::new(*kind, shape.clone(), data).unwrap()));
    std::fs::write(&path, safetensors::serialize(views, None).unwrap()).unwrap();
}

#[test]
fn folders_of_integers_that_do_not_fit_are_refused_by_name() {
    const FC1: &str = "encoder.layers.0.fc1.weight";
    let place = tempfile::tempdir().unwrap();
    let (model, out) = (place.path().join("model"), place.path().join("int8"));
    save(&model);
    let refused = |change: Change<'_>| {
        quantise(&model, &out).unwrap();
        rewrite(&out, change);
        ModelFolder::load(&out, &Device::cpu()).err().unwrap().to_string()
    };
    let scale = format!("{FC1}.scale");
    let missing = refused(&|name, _, _, _| {
        if *name == scale {
            *name = "another".into();
        }
    });
    assert!(missing.contains(&format!("`{FC1}` is I8, and `{scale}` is missing")), "{missing}");
    assert!(missing.contains("`another` is not a parameter of this model"), "{missing}");
    let short = refused(&|name, _, shape, data| {
        if *name == scale {
            (shape[0], _) = (255, data.truncate(4 * 255));
        }
    });
    assert!(short.contains(&format!("`{scale}` is F32 of shape [255]; expected F32 of [256]")), "{short}");
    let low = refused(&|name, _, _, data| {
        if name == FC1 {
            data[3] = 0x80;
        }
    });
    assert!(low.contains(&format!("`{FC1}` holds -128")), "{low}");
    let other = refused(&|name, kind, _, _| {
        if name == FC1 {
            *kind = Dtype::U8;
        }
    });
    assert!(other.contains(&format!("`{FC1}` is U8; expected F32, or I8 with `{scale}`")), "{other}");
    quantise(&model, &out).unwrap();
    let whole = std::fs::read(out.join(folder::WEIGHTS)).unwrap();
    std::fs::write(out.join(folder::WEIGHTS), &whole[..whole.len() / 2]).unwrap();
    let cut = ModelFolder::load(&out, &Device::cpu()).err().unwrap().to_string();
    assert!(cut.contains("not a whole safetensors file"), "{cut}");
}
