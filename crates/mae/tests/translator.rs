//! The library as a program uses it: a random model in a folder, text in, text out.

use std::path::Path;
use std::sync::Arc;

use mae::data::Vocab;
use mae::data::vocab::VocabOptions;
use mae::model::System;
use mae::model::config::Mixture;
use mae::model::folder::ModelFolder;
use mae::model::{self, ModelConfig};
use mae::{
    AttentionKind, Device, Error, ExpertChoice, GateRows, Sampling, SearchOptions, SwitchedOff, TextForm,
    TranslateOptions, Translator,
};

const LINES: [&str; 6] = ["a b c", "", "d a b d a", "c never-seen a", "b", "a b c d a b c d a b c d a b"];

fn vocab(words: &[&str]) -> Arc<Vocab> {
    Arc::new(Vocab::from_counts(words.iter().map(|word| (*word, 1)), VocabOptions::default()))
}

fn save(folder: &Path, system: System, seed: u64, words: &[&str]) -> ModelFolder {
    let mut config = ModelConfig::arch("transformer_tiny").unwrap();
    (config.encoder_layers, config.decoder_layers) = (1, 2);
    (config.encoder_embed_dim, config.encoder_ffn_embed_dim) = (16, 20);
    (config.encoder_attention_heads, config.max_positions) = (4, 12);
    config.mixture = Mixture { system, gate_hidden: 6, ..Mixture::default() };
    let (source, target) = (vocab(&["a", "b", "c", "d"]), vocab(words));
    let types = [source.len(), target.len()];
    let model = model::Translator::new(&config, types, Device::cpu().engine(), seed).unwrap();
    let folder_of = ModelFolder { model, source, target, codes: None, text: Default::default() };
    folder_of.save(folder).unwrap();
    folder_of
}

fn translator() -> Translator {
    let folder = tempfile::tempdir().unwrap();
    save(folder.path(), System::MAE, 3, &["x", "y", "z", "u", "v"]);
    Translator::load(folder.path(), &Device::cpu()).unwrap()
}

fn short() -> TranslateOptions {
    TranslateOptions {
        search: SearchOptions { max_len_b: 9, ..SearchOptions::default() },
        ..TranslateOptions::default()
    }
}

#[test]
fn translators_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<Translator>();
    shared::<mae::LanguageModel>();
    shared::<Device>();
    shared::<Error>();
}

#[test]
fn every_line_has_a_translation() {
    let translator = translator();
    let found = translator.translate(&LINES, &short().nbest(3)).unwrap();
    assert_eq!(found.len(), LINES.len());
    for (i, translation) in found.iter().enumerate() {
        assert_eq!(translation.text().is_empty(), i == 1, "line {i}");
        assert_eq!(translation.nbest().len(), if i == 1 { 1 } else { 3 });
        assert!(translation.encoder_gates().is_none());
        for hypothesis in translation.nbest().iter().filter(|_| i != 1) {
            let (end, words) = hypothesis.tokens.split_last().unwrap();
            let pieces: Vec<&str> = words.iter().map(|token| token.piece.as_str()).collect();
            assert_eq!((end.piece.as_str(), pieces.join(" ")), ("</s>", hypothesis.text.clone()));
            let mean = hypothesis.tokens.iter().map(|token| token.log_prob).sum::<f32>()
                / hypothesis.tokens.len() as f32;
            assert!((mean - hypothesis.score).abs() < 1e-5);
        }
    }
    let counts: Vec<_> = found.iter().map(|t| (t.source.tokens, t.source.unknown, t.source.cut)).collect();
    assert_eq!(counts, [(3, 0, 0), (0, 0, 0), (5, 0, 0), (3, 1, 0), (1, 0, 0), (14, 0, 3)]);
}

