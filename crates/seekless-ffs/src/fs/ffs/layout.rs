//! Positions on a volume: the superblock's numbers, checked once, and the arithmetic on them.
//!
//! Addresses count fragments from the start of the volume, as in the pointers of inodes.
//!
//! Invariants, all checked by [`Layout::new`]
//!   L1  Sizes are powers of two where the format requires it, and a block has at most eight fragments.
//!   L2  The groups cover the volume without a gap; each holds its own bookkeeping, including the last one.
//!   L3  Everything that the summary area and a group's maps need fits at its position.

use std::ops::Range;

use super::format::*;
use crate::fs::{FsError, FsResult};
use crate::units::{SECTOR_BYTES, Sector};

/// The numbers of a volume that never change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    pub block_bytes: u32,
    pub frag_bytes: u32,
    /// Fragments of a block.
    pub frag: u32,
    /// Fragments of the volume.
    pub size: u32,
    /// Fragments for data.
    pub dsize: u32,
    pub groups: u32,
    pub frags_per_group: u32,
    pub inodes_per_group: u32,
    pub inodes_per_block: u32,
    pub pointers_per_block: u32,
    pub sblkno: u32,
    pub cblkno: u32,
    pub iblkno: u32,
    pub dblkno: u32,
    pub cgoffset: u32,
    pub cgmask: u32,
    pub csaddr: FragNo,
    pub cssize: u32,
    pub cgsize: u32,
    pub minfree: u32,
    pub maxcontig: u32,
    pub maxbpg: u32,
    pub contigsumsize: u32,
    pub maxsymlinklen: u32,
    /// Most bytes of a file according to the superblock.
    pub file_bytes_max: u64,
    /// Most bytes that pointers can address, whatever the superblock says.
    pub addressable_bytes: u64,
    pub rotation: Rotation,
}

/// What the superblock says about the drive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rotation {
    /// Time to skip between contiguous runs, in ms.
    pub rotdelay: u32,
    /// Revolutions in a second.
    pub rps: u32,
    /// Sectors of a fragment, a track and a cylinder.
    pub nspf: u32,
    pub nsect: u32,
    pub npsect: u32,
    pub spc: u32,
    pub interleave: u32,
    pub trackskew: u32,
    /// Cylinders of a group.
    pub cpg: u32,
    /// Rotational positions that are distinguished.
    pub nrpos: u32,
    /// Cylinders after which positions repeat; 0 without tables.
    pub cpc: u32,
    /// First block at each position of each cylinder of a cycle, or -1. Empty without tables.
    pub first: Vec<i16>,
    /// Distance of the next block at the same position; 0 at the end.
    pub next: Vec<u8>,
}

impl Rotation {
    pub fn has_tables(&self) -> bool {
        self.cpc > 0 && self.nrpos > 1 && !self.first.is_empty()
    }

    /// Cylinder in its group of the fragment `at` of a group.
    pub fn cylinder(&self, at: u32) -> u32 {
        (u64::from(at) * u64::from(self.nspf) / u64::from(self.spc)) as u32
    }

    /// Rotational position of the fragment `at` of a group.
    pub fn position(&self, at: u32) -> u32 {
        if self.nrpos <= 1 {
            return 0;
        }
        let in_cylinder = u64::from(at) * u64::from(self.nspf) % u64::from(self.spc);
        let [nsect, skew, interleave, nrpos, npsect] =
            [self.nsect, self.trackskew, self.interleave, self.nrpos, self.npsect].map(u64::from);
        let skewed =
            (in_cylinder / nsect).wrapping_mul(skew).wrapping_add((in_cylinder % nsect).wrapping_mul(interleave));
        ((skewed % nsect * nrpos / npsect) % nrpos) as u32
    }
}

