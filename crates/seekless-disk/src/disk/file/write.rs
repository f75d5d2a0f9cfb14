//! From a drive to the text of a drive file. What is as it is without the key is left out.

use std::fmt::{Display, Write as _};

use super::super::drive::{
    AfterPair, Bus, Cache, Drive, Evidence, Overhead, ReadAhead, Seek, Sparing, SurfaceOrder, TwoPiece, WriteStart,
    Zone,
};
use super::super::scheduler::Scheduler;
use super::read::{EVIDENCE, SCHEDULERS, WRITE_BEHIND};
use crate::units::Nanos;

/// Width of a line that holds a list.
const COLUMNS: usize = 110;

pub(super) fn drive(drive: &Drive) -> String {
    let mut out = Out(String::new());
    out.text("name", &drive.name);
    out.text("product", &drive.product);
    out.text("source", &drive.source);
    let evidence = match drive.evidence {
        // As the file said, from which the same follows once more.
        Evidence::SaidToBeValidated => Evidence::Validated,
        evidence => evidence,
    };
    out.text("known_from", word(&EVIDENCE, evidence));
    out.blank();
    out.line("heads", drive.heads);
    out.line("cylinders", drive.cylinders);
    out.line("sectors", drive.sectors);
    out.line("rpm", drive.rpm);
    match drive.surfaces {
        SurfaceOrder::Forward => out.text("surfaces", "forward"),
        SurfaceOrder::Serpentine => out.text("surfaces", "serpentine"),
        SurfaceOrder::Bands { cylinders } => {
            out.text("surfaces", "bands");
            out.line("band_cylinders", cylinders);
        }
        SurfaceOrder::ForwardBands { cylinders } => {
            out.text("surfaces", "forward-bands");
            out.line("band_cylinders", cylinders);
        }
    }
    match drive.sparing {
        Sparing::None => out.text("sparing", "none"),
        Sparing::Tracks => out.text("sparing", "tracks"),
        Sparing::SectorsPerTrack => out.text("sparing", "sectors-per-track"),
        Sparing::SectorsPerCylinder => out.text("sparing", "sectors-per-cylinder"),
        Sparing::SectorsPerRange { cylinders } => {
            out.text("sparing", "sectors-per-range");
            out.line("range_cylinders", cylinders);
        }
        Sparing::SectorsPerZone => out.text("sparing", "sectors-per-zone"),
        Sparing::SectorsPerZoneBeyondSlips => out.text("sparing", "sectors-per-zone-beyond-slips"),
    }
    out.line("head_switch_ms", ms(drive.head_switch));
    if drive.write_settle_ns != 0 {
        let sign = if drive.write_settle_ns < 0 { "-" } else { "" };
        out.line("write_settle_ms", format!("{sign}{}", ms(Nanos(drive.write_settle_ns.unsigned_abs()))));
    }
    if let Some(scheduler) = drive.scheduler {
        let kind = match scheduler {
            Scheduler::Sptf { .. } => Scheduler::Sptf { age_micros: 0 },
            other => other,
        };
        out.text("scheduler", word(&SCHEDULERS, kind));
        if let Scheduler::Sptf { age_micros: age @ 1.. } = scheduler {
            out.line("scheduler_age", age);
        }
    }
    seek(&mut out, "[seek]", &drive.seek);
    if let Some(curve) = &drive.write_seek {
        seek(&mut out, "[write_seek]", curve);
    }
    overhead(&mut out, &drive.overhead);
    bus(&mut out, &drive.bus);
    cache(&mut out, &drive.cache);
    drive.zones.iter().for_each(|it| zone(&mut out, it));
    out.0
}

fn seek(out: &mut Out, title: &str, seek: &Seek) {
    out.section(title);
    match seek {
        Seek::Constant(time) => {
            out.text("curve", "constant");
            out.line("time_ms", ms(*time));
        }
        Seek::Table(table) => {
            out.text("curve", "table");
            let points = table.iter().map(|(cylinders, time)| format!("[{cylinders}, {}]", ms(*time)));
            out.list("table", points, " # [cylinders, milliseconds]");
        }
        Seek::ThreePoint { one, average, full } => {
            out.text("curve", "three-point");
            out.line("one_ms", ms(*one));
            out.line("average_ms", ms(*average));
            out.line("full_ms", ms(*full));
        }
        Seek::TwoPiece(TwoPiece { root_base_ms, root_ms, line_from, line_base_ms, line_ms, short }) => {
            out.text("curve", "two-piece");
            out.line("root_base_ms", format!("{root_base_ms:?}"));
            out.line("root_ms", format!("{root_ms:?}"));
            out.line("line_from", line_from);
            out.line("line_base_ms", format!("{line_base_ms:?}"));
            out.line("line_ms", format!("{line_ms:?}"));
            if !short.is_empty() {
                out.list("short_ms", short.iter().map(|time| ms(*time)), " # over 1, 2, 3 ... cylinders");
            }
        }
        Seek::SquareRoot { base_ms, root_ms } => {
            out.text("curve", "square-root");
            out.line("base_ms", format!("{base_ms:?}"));
            out.line("root_ms", format!("{root_ms:?}"));
        }
    }
}

