//! Aim: a file system on RAID-1 and RAID-5 keeps its promises through power cuts, on a complete array and on one that
//! lacks a member. After a power cut that also destroys a member, rows that were being written are in doubt; the file
//! system never returns wrong bytes, and later writes are there. Method: LFS, and VLFS, on an array whose members are
//! parts of one crash device, under the crash explorers. Parts are flushed together here; `volume::raid` explores
//! members that are flushed one by one.

use std::rc::Rc;

use async_trait::async_trait;

use super::{replay, some_scripts};
use crate::device::crash::CrashOptions;
use crate::device::cut::Effort;
use crate::device::{BlockDevice, Device, DeviceError, Memory};
use crate::fs::client::Client;
use crate::fs::{Fs, FsResult, lfs, vlfs};
use crate::rng::Rng;
use crate::rt::{Executor, HostProfile, Rt};
use crate::testing::parts::parts;
use crate::testing::volumes::clients::Clients;
use crate::testing::volumes::life::{Lives, Manner};
use crate::testing::{
    CrashReport, DamageTest, FsUnderTest, Generator, Op, OpMix, PowerCuts, Promise, SecondCut, Space,
};
use crate::units::{KIB, MIB, Nanos, Sector};
use crate::volume::raid::{Array, ArrayError, ArrayOptions, Contents, JournalUse, Level, UncertainData};

/// What is on an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Upper {
    Lfs,
    Vlfs,
}

/// A file system on an array of `members` parts of a device.
struct OnArray {
    upper: Upper,
    /// How often everything is written back.
    write_back: Nanos,
    level: Level,
    members: u64,
    journal: JournalUse,
    /// Given up when the file system has been made.
    missing: Option<usize>,
}

impl OnArray {
    fn options(&self) -> ArrayOptions {
        let options = ArrayOptions { journal: self.journal, region: Some(64 * KIB), ..ArrayOptions::new(self.level) };
        options.unit(32)
    }

