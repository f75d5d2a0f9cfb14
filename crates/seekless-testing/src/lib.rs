//! What the engine is tested with. It knows no file system but its own model.

use seekless_core::fs;
use seekless_core::{codec, device, rng, rt, units};

pub mod testing;
