//! Tracks: where they begin, how many sectors they have, and by how much each is turned against the one before.
//!
//! On a track the angle grows with the sector number, evenly; at a boundary it jumps by the skew. All places are searched at the
//! same time, one sector of each in a pass (E1).

use super::MeasureError;
use super::angles::{circular_median, median, wrapped};
use super::probe::Probe;

/// A whole track, found near a place.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct MeasuredTrack {
    pub(super) first: u64,
    /// Sectors with an address.
    pub(super) sectors: u64,
    /// When the first sector completes, in revolutions.
    pub(super) angle: f64,
    /// Angle from a sector to the next, in revolutions.
    pub(super) slope: f64,
}

/// What lies between tracks, from one place on.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Skews {
    /// Place in the list of tracks.
    pub(super) of: usize,
    /// Revolutions from each track to the next, 0 to 1.
    pub(super) jumps: Vec<f64>,
}

/// Differences from which the first slope follows.
const FIRST_STEP: u64 = 8;
/// No drive has longer tracks.
const TRACK_MAX: u64 = 1 << 15;
/// A smaller jump is no boundary.
pub(super) const JUMP_MIN: f64 = 0.012;
/// Tracks that are followed from each place: two cylinders of the drives with the most heads.
const TRACKS_FOLLOWED: usize = 44;

/// A search for the first boundary after a sector whose angle is known.
struct Search {
    from: u64,
    angle: f64,
    slope: f64,
    /// Sectors after `from` that are on its track, and that are not, with the angle of the latter.
    good: u64,
    bad: Option<(u64, f64)>,
    next: u64,
    /// It does not end: not a place to learn from.
    is_lost: bool,
}

/// How often a place is searched for a track at most. One late answer spoils a search; it is made again where less than half
/// of the places have a track.
const ATTEMPTS: usize = 4;

/// The tracks at some places, without those places where the search failed.
pub(super) async fn tracks(probe: &mut Probe<'_>, places: &[u64]) -> Result<Vec<MeasuredTrack>, MeasureError> {
    probe.begin("tracks");
    let mut found = Vec::new();
    let mut open = places.to_vec();
    for _ in 0..ATTEMPTS {
        let tracks = searched(probe, &open).await?;
        let (failed, more): (Vec<_>, Vec<_>) = open.iter().zip(tracks).partition(|(_, track)| track.is_none());
        found.extend(more.into_iter().filter_map(|(_, track)| track));
        open = failed.into_iter().map(|(place, _)| *place).collect();
        if found.len() * 2 >= places.len() || probe.is_late() {
            break;
        }
    }
    // On a busy machine some fail; those that are left agree with each other.
    match found.len() * 4 < places.len() {
        true => Err(MeasureError::NoTracks { problem: format!("{} of {} places have one", found.len(), places.len()) }),
        false => Ok(found),
    }
}

/// The track of each place where one search finds it.
async fn searched(probe: &mut Probe<'_>, places: &[u64]) -> Result<Vec<Option<MeasuredTrack>>, MeasureError> {
    let mut searches = slopes(probe, places).await?;
    boundaries(probe, &mut searches).await?;
    // The next whole track begins there.
    let next: Vec<Option<Search>> = searches.iter().map(Search::next_track).collect();
    let mut tracks: Vec<Option<MeasuredTrack>> = vec![None; places.len()];
    let (of, mut whole): (Vec<usize>, Vec<Search>) =
        next.into_iter().enumerate().filter_map(|(index, search)| Some((index, search?))).unzip();
    boundaries(probe, &mut whole).await?;
    let (of, found): (Vec<usize>, Vec<MeasuredTrack>) =
        of.into_iter().zip(&whole).filter_map(|(index, search)| Some((index, search.found()?))).unzip();
    for (index, track) in confirmed(probe, &found).await? {
        tracks[of[index]] = Some(track);
    }
    Ok(tracks)
}

