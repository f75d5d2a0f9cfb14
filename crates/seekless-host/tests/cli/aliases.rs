//! Overlays of the kernel, which show files that are stored elsewhere.

use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags};
use seekless_host::testing::{Need, skip};

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
