//! The Python face of `mae`: classes and functions over the library, without logic of their own.
//!
//! | file | contents |
//! |---|---|
//! | `translator` | translation models |
//! | `translation` | what a translation model gives back |
//! | `migration` | CTranslate2's `translate_batch` |
//! | `language_model` | language models |
//! | `training` | training runs |
//! | `study` | studies: their runs, and what came out |
//! | `program` | the program `mae` |
//! | `metrics` | BLEU, chrF, TER, paired tests |
//! | `parameters` | weights of a model folder |
//! | `arrays` | numpy arrays |
//! | `html` | tables and charts for notebooks |
//! | `arguments`, `errors`, `process` | devices and texts from Python, exceptions, forks |
//! | `background` | long work with events and Ctrl-C |

#![deny(unsafe_code)]

mod arguments;
mod arrays;
mod background;
mod errors;
mod html;
mod language_model;
mod metrics;
mod migration;
mod parameters;
mod process;
mod program;
mod study;
mod training;
mod translation;
mod translator;

#[pyo3::pymodule]
mod _mae {
    #[pymodule_export]
    use crate::errors::Error;
    #[pymodule_export]
    use crate::language_model::{Continuation, LanguageModel, ScoredLine, TokenStream, WrittenToken};
    #[pymodule_export]
    use crate::metrics::{Paired, Score, bleu, chrf, paired, ter};
    #[pymodule_export]
    use crate::migration::TranslationResult;
    #[pymodule_export]
    use crate::parameters::load_parameters;
    #[pymodule_export]
    use crate::program::run_program;
    #[pymodule_export]
    use crate::study::Study;
    #[pymodule_export]
    use crate::training::{TrainedModel, train};
    #[pymodule_export]
    use crate::translation::{Hypothesis, Translation};
    #[pymodule_export]
    use crate::translator::{Translations, Translator};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
