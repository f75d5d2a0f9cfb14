//! Aim: VLFS keeps its promises through power cuts: all names are those of one moment, each file's content is that of
//! one moment, nothing synced is lost. Method: the crash explorer, on devices with different guarantees.

use super::*;
use crate::testing::volumes::clients;
use crate::testing::volumes::cuts::Cuts;

const CUTS: Cuts = Cuts { module: "fs::vlfs::tests::crash", bytes: 6 * MIB };

#[test]
fn scripts() {
    CUTS.scripts(&Small::default());
}

#[test]
fn short_sequences() {
    CUTS.short_sequences(&Small::default());
}

/// With transactions as often as the clock says.
#[test]
fn random_runs() {
    let options = Options { write_back_interval: Nanos::from_millis(2), ..Options::default() };
    CUTS.random_runs(|_| Small { options });
}

/// One volume through many power cuts, with all levels of indirect blocks.
#[test]
fn a_long_life() {
    let options = Options { write_back_interval: Nanos::from_millis(2), ..Options::default() };
    let test = "fs::vlfs::tests::crash::a_long_life";
    volumes::life::long_life(test, CUTS.bytes + 4 * MIB, 16, 3, |_| Small { options });
}

/// With timers that meet the programs, and without.
#[test]
fn several_clients() {
    CUTS.several_clients(|seed| {
        let write_back_interval =
            if seed % 2 == 1 { Nanos::from_millis(1) } else { Options::default().write_back_interval };
        Small { options: Options { write_back_interval, ..Options::default() } }
    });
}

#[test]
fn two_close_at_once() {
    clients::two_close_at_once(&Small::default(), CUTS.bytes);
}
