//! From the text of a drive file to a drive.

use super::super::datasheet::DataSheet;
use super::super::drive::{
    AfterPair, Bus, Cache, Drive, Evidence, Overhead, ReadAhead, Seek, Sparing, SurfaceOrder, TwoPiece, WriteBehind,
    WriteStart, Zone,
};
use super::super::layout::{DriveError, Part};
use super::super::scheduler::Scheduler;
use super::super::seek::{Figure, rising};
use super::super::tables::Tables;
use super::DriveFileError;
use super::section::{Field, Section, Source};
use crate::units::{Nanos, SECTOR_BYTES};

type DriveFileResult<T> = Result<T, DriveFileError>;

/// No seek, overhead or switch takes longer.
pub(super) const TIME_MAX_MS: f64 = 1000.0;
pub(super) const HEADS_MAX: u32 = 255;
/// The drives of today have less than a tenth.
pub(super) const CYLINDERS_MAX: u32 = 1 << 24;
pub(super) const SECTORS_PER_TRACK_MAX: u32 = 1 << 20;
pub(super) const SEGMENTS_MAX: u32 = 4096;
/// For parts of the cache and for read-ahead, in sectors: 2 GiB.
const CACHE_SECTORS_MAX: u32 = 1 << 22;
pub(super) const RPM: (u32, u32) = (60, (1 << 20) - 1);
/// Limit of the factors of seek curves, in milliseconds.
const FACTOR_MAX: f64 = 1e6;
const NAME_CHARS_MAX: usize = 64;
const TEXT_CHARS_MAX: usize = 1000;

pub(super) const EVIDENCE: [(&str, Evidence); 4] = [
    ("validated", Evidence::Validated),
    ("extracted", Evidence::Extracted),
    ("data-sheet", Evidence::DataSheet),
    ("recalled", Evidence::Recalled),
];

pub(super) const WRITE_BEHIND: [(&str, WriteBehind); 3] =
    [("none", WriteBehind::None), ("one", WriteBehind::One), ("stream", WriteBehind::Stream)];

/// Keys of `[data_sheet]`.
const SHEET_KEYS: [&str; 13] = [
    "capacity_bytes",
    "rpm",
    "seek_average_ms",
    "seek_one_ms",
    "seek_full_ms",
    "media_bytes_per_second",
    "sectors_per_track",
    "heads",
    "head_switch_ms",
    "overhead_ms",
    "bus_bytes_per_second",
    "buffer_bytes",
    "write_behind",
];

const ABOUT: [&str; 4] = ["name", "product", "source", "known_from"];

pub(super) fn drive(text: &str) -> DriveFileResult<Drive> {
    let source = Source(text);
    let table = source.parse()?;
    let top = Section::new(source, "", &table);
    match top.get("data_sheet") {
        Some(field) => data_sheet(&top, &field.section("data_sheet.")?),
        None => full(&top),
    }
}

fn name(top: &Section<'_>) -> DriveFileResult<String> {
    let field = top.need("name")?;
    let name = field.text(NAME_CHARS_MAX)?;
    match name.chars().all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-')) {
        true => Ok(name.to_owned()),
        false => Err(field.error("a name has lower case letters, digits and dashes")),
    }
}

