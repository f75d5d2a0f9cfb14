//! The bytes of a file in the scheme `log`: slots, records, index entries, and the attribute that holds the size.
//!
//! `FORMAT.md` says what they mean. These functions do no I/O, and accept any bytes.

use crate::codec::{crc32c, is_zero};
use crate::layer::codecs::CHUNK_BYTES_MAX;
use crate::record;

/// Start of a slot.
pub const SLOT_MAGIC: [u8; 8] = *b"SKLSlog1";

/// Start of a record.
pub const RECORD_MAGIC: [u8; 4] = *b"SKLr";

pub const VERSION: u16 = 1;

/// A slot is a sector, the largest unit that storage is trusted to write atomically.
pub const SLOT_BYTES: u64 = 512;

/// Highest generation of records written before the first durable commit: that of a provisional commit, of a complete one, and of
/// the one that is staged while the complete one waits for its sync.
pub(super) const UNCOMMITTED_GENERATION_MAX: u64 = 4;

/// First possible offset of a record: behind both slots.
pub const RECORDS_START: u64 = 2 * SLOT_BYTES;

/// Records begin at multiples of this, so that a search for them need not look at every byte.
pub const RECORD_ALIGN: u64 = 64;

/// Entries of an index node, as a power of two: 4 KiB a node.
pub const NODE_SHIFT: u32 = 8;
pub const NODE_ENTRIES: usize = 1 << NODE_SHIFT;

/// Entries that a slot has room for.
pub const ROOT_ENTRIES: usize = (SLOT_BYTES as usize - 80) / Entry::BYTES;

/// Most levels of nodes between slot and chunks: enough for 2^63 bytes in chunks of 4 KiB.
pub const DEPTH_MAX: u8 = 6;

/// Chunk sizes are powers of two between these.
pub const CHUNK_SHIFT_MIN: u8 = 12;
pub const CHUNK_SHIFT_MAX: u8 = 20;

const _: () = assert!(1 << CHUNK_SHIFT_MAX == CHUNK_BYTES_MAX);
const _: () = assert!(Slot::BYTES == SLOT_BYTES as usize);
const _: () = assert!(RECORDS_START.is_multiple_of(RECORD_ALIGN));

record! {
    /// One consistent state of a file. The good slot with the higher generation counts.
    pub struct Slot {
        pub magic: [u8; 8],
        /// CRC of the slot, computed with zero here.
        pub crc: u32,
        pub version: u16,
        /// Bytes of a chunk, as a power of two.
        pub chunk_shift: u8,
        /// Levels of nodes below `root`; with 0 its entries are chunks.
        pub depth: u8,
        pub file_id: u64,
        /// Counts commits, from 1.
        pub generation: u64,
        /// Size of the file as seen above, in bytes.
        pub size: u64,
        /// End of the used part of the lower file.
        pub end: u64,
        /// Bytes of `RECORDS_START..end` that belong to records in use.
        pub live_bytes: u64,
        /// The record of the tail; all zero when there is none.
        pub tail: [u8; 16],
        pub root_count: u32,
        /// See [`flags`].
        pub flags: u32,
        pub root: [u8; ROOT_ENTRIES * 16],
    }
}

record! {
    /// Address of a record. All zero for a hole.
    pub struct Entry {
        /// Offset in the lower file; a multiple of `RECORD_ALIGN`.
        pub offset: u64,
        /// Length of the whole record with head and padding.
        pub bytes: u32,
        /// `head_crc` of the record, which covers all of it.
        pub crc: u32,
    }
}

record! {
    /// Start of every record. The body follows, then zeroes up to the next multiple of `RECORD_ALIGN`.
    pub struct Head {
        pub magic: [u8; 4],
        /// CRC of this head, computed with zero here.
        pub head_crc: u32,
        /// CRC of body and padding.
        pub body_crc: u32,
        pub kind: u8,
        /// For a chunk: its codec. For a node: its level.
        pub codec: u8,
        pub chunk_shift: u8,
        pub reserved: u8,
        /// Bytes of the body, without padding.
        pub body_bytes: u32,
        /// For a chunk: decoded length of the body; the bytes behind them are zero. For a tail: number of bytes before
        /// it.
        pub raw_bytes: u32,
        /// Number of the chunk, or of the node within its level.
        pub number: u64,
        pub file_id: u64,
        /// Generation of the commit that wrote it.
        pub generation: u64,
        /// Size of the file at that commit.
        pub size: u64,
    }
}

