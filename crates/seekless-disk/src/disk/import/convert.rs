//! From DiskSim's blocks to a drive.

use super::super::drive::{
    AfterPair, Bus, Cache, Drive, Evidence, Overhead, ReadAhead, Sparing, SurfaceOrder, WriteBehind, WriteStart, Zone,
};
use super::super::layout::{DriveError, Layout, Part as DrivePart};
use super::super::tables::Tables;
use super::bus::{bus, unknown_bus, way};
use super::curve::seek;
use super::files::Read;
use super::index::Index;
use super::known::{disk_notes, missing_notes, model_notes, shown, way_notes};
use super::map;
use super::scheduler::scheduler;
use super::syntax::{Block, Param, SourceLine, Spec, Value};
use super::tracks::{self, Geometry, Track};
use super::{CYLINDERS_MAX, ImportError, Imported, SEGMENT_SECTORS_MAX};
use crate::units::{Nanos, counted};

type ImportResult<T> = Result<T, ImportError>;

/// How much of a write must have arrived before DiskSim starts to write it, on drives with an "extra write disconnect". There is no
/// parameter for it: the numbers are in DiskSim's code.
const EXTRA_DISCONNECT: WriteStart = WriteStart { sectors: 10, long_sectors: 15, long_from: 45 };

pub(super) fn imported(spec: &Spec, file: &str, wanted: Option<&str>, read: Read<'_>) -> ImportResult<Imported> {
    let mut notes = spec.notes.clone();
    let whole = SourceLine { file: file.into(), line: 1 };
    // An instance in the topology has a name of its own.
    let instance = |name: &str| spec.instances.iter().find(|(names, _)| names.iter().any(|other| other == name));
    let wanted_block = wanted.map(|name| instance(name).map_or(name, |(_, block)| block));
    let wanted = Wanted { name: wanted, block: wanted_block, instances: &spec.instances };
    let of_kind = |kind: &str| -> Vec<&Block> {
        spec.blocks.iter().map(|block| &**block).filter(|block| block.kind == kind).collect()
    };
    let disks = of_kind("disksim_disk");
    let models = of_kind("dm_disk");
    if disks.is_empty()
        && models.is_empty()
        && let Some((block, what)) = spec.blocks.iter().find_map(|block| Some((block, other_storage(&block.kind)?)))
    {
        let problem = format!("{} is {what}: drives with mechanics are imported", shown(&block.name));
        return Err(block.place.error(problem));
    }
    let (name, model, disk) = if disks.is_empty() {
        let model = choose(&models, &wanted, &whole, "drive (a block disksim_disk or dm_disk)")?;
        notes.push(
            "This is the mechanics alone: overheads, cache and bus are in the .diskspecs and .parv, and are as if there were none here."
                .to_owned(),
        );
        (&model.name, model, None)
    } else {
        let disk = choose(&disks, &wanted, &whole, "drive")?;
        let param = disk.need("Model")?;
        let model = match &*param.value {
            Value::Text(name) => models.into_iter().find(|block| block.name == *name),
            _ => Some(param.block()?),
        };
        (&disk.name, model.ok_or_else(|| param.error("there is no dm_disk of this name"))?, Some(disk))
    };
    let mut files = spec.files.clone();
    let mechanics = model.need("Mechanical Model")?.block()?;
    let layout = model.need("Layout Model")?.block()?;
    if mechanics.kind != "dm_mech_g1" {
        return Err(mechanics
            .place
            .error(format!("the mechanical model {} is not known; dm_mech_g1 is", mechanics.kind)));
    }
    let heads = model.need("Number of data surfaces")?.count(1, 255)?;
    let stated = model.need("Number of cylinders")?.count(1, CYLINDERS_MAX)?;
    let Geometry { zones, surfaces, sparing } = match &*layout.kind {
        "dm_layout_g1" => {
            let mut zones = zones(layout, &mut notes)?;
            let surfaces = surfaces(layout, &zones, &mut notes)?;
            Geometry { sparing: sparing(layout, &mut zones, &mut notes)?, zones, surfaces }
        }
        "dm_layout_g2" => map(layout, heads, read, &mut files, &mut notes)?,
        "dm_layout_g4" => index(layout, heads, &mut notes)?,
        kind => return Err(layout.place.error(unknown_layout(kind))),
    };
    let cylinders = cylinders(stated, &zones, &mut notes);
    let (seek, write_seek) = seek(mechanics, cylinders, read, &mut files, &mut notes)?;
    let short =
        [".model", "_model", "_validate"].iter().fold(&**name, |name, end| name.strip_suffix(end).unwrap_or(name));
    let mut drive = Drive {
        name: drive_name(short).into(),
        product: one_line(&short.replace('_', " ")).into(),
        source: one_line(&format!("parameters of DiskSim, {}", files.join(", "))).into(),
        evidence: Evidence::Extracted,
        heads,
        cylinders,
        sectors: 1, // `fit_capacity` sets it.
        rpm: rpm(mechanics, &mut notes)?,
        surfaces,
        sparing,
        zones: zones.into(),
        seek,
        write_seek,
        write_settle_ns: write_settle(mechanics)?,
        head_switch: mechanics.time("Head switch time")?,
        scheduler: None,
        overhead: Overhead::NONE,
        bus: Bus { disconnect_until_percent: Some(0), ..Bus::NONE },
        cache: Cache::PLAIN,
    };
    mechanics_notes(mechanics, &mut notes)?;
    missing_notes(mechanics, layout, &mut notes)?;
    model_notes(model, mechanics, layout, &mut notes)?;
    let mut is_bus_known = true;
    if let Some(disk) = disk {
        let way = way(disk, wanted.name, spec);
        is_bus_known = !way.is_empty();
        if way.is_empty() && !spec.topology.is_empty() {
            notes.push(format!(
                "The drive {} is not in the topology of {file}, which therefore says nothing of its bus.",
                shown(wanted.name.unwrap_or(&disk.name))
            ));
        }
        drive.overhead = overhead(disk)?;
        drive.bus = bus(disk, &way, &mut notes)?;
        drive.cache = cache(disk, &mut notes)?;
        if drive.bus.disconnect_until_percent.is_none() && drive.cache.write_behind == WriteBehind::None {
            // After the data of a write, DiskSim lets go of the bus whatever `Never disconnect` says.
            drive.overhead.write_completion += drive.overhead.reselect;
        }
        drive.scheduler = scheduler(disk, &way, &mut notes)?;
        disk_notes(disk, &mut notes)?;
        way_notes(&way, &mut notes);
    }
    fit_capacity(&mut drive, model, layout, &mut notes)?;
    if !is_bus_known {
        unknown_bus(&mut drive, &mut notes);
    }
    Tables::new(&drive).map_err(|error| match (error.part, mechanics.get("Add. write settling delay")) {
        (DrivePart::WriteSettle, Some(param)) => param.error(&error.problem),
        (DrivePart::WriteSettle | DrivePart::Seek | DrivePart::WriteSeek, _) => mechanics.place.error(error.problem),
        _ => blamed(layout, error),
    })?;
    files.dedup();
    Ok(Imported { drive, notes, files })
}

