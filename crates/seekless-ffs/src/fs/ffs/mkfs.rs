//! Creating a volume, with the arithmetic and the defaults of 4.4BSD's `newfs`.

use super::aged::{BALLAST, BALLAST_INO, Ballast};
use super::format::*;
use super::group;
use super::io::write_bytes;
use super::layout::Layout;
use crate::codec;
use crate::device::{Buf, Data, Device, Discard, WriteFlags};
use crate::fs::{FileKind, FsError, FsResult, PERMISSIONS};
use crate::rt::Rt;
use crate::units::{MIB, SECTOR_BYTES, Sector, WallTime};

/// How full a volume can be from the beginning, in percent.
const AGED_MAX: u32 = 90;

/// Shape of the drive for which a volume is laid out, as `disktab` had it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DriveShape {
    pub sectors_per_track: u32,
    pub tracks_per_cylinder: u32,
    pub revolutions_per_minute: u32,
}

impl DriveShape {
    /// Cylinders of 1 MiB on one track each, for drives that do not report their shape.
    pub const UNKNOWN: DriveShape =
        DriveShape { sectors_per_track: 2048, tracks_per_cylinder: 1, revolutions_per_minute: 3600 };

    /// The drive of \[se95\], DSP3105: 57 sectors, 14 heads, 5400 rpm.
    pub const DSP3105: DriveShape =
        DriveShape { sectors_per_track: 57, tracks_per_cylinder: 14, revolutions_per_minute: 5400 };
}

/// A named choice of layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Profile {
    /// What `newfs` of 4.4BSD-Lite2 does: contiguous runs of 8 blocks, 4 ms between them, rotational tables.
    #[default]
    Newfs,
    /// \[se95\]: runs of 8 blocks, no gap.
    M8R0,
    /// \[se95\]: runs of 8 blocks, then a gap of 2.
    M8R2,
    /// \[se95\]: single blocks, a gap of 2 behind each, as before clustering.
    M1R2,
}

/// Parameters of a new volume.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    pub block_bytes: u32,
    pub frag_bytes: u32,
    pub cylinders_per_group: u32,
    /// Most groups; what is left of the device is not used.
    pub groups_max: u32,
    /// How much of the volume is in use from the beginning, in percent, with free space in pieces as after long use
    /// ([`aged`](super::aged)). None: a volume as usual.
    pub aged: Option<u32>,
    /// Bytes of the volume for each inode; by default four fragments.
    pub bytes_per_inode: Option<u32>,
    /// Reserved space, in percent.
    pub minfree: u32,
    /// Consecutive blocks of a run.
    pub maxcontig: u32,
    /// Gap between runs, in ms.
    pub rotdelay: u32,
    /// Blocks of one file in a group before it continues in another; by default a quarter of a block's bytes.
    pub maxbpg: Option<u32>,
    /// Rotational positions that are distinguished.
    pub positions: u32,
    /// Keep tables of rotational positions, where they fit.
    pub tables: bool,
    pub drive: DriveShape,
    /// Write the superblock as 4.4BSD-Lite2 did, without 64-bit counts and without label.
    pub lite2: bool,
    /// At most 31 bytes.
    pub label: String,
    pub id: [u32; 2],
    pub permissions: u16,
    pub uid: u32,
    pub gid: u32,
}

impl MkfsOptions {
    /// `newfs`'s defaults, for a drive that does not report its shape; `id` distinguishes volumes.
    pub fn new(id: [u32; 2]) -> MkfsOptions {
        MkfsOptions {
            block_bytes: 8192,
            frag_bytes: 1024,
            cylinders_per_group: 16,
            groups_max: u32::MAX,
            aged: None,
            bytes_per_inode: None,
            minfree: 5,
            maxcontig: 8,
            rotdelay: 0,
            maxbpg: None,
            positions: 8,
            tables: true,
            drive: DriveShape::UNKNOWN,
            lite2: false,
            label: String::new(),
            id,
            permissions: 0o755,
            uid: 0,
            gid: 0,
        }
    }

