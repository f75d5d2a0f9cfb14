//! Operations on a damaged volume: everything that can be done with a sound one.

use crate::fs::client::Client;
use crate::fs::{Fs, FsError, FsResult};
use crate::testing::Tree;

/// Checks, reads, changes and checks a volume. `check` returns what is wrong with it; `mount` takes whether to mount
/// read-only.
///
/// # Errors
/// The check found nothing, but the volume was not sound, or is not after use.
pub(super) async fn exercise(
    check: impl AsyncFn() -> FsResult<Vec<String>>,
    mount: impl AsyncFn(bool) -> FsResult<Fs>,
) -> Result<(), String> {
    let right = check().await.is_ok_and(|errors| errors.is_empty());
    let used = use_it(mount).await;
    if !right {
        return Ok(());
    }
    used.map_err(|error| format!("the check found nothing, but {error}"))?;
    match check().await {
        Ok(errors) if errors.is_empty() => Ok(()),
        Ok(errors) => Err(format!("the check found nothing; then the volume was used, and now: {errors:#?}")),
        Err(error) => Err(format!("the check found nothing; then the volume was used, and now: {error}")),
    }
}

/// Reads all of it, first read-only, then mounted for writing, changes a few things and closes.
async fn use_it(mount: impl AsyncFn(bool) -> FsResult<Fs>) -> Result<(), String> {
    let reader = mount(true).await.map_err(said("mounting to read"))?;
    let tree = Tree::of(reader).await.map_err(said("reading"))?;
    if let Some(problem) = tree.problems.first() {
        return Err(format!("reading: {problem}"));
    }
    let fs = mount(false).await.map_err(said("mounting"))?;
    let client = Client::new(fs.clone());
    let mut result = Ok(());
    for (number, (path, _)) in tree.paths().into_iter().enumerate().skip(1) {
        let path = &path.0;
        let done = match number % 4 {
            0 => client.unlink(path).await,
            1 => client.write_file(path, &[1; 5000]).await,
            2 => client.set_xattr(path, b"user.new", b"value").await,
            _ => client.truncate(path, 100).await,
        };
        // Operations that are invalid for the kind of file are refused; damage must not occur.
        if let Err(error @ (FsError::Corrupt { .. } | FsError::Stopped(_))) = done {
            result = Err(error);
        }
    }
    result.map_err(said("changing"))?;
    client.mkdir(b"/a new directory").await.or_else(tolerated).map_err(said("making"))?;
    fs.close().await.map_err(said("closing"))
}

/// An error with the operation that failed.
pub(super) fn said(what: &'static str) -> impl Fn(FsError) -> String {
    move |error| format!("{what}: {error}")
}

/// Errors of a creation that are allowed on a sound volume.
pub(super) fn tolerated(error: FsError) -> FsResult<()> {
    match error {
        FsError::Exists | FsError::NoSpace => Ok(()),
        error => Err(error),
    }
}
