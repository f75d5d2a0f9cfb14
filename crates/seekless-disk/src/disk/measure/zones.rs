//! Zones: where the number of sectors on a track changes, and with it which cylinder an address is on.

use super::MeasureError;
use super::angles::{circular_median, median, wrapped};
use super::probe::Probe;
use super::tracks::{self, MeasuredTrack, Skews};

/// Heads of a drive that does not show them: what a data sheet without them gets, too.
const HEADS_UNKNOWN: u32 = 4;

/// Zones are located to this part of the device.
const RESOLUTION: u64 = 4096;

/// The parts at either end of the device where no place is: the tracks after a place are followed.
const MARGIN: u64 = 64;

/// What is known of the layout.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Shape {
    pub(super) heads: u32,
    pub(super) zones: Vec<Zone>,
    pub(super) tracks: Vec<MeasuredTrack>,
    pub(super) sectors: u64,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Zone {
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) sectors_per_track: u64,
    /// The tracks before the zone, in cylinders of all heads.
    pub(super) first_cylinder: f64,
    /// In revolutions.
    pub(super) track_skew: f64,
    pub(super) cylinder_skew: f64,
}

/// Places all over the device, one in each of equal parts.
pub(super) fn places(probe: &mut Probe<'_>) -> Vec<u64> {
    let count = probe.plan.places as u64;
    let margin = probe.sectors / MARGIN / 2;
    let part = (probe.sectors - 2 * margin) / count;
    let block = probe.block;
    (0..count).map(|index| (margin + index * part + probe.rng.below(part)) / block * block).collect()
}

/// More places between those whose tracks differ.
pub(super) async fn refine(probe: &mut Probe<'_>, found: &mut Vec<MeasuredTrack>) -> Result<(), MeasureError> {
    found.sort_by_key(|track| track.first);
    for _ in 0..probe.plan.zone_rounds {
        probe.begin("zones");
        let gap = probe.sectors / RESOLUTION;
        let mut between: Vec<u64> = found
            .windows(2)
            .filter(|pair| !is_alike(pair[0].sectors, pair[1].sectors))
            .map(|pair| (pair[0].first, pair[1].first - pair[0].first))
            .filter(|&(_, width)| width > gap.max(4 * found[0].sectors))
            .map(|(first, width)| (first + width / 2) / probe.block * probe.block)
            .collect();
        between.truncate(probe.plan.places);
        if between.is_empty() {
            return Ok(());
        }
        if probe.is_late() {
            probe.notes.push("the time was over before all zones were located exactly".into());
            return Ok(());
        }
        match tracks::tracks(probe, &between).await {
            Ok(more) => found.extend(more),
            Err(MeasureError::NoTracks { .. }) => {}
            Err(error) => return Err(error),
        }
        found.sort_by_key(|track| track.first);
    }
    Ok(())
}

/// A slipped sector or a block that lies across a boundary is no zone.
fn is_alike(a: u64, b: u64) -> bool {
    let (less, more) = (a.min(b), a.max(b));
    (more - less) * 200 <= more.max(200)
}

/// Zones and heads from the tracks that were found, which ascend.
/// `skew_tracks` are those of which `skews` tells.
pub(super) fn shape(
    probe: &mut Probe<'_>,
    found: &[MeasuredTrack],
    skews: &[Skews],
    skew_tracks: &[MeasuredTrack],
) -> Shape {
    let heads = match (probe.plan.heads, tracks::heads(probe, skews)) {
        (Some(heads), _) => heads,
        (None, Some(heads)) => heads,
        (None, None) => {
            probe.notes.push(format!(
                "the number of heads does not show, because all skews are alike: {HEADS_UNKNOWN} are assumed, and as many fewer \
                 cylinders"
            ));
            HEADS_UNKNOWN
        }
    };
    let groups = groups(found);
    let mut zones: Vec<Zone> = Vec::new();
    for (index, group) in groups.iter().enumerate() {
        let first = if index == 0 { 0 } else { zones[index - 1].end };
        let end = match groups.get(index + 1) {
            Some(next) => (group[group.len() - 1].first + next[0].first) / 2,
            None => probe.sectors,
        };
        let first_cylinder = zones.last().map_or(0.0, |zone| zone.first_cylinder + zone.cylinders(heads));
        let of_zone = |skew: &&Skews| (first..end).contains(&skew_tracks[skew.of].first);
        let mut own: Vec<&Skews> = skews.iter().filter(of_zone).collect();
        if own.is_empty() {
            own = skews.iter().collect();
        }
        let (track_skew, cylinder_skew) = zone_skews(probe, &own, heads);
        let sectors_per_track = most_frequent(group);
        zones.push(Zone { first, end, sectors_per_track, first_cylinder, track_skew, cylinder_skew });
    }
    Shape { heads, zones, tracks: found.to_vec(), sectors: probe.sectors }
}

