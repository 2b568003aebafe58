//! Errors of the libraries as users of the program read them. Libraries do not know the program: their errors
//! carry facts and name options; here they get the flags that avoid them.

mod flags;
mod origin;

use std::error::Error;

use clap::{ArgMatches, Command};
use mae_data::Setting;
use mae_engine::Numbers;

use flags::flag;
use origin::Origin;

/// Message of an error with its causes, each once, and the flags that matter. `program` and `matches` tell
/// which flags the running command has.
pub fn message(error: &anyhow::Error, program: &Command, matches: &ArgMatches) -> String {
    let command = running(program, matches);
    let text = error.chain().map(ToString::to_string).fold(String::new(), |text, cause| {
        if text.is_empty() {
            cause
        } else if text.ends_with(&cause) {
            // Some errors include their cause.
            text
        } else {
            format!("{text}: {cause}")
        }
    });
    text + &error.chain().find_map(|cause| advice(cause, command)).unwrap_or_default()
}

/// The command that runs, `mae prepare parallel` for example.
fn running<'a>(program: &'a Command, matches: &ArgMatches) -> &'a Command {
    match matches.subcommand() {
        Some((name, matches)) => {
            program.find_subcommand(name).map_or(program, |command| running(command, matches))
        }
        None => program,
    }
}

/// Flags that avoid an error, to append to its message: ` (--trainpref, --srcdict)`.
fn advice(error: &(dyn Error + 'static), command: &Command) -> Option<String> {
    match Origin::of(error)? {
        Origin::Data(error) => {
            let flags = error.settings().into_iter().filter_map(|setting| flag(setting, command));
            let flags: Vec<String> = flags.collect();
            (!flags.is_empty()).then(|| format!(" ({})", flags.join(", ")))
        }
        Origin::Engine(mae_engine::Error::SharedMemory { numbers: Numbers::F32, .. }) => {
            Some("; --precision bf16 needs half of it".into())
        }
        Origin::Engine(mae_engine::Error::OutOfMemory { .. }) => {
            Some("; lower train.max_tokens (or the batch), or choose another device".into())
        }
        Origin::Model(mae_model::Error::TwoDictionaries { .. }) => {
            flag(Setting::JoinedDictionary, command).map(|flag| format!(" ({flag})"))
        }
        Origin::Engine(_) | Origin::Model(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use mae_data::OptionFault;

    use super::*;
    use crate::Cli;

    fn advised(error: anyhow::Error, command: &[&str]) -> String {
        let program = Cli::command();
        let command = command.iter().fold(&program, |command, name| command.find_subcommand(name).unwrap());
        error.chain().find_map(|cause| advice(cause, command)).unwrap_or_default()
    }

    #[test]
    fn options_become_flags_of_the_running_command() {
        let dropout = || anyhow::Error::new(mae_data::Error::Options(OptionFault::DropoutProbability(2.0)));
        assert_eq!(advised(dropout(), &["preprocess"]), " (--bpe-dropout)");
        assert_eq!(advised(dropout(), &["prepare", "parallel"]), " (--bpe-dropout)");
        assert_eq!(advised(dropout(), &["apply-bpe"]), " (--dropout)");
        assert_eq!(advised(dropout(), &["score"]), "");
        let texts = mae_data::Error::Options(OptionFault::NoTexts);
        let passed = mae_eval::Error::Translate(mae_model::Error::Data(texts).into());
        let passed = anyhow::Error::new(passed).context("preprocessing");
        assert_eq!(advised(passed, &["preprocess"]), " (--trainpref, --validpref, --testpref)");
    }

    #[test]
    fn faults_of_models_name_flags() {
        let two = mae_model::Error::TwoDictionaries { source_types: 5, target_types: 7 };
        assert_eq!(advised(two.into(), &["train"]), " (preprocess --joined-dictionary)");
    }

    #[test]
    fn too_little_shared_memory_in_f32_names_the_flag() {
        let error = |numbers| mae_engine::Error::SharedMemory { kernel: "some", bytes: 1 << 20, numbers };
        let passed = mae_train::Error::Model(error(Numbers::F32).into());
        for error in [error(Numbers::F32).into(), anyhow::Error::new(passed).context("training")] {
            assert!(advised(error, &["train"]).contains("--precision bf16"));
        }
        assert_eq!(advised(error(Numbers::Bf16).into(), &["train"]), "");
        let memory = mae_engine::Error::OutOfMemory { needed: 1, free: 0, total: 1 };
        assert!(advised(memory.into(), &["train"]).contains("train.max_tokens"));
        assert_eq!(advised(anyhow::anyhow!("another error"), &["train"]), "");
    }
}
