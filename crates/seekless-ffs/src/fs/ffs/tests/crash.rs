//! Aim: after a power cut and a check, names are those that were acknowledged, nothing is cross-linked, and every file
//! that was not being written survives. Method: the crash explorer, on devices with different guarantees.

use std::cell::Cell;

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::rt::{Setback, VirtualClock};
use crate::testing::crash::LIMITS;
use crate::testing::environment::{or_panic, replay};
use crate::testing::generate::bounded;
use crate::testing::ops::parse;
use crate::testing::scripts::SCRIPTS;
use crate::testing::volumes::clients::Clients;
use crate::testing::volumes::life::{Lives, Manner};
use crate::testing::{
    CrashReport, Generator, Op, OpMix, PowerCuts, Promise, Replay, Runner, SecondCut, Space, Strength,
};

pub(super) const BYTES: u64 = 4 * MIB;

/// A volume that is checked before it is mounted, as a system does at boot. Files without names are freed, because the
/// oracle knows nothing of `lost+found`.
pub(super) struct Checked(pub Volume);

impl Default for Checked {
    fn default() -> Checked {
        let mkfs = MkfsOptions { bytes_per_inode: Some(32_768), ..small_groups() };
        Checked(Volume { mkfs, options: Options::default() })
    }
}

#[async_trait(?Send)]
impl FsUnderTest for Checked {
    fn name(&self) -> String {
        self.0.name()
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        self.0.mkfs(rt, device).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        if !info(&device).await?.clean {
            let options = FsckOptions { repair: true, reconnect: false, only_after_crash: true, trust_order: false };
            let found = fsck(rt, &device, options).await?;
            if let Some(problem) = found.problems.iter().find(|problem| problem.cause == Cause::Damage) {
                return Err(FsError::corrupt("volume", "after a power cut", &problem.text));
            }
        }
        self.0.mount(rt, device).await
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        self.0.fsck(rt, device).await
    }

    fn can(&self, op: &Op) -> bool {
        op.is_possible_on_ufs1()
    }
}

pub(super) fn devices() -> [CrashOptions; 3] {
    [CrashOptions::volatile(BYTES), CrashOptions::write_through(BYTES), CrashOptions::in_order(BYTES)]
}

fn here(test: &str) -> Replay {
    replay(&format!("fs::ffs::tests::crash::{test}"))
}

/// Those of `ops` that FFS can do.
pub(super) fn possible_ones<'a>(ops: impl IntoIterator<Item = &'a Op>) -> Vec<Op> {
    ops.into_iter().filter(|op| op.is_possible_on_ufs1()).cloned().collect()
}

/// Every position of every script.
#[test]
fn scripts() {
    let mut total = CrashReport::default();
    for (index, device) in devices().into_iter().enumerate() {
        for script in SCRIPTS {
            let subject = Checked::default();
            // The first device can do everything that the others can, and is looked at closely.
            let thorough = PowerCuts::new(&subject, device.clone(), Promise::IN_PLACE, here("scripts"));
            let cuts = match index {
                0 => thorough,
                _ => PowerCuts { effort: Effort::SAMPLED, second_cut: None, ..thorough },
            };
            let result = cuts.run(&possible_ones(&script.setup_ops()), &possible_ones(&script.body_ops()));
            total.add(result.unwrap_or_else(|report| panic!("{}: {report}", script.name)));
        }
    }
    println!("{total}");
    assert!(total.states > 1_000, "{total}");
}

/// Short sequences of operations of every kind.
#[test]
fn short_sequences() {
    let mut total = CrashReport::default();
    let sequences = bounded(2);
    let prologue = crate::testing::generate::Bounded::prologue().len();
    let replay = here("short_sequences");
    for ops in sequences.sample(replay.soak.times(40), replay.seed.unwrap_or(7)) {
        let (setup, body) = ops.split_at(prologue);
        let (setup, body) = (possible_ones(setup), possible_ones(body));
        let subject = Checked::default();
        let device = CrashOptions::volatile(BYTES);
        let cuts = PowerCuts::new(&subject, device, Promise::IN_PLACE, here("short_sequences"));
        total.add(or_panic(PowerCuts { effort: Effort::SAMPLED, second_cut: None, ..cuts }.run(&setup, &body)));
    }
    println!("{total}");
}

