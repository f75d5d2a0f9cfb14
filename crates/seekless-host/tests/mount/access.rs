//! Aim: access-control lists decide about access, follow changes of permissions, and are inherited by new files.
//! Method: the system calls of programs of several users, whose credentials threads of this program take on.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, XattrFlags, getxattr, listxattr, mknodat, removexattr, setxattr};
use rustix::io::Errno;
use seekless::fs::acl::Acl;

use crate::daemon::{Daemon, Wish};

const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";

fn set(path: &Path, name: &str, text: &str) -> Result<(), Errno> {
    setxattr(path, name, &text.parse::<Acl>().unwrap().to_xattr(), XattrFlags::empty())
}

/// The list as text.
fn get(path: &Path, name: &str) -> Result<String, Errno> {
    let mut value = vec![0; 4096];
    let bytes = getxattr(path, name, &mut value)?;
    Ok(Acl::from_xattr(&value[..bytes]).unwrap().to_string())
}

fn permissions(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// Runs `body` as another user, with that user's umask.
fn as_user<T: Send>(uid: u32, groups: &[u32], umask: u32, body: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            let (uid, gid) = (u64::from(uid), u64::from(groups[0]));
            // SAFETY: raw calls, unlike those of the C library, change the calling thread alone; they read `groups`, and
            // the umask of a thread with a directory of its own is its own.
            unsafe {
                assert_eq!(libc::unshare(libc::CLONE_FS), 0);
                libc::umask(umask);
                assert_eq!(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()), 0);
                assert_eq!(libc::syscall(libc::SYS_setresgid, gid, gid, gid), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
            }
            body()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// What a user may do with a file: `r`, `w`.
fn rights(path: &Path, uid: u32, groups: &[u32]) -> &'static str {
    as_user(uid, groups, 0, || {
        let may = |read, write| match OpenOptions::new().read(read).write(write).open(path) {
            Ok(_) => true,
            Err(error) if error.raw_os_error() == Some(libc::EACCES) => false,
            Err(error) => panic!("{}: {error}", path.display()),
        };
        match (may(true, false), may(false, true)) {
            (true, true) => "rw",
            (true, false) => "r-",
            (false, true) => "-w",
            (false, false) => "--",
        }
    })
}

/// Runs `check` on mounts of every kind that all users may use.
fn on_open_mounts(check: impl Fn(&Daemon)) {
    for wish in Wish::every_way() {
        let wish = Wish { allow_other: true, ..wish };
        let Some(daemon) = Daemon::start(&wish) else { return };
        eprintln!("with {wish:?}");
        fs::set_permissions(daemon.root().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
        check(&daemon);
    }
}

/// Named users and groups get the rights of their entries within the mask, and changes of the permissions change the
/// mask.
#[test]
fn lists_are_obeyed() {
    on_open_mounts(|daemon| {
        let path = &daemon.path("f");
        fs::write(path, b"content").unwrap();
        chown(path, Some(3001), Some(3002)).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        let all = || {
            [(3001, 3001), (4001, 4001), (4002, 4002), (4003, 5001), (4004, 3002)]
                .map(|(uid, gid)| rights(path, uid, &[gid]))
        };
        assert_eq!(all(), ["rw", "--", "--", "--", "--"]);
        let list = "u::rw-,u:4001:rw-,g::---,g:5001:r--,m::rw-,o::---";
        set(path, ACCESS, list).unwrap();
        assert_eq!((permissions(path), &*get(path, ACCESS).unwrap()), (0o660, list));
        assert_eq!(all(), ["rw", "rw", "--", "r-", "--"], "the owning group has nothing, whatever the bits say");
        assert_eq!(rights(path, 4009, &[1, 2, 5001]), "r-", "further groups count");
        let as_owner = |mode| {
            let changed = as_user(3001, &[3002], 0, || fs::set_permissions(path, fs::Permissions::from_mode(mode)));
            changed.unwrap();
        };
        as_owner(0o640);
        assert_eq!(get(path, ACCESS).unwrap(), "u::rw-,u:4001:rw-,g::---,g:5001:r--,m::r--,o::---");
        assert_eq!(all(), ["rw", "r-", "--", "r-", "--"]);
        // Not with an empty mask: then Linux skips the list, and every named user counts as one of the others.
        as_owner(0o414);
        assert_eq!(get(path, ACCESS).unwrap(), "u::r--,u:4001:rw-,g::---,g:5001:r--,m::--x,o::r--");
        assert_eq!(all(), ["r-", "--", "r-", "--", "--"]);
        // A named user is not one of the others, and a member of several groups has the rights of any of them.
        set(path, ACCESS, "u::rw-,u:4001:---,g::r--,g:5001:-w-,m::rwx,o::rw-").unwrap();
        assert_eq!(all(), ["rw", "--", "rw", "-w", "r-"]);
        assert_eq!(rights(path, 4009, &[5001, 3002]), "rw");
        // Without the list, the mask's place is the group's.
        removexattr(path, ACCESS).unwrap();
        assert_eq!((get(path, ACCESS), permissions(path)), (Err(Errno::NODATA), 0o676));
        assert_eq!(all(), ["rw", "rw", "rw", "rw", "rw"]);
        assert_eq!(removexattr(path, ACCESS), Ok(()), "as with other file systems");
        // A list that says no more than permissions is permissions.
        set(path, ACCESS, "u::r--,g::-w-,o::---").unwrap();
        assert_eq!((get(path, ACCESS), permissions(path)), (Err(Errno::NODATA), 0o420));
        assert_eq!(listxattr(path, &mut [0; 100]), Ok(0));
    });
}

/// What is made in a directory with a default list has it, and the umask counts only elsewhere.
#[test]
fn default_lists_are_inherited() {
    on_open_mounts(|daemon| {
        let directory = &daemon.path("d");
        fs::create_dir(directory).unwrap();
        fs::create_dir(daemon.path("plain")).unwrap();
        fs::set_permissions(daemon.path("plain"), fs::Permissions::from_mode(0o777)).unwrap();
        let default = "u::rwx,u:4001:rwx,g::r-x,m::rwx,o::--x";
        set(directory, DEFAULT, default).unwrap();
        set(directory, ACCESS, "u::rwx,u:4001:rwx,g::r-x,m::rwx,o::rwx").unwrap();
        let make = |parent: &str| {
            let at = |name: &str| daemon.path(&format!("{parent}/{name}"));
            as_user(4005, &[4005], 0o077, || {
                OpenOptions::new().write(true).create_new(true).mode(0o666).open(at("f")).unwrap();
                fs::create_dir(at("e")).unwrap();
                mknodat(CWD, at("p"), FileType::Fifo, Mode::from_raw_mode(0o646), 0).unwrap();
                symlink("f", at("s")).unwrap();
            });
        };
        make("plain");
        make("d");
        let found = |path: &str| (permissions(&daemon.path(path)), get(&daemon.path(path), ACCESS).ok());
        assert_eq!(found("plain/f"), (0o600, None));
        assert_eq!(found("plain/e"), (0o700, None));
        assert_eq!(found("plain/p"), (0o600, None));
        let text = |text: &str| Some(text.to_string());
        assert_eq!(found("d/f"), (0o660, text("u::rw-,u:4001:rwx,g::r-x,m::rw-,o::---")));
        assert_eq!(found("d/p"), (0o640, text("u::rw-,u:4001:rwx,g::r-x,m::r--,o::---")));
        assert_eq!(found("d/e"), (0o771, text(default)));
        assert_eq!(get(&daemon.path("d/e"), DEFAULT).unwrap(), default);
        assert_eq!(get(&daemon.path("d/f"), DEFAULT), Err(Errno::NODATA));
        assert_eq!(permissions(&daemon.path("d/s")), 0o777);
        assert_eq!(rights(&daemon.path("d/f"), 4001, &[1]), "rw");
        assert_eq!(rights(&daemon.path("d/f"), 4002, &[1]), "--");
        as_user(4001, &[4001], 0, || fs::write(daemon.path("d/e/deeper"), b"x").unwrap());
        assert_eq!(rights(&daemon.path("d/e/deeper"), 4001, &[1]), "rw");
        // From now on the umask again.
        removexattr(directory, DEFAULT).unwrap();
        as_user(4005, &[4005], 0o027, || File::create(daemon.path("d/later")).unwrap());
        assert_eq!(found("d/later"), (0o640, None));
    });
}

/// Only owners may set lists; a set-group-id bit is cleared when the setter is not in the group.
#[test]
fn lists_are_set_by_owners() {
    on_open_mounts(|daemon| {
        let path = &daemon.path("program");
        fs::write(path, b"#!").unwrap();
        let list = "u::rwx,u:7:r-x,g::r-x,m::r-x,o::---";
        let owned = |mode| {
            chown(path, Some(4001), Some(5001)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        owned(0o755);
        assert_eq!(as_user(4002, &[5001], 0, || set(path, ACCESS, list)), Err(Errno::PERM));
        assert_eq!(as_user(4002, &[5001], 0, || removexattr(path, ACCESS)), Err(Errno::PERM));
        for (groups, left) in [(&[4001][..], 0o4750), (&[4001, 5001], 0o6750), (&[5001], 0o6750)] {
            owned(0o6755);
            as_user(4001, groups, 0, || set(path, ACCESS, list)).unwrap();
            assert_eq!((permissions(path), &*get(path, ACCESS).unwrap()), (left, list), "groups {groups:?}");
        }
        owned(0o6755);
        set(path, ACCESS, list).unwrap();
        assert_eq!(permissions(path), 0o6750, "root may");
        assert_eq!(set(path, DEFAULT, list), Err(Errno::ACCESS));
        assert_eq!(setxattr(path, ACCESS, &[2, 0, 0, 0, 9], XattrFlags::empty()), Err(Errno::INVAL));
        let unmasked = [&[2, 0, 0, 0][..], &[1, 0, 7, 0, 255, 255, 255, 255], &[2, 0, 7, 0, 1, 0, 0, 0]].concat();
        assert_eq!(setxattr(path, ACCESS, &unmasked, XattrFlags::empty()), Err(Errno::INVAL));
        let link = daemon.path("link");
        symlink("nowhere", &link).unwrap();
        let value = list.parse::<Acl>().unwrap().to_xattr();
        assert_eq!(rustix::fs::lsetxattr(&link, ACCESS, &value, XattrFlags::empty()), Err(Errno::OPNOTSUPP));
        // As long as a list can be that the kernel takes: it asks for a page.
        let users: String = (1..=507).map(|uid| format!("u:{uid}:rwx,")).collect();
        let long = format!("u::rwx,{users}g::r-x,m::rwx,o::---");
        set(path, ACCESS, &long).unwrap();
        assert_eq!(get(path, ACCESS).unwrap(), long);
    });
}

/// A file system without lists refuses them, and the umask is the kernel's to apply.
#[test]
fn without_lists() {
    let Some(daemon) = Daemon::start(&Wish { access_lists: false, allow_other: true, ..Wish::default() }) else {
        return;
    };
    fs::set_permissions(daemon.root().parent().unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    let directory = daemon.path("d");
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
    let list = "u::rwx,u:4001:rwx,g::r-x,m::rwx,o::r-x";
    assert_eq!(set(&directory, DEFAULT, list), Err(Errno::OPNOTSUPP));
    assert_eq!(set(&directory, ACCESS, list), Err(Errno::OPNOTSUPP));
    assert_eq!(get(&directory, ACCESS), Err(Errno::OPNOTSUPP));
    as_user(4005, &[4005], 0o027, || File::create(directory.join("f")).unwrap());
    assert_eq!(permissions(&directory.join("f")), 0o640);
    assert_eq!(rights(&directory.join("f"), 4001, &[4005]), "r-");
}
