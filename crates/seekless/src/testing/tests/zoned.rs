//! Aim: LFS on zones keeps its promises through power cuts, damage and full volumes. Method: LFS on a zoned store on zones that are
//! stored on a crash device, under the explorers; zones of one span and of several.

use std::cell::RefCell;

use async_trait::async_trait;

use super::{replay, some_scripts};
use crate::device::crash::CrashOptions;
use crate::device::cut::Effort;
use crate::device::{Device, DeviceError, Zones};
use crate::fs::client::Client;
use crate::fs::{Fs, FsResult, OpenFlags, lfs};
use crate::rng::Rng;
use crate::rt::Rt;
use crate::testing::stored_zones::StoredZones;
use crate::testing::volumes::clients::Clients;
use crate::testing::volumes::life::{Lives, Manner, must_have_covered};
use crate::testing::volumes::model::check as check_model;
use crate::testing::volumes::space::fill;
use crate::testing::volumes::{fresh, session, simulate};
use crate::testing::{
    CrashReport, DamageTest, Faults, FsUnderTest, Generator, Op, OpMix, PowerCuts, Promise, SecondCut, Space,
};
use crate::units::{KIB, Nanos, SECTOR_BYTES, Sector};
use crate::volume::zoned::{Plan, Store, ZonedError, check};

struct OnZones {
    zones: Zones,
    span_bytes: Option<u64>,
    options: lfs::Options,
}

fn failed(error: ZonedError) -> DeviceError {
    match error {
        ZonedError::Device(error) => error,
        other => DeviceError::Io { operation: "open", at: Sector::ZERO, bytes: 0, cause: other.to_string() },
    }
}

/// `count` zones of which `capacity` bytes can be written, as few of them at once as the store can do with.
fn zones(count: u32, capacity: u64) -> Zones {
    let capacity_sectors = capacity / SECTOR_BYTES;
    let zone_sectors = capacity_sectors.next_power_of_two();
    Zones { count, zone_sectors, capacity_sectors, open_max: 4, active_max: 4 }
}

impl OnZones {
    /// A span is a zone.
    fn whole() -> OnZones {
        OnZones { zones: zones(72, 640 * KIB), span_bytes: None, options: lfs::Options::default() }
    }

    /// A zone has five spans, and little room is spare.
    fn parts() -> OnZones {
        OnZones { zones: zones(20, 648 * KIB), span_bytes: Some(128 * KIB), options: lfs::Options::default() }
    }

    fn bytes(&self) -> u64 {
        StoredZones::bytes(&self.zones)
    }

    async fn open(&self, device: Device, read_only: bool) -> FsResult<Device> {
        let zones: Device = StoredZones::open(device, self.zones).await?;
        Ok(Store::open(zones, read_only).await.map_err(failed)?)
    }
}