/// An error of a layout, at the zone that it is about, where the layout lists them.
fn blamed(layout: &Block, error: DriveError) -> ImportError {
    let zone = match error.part {
        DrivePart::Zone(index) if layout.kind == "dm_layout_g1" => {
            layout.get("Zones").and_then(|param| param.list().ok()).and_then(|zones| zones.get(index))
        }
        _ => None,
    };
    match zone {
        Some(Value::Block(zone)) => zone.place.error(error.problem),
        _ => layout.place.error(error.problem),
    }
}

/// In nanoseconds; negative in some models.
fn write_settle(mechanics: &Block) -> ImportResult<i64> {
    let Some(param) = mechanics.get("Add. write settling delay") else { return Ok(0) };
    let millis = param.number()?;
    match (-1000.0..=1000.0).contains(&millis) {
        true => Ok((millis * 1e6).round() as i64),
        false => Err(param.error(&format!("{millis} ms is not from -1000 to 1000"))),
    }
}

/// Storage of DiskSim and of its extensions that is no disk with mechanics.
fn other_storage(kind: &str) -> Option<&'static str> {
    match kind {
        "disksim_simpledisk" => Some("a disksim_simpledisk, whose requests all take one time"),
        "memsmodel_mems" => Some("a memsmodel_mems, storage of microscopic tips"),
        "ssdmodel_ssd" => Some("an ssdmodel_ssd, a flash drive, which a stack line describes (`ssd:`)"),
        _ => None,
    }
}

/// The drive that the user named.
struct Wanted<'a> {
    name: Option<&'a str>,
    /// Of which it is an instance, or the name itself.
    block: Option<&'a str>,
    instances: &'a [(Vec<String>, String)],
}

