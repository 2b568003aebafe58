//! Graphs of ONNX: a writer of what `onnx.proto` calls a `ModelProto`, operator set 17.
//!
//! | room | content |
//! |---|---|
//! | [`proto`] | messages of protocol buffers |
//! | [`graph`] | nodes, inputs, outputs and constants of a graph |

mod graph;
mod proto;

pub(crate) use graph::{Attribute, Dim, Element, Graph, Value};
