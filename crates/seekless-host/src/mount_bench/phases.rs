//! What is measured, in one table. A phase is a row here and an arm in [`client`](super::client).

use seekless_lab::experiment::MountJob;

use super::process::is_installed;

/// Something that a client does on a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phase {
    pub name: &'static str,
    /// Phases of a suite run on one file system, in the order of the table.
    pub suite: &'static str,
    /// What is counted.
    pub unit: &'static str,
    pub help: &'static str,
    /// Begins with a new mount of the same file system, and with the kernel's caches empty.
    pub is_cold: bool,
    /// Begins with the kernel's caches empty, on the same mount: the daemon still has in memory what it had.
    pub kernel_forgets: bool,
    pub writes: bool,
    /// Makes files that later phases of its suite need, and so runs for those too.
    pub makes_files: bool,
    /// Needs what it has written, or renames it: not on a file system that stores nothing.
    pub reads_back: bool,
    /// Program of the machine that it runs.
    pub program: Option<&'static str>,
    /// Only when it is named.
    pub is_long: bool,
}

impl Phase {
    /// Why it is not possible on this machine.
    pub fn missing(&self) -> Option<String> {
        let program = self.program.filter(|program| !is_installed(program))?;
        Some(format!("there is no program {program}"))
    }
}

const READS: Phase = Phase {
    name: "",
    suite: "",
    unit: "file",
    help: "",
    is_cold: true,
    kernel_forgets: false,
    writes: false,
    makes_files: false,
    reads_back: false,
    program: None,
    is_long: false,
};
const WRITES: Phase = Phase { is_cold: false, writes: true, ..READS };
const FILES: Phase = Phase { suite: "files", ..WRITES };
const CLIENTS: Phase = Phase { suite: "clients", ..WRITES };
const DATA: Phase = Phase { suite: "data", unit: "MiB", ..WRITES };
const SYNCS: Phase = Phase { suite: "durable", unit: "operation", ..WRITES };
const DATABASE: Phase = Phase { suite: "database", unit: "transaction", reads_back: true, ..WRITES };
const PROGRAMS: Phase = Phase { suite: "programs", reads_back: true, ..WRITES };

/// Every phase. Those of a suite are beside each other.
#[rustfmt::skip]
pub const PHASES: &[Phase] = &[
    Phase { name: "create", help: "create a file, write 1 KB, close it; 100 files in a directory", makes_files: true, ..FILES },
    Phase { name: "stat", help: "stat of each file by its path, cold, in random order", ..cold(FILES) },
    Phase { name: "tree", help: "readdir of a tree and stat of each file, cold", ..cold(FILES) },
    Phase { name: "stat-known", help: "as `stat`, cold for the kernel alone: the daemon had the files in memory before", ..forgotten(FILES) },
    Phase { name: "tree-known", help: "as `tree`, cold for the kernel alone", ..forgotten(FILES) },
    Phase { name: "read", help: "open and read a file of 1 KB, cold, in random order", reads_back: true, ..cold(FILES) },
    Phase { name: "delete", help: "delete each file", ..FILES },
    Phase { name: "names", unit: "name", help: "create 10,000 empty files in one directory", ..FILES },
    Phase { name: "names-1m", unit: "name", help: "create 1,000,000 empty files in one directory", is_long: true, ..FILES },
    Phase { name: "clients-4", help: "as `create`, four clients at once, each a quarter of the files, in a directory of its own", ..CLIENTS },
    Phase { name: "clients-4-fsync", help: "as `create-fsync`, four clients at once", ..CLIENTS },
    Phase { name: "write-8k", help: "write a file in pieces of 8 KiB, until it is durable", ..DATA },
    Phase { name: "write-1m", help: "write a file in pieces of 1 MiB, until it is durable", makes_files: true, ..DATA },
    Phase { name: "read-1m", help: "read a file in pieces of 1 MiB, cold", reads_back: true, ..cold(DATA) },
    Phase { name: "random-read", unit: "read", help: "read 4 KiB at random places of a file, cold", reads_back: true, ..cold(DATA) },
    Phase { name: "append-10", unit: "append", help: "append 10 bytes to a file", ..SYNCS },
    Phase { name: "create-fsync", help: "create a file, write 1 KB, fsync, close it", ..SYNCS },
    Phase { name: "append-fdatasync", help: "append 4 KiB to a file, fdatasync", ..SYNCS },
    Phase { name: "overwrite-fdatasync", help: "overwrite 4 KiB of a file at a random place, fdatasync", ..SYNCS },
    Phase { name: "replace-fsync", help: "write 8 KiB to a new file, fsync, rename it over one of 20; after use: a large file was written and removed four times", reads_back: true, ..SYNCS },
    Phase { name: "sqlite-wal", help: "insert a row of 100 bytes in SQLite, journal_mode=wal, synchronous=full", program: Some("sqlite3"), ..DATABASE },
    Phase { name: "sqlite-rollback", help: "the same with a rollback journal", program: Some("sqlite3"), ..DATABASE },
    Phase { name: "postmark", unit: "transaction", help: "PostMark: small files that live a short time, and their creation and deletion", ..PROGRAMS },
    Phase { name: "untar", help: "unpack an archive of small files with tar", program: Some("tar"), makes_files: true, ..PROGRAMS },
    Phase { name: "read-tree", help: "read each file of the tree that `untar` made, cold", program: Some("tar"), ..cold(PROGRAMS) },
    Phase { name: "build", help: "compile small C files with cc", program: Some("cc"), ..PROGRAMS },
    Phase { name: "git-checkout", help: "check out another commit with git", program: Some("git"), ..PROGRAMS },
    Phase { name: "rm-rf", help: "delete the tree that `untar` made with rm -rf", program: Some("tar"), ..PROGRAMS },
];

