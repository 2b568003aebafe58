//! mae-train
