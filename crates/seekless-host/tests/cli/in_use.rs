//! Exclusive use: directories in which a layer stores files, alone or one inside the other; and images whose last
//! daemon still writes.

use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Ended, Scratch, can_mount};

/// A scratch directory with `data/sub/deep`, a sibling of `sub`, a link to `data`, and mount points `m0`, `m1`.
fn prepared() -> Scratch {
    let scratch = Scratch::new();
    for name in ["data", "data/sub", "data/sub/deep", "data/sibling", "other", "m0", "m1"] {
        scratch.make_directory(name);
    }
    std::os::unix::fs::symlink("data", scratch.path("link")).unwrap();
    scratch
}

fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < Duration::from_secs(30), "no sign of {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn daemon(scratch: &Scratch) -> Pid {
    let text = std::fs::read_to_string(scratch.path("pid")).unwrap();
    Pid::from_raw(text.trim().parse().unwrap()).unwrap()
}

fn assert_refused(ended: &Ended, what: &str) {
    assert_ne!(ended.code, 0, "{what} is not refused");
    assert!(ended.err.contains("is in use by another mount or process"), "{what}: {}", ended.err);
}

/// Aim: a mount that ends while programs write keeps what they have synced before, and its log says that what came later is lost, also
/// where the kernel collects writes and accepts them without an error. Method: a thread that appends records through SIGTERM.
#[test]
fn the_end_of_a_mount_in_use_says_what_is_lost() {
    if !can_mount() {
        return;
    }
    let line = "lfs / file:a.img";
    for (options, is_collected) in [("writeback", true), ("nosuid", false)] {
        let scratch = Scratch::new();
        scratch.make_directory("mnt");
        scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=64MiB"]);
        scratch.good(&["mount", line, "mnt", "-o", options, "--pid-file", "pid", "--log-file", "log"]);
        let mut file = std::fs::File::create(scratch.path("mnt/log")).unwrap();
        file.write_all(b"synced\n").unwrap();
        file.sync_all().unwrap();
        let ended = Arc::new(AtomicBool::new(false));
        let has_ended = ended.clone();
        let writer = std::thread::spawn(move || {
            while !has_ended.load(Ordering::Relaxed) {
                let _ = file.write_all(b"record\n");
                std::thread::sleep(Duration::from_micros(100));
            }
            (file.write_all(b"last\n").is_ok(), file.sync_all().is_ok())
        });
        std::thread::sleep(Duration::from_millis(100));
        let pid = daemon(&scratch);
        kill_process(pid, Signal::TERM).unwrap();
        wait_for("the end", || !Path::new(&format!("/proc/{}", pid.as_raw_nonzero())).exists());
        ended.store(true, Ordering::Relaxed);
        let (is_accepted, is_synced) = writer.join().unwrap();
        assert!(!is_synced && (is_collected || !is_accepted), "{options}");
        let log = std::fs::read_to_string(scratch.path("log")).unwrap();
        assert!(log.contains("what they have written since without a sync is lost"), "{options}: {log}");
        assert_eq!(log.contains("write(2) may give no error: fsync does"), is_collected, "{options}: {log}");
        assert!(log.contains("everything that was answered is durable"), "{options}: {log}");
        assert!(!log.contains("; everything is durable"), "{options}: {log}");
        scratch.good(&["mount", line, "mnt", "--log-file", "log"]);
        assert!(std::fs::read(scratch.path("mnt/log")).unwrap().starts_with(b"synced\n"), "{options}");
        scratch.good(&["umount", "mnt"]);
        let log = std::fs::read_to_string(scratch.path("log")).unwrap();
        assert!(log.contains("; everything is durable"), "{options}: {log}");
        assert!(scratch.good(&["fsck", "--data", line]).contains("clean"), "{options}");
    }
}

