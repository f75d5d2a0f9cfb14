//! The parameters of a device that follow from its superblock.
//!
//! A *block* is the unit of addressing and mapping; a *cell* holds one piece of the map. Cells divide blocks. Physical
//! blocks count from the start of the device, whose first few are reserved.
//!
//! Invariants
//!   L1  However much is mapped, there is room for every piece of the map, each in a block of its own, for all of them
//!       once more while a transaction rewrites them, and for at least one block of data out of place.

use super::format::{
    ANCHORS, FEATURE_LANDMARKS, FEATURE_SNAPSHOTS, FIXED_SECTORS, FRONT_SECTORS, LANDMARKS_MAX, POINTERS,
    SNAPSHOTS_MAX, Superblock, Why, entries_per_piece,
};
use crate::device::Geometry;
use crate::units::{KIB, SECTOR_BYTES, Sector};

/// Limit of cells in a block: a byte has a bit for each.
const CELLS_MAX: u32 = 8;

/// Largest block.
pub const BLOCK_BYTES_MAX: u32 = 64 * KIB as u32;

/// Blocks beyond what a piece and a change of the map can name.
const BLOCKS_MAX: u64 = u32::MAX as u64;

/// Longest transaction of data, in blocks, where there is room: 1 MiB of 4 KiB blocks, the longest request of most
/// callers.
const TRANSACTION_BLOCKS_MAX: u64 = 256;

/// How the map is kept on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapLog {
    /// The virtual log: pieces near the head, threaded into a tree [wa99 §3].
    Tree,
    /// An append-only log in a fixed place, with incremental checkpoints, as in EW-Array [zh02 §3.4].
    Append,
}

impl MapLog {
    fn from_number(number: u32) -> Option<MapLog> {
        match number {
            0 => Some(MapLog::Tree),
            1 => Some(MapLog::Append),
            _ => None,
        }
    }

    fn number(self) -> u32 {
        match self {
            MapLog::Tree => 0,
            MapLog::Append => 1,
        }
    }
}

/// Parameters of a new device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    pub block_bytes: u32,
    /// Share of the space that is not offered above, in hundredths of a per cent.
    pub reserve: u32,
    pub map_log: MapLog,
    /// Number of snapshots to make room for. Blocks that only snapshots hold come out of the reserve.
    pub snapshots: u32,
    pub uuid: [u8; 16],
    /// Must not be guessable by users above.
    pub key: [u8; 16],
}

/// Why such a device is impossible.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlanError {
    #[error("a block of {block_bytes} bytes: it must be a power of two from {least} to {BLOCK_BYTES_MAX} bytes here")]
    Block { block_bytes: u32, least: u32 },
    #[error("there can be {SNAPSHOTS_MAX} snapshots at most, and with an append-only log none; not {snapshots}")]
    Snapshots { snapshots: u32 },
    #[error("{bytes} bytes are too few for a virtual log with {block_bytes}-byte blocks")]
    TooSmall { bytes: u64, block_bytes: u32 },
    #[error(
        "the device has {blocks} blocks of {block_bytes} bytes, more than the {BLOCKS_MAX} that the map can name; use larger blocks"
    )]
    TooLarge { blocks: u64, block_bytes: u32 },
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Layout {
    pub superblock: Superblock,
    pub map_log: MapLog,
    pub block_sectors: u64,
    pub cell_sectors: u64,
    pub cells_per_block: u32,
    /// Physical blocks, including reserved ones.
    pub blocks: u32,
    /// Entries of the map, including those of snapshots.
    pub logical_blocks: u32,
    /// Entries of the disk, and of each snapshot: the blocks offered above and, with snapshots, one for a label.
    pub span: u32,
    /// Number of snapshots that there is room for.
    pub snapshots: u32,
    pub entries_per_piece: u32,
    pub pieces: u32,
    /// Blocks that data must leave free, for pieces.
    pub margin: u64,
    /// Limit of the blocks of data that one transaction writes out of place.
    pub transaction_blocks_max: u64,
    /// First block of the region of an append-only log, and the first behind it.
    region: (u32, u32),
    /// Blocks of the second superblock.
    back: (u32, u32),
    front: u32,
    /// Number of landmarks.
    landmarks: usize,
}

impl Layout {
    /// Reads a superblock and checks everything in it.
    ///
    /// # Errors
    /// Why it is invalid.
    pub fn read(block: &[u8]) -> Result<Superblock, Why> {
        let found = Superblock::from_block(block)?;
        Layout::new(found).map(|_| found).ok_or(Some("its numbers do not fit each other"))
    }