/// Neighbours, limits of batches, threads and earlier calls change nothing.
#[test]
fn calls_from_many_threads_agree_with_single_lines() {
    let translator = translator();
    let cases = [
        short(),
        TranslateOptions { experts: ExpertChoice::Argmax, ..short() },
        TranslateOptions { experts: ExpertChoice::Random, ..short() },
        short().sampling(Sampling::default(), 7),
        short().beam(2),
    ];
    let alone = |options: &TranslateOptions| {
        let one = |(i, line): (usize, &&str)| {
            let options = TranslateOptions { first_line: i, ..options.clone() };
            translator.translate(&[line], &options).unwrap().remove(0)
        };
        LINES.iter().enumerate().map(one).collect::<Vec<_>>()
    };
    let want: Vec<Vec<_>> = cases.iter().map(alone).collect();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (translator, cases, want) = (&translator, &cases, &want);
            scope.spawn(move || {
                for turn in 0..cases.len() {
                    let case = (thread + turn) % cases.len();
                    let found = translator.translate(&LINES, &cases[case]).unwrap();
                    for (found, want) in found.iter().zip(&want[case]) {
                        assert_eq!(found.text(), want.text(), "case {case}");
                        assert!((found.score() - want.score()).abs() < 1e-5, "case {case}");
                    }
                }
            });
        }
    });
}

#[test]
fn gates_are_typed_by_attention() {
    let translator = translator();
    let found = translator.translate(&LINES[..2], &short().with_gates()).unwrap();
    let encoder = found[0].encoder_gates().unwrap();
    assert_eq!(encoder.len(), 1);
    assert_eq!((encoder[0].kind, encoder[0].layer()), (AttentionKind::Encoder, 0));
    let GateRows::Sentence(gate) = &encoder[0].rows else { panic!("the encoder's gates are per sentence") };
    assert_eq!(gate.len(), 4);
    assert!((gate.iter().sum::<f32>() - 1.0).abs() < 1e-5);
    let best = found[0].best();
    let decoder = best.gates.as_ref().unwrap();
    let kinds: Vec<_> = decoder.iter().map(|g| (g.kind, g.layer())).collect();
    let (own, cross) = (AttentionKind::Decoder, AttentionKind::Cross);
    assert_eq!(kinds, [(own, 0), (cross, 0), (own, 1), (cross, 1)]);
    assert!(decoder.iter().all(|gates| gates.rows.rows().len() == best.tokens.len()));
    assert!(found[1].encoder_gates().is_none(), "an empty line has no gates");
}

#[test]
fn translations_begin_as_asked_and_score_as_found() {
    let translator = translator();
    let prefixes = ["z y", "", "", "x", "v v v", ""];
    let found = translator.translate_from(&LINES, &prefixes, &short()).unwrap();
    for (translation, prefix) in found.iter().zip(prefixes).filter(|(_, prefix)| !prefix.is_empty()) {
        assert!(translation.text().starts_with(prefix), "{} {prefix}", translation.text());
    }
    let free = translator.translate(&LINES, &short()).unwrap();
    let texts: Vec<&str> = free.iter().map(|translation| translation.text()).collect();
    let scores = translator.score(&LINES, &texts, TextForm::Lines, ExpertChoice::Mix).unwrap();
    for (translation, scores) in free.iter().zip(&scores).filter(|(t, _)| !t.text().is_empty()) {
        let tokens = &translation.best().tokens;
        assert_eq!(tokens.len(), scores.len());
        assert!(tokens.iter().zip(scores).all(|(token, score)| (token.log_prob - score).abs() < 1e-4));
    }
    let wrong = translator.translate_from(&LINES, &["x"], &short());
    assert!(matches!(wrong, Err(Error::Lengths { found: 1, wanted: 6, .. })), "{wrong:?}");
    let pieces = TranslateOptions { form: TextForm::Pieces, ..short() };
    assert_eq!(translator.translate(&LINES, &pieces).unwrap(), free, "there are no codes to cut with");
}

#[test]
fn models_of_an_ensemble_translate_together() {
    let place = tempfile::tempdir().unwrap();
    let path = |name: &str| place.path().join(name);
    save(&path("one"), System::MAE, 3, &["x", "y", "z"]);
    save(&path("two"), System::BASE, 4, &["x", "y", "z"]);
    save(&path("foreign"), System::MAE, 3, &["x", "y", "w"]);
    let both = Translator::load_ensemble(&[path("one"), path("two")], &Device::cpu()).unwrap();
    assert_eq!(both.translate(&LINES, &short()).unwrap().len(), LINES.len());
    let refused = both.translate(&LINES, &TranslateOptions { experts: ExpertChoice::Argmax, ..short() });
    assert!(refused.unwrap_err().to_string().contains("no mixture"), "the second is a plain transformer");
    let refused = Translator::load_ensemble(&[path("one"), path("foreign")], &Device::cpu()).err().unwrap();
    let text = refused.to_string();
    assert!(text.contains("cannot translate together") && text.contains("id 4 is `w`"), "{text}");
    let missing = Translator::load(path("none"), &Device::cpu()).err().unwrap().to_string();
    assert!(missing.contains("none is not a model folder"), "{missing}");
}

