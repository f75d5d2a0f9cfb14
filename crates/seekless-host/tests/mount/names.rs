//! Aim: directories and names behave as on any Linux file system. Method: the system calls of programs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};
use rustix::io::Errno;

use crate::daemon::{Daemon, Wish, on_every_mount};

/// Every kind of file can be made and is what it was made as; the umask is obeyed.
#[test]
fn all_kinds_of_files() {
    on_every_mount(|daemon, _| {
        let at = |name: &str| daemon.path(name);
        fs::DirBuilder::new().mode(0o777).create(at("directory")).unwrap();
        symlink("/some/where else", at("link")).unwrap();
        let mode = Mode::from_raw_mode(0o666);
        mknodat(CWD, at("fifo"), FileType::Fifo, mode, 0).unwrap();
        mknodat(CWD, at("socket"), FileType::Socket, mode, 0).unwrap();
        mknodat(CWD, at("null"), FileType::CharacterDevice, mode, rustix::fs::makedev(1, 3)).unwrap();
        mknodat(CWD, at("disk"), FileType::BlockDevice, mode, rustix::fs::makedev(259, 70_000)).unwrap();
        mknodat(CWD, at("file"), FileType::RegularFile, mode, 0).unwrap();
        let kind = |name: &str| fs::symlink_metadata(at(name)).unwrap().file_type();
        assert!(kind("directory").is_dir() && kind("link").is_symlink() && kind("file").is_file());
        assert!(kind("fifo").is_fifo() && kind("socket").is_socket());
        assert!(kind("null").is_char_device() && kind("disk").is_block_device());
        assert_eq!(fs::read_link(at("link")).unwrap().as_os_str(), "/some/where else");
        assert_eq!(fs::metadata(at("null")).unwrap().rdev(), rustix::fs::makedev(1, 3));
        assert_eq!(fs::metadata(at("disk")).unwrap().rdev(), rustix::fs::makedev(259, 70_000));
        // SAFETY: reads the umask by setting it, as there is no other way; other tests set none.
        let umask = unsafe {
            let umask = libc::umask(0o022);
            libc::umask(umask);
            umask
        };
        assert_eq!(fs::metadata(at("directory")).unwrap().mode() & 0o7777, 0o777 & !umask);
        assert_eq!(fs::metadata(at("file")).unwrap().mode() & 0o7777, 0o666 & !umask);
    });
}