/// The block that is wanted, or the only one.
fn choose<'a>(blocks: &[&'a Block], wanted: &Wanted<'_>, at: &SourceLine, what: &str) -> ImportResult<&'a Block> {
    /// Instances that are listed for each block.
    const INSTANCES_MAX: usize = 8;
    let names = || {
        let named = |block: &&Block| {
            let of = wanted.instances.iter().filter(|(_, other)| *other == block.name);
            let instances: Vec<String> = of.flat_map(|(names, _)| names).map(|name| shown(name)).collect();
            let more = if instances.len() > INSTANCES_MAX { " .." } else { "" };
            match instances.is_empty() {
                true => shown(&block.name),
                false => {
                    let listed = &instances[..instances.len().min(INSTANCES_MAX)];
                    format!("{} ({}{more})", shown(&block.name), listed.join(", "))
                }
            }
        };
        blocks.iter().map(named).collect::<Vec<_>>().join(", ")
    };
    match (wanted.block, blocks) {
        (_, []) => Err(at.error(format!("there is no {what} here"))),
        (None, [block]) => Ok(block),
        (None, _) => Err(at.error(format!("there are several drives, say which with --drive: {}", names()))),
        (Some(block), _) => {
            let found = blocks.iter().find(|other| other.name == block);
            let name = shown(wanted.name.unwrap_or(block));
            found.copied().ok_or_else(|| at.error(format!("there is no drive `{name}`; there are: {}", names())))
        }
    }
}

/// A drive file has whole revolutions a minute.
fn rpm(mechanics: &Block, notes: &mut Vec<String>) -> ImportResult<u32> {
    let param = mechanics.need("Rotation speed (in rpms)")?;
    let (given, rounded) = (param.number()?, param.number()?.round());
    if (given - rounded).abs() > 1e-6 {
        let SourceLine { file, line } = &param.place;
        notes.push(format!("`{}` {given} ({file}, line {line}) is rounded to {rounded}.", param.key));
    }
    param.count_of(&Value::Text(rounded.to_string()), 60, (1 << 20) - 1)
}

/// Text for a drive file, which has no control characters in it; names of files may.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(1000).collect()
}

fn drive_name(name: &str) -> String {
    let mut made = String::new();
    for c in name.chars().take(60) {
        match c.to_ascii_lowercase() {
            c @ ('a'..='z' | '0'..='9') => made.push(c),
            _ if made.ends_with('-') || made.is_empty() => {}
            _ => made.push('-'),
        }
    }
    let made = made.trim_end_matches('-');
    if made.is_empty() { "imported".to_owned() } else { made.to_owned() }
}

fn unknown_layout(kind: &str) -> String {
    format!(
        "the layout {} is not known; dm_layout_g1, which describes zones, dm_layout_g2, which has a map, and dm_layout_g4, which describes \
         tracks by patterns, can be imported",
        shown(kind)
    )
}

/// The zones of a `dm_layout_g2`.
fn map(
    layout: &Block,
    heads: u32,
    read: Read<'_>,
    files: &mut Vec<String>,
    notes: &mut Vec<String>,
) -> ImportResult<Geometry> {
    let map = map::read(layout, heads, read)?;
    if map.remapped > 0 {
        notes.push(format!("{} remapped sectors of {} are read at their original places.", map.remapped, map.file));
    }
    files.push(map.file.clone());
    let walk = |visit: &mut dyn FnMut(Track)| map.tracks.iter().for_each(|track| visit(*track));
    tracks::geometry(&walk, (heads, map.cylinders), &map.slips, notes).map_err(|(line, problem)| ImportError {
        file: map.file.clone(),
        line,
        problem,
    })
}

/// The zones of a `dm_layout_g4`.
fn index(layout: &Block, heads: u32, notes: &mut Vec<String>) -> ImportResult<Geometry> {
    let index = Index::read(layout, heads)?;
    if index.remapped > 0 {
        notes.push(format!("{} remapped sectors (`Remaps`) are read at their original places.", index.remapped));
    }
    tracks::geometry(&|visit| index.walk(visit), (heads, index.cylinders), &index.slips, notes)
        .map_err(|(line, problem)| ImportError { line, ..layout.place.error(format!("`IDX`: {problem}")) })
}

