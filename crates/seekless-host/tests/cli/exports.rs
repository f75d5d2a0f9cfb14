//! Devices exported over NBD, with the usual clients. A client that is not installed is skipped with a message.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::*;

/// An export with a daemon, which ends with it.
struct Exported {
    scratch: Scratch,
    uri: String,
}

impl Exported {
    fn new(size: &str) -> Exported {
        Exported::of("vld", size)
    }

    /// A disk that is made with the word `vld`.
    fn of(vld: &str, size: &str) -> Exported {
        let scratch = Scratch::new();
        let made = scratch.run(&["mkfs", &format!("{vld} / file:disk.img,size={size}")]);
        assert_eq!(made.code, 0, "{}", made.err);
        let exported = Exported { uri: format!("nbd+unix:///?socket={}", scratch.path("s").display()), scratch };
        exported.start();
        exported
    }

    fn start(&self) {
        let arguments = ["export", "vld / file:disk.img", "--socket", "s", "--pid-file", "pid", "--log-file", "log"];
        let started = self.scratch.run(&arguments);
        assert_eq!(started.code, 0, "{}", started.err);
    }

    fn signal(&self, signal: &str) {
        let Ok(pid) = std::fs::read_to_string(self.scratch.path("pid")) else { return };
        let _ = Command::new("kill").args([signal, pid.trim()]).status();
        let alive = || Path::new(&format!("/proc/{}", pid.trim())).exists();
        let start = Instant::now();
        while alive() && start.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!alive(), "the daemon ends");
    }

    /// Runs a client in the scratch directory; returns its output, or `None` where it is not installed.
    fn client(&self, program: &str, arguments: &[&str]) -> Option<String> {
        let run =
            Command::new(program).args(arguments).current_dir(self.scratch.0.path()).stdin(Stdio::null()).output();
        let Ok(output) = run else {
            skip(Need::Nbd, format!("{program} is not installed"));
            return None;
        };
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program} {arguments:?}: {out}{err}");
        Some(out.into_owned())
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        self.signal("-TERM");
    }
}

/// Bytes that do not repeat.
fn content(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 56) as u8
    };
    (0..bytes).map(|at| if at % (1 << 20) < (1 << 18) { 0 } else { next() }).collect()
}

