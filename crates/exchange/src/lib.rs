//! Models in the formats of other programs.
//!
//! | room | contents |
//! |---|---|
//! | [`import`] | models of Hugging Face, fairseq and CTranslate2 to model folders |
//! | [`export`] | model folders to models of Hugging Face, fairseq, CTranslate2 and ONNX |
//! | [`pickle`] | pickles as inert data: nothing is resolved, nothing is called |
//! | [`torch`] | files of `torch.save` |
//! | [`mod@ct2`] | `model.bin` of CTranslate2 |
//! | `onnx` | graphs of ONNX, written |
//! | [`tensor`] | tensors of foreign files as f32 |
//!
//! A reader never carries anything out that a file says, and never allocates more than the file justifies.

#![deny(unsafe_code)]

pub mod ct2;
mod error;
pub mod export;
mod file;
pub mod import;
mod layout;
mod new_model;
mod onnx;
pub mod pickle;
mod sinusoids;
pub mod tensor;
pub mod torch;
mod words;

pub use error::{Error, Result};
pub use new_model::Imported;
