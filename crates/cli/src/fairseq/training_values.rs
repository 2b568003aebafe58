//! Rules of fairseq-train that depend on the value of a flag or on the rest of the line.

use super::line::Line;
use super::rule::Answer;
use super::values::{left_out, refused};

/// The first number of a list with one, such as `[0.0005]`.
fn single(value: &str) -> Option<&str> {
    let value =
        value.trim().trim_start_matches(['[', '(']).trim_end_matches([']', ')']).trim_end_matches(',').trim();
    (!value.contains(',')).then_some(value)
}

/// A list with one number.
pub fn one_value(flag: &str, value: &str, _: &mut Line) -> Answer {
    match single(value) {
        Some(value) => Answer::flag(flag, value),
        None => refused("one number for all epochs"),
    }
}

/// Returns whether rates are those of fairseq's cosine, of which `--lr` is the highest.
fn is_fairseqs_cosine(line: &Line) -> bool {
    line.is_fairseqs() && line.value("--lr-scheduler") == Some("cosine") && !line.has("--max-lr")
}

/// `--lr`.
pub fn rate(flag: &str, value: &str, line: &mut Line) -> Answer {
    match single(value) {
        Some(value) if is_fairseqs_cosine(line) => Answer::key("train.max_lr", value),
        Some(value) => Answer::flag(flag, value),
        None => refused("one rate for all epochs; --lr-scheduler inverse_sqrt or cosine changes it"),
    }
}

/// `--min-lr`.
pub fn lowest_rate(flag: &str, value: &str, line: &mut Line) -> Answer {
    if is_fairseqs_cosine(line) { Answer::key("train.lr", value) } else { Answer::flag(flag, value) }
}

/// `--adam-betas '(0.9, 0.98)'`.
pub fn betas(_: &str, value: &str, _: &mut Line) -> Answer {
    let inner = value.trim().trim_start_matches(['(', '[']).trim_end_matches([')', ']']);
    let numbers: Vec<f64> = inner.split(',').filter_map(|number| number.trim().parse().ok()).collect();
    match numbers[..] {
        [first, second] => Answer::key("train.adam_betas", &format!("[{first:?}, {second:?}]")),
        _ => refused("two numbers are needed, as in '(0.9, 0.98)'"),
    }
}

/// `--optimizer`.
pub fn optimizer(flag: &str, value: &str, _: &mut Line) -> Answer {
    match value {
        "adam" | "nag" => Answer::flag(flag, value),
        _ => refused("optimisers are adam (with decoupled weight decay) and nag"),
    }
}

/// `--lr-scheduler`.
pub fn scheduler(flag: &str, value: &str, _: &mut Line) -> Answer {
    match value {
        "inverse_sqrt" | "cosine" => Answer::flag(flag, value),
        _ => refused("schedules are inverse_sqrt and cosine"),
    }
}

/// `--criterion`.
pub fn criterion(_: &str, value: &str, line: &mut Line) -> Answer {
    match (value, line.is_language_model()) {
        ("label_smoothed_cross_entropy", false) | ("cross_entropy" | "adaptive_loss", true) => {
            Answer::nothing()
        }
        ("cross_entropy", false) => Answer::key("train.label_smoothing", "0.0"),
        ("label_smoothed_cross_entropy", true) => {
            refused("language models have no label smoothing: cross_entropy")
        }
        ("adaptive_loss", false) => refused("translation has one softmax: label_smoothed_cross_entropy"),
        _ => refused("losses are label_smoothed_cross_entropy, cross_entropy and adaptive_loss"),
    }
}

/// `--stop-time-hours`.
pub fn hours(_: &str, value: &str, _: &mut Line) -> Answer {
    match value.parse::<f64>() {
        Ok(0.0) => Answer::nothing(),
        Ok(hours) => Answer::flag("--stop-after", &(60.0 * hours).to_string()),
        Err(_) => refused("a number of hours is needed"),
    }
}

/// `--log-format`.
pub fn log_format(_: &str, value: &str, _: &mut Line) -> Answer {
    match value {
        "json" => Answer::Words(vec!["--json".into()]),
        _ => left_out("bars show in terminals, lines elsewhere"),
    }
}

/// `--eval-bleu-args '{"beam": 5, …}'`.
pub fn bleu_arguments(_: &str, value: &str, _: &mut Line) -> Answer {
    let Ok(serde_json::Value::Object(arguments)) = serde_json::from_str(value) else {
        return refused("a JSON object is needed, as in '{\"beam\": 5}'");
    };
    match arguments.get("beam").and_then(serde_json::Value::as_u64) {
        Some(beam) => Answer::key("train.eval_bleu_beam", &beam.to_string()),
        None => left_out("BLEU of the development set has the lengths of `mae generate`"),
    }
}