    /// The layout of a profile on a drive.
    pub fn profile(self, profile: Profile, drive: DriveShape) -> MkfsOptions {
        let options = MkfsOptions { drive, ..self };
        let gap = options.rotdelay_for(2);
        match profile {
            Profile::Newfs => MkfsOptions { maxcontig: 8, rotdelay: 4, tables: true, ..options },
            Profile::M8R0 => MkfsOptions { maxcontig: 8, rotdelay: 0, tables: false, ..options },
            Profile::M8R2 => MkfsOptions { maxcontig: 8, rotdelay: gap, tables: false, ..options },
            Profile::M1R2 => MkfsOptions { maxcontig: 1, rotdelay: gap, tables: false, ..options },
        }
    }

    /// The shortest delay, in ms, for which the allocator skips `blocks`.
    ///
    /// The superblock counts a gap in ms, and the allocator rounds it up to blocks.
    pub fn rotdelay_for(&self, blocks: u32) -> u32 {
        let nspf = u64::from(self.frag_bytes) / SECTOR_BYTES;
        let frag = u64::from((self.block_bytes / self.frag_bytes.max(1)).max(1));
        let rps = u64::from(self.drive.revolutions_per_minute / 60);
        let gap = |ms: u64| {
            (ms * rps * u64::from(self.drive.sectors_per_track) / (nspf * 1000).max(1)).next_multiple_of(frag)
        };
        (0..1000).find(|&ms| gap(ms) >= frag * u64::from(blocks)).unwrap_or(0) as u32
    }
}

impl MkfsOptions {
    /// Checks each option, and those that limit each other.
    fn check(&self) -> FsResult<()> {
        let MkfsOptions { block_bytes: bsize, frag_bytes: fsize, drive, .. } = *self;
        let (nsect, ntrak) = (drive.sectors_per_track, drive.tracks_per_cylinder);
        if !bsize.is_power_of_two() || !(BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&bsize) {
            return Err(FsError::Invalid("a block is a power of two, from 4 KiB to 64 KiB"));
        }
        let is_frag = fsize.is_power_of_two() && u64::from(fsize) >= SECTOR_BYTES && fsize <= bsize;
        if !is_frag || bsize / fsize > FRAGS_MAX as u32 {
            return Err(FsError::Invalid(
                "a fragment is a power of two, at least 512 bytes, and a block has at most 8",
            ));
        }
        if nsect == 0 || ntrak == 0 || u64::from(nsect) * u64::from(ntrak) > 1 << 24 {
            return Err(FsError::Invalid("a cylinder has at least one sector, and less than 8 GiB"));
        }
        if self.bytes_per_inode() < 128 || self.minfree > 50 || self.maxcontig == 0 || self.maxcontig > 1 << 16 {
            return Err(FsError::Invalid("reserve, contiguous blocks or bytes of an inode are out of range"));
        }
        if self.cylinders_per_group == 0 || self.cylinders_per_group > 1 << 15 {
            return Err(FsError::Invalid("a group has from 1 to 32768 cylinders"));
        }
        if self.groups_max == 0 || self.aged.is_some_and(|percent| percent > AGED_MAX) {
            return Err(FsError::Invalid(
                "a volume has at least one group, and is at most 90 % full from the beginning",
            ));
        }
        let label = self.label.as_bytes();
        if label.len() > 31 || label.contains(&0) || self.lite2 && !label.is_empty() {
            return Err(FsError::Invalid("a label is at most 31 bytes long, and 4.4BSD-Lite2 has none"));
        }
        Ok(())
    }

    fn bytes_per_inode(&self) -> u32 {
        self.bytes_per_inode.unwrap_or(4 * self.frag_bytes)
    }

    /// Inodes for `frags` fragments: whole blocks, and at most what the group's block counts in 16 bits.
    fn inodes_for(&self, frags: u64) -> u64 {
        let inopb = self.block_bytes / Inode::BYTES as u32;
        let inodes = (frags * u64::from(self.frag_bytes)).div_ceil(self.bytes_per_inode().into());
        inodes.next_multiple_of(inopb.into()).min(u64::from(32_767 / inopb * inopb))
    }
}

