//! When the storage below is full: one message at the beginning, and one at the end.
//!
//! A file system on a full host keeps retrying, and keeps overwriting existing data. So one successful request does not
//! mean that there is space: the host must have as much as it last refused.

use std::cell::Cell;
use std::path::Path;

use seekless::units::human_bytes;

/// Whether the host has refused space, and how much.
#[derive(Default)]
pub(super) struct Fullness(Cell<Option<u64>>);

impl Fullness {
    /// The host has no room for `bytes` of the store at `path`.
    pub(super) fn refused(&self, path: &Path, bytes: u64) {
        if self.0.replace(Some(bytes)).is_none() {
            log::warn!(
                "{}: the host has no room for {} more; writing fails until there is room again",
                path.display(),
                human_bytes(bytes)
            );
        }
    }

    /// A request that may have needed space has succeeded. `free` returns the host's free bytes, if known.
    pub(super) fn granted(&self, path: &Path, free: impl FnOnce() -> Option<u64>) {
        let Some(refused) = self.0.get() else { return };
        if free().is_none_or(|free| free >= refused) {
            self.0.set(None);
            // At the same level as the beginning, for the same readers.
            log::warn!("{}: the host has room again", path.display());
        }
    }

    #[cfg(test)]
    fn is_full(&self) -> bool {
        self.0.get().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An episode lasts until there is space for the refused request, not until any request succeeds.
    #[test]
    fn an_episode_ends_when_there_is_room() {
        let (fullness, path) = (Fullness::default(), Path::new("a.img"));
        fullness.granted(path, || panic!("it is not asked while nothing is wrong"));
        fullness.refused(path, 4096);
        fullness.refused(path, 8192);
        fullness.granted(path, || Some(8191));
        assert!(fullness.is_full());
        fullness.granted(path, || Some(8192));
        assert!(!fullness.is_full());
        fullness.refused(path, 4096);
        fullness.granted(path, || None);
        assert!(!fullness.is_full(), "where free space is not known, success has to do");
    }
}
