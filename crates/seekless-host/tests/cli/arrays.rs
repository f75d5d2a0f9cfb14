//! Aim: an array can be made, shown, checked and scrubbed, alone and below a file system, and data that one member
//! silently holds wrong is found and corrected. Method: images whose bytes are changed between commands.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use seekless_host::testing::LoopDevice;

use super::{Scratch, can_mount};

/// Changes all content of a member of 16 MiB except its metadata.
fn spoil(scratch: &Scratch, name: &str) {
    const FROM: u64 = 848 << 10;
    let file = OpenOptions::new().write(true).open(scratch.path(name)).unwrap();
    let length = file.metadata().unwrap().len() - FROM;
    let noise: Vec<u8> = (0..length).map(|index| (index * 31 % 251) as u8).collect();
    file.write_all_at(&noise, FROM).unwrap();
}

#[test]
fn an_array_alone_is_made_looked_at_and_checked() {
    for (word, count) in [("raid5:n=4", 4), ("raid1:n=2", 2)] {
        let scratch = Scratch::new();
        let made = scratch.good(&["mkfs", &format!("{word} / file:d-{{}}.img,size=16MiB")]);
        assert!(made.contains("state") && made.contains("complete"), "{made}");
        assert!(made.contains("export it with: seekless export"), "{made}");
        let line = format!("{word} / file:d-{{}}.img");
        let again = scratch.run(&["mkfs", &line]);
        assert_eq!(again.code, 1, "what is there is protected: {}", again.out);
        let info = scratch.good(&["info", &line, "--json"]);
        assert!(info.contains(&format!("\"members\": {count}")) && info.contains("complete"), "{info}");
        let info = scratch.good(&["info", &line]);
        assert!(info.contains("\nstate of members  0 holds everything; 1 holds"), "{info}");
        assert!(info.contains("used while a member is missing") == (count == 4), "{info}");
        let dump = scratch.good(&["dump", &line]);
        assert!(dump.contains("member 1 holds everything"), "{dump}");
        let checked = scratch.good(&["fsck", &line]);
        assert!(checked.contains("clean"), "{checked}");
        std::fs::remove_file(scratch.path("d-1.img")).unwrap();
        let info = scratch.run(&["info", &line]).out;
        assert!(info.contains("degraded") && info.contains("1 is missing"), "{info}");
        std::fs::remove_file(scratch.path("d-0.img")).unwrap();
        if count == 4 {
            let info = scratch.run(&["info", &line]).out;
            assert!(info.contains("too many members are missing"), "{info}");
        }
    }
}

#[test]
fn what_a_member_holds_wrong_is_put_right() {
    for array in ["raid5:n=3", "raid1:n=2"] {
        for fs in ["lfs", "vlfs"] {
            let scratch = Scratch::new();
            scratch.good(&["mkfs", &format!("{fs} / {array} / file:d-{{}}.img,size=16MiB")]);
            let line = format!("{fs} / {array} / file:d-{{}}.img");
            let scrubbed = scratch.good(&["scrub", &line]);
            assert!(scrubbed.contains("all members agree, and all data matches its checksums"), "{scrubbed}");
            spoil(&scratch, "d-1.img");
            let looked = scratch.run(&["scrub", "-n", &line]);
            assert_eq!(looked.code, 4, "{line}: {}{}", looked.out, looked.err);
            let scrubbed = scratch.run(&["scrub", &line]);
            assert_eq!(scrubbed.code, 1, "{line}: {}{}", scrubbed.out, scrubbed.err);
            assert!(scrubbed.out.contains("(repaired)"), "{}", scrubbed.out);
            let clean = scratch.good(&["scrub", &line, "--json"]);
            assert!(clean.contains("\"verdict\": \"clean\"") && clean.contains("\"data_verified\": true"), "{clean}");
            scratch.good(&["fsck", "--data", &line]);
            // A check alone corrects what it reads.
            spoil(&scratch, "d-0.img");
            let checked = scratch.run(&["fsck", "--data", &line]);
            assert_eq!(checked.code, 1, "{line}: {}{}", checked.out, checked.err);
            assert!(checked.out.contains("member 0 held something else than was stored"), "{}", checked.out);
            scratch.good(&["fsck", "--data", &line]);
        }
    }
}

