//! Aim: an overlay file system can write to a mount, as containers need. Method: the calls that overlays need, on
//! mounts and on a directory of the host, which must answer alike; then overlays on whole stacks, used as by a
//! container, beside a plain directory in which the same is done.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RenameFlags, XattrFlags, linkat, mknodat, renameat_with};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use seekless_host::testing::{Need, skip};

use crate::daemon::on_every_mount;

/// What overlays and container programs ask of the directory `root`.
fn check_calls(root: &Path) {
    let at = |name: &str| root.join(name);
    let rename = |from: &str, to: &str, flags| renameat_with(CWD, at(from), CWD, at(to), flags);
    let stat = |name: &str| fs::symlink_metadata(at(name)).unwrap();
    let is_whiteout = |name: &str| {
        let found = stat(name);
        found.file_type().is_char_device() && found.rdev() == 0 && found.mode() & 0o7777 == 0 && found.nlink() == 1
    };
    for directory in ["a", "b", "a/d", "group"] {
        fs::create_dir(at(directory)).unwrap();
    }
    for name in ["a/f", "a/g", "a/h", "b/old"] {
        fs::write(at(name), name).unwrap();
    }
    let (whiteout, spare) = (RenameFlags::WHITEOUT, RenameFlags::WHITEOUT | RenameFlags::NOREPLACE);
    assert_eq!(rename("a/none", "b/f", whiteout), Err(Errno::NOENT));
    assert_eq!(rename("a/f", "b/old", spare), Err(Errno::EXIST));
    assert_eq!(rename("a/f", "b/old", RenameFlags::WHITEOUT | RenameFlags::EXCHANGE), Err(Errno::INVAL));
    assert_eq!(rename("a/f", "b", whiteout), Err(Errno::ISDIR));
    assert_eq!(rename("a/d", "b/old", whiteout), Err(Errno::NOTDIR));
    assert_eq!(rename("a/d", "a/d/e", whiteout), Err(Errno::INVAL));
    assert!(!is_whiteout("a/f"));
    rename("a/f", "b/f", spare).unwrap();
    rename("a/g", "b/old", whiteout).unwrap();
    assert!(is_whiteout("a/f") && is_whiteout("a/g"));
    assert_eq!((fs::read(at("b/f")).unwrap(), fs::read(at("b/old")).unwrap()), (b"a/f".to_vec(), b"a/g".to_vec()));
    rename("a/d", "b/d", whiteout).unwrap();
    assert!(is_whiteout("a/d") && stat("b/d").is_dir());
    assert_eq!((stat("a").nlink(), stat("b").nlink()), (2, 3));
    fs::hard_link(at("a/h"), at("a/i")).unwrap();
    rename("a/h", "a/i", whiteout).unwrap();
    assert_eq!((stat("a/h").nlink(), stat("a/h").ino()), (2, stat("a/i").ino()), "two names of one file");
    fs::remove_file(at("a/f")).unwrap();
    rename("a/d", "a/g", RenameFlags::empty()).unwrap();
    assert!(is_whiteout("a/g"));

    // Files without names.
    chown(at("group"), None, Some(7)).unwrap();
    fs::set_permissions(at("group"), fs::Permissions::from_mode(0o2755)).unwrap();
    let open = |directory: &str, more: OFlags| {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | more;
        rustix::fs::open(at(directory), flags, Mode::from_raw_mode(0o600)).map(File::from)
    };
    let link = |file: &File, name: &str| {
        use std::os::fd::AsRawFd;
        let place = format!("/proc/self/fd/{}", file.as_raw_fd());
        linkat(CWD, place, CWD, at(name), AtFlags::SYMLINK_FOLLOW)
    };
    let changed = stat("group").mtime_nsec();
    let mut file = open("group", OFlags::empty()).unwrap();
    file.write_all(&[7; 70_000]).unwrap();
    let found = file.metadata().unwrap();
    assert_eq!((found.nlink(), found.len(), found.mode() & 0o7777, found.gid()), (0, 70_000, 0o600, 7));
    assert_eq!((fs::read_dir(at("group")).unwrap().count(), stat("group").mtime_nsec()), (0, changed));
    file.sync_all().unwrap();
    assert_eq!(link(&file, "a/h"), Err(Errno::EXIST));
    link(&file, "group/t").unwrap();
    linkat(&file, "", CWD, at("b/t"), AtFlags::EMPTY_PATH).unwrap();
    file.write_all(b"more").unwrap();
    assert_eq!((stat("b/t").nlink(), fs::read(at("group/t")).unwrap().len()), (2, 70_004));
    for name in ["group/t", "b/t"] {
        fs::remove_file(at(name)).unwrap();
    }
    assert_eq!(link(&file, "b/t"), Err(Errno::NOENT), "its last name is gone");
    assert_eq!(link(&open("a", OFlags::EXCL).unwrap(), "b/t"), Err(Errno::NOENT), "it cannot get a name");
    assert_eq!(open("a/h", OFlags::empty()).err(), Some(Errno::NOTDIR));
    for _ in 0..20 {
        open("a", OFlags::empty()).unwrap().write_all(&[1; 9000]).unwrap();
    }

    // Attributes that overlays keep, and those that no file system takes.
    for name in ["trusted.overlay.opaque", "user.overlay.opaque", "security.capability.x"] {
        rustix::fs::setxattr(at("b"), name, b"y", XattrFlags::empty()).unwrap();
    }
    for name in ["overlay.opaque", "nosuch.a"] {
        assert_eq!(rustix::fs::setxattr(at("b"), name, b"y", XattrFlags::empty()), Err(Errno::OPNOTSUPP));
        assert_eq!(rustix::fs::getxattr(at("b"), name, &mut [0; 8]), Err(Errno::OPNOTSUPP));
        assert_eq!(rustix::fs::removexattr(at("b"), name), Err(Errno::OPNOTSUPP));
    }
    assert_eq!(rustix::fs::setxattr(at("b"), "user.", b"y", XattrFlags::empty()), Err(Errno::INVAL));
}

