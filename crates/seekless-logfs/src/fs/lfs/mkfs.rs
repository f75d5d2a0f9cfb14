//! Creating a volume.

use futures_util::future::LocalBoxFuture;

use super::assemble::{PartialWrite, SlotWrite, TransactionScope, assemble};
use super::format::*;
use super::layout::*;
use super::segments::Segments;
use super::state::*;
use super::{Options, default_segment_bytes};
use crate::device::{Buf, Data, Device, Discard, Spans, WriteFlags};
use crate::fs::logfs::change::Change;
use crate::fs::logfs::demand::ReserveAccess;
use crate::fs::logfs::run::read_sectors;
use crate::fs::logfs::volume_name::{random_uuid, stored_label};
use crate::fs::{FsError, FsResult, NewNode};
use crate::rt::Rt;
use crate::units::{Ino, SECTOR_BYTES, Sector};

/// Parameters of a new volume.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    pub uuid: uuid::Uuid,
    /// The UUID was not drawn at random, so that an earlier volume on the device may have had it.
    pub uuid_is_given: bool,
    /// At most 63 bytes of UTF-8.
    pub label: String,
    /// Bytes of a segment; the default is [`default_segment_bytes`].
    pub segment_bytes: Option<u64>,
    /// Part of the volume that files cannot fill, in per mille. The cleaner needs it.
    pub reserve_permille: u32,
    /// Key of the directory hash; should be unpredictable.
    pub hash_key: [u64; 2],
    /// Discard the whole device before writing, so that the storage below is free. Off keeps an image preallocated.
    pub discard: bool,
    pub permissions: u16,
    pub uid: u32,
    pub gid: u32,
}

impl MkfsOptions {
    /// Defaults. The caller chooses the source of `random`.
    pub fn new(random: [u64; 4]) -> MkfsOptions {
        MkfsOptions {
            uuid: random_uuid([random[0], random[1]]),
            uuid_is_given: false,
            label: String::new(),
            segment_bytes: None,
            reserve_permille: 50,
            hash_key: [random[2], random[3]],
            discard: true,
            permissions: 0o755,
            uid: 0,
            gid: 0,
        }
    }
}

/// Smallest reserve, in segments: what the cleaner needs to make progress on a full volume.
const RESERVE_SEGMENTS_MIN: u64 = 20;

/// Segments reserved when `permille` of `segment_count` is requested.
pub fn reserve_segments(segment_count: u64, permille: u32) -> u64 {
    (segment_count * u64::from(permille)).div_ceil(1000).max(RESERVE_SEGMENTS_MIN)
}

/// `options` for a device that is written in order: a segment is a span.
///
/// # Errors
/// `Invalid` when that cannot be.
fn one_span_each(options: &MkfsOptions, spans: Spans) -> FsResult<MkfsOptions> {
    let span_bytes = spans.sectors * SECTOR_BYTES;
    if options.segment_bytes.is_some_and(|bytes| bytes != span_bytes) {
        return Err(FsError::Invalid("a segment is as large as a span of the device; leave `segment` out"));
    }
    if spans.first != Sector(HEAD_SECTORS) {
        return Err(FsError::Invalid("the first span of the device is not where the first segment is"));
    }
    Ok(MkfsOptions { segment_bytes: Some(span_bytes), ..options.clone() })
}