/// A member that is opened without the others is recognised, and the line of the array is proposed.
#[test]
fn a_member_alone_is_recognised() {
    for (word, count) in [("raid5:n=3", 3), ("raid1:n=2", 2)] {
        // On a copy, FFS finds what looks like a damaged volume of its own.
        for fs in ["lfs", "vlfs", "ffs"] {
            let scratch = Scratch::new();
            let line = format!("{fs} / {word} / file:m{{}}.img");
            scratch.good(&["mkfs", "-q", &format!("{line},size=16MiB")]);
            scratch.make_directory("mnt");
            for member in 0..count {
                let alone = format!("{fs} / file:m{member}.img");
                let level = word.split(':').next().unwrap();
                let says = format!(
                    "seekless: T/m{member}.img is member {member} of a {level} of {count}\n\
                     open the array: '{fs} / {word} / file:T/m{{}}.img'\n"
                );
                for command in
                    [vec!["info", &alone], vec!["fsck", &alone], vec!["dump", &alone], vec!["mount", &alone, "mnt"]]
                {
                    if command[0] != "mount" || can_mount() {
                        let ended = scratch.run(&command);
                        assert!(ended.code != 0 && ended.err == says, "{command:?}: {}{}", ended.out, ended.err);
                    }
                }
            }
            // Where the others are is not known.
            std::fs::rename(scratch.path("m1.img"), scratch.path("other.img")).unwrap();
            let ended = scratch.run(&["info", &format!("{fs} / file:other.img")]);
            let says =
                format!("with a number for {{}} in the names of its members: '{fs} / {word} / file:NAME-{{}}.img'");
            assert!(ended.err.contains(&says), "{}", ended.err);
            let refused = scratch.run(&["mkfs", &format!("{fs} / file:other.img")]);
            assert!(refused.err.contains("holds a member of a Seekless array"), "{}", refused.err);
        }
    }
}

/// A scrub of an array that lacks a member is no success, however well the rest agrees.
#[test]
fn a_scrub_without_a_member_is_incomplete() {
    for array in ["raid1:n=2", "raid1:n=3", "raid5:n=3"] {
        let scratch = Scratch::new();
        scratch.good(&["mkfs", &format!("lfs / {array} / file:d-{{}}.img,size=16MiB")]);
        std::fs::remove_file(scratch.path("d-1.img")).unwrap();
        let line = format!("lfs / {array},degraded=on / file:d-{{}}.img");
        for more in [&[][..], &["-n"]] {
            let scrubbed = scratch.run(&[&["scrub", &line], more].concat());
            assert_eq!(scrubbed.code, 4, "{}{}", scrubbed.out, scrubbed.err);
            // Two copies of three can still be compared with each other.
            assert!(scrubbed.out.contains(": 0 rows compared") || array == "raid1:n=3", "{}", scrubbed.out);
            assert!(scrubbed.out.contains("not everything could be compared"), "{}", scrubbed.out);
        }
        let json = scratch.run(&["scrub", &line, "--json"]);
        assert!(json.code == 4 && json.out.contains("\"verdict\": \"incomplete\""), "{}", json.out);
    }
}

