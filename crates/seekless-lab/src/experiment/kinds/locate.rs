//! `locate`: how long eager writing waits for a free sector, by calculation, by random sampling, and on a modelled
//! drive [wa99 §2].

use std::cell::RefCell;

use seekless::device::{Geometry, HeadView, TrackPlace};
use seekless::disk::{Drive, Mechanism, Request};
use seekless::rng::Rng;
use seekless::units::{Nanos, Sector};
use seekless::vlog::eager::{AllocPurpose, EagerAllocator, Head};
use seekless::vlog::layout::Layout;
use seekless::vlog::space::Space;
use seekless::vlog::tracks::Tracks;
use seekless::vlog::{MapLog, Plan, model};
use serde::Deserialize;

use super::{Context, Measure, Read, RunTarget, Workload, WorkloadKind, parse};

pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "locate",
    help: "the wait for a free sector, calculated, drawn and on a modelled drive",
    dims: &[],
    metrics: &[
        ("locate_ms", "from the moment at which a sector is to be written until one is under the head"),
        ("skipped_sectors", "the same, in sectors that pass"),
    ],
    read: Read::Other(|table| parse::<Locate>(table).map(|locate| Box::new(locate) as Box<dyn Workload>)),
};

/// Its parameters in `[workload]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Locate {
    /// A drive of the catalogue.
    drive: String,
    method: Method,
    /// Free sectors in per cent, at random places.
    free_percent: Option<f64>,
    /// Empty tracks are filled until this percentage of their sectors is free.
    keep_percent: Option<f64>,
    #[serde(default = "draws")]
    draws: u64,
}

fn draws() -> u64 {
    2000
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Method {
    /// [wa99 eq. 1]; with tracks that are filled, eq. 13.
    Track,
    /// [wa99 eq. 2 to 4].
    Cylinder,
    /// [wa99 eq. 11]: as if the free sectors of a filled track were at random places.
    TrackAtRandom,
    /// Random sampling.
    Draw,
    /// The allocator of the virtual log disk, on the modelled drive.
    Disk,
}

/// Parameters of a drive for the models.
struct Figures {
    sectors: f64,
    tracks: f64,
    switch_ms: f64,
    turn_ms: f64,
}

impl Figures {
    fn of(drive: &Drive) -> Result<Figures, String> {
        let [zone] = &drive.zones[..] else {
            return Err(format!("{} has zones, and the models have none", drive.name));
        };
        Ok(Figures {
            sectors: f64::from(zone.sectors_per_track),
            tracks: f64::from(drive.heads),
            switch_ms: drive.head_switch.as_millis_f64(),
            turn_ms: 60_000.0 / f64::from(drive.rpm),
        })
    }

    fn sector_ms(&self) -> f64 {
        self.turn_ms / self.sectors
    }
}

impl Locate {
    fn drive(&self) -> Result<&'static Drive, String> {
        Drive::named(&self.drive).ok_or_else(|| format!("[workload]: no drive is called `{}`", self.drive))
    }
}

impl Workload for Locate {
    fn check(&self, on: &RunTarget) -> Result<(), String> {
        Figures::of(self.drive()?)?;
        let good = |percent: f64| (0.0..=99.0).contains(&percent);
        let (free, keep) = (self.free_percent, self.keep_percent);
        if !free.is_none_or(|free| good(free) && free > 0.0) || !keep.is_none_or(good) || self.draws == 0 {
            return Err("[workload]: percentages are above 0 and up to 99, and draws are at least one".into());
        }
        match (self.method, free, keep) {
            (_, Some(_), Some(_)) | (_, None, None) => {
                Err("[workload]: say either free_percent or keep_percent".into())
            }
            (Method::Cylinder, None, _) | (Method::TrackAtRandom, _, None) => {
                Err("[workload]: `cylinder` needs free_percent, `track-at-random` keep_percent".into())
            }
            _ => match on {
                RunTarget::Nothing => Ok(()),
                _ => Err("nothing runs here, so a contestant has no `on`".into()),
            },
        }
    }

