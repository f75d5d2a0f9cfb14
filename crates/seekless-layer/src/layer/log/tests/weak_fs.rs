//! Aim: over a file system that keeps no more than it must, every byte that was synced is there after a power cut, and
//! every file is that of one moment; and a full file system loses nothing. Method: random operations over the weak
//! model `WeakFs`, compared with the model file system; cuts everywhere, each with several of the states that it may
//! leave.

use std::cell::{Cell, RefCell};

use super::*;
use crate::fs::FsError;
use crate::fs::client::Client;
use crate::layer::codecs::{Key, Sealed};
use crate::rng::Rng;
use crate::testing::history::Recorder;
use crate::testing::scripts::SCRIPTS;
use crate::testing::volumes::life::must_have_covered;
use crate::testing::{Generator, MemFs, MemFsOptions, Op, OpMix, Promise, Runner, Space, Tree, WeakFs};

const PROMISE: Promise = Promise::WHOLE_FILES;

fn weak_fs(rt: &Rt) -> Rc<WeakFs> {
    WeakFs::new(rt, MemFsOptions { capacity_bytes: 1 << 40, ..MemFsOptions::default() })
}

/// Runs `ops` and cuts the power at up to `cuts` moments, examining `states` states of each. Returns the number of
/// states.
fn explore(name: &str, seed: u64, options: &Options, ops: &[Op], cuts: usize, states: u64) -> u64 {
    simulate(seed, async |rt| {
        let lower = weak_fs(&rt);
        let fs = stack_on(&rt, lower.clone(), options.clone()).await.unwrap();
        let empty = Tree::of(fs.clone()).await.unwrap();
        let mut recorder = Recorder::new(&rt, &empty, lower.position()).await.unwrap();
        let mut runner = Runner::new(&rt, fs.clone());
        for op in ops {
            recorder.issue(op, lower.position());
            let outcome = runner.apply(op).await;
            let agreed = recorder.acknowledge(op, &outcome, lower.position()).await;
            agreed.unwrap_or_else(|what| panic!("{name}, before any cut: {what}"));
        }
        runner.close().await.unwrap();
        fs.close().await.unwrap();
        let steps = recorder.history().steps.len();
        recorder.synced(steps, lower.position());
        let history = recorder.into_history();
        let mut looked_at = 0;
        let step = (lower.position() / cuts).max(1);
        for position in (0..=lower.position()).rev().step_by(step) {
            for state in 0..states {
                let left: Fs = lower.cut(position, state).await.unwrap();
                let again = stack_on(&rt, left.clone(), options.clone()).await.unwrap();
                let tree = Tree::of(again.clone()).await;
                let verdict = tree.map_err(|error| error.to_string());
                let verdict = verdict.and_then(|tree| history.check(position, PROMISE, &tree).map(|()| tree));
                let tree = verdict.unwrap_or_else(|what| {
                    panic!(
                        "{name}, seed {seed}, cut at {position}, state {state}: {what}\n{}",
                        history.to_text(position)
                    )
                });
                // It can be used, and keeps its content over one more mount.
                let client = Client::new(again.clone());
                client.write_file(b"/new", b"new").await.unwrap();
                for (path, node) in tree.paths() {
                    if tree.nodes[&node].kind == crate::fs::FileKind::Regular {
                        let file = client.open(&path.0, crate::fs::OpenFlags::READ_WRITE).await.unwrap();
                        client.write(file, 100, b"changed").await.unwrap();
                        client.close(file).await.unwrap();
                    }
                }
                again.close().await.unwrap();
                assert_clean(&rt, &left, options).await;
                looked_at += 1;
            }
        }
        looked_at
    })
}

#[test]
fn scripts() {
    let mut states = 0;
    for script in SCRIPTS {
        let ops = [script.setup_ops(), script.body_ops()].concat();
        states += explore(script.name, 1, &tiny(Arc::new(Zstd::default())), &ops, 60, 6);
    }
    println!("{states} states");
    assert!(states > 2_000, "{states}");
}

