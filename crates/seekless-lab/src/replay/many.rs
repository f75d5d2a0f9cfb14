//! Several stacks, one pass over the trace.
//!
//! The caller's thread reads and counts the trace; each stack replays on a thread of its own, in its own virtual time, so
//! that its result is that of [`simulate`](super::simulate) alone. The threads keep step by batches.
//!
//! What a replay has to know of the whole trace in advance is little: where its devices go on the storage, if addresses are
//! scaled or devices concatenated ([`needs_survey`]). Then a first pass is inherent. Otherwise the trace is counted in the
//! same pass, and what errors and warnings say about the whole trace comes from that.

use std::ops::ControlFlow;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use seekless::stack::Stack;

use super::answers::Listener;
use super::error::ReplayError;
use super::feed::Feed;
use super::place::{Devices, Map, TraceLayout};
use super::run::{Outcome, Spec, simulate_heard};
use crate::trace::{Request, Summary, Trace};

/// Requests of a batch. Threads wait for each other once a batch.
const BATCH: usize = 8192;

/// How often the caller is asked when everything has been read and replays still work.
const WATCHED_EVERY: Duration = Duration::from_millis(10);

/// Whether [`Spec::layout`] has to be known before a replay, which takes a pass over the trace.
pub fn needs_survey(map: Map, devices: &Devices) -> bool {
    map == Map::Scale || *devices == Devices::Concatenate
}

/// Replays on every stack at the same time, reading the trace once, in memory that does not depend on its length.
/// `progress` gets the trace and the number of requests read so far. Without [`Spec::layout`], the trace must have one device.
///
/// Returns the trace in numbers, and the outcomes in the order of the stacks. When all stacks have failed, a trace that is no
/// file is left where it is.
///
/// # Errors
/// When the trace cannot be read or has several devices. Errors of a stack are in its outcome.
pub fn simulate_all(
    stacks: &[Stack],
    trace: &mut Trace,
    spec: &Spec,
    progress: &dyn Fn(&Trace, u64),
) -> Result<(Summary, Vec<Result<Outcome, ReplayError>>), ReplayError> {
    let progress = |trace: &Trace, count: u64| {
        progress(trace, count);
        ControlFlow::Continue(())
    };
    simulate_all_watched(stacks, trace, spec, Watch { progress: &progress, listeners: Vec::new() })
}

/// What a caller sees of a replay that is under way.
pub struct Watch<'a> {
    /// Gets the trace and the number of requests read so far; ends the replay, if it wants.
    pub progress: &'a dyn Fn(&Trace, u64) -> ControlFlow<()>,
    /// One for each stack, in their order, or none.
    pub listeners: Vec<Listener>,
}

/// The same, watched.
///
/// # Errors
/// As [`simulate_all`], and `Interrupted` when the caller has ended it.
pub fn simulate_all_watched(
    stacks: &[Stack],
    trace: &mut Trace,
    spec: &Spec,
    watch: Watch<'_>,
) -> Result<(Summary, Vec<Result<Outcome, ReplayError>>), ReplayError> {
    let Watch { progress, listeners } = watch;
    let listeners = listeners.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
    let (mut feed, fed) = Feed::new(stacks.len());
    let mut summary = Summary::default();
    let mut outcomes = std::thread::scope(|scope| {
        // Each replay holds a sender as long as it works.
        let (works, ends) = mpsc::channel::<()>();
        let replays = stacks.iter().zip(fed).zip(listeners).map(|((stack, fed), listener)| {
            let works = works.clone();
            scope.spawn(move || {
                let outcome = simulate_heard(stack, fed, spec, &|_| {}, listener);
                drop(works);
                outcome
            })
        });
        let replays: Vec<_> = replays.collect();
        drop(works);
        let mut count = 0;
        let stop = feed.stop();
        let mut read = read_all(trace, spec, &mut summary, |trace, batch| {
            count += batch.len() as u64;
            match progress(trace, count) {
                ControlFlow::Continue(()) => Ok(feed.give(batch)),
                ControlFlow::Break(()) => Err(ReplayError::Interrupted),
            }
        });
        match read {
            Ok(()) => feed.end(),
            // The replays end with an error, too.
            Err(_) => {
                stop.set();
                drop(feed);
            }
        }
        // What was read last is still simulated, and the caller may end that as well.
        while read.is_ok() && ends.recv_timeout(WATCHED_EVERY) == Err(RecvTimeoutError::Timeout) {
            if progress(trace, count).is_break() {
                stop.set();
                read = Err(ReplayError::Interrupted);
            }
        }
        let outcomes: Vec<_> = replays
            .into_iter()
            .map(|replay| replay.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect();
        read.map(|()| outcomes)
    })?;
    for outcome in &mut outcomes {
        if let Err(ReplayError::TooFar { needed, .. }) = outcome {
            *needed = spec.layout.as_ref().map_or(summary.end(), TraceLayout::end).max(*needed);
        }
    }
    Ok((summary, outcomes))
}

/// Reads the trace to its end, counts it, and hands out batches as long as `give` returns true.
fn read_all(
    trace: &mut Trace,
    spec: &Spec,
    summary: &mut Summary,
    mut give: impl FnMut(&Trace, Vec<Request>) -> Result<bool, ReplayError>,
) -> Result<(), ReplayError> {
    let has_end = trace.progress().bytes_total().is_some();
    let mut goes_on = true;
    loop {
        let mut batch = Vec::with_capacity(if goes_on { BATCH } else { 0 });
        while batch.len() < BATCH && trace.next_batch(&mut batch)? {}
        if batch.is_empty() {
            break;
        }
        batch.iter().for_each(|request| summary.add(request));
        // With several devices there is no result. The rest is counted for the message.
        let is_one = spec.layout.is_some() || summary.devices.len() <= 1;
        goes_on = goes_on && is_one && give(trace, batch)?;
        if !goes_on && !has_end {
            break;
        }
    }
    match spec.layout {
        Some(_) => Ok(()),
        None => TraceLayout::of(summary, &Devices::One, &trace.names()).map(|_| ()),
    }
}
