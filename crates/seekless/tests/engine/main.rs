//! The engine from outside: pages of formats are true, old volumes open, and no bytes do harm.

mod arrangements;
mod digests;
mod formats;
mod fuzz;
mod golden;
mod golden_layer;
mod golden_vld;
mod hints;
mod misassembled;
mod replays;