/// Reads the rotational tables, which lie behind the fields of the superblock.
fn read_tables(superblock: &Superblock, raw: &[u8]) -> Option<(Vec<i16>, Vec<u8>)> {
    let blocks_per_cycle = u64::from(superblock.spc) * u64::from(superblock.cpc)
        / (u64::from(superblock.nspf) * u64::from(superblock.frag)).max(1);
    let positions = u64::from(superblock.cpc) * u64::from(superblock.nrpos);
    let (first_at, next_at) = (u64::from(superblock.postbloff), u64::from(superblock.rotbloff));
    let end = raw.len() as u64;
    // The first generation had room for small tables among its fields.
    const OLD_TABLES: u64 = 860;
    let first_possible = if superblock.is_updated() { Superblock::BYTES as u64 } else { OLD_TABLES };
    let fits = positions <= end
        && blocks_per_cycle <= end
        && first_at >= first_possible
        && first_at + 2 * positions <= end
        && next_at >= Superblock::BYTES as u64
        && next_at + blocks_per_cycle <= end;
    if !fits {
        return None;
    }
    let first = raw[first_at as usize..][..2 * positions as usize].chunks_exact(2);
    let first = first.map(|bytes| crate::codec::get_at::<u16>(bytes, 0).unwrap_or(0) as i16).collect();
    Some((first, raw[next_at as usize..][..blocks_per_cycle as usize].to_vec()))
}

/// Reports `field` as impossible unless `holds`; `wanted` says what it has to be.
fn require(holds: bool, field: &str, value: impl Into<u64>, wanted: &str) -> FsResult<()> {
    if holds {
        return Ok(());
    }
    let found = format_args!("it is {}, not {wanted}", value.into()).to_string();
    Err(FsError::corrupt("superblock", format_args!("field {field}"), found))
}

/// Sizes of blocks and fragments (L1).
fn check_units(sb: &Superblock) -> FsResult<()> {
    let is_block = sb.bsize.is_power_of_two() && (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&sb.bsize);
    require(is_block, "bsize", sb.bsize, "a power of two from 4096 to 65536")?;
    let is_frag = sb.fsize.is_power_of_two() && u64::from(sb.fsize) >= SECTOR_BYTES && sb.fsize <= sb.bsize;
    require(is_frag, "fsize", sb.fsize, "a power of two from 512 to the size of a block")?;
    let frag = sb.bsize / sb.fsize;
    require(sb.frag == frag && frag as usize <= FRAGS_MAX, "frag", sb.frag, "the fragments of a block, at most 8")?;
    require(sb.inopb == sb.bsize / Inode::BYTES as u32, "inopb", sb.inopb, "the inodes of a block")?;
    require(sb.nindir == sb.bsize / 4, "nindir", sb.nindir, "the pointers of a block")
}

/// Fragments of the volume. A superblock with 64-bit counts has its numbers in two places.
fn check_size(sb: &Superblock, device_bytes: u64) -> FsResult<u32> {
    let size = if sb.is_updated() && sb.old_size == 0 { sb.size } else { sb.old_size.into() };
    require(size > 0 && size <= i32::MAX as u64, "size", size, "from 1 to 2147483647")?;
    let bytes = size * u64::from(sb.fsize);
    if bytes > device_bytes {
        let detail = format_args!(
            "it has {bytes} bytes, and the device {device_bytes}: an image that was cut can be read when `truncate -s {bytes} IMAGE` \
             makes it as long again"
        )
        .to_string();
        return Err(FsError::corrupt("volume", Sector(device_bytes / SECTOR_BYTES), detail));
    }
    require(!sb.is_updated() || sb.size == size, "size", sb.size, "the same in both places")?;
    let is_same = !sb.is_updated() || sb.csaddr == 0 || sb.csaddr == u64::from(sb.old_csaddr);
    require(is_same, "csaddr", sb.csaddr, "the same in both places")?;
    Ok(size as u32)
}

/// Sizes of groups (L2).
fn check_groups(sb: &Superblock, size: u32) -> FsResult<()> {
    require(sb.fpg > 0 && sb.fpg.is_multiple_of(sb.frag), "fpg", sb.fpg, "a multiple of a block's fragments")?;
    require(sb.ncg > 0 && sb.ncg == size.div_ceil(sb.fpg), "ncg", sb.ncg, "the groups that cover the volume")?;
    let fits = u64::from(sb.ipg) * u64::from(sb.ncg) <= u32::MAX.into();
    let is_whole = sb.ipg > 0 && sb.ipg.is_multiple_of(sb.inopb);
    require(is_whole && fits, "ipg", sb.ipg, "a multiple of a block's inodes, and within 32 bits for all groups")
}

