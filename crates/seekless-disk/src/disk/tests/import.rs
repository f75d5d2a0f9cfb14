//! Drives from DiskSim's parameter files: what is read, what is refused, and drives that were validated.

use super::*;
use crate::disk::import::{Imported, ReadError};
use crate::disk::validation::{DISKSIM, fit, replay};
use crate::rng::Rng;

/// Reads `file` of a few texts.
pub(super) fn import(files: &[(&str, &str)], wanted: Option<&str>) -> Result<Imported, String> {
    let read = |name: &str| {
        let found = files.iter().find(|(other, _)| *other == name);
        found.map(|(_, text)| (*text).to_owned()).ok_or_else(|| ReadError::Missing(format!("there is no file {name}")))
    };
    Imported::read(files[0].0, wanted, &read).map_err(|error| error.to_string())
}

/// Aim: a drive that is imported is as good as DiskSim's own. Method: the parameter files of the drives with a trace, as they come, and
/// the bus of the test bed, which is in a file that does not come with the traces.
#[test]
fn imported_drives_are_as_good_as_disksims() {
    let Some(data) = super::validation::data() else {
        eprintln!("skipped: no validation traces; SEEKLESS_VALIDATION_DATA can point at them");
        return;
    };
    let read =
        |name: &str| std::fs::read_to_string(data.join(name)).map_err(|error| ReadError::Failed(error.to_string()));
    for (name, file) in [
        ("atlas10k", "atlas10k.diskspecs"),
        ("cheetah4lp", "cheetah4LP.diskspecs"),
        ("cheetah9lp", "cheetah9LP.diskspecs"),
        ("dec-rz26", "dec_rz26.diskspecs"),
        ("hp-c2247a", "hp_c2247a.diskspecs"),
    ] {
        if !data.join(file).exists() {
            continue;
        }
        let known = DISKSIM.iter().find(|known| known.drive == name).unwrap();
        let imported = Imported::read(file, None, &read).unwrap_or_else(|error| panic!("{error}"));
        let answers = replay(&imported.drive, &super::validation::trace(&data.join(known.file))).unwrap();
        let fit = fit(&answers).unwrap();
        let ratio = fit.demerit_ms / known.demerit_ms;
        println!("{name}: demerit {:.3} ms, DiskSim's {:.3} ms", fit.demerit_ms, known.demerit_ms);
        assert!(ratio < 1.02, "{name}: demerit {:.3} ms, DiskSim's {:.3} ms", fit.demerit_ms, known.demerit_ms);
        if let (Seek::Table(read), Seek::Table(kept)) = (&imported.drive.seek, &drive(name).seek) {
            // The catalogue has six digits of each time.
            assert_eq!(read.len(), kept.len());
            assert!(read.iter().zip(kept.iter()).all(|(a, b)| a.0 == b.0 && a.1.0.abs_diff(b.1.0) <= 1));
        }
        // What the catalogue has beyond that is in its comments: flags on which DiskSim does not act.
        let catalogue = drive(name);
        let same = Drive {
            name: catalogue.name.clone(),
            product: catalogue.product.clone(),
            source: catalogue.source.clone(),
            evidence: catalogue.evidence,
            // What the drive reports; DiskSim's are what the zones hold.
            sectors: catalogue.sectors,
            seek: match &catalogue.seek {
                Seek::Table(table) => Seek::Table(table.clone()),
                _ => imported.drive.seek.clone(),
            },
            cache: Cache {
                read_on_arrival: catalogue.cache.read_on_arrival,
                keep_passing_sectors: catalogue.cache.keep_passing_sectors,
                write_on_arrival: catalogue.cache.write_on_arrival,
                ..imported.drive.cache
            },
            ..imported.drive.clone()
        };
        assert_eq!(same, *catalogue);
        assert_eq!(Drive::from_toml(&imported.to_toml()), Ok(imported.drive));
    }
}

/// A drive as DiskSim describes one; `{...}` are replaced by the tests.
pub(super) const SPECS: &str = "
# A drive that does not exist.
disksim_disk ACME_2000_validate {
   Model = source acme.model,
   Per-request overhead time = 0.1,
   Time scale for overheads = 2.0,
   Bulk sector transfer time = 0.05,
   Allow read hits on write data = 1,
   Never disconnect = 0,
   Max queue length = 4,
   Scheduler = disksim_ioqueue { Scheduling policy = 4, Priority scheduling = 0 },
   Number of buffer segments = 2,
   Segment size (in blks) = 128,
   Use separate write segment = 1,
   High (read) water mark = 0.5,
   Set watermark by reqsize = 1,
   Buffer continuous read = 2,
   Maximum read-ahead (blks) = 64,
   Preseeking level = 1, # no comma comes next
   Fast write level = 2
   Read miss over. after read = 0.3,
   Colour of the case = \"dark blue\"
} # end
";

