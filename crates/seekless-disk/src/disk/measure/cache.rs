//! The cache, as far as reads show it: whether it answers, how many places it keeps, how far it reads ahead.

use super::MeasureError;
use super::angles::median;
use super::probe::Probe;
use super::zones::Shape;
use crate::units::Nanos;

#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Cached {
    /// Seconds of a read that the cache answers; `None` when it answers none.
    pub(super) hit: Option<f64>,
    /// Seconds for a further sector.
    pub(super) sector: f64,
    /// Places that it keeps, at most as many as were tried.
    pub(super) segments: u32,
    /// Sectors after a read that it has read a few revolutions later, of those that were tried.
    pub(super) ahead: u32,
}

const TRIALS: usize = 5;
/// Read-ahead ends at the end of a track on many drives, so that it depends on the place whether a sector was read.
const AHEAD_TRIALS: usize = 11;
/// Blocks of the longer read that shows the time of a sector.
const LONG_BLOCKS: u64 = 17;
/// Revolutions that read-ahead gets.
const PAUSE_REVOLUTIONS: f64 = 4.0;
const SEGMENTS: [u32; 6] = [1, 2, 4, 8, 16, 32];
const AHEAD: [u64; 6] = [16, 64, 192, 512, 1536, 4096];

/// `shortest` is the service of a read of the medium without seek and rotation.
pub(super) async fn cache(probe: &mut Probe<'_>, shape: &Shape, shortest: f64) -> Result<Cached, MeasureError> {
    probe.begin("cache");
    let mut hits = Vec::new();
    let mut longs = Vec::new();
    for _ in 0..TRIALS {
        let place = fresh(probe);
        probe.read(place).await?;
        hits.push(probe.read(place).await?.service().as_secs_f64());
        probe.read_blocks(place, LONG_BLOCKS).await?;
        longs.push(probe.read_blocks(place, LONG_BLOCKS).await?.service().as_secs_f64());
    }
    let (hit, long) = (median(&mut hits), median(&mut longs));
    // The same sector again from the medium takes a revolution.
    let hit_max = (shortest + 0.3 * probe.clock().period).min(0.6 * probe.clock().period);
    if hit > hit_max {
        return Ok(Cached::default());
    }
    let sector = ((long - hit) / ((LONG_BLOCKS - 1) * probe.block) as f64).max(0.0);
    let sector = if long < hit + 0.5 * probe.clock().period { sector } else { 0.0 };
    let hit_max = (hit + 0.25 * probe.clock().period).min(hit_max);
    let mut segments = 1;
    for count in SEGMENTS {
        if !is_kept(probe, count, hit_max).await? {
            break;
        }
        segments = count + 1;
    }
    let mut ahead = 0;
    for distance in AHEAD {
        if !is_ahead(probe, shape, distance.div_ceil(probe.block) * probe.block, hit_max).await? {
            break;
        }
        ahead = distance as u32;
    }
    Ok(Cached { hit: Some(hit), sector, segments, ahead })
}

/// A place that was hardly read before.
fn fresh(probe: &mut Probe<'_>) -> u64 {
    let sectors = probe.sectors - probe.sectors / 64;
    probe.rng.below(sectors)
}

/// Whether the cache has a block after `others` other places were read.
async fn is_kept(probe: &mut Probe<'_>, others: u32, hit_max: f64) -> Result<bool, MeasureError> {
    let mut hits = 0;
    for _ in 0..TRIALS {
        let place = fresh(probe);
        probe.read(place).await?;
        for _ in 0..others {
            let other = fresh(probe);
            probe.read(other).await?;
        }
        hits += usize::from(probe.read(place).await?.service().as_secs_f64() <= hit_max);
    }
    Ok(hits * 2 > TRIALS)
}

/// Whether the cache has what lies `distance` sectors after a read.
async fn is_ahead(probe: &mut Probe<'_>, shape: &Shape, distance: u64, hit_max: f64) -> Result<bool, MeasureError> {
    let mut hits = 0;
    for _ in 0..AHEAD_TRIALS {
        let place = fresh(probe);
        probe.read(place).await?;
        let tracks = distance as f64 / shape.zone_of(place).sectors_per_track as f64;
        let pause = probe.clock().nanos(PAUSE_REVOLUTIONS + 2.0 * tracks);
        probe.rt.sleep(Nanos(pause.0)).await;
        hits += usize::from(probe.read(place + distance).await?.service().as_secs_f64() <= hit_max);
    }
    Ok(hits * 5 >= AHEAD_TRIALS * 3)
}
