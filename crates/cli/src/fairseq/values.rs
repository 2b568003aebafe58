//! Rules that depend on the value of a flag or on the rest of the line.

use std::path::Path;

use super::line::Line;
use super::rule::Answer;

pub(super) fn refused(why: &str) -> Answer {
    Answer::Refused(why.to_owned())
}

pub(super) fn left_out(why: &str) -> Answer {
    Answer::LeftOut(why.to_owned())
}

/// `translation` and `language_modeling`, where the model decides.
pub fn tasks(_: &str, value: &str, _: &mut Line) -> Answer {
    match value {
        "translation" | "language_modeling" => Answer::nothing(),
        _ => Answer::Otherwise,
    }
}

/// The format of a data set.
pub fn dataset(_: &str, value: &str, _: &mut Line) -> Answer {
    match value {
        "mmap" => Answer::nothing(),
        _ => Answer::Otherwise,
    }
}

/// A number that means nothing below 0.
pub fn unless_negative(flag: &str, value: &str, _: &mut Line) -> Answer {
    if value.starts_with('-') { Answer::nothing() } else { Answer::flag(flag, value) }
}

/// A number that must be 0.
pub fn unless_zero(_: &str, value: &str, _: &mut Line) -> Answer {
    match value.parse::<f64>() {
        Ok(0.0) => Answer::nothing(),
        _ => Answer::Otherwise,
    }
}

/// The folder of a checkpoint of fairseq's name: `checkpoint_best.pt` is `checkpoint_best`, if that is a folder.
fn folder_of(value: &str) -> Result<String, Answer> {
    let names: Vec<String> = value
        .split(':')
        .map(|name| match name.strip_suffix(".pt") {
            Some(folder) if !Path::new(name).exists() => folder.to_owned(),
            _ => name.to_owned(),
        })
        .collect();
    match names.iter().find(|name| Path::new(name).is_file()) {
        Some(file) => Err(Answer::Refused(format!(
            "a model is a folder here; `mae import fairseq {file} --out DIR` makes one of a file of fairseq's"
        ))),
        None => Ok(names.join(":")),
    }
}

/// `--path`.
pub fn path(_: &str, value: &str, line: &mut Line) -> Answer {
    match folder_of(value) {
        Ok(model) => {
            line.set_model(model);
            Answer::nothing()
        }
        Err(answer) => answer,
    }
}

/// `--finetune-from-model`.
pub fn model_folder(flag: &str, value: &str, _: &mut Line) -> Answer {
    folder_of(value).map_or_else(|answer| answer, |model| Answer::flag(flag, &model))
}

/// `--restore-file`.
pub fn restore(_: &str, value: &str, _: &mut Line) -> Answer {
    let is_last = Path::new(value).file_stem().is_some_and(|name| name == "checkpoint_last");
    match is_last && !value.contains('/') {
        true => Answer::nothing(),
        false => refused(
            "a run resumes from the last checkpoint of its --save-dir; --finetune-from-model DIR starts a new run with the \
             weights of a model",
        ),
    }
}

/// `--remove-bpe`, alone or with a kind of pieces.
pub fn remove_bpe(_: &str, value: &str, _: &mut Line) -> Answer {
    match value {
        "false" | "true" => Answer::flag("--remove-bpe", value),
        "" | "@@ " | "subword_nmt" | "sentencepiece" => Answer::Words(vec!["--remove-bpe".into()]),
        _ => refused("pieces are joined by the rules of the model folder: --remove-bpe"),
    }
}

/// `--results-path`.
pub fn results(_: &str, value: &str, line: &mut Line) -> Answer {
    let split = line.value("--gen-subset").unwrap_or("test");
    Answer::flag("--output", &format!("{value}/generate-{split}.txt"))
}

/// `--bpe` of interactive.
pub fn whole_words(_: &str, value: &str, _: &mut Line) -> Answer {
    match value {
        "subword_nmt" | "sentencepiece" | "fastbpe" => Answer::nothing(),
        _ => refused("text is segmented with the codes of the model folder"),
    }
}

/// `--bpe` of preprocess: ours has a number.
pub fn codes(flag: &str, value: &str, _: &mut Line) -> Answer {
    match value.parse::<u64>() {
        Ok(_) => Answer::flag(flag, value),
        Err(_) => left_out("texts are segmented already, or with --bpe N, --bpe-codes FILE or --spm FILE"),
    }
}

/// `--tokenizer` of generate and interactive.
pub fn moses(_: &str, value: &str, _: &mut Line) -> Answer {
    match value {
        "moses" => Answer::nothing(),
        "space" => Answer::Words(vec!["--tokenized".into()]),
        _ => {
            refused("the model folder has the rules of its training text (text.json); others: `mae tokenize`")
        }
    }
}

/// `--tokenizer` of preprocess: ours has a file.
pub fn tokenizer(flag: &str, value: &str, _: &mut Line) -> Answer {
    match value {
        "space" => Answer::nothing(),
        "moses" | "nltk" => refused("tokenise the text first: `mae tokenize -l LANG`"),
        _ => Answer::flag(flag, value),
    }
}

/// `--sacrebleu` of score.
pub fn score_sacrebleu(_: &str, _: &str, _: &mut Line) -> Answer {
    Answer::nothing()
}
