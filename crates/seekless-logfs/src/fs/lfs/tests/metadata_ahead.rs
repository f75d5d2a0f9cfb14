//! Aim: inodes and directories that come with others, or before they are asked for, are those of now. Method: clients that
//! change names and sizes beside others that list and look up, all with cold caches and slow reads; damage in what is read
//! with something else; reads counted.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use futures_util::future::{join, join_all};

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{BlockDevice, Data, WriteFlags};
use crate::rng::Rng;
use crate::testing::environment::replay;
use crate::units::Ino;

const DIRECTORIES: u64 = 12;

/// As on a mount, where the kernel has the data.
fn options(around: bool) -> Options {
    Options { cache_data: false, read_around_bytes: super::around(around), ..Options::default() }
}

/// What a listing with attributes shows: sizes by name.
#[derive(Default)]
struct Sizes(BTreeMap<Vec<u8>, (Ino, u64)>);

impl DirSink for Sizes {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if let Some(found) = &entry.entry {
            let twice = self.0.insert(entry.name.to_vec(), (entry.ino, found.attr.size));
            assert_eq!(twice, None, "{entry:?}");
        }
        true
    }
}

async fn listing(client: &Client, path: &[u8]) -> FsResult<Sizes> {
    let mut sizes = Sizes::default();
    let dir = client.resolve(path).await?;
    let listed = client.fs().readdir(dir, None, 0, true, &mut sizes).await;
    client.forget(dir).await;
    for (ino, _) in sizes.0.values() {
        client.fs().forget(*ino, 1).await;
    }
    listed.map(|()| sizes)
}

fn directory(number: u64) -> Vec<u8> {
    format!("/d{number:02}").into_bytes()
}

fn path(of_directory: u64, name: u64) -> Vec<u8> {
    format!("/d{of_directory:02}/{name}").into_bytes()
}

/// A tree of small files on a device whose reads take a millisecond, with a cold cache.
async fn tree(rt: &Rt, bytes: u64, files: u64, around: bool) -> (Rc<Lfs>, Client, Rc<Memory>, Rc<FaultDevice>) {
    let (memory, device) = fresh(rt, bytes).await;
    let slow = FaultDevice::new(rt, device, 1);
    let lfs = open(rt.clone(), slow.clone(), options(around)).await.expect("mount");
    let client = Client::new(lfs.clone());
    for number in 0..DIRECTORIES {
        client.mkdir(&directory(number)).await.expect("a directory");
        for file in 0..files {
            client.write_file(&path(number, file), &[7; 1024]).await.expect("write");
        }
    }
    client.fs().drop_caches().await.expect("drop");
    const MILLISECOND: Nanos = Nanos::from_micros(1000);
    slow.add(Rule::new(Kinds::READ, When::Always, Effect::Delay(MILLISECOND..=MILLISECOND)));
    (lfs, client, memory, slow)
}

/// Aim: a caller that walks a tree waits for few reads, and those that look up inodes that were written together too.
/// Method: the same walk with and without reading around; reads counted, and virtual time.
#[test]
fn a_walk_waits_for_few_reads() {
    let walk = |around: bool| {
        let figures = Rc::new(Cell::new((0, Nanos(0))));
        let result = figures.clone();
        simulate(1, async move |rt| {
            const FILES: u64 = 100;
            let (lfs, client, ..) = tree(&rt, 256 * MIB, FILES, around).await;
            let (began, before) = (rt.now(), lfs.state.borrow().inode_reads);
            assert_eq!(listing(&client, b"/").await.expect("a listing").0.len() as u64, DIRECTORIES);
            for number in 0..DIRECTORIES {
                let listed = listing(&client, &directory(number)).await.expect("a listing");
                assert_eq!(listed.0.len() as u64, FILES);
                rt.sleep(Nanos::from_millis(3)).await;
            }
            figures.set((lfs.state.borrow().inode_reads - before, rt.now() - began));
            client.fs().close().await.expect("close");
        });
        result.get()
    };
    let ((reads, took), (reads_alone, took_alone)) = (walk(true), walk(false));
    assert!(reads * 2 <= reads_alone && reads > 0, "{reads} reads of inodes, {reads_alone} without");
    // The caller itself works for 36 ms.
    assert!(took < Nanos::from_millis(36 + 12) && took < took_alone, "{took:?}, {took_alone:?} without");
}

