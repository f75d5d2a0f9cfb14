//! Aim: the explorer finds every kind of broken promise and accepts every kept one. Method: the correct toy passes all
//! scripts, short sequences and random runs on every kind of device; each toy with a bug is caught, and its report
//! replays.

use super::toy::{Bug, Toy};
use super::{or_panic, replay};
use crate::device::crash::CrashOptions;
use crate::device::cut::Effort;
use crate::fs::{FsError, RenameMode};
use crate::testing::generate::{Generator, OpMix, Space, bounded};
use crate::testing::oracle::Promise;
use crate::testing::scripts::SCRIPTS;
use crate::testing::{CrashReport, Op, PowerCuts, Replay, ops};
use crate::units::Nanos;

const BYTES: u64 = 4 << 20;
const RIGHT: Toy = Toy { bug: Bug::None, commit_every: 3 };

fn here(test: &str) -> Replay {
    replay(&format!("testing::tests::crash::{test}"))
}

#[test]
fn scripts_on_the_right_toy() {
    let mut total = CrashReport::default();
    for device in CrashOptions::each(BYTES) {
        for script in SCRIPTS {
            for promise in [Promise::PER_OPERATION, Promise::NAMESPACE_PREFIX] {
                let cuts = PowerCuts::new(
                    &Toy { bug: Bug::None, commit_every: 2 },
                    device.clone(),
                    promise,
                    here("scripts_on_the_right_toy"),
                )
                .run(&script.setup_ops(), &script.body_ops());
                total.add(or_panic(cuts));
            }
        }
    }
    println!("{total}");
    assert!(total.states > 5_000 && total.second_states > 200, "{total}");
}

#[test]
fn short_sequences_on_the_right_toy() {
    let mut total = CrashReport::default();
    for ops in bounded(2).sample(60, 5) {
        let (setup, body) = ops.split_at(super::super::generate::Bounded::prologue().len());
        let cuts = PowerCuts::new(&RIGHT, CrashOptions::volatile(BYTES), Promise::NAMESPACE_PREFIX, here("short"));
        total.add(or_panic(cuts.run(setup, body)));
    }
    println!("{total}");
    assert!(total.states > 1_000, "{total}");
}

#[test]
fn random_runs_on_the_right_toy() {
    let mut total = CrashReport::default();
    for (seed, device) in CrashOptions::each(BYTES).into_iter().enumerate() {
        let ops: Vec<Op> = Generator::new(seed as u64, Space::small(), OpMix::CRASHY).take(250).collect();
        let cuts = PowerCuts::sampled(&RIGHT, device, Promise::NAMESPACE_PREFIX, here("random_runs_on_the_right_toy"));
        total.add(or_panic(PowerCuts { seed: seed as u64, ..cuts }.run(&[], &ops)));
    }
    println!("{total}");
    assert!(total.states > 1_000 && total.second_states > 20, "{total}");
}

#[test]
fn several_clients_on_the_right_toy() {
    let bodies: Vec<Vec<Op>> = (0..3)
        .map(|client| {
            let root = ops::Path::from(&*format!("/c{client}"));
            let space = Space { root, slots: 1, ..Space::small() };
            Generator::new(client, space, OpMix::CRASHY).take(200).collect()
        })
        .collect();
    let device = CrashOptions::volatile(BYTES);
    let cuts = PowerCuts::sampled(&RIGHT, device, Promise::NAMESPACE_PREFIX, here("several_clients_on_the_right_toy"));
    let report = or_panic(cuts.run_concurrently(&bodies));
    println!("{report}");
    assert!(report.states > 300, "{report}");
}

/// The bug is found by one of the scripts or runs; the finding replays, with the cut and the operations in the report.
fn finds(bug: Bug, device: CrashOptions, promise: Promise, script: &str) -> String {
    let toy = Toy { bug, commit_every: 2 };
    let mut parts = script.split("|");
    let setup = ops::parse(parts.next().unwrap_or_default()).expect("operations");
    let body = ops::parse(parts.next().unwrap_or_default()).expect("operations");
    let cuts = PowerCuts::new(&toy, device.clone(), promise, Replay::all("seekless", "a::test"));
    let report = cuts.run(&setup, &body).expect_err("a wrong toy");
    let command = report.split_once("run again:\n").expect("a command").1;
    let lookup = |name: &str| {
        let rest = command.split_once(&format!("{name}="))?.1;
        let (end, rest) = rest.strip_prefix('\'').map_or((' ', rest), |rest| ('\'', rest));
        Some(rest.split(end).next()?.to_string())
    };
    let replay = Replay::read("seekless", "a::test", lookup).expect("what was printed");
    assert!(replay.ops.as_ref().is_some_and(|ops| ops.len() <= body.len()), "{report}");
    let again = PowerCuts::new(&toy, device, promise, replay).run(&setup, &body).expect_err("the same again");
    let first_line = |report: &str| report.lines().next().unwrap_or_default().to_string();
    assert_eq!(first_line(&again), first_line(&report));
    report
}

