//! The on-disk format: UFS1, as 4.4BSD and its successors write it. `FORMAT.md` describes it; a test compares the two.
//!
//! A structure that was read keeps every byte whose meaning is unknown here, and writes it back. Only little-endian
//! volumes are accepted; others are recognised and refused by name.

pub use super::numbers::{BlockNo, FragNo, GroupNo, InodeNo};
use crate::fs::{FileKind, FsError, FsResult, WHITEOUT};
use crate::units::WallTime;

/// Where the superblock of UFS1 is, and how long it can be.
pub const SUPERBLOCK_OFFSET: u64 = 8192;
pub const SUPERBLOCK_BYTES: usize = 8192;

/// Where it has its magic number: at its end.
pub const SUPERBLOCK_MAGIC_AT: u64 = Superblock::BYTES as u64 - 4;

pub const UFS1_MAGIC: u32 = 0x0001_1954;
pub const UFS2_MAGIC: u32 = 0x1954_0119;
pub const GROUP_MAGIC: u32 = 0x0009_0255;

/// Other offsets at which a superblock of UFS2 can be, read only to report it.
pub const UFS2_OFFSETS: [u64; 2] = [65_536, 262_144];

/// `fs_old_flags`: the superblock is of the later generation, with 64-bit counts.
pub const FLAGS_UPDATED: u8 = 0x80;

/// `fs_clean`: everything was written back.
pub const CLEAN: u8 = 1;
/// `fs_clean`: it was, and NetBSD has mounted it for writing since.
pub const WAS_CLEAN: u8 = 2;

/// `fs_flags`, of the later generation: NetBSD writes changes to a journal first.
pub const FLAG_JOURNAL: u32 = 0x1000;

/// `fs_inodefmt`: 32-bit owners, and directory entries with types.
pub const INODE_FORMAT_44: u32 = 2;

/// `fs_postblformat`: rotational tables lie behind the superblock's fields.
pub const POSTBL_DYNAMIC: u32 = 1;

pub const OPTIM_TIME: u32 = 0;
pub const OPTIM_SPACE: u32 = 1;

/// Most fragments of a block.
pub const FRAGS_MAX: usize = 8;
/// Longest run that the cluster summary counts.
pub const CONTIG_SUM_MAX: u32 = 16;
pub const BLOCK_BYTES_MIN: u32 = 4096;
pub const BLOCK_BYTES_MAX: u32 = 65_536;

pub const DIRECT: usize = 12;
pub const INDIRECT: usize = 3;
/// The root directory. Inode 0 is never used, and inode 1 once held bad blocks.
pub const ROOT_INO: InodeNo = InodeNo(2);
/// Most links of an inode.
pub const LINKS_MAX: u16 = 32_767;

/// Entries of a directory never cross a multiple of this, which a disk writes as a unit.
pub const DIR_CHUNK_BYTES: usize = 512;
pub const DIR_HEADER_BYTES: usize = 8;
pub const NAME_BYTES_MAX: usize = 255;

