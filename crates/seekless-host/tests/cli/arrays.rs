//! Aim: an array can be made, shown, checked and scrubbed, alone and below a file system, and data that one member
//! silently holds wrong is found and corrected. Method: images whose bytes are changed between commands.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

use super::Scratch;

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
        assert!(made.contains("offer it with: seekless export"), "{made}");
        let line = format!("{word} / file:d-{{}}.img");
        let again = scratch.run(&["mkfs", &line]);
        assert_eq!(again.code, 1, "what is there is protected: {}", again.out);
        let info = scratch.good(&["info", &line, "--json"]);
        assert!(info.contains(&format!("\"members\": {count}")) && info.contains("complete"), "{info}");
        let dump = scratch.good(&["dump", &line]);
        assert!(dump.contains("member 1 holds everything"), "{dump}");
        let checked = scratch.good(&["fsck", &line]);
        assert!(checked.contains("clean"), "{checked}");
        std::fs::remove_file(scratch.path("d-1.img")).unwrap();
        let info = scratch.good(&["info", &line]);
        assert!(info.contains("degraded") && info.contains("1 is missing"), "{info}");
        std::fs::remove_file(scratch.path("d-0.img")).unwrap();
        if count == 4 {
            let info = scratch.good(&["info", &line]);
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
            assert!(scrubbed.contains("all members agree, and all data fits its checksums"), "{scrubbed}");
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

/// A scrub of an array that lacks a member is no success, however well the rest agrees.
#[test]
fn a_scrub_without_a_member_is_incomplete() {
    for array in ["raid1:n=2", "raid5:n=3"] {
        let scratch = Scratch::new();
        scratch.good(&["mkfs", &format!("lfs / {array} / file:d-{{}}.img,size=16MiB")]);
        std::fs::remove_file(scratch.path("d-1.img")).unwrap();
        let line = format!("lfs / {array},degraded=on / file:d-{{}}.img");
        for more in [&[][..], &["-n"]] {
            let scrubbed = scratch.run(&[&["scrub", &line], more].concat());
            assert_eq!(scrubbed.code, 4, "{}{}", scrubbed.out, scrubbed.err);
            assert!(scrubbed.out.contains(": 0 rows compared"), "{}", scrubbed.out);
            assert!(scrubbed.out.contains("not everything could be compared"), "{}", scrubbed.out);
        }
        let json = scratch.run(&["scrub", &line, "--json"]);
        assert!(json.code == 4 && json.out.contains("\"verdict\": \"incomplete\""), "{}", json.out);
    }
}

#[test]
fn what_nothing_decides_is_left_unless_the_data_is_believed() {
    let scratch = Scratch::new();
    scratch.good(&["mkfs", "raid5:n=3 / file:d-{}.img,size=16MiB"]);
    spoil(&scratch, "d-2.img");
    let left = scratch.run(&["scrub", "raid5:n=3 / file:d-{}.img"]);
    assert_eq!(left.code, 4, "{}{}", left.out, left.err);
    assert!(left.out.contains("data and parity do not fit"), "{}", left.out);
    let checked = scratch.run(&["fsck", "raid5:n=3 / file:d-{}.img"]);
    assert_eq!(checked.code, 4, "{}{}", checked.out, checked.err);
    assert!(checked.out.contains("seekless scrub"), "{}", checked.out);
    let believed = scratch.run(&["scrub", "--believe-data", "raid5:n=3 / file:d-{}.img"]);
    assert_eq!(believed.code, 1, "{}{}", believed.out, believed.err);
    scratch.good(&["scrub", "raid5:n=3 / file:d-{}.img"]);
    let nothing = scratch.run(&["scrub", "lfs / file:d-0.img"]);
    assert_eq!(nothing.code, 16, "{}", nothing.err);
}
