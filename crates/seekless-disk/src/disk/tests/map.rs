//! Drives from DiskSim's layout by a map (`dm_layout_g2`): where each track ends up, and what is refused.

use super::import::import;
use super::*;
use crate::disk::import::Imported;
use crate::disk::layout::Layout;

const MODEL: &str = "dm_disk ACME { Number of data surfaces = 2, Number of cylinders = 5, Block count = 386,
Layout Model = dm_layout_g2 {
   Layout Map File = acme.map,
   Zones = [
      dm_layout_g2_zone { First cylinder number = 0, Last cylinder number = 2, First LBN = 0, Last LBN = 247,
         Blocks per track = 42, Skew units = sectors, Skew for track switch = 4, Skew for cylinder switch = 10 },
      dm_layout_g2_zone { First cylinder number = 3, Last cylinder number = 4, First LBN = 248, Last LBN = 385,
         Blocks per track = 35, Skew units = revolutions, Zone Skew = 0.2, Skew for track switch = 0.1,
         Skew for cylinder switch = 0.3 }
   ] },
Mechanical Model = dm_mech_g1 { Access time type = trackSwitchPlusRotation, Seek type = constant, Constant seek time = 5.0,
   Head switch time = 0.8, Rotation speed (in rpms) = 7200 } }
";

/// Two zones. Sector 20 of the second track is left out, and so is the first of the third, of which another was remapped; some spares.
fn map() -> String {
    let mut lines = vec!["ACME 4711".to_owned(), "from a SCSI disk".into(), "5 cylinders, 7200 rot, 2 heads".into()];
    let mut lbn = 0;
    let mut run = |cylinder: u32, head: u32, sector: u32, sectors: u32| {
        lines.push(format!("lbn {lbn} --> cyl {cylinder}, head {head}, sect {sector}, seqcnt {}", sectors - 1));
        lbn += sectors;
    };
    run(0, 0, 0, 42);
    run(0, 1, 0, 20);
    run(0, 1, 21, 21);
    run(1, 0, 1, 6);
    run(4, 1, 34, 1); // Sector 7 of the track is here.
    run(1, 0, 8, 34);
    run(1, 1, 0, 42);
    run(2, 0, 0, 42);
    run(2, 1, 0, 40); // Two spares.
    for (cylinder, head) in [(3, 0), (3, 1), (4, 0)] {
        run(cylinder, head, 0, 35);
    }
    run(4, 1, 0, 33);
    lines.push("Defect at cyl 0, head 1, sect 20".into());
    lines.join("\n")
}

fn imported(map: &str) -> Result<Imported, String> {
    import(&[("acme.model", MODEL), ("acme.map", map)], None)
}

/// Cylinder and head of an LBN, and its angle in sectors.
fn place(drive: &Drive, lbn: u64) -> (u32, u32, u32) {
    let place = Layout::new(drive).unwrap().locate(lbn);
    let zone = drive.zones.iter().rfind(|zone| zone.first_cylinder <= place.cylinder).unwrap();
    let turns = place.angle as f64 / crate::disk::rotation::TURN as f64;
    (place.cylinder, place.head, (turns * f64::from(zone.sectors_per_track)).round() as u32)
}

/// Aim: LBNs are where the map has them, with its skews, and what differs is said.
#[test]
fn tracks_are_where_the_map_has_them() {
    let Imported { drive, notes, files } = imported(&map()).unwrap();
    println!("{}\n{notes:#?}", drive.to_toml());
    assert_eq!(files, ["acme.model", "acme.map"]);
    let zones: Vec<_> = drive.zones.iter().map(|zone| (zone.last_cylinder, zone.sectors_per_track)).collect();
    assert_eq!(zones, [(2, 42), (4, 35)]);
    assert_eq!((drive.heads, drive.sectors), (2, 386));
    let (outer, inner) = (&drive.zones[0], &drive.zones[1]);
    assert_eq!((outer.track_skew, outer.cylinder_skew), (4, 10));
    assert_eq!((inner.track_skew, inner.cylinder_skew), (4, 11));
    for (lbn, expected) in [
        (0, (0, 0, 0)),
        (42, (0, 1, 4)),
        (61, (0, 1, 23)),
        (62, (0, 1, 25)), // Behind the slip.
        (248, (3, 0, 7)),
        (283, (3, 1, 11)),
    ] {
        assert_eq!(place(&drive, lbn), expected, "LBN {lbn}");
    }
    assert!(notes.iter().any(|note| note == "1 remapped sectors of acme.map are read at their original places."));
}

/// Aim: a map with a mistake is refused, with its file and line.
#[test]
fn mistakes_in_maps_are_named() {
    let changed = |from: &str, to: &str| {
        let map = map();
        assert!(map.contains(from), "{from}");
        imported(&map.replace(from, to)).unwrap_err()
    };
    for (from, to, problem) in [
        ("5 cylinders, ", "", "acme.map: line 3: `COUNT cylinders, SPEED rot, COUNT heads` is expected here"),
        ("lbn 42 -->", "lbn 41 -->", "acme.map: line 5: LBN 41 is before 42, where the line before ends"),
        ("cyl 0, head 1, sect 0,", "cyl 9, head 1, sect 0,", "acme.map: line 5: no zone has cylinder 9"),
        (
            "head 1, sect 0, seqcnt 19",
            "head 2, sect 0, seqcnt 19",
            "line 5: the head is a number from 0 to 1, not \"2\"",
        ),
        ("sect 21, seqcnt 20", "sect 21, seqcnt 21", "acme.map: line 7: LBN 83 is before 84"),
        (
            "sect 0, seqcnt 32",
            "sect 3, seqcnt 32",
            "on cylinder 4 reaches sector 35; in its zone tracks have 35 sectors",
        ),
        ("sect 0, seqcnt 19", "sect 0", "`lbn LBN --> cyl CYLINDER, head HEAD, sect SECTOR, seqcnt COUNT` is expected"),
        ("seqcnt 19", "count 0", "acme.map: line 5: a run without sectors"),
    ] {
        let error = changed(from, to);
        assert!(error.contains(problem), "{to}: {error}");
    }
    let whole = map();
    let header: String = whole.lines().take(3).map(|line| format!("{line}\n")).collect();
    assert!(imported(&header).unwrap_err().contains("no line `lbn LBN"));
    assert!(imported("").unwrap_err().contains("acme.map: line 1: the map ends before"));
    let missing = import(&[("acme.model", MODEL)], None).unwrap_err();
    assert_eq!(missing, "acme.model: line 3: `Layout Map File`: there is no file acme.map");
    for end in 0..whole.len() {
        let _ = imported(&whole[..end]); // A map that is cut off must not lead to a panic.
    }
}