/// Those tracks whose ends are where the search found them when they are read once more, each with its place in `found`. One
/// answer that comes late, on a busy machine, sends a search to a wrong place, before the track or at its end; between two such
/// tracks there would be zones that the drive does not have.
async fn confirmed(
    probe: &mut Probe<'_>,
    found: &[MeasuredTrack],
) -> Result<Vec<(usize, MeasuredTrack)>, MeasureError> {
    let jump_min = JUMP_MIN.max(5.0 * probe.clock().jitter);
    let mut kept: Vec<(usize, MeasuredTrack)> = found.iter().copied().enumerate().collect();
    // The sector at either end is on the line that the angles of the track make, and its neighbour outside is not.
    type End = fn(&MeasuredTrack, u64) -> u64;
    let ends: [(End, bool); 4] = [
        (|track, _| track.first, true),
        (|track, block| track.first.saturating_sub(block), false),
        (|track, block| track.first + track.sectors - block, true),
        (|track, _| track.first + track.sectors, false),
    ];
    for (sector, is_on_track) in ends {
        let sectors: Vec<u64> = kept.iter().map(|(_, track)| sector(track, probe.block)).collect();
        let angles = probe.angles(&sectors).await?;
        let mut angles = sectors.into_iter().zip(angles);
        kept.retain(|(_, track)| {
            let (sector, angle) = angles.next().unwrap_or_default();
            let line = track.angle + track.slope * (sector as f64 - track.first as f64);
            (wrapped(angle - line).abs() < jump_min) == is_on_track
        });
    }
    Ok(kept)
}

/// The angle of each place, and from the three steps after it the slope.
async fn slopes(probe: &mut Probe<'_>, places: &[u64]) -> Result<Vec<Search>, MeasureError> {
    let step = FIRST_STEP.max(probe.block);
    let mut angles: Vec<Vec<f64>> = Vec::new();
    for offset in 0..4 {
        let sectors: Vec<u64> = places.iter().map(|place| place + offset * step).collect();
        angles.push(probe.angles(&sectors).await?);
    }
    let jump_min = JUMP_MIN.max(5.0 * probe.clock().jitter);
    let search = |index: usize| {
        // Slightly negative differences are jitter.
        let forward = |difference: f64| (difference + 0.1).rem_euclid(1.0) - 0.1;
        let mut steps: Vec<f64> = angles.windows(2).map(|pair| forward(pair[1][index] - pair[0][index])).collect();
        let usual = median(&mut steps);
        let is_even = steps.iter().all(|&one| (one - usual).abs() < jump_min);
        // Of a step the error counts in full. Over all of them it is a third, and the next sector is foretold to twice as far.
        let of_step = if is_even { steps.iter().sum::<f64>() / steps.len() as f64 } else { usual };
        let slope = of_step / step as f64;
        let good = steps.iter().take_while(|&&one| (one - of_step).abs() < 0.1).count() as u64 * step;
        let next = (4 * step).max(2 * good);
        Search { from: places[index], angle: angles[0][index], slope, good: 0, bad: None, next, is_lost: false }
    };
    Ok((0..places.len()).map(search).collect())
}

/// Advances all searches until each has its boundary.
async fn boundaries(probe: &mut Probe<'_>, searches: &mut [Search]) -> Result<(), MeasureError> {
    let jump_min = JUMP_MIN.max(5.0 * probe.clock().jitter);
    let mut found: Vec<Vec<f64>> = vec![Vec::new(); searches.len()];
    loop {
        let open: Vec<usize> = (0..searches.len()).filter(|&index| !searches[index].is_done(probe.block)).collect();
        if probe.are_enough(open.len(), searches.len()) {
            open.into_iter().for_each(|index| searches[index].is_lost = true);
            return Ok(());
        }
        // Each goes on as soon as its own sector was read often enough.
        let sectors: Vec<u64> = searches.iter().map(|search| search.from + search.next).collect();
        probe.pass(&sectors, &open, &mut found).await?;
        for index in open {
            if let Some(angle) = probe.angle(&found[index]) {
                searches[index].learn(angle, jump_min, probe.block, probe.sectors);
                found[index].clear();
            }
        }
    }
}

impl Search {
    fn is_done(&self, block: u64) -> bool {
        self.is_lost || self.bad.is_some_and(|(bad, _)| bad - self.good <= block)
    }