/// The same for a check of an array alone, where nothing says either that the rest is as it was stored.
#[test]
fn a_check_without_a_member_is_incomplete() {
    for array in ["raid1:n=2", "raid1:n=3", "raid5:n=3"] {
        let scratch = Scratch::new();
        scratch.good(&["mkfs", &format!("{array} / file:d-{{}}.img,size=16MiB")]);
        std::fs::remove_file(scratch.path("d-1.img")).unwrap();
        let line = format!("{array},degraded=on / file:d-{{}}.img");
        for more in [&["-n"][..], &[]] {
            let checked = scratch.run(&[&["fsck", &line], more].concat());
            assert_eq!(checked.code, 4, "{}{}", checked.out, checked.err);
            assert!(checked.out.contains("incomplete") && !checked.out.contains("clean"), "{}", checked.out);
        }
        let json = scratch.run(&["fsck", &line, "--json"]);
        assert!(json.code == 4 && json.out.contains("\"verdict\": \"incomplete\""), "{}", json.out);
    }
}

/// Aim: nothing below a `fork` is written, and an array not even told that a member is away, or that it was used. Method: the bytes of
/// all images before and after a mount that changes files, and before and after checks.
#[test]
fn what_is_below_a_fork_stays_as_it_is() {
    if !can_mount() {
        return;
    }
    for (made, line, count, lacks) in [
        ("raid1:n=2", "raid1:n=2,degraded=on", 2, true),
        ("raid1:n=2", "raid1:n=2", 2, false),
        ("raid5:n=3", "raid5:n=3,degraded=on", 3, true),
        ("raid5:n=3", "raid5:n=3", 3, false),
        ("vld", "vld", 1, false),
        ("vld / raid1:n=2", "vld / raid1:n=2,degraded=on", 2, true),
    ] {
        let scratch = Scratch::new();
        ["mnt", "mnt2"].into_iter().for_each(|name| scratch.make_directory(name));
        scratch.good(&["mkfs", "-q", &format!("lfs / {made} / file:d-{{}}.img,size=48MiB")]);
        let away = |name: &str, again: &str| std::fs::rename(scratch.path(name), scratch.path(again)).unwrap();
        let usual = format!("lfs / {made} / file:d-{{}}.img");
        scratch.good(&["mount", &usual, "mnt"]);
        scratch.write("mnt/old", b"old");
        scratch.good(&["umount", "mnt"]);
        if lacks {
            away("d-1.img", "away");
        }
        let is_there = |number: &usize| !lacks || *number != 1;
        let there: Vec<String> = match count {
            1 => vec!["d-{}.img".to_owned()],
            _ => (0..count).filter(is_there).map(|number| format!("d-{number}.img")).collect(),
        };
        let bytes =
            || -> Vec<Vec<u8>> { there.iter().map(|name| std::fs::read(scratch.path(name)).unwrap()).collect() };
        let before = bytes();
        let forked = format!("lfs / fork / {line} / file:d-{{}}.img");
        let mounted = scratch.run(&["mount", &forked, "mnt"]);
        assert_eq!(mounted.code, 0, "{forked}: {}", mounted.err);
        assert_eq!(std::fs::read(scratch.path("mnt/old")).unwrap(), b"old");
        scratch.write("mnt/new", vec![7; 3 << 20]);
        scratch.good(&["sync", "mnt"]);
        // What the base is must not change while it is in use.
        let writer = scratch.run(&["mount", &format!("lfs / {line} / file:d-{{}}.img"), "mnt2"]);
        assert_ne!(writer.code, 0, "{line}");
        assert_eq!(std::fs::read(scratch.path("mnt/new")).unwrap(), vec![7; 3 << 20], "{line}");
        scratch.good(&["umount", "mnt"]);
        assert!(bytes() == before, "{line}: the mount");
        for command in ["fsck", "scrub", "info", "dump"] {
            let ended = scratch.run(&[command, &forked]);
            assert!(command == "scrub" || ended.code == 0, "{command} {forked}: {}{}", ended.out, ended.err);
            assert!(bytes() == before, "{command} {forked}");
        }
        if lacks {
            away("away", "d-1.img");
            scratch.good(&["mount", &usual, "mnt"]);
            assert!(!scratch.path("mnt/new").exists());
            scratch.good(&["umount", "mnt"]);
        }
    }
}

