//! A supervisor mounts again when the daemon has died; and a service manager learns when a mount works.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::mounts::{daemon, prepared, wait_for};
use crate::{Scratch, can_mount};

const LINE: &str = "lfs / file:a.img";

fn supervised(scratch: &Scratch) {
    scratch.good(&["mount", LINE, "mnt", "--supervise", "--pid-file", "pid", "--log-file", "log"]);
}

/// The parent of a process.
fn parent(pid: Pid) -> Pid {
    let status = std::fs::read_to_string(format!("/proc/{}/status", pid.as_raw_nonzero())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap();
    Pid::from_raw(line.trim().parse().unwrap()).unwrap()
}

fn is_running(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

/// Kills the daemon, and returns when another one serves the mount, or `None` when it stays dead.
fn kill_and_wait(scratch: &Scratch) -> Pid {
    kill_and_wait_at(scratch, "mnt", "after a death")
}

fn kill_and_wait_at(scratch: &Scratch, mnt: &str, when: &str) -> Pid {
    let before = daemon(scratch);
    kill_process(before, Signal::KILL).unwrap();
    wait_for(&format!("another daemon {when}"), || {
        let after = std::fs::read_to_string(scratch.path("pid")).unwrap_or_default();
        after.trim().parse() != Ok(before.as_raw_nonzero().get()) && !after.is_empty() && scratch.is_answered(mnt)
    });
    daemon(scratch)
}

impl Scratch {
    fn is_answered(&self, name: &str) -> bool {
        self.is_mounted(name) && std::fs::read_dir(self.path(name)).is_ok()
    }
}

/// A daemon that is killed comes again with everything that was synced; open files give errors; the directory below the
/// mount gets nothing; and after a third death within a minute the mount stays down, and the log says so.
#[test]
fn a_dead_daemon_comes_again() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    supervised(&scratch);
    let supervisor = parent(daemon(&scratch));
    for round in 0..2 {
        let mut file = File::create(scratch.path(&format!("mnt/f{round}"))).unwrap();
        file.write_all(b"acknowledged").unwrap();
        file.sync_all().unwrap();
        let pid = kill_and_wait(&scratch);
        assert_eq!(parent(pid), supervisor);
        file.write_all(b"more").and_then(|()| file.sync_all()).expect_err("its mount is gone");
        for earlier in 0..=round {
            let mut text = String::new();
            let mut again = File::open(scratch.path(&format!("mnt/f{earlier}"))).unwrap();
            again.read_to_string(&mut text).unwrap();
            assert_eq!(text, "acknowledged", "round {round}");
        }
    }
    kill_process(daemon(&scratch), Signal::KILL).unwrap();
    wait_for("the end of the supervisor", || !is_running(supervisor));
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    assert_eq!(log.matches("it is mounted again").count(), 2, "{log}");
    assert!(log.contains("(signal 9)") && log.contains("so it stays down") && log.contains("umount --lazy"), "{log}");
    // Programs get errors, and nothing is written into the directory below.
    std::fs::write(scratch.path("mnt/below"), "").unwrap_err();
    let _ = scratch.run(&["umount", "--lazy", "mnt"]);
    assert_eq!(std::fs::read_dir(scratch.path("mnt")).unwrap().count(), 0);
    assert!(scratch.good(&["fsck", "--data", LINE]).contains("clean") || scratch.run(&["fsck", LINE]).code <= 1);
}

/// Aim: no program writes into the directory below while a mount comes back. Method: some write new files all the time, and the daemon is
/// killed twice; then the directory is looked at.
#[test]
fn nothing_comes_below_a_supervised_mount() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    supervised(&scratch);
    let ends = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let write = |writer: usize| {
            let (ends, directory) = (&ends, scratch.path("mnt"));
            move || {
                let mut written = 0_u64;
                while !ends.load(std::sync::atomic::Ordering::Relaxed) {
                    written += 1;
                    let _ = std::fs::write(directory.join(format!("f{writer}-{written}")), "text");
                }
            }
        };
        let writers: Vec<_> = (0..2).map(|writer| scope.spawn(write(writer))).collect();
        let killed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            kill_and_wait(&scratch);
            kill_and_wait(&scratch);
        }));
        ends.store(true, std::sync::atomic::Ordering::Relaxed);
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        if let Err(panic) = killed {
            std::panic::resume_unwind(panic);
        }
    });
    let log = || std::fs::read_to_string(scratch.path("log")).unwrap();
    // The supervisor says so after the mount works.
    wait_for("the supervisor's second message", || log().matches("mounted again on").count() == 2);
    scratch.good(&["umount", "mnt"]);
    assert!(!scratch.is_mounted("mnt"), "the dead ones are gone");
    let below: Vec<_> = std::fs::read_dir(scratch.path("mnt")).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(below.is_empty(), "{below:?}\n{}", log());
}

