//! Flags of the program for options of the libraries.

use clap::Command;
use mae_data::Setting;

/// The flag for an option, if the command has one. Options of the folder that a command reads were chosen when
/// `mae preprocess` wrote it.
pub(super) fn flag(setting: Setting, command: &Command) -> Option<String> {
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

/// Flags for an option, of which a command has one at most, with the value to choose where there is one.
const FLAGS: [(Setting, &[&str]); 34] = [
    (Setting::Archive, &["archive"]),
    (Setting::BadUtf8, &["bad-utf8 replace", "replace-bad-utf8"]),
    (Setting::Bpe, &["bpe"]),
    (Setting::BpeCodes, &["bpe-codes"]),
    (Setting::BpeDropout, &["bpe-dropout", "dropout"]),
    (Setting::ContextWindow, &["context-window"]),
    (Setting::Destdir, &["destdir", "out"]),
    (Setting::EmptyEval, &["empty-eval"]),
    (Setting::EmptyTrain, &["empty-train"]),
    (Setting::Glossaries, &["glossaries"]),
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
}
