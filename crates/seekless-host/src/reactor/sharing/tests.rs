//! Real threads in the place of the engine thread.

use std::sync::mpsc;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity};

use super::*;
use crate::testing::{Need, skip};

/// A thread's policy and processors.
fn of_thread(thread: Pid) -> (i32, CpuSet) {
    // SAFETY: the call takes a number.
    (unsafe { libc::sched_getscheduler(thread.as_raw_nonzero().get()) }, sched_getaffinity(Some(thread)).unwrap())
}

/// False, with a message, where threads may not change their policy.
fn can_share() -> bool {
    let can = || sys::can_return() && Engine::this_thread().is_some();
    let can = std::thread::spawn(can).join().unwrap();
    if !can {
        skip(Need::Processors, "this needs two processors, and CAP_SYS_NICE");
    }
    can
}

/// The first two processors that this process may use.
fn two_processors() -> [usize; 2] {
    let all = sched_getaffinity(None).unwrap();
    let mut usable = (0..CpuSet::MAX_CPU).filter(|&at| all.is_set(at));
    [usable.next().unwrap(), usable.next().unwrap()]
}

/// Binds the calling thread.
fn stay_at(processor: usize) {
    let mut only = CpuSet::new();
    only.set(processor);
    rustix::thread::sched_setaffinity(None, &only).unwrap();
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

/// The engine thread goes to a processor with the policy that leaves it to others, follows, and has both back at the end. A thread that it
/// starts in between is as any other.
#[test]
fn it_goes_there_and_back() {
    if !can_share() {
        return;
    }
    let ran = std::thread::spawn(|| {
        let engine = Engine::this_thread().unwrap();
        let before = of_thread(gettid());
        let usable: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&at| before.1.is_set(at)).collect();
        let mut moved = engine.move_to(usable[0]).unwrap();
        for at in [usable[1], usable[0]] {
            moved = moved.go_to(at).unwrap();
            let (policy, processors) = of_thread(gettid());
            assert!(policy == libc::SCHED_IDLE && processors.count() == 1 && processors.is_set(at));
            assert!(moved.is_at(at) && sys::processor_of(gettid().as_raw_nonzero().get().cast_unsigned()) == Some(at));
            let started = std::thread::spawn(|| {
                let inherited = of_thread(gettid());
                be_ordinary();
                (inherited, of_thread(gettid()))
            });
            assert_eq!(started.join().unwrap(), ((policy, processors), before), "P2");
        }
        drop(moved);
        assert_eq!(of_thread(gettid()), before, "P1");
        // One that it may not use.
        let unusable = (0..CpuSet::MAX_CPU).find(|&at| !before.1.is_set(at)).unwrap();
        assert!(engine.move_to(unusable).is_none() && engine.move_to(usize::MAX).is_none());
        assert_eq!(of_thread(gettid()), before);
    });
    ran.join().unwrap();
}

/// What the administrator has chosen stays: at the start, while a processor is shared, and after it.
#[test]
fn what_the_administrator_has_chosen_stays() {
    if !can_share() {
        return;
    }
    let ran = std::thread::spawn(|| {
        let engine = Engine::this_thread().unwrap();
        let all = of_thread(gettid()).1;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|&at| all.is_set(at));
        let (one, other) = (usable.next().unwrap(), usable.next().unwrap());
        let moved = engine.move_to(one).unwrap();
        let mut only = CpuSet::new();
        only.set(other);
        rustix::thread::sched_setaffinity(None, &only).unwrap();
        assert!(moved.go_to(one).is_none());
        assert_eq!(of_thread(gettid()), (libc::SCHED_OTHER, only));
        assert!(engine.move_to(one).is_none() && Engine::this_thread().is_none());
        assert!(Sharing::start(ShareWhen::Faster).observer.is_none());
    });
    ran.join().unwrap();
}

/// Whenever the observer ends, the engine thread is as before; so it is if there is no such program.
#[test]
fn the_engine_thread_is_as_before_at_the_end() {
    /// On a busy machine the observer may be late again and again.
    const PATIENCE: Duration = Duration::from_secs(60);
    if !can_share() {
        return;
    }
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
    if !can_share() {
        return;
    }
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
    if !can_share() {
        return;
    }
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
