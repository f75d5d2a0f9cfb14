//! Checks whether the devices below are assembled as they were when the volume was last used.
//!
//! Devices that concatenate, stripe or permute others store nothing about that, and UFS1 has no checksums: with members
//! in another order, the superblock may still be found, and live data in fragments that the maps call free would be
//! overwritten. So where the device can be assembled differently, two things are checked before anything is written.
//! Every group records its own number, at a position that follows from the number. And the superblock of a volume that
//! was closed here has, in spare fields, the addresses and checksums of some fragments with data, on all parts of the
//! device that have any (`FORMAT.md`, "Witnesses"). Other systems preserve these fields; once they have written, the
//! time of the superblock differs, and the witnesses are ignored.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;

use super::format::*;
use super::group::bit;
use super::layout::Layout;
use crate::codec::crc32c;
use crate::device::rescue::rescue;
use crate::device::{Buf, Device};
use crate::fs::{FsError, FsResult};
use crate::units::{SECTOR_BYTES, Sector};

/// Requests in parallel.
const READS_AT_ONCE: usize = 32;

/// The spare fields that are in no other system's use: a seal, the time, and the witnesses.
const NOTE: std::ops::Range<usize> = 4..16;
const SEAL: usize = 4;
const TIME: usize = 5;
const FIRST: usize = 6;
const WITNESSES_MAX: usize = NOTE.end - FIRST;

/// Upper half of the seal; the lower one is a checksum of the rest.
const NOTE_MAGIC: u32 = u32::from_be_bytes(*b"Wtns");

/// Groups in which witnesses are looked for.
const GROUPS_MAX: u32 = 64;

/// Fragments that are read to find witnesses, the same number for each part. A part may have none that can be one: they are
/// zeroes, or have the same bytes as others. Small volumes are read as a whole then.
const READS_MAX: usize = 1 << 16;

/// True where the parts of a device could be assembled differently.
fn is_assembled(device: &Device) -> bool {
    device.parts() > 1 || device.arrangement() != 0
}

fn seal_of(superblock: &Superblock) -> u64 {
    let bytes: Vec<u8> = superblock.sparecon64[TIME..NOTE.end].iter().flat_map(|field| field.to_le_bytes()).collect();
    u64::from(NOTE_MAGIC) << 32 | u64::from(crc32c(&bytes))
}

/// The fields are unused, or ours.
fn is_ours(superblock: &Superblock) -> bool {
    let note = &superblock.sparecon64[NOTE];
    superblock.is_updated() && (note.iter().all(|&field| field == 0) || note[0] >> 32 == u64::from(NOTE_MAGIC))
}

/// Removes the witnesses, before what they saw may change.
pub(super) fn forget(superblock: &mut Superblock) {
    if is_ours(superblock) {
        superblock.sparecon64[NOTE].fill(0);
    }
}

/// Puts the time of the superblock to the witnesses, when they are to be written.
pub(super) fn seal(superblock: &mut Superblock) {
    if superblock.is_closed() && is_ours(superblock) && superblock.sparecon64[FIRST] != 0 {
        superblock.sparecon64[TIME] = superblock.time;
        superblock.sparecon64[SEAL] = seal_of(superblock);
    }
}

/// Fragments and their checksums, as the superblock has them.
pub(super) fn witnesses(superblock: &Superblock) -> Vec<(FragNo, u32)> {
    let note = &superblock.sparecon64;
    if !superblock.is_updated() || note[SEAL] != seal_of(superblock) || note[TIME] != superblock.time {
        return Vec::new();
    }
    let witness = |&field: &u64| (FragNo(field as u32), (field >> 32) as u32);
    note[FIRST..NOTE.end].iter().filter(|field| **field != 0).map(witness).collect()
}

/// Chooses witnesses on a volume whose data and maps are all written.
pub(super) async fn remember(
    device: &Device,
    layout: &Layout,
    superblock: &Superblock,
) -> FsResult<Vec<(FragNo, u32)>> {
    if !is_assembled(device) || !is_ours(superblock) {
        return Ok(Vec::new());
    }
    let maps = maps(device, layout).await;
    let reads_max = READS_MAX / device.parts().max(1) as usize;
    let mut search = Search {
        device,
        layout,
        reads_max,
        chosen: Vec::new(),
        on_part: BTreeMap::new(),
        reads_of: BTreeMap::new(),
        read: BTreeSet::new(),
    };
    // One of each part in each round, so that all parts have some.
    for round in 0..WITNESSES_MAX {
        for (group, map) in &maps {
            search.in_group(*group, map, round).await;
        }
    }
    Ok(search.chosen)
}