/// A drive of which a few figures are known.
fn data_sheet(top: &Section<'_>, sheet: &Section<'_>) -> DriveFileResult<Drive> {
    let keys: Vec<&str> = ABOUT[..3].iter().copied().chain(["data_sheet", "scheduler", "scheduler_age"]).collect();
    top.only_or(&keys, "data_sheet", &SHEET_KEYS)?;
    sheet.only(&SHEET_KEYS)?;
    let rpm = sheet.need("rpm")?.count(RPM.0, RPM.1)?;
    let bytes = sheet.need("capacity_bytes")?.whole(1 << 20, 1 << 50)?;
    let seek = sheet.need("seek_average_ms")?.ms(TIME_MAX_MS)?;
    let rate = |field: Field<'_>| field.whole(1 << 10, 1 << 40);
    let tracks = match sheet.get("sectors_per_track") {
        Some(field) => {
            let [outer, inner] = field.pair("sectors on an outer and on an inner track")?;
            Some((outer.count(1, SECTORS_PER_TRACK_MAX)?, inner.count(1, SECTORS_PER_TRACK_MAX)?))
        }
        None => None,
    };
    let media = match (sheet.get("media_bytes_per_second"), tracks) {
        (Some(field), None) => rate(field)?,
        (None, Some((outer, _))) => u64::from(outer) * SECTOR_BYTES * u64::from(rpm) / 60,
        (Some(field), Some(_)) => return Err(field.error("it follows from `sectors_per_track`; leave one of them out")),
        (None, None) => {
            return Err(sheet.error("", "`media_bytes_per_second` or `sectors_per_track` is missing"));
        }
    };
    let mut figures = DataSheet {
        name: name(top)?,
        product: top.need("product")?.text(TEXT_CHARS_MAX)?.to_owned(),
        source: top.need("source")?.text(TEXT_CHARS_MAX)?.to_owned(),
        ..DataSheet::new(rpm, seek, bytes, media)
    };
    if let Some((outer, inner)) = tracks {
        figures.sectors_per_track_outer = outer;
        figures.sectors_per_track_inner = inner;
    }
    let time = |key: &str, default: Nanos| sheet.get(key).map_or(Ok(default), |field| field.ms(TIME_MAX_MS));
    figures.seek_one = time("seek_one_ms", figures.seek_one)?;
    figures.seek_full = time("seek_full_ms", figures.seek_full)?;
    figures_rise(
        sheet,
        ["seek_one_ms", "seek_average_ms", "seek_full_ms"],
        [figures.seek_one, seek, figures.seek_full],
    )?;
    figures.head_switch = time("head_switch_ms", figures.head_switch)?;
    if let Some(field) = sheet.get("overhead_ms") {
        let overhead = field.ms(TIME_MAX_MS)?;
        figures.read_hit = AfterPair::always(overhead);
        (figures.read_miss, figures.write_hit, figures.write_miss) = (overhead, overhead, overhead);
    }
    if let Some(field) = sheet.get("heads") {
        figures.heads = field.count(1, HEADS_MAX)?;
    }
    if let Some(field) = sheet.get("bus_bytes_per_second") {
        figures.bus_rate = Some(rate(field)?);
    }
    if let Some(field) = sheet.get("buffer_bytes") {
        figures.buffer_bytes = field.whole(SECTOR_BYTES, u64::from(CACHE_SECTORS_MAX) * SECTOR_BYTES)?;
    }
    if let Some(field) = sheet.get("write_behind") {
        figures.write_behind = field.choice(&WRITE_BEHIND)?;
    }
    let made = figures.drive().map_err(|error| sheet.error("", error.problem))?;
    let drive = Drive { scheduler: scheduler(top)?, ..made };
    Tables::new(&drive).map_err(|error| sheet.error("", error.problem))?;
    Ok(drive)
}

/// A drive of which everything is said.
fn full(top: &Section<'_>) -> DriveFileResult<Drive> {
    let keys = [
        "heads",
        "cylinders",
        "sectors",
        "rpm",
        "surfaces",
        "band_cylinders",
        "sparing",
        "range_cylinders",
        "head_switch_ms",
        "write_settle_ms",
        "scheduler",
        "scheduler_age",
        "seek",
        "write_seek",
        "overhead",
        "bus",
        "cache",
        "zone",
        "data_sheet",
    ];
    top.only_or(&ABOUT.iter().copied().chain(keys).collect::<Vec<_>>(), "data_sheet", &SHEET_KEYS)?;
    let cylinders = top.need("cylinders")?.count(1, CYLINDERS_MAX)?;
    let sparing = sparing(top, cylinders)?;
    let (zones, zone_fields) = zones(top, cylinders)?;
    let drive = Drive {
        name: name(top)?.into(),
        product: top.need("product")?.text(TEXT_CHARS_MAX)?.to_owned().into(),
        source: top.need("source")?.text(TEXT_CHARS_MAX)?.to_owned().into(),
        evidence: top.need("known_from")?.choice(&EVIDENCE)?,
        heads: top.need("heads")?.count(1, HEADS_MAX)?,
        cylinders,
        sectors: top.need("sectors")?.whole(1, 1 << 41)?,
        rpm: top.need("rpm")?.count(RPM.0, RPM.1)?,
        surfaces: surfaces(top, cylinders)?,
        sparing,
        zones: zones.into(),
        seek: seek(&top.need("seek")?.section("seek.")?)?,
        write_seek: match top.get("write_seek") {
            Some(field) => Some(seek(&field.section("write_seek.")?)?),
            None => None,
        },
        write_settle_ns: match top.get("write_settle_ms") {
            Some(field) => (field.number(-TIME_MAX_MS, TIME_MAX_MS)? * 1e6).round() as i64,
            None => 0,
        },
        head_switch: top.need("head_switch_ms")?.ms(TIME_MAX_MS)?,
        scheduler: scheduler(top)?,
        overhead: match top.get("overhead") {
            Some(field) => overhead(&field.section("overhead.")?)?,
            None => Overhead::NONE,
        },
        bus: match top.get("bus") {
            Some(field) => bus(&field.section("bus.")?)?,
            None => Bus::NONE,
        },
        cache: match top.get("cache") {
            Some(field) => cache(&field.section("cache.")?)?,
            None => Cache::PLAIN,
        },
    };
    match Tables::new(&drive) {
        Ok(_) => Ok(drive),
        Err(DriveError { problem, part, .. }) => {
            let blame = |key: &str| top.get(key).map(|field| field.error(problem.clone()));
            let found = match part {
                Part::Zone(index) => zone_fields.get(index).map(|field| field.error(problem.clone())),
                Part::Seek => blame("seek"),
                Part::WriteSeek => blame("write_seek"),
                Part::WriteSettle => blame("write_settle_ms"),
                Part::Cache => blame("cache"),
                Part::Capacity => blame("sectors"),
                Part::Whole => None,
            };
            Err(found.unwrap_or_else(|| top.error("", problem)))
        }
    }
}

