//! Model folders, checkpoints and configurations.

use serde_json::{Map, Value, json};

use super::{Sandbox, contents, copy, cut, folder, mae, poke, refused, remove, replace, rewrite};

const MODEL: &str = "run/checkpoint_last";
const WEIGHTS: &str = "run/checkpoint_last/model.safetensors";
const CONFIG: &str = "run/checkpoint_last/config.toml";
const GENERATE: &str = "generate run/checkpoint_last --source valid.de --plain --device cpu --output out";

/// Changes what the header of the weights says.
fn header(sandbox: &Sandbox, change: impl Fn(&mut Map<String, Value>)) {
    let bytes = std::fs::read(sandbox.path(WEIGHTS)).unwrap();
    let (size, rest) = bytes.split_first_chunk::<8>().unwrap();
    let (text, numbers) = rest.split_at(u64::from_le_bytes(*size) as usize);
    let mut tensors: Map<String, Value> = serde_json::from_slice(text).unwrap();
    change(&mut tensors);
    let text = serde_json::to_string(&tensors).unwrap();
    let mut file = (text.len() as u64).to_le_bytes().to_vec();
    file.extend(text.as_bytes());
    file.extend(numbers);
    sandbox.write(WEIGHTS, file);
}

#[test]
fn damaged_weights_are_refused() {
    refused(&[
        (
            "weights cut off",
            |s| cut(s, WEIGHTS, 100),
            GENERATE,
            &[WEIGHTS, "cut off or damaged", "another checkpoint"],
        ),
        ("weights of 4 bytes", |s| s.write(WEIGHTS, [0; 4]), GENERATE, &[WEIGHTS, "cut off or damaged"]),
        ("empty weights", |s| s.write(WEIGHTS, ""), GENERATE, &[WEIGHTS, "cut off or damaged"]),
        ("no weights", |s| remove(s, WEIGHTS), GENERATE, &[WEIGHTS, "No such file"]),
        (
            "a header longer than the file",
            |s| poke(s, WEIGHTS, 0, &[0xff, 0xff, 0xff]),
            GENERATE,
            &[WEIGHTS, "header"],
        ),
        (
            "a header of 2^60 bytes",
            |s| poke(s, WEIGHTS, 0, &(1_u64 << 60).to_le_bytes()),
            GENERATE,
            &[WEIGHTS, "header"],
        ),
        ("a header that is no JSON", |s| poke(s, WEIGHTS, 8, b"}"), GENERATE, &[WEIGHTS, "header"]),
        (
            "a tensor missing and one too many",
            |s| {
                header(s, |tensors| {
                    let tensor = tensors.remove("encoder.layers.0.fc1.bias").unwrap();
                    tensors.insert("encoder.layers.0.fc9.bias".into(), tensor);
                });
            },
            GENERATE,
            &[
                WEIGHTS,
                "`encoder.layers.0.fc1.bias` is missing; expected shape [16]",
                "`encoder.layers.0.fc9.bias` is not a parameter of this model",
            ],
        ),
        (
            "a tensor of another shape",
            |s| header(s, |tensors| tensors["encoder.layers.0.fc1.weight"]["shape"] = json!([8, 32])),
            GENERATE,
            &[WEIGHTS, "`encoder.layers.0.fc1.weight` has shape [8, 32]; expected [16, 16]"],
        ),
        (
            "a tensor of whole numbers",
            |s| header(s, |tensors| tensors["encoder.layers.0.fc1.weight"]["dtype"] = json!("I32")),
            GENERATE,
            &[WEIGHTS, "`encoder.layers.0.fc1.weight` is I32; expected F32"],
        ),
        (
            "a tensor outside the file",
            |s| {
                header(s, |tensors| {
                    tensors["encoder.layers.0.fc1.weight"]["data_offsets"] = json!([0, 1_u64 << 60]);
                });
            },
            GENERATE,
            &[WEIGHTS, "not a whole safetensors file"],
        ),
    ]);
}

