//! Aim and method: as in `testing::volumes::full_host`, with a virtual log disk between file system and host, or with an array
//! whose members are parts of a file there.

use async_trait::async_trait;

use super::replay;
use crate::device::{Device, DeviceError, Snapshots};
use crate::fs::client::Client;
use crate::fs::ffs::{Cause, Metadata};
use crate::fs::{Fs, FsResult, OpenFlags, ffs, lfs};
use crate::rng::Rng;
use crate::rt::Rt;
use crate::testing::parts::parts;
use crate::testing::tests::vld::failed;
use crate::testing::volumes::full_host::{self, Host, cuts::FullLives};
use crate::testing::volumes::simulate;
use crate::testing::{FsUnderTest, Op, Promise, Strength};
use crate::units::{KIB, MIB, Nanos, Sector};
use crate::vlog::{CommitUse, MapLog, Options, Plan, Vld};
use crate::volume::raid::{Array, ArrayError, ArrayOptions, Contents, JournalUse, Level};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Above {
    Lfs,
    Ffs(Metadata),
}

/// Below the virtual log disk, or below the file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Below {
    Host,
    Mirror,
    /// With parity on three members; all of them, or without the second one.
    Parity(JournalUse),
    Degraded,
}

/// All arrays with parity.
const PARITY: [Below; 3] = [Below::Parity(JournalUse::Degraded), Below::Parity(JournalUse::Always), Below::Degraded];

impl Below {
    fn options(self) -> ArrayOptions {
        let (level, journal) = match self {
            Below::Host | Below::Mirror => (Level::Mirror, JournalUse::Degraded),
            Below::Parity(journal) => (Level::Parity, journal),
            Below::Degraded => (Level::Parity, JournalUse::Degraded),
        };
        ArrayOptions { region: Some(64 * KIB), journal, ..ArrayOptions::new(level) }
    }

    fn members(self, device: &Device) -> Vec<Device> {
        parts(device, if self == Below::Mirror { 2 } else { 3 })
    }

    async fn create(self, rt: &Rt, device: Device) -> FsResult<Device> {
        if self == Below::Host {
            return Ok(device);
        }
        let created = Array::create(rt, self.members(&device), &self.options(), [1; 16], Contents::Zeroes).await;
        let array = created.map_err(not_an_array)?;
        if self == Below::Degraded {
            array.give_up(1).await.map_err(not_an_array)?;
        }
        Ok(array)
    }

    async fn open(self, rt: &Rt, device: Device, read_only: bool) -> FsResult<Device> {
        if self == Below::Host {
            return Ok(device);
        }
        let members = self.members(&device).into_iter().map(Some).collect();
        let options = ArrayOptions { read_only, ..self.options() };
        Ok(Array::open(rt, members, &options).await.map_err(not_an_array)?)
    }
}

fn not_an_array(error: ArrayError) -> DeviceError {
    DeviceError::Io { operation: "open", at: Sector::ZERO, bytes: 0, cause: error.to_string() }
}

/// LFS on an array.
struct OnArray {
    below: Below,
    lfs: lfs::Options,
}