pub(super) const SCHEDULERS: [(&str, Scheduler); 4] = [
    ("clook", Scheduler::CLook),
    ("fcfs", Scheduler::Fcfs),
    ("sstf", Scheduler::Sstf),
    ("sptf", Scheduler::Sptf { age_micros: 0 }),
];

fn scheduler(top: &Section<'_>) -> DriveFileResult<Option<Scheduler>> {
    let found = top.get("scheduler").map(|field| field.choice(&SCHEDULERS)).transpose()?;
    match (found, top.get("scheduler_age")) {
        (found, None) => Ok(found),
        (Some(Scheduler::Sptf { .. }), Some(field)) => {
            Ok(Some(Scheduler::Sptf { age_micros: field.count(0, 1_000_000)? }))
        }
        (_, Some(field)) => Err(field.error("only the scheduler sptf counts how long requests have waited")),
    }
}

/// The number at `key`, which goes with the `word` of `of` and no other.
fn beside(top: &Section<'_>, of: &str, word: &str, key: &str, is_word: bool, max: u32) -> DriveFileResult<u32> {
    match (is_word, top.get(key)) {
        (true, Some(field)) => field.count(1, max),
        (true, None) => Err(top.error(key, format!("this key is missing, which `{of} = \"{word}\"` needs"))),
        (false, Some(field)) => Err(field.error(format!("this key goes with `{of} = \"{word}\"`"))),
        (false, None) => Ok(1),
    }
}

fn surfaces(top: &Section<'_>, cylinders: u32) -> DriveFileResult<SurfaceOrder> {
    let (bands, forward) = (SurfaceOrder::Bands { cylinders: 1 }, SurfaceOrder::ForwardBands { cylinders: 1 });
    let words = [
        ("forward", SurfaceOrder::Forward),
        ("serpentine", SurfaceOrder::Serpentine),
        ("bands", bands),
        ("forward-bands", forward),
    ];
    let found = top.get("surfaces").map_or(Ok(SurfaceOrder::Forward), |field| field.choice(&words))?;
    let word = if found == forward { "forward-bands" } else { "bands" };
    let cylinders = beside(top, "surfaces", word, "band_cylinders", found.bands().is_some(), cylinders)?;
    Ok(match found {
        SurfaceOrder::Bands { .. } => SurfaceOrder::Bands { cylinders },
        SurfaceOrder::ForwardBands { .. } => SurfaceOrder::ForwardBands { cylinders },
        SurfaceOrder::Forward | SurfaceOrder::Serpentine => found,
    })
}