/// A sparse file of any size is a new member, without being read from end to end; one with a byte in it is refused.
#[test]
fn a_large_sparse_file_is_a_new_member() {
    const BYTES: u64 = 4 << 40;
    if !can_mount() {
        return;
    }
    for (array, members) in [("raid1:n=2", 2), ("raid5:n=3", 3)] {
        let scratch = Scratch::new();
        scratch.make_directory("mnt");
        scratch.good(&["mkfs", &format!("lfs / {array} / file:d-{{}}.img,size=16MiB")]);
        for (member, byte) in (0..members).flat_map(|member| [(member, Some(BYTES / 3)), (member, None)]) {
            let path = scratch.path(&format!("d-{member}.img"));
            std::fs::remove_file(&path).unwrap();
            let file = std::fs::File::create(&path).unwrap();
            file.set_len(BYTES).unwrap();
            if let Some(at) = byte {
                file.write_all_at(b"x", at).unwrap();
            }
            let ended = scratch.run(&["mount", &format!("lfs / {array},replace={member} / file:d-{{}}.img"), "mnt"]);
            let Some(at) = byte else {
                assert_eq!(ended.code, 0, "{array}, {member}: {}", ended.err);
                let status = scratch.good(&["umount", "mnt"]);
                assert!(!status.contains("failed"), "{status}");
                let line = format!("lfs / {array} / file:d-{{}}.img");
                // What the rebuild had not reached is rebuilt now.
                scratch.good(&["scrub", &line]);
                continue;
            };
            assert_ne!(ended.code, 0, "{array}, {member}: {}", ended.out);
            assert!(ended.err.contains(&format!("holds data (at byte {at} of 4 TiB)")), "{}", ended.err);
        }
    }
}

/// Images that were all cut short are named, by the mount and by what looks at them.
#[test]
fn images_that_were_cut_are_named() {
    for array in ["raid1:n=2", "raid5:n=3"] {
        let scratch = Scratch::new();
        scratch.good(&["mkfs", &format!("lfs / {array} / file:d-{{}}.img,size=16MiB")]);
        for member in 0..if array == "raid1:n=2" { 2 } else { 3 } {
            let path = scratch.path(&format!("d-{member}.img"));
            OpenOptions::new().write(true).open(path).unwrap().set_len(10 << 20).unwrap();
        }
        let cut = "is shorter than when the array was made: 10485760 of the";
        let line = format!("lfs / {array} / file:d-{{}}.img");
        let ended = scratch.run(&["fsck", &line]);
        assert_ne!(ended.code, 0, "{}", ended.out);
        assert!(ended.err.contains(&format!("member 0: it {cut}")), "{}", ended.err);
        assert!(ended.err.contains(&format!("member 1: it {cut}")), "{}", ended.err);
        let alone = format!("{array} / file:d-{{}}.img");
        for command in ["info", "dump"] {
            let shown = scratch.run(&[command, &alone]);
            assert!(shown.out.contains(&format!("1 {cut}")), "{command}: {}{}", shown.out, shown.err);
            assert!(!shown.out.contains("complete"), "{command}: {}", shown.out);
        }
    }
}