/// Aim: a daemon that gets no more memory dies, and a supervisor sees it; it neither waits for itself, as with a backtrace that needs memory,
/// nor takes its mount away. Method: hardly more memory than a mount needs, and files that are written and synced until that fails, on an image
/// with room for more of them than that memory; nothing may be in the directory below.
#[test]
fn without_memory_a_daemon_dies() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=1GiB"]);
    scratch.make_directory("mnt");
    let mounts = |kib: u32| {
        let script = format!("ulimit -v {kib} && exec \"$0\" \"$@\"");
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_seekless"), "mount", LINE, "mnt"]);
        command.args(["--supervise", "--log-file"]).arg(scratch.path("log")).current_dir(scratch.path("."));
        let works = command.env("RUST_BACKTRACE", "1").stderr(std::process::Stdio::null()).status().unwrap().success();
        if !works {
            // One that died after the kernel had its mount.
            let _ = scratch.run(&["umount", "--lazy", "mnt"]);
        }
        works
    };
    assert!((30_000..200_000).step_by(4_000).any(mounts), "no memory is enough");
    let content = vec![b'x'; 5 << 20];
    let write = |number: u32| -> std::io::Result<()> {
        let mut file = File::create(scratch.path(&format!("mnt/f{number}")))?;
        file.write_all(&content)?;
        file.sync_all()
    };
    let error = (0..100).find_map(|number| write(number).err());
    assert!(error.as_ref().is_some_and(|error| error.kind() != ErrorKind::StorageFull), "it had memory: {error:?}");
    let log = || std::fs::read_to_string(scratch.path("log")).unwrap();
    wait_for(&format!("what the supervisor says of {error:?}"), || log().contains("died (signal "));
    for number in 100..200 {
        let _ = write(number);
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = scratch.run(&["umount", "--lazy", "mnt"]);
    wait_for("the end of the mount", || !scratch.is_mounted("mnt"));
    assert_eq!(std::fs::read_dir(scratch.path("mnt")).unwrap().count(), 0, "{}", log());
    let name = scratch.path("log");
    wait_for("the end of all its processes", || {
        let mut processes = std::fs::read_dir("/proc").unwrap().flatten();
        !processes.any(|process| {
            let words = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
            words.split(|&byte| byte == 0).any(|word| word == name.as_os_str().as_encoded_bytes())
        })
    });
}

/// Paths of the line are relative to the directory where the user was, which may have another name by now; another one with its
/// name has another image. Without relative paths it is not needed.
#[test]
fn a_restart_is_where_the_user_was() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    let (mnt, pid, log) = (scratch.path("mnt"), scratch.path("pid"), scratch.path("log"));
    let mount = |line: &str| {
        let mut command = scratch.command();
        command.args(["mount", line, "--supervise"]).arg(&mnt).arg("--pid-file").arg(&pid).arg("--log-file").arg(&log);
        let ended = scratch.ended(&command.current_dir(scratch.path("here")).output().unwrap());
        assert_eq!((ended.code, &*ended.complaints()), (0, ""));
    };
    scratch.make_directory("here");
    std::fs::rename(scratch.path("a.img"), scratch.path("here/a.img")).unwrap();
    mount(LINE);
    std::fs::write(mnt.join("f"), "text").unwrap();
    scratch.good(&["sync", "mnt"]);
    std::fs::rename(scratch.path("here"), scratch.path("there")).unwrap();
    scratch.make_directory("here");
    scratch.good(&["mkfs", "-q", "lfs / file:here/a.img,size=64MiB"]);
    kill_and_wait(&scratch);
    assert_eq!(std::fs::read(mnt.join("f")).unwrap(), b"text");
    scratch.good(&["umount", "mnt"]);
    mount(&format!("lfs / file:{}", scratch.path("there/a.img").display()));
    std::fs::remove_dir_all(scratch.path("here")).unwrap();
    kill_and_wait(&scratch);
    assert_eq!(std::fs::read(mnt.join("f")).unwrap(), b"text");
    scratch.good(&["umount", "mnt"]);
}

