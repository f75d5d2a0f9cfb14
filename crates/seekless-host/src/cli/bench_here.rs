//! Programs that use files in real time: on a stack in this process, or in a directory.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use seekless::stack::{Stack, Usage};
use seekless_lab::run::{Run, run_here};
use seekless_lab::target::Host;
use seekless_lab::workload::{Program, Watch};

use super::world::{World, identity};
use super::{Failure, diagnose, output};
use crate::fuse::SyncError;

/// Runs a stack in real time, in its own world.
pub(super) fn run_here_in_a_world(stack: &Stack, program: &dyn Program, watch: Watch<'_>) -> Result<Run, Failure> {
    let world = World::new()?;
    let own = OwnDirectory::of(stack)?;
    let leaves = match &own {
        Some(own) => world.leaves().inside(own.name.clone()),
        None => world.leaves(),
    };
    world.run(async {
        // There is no kernel above, so the file system itself caches data.
        let usage = Usage { read_only: false, data_cached_above: false };
        let mounted = stack.mount(&world.rt, &leaves, &identity()?, usage).await;
        let mounted = mounted.map_err(|error| diagnose::explain(stack, &leaves, error))?;
        let files = leaves.files().iter().map(|file| file.path().to_owned()).collect();
        Ok(run_here(&world.rt, stack, mounted, files, program, watch).await?)
    })
}

/// A new directory inside the directory that a stack's layers would be on. A layer leaves an attribute on the directory that
/// it is put on, which says what its files are; a measurement must not leave one on a directory of the user's, where the next
/// one may be of another layer.
struct OwnDirectory {
    path: PathBuf,
    /// The last part of the path.
    name: PathBuf,
}

impl OwnDirectory {
    /// Makes one, where layers are over a directory that exists.
    fn of(stack: &Stack) -> Result<Option<OwnDirectory>, Failure> {
        let Some(leaf) = stack.words().last().filter(|leaf| leaf.name() == "hostdir") else { return Ok(None) };
        let above = Path::new(leaf.text("path").unwrap_or_default());
        if stack.words().len() == 1 || !above.is_dir() {
            return Ok(None); // That it does not exist is reported when it is opened.
        }
        let path = seekless_lab::target::own_directory(above).map_err(Failure::new)?;
        let name = path.file_name().map(PathBuf::from).unwrap_or_default();
        Ok(Some(OwnDirectory { path, name }))
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            output::note(&format!("note: cannot remove {}: {error}", self.path.display()));
        }
    }
}

/// How directories are synced and read cold: our own mounts need more than the kernel offers, also below an overlay, which passes
/// nothing on to them.
pub(super) fn host() -> Host {
    Host {
        sync: |directory: &File, path: &Path| match told(path, crate::fuse::sync) {
            Some(told) => told,
            None => {
                rustix::fs::syncfs(directory)?;
                crate::fuse::stored_in(path).and_then(|stored| told(&stored, crate::fuse::sync)).unwrap_or(Ok(()))
            }
        },
        drop_caches: |path: &Path| {
            let below = || crate::fuse::stored_in(path).and_then(|stored| told(&stored, crate::fuse::drop_caches));
            told(path, crate::fuse::drop_caches).or_else(below).unwrap_or(Ok(()))
        },
    }
}

/// What came of telling the mount of ours that holds `path`; `None` where none does.
fn told(path: &Path, tell: impl Fn(&Path) -> Result<(), SyncError>) -> Option<io::Result<()>> {
    match tell(path) {
        Ok(()) => Some(Ok(())),
        Err(SyncError::NotOurs { .. }) => None,
        Err(error @ SyncError::NotPermitted { .. }) => {
            Some(Err(io::Error::new(io::ErrorKind::PermissionDenied, error.to_string())))
        }
        Err(error) => Some(Err(io::Error::other(error.to_string()))),
    }
}
