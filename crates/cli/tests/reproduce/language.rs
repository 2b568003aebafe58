//! Studies of language models.

use serde_json::Value;

use super::{args, json, page_data};
use crate::common::{Sandbox, lines};

#[test]
fn language_models_by_perplexity() {
    let place = Sandbox::new();
    let words = ["ein", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun", "zehn"];
    let line = |i: usize| (0..4 + i % 5).map(|j| words[(i * 7 + j * 3) % 10]).collect::<Vec<_>>().join(" ");
    place.write("train.txt", lines(&(0..80).map(line).collect::<Vec<_>>()));
    // Long enough for stretches to be drawn.
    place.write("test.txt", lines(&(100..460).map(line).collect::<Vec<_>>()));
    let texts = ["--trainpref", "train.txt", "--validpref", "test.txt", "--testpref", "test.txt"];
    place.mae(&["preprocess", "--only-source", "--destdir", "bin"], &texts).succeeded();
    let systems = ["base", "mae"].map(|system| {
        format!(
            "[[system]]\nname = \"{system}\"\nrecipe = \"wikitext2-base\"\npaper = 19.03\nkeys.model.mixture = {{ system = \
             \"{system}\", gate_hidden = 8 }}\n"
        )
    });
    place.write(
        "tiny.toml",
        format!(
            "title = \"Tiny language models\"\nseeds = [1, 2]\nmax_update = 20\n[keys.model]\ndecoder_layers = 1\n\
             decoder_embed_dim = 16\ndecoder_ffn_embed_dim = 24\ndecoder_attention_heads = 4\nadaptive_softmax_cutoff = []\n\
             max_positions = 24\n[keys.train]\ntokens_per_sample = 16\nmax_tokens = 64\n\
             [language_model]\ntokens_per_sample = 16\ncontext_window = 12\n{}",
            systems.concat()
        ),
    );
    let told = place.mae(&args("out", &[]), &[]);
    let table = told.succeeded();
    let parts = [
        "ppl valid",
        "ppl test",
        "19.03",
        "blocks of 16 tokens of which 12 are context",
        "at least 200 tokens",
    ];
    for part in parts {
        assert!(table.contains(part), "{part}: {table}");
    }
    for part in ["BASE, 4 heads per attention", "MAE, 4 heads and 4 experts per attention"] {
        assert!(told.stderr.contains(part), "{part}: {}", told.stderr);
    }
    let texts = |run: &str| json(&place.path(&format!("out/{run}/result.json")))["language_model"].clone();
    let eval = |more: &[&str]| -> Value {
        let eval = ["eval-lm", "out/mae-1/checkpoint_best", "--data", "bin", "--json", "--device", "cpu"];
        let blocks = ["--tokens-per-sample", "16", "--context-window", "12"];
        serde_json::from_str(place.mae(&eval, &[&blocks[..], more].concat()).succeeded()).unwrap()
    };
    // `eval-lm` packs weights when it loads a model, which rounds otherwise than the study's pass.
    let same = |a: &Value, b: &Value| (a.as_f64().unwrap() / b.as_f64().unwrap() - 1.0).abs() < 1e-5;
    let found = texts("mae-1");
    assert!(same(&eval(&[])["ppl_per_token"], &found["test"]["ppl"]));
    assert!(same(&eval(&["--expert", "argmax"])["ppl_per_word"], &found["test"]["one_expert"]["argmax"]));
    assert_eq!(found["test"]["one_expert"]["random"].as_array().unwrap().len(), 5);
    assert!(found["valid"]["one_expert"].is_null() && texts("base-1")["test"]["one_expert"].is_null());
    // What p is taken from adds up to what was found, and p is there, over both seeds and for each.
    let stretches = json(&place.path("out/mae-1/likelihoods.json"))["test"].as_array().unwrap().clone();
    let sum = |key: &str| stretches.iter().map(|stretch| stretch[key].as_f64().unwrap()).sum::<f64>();
    assert_eq!(sum("tokens"), found["test"]["tokens"].as_f64().unwrap());
    assert!(stretches.len() >= 10 && stretches.iter().all(|stretch| stretch["tokens"].as_u64() >= Some(200)));
    let ppl = (sum("nll_nats") / sum("tokens")).exp();
    assert!((ppl - found["test"]["ppl"].as_f64().unwrap()).abs() < 1e-6 * ppl, "{ppl} {found}");
    let row = |place: &Sandbox| json(&place.path("out/study.json"))["comparison"]["rows"][1].clone();
    let p = row(&place)["p_value"].as_f64().unwrap();
    assert!(p > 0.0 && p <= 1.0 && table.contains(&format!("{p:.3}")), "{p} {table}");
    assert_eq!(row(&place)["p_values"].as_object().unwrap().len(), 2);
    assert_eq!(place.mae(&args("out", &[]), &[]).succeeded(), table);
    let figure = page_data(&place)["svg"].as_str().unwrap().to_owned();
    assert!(figure.contains("perplexity per token, test text (lower is better)"), "{figure}");
    // Results of before such files were written have no p; equal models get the largest.
    std::fs::copy(place.path("out/base-2/likelihoods.json"), place.path("out/mae-2/likelihoods.json"))
        .unwrap();
    std::fs::remove_file(place.path("out/mae-1/likelihoods.json")).unwrap();
    place.mae(&args("out", &[]), &[]).succeeded();
    assert_eq!(
        (&row(&place)["p_value"], &row(&place)["p_values"]),
        (&1.0.into(), &serde_json::json!({"2": 1.0}))
    );
    std::fs::remove_file(place.path("out/base-2/likelihoods.json")).unwrap();
    let old = place.mae(&args("out", &[]), &[]);
    assert!(row(&place)["p_value"].is_null() && old.succeeded().contains('–'), "{}", old.stdout);
    place.write("out/base-2/likelihoods.json", "{");
    let damaged = place.mae(&args("out", &[]), &[]);
    assert!(damaged.failed().contains("out/base-2/likelihoods.json is damaged"), "{}", damaged.stderr);
}
