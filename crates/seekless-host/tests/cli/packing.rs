//! `pack` and `unpack`: what is converted, what is left, and what they say about it.

use std::os::unix::fs::{PermissionsExt, chown};

use seekless_host::testing::{LoopDevice, Need, skip};

use crate::layers::{LINE, text};
use crate::{Ended, Scratch, can_mount};

/// An existing directory is packed, read through a mount, and unpacked again.
#[test]
fn packing_and_unpacking() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("data/d");
    scratch.make_directory("mnt");
    for number in 1..20 {
        scratch.write(&format!("data/d/{number}"), text(number * 10_000));
    }
    let packed = scratch.good(&["pack", LINE]);
    assert!(packed.starts_with("19 of 19 files packed: "), "{packed}");
    assert!(scratch.good(&["pack", LINE]).contains("19 already had the right form"));
    scratch.good(&["mount", LINE, "mnt"]);
    for number in 1..20 {
        assert!(std::fs::read(scratch.path(&format!("mnt/d/{number}"))).unwrap() == text(number * 10_000));
    }
    scratch.good(&["umount", "mnt"]);
    assert!(scratch.good(&["fsck", LINE]).contains("clean"));
    assert!(scratch.good(&["unpack", LINE]).starts_with("19 of 19 files unpacked: "));
    for number in 1..20 {
        assert!(std::fs::read(scratch.path(&format!("data/d/{number}"))).unwrap() == text(number * 10_000));
    }
    let ended = scratch.run(&["pack", "lfs / file:a.img"]);
    assert_eq!(ended.code, 2, "{}", ended.err);
}

/// What programs write into files that they had open before a conversion is there afterwards: a log, and a disk.
#[test]
fn files_in_use_are_left_by_pack_and_unpack() {
    use std::io::Write;
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    for name in ["log", "other"] {
        scratch.write(&format!("data/{name}"), text(200_000));
    }
    let image = scratch.path("data/image");
    scratch.write("data/image", text(1 << 20));
    let device = LoopDevice::attach(&image, 512);
    let mut log = std::fs::OpenOptions::new().append(true).open(scratch.path("data/log")).unwrap();
    let said = scratch.good(&["pack", LINE]);
    assert!(said.contains("left unchanged: /log: it is open for writing"), "{said}");
    let in_use = 1 + u64::from(device.is_some());
    assert!(said.contains(&format!("{} of 3 files packed", 3 - in_use)), "{said}");
    assert!(said.contains(&format!("{in_use} are in use and were skipped")), "{said}");
    let said: serde_json::Value = serde_json::from_str(&scratch.good(&["pack", LINE, "--json"])).unwrap();
    assert_eq!((&said["files_in_use"], &said["files_unguarded"]), (&in_use.into(), &0.into()), "{said}");
    log.write_all(b"acknowledged\n").unwrap();
    log.sync_all().unwrap();
    let content = std::fs::read(scratch.path("data/log")).unwrap();
    assert!(content == [&text(200_000)[..], b"acknowledged\n"].concat(), "what was synced is there");
    drop(log);
    if let Some(device) = device {
        let mut disk = std::fs::OpenOptions::new().write(true).open(device.path()).unwrap();
        disk.write_all(b"to the disk").unwrap();
        // The last close would write it, too; but others that look at loop devices may have it open.
        disk.sync_all().unwrap();
        drop((disk, device));
        assert!(std::fs::read(&image).unwrap().starts_with(b"to the disk"));
    }
    // A file of the layer that is open is left by `unpack`, and the directory still belongs to the layer.
    scratch.good(&["pack", LINE]);
    let open = std::fs::OpenOptions::new().write(true).open(scratch.path("data/other")).unwrap();
    let unpacked = scratch.run(&["unpack", LINE]);
    let said = unpacked.out;
    assert!(said.contains("left unchanged: /other: ") && said.contains("1 are in use and were skipped"), "{said}");
    assert_eq!(unpacked.code, 1, "it is still encoded");
    drop(open);
    scratch.good(&["mount", LINE, "mnt"]);
    assert!(std::fs::read(scratch.path("mnt/other")).unwrap() == text(200_000));
    scratch.good(&["umount", "mnt"]);
}

