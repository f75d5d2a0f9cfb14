//! Aim: the kernel reads and writes files of a host directory itself, with the results and the rights of the directory.
//! Method: real mounts; a daemon that is stopped while an open file is used; programs of another user.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use seekless_host::testing::{Need, skip};

use crate::{Scratch, can_mount};

/// Far longer than any call takes that needs no daemon.
const NEVER: Duration = Duration::from_secs(20);

const OTHER_USER: u32 = 4001;

/// Mounts `line`, and returns the process that serves it. `None` where the kernel passes no files through.
fn mounted(scratch: &Scratch, line: &str) -> Option<Pid> {
    if is_before_6_9(&fs::read_to_string("/proc/sys/kernel/osrelease").unwrap()) {
        skip(Need::Fuse, "the kernel passes files through since 6.9");
        return None;
    }
    fs::set_permissions(scratch.path(""), Permissions::from_mode(0o755)).unwrap();
    scratch.make_directory("mnt");
    scratch.make_directory("data");
    scratch.good(&["mount", "-o", "allow_other", "--pid-file", "pid", line, "mnt"]);
    let pid = fs::read_to_string(scratch.path("pid")).unwrap().trim().parse().unwrap();
    Pid::from_raw(pid)
}

fn is_before_6_9(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) < (Some(6), Some(9))
}

/// Runs `body` while the daemon does nothing. `None` when it waits for the daemon.
fn without_daemon<T: Send + 'static>(daemon: Pid, body: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    kill_process(daemon, Signal::STOP).unwrap();
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || tell.send(body()));
    let result = told.recv_timeout(NEVER).ok();
    kill_process(daemon, Signal::CONT).unwrap();
    let _ = thread.join();
    result
}