#[test]
fn model_folders_that_do_not_fit_together_are_refused() {
    refused(&[
        (
            "a dictionary of another size",
            |s| rewrite(s, "run/checkpoint_last/dict.src.txt", |l| l.truncate(5)),
            GENERATE,
            &[WEIGHTS, "`encoder.embed_tokens.weight` has shape", "dict.src.txt has 9"],
        ),
        (
            "a folder without a dictionary",
            |s| remove(s, "run/checkpoint_last/dict.tgt.txt"),
            GENERATE,
            &["dict.tgt.txt"],
        ),
        (
            "rules for a text that are cut off",
            |s| s.write("run/checkpoint_last/text.json", "{\"format\": 1, \"source_lang\": \"de\""),
            GENERATE,
            &["text.json", "mend the file"],
        ),
        (
            "rules for a language that has none",
            |s| {
                s.write(
                    "run/checkpoint_last/text.json",
                    r#"{"format": 1, "source_lang": "de", "target_lang": "xx", "rules": {"tokenize": "moses"}}"#,
                );
            },
            GENERATE,
            &["text.json", "xx"],
        ),
        (
            "data of another dictionary",
            |s| {
                remove(s, "bin/preprocess.json");
                rewrite(s, "bin/dict.de.txt", |l| l.reverse());
            },
            "generate run/checkpoint_last bin --gen-subset valid --device cpu",
            &["bin/dict.de.txt is not the dictionary", "id 4 is", "--source FILE"],
        ),
        (
            "models that cannot translate together",
            |s| {
                rewrite(s, "run/checkpoint_best/dict.tgt.txt", |l| l.reverse());
            },
            "generate run/checkpoint_last:run/checkpoint_best --source valid.de --plain --device cpu",
            &["cannot translate together", "target dictionaries", "id 4 is"],
        ),
        (
            "a model's tokeniser broken",
            |s| {
                remove(s, "run/checkpoint_last/bpe.codes");
                s.write("run/checkpoint_last/tokenizer.json", "{\"model\": [");
            },
            GENERATE,
            &["run/checkpoint_last/tokenizer.json: not JSON"],
        ),
        (
            "a model's codes broken",
            |s| s.write("run/checkpoint_last/bpe.codes", "h\n"),
            GENERATE,
            &["run/checkpoint_last/bpe.codes, line 1"],
        ),
        (
            "no model",
            |_| {},
            "generate bin --source valid.de --device cpu",
            &["bin is not a model folder", "config.toml"],
        ),
        (
            "a checkpoint whose run was killed between two renames",
            |s| std::fs::rename(s.path(MODEL), s.path("run/checkpoint_last.old")).unwrap(),
            GENERATE,
            &["run/checkpoint_last.old is the one before", "start the run again"],
        ),
        (
            "models of different shapes to average",
            |s| replace(s, "run/checkpoint_best/config.toml", "encoder_layers = 1", "encoder_layers = 2"),
            "average --inputs run/checkpoint_last run/checkpoint_best --output mean",
            &["run/checkpoint_best"],
        ),
    ]);
}

#[test]
fn wrong_configurations_are_refused() {
    refused(&[
        (
            "a key of another type",
            |s| replace(s, CONFIG, "encoder_layers = 1", "encoder_layers = \"one\""),
            GENERATE,
            &[CONFIG, "line 7", "encoder_layers", "expected usize"],
        ),
        (
            "an unknown key",
            |s| replace(s, CONFIG, "encoder_layers", "encoder_layer"),
            GENERATE,
            &[CONFIG, "unknown field `encoder_layer`", "`encoder_layers`"],
        ),
        (
            "a value out of range",
            |s| replace(s, CONFIG, "dropout = 0.3", "dropout = 1.5"),
            GENERATE,
            &["dropout = 1.5 must be at least 0 and below 1"],
        ),
        (
            "an absurd width",
            |s| replace(s, CONFIG, "embed_dim = 16", "embed_dim = 4611686018427387904"),
            GENERATE,
            &["encoder_embed_dim = 4611686018427387904 is too large"],
        ),
        (
            "more layers than weights",
            |s| replace(s, CONFIG, "encoder_layers = 1", "encoder_layers = 2"),
            GENERATE,
            &[WEIGHTS, "`encoder.layers.1.fc1.bias` is missing"],
        ),
        (
            "a format of the future",
            |s| replace(s, CONFIG, "format = 1", "format = 7"),
            GENERATE,
            &[CONFIG, "this program reads format 1"],
        ),
        ("an empty configuration", |s| s.write(CONFIG, ""), GENERATE, &[CONFIG, "missing field `format`"]),
        ("a configuration that is no text", |s| s.write(CONFIG, [255; 9]), GENERATE, &[CONFIG, "UTF-8"]),
        (
            "an unknown key of a run",
            |_| {},
            "TRAIN --set train.warmup_update=3",
            &["unknown key `train.warmup_update`; did you mean `warmup_updates`?"],
        ),
        ("a word for a number", |_| {}, "TRAIN --set train.lr=fast", &["\"fast\"", "train.lr"]),
        ("a number below 0", |_| {}, "TRAIN --set train.max_tokens=-3", &["-3", "train.max_tokens"]),
        (
            "a number out of range",
            |_| {},
            "TRAIN --set train.label_smoothing=1.5",
            &["train.label_smoothing must be in"],
        ),
        ("no number", |_| {}, "TRAIN --set train.lr=nan", &["train.lr must be above 0"]),
        ("a number for a section", |_| {}, "TRAIN --set model=3", &["model"]),
        (
            "a recipe with a wrong type",
            |s| s.write("recipe.toml", "[train]\nlr = \"fast\"\n"),
            "train bin --recipe recipe.toml --save-dir new",
            &["train.lr"],
        ),
        (
            "a recipe that is no TOML",
            |s| s.write("recipe.toml", "[train\nlr = 1\n"),
            "train bin --recipe recipe.toml --save-dir new",
            &["recipe.toml", "line 1"],
        ),
    ]);
}

