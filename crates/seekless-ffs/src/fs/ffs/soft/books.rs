//! What soft updates have to give back, for the recount of a mounted volume.

use std::collections::BTreeSet;

use super::{Freeing, Job, Soft, What};

/// What is given back and is still taken.
#[derive(Default)]
pub(in super::super) struct Waiting {
    /// Fragments and inodes that have not been given back yet.
    pub frags: i64,
    pub inodes: i64,
    /// Those of them that are known: the others are being given back at this moment.
    pub known_frags: Vec<(u32, u32)>,
    pub known_inodes: Vec<u32>,
    /// Entries that are in blocks of directories, and are no names: directory, offset.
    pub ghosts: BTreeSet<(u32, u64)>,
    /// Jobs that are under way.
    pub running: usize,
    /// Tasks that free inodes.
    pub tasks: usize,
}

impl Soft {
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
                What::Free(freeing) => add(freeing),
                What::Ghost { dir, offset, .. } => {
                    waiting.ghosts.insert((*dir, *offset));
                }
                What::Entry { .. } | What::Removal { .. } => {}
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
