//! Drive files: what is read, what is refused and how that is said.

use super::*;
use crate::rng::Rng;

/// Every drive of the catalogue survives being written and read.
#[test]
fn written_and_read_again() {
    for drive in Drive::all() {
        let text = drive.to_toml();
        let again = Drive::from_toml(&text).unwrap_or_else(|error| panic!("{}: {error}\n{text}", drive.name));
        assert_eq!(again, *drive);
    }
}

/// Aim: the catalogue is its files. Method: each is read, has the name of its row, and there is a row for every file.
#[test]
fn every_file_is_a_drive() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/disk/catalogue");
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<String> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    files.sort();
    let names: Vec<&str> = Drive::names().collect();
    assert_eq!(names, files);
    for name in names {
        let read = Drive::from_toml(Drive::file_text(name).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(read.name, name);
        assert_eq!(read, *drive(name));
    }
}

/// Aim: a drive file says `validated` only while it has the parameters that were validated, whatever the drive is called; and what is
/// written of it is read in the same way. Method: each validated file of the catalogue under another name, and with each number of
/// it changed by itself where that is still a drive.
#[test]
fn edited_drives_are_not_validated() {
    let validated: Vec<&Drive> = Drive::all().filter(|drive| drive.evidence == Evidence::Validated).collect();
    assert_eq!(validated.len(), 5);
    for drive in validated {
        let text = drive.to_toml();
        let renamed = text.replacen(&format!("\"{}\"", drive.name), "\"mine\"", 1);
        let mine = Drive::from_toml(&renamed).unwrap();
        assert_eq!((&*mine.name, mine.evidence), ("mine", Evidence::Validated), "{}", drive.name);
        let mut changed = 0;
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.contains(['"', '#'])) {
            // The last digit of the line's first number.
            let Some(value) = line.find(" = ").map(|at| at + 3) else { continue };
            let Some(first) = line[value..].find(|c: char| c.is_ascii_digit()).map(|at| value + at) else { continue };
            let last =
                line[first..].find(|c: char| !c.is_ascii_digit() && c != '.').map_or(line.len(), |at| first + at) - 1;
            let digit = if line[last..].starts_with('1') { "2" } else { "1" };
            let edited = format!("{}{digit}{}", &line[..last], &line[last + 1..]);
            let lines: Vec<&str> =
                text.lines().enumerate().map(|(at, line)| if at == number { &*edited } else { line }).collect();
            let Ok(read) = Drive::from_toml(&lines.join("\n")) else { continue };
            assert_eq!(read.evidence, Evidence::SaidToBeValidated, "{}: {edited}", drive.name);
            assert_eq!(Drive::from_toml(&read.to_toml()), Ok(read));
            changed += 1;
        }
        assert!(changed > 10, "{}: {changed}", drive.name);
    }
}

/// A drive with something of everything.
const WHOLE: &str = r#"
name = "my-drive"
product = "A \"drive\" \\ of mine"
source = "measured, 2026"
known_from = "extracted"
heads = 2
cylinders = 100
sectors = 9000
rpm = 7200
surfaces = "bands"
band_cylinders = 10
sparing = "sectors-per-range"
range_cylinders = 5
head_switch_ms = 0.5
write_settle_ms = -0.25
scheduler = "sptf"
scheduler_age = 30

[seek]
curve = "two-piece"
root_base_ms = 1
root_ms = 0.25
line_from = 50
line_base_ms = 2.5
line_ms = 0.001
short_ms = [1.0, 1.1]

[overhead]
read_hit_ms = [0.1, 0.2]
write_miss_ms = 0.3
reselect_ms = 0.4

[bus]
read_sector_ms = 0.01
write_sector_ms = 0.02
disconnect_until_percent = 75
tagged_queueing = true

[cache]
segments = 3
segment_sectors = 0x80
read_ahead = "track-end"
read_ahead_sectors = 64
write_start_sectors = 4
write_behind = "stream"
read_written = false

[[zone]]
cylinders = [0, 49]
sectors_per_track = 60
track_skew = 7
cylinder_skew = 9
first_sector_angle = 3
reserved = 10
spares = 20
slips = [5, 1_000]

[[zone]]
cylinders = [50, 99]
sectors_per_track = 50
spares = 20
"#;