#[test]
fn faults_are_typed() {
    use mae::translate::Error as Fault;
    let translator = translator();
    let refused = translator.translate(&LINES, &short().beam(2).nbest(3));
    assert!(matches!(refused, Err(Error::Translate(Fault::Options(_)))), "{refused:?}");
    let options = TranslateOptions { experts: ExpertChoice::Number(4), ..short() };
    let text = translator.translate(&LINES, &options).unwrap_err().to_string();
    assert!(text.contains("has 4 experts, numbers 0 to 3"), "{text}");
}

#[test]
fn a_model_whose_training_diverged_is_the_same_error_everywhere() {
    use mae::translate::Error as Fault;
    let place = tempfile::tempdir().unwrap();
    let mut folder = save(place.path(), System::BASE, 3, &["x", "y", "z"]);
    folder.model.params_mut().set("decoder.layers.1.fc2.bias", &[f32::NAN; 16]).unwrap();
    let translator = Translator::from_model(folder, "diverged", &Device::cpu()).unwrap();
    let found = translator.translate(&LINES[1..3], &short()).unwrap_err();
    let scored = translator.score(&LINES[1..3], &["", "x"], TextForm::Lines, ExpertChoice::Mix).unwrap_err();
    assert!(matches!(found, Error::Translate(Fault::NotFinite { number: 1, .. })), "{found:?}");
    assert!(matches!(scored, Error::Translate(Fault::NotFinite { number: 0 | 1, .. })), "{scored:?}");
}

/// An expert whose share is evenly given away, and a head that is silent: cached steps agree with the full pass that
/// scores them, and what is off is written by name.
#[test]
fn experts_and_heads_can_be_switched_off() {
    let place = tempfile::tempdir().unwrap();
    for system in [System::MAE, System::UNIFORM] {
        save(place.path(), system, 3, &["x", "y", "z", "u", "v"]);
        let translator = Translator::load(place.path(), &Device::cpu()).unwrap();
        let off = |attention: &str, experts: &[usize], heads: &[usize]| {
            let (experts, heads) = (experts.to_vec(), heads.to_vec());
            TranslateOptions {
                off: vec![SwitchedOff { attention: attention.into(), experts, heads }],
                ..short().nbest(2)
            }
        };
        let plain = translator.translate(&LINES, &short().nbest(2)).unwrap();
        let same = translator.translate(&LINES, &off("decoder.layers.1.encoder_attn", &[], &[])).unwrap();
        for (same, plain) in same.iter().zip(&plain) {
            assert!(same.text() == plain.text() && (same.score() - plain.score()).abs() < 1e-4);
        }
        for attention in
            ["encoder.layers.0.self_attn", "decoder.layers.0.self_attn", "decoder.layers.1.encoder_attn"]
        {
            for (experts, heads) in [(&[0, 2][..], &[][..]), (&[], &[1])] {
                let changed = translator.translate(&LINES, &off(attention, experts, heads)).unwrap();
                let differ = changed.iter().zip(&plain).any(|(a, b)| (a.score() - b.score()).abs() > 1e-6);
                let gated = system == System::MAE || !heads.is_empty();
                assert!(differ || !gated, "{attention} {experts:?} {heads:?}");
            }
        }
        let refused =
            |options: &TranslateOptions| translator.translate(&LINES, options).unwrap_err().to_string();
        assert!(
            refused(&off("encoder.layers.1.self_attn", &[0], &[])).contains("no attention encoder.layers.1")
        );
        assert!(refused(&off("encoder.layers.0.self_attn", &[4], &[])).contains("there is no number 4"));
        assert!(refused(&off("encoder.layers.0.self_attn", &[], &[4])).contains("has 4 heads"));
        assert!(
            refused(&off("encoder.layers.0.self_attn", &[0, 1, 2, 3], &[])).contains("at least one expert")
        );
    }
}
