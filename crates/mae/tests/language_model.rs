//! Language models as a program uses them.

use std::sync::Arc;

use mae::data::Vocab;
use mae::data::vocab::VocabOptions;
use mae::model::System;
use mae::model::lm::{LmConfig, LmFolder};
use mae::{Context, ContinueOptions, Device, End, Error, LanguageModel, Sampling, ScoreOptions};

fn folder() -> LmFolder {
    let mut config = LmConfig::arch("transformer_lm_tiny").unwrap();
    (config.decoder_layers, config.decoder_embed_dim) = (2, 16);
    (config.decoder_ffn_embed_dim, config.decoder_attention_heads) = (24, 4);
    (config.adaptive_softmax_cutoff, config.max_positions) = (vec![], 12);
    config.mixture.system = System::MAE;
    config.mixture.gate_hidden = 8;
    let words = ["a", "b", "c", "d", "e"].map(|word| (word, 1));
    let dictionary = Arc::new(Vocab::from_counts(words, VocabOptions::default()));
    let device = Device::cpu();
    let model = mae::model::LanguageModel::new(&config, dictionary.len(), device.engine(), 3).unwrap();
    LmFolder { model, dictionary, codes: None }
}

fn model() -> LanguageModel {
    let place = tempfile::tempdir().unwrap();
    folder().save(place.path()).unwrap();
    LanguageModel::load(place.path(), &Device::cpu()).unwrap()
}

#[test]
fn lines_are_scored_alone_or_as_one_text() {
    let (model, lines) = (model(), ["a b nobody", "", "c d e a b c d e"]);
    let alone = model.score(&lines, &ScoreOptions::default()).unwrap();
    let sizes: Vec<_> = alone.iter().map(|line| (line.tokens.len(), line.unknown)).collect();
    assert_eq!(sizes, [(4, 1), (1, 0), (9, 0)]);
    assert!(alone.iter().all(|line| line.log_prob() < 0.0 && line.tokens.last().unwrap().piece == "</s>"));
    for (line, found) in lines.iter().zip(&alone) {
        let single = model.score(&[line], &ScoreOptions::default()).unwrap();
        assert!((single[0].log_prob() - found.log_prob()).abs() < 1e-4, "neighbours do not count");
    }
    let text = ScoreOptions { context: Context::Text { window: 4 }, ..ScoreOptions::default() };
    let together = model.score(&lines, &text).unwrap();
    assert!((together[0].log_prob() - alone[0].log_prob()).abs() < 1e-4, "the first has no context");
    assert!((together[2].log_prob() - alone[2].log_prob()).abs() > 1e-4);
    let long = ["a"; 20].join(" ");
    let refused = model.score(&["b", &long], &ScoreOptions::default());
    assert!(matches!(refused, Err(Error::LineTooLong { line: 1, tokens: 21, positions: 12 })), "{refused:?}");
    assert_eq!(model.score(&["b", &long], &text).unwrap()[1].tokens.len(), 21);
}

#[test]
fn texts_are_continued() {
    let model = model();
    let options = ContinueOptions { max_len: 5, ..ContinueOptions::default() };
    let found = model.continue_text("a b", &options).unwrap();
    assert!(found.text.starts_with("a b"), "{found:?}");
    assert_eq!(format!("a b{}", found.continuation), found.text);
    assert!(found.tokens.len() == 5 || found.end == End::Line);
    let drawn = ContinueOptions { sampling: Some(Sampling::default()), ..options };
    let several = model.continue_texts(&["a b", "", "c nobody"], 3, &drawn).unwrap();
    assert!(several.iter().all(|found| found.len() == 3));
    assert_eq!(several[2][0].unknown, 1);
    assert_ne!(several[0][0].tokens, several[0][1].tokens, "draws of a prompt differ");
    let long = ["a"; 20].join(" ");
    let cut = model.continue_text(&long, &options).unwrap();
    assert_eq!((cut.cut, cut.text.starts_with(&long)), (13, true));
    let bad = ContinueOptions { temperature: 0.0, ..drawn };
    assert!(model.continue_text("a", &bad).unwrap_err().to_string().contains("temperature = 0"));
}
