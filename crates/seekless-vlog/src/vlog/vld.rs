//! The virtual log disk as a block device.

use std::collections::BTreeSet;
use std::rc::Rc;

use async_trait::async_trait;

use super::buffer::TrackBuffer;
use super::claim::Claim;
use super::core::{CommitScope, Core};
use super::layout::{Layout, MapLog, Plan};
use super::open::{RecoveredMap, Superblocks, format, occupy, recover_timed, superblocks_of_blocks};
use super::options::{Options, Recovery, VldError};
use super::{compact, core};
use crate::device::{
    BlockDevice, Buf, Counter, Data, Device, DeviceError, Discard, Geometry, Guarantees, Snapshots, WriteFlags,
};
use crate::rt::Rt;
use crate::units::{MIB, Nanos, SECTOR_BYTES, Sector, human_bytes};

/// A virtual log disk. Requests are whole blocks; blocks that were never written, or were discarded, read as zeroes.
///
/// A write or discard that fits into the longest transaction is atomic across a power cut; see
/// [`Vld::transaction_bytes_max`].
pub struct Vld {
    pub(super) core: Rc<Core>,
    geometry: Geometry,
    recovery: Recovery,
}

impl Vld {
    /// Makes a new one on `device`; existing content is lost.
    ///
    /// # Errors
    /// When the device is too small or too large for `plan`, and device errors.
    pub async fn create(rt: &Rt, device: Device, plan: &Plan, options: Options) -> Result<Rc<Vld>, VldError> {
        format(&device, plan).await?;
        Vld::open(rt, device, options).await
    }

    /// Opens the one on `device`. Before the first change it writes nothing except a damaged superblock or
    /// landmark.
    ///
    /// # Errors
    /// `Nothing` and `Corrupt`, and device errors.
    pub async fn open(rt: &Rt, device: Device, options: Options) -> Result<Rc<Vld>, VldError> {
        let (layout, found, superblocks) = Vld::found(rt, &device, options.read_only).await?;
        let mended = if options.read_only { 0 } else { superblocks.mend(&device).await };
        let vld = Vld::around(rt, device, layout, options, found, 0);
        core::count(&vld.core.counts.superblocks_mended, mended);
        if vld.core.manage_backing() {
            vld.core.provision_fixed().await?;
        }
        Ok(vld)
    }

    /// Opens the snapshot `name` of the one on `device`, read-only; `None` when there is none of this name.
    ///
    /// # Errors
    /// As [`Vld::open`].
    pub async fn open_snapshot(
        rt: &Rt,
        device: Device,
        options: Options,
        name: &str,
    ) -> Result<Option<Rc<Vld>>, VldError> {
        let options = Options { read_only: true, ..options };
        let (layout, found, _) = Vld::found(rt, &device, true).await?;
        let map_index = super::labels::find(&device, &layout, &found.map, name).await?;
        Ok(map_index.map(|map_index| Vld::around(rt, device, layout, options, found, map_index)))
    }

    async fn found(rt: &Rt, device: &Device, read_only: bool) -> Result<(Layout, RecoveredMap, Superblocks), VldError> {
        let start = rt.now();
        let superblocks = superblocks_of_blocks(device).await?;
        let (layout, found) = recover_timed(rt, start, device, superblocks.superblock, read_only).await?;
        Ok((layout, found, superblocks))
    }

    fn around(
        rt: &Rt,
        device: Device,
        layout: Layout,
        options: Options,
        found: RecoveredMap,
        map_index: u32,
    ) -> Rc<Vld> {
        let has_head = device.head().is_some();
        let block_bytes = layout.block_bytes();
        let longest = layout.transaction_blocks_max * u64::from(block_bytes);
        let geometry = Geometry {
            sectors: u64::from(layout.offered()) * layout.block_sectors,
            block_bytes,
            request_bytes_max: u32::try_from(longest.max(MIB)).unwrap_or(u32::MAX) / block_bytes * block_bytes,
            zones: None,
        };
        let RecoveredMap { map, log, cells, recovery } = found;
        let core = Rc::new(Core::opened(rt, device, layout, options, map_index, log, |layout, state| {
            state.shares = occupy(&map, &cells, layout, &mut state.space);
            for (logical, &block) in map.iter().enumerate().filter(|(_, block)| **block != 0) {
                state.owner[block as usize] = logical as u32 + 1;
            }
            state.map = map;
            state.buffer = TrackBuffer::new(if has_head { options.tracks } else { 0 });
        }));
        if options.compact && has_head && !options.read_only {
            compact::start(&core);
        }
        Rc::new(Vld { core, geometry, recovery })
    }

