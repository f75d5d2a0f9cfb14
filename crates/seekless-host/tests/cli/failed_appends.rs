//! Aim: an append that fails takes nothing away from what others have appended, through other mounts of the directory or in it, and says
//! how much of it was done. Method: appends that fail as a whole or in part, by write(2) and by io_uring, after which the kernel
//! cuts the file back to the size that it knows.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::process::{Signal, kill_process};

use seekless_host::testing::{Need, SmallTmpfs, skip};

use crate::mounts::{daemon, wait_for};
use crate::two_mounts::{Way, append, ring_append};
use crate::{Scratch, can_mount};

const LINES: [(&str, &str); 2] = [("hostdir:data", "nopassthrough"), ("wrap / hostdir:data", "nosuid")];

fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new().append(true).read(true).custom_flags(flags).open(path).unwrap()
}

/// An append of bytes that are not there. `None` without io_uring.
fn append_nothing(file: &File) -> Option<io::Error> {
    match ring_append(file, std::ptr::without_provenance(8), 100) {
        Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Some(error),
        Err(error) => {
            skip(Need::Uring, format!("{error}"));
            None
        }
        Ok(bytes) => panic!("{bytes} bytes were appended"),
    }
}

/// An append through one of three mounts fails, while another one's daemon is killed.
#[test]
fn a_failed_append_takes_nothing_away() {
    if !can_mount() {
        return;
    }
    for ((line, options), flags) in LINES.into_iter().flat_map(|line| [(line, 0), (line, libc::O_DIRECT)]) {
        let what = format!("{line}, {options}, {flags:o}");
        let scratch = Scratch::new();
        for directory in ["data", "one", "two", "three"] {
            scratch.make_directory(directory);
        }
        scratch.write("data/log", "start\n");
        for place in ["one", "two"] {
            scratch.good(&["mount", line, place, "-o", options]);
        }
        scratch.good(&["mount", line, "three", "-o", options, "--pid-file", "pid"]);
        let mut expected = b"start\n".to_vec();
        let one = open(&scratch.path("one/log"), flags);
        let others_append = |places: &[&str], expected: &mut Vec<u8>| {
            for place in places {
                let record = format!("{place} has acknowledged this after {} bytes\n", expected.len());
                open(&scratch.path(place).join("log"), 0).write_all(record.as_bytes()).unwrap();
                expected.extend(record.as_bytes());
            }
        };
        for round in 0..3 {
            (&one).write_all(b"one\n").unwrap();
            expected.extend(b"one\n");
            others_append(&["two", "data"], &mut expected);
            if round == 0 {
                others_append(&["three"], &mut expected);
                kill_process(daemon(&scratch), Signal::KILL).unwrap();
            }
            if append_nothing(&one).is_none() {
                break;
            }
            let found = fs::read(scratch.path("data/log")).unwrap();
            assert!(found == expected, "{what}, round {round}: {} of {} bytes", found.len(), expected.len());
        }
        // What a program cuts off itself is gone, also at the size that this mount's kernel knows.
        if rustix::process::geteuid().is_root() {
            let known = one.metadata().unwrap().len();
            others_append(&["two"], &mut expected);
            one.set_len(known).unwrap();
            assert_eq!(fs::metadata(scratch.path("data/log")).unwrap().len(), known, "{what}");
            one.set_len(0).unwrap();
            assert_eq!(fs::metadata(scratch.path("data/log")).unwrap().len(), 0, "{what}");
        }
        drop(one);
        for place in ["one", "two"] {
            scratch.good(&["umount", place]);
        }
        scratch.run(&["umount", "--lazy", "three"]);
        wait_for("the end of the mount", || !scratch.is_mounted("three"));
    }
}

/// On a host with room for a part of what is appended: the program learns how much, or the file has a beginning of it and not a part from
/// the middle; and what others have appended stays.
#[test]
fn an_append_to_a_full_host_tells_what_is_done() {
    const ROOM: u64 = 4 << 20;
    if !can_mount() {
        return;
    }
    for ((line, options), way) in LINES.into_iter().flat_map(|line| [(line, Way::Write), (line, Way::Ring)]) {
        let what = format!("{line}, {options}, {way:?}");
        let scratch = Scratch::new();
        for directory in ["data", "one", "two"] {
            scratch.make_directory(directory);
        }
        let Some(_tmpfs) = SmallTmpfs::mount(&scratch.path("data"), ROOM) else { return };
        scratch.write("data/log", "start\n");
        for place in ["one", "two"] {
            scratch.good(&["mount", line, place, "-o", options]);
        }
        for bytes in [900_000, 3_500_000] {
            let one = open(&scratch.path("one/log"), 0);
            (&one).write_all(b"one\n").unwrap();
            let before = fs::read(scratch.path("data/log")).unwrap();
            let others = b"two has acknowledged this\n".repeat(10);
            open(&scratch.path("two/log"), 0).write_all(&others).unwrap();
            let before = [before, others].concat();
            // Less than a quarter is left.
            let fill = ROOM - before.len() as u64 - bytes as u64 / 5;
            fs::write(scratch.path("data/fill"), vec![b'f'; fill as usize]).unwrap();
            let record: Vec<u8> = (0..bytes).map(|at| (at / 1000) as u8 ^ at as u8).collect();
            let appended = append(&one, &record, way);
            let found = fs::read(scratch.path("data/log")).unwrap();
            assert!(found.starts_with(&before), "{what}, {bytes}: {} of {}", found.len(), before.len());
            let done = found.len() - before.len();
            assert!(done > 0 && record.starts_with(&found[before.len()..]), "{what}, {bytes}: {done} are done");
            match (appended, way) {
                (Ok(said), _) => assert_eq!(said, done, "{what}, {bytes}"),
                // The kernel answers an asynchronous append that is not complete with an error.
                (Err(_), Way::Ring) => {}
                (Err(error), Way::Write) => panic!("{what}, {bytes}: {error} although {done} are done"),
            }
            let refused = append(&one, &record, Way::Write).map_err(|error| error.raw_os_error());
            assert_eq!(refused, Err(Some(libc::ENOSPC)), "{what}, {bytes}");
            fs::remove_file(scratch.path("data/fill")).unwrap();
            (&one).write_all(b"end\n").unwrap();
            assert!(fs::read(scratch.path("data/log")).unwrap() == [&found[..], b"end\n"].concat(), "{what}, {bytes}");
            one.set_len(0).unwrap();
        }
        for place in ["one", "two"] {
            scratch.good(&["umount", place]);
        }
    }
}
