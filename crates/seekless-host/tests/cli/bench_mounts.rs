//! `seekless bench mount`: its rows, and that nothing is left however it ends.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use seekless_host::testing::{Need, skip};

use super::{Scratch, can_mount};

/// True where contestants on a loop device are possible. Otherwise reports why nothing is tested.
fn can_measure() -> bool {
    let has_loop = Command::new("losetup").arg("--find").output().is_ok_and(|ended| ended.status.success());
    if !has_loop {
        skip(Need::Loop, "there is no free loop device");
    }
    can_mount() && has_loop
}

/// The command line of a small run that waits for those of other tests.
const QUICK: &[&str] = &["bench", "mount", "--quick", "--wait", "--scratch", ".", "--out", "found"];

impl Scratch {
    fn measure(&self, more: &[&str]) -> super::Ended {
        self.run(&[QUICK, more].concat())
    }

    /// Loop devices over files of this test.
    fn loop_devices(&self) -> Vec<String> {
        let ended = Command::new("losetup").args(["--noheadings", "--output", "BACK-FILE"]).output().unwrap();
        let text = String::from_utf8(ended.stdout).unwrap();
        let here = self.path("").canonicalize().unwrap();
        text.lines().filter(|file| Path::new(file.trim()).starts_with(&here)).map(str::to_owned).collect()
    }

    /// Processes of this program whose files are in this directory.
    fn processes(&self) -> Vec<String> {
        let here = self.path("").canonicalize().unwrap().display().to_string();
        let entries = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = entries.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
        lines.filter(|line| line.contains("seekless-bench-mount-") && line.contains(&here)).collect()
    }

    fn bench_directories(&self) -> usize {
        let entries = std::fs::read_dir(self.path("")).unwrap().flatten();
        entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("seekless-bench-mount-")).count()
    }

    /// Neither mounts nor devices nor processes nor files.
    fn check_nothing_is_left(&self) {
        // Something that looks at new devices may hold them for a moment.
        wait_until("its loop devices end", || self.loop_devices().is_empty());
        assert_eq!((self.loop_devices(), self.processes(), self.bench_directories()), (vec![], vec![], 0));
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!table.contains(self.path("").to_str().unwrap()), "{table}");
    }

    /// The contestants, placements and phases of the rows.
    fn rows(&self) -> BTreeSet<String> {
        let text = std::fs::read_to_string(self.path("found/rows.jsonl")).unwrap();
        let row = |line: &str| {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            assert!(row["metrics"]["op_us"].as_f64().unwrap() > 0.0, "{line}");
            let dim = |name: &str| row["dims"][name].as_str().unwrap().to_owned();
            format!("{} {} {}", dim("contestant"), dim("placement"), dim("phase"))
        };
        let rows: Vec<String> = text.lines().map(row).collect();
        let all: BTreeSet<String> = rows.iter().cloned().collect();
        assert_eq!(all.len(), rows.len(), "no row occurs twice");
        all
    }
}