pub(super) const MODEL: &str = "
dm_disk ACME_2000 {
   Number of data surfaces = 2, Number of cylinders = 100, Block count = 9000,
   Layout Model = dm_layout_g1 {
      LBN-to-PBN mapping scheme = 1, Sparing scheme used = 9, Rangesize for sparing = 1,
      Skew units = revolutions,
      Zones = [
         dm_layout_g1_zone { First cylinder number = 0, Last cylinder number = 49, Blocks per track = 50,
            Offset of first block = 0.0, Empty space at zone front = 10, Skew for track switch = 0.1,
            Skew for cylinder switch = 0.205, Number of spares = 20, slips = [ 7, 5 ], defects = [ 30, 31 ] },
         dm_layout_g1_zone { First cylinder number = 50, Last cylinder number = 99, Blocks per track = 40,
            Offset of first block = 3.9, Skew units = sectors, Empty space at zone front = 0,
            Skew for track switch = 4.7, Skew for cylinder switch = 8, Number of spares = 20, slips = [],
            defects = [] }
      ]
   },
   Mechanical Model = dm_mech_g1 {
      Access time type = trackSwitchPlusRotation, Seek type = curve,
      Single cylinder seek time = 1.0, Average seek time = 8.0, Full strobe seek time = 16.0,
      Constant seek time = 5.0, Full seek curve = acme.seek,
      HPL seek equation values = [ 30, 3.0, 0.5, 6.0, 0.01, {single} ],
      First ten seek times = [ 1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7, 1.8, 1.9 ],
      Add. write settling delay = -0.4, Head switch time = 0.8, Rotation speed (in rpms) = 7200,
      Percent error in rpms = 0.0
   }
}
";

const CURVE: &str = "Seek distances measured: 3\n1, 1.5\n10,\t2.5\n\n99, 9.5\n";

pub(super) const SYSTEM: &str = "
disksim_iodriver DRIVER0 { type = 1, Constant access time = 0.0 }
disksim_bus BUS0 { type = 2, Read block transfer time = 0.2, Write block transfer time = 0.01 }
disksim_bus BUS1 { type = 1, Read block transfer time = 0.01, Write block transfer time = 0.3 }
disksim_bus BUS2 { type = 1, Read block transfer time = 9.0, Write block transfer time = 9.0 }
disksim_ctlr CTLR0 { type = 1, Bulk sector transfer time = 0.25 }
source acme.diskspecs
instantiate [ bus0 ] as BUS0 instantiate [ bus1 ] as BUS1
instantiate [ bus2 .. bus4, bus9 ] as BUS2
instantiate [ driver0 ] as DRIVER0
instantiate [ ctlr0 .. ctlr1 ] as CTLR0
instantiate [ disk0 .. disk1 ] as ACME_2000_validate
topology disksim_iodriver driver0 [
   disksim_bus bus0 [
      disksim_ctlr ctlr1 [ disksim_bus bus3 [ disksim_disk other [] ] ],
      disksim_ctlr ctlr0 [ disksim_bus bus1 [ disksim_disk disk0 [], disksim_disk disk1 [] ] ]
   ]
]
disksim_logorg org0 { devices = [ disk0 .. disk1 ], Sizes = [ exponential, 0.0, 8.0 ] }
";

fn acme(change: impl Fn(String) -> String) -> Result<Imported, String> {
    let model = change(MODEL.replace("{single}", "-1.0"));
    import(&[("acme.diskspecs", SPECS), ("acme.model", &model), ("acme.seek", CURVE)], None)
}

