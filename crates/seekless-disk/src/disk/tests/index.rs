//! Drives from DiskSim's layout by patterns (`dm_layout_g4`): where each track ends up, what is said of the rest, and what is refused.

use super::*;
use crate::disk::import::Imported;
use crate::disk::layout::Layout;
use crate::rng::Rng;

/// A drive of so many heads, cylinders and LBNs.
fn model(heads: u32, cylinders: u32, sectors: u64, layout: &str) -> String {
    format!(
        "dm_disk ACME {{ Number of data surfaces = {heads}, Number of cylinders = {cylinders}, Block count = {sectors},
Layout Model = dm_layout_g4 {{
{layout}
}},
Mechanical Model = dm_mech_g1 {{ Access time type = trackSwitchPlusRotation, Seek type = constant, Constant seek time = 5.0,
   Head switch time = 0.8, Rotation speed (in rpms) = 7200 }} }}
"
    )
}

fn import(text: &str) -> Result<Imported, String> {
    Imported::read("acme.model", None, &|_| Ok(text.to_owned())).map_err(|error| error.to_string())
}

/// The drive, and the notes on its layout.
fn imported(heads: u32, cylinders: u32, sectors: u64, layout: &str) -> (Drive, Vec<String>) {
    let Imported { drive, mut notes, .. } =
        import(&model(heads, cylinders, sectors, layout)).unwrap_or_else(|error| panic!("{error}\n{layout}"));
    notes.retain(|note| !note.contains("mechanics alone") && !note.contains("on the bus is not in these files"));
    (drive, notes)
}

/// Cylinder and head of an LBN, and its angle in sectors.
fn place(drive: &Drive, lbn: u64) -> (u32, u32, u32) {
    let place = Layout::new(drive).unwrap().locate(lbn);
    let zone = drive.zones.iter().rfind(|zone| zone.first_cylinder <= place.cylinder).unwrap();
    let turns = place.angle as f64 / crate::disk::rotation::TURN as f64;
    (place.cylinder, place.head, (turns * f64::from(zone.sectors_per_track)).round() as u32)
}

fn zones(drive: &Drive) -> Vec<(u32, u32, u32)> {
    drive.zones.iter().map(|zone| (zone.first_cylinder, zone.last_cylinder, zone.sectors_per_track)).collect()
}

const NONE: &[String] = &[];

/// Two zones, the surfaces of each cylinder in turn: skews, and slips, which LBNs skip.
const FORWARD: &str = "TP = [ 0, 49, 50,  0, 39, 40 ],
IDX = [
   [ 0, 0, 0.0, 50, 1, 0.0, 50, 1, TRACK, 0, 0,
     50, 0, 0.1, 50, 1, 0.0, 50, 1, TRACK, 0, 1 ],
   [ 0, 0, 0.0, 40, 1, 0.0, 40, 1, TRACK, 1, 0,
     40, 0, 0.2, 40, 1, 0.0, 40, 1, TRACK, 1, 1 ], # the root comes next
   [ 0, 0, 0.0, 100, 1, 0.3, 1000, 10, IDX, 0,
     1000, 10, 0.5, 80, 1, 0.5, 400, 5, IDX, 1 ]
],
Slips = [ 120, 2, 1010, 1 ],
Remaps = [ 5, 3, 2, 1, 0, 50 ]";

#[test]
fn cylinders_in_turn() {
    let (drive, notes) = imported(2, 20, 1397, FORWARD);
    assert_eq!(zones(&drive), [(0, 9, 50), (10, 14, 40)]);
    assert_eq!((drive.sectors, drive.cylinders, drive.heads), (1397, 20, 2));
    assert_eq!((drive.surfaces, drive.sparing), (SurfaceOrder::Forward, Sparing::None));
    let zone = &drive.zones[0];
    assert_eq!((zone.track_skew, zone.cylinder_skew, zone.first_sector_angle), (5, 10, 0));
    assert_eq!((&zone.slips[..], &drive.zones[1].slips[..]), (&[120, 121][..], &[10][..]));
    let zone = &drive.zones[1];
    assert_eq!((zone.track_skew, zone.cylinder_skew, zone.first_sector_angle), (8, 12, 20));
    // Twenty sectors into cylinder 1 are two without an LBN.
    for (lbn, expected) in [
        (0, (0, 0, 0)),
        (49, (0, 0, 49)),
        (50, (0, 1, 5)),
        (100, (1, 0, 15)),
        (119, (1, 0, 34)),
        (120, (1, 0, 37)),
        (998, (10, 0, 20)),
        (1007, (10, 0, 29)),
        (1008, (10, 0, 31)),
        (1396, (14, 1, 27)),
    ] {
        assert_eq!(place(&drive, lbn), expected, "LBN {lbn}");
    }
    assert_eq!(notes, ["3 remapped sectors (`Remaps`) are read at their original places."]);
}

