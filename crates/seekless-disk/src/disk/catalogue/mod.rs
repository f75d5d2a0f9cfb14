//! The drives that can be named on a stack line: drive files beside this one, each with the source of its figures.
//!
//! Most parameters were measured on real drives by others: the validation files of DiskSim 4.0 [bu08] hold what DIXtrac
//! and its forerunners extracted (zones, skews, slipped sectors, seek curves, command overheads, cache behaviour), and
//! the service times measured on the same drives. File names in their comments are those of DiskSim's `valid` directory. Bus times
//! are the larger of the drive's and of the host adapter's of that test bed, so the older ones include a slow host.

use std::sync::OnceLock;

use super::drive::Drive;

/// A drive file of the catalogue.
struct Entry {
    name: &'static str,
    text: &'static str,
    /// The drive, once one has asked for it.
    drive: OnceLock<Drive>,
}

macro_rules! drive {
    ($name:literal) => {
        Entry { name: $name, text: include_str!(concat!($name, ".toml")), drive: OnceLock::new() }
    };
}

/// Every drive, by name. A new one is a file and a row.
static DRIVES: [Entry; 19] = [
    drive!("atlas10k"),
    drive!("atlas3"),
    drive!("barracuda"),
    drive!("cheetah4lp"),
    drive!("cheetah9lp"),
    drive!("dec-rz26"),
    drive!("fireball-lct10"),
    drive!("hp-c2247a"),
    drive!("hp-c2490a"),
    drive!("hp-c3323a"),
    drive!("hp97560"),
    drive!("hp97560-wa99"),
    drive!("m2694exa"),
    drive!("nearline-4tb"),
    drive!("st19101-wa99"),
    drive!("st19101-whole"),
    drive!("st41601n"),
    drive!("ultrastar18es"),
    drive!("wren4"),
];

impl Entry {
    fn drive(&'static self) -> &'static Drive {
        self.drive.get_or_init(|| match Drive::of_catalogue(self.text) {
            Ok(drive) => drive,
            // A test reads every file.
            Err(error) => unreachable!("{}.toml: {error}", self.name),
        })
    }
}

impl Drive {
    /// The drive with that name in the catalogue.
    pub fn named(name: &str) -> Option<&'static Drive> {
        DRIVES.iter().find(|entry| entry.name == name).map(Entry::drive)
    }

    /// Every drive of the catalogue, by name.
    pub fn all() -> impl Iterator<Item = &'static Drive> {
        DRIVES.iter().map(Entry::drive)
    }

    /// The names of the catalogue, for lists and for suggestions in error messages.
    pub fn names() -> impl Iterator<Item = &'static str> {
        DRIVES.iter().map(|entry| entry.name)
    }

    /// The text of a drive's file in the catalogue, with its comments.
    pub fn file_text(name: &str) -> Option<&'static str> {
        DRIVES.iter().find(|entry| entry.name == name).map(|entry| entry.text)
    }
}
