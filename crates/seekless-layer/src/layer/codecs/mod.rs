//! Codecs: the encodings that a size-changing layer applies to single chunks.
//!
//! A codec turns a chunk into other bytes and back, and knows nothing of files. \[za01\] asks its developers for two
//! functions, `encode_data` and `decode_data`; so do we. Every chunk records its codec, so that a layer reads chunks of
//! any codec, and the codec for new chunks can be changed at any time.
//!
//! To add one: a type that implements [`Codec`], a number in [`ids`] that was never used before, a line in [`known`],
//! and a word for the stack line.

mod copy;
mod deflate;
mod key;
mod lz4;
mod sealed;
#[cfg(test)]
mod tests;
mod uuencode;
mod zstandard;

use std::sync::Arc;

pub use copy::Copy;
pub use deflate::Deflate;
pub use key::{Hardness, Key};
pub use lz4::Lz4;
pub use sealed::Sealed;
pub use uuencode::Uuencode;
pub use zstandard::Zstd;

/// Numbers of codecs, as they are stored in files. A number is never reused.
pub mod ids {
    /// Raw bytes.
    pub const RAW: u8 = 0;
    pub const UUENCODE: u8 = 1;
    pub const DEFLATE: u8 = 2;
    pub const ZSTD: u8 = 3;
    pub const LZ4: u8 = 4;
    pub const SEALED: u8 = 5;
}

/// Position of a chunk, for codecs that bind bytes to their position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Position {
    pub file_id: u64,
    pub chunk: u64,
    /// The commit that writes it.
    pub generation: u64,
}

impl Position {
    /// A placeholder, for codecs that do not use the position.
    pub const NONE: Position = Position { file_id: 0, chunk: 0, generation: 0 };
}

/// Turns chunks into other bytes and back. Implementations run on any thread.
pub trait Codec: Send + Sync {
    /// Number stored with the output of [`Codec::encode`]; one of [`ids`].
    fn id(&self) -> u8;

    /// Its word on a stack line.
    fn name(&self) -> &'static str;

    /// Its purpose is to shrink.
    fn shrinks(&self) -> bool {
        true
    }

    /// The encoding of `raw`, or `None` when it would be no shorter and the chunk is better kept raw. A codec whose
    /// purpose is not to shrink never returns `None`, unless it leaves all chunks raw.
    fn encode(&self, raw: &[u8], position: &Position) -> Option<Vec<u8>>;

    /// Undoes [`Codec::encode`]. `stored` has passed its checksum and `raw_bytes` is at most [`CHUNK_BYTES_MAX`];
    /// nothing else is known of either.
    ///
    /// # Errors
    /// What is wrong with `stored`, when it does not decode to exactly `raw_bytes` bytes.
    fn decode(&self, stored: &[u8], raw_bytes: usize, position: &Position) -> Result<Vec<u8>, String>;

    /// True when only this codec's output may be stored and accepted: no raw chunks, and no tails.
    fn is_secret(&self) -> bool {
        false
    }

    /// A value that identifies the key of a secret codec. It reveals nothing else about the key.
    fn key_check(&self) -> Option<[u8; 16]> {
        None
    }

    /// How many of the bytes at the start of `stored` are the encoding of `raw_bytes` bytes. `None` when they are not,
    /// and for a codec that cannot tell: its outputs cannot be stored one after the other.
    fn stored_bytes(&self, _stored: &[u8], _raw_bytes: usize) -> Option<usize> {
        None
    }

    /// Processor cost of a byte, for the modelled processor and for the choice of where to work.
    fn cost(&self) -> CodecCost;
}

/// Cycles of a processor for 1024 raw bytes.
///
/// From single-thread throughput on chunks of 64 KiB of English text, on an AMD EPYC (best of several runs, +-30 %). Its
/// clock was not recorded and is taken as 2.6 GHz. Older processors need more cycles for the same work; that is not
/// modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodecCost {
    pub encode_cycles_per_kib: u64,
    pub decode_cycles_per_kib: u64,
}

impl CodecCost {
    /// Costs of a codec that encodes and decodes this many megabytes (10^6) per second on the machine of [`CodecCost`].
    pub const fn of_throughput(encode_mb_per_s: u64, decode_mb_per_s: u64) -> CodecCost {
        const HERTZ: u64 = 2_600_000_000;
        CodecCost {
            encode_cycles_per_kib: HERTZ / 1_000_000 * 1024 / encode_mb_per_s,
            decode_cycles_per_kib: HERTZ / 1_000_000 * 1024 / decode_mb_per_s,
        }
    }
}

/// Largest chunk of any file, in bytes.
pub const CHUNK_BYTES_MAX: usize = 1 << 20;

/// The codec that decodes chunks with the number `id`, unless that needs a key.
pub fn known(id: u8) -> Option<Arc<dyn Codec>> {
    Some(match id {
        ids::RAW => Arc::new(Copy),
        ids::UUENCODE => Arc::new(Uuencode),
        ids::DEFLATE => Arc::new(Deflate::default()),
        ids::ZSTD => Arc::new(Zstd::default()),
        ids::LZ4 => Arc::new(Lz4),
        _ => return None,
    })
}

/// `encoded` if it saves space.
fn if_shorter(raw: &[u8], encoded: Vec<u8>) -> Option<Vec<u8>> {
    (encoded.len() < raw.len()).then_some(encoded)
}

/// The error of a codec whose result has the wrong length.
fn wrong_length(found: usize, expected: usize) -> String {
    format!("it decodes to {found} bytes instead of {expected}")
}
