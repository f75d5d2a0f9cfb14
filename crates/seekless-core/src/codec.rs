//! The only byte-order code in the engine: fixed little-endian records, and the checksum they carry.
//!
//! A format declares each structure once, with [`record!`](crate::record); the struct, its encoder, its decoder
//! and the field table that tests compare with `FORMAT.md` all come from that one declaration.

use std::fmt;

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C (Castagnoli) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32C of the concatenation of the bytes whose CRC is `crc` and `bytes`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    // What a checksum is XORed with at its end is taken off again to continue.
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, u64::from(!crc));
    digest.update(bytes);
    digest.finalize() as u32
}

/// True when every byte is zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    // By chunks, which the compiler turns into wide comparisons; most of what is not zero shows in the first.
    bytes.chunks(64).all(|chunk| chunk.iter().fold(0, |any, &byte| any | byte) == 0)
}

/// `target ^= source`, of one length.
pub fn xor(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len(), "parity is computed over units of one length");
    for (one, two) in target.iter_mut().zip(source) {
        *one ^= two;
    }
}

/// One field of an on-disk record, as `FORMAT.md` lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    pub name: &'static str,
    /// Byte offset from the start of the record.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
}

/// A value with a fixed little-endian encoding.
pub trait Le: Sized {
    const BYTES: usize;

    /// `bytes` is exactly [`Self::BYTES`] long.
    fn get(bytes: &[u8]) -> Self;

    /// `bytes` is exactly [`Self::BYTES`] long.
    fn put(&self, bytes: &mut [u8]);

    /// Fills `items` from `bytes`, which are exactly as long.
    #[inline]
    fn get_all(bytes: &[u8], items: &mut [Self]) {
        for (item, raw) in items.iter_mut().zip(bytes.chunks_exact(Self::BYTES)) {
            *item = Self::get(raw);
        }
    }

    /// `bytes` is exactly as long as all `items`.
    #[inline]
    fn put_all(items: &[Self], bytes: &mut [u8]) {
        for (item, raw) in items.iter().zip(bytes.chunks_exact_mut(Self::BYTES)) {
            item.put(raw);
        }
    }
}