/// Hard links share an inode, and link counts tell.
#[test]
fn hard_links() {
    on_every_mount(|daemon, _| {
        let (one, two) = (daemon.path("one"), daemon.path("two"));
        fs::write(&one, b"shared").unwrap();
        fs::hard_link(&one, &two).unwrap();
        let (a, b) = (fs::metadata(&one).unwrap(), fs::metadata(&two).unwrap());
        assert_eq!((a.ino(), a.nlink(), b.nlink()), (b.ino(), 2, 2));
        fs::write(&two, b"changed").unwrap();
        assert_eq!(fs::read(&one).unwrap(), b"changed");
        fs::remove_file(&one).unwrap();
        assert_eq!(fs::metadata(&two).unwrap().nlink(), 1);
        assert_eq!(fs::hard_link(&one, &two).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    });
}

/// Rename replaces, refuses and swaps as its flags say, within and between directories.
#[test]
fn renames() {
    on_every_mount(|daemon, _| {
        let at = |name: &str| daemon.path(name);
        let read = |name: &str| fs::read_to_string(at(name)).ok();
        let rename = |from: &str, to: &str, flags| renameat_with(CWD, at(from), CWD, at(to), flags);
        fs::create_dir(at("a")).unwrap();
        fs::create_dir(at("b")).unwrap();
        fs::write(at("a/one"), "one").unwrap();
        fs::write(at("b/two"), "two").unwrap();
        assert_eq!(rename("a/one", "b/two", RenameFlags::NOREPLACE), Err(Errno::EXIST));
        rename("a/one", "b/two", RenameFlags::EXCHANGE).unwrap();
        assert_eq!((read("a/one"), read("b/two")), (Some("two".into()), Some("one".into())));
        rename("a/one", "b/two", RenameFlags::empty()).unwrap();
        assert_eq!((read("a/one"), read("b/two")), (None, Some("two".into())));
        assert_eq!(rename("a/one", "b/three", RenameFlags::empty()), Err(Errno::NOENT));
        assert_eq!(rename("b/two", "c", RenameFlags::EXCHANGE), Err(Errno::NOENT));
        rename("b", "a/c", RenameFlags::NOREPLACE).unwrap();
        assert_eq!(read("a/c/two"), Some("two".into()));
        assert_eq!(rename("a", "a/c/d", RenameFlags::empty()), Err(Errno::INVAL));
        fs::create_dir(at("empty")).unwrap();
        assert_eq!(rename("empty", "a", RenameFlags::empty()), Err(Errno::NOTEMPTY));
        rename("a", "empty", RenameFlags::empty()).unwrap();
        assert_eq!(read("empty/c/two"), Some("two".into()));
    });
}

/// The errors that programs rely on.
#[test]
fn errors_of_names() {
    on_every_mount(|daemon, _| {
        let at = |name: &str| daemon.path(name);
        let errno = |result: std::io::Result<()>| result.unwrap_err().raw_os_error().unwrap();
        fs::create_dir_all(at("d/e")).unwrap();
        fs::write(at("f"), "").unwrap();
        assert_eq!(errno(fs::create_dir(at("d"))), libc::EEXIST);
        assert_eq!(errno(fs::remove_dir(at("d"))), libc::ENOTEMPTY);
        assert_eq!(errno(fs::remove_dir(at("f"))), libc::ENOTDIR);
        assert_eq!(errno(fs::remove_file(at("d"))), libc::EISDIR);
        assert_eq!(errno(fs::remove_file(at("none"))), libc::ENOENT);
        assert_eq!(errno(fs::metadata(at("f/x")).map(drop)), libc::ENOTDIR);
        assert_eq!(errno(fs::write(at(&"n".repeat(256)), "")), libc::ENAMETOOLONG);
        let exclusive = OpenOptions::new().write(true).create_new(true).open(at("f"));
        assert_eq!(errno(exclusive.map(drop)), libc::EEXIST);
        fs::write(at(&"n".repeat(255)), "").unwrap();
        let strange = OsStr::from_bytes(b"\xff\xfe \n\\ \x01");
        fs::write(daemon.root().join(strange), "strange").unwrap();
        assert_eq!(fs::read(daemon.root().join(strange)).unwrap(), b"strange");
        // Gone, made and gone again: the kernel may remember that a name is not there.
        for _ in 0..3 {
            assert!(!at("blink").exists());
            fs::write(at("blink"), "").unwrap();
            assert!(at("blink").exists());
            fs::remove_file(at("blink")).unwrap();
        }
    });
}

/// A listing shows every file of a large directory once, also while others come and go.
#[test]
fn large_directories_are_listed() {
    const FILES: usize = 10_000;
    on_every_mount(|daemon, _| {
        let directory = daemon.path("large");
        fs::create_dir(&directory).unwrap();
        let name = |i: usize| format!("file {i:05} with a name that is not quite short");
        for i in 0..FILES {
            OpenOptions::new().write(true).create_new(true).open(directory.join(name(i))).unwrap();
        }
        let list = || -> Vec<String> {
            fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        let all: BTreeSet<String> = (0..FILES).map(name).collect();
        let listed = list();
        assert_eq!((listed.len(), listed.into_iter().collect::<BTreeSet<_>>() == all), (FILES, true));
        // Every other file goes while the listing is under way.
        let mut listing = fs::read_dir(&directory).unwrap();
        let mut seen: Vec<String> = Vec::new();
        for i in 0..FILES / 2 {
            seen.extend(listing.by_ref().take(2).map(|entry| entry.unwrap().file_name().into_string().unwrap()));
            fs::remove_file(directory.join(name(2 * i + 1))).unwrap();
        }
        seen.extend(listing.map(|entry| entry.unwrap().file_name().into_string().unwrap()));
        let unique: BTreeSet<_> = seen.iter().cloned().collect();
        assert_eq!(unique.len(), seen.len(), "a name was listed twice");
        assert!((0..FILES / 2).all(|i| unique.contains(&name(2 * i))), "a file that stayed was not listed");
        assert_eq!(list().len(), FILES / 2);
        fs::remove_dir_all(&directory).unwrap();
        assert!(!directory.exists());
    });
}

/// Permissions are checked for programs that are not root.
#[test]
fn permissions_are_checked() {
    const NOBODY: u32 = 65534;
    let wish = Wish { allow_other: true, ..Default::default() };
    let Some(daemon) = Daemon::start(&wish) else { return };
    let path = daemon.path("secret");
    fs::write(&path, "secret").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let parent = daemon.root().parent().unwrap().to_owned();
    fs::set_permissions(parent, fs::Permissions::from_mode(0o755)).unwrap();
    let as_nobody = |script: &str| {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new("/bin/sh");
        command.arg("-c").arg(script).arg(&path).uid(NOBODY).gid(NOBODY);
        command.stderr(std::process::Stdio::null()).status().unwrap().success()
    };
    assert!(!as_nobody("cat \"$0\""));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    assert!(as_nobody("cat \"$0\" > /dev/null"));
    // An unprivileged user changes the data: set-user-id and set-group-id are cleared.
    assert!(as_nobody("printf x >> \"$0\""));
    assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o777);
    assert!(!as_nobody("echo > \"$(dirname \"$0\")/new\""));
    fs::set_permissions(daemon.root(), fs::Permissions::from_mode(0o1777)).unwrap();
    assert!(as_nobody("echo > \"$(dirname \"$0\")/new\""));
    assert_eq!(fs::metadata(daemon.path("new")).unwrap().uid(), NOBODY);
}

/// A change of another user's file clears its set-user-id and set-group-id, visibly at once and to all: also to
/// programs that ask for the mode alone, as the kernel does when it runs the file.
#[test]
fn changes_take_privileges_away() {
    use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    for wish in Wish::every_way() {
        let Some(daemon) = Daemon::start(&Wish { allow_other: true, ..wish.clone() }) else { return };
        let path = daemon.path("privileged");
        fs::write(&path, "#!/bin/true").unwrap();
        let parent = daemon.root().parent().unwrap().to_owned();
        fs::set_permissions(parent, fs::Permissions::from_mode(0o755)).unwrap();
        let mode = || {
            let stat = statx(CWD, &path, AtFlags::empty(), StatxFlags::MODE).unwrap();
            stat.stx_mode & 0o7777
        };
        let changes =
            ["printf x >>\"$0\"", "printf x 1<>\"$0\"", "fallocate -l 9000 \"$0\"", "truncate -s 3 \"$0\"", ":>\"$0\""];
        for change in changes {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
            let mut command = std::process::Command::new("/bin/sh");
            let status = command.arg("-c").arg(change).arg(&path).uid(NOBODY).gid(NOBODY).status().unwrap();
            assert!(status.success(), "{wish:?}: {change}");
            assert_eq!(mode(), 0o777, "{wish:?}: {change}");
        }
    }
}
