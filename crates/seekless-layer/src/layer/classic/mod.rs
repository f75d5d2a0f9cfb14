//! The layer that stores files in a size other than their own, as published in \[za01\]: the scheme `classic`.
//!
//! A file is cut into pages. Each is encoded by itself, and the results, *units*, are stored one after the other in
//! the lower file `F`. Beside it, `F.idx` lists where each of them ends, so that any page is found with one read. When
//! the unit of a page changes its size, everything behind it moves. `FORMAT.md` describes the bytes.
//!
//! It exists for measurements, and to show what [`log`](super::log) does differently. Use that one for files that
//! matter: `classic` has no checksums, a crash damages the file that was being written, and the name `F.idx` is
//! reserved.
//!
//! Guarantees
//!   K1  The index is only for speed: it is compared with the units before it is used, and it is rebuilt from them when
//!       it is lost, damaged or out of date [za01 §5].
//!   K2  No operation on one file changes another, except its index.
//!
//! Differences from \[za01\], and what it leaves open
//!   1. Each unit begins with its raw length, and a tail with a mark, since copy and uuencode do not say where they
//!      end.
//!   2. A page that would not shrink is kept raw, and one of zeroes takes four bytes.
//!   3. There is no page cache here: a write changes the lower file before it returns. The page cache that the paper's
//!      kernel had is that of the mount.
//!   4. `F.idx` counts as an index only if it begins as one. Any other file of that name is left alone, but hidden by
//!      the layer.

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
use crate::rt::{Gate, Rt};

/// Options of the layer. None of them is needed to read existing files.
#[derive(Clone)]
pub struct Options {
    /// The codec of new units.
    pub codec: Arc<dyn Codec>,
    /// The last bytes of a file, less than a page, are kept raw [za01 §7].
    pub fast_tails: bool,
    pub plain: Plain,
}

impl Options {
    pub fn new(codec: Arc<dyn Codec>) -> Options {
        Options { codec, fast_tails: true, plain: Plain::Pass }
    }
}

/// Counters.
#[derive(Default)]
struct Counts {
    units_encoded: Cell<u64>,
    units_decoded: Cell<u64>,
    bytes_encoded: Cell<u64>,
    /// Bytes written to data files, including those moved by a shift.
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
    /// Refuses every change below.
    read_only: bool,
    /// Held from a change of a file's name until its index has followed, and while an index is found, made or removed by name (see
    /// [`names`]). Entered after the gate of a node.
    names: Gate,
    counts: Counts,
}

impl Classic {
    fn new(rt: &Rt, lower: &Fs, options: Options) -> Classic {
        let read_only = lower.traits().read_only;
        Classic { rt: rt.clone(), read_only, names: Gate::new(), counts: Counts::default(), options }
    }

    /// The scheme and key that a directory has to match.
    fn claim(&self) -> Claim<'_> {
        Claim { scheme: schemes::CLASSIC, codec: &*self.options.codec }
    }
}

/// Stacks the layer on `lower`.
///
/// # Errors
/// When the root of `lower` cannot be read.
pub async fn stack_on(rt: &Rt, lower: Fs, options: Options) -> FsResult<Fs> {
    let classic = Classic::new(rt, &lower, options);
    classic.claim().make(&lower, classic.read_only).await?;
    Ok(Rc::new(Stacked::new(lower, classic).await?))
}