/// Aim: a layer that writes has its directory exclusively, whichever of the two is inside the other and whichever comes
/// first; a layer that only reads, or stores plain files, shares. Method: every pair of uses in a table; forbidden ones
/// are refused, with the other's mount point, and allowed ones work.
#[test]
fn a_layer_that_writes_is_alone() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    /// The first use; then the uses that are refused, and those that are not. `ro` and others are options of mount, or
    /// commands.
    type Case = (&'static str, &'static [&'static str], &'static [&'static str]);
    let cases: [Case; 5] = [
        (
            "rw zstd data",
            &[
                "rw zstd data",
                "rw lz4 link",
                "rw zstd data/sub",
                "rw zstd data/sub/deep",
                "rw zstd .",
                "ro zstd data",
                "ro zstd data/sub",
                "ro zstd .",
                "rw wrap data",
                "rw wrap data/sub",
                "rw wrap .",
                "ro wrap .",
                "pack zstd data",
                "unpack zstd data/sub",
                "fsck zstd .",
                "fsck-n zstd data",
            ],
            &["rw zstd other", "rw wrap other"],
        ),
        (
            "rw zstd data/sub",
            &[
                "rw zstd data",
                "rw wrap data",
                "ro zstd data",
                "fsck-n zstd data",
                "pack zstd data",
                "rw zstd data/sub/deep",
            ],
            &["rw zstd data/sibling", "ro zstd data/sibling", "rw wrap data/sibling"],
        ),
        (
            "rw wrap data",
            &["rw zstd data", "rw zstd data/sub", "rw zstd .", "pack zstd data/sub", "fsck zstd data"],
            &["rw wrap data", "rw wrap data/sub", "rw wrap .", "ro zstd data", "fsck-n zstd data"],
        ),
        (
            "ro zstd data",
            &["rw zstd data", "rw zstd data/sub", "rw zstd .", "unpack zstd data", "fsck zstd data/sub"],
            &["ro zstd data", "ro zstd .", "ro lz4 data/sub", "fsck-n zstd data", "rw wrap data"],
        ),
        ("rw wrap data/sub", &["rw zstd data"], &["rw zstd data/sibling"]),
    ];
    let run = |wish: &str, place: &str| {
        let words: Vec<&str> = wish.split(' ').collect();
        let line = format!("{} / hostdir:{}", words[1], words[2]);
        match words[0] {
            "rw" => scratch.run(&["mount", &line, place]),
            "ro" => scratch.run(&["mount", &line, place, "-o", "ro"]),
            "fsck-n" => scratch.run(&["fsck", "-n", &line]),
            command => scratch.run(&[command, &line]),
        }
    };
    for (first, refused, allowed) in cases {
        let ended = run(first, "m1");
        assert_eq!((ended.code, &*ended.complaints()), (0, ""), "{first}");
        for wish in refused {
            let ended = run(wish, "m0");
            assert_refused(&ended, &format!("after {first}, {wish}"));
            assert!(ended.err.contains("it is mounted on T/m1"), "after {first}, {wish}: {}", ended.err);
        }
        for wish in allowed {
            let ended = run(wish, "m0");
            assert_eq!((ended.code, &*ended.complaints()), (0, ""), "after {first}, {wish}");
            if wish.starts_with('r') {
                scratch.good(&["umount", "m0"]);
            }
        }
        scratch.good(&["umount", "m1"]);
    }
    // Nothing is left behind, even by a killed daemon.
    scratch.good(&["mount", "zstd / hostdir:data", "m1", "--pid-file", "pid"]);
    kill_process(daemon(&scratch), Signal::KILL).unwrap();
    wait_for("its end", || std::fs::metadata(scratch.path("m1")).is_err());
    scratch.good(&["umount", "--lazy", "m1"]);
    scratch.good(&["mount", "zstd / hostdir:data/sub", "m1"]);
    scratch.good(&["umount", "m1"]);
    let names: Vec<_> =
        std::fs::read_dir(scratch.path("data")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

/// A bind mount, until it is dropped.
struct Bound(std::path::PathBuf);

impl Bound {
    fn make(scratch: &Scratch, what: &str, place: &str) -> Bound {
        scratch.make_directory(place);
        let bound = Bound(scratch.path(place));
        let flags = rustix::mount::MountFlags::BIND;
        rustix::mount::mount(scratch.path(what), &bound.0, "", flags, None).unwrap();
        bound
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // Ignored: a failed test has already reported its error.
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// Aim: a bind mount does not bypass the exclusion, not even one of an inner directory, whose path says nothing of the
/// directories above; and the locked directories do not keep the other mount busy. Method: both orders of each.
#[test]
fn bind_mounts_lead_to_the_same_directory() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    let _all = Bound::make(&scratch, "data", "all");
    let part = Bound::make(&scratch, "data/sub", "part");
    for (first, second) in [("all", "data"), ("part", "data"), ("part/deep", "data"), ("all/sub/deep", "part")] {
        for (first, second) in [(first, second), (second, first)] {
            scratch.good(&["mount", &format!("zstd / hostdir:{first}"), "m1"]);
            let ended = scratch.run(&["mount", &format!("zstd / hostdir:{second}"), "m0"]);
            assert_refused(&ended, &format!("after {first}, {second}"));
            scratch.good(&["umount", "m1"]);
        }
    }
    scratch.good(&["mount", "zstd / hostdir:data/sub/deep", "m1"]);
    wait_for("the end of the bind mount", || {
        rustix::mount::unmount(&part.0, rustix::mount::UnmountFlags::empty()).is_ok()
    });
    scratch.good(&["umount", "m1"]);
}

/// Of two concurrent mounts at most one works, and of the same directory exactly one.
#[test]
fn of_two_at_once_one_works() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    let start = |line: &str, place: &str| -> Child {
        let mut command = scratch.command();
        command.args(["mount", line, place]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    };
    for (one, two, at_least) in [
        ("zstd / hostdir:data", "lz4 / hostdir:link", 1),
        ("zstd / hostdir:data", "zstd / hostdir:data/sub", 0),
        ("zstd / hostdir:data/sub", "wrap / hostdir:data", 0),
    ] {
        for _ in 0..8 {
            let mut children = [start(one, "m0"), start(two, "m1")];
            let work = children.each_mut().map(|child| child.wait().unwrap().success());
            let count = work.iter().filter(|works| **works).count();
            assert!((at_least..=1).contains(&count), "{one} and {two}: {work:?}");
            for (works, place) in work.into_iter().zip(["m0", "m1"]) {
                if works {
                    scratch.good(&["umount", place]);
                }
            }
        }
    }
}

/// Aim: a volume can be mounted again right after an unmount, even after plain umount(8), which does not wait for the
/// daemon. Method: many times, with something to write each time; then with a daemon that is delayed.
#[test]
fn mounting_again_waits_for_the_last_daemon() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=64MiB"]);
    let umount = || {
        // A child newly forked by another test may still hold a copy of a closed file.
        wait_for("an end of its use", || {
            rustix::mount::unmount(scratch.path("m1"), rustix::mount::UnmountFlags::empty()).is_ok()
        });
    };
    for line in ["lfs / file:a.img", "zstd / hostdir:data"] {
        for round in 0..6u8 {
            scratch.good(&["mount", line, "m1", "--pid-file", "pid"]);
            scratch.write("m1/f", vec![round; 3_000_000]);
            umount();
        }
        scratch.good(&["mount", line, "m1", "--pid-file", "pid"]);
        assert!(std::fs::read(scratch.path("m1/f")).unwrap() == vec![5; 3_000_000]);
        let pid = daemon(&scratch);
        kill_process(pid, Signal::STOP).unwrap();
        umount();
        let mut command = scratch.command();
        command.args(["mount", line, "m0"]).stderr(Stdio::piped());
        let mut again = command.spawn().unwrap();
        let said = crate::mounts::await_word(&mut again);
        kill_process(pid, Signal::CONT).unwrap();
        let ended = scratch.ended_after(said, again);
        assert_eq!(ended.code, 0, "{}", ended.err);
        assert!(
            ended.err.contains("its daemon is still writing or serving programs: waiting for it, 60 s at most"),
            "{}",
            ended.err
        );
        scratch.good(&["umount", "m0"]);
    }
}

/// A command that is ended while it waits for the last daemon has no effect later, when its user counts on that.
#[test]
fn a_mount_whose_command_was_ended_does_not_come_later() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=64MiB"]);
    for (signal, more) in
        [(Signal::TERM, None), (Signal::KILL, None), (Signal::INT, None), (Signal::TERM, Some("--supervise"))]
    {
        scratch.good(&["mount", "lfs / file:a.img", "m0"]);
        let held = std::fs::File::create(scratch.path("m0/open")).unwrap();
        rustix::mount::unmount(scratch.path("m0"), rustix::mount::UnmountFlags::DETACH).unwrap();
        let mut command = scratch.command();
        command.args(["mount", "lfs / file:a.img", "m1", "--log-file", "log"]).args(more);
        let mut command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // It says that it waits.
        let mut said = [0];
        command.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
        kill_process(Pid::from_child(&command), signal).unwrap();
        command.wait().unwrap();
        drop(held);
        if more.is_some() {
            // The supervisor learns of the end when the mount works, and ends it then.
            wait_for("the mount or its end", || {
                std::fs::read_to_string(scratch.path("log")).is_ok_and(|log| log.contains("so the daemon ends, too"))
            });
        }
        // The image is free, and stays so.
        wait_for("a free image", || scratch.run(&["fsck", "lfs / file:a.img"]).code == 0);
        std::thread::sleep(Duration::from_millis(500));
        assert!(!scratch.is_mounted("m1"), "{signal:?} {more:?}");
        scratch.good(&["fsck", "lfs / file:a.img"]);
    }
}

/// A mount that does not work in time is given up: the command fails, and the mount comes neither then nor later.
#[test]
fn a_mount_is_given_up_after_its_timeout() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=64MiB"]);
    for more in [None, Some("--supervise")] {
        scratch.good(&["mount", "lfs / file:a.img", "m0"]);
        let held = std::fs::File::create(scratch.path("m0/open")).unwrap();
        rustix::mount::unmount(scratch.path("m0"), rustix::mount::UnmountFlags::DETACH).unwrap();
        let arguments = ["mount", "lfs / file:a.img", "m1", "--timeout", "2", "--log-file", "log"];
        let ended = scratch.run(&arguments.into_iter().chain(more).collect::<Vec<_>>());
        assert_eq!(ended.code, 32, "{}", ended.err);
        assert!(ended.err.contains("the mount did not work within 2 s, so its daemon ends"), "{}", ended.err);
        drop(held);
        wait_for("a free image", || scratch.run(&["fsck", "lfs / file:a.img"]).code == 0);
        std::thread::sleep(Duration::from_millis(300));
        assert!(!scratch.is_mounted("m1"), "{more:?}");
        scratch.good(&["fsck", "lfs / file:a.img"]);
        scratch.good(&["mount", "lfs / file:a.img", "m1", "--timeout", "60"]);
        scratch.good(&["umount", "m1"]);
    }
}

/// A command in the foreground that waits for the last daemon ends as by the signal that it gets.
#[test]
fn what_waits_in_the_foreground_can_be_interrupted() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=64MiB"]);
    for (signal, arguments) in [
        (Signal::INT, &["mount", "lfs / file:a.img", "m1"][..]),
        (Signal::HUP, &["mount", "lfs / file:a.img", "m1"]),
        (Signal::TERM, &["mount", "--as-disk", "vld / file:a.img", "disk"]),
        (Signal::INT, &["export", "vld / file:a.img", "--socket", "socket"]),
    ] {
        scratch.good(&["mount", "lfs / file:a.img", "m0"]);
        let held = std::fs::File::create(scratch.path("m0/open")).unwrap();
        rustix::mount::unmount(scratch.path("m0"), rustix::mount::UnmountFlags::DETACH).unwrap();
        let mut command = scratch.command();
        command.args(arguments).args(["--foreground", "--pid-file", "its-pid"]);
        let mut command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // It says that it waits.
        let mut said = [0];
        command.stderr.as_mut().unwrap().read_exact(&mut said).unwrap();
        let pid = Pid::from_child(&command);
        kill_process(pid, Signal::USR1).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        assert_eq!(command.try_wait().unwrap(), None, "{arguments:?}");
        kill_process(pid, signal).unwrap();
        let mut status = None;
        wait_for(&format!("the end of {arguments:?} after {signal:?}"), || {
            status = command.try_wait().unwrap();
            status.is_some()
        });
        // Where the signal is ignored, as after nohup, it says it as shells do.
        let (by, code) = (status.unwrap().signal(), status.unwrap().code());
        assert!(by == Some(signal.as_raw()) || code == Some(128 + signal.as_raw()), "{arguments:?}: {by:?} {code:?}");
        drop(held);
        wait_for("a free image", || scratch.run(&["fsck", "lfs / file:a.img"]).code == 0);
        assert!(!scratch.is_mounted("m1"));
        assert!(["disk", "socket", "its-pid"].iter().all(|name| !scratch.path(name).exists()), "{arguments:?}");
    }
}

/// A process in another mount namespace, which has the mount at `name` as well.
fn held_elsewhere(scratch: &Scratch, name: &str) -> std::process::Child {
    let mut holder = std::process::Command::new("unshare");
    // Mounts of other tests must not be held.
    let script = r#"grep ' fuse.seekless ' /proc/self/mounts | cut -d' ' -f2 | grep -vxF "$1" | xargs -r -n1 umount -l
                    exec sleep 1000"#;
    holder.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(scratch.path(name));
    let holder = holder.spawn().unwrap();
    let namespace = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/mnt")).unwrap();
    wait_for("the other namespace", || namespace(&holder.id().to_string()) != namespace("self"));
    let name = format!("/proc/{}/comm", holder.id());
    wait_for("sleep", || std::fs::read_to_string(&name).unwrap().trim() == "sleep");
    holder
}

/// A mount held by another mount namespace: `umount` reports it within seconds, and fails after its timeout.
#[test]
fn umount_says_who_holds_a_mount_elsewhere() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mount", "wrap / hostdir:data", "m1"]);
    let mut holder = held_elsewhere(&scratch, "m1");
    let ended = scratch.run(&["umount", "m1", "--timeout", "3"]);
    let held = format!("process {} (", holder.id());
    let lines: Vec<&str> = ended.err.lines().collect();
    let refused = scratch.run(&["mount", "zstd / hostdir:data", "m0"]);
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert_eq!((ended.code, lines.len()), (32, 2), "{}", ended.err);
    assert!(lines[0].starts_with("unmounted here; ") && lines[0].contains(&held), "{}", ended.err);
    assert!(lines[1].contains("was still working after 3 s") && lines[1].contains(&held), "{}", ended.err);
    assert_refused(&refused, "what is mounted elsewhere");
    assert!(refused.err.contains("in the mount namespace of process"), "{}", refused.err);
    // Its last user is gone, so the daemon ends.
    scratch.good(&["mount", "zstd / hostdir:data", "m0"]);
    scratch.good(&["umount", "m0"]);
}

