//! The bus: the slowest component on the way to the drive.

use super::super::drive::{Bus, Drive};
use super::known::shown;
use super::syntax::{Block, Part, SourceLine, Spec};
use super::{ImportError, SEGMENT_SECTORS_MAX};
use crate::units::Nanos;

type ImportResult<T> = Result<T, ImportError>;

pub(super) fn bus(disk: &Block, way: &[&Block], notes: &mut Vec<String>) -> ImportResult<Bus> {
    let own = match disk.number("Bulk sector transfer time", 0.0)? < 0.0 {
        true => {
            notes.push("The bulk sector transfer time is negative, and counts as none.".to_owned());
            Nanos::ZERO
        }
        false => disk.sector_time("Bulk sector transfer time")?,
    };
    let (mut read_sector, mut write_sector) = (own, own);
    // A transfer takes as long as the slowest component on its way.
    for block in way {
        let mut slowest = |now: Nanos, key: &str| -> ImportResult<Nanos> {
            if block.kind == "disksim_bus" && block.get(key).is_none() {
                let SourceLine { file, line } = &block.place;
                let name = shown(&block.name);
                notes.push(format!("The bus {name} has no `{key}` ({file}, line {line}): it is taken as 0."));
            }
            Ok(now.max(block.sector_time(key)?))
        };
        match &*block.kind {
            "disksim_bus" => {
                read_sector = slowest(read_sector, "Read block transfer time")?;
                write_sector = slowest(write_sector, "Write block transfer time")?;
            }
            "disksim_ctlr" => {
                read_sector = slowest(read_sector, "Bulk sector transfer time")?;
                write_sector = slowest(write_sector, "Bulk sector transfer time")?;
            }
            _ => {}
        }
    }
    let mark = disk.between("High (read) water mark", 0.0, 1.0)?;
    // DiskSim's mark is a part of the request, or of the segment; a request that is shorter than the latter is there as a whole.
    let of_segment = mark > 0.0 && !disk.flag("Set watermark by reqsize")?;
    let (percent, sectors) = match of_segment {
        true => {
            let segment = disk.need("Segment size (in blks)")?.count(1, SEGMENT_SECTORS_MAX)?;
            (100, (mark < 1.0).then(|| (f64::from(segment) * mark).ceil() as u32))
        }
        false => ((mark * 100.0).round() as u32, None),
    };
    if !of_segment && (mark * 100.0 - f64::from(percent)).abs() > 1e-6 {
        notes.push(format!("`High (read) water mark` is rounded to {percent} % of a request."));
    }
    let is_released = !disk.flag("Never disconnect")?;
    Ok(Bus {
        read_sector,
        write_sector,
        disconnect_until_percent: is_released.then_some(percent),
        disconnect_until_sectors: sectors.filter(|_| is_released),
        tagged_queueing: false,
    })
}

/// The bus of a drive whose files say nothing of it: they are beside the file of the whole system.
pub(super) fn unknown_bus(drive: &mut Drive, notes: &mut Vec<String>) {
    if drive.bus.read_sector > Nanos::ZERO {
        notes.push(
            "The bus is as fast as the drive's electronics; a slower one of the test bed would be in the .parv."
                .to_owned(),
        );
        return;
    }
    let is_same = |other: &&Drive| (other.heads, other.rpm, &other.zones) == (drive.heads, drive.rpm, &drive.zones);
    let unknown = "The time that a sector takes on the bus is not in these files";
    match Drive::all().find(is_same) {
        Some(known) => {
            (drive.bus.read_sector, drive.bus.write_sector) = (known.bus.read_sector, known.bus.write_sector);
            notes.push(format!("{unknown}: it is that of `{}` of the catalogue, which is the same drive.", known.name));
        }
        None => notes.push(format!(
            "{unknown}: it is 0. Import the .parv, which has the bus, or set read_sector_ms and write_sector_ms of [bus]."
        )),
    }
}

/// The blocks of the components from the top of the topology to the disk, or to the instance of it that is `wanted`; none if it is not
/// there.
pub(super) fn way<'a>(disk: &Block, wanted: Option<&str>, spec: &'a Spec) -> Vec<&'a Block> {
    fn search<'a>(part: &'a Part, is_disk: &dyn Fn(&str) -> bool, way: &mut Vec<&'a str>) -> bool {
        way.push(&part.name);
        if is_disk(&part.name) || part.parts.iter().any(|part| search(part, is_disk, way)) {
            return true;
        }
        way.pop();
        false
    }
    let block_of = |name: &'a str| {
        let instance = spec.instances.iter().find(|(names, _)| names.iter().any(|other| other == name));
        let name = instance.map_or(name, |(_, block)| block);
        spec.blocks.iter().map(|block| &**block).find(|block| block.name == name)
    };
    let instances: Vec<&str> = match wanted.filter(|name| *name != disk.name) {
        Some(name) => vec![name],
        None => {
            let of = spec.instances.iter().filter(|(_, block)| *block == disk.name);
            of.flat_map(|(names, _)| names).map(String::as_str).chain([&*disk.name]).collect()
        }
    };
    let is_disk = |name: &str| instances.contains(&name);
    let mut way = Vec::new();
    spec.topology.iter().any(|part| search(part, &is_disk, &mut way));
    way.into_iter().filter_map(block_of).collect()
}