/// Aim: the usual clients work. Method: `nbdinfo`, `nbdcopy` there and back over several connections,
/// `qemu-img compare`, then the daemon ends and another one has the same content.
#[test]
fn clients_of_all_kinds_are_served() {
    let exported = Exported::new("64MiB");
    let size = (48 << 20) + 1234;
    exported.scratch.write("in.img", content(size));
    if let Some(out) = exported.client("nbdinfo", &[&exported.uri]) {
        for text in
            ["export-size: ", "can_multi_conn: true", "can_trim: true", "can_fua: true", "block_size_preferred: 4096"]
        {
            assert!(out.contains(text), "{text} is missing in {out}");
        }
    }
    let Some(_) = exported.client("nbdcopy", &["--connections=4", "--flush", "in.img", &exported.uri]) else { return };
    exported.client("nbdcopy", &["--connections=4", &exported.uri, "out.img"]);
    let back = std::fs::read(exported.scratch.path("out.img")).expect("it was copied");
    assert!(back[..size] == std::fs::read(exported.scratch.path("in.img")).expect("it was written")[..]);
    assert!(back[size..].iter().all(|&byte| byte == 0));
    // Structured replies and holes, as qemu reads them.
    exported.client("qemu-img", &["compare", "-f", "raw", "-F", "raw", "out.img", &exported.uri]);
    exported.client("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "in.img", &exported.uri]);
    exported.signal("-TERM");
    let log = std::fs::read_to_string(exported.scratch.path("log")).expect("a log");
    assert!(log.contains("everything is durable"), "{log}");
    let info = exported.scratch.run(&["info", "vld / file:disk.img", "--json"]);
    assert!(info.out.contains("\"parked\": true"), "{}", info.out);
    let checked = exported.scratch.run(&["fsck", "vld / file:disk.img"]);
    assert_eq!(checked.code, 0, "{}", checked.out);
    exported.start();
    exported.client("nbdcopy", &[&exported.uri, "again.img"]);
    assert!(std::fs::read(exported.scratch.path("again.img")).expect("it was copied") == back);
}

/// Aim: the export works under a load like that of a busy virtual machine, with every byte verified, and with the
/// server killed in the middle. Method: fio's verification over NBD; after the kill, everything that a flush had
/// acknowledged is there.
#[test]
fn loads_are_borne() {
    let exported = Exported::new("64MiB");
    let uri = format!("--uri={}", exported.uri);
    let job = |more: &[&'static str]| -> Vec<String> {
        let common =
            ["--name=load", "--ioengine=nbd", "--size=32M", "--bs=4k", "--iodepth=16", "--output-format=terse"];
        common.iter().chain(more).map(|word| word.to_string()).chain([uri.clone()]).collect()
    };
    let run = |more: &[&'static str]| {
        let words = job(more);
        exported.client("fio", &words.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let Some(_) = run(&["--rw=randwrite", "--verify=crc32c", "--do_verify=1", "--fsync=64"]) else { return };
    run(&["--rw=randrw", "--bsrange=4k-64k"]);
    run(&["--rw=randwrite", "--verify=crc32c", "--do_verify=0", "--end_fsync=1"]);
    exported.signal("-KILL");
    let checked = exported.scratch.run(&["fsck", "vld / file:disk.img"]);
    assert_eq!(checked.code, 0, "{}{}", checked.out, checked.err);
    exported.start();
    run(&["--rw=randwrite", "--verify=crc32c", "--verify_only"]);
}

/// Aim: mistakes get clear errors. Method: a few.
#[test]
fn wrong_exports_are_refused() {
    let scratch = Scratch::new();
    scratch.write("empty.img", vec![0; 1 << 20]);
    for (arguments, code, text) in [
        (vec!["export", "memfs"], 2, "only block devices"),
        (vec!["export", "vld / file:empty.img", "--socket", "s"], 1, "there is no virtual log disk here"),
        (vec!["export", "memory:1MiB", "--socket", "missing/s"], 1, "cannot listen on missing/s"),
        (vec!["info", "vld / file:empty.img"], 1, "there is no vld on empty.img"),
        (vec!["mkfs", "vld:block=128KiB / file:empty.img"], 2, "block"),
    ] {
        let ended = scratch.run(&arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(text), "{arguments:?}: {}", ended.err);
    }
}

/// Aim: snapshots behave as users expect. Method: a disk is filled over NBD, kept, changed, read as it was, reverted;
/// and everything impossible is refused with a hint.
#[test]
fn snapshots_are_kept() {
    let exported = Exported::of("vld:snapshots=2,reserve=40%", "64MiB");
    let scratch = &exported.scratch;
    let disk = "vld / file:disk.img";
    let busy = scratch.run(&["snapshot", "take", disk, "one"]);
    assert_eq!(busy.code, 1, "somebody uses it: {}", busy.err);
    scratch.write("in.img", content(20 << 20));
    let Some(_) = exported.client("nbdcopy", &["--flush", "in.img", &exported.uri]) else { return };
    exported.signal("-TERM");
    assert_eq!(scratch.good(&["snapshot", "list", disk]), "there are no snapshots\n");
    scratch.good(&["snapshot", "take", disk, "one"]);
    exported.start();
    let changed: Vec<u8> = content(20 << 20).iter().map(|byte| byte ^ 0x55).collect();
    scratch.write("new.img", &changed);
    exported.client("nbdcopy", &["--flush", "new.img", &exported.uri]);
    exported.signal("-TERM");
    scratch.good(&["snapshot", "take", disk, "two"]);
    let list = scratch.good(&["snapshot", "list", disk, "--json"]);
    let below = disk.replacen("vld", "fault / vld", 1);
    assert_eq!(scratch.good(&["snapshot", "list", &below, "--json"]), list, "`fault` passes requests on");
    for text in ["\"name\": \"one\"", "\"name\": \"two\"", "\"own_bytes\": 0"] {
        assert!(list.contains(text), "{text} is missing in {list}");
    }
    for (arguments, code, said) in [
        (["take", disk, "one"], 1, "there is a snapshot `one` already"),
        (["take", disk, "three"], 1, "remove one"),
        (["take", disk, ""], 2, "1 to 64 bytes"),
        (["remove", disk, "three"], 1, "`three`"),
        (["take", "lfs / file:disk.img", "x"], 1, ""),
        (["take", "memory:size=1MiB", "x"], 1, "vld:snapshots=8"),
    ] {
        let ended = scratch.run(&[&["snapshot"], &arguments[..]].concat());
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(said), "{arguments:?}: {}", ended.err);
    }
    let missing = scratch.run(&["export", "vld:snapshot=three / file:disk.img", "--socket", "s"]);
    assert!(missing.code == 1 && missing.err.contains("snapshot list"), "{}", missing.err);
    let start = |stack: &str| {
        let mut arguments = vec!["export", stack, "--socket", "s", "--pid-file", "pid", "--log-file", "log"];
        arguments.extend(if stack.contains("snapshot=") { Some("--read-only") } else { None });
        assert_eq!(scratch.run(&arguments).code, 0);
    };
    let read = |stack: &str, expected: &[u8]| {
        start(stack);
        exported.client("nbdcopy", &[&exported.uri, "out.img"]);
        exported.signal("-TERM");
        let found = std::fs::read(scratch.path("out.img")).expect("it was copied");
        assert!(found[..expected.len()] == *expected, "{stack}");
    };
    read("vld:snapshot=one / file:disk.img", &content(20 << 20));
    read("vld:snapshot=two / file:disk.img", &changed);
    scratch.good(&["snapshot", "revert", disk, "one"]);
    read(disk, &content(20 << 20));
    scratch.good(&["snapshot", "remove", disk, "one"]);
    read(disk, &content(20 << 20));
    read("vld:snapshot=two / file:disk.img", &changed);
    assert_eq!(scratch.run(&["fsck", disk]).code, 0);
}