/// The superblock that follows from `options` on a device of `sectors` sectors.
///
/// # Errors
/// `Invalid` when they do not fit together.
fn superblock(options: &MkfsOptions, sectors: u64, block_bytes: u32, created_seconds: i64) -> FsResult<Superblock> {
    let volume_sectors = sectors / BLOCK_SECTORS * BLOCK_SECTORS;
    let segment_bytes = options.segment_bytes.unwrap_or_else(|| default_segment_bytes(sectors * SECTOR_BYTES));
    let segment_sectors = segment_bytes / SECTOR_BYTES;
    let range = SEGMENT_SECTORS_MIN..=SEGMENT_SECTORS_MAX;
    if !segment_bytes.is_multiple_of(BLOCK_BYTES as u64) || !range.contains(&segment_sectors) {
        return Err(FsError::Invalid("a segment is a multiple of 4 KiB, from 128 KiB to 32 MiB"));
    }
    let usable = volume_sectors.saturating_sub(HEAD_SECTORS + BLOCK_SECTORS);
    let segment_count = usable / segment_sectors;
    if segment_count > SEGMENT_COUNT_MAX {
        // The rest would stay unused.
        return Err(FsError::Invalid(match segment_sectors < SEGMENT_SECTORS_MAX {
            true => "there are more than 4194304 segments of this size on the device; make them larger",
            false => "the device is larger than 4194304 segments of 32 MiB, which are 128 TiB; use a part of it",
        }));
    }
    if segment_count < SEGMENT_COUNT_MIN {
        return Err(FsError::Invalid("the volume is too small: it needs room for 64 segments (at least 8260 KiB)"));
    }
    if options.reserve_permille > 500 {
        return Err(FsError::Invalid("more than half of the volume would be reserve"));
    }
    let reserve = reserve_segments(segment_count, options.reserve_permille);
    let label = stored_label(&options.label)?;
    Ok(Superblock {
        magic: SUPERBLOCK_MAGIC,
        version: VERSION,
        crc: 0,
        uuid: options.uuid.into_bytes(),
        label,
        block_bytes: BLOCK_BYTES as u32,
        segment_sectors: segment_sectors as u32,
        segment_count,
        first_segment: HEAD_SECTORS,
        volume_sectors,
        reserve_segments: reserve as u32,
        align_sectors: block_bytes / SECTOR_BYTES as u32,
        hash_key: options.hash_key,
        created_seconds,
        features_compatible: 0,
        features_incompatible: FEATURE_WRITTEN,
        arrangement: 0,
    })
}

fn internal_inode(ino: Ino) -> Inode {
    let mut inode = Inode::decode(&[0; Inode::BYTES]).unwrap_or_else(|| unreachable!("the size is right"));
    (inode.magic, inode.ino, inode.links) = (INODE_MAGIC, ino.0, 1);
    inode
}

/// Creates an empty volume on all of `device`. Previous contents are lost.
///
/// # Errors
/// `Invalid` when the options do not fit the device, `Device` when it cannot be written.
pub fn mkfs<'a>(rt: &'a Rt, device: &'a Device, options: &'a MkfsOptions) -> LocalBoxFuture<'a, FsResult<()>> {
    Box::pin(write_volume(rt, device, options))
}

async fn write_volume(rt: &Rt, device: &Device, options: &MkfsOptions) -> FsResult<()> {
    let geometry = device.geometry();
    if geometry.block_bytes as usize > BLOCK_BYTES {
        return Err(FsError::Invalid("the device's blocks are larger than 4 KiB"));
    }
    let fitted;
    let (spans, options) = match device.spans() {
        Some(spans) => {
            fitted = one_span_each(options, spans)?;
            (true, &fitted)
        }
        None => (false, options),
    };
    let superblock = superblock(options, geometry.sectors, geometry.block_bytes, rt.wall().seconds)?;
    let superblock = Superblock { arrangement: device.arrangement(), ..superblock };
    let layout = Layout::new(superblock, geometry.sectors)?;

    let sequence = if options.uuid_is_given { sequence_after_earlier(rt, device, options.uuid).await? } else { 1 };
    // Nothing of an earlier volume may be mistaken for this one's: first remove all superblocks, write them last.
    let places = SUPERBLOCK_SECTORS.into_iter().chain([layout.superblock_backup()]);
    for place in places.clone() {
        device.write(place, Data::zeroes(BLOCK_BYTES), WriteFlags::NONE).await?;
    }
    for slot in CHECKPOINT_SECTORS {
        device.write(slot, Data::zeroes(2 * BLOCK_BYTES), WriteFlags::NONE).await?;
    }
    device.flush().await?;
    // Spans can be written again only when they are empty.
    if spans || options.discard && device.guarantees().discard != Discard::Ignored {
        let sectors = layout.segment_count() * layout.segment_sectors();
        device.discard(layout.segment_start(0), sectors).await?;
    }

    let (partials, checkpoint) = first_checkpoint(rt, layout, options, sequence)?;
    for PartialWrite { at, data, .. } in partials {
        device.write(at, data, WriteFlags::NONE).await?;
    }
    let SlotWrite { serial, block } = checkpoint;
    let mut copies = Buf::dirty(2 * BLOCK_BYTES);
    copies[..BLOCK_BYTES].copy_from_slice(&block[..]);
    copies[BLOCK_BYTES..].copy_from_slice(&block[..]);
    device.write(CHECKPOINT_SECTORS[(serial % 2) as usize], copies.freeze(), WriteFlags::NONE).await?;
    device.flush().await?;
    let block = Data::from_slice(&superblock.to_block());
    for place in places {
        device.write(place, block.clone(), WriteFlags::NONE).await?;
    }
    device.flush().await?;
    Ok(())
}