#[async_trait(?Send)]
impl FsUnderTest for OnArray {
    fn name(&self) -> String {
        format!("LFS on {:?}", self.below)
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        let device = self.below.create(rt, device).await?;
        lfs::mkfs(rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await?;
        device.flush().await?;
        Ok(device.release().await?)
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let device = self.below.open(rt, device, false).await?;
        Ok(lfs::mount(rt.clone(), device, self.lfs).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let device = self.below.open(rt, device, true).await?;
        let options = lfs::FsckOptions { data: true, ..lfs::FsckOptions::default() };
        Ok(lfs::fsck(rt.clone(), device, options).await?.errors)
    }
}

/// A file system on a virtual log disk.
#[derive(Clone, Debug)]
struct OnVld {
    above: Above,
    map_log: MapLog,
    options: Options,
    lfs: lfs::Options,
    below: Below,
}

impl OnVld {
    fn new(above: Above) -> OnVld {
        let options = Options { commit: CommitUse::Flush, window: MIB, ..Options::default() };
        OnVld { above, map_log: MapLog::Tree, options, lfs: lfs::Options::default(), below: Below::Host }
    }
}

#[async_trait(?Send)]
impl FsUnderTest for OnVld {
    fn name(&self) -> String {
        format!("{:?} on vld, {:?}", self.above, self.map_log)
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        let plan =
            Plan { block_bytes: 4096, reserve: 700, map_log: self.map_log, snapshots: 0, uuid: [1; 16], key: [2; 16] };
        let device = self.below.create(rt, device).await?;
        let vld: Device = Vld::create(rt, device, &plan, self.options).await.map_err(failed)?;
        match self.above {
            Above::Lfs => lfs::mkfs(rt, &vld, &lfs::MkfsOptions::new([1, 2, 3, 4])).await?,
            Above::Ffs(_) => {
                let options = ffs::MkfsOptions { frag_bytes: 4096, ..ffs::MkfsOptions::new([1, 2]) };
                ffs::mkfs(rt, &vld, &options).await?;
            }
        }
        vld.flush().await?;
        Ok(vld.release().await?)
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let device = self.below.open(rt, device, false).await?;
        let vld: Device = Vld::open(rt, device, self.options).await.map_err(failed)?;
        match self.above {
            Above::Lfs => Ok(lfs::mount(rt.clone(), vld, self.lfs).await?),
            Above::Ffs(metadata) => {
                if !ffs::info(&vld).await?.clean {
                    // As a system does at boot; what has no name is freed.
                    let (repair, reconnect) = (true, false);
                    let options = ffs::FsckOptions { repair, reconnect, ..ffs::FsckOptions::default() };
                    ffs::fsck(rt, &vld, options).await?;
                }
                let options = ffs::Options { metadata, ..ffs::Options::default() };
                Ok(ffs::mount(rt.clone(), vld, options).await?)
            }
        }
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let device = self.below.open(rt, device, true).await?;
        let mut errors = crate::vlog::check(&device).await.map_err(failed)?.errors;
        let vld: Device = Vld::open(rt, device, Options { read_only: true, ..self.options }).await.map_err(failed)?;
        match self.above {
            Above::Lfs => {
                let options = lfs::FsckOptions { data: true, ..lfs::FsckOptions::default() };
                errors.extend(lfs::fsck(rt.clone(), vld, options).await?.errors);
            }
            Above::Ffs(_) => {
                let is_clean = ffs::info(&vld).await?.clean;
                let found = ffs::fsck(rt, &vld, ffs::FsckOptions::default()).await?;
                let problems = found
                    .problems
                    .into_iter()
                    .filter(|problem| is_clean || !matches!(problem.cause, Cause::Leak | Cause::Crash));
                errors.extend(problems.map(|problem| problem.text));
            }
        }
        Ok(errors)
    }

    fn can(&self, op: &Op) -> bool {
        self.above == Above::Lfs || op.is_possible_on_ufs1()
    }
}

#[test]
fn deleting_needs_no_room() {
    for above in [Above::Lfs, Above::Ffs(Metadata::Softdep), Above::Ffs(Metadata::Sync)] {
        simulate(1, async |rt| full_host::deleting_needs_no_room(&rt, &OnVld::new(above), 128 * MIB, 1.0, false).await);
    }
}

/// Aim: on a full host, a synced file that a snapshot of the `vld` has gets longer: the block at its end and the indirect block above
/// it, which are both refused, move to where files were that are younger than the snapshot, and a kill finds all of it.
#[test]
fn an_append_to_a_file_that_a_snapshot_has() {
    const SYNCED: usize = 13 * 8192 + 4096;
    const APPENDED: usize = 3 * 8192;
    crate::rt::covered();
    for metadata in [Metadata::Sync, Metadata::Async] {
        simulate(1, async |rt| {
            let host = Host::new(64 * MIB);
            let options = OnVld::new(Above::Ffs(metadata)).options;
            let plan = Plan {
                block_bytes: 4096,
                reserve: 700,
                map_log: MapLog::Tree,
                snapshots: 4,
                uuid: [1; 16],
                key: [2; 16],
            };
            let vld = Vld::create(&rt, host.clone(), &plan, options).await.unwrap();
            let device: Device = vld.clone();
            let shape = ffs::MkfsOptions { frag_bytes: 4096, ..ffs::MkfsOptions::new([1, 2]) };
            ffs::mkfs(&rt, &device, &shape).await.unwrap();
            let ffs_options = ffs::Options { metadata, ..ffs::Options::default() };
            let ffs = ffs::mount(rt.clone(), device.clone(), ffs_options).await.unwrap();
            let client = Client::new(ffs.clone());
            client.write_file(b"/f", &[1; SYNCED]).await.unwrap();
            client.sync().await.unwrap();
            vld.take("before").await.unwrap();
            for file in 0..20 {
                client.write_file(format!("/new{file}").as_bytes(), &[3; 100_000]).await.unwrap();
            }
            client.sync().await.unwrap();
            host.fill();
            // Whatever the disk has room for still.
            let mut filled = 0;
            while client.write_file(b"/fill", &vec![filled as u8; 8192 * (1 + filled)]).await.is_ok()
                && client.sync().await.is_ok()
            {
                filled += 8;
            }
            let _ = client.unlink(b"/fill").await;
            let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
            let appended = client.write(file, SYNCED as u64, &[2; APPENDED]).await;
            for file in 0..20 {
                client.unlink(format!("/new{file}").as_bytes()).await.unwrap();
            }
            if appended.is_err() {
                client.write(file, SYNCED as u64, &[2; APPENDED]).await.unwrap();
            }
            for _ in 0..2 {
                let _ = client.sync().await;
            }
            let synced = client.sync().await;
            println!("{metadata:?}: {filled} blocks filled; appended: {appended:?}; synced: {synced:?}");
            if synced.is_ok() {
                let vld: Device = Vld::open(&rt, host.killed(), options).await.unwrap();
                let again = Client::new(ffs::mount(rt.clone(), vld, ffs_options).await.unwrap());
                let found = again.read_file(b"/f").await.unwrap();
                assert!(found == [vec![1; SYNCED], vec![2; APPENDED]].concat(), "{metadata:?}: {} bytes", found.len());
            }
            assert_eq!(client.fs().check().await.unwrap(), Vec::<String>::new(), "{metadata:?}");
        });
    }
    println!("{:?}", crate::rt::covered().keys().filter(|point| point.contains("moves")).collect::<Vec<_>>());
}

#[test]
fn deleting_on_arrays_needs_no_room() {
    for above in [Above::Ffs(Metadata::Softdep), Above::Ffs(Metadata::Sync)] {
        let subject = OnVld { below: Below::Mirror, ..OnVld::new(above) };
        simulate(1, async |rt| full_host::deleting_needs_no_room(&rt, &subject, 256 * MIB, 2.0, false).await);
    }
    let subject = OnArray { below: Below::Mirror, lfs: lfs::Options::default() };
    simulate(1, async |rt| full_host::deleting_needs_no_room(&rt, &subject, 256 * MIB, 2.0, false).await);
}

#[test]
fn deleting_on_raid5_needs_no_room() {
    for below in PARITY {
        let copies = if below == Below::Degraded { 1.0 } else { 1.5 };
        let subject = OnVld { below, ..OnVld::new(Above::Ffs(Metadata::Softdep)) };
        simulate(1, async |rt| full_host::deleting_needs_no_room(&rt, &subject, 192 * MIB, copies, false).await);
    }
}

#[test]
fn killed_with_arrays_on_a_full_host() {
    let replay = replay("testing::tests::full_host::killed_with_arrays_on_a_full_host");
    for seed in replay.seeds(1..13) {
        let again = replay.command(seed, None, None, None);
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let lfs = lfs::Options {
                dirty_bytes_max: KIB << rng.between(7, 13),
                checkpoint_interval: Nanos::from_millis(rng.between(20, 20_000)),
                ..lfs::Options::default()
            };
            let below = if seed % 2 == 0 { Below::Mirror } else { PARITY[(seed / 2 % 3) as usize] };
            let bytes = MIB << (5 + seed % 3);
            let what = format!("seed {seed}, {below:?}; again: {again}");
            match rng.chance(1, 2) {
                true => {
                    full_host::lives(&rt, &OnArray { below, lfs }, bytes, &mut rng, &format!("{lfs:?} {what}")).await
                }
                false => {
                    let above = *rng.pick(&[Above::Lfs, Above::Ffs(Metadata::Softdep), Above::Ffs(Metadata::Sync)]);
                    let subject = OnVld { below, lfs, ..OnVld::new(above) };
                    let what = format!("{subject:?} {what}");
                    full_host::lives(&rt, &subject, bytes, &mut rng, &what).await;
                }
            }
        });
    }
}