/// Aim: what stays encoded, or is not encrypted, is no success. Method: a file with two names, packed and unpacked, with and without
/// a key; the mount shows what it can.
#[test]
fn names_that_stay_behind_are_said() {
    let scratch = Scratch::new();
    for directory in ["data", "secret"] {
        scratch.make_directory(directory);
        scratch.write(&format!("{directory}/a"), text(200_000));
        std::fs::hard_link(scratch.path(&format!("{directory}/a")), scratch.path(&format!("{directory}/b"))).unwrap();
    }
    scratch.good(&["key", "k"]);
    let packed = scratch.run(&["pack", "zstd / hostdir:data"]);
    assert!(packed.code == 0 && packed.out.contains("it has 2 names"), "{} {}", packed.out, packed.err);
    let packed = scratch.run(&["pack", "encrypt:k / hostdir:secret"]);
    assert!(packed.code == 1 && packed.out.contains("2 have several names and are not encrypted"), "{}", packed.out);
    if !can_mount() {
        return;
    }
    scratch.make_directory("links");
    scratch.make_directory("mnt");
    scratch.good(&["mount", "zstd / hostdir:links", "mnt"]);
    scratch.write("mnt/a", text(200_000));
    std::fs::hard_link(scratch.path("mnt/a"), scratch.path("mnt/b")).unwrap();
    scratch.good(&["umount", "mnt"]);
    let unpacked = scratch.run(&["unpack", "zstd / hostdir:links"]);
    assert!(
        unpacked.code == 1 && unpacked.out.contains("2 have several names and are still encoded"),
        "{}",
        unpacked.out
    );
    let unpacked = scratch.run(&["unpack", "zstd / hostdir:links", "--json"]);
    let said: serde_json::Value = serde_json::from_str(&unpacked.out).unwrap();
    assert_eq!((unpacked.code, &said["files_with_names"]), (1, &2.into()), "{said}");
}

/// Runs the program as a root without its privileges: as an ordinary user who owns what root owns.
fn run_unprivileged(scratch: &Scratch, arguments: &[&str]) -> Ended {
    let mut command = std::process::Command::new("setpriv");
    command.args(["--bounding-set=-all", env!("CARGO_BIN_EXE_seekless")]).args(arguments);
    scratch.ended(&command.current_dir(scratch.path("")).output().unwrap())
}

/// Aim: what this user may not read or replace keeps nothing else from being converted, and is named: a file alone, all files of
/// a directory by the directory. Method: files and directories of another user, in both directions, encrypted, and with JSON.
#[test]
fn what_belongs_to_others_is_left() {
    const OTHER: Option<u32> = Some(4001);
    if !rustix::process::geteuid().is_root() {
        skip(Need::Fuse, "giving files to another user needs root");
        return;
    }
    let scratch = Scratch::new();
    let own = ["data/a", "data/z", "data/closed/1", "data/closed/2", "data/secret/1", "data/listed/1", "data/listed/2"];
    for directory in ["data", "data/closed", "data/secret", "data/listed"] {
        scratch.make_directory(directory);
    }
    for name in own.iter().chain(&["data/hidden", "data/shown"]) {
        scratch.write(name, text(200_000));
    }
    let of_other = [("hidden", 0o600), ("shown", 0o644), ("closed", 0o755), ("secret", 0o700), ("listed", 0o744)];
    let give = |names: &[(&str, u32)], to| {
        for (name, mode) in names {
            let path = scratch.path(&format!("data/{name}"));
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(*mode)).unwrap();
            chown(path, to, to).unwrap();
        }
    };
    scratch.good(&["key", "k"]);
    let check = |command: &str, line: &str| {
        give(&of_other, OTHER);
        let ended = run_unprivileged(&scratch, &[command, line, "--json"]);
        assert_eq!(ended.code, 1, "{command} {line}: {}{}", ended.out, ended.err);
        let said: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!(said["files_converted"], 2, "{command} {line}: {said}");
        // Two files, two in one directory, and two directories that cannot be read.
        assert_eq!(said["files_failed"], 6, "{command} {line}: {said}");
        let mut left: Vec<String> =
            said["left"].as_array().unwrap().iter().map(|left| left["path"].as_str().unwrap().to_string()).collect();
        left.sort();
        assert_eq!(left, ["/closed", "/hidden", "/listed", "/secret", "/shown"], "{command} {line}");
        let said = run_unprivileged(&scratch, &[command, line]).out;
        assert!(said.contains("left unchanged: /closed: its files cannot be replaced: "), "{said}");
        assert!(said.contains("left unchanged: /secret: ") && !said.contains("/closed/1"), "{said}");
        assert!(said.contains("left unchanged: /shown: operation not permitted"), "{said}");
        assert!(said.contains("2 already had the right form; 6 are damaged, or may not be read or replaced"), "{said}");
        give(&of_other, Some(0));
        // The rest, by a user who may.
        scratch.good(&[command, line]);
    };
    for line in [LINE, "encrypt:k / hostdir:data"] {
        check("pack", line);
        check("unpack", line);
    }
    for name in own {
        assert!(std::fs::read(scratch.path(name)).unwrap() == text(200_000), "{name}");
    }
}

