//! mae-model
