//! The engine from outside: the house is tidy, old volumes open, and no bytes do harm.

mod digests;
mod fuzz;
mod golden;
mod golden_layer;
mod golden_vld;
mod hints;
mod tidy;