/// Aim: those who miss inodes of one window at the same time wait for one read of it, also when its reader is given up.
/// Method: 64 look up files that were written together, of whom the first are dropped while they wait; reads counted.
#[test]
fn a_window_is_read_once() {
    simulate(1, async |rt| {
        const FILES: u64 = 64;
        let (lfs, client, ..) = tree(&rt, 256 * MIB, FILES, true).await;
        let mut inos = Vec::new();
        for file in 0..FILES {
            inos.push(client.stat(&path(3, file)).await.expect("stat").ino);
        }
        for dropped in [0, 1, 8] {
            client.fs().drop_caches().await.expect("drop");
            let before = lfs.state.borrow().inode_reads;
            let mut given_up: Vec<_> = inos[..dropped].iter().map(|&ino| Box::pin(lfs.getattr(ino, None))).collect();
            for lookup in &mut given_up {
                assert!(futures_util::poll!(lookup).is_pending());
            }
            rt.sleep(Nanos::from_micros(300)).await;
            drop(given_up);
            let looked = join_all(inos.iter().map(|&ino| lfs.getattr(ino, None))).await;
            assert!(looked.iter().all(Result::is_ok));
            let reads = lfs.state.borrow().inode_reads - before;
            assert!((1..=2).contains(&reads), "{reads} reads for {FILES} inodes, {dropped} given up");
        }
        client.fs().close().await.expect("close");
    });
}

/// Aim: directories whose leaves are read ahead count as needed only once a caller needs them, and no more leaves are read at once
/// than is said. Method: one directory of many is looked up, and what is in memory and under way is looked at; then all are
/// forgotten, and what that costs.
#[test]
fn directories_read_ahead_are_not_needed_yet() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 256 * MIB).await;
        let slow = FaultDevice::new(&rt, device, 1);
        let lfs = open(rt.clone(), slow.clone(), options(true)).await.expect("mount");
        let client = Client::new(lfs.clone());
        for number in 0..200 {
            client.mkdir(format!("/d{number}").as_bytes()).await.expect("a directory");
            client.mkdir(format!("/d{number}/below").as_bytes()).await.expect("a directory in it");
        }
        let looked_up = client.stat(b"/d100").await.expect("stat").ino;
        client.fs().drop_caches().await.expect("drop");
        const MILLISECOND: Nanos = Nanos::from_micros(1000);
        slow.add(Rule::new(Kinds::READ, When::Always, Effect::Delay(MILLISECOND..=MILLISECOND)));
        lfs.getattr(looked_up, None).await.expect("attributes");
        let ahead = || lfs.state.borrow().inodes.numbers(|known| known.ahead).len();
        assert!((100..400).contains(&ahead()), "{} came with it", ahead());
        assert!((1..=32).contains(&lfs.state.borrow().metadata_ahead.leaves.len()), "leaves under way");
        let before = ahead();
        while !lfs.state.borrow().metadata_ahead.is_idle() {
            rt.sleep(MILLISECOND).await;
        }
        assert_eq!(ahead(), before, "no caller needed them");
        assert!(lfs.state.borrow().metadata_ahead.pays());
        client.fs().close().await.expect("close");
    });
}

