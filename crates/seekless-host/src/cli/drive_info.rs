//! `seekless disk info`

use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless::disk::validation::{DISKSIM, Published};
use seekless::disk::{
    AfterPair, Drive, ReadAhead, Seek, SeekFigures, Sparing, SurfaceOrder, TwoPiece, WriteBehind, Zone,
};
use seekless::units::{Nanos, SECTOR_BYTES, counted, human_bytes};
use serde_json::{Value, json};

use super::{Done, Failure, drives, list, output};

/// Show the parameters of a drive and where they come from
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless disk info cheetah9lp
  seekless disk info disk:size=4TB,rpm=7200,seek=8.5ms,rate=180MB
  seekless disk info dec-rz26 --json
  seekless disk info dec-rz26 --toml > my-drive.toml
  seekless disk info my-drive.toml

Exit codes: 0 shown, 1 failed, 2 wrong usage")]
pub(super) struct Args {
    /// A drive, by its name in the catalogue, as a drive file, or as disk:size=...,rpm=...,seek=...,rate=...
    #[arg(value_name = "DRIVE")]
    drive: String,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print a drive file, to be edited and used as disk:file=FILE
    #[arg(long, conflicts_with = "json")]
    toml: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let drive = drives::read_drive(&args.drive)?;
    if args.toml {
        // With its comments, where it has some.
        let text = Drive::file_text(&args.drive).map_or_else(|| drive.to_toml(), str::to_owned);
        output::print_raw(&text)?;
        return Ok(0);
    }
    let seeks = drive.seek_figures()?;
    match args.json {
        true => output::print_json(&to_json(&drive, &seeks))?,
        false => output::print(&to_text(&drive, &seeks))?,
    }
    Ok(0)
}

/// What `--json` prints of a drive.
pub(super) fn value_of(drive: &str) -> Result<Value, Failure> {
    let drive = drives::read_drive(drive)?;
    let seeks = drive.seek_figures()?;
    Ok(to_json(&drive, &seeks))
}

fn to_text(drive: &Drive, seeks: &SeekFigures) -> String {
    let Drive { heads, cylinders, rpm, bus, cache, .. } = drive;
    let turn = turn_ns(drive) / 1e6;
    let bus_rate = |sector: Nanos| match sector {
        Nanos::ZERO => "any rate".to_owned(),
        Nanos(nanos) => format!("{:.1} MB/s", SECTOR_BYTES as f64 * 1e3 / nanos as f64),
    };
    let overhead = &drive.overhead;
    let mut rows = vec![
        ("product", drive.product.to_string()),
        ("known from", list::evidence(drive).to_owned()),
        ("source", drive.source.to_string()),
        ("capacity", format!("{} ({} sectors)", human_bytes(drive.sectors * SECTOR_BYTES), drive.sectors)),
        (
            "geometry",
            format!(
                "{}, {}, {}",
                counted((*cylinders).into(), "cylinder"),
                counted((*heads).into(), "head"),
                surfaces(drive.surfaces)
            ),
        ),
        ("rotation", format!("{rpm} rpm, {turn:.2} ms a revolution")),
        ("seek", format!("one cylinder {}, average {}, full {}", ms(seeks.one), ms(seeks.average), ms(seeks.full))),
        ("seek curve", seek_text(&drive.seek) + &write_seek_text(drive)),
        ("head switch", ms(drive.head_switch)),
        ("write settle", format!("{:.3} ms", drive.write_settle_ns as f64 / 1e6)),
        (
            "overhead",
            format!(
                "read {} from the cache, {} from the medium; write {} to the cache, {} to the medium",
                pair_text(overhead.read_hit),
                pair_text(overhead.read_miss),
                pair_text(overhead.write_hit),
                pair_text(overhead.write_miss)
            ),
        ),
        ("bus", format!("{} to the host, {} from it", bus_rate(bus.read_sector), bus_rate(bus.write_sector))),
        (
            "cache",
            format!(
                "{} of {}, {}, {}",
                counted(u64::from(cache.segments), "segment"),
                human_bytes(u64::from(cache.segment_sectors) * SECTOR_BYTES),
                read_ahead(cache.read_ahead).1,
                write_behind(cache.write_behind).1
            ),
        ),
        ("spares", sparing(drive.sparing).1),
    ];
    if let Some(known) = disksim(drive) {
        let figure = format!("demerit figure {:.3} ms on its trace {}", known.demerit_ms, known.file);
        rows.push(("DiskSim 4.0", figure));
    }
    let mut text = format!("{}\n", drive.name);
    for (name, value) in rows {
        text += &format!("  {name:<12}  {value}\n");
    }
    format!("{text}\n{}\n", zone_table(drive))
}

