//! Mounts and overlays that show files which are stored elsewhere.

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};
use seekless_host::testing::{LoopDevice, Need, SmallTmpfs, skip};

use crate::{Ended, Scratch, can_mount};

/// An overlay, until it is dropped.
struct Overlay(PathBuf);

impl Overlay {
    /// Makes one at `place`; `None`, with a message, where the kernel has none.
    fn mount(scratch: &Scratch, lower: &str, upper: &str, work: &str, place: &str) -> Option<Overlay> {
        if !std::fs::read_to_string("/proc/filesystems").unwrap_or_default().contains("\toverlay") {
            skip(Need::Overlay, "this kernel has no overlay file system");
            return None;
        }
        for name in [lower, upper, work, place] {
            std::fs::create_dir_all(scratch.path(name)).unwrap();
        }
        let [lower, upper, work] = [lower, upper, work].map(|name| scratch.path(name).display().to_string());
        let options = std::ffi::CString::new(format!("lowerdir={lower},upperdir={upper},workdir={work}")).unwrap();
        rustix::mount::mount("overlay", scratch.path(place), "overlay", MountFlags::empty(), &*options).unwrap();
        Some(Overlay(scratch.path(place)))
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        // Ignored: a failed test has already reported its error.
        let _ = rustix::mount::unmount(&self.0, UnmountFlags::DETACH);
    }
}

/// A scratch directory with a volume in `data/a.img`, and directories to mount on.
fn prepared() -> Scratch {
    let scratch = Scratch::new();
    for name in ["data", "m0", "m1"] {
        scratch.make_directory(name);
    }
    scratch.good(&["mkfs", "-q", "lfs / file:data/a.img,size=64MiB"]);
    scratch
}

fn assert_refused(ended: &Ended, why: &str, what: &str) {
    assert_ne!(ended.code, 0, "{what} is not refused");
    assert!(ended.err.contains(why), "{what}: {}", ended.err);
}

/// Aim: what an overlay has written to a mount is not taken for durable after sync(1), which does not reach that. Method: overlays on a
/// mount, on another overlay on that, and elsewhere; the directory that the hint names can be synced.
#[test]
fn a_sync_of_an_overlay_says_where_it_stores() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.good(&["mount", "lfs / file:data/a.img", "m1"]);
    let Some(one) = Overlay::mount(&scratch, "lower", "m1/upper", "m1/work", "ov") else { return };
    std::fs::create_dir(scratch.path("ov/deep")).unwrap();
    for place in ["ov", "ov/deep"] {
        let ended = scratch.run(&["sync", place]);
        assert_refused(&ended, "seekless sync T/m1/upper", place);
        assert!(!ended.err.contains("sync(1)"), "{}", ended.err);
    }
    scratch.good(&["sync", "m1/upper"]);
    let elsewhere = Overlay::mount(&scratch, "lower", "data/upper", "data/work", "ov2").unwrap();
    assert_refused(&scratch.run(&["sync", "ov2"]), "use sync(1)", "elsewhere");
    std::fs::rename(scratch.path("data/upper"), scratch.path("data/moved")).unwrap();
    let ended = scratch.run(&["sync", "ov2"]);
    assert_refused(&ended, "if that is in a Seekless mount, sync that directory", "not found");
    drop((elsewhere, one));
    assert!(Path::new(&scratch.path("m1/upper/deep")).is_dir());
    scratch.good(&["umount", "m1"]);
}

/// What is done to the image at `path`.
fn use_it(scratch: &Scratch, what: &str, path: &str) -> Ended {
    let line = format!("lfs / file:{path}");
    match what {
        "rw" => scratch.run(&["mount", &line, "m1"]),
        "ro" => scratch.run(&["mount", &line, "m1", "-o", "ro"]),
        "mkfs" => scratch.run(&["mkfs", "-q", "--force", &line]),
        "fsck -n" => scratch.run(&["fsck", "-n", &line]),
        command => scratch.run(&[command, &line]),
    }
}