/// The surfaces one after another for a few cylinders, up and down, in nodes of nodes: what the models of the newest drives have.
#[test]
fn bands_of_nested_nodes() {
    let layout = "TP = [ 0, 29, 30 ],
IDX = [
   [ 0, 0, 0.0, 30, 1, 0.1, 120, 4, TRACK, 0, 0,  120, 3, 0.4, 30, 1, 0.1, 120, -4, TRACK, 0, 1,
     240, 0, 0.8, 30, 1, 0.1, 120, 4, TRACK, 0, 2 ],
   [ 0, 0, 0.0, 30, 1, 0.1, 120, 4, TRACK, 0, 2,  120, 3, 0.4, 30, 1, 0.1, 120, -4, TRACK, 0, 1,
     240, 0, 0.8, 30, 1, 0.1, 120, 4, TRACK, 0, 0 ],
   [ 0, 0, 0.0, 360, 4, 0, 360, 4, IDX, 0,  360, 4, 0.2, 360, 4, 0, 360, 4, IDX, 1 ],
   [ 0, 0, 0.0, 720, 8, 0.4, 3600, 40, IDX, 2 ]
],
Slips = [], Remaps = []";
    let (drive, notes) = imported(3, 40, 3600, layout);
    assert_eq!(notes, NONE);
    assert_eq!((zones(&drive), drive.sectors), (vec![(0, 39, 30)], 3600));
    assert_eq!((drive.surfaces, drive.sparing), (SurfaceOrder::Bands { cylinders: 4 }, Sparing::None));
    for (lbn, expected) in [
        (0, (0, 0, 0)),
        (30, (1, 0, 3)),
        (120, (3, 1, 12)),
        (239, (0, 1, 20)),
        (240, (0, 2, 24)),
        (360, (4, 2, 6)),
        (719, (7, 0, 8)),
        (720, (8, 0, 12)),
    ] {
        assert_eq!(place(&drive, lbn), expected, "LBN {lbn}");
    }
}

/// A serpentine drive whose nodes are two cylinders, and another with sectors without LBNs on each track.
#[test]
fn serpentines_and_spares_of_tracks() {
    let layout = "TP = [ 2, 26, 30 ],
IDX = [
   [ 0, 0, 0.0, 25, 1, 0, 25, 1, TRACK, 0, 0,   25, 0, 0.1, 25, 1, 0, 25, 1, TRACK, 0, 1,
     50, 1, 0.3, 25, 1, 0, 25, 1, TRACK, 0, 1,  75, 1, 0.4, 25, 1, 0, 25, 1, TRACK, 0, 0 ],
   [ 0, 3, 0.0, 100, 2, 0.6, 500, 10, IDX, 0 ]
]";
    let (drive, notes) = imported(2, 20, 400, layout);
    assert_eq!(notes, NONE);
    assert_eq!((zones(&drive), drive.sectors), (vec![(3, 12, 30)], 400));
    assert_eq!((drive.surfaces, drive.sparing), (SurfaceOrder::Serpentine, Sparing::SectorsPerTrack));
    assert_eq!(drive.zones[0].spares, 5);
    for (lbn, expected) in [(0, (3, 0, 0)), (25, (3, 1, 3)), (50, (4, 1, 9)), (75, (4, 0, 12)), (124, (5, 0, 12))] {
        assert_eq!(place(&drive, lbn), expected, "LBN {lbn}");
    }
    assert_eq!(Layout::new(&drive).unwrap().held(), 500);
}