/// What DiskSim found of the drive: of one that was edited, it found nothing.
fn disksim(drive: &Drive) -> Option<&'static Published> {
    let is_it = |known: &&Published| Drive::named(known.drive).is_some_and(|known| drive.has_parameters_of(known));
    DISKSIM.iter().find(is_it)
}

/// The rate is that of a track, without the switch to the next.
const ZONE_COLUMNS: [&str; 7] =
    ["zone", "first cylinder", "last", "sectors a track", "MB/s", "track skew", "cylinder skew"];

fn zone_table(drive: &Drive) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(ZONE_COLUMNS);
    for (number, zone) in drive.zones.iter().enumerate() {
        let cells = [
            (number + 1).to_string(),
            zone.first_cylinder.to_string(),
            zone.last_cylinder.to_string(),
            zone.sectors_per_track.to_string(),
            format!("{:.1}", media_rate(drive, zone) / 1e6),
            zone.track_skew.to_string(),
            zone.cylinder_skew.to_string(),
        ];
        table.add_row(cells.map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
    }
    table
}

fn turn_ns(drive: &Drive) -> f64 {
    60e9 / f64::from(drive.rpm)
}

/// Bytes a second that pass under a head.
fn media_rate(drive: &Drive, zone: &Zone) -> f64 {
    f64::from(zone.sectors_per_track) * SECTOR_BYTES as f64 * 1e9 / turn_ns(drive)
}

fn ms(time: Nanos) -> String {
    format!("{:.2} ms", time.as_millis_f64())
}

fn pair_text(pair: AfterPair) -> String {
    match pair.after_read == pair.after_write {
        true => ms(pair.after_read),
        false => format!("{:.2}/{} after a read/write", pair.after_read.as_millis_f64(), ms(pair.after_write)),
    }
}

fn write_seek_text(drive: &Drive) -> String {
    drive.write_seek.as_ref().map_or_else(String::new, |seek| format!("; of writes, {}", seek_text(seek)))
}

fn seek_text(seek: &Seek) -> String {
    match seek {
        Seek::Constant(time) => format!("always {}", ms(*time)),
        Seek::Table(table) => format!("a table of {}", counted(table.len() as u64, "distance")),
        Seek::ThreePoint { .. } => "through these three figures".to_owned(),
        Seek::TwoPiece(TwoPiece { root_base_ms, root_ms, line_from, line_base_ms, line_ms, short }) => {
            let short = match short.len() {
                0 => String::new(),
                count => format!("; the first {count} from a table"),
            };
            format!(
                "{root_base_ms} + {root_ms} sqrt(d) ms, from {line_from} cylinders on {line_base_ms} + {line_ms} d \
                 ms{short}"
            )
        }
        Seek::SquareRoot { base_ms, root_ms } => format!("{base_ms} + {root_ms} sqrt(d) ms"),
    }
}

fn surfaces(order: SurfaceOrder) -> String {
    match order {
        SurfaceOrder::Forward => "surfaces in the same order in every cylinder".to_owned(),
        SurfaceOrder::Serpentine => "surfaces alternately forwards and backwards".to_owned(),
        SurfaceOrder::Bands { cylinders } => format!("each surface for {cylinders} cylinders"),
        SurfaceOrder::ForwardBands { cylinders } => {
            format!("each surface for {cylinders} cylinders, from the first on")
        }
    }
}

