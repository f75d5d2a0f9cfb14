//! From tracks one by one to zones, which are what a drive can say.
//!
//! 1) Cut the cylinders wherever all LBNs before the cut are lower than those after it.
//! 2) Join neighbours whose tracks are alike, or, where they are not alike among themselves, differ by less than a sector on average. If that
//!    leaves more zones than a drive has, join neighbours that differ by one sector, by two, by four ...
//! 3) The surface order is that in which most tracks are on the right surface; the skew, the median of those in the zone.
//!
//! A zone has exactly the LBNs that its tracks have: what is more is spare, at its end. So every zone begins with the right LBN. What
//! differs inside of a zone is counted and reported.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::super::drive::{Sparing, SurfaceOrder, Zone};

/// A track, or a part of one, with LBNs.
#[derive(Clone, Copy)]
pub(super) struct Track {
    pub(super) lbn: u64,
    pub(super) lbns: u32,
    pub(super) sectors_per_track: u32,
    /// The first sector that has an LBN.
    pub(super) first_sector: u32,
    pub(super) cylinder: u32,
    pub(super) head: u32,
    /// Of its first LBN, in revolutions.
    pub(super) angle: f64,
    /// Where it is described.
    pub(super) line: usize,
}

/// Sectors that are left out, from the place of an LBN on that counts those left out before. Fewer than none: spares.
#[derive(Clone, Copy)]
pub(super) struct Slip {
    pub(super) lbn: u64,
    pub(super) count: i64,
}

pub(super) struct Geometry {
    pub(super) zones: Vec<Zone>,
    pub(super) surfaces: SurfaceOrder,
    pub(super) sparing: Sparing,
}

/// Calls its argument for every track, by ascending LBN.
pub(super) type Walk<'a> = &'a dyn Fn(&mut dyn FnMut(Track));

/// As many as a layout can have.
const ZONES_MAX: usize = 256;
const SECTORS_PER_TRACK_MAX: u64 = 1 << 20;
const BANDS_TRIED: usize = 4;
/// The longest drive file holds sixteen characters for each.
const SLIPS_MAX: u64 = (super::super::file::BYTES_MAX / 16) as u64;
/// Angles are compared in millionths of a revolution, the digits that DiskSim's files have.
const TURN: i64 = 1_000_000;