const BUSY: &str = "create /a 644; write /a 0+9000 #1; sync | write /a 0+9000 #2; create /b 600; fsync /a; rename /b /c; \
                    fsyncdir /; append /c 3000 #3; fsync /c; idle 50; unlink /a; fsyncdir /";

#[test]
fn finds_an_early_acknowledgement() {
    finds(Bug::AckBeforeFlush, CrashOptions::volatile(BYTES), Promise::PER_OPERATION, BUSY);
}

#[test]
fn finds_torn_bodies() {
    finds(Bug::TornBodyAccepted, CrashOptions::volatile(BYTES), Promise::PER_OPERATION, BUSY);
}

#[test]
fn finds_overwriting_in_place() {
    finds(Bug::OneSlot, CrashOptions::write_through(BYTES), Promise::PER_OPERATION, BUSY);
}

#[test]
fn finds_a_rename_in_two_steps() {
    let script = "create /a 644; create /b 600 | rename /a /b";
    finds(Bug::RenameInTwoSteps, CrashOptions::volatile(BYTES), Promise::PER_OPERATION, script);
}

#[test]
fn finds_idle_fsyncs() {
    finds(Bug::FsyncDoesNothing, CrashOptions::volatile(BYTES), Promise::PER_OPERATION, BUSY);
    finds(
        Bug::FsyncDirDoesNothing,
        CrashOptions::volatile(BYTES),
        Promise::PER_OPERATION,
        "| create /x 644; fsyncdir /",
    );
}

#[test]
fn finds_a_dirty_flag_cleared_late() {
    // The third change comes while the commit that the second started is under way.
    let script = "| create /a 644; create /b 644; idle 1; create /c 644; fsyncdir /; sync";
    let slow = CrashOptions { latency: Nanos::from_millis(2)..=Nanos::from_millis(3), ..CrashOptions::volatile(BYTES) };
    finds(Bug::DirtyFlagClearedLate, slow, Promise::PER_OPERATION, script);
}

#[test]
fn finds_sizes_before_data() {
    let script = "create /a 644 | write /a 0+5000 #3; write /a 5000+5000 #6; idle 50";
    finds(Bug::SizeBeforeData, CrashOptions::volatile(BYTES), Promise::PER_OPERATION, script);
}

/// Out-of-order commits break the stronger promise and keep the weaker one.
#[test]
fn tells_the_strengths_apart() {
    let script = "mkdir /late 755 | create /late/x 644; create /y 644; idle 50; sync";
    let toy = Toy { bug: Bug::OutOfOrder, commit_every: 2 };
    finds(Bug::OutOfOrder, CrashOptions::volatile(BYTES), Promise::NAMESPACE_PREFIX, script);
    let (setup, body) = script.split_once('|').expect("two parts");
    let (setup, body) = (ops::parse(setup).expect("operations"), ops::parse(body).expect("operations"));
    let cuts = PowerCuts::new(&toy, CrashOptions::volatile(BYTES), Promise::PER_OPERATION, here("tells"));
    or_panic(cuts.run(&setup, &body));
}

#[test]
fn finds_recovery_that_overwrites() {
    let report = finds(Bug::RecoveryOverwrites, CrashOptions::volatile(BYTES), Promise::PER_OPERATION, BUSY);
    assert!(report.contains("after recovery from cut") && report.contains("the first cut was"), "{report}");
}

#[test]
fn finds_lost_attributes_and_links() {
    let script = "| create /a 644; setxattr /a user.a 5 #1; link /a /b; sync";
    finds(Bug::XattrsNotStored, CrashOptions::volatile(BYTES), Promise::PER_OPERATION, script);
    finds(Bug::HardLinksSplit, CrashOptions::volatile(BYTES), Promise::PER_OPERATION, script);
}

/// The closure form: an old file or the new one, never none, and the body can be run again.
#[test]
fn programs() {
    let run = |bug| {
        let toy = Toy { bug, commit_every: 2 };
        let cuts = PowerCuts::new(&toy, CrashOptions::volatile(BYTES), Promise::PER_OPERATION, here("programs"));
        PowerCuts { effort: Effort::THOROUGH, ..cuts }.run_program(
            async |fs| fs.write_file(b"/b", b"old").await,
            async |fs| {
                fs.write_file(b"/a", b"new").await?;
                fs.fsync_path(b"/a").await?;
                fs.rename(b"/a", b"/b", RenameMode::Replace).await?;
                fs.fsync_dir(b"/").await
            },
            async |fs, done| match &fs.read_file(b"/b").await {
                Ok(content) if done => Ok(content == b"new"),
                Ok(content) => Ok(content == b"old" || content == b"new"),
                Err(FsError::NotFound) => Ok(false),
                Err(error) => Err(error.clone()),
            },
        )
    };
    let report = or_panic(run(Bug::None));
    assert!(report.states > 20, "{report}");
    for bug in [Bug::RenameInTwoSteps, Bug::AckBeforeFlush] {
        let report = run(bug).expect_err("a wrong toy");
        assert!(report.contains("something is wrong") && report.contains("SEEKLESS_CUT="), "{report}");
    }
}