/// What the measured layout of a real drive looks like: surfaces with tracks of their own, bands that begin inwards, tracks that are left out,
/// and skews with noise. Capacity and the LBNs of the zones are right nevertheless, and what is not is said.
#[test]
fn irregular_drives_are_approximated() {
    let layout = "TP = [ 0, 59, 60,  0, 49, 50,  0, 39, 40 ],
IDX = [
   [ 0, 3, 0.0, 60, 1, 0.201, 240, -4, TRACK, 0, 0,  240, 0, 0.8, 50, 1, 0.199, 200, 4, TRACK, 1, 1,
     440, 7, 0.6, 50, 1, 0.2, 200, -4, TRACK, 1, 1,  640, 4, 0.4, 60, 1, 0.2, 240, 4, TRACK, 0, 0 ],
   [ 0, 3, 0.0, 40, 1, 0.2, 40, 1, TRACK, 2, 0,  40, 2, 0.2, 40, 1, 0.2, 40, 1, TRACK, 2, 0,
     80, 0, 0.4, 40, 1, 0.2, 40, 1, TRACK, 2, 0, 120, 0, 0.6, 40, 1, 0.2, 160, 4, TRACK, 2, 1 ],
   [ 0, 0, 0.0, 880, 8, 0.6, 8800, 80, IDX, 0,  8800, 80, 0.7, 280, 4, 0.4, 1120, 16, IDX, 1 ]
],
Slips = [ 70, 3 ]";
    let (drive, notes) = imported(2, 96, 9917, layout);
    assert_eq!(zones(&drive), [(0, 79, 55), (80, 95, 40)]);
    assert_eq!((drive.sectors, drive.sparing), (9917, Sparing::SectorsPerZone));
    assert_eq!(drive.surfaces, SurfaceOrder::Bands { cylinders: 4 });
    assert_eq!(Layout::new(&drive).unwrap().held(), 9917);
    assert_eq!(drive.zones.iter().map(|zone| (zone.track_skew, zone.spares)).collect::<Vec<_>>(), [(11, 3), (8, 160)]);
    let layout = Layout::new(&drive).unwrap();
    assert_eq!((layout.locate(8796).cylinder < 80, layout.locate(8797).cylinder), (true, 80));
    for part in [
        "160 of 188 tracks have up to 5 sectors more or fewer",
        "4 tracks between others have no LBNs",
        "on the same surface of another cylinder",
        "track changes the skew differs",
    ] {
        assert!(notes.iter().any(|note| note.contains(part)), "{part}: {notes:#?}");
    }
}

/// LBNs between entries that have no track stay in their zone, so that all others are where they should be.
#[test]
fn lbns_without_a_track() {
    let layout = "TP = [ 0, 9, 10 ],
IDX = [ [ 0, 0, 0, 10, 1, 0, 50, 5, TRACK, 0, 0,  60, 5, 0, 10, 1, 0, 50, 5, TRACK, 0, 0 ] ]";
    let (drive, notes) = imported(1, 10, 110, layout);
    assert_eq!((drive.sectors, zones(&drive)), (110, vec![(0, 9, 11)]));
    assert!(notes.iter().any(|note| note.starts_with("10 LBNs have no track in the index")), "{notes:?}");
}

/// More kinds of tracks than a drive has zones: neighbours are joined, and the capacity stays.
#[test]
fn too_many_zones_are_joined() {
    let mut patterns = String::new();
    let mut root = String::new();
    let mut lbn = 0;
    for cylinder in 0..300_u64 {
        let sectors = 1000 - cylinder;
        patterns += &format!("0, {}, {sectors}, ", sectors - 1);
        root += &format!("{lbn}, {cylinder}, 0, {sectors}, 1, 0, {sectors}, 1, TRACK, {cylinder}, 0,\n");
        lbn += sectors;
    }
    let (drive, notes) = imported(1, 300, lbn, &format!("TP = [ {patterns} ],\nIDX = [ [ {root} ] ]"));
    assert!(drive.zones.len() <= 256, "{}", drive.zones.len());
    assert_eq!((drive.sectors, Layout::new(&drive).unwrap().held()), (lbn, lbn));
    assert!(notes[0].starts_with("300 groups of cylinders are "), "{notes:?}");
    assert!(notes[0].ends_with("differ by up to 1 sectors are in one."), "{notes:?}");
}