    fn run(&self, _: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let figures = Figures::of(self.drive()?)?;
        let (n, sector) = (figures.sectors, figures.sector_ms());
        let mut rng = Rng::new(context.seed);
        let ms = match (self.free_percent.map(|free| free / 100.0), self.keep_percent.map(|keep| keep / 100.0)) {
            (Some(free), _) => match self.method {
                Method::Cylinder => model::cylinder(free, figures.tracks, figures.switch_ms / sector) * sector,
                Method::Draw => draw_cylinder(&mut rng, &figures, free, self.draws),
                Method::Disk => self.on_disk(&mut rng, &figures, free)?,
                Method::Track | Method::TrackAtRandom => model::single_track(n, free) * sector,
            },
            (None, keep) => {
                let kept = (n * keep.unwrap_or(0.0)).floor();
                match self.method {
                    Method::Draw => draw_filling(&mut rng, &figures, kept as usize, self.draws),
                    Method::Disk => self.filling_disk(&mut rng, &figures)?,
                    Method::TrackAtRandom => model::filling_at_random(n as u64, kept as u64, figures.switch_ms, sector),
                    Method::Track | Method::Cylinder => model::filling(n, kept, figures.switch_ms, sector),
                }
            }
        };
        Ok(vec![Measure::new([("locate_ms", Some(ms)), ("skipped_sectors", Some(ms / sector))])])
    }
}

/// Sectors until a free one passes.
fn skipped(free: &[bool], from: usize) -> f64 {
    let count = free.len();
    (0..count).find(|step| free[(from + step) % count]).map_or(f64::INFINITY, |step| step as f64)
}

/// Milliseconds until a free sector on any track of a cylinder passes, averaged over `draws`.
fn draw_cylinder(rng: &mut Rng, figures: &Figures, free: f64, draws: u64) -> f64 {
    let n = figures.sectors as usize;
    let count = ((n as f64 * free).round() as usize).max(1);
    let switch = figures.switch_ms / figures.sector_ms();
    let mut total = 0.0;
    for _ in 0..draws {
        let mut nearest = f64::INFINITY;
        for track in 0..figures.tracks as u64 {
            let mut places: Vec<bool> = (0..n).map(|place| place < count).collect();
            rng.shuffle(&mut places);
            let wait = match track {
                0 => skipped(&places, 0),
                // The arm arrives within a sector; the first whole sector comes after it.
                _ => switch.ceil() + skipped(&places, 0),
            };
            nearest = nearest.min(wait);
        }
        total += nearest;
    }
    total / draws as f64 * figures.sector_ms()
}

/// Milliseconds for each write while empty tracks are filled until `kept` sectors are free, with writes at random
/// moments.
fn draw_filling(rng: &mut Rng, figures: &Figures, kept: usize, draws: u64) -> f64 {
    let n = figures.sectors as usize;
    let tracks = draws.div_ceil((n - kept) as u64).max(50);
    let mut total = 0.0;
    for _ in 0..tracks {
        let mut free = vec![true; n];
        total += figures.switch_ms;
        for _ in kept..n {
            let from = rng.below(n as u64) as usize;
            let step = skipped(&free, from);
            free[(from + step as usize) % n] = false;
            total += figures.sector_ms() * step;
        }
    }
    total / (tracks * (n - kept) as u64) as f64
}

/// A mechanism without a queue and without bytes.
struct Bare(RefCell<Mechanism>);

impl HeadView for Bare {
    fn current_track(&self, _: u32) -> (Sector, u64) {
        self.0.borrow().current_track().unwrap_or((Sector::ZERO, 1))
    }

    fn write_access(&self, at: Nanos, sector: Sector, sectors: u32) -> Nanos {
        self.0.borrow().write_access(at, sector, sectors).unwrap_or(Nanos::ZERO)
    }

    fn track_of(&self, sector: Sector) -> Option<TrackPlace> {
        self.0.borrow().track_of(sector)
    }
}

/// A drive, and which of its sectors are free.
struct Bench {
    bare: Bare,
    layout: Layout,
    space: Space,
    allocator: EagerAllocator,
    now: Nanos,
}