#[test]
fn runs_that_cannot_go_on_are_refused() {
    refused(&[
        (
            "a dictionary of the same size with other words",
            |s| {
                remove(s, "bin/preprocess.json");
                rewrite(s, "bin/dict.de.txt", |l| l.reverse());
            },
            "TRAIN",
            &[MODEL, "the source dictionaries differ", "first at id 4", "choose another --save-dir"],
        ),
        (
            "a dictionary of another size",
            |s| {
                remove(s, "bin/preprocess.json");
                rewrite(s, "bin/dict.en.txt", |l| l.push("more 1"));
            },
            "TRAIN",
            &[MODEL, "the target dictionaries differ", "no entry"],
        ),
        (
            "another model",
            |_| {},
            "TRAIN --set model.norm=pre",
            &[CONFIG, "another model than this run asks for (model.norm is \"post\" there and \"pre\" here)"],
        ),
        (
            "another sharing and another rate",
            |_| {},
            "TRAIN --set model.share_embeddings=none --lr 0.5",
            &["model.share_embeddings", "choose another --save-dir"],
        ),
        ("more layers", |_| {}, "TRAIN --set model.encoder_layers=5", &["model.encoder_layers is 1 there"]),
        (
            "a development set that is not there",
            |_| {},
            "TRAIN --valid-subset other --reset-optimizer",
            &["other"],
        ),
        (
            "batches that no pair fits into",
            |_| {},
            "TRAIN --set train.max_tokens=1 --reset-dataloader --reset-meters",
            &["train.max_tokens"],
        ),
        (
            "a state cut off",
            |s| cut(s, "run/checkpoint_last/state.json", 20),
            "TRAIN",
            &["state.json", "damaged", "another checkpoint"],
        ),
        (
            "moments cut off",
            |s| cut(s, "run/checkpoint_last/optimizer.safetensors", 20),
            "TRAIN",
            &["optimizer.safetensors", "cut off or damaged"],
        ),
        (
            "moments of another model",
            |s| copy(s, WEIGHTS, "run/checkpoint_last/optimizer.safetensors"),
            "TRAIN",
            &["optimizer.safetensors", "is missing", "--reset-optimizer"],
        ),
    ]);
}

#[test]
fn a_run_with_nothing_left_to_do_stays_as_it_is() {
    let sandbox = folder();
    let before = contents(&sandbox.path("run"));
    let run = mae(&sandbox, "TRAIN --set train.max_update=1 --lr 0.5 --tensorboard-logdir run/board");
    assert!(run.succeeded().contains("nothing left to train"), "{}", run.stdout);
    assert_eq!(contents(&sandbox.path("run")), before);
}

#[test]
fn a_run_that_goes_on_otherwise_keeps_its_older_record() {
    let sandbox = folder();
    let before = std::fs::read_to_string(sandbox.path("run/run.toml")).unwrap();
    mae(&sandbox, "TRAIN --lr 0.25").succeeded();
    let read = |name: &str| std::fs::read_to_string(sandbox.path(name)).unwrap();
    assert_eq!(read("run/run.1.toml"), format!("# until update 1\n{before}"));
    assert!(read("run/run.toml").contains("lr = 0.25"));
    let said = mae(&sandbox, "report run");
    let said = format!("{}{}", said.succeeded(), said.stderr);
    assert!(said.contains("changed after update 1: train.lr from"), "{said}");
}