fn cylinders(stated: u32, zones: &[Zone], notes: &mut Vec<String>) -> u32 {
    let reached = zones.iter().map(|zone| zone.last_cylinder + 1).max().unwrap_or(0);
    if reached > stated {
        notes.push(format!("There are {reached} cylinders, which the zones need, and not {stated}."));
    }
    stated.max(reached)
}

fn zones(layout: &Block, notes: &mut Vec<String>) -> ImportResult<Vec<Zone>> {
    let units = layout.get("Skew units");
    let list = layout.need("Zones")?;
    let mut zones = Vec::new();
    let (mut rounded, mut remapped) = (false, 0);
    let mut cut = CutSkews::default();
    for item in list.list()? {
        let Value::Block(block) = item else {
            return Err(list.error("a list of dm_layout_g1_zone blocks is expected"));
        };
        let sectors = block.need("Blocks per track")?.count(1, 1 << 20)?;
        let own_units = block.get("Skew units").or(units);
        let in_turns = match own_units.map(|param| (param, param.text())) {
            None => false,
            Some((_, Ok("sectors"))) => false,
            Some((_, Ok("revolutions"))) => true,
            Some((param, _)) => return Err(param.error("one of sectors, revolutions")),
        };
        let mut angle = |key: &str| -> ImportResult<u32> {
            let Some(param) = block.get(key) else { return Ok(0) };
            let given = param.number()?;
            cut.add(param, given, in_turns, own_units.is_some());
            // DiskSim cuts off fractions of a sector, but not of a revolution.
            let exact = if in_turns { given * f64::from(sectors) } else { given.trunc() };
            rounded |= in_turns && (exact - exact.round()).abs() > 1e-3;
            Ok(exact.round().rem_euclid(f64::from(sectors)) as u32)
        };
        let (first_sector_angle, track_skew, cylinder_skew) =
            (angle("Offset of first block")?, angle("Skew for track switch")?, angle("Skew for cylinder switch")?);
        let mut slips = Vec::new();
        if let Some(param) = block.get("slips") {
            for item in param.list()? {
                slips.push(param.count_of(item, 0, u32::MAX)?);
            }
        }
        slips.sort_unstable();
        slips.dedup();
        if let Some(param) = block.get("defects") {
            remapped += param.list()?.len() / 2;
        }
        zones.push(Zone {
            first_cylinder: block.need("First cylinder number")?.count(0, CYLINDERS_MAX - 1)?,
            last_cylinder: block.need("Last cylinder number")?.count(0, CYLINDERS_MAX - 1)?,
            sectors_per_track: sectors,
            track_skew,
            cylinder_skew,
            first_sector_angle,
            reserved: block.get("Empty space at zone front").map_or(Ok(0), |param| param.count(0, u32::MAX))?,
            spares: block.get("Number of spares").map_or(Ok(0), |param| param.count(0, u32::MAX))?,
            slips: slips.into(),
        });
    }
    if rounded {
        notes.push("Skews in revolutions are rounded to whole sectors.".to_owned());
    }
    cut.notes(notes);
    if remapped > 0 {
        notes.push(format!("{remapped} remapped sectors (`defects`) are read at their original places."));
    }
    Ok(zones)
}

/// Skews of which something is lost, as DiskSim loses it: the first of each kind, and how many there are.
#[derive(Default)]
struct CutSkews {
    /// Fractions of sectors, without and with a unit; whole revolutions.
    found: [Option<(String, u32)>; 3],
}

impl CutSkews {
    fn add(&mut self, param: &Param, given: f64, in_turns: bool, has_unit: bool) {
        let kind = match (in_turns, has_unit) {
            (false, _) if given.fract() == 0.0 => return,
            (false, false) => 0,
            (false, true) => 1,
            (true, _) if given.abs() < 1.0 => return,
            (true, _) => 2,
        };
        let (_, count) = self.found[kind].get_or_insert_with(|| {
            let SourceLine { file, line } = &param.place;
            let used = if in_turns { given.fract() } else { given.trunc() };
            (format!("`{}` {given} ({file}, line {line}) counts as {used}", param.key), 0)
        });
        *count += 1;
    }

    fn notes(&self, notes: &mut Vec<String>) {
        for (found, why) in self.found.iter().zip([
            "There are no `Skew units`, so skews are in sectors, and DiskSim cuts off their fractions. If they are parts of a revolution, \
             write `Skew units = revolutions` before `Zones`.",
            "DiskSim cuts off fractions of sectors.",
            "Whole revolutions are no skew. If it is in sectors, write `Skew units = sectors`.",
        ]) {
            if let Some((first, count)) = found {
                let more = match count {
                    1 => String::new(),
                    count => format!(", and {} more likewise", count - 1),
                };
                notes.push(format!("{first}{more}. {why}"));
            }
        }
    }
}

