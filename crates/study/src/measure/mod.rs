//! Scores of a trained model.
//!
//! | room | contents |
//! |---|---|
//! | `translation` | translations and their BLEU, one expert instead of the mixture, gates |
//! | `gates` | gates beside untrained ones, uniform gates, the oracle |
//! | `text` | perplexities and likelihoods of texts |

mod gates;
mod text;
mod translation;

pub(crate) use self::text::{LanguageModelScores, measure_language_model};
pub(crate) use self::translation::{TranslationScores, measure_translation};