/// Aim: an image has one user that writes, or any number that read, whichever mounts its bytes are reached through (F2). Method: the image by
/// its name and through several mounts that show it; each is used, and then all of them, for everything that opens a store.
fn check_ways(scratch: &Scratch, ways: &[&str]) {
    const IN_USE: &str = "is in use by another mount or process";
    // A block device that is in use is refused before it is opened.
    let others =
        |first: &str| ways.iter().filter(move |way| **way != first || !way.starts_with("/dev")).collect::<Vec<_>>();
    for first in ways {
        scratch.good(&["mount", &format!("lfs / file:{first}"), "m0"]);
        scratch.write("m0/f", first);
        for second in others(first) {
            for what in ["rw", "ro", "mkfs", "fsck", "fsck -n"] {
                let ended = use_it(scratch, what, second);
                assert_refused(&ended, IN_USE, &format!("after {first}: {what} {second}"));
                assert!(ended.err.contains("it is mounted on T/m0"), "after {first}: {what} {second}: {}", ended.err);
            }
        }
        scratch.good(&["umount", "m0"]);
        scratch.good(&["mount", &format!("lfs / file:{first}"), "m0", "-o", "ro"]);
        assert_eq!(std::fs::read_to_string(scratch.path("m0/f")).unwrap(), *first);
        for second in others(first) {
            for what in ["rw", "mkfs", "fsck"] {
                let ended = use_it(scratch, what, second);
                assert_refused(&ended, IN_USE, &format!("after reading {first}: {what} {second}"));
            }
            let ended = use_it(scratch, "ro", second);
            assert_eq!((ended.code, &*ended.complaints()), (0, ""), "after reading {first}: {second}");
            scratch.good(&["umount", "m1"]);
        }
        scratch.good(&["umount", "m0"]);
    }
    scratch.good(&["fsck", &format!("lfs / file:{}", ways[0])]);
}

/// The image in a directory that mounts of ours show, one over the other.
#[test]
fn an_image_is_used_once_through_mounts_of_its_directory() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    for name in ["h", "w"] {
        scratch.make_directory(name);
    }
    std::fs::hard_link(scratch.path("data/a.img"), scratch.path("data/link.img")).unwrap();
    scratch.good(&["mount", "hostdir:data", "h"]);
    scratch.good(&["mount", "wrap / wrap / hostdir:h", "w"]);
    check_ways(&scratch, &["data/a.img", "data/link.img", "h/a.img", "w/link.img"]);
    // One that was made there, at first without a name.
    scratch.good(&["mkfs", "-q", "lfs / file:h/n.img,size=64MiB"]);
    check_ways(&scratch, &["h/n.img", "data/n.img"]);
    // One that has lost the name under which it was found last.
    std::fs::hard_link(scratch.path("data/a.img"), scratch.path("data/last.img")).unwrap();
    std::fs::metadata(scratch.path("h/last.img")).unwrap();
    std::fs::remove_file(scratch.path("data/last.img")).unwrap();
    // The kernel knows names for a second.
    std::thread::sleep(std::time::Duration::from_millis(1200));
    check_ways(&scratch, &["h/a.img", "data/a.img"]);
    let Some(disk) = LoopDevice::attach(&scratch.path("h/a.img"), 512) else { return };
    check_ways(&scratch, &[disk.path().to_str().unwrap(), "data/a.img", "w/a.img"]);
    drop(disk);
    // A file that layers pass through.
    scratch.good(&["umount", "w"]);
    scratch.good(&["umount", "h"]);
    for line in ["zstd:plain=pass / hostdir:data", "uuencode:plain=pass / wrap / hostdir:data"] {
        scratch.good(&["mount", line, "h"]);
        check_ways(&scratch, &["h/a.img", "data/link.img"]);
        scratch.good(&["umount", "h"]);
    }
}

/// The image in the upper directory of an overlay, which stores in a mount of ours or beside it; and in a lower one, which is only read there.
#[test]
fn an_image_is_used_once_through_overlays() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.make_directory("h");
    let Some(above) = Overlay::mount(&scratch, "lower", "data", "work", "ov") else { return };
    check_ways(&scratch, &["ov/a.img", "data/a.img"]);
    drop(above);
    scratch.good(&["mount", "hostdir:.", "h"]);
    let nested = Overlay::mount(&scratch, "lower", "h/data", "h/work2", "ov").unwrap();
    check_ways(&scratch, &["ov/a.img", "data/a.img", "h/data/a.img"]);
    drop(nested);
    scratch.good(&["umount", "h"]);
    let _above = Overlay::mount(&scratch, "data", "upper", "work3", "ov").unwrap();
    scratch.good(&["mount", "lfs / file:data/a.img", "m0"]);
    assert_refused(&use_it(&scratch, "ro", "ov/a.img"), "is in use by another mount", "reading what is written below");
    // This copies it: these are other bytes.
    scratch.good(&["mount", "lfs / file:ov/a.img", "m1"]);
    scratch.good(&["umount", "m1"]);
    scratch.good(&["umount", "m0"]);
    scratch.good(&["fsck", "lfs / file:data/a.img"]);
}