/// Each mount answers as the host's file system does.
#[test]
fn what_overlays_need() {
    on_every_mount(|daemon, _| check_calls(&daemon.root()));
    if rustix::process::geteuid().is_root() {
        let here = tempfile::tempdir().unwrap();
        // ext4, btrfs and XFS; not every file system has all of it.
        let kind = rustix::fs::statfs(here.path()).unwrap().f_type;
        if [0xEF53, 0x9123_683E, 0x5846_5342].contains(&kind) {
            check_calls(here.path());
        }
    }
}

/// Everything in a directory: for each path what can be seen of it, as far as an overlay shows it as it is.
fn tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut open = vec![root.to_owned()];
    while let Some(path) = open.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        let mut text = format!("{:o} {}:{}", found.mode(), found.uid(), found.gid());
        if found.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if found.is_file() {
            text += &format!(" {:?}", String::from_utf8_lossy(&fs::read(&path).unwrap()));
        } else if found.is_symlink() {
            text += &format!(" -> {:?}", fs::read_link(&path).unwrap());
        } else {
            text += &format!(" {:x}", found.rdev());
        }
        let mut list = vec![0; 65536];
        let length = rustix::fs::llistxattr(&path, &mut list).unwrap_or(0);
        for name in list[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            let mut value = [0; 4096];
            let length = rustix::fs::lgetxattr(&path, name, &mut value).unwrap();
            text += &format!(" {}={:?}", String::from_utf8_lossy(name), &value[..length]);
        }
        all.insert(path.strip_prefix(root).unwrap().to_owned(), text);
    }
    all
}

