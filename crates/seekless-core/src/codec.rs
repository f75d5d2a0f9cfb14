//! The only byte-order code in the engine: fixed little-endian records, and the checksum they carry.
//!
//! A format declares each structure once, with [`record!`](crate::record); the struct, its encoder, its decoder
//! and the field table that tests compare with `FORMAT.md` all come from that one declaration.

use std::fmt;

/// CRC-32C (Castagnoli) of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

/// CRC-32C of the concatenation of the bytes whose CRC is `crc` and `bytes`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    crc32c::crc32c_append(crc, bytes)
}

/// True when every byte is zero.
pub fn is_zero(bytes: &[u8]) -> bool {
    // By chunks, which the compiler turns into wide comparisons; most of what is not zero shows in the first.
    bytes.chunks(64).all(|chunk| chunk.iter().fold(0, |any, &byte| any | byte) == 0)
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
le_integer!(u8, u16, u32, u64, i64);

impl<T: Le + Copy + Default, const N: usize> Le for [T; N] {
    const BYTES: usize = N * T::BYTES;
    #[inline]
    fn get(bytes: &[u8]) -> [T; N] {
        let mut items = [T::default(); N];
        for (item, raw) in items.iter_mut().zip(bytes.chunks_exact(T::BYTES)) {
            *item = T::get(raw);
        }
        items
    }
    #[inline]
    fn put(&self, bytes: &mut [u8]) {
        for (item, raw) in self.iter().zip(bytes.chunks_exact_mut(T::BYTES)) {
            item.put(raw);
        }
    }
}

/// The value at `offset`, or `None` past the end of `bytes`.
pub fn get_at<T: Le>(bytes: &[u8], offset: usize) -> Option<T> {
    Some(T::get(bytes.get(offset..offset.checked_add(T::BYTES)?)?))
}

/// Stores `value` at `offset`.
///
/// # Panics
/// When it does not fit: the offset is the caller's own arithmetic, never input.
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
