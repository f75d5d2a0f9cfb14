//! A new volume whose free space is distributed as after long use.
//!
//! Paper: [se95 §5.3] studied used file systems by copying onto an empty one only their maps of free space. Those maps
//! are not public, so one is drawn. What the text says of them (§5.2): "most of the free space [is] located at the end
//! of the cylinder group", and "near the beginning of a cylinder group [it] is more fragmented than [...] near its end".
//!
//! Differences from the paper
//!   1. Its copies had blocks that were in use and belonged to nothing. Here they belong to a file, [`BALLAST`], which
//!      takes one inode and no directory, so that the volume is consistent and can be mounted by any UFS1. Its data is
//!      whatever was on the device before.
//!   2. How the share of free blocks rises towards the end of a group is not printed; here it rises evenly.

use super::format::*;
use super::layout::Layout;
use crate::codec;
use crate::device::{Buf, Data, Device, WriteFlags};
use crate::fs::{FileKind, FsError, FsResult};
use crate::rng::Rng;
use crate::units::{SECTOR_BYTES, WallTime};

/// Name of the file that owns what is not free.
pub const BALLAST: &str = "ballast";

pub(super) const BALLAST_INO: InodeNo = InodeNo(ROOT_INO.0 + 1);

/// Part of a group in which free runs are short.
const FRONT: f64 = 0.13;

/// Probability that the block behind a free one is also free, in front and behind, on a volume that is 75 % full. With
/// these a new file lies there as [se95 §5.2] found files on real ones: of files of two blocks 37 % are in one piece; of the
/// blocks of files of 32 blocks 80 % follow the one before. `new_files_lie_as_published` measures it.
const FOLLOWS_IN_FRONT: f64 = 0.37;
const FOLLOWS_BEHIND: f64 = 0.985;

/// The share of free blocks for which these are.
const FREE_PUBLISHED: f64 = 0.25;

/// Maps that are drawn for a volume, of which the one counts that is closest to as full as was asked for.
const DRAWS: u64 = 16;

/// Most blocks of such a volume: they are listed in memory.
const BLOCKS_MAX: u64 = 1 << 24;

/// Draws block after block of a group: a two-state Markov chain, whose share of free blocks and whose length of free
/// runs depend on the place.
struct FreeRuns {
    rng: Rng,
    free: f64,
    /// How many times as long free runs are as on the volume that is 75 % full.
    longer: f64,
    before: bool,
}

impl FreeRuns {
    /// `free`: the share of all blocks.
    fn new(seed: u64, free: f64) -> FreeRuns {
        // What is in use is in pieces as long, so that on a fuller volume those that are free are shorter: "a highly
        // utilized file system has few free blocks, which are unlikely to be well-clustered" [se95 §5.4].
        let odds = |free: f64| free / (1.0 - free);
        FreeRuns { rng: Rng::new(seed), free, longer: odds(free) / odds(FREE_PUBLISHED), before: false }
    }

    /// Share of free blocks at `place`, from 0 to 1 in the group: none at its beginning, or where that is not enough
    /// all at its end.
    fn share(&self, place: f64) -> f64 {
        if self.free <= 0.5 { 2.0 * self.free * place } else { 1.0 - 2.0 * (1.0 - self.free) * (1.0 - place) }
    }

    /// True when the block at `place` is free.
    fn next(&mut self, place: f64) -> bool {
        let free = self.share(place).clamp(0.0, 1.0);
        let ends = 1.0 - if place < FRONT { FOLLOWS_IN_FRONT } else { FOLLOWS_BEHIND };
        // Runs cannot be shorter than where free blocks lie at random.
        let follows = (1.0 - ends / self.longer).max(free);
        let chance = match self.before {
            true => follows,
            // As many runs begin as end.
            false if free < 1.0 => (1.0 - follows) * free / (1.0 - free),
            false => 1.0,
        };
        self.before = self.rng.unit_f64() < chance;
        self.before
    }
}

/// The blocks of an aged volume that are in use, and which of them hold pointers.
pub(super) struct Ballast {
    /// By number of the block on the volume.
    used: Vec<bool>,
    inode: Inode,
    /// Blocks of pointers, with their contents.
    pointers: Vec<(FragNo, Buf)>,
}

/// Makes a file of blocks.
struct Builder<'a> {
    layout: &'a Layout,
    /// Those that are left, in order.
    blocks: std::vec::IntoIter<FragNo>,
    /// Blocks of data.
    data: u64,
    pointers: Vec<(FragNo, Buf)>,
}