    /// The layout that a superblock describes, or `None` when its numbers are inconsistent.
    pub fn new(superblock: Superblock) -> Option<Layout> {
        let Superblock { block_bytes, cell_bytes, device_sectors, logical_blocks, .. } = superblock;
        let sound = block_bytes.is_power_of_two()
            && cell_bytes.is_power_of_two()
            && cell_bytes >= SECTOR_BYTES as u32
            && (cell_bytes..=BLOCK_BYTES_MAX).contains(&block_bytes)
            && block_bytes / cell_bytes <= CELLS_MAX;
        if !sound {
            return None;
        }
        let map_log = MapLog::from_number(superblock.map_log)?;
        let block_sectors = u64::from(block_bytes) / SECTOR_BYTES;
        let cells_per_block = block_bytes / cell_bytes;
        let blocks = u32::try_from(device_sectors / block_sectors).ok()?;
        let entries = entries_per_piece(cell_bytes);
        let logical = u32::try_from(logical_blocks).ok().filter(|&logical| logical > 0)?;
        let snapshots = superblock.snapshots;
        let has_snapshots = superblock.features_incompatible & FEATURE_SNAPSHOTS != 0;
        let span = logical / snapshots.checked_add(1)?;
        let sound = has_snapshots == (snapshots > 0)
            && snapshots <= SNAPSHOTS_MAX
            && (!has_snapshots || map_log == MapLog::Tree && !superblock.is_above() && span > 1)
            && span * (snapshots + 1) == logical;
        if !sound {
            return None;
        }
        let pieces = logical.div_ceil(entries);
        let front = FRONT_SECTORS.div_ceil(block_sectors) as u32;
        let back_start = back_sector(device_sectors)?;
        let back = (back_start / block_sectors, (back_start + FIXED_SECTORS).div_ceil(block_sectors));
        let back = (u32::try_from(back.0).ok()?, u32::try_from(back.1.min(u64::from(blocks))).ok()?);
        let region = match map_log {
            MapLog::Tree => (front, front),
            MapLog::Append => {
                let wanted = region_cells(pieces);
                if superblock.region_cells != wanted
                    || superblock.region_start != u64::from(front) * u64::from(cells_per_block)
                {
                    return None;
                }
                let end = u64::from(front) + wanted.div_ceil(u64::from(cells_per_block));
                (front, u32::try_from(end).ok()?)
            }
        };
        if region.1 > back.0 || back.0 <= front {
            return None;
        }
        let landmarks =
            landmarks(&superblock, |block| block >= region.1 && !(back.0..back.1).contains(&block) && block < blocks)?;
        let usable = u64::from(blocks) - u64::from(region.1) - u64::from(back.1.saturating_sub(back.0));
        let usable = usable.checked_sub(landmarks as u64)?;
        let margin = margin(map_log, pieces);
        let data = if superblock.is_above() { 0 } else { u64::from(span) + u64::from(snapshots) };
        let taken = data + held(map_log, pieces) + margin;
        let spare = usable.checked_sub(taken).filter(|&spare| spare > 0)?; // L1
        Some(Layout {
            superblock,
            map_log,
            block_sectors,
            cell_sectors: u64::from(cell_bytes) / SECTOR_BYTES,
            cells_per_block,
            blocks,
            logical_blocks: logical,
            span,
            snapshots,
            entries_per_piece: entries,
            pieces,
            margin,
            transaction_blocks_max: spare.min(TRANSACTION_BLOCKS_MAX),
            region,
            back,
            front,
            landmarks,
        })
    }

    /// The superblock of a new device.
    ///
    /// # Errors
    /// When such a device is impossible.
    pub fn plan(geometry: Geometry, plan: &Plan) -> Result<Superblock, PlanError> {
        Layout::plan_around(geometry, plan, &[])
    }

