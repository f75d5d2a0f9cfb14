//! What is known already: a run that is interrupted goes on where it was.
//!
//! Each result is a line of `target/mutants/progress.jsonl`, appended when it is there. The first line says of which
//! sources and tests all of it is; when these change, everything is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::trial::Fate;

/// What a test reaches, and how much processor time it takes.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Surveyed {
    pub(crate) time: Duration,
    /// Mutants by their identity.
    pub(crate) reaches: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
enum Line {
    /// Everything below is of these sources.
    Sources(String),
    Test {
        /// The set of mutants that the copy had.
        mutants: String,
        /// Folder of its crate, and its name.
        test: (String, String),
        surveyed: Surveyed,
    },
    Mutant {
        id: String,
        fate: Fate,
        time: Duration,
    },
}

pub(crate) struct Progress {
    file: Mutex<File>,
    path: PathBuf,
    tests: BTreeMap<(String, String), Surveyed>,
    fates: BTreeMap<String, (Fate, Duration)>,
}

impl Progress {
    /// Reads what is known of `sources`, with the tests' knowledge of `mutants`. Of other sources, and after `forget`,
    /// nothing is.
    pub(crate) fn of(path: PathBuf, sources: &str, mutants: &str, forget: bool) -> Result<Progress> {
        let text = fs::read_to_string(&path).unwrap_or_default();
        // The last line may be half written.
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
        let is_known = !forget && matches!(lines.next(), Some(Line::Sources(known)) if known == sources);
        let (mut tests, mut fates) = (BTreeMap::new(), BTreeMap::new());
        for line in lines.take_while(|_| is_known) {
            match line {
                Line::Test { mutants: known, test, surveyed } if known == mutants => {
                    tests.insert(test, surveyed);
                }
                Line::Mutant { id, fate, time } => {
                    fates.insert(id, (fate, time));
                }
                _ => {}
            }
        }
        let mut options = OpenOptions::new();
        let file = match is_known {
            true => options.append(true).open(&path),
            false => options.write(true).create(true).truncate(true).open(&path),
        };
        let file = Mutex::new(file.with_context(|| format!("opening {}", path.display()))?);
        let progress = Progress { file, path, tests, fates };
        // After half a line comes a new one.
        progress.add(if is_known { "\n".to_owned() } else { line(&Line::Sources(sources.to_owned()))? })?;
        Ok(progress)
    }

    pub(crate) fn test(&self, folder: &str, name: &str) -> Option<Surveyed> {
        self.tests.get(&(folder.to_owned(), name.to_owned())).cloned()
    }

    pub(crate) fn fate(&self, id: &str) -> Option<(Fate, Duration)> {
        self.fates.get(id).cloned()
    }

    pub(crate) fn learned_test(&self, mutants: &str, folder: &str, name: &str, surveyed: &Surveyed) -> Result<()> {
        let (mutants, test) = (mutants.to_owned(), (folder.to_owned(), name.to_owned()));
        self.add(line(&Line::Test { mutants, test, surveyed: surveyed.clone() })?)
    }

    pub(crate) fn learned_fate(&self, id: &str, fate: &Fate, time: Duration) -> Result<()> {
        self.add(line(&Line::Mutant { id: id.to_owned(), fate: fate.clone(), time })?)
    }

    fn add(&self, text: String) -> Result<()> {
        let mut file = self.file.lock().expect("no thread panics with it");
        file.write_all(text.as_bytes()).with_context(|| format!("writing {}", self.path.display()))
    }
}

fn line(line: &Line) -> Result<String> {
    Ok(serde_json::to_string(line)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: what was learned is known again, for the same sources alone. Method: a file that was cut within its last line.
    #[test]
    fn it_is_known_again() {
        let path = std::env::temp_dir().join(format!("seekless-mutants-{}", std::process::id()));
        let surveyed = Surveyed { time: Duration::from_millis(7), reaches: BTreeSet::from(["a".to_owned()]) };
        let progress = Progress::of(path.clone(), "sources", "set", true).unwrap();
        progress.learned_test("set", "crate", "first", &surveyed).unwrap();
        progress.learned_fate("a", &Fate::Killed("first".into()), Duration::from_secs(1)).unwrap();
        progress.learned_fate("b", &Fate::Survived(3), Duration::from_secs(2)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, &text[..text.len() - 9]).unwrap();

        let progress = Progress::of(path.clone(), "sources", "set", false).unwrap();
        assert_eq!(progress.test("crate", "first").unwrap().reaches, surveyed.reaches);
        assert_eq!(progress.fate("a").unwrap().0, Fate::Killed("first".into()));
        assert!(progress.fate("b").is_none());
        progress.learned_fate("b", &Fate::Unreached, Duration::ZERO).unwrap();
        let again = |sources, set| Progress::of(path.clone(), sources, set, false).unwrap();
        assert_eq!(again("sources", "set").fate("b").unwrap().0, Fate::Unreached);
        assert!(again("sources", "other").test("crate", "first").is_none());
        assert!(again("other", "set").fate("a").is_none());
        fs::remove_file(path).unwrap();
    }
}
