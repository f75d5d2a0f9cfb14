//! Aim: on a host that has no room, a power cut loses nothing that was acknowledged as durable, a mount needs no room that it
//! cannot get, and files can be removed afterwards. Method: long lives with power cuts and kills on a sparse file whose host has few blocks; a
//! power cut also takes what was provisioned and never written, so that the next life has to find it. As on a real host, a file never
//! has more blocks than there is room for, whatever a power cut undoes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use async_trait::async_trait;

use super::HOST_BLOCK_SECTORS;
use crate::device::crash::CrashOptions;
use crate::device::{BlockDevice, Buf, Data, Device, DeviceError, Geometry, Guarantees, WriteFlags};
use crate::fs::{Fs, FsResult};
use crate::rt::{Gate, Rt};
use crate::testing::environment::replay;
use crate::testing::ops::Op;
use crate::testing::{FsUnderTest, Life, OpMix, PowerCuts, Promise, Space};
use crate::units::{MIB, SECTOR_BYTES, Sector};

/// What happened on the hosts of one test.
#[derive(Default)]
struct Seen {
    /// Writes, and other requests, that found no room.
    writes_refused: Cell<u64>,
    provisions_refused: Cell<u64>,
    /// Most blocks that a file had.
    most: Cell<u64>,
}

const BLOCK_BYTES: usize = (HOST_BLOCK_SECTORS * SECTOR_BYTES) as usize;

/// Blocks of a file at most: as many as the map has bits. Where a power cut tears it, each bit is that of one of the maps that were
/// being written, and its block as if the cut had been then.
const BLOCKS_MAX: u64 = BLOCK_BYTES as u64 * 8;

/// A sparse file on a host with room for so many blocks of it.
///
/// The last block of the device below has the host's map of the blocks that have been written, even with zeroes. It is cut with
/// everything else: a map of the end of a round says too much about a cut in its middle.
struct FewBlocks {
    file: Device,
    allocated: RefCell<BTreeSet<u64>>,
    /// Blocks that a snapshot of the host has, too, and how many of them have been written over since.
    held: RefCell<BTreeSet<u64>>,
    copies: Cell<u64>,
    written: RefCell<BTreeSet<u64>>,
    map_gate: Gate,
    /// Blocks whose discard a power cut may still undo, and how many flushes had begun by then. Their room is for nothing else
    /// before that: ext4 and XFS give it away when their journal is durable.
    discarded: RefCell<BTreeMap<u64, u64>>,
    flushes: Cell<u64>,
    capacity: u64,
    seen: Rc<Seen>,
}

impl FewBlocks {
    /// As after a power cut. Allocated are blocks that were written, and those that are not zero, also if a power cut has taken the discard.
    async fn new(file: Device, capacity: u64, seen: Rc<Seen>) -> Result<FewBlocks, DeviceError> {
        let bytes = file.geometry().bytes() - BLOCK_BYTES as u64;
        assert!(bytes <= BLOCKS_MAX * BLOCK_BYTES as u64, "the map is one block");
        let map = file.read(Sector(bytes / SECTOR_BYTES), Buf::dirty(BLOCK_BYTES)).await?;
        let is_written = |block: &u64| map[(block / 8) as usize] >> (block % 8) & 1 == 1;
        let written: BTreeSet<u64> = (0..BLOCKS_MAX).filter(is_written).collect();
        let mut allocated = written.clone();
        for at in (0..bytes).step_by(MIB as usize) {
            let read = file.read(Sector(at / SECTOR_BYTES), Buf::dirty(MIB.min(bytes - at) as usize)).await?;
            let blocks = (at / BLOCK_BYTES as u64..).zip(read.chunks(BLOCK_BYTES));
            allocated.extend(blocks.filter(|(_, block)| block.iter().any(|&byte| byte != 0)).map(|(block, _)| block));
        }
        assert!(allocated.len() as u64 <= capacity, "{} blocks on a host with {capacity}", allocated.len());
        let host = FewBlocks {
            file,
            allocated: allocated.into(),
            held: RefCell::default(),
            copies: Cell::new(0),
            written: written.into(),
            map_gate: Gate::new(),
            discarded: RefCell::default(),
            flushes: Cell::new(0),
            capacity,
            seen,
        };
        host.note_use();
        Ok(host)
    }

