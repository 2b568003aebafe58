//! What `mae quickstart` needs beyond the libraries.

pub mod corpus;
