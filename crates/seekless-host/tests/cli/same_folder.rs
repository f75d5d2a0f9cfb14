//! Several runs into one folder of results, at the same time.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::{Ended, Scratch};

/// Ten points, each of which takes a while.
const SWEEP: &str = r#"
title = "Ten points"
workload = { kind = "requests", pattern = "random", operation = "read", bytes = "4KiB", span = "64MiB", requests = 20000, timing = "window:4" }
contestant = [{ name = "array", on = "raid0:n={n} / disk:cheetah9lp,scheduler=sptf" }]
variables.n.values = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
"#;

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.make_directory("sweep");
    scratch.write("sweep/experiment.toml", SWEEP);
    scratch
}

fn begin(scratch: &Scratch, arguments: &[&str]) -> Child {
    scratch.command().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn end(scratch: &Scratch, mut child: Child) -> Ended {
    let deadline = Instant::now() + Duration::from_secs(300);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() >= deadline {
            child.kill().unwrap();
            panic!("it does not end: {:?}", scratch.ended(&child.wait_with_output().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    scratch.ended(&child.wait_with_output().unwrap())
}

fn read(scratch: &Scratch, name: &str) -> String {
    std::fs::read_to_string(scratch.path(name)).unwrap_or_default()
}

/// How often each point is in the journal, by its key.
fn rounds(scratch: &Scratch, folder: &str) -> BTreeMap<String, usize> {
    let mut rounds = BTreeMap::new();
    for line in read(scratch, &format!("{folder}/points.jsonl")).lines() {
        let line: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        *rounds.entry(line["key"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    rounds
}

fn check_rows_of_one_run(scratch: &Scratch, folder: &str) {
    for file in ["rows.jsonl", "rows.csv", "resolved.toml"] {
        assert_eq!(read(scratch, &format!("whole/{file}")), read(scratch, &format!("{folder}/{file}")), "{file}");
    }
}

/// Aim: runs at the same time share the work, and none measures what another does. Method: two runs of the whole; two shards, of
/// which the last to end writes the rows of both.
#[test]
fn runs_share_the_points() {
    let scratch = scratch();
    scratch.good(&["run", "sweep", "--out", "whole"]);
    for (folder, shards) in [("same", [&[][..], &[]]), ("parts", [&["--shard", "1/2"][..], &["--shard", "2/2"]])] {
        let both =
            shards.map(|shard| begin(&scratch, &[&["run", "sweep", "--out", folder, "--jobs", "2"], shard].concat()));
        for child in both {
            let ended = end(&scratch, child);
            assert_eq!(ended.code, 0, "{}", ended.err);
        }
        let rounds = rounds(&scratch, folder);
        assert_eq!((rounds.len(), rounds.values().max()), (10, Some(&1)), "each point once");
        check_rows_of_one_run(&scratch, folder);
    }
}

/// Points that are there.
fn count(scratch: &Scratch) -> usize {
    read(scratch, "found/points.jsonl").lines().count()
}

/// Two runs of the sweep of ten points: the first one is halted while it measures two of them, and the second one has measured
/// all others.
fn halted_beside_another(scratch: &Scratch) -> [Child; 2] {
    let run = ["run", "sweep", "--jobs", "2", "--out", "found"];
    let mut first = begin(scratch, &run);
    wait_until("a point is there", || count(scratch) > 0 || first.try_wait().unwrap().is_some());
    let pid = Pid::from_child(&first);
    kill_process(pid, Signal::STOP).unwrap();
    let second = begin(scratch, &run);
    // It may have been halted while it adds to the results, and then the second run waits for that.
    let mut halted = Instant::now();
    wait_until("only the points of the halted run are left", || {
        if count(scratch) < 8 && halted.elapsed() > Duration::from_secs(5) {
            kill_process(pid, Signal::CONT).unwrap();
            std::thread::sleep(Duration::from_millis(1));
            kill_process(pid, Signal::STOP).unwrap();
            halted = Instant::now();
        }
        count(scratch) >= 8
    });
    [first, second]
}

/// Aim: a run that dies in the middle of points leaves them to the other. Method: one run is halted with two points under way; a
/// second measures the other eight, and waits; the first is killed.
#[test]
fn points_of_a_killed_run_are_measured_by_the_other() {
    let scratch = scratch();
    scratch.good(&["run", "sweep", "--out", "whole"]);
    let [mut first, mut second] = halted_beside_another(&scratch);
    std::thread::sleep(Duration::from_millis(300));
    // It may have been halted just after it had ended a point and before it had begun the next one.
    assert!((8..=9).contains(&count(&scratch)) && second.try_wait().unwrap().is_none());
    kill_process(Pid::from_child(&first), Signal::KILL).unwrap();
    first.wait().unwrap();
    let ended = end(&scratch, second);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert_eq!((rounds(&scratch, "found").len(), count(&scratch)), (10, 10));
    check_rows_of_one_run(&scratch, "found");
}

/// Aim: a run that only waits for another ends at once after a signal. Method: as before, and SIGINT to the second.
#[test]
fn a_waiting_run_can_be_interrupted() {
    let scratch = scratch();
    let [first, second] = halted_beside_another(&scratch);
    kill_process(Pid::from_child(&second), Signal::INT).unwrap();
    let ended = end(&scratch, second);
    assert!(ended.code == 130 && ended.err.contains("of 10 points are in found"), "{}", ended.err);
    kill_process(Pid::from_child(&first), Signal::CONT).unwrap();
    let ended = end(&scratch, first);
    assert_eq!((ended.code, count(&scratch)), (0, 10), "{}", ended.err);
}

/// True once a run takes SIGINT from a descriptor, for which it blocks it. Before that it would just die.
fn receives_signals(run: &Child) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/status", run.id())).unwrap_or_default();
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:"));
    let blocked = blocked.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    blocked & 1 << (libc::SIGINT - 1) != 0
}

/// Holds the turn to append to a journal, as a run does that was stopped in the middle of it.
fn hold_the_turn(journal: &std::path::Path) -> std::fs::File {
    let file = std::fs::File::options().read(true).append(true).open(journal).unwrap();
    let turn = libc::flock {
        l_type: libc::F_WRLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 1 << 61,
        l_len: 1,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open, and `turn` lives until this returns.
    let lock = || unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const turn) };
    wait_until("the turn is free", || lock() == 0);
    file
}

/// Aim: a run that waits for one that was stopped while it wrote ends after a signal, and loses nothing. Method: this process has the
/// turn to write, from the beginning or when a point is there; SIGINT; then the turn is free, and the run is repeated.
#[test]
fn the_wait_for_a_stopped_writer_can_be_interrupted() {
    let scratch = scratch();
    let run = ["run", "sweep", "--jobs", "2", "--out", "found"];
    let mut first = begin(&scratch, &run);
    wait_until("a point is there", || count(&scratch) > 0 || first.try_wait().unwrap().is_some());
    let turn = hold_the_turn(&scratch.path("found/points.jsonl"));
    let second = begin(&scratch, &run);
    wait_until("the second run receives signals", || receives_signals(&second));
    std::thread::sleep(Duration::from_millis(100));
    let before = count(&scratch);
    for child in [first, second] {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let ended = end(&scratch, child);
        assert!(ended.code == 130 && ended.err.contains("interrupted"), "{}", ended.err);
    }
    assert_eq!(count(&scratch), before, "no other run writes");
    drop(turn);
    let ended = end(&scratch, begin(&scratch, &run));
    assert_eq!((ended.code, count(&scratch)), (0, 10), "{}", ended.err);
}

/// Aim: two experiments in one folder lose no point of each other. Method: at the same time, then each again, which measures
/// nothing and writes its own rows.
#[test]
fn two_experiments_in_one_folder() {
    let scratch = scratch();
    scratch.make_directory("other");
    scratch.write("other/experiment.toml", SWEEP.replace("4KiB", "8KiB"));
    scratch.good(&["run", "sweep", "--out", "whole"]);
    let both = ["sweep", "other"].map(|name| begin(&scratch, &["run", name, "--out", "found", "--jobs", "2"]));
    for child in both {
        let ended = end(&scratch, child);
        assert_eq!(ended.code, 0, "{}", ended.err);
    }
    assert_eq!(rounds(&scratch, "found").len(), 20);
    for name in ["other", "sweep"] {
        let again = scratch.run(&["run", name, "--out", "found"]);
        assert!(again.err.contains("10 of 10 points are already measured"), "{}", again.err);
    }
    check_rows_of_one_run(&scratch, "found");
    let other = scratch.run(&["run", "other", "--out", "found"]);
    assert!(other.err.contains("found holds the rows of sweep, which this run replaces"), "{}", other.err);
}

/// Aim: rounds in real time are counted across runs, and never measured at the same time. Method: two runs of two rounds each
/// over a directory want two of each point.
#[test]
fn rounds_in_real_time_are_shared() {
    let scratch = Scratch::new();
    scratch.make_directory("lower");
    scratch.make_directory("real");
    let text = "title = \"Real\"\nworkload = { kind = \"attributes\", files = \"{n}\" }\n\
                contestant = [{ name = \"here\", on = \"wrap / memfs\" }]\nvariables.n.values = [20, 40, 60]\n";
    scratch.write("real/experiment.toml", text);
    let run = ["run", "real", "--over", "hostdir:lower", "--rounds", "2", "--out", "found"];
    for child in [(); 2].map(|()| begin(&scratch, &run)) {
        let ended = end(&scratch, child);
        assert_eq!(ended.code, 0, "{}", ended.err);
    }
    let rounds = rounds(&scratch, "found");
    assert_eq!((rounds.len(), rounds.values().min(), rounds.values().max()), (3, Some(&2), Some(&2)));
    assert_eq!(std::fs::read_dir(scratch.path("lower")).unwrap().count(), 0);
}

/// Aim: a run does not disturb what another measures in real time: it writes no rows in that time. Method: one is halted in the middle of a
/// point, and the other waits for longer than the time between two writes.
#[test]
fn a_run_that_waits_for_one_in_real_time_writes_nothing() {
    let scratch = Scratch::new();
    scratch.make_directory("lower");
    scratch.make_directory("real");
    let text = "title = \"Real\"\nworkload = { kind = \"attributes\", files = \"{n}\" }\n\
                contestant = [{ name = \"here\", on = \"wrap / memfs\" }]\nvariables.n.values = [20, 2000000]\n";
    scratch.write("real/experiment.toml", text);
    let run = ["run", "real", "--over", "hostdir:lower", "--out", "found"];
    let mut first = begin(&scratch, &run);
    wait_until("the long point", || {
        count(&scratch) == 1 && std::fs::read_dir(scratch.path("lower")).unwrap().count() > 0
    });
    kill_process(Pid::from_child(&first), Signal::STOP).unwrap();
    let mut second = begin(&scratch, &run);
    let begun = Instant::now();
    let is_written = || scratch.path("found/rows.jsonl").exists();
    wait_until("a write of rows, or none", || is_written() || begun.elapsed() > Duration::from_secs(12));
    assert!(!is_written());
    assert_eq!(second.try_wait().unwrap(), None);
    for run in [&mut second, &mut first] {
        run.kill().unwrap();
        run.wait().unwrap();
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what}: not after two minutes");
        std::thread::sleep(Duration::from_millis(2));
    }
}
