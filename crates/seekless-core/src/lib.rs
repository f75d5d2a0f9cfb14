//! The foundation of every other crate of the engine. The crate `seekless` shows all of them under one name.

pub mod codec;
pub mod device;
pub mod fs;
pub mod rng;
pub mod rt;
pub mod units;