#[test]
fn a_whole_drive() {
    let drive = Drive::from_toml(WHOLE).unwrap();
    assert_eq!(drive.product, r#"A "drive" \ of mine"#);
    assert_eq!(drive.scheduler, Some(Scheduler::Sptf { age_micros: 30 }));
    assert_eq!((drive.write_settle_ns, drive.overhead.read_hit), (-250_000, AfterPair::ms(0.1, 0.2)));
    assert_eq!(drive.overhead.write_miss, AfterPair::ms(0.3, 0.3));
    assert_eq!(
        (drive.surfaces, drive.sparing),
        (SurfaceOrder::Bands { cylinders: 10 }, Sparing::SectorsPerRange { cylinders: 5 })
    );
    assert_eq!((drive.cache.segments, drive.cache.segment_sectors), (3, 128));
    assert_eq!((&drive.zones[0].slips[..], drive.zones[1].track_skew), (&[5, 1000][..], 0));
    assert_eq!(Drive::from_toml(&drive.to_toml()), Ok(drive));
}

/// A mark that some programs put in front of a text is no part of it: the drive is the same, and mistakes have their line.
#[test]
fn a_byte_order_mark_is_no_key() {
    let marked = format!("\u{feff}{WHOLE}");
    assert_eq!(Drive::from_toml(&marked), Drive::from_toml(WHOLE));
    let mistake = |text: &str| Drive::from_toml(&text.replacen("spares = 20", "spares = -1", 1)).unwrap_err();
    assert_eq!(mistake(&marked), mistake(WHOLE));
}

/// Aim: a mistake is reported with its line, its key, and what is allowed. Method: each line changes one line of a whole drive.
#[test]
fn mistakes_are_named() {
    let mut wrong = Vec::new();
    for (from, to, line, key, problem) in [
        ("heads = 2", "heads = ", 6, "", "this is not TOML"),
        ("heads = 2", "", 1, "heads", "this key is missing"),
        ("heads = 2", "heads = 2\nhead = 3", 7, "head", "there is no such key here; did you mean `heads`?"),
        ("heads = 2", "heads = 2\ncolour = 3", 7, "colour", "there is no such key here; the keys are: name, product"),
        ("heads = 2", "heads = 2\nseek_avg_ms = 8.5", 7, "seek_avg_ms", "here; [data_sheet] has `seek_average_ms`"),
        ("heads = 2", "heads = 0", 6, "heads", "0 is not from 1 to 255"),
        ("heads = 2", "heads = -1", 6, "heads", "-1 is not from 1 to 255"),
        (
            "heads = 2",
            "heads = \"two\"",
            6,
            "heads",
            "a whole number from 1 to 255 is expected here, not text in quotes",
        ),
        ("heads = 2", "heads = 2.0", 6, "heads", "not a number with a fraction"),
        ("heads = 2", "heads = 999999999999999999999999999999999999999999", 6, "heads", "is not from 1 to 255"),
        ("name = \"my-drive\"", "name = \"My drive\"", 2, "name", "lower case letters, digits and dashes"),
        ("source = \"measured, 2026\"", "source = \"a\\u001bb\"", 4, "source", "on one line"),
        (
            "\"extracted\"",
            "\"rumour\"",
            5,
            "known_from",
            "there is no `rumour`; one of: validated, extracted, data-sheet",
        ),
        ("rpm = 7200", "rpm = 7200\nrpm = 7200", 10, "", "duplicate key"),
        ("sectors = 9000", "sectors = 90000", 8, "sectors", "its zones hold 10590 sectors, its capacity is 90000"),
        ("band_cylinders = 10", "", 1, "band_cylinders", "this key is missing, which `surfaces = \"bands\"` needs"),
        ("surfaces = \"bands\"", "", 11, "band_cylinders", "this key goes with `surfaces = \"bands\"`"),
        ("\"sptf\"", "\"sstf\"", 17, "scheduler_age", "only the scheduler sptf"),
        ("head_switch_ms = 0.5", "head_switch_ms = nan", 14, "head_switch_ms", "this is not from 0 to 1000"),
        ("head_switch_ms = 0.5", "head_switch_ms = 0x10", 14, "head_switch_ms", "a number from 0 to 1000"),
        ("-0.25", "-100", 15, "write_settle_ms", "-100 ms takes more off a write than an average seek lasts, "),
        ("root_ms = 0.25", "root_ms = -10.0", 19, "seek", "a seek over 3 cylinders would take -16.3"),
        ("line_from = 50", "points = 50", 23, "seek.points", "the keys are: curve, root_base_ms"),
        ("[0.1, 0.2]", "[0.1]", 29, "overhead.read_hit_ms", "one time, or [after a read, after a write], is expected"),
        ("segments = 3", "segments = 0", 40, "cache.segments", "0 is not from 1 to 4096"),
        ("read_ahead_sectors = 64", "", 39, "cache.read_ahead_sectors", "this key is missing"),
        ("\"track-end\"", "\"none\"", 43, "cache.read_ahead_sectors", "goes with a `read_ahead` of track-end"),
        ("cylinders = [50, 99]", "cylinders = [50, 100]", 59, "zone.cylinders", "100 is not from 0 to 99"),
        (
            "cylinders = [50, 99]",
            "cylinders = [49, 99]",
            58,
            "zone",
            "zone 2 has cylinders 49 to 99, but zone 1 ends at cylinder 49",
        ),
        ("cylinders = [50, 99]", "cylinders = [50]", 59, "zone.cylinders", "the first and the last cylinder"),
        (
            "slips = [5, 1_000]",
            "slips = [1_000, 5]",
            48,
            "zone",
            "zone 1, from cylinder 0 on, slips 5, which is out of order or outside",
        ),
        ("slips = [5, 1_000]", "slips = [5, []]", 56, "zone.slips", "a whole number from 0"),
        ("[bus]", "[bus.more]", 33, "bus.more", "there is no such key here"),
    ] {
        assert_eq!(WHOLE.matches(from).count(), 1, "{from}");
        let text = WHOLE.replace(from, to);
        let error = Drive::from_toml(&text).expect_err(to);
        if !(error.problem.contains(problem) && (error.line, &*error.key) == (line, key)) {
            wrong.push(format!("{to}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let long = "#".repeat(super::super::file::BYTES_MAX + 1);
    assert!(Drive::from_toml(&long).unwrap_err().problem.contains("a drive file has at most"));
}

/// Aim: a seek curve that falls is refused, and one with the noise of a measurement is not. Method: curves in place of the drive's.
#[test]
fn falling_seek_curves_are_refused() {
    let (before, rest) = WHOLE.split_once("curve = ").unwrap();
    let after = &rest[rest.find("\n\n").unwrap()..];
    let read = |seek: &str| Drive::from_toml(&format!("{before}{seek}{after}"));
    for (seek, line, key, problem) in [
        (
            "curve = \"three-point\"\none_ms = 1\naverage_ms = 8\nfull_ms = 4",
            23,
            "seek.full_ms",
            "a seek over all cylinders, of 4 ms, is shorter than the average of 8 ms",
        ),
        (
            "curve = \"three-point\"\none_ms = 9\naverage_ms = 8\nfull_ms = 16",
            21,
            "seek.one_ms",
            "a seek to the next cylinder, of 9 ms, is longer than the average of 8 ms",
        ),
        ("curve = \"table\"\ntable = [[1, 9], [50, 5], [99, 1]]", 19, "seek", "a seek over all cylinders, of 1 ms"),
        ("curve = \"table\"\ntable = [[1, 9], [10, 1], [99, 5]]", 19, "seek", "a seek to the next cylinder, of 9 ms"),
    ] {
        let error = read(seek).expect_err(seek);
        assert!(error.problem.starts_with(problem), "{error}");
        assert_eq!((error.line, &*error.key), (line, key), "{error}");
    }
    for seek in [
        "curve = \"table\"\ntable = [[1, 1], [10, 3], [20, 0.5], [99, 5]]",
        "curve = \"table\"\ntable = [[1, 3]]",
        "curve = \"three-point\"\none_ms = 8\naverage_ms = 8\nfull_ms = 8",
        "curve = \"constant\"\ntime_ms = 3",
    ] {
        read(seek).unwrap_or_else(|error| panic!("{seek}: {error}"));
    }
}

/// A data sheet in a file is the data sheet of the stack line, and says what is missing.
#[test]
fn data_sheets() {
    let sheet = |rest: &str| {
        let about = "name = \"sheet\"\nproduct = \"A sheet\"\nsource = \"mine\"\n[data_sheet]\n";
        Drive::from_toml(&format!("{about}capacity_bytes = 4_000_000_000_000\n{rest}"))
    };
    let drive = sheet("rpm = 7200\nseek_average_ms = 8.5\nmedia_bytes_per_second = 180_000_000").unwrap();
    let expected = DataSheet::new(7200, Nanos::from_micros(8500), 4_000_000_000_000, 180_000_000).drive().unwrap();
    assert_eq!((&drive.zones, &drive.seek, drive.cache), (&expected.zones, &expected.seek, expected.cache));
    assert_eq!(Drive::from_toml(&drive.to_toml()), Ok(drive));
    for (rest, problem) in [
        (
            "rpm = 7200\nseek_average_ms = 8.5",
            "line 4: `data_sheet`: `media_bytes_per_second` or `sectors_per_track` is missing",
        ),
        (
            "rpm = 7200\nmedia_bytes_per_second = 180_000_000",
            "line 4: `data_sheet.seek_average_ms`: this key is missing",
        ),
        (
            "rpm = 7200\nseek_average_ms = 8.5\nsectors_per_track = [50, 100]",
            "line 4: `data_sheet`: 50 to 100 sectors per track",
        ),
        (
            "rpm = 7200\nseek_average_ms = 8.5\nmedia_bytes_per_second = 180_000_000\nseek_full_ms = 5",
            "line 9: `data_sheet.seek_full_ms`: a seek over all cylinders, of 5 ms, is shorter than the average of 8.5 ms",
        ),
        (
            "rpm = 7200\nseek_average_ms = 8.5\nmedia_bytes_per_second = 180_000_000\nseek_one_ms = 9",
            "line 9: `data_sheet.seek_one_ms`: a seek to the next cylinder, of 9 ms, is longer than the average",
        ),
        (
            "rpm = 7200\nseek_average_ms = 8.5\nmedia_bytes_per_second = 180_000_000\nbuffer_bytes = 0",
            "line 9: `data_sheet.buffer_bytes`: 0 is not from 512 to",
        ),
        (
            "rpm = 7200\nseek_average_ms = 8.5\nheads = 4\nzones = 3",
            "line 9: `data_sheet.zones`: there is no such key here",
        ),
    ] {
        let error = sheet(rest).expect_err(rest).to_string();
        assert!(error.starts_with(problem), "{error}");
    }
}

/// Aim: no bytes do harm. Method: the files of the catalogue and one with everything, with pieces taken out, doubled, changed and put elsewhere;
/// seeded.
#[test]
fn changed_files_do_no_harm() {
    let texts: Vec<String> = Drive::all().map(Drive::to_toml).chain([WHOLE.to_owned()]).collect();
    let numbers = ["0", "1", "-1", "255", "65536", "4294967295", "1e308", "0.000001", "[]", "true", "\"x\"", "999.9"];
    let mut rng = Rng::new(22);
    let mut read = 0;
    for _ in 0..2000 {
        let text = rng.pick(&texts);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for _ in 0..=rng.below(3) {
            let at = rng.below(lines.len() as u64) as usize;
            match rng.below(5) {
                0 => drop(lines.remove(at)),
                1 => lines.insert(at, rng.pick(&lines).clone()),
                2 => lines[at] = rng.pick(&lines).clone(),
                _ => {
                    if let Some((key, _)) = lines[at].split_once(" = ") {
                        lines[at] = format!("{key} = {}", rng.pick(&numbers));
                    }
                }
            }
            if lines.is_empty() {
                break;
            }
        }
        let text = lines.join("\n");
        read += u32::from(Drive::from_toml(&text).is_ok());
        super::super::file::fuzz::any(text.as_bytes());
    }
    assert!(read > 200, "only {read} of the changed files make a drive");
}

const PAGE: &str = include_str!("../../../../../docs/reference/drive-files.md");

/// The examples of the reference are drives, and it has every key.
#[test]
fn the_reference_is_right() {
    let examples: Vec<&str> = PAGE.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap()).collect();
    let [whole, sheet] = examples[..] else { panic!("{} examples", examples.len()) };
    for example in [whole, sheet] {
        let drive = Drive::from_toml(example).unwrap_or_else(|error| panic!("{error}: {example}"));
        assert!(Mechanism::new(&drive).is_ok());
    }
    let sections = [
        (whole, "name ="),
        (whole, "read_hit_ms"),
        (whole, "read_sector_ms"),
        (whole, "segments ="),
        (whole, "cylinders = [0"),
        (sheet, "capacity_bytes"),
    ];
    let mut keys = 0;
    for (example, before) in sections {
        let error = Drive::from_toml(&example.replacen(before, &format!("x = 1\n{before}"), 1)).expect_err(before);
        let (_, list) = error.problem.split_once("the keys are: ").expect("a list of keys");
        for key in list.split(", ") {
            assert!(PAGE.contains(&format!("`{key}`")), "the reference lacks `{key}`");
            keys += 1;
        }
    }
    assert!(keys > 70, "{keys}");
}
