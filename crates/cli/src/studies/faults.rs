//! Errors of studies in the words of the command line: which flag helps.

use mae_study::Error;
use mae_study::folder::RECORD;

use crate::training;

/// The same error with the flags that help, where there are some.
pub fn name_flags(error: Error) -> anyhow::Error {
    match (text_with_flags(&error), error) {
        (_, Error::In { part, source }) => name_flags(*source).context(part),
        (_, Error::Train(error)) => training::faults::name_flags(error),
        (_, Error::Data(error)) => error.into(),
        (_, Error::Model(error)) => error.into(),
        (_, Error::Engine(error)) => error.into(),
        (Some(text), _) => anyhow::Error::msg(text),
        (None, error) => error.into(),
    }
}

/// The text of an error, with the flags that help where there are some.
pub fn text(error: &Error) -> String {
    text_with_flags(error).unwrap_or_else(|| error.to_string())
}

fn text_with_flags(error: &Error) -> Option<String> {
    Some(match error {
        Error::In { part, source } => format!("{part}: {}", text_with_flags(source)?),
        Error::Train(error) => training::faults::text_with_flags(error)?,
        Error::NoReference { .. } => {
            format!("{error}: give it with --reference FILE, or --tokenised-only to do without sacreBLEU")
        }
        Error::OtherLanguage { language, target, .. } => format!(
            "{error}: give data that translate into {language}, --tokenised-only to do without sacreBLEU, or a study of your \
             own with translation.language = \"{target}\""
        ),
        Error::SourceAsReference { target, .. } => {
            format!("{error}; give the references in {target} with --reference FILE")
        }
        Error::OtherReferences { .. } => format!("{error}; choose another --out"),
        Error::OtherOrigins { .. } => format!("{error}, or choose another --out"),
        Error::Damaged { path, .. } if path.ends_with(RECORD) => {
            format!("{error}; --plan FILE does without it")
        }
        _ => return None,
    })
}