/// Positions in a group, in their order (L3).
fn check_positions(sb: &Superblock, size: u32) -> FsResult<()> {
    let superblock_frags = (SUPERBLOCK_BYTES as u32).div_ceil(sb.fsize);
    let boot_end = (SUPERBLOCK_OFFSET as u32 + SUPERBLOCK_BYTES as u32).div_ceil(sb.fsize);
    let is_block_behind = |at: u32, first: u32, frags: u32| {
        u64::from(at) >= u64::from(first) + u64::from(frags) && at.is_multiple_of(sb.frag) && at <= sb.fpg
    };
    require(is_block_behind(sb.sblkno, boot_end.min(size), 0), "sblkno", sb.sblkno, "behind the first superblock")?;
    let is_behind_copy = is_block_behind(sb.cblkno, sb.sblkno, superblock_frags);
    require(is_behind_copy, "cblkno", sb.cblkno, "behind the copy of the superblock")?;
    require(is_block_behind(sb.iblkno, sb.cblkno, sb.frag), "iblkno", sb.iblkno, "behind the group's block")?;
    let inode_frags = sb.ipg / sb.inopb * sb.frag;
    let is_behind = sb.dblkno == sb.iblkno.saturating_add(inode_frags) && sb.dblkno <= sb.fpg;
    require(is_behind, "dblkno", sb.dblkno, "right behind the inodes")?;
    let furthest = u64::from(sb.cgoffset) * u64::from(!sb.cgmask) + u64::from(sb.dblkno);
    let stays = sb.cgoffset == 0 || sb.ncg == 1 || furthest <= u64::from(sb.fpg);
    let wanted = "small enough for the bookkeeping to stay in its group";
    require(sb.cgoffset.is_multiple_of(sb.frag) && stays, "cgoffset", sb.cgoffset, wanted)
}

/// The maps of a group and the summaries of all (L3). Returns the first fragment of the summaries.
fn check_maps(sb: &Superblock, size: u32) -> FsResult<FragNo> {
    require(sb.contigsumsize <= CONTIG_SUM_MAX, "contigsumsize", sb.contigsumsize, "at most 16")?;
    let fits = sb.cgsize <= sb.bsize && sb.cgsize as usize >= Group::BYTES;
    require(fits, "cgsize", sb.cgsize, "at most a block, and at least a group's head")?;
    let csaddr = if sb.is_updated() && sb.csaddr != 0 { sb.csaddr } else { sb.old_csaddr.into() };
    let cs_frags = u64::from(sb.cssize.div_ceil(sb.fsize));
    let summaries = u64::from(sb.ncg) * Csum::BYTES as u64;
    let is_enough = (summaries..summaries + u64::from(sb.bsize)).contains(&sb.cssize.into());
    require(is_enough, "cssize", sb.cssize, "room for a summary of each group, and little more")?;
    let is_data = csaddr >= u64::from(sb.dblkno) && csaddr + cs_frags <= u64::from(sb.fpg.min(size));
    require(is_data, "csaddr", csaddr, "among the data of the first group")?;
    Ok(FragNo(csaddr as u32))
}

/// What the allocator and the inodes go by. Returns the fragments for data.
fn check_policies(sb: &Superblock, size: u32) -> FsResult<u32> {
    require(sb.minfree <= 99, "minfree", sb.minfree, "a percentage")?;
    require((1..=i32::MAX as u32).contains(&sb.maxcontig), "maxcontig", sb.maxcontig, "at least 1")?;
    require(sb.maxbpg > 0, "maxbpg", sb.maxbpg, "at least 1")?;
    require(sb.maxsymlinklen as usize <= INLINE_BYTES, "maxsymlinklen", sb.maxsymlinklen, "at most 60")?;
    let dsize = if sb.is_updated() && sb.dsize != 0 { sb.dsize } else { sb.old_dsize.into() };
    require(dsize <= u64::from(size), "dsize", dsize, "at most the size of the volume")?;
    Ok(dsize as u32)
}

