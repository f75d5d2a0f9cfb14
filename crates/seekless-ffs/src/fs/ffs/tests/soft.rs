//! Aim: with soft updates a power cut leaves only leaks, a volume can be read without having been checked, and synced
//! data is there. Method: the crash explorer, with an update every few milliseconds, on devices with different
//! guarantees; each state is checked without repair, read as it is, repaired, and read again.

use super::crash::{BYTES, devices, lives, possible_ones, update_interval};
use super::*;
use crate::device::crash::CrashOptions;
use crate::device::cut::Effort;
use crate::testing::environment::{or_panic, replay};
use crate::testing::generate::bounded;
use crate::testing::scripts::SCRIPTS;
use crate::testing::volumes::clients::Clients;
use crate::testing::volumes::life::Lives;
use crate::testing::{CrashReport, Faults, Generator, Op, OpMix, PowerCuts, Promise, Replay, Space, Strength, Tree};

pub(super) const PROMISE: Promise = Promise { strength: Strength::InPlace { at_once: false }, ..Promise::IN_PLACE };

pub(super) fn softly() -> Options {
    Options { metadata: Metadata::Softdep, update_interval: Nanos::from_millis(3), ..Options::default() }
}

/// A volume with soft updates, on which only leaks may be found; except after a second cut, which can have cut the
/// check short, whose own writes are in no order.
struct Leaky {
    volume: Volume,
    strict: bool,
}

impl Default for Leaky {
    fn default() -> Leaky {
        let mkfs = MkfsOptions { bytes_per_inode: Some(32_768), ..small_groups() };
        Leaky { volume: Volume { mkfs, options: softly() }, strict: true }
    }
}

impl Leaky {
    /// For second cuts.
    fn twice() -> Leaky {
        Leaky { strict: false, ..Leaky::default() }
    }

    /// Checks a volume that was not closed, and reads it as it is.
    async fn look(&self, rt: &Rt, device: &Device) -> FsResult<()> {
        // Without reconnecting orphans, which would need space itself.
        let look = FsckOptions { reconnect: false, ..FsckOptions::default() };
        let found = fsck(rt, device, look).await?;
        if let Some(problem) = found.problems.iter().find(|problem| problem.cause != Cause::Leak) {
            return Err(FsError::corrupt("volume", "after a power cut", format!("no leak: {}", problem.text)));
        }
        // One of two names of a directory leads nowhere.
        let renamed = found.problems.iter().any(|problem| problem.text.contains("second name"));
        let options = Options { read_only: true, ..self.volume.options };
        let unchecked = mount(rt.clone(), device.clone(), options).await?;
        if !renamed {
            let tree = Tree::of(unchecked).await;
            tree.map_err(|error| FsError::corrupt("volume", "read without a check", error))?;
        }
        Ok(())
    }
}

#[async_trait(?Send)]
impl FsUnderTest for Leaky {
    fn name(&self) -> String {
        "ffs with soft updates".to_string()
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        self.volume.mkfs(rt, device).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        if !info(&device).await?.clean {
            if self.strict {
                self.look(rt, &device).await?;
            }
            let options = FsckOptions { repair: true, reconnect: false, only_after_crash: true, trust_order: false };
            fsck(rt, &device, options).await?;
        }
        self.volume.mount(rt, device).await
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        self.volume.fsck(rt, device).await
    }

    fn can(&self, op: &Op) -> bool {
        op.is_possible_on_ufs1()
    }
}

fn here(test: &str) -> Replay {
    replay(&format!("fs::ffs::tests::soft::{test}"))
}

/// Every position of every script.
#[test]
fn scripts() {
    let mut total = CrashReport::default();
    for (index, device) in devices().into_iter().enumerate() {
        for script in SCRIPTS {
            // The first device can do everything that the others can, and is looked at closely; the last one is cut again.
            let subject = if index == 2 { Leaky::twice() } else { Leaky::default() };
            let cuts = PowerCuts::new(&subject, device.clone(), PROMISE, here("scripts"));
            let cuts = match index {
                0 => PowerCuts { second_cut: None, ..cuts },
                1 => PowerCuts { effort: Effort::SAMPLED, second_cut: None, ..cuts },
                _ => PowerCuts { effort: Effort::SAMPLED, ..cuts },
            };
            let result = cuts.run(&possible_ones(&script.setup_ops()), &possible_ones(&script.body_ops()));
            total.add(result.unwrap_or_else(|report| panic!("{}: {report}", script.name)));
        }
    }
    println!("{total}");
    assert!(total.states > 500, "{total}");
}

