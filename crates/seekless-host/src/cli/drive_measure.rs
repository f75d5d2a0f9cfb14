//! `seekless disk measure`

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use seekless::device::Device;
use seekless::disk::measure::{MeasureError, Measurement, PLACES_MIN, Plan, measure};
use seekless::units::{Nanos, human_bytes};
use seekless_lab::output::{self as files, Replace, Sources, Wish};
use serde_json::json;

use super::capture::{device_number, file_behind};
use super::drive_fit::read_ahead;
use super::sweep::INTERRUPTED;
use super::world::World;
use super::{Done, Failure, WRONG_USAGE, drives, output};
use crate::leaves::{DirectIo, FileDevice, FileOptions};
use crate::nbd::{Address, Client};
use crate::reactor::Signals;
use crate::thread_turns::ThreadTurns;

/// Measure a disk: rotation, zones, skews, heads, seeks, overheads and cache, by reading it
///
/// Nothing is written to the device. Some ten thousand single blocks are read, past the page cache of this machine. Requests of
/// other programs in the same time disturb, and are disturbed: measure an idle disk. Drives without a rotation, such as flash,
/// are refused, and so are those whose cache answers all reads.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless disk measure /dev/sdb -o sdb.toml
  seekless disk measure nbd://host/export -o theirs.toml --heads 8
  seekless export disk:cheetah9lp --socket s && seekless disk measure 'nbd+unix:///?socket=s' -o again.toml

Exit codes: 0 measured, 1 failed, 2 wrong usage, 130 interrupted: nothing is written")]
pub(super) struct Args {
    /// A block device, or nbd://HOST[:PORT][/EXPORT], or nbd+unix:///[EXPORT]?socket=PATH
    #[arg(value_name = "DEVICE")]
    device: String,

    /// Write the drive file here instead of to standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// Replace the file if there is one
    #[arg(long, requires = "output")]
    force: bool,

    /// The drive's name in the drive file
    #[arg(long, value_name = "NAME", default_value = "measured", value_parser = drives::valid_name)]
    name: String,

    /// The number of heads, if known: it does not show on drives whose skews are all alike
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=255))]
    heads: Option<u32>,

    /// Places that are read in turn: more than the segments of the drive's cache
    #[arg(long, value_name = "COUNT", default_value_t = Plan::default().places)]
    places: usize,

    /// Seconds after which zones are not located any more exactly
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    time: u64,

    /// Print what was found as JSON
    #[arg(long, requires = "output")]
    json: bool,
}

pub(super) fn run(args: &Args) -> Done {
    if args.places < PLACES_MIN {
        let problem = format!("--places {}: at least {PLACES_MIN} are needed", args.places);
        return Err(Failure::new(problem).code(WRONG_USAGE));
    }
    let device = Path::new(&args.device);
    let behind = device_number(device).ok().and_then(file_behind);
    let wish = Wish::new(Replace::forced(args.force))
        .sources(Sources::of(&[Some(device), behind.as_deref()].into_iter().flatten().collect::<Vec<_>>()));
    if let Some(path) = &args.output {
        files::check(path, &wish)?;
    }
    // Before there are threads, so that none of them takes the signals.
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM])?;
    let world = World::new()?;
    let device = open(args, &world)?;
    let plan = Plan {
        places: args.places,
        time: Nanos::from_secs(args.time.min(1 << 30)),
        heads: args.heads,
        ..Plan::default()
    };
    let turns = ThreadTurns::of_this();
    let bar = output::counter("measuring");
    let mut interrupted = false;
    let outcome = world.run(async {
        let mut step = |at: seekless::disk::measure::Progress| {
            bar.set_message(at.step);
            bar.set_position(at.reads);
            interrupted = signals.pending().is_some();
            if interrupted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        Ok(measure(&world.rt, &*device, plan, &mut step, &|| turns.as_ref()?.read()).await)
    });
    bar.finish_and_clear();
    let mut found = match outcome? {
        Err(MeasureError::Stopped { .. }) if interrupted => return Ok(INTERRUPTED),
        Err(error) => return Err(failure(&args.device, error)),
        Ok(found) => found,
    };
    for note in &found.notes {
        output::note(&format!("note: {note}"));
    }
    found.drive.name = args.name.clone().into();
    found.drive.product = format!("{} ({})", args.device, human_bytes(found.drive.sectors * 512)).into();
    let notes: String = found.notes.iter().map(|note| format!("#  * {note}\n")).collect();
    let text = format!("# Measured by `seekless disk measure`.\n{notes}\n{}", found.drive.to_toml());
    match &args.output {
        Some(path) => {
            files::write(path, text.as_bytes(), &wish)?;
            match args.json {
                true => output::print_json(&to_json(args, &found))?,
                false => output::print(&to_text(&found)?)?,
            }
        }
        None => {
            output::note(&to_text(&found)?);
            output::print_raw(&text)?;
        }
    }
    Ok(0)
}