impl Rotation {
    /// Checks what the superblock says about the drive, and reads the tables behind its fields.
    fn new(sb: &Superblock, raw: &[u8]) -> FsResult<Rotation> {
        let has_tracks = sb.nspf > 0 && sb.spc > 0 && sb.nsect > 0 && sb.npsect > 0 && sb.nsect <= sb.spc && sb.cpg > 0;
        require(has_tracks, "spc", sb.spc, "a cylinder with whole tracks")?;
        // Counted in 16 bits by the tables.
        require(sb.nrpos <= u16::MAX.into(), "nrpos", sb.nrpos, "a number of 16 bits")?;
        let tables = match sb.cpc > 0 && sb.nrpos > 1 {
            true => read_tables(sb, &raw[..SUPERBLOCK_BYTES.min(raw.len())]),
            false => Some((Vec::new(), Vec::new())),
        };
        require(tables.is_some(), "cpc", sb.cpc, "a cycle whose tables fit behind the superblock")?;
        let (first, next) = tables.unwrap_or_default();
        Ok(Rotation {
            rotdelay: sb.rotdelay,
            rps: sb.rps,
            nspf: sb.nspf,
            nsect: sb.nsect,
            npsect: sb.npsect,
            spc: sb.spc,
            interleave: sb.interleave,
            trackskew: sb.trackskew,
            cpg: sb.cpg,
            nrpos: sb.nrpos.max(1),
            cpc: sb.cpc,
            first,
            next,
        })
    }
}

/// Most bytes that pointers can address: they have 31 bits, for blocks of a file and on the volume.
fn addressable_bytes(sb: &Superblock) -> u64 {
    let (block, nindir) = (u64::from(sb.bsize), u64::from(sb.nindir));
    let blocks = DIRECT as u64 + nindir + nindir * nindir + nindir * nindir * nindir;
    (blocks.min(1 << 30) * block - 1).min(i64::MAX as u64)
}

impl Layout {
    /// Checks everything in `superblock` that the arithmetic relies on. `raw` is the block in which it was found.
    ///
    /// # Errors
    /// `Corrupt`, with the field that is impossible.
    pub fn new(superblock: &Superblock, raw: &[u8], device_bytes: u64) -> FsResult<Layout> {
        let sb = superblock;
        // In this order: each check relies on the earlier ones.
        check_units(sb)?;
        let size = check_size(sb, device_bytes)?;
        check_groups(sb, size)?;
        check_positions(sb, size)?;
        let csaddr = check_maps(sb, size)?;
        let dsize = check_policies(sb, size)?;
        let rotation = Rotation::new(sb, raw)?;
        let addressable_bytes = addressable_bytes(sb);
        let layout = Layout {
            block_bytes: sb.bsize,
            frag_bytes: sb.fsize,
            frag: sb.frag,
            size,
            dsize,
            groups: sb.ncg,
            frags_per_group: sb.fpg,
            inodes_per_group: sb.ipg,
            inodes_per_block: sb.inopb,
            pointers_per_block: sb.nindir,
            sblkno: sb.sblkno,
            cblkno: sb.cblkno,
            iblkno: sb.iblkno,
            dblkno: sb.dblkno,
            cgoffset: sb.cgoffset,
            cgmask: sb.cgmask,
            csaddr,
            cssize: sb.cssize,
            cgsize: sb.cgsize,
            minfree: sb.minfree,
            maxcontig: sb.maxcontig,
            maxbpg: sb.maxbpg,
            contigsumsize: sb.contigsumsize,
            maxsymlinklen: sb.maxsymlinklen,
            file_bytes_max: if sb.maxfilesize == 0 { addressable_bytes } else { addressable_bytes.min(sb.maxfilesize) },
            addressable_bytes,
            rotation,
        };
        debug_assert_eq!(layout.frag * layout.frag_bytes, layout.block_bytes, "L1: a block is its fragments");
        debug_assert!(
            u64::from(layout.groups - 1) * u64::from(layout.frags_per_group) < u64::from(size)
                && u64::from(size) <= u64::from(layout.groups) * u64::from(layout.frags_per_group),
            "L2: the groups cover the volume, the last one at least in part"
        );
        debug_assert!(
            layout.csaddr.0 + layout.frags_for(u64::from(layout.cssize)) <= layout.group_frags(GroupNo(0)),
            "L3: the summaries lie in the first group"
        );
        let last = layout.group_start(GroupNo(layout.groups - 1));
        let has_room = (last + layout.dblkno).0 <= size;
        require(has_room, "size", size, "large enough for the bookkeeping of the last group")?;
        Ok(layout)
    }

