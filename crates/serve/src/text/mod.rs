//! Texts: cut into sentences, with markup, in a language, and put together again.

mod abbreviations;
pub mod detect;
pub mod form;
pub mod html;
mod inline;
pub mod languages;
pub mod plan;
pub mod sentences;
