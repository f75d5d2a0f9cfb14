//! What is known about a drive: geometry, seek curve, overheads, cache. Every number that makes one drive
//! differ from another is here, so that a new drive is data and not code.
//!
//! Vocabulary. A *cylinder* is what all heads reach without a seek; a *track* is one head's part of it. An
//! *LBN* is the address that the host uses, in 512-byte sectors; spare sectors and sectors that were found bad
//! when the drive was formatted (*slips*) have none. A *skew* is the angle by which the first sector of a track
//! is turned against that of the track before it, so that a head switch or a one-cylinder seek does not cost a
//! revolution.
//!
//! The parameters are those of [rw94], in the division and mostly under the names of DiskSim 4.0 [bu08], so that a
//! drive measured for DiskSim can be copied here number by number.

use std::borrow::Cow;

use super::scheduler::Scheduler;
use crate::units::{Nanos, SECTOR_BYTES};

/// Everything the model needs to know about a drive.
#[derive(Clone, PartialEq, Debug)]
pub struct Drive {
    /// The name on a stack line: lower case letters, digits and dashes.
    pub name: Cow<'static, str>,
    /// Maker and model, for people.
    pub product: Cow<'static, str>,
    /// Where the parameters come from.
    pub source: Cow<'static, str>,
    pub evidence: Evidence,
    /// Data surfaces, which is the number of tracks in a cylinder.
    pub heads: u32,
    /// Cylinders that the arm can reach, including those that no zone uses.
    pub cylinders: u32,
    /// Capacity that the drive reports, in sectors. The zones hold at least as many.
    pub sectors: u64,
    /// Revolutions per minute.
    pub rpm: u32,
    pub surfaces: SurfaceOrder,
    pub sparing: Sparing,
    /// Zones from the outermost inwards, which is also the order of their LBNs.
    pub zones: Cow<'static, [Zone]>,
    pub seek: Seek,
    /// The curve of writes, where it is another one.
    pub write_seek: Option<Seek>,
    /// What a write adds to a seek or head switch, in nanoseconds, because a head that writes must have come
    /// closer to the middle of its track. Fitted models have negative values too: then the seek curve was
    /// measured with writes, or holds part of the command overhead.
    pub write_settle_ns: i64,
    /// Time to change to another head. It overlaps with a seek; the longer of the two counts.
    pub head_switch: Nanos,
    /// The order of service where the user of the drive does not say one.
    pub scheduler: Option<Scheduler>,
    pub overhead: Overhead,
    pub bus: Bus,
    pub cache: Cache,
}

impl Drive {
    /// True when all parameters are equal; what the drives are called, and where the parameters come from, may differ.
    pub fn has_parameters_of(&self, other: &Drive) -> bool {
        let named_so = || {
            let Drive { name, product, source, evidence, .. } = other.clone();
            Drive { name, product, source, evidence, ..self.clone() }
        };
        self.sectors == other.sectors && named_so() == *other
    }
}

/// Source of a drive's parameters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evidence {
    /// The model was compared with service times measured on the drive; see `docs/papers.md`. Only of drives of the catalogue, and of
    /// files with all of their parameters.
    Validated,
    /// The drive's file says so, but its parameters are those of no validated drive of the catalogue: a drive of the user's own, or
    /// one of the catalogue that was edited.
    SaidToBeValidated,
    /// Parameters extracted from a real drive, or published from such a measurement; the model was not compared with
    /// it.
    Extracted,
    /// Parameters from a data sheet or from a few published figures, completed by rules that the drive's
    /// documentation states.
    DataSheet,
    /// Parameters of a publication whose text was not at hand, as they are remembered.
    Recalled,
}

/// Cylinders with the same number of sectors per track.
#[derive(Clone, PartialEq, Debug)]
pub struct Zone {
    pub first_cylinder: u32,
    pub last_cylinder: u32,
    /// Physical sectors on a track, spares included.
    pub sectors_per_track: u32,
    /// Skew from one track to the next in the same cylinder, in sectors.
    pub track_skew: u32,
    /// Skew from the last track of a cylinder to the first of the next, in sectors.
    pub cylinder_skew: u32,
    /// Angle of the zone's first sector, in sectors from the index mark.
    pub first_sector_angle: u32,
    /// Sectors at the front of the zone that have no LBN, counted as if they had one: defect lists, firmware.
    pub reserved: u32,
    /// Spares in each unit of [`Drive::sparing`].
    pub spares: u32,
    /// Bad sectors (or tracks, with [`Sparing::Tracks`]) that LBNs skip, as positions counted from the zone's first
    /// physical sector (or track), ascending.
    pub slips: Cow<'static, [u32]>,
}

