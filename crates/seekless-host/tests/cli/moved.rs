//! Mounts that are moved with `mount --move`: the daemon knows only the place where it mounted.

use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::process::{Signal, kill_process};
use seekless_host::testing::SmallTmpfs;

use crate::can_mount;
use crate::mounts::{LINE, daemon, prepared};

/// Whether the kernel has identifiers of mounts that it does not give again, as Linux has from 6.8 on.
fn mounts_have_identifiers() -> bool {
    let unique = StatxFlags::from_bits_retain(0x4000);
    let stat = statx(CWD, "/", AtFlags::empty(), unique).unwrap();
    StatxFlags::from_bits_retain(stat.stx_mask).contains(unique)
}

/// Aim: after `mount --move`, commands at the old place name the new one, and what they say works there. Method: a tmpfs with two
/// directories, as mounts can be moved only where they are private.
#[test]
fn a_mount_that_was_moved_is_found() {
    if !can_mount() || !mounts_have_identifiers() {
        return;
    }
    let scratch = prepared();
    scratch.make_directory("t");
    let Some(_below) = SmallTmpfs::mount(&scratch.path("t"), 1 << 20) else { return };
    let mount = |words: &[&str]| Command::new("mount").args(words).current_dir(scratch.path(".")).status();
    ["t/old", "t/new"].iter().for_each(|directory| scratch.make_directory(directory));
    assert!(mount(&["--make-private", "t"]).unwrap().success());
    scratch.good(&["mount", LINE, "t/old", "--pid-file", "pid"]);
    scratch.write("t/old/f", "moves along");
    if !mount(&["--move", "t/old", "t/new"]).unwrap().success() {
        scratch.good(&["umount", "t/old"]);
        return;
    }
    for command in ["sync", "stat", "umount"] {
        let ended = scratch.run(&[command, "t/old"]);
        let hint = format!("what was mounted there is now on T/t/new: seekless {command} T/t/new\n");
        assert!(ended.code != 0 && ended.err.ends_with(&hint), "{command}: {}", ended.err);
    }
    let begun = Instant::now();
    let ended = scratch.run(&["mount", LINE, "t/old"]);
    assert!(
        ended.code != 0 && ended.err.ends_with("it is mounted on T/t/new: seekless umount T/t/new\n"),
        "{}",
        ended.err
    );
    let ended = scratch.run(&["mount", LINE, "t/old", "--pid-file", "pid"]);
    assert!(ended.code != 0 && ended.err.starts_with("seekless: T/pid already exists"), "{}", ended.err);
    assert!(begun.elapsed() < Duration::from_secs(30), "nothing is waited for");
    // A daemon that does not answer is named.
    let pid = daemon(&scratch);
    kill_process(pid, Signal::STOP).unwrap();
    let ended = scratch.run(&["umount", "t/new", "--timeout", "1"]);
    kill_process(pid, Signal::CONT).unwrap();
    let hint = format!("resume it with: kill -CONT {}", pid.as_raw_nonzero());
    assert!(ended.code != 0 && ended.err.contains(&hint), "{}", ended.err);
    for command in ["sync", "stat", "umount"] {
        scratch.good(&[command, "t/new"]);
    }
    // Nothing is mounted there any more.
    let ended = scratch.run(&["umount", "t/old"]);
    assert_eq!((ended.code, &*ended.err), (1, "seekless: t/old is not a mount point\n"));
}
