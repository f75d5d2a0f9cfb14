//! A compressed directory: mounted, killed, checked, repaired.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::mounts::{daemon, wait_for};
use crate::{Scratch, can_mount};

const LINE: &str = "zstd / hostdir:data";

fn text(bytes: usize) -> Vec<u8> {
    b"What is repeated takes hardly any space.\n".iter().copied().cycle().take(bytes).collect()
}

/// Existing files stay as they are, new ones take less space, and synced data survives SIGKILL.
#[test]
fn a_directory_is_compressed() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    scratch.write("data/old", "it was here before");
    scratch.good(&["mount", LINE, "mnt", "--pid-file", "pid"]);
    let content = text(3_000_000);
    scratch.write("mnt/new", &content);
    scratch.make_directory("mnt/d");
    for number in 0..50 {
        scratch.write(&format!("mnt/d/{number}"), text(number * 1_000));
    }
    assert_eq!(std::fs::read(scratch.path("mnt/old")).unwrap(), b"it was here before");
    scratch.good(&["sync", "mnt"]);
    let below = std::fs::metadata(scratch.path("data/new")).unwrap().len();
    assert!(below < 100_000, "{below} bytes");
    scratch.write("mnt/later", "this may be lost");
    let pid = std::fs::read_to_string(scratch.path("pid")).unwrap();
    kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
    let begun = Instant::now();
    while std::fs::metadata(scratch.path("mnt")).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(30), "no sign of its end");
        std::thread::sleep(Duration::from_millis(10));
    }
    scratch.good(&["umount", "--lazy", "mnt"]);
    let checked = scratch.good(&["fsck", "-n", LINE]);
    assert!(checked.contains("clean"), "{checked}");
    assert!(checked.contains("1 files were not written by `zstd`") || checked.contains("2 files"), "{checked}");
    // Another word reads it, too.
    scratch.good(&["mount", "lz4 / hostdir:data", "mnt"]);
    assert!(std::fs::read(scratch.path("mnt/new")).unwrap() == content);
    for number in 0..50 {
        assert!(std::fs::read(scratch.path(&format!("mnt/d/{number}"))).unwrap() == text(number * 1_000));
    }
    assert_eq!(std::fs::read(scratch.path("mnt/old")).unwrap(), b"it was here before");
    scratch.good(&["umount", "mnt"]);
}

/// Aim: what a layer says is durable is, on a directory of another mount of ours as well, which the kernel does not sync as a
/// whole. Method: both ways of saying so and several layers; then the daemon below is killed.
#[test]
fn what_is_synced_above_another_mount_is_durable() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("below");
    scratch.make_directory("mnt");
    scratch.good(&["mkfs", "lfs / file:a.img,size=64MiB"]);
    let mount_below = || scratch.good(&["mount", "lfs / file:a.img", "below", "--pid-file", "pid"]);
    for (round, layer) in ["zstd", "wrap", "copy:index=classic"].into_iter().enumerate() {
        for said in ["sync", "umount"] {
            mount_below();
            let line = format!("{layer} / hostdir:below/{round}-{said}");
            scratch.make_directory(&format!("below/{round}-{said}"));
            scratch.good(&["sync", "below"]);
            scratch.good(&["mount", &line, "mnt"]);
            scratch.make_directory("mnt/d");
            for number in 0..20 {
                scratch.write(&format!("mnt/d/{number}"), text(number * 3_000));
            }
            std::fs::remove_file(scratch.path("mnt/d/3")).unwrap();
            std::fs::rename(scratch.path("mnt/d/4"), scratch.path("mnt/four")).unwrap();
            scratch.good(&[said, "mnt"]);
            kill_process(daemon(&scratch), Signal::KILL).unwrap();
            wait_for("its end", || std::fs::write(scratch.path("below/probe"), "").is_err());
            if said == "sync" {
                let _ = scratch.run(&["umount", "mnt"]);
            }
            let _ = scratch.run(&["umount", "--lazy", "below"]);
            mount_below();
            scratch.good(&["mount", &line, "mnt"]);
            for number in (0..20).filter(|number| *number != 3) {
                let name = if number == 4 { "mnt/four".to_owned() } else { format!("mnt/d/{number}") };
                let read = std::fs::read(scratch.path(&name));
                assert!(read.is_ok_and(|read| read == text(number * 3_000)), "{layer}, {said}: {name}");
            }
            assert!(!scratch.path("mnt/d/3").exists() && !scratch.path("mnt/d/4").exists(), "{layer}, {said}");
            scratch.good(&["umount", "mnt"]);
            scratch.good(&["umount", "below"]);
        }
    }
}

