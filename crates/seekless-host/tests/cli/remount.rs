//! `mount -o remount`: alone, and beside other processes.

use std::process::Stdio;

use rustix::process::{Signal, kill_process};
use seekless_host::testing::{Need, SmallTmpfs, skip};

use crate::mounts::{LINE, await_word, daemon, kill, prepared};
use crate::{Scratch, can_mount};

/// `mount -o remount` changes what it can: after it becomes read-only, everything is on the volume and changes are
/// refused; what it cannot change, it refuses. The options are those that mount(8) passes to its helper.
#[test]
fn mounts_change_in_place() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    let remount = |options: &str| {
        let rest = "relatime,remount,user_id=0,group_id=0,default_permissions";
        scratch.run_as("mount.fuse.seekless", &[LINE, "mnt", "-o", &format!("{options},{rest}")])
    };
    let ended = remount("ro");
    assert_eq!((ended.code, &*ended.err), (32, "seekless: mnt is not a mount point of Seekless\n"));
    scratch.good(&["mount", LINE, "mnt", "-o", "dirsync,lazytime,silent,nosymfollow,noiversion", "--pid-file", "pid"]);
    scratch.good(&["mount", LINE, "mnt", "-o", "remount,noatime"]);
    scratch.write("mnt/f", "hello");
    let busy = std::fs::File::options().append(true).open(scratch.path("mnt/f")).unwrap();
    let ended = remount("ro,dirsync");
    assert_eq!(
        (ended.code, &*ended.err),
        (32, "seekless: cannot remount mnt: Device or resource busy (os error 16)\n")
    );
    drop(busy);
    let ended = remount("ro,dirsync");
    assert_eq!((ended.code, &*ended.err), (0, ""));
    assert_eq!(std::fs::write(scratch.path("mnt/g"), "").unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    kill(&scratch);
    scratch.good(&["mount", LINE, "mnt"]);
    assert_eq!(std::fs::read(scratch.path("mnt/f")).unwrap(), b"hello", "it was durable");
    for options in ["ro", "rw"] {
        let ended = remount(options);
        assert_eq!((ended.code, &*ended.err), (0, ""), "{options}");
    }
    scratch.write("mnt/g", "again");
    let ended = remount("rw,sync");
    let text = "seekless: `sync` cannot be changed while it is mounted; unmount mnt and mount it again\n";
    assert_eq!((ended.code, &*ended.err), (32, text));
    scratch.good(&["umount", "mnt"]);
    scratch.good(&["mount", LINE, "mnt", "-o", "ro"]);
    let ended = remount("rw");
    let text = "seekless: mnt was opened for reading only; unmount it and mount it again with -o rw\n";
    assert_eq!((ended.code, &*ended.err), (32, text));
    assert_eq!(std::fs::write(scratch.path("mnt/h"), "").unwrap_err().kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    scratch.good(&["umount", "mnt"]);
}

/// Aim: a remount beside an unmount says that the mount has gone, and changes nothing that is mounted below it. Method: a tmpfs
/// below; a daemon that is stopped while the remount waits for it, and goes on when it is unmounted.
#[test]
fn a_remount_beside_an_unmount_says_so() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    let Some(below) = SmallTmpfs::mount(&scratch.path("mnt"), 1 << 20) else { return };
    for options in ["remount,ro", "remount,ro,noatime"] {
        scratch.good(&["mount", LINE, "mnt", "--pid-file", "pid"]);
        let pid = daemon(&scratch);
        kill_process(pid, Signal::STOP).unwrap();
        let mut command = scratch.command();
        let command = command.args(["mount", LINE, "mnt", "--timeout", "60", "-o", options]);
        let mut remount = command.stderr(Stdio::piped()).spawn().unwrap();
        let said = await_word(&mut remount);
        let ended = scratch.run(&["umount", "--lazy", "mnt"]);
        assert_eq!(ended.code, 0, "{}", ended.err);
        kill_process(pid, Signal::CONT).unwrap();
        let ended = scratch.ended_after(said, remount);
        let problem = "seekless: mnt was unmounted in the meantime: there is nothing to remount\n";
        assert_eq!((ended.code, &*ended.complaints()), (32, problem), "{options}: {}", ended.err);
        scratch.write("mnt/f", "what is below can still be written");
        std::fs::remove_file(scratch.path("mnt/f")).unwrap();
    }
    drop(below);
    // Without another process, as before.
    let ended = scratch.run(&["mount", LINE, "mnt", "-o", "remount,ro"]);
    assert_eq!((ended.code, &*ended.err), (32, "seekless: mnt is not a mount point of Seekless\n"));
}

/// Root changes the mount of a user who lets no other user in. Its daemon answers only its user.
#[test]
fn root_changes_what_it_may_not_enter() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    for name in ["data", "mnt"] {
        scratch.make_directory(name);
        std::os::unix::fs::chown(scratch.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(scratch.path("."), mode).unwrap();
    let as_user = |arguments: &[&str]| scratch.command().args(arguments).uid(NOBODY).gid(NOBODY).output().unwrap();
    let mounted = as_user(&["mount", "copy / hostdir:data", "mnt"]);
    if !mounted.status.success() {
        let why = format!("an ordinary user cannot mount here: {}", String::from_utf8_lossy(&mounted.stderr));
        return skip(Need::UserFuse, why);
    }
    assert_eq!(std::fs::metadata(scratch.path("mnt/.")).unwrap_err().raw_os_error(), Some(libc::EACCES));
    scratch.good(&["mount", "copy / hostdir:data", "mnt", "-o", "remount,noatime"]);
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let place = scratch.path("mnt").canonicalize().unwrap();
    let is_changed = table.lines().any(|line| line.contains(&*place.to_string_lossy()) && line.contains("noatime"));
    assert!(is_changed, "{table}");
    let unmounted = as_user(&["umount", "mnt"]);
    assert!(unmounted.status.success(), "{}", String::from_utf8_lossy(&unmounted.stderr));
}
