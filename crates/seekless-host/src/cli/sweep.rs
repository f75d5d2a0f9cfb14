//! Measuring the points of an experiment: simulations on all processors, what takes real time one after another. Other
//! processes may measure points of the same folder at the same time.

use std::collections::{BTreeMap, VecDeque};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use seekless_lab::LabError;
use seekless_lab::experiment::{
    Experiment, Measure, MountJob, Outside, Plan, Point, PointClaim, Results, ResultsError, RunTarget, Stop,
    WhileWaiting,
};
use seekless_lab::run::{Run, run_in_directory};
use seekless_lab::workload::{PhaseProgress, Program};

use super::caller::{Caller, Step};
use super::conclude::Origin;
use super::{Failure, bench_here};
use crate::mount_bench::MountBench;

/// Exit code of a run that a signal has ended.
pub(super) const INTERRUPTED: u8 = 130;

/// What is wrong with a folder of results.
pub(super) fn of_results(error: ResultsError) -> Failure {
    let is_interrupted = matches!(error, ResultsError::Interrupted { .. });
    let failure = Failure::new(error);
    if is_interrupted { failure.code(INTERRUPTED) } else { failure }
}

/// True when time is virtual on a point.
///
/// # Errors
/// When the point is invalid, which making its plan would have reported.
pub(super) fn is_simulated(experiment: &Experiment, point: &Point) -> Result<bool, Failure> {
    point.is_simulated(experiment, &World { stop: Stop::default(), mounts: None }).map_err(Failure::new)
}

/// A point to be measured, by index, and how often it has been before.
#[derive(Clone, Copy)]
struct Job {
    point: usize,
    round: usize,
}

/// Points still to be measured.
pub(super) struct Wanted {
    simulated: Vec<Job>,
    /// Round after round, so that other load on the machine disturbs all points alike.
    real: Vec<Job>,
    /// All measurements, including those that are done.
    pub(super) all: usize,
}

impl Wanted {
    /// Those of the plan's points that are `mine` and have not been measured in all rounds.
    /// `done` is how often a point has been.
    pub(super) fn new(
        plan: &Plan,
        mine: &[bool],
        simulated: &[bool],
        done: impl Fn(&Point) -> usize,
        rounds: usize,
    ) -> Wanted {
        let mut wanted = Wanted { simulated: Vec::new(), real: Vec::new(), all: 0 };
        for round in 0..rounds {
            for (index, point) in plan.points.iter().enumerate().filter(|&(index, _)| mine[index]) {
                let is_simulated = simulated[index];
                // Virtual time is the same every time.
                if is_simulated && round > 0 {
                    continue;
                }
                wanted.all += 1;
                if done(point) <= round {
                    let list = if is_simulated { &mut wanted.simulated } else { &mut wanted.real };
                    list.push(Job { point: index, round });
                }
            }
        }
        wanted
    }

    /// The points in virtual time that are left.
    pub(super) fn simulated(&self) -> impl Iterator<Item = usize> + use<'_> {
        self.simulated.iter().map(|job| job.point)
    }

    /// The points in real time that are left, one for each round.
    pub(super) fn real(&self) -> impl Iterator<Item = usize> + use<'_> {
        self.real.iter().map(|job| job.point)
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
        let simulated = (wanted.simulated, jobs, PointClaim::Point, Some(GRACE));
        let real = (wanted.real, 1, PointClaim::RealTime, None);
        for (points, jobs, claim, grace) in [simulated, real] {
            if !ended.interrupted && !points.is_empty() {
                let queue = Queue { ready: points.into(), elsewhere: Vec::new(), running: BTreeMap::new(), claim };
                let (interrupted_at, rows_written) = (None, Instant::now());
                Part { sweep: self, results, ended: &mut ended, queue, jobs, grace, interrupted_at, rows_written }
                    .measure()?;
            }
        }
        if ended.interrupted {
            self.interrupted(&ended, results);
        }
        Ok(ended)
    }

    /// Writes the rows that there are, so that they can be looked at, and says so.
    fn interrupted(&self, ended: &Ended, results: &mut Results) {
        let begun = Instant::now();
        let in_time = || if begun.elapsed() < GRACE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) };
        if let Err(failure) = self.keep_rows(ended.measured, results, &in_time).map_err(of_results) {
            self.caller.note(&failure.text);
        }
        self.say_interrupted(ended);
    }

    /// Writes the rows that there are, and how many points are missing. `measured` is how many this run has added.
    fn keep_rows(&self, measured: usize, results: &mut Results, waiting: WhileWaiting<'_>) -> Result<(), ResultsError> {
        let provenance = self.origin.provenance(measured, results, self.plan);
        results.finish(self.experiment, self.plan, &provenance, waiting).map(drop)
    }

    fn say_interrupted(&self, ended: &Ended) {
        let (all, folder) = (self.all, self.folder.display());
        let done = all - ended.failed.len() - ended.left;
        self.caller.note(&format!(
            "interrupted: {done} of {all} points are in {folder}; the same command continues from there"
        ));
    }
}

