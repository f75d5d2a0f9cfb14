//! Changes of files that the layer passes through.
//!
//! Invariant
//!   F1  A file that is passed through stays one that every later mount passes through.
//!
//! A change after which [`look_at`] would find anything but a plain file is refused. Its result depends on a few bytes at the start of nearly
//! every file ([`Evidence`]), so other changes cost nothing.

use super::evidence::Evidence;
use super::file::Form;
use super::load::{Content, look_at};
use super::node::Node;
use super::{ChunkedLayer, count};
use crate::fs::FsResult;
use crate::layer::At;
use crate::layer::change::{Change, View, WOULD_BE_OURS};

impl ChunkedLayer {
    /// Makes a change of a file that is passed through, with `make`. Returns `None` if it is no longer passed through: it was truncated to
    /// nothing before `make` was called.
    ///
    /// # Errors
    /// `Refused` where F1 would be broken, and those of `make`.
    pub(super) async fn change_plain<T>(
        &self,
        at: &At<'_, Node>,
        change: Change<'_>,
        make: impl AsyncFnOnce() -> FsResult<T>,
    ) -> FsResult<Option<T>> {
        let Some(file) = at.node.file() else { return make().await.map(Some) };
        let evidence = || match file.borrow().form {
            Form::Plain(evidence) => Some(evidence),
            _ => None,
        };
        if let (Some(file), Some(_)) = (at.node.open(at.lower), evidence()) {
            // Another program has replaced what the mark describes. Should the file become as long as that was, a mount would take
            // it for a damaged one of ours.
            self.unmark(file.through(at.handle)).await?;
        }
        let together = at.node.plain_changes.together().await;
        match evidence() {
            None => return Ok(None),
            Some(evidence) if evidence.is_untouched_by(&change) => return make().await.map(Some),
            Some(_) => drop(together),
        }
        let _alone = at.node.plain_changes.alone().await;
        let Some(before) = evidence() else { return Ok(None) };
        let after = match before.after(&change) {
            Some(after) => after,
            None => {
                let view = View::after(at.lower, at.ino, at.handle, change).await?;
                match look_at(view).await? {
                    Content::Plain(after) => after,
                    Content::Empty if view.size == 0 => Evidence::UNKNOWN,
                    _ => {
                        count(&self.counts.plain_changes_refused, 1);
                        return Err(WOULD_BE_OURS);
                    }
                }
            }
        };
        let set = |evidence| {
            let mut file = file.borrow_mut();
            if let Form::Plain(_) = file.form {
                file.form = Form::Plain(evidence);
            }
        };
        // A change that fails, or is abandoned, may be there in part.
        set(Evidence::UNKNOWN);
        let made = make().await?;
        set(after);
        Ok(Some(made))
    }
}