/// A name for programs and words for people; likewise below.
fn sparing(sparing: Sparing) -> (&'static str, String) {
    let (name, text) = match sparing {
        Sparing::None => ("none", "none"),
        Sparing::Tracks => ("tracks", "tracks at the end of each zone"),
        Sparing::SectorsPerTrack => ("sectors-per-track", "sectors on each track"),
        Sparing::SectorsPerCylinder => ("sectors-per-cylinder", "sectors in each cylinder"),
        Sparing::SectorsPerRange { cylinders } => {
            return ("sectors-per-range", format!("sectors in every {cylinders} cylinders"));
        }
        Sparing::SectorsPerZone => ("sectors-per-zone", "sectors at the end of each zone, which slips use up"),
        Sparing::SectorsPerZoneBeyondSlips => {
            ("sectors-per-zone-beyond-slips", "sectors at the end of each zone, besides those that slips use up")
        }
    };
    (name, text.to_owned())
}

fn seek_json(seek: &Seek) -> Value {
    match seek {
        Seek::Constant(time) => json!({ "constant_ns": time.0 }),
        Seek::Table(table) => {
            json!({ "table": table.iter().map(|(cylinders, time)| json!([cylinders, time.0])).collect::<Vec<_>>() })
        }
        Seek::ThreePoint { one, average, full } => {
            json!({ "three_point": { "one_ns": one.0, "average_ns": average.0, "full_ns": full.0 } })
        }
        Seek::TwoPiece(two) => json!({ "two_piece": {
            "root_base_ms": two.root_base_ms,
            "root_ms": two.root_ms,
            "line_from_cylinders": two.line_from,
            "line_base_ms": two.line_base_ms,
            "line_ms": two.line_ms,
            "short_ns": two.short.iter().map(|time| time.0).collect::<Vec<_>>(),
        } }),
        Seek::SquareRoot { base_ms, root_ms } => {
            json!({ "square_root": { "base_ms": base_ms, "root_ms": root_ms } })
        }
    }
}

