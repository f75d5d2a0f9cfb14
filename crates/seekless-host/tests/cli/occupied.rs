//! Aim: the content of a store stays until the user allows its loss, and commands in hints are safe to paste. Method:
//! every stack made on the image of every other one; hints run by a shell.

use std::os::unix::fs::MetadataExt;

use serde_json::Value;

use crate::Scratch;

/// Stacks that put what they make in different places.
const STACKS: &[&str] = &[
    "lfs / file:a.img",
    "vlfs / file:a.img",
    "ffs / file:a.img",
    "vld / file:a.img",
    "lfs / vld / file:a.img",
    "lfs / remap:chunk=1MiB,seed=7 / file:a.img",
    "vlfs / permute:seed=3 / file:a.img",
    "ffs / permute:block=64KiB / file:a.img",
    "lfs / volume:n=1,chunk=256KiB / file:a.img",
    "lfs / raid0:n=1 / file:a.img",
    "lfs / concat:n=1 / remap / file:a.img",
];

/// No stack destroys what another has made without --force, and no command calls it blank.
#[test]
fn no_stack_destroys_another() {
    let scratch = Scratch::new();
    for made in STACKS {
        scratch.good(&["mkfs", "-q", &made.replace("a.img", "a.img,size=48MiB")]);
        let bytes = std::fs::read(scratch.path("a.img")).unwrap();
        for other in STACKS {
            let ended = scratch.run(&["mkfs", "-q", other]);
            assert_eq!(ended.code, 1, "{made}, then {other}: {}", ended.err);
            assert!(ended.err.contains("which would be lost"), "{made}, then {other}: {}", ended.err);
            for command in ["info", "fsck"] {
                let ended = scratch.run(&[command, other]);
                assert!(!ended.err.contains("mkfs") && !ended.err.contains("blank"), "{made}, {other}: {}", ended.err);
            }
        }
        assert!(std::fs::read(scratch.path("a.img")).unwrap() == bytes, "{made} is as it was");
        scratch.good(&["mkfs", "-q", "-f", made]);
        std::fs::remove_file(scratch.path("a.img")).unwrap();
    }
}

/// What `mkfs --force` replaces is gone, also where the size of the image is no multiple of 4 KiB: nothing finds the copy of a superblock
/// at the end, and would mend the front one with it.
#[test]
fn what_was_replaced_is_not_found_before_an_odd_end() {
    // Neither discards nor uses what is behind the last whole chunk.
    const LINE: &str = "lfs:discard=off / remap:chunk=1MiB,seed=7 / file:a.img";
    let scratch = Scratch::new();
    for word in ["vld", "lfs", "vlfs"] {
        scratch.write("a.img", vec![0; 20_000_000]);
        let line = format!("{word} / file:a.img");
        scratch.good(&["mkfs", "-q", &line]);
        scratch.good(&["mkfs", "-q", "--force", LINE]);
        let ended = scratch.run(&["info", &line]);
        assert_ne!(ended.code, 0, "{word}: {}", ended.out);
        scratch.good(&["fsck", LINE]);
    }
}

/// Of several stores none is changed or created when one of them must not be.
#[test]
fn all_stores_are_looked_at_first() {
    let scratch = Scratch::new();
    let all = || -> Vec<Vec<u8>> { (0..2).map(|n| std::fs::read(scratch.path(&format!("m-{n}"))).unwrap()).collect() };
    let signed = [b"LUKS\xba\xbe".as_slice(), &[0; 9 << 20]].concat();
    scratch.write("m-0", vec![0; 9 << 20]);
    scratch.write("m-1", &signed);
    let before = all();
    let ended = scratch.run(&["mkfs", "lfs / raid1:n=3 / vld / file:m-{},size=64MiB"]);
    assert_eq!(ended.code, 2 - 1, "{}", ended.err);
    let ended = scratch.run(&["mkfs", "lfs / raid1:n=2 / vld / file:m-{}"]);
    assert!(ended.code == 1 && ended.err.contains("m-1 holds a LUKS volume"), "{}", ended.err);
    scratch.write("m-0", &signed);
    let before_both = all();
    // Also where what is there may be destroyed: the third is missing.
    let ended = scratch.run(&["mkfs", "--force", "lfs / raid1:n=3 / vld / file:m-{}"]);
    assert!(ended.code == 1 && ended.err.contains("there is no file m-2"), "{}", ended.err);
    assert!(all() == before_both && before[1] == before_both[1] && !scratch.path("m-2").exists());
    // Files created for a failed mkfs are all removed.
    std::fs::remove_file(scratch.path("m-0")).unwrap();
    std::fs::remove_file(scratch.path("m-1")).unwrap();
    let ended = scratch.run(&["mkfs", "lfs / raid1:n=3 / file:m-{},size=64KiB"]);
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert_eq!(std::fs::read_dir(scratch.path("")).unwrap().count(), 0, "{}", ended.err);
}