    fn note_use(&self) {
        let blocks = self.allocated.borrow().len() as u64;
        self.seen.most.set(self.seen.most.get().max(blocks));
    }

    /// Allocates from the beginning on, and returns how many sectors there was room for.
    fn allocate(&self, at: Sector, sectors: u64) -> u64 {
        let (mut allocated, mut discarded) = (self.allocated.borrow_mut(), self.discarded.borrow_mut());
        let end = at.0 + sectors;
        let full = (at.0 / HOST_BLOCK_SECTORS..end.div_ceil(HOST_BLOCK_SECTORS)).find(|&block| {
            // The room of what was discarded is for itself.
            let others = allocated.len() + discarded.len() - usize::from(discarded.contains_key(&block));
            let is_held = self.held.borrow().contains(&block);
            let has_room = allocated.contains(&block) && !is_held || others as u64 + self.copies.get() < self.capacity;
            if has_room {
                self.held.borrow_mut().remove(&block);
                self.copies.update(|copies| copies + u64::from(is_held));
                allocated.insert(block);
                discarded.remove(&block);
            }
            !has_room
        });
        drop((allocated, discarded));
        self.note_use();
        full.map_or(sectors, |block| (block * HOST_BLOCK_SECTORS).saturating_sub(at.0))
    }

    /// The host, which copies on write, makes a snapshot of the file.
    fn snapshot(&self) {
        self.held.replace(self.allocated.borrow().clone());
    }

    async fn write_map(&self) -> Result<(), DeviceError> {
        let _pass = self.map_gate.enter().await;
        let mut map = Buf::zeroed(BLOCK_BYTES);
        for block in self.written.borrow().iter() {
            map[(block / 8) as usize] |= 1 << (block % 8);
        }
        self.file.write(Sector(self.geometry().sectors), map.freeze(), WriteFlags::default()).await
    }
}

#[async_trait(?Send)]
impl BlockDevice for FewBlocks {
    fn geometry(&self) -> Geometry {
        let below = self.file.geometry();
        Geometry { sectors: below.sectors - HOST_BLOCK_SECTORS, ..below }
    }

    fn guarantees(&self) -> Guarantees {
        self.file.guarantees()
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.file.read(at, buf).await
    }

    /// As much of it as there is room for is written in any case.
    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        let bytes = data.len() as u64;
        let fits = self.allocate(at, bytes / SECTOR_BYTES) * SECTOR_BYTES;
        if fits > 0 {
            let end = (at.0 + fits / SECTOR_BYTES).div_ceil(HOST_BLOCK_SECTORS);
            let before = self.written.borrow().len();
            self.written.borrow_mut().extend(at.0 / HOST_BLOCK_SECTORS..end);
            if self.written.borrow().len() > before {
                self.write_map().await?;
            }
            self.file.write(at, data.slice(0..fits as usize), flags).await?;
        }
        if fits < bytes {
            self.seen.writes_refused.update(|count| count + 1);
            return Err(DeviceError::NoSpace { at, bytes });
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.flushes.update(|flushes| flushes + 1);
        let number = self.flushes.get();
        self.file.flush().await?;
        self.discarded.borrow_mut().retain(|_, begun| *begun >= number);
        Ok(())
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.file.discard(at, sectors).await?;
        let whole = at.0.div_ceil(HOST_BLOCK_SECTORS)..(at.0 + sectors) / HOST_BLOCK_SECTORS;
        let is_free = |block: &u64| {
            let is_held = self.held.borrow_mut().remove(block);
            self.copies.update(|copies| copies + u64::from(is_held));
            self.allocated.borrow_mut().remove(block) && !is_held
        };
        let freed: Vec<u64> = whole.filter(is_free).collect();
        for &block in &freed {
            self.written.borrow_mut().remove(&block);
            self.discarded.borrow_mut().insert(block, u64::MAX);
        }
        self.write_map().await?;
        // Flushes that begin from now on make it durable.
        for block in freed {
            self.discarded.borrow_mut().entry(block).and_modify(|begun| *begun = self.flushes.get());
        }
        Ok(())
    }

