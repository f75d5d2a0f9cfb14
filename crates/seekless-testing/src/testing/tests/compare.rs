//! Aim: comparison with the model finds every difference that a program could see. Method: the correct toy passes, also
//! with remounts and on every kind of device; each toy with a bug fails, with a short script.

use super::replay;
use super::toy::{Bug, Toy};
use crate::device::crash::CrashOptions;
use crate::testing::generate::{Generator, OpMix, Space};
use crate::testing::ops::parse;
use crate::testing::{CompareReport, Comparison, FsUnderTest, Op, Replay, SubjectComparison};

const BYTES: u64 = 16 << 20;

fn compare(
    subject: &dyn FsUnderTest,
    test: &str,
    device: CrashOptions,
    seed: u64,
    ops: &[Op],
) -> Result<CompareReport, String> {
    let replay = replay(&format!("testing::tests::compare::{test}"));
    let comparison = Comparison { birth_times: false, ..Comparison::default() };
    SubjectComparison { subject, device, comparison, remount_every: 150, seed, replay }.run(ops)
}

#[test]
fn the_right_toy_is_right() {
    for (seed, device) in
        [CrashOptions::volatile(BYTES), CrashOptions::write_through(BYTES), CrashOptions::host_file(BYTES)]
            .into_iter()
            .enumerate()
    {
        let ops: Vec<Op> = Generator::new(seed as u64, Space::small(), OpMix::CURIOUS).take(600).collect();
        match compare(&Toy::right(), "the_right_toy_is_right", device, seed as u64, &ops) {
            Ok(report) => assert!(report.done > 150 && report.failed > 20 && report.remounts == 4, "{report:?}"),
            Err(report) => panic!("{report}"),
        }
    }
}

/// The bug is found with one of the first seeds.
fn finds(bug: Bug, said: &str) {
    const SEEDS: u64 = 10;
    let try_seed = |seed| {
        let ops: Vec<Op> = Generator::new(seed, Space::small(), OpMix::CURIOUS).take(1_000).collect();
        let report = compare(&Toy::wrong(bug), "found", CrashOptions::volatile(BYTES), seed, &ops).err()?;
        Some((seed, report))
    };
    let (seed, report) = (1..=SEEDS).find_map(try_seed).expect("a wrong toy is found");
    assert!(report.contains(said), "{bug:?}: {report}");
    // The report holds a script that is short and fails again.
    let script =
        report.split_once("after:\n").and_then(|(_, rest)| rest.split_once("\nrun again:")).expect("a script").0;
    let script = parse(script).expect("operations");
    assert!(script.len() <= 12, "{bug:?}: {report}");
    compare(&Toy::wrong(bug), "found", CrashOptions::volatile(BYTES), seed, &script)
        .expect_err("the script fails again");
}

#[test]
fn found_lost_attributes() {
    finds(Bug::XattrsNotStored, ": attribute ");
}

#[test]
fn found_split_links() {
    finds(Bug::HardLinksSplit, "two files here, and one there");
}

#[test]
fn found_stale_bytes() {
    finds(Bug::StaleBytesAfterTruncate, "content");
}

#[test]
fn found_kept_ctime() {
    finds(Bug::LinkKeepsCtime, "ctime");
}

#[test]
fn found_rename_that_unlinks_first() {
    // Renaming a file to another name of itself must change nothing.
    finds(Bug::RenameInTwoSteps, "rename");
}

#[test]
fn found_overlapping_requests() {
    finds(Bug::OverlappingWrites, "overlaps");
}

/// A full file system is not a difference, but a partial effect of a refused operation is.
#[test]
fn found_half_done_operations() {
    let run = |bug| {
        let space = Space { file_bytes_max: 600_000, ..Space::small() };
        let ops: Vec<Op> = Generator::new(7, space, OpMix::CURIOUS).take(400).collect();
        let comparison = Comparison { birth_times: false, may_be_full: true, ..Comparison::default() };
        let (subject, device, replay) =
            (Toy::wrong(bug), CrashOptions::volatile(1 << 20), Replay::all("seekless", "a::test"));
        SubjectComparison { subject: &subject, device, comparison, remount_every: 0, seed: 7, replay }.run(&ops)
    };
    match run(Bug::None) {
        Ok(report) => assert!(report.full > 5, "{report:?}"),
        Err(report) => panic!("{report}"),
    }
    let report = run(Bug::NoSpaceHalfDone).expect_err("a wrong toy");
    assert!(report.contains("size") || report.contains("content"), "{report}");
}
