//! `gzip`: Deflate (RFC 1951), as `Gzipfs` of [za01] had it at level 9. Bare, without the header and checksum of a gzip
//! file: records have their own.

use std::io::Read;

use flate2::read::{DeflateDecoder, DeflateEncoder};
use flate2::{Compression, Decompress, FlushDecompress, Status};

use super::{Codec, CodecCost, Position, ids, if_shorter, wrong_length};

/// See the head of the file.
#[derive(Clone, Copy, Debug)]
pub struct Deflate {
    /// 1..=9
    pub level: u32,
}

impl Default for Deflate {
    /// The level of gzip(1).
    fn default() -> Deflate {
        Deflate { level: 6 }
    }
}

/// Bytes of a chunk that are tried first. Deflate spends its full time on incompressible data, 30 to 130 MB/s, where
/// other codecs give up early. If the sample hardly shrinks, the whole chunk is kept raw.
const SAMPLE_BYTES: usize = 4096;

/// Largest share of itself, in 64ths, to which the sample must shrink: a smaller gain would not free a block.
const SAMPLE_WORTH: usize = 63;

impl Deflate {
    fn deflate(raw: &[u8], level: u32) -> Option<Vec<u8>> {
        let mut encoded = Vec::with_capacity(raw.len() / 2 + 64);
        let mut encoder = DeflateEncoder::new(raw, Compression::new(level));
        // Reading from memory does not fail.
        encoder.read_to_end(&mut encoded).ok()?;
        Some(encoded)
    }
}

impl Codec for Deflate {
    fn id(&self) -> u8 {
        ids::DEFLATE
    }

    fn name(&self) -> &'static str {
        "gzip"
    }

    fn encode(&self, raw: &[u8], _: &Position) -> Option<Vec<u8>> {
        if raw.len() >= 2 * SAMPLE_BYTES {
            // From the middle, as the head of a file is unlike the rest.
            let middle = (raw.len() - SAMPLE_BYTES) / 2;
            let sample = Self::deflate(&raw[middle..middle + SAMPLE_BYTES], 1)?;
            let head = Self::deflate(&raw[..SAMPLE_BYTES], 1)?;
            if sample.len().min(head.len()) > SAMPLE_BYTES / 64 * SAMPLE_WORTH {
                return None;
            }
        }
        if_shorter(raw, Self::deflate(raw, self.level)?)
    }

    fn decode(&self, stored: &[u8], raw_bytes: usize, _: &Position) -> Result<Vec<u8>, String> {
        let mut raw = Vec::with_capacity(raw_bytes);
        // One byte more than expected, to detect surplus output.
        let mut decoder = DeflateDecoder::new(stored).take(raw_bytes as u64 + 1);
        decoder.read_to_end(&mut raw).map_err(|error| error.to_string())?;
        match raw.len() {
            found if found == raw_bytes => Ok(raw),
            found => Err(wrong_length(found, raw_bytes)),
        }
    }

    fn stored_bytes(&self, stored: &[u8], raw_bytes: usize) -> Option<usize> {
        let mut raw = vec![0; raw_bytes];
        let mut decoder = Decompress::new(false);
        let status = decoder.decompress(stored, &mut raw, FlushDecompress::Finish).ok()?;
        let is_whole = status == Status::StreamEnd && decoder.total_out() == raw_bytes as u64;
        is_whole.then(|| decoder.total_in() as usize)
    }

    fn cost(&self) -> CodecCost {
        match self.level {
            0..=3 => CodecCost::of_throughput(143, 327),
            4..=7 => CodecCost::of_throughput(51, 403),
            _ => CodecCost::of_throughput(29, 361),
        }
    }
}
