//! On-disk records of the virtual log. The page is `FORMAT.md`; a test compares its tables with the records here.
//!
//! Invariants
//!   F1  Everything read is checked before it is trusted. Superblock and anchor are stored where user data never goes,
//!       so a checksum suffices. A piece may be stored anywhere, so its seal is keyed: the key is in the superblock,
//!       which users above cannot read, so user data cannot imitate a piece.
//!   F2  A seal covers the place: a copy of a piece elsewhere is invalid.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::codec::{crc32c, get_at, put_at};
use crate::record;
use crate::units::{SECTOR_BYTES, Sector};

/// Version of the format that is written.
pub const VERSION: u32 = 1;

/// Unit of the structures at fixed places: large enough for the blocks of any drive.
pub const FIXED_BYTES: usize = 4096;
pub const FIXED_SECTORS: u64 = FIXED_BYTES as u64 / SECTOR_BYTES;

/// First sectors of the superblock and of the two slots of the anchor. The second superblock is the last whole fixed
/// unit of the device.
pub const SUPERBLOCK: u64 = 0;
pub const ANCHORS: [u64; 2] = [FIXED_SECTORS, 2 * FIXED_SECTORS];

/// Sectors at the front that are never allocated.
pub const FRONT_SECTORS: u64 = 3 * FIXED_SECTORS;

/// Bit of `features_incompatible`: entries of the map are not blocks; their meaning is defined by the owner above,
/// whose own record is stored in the superblock from [`ABOVE_AT`] on.
pub const FEATURE_ABOVE: u64 = 1;

/// Offset of that record in the superblock.
pub const ABOVE_AT: usize = 512;

/// Bit of `features_incompatible`: the map of the disk is followed by [`Superblock::snapshots`] others.
pub const FEATURE_SNAPSHOTS: u64 = 2;

/// Bit of `features_incompatible`: the blocks of [`Superblock::landmarks`] are never allocated.
pub const FEATURE_LANDMARKS: u64 = 4;

const FEATURES_KNOWN: u64 = FEATURE_ABOVE | FEATURE_SNAPSHOTS | FEATURE_LANDMARKS;

/// Most landmarks.
pub const LANDMARKS_MAX: usize = 96;

/// Limit of snapshots: few enough that the maps and older maps that lead to a block can be counted in a byte.
pub const SNAPSHOTS_MAX: u32 = 64;

pub const MAGIC: [u8; 8] = *b"SeekVLog";
pub const ANCHOR_MAGIC: [u8; 8] = *b"SeekVAnc";
pub const PIECE_MAGIC: [u8; 4] = *b"SVLP";
pub const RECORD_MAGIC: [u8; 4] = *b"SVLR";
pub const LANDMARK_MAGIC: [u8; 8] = *b"SeekVMrk";
pub const LABEL_MAGIC: [u8; 8] = *b"SVLSnap1";

/// Pointers of a piece to others. Few enough to take a sixth of a sector, and enough that extra pieces are rare: with
/// two, three and four, random writes cost 37 %, 9 % and 3 % more pieces than were asked for, and the worst history 57
/// %, 25 % and 17 % (`vlog/tests/tree.rs` counts).
pub const POINTERS: usize = 4;

record! {
    /// Parameters of the device.
    pub struct Superblock {
        pub magic: [u8; 8],
        pub version: u32,
        pub crc: u32,
        pub uuid: [u8; 16],
        pub key: [u8; 16],
        pub device_sectors: u64,
        pub logical_blocks: u64,
        pub block_bytes: u32,
        pub cell_bytes: u32,
        pub map_log: u32,
        pub snapshots: u32,
        pub region_start: u64,
        pub region_cells: u64,
        pub features_incompatible: u64,
        pub features_compatible: u64,
        /// Blocks with landmarks, in order; then zeroes.
        pub landmarks: [u32; LANDMARKS_MAX],
    }
}

const _: () = assert!(Superblock::BYTES <= ABOVE_AT);

record! {
    /// Every sector of a block with a landmark.
    pub struct Landmark {
        pub magic: [u8; 8],
        pub uuid: [u8; 16],
        pub sector: u64,
    }
}

impl Landmark {
    /// What `sector` holds in a landmark of this device.
    pub fn at(superblock: &Superblock, sector: Sector) -> Landmark {
        Landmark { magic: LANDMARK_MAGIC, uuid: superblock.uuid, sector: sector.0 }
    }
}

