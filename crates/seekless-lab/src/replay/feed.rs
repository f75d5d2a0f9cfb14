//! One trace, read once, for several replays at the same time.
//!
//! Invariants
//!   F1  Every reader gets every request, in the order of the trace, and then the end; or an error where reading failed.
//!   F2  The slowest reader is at most [`AHEAD`] batches behind, so memory does not grow with the length of the trace.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::trace::{Request, TraceError};

/// Batches that wait for a reader.
const AHEAD: usize = 4;

/// What a reader gets.
enum Message {
    Batch(Arc<Vec<Request>>),
    End,
}

/// Gives the same requests to every reader that is still there.
pub(super) struct Feed {
    readers: Vec<Option<SyncSender<Message>>>,
    stop: Stop,
}

/// Ends all readers at their next request, whatever waits for them: simulating that could take minutes.
#[derive(Clone, Default)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Feed {
    pub(super) fn new(count: usize) -> (Feed, Vec<Fed>) {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..count).map(|_| sync_channel(AHEAD)).unzip();
        let stop = Stop::default();
        let fed = |messages| Fed { messages: Some(messages), batch: Arc::default(), at: 0, stop: stop.clone() };
        let readers = receivers.into_iter().map(fed).collect();
        (Feed { readers: senders.into_iter().map(Some).collect(), stop }, readers)
    }

    pub(super) fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Gives a batch to every reader, and waits where one is too far behind. Returns false when no reader is left.
    pub(super) fn give(&mut self, batch: Vec<Request>) -> bool {
        let batch = Arc::new(batch);
        self.send(|| Message::Batch(batch.clone()))
    }

    /// Tells every reader that the trace has ended. Without this, they get an error.
    pub(super) fn end(mut self) {
        self.send(|| Message::End);
    }

    fn send(&mut self, message: impl Fn() -> Message) -> bool {
        for reader in &mut self.readers {
            // A reader that has failed is gone and needs no more.
            if reader.as_ref().is_some_and(|reader| reader.send(message()).is_err()) {
                *reader = None;
            }
        }
        self.readers.iter().any(Option::is_some)
    }
}

/// The requests as one reader gets them.
pub(super) struct Fed {
    /// `None` after the end.
    messages: Option<Receiver<Message>>,
    batch: Arc<Vec<Request>>,
    at: usize,
    stop: Stop,
}

impl Iterator for Fed {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Result<Request, TraceError>> {
        if self.messages.is_some() && self.stop.0.load(Ordering::Relaxed) {
            self.messages = None;
            (self.batch, self.at) = (Arc::default(), 0);
            return Some(Err(TraceError::Interrupted));
        }
        while self.at == self.batch.len() {
            match self.messages.as_ref()?.recv() {
                Ok(Message::Batch(batch)) => (self.batch, self.at) = (batch, 0),
                Ok(Message::End) => self.messages = None,
                Err(_) => {
                    self.messages = None;
                    return Some(Err(TraceError::Interrupted));
                }
            }
        }
        let request = self.batch[self.at];
        self.at += 1;
        Some(Ok(request))
    }
}

#[cfg(test)]
mod tests {
    use seekless::units::Nanos;

    use super::*;
    use crate::trace::Op;

    fn request(number: u64) -> Request {
        Request::new(Nanos(number), Op::Read, number * 512, 512)
    }

    /// F1: every reader gets all requests, however fast it is; one that leaves is not waited for.
    #[test]
    fn every_reader_gets_everything() {
        let (mut feed, mut readers) = Feed::new(3);
        let leaver = readers.remove(1);
        let all: Vec<Request> = (0..1000).map(request).collect();
        let got: Vec<Vec<Request>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                readers.into_iter().map(|reader| scope.spawn(|| reader.map(Result::unwrap).collect())).collect();
            let leaving = scope.spawn(|| leaver.take(10).count());
            for some in all.chunks(7) {
                assert!(feed.give(some.to_vec()));
            }
            feed.end();
            assert_eq!(leaving.join().unwrap(), 10);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(got, [all.clone(), all]);
    }

    /// Reading that stops before the end is an error for every reader, never a shorter trace.
    #[test]
    fn a_broken_trace_is_no_short_one() {
        let (mut feed, mut readers) = Feed::new(1);
        assert!(feed.give(vec![request(1)]));
        drop(feed);
        let reader = &mut readers[0];
        assert!(reader.next().is_some_and(|next| next.is_ok()));
        assert!(matches!(reader.next(), Some(Err(TraceError::Interrupted))));
        assert!(reader.next().is_none());
        let (mut feed, readers) = Feed::new(2);
        drop(readers);
        assert!(!feed.give(vec![request(1)]), "no reader is left");
    }

    /// F2: the feed waits for a reader that is too far behind. Method: no reader takes anything; the batch after the last
    /// one that fits does not return until a reader has taken one.
    #[test]
    fn the_feed_waits() {
        let (mut feed, mut readers) = Feed::new(1);
        let mut reader = readers.remove(0);
        let given = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..100 {
                    feed.give(vec![request(number)]);
                    given.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                }
                feed.end();
            });
            for taken in 1..=100 {
                assert!(reader.next().is_some_and(|next| next.is_ok()));
                let given = given.load(std::sync::atomic::Ordering::SeqCst);
                // Besides what was taken and what waits, one may have arrived since.
                assert!(given <= taken + AHEAD + 1, "{given} given, {taken} taken");
            }
            assert!(reader.next().is_none());
        });
    }
}
