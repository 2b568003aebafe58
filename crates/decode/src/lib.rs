//! mae-decode
