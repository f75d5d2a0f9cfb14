//! Aim: mounts begin and end cleanly, and a process that waits for the end can rely on its meaning. Method: every way
//! to begin and end one.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use seekless::units::Nanos;
use seekless_host::fuse::{UmountError, sync, umount};
use seekless_host::testing::{LoopDevice, Need, skip};

use crate::daemon::{Daemon, NoDaemon, Wish, on_every_mount};

const PATIENCE: Duration = Duration::from_secs(10);

/// SIGTERM and SIGINT unmount and close.
#[test]
fn signals_unmount() {
    for wish in Wish::every_way() {
        for signal in [Signal::TERM, Signal::INT] {
            let Some(mut daemon) = Daemon::start(&wish) else { return };
            fs::write(daemon.path("file"), "x").unwrap();
            daemon.signal(signal);
            let status = daemon.wait(PATIENCE).expect("the daemon ends");
            assert!(status.success(), "{status} with {wish:?}");
            assert!(daemon.has_mark("closed") && !daemon.is_mounted());
        }
    }
}

/// A mount whose place has got another name since, with a directory above, is unmounted at its end like any other.
#[test]
fn a_mount_is_unmounted_where_it_has_moved() {
    let Some(mut daemon) = Daemon::start(&Wish::default()) else { return };
    fs::write(daemon.path("file"), "x").unwrap();
    let root = daemon.root();
    let above = root.parent().unwrap();
    let moved = above.with_extension("moved");
    fs::rename(above, &moved).unwrap();
    // For the marks of the daemon.
    std::os::unix::fs::symlink(&moved, above).unwrap();
    let now = moved.join(root.file_name().unwrap());
    assert_eq!(fs::read(now.join("file")).unwrap(), b"x");
    daemon.signal(Signal::TERM);
    let status = daemon.wait(PATIENCE).expect("the daemon ends");
    let left = fs::read_dir(&now).map(Iterator::count);
    fs::remove_file(above).unwrap();
    fs::rename(&moved, above).unwrap();
    assert!(status.success(), "{status}");
    assert!(daemon.has_mark("closed") && left.is_ok_and(|left| left == 0), "the directory below is seen again");
}

/// SIGTERM ends a mount that is in use, too: what was written is kept, and its users get errors.
#[test]
fn a_mount_in_use_can_be_ended() {
    on_every_mount(|daemon, _| {
        let mut open = File::create(daemon.path("open")).unwrap();
        open.write_all(b"x").unwrap();
        daemon.signal(Signal::TERM);
        assert!(daemon.await_mark("closed", PATIENCE));
        let deadline = Instant::now() + PATIENCE;
        while open.sync_all().is_ok() || daemon.is_mounted() {
            assert!(Instant::now() < deadline, "the file is still served");
        }
    });
}

/// A plain unmount from outside closes the file system.
#[test]
fn unmounting_from_outside_closes() {
    on_every_mount(|daemon, _| {
        fs::write(daemon.path("file"), "x").unwrap();
        daemon.unmount();
        assert!(daemon.await_mark("closed", PATIENCE));
    });
}

/// Our own umount returns when the file system has been closed, which plain umount does not wait for.
#[test]
fn umount_waits_for_the_daemon() {
    let wish = Wish { close_takes: Nanos::from_secs(2), ..Wish::default() };
    let Some(daemon) = Daemon::start(&wish) else { return };
    daemon.unmount();
    assert!(!daemon.has_mark("closed"), "then there would be nothing to wait for");
    let Some(mut daemon) = Daemon::start(&wish) else { return };
    let start = Instant::now();
    umount(&daemon.root(), false, PATIENCE, |_| {}).unwrap();
    assert!(daemon.has_mark("closed") && start.elapsed() >= Duration::from_secs(2));
    assert!(daemon.wait(PATIENCE).unwrap().success());
    assert!(matches!(umount(&daemon.root(), false, PATIENCE, |_| {}), Err(UmountError::NotAMountPoint { .. })));
    assert!(matches!(umount(Path::new("/proc"), false, PATIENCE, |_| {}), Err(UmountError::NotOurs { .. })));

    let Some(daemon) = Daemon::start(&Wish { close_takes: Nanos::from_secs(5), ..Wish::default() }) else { return };
    let late = umount(&daemon.root(), false, Duration::from_secs(2), |_| {});
    assert!(matches!(late, Err(UmountError::StillWriting { .. })), "{late:?}");
}

