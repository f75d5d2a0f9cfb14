//! `zstd`: Zstandard (RFC 8878), one frame for each chunk.

use super::{Codec, CodecCost, Position, ids, if_shorter, wrong_length};

/// See the head of the file.
#[derive(Clone, Copy, Debug)]
pub struct Zstd {
    /// -7..=22; negative ones are faster and compress less.
    pub level: i32,
}

impl Default for Zstd {
    /// A balance that most file systems with Zstandard use, and the default of zstd(1).
    fn default() -> Zstd {
        Zstd { level: 3 }
    }
}

impl Codec for Zstd {
    fn id(&self) -> u8 {
        ids::ZSTD
    }

    fn name(&self) -> &'static str {
        "zstd"
    }

    fn encode(&self, raw: &[u8], _: &Position) -> Option<Vec<u8>> {
        // The library fails only for lack of memory, and then the chunk is stored raw.
        if_shorter(raw, zstd::bulk::compress(raw, self.level).ok()?)
    }

    fn decode(&self, stored: &[u8], raw_bytes: usize, _: &Position) -> Result<Vec<u8>, String> {
        let raw = zstd::bulk::decompress(stored, raw_bytes).map_err(|error| error.to_string())?;
        match raw.len() {
            found if found == raw_bytes => Ok(raw),
            found => Err(wrong_length(found, raw_bytes)),
        }
    }

    fn stored_bytes(&self, stored: &[u8], raw_bytes: usize) -> Option<usize> {
        let bytes = zstd::zstd_safe::find_frame_compressed_size(stored).ok()?;
        self.decode(stored.get(..bytes)?, raw_bytes, &Position::NONE).ok().map(|_| bytes)
    }

    fn cost(&self) -> CodecCost {
        match self.level {
            ..=-1 => CodecCost::of_throughput(255, 882),
            0..=2 => CodecCost::of_throughput(245, 737),
            3..=6 => CodecCost::of_throughput(160, 739),
            _ => CodecCost::of_throughput(53, 1_128),
        }
    }
}
