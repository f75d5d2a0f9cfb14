//! Names that an exchange has changed in memory, and could not write for lack of room below.
//!
//! With synchronous metadata an operation writes the names that it changes. One that frees nothing could fail instead, but the first
//! of two places may be on the volume when the second one is refused. So the inodes remember where their names are, and a sync of
//! one of them writes these blocks or fails.

use super::numbers::{FragNo, InodeNo};
use super::state::*;

impl State {
    /// The names that the inodes `inos` have got are in the blocks at `places`, for which there was no room below.
    pub(super) fn note_late_names(&mut self, inos: &[InodeNo], places: &[FragNo]) {
        for &ino in inos.iter().filter(|_| !places.is_empty()) {
            self.late_names.entry(ino).or_default().extend(places);
        }
    }

    /// Those blocks of the inode that are still not on the volume.
    pub(super) fn late_names_of(&mut self, ino: InodeNo) -> Vec<FragNo> {
        let cache = &self.cache;
        self.late_names.retain(|_, places| {
            places
                .retain(|&at| cache.peek(at).is_some_and(|buffer| buffer.dirty.is_some()) || cache.is_in_flight(at, 1));
            !places.is_empty()
        });
        self.late_names.get(&ino).map(|places| places.iter().copied().collect()).unwrap_or_default()
    }
}
