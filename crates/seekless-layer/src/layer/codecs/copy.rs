//! `copy`: the identity, `Copyfs` of [za01]. All the machinery and no algorithm: its difference from `wrap` is what the
//! index costs.

use super::{Codec, CodecCost, Position, ids, wrong_length};

/// See the head of the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copy;

impl Codec for Copy {
    fn id(&self) -> u8 {
        ids::RAW
    }

    fn name(&self) -> &'static str {
        "copy"
    }

    fn shrinks(&self) -> bool {
        false
    }

    fn encode(&self, _raw: &[u8], _: &Position) -> Option<Vec<u8>> {
        None
    }

    fn decode(&self, stored: &[u8], raw_bytes: usize, _: &Position) -> Result<Vec<u8>, String> {
        if stored.len() != raw_bytes {
            return Err(wrong_length(stored.len(), raw_bytes));
        }
        Ok(stored.to_vec())
    }

    fn stored_bytes(&self, stored: &[u8], raw_bytes: usize) -> Option<usize> {
        (stored.len() >= raw_bytes).then_some(raw_bytes)
    }

    fn cost(&self) -> CodecCost {
        // A copy in memory; the runtime charges that separately.
        CodecCost { encode_cycles_per_kib: 0, decode_cycles_per_kib: 0 }
    }
}
