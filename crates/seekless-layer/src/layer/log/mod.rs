//! The layer that stores files in a size other than their own: chunk by chunk, each encoded by a [`Codec`], in the
//! scheme `log`.
//!
//! Everything about a file is in its one lower file: records, each with a checksum, written out of place, and two slots
//! that alternate in referring to them. So a file is at every moment that of one commit, whatever the file system below
//! does with writes that were not synced. There are no additional names, hard links and renames are those below, and
//! the cost of a change does not depend on the size of the file. `FORMAT.md` describes the bytes.
//!
//! How a write becomes durable:
//! 1. It changes chunks in memory ([`data`]). The file system below does not see it yet.
//! 2. *Staging* encodes changed chunks and writes them as records into free space ([`stage`]).
//! 3. A *commit* stages the rest, writes the changed part of the index, syncs all of that on the file system below, and
//!    then writes a slot ([`commit`]). That write is the commit point.
//! 4. Space that the new commit does not use is free once that slot is durable.
//!
//! An fsync does all of it for one file. Changes that are not synced by a user are committed every few seconds, all
//! files together, with one sync of the file system below.
//!
//! The size of a file is also stored in an extended attribute of the lower file ([`mark`]), so that `stat` need not
//! open the file. The mark is made unclean, durably, before the first slot that makes it wrong.
//!
//! Differences from \[za01\], whose layers these are: records out of place instead of shifting, one file instead of
//! two, a larger unit instead of a page, checksums, and crash safety. The scheme of the paper is `classic`.

pub mod check;
mod commit;
mod compact;
mod data;
mod evidence;
mod file;
pub mod format;
mod index;
mod layer;
mod load;
pub(super) mod mark;
mod node;
pub mod pack;
mod plain;
mod rebuild;
mod space;
mod stage;
mod swap;
#[cfg(test)]
mod tests;

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

pub use super::Plain;
use super::Stacked;
use super::codecs::Codec;
use super::directory::{Claim, schemes};
use crate::device::Counter;
use crate::fs::{Fs, FsError, FsResult};
use crate::rt::{Gate, Rt};
use crate::units::{MIB, Nanos};

use data::Cache;
pub use node::Node;

/// Options of the layer. None of them is needed to read existing files.
#[derive(Clone)]
pub struct Options {
    /// The codec of new chunks.
    pub codec: Arc<dyn Codec>,
    /// Bytes of a chunk in new files, as a power of two: [`format::CHUNK_SHIFT_MIN`] to [`format::CHUNK_SHIFT_MAX`].
    pub chunk_shift: u8,
    pub plain: Plain,
    /// Longest time that a change waits in memory.
    pub write_back_interval: Nanos,
    /// Changed bytes in memory, of all files, at which writers have to wait.
    pub dirty_bytes_max: u64,
    /// Decoded chunks kept in memory, in bytes.
    pub cache_bytes: u64,
    /// After an fsync nothing more is written below, for a caller that then changes the lower file itself. It costs a second
    /// sync of the lower file.
    pub settle_at_fsync: bool,
}

impl Options {
    pub fn new(codec: Arc<dyn Codec>) -> Options {
        Options {
            codec,
            // A smaller chunk takes more space (docs/papers/za01.md, "Space"), a larger one takes longer to read from or to
            // write to at random (docs/guide/mounts.md).
            chunk_shift: 15,
            plain: Plain::Pass,
            write_back_interval: Nanos::from_secs(5),
            dirty_bytes_max: 32 * MIB,
            cache_bytes: 8 * MIB,
            settle_at_fsync: false,
        }
    }
}

/// Counters.
#[derive(Default)]
struct Counts {
    commits: Cell<u64>,
    provisional_commits: Cell<u64>,
    chunks_encoded: Cell<u64>,
    chunks_raw: Cell<u64>,
    chunks_decoded: Cell<u64>,
    tails_written: Cell<u64>,
    nodes_written: Cell<u64>,
    bytes_encoded: Cell<u64>,
    bytes_written: Cell<u64>,
    headers_read: Cell<u64>,
    sizes_from_marks: Cell<u64>,
    records_moved: Cell<u64>,
    write_backs: Cell<u64>,
    plain_changes_refused: Cell<u64>,
}

