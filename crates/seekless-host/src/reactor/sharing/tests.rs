//! Real threads in the place of the engine thread.

use std::sync::mpsc;

use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity};

use super::*;

/// A thread's policy and processors.
fn of_thread(thread: Pid) -> (i32, CpuSet) {
    // SAFETY: the call takes a number.
    (unsafe { libc::sched_getscheduler(thread.as_raw_nonzero().get()) }, sched_getaffinity(Some(thread)).unwrap())
}

/// False, with a message, where threads may not change their policy.
fn can_share() -> bool {
    let can = std::thread::spawn(sys::can_return).join().unwrap() && sched_getaffinity(None).unwrap().count() > 1;
    if !can {
        eprintln!("skipped: this needs two processors, and CAP_SYS_NICE");
    }
    can
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
        assert!(Sharing::start().observer.is_none());
    });
    ran.join().unwrap();
}

/// Whatever the observer decides, and whenever it ends, the engine thread is as before; so it is if there is no such program.
#[test]
fn the_engine_thread_is_as_before_at_the_end() {
    for program in [0, u32::MAX, gettid().as_raw_nonzero().get().cast_unsigned()] {
        let (sender, receiver) = mpsc::channel();
        let engine = std::thread::spawn(move || {
            let before = of_thread(gettid());
            let sharing = Sharing::start();
            for _ in 0..200 {
                // More while the processor is shared, so that it pays.
                (0..if sharing.is_together() { 100 } else { 40 }).for_each(|_| sharing.note(program));
                sharing.wake();
                std::thread::sleep(Duration::from_micros(500));
            }
            sender.send(sharing.counters()).unwrap();
            drop(sharing);
            assert_eq!(of_thread(gettid()), before, "{program}");
        });
        engine.join().unwrap();
        let [(_, begun), (_, moves)] = receiver.recv().unwrap();
        let is_there = program != 0 && program != u32::MAX;
        assert!(is_there || begun + moves == 0, "{program}: {begun}, {moves}");
    }
}
