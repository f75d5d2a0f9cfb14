//! Aim: VLFS keeps its promises through power cuts: all names are those of one moment, each file's content is that of
//! one moment, nothing synced is lost. Method: the crash explorer, on devices with different guarantees.

use super::*;
use crate::testing::tests::volumes::cuts::Cuts;

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

#[test]
fn several_clients() {
    CUTS.several_clients(&Small::default());
}