crate::record! {
    /// The superblock, in the later generation's terms. Where 4.4BSD-Lite2 has other fields in the same place, they are
    /// zero or unused in the volumes accepted here.
    pub struct Superblock {
        pub first_field: u32,
        pub unused_1: u32,
        pub sblkno: u32,
        pub cblkno: u32,
        pub iblkno: u32,
        pub dblkno: u32,
        pub cgoffset: u32,
        pub cgmask: u32,
        pub old_time: u32,
        pub old_size: u32,
        pub old_dsize: u32,
        pub ncg: u32,
        pub bsize: u32,
        pub fsize: u32,
        pub frag: u32,
        pub minfree: u32,
        pub rotdelay: u32,
        pub rps: u32,
        pub bmask: u32,
        pub fmask: u32,
        pub bshift: u32,
        pub fshift: u32,
        pub maxcontig: u32,
        pub maxbpg: u32,
        pub fragshift: u32,
        pub fsbtodb: u32,
        pub sbsize: u32,
        pub csmask: u32,
        pub csshift: u32,
        pub nindir: u32,
        pub inopb: u32,
        pub nspf: u32,
        pub optim: u32,
        pub npsect: u32,
        pub interleave: u32,
        pub trackskew: u32,
        pub id: [u32; 2],
        pub old_csaddr: u32,
        pub cssize: u32,
        pub cgsize: u32,
        pub ntrak: u32,
        pub nsect: u32,
        pub spc: u32,
        pub ncyl: u32,
        pub cpg: u32,
        pub ipg: u32,
        pub fpg: u32,
        pub old_ndir: u32,
        pub old_nbfree: u32,
        pub old_nifree: u32,
        pub old_nffree: u32,
        pub fmod: u8,
        pub clean: u8,
        pub ronly: u8,
        pub old_flags: u8,
        pub fsmnt: [u8; 468],
        pub volname: [u8; 32],
        pub swuid: u64,
        pub pad: u32,
        pub cgrotor: u32,
        pub pointers: [u8; 128],
        pub cpc: u32,
        pub maxbsize: u32,
        pub sparecon64: [u64; 17],
        pub sblockloc: u64,
        pub ndir: u64,
        pub nbfree: u64,
        pub nifree: u64,
        pub nffree: u64,
        pub cs_spare: [u64; 4],
        pub time: u64,
        pub size: u64,
        pub dsize: u64,
        pub csaddr: u64,
        pub pendingblocks: u64,
        pub pendinginodes: u32,
        pub snapinum: [u32; 20],
        pub avgfilesize: u32,
        pub avgfpdir: u32,
        pub save_cgsize: u32,
        pub sparecon32: [u32; 26],
        pub flags: u32,
        pub contigsumsize: u32,
        pub maxsymlinklen: u32,
        pub inodefmt: u32,
        pub maxfilesize: u64,
        pub qbmask: u64,
        pub qfmask: u64,
        pub state: u32,
        pub postblformat: u32,
        pub nrpos: u32,
        pub postbloff: u32,
        pub rotbloff: u32,
        pub magic: u32,
    }
}

const _: () = assert!(Superblock::BYTES == 1376);

crate::record! {
    /// Counts of free resources, of a group or of all.
    pub struct Csum {
        pub ndir: u32,
        pub nbfree: u32,
        pub nifree: u32,
        pub nffree: u32,
    }
}

impl Csum {
    pub const ZERO: Csum = Csum { ndir: 0, nbfree: 0, nifree: 0, nffree: 0 };
}

crate::record! {
    /// The head of a cylinder group. Its maps follow, where the `off` fields say.
    pub struct Group {
        pub first_field: u32,
        pub magic: u32,
        pub time: u32,
        pub cgx: GroupNo,
        pub ncyl: u16,
        pub niblk: u16,
        pub ndblk: u32,
        pub ndir: u32,
        pub nbfree: u32,
        pub nifree: u32,
        pub nffree: u32,
        pub rotor: u32,
        pub frotor: u32,
        pub irotor: u32,
        pub frsum: [u32; FRAGS_MAX],
        pub btotoff: u32,
        pub boff: u32,
        pub iusedoff: u32,
        pub freeoff: u32,
        pub nextfreeoff: u32,
        pub clustersumoff: u32,
        pub clusteroff: u32,
        pub nclusterblks: u32,
        pub niblk_wide: u32,
        pub initediblk: u32,
        pub sparecon32: [u32; 3],
        pub time_wide: u64,
        pub sparecon64: [u64; 3],
    }
}

const _: () = assert!(Group::BYTES == 168);

crate::record! {
    /// An inode.
    pub struct Inode {
        pub mode: u16,
        pub nlink: u16,
        pub old_ids: [u16; 2],
        pub size: u64,
        pub atime: u32,
        pub atime_nanos: u32,
        pub mtime: u32,
        pub mtime_nanos: u32,
        pub ctime: u32,
        pub ctime_nanos: u32,
        pub db: [FragNo; DIRECT],
        pub ib: [FragNo; INDIRECT],
        pub flags: u32,
        pub blocks: u32,
        pub generation: u32,
        pub uid: u32,
        pub gid: u32,
        pub spare: [u32; 2],
    }
}

const _: () = assert!(Inode::BYTES == 128);

/// Bytes of a symbolic link that fit into the pointers of an inode.
pub const INLINE_BYTES: usize = 4 * (DIRECT + INDIRECT);

/// A time as an inode holds it: 32-bit seconds, so times that do not fit become the nearest that do.
fn put_time(time: WallTime) -> (u32, u32) {
    let seconds = time.seconds.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
    (seconds as u32, time.nanos)
}

fn get_time(seconds: u32, nanos: u32) -> WallTime {
    WallTime { seconds: i64::from(seconds as i32), nanos: nanos.min(999_999_999) }
}