/// Long random sequences, with updates so often that they meet operations.
#[test]
fn random_runs() {
    random_runs_of("random_runs", Options::default(), Promise::IN_PLACE);
}

/// The same where files may lose their tails.
#[test]
fn random_runs_as_4_4bsd() {
    random_runs_of("random_runs_as_4_4bsd", as_4_4bsd(), Promise::IN_PLACE_4_4BSD);
}

fn random_runs_of(test: &str, options: Options, promise: Promise) {
    let mut total = CrashReport::default();
    for seed in here(test).seeds(0..4) {
        let device = devices()[seed as usize % 3].clone();
        let options = Options { update_interval: Nanos::from_millis(3), realloc_blocks: seed % 2 == 1, ..options };
        let mut subject = Checked::default();
        subject.0.options = options;
        let space = Space { file_bytes_max: if seed % 2 == 0 { 40_000 } else { 300_000 }, ..Space::small() };
        let ops: Vec<Op> =
            Generator::new(seed, space, OpMix::CRASHY).filter(Op::is_possible_on_ufs1).take(200).collect();
        let cuts = PowerCuts::sampled(&subject, device, promise, here(test));
        total.add(or_panic(PowerCuts { seed, positions_max: 100, ..cuts }.run(&[], &ops)));
    }
    println!("{total}");
}

/// Where each level of indirect blocks begins, with blocks of 8 KiB.
const LEVELS: &[u64] = &[12 * 8192, (12 + 2048) * 8192, (12 + 2048 + 2048 * 2048) * 8192];

/// Long lives of a volume, whichever way it keeps metadata.
pub(super) fn lives<'a>(test: &'a str, devices: &'a [CrashOptions], promise: Promise) -> Lives<'a> {
    let manners = &[Manner::Sparse, Manner::Crowded, Manner::Names];
    let (rounds, seeds) = (12, 3);
    let (edges, points) = (LEVELS, POINTS);
    let (setbacks, errors, kills, fsck_unrecovered) = (true, false, true, false);
    Lives { test, manners, devices, promise, edges, setbacks, errors, kills, fsck_unrecovered, rounds, seeds, points }
}

/// How often the update comes in the life of a seed: between operations, and in the middle of them.
pub(super) fn update_interval(seed: u64) -> Nanos {
    Nanos::from_millis(if seed.is_multiple_of(2) { 10 } else { 40 })
}

/// Cover points that a long life reaches.
const POINTS: &[&str] = &[
    "ffs: a block goes to another cylinder group",
    "ffs: a directory gets another chunk",
    "ffs: a doubly indirect block is cut",
    "ffs: a singly indirect block is cut",
    "ffs: a tail grows in its place",
    "ffs: a tail moves to grow",
    "ffs: a triply indirect block is cut",
];

/// One volume through many power cuts.
#[test]
fn a_long_life() {
    lives("fs::ffs::tests::crash::a_long_life", &devices(), Promise::IN_PLACE).live(|seed| {
        let mut subject = Checked::default();
        subject.0.options.update_interval = update_interval(seed);
        subject
    });
}

/// The same with requests that fail.
#[test]
fn a_long_life_with_errors() {
    let (test, devices) = ("fs::ffs::tests::crash::a_long_life_with_errors", devices());
    let lives = Lives { errors: true, points: &[], ..lives(test, &devices, Promise::IN_PLACE) };
    lives.live(|seed| {
        let mut subject = Checked::default();
        subject.0.options.update_interval = update_interval(seed);
        subject
    });
}

/// A volume that guarantees nothing: a full check makes it consistent after each cut.
pub(super) struct Unordered(pub Volume);

