//! Aim: LFS keeps its promises through power cuts: all names are those of one moment, each file's content is that of
//! one moment, nothing synced is lost. Method: the crash explorer, on devices with different guarantees.

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::{Effort, Request};
use crate::device::{BlockDevice, WriteFlags};
use crate::rng::Rng;
use crate::testing::volumes::clients;
use crate::testing::volumes::cuts::Cuts;
use crate::testing::volumes::life::{LEVELS, Lives, Manner, must_have_covered};
use crate::testing::{Promise, SecondCut};

const CUTS: Cuts = Cuts { module: "fs::lfs::tests::crash", bytes: 9 * MIB };

const LIFE_BYTES: u64 = 12 * MIB;

#[test]
fn scripts() {
    CUTS.scripts(&Small::default());
}

#[test]
fn short_sequences() {
    CUTS.short_sequences(&Small::default());
}

/// With checkpoints as often as the timer says.
#[test]
fn random_runs() {
    CUTS.random_runs(|seed| Small {
        options: Options {
            checkpoint_interval: Nanos::from_millis(5),
            write_back_interval: Nanos::from_millis(2),
            indirect_in_log: seed % 3 == 2,
            overlap: seed % 4 != 1,
            cache_data: seed / 2 % 2 == 0,
            read_around_bytes: around(seed / 2 % 2 == 1),
            discard_after: Nanos::from_millis(seed % 3 * 4),
            ..Options::default()
        },
    });
}

/// One volume through many power cuts, on all code paths that a healthy volume can take.
#[test]
fn a_long_life() {
    let lives = Lives {
        test: "fs::lfs::tests::crash::a_long_life",
        manners: &[Manner::Sparse, Manner::Crowded, Manner::Names],
        devices: &CrashOptions::each_cached(LIFE_BYTES),
        promise: Promise::NAMESPACE_PREFIX,
        edges: LEVELS,
        setbacks: true,
        errors: false,
        kills: true,
        fsck_unrecovered: true,
        rounds: 16,
        seeds: 8,
        points: POINTS,
    };
    lives.live(|seed| Small {
        options: Options {
            checkpoint_interval: Nanos::from_millis(if seed % 2 == 0 { 5 } else { 60 }),
            write_back_interval: Nanos::from_millis(2),
            indirect_in_log: seed % 3 == 2,
            cache_data: seed % 4 < 2,
            read_around_bytes: around(seed % 4 >= 2),
            discard_after: Nanos::from_millis(seed % 3 * 4),
            ..Options::default()
        },
    });
}

