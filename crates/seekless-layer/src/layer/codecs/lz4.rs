//! `lz4`: LZ4 blocks, the fastest.

use super::{Codec, CodecCost, Position, ids, if_shorter, wrong_length};

/// See the head of the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lz4;

impl Codec for Lz4 {
    fn id(&self) -> u8 {
        ids::LZ4
    }

    fn name(&self) -> &'static str {
        "lz4"
    }

    fn encode(&self, raw: &[u8], _: &Position) -> Option<Vec<u8>> {
        if_shorter(raw, lz4_flex::block::compress(raw))
    }

    fn decode(&self, stored: &[u8], raw_bytes: usize, _: &Position) -> Result<Vec<u8>, String> {
        let raw = lz4_flex::block::decompress(stored, raw_bytes).map_err(|error| error.to_string())?;
        match raw.len() {
            found if found == raw_bytes => Ok(raw),
            found => Err(wrong_length(found, raw_bytes)),
        }
    }

    fn cost(&self) -> CodecCost {
        CodecCost::of_throughput(447, 2_693)
    }
}