/// A mount below a directory that gets another name comes back there, each time, and ends there; the old name is another directory.
#[test]
fn a_restart_finds_its_mount() {
    if !can_mount() {
        return;
    }
    for (from, given) in [("here", "mnt"), (".", "absolute"), (".", "here/mnt")] {
        let scratch = prepared();
        scratch.make_directory("here");
        scratch.make_directory("here/mnt");
        let mut command = scratch.command();
        command.arg("mount").arg(format!("lfs / file:{}", scratch.path("a.img").display()));
        match given {
            "absolute" => command.arg(scratch.path("here/mnt")),
            _ => command.arg(given),
        };
        command.args(["--supervise", "--pid-file"]).arg(scratch.path("pid"));
        command.arg("--log-file").arg(scratch.path("log")).current_dir(scratch.path(from));
        let ended = scratch.ended(&command.output().unwrap());
        assert_eq!((ended.code, &*ended.complaints()), (0, ""));
        std::fs::rename(scratch.path("here"), scratch.path("there")).unwrap();
        scratch.make_directory("here");
        scratch.make_directory("here/mnt");
        let supervisor = parent(daemon(&scratch));
        for death in 1..=2 {
            kill_and_wait_at(&scratch, "there/mnt", &format!("after death {death} of {given}"));
        }
        assert!(!scratch.is_mounted("here/mnt"));
        scratch.good(&["umount", "there/mnt"]);
        wait_for("the end of the supervisor", || !is_running(supervisor));
        let log = std::fs::read_to_string(scratch.path("log")).unwrap();
        assert_eq!(log.matches("/there/mnt died (signal 9); it is mounted again").count(), 2, "{log}");
    }
}

/// Another directory with the name of the one that was mounted is not served.
#[test]
fn another_directory_is_not_mounted_again() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    ["mnt", "data"].into_iter().for_each(|name| scratch.make_directory(name));
    scratch.good(&["mount", "wrap / hostdir:data", "mnt", "--supervise", "--pid-file", "pid", "--log-file", "log"]);
    std::fs::rename(scratch.path("data"), scratch.path("old")).unwrap();
    scratch.make_directory("data");
    let server = daemon(&scratch);
    let supervisor = parent(server);
    kill_process(server, Signal::KILL).unwrap();
    wait_for("the end of the supervisor", || !is_running(supervisor));
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    assert!(log.contains("data is not the directory that was mounted"), "{log}");
    assert!(!log.contains("mounted again on"), "{log}");
    scratch.run(&["umount", "--lazy", "mnt"]);
}

/// What is unmounted stays unmounted, whether by `umount` or by a signal to the supervisor; both processes end, and what
/// was written is there.
#[test]
fn a_supervised_mount_ends_as_others_do() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    for (round, by_signal) in [false, true, true].into_iter().enumerate() {
        supervised(&scratch);
        if round == 2 {
            kill_and_wait(&scratch);
        }
        let (server, supervisor) = (daemon(&scratch), parent(daemon(&scratch)));
        scratch.write(&format!("mnt/f{round}"), "text");
        match by_signal {
            false => drop(scratch.good(&["umount", "mnt"])),
            true => kill_process(supervisor, Signal::TERM).unwrap(),
        }
        wait_for("the end of both", || !is_running(server) && !is_running(supervisor));
        assert!(!scratch.is_mounted("mnt"), "round {round}");
        assert!(!scratch.path("pid").exists());
    }
    scratch.good(&["mount", LINE, "mnt", "-o", "ro"]);
    assert_eq!(std::fs::read_dir(scratch.path("mnt")).unwrap().count(), 3);
    scratch.good(&["umount", "mnt"]);
}

/// A daemon that dies while it ends, as it was asked to, leaves no dead mount, and the log says so.
#[test]
fn a_daemon_that_dies_when_it_is_asked_to_end_leaves_no_mount() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    supervised(&scratch);
    let (server, supervisor) = (daemon(&scratch), parent(daemon(&scratch)));
    kill_process(server, Signal::STOP).unwrap();
    kill_process(supervisor, Signal::TERM).unwrap();
    // Until the supervisor has passed it on.
    wait_for("the signal", || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", server.as_raw_nonzero())).unwrap();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:")).unwrap().trim();
        u64::from_str_radix(pending, 16).unwrap() & 1 << (Signal::TERM.as_raw() - 1) != 0
    });
    kill_process(server, Signal::KILL).unwrap();
    wait_for("the end of the supervisor", || !is_running(supervisor));
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    assert!(!scratch.is_mounted("mnt"), "{log}");
    assert!(
        log.contains("(signal 9)") && log.contains("asked to end") && !log.contains("it is mounted again"),
        "{log}"
    );
}