    /// The same with landmarks in these blocks, which follow each other.
    ///
    /// # Errors
    /// As [`Layout::plan`].
    pub fn plan_around(geometry: Geometry, plan: &Plan, landmarks: &[u32]) -> Result<Superblock, PlanError> {
        let block_bytes = plan.block_bytes;
        let cell_bytes = (block_bytes / CELLS_MAX).max(SECTOR_BYTES as u32).max(geometry.block_bytes);
        if !block_bytes.is_power_of_two() || block_bytes > BLOCK_BYTES_MAX || block_bytes < cell_bytes {
            return Err(PlanError::Block { block_bytes, least: geometry.block_bytes.max(SECTOR_BYTES as u32) });
        }
        let blocks = geometry.sectors * SECTOR_BYTES / u64::from(block_bytes);
        if blocks > BLOCKS_MAX {
            return Err(PlanError::TooLarge { blocks, block_bytes });
        }
        let kept = u128::from(blocks) * u128::from(10_000 - plan.reserve.min(10_000)) / 10_000;
        let front = FRONT_SECTORS.div_ceil(u64::from(block_bytes) / SECTOR_BYTES);
        if plan.snapshots > SNAPSHOTS_MAX || plan.snapshots > 0 && plan.map_log != MapLog::Tree {
            return Err(PlanError::Snapshots { snapshots: plan.snapshots });
        }
        let make = |span: u64| {
            let logical_blocks = span * (u64::from(plan.snapshots) + 1);
            let pieces = logical_blocks.div_ceil(u64::from(entries_per_piece(cell_bytes))) as u32;
            let is_tree = plan.map_log == MapLog::Tree;
            Superblock {
                magic: super::format::MAGIC,
                version: super::format::VERSION,
                crc: 0,
                uuid: plan.uuid,
                key: plan.key,
                device_sectors: geometry.sectors,
                logical_blocks,
                block_bytes,
                cell_bytes,
                map_log: plan.map_log.number(),
                snapshots: plan.snapshots,
                region_start: if is_tree { 0 } else { front * u64::from(block_bytes / cell_bytes) },
                region_cells: if is_tree { 0 } else { region_cells(pieces) },
                features_incompatible: if plan.snapshots > 0 { FEATURE_SNAPSHOTS } else { 0 },
                features_compatible: 0,
                landmarks: [0; LANDMARKS_MAX],
            }
            .with_landmarks(landmarks)
        };
        // The largest that fits: the map grows with the blocks that it maps.
        let (mut low, mut high) = (0, kept as u64);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if Layout::new(make(middle)).is_some() { low = middle } else { high = middle - 1 }
        }
        match low {
            0 => Err(PlanError::TooSmall { bytes: geometry.bytes(), block_bytes }),
            most => {
                debug_assert!(Layout::new(make(most)).is_some(), "L1: what is planned can be opened");
                Ok(make(most))
            }
        }
    }

    /// The superblock of a new virtual log with a map of `entries` for an owner above.
    ///
    /// # Errors
    /// When such a log is impossible.
    pub fn plan_above(
        geometry: Geometry,
        plan: &Plan,
        entries: u32,
        landmarks: &[u32],
    ) -> Result<Superblock, PlanError> {
        let block_bytes = plan.block_bytes;
        let cell_bytes = (block_bytes / CELLS_MAX).max(SECTOR_BYTES as u32).max(geometry.block_bytes);
        if !block_bytes.is_power_of_two() || block_bytes > BLOCK_BYTES_MAX || block_bytes < cell_bytes {
            return Err(PlanError::Block { block_bytes, least: geometry.block_bytes.max(SECTOR_BYTES as u32) });
        }
        let superblock = Superblock {
            magic: super::format::MAGIC,
            version: super::format::VERSION,
            crc: 0,
            uuid: plan.uuid,
            key: plan.key,
            device_sectors: geometry.sectors,
            logical_blocks: u64::from(entries),
            block_bytes,
            cell_bytes,
            map_log: MapLog::Tree.number(),
            snapshots: 0,
            region_start: 0,
            region_cells: 0,
            features_incompatible: super::format::FEATURE_ABOVE,
            features_compatible: 0,
            landmarks: [0; LANDMARKS_MAX],
        }
        .with_landmarks(landmarks);
        match Layout::new(superblock) {
            Some(_) => Ok(superblock),
            None => Err(PlanError::TooSmall { bytes: geometry.bytes(), block_bytes }),
        }
    }

    /// Blocks that are offered above.
    pub fn offered(&self) -> u32 {
        self.span - u32::from(self.snapshots > 0)
    }

    /// The first entry of a map: 0 is that of the disk, the others are snapshots.
    pub fn map_start(&self, map: u32) -> u32 {
        debug_assert!(map <= self.snapshots, "H1: there is a map for the disk and for each snapshot");
        map * self.span
    }

    /// The entry of a snapshot's label: the last of its map.
    pub fn label_of(&self, map: u32) -> u32 {
        self.map_start(map) + self.offered()
    }

    /// First sectors of the superblocks and of the anchors.
    pub fn superblocks(&self) -> [u64; 2] {
        [super::format::SUPERBLOCK, back_sector(self.superblock.device_sectors).unwrap_or(super::format::SUPERBLOCK)]
    }

    pub fn anchors(&self) -> [u64; 2] {
        ANCHORS
    }

    /// The region of an append-only log, as first sector and length.
    pub fn append_region(&self) -> Option<(Sector, u64)> {
        let blocks = u64::from(self.region.1 - self.region.0);
        (blocks > 0).then(|| (self.sector_of(self.region.0), blocks * self.block_sectors))
    }

    /// Blocks with landmarks, in order.
    pub fn landmarks(&self) -> &[u32] {
        &self.superblock.landmarks[..self.landmarks]
    }

    /// The first block behind superblock and anchors.
    pub fn first_block(&self) -> u32 {
        self.front
    }

    /// True for blocks that hold neither data nor pieces.
    pub fn is_reserved(&self, block: u32) -> bool {
        block < self.front
            || self.landmarks().binary_search(&block).is_ok()
            || (self.region.0..self.region.1).contains(&block)
            || (self.back.0..self.back.1).contains(&block)
            || block >= self.blocks
    }

    /// True when [`Layout::is_reserved`] is true for some block of a range.
    pub fn has_reserved(&self, blocks: &std::ops::Range<u32>) -> bool {
        let meets = |(first, end): (u32, u32)| blocks.start < end && first < blocks.end;
        let landmark = self.landmarks().partition_point(|&block| block < blocks.start);
        let has_landmark = self.landmarks().get(landmark).is_some_and(|block| blocks.contains(block));
        has_landmark
            || meets((0, self.front))
            || meets(self.region)
            || meets(self.back)
            || meets((self.blocks, u32::MAX))
    }

    pub fn sector_of(&self, block: u32) -> Sector {
        debug_assert!(block <= self.blocks, "a block that has a place is on the device, or its end");
        Sector(u64::from(block) * self.block_sectors)
    }

    pub fn cell_sector(&self, cell: u64) -> Sector {
        debug_assert!(cell <= self.cells(), "a cell that has a place is on the device, or its end");
        Sector(cell * self.cell_sectors)
    }

    pub fn block_of(&self, cell: u64) -> u32 {
        (cell / u64::from(self.cells_per_block)) as u32
    }

    pub fn first_cell(&self, block: u32) -> u64 {
        u64::from(block) * u64::from(self.cells_per_block)
    }

    pub fn cells(&self) -> u64 {
        self.first_cell(self.blocks)
    }

    pub fn cell_bytes(&self) -> u32 {
        self.superblock.cell_bytes
    }

    pub fn block_bytes(&self) -> u32 {
        self.superblock.block_bytes
    }

    /// The piece that holds the entry of a logical block, and its index there.
    pub fn piece_of(&self, logical: u32) -> (u32, u32) {
        debug_assert!(logical < self.logical_blocks, "L1: an entry is one of the map");
        (logical / self.entries_per_piece, logical % self.entries_per_piece)
    }

    /// The logical blocks of a piece.
    pub fn blocks_of_piece(&self, piece: u32) -> std::ops::Range<u32> {
        let start = piece.saturating_mul(self.entries_per_piece);
        start..start.saturating_add(self.entries_per_piece).min(self.logical_blocks)
    }
}