#[test]
fn a_drive_of_diskspecs() {
    let Imported { drive, notes, files } = acme(|text| text).unwrap();
    assert_eq!(files, ["acme.diskspecs", "acme.model"]);
    assert_eq!((&*drive.name, &*drive.product), ("acme-2000", "ACME 2000"));
    assert_eq!((drive.heads, drive.cylinders, drive.sectors, drive.rpm), (2, 100, 8950, 7200));
    assert_eq!((drive.surfaces, drive.sparing), (SurfaceOrder::Serpentine, Sparing::SectorsPerZone));
    assert_eq!((drive.write_settle_ns, drive.head_switch), (-400_000, Nanos(800_000)));
    // Skews in revolutions are rounded; of those in sectors the fraction is cut off.
    let zones = &drive.zones;
    assert_eq!((zones[0].track_skew, zones[0].cylinder_skew, &zones[0].slips[..]), (5, 10, &[5, 7][..]));
    assert_eq!((zones[1].track_skew, zones[1].cylinder_skew, zones[1].first_sector_angle), (4, 8, 3));
    assert_eq!(drive.overhead.read_miss, AfterPair { after_read: Nanos(800_000), after_write: Nanos(200_000) });
    assert_eq!((drive.bus.read_sector, drive.bus.disconnect_until_percent), (Nanos(50_000), Some(50)));
    assert_eq!((drive.cache.segments, drive.cache.write_segment_apart), (2, true));
    assert_eq!(drive.cache.read_ahead, ReadAhead::CylinderEnd { sectors: 64 });
    assert_eq!(drive.cache.write_behind, WriteBehind::One);
    for part in [
        "revolutions are rounded",
        "1 remapped",
        "8950 sectors",
        "`Preseeking level` is left out",
        "no queue of its own",
        "`scheduler` is sstf, for `Scheduling policy` 4 (shortest seek first by address; acme.diskspecs, line 11).",
        "`Colour of the case` (acme.diskspecs, line 22) is not known and left out.",
        "`Offset of first block` 3.9 (acme.model, line 12) counts as 3, and 1 more likewise. DiskSim cuts off fractions",
        "would be in the .parv",
    ] {
        assert!(notes.iter().any(|note| note.contains(part)), "{part}: {notes:#?}");
    }
    assert_eq!(notes.len(), 9, "{notes:#?}");
    assert_eq!(drive.scheduler, Some(Scheduler::Sstf));
}

/// A mark that some programs put in front of a text is no part of it, in any of the files, and the text may have it twice.
#[test]
fn byte_order_marks_are_no_text() {
    for marks in ["\u{feff}", "\u{feff}\u{feff}"] {
        let marked = |text: &str| format!("{marks}{text}");
        let model = MODEL.replace("{single}", "-1.0");
        let files = [("acme.parv", SYSTEM), ("acme.diskspecs", SPECS), ("acme.model", &model), ("acme.seek", CURVE)];
        let texts = files.map(|(name, text)| (name, marked(text)));
        let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, &**text)).collect();
        assert_eq!(import(&texts, None), import(&files, None));
        // The curve is read where the model names it.
        let extracted = model.replace("Seek type = curve", "Seek type = extracted");
        let specs = [("acme.diskspecs", SPECS), ("acme.model", &extracted), ("acme.seek", CURVE)];
        let plain = import(&specs, None).unwrap();
        let curve = marked(CURVE);
        assert_eq!(import(&[specs[0], specs[1], ("acme.seek", &curve)], None), Ok(plain));
    }
}

/// The bus is the slowest on the way to the drive, and to no other.
#[test]
fn a_drive_of_a_whole_system() {
    let model = MODEL.replace("{single}", "-1.0");
    let files = [("acme.parv", SYSTEM), ("acme.diskspecs", SPECS), ("acme.model", &model)];
    let imported = import(&files, None).unwrap();
    let bus = imported.drive.bus;
    assert_eq!((bus.read_sector, bus.write_sector), (Nanos(250_000), Nanos(300_000)));
    assert_eq!(imported.files, ["acme.parv", "acme.diskspecs", "acme.model"]);
    assert_eq!(import(&files, Some("disk1")).unwrap(), imported);
    assert!(!imported.notes.iter().any(|note| note.contains("parv")), "{:#?}", imported.notes);
}

#[test]
fn every_kind_of_seek() {
    let seek = |kind: &str, single: &str| {
        let model = MODEL.replace("{single}", single).replace("Seek type = curve", &format!("Seek type = {kind}"));
        import(&[("acme.diskspecs", SPECS), ("acme.model", &model), ("acme.seek", CURVE)], None).unwrap().drive.seek
    };
    let ms = |millis: f64| Nanos((millis * 1e6).round() as u64);
    assert_eq!(seek("curve", "-1"), Seek::ThreePoint { one: ms(1.0), average: ms(8.0), full: ms(16.0) });
    assert_eq!(seek("constant", "-1"), Seek::Constant(ms(5.0)));
    assert_eq!(seek("linear", "-1"), Seek::Table(vec![(1, ms(1.0)), (33, ms(8.0)), (100, ms(16.0))].into()));
    assert_eq!(seek("extracted", "-1"), Seek::Table(vec![(1, ms(1.5)), (10, ms(2.5)), (99, ms(9.5))].into()));
    let two = |short: Vec<Nanos>| {
        let (root_base_ms, root_ms, line_base_ms, line_ms) = (3.0, 0.5, 6.0, 0.01);
        Seek::TwoPiece(TwoPiece { root_base_ms, root_ms, line_from: 30, line_base_ms, line_ms, short: short.into() })
    };
    assert_eq!(seek("hpl", "-1.0"), two(Vec::new()));
    assert_eq!(seek("hpl", "0.9"), two(vec![ms(0.9)]));
    assert_eq!(seek("hplplus10", "-1"), two((0..10).map(|n| ms(1.0 + 0.1 * f64::from(n))).collect()));
}

