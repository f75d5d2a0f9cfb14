//! Aim: LFS keeps its promises through power cuts: all names are those of one moment, each file's content is that of
//! one moment, nothing synced is lost. Method: the crash explorer, on devices with different guarantees.

use super::*;
use crate::testing::volumes::clients;
use crate::testing::volumes::cuts::Cuts;

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

/// One volume through many power cuts, with all levels of indirect blocks.
#[test]
fn a_long_life() {
    volumes::life::long_life("fs::lfs::tests::crash::a_long_life", CUTS.bytes + 3 * MIB, 16, 3, |seed| Small {
        options: Options {
            checkpoint_interval: Nanos::from_millis(if seed % 2 == 0 { 5 } else { 60 }),
            write_back_interval: Nanos::from_millis(2),
            indirect_in_log: seed % 3 == 2,
            ..Options::default()
        },
    });
}

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
