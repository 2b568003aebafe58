//! Errors of the libraries as users of the program read them: libraries name options, the program names its flags.

use std::error::Error;

use clap::{ArgMatches, Command};
use mae_data::Setting;

use crate::advice::advice;

/// An error with its causes, each told once, and the flags that matter. `program` and `matches` say which flags the running
/// command has.
pub fn message(error: &anyhow::Error, program: &Command, matches: &ArgMatches) -> String {
    let command = running(program, matches);
    let text = error.chain().fold(String::new(), |text, cause| {
        let told = cause.to_string();
        let flags = flags(cause, command);
        match text.as_str() {
            "" => format!("{told}{flags}"),
            // Some errors tell their cause themselves.
            _ if text.ends_with(&told) => text,
            _ => format!("{text}: {told}{flags}"),
        }
    });
    match advice(error) {
        Some(advice) => format!("{text}; {advice}"),
        None => text,
    }
}

/// The command that was asked for, `mae prepare parallel` say.
fn running<'a>(program: &'a Command, matches: &ArgMatches) -> &'a Command {
    match matches.subcommand() {
        Some((name, matches)) => {
            program.find_subcommand(name).map_or(program, |command| running(command, matches))
        }
        None => program,
    }
}

/// ` (--trainpref, --srcdict)`: flags of the command for the options that an error names.
fn flags(error: &(dyn Error + 'static), command: &Command) -> String {
    let settings = data_fault(error).map(mae_data::Error::settings).unwrap_or_default();
    let flags: Vec<String> = settings.into_iter().filter_map(|setting| flag(setting, command)).collect();
    if flags.is_empty() { String::new() } else { format!(" ({})", flags.join(", ")) }
}

/// The error of `mae-data` that an error of another crate passes on.
fn data_fault<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a mae_data::Error> {
    let from_model = |error: &'a mae_model::Error| match error {
        mae_model::Error::Data(error) => Some(error),
        _ => None,
    };
    match error.downcast_ref::<mae_train::Error>() {
        Some(mae_train::Error::Data(error)) => return Some(error),
        Some(mae_train::Error::Model(error)) => return from_model(error),
        _ => {}
    }
    error.downcast_ref().or_else(|| error.downcast_ref().and_then(from_model))
}

/// The flag for an option, if the command has one. Options of the folder that a command reads were chosen when
/// `mae preprocess` wrote it.
fn flag(setting: Setting, command: &Command) -> Option<String> {
    let has = |flag: &&&str| {
        let long = flag.split(' ').next();
        command.get_arguments().any(|argument| argument.get_long() == long)
    };
    let flags = FLAGS.iter().find(|(known, _)| *known == setting).map_or(&[][..], |(_, flags)| *flags);
    match (flags.iter().find(has), setting) {
        (Some(flag), _) => Some(format!("--{flag}")),
        (None, Setting::OnlySource) => Some("preprocess --only-source".into()),
        (None, Setting::JoinedDictionary) => Some("preprocess --joined-dictionary".into()),
        (None, Setting::Corpus) => Some("mae prepare parallel".into()),
        (None, _) => None,
    }
}

/// The flags that stand for an option in one command or another, with the value to choose where there is one.
const FLAGS: [(Setting, &[&str]); 33] = [
    (Setting::Archive, &["archive"]),
    (Setting::BadUtf8, &["bad-utf8 replace", "replace-bad-utf8"]),
    (Setting::Bpe, &["bpe"]),
    (Setting::BpeCodes, &["bpe-codes"]),
    (Setting::BpeDropout, &["bpe-dropout", "dropout"]),
    (Setting::ContextWindow, &["context-window"]),
    (Setting::Destdir, &["destdir", "out"]),
    (Setting::EmptyEval, &["empty-eval"]),
    (Setting::EmptyTrain, &["empty-train"]),
    (Setting::JoinedDictionary, &["joined-dictionary"]),
    (Setting::LongEval, &["long-eval"]),
    (Setting::LongTrain, &["long-train"]),
    (Setting::MaxLen, &["max-len"]),
    (Setting::MaxTokens, &["max-tokens"]),
    (Setting::MinLen, &["min-len"]),
    (Setting::Normalize, &["normalize"]),
    (Setting::OnlySource, &["only-source"]),
    (Setting::Protect, &["protect"]),
    (Setting::Ratio, &["ratio"]),
    (Setting::SampleBreakMode, &["sample-break-mode"]),
    (Setting::SourceLang, &["source-lang"]),
    (Setting::Srcdict, &["srcdict"]),
    (Setting::TargetLang, &["target-lang"]),
    (Setting::Task, &["task language_modeling"]),
    (Setting::Testpref, &["testpref", "test"]),
    (Setting::TestSize, &["test-size"]),
    (Setting::Tgtdict, &["tgtdict"]),
    (Setting::Tokenize, &["tokenize none"]),
    (Setting::Tokenizer, &["tokenizer"]),
    (Setting::TokensPerSample, &["tokens-per-sample"]),
    (Setting::Trainpref, &["trainpref", "train"]),
    (Setting::Validpref, &["validpref", "valid"]),
    (Setting::ValidSize, &["valid-size"]),
];

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::Cli;

    fn has(command: &Command, flag: &str) -> bool {
        let mut flags = command.get_arguments().map(clap::Arg::get_long);
        flags.any(|long| long == Some(flag)) || command.get_subcommands().any(|command| has(command, flag))
    }

    #[test]
    fn flags_of_the_table_exist() {
        for flag in FLAGS.iter().flat_map(|(_, flags)| *flags) {
            let long = flag.split(' ').next().unwrap();
            assert!(has(&Cli::command(), long), "no command has --{long}");
        }
    }

    #[test]
    fn options_become_flags_of_the_running_command() {
        let told = |fault: mae_data::OptionFault, command: &[&str]| {
            let program = Cli::command();
            let command =
                command.iter().fold(&program, |command, name| command.find_subcommand(name).unwrap());
            // Passed on by another crate.
            flags(&mae_train::Error::Data(fault.into()), command)
        };
        let dropout = || mae_data::OptionFault::DropoutProbability(2.0);
        assert_eq!(told(dropout(), &["preprocess"]), " (--bpe-dropout)");
        assert_eq!(told(dropout(), &["prepare", "parallel"]), " (--bpe-dropout)");
        assert_eq!(told(dropout(), &["apply-bpe"]), " (--dropout)");
        assert_eq!(told(dropout(), &["score"]), "");
        assert_eq!(
            told(mae_data::OptionFault::NoTexts, &["preprocess"]),
            " (--trainpref, --validpref, --testpref)"
        );
    }
}