/// A member that another process has is not missing: that one may write to it, and two mounts would each acknowledge what the
/// other one lacks.
#[test]
fn a_member_in_use_is_not_missing() {
    for array in ["raid1:n=2", "raid5:n=3"] {
        let scratch = Scratch::new();
        scratch.good(&["mkfs", &format!("lfs / {array} / file:d-{{}}.img,size=16MiB")]);
        let used = std::fs::File::open(scratch.path("d-0.img")).unwrap();
        rustix::fs::flock(&used, rustix::fs::FlockOperation::NonBlockingLockExclusive).unwrap();
        let before = std::fs::read(scratch.path("d-1.img")).unwrap();
        let alone = format!("{array},degraded=on / file:d-{{}}.img");
        let line = format!("lfs / {alone}");
        scratch.make_directory("mnt");
        let mount = |options| ["mount", &line, "mnt", "-o", options].map(str::to_owned);
        let commands = [
            ["fsck", &line].map(str::to_owned).to_vec(),
            ["fsck", &alone].map(str::to_owned).to_vec(),
            ["scrub", &line].map(str::to_owned).to_vec(),
            mount("rw").to_vec(),
            mount("ro").to_vec(),
        ];
        for command in commands {
            if command[0] == "mount" && !can_mount() {
                continue;
            }
            let ended = scratch.run(&command);
            assert_ne!(ended.code, 0, "{command:?}: {}", ended.out);
            assert!(ended.err.contains("d-0.img is in use by another"), "{command:?}: {}", ended.err);
            assert!(!ended.err.contains("degraded=on goes on"), "{command:?}: {}", ended.err);
        }
        assert!(std::fs::read(scratch.path("d-1.img")).unwrap() == before, "{array}: nothing is written");
        for command in ["info", "dump"] {
            let shown = scratch.run(&[command, &alone]);
            assert_eq!(shown.code, 0, "{}", shown.err);
            assert!(shown.err.contains("d-0.img is in use by another"), "{command}: {}", shown.err);
        }
        drop(used);
        std::fs::remove_file(scratch.path("d-0.img")).unwrap();
        assert!(scratch.run(&["info", &alone]).err.contains("there is no file d-0.img"), "{array}");
        assert_eq!(scratch.run(&["fsck", &line]).code, 0, "{array}: without one that is away");
    }
}

#[test]
fn what_nothing_decides_is_left_unless_the_data_is_believed() {
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "raid5:n=3 / file:d-{}.img,size=16MiB"]);
    spoil(&scratch, "d-2.img");
    let left = scratch.run(&["scrub", "raid5:n=3 / file:d-{}.img"]);
    assert_eq!(left.code, 4, "{}{}", left.out, left.err);
    assert!(left.out.contains("data and parity do not match"), "{}", left.out);
    let checked = scratch.run(&["fsck", "raid5:n=3 / file:d-{}.img"]);
    assert_eq!(checked.code, 4, "{}{}", checked.out, checked.err);
    assert!(checked.out.contains("seekless scrub"), "{}", checked.out);
    let believed = scratch.run(&["scrub", "--believe-data", "raid5:n=3 / file:d-{}.img"]);
    assert_eq!(believed.code, 1, "{}{}", believed.out, believed.err);
    scratch.good(&["scrub", "raid5:n=3 / file:d-{}.img"]);
    let nothing = scratch.run(&["scrub", "lfs / file:d-0.img"]);
    assert_eq!(nothing.code, 16, "{}", nothing.err);
}

/// The log has a member that fails just before the mount ends, too.
#[test]
fn a_member_that_fails_at_the_end_is_logged() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("mnt");
    let mut devices = Vec::new();
    for number in 0..2 {
        std::fs::File::create(scratch.path(&format!("image-{number}"))).unwrap().set_len(40 << 20).unwrap();
        let Some(device) = LoopDevice::attach(&scratch.path(&format!("image-{number}")), 512) else { return };
        std::os::unix::fs::symlink(device.path(), scratch.path(&format!("d{number}"))).unwrap();
        devices.push(device);
    }
    let line = "lfs / raid1:n=2 / file:d{}";
    scratch.good(&["mkfs", line]);
    scratch.good(&["mount", line, "mnt", "--log-file", "log"]);
    std::fs::File::options().write(true).open(scratch.path("image-1")).unwrap().set_len(1 << 20).unwrap();
    let shorter = std::process::Command::new("losetup").arg("--set-capacity").arg(devices[1].path()).status();
    assert!(shorter.unwrap().success());
    scratch.write("mnt/file", vec![1; 3 << 20]);
    scratch.good(&["umount", "mnt"]);
    let log = std::fs::read_to_string(scratch.path("log")).unwrap();
    let failed = log.find("raid1: member 1 has failed, and is no longer used");
    let ended = log.find("unmounted from");
    assert!(failed.is_some() && ended > failed, "{log}");
}

