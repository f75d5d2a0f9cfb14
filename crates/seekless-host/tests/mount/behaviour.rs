//! Aim: concurrency and errors stay local. Method: many programs, slow requests, broken disks, panics and kills.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, Wish, on_every_mount};
use crate::troubled::{BROKEN, PANIC, SLOW, SLOW_FOR, SLOWEST, SLOWEST_FOR};

/// Programs that work at the same time do not disturb each other.
#[test]
fn processes_work_at_the_same_time() {
    const SCRIPT: &str = r#"
        set -e
        mkdir "$0"; cd "$0"
        for i in 1 2 3 4 5 6 7 8 9 10; do
            head -c 50000 /dev/zero | tr '\0' "$1" > file$i
            mv file$i renamed$i
            ln renamed$i linked$i
            cat linked$i >> all
            rm linked$i
        done
        [ "$(tr -d "$1" < all | wc -c)" = 0 ]
        [ "$(wc -c < all)" = 500000 ]
        [ "$(ls | wc -l)" = 11 ]
    "#;
    on_every_mount(|daemon, _| {
        let children: Vec<_> = ["a", "b", "c", "d", "e", "f"]
            .into_iter()
            .map(|letter| Command::new("/bin/sh").arg("-c").arg(SCRIPT).arg(daemon.path(letter)).arg(letter).spawn())
            .collect();
        for child in children {
            assert!(child.unwrap().wait().unwrap().success());
        }
    });
}

/// Many threads read and write one file, each its own part.
///
/// Where others may change files, every new time of change makes the kernel drop its pages. That may include a page
/// filled by a write that is not yet sent; when another thread reads ahead there, it fetches the old content, and keeps
/// it until the next time of change (seen on 6.18, most often while caches are dropped: whole pages behind the part of
/// another thread; the second read is right, and so is the storage, which `threads_make_a_file_longer` shows). So the
/// parts are too far from each other there for reading ahead.
#[test]
fn threads_share_a_file() {
    use std::os::unix::fs::FileExt;
    const THREADS: u8 = 8;
    const PART: usize = 300_000;
    /// More than the kernel is allowed to read ahead, 1 MiB.
    const GAP: usize = 2 << 20;
    on_every_mount(|daemon, wish| {
        let stride = if wish.exclusive { PART } else { PART + GAP };
        let path = daemon.path("shared");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let file = &file;
                scope.spawn(move || {
                    let at = (thread as usize * stride) as u64;
                    for round in 0..5 {
                        file.write_all_at(&vec![thread + round; PART], at).unwrap();
                        let mut back = vec![0; PART];
                        file.read_exact_at(&mut back, at).unwrap();
                        assert!(back.iter().all(|&byte| byte == thread + round));
                    }
                });
            }
        });
        assert_eq!(fs::metadata(&path).unwrap().len(), ((THREADS as usize - 1) * stride + PART) as u64);
    });
}

/// Many threads extend one file, each by its own part. The storage then holds what they wrote, even if others may
/// change the file. Method: the kernel's copies are dropped before the file is read.
#[test]
fn threads_make_a_file_longer() {
    use std::os::unix::fs::FileExt;
    const THREADS: u8 = 8;
    const PART: usize = 300_000;
    on_every_mount(|daemon, _| {
        let file = File::options().read(true).write(true).create_new(true).open(daemon.path("longer")).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let file = &file;
                scope.spawn(move || {
                    for round in 0..5 {
                        file.write_all_at(&vec![thread + round; PART], (thread as usize * PART) as u64).unwrap();
                    }
                });
            }
        });
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        for thread in 0..THREADS {
            let mut back = vec![0; PART];
            file.read_exact_at(&mut back, (thread as usize * PART) as u64).unwrap();
            let wrong = back.iter().position(|&byte| byte != thread + 4);
            assert!(wrong.is_none(), "part {thread} is another one from byte {wrong:?} on");
        }
    });
}