fn open(scratch: &Scratch, name: &str) -> File {
    let path = scratch.path(name);
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

/// A directory that was mounted for reading is not written, though the kernel's mount has been remounted for writing past the program.
#[test]
fn a_directory_mounted_for_reading_is_not_written_past_us() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("mnt");
    scratch.make_directory("data");
    scratch.write("data/f", "text");
    scratch.good(&["mount", "-o", "ro", "hostdir:data", "mnt"]);
    let mount_point = scratch.path("mnt").canonicalize().unwrap();
    let remounted = Command::new("mount").args(["-i", "-o", "remount,rw"]).arg(&mount_point).status().unwrap();
    assert!(remounted.success());
    let opened = OpenOptions::new().write(true).open(scratch.path("mnt/f"));
    assert_eq!(opened.unwrap_err().raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    let unnamed = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(&mount_point);
    assert_eq!(unnamed.unwrap_err().raw_os_error(), Some(Errno::ROFS.raw_os_error()));
    assert_eq!(fs::read(scratch.path("mnt/f")).unwrap(), b"text");
    scratch.good(&["umount", "mnt"]);
}

/// Two users of one file, reads, writes at and behind its end, and what others see of it, with and without the daemon.
#[test]
fn open_files_need_no_daemon() {
    if !can_mount() {
        return;
    }
    for line in ["hostdir:data", "wrap:passthrough=on / hostdir:data"] {
        let scratch = Scratch::new();
        let Some(daemon) = mounted(&scratch, line) else { return };
        let (first, second) = (open(&scratch, "mnt/f"), open(&scratch, "mnt/f"));
        // The first write asks whether the file has privileges.
        first.write_all_at(&[1; 10_000], 0).unwrap();
        second.write_all_at(&[2; 10], 5_000).unwrap();
        let [one, two] = [&first, &second].map(|file| file.try_clone().unwrap());
        let read = without_daemon(daemon, move || {
            one.write_all_at(&[3; 100], 9_950).unwrap();
            let mut read = vec![0; 10_050];
            two.read_exact_at(&mut read, 0).unwrap();
            read
        });
        let read = read.unwrap_or_else(|| panic!("{line}: an open file waits for the daemon"));
        let expected = [&[1; 5_000][..], &[2; 10], &[1; 4_940], &[3; 100]].concat();
        assert!(read == expected, "{line}");
        for name in ["data/f", "mnt/f"] {
            assert!(fs::read(scratch.path(name)).unwrap() == expected, "{line}: {name}");
            assert_eq!(fs::metadata(scratch.path(name)).unwrap().len(), 10_050, "{line}: {name}");
        }
        // Changes that are messages, and changes of the file below, meet those that are not.
        first.set_len(4).unwrap();
        second.write_all_at(b"!", 4).unwrap();
        OpenOptions::new().append(true).open(scratch.path("data/f")).unwrap().write_all(b"below").unwrap();
        OpenOptions::new().append(true).open(scratch.path("mnt/f")).unwrap().write_all(b"above").unwrap();
        assert_eq!(fs::read(scratch.path("mnt/f")).unwrap(), b"\x01\x01\x01\x01!belowabove", "{line}");
        first.sync_all().unwrap();
        // A file without a name lives as long as it is open.
        fs::remove_file(scratch.path("mnt/f")).unwrap();
        let mut last = [0; 5];
        first.read_exact_at(&mut last, 10).unwrap();
        assert_eq!(&last, b"above", "{line}");
        drop((first, second));
        scratch.good(&["umount", "mnt"]);
    }
}

/// A program of another user that has `file` open for writing, until it gets the word to write and end.
struct Writer(Child);

impl Writer {
    fn new(scratch: &Scratch, file: &str) -> Result<Writer, String> {
        let script = "exec 3>>\"$0\" && echo open && read word && echo written >&3";
        let mut child = Command::new("sh")
            .args(["-c", script, scratch.path(file).to_str().unwrap()])
            .uid(OTHER_USER)
            .gid(OTHER_USER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        match line.trim() {
            "open" => Ok(Writer(child)),
            _ => Err(String::from_utf8_lossy(&child.wait_with_output().unwrap().stderr).into_owned()),
        }
    }

    fn writes_and_ends(mut self) {
        self.0.stdin.take().unwrap().write_all(b"now\n").unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

/// What a user writes into a file never keeps privileges that another user gave it, in any order of opening, giving and
/// writing; and privileges can be given as soon as the writer has gone.
#[test]
fn privileges_do_not_survive_the_writes_of_others() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    if mounted(&scratch, "hostdir:data").is_none() {
        return;
    }
    let set = |bits: u32| fs::set_permissions(scratch.path("mnt/f"), Permissions::from_mode(bits));
    let permissions = || fs::metadata(scratch.path("data/f")).unwrap().permissions().mode() & 0o7777;
    scratch.write("mnt/f", "#!/bin/sh\n");
    set(0o666).unwrap();
    // Open, give, write.
    let writer = Writer::new(&scratch, "mnt/f").unwrap();
    let refused = set(0o4777).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::ETXTBSY), "{refused}");
    assert_eq!(permissions(), 0o666);
    set(0o667).unwrap();
    writer.writes_and_ends();
    // The daemon hears of the end of the last use a moment later.
    let given = (0..1000).any(|_| {
        std::thread::sleep(Duration::from_millis(10));
        set(0o4777).is_ok()
    });
    assert!(given && permissions() == 0o4777, "it is no longer open");
    // Give, open, write: as without a mount, the write takes them away.
    Writer::new(&scratch, "mnt/f").unwrap().writes_and_ends();
    assert_eq!(permissions(), 0o777);
    // The kernel has the file already, for a reader, when it gets them.
    let reader = File::open(scratch.path("mnt/f")).unwrap();
    set(0o4777).unwrap();
    let refused = Writer::new(&scratch, "mnt/f").err().expect("it may not be written now");
    assert!(refused.contains("busy"), "{refused}");
    drop(reader);
    scratch.good(&["umount", "mnt"]);
    assert_eq!(fs::read_to_string(scratch.path("data/f")).unwrap(), "#!/bin/sh\nwritten\nwritten\n");
}

/// Nor do they survive a write by another user's program through a file that root opened and handed on, before it got them.
#[test]
fn privileges_do_not_survive_writes_through_a_file_handed_on() {
    if !can_mount() {
        return;
    }
    for line in ["hostdir:data", "wrap:passthrough=on / hostdir:data"] {
        let scratch = Scratch::new();
        if mounted(&scratch, line).is_none() {
            return;
        }
        for bits in [0o4777, 0o2777, 0o6777] {
            let file = open(&scratch, "mnt/f");
            fs::set_permissions(scratch.path("mnt/f"), Permissions::from_mode(bits)).unwrap();
            let mut other = Command::new("sh");
            other.args(["-c", "echo written"]).uid(OTHER_USER).gid(OTHER_USER).stdout(file.try_clone().unwrap());
            assert!(other.status().unwrap().success());
            for name in ["data/f", "mnt/f"] {
                let mode = fs::metadata(scratch.path(name)).unwrap().permissions().mode() & 0o7777;
                assert_eq!(mode, 0o777, "{line}, {bits:o}: {name}");
            }
            drop(file);
            fs::remove_file(scratch.path("mnt/f")).unwrap();
        }
        // The daemon itself keeps the right: through it, root's writes leave the bits.
        scratch.write("data/g", "");
        fs::set_permissions(scratch.path("data/g"), Permissions::from_mode(0o4755)).unwrap();
        fs::write(scratch.path("mnt/g"), "by root").unwrap();
        assert_eq!(fs::metadata(scratch.path("data/g")).unwrap().permissions().mode() & 0o7777, 0o4755);
        scratch.good(&["umount", "mnt"]);
    }
}

/// The log says which way was chosen: `nopassthrough`, a write-back cache, changes that are durable at once, and a layer that
/// is to be measured each keep the daemon in the way. What is written is there in every way.
#[test]
fn the_way_of_each_mount() {
    if !can_mount() {
        return;
    }
    let lines = [
        ("hostdir:data", "allow_other", true),
        ("wrap:passthrough=on / hostdir:data", "allow_other", true),
        ("hostdir:data", "nopassthrough", false),
        ("hostdir:data", "writeback", false),
        ("hostdir:data", "dirsync", false),
        ("wrap / hostdir:data", "allow_other", false),
        ("zstd / hostdir:data", "allow_other", false),
    ];
    for (line, option, expected) in lines {
        let scratch = Scratch::new();
        if mounted(&scratch, "hostdir:data").is_none() {
            return;
        }
        scratch.good(&["umount", "mnt"]);
        scratch.good(&["mount", "-v", "--log-file", "log", "-o", option, line, "mnt"]);
        let log = fs::read_to_string(scratch.path("log")).unwrap();
        assert_eq!(log.contains("files passed through"), expected, "{line} -o {option}: {log}");
        scratch.write("mnt/f", "content");
        assert_eq!(fs::read_to_string(scratch.path("mnt/f")).unwrap(), "content");
        scratch.good(&["umount", "mnt"]);
        assert_eq!(fs::read(scratch.path("data/f")).unwrap() == b"content", !line.contains("zstd"), "{line}");
    }
}