/// Short sequences of operations of every kind.
#[test]
fn short_sequences() {
    let mut total = CrashReport::default();
    let sequences = bounded(2);
    let prologue = crate::testing::generate::Bounded::prologue().len();
    let replay = here("short_sequences");
    for ops in sequences.sample(replay.soak.times(60), replay.seed.unwrap_or(9)) {
        let (setup, body) = ops.split_at(prologue);
        let (setup, body) = (possible_ones(setup), possible_ones(body));
        let subject = Leaky::default();
        let cuts = PowerCuts::new(&subject, CrashOptions::volatile(BYTES), PROMISE, here("short_sequences"));
        total.add(or_panic(PowerCuts { effort: Effort::SAMPLED, second_cut: None, ..cuts }.run(&setup, &body)));
    }
    println!("{total}");
}

/// Long random sequences, with updates so often that they meet operations, and such as have much to do.
#[test]
fn random_runs() {
    let mut total = CrashReport::default();
    for seed in here("random_runs").seeds(0..6) {
        let device = devices()[seed as usize % 3].clone();
        let mut subject = if seed == 5 { Leaky::twice() } else { Leaky::default() };
        subject.volume.options.realloc_blocks = seed % 2 == 1;
        subject.volume.options.update_interval = Nanos::from_millis(if seed % 4 < 2 { 3 } else { 40 });
        let space = Space { file_bytes_max: if seed % 2 == 0 { 40_000 } else { 300_000 }, ..Space::small() };
        let ops: Vec<Op> =
            Generator::new(seed, space, OpMix::CRASHY).filter(Op::is_possible_on_ufs1).take(200).collect();
        let cuts = PowerCuts::sampled(&subject, device, PROMISE, here("random_runs"));
        let second_cut = if subject.strict { None } else { cuts.second_cut };
        total.add(or_panic(PowerCuts { seed, positions_max: 100, second_cut, ..cuts }.run(&[], &ops)));
    }
    println!("{total}");
}

/// One volume through many power cuts.
#[test]
fn a_long_life() {
    lives("fs::ffs::tests::soft::a_long_life", &devices(), PROMISE).live(|seed| {
        let mut subject = Leaky::twice();
        subject.volume.options.update_interval = update_interval(seed);
        subject
    });
}

/// The same with requests that fail.
#[test]
fn a_long_life_with_errors() {
    let (test, devices) = ("fs::ffs::tests::soft::a_long_life_with_errors", devices());
    Lives { errors: true, points: &[], ..lives(test, &devices, PROMISE) }.live(|seed| {
        let mut subject = Leaky::twice();
        subject.volume.options.update_interval = update_interval(seed);
        subject
    });
}

/// Several programs at once. For some of the seeds the state after a cut is examined before it is repaired, which takes
/// longer.
#[test]
fn several_clients() {
    let clients = Clients {
        test: "fs::ffs::tests::soft::several_clients",
        promise: PROMISE,
        devices: &devices(),
        seeds: 15,
        positions: 40,
        states_min: 2_000,
        second_cut: None,
    };
    clients.explore(|seed| {
        let mut subject = if seed % 4 == 3 { Leaky::default() } else { Leaky::twice() };
        subject.volume.options.realloc_blocks = seed % 2 == 1;
        subject.volume.options.update_interval = Nanos::from_millis([2, 10, 30_000][seed as usize / 3 % 3]);
        subject
    });
}

fn counter(ffs: &Rc<Ffs>, wanted: &str) -> u64 {
    ffs.counters().into_iter().find(|(name, _)| *name == wanted).map_or(0, |(_, value)| value)
}

/// 4.4BSD's window when a tail moves (see `crash`) is closed with soft updates, too: the old fragments belong to no other file before the
/// inode on the volume has the new ones. Method: the same program, and a look at the volume after each of its steps.
#[test]
fn no_window_when_a_tail_moves() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/moves", &[1; 1000]).await.unwrap();
        client.fsync_path(b"/moves").await.unwrap();
        // Its neighbour in the block is taken, so that it cannot grow in place.
        client.write_file(b"/neighbour", &[2; 1000]).await.unwrap();
        client.fsync_path(b"/neighbour").await.unwrap();
        let before = counter(&ffs, "tails_moved");
        let file = client.open(b"/moves", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 1000, &[1; 3000]).await.unwrap();
        client.close(file).await.unwrap();
        assert!(counter(&ffs, "tails_moved") > before, "the tail had to move");
        client.write_file(b"/takes", &[3; 1000]).await.unwrap();
        client.fsync_path(b"/takes").await.unwrap();
        let crashed: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
        let found = fsck(&rt, &crashed, FsckOptions::default()).await.unwrap();
        assert!(found.problems.iter().all(|problem| problem.cause == Cause::Leak), "{found:?}");
        session(&rt, &crashed, options, async |client| {
            assert!(client.read_file(b"/takes").await.unwrap() == [3; 1000]);
            assert!(client.read_file(b"/neighbour").await.unwrap() == [2; 1000]);
            // The file as it was synced, or as it was written.
            let moved = client.read_file(b"/moves").await.unwrap();
            assert!(moved == [1; 1000] || moved == [1; 4000], "{} bytes", moved.len());
        })
        .await;
    });
}