record! {
    /// Where the tail of the log is, or where to search for it.
    pub struct Anchor {
        pub magic: [u8; 8],
        pub crc: u32,
        pub state: u32,
        pub uuid: [u8; 16],
        pub generation: u64,
        pub tail_sequence: u64,
        pub tail_cell: u64,
        pub window_start: u64,
        pub window_blocks: u64,
    }
}

/// The tail is where the anchor says.
pub const PARKED: u32 = 1;
/// Later tails may be in the window.
pub const OPEN: u32 = 2;

record! {
    /// The head of a piece of the map. Pointers and entries follow.
    pub struct PieceHead {
        pub magic: [u8; 4],
        pub flags: u16,
        pub pointer_count: u16,
        pub index: u32,
        pub live_pieces: u32,
        pub sequence: u64,
        pub cell: u64,
        pub seal: u64,
    }
}

/// Bit of [`PieceHead::flags`]: this piece completes its transaction.
pub const COMMIT: u16 = 1;

record! {
    /// Where another piece is.
    pub struct RawPointer {
        pub sequence: u64,
        pub cell: u64,
        pub index: u32,
    }
}

record! {
    /// The head of a record of the append-only map log. Changes follow.
    pub struct RecordHead {
        pub magic: [u8; 4],
        pub flags: u16,
        pub change_count: u16,
        pub sequence: u64,
        pub transaction: u64,
        pub cell: u64,
        pub seal: u64,
    }
}

record! {
    /// A change of the map.
    pub struct RawChange {
        pub logical: u32,
        pub physical: u32,
    }
}

/// Longest name of a snapshot, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

record! {
    /// The label of a snapshot, in a block of its own.
    pub struct Label {
        pub magic: [u8; 8],
        pub crc: u32,
        pub name_bytes: u32,
        pub created_seconds: i64,
        pub name: [u8; NAME_BYTES_MAX],
    }
}

const _: () = assert!(Anchor::BYTES <= SECTOR_BYTES as usize);
const _: () = assert!(Label::BYTES <= SECTOR_BYTES as usize);

/// Sequence numbers and generations are below this, so that increments never overflow. A device that writes a million
/// pieces a second gets here after a hundred thousand years. A start refuses one that is half-way there, whose last number
/// is not its own: a later start would not see what has a higher number.
pub const NUMBER_MAX: u64 = 1 << 62;

const SEAL_AT: usize = 32;
const _: () = assert!(PieceHead::BYTES == 40 && RecordHead::BYTES == 40);

/// Bytes before the entries of a piece.
pub const ENTRIES_AT: usize = PieceHead::BYTES + POINTERS * RawPointer::BYTES;

/// Entries of the map that a piece in a cell of `cell_bytes` holds.
pub const fn entries_per_piece(cell_bytes: u32) -> u32 {
    (cell_bytes - ENTRIES_AT as u32) / 4
}

/// Changes that a record in a cell of `cell_bytes` holds.
pub const fn changes_per_record(cell_bytes: u32) -> usize {
    (cell_bytes as usize - RecordHead::BYTES) / RawChange::BYTES
}

/// The device that a seal belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Key {
    pub uuid: [u8; 16],
    pub key: [u8; 16],
}

impl Key {
    /// SipHash-2-4 of the device's name and of `bytes`, with the seal field itself as zero.
    fn seal(&self, bytes: &[u8]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.key);
        hasher.write(&self.uuid);
        hasher.write(&bytes[..SEAL_AT]);
        hasher.write(&[0; 8]);
        hasher.write(&bytes[SEAL_AT + 8..]);
        hasher.finish()
    }

    fn is_sealed(&self, bytes: &[u8]) -> bool {
        get_at::<u64>(bytes, SEAL_AT) == Some(self.seal(bytes))
    }

    /// Seals a cell: computes and stores the seal.
    pub fn put_seal(&self, bytes: &mut [u8]) {
        let seal = self.seal(bytes);
        put_at(bytes, SEAL_AT, seal);
    }
}

/// Why a fixed unit is invalid; `None` when it does not resemble one.
pub type Why = Option<&'static str>;

/// True when the checksum at `crc_at` is that of all `bytes`, with the checksum itself as zero.
fn checked(bytes: &[u8], crc_at: usize) -> bool {
    let mut copy = bytes.to_vec();
    copy[crc_at..crc_at + 4].fill(0);
    get_at::<u32>(bytes, crc_at) == Some(crc32c(&copy))
}

impl Superblock {
    pub fn to_block(self) -> Vec<u8> {
        self.to_block_with(&[])
    }