#[async_trait(?Send)]
impl FsUnderTest for OnZones {
    fn name(&self) -> String {
        format!("lfs on {} zones", self.zones.count)
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        let zones: Device = StoredZones::open(device, self.zones).await?;
        let plan = Plan { uuid: [1; 16], span_bytes: self.span_bytes, spare: 0 };
        let store: Device = Store::create(zones, &plan).await.map_err(failed)?;
        lfs::mkfs(rt, &store, &lfs::MkfsOptions::new([1, 2, 3, 4])).await?;
        Ok(store.flush().await?)
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let store = self.open(device, false).await?;
        Ok(lfs::mount(rt.clone(), store, self.options).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let zones: Device = StoredZones::open(device.clone(), self.zones).await?;
        let checkup = check(&zones).await.map_err(failed)?;
        let store = self.open(device, true).await?;
        let options = lfs::FsckOptions { data: true, ..lfs::FsckOptions::default() };
        let mut errors = lfs::fsck(rt.clone(), store, options).await?.errors;
        errors.extend(checkup.errors);
        Ok(errors)
    }

    /// A zone has its room, or is refused before anything is written.
    fn meets_no_space(&self) -> bool {
        false
    }
}

fn subjects() -> [OnZones; 2] {
    [OnZones::whole(), OnZones::parts()]
}

/// One of them, with checkpoints and write-back as often as a seed says.
fn drawn(seed: u64) -> OnZones {
    let options = lfs::Options {
        checkpoint_interval: Nanos::from_millis(if seed.is_multiple_of(3) { 60 } else { 5 }),
        write_back_interval: Nanos::from_millis(2),
        ..lfs::Options::default()
    };
    let [whole, parts] = subjects();
    OnZones { options, ..if seed.is_multiple_of(2) { whole } else { parts } }
}

/// Enough for either.
fn bytes() -> u64 {
    subjects().iter().map(OnZones::bytes).max().unwrap_or(0)
}

/// A sample of the scripts' cuts.
#[test]
fn scripts_on_zones() {
    let replay = replay("testing::tests::zoned::scripts_on_zones");
    let mut total = CrashReport::default();
    for (number, subject) in subjects().into_iter().enumerate() {
        total.add(some_scripts(&subject, subject.bytes(), number, 3, 20, &replay));
    }
    println!("{total}");
    assert!(total.states > 150 || !replay.runs_everything(), "{total}");
}

/// Long random runs, on devices with and without a cache.
#[test]
fn random_runs_on_zones() {
    let mut total = CrashReport::default();
    for seed in 0..4 {
        let subject = &subjects()[seed as usize % 2];
        let ops: Vec<Op> = Generator::new(seed, Space::small(), OpMix::CRASHY).take(100).collect();
        let device = match seed {
            0 | 1 => CrashOptions::volatile(subject.bytes()),
            2 => CrashOptions::host_file(subject.bytes()),
            _ => CrashOptions::write_through(subject.bytes()),
        };
        let replay = replay("testing::tests::zoned::random_runs_on_zones");
        let cuts = PowerCuts::sampled(subject, device, Promise::NAMESPACE_PREFIX, replay);
        let cuts = PowerCuts { seed, positions_max: 30, ..cuts };
        total.add(cuts.run(&[], &ops).unwrap_or_else(|report| panic!("{report}")));
    }
    println!("{total}");
}

/// Flipped bits and lost sectors below: the store opens or reports the damage, and no wrong bytes are returned.
#[test]
fn damaged_zones() {
    for subject in subjects() {
        let damage = DamageTest {
            subject: &subject,
            device: CrashOptions::volatile(subject.bytes()),
            flip_all: Vec::new(),
            flips: 40,
            losses: 40,
            splices: 10,
            data_checked: true,
            memory: None,
            seed: 1,
            replay: replay("testing::tests::zoned::damaged_zones"),
        };
        let ops: Vec<Op> = Generator::new(3, Space::small(), OpMix::BALANCED).take(100).collect();
        match damage.run(&ops) {
            Ok(report) => println!("{}: {report}", subject.name()),
            Err(report) => panic!("{report}"),
        }
    }
}

/// Several programs at once, whose writes and fsyncs overlap.
#[test]
fn several_clients_on_zones() {
    let clients = Clients {
        test: "testing::tests::zoned::several_clients_on_zones",
        promise: Promise::NAMESPACE_PREFIX,
        devices: &CrashOptions::each(bytes()),
        seeds: 8,
        positions: 16,
        states_min: 400,
        second_cut: Some(SecondCut { every: 40, ops: 8, positions: 8, effort: Effort::SAMPLED }),
    };
    clients.explore(drawn);
}

/// One volume through many cuts, small and crowded.
#[test]
fn long_lives_on_zones() {
    let lives = Lives {
        test: "testing::tests::zoned::long_lives_on_zones",
        manners: &[Manner::Sparse, Manner::Crowded],
        devices: &CrashOptions::each_cached(bytes()),
        promise: Promise::NAMESPACE_PREFIX,
        edges: &[],
        setbacks: true,
        errors: true,
        kills: true,
        fsck_unrecovered: true,
        rounds: 16,
        seeds: 20,
        points: &["zoned: a new log in the other metadata zone", "zoned: the end of a span is cut off"],
    };
    lives.live(drawn);
}

/// Each request to the zones in turn fails.
#[test]
fn failing_requests_on_zones() {
    for (seed, subject) in subjects().iter().enumerate() {
        let seed = seed as u64;
        let ops: Vec<Op> = Generator::new(seed, Space::small(), OpMix::CRASHY).take(60).collect();
        let replay = replay("testing::tests::zoned::failing_requests_on_zones");
        let cuts =
            PowerCuts::sampled(subject, CrashOptions::volatile(subject.bytes()), Promise::NAMESPACE_PREFIX, replay);
        let faults = Faults { cuts: PowerCuts { seed, ..cuts }, each_max: 12, positions_max: 3 };
        println!("{}", faults.run(&[], &ops).unwrap_or_else(|report| panic!("{report}")));
    }
}

/// The same answers as the model's.
#[test]
fn answers_on_zones() {
    let replay = replay("testing::tests::zoned::answers_on_zones");
    for (seed, subject) in subjects().iter().enumerate() {
        check_model(subject, &replay, seed as u64, subject.bytes(), 800, Space::small());
    }
}

/// A volume is filled, emptied, and kept nearly full while it is overwritten five times over: no operation waits without end, and none
/// fails for lack of zones.
#[test]
fn full_volumes_on_zones() {
    for subject in subjects() {
        simulate(1, async |rt| {
            let (_, device) = fresh(&rt, &subject, subject.bytes()).await;
            for bytes in [3_000, 400_000] {
                session(&rt, &subject, &device, async |client| {
                    let most = fill(client, bytes).await;
                    let count = most - most / 15 - 1;
                    assert!(count > 10, "only {count} files of {bytes} bytes");
                    for file in count..most {
                        client.unlink(format!("/f{file}").as_bytes()).await.unwrap();
                    }
                    for file in 0..count {
                        assert!(
                            client.read_file(format!("/f{file}").as_bytes()).await.unwrap() == vec![file as u8; bytes]
                        );
                    }
                    let mut rng = Rng::new(1);
                    let volume = client.fs().statfs().await.unwrap().blocks * 4096;
                    for _ in 0..5 * volume / bytes as u64 {
                        let file = rng.below(count);
                        let open = client.open(format!("/f{file}").as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
                        client.write(open, 0, &vec![file as u8; bytes]).await.unwrap();
                        client.close(open).await.unwrap();
                    }
                    for file in 0..count {
                        client.unlink(format!("/f{file}").as_bytes()).await.unwrap();
                    }
                })
                .await;
            }
        });
    }
}

/// Power cuts while zones are emptied for room: on a volume that is nearly full, files are overwritten and made durable. Each block
/// is what it was or what was written, and new where the sync had returned.
#[test]
fn cuts_while_zones_are_emptied() {
    const BLOCKS: u64 = 25;
    const TURNS: u64 = 4;
    let subject = OnZones::parts();
    let replay = replay("testing::tests::zoned::cuts_while_zones_are_emptied");
    let cuts = PowerCuts::sampled(&subject, CrashOptions::volatile(subject.bytes()), Promise::NAMESPACE_PREFIX, replay);
    let versions = RefCell::new(Vec::new());
    let overwrite = async |client: &Client, file: u64, version: u8| {
        let open = client.open(format!("/f{file}").as_bytes(), OpenFlags::READ_WRITE).await?;
        client.write(open, 0, &vec![version; (BLOCKS * 4096) as usize]).await?;
        client.close(open).await
    };
    let chosen = |turn: u64, files: usize| turn * 7 % files as u64;
    crate::rt::covered();
    let run = cuts.run_program(
        async |client| {
            let files = fill(&client, (BLOCKS * 4096) as usize).await;
            client.unlink(format!("/f{}", files - 1).as_bytes()).await?;
            *versions.borrow_mut() = (0..files - 1).map(|file| file as u8).collect();
            let mut rng = Rng::new(1);
            for turn in 0..3 * files {
                let file = rng.below(files - 1);
                overwrite(&client, file, 100 + turn as u8 % 100).await?;
                versions.borrow_mut()[file as usize] = 100 + turn as u8 % 100;
                client.sync().await?;
            }
            Ok(())
        },
        async |client| {
            let files = versions.borrow().len();
            for turn in 0..TURNS {
                overwrite(&client, chosen(turn, files), 250).await?;
                client.sync().await?;
            }
            Ok(())
        },
        async |client, done| {
            let versions = versions.borrow().clone();
            let new: Vec<u64> = (0..TURNS).map(|turn| chosen(turn, versions.len())).collect();
            for (file, &version) in versions.iter().enumerate() {
                let read = client.read_file(format!("/f{file}").as_bytes()).await?;
                let is_all = |version: u8| read == vec![version; (BLOCKS * 4096) as usize];
                let is_new = new.contains(&(file as u64));
                let is_mixed =
                    || read.len() as u64 == BLOCKS * 4096 && read.iter().all(|byte| [250, version].contains(byte));
                if !(if is_new { is_all(250) || !done && is_mixed() } else { is_all(version) }) {
                    return Ok(false);
                }
            }
            Ok(true)
        },
    );
    println!("{}", run.unwrap_or_else(|report| panic!("{report}")));
    must_have_covered("cuts_while_zones_are_emptied", &["zoned: a zone is emptied"]);
}
