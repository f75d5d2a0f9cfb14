//! Creating a volume: an empty virtual log, and a root directory in its first transaction.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use futures_util::future::LocalBoxFuture;

use super::assemble::Scope;
use super::format::*;
use super::{Options, recovery};
use crate::device::{Data, Device, Discard, WriteFlags};
use crate::fs::logfs::change::Change;
use crate::fs::logfs::demand::ReserveAccess;
use crate::fs::logfs::volume_name::{random_uuid, stored_label};
use crate::fs::{FsError, FsResult, NewNode};
use crate::rt::Rt;
use crate::units::{KIB, SECTOR_BYTES, Sector};
use crate::vlog::{MapLog, Plan, Store};

/// Parameters of a new volume.
#[derive(Clone, Debug)]
pub struct MkfsOptions {
    pub uuid: uuid::Uuid,
    /// At most 63 bytes of UTF-8.
    pub label: String,
    /// Bytes of the volume for each inode number.
    pub bytes_per_inode: u64,
    /// Part of the volume that files cannot fill, in per mille: room to write new versions before the old ones are
    /// free, and a choice of places for eager writing.
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
            label: String::new(),
            bytes_per_inode: 8 * KIB,
            reserve_permille: 50,
            hash_key: [random[2], random[3]],
            discard: true,
            permissions: 0o755,
            uid: 0,
            gid: 0,
        }
    }

    /// Key of the log's seals, derived from the hash key: as unpredictable as that one.
    fn log_key(&self) -> [u8; 16] {
        let half = |number: u8| {
            let mut hasher = SipHasher24::new_with_keys(self.hash_key[0], self.hash_key[1]);
            hasher.write(self.uuid.as_bytes());
            hasher.write(&[number]);
            hasher.finish()
        };
        (u128::from(half(0)) << 64 | u128::from(half(1))).to_le_bytes()
    }
}

/// Number of inodes of the smallest volume.
const INODES_MIN: u64 = 512;

/// Blocks of the smallest reserve, where that is less than an eighth of the volume: a request of 1 MiB, and a few more.
const RESERVE_BLOCKS_MIN: u64 = 320;

/// Part of the device in which other file systems have their first superblocks.
const FOREIGN_BYTES: u64 = 128 * KIB;

/// Addresses of inodes have 32 bits, in units of 256 bytes.
const VOLUME_BYTES_MAX: u64 = (1 << 32) * Inode::BYTES as u64;

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
    if geometry.bytes() > VOLUME_BYTES_MAX {
        return Err(FsError::Invalid("a VLFS has 1 TiB at most"));
    }
    if options.reserve_permille > 500 {
        return Err(FsError::Invalid("more than half of the volume would be reserve"));
    }
    let label = stored_label(&options.label)?;
    let blocks = geometry.sectors / BLOCK_SECTORS;
    let reserve = (blocks * u64::from(options.reserve_permille)).div_ceil(1000);
    let volume = VolumeRecord {
        magic: MAGIC,
        version: VERSION,
        reserved: 0,
        label,
        hash_key: options.hash_key,
        created_seconds: rt.wall().seconds,
        reserve_blocks: reserve.max(RESERVE_BLOCKS_MIN.min(blocks / 8)),
        features_compatible: 0,
        features_incompatible: 0,
    };
    let inodes = (geometry.bytes() / options.bytes_per_inode.max(BLOCK_BYTES as u64)).max(INODES_MIN) + FIRST_FREE_INO;
    let plan = Plan {
        block_bytes: BLOCK_BYTES as u32,
        reserve: 0,
        map_log: MapLog::Tree,
        snapshots: 0,
        uuid: options.uuid.into_bytes(),
        key: options.log_key(),
    };
    if options.discard && device.guarantees().discard != Discard::Ignored {
        let sectors = geometry.bytes() / BLOCK_BYTES as u64 * BLOCK_SECTORS;
        device.discard(Sector::ZERO, sectors).await?;
    }
    // Erase the superblocks of an earlier file system, so that it is no longer recognised.
    let cleared = FOREIGN_BYTES.min(geometry.bytes() / BLOCK_BYTES as u64 * BLOCK_BYTES as u64);
    for from in (0..cleared).step_by(BLOCK_BYTES) {
        device.write(Sector(from / SECTOR_BYTES), Data::zeroes(BLOCK_BYTES), WriteFlags::NONE).await?;
    }
    match Store::create(device, &plan, inodes as u32, &volume.to_bytes()).await {
        Ok(()) => {}
        Err(crate::vlog::VldError::Plan(_)) => {
            return Err(FsError::Invalid("the volume is too small: VLFS needs at least half a MiB"));
        }
        Err(error) => return Err(recovery::translate_error(device, error)),
    }
    let fs = recovery::recover(rt.clone(), device.clone(), Options { discard: options.discard, ..Options::default() })
        .await?;
    fs.run(|state| {
        let mut change = Change::new(state);
        change.make_root(NewNode { permissions: options.permissions, umask: 0, uid: options.uid, gid: options.gid })?;
        change.commit(ReserveAccess::Internal)
    })
    .await?;
    fs.sync(Scope::Everything).await?;
    let store = fs.state.borrow().log.store.clone();
    store.park().await?;
    device.flush().await?;
    Ok(())
}
