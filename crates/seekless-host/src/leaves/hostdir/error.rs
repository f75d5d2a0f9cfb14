//! Why a directory of the host cannot be used.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::leaves::users::Users;

/// Why a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HostDirError {
    #[error("there is no directory {}; create it first", path.display())]
    Missing { path: PathBuf },
    #[error("{} is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    #[error("directory {} may not be read by this user", path.display())]
    NotAllowed { path: PathBuf },
    #[error("cannot {action} {}: {cause}", path.display())]
    Os { action: &'static str, path: PathBuf, cause: Errno },
    #[error("directory {}{} is in use by another mount or process; unmount it or end that process first",
        path.display(), place_text(inside.as_deref()))]
    InUse {
        path: PathBuf,
        /// The directory above that is in use, if it is that one.
        inside: Option<PathBuf>,
        users: Users,
    },
    #[error("cannot use /proc/self/fd: {0}; mount proc on /proc, host directories need it")]
    NoProc(Errno),
}

impl HostDirError {
    pub(super) fn in_use(path: &Path, inside: Option<&Path>, users: Users) -> HostDirError {
        HostDirError::InUse { path: path.to_owned(), inside: inside.map(Path::to_owned), users }
    }
}

fn place_text(inside: Option<&Path>) -> String {
    match inside {
        Some(inside) => format!(" is inside {}, which", inside.display()),
        None => ", or one inside it,".to_owned(),
    }
}