fn assert_same(overlay: &Path, plain: &Path, when: &str) {
    let (here, there) = (tree(overlay), tree(plain));
    for (path, text) in &there {
        assert_eq!(here.get(path), Some(text), "{when}: {}", path.display());
    }
    let extra: Vec<_> = here.keys().filter(|path| !there.contains_key(*path)).collect();
    assert_eq!(extra, Vec::<&PathBuf>::new(), "{when}");
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {text}");
    text
}

/// What an image holds.
fn make_image(root: &Path) {
    let at = |name: &str| root.join(name);
    for directory in
        ["etc", "etc/ssl", "usr", "usr/bin", "usr/share", "usr/share/doc", "var", "var/log", "var/cache", "tmp"]
    {
        fs::DirBuilder::new().mode(0o755).create(at(directory)).unwrap();
    }
    for (name, text) in [
        ("etc/passwd", "root:x:0:0"),
        ("etc/hosts", "127.0.0.1 localhost"),
        ("etc/ssl/key", "secret"),
        ("usr/bin/tool", "#!/bin/sh"),
        ("usr/bin/other", "#!/bin/sh\nexit 1"),
        ("usr/share/doc/a", "first"),
        ("usr/share/doc/b", "second"),
        ("var/log/messages", "it began"),
        ("var/log/old", "long ago"),
        ("var/cache/x", "cached"),
    ] {
        fs::write(at(name), text).unwrap();
    }
    symlink("../bin/tool", at("usr/share/link")).unwrap();
    fs::set_permissions(at("usr/bin/other"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(at("tmp"), fs::Permissions::from_mode(0o1777)).unwrap();
    chown(at("var/log"), Some(3), Some(4)).unwrap();
}

/// What a package holds: every kind of file, links, owners and attributes.
fn make_package(root: &Path) {
    make_image(root);
    let at = |name: &str| root.join(name);
    let mode = Mode::from_raw_mode(0o640);
    mknodat(CWD, at("var/null"), FileType::CharacterDevice, mode, rustix::fs::makedev(1, 3)).unwrap();
    mknodat(CWD, at("var/disk"), FileType::BlockDevice, mode, rustix::fs::makedev(7, 9)).unwrap();
    mknodat(CWD, at("var/pipe"), FileType::Fifo, mode, 0).unwrap();
    fs::hard_link(at("etc/passwd"), at("etc/passwd-")).unwrap();
    // Not in the image: what an overlay copies up to a FUSE mount loses the bit, as it is given its owner after its mode.
    fs::set_permissions(at("usr/bin/other"), fs::Permissions::from_mode(0o4755)).unwrap();
    rustix::fs::setxattr(at("etc/hosts"), "user.origin", b"package", XattrFlags::empty()).unwrap();
    // `cap_net_raw+ep`
    let capability = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    rustix::fs::setxattr(at("usr/bin/tool"), "security.capability", &capability, XattrFlags::empty()).unwrap();
    fs::write(at("var/large"), "0123456789abcdef".repeat(40_000)).unwrap();
}

fn remove(path: PathBuf) {
    if path.is_dir() { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
}

/// What goes on in a container, in `root`.
fn work(root: &Path, package: &Path) {
    let at = |name: &str| root.join(name);
    let append = |name: &str, text: &str| {
        OpenOptions::new().append(true).open(at(name)).unwrap().write_all(text.as_bytes()).unwrap();
    };
    let rename =
        |from: &str, to: &str| fs::rename(at(from), at(to)).unwrap_or_else(|error| panic!("{from} {to}: {error}"));
    fs::create_dir(at("opt")).unwrap();
    run(Command::new("tar").args(["--xattrs", "--xattrs-include=*", "-xpf"]).arg(package).arg("-C").arg(at("opt")));
    // Change what came with the image.
    append("var/log/messages", ", and went on");
    fs::set_permissions(at("etc/ssl/key"), fs::Permissions::from_mode(0o600)).unwrap();
    chown(at("etc/passwd"), Some(5), Some(6)).unwrap();
    rustix::fs::setxattr(at("etc/hosts"), "user.note", b"mine", XattrFlags::empty()).unwrap();
    File::options().write(true).open(at("usr/bin/other")).unwrap().set_len(9).unwrap();
    // Remove some of it, and make other things of the same names.
    remove(at("var/log/old"));
    remove(at("var/cache"));
    remove(at("usr/share/doc"));
    fs::DirBuilder::new().mode(0o700).create(at("usr/share/doc")).unwrap();
    fs::write(at("usr/share/doc/b"), "another second").unwrap();
    remove(at("usr/share/link"));
    fs::write(at("usr/share/link"), "no longer a link").unwrap();
    // Replace as editors and package managers do.
    fs::write(at("etc/hosts.new"), "::1 localhost").unwrap();
    rename("etc/hosts.new", "etc/hosts");
    rename("usr/bin/tool", "usr/bin/renamed");
    // Rename directories of the image, of the package, and one onto the place of one that is gone.
    rename("var/log", "var/logs");
    append("var/logs/messages", ", elsewhere");
    rename("etc/ssl", "tmp/ssl");
    rename("opt/usr/share", "opt/share");
    fs::create_dir_all(at("var/cache/y")).unwrap();
    rename("var/cache/y", "etc/ssl");
    rename("opt/var", "var/moved");
    remove(at("opt/etc"));
    fs::write(at("etc/ssl/new"), "new").unwrap();
    // A file that gets its name when it is complete.
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let unnamed = rustix::fs::open(at("tmp"), flags, Mode::from_raw_mode(0o644)).unwrap();
    let mut unnamed = File::from(unnamed);
    unnamed.write_all(b"complete").unwrap();
    linkat(&unnamed, "", CWD, at("tmp/linked"), AtFlags::EMPTY_PATH).unwrap();
}

/// What goes on in it later.
fn work_on(root: &Path) {
    let at = |name: &str| root.join(name);
    remove(at("var/logs"));
    fs::rename(at("var/moved"), at("var/log")).unwrap();
    remove(at("usr/share"));
    fs::rename(at("tmp/ssl"), at("usr/share")).unwrap();
    remove(at("tmp/linked"));
    fs::write(at("var/log/fresh"), "fresh").unwrap();
    fs::rename(at("usr"), at("user")).unwrap();
    remove(at("etc"));
}

/// A stack, mounted with the program itself, and an overlay on it.
struct Bench {
    directory: tempfile::TempDir,
    line: &'static str,
}

impl Bench {
    fn at(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn seekless(&self, arguments: &[&str]) -> String {
        run(Command::new(env!("CARGO_BIN_EXE_seekless")).current_dir(self.directory.path()).args(arguments))
    }

    fn try_overlay(&self) -> rustix::io::Result<()> {
        let path = |name: &str| self.at(name).display().to_string();
        let options = format!(
            "lowerdir={},upperdir={},workdir={},redirect_dir=on",
            path("image"),
            path("mnt/upper"),
            path("mnt/work")
        );
        let options = std::ffi::CString::new(options).unwrap();
        rustix::mount::mount("overlay", self.at("merged"), "overlay", MountFlags::empty(), &*options)
    }

    /// Mounts the stack and the overlay, lets `program` work, and unmounts both.
    fn session(&self, program: impl FnOnce(&Path)) {
        self.seekless(&["mount", self.line, "mnt"]);
        for name in ["mnt/upper", "mnt/work"] {
            fs::create_dir_all(self.at(name)).unwrap();
        }
        self.try_overlay().unwrap_or_else(|error| panic!("{}: {error}", self.line));
        program(&self.at("merged"));
        rustix::mount::unmount(self.at("merged"), UnmountFlags::empty()).unwrap();
        self.seekless(&["umount", "mnt"]);
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.at("merged"), UnmountFlags::DETACH);
        let program = env!("CARGO_BIN_EXE_seekless");
        let _ = Command::new(program).args(["umount", "--lazy"]).arg(self.at("mnt")).output();
    }
}

fn bench(line: &'static str) -> Option<Bench> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        skip(Need::Fuse, "mounting needs root and /dev/fuse");
        return None;
    }
    let overlays = fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("\toverlay");
    if !overlays {
        skip(Need::Overlay, "this kernel has no overlay file system");
        return None;
    }
    let bench = Bench { directory: tempfile::tempdir().unwrap(), line };
    for name in ["image", "plain", "package", "mnt", "merged", "below"] {
        fs::create_dir(bench.at(name)).unwrap();
    }
    // The root of an overlay is that of the directory it writes to.
    fs::set_permissions(bench.at("plain"), fs::Permissions::from_mode(0o755)).unwrap();
    if line.contains("file:") {
        File::create(bench.at("a.img")).unwrap().set_len(256 << 20).unwrap();
        let made = line.split(" / ").skip_while(|word| !["lfs", "vlfs", "ffs"].contains(word)).collect::<Vec<_>>();
        bench.seekless(&["mkfs", "-q", "--force", &made.join(" / ")]);
    }
    Some(bench)
}

fn check_overlay(line: &'static str) {
    let Some(bench) = bench(line) else { return };
    make_image(&bench.at("image"));
    make_image(&bench.at("plain"));
    make_package(&bench.at("package"));
    let archive = bench.at("package.tar");
    run(Command::new("tar")
        .args(["--xattrs", "--xattrs-include=*", "-cf"])
        .arg(&archive)
        .arg("-C")
        .arg(bench.at("package"))
        .arg("."));
    work(&bench.at("plain"), &archive);
    bench.session(|merged| {
        work(merged, &archive);
        assert_same(merged, &bench.at("plain"), "at first");
        // How it is done below.
        let upper = |name: &str| fs::symlink_metadata(bench.at("mnt/upper").join(name)).unwrap();
        for name in ["var/log", "usr/bin/tool"] {
            assert!(upper(name).file_type().is_char_device() && upper(name).rdev() == 0, "{name} is a whiteout");
        }
        let mut value = [0; 8];
        let opaque = bench.at("mnt/upper/usr/share/doc");
        assert_eq!(rustix::fs::getxattr(&opaque, "trusted.overlay.opaque", &mut value), Ok(1));
    });
    if line.contains("file:") {
        let made = line.split(" / ").skip_while(|word| !["lfs", "vlfs", "ffs"].contains(word)).collect::<Vec<_>>();
        assert!(bench.seekless(&["fsck", "--data", &made.join(" / ")]).contains("clean"));
    }
    work_on(&bench.at("plain"));
    bench.session(|merged| {
        work_on(merged);
        assert_same(merged, &bench.at("plain"), "later");
    });
    bench.session(|merged| assert_same(merged, &bench.at("plain"), "after all"));
    assert_eq!(fs::read(bench.at("image/etc/passwd")).unwrap(), b"root:x:0:0", "the image is as it was");
}

#[test]
fn overlays_on_lfs() {
    check_overlay("lfs / file:a.img");
}

#[test]
fn overlays_on_vlfs() {
    check_overlay("vlfs / file:a.img");
}

#[test]
fn overlays_on_layers() {
    check_overlay("zstd / hostdir:below");
    check_overlay("zstd / lfs / file:a.img");
}

/// Without extended attributes an overlay cannot record what is hidden, and refuses to mount.
#[test]
fn no_overlay_on_ffs() {
    let Some(bench) = bench("ffs / file:a.img") else { return };
    bench.seekless(&["mount", bench.line, "mnt"]);
    for name in ["mnt/upper", "mnt/work"] {
        fs::create_dir_all(bench.at(name)).unwrap();
    }
    assert_eq!(bench.try_overlay(), Err(Errno::INVAL));
    bench.seekless(&["umount", "mnt"]);
}
