//! The `seekless` program.

fn main() {}