/// `--best-checkpoint-metric`.
pub fn metric(flag: &str, value: &str, _: &mut Line) -> Answer {
    match value {
        "loss" | "bleu" => Answer::flag(flag, value),
        "nll_loss" | "ppl" => Answer::flag(flag, "loss"),
        _ => refused("the best checkpoint is chosen by loss or bleu"),
    }
}

/// `--maximize-best-checkpoint-metric`.
pub fn maximise(_: &str, _: &str, line: &mut Line) -> Answer {
    match line.value("--best-checkpoint-metric") {
        Some("bleu") => Answer::nothing(),
        _ => refused("a loss is better if it is lower; --best-checkpoint-metric bleu is maximised"),
    }
}

/// `--share-decoder-input-output-embed`.
pub fn shared(_: &str, _: &str, line: &mut Line) -> Answer {
    match line.is_language_model() {
        true => Answer::nothing(),
        false => Answer::key("model.share_embeddings", "decoder"),
    }
}

/// `--arch`: in a line for fairseq the sizes come from fairseq's table.
pub fn architecture(flag: &str, value: &str, line: &mut Line) -> Answer {
    if line.is_fairseqs() { Answer::nothing() } else { Answer::flag(flag, value) }
}

/// `--activation-fn`.
pub fn activation(_: &str, value: &str, _: &mut Line) -> Answer {
    match value {
        "relu" | "gelu" | "swish" => Answer::key("model.activation", value),
        "gelu_accurate" => Answer::key("model.activation", "gelu"),
        _ => refused("activations are relu, gelu and swish"),
    }
}

/// Sizes of the decoder, which are those of the encoder in translation models.
pub fn one_of_both(flag: &str, value: &str, line: &mut Line) -> Answer {
    let wanted = match flag {
        "--decoder-output-dim" | "--decoder-input-dim" => "--decoder-embed-dim",
        flag => flag,
    };
    if wanted != flag {
        return match line.value(wanted) == Some(value) {
            true => Answer::nothing(),
            false => Answer::Refused(format!("it must be the width of the stack, {wanted}")),
        };
    }
    let key = flag.trim_start_matches('-').replace('-', "_");
    if line.is_language_model() {
        return Answer::key(&format!("model.{key}"), value);
    }
    let encoder = flag.replace("decoder", "encoder");
    match line.value(&encoder) == Some(value) {
        true => Answer::nothing(),
        false => Answer::Refused(format!("both stacks have the same sizes: give {encoder} {value} as well")),
    }
}

/// Places of the norms.
pub fn norm(flag: &str, _: &str, line: &mut Line) -> Answer {
    let both = line.has("--encoder-normalize-before") && line.has("--decoder-normalize-before");
    match (flag, line.is_language_model()) {
        ("--no-decoder-final-norm", true) => Answer::key("model.final_norm", "false"),
        ("--no-decoder-final-norm", false) => {
            refused("stacks with norms before their sublayers end with one")
        }
        (_, true) => Answer::nothing(),
        (_, false) if both => Answer::key("model.norm", "pre"),
        _ => {
            refused("both stacks have their norms in the same place: give the flag of the other one as well")
        }
    }
}

/// Positions: one number for both sides.
pub fn positions(_: &str, value: &str, line: &mut Line) -> Answer {
    let number = |flag: &str| line.value(flag).and_then(|value| value.parse::<u64>().ok());
    let both = [number("--max-source-positions"), number("--max-target-positions")];
    match both.iter().flatten().max() {
        Some(most) => Answer::key("model.max_positions", &most.to_string()),
        None => Answer::Refused(format!("{value} is not a number")),
    }
}

/// Cutoffs of the adaptive softmax, which are those of the input.
pub fn cutoffs(_: &str, value: &str, line: &mut Line) -> Answer {
    let (input, softmax) = (line.value("--adaptive-input-cutoff"), line.value("--adaptive-softmax-cutoff"));
    if !line.is_language_model() {
        return refused("translation has one softmax over the whole dictionary");
    }
    match input.zip(softmax).is_some_and(|(input, softmax)| input != softmax) {
        true => refused("input and softmax have the same cutoffs"),
        false => {
            Answer::key("model.adaptive_softmax_cutoff", &format!("[{}]", value.trim_matches(['[', ']'])))
        }
    }
}