/// A synced file is there with its name and those of its directories, and nothing was written in order for that.
#[test]
fn synced_files_have_their_names() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, 32 * MIB, &small_groups()).await;
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        let big = vec![7; 2_000_000];
        client.mkdir(b"/d").await.unwrap();
        client.mkdir(b"/d/e").await.unwrap();
        client.write_file(b"/d/e/unsynced", b"perhaps").await.unwrap();
        client.write_file(b"/d/e/big", &big).await.unwrap();
        client.fsync_path(b"/d/e/big").await.unwrap();
        client.write_file(b"/d/e/big2", b"never").await.unwrap();
        assert_eq!(counter(&ffs, "ordered_writes"), 0);
        let crashed: Device = Rc::new(Memory::from_image(32 * MIB, memory.image()));
        session(&rt, &crashed, options, async |client| {
            assert!(client.read_file(b"/d/e/big").await.unwrap() == big);
            assert!(client.stat(b"/d/e/big2").await.is_err());
        })
        .await;
        // An overwrite that needs no name is durable by itself, with few writes.
        let before = counter(&ffs, "block_writes");
        let file = client.open(b"/d/e/big", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 0, &[8; 100]).await.unwrap();
        client.sync().await.unwrap();
        client.write(file, 0, &[9; 100]).await.unwrap();
        client.fsync_path(b"/d/e/big").await.unwrap();
        client.close(file).await.unwrap();
        assert!(counter(&ffs, "block_writes") - before < 20, "{} writes", counter(&ffs, "block_writes") - before);
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// Files that are created and removed between two updates cost no write.
#[test]
fn short_lives_cost_nothing() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 32 * MIB, &small_groups()).await;
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        let (before, space) = (counter(&ffs, "block_writes"), client.fs().statfs().await.unwrap());
        for i in 0..200 {
            let name = format!("/f{i}");
            client.write_file(name.as_bytes(), &[i as u8; 5000]).await.unwrap();
            client.unlink(name.as_bytes()).await.unwrap();
        }
        assert_eq!(counter(&ffs, "block_writes"), before);
        assert_eq!(client.fs().statfs().await.unwrap(), space);
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// Space that waits to be freed is available when it is needed. Method: fill, remove and fill again, several times
/// without a pause; each time as much fits.
#[test]
fn space_that_waits_is_there() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 16 * MIB, &small_groups()).await;
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        let mut sizes = Vec::new();
        for round in 0..4 {
            let mut count = 0;
            loop {
                let name = format!("/f{count}");
                match client.write_file(name.as_bytes(), &[round as u8; 300_000]).await {
                    Ok(()) => count += 1,
                    Err(FsError::NoSpace) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            sizes.push(count);
            for number in 0..=count {
                client.unlink(format!("/f{number}").as_bytes()).await.unwrap();
            }
        }
        assert!(sizes.iter().all(|&count| count == sizes[0] && count > 30), "{sizes:?}");
        // The same with inodes.
        let mut counts = Vec::new();
        for _ in 0..2 {
            let mut count = 0;
            loop {
                match client.write_file(format!("/i{count}").as_bytes(), b"").await {
                    Ok(()) => count += 1,
                    Err(FsError::NoSpace) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            counts.push(count);
            for number in 0..count {
                client.unlink(format!("/i{number}").as_bytes()).await.unwrap();
            }
        }
        assert!(counts[0] == counts[1] && counts[0] > 1000, "{counts:?}");
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// Names that move to and fro between directories, within one update: renames over each other, and a directory that is
/// removed after its contents were moved out.
#[test]
fn renames_to_and_fro() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 16 * MIB, &small_groups()).await;
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        session(&rt, &device, options, async |client| {
            for dir in ["/a", "/b", "/c", "/c/sub"] {
                client.mkdir(dir.as_bytes()).await.unwrap();
            }
            client.write_file(b"/a/x", b"one").await.unwrap();
            client.write_file(b"/b/y", b"two").await.unwrap();
            client.sync().await.unwrap();
            for _ in 0..5 {
                client.rename(b"/a/x", b"/b/x", RenameMode::Replace).await.unwrap();
                client.rename(b"/b/y", b"/a/y", RenameMode::Replace).await.unwrap();
                client.rename(b"/b/x", b"/a/x", RenameMode::Replace).await.unwrap();
                client.rename(b"/a/y", b"/b/y", RenameMode::Replace).await.unwrap();
            }
            client.rename(b"/a/x", b"/c/x", RenameMode::Replace).await.unwrap();
            client.rename(b"/c/sub", b"/b/sub", RenameMode::Replace).await.unwrap();
            client.rename(b"/c/x", b"/b/y", RenameMode::Replace).await.unwrap();
            client.rmdir(b"/c").await.unwrap();
            client.rename(b"/b/sub", b"/a/sub", RenameMode::Replace).await.unwrap();
            assert!(client.read_file(b"/b/y").await.unwrap() == b"one");
            client.rename(b"/b/y", b"/b/z", RenameMode::Replace).await.unwrap();
            client.unlink(b"/b/z").await.unwrap();
            client.rmdir(b"/b").await.unwrap();
        })
        .await;
        session(&rt, &device, options, async |client| {
            let names = client.read_dir(b"/").await.unwrap();
            assert_eq!(names.len(), 1, "{names:?}");
            assert_eq!(client.read_dir(b"/a").await.unwrap().len(), 1);
        })
        .await;
    });
}