/// Jobs that are not done.
struct Queue {
    ready: VecDeque<Job>,
    /// Another process is measuring these points. It may fail or die, so they are looked at again.
    elsewhere: Vec<Job>,
    /// By point.
    running: BTreeMap<usize, Job>,
    claim: PointClaim,
}

impl Queue {
    /// Takes a job that this process is to measure; none when all that are ready are done or under way elsewhere. Counts those
    /// that others have done.
    fn next(&mut self, plan: &Plan, results: &mut Results, left: &mut usize) -> Result<Option<Job>, Failure> {
        while let Some(job) = self.ready.pop_front() {
            let point = &plan.points[job.point];
            if !results.claim(point, self.claim)? {
                self.elsewhere.push(job);
                continue;
            }
            // Another process may have measured it before it was claimed here.
            results.refresh()?;
            if results.rounds(point) <= job.round {
                self.running.insert(job.point, job);
                return Ok(Some(job));
            }
            results.release(point, self.claim)?;
            *left -= 1;
        }
        Ok(None)
    }
}

/// What is measured in the same manner: all of a sweep in virtual time, or all in real time.
struct Part<'a> {
    sweep: &'a Sweep<'a>,
    results: &'a mut Results,
    ended: &'a mut Ended,
    queue: Queue,
    jobs: usize,
    grace: Option<Duration>,
    interrupted_at: Option<Instant>,
    rows_written: Instant,
}

