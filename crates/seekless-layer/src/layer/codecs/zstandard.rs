//! `zstd`: Zstandard (RFC 8878), one frame for each chunk.

use std::cell::RefCell;

use zstd::bulk::{Compressor, Decompressor};

use super::{Codec, CodecCost, Position, ids, if_shorter, wrong_length};

/// Bytes of the largest chunk whose contexts are kept. Contexts of larger chunks take tens of MiB at high levels, and
/// making them costs nothing beside such a chunk.
const KEPT_BYTES: usize = 1 << 20;

thread_local! {
    /// The thread's context of compression, with its level. To make one for each chunk of 64 KiB takes an eighth of
    /// the time.
    static COMPRESSOR: RefCell<Option<(i32, Compressor<'static>)>> = const { RefCell::new(None) };
    /// The thread's context of decompression.
    static DECOMPRESSOR: RefCell<Option<Decompressor<'static>>> = const { RefCell::new(None) };
}

/// The compressed form of `raw`, or None for lack of memory.
fn compress(raw: &[u8], level: i32) -> Option<Vec<u8>> {
    if raw.len() > KEPT_BYTES {
        return zstd::bulk::compress(raw, level).ok();
    }
    COMPRESSOR.with_borrow_mut(|kept| {
        let (kept_level, compressor) = match kept {
            Some(kept) => kept,
            None => kept.insert((level, Compressor::new(level).ok()?)),
        };
        if *kept_level != level {
            compressor.set_compression_level(level).ok()?;
            *kept_level = level;
        }
        compressor.compress(raw).ok()
    })
}

/// The `raw_bytes` or fewer that `stored` was made from.
fn decompress(stored: &[u8], raw_bytes: usize) -> std::io::Result<Vec<u8>> {
    if raw_bytes > KEPT_BYTES {
        return zstd::bulk::decompress(stored, raw_bytes);
    }
    DECOMPRESSOR.with_borrow_mut(|kept| {
        let decompressor = match kept {
            Some(kept) => kept,
            None => kept.insert(Decompressor::new()?),
        };
        decompressor.decompress(stored, raw_bytes)
    })
}

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
        if_shorter(raw, compress(raw, self.level)?)
    }

    fn decode(&self, stored: &[u8], raw_bytes: usize, _: &Position) -> Result<Vec<u8>, String> {
        let raw = decompress(stored, raw_bytes).map_err(|error| error.to_string())?;
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