/// # Errors
/// What is wrong, and the line.
pub(super) fn geometry(
    walk: Walk<'_>,
    (heads, cylinders): (u32, u32),
    slips: &[Slip],
    notes: &mut Vec<String>,
) -> Result<Geometry, (usize, String)> {
    let survey = Survey::new(walk, heads, cylinders)?;
    let mut tolerance = 0;
    let mut parts = joined(survey.parts(), heads, tolerance);
    let regions = parts.len();
    while parts.len() > ZONES_MAX && tolerance < SECTORS_PER_TRACK_MAX {
        tolerance = (tolerance * 2).max(1);
        parts = joined(parts, heads, tolerance);
    }
    if tolerance > 0 {
        notes.push(format!(
            "{regions} groups of cylinders are {} zones: neighbours whose tracks differ by up to {tolerance} sectors are in one.",
            parts.len()
        ));
    }
    let left_out = LeftOut::new(slips, notes);
    let mut zones = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        let end = parts.get(index + 1).map_or(part.end_lbn, |next| next.first_lbn);
        zones.push(Fit::new(part, end, heads, &left_out).map_err(|problem| (part.line, problem))?);
    }
    // Spares of each track, if all tracks are alike in each zone; otherwise they are at the end of the zone.
    let in_tracks = slips.is_empty() && zones.iter().all(|zone| zone.part.is_regular(heads, zone.end_lbn));
    let is_full = zones.iter().all(|fit| u64::from(fit.zone.spares) == fit.zone.slips.len() as u64);
    let sparing = match (is_full, in_tracks) {
        (true, _) => Sparing::None,
        (false, true) => Sparing::SectorsPerTrack,
        (false, false) => Sparing::SectorsPerZone,
    };
    for fit in &mut zones {
        match sparing {
            Sparing::None => fit.zone.spares = 0,
            Sparing::SectorsPerTrack => {
                fit.zone.spares = fit.zone.sectors_per_track - fit.part.lbns;
                fit.track_lbns = u64::from(fit.part.lbns);
            }
            _ => {}
        }
    }
    let (surfaces, places) = surfaces(walk, heads, &survey.band_cylinders, &mut zones);
    let skews = skews(&mut zones, surfaces);
    let total = places.total;
    let mut note = |count: u64, text: &dyn Fn() -> String| {
        if count > 0 {
            notes.push(text());
        }
    };
    let odd: u64 = zones.iter().map(|fit| fit.odd_tracks).sum();
    let odd_by = zones.iter().map(|fit| fit.odd_by).max().unwrap_or(0);
    note(odd, &|| {
        format!(
            "{odd} of {total} tracks have up to {odd_by} sectors more or fewer than those of their zone, which are all alike."
        )
    });
    let missing: u64 = zones.iter().map(|fit| fit.part.missing(heads)).sum();
    note(missing, &|| {
        format!("{missing} tracks between others have no LBNs: tracks at the end of the zone are left without instead.")
    });
    note(u64::from(sparing == Sparing::SectorsPerZone && survey.short_tracks > 0), &|| {
        format!(
            "{} of {total} tracks have sectors without LBNs: sectors at the end of the zone are left without instead.",
            survey.short_tracks
        )
    });
    note(survey.fragments, &|| {
        format!("{} parts of tracks follow other parts as if they were tracks of their own.", survey.fragments)
    });
    note(survey.gap_lbns, &|| {
        format!("{} LBNs have no track in the index: they are in the zones where they should be.", survey.gap_lbns)
    });
    let (wrong_surface, wrong_cylinder) = (places.wrong_surface, places.wrong_cylinder);
    note(wrong_surface + wrong_cylinder, &|| {
        format!(
            "{wrong_surface} of {total} tracks are on another surface than in the index, and {wrong_cylinder} on the same surface of another cylinder, {} away on average.",
            (places.distance + wrong_cylinder / 2) / wrong_cylinder.max(1)
        )
    });
    note(u64::from(skews.rounded), &|| "Skews in revolutions are rounded to whole sectors.".to_owned());
    note(skews.wrong, &|| {
        format!(
            "At {} of {} track changes the skew differs by more than a sector from that of the zone.",
            skews.wrong, skews.changes
        )
    });
    Ok(Geometry { zones: zones.into_iter().map(|fit| fit.zone).collect(), surfaces, sparing })
}

/// What is known of a cylinder.
#[derive(Clone)]
struct Cylinder {
    /// `u64::MAX` if it has no tracks.
    first_lbn: u64,
    end_lbn: u64,
    tracks: u32,
    sectors: u64,
    /// LBNs of each track, 0 if they differ.
    lbns: u32,
    sectors_per_track: u32,
    line: u32,
}

struct Survey {
    cylinders: Vec<Cylinder>,
    /// Tracks with fewer LBNs than sectors.
    short_tracks: u64,
    /// Parts of tracks, beyond the first.
    fragments: u64,
    gap_lbns: u64,
    /// For how many cylinders LBNs stay on a surface: the counts that most tracks have. On a drive with an odd number of heads, bands follow
    /// each other on a surface, so that twice as many cylinders than in a band can be the most usual.
    band_cylinders: Vec<u32>,
}

