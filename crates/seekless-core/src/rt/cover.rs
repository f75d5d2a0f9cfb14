//! Points that tests must pass: production code names each, and a test of its room fails when a run has not been there.
//!
//! A long random run proves little about a path that it never takes. So the code of a rare path says `cover("...")`, and
//! the room's test lists the points that its run must pass, with [`covered`]. Points are counted for each thread, which is
//! for each test, and only where debug assertions are on.

use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    static PASSED: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Counts that the run passes `point`, whose name begins with its room.
pub fn cover(point: &'static str) {
    if cfg!(debug_assertions) {
        PASSED.with_borrow_mut(|passed| *passed.entry(point).or_insert(0) += 1);
    }
}

/// How often this thread has passed each point since it was last asked.
pub fn covered() -> BTreeMap<&'static str, u64> {
    PASSED.take()
}