/// Aim: damage in a window concerns only those that need what is damaged. Method: the sector of an inode cannot be read, or
/// holds other bytes; every file is looked up in random order beside a walk, with a cold cache.
#[test]
fn damage_in_a_window_is_met_where_it_is() {
    let replay = replay("fs::lfs::tests::metadata_ahead::damage_in_a_window_is_met_where_it_is");
    for seed in replay.seeds(0..24) {
        simulate(seed, async |rt| {
            const FILES: u64 = 20;
            let mut rng = Rng::new(seed);
            let (lfs, client, memory, slow) =
                tree(&rt, if seed % 3 == 0 { 64 * MIB } else { 256 * MIB }, FILES, true).await;
            let ino = client.stat(&path(rng.below(DIRECTORIES), rng.below(FILES))).await.expect("stat").ino;
            let slot = lfs.run(|state| state.inode_slot(ino)).await.expect("a slot");
            let is_hurt = |state: &state::State, ino| {
                state.inodes.get(&ino).is_some_and(|known| known.slot.sector() == slot.sector())
            };
            let mut files: Vec<(Vec<u8>, bool)> = Vec::new();
            for (directory, file) in
                (0..DIRECTORIES).flat_map(|directory| (0..FILES).map(move |file| (directory, file)))
            {
                let path = path(directory, file);
                let ino = client.stat(&path).await.expect("stat").ino;
                files.push((path, is_hurt(&lfs.state.borrow(), ino)));
            }
            let directories: Vec<u64> = {
                let mut whole = Vec::new();
                for number in 0..DIRECTORIES {
                    let ino = client.stat(&directory(number)).await.expect("stat").ino;
                    whole.extend((!is_hurt(&lfs.state.borrow(), ino)).then_some(number));
                }
                whole
            };
            client.fs().drop_caches().await.expect("drop");
            match seed % 2 {
                0 => slow.lose(slot.sector()..slot.sector() + 1),
                _ => {
                    memory.write(slot.sector(), Data::from_slice(&[0xee; 512]), WriteFlags::NONE).await.expect("damage")
                }
            }
            rng.shuffle(&mut files);
            let lookups = async {
                for (path, is_hurt) in &files {
                    let number: u64 =
                        std::str::from_utf8(&path[2..4]).ok().and_then(|two| two.parse().ok()).expect("a number");
                    let found = client.stat(path).await;
                    if directories.contains(&number) {
                        assert_eq!(
                            found.is_err(),
                            *is_hurt,
                            "{path:?}: {found:?}\n{}",
                            replay.command(seed, None, None, None)
                        );
                    }
                }
            };
            let walk = async {
                let _ = listing(&client, b"/").await;
                for number in 0..DIRECTORIES {
                    let _ = listing(&client, &directory(number)).await;
                }
            };
            join(lookups, walk).await;
            assert!(lfs.state.borrow().stopped.is_none(), "what cannot be read does not end a mount");
        });
    }
}

/// Aim: what comes with something else, or before it is needed, never shows what was before. Method: clients that create,
/// remove, rename, resize, and empty the caches, each beside two that list and look up; what is not changed while they
/// looked has to be there, once, with its size and number.
#[test]
fn listings_beside_changes() {
    let replay = replay("fs::lfs::tests::metadata_ahead::listings_beside_changes");
    for seed in replay.seeds(0..24) {
        simulate(seed, async |rt| {
            let (_, device) = fresh(&rt, 64 * MIB).await;
            let slow = FaultDevice::new(&rt, device, seed);
            let reads = Nanos::from_micros(5)..=Nanos::from_micros(2000);
            slow.add(Rule::new(Kinds::READ, When::Always, Effect::Delay(reads)));
            let cache_bytes = [1, 1 << 20, 32 << 20][seed as usize % 3];
            let options =
                Options { cache_bytes, checkpoint_interval: Nanos::from_millis(30), ..options(seed % 6 != 5) };
            let fs = mount(rt.clone(), slow, options).await.expect("mount");
            let told = || replay.command(seed, None, None, None);
            let clients = (0..2).map(|number| {
                let (rt, fs, told) = (rt.clone(), fs.clone(), &told);
                async move {
                    let done = churn(&rt, Client::new(fs), number, Rng::new(seed * 8 + number), told).await;
                    done.unwrap_or_else(|error| panic!("{error}\n{}", told()));
                }
            });
            join_all(clients).await;
            assert_eq!(fs.check().await.expect("recounted"), Vec::<String>::new());
            fs.close().await.expect("close");
        });
    }
}

/// What is known of a path: its size and number, if there is a file, and how often that was about to change or has changed.
/// Odd while it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Known {
    file: Option<(u64, Ino)>,
    changes: u64,
}

