//! Where the tracks of a device are, in blocks: the geometry that eager writing knows.
//!
//! A block lies on the track of its first sector. Tracks follow each other by address; tracks of one cylinder that do
//! so are its *neighbours*. On a drive that changes surfaces only after several cylinders, a cylinder's tracks do not
//! follow each other, and each counts as a cylinder of its own here.
//!
//! Without a head, stretches of [`STRETCH_BYTES`] take the place of tracks.

use super::layout::Layout;
use crate::device::HeadView;
use crate::units::{MIB, SECTOR_BYTES};

/// Unit of filling, where there are no tracks: a power of two that every drive transfers many times over in one seek
/// time, and that file systems allocate in one extent.
pub const STRETCH_BYTES: u64 = MIB;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tracks {
    /// First block of each track, then the end of the last.
    first: Vec<u32>,
    /// First track of each cylinder, then the end of the last.
    cylinders: Vec<u32>,
    /// First cylinder of each arm, then the end of the last.
    arms: Vec<u32>,
}

impl Tracks {
    /// The tracks of a layout on a device with a head, or stretches.
    pub fn new(layout: &Layout, head: Option<&dyn HeadView>) -> Tracks {
        let mut tracks = Tracks { first: Vec::new(), cylinders: Vec::new(), arms: Vec::new() };
        match head {
            Some(head) => tracks.walk(layout, head),
            None => {
                let stretch = (STRETCH_BYTES / SECTOR_BYTES / layout.block_sectors).max(1) as usize;
                tracks.first = (0..layout.blocks).step_by(stretch).collect();
                tracks.cylinders = (0..tracks.first.len() as u32).collect();
                tracks.arms = vec![0];
            }
        }
        tracks.first.push(layout.blocks);
        tracks.cylinders.push(tracks.first.len() as u32 - 1);
        tracks.arms.push(tracks.cylinders.len() as u32 - 1);
        debug_assert!(tracks.first.is_sorted_by(|one, two| one < two), "S1: each block lies on one track");
        debug_assert!(tracks.cylinders.is_sorted_by(|one, two| one < two), "S1: each track lies in one cylinder");
        debug_assert!(tracks.arms.is_sorted_by(|one, two| one < two), "each cylinder has one arm");
        tracks
    }

    fn walk(&mut self, layout: &Layout, head: &dyn HeadView) {
        let (mut cylinder, mut arm) = (None, None);
        let mut block = 0;
        while block < layout.blocks {
            // A head that cannot locate its own sectors has one long track.
            let Some(place) = head.track_of(layout.sector_of(block)) else { break };
            if arm.replace(place.arm) != Some(place.arm) {
                self.arms.push(self.cylinders.len() as u32);
                cylinder = None;
            }
            if cylinder.replace(place.cylinder) != Some(place.cylinder) {
                self.cylinders.push(self.first.len() as u32);
            }
            self.first.push(block);
            let end = (place.first.0 + place.sectors).div_ceil(layout.block_sectors);
            block = u32::try_from(end).unwrap_or(u32::MAX).max(block.saturating_add(1));
        }
        if self.first.is_empty() {
            self.first.push(0);
            self.cylinders.push(0);
            self.arms.push(0);
        }
    }

    pub fn count(&self) -> u32 {
        self.first.len() as u32 - 1
    }

    pub fn cylinder_count(&self) -> u32 {
        self.cylinders.len() as u32 - 1
    }

    pub fn track_of(&self, block: u32) -> u32 {
        self.first.partition_point(|&first| first <= block).saturating_sub(1) as u32
    }

    /// Blocks of a track.
    pub fn blocks(&self, track: u32) -> std::ops::Range<u32> {
        self.first[track as usize]..self.first[track as usize + 1]
    }

    pub fn cylinder_of(&self, track: u32) -> u32 {
        self.cylinders.partition_point(|&first| first <= track).saturating_sub(1) as u32
    }

    pub fn arm_count(&self) -> u32 {
        self.arms.len() as u32 - 1
    }

    /// The arm that reaches a track.
    pub fn arm_of(&self, track: u32) -> u32 {
        let cylinder = self.cylinder_of(track);
        self.arms.partition_point(|&first| first <= cylinder).saturating_sub(1) as u32
    }

    /// Cylinders that an arm reaches.
    pub fn cylinders(&self, arm: u32) -> std::ops::Range<u32> {
        self.arms[arm as usize]..self.arms[arm as usize + 1]
    }

    /// Tracks of a cylinder.
    pub fn tracks(&self, cylinder: u32) -> std::ops::Range<u32> {
        self.cylinders[cylinder as usize]..self.cylinders[cylinder as usize + 1]
    }
}