/// A write beyond the limit on the size of files is an error of that write, and not the end of the daemon.
#[test]
fn a_limit_on_the_size_of_files_kills_no_daemon() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    let mut limited = std::process::Command::new("sh");
    limited.current_dir(scratch.path(".")).args(["-c", "ulimit -f 2000; exec \"$0\" mount \"$1\" mnt"]);
    limited.args([env!("CARGO_BIN_EXE_seekless"), "copy / hostdir:data"]);
    assert!(limited.stdout(std::process::Stdio::null()).status().unwrap().success());
    scratch.write("mnt/other", "not synced yet");
    let large = std::fs::File::create(scratch.path("mnt/large")).unwrap();
    let written = std::io::Write::write_all(&mut &large, &text(5_000_000)).and_then(|()| large.sync_all());
    written.expect_err("it is larger than the limit");
    assert_eq!(std::fs::read(scratch.path("mnt/other")).unwrap(), b"not synced yet");
    drop(large);
    let _ = scratch.run(&["umount", "mnt"]);
    scratch.good(&["mount", "copy / hostdir:data", "mnt"]);
    assert_eq!(std::fs::read(scratch.path("mnt/other")).unwrap(), b"not synced yet");
    scratch.good(&["umount", "mnt"]);
}

/// A file that replaces another, by a rename or by being rewritten, is there with the old or the new content after
/// SIGKILL, without any sync.
#[test]
fn what_is_replaced_survives_sigkill() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    let content = |version: usize| format!("version {version}\n").repeat(200 + 700 * version);
    for round in 0..4 {
        scratch.good(&["mount", LINE, "mnt", "--pid-file", "pid"]);
        for name in ["renamed", "rewritten"] {
            scratch.write(&format!("mnt/{name}"), content(0));
        }
        scratch.good(&["sync", "mnt"]);
        for version in 1..=round + 1 {
            scratch.write("mnt/new", content(version));
            std::fs::rename(scratch.path("mnt/new"), scratch.path("mnt/renamed")).unwrap();
            scratch.write("mnt/rewritten", content(version));
        }
        let pid = std::fs::read_to_string(scratch.path("pid")).unwrap();
        kill_process(Pid::from_raw(pid.trim().parse().unwrap()).unwrap(), Signal::KILL).unwrap();
        let begun = Instant::now();
        while std::fs::metadata(scratch.path("mnt")).is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(30), "no sign of its end");
            std::thread::sleep(Duration::from_millis(10));
        }
        scratch.good(&["umount", "--lazy", "mnt"]);
        assert!(scratch.good(&["fsck", "-n", LINE]).contains("clean"));
        scratch.good(&["mount", LINE, "mnt"]);
        let renamed = std::fs::read_to_string(scratch.path("mnt/renamed")).unwrap();
        assert!(renamed == content(round + 1), "{} bytes", renamed.len());
        // Its release may still have been on its way.
        let rewritten = std::fs::read_to_string(scratch.path("mnt/rewritten")).unwrap();
        assert!((0..=round + 1).any(|version| rewritten == content(version)), "{} bytes", rewritten.len());
        scratch.good(&["umount", "mnt"]);
    }
}

/// A damaged file gives a clear error; where its records are intact, the check makes a new index.
#[test]
fn damage_is_found_and_mended() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    scratch.good(&["mount", LINE, "mnt"]);
    scratch.write("mnt/f", text(100_000));
    scratch.write("mnt/g", text(100_000));
    scratch.good(&["umount", "mnt"]);
    for (name, at) in [("f", 600), ("g", 1_100)] {
        let path = scratch.path(&format!("data/{name}"));
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let ended = scratch.run(&["fsck", "-n", LINE]);
    assert_eq!(ended.code, 4, "{}", ended.out);
    assert!(ended.out.contains("/f: slot 1: ") && ended.out.contains("/g: bytes 0 to 65536 are lost"), "{}", ended.out);
    let ended = scratch.run(&["fsck", LINE]);
    assert_eq!(ended.code, 4, "{}", ended.out);
    assert!(ended.out.contains("(repaired)"), "{}", ended.out);
    scratch.good(&["mount", LINE, "mnt"]);
    assert!(std::fs::read(scratch.path("mnt/f")).unwrap() == text(100_000));
    assert_eq!(std::fs::read(scratch.path("mnt/g")).unwrap_err().raw_os_error(), Some(117)); // EUCLEAN
    scratch.good(&["umount", "mnt"]);
}

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
    assert!(scratch.good(&["pack", LINE]).contains("19 had the right form already"));
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