/// Aim: what an interrupted conversion of another user has left keeps nothing else in its directory from being converted, is named,
/// and counts as a failure. Method: a sticky directory of another user, with leftovers and files of both, in both directions.
#[test]
fn a_leftover_of_another_user_is_left_alone() {
    use std::os::unix::fs::MetadataExt;
    const OTHER: Option<u32> = Some(4001);
    if !rustix::process::geteuid().is_root() {
        skip(Need::Fuse, "giving files to another user needs root");
        return;
    }
    let scratch = Scratch::new();
    for directory in ["data", "data/shared"] {
        scratch.make_directory(directory);
    }
    for name in ["a", "m", "of-other", "z"] {
        scratch.write(&format!("data/shared/{name}"), text(200_000));
    }
    let number = |name: &str| std::fs::metadata(scratch.path(&format!("data/shared/{name}"))).unwrap().ino();
    let give = |name: &str, to| chown(scratch.path(&format!("data/shared/{name}")), to, to).unwrap();
    std::fs::set_permissions(scratch.path("data/shared"), std::fs::Permissions::from_mode(0o1777)).unwrap();
    for command in ["pack", "unpack"] {
        // Beside the file from which it was made.
        let of_other = format!(".seekless-pack-{}", number("of-other"));
        let of_m = format!(".seekless-pack-{}", number("m"));
        let own = format!(".seekless-pack-{}", number("z"));
        for name in [&of_other, &of_m, &own] {
            scratch.write(&format!("data/shared/{name}"), &text(200_000)[..65_536]);
        }
        for name in ["", "of-other", &of_other, &of_m] {
            give(name, OTHER);
        }
        let ended = run_unprivileged(&scratch, &[command, LINE, "--json"]);
        assert_eq!(ended.code, 1, "{command}: {}{}", ended.out, ended.err);
        let said: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
        assert_eq!((&said["files_converted"], &said["files_failed"]), (&2.into(), &2.into()), "{command}: {said}");
        let mut left: Vec<&str> =
            said["left"].as_array().unwrap().iter().map(|left| left["path"].as_str().unwrap()).collect();
        left.sort();
        let mut wanted = [&of_other, &of_m, "of-other", "m"].map(|name| format!("/shared/{name}"));
        wanted.sort();
        assert_eq!(left, wanted, "{command}: {said}");
        let said = run_unprivileged(&scratch, &[command, LINE]).out;
        let problem = "it is left over from an interrupted conversion, and cannot be removed: operation not permitted";
        assert!(said.contains(&format!("left unchanged: /shared/{of_m}: {problem}")), "{command}: {said}");
        assert!(!scratch.path(&format!("data/shared/{own}")).exists(), "{command}");
        for name in ["", "of-other", &of_other, &of_m] {
            give(name, Some(0));
        }
        // The rest, by a user who may.
        assert!(scratch.good(&[command, LINE]).starts_with("2 of 4 files"), "{command}");
        assert_eq!(std::fs::read_dir(scratch.path("data/shared")).unwrap().count(), 4, "{command}");
    }
    for name in ["a", "m", "of-other", "z"] {
        assert!(std::fs::read(scratch.path(&format!("data/shared/{name}"))).unwrap() == text(200_000), "{name}");
    }
}

/// A directory of the published scheme is released once nothing in it is encoded, and `unpack` says what to do until then.
#[test]
fn a_directory_of_the_published_scheme_is_released() {
    const CLASSIC: &str = "gzip:index=classic / hostdir:data";
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    scratch.write("data/a", "a\n");
    scratch.good(&["mount", CLASSIC, "mnt"]);
    scratch.write("mnt/f", text(100_000));
    scratch.write("mnt/empty", "");
    scratch.good(&["umount", "mnt"]);
    let refused = scratch.run(&["unpack", CLASSIC]);
    assert!(refused.code == 1 && refused.err.contains("1 of the 3 files here are encoded"), "{}", refused.err);
    assert!(scratch.run(&["pack", CLASSIC]).err.contains("copy them into a mount"));
    scratch.good(&["mount", CLASSIC, "mnt"]);
    std::fs::remove_file(scratch.path("mnt/f")).unwrap();
    scratch.good(&["umount", "mnt"]);
    let released = scratch.good(&["unpack", CLASSIC]);
    assert!(released.contains("2 already had the right form"), "{released}");
    scratch.good(&["pack", LINE]);
    assert_eq!(std::fs::read(scratch.path("data/a")).unwrap(), b"a\n");
}

/// What is not converted because the file system below takes no file of its size is a failure where it matters: it is still encoded, or not
/// encrypted. A compressing `pack` leaves it as it is.
#[test]
fn files_that_are_too_large_below_are_failures() {
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.good(&["key", "k"]);
    scratch.write("data/large", "a".repeat(3_000_000));
    scratch.write("data/small", text(20_000));
    let limited = |arguments: &[&str]| {
        let mut command = std::process::Command::new("sh");
        // The signal would end the program, as it would end any other.
        command.args(["-c", "trap '' XFSZ; ulimit -f 1000; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_seekless")]);
        let output = command.args(arguments).current_dir(scratch.path(".")).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let secret = "encrypt:k / hostdir:data";
    scratch.good(&["pack", LINE]);
    let (code, said) = limited(&["unpack", LINE]);
    assert!(code == Some(1) && said.contains("1 could not be unpacked"), "{code:?}: {said}");
    let (code, said) = limited(&["unpack", LINE, "--json"]);
    assert!(code == Some(1) && said.contains("\"files_unconverted\": 1"), "{code:?}: {said}");
    scratch.good(&["unpack", LINE]);
    let (code, said) = limited(&["pack", secret]);
    assert!(code == Some(1) && said.contains("1 could not be packed"), "{code:?}: {said}");
    scratch.good(&["pack", secret]);
    scratch.good(&["unpack", secret]);
    assert!(std::fs::read(scratch.path("data/large")).unwrap() == "a".repeat(3_000_000).as_bytes());
}
