//! The layer that stores files in another size than they have, as \[za01\] published it: the scheme `classic`.
//!
//! A file is cut into pages; each is encoded by itself, and the results, *units*, stand one behind the other in the lower
//! file `F`. Beside it, `F.idx` lists where each of them ends, so that any page is found with one read. A page whose unit
//! changes its size moves all that follows. `FORMAT.md` describes the bytes.
//!
//! It is here to be measured, and to show what [`log`](super::log) does differently. Use that one for files that matter:
//! here nothing has a checksum, a crash damages the file that was being written, and the name `F.idx` is taken.
//!
//! What holds all the same
//!   K1  The index is only for speed: whatever it says is compared with the units before it is believed, and it is made
//!       anew from them when it is lost, damaged or of another moment [za01 §5].
//!   K2  No operation on one file changes another, except its index.
//!
//! Differences from \[za01\], or what it does not say
//!   1. Each unit begins with its raw length, and a tail with a mark, since copy and uuencode do not say where they end.
//!   2. A page that would not shrink is kept raw, and one of zeroes takes four bytes.
//!   3. There is no page cache here: a write changes the lower file before it returns. What the kernel of the paper kept,
//!      that of the mount keeps.
//!   4. `F.idx` is taken to be an index only if it begins as one. What is called so and is something else is left alone,
//!      but not seen through the layer.

pub mod check;
mod data;
mod file;
pub mod format;
mod index;
mod layer;
mod names;
mod shift;
#[cfg(test)]
mod tests;
mod units;

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use super::codecs::Codec;
use super::directory::{Claim, schemes};
use super::{Plain, Stacked};
use crate::device::Counter;
use crate::fs::{Fs, FsResult};
use crate::rt::Rt;

/// How the layer works. Nothing of it is needed to read what is there.
#[derive(Clone)]
pub struct Options {
    /// For units that are written from now on.
    pub codec: Arc<dyn Codec>,
    /// The last bytes of a file, less than a page, are kept as they are [za01 §7].
    pub fast_tails: bool,
    pub plain: Plain,
}

impl Options {
    pub fn new(codec: Arc<dyn Codec>) -> Options {
        Options { codec, fast_tails: true, plain: Plain::Pass }
    }
}

/// What has happened.
#[derive(Default)]
struct Counts {
    units_encoded: Cell<u64>,
    units_decoded: Cell<u64>,
    bytes_encoded: Cell<u64>,
    /// To data files, those that were shifted included.
    bytes_written: Cell<u64>,
    bytes_shifted: Cell<u64>,
    tail_appends: Cell<u64>,
    indexes_read: Cell<u64>,
    indexes_written: Cell<u64>,
    indexes_rebuilt: Cell<u64>,
    indexes_dropped: Cell<u64>,
}

fn count(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get() + more);
}

impl Counts {
    fn list(&self) -> Vec<Counter> {
        vec![
            ("units_encoded", self.units_encoded.get()),
            ("units_decoded", self.units_decoded.get()),
            ("bytes_encoded", self.bytes_encoded.get()),
            ("bytes_written", self.bytes_written.get()),
            ("bytes_shifted", self.bytes_shifted.get()),
            ("tail_appends", self.tail_appends.get()),
            ("indexes_read", self.indexes_read.get()),
            ("indexes_written", self.indexes_written.get()),
            ("indexes_rebuilt", self.indexes_rebuilt.get()),
            ("indexes_dropped", self.indexes_dropped.get()),
        ]
    }
}

/// The layer. See the head of the file.
pub struct Classic {
    rt: Rt,
    options: Options,
    /// Nothing below may change.
    read_only: bool,
    counts: Counts,
}

impl Classic {
    fn new(rt: &Rt, lower: &Fs, options: Options) -> Classic {
        Classic { rt: rt.clone(), read_only: lower.traits().read_only, counts: Counts::default(), options }
    }

    /// What a directory is to agree with.
    fn claim(&self) -> Claim<'_> {
        Claim { scheme: schemes::CLASSIC, codec: &*self.options.codec }
    }
}

/// The layer on `lower`.
///
/// # Errors
/// When the root of `lower` cannot be read.
pub async fn stack_on(rt: &Rt, lower: Fs, options: Options) -> FsResult<Fs> {
    let classic = Classic::new(rt, &lower, options);
    classic.claim().make(&lower, classic.read_only).await?;
    Ok(Rc::new(Stacked::new(lower, classic).await?))
}
