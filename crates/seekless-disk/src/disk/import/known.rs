//! What the parameters of each block are called. A name that is not among them was misspelt, or means something that is not
//! simulated: either way, the note says where it is, and which name is near.

use super::super::nearest::nearest;
use super::ImportError;
use super::syntax::{Block, Param, SourceLine, Value};

type ImportResult<T> = Result<T, ImportError>;

/// Parameters that change what DiskSim does and have no counterpart: the value at which they change nothing, and what is
/// missing.
const LEFT_OUT: &[(&str, f64, &str)] = &[
    ("Allow almost read hits", 0.0, "a sector that is being read is always a hit"),
    ("Allow sneaky full read hits", 0.0, "a read from the cache waits for the request before it"),
    ("Allow sneaky partial read hits", 0.0, "a read from the cache waits for the request before it"),
    ("Allow sneaky intermediate read hits", 0.0, "a read from the cache waits for the request before it"),
    ("Allow write prebuffering", 0.0, "a write's data waits for the request before it"),
    ("Preseeking level", 0.0, "the arm starts when the request before is complete"),
    ("Minimum read-ahead (blks)", 0.0, "read-ahead ends when a request comes"),
    ("Disconnect write if seek", 0.0, "the drive lets go of the bus after a write's data"),
    ("Low (write) water mark", 0.0, "a write takes the bus once"),
    ("Write hit stop prefetch", 1.0, "a write stops read-ahead"),
    ("Read directly to buffer", 1.0, "sectors go straight into the cache"),
    ("Immed transfer partial hit", 1.0, "what the cache has is sent at once"),
    ("Combine seq writes", 1.0, "sequential writes share a segment"),
    ("Other reselect overhead", 0.0, "the drive takes back the bus once for a request"),
    ("Read disconnect afterread", 0.0, "it happens while the arm moves"),
    ("Read disconnect afterwrite", 0.0, "it happens while the arm moves"),
];

/// Parameters of a drive that are used, that belong to one of those, or that change no time.
const DISK: &[&str] = &[
    "Model",
    "Scheduler",
    "Max queue length",
    "Bulk sector transfer time",
    "Segment size (in blks)",
    "Number of buffer segments",
    "Print stats",
    "Per-request overhead time",
    "Time scale for overheads",
    "Hold bus entire read xfer",
    "Hold bus entire write xfer",
    "Allow read hits on write data",
    "Never disconnect",
    "Avg sectors per cylinder",
    "Maximum number of write segments",
    "Use separate write segment",
    "High (read) water mark",
    "Set watermark by reqsize",
    "Calc sector by sector",
    "Enable caching in buffer",
    "Buffer continuous read",
    "Maximum read-ahead (blks)",
    "Read-ahead over requested",
    "Read-ahead on idle hit",
    "Read any free blocks",
    "Fast write level",
    "Immediate buffer read",
    "Immediate buffer write",
    "Stop prefetch in sector",
    "Read completion overhead",
    "Write completion overhead",
    "Data preparation overhead",
    "First reselect overhead",
    "Write disconnect overhead",
    "Extra write disconnect",
    "Minimum seek delay",
    "Read hit over. after read",
    "Read hit over. after write",
    "Read miss over. after read",
    "Read miss over. after write",
    "Write hit over. after read",
    "Write hit over. after write",
    "Write miss over. after read",
    "Write miss over. after write",
];

const MODEL: &[&str] =
    &["Block count", "Number of data surfaces", "Number of cylinders", "Mechanical Model", "Layout Model"];

const MECHANICS: &[&str] = &[
    "Access time type",
    "Constant access time",
    "Seek type",
    "Average seek time",
    "Constant seek time",
    "Single cylinder seek time",
    "Full strobe seek time",
    "Full seek curve",
    "Add. write settling delay",
    "Head switch time",
    "Rotation speed (in rpms)",
    "Percent error in rpms",
    "First ten seek times",
    "HPL seek equation values",
];

const ZONES: &[&str] =
    &["LBN-to-PBN mapping scheme", "Sparing scheme used", "Rangesize for sparing", "Skew units", "Zones"];

const ZONE: &[&str] = &[
    "First cylinder number",
    "Last cylinder number",
    "Blocks per track",
    "Offset of first block",
    "Skew units",
    "Empty space at zone front",
    "Skew for track switch",
    "Skew for cylinder switch",
    "Number of spares",
    "slips",
    "defects",
];

const ZONES_OF_MAP: &[&str] = &["Layout Map File", "Zones"];

const ZONE_OF_MAP: &[&str] = &[
    "First cylinder number",
    "Last cylinder number",
    "First LBN",
    "Last LBN",
    "Blocks per track",
    "Zone Skew",
    "Skew units",
    "Skew for track switch",
    "Skew for cylinder switch",
];

const PATTERNS: &[&str] = &["TP", "IDX", "Slips", "Remaps"];

