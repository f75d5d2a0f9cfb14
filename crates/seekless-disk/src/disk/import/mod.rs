//! Drives from the parameter files of DiskSim 4.0 (`bu08`).
//!
//! What the parameters mean is in DiskSim's manual. Where DiskSim itself does not act on a parameter, the drive is as DiskSim
//! simulates it. Everything that is left out or approximated is said, with the reason.

mod bus;
mod convert;
mod curve;
mod files;
pub mod fuzz;
mod index;
mod known;
mod map;
mod scheduler;
mod syntax;
mod tokens;
mod tracks;
mod values;

use std::fmt;

use super::drive::Drive;
pub use files::ReadError;

const CYLINDERS_MAX: u32 = 1 << 24;
/// 2 GiB.
const SEGMENT_SECTORS_MAX: u32 = 1 << 22;

/// A drive, and what is to be known of it.
#[derive(Clone, PartialEq, Debug)]
pub struct Imported {
    pub drive: Drive,
    /// What was left out or is approximate, and why; a sentence each.
    pub notes: Vec<String>,
    /// The files from which it comes.
    pub files: Vec<String>,
}

/// What is wrong with a parameter file, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ImportError {
    pub file: String,
    /// From 1 on.
    pub line: usize,
    pub problem: String,
}

impl Imported {
    /// Reads the drive of `file`: a `.diskspecs`, a `.parv` with a whole system, or a `.model` with the mechanics alone. `read` returns the text of
    /// a file by its name, that of included ones too. With several drives, `wanted` is the name of one.
    ///
    /// # Errors
    /// The first mistake, or the names of the drives when there are several.
    pub fn read(
        file: &str,
        wanted: Option<&str>,
        read: &dyn Fn(&str) -> Result<String, ReadError>,
    ) -> Result<Imported, ImportError> {
        // Some programs put a mark in front of a text, which is no part of it.
        let read = &|name: &str| read(name).map(|text| text.trim_start_matches('\u{feff}').to_owned());
        let imported = convert::imported(&syntax::read(file, read)?, file, wanted, read)?;
        // A drive file has limits of its own, its length among them.
        match Drive::from_toml(&imported.to_toml()) {
            Ok(_) => Ok(imported),
            Err(error) => {
                let problem = format!("no command could read the drive file that this makes: {}", error.problem);
                Err(ImportError { file: file.to_owned(), line: 1, problem })
            }
        }
    }

    /// The text of a drive file, with its notes as comments.
    pub fn to_toml(&self) -> String {
        let mut text = format!("# Imported from parameters of DiskSim: {}.\n", self.files.join(", "));
        for note in &self.notes {
            let mut line = "#  ".to_owned();
            for word in format!("* {note}").split_whitespace() {
                if line.len() + word.len() > 110 {
                    text += &line;
                    text += "\n";
                    line = "#    ".to_owned();
                }
                line += if line.ends_with(' ') { "" } else { " " };
                line += word;
            }
            text += &line;
            text += "\n";
        }
        let text: String = text.chars().map(|c| if c.is_control() && c != '\n' { '?' } else { c }).collect();
        text + "\n" + &self.drive.to_toml()
    }
}

impl fmt::Display for ImportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: line {}: {}", self.file, self.line, self.problem)
    }
}

impl std::error::Error for ImportError {}