fn overhead(out: &mut Out, overhead: &Overhead) {
    if *overhead == Overhead::NONE {
        return;
    }
    out.section("[overhead] # one time, or [after a read, after a write]");
    let pairs = [
        ("read_hit_ms", overhead.read_hit),
        ("read_miss_ms", overhead.read_miss),
        ("write_hit_ms", overhead.write_hit),
        ("write_miss_ms", overhead.write_miss),
    ];
    for (key, AfterPair { after_read, after_write }) in pairs {
        match after_read == after_write {
            true => out.line(key, ms(after_read)),
            false => out.line(key, format!("[{}, {}]", ms(after_read), ms(after_write))),
        }
    }
    let times = [
        ("read_completion_ms", overhead.read_completion),
        ("write_completion_ms", overhead.write_completion),
        ("data_preparation_ms", overhead.data_preparation),
        ("reselect_ms", overhead.reselect),
        ("write_disconnect_ms", overhead.write_disconnect),
        ("write_seek_min_ms", overhead.write_seek_min),
    ];
    for (key, time) in times.into_iter().filter(|(_, time)| *time > Nanos::ZERO) {
        out.line(key, ms(time));
    }
}

fn bus(out: &mut Out, bus: &Bus) {
    out.section("[bus]");
    out.line("read_sector_ms", ms(bus.read_sector));
    out.line("write_sector_ms", ms(bus.write_sector));
    if let Some(percent) = bus.disconnect_until_percent {
        out.line("disconnect_until_percent", percent);
    }
    if let Some(sectors) = bus.disconnect_until_sectors {
        out.line("disconnect_until_sectors", sectors);
    }
    out.line("tagged_queueing", bus.tagged_queueing);
}

fn cache(out: &mut Out, cache: &Cache) {
    out.section("[cache]");
    out.line("segments", cache.segments);
    out.line("segment_sectors", cache.segment_sectors);
    let mut ahead = |word: &str, sectors: u32| {
        out.text("read_ahead", word);
        out.line("read_ahead_sectors", sectors);
    };
    match cache.read_ahead {
        ReadAhead::None => out.text("read_ahead", "none"),
        ReadAhead::TrackEnd { sectors } => ahead("track-end", sectors),
        ReadAhead::CylinderEnd { sectors } => ahead("cylinder-end", sectors),
        ReadAhead::Sectors { sectors } => ahead("sectors", sectors),
        ReadAhead::NextTrack => out.text("read_ahead", "next-track"),
    }
    if let Some(WriteStart { sectors, long_sectors, long_from }) = cache.write_start {
        out.line("write_start_sectors", sectors);
        out.line("write_start_long_sectors", long_sectors);
        out.line("write_start_long_from", long_from);
    }
    out.text("write_behind", word(&WRITE_BEHIND, cache.write_behind));
    let plain = Cache::PLAIN;
    let switches = [
        ("read_ahead_after_hit", cache.read_ahead_after_hit, plain.read_ahead_after_hit),
        ("stop_in_sector", cache.stop_in_sector, plain.stop_in_sector),
        ("read_on_arrival", cache.read_on_arrival, plain.read_on_arrival),
        ("keep_passing_sectors", cache.keep_passing_sectors, plain.keep_passing_sectors),
        ("write_on_arrival", cache.write_on_arrival, plain.write_on_arrival),
        ("forget_sent", cache.forget_sent, plain.forget_sent),
        ("read_written", cache.read_written, plain.read_written),
        ("write_segment_apart", cache.write_segment_apart, plain.write_segment_apart),
    ];
    for (key, value, _) in switches.into_iter().filter(|(_, value, default)| value != default) {
        out.line(key, value);
    }
}

fn zone(out: &mut Out, zone: &Zone) {
    out.section("[[zone]]");
    out.line("cylinders", format!("[{}, {}]", zone.first_cylinder, zone.last_cylinder));
    out.line("sectors_per_track", zone.sectors_per_track);
    out.line("track_skew", zone.track_skew);
    out.line("cylinder_skew", zone.cylinder_skew);
    let counts =
        [("first_sector_angle", zone.first_sector_angle), ("reserved", zone.reserved), ("spares", zone.spares)];
    for (key, count) in counts.into_iter().filter(|&(_, count)| count > 0) {
        out.line(key, count);
    }
    if !zone.slips.is_empty() {
        out.list("slips", zone.slips.iter().map(u32::to_string), "");
    }
}

/// Milliseconds, exactly.
fn ms(time: Nanos) -> String {
    let text = format!("{}.{:06}", time.0 / 1_000_000, time.0 % 1_000_000);
    let short = text.trim_end_matches('0');
    if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
}

fn word<T: Copy + PartialEq>(words: &[(&'static str, T)], meaning: T) -> &'static str {
    words.iter().find(|word| word.1 == meaning).map_or("", |word| word.0)
}

struct Out(String);

impl Out {
    fn blank(&mut self) {
        self.0.push('\n');
    }

    fn section(&mut self, title: &str) {
        self.blank();
        self.0.push_str(title);
        self.blank();
    }

    fn line(&mut self, key: &str, value: impl Display) {
        let _ = writeln!(self.0, "{key} = {value}"); // A String takes everything.
    }

    fn text(&mut self, key: &str, text: &str) {
        let escaped: String = text
            .chars()
            .map(|c| match c {
                '"' | '\\' => format!("\\{c}"),
                c if c.is_control() => " ".to_owned(),
                c => c.to_string(),
            })
            .collect();
        self.line(key, format!("\"{escaped}\""));
    }

    /// An array, on as many lines as it takes.
    fn list(&mut self, key: &str, items: impl Iterator<Item = String>, about: &str) {
        let _ = writeln!(self.0, "{key} = [{about}");
        let mut line = String::new();
        for item in items {
            if line.len() + item.len() + 6 > COLUMNS {
                let _ = writeln!(self.0, "   {line}");
                line.clear();
            }
            let _ = write!(line, " {item},");
        }
        let _ = writeln!(self.0, "   {line}\n]");
    }
}