fn sparing(top: &Section<'_>, cylinders: u32) -> DriveFileResult<Sparing> {
    let range = Sparing::SectorsPerRange { cylinders: 1 };
    let words = [
        ("none", Sparing::None),
        ("tracks", Sparing::Tracks),
        ("sectors-per-track", Sparing::SectorsPerTrack),
        ("sectors-per-cylinder", Sparing::SectorsPerCylinder),
        ("sectors-per-range", range),
        ("sectors-per-zone", Sparing::SectorsPerZone),
        ("sectors-per-zone-beyond-slips", Sparing::SectorsPerZoneBeyondSlips),
    ];
    let found = top.get("sparing").map_or(Ok(Sparing::None), |field| field.choice(&words))?;
    let cylinders = beside(top, "sparing", "sectors-per-range", "range_cylinders", found == range, cylinders)?;
    Ok(if found == range { Sparing::SectorsPerRange { cylinders } } else { found })
}

fn zones<'a>(top: &Section<'a>, cylinders: u32) -> DriveFileResult<(Vec<Zone>, Vec<Field<'a>>)> {
    let fields = top.need("zone")?.items("tables: [[zone]]")?;
    let zone = |field: &Field<'a>| {
        let section = field.section("zone.")?;
        section.only(&[
            "cylinders",
            "sectors_per_track",
            "track_skew",
            "cylinder_skew",
            "first_sector_angle",
            "reserved",
            "spares",
            "slips",
        ])?;
        let [first, last] = section.need("cylinders")?.pair("the first and the last cylinder")?;
        let sectors_per_track = section.need("sectors_per_track")?.count(1, SECTORS_PER_TRACK_MAX)?;
        let count = |key: &str, max: u32| section.get(key).map_or(Ok(0), |field| field.count(0, max));
        let slips = match section.get("slips") {
            Some(field) => field.items("whole numbers")?.iter().map(|slip| slip.count(0, u32::MAX)).collect(),
            None => Ok(Vec::new()),
        };
        Ok(Zone {
            first_cylinder: first.count(0, cylinders - 1)?,
            last_cylinder: last.count(0, cylinders - 1)?,
            sectors_per_track,
            track_skew: count("track_skew", sectors_per_track)?,
            cylinder_skew: count("cylinder_skew", sectors_per_track)?,
            first_sector_angle: count("first_sector_angle", sectors_per_track)?,
            reserved: count("reserved", u32::MAX)?,
            spares: count("spares", u32::MAX)?,
            slips: slips?.into(),
        })
    };
    Ok((fields.iter().map(zone).collect::<DriveFileResult<_>>()?, fields))
}

#[derive(Clone, Copy)]
enum Curve {
    Constant,
    Table,
    ThreePoint,
    TwoPiece,
    SquareRoot,
}

fn seek(section: &Section<'_>) -> DriveFileResult<Seek> {
    let words = [
        ("constant", Curve::Constant),
        ("table", Curve::Table),
        ("three-point", Curve::ThreePoint),
        ("two-piece", Curve::TwoPiece),
        ("square-root", Curve::SquareRoot),
    ];
    let time = |key: &str| section.need(key)?.ms(TIME_MAX_MS);
    let factor = |key: &str| section.need(key)?.number(-FACTOR_MAX, FACTOR_MAX);
    match section.need("curve")?.choice(&words)? {
        Curve::Constant => {
            section.only(&["curve", "time_ms"])?;
            Ok(Seek::Constant(time("time_ms")?))
        }
        Curve::Table => {
            section.only(&["curve", "table"])?;
            let field = section.need("table")?;
            let mut table: Vec<(u32, Nanos)> = Vec::new();
            for point in field.items("[cylinders, milliseconds]")? {
                let [distance, time] = point.pair("[cylinders, milliseconds]")?;
                let cylinders = distance.count(1, CYLINDERS_MAX)?;
                if table.last().is_some_and(|last| last.0 >= cylinders) {
                    return Err(distance.error("the distances must ascend"));
                }
                table.push((cylinders, time.ms(TIME_MAX_MS)?));
            }
            match table.is_empty() {
                true => Err(field.error("the table is empty")),
                false => Ok(Seek::Table(table.into())),
            }
        }
        Curve::ThreePoint => {
            section.only(&["curve", "one_ms", "average_ms", "full_ms"])?;
            let keys = ["one_ms", "average_ms", "full_ms"];
            let [one, average, full] = [time(keys[0])?, time(keys[1])?, time(keys[2])?];
            figures_rise(section, keys, [one, average, full])?;
            Ok(Seek::ThreePoint { one, average, full })
        }
        Curve::TwoPiece => {
            section.only(&["curve", "root_base_ms", "root_ms", "line_from", "line_base_ms", "line_ms", "short_ms"])?;
            let short = match section.get("short_ms") {
                Some(field) => field.items("milliseconds")?.iter().map(|time| time.ms(TIME_MAX_MS)).collect(),
                None => Ok(Vec::new()),
            };
            Ok(Seek::TwoPiece(TwoPiece {
                root_base_ms: factor("root_base_ms")?,
                root_ms: factor("root_ms")?,
                line_from: section.need("line_from")?.count(0, CYLINDERS_MAX)?,
                line_base_ms: factor("line_base_ms")?,
                line_ms: factor("line_ms")?,
                short: short?.into(),
            }))
        }
        Curve::SquareRoot => {
            section.only(&["curve", "base_ms", "root_ms"])?;
            Ok(Seek::SquareRoot { base_ms: factor("base_ms")?, root_ms: factor("root_ms")? })
        }
    }
}