/// What all groups of a volume have in common, named as in the superblock. Positions are in fragments from the start of a
/// group.
struct GroupShape {
    /// Sectors of a fragment and of a cylinder.
    nspf: u32,
    spc: u32,
    /// The smallest number of cylinders that has whole blocks. Groups begin at such a cylinder, and positions repeat.
    cpc: u32,
    nrpos: u32,
    contigsumsize: u32,
    cpg: u32,
    ipg: u32,
    fpg: u32,
    sblkno: u32,
    cblkno: u32,
    iblkno: u32,
    dblkno: u32,
    cgoffset: u32,
    cgmask: u32,
    /// Bytes of the group's block.
    cgsize: u32,
}

impl GroupShape {
    /// For checked `options` and a volume of at most `size` fragments.
    fn new(options: &MkfsOptions, size: u32) -> FsResult<GroupShape> {
        let MkfsOptions { block_bytes: bsize, frag_bytes: fsize, drive, .. } = *options;
        let (nsect, ntrak) = (drive.sectors_per_track, drive.tracks_per_cylinder);
        let (frag, inopb) = (bsize / fsize, bsize / Inode::BYTES as u32);
        let (nspf, spc) = (fsize / SECTOR_BYTES as u32, nsect * ntrak);
        let (mut cpc, mut rest) = (nspf * frag, spc);
        while cpc > 1 && rest.is_multiple_of(2) {
            (cpc, rest) = (cpc / 2, rest / 2);
        }
        let contigsumsize = if options.maxcontig > 1 { options.maxcontig.min(CONTIG_SUM_MAX) } else { 0 };
        let nrpos = if options.tables && ntrak > 1 { options.positions.clamp(1, 255) } else { 1 };
        let mut cpg = options.cylinders_per_group.next_multiple_of(cpc);
        let (ipg, fpg, cgsize) = loop {
            let fpg = u64::from(cpg) * u64::from(spc) / u64::from(nspf);
            let ipg = options.inodes_for(fpg.min(size.into())).max(inopb.into());
            let offsets = Offsets::new(cpg, nrpos, ipg, fpg, frag, contigsumsize);
            if u64::from(offsets.end) <= bsize.into() && fpg <= i32::MAX as u64 {
                break (ipg as u32, fpg as u32, offsets.end.next_multiple_of(fsize));
            }
            if cpg <= cpc {
                return Err(FsError::Invalid(
                    "a group's maps do not fit into a block: larger blocks or smaller cylinders are needed",
                ));
            }
            cpg -= cpc;
        };
        let sblkno = ((SUPERBLOCK_OFFSET as u32 + SUPERBLOCK_BYTES as u32).div_ceil(fsize)).next_multiple_of(frag);
        let cblkno = sblkno + (SUPERBLOCK_BYTES as u32).div_ceil(fsize).next_multiple_of(frag);
        let iblkno = cblkno + frag;
        let dblkno = iblkno + ipg / inopb * frag;
        // The bookkeeping moves by a track with each group, so that no platter has all of it.
        let cgoffset = nsect.div_ceil(nspf).next_multiple_of(frag);
        let cgmask = u32::MAX << ntrak.next_power_of_two().ilog2();
        let furthest = u64::from(cgoffset) * u64::from(!cgmask) + u64::from(dblkno);
        if furthest + u64::from(frag) > u64::from(fpg) {
            return Err(FsError::Invalid("a group has no room besides its own bookkeeping: more cylinders are needed"));
        }
        Ok(GroupShape {
            nspf,
            spc,
            cpc,
            nrpos,
            contigsumsize,
            cpg,
            ipg,
            fpg,
            sblkno,
            cblkno,
            iblkno,
            dblkno,
            cgoffset,
            cgmask,
            cgsize,
        })
    }

    /// Groups, and the fragments that they cover, of at most `size`: a last group without room for its bookkeeping is left out.
    fn groups(&self, size: u32, frag: u32) -> (u32, u32) {
        let (mut size, mut ncg) = (size, size.div_ceil(self.fpg));
        while ncg > 0 {
            let start = (ncg - 1) * self.fpg + self.cgoffset.wrapping_mul((ncg - 1) & !self.cgmask);
            if start + self.dblkno + frag <= size {
                break;
            }
            ncg -= 1;
            size = size.min(ncg * self.fpg);
        }
        (ncg, size)
    }
}

