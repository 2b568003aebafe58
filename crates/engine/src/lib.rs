//! Tensors, coarse ops with forward and backward, the tape, parameters in flat buffers, optimisers and
//! counter-based random numbers. Knows no text and no transformer.
//!
//! | room | what is in it |
//! |---|---|
//! | [`device`], `usage`, [`tensor`] | where numbers live: a device and its recycled buffers, how much memory these take; matrices, id lists, segments |
//! | [`params`], [`HostCopy`] | named parameters in one flat buffer per group, and their gradients; asynchronous copies for the host |
//! | [`tape`] | reverse mode: one node per op, gradients only where a free parameter needs them |
//! | [`rng`] | Philox, keyed by (seed, step, op): masks can be computed again instead of stored |
//! | `ops` | one folder per op: its entry, a method of [`Tape`], with formula and shapes; CPU and CUDA; kernels; cases of the suite |
//! | [`optim`] | Adam, NAG, SGD, norms and scaling over flat buffers |
//! | `cpu` | what CPU code shares: matrix products, row loops, vectorised exp |
//! | [`cuda`] | GPUs: libraries found at run time, kernels as types, products, captured graphs |
//! | [`collective`] | several processes that train one model: MPI, NCCL and TCP, opened and connected at run time |
//! | `gradcheck` (feature `suite`) | finite differences, used by the tests of every op |
//! | `suite` (feature `suite`) | every op on a GPU against the CPU: `mae doctor --kernels` |
//!
//! Sizes are named as in ARCHITECTURE.md: N rows (tokens of all sentences end to end), B sentences, D width,
//! H heads, K head width, E experts, V vocabulary.

pub mod collective;
pub mod cpu;
pub mod cuda;
pub mod device;
pub mod error;
#[cfg(feature = "suite")]
pub mod gradcheck;
mod host_copy;
pub mod ops;
pub mod optim;
pub mod params;
mod parts;
pub mod rng;
#[cfg(feature = "suite")]
pub mod suite;
pub mod tape;
pub mod tensor;
mod usage;

pub use cuda::graph::Replays;
pub use device::{Device, Numbers};
pub use error::{Error, Result};
pub use host_copy::HostCopy;
pub use params::{
    ComputeType, Gradients, GroupId, GroupSet, ParamId, Params, ParamsBuilder, VocabularySubset, Written,
};
pub use parts::{Part, Parts};
pub use rng::{Rng, Stream};
pub use tape::{Tape, Var};
pub use tensor::{Ids, Segments, Tensor};