/// Aim: a damaged block of FFS, which looks like members in another order, leads to the commands that end this; what hints say works when
/// it is pasted. Method: flipped bits in blocks that the superblock names, lines run by a shell.
#[test]
fn a_damaged_witness_is_not_the_end() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("mnt");
    let line = "ffs / raid0:n=2,stripe=64KiB / file:\"it's {}\"";
    scratch.good(&["mkfs", "-q", &line.replace("\"it's {}\"", "\"it's {}\",size=8MiB")]);
    let mounted = |arguments: &[&str]| {
        let ended = scratch.run(&[&["mount", line, "mnt"], arguments].concat());
        if ended.code == 0 {
            scratch.good(&["umount", "mnt"]);
        }
        ended
    };
    let pasted = |hint: &str| {
        let command = hint.strip_prefix("seekless ").unwrap();
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", &format!("\"$0\" {command}"), env!("CARGO_BIN_EXE_seekless")]).current_dir(scratch.path(""));
        scratch.ended(&shell.output().unwrap())
    };
    // Changes some bytes of the first blocks that the superblock, in the first unit of the first member, names.
    let flip = |count: usize| {
        let member =
            |number| OpenOptions::new().read(true).write(true).open(scratch.path(&format!("it's {number}"))).unwrap();
        let mut superblock = [0; 8192];
        member(0).read_exact_at(&mut superblock, 8192).unwrap();
        let seal = superblock.windows(4).position(|bytes| bytes == 0x5774_6e73_u32.to_le_bytes()).unwrap();
        for witness in superblock[seal + 12..].chunks(8).take(count) {
            let at = u64::from(u32::from_le_bytes(witness[..4].try_into().unwrap())) * 1024 + 9;
            let (unit, within) = (at >> 16, at & 0xffff);
            let (file, at, mut byte) = (member(unit % 2), (unit / 2) << 16 | within, [0]);
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        }
    };
    scratch.good(&["mount", line, "mnt"]);
    for number in 0..40 {
        let bytes: Vec<u8> = (0..20_000_u32).map(|at| (at * 7 % 251 + number) as u8).collect();
        scratch.write(&format!("mnt/f{number}"), bytes);
    }
    scratch.good(&["umount", "mnt"]);
    flip(1);
    let refused = mounted(&[]);
    assert!(refused.code != 0 && refused.err.contains("assembled differently"), "{}", refused.err);
    let hint = refused.err.lines().find_map(|line| line.split_once("run: ")).unwrap().1;
    let looked = scratch.run(&["fsck", "-n", line]);
    assert!(looked.code == 4 && looked.out.contains("leave out -n"), "{}{}", looked.out, looked.err);
    let repaired = pasted(hint);
    assert!(repaired.code == 1 && repaired.out.contains("-inum"), "{}{}", repaired.out, repaired.err);
    assert_eq!(mounted(&[]).code, 0);
    flip(2);
    let refused = mounted(&[]);
    assert!(refused.code != 0 && refused.err.contains("for more: seekless fsck --trust-order"), "{}", refused.err);
    let refused = pasted(hint);
    assert!(refused.code == 4 && refused.err.contains("nothing was changed"), "{}{}", refused.out, refused.err);
    assert_eq!(mounted(&["-o", "ro"]).code, 0);
    let hint = refused.err.lines().find_map(|line| line.split_once("damaged: seekless")).unwrap().1;
    let repaired = pasted(&format!("seekless{hint}"));
    assert!(repaired.code == 1, "{}{}", repaired.out, repaired.err);
    assert_eq!(mounted(&[]).code, 0);
    assert_eq!(scratch.run(&["fsck", "--trust-order", "lfs / file:a.img"]).code, 16);
}