fn surfaces(layout: &Block, zones: &[Zone], notes: &mut Vec<String>) -> ImportResult<SurfaceOrder> {
    let param = layout.need("LBN-to-PBN mapping scheme")?;
    match param.whole()? {
        0 => Ok(SurfaceOrder::Forward),
        1 => Ok(SurfaceOrder::Serpentine),
        2 => {
            if zones.iter().any(|zone| zone.first_cylinder % 2 == 1) {
                notes.push(
                    "The serpentine order of the surfaces starts again in each zone; mapping scheme 2 would let it go on."
                        .to_owned(),
                );
            }
            Ok(SurfaceOrder::Serpentine)
        }
        other => Err(param.error(&format!("{other} is not from 0 to 2"))),
    }
}

fn sparing(layout: &Block, zones: &mut [Zone], notes: &mut Vec<String>) -> ImportResult<Sparing> {
    let param = layout.need("Sparing scheme used")?;
    let scheme = param.whole()?;
    let sparing = match scheme {
        // The spares of 7 are beyond the capacity.
        0 | 7 => Sparing::None,
        1 => Sparing::Tracks,
        2 | 4 | 5 | 6 => Sparing::SectorsPerCylinder,
        3 => Sparing::SectorsPerTrack,
        8 => Sparing::SectorsPerRange { cylinders: layout.need("Rangesize for sparing")?.count(1, CYLINDERS_MAX)? },
        9 => Sparing::SectorsPerZone,
        10 => Sparing::SectorsPerZoneBeyondSlips,
        other => return Err(param.error(&format!("{other} is not from 0 to 10"))),
    };
    if matches!(scheme, 5 | 6) {
        notes.push(
            "Spares are at the end of each cylinder, and not at its front as sparing scheme 5 or 6 has them."
                .to_owned(),
        );
    }
    let slips: usize = zones.iter().map(|zone| zone.slips.len()).sum();
    if matches!(scheme, 4 | 6) && slips > 0 {
        notes.push(format!(
            "{slips} slipped sectors are left out: in sparing scheme 4 or 6 they do not use the spares of their cylinder."
        ));
        zones.iter_mut().for_each(|zone| zone.slips = Vec::new().into());
    }
    Ok(sparing)
}

fn mechanics_notes(mechanics: &Block, notes: &mut Vec<String>) -> ImportResult<()> {
    let access = mechanics.get("Access time type");
    match access.map(Param::text).transpose()? {
        None | Some("trackSwitchPlusRotation") => {}
        Some("averageRotation") => {
            notes.push("The rotation is simulated; DiskSim would take half a revolution for each request.".to_owned());
        }
        Some(other) => {
            let problem = format!("`{}` is no mechanical model; trackSwitchPlusRotation is", other.escape_debug());
            return Err(mechanics.place.error(problem));
        }
    }
    if mechanics.number("Percent error in rpms", 0.0)? != 0.0 {
        notes.push("The speed is exact: `Percent error in rpms` would draw it at random.".to_owned());
    }
    Ok(())
}

fn overhead(disk: &Block) -> ImportResult<Overhead> {
    let scale = disk.between("Time scale for overheads", 1.0, 1000.0)?;
    let scaled = |time: Nanos| Nanos((time.0 as f64 * scale).round() as u64);
    let each = scaled(disk.time("Per-request overhead time")?);
    let time = |key: &str| disk.time(key).map(scaled);
    let pair = |key: &str| -> ImportResult<AfterPair> {
        Ok(AfterPair {
            after_read: each + time(&format!("{key} over. after read"))?,
            after_write: each + time(&format!("{key} over. after write"))?,
        })
    };
    Ok(Overhead {
        read_hit: pair("Read hit")?,
        read_miss: pair("Read miss")?,
        write_hit: pair("Write hit")?,
        write_miss: pair("Write miss")?,
        read_completion: time("Read completion overhead")?,
        write_completion: time("Write completion overhead")?,
        data_preparation: time("Data preparation overhead")?,
        reselect: time("First reselect overhead")?,
        write_disconnect: time("Write disconnect overhead")?,
        // The only one that DiskSim does not scale.
        write_seek_min: disk.time("Minimum seek delay")?,
    })
}