    async fn array(&self, rt: &Rt, whole: &Device, read_only: bool) -> FsResult<Rc<Array>> {
        let members = parts(whole, self.members).into_iter().map(Some).collect();
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
impl FsUnderTest for OnArray {
    fn name(&self) -> String {
        format!("{:?} on {:?} of {}, missing {:?}", self.upper, self.level, self.members, self.missing)
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        let created = Array::create(rt, parts(&device, self.members), &self.options(), [1; 16], Contents::Zeroes).await;
        let array = created.map_err(failed)?;
        let device: Device = array.clone();
        match self.upper {
            Upper::Lfs => lfs::mkfs(rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await?,
            Upper::Vlfs => vlfs::mkfs(rt, &device, &vlfs::MkfsOptions::new([1, 2, 3, 4])).await?,
        }
        if let Some(missing) = self.missing {
            array.give_up(missing).await.map_err(failed)?;
        }
        Ok(array.flush().await?)
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let array = self.array(rt, &device, false).await?;
        let write_back_interval = self.write_back;
        Ok(match self.upper {
            Upper::Lfs => {
                let options = lfs::Options { write_back_interval, ..lfs::Options::default() };
                lfs::mount(rt.clone(), array, options).await?
            }
            Upper::Vlfs => {
                let options = vlfs::Options { write_back_interval, ..vlfs::Options::default() };
                vlfs::mount(rt.clone(), array, options).await?
            }
        })
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let array = self.array(rt, &device, true).await?;
        Ok(match self.upper {
            Upper::Lfs => {
                let options = lfs::FsckOptions { data: true, ..lfs::FsckOptions::default() };
                lfs::fsck(rt.clone(), array, options).await?.errors
            }
            Upper::Vlfs => {
                let options = vlfs::FsckOptions { data: true, ..vlfs::FsckOptions::default() };
                vlfs::fsck(rt.clone(), array, options).await?.errors
            }
        })
    }
}

fn subjects() -> Vec<OnArray> {
    let write_back = lfs::Options::default().write_back_interval;
    let subject =
        |level, members, journal, missing| OnArray { upper: Upper::Lfs, write_back, level, members, journal, missing };
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
    let replay = replay("testing::tests::arrays::scripts_on_arrays");
    let mut total = CrashReport::default();
    for subject in subjects() {
        total.add(some_scripts(&subject, subject.bytes(), subject.members as usize % 4, 4, 25, &replay));
    }
    println!("{total}");
    assert!(total.states > 200 || !replay.runs_everything(), "{total}");
}

/// Long random runs.
#[test]
fn random_runs_on_arrays() {
    let mut total = CrashReport::default();
    for (seed, subject) in subjects().into_iter().enumerate() {
        let ops: Vec<Op> = Generator::new(seed as u64, Space::small(), OpMix::CRASHY).take(120).collect();
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

/// One of the subjects, with either file system, which writes back now and then.
fn drawn(seed: u64) -> OnArray {
    let upper = if seed % 3 == 1 { Upper::Vlfs } else { Upper::Lfs };
    let write_back = Nanos::from_millis([2, 30][seed as usize / 2 % 2]);
    OnArray { upper, write_back, ..subjects().swap_remove(seed as usize % 4) }
}

/// Enough for each.
fn bytes() -> u64 {
    subjects().iter().map(OnArray::bytes).max().unwrap_or(0).next_multiple_of(12 * 64 * KIB)
}

/// Several programs at once, whose writes and fsyncs overlap.
#[test]
fn several_clients_on_arrays() {
    let clients = Clients {
        test: "testing::tests::arrays::several_clients_on_arrays",
        promise: Promise::NAMESPACE_PREFIX,
        devices: &CrashOptions::each(bytes()),
        seeds: 8,
        positions: 14,
        states_min: 400,
        second_cut: Some(SecondCut { every: 40, ops: 8, positions: 6, effort: Effort::SAMPLED }),
    };
    clients.explore(drawn);
}

/// One volume through many cuts, small and crowded.
#[test]
fn long_lives_on_arrays() {
    let lives = Lives {
        test: "testing::tests::arrays::long_lives_on_arrays",
        manners: &[Manner::Sparse, Manner::Crowded],
        devices: &CrashOptions::each_cached(bytes()),
        promise: Promise::NAMESPACE_PREFIX,
        edges: &[],
        setbacks: true,
        errors: false,
        kills: true,
        fsck_unrecovered: true,
        rounds: 10,
        seeds: 4,
        points: &[],
    };
    lives.live(drawn);
}

/// The power fails, and one member does not come back. Method: files made durable one after the other; everything
/// readable afterwards is right, new files survive one more cut, and a file system that cannot be mounted says why, and
/// can be with `doubt=accept`.
#[test]
fn a_cut_that_takes_a_member() {
    const MEMBERS: usize = 3;
    let replay = replay("testing::tests::arrays::a_cut_that_takes_a_member");
    let (mut mounts, mut lost, mut refused, mut doubted) = (0, 0, 0, 0);
    for seed in replay.seeds(1..7) {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        println!("{}", replay.command(seed, None, None, None));
        let run = async {
            let mut rng = Rng::new(seed);
            let options = ArrayOptions { region: Some(64 * KIB), degraded: true, ..ArrayOptions::new(Level::Parity) };
            let options = options.unit([16, 32, 128][seed as usize % 3]);
            let bytes = 8 * MIB;
            let disks: Vec<Rc<Memory>> = (0..MEMBERS).map(|_| Rc::new(Memory::new(bytes))).collect();
            let given = disks.iter().map(|disk| disk.clone() as Device).collect();
            let array = Array::create(&rt, given, &options, [1; 16], Contents::Zeroes).await.unwrap();
            lfs::mkfs(&rt, &(array.clone() as Device), &lfs::MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
            let fs = lfs::mount(rt.clone(), array, lfs::Options::default()).await.unwrap();
            let client = Client::new(fs);
            let content = |number: u64| vec![number as u8; 3000 + 1000 * (number as usize % 40)];
            let name = |number: u64| format!("/f{number}").into_bytes();
            let count = rng.between(5, 80);
            for number in 0..count {
                client.write_file(&name(number), &content(number)).await.unwrap();
                client.fsync_path(&name(number)).await.unwrap();
                rt.sleep(Nanos::from_millis(rng.below(300))).await;
            }
            for missing in 0..MEMBERS {
                // Memory keeps written data.
                let copies = |disks: &[Rc<Memory>]| -> Vec<Rc<Memory>> {
                    disks.iter().map(|disk| Rc::new(Memory::from_image(bytes, disk.image()))).collect()
                };
                let mut left = copies(&disks);
                let mut doubt = UncertainData::Refuse;
                let mut written = 0;
                for turn in 0..3 {
                    let given = |disks: &[Rc<Memory>]| -> Vec<Option<Device>> {
                        let given = |slot: usize| (slot != missing).then(|| disks[slot].clone() as Device);
                        (0..MEMBERS).map(given).collect()
                    };
                    let open = async |disks: &[Rc<Memory>], doubt| {
                        Array::open(&rt, given(disks), &ArrayOptions { doubt, ..options }).await
                    };
                    let array = open(&left, doubt).await.unwrap();
                    doubted += u64::from(array.status().doubtful > 0);
                    let mounted = lfs::mount(rt.clone(), array, lfs::Options::default()).await;
                    let fs = match mounted {
                        Ok(fs) => fs,
                        Err(error) => {
                            assert!(turn == 0, "mounted once, and not again: {error}");
                            println!("missing {missing}, units of {}: {error}", options.unit);
                            assert!(error.to_string().contains("doubt=accept"), "no hint: {error}");
                            refused += 1;
                            doubt = UncertainData::Accept;
                            left = copies(&disks);
                            let array = open(&left, doubt).await.unwrap();
                            lfs::mount(rt.clone(), array, lfs::Options::default()).await.unwrap()
                        }
                    };
                    mounts += 1;
                    let client = Client::new(fs);
                    for number in 0..count {
                        match client.read_file(&name(number)).await {
                            Ok(read) => assert!(read == content(number), "file {number} holds something else"),
                            Err(_) if doubt == UncertainData::Refuse => lost += 1,
                            Err(error) => panic!("file {number}: {error}"),
                        }
                    }
                    for number in 1000..1000 + written {
                        let read = client.read_file(&name(number)).await;
                        let read = read.unwrap_or_else(|error| panic!("written in turn {turn}: {error}"));
                        assert!(read == content(number), "file {number} holds something else");
                    }
                    for _ in 0..10 {
                        let number = 1000 + written;
                        client.write_file(&name(number), &content(number)).await.unwrap();
                        client.fsync_path(&name(number)).await.unwrap();
                        written += 1;
                    }
                    left = copies(&left);
                }
            }
        };
        executor.block_on(run).unwrap();
    }
    println!("{mounts} mounts, {doubted} in doubt, {lost} reads of files refused, {refused} mounts refused");
    assert!(replay.seed.is_some() || (mounts > 30 && doubted > 20), "{mounts} mounts, {doubted} in doubt");
}

/// Flipped bits and lost sectors on members: a redundant array returns no wrong bytes for lost ones, and the file
/// system above detects flipped ones.
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
        let ops: Vec<Op> = Generator::new(3, Space::small(), OpMix::BALANCED).take(100).collect();
        match damage.run(&ops) {
            Ok(report) => println!("{}: {report}", subject.name()),
            Err(report) => panic!("{report}"),
        }
    }
}
