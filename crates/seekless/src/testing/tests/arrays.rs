//! Aim: a file system on RAID-1 and RAID-5 keeps its promises through power cuts, on a complete array and on one that
//! lacks a member. Method: LFS on an array whose members are parts of one crash device, under the crash explorer. Parts
//! are flushed together here; `volume::raid` explores members that are flushed one by one.

use std::rc::Rc;

use async_trait::async_trait;

use super::replay;
use crate::device::crash::CrashOptions;
use crate::device::{BlockDevice, Buf, Data, Device, DeviceError, Geometry, Guarantees, WriteFlags};
use crate::fs::{Fs, FsResult, lfs};
use crate::rt::Rt;
use crate::testing::scripts::SCRIPTS;
use crate::testing::{CrashReport, DamageTest, Generator, Op, PowerCuts, Promise, Space, Subject, Weights};
use crate::units::{KIB, MIB, SECTOR_BYTES, Sector};
use crate::volume::raid::{Array, ArrayError, ArrayOptions, Contents, JournalUse, Level};

/// A part of a device.
struct Part {
    whole: Device,
    at: u64,
    sectors: u64,
}

impl Part {
    fn check(&self, at: Sector, bytes: u64) -> Result<Sector, DeviceError> {
        self.geometry().check(at, bytes)?;
        Ok(at + self.at)
    }
}

#[async_trait(?Send)]
impl BlockDevice for Part {
    fn geometry(&self) -> Geometry {
        Geometry { sectors: self.sectors, ..self.whole.geometry() }
    }

    fn guarantees(&self) -> Guarantees {
        self.whole.guarantees()
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        let at = self.check(at, buf.len() as u64)?;
        self.whole.read(at, buf).await
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        let at = self.check(at, data.len() as u64)?;
        self.whole.write(at, data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.whole.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let at = self.check(at, sectors * SECTOR_BYTES)?;
        self.whole.discard(at, sectors).await
    }

    fn describe(&self) -> String {
        "part".to_string()
    }
}

/// LFS on an array of `members` parts of a device.
struct OnArray {
    level: Level,
    members: u64,
    journal: JournalUse,
    /// Given up when the file system has been made.
    missing: Option<usize>,
}

impl OnArray {
    fn parts(&self, whole: &Device) -> Vec<Device> {
        let sectors = whole.geometry().sectors / self.members / 8 * 8;
        let part = |slot: u64| Rc::new(Part { whole: whole.clone(), at: slot * sectors, sectors }) as Device;
        (0..self.members).map(part).collect()
    }

    fn options(&self) -> ArrayOptions {
        let options = ArrayOptions { journal: self.journal, region: Some(64 * KIB), ..ArrayOptions::new(self.level) };
        options.unit(32)
    }

    async fn array(&self, rt: &Rt, whole: &Device, read_only: bool) -> FsResult<Rc<Array>> {
        let members = self.parts(whole).into_iter().map(Some).collect();
        Ok(Array::open(rt, members, &ArrayOptions { read_only, ..self.options() }).await.map_err(failed)?)
    }

    /// Large enough for the smallest LFS volume behind the metadata of every member.
    fn bytes(&self) -> u64 {
        let data = if self.level == Level::Mirror { 1 } else { self.members - 1 };
        (9 * MIB / data + 768 * KIB).next_multiple_of(64 * KIB) * self.members
    }
}

fn failed(error: ArrayError) -> DeviceError {
    DeviceError::Io { operation: "open", at: Sector::ZERO, bytes: 0, cause: error.to_string() }
}

#[async_trait(?Send)]
impl Subject for OnArray {
    fn name(&self) -> String {
        format!("lfs on {:?} of {}, missing {:?}", self.level, self.members, self.missing)
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        let created = Array::create(rt, self.parts(&device), &self.options(), [1; 16], Contents::Zeroes).await;
        let array = created.map_err(failed)?;
        lfs::mkfs(rt, &(array.clone() as Device), &lfs::MkfsOptions::new([1, 2, 3, 4])).await?;
        if let Some(missing) = self.missing {
            array.give_up(missing).await.map_err(failed)?;
        }
        Ok(array.flush().await?)
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let array = self.array(rt, &device, false).await?;
        Ok(lfs::mount(rt.clone(), array, lfs::Options::default()).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let array = self.array(rt, &device, true).await?;
        Ok(lfs::fsck(rt.clone(), array, lfs::FsckOptions { data: true, ..lfs::FsckOptions::default() }).await?.errors)
    }
}

fn subjects() -> Vec<OnArray> {
    let subject = |level, members, journal, missing| OnArray { level, members, journal, missing };
    vec![
        subject(Level::Mirror, 2, JournalUse::Degraded, None),
        subject(Level::Parity, 3, JournalUse::Degraded, None),
        subject(Level::Parity, 4, JournalUse::Degraded, Some(1)),
        subject(Level::Parity, 3, JournalUse::Always, None),
    ]
}

/// A sample of the scripts' cuts, on every array.
#[test]
fn scripts_on_arrays() {
    let mut total = CrashReport::default();
    for subject in subjects() {
        for (index, script) in SCRIPTS.iter().enumerate() {
            if index % 4 != subject.members as usize % 4 {
                continue;
            }
            let device = CrashOptions::volatile(subject.bytes());
            let replay = replay("testing::tests::arrays::scripts_on_arrays");
            let cuts = PowerCuts::sampled(&subject, device, Promise::NAMESPACE_PREFIX, replay);
            let cuts = PowerCuts { positions_max: 25, ..cuts };
            total.add(cuts.run(&script.setup_ops(), &script.body_ops()).unwrap_or_else(|report| panic!("{report}")));
        }
    }
    println!("{total}");
    assert!(total.states > 200, "{total}");
}

/// Long random runs.
#[test]
fn random_runs_on_arrays() {
    let mut total = CrashReport::default();
    for (seed, subject) in subjects().into_iter().enumerate() {
        let ops: Vec<Op> = Generator::new(seed as u64, Space::small(), Weights::CRASHY).take(120).collect();
        let device = match seed % 2 {
            0 => CrashOptions::host_file(subject.bytes()),
            _ => CrashOptions::volatile(subject.bytes()),
        };
        let replay = replay("testing::tests::arrays::random_runs_on_arrays");
        let cuts = PowerCuts::sampled(&subject, device, Promise::NAMESPACE_PREFIX, replay);
        let cuts = PowerCuts { seed: seed as u64, positions_max: 40, ..cuts };
        total.add(cuts.run(&[], &ops).unwrap_or_else(|report| panic!("{report}")));
    }
    println!("{total}");
}

/// Flipped bits and lost sectors on members: an array with something to spare gives no wrong bytes for lost ones, and what
/// is flipped the file system above notices.
#[test]
fn damaged_members() {
    for subject in subjects() {
        let damage = DamageTest {
            subject: &subject,
            device: CrashOptions::volatile(subject.bytes()),
            flip_all: Vec::new(),
            flips: 25,
            losses: 25,
            splices: 10,
            data_checked: true,
            memory: None,
            seed: 1,
            replay: replay("testing::tests::arrays::damaged_members"),
        };
        let damage = match subject.missing {
            None => DamageTest { flip_all: std::iter::once(0..64).collect(), ..damage },
            Some(_) => damage,
        };
        let ops: Vec<Op> = Generator::new(3, Space::small(), Weights::BALANCED).take(100).collect();
        match damage.run(&ops) {
            Ok(report) => println!("{}: {report}", subject.name()),
            Err(report) => panic!("{report}"),
        }
    }
}
