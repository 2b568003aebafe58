//! mae
fn main() {}