/// A daemon that dies before it has written everything is reported.
#[test]
fn umount_reports_a_daemon_that_dies() {
    let Some(mut daemon) = Daemon::start(&Wish { close_takes: Nanos::from_secs(3), ..Wish::default() }) else { return };
    let root = daemon.root();
    let link = root.parent().unwrap().join("link");
    std::os::unix::fs::symlink(&root, &link).unwrap();
    let waiting = std::thread::spawn(move || umount(&link, false, PATIENCE, |_| {}));
    let deadline = Instant::now() + PATIENCE;
    while daemon.is_mounted() {
        assert!(Instant::now() < deadline);
    }
    std::thread::sleep(Duration::from_millis(50));
    daemon.signal(Signal::KILL);
    daemon.wait(PATIENCE).unwrap();
    let result = waiting.join().unwrap();
    // Before Linux 6.15 the status of another process's child is unknown.
    assert!(matches!(result, Err(UmountError::DaemonFailed { status: 137, .. }) | Ok(())), "{result:?}");
    eprintln!("{result:?}");
}

/// A mount in use is not unmounted by force, and a dead one can be taken away: `umount` then reports that it was dead.
#[test]
fn umount_of_busy_and_dead_mounts() {
    let Some(mut daemon) = Daemon::start(&Wish::default()) else { return };
    let open = File::create(daemon.path("open")).unwrap();
    assert!(matches!(umount(&daemon.root(), false, PATIENCE, |_| {}), Err(UmountError::Busy { .. })));
    daemon.signal(Signal::KILL);
    daemon.wait(PATIENCE).unwrap();
    drop(open);
    assert!(daemon.is_mounted());
    assert!(matches!(umount(&daemon.root(), false, PATIENCE, |_| {}), Err(UmountError::DaemonDead)));
    assert!(!daemon.is_mounted());
}

/// A mount point that cannot be is refused, with a reason, and nothing is left behind.
#[test]
fn a_dead_mount_point_is_explained() {
    let Some(mut daemon) = Daemon::start(&Wish::default()) else { return };
    daemon.signal(Signal::KILL);
    daemon.wait(PATIENCE).unwrap();
    let error = seekless_host::fuse::MountOptions::new(daemon.root(), "x");
    let reactor = seekless_host::reactor::Reactor::new(Default::default()).unwrap();
    let executor = reactor.executor();
    let rt = executor.rt().clone();
    let started = executor.block_on(async {
        let fs = seekless::testing::MemFs::new(&rt);
        seekless_host::fuse::Mount::start(&rt, &reactor, fs, error).await.map(drop)
    });
    let error = started.unwrap().unwrap_err().to_string();
    assert!(error.contains("daemon is gone") && error.contains("seekless umount"), "{error}");
}

/// A timer makes changes durable, and the file system gets idle time when no request is pending.
#[test]
fn commits_and_idle_time() {
    let wish = Wish { commit_interval: Nanos::from_millis(100), ..Wish::default() };
    let Some(daemon) = Daemon::start(&wish) else { return };
    fs::write(daemon.path("file"), "x").unwrap();
    assert!(daemon.await_mark("synced", PATIENCE));
    assert!(daemon.await_mark("idle", PATIENCE));
    daemon.remove_mark("synced");
    // FORGETs may still trickle in; afterwards nothing changes, so nothing is committed.
    let is_quiet = || {
        daemon.remove_mark("synced");
        std::thread::sleep(Duration::from_millis(300));
        !daemon.has_mark("synced")
    };
    assert!((0..20).any(|_| is_quiet()));
}

/// Through a mount of a directory of it, all of a mount is synced as well, even where that one is read-only.
#[test]
fn sync_reaches_the_daemon_from_below_the_root() {
    let Some(daemon) = Daemon::start(&Wish::default()) else { return };
    fs::create_dir(daemon.path("sub")).unwrap();
    let bind = daemon.bind("sub");
    for read_only in [false, true] {
        if read_only {
            let flags = rustix::mount::MountFlags::BIND | rustix::mount::MountFlags::RDONLY;
            rustix::mount::mount_remount(&bind.0, flags, c"").unwrap();
        }
        fs::write(daemon.path("file"), "x").unwrap();
        daemon.remove_mark("synced");
        sync(&bind.0).unwrap();
        assert!(daemon.has_mark("synced"), "read-only: {read_only}");
    }
}

/// Where a mount has a second place, its daemon goes on after an unmount: everything is synced, and nothing is waited for.
#[test]
fn umount_of_one_of_two_places() {
    for (relative, first_goes) in [("", true), ("", false), ("sub", true), ("sub", false)] {
        let Some(mut daemon) = Daemon::start(&Wish::default()) else { return };
        fs::create_dir(daemon.path("sub")).unwrap();
        let bind = daemon.bind(relative);
        let (gone, other) = if first_goes { (daemon.root(), &bind.0) } else { (bind.0.clone(), &daemon.root()) };
        let told = std::cell::RefCell::new(String::new());
        let result = umount(&gone, false, Duration::from_secs(5), |text| *told.borrow_mut() += text);
        assert!(result.is_ok() && daemon.has_mark("synced"), "{result:?}");
        let told = told.into_inner();
        assert!(told.contains(&other.display().to_string()), "{told}");
        // The last one waits for the end.
        umount(other, false, PATIENCE, |_| {}).unwrap();
        assert!(daemon.has_mark("closed") && daemon.wait(PATIENCE).unwrap().success());
    }
}

