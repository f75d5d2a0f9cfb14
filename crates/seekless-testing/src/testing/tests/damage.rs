//! Aim: the damage explorer finds panics, endless loops, excess of memory and wrong answers. Method: the correct toy,
//! which checks everything it reads; then toys that are careless in one way each.

use super::replay;
use super::toy::{Bug, Toy};
use crate::device::crash::CrashOptions;
use crate::testing::generate::{Generator, OpMix, Space};
use crate::testing::{Damage, DamageTest, Op, Replay};

const BYTES: u64 = 1 << 20;

/// Peak memory of this thread while `run` runs, in bytes.
fn memory_used(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

fn damage(toy: &Toy, replay: Replay) -> DamageTest<'_> {
    DamageTest {
        subject: toy,
        device: CrashOptions::volatile(BYTES),
        // Both headers, as far as they are used.
        flip_all: vec![0..40, 4096..4136],
        flips: 100,
        losses: 60,
        splices: 150,
        data_checked: true,
        memory: Some((64 << 20, memory_used)),
        seed: 1,
        replay,
    }
}

fn ops() -> Vec<Op> {
    let space = Space { file_bytes_max: 9_000, ..Space::small() };
    Generator::new(2, space, OpMix::CRASHY).take(80).collect()
}

#[test]
fn the_right_toy_takes_damage() {
    let toy = Toy::right();
    let replay = replay("testing::tests::damage::the_right_toy_takes_damage");
    let runs_everything = replay.runs_everything();
    let report = damage(&toy, replay).run(&ops()).unwrap_or_else(|report| panic!("{report}"));
    assert!(report.refused > 0 && report.memory_max > 100_000, "{report}");
    assert!(report.cases > 1_500 && report.whole > 500 || !runs_everything, "{report}");
}

fn finds(bug: Bug, said: &str) {
    let toy = Toy::wrong(bug);
    let report = damage(&toy, Replay::all("seekless", "a::test")).run(&ops()).expect_err("a wrong toy");
    assert!(report.contains(said) && report.contains("SEEKLESS_CASE="), "{bug:?}: {report}");
    // The named case alone fails again.
    let case = report.split_once("SEEKLESS_CASE=").and_then(|(_, rest)| rest.split(' ').next()).expect("a case");
    let replay = Replay { case: Some(case.to_string()), ..Replay::all("seekless", "a::test") };
    damage(&toy, replay).run(&ops()).expect_err("the same again");
}

#[test]
fn finds_panics() {
    finds(Bug::PanicsOnDamage, "panicked: a toy that panics");
}

#[test]
fn finds_endless_loops() {
    finds(Bug::LoopsOnDamage, "no end after");
}

#[test]
fn finds_excess_of_memory() {
    finds(Bug::LengthBelieved, "bytes of memory were in use");
}

#[test]
fn finds_wrong_answers() {
    finds(Bug::NoChecksum, "never had");
}

/// Printed damages can be parsed.
#[test]
fn damages_have_names() {
    for damage in [
        Damage::Flip { byte: 4096, bit: 3 },
        Damage::Truncate { sectors: 8 },
        Damage::Zero { at: 1, sectors: 2 },
        Damage::Noise { at: 1, sectors: 2, seed: u64::MAX },
        Damage::Copy { from: 1, sectors: 2, to: 3 },
        Damage::Lose { at: 1, sectors: 2 },
    ] {
        assert_eq!(damage.to_string().parse(), Ok(damage));
    }
    assert!("flip:1.8".parse::<Damage>().is_err() && "burn:1".parse::<Damage>().is_err());
}