impl Survey {
    fn new(walk: Walk<'_>, heads: u32, cylinders: u32) -> Result<Survey, (usize, String)> {
        let none =
            Cylinder { first_lbn: u64::MAX, end_lbn: 0, tracks: 0, sectors: 0, lbns: 0, sectors_per_track: 0, line: 0 };
        let cylinders = vec![none; cylinders as usize];
        let mut survey = Survey { cylinders, short_tracks: 0, fragments: 0, gap_lbns: 0, band_cylinders: Vec::new() };
        // A bit for each track, and the tracks whose first sector is still to come.
        let mut known = vec![0_u64; (survey.cylinders.len() * heads as usize).div_ceil(64)];
        let mut partly = BTreeSet::new();
        let mut bands: BTreeMap<u32, u64> = BTreeMap::new();
        let (mut band, mut before): (u32, Option<Track>) = (0, None);
        let mut next_lbn = 0;
        let mut error = None;
        walk(&mut |track| {
            let bit = track.cylinder as usize * heads as usize + track.head as usize;
            let is_known = known[bit / 64] & 1 << (bit % 64) != 0;
            if is_known && track.first_sector == 0 && !partly.remove(&bit) && error.is_none() {
                let problem = format!("the track of head {} on cylinder {} is there twice", track.head, track.cylinder);
                error = Some((track.line, problem));
            }
            known[bit / 64] |= 1 << (bit % 64);
            if !is_known && track.first_sector > 0 {
                partly.insert(bit);
            }
            let cylinder = &mut survey.cylinders[track.cylinder as usize];
            cylinder.first_lbn = cylinder.first_lbn.min(track.lbn);
            cylinder.end_lbn = cylinder.end_lbn.max(track.lbn + u64::from(track.lbns));
            let kind = (track.lbns, track.sectors_per_track);
            if cylinder.tracks == 0 {
                (cylinder.lbns, cylinder.sectors_per_track) = kind;
                cylinder.line = track.line as u32;
            } else if is_known || (cylinder.lbns, cylinder.sectors_per_track) != kind {
                cylinder.lbns = 0;
            }
            survey.gap_lbns += track.lbn - next_lbn;
            next_lbn = track.lbn + u64::from(track.lbns);
            if is_known {
                survey.fragments += 1;
            } else {
                cylinder.tracks += 1;
                cylinder.sectors += u64::from(track.sectors_per_track);
                survey.short_tracks += u64::from(track.lbns < track.sectors_per_track);
            }
            let continues =
                before.is_some_and(|before| before.head == track.head && before.cylinder.abs_diff(track.cylinder) == 1);
            if !continues && band > 0 {
                *bands.entry(band).or_default() += u64::from(band);
                band = 0;
            }
            band += 1;
            before = Some(track);
        });
        if let Some(error) = error {
            return Err(error);
        }
        *bands.entry(band).or_default() += u64::from(band);
        let mut bands: Vec<(u64, u32)> = bands.into_iter().map(|(band, tracks)| (tracks, band)).collect();
        bands.sort_unstable_by(|a, b| b.cmp(a));
        survey.band_cylinders =
            bands.iter().map(|(_, band)| *band).filter(|&band| band > 1).take(BANDS_TRIED).collect();
        Ok(survey)
    }

    /// Cylinders between which LBNs do not go back and forth, the finest parts that a zone can have.
    fn parts(&self) -> Vec<Part> {
        let mut first_lbns_after = vec![u64::MAX; self.cylinders.len() + 1];
        for (index, cylinder) in self.cylinders.iter().enumerate().rev() {
            first_lbns_after[index] = first_lbns_after[index + 1].min(cylinder.first_lbn);
        }
        let mut parts: Vec<Part> = Vec::new();
        for (number, cylinder) in (0..).zip(&self.cylinders).filter(|(_, cylinder)| cylinder.tracks > 0) {
            let own = Part {
                first_cylinder: number,
                last_cylinder: number,
                first_lbn: cylinder.first_lbn,
                end_lbn: cylinder.end_lbn,
                tracks: u64::from(cylinder.tracks),
                sectors: cylinder.sectors,
                lbns: cylinder.lbns,
                sectors_per_track: cylinder.sectors_per_track,
                line: cylinder.line as usize,
            };
            match parts.last_mut() {
                Some(last) if last.end_lbn > first_lbns_after[number as usize] => last.join(&own),
                _ => parts.push(own),
            }
        }
        if let Some(first) = parts.first_mut() {
            first.first_lbn = 0;
        }
        parts
    }
}

/// Successive cylinders that have successive LBNs.
#[derive(Clone)]
struct Part {
    first_cylinder: u32,
    last_cylinder: u32,
    first_lbn: u64,
    end_lbn: u64,
    tracks: u64,
    /// Of all tracks.
    sectors: u64,
    /// LBNs of each track, 0 if they differ.
    lbns: u32,
    sectors_per_track: u32,
    line: usize,
}