fn open(args: &Args, world: &World) -> Result<Device, Failure> {
    if let Some(address) = Address::parse(&args.device) {
        let address = address.map_err(|error| Failure::new(error).code(WRONG_USAGE))?;
        return Ok(Rc::new(Client::connect(&address).map_err(Failure::new)?));
    }
    let options = FileOptions { direct: DirectIo::On, read_only: true };
    let device = FileDevice::open(&world.rt, &world.reactor, Path::new(&args.device), options);
    let hint = "a device is a disk such as /dev/sdb, an image file, or a server by nbd://host/export";
    Ok(Rc::new(device.map_err(|error| Failure::new(error).hint(hint))?))
}

fn failure(device: &str, error: MeasureError) -> Failure {
    let hint = match &error {
        MeasureError::NoRotation { .. } => Some(
            "an image file or a loop device has no rotation of its own; for a disk with a large cache, try more --places, and \
             switch read-ahead of the drive off (hdparm -A0)",
        ),
        MeasureError::TooBusy { .. } => Some(
            "stop other programs, or let this one run before them: as root, chrt -f 30 seekless disk measure ...; so must a seekless \
             export on the same machine that serves the disk",
        ),
        MeasureError::TooSmall { .. } => Some("fewer --places need less room"),
        MeasureError::NoTracks { .. } => Some("measure again while nothing else uses the device"),
        _ => None,
    };
    let failure = Failure::new(format!("{device}: {error}"));
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn to_text(found: &Measurement) -> Result<String, Failure> {
    let drive = &found.drive;
    let seek = drive.seek_figures().map_err(Failure::new)?;
    let (outer, inner) = (&drive.zones[0], &drive.zones[drive.zones.len() - 1]);
    let ms = |time: Nanos| format!("{:.3} ms", time.as_millis_f64());
    Ok(format!(
        "rotation       {} rpm, {} a revolution, times jitter by {}\n\
         tracks         {} to {} sectors in {} zones, {} heads, {} cylinders\n\
         seeks          {} to the next cylinder, {} on average, {} over all\n\
         head switch    {}\n\
         overhead       {} for a read, {} from the cache, {} for each sector\n\
         cache          {} segments or more, read-ahead {}\n\
         reads          {}\n",
        drive.rpm,
        ms(found.revolution),
        ms(found.jitter),
        outer.sectors_per_track,
        inner.sectors_per_track,
        drive.zones.len(),
        drive.heads,
        drive.cylinders,
        ms(seek.one),
        ms(seek.average),
        ms(seek.full),
        ms(drive.head_switch),
        ms(drive.overhead.read_miss.after_read),
        ms(drive.overhead.read_hit.after_read),
        ms(drive.bus.read_sector),
        drive.cache.segments,
        read_ahead(drive.cache.read_ahead),
        found.reads,
    ))
}

fn to_json(args: &Args, found: &Measurement) -> serde_json::Value {
    let drive = &found.drive;
    json!({
        "seekless": env!("CARGO_PKG_VERSION"),
        "device": args.device,
        "output": args.output.as_ref().map(|path| path.display().to_string()),
        "revolution_ns": found.revolution.0,
        "jitter_ns": found.jitter.0,
        "rpm": drive.rpm,
        "heads": drive.heads,
        "cylinders": drive.cylinders,
        "zones": drive.zones.len(),
        "reads": found.reads,
        "notes": found.notes,
    })
}