#[test]
fn random_runs() {
    let replay = replay("weak_fs::random_runs");
    let mut states = 0;
    for seed in replay.seeds(0..4) {
        let options = if seed % 2 == 0 { tiny(Arc::new(Zstd::default())) } else { uuencode() };
        let ops: Vec<Op> = Generator::new(seed, Space::small(), OpMix::CRASHY).take(120).collect();
        states += explore("random", seed, &options, &ops, 40, 4);
    }
    println!("{states} states");
}

/// Space runs out at every change below, once and permanently. Acknowledged changes are there when there is space
/// again.
#[test]
fn a_full_file_system_loses_nothing() {
    let replay = replay("weak_fs::a_full_file_system_loses_nothing");
    for seed in replay.seeds(0..2) {
        let ops: Vec<Op> = Generator::new(seed, Space::small(), OpMix::CRASHY).take(60).collect();
        let options = tiny(Arc::new(Zstd::default()));
        let run = |full: Option<std::ops::Range<u64>>| {
            simulate(seed, async |rt| {
                let lower = weak_fs(&rt);
                let fs = stack_on(&rt, lower.clone(), options.clone()).await.unwrap();
                let empty = Tree::of(fs.clone()).await.unwrap();
                let model = model(&rt);
                empty.build(&(model.clone() as Fs)).await.unwrap();
                let (mut here, mut there) = (Runner::new(&rt, fs.clone()), Runner::new(&rt, model.clone()));
                lower.fill(full.clone().unwrap_or(0..0));
                let mut refused = 0;
                for op in &ops {
                    let outcome = here.apply(op).await;
                    if matches!(outcome.error(), Some(FsError::NoSpace)) {
                        refused += 1;
                        continue;
                    }
                    let expected = there.apply(op).await;
                    let agrees = matches!(op, Op::Seek { .. }) || expected.agrees(&outcome);
                    assert!(agrees, "seed {seed}, full at {full:?}: {op}\n  {outcome}\n  {expected}");
                }
                lower.fill(0..0);
                let needs = lower.needs();
                here.close().await.unwrap();
                there.close().await.unwrap();
                fs.close().await.unwrap_or_else(|error| panic!("seed {seed}, full at {full:?}: {error}"));
                assert_clean(&rt, &(lower.clone() as Fs), &options).await;
                let again = stack_on(&rt, lower.clone(), options.clone()).await.unwrap();
                let (found, expected) = (Tree::of(again).await.unwrap(), Tree::of(model).await.unwrap());
                assert_eq!(found.differences(&expected), Vec::<String>::new(), "seed {seed}, full at {full:?}");
                (needs, refused)
            })
        };
        let (needs, _) = run(None);
        let mut refused = 0;
        for number in 0..needs {
            refused += run(Some(number..number + 1)).1;
            if number % 4 == 0 {
                refused += run(Some(number..u64::MAX)).1;
            }
        }
        assert!(refused > 0);
    }
}

/// What a file has held since the beginning of a round.
struct Versions {
    path: Vec<u8>,
    /// Its content after each change, the oldest first.
    contents: Vec<Vec<u8>>,
    /// Which of these was durable at which position of the journal below.
    durable: Vec<(usize, usize)>,
    /// The newest of these that has been acknowledged.
    covered: usize,
}

impl Versions {
    fn new(path: Vec<u8>, content: Vec<u8>) -> Versions {
        Versions { path, contents: vec![content], durable: Vec::new(), covered: 0 }
    }

    /// The content after a power cut at `position`, or what is wrong with it.
    fn check(&self, position: usize, found: &[u8]) -> Result<(), String> {
        let synced = self.durable.iter().filter(|(at, _)| *at <= position).map(|(_, version)| *version).max();
        let allowed = &self.contents[synced.unwrap_or(0)..];
        match allowed.iter().any(|content| content == found) {
            true => Ok(()),
            false => {
                let older = self.contents.iter().position(|content| content == found);
                let path = String::from_utf8_lossy(&self.path);
                Err(format!("{path}: it holds version {older:?}, and {synced:?} was synced"))
            }
        }
    }
}