/// Each request in turn fails, or finds the device gone; earlier guarantees are kept.
#[test]
fn failing_requests() {
    const REQUESTS: u64 = 8;
    for (seed, nth) in (0..2_u64).flat_map(|seed| (1..=REQUESTS).map(move |nth| (seed, nth * 5 - 3))) {
        for kind in ["write-error", "flush-error", "read-error", "gone"] {
            let subject = Leaky::twice();
            let ops: Vec<Op> =
                Generator::new(seed, Space::small(), OpMix::CRASHY).filter(Op::is_possible_on_ufs1).take(60).collect();
            let mut replay = here("failing_requests");
            replay.case.get_or_insert(format!("{kind}:{nth}"));
            let cuts = PowerCuts::sampled(&subject, CrashOptions::volatile(BYTES), PROMISE, replay);
            let faults = Faults { cuts: PowerCuts { seed, second_cut: None, ..cuts }, each_max: 1, positions_max: 4 };
            if let Err(report) = faults.run(&[], &ops) {
                panic!("{report}");
            }
        }
    }
}

/// While the storage below has no room, changes stay in memory and a sync reports that; when there is room again,
/// nothing is lost.
#[test]
fn no_room_below() {
    use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
    simulate(1, async |rt| {
        let (_, memory) = fresh(&rt, 16 * MIB, &small_groups()).await;
        let fault = FaultDevice::new(&rt, memory.clone(), 1);
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/before", &[1; 50_000]).await.unwrap();
        client.sync().await.unwrap();
        fault.add(Rule::new(Kinds::WRITE, When::From(1), Effect::NoSpace));
        client.mkdir(b"/d").await.unwrap();
        client.write_file(b"/d/new", &[2; 20_000]).await.unwrap();
        client.rename(b"/before", b"/d/after", RenameMode::Replace).await.unwrap();
        assert!(client.sync().await.is_err());
        assert!(client.fsync_path(b"/d/new").await.is_err());
        rt.sleep(Nanos::from_secs(70)).await;
        assert!(client.read_file(b"/d/after").await.unwrap() == [1; 50_000]);
        fault.clear();
        client.sync().await.unwrap();
        ffs.close().await.unwrap();
        drop((client, ffs));
        assert_clean(&rt, &memory).await;
        session(&rt, &memory, options, async |client| {
            assert!(client.read_file(b"/d/after").await.unwrap() == [1; 50_000]);
            assert!(client.read_file(b"/d/new").await.unwrap() == [2; 20_000]);
        })
        .await;
    });
}

/// Files that are emptied one after the other leave a bounded number of records until the next update.
#[test]
fn truncations_leave_few_records() {
    const FILES: u64 = 20_000;
    let path = |file: u64| format!("/{}/{file}", file % 50).into_bytes();
    simulate(1, async |rt| {
        let mkfs = MkfsOptions { bytes_per_inode: Some(2048), ..small_groups() };
        let (_, device) = fresh(&rt, 64 * MIB, &mkfs).await;
        session(&rt, &device, Options { metadata: Metadata::Async, ..Options::default() }, async |client| {
            for directory in 0..50 {
                client.mkdir(format!("/{directory}").as_bytes()).await.unwrap();
            }
            for file in 0..FILES {
                client.write_file(&path(file), &[1; 1000]).await.unwrap();
                rt.sleep(Nanos::from_micros(1)).await;
            }
        })
        .await;
        let options = Options { update_interval: Nanos::from_secs(86_400), ..softly() };
        let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        let mut most = 0;
        for file in 0..FILES {
            client.truncate(&path(file), 0).await.unwrap();
            rt.sleep(Nanos::from_micros(1)).await;
            most = ffs.state.borrow().soft_records().max(most);
        }
        // As many as an operation leaves before it writes back, and its own.
        assert!((10_000..16 * 1024 + 16).contains(&most), "{most} records");
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}