fn expected(contestants: &[&str], placements: &[&str], phases: &[&str]) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for contestant in contestants {
        for placement in placements {
            for phase in phases {
                // What stores nothing does not read.
                if *contestant != "null" || *phase != "read" {
                    all.insert(format!("{contestant} {placement} {phase}"));
                }
            }
        }
    }
    all
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Aim: a bench that would write into the tree that it measures is refused at once, and leaves nothing there. Method: scratch directory and
/// results in the tree, as themselves, below it, by a link and where they are still to be made; a name that only begins like the tree's is
/// outside of it.
#[test]
fn a_tree_is_not_written_to() {
    let scratch = Scratch::new();
    for directory in ["tree/there", "outside", "tree-of-others"] {
        std::fs::create_dir_all(scratch.path(directory)).unwrap();
    }
    scratch.write("tree/file", "contents");
    std::os::unix::fs::symlink(scratch.path("tree/there"), scratch.path("outside/link")).unwrap();
    let ask = |at: &str, out: &str| {
        let ended = scratch.run(&["bench", "mount", "--quick", "--tree", "tree", "--scratch", at, "--out", out]);
        (ended.code, ended.err)
    };
    for inside in ["tree", "tree/there", "./tree/there/../there", "outside/link", "tree/new/deep", "outside/link/new"] {
        for (at, out, said, option) in [
            (inside, "outside", "the scratch directory is made in", "--scratch"),
            ("outside", inside, "the results go in", "--out"),
        ] {
            let (code, text) = ask(at, out);
            assert_eq!(code, 2, "{inside}: {text}");
            assert!(text.contains(&format!("{said} {inside}, which is inside the tree ")), "{inside}: {text}");
            assert!(text.contains(&format!("{option} names a directory outside of it")), "{inside}: {text}");
        }
    }
    let names: Vec<_> = std::fs::read_dir(scratch.path("tree")).unwrap().map(|it| it.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    // Not a directory, so that what is tried ends before anything is measured.
    let (_, text) = ask("tree-of-others/none", "outside");
    assert!(!text.contains("which is inside the tree"), "{text}");
}

/// Aim: a run has exactly the rows that were asked for, of kernel, FUSE and layers; the same again measures nothing; the page
/// and the tables come from the results. Method: four contestants in three phases, as small as possible.
#[test]
fn rows_are_those_that_were_chosen() {
    if !can_measure() {
        return;
    }
    let scratch = Scratch::new();
    let more =
        ["--contestants", "ext4,lfs,zstd,null", "--phases", "create,read,delete,write-1m", "--pinned", "--natural"];
    let ended = scratch.measure(&more);
    assert_eq!((ended.code, &*ended.complaints()), (0, ""), "{}", ended.out);
    let phases = ["create", "read", "delete", "write-1m"];
    assert_eq!(scratch.rows(), expected(&["ext4", "lfs", "zstd", "null"], &["pinned", "natural"], &phases));
    scratch.check_nothing_is_left();
    let table = "| `create`, one file | ";
    assert!(ended.out.contains(table), "{}", ended.out);

    let again = scratch.measure(&more);
    assert_eq!((again.code, &*again.err), (0, "16 of 16 points are already measured\n"));
    assert_eq!(again.out, ended.out, "nothing is measured again");
    let of = scratch.good(&["bench", "mount", "--of", "found", "--ours", "zstd", "--beside", "lfs"]);
    assert!(of.contains(table) && of.contains("`zstd`: time of an operation"), "{of}");
    scratch.good(&["report", "found", "-o", "page.html"]);
    let page = std::fs::read_to_string(scratch.path("page.html")).unwrap();
    assert!(page.contains("Create a file, write 1 KB, close it"));
}

/// Four points that take seconds.
const LONG: &[&str] =
    &["--contestants", "lfs,ext4", "--phases", "create,names", "--files", "2000", "--pinned", "--natural"];

/// A bench that runs until it is ended.
fn long_bench(scratch: &Scratch) -> Child {
    let mut command = scratch.command();
    command.args([QUICK, LONG].concat()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

fn points(scratch: &Scratch) -> usize {
    std::fs::read_to_string(scratch.path("found/points.jsonl")).unwrap_or_default().lines().count()
}

/// Aim: an interrupted run leaves only its results, and is continued. Method: SIGINT when some of four points are
/// measured; two others are refused before.
#[test]
fn an_interrupted_run_is_continued() {
    if !can_measure() {
        return;
    }
    let scratch = Scratch::new();
    let mut bench = long_bench(&scratch);
    wait_until("a point is measured", || points(&scratch) > 0 || bench.try_wait().unwrap().is_some());
    let other = scratch.run(&["bench", "mount", "--quick", "--scratch", ".", "--out", "other"]);
    assert!(other.code == 1 && other.err.contains("another `seekless bench mount` is running"), "{}", other.err);
    let same = scratch.run(&["bench", "mount", "--quick", "--scratch", ".", "--out", "found"]);
    assert!(same.code == 1 && same.err.contains("another `seekless bench mount` is running"), "{}", same.err);
    kill_process(Pid::from_child(&bench), Signal::INT).unwrap();
    let ended = scratch.ended(&bench.wait_with_output().unwrap());
    let done = points(&scratch);
    assert!(ended.code == 130 && (1..4).contains(&done), "{} {}", ended.code, ended.err);
    assert!(ended.err.contains(&format!("{done} of 4 points are in found")), "{}", ended.err);
    scratch.check_nothing_is_left();

    let ended = scratch.measure(LONG);
    assert_eq!((ended.code, ended.err), (0, format!("{done} of 4 points are already measured\n")));
    assert_eq!(scratch.rows(), expected(&["lfs", "ext4"], &["pinned", "natural"], &["create", "names"]));
    scratch.check_nothing_is_left();
}

/// Aim: even SIGKILL leaves no mount, no process and no loop device; the next run removes the files. Method: SIGKILL while a
/// point is measured, and a small run beside what is left.
#[test]
fn a_killed_run_leaves_only_files() {
    if !can_measure() {
        return;
    }
    let scratch = Scratch::new();
    let mut bench = long_bench(&scratch);
    wait_until("a daemon is started", || !scratch.processes().is_empty());
    bench.kill().unwrap();
    bench.wait().unwrap();
    wait_until("its processes end", || scratch.processes().is_empty());
    wait_until("its loop devices end", || scratch.loop_devices().is_empty());
    assert_eq!(scratch.bench_directories(), 1);
    let ended = scratch.measure(&["--contestants", "null", "--phases", "create"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    scratch.check_nothing_is_left();
}

/// What cannot be is refused before anything is made, with what to do.
#[test]
fn nonsense_is_refused() {
    let scratch = Scratch::new();
    for (arguments, wanted) in [
        (["--contestants", "ext5"], "ext5"),
        (["--phases", "sleep"], "sleep"),
        (["--rounds", "0"], "0 is not from 1 to 1000"),
        (["--of", "nothing"], "nothing/resolved.toml"),
    ] {
        let ended = scratch.run(&[&["bench", "mount"][..], &arguments].concat());
        assert!(ended.code != 0 && ended.err.contains(wanted), "{arguments:?}: {} {}", ended.code, ended.err);
    }
    if rustix::process::geteuid().is_root() {
        let ended = scratch.run(&["bench", "mount", "--size", "1GiB", "--image", "2GiB", "--scratch", "."]);
        assert!(ended.code == 2 && ended.err.contains("--image gives it more"), "{}", ended.err);
        let ended = scratch.run(&["bench", "mount", "--scratch", "missing"]);
        assert!(ended.code == 2 && ended.err.contains("cannot find missing"), "{}", ended.err);
    }
    assert_eq!(std::fs::read_dir(scratch.path("")).unwrap().count(), 0, "nothing was made");
}