/// Aim: a misspelt name of what counts as none if it is not given is noticed. Method: each of them misspelt.
#[test]
fn what_is_missing_is_said() {
    for key in ["Head switch time", "Skew for track switch", "Skew for cylinder switch"] {
        let given = acme(|text| text).unwrap();
        assert!(!given.notes.iter().any(|note| note.contains(key)), "{:?}", given.notes);
        let misspelt = acme(|text| text.replace(key, &key.replace("switch", "swich"))).unwrap();
        let note = misspelt.notes.iter().find(|note| note.contains(key));
        assert!(note.is_some_and(|note| note.contains("acme.model, line ")), "{:?}", misspelt.notes);
    }
}

/// Aim: a misspelt name is noticed, with its place and the name that was meant; so is one that is given twice. Method: a name of each block
/// misspelt, of those that have a value where they are not given.
#[test]
fn misspelt_names_are_said() {
    for (name, misspelt, note) in [
        (
            "Head switch time",
            "Head swich time",
            "`Head swich time` (acme.model, line 23) is not known and left out; did you mean `Head switch time`?",
        ),
        ("Add. write settling delay", "Add write settling", "did you mean `Add. write settling delay`?"),
        ("Empty space at zone front", "Empty space at zone's front", "did you mean `Empty space at zone front`?"),
        (
            "Number of spares = 20, slips = []",
            "Spare sectors = 20, slips = []",
            "`Spare sectors` (acme.model, line 13) is not known and left out.",
        ),
        ("Rangesize for sparing", "Range for sparing", "did you mean `Rangesize for sparing`?"),
        (
            "Percent error in rpms = 0.0",
            "Head switch time = 0.9",
            "`Head switch time` is given twice: line 23 of acme.model is left out, and line 24 counts",
        ),
    ] {
        let imported = acme(|text| text.replace(name, misspelt)).unwrap_or_else(|error| panic!("{misspelt}: {error}"));
        assert!(imported.notes.iter().any(|found| found.contains(note)), "{note}: {:#?}", imported.notes);
    }
    let error = acme(|text| text.replace("Seek type", "Seektype")).unwrap_err();
    assert!(error.contains("`Seek type` of dm_mech_g1 is missing; line 18 has `Seektype`"), "{error}");
    let model = MODEL.replace("{single}", "-1.0");
    let specs = SPECS.replace("Read miss over. after read", "Read mis over. after read");
    let imported = import(&[("acme.diskspecs", &specs), ("acme.model", &model)], None).unwrap();
    assert!(imported.notes.iter().any(|note| note.contains("did you mean `Read miss over. after read`?")));
    let odd: String = (0..20).map(|number| format!("Odd {number}x = 1, ")).collect();
    let imported = acme(|text| text.replace("Head switch time", &format!("{odd} Head switch time"))).unwrap();
    assert!(
        imported.notes.iter().any(|note| note.contains("12 further parameters of dm_mech_g1 (acme.model, line 17)"))
    );
    assert!(imported.notes.len() < 20);
}