/// Aim: what fsync has acknowledged is there after a power cut, after any number of cuts, whether the commit of an fsync has
/// been confirmed or not, and whatever of it the cut has left. Method: several files on the weak model, changed and synced at
/// random; each round continues with what a cut of the round before has left.
#[test]
fn a_life_of_fsyncs() {
    const FILES: usize = 3;
    let replay = replay("weak_fs::a_life_of_fsyncs");
    crate::rt::covered();
    let (mut rounds, mut fsyncs) = (0, 0);
    for seed in replay.seeds(0..12) {
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let options = Options { write_back_interval: Nanos::from_millis(10), ..tiny(Arc::new(Zstd::default())) };
            let memory = MemFsOptions { capacity_bytes: 1 << 40, ..MemFsOptions::default() };
            let mut left = Tree::of(MemFs::with_options(&rt, memory)).await.unwrap();
            let mut held = vec![Vec::new(); FILES];
            for round in 0..12 {
                let lower = WeakFs::new(&rt, memory);
                left.build(&(lower.clone() as Fs)).await.unwrap();
                Client::new(lower.clone() as Fs).sync().await.unwrap();
                let client = Client::new(stack_on(&rt, lower.clone(), options.clone()).await.unwrap());
                let mut files = Vec::new();
                for (number, content) in held.iter().enumerate() {
                    let path = format!("/{number}").into_bytes();
                    if round == 0 {
                        client.write_file(&path, b"").await.unwrap();
                    }
                    files.push(Versions::new(path, content.clone()));
                }
                if round == 0 {
                    client.sync().await.unwrap();
                }
                let start = lower.position();
                for _ in 0..rng.between(1, 40) {
                    let versions = rng.below(FILES as u64) as usize;
                    let versions = &mut files[versions];
                    let mut content = versions.contents[versions.contents.len() - 1].clone();
                    let file = client.open(&versions.path, crate::fs::OpenFlags::READ_WRITE).await.unwrap();
                    let at = rng.below(content.len() as u64 + 1);
                    match rng.below(8) {
                        0 => {
                            content.truncate(at as usize);
                            client.truncate(&versions.path, at).await.unwrap();
                        }
                        _ => {
                            let most = *rng.pick(&[100, 5_000, 40_000]);
                            let mut bytes = vec![0; rng.between(1, most) as usize];
                            rng.fill(&mut bytes);
                            content.resize(content.len().max(at as usize + bytes.len()), 0);
                            content[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
                            client.write(file, at, &bytes).await.unwrap();
                        }
                    }
                    versions.contents.push(content);
                    if rng.chance(2, 3) {
                        client.fsync(file).await.unwrap();
                        versions.durable.push((lower.position(), versions.contents.len() - 1));
                        fsyncs += 1;
                    }
                    client.close(file).await.unwrap();
                    if rng.chance(1, 8) {
                        rt.sleep(Nanos::from_millis(rng.between(1, 40))).await;
                    }
                }
                // The daemon ends with the power; its tasks do no more harm.
                let position = rng.between(start as u64, lower.position() as u64) as usize;
                let state = rng.below(6);
                let cut = lower.cut(position, state).await.unwrap();
                client.fs().close().await.unwrap();
                left = Tree::of(cut.clone()).await.unwrap();
                let after = Client::new(stack_on(&rt, cut.clone(), options.clone()).await.unwrap());
                for (versions, held) in files.iter().zip(&mut held) {
                    *held = after.read_file(&versions.path).await.unwrap();
                    let verdict = versions.check(position, held);
                    verdict.unwrap_or_else(|what| {
                        panic!(
                            "round {round}, cut at {position}, state {state}: {what}\n{}",
                            replay.command(seed, None, None, None)
                        )
                    });
                }
                after.fs().close().await.unwrap();
                // In half of the rounds the next mount finds what the cut left, and otherwise what was closed.
                if rng.chance(1, 2) {
                    left = Tree::of(cut).await.unwrap();
                }
                rounds += 1;
            }
        });
    }
    println!("{rounds} power cuts, {fsyncs} fsyncs");
    if replay.runs_everything() {
        const POINTS: &[&str] = &[
            "layer: a provisional commit is whole",
            "layer: the commit before a provisional one counts",
            "layer: two provisional commits, of which the older counts",
        ];
        must_have_covered("layer::log::tests::weak_fs::a_life_of_fsyncs", POINTS);
    }
}

