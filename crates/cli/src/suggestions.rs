//! Suggestions for unknown flags: names that are nearly the same, or that mean the same elsewhere.

use clap::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use mae_train::config::distance;

/// Names of other programs, and ours; only flags that the command has are suggested.
const SYNONYMS: [(&str, &str); 22] = [
    ("--learning-rate", "--lr"),
    ("--learning-rates", "--lr"),
    ("--epochs", "--max-epoch"),
    ("--num-train-epochs", "--max-epoch"),
    ("--steps", "--max-update"),
    ("--max-steps", "--max-update"),
    ("--output-dir", "--save-dir"),
    ("--out-dir", "--save-dir"),
    ("--config", "--recipe"),
    ("--gradient-accumulation-steps", "--update-freq"),
    ("--num-beams", "--beam"),
    ("--beam-size", "--beam"),
    ("--length-penalty", "--lenpen"),
    ("--top-k", "--sampling-topk"),
    ("--top-p", "--sampling-topp"),
    ("--gpu", "--device"),
    ("--cuda", "--device"),
    ("--output", "--out"),
    ("--out", "--output"),
    ("--src", "--source"),
    ("--file", "--source"),
    ("--hyp", "--sys"),
];

/// The same error with a suggestion that has the same meaning, or none.
pub fn checked(mut error: clap::Error, program: &Command, words: &[std::ffi::OsString]) -> clap::Error {
    if error.kind() == ErrorKind::ValueValidation {
        return no_number(&error, program).unwrap_or(error);
    }
    if error.kind() != ErrorKind::UnknownArgument {
        return error;
    }
    let Some(ContextValue::String(wrong)) = error.get(ContextKind::InvalidArg).cloned() else { return error };
    if let Some(flag) = flag_before_number(&wrong, words) {
        let fault = format!("invalid value '{wrong}' for '{flag}': it cannot be below 0");
        return program.clone().error(ErrorKind::InvalidValue, fault);
    }
    let wrong = wrong.split('=').next().unwrap_or_default();
    let flags = flags_of(program, words);
    let synonyms = SYNONYMS.iter().filter(|(name, _)| *name == wrong);
    let synonym = synonyms.map(|(_, ours)| (*ours).to_owned()).find(|flag| flags.contains(flag));
    let near = |flag: &&String| distance(wrong, flag) <= 1.max((wrong.len() - 2) / 5);
    let nearest = flags.iter().filter(near).min_by_key(|flag| distance(wrong, flag)).cloned();
    let found = synonym.or(nearest);
    error.remove(ContextKind::SuggestedArg);
    // Clap proposes to pass a flag as a value, which is hardly ever meant.
    error.remove(ContextKind::Suggested);
    if let Some(flag) = found {
        error.insert(ContextKind::SuggestedArg, ContextValue::String(flag));
    }
    error
}

/// The flag whose value a word below 0 would be.
fn flag_before_number<'a>(wrong: &str, words: &'a [std::ffi::OsString]) -> Option<&'a str> {
    wrong.parse::<f64>().ok()?;
    let at = words.iter().position(|word| *word == *wrong)?;
    words.get(at.checked_sub(1)?)?.to_str().filter(|word| word.starts_with("--"))
}

/// The same error in place of Rust's words for what is no number.
fn no_number(error: &clap::Error, program: &Command) -> Option<clap::Error> {
    let (ContextValue::String(value), ContextValue::String(flag)) =
        (error.get(ContextKind::InvalidValue)?, error.get(ContextKind::InvalidArg)?)
    else {
        return None;
    };
    let source = std::error::Error::source(error)?.to_string();
    let wanted = match source.as_str() {
        "invalid digit found in string" if value.starts_with('-') => "it cannot be below 0",
        "invalid digit found in string" => "expected a whole number",
        "invalid float literal" => "expected a number",
        _ => return None,
    };
    Some(
        program
            .clone()
            .error(ErrorKind::InvalidValue, format!("invalid value '{value}' for '{flag}': {wanted}")),
    )
}

/// Long flags of the command that the words name.
fn flags_of(program: &Command, words: &[std::ffi::OsString]) -> Vec<String> {
    let mut command = program;
    for word in words.iter().filter_map(|word| word.to_str()) {
        command = command.find_subcommand(word).unwrap_or(command);
    }
    let longs = command.get_arguments().filter_map(clap::Arg::get_long);
    longs.map(|long| format!("--{long}")).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn said(line: &str) -> String {
        let words: Vec<std::ffi::OsString> = line.split(' ').map(Into::into).collect();
        let error = Cli::command().try_get_matches_from(&words).unwrap_err();
        checked(error, &Cli::command(), &words).to_string()
    }

    #[test]
    fn what_is_no_number_is_said_in_words() {
        for (line, part) in [
            ("mae generate m d --beam -1", "invalid value '-1' for '--beam': it cannot be below 0"),
            ("mae generate m d --beam=-1", "invalid value '-1' for '--beam <N>': it cannot be below 0"),
            ("mae generate m d --beam two", "invalid value 'two' for '--beam <N>': expected a whole number"),
            ("mae generate m d --lenpen x", "invalid value 'x' for '--lenpen <X>': expected a number"),
        ] {
            assert!(said(line).contains(part), "{line}: {}", said(line));
        }
    }

    #[test]
    fn only_names_of_the_same_meaning_are_suggested() {
        for (line, flag) in [
            ("mae train bin --max-epochs 3", "'--max-epoch'"),
            ("mae train bin --learning-rate 3", "'--lr'"),
            ("mae generate m bin --num-beams 3", "'--beam'"),
            ("mae train bin --savedir x", "'--save-dir'"),
        ] {
            let said = said(line);
            assert!(said.contains("tip") && said.contains(flag), "{line}: {said}");
        }
        for line in ["mae train bin --critrion x", "mae train bin --precise", "mae score --num-beams 3"] {
            let said = said(line);
            assert!(!said.contains("tip"), "{line}: {said}");
        }
    }
}