macro_rules! le_integer {
    ($($int:ty),*) => {$(
        impl Le for $int {
            const BYTES: usize = size_of::<$int>();
            #[inline]
            fn get(bytes: &[u8]) -> $int {
                let mut raw = [0; size_of::<$int>()];
                raw.copy_from_slice(bytes);
                <$int>::from_le_bytes(raw)
            }
            #[inline]
            fn put(&self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
le_integer!(u16, u32, u64, i64);

impl Le for u8 {
    const BYTES: usize = 1;
    #[inline]
    fn get(bytes: &[u8]) -> u8 {
        bytes[0]
    }
    #[inline]
    fn put(&self, bytes: &mut [u8]) {
        bytes[0] = *self;
    }
    // Most arrays in records are of bytes, which move as a whole also where little is optimised.
    #[inline]
    fn get_all(bytes: &[u8], items: &mut [u8]) {
        items.copy_from_slice(bytes);
    }
    #[inline]
    fn put_all(items: &[u8], bytes: &mut [u8]) {
        bytes.copy_from_slice(items);
    }
}

impl<T: Le + Copy + Default, const N: usize> Le for [T; N] {
    const BYTES: usize = N * T::BYTES;
    #[inline]
    fn get(bytes: &[u8]) -> [T; N] {
        let mut items = [T::default(); N];
        T::get_all(bytes, &mut items);
        items
    }
    #[inline]
    fn put(&self, bytes: &mut [u8]) {
        T::put_all(self, bytes);
    }
}

/// The value at `offset`, or `None` past the end of `bytes`.
#[inline]
pub fn get_at<T: Le>(bytes: &[u8], offset: usize) -> Option<T> {
    Some(T::get(bytes.get(offset..offset.checked_add(T::BYTES)?)?))
}

/// Stores `value` at `offset`.
///
/// # Panics
/// When it does not fit: the offset is the caller's own arithmetic, never input.
#[inline]
pub fn put_at<T: Le>(bytes: &mut [u8], offset: usize, value: T) {
    value.put(&mut bytes[offset..offset + T::BYTES]);
}

/// Declares an on-disk record: fields in order, without holes, little-endian.
///
/// ```
/// seekless_core::record! {
///     /// A point.
///     pub struct Point {
///         pub x: u32,
///         pub y: u64,
///     }
/// }
/// let mut bytes = [0; Point::BYTES];
/// Point { x: 1, y: 2 }.encode(&mut bytes);
/// assert_eq!(Point::decode(&bytes), Some(Point { x: 1, y: 2 }));
/// assert_eq!(Point::FIELDS[1].offset, 4);
/// ```
#[macro_export]
macro_rules! record {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$fmeta:meta])* $fvis:vis $field:ident : $ty:ty),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        $vis struct $name { $($(#[$fmeta])* $fvis $field: $ty),* }

        #[allow(dead_code)]
        impl $name {
            /// Size of the encoded record.
            $vis const BYTES: usize = 0 $(+ <$ty as $crate::codec::Le>::BYTES)*;

            /// The table in `FORMAT.md`.
            $vis const FIELDS: &'static [$crate::codec::Field] = {
                const SIZES: &[(&str, usize)] = &[$((stringify!($field), <$ty as $crate::codec::Le>::BYTES)),*];
                const TABLE: [$crate::codec::Field; SIZES.len()] = $crate::codec::field_table(SIZES);
                &TABLE
            };

            /// The record at the start of `bytes`, or `None` when they are too short.
            $vis fn decode(bytes: &[u8]) -> Option<$name> {
                if bytes.len() < Self::BYTES {
                    return None;
                }
                let mut at = 0;
                $(
                    let $field = <$ty as $crate::codec::Le>::get(&bytes[at..at + <$ty as $crate::codec::Le>::BYTES]);
                    at += <$ty as $crate::codec::Le>::BYTES;
                )*
                debug_assert_eq!(at, Self::BYTES);
                Some($name { $($field),* })
            }

            /// Writes the record to the start of `bytes`.
            $vis fn encode(&self, bytes: &mut [u8]) {
                let mut at = 0;
                $(
                    <$ty as $crate::codec::Le>::put(&self.$field, &mut bytes[at..at + <$ty as $crate::codec::Le>::BYTES]);
                    at += <$ty as $crate::codec::Le>::BYTES;
                )*
                debug_assert_eq!(at, Self::BYTES);
            }
        }
    };
}

#[doc(hidden)]
pub const fn field_table<const N: usize>(sizes: &[(&'static str, usize)]) -> [Field; N] {
    let mut table = [Field { name: "", offset: 0, size: 0 }; N];
    let (mut i, mut offset) = (0, 0);
    while i < N {
        table[i] = Field { name: sizes[i].0, offset, size: sizes[i].1 };
        offset += sizes[i].1;
        i += 1;
    }
    table
}

/// Bytes as a hex dump of 16 to a line, for `dump` and error messages.
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (row, bytes) in self.0.chunks(16).enumerate() {
            write!(f, "{:06x} ", row * 16)?;
            for byte in bytes {
                write!(f, " {byte:02x}")?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A bit at a time, as RFC 3720 has it.
    fn slow(bytes: &[u8]) -> u32 {
        let bit = |crc: u32| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
        !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), |crc, _| bit(crc)))
    }

    /// Aim: checksums are what every release has stored. Method: a known vector; mixed bytes of each length and alignment
    /// that a fast way may treat by itself, compared with the definition, as a whole and in two parts.
    #[test]
    fn checksums_are_those_of_the_definition() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!((crc32c(b""), crc32c_append(0, b""), crc32c_append(7, b"")), (0, 0, 7));
        let bytes: Vec<u8> = (0..5_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        for length in (0..700).chain([1023, 1024, 1025, 2047, 2048, 4095, 4096, 4097, 4900]) {
            let from = (length * 7) % 67;
            let part = &bytes[from..from + length];
            let wanted = slow(part);
            assert_eq!(crc32c(part), wanted, "{length} bytes");
            let (one, two) = part.split_at((length * 3) % (length + 1));
            assert_eq!(crc32c_append(crc32c(one), two), wanted, "{} and {} bytes", one.len(), two.len());
        }
    }
}