/// How a drive keeps spare sectors, that is, which physical sectors lose their LBN.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sparing {
    None,
    /// Whole tracks at the end of each zone; slips are tracks.
    Tracks,
    SectorsPerTrack,
    SectorsPerCylinder,
    /// Sectors at the end of every few cylinders.
    SectorsPerRange {
        cylinders: u32,
    },
    /// Sectors at the end of each zone. Slips use them up.
    SectorsPerZone,
    /// Sectors at the end of each zone, beyond those that slips use up.
    SectorsPerZoneBeyondSlips,
}

/// The order of the surfaces in a cylinder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SurfaceOrder {
    /// From the first head to the last in every cylinder; the next cylinder starts with the first head again.
    Forward,
    /// Every second cylinder of a zone runs backwards, so that going to the next cylinder needs no head switch.
    Serpentine,
    /// Each surface in turn for this many cylinders, inwards and outwards by turns, before the next surface; every
    /// second band takes the surfaces backwards. Usual on drives whose head switch takes longer than a seek to the next
    /// cylinder. All skews are [`Zone::track_skew`].
    Bands { cylinders: u32 },
    /// Likewise, but every band takes the surfaces from the first to the last.
    ForwardBands { cylinders: u32 },
}

/// Seek time as a function of the distance in cylinders. Distance zero takes no time.
#[derive(Clone, PartialEq, Debug)]
pub enum Seek {
    Constant(Nanos),
    /// Measured times, by ascending distance; linear between them and beyond the last.
    Table(Cow<'static, [(u32, Nanos)]>),
    /// `one + b·(d−1) + a·√(d−1)` through the three figures of a data sheet: `average` is the mean over random
    /// pairs of cylinders, `full` the seek over all of them. The factors are those of \[le93\].
    ThreePoint {
        one: Nanos,
        average: Nanos,
        full: Nanos,
    },
    /// `base + root·√d` up to some distance, a straight line beyond: the arm accelerates and brakes at first,
    /// and coasts later \[rw94\].
    TwoPiece(TwoPiece),
    /// `base + root·√d`, both in milliseconds.
    SquareRoot {
        base_ms: f64,
        root_ms: f64,
    },
}

/// See [`Seek::TwoPiece`]. Milliseconds, distances in cylinders.
#[derive(Clone, PartialEq, Debug)]
pub struct TwoPiece {
    pub root_base_ms: f64,
    pub root_ms: f64,
    /// The first distance on the straight line.
    pub line_from: u32,
    pub line_base_ms: f64,
    pub line_ms: f64,
    /// Measured times of the distances 1, 2, 3 ..., where the curve is choppy; may be empty.
    pub short: Cow<'static, [Nanos]>,
}

/// Costs of the drive's electronics per command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overhead {
    pub read_hit: AfterPair,
    pub read_miss: AfterPair,
    /// Writes that the cache accepts.
    pub write_hit: AfterPair,
    /// Writes that complete when they are on the medium.
    pub write_miss: AfterPair,
    /// From the last byte to the end of a read.
    pub read_completion: Nanos,
    /// From the last sector on the medium to the end of a write.
    pub write_completion: Nanos,
    /// Before each transfer over the bus.
    pub data_preparation: Nanos,
    /// Getting the bus back when data is ready, for drives that let go of it.
    pub reselect: Nanos,
    /// Letting go of the bus after a write's data has moved; the bus cannot be taken back before.
    pub write_disconnect: Nanos,
    /// The shortest positioning time of a write, unless it continues where the previous one ended.
    pub write_seek_min: Nanos,
}

/// An overhead that depends on the previous command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AfterPair {
    pub after_read: Nanos,
    pub after_write: Nanos,
}

/// The path between drive and host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bus {
    /// Time to send a sector to the host.
    pub read_sector: Nanos,
    /// Time to take a sector from the host.
    pub write_sector: Nanos,
    /// The drive lets go of the bus while it positions, and takes it back (see [`Overhead::reselect`]) once
    /// this part of a request, in per cent, has been read. `None`: it holds the bus from command to completion.
    pub disconnect_until_percent: Option<u32>,
    /// Once this many sectors have been read, if they are fewer than that part.
    pub disconnect_until_sectors: Option<u32>,
    /// The drive takes commands while it serves another, and their command overhead overlaps with that service.
    /// Otherwise the host keeps them back, as in all validation runs.
    pub tagged_queueing: bool,
}

/// The drive's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cache {
    pub segments: u32,
    /// Sectors that a segment holds.
    pub segment_sectors: u32,
    pub read_ahead: ReadAhead,
    /// A read that the cache satisfies lets an interrupted read-ahead continue.
    pub read_ahead_after_hit: bool,
    /// A new command may stop read-ahead in the middle of a sector; otherwise it waits for the end of the sector, or of
    /// the rotation to it.
    pub stop_in_sector: bool,
    /// The head starts to read wherever it lands inside a request, and keeps what it reads.
    pub read_on_arrival: bool,
    /// Likewise, sectors of the track ahead of the request that pass under the head are kept.
    pub keep_passing_sectors: bool,
    /// The head starts to write wherever it lands inside a request.
    pub write_on_arrival: bool,
    /// How much of a write must have arrived before the heads start to write it. `None`: one sector.
    pub write_start: Option<WriteStart>,
    pub write_behind: WriteBehind,
    /// Sectors sent to the host are dropped from the cache; only read-ahead data stays.
    pub forget_sent: bool,
    /// Reads find written data in the cache.
    pub read_written: bool,
    /// Writes use one segment that reads never take.
    pub write_segment_apart: bool,
}