type Model = RefCell<BTreeMap<(u64, u64), Known>>;

fn begin(model: &Model, place: (u64, u64)) {
    model.borrow_mut().entry(place).or_default().changes += 1;
}

fn end(model: &Model, place: (u64, u64), file: Option<(u64, Ino)>) {
    if let Some(known) = model.borrow_mut().get_mut(&place) {
        *known = Known { file, changes: known.changes + 1 };
    }
}

/// One that changes its directories, and two that look.
async fn churn(rt: &Rt, client: Client, number: u64, mut rng: Rng, told: &dyn Fn() -> String) -> FsResult<()> {
    const OWN: u64 = 6;
    const NAMES: u64 = 120;
    let first = number * OWN;
    for of_directory in first..first + OWN {
        client.mkdir(&directory(of_directory)).await?;
    }
    let (model, done) = (Model::default(), Cell::new(false));
    let known = |place: (u64, u64)| model.borrow().get(&place).copied().unwrap_or_default();
    let mut of_writer = Rng::new(rng.next_u64());
    let seeds = [rng.next_u64(), rng.next_u64()];
    let writer = async {
        for _ in 0..500 {
            let place = (first + of_writer.below(OWN), of_writer.below(NAMES));
            let (at, before) = (path(place.0, place.1), known(place).file);
            match (of_writer.below(20), before) {
                (0, _) => client.fs().drop_caches().await?,
                (1, _) => client.sync().await?,
                (2..9, Some(_)) => {
                    begin(&model, place);
                    client.unlink(&at).await?;
                    end(&model, place, None);
                }
                (9..13, Some((size, ino))) => {
                    let to = (first + of_writer.below(OWN), of_writer.below(NAMES));
                    if to != place {
                        begin(&model, place);
                        begin(&model, to);
                        client.rename(&at, &path(to.0, to.1), RenameMode::Replace).await?;
                        end(&model, place, None);
                        end(&model, to, Some((size, ino)));
                    }
                }
                (_, Some((_, ino))) => {
                    let size = of_writer.below(20_000);
                    begin(&model, place);
                    client.truncate(&at, size).await?;
                    end(&model, place, Some((size, ino)));
                }
                (_, None) => {
                    let size = of_writer.below(3_000);
                    begin(&model, place);
                    client.write_file(&at, &vec![1; size as usize]).await?;
                    let ino = client.stat(&at).await?.ino;
                    end(&model, place, Some((size, ino)));
                }
            }
            rt.sleep(Nanos::from_micros(of_writer.below(1500))).await;
        }
        done.set(true);
        FsResult::Ok(())
    };
    let readers = seeds.map(|seed| {
        let (client, model, done, known) = (&client, &model, &done, &known);
        async move {
            let mut rng = Rng::new(seed);
            while !done.get() {
                if rng.chance(1, 2) {
                    listing(client, b"/").await?;
                }
                for of_directory in first..first + OWN {
                    let before = model.borrow().clone();
                    let listed = listing(client, &directory(of_directory)).await?;
                    for name in 0..NAMES {
                        let place = (of_directory, name);
                        let was = before.get(&place).copied().unwrap_or_default();
                        if was != known(place) || was.changes % 2 == 1 {
                            continue;
                        }
                        let found = listed.0.get(name.to_string().as_bytes()).map(|&(ino, size)| (size, ino));
                        assert_eq!(found, was.file, "{place:?} in a listing\n{}", told());
                    }
                    let place = (of_directory, rng.below(NAMES));
                    let was = known(place);
                    let found = client.stat(&path(place.0, place.1)).await;
                    if was == known(place) && was.changes % 2 == 0 {
                        let found = found.ok().map(|attr| (attr.size, attr.ino));
                        assert_eq!(found, was.file, "{place:?} looked up\n{}", told());
                    }
                    rt.sleep(Nanos::from_micros(rng.below(2000))).await;
                }
            }
            FsResult::Ok(())
        }
    });
    let (wrote, read) = join(writer, join_all(readers)).await;
    wrote?;
    read.into_iter().collect()
}
