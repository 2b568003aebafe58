//! The GPU's side of every op: which kernels and products it is made of.

pub(crate) mod adaptive;
pub(crate) mod attention;
pub(crate) mod cross_entropy;
pub(crate) mod decode;
pub(crate) mod elementwise;
pub(crate) mod embed;
pub(crate) mod linear;
pub(crate) mod mixture;
pub(crate) mod optim;
pub(crate) mod pool;
pub(crate) mod project;