/// The three figures of a seek curve are in order. The key to blame may be missing, where its figure is a usual one.
fn figures_rise(section: &Section<'_>, keys: [&str; 3], [one, average, full]: [Nanos; 3]) -> DriveFileResult<()> {
    rising(one, average, full).map_err(|(figure, problem)| {
        let key = if figure == Figure::One { keys[0] } else { keys[2] };
        section.get(key).map_or_else(|| section.error(key, problem.clone()), |field| field.error(problem.clone()))
    })
}

fn overhead(section: &Section<'_>) -> DriveFileResult<Overhead> {
    section.only(&[
        "read_hit_ms",
        "read_miss_ms",
        "write_hit_ms",
        "write_miss_ms",
        "read_completion_ms",
        "write_completion_ms",
        "data_preparation_ms",
        "reselect_ms",
        "write_disconnect_ms",
        "write_seek_min_ms",
    ])?;
    let pair = |key: &str| match section.get(key) {
        None => Ok(AfterPair::always(Nanos::ZERO)),
        Some(field) if field.is_array() => {
            let [after_read, after_write] = field.pair("one time, or [after a read, after a write],")?;
            Ok(AfterPair { after_read: after_read.ms(TIME_MAX_MS)?, after_write: after_write.ms(TIME_MAX_MS)? })
        }
        Some(field) => field.ms(TIME_MAX_MS).map(AfterPair::always),
    };
    let time = |key: &str| section.get(key).map_or(Ok(Nanos::ZERO), |field| field.ms(TIME_MAX_MS));
    Ok(Overhead {
        read_hit: pair("read_hit_ms")?,
        read_miss: pair("read_miss_ms")?,
        write_hit: pair("write_hit_ms")?,
        write_miss: pair("write_miss_ms")?,
        read_completion: time("read_completion_ms")?,
        write_completion: time("write_completion_ms")?,
        data_preparation: time("data_preparation_ms")?,
        reselect: time("reselect_ms")?,
        write_disconnect: time("write_disconnect_ms")?,
        write_seek_min: time("write_seek_min_ms")?,
    })
}

/// Longest time in which a bus moves a sector.
pub(in crate::disk) const SECTOR_MAX_MS: f64 = 100.0;

fn bus(section: &Section<'_>) -> DriveFileResult<Bus> {
    section.only(&[
        "read_sector_ms",
        "write_sector_ms",
        "disconnect_until_percent",
        "disconnect_until_sectors",
        "tagged_queueing",
    ])?;
    let time = |key: &str| section.get(key).map_or(Ok(Nanos::ZERO), |field| field.ms(SECTOR_MAX_MS));
    let disconnects = section.get("disconnect_until_percent").is_some();
    let sectors = section.get("disconnect_until_sectors");
    if let Some(field) = sectors.as_ref().filter(|_| !disconnects) {
        return Err(field.error("this key goes with `disconnect_until_percent`"));
    }
    Ok(Bus {
        read_sector: time("read_sector_ms")?,
        write_sector: time("write_sector_ms")?,
        disconnect_until_percent: section
            .get("disconnect_until_percent")
            .map(|field| field.count(0, 100))
            .transpose()?,
        disconnect_until_sectors: sectors.map(|field| field.count(1, CACHE_SECTORS_MAX)).transpose()?,
        tagged_queueing: section.get("tagged_queueing").map_or(Ok(false), |field| field.switch())?,
    })
}

