//! What is mutated, and with which tests: `rooms.toml`, `chosen.toml`, `survivors.toml`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use seekless_tidy::ENGINE;
use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Room {
    /// Files, from the `src` of their crates.
    pub(crate) files: Vec<String>,
    /// Beginnings of the names of the tests that should notice.
    pub(crate) tests: Vec<String>,
    /// Size of the sample.
    pub(crate) sample: usize,
}

/// A mutant that a person chose.
#[derive(Deserialize, Clone)]
pub(crate) struct Chosen {
    pub(crate) file: String,
    /// Text that is in the file once: an expression, or whole statements.
    pub(crate) before: String,
    /// What takes its place; empty for statements that are left out.
    pub(crate) after: String,
    /// The promise that it breaks.
    pub(crate) why: String,
}

#[derive(Deserialize)]
struct ChosenFile {
    mutant: Vec<Chosen>,
}

#[derive(Deserialize)]
struct Survivors {
    #[serde(default)]
    survivor: BTreeMap<String, String>,
}

pub(crate) struct Rooms {
    pub(crate) rooms: BTreeMap<String, Room>,
    pub(crate) chosen: Vec<Chosen>,
    /// Identities of mutants that no test can notice, each with the reason.
    pub(crate) survivors: BTreeMap<String, String>,
}

/// The crate whose library has the switch of the mutants; all others of the engine depend on it.
pub(crate) const CORE: &str = "seekless-core";

/// Where in the project `file` is, which is named from the sources of its crate: no two crates have files of one name.
pub(crate) fn place_of(root: &Path, file: &str) -> Result<PathBuf> {
    let mut places = ENGINE.iter().map(|name| Path::new("crates").join(name).join("src").join(file));
    places.find(|place| root.join(place).is_file()).with_context(|| format!("no crate of the engine has {file}"))
}

impl Rooms {
    pub(crate) fn read(root: &Path) -> Result<Rooms> {
        let read = |name: &str| {
            let path = root.join("mutants").join(name);
            fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
        };
        let survivors: Survivors = toml::from_str(&read("survivors.toml")?).context("survivors.toml")?;
        let chosen: ChosenFile = toml::from_str(&read("chosen.toml")?).context("chosen.toml")?;
        Ok(Rooms {
            rooms: toml::from_str(&read("rooms.toml")?).context("rooms.toml")?,
            chosen: chosen.mutant,
            survivors: survivors.survivor,
        })
    }

    pub(crate) fn room_of(&self, file: &str) -> Option<&str> {
        let holds = |room: &Room| room.files.iter().any(|entry| entry == file);
        self.rooms.iter().find(|(_, room)| holds(room)).map(|(name, _)| name.as_str())
    }
}