/// While the file system is being closed, the timer commits nothing more.
#[test]
fn nothing_is_committed_while_it_is_closed() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let Some(disk) = LoopDevice::attach(&image, 512) else { return };
    let wish = Wish {
        block_device: Some(disk.path().to_owned()),
        commit_interval: Nanos::from_millis(200),
        close_takes: Nanos::from_secs(1),
        ..Wish::default()
    };
    let Some(mut daemon) = Daemon::start(&wish) else { return };
    fs::write(daemon.path("file"), "x").unwrap();
    daemon.unmount();
    assert!(daemon.wait(PATIENCE).unwrap().success());
    assert!(daemon.has_mark("closed") && !daemon.has_mark("synced late"));
}

/// On a block device, `sync` and `syncfs` reach the file system, and `umount` returns after it has been closed.
#[test]
fn block_devices_are_synced_by_the_kernel() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("image");
    File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let Some(disk) = LoopDevice::attach(&image, 512) else { return };
    for transport in ["devfuse", "uring"] {
        if transport == "uring" && !crate::daemon::uring_is_offered() {
            continue;
        }
        let wish = Wish {
            transport,
            block_device: Some(disk.path().to_owned()),
            close_takes: Nanos::from_millis(300),
            ..Wish::default()
        };
        let Some(mut daemon) = Daemon::start(&wish) else { return };
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(table.contains("fuseblk.seekless"), "{table}");
        // The mount keeps others away from the device.
        let other = rustix::fs::open(disk.path(), rustix::fs::OFlags::EXCL, rustix::fs::Mode::empty());
        assert_eq!(other.unwrap_err(), rustix::io::Errno::BUSY);
        let file = File::create(daemon.path("file")).unwrap();
        rustix::fs::syncfs(&file).unwrap();
        assert!(daemon.has_mark("synced"));
        daemon.remove_mark("synced");
        rustix::fs::sync();
        assert!(daemon.has_mark("synced"));
        drop(file);
        daemon.unmount();
        assert!(daemon.has_mark("closed"), "umount came back before the file system was closed");
        assert!(daemon.wait(PATIENCE).unwrap().success());

        let Some(mut daemon) = Daemon::start(&wish) else { return };
        daemon.signal(Signal::TERM);
        assert!(daemon.wait(PATIENCE).unwrap().success());
        assert!(daemon.has_mark("closed") && !daemon.is_mounted());
    }
}

/// An ordinary user mounts and unmounts with the help of fusermount3.
#[test]
fn ordinary_users_mount() {
    const NOBODY: u32 = 65534;
    if Command::new("fusermount3").arg("-V").output().is_err() {
        return skip(Need::UserFuse, "fusermount3 is not installed");
    }
    let exe = std::env::current_exe().unwrap();
    let as_nobody = |script: &str, path: &Path| {
        use std::os::unix::process::CommandExt;
        let mut command = Command::new("/bin/sh");
        command.arg("-c").arg(script).arg(path).uid(NOBODY).gid(NOBODY).status().unwrap().success()
    };
    if !as_nobody("test -x \"$0\"", &exe) || !as_nobody("test -w \"$0\"", Path::new("/dev/fuse")) {
        let why = format!("an ordinary user may not run {} or open /dev/fuse", exe.display());
        return skip(Need::UserFuse, why);
    }
    let wish = Wish { as_user: Some(NOBODY), ..Wish::default() };
    let mut daemon = match Daemon::try_start(&wish) {
        Ok(daemon) => daemon,
        Err(NoDaemon::Skipped) => return,
        Err(NoDaemon::Failed(why)) => panic!("{why}"),
    };
    // The root directory of the model belongs to root, so that is all that its user may do.
    assert!(as_nobody("ls \"$0\" && test ! -w \"$0\"", &daemon.root()));
    // Not even root may enter without allow_other.
    assert_eq!(fs::metadata(daemon.path("file")).unwrap_err().raw_os_error(), Some(libc::EACCES));
    daemon.signal(Signal::TERM);
    assert!(daemon.wait(PATIENCE).unwrap().success());
    assert!(daemon.has_mark("closed") && !daemon.is_mounted());
}