/// More partial segments than follow a checkpoint.
const SEQUENCES_AFTER_CHECKPOINT: u64 = 1 << 32;

/// A number above those of all partial segments that an earlier volume with this UUID may have left on the device. Otherwise a mount
/// would find partial segments there that say that the end of the new log is missing. A log without a slot has smaller numbers
/// than the time in nanoseconds: it began with 1, or with the time, and wrote less than one partial segment each nanosecond.
async fn sequence_after_earlier(rt: &Rt, device: &Device, uuid: uuid::Uuid) -> FsResult<u64> {
    let mut sequence = u64::try_from(rt.wall().nanos_since_epoch()).unwrap_or(0).max(1);
    for place in CHECKPOINT_SECTORS.into_iter().flat_map(|slot| [slot, slot + BLOCK_SECTORS]) {
        let read = match read_sectors(device, place, BLOCK_SECTORS).await {
            Err(FsError::Device(error)) if error.is_of_medium() => continue,
            read => read?,
        };
        if let Some(earlier) = Checkpoint::from_block(&read).filter(|earlier| earlier.uuid == *uuid.as_bytes()) {
            sequence = sequence.max(earlier.log_sequence.saturating_add(SEQUENCES_AFTER_CHECKPOINT));
        }
    }
    Ok(sequence.min(SEQUENCE_MAX))
}

/// Leaves numbers for all that a volume can write.
const SEQUENCE_MAX: u64 = 1 << 63;

/// The log of an empty volume: a root directory and the tables. Its first partial segment has number `sequence`.
fn first_checkpoint(
    rt: &Rt,
    layout: Layout,
    options: &MkfsOptions,
    sequence: u64,
) -> FsResult<(Vec<PartialWrite>, SlotWrite)> {
    let mut segments = Segments::new(&layout);
    segments.ready.extend(2..layout.segment_count());
    let log = LogEnd { segment: 0, offset: 0, next_segment: 1, sequence, chain: 0 };
    let mut state = Segmented::state(layout, Options::default(), segments, log);
    state.now = rt.wall();
    for ino in [IMAP_INO, USAGE_INO, ORPHAN_INO] {
        state.inodes.insert_permanent(ino, InodeMem::new(internal_inode(ino), InodeSlot::NONE));
    }
    let unexpected = |stop: Stop| match stop {
        Stop::Fail(error) => error,
        other => unreachable!("an empty volume has nothing to load or wait for: {other:?}"),
    };
    let mut change = Change::new(&mut state);
    change
        .make_root(NewNode { permissions: options.permissions, umask: 0, uid: options.uid, gid: options.gid })
        .map_err(unexpected)?;
    change.commit(ReserveAccess::Internal).map_err(unexpected)?;
    let transaction = assemble(&mut state, TransactionScope::Checkpoint { clean: true }).map_err(unexpected)?;
    match transaction {
        Some(transaction) => match transaction.checkpoint {
            Some(checkpoint) => Ok((transaction.partials, checkpoint)),
            None => unreachable!("it is a checkpoint"),
        },
        None => unreachable!("a checkpoint is never empty"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIB: u64 = 1 << 40;

    /// mkfs uses all of a device except a rest smaller than a segment, or says why not.
    #[test]
    fn no_part_of_a_large_device_is_left_out() {
        let of = |bytes: u64, segment_bytes| {
            let options = MkfsOptions { segment_bytes, ..MkfsOptions::new([1, 2, 3, 4]) };
            superblock(&options, bytes / SECTOR_BYTES, 4096, 0)
        };
        for tib in [1, 2, 8, 31, 32, 33, 63, 64, 65, 100, 128] {
            let made = of(tib * TIB, None).unwrap_or_else(|error| panic!("{tib} TiB: {error}"));
            let used = made.segment_count * u64::from(made.segment_sectors);
            assert!(tib * TIB / SECTOR_BYTES - used < u64::from(made.segment_sectors) + 256, "{tib} TiB: {made:?}");
            Layout::new(made, tib * TIB / SECTOR_BYTES).unwrap_or_else(|error| panic!("{tib} TiB: {error}"));
        }
        assert!(of(64 * TIB, Some(8 << 20)).is_err_and(|error| error.to_string().contains("larger")));
        assert!(of(200 * TIB, None).is_err_and(|error| error.to_string().contains("128 TiB")));
    }
}
