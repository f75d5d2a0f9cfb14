//! Aim: a `mkfs` that is killed leaves nothing that the next one would want `--force` for, and takes nothing that is another's.
//! Method: kills at any moment, and as soon as there is a name; two at once; names that lead elsewhere.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use seekless_host::testing::{Need, skip};

use crate::Scratch;

/// True where a file system has files without names; otherwise a killed mkfs leaves an incomplete image.
fn has_unnamed_files(scratch: &Scratch) -> bool {
    let has = rustix::fs::open(scratch.path(""), OFlags::RDWR | OFlags::TMPFILE, Mode::from_raw_mode(0o600)).is_ok();
    if !has {
        skip(Need::Punch, "the temporary directory has no files without names");
    }
    has
}

fn begin(scratch: &Scratch, line: &str) -> Child {
    let mut command = scratch.command();
    command.args(["mkfs", "-q", line]).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn a_killed_mkfs_leaves_nothing() {
    let scratch = Scratch::new();
    if !has_unnamed_files(&scratch) {
        return;
    }
    for (made, names) in [
        ("lfs / file:a.img,size=300GiB", &["a.img"][..]),
        ("lfs / file:a.img,direct=on,size=1GiB", &["a.img"]),
        ("vlfs / file:a.img,size=64MiB", &["a.img"]),
        ("ffs / file:a.img,size=64MiB", &["a.img"]),
        ("vld / file:a.img,size=64MiB", &["a.img"]),
        ("raid5:n=3 / file:m-{},size=64MiB", &["m-0", "m-1", "m-2"]),
        ("lfs / raid1:n=2 / file:m-{},size=64MiB", &["m-0", "m-1"]),
    ] {
        let line = made.split(",size").next().unwrap();
        let (mut killed, mut complete) = (0, 0);
        for round in 0..16 {
            let mut mkfs = begin(&scratch, made);
            match round % 2 {
                0 => std::thread::sleep(Duration::from_millis(round * 4)),
                _ => while !scratch.path(names[0]).exists() && mkfs.try_wait().unwrap().is_none() {},
            }
            mkfs.kill().unwrap();
            killed += i32::from(mkfs.wait().unwrap().signal().is_some());
            let there: Vec<_> = names.iter().filter(|name| scratch.path(name).exists()).collect();
            if there.len() == names.len() {
                scratch.good(&["info", line]);
                complete += 1;
            }
            // Names come one after the other, when everything is complete.
            assert!(there.len() != 1 || names.len() > 1 || complete > 0, "{made}: {there:?}");
            there.into_iter().for_each(|name| std::fs::remove_file(scratch.path(name)).unwrap());
            assert_eq!(std::fs::read_dir(scratch.path("")).unwrap().count(), 0, "{made}, round {round}");
        }
        assert!(killed > 0, "{made}");
        scratch.good(&["mkfs", "-q", made]);
        scratch.good(&["info", line]);
        names.iter().for_each(|name| std::fs::remove_file(scratch.path(name)).unwrap());
    }
}

#[test]
fn of_two_at_once_one_is_made() {
    let scratch = Scratch::new();
    for round in 0..6 {
        let both = ["lfs / file:a.img,size=64MiB", "ffs / file:a.img,size=32MiB"].map(|line| begin(&scratch, line));
        let ended = both.map(|mkfs| scratch.ended(&mkfs.wait_with_output().unwrap()));
        let good: Vec<usize> = (0..2).filter(|&one| ended[one].code == 0).collect();
        assert_eq!(good.len(), 1, "round {round}: {} {}", ended[0].err, ended[1].err);
        let other = &ended[1 - good[0]];
        let why = ["exists", "in use", "which would be lost"];
        assert!(other.code == 1 && why.iter().any(|why| other.err.contains(why)), "{}", other.err);
        scratch.good(&["info", ["lfs / file:a.img", "ffs / file:a.img"][good[0]]]);
        std::fs::remove_file(scratch.path("a.img")).unwrap();
    }
    // A name that leads nowhere is a name.
    std::os::unix::fs::symlink("nowhere", scratch.path("a.img")).unwrap();
    let ended = scratch.run(&["mkfs", "lfs / file:a.img,size=64MiB"]);
    assert!(ended.code == 1 && ended.err.contains("cannot create"), "{}", ended.err);
    assert!(!scratch.path("nowhere").exists() && scratch.path("a.img").is_symlink());
}

/// Where no thread can be started, requests take their time, and nothing is called lost. Method: a user who may have one process.
#[test]
fn a_limit_of_processes_loses_nothing() {
    use std::os::unix::fs::{PermissionsExt, chown};
    use std::os::unix::process::CommandExt;
    const USER: u32 = 12_345;

    if !rustix::process::geteuid().is_root() {
        skip(Need::Root, "limits of processes are for others than root, and this one cannot be another");
        return;
    }
    let scratch = Scratch::new();
    // The tests' own may be in a directory that the user may not see.
    std::fs::copy(env!("CARGO_BIN_EXE_seekless"), scratch.path("program")).unwrap();
    chown(scratch.path(""), Some(USER), Some(USER)).unwrap();
    std::fs::set_permissions(scratch.path(""), PermissionsExt::from_mode(0o755)).unwrap();
    let limited = |arguments: &[&str]| {
        let mut command = std::process::Command::new("prlimit");
        command.args(["--nproc=1", "./program"]).args(arguments).current_dir(scratch.path("")).uid(USER).gid(USER);
        scratch.ended(&command.output().unwrap())
    };
    for made in ["lfs / file:l.img,size=64MiB", "ffs / file:f.img,size=32MiB", "lfs / raid1:n=2 / file:m-{},size=32MiB"]
    {
        let ended = limited(&["mkfs", made]);
        assert_eq!((ended.code, &*ended.err), (0, ""), "{made}");
        let line = made.split(",size").next().unwrap();
        let ended = limited(&["fsck", line]);
        assert_eq!((ended.code, &*ended.err), (0, ""), "{made}");
    }
}