/// A mount that comes again has all options that it had.
#[test]
fn options_stay_after_a_death() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    let line = || {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let place = scratch.path("mnt").canonicalize().unwrap();
        table.lines().find(|line| line.contains(place.to_str().unwrap())).map(str::to_owned)
    };
    for (options, remount) in [
        ("nosuid,nodev,noexec,noatime,nosymfollow,lazytime", None),
        ("sync,strictatime,allow_other", None),
        ("ro,nodiratime", None),
        ("noatime", Some("remount,atime")),
        ("rw", Some("remount,ro,nosuid,nodev,noexec,noatime")),
        ("noexec,noatime,nosuid", Some("remount,exec,atime,nodiratime")),
    ] {
        let arguments = ["mount", LINE, "mnt", "--supervise", "--pid-file", "pid", "--log-file", "log", "-o", options];
        scratch.good(&arguments);
        let first = line();
        if let Some(remount) = remount {
            scratch.good(&["mount", LINE, "mnt", "-o", remount]);
            assert_ne!(line(), first, "{options}, then {remount}");
        }
        for death in 1..=2 {
            let before = line();
            kill_and_wait(&scratch);
            assert!(before.is_some());
            assert_eq!(line(), before, "{options}, then {remount:?}, death {death}");
        }
        if remount.is_some() {
            // The volume is open for writing, as it was.
            scratch.good(&["mount", LINE, "mnt", "-o", "remount,rw"]);
            scratch.write("mnt/f", "text");
        }
        scratch.good(&["umount", "mnt"]);
    }
}

/// What is unmounted between a death and the next daemon stays unmounted.
#[test]
fn a_dead_mount_that_is_unmounted_does_not_come_again() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    supervised(&scratch);
    let supervisor = parent(daemon(&scratch));
    kill_process(daemon(&scratch), Signal::KILL).unwrap();
    wait_for("its death", || std::fs::read_dir(scratch.path("mnt")).is_err());
    let _ = scratch.run(&["umount", "mnt"]);
    assert!(!scratch.is_mounted("mnt"));
    wait_for("the end of the supervisor", || !is_running(supervisor));
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    assert!(!scratch.is_mounted("mnt") && log.contains("was unmounted"), "{log}");
}

/// Another file under the name of the image, as an older copy, does not have what was synced: it is not mounted in its place.
#[test]
fn another_image_is_not_mounted_in_place_of_the_first() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    std::fs::copy(scratch.path("a.img"), scratch.path("copy.img")).unwrap();
    supervised(&scratch);
    let supervisor = parent(daemon(&scratch));
    scratch.write("mnt/f", "acknowledged");
    scratch.good(&["sync", "mnt"]);
    std::fs::rename(scratch.path("a.img"), scratch.path("first.img")).unwrap();
    std::fs::rename(scratch.path("copy.img"), scratch.path("a.img")).unwrap();
    kill_process(daemon(&scratch), Signal::KILL).unwrap();
    wait_for("the end of the supervisor", || !is_running(supervisor));
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    assert!(log.contains("is not the file that was mounted") && log.contains("stays down"), "{log}");
    std::fs::write(scratch.path("mnt/new"), "").unwrap_err();
    let _ = scratch.run(&["umount", "--lazy", "mnt"]);
    scratch.good(&["mount", "lfs / file:first.img", "mnt"]);
    assert_eq!(std::fs::read(scratch.path("mnt/f")).unwrap(), b"acknowledged");
    scratch.good(&["umount", "mnt"]);
}

/// What is wrong at the start is reported as without a supervisor. A dead mount of ours is replaced on demand, a living one is
/// not.
#[test]
fn wrong_starts_are_reported() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    let ended = scratch.run(&["mount", "lfs / file:none.img", "mnt", "--supervise"]);
    assert_eq!(ended.code, 32);
    assert!(ended.err.contains("none.img"), "{}", ended.err);
    assert_eq!(scratch.run(&["mount", LINE, "mnt", "--supervise", "--foreground"]).code, 1);
    scratch.good(&["mount", LINE, "mnt", "--pid-file", "pid"]);
    let ended = scratch.run(&["mount", "memfs", "mnt", "--replace-dead"]);
    assert!(ended.code == 32 && ended.err.contains("is already a Seekless mount"), "{}", ended.err);
    scratch.write("mnt/f", "text");
    scratch.good(&["sync", "mnt"]);
    let pid = daemon(&scratch);
    kill_process(pid, Signal::KILL).unwrap();
    wait_for("its end", || !is_running(pid));
    // The kernel may still know the attributes of its root.
    let ended = scratch.run(&["mount", LINE, "mnt"]);
    assert!(ended.code == 32 && ended.err.contains("whose daemon is gone"), "{}", ended.err);
    scratch.good(&["mount", LINE, "mnt", "--replace-dead"]);
    assert_eq!(std::fs::read(scratch.path("mnt/f")).unwrap(), b"text");
    scratch.good(&["umount", "mnt"]);
    assert!(!scratch.is_mounted("mnt"), "the dead one is gone, too");
}