    /// Work that opening had to do.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    pub fn layout(&self) -> &Layout {
        &self.core.layout
    }

    /// Longest write or discard that is atomic across a power cut, in bytes. Longer ones are several transactions.
    pub fn transaction_bytes_max(&self) -> u64 {
        self.core.layout.transaction_blocks_max * u64::from(self.core.layout.block_bytes())
    }

    /// True when every request is durable before it is acknowledged.
    pub fn commits_each(&self) -> bool {
        self.core.commit_each_write
    }

    /// Blocks that are mapped, and tracks that are empty.
    pub fn usage(&self) -> (u64, usize) {
        let state = self.core.state.borrow();
        let start = self.core.layout.map_start(self.core.map_index) as usize;
        let map = &state.map[start..start + self.core.layout.offered() as usize];
        (map.iter().filter(|&&block| block != 0).count() as u64, state.space.empty_tracks())
    }

    /// Fragmentation, for measurements: how many of `blocks` from `first` on are not placed behind the one before.
    pub fn breaks(&self, first: u32, blocks: u32) -> u32 {
        let state = self.core.state.borrow();
        let places = &state.map[first as usize..(first + blocks) as usize];
        places.windows(2).filter(|pair| pair[0] != 0 && pair[1] != 0 && pair[0] + 1 != pair[1]).count() as u32
    }

    /// Checks the invariants in memory between requests: those of the tree, of free space and of the map.
    ///
    /// # Errors
    /// The violated invariant.
    pub fn check_invariants(&self) -> Result<(), String> {
        super::check::invariants(&self.core)
    }

    /// Does all idle work; returns the number of steps.
    ///
    /// # Errors
    /// Device errors.
    pub async fn settle(&self) -> Result<u64, DeviceError> {
        compact::settle(&self.core).await
    }

    async fn command(&self) {
        if self.core.options.command > Nanos::ZERO {
            core::count(&self.core.counts.overhead_ns, self.core.options.command.0);
            self.core.rt.sleep(self.core.options.command).await;
        }
    }
}

impl Drop for Vld {
    fn drop(&mut self) {
        // The task that waits for idle time finds nothing to do.
        self.core.activity.event.notify();
    }
}

