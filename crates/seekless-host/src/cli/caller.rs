//! The caller of a long command: it sees what is under way, and may end it.
//!
//! There are two: the [`Terminal`] of the program, and a program in another language ([`calls`](super::calls)).

use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

use indicatif::ProgressBar;

use super::output;
use crate::reactor::Signals;

/// How far a command is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step<'a> {
    /// What is done now: a phase, a policy, a point.
    pub what: &'a str,
    pub done: u64,
    /// `None` for a stream without a known end.
    pub total: Option<u64>,
    /// How far and how fast in words, where its speed is not that of this program: simulated files a second.
    pub rate: Option<&'a str>,
}

/// What has called a command. All calls are on the thread that called it.
pub trait Caller {
    /// Called often. With `Break`, the command ends as soon as it can.
    fn at(&self, step: Step<'_>) -> ControlFlow<()>;

    /// What the command reports besides its result.
    fn note(&self, text: &str);

    /// What is under way has not ended in time, and leaves nothing behind. True when the whole process may end instead.
    fn may_exit(&self) -> bool {
        false
    }
}

/// Asks the caller whether to go on waiting for another run that writes to the same folder of results.
pub(super) fn waits(caller: &dyn Caller) -> impl Fn() -> ControlFlow<()> {
    || caller.at(Step { what: "waiting for another run, which is writing", done: 0, total: None, rate: None })
}

/// A progress bar, and signals that end the command.
pub(super) struct Terminal<'a> {
    bar: ProgressBar,
    signals: Option<&'a Signals>,
    /// The bar begins again with each step of another name or total.
    of_phases: bool,
    shown: RefCell<String>,
    ended_by: Cell<Option<i32>>,
}

impl<'a> Terminal<'a> {
    /// One bar for all steps.
    pub(super) fn new(bar: ProgressBar, signals: Option<&'a Signals>) -> Terminal<'a> {
        Terminal { bar, signals, of_phases: false, shown: RefCell::default(), ended_by: Cell::new(None) }
    }

    /// A bar for each step.
    pub(super) fn of_phases(bar: ProgressBar, signals: Option<&'a Signals>) -> Terminal<'a> {
        Terminal { of_phases: true, ..Terminal::new(bar, signals) }
    }

    /// The signal that has ended the command.
    pub(super) fn ended_by(&self) -> Option<i32> {
        self.ended_by.get()
    }

    pub(super) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

impl Caller for Terminal<'_> {
    fn at(&self, step: Step<'_>) -> ControlFlow<()> {
        if let Some(signal) = self.signals.and_then(Signals::pending) {
            self.ended_by.set(Some(signal));
            return ControlFlow::Break(());
        }
        let Step { what, done, total, rate } = step;
        let total = total.or(self.bar.length());
        if self.of_phases && (*self.shown.borrow() != what || self.bar.length() != total) {
            self.bar.reset();
        }
        if let Some(total) = total.filter(|total| self.bar.length() != Some(*total)) {
            self.bar.set_length(total);
        }
        if *self.shown.borrow() != what {
            self.bar.set_message(what.to_owned());
            self.shown.replace(what.to_owned());
        }
        if let Some(rate) = rate {
            self.bar.set_prefix(rate.to_owned());
        }
        self.bar.set_position(done);
        ControlFlow::Continue(())
    }

    fn note(&self, text: &str) {
        self.bar.suspend(|| output::note(text));
    }

    fn may_exit(&self) -> bool {
        self.clear();
        true
    }
}
