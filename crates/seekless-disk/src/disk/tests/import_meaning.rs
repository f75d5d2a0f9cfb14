//! What DiskSim's parameters mean, where its code is not what one would expect of their names.

use super::import::{MODEL, SPECS, import};
use super::*;
use crate::disk::import::Imported;

/// The drive of the files, with changed electronics and mechanics.
fn changed(specs: &[(&str, &str)], model: &[(&str, &str)]) -> Imported {
    let replaced = |text: &str, changes: &[(&str, &str)]| {
        changes.iter().fold(text.to_owned(), |text, (from, to)| {
            assert_eq!(text.matches(from).count(), 1, "{from}");
            text.replace(from, to)
        })
    };
    let model = replaced(&MODEL.replace("{single}", "-1.0"), model);
    import(&[("acme.diskspecs", &replaced(SPECS, specs)), ("acme.model", &model)], None).unwrap()
}

fn says(imported: &Imported, part: &str) -> bool {
    imported.notes.iter().any(|note| note.contains(part))
}

/// Aim: a trace that DiskSim can replay can be replayed. Method: requests beyond a `Block count` that is too low; DiskSim's own file of the
/// C3323A has one.
#[test]
fn the_capacity_is_what_the_zones_hold() {
    let held = changed(&[], &[]).drive.sectors;
    let imported = changed(&[], &[("Block count = 9000", "Block count = 100")]);
    assert_eq!((imported.drive.sectors, held), (8950, 8950));
    assert!(says(&imported, "not the 100 of `Block count`"), "{:#?}", imported.notes);
    let mut mechanism = Mechanism::new(&imported.drive).unwrap();
    mechanism.service(Nanos::ZERO, Nanos::ZERO, Request::read(Sector(8_000), 8)).unwrap();
    let exact = changed(&[], &[("Block count = 9000", "Block count = 8950")]);
    assert!(!says(&exact, "Block count"), "{:#?}", exact.notes);
    assert_eq!(changed(&[], &[("Block count = 9000,", "")]).drive.sectors, held);
}

/// Aim: no limit of read-ahead is none, and not a limit of no sectors.
#[test]
fn read_ahead_without_a_limit() {
    for (kind, ahead) in [
        (1, ReadAhead::TrackEnd { sectors: 128 }),
        (2, ReadAhead::CylinderEnd { sectors: 128 }),
        (3, ReadAhead::Sectors { sectors: 128 }),
    ] {
        let kind = format!("continuous read = {kind}");
        for limit in ["", "Maximum read-ahead (blks) = 0,"] {
            let specs = [("continuous read = 2", &*kind), ("Maximum read-ahead (blks) = 64,", limit)];
            let imported = changed(&specs, &[]);
            assert_eq!(imported.drive.cache.read_ahead, ahead, "{limit}");
            assert!(says(&imported, "Read-ahead goes on for a segment"), "{:#?}", imported.notes);
        }
    }
    let specs = [("Maximum read-ahead (blks) = 64", "Maximum read-ahead (blks) = 0, Read-ahead over requested = 1")];
    assert!(!says(&changed(&specs, &[]), "Read-ahead goes on for a segment"));
}

/// Aim: a mark in parts of a segment is none in parts of a request. Method: a drive with a segment of 128 sectors and a mark of a quarter: a
/// shorter request is sent when all of it is there, a longer one from the 32nd sector on.
#[test]
fn a_mark_in_parts_of_a_segment() {
    let quarter = ("water mark = 0.5", "water mark = 0.25");
    let of_segment = changed(&[quarter, ("Set watermark by reqsize = 1", "Set watermark by reqsize = 0")], &[]);
    let of_request = changed(&[quarter], &[]);
    let until = |imported: &Imported| {
        let bus = imported.drive.bus;
        (bus.disconnect_until_percent, bus.disconnect_until_sectors)
    };
    assert_eq!((until(&of_segment), until(&of_request)), ((Some(100), Some(32)), (Some(25), None)));
    assert_eq!(Drive::from_toml(&of_segment.to_toml()), Ok(of_segment.drive.clone()));
    let done = |imported: &Imported, percent: u32, sectors: u32| {
        let bus = Bus { disconnect_until_percent: Some(percent), disconnect_until_sectors: None, ..imported.drive.bus };
        let bus = if percent == 0 { imported.drive.bus } else { bus };
        let mut mechanism = Mechanism::new(&Drive { bus, ..imported.drive.clone() }).unwrap();
        mechanism.service(Nanos::ZERO, Nanos::ZERO, Request::read(Sector(0), sectors)).unwrap().done
    };
    // A revolution has 8.33 ms and 50 sectors of .167 ms; the bus takes .05 ms for one.
    assert_eq!(done(&of_segment, 0, 16), done(&of_segment, 100, 16));
    assert!(done(&of_segment, 0, 16) > done(&of_request, 0, 16));
    assert_eq!(done(&of_segment, 0, 64), done(&of_segment, 50, 64));
}
