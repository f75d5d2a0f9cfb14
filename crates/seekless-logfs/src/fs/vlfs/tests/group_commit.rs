//! Aim: fsyncs that come together share their commits, and a caller that goes away takes nothing from the others. Method: writers
//! on a modelled drive, in virtual time, which is exact.

use super::*;
use crate::fs::logfs::tests::{dropped_callers, speed_up};

#[test]
fn several_writers_are_faster_than_one() {
    let faster = [2, 4, 8].map(|writers| speed_up(&Small::default(), writers));
    println!("{faster:?}");
    assert!(faster[0] > 1.3 && faster[1] > 1.8 && faster[2] > 2.0, "{faster:?}");
}

#[test]
fn callers_that_go_away_hold_up_no_other() {
    dropped_callers(&Small::default());
}