/// In the foreground, the socket of a service manager gets READY=1, and not before the mount works.
#[test]
fn a_service_manager_is_notified() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    let socket = UnixDatagram::bind(scratch.path("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut command = scratch.command();
    command.args(["mount", LINE, "mnt", "--foreground"]).env("NOTIFY_SOCKET", scratch.path("notify"));
    let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
    let mut message = [0; 100];
    let length = socket.recv(&mut message).unwrap();
    assert_eq!(&message[..length], b"READY=1");
    assert!(scratch.is_answered("mnt"));
    scratch.good(&["umount", "mnt"]);
    assert!(child.wait().unwrap().success());
}

/// Signals that come between a death and the next daemon do what they do at other times: one that asks for counters changes nothing, and
/// one that asks for the end takes the dead mount away.
#[test]
fn signals_between_a_death_and_the_next_daemon_are_received() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    for signal in [Signal::USR1, Signal::TERM, Signal::HUP, Signal::INT] {
        supervised(&scratch);
        let supervisor = parent(daemon(&scratch));
        let before = daemon(&scratch);
        kill_process(before, Signal::KILL).unwrap();
        wait_for("its death", || !is_running(before));
        std::thread::sleep(Duration::from_millis(200));
        kill_process(supervisor, signal).unwrap();
        if signal == Signal::USR1 {
            wait_for("another daemon", || daemon(&scratch) != before && scratch.is_answered("mnt"));
            kill_process(supervisor, Signal::TERM).unwrap();
        }
        wait_for("the end of the supervisor", || !is_running(supervisor));
        assert!(!scratch.is_mounted("mnt"), "{signal:?}");
        let log = std::fs::read_to_string(scratch.path("log")).unwrap();
        assert!(log.contains(if signal == Signal::USR1 { "mounted again on" } else { "asked to end before" }), "{log}");
        let _ = std::fs::remove_file(scratch.path("log"));
    }
}

/// Aim: a stop that comes while the next daemon opens the volume ends that one, and is not one death more. Method: the volume is in another
/// mount, whose daemon is stopped, and it would be the third death.
#[test]
fn a_stop_reaches_a_daemon_that_opens() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    ["store", "inner"].into_iter().for_each(|name| scratch.make_directory(name));
    std::fs::rename(scratch.path("a.img"), scratch.path("store/a.img")).unwrap();
    scratch.good(&["mount", "wrap / hostdir:store", "inner", "--pid-file", "inner.pid"]);
    let line = "lfs / file:inner/a.img";
    scratch.good(&["mount", line, "mnt", "--supervise", "--pid-file", "pid", "--log-file", "log"]);
    kill_and_wait(&scratch);
    let (before, supervisor) = (daemon(&scratch), parent(daemon(&scratch)));
    let inner = std::fs::read_to_string(scratch.path("inner.pid")).unwrap();
    let inner = Pid::from_raw(inner.trim().parse().unwrap()).unwrap();
    kill_process(before, Signal::KILL).unwrap();
    wait_for("its death", || !is_running(before));
    kill_process(inner, Signal::STOP).unwrap();
    let of_supervisor = format!("PPid:\t{}\n", supervisor.as_raw_nonzero());
    wait_for("the next daemon", || {
        std::fs::read_dir("/proc").unwrap().flatten().any(|process| {
            let status = std::fs::read_to_string(process.path().join("status")).unwrap_or_default();
            status.contains(&of_supervisor) && !status.contains("State:\tZ")
        })
    });
    // One that asks for counters is for a daemon that works.
    kill_process(supervisor, Signal::USR1).unwrap();
    kill_process(supervisor, Signal::TERM).unwrap();
    let is_over = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(20));
        !is_running(supervisor)
    });
    kill_process(inner, Signal::CONT).unwrap();
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    assert!(is_over && !scratch.is_mounted("mnt"), "{log}");
    assert!(log.contains("when it was asked to end") && !log.contains("stays down"), "{log}");
    scratch.good(&["umount", "inner"]);
}