impl Builder<'_> {
    /// The next block, with the pointers of `level` and what they lead to.
    fn tree(&mut self, level: u32) -> FragNo {
        let Some(at) = self.blocks.next() else { return FragNo::NONE };
        if level == 0 {
            self.data += 1;
            return at;
        }
        let mut block = Buf::zeroed(self.layout.block_bytes as usize);
        for slot in 0..self.layout.pointers_per_block as usize {
            // A block of pointers without any is not allocated.
            if self.blocks.len() < level as usize {
                break;
            }
            codec::put_at(&mut block, 4 * slot, self.tree(level - 1).0);
        }
        self.pointers.push((at, block));
        at
    }
}

impl Ballast {
    /// Draws what is in use, `percent` of the volume, when its root directory has its only fragment at `root_at`. The same
    /// `seed` gives the same map; `uid` and `gid` own the file.
    ///
    /// # Errors
    /// `Invalid` when the volume is too large.
    pub(super) fn draw(
        layout: &Layout,
        percent: u32,
        seed: u64,
        [uid, gid]: [u32; 2],
        root_at: FragNo,
        now: WallTime,
    ) -> FsResult<Ballast> {
        let blocks = layout.size / layout.frag;
        if u64::from(blocks) > BLOCKS_MAX {
            return Err(FsError::Invalid("an aged volume has at most 16 million blocks"));
        }
        let mut used = vec![false; blocks as usize];
        let wanted = f64::from(layout.dsize / layout.frag) * f64::from(percent) / 100.0;
        let free = 1.0 - f64::from(percent) / 100.0;
        let mut seeds = Rng::new(seed);
        let maps = (0..DRAWS).map(|_| Self::draw_map(layout, FreeRuns::new(seeds.next_u64(), free), root_at));
        let off = |map: &Vec<FragNo>| (map.len() as f64 - wanted).abs();
        let closest = maps.min_by(|one, other| off(one).total_cmp(&off(other)));
        let mut taken = closest.unwrap_or_default();
        let mut builder = Builder { layout, blocks: taken.clone().into_iter(), data: 0, pointers: Vec::new() };
        let mut inode = Inode { mode: FileKind::Regular.mode_bits() as u16 | 0o400, nlink: 1, ..Inode::FREE };
        for pointer in &mut inode.db {
            *pointer = builder.tree(0);
        }
        for (level, pointer) in (1..).zip(&mut inode.ib) {
            if builder.blocks.len() > level as usize {
                *pointer = builder.tree(level);
            }
        }
        // Too few for another block of pointers: they stay free.
        taken.truncate(taken.len() - builder.blocks.len());
        for at in &taken {
            used[(at.0 / layout.frag) as usize] = true;
        }
        inode.size = builder.data * u64::from(layout.block_bytes);
        inode.blocks = (taken.len() as u64 * u64::from(layout.block_bytes) / SECTOR_BYTES) as u32;
        inode.generation = now.seconds as u32;
        (inode.uid, inode.gid) = (uid, gid);
        inode.old_ids = [uid as u16, gid as u16];
        inode.set_atime(now);
        inode.set_mtime(now);
        inode.set_ctime(now);
        Ok(Ballast { used, inode, pointers: builder.pointers })
    }

    /// The blocks in use, in order.
    fn draw_map(layout: &Layout, mut runs: FreeRuns, root_at: FragNo) -> Vec<FragNo> {
        let mut taken = Vec::new();
        for group in layout.group_numbers() {
            let all = (0..layout.group_frags(group)).step_by(layout.frag as usize);
            let all = all.map(|offset| layout.group_base(group) + offset);
            let data: Vec<FragNo> = all.filter(|&at| layout.is_data(at, layout.frag)).collect();
            for (index, &at) in data.iter().enumerate() {
                let free = runs.next(index as f64 / data.len() as f64);
                if !free && !(at..at + layout.frag).contains(&root_at) {
                    taken.push(at);
                }
            }
        }
        taken
    }

    pub(super) fn uses(&self, layout: &Layout, at: FragNo) -> bool {
        self.used.get((at.0 / layout.frag) as usize).is_some_and(|used| *used)
    }

    pub(super) fn inode(&self) -> &Inode {
        &self.inode
    }

    /// Writes the blocks of pointers.
    pub(super) async fn write(self, device: &Device, layout: &Layout) -> FsResult<()> {
        for (at, block) in self.pointers {
            let block: Data = block.freeze();
            super::io::write_bytes(device, layout.sector(at), block, WriteFlags::NONE).await?;
        }
        Ok(())
    }
}
