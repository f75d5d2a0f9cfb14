//! `mount -o sharecpu`: with the program.

use crate::can_mount;
use crate::mounts::{LINE, prepared};

/// Whether a processor is shared cannot be changed by a remount, which says so, and leaves everything as it is. Words of fstab(5) that
/// say what holds anyway are not in the way.
#[test]
fn a_remount_says_what_stays() {
    if !can_mount() {
        return;
    }
    let scratch = prepared();
    for (options, accepted, refused) in [
        ("sharecpu", ["sharecpu", "sharecpu,busypoll"], ["nosharecpu", "nobusypoll"]),
        ("rw", ["nosharecpu", "sharecpu,nosharecpu"], ["sharecpu", "nobusypoll"]),
        ("nobusypoll,sharecpu", ["nobusypoll", "sharecpu"], ["busypoll", "nosharecpu"]),
    ] {
        scratch.good(&["mount", LINE, "mnt", "-o", options]);
        for word in refused {
            let ended = scratch.run(&["mount", LINE, "mnt", "-o", &format!("remount,ro,{word}")]);
            let text =
                format!("seekless: `{word}` cannot be changed while it is mounted; unmount mnt and mount it again\n");
            assert_eq!((ended.code, ended.err), (32, text), "{options}");
            scratch.write("mnt/f", options);
        }
        for words in accepted {
            for also in ["ro", "rw"] {
                scratch.good(&["mount", LINE, "mnt", "-o", &format!("remount,{also},{words}")]);
            }
        }
        scratch.write("mnt/f", options);
        scratch.good(&["umount", "mnt"]);
    }
}
