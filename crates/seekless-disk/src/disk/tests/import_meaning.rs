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

/// The drive with another seek curve.
fn with_curve(curve: &str) -> Imported {
    let model = MODEL.replace("{single}", "-1.0").replace("Seek type = curve", "Seek type = extracted");
    import(&[("acme.diskspecs", SPECS), ("acme.model", &model), ("acme.seek", curve)], None).unwrap()
}

/// Aim: writes seek as the fourth column says, and reads as the second. Method: DiskSim's files with both, a distance that is in the file
/// and one between two; a deviation as third column is no time.
#[test]
fn writes_have_a_curve_of_their_own() {
    let imported =
        with_curve("Seek distances measured: 3\n1, 1.5, 0.01, 1.65\n10, 2.5, 0.2, 2.65\n99, 9.5, 0.1, 9.65\n");
    let drive = &imported.drive;
    assert!(!says(&imported, "seek curve"), "{:#?}", imported.notes);
    assert_eq!(Drive::from_toml(&imported.to_toml()).as_ref(), Ok(drive));
    let tables = crate::disk::tables::Tables::new(drive).unwrap();
    let time = |cylinder: u32, write: bool| {
        let track = |cylinder: u32| crate::disk::tables::Track { cylinder, head: 0 };
        tables.reposition(track(0), track(cylinder), write)
    };
    for (cylinder, millis) in [(1, 1.5), (4, 1.833333), (10, 2.5), (99, 9.5)] {
        let expected = Nanos::from_millis_f64(millis);
        assert!(time(cylinder, false).0.abs_diff(expected.0) <= 1);
        // The model takes 0.4 ms off a write.
        assert!((time(cylinder, true).0 + 400_000).abs_diff(expected.0 + 150_000) <= 1, "{cylinder}");
        assert!(tables.reposition_min(cylinder) <= time(cylinder, true).min(time(cylinder, false)));
    }
    let three = with_curve("1, 1.5, 0.01\n10, 2.5, 0.2\n99, 9.5, 0.1\n");
    assert_eq!((&three.drive.write_seek, &three.drive.seek), (&None, &drive.seek));
    let partly = with_curve("1, 1.5\n10, 2.5, 0.2, 2.65\n99, 9.5, 0.1, 9.65\n");
    assert!(says(&partly, "1 distances of acme.seek have no time of writes"), "{:#?}", partly.notes);
}

/// Aim: below the first distance the curve is DiskSim's. Method: a curve with a time of distance 0, and one with a header, which DiskSim
/// begins at 0.
#[test]
fn curves_begin_as_in_disksim() {
    let begin = |curve: &str| {
        let Seek::Table(table) = with_curve(curve).drive.seek else { panic!("no table") };
        table[0]
    };
    assert_eq!(begin("0, 0.5\n10, 2.5\n99, 9.5\n"), (1, Nanos(700_000)));
    assert_eq!(begin("Seek distances measured: 2\n10, 2.5\n99, 9.5\n"), (1, Nanos(250_000)));
    assert_eq!(begin("Seek distances measured: 3\n0, 0.5\n1, 2.5\n99, 9.5\n"), (1, Nanos(2_500_000)));
    assert_eq!(begin("10, 2.5\n99, 9.5\n"), (10, Nanos(2_500_000)));
}

/// Aim: a measured curve whose end is noise makes no negative times. Method: one that falls at its end, far before the last cylinder.
#[test]
fn curves_that_fall_at_their_end() {
    let imported = with_curve("1, 1.5\n40, 9.5\n42, 8.5\n");
    assert!(says(&imported, "The seek curve falls at its end, 42 cylinders"), "{:#?}", imported.notes);
    let seek = crate::disk::seek::tabulate(&imported.drive).unwrap();
    assert_eq!((seek[42], seek[99]), (8_500_000, 8_500_000));
}

/// Aim: names count from the file that has them. Method: a system beside a folder of drives, files in it that name their neighbours, and one
/// that names a file of the system's folder.
#[test]
fn files_in_folders() {
    let model = MODEL.replace("{single}", "-1.0").replace("Seek type = curve", "Seek type = extracted");
    let model = model.replace("acme.seek", "curves/acme.seek");
    let curve = "1, 1.5\n10, 2.5\n99, 9.5\n";
    let specs = SPECS.replace("disksim_disk ACME", "source common.inc disksim_disk ACME");
    let files = |common: &'static str| {
        [
            ("system.parv", "source drives/acme.diskspecs"),
            ("drives/acme.diskspecs", &*specs),
            ("drives/acme.model", &*model),
            ("drives/curves/acme.seek", curve),
            (common, "# nothing"),
        ]
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
    };
    for common in ["drives/common.inc", "common.inc"] {
        let owned = files(common);
        let files: Vec<(&str, &str)> = owned.iter().map(|(name, text)| (&**name, &**text)).collect();
        let imported = import(&files, None).unwrap();
        let expected = ["system.parv", "drives/acme.diskspecs", common, "drives/acme.model", "drives/curves/acme.seek"];
        assert_eq!(imported.files, expected);
        let gone: Vec<(&str, &str)> = files.iter().filter(|(name, _)| *name != "drives/acme.model").copied().collect();
        let error = import(&gone, None).unwrap_err();
        assert_eq!(error, "drives/acme.diskspecs: line 4: there is no file drives/acme.model");
    }
    let absolute = import(&[("a/b", "source /c"), ("/c", "source d"), ("/d", "")], None).unwrap_err();
    assert!(absolute.contains("there is no drive"), "{absolute}");
}

/// Aim: the zone after one that is shorter than a range for sparing begins where it does in DiskSim, which counts whole ranges.
#[test]
fn zones_shorter_than_a_range_have_no_spares() {
    let sectors = |range: u32| {
        let range = format!("scheme used = 8, Rangesize for sparing = {range}");
        let slips = ("slips = [ 7, 5 ]", "slips = []");
        changed(&[], &[("scheme used = 9, Rangesize for sparing = 1", &range), slips]).drive.sectors
    };
    // Two zones of 50 cylinders, 20 spares in each range, 10 sectors reserved.
    assert_eq!(sectors(50), 50 * 2 * 50 + 50 * 2 * 40 - 10 - 2 * 20);
    assert_eq!(sectors(26), sectors(50));
    assert_eq!(sectors(25), sectors(50) - 2 * 20);
    assert_eq!(sectors(51), 50 * 2 * 50 + 50 * 2 * 40 - 10);
    assert_eq!(sectors(60), sectors(51));
}
