//! Each block is as likely as any other.

use crate::rng::Rng;

use super::{BATCH, Given, Pattern, below};

pub(super) struct Uniform {
    rng: Rng,
    blocks: u32,
}

impl Uniform {
    pub(super) fn new(given: &Given) -> Uniform {
        Uniform { rng: Rng::new(given.seed), blocks: given.blocks }
    }
}

impl Pattern for Uniform {
    fn more(&mut self, operations: &mut Vec<u32>) {
        let Uniform { rng, blocks } = self;
        operations.extend((0..BATCH).map(|_| below(rng, *blocks)));
    }
}