impl Part {
    fn join(&mut self, next: &Part) {
        self.last_cylinder = next.last_cylinder;
        self.first_lbn = self.first_lbn.min(next.first_lbn);
        self.end_lbn = self.end_lbn.max(next.end_lbn);
        self.tracks += next.tracks;
        self.sectors += next.sectors;
        if (self.lbns, self.sectors_per_track) != (next.lbns, next.sectors_per_track) {
            self.lbns = 0;
        }
    }

    fn cylinders(&self) -> u64 {
        u64::from(self.last_cylinder - self.first_cylinder) + 1
    }

    fn missing(&self, heads: u32) -> u64 {
        self.cylinders() * u64::from(heads) - self.tracks
    }

    fn is_like(&self, next: &Part, tolerance: u64) -> bool {
        let (sectors, next_sectors) = (self.sectors * next.tracks, next.sectors * self.tracks);
        let (difference, one) = (sectors.abs_diff(next_sectors), self.tracks * next.tracks);
        if tolerance > 0 {
            return difference <= one.saturating_mul(tolerance);
        }
        let is_alike = match self.lbns > 0 && next.lbns > 0 {
            true => (self.lbns, self.sectors_per_track) == (next.lbns, next.sectors_per_track),
            false => difference < one,
        };
        is_alike && self.last_cylinder + 1 == next.first_cylinder
    }

    /// A zone with both has fewer sectors than 2^32.
    fn fits(&self, next: &Part, heads: u32) -> bool {
        let tracks = (u64::from(next.last_cylinder - self.first_cylinder) + 1) * u64::from(heads);
        tracks * self.sectors.div_ceil(self.tracks).max(next.sectors.div_ceil(next.tracks)) < u64::from(u32::MAX)
    }

    /// All tracks are there, and alike.
    fn is_regular(&self, heads: u32, end_lbn: u64) -> bool {
        self.lbns > 0 && self.missing(heads) == 0 && end_lbn - self.first_lbn == self.tracks * u64::from(self.lbns)
    }
}

/// Joins neighbours whose tracks are alike, or differ by no more than `tolerance` sectors on average. Cylinders without LBNs between zones stay
/// between zones unless some difference is tolerated.
fn joined(parts: Vec<Part>, heads: u32, tolerance: u64) -> Vec<Part> {
    let mut joined: Vec<Part> = Vec::new();
    for part in parts {
        match joined.last_mut() {
            Some(last) if last.is_like(&part, tolerance) && last.fits(&part, heads) => last.join(&part),
            _ => joined.push(part),
        }
    }
    joined
}

/// Sectors that are left out, by place, in ranges that do not overlap.
struct LeftOut {
    ranges: Vec<Range<u64>>,
    /// There is room for all of them in a drive file.
    is_listed: bool,
}

impl LeftOut {
    fn new(slips: &[Slip], notes: &mut Vec<String>) -> LeftOut {
        let spares = slips.iter().filter(|slip| slip.count < 0).count();
        let total: u64 = slips.iter().map(|slip| slip.count.unsigned_abs()).fold(0, u64::saturating_add);
        let is_listed = total <= SLIPS_MAX;
        if spares > 0 {
            notes.push(format!(
                "The slips are left out, because {spares} of them are spares, for which DiskSim has no rule."
            ));
            return LeftOut { ranges: Vec::new(), is_listed: true };
        }
        if !is_listed {
            notes.push(format!(
                "{total} slipped sectors are at the end of their zones: a drive file has room for {SLIPS_MAX} in their places."
            ));
        }
        let mut ranges: Vec<Range<u64>> = Vec::with_capacity(slips.len());
        for slip in slips {
            // Further sectors at a place that is left out follow it.
            let start = slip.lbn.max(ranges.last().map_or(0, |last| last.end));
            ranges.push(start..start + slip.count.unsigned_abs());
        }
        LeftOut { ranges, is_listed }
    }

    /// How many there are in a range of places.
    fn count(&self, places: Range<u64>) -> u64 {
        self.within(places).map(|range| range.end - range.start).sum()
    }

