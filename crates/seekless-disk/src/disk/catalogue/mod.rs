//! The drives that can be named on a stack line, and where each figure comes from.
//!
//! Most parameters were measured on real drives by others: the validation files of DiskSim 4.0 [bu08] hold what DIXtrac
//! and its forerunners extracted (zones, skews, slipped sectors, seek curves, command overheads, cache behaviour), and
//! the service times measured on the same drives. File names below are those of DiskSim's `valid` directory. Bus times
//! are the larger of the drive's and of the host adapter's of that test bed, so the older ones include a slow host.
//!
//! Zone tables have these columns: first and last cylinder, sectors per track, track skew, cylinder skew, angle
//! of the first sector, reserved sectors, spares, slips.

mod cheetah9lp;
mod dec;
mod hp;
mod ibm;
mod nearline;
mod quantum;
mod seagate;
mod sheets;
mod wa99;

use std::borrow::Cow;
use std::sync::LazyLock;

use super::drive::{Drive, Zone, ms};
use crate::units::Nanos;

const DISKSIM: &str = "DiskSim 4.0, parameters extracted from the drive";

static DRIVES: LazyLock<Vec<Drive>> = LazyLock::new(|| {
    let mut drives: Vec<Drive> = [
        &quantum::ATLAS_10K,
        &quantum::ATLAS_III,
        &seagate::BARRACUDA,
        &seagate::CHEETAH_4LP,
        &cheetah9lp::CHEETAH_9LP,
        &dec::RZ26,
        &hp::C2247A,
        &hp::C2490A,
        &hp::C3323A,
        &hp::HP97560,
        &nearline::NEARLINE_4TB,
        &seagate::ST41601N,
        &ibm::ULTRASTAR_18ES,
    ]
    .into_iter()
    .cloned()
    .collect();
    drives.extend([wa99::hp97560(), wa99::st19101(), wa99::st19101_whole()]);
    // A sheet that does not make a drive would be missing here; a test notices that.
    drives.extend(sheets::SHEETS.iter().filter_map(|sheet| sheet().drive().ok()));
    drives.sort_by(|a, b| a.name.cmp(&b.name));
    drives
});

impl Drive {
    /// The drive with that name in the catalogue.
    pub fn named(name: &str) -> Option<&'static Drive> {
        DRIVES.iter().find(|drive| drive.name == name)
    }

    /// Every drive of the catalogue, by name.
    pub fn all() -> &'static [Drive] {
        &DRIVES
    }

    /// The names of the catalogue, for lists and for suggestions in error messages.
    pub fn names() -> impl Iterator<Item = &'static str> {
        DRIVES.iter().map(|drive| &*drive.name)
    }
}

#[allow(clippy::too_many_arguments)] // A row of a table; its columns are named at the top of this file.
const fn zone(
    first_cylinder: u32,
    last_cylinder: u32,
    sectors_per_track: u32,
    track_skew: u32,
    cylinder_skew: u32,
    first_sector_angle: u32,
    reserved: u32,
    spares: u32,
    slips: &'static [u32],
) -> Zone {
    Zone {
        first_cylinder,
        last_cylinder,
        sectors_per_track,
        track_skew,
        cylinder_skew,
        first_sector_angle,
        reserved,
        spares,
        slips: Cow::Borrowed(slips),
    }
}

/// A seek table from milliseconds as they are published.
const fn table<const N: usize>(points: [(u32, f64); N]) -> [(u32, Nanos); N] {
    let mut table = [(0, Nanos::ZERO); N];
    let mut index = 0;
    while index < N {
        table[index] = (points[index].0, ms(points[index].1));
        index += 1;
    }
    table
}