record! {
    /// The extended attribute that gives the size of a file without opening it.
    pub struct SizeMark {
        pub version: u8,
        /// 1 when the rest is true, 0 while the file is being changed.
        pub clean: u8,
        pub reserved: u16,
        /// CRC of the mark, computed with zero here.
        pub crc: u32,
        pub size: u64,
        pub generation: u64,
        /// Size of the lower file. When it differs, another program has changed the file, and the rest is not trusted.
        pub lower_size: u64,
    }
}

record! {
    /// The extended attribute of the root that records the layer of a directory's files.
    pub struct DirectoryMark {
        pub version: u8,
        /// One of [`schemes`].
        pub scheme: u8,
        /// 1 when files are encrypted.
        pub is_secret: u8,
        pub reserved: u8,
        /// CRC of the mark, computed with zero here.
        pub crc: u32,
        /// Identifies the key; zero without one.
        pub key_check: [u8; 16],
    }
}

/// Schemes, as a directory's mark stores them.
pub mod schemes {
    pub const LOG: u8 = 1;
    pub const CLASSIC: u8 = 2;
}

/// Flags of a slot. Code that does not know a flag of the upper half must refuse the slot.
pub mod flags {
    /// The slot was written before its records were durable: it counts only if all of them are intact.
    pub const PROVISIONAL: u32 = 1;
    pub const INCOMPATIBLE: u32 = 0xffff_0000;
}

/// Kinds of records.
pub mod kinds {
    pub const CHUNK: u8 = 1;
    /// Raw bytes that follow those of the last chunk's record.
    pub const TAIL: u8 = 2;
    pub const NODE: u8 = 3;
}

impl Entry {
    pub const HOLE: Entry = Entry { offset: 0, bytes: 0, crc: 0 };

    pub fn is_hole(&self) -> bool {
        *self == Entry::HOLE
    }

    pub fn end(&self) -> u64 {
        self.offset.saturating_add(u64::from(self.bytes))
    }

    fn to_bytes(self) -> [u8; Entry::BYTES] {
        let mut bytes = [0; Entry::BYTES];
        self.encode(&mut bytes);
        bytes
    }

    /// Checks that it can be the address of a record in a file that ends at `end`.
    pub fn check(&self, end: u64) -> Result<(), String> {
        let placed = self.offset >= RECORDS_START
            && self.offset.is_multiple_of(RECORD_ALIGN)
            && u64::from(self.bytes).is_multiple_of(RECORD_ALIGN)
            && self.bytes as usize >= Head::BYTES
            && self.bytes <= RECORD_BYTES_MAX
            && self.end() <= end;
        if placed || self.is_hole() {
            return Ok(());
        }
        Err(format!("an entry for {} bytes at {}, in a file that ends at {end}", self.bytes, self.offset))
    }
}

/// Largest record: a chunk whose codec makes it grow by half, and its head.
pub const RECORD_BYTES_MAX: u32 = (CHUNK_BYTES_MAX + CHUNK_BYTES_MAX / 2 + 4096) as u32;

/// Bytes that a record with a body of `body_bytes` takes.
pub fn record_bytes(body_bytes: usize) -> usize {
    (Head::BYTES + body_bytes).next_multiple_of(RECORD_ALIGN as usize)
}

/// Converts `entries` to bytes.
pub fn entries_to_bytes(entries: &[Entry]) -> Vec<u8> {
    entries.iter().flat_map(|entry| entry.to_bytes()).collect()
}

pub fn entries_from_bytes(bytes: &[u8]) -> Vec<Entry> {
    bytes.chunks_exact(Entry::BYTES).filter_map(Entry::decode).collect()
}

/// A decoded slot, with its lists as vectors.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    pub chunk_shift: u8,
    pub depth: u8,
    pub file_id: u64,
    pub generation: u64,
    pub size: u64,
    pub end: u64,
    pub live_bytes: u64,
    pub tail: Entry,
    /// See [`flags::PROVISIONAL`].
    pub is_provisional: bool,
    pub root: Vec<Entry>,
}

