//! fairseq v0.9's transformers with mixture attention, for translation and language modelling: parameters and files.
//!
//! | room | what is in it |
//! |---|---|
//! | [`config`], `mixture` | every size and choice as a key; architectures by fairseq's names; all faults at once |
//! | `limits` | sizes beyond which a configuration is a mistake |
//! | [`system`] | the table of systems: gate, training steps, names |
//! | [`gate`] | what gates read, and how head weights come from it |
//! | [`experts`], [`draws`] | the heads that an expert keeps, as the matrix M; random experts |
//! | [`groups`] | the parameter groups: gates, attention outputs, the rest, running statistics |
//! | [`init`] | fairseq's initial values |
//! | [`pass`] | a pass: tape, how experts combine, record of the gates |
//! | [`attention`] | multi-head attention whose heads are weighted by a gate |
//! | [`stack`] | layers of attention and feed-forward sublayers, post-norm or pre-norm |
//! | [`translator`] | the translation model: training pass, loss |
//! | [`stepping`], `stack_state`, `slots` | the decoder one token at a time, with cached keys, values and gate sums; sentences join and leave |
//! | [`lm`] | the language model, with a vocabulary cut into bands; its configuration, stepping and folder |
//! | [`kind`] | the interface of both kinds of models, for training and files |
//! | [`average`] | the mean of several checkpoints |
//! | [`batches`], [`importance`], [`pruning`] | the loss on a text; weights and importances of heads on a text; the loss without the least important |
//! | [`convert`] | gates into and out of a model, and heads out of it, with the same function or the nearest |
//! | [`folder`], `weights` | `model.safetensors`, `config.toml` and dictionaries: the format that outsiders can write |
//! | [`mod@quantise`] | model folders of 8-bit integers |

pub mod attention;
pub mod average;
pub mod batches;
pub mod config;
pub mod convert;
pub mod draws;
pub mod error;
pub mod experts;
pub mod folder;
pub mod gate;
pub mod groups;
pub mod importance;
pub mod init;
pub mod kind;
mod limits;
pub mod lm;
mod mixture;
pub mod pass;
pub mod provenance;
pub mod pruning;
pub mod quantise;
mod slots;
pub mod stack;
mod stack_state;
pub mod stepping;
pub mod system;
pub mod translator;
mod weights;

pub use attention::{AttentionConfig, MixtureAttention, SearchRoom};
pub use config::ModelConfig;
pub use error::{Error, Result};
pub use kind::{Config, Model};
pub use lm::{LanguageModel, LmConfig};
pub use pass::{Draws, ExpertMode, GateRecord, Pass, Probe};
pub use stepping::DecoderState;
pub use system::System;
pub use translator::{BatchShape, DeviceBatch, Marks, Translator};
