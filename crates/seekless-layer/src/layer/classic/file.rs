//! One file in memory.

use std::cell::RefCell;

use super::format::Index;
use crate::fs::{Attr, EntryName, FsError, FsResult};
use crate::rt::Gate;
use crate::units::Ino;

/// What the layer knows about an inode in use.
pub struct Node {
    pub(super) ino: Ino,
    /// `None` for anything but a regular file.
    pub(super) file: Option<RefCell<File>>,
    /// Held by every operation that uses the data or the index: units move when one before them changes [za01 §5].
    pub(super) gate: Gate,
}

/// What a lower file was found to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Form {
    /// Units, with `File::index`.
    Units,
    /// Units that were being changed when something failed: they have to be read again.
    Unknown,
    /// Not written by this layer, and shown as it is.
    Plain,
    /// Units that cannot be decoded, or a foreign file that is refused.
    Broken(FsError),
}

/// See the head of the file.
#[derive(Debug)]
pub(super) struct File {
    pub(super) form: Form,
    pub(super) index: Index,
    /// The index was built from the units themselves, not read from the index file.
    pub(super) is_verified: bool,
    /// The file certainly belongs to this layer: it has an index beside it, or a unit that decodes. Without that it is
    /// shown as its content suggests, and not changed.
    pub(super) is_certain: bool,
    /// The first word in which the index file differs from this index.
    pub(super) index_changed_from: Option<usize>,
    /// `F.idx`, with one lookup counted.
    pub(super) index_ino: Option<Ino>,
    /// The name at which the file was found.
    pub(super) place: Option<(Ino, Vec<u8>)>,
    /// The page that was used last, decoded.
    pub(super) last_page: Option<(usize, Vec<u8>)>,
}

impl Node {
    pub(super) fn new(ino: Ino, file: Option<File>) -> Node {
        Node { ino, file: file.map(RefCell::new), gate: Gate::new() }
    }

    /// The file, for operations on data.
    ///
    /// # Errors
    /// `Invalid` when it is not a regular file.
    pub(super) fn regular(&self) -> FsResult<&RefCell<File>> {
        self.file.as_ref().ok_or(FsError::Invalid("not a regular file"))
    }

    /// See [`File::is_certain`].
    pub(super) fn is_certain(&self) -> bool {
        self.file.as_ref().is_none_or(|file| file.borrow().is_certain)
    }

    pub(super) fn form(&self) -> Option<Form> {
        self.file.as_ref().map(|file| file.borrow().form.clone())
    }
}

impl File {
    /// A file without bytes.
    pub(super) fn empty(place: Option<EntryName<'_>>) -> File {
        File {
            form: Form::Units,
            index: Index::default(),
            is_verified: true,
            is_certain: true,
            index_changed_from: None,
            index_ino: None,
            place: place.map(|place| (place.parent, place.name.to_vec())),
            last_page: None,
        }
    }

    /// The index has changed from unit `from` on.
    pub(super) fn index_changed(&mut self, from: usize) {
        // Its first two words change with every change.
        let word = from + 2;
        self.index_changed_from = Some(self.index_changed_from.map_or(word, |before| before.min(word)));
    }

    /// Attributes as shown above, from those below.
    pub(super) fn show(&self, lower: Attr) -> Attr {
        match self.form {
            Form::Plain | Form::Broken(_) => lower,
            Form::Units | Form::Unknown => Attr { size: self.index.size, ..lower },
        }
    }
}
