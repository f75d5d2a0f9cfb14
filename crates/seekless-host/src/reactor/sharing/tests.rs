//! Real threads in the place of the engine thread.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, Rlimit, getpriority_process, getrlimit, setpriority_process, setrlimit};
use rustix::thread::{
    CapabilitySet, CpuSet, Pid, capabilities, gettid, sched_getaffinity, sched_setaffinity, set_capabilities,
};

use super::*;
use crate::testing::{Need, skip};

/// A thread's policy and processors.
fn of_thread(thread: Pid) -> (i32, CpuSet) {
    // SAFETY: the call takes a number.
    (unsafe { libc::sched_getscheduler(thread.as_raw_nonzero().get()) }, sched_getaffinity(Some(thread)).unwrap())
}

/// Observers see each other's threads, and workers take the processors of the last one.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// `None`, with a message, where threads may not change their policy.
fn can_share() -> Option<MutexGuard<'static, ()>> {
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let can = || sys::can_return() && Engine::this_thread().is_some();
    if std::thread::spawn(can).join().unwrap() {
        return Some(alone);
    }
    skip(Need::Processors, "this needs two processors, and CAP_SYS_NICE");
    None
}

/// The first two processors that this process may use.
fn two_processors() -> [usize; 2] {
    let all = sched_getaffinity(None).unwrap();
    let mut usable = (0..CpuSet::MAX_CPU).filter(|&at| all.is_set(at));
    [usable.next().unwrap(), usable.next().unwrap()]
}

/// Binds the calling thread.
fn stay_at(processor: usize) {
    sched_setaffinity(None, &only(processor)).unwrap();
}

fn number_of(thread: Pid) -> u32 {
    thread.as_raw_nonzero().get().cast_unsigned()
}