    fn within(&self, places: Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let first = self.ranges.partition_point(|range| range.end <= places.start);
        let ranges = self.ranges[first..].iter().take_while(move |range| range.start < places.end);
        ranges.map(move |range| range.start.max(places.start)..range.end.min(places.end))
    }
}

/// A zone that is being made.
struct Fit<'a> {
    part: &'a Part,
    zone: Zone,
    end_lbn: u64,
    /// LBNs of a track of the zone.
    track_lbns: u64,
    before: Option<Track>,
    head_skews: Skews,
    cylinder_skews: Skews,
    odd_tracks: u64,
    odd_by: u64,
}

impl Fit<'_> {
    fn new<'a>(part: &'a Part, end_lbn: u64, heads: u32, left_out: &LeftOut) -> Result<Fit<'a>, String> {
        let places = part.cylinders() * u64::from(heads);
        let lbns = end_lbn - part.first_lbn;
        let sectors_per_track = part.sectors.div_ceil(part.tracks).max(lbns.div_ceil(places));
        if sectors_per_track > SECTORS_PER_TRACK_MAX {
            let (first, last) = (part.first_cylinder, part.last_cylinder);
            return Err(format!(
                "{lbns} LBNs, of which most have no track, are on the {places} tracks of cylinders {first} to {last}"
            ));
        }
        let slipped = left_out.count(part.first_lbn..end_lbn);
        let spares = (sectors_per_track * places - lbns).saturating_add(slipped);
        let mut slips = Vec::new();
        if left_out.is_listed {
            let within = left_out.within(part.first_lbn..end_lbn).flatten();
            slips.extend(within.map(|place| (place - part.first_lbn) as u32));
        }
        Ok(Fit {
            part,
            zone: Zone {
                first_cylinder: part.first_cylinder,
                last_cylinder: part.last_cylinder,
                sectors_per_track: sectors_per_track as u32,
                track_skew: 0,
                cylinder_skew: 0,
                first_sector_angle: 0,
                reserved: 0,
                // More are refused with the zone's sectors.
                spares: u32::try_from(spares).unwrap_or(u32::MAX),
                slips: slips.into(),
            },
            end_lbn,
            track_lbns: sectors_per_track,
            before: None,
            head_skews: Skews::default(),
            cylinder_skews: Skews::default(),
            odd_tracks: 0,
            odd_by: 0,
        })
    }
}

#[derive(Clone, Copy, Default)]
struct Places {
    total: u64,
    wrong_surface: u64,
    wrong_cylinder: u64,
    /// In cylinders, of those on the right surface.
    distance: u64,
}

/// The surface order that fits best. On the way, what of the tracks differs from their zones.
fn surfaces(walk: Walk<'_>, heads: u32, band_cylinders: &[u32], zones: &mut [Fit<'_>]) -> (SurfaceOrder, Places) {
    let mut orders = vec![SurfaceOrder::Forward, SurfaceOrder::Serpentine];
    if heads > 1 {
        for &cylinders in band_cylinders {
            orders.extend([SurfaceOrder::Bands { cylinders }, SurfaceOrder::ForwardBands { cylinders }]);
        }
    }
    let mut all = vec![Places::default(); orders.len()];
    let mut index = 0;
    walk(&mut |track| {
        while index + 1 < zones.len() && zones[index].end_lbn <= track.lbn {
            index += 1;
        }
        let fit = &mut zones[index];
        let is_same = |before: Track| (before.cylinder, before.head) == (track.cylinder, track.head);
        if fit.before.is_some_and(is_same) {
            return;
        }
        let (cylinders, zone) = (fit.part.cylinders() as u32, &mut fit.zone);
        let sectors = zone.sectors_per_track;
        let off_by = track.sectors_per_track.abs_diff(sectors);
        fit.odd_tracks += u64::from(off_by > 0);
        fit.odd_by = fit.odd_by.max(u64::from(off_by));
        // By the middle of the track, which is the same if tracks before have some sectors more or fewer.
        let middle = track.lbn - fit.part.first_lbn + u64::from(track.lbns / 2);
        let number = (middle / fit.track_lbns).min(u64::from(cylinders * heads - 1)) as u32;
        let cylinder = track.cylinder - zone.first_cylinder;
        for (order, places) in orders.iter().zip(&mut all) {
            let (there, head) = order.track_place(heads, cylinders, number);
            if head != track.head {
                places.wrong_surface += 1;
            } else if there != cylinder {
                places.wrong_cylinder += 1;
                places.distance += u64::from(there.abs_diff(cylinder));
            }
            places.total += 1;
        }
        match fit.before {
            None => {
                let angle = (track.angle.rem_euclid(1.0) * f64::from(sectors)).round() as u32;
                zone.first_sector_angle = angle % sectors;
            }
            Some(before) => {
                let turn = ((track.angle - before.angle).rem_euclid(1.0) * TURN as f64).round() as i64 % TURN;
                match before.cylinder == track.cylinder {
                    true => fit.head_skews.add(turn, 1),
                    false => fit.cylinder_skews.add(turn, 1),
                }
            }
        }
        fit.before = Some(track);
    });
    let best = (0..orders.len()).min_by_key(|&order| (all[order].wrong_surface, all[order].wrong_cylinder));
    let best = best.unwrap_or(0);
    (orders[best], all[best])
}