/// Aim: every track of a drive that a drive file can describe exactly is where the index has it, with its angle. Method: random drives of
/// each surface order, written as an index with a track per entry, and with runs; seeded.
#[test]
fn tracks_of_regular_drives_are_in_place() {
    let mut rng = Rng::new(4);
    for _ in 0..200 {
        let heads = 2 + rng.below(4) as u32;
        let width = 2 + rng.below(5) as u32;
        let surfaces = *rng.pick(&[
            SurfaceOrder::Forward,
            SurfaceOrder::Serpentine,
            SurfaceOrder::Bands { cylinders: width },
            SurfaceOrder::ForwardBands { cylinders: width },
        ]);
        let (mut patterns, mut root, mut expected) = (String::new(), String::new(), Vec::new());
        let (mut lbn, mut first) = (0, 0);
        for zone in 0..1 + rng.below(4) {
            let sectors = 100 * (1 + rng.below(5)) + 20 * zone;
            let cylinders = 2 * width * (1 + rng.below(3) as u32);
            let skew = rng.below(sectors) as f64 / sectors as f64;
            let start = rng.below(sectors) as f64 / sectors as f64;
            patterns += &format!("0, {}, {sectors}, ", sectors - 1);
            for track in 0..cylinders * heads {
                let (cylinder, head) = surfaces.track_place(heads, cylinders, track);
                let angle = (start + skew * f64::from(track)).fract();
                expected.push((lbn, first + cylinder, head, angle));
                root += &format!(
                    "{lbn}, {}, {angle:.6}, {sectors}, 1, 0, {sectors}, 1, TRACK, {zone}, {head},\n",
                    first + cylinder
                );
                lbn += sectors;
            }
            first += cylinders;
        }
        let (drive, notes) = imported(heads, first, lbn, &format!("TP = [ {patterns} ],\nIDX = [ [ {root} ] ]"));
        assert_eq!(notes, NONE);
        assert_eq!((drive.surfaces, drive.sparing, drive.sectors), (surfaces, Sparing::None, lbn));
        assert_eq!(Drive::from_toml(&drive.to_toml()).as_ref(), Ok(&drive));
        let layout = Layout::new(&drive).unwrap();
        assert_eq!(layout.held(), lbn);
        for (lbn, cylinder, head, angle) in expected {
            let place = layout.locate(lbn);
            let off = (place.angle as f64 / crate::disk::rotation::TURN as f64 - angle).rem_euclid(1.0);
            assert_eq!((place.cylinder, place.head), (cylinder, head), "LBN {lbn}");
            assert_eq!(layout.track_at(cylinder, head).unwrap().0, lbn);
            assert!(off.min(1.0 - off) < 1e-5, "LBN {lbn}: {off}");
        }
    }
}