/// Aim: nothing is rounded or cut off in silence. Method: fractions where whole numbers belong, skews without units, and skews in
/// the wrong ones.
#[test]
fn fractions_are_said_or_refused() {
    for (from, to, problem) in [
        (
            "Number of cylinders = 100",
            "Number of cylinders = 100.5",
            "line 3: `Number of cylinders`: 100.5 is not a whole number",
        ),
        ("Block count = 9000", "Block count = 9000.5", "line 3: `Block count`: 9000.5 is not a whole number"),
        ("Blocks per track = 50", "Blocks per track = 49.5", "line 8: `Blocks per track`: 49.5 is not a whole number"),
        ("slips = [ 7, 5 ]", "slips = [ 7.5, 5 ]", "line 10: `slips`: 7.5 is not a whole number"),
        ("mapping scheme = 1", "mapping scheme = 0.5", "`LBN-to-PBN mapping scheme`: 0.5 is not a whole number"),
        (
            "Head switch time = 0.8",
            "Head switch time = 0,8",
            "line 23: `Head switch time`: decimals come after a point, not after a comma: 0.8",
        ),
    ] {
        let error = acme(|text| text.replacen(from, to, 1)).map(|_| ()).expect_err(to);
        assert!(error.contains(problem), "{to}: {error}");
    }
    assert!(acme(|text| text.replace("= 9000,", "= 9000.000,")).is_ok());
    for (from, to, note) in [
        (
            "(in rpms) = 7200",
            "(in rpms) = 7200.4",
            "`Rotation speed (in rpms)` 7200.4 (acme.model, line 23) is rounded to 7200.",
        ),
        (
            "      Skew units = revolutions,\n",
            "\n",
            "`Skew for track switch` 0.1 (acme.model, line 9) counts as 0, and 1 more likewise. There are no `Skew units`",
        ),
        (
            "Skew for track switch = 0.1",
            "Skew for track switch = 5",
            "`Skew for track switch` 5 (acme.model, line 9) counts as 0. Whole revolutions are no skew",
        ),
    ] {
        let imported = acme(|text| text.replacen(from, to, 1)).unwrap_or_else(|error| panic!("{to}: {error}"));
        assert!(imported.notes.iter().any(|found| found.contains(note)), "{note}: {:#?}", imported.notes);
    }
    // Of the drive's electronics.
    let model = MODEL.replace("{single}", "-1.0");
    let specs =
        |from: &str, to: &str| import(&[("acme.diskspecs", &SPECS.replace(from, to)), ("acme.model", &model)], None);
    for (from, to, problem) in [
        (
            "Time scale for overheads = 2.0",
            "Time scale for overheads = -2",
            "`Time scale for overheads`: -2 is not from 0 to 1000",
        ),
        ("water mark = 0.5", "water mark = 50", "`High (read) water mark`: 50 is not from 0 to 1"),
        ("continuous read = 2", "continuous read = 7", "`Buffer continuous read`: 7 is not from 0 to 4"),
        ("Fast write level = 2", "Fast write level = -1", "`Fast write level`: -1 is not from 0 to 2"),
        ("policy = 4", "policy = 99", "`Scheduling policy`: 99 is not from 1 to 28"),
    ] {
        let error = specs(from, to).map(|_| ()).expect_err(to);
        assert!(error.contains(problem), "{to}: {error}");
    }
    for (from, to, note) in [
        ("water mark = 0.5", "water mark = 0.333", "is rounded to 33 % of a request"),
        (
            "buffer segments = 2",
            "buffer segments = 1",
            "The cache has 2 segments, the fewest that it can have, and not 1.",
        ),
    ] {
        let notes = specs(from, to).unwrap().notes;
        assert!(notes.iter().any(|found| found.contains(note)), "{note}: {notes:#?}");
    }
}

/// Aim: the order of service is taken over, or it is said why not. Method: queues of one request and of several, in the drive, the driver
/// and the controller.
#[test]
fn the_order_of_service_is_said() {
    let model = MODEL.replace("{single}", "-1.0");
    let of = |system: &str, specs: &str| {
        let files = [("acme.parv", system), ("acme.diskspecs", specs), ("acme.model", &*model)];
        let Imported { drive, notes, .. } = import(&files, None).unwrap();
        (drive.scheduler, notes.join("\n"))
    };
    let policy = |number: u32| SPECS.replace("policy = 4", &format!("policy = {number}"));
    for (number, scheduler) in [
        (1, Some(Scheduler::Fcfs)),
        (3, Some(Scheduler::CLook)),
        (6, Some(Scheduler::CLook)),
        (7, Some(Scheduler::Sstf)),
        (8, Some(Scheduler::Sptf { age_micros: 0 })),
        (2, None),
        (28, None),
    ] {
        let (found, notes) = of(SYSTEM, &policy(number));
        assert_eq!(found, scheduler, "{number}");
        let verb = if scheduler.is_none() { " is left out: there is no such order here" } else { "`scheduler` is " };
        assert!(notes.contains(&format!("`Scheduling policy` {number} (")) && notes.contains(verb), "{notes}");
    }
    // One request at a time: the driver in front of it orders, if there is one.
    let one = SPECS.replace("Max queue length = 4", "Max queue length = 1");
    let (found, notes) = of(SYSTEM, &one);
    assert_eq!(found, None);
    assert!(notes.contains("`Scheduler` (acme.diskspecs, line 11) is left out: it orders nothing while"), "{notes}");
    let queue = "Scheduler = disksim_ioqueue { Scheduling policy = 3, Cylinder mapping strategy = 1, Write initiation delay = 0.5 }";
    let system = SYSTEM.replace("DRIVER0 { type = 1,", &format!("DRIVER0 {{ type = 1, {queue},"));
    let system = system.replace("CTLR0 { type = 1,", &format!("CTLR0 {{ type = 1, {queue},"));
    let (found, notes) = of(&system, &one);
    assert_eq!(found, Some(Scheduler::CLook));
    for part in [
        "line 2) of the driver, because the drive's own queue",
        "`Write initiation delay` of the scheduler",
        "of the controller CTLR0",
    ] {
        assert!(notes.contains(part), "{part}: {notes}");
    }
    assert_eq!(of(&system, SPECS).0, Some(Scheduler::Sstf));
}

