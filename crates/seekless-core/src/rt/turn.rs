//! Turns: a turn is one poll of a task. Detects tasks that run without ever waiting.
//!
//! In virtual time such a task is a bug that would hang a test, so it ends in a panic that names the task. It has two
//! forms: one turn that calls the runtime repeatedly and never returns, and endless turns while the clock does not
//! move. In real time the mount must keep running, and another thread watches the [`Pulse`].
//!
//! Both limits count from the last [`made_progress`](super::Rt::made_progress): a driver of a million operations on a
//! device that answers at once never waits either, and reports progress after each operation.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::units::Nanos;

/// Limit of runtime calls in one turn without progress, in virtual time. An operation makes a few dozen. Builds with assertions, those of
/// tests, have a smaller one.
const CALLS_MAX: u64 = if cfg!(debug_assertions) { 500_000 } else { 50_000_000 };

/// Limit of turns without the clock moving and without progress, in virtual time.
const TURNS_MAX: u64 = if cfg!(debug_assertions) { 300_000 } else { 10_000_000 };

/// For this many turns before the limit, the tasks are counted by name.
const TURNS_COUNTED: u64 = 100_000;

/// Name of a task: where it was spawned, or what it set itself.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Name {
    Place(&'static Location<'static>),
    Label(&'static str),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Name::Place(place) => write!(f, "the task spawned at {}:{}", place.file(), place.line()),
            Name::Label(label) => f.write_str(label),
        }
    }
}

thread_local! {
    /// Calls that the current turn may still make.
    static CALLS: Cell<u64> = const { Cell::new(u64::MAX) };
    /// Its task.
    static TASK: Cell<Option<Name>> = const { Cell::new(None) };
}

/// A turn under way. Turns nest: a test's model runs on an executor of its own.
pub(super) struct Turn {
    outer: (u64, Option<Name>),
}

impl Turn {
    pub(super) fn begin(is_virtual: bool, name: Name) -> Turn {
        let calls = if is_virtual { CALLS_MAX } else { u64::MAX };
        Turn { outer: (CALLS.replace(calls), TASK.replace(Some(name))) }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let (calls, task) = self.outer;
        CALLS.set(calls);
        TASK.set(task);
    }
}

/// Notes a call of the runtime.
pub(super) fn count_call() {
    let left = CALLS.get();
    if left != u64::MAX {
        if left == 0 {
            panic_of_calls();
        }
        CALLS.set(left - 1);
    }
}

#[cold]
fn panic_of_calls() {
    CALLS.set(u64::MAX);
    let name = TASK.get().map_or_else(|| "a task".to_string(), |name| name.to_string());
    panic!("{name} has called the runtime {CALLS_MAX} times in one turn, and waits for nothing: it spins");
}

/// Lets the current turn make as many calls as a new one.
pub(super) fn renew() {
    if CALLS.get() != u64::MAX {
        CALLS.set(CALLS_MAX);
    }
}

/// Turns since the virtual clock moved, or since there was progress.
#[derive(Default)]
pub(super) struct Instant {
    now: Nanos,
    turns: u64,
    of_tasks: BTreeMap<Name, u64>,
}

impl Instant {
    /// Notes a turn.
    ///
    /// # Panics
    /// After too many turns.
    pub(super) fn count(&mut self, now: Nanos, name: Name) {
        if now != self.now {
            self.renew(now);
        }
        self.turns += 1;
        if self.turns > TURNS_MAX - TURNS_COUNTED {
            *self.of_tasks.entry(name).or_default() += 1;
        }
        if self.turns >= TURNS_MAX {
            let most = self.of_tasks.iter().max_by_key(|(_, turns)| **turns);
            let most = most.map(|(name, turns)| format!("{turns} of the last {TURNS_COUNTED} were of {name}"));
            panic!("{TURNS_MAX} turns at {} ns and the clock does not move: {}", now.0, most.unwrap_or_default());
        }
    }

    /// Counts from zero again.
    pub(super) fn renew(&mut self, now: Nanos) {
        (self.now, self.turns) = (now, 0);
        self.of_tasks.clear();
    }
}

/// What other threads may read of an executor in real time.
#[derive(Default)]
pub struct Pulse {
    turns: AtomicU64,
    /// A turn is under way.
    busy: AtomicBool,
    /// The task whose turn it is: an index into `names`.
    name: AtomicU32,
    names: Mutex<Vec<Name>>,
}

impl Pulse {
    /// The number of the current turn and its task's name; `None` while no task runs.
    pub fn turn(&self) -> Option<(u64, String)> {
        if !self.busy.load(Ordering::Acquire) {
            return None;
        }
        let turn = self.turns.load(Ordering::Acquire);
        let index = self.name.load(Ordering::Acquire) as usize;
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        Some((turn, names.get(index).map_or_else(String::new, |name| name.to_string())))
    }

    /// The index of a name, which it adds if it is new.
    pub(super) fn register(&self, name: Name) -> u32 {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let known = names.iter().position(|other| *other == name);
        let index = known.unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        index as u32
    }

    pub(super) fn begin(&self, name: u32) {
        self.name.store(name, Ordering::Release);
        self.turns.store(self.turns.load(Ordering::Relaxed) + 1, Ordering::Release);
        self.busy.store(true, Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.busy.store(false, Ordering::Release);
    }
}
