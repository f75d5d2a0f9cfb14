//! Aim: virtual time is exact and replays from its seed. Method: small tasks that log what they see.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use super::*;

/// Time jumps to the next timer and nowhere else.
#[test]
fn virtual_time_jumps_from_timer_to_timer() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let seen = executor.block_on(async move {
        rt.sleep(Nanos(7)).await;
        let first = rt.now();
        rt.sleep(Nanos::from_secs(3_600)).await;
        (first, rt.now())
    });
    assert_eq!(seen, Ok((Nanos(7), Nanos(7 + 3_600_000_000_000))));
}

fn interleaving(seed: u64) -> Vec<(u64, u64)> {
    let executor = Executor::simulated(seed, HostProfile::NONE);
    let rt = executor.rt().clone();
    let log = Rc::new(RefCell::new(Vec::new()));
    let shared = log.clone();
    let done = executor.block_on(async move {
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let (inner, log) = (rt.clone(), shared.clone());
                rt.spawn(async move {
                    for step in 0..4 {
                        log.borrow_mut().push((task, inner.now().0));
                        if step % 2 == 0 { inner.yield_now().await } else { inner.sleep(Nanos(step)).await }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
    });
    assert_eq!(done, Ok(()));
    log.take()
}

/// One seed is one interleaving; another seed is another.
#[test]
fn the_seed_decides_the_interleaving() {
    assert_eq!(interleaving(1), interleaving(1));
    assert_ne!(interleaving(1), interleaving(2));
}

/// Waiting for an event that cannot happen is an error, not a hang.
#[test]
fn a_stalled_run_says_so() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let event = Event::new();
    assert_eq!(executor.block_on(event.wait()), Err(Stalled));
}

/// A task that is woken several times before it runs is polled once, in whichever ways it was woken; one that has ended is polled
/// no more. Method: a task that counts its polls, woken by its waker, as a sleeper, and by both in either order.
#[test]
fn a_task_is_in_the_ready_queue_once() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let polls = Rc::new(Cell::new(0));
    let handles: Rc<RefCell<Vec<(Waker, Sleeper)>>> = Rc::default();
    let (inner, counted, given) = (rt.clone(), polls.clone(), handles.clone());
    rt.spawn(poll_fn(move |context| {
        counted.set(counted.get() + 1);
        given.borrow_mut().extend((0..2).map(|_| (context.waker().clone(), inner.sleeper(context.waker()))));
        if counted.get() < 6 { Poll::Pending } else { Poll::Ready(()) }
    }));
    let done = executor.block_on(async move {
        for round in 1..=7 {
            rt.sleep(Nanos(1)).await;
            assert_eq!(polls.get(), round.min(6));
            let mut last = None;
            for (index, (waker, sleeper)) in handles.take().into_iter().enumerate() {
                match (round + index) % 4 {
                    0 | 1 => waker.wake_by_ref(),
                    _ => rt.wake(sleeper),
                }
                last = Some(waker);
            }
            if let (6, Some(waker)) = (round, last) {
                handles.borrow_mut().push((waker.clone(), rt.sleeper(&waker)));
            }
        }
    });
    assert_eq!(done, Ok(()));
}

/// A run that does not end is given up, whether it keeps running or keeps sleeping.
#[test]
fn limits_end_a_run() {
    let limits = Limits { events: 1_000, until: Nanos::from_secs(1) };
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    assert_eq!(executor.block_on_within(limits, rt.sleep(Nanos::from_secs(1))), Ok(()));
    let busy = async {
        loop {
            rt.yield_now().await;
        }
    };
    assert_eq!(executor.block_on_within::<()>(limits, busy), Err(Unfinished::Events(1_000)));
    let sleepy = async {
        loop {
            rt.sleep(Nanos::from_millis(100)).await;
        }
    };
    assert_eq!(executor.block_on_within::<()>(limits, sleepy), Err(Unfinished::Time(limits.until)));
}

/// The processor serves one charge at a time.
#[test]
fn charges_queue_for_the_one_processor() {
    let profile = HostProfile { call: Nanos(100), ..HostProfile::NONE };
    let executor = Executor::simulated(1, profile);
    let rt = executor.rt().clone();
    let finished = executor.block_on(async move {
        let inner = rt.clone();
        let other = rt.spawn(async move { inner.charge(Work::Call).await });
        rt.charge(Work::Call).await;
        other.await;
        (rt.now(), rt.cpu_busy())
    });
    assert_eq!(finished, Ok((Nanos(200), Nanos(200))));
}

/// A gate lets one task through at a time.
#[test]
fn a_gate_is_exclusive() {
    let executor = Executor::simulated(3, HostProfile::NONE);
    let rt = executor.rt().clone();
    let gate = Rc::new(Gate::new());
    let done = executor.block_on(async move {
        let inside = Rc::new(RefCell::new(0));
        let tasks: Vec<_> = (0..5)
            .map(|_| {
                let (rt2, gate, inside) = (rt.clone(), gate.clone(), inside.clone());
                rt.spawn(async move {
                    let pass = gate.enter().await;
                    *inside.borrow_mut() += 1;
                    assert_eq!(*inside.borrow(), 1);
                    rt2.sleep(Nanos(10)).await;
                    *inside.borrow_mut() -= 1;
                    drop(pass);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        rt.now()
    });
    assert_eq!(done, Ok(Nanos(50)));
}

/// The message of a panic.
fn complaint(run: impl FnOnce()) -> String {
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).expect_err("it ends in a panic");
    panic.downcast_ref::<String>().cloned().unwrap_or_default()
}

/// Tasks that wait for nothing are detected and named, in both forms: one whose turn never ends, and two that wake each
/// other while the clock does not move.
#[test]
fn a_task_that_spins_is_named() {
    let said = complaint(|| {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let event = Event::new();
        let _ = executor.block_on(async {
            let spinning = rt.spawn(async move {
                loop {
                    drop(event.wait());
                }
            });
            rt.sleep(Nanos::from_secs(1)).await;
            spinning.await
        });
    });
    assert!(said.contains("rt/tests.rs") && said.contains("it spins"), "{said}");
    let said = complaint(|| {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let _ = executor.block_on(async {
            let inner = rt.clone();
            rt.spawn(async move {
                inner.name_task("a task without end");
                loop {
                    inner.yield_now().await;
                }
            });
            rt.sleep(Nanos::from_secs(1)).await;
        });
    });
    assert!(said.contains("a task without end") && said.contains("the clock does not move"), "{said}");
}

/// A long life that never waits is no task that spins, as long as it makes progress. Method: more calls in one turn, and
/// more turns of one instant, than either limit allows without progress.
#[test]
fn long_work_that_makes_progress_is_not_stopped() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let done = executor.block_on(async {
        for _ in 0..6 {
            for _ in 0..100_000 {
                rt.now();
            }
            rt.made_progress();
        }
        for _ in 0..3 {
            for _ in 0..120_000 {
                rt.yield_now().await;
            }
            rt.made_progress();
        }
        rt.now()
    });
    assert_eq!(done, Ok(Nanos(0)));
}
