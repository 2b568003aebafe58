//! mae-engine
