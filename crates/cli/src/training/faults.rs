//! Errors of training in the words of the command line: which flag helps.

use std::path::Path;

use mae_data::segmentation::CODES;
use mae_model::folder::{self, Task};
use mae_train::Error;
use mae_train::artifacts::{DICT, SOURCE_DICT, TARGET_DICT};
use mae_train::error::CheckpointFault;
use mae_train::finetune::FinetuneFault;

/// The same error with the flags that help, where there are some.
pub fn name_flags(error: Error) -> anyhow::Error {
    match text_with_flags(&error) {
        Some(text) => anyhow::Error::msg(text),
        None => error.into(),
    }
}

/// The text of an error with the flags that help; `None` if there are none.
pub fn text_with_flags(error: &Error) -> Option<String> {
    Some(match error {
        Error::Checkpoint { fault, .. } => match fault {
            CheckpointFault::OtherModel(_) => {
                format!("{error}; choose another --save-dir, or the same model keys")
            }
            CheckpointFault::OtherDictionary(_) | CheckpointFault::DamagedState(_) => {
                format!("{error}, or choose another --save-dir")
            }
            CheckpointFault::MissingMoments { .. } => {
                format!("{error}; --reset-optimizer starts with new moments")
            }
            _ => return None,
        },
        Error::OtherDirection { source_language, target, .. } => {
            format!("{error}: `mae preprocess -s {source_language} -t {target}` makes the other direction")
        }
        Error::Finetune { path, faults } => {
            let mut lines: Vec<String> = faults.iter().map(finetune_fault).collect();
            if faults.iter().any(FinetuneFault::is_of_data) {
                lines.push(how_to_prepare(path));
            }
            format!("{} cannot be fine-tuned as this run asks:\n  {}", path.display(), lines.join("\n  "))
        }
        _ => return None,
    })
}

fn finetune_fault(fault: &FinetuneFault) -> String {
    match fault {
        FinetuneFault::Key(difference) => {
            format!("{difference}: --set {}={}", difference.key, difference.there)
        }
        FinetuneFault::NoGates { theirs, .. } | FinetuneFault::OtherGates { theirs, .. } => {
            format!("{fault}: choose --system {theirs}")
        }
        _ => fault.to_string(),
    }
}

/// The command that prepares data for the model in `path`.
fn how_to_prepare(path: &Path) -> String {
    let model = path.display();
    let flags = match folder::task(path) {
        Ok(Task::LanguageModeling) => format!("--only-source --srcdict {model}/{DICT}"),
        _ => format!("--srcdict {model}/{SOURCE_DICT} --tgtdict {model}/{TARGET_DICT}"),
    };
    format!("to prepare the data for this model: mae preprocess {flags} --bpe-codes {model}/{CODES}")
}