#[async_trait(?Send)]
impl FsUnderTest for Unordered {
    fn name(&self) -> String {
        "ffs with asynchronous metadata".to_string()
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        self.0.mkfs(rt, device).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        if !info(&device).await?.clean {
            fsck(
                rt,
                &device,
                FsckOptions { repair: true, reconnect: false, only_after_crash: false, trust_order: false },
            )
            .await?;
        }
        self.0.mount(rt, device).await
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        self.0.fsck(rt, device).await
    }

    fn can(&self, op: &Op) -> bool {
        op.is_possible_on_ufs1()
    }
}

/// The check repairs whatever a cut has left of metadata that was written in no order.
#[test]
fn a_long_life_without_order() {
    lives("fs::ffs::tests::crash::a_long_life_without_order", &devices(), Promise::NOTHING).live(|seed| {
        let Checked(mut volume) = Checked::default();
        volume.options.metadata = Metadata::Async;
        volume.options.update_interval = update_interval(seed);
        Unordered(volume)
    });
}

/// Several programs at once.
#[test]
fn several_clients() {
    let clients = Clients {
        test: "fs::ffs::tests::crash::several_clients",
        promise: Promise::IN_PLACE,
        devices: &devices(),
        seeds: 12,
        positions: 40,
        states_min: 2_000,
        second_cut: Some(SecondCut { every: 60, ops: 8, positions: 8, effort: Effort::SAMPLED }),
    };
    clients.explore(|seed| {
        let mut subject = Checked::default();
        subject.0.options.realloc_blocks = seed % 2 == 1;
        subject.0.options.update_interval = Nanos::from_millis([2, 10, 30_000][seed as usize / 3 % 3]);
        subject
    });
}

/// What a volume does as 4.4BSD did.
fn as_4_4bsd() -> Options {
    Options { keep_moved: false, ..Options::default() }
}

/// 4.4BSD's window: the tail of a file moves when it grows, its old fragments go to another file at once, and the power
/// fails before the first file's inode is written. Both inodes then have the fragments. The check gives them to the
/// inode that changed last, which was synced; the other file was being written, and loses its tail. A kernel that keeps
/// the times of files itself reports them later, also after the file was synced; and the clocks differ.
#[test]
fn the_window_of_4_4bsd_when_a_tail_moves() {
    for (set_moves, set_takes) in [(None, None), (None, Some(0)), (Some(1_000_000), None)] {
        simulate(1, async |rt| the_window(rt, as_4_4bsd(), set_moves, set_takes).await);
    }
}

/// The same, where the tail is kept.
#[test]
fn no_window_when_a_tail_moves() {
    for (set_moves, set_takes) in [(None, None), (None, Some(0)), (Some(1_000_000), None)] {
        simulate(1, async |rt| the_window(rt, Options::default(), set_moves, set_takes).await);
    }
}

/// A file whose last block cannot grow in its place: the fragments behind are another file's.
const SHORT: &str = "create /moves 644; write /moves 0+1000 #1; fsync /moves; create /beside 644; write /beside 0+1000 #2; \
                     fsync /beside";

/// The same, cut from a longer one.
const CUT: &str = "create /moves 644; write /moves 0+20000 #1; sync; truncate /moves 9000; create /beside 644; \
                   write /beside 0+7000 #2; sync";