/// Turns from one track to the next in millionths of a revolution, and how many tracks have each.
#[derive(Default)]
struct Skews(BTreeMap<i64, u64>);

#[derive(Default)]
struct SkewNotes {
    rounded: bool,
    wrong: u64,
    changes: u64,
}

impl Skews {
    fn add(&mut self, turn: i64, tracks: u64) {
        *self.0.entry(turn).or_default() += tracks;
    }

    /// The median, on a circle that is cut opposite to the most frequent turn.
    fn median(&self) -> i64 {
        let Some((&most, _)) = self.0.iter().rev().max_by_key(|(_, tracks)| **tracks) else { return 0 };
        let mut turns: Vec<(i64, u64)> = self.0.iter().map(|(&turn, &tracks)| (from(most, turn), tracks)).collect();
        turns.sort_unstable();
        let half = turns.iter().map(|(_, tracks)| tracks).sum::<u64>().div_ceil(2);
        let mut passed = 0;
        let median = turns.iter().find(|(_, tracks)| {
            passed += tracks;
            passed >= half
        });
        (most + median.map_or(0, |(turn, _)| *turn)).rem_euclid(TURN)
    }

    /// The skew in sectors of a track with so many.
    fn sectors(&self, sectors: u32, notes: &mut SkewNotes) -> u32 {
        let median = self.median();
        let exact = median as f64 * f64::from(sectors) / TURN as f64;
        // Six digits of a revolution do not show whole sectors more exactly.
        notes.rounded |= (exact - exact.round()).abs() * TURN as f64 > f64::from(sectors);
        for (&turn, &tracks) in &self.0 {
            notes.changes += tracks;
            let off_by = from(median, turn).unsigned_abs() * u64::from(sectors);
            notes.wrong += if off_by > TURN as u64 { tracks } else { 0 };
        }
        exact.round() as u32 % sectors
    }
}

/// From one angle to another, the shorter way.
fn from(angle: i64, to: i64) -> i64 {
    (to - angle + TURN / 2).rem_euclid(TURN) - TURN / 2
}

fn skews(zones: &mut [Fit<'_>], surfaces: SurfaceOrder) -> SkewNotes {
    let mut notes = SkewNotes::default();
    for fit in zones {
        let sectors = fit.zone.sectors_per_track;
        if surfaces.bands().is_some() {
            for (turn, tracks) in std::mem::take(&mut fit.cylinder_skews.0) {
                fit.head_skews.add(turn, tracks);
            }
            fit.zone.track_skew = fit.head_skews.sectors(sectors, &mut notes);
            fit.zone.cylinder_skew = fit.zone.track_skew;
        } else {
            fit.zone.track_skew = fit.head_skews.sectors(sectors, &mut notes);
            fit.zone.cylinder_skew = fit.cylinder_skews.sectors(sectors, &mut notes);
        }
    }
    notes
}
