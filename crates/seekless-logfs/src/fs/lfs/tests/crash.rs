//! Aim: LFS keeps its promises through power cuts: all names are those of one moment, each file's content is that of
//! one moment, nothing synced is lost. Method: the crash explorer, on devices with different guarantees.

use super::*;
use crate::testing::volumes::clients;
use crate::testing::volumes::cuts::Cuts;
use crate::testing::volumes::life::Lives;

const CUTS: Cuts = Cuts { module: "fs::lfs::tests::crash", bytes: 9 * MIB };

#[test]
fn scripts() {
    CUTS.scripts(&Small::default());
}

#[test]
fn short_sequences() {
    CUTS.short_sequences(&Small::default());
}

/// With checkpoints as often as the clock says.
#[test]
fn random_runs() {
    CUTS.random_runs(|seed| Small {
        options: Options {
            checkpoint_interval: Nanos::from_millis(5),
            write_back_interval: Nanos::from_millis(2),
            indirect_in_log: seed % 3 == 2,
            ..Options::default()
        },
    });
}

/// One volume through many power cuts, on all paths of the code that a healthy volume can take.
#[test]
fn a_long_life() {
    let lives = Lives {
        test: "fs::lfs::tests::crash::a_long_life",
        bytes: CUTS.bytes + 3 * MIB,
        rounds: 16,
        seeds: 3,
        points: POINTS,
    };
    lives.live(|seed| Small {
        options: Options {
            checkpoint_interval: Nanos::from_millis(if seed % 2 == 0 { 5 } else { 60 }),
            write_back_interval: Nanos::from_millis(2),
            indirect_in_log: seed % 3 == 2,
            ..Options::default()
        },
    });
}

/// What a long life comes to.
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
    "lfs: the cleaner moves a block",
    "lfs: the cleaner moves an inode",
    "lfs: the cleaner moves attributes",
    "lfs: the end of a file is replayed",
    "lfs: the log ends within a transaction",
    "lfs: the log goes on at the start of the volume",
    "lfs: the log holds a newer checkpoint than its slots",
    "lfs: the log reuses a segment",
    "logfs: a leaf of a directory is split",
    "logfs: an empty indirect block is dropped",
    "logfs: an indirect block of level 1 is written",
    "logfs: an indirect block of level 2 is written",
    "logfs: an indirect block of level 3 is written",
];

/// With timers that meet the programs, and without.
#[test]
fn several_clients() {
    CUTS.several_clients(|seed| {
        let mut options = Options { indirect_in_log: seed % 4 == 3, ..Options::default() };
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
