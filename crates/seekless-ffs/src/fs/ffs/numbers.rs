//! Numbers of things on a volume. Each kind has a type of its own, so that none is used in place of another.
//!
//! The number of a block within its file, `lbn` in the code, has none: nearly every use multiplies it, divides it or compares it
//! with a size, and the numbers that it is passed beside have types.

use std::fmt;
use std::ops::{Add, Sub};

use crate::codec::Le;

/// Declares a newtype of `u32` that is stored as one, and is shown as its number.
macro_rules! number {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub u32);

        impl $name {
            /// The numbers from this one on, before `end`.
            pub fn until(self, end: $name) -> impl Iterator<Item = $name> + Clone {
                (self.0..end.0).map($name)
            }
        }

        impl Add<u32> for $name {
            type Output = $name;
            #[inline]
            fn add(self, count: u32) -> $name {
                $name(self.0 + count)
            }
        }

        /// Distance of two numbers.
        impl Sub<$name> for $name {
            type Output = u32;
            #[inline]
            fn sub(self, other: $name) -> u32 {
                self.0 - other.0
            }
        }

        impl Le for $name {
            const BYTES: usize = u32::BYTES;
            #[inline]
            fn get(bytes: &[u8]) -> $name {
                $name(u32::get(bytes))
            }
            #[inline]
            fn put(&self, bytes: &mut [u8]) {
                self.0.put(bytes);
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number! {
    /// An inode of the volume. The interface has numbers of its own ([`Ino`](crate::units::Ino)), because its root is 1.
    InodeNo
}

impl InodeNo {
    /// None: an entry that is not in use, or the owner of blocks that belong to no file.
    pub const NONE: InodeNo = InodeNo(0);
}

number! {
    /// A cylinder group.
    GroupNo
}

impl GroupNo {
    /// Its index in a table of all groups.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

number! {
    /// The address of a fragment, counted from the start of the volume, as in the pointers of inodes. A block has the address of
    /// its first fragment.
    FragNo
}

number! {
    /// A block of the volume. Its fragments are `frag` times as many from the start; see
    /// [`Layout::block_of`](super::layout::Layout::block_of). A position in a group is not one.
    BlockNo
}

impl FragNo {
    /// No fragment: the pointer of a hole. Boot blocks are at this address, so that it is never a file's.
    pub const NONE: FragNo = FragNo(0);

    /// Its index in a table of all fragments.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    /// The addresses of `count` fragments from here on.
    pub fn run(self, count: u32) -> impl Iterator<Item = FragNo> + Clone {
        self.until(self + count)
    }

    /// The address `frags` before this one, or the start of the volume.
    pub fn saturating_sub(self, frags: u32) -> FragNo {
        FragNo(self.0.saturating_sub(frags))
    }

    /// The address `frags` further on, if it can be one.
    pub fn checked_add(self, frags: u32) -> Option<FragNo> {
        self.0.checked_add(frags).map(FragNo)
    }
}