/// Aim: an fsync of one client makes durable what the calls of all clients on this file had acknowledged before it began,
/// while they continue writing to it, punch holes and sync it. Method: three clients on two files on the weak model, each
/// with a region of its own in both; a cut anywhere, and each region holds what it held at the last fsync of the file by
/// any client, or later.
#[test]
fn a_life_of_clients() {
    const FILES: usize = 2;
    const CLIENTS: u64 = 3;
    const REGION: u64 = 20_000;
    let replay = replay("weak_fs::a_life_of_clients");
    let (mut rounds, mut fsyncs) = (0, 0);
    for seed in replay.seeds(0..12) {
        let sealed = Options { plain: Plain::Error, ..tiny(Arc::new(Sealed::new(&Key::new([7; 32]), None))) };
        let codec = if seed % 2 == 0 { tiny(Arc::new(Zstd::default())) } else { sealed };
        let options = Options { write_back_interval: Nanos::from_millis([3, 40][seed as usize / 2 % 2]), ..codec };
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let memory = MemFsOptions { capacity_bytes: 1 << 40, ..MemFsOptions::default() };
            let mut left = Tree::of(MemFs::with_options(&rt, memory)).await.unwrap();
            let mut held = vec![vec![0; (CLIENTS * REGION) as usize]; FILES];
            for round in 0..8 {
                let lower = WeakFs::new(&rt, memory);
                left.build(&(lower.clone() as Fs)).await.unwrap();
                Client::new(lower.clone() as Fs).sync().await.unwrap();
                let client = Client::new(stack_on(&rt, lower.clone(), options.clone()).await.unwrap());
                if round == 0 {
                    for (number, content) in held.iter().enumerate() {
                        client.write_file(format!("/{number}").as_bytes(), content).await.unwrap();
                    }
                    client.sync().await.unwrap();
                }
                // The versions of each region, by file and client.
                let regions: Vec<Rc<RefCell<Vec<Versions>>>> = (0..FILES)
                    .map(|file| {
                        let of_client = |client: u64| {
                            let bytes = (client * REGION) as usize..((client + 1) * REGION) as usize;
                            let path = format!("/{file}, region {client}").into_bytes();
                            Versions::new(path, held[file][bytes].to_vec())
                        };
                        Rc::new(RefCell::new((0..CLIENTS).map(of_client).collect()))
                    })
                    .collect();
                let start = lower.position();
                let synced = Rc::new(Cell::new(0));
                let mut tasks = Vec::new();
                for number in 0..CLIENTS {
                    let (mut rng, rt, lower) = (Rng::new(rng.next_u64()), rt.clone(), lower.clone());
                    let (client, regions, synced) = (client.clone(), regions.clone(), synced.clone());
                    tasks.push(rt.clone().spawn(async move {
                        for _ in 0..rng.between(1, 25) {
                            let file = rng.below(FILES as u64) as usize;
                            let path = format!("/{file}").into_bytes();
                            let open = client.open(&path, crate::fs::OpenFlags::READ_WRITE).await.unwrap();
                            let at = rng.below(REGION);
                            let bytes = rng.between(1, REGION - at);
                            let version = |change: &dyn Fn(&mut [u8])| {
                                let mut all = regions[file].borrow_mut();
                                let contents = &mut all[number as usize].contents;
                                let mut content = contents[contents.len() - 1].clone();
                                change(&mut content[at as usize..(at + bytes) as usize]);
                                contents.push(content);
                            };
                            match rng.below(6) {
                                0 => {
                                    let range = crate::fs::FileRange { offset: number * REGION + at, bytes };
                                    version(&|bytes| bytes.fill(0));
                                    let mode = crate::fs::AllocateMode::PunchHole;
                                    client.fs().fallocate(open.ino, open.handle, range, mode).await.unwrap();
                                }
                                _ => {
                                    let mut written = vec![0; bytes as usize];
                                    rng.fill(&mut written);
                                    version(&|bytes| bytes.copy_from_slice(&written));
                                    client.write(open, number * REGION + at, &written).await.unwrap();
                                }
                            }
                            // What is acknowledged now, of others too, is covered; what others have begun is not.
                            let acknowledge = |versions: &mut Versions| versions.covered = versions.contents.len() - 1;
                            acknowledge(&mut regions[file].borrow_mut()[number as usize]);
                            if rng.chance(2, 3) {
                                let covers: Vec<usize> = regions[file].borrow().iter().map(|it| it.covered).collect();
                                client.fsync(open).await.unwrap();
                                for (versions, version) in regions[file].borrow_mut().iter_mut().zip(covers) {
                                    versions.durable.push((lower.position(), version));
                                }
                                synced.set(synced.get() + 1);
                            }
                            client.close(open).await.unwrap();
                            if rng.chance(1, 4) {
                                rt.sleep(Nanos::from_millis(rng.between(1, 20))).await;
                            }
                        }
                    }));
                }
                for task in tasks {
                    task.await;
                }
                fsyncs += synced.get();
                let position = rng.between(start as u64, lower.position() as u64) as usize;
                let state = rng.below(6);
                let cut = lower.cut(position, state).await.unwrap();
                client.fs().close().await.unwrap();
                left = Tree::of(cut.clone()).await.unwrap();
                let after = Client::new(stack_on(&rt, cut.clone(), options.clone()).await.unwrap());
                for (number, (all, held)) in regions.iter().zip(&mut held).enumerate() {
                    *held = after.read_file(format!("/{number}").as_bytes()).await.unwrap();
                    assert_eq!(held.len() as u64, CLIENTS * REGION);
                    for (versions, region) in all.borrow().iter().zip(held.chunks(REGION as usize)) {
                        versions.check(position, region).unwrap_or_else(|what| {
                            panic!(
                                "round {round}, cut at {position}, state {state}: {what}\n{}",
                                replay.command(seed, None, None, None)
                            )
                        });
                    }
                }
                after.fs().close().await.unwrap();
                if rng.chance(1, 2) {
                    left = Tree::of(cut).await.unwrap();
                }
                rounds += 1;
            }
        });
    }
    println!("{rounds} power cuts, {fsyncs} fsyncs");
    assert!(fsyncs > 1_000 || !replay.runs_everything(), "{fsyncs} fsyncs");
}

