//! The copy of the project with the mutants in it, and its tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use seekless_tidy::ENGINE;
use serde_json::Value;

use crate::find::{Mutant, hash_bytes};
use crate::rooms::{CORE, Rooms, place_of};
use crate::weave::{HOOK, HOOK_ELSEWHERE, weave};

/// Where the copy is, and what is built from it.
pub(crate) struct Place {
    pub(crate) tree: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) work: PathBuf,
    pub(crate) progress: PathBuf,
}

impl Place {
    pub(crate) fn new(root: &Path) -> Place {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let base = target.join("mutants");
        Place {
            tree: base.join("tree"),
            target: base.join("build"),
            work: base.join("work"),
            progress: base.join("progress.jsonl"),
        }
    }

    fn cargo(&self, words: &[&str]) -> Result<(bool, Vec<Value>)> {
        let output = Command::new("cargo")
            .args(words)
            .args(ENGINE.iter().flat_map(|name| ["-p", name]))
            .args(["--lib", "--message-format=json"])
            .current_dir(&self.tree)
            .env("CARGO_TARGET_DIR", &self.target)
            // The copy is for running alone: its style does not matter.
            .env("RUSTFLAGS", "--cap-lints warn -Awarnings")
            .stderr(Stdio::inherit())
            .output()
            .context("starting cargo")?;
        let lines = String::from_utf8_lossy(&output.stdout);
        let messages = lines.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        Ok((output.status.success(), messages))
    }
}

/// The program with the unit tests of a crate, and the folder of that crate, where they run.
#[derive(Clone)]
pub(crate) struct Tests {
    pub(crate) program: PathBuf,
    pub(crate) folder: PathBuf,
}

/// Mutants that compile, by their number, and the programs with their tests.
pub(crate) struct Built {
    pub(crate) mutants: BTreeMap<u32, Mutant>,
    /// Those that the compiler rejects.
    pub(crate) rejected: usize,
    pub(crate) tests: Vec<Tests>,
    /// Changes whenever the sources do, or which tests are of which room.
    pub(crate) sources: String,
}

/// Writes what differs, so that cargo builds again only what has changed.
fn write_changed(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))
}

/// Copies the project's files, but those that are woven. Returns a hash of all that the engine and its tests are made
/// of.
fn copy_project(place: &Place, root: &Path, woven: &BTreeSet<PathBuf>) -> Result<u64> {
    let listed = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("starting git")?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let mut hashes = Vec::new();
    for name in String::from_utf8(listed.stdout)?.split('\0').filter(|name| !name.is_empty()) {
        let source = root.join(name);
        if !source.is_file() {
            continue;
        }
        let bytes = fs::read(&source)?;
        if name.starts_with("crates/") || name.starts_with("Cargo.") {
            hashes.push(hash_bytes(name.as_bytes()) ^ hash_bytes(&bytes).rotate_left(1));
        }
        if !woven.contains(Path::new(name)) {
            write_changed(&place.tree.join(name), &bytes)?;
        }
    }
    hashes.sort_unstable();
    Ok(hash_bytes(&hashes.iter().flat_map(|hash| hash.to_le_bytes()).collect::<Vec<u8>>()))
}

/// Where in the woven files something exists for one mutant.
struct Map {
    /// The changed text of each.
    places: BTreeMap<PathBuf, Vec<(u32, Range<usize>)>>,
}

impl Map {
    /// The mutant that a message of the compiler is about: the one whose changed text it points into, else the first of
    /// those inside of what it points to, else the one that begins nearest before it.
    fn blame(&self, message: &Value) -> Option<u32> {
        let mut spans: Vec<&Value> = message["spans"].as_array()?.iter().collect();
        for child in message["children"].as_array().into_iter().flatten() {
            spans.extend(child["spans"].as_array().into_iter().flatten());
        }
        let at = |span: &Value| {
            let places = self.places.get(Path::new(span["file_name"].as_str()?))?;
            Some((places, span["byte_start"].as_u64()? as usize, span["byte_end"].as_u64()? as usize))
        };
        let spans: Vec<_> = spans.into_iter().filter_map(at).collect();
        let number = |&(number, _): &(u32, Range<usize>)| number;
        let around = spans
            .iter()
            .find_map(|(places, start, _)| places.iter().find(|(_, range)| range.contains(start)).map(number));
        let inside = || {
            spans.iter().find_map(|(places, start, end)| {
                places.iter().find(|(_, range)| *start <= range.start && range.end <= *end).map(number)
            })
        };
        let before = || {
            spans.iter().find_map(|(places, start, _)| {
                places
                    .iter()
                    .filter(|(_, range)| range.start <= *start)
                    .max_by_key(|(_, range)| range.start)
                    .map(number)
            })
        };
        around.or_else(inside).or_else(before)
    }
}