#[test]
fn killed_on_a_full_host() {
    let replay = replay("testing::tests::full_host::killed_on_a_full_host");
    for seed in replay.seeds(1..9) {
        let again = replay.command(seed, None, None, None);
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let subject = OnVld {
                map_log: *rng.pick(&[MapLog::Tree, MapLog::Tree, MapLog::Append]),
                options: Options { discard: rng.chance(3, 4), ..OnVld::new(Above::Lfs).options },
                lfs: lfs::Options {
                    dirty_bytes_max: KIB << rng.between(7, 13),
                    discard: rng.chance(3, 4),
                    discard_after: Nanos::from_millis(rng.below(2) * rng.below(9000)),
                    checkpoint_interval: Nanos::from_millis(rng.between(20, 20_000)),
                    ..lfs::Options::default()
                },
                ..OnVld::new(*rng.pick(&[
                    Above::Lfs,
                    Above::Lfs,
                    Above::Ffs(Metadata::Softdep),
                    Above::Ffs(Metadata::Sync),
                ]))
            };
            let what = format!("{subject:?}; again: {again}");
            full_host::lives(&rt, &subject, MIB << (4 + seed % 3), &mut rng, &what).await;
        });
    }
}

#[test]
fn cuts_of_lfs_on_a_full_host() {
    let lives = FullLives {
        test: "testing::tests::full_host::cuts_of_lfs_on_a_full_host",
        promise: Promise::NAMESPACE_PREFIX,
        bytes: 16 * MIB,
        capacity: 1500,
        rounds: 16,
        seeds: 4,
    };
    lives.live(|seed| OnVld {
        map_log: if seed % 4 == 3 { MapLog::Append } else { MapLog::Tree },
        ..OnVld::new(Above::Lfs)
    });
}