/// A daemon that has another process number for itself than for others is found, and none other is waited for.
#[test]
fn umount_finds_a_daemon_in_another_process_namespace() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    let mut first = std::process::Command::new("unshare");
    // The first process of the namespace stays: with it all others would end.
    first.args(["--pid", "--fork", "--kill-child", "sh", "-c", r#""$0" mount "wrap / hostdir:data" m1; sleep 1000"#]);
    let mut first = first.arg(env!("CARGO_BIN_EXE_seekless")).current_dir(scratch.path(".")).spawn().unwrap();
    wait_for("the mount", || scratch.is_mounted("m1"));
    let ended = scratch.run(&["umount", "m1", "--timeout", "30"]);
    first.kill().unwrap();
    first.wait().unwrap();
    assert_eq!((ended.code, &*ended.complaints()), (0, ""));
}

/// Aim: when a volume has stopped after a device error, neither `sync` nor `umount` reports success; a mount that is
/// read-only by request has nothing to lose. Method: a device that fails writes at random, for each file system; seeds
/// until it fails after the mount.
#[test]
fn a_stopped_volume_is_never_durable() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    for (number, word) in ["lfs", "vlfs", "ffs", "ffs:metadata=softdep", "zstd / lfs"].into_iter().enumerate() {
        let image = format!("file:{number}.img");
        scratch.good(&["mkfs", "-q", &format!("{} / {image},size=64MiB", word.trim_start_matches("zstd / "))]);
        let stopped = (1..60).find(|seed| {
            let line = format!("{word} / fault:write-errors=8%,seed={seed} / {image}");
            if scratch.run(&["mount", &line, "m1", "--log-file", "log"]).code != 0 {
                return false;
            }
            let write = |file: u32| -> std::io::Result<()> {
                let file = std::fs::File::create(scratch.path(&format!("m1/f{file}")))?;
                std::os::unix::fs::FileExt::write_all_at(&file, &[b'x'; 20_000], 0)?;
                file.sync_all()
            };
            let failed = (0..100).find(|&file| write(file).is_err());
            let is_stopped = failed.is_some()
                && std::fs::write(scratch.path("m1/later"), "x")
                    .is_err_and(|error| error.kind() == std::io::ErrorKind::ReadOnlyFilesystem);
            if !is_stopped {
                scratch.run(&["umount", "m1"]);
                return false;
            }
            for _ in 0..2 {
                let ended = scratch.run(&["sync", "m1"]);
                assert!(
                    ended.code == 1 && ended.err.contains("data written to m1 may not be durable: "),
                    "{word}: {}",
                    ended.err
                );
                assert!(!ended.err.contains("os error"), "it says what happened: {}", ended.err);
            }
            let ended = scratch.run(&["umount", "m1"]);
            assert_eq!(ended.code, 32, "{word}: {}", ended.err);
            assert!(ended.err.contains("unmounted, but not everything is durable: "), "{word}: {}", ended.err);
            true
        });
        assert!(stopped.is_some(), "{word}: no seed stops it");
        assert!(scratch.run(&["fsck", &format!("{word} / {image}")]).code <= 1, "{word}");
        scratch.good(&["mount", &format!("{word} / {image}"), "m1", "-o", "ro"]);
        scratch.good(&["sync", "m1"]);
        scratch.good(&["umount", "m1"]);
    }
    scratch.good(&["mount", "zstd / hostdir:data", "m1", "-o", "ro"]);
    scratch.good(&["sync", "m1"]);
    scratch.good(&["umount", "m1"]);
}

