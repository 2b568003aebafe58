//! Scores of a trained model.
//!
//! | room | contents |
//! |---|---|
//! | `translation` | translations and their BLEU, one expert instead of the mixture, gates |
//! | `text` | perplexities and likelihoods of texts |

mod text;
mod translation;

pub(crate) use self::text::{LanguageModelScores, measure_language_model};
pub(crate) use self::translation::{TranslationScores, measure_translation};