impl Inode {
    pub const FREE: Inode = Inode {
        mode: 0,
        nlink: 0,
        old_ids: [0; 2],
        size: 0,
        atime: 0,
        atime_nanos: 0,
        mtime: 0,
        mtime_nanos: 0,
        ctime: 0,
        ctime_nanos: 0,
        db: [FragNo::NONE; DIRECT],
        ib: [FragNo::NONE; INDIRECT],
        flags: 0,
        blocks: 0,
        generation: 0,
        uid: 0,
        gid: 0,
        spare: [0; 2],
    };

    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode.into())
    }

    pub fn is_directory(&self) -> bool {
        self.kind() == Some(FileKind::Directory)
    }

    /// Whether this is what a rename leaves for an overlay (`RENAME_WHITEOUT`).
    pub fn is_whiteout(&self) -> bool {
        self.kind() == Some(WHITEOUT.kind()) && self.device() == 0 && self.nlink > 0
    }

    pub fn atime(&self) -> WallTime {
        get_time(self.atime, self.atime_nanos)
    }

    pub fn mtime(&self) -> WallTime {
        get_time(self.mtime, self.mtime_nanos)
    }

    pub fn ctime(&self) -> WallTime {
        get_time(self.ctime, self.ctime_nanos)
    }

    pub fn set_atime(&mut self, time: WallTime) {
        (self.atime, self.atime_nanos) = put_time(time);
    }

    pub fn set_mtime(&mut self, time: WallTime) {
        (self.mtime, self.mtime_nanos) = put_time(time);
    }

    pub fn set_ctime(&mut self, time: WallTime) {
        (self.ctime, self.ctime_nanos) = put_time(time);
    }

    /// The number of a device node, which takes the place of the first pointer.
    pub fn device(&self) -> u32 {
        self.db[0].0
    }

    pub fn set_device(&mut self, device: u32) {
        self.db[0] = FragNo(device);
    }

    /// The pointers as bytes, which hold the target of a short symbolic link.
    pub fn inline(&self) -> [u8; INLINE_BYTES] {
        let mut bytes = [0; INLINE_BYTES];
        let pointers = self.db.iter().chain(&self.ib);
        for (pointer, raw) in pointers.zip(bytes.chunks_exact_mut(4)) {
            crate::codec::put_at(raw, 0, *pointer);
        }
        bytes
    }

    pub fn set_inline(&mut self, bytes: &[u8; INLINE_BYTES]) {
        let pointers = self.db.iter_mut().chain(&mut self.ib);
        for (pointer, raw) in pointers.zip(bytes.chunks_exact(4)) {
            *pointer = crate::codec::get_at(raw, 0).unwrap_or_default();
        }
    }

    /// Whether the pointers hold bytes or a device number rather than addresses.
    pub fn has_no_blocks(&self, maxsymlinklen: u32) -> bool {
        match self.kind() {
            Some(FileKind::Regular | FileKind::Directory) => false,
            // A volume that declares no inline targets may have been written by systems that have them.
            Some(FileKind::Symlink) if maxsymlinklen == 0 => self.blocks == 0 && self.size <= INLINE_BYTES as u64,
            Some(FileKind::Symlink) => self.size < u64::from(maxsymlinklen),
            _ => true,
        }
    }
}

/// A pointer in an indirect block.
pub fn pointer_in(block: &[u8], slot: usize) -> FragNo {
    crate::codec::get_at(block, 4 * slot).unwrap_or_default()
}

pub fn put_pointer(block: &mut [u8], slot: usize, at: FragNo) {
    crate::codec::put_at(block, 4 * slot, at);
}

/// The type that a directory entry records (`DT_*`): the type bits of the mode, shifted.
pub fn dirent_type(kind: FileKind) -> u8 {
    (kind.mode_bits() >> 12) as u8
}

/// Type of the new name of a directory while its old name still exists: if a crash leaves both, this one stays. It is
/// 4.4BSD's `DT_WHT`, which is not the type of any inode.
pub const DIRENT_MOVED: u8 = 14;

/// Type of the old name of a directory that leaves a whiteout: if a crash leaves both names, the other one stays, and this
/// one becomes the whiteout, whose inode is on the volume by then. It is not the type of any inode either.
pub const DIRENT_LEFT: u8 = 15;

/// Whether an entry of this type refers to a directory.
pub fn is_directory_type(kind: u8) -> bool {
    kind == dirent_type(FileKind::Directory) || is_rename_mark(kind)
}

/// Whether this type says how far the rename of a directory has come.
pub fn is_rename_mark(kind: u8) -> bool {
    kind == DIRENT_MOVED || kind == DIRENT_LEFT
}