/// A daemon that is killed while it writes its data has not made everything durable, and umount reports it.
#[test]
fn a_daemon_that_dies_while_it_closes_is_a_failure() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=64MiB"]);
    scratch.good(&["mount", "lfs / file:a.img", "m1", "--pid-file", "pid"]);
    scratch.write("m1/f", vec![1; 1_000_000]);
    let pid = daemon(&scratch);
    let mut command = scratch.command();
    command.args(["umount", "m1"]).stderr(Stdio::piped());
    let waiting = command.spawn().unwrap();
    // umount asks the daemon for its identity first, so the daemon cannot be stopped earlier.
    wait_for("the unmount", || !scratch.is_mounted("m1"));
    kill_process(pid, Signal::KILL).ok();
    let ended = scratch.ended(&waiting.wait_with_output().unwrap());
    // It may have ended in time.
    if ended.code != 0 {
        assert_eq!(ended.code, 32, "{}", ended.err);
        assert!(ended.err.starts_with("seekless: unmounted, but "), "{}", ended.err);
    }
    scratch.good(&["mount", "lfs / file:a.img", "m1"]);
    scratch.good(&["umount", "m1"]);
}

/// What programs have written and closed is there after a daemon was ended, also if the mount lives on elsewhere, so that the kernel
/// does not write back by itself what it holds.
#[test]
fn what_the_kernel_holds_is_written_back_if_a_mount_lives_on_elsewhere() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mkfs", "-q", "lfs / file:b.img,size=64MiB"]);
    scratch.good(&["mount", "lfs / file:b.img", "m1", "-o", "writeback", "--pid-file", "pid", "--log-file", "log"]);
    let mut holder = held_elsewhere(&scratch, "m1");
    for number in 0..20 {
        scratch.write(&format!("m1/f{number}"), vec![number; 100_000]);
    }
    let daemon = crate::mounts::daemon(&scratch);
    kill_process(daemon, Signal::TERM).unwrap();
    wait_for("the end of the daemon", || !scratch.path("pid").exists());
    holder.kill().unwrap();
    holder.wait().unwrap();
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    assert!(log.contains("still in use elsewhere"), "{log}");
    scratch.good(&["mount", "lfs / file:b.img", "m0"]);
    for number in 0..20 {
        assert!(std::fs::read(scratch.path(&format!("m0/f{number}"))).unwrap() == vec![number; 100_000], "f{number}");
    }
    scratch.good(&["umount", "m0"]);
}

/// Of several that unmount at once, each learns that everything is durable, or that nothing is mounted any more.
#[test]
fn several_can_unmount_at_once() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mkfs", "-q", "lfs / file:b.img,size=64MiB"]);
    for round in 0..8 {
        scratch.good(&["mount", "lfs / file:b.img", "m1"]);
        scratch.write(&format!("m1/f{round}"), "text");
        let begin = |_| scratch.command().args(["umount", "m1"]).stderr(Stdio::piped()).spawn().unwrap();
        let all: Vec<Child> = (0..4).map(begin).collect();
        let ended: Vec<Ended> = all.into_iter().map(|one| scratch.ended(&one.wait_with_output().unwrap())).collect();
        assert!(ended.iter().any(|one| one.code == 0), "round {round}");
        for one in ended.iter().filter(|one| one.code != 0) {
            assert!(one.err.contains("is not a mount point"), "round {round}: {}", one.err);
        }
    }
    scratch.good(&["mount", "lfs / file:b.img", "m1", "-o", "ro"]);
    assert_eq!(std::fs::read_dir(scratch.path("m1")).unwrap().count(), 8);
    scratch.good(&["umount", "m1"]);
}