/// The maps of some groups: a bit for each fragment, which is set where it is free.
async fn maps(device: &Device, layout: &Layout) -> Vec<(GroupNo, Vec<u8>)> {
    let some = layout.groups.min(GROUPS_MAX);
    let mut maps = Vec::new();
    for number in 0..some {
        let group = GroupNo((u64::from(number) * u64::from(layout.groups) / u64::from(some)) as u32);
        let bytes = layout.cgsize.next_multiple_of(layout.frag_bytes) as usize;
        let Some(block) = whole(device, layout.sector(layout.group_block(group)), bytes).await else { continue };
        let Some(head) = Group::decode(&block).filter(|head| head.magic == GROUP_MAGIC && head.cgx == group) else {
            continue;
        };
        maps.push((group, block.get(head.freeoff as usize..).unwrap_or(&[]).to_vec()));
    }
    maps
}

/// A search for witnesses.
struct Search<'a> {
    device: &'a Device,
    layout: &'a Layout,
    /// Of each part.
    reads_max: usize,
    chosen: Vec<(FragNo, u32)>,
    /// Those chosen on each part, and the reads of it.
    on_part: BTreeMap<u32, usize>,
    reads_of: BTreeMap<u32, usize>,
    /// What was no witness in one round is none in the next.
    read: BTreeSet<FragNo>,
}

impl Search<'_> {
    fn has_enough(&self, part: u32, round: usize) -> bool {
        self.chosen.len() >= WITNESSES_MAX || self.on_part.get(&part).is_some_and(|&count| count > round)
    }

    /// Nothing more is read of the part in this round.
    fn is_settled(&self, part: u32, round: usize) -> bool {
        self.has_enough(part, round) || self.reads_of.get(&part).is_some_and(|&reads| reads >= self.reads_max)
    }

    async fn in_group(&mut self, group: GroupNo, map: &[u8], round: usize) {
        let (base, data) = (self.layout.group_base(group), self.layout.group_data(group));
        let (first, frags) = (data.0 - base.0, self.layout.group_frags(group));
        let count = frags.saturating_sub(first);
        let draw = crc32c(&[round.to_le_bytes(), (group.0 as usize).to_le_bytes()].concat());
        let offsets = (0..count).map(|step| first + (draw.wrapping_add(step) % count));
        let mut used = offsets.filter(|&offset| !bit(map, offset)).map(|offset| base + offset);
        // Most volumes have a witness among the first few. Where there are only zeroes, many are read at once.
        let mut at_once = 1;
        loop {
            let some = self.next_few(&mut used, at_once, round);
            if some.is_empty() {
                return;
            }
            let (device, bytes) = (self.device, self.layout.frag_bytes as usize);
            let reads = some.iter().map(|&(at, _)| whole(device, self.layout.sector(at), bytes));
            let found = join_all(reads).await;
            for (&(at, part), bytes) in some.iter().zip(&found) {
                self.look_at(at, part, bytes.as_deref(), round);
            }
            at_once = (at_once * 2).min(READS_AT_ONCE);
        }
    }

    /// The next of `used` that can be witnesses, each with its part: as many as are to be read at once.
    fn next_few(
        &mut self,
        used: &mut impl Iterator<Item = FragNo>,
        at_once: usize,
        round: usize,
    ) -> Vec<(FragNo, u32)> {
        let mut some = Vec::new();
        while some.len() < at_once && !(0..self.device.parts()).all(|part| self.is_settled(part, round)) {
            let Some(at) = used.next() else { break };
            if self.layout.is_summary(at) || self.read.contains(&at) {
                continue;
            }
            let (part, _) = self.device.part_at(self.layout.sector(at));
            if !self.is_settled(part, round) {
                *self.reads_of.entry(part).or_insert(0) += 1;
                some.push((at, part));
            }
        }
        some
    }

    /// Chooses it if it is the only one with its content, and its part has none of this round.
    fn look_at(&mut self, at: FragNo, part: u32, bytes: Option<&[u8]>, round: usize) {
        if self.has_enough(part, round) {
            return; // The next round may choose it.
        }
        self.read.insert(at);
        let Some(bytes) = bytes else { return };
        let sum = crc32c(bytes);
        if bytes.iter().any(|&byte| byte != 0) && !self.chosen.iter().any(|(_, known)| *known == sum) {
            self.chosen.push((at, sum));
            *self.on_part.entry(part).or_insert(0) += 1;
        }
    }
}