/// Whether writes complete once the cache has them, and reach the medium afterwards.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteBehind {
    /// They complete when they are on the medium.
    None,
    /// One at a time: the drive takes the next command that needs the medium, or that writes, when the previous write
    /// is on the medium. Sequential writes gain nothing.
    One,
    /// Likewise, but a write that continues where the previous one ends is accepted while that is still being written,
    /// and the heads continue without a pause.
    Stream,
}

impl Cache {
    /// The cache of the same drive when it is switched off: nothing is read ahead, kept or written behind.
    #[must_use]
    pub fn off(self) -> Cache {
        Cache {
            segments: 1,
            read_ahead: ReadAhead::None,
            read_ahead_after_hit: false,
            read_on_arrival: false,
            keep_passing_sectors: false,
            write_behind: WriteBehind::None,
            forget_sent: true,
            read_written: false,
            write_segment_apart: false,
            ..self
        }
    }
}

/// See [`Cache::write_start`]. A write shorter than this threshold waits for all of its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteStart {
    pub sectors: u32,
    /// Writes of at least `long_from` sectors wait for this many instead.
    pub long_sectors: u32,
    pub long_from: u32,
}

/// How far a drive reads on after a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadAhead {
    None,
    /// At most this many sectors, and never to another track.
    TrackEnd {
        sectors: u32,
    },
    /// At most this many sectors, and never to another cylinder.
    CylinderEnd {
        sectors: u32,
    },
    /// This many sectors, wherever they are.
    Sectors {
        sectors: u32,
    },
    /// To the end of the track of the sector after the request, and one track further when the segment started on an
    /// earlier track, which indicates sequential reads.
    NextTrack,
}

impl Drive {
    /// Bytes a second that pass under a head on the densest tracks.
    pub fn media_rate(&self) -> u64 {
        let densest = self.zones.iter().map(|zone| zone.sectors_per_track).max().unwrap_or(0);
        u64::from(densest) * SECTOR_BYTES * u64::from(self.rpm) / 60
    }
}

impl AfterPair {
    /// An overhead that does not depend on the previous command.
    pub const fn always(time: Nanos) -> AfterPair {
        AfterPair { after_read: time, after_write: time }
    }

    pub const fn ms(after_read: f64, after_write: f64) -> AfterPair {
        AfterPair { after_read: ms(after_read), after_write: ms(after_write) }
    }

    pub(super) fn get(self, after_read: bool) -> Nanos {
        if after_read { self.after_read } else { self.after_write }
    }
}

impl Bus {
    /// One that takes no time, and that the drive holds from command to completion.
    pub const NONE: Bus = Bus {
        read_sector: Nanos::ZERO,
        write_sector: Nanos::ZERO,
        disconnect_until_percent: None,
        disconnect_until_sectors: None,
        tagged_queueing: false,
    };
}

impl Cache {
    /// One segment of 64 KiB without any optimisation, to be refined.
    pub const PLAIN: Cache = Cache {
        segments: 1,
        segment_sectors: 128,
        read_ahead: ReadAhead::None,
        read_ahead_after_hit: false,
        stop_in_sector: false,
        read_on_arrival: false,
        keep_passing_sectors: false,
        write_on_arrival: false,
        write_start: None,
        write_behind: WriteBehind::None,
        forget_sent: false,
        read_written: true,
        write_segment_apart: false,
    };
}

impl Overhead {
    pub const NONE: Overhead = Overhead {
        read_hit: AfterPair::always(Nanos::ZERO),
        read_miss: AfterPair::always(Nanos::ZERO),
        write_hit: AfterPair::always(Nanos::ZERO),
        write_miss: AfterPair::always(Nanos::ZERO),
        read_completion: Nanos::ZERO,
        write_completion: Nanos::ZERO,
        data_preparation: Nanos::ZERO,
        reselect: Nanos::ZERO,
        write_disconnect: Nanos::ZERO,
        write_seek_min: Nanos::ZERO,
    };
}

impl WriteStart {
    pub(super) fn sectors(self, count: u64) -> u64 {
        let sectors = if count >= u64::from(self.long_from) { self.long_sectors } else { self.sectors };
        u64::from(sectors).clamp(1, count.max(1))
    }
}

impl Zone {
    pub(super) fn cylinders(&self) -> u32 {
        self.last_cylinder - self.first_cylinder + 1
    }
}

/// Milliseconds as data sheets print them, to the nearest nanosecond.
pub(super) const fn ms(value: f64) -> Nanos {
    Nanos((value * 1e6 + 0.5) as u64)
}
