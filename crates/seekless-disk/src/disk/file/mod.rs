//! Drive files: a [`Drive`] as TOML, which people write, edit and pass on. The drives of the catalogue are such files.
//!
//! `docs/reference/drive-files.md` describes every key, with units and limits. The text is input: whatever it holds, reading ends in a
//! drive that a mechanism accepts, or in an error with line and key. The work is bounded by [`BYTES_MAX`] and by the
//! limits of the keys.

pub mod fuzz;
mod read;
mod section;
mod write;

pub(super) use read::SECTOR_MAX_MS;

use std::fmt;

use super::drive::{Drive, Evidence};

/// The longest text that is read. The longest of the catalogue, with all its slipped sectors, has a fortieth.
pub const BYTES_MAX: usize = 1 << 20;

/// What is wrong with a drive file, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DriveFileError {
    /// From 1 on.
    pub line: usize,
    /// The key with its section, such as `cache.segments`; empty where none is to blame.
    pub key: String,
    /// In words, with what is allowed.
    pub problem: String,
}

impl Drive {
    /// Reads the text of a drive file. It is believed in everything but that the drive was validated: that is so of parameters that
    /// were, and an edited copy says it as well.
    ///
    /// # Errors
    /// The first mistake.
    pub fn from_toml(text: &str) -> Result<Drive, DriveFileError> {
        let mut drive = read::drive(text)?;
        let was_validated = |known: &Drive| known.evidence == Evidence::Validated && drive.has_parameters_of(known);
        if drive.evidence == Evidence::Validated && !Drive::all().any(was_validated) {
            drive.evidence = Evidence::SaidToBeValidated;
        }
        Ok(drive)
    }

    /// Reads a file of the catalogue, which is believed.
    pub(super) fn of_catalogue(text: &str) -> Result<Drive, DriveFileError> {
        read::drive(text)
    }

    /// The text of a drive file for this drive: what [`Drive::from_toml`] makes of it is equal.
    pub fn to_toml(&self) -> String {
        write::drive(self)
    }
}

impl fmt::Display for DriveFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.key {
            "" => write!(f, "line {}: {}", self.line, self.problem),
            key => write!(f, "line {}: `{key}`: {}", self.line, self.problem),
        }
    }
}

impl std::error::Error for DriveFileError {}