/// An image is only read where the file that stores it cannot be opened, as its other users cannot be kept away.
#[test]
fn an_image_that_is_stored_out_of_sight_is_only_read() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.make_directory("h");
    scratch.good(&["mount", "hostdir:data", "h"]);
    scratch.good(&["mount", "lfs / file:data/a.img", "m0"]);
    let covering = SmallTmpfs::mount(&scratch.path("data"), 1 << 20).unwrap();
    for what in ["rw", "ro", "fsck"] {
        assert_refused(&use_it(&scratch, what, "h/a.img"), "is in use by another mount", what);
    }
    scratch.good(&["umount", "m0"]);
    for what in ["rw", "fsck", "mkfs"] {
        let ended = use_it(&scratch, what, "h/a.img");
        assert_refused(&ended, "h/a.img may be in use by another name: the file that stores it, T/data/a.img", what);
        assert!(ended.err.contains("use that file itself"), "{}", ended.err);
    }
    scratch.write("data/a.img", "another one");
    assert_refused(
        &use_it(&scratch, "rw", "h/a.img"),
        "T/data/a.img for the daemon of T/h, is another file here",
        "other",
    );
    for what in ["ro", "fsck -n"] {
        assert_eq!(use_it(&scratch, what, "h/a.img").code, 0, "{what}");
    }
    scratch.good(&["umount", "m1"]);
    drop(covering);
    scratch.good(&["mount", "lfs / file:h/a.img", "m1"]);
    scratch.good(&["umount", "m1"]);
}

/// Aim: loop devices over a mount whose daemon hangs delay other stores once, not each, and its user learns which mount it is. Method: several
/// over a stopped one, in a mount namespace of their own, as other tests would wait for it, too.
#[test]
fn loop_devices_over_a_mount_that_hangs_cost_one_wait() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    scratch.make_directory("h");
    scratch.write("data/x.img", vec![0; 1 << 20]);
    scratch.good(&["mkfs", "-q", "lfs / file:b.img,size=64MiB"]);
    let script = r#"
        seekless=$0
        $seekless mount hostdir:data h --pid-file pid || exit 9
        for each in 1 2 3; do losetup --find --show --sizelimit 4096 h/x.img; done >devices
        kill -STOP $(cat pid)
        sleep 1.2 # The kernel knows attributes for a second.
        timeout 60 $seekless fsck "lfs / file:b.img" >out
        ended=$?
        kill -CONT $(cat pid)
        for device in $(cat devices); do losetup --detach $device; done
        $seekless umount h || exit 9
        exit $ended"#;
    let begun = std::time::Instant::now();
    let mut namespace = std::process::Command::new("unshare");
    namespace.current_dir(scratch.path(".")).args([
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        script,
        env!("CARGO_BIN_EXE_seekless"),
    ]);
    let ended = scratch.ended(&namespace.output().unwrap());
    let devices = std::fs::read_to_string(scratch.path("devices")).unwrap();
    if devices.lines().count() < 3 {
        skip(Need::Loop, "there are no free loop devices");
        return;
    }
    assert_eq!(ended.code, 0, "{}", ended.err);
    let said = ended.err.lines().filter(|line| line.starts_with("warning: ")).collect::<Vec<_>>();
    assert!(said.len() == 1 && said[0].contains("the mount on T/h has not answered within 10 s"), "{}", ended.err);
    assert!(devices.lines().all(|device| said[0].contains(device)), "{} {}", said[0], devices);
    assert!(begun.elapsed().as_secs() < 25, "{:?}", begun.elapsed());
}

/// Aim: a benchmark in an overlay that stores in a mount of ours measures syncs that make files durable. Method: a small one, after which the
/// mount has counted flushes of its image that only a sync asks for.
#[test]
fn a_benchmark_syncs_below_an_overlay() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    // Checkpoints of its own would be flushes, too.
    scratch.good(&["mount", "lfs:checkpoint=1h,write-back=1h / file:data/a.img", "m1", "-o", "commit=3600"]);
    let Some(overlay) = Overlay::mount(&scratch, "lower", "m1/upper", "m1/work", "ov") else { return };
    scratch.good(&["sync", "m1"]);
    let flushes = || {
        let counted: serde_json::Value = serde_json::from_str(&scratch.good(&["stat", "--json", "m1"])).unwrap();
        let text = counted.to_string();
        let (_, number) = text.split_once("\"flushes\":").unwrap_or_else(|| panic!("no flushes in {text}"));
        number.split([',', '}']).next().unwrap().parse::<u64>().unwrap()
    };
    let before = flushes();
    let ended = scratch.run(&["bench", "smallfile", "--files", "20", "--on", "./ov"]);
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(flushes() > before, "no sync has come to the mount");
    drop(overlay);
    scratch.good(&["umount", "m1"]);
}