/// The superblock that follows from `options` on a device of `sectors` sectors, with the tables behind its fields.
///
/// # Errors
/// `Invalid` when they do not fit together.
fn superblock(options: &MkfsOptions, sectors: u64, now: WallTime) -> FsResult<(Superblock, Vec<u8>)> {
    options.check()?;
    let MkfsOptions { block_bytes: bsize, frag_bytes: fsize, .. } = *options;
    let frag = bsize / fsize;
    let size = (sectors / (u64::from(fsize) / SECTOR_BYTES)).min(i32::MAX as u64) as u32;
    let shape = GroupShape::new(options, size)?;
    let size = size.min(options.groups_max.saturating_mul(shape.fpg));
    let (ncg, size) = shape.groups(size, frag);
    let cssize = (ncg * Csum::BYTES as u32).next_multiple_of(fsize);
    let csfrags = cssize / fsize;
    if ncg == 0 || u64::from(shape.dblkno + csfrags + frag) > u64::from(shape.fpg.min(size)) {
        return Err(FsError::Invalid("the device is too small for a volume of this shape"));
    }
    let mut raw = vec![0; SUPERBLOCK_BYTES];
    let mut sb = Superblock::decode(&raw).unwrap_or_else(|| unreachable!("the size is right"));
    sb.magic = UFS1_MAGIC;
    sb.id = options.id;
    sb.clean = CLEAN;
    sb.old_time = now.seconds as u32;
    put_sizes(&mut sb, bsize, fsize);
    put_groups(&mut sb, &shape);
    put_policies(&mut sb, options);
    put_drive(&mut sb, options, &shape);
    (sb.old_size, sb.ncg) = (size, ncg);
    sb.old_dsize = size - shape.sblkno - ncg * (shape.dblkno - shape.sblkno) - csfrags;
    (sb.old_csaddr, sb.cssize) = (shape.dblkno, cssize);
    sb.ncyl = (u64::from(size) * u64::from(shape.nspf)).div_ceil(shape.spc.into()) as u32;
    if !options.lite2 {
        sb.old_flags = FLAGS_UPDATED;
        sb.volname[..options.label.len()].copy_from_slice(options.label.as_bytes());
        (sb.maxbsize, sb.sblockloc) = (bsize, SUPERBLOCK_OFFSET);
        (sb.size, sb.dsize, sb.csaddr) = (sb.old_size.into(), sb.old_dsize.into(), sb.old_csaddr.into());
        (sb.avgfilesize, sb.avgfpdir) = (16_384, 64);
    }
    sb.encode(&mut raw);
    if sb.cpc > 0 {
        write_tables(&sb, &mut raw, sectors)?;
    }
    Ok((sb, raw))
}

/// Sizes of blocks and fragments, in all the forms that the superblock has them in.
fn put_sizes(sb: &mut Superblock, bsize: u32, fsize: u32) {
    let frag = bsize / fsize;
    let nspf = fsize / SECTOR_BYTES as u32;
    let nindir = bsize / 4;
    (sb.bsize, sb.fsize, sb.frag) = (bsize, fsize, frag);
    (sb.bmask, sb.fmask) = (!(bsize - 1), !(fsize - 1));
    (sb.qbmask, sb.qfmask) = (u64::from(bsize - 1), u64::from(fsize - 1));
    (sb.bshift, sb.fshift, sb.fragshift) = (bsize.ilog2(), fsize.ilog2(), frag.ilog2());
    (sb.fsbtodb, sb.nspf) = (nspf.ilog2(), nspf);
    (sb.nindir, sb.inopb) = (nindir, bsize / Inode::BYTES as u32);
    (sb.maxsymlinklen, sb.inodefmt) = (INLINE_BYTES as u32, INODE_FORMAT_44);
    let pointed = [1, 2, 3].map(|level| u64::from(bsize).saturating_mul(u64::from(nindir).pow(level)));
    let maxfilesize = pointed.iter().fold(u64::from(bsize) * DIRECT as u64 - 1, |sum, more| sum.saturating_add(*more));
    sb.maxfilesize = maxfilesize.min(i64::MAX as u64);
}

fn put_groups(sb: &mut Superblock, shape: &GroupShape) {
    (sb.sblkno, sb.cblkno, sb.iblkno, sb.dblkno) = (shape.sblkno, shape.cblkno, shape.iblkno, shape.dblkno);
    (sb.cgoffset, sb.cgmask) = (shape.cgoffset, shape.cgmask);
    (sb.cpg, sb.ipg, sb.fpg) = (shape.cpg, shape.ipg, shape.fpg);
    (sb.cgsize, sb.contigsumsize) = (shape.cgsize, shape.contigsumsize);
}