fn to_json(drive: &Drive, seeks: &SeekFigures) -> Value {
    let pair = |pair: AfterPair| json!({ "after_read": pair.after_read.0, "after_write": pair.after_write.0 });
    let overhead = &drive.overhead;
    let bus = &drive.bus;
    let cache = &drive.cache;
    let zone = |zone: &Zone| {
        json!({
            "first_cylinder": zone.first_cylinder,
            "last_cylinder": zone.last_cylinder,
            "sectors_per_track": zone.sectors_per_track,
            "media_bytes_per_second": media_rate(drive, zone).round() as u64,
            "track_skew_sectors": zone.track_skew,
            "cylinder_skew_sectors": zone.cylinder_skew,
            "first_sector_angle_sectors": zone.first_sector_angle,
            "reserved_sectors": zone.reserved,
            "spares": zone.spares,
            "slips": zone.slips,
        })
    };
    let published = disksim(drive).map(|known| {
        json!({
            "trace": known.file,
            "requests": known.requests,
            "measured_mean_ms": known.measured_mean_ms,
            "disksim_demerit_ms": known.demerit_ms,
        })
    });
    json!({
        "name": drive.name,
        "product": drive.product,
        "known_from": list::evidence(drive),
        "source": drive.source,
        "bytes": drive.sectors * SECTOR_BYTES,
        "sectors": drive.sectors,
        "heads": drive.heads,
        "cylinders": drive.cylinders,
        "rpm": drive.rpm,
        "surfaces": surfaces(drive.surfaces),
        "sparing": sparing(drive.sparing).0,
        "seek_one_ns": seeks.one.0,
        "seek_average_ns": seeks.average.0,
        "seek_full_ns": seeks.full.0,
        "seek": seek_json(&drive.seek),
        "write_seek": drive.write_seek.as_ref().map(seek_json),
        "write_settle_ns": drive.write_settle_ns,
        "head_switch_ns": drive.head_switch.0,
        "overhead_ns": {
            "read_hit": pair(overhead.read_hit),
            "read_miss": pair(overhead.read_miss),
            "write_hit": pair(overhead.write_hit),
            "write_miss": pair(overhead.write_miss),
            "read_completion": overhead.read_completion.0,
            "write_completion": overhead.write_completion.0,
            "data_preparation": overhead.data_preparation.0,
            "reselect": overhead.reselect.0,
            "write_disconnect": overhead.write_disconnect.0,
            "write_seek_min": overhead.write_seek_min.0,
        },
        "bus": {
            "read_sector_ns": bus.read_sector.0,
            "write_sector_ns": bus.write_sector.0,
            "disconnect_until_percent": bus.disconnect_until_percent,
            "disconnect_until_sectors": bus.disconnect_until_sectors,
            "tagged_queueing": bus.tagged_queueing,
        },
        "cache": {
            "segments": cache.segments,
            "segment_sectors": cache.segment_sectors,
            "read_ahead": read_ahead(cache.read_ahead).0,
            "read_ahead_after_hit": cache.read_ahead_after_hit,
            "stop_in_sector": cache.stop_in_sector,
            "read_on_arrival": cache.read_on_arrival,
            "keep_passing_sectors": cache.keep_passing_sectors,
            "write_on_arrival": cache.write_on_arrival,
            "write_start": cache.write_start.map(|start| json!({
                "sectors": start.sectors, "long_from": start.long_from, "long_sectors": start.long_sectors,
            })),
            "write_behind": write_behind(cache.write_behind).0,
            "forget_sent": cache.forget_sent,
            "read_written": cache.read_written,
            "write_segment_apart": cache.write_segment_apart,
        },
        "zones": drive.zones.iter().map(zone).collect::<Vec<_>>(),
        "validation": published,
    })
}

fn read_ahead(how: ReadAhead) -> (Value, String) {
    let up_to = |name: &str, sectors: u32, where_to: &str| {
        (
            json!({ name: { "sectors": sectors } }),
            format!("reads ahead {}{where_to}", counted(sectors.into(), "sector")),
        )
    };
    match how {
        ReadAhead::None => (json!("none"), "does not read ahead".to_owned()),
        ReadAhead::TrackEnd { sectors } => up_to("track_end", sectors, " at most, to the end of the track"),
        ReadAhead::CylinderEnd { sectors } => up_to("cylinder_end", sectors, " at most, to the end of the cylinder"),
        ReadAhead::Sectors { sectors } => up_to("sectors", sectors, ""),
        ReadAhead::NextTrack => (json!("next_track"), "reads ahead to the end of the track or of the next".to_owned()),
    }
}

fn write_behind(how: WriteBehind) -> (&'static str, &'static str) {
    match how {
        WriteBehind::None => ("none", "writes complete on the medium"),
        WriteBehind::One => ("one", "writes complete in the cache, one at a time"),
        WriteBehind::Stream => ("stream", "writes complete in the cache, sequential ones in a stream"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every drive of the catalogue can be shown, and every number fits into JSON.
    #[test]
    fn all_drives_are_shown() {
        for drive in Drive::all() {
            let seeks = drive.seek_figures().unwrap();
            let (text, value) = (to_text(drive, &seeks), to_json(drive, &seeks));
            assert!(text.contains(&*drive.product) && text.contains(&*drive.source), "{text}");
            assert_eq!(value["zones"].as_array().map(Vec::len), Some(drive.zones.len()));
            for zone in value["zones"].as_array().unwrap() {
                assert!(zone["media_bytes_per_second"].as_u64() > Some(500_000), "{}: {zone}", drive.name);
            }
        }
    }
}