/// A thread that computes on a processor until this is dropped.
struct Busy(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Busy {
    fn start(processor: usize) -> Busy {
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let computing = std::thread::spawn(move || {
            stay_at(processor);
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        Busy(is_over, Some(computing))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        let _ = self.1.take().map(JoinHandle::join);
    }
}

/// A thread that does what it is asked to, as an engine thread.
struct Asked {
    ask: mpsc::Sender<Box<dyn FnOnce() + Send>>,
    number: Pid,
    thread: JoinHandle<()>,
}

impl Asked {
    fn start() -> (Asked, Engine) {
        let ((ask, asked), (sender, receiver)) = (mpsc::channel::<Box<dyn FnOnce() + Send>>(), mpsc::channel());
        let thread = std::thread::spawn(move || {
            sender.send((gettid(), Engine::this_thread().unwrap())).unwrap();
            asked.iter().for_each(|job| job());
        });
        let (number, engine) = receiver.recv().unwrap();
        (Asked { ask, number, thread }, engine)
    }

    fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
        let (sender, receiver) = mpsc::channel();
        self.ask.send(Box::new(move || sender.send(job()).unwrap())).unwrap();
        receiver.recv().unwrap()
    }

    fn end(self) {
        drop(self.ask);
        self.thread.join().unwrap();
    }
}

/// A thread that it starts, before and after it makes itself ordinary.
fn starts_one() -> [(i32, CpuSet); 2] {
    let started = std::thread::spawn(|| {
        let inherited = of_thread(gettid());
        be_ordinary();
        [inherited, of_thread(gettid())]
    });
    started.join().unwrap()
}

fn only(processor: usize) -> CpuSet {
    let mut only = CpuSet::new();
    only.set(processor);
    only
}

/// The engine thread goes to a processor with the policy that leaves it to others, follows, and has both back at the end. A thread that it
/// starts in between is as any other.
#[test]
fn it_goes_there_and_back() {
    let Some(_alone) = can_share() else { return };
    let (asked, engine) = Asked::start();
    let (before, [one, other]) = (of_thread(asked.number), two_processors());
    let mut moved = engine.move_to(one).unwrap();
    for at in [other, one] {
        moved = moved.go_to(at).unwrap();
        assert_eq!(of_thread(asked.number), (libc::SCHED_IDLE, only(at)));
        assert!(moved.is_at(at));
        assert_eq!(asked.run(move || sys::processor_of(number_of(gettid()))), Some(at));
        assert_eq!(asked.run(starts_one), [(libc::SCHED_IDLE, only(at)), before], "P2");
    }
    drop(moved);
    assert_eq!(of_thread(asked.number), before, "P1");
    // One that it may not use.
    let unusable = (0..CpuSet::MAX_CPU).find(|&at| !before.1.is_set(at)).unwrap();
    assert!(engine.move_to(unusable).is_none() && engine.move_to(usize::MAX).is_none());
    assert_eq!(of_thread(asked.number), before);
    asked.end();
}

/// Workers of the kernel are found by their names, however many threads there are. Method: threads with such names.
#[test]
fn workers_of_the_kernel_are_released() {
    const WORKERS: usize = 150;
    let Some(_alone) = can_share() else { return };
    let ((asked, engine), [processor, _]) = (Asked::start(), two_processors());
    let (before, moved) = (of_thread(asked.number), engine.move_to(processor).unwrap());
    let (sender, receiver) = mpsc::channel();
    let (ends, end): (Vec<_>, Vec<_>) = (0..WORKERS).map(|_| mpsc::channel::<()>()).unzip();
    let workers = asked.run(move || {
        let start = |end: mpsc::Receiver<()>| {
            let (sender, worker) = (sender.clone(), std::thread::Builder::new().name("iou-wrk-test".into()));
            let run = move || (sender.send(gettid()).unwrap(), end.recv());
            worker.spawn(run).unwrap()
        };
        end.into_iter().map(start).collect::<Vec<_>>()
    });
    let numbers: Vec<Pid> = receiver.iter().take(WORKERS).collect();
    engine.release_workers();
    assert!(numbers.iter().all(|&worker| of_thread(worker) == before));
    assert_eq!(of_thread(asked.number), (libc::SCHED_IDLE, only(processor)));
    drop((moved, ends));
    for worker in workers {
        let _ = worker.join().unwrap();
    }
    asked.end();
}

/// What the administrator has chosen stays: at the start, while a processor is shared, and after it.
#[test]
fn what_the_administrator_has_chosen_stays() {
    let Some(_alone) = can_share() else { return };
    let ((asked, engine), [one, other]) = (Asked::start(), two_processors());
    let before = of_thread(asked.number);
    // Another policy: the processors are given back.
    let moved = engine.move_to(one).unwrap();
    assert!(sys::set_policy(asked.number, libc::SCHED_BATCH));
    assert!(moved.go_to(one).is_none());
    assert_eq!(of_thread(asked.number), (libc::SCHED_BATCH, before.1));
    assert!(engine.move_to(one).is_none());
    assert!(sys::set_policy(asked.number, libc::SCHED_OTHER));
    // Another processor.
    let moved = engine.move_to(one).unwrap();
    sched_setaffinity(Some(asked.number), &only(other)).unwrap();
    assert!(moved.go_to(one).is_none());
    assert_eq!(of_thread(asked.number), (libc::SCHED_OTHER, only(other)));
    assert!(engine.move_to(one).is_none());
    assert!(asked.run(|| Engine::this_thread().is_none() && Sharing::start(ShareWhen::Faster).observer.is_none()));
    asked.end();
}

/// Where the processors that this process may use change while one is shared, the engine thread and its workers have those of the end.
/// Method: a cpuset for the engine thread and its observer, which first lacks the processor that is shared, and then has it again.
#[test]
fn a_cpuset_that_changes_is_followed() {
    let Some(_alone) = can_share() else { return };
    let [one, other] = two_processors();
    let (one_text, other_text, both_text) = (one.to_string(), other.to_string(), format!("{one},{other}"));
    let Some(cpuset) = Cpuset::new(&both_text) else { return };
    let ((asked, engine), observes) = (Asked::start(), gettid());
    let mut both = only(one);
    both.set(other);
    [asked.number, observes].iter().for_each(|&thread| cpuset.add(thread));
    assert_eq!(of_thread(asked.number), (libc::SCHED_OTHER, both));
    // It has lost the processor at the end.
    let moved = engine.move_to(one).unwrap();
    cpuset.allow(&other_text);
    assert!(moved.go_to(one).is_none());
    assert_eq!(of_thread(asked.number), (libc::SCHED_OTHER, only(other)));
    cpuset.allow(&both_text);
    engine.renew();
    assert_eq!(of_thread(asked.number), (libc::SCHED_OTHER, both));
    // It has it again at the end.
    let moved = engine.move_to(one).unwrap();
    cpuset.allow(&other_text);
    cpuset.allow(&both_text);
    assert_eq!(asked.run(starts_one)[1], (libc::SCHED_OTHER, both), "P2");
    drop(moved);
    assert_eq!(of_thread(asked.number), (libc::SCHED_OTHER, both));
    // It has lost the other one, in which case it is shared with nothing.
    let moved = engine.move_to(one).unwrap();
    cpuset.allow(&one_text);
    drop(moved);
    cpuset.allow(&both_text);
    assert!(engine.move_to(other).is_some());
    assert_eq!(of_thread(asked.number), (libc::SCHED_OTHER, both));
    asked.end();
}

/// What the system refuses to give back at the end is given back as soon as it allows that. Method: an observer that loses the privilege
/// to choose policies while a processor is shared.
#[test]
fn what_is_refused_is_given_back_later() {
    let Some(_alone) = can_share() else { return };
    let ((asked, engine), [processor, _]) = (Asked::start(), two_processors());
    let before = of_thread(asked.number);
    let limit = getrlimit(Resource::Nice).current;
    if limit != Some(0) || !capabilities(None).unwrap().effective.contains(CapabilitySet::SYS_NICE) {
        skip(Need::Processors, "this needs a privilege that the thread can lose");
        return asked.end();
    }
    let number = asked.number;
    let state = move || of_thread(number);
    std::thread::scope(|scope| {
        let observer = scope.spawn(move || {
            let allow = |allowed: bool| {
                let mut sets = capabilities(None).unwrap();
                sets.effective.set(CapabilitySet::SYS_NICE, allowed);
                set_capabilities(None, sets).unwrap();
            };
            let moved = engine.move_to(processor).unwrap();
            allow(false);
            drop(moved);
            engine.regain();
            assert!(engine.is_lost());
            assert_eq!(state(), (libc::SCHED_IDLE, before.1));
            allow(true);
            engine.regain();
            assert!(!engine.is_lost());
            assert_eq!(state(), before);
            // Nothing is shared where it would be refused.
            allow(false);
            assert!(engine.move_to(processor).is_none());
            assert_eq!(state(), before);
            allow(true);
            assert!(engine.move_to(processor).is_some());
            assert_eq!(state(), before);
        });
        observer.join().unwrap();
    });
    asked.end();
}

/// An engine thread comes back also where its nice value, or the limit of that, has changed. Method: an observer that may not choose any
/// policy; the engine thread itself has the administrator's privileges.
#[test]
fn a_thread_comes_back_whatever_its_nice_value() {
    let Some(_alone) = can_share() else { return };
    let ((asked, engine), [processor, _]) = (Asked::start(), two_processors());
    let (before, own) = (of_thread(asked.number), getpriority_process(None).unwrap());
    let limits = getrlimit(Resource::Nice);
    let limit = |nice: Option<i32>| {
        // Of 20 - nice; none at all is allowed at 0.
        let current = nice.map_or(0, |nice| (20 - nice).cast_unsigned().into());
        let maximum = limits.maximum.map(|maximum| maximum.max(current));
        setrlimit(Resource::Nice, Rlimit { current: Some(current), maximum })
    };
    if limit(Some(own)).is_err() {
        skip(Need::Processors, "this needs the right to raise RLIMIT_NICE");
        return asked.end();
    }
    let renice = |nice: i32| asked.run(move || setpriority_process(None, nice).unwrap());
    let state = || (of_thread(asked.number), getpriority_process(Some(asked.number)).unwrap());
    let (shown, change, allow) = (&state, &renice, &limit);
    std::thread::scope(|scope| {
        let observer = scope.spawn(move || {
            let mut sets = capabilities(None).unwrap();
            sets.effective.remove(CapabilitySet::SYS_NICE);
            set_capabilities(None, sets).unwrap();
            // Changed while a processor is shared: what can be given back is.
            let moved = engine.move_to(processor).unwrap();
            change(own - 5);
            drop(moved);
            assert_eq!(shown(), (before, own));
            // Changed before.
            change(own - 5);
            assert!(engine.move_to(processor).is_none());
            assert_eq!(shown(), (before, own - 5));
            change(own);
            allow(None).unwrap();
            assert!(engine.move_to(processor).is_none());
            assert_eq!(shown(), (before, own));
            // Nothing can be given back at first.
            allow(Some(own)).unwrap();
            let moved = engine.move_to(processor).unwrap();
            allow(None).unwrap();
            drop(moved);
            engine.regain();
            assert!(engine.is_lost() && shown().0.0 == libc::SCHED_IDLE);
            allow(Some(own)).unwrap();
            engine.regain();
            assert!(!engine.is_lost());
            assert_eq!(shown(), (before, own));
            assert!(engine.move_to(processor).is_some());
            assert_eq!(shown(), (before, own));
        });
        observer.join().unwrap();
    });
    setrlimit(Resource::Nice, limits).unwrap();
    asked.end();
}

/// A set of processors for threads (cpuset(7)), until it is dropped.
struct Cpuset {
    above: PathBuf,
    here: PathBuf,
}

impl Cpuset {
    /// `None`, with a message, where that is impossible.
    fn new(processors: &str) -> Option<Cpuset> {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let own = groups.lines().find_map(|line| line.split_once(":cpuset:/")).map_or("", |(_, own)| own);
        let above = Path::new("/sys/fs/cgroup/cpuset").join(own);
        let here = above.join(format!("seekless-test-{}", std::process::id()));
        let nodes = fs::read_to_string(above.join("cpuset.mems")).unwrap_or_default();
        let made = fs::create_dir(&here)
            .and_then(|()| fs::write(here.join("cpuset.mems"), nodes))
            .and_then(|()| fs::write(here.join("cpuset.cpus"), processors));
        if let Err(error) = &made {
            skip(Need::Cpuset, format_args!("no cpuset {} for threads (version 1): {error}", here.display()));
        }
        made.ok().map(|()| Cpuset { above, here })
    }

    fn add(&self, thread: Pid) {
        fs::write(self.here.join("tasks"), number_of(thread).to_string()).unwrap();
    }

    fn allow(&self, processors: &str) {
        fs::write(self.here.join("cpuset.cpus"), processors).unwrap();
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        let threads = fs::read_to_string(self.here.join("tasks")).unwrap_or_default();
        for thread in threads.lines() {
            let _ = fs::write(self.above.join("tasks"), thread);
        }
        let _ = fs::remove_dir(&self.here);
    }
}

/// Whenever the observer ends, the engine thread is as before; so it is if there is no such program.
#[test]
fn the_engine_thread_is_as_before_at_the_end() {
    /// On a busy machine the observer may be late again and again.
    const PATIENCE: Duration = Duration::from_secs(60);
    let Some(_alone) = can_share() else { return };
    for (program, periods) in [(0, 10), (u32::MAX, 10), (1, 0), (1, 3), (1, 100)] {
        let engine = std::thread::spawn(move || {
            let before = of_thread(gettid());
            let program = if program == 1 { number_of(gettid()) } else { program };
            let begun = |sharing: &Sharing| sharing.counters()[0].1;
            let sharing = Sharing::start(ShareWhen::Possible);
            let deadline = Instant::now() + PATIENCE;
            let shares = program != 0 && program != u32::MAX;
            while shares && begun(&sharing) == 0 {
                assert!(Instant::now() < deadline, "it never shared");
                sharing.note(program);
                std::thread::sleep(PERIOD / 4);
            }
            for _ in 0..periods {
                sharing.note(program);
                std::thread::sleep(PERIOD);
            }
            assert_eq!(begun(&sharing) > 0, shares, "{program}");
            drop(sharing);
            assert_eq!(of_thread(gettid()), before, "P1 {program}");
        });
        engine.join().unwrap();
    }
}

/// An engine thread that starves is seen while it waits, and not only at the end of its wait. Method: it reads a pipe on a processor
/// on which another thread computes.
#[test]
fn starving_is_seen_while_it_lasts() {
    let Some(_alone) = can_share() else { return };
    let ((asked, ask), (sender, receiver)) = (pipe_with(PipeFlags::CLOEXEC).unwrap(), mpsc::channel());
    let thread = std::thread::spawn(move || {
        sender.send(Engine::this_thread().unwrap()).unwrap();
        while rustix::io::read(&asked, &mut [0]) == Ok(1) {}
    });
    let (engine, shared, [processor, _]) = (receiver.recv().unwrap(), Shared::default(), two_processors());
    let mut observer = Observer::new(&shared, &engine);
    let busy = Busy::start(processor);
    observer.moved = Some(engine.move_to(processor).unwrap());
    let is_seen = (0..500).any(|_| {
        rustix::io::write(&ask, &[0]).unwrap();
        std::thread::sleep(PERIOD);
        observer.look().unwrap().is_waiting
    });
    drop((observer, busy, ask));
    thread.join().unwrap();
    assert!(is_seen);
}

/// A program that makes requests and then computes keeps another one from the engine for a short time only. Method: real threads, the
/// program's on one processor and another one on a second; how long each request of that one waits.
#[test]
fn a_program_that_computes_holds_up_no_other() {
    const ROUNDS: u32 = 25;
    /// The observer gives the engine thread its policy back after two periods, 4 ms, if it gets a processor itself. On a busy machine
    /// both wait for one; an engine thread that is not given it back waits 100 to 500 ms.
    const WAIT_MAX: Duration = Duration::from_millis(50);
    let Some(_alone) = can_share() else { return };
    let (asked, ask) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (answered, answer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
    let (sender, receiver) = mpsc::channel();
    let engine = std::thread::spawn(move || {
        let sharing = Sharing::start(ShareWhen::Possible);
        sender.send(gettid()).unwrap();
        let mut program = [0; 4];
        while rustix::io::read(&asked, &mut program) == Ok(4) {
            sharing.note(u32::from_ne_bytes(program));
            rustix::io::write(&answer, &[0]).unwrap();
        }
    });
    let (thread, [here, there]) = (receiver.recv().unwrap(), two_processors());
    let request = || {
        rustix::io::write(&ask, &number_of(gettid()).to_ne_bytes()).unwrap();
        assert_eq!(rustix::io::read(&answered, &mut [0]), Ok(1));
    };
    let one_round = |round: u32| {
        let (computes, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                stay_at(here);
                while of_thread(thread).0 != libc::SCHED_IDLE {
                    request();
                }
                computes.store(true, Ordering::Relaxed);
                while !is_over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let other = scope.spawn(|| {
                stay_at(there);
                while !computes.load(Ordering::Relaxed) {
                    std::thread::sleep(PERIOD / 10);
                }
                std::thread::sleep(PERIOD / ROUNDS * round);
                let begun = Instant::now();
                request();
                is_over.store(true, Ordering::Relaxed);
                begun.elapsed()
            });
            other.join().unwrap()
        })
    };
    let mut waits: Vec<Duration> = (0..ROUNDS).map(one_round).collect();
    drop(ask);
    engine.join().unwrap();
    waits.sort();
    eprintln!("waits: {waits:.1?}");
    assert!(waits[waits.len() / 2] < WAIT_MAX, "P1: {waits:?}");
}