fn put_policies(sb: &mut Superblock, options: &MkfsOptions) {
    let maxbpg = options.maxbpg.unwrap_or(options.block_bytes / 4).max(1);
    (sb.minfree, sb.rotdelay) = (options.minfree, options.rotdelay);
    (sb.maxcontig, sb.maxbpg) = (options.maxcontig, maxbpg);
    sb.optim = OPTIM_TIME;
}

/// What allocation knows about the drive, and where its tables of rotational positions are, if it has any.
fn put_drive(sb: &mut Superblock, options: &MkfsOptions, shape: &GroupShape) {
    let DriveShape { sectors_per_track: nsect, tracks_per_cylinder: ntrak, revolutions_per_minute } = options.drive;
    (sb.ntrak, sb.nsect, sb.spc) = (ntrak, nsect, shape.spc);
    (sb.npsect, sb.interleave, sb.trackskew) = (nsect, 1, 0);
    sb.rps = revolutions_per_minute / 60;
    (sb.postblformat, sb.nrpos) = (POSTBL_DYNAMIC, shape.nrpos);
    let fields = Superblock::BYTES as u32;
    let nspb = shape.nspf * sb.frag;
    let (postbloff, rotbloff) = (fields, fields + 2 * shape.nrpos * shape.cpc);
    let end = rotbloff + shape.cpc * shape.spc / nspb;
    let has_tables =
        options.tables && ntrak > 1 && shape.nrpos > 1 && end <= SUPERBLOCK_BYTES as u32 && nsect <= 256 * nspb;
    let sbsize = if has_tables { end } else { fields + 1 };
    sb.sbsize = sbsize.next_multiple_of(sb.fsize).min(SUPERBLOCK_BYTES as u32);
    if has_tables {
        (sb.cpc, sb.postbloff, sb.rotbloff) = (shape.cpc, postbloff, rotbloff);
    }
}

/// Where the maps of a group are in its block.
struct Offsets {
    btotoff: u32,
    boff: u32,
    iusedoff: u32,
    freeoff: u32,
    clustersumoff: u32,
    clusteroff: u32,
    end: u32,
}

impl Offsets {
    fn new(cpg: u32, nrpos: u32, ipg: u64, fpg: u64, frag: u32, contigsumsize: u32) -> Offsets {
        // Larger values do not fit anyway.
        let small = |value: u64| value.min(1 << 24) as u32;
        let btotoff = Group::BYTES as u32;
        let boff = btotoff + 4 * cpg;
        let iusedoff = boff + 2 * cpg * nrpos;
        let freeoff = iusedoff + small(ipg.div_ceil(8));
        let next = freeoff + small(fpg.div_ceil(8));
        if contigsumsize == 0 {
            return Offsets { btotoff, boff, iusedoff, freeoff, clustersumoff: 0, clusteroff: 0, end: next };
        }
        // The count of empty clusters is never used, so it may overlap what comes before.
        let clustersumoff = next.next_multiple_of(4) - 4;
        let clusteroff = clustersumoff + 4 * (contigsumsize + 1);
        let end = clusteroff + small((fpg / u64::from(frag)).div_ceil(8));
        Offsets { btotoff, boff, iusedoff, freeoff, clustersumoff, clusteroff, end }
    }
}

/// Fills in the rotational tables: for each position of each cylinder of a cycle the first block, and from each block
/// the distance to the next at the same position.
fn write_tables(sb: &Superblock, raw: &mut [u8], sectors: u64) -> FsResult<()> {
    let layout = Layout::new(sb, raw, sectors * SECTOR_BYTES)?;
    let rotation = &layout.rotation;
    let blocks = sb.cpc * sb.spc / (sb.nspf * sb.frag);
    let mut first = vec![-1_i16; (sb.cpc * sb.nrpos) as usize];
    for block in (0..blocks).rev() {
        let at = block * sb.frag;
        let place = &mut first[(rotation.cylinder(at) * sb.nrpos + rotation.position(at)) as usize];
        let distance = if *place < 0 { 0 } else { i64::from(*place) - i64::from(block) };
        raw[(sb.rotbloff + block) as usize] = distance.min(255) as u8;
        *place = block as i16;
    }
    for (index, block) in first.iter().enumerate() {
        codec::put_at(raw, sb.postbloff as usize + 2 * index, *block as u16);
    }
    Ok(())
}

