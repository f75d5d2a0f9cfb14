//! What four figures of a data sheet are worth: the habits beside the catalogue, and each measured drive beside the
//! drive that its own four figures make with the habits of the others.

use super::validation::{data, trace as read_trace};
use super::*;
use crate::disk::validation::{Answer, DISKSIM, Measured, replay};
use crate::disk::{Habits, WriteBehind};
use crate::rng::Rng;
use crate::units::SECTOR_BYTES;

/// Whole drives whose parameters were measured.
fn measured_drives() -> Vec<&'static Drive> {
    let is_measured = |drive: &&Drive| matches!(drive.evidence, Evidence::Validated | Evidence::Extracted);
    Drive::all().filter(is_measured).filter(|drive| !drive.name.contains("-wa99")).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// The medians over these drives.
fn habits_of(drives: &[&Drive], rate_below: u64) -> Habits {
    let over = |figure: &dyn Fn(&Drive) -> f64| median(drives.iter().map(|drive| figure(drive)).collect());
    let seeks = |drive: &Drive| drive.seek_figures().unwrap();
    let share = |time: Nanos, drive: &Drive| time.0 as f64 / seeks(drive).average.0 as f64;
    let overhead = |figure: fn(&Overhead) -> AfterPair| {
        let mean = |drive: &Drive| {
            let pair = figure(&drive.overhead);
            (pair.after_read.0 + pair.after_write.0) as f64 / 2.0
        };
        Nanos(over(&mean) as u64)
    };
    let density =
        |drive: &Drive, zone: &Zone| f64::from(zone.sectors_per_track) / f64::from(drive.zones[0].sectors_per_track);
    // A drive with a slow bus has quick electronics, and the other way round: a read of 8 KiB from the buffer takes what is usual.
    let after_read = |drive: &Drive| (drive.overhead.read_hit.after_read + drive.overhead.read_completion).0 as f64;
    let whole = over(&|drive| after_read(drive) + 16.0 * drive.bus.read_sector.0 as f64);
    let after_read = (whole - 16.0 * over(&|drive| drive.bus.read_sector.0 as f64)).max(0.0);
    let more =
        over(&|drive| drive.overhead.read_hit.after_write.0 as f64 - drive.overhead.read_hit.after_read.0 as f64);
    let read_hit =
        AfterPair { after_read: Nanos(after_read as u64), after_write: Nanos((after_read + more).max(0.0) as u64) };
    let outer = |drive: &Drive| f64::from(drive.zones[0].sectors_per_track);
    let stops = drives.iter().filter(|drive| drive.cache.stop_in_sector).count();
    let bus = over(&|drive| drive.bus.write_sector.0 as f64);
    let stores = drives.iter().filter(|drive| drive.cache.write_behind != WriteBehind::None).count();
    Habits {
        rate_below,
        inner_share: over(&|drive| drive.zones.iter().map(|zone| density(drive, zone)).fold(1.0, f64::min)),
        seek_one: over(&|drive| share(seeks(drive).one, drive)),
        seek_full: over(&|drive| share(seeks(drive).full, drive)),
        head_switch: over(&|drive| share(drive.head_switch, drive)),
        read_hit,
        read_miss: overhead(|overhead| overhead.read_miss),
        write_hit: overhead(|overhead| overhead.write_hit),
        write_miss: overhead(|overhead| overhead.write_miss),
        bus_rate: (bus >= 2_000.0).then(|| (SECTOR_BYTES as f64 * 1e9 / bus) as u64),
        segments: over(&|drive| f64::from(drive.cache.segments)) as u32,
        segment_tracks: over(&|drive| f64::from(drive.cache.segment_sectors) / outer(drive)),
        stop_in_sector: 2 * stops > drives.len(),
        write_behind: match 2 * stores > drives.len() {
            true => {
                drives.iter().map(|drive| drive.cache.write_behind).find(|&kind| kind != WriteBehind::None).unwrap()
            }
            false => WriteBehind::None,
        },
    }
}

/// Those of the measured drives whose habits these are.
fn alike(habits: &Habits) -> Vec<&'static Drive> {
    let mut drives = measured_drives();
    drives.retain(|drive| Habits::of_rate(drive.media_rate()) == habits);
    drives
}

/// The drive that its four figures make.
fn sheet(drive: &Drive, habits: &Habits) -> Drive {
    let average = drive.seek_figures().unwrap().average;
    let bytes = drive.sectors * SECTOR_BYTES;
    DataSheet::with_habits(drive.rpm, average, bytes, drive.media_rate(), habits).drive().unwrap()
}

/// One kind of request on a drive: what share writes, and whether each follows the one before.
struct RequestKind {
    name: &'static str,
    writes: bool,
    in_order: bool,
}

const KINDS: [RequestKind; 4] = [
    RequestKind { name: "random reads", writes: false, in_order: false },
    RequestKind { name: "random writes", writes: true, in_order: false },
    RequestKind { name: "reads in order", writes: false, in_order: true },
    RequestKind { name: "writes in order", writes: true, in_order: true },
];

