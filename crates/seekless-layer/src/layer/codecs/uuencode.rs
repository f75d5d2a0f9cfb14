//! `uuencode`: three bytes become four printable ones, as in `Uuencodefs` of [za01]. It grows its input at hardly any
//! processor cost, which separates the price of a changing size from that of an algorithm.
//!
//! The bare mapping of uuencode(1), six bits to a character from ` ` to `_`, without lines, headers and their framing.
//! At the end one byte becomes two characters and two become three.

use super::{Codec, CodecCost, Position, ids, wrong_length};

/// See the head of the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uuencode;

/// The character of zero.
const BASE: u8 = b' ';

/// Characters for `raw_bytes` bytes.
fn encoded_bytes(raw_bytes: usize) -> usize {
    raw_bytes / 3 * 4 + [0, 2, 3][raw_bytes % 3]
}

impl Codec for Uuencode {
    fn id(&self) -> u8 {
        ids::UUENCODE
    }

    fn name(&self) -> &'static str {
        "uuencode"
    }

    fn shrinks(&self) -> bool {
        false
    }

    fn encode(&self, raw: &[u8], _: &Position) -> Option<Vec<u8>> {
        let mut encoded = Vec::with_capacity(encoded_bytes(raw.len()));
        for group in raw.chunks(3) {
            let mut three = [0; 3];
            three[..group.len()].copy_from_slice(group);
            let bits = u32::from_be_bytes([0, three[0], three[1], three[2]]);
            let four = [18, 12, 6, 0].map(|shift| BASE + (bits >> shift & 0x3f) as u8);
            encoded.extend_from_slice(&four[..group.len() + 1]);
        }
        Some(encoded)
    }

    fn decode(&self, stored: &[u8], raw_bytes: usize, _: &Position) -> Result<Vec<u8>, String> {
        if stored.len() != encoded_bytes(raw_bytes) {
            return Err(format!("{} characters cannot stand for {raw_bytes} bytes", stored.len()));
        }
        let mut raw = Vec::with_capacity(raw_bytes + 2);
        for group in stored.chunks(4) {
            let mut bits = 0u32;
            for at in 0..4 {
                let six = match group.get(at) {
                    None => 0,
                    Some(&character) => match character.wrapping_sub(BASE) {
                        six @ 0..64 => six,
                        _ => return Err(format!("{character:#04x} is no character of uuencode")),
                    },
                };
                bits = bits << 6 | u32::from(six);
            }
            let [_, three @ ..] = bits.to_be_bytes();
            let (kept, spare) = three.split_at(group.len() - 1);
            if spare.iter().any(|&byte| byte != 0) {
                return Err("there are bits behind its end".to_string());
            }
            raw.extend_from_slice(kept);
        }
        if raw.len() != raw_bytes {
            return Err(wrong_length(raw.len(), raw_bytes));
        }
        Ok(raw)
    }

    fn stored_bytes(&self, stored: &[u8], raw_bytes: usize) -> Option<usize> {
        let bytes = encoded_bytes(raw_bytes);
        self.decode(stored.get(..bytes)?, raw_bytes, &Position::NONE).ok().map(|_| bytes)
    }

    fn cost(&self) -> CodecCost {
        CodecCost::of_throughput(1_000, 1_000)
    }
}
