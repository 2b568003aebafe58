//! mae-eval