impl Bench {
    fn new(drive: &Drive, keep_percent: f64) -> Result<Bench, String> {
        // The command overhead before the arm moves is not part of the wait.
        let drive = Drive { overhead: seekless::disk::Overhead::NONE, ..drive.clone() };
        let mechanism = Mechanism::new(&drive).map_err(|error| error.to_string())?;
        let bare = Bare(RefCell::new(mechanism));
        let geometry = Geometry { sectors: drive.sectors, block_bytes: 512, request_bytes_max: 1 << 20, zones: None };
        let plan =
            Plan { block_bytes: 512, reserve: 0, map_log: MapLog::Tree, snapshots: 0, uuid: [1; 16], key: [1; 16] };
        let layout = Layout::plan(geometry, &plan).map_err(|error| error.to_string())?;
        let layout = Layout::new(layout).ok_or("the layout that was planned is none")?;
        let space = Space::new(&layout, Tracks::new(&layout, Some(&bare)));
        let allocator = EagerAllocator::new((keep_percent * 100.0) as u32);
        Ok(Bench { bare, layout, space, allocator, now: Nanos::ZERO })
    }

    fn write(&mut self, block: u32) -> Result<(), String> {
        let request = Request { fua: true, ..Request::write(self.layout.sector_of(block), 1) };
        let served = self.bare.0.borrow_mut().service(self.now, self.now, request);
        self.now = served.map_err(|error| error.to_string())?.done;
        Ok(())
    }

    /// The soonest block, and its wait, without the first sector's bus transfer.
    fn choose(&mut self) -> Option<(u32, f64)> {
        let head = Head { view: &self.bare, now: self.now, busy: &[] };
        let run = self.allocator.run(&self.space, &self.layout, Some(head), AllocPurpose::Data, 1)?;
        let wait = self.bare.write_access(self.now, self.layout.sector_of(run.first), 1);
        let bus = self.bare.0.borrow().drive().bus.write_sector;
        Some((run.first, wait.saturating_sub(bus).as_millis_f64()))
    }
}

impl Locate {
    fn on_disk(&self, rng: &mut Rng, figures: &Figures, free: f64) -> Result<f64, String> {
        let mut bench = Bench::new(self.drive()?, 0.0)?;
        let mut used = Vec::new();
        for block in 0..bench.layout.blocks {
            if !bench.layout.is_reserved(block) && rng.unit_f64() >= free {
                bench.space.take(block);
                used.push(block);
            }
        }
        let (mut total, mut counted) = (0.0, 0u64);
        for _ in 0..self.draws {
            bench.write(rng.below(u64::from(bench.layout.blocks)) as u32)?;
            bench.now += Nanos::from_millis_f64(rng.unit_f64() * 10.0 * figures.turn_ms);
            // An empty track would be filled, which is another model.
            if bench.space.empty_tracks() > 0 {
                return Err("a track is empty; the models of a cylinder are for disks that are in use".into());
            }
            let Some((_, wait)) = bench.choose() else { return Err("nothing is free".into()) };
            // The model counts whole sectors; the next sector edge is half a sector away.
            total += wait - figures.sector_ms() / 2.0;
            counted += 1;
        }
        Ok(total / counted as f64)
    }

    /// Fills an empty disk to the threshold, with writes at random moments.
    fn filling_disk(&self, rng: &mut Rng, figures: &Figures) -> Result<f64, String> {
        let mut bench = Bench::new(self.drive()?, self.keep_percent.unwrap_or(0.0))?;
        let (mut total, mut counted) = (0.0, 0u64);
        while bench.space.empty_tracks() > 1 && counted < self.draws.max(20 * figures.sectors as u64) {
            bench.now += Nanos::from_millis_f64(rng.unit_f64() * figures.turn_ms);
            let Some((block, wait)) = bench.choose() else { break };
            bench.write(block)?;
            bench.space.take(block);
            total += wait - figures.sector_ms() / 2.0;
            counted += 1;
        }
        Ok(total / counted.max(1) as f64)
    }
}
