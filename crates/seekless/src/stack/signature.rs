//! How the formats of the stack line are recognised without opening them: magic numbers at fixed places.

/// The magic numbers of a format.
#[derive(Debug)]
pub struct Signature {
    /// Name of what it is, with its article.
    pub name: &'static str,
    /// Any one of them is enough.
    pub magics: &'static [(MagicOffset, &'static [u8])],
}

/// Where a magic number is in a file or device.
#[derive(Clone, Copy, Debug)]
pub enum MagicOffset {
    Start(u64),
    /// Bytes before the end.
    End(u64),
    /// Bytes before the end of the last whole 4 KiB, where our own formats have their second superblock.
    LastUnit(u64),
}

impl MagicOffset {
    /// The offset in a file of `size` bytes.
    pub fn within(self, size: u64) -> Option<u64> {
        match self {
            MagicOffset::Start(offset) => Some(offset),
            MagicOffset::End(before) => size.checked_sub(before),
            MagicOffset::LastUnit(before) => (size / 4096 * 4096).checked_sub(before),
        }
    }
}