/// Aim: the beginning of a transaction that a power cut left in the last sectors of a segment is not mistaken for that
/// of the next transaction, which has its number and does not fit there. Method: files of many sizes are made durable
/// one by one. Where a segment has a sector or two left, a cut anywhere in the next transaction; the volume is mounted
/// and used, and then mounted from the older slot alone.
#[test]
fn the_beginning_of_a_transaction_is_passed_over() {
    let seeds =
        crate::testing::environment::replay("fs::lfs::tests::crash::the_beginning_of_a_transaction_is_passed_over");
    crate::rt::covered();
    for seed in seeds.seeds(0..40) {
        simulate(seed, async |rt| {
            let recording = CrashOptions { seed, ..CrashOptions::volatile(CUTS.bytes) };
            let device = CrashDevice::new(&rt, Image::default(), recording);
            mkfs(&rt, &(device.clone() as Device), &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
            let mut rng = Rng::new(seed);
            let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
            let client = Client::new(lfs.clone());
            let mut narrow = Vec::new();
            for file in 0..120 {
                let bytes = vec![7; rng.below(30_000) as usize];
                let (begun, end) = (device.position(), lfs.state.borrow().log.end);
                if file > 10 {
                    client.unlink(format!("/{}", file - 10).as_bytes()).await.unwrap();
                }
                client.write_file(format!("/{file}").as_bytes(), &bytes).await.unwrap();
                client.sync().await.unwrap();
                if lfs.state.borrow().log.layout.segment_sectors() - end.offset <= 2 {
                    narrow.push(begun..=device.position());
                }
            }
            let log = device.log();
            for position in log.positions().into_iter().filter(|at| narrow.iter().any(|range| range.contains(at))) {
                let cut = log.cut(position);
                for choice in cut.choices(&Effort::SAMPLED, seed) {
                    let where_cut = format!("seed {seed}, cut {position}:{choice:?}");
                    let memory = Rc::new(Memory::from_image(CUTS.bytes, cut.image(&choice)));
                    let client = Client::new(mount(rt.clone(), memory.clone(), Options::default()).await.unwrap());
                    client.write_file(b"/after", &[8; 9_000]).await.unwrap();
                    client.sync().await.unwrap();
                    let before = client.read_dir(b"/").await.unwrap().len();
                    let left = without_newest_slot(&memory.image()).expect("two checkpoints");
                    let left: Device = Rc::new(Memory::from_image(CUTS.bytes, left));
                    let again = mount(rt.clone(), left, Options::default()).await;
                    let again = Client::new(again.unwrap_or_else(|error| panic!("{where_cut}: {error}")));
                    assert_eq!(again.read_dir(b"/").await.unwrap().len(), before, "{where_cut}");
                }
            }
        });
    }
    let passed = crate::rt::covered().remove("lfs: the beginning of a transaction is passed over").unwrap_or(0);
    assert!(passed > 3, "only {passed} mounts found the beginning of a transaction");
}

/// The same where there is no room to pass over it: the volume works, and keeps what was durable.
#[test]
fn the_beginning_of_a_transaction_is_written_over() {
    // Cover points that only a full volume reaches.
    const POINTS: &[&str] = &["lfs: the beginning of a transaction is written over"];
    const TEST: &str = "fs::lfs::tests::crash::the_beginning_of_a_transaction_is_written_over";
    let seeds = crate::testing::environment::replay(TEST);
    crate::rt::covered();
    for seed in seeds.seeds(0..1) {
        simulate(seed, async |rt| {
            let recording = CrashOptions { seed, ..CrashOptions::volatile(CUTS.bytes) };
            let device = CrashDevice::new(&rt, Image::default(), recording);
            mkfs(&rt, &(device.clone() as Device), &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
            let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
            let client = Client::new(lfs.clone());
            let mut files = 0;
            while client.write_file(format!("/{}", files + 1).as_bytes(), &[files + 1; 100_000]).await.is_ok() {
                files += 1;
            }
            client.unlink(format!("/{}", files + 1).as_bytes()).await.unwrap();
            client.unlink(format!("/{files}").as_bytes()).await.unwrap();
            files -= 1;
            // A transaction in several segments, until so few are left that the cleaner is about to begin.
            let (mut begun, mut round) = (None, 0);
            while begun.is_none_or(|(_, at)| round < at + 4) {
                client.write_file(b"/0", &[round; 100_000]).await.unwrap();
                client.sync().await.unwrap();
                round += 1;
                if begun.is_none() && lfs.clean_segments() < lfs.state.borrow().cleaner_segments() + 6 {
                    begun = Some((device.position(), round));
                }
            }
            let Some((begun, _)) = begun else { panic!("there is always room") };
            let log = device.log();
            for position in log.positions().into_iter().filter(|&at| at >= begun).step_by(3) {
                let cut = log.cut(position);
                for choice in cut.choices(&Effort::SAMPLED, seed) {
                    let where_cut = format!("seed {seed}, cut {position}:{choice:?}");
                    let left: Device = Rc::new(Memory::from_image(CUTS.bytes, cut.image(&choice)));
                    for round in 0..2 {
                        let fs = mount(rt.clone(), left.clone(), Options::default()).await;
                        let fs = fs.unwrap_or_else(|error| panic!("{where_cut}, round {round}: {error}"));
                        let client = Client::new(fs.clone());
                        for file in 1..=files {
                            let bytes = client.read_file(format!("/{file}").as_bytes()).await;
                            assert!(bytes.is_ok_and(|bytes| bytes == [file; 100_000]), "{where_cut}: /{file}");
                        }
                        client.unlink(b"/0").await.unwrap();
                        client.write_file(b"/0", &[1; 3_000]).await.unwrap();
                        client.sync().await.unwrap();
                        assert_eq!(fs.check().await.unwrap(), Vec::<String>::new(), "{where_cut}");
                    }
                    assert_clean(&rt, &left).await;
                }
            }
        });
    }
    if seeds.runs_everything() {
        must_have_covered(TEST, POINTS);
    }
}

/// Blocks of the file that [`segments_that_become_clean_early`] overwrites, each with its version in front.
const CHURNED_BLOCKS: u64 = 900;

async fn versions(client: &Client) -> Vec<u64> {
    let bytes = client.read_file(b"/churned").await.unwrap();
    let versions = bytes.chunks_exact(4096).enumerate().map(|(block, bytes)| {
        let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
        assert!(bytes[8..].iter().all(|&byte| byte == (version + block as u64) as u8), "block {block} is a mixture");
        version
    });
    versions.collect()
}

/// Aim: a segment that is written again before a checkpoint tells that it was empty is needed by neither slot (G1), and a
/// full volume that lives on such segments has room for the checkpoint of the next mount (S3). Method: a volume of which
/// the most is one file, with indirect blocks, is overwritten at random without any timer, beside files that come and go;
/// cuts among writes made after segments became clean early. Then each block has a version at least as new as the last
/// fsync, from either slot, and the volume can be overwritten on.
#[test]
fn segments_that_become_clean_early() {
    // Only volumes that are nearly full, without checkpoints by time, come to it often.
    const POINTS: &[&str] = &["lfs: a segment becomes clean before the next checkpoint"];
    const TEST: &str = "fs::lfs::tests::crash::segments_that_become_clean_early";
    let seeds = crate::testing::environment::replay(TEST);
    crate::rt::covered();
    let mut mounts = 0;
    for seed in seeds.seeds(0..3) {
        let never = Nanos::from_secs(1 << 30);
        let options = Options { checkpoint_interval: never, write_back_interval: never, ..Options::default() };
        simulate(seed, async |rt| {
            let recording = CrashOptions { seed, ..CrashOptions::volatile(CUTS.bytes) };
            let device = CrashDevice::new(&rt, Image::default(), recording);
            mkfs(&rt, &(device.clone() as Device), &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
            let lfs = open(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(lfs.clone());
            let mut rng = Rng::new(seed);
            let file = client.create(b"/churned").await.unwrap();
            let block_of = |block: u64, version: u64| {
                let mut bytes = vec![(version + block) as u8; 4096];
                bytes[..8].copy_from_slice(&version.to_le_bytes());
                bytes
            };
            for block in 0..CHURNED_BLOCKS {
                client.write(file, block * 4096, &block_of(block, 0)).await.unwrap();
            }
            client.sync().await.unwrap();
            // Where the log was after each fsync, and the versions then.
            let mut synced = vec![(device.position(), vec![0; CHURNED_BLOCKS as usize])];
            let mut now = synced[0].1.clone();
            for round in 1..=60 {
                for _ in 0..50 {
                    let block = rng.below(CHURNED_BLOCKS);
                    now[block as usize] += 1;
                    client.write(file, block * 4096, &block_of(block, now[block as usize])).await.unwrap();
                }
                let name = format!("/{}", round % 3);
                client.write_file(name.as_bytes(), &vec![1; rng.below(120_000) as usize]).await.unwrap();
                client.fsync(file).await.unwrap();
                synced.push((device.position(), now.clone()));
            }
            let early = lfs.state.borrow().log.counters.cleaner_segments_early;
            assert!(early > 100, "seed {seed}: {early} segments became clean early");
            let log = device.log();
            let mut positions: Vec<_> = log.positions().into_iter().filter(|at| *at > synced[30].0).collect();
            rng.shuffle(&mut positions);
            for &position in positions.iter().take(12) {
                let cut = log.cut(position);
                for choice in cut.choices(&Effort::SAMPLED, seed).into_iter().take(4) {
                    let image = cut.image(&choice);
                    for (slot, image) in
                        [("both slots", Some(image.clone())), ("the older slot", without_newest_slot(&image))]
                    {
                        let Some(image) = image else { continue };
                        mounts += 1;
                        let place = format!("seed {seed}, cut {position}:{choice:?} from {slot}");
                        let left: Device = Rc::new(Memory::from_image(CUTS.bytes, image));
                        let fs = mount(rt.clone(), left.clone(), options).await;
                        let fs = fs.unwrap_or_else(|error| panic!("{place}: {error}"));
                        let client = Client::new(fs.clone());
                        let found = versions(&client).await;
                        let acknowledged = synced.iter().rev().find(|(at, _)| *at <= position).expect("the first");
                        for (block, (found, least)) in found.iter().zip(&acknowledged.1).enumerate() {
                            assert!(
                                (*least..=now[block]).contains(found),
                                "{place}: block {block}: {found}, not {least}"
                            );
                        }
                        assert_eq!(fs.check().await.unwrap(), Vec::<String>::new(), "{place}");
                        let file = client.open(b"/churned", OpenFlags::READ_WRITE).await.unwrap();
                        for block in (0..CHURNED_BLOCKS).step_by(3) {
                            client.write(file, block * 4096, &block_of(block, 1)).await.unwrap();
                        }
                        client.fsync(file).await.unwrap();
                        assert_eq!(fs.check().await.unwrap(), Vec::<String>::new(), "{place}, overwritten");
                        client.close(file).await.unwrap();
                        fs.close().await.unwrap();
                        drop((client, fs));
                        assert_clean(&rt, &left).await;
                    }
                }
            }
        });
    }
    println!("{mounts} mounts");
    if seeds.runs_everything() {
        must_have_covered(TEST, POINTS);
    }
}

/// An LFS that is nearly full, and whose segments hold what was left alive by many overwrites.
struct Aged {
    fs: Small,
    seed: u64,
    /// Bytes that `df` shows as available.
    available: u64,
}

#[async_trait(?Send)]
impl FsUnderTest for Aged {
    fn name(&self) -> String {
        "lfs, nearly full".to_string()
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        self.fs.mkfs(rt, device.clone()).await?;
        let never = Nanos::from_secs(1 << 30);
        let options = Options { checkpoint_interval: never, write_back_interval: never, ..self.fs.options };
        let fs = mount(rt.clone(), device, options).await?;
        let client = Client::new(fs.clone());
        let mut rng = Rng::new(self.seed);
        client.mkdir(b"/old").await?;
        // Most files have an indirect block.
        let mut files: Vec<(String, u64)> = Vec::new();
        loop {
            let space = fs.statfs().await?;
            let left = (space.blocks_available * u64::from(space.block_bytes)).saturating_sub(self.available);
            let bytes = rng.between(4_096, 90_000).min(left);
            if bytes < 4_096 {
                break;
            }
            let name = format!("/old/{}", files.len());
            client.write_file(name.as_bytes(), &vec![files.len() as u8; bytes as usize]).await?;
            files.push((name, bytes));
        }
        for round in 0..files.len() as u64 * 8 {
            let (name, bytes) = rng.pick(&files);
            let open = client.open(name.as_bytes(), OpenFlags::READ_WRITE).await?;
            client.write(open, rng.below(bytes / 4096) * 4096, &[round as u8; 4096]).await?;
            if round % 16 == 0 {
                client.fsync(open).await?;
            }
            client.close(open).await?;
        }
        fs.close().await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        self.fs.mount(rt, device).await
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        self.fs.fsck(rt, device).await
    }

    fn without_redundancy(&self, image: &Image) -> Vec<(String, Image)> {
        self.fs.without_redundancy(image)
    }
}

/// How the nearly full volume of a seed is mounted.
fn aged(seed: u64, available: u64) -> Aged {
    let interval = if seed % 3 == 2 { Nanos::from_millis(15) } else { Nanos::from_secs(1 << 30) };
    let options = Options {
        checkpoint_interval: interval,
        write_back_interval: Nanos::from_millis(2),
        cleaner: CLEANERS[(seed % CLEANERS.len() as u64) as usize],
        indirect_in_log: seed % 5 == 4,
        discard_after: Nanos::from_millis(seed % 2 * 5),
        ..Options::default()
    };
    Aged { fs: Small { options }, seed, available }
}

/// Aim: nothing acknowledged is lost where segments are written again without a checkpoint in between (G1), and each mount
/// finds room for its checkpoint (S3). Method: several clients on a volume that is nearly full, with cuts anywhere, also in
/// recovery.
#[test]
fn several_clients_where_room_is_short() {
    const TEST: &str = "fs::lfs::tests::crash::several_clients_where_room_is_short";
    crate::rt::covered();
    let clients = clients::Clients {
        test: TEST,
        promise: Promise::NAMESPACE_PREFIX,
        devices: &CrashOptions::each(CUTS.bytes),
        seeds: 3,
        positions: 12,
        states_min: 150,
        second_cut: Some(SecondCut { every: 25, ops: 8, positions: 5, effort: Effort::SAMPLED }),
    };
    clients.explore(|seed| aged(seed, 1_400_000));
    if crate::testing::environment::replay(TEST).runs_everything() {
        must_have_covered(TEST, EARLY);
    }
}

/// The same for one volume through many power cuts, which stays nearly full.
#[test]
fn a_long_life_where_room_is_short() {
    let lives = Lives {
        test: "fs::lfs::tests::crash::a_long_life_where_room_is_short",
        manners: &[Manner::Sparse, Manner::Crowded],
        devices: &CrashOptions::each_cached(CUTS.bytes),
        promise: Promise::NAMESPACE_PREFIX,
        edges: LEVELS,
        setbacks: true,
        errors: false,
        kills: true,
        fsck_unrecovered: true,
        rounds: 10,
        seeds: 4,
        points: EARLY,
    };
    lives.live(|seed| aged(seed, 700_000));
}

/// Aim: an error of the device loses nothing that was acknowledged before or after it, whatever it meets: an operation, a
/// transaction, a checkpoint, a cleaning pass, the release of segments. Method: long lives on volumes with room and on
/// nearly full ones, in which every other round has a request that fails; the next round uses the volume again.
#[test]
fn a_long_life_with_errors() {
    let lives = Lives {
        test: "fs::lfs::tests::crash::a_long_life_with_errors",
        manners: &[Manner::Sparse, Manner::Crowded],
        devices: &CrashOptions::each_cached(CUTS.bytes),
        promise: Promise::NAMESPACE_PREFIX,
        edges: LEVELS,
        setbacks: true,
        errors: true,
        kills: true,
        fsck_unrecovered: true,
        rounds: 16,
        seeds: 6,
        points: EARLY,
    };
    lives.live(|seed| aged(seed, if seed.is_multiple_of(3) { 4_000_000 } else { 700_000 }));
}

/// Cover points that nearly full volumes reach.
const EARLY: &[&str] = &[
    "lfs: a segment becomes clean before the next checkpoint",
    "lfs: the cleaner moves a block",
    "lfs: the log ends within a transaction",
    "lfs: the log reuses a segment",
    "lfs: storage that was kept is given back",
];

/// Cover points that a long life reaches.
const POINTS: &[&str] = &[
    "lfs: a change finds the volume full",
    "lfs: a dropped indirect block is replayed",
    "lfs: a hole is replayed",
    "lfs: a mount frees an orphan",
    "lfs: a serial is skipped to spare the only good slot",
    "lfs: a transaction is replayed",
    "lfs: an indirect block in the log is replayed",
    "lfs: one checkpoint slot holds nothing intact",
    "lfs: space set aside is replayed",
    "lfs: storage that was kept is given back",
    "lfs: the cleaner moves a block",
    "lfs: the cleaner moves an inode",
    "lfs: the cleaner moves attributes",
    "lfs: the end of a file is replayed",
    "lfs: the beginning of a transaction is passed over",
    "lfs: the log ends within a transaction",
    "lfs: the log goes on at the start of the volume",
    "lfs: the log holds a newer checkpoint than its slots",
    "lfs: the log reuses a segment",
    "logfs: a leaf of a directory is split",
    "logfs: an empty indirect block is dropped",
    "logfs: an indirect block of level 1 is written",
    "logfs: an indirect block of level 2 is written",
    "logfs: an indirect block of level 3 is written",
    "logfs: two leaves of a directory are joined",
];

/// With and without timers during the programs.
#[test]
fn several_clients() {
    CUTS.several_clients(|seed| {
        // Some as on a mount, where the kernel has the data.
        let cache_data = seed % 4 < 2;
        let mut options = Options {
            indirect_in_log: seed % 4 == 3,
            cache_data,
            read_around_bytes: around(!cache_data),
            ..Options::default()
        };
        if seed % 2 == 1 {
            options.checkpoint_interval = Nanos::from_millis(4);
            options.write_back_interval = Nanos::from_millis(1);
        }
        Small { options }
    });
}

#[test]
fn two_close_at_once() {
    clients::two_close_at_once(&Small::default(), CUTS.bytes);
}

/// Aim: a mount continues only from what is durable, also where the last daemon was killed and what it had written is in the cache of
/// the device alone: what follows would declare it durable. Method: SIGKILL at moments of a small run; a mount, and a power cut at
/// every moment of that, with several of the states that it may leave: each of them mounts, and is clean.
#[test]
fn killed_and_then_cut() {
    const BYTES: u64 = 9 * MIB;
    let states = Rc::new(std::cell::Cell::new(0));
    let count = states.clone();
    simulate(1, async move |rt| {
        let small = Small::default();
        let device = CrashDevice::new(&rt, Image::default(), CrashOptions::volatile(BYTES));
        small.mkfs(&rt, device.clone()).await.expect("mkfs");
        let from = device.position();
        let client = Client::new(small.mount(&rt, device.clone()).await.expect("mount"));
        for number in 0..8 {
            let path = format!("/f{number}");
            client.write_file(path.as_bytes(), &[7; 9000]).await.expect("write");
            client.fsync_path(path.as_bytes()).await.expect("fsync");
        }
        let log = device.log();
        for position in log.positions().into_iter().filter(|&position| position >= from) {
            let killed = log.cut(position);
            // The first choice contains only what is certainly durable.
            let certain = killed.image(&killed.choices(&Effort::SAMPLED, 1)[0]);
            let device = CrashDevice::new(&rt, certain, CrashOptions::volatile(BYTES));
            for request in killed.pending() {
                if let Request::Write { at, data, .. } = request {
                    device.write(*at, data.clone(), WriteFlags::NONE).await.expect("it is written");
                }
            }
            let before = device.position();
            let again = small.mount(&rt, device.clone()).await.expect("it mounts");
            let log = device.log();
            for position in log.positions().into_iter().filter(|&position| position > before) {
                let cut = log.cut(position);
                for choice in cut.choices(&Effort::SAMPLED, 1) {
                    let left: Device = Rc::new(Memory::from_image(BYTES, cut.image(&choice)));
                    let last = small.mount(&rt, left.clone()).await;
                    let last = last.unwrap_or_else(|error| panic!("{error}, at {position}\n{}", cut.to_text(&choice)));
                    last.close().await.expect("close");
                    assert_clean(&rt, &left).await;
                    count.set(count.get() + 1);
                }
            }
            again.close().await.expect("close");
        }
    });
    assert!(states.get() > 200, "{}", states.get());
}