/// Aim: the bus is that of the drive that was named, and one that is nowhere in the topology is said to be unknown. Method: two instances
/// of one drive on two buses, and a drive without an instance.
#[test]
fn the_bus_is_that_of_the_named_drive() {
    let model = MODEL.replace("{single}", "-1.0");
    let system = SYSTEM
        .replace("disksim_disk other []", "disksim_disk disk1 []")
        .replace("disk0 [], disksim_disk disk1 []", "disk0 []");
    let of = |wanted: Option<&str>| {
        let two = [SPECS, &SPECS.replace("ACME_2000", "B")].concat();
        import(&[("acme.parv", &system), ("acme.diskspecs", &two), ("acme.model", &model)], wanted)
    };
    let read = |wanted: &str| of(Some(wanted)).unwrap().drive.bus.read_sector;
    assert_eq!(read("disk0"), Nanos(250_000));
    assert_eq!(read("disk1"), Nanos(9_000_000));
    assert_eq!(read("ACME_2000_validate"), Nanos(9_000_000), "the first in the topology");
    let notes = of(Some("B_validate")).unwrap().notes;
    for part in
        ["The drive B_validate is not in the topology of acme.parv", "The bus is as fast as the drive's electronics"]
    {
        assert!(notes.iter().any(|note| note.contains(part)), "{part}: {notes:#?}");
    }
    let error = of(Some("disk7")).map(|_| ()).unwrap_err();
    assert!(
        error.ends_with("there is no drive `disk7`; there are: ACME_2000_validate (disk0, disk1), B_validate"),
        "{error}"
    );
    let error = of(Some("bus0")).map(|_| ()).unwrap_err();
    assert!(error.contains("there is no drive `bus0`; there are:"), "{error}");
    // A bus that does not say how fast it is.
    let vague = system.replace("BUS1 { type = 1, Read block transfer time = 0.01,", "BUS1 { type = 1,");
    let notes = import(&[("acme.parv", &vague), ("acme.diskspecs", SPECS), ("acme.model", &model)], Some("disk0"))
        .unwrap()
        .notes;
    assert!(
        notes.iter().any(|note| note.starts_with("The bus BUS1 has no `Read block transfer time` (acme.parv, line 4)")),
        "{notes:#?}"
    );
}

#[test]
fn every_way_of_sparing() {
    let of =
        |scheme: u32| acme(|text| text.replace("Sparing scheme used = 9", &format!("Sparing scheme used = {scheme}")));
    for (scheme, sparing, note) in [
        (0, Sparing::None, ""),
        (2, Sparing::SectorsPerCylinder, ""),
        (3, Sparing::SectorsPerTrack, ""),
        (4, Sparing::SectorsPerCylinder, "2 slipped sectors are left out"),
        (6, Sparing::SectorsPerCylinder, "at the end of each cylinder"),
        (7, Sparing::None, ""),
        (8, Sparing::SectorsPerRange { cylinders: 1 }, ""),
        (9, Sparing::SectorsPerZone, ""),
        (10, Sparing::SectorsPerZoneBeyondSlips, ""),
    ] {
        let imported = of(scheme).unwrap_or_else(|error| panic!("{scheme}: {error}"));
        assert_eq!(imported.drive.sparing, sparing);
        assert!(note.is_empty() || imported.notes.iter().any(|found| found.contains(note)), "{:?}", imported.notes);
    }
    assert_eq!(of(11).unwrap_err(), "acme.model: line 5: `Sparing scheme used`: 11 is not from 0 to 10");
}

