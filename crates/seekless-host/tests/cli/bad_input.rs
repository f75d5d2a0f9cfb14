//! For every mistake in the user's input, the error says what, where and what next, and the exit code is the documented
//! one. Nothing is changed.

use crate::{Scratch, can_mount};

/// Arguments, exit code, and all of standard error. `T` is the directory in which the program runs.
type Case<'a> = (&'a [&'a str], i32, &'a str);

fn check(scratch: &Scratch, cases: &[Case<'_>]) {
    for (arguments, code, text) in cases {
        let ended = scratch.run(arguments);
        assert_eq!(ended.err.trim_end(), *text, "{arguments:?}");
        assert_eq!((ended.code, &*ended.out), (*code, ""), "{arguments:?}");
    }
}

const WORDS: &str = "words: wrap, zstd, lz4, gzip, copy, uuencode, encrypt, lfs, vlfs, ffs, hostdir, memfs, concat, raid0, \
                     raid1, raid5, remap, permute, volume, vld, zoned, smr, fork, fault, memory, file, disk, ssd, zns";

/// An invalid stack line is shown with the place of the mistake, by every command that takes one, with the command's
/// exit code for wrong usage.
#[test]
fn bad_stack_lines_are_pointed_at() {
    let scratch = Scratch::new();
    let unknown = format!("seekless: there is no word `zzz`\n  zzz / file:a.img\n  ^^^\n{WORDS}");
    for (command, code) in [("mkfs", 2), ("info", 2), ("dump", 2), ("fsck", 16), ("mount", 1)] {
        let mut arguments = vec![command, "zzz / file:a.img"];
        arguments.extend((command == "mount").then_some("mnt"));
        check(&scratch, &[(&arguments, code, &unknown)]);
    }
    check(
        &scratch,
        &[
            (
                &["mkfs", "lsf / file:a.img"],
                2,
                "seekless: there is no word `lsf`; did you mean `lfs`?\n  lsf / file:a.img\n  ^^^",
            ),
            (
                &["mkfs", "lfs / file:a.img,size=1GX"],
                2,
                "seekless: `size` of `file`: there is no unit `GX`; one of: B, KiB, MiB, GiB, TiB, kB, MB, GB, TB\n  lfs / \
                 file:a.img,size=1GX\n                        ^^^\nexpected a size such as 512KiB",
            ),
            (
                &["mkfs", "lfs:cleaner=greddy / file:a.img"],
                2,
                "seekless: `cleaner` of `lfs`: there is no `greddy`; did you mean `greedy`?\n  lfs:cleaner=greddy / \
                 file:a.img\n              ^^^^^^\none of: fifo, greedy, d-choices, cost-benefit, cost-benefit-root, cost-benefit-youngest, age-sort, \
                 age-sort-root, age-sort-youngest, age-sort-greedy, bsd",
            ),
            (
                &["mkfs", "wrap / hostdir:/tmp"],
                2,
                "seekless: there is no file system on a device here to make\n  wrap / hostdir:/tmp\n         \
                 ^^^^^^^\nfor example: lfs / file:a.img",
            ),
            (
                &["mkfs", "lfs / memory:64MiB"],
                2,
                "seekless: this would be lost at once: a file system in memory is created when it is mounted\nmount creates it \
                 automatically: mkdir -p mnt && seekless mount 'lfs / memory:64MiB' mnt",
            ),
            (
                &["mkfs", "vld / memory:64MiB"],
                2,
                "seekless: this would be lost at once: a device in memory is created when it is exported\nexport creates it \
                 automatically: seekless export 'vld / memory:64MiB'",
            ),
            (
                &["info", "@missing.toml"],
                2,
                "seekless: cannot read the stack file missing.toml: No such file or directory (os error 2)",
            ),
            (
                &["bench", "smallfile", "--clock", "virtual", "--on", "memfs", "--on", "/tmp"],
                2,
                "seekless: --clock virtual: /tmp is a directory of the host, which has real time only\nleave the \
                 directory out, or leave the clock to each contestant: --clock auto",
            ),
            (
                &["bench", "smallfile", "--profile", "none", "--on", "lfs / file:a.img", "--on", "/tmp"],
                2,
                "seekless: --profile none says how fast the processor is in virtual time, and everything here runs in \
                 real time\nleave it out, or measure a stack that can be simulated, such as 'lfs / disk:dec-rz26'",
            ),
            (
                &["bench", "smallfile", "--on", "/nowhere/at/all"],
                2,
                "seekless: there is no directory /nowhere/at/all\na stack does not begin with / or ./",
            ),
            (&["bench", "smallfile", "--on", "memfs", "--files", "0"], 2, "seekless: there must be at least one file"),
        ],
    );
    assert_eq!(std::fs::read_dir(scratch.path("")).unwrap().count(), 0, "nothing was made");
}

/// A path of an image or a directory in place of a stack gets a hint with the obvious stack.
#[test]
fn a_path_gets_the_obvious_stack() {
    let scratch = Scratch::new();
    scratch.write("a.img", "");
    scratch.write("own.toml", "");
    scratch.make_directory("d");
    for (name, hint) in [
        ("a.img", "for this file write: 'lfs / file:a.img'"),
        ("own.toml", "for this drive file write: 'disk:file=own.toml'"),
        ("d", "for this directory write: 'hostdir:d'"),
    ] {
        let ended = scratch.run(&["info", name]);
        assert_eq!((ended.code, ended.err.lines().last().unwrap()), (2, hint), "{}", ended.err);
    }
}

/// The hints for a stack without quotes, and for arguments in the wrong order, are commands that work.
#[test]
fn the_line_that_was_meant_works() {
    let scratch = Scratch::new();
    let mkfs = ["mkfs", "lfs", "/", "file:a.img,size=9MiB"];
    let mount = ["mount", "--fake", "d", "lfs / file:a.img"];
    scratch.make_directory("d");
    for line in [&mkfs[..], &mount] {
        let ended = scratch.run(line);
        let hint = ended.err.lines().last().unwrap_or_default();
        let (_, command) = hint.split_once(": ").unwrap_or_else(|| panic!("{}", ended.err));
        assert!(ended.code != 0 && command.starts_with("seekless "), "{}", ended.err);
        let script = command.replacen("seekless", env!("CARGO_BIN_EXE_seekless"), 1);
        let pasted = std::process::Command::new("sh").args(["-c", &script]).current_dir(scratch.path("")).output();
        assert!(pasted.unwrap().status.success(), "{command}");
    }
}

/// A misspelt mount point is not only no word of a stack.
#[test]
fn a_mount_point_that_is_not_there_is_no_directory() {
    let scratch = Scratch::new();
    let ended = scratch.run(&["stat", "mntt"]);
    assert!(
        ended.code == 2 && ended.err.ends_with("\nand there is no directory mntt here, where a mount could be\n"),
        "{}",
        ended.err
    );
    let ended = scratch.run(&["stat", "lfs"]);
    assert!(ended.code == 2 && !ended.err.contains("no directory"), "{}", ended.err);
}

/// Files that are missing, of another kind, or not files.
#[test]
fn stores_that_will_not_do_are_named() {
    let scratch = Scratch::new();
    scratch.write("zip", [b"PK\x03\x04".as_slice(), &[7; 5000]].concat());
    scratch.write("tiny", "?");
    scratch.write("blank", vec![0; 9 << 20]);
    scratch.write("m0", vec![0; 9 << 20]);
    scratch.write("m1", vec![0; 9 << 20]);
    scratch.write("noise", [7; 5000]);
    scratch.make_directory("d");
    scratch.make_directory("mnt");
    let missing = "seekless: there is no file a.img\n  lfs / file:a.img\n        ^^^^^^^^^^\nmake it with: seekless mkfs \
                   'lfs / file:a.img,size=1GiB'";
    // The hint suggests mkfs only where that would destroy nothing.
    let zip = "seekless: there is no lfs on zip: it holds a ZIP archive\ncheck that this is the right store, and the \
               stack that it was made with; nothing was changed";
    let volatile = "seekless: there is no lfs here: every command creates this store empty, and discards \
                    it at its end\nmount and bench make a file system on it automatically; to keep one, put it on file:PATH";
    check(
        &scratch,
        &[
            (&["info", "lfs / file:a.img"], 1, missing),
            (&["dump", "lfs / file:a.img"], 1, missing),
            (&["fsck", "lfs / file:a.img"], 8, missing),
            (&["info", "lfs / file:zip"], 1, zip),
            (&["dump", "lfs / file:zip"], 1, zip),
            (&["fsck", "lfs / file:zip"], 8, zip),
            (
                &["info", "lfs / file:noise"],
                1,
                "seekless: there is no lfs on noise: it holds data (at byte 0 of 4.9 KiB)\ncheck that this is the right \
                 store, and the stack that it was made with; nothing was changed",
            ),
            (
                &["info", "lfs / file:blank"],
                1,
                "seekless: there is no lfs on blank: it is blank\nmake one with: seekless mkfs 'lfs / file:blank'",
            ),
            (
                &["dump", "lfs / raid0:n=2 / file:m{}"],
                1,
                "seekless: there is no lfs here: all 2 stores are blank\nmake one with: seekless mkfs 'lfs / raid0:n=2 / \
                 file:m{}'",
            ),
            (&["fsck", "lfs / memory:64MiB"], 8, volatile),
            (&["info", "lfs / disk:dec-rz26"], 1, volatile),
            (
                &["info", "lfs / file:tiny"],
                1,
                "seekless: tiny has 1 byte, less than one block of 512\n  lfs / file:tiny\n        ^^^^^^^^^",
            ),
            (
                &["info", "lfs / file:d"],
                1,
                "seekless: d is a directory; a store is a regular file or a block device; for a directory use \
                 hostdir:PATH\n  lfs / file:d\n        ^^^^^^",
            ),
            (
                &["fsck", "encrypt:/dev/zero / hostdir:d"],
                8,
                "seekless: cannot read /dev/zero: it exceeds 1048576 bytes\n  encrypt:/dev/zero / hostdir:d\n  ^^^^^^^^^^^^^^^^^",
            ),
            (&["key", "k", "--from", "/dev/zero"], 1, "seekless: cannot read /dev/zero: it exceeds 1048576 bytes"),
            (
                &["info", "lfs / file:/dev/null"],
                1,
                "seekless: /dev/null is a character device; a store is a regular file or a block device\n  lfs / \
                 file:/dev/null\n        ^^^^^^^^^^^^^^",
            ),
            (
                &["mkfs", "lfs / file:a.img"],
                1,
                "seekless: there is no file a.img\n  lfs / file:a.img\n        ^^^^^^^^^^\nto make it, give its size: \
                 file:a.img,size=1GiB",
            ),
            (
                &["mkfs", "lfs / file:zip"],
                1,
                "seekless: zip holds a ZIP archive, which would be lost\n  lfs / file:zip\n        ^^^^^^^^\nto \
                 overwrite it, use --force",
            ),
            (
                &["mkfs", "lfs / file:noise"],
                1,
                "seekless: noise holds data (at byte 0 of 4.9 KiB), which would be lost\n  lfs / file:noise\n        \
                 ^^^^^^^^^^\nto overwrite it, use --force",
            ),
        ],
    );
    if can_mount() {
        check(
            &scratch,
            &[(&["mount", "lfs / file:a.img", "mnt"], 32, missing), (&["mount", "lfs / file:zip", "mnt"], 32, zip)],
        );
    }
}

/// mkfs destroys nothing without --force: not one of our file systems, not data at the very end. What it has begun and
/// cannot finish, it undoes.
#[test]
fn mkfs_protects_what_is_there() {
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "lfs / file:a.img,size=64MiB", "--label", "first"]);
    let ended = scratch.run(&["mkfs", "lfs / file:a.img"]);
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("a.img holds a Seekless LFS file system, which would be lost"), "{}", ended.err);
    assert!(scratch.good(&["info", "lfs / file:a.img"]).contains("first"), "it is as it was");
    assert!(scratch.good(&["mkfs", "--force", "lfs / file:a.img", "-L", "second"]).contains("second"));

    let mut bytes = vec![0; 16 << 20];
    *bytes.last_mut().unwrap() = 1;
    scratch.write("end", bytes);
    let ended = scratch.run(&["mkfs", "lfs / file:end"]);
    assert!(ended.code == 1 && ended.err.contains("data (at byte 16777215 of 16 MiB)"), "{}", ended.err);

    // The least that holds 64 segments of 128 KiB, 64 KiB before and 4 KiB behind them; the README says so.
    for (size, code) in [("1MiB", 1), ("8256KiB", 1), ("8260KiB", 0)] {
        let ended = scratch.run(&["mkfs", &format!("lfs / file:small,size={size}")]);
        assert_eq!(
            (ended.code, ended.err.contains("the volume is too small")),
            (code, code == 1),
            "{size} {}",
            ended.err
        );
        assert_eq!(scratch.path("small").exists(), code == 0);
    }
    let ended = scratch.run(&["mkfs", "lfs / file:a.img,size=1GiB", "--force"]);
    assert!(ended.code == 1 && ended.err.contains("already exists and has 64 MiB"), "{}", ended.err);
}