/// Content of the 512 bytes of a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SlotState {
    /// Zeroes: never written.
    Blank,
    Good(Commit),
    /// Written by a later version; the text says which.
    Newer(u16),
    /// It has the magic but is invalid; the text says why.
    Damaged(String),
    /// It begins as a slot, and the file ends in it.
    CutOff,
    /// Nothing of ours.
    Foreign,
}

/// Number of wrong bits up to which the magic is taken for a damaged one: a file of ours with a damaged byte must not
/// be mistaken for a foreign one.
const MAGIC_BITS_WRONG_MAX: u32 = 8;

/// Number of wrong bits in the magic at the start of `bytes`.
fn magic_bits_wrong(bytes: &[u8]) -> u32 {
    let found = bytes.iter().chain(std::iter::repeat(&0));
    SLOT_MAGIC.iter().zip(found).map(|(magic, found)| (magic ^ found).count_ones()).sum()
}

impl Commit {
    /// Offset of the slot for this commit.
    pub fn slot_offset(&self) -> u64 {
        slot_offset(self.generation)
    }

    /// Number of chunks that the size needs.
    pub fn chunks(&self) -> u64 {
        self.size.div_ceil(1 << self.chunk_shift)
    }

    pub fn encode(&self) -> [u8; SLOT_BYTES as usize] {
        assert!(self.root.len() <= ROOT_ENTRIES, "the root of an index fits into a slot");
        let mut root = [0; ROOT_ENTRIES * 16];
        root[..self.root.len() * 16].copy_from_slice(&entries_to_bytes(&self.root));
        let slot = Slot {
            magic: SLOT_MAGIC,
            crc: 0,
            version: VERSION,
            chunk_shift: self.chunk_shift,
            depth: self.depth,
            file_id: self.file_id,
            generation: self.generation,
            size: self.size,
            end: self.end,
            live_bytes: self.live_bytes,
            tail: self.tail.to_bytes(),
            root_count: self.root.len() as u32,
            flags: if self.is_provisional { flags::PROVISIONAL } else { 0 },
            root,
        };
        let mut bytes = [0; SLOT_BYTES as usize];
        slot.encode(&mut bytes);
        let crc = crc32c(&bytes);
        Slot { crc, ..slot }.encode(&mut bytes);
        bytes
    }

    /// Decodes `bytes`, a slot or the beginning of one.
    pub fn decode(bytes: &[u8]) -> SlotState {
        if is_zero(bytes) {
            return SlotState::Blank;
        }
        match magic_bits_wrong(bytes) {
            0 => {}
            1..=MAGIC_BITS_WRONG_MAX => return SlotState::Damaged("it does not begin as it should".to_string()),
            _ => return SlotState::Foreign,
        }
        let Some(slot) = Slot::decode(bytes) else { return SlotState::CutOff };
        let mut plain = bytes[..Slot::BYTES].to_vec();
        Slot { crc: 0, ..slot }.encode(&mut plain);
        let crc = crc32c(&plain);
        if crc != slot.crc {
            return SlotState::Damaged(format!("checksum {:#010x}, but its bytes have {crc:#010x}", slot.crc));
        }
        if slot.version != VERSION {
            return SlotState::Newer(slot.version);
        }
        match Commit::checked(&slot) {
            Ok(commit) => SlotState::Good(commit),
            Err(problem) => SlotState::Damaged(problem),
        }
    }

    /// The initial commit of a file, without content.
    pub fn initial(chunk_shift: u8, file_id: u64) -> Commit {
        Commit {
            chunk_shift,
            depth: 0,
            file_id,
            generation: 1,
            size: 0,
            end: RECORDS_START,
            live_bytes: 0,
            tail: Entry::HOLE,
            is_provisional: false,
            root: Vec::new(),
        }
    }

