//! A server for translation and language models over HTTP, with the interfaces of LibreTranslate, OpenNMT-py and
//! OpenAI, and a page that shows the experts at work.
//!
//! | room | content |
//! |---|---|
//! | [`config`] | everything a server is told at its start |
//! | [`server`] | listening, reloading, shutting down |
//! | [`registry`] | the models, by name and by languages |
//! | [`work`] | a thread for each model, with a fair queue before it |
//! | [`text`] | texts cut into sentences, markup, languages |
//! | `http` | the endpoints |
//! | [`access`] | API keys and rate limits |
//! | [`metrics`], [`log`] | what an operator sees |
//! | [`load`] | an open-loop load generator |
//! | [`error`] | errors of starting and running |
//!
//! The library prints nothing: the log goes to where the program says.

#![deny(unsafe_code)]

pub mod access;
mod app;
pub mod config;
mod connection;
pub mod error;
mod http;
pub mod load;
pub mod log;
pub mod metrics;
pub mod registry;
pub mod server;
pub mod text;
pub mod work;

pub use mae::{Device, SearchOptions};

pub use config::{Access, Batching, Config, Formatting, Limits, LogTexts, ModelSource, Preparation, Proxy};
pub use error::{Error, Result};
pub use server::{Listening, OtherLanguages, Server};
pub use work::batches::Budget;
