//! mae-data