/// Aim: what is wrong is said with file and line. Method: one mistake at a time.
#[test]
fn mistakes_in_parameters_are_named() {
    for (from, to, problem) in [
        ("dm_layout_g1 {", "dm_layout_g4 {", "acme.model: line 4: `TP` of dm_layout_g4 is missing"),
        (
            "Seek type = curve",
            "Seek type = curved",
            "acme.model: line 18: `Seek type`: there is no seek type `curved`; one of: constant",
        ),
        ("Block count = 9000,", "Block count 9000,", "acme.model: line 3: `=` is expected here, not `,`"),
        (
            "Head switch time = 0.8,",
            "Head switch time = fast,",
            "acme.model: line 23: `Head switch time`: a number is expected",
        ),
        (
            "Head switch time = 0.8,",
            "Head switch time = -1,",
            "acme.model: line 23: `Head switch time`: -1 ms is not from 0",
        ),
        (
            "delay = -0.4,",
            "delay = -100,",
            "acme.model: line 23: `Add. write settling delay`: -100 ms takes more off a write than an average seek lasts",
        ),
        ("delay = -0.4,", "delay = 1e5,", "`Add. write settling delay`: 100000 ms is not from -1000 to 1000"),
        ("Full strobe seek time = 16.0", "Full strobe seek time = 6", "line 17: a seek over all cylinders, of 6 ms"),
        ("Number of data surfaces = 2,", "", "acme.model: line 2: `Number of data surfaces` of ACME_2000 is missing"),
        ("slips = [ 7, 5 ]", "slips = [ 7, 5 }", "acme.model: line 10: a value is expected here, not `}`"),
        ("slips = [ 7, 5 ]", "slips = 7", "acme.model: line 10: `slips`: a list in brackets"),
        (
            "Last cylinder number = 49",
            "Last cylinder number = 50",
            "acme.model: line 11: zone 2 has cylinders 50 to 99, but zone 1 ends at cylinder 50",
        ),
        ("trackSwitchPlusRotation", "constant", "`constant` is no mechanical model"),
        ("dm_mech_g1 {", "dm_mech_mems {", "the mechanical model dm_mech_mems is not known"),
        ("dm_disk ACME_2000 {", "source acme.model dm_disk ACME_2000 {", "more than 32 levels"),
        (
            "dm_disk ACME_2000 {",
            "dm_disk A { } dm_disk ACME_2000 {",
            "acme.model: line 2: `=` is expected here, not `{`",
        ),
    ] {
        assert_eq!(MODEL.matches(from).count(), 1, "{from}");
        let error = acme(|text| text.replacen(from, to, 1)).map(|_| ()).expect_err(to);
        assert!(error.contains(problem), "{to}: {error}");
    }
    let gone = acme(|text| text.replace("= curve", "= extracted").replace("acme.seek", "gone.seek")).unwrap_err();
    assert!(gone.ends_with("`Full seek curve`: there is no file gone.seek"), "{gone}");
    let error = |files: &[(&str, &str)], wanted| import(files, wanted).map(|_| ()).unwrap_err();
    assert_eq!(error(&[("a", "")], None), "a: line 1: there is no drive (a block disksim_disk or dm_disk) here");
    let simple = error(&[("a", "\ndisksim_simpledisk S { Block count = 1000, Constant access time = 10.0 }")], None);
    assert!(simple.starts_with("a: line 2: S is a disksim_simpledisk, whose requests all take one time"), "{simple}");
    let two = [SPECS, &SPECS.replace("ACME_2000", "B")].concat();
    let model = MODEL.replace("{single}", "-1");
    let files = [("two", &*two), ("acme.model", &*model)];
    assert_eq!(
        error(&files, None),
        "two: line 1: there are several drives, say which with --drive: ACME_2000_validate, B_validate"
    );
    assert_eq!(
        error(&files, Some("C")),
        "two: line 1: there is no drive `C`; there are: ACME_2000_validate, B_validate"
    );
    assert_eq!(import(&files, Some("B_validate")).unwrap().drive.name, "b");
    // The mechanics alone.
    let imported = import(&files[1..], None).unwrap();
    assert!(imported.notes[0].contains("mechanics alone"), "{:?}", imported.notes);
}