    pub fn sector(&self, frag: FragNo) -> Sector {
        Sector(u64::from(frag.0) * u64::from(self.frag_bytes) / SECTOR_BYTES)
    }

    /// True in the area that has a summary of each group.
    pub fn is_summary(&self, at: FragNo) -> bool {
        (self.csaddr.0..self.csaddr.0 + self.frags_for(u64::from(self.cssize))).contains(&at.0)
    }

    /// First address past the volume.
    pub fn end(&self) -> FragNo {
        FragNo(self.size)
    }

    /// Offset of a fragment in its group.
    pub fn offset_in_group(&self, at: FragNo) -> u32 {
        at.0 % self.frags_per_group
    }

    pub fn frags_for(&self, bytes: u64) -> u32 {
        bytes.div_ceil(u64::from(self.frag_bytes)) as u32
    }

    /// First fragment of a group.
    pub fn group_base(&self, group: GroupNo) -> FragNo {
        FragNo(group.0 * self.frags_per_group)
    }

    /// Where the bookkeeping of a group counts from: it moves by about a track with each group, so that it is not all
    /// on one platter.
    pub fn group_start(&self, group: GroupNo) -> FragNo {
        self.group_base(group) + self.cgoffset.wrapping_mul(group.0 & !self.cgmask)
    }

    pub fn superblock_copy(&self, group: GroupNo) -> FragNo {
        self.group_start(group) + self.sblkno
    }

    /// Where the group's own block is.
    pub fn group_block(&self, group: GroupNo) -> FragNo {
        debug_assert!(group.0 < self.groups, "L2: a group that has a block is one of the volume");
        self.group_start(group) + self.cblkno
    }

    /// First fragment behind the bookkeeping.
    pub fn group_data(&self, group: GroupNo) -> FragNo {
        self.group_start(group) + self.dblkno
    }

    /// Fragments that a group has; the last one may have fewer.
    pub fn group_frags(&self, group: GroupNo) -> u32 {
        debug_assert!(group.0 < self.groups, "L2: a group that has fragments is one of the volume");
        self.frags_per_group.min(self.size - self.group_base(group).0)
    }

    /// The block that a fragment is in.
    pub fn block_of(&self, frag: FragNo) -> BlockNo {
        BlockNo(frag.0 / self.frag)
    }

    /// The address of a block.
    pub fn block_start(&self, block: BlockNo) -> FragNo {
        FragNo(block.0 * self.frag)
    }

    pub fn group_of(&self, frag: FragNo) -> GroupNo {
        GroupNo(frag.0 / self.frags_per_group)
    }

    pub fn group_of_ino(&self, ino: InodeNo) -> GroupNo {
        GroupNo(ino.0 / self.inodes_per_group)
    }

    /// All groups of the volume.
    pub fn group_numbers(&self) -> impl Iterator<Item = GroupNo> + use<> {
        (0..self.groups).map(GroupNo)
    }

    pub fn first_ino(&self, group: GroupNo) -> InodeNo {
        InodeNo(group.0 * self.inodes_per_group)
    }

    /// Index of an inode among those of its group.
    pub fn index_in_group(&self, ino: InodeNo) -> u32 {
        ino.0 % self.inodes_per_group
    }

    /// First number past all inode numbers.
    pub fn ino_end(&self) -> InodeNo {
        InodeNo(self.groups * self.inodes_per_group)
    }

    /// The block that holds an inode, and the offset in it.
    pub fn inode_place(&self, ino: InodeNo) -> (FragNo, usize) {
        debug_assert!(ino < self.ino_end(), "L2: an inode that has a place is in a group of the volume");
        let in_group = self.index_in_group(ino);
        let block =
            self.group_start(self.group_of_ino(ino)) + self.iblkno + in_group / self.inodes_per_block * self.frag;
        (block, (in_group % self.inodes_per_block) as usize * Inode::BYTES)
    }

