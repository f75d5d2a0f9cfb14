//! Aim: on a host that has no room, a power cut loses nothing that was acknowledged as durable, a mount needs no room that it
//! cannot get, and files can be removed afterwards. Method: long lives with power cuts and kills on a sparse file whose host has few blocks; a
//! power cut also takes what was provisioned and never written, so that the next life has to find it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use async_trait::async_trait;

use super::HOST_BLOCK_SECTORS;
use crate::device::crash::CrashOptions;
use crate::device::{BlockDevice, Buf, Data, Device, DeviceError, Geometry, Guarantees, WriteFlags};
use crate::fs::{Fs, FsResult};
use crate::rt::Rt;
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

/// A sparse file on a host with room for so many blocks of it.
struct FewBlocks {
    file: Device,
    allocated: RefCell<BTreeSet<u64>>,
    /// Blocks that have been written, even with zeroes.
    written: Rc<RefCell<BTreeSet<u64>>>,
    capacity: u64,
    seen: Rc<Seen>,
}

impl FewBlocks {
    /// Allocated are blocks that were written, also if a power cut has taken what was written, and those that are not zero, also
    /// if a power cut has taken the discard. There may be more of them than the host has room for; then it has none for others.
    async fn new(
        file: Device,
        written: Rc<RefCell<BTreeSet<u64>>>,
        capacity: u64,
        seen: Rc<Seen>,
    ) -> Result<FewBlocks, DeviceError> {
        let mut allocated = written.borrow().clone();
        let block_bytes = (HOST_BLOCK_SECTORS * SECTOR_BYTES) as usize;
        let bytes = file.geometry().bytes();
        for at in (0..bytes).step_by(MIB as usize) {
            let read = file.read(Sector(at / SECTOR_BYTES), Buf::dirty(MIB.min(bytes - at) as usize)).await?;
            let blocks = (at / block_bytes as u64..).zip(read.chunks(block_bytes));
            allocated.extend(blocks.filter(|(_, block)| block.iter().any(|&byte| byte != 0)).map(|(block, _)| block));
        }
        *written.borrow_mut() = allocated.clone();
        let host = FewBlocks { file, allocated: allocated.into(), written, capacity, seen };
        host.note_use();
        Ok(host)
    }

    fn note_use(&self) {
        let blocks = self.allocated.borrow().len() as u64;
        self.seen.most.set(self.seen.most.get().max(blocks));
    }

    /// Allocates from the beginning on, and returns how many sectors there was room for.
    fn allocate(&self, at: Sector, sectors: u64) -> u64 {
        let mut allocated = self.allocated.borrow_mut();
        let end = at.0 + sectors;
        let full = (at.0 / HOST_BLOCK_SECTORS..end.div_ceil(HOST_BLOCK_SECTORS)).find(|&block| {
            let has_room = allocated.contains(&block) || (allocated.len() as u64) < self.capacity;
            if has_room {
                allocated.insert(block);
            }
            !has_room
        });
        drop(allocated);
        self.note_use();
        full.map_or(sectors, |block| (block * HOST_BLOCK_SECTORS).saturating_sub(at.0))
    }
}

#[async_trait(?Send)]
impl BlockDevice for FewBlocks {
    fn geometry(&self) -> Geometry {
        self.file.geometry()
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
            self.written.borrow_mut().extend(at.0 / HOST_BLOCK_SECTORS..end);
            self.file.write(at, data.slice(0..fits as usize), flags).await?;
        }
        if fits < bytes {
            self.seen.writes_refused.update(|count| count + 1);
            return Err(DeviceError::NoSpace { at, bytes });
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.file.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.file.discard(at, sectors).await?;
        let whole = at.0.div_ceil(HOST_BLOCK_SECTORS)..(at.0 + sectors) / HOST_BLOCK_SECTORS;
        for block in whole {
            self.allocated.borrow_mut().remove(&block);
            self.written.borrow_mut().remove(&block);
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
    written: Rc<RefCell<BTreeSet<u64>>>,
    seen: Rc<Seen>,
}

#[async_trait(?Send)]
impl<S: FsUnderTest> FsUnderTest for OnFewBlocks<S> {
    fn name(&self) -> String {
        format!("{} on a host with {} blocks", self.inner.name(), self.capacity)
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        self.written.borrow_mut().clear();
        let host = FewBlocks::new(device, self.written.clone(), u64::MAX, Rc::default()).await?;
        self.inner.mkfs(rt, Rc::new(host)).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let host = FewBlocks::new(device, self.written.clone(), self.capacity, self.seen.clone()).await?;
        self.inner.mount(rt, Rc::new(host)).await
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        self.inner.fsck(rt, device).await
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
        let here = replay(self.test);
        let (mut refused, mut full) = (0, 0);
        for seed in here.seeds(1..1 + self.seeds) {
            let seen = Rc::new(Seen::default());
            let subject = OnFewBlocks {
                inner: subject(seed),
                capacity: self.capacity,
                written: Rc::default(),
                seen: seen.clone(),
            };
            let device = match seed % 2 {
                0 => CrashOptions::host_file(self.bytes),
                _ => CrashOptions::in_order(self.bytes),
            };
            let cuts = PowerCuts::sampled(&subject, device, self.promise, here.clone());
            let life = Life {
                cuts: PowerCuts { seed, ..cuts },
                space: Space { directories: 2, depth_max: 1, files: 60, file_bytes_max: 1_500_000, ..Space::small() },
                weights: OpMix::CRASHY,
                rounds: here.soak.times(self.rounds as u64) as usize,
                ops: 150,
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