/// Names, what is durable, and what follows.
const MOVES: [(&str, &str, &str); 14] = [
    ("an append", SHORT, "write /moves 1000+3000 #5"),
    ("an append far behind", SHORT, "write /moves 30000+3000 #5"),
    ("two appends", SHORT, "write /moves 1000+3000 #5; write /moves 4000+3000 #6; fsync /moves"),
    ("an overwrite", SHORT, "write /moves 500+3000 #5"),
    ("a size", SHORT, "truncate /moves 5000"),
    ("an append after a cut", CUT, "write /moves 9000+9000 #5"),
    ("a cut after an append", SHORT, "write /moves 1000+3000 #5; truncate /moves 2500"),
    ("an append after a cut to nothing", SHORT, "truncate /moves 0; write /moves 0+3000 #5"),
    ("a link", SHORT, "write /moves 1000+3000 #5; link /moves /name"),
    ("a rename", SHORT, "write /moves 1000+3000 #5; rename /moves /name"),
    ("an update", SHORT, "write /moves 1000+3000 #5; idle 50; write /moves 4000+20000 #6; idle 50"),
    ("an allocation", SHORT, "allocate /moves 1000+5000"),
    ("a removal", SHORT, "write /moves 1000+3000 #5; unlink /moves"),
    // The second block of the file does not follow the first, which has grown in its place: with `realloc_blocks` both move.
    (
        "a cluster",
        "create /moves 644; write /moves 0+4000 #1; fsync /moves",
        "write /moves 4000+4192 #5; create /wall 644; write /wall 0+8192 #6; write /moves 8192+8192 #7; \
         write /moves 16384+8192 #8; fsync /wall",
    ),
];

/// Cuts the power at every write of what follows, and of another file that takes the old place. An update comes in between.
fn cut_a_move(case: (&str, &str, &str), options: Options, device: CrashOptions) -> Result<CrashReport, String> {
    let mut subject = Checked::default();
    subject.0.options = Options { update_interval: Nanos::from_millis(20), ..options };
    let strength = Strength::InPlace { at_once: options.metadata == Metadata::Sync };
    let promise = Promise { strength, ..Promise::IN_PLACE };
    let (_, setup, body) = case;
    let takes =
        "create /takes 644; write /takes 0+1000 #3; fsync /takes; create /more 644; write /more 0+7000 #4; fsync /more";
    let body = format!("{body}; {takes}; sync");
    let cuts = PowerCuts::new(&subject, device, promise, here("what_moves_is_kept"));
    let cuts = PowerCuts { second_cut: None, ..cuts };
    cuts.run(&parse(setup).unwrap(), &parse(&body).unwrap()).map_err(|report| report.to_string())
}

/// Aim: bytes that were synced and not changed since are there after a cut, although the block that has them moves. Method:
/// cuts at every write, on each device, while a file grows whose last block has no room, and other operations write its inode.
#[test]
fn what_moves_is_kept() {
    let mut total = CrashReport::default();
    for case in MOVES {
        for device in devices() {
            for (metadata, realloc_blocks) in
                [(Metadata::Sync, false), (Metadata::Sync, true), (Metadata::Softdep, false), (Metadata::Softdep, true)]
            {
                let options = Options { metadata, realloc_blocks, ..Options::default() };
                let result = cut_a_move(case, options, device.clone());
                total.add(result.unwrap_or_else(|report| panic!("{}, {options:?}: {report}", case.0)));
            }
        }
    }
    println!("{total}");
}

/// The cases before this find what 4.4BSD loses.
#[test]
fn what_moves_is_not_kept_by_4_4bsd() {
    for (name, realloc_blocks) in [("an append", false), ("a cluster", true)] {
        let case = MOVES.into_iter().find(|case| case.0 == name).unwrap();
        for device in devices() {
            let options = Options { realloc_blocks, ..as_4_4bsd() };
            let report = cut_a_move(case, options, device).expect_err(name);
            assert!(report.contains("was not changed after step"), "{name}: {report}");
        }
    }
}

/// Sets the time of the last change of the file as a kernel does that caches it.
async fn set_ctime(client: &Client, path: &[u8], seconds: Option<i64>) {
    if let Some(seconds) = seconds {
        let ctime = Some(crate::units::WallTime { seconds, ..Default::default() });
        client.setattr(path, SetAttr { ctime, ..SetAttr::default() }).await.unwrap();
    }
}

