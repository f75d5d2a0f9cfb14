//! Seeks: the shortest time after which a sector can still be caught.
//!
//! From one place another is read whose angle is known. Its completion is a multiple of a revolution away, whenever the read
//! begins; so the read begins such that the sector comes by exactly when the seek would have to be done, were it as long as
//! assumed. If the sector is caught, the seek is shorter, otherwise longer. Each read halves what is unknown.

use super::MeasureError;
use super::probe::Probe;
use super::tracks::MeasuredTrack;
use super::zones::Shape;
use crate::units::Nanos;

/// What was measured of the arm.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Seeks {
    /// From the start of a read to its end, without seek and rotation: command, sector, bus.
    pub(super) shortest: f64,
    /// To the next track, beyond `shortest`; in seconds.
    pub(super) head_switch: f64,
    /// Cylinders and seconds beyond `shortest`.
    pub(super) curve: Vec<(u32, f64)>,
}

/// Distances for each factor of four.
const DISTANCES: f64 = 3.0;
/// A time is known well enough when it is known to this part of a revolution.
const PRECISION: f64 = 1.0 / 64.0;
const SAMPLES_MIN: usize = 7;
const SAMPLES_MAX: usize = 16;
/// Pairs that may be tried before a distance is given up: not every track has a partner so far away.
const PAIRS_MAX: usize = 64;

/// Which sector is read before the one that is to be caught.
#[derive(Clone, Copy, PartialEq, Debug)]
enum From {
    SameTrack,
    NextTrack,
    Cylinders(u32),
}

pub(super) async fn seeks(probe: &mut Probe<'_>, shape: &Shape) -> Result<Seeks, MeasureError> {
    probe.begin("seeks");
    let mut targets = Targets { tracks: shape.tracks.clone(), next: 0 };
    probe.rng.shuffle(&mut targets.tracks);
    let nothing = || MeasureError::NoTracks { problem: "no two sectors of a track could be read".into() };
    let shortest = shortest(probe, shape, &mut targets, From::SameTrack).await?.ok_or_else(nothing)?;
    let next = shortest_or(probe, shape, &mut targets, From::NextTrack, shortest).await?;
    let mut curve = Vec::new();
    for distance in distances(shape) {
        if let Some(time) = self::shortest(probe, shape, &mut targets, From::Cylinders(distance)).await? {
            curve.push((distance, (time - shortest).max(0.0)));
        }
    }
    if curve.is_empty() {
        return Err(MeasureError::NoTracks { problem: "no seek could be measured".into() });
    }
    Ok(Seeks { shortest, head_switch: (next - shortest).max(0.0), curve })
}

async fn shortest_or(
    probe: &mut Probe<'_>,
    shape: &Shape,
    targets: &mut Targets,
    from: From,
    otherwise: f64,
) -> Result<f64, MeasureError> {
    Ok(shortest(probe, shape, targets, from).await?.unwrap_or(otherwise))
}

/// Evenly spaced by their logarithm, from one cylinder to nearly all.
fn distances(shape: &Shape) -> Vec<u32> {
    let most = shape.cylinders() * 0.94;
    let steps = (most.max(1.0).log2() / 2.0 * DISTANCES).ceil().max(1.0);
    let mut distances: Vec<u32> =
        (0..=steps as u32).map(|step| most.powf(f64::from(step) / steps).round() as u32).collect();
    distances.retain(|&distance| distance > 0);
    distances.dedup();
    distances
}

/// Tracks that are read in turn.
struct Targets {
    tracks: Vec<MeasuredTrack>,
    next: usize,
}

impl Targets {
    fn next(&mut self) -> MeasuredTrack {
        let track = self.tracks[self.next % self.tracks.len()];
        self.next += 1;
        track
    }
}

/// The shortest service of a read after one at `from`, in seconds. `None` where the device has no such pairs.
///
/// An answer that is late by about a revolution looks like one on time after a longer seek, and what follows only narrows it down. Lateness
/// makes a seek longer, never shorter: so where many answers are late, the shorter of two results counts.
async fn shortest(
    probe: &mut Probe<'_>,
    shape: &Shape,
    targets: &mut Targets,
    from: From,
) -> Result<Option<f64>, MeasureError> {
    let time = shortest_once(probe, shape, targets, from).await?;
    if !probe.clock().is_disturbed() {
        return Ok(time);
    }
    let again = shortest_once(probe, shape, targets, from).await?;
    Ok(time.into_iter().chain(again).reduce(f64::min))
}

async fn shortest_once(
    probe: &mut Probe<'_>,
    shape: &Shape,
    targets: &mut Targets,
    from: From,
) -> Result<Option<f64>, MeasureError> {
    let period = probe.clock().period;
    let mut services: Vec<f64> = Vec::new();
    let mut assumed = 0.0;
    let mut pairs = 0;
    while services.len() < SAMPLES_MAX && pairs < PAIRS_MAX {
        pairs += 1;
        let target = targets.next();
        let Some(before) = before(probe, shape, &target, from) else { continue };
        probe.read(before).await?;
        if !services.is_empty() {
            let soonest = probe.rt.now() + Nanos((assumed * 1e9) as u64);
            let caught = probe.clock().next(soonest, target.angle);
            probe.rt.sleep_until(Nanos(caught.0.saturating_sub((assumed * 1e9) as u64))).await;
        }
        let read = probe.read(target.first).await?;
        // A late answer would be a longer seek.
        if probe.clock().is_disturbed() && !probe.clock().is_on_time(target.angle, read.done) {
            continue;
        }
        services.push(read.service().as_secs_f64());
        let (low, high) = bounds(&services, period);
        assumed = (low + high) / 2.0;
        if services.len() >= SAMPLES_MIN && high - low < PRECISION * period {
            break;
        }
    }
    Ok((services.len() >= SAMPLES_MIN.min(4)).then_some(assumed))
}

/// The sector to read before `target`.
fn before(probe: &mut Probe<'_>, shape: &Shape, target: &MeasuredTrack, from: From) -> Option<u64> {
    let block = probe.block;
    let somewhere = |part: f64| target.first + (target.sectors as f64 * part) as u64 / block * block;
    // A random part of the track, so that a place is not read twice.
    let part = 0.2 + 0.6 * probe.rng.unit_f64();
    match from {
        From::SameTrack => Some(somewhere(part)),
        From::NextTrack => Some(somewhere(1.0 + part)).filter(|&sector| sector < probe.sectors),
        From::Cylinders(distance) => {
            let here = shape.cylinder(target.first);
            let inwards = probe.rng.chance(1, 2);
            let distance = f64::from(distance);
            let [one, other] = if inwards { [distance, -distance] } else { [-distance, distance] };
            let offset = part / f64::from(shape.heads);
            shape.sector(here + one + offset).or_else(|| shape.sector(here + other + offset))
        }
    }
}

/// The interval that most services agree on: each is the first multiple of a revolution after the shortest possible one, so
/// that this lies within a revolution before it.
fn bounds(services: &[f64], period: f64) -> (f64, f64) {
    let mut ends: Vec<f64> = services.iter().flat_map(|&service| [(service - period).max(0.0), service]).collect();
    ends.sort_unstable_by(f64::total_cmp);
    let agree = |at: f64| services.iter().filter(|&&service| service - period <= at && at <= service).count();
    let best = ends.windows(2).max_by_key(|pair| agree((pair[0] + pair[1]) / 2.0));
    best.map_or((0.0, period), |pair| (pair[0], pair[1]))
}
