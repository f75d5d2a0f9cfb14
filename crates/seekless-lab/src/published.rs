//! What papers say about runs like ours.

use seekless::rt::HostProfile;

use crate::measured::{Bound, Clock, Comparison, Measured, Run};
use crate::report::{bound_text, number_text, percent_text};
use crate::workload::phases::{CREATE, DELETE, READ};

/// Rate of creating or deleting small files on FFS, derived: each takes two synchronous disk accesses [se95 §1.1],
/// of which the disk does 67 in a second [se95 Table 2]. The paper prints no rate.
pub const FFS_FILES_PER_SECOND: f64 = 67.0 / 2.0;

/// The gain of LFS over it: an order of magnitude, for files of 1 KB or less [se95 §2] and [ro92 Fig. 8].
pub const LFS_OVER_FFS: f64 = 10.0;

/// Share of the time during which the disk was busy while [ro92 Fig. 8] created small files.
pub const RO92_CREATE_DISK_BUSY: f64 = 0.17;

/// Shares of the processor that BSD-LFS used while it created and deleted small files [se95 §2].
pub const SE95_PROCESSOR_BUSY: [(&str, f64); 2] = [(CREATE, 0.64), (DELETE, 0.73)];

/// The same of FFS. The profile of the machine is calibrated on the first.
pub const SE95_PROCESSOR_BUSY_OF_FFS: [&str; 2] = [CREATE, DELETE];

/// Published statements about the small-file benchmark at the papers' size, for comparable runs: `lfs` and `ffs` on a
/// modelled disk, with the processor of \[se95\].
pub fn small_files(run: &Run) -> Vec<Comparison> {
    if run.clock != Clock::Virtual || run.profile != Some(HostProfile::SPARCSTATION2.name) {
        return Vec::new();
    }
    let words: Vec<&str> = run.contestant.split(" / ").collect();
    let name = |word: &str| word.split(':').next().unwrap_or_default().to_owned();
    // Nothing else than one disk: an array, flash or memory is no storage of theirs.
    let [fs, disk] = words[..] else { return Vec::new() };
    if name(disk) != "disk" {
        return Vec::new();
    }
    match name(fs).as_str() {
        "lfs" => small_files_of_lfs(run),
        // The paper's FFS writes metadata in order.
        "ffs" if !fs.contains("metadata=") => small_files_of_ffs(run),
        _ => Vec::new(),
    }
}

fn small_files_of_ffs(run: &Run) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for phase in SE95_PROCESSOR_BUSY_OF_FFS {
        let Some(found) = run.phase(phase).and_then(Measured::processor_busy) else { continue };
        comparisons.push(Comparison {
            contestant: run.contestant.clone(),
            phase: phase.to_owned(),
            quantity: "processor busy",
            source: "[se95 §2]",
            published: "5 to 6 %".to_owned(),
            measured: percent_text(found),
            deviation: None,
            calibrated: phase == CREATE,
            remark: "the machine's profile is calibrated on creates of ffs:profile=m8r2, which write two blocks in order",
        });
    }
    comparisons
}

fn small_files_of_lfs(run: &Run) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    let expected = FFS_FILES_PER_SECOND * LFS_OVER_FFS;
    for phase in [CREATE, DELETE] {
        let Some(found) = run.phase(phase).and_then(Measured::per_second) else { continue };
        comparisons.push(Comparison {
            contestant: run.contestant.clone(),
            phase: phase.to_owned(),
            quantity: "files/s",
            source: "[se95 §1.1, §2, Table 2]",
            published: format!("derived: about {expected:.0}"),
            measured: number_text(found),
            deviation: Some(found / expected - 1.0),
            calibrated: false,
            remark: "ten times FFS, which does two of its disk's 67 accesses a second for each file",
        });
    }
    let bounds = [
        (CREATE, Bound::Processor, "[ro92 Fig. 8]", "the processor was saturated, on a slower machine (Sun-4/260)"),
        (READ, Bound::Disk, "[se95 §2]", "LFS and FFS read small files at comparable speed"),
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
    for (phase, busy) in SE95_PROCESSOR_BUSY {
        let Some(found) = run.phase(phase).and_then(Measured::processor_busy) else { continue };
        comparisons.push(Comparison {
            contestant: run.contestant.clone(),
            phase: phase.to_owned(),
            quantity: "processor busy",
            source: "[se95 §2]",
            published: percent_text(busy),
            measured: percent_text(found),
            deviation: None,
            calibrated: false,
            remark: "the paper's LFS waits for its disk as well, ours writes segments behind the programs",
        });
    }
    if let Some(found) = run.phase(CREATE).and_then(Measured::disk_busy) {
        comparisons.push(Comparison {
            contestant: run.contestant.clone(),
            phase: CREATE.to_owned(),
            quantity: "disk busy",
            source: "[ro92 Fig. 8]",
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::{Coldness, Usage};
    use seekless::units::Nanos;

    fn run(contestant: &str) -> Run {
        let usage = Usage { processor: Some(Nanos(1)), disk: Some(Nanos(1)), ..Usage::default() };
        let phase = |phase: &str| Measured {
            phase: phase.to_owned(),
            file_bytes: None,
            unit: crate::measured::Unit::Files,
            count: 1,
            bytes: 1,
            elapsed: Nanos(4),
            sync: Nanos(1),
            usage,
        };
        Run {
            contestant: contestant.to_owned(),
            parts: Vec::new(),
            clock: Clock::Virtual,
            profile: Some(HostProfile::SPARCSTATION2.name),
            phases: [CREATE, READ, DELETE].map(phase).into(),
            coldness: Coldness::Cold,
            counters: Vec::new(),
        }
    }

    /// Aim: a number that no paper prints says so itself, wherever it is shown. Method: the rate of small files, which is calculated.
    #[test]
    fn a_derived_number_is_called_derived() {
        let rates = small_files(&run("lfs / disk:hp97560"));
        let rates: Vec<_> = rates.iter().filter(|comparison| comparison.quantity == "files/s").collect();
        assert_eq!(rates.len(), 2);
        assert!(rates.iter().all(|rate| rate.published == "derived: about 335"), "{rates:?}");
    }

    /// Figures of one old disk are set beside runs on one such disk only.
    #[test]
    fn figures_are_for_a_disk() {
        for paper in [
            "lfs / disk:hp97560",
            "lfs:cleaner=greedy / disk",
            "ffs / disk:hp97560,size=64MiB",
            "ffs:profile=m8r2 / disk:x=metadata=",
        ] {
            assert!(!small_files(&run(paper)).is_empty(), "{paper}");
        }
        for other in [
            "lfs / ssd:nvme-a",
            "lfs / raid0:n=4 / disk:hp97560",
            "lfs / memory:1GiB",
            "lfs",
            "ffs:metadata=soft / disk",
            "ffs / ssd:nvme-a",
            "ffs / diskette",
            "ffs / cache / disk",
        ] {
            assert_eq!(small_files(&run(other)), [], "{other}");
        }
    }
}