async fn the_window(rt: Rt, options: Options, set_moves: Option<i64>, set_takes: Option<i64>) {
    {
        let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
        let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/moves", &[1; 1000]).await.unwrap();
        set_ctime(&client, b"/moves", set_moves).await;
        client.fsync_path(b"/moves").await.unwrap();
        // Its neighbour in the block is taken, so that it cannot grow in place.
        client.write_file(b"/neighbour", &[2; 1000]).await.unwrap();
        client.fsync_path(b"/neighbour").await.unwrap();
        let before = ffs.counters().into_iter().find(|(name, _)| *name == "tails_moved");
        rt.sleep(Nanos::from_secs(1)).await;
        let file = client.open(b"/moves", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 1000, &[1; 3000]).await.unwrap();
        client.close(file).await.unwrap();
        let after = ffs.counters().into_iter().find(|(name, _)| *name == "tails_moved");
        assert_ne!(before, after, "the tail had to move");
        rt.sleep(Nanos::from_secs(1)).await;
        client.write_file(b"/takes", &[3; 1000]).await.unwrap();
        set_ctime(&client, b"/takes", set_takes).await;
        client.fsync_path(b"/takes").await.unwrap();
        let crashed: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
        let found = fsck(&rt, &crashed, FsckOptions::default()).await.unwrap();
        let contested = found.problems.iter().any(|problem| problem.text.contains("belongs to another inode"));
        assert_eq!(contested, !options.keep_moved, "{found:?}");
        assert!(found.problems.iter().all(|problem| problem.cause != Cause::Damage), "{found:?}");
        session(&rt, &crashed, options, async |client| {
            assert!(client.read_file(b"/takes").await.unwrap() == [3; 1000]);
            assert!(client.read_file(b"/neighbour").await.unwrap() == [2; 1000]);
            let moved = client.read_file(b"/moves").await.unwrap();
            match options.keep_moved {
                true => assert!(moved.starts_with(&[1; 1000]), "{} bytes", moved.len()),
                false => assert_eq!(moved.len(), 0),
            }
        })
        .await;
    }
}

/// Aim: durable data keeps its place, also when another inode on the volume still has the place and a later time.
/// Method: a file grows and moves, and its old place is allocated, on a machine whose clock was put back while the
/// power was off; the power fails before the file's inode is written.
#[test]
fn a_clock_that_was_put_back() {
    let image = simulate(1, async |rt| {
        rt.sleep(Nanos::from_secs(1_000_000)).await;
        let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
        session(&rt, &device, Options::default(), async |client| {
            client.write_file(b"/moves", &[1; 1000]).await.unwrap();
            // Its neighbour in the block is taken, so that it cannot grow in place.
            client.write_file(b"/neighbour", &[2; 1000]).await.unwrap();
        })
        .await;
        memory.image()
    });
    let target = [b't'; 300];
    for taken_by in [FileKind::Regular, FileKind::Directory, FileKind::Symlink] {
        simulate(1, async |rt| {
            let memory = Rc::new(Memory::from_image(BYTES, image.clone()));
            let ffs = mount(rt.clone(), memory.clone(), as_4_4bsd()).await.unwrap();
            let client = Client::new(ffs.clone());
            let file = client.open(b"/moves", OpenFlags::READ_WRITE).await.unwrap();
            client.write(file, 1000, &[1; 3000]).await.unwrap();
            client.close(file).await.unwrap();
            match taken_by {
                FileKind::Directory => client.mkdir(b"/takes").await.unwrap(),
                FileKind::Symlink => client.symlink(&target, b"/takes").await.unwrap(),
                _ => {
                    client.write_file(b"/takes", &[3; 1000]).await.unwrap();
                    client.fsync_path(b"/takes").await.unwrap();
                }
            }
            assert!(ffs.counters().contains(&("tails_moved", 1)));
            let crashed: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
            let found = fsck(&rt, &crashed, FsckOptions::default()).await.unwrap();
            assert_eq!(found.problems.iter().find(|problem| problem.cause == Cause::Damage), None);
            session(&rt, &crashed, Options::default(), async |client| {
                match taken_by {
                    FileKind::Directory => assert!(client.read_dir(b"/takes").await.unwrap().len() <= 2),
                    FileKind::Symlink => assert_eq!(client.read_link(b"/takes").await.unwrap(), target),
                    _ => assert!(client.read_file(b"/takes").await.unwrap() == [3; 1000]),
                }
                assert!(client.read_file(b"/moves").await.unwrap()[..1000] == [1; 1000]);
            })
            .await;
        });
    }
}