const fn cold(phase: Phase) -> Phase {
    Phase { is_cold: true, writes: false, ..phase }
}

const fn forgotten(phase: Phase) -> Phase {
    Phase { kernel_forgets: true, writes: false, ..phase }
}

/// The phase with this name.
pub fn find(name: &str) -> Option<&'static Phase> {
    PHASES.iter().find(|phase| phase.name == name)
}

/// Names of the suites, in the order of the table.
pub fn suites() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = PHASES.iter().map(|phase| phase.suite).collect();
    names.dedup();
    names
}

/// The phases to run for `job`: those that it wants, and before them those that make files for them.
pub(super) fn to_run(job: &MountJob) -> Vec<(&'static Phase, bool)> {
    let of_suite: Vec<&Phase> = PHASES.iter().filter(|phase| phase.suite == job.suite).collect();
    let is_wanted = |phase: &Phase| job.phases.iter().any(|name| name == phase.name);
    let last = of_suite.iter().rposition(|phase| is_wanted(phase));
    let needed = of_suite.into_iter().take(last.map_or(0, |last| last + 1));
    needed.map(|phase| (phase, is_wanted(phase))).filter(|(phase, wanted)| *wanted || phase.makes_files).collect()
}

#[cfg(test)]
mod tests {
    use seekless_lab::experiment::{ImageState, Placement};

    use super::*;

    fn job(suite: &str, phases: &[&str]) -> MountJob {
        MountJob {
            mount: "ext4".into(),
            suite: suite.into(),
            phases: phases.iter().map(|name| (*name).to_owned()).collect(),
            placement: Placement::Pinned,
            files: 1,
            large: 1,
            syncs: 1,
            image: 1,
            image_state: ImageState::Sparse,
            loop_direct: false,
            own_device: false,
            tree: String::new(),
            tree_state: String::new(),
            below: String::new(),
        }
    }

    /// Names are unique, and the phases of a suite are beside each other, as `suites` relies on.
    #[test]
    fn the_table_is_sound() {
        for (index, phase) in PHASES.iter().enumerate() {
            assert!(PHASES[..index].iter().all(|other| other.name != phase.name), "{}", phase.name);
        }
        let mut names = suites();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), suites().len());
    }

    /// A phase is preceded by those that make its files, and by no others.
    #[test]
    fn what_is_needed_runs_first() {
        let names = |suite, phases: &[&str]| -> Vec<(&str, bool)> {
            to_run(&job(suite, phases)).iter().map(|(phase, wanted)| (phase.name, *wanted)).collect()
        };
        assert_eq!(names("files", &["delete"]), [("create", false), ("delete", true)]);
        assert_eq!(names("files", &["create", "read"]), [("create", true), ("read", true)]);
        assert_eq!(names("data", &["random-read"]), [("write-1m", false), ("random-read", true)]);
        assert_eq!(names("durable", &["append-10"]), [("append-10", true)]);
        assert_eq!(names("durable", &["create"]), []);
    }
}
