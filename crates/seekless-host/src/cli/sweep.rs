//! Measuring the points of an experiment: simulations on all processors, what takes real time one after another.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use seekless_lab::LabError;
use seekless_lab::experiment::{Experiment, Measure, MountJob, Outside, Plan, Point, Results, RunTarget, Stop};
use seekless_lab::run::{Run, run_in_directory};
use seekless_lab::workload::{PhaseProgress, Program};

use super::caller::{Caller, Step};
use super::conclude::Origin;
use super::{Failure, bench_here};
use crate::mount_bench::MountBench;

/// Exit code of a run that a signal has ended.
pub(super) const INTERRUPTED: u8 = 130;

/// True when time is virtual on a point.
///
/// # Errors
/// When the point is invalid, which making its plan would have reported.
pub(super) fn is_simulated(experiment: &Experiment, point: &Point) -> Result<bool, Failure> {
    point.is_simulated(experiment, &World { stop: Stop::default(), mounts: None }).map_err(Failure::new)
}

/// Points still to be measured, by index; a point of several rounds is listed several times.
pub(super) struct Wanted {
    simulated: Vec<usize>,
    /// Round after round, so that other load on the machine disturbs all points alike.
    real: Vec<usize>,
    /// All measurements, including those that are done.
    pub(super) all: usize,
}

impl Wanted {
    /// Those of the plan's points that are `mine` and have not been measured in all rounds.
    pub(super) fn new(plan: &Plan, mine: &[bool], simulated: &[bool], results: &Results, rounds: usize) -> Wanted {
        let mut wanted = Wanted { simulated: Vec::new(), real: Vec::new(), all: 0 };
        for round in 0..rounds {
            for (index, point) in plan.points.iter().enumerate().filter(|&(index, _)| mine[index]) {
                let is_simulated = simulated[index];
                // Virtual time is the same every time.
                if is_simulated && round > 0 {
                    continue;
                }
                wanted.all += 1;
                if results.rounds(point) <= round {
                    let list = if is_simulated { &mut wanted.simulated } else { &mut wanted.real };
                    list.push(index);
                }
            }
        }
        wanted
    }

    /// The points in virtual time that are left.
    pub(super) fn simulated(&self) -> &[usize] {
        &self.simulated
    }

    /// Measurements that are left.
    pub(super) fn left(&self) -> usize {
        self.simulated.len() + self.real.len()
    }
}

/// Measures one point in this process; `stop` ends it.
///
/// # Errors
/// Why there is no result, in words.
pub(super) fn measure(experiment: &Experiment, point: &Point, stop: Stop) -> Result<Vec<Measure>, String> {
    point.measure(experiment, &World { stop, mounts: None })
}

/// How points are measured.
pub(super) struct Sweep<'a> {
    pub experiment: &'a Experiment,
    pub plan: &'a Plan,
    /// Where the results go.
    pub folder: &'a Path,
    /// All measurements, including those that are done.
    pub all: usize,
    /// No point begins any more, and those under way end.
    pub stop: &'a Stop,
    pub caller: &'a dyn Caller,
    pub origin: &'a Origin,
    /// Where mounts are made, in an experiment about them.
    pub mounts: Option<&'a MountBench>,
}

/// How long points under way may go on after a signal. A simulation leaves nothing behind, so that the process can end in the
/// middle of it. A point in real time removes its files first.
const GRACE: Duration = Duration::from_millis(500);

/// How often the rows are written while a sweep goes on: what is killed in between can still be reported on.
const ROWS_EVERY: Duration = Duration::from_secs(10);

/// How a sweep ended.
pub(super) struct Ended {
    pub interrupted: bool,
    /// Measurements that were left at its beginning.
    pub to_do: usize,
    /// Points not started, or interrupted while under way.
    pub left: usize,
    pub failed: Vec<(String, String)>,
    /// Points that this run has measured.
    pub measured: usize,
}

/// A point that has ended, and how long that took.
struct Message {
    point: usize,
    measured: Result<Vec<Measure>, String>,
    took: Duration,
}

