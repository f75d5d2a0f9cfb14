//! DiskSim's parameter files on arbitrary bytes: panics when an invariant is violated.

use super::Imported;
use crate::disk::{Drive, Mechanism};

/// The target of the fuzzer: the input, up to a line `---`, is the file; what follows is every file that it includes.
pub fn any(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let (file, included) = text.split_once("\n---\n").unwrap_or((&text, ""));
    let read = |name: &str| match name {
        "file" => Ok(file.to_owned()),
        _ => Ok(included.to_owned()),
    };
    match Imported::read("file", None, &read) {
        Ok(imported) => {
            let written = imported.to_toml();
            let drive = Drive::from_toml(&written).unwrap_or_else(|error| panic!("{error}: {written}"));
            assert_eq!(drive, imported.drive, "{written}");
            if drive.cylinders < 20_000 {
                Mechanism::new(&drive).unwrap_or_else(|error| panic!("{error}: {written}"));
            }
        }
        Err(error) => assert!(error.line >= 1 && error.to_string().chars().count() < 5000, "{error}"),
    }
}
