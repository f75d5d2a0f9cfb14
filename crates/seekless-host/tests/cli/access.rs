//! Access-control lists on the usual stacks, as the usual programs set, show and copy them.

use std::process::Command;

use seekless_host::testing::{Need, skip};

use crate::{Scratch, can_mount};

/// The program's output, run in the scratch directory; it must succeed.
fn good(scratch: &Scratch, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(scratch.path("")).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn has_tools() -> bool {
    for program in ["setfacl", "getfacl", "rsync"] {
        if Command::new(program).arg("--version").output().is_err() {
            skip(Need::AclTools, format_args!("{program} is not installed"));
            return false;
        }
    }
    true
}

/// All lists of a tree, in the order of the names; without the indexes that `index=classic` keeps beside files.
fn lists(scratch: &Scratch, top: &str) -> Vec<String> {
    let output = Command::new("getfacl").args(["-R", "-n", "-p", "."]).current_dir(scratch.path(top)).output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let files = text.split("\n\n").map(str::trim).filter(|file| !file.is_empty());
    let mut files: Vec<String> = files.map(str::to_owned).collect();
    files.retain(|file| !file.lines().next().is_some_and(|name| name.ends_with(".idx")));
    files.sort();
    files
}

/// On each stack: lists and default lists survive a remount, and `cp -a`, `tar --acls` and `rsync -A`, on the mount and
/// out of it, and are those of the files below.
#[test]
fn lists_are_kept_by_what_copies_files() {
    if !can_mount() || !has_tools() {
        return;
    }
    for (line, below) in [
        ("lfs / file:a.img", None),
        ("vlfs / file:a.img", None),
        ("zstd / lfs / file:a.img", None),
        ("hostdir:data", Some("data")),
        ("zstd / hostdir:data", Some("data")),
        ("zstd:index=classic / hostdir:data", Some("data")),
        ("wrap / hostdir:data", Some("data")),
    ] {
        eprintln!("on {line}");
        let scratch = Scratch::new();
        scratch.make_directory("mnt");
        scratch.make_directory("data");
        if let Some((_, storage)) = line.rsplit_once("lfs") {
            let kind = if line.contains("vlfs") { "vlfs" } else { "lfs" };
            scratch.good(&["mkfs", "-q", &format!("{kind}{storage},size=64MiB")]);
        }
        scratch.good(&["mount", line, "mnt"]);
        scratch.make_directory("mnt/tree");
        good(&scratch, "setfacl", &["-m", "u:4001:rwx,g:4002:r-x,d:u:4001:rwx,d:g::---", "mnt/tree"]);
        scratch.make_directory("mnt/tree/inside");
        scratch.write("mnt/tree/inside/file", b"content".repeat(1_000));
        scratch.write("mnt/tree/masked", "content");
        good(&scratch, "chmod", &["604", "mnt/tree/masked"]);
        scratch.write("mnt/tree/removed", "content");
        good(&scratch, "setfacl", &["-b", "mnt/tree/removed"]);
        let tree = lists(&scratch, "mnt/tree");
        let has = |text: &str| tree.iter().any(|file| file.contains(text));
        for expected in ["# file: ./inside/file\n", "#effective:---", "default:user:4001:rwx", "mask::rw-"] {
            assert!(has(expected), "no {expected:?} in\n{tree:#?}");
        }
        if let Some(below) = below {
            assert_eq!(lists(&scratch, &format!("{below}/tree")), tree);
        }
        good(&scratch, "cp", &["-a", "mnt/tree", "mnt/copied"]);
        good(&scratch, "tar", &["--acls", "-cf", "tree.tar", "-C", "mnt", "tree"]);
        scratch.make_directory("mnt/untarred");
        good(&scratch, "tar", &["--acls", "-xpf", "tree.tar", "-C", "mnt/untarred"]);
        good(&scratch, "rsync", &["-aA", "mnt/tree/", "mnt/synced/"]);
        good(&scratch, "rsync", &["-aA", "mnt/tree/", "out/"]);
        scratch.good(&["umount", "mnt"]);
        scratch.good(&["mount", line, "mnt"]);
        for copy in ["mnt/tree", "mnt/copied", "mnt/untarred/tree", "mnt/synced", "out"] {
            assert_eq!(lists(&scratch, copy), tree, "{copy}");
        }
        good(&scratch, "setfacl", &["-R", "-b", "mnt/tree"]);
        assert!(lists(&scratch, "mnt/tree").iter().all(|file| !file.contains("4001")));
        scratch.good(&["umount", "mnt"]);
        let checked = scratch.run(&["fsck", line]);
        assert!(checked.code == 0 || line.contains("hostdir"), "{}{}", checked.out, checked.err);
    }
}

/// A file system that cannot store lists says so.
#[test]
fn ffs_has_no_lists() {
    if !can_mount() || !has_tools() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("mnt");
    scratch.good(&["mkfs", "-q", "ffs / file:a.img,size=16MiB"]);
    scratch.good(&["mount", "ffs / file:a.img", "mnt"]);
    scratch.write("mnt/f", "content");
    let output = Command::new("setfacl").args(["-m", "u:1:r", "f"]).current_dir(scratch.path("mnt")).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stderr).contains("Operation not supported"), "{output:?}");
    scratch.good(&["umount", "mnt"]);
}

/// Packing and unpacking a directory keeps the lists of its files, and gives none to those that have none.
#[test]
fn packing_keeps_lists() {
    if !can_mount() || !has_tools() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    for name in ["data/named", "data/plain"] {
        scratch.write(name, b"the same again and again; ".repeat(10_000));
    }
    good(&scratch, "setfacl", &["-m", "u:4001:rw,m::r", "data/named"]);
    good(&scratch, "setfacl", &["-d", "-m", "u:4002:rwx", "data"]);
    let before = lists(&scratch, "data");
    for command in ["pack", "unpack"] {
        let done = scratch.good(&[command, "zstd / hostdir:data"]);
        assert!(done.contains("2 of 2 files"), "{done}");
        assert_eq!(lists(&scratch, "data"), before, "{command}");
    }
}