/// An option fixed by mkfs cannot be changed later; the error names both values.
#[test]
fn a_line_may_not_contradict_the_superblock() {
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "lfs:segment=256KiB / file:a.img,size=64MiB"]);
    let ended = scratch.run(&["fsck", "lfs:segment=1MiB / file:a.img"]);
    assert_eq!(
        (ended.code, ended.err.trim_end()),
        (
            8,
            "seekless: `segment` of `lfs`: the line says 1MiB, but the file system was made with 256KiB\n  \
             lfs:segment=1MiB / file:a.img\n      ^^^^^^^^^^^^"
        )
    );
}

/// Invalid mount points and mount options are refused before anything is opened.
#[test]
fn bad_mounts_are_refused() {
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "lfs / file:a.img,size=64MiB"]);
    scratch.write("file", "");
    scratch.make_directory("full");
    scratch.write("full/x", "");
    scratch.make_directory("mnt");
    let line = "lfs / file:a.img";
    check(
        &scratch,
        &[
            (
                &["mount", line, "missing"],
                32,
                "seekless: there is no directory missing; make it first: mkdir -p missing",
            ),
            (
                &["mount", line, "it is/missing"],
                32,
                "seekless: there is no directory it is/missing; make it first: mkdir -p 'it is/missing'",
            ),
            (&["mount", line, "file"], 32, "seekless: mount point file is not a directory"),
            (&["mount", line, "full"], 32, "seekless: mount point full is not empty; choose an empty directory"),
            (&["umount", "mnt"], 1, "seekless: mnt is not a mount point"),
            (&["umount", "--timeout", "4294967295", "mnt"], 1, "seekless: mnt is not a mount point"),
            (&["sync", "mnt"], 1, "seekless: mnt is not inside a Seekless mount; use sync(1)"),
        ],
    );
    let ended = scratch.run(&["mount", line, "mnt", "-o", "ro,compress"]);
    assert!(ended.code == 1 && ended.err.starts_with("seekless: there is no mount option `compress`\noptions: ro, "));
    let ended = scratch.run(&["umount", "/"]);
    assert!(ended.code == 32 && ended.err.contains("not of Seekless; use umount(8)"), "{}", ended.err);
    // A moment that no clock has.
    for (command, code) in [("umount", 1), ("sync", 2), ("stat", 2)] {
        let ended = scratch.run(&[command, "mnt", "--timeout", "18446744073709551615"]);
        assert!(ended.code == code && ended.err.contains("4294967295"), "{command}: {} {}", ended.code, ended.err);
    }
    // clap's own complaints have the command's code for wrong usage.
    for (arguments, code) in [(&["mount"][..], 1), (&["fsck"], 16), (&["mkfs"], 2), (&["frobnicate"], 2), (&[], 2)] {
        let ended = scratch.run(arguments);
        assert!(ended.code == code && ended.err.contains("Usage: seekless"), "{arguments:?} {}", ended.err);
    }
}