pub fn kind_of_dirent(kind: u8) -> Option<FileKind> {
    FileKind::from_mode(u32::from(kind) << 12)
}

/// Bytes of an entry with a name of `name_bytes`: header, name, at least one NUL, rounded up to four.
pub const fn dirent_bytes(name_bytes: usize) -> usize {
    DIR_HEADER_BYTES + (name_bytes + 4) / 4 * 4
}

/// One entry of a directory chunk, used or not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dirent<'a> {
    /// Offset in the chunk.
    pub offset: usize,
    /// 0 when unused.
    pub ino: InodeNo,
    pub record_bytes: usize,
    pub kind: u8,
    pub name: &'a [u8],
}

impl Dirent<'_> {
    /// Bytes of the record that the entry needs.
    pub fn needed_bytes(&self) -> usize {
        if self.ino == InodeNo::NONE { 0 } else { dirent_bytes(self.name.len()) }
    }
}

/// The entry at `offset` of `chunk`, which is [`DIR_CHUNK_BYTES`] long.
///
/// # Errors
/// What is invalid.
pub fn dirent_at(chunk: &[u8], offset: usize) -> Result<Dirent<'_>, String> {
    let head = (crate::codec::get_at::<InodeNo>(chunk, offset), crate::codec::get_at::<u16>(chunk, offset + 4));
    let (Some(ino), Some(record)) = head else { return Err(format!("an entry at {offset} extends past the end")) };
    let (Some(&kind), Some(&name_bytes)) = (chunk.get(offset + 6), chunk.get(offset + 7)) else {
        return Err(format!("an entry at {offset} extends past the end"));
    };
    let (record_bytes, name_bytes) = (usize::from(record), usize::from(name_bytes));
    let fits = record_bytes >= DIR_HEADER_BYTES
        && record_bytes % 4 == 0
        && offset + record_bytes <= chunk.len()
        && (ino == InodeNo::NONE || dirent_bytes(name_bytes) <= record_bytes);
    if !fits {
        return Err(format!("the entry at {offset} is {record_bytes} bytes long, with a name of {name_bytes}"));
    }
    let name_end = (offset + DIR_HEADER_BYTES + name_bytes).min(offset + record_bytes);
    let name = &chunk[offset + DIR_HEADER_BYTES..name_end];
    if ino != InodeNo::NONE && (name.is_empty() || name.contains(&0) || name.contains(&b'/')) {
        return Err(format!("the entry at {offset} has an invalid name"));
    }
    Ok(Dirent { offset, ino, record_bytes, kind, name })
}

/// All entries of a chunk, used or not.
///
/// # Errors
/// As [`dirent_at`].
pub fn dirents(chunk: &[u8]) -> Result<Vec<Dirent<'_>>, String> {
    let mut all = Vec::new();
    let mut offset = 0;
    while offset < chunk.len() {
        let entry = dirent_at(chunk, offset)?;
        offset += entry.record_bytes;
        all.push(entry);
    }
    Ok(all)
}

/// Writes an entry to `chunk` at `offset`.
pub fn put_dirent(chunk: &mut [u8], offset: usize, ino: InodeNo, record_bytes: usize, kind: u8, name: &[u8]) {
    crate::codec::put_at(chunk, offset, ino);
    crate::codec::put_at(chunk, offset + 4, record_bytes as u16);
    chunk[offset + 6] = kind;
    chunk[offset + 7] = name.len() as u8;
    let padded = dirent_bytes(name.len()) - DIR_HEADER_BYTES;
    let place = &mut chunk[offset + DIR_HEADER_BYTES..offset + DIR_HEADER_BYTES + padded];
    place.fill(0);
    place[..name.len()].copy_from_slice(name);
}

/// The first chunk of a new directory.
pub fn first_chunk(ino: InodeNo, parent: InodeNo) -> [u8; DIR_CHUNK_BYTES] {
    let mut chunk = [0; DIR_CHUNK_BYTES];
    let kind = dirent_type(FileKind::Directory);
    put_dirent(&mut chunk, 0, ino, dirent_bytes(1), kind, b".");
    put_dirent(&mut chunk, dirent_bytes(1), parent, DIR_CHUNK_BYTES - dirent_bytes(1), kind, b"..");
    chunk
}

