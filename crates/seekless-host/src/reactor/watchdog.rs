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
    shared: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
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
            Sign::GoesOn => log::warn!("the engine goes on"),
        })
    }

    pub(super) fn with(pulse: Arc<Pulse>, patience: Duration, say: impl Fn(Sign) + Send + 'static) -> Watchdog {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let watched = shared.clone();
        let thread = std::thread::Builder::new().name("seekless-watch".into()).spawn(move || {
            let (ended, changed) = &*watched;
            // The last turn seen, since when, and whether that has been reported.
            let mut seen: Option<(u64, Instant, bool)> = None;
            let mut guard = ended.lock().unwrap_or_else(PoisonError::into_inner);
            while !*guard {
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
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let (ended, changed) = &*self.shared;
        *ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
