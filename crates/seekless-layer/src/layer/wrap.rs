//! `wrap`: the null layer, `Wrapfs` of \[za01\]. It passes everything on and changes nothing, so that its difference
//! from the file system below is the cost of stacking alone.

use std::rc::Rc;

use super::{Layer, Stacked};
use crate::fs::{Attr, EntryName, Fs, FsResult};

/// See the head of the file.
pub struct Wrap;

impl Layer for Wrap {
    type Node = ();

    const NAME: &'static str = "wrap";

    async fn open_node(&self, _lower: &Fs, _attr: &Attr, _place: Option<EntryName<'_>>) -> FsResult<()> {
        Ok(())
    }
}

/// Stacks the null layer on `lower`.
///
/// # Errors
/// When the root of `lower` cannot be read.
pub async fn stack_on(lower: Fs) -> FsResult<Fs> {
    Ok(Rc::new(Stacked::new(lower, Wrap).await?))
}