fn write_woven(place: &Place, root: &Path, mutants: &BTreeMap<u32, Mutant>) -> Result<Map> {
    let mut by_file: BTreeMap<&str, Vec<(u32, &Mutant)>> = BTreeMap::new();
    for (&number, mutant) in mutants {
        by_file.entry(&mutant.file).or_default().push((number, mutant));
    }
    let mut map = Map { places: BTreeMap::new() };
    for (file, inside) in by_file {
        let name = place_of(root, file)?;
        let woven = weave(&fs::read_to_string(root.join(&name))?, &inside);
        write_changed(&place.tree.join(&name), woven.text.as_bytes())?;
        map.places.insert(name, woven.places);
    }
    for name in ENGINE {
        let library = Path::new("crates").join(name).join("src/lib.rs");
        let hook = if *name == CORE { HOOK } else { HOOK_ELSEWHERE };
        let text = fs::read_to_string(root.join(&library))? + hook;
        write_changed(&place.tree.join(&library), text.as_bytes())?;
    }
    Ok(map)
}

pub(crate) fn build(place: &Place, root: &Path, rooms: &Rooms, mutants: Vec<Mutant>) -> Result<Built> {
    let tried = mutants.len();
    let mut mutants: BTreeMap<u32, Mutant> = (0..).zip(mutants).collect();
    ensure!(tried < 8192, "the copy has room for 8192 mutants, and these are {tried}");
    let sources: Result<BTreeSet<PathBuf>> = mutants.values().map(|mutant| place_of(root, &mutant.file)).collect();
    let sources = sources?;
    let libraries = ENGINE.iter().map(|name| Path::new("crates").join(name).join("src/lib.rs"));
    let copied = copy_project(place, root, &sources.iter().cloned().chain(libraries).collect())?;
    let prefixes = rooms.rooms.values().flat_map(|room| &room.tests).cloned().collect::<Vec<String>>().join(" ");
    let all_sources = format!("{:016x}", hash_bytes(format!("{copied:x} {prefixes}").as_bytes()));
    // What has lost its last mutant is written all the same: as it is.
    for round in 1.. {
        for name in &sources {
            if !mutants.values().any(|mutant| name.ends_with(&mutant.file)) {
                write_changed(&place.tree.join(name), &fs::read(root.join(name))?)?;
            }
        }
        let map = write_woven(place, root, &mutants)?;
        eprintln!("mutants: {} woven in, round {round}", mutants.len());
        let (success, messages) = place.cargo(&["check", "--locked"])?;
        if success {
            break;
        }
        let errors = messages.iter().map(|line| &line["message"]).filter(|message| message["level"] == "error");
        let blamed: BTreeSet<u32> = errors.clone().filter_map(|message| map.blame(message)).collect();
        if blamed.is_empty() {
            let texts: Vec<&str> = errors.filter_map(|message| message["rendered"].as_str()).take(3).collect();
            bail!("the copy does not compile, and no mutant is the cause:\n{}", texts.join("\n"));
        }
        let chosen = blamed.iter().filter_map(|number| mutants.get(number)).find(|mutant| mutant.why.is_some());
        if let Some(mutant) = chosen {
            bail!("chosen.toml: the compiler rejects {mutant}");
        }
        mutants.retain(|number, _| !blamed.contains(number));
    }
    let (success, messages) = place.cargo(&["test", "--locked", "--no-run"])?;
    ensure!(success, "the tests of the copy do not compile");
    let tests = |line: &Value| {
        let folder = Path::new(line["manifest_path"].as_str()?).parent()?;
        Some(Tests { program: line["executable"].as_str()?.into(), folder: folder.to_owned() })
    };
    let tests: Vec<Tests> = messages.iter().filter_map(tests).collect();
    ensure!(tests.len() == ENGINE.len(), "cargo names {} programs with tests", tests.len());
    Ok(Built { rejected: tried - mutants.len(), mutants, tests, sources: all_sources })
}
