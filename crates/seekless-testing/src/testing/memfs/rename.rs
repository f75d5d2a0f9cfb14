//! Rename of the model, in all its forms.

use super::{Body, State};
use crate::fs::{EntryName, FileKind, FsError, FsResult, RenameMode, WHITEOUT};
use crate::units::{Ino, WallTime};

impl State {
    /// True when `ancestor` is `ino` or above it.
    fn contains(&self, ancestor: Ino, mut ino: Ino) -> FsResult<bool> {
        loop {
            if ino == ancestor {
                return Ok(true);
            }
            if ino == Ino::ROOT {
                return Ok(false);
            }
            ino = self.node(ino)?.directory()?.parent;
        }
    }

    pub(super) fn rename(
        &mut self,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
        now: WallTime,
    ) -> FsResult<()> {
        let source = self.child(from)?;
        let target = match self.child(to) {
            Ok(target) => Some(target),
            Err(FsError::NotFound) => None,
            Err(error) => return Err(error),
        };
        match mode {
            mode if mode.spares_target() && target.is_some() => return Err(FsError::Exists),
            RenameMode::Exchange if target.is_none() => return Err(FsError::NotFound),
            // Two names of one file, or the same name twice: POSIX says that nothing happens.
            _ if target == Some(source) => return Ok(()),
            _ if self.node(to.parent)?.links == 0 => return Err(FsError::NotFound),
            _ => {}
        }
        let is_directory = |ino| Ok::<bool, FsError>(self.node(ino)?.kind() == FileKind::Directory);
        let source_is_directory = is_directory(source)?;
        let target_is_directory = target.map(is_directory).transpose()?;
        if source_is_directory && self.contains(source, to.parent)? {
            return Err(FsError::Loop);
        }
        if mode == RenameMode::Exchange {
            if let Some(target) = target.filter(|_| target_is_directory == Some(true))
                && self.contains(target, from.parent)?
            {
                return Err(FsError::Loop);
            }
        } else if let Some(target) = target {
            match (source_is_directory, target_is_directory == Some(true)) {
                (true, false) => return Err(FsError::NotDirectory),
                (false, true) => return Err(FsError::IsDirectory),
                (true, true) if !self.node(target)?.directory()?.entries.is_empty() => return Err(FsError::NotEmpty),
                _ => {}
            }
        }
        let whiteout = match mode.whiteout() {
            Some(new) => Some(self.heir(from.parent, Body::Special(WHITEOUT), new, now)?),
            None => None,
        };
        // Nothing fails from here on. First both names are removed, then the new ones are added.
        for (place, ino) in [(from, Some(source)), (to, target)] {
            let Some(ino) = ino else { continue };
            let gone = u32::from(self.node(ino)?.kind() == FileKind::Directory);
            self.node_mut(place.parent)?.links -= gone;
        }
        let arrivals = match (mode, target, whiteout) {
            (RenameMode::Exchange, Some(target), _) => vec![(to, source), (from, target)],
            (_, _, Some(whiteout)) => vec![(to, source), (from, self.add(whiteout))],
            _ => {
                self.node_mut(from.parent)?.directory_mut()?.remove(from.name);
                vec![(to, source)]
            }
        };
        for (place, ino) in arrivals {
            let node = self.node_mut(ino)?;
            node.ctime = now;
            let mut came = 0;
            if let Body::Directory(directory) = &mut node.body {
                directory.parent = place.parent;
                came = 1;
            }
            let parent = self.node_mut(place.parent)?;
            parent.links += came;
            parent.directory_mut()?.set(place.name, ino);
        }
        self.changed_directory(from.parent, now)?;
        self.changed_directory(to.parent, now)?;
        match target {
            Some(target) if mode != RenameMode::Exchange => self.drop_name(target, now),
            _ => Ok(()),
        }
    }
}
