//! Points that tests must pass: production code names each, and a test of its room fails when a run has not reached it.
//!
//! A long random run proves little about a path that it never takes. So the code of a rare path calls `cover("...")`,
//! and the room's test uses [`covered`] to check the points that its run must pass. Points are counted per thread, that
//! is per test, and only with debug assertions.

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

/// How often this thread passed each point since the last call.
pub fn covered() -> BTreeMap<&'static str, u64> {
    PASSED.take()
}