    async fn provision(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        if self.allocate(at, sectors) == sectors {
            return Ok(());
        }
        self.seen.provisions_refused.update(|count| count + 1);
        Err(DeviceError::NoSpace { at, bytes: sectors * SECTOR_BYTES })
    }

    fn describe(&self) -> String {
        "a sparse file on a host with few blocks".to_owned()
    }
}

/// A file system in such a file, mounted once after the other. It is made while there is room.
struct OnFewBlocks<S> {
    inner: S,
    capacity: u64,
    /// The host makes a snapshot after each mount, which is gone at the next one.
    has_snapshots: bool,
    seen: Rc<Seen>,
}

#[async_trait(?Send)]
impl<S: FsUnderTest> FsUnderTest for OnFewBlocks<S> {
    fn name(&self) -> String {
        format!("{} on a host with {} blocks", self.inner.name(), self.capacity)
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        let host = FewBlocks::new(device, u64::MAX, Rc::default()).await?;
        self.inner.mkfs(rt, Rc::new(host)).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        // After a kill, discards may wait in the device's cache. A host flushes when its journal is replayed.
        device.flush().await?;
        let host = Rc::new(FewBlocks::new(device, self.capacity, self.seen.clone()).await?);
        let mounted = self.inner.mount(rt, host.clone()).await?;
        if self.has_snapshots {
            host.snapshot();
        }
        Ok(mounted)
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let host = FewBlocks::new(device, u64::MAX, Rc::default()).await?;
        self.inner.fsck(rt, Rc::new(host)).await
    }

    fn can(&self, op: &Op) -> bool {
        self.inner.can(op)
    }
}

/// Lives on full hosts.
pub struct FullLives<'a> {
    /// Full name of the test.
    pub test: &'a str,
    pub promise: Promise,
    /// Bytes of a volume, and blocks of 4 KiB that its host has for it.
    pub bytes: u64,
    pub capacity: u64,
    pub rounds: usize,
    pub seeds: u64,
}

impl FullLives<'_> {
    /// `subject` decides for each seed how it is mounted.
    pub fn live<S: FsUnderTest>(&self, subject: impl Fn(u64) -> S) {
        self.live_on(subject, false);
    }

    /// The same on a host that copies on write, so that anything can be refused.
    pub fn live_with_snapshots<S: FsUnderTest>(&self, subject: impl Fn(u64) -> S) {
        self.live_on(subject, true);
    }

    fn live_on<S: FsUnderTest>(&self, subject: impl Fn(u64) -> S, has_snapshots: bool) {
        let here = replay(self.test);
        let (mut refused, mut full) = (0, 0);
        for seed in here.seeds(1..1 + self.seeds) {
            let seen = Rc::new(Seen::default());
            let subject =
                OnFewBlocks { inner: subject(seed), capacity: self.capacity, has_snapshots, seen: seen.clone() };
            let device = match seed % 2 {
                0 => CrashOptions::host_file(self.bytes + BLOCK_BYTES as u64),
                _ => CrashOptions::in_order(self.bytes + BLOCK_BYTES as u64),
            };
            let cuts = PowerCuts::sampled(&subject, device, self.promise, here.clone());
            let life = Life {
                cuts: PowerCuts { seed, ..cuts },
                space: Space { directories: 2, depth_max: 1, files: 60, file_bytes_max: 1_500_000, ..Space::small() },
                weights: OpMix::CRASHY,
                rounds: here.soak.times(self.rounds as u64) as usize,
                ops: 150,
                first_ops: Vec::new(),
                sweep_every: Some(3),
                fsck_unrecovered: false,
                setbacks: false,
                errors: false,
                kills: true,
                host_fills: true,
                every_op: false,
            };
            let report = life.run().unwrap_or_else(|report| panic!("{report}"));
            let Seen { writes_refused, provisions_refused, most } = &*seen;
            let (writes, provisions, most) = (writes_refused.get(), provisions_refused.get(), most.get());
            let name = subject.name();
            println!("{name}: {report}; refused {writes} writes and {provisions} provisions; {most} blocks at most");
            refused += writes + provisions;
            full += report.full;
        }
        assert!(
            refused > 0 && full > 0,
            "the hosts were never full: {refused} refusals, {full} operations without room"
        );
    }
}