/// The last line of mkfs, read by a shell, opens what was made. Names are those that have to be quoted.
#[test]
fn the_line_that_mkfs_prints_opens_it() {
    let scratch = Scratch::new();
    for line in [
        "lfs / remap:chunk=1MiB,seed=7 / file:rm.img,size=48MiB",
        "lfs:label=x,segment=256KiB,cleaner=greedy / file:\"it's, b\",size=48MiB",
        "zstd:chunk=16KiB / vlfs:inode-bytes=64KiB / permute:seed=9,size=16MiB / file:\"$HOME `c`\",size=48MiB,direct=off",
        "ffs:block=16KiB,fragment=2KiB,metadata=softdep / raid0:n=2,stripe=32KiB / file:\"a {} \\\"q\\\"\",size=48MiB",
        "vld:snapshots=2,reserve=20% / concat:n=2 / file:d=1-{},size=48MiB",
        "lfs / raid5:n=3,stripe=16KiB / file:r-{},size=48MiB",
    ] {
        let text = scratch.good(&["mkfs", line, "-U", "67e55044-10b1-426f-9247-bb680e5fe0c8", "-L", "mine"]);
        let hint = text.lines().last().unwrap();
        let command = hint.split_once(": ").unwrap().1.strip_suffix(" DIR").unwrap_or(hint.split_once(": ").unwrap().1);
        let (_, quoted) = command.strip_prefix("seekless ").unwrap().split_once(' ').unwrap();
        let run = |what: &str| {
            let script = format!("\"$0\" {what} {quoted} --json");
            let mut shell = std::process::Command::new("sh");
            shell.args(["-c", &script, env!("CARGO_BIN_EXE_seekless")]).current_dir(scratch.path(""));
            scratch.ended(&shell.output().unwrap())
        };
        let info = run("info");
        assert_eq!(info.code, 0, "{line}\n{hint}\n{}", info.err);
        let info: Value = serde_json::from_str(&info.out).unwrap();
        let made: Value = serde_json::from_str(&scratch.good(&["info", line, "--json"])).unwrap();
        assert_eq!(info["uuid"], made["uuid"], "{line}\n{hint}");
        let checked = run("fsck -n");
        assert_eq!(checked.code, 0, "{line}\n{hint}\n{}", checked.err);
    }
}

/// A stack that keeps changes in memory makes nothing, and does not touch the storage below.
#[test]
fn a_fork_is_not_made() {
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "-q", "lfs / file:a.img,size=48MiB"]);
    let bytes = std::fs::read(scratch.path("a.img")).unwrap();
    let ended = scratch.run(&["mkfs", "--force", "vlfs / fork / file:a.img"]);
    assert!(ended.code == 2 && ended.err.contains("`fork` keeps changes only in memory"), "{}", ended.err);
    assert!(std::fs::read(scratch.path("a.img")).unwrap() == bytes);
    assert_eq!(scratch.run(&["mkfs", "vlfs / fork / file:b.img,size=48MiB"]).code, 2);
    assert!(!scratch.path("b.img").exists());
}

/// An image keeps the space that was allocated for it where the line says discard=off.
#[test]
fn a_preallocated_image_stays_so() {
    let scratch = Scratch::new();
    let allocate = || std::process::Command::new("fallocate").args(["-l", "48MiB"]).arg(scratch.path("p.img")).status();
    if !allocate().is_ok_and(|status| status.success()) {
        return;
    }
    let blocks = || std::fs::metadata(scratch.path("p.img")).unwrap().blocks();
    let before = blocks();
    for line in ["lfs:discard=off / file:p.img", "vlfs:discard=off / file:p.img", "vld:discard=off / file:p.img"] {
        scratch.good(&["mkfs", "-q", "-f", line]);
        assert!(blocks() >= before, "{line}: {} of {before} blocks", blocks());
    }
}