    /// The same with the record of the owner above.
    pub fn to_block_with(self, above: &[u8]) -> Vec<u8> {
        let mut block = vec![0; FIXED_BYTES];
        block[ABOVE_AT..ABOVE_AT + above.len()].copy_from_slice(above);
        Superblock { crc: 0, ..self }.encode(&mut block);
        let crc = crc32c(&block);
        Superblock { crc, ..self }.encode(&mut block);
        block
    }

    /// Reads a superblock. [`Layout`](super::layout::Layout) checks whether its numbers are consistent.
    ///
    /// # Errors
    /// Why it is invalid.
    pub fn from_block(block: &[u8]) -> Result<Superblock, Why> {
        let found = Superblock::decode(block).filter(|_| block.len() == FIXED_BYTES).ok_or(None)?;
        if found.magic != MAGIC {
            return Err(None);
        }
        if !checked(block, 12) {
            return Err(Some("its checksum is wrong"));
        }
        if found.version != VERSION || found.features_incompatible & !FEATURES_KNOWN != 0 {
            return Err(Some("it was made by a newer version of this program"));
        }
        Ok(found)
    }

    /// The same with landmarks in `blocks`, which are in order.
    pub fn with_landmarks(mut self, blocks: &[u32]) -> Superblock {
        self.landmarks[..blocks.len()].copy_from_slice(blocks);
        if !blocks.is_empty() {
            self.features_incompatible |= FEATURE_LANDMARKS;
        }
        self
    }

    /// True when the map is not one of blocks.
    pub fn is_above(&self) -> bool {
        self.features_incompatible & FEATURE_ABOVE != 0
    }

    pub fn key(&self) -> Key {
        Key { uuid: self.uuid, key: self.key }
    }
}

impl Label {
    /// A label with a name of at most [`NAME_BYTES_MAX`] bytes.
    pub fn new(name: &str, created_seconds: i64) -> Label {
        let mut bytes = [0; NAME_BYTES_MAX];
        bytes[..name.len()].copy_from_slice(name.as_bytes());
        Label { magic: LABEL_MAGIC, crc: 0, name_bytes: name.len() as u32, created_seconds, name: bytes }
    }

    /// The bytes of its block.
    pub fn to_block(self, block_bytes: u32) -> Vec<u8> {
        let mut block = vec![0; block_bytes as usize];
        Label { crc: 0, ..self }.encode(&mut block);
        let crc = crc32c(&block);
        Label { crc, ..self }.encode(&mut block);
        block
    }

    /// The label in a block, with its name; `None` when it is damaged.
    pub fn from_block(block: &[u8]) -> Option<(Label, String)> {
        let found = Label::decode(block).filter(|found| found.magic == LABEL_MAGIC && checked(block, 8))?;
        let name = found.name.get(..found.name_bytes as usize)?;
        Some((found, std::str::from_utf8(name).ok()?.to_owned()))
    }
}

impl Anchor {
    /// The bytes of a slot. The anchor and its checksum are within the first sector: sectors are written whole or not
    /// at all, so a slot is never torn, and a bad one is damaged.
    pub fn to_block(self) -> Vec<u8> {
        let mut block = vec![0; FIXED_BYTES];
        Anchor { crc: 0, ..self }.encode(&mut block);
        let crc = crc32c(&block[..SECTOR_BYTES as usize]);
        Anchor { crc, ..self }.encode(&mut block);
        block
    }

    /// The anchor in a slot of the device with this `uuid`, if it is valid.
    pub fn from_block(block: &[u8], uuid: &[u8; 16]) -> Option<Anchor> {
        let found = Anchor::decode(block).filter(|_| block.len() == FIXED_BYTES)?;
        let is_good = found.magic == ANCHOR_MAGIC
            && checked(&block[..SECTOR_BYTES as usize], 8)
            && found.uuid == *uuid
            && (found.state == PARKED || found.state == OPEN)
            && found.generation < NUMBER_MAX
            && found.tail_sequence < NUMBER_MAX;
        is_good.then_some(found)
    }
}

/// A piece of the map, as stored in a cell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    pub index: u32,
    pub sequence: u64,
    /// See [`COMMIT`].
    pub commits: bool,
    /// Live pieces when the transaction is complete, including this one.
    pub live_pieces: u32,
    pub pointers: Vec<RawPointer>,
    /// Physical blocks; 0 where nothing is mapped.
    pub entries: Vec<u32>,
}