/// Notes on parameters of the model, its mechanics and its layout that are not known, or that are there twice.
pub(super) fn model_notes(
    model: &Block,
    mechanics: &Block,
    layout: &Block,
    notes: &mut Vec<String>,
) -> ImportResult<()> {
    block_notes(model, &[MODEL], notes);
    block_notes(mechanics, &[MECHANICS], notes);
    let (of_layout, of_zone) = match &*layout.kind {
        "dm_layout_g1" => (ZONES, ZONE),
        "dm_layout_g2" => (ZONES_OF_MAP, ZONE_OF_MAP),
        _ => {
            block_notes(layout, &[PATTERNS], notes);
            return Ok(());
        }
    };
    block_notes(layout, &[of_layout], notes);
    for zone in layout.need("Zones")?.list()? {
        if let Value::Block(zone) = zone {
            block_notes(zone, &[of_zone], notes);
        }
    }
    Ok(())
}

/// Notes on components between the host and the drive that take time of their own.
pub(super) fn way_notes(way: &[&Block], notes: &mut Vec<String>) {
    for block in way {
        let mut note = |key: &str, param: &Param, why: &str| {
            let SourceLine { file, line } = &param.place;
            notes.push(format!("`{key}` of {} ({file}, line {line}) is left out: {why}.", shown(&block.name)));
        };
        let time = match &*block.kind {
            "disksim_bus" => Some(("Arbitration time", "a transfer takes the bus in no time")),
            "disksim_iodriver" => Some(("Constant access time", "each request takes the time of the drive")),
            _ => None,
        };
        if let Some((key, why)) = time
            && let Some(param) = block.get(key).filter(|param| param.number().is_ok_and(|time| time > 0.0))
        {
            note(key, param, why);
        }
        if let Some(param) = block.get("Cache").filter(|_| block.kind == "disksim_ctlr") {
            note("Cache", param, "DiskSim's times are those of this cache, and the drive has its own");
        }
    }
}

/// Notes on parameters of the drive's electronics that are not simulated, or not known.
pub(super) fn disk_notes(disk: &Block, notes: &mut Vec<String>) -> ImportResult<()> {
    let releases = !disk.flag("Never disconnect")? && disk.number("First reselect overhead", 0.0)? > 0.0;
    if releases && !disk.flag("Hold bus entire read xfer")? {
        notes.push(
            "`Hold bus entire read xfer` counts as 1: `First reselect overhead` is paid once for a read, and not again whenever the \
             buffer runs empty."
                .to_owned(),
        );
    }
    for (key, neutral, why) in LEFT_OUT {
        if disk.number(key, *neutral)? != *neutral {
            notes.push(format!("`{key}` is left out: {why}."));
        }
    }
    let left_out: Vec<&str> = LEFT_OUT.iter().map(|(key, ..)| *key).collect();
    block_notes(disk, &[DISK, &left_out], notes);
    Ok(())
}

/// What is not given counts as none, which a misspelt name must not do in silence.
pub(super) fn missing_notes(mechanics: &Block, layout: &Block, notes: &mut Vec<String>) -> ImportResult<()> {
    let mut note = |key: &str, place: &SourceLine, of: &str| {
        let SourceLine { file, line } = place;
        notes.push(format!("{of} has no `{key}` ({file}, line {line}): it is taken as 0."));
    };
    if mechanics.get("Head switch time").is_none() {
        note("Head switch time", &mechanics.place, "The mechanics");
    }
    for key in ["Skew for track switch", "Skew for cylinder switch"] {
        if layout.kind == "dm_layout_g4" {
            continue;
        }
        let zones = layout.need("Zones")?.list()?;
        let without = zones.iter().find_map(|zone| match zone {
            Value::Block(zone) if zone.get(key).is_none() => Some(zone),
            _ => None,
        });
        if let Some(zone) = without {
            note(key, &zone.place, "A zone");
        }
    }
    Ok(())
}

/// A block has hardly more wrong names than this; what comes after them is counted.
const NAMED_MAX: usize = 8;

fn block_notes(block: &Block, known: &[&[&str]], notes: &mut Vec<String>) {
    block.with_bases().for_each(|block| own_notes(block, known, notes));
}

fn own_notes(block: &Block, known: &[&[&str]], notes: &mut Vec<String>) {
    let names = || known.iter().flat_map(|names| names.iter().copied());
    let is_known = |key: &str| names().any(|name| name == key) || key.starts_with("Extradisc ");
    let mut unknown = 0;
    for (index, param) in block.params.iter().enumerate() {
        let Param { key, place, .. } = param;
        let SourceLine { file, line } = place;
        if !is_known(key) {
            unknown += 1;
            if unknown <= NAMED_MAX {
                let near = nearest(key, names()).map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
                notes.push(
                    format!("`{}` ({file}, line {line}) is not known and left out{near}.", shown(key))
                        .replace("?.", "?"),
                );
            }
        } else if let Some(last) = block.params[index + 1..].iter().find(|other| other.key == *key) {
            notes.push(format!(
                "`{}` is given twice: line {line} of {file} is left out, and line {} counts, as in DiskSim.",
                shown(key),
                last.place.line
            ));
        }
    }
    if unknown > NAMED_MAX {
        let SourceLine { file, line } = &block.place;
        notes.push(format!(
            "{} further parameters of {} ({file}, line {line}) are not known and left out.",
            unknown - NAMED_MAX,
            block.kind
        ));
    }
}

/// Enough of a name to find it, without characters that a terminal acts on.
pub(super) fn shown(key: &str) -> String {
    key.chars().take(80).collect::<String>().escape_debug().to_string()
}