/// Aim: an fsync costs one sync of the lower file, once the file has been synced, and readers do not have to look at its
/// records for long. Method: syncs counted below; after the next write-back the newest slot is looked at.
#[test]
fn an_fsync_syncs_once() {
    simulate(1, async |rt| {
        let lower = weak_fs(&rt);
        let options = tiny(Arc::new(Zstd::default()));
        let client = Client::new(stack_on(&rt, lower.clone(), options.clone()).await.unwrap());
        let file = client.create(b"/f").await.unwrap();
        for round in 0..20_u64 {
            client.write(file, round * 3_000, &[round as u8; 5_000]).await.unwrap();
            let before = lower.syncs();
            client.fsync(file).await.unwrap();
            assert_eq!(lower.syncs() - before, 1, "round {round}");
        }
        let below = Client::new(lower.clone() as Fs);
        let newest = async || {
            let bytes = below.read_file(b"/f").await.unwrap();
            let slots = [0, 512].map(|at| format::Commit::decode(&bytes[at..at + 512]));
            let good = slots.into_iter().filter_map(|slot| match slot {
                format::SlotState::Good(commit) => Some(commit),
                _ => None,
            });
            good.max_by_key(|commit| commit.generation).unwrap()
        };
        assert!(newest().await.is_provisional);
        rt.sleep(Nanos(3 * options.write_back_interval.0)).await;
        assert!(!newest().await.is_provisional);
        client.close(file).await.unwrap();
        client.fs().close().await.unwrap();
    });
}