/// A request that waits for a slow disk delays no other.
#[test]
fn slow_requests_hold_up_no_others() {
    on_every_mount(|daemon, _| {
        // In another directory, because the kernel locks a directory during a lookup.
        fs::create_dir(daemon.path("other")).unwrap();
        let slow = daemon.path("other").join(SLOW);
        let start = Instant::now();
        let waiting = std::thread::spawn(move || (slow.exists(), start.elapsed()));
        std::thread::sleep(Duration::from_millis(20));
        let mut others = 0;
        while !waiting.is_finished() {
            fs::write(daemon.path("quick"), "x").unwrap();
            others += 1;
        }
        let (exists, took) = waiting.join().unwrap();
        assert!(!exists && took >= Duration::from_nanos(SLOW_FOR.0), "{took:?}");
        // If it held up others, there would be one or two.
        assert!(others > 3, "only {others} writes while one lookup waited");
    });
}

/// A program that is killed while it waits leaves no trace.
#[test]
fn killed_programs_leave_nothing_behind() {
    on_every_mount(|daemon, _| {
        for _ in 0..3 {
            let mut child = Command::new("ls").arg(daemon.path(SLOW)).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(20));
            child.kill().unwrap();
            child.wait().unwrap();
            fs::write(daemon.path("after"), "alive").unwrap();
        }
        let mut writer = Command::new("dd")
            .args(["if=/dev/zero", "bs=1M", "count=400"])
            .arg(format!("of={}", daemon.path("big").display()))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(50));
        writer.kill().unwrap();
        writer.wait().unwrap();
        assert_eq!(fs::read_to_string(daemon.path("after")).unwrap(), "alive");
    });
}

/// An I/O error below is an I/O error of that one call.
#[test]
fn errors_below_are_errors_of_the_call() {
    on_every_mount(|daemon, _| {
        assert_eq!(fs::metadata(daemon.path(BROKEN)).unwrap_err().raw_os_error(), Some(libc::EIO));
        fs::write(daemon.path("fine"), "").unwrap();
    });
}

/// A bug in the daemon ends the mount with errors, instead of leaving programs waiting, or going on in the directory below.
#[test]
fn a_panic_ends_the_mount() {
    on_every_mount(|daemon, _| {
        let open = File::create(daemon.path("open")).unwrap();
        let slow = daemon.path(SLOWEST);
        let waiting = std::thread::spawn(move || fs::metadata(slow).unwrap_err().raw_os_error());
        std::thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        assert!(fs::metadata(daemon.path(PANIC)).is_err());
        let other = waiting.join().unwrap();
        assert!(matches!(other, Some(libc::ECONNABORTED | libc::ENOTCONN)), "{other:?}");
        assert!(start.elapsed() < Duration::from_nanos(SLOWEST_FOR.0) / 2, "{:?}", start.elapsed());
        let written = (&open).write_all(b"x").and_then(|()| open.sync_all());
        assert!(written.is_err());
        let deadline = Instant::now() + Duration::from_secs(1);
        while Instant::now() < deadline {
            fs::write(daemon.path("below"), "").unwrap_err();
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(daemon.is_mounted());
    });
}

/// A daemon that is killed gives errors, not silence.
#[test]
fn a_killed_daemon_gives_errors() {
    on_every_mount(|daemon, _| {
        fs::write(daemon.path("file"), "x").unwrap();
        daemon.signal(rustix::process::Signal::KILL);
        let start = Instant::now();
        while fs::metadata(daemon.path("other")).is_err_and(|error| error.raw_os_error() == Some(libc::ENOENT)) {
            assert!(start.elapsed() < Duration::from_secs(5));
        }
        let error = fs::metadata(daemon.path("another")).unwrap_err().raw_os_error();
        assert!(matches!(error, Some(libc::ENOTCONN | libc::ECONNABORTED)), "{error:?}");
    });
}

/// On a read-only mount the kernel refuses changes before they reach the daemon.
#[test]
fn a_read_only_mount_refuses_changes() {
    let wish = Wish { read_only: true, ..Wish::default() };
    let Some(daemon) = Daemon::start(&wish) else { return };
    assert_eq!(fs::write(daemon.path("file"), "").unwrap_err().raw_os_error(), Some(libc::EROFS));
    let mut nothing = Vec::new();
    assert!(File::open(daemon.path("file")).and_then(|mut file| file.read_to_end(&mut nothing)).is_err());
}