/// Bytes of the device; `None` where some cannot be read.
async fn whole(device: &Device, at: Sector, bytes: usize) -> Option<Buf> {
    let read = rescue(device, at, bytes as u64 / SECTOR_BYTES).await.ok()?;
    read.lost.is_empty().then_some(read.bytes)
}

/// Enters witnesses, to be sealed.
pub(super) fn enter(superblock: &mut Superblock, chosen: &[(FragNo, u32)]) {
    forget(superblock);
    if !is_ours(superblock) || chosen.is_empty() {
        return;
    }
    superblock.sparecon64[SEAL] = u64::from(NOTE_MAGIC) << 32;
    for (field, (at, sum)) in superblock.sparecon64[FIRST..NOTE.end].iter_mut().zip(chosen) {
        *field = u64::from(at.0) | u64::from(*sum) << 32;
    }
}

/// What of an error is damaged where blocks are not in their places.
pub const PLACES: &str = "places of blocks";

/// What is not where it should be.
#[derive(Default)]
pub(super) struct Displaced {
    /// The blocks of groups.
    groups: Vec<FragNo>,
    pub(super) witnesses: Vec<FragNo>,
}

impl Displaced {
    pub(super) fn count(&self) -> usize {
        self.groups.len() + self.witnesses.len()
    }

    /// The reason not to write to `device`.
    pub(super) fn refusal(&self, device: &Device) -> FsError {
        let first = self.groups.iter().chain(&self.witnesses).min().copied().unwrap_or(FragNo::NONE);
        let detail = format_args!(
            "{} from what the volume had there when it was closed, at fragment {first}{}: the devices below may now be assembled \
             differently, and writing would destroy what is on them; give the options, and the order of members, that the volume was \
             made with",
            match self.count() {
                1 => "one block differs".to_owned(),
                more => format!("{more} blocks differ"),
            },
            if self.count() == 1 { "" } else { " and others" },
        );
        FsError::corrupt(PLACES, device.describe(), detail)
    }
}

/// Looks at the groups of a volume, and at the witnesses.
///
/// # Errors
/// `Device`.
pub(super) async fn look(device: &Device, layout: &Layout, superblock: &Superblock) -> FsResult<Displaced> {
    let mut displaced = Displaced::default();
    if !is_assembled(device) {
        return Ok(displaced);
    }
    let groups: Vec<GroupNo> = layout.group_numbers().collect();
    for some in groups.chunks(READS_AT_ONCE) {
        let found = join_all(some.iter().map(|&group| is_group(device, layout, group))).await;
        for (&group, is_in_place) in some.iter().zip(found) {
            if !is_in_place? {
                displaced.groups.push(layout.group_block(group));
            }
        }
    }
    for (at, sum) in witnesses(superblock) {
        if at.0 < layout.size && !is_witness(device, layout, at, sum).await? {
            displaced.witnesses.push(at);
        }
    }
    Ok(displaced)
}

/// True, too, where the group's block cannot be read: that says nothing of its place.
async fn is_group(device: &Device, layout: &Layout, group: GroupNo) -> FsResult<bool> {
    let at = layout.sector(layout.group_block(group));
    let read = rescue(device, at, u64::from(layout.frag_bytes) / SECTOR_BYTES).await?;
    let head = Group::decode(&read.bytes);
    Ok(!read.lost.is_empty() || head.is_some_and(|head| head.magic == GROUP_MAGIC && head.cgx == group))
}

/// As [`is_group`].
async fn is_witness(device: &Device, layout: &Layout, at: FragNo, sum: u32) -> FsResult<bool> {
    let read = rescue(device, layout.sector(at), u64::from(layout.frag_bytes) / SECTOR_BYTES).await?;
    Ok(!read.lost.is_empty() || crc32c(&read.bytes) == sum)
}