#[async_trait(?Send)]
impl BlockDevice for Vld {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            atomic_write_bytes: self.geometry.block_bytes,
            durable_on_completion: self.core.commit_each_write,
            // Transactions are moments of the past, but two concurrent requests may take effect in either order.
            ordered: false,
            discard: Discard::Zeroes,
        }
    }

    async fn read(&self, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        self.geometry.check(at, buf.len() as u64)?;
        let Some((first, _)) = self.core.blocks(at, buf.len() as u64) else { return Ok(buf) };
        let _active = self.core.active();
        core::count(&self.core.counts.reads, 1);
        self.command().await;
        self.core.read(first, &mut buf).await?;
        Ok(buf)
    }

    fn readings(&self) -> u32 {
        self.core.below.readings()
    }

    async fn read_as(&self, at: Sector, mut buf: Buf, reading: u32) -> Result<Buf, DeviceError> {
        self.geometry.check(at, buf.len() as u64)?;
        let Some((first, _)) = self.core.blocks(at, buf.len() as u64) else { return Ok(buf) };
        let places = self.core.pinned(first, buf.len());
        for (&block, target) in places.blocks.iter().zip(buf.chunks_mut(self.core.block_bytes())) {
            match block {
                0 => target.fill(0),
                block => {
                    let at = self.core.layout.sector_of(block);
                    target.copy_from_slice(&self.core.below.read_as(at, Buf::dirty(target.len()), reading).await?);
                }
            }
        }
        Ok(buf)
    }

    async fn correct(&self, at: Sector, data: Data) -> Result<bool, DeviceError> {
        self.geometry.check(at, data.len() as u64)?;
        if self.core.options.read_only {
            return Ok(false);
        }
        let Some((first, _)) = self.core.blocks(at, data.len() as u64) else { return Ok(false) };
        let places = self.core.pinned(first, data.len());
        let (bytes, mut any) = (self.core.block_bytes(), false);
        for (index, &block) in places.blocks.iter().enumerate().filter(|(_, block)| **block != 0) {
            let right = data.slice(index * bytes..(index + 1) * bytes);
            any |= self.core.below.correct(self.core.layout.sector_of(block), right).await?;
        }
        Ok(any)
    }

    /// Runs to its end even when the caller drops it.
    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.geometry.check(at, data.len() as u64)?;
        self.core.check_writable()?;
        let Some((first, _)) = self.core.blocks(at, data.len() as u64) else { return Ok(()) };
        let active = self.core.active();
        core::count(&self.core.counts.writes, 1);
        self.command().await;
        let core = self.core.clone();
        let work = async move {
            let _active = active;
            core.write(first, data, flags.fua).await
        };
        self.core.rt.spawn(work).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        if self.core.options.read_only {
            return Ok(());
        }
        let core = self.core.clone();
        self.core.rt.spawn(async move { core.commit_with(CommitScope::Promised, &BTreeSet::new()).await }).await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let bytes = sectors.min(u64::MAX / SECTOR_BYTES) * SECTOR_BYTES;
        self.geometry.check(at, bytes)?;
        self.core.check_writable()?;
        let Some((first, count)) = self.core.blocks(at, bytes) else { return Ok(()) };
        let active = self.core.active();
        self.command().await;
        let core = self.core.clone();
        let work = async move {
            let _active = active;
            core.forget(first, count).await
        };
        self.core.rt.spawn(work).await
    }

    /// Promises room for the next write of each block, as long as it is neither written nor discarded. A block that is mapped needs
    /// none, unless a snapshot has it, too: there is always room to write over it. A start knows of no promises.
    async fn provision(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let bytes = sectors.min(u64::MAX / SECTOR_BYTES) * SECTOR_BYTES;
        self.geometry.check(at, bytes)?;
        let Some((first, blocks)) = self.core.blocks(at, bytes) else { return Ok(()) };
        // A drive has all of its storage.
        if !self.core.state.borrow().space.is_managed() {
            return Ok(());
        }
        let core = self.core.clone();
        let work = async move {
            let promised = core.admit(Claim::Promise { first, blocks }).await;
            let bytes = blocks as usize * core.block_bytes();
            promised.map_err(|error| core.at_logical_address(error, first, bytes))
        };
        self.core.rt.spawn(work).await
    }

    /// Writes the record that lets the next start find the tail without a search.
    async fn release(&self) -> Result<(), DeviceError> {
        if self.core.options.read_only {
            return Ok(());
        }
        let core = self.core.clone();
        self.core.rt.spawn(async move { core.park().await }).await?;
        self.core.below.release().await
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        (self.core.layout.snapshots > 0).then_some(self)
    }

    fn counters(&self) -> Vec<Counter> {
        let (mapped, empty) = self.usage();
        let recovery = self.recovery;
        let mut counters = self.core.counts.all();
        counters.extend([
            ("blocks_mapped", mapped),
            ("tracks_empty", empty as u64),
            ("recovery_blocks_scanned", recovery.blocks_scanned),
            ("recovery_pieces_read", recovery.pieces_read),
            ("recovery_ns", recovery.time.0),
        ]);
        counters
    }

    fn arrangement(&self) -> u32 {
        self.core.below.arrangement()
    }

    fn describe(&self) -> String {
        let log = match self.core.layout.map_log {
            MapLog::Tree => "virtual log",
            MapLog::Append => "append-only log",
        };
        format!("vld, {log} ({}) / {}", human_bytes(self.geometry.bytes()), self.core.below.describe())
    }
}
