//! Drive files of a stack line: `disk:file=my-drive.toml`.
//!
//! The engine reads no files. The program that parses a line hands in a reader; from then on the stack has what the files said at that
//! moment, so that two disks of a line, and two uses of it, have the same drive even when the file changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::{BuildError, StackError};
use super::spec::Constructor;
use super::{Stack, Value, Word};
use crate::disk::Drive;

/// The drives of a stack's files, by their paths.
pub(super) type Drives = Arc<BTreeMap<String, Drive>>;

/// The option that names a drive file. No other word has one of that name.
pub(super) const DRIVE_FILE: &str = "file";

impl Stack {
    /// The paths of the drive files that the line names, one for each instance if they are numbered.
    pub fn drive_files(&self) -> Vec<String> {
        self.drive_words().flat_map(|word| self.paths(word)).collect()
    }

    /// The same stack with the drives of its files, whose texts `read` returns. A path is read once.
    ///
    /// # Errors
    /// The first file that cannot be read, with the reason of `read`, or that is no drive file; the error points at its
    /// name on the line.
    pub fn read_drive_files(mut self, read: impl Fn(&str) -> Result<String, String>) -> Result<Stack, StackError> {
        let mut drives = BTreeMap::new();
        for word in self.drive_words() {
            for path in self.paths(word) {
                if drives.contains_key(&path) {
                    continue;
                }
                let drive =
                    read(&path).and_then(|text| Drive::from_toml(&text).map_err(|error| format!("{path}: {error}")));
                let drive = drive.map_err(|problem| {
                    let span = word.setting(DRIVE_FILE).map_or(word.span(), |setting| setting.span.clone());
                    StackError::new(&self.line, span, problem)
                })?;
                drives.insert(path, drive);
            }
        }
        if !drives.is_empty() {
            self.keep_drives(Some(drives.into()));
        }
        Ok(self)
    }

    /// Parses `line`, which names no drive files but those of this stack, and takes their drives over.
    ///
    /// # Errors
    /// As [`Stack::parse`].
    pub fn with_line(&self, line: &str) -> Result<Stack, StackError> {
        let mut stack = Stack::parse(line)?;
        stack.keep_drives(self.words.iter().find_map(|word| word.drives.clone()));
        Ok(stack)
    }

    /// The line with other paths of its drive files.
    pub fn with_drive_files(&self, path: impl Fn(&str) -> String) -> String {
        let mut changed = self.clone();
        for setting in changed.words.iter_mut().flat_map(|word| &mut word.settings) {
            if let (DRIVE_FILE, Value::Path(old)) = (setting.param.name, &mut setting.value) {
                *old = path(old);
            }
        }
        changed.to_string()
    }

    fn keep_drives(&mut self, drives: Option<Drives>) {
        self.words.iter_mut().for_each(|word| word.drives.clone_from(&drives));
    }

    fn drive_words(&self) -> impl Iterator<Item = &Word> {
        self.words.iter().filter(|word| matches!(word.given(DRIVE_FILE), Some(Value::Path(_))))
    }

    /// The paths of a word, of each instance that the words above make of it.
    fn paths(&self, word: &Word) -> Vec<String> {
        let spreads = self.words.iter().filter_map(|word| match &word.spec.constructor {
            Constructor::Spread(spread) => Some((spread.members)(word)),
            _ => None,
        });
        let of = |word: &Word| word.text(DRIVE_FILE).unwrap_or_default().to_owned();
        match spreads.reduce(|one, other| one * other) {
            Some(count) => {
                let mut paths: Vec<String> = (0..count as usize).map(|number| of(&word.numbered(number))).collect();
                paths.dedup();
                paths
            }
            None => vec![of(word)],
        }
    }
}

