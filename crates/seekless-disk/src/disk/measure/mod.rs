//! Measuring: a drive's parameters from reads that are chosen for it.
//!
//! Worthington, Ganger, Patt and Wilkes \[wo95\] extract a drive's parameters from outside, by the times at which requests
//! complete. The same idea carries everything here: a sector passes the head once in a revolution, so the completion of a read
//! that needs the medium says at which angle its sector lies. From angles follow tracks, skews and zones ([`tracks`]); from the
//! shortest time after which a sector can still be caught follow seeks and overheads ([`seeks`]).
//!
//! The device is only read, one block at a time. The code runs on any [`BlockDevice`]: on a modelled disk in virtual time, where
//! the truth is known, and on real ones.
//!
//! Method
//!   1. Reads of a few dozen places in turn. Their completions give the revolution period ([`rhythm`]).
//!   2. At each place, the sectors of a track and the next boundary; then the angles of the following tracks.
//!   3. More places where neighbours differ, which narrows the zones.
//!   4. Seeks over distances from one cylinder to all.
//!   5. What the cache does with reads that follow each other.
//!
//! On a busy machine answers come late. A disk is never early, so those on time agree on an angle, and late ones do not: with more than a tenth of
//! late ones, a sector is read until enough of its angles agree ([`angles`]), and seeks leave late answers out.
//!
//! Limits
//!   E1  A place is read again only after all others, so that the cache has lost it. A drive whose cache holds more segments than
//!       there are places hides its medium; then there is no rotation to be seen, and an error says so.
//!   E2  Writes are not measured: their overheads are those of reads, and they settle in no time.
//!   E3  Slipped sectors and spares are not resolved; a zone has the sectors per track that most of its places have.
//!   E4  Without a difference between skews of tracks and of cylinders, the number of heads does not show.

mod angles;
mod busy;
mod cache;
mod clock;
mod probe;
mod record;
mod rhythm;
mod seeks;
mod tracks;
mod zones;

use std::ops::ControlFlow;

use super::drive::Drive;
use super::layout::DriveError;
use crate::device::{BlockDevice, DeviceError};
use crate::rt::Rt;
use crate::units::{Nanos, SECTOR_BYTES};
pub use busy::Lateness;
use probe::Probe;

/// How to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Places that are read in turn, see E1.
    pub places: usize,
    /// How often the places at zone boundaries are doubled.
    pub zone_rounds: u32,
    /// When this has passed, steps that only refine are left out.
    pub time: Nanos,
    /// The number of heads, where the user knows it, see E4.
    pub heads: Option<u32>,
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan { places: 64, zone_rounds: 5, time: Nanos::from_secs(600), heads: None, seed: 1 }
    }
}

/// The fewest [`Plan::places`].
pub const PLACES_MIN: usize = 8;

/// Where a measurement is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub step: &'static str,
    pub reads: u64,
}

/// What was measured.
#[derive(Clone, PartialEq, Debug)]
pub struct Measurement {
    /// Named `measured`, for the caller to rename.
    pub drive: Drive,
    /// Time of a revolution, more exactly than the drive's whole revolutions a minute.
    pub revolution: Nanos,
    /// Root mean square deviation of completions from their angle.
    pub jitter: Nanos,
    pub reads: u64,
    /// What could not be measured, or is uncertain, in sentences.
    pub notes: Vec<String>,
}

/// Why a device cannot be measured.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum MeasureError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Completions keep no rhythm.
    #[error(
        "no rotation shows in the times of {reads} reads (coherence {coherence:.2}): this is no disk, a cache answers, or other \
         requests disturb"
    )]
    NoRotation { reads: u64, coherence: f64 },
    #[error("no track boundary shows: {problem}")]
    NoTracks { problem: String },
    /// Many answers come late: `problem` is what came of that.
    #[error("{problem}: {lateness}")]
    TooBusy { problem: String, lateness: Lateness },
    #[error("the device has {sectors} sectors, too few to be measured")]
    TooSmall { sectors: u64 },
    #[error("{places} places are too few: at least {PLACES_MIN} are needed")]
    TooFewPlaces { places: usize },
    #[error("stopped after {reads} reads")]
    Stopped { reads: u64 },
    #[error("what was measured makes no drive: {0}")]
    Drive(#[from] DriveError),
}

/// Measures `device`. `progress` is called before each read; `Break` ends the measurement.
///
/// Takes some ten thousand reads where each is answered as soon as it is done, three times as many where answers come a little
/// late, and up to thirty times as many where most do: minutes of a usual drive. Other requests to the device in the same time disturb, and are disturbed.
///
/// # Errors
/// When the device fails, is no disk, the machine is too busy, or the caller stops.
pub async fn measure(
    rt: &Rt,
    device: &dyn BlockDevice,
    plan: Plan,
    progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<Measurement, MeasureError> {
    let geometry = device.geometry();
    if plan.places < PLACES_MIN {
        return Err(MeasureError::TooFewPlaces { places: plan.places });
    }
    let block_sectors = u64::from(geometry.block_bytes) / SECTOR_BYTES;
    if geometry.sectors / block_sectors < 1000 * plan.places as u64 {
        return Err(MeasureError::TooSmall { sectors: geometry.sectors });
    }
    let mut probe = Probe::new(rt, device, plan, progress);
    match steps(&mut probe).await {
        Err(error @ (MeasureError::NoRotation { .. } | MeasureError::NoTracks { .. })) => {
            Err(busy::or_busy(&probe, error).await)
        }
        outcome => outcome,
    }
}

async fn steps(probe: &mut Probe<'_>) -> Result<Measurement, MeasureError> {
    let places = zones::places(probe);
    let clock = rhythm::find(probe, &places).await?;
    probe.start_clock(clock);
    let first = tracks::tracks(probe, &places).await?;
    let skews = tracks::skews(probe, &first).await?;
    let mut tracks = first.clone();
    zones::refine(probe, &mut tracks).await?;
    let shape = zones::shape(probe, &tracks, &skews, &first);
    let seeks = seeks::seeks(probe, &shape).await?;
    let cache = cache::cache(probe, &shape, seeks.shortest).await?;
    record::record(probe, &shape, &seeks, &cache)
}