fn cache(disk: &Block, notes: &mut Vec<String>) -> ImportResult<Cache> {
    let segment_sectors = disk.need("Segment size (in blks)")?.count(1, SEGMENT_SECTORS_MAX)?;
    let apart = disk.flag("Use separate write segment")?;
    let given = disk.need("Number of buffer segments")?.count(0, 4096)?;
    let segments = given.max(1 + u32::from(apart));
    if segments > given {
        notes.push(format!(
            "The cache has {}, the fewest that it can have, and not {given}.",
            counted(u64::from(segments), "segment")
        ));
    }
    let ahead = disk.level("Buffer continuous read", 4)?;
    let sectors = match disk.level("Maximum read-ahead (blks)", SEGMENT_SECTORS_MAX)? {
        // DiskSim has no limit then but the segment.
        0 => {
            if matches!(ahead, 1..=3) && disk.whole("Read-ahead over requested", 0)? == 0 {
                notes.push(
                    "Read-ahead goes on for a segment after a request, and not only until the two fill a segment."
                        .to_owned(),
                );
            }
            segment_sectors
        }
        limit => limit,
    };
    let level = disk.level("Fast write level", 2)?;
    let mut cache = Cache {
        segments,
        segment_sectors,
        read_ahead: match ahead {
            1 => ReadAhead::TrackEnd { sectors },
            2 => ReadAhead::CylinderEnd { sectors },
            3 => ReadAhead::Sectors { sectors },
            4 => ReadAhead::NextTrack,
            _ => ReadAhead::None,
        },
        read_ahead_after_hit: disk.flag("Read-ahead on idle hit")?,
        stop_in_sector: disk.flag("Stop prefetch in sector")?,
        read_on_arrival: false,
        keep_passing_sectors: false,
        write_on_arrival: false,
        write_start: disk.flag("Extra write disconnect")?.then_some(EXTRA_DISCONNECT),
        // Whatever the level: DiskSim accepts no write before the one before it is on the medium.
        write_behind: if level > 0 { WriteBehind::One } else { WriteBehind::None },
        forget_sent: disk.whole("Read-ahead over requested", 0)? == -1,
        read_written: disk.flag("Allow read hits on write data")?,
        write_segment_apart: apart,
    };
    if let Some(param) = disk.get("Enable caching in buffer")
        && param.whole()? == 0
    {
        if cache.read_ahead != ReadAhead::None {
            notes.push(
                "`Enable caching in buffer` is 0: there is no read-ahead, which in DiskSim still moves the arm and hits nothing."
                    .to_owned(),
            );
        }
        cache = Cache { read_ahead: ReadAhead::None, forget_sent: true, read_written: false, ..cache };
    }
    for (key, name) in [
        ("Immediate buffer read", "read_on_arrival"),
        ("Read any free blocks", "keep_passing_sectors"),
        ("Immediate buffer write", "write_on_arrival"),
    ] {
        if disk.flag(key)? {
            notes.push(format!(
                "`{key}` is off, because DiskSim 4.0 does not act on it: {name} of [cache] is the same here, and works."
            ));
        }
    }
    if disk.flag("Extra write disconnect")? {
        notes.push(
            "Of the extra write disconnect, only how much of a write must have arrived is simulated (write_start ...)."
                .to_owned(),
        );
    }
    Ok(cache)
}

/// DiskSim's capacity: what the zones hold, and of tracks one by one `Block count`, if the tracks hold as much.
fn fit_capacity(drive: &mut Drive, model: &Block, layout: &Block, notes: &mut Vec<String>) -> ImportResult<()> {
    let held = Layout::new(&Drive { sectors: 1, ..drive.clone() }).map_err(|error| blamed(layout, error))?.held();
    let stated = match model.get("Block count") {
        Some(param) => Some(param.whole()?),
        None => None,
    };
    let by_tracks = stated.and_then(|stated| u64::try_from(stated).ok()).filter(|_| layout.kind != "dm_layout_g1");
    drive.sectors = by_tracks.filter(|&sectors| sectors > 0).unwrap_or(held).min(held);
    if let Some(stated) = stated.filter(|&stated| u64::try_from(stated) != Ok(drive.sectors)) {
        let why = if layout.kind == "dm_layout_g1" { ": DiskSim does not use that" } else { "" };
        notes.push(format!(
            "The capacity is {} sectors, which the zones hold, and not the {stated} of `Block count`{why}.",
            drive.sectors
        ));
    }
    Ok(())
}