/// Number of landmarks; `None` where they cannot be.
fn landmarks(superblock: &Superblock, is_free: impl Fn(u32) -> bool) -> Option<usize> {
    let (set, unset) = superblock.landmarks.split_at(superblock.landmarks.partition_point(|&block| block != 0));
    let is_sound = unset.iter().all(|&block| block == 0)
        && set.is_sorted_by(|one, two| one < two)
        && set.iter().all(|&block| is_free(block))
        && set.is_empty() == (superblock.features_incompatible & FEATURE_LANDMARKS == 0);
    is_sound.then_some(set.len())
}

/// First sector of the second superblock, on a device that has room for it behind the front.
pub fn back_sector(device_sectors: u64) -> Option<u64> {
    let at = (device_sectors / FIXED_SECTORS).checked_sub(1)? * FIXED_SECTORS;
    (at >= FRONT_SECTORS).then_some(at)
}

/// Blocks that all pieces together may take, in the worst case.
fn held(map_log: MapLog, pieces: u32) -> u64 {
    match map_log {
        MapLog::Tree => u64::from(pieces),
        MapLog::Append => 0,
    }
}

/// Blocks for a transaction that writes all pieces, and two for concurrent writes.
fn margin(map_log: MapLog, pieces: u32) -> u64 {
    held(map_log, pieces) + 2
}

/// Cells of an append-only log's region: two slots for the checkpoint of each piece, and a ring of as many records as
/// there are pieces, so that checkpoints can follow records one for one; at least 64.
fn region_cells(pieces: u32) -> u64 {
    2 * u64::from(pieces) + ring_cells(pieces)
}

/// Cells of the ring alone.
pub fn ring_cells(pieces: u32) -> u64 {
    u64::from(pieces).max(64)
}

const _: () = assert!(POINTERS >= 2); // Otherwise nothing could be adopted.