/// Creates an empty volume on `device`, or one that is in use as `options.aged` says. Previous contents are lost, except
/// that they are the data of an aged volume's file [`BALLAST`].
///
/// # Errors
/// `Invalid` when the options do not fit the device, `Device` when it cannot be written.
pub async fn mkfs(rt: &Rt, device: &Device, options: &MkfsOptions) -> FsResult<()> {
    let geometry = device.geometry();
    if geometry.block_bytes > options.frag_bytes {
        return Err(FsError::Invalid("the device's blocks are larger than a fragment"));
    }
    let now = rt.wall();
    let (mut sb, mut raw) = superblock(options, geometry.sectors, now)?;
    let layout = Layout::new(&sb, &raw, geometry.bytes())?;
    let root_at = first_free(&layout);
    let ballast = match options.aged {
        Some(percent) => {
            let seed = u64::from(options.id[0]) << 32 | u64::from(options.id[1]);
            Some(Ballast::draw(&layout, percent, seed, [options.uid, options.gid], root_at, now)?)
        }
        None => None,
    };

    // Nothing of an earlier volume may be mistaken for this one's: its superblock is erased first, and the new one
    // written last.
    let home = Sector(SUPERBLOCK_OFFSET / SECTOR_BYTES);
    write_bytes(device, home, Data::zeroes(SUPERBLOCK_BYTES), WriteFlags::NONE).await?;
    device.flush().await?;
    let zeroed = device.guarantees().discard == Discard::Zeroes;
    if zeroed {
        let sectors = u64::from(layout.size) * u64::from(layout.frag_bytes) / SECTOR_BYTES;
        device.discard(home + SUPERBLOCK_BYTES as u64 / SECTOR_BYTES, sectors - home.0 - 16).await?;
    } else {
        for group in layout.group_numbers() {
            let inodes = u64::from(layout.inodes_per_group) * Inode::BYTES as u64;
            let mut at = layout.sector(layout.group_start(group) + layout.iblkno);
            let mut rest = inodes;
            while rest > 0 {
                let take = rest.min(MIB);
                write_bytes(device, at, Data::zeroes(take as usize), WriteFlags::NONE).await?;
                (at, rest) = (at + take / SECTOR_BYTES, rest - take);
            }
        }
    }

    let mut summary = Buf::zeroed(layout.cssize as usize);
    let mut totals = Totals::default();
    for group in layout.group_numbers() {
        let block = new_group(&layout, &sb, group, root_at, ballast.as_ref(), now);
        if let Some(head) = Group::decode(&block) {
            let Group { ndir, nbfree, nifree, nffree, .. } = head;
            let cs = Csum { ndir, nbfree, nifree, nffree };
            totals.add(&cs);
            cs.encode(&mut summary[group.index() * Csum::BYTES..]);
        }
        let at = layout.sector(layout.group_block(group));
        write_bytes(device, at, block.freeze(), WriteFlags::NONE).await?;
    }
    write_root(device, &layout, options, root_at, ballast.as_ref(), now).await?;
    if let Some(ballast) = ballast {
        ballast.write(device, &layout).await?;
    }
    write_bytes(device, layout.sector(layout.csaddr), summary.freeze(), WriteFlags::NONE).await?;
    sb.set_totals(&totals, now);
    sb.encode(&mut raw);
    let block = Data::from_slice(&raw);
    for group in layout.group_numbers() {
        let at = layout.sector(layout.superblock_copy(group));
        write_bytes(device, at, block.clone(), WriteFlags::NONE).await?;
    }
    device.flush().await?;
    write_bytes(device, home, block, WriteFlags::NONE).await?;
    device.flush().await?;
    Ok(())
}

/// The first block for data, which the root directory gets.
fn first_free(layout: &Layout) -> FragNo {
    let behind = layout.csaddr + layout.cssize.div_ceil(layout.frag_bytes);
    FragNo(behind.0.next_multiple_of(layout.frag))
}