/// Aim: what is wrong is said with line and block, or counts for what it is worth. Method: one mistake at a time.
#[test]
fn mistakes_in_an_index_are_named() {
    for (from, to, problem) in [
        ("TP = [ 0, 49, 50,  0, 39, 40 ],", "", "line 2: `TP` of dm_layout_g4 is missing"),
        ("IDX = [\n", "Index = [\n", "line 2: `IDX` of dm_layout_g4 is missing"),
        ("0, 39, 40 ]", "0, 39 ]", "line 3: `TP`: groups of 3 numbers are expected, and this one has 2"),
        ("0, 39, 40 ]", "0, 40, 40 ]", "line 3: `TP`: the last sector is expected here: 40 is not from 0 to 39"),
        ("0, 39, 40 ]", "0, 39, 0 ]", "line 3: `TP`: a number of sectors is expected here: 0 is not from 1"),
        (
            "TRACK, 0, 1 ]",
            "TRACK, 2, 1 ]",
            "line 6: `IDX`: the number of a track pattern is expected here: 2 is not from 0 to 1",
        ),
        ("TRACK, 0, 1 ]", "TRACK, 0, 2 ]", "line 6: `IDX`: a head is expected here: 2 is not from 0 to 1"),
        ("TRACK, 0, 1 ]", "TRACK, 0 ]", "line 6: `IDX`: the list ends where a head is expected"),
        ("TRACK, 0, 1 ]", "TRACK, 0, 1, 7 ]", "line 6: `IDX`: the list ends where a cylinder is expected"),
        ("TRACK, 0, 1 ]", "ROAD, 0, 1 ]", "line 6: `IDX`: TRACK or IDX is expected here"),
        ("     50, 0, 0.1, 50", "     -50, 0, 0.1, 50", "line 6: `IDX`: an LBN is expected here: -50 is not from 0"),
        (
            "     50, 0, 0.1, 50",
            "     49, 0, 0.1, 50",
            "line 6: `IDX`: LBN 49 is before 50, where the entry before ends",
        ),
        (
            "     50, 0, 0.1, 50",
            "     50, 0, 0.1, 0",
            "line 6: `IDX`: a number of LBNs is expected here: 0 is not from 1",
        ),
        ("     50, 0, 0.1, 50", "     50, -1, 0.1, 50", "line 6: `IDX`: a cylinder is expected here: -1 is not from 0"),
        ("     50, 0, 0.1, 50", "     50, 0, x, 50", "line 6: `IDX`: an angle in revolutions is expected here"),
        ("     50, 0, 0.1, 50", "     50, 0, 1e99, 50", "line 6: `IDX`: an angle in revolutions is expected here"),
        ("1000, 10, IDX, 0", "1000, 0, IDX, 0", "line 9: `IDX`: a number of cylinders, negative if they descend"),
        (
            "1000, 10, IDX, 0",
            "1000, -10, IDX, 0",
            "line 9: `IDX`: its 10 instances reach from cylinder -9 to 0 of its node",
        ),
        ("1000, 10, IDX, 0", "1000, 10, IDX, 2", "line 9: `IDX`: node 2 is inside of itself here"),
        (
            "1000, 10, IDX, 0",
            "1000, 10, IDX, 3",
            "line 9: `IDX`: the number of a node is expected here: 3 is not from 0 to 2",
        ),
        (
            "400, 5, IDX, 1",
            "8e11, 5, IDX, 1",
            "line 10: `IDX`: its 10000000000 instances reach from cylinder 10 to 10000000009 of its node",
        ),
        (
            "1000, 10, IDX, 0",
            "1e13, 10, IDX, 0",
            "line 9: `IDX`: a number of LBNs is expected here: 10000000000000 is not from 1",
        ),
        ("1000, 10, 0.5, 80", "1000, 5, 0.5, 80", "line 7: `IDX`: the track of head 0 on cylinder 5 is there twice"),
        (
            "[ 0, 0, 0.0, 40, 1, 0.0, 40, 1, TRACK, 1, 0,\n     40,",
            "[ ], [ 40,",
            "line 7: `IDX`: a node without entries",
        ),
        ("Slips = [ 120, 2,", "Slips = [ 2000, 2,", "line 12: `Slips`: LBN 1010 comes after a greater one"),
        ("Slips = [ 120, 2,", "Slips = [ 120,", "line 12: `Slips`: groups of 2 numbers are expected"),
        ("Slips = [ 120, 2,", "Slips = [ 120, 0.5,", "line 12: `Slips`: a number of sectors is expected here"),
        ("Remaps = [ 5, 3,", "Remaps = [ 5, -3,", "line 13: `Remaps`: a number of sectors is expected here: -3"),
        ("Slips = [ 120, 2, 1010, 1 ],", "Slips = [ 120, 900 ],", "line 2: "),
    ] {
        assert_eq!(FORWARD.matches(from).count(), 1, "{from}");
        let error = import(&model(2, 20, 1397, &FORWARD.replace(from, to))).map(|_| ());
        if problem == "line 2: " {
            // All but a hundred sectors of the first zone are slipped, which it can bear.
            assert!(error.is_ok(), "{error:?}");
            continue;
        }
        let error = error.expect_err(to);
        assert!(error.starts_with(&format!("acme.model: {problem}")), "{to}: {error}");
    }
    // The layout's other generations.
    for (kind, problem) in [
        ("dm_layout_g2", "`Zones` of dm_layout_g2 is missing"),
        ("dm_layout_g3", "the layout dm_layout_g3 is not known"),
    ] {
        let error = import(&model(2, 20, 1397, FORWARD).replace("dm_layout_g4", kind)).unwrap_err();
        assert!(error.starts_with(&format!("acme.model: line 2: {problem}")), "{error}");
    }
}