/// Mean service time in nanoseconds of 2,000 requests of 8 KiB, with pauses of 10 ms on average between random ones.
fn mean_service(drive: &Drive, kind: &RequestKind) -> f64 {
    let mut rng = Rng::new(7);
    let asked: Vec<Measured> = (0..2_000)
        .map(|index| {
            let at = if kind.in_order { 16 * index } else { rng.below(drive.sectors / 16) * 16 };
            let request = if kind.writes { write(at, 16) } else { read(at, 16) };
            let think = if kind.in_order { Nanos::ZERO } else { Nanos::from_micros(rng.below(20_000)) };
            Measured { request, service: Nanos(1), think }
        })
        .collect();
    mean(&replay(drive, &asked).unwrap(), |answer| answer.modelled)
}

fn mean(answers: &[Answer], time: fn(&Answer) -> Nanos) -> f64 {
    answers.iter().map(|answer| time(answer).0 as f64).sum::<f64>() / answers.len() as f64
}

/// The habits are medians of the catalogue, rounded.
#[test]
fn habits_are_medians() {
    for habits in &Habits::ALL {
        let found = habits_of(&alike(habits), habits.rate_below);
        let near = |stated: f64, found: f64, unit: f64| (stated - found).abs() <= unit.max(0.05 * found);
        let times = |habits: &Habits| {
            let AfterPair { after_read, after_write } = habits.read_hit;
            [after_read, after_write, habits.read_miss, habits.write_hit, habits.write_miss]
        };
        let shares = |habits: &Habits| [habits.inner_share, habits.seek_one, habits.seek_full, habits.head_switch];
        let is_near = times(habits).iter().zip(times(&found)).all(|(a, b)| near(a.0 as f64, b.0 as f64, 10_000.0))
            && shares(habits).iter().zip(shares(&found)).all(|(&a, b)| near(a, b, 0.01))
            && near(habits.segment_tracks, found.segment_tracks, 0.05)
            && near(habits.bus_rate.unwrap_or(0) as f64, found.bus_rate.unwrap_or(0) as f64, 1.0);
        let same = habits.segments == found.segments
            && habits.write_behind == found.write_behind
            && habits.stop_in_sector == found.stop_in_sector;
        assert!(is_near && same, "stated {habits:#?}\nfound {found:#?}");
    }
}

/// Leaving out each measured drive in turn: how far its mean service times are from those of the sheet that the others'
/// habits and its own four figures make. The figures are in `docs/guide/disks.md`.
#[test]
fn four_figures_of_each_drive() {
    let mut errors: Vec<Vec<f64>> = vec![Vec::new(); KINDS.len()];
    for drive in measured_drives() {
        let habits = Habits::of_rate(drive.media_rate());
        let mut others = alike(habits);
        others.retain(|other| other.name != drive.name);
        // The only one with fast media: with the habits of the next slower ones, but for their bus.
        let alone = Habits { bus_rate: None, ..Habits::ALL[1] };
        let known = if others.is_empty() { alone } else { habits_of(&others, habits.rate_below) };
        let made = sheet(drive, &known);
        let mut line = format!("| {} |", drive.name);
        for (kind, errors) in KINDS.iter().zip(&mut errors) {
            let error = mean_service(&made, kind) / mean_service(drive, kind) - 1.0;
            line += &format!(" {:+.0} % |", 100.0 * error);
            // Only newer drives write on while the next request is on its way, and no other of those was measured.
            if !others.is_empty() || !kind.in_order {
                errors.push(error.abs());
            }
        }
        println!("{line}");
    }
    // Reads in order depend on how the buffer is refilled, which no data sheet says.
    let bounds = [(0.06, 0.18), (0.06, 0.15), (0.1, 0.5), (0.02, 0.05)];
    for ((kind, errors), (bound, most)) in KINDS.iter().zip(errors).zip(bounds) {
        let worst = errors.iter().copied().fold(0.0, f64::max);
        println!("{}: median {:.2}, worst {worst:.2}", kind.name, median(errors.clone()));
        assert!(median(errors.clone()) <= bound && worst <= most, "{}: {errors:.3?}", kind.name);
    }
}

/// The same, beside what was measured on the real drives, where the traces are at hand.
#[test]
fn four_figures_beside_measured_times() {
    let Some(data) = data() else {
        eprintln!("skipped: no validation traces; SEEKLESS_VALIDATION_DATA can point at them");
        return;
    };
    for known in &DISKSIM {
        let path = data.join(known.file);
        if !path.exists() {
            continue;
        }
        let drive = Drive::named(known.drive).unwrap();
        let mut others = alike(Habits::of_rate(drive.media_rate()));
        others.retain(|other| other.name != drive.name);
        let answers = replay(&sheet(drive, &habits_of(&others, u64::MAX)), &read_trace(&path)).unwrap();
        let error = mean(&answers, |answer| answer.modelled) / mean(&answers, |answer| answer.measured) - 1.0;
        println!("| {} | {:+.1} % |", drive.name, 100.0 * error);
        assert!(error.abs() < 0.12, "{}: {error}", drive.name);
    }
}

/// Aim: a buffer of less than two tracks is used as a whole. Method: the Wren IV, whose 32 KB are a track of 45 sectors and 19 of the
/// next; and one of 4 KiB.
#[test]
fn a_small_buffer_is_one_segment() {
    let cache = Drive::named("wren4").unwrap().cache;
    assert_eq!((cache.segments, cache.segment_sectors), (1, 64));
    let sheet =
        DataSheet { buffer_bytes: 4096, ..DataSheet::new(7200, Nanos::from_micros(8_500), 1 << 30, 10_000_000) };
    let drive = sheet.drive().unwrap();
    assert_eq!((drive.cache.segments, drive.cache.segment_sectors), (1, 8));
}