/// Adds an entry behind those of a new directory's first chunk, which has room for it.
pub fn add_dirent(chunk: &mut [u8], ino: InodeNo, kind: FileKind, name: &[u8]) {
    let (parent, at) = (dirent_bytes(1), 2 * dirent_bytes(2));
    debug_assert!(at + dirent_bytes(name.len()) <= DIR_CHUNK_BYTES, "a first name is short");
    crate::codec::put_at(chunk, parent + 4, dirent_bytes(2) as u16);
    put_dirent(chunk, at, ino, DIR_CHUNK_BYTES - at, dirent_type(kind), name);
}

/// Decodes `block`, read from [`SUPERBLOCK_OFFSET`].
///
/// # Errors
/// `Corrupt` when it is not the superblock of an accepted volume; the text says what it is instead.
pub fn decode_superblock(block: &[u8]) -> FsResult<Superblock> {
    let at = format_args!("byte {SUPERBLOCK_OFFSET}").to_string();
    let refuse = |detail: &str| Err(FsError::corrupt("superblock", &at, detail));
    let Some(superblock) = Superblock::decode(block) else { return refuse("it is cut off") };
    match superblock.magic {
        UFS1_MAGIC => {}
        UFS2_MAGIC => return refuse("it is of UFS2, and only UFS1 is supported here"),
        magic if magic == UFS1_MAGIC.swap_bytes() || magic == UFS2_MAGIC.swap_bytes() => {
            return refuse("it is big-endian, and only little-endian volumes are supported here");
        }
        magic => {
            let detail =
                format_args!("there is no UFS1: its magic number is {magic:#x}, not {UFS1_MAGIC:#x}").to_string();
            return Err(FsError::corrupt("volume", &at, detail));
        }
    }
    if superblock.inodefmt != INODE_FORMAT_44 {
        return refuse("its inodes are of the old format of 4.2BSD, which is not supported here");
    }
    if superblock.postblformat != POSTBL_DYNAMIC {
        return refuse("its rotational tables are of the old format of 4.2BSD, which is not supported here");
    }
    Ok(superblock)
}

impl Superblock {
    /// Whether it is of the generation with 64-bit counts.
    pub fn is_updated(&self) -> bool {
        self.old_flags & FLAGS_UPDATED != 0
    }

    /// Whether the volume was closed. Every value but [`CLEAN`] says no.
    pub fn is_closed(&self) -> bool {
        self.clean == CLEAN
    }

    /// Whether NetBSD's journal may hold changes that are not in their places.
    pub fn has_journal(&self) -> bool {
        self.is_updated() && self.flags & FLAG_JOURNAL != 0 && !self.is_closed()
    }

    /// Sets the counts of free resources, in all places where this generation has them.
    pub fn set_totals(&mut self, total: &Totals, now: WallTime) {
        (self.old_ndir, self.old_nbfree) = (total.ndir as u32, total.nbfree as u32);
        (self.old_nifree, self.old_nffree) = (total.nifree as u32, total.nffree as u32);
        self.old_time = put_time(now).0;
        if self.is_updated() {
            (self.ndir, self.nbfree) = (total.ndir as u64, total.nbfree as u64);
            (self.nifree, self.nffree) = (total.nifree as u64, total.nffree as u64);
            self.time = now.seconds as u64;
        }
    }

    pub fn totals(&self) -> Totals {
        if self.is_updated() {
            let [ndir, nbfree, nifree, nffree] =
                [self.ndir, self.nbfree, self.nifree, self.nffree].map(|count| count as i64);
            return Totals { ndir, nbfree, nifree, nffree };
        }
        let [ndir, nbfree, nifree, nffree] =
            [self.old_ndir, self.old_nbfree, self.old_nifree, self.old_nffree].map(|count| i64::from(count as i32));
        Totals { ndir, nbfree, nifree, nffree }
    }
}

/// Sums of all groups' counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Totals {
    pub ndir: i64,
    pub nbfree: i64,
    pub nifree: i64,
    pub nffree: i64,
}

impl Totals {
    pub fn add(&mut self, cs: &Csum) {
        self.ndir += i64::from(cs.ndir);
        self.nbfree += i64::from(cs.nbfree);
        self.nifree += i64::from(cs.nifree);
        self.nffree += i64::from(cs.nffree);
    }

    pub fn replace(&mut self, old: &Csum, new: &Csum) {
        self.ndir += i64::from(new.ndir) - i64::from(old.ndir);
        self.nbfree += i64::from(new.nbfree) - i64::from(old.nbfree);
        self.nifree += i64::from(new.nifree) - i64::from(old.nifree);
        self.nffree += i64::from(new.nffree) - i64::from(old.nffree);
    }
}