impl Part<'_> {
    /// Each point has a thread of its own, at most `jobs` at a time.
    fn measure(mut self) -> Result<(), Failure> {
        let sweep = self.sweep;
        let (experiment, plan) = (sweep.experiment, sweep.plan);
        let world = &World { stop: sweep.stop.clone(), mounts: sweep.mounts };
        std::thread::scope(|scope| {
            let (send, receive) = mpsc::channel::<Message>();
            let begin = |job: Job| {
                let send = send.clone();
                scope.spawn(move || measure_and_send(experiment, plan, job.point, world, &send));
            };
            let ended = self.dispatch(&receive, begin);
            if ended.is_err() {
                sweep.stop.set();
            }
            ended
        })
    }

    fn dispatch(&mut self, receive: &mpsc::Receiver<Message>, begin: impl Fn(Job)) -> Result<(), Failure> {
        const TICK: Duration = Duration::from_millis(100);
        let mut what = String::new();
        loop {
            while !self.sweep.stop.is_set() && self.queue.running.len() < self.jobs {
                let next = self.queue.next(self.sweep.plan, self.results, &mut self.ended.left)?;
                let Some(job) = next else { break };
                what = self.sweep.plan.name_of(job.point);
                begin(job);
            }
            let Queue { elsewhere, running, .. } = &mut self.queue;
            if running.is_empty() && (elsewhere.is_empty() || self.sweep.stop.is_set()) {
                return Ok(());
            }
            if running.is_empty() {
                what = "another run is measuring the rest".to_owned();
            }
            match receive.recv_timeout(TICK) {
                Ok(message) => self.settle(message)?,
                Err(_) => self.queue.ready.extend(self.queue.elsewhere.drain(..)),
            }
            if self.queue.claim != PointClaim::RealTime {
                self.keep_rows_at_times()?;
            }
            self.look_for_a_signal(&what);
        }
    }

    fn keep_rows_at_times(&mut self) -> Result<(), Failure> {
        if self.rows_written.elapsed() >= ROWS_EVERY {
            let measured = self.ended.measured;
            self.write(|sweep, results, waiting| sweep.keep_rows(measured, results, waiting))?;
            self.rows_written = Instant::now();
        }
        Ok(())
    }

    /// Writes to the folder of results. Another run may be writing, and be stopped: the wait for it ends with a signal, and a
    /// while after one that came before. `None` then.
    fn write<T>(
        &mut self,
        work: impl FnOnce(&Sweep<'_>, &mut Results, WhileWaiting<'_>) -> Result<T, ResultsError>,
    ) -> Result<Option<T>, Failure> {
        let (sweep, interrupted_at) = (self.sweep, self.interrupted_at);
        let (done, all) = ((self.ended.to_do - self.ended.left) as u64, self.ended.to_do as u64);
        let step = Step { what: "waiting for another run, which is writing", done, total: Some(all), rate: None };
        let is_late = || interrupted_at.is_some_and(|at| at.elapsed() >= GRACE);
        let waiting = || if is_late() { ControlFlow::Break(()) } else { sweep.caller.at(step) };
        match work(sweep, self.results, &waiting) {
            Ok(done) => Ok(Some(done)),
            Err(ResultsError::Interrupted { .. }) => {
                self.interrupt();
                Ok(None)
            }
            Err(error) => Err(of_results(error)),
        }
    }

    /// Keeps what a thread has measured.
    fn settle(&mut self, Message { point: index, measured, took }: Message) -> Result<(), Failure> {
        let plan = self.sweep.plan;
        let point = &plan.points[index];
        match measured {
            Ok(measures) => {
                if self.write(|_, results, waiting| results.add(point, measures, waiting))?.is_some() {
                    self.ended.left -= 1;
                    self.ended.measured += 1;
                    let (name, seconds) = (plan.name_of(index), took.as_secs_f64());
                    self.write(|_, results, waiting| results.add_seconds(name, seconds, waiting))?;
                }
            }
            // It was stopped, and is measured next time.
            Err(_) if self.ended.interrupted => {}
            Err(problem) => {
                self.ended.left -= 1;
                self.ended.failed.push((plan.name_of(index), problem));
            }
        }
        self.queue.running.remove(&index);
        if self.queue.claim == PointClaim::RealTime {
            // Of a measurement in real time, this one's or another run's, writing and its flushes would be a part. While this holds the
            // claim there is none.
            self.keep_rows_at_times()?;
        }
        Ok(self.results.release(point, self.queue.claim)?)
    }

    fn look_for_a_signal(&mut self, what: &str) {
        let Part { sweep, ended, .. } = self;
        let done = (ended.to_do - ended.left) as u64;
        let is_ended = sweep.caller.at(Step { what, done, total: Some(ended.to_do as u64), rate: None }).is_break();
        let is_late = self.interrupted_at.zip(self.grace).is_some_and(|(at, grace)| at.elapsed() >= grace);
        if self.interrupted_at.is_some() && (is_ended || is_late) && sweep.caller.may_exit() {
            sweep.interrupted(ended, self.results);
            std::process::exit(i32::from(INTERRUPTED));
        }
        if is_ended {
            self.interrupt();
        }
    }

    /// Begins no point any more, and ends those under way.
    fn interrupt(&mut self) {
        if self.interrupted_at.is_some() {
            return;
        }
        self.interrupted_at = Some(Instant::now());
        self.ended.interrupted = true;
        self.sweep.stop.set();
        if self.grace.is_none() && !self.queue.running.is_empty() {
            let note = "interrupted; removing the files of the current point (interrupt again to leave them)";
            self.sweep.caller.note(note);
        }
    }
}

/// Measures a point, and sends what has come of it.
fn measure_and_send(
    experiment: &Experiment,
    plan: &Plan,
    point: usize,
    world: &World<'_>,
    send: &mpsc::Sender<Message>,
) {
    let start = Instant::now();
    let measure = || plan.points[point].measure(experiment, world);
    let (measured, panic) = match catch_unwind(AssertUnwindSafe(measure)) {
        Ok(measured) => (measured, None),
        Err(panic) => (Err("the program has panicked".to_owned()), Some(panic)),
    };
    // The receiver goes when the sweep has failed, and needs no more results.
    let _ = send.send(Message { point, measured, took: start.elapsed() });
    if let Some(panic) = panic {
        resume_unwind(panic); // Ends the program, when the points under way are kept.
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
