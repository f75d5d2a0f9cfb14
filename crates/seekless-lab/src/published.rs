//! What papers say about runs like ours.

use seekless::rt::HostProfile;

use crate::measured::{Bound, Clock, Comparison, Measured, Run};
use crate::report::{bound_text, number_text, percent_text};
use crate::workload::phases::{CREATE, DELETE, READ};

/// Published rate of [se95 §3] for creating or deleting small files on FFS: each takes two synchronous disk accesses,
/// of which the disk does 67 in a second [se95 Table 1].
pub const FFS_FILES_PER_SECOND: f64 = 67.0 / 2.0;

/// The gain of LFS over it: an order of magnitude, for files of 1 KB or less [se95 §3] and [ro92 Fig. 8].
pub const LFS_OVER_FFS: f64 = 10.0;

/// Share of the time during which the disk was busy while [ro92 §5.1] created small files.
pub const RO92_CREATE_DISK_BUSY: f64 = 0.17;

fn is_of_the_papers(run: &Run) -> bool {
    let is_lfs = run.contestant.split([':', ' ']).next() == Some("lfs");
    is_lfs && run.clock == Clock::Virtual && run.profile == Some(HostProfile::SPARCSTATION2.name)
}

/// Published statements about the small-file benchmark at the papers' size, for a comparable run: `lfs` on a modelled
/// disk, with the processor of \[se95\].
pub fn small_files(run: &Run) -> Vec<Comparison> {
    if !is_of_the_papers(run) {
        return Vec::new();
    }
    let mut comparisons = Vec::new();
    let expected = FFS_FILES_PER_SECOND * LFS_OVER_FFS;
    for (phase, calibrated) in [(CREATE, true), (DELETE, false)] {
        let Some(found) = run.phase(phase).and_then(Measured::per_second) else { continue };
        comparisons.push(Comparison {
            contestant: run.contestant.clone(),
            phase: phase.to_owned(),
            quantity: "files/s",
            source: "[se95 §3, Table 1]",
            published: format!("about {expected:.0}"),
            measured: number_text(found),
            deviation: Some(found / expected - 1.0),
            calibrated,
            remark: "ten times FFS, which does two of its disk's 67 accesses a second for each file",
        });
    }
    let bounds = [
        (CREATE, Bound::Processor, "[ro92 §5.1]", "the processor was saturated"),
        (READ, Bound::Disk, "[se95 §3]", "LFS and FFS read small files at comparable speed"),
    ];
    for (phase, expected, source, remark) in bounds {
        let Some(found) = run.phase(phase) else { continue };
        comparisons.push(Comparison {
            contestant: run.contestant.clone(),
            phase: phase.to_owned(),
            quantity: "bound by",
            source,
            published: bound_text(expected).to_owned(),
            measured: bound_text(found.bound()).to_owned(),
            deviation: None,
            calibrated: false,
            remark,
        });
    }
    if let Some(found) = run.phase(CREATE).and_then(Measured::disk_busy) {
        comparisons.push(Comparison {
            contestant: run.contestant.clone(),
            phase: CREATE.to_owned(),
            quantity: "disk busy",
            source: "[ro92 §5.1]",
            published: percent_text(RO92_CREATE_DISK_BUSY),
            measured: percent_text(found),
            deviation: None,
            calibrated: false,
            remark: "on a slower machine with a slower disk (Sun-4/260, Wren IV)",
        });
    }
    let place = |comparison: &Comparison| run.phases.iter().position(|measured| measured.phase == comparison.phase);
    comparisons.sort_by_key(place);
    comparisons
}