/// Encrypted data cannot be read without the key, and normally with it; a passphrase protects the key.
#[test]
fn a_directory_is_encrypted() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    scratch.write("word", "open sesame\n");
    scratch.good(&["key", "a.key"]);
    scratch.good(&["key", "b.key", "--from", "a.key", "--passphrase", "word"]);
    assert_eq!(scratch.run(&["key", "a.key"]).code, 1, "it is not written over");
    let content = text(200_000);
    scratch.good(&["mount", "encrypt:a.key / hostdir:data", "mnt"]);
    scratch.write("mnt/f", &content);
    scratch.good(&["umount", "mnt"]);
    let below = std::fs::read(scratch.path("data/f")).unwrap();
    assert!(!below.windows(8).any(|window| window == &content[..8]));
    scratch.good(&["mount", "encrypt:b.key,passphrase=word / hostdir:data", "mnt"]);
    assert!(std::fs::read(scratch.path("mnt/f")).unwrap() == content);
    scratch.good(&["umount", "mnt"]);
    assert!(scratch.good(&["fsck", "encrypt:a.key / hostdir:data"]).contains("clean"));
    let ended = scratch.run(&["mount", "encrypt:b.key / hostdir:data", "mnt"]);
    assert!(ended.code != 0 && ended.err.contains("passphrase=FILE"), "{}", ended.err);
    scratch.good(&["key", "c.key"]);
    // The directory records its key, and that it has one: it is refused with any other stack, for any purpose.
    for line in ["encrypt:c.key / hostdir:data", "zstd / hostdir:data", "gzip:index=classic / hostdir:data"] {
        let wanted = if line.starts_with("encrypt") { "another key" } else { "encrypted" };
        let wanted = if line.contains("classic") { "index=classic" } else { wanted };
        let (mount, fsck) = (scratch.run(&["mount", line, "mnt"]), scratch.run(&["fsck", line]));
        for ended in [mount, fsck] {
            assert!(ended.code != 0 && ended.err.contains(wanted), "{line}: {}{}", ended.out, ended.err);
        }
    }
    scratch.make_directory("other");
    scratch.good(&["mount", "zstd / hostdir:other", "mnt"]);
    scratch.write("mnt/f", &content);
    scratch.good(&["umount", "mnt"]);
    let ended = scratch.run(&["mount", "encrypt:a.key / hostdir:other", "mnt"]);
    assert!(ended.code != 0 && ended.err.contains("seekless unpack"), "{}", ended.err);
    scratch.good(&["unpack", "zstd / hostdir:other"]);
    scratch.good(&["pack", "encrypt:a.key / hostdir:other"]);
    scratch.good(&["mount", "encrypt:a.key / hostdir:other", "mnt"]);
    assert!(std::fs::read(scratch.path("mnt/f")).unwrap() == content);
    scratch.good(&["umount", "mnt"]);
}

/// Files in the format of [za01], through a mount: the index is stored beside the file and is hidden.
#[test]
fn the_published_scheme_works() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    let line = "gzip:level=9,index=classic / hostdir:data";
    scratch.good(&["mount", line, "mnt"]);
    scratch.write("mnt/f", text(300_000));
    scratch.good(&["umount", "mnt"]);
    assert!(std::fs::metadata(scratch.path("data/f.idx")).unwrap().len() > 8);
    std::fs::remove_file(scratch.path("data/f.idx")).unwrap();
    scratch.good(&["mount", line, "mnt"]);
    assert!(std::fs::read(scratch.path("mnt/f")).unwrap() == text(300_000));
    assert_eq!(std::fs::read_dir(scratch.path("mnt")).unwrap().count(), 1);
    scratch.good(&["umount", "mnt"]);
    assert!(scratch.good(&["fsck", line]).contains("clean"));
    let ended = scratch.run(&["pack", line]);
    assert!(ended.code != 0 && ended.err.contains("index=log"), "{}", ended.err);
}