/// Aim: an index that would take forever is refused, and one that only looks so is read. Method: nodes in nodes; each doubles.
#[test]
fn work_is_bounded() {
    let node =
        |child: usize| format!("[ 0, 0, 0, 4, 1, 0, 4, 1, IDX, {child}, 4, 0, 0, 4, 1, 0, 4, 1, IDX, {child} ],\n");
    let leaf = "[ 0, 0, 0, 2, 1, 0, 2, 1, TRACK, 0, 0, 2, 0, 0, 2, 1, 0, 2, 1, TRACK, 0, 1 ],\n";
    let nested = |levels: usize| {
        let nodes: String = (0..levels).map(node).collect();
        import(&model(2, 4, 8, &format!("TP = [ 0, 1, 2 ],\nIDX = [\n{leaf}{nodes} ]"))).map(|_| ())
    };
    let error = nested(1).unwrap_err();
    assert!(error.contains("line 5: `IDX`: the track of head 0 on cylinder 0 is there twice"), "{error}");
    let error = nested(30).unwrap_err();
    assert!(error.contains("`IDX`: more than 16777216 tracks and instances of nodes"), "{error}");
    let error = nested(40).unwrap_err();
    assert!(error.contains("more than"), "{error}");
    let chain: String = (0..40).map(|child| format!("[ 0, 0, 0, 4, 1, 0, 4, 1, IDX, {child} ],\n")).collect();
    let error = import(&model(2, 4, 4, &format!("TP = [ 0, 1, 2 ],\nIDX = [\n{leaf}{chain} ]"))).unwrap_err();
    assert!(error.contains("line 14: `IDX`: more than 32 nodes, one in another"), "{error}");
    let chain: String = (0..31).map(|child| format!("[ 0, 0, 0, 4, 1, 0, 4, 1, IDX, {child} ],\n")).collect();
    assert_eq!(imported(2, 1, 4, &format!("TP = [ 0, 1, 2 ],\nIDX = [\n{leaf}{chain} ]")).1, NONE);
    // LBNs of which nearly none have a track.
    let error = import(&model(1, 4, 4, "TP = [ 0, 1, 2 ],\nIDX = [ [ 1e9, 0, 0, 2, 1, 0, 2, 1, TRACK, 0, 0 ] ]"));
    let error = error.unwrap_err();
    assert!(
        error.contains("line 4: `IDX`: 1000000002 LBNs, of which most have no track, are on the 1 tracks"),
        "{error}"
    );
    // Places that no slip can have are in no zone, and overlapping ones follow each other.
    let layout =
        "TP = [ 0, 9, 10 ],\nIDX = [ [ 0, 0, 0, 10, 1, 0, 50, 5, TRACK, 0, 0 ] ], Slips = [ 3, 2, 4, 1, 49, 5, 70, 9 ]";
    let (drive, notes) = imported(1, 5, 46, layout);
    assert_eq!((notes, drive.sectors, &drive.zones[0].slips[..]), (Vec::new(), 46, &[3, 4, 5, 49][..]));
    // More slips than a drive file has room for, and spares among them.
    for (slips, note) in [
        ("0, 70000", "70000 slipped sectors are at the end of their zones"),
        ("0, 1, 5, -1", "The slips are left out, because 1 of them are spares"),
    ] {
        let layout = format!(
            "TP = [ 0, 999, 1000 ],\nIDX = [ [ 0, 0, 0, 1000, 1, 0, 100000, 100, TRACK, 0, 0 ] ], Slips = [ {slips} ]"
        );
        let (drive, notes) = imported(1, 100, 30_000, &layout);
        assert!(notes[0].starts_with(note), "{notes:?}");
        assert_eq!((drive.sectors, drive.zones[0].slips.len()), (30_000, 0));
    }
}

/// Aim: no text does harm. Method: pieces of an index taken out, doubled and put elsewhere; seeded.
#[test]
fn changed_indices_do_no_harm() {
    let whole = model(2, 20, 1397, FORWARD);
    let pieces: Vec<&str> = whole.split_inclusive([' ', '\n']).collect();
    let mut rng = Rng::new(5);
    let mut read = 0;
    for _ in 0..3000 {
        let mut text: Vec<&str> = pieces.clone();
        for _ in 0..=rng.below(3) {
            let at = rng.below(text.len() as u64) as usize;
            match rng.below(4) {
                0 => drop(text.remove(at)),
                1 => text.insert(at, *rng.pick(&["[ ", "] ", ", ", "IDX, ", "TRACK, ", "-1, ", "1e12, "])),
                2 => text[at] = *rng.pick(&["0, ", "1, ", "2, ", "10, ", "-10, ", "40, ", "1e6, ", "1e15, ", "x, "]),
                _ => text.swap(at, rng.below(pieces.len() as u64 / 2) as usize),
            }
        }
        let text = text.concat();
        read += u32::from(import(&text).is_ok());
        crate::disk::import::fuzz::any(text.as_bytes());
    }
    assert!(read > 100, "{read} of 3000 could be read");
}
