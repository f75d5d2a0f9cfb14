//! Newtypes that carry a unit: sectors, virtual nanoseconds, wall-clock time, inode numbers.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Bytes in a sector. Every device address in Seekless counts 512-byte sectors, even on drives whose smallest write is
/// larger (see `Geometry::block_bytes`), as the Linux block layer does.
pub const SECTOR_BYTES: u64 = 512;

pub const KIB: u64 = 1 << 10;
pub const MIB: u64 = 1 << 20;
pub const GIB: u64 = 1 << 30;

/// A hash map with a fixed hash function, for lookups on hot paths. Its iteration order must never show in
/// a result: iterate an ordered map instead.
#[allow(clippy::disallowed_types)]
pub type FixedMap<K, V> = std::collections::HashMap<K, V, rustc_hash::FxBuildHasher>;

/// Address of a 512-byte sector on a device.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sector(pub u64);

impl Sector {
    pub const ZERO: Sector = Sector(0);

    /// Byte offset of this sector from the start of its device.
    pub fn byte_offset(self) -> u64 {
        self.0 * SECTOR_BYTES
    }
}

impl Add<u64> for Sector {
    type Output = Sector;
    fn add(self, sectors: u64) -> Sector {
        Sector(self.0 + sectors)
    }
}

/// Distance in sectors.
impl Sub<Sector> for Sector {
    type Output = u64;
    fn sub(self, other: Sector) -> u64 {
        self.0 - other.0
    }
}

impl fmt::Debug for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sector {}", self.0)
    }
}

impl fmt::Display for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Sectors that hold `bytes`, rounded up.
pub const fn sectors_for(bytes: u64) -> u64 {
    bytes.div_ceil(SECTOR_BYTES)
}

/// A moment on the runtime's clock, or a duration: nanoseconds, since the runtime started if a moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    pub const ZERO: Nanos = Nanos(0);
    pub const MAX: Nanos = Nanos(u64::MAX);

    pub const fn from_micros(micros: u64) -> Nanos {
        Nanos(micros * 1_000)
    }

    pub const fn from_millis(millis: u64) -> Nanos {
        Nanos(millis * 1_000_000)
    }

    pub const fn from_secs(secs: u64) -> Nanos {
        Nanos(secs * 1_000_000_000)
    }

    /// Nearest nanosecond to `millis`; negative durations become zero.
    pub fn from_millis_f64(millis: f64) -> Nanos {
        Nanos((millis * 1e6).round().max(0.0) as u64)
    }

    pub fn as_millis_f64(self) -> f64 {
        self.0 as f64 / 1e6
    }

    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    pub fn saturating_sub(self, other: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(other.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, other: Nanos) -> Nanos {
        Nanos(self.0 + other.0)
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, other: Nanos) {
        self.0 += other.0;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, other: Nanos) -> Nanos {
        Nanos(self.0 - other.0)
    }
}

impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ns", self.0)
    }
}

/// Time of day as files carry it: seconds and nanoseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct WallTime {
    pub seconds: i64,
    /// 0..1_000_000_000
    pub nanos: u32,
}

impl WallTime {
    pub fn from_nanos_since_epoch(nanos: i128) -> WallTime {
        WallTime { seconds: nanos.div_euclid(1_000_000_000) as i64, nanos: nanos.rem_euclid(1_000_000_000) as u32 }
    }

    pub fn nanos_since_epoch(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos)
    }
}

/// Inode number. The root directory is [`Ino::ROOT`] in every file system, as FUSE wants it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ino(pub u64);

impl Ino {
    pub const ROOT: Ino = Ino(1);
}

impl fmt::Debug for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ino {}", self.0)
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// `count` of a `thing` whose plural is regular: `1 error`, `2 errors`.
pub fn counted(count: u64, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

/// `bytes` for display: `512 B`, `64 KiB`, `1.5 GiB`.
pub fn human_bytes(bytes: u64) -> String {
    let (mut value, mut unit) = (bytes as f64, "B");
    for next in ["KiB", "MiB", "GiB", "TiB", "PiB"] {
        if value < 1024.0 {
            break;
        }
        (value, unit) = (value / 1024.0, next);
    }
    if value.fract() == 0.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}