fn count(counter: &Cell<u64>, more: u64) {
    counter.set(counter.get() + more);
}

impl Counts {
    fn list(&self) -> Vec<Counter> {
        vec![
            ("commits", self.commits.get()),
            ("provisional_commits", self.provisional_commits.get()),
            ("chunks_encoded", self.chunks_encoded.get()),
            ("chunks_raw", self.chunks_raw.get()),
            ("chunks_decoded", self.chunks_decoded.get()),
            ("tails_written", self.tails_written.get()),
            ("nodes_written", self.nodes_written.get()),
            ("bytes_encoded", self.bytes_encoded.get()),
            ("bytes_written", self.bytes_written.get()),
            ("headers_read", self.headers_read.get()),
            ("sizes_from_marks", self.sizes_from_marks.get()),
            ("records_moved", self.records_moved.get()),
            ("write_backs", self.write_backs.get()),
            ("plain_changes_refused", self.plain_changes_refused.get()),
        ]
    }
}

/// The layer. See the head of the file.
pub struct ChunkedLayer {
    rt: Rt,
    options: Options,
    /// Refuses every change below.
    read_only: bool,
    /// For the background task.
    stacked: RefCell<Weak<Stacked<ChunkedLayer>>>,
    cache: RefCell<Cache>,
    /// Changed bytes in memory.
    dirty_bytes: Cell<u64>,
    /// Bytes that can still be promised to writers before the free space below is queried again.
    room: Cell<u64>,
    timer_is_set: Cell<bool>,
    /// `Stopped`, with the first error that stopped a file: no sync of all succeeds after it, also when that file is no
    /// longer in use.
    stopped: RefCell<Option<FsError>>,
    closed: Cell<bool>,
    /// One pass over all files at a time.
    passes: Gate,
    /// Lower handles that the layer has taken over from their users, in order to write later.
    writers: Cell<usize>,
    /// Limit of them, at which all files are written below.
    writers_max: usize,
    making_room: Gate,
    next_serial: Cell<u64>,
    counts: Counts,
}

impl ChunkedLayer {
    fn new(rt: &Rt, lower: &Fs, options: Options) -> ChunkedLayer {
        let cache = RefCell::new(Cache::new(options.cache_bytes));
        ChunkedLayer {
            rt: rt.clone(),
            read_only: lower.traits().read_only,
            stacked: RefCell::default(),
            cache,
            dirty_bytes: Cell::new(0),
            room: Cell::new(0),
            timer_is_set: Cell::new(false),
            stopped: RefCell::default(),
            closed: Cell::new(false),
            passes: Gate::new(),
            writers: Cell::new(0),
            // The other half is for the files that users have open.
            writers_max: lower.traits().open_files_max.map_or(usize::MAX, |most| most / 2),
            making_room: Gate::new(),
            next_serial: Cell::new(1),
            counts: Counts::default(),
            options,
        }
    }

    /// The scheme and key that a directory has to match.
    fn claim(&self) -> Claim<'_> {
        Claim { scheme: schemes::LOG, codec: &*self.options.codec }
    }
}

/// Stacks the layer on `lower`.
///
/// # Errors
/// When the root of `lower` cannot be read.
pub async fn stack_on(rt: &Rt, lower: Fs, options: Options) -> FsResult<Fs> {
    Ok(stack(rt, lower, options).await?)
}

/// As [`stack_on`], with the concrete type.
async fn stack(rt: &Rt, lower: Fs, options: Options) -> FsResult<Rc<Stacked<ChunkedLayer>>> {
    let log = ChunkedLayer::new(rt, &lower, options);
    log.claim().make(&lower, log.read_only).await?;
    let stacked = Rc::new(Stacked::new(lower, log).await?);
    *stacked.layer().stacked.borrow_mut() = Rc::downgrade(&stacked);
    Ok(stacked)
}