#[derive(Clone, Copy, PartialEq)]
enum Ahead {
    None,
    TrackEnd,
    CylinderEnd,
    Sectors,
    NextTrack,
}

fn cache(section: &Section<'_>) -> DriveFileResult<Cache> {
    section.only(&[
        "segments",
        "segment_sectors",
        "read_ahead",
        "read_ahead_sectors",
        "read_ahead_after_hit",
        "stop_in_sector",
        "read_on_arrival",
        "keep_passing_sectors",
        "write_on_arrival",
        "write_start_sectors",
        "write_start_long_sectors",
        "write_start_long_from",
        "write_behind",
        "forget_sent",
        "read_written",
        "write_segment_apart",
    ])?;
    let plain = Cache::PLAIN;
    let switch = |key: &str, default: bool| section.get(key).map_or(Ok(default), |field| field.switch());
    let words = [
        ("none", Ahead::None),
        ("track-end", Ahead::TrackEnd),
        ("cylinder-end", Ahead::CylinderEnd),
        ("sectors", Ahead::Sectors),
        ("next-track", Ahead::NextTrack),
    ];
    let ahead = section.get("read_ahead").map_or(Ok(Ahead::None), |field| field.choice(&words))?;
    let sectors = match (ahead, section.get("read_ahead_sectors")) {
        (Ahead::None | Ahead::NextTrack, Some(field)) => {
            return Err(field.error("this key goes with a `read_ahead` of track-end, cylinder-end or sectors"));
        }
        (Ahead::None | Ahead::NextTrack, None) => 0,
        (_, field) => field.map_or_else(
            || Err(section.error("read_ahead_sectors", "this key is missing, which this `read_ahead` needs")),
            |field| field.count(0, CACHE_SECTORS_MAX),
        )?,
    };
    Ok(Cache {
        segments: section.get("segments").map_or(Ok(plain.segments), |field| field.count(1, SEGMENTS_MAX))?,
        segment_sectors: section
            .get("segment_sectors")
            .map_or(Ok(plain.segment_sectors), |field| field.count(1, CACHE_SECTORS_MAX))?,
        read_ahead: match ahead {
            Ahead::None => ReadAhead::None,
            Ahead::TrackEnd => ReadAhead::TrackEnd { sectors },
            Ahead::CylinderEnd => ReadAhead::CylinderEnd { sectors },
            Ahead::Sectors => ReadAhead::Sectors { sectors },
            Ahead::NextTrack => ReadAhead::NextTrack,
        },
        read_ahead_after_hit: switch("read_ahead_after_hit", plain.read_ahead_after_hit)?,
        stop_in_sector: switch("stop_in_sector", plain.stop_in_sector)?,
        read_on_arrival: switch("read_on_arrival", plain.read_on_arrival)?,
        keep_passing_sectors: switch("keep_passing_sectors", plain.keep_passing_sectors)?,
        write_on_arrival: switch("write_on_arrival", plain.write_on_arrival)?,
        write_start: write_start(section)?,
        write_behind: section
            .get("write_behind")
            .map_or(Ok(plain.write_behind), |field| field.choice(&WRITE_BEHIND))?,
        forget_sent: switch("forget_sent", plain.forget_sent)?,
        read_written: switch("read_written", plain.read_written)?,
        write_segment_apart: switch("write_segment_apart", plain.write_segment_apart)?,
    })
}

fn write_start(section: &Section<'_>) -> DriveFileResult<Option<WriteStart>> {
    let long = ["write_start_long_sectors", "write_start_long_from"];
    let count = |field: Field<'_>| field.count(1, CACHE_SECTORS_MAX);
    let Some(field) = section.get("write_start_sectors") else {
        return match long.iter().find_map(|key| section.get(key)) {
            Some(field) => Err(field.error("this key goes with `write_start_sectors`")),
            None => Ok(None),
        };
    };
    let sectors = count(field)?;
    match long.map(|key| section.get(key)) {
        [Some(long_sectors), Some(long_from)] => {
            Ok(Some(WriteStart { sectors, long_sectors: count(long_sectors)?, long_from: count(long_from)? }))
        }
        [None, None] => Ok(Some(WriteStart { sectors, long_sectors: sectors, long_from: CACHE_SECTORS_MAX })),
        [Some(field), None] | [None, Some(field)] => {
            Err(field.error("`write_start_long_sectors` and `write_start_long_from` go together"))
        }
    }
}