    /// Whether `bytes`, fewer than a slot, are the start of an initial commit. All of its information is in its first
    /// 24 bytes, including its checksum, so fewer bytes are not enough to know.
    pub fn is_cut_initial(bytes: &[u8]) -> bool {
        const KNOWN_BYTES: usize = 24;
        let mut known = [0; Slot::BYTES];
        let Some(start) = bytes.get(..KNOWN_BYTES) else { return false };
        known[..KNOWN_BYTES].copy_from_slice(start);
        let Some(slot) = Slot::decode(&known) else { return false };
        Commit::initial(slot.chunk_shift, slot.file_id).encode().starts_with(bytes)
    }

    /// Checks that the numbers of a slot are consistent.
    fn checked(slot: &Slot) -> Result<Commit, String> {
        if !(CHUNK_SHIFT_MIN..=CHUNK_SHIFT_MAX).contains(&slot.chunk_shift) {
            return Err(format!("chunks of 2^{} bytes", slot.chunk_shift));
        }
        if slot.generation == 0 || slot.generation > i64::MAX as u64 {
            return Err(format!("generation {}", slot.generation));
        }
        if slot.depth > DEPTH_MAX || slot.root_count as usize > ROOT_ENTRIES {
            return Err(format!("{} entries with {} levels below them", slot.root_count, slot.depth));
        }
        if slot.size > i64::MAX as u64 || slot.end < RECORDS_START || slot.end > i64::MAX as u64 {
            return Err(format!("a size of {} in {} bytes", slot.size, slot.end));
        }
        if slot.live_bytes > slot.end - RECORDS_START {
            return Err(format!("{} bytes in use of {}", slot.live_bytes, slot.end));
        }
        if slot.flags & flags::INCOMPATIBLE != 0 {
            return Err(format!("flags {:#x}, not all of which are known here", slot.flags));
        }
        let is_provisional = slot.flags & flags::PROVISIONAL != 0;
        let root = entries_from_bytes(&slot.root[..slot.root_count as usize * Entry::BYTES]);
        let tail = Entry::decode(&slot.tail).unwrap_or(Entry::HOLE);
        for entry in root.iter().chain([&tail]) {
            entry.check(slot.end)?;
        }
        let Slot { chunk_shift, depth, file_id, generation, size, end, live_bytes, .. } = *slot;
        Ok(Commit { chunk_shift, depth, file_id, generation, size, end, live_bytes, tail, is_provisional, root })
    }
}

/// Offset of the slot for the commit of `generation`: the first, 1, at the start of the file.
pub fn slot_offset(generation: u64) -> u64 {
    (generation + 1) % 2 * SLOT_BYTES
}

/// A record in memory: its head without the checksums, and its body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileRecord {
    pub kind: u8,
    pub codec: u8,
    pub chunk_shift: u8,
    pub raw_bytes: u32,
    pub number: u64,
    pub file_id: u64,
    pub generation: u64,
    pub size: u64,
    pub body: Vec<u8>,
}

impl FileRecord {
    /// The record as it is stored, and its `head_crc`.
    pub fn encode(&self) -> (Vec<u8>, u32) {
        let mut bytes = vec![0; record_bytes(self.body.len())];
        bytes[Head::BYTES..Head::BYTES + self.body.len()].copy_from_slice(&self.body);
        let mut head = Head {
            magic: RECORD_MAGIC,
            head_crc: 0,
            body_crc: crc32c(&bytes[Head::BYTES..]),
            kind: self.kind,
            codec: self.codec,
            chunk_shift: self.chunk_shift,
            reserved: 0,
            body_bytes: self.body.len() as u32,
            raw_bytes: self.raw_bytes,
            number: self.number,
            file_id: self.file_id,
            generation: self.generation,
            size: self.size,
        };
        head.encode(&mut bytes);
        head.head_crc = crc32c(&bytes[..Head::BYTES]);
        head.encode(&mut bytes);
        (bytes, head.head_crc)
    }