fn new_group(
    layout: &Layout,
    sb: &Superblock,
    group: GroupNo,
    root_at: FragNo,
    ballast: Option<&Ballast>,
    now: WallTime,
) -> Buf {
    let mut bytes = Buf::zeroed((layout.group_block_frags() * layout.frag_bytes) as usize);
    let head = group_head(layout, sb, group, now);
    // Offsets have to be in place before the maps are.
    head.encode(&mut bytes);
    let base = layout.group_base(group);
    let directories = u32::from(group == GroupNo(0));
    let last_used = if ballast.is_some() { BALLAST_INO } else { ROOT_INO };
    let inode_used = |index: u32| group == GroupNo(0) && index <= last_used.0;
    let in_ballast = |at: FragNo| ballast.is_some_and(|ballast| ballast.uses(layout, at));
    let frag_free = |at: u32| layout.is_data(base + at, 1) && base + at != root_at && !in_ballast(base + at);
    group::build(layout, &head, &mut bytes, directories, inode_used, frag_free);
    bytes
}

/// The head of a group's block, with its maps where mkfs puts them.
pub(super) fn group_head(layout: &Layout, sb: &Superblock, group: GroupNo, now: WallTime) -> Group {
    let offsets = Offsets::new(
        sb.cpg,
        sb.nrpos,
        layout.inodes_per_group.into(),
        layout.frags_per_group.into(),
        layout.frag,
        layout.contigsumsize,
    );
    let frags = layout.group_frags(group);
    let last = group.0 + 1 == layout.groups;
    let cylinders = if last { frags * sb.nspf / sb.spc } else { sb.cpg };
    let mut head = Group::decode(&[0; Group::BYTES]).unwrap_or_else(|| unreachable!("a block is longer"));
    (head.magic, head.time, head.cgx) = (GROUP_MAGIC, now.seconds as u32, group);
    (head.ncyl, head.niblk, head.ndblk) = (cylinders as u16, layout.inodes_per_group as u16, frags);
    (head.btotoff, head.boff) = (offsets.btotoff, offsets.boff);
    (head.iusedoff, head.freeoff, head.nextfreeoff) = (offsets.iusedoff, offsets.freeoff, offsets.end);
    (head.clustersumoff, head.clusteroff) = (offsets.clustersumoff, offsets.clusteroff);
    head.nclusterblks = if layout.contigsumsize > 0 { frags / layout.frag } else { 0 };
    head
}

async fn write_root(
    device: &Device,
    layout: &Layout,
    options: &MkfsOptions,
    at: FragNo,
    ballast: Option<&Ballast>,
    now: WallTime,
) -> FsResult<()> {
    let mut fragment = Buf::zeroed(layout.frag_bytes as usize);
    fragment[..DIR_CHUNK_BYTES].copy_from_slice(&first_chunk(ROOT_INO, ROOT_INO));
    if ballast.is_some() {
        add_dirent(&mut fragment[..DIR_CHUNK_BYTES], BALLAST_INO, FileKind::Regular, BALLAST.as_bytes());
    }
    write_bytes(device, layout.sector(at), fragment.freeze(), WriteFlags::NONE).await?;
    let mut root = Inode {
        mode: FileKind::Directory.mode_bits() as u16 | options.permissions & PERMISSIONS,
        nlink: 2,
        size: DIR_CHUNK_BYTES as u64,
        blocks: layout.frag_bytes / SECTOR_BYTES as u32,
        generation: now.seconds as u32,
        uid: options.uid,
        gid: options.gid,
        old_ids: [options.uid as u16, options.gid as u16],
        ..Inode::FREE
    };
    root.db[0] = at;
    root.set_atime(now);
    root.set_mtime(now);
    root.set_ctime(now);
    let (block, offset) = layout.inode_place(ROOT_INO);
    let mut inodes = Buf::zeroed(layout.block_bytes as usize);
    root.encode(&mut inodes[offset..]);
    if let Some(ballast) = ballast {
        ballast.inode().encode(&mut inodes[offset + Inode::BYTES..]);
    }
    write_bytes(device, layout.sector(block), inodes.freeze(), WriteFlags::NONE).await?;
    Ok(())
}
