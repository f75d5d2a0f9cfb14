//! The watchdog: notices that the engine's one thread is stuck in a task, so that no request is answered.
//!
//! It cannot end such a task, and killing the daemon would lose data that is not durable. It logs the problem once,
//! with the name of the task, and logs when the engine continues.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use seekless::rt::Pulse;

/// A turn takes microseconds; the longest, which assemble a large transaction, a second on a slow machine.
const PATIENCE: Duration = Duration::from_secs(10);

/// A thread that watches an engine's pulse until it is dropped.
pub struct Watchdog {
    shared: Arc<(Mutex<Wanted>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

/// What its thread is to do.
#[derive(Default)]
struct Wanted {
    end: bool,
    leave_directory: bool,
}

/// Observations of a watchdog.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Sign {
    /// A turn does not end; its task, and its minimum duration so far.
    Stuck(String, Duration),
    /// It has ended.
    GoesOn,
}

impl Watchdog {
    /// Watches, and writes to the log.
    pub fn start(pulse: Arc<Pulse>) -> Watchdog {
        Watchdog::with(pulse, PATIENCE, |sign| match sign {
            Sign::Stuck(name, duration) => log::error!(
                "the engine has been busy with one step for {} s and answers nothing: {name}. This is a bug; please \
                 report it",
                duration.as_secs()
            ),
            Sign::GoesOn => log::warn!("the engine continues"),
        })
    }

    pub(super) fn with(pulse: Arc<Pulse>, patience: Duration, say: impl Fn(Sign) + Send + 'static) -> Watchdog {
        let shared = Arc::new((Mutex::new(Wanted::default()), Condvar::new()));
        let watched = shared.clone();
        let thread = std::thread::Builder::new().name("seekless-watch".into()).spawn(move || {
            let (wanted, changed) = &*watched;
            // The last turn seen, since when, and whether that has been reported.
            let mut seen: Option<(u64, Instant, bool)> = None;
            let mut guard = wanted.lock().unwrap_or_else(PoisonError::into_inner);
            while !guard.end {
                if std::mem::take(&mut guard.leave_directory) {
                    let _ = rustix::process::chdir("/");
                }
                guard = changed.wait_timeout(guard, patience / 4).unwrap_or_else(PoisonError::into_inner).0;
                let turn = pulse.turn();
                seen = match (turn, seen) {
                    (Some((turn, name)), Some((before, since, said))) if turn == before => {
                        let stuck = since.elapsed() >= patience;
                        if stuck && !said {
                            say(Sign::Stuck(name, since.elapsed()));
                        }
                        Some((turn, since, said || stuck))
                    }
                    (turn, before) => {
                        if before.is_some_and(|(_, _, said)| said) {
                            say(Sign::GoesOn);
                        }
                        turn.map(|(turn, _)| (turn, Instant::now(), false))
                    }
                };
            }
        });
        // The engine works without it, too.
        Watchdog { shared, thread: thread.ok() }
    }

    /// Has its thread go to the root directory, and with it all threads that share its working directory. Where the engine thread
    /// has one of its own, those are the threads that were there before, and workers of the kernel, which cannot do so themselves.
    pub fn leave_directory(&self) {
        self.want(|wanted| wanted.leave_directory = true);
    }

    fn want(&self, what: impl FnOnce(&mut Wanted)) {
        let (wanted, changed) = &*self.shared;
        what(&mut wanted.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.want(|wanted| wanted.end = true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