    /// Decodes the record in `bytes`, which are all of those that its entry refers to.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(bytes: &[u8], entry: &Entry) -> Result<FileRecord, String> {
        if bytes.len() != entry.bytes as usize {
            return Err(format!("only {} of its {} bytes are there", bytes.len(), entry.bytes));
        }
        let head = Head::checked(bytes)?;
        if head.head_crc != entry.crc {
            return Err(format!(
                "it is another record: checksum {:#010x} instead of {:#010x}",
                head.head_crc, entry.crc
            ));
        }
        if head.record_bytes() != u64::from(entry.bytes) {
            return Err(format!("a body of {} bytes in a record of {}", head.body_bytes, entry.bytes));
        }
        let crc = crc32c(&bytes[Head::BYTES..]);
        if crc != head.body_crc {
            return Err(format!("checksum {:#010x}, but its bytes have {crc:#010x}", head.body_crc));
        }
        let Head { kind, codec, chunk_shift, raw_bytes, number, file_id, generation, size, .. } = head;
        let body = bytes[Head::BYTES..Head::BYTES + head.body_bytes as usize].to_vec();
        Ok(FileRecord { kind, codec, chunk_shift, raw_bytes, number, file_id, generation, size, body })
    }
}

impl Head {
    /// The head at the start of `bytes`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn checked(bytes: &[u8]) -> Result<Head, String> {
        let Some(head) = Head::decode(bytes) else { return Err("it is cut off".to_string()) };
        if head.magic != RECORD_MAGIC {
            return Err("there is no record".to_string());
        }
        let mut plain = [0; Head::BYTES];
        Head { head_crc: 0, ..head }.encode(&mut plain);
        let crc = crc32c(&plain);
        if crc != head.head_crc {
            return Err(format!("head with checksum {:#010x}, but its bytes have {crc:#010x}", head.head_crc));
        }
        let fits = (CHUNK_SHIFT_MIN..=CHUNK_SHIFT_MAX).contains(&head.chunk_shift)
            && head.raw_bytes <= 1 << head.chunk_shift
            && head.record_bytes() <= u64::from(RECORD_BYTES_MAX);
        match fits {
            true => Ok(head),
            false => Err(format!("a body of {} bytes for {}", head.body_bytes, head.raw_bytes)),
        }
    }

    /// Length of the whole record.
    pub fn record_bytes(&self) -> u64 {
        (Head::BYTES as u64 + u64::from(self.body_bytes)).next_multiple_of(RECORD_ALIGN)
    }
}

impl SizeMark {
    const VERSION: u8 = 1;

    pub fn new(clean: bool, size: u64, generation: u64, lower_size: u64) -> SizeMark {
        SizeMark { version: Self::VERSION, clean: clean.into(), reserved: 0, crc: 0, size, generation, lower_size }
    }

    pub fn to_bytes(self) -> [u8; SizeMark::BYTES] {
        let mut bytes = [0; SizeMark::BYTES];
        SizeMark { crc: 0, ..self }.encode(&mut bytes);
        SizeMark { crc: crc32c(&bytes), ..self }.encode(&mut bytes);
        bytes
    }

    /// The mark, when it is intact and of this version.
    pub fn from_bytes(bytes: &[u8]) -> Option<SizeMark> {
        let mark = SizeMark::decode(bytes).filter(|_| bytes.len() == SizeMark::BYTES)?;
        let same = mark.to_bytes() == bytes && mark.version == Self::VERSION && mark.clean <= 1;
        same.then_some(mark)
    }
}

impl DirectoryMark {
    const VERSION: u8 = 1;

    pub fn new(scheme: u8, key_check: Option<[u8; 16]>) -> DirectoryMark {
        let is_secret = key_check.is_some().into();
        let key_check = key_check.unwrap_or_default();
        DirectoryMark { version: Self::VERSION, scheme, is_secret, reserved: 0, crc: 0, key_check }
    }

    pub fn to_bytes(self) -> [u8; DirectoryMark::BYTES] {
        let mut bytes = [0; DirectoryMark::BYTES];
        DirectoryMark { crc: 0, ..self }.encode(&mut bytes);
        DirectoryMark { crc: crc32c(&bytes), ..self }.encode(&mut bytes);
        bytes
    }

    /// The mark, when it is intact and of this version.
    pub fn from_bytes(bytes: &[u8]) -> Option<DirectoryMark> {
        let mark = DirectoryMark::decode(bytes).filter(|_| bytes.len() == DirectoryMark::BYTES)?;
        let known = mark.version == Self::VERSION && mark.is_secret <= 1;
        let known = known && [schemes::LOG, schemes::CLASSIC].contains(&mark.scheme);
        (known && mark.to_bytes() == bytes).then_some(mark)
    }
}