    /// `angle` is that of the sector asked for; says which is next.
    fn learn(&mut self, angle: f64, jump_min: f64, block: u64, end: u64) {
        let at = self.next;
        let late = wrapped(angle - self.angle - self.slope * at as f64);
        if late.abs() < jump_min {
            self.good = at;
            self.slope += late / at as f64;
        } else {
            self.bad = Some((at, angle));
        }
        self.next = match self.bad {
            // Whole blocks, at least one from either end.
            Some((bad, _)) => (self.good + (bad - self.good) / 2 / block * block).max(self.good + block),
            None => at * 2,
        };
        self.is_lost = self.is_lost || self.next > TRACK_MAX || self.from + self.next >= end || self.slope <= 0.0;
    }

    /// The search for the end of the track that begins at this search's boundary.
    fn next_track(&self) -> Option<Search> {
        let (bad, angle) = self.bad.filter(|_| !self.is_lost)?;
        // A boundary before the slope is known says little, but the next search refines it.
        let next = (0.9 / self.slope) as u64;
        (self.slope > 0.0 && next > 0).then_some(Search {
            from: self.from + bad,
            angle,
            slope: self.slope,
            good: 0,
            bad: None,
            next,
            is_lost: next > TRACK_MAX,
        })
    }

    /// The track, if its length fits its slope.
    fn found(&self) -> Option<MeasuredTrack> {
        let (sectors, _) = self.bad.filter(|_| !self.is_lost)?;
        let length = sectors as f64 * self.slope;
        (0.85..1.05).contains(&length).then_some(MeasuredTrack {
            first: self.from,
            sectors,
            angle: self.angle,
            slope: self.slope,
        })
    }
}

/// Follows the tracks from each place on.
pub(super) async fn skews(probe: &mut Probe<'_>, tracks: &[MeasuredTrack]) -> Result<Vec<Skews>, MeasureError> {
    probe.begin("skews");
    let mut skews: Vec<Skews> = (0..tracks.len()).map(|of| Skews { of, jumps: Vec::new() }).collect();
    let mut before: Vec<f64> = tracks.iter().map(|track| track.angle).collect();
    for count in 1..=TRACKS_FOLLOWED as u64 {
        let at = |track: &MeasuredTrack| track.first + count * track.sectors;
        let open: Vec<usize> = (0..tracks.len()).filter(|&index| at(&tracks[index]) < probe.sectors).collect();
        let sectors: Vec<u64> = open.iter().map(|&index| at(&tracks[index])).collect();
        let angles = probe.angles(&sectors).await?;
        for (&index, angle) in open.iter().zip(angles) {
            skews[index].jumps.push((angle - before[index]).rem_euclid(1.0));
            before[index] = angle;
        }
        let usual = heads(probe, &skews);
        // Two cylinders at most places say enough.
        if usual.is_some_and(|heads| count >= 2 * u64::from(heads) + 2) || probe.is_late() {
            break;
        }
    }
    Ok(skews)
}

/// The skew of most tracks at a place.
pub(super) fn usual(jumps: &[f64]) -> f64 {
    circular_median(jumps)
}

/// Positions of jumps that differ from the usual one: the first tracks of cylinders.
///
/// A late answer makes a jump longer and the next one shorter by as much; neither is one of the drive.
pub(super) fn unusual(probe: &Probe<'_>, jumps: &[f64]) -> Vec<usize> {
    let least = (1.5 * JUMP_MIN).max(5.0 * probe.clock().jitter);
    let usual = usual(jumps);
    let extra: Vec<f64> = jumps.iter().map(|jump| wrapped(jump - usual)).collect();
    let is_taken_back = |index: usize| {
        let takes = |other: usize| extra.get(other).is_some_and(|other| wrapped(extra[index] + other).abs() <= least);
        takes(index + 1) || index.checked_sub(1).is_some_and(takes)
    };
    (0..jumps.len()).filter(|&index| extra[index].abs() > least && !is_taken_back(index)).collect()
}

/// Tracks in a cylinder, which is the distance between unusual jumps at most places.
pub(super) fn heads(probe: &Probe<'_>, skews: &[Skews]) -> Option<u32> {
    let mut counts: std::collections::BTreeMap<usize, usize> = std::collections::BTreeMap::new();
    for one in skews {
        for pair in unusual(probe, &one.jumps).windows(2) {
            *counts.entry(pair[1] - pair[0]).or_default() += 1;
        }
    }
    let (&heads, &count) = counts.iter().max_by_key(|&(_, &count)| count)?;
    (heads >= 2 && count * 3 >= skews.len()).then_some(heads as u32)
}