/// Aim: two cuts, each in a first commit of one file, leave the file empty or as it was written last, and never a file that looks like
/// a plain one. Method: a file is written and the power cut; where it is empty then, it is written again, and the power cut again.
#[test]
fn two_cuts_in_first_commits() {
    const LENGTHS: [u64; 3] = [300, 20_000, 150_000];
    let (mut firsts, mut seconds) = (0, 0);
    let replay = replay("weak_fs::two_cuts_in_first_commits");
    for seed in replay.seeds(0..9) {
        let options = if seed % 2 == 0 { tiny(Arc::new(Zstd::default())) } else { uuencode() };
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let mut content = |number: u64| -> Vec<u8> {
                (0..LENGTHS[(number % 3) as usize]).map(|_| rng.below(256) as u8).collect()
            };
            let (first, second) = (content(seed), content(seed / 3));
            let write = async |lower: Rc<WeakFs>, bytes: &[u8]| {
                let fs = stack_on(&rt, lower, options.clone()).await.unwrap();
                Client::new(fs.clone()).write_file(b"/f", bytes).await.unwrap();
                fs.close().await.unwrap();
            };
            let is_empty = async |lower: Rc<MemFs>, may: &[u8], what: &str| -> bool {
                let fs = stack_on(&rt, lower, options.clone()).await.unwrap();
                let read = Client::new(fs.clone()).read_file(b"/f").await;
                let read = read.unwrap_or_else(|error| panic!("{what}: {error}"));
                assert!(read.is_empty() || read == may, "{what}: {} bytes", read.len());
                read.is_empty()
            };
            let some = |from: usize, to: usize| (from..to).step_by(((to - from) / 12).max(1));
            let lower = weak_fs(&rt);
            write(lower.clone(), &first).await;
            for position in some(1, lower.position()) {
                for state in 0..6 {
                    firsts += 1;
                    let what = format!("seed {seed}, cut at {position}, state {state}");
                    let left = lower.cut(position, state).await.unwrap();
                    let bytes = Client::new(left.clone()).read_file(b"/f").await.unwrap_or_default();
                    if bytes.is_empty() || !is_empty(left, &first, &what).await {
                        continue; // Nothing is left of it, or all.
                    }
                    let again = weak_fs(&rt);
                    let client = Client::new(again.clone());
                    client.write_file(b"/f", &bytes).await.unwrap();
                    client.sync().await.unwrap();
                    let from = again.position();
                    rt.sleep(Nanos::from_secs(1)).await; // A file has a number of its own.
                    write(again.clone(), &second).await;
                    for position in some(from, again.position()) {
                        for state in 0..4 {
                            seconds += 1;
                            let what = format!("{what}, then at {position}, state {state}");
                            is_empty(again.cut(position, state).await.unwrap(), &second, &what).await;
                        }
                    }
                }
            }
        });
    }
    println!("{firsts} states after one cut, {seconds} after two");
    if replay.runs_everything() {
        assert!(firsts > 300 && seconds > 1_000, "{firsts}, {seconds}");
        const POINTS: &[&str] = &["layer: what was left of a first commit is removed"];
        must_have_covered("layer::log::tests::weak_fs::two_cuts_in_first_commits", POINTS);
    }
}
