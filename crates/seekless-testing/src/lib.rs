//! What the engine is tested with. The only file system that it knows is its own model.

use seekless_core::fs;
use seekless_core::{codec, device, rng, rt, units};

pub mod testing;
