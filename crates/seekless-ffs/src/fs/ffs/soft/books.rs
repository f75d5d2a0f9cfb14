//! What soft updates have yet to free, for the recount of a mounted volume.

use std::collections::BTreeSet;

use super::super::numbers::{FragNo, InodeNo};
use super::{Freeing, Job, RecordKind, Soft};

/// Space that waits to be freed and is still allocated.
#[derive(Default)]
pub(in super::super) struct Waiting {
    /// Fragments and inodes that have not been freed yet.
    pub frags: i64,
    pub inodes: i64,
    /// The known ones among them: the others are being freed at this moment.
    pub known_frags: Vec<(FragNo, u32)>,
    pub known_inodes: Vec<InodeNo>,
    /// Entries in blocks of directories that are not names: directory, offset.
    pub ghosts: BTreeSet<(InodeNo, u64)>,
    /// Jobs in progress.
    pub running: usize,
    /// Tasks that free inodes.
    pub tasks: usize,
}

impl Soft {
    /// How many events follow when buffers are durable.
    #[cfg(test)]
    pub(in super::super) fn waiting_events(&self) -> usize {
        self.waits.values().map(Vec::len).sum()
    }

    pub(in super::super) fn waiting(&self) -> Waiting {
        let mut waiting = Waiting {
            frags: self.pending_frags,
            inodes: self.pending_inodes,
            running: self.jobs_running,
            tasks: self.tasks,
            ..Waiting::default()
        };
        let mut add = |freeing: &Freeing| {
            waiting.known_frags.extend(&freeing.frags[freeing.done..]);
            waiting.known_inodes.extend(freeing.inode.map(|(ino, _)| ino));
        };
        for record in self.records.values() {
            match &record.what {
                RecordKind::Free(freeing) => add(freeing),
                RecordKind::Ghost { dir, offset, .. } => {
                    waiting.ghosts.insert((*dir, *offset));
                }
                RecordKind::Entry { .. } | RecordKind::Removal { .. } => {}
            }
        }
        for (job, _) in &self.jobs {
            if let Job::Free(freeing) = job {
                add(freeing);
            }
        }
        waiting
    }
}