impl Piece {
    /// The bytes of `cell`, which are `cell_bytes` long.
    pub fn to_cell(&self, key: &Key, cell: u64, cell_bytes: u32) -> Vec<u8> {
        assert!(self.pointers.len() <= POINTERS, "T1: a piece has no more children than places for them"); // T1
        assert!(
            self.entries.len() <= entries_per_piece(cell_bytes) as usize,
            "the entries of a piece fit into its cell"
        );
        let mut bytes = vec![0; cell_bytes as usize];
        let head = PieceHead {
            magic: PIECE_MAGIC,
            flags: if self.commits { COMMIT } else { 0 },
            pointer_count: self.pointers.len() as u16,
            index: self.index,
            live_pieces: self.live_pieces,
            sequence: self.sequence,
            cell,
            seal: 0,
        };
        head.encode(&mut bytes);
        for (slot, pointer) in self.pointers.iter().enumerate() {
            pointer.encode(&mut bytes[PieceHead::BYTES + slot * RawPointer::BYTES..]);
        }
        for (slot, entry) in self.entries.iter().enumerate() {
            put_at(&mut bytes, ENTRIES_AT + slot * 4, *entry);
        }
        key.put_seal(&mut bytes);
        bytes
    }

    /// The piece in `cell`, if it holds one of this device.
    pub fn from_cell(bytes: &[u8], key: &Key, cell: u64) -> Option<Piece> {
        if get_at(bytes, 0) != Some(PIECE_MAGIC) {
            return None; // Nothing more is decoded: a search for the tail looks at every cell.
        }
        let head = PieceHead::decode(bytes).filter(|_| bytes.len() > ENTRIES_AT)?;
        let is_good = head.cell == cell
            && usize::from(head.pointer_count) <= POINTERS
            && head.sequence < NUMBER_MAX
            && key.is_sealed(bytes);
        if !is_good {
            return None;
        }
        let pointers = (0..usize::from(head.pointer_count))
            .filter_map(|slot| RawPointer::decode(&bytes[PieceHead::BYTES + slot * RawPointer::BYTES..]))
            .collect();
        let entries = bytes[ENTRIES_AT..].chunks_exact(4).filter_map(|raw| get_at(raw, 0)).collect();
        Some(Piece {
            index: head.index,
            sequence: head.sequence,
            commits: head.flags & COMMIT != 0,
            live_pieces: head.live_pieces,
            pointers,
            entries,
        })
    }
}

/// A record of the append-only map log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub sequence: u64,
    /// Sequence of the first record of its transaction.
    pub transaction: u64,
    /// See [`COMMIT`].
    pub commits: bool,
    /// Logical block, and its new physical one.
    pub changes: Vec<(u32, u32)>,
}

impl Record {
    pub fn to_cell(&self, key: &Key, cell: u64, cell_bytes: u32) -> Vec<u8> {
        assert!(self.changes.len() <= changes_per_record(cell_bytes), "the changes of a record fit into its cell");
        let mut bytes = vec![0; cell_bytes as usize];
        let head = RecordHead {
            magic: RECORD_MAGIC,
            flags: if self.commits { COMMIT } else { 0 },
            change_count: self.changes.len() as u16,
            sequence: self.sequence,
            transaction: self.transaction,
            cell,
            seal: 0,
        };
        head.encode(&mut bytes);
        for (slot, &(logical, physical)) in self.changes.iter().enumerate() {
            let at = RecordHead::BYTES + slot * RawChange::BYTES;
            RawChange { logical, physical }.encode(&mut bytes[at..]);
        }
        key.put_seal(&mut bytes);
        bytes
    }

    pub fn from_cell(bytes: &[u8], key: &Key, cell: u64) -> Option<Record> {
        if get_at(bytes, 0) != Some(RECORD_MAGIC) {
            return None;
        }
        let head = RecordHead::decode(bytes).filter(|_| bytes.len() > ENTRIES_AT)?;
        let is_good = head.cell == cell
            && usize::from(head.change_count) <= changes_per_record(bytes.len() as u32)
            && head.sequence < NUMBER_MAX
            && key.is_sealed(bytes);
        if !is_good {
            return None;
        }
        let change = |slot: usize| RawChange::decode(&bytes[RecordHead::BYTES + slot * RawChange::BYTES..]);
        let changes = (0..usize::from(head.change_count)).filter_map(change);
        Some(Record {
            sequence: head.sequence,
            transaction: head.transaction,
            commits: head.flags & COMMIT != 0,
            changes: changes.map(|change| (change.logical, change.physical)).collect(),
        })
    }
}
