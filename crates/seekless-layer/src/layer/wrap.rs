//! `wrap`: the null layer, `Wrapfs` of \[za01\]. It passes everything on and changes nothing, so that its difference
//! from the file system below is the cost of stacking alone.

use std::rc::Rc;

use super::{At, Layer, Stacked};
use crate::fs::{Attr, EntryName, Fs, FsResult};

/// How the layer behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Data of files need not come through the layer, where the caller can read and write the files below directly. Then
    /// it is no measure of stacking any more.
    pub passthrough: bool,
}

/// See the head of the file.
struct Wrap(Options);

impl Layer for Wrap {
    type Node = ();

    const NAME: &'static str = "wrap";

    async fn open_node(&self, _lower: &Fs, _attr: &Attr, _place: Option<EntryName<'_>>) -> FsResult<()> {
        Ok(())
    }

    fn passes_files(&self) -> bool {
        self.0.passthrough
    }

    async fn shows_file(&self, _at: At<'_, ()>) -> FsResult<bool> {
        Ok(true)
    }
}

/// Stacks the null layer on `lower`.
///
/// # Errors
/// When the root of `lower` cannot be read.
pub async fn stack_on(lower: Fs, options: Options) -> FsResult<Fs> {
    Ok(Rc::new(Stacked::new(lower, Wrap(options)).await?))
}
