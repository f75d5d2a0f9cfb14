//! Aim: an append that fails takes nothing away from what others have appended, through another mount of the directory or in it; and
//! a program learns how much of an append was done.
//! Method: appends to a file on a full host, by write(2) and by io_uring, after which the kernel cuts the file back to the size
//! that it knows.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use seekless_host::testing::{Need, SmallTmpfs, skip};

use crate::two_mounts::{Way, append};
use crate::{Scratch, can_mount};

const ROOM: u64 = 4 << 20;

fn open(path: &Path, flags: i32) -> File {
    OpenOptions::new().append(true).create(true).custom_flags(flags).open(path).unwrap()
}

#[test]
fn a_failed_append_takes_nothing_away() {
    if !can_mount() {
        return;
    }
    let lines = [("hostdir:data", "nopassthrough"), ("wrap / hostdir:data", "nosuid")];
    for ((line, options), way) in lines.into_iter().flat_map(|line| [(line, Way::Write), (line, Way::Ring)]) {
        let what = format!("{line}, {options}, {way:?}");
        let scratch = Scratch::new();
        for directory in ["data", "one", "two"] {
            scratch.make_directory(directory);
        }
        let Some(_tmpfs) = SmallTmpfs::mount(&scratch.path("data"), ROOM) else { return };
        for place in ["one", "two"] {
            scratch.good(&["mount", line, place, "-o", options]);
        }
        let one = open(&scratch.path("one/log"), 0);
        let length = || fs::metadata(scratch.path("data/log")).unwrap().len();
        for round in 0..3 {
            (&one).write_all(b"one\n").unwrap();
            let known = length();
            for place in ["two", "data"] {
                let mut other = open(&scratch.path(place).join("log"), 0);
                other.write_all(format!("{place} has acknowledged this\n").as_bytes()).unwrap();
                other.sync_all().unwrap();
            }
            let before = fs::read(scratch.path("data/log")).unwrap();
            let refused = append(&one, &vec![b'x'; ROOM as usize], way);
            match refused.as_ref().map_err(|error| error.raw_os_error()) {
                // The first part is short: for an asynchronous call, the kernel makes an error of that.
                Err(Some(libc::EIO)) if way == Way::Ring => {}
                Err(Some(libc::ENOSPC)) => {}
                Err(Some(libc::ENOSYS | libc::EPERM)) if way == Way::Ring => {
                    skip(Need::Uring, format!("{refused:?}"));
                    break;
                }
                // A part of it, by write(2).
                other => assert!(way == Way::Write && other.is_ok(), "{what}, round {round}: {other:?}"),
            }
            let after = fs::read(scratch.path("data/log")).unwrap();
            assert!(after.starts_with(&before), "{what}, round {round}: {} of {} bytes", after.len(), before.len());
            // What a program cuts off itself is gone, also at the size that this mount's kernel knows.
            one.set_len(if round == 0 { known } else { 0 }).unwrap();
            assert_eq!(length(), if round == 0 { known } else { 0 }, "{what}, round {round}");
        }
        drop(one);
        for place in ["one", "two"] {
            scratch.good(&["umount", place]);
        }
    }
}

/// On a host with room for a part of what is appended: the program learns how much, or the file has a beginning of it and not a part from
/// the middle; and what others have appended stays.
#[test]
fn an_append_to_a_full_host_tells_what_is_done() {
    if !can_mount() {
        return;
    }
    let lines = [
        ("hostdir:data", "nopassthrough"),
        ("hostdir:data", "nopassthrough,transport=uring"),
        ("wrap / hostdir:data", "nosuid"),
    ];
    for ((line, options), way) in lines.into_iter().flat_map(|line| [(line, Way::Write), (line, Way::Ring)]) {
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