/// Aim: a seek curve whose table was cut off, mixed up or joined with another is not taken for a whole one. Method: one mistake at a
/// time in the file of the curve.
#[test]
fn mistakes_in_seek_curves_are_named() {
    let model = MODEL.replace("{single}", "-1.0").replace("Seek type = curve", "Seek type = extracted");
    let read = |curve: &str| import(&[("acme.diskspecs", SPECS), ("acme.model", &model), ("acme.seek", curve)], None);
    for (from, to, problem) in [
        ("99, 9.5", "99, -9.5", "line 5: a distance from 0 to 16777216, and a time from 0 to 1000 ms"),
        ("99, 9.5", "99, 9.5, 0, 9e9", "line 5: a distance from 0 to 16777216, and a time from 0 to 1000 ms"),
        ("1, 1.5", "1, 1,5", "line 2: `1, 1,5` has a comma inside a number, or a third column"),
        ("1, 1.5", "1;1,5", "line 2: `1;1,5` has a comma inside a number"),
        ("1, 1.5", "1\t1,5", "line 2: `1\\t1,5` has a comma inside a number"),
        ("1, 1.5", "1, 1,5, 1,75", "line 2: `1, 1,5, 1,75` has a comma inside a number"),
    ] {
        let error = read(&CURVE.replace(from, to)).map(|_| ()).expect_err(to);
        assert!(error.starts_with(&format!("acme.seek: {problem}")), "{to}: {error}");
    }
    let whole = read(CURVE).unwrap();
    for (from, to, note) in [
        ("measured: 3", "measured: 4", "acme.seek, line 1, announces 4 distances, and 3 follow: is the file cut off?"),
        ("measured: 3", "measured: 2", "acme.seek, line 1, announces 2 distances, and 3 follow"),
        ("measured: 3", "measured: three", "acme.seek, line 1, announces three distances, and 3 follow"),
        (
            "99, 9.5",
            "99, 9.5\n9, 9.5",
            "Line 6 of acme.seek is left out, as in DiskSim: the distance 9 comes after 99.",
        ),
        ("99, 9.5", "99, 9.5\n99, 9.6\n98.5, 9.5", "Line 6 of acme.seek is left out, and 1 more, as in DiskSim"),
        (
            "99, 9.5",
            "99, 9.5\nSeek distances measured: 1\n",
            "Line 6 of acme.seek is left out, as in DiskSim: the header",
        ),
        ("1, 1.5", "cylinders, ms\n1, 1.5", "Line 2 of acme.seek is left out, as in DiskSim: a distance"),
    ] {
        let imported = read(&CURVE.replace(from, to)).unwrap_or_else(|error| panic!("{to}: {error}"));
        assert!(imported.notes.iter().any(|found| found.contains(note)), "{note}: {:#?}", imported.notes);
        assert_eq!(imported.drive.seek, whole.drive.seek, "{to}");
    }
    // A time that is too short for its distance; the place is that of the mechanics, which name the file.
    let error = read(&CURVE.replace("9.5", "1.6")).map(|_| ()).unwrap_err();
    assert!(error.starts_with("acme.model: line 17: a seek over all cylinders, of 1.6 ms"), "{error}");
    assert!(read(&CURVE.replace("Seek distances measured: 3", "# without a count")).is_ok());
    for good in ["1,1.5", "1,1.5,1.75", "1, 1, 2", "1,1", "1 1.5 1.75"] {
        assert!(read(&CURVE.replace("1, 1.5", good)).is_ok(), "{good}");
    }
}

/// Aim: what is imported can be read again. Method: a seek curve that is allowed, but makes a drive file that is too long.
#[test]
fn a_drive_that_no_file_can_hold_is_refused() {
    let model = MODEL.replace("{single}", "-1.0").replace("Seek type = curve", "Seek type = extracted");
    let curve: String = (1..=60_000).map(|n| format!("{n}, {:.6}\n", 1.5 + f64::from(n) / 12_345.0)).collect();
    let error = import(&[("acme.diskspecs", SPECS), ("acme.model", &model), ("acme.seek", &curve)], None).unwrap_err();
    assert!(error.contains("acme.diskspecs") && error.contains("a drive file has at most 1048576"), "{error}");
}

/// Aim: no text does harm. Method: pieces of the files above taken out, doubled and put elsewhere; seeded.
#[test]
fn changed_parameters_do_no_harm() {
    let model = MODEL.replace("{single}", "-1.0");
    let whole = [SYSTEM, SPECS, &model, CURVE].concat();
    let pieces: Vec<&str> = whole.split_inclusive([' ', '\n']).collect();
    let mut rng = Rng::new(3);
    for _ in 0..3000 {
        let mut text: Vec<&str> = pieces.clone();
        for _ in 0..=rng.below(4) {
            let at = rng.below(text.len() as u64) as usize;
            match rng.below(4) {
                0 => drop(text.remove(at)),
                1 => text.insert(
                    at,
                    *rng.pick(&["{ ", "} ", "[ ", "] ", ", ", "= ", "\"", "# ", "source ", "-1 ", "1e99 "]),
                ),
                2 => text[at] = *rng.pick(&["0 ", "1 ", "-1, ", "4294967295, ", "1e15, ", "x "]),
                _ => text.swap(at, rng.below(pieces.len() as u64 / 2) as usize),
            }
        }
        let text = text.concat();
        let (file, rest) = text.split_once("dm_disk").unwrap_or((&text, ""));
        crate::disk::import::fuzz::any(format!("{file}\n---\ndm_disk{rest}").as_bytes());
        crate::disk::import::fuzz::any(format!("dm_disk{rest}").as_bytes());
    }
}
