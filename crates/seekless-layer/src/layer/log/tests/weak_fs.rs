//! Aim: over a file system that keeps no more than it must, every byte that was synced is there after a power cut, and
//! every file is that of one moment; and a full file system loses nothing. Method: random operations over the weak
//! model `WeakFs`, compared with the model file system; cuts everywhere, each with several of the states that it may
//! leave.

use super::*;
use crate::fs::FsError;
use crate::fs::client::Client;
use crate::testing::history::Recorder;
use crate::testing::oracle::Strength;
use crate::testing::scripts::SCRIPTS;
use crate::testing::{Generator, MemFsOptions, Op, OpMix, Promise, Runner, Space, Tree, WeakFs};

const PROMISE: Promise = Promise { strength: Strength::PerOperation, write_atomic_bytes: u64::MAX };

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