fn cuts_of_ffs(test: &str, metadata: Metadata, promise: Promise) {
    let lives = FullLives { test, promise, bytes: 16 * MIB, capacity: 1000, rounds: 16, seeds: 2 };
    lives.live(|_| OnVld::new(Above::Ffs(metadata)));
}

#[test]
fn cuts_of_ffs_on_a_full_host() {
    let test = "testing::tests::full_host::cuts_of_ffs_on_a_full_host";
    cuts_of_ffs(test, Metadata::Sync, Promise::IN_PLACE);
}

#[test]
fn cuts_of_soft_updates_on_a_full_host() {
    let test = "testing::tests::full_host::cuts_of_soft_updates_on_a_full_host";
    let promise = Promise { strength: Strength::InPlace { at_once: false }, ..Promise::IN_PLACE };
    cuts_of_ffs(test, Metadata::Softdep, promise);
}

#[test]
fn cuts_of_soft_updates_on_a_mirror_on_a_full_host() {
    let lives = FullLives {
        test: "testing::tests::full_host::cuts_of_soft_updates_on_a_mirror_on_a_full_host",
        promise: Promise { strength: Strength::InPlace { at_once: false }, ..Promise::IN_PLACE },
        bytes: 16 * MIB,
        capacity: 1900,
        rounds: 12,
        seeds: 2,
    };
    lives.live(|_| OnVld { below: Below::Mirror, ..OnVld::new(Above::Ffs(Metadata::Softdep)) });
}

/// LFS for which little waits in memory, and which gives storage back at once or after a while.
fn on_array(below: Below, seed: u64) -> OnArray {
    let discard_after = Nanos::from_millis(seed % 3 * 2000);
    OnArray { below, lfs: lfs::Options { dirty_bytes_max: MIB, discard_after, ..lfs::Options::default() } }
}

#[test]
fn cuts_of_lfs_on_a_mirror_on_a_full_host() {
    let lives = FullLives {
        test: "testing::tests::full_host::cuts_of_lfs_on_a_mirror_on_a_full_host",
        promise: Promise::NAMESPACE_PREFIX,
        bytes: 20 * MIB,
        capacity: 2000,
        rounds: 12,
        seeds: 3,
    };
    lives.live(|seed| on_array(Below::Mirror, seed));
}

#[test]
fn cuts_of_lfs_on_raid5_on_a_full_host() {
    let lives = FullLives {
        test: "testing::tests::full_host::cuts_of_lfs_on_raid5_on_a_full_host",
        promise: Promise::NAMESPACE_PREFIX,
        bytes: 16 * MIB,
        capacity: 2300,
        rounds: 12,
        seeds: 6,
    };
    lives.live(|seed| on_array(PARITY[(seed % 3) as usize], seed));
}

#[test]
fn cuts_of_soft_updates_on_raid5_on_a_full_host() {
    let lives = FullLives {
        test: "testing::tests::full_host::cuts_of_soft_updates_on_raid5_on_a_full_host",
        promise: Promise { strength: Strength::InPlace { at_once: false }, ..Promise::IN_PLACE },
        bytes: 16 * MIB,
        capacity: 2300,
        rounds: 12,
        seeds: 3,
    };
    lives.live(|seed| OnVld { below: PARITY[(seed % 3) as usize], ..OnVld::new(Above::Ffs(Metadata::Softdep)) });
}