impl Sweep<'_> {
    /// Measures: simulations on as many threads as allowed, then points in real time, one after another.
    pub(super) fn measure(&self, wanted: Wanted, jobs: usize, results: &mut Results) -> Result<Ended, Failure> {
        let left = wanted.left();
        let mut ended = Ended { interrupted: false, to_do: left, left, failed: Vec::new(), measured: 0 };
        for (points, jobs, grace) in [(wanted.simulated, jobs, Some(GRACE)), (wanted.real, 1, None)] {
            if !ended.interrupted && !points.is_empty() {
                self.some(&points, jobs, grace, results, &mut ended)?;
            }
        }
        if ended.interrupted {
            self.interrupted(&ended, results);
        }
        Ok(ended)
    }

    /// Writes the rows that there are, so that they can be looked at, and says so.
    fn interrupted(&self, ended: &Ended, results: &Results) {
        if let Err(failure) = self.keep_rows(ended.measured, results) {
            self.caller.note(&failure.text);
        }
        self.say_interrupted(ended);
    }

    /// Writes the rows that there are, and how many points are missing. `measured` is how many this run has added.
    fn keep_rows(&self, measured: usize, results: &Results) -> Result<(), Failure> {
        let provenance = self.origin.provenance(measured, results, self.plan);
        results.finish(self.experiment, self.plan, &provenance)?;
        Ok(())
    }

    fn say_interrupted(&self, ended: &Ended) {
        let (all, folder) = (self.all, self.folder.display());
        let done = all - ended.failed.len() - ended.left;
        self.caller.note(&format!(
            "interrupted: {done} of {all} points are in {folder}; the same command continues from there"
        ));
    }

    fn some(
        &self,
        points: &[usize],
        jobs: usize,
        grace: Option<Duration>,
        results: &mut Results,
        ended: &mut Ended,
    ) -> Result<(), Failure> {
        let next = AtomicUsize::new(0);
        let world = World { stop: self.stop.clone(), mounts: self.mounts };
        let under_way = Mutex::new(String::new());
        let under_way = || under_way.lock().unwrap_or_else(PoisonError::into_inner);
        let (send, receive) = mpsc::channel::<Message>();
        let work = |send: mpsc::Sender<Message>| {
            while !self.stop.is_set() {
                let Some(&index) = points.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
                *under_way() = self.plan.name_of(index);
                let start = Instant::now();
                let measured = self.plan.points[index].measure(self.experiment, &world);
                if send.send(Message { point: index, measured, took: start.elapsed() }).is_err() {
                    break;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..jobs.min(points.len()) {
                let send = send.clone();
                scope.spawn(|| work(send));
            }
            drop(send);
            let mut outcome = Ok(());
            let mut rows_written = Instant::now();
            let mut interrupted_at: Option<Instant> = None;
            loop {
                match receive.recv_timeout(Duration::from_millis(100)) {
                    Ok(Message { point, measured: Ok(measures), took }) => {
                        let kept = results.add(&self.plan.points[point], measures);
                        let kept =
                            kept.and_then(|()| results.add_seconds(self.plan.name_of(point), took.as_secs_f64()));
                        ended.left -= 1;
                        ended.measured += 1;
                        if let Err(error) = kept {
                            self.stop.set();
                            outcome = Err(Failure::new(error));
                        }
                    }
                    // It was stopped, and is measured next time.
                    Ok(Message { measured: Err(_), .. }) if ended.interrupted => {}
                    Ok(Message { point, measured: Err(problem), .. }) => {
                        ended.left -= 1;
                        ended.failed.push((self.plan.name_of(point), problem));
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => return outcome,
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                }
                if rows_written.elapsed() >= ROWS_EVERY && outcome.is_ok() {
                    outcome = self.keep_rows(ended.measured, results);
                    rows_written = Instant::now();
                }
                let what = under_way().clone();
                let done = (ended.to_do - ended.left) as u64;
                let step = Step { what: &what, done, total: Some(ended.to_do as u64) };
                let is_ended = self.caller.at(step).is_break();
                let is_late = interrupted_at.zip(grace).is_some_and(|(at, grace)| at.elapsed() >= grace);
                if interrupted_at.is_some() && (is_ended || is_late) && self.caller.may_exit() {
                    self.interrupted(ended, results);
                    std::process::exit(i32::from(INTERRUPTED));
                }
                if is_ended && interrupted_at.is_none() {
                    interrupted_at = Some(Instant::now());
                    ended.interrupted = true;
                    self.stop.set();
                    if grace.is_none() {
                        self.caller
                            .note("interrupted; the files of the point under way are removed (once more leaves them)");
                    }
                }
            }
        })
    }
}

/// Measures in real time the points that cannot be simulated.
struct World<'a> {
    stop: Stop,
    /// Where mounts are made, in an experiment about them.
    mounts: Option<&'a MountBench>,
}

impl Outside for World<'_> {
    fn files(&self, on: &RunTarget, program: &dyn Program) -> Result<Run, LabError> {
        let watch = &|_: PhaseProgress<'_>| self.stop.flow();
        match on {
            RunTarget::Nothing => Err(LabError::Spec("there is nothing to run on".into())),
            RunTarget::Directory(path) => run_in_directory(path, bench_here::host(), program, watch),
            RunTarget::Stack(stack) => {
                bench_here::run_here_in_a_world(stack, program, watch).map_err(|failure| LabError::Spec(failure.text))
            }
        }
    }

    fn mounts(&self, job: &MountJob) -> Result<Vec<Measure>, String> {
        let bench = self.mounts.ok_or("`seekless bench mount` makes and runs experiments about mounts")?;
        bench.measure(job, &self.stop)
    }

    fn stop(&self) -> Stop {
        self.stop.clone()
    }
}