/// The same with a clock that is put back after the file has grown.
#[test]
fn a_clock_that_is_put_back() {
    let clock = VirtualClock::put_back(Setback { at: Nanos::from_secs(20), by: Nanos::from_secs(1000) });
    let done = crate::testing::subject::simulate_on(clock, 1, LIMITS, async |rt| {
        let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
        let ffs = mount(rt.clone(), device.clone(), as_4_4bsd()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/moves", &[1; 1000]).await.unwrap();
        client.write_file(b"/neighbour", &[2; 1000]).await.unwrap();
        client.sync().await.unwrap();
        rt.sleep(Nanos::from_secs(10)).await;
        let file = client.open(b"/moves", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 1000, &[1; 3000]).await.unwrap();
        client.close(file).await.unwrap();
        assert!(ffs.counters().contains(&("tails_moved", 1)));
        rt.sleep(Nanos::from_secs(11)).await;
        client.write_file(b"/takes", &[3; 1000]).await.unwrap();
        client.fsync_path(b"/takes").await.unwrap();
        let crashed: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
        let found = fsck(&rt, &crashed, FsckOptions::default()).await.unwrap();
        assert!(found.problems.iter().any(|problem| problem.text.contains("belongs to another inode")), "{found:?}");
        session(&rt, &crashed, Options::default(), async |client| {
            assert!(client.read_file(b"/takes").await.unwrap() == [3; 1000]);
        })
        .await;
        // The time of day counts again when the volume knows where the file is.
        client.sync().await.unwrap();
        client.write_file(b"/later", b"").await.unwrap();
        assert_eq!(client.stat(b"/later").await.unwrap().ctime, rt.wall());
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
    done.unwrap_or_else(|why| panic!("{why}"));
}

/// Zeroes of a hole that was made durable stay zeroes until they are changed, whatever fills the hole, and whatever the
/// block that it gets has held.
#[test]
fn filled_holes_stay_zero() {
    const BLOCK: u64 = 8192;
    const SIZE: u64 = 40 * BLOCK;
    let write = |bytes: u32, block: u64| format!("write /f {}+{bytes} #9", block * BLOCK + 3000);
    let fills = [
        ("a truncation", format!("truncate /f {}", 30 * BLOCK + 5000), 30 * BLOCK..30 * BLOCK + 5000),
        ("a truncation near the start", format!("truncate /f {}", 5 * BLOCK + 5000), 5 * BLOCK..5 * BLOCK + 5000),
        ("a short write", write(100, 25), 25 * BLOCK..25 * BLOCK + 3000),
        ("an allocation", format!("allocate /f {}+{BLOCK}", 22 * BLOCK), 22 * BLOCK..23 * BLOCK),
    ];
    for (name, fill, zeroes) in fills {
        let (log, synced) = simulate(7, async |rt| {
            let device = CrashDevice::new(&rt, Image::default(), CrashOptions::volatile(BYTES));
            mkfs(&rt, &(device.clone() as Device), &small_groups()).await.unwrap();
            let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
            let mut runner = Runner::new(&rt, ffs);
            let before = "create /old 644; write /old 0+3000000 #5; fsync /old; unlink /old; sync; idle 60000; \
                          create /f 644; create /g 644";
            let sparse = format!("write /f {}+{BLOCK} #6; sync; idle 60000", SIZE - BLOCK);
            let after = format!("{fill}; write /g 0+100 #7; fsync /g; truncate /f {}; sync", zeroes.end);
            let mut synced = 0;
            for ops in [before.to_owned(), sparse, after] {
                synced = device.position();
                for op in parse(&ops).unwrap() {
                    let outcome = runner.apply(&op).await;
                    assert!(outcome.error().is_none(), "{op}: {outcome}");
                }
            }
            (device.log(), synced)
        });
        let mut states = 0;
        for position in log.positions().into_iter().filter(|&position| position >= synced) {
            let cut = log.cut(position);
            for choice in cut.choices(&Effort::SAMPLED, 1) {
                states += 1;
                let device: Device = Rc::new(Memory::from_image(BYTES, cut.image(&choice)));
                simulate(1, async |rt| {
                    let fs = Checked::default().mount(&rt, device).await.unwrap();
                    let read = Client::new(fs).read_file(b"/f").await.unwrap();
                    let end = read.len().min(zeroes.end as usize);
                    let wrong = read[..end].iter().skip(zeroes.start as usize).position(|&byte| byte != 0);
                    assert_eq!(wrong, None, "{name}, {}", cut.to_text(&choice));
                });
            }
        }
        assert!(states > 20, "{name}: {states} states");
    }
}

/// How a file is written back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WriteBack {
    Update,
    Fsync,
    /// While inodes are made that are in the same block.
    FsyncBesideOthers,
}

/// Aim: what an fsync or an update writes back exposes no bytes of a deleted file. Method: a new file takes blocks that another
/// one had, and each cut of its way to a device with a volatile cache is mounted.
#[test]
fn what_is_written_back_shows_no_other_files_bytes() {
    const SIZE: usize = 2_500_000;
    for way in [WriteBack::Update, WriteBack::Fsync, WriteBack::FsyncBesideOthers] {
        let (log, begun) = simulate(3, async |rt| {
            let device = CrashDevice::new(&rt, Image::default(), CrashOptions::volatile(BYTES));
            mkfs(&rt, &(device.clone() as Device), &small_groups()).await.unwrap();
            let client = Client::new(mount(rt.clone(), device.clone(), Options::default()).await.unwrap());
            client.write_file(b"/old", &vec![b'o'; SIZE]).await.unwrap();
            client.sync().await.unwrap();
            client.unlink(b"/old").await.unwrap();
            client.sync().await.unwrap();
            let begun = device.position();
            client.write_file(b"/new", &vec![b'n'; SIZE]).await.unwrap();
            let is_over = Rc::new(Cell::new(false));
            let others = {
                let (client, is_over) = (Client::new(client.fs().clone()), is_over.clone());
                rt.spawn(async move {
                    for number in 0.. {
                        if is_over.get() {
                            break;
                        }
                        client.create(format!("/{number}").as_bytes()).await.unwrap();
                    }
                })
            };
            is_over.set(way != WriteBack::FsyncBesideOthers);
            match way {
                WriteBack::Update => rt.sleep(Nanos::from_secs(31)).await,
                _ => client.fsync_path(b"/new").await.unwrap(),
            }
            is_over.set(true);
            others.await;
            (device.log(), begun)
        });
        let (mut states, mut with_bytes) = (0, 0);
        for position in log.positions().into_iter().filter(|&position| position >= begun) {
            let cut = log.cut(position);
            for choice in cut.choices(&Effort::SAMPLED, 1) {
                states += 1;
                let device: Device = Rc::new(Memory::from_image(BYTES, cut.image(&choice)));
                simulate(1, async |rt| {
                    let client = Client::new(Checked::default().mount(&rt, device).await.unwrap());
                    let read = client.read_file(b"/new").await.unwrap_or_default();
                    with_bytes += u32::from(!read.is_empty());
                    let foreign = read.iter().position(|&byte| byte == b'o');
                    assert_eq!(foreign, None, "{way:?}, {}", cut.to_text(&choice));
                });
            }
        }
        assert!(states > 100 && with_bytes > 0, "{way:?}: {states} states, {with_bytes} with bytes");
    }
}
