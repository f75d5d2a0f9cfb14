//! What DiskSim's parameters mean, where its code is not what one would expect of their names.

use super::import::{MODEL, SPECS, SYSTEM, import};
use super::*;
use crate::disk::import::{Imported, ReadError};

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
    assert!(
        says(&partly, "Distances of acme.seek without a time of writes have that of reads: 1."),
        "{:#?}",
        partly.notes
    );
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

/// Aim: a file beside the one that names it counts even if it cannot be read, so that another of its name is not read without a word.
#[test]
fn a_file_that_cannot_be_read_is_not_looked_for_elsewhere() {
    let read = |name: &str| match name {
        "system.parv" => Ok("source drives/acme.diskspecs".to_owned()),
        "drives/acme.diskspecs" => Ok("source acme.model".to_owned()),
        "drives/acme.model" => Err(ReadError::Failed("cannot read drives/acme.model: Permission denied".to_owned())),
        _ => Ok(String::new()),
    };
    let error = Imported::read("system.parv", None, &read).unwrap_err().to_string();
    assert_eq!(error, "drives/acme.diskspecs: line 1: cannot read drives/acme.model: Permission denied");
}

/// Aim: a block in a block may have another as its type, as one at the top may. Method: the layout of the drive, and a zone in it.
#[test]
fn blocks_in_blocks_have_types() {
    let whole = changed(&[], &[]).drive;
    let model = MODEL.replace("{single}", "-1.0");
    let outer = "dm_layout_g1_zone { First cylinder number = 0, Last cylinder number = 49, Blocks per track = 50,";
    assert!(model.contains(outer));
    let model = model.replace(outer, "OUTER { First cylinder number = 0,");
    let with = |block: &str| {
        let specs = format!("{block} {{ Last cylinder number = 49, Blocks per track = 50 }}\n{SPECS}");
        import(&[("acme.diskspecs", &specs), ("acme.model", &model)], None)
    };
    assert_eq!(with("dm_layout_g1_zone OUTER").unwrap().drive.zones, whole.zones);
    let error = with("dm_layout_g1_zone OTHER").unwrap_err();
    assert!(error.contains("`Blocks per track` of OUTER is missing"), "{error}");
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

/// Aim: overheads that DiskSim charges in a way of its own are as there. Method: `Time scale for overheads` is 2 in the file.
#[test]
fn overheads_as_in_disksim() {
    let drive = changed(&[("Preseeking level = 1,", "Minimum seek delay = 1.5,")], &[]).drive;
    assert_eq!(drive.overhead.write_seek_min, Nanos::from_millis_f64(1.5));
    // A write that waits for the medium lets go of the bus, on a drive that otherwise holds it.
    let write = |never: &str, level: &str| {
        let reselect = [
            ("Never disconnect = 0", never),
            ("Fast write level = 2", level),
            ("Preseeking level = 1,", "First reselect overhead = 0.5, Write completion overhead = 0.1,"),
        ];
        changed(&reselect, &[]).drive.overhead.write_completion
    };
    assert_eq!(write("Never disconnect = 1", "Fast write level = 0,"), Nanos::from_millis_f64(1.2));
    assert_eq!(write("Never disconnect = 0", "Fast write level = 0,"), Nanos::from_millis_f64(0.2));
    assert_eq!(write("Never disconnect = 1", "Fast write level = 1,"), Nanos::from_millis_f64(0.2));
}

/// Aim: what takes time in DiskSim and none here is said. Method: each of them in the files, and the files without them.
#[test]
fn times_that_are_left_out_are_said() {
    let reselect = ("Preseeking level = 1,", "First reselect overhead = 0.5,");
    let held = ("Never disconnect = 0,", "Never disconnect = 0, Hold bus entire read xfer = 1,");
    assert!(says(&changed(&[reselect], &[]), "`Hold bus entire read xfer` counts as 1"));
    assert!(!says(&changed(&[reselect, held], &[]), "`Hold bus entire read xfer`"));
    assert!(!says(&changed(&[], &[]), "`Hold bus entire read xfer`"));
    assert!(says(&changed(&[("Set watermark", "Enable caching in buffer = 0, Set watermark")], &[]), "moves the arm"));
    let model = MODEL.replace("{single}", "-1.0");
    let system = |from: &str, to: &str| {
        assert_eq!(SYSTEM.matches(from).count(), 1, "{from}");
        let system = SYSTEM.replace(from, to);
        import(&[("acme.parv", &system), ("acme.diskspecs", SPECS), ("acme.model", &model)], None).unwrap()
    };
    for (from, to, note) in [
        (
            "BUS1 { type = 1,",
            "BUS1 { type = 1, Arbitration time = 0.1,",
            "`Arbitration time` of BUS1 (acme.parv, line 4)",
        ),
        ("Constant access time = 0.0", "Constant access time = 5.0", "`Constant access time` of DRIVER0"),
        ("CTLR0 { type = 1,", "CTLR0 { type = 3, Cache = disksim_cachemem { Cache size = 1 },", "`Cache` of CTLR0"),
    ] {
        assert!(says(&system(from, to), note), "{note}: {:#?}", system(from, to).notes);
    }
    let plain = system("BUS2 { type = 1,", "BUS2 { type = 1, Arbitration time = 0.1,");
    assert!(!says(&plain, "is left out: a transfer"), "another bus: {:#?}", plain.notes);
}

/// Aim: all that DiskSim's language can say is read. Method: the drive of the files, each time with one thing said in another way.
#[test]
fn the_language_of_disksim() {
    let model = MODEL.replace("{single}", "-1.0");
    let plain = import(&[("acme.diskspecs", SPECS), ("acme.model", &model)], None).unwrap().drive;
    let of = |specs: &str, model: &str, more: &str| {
        let files = [("acme.diskspecs", specs), ("acme.model", model), ("zones.inc", more)];
        import(&files, None).unwrap_or_else(|error| panic!("{error}"))
    };
    assert_eq!(of(&SPECS.replace("blks) = 128", "blks) = 0x80"), &model, "").drive, plain);
    // Zones in a file of their own, with commas between them.
    let (before, rest) = model.split_once("Zones = [").unwrap();
    let (zones, after) = rest.split_once("\n      ]").unwrap();
    let split = format!("{before}Zones = [ source zones.inc ]{after}");
    let named =
        Drive { source: "parameters of DiskSim, acme.diskspecs, acme.model, zones.inc".into(), ..plain.clone() };
    assert_eq!(of(SPECS, &split, zones).drive, named);
    // One value for several parameters.
    let keys = model.replace("slips = [],", "").replace("defects = [] }", "[ slips, defects ] = [] }");
    assert_eq!(of(SPECS, &keys, "").drive, plain);
    // Lists that are longer than what is read of them.
    for kind in ["hpl", "hplplus10"] {
        let kind = model.replace("Seek type = curve", &format!("Seek type = {kind}"));
        let longer = kind.replace("-1.0 ]", "-1.0, 7 ]").replace("1.8, 1.9 ]", "1.8, 1.9, 0.1 ]");
        assert_eq!(of(SPECS, &longer, "").drive, of(SPECS, &kind, "").drive);
    }
    // The first of two blocks counts.
    let twice = [SPECS, &SPECS.replace("blks) = 128", "blks) = 64")].concat();
    let imported = of(&twice, &model, "");
    assert_eq!(imported.drive, plain);
    let note =
        "The block ACME_2000_validate (acme.diskspecs, line 26) is left out, as in DiskSim: acme.diskspecs, line 3,";
    assert!(says(&imported, note), "{:#?}", imported.notes);
    // A block whose type is another block.
    let derived = format!("{SPECS}\nACME_2000_validate ACME_3000 {{ Segment size (in blks) = 64, Sise = 3 }}");
    let files = [("acme.diskspecs", &*derived), ("acme.model", &*model)];
    let imported = import(&files, Some("ACME_3000")).unwrap();
    let cache = Cache { segment_sectors: 64, ..plain.cache };
    assert_eq!(imported.drive, Drive { name: "acme-3000".into(), product: "ACME 3000".into(), cache, ..plain.clone() });
    assert!(says(&imported, "`Sise` (acme.diskspecs, line 25)") && says(&imported, "`Colour of the case`"));
    let chain: String = (0..40).map(|number| format!("D{number} D{} {{}}\n", number + 1)).collect();
    let chain = format!("{SPECS} ACME_2000_validate D0 {{}}\n{chain}");
    let error = import(&[("acme.diskspecs", &chain), ("acme.model", &model)], None).unwrap_err();
    assert!(error.contains("more than 32 blocks, each the type of the next"), "{error}");
    // What is no file, and no text.
    let error = import(&[("a", "source ,")], None).unwrap_err();
    assert_eq!(error, "a: line 1: the name of a file is expected here, not `,`");
    let error = import(&[("a", "source")], None).unwrap_err();
    assert_eq!(error, "a: line 1: the name of a file is expected here, not the end of the file");
}
