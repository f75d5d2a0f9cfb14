//! Many looks that may each wait, in few threads: as many as there are processors, and more only while those wait.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// When no look has ended for so long, all threads wait, and as many others are started: each look takes microseconds unless it waits for a
/// daemon. By doubling, hundreds that wait have all begun within a second.
const STALLED: Duration = Duration::from_millis(50);

/// The results of `look` for each number below `count`, in order. Looks that do not end delay no others, only the return. Where no
/// thread can be started, all is done in this one. The result of a look that panics is the default one.
pub(super) fn side_by_side<T: Default + Send>(count: usize, look: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (next, (sender, receiver)) = (AtomicUsize::new(0), mpsc::channel());
    let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|&number| number < count);
    let work = |sender: mpsc::Sender<(usize, T)>| {
        while let Some(number) = take() {
            let result = catch_unwind(AssertUnwindSafe(|| look(number))).unwrap_or_default();
            let _ = sender.send((number, result)); // The receiver lives as long as the threads.
        }
    };
    let mut results: Vec<(usize, T)> = Vec::with_capacity(count);
    thread::scope(|scope| {
        let mut threads = 0;
        let mut add = |wanted: usize| {
            for _ in 0..wanted {
                let sender = sender.clone();
                if thread::Builder::new().spawn_scoped(scope, || work(sender)).is_err() {
                    break;
                }
                threads += 1;
            }
            threads
        };
        let first = thread::available_parallelism().map_or(1, NonZero::get).min(count);
        let mut running = add(first);
        if running == 0 {
            work(sender.clone());
        }
        while results.len() < count {
            match receiver.recv_timeout(STALLED) {
                Ok(result) => results.push(result),
                Err(RecvTimeoutError::Timeout) => {
                    let not_begun = count.saturating_sub(next.load(Ordering::Relaxed));
                    running = add(running.min(not_begun));
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
    });
    results.sort_by_key(|&(number, _)| number);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::sync::Mutex;
    use std::time::Instant;

    use super::*;

    /// Aim: each look is made once, and the results are in order. Method: numbers of looks around the number of processors, and hundreds.
    #[test]
    fn every_look_is_made() {
        for count in [0, 1, 2, 3, 400] {
            let threads = Mutex::new(HashSet::new());
            let squares = side_by_side(count, |number| {
                threads.lock().unwrap().insert(thread::current().id());
                number * number
            });
            assert_eq!(squares, (0..count).map(|number| number * number).collect::<Vec<_>>());
            // Twice as many after each stall, of which a busy machine may have some.
            assert!(threads.lock().unwrap().len() <= count.min(200), "{:?}", threads.lock().unwrap());
        }
    }

    /// A look that panics leaves the others as they are.
    #[test]
    fn a_look_that_panics_delays_nothing() {
        let results = side_by_side(20, |number| if number % 7 == 3 { panic!("on purpose") } else { number });
        assert_eq!(results, (0..20).map(|number| if number % 7 == 3 { 0 } else { number }).collect::<Vec<_>>());
    }

    /// Aim: looks that wait do not keep others from being made. Method: the first hundred wait until all others have ended.
    #[test]
    fn looks_that_wait_delay_no_others() {
        const WAITING: usize = 100;
        let ended = AtomicUsize::new(0);
        let begun = Instant::now();
        let results = side_by_side(300, |number| {
            if number >= WAITING {
                ended.fetch_add(1, Ordering::SeqCst);
                return true;
            }
            while ended.load(Ordering::SeqCst) < 300 - WAITING {
                if begun.elapsed() > Duration::from_secs(20) {
                    return false;
                }
                thread::sleep(Duration::from_millis(5));
            }
            true
        });
        assert!(results.len() == 300 && results.into_iter().all(|result| result), "the others were not made");
    }
}