/// A damaged volume is damage for fsck, and a clear error for every other command.
#[test]
fn damage_is_distinguished_from_other_failures() {
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "lfs / file:a.img,size=64MiB"]);
    let image = std::fs::read(scratch.path("a.img")).unwrap();
    // Everything in the superblocks except their magic numbers.
    let mut damaged = image.clone();
    for place in seekless::fs::lfs::format::SUPERBLOCK_SECTORS {
        let at = (place.0 * 512) as usize;
        damaged[at + 16..at + 4096].fill(0xff);
    }
    let last = damaged.len() - 4096;
    damaged[last + 16..].fill(0xff);
    scratch.write("a.img", damaged);
    let ended = scratch.run(&["fsck", "lfs / file:a.img"]);
    assert_eq!(ended.code, 4, "{}{}", ended.out, ended.err);
    assert!(
        ended.out.contains("a.img: damaged") && ended.out.contains("\n1 error; none of it can be read"),
        "{}",
        ended.out
    );
    let ended = scratch.run(&["fsck", "--json", "lfs / file:a.img"]);
    let report: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((ended.code, &report["verdict"]), (4, &"damaged".into()), "{}", ended.out);
    assert_eq!(report["data_checked"], false, "there was none to be found");
    let ended = scratch.run(&["info", "lfs / file:a.img"]);
    assert!(ended.code == 1 && ended.err.contains("damaged"), "{}", ended.err);
}