/// Neighbours with as many sectors. A single track that differs from equal ones on both sides was misread.
fn groups(found: &[MeasuredTrack]) -> Vec<Vec<MeasuredTrack>> {
    let mut kept: Vec<MeasuredTrack> = Vec::new();
    for (index, track) in found.iter().enumerate() {
        let before = index.checked_sub(1).and_then(|before| found.get(before));
        let odd = matches!((before, found.get(index + 1)), (Some(before), Some(after))
            if is_alike(before.sectors, after.sectors) && !is_alike(before.sectors, track.sectors));
        if !odd {
            kept.push(*track);
        }
    }
    let mut groups: Vec<Vec<MeasuredTrack>> = Vec::new();
    for track in kept {
        match groups.last_mut() {
            Some(group) if is_alike(most_frequent(group), track.sectors) => group.push(track),
            _ => groups.push(vec![track]),
        }
    }
    groups
}

fn most_frequent(group: &[MeasuredTrack]) -> u64 {
    let count = |sectors: u64| group.iter().filter(|track| track.sectors == sectors).count();
    group.iter().map(|track| track.sectors).max_by_key(|&sectors| (count(sectors), sectors)).unwrap_or(1)
}

/// The usual jump from track to track, and the other one, which is that to the next cylinder.
/// With two heads both are as frequent; the switch to a cylinder takes longer than that to a head.
fn zone_skews(probe: &Probe<'_>, skews: &[&Skews], heads: u32) -> (f64, f64) {
    let usual: Vec<f64> =
        skews.iter().filter(|one| !one.jumps.is_empty()).map(|one| tracks::usual(&one.jumps)).collect();
    let track = circular_median(&usual);
    let mut others: Vec<f64> = skews
        .iter()
        .flat_map(|one| tracks::unusual(probe, &one.jumps).into_iter().map(|index| one.jumps[index]))
        .map(|jump| track + wrapped(jump - track))
        .collect();
    let cylinder = if others.is_empty() { track } else { median(&mut others).rem_euclid(1.0) };
    match heads {
        2 => (track.min(cylinder), track.max(cylinder)),
        _ => (track, cylinder),
    }
}

impl Zone {
    pub(super) fn cylinders(&self, heads: u32) -> f64 {
        (self.end - self.first) as f64 / (self.sectors_per_track * u64::from(heads)) as f64
    }
}

impl Shape {
    pub(super) fn cylinders(&self) -> f64 {
        self.zones.last().map_or(0.0, |zone| zone.first_cylinder + zone.cylinders(self.heads))
    }

    pub(super) fn zone_of(&self, sector: u64) -> &Zone {
        let after = self.zones.partition_point(|zone| zone.first <= sector);
        &self.zones[after.saturating_sub(1)]
    }

    /// The cylinder of a sector, with its fraction.
    pub(super) fn cylinder(&self, sector: u64) -> f64 {
        let zone = self.zone_of(sector);
        zone.first_cylinder + (sector - zone.first) as f64 / (zone.sectors_per_track * u64::from(self.heads)) as f64
    }

    /// The sector at a cylinder; `None` outside.
    pub(super) fn sector(&self, cylinder: f64) -> Option<u64> {
        if cylinder < 0.0 {
            return None;
        }
        let zone = self.zones.iter().rev().find(|zone| zone.first_cylinder <= cylinder)?;
        let sectors = (cylinder - zone.first_cylinder) * (zone.sectors_per_track * u64::from(self.heads)) as f64;
        Some(zone.first + sectors as u64).filter(|&sector| sector < self.sectors)
    }
}