impl Word {
    /// The drive of a file that was read.
    pub(super) fn drive_of(&self, path: &str) -> Result<&Drive, BuildError> {
        let drives = self.drives.as_ref();
        drives.and_then(|drives| drives.get(path)).ok_or_else(|| {
            BuildError::other(format!("the drive file {path} lies in the real world, and was not read from there"))
                .hint("a program reads it with Stack::read_drive_files")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Scheduler;
    use crate::rt::{Executor, HostProfile};
    use crate::stack::{NoLeaves, Purpose};

    fn parse(line: &str) -> Stack {
        Stack::parse(line).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Aim: a disk of a drive file is that drive, whatever happens to the file later, also with a number in its path; what is wrong with the
    /// file or with the line is said. Method: a reader that counts, and files that change after each reading.
    #[test]
    fn drives_come_from_files() {
        let reads = std::cell::RefCell::new(Vec::new());
        let read = |path: &str| {
            reads.borrow_mut().push(path.to_owned());
            let name = path.rsplit('/').next().unwrap_or_default();
            match name {
                "bad.toml" => Ok("name = \"bad\"\nheads = 0".to_owned()),
                "missing.toml" => Err(format!("cannot read the drive file {path}")),
                // As if the file had been edited: another capacity each time.
                _ => {
                    let text = Drive::file_text("hp97560").unwrap();
                    let sectors = 2_684_016 - 1000 * reads.borrow().len();
                    Ok(text.replace("2684016", &sectors.to_string()))
                }
            }
        };
        let sectors = |line: &str| {
            let executor = Executor::simulated(1, HostProfile::NONE);
            let rt = executor.rt();
            let stack = parse(line).read_drive_files(read).unwrap();
            assert_eq!(parse(&stack.to_string()).to_string(), stack.to_string());
            let stack = stack.with_line(&stack.to_string()).unwrap();
            let opened = executor.block_on(stack.open(rt, &NoLeaves, Purpose::Use)).unwrap().unwrap();
            let leaves = opened.instances().last().unwrap().clone();
            leaves.iter().map(|leaf| 2_684_016 - leaf.geometry().sectors).collect::<Vec<_>>()
        };
        assert_eq!(sectors("disk:file=a.toml"), [1000]);
        assert_eq!(sectors(r#"disk:file="my disks/a, b.toml",scheduler=sstf"#), [2000]);
        // Read once for all that share it, and once for each of several.
        assert_eq!(sectors("raid0:n=3 / disk:file=a.toml"), [3000; 3]);
        assert_eq!(sectors("raid0:n=3 / disk:file=a-{}.toml"), [4000, 5000, 6000]);
        let expected = ["a.toml", "my disks/a, b.toml", "a.toml", "a-0.toml", "a-1.toml", "a-2.toml"];
        assert_eq!(*reads.borrow(), expected);
        assert_eq!(parse("raid0:n=2 / disk:file=a-{}.toml").drive_files(), ["a-0.toml", "a-1.toml"]);
        assert_eq!(parse("lfs / disk:file=a.toml,keep=off").with_drive_files(|path| format!("/b c/{path}")), {
            "lfs / disk:file=/b c/a.toml,keep=off"
        });

        let error = |line: &str| {
            let stack = parse(line).read_drive_files(read).and_then(|stack| stack.drive().map(drop));
            stack.unwrap_err().to_string()
        };
        assert_eq!(
            error("disk:file=bad.toml"),
            "bad.toml: line 1: `cylinders`: this key is missing\n  disk:file=bad.toml\n       ^^^^^^^^^^^^^"
        );
        assert!(error("disk:keep=off,file=missing.toml").starts_with("cannot read the drive file missing.toml\n"));
        assert!(
            error("disk:hp97560,file=a.toml")
                .starts_with("`file` of `disk`: a drive of the catalogue needs no drive file")
        );
        assert!(error("disk:file=a.toml,rpm=5400").starts_with("`rpm` of `disk`: a drive file has its own"));
        let unread = parse("disk:file=a.toml").drive().unwrap_err().to_string();
        assert!(unread.starts_with("cannot make") || unread.contains("was not read from there"), "{unread}");
    }

    /// The scheduler is the line's, else the drive's, else C-LOOK.
    #[test]
    fn schedulers_of_disks() {
        let scheduler = |line: &str, own: Option<Scheduler>| {
            let drive = Drive { scheduler: own, ..Drive::named("hp97560").unwrap().clone() };
            super::super::devices::scheduler(&parse(line).words()[0], &drive)
        };
        let aged = |age_micros| Scheduler::Sptf { age_micros };
        assert_eq!(scheduler("disk:hp97560", None), Scheduler::CLook);
        assert_eq!(scheduler("disk:hp97560", Some(Scheduler::Sstf)), Scheduler::Sstf);
        assert_eq!(scheduler("disk:hp97560,scheduler=clook", Some(Scheduler::Sstf)), Scheduler::CLook);
        assert_eq!(scheduler("disk:hp97560,scheduler=sptf", Some(aged(5))), aged(0));
        assert_eq!(scheduler("disk:hp97560,age=7", Some(aged(5))), aged(7));
        assert_eq!(scheduler("disk:hp97560", Some(aged(5))), aged(5));
    }
}