    /// The inodes that a block holds for which [`Layout::inode_place`] returns it.
    pub fn inodes_in(&self, block: FragNo) -> impl Iterator<Item = InodeNo> {
        let group = self.group_of(block);
        let first = (block - (self.group_start(group) + self.iblkno)) / self.frag * self.inodes_per_block;
        let last = self.inodes_per_group.min(first + self.inodes_per_block);
        let base = group.0 * self.inodes_per_group;
        InodeNo(base + first).until(InodeNo(base + last))
    }

    /// Bytes of a group's block in use: at most a block. Groups are read and written in whole fragments.
    pub fn group_block_frags(&self) -> u32 {
        self.cgsize.div_ceil(self.frag_bytes)
    }

    /// Fragments of a group that cannot belong to a file.
    pub fn bookkeeping(&self, group: GroupNo) -> Range<FragNo> {
        match group.0 {
            0 => FragNo::NONE..self.csaddr + self.cssize.div_ceil(self.frag_bytes),
            _ => self.superblock_copy(group)..self.group_data(group),
        }
    }

    /// Whether `frags` fragments at `at` can belong to a file.
    pub fn is_data(&self, at: FragNo, frags: u32) -> bool {
        let Some(end) = at.checked_add(frags) else { return false };
        if frags == 0 || frags > self.frag || end.0 > self.size || at.0 % self.frag + frags > self.frag {
            return false;
        }
        let used = self.bookkeeping(self.group_of(at));
        end <= used.start || used.end <= at
    }

    /// Fragments of block `lbn` of a file of `size` bytes: all, except in the last block of a short file.
    pub fn block_frags(&self, size: u64, lbn: u64) -> u32 {
        let block = u64::from(self.block_bytes);
        if lbn >= DIRECT as u64 || size >= (lbn + 1) * block {
            return self.frag;
        }
        let frags = self.frags_for(size.saturating_sub(lbn * block));
        debug_assert!(frags <= self.frag, "F1: the last block of a short file is no longer than a block");
        frags
    }

    /// The path from an inode to block `lbn`: the slot among its indirect pointers, then the slot in each indirect
    /// block. Empty for a direct block.
    pub fn path(&self, lbn: u64) -> Option<Path> {
        let n = u64::from(self.pointers_per_block);
        let Some(mut rest) = lbn.checked_sub(DIRECT as u64) else {
            return Some(Path { slot: lbn as usize, depth: 0, slots: [0; INDIRECT] });
        };
        let mut span = n;
        for depth in 1..=INDIRECT {
            if rest < span {
                let mut slots = [0; INDIRECT];
                for level in (0..depth).rev() {
                    slots[level] = (rest % n) as usize;
                    rest /= n;
                }
                debug_assert_eq!(rest, 0, "a path leads to one block of the file");
                return Some(Path { slot: depth - 1, depth, slots });
            }
            rest -= span;
            span *= n;
        }
        None
    }

    /// File blocks that one pointer at `level` spans: 1 for a data block, a block's pointers for an indirect one ...
    pub fn span(&self, level: usize) -> u64 {
        debug_assert!(level <= INDIRECT, "an inode has so many levels of indirect blocks");
        u64::from(self.pointers_per_block).pow(level as u32)
    }

    /// Removes pointers to indirect blocks behind its end from an inode. Returns whether there were any.
    pub fn drop_indirect_behind_end(&self, inode: &mut Inode) -> bool {
        if inode.has_no_blocks(self.maxsymlinklen) {
            return false; // Its target can be in place of the pointers.
        }
        let blocks = inode.size.div_ceil(self.block_bytes.into());
        let before = inode.ib;
        for (slot, pointer) in inode.ib.iter_mut().enumerate() {
            if self.indirect_first(slot) >= blocks {
                *pointer = FragNo::NONE;
            }
        }
        inode.ib != before
    }

    /// First file block below the indirect pointer `slot` of an inode.
    pub fn indirect_first(&self, slot: usize) -> u64 {
        DIRECT as u64 + (1..=slot).map(|level| self.span(level)).sum::<u64>()
    }
}

/// See [`Layout::path`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    /// Slot in the inode: of `db` with depth 0, of `ib` otherwise.
    pub slot: usize,
    /// Indirect blocks on the way.
    pub depth: usize,
    /// Slot in each of them.
    pub slots: [usize; INDIRECT],
}
