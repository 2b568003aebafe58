//! Mixtures of attentive experts: transformers whose attention heads are weighted by gates, for translation
//! and language modelling. Text in, text out.
//!
//! ```no_run
//! let translator = mae::Translator::load("runs/de-en/checkpoint_best", &mae::Device::auto())?;
//! for found in translator.translate(&["guten morgen", "gute nacht"], &mae::TranslateOptions::default())? {
//!     println!("{}", found.text());
//! }
//! # Ok::<(), mae::Error>(())
//! ```
//!
//! | room | content |
//! |---|---|
//! | [`Device`] | the CPU or a GPU |
//! | [`Translator`], [`TranslateOptions`], [`Translation`] | translation models: lines to translations, scores, gates |
//! | [`Running`] | lines that are translated as they come, for servers |
//! | [`LanguageModel`], [`Writing`] | language models: scores of texts, and texts that are continued, also token by token |
//! | [`train`] | training from a folder and a recipe, with an observer |
//! | [`metrics`] | BLEU, chrF, TER, and tests of significance |
//! | [`exchange`] | models of other programs: import and export |
//! | [`Error`] | anything that can go wrong |
//! | [`data`], [`engine`], [`model`], [`translate`], [`eval`] | the crates below, for programs that need more |
//!
//! The library prints nothing and reads no arguments.

#![deny(unsafe_code)]

mod device;
mod error;
mod language_model;
pub mod metrics;
mod options;
mod running;
pub mod train;
mod translation;
mod translator;
mod writing;

pub use mae_data as data;
pub use mae_engine as engine;
pub use mae_eval as eval;
pub use mae_exchange as exchange;
pub use mae_model as model;
pub use mae_translate as translate;

pub use device::Device;
pub use error::{Error, Result};
pub use language_model::{Context, ContinuedText, End, LanguageModel, ScoreOptions, ScoredLine};
pub use mae_engine::{ComputeType, Numbers};
pub use mae_model::pass::Kind as AttentionKind;
pub use mae_translate::{
    BatchLimits, Choice, ContinueOptions, ExpertChoice, GateReport, GateRows, Gates, Sampling, SearchOptions,
    Shortlist, SwitchedOff, TextForm, TokenCounts,
};
pub use options::TranslateOptions;
pub use running::{LineId, Running};
pub use translation::{Hypothesis, Token, Translation};
pub use translator::Translator;
pub use writing::{Beginning, PromptCounts, Writing, WrittenToken};
