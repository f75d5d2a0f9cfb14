//! Aim: both backends behave the same, lose nothing and leak nothing. Method: each check runs on each backend.

use std::cell::RefCell;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Instant;

use futures_util::future::{join_all, poll_fn};
use rustix::pipe::PipeFlags;
use seekless::rt::Stalled;

use super::*;
use crate::testing::{Need, skip};

/// Runs `check` on an engine of each backend available on this machine.
fn on_each_backend(check: impl Fn(&Reactor, &Executor)) {
    for backend in [Backend::Uring, Backend::Pool] {
        match Reactor::new(ReactorOptions { backend, ..ReactorOptions::default() }) {
            Ok(reactor) => check(&reactor, &reactor.executor()),
            Err(error) => skip(Need::Uring, format_args!("no {backend:?}: {error}")),
        }
    }
}

fn scratch(bytes: u64) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(bytes).unwrap();
    Arc::new(OwnedFd::from(file))
}

/// Timers fire in the order of their deadlines and never early.
#[test]
fn timers_fire_in_order() {
    on_each_backend(|_, executor| {
        let rt = executor.rt().clone();
        let log = Rc::new(RefCell::new(Vec::new()));
        let seen = log.clone();
        executor
            .block_on(async move {
                let tasks: Vec<_> = [900, 300, 600, 0]
                    .into_iter()
                    .map(|millis| {
                        let (inner, seen) = (rt.clone(), seen.clone());
                        rt.spawn(async move {
                            let start = inner.now();
                            inner.sleep(Nanos::from_millis(millis)).await;
                            assert!(inner.now() - start >= Nanos::from_millis(millis));
                            seen.borrow_mut().push(millis);
                        })
                    })
                    .collect();
                join_all(tasks).await;
            })
            .unwrap();
        assert_eq!(*log.borrow(), [0, 300, 600, 900]);
    });
}

/// Many operations at once, more than the ring has entries: data is read back.
#[test]
fn many_operations_are_outstanding_at_once() {
    const PIECES: u64 = 600;
    const PIECE: usize = 4096;
    on_each_backend(|reactor, executor| {
        let file = scratch(PIECES * PIECE as u64);
        executor
            .block_on(async {
                let writes = (0..PIECES).map(|piece| {
                    let data = Data::from_slice(&[piece as u8; PIECE]);
                    reactor.write_at(&file, piece * PIECE as u64, data, piece % 97 == 0)
                });
                assert!(join_all(writes).await.into_iter().all(|written| written == Ok(PIECE)));
                reactor.sync(&file, false).await.unwrap();
                let reads = (0..PIECES).map(|piece| {
                    let buf = Buf::zeroed(PIECE);
                    reactor.read_at(&file, piece * PIECE as u64, buf, 0)
                });
                for (piece, (read, buf)) in join_all(reads).await.into_iter().enumerate() {
                    assert_eq!(read, Ok(PIECE));
                    assert!(buf.iter().all(|&byte| byte == piece as u8));
                }
            })
            .unwrap();
    });
}

/// A read starts at the given offset, ends short at the end of the file, and errors are returned unchanged.
#[test]
fn results_are_what_the_system_call_says() {
    on_each_backend(|reactor, executor| {
        let file = scratch(100);
        let (read_end, _write_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        executor
            .block_on(async {
                let mut buf = Buf::zeroed(64);
                buf[..10].fill(7);
                let (read, buf) = reactor.read_at(&file, 60, buf, 10).await;
                assert_eq!(read, Ok(40));
                assert!(buf[..10].iter().all(|&byte| byte == 7) && buf[10..].iter().all(|&byte| byte == 0));
                let (read, _) = reactor.read_at(&file, 100, buf, 0).await;
                assert_eq!(read, Ok(0));
                let pipe: File = Arc::new(read_end);
                assert_eq!(reactor.sync(&pipe, true).await, Err(Errno::INVAL));
                let punched = reactor.fallocate(&pipe, FallocateFlags::empty(), 0, 1).await;
                assert!(matches!(punched, Err(Errno::SPIPE | Errno::BADF)), "{punched:?}");
            })
            .unwrap();
    });
}

/// `readable` completes when there is something to read, and not before.
#[test]
fn readable_waits_for_input() {
    on_each_backend(|reactor, executor| {
        let (read_end, write_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let file: File = Arc::new(read_end);
        let rt = executor.rt().clone();
        let waited = executor
            .block_on(async move {
                let start = rt.now();
                let timer = rt.clone();
                drop(rt.spawn(async move {
                    timer.sleep(Nanos::from_millis(5)).await;
                    std::fs::File::from(write_end).write_all(b"x").unwrap();
                }));
                reactor.readable(&file).await;
                reactor.readable(&file).await; // Level-triggered: still readable.
                rt.now() - start
            })
            .unwrap();
        assert!(waited >= Nanos::from_millis(5), "{waited:?}");
    });
}

/// A dropped wait releases its file, and a dropped read keeps its buffer until the kernel is done with it.
#[test]
fn dropped_futures_leave_nothing_behind() {
    on_each_backend(|reactor, executor| {
        let (read_end, write_end) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let file: File = Arc::new(read_end);
        let disk = scratch(1 << 20);
        let rt = executor.rt().clone();
        executor
            .block_on(async {
                {
                    let mut wait = Box::pin(reactor.readable(&file));
                    let mut read = Box::pin(reactor.read_at(&disk, 0, Buf::zeroed(1 << 20), 0));
                    poll_fn(|context| {
                        assert!(wait.as_mut().poll(context).is_pending());
                        // The pool may already be done.
                        let _ = read.as_mut().poll(context);
                        Poll::Ready(())
                    })
                    .await;
                }
                drop(file);
                rt.sleep(Nanos::from_millis(20)).await;
            })
            .unwrap();
        assert_eq!(reactor.0.driver.in_flight(), 0);
        // The other end sees that the pipe has no more readers; a program that another test starts may have it for a moment.
        let begun = Instant::now();
        let write = || rustix::io::write(&write_end, b"x");
        while write() == Ok(1) && begun.elapsed() < Duration::from_secs(30) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(write(), Err(Errno::PIPE));
    });
}

/// A thread unknown to the reactor wakes a task while the engine thread waits.
#[test]
fn other_threads_wake_tasks() {
    on_each_backend(|reactor, executor| {
        let _guard = reactor.expect_wakes();
        let flag = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let mut thread = None;
        executor
            .block_on(poll_fn(|context| {
                if flag.load(std::sync::atomic::Ordering::SeqCst) {
                    return Poll::Ready(());
                }
                if thread.is_none() {
                    let (flag, waker) = (flag.clone(), context.waker().clone());
                    thread = Some(std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_millis(10));
                        flag.store(true, std::sync::atomic::Ordering::SeqCst);
                        waker.wake();
                    }));
                }
                Poll::Pending
            }))
            .unwrap();
    });
}

/// Long work runs on other threads: timers keep firing.
#[test]
fn compute_does_not_hold_up_the_engine() {
    on_each_backend(|_, executor| {
        let rt = executor.rt().clone();
        let ticks = Arc::new(AtomicU32::new(0));
        let (counted, seen) = (ticks.clone(), ticks.clone());
        executor
            .block_on(async move {
                let slow = {
                    let inner = rt.clone();
                    rt.spawn(async move {
                        inner
                            .compute(move || {
                                assert_eq!(std::thread::current().name(), Some("seekless-cpu"));
                                let begun = Instant::now();
                                while seen.load(Ordering::Relaxed) < 5 && begun.elapsed() < Duration::from_secs(60) {
                                    std::thread::sleep(Duration::from_millis(1));
                                }
                            })
                            .await;
                    })
                };
                while !slow.is_finished() {
                    rt.sleep(Nanos::from_millis(1)).await;
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            })
            .unwrap();
        let ticks = ticks.load(Ordering::Relaxed);
        assert!(ticks >= 5, "{ticks} ticks of 1 ms while another thread works");
    });
}

/// H4: a panic on a worker thread ends the engine instead of leaving a task waiting.
#[test]
fn a_panic_on_a_worker_ends_the_engine() {
    on_each_backend(|reactor, executor| {
        let ended =
            catch_unwind(AssertUnwindSafe(|| executor.block_on(reactor.blocking(|| panic!("aim, then shoot")))));
        let message = *ended.unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("aim, then shoot"), "{message}");
    });
}

/// Waiting for an event that cannot happen is an error, not a hang.
#[test]
fn a_stall_is_reported() {
    on_each_backend(|reactor, executor| {
        executor.block_on(reactor.blocking(|| ())).unwrap();
        assert_eq!(executor.block_on(std::future::pending::<()>()), Err(Stalled));
    });
}

/// Signals arrive as events, instead of their default action.
#[test]
fn signals_are_events() {
    on_each_backend(|reactor, executor| {
        let signals = Signals::new(&[libc::SIGUSR2]).unwrap();
        let rt = executor.rt().clone();
        let got = executor
            .block_on(async {
                let engine = rt.clone();
                drop(rt.spawn(async move {
                    engine.sleep(Nanos::from_millis(2)).await;
                    // SAFETY: sends a signal to this thread, where it is blocked.
                    unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGUSR2) };
                }));
                signals.next(reactor).await
            })
            .unwrap();
        assert_eq!(got, libc::SIGUSR2);
    });
}

/// A task that does not return is noticed and named once, and so is its return; a waiting task is not. Method: a
/// watchdog with a short timeout, and a task that blocks the engine's thread.
#[test]
fn the_watchdog_names_what_does_not_yield() {
    let reactor = Reactor::new(ReactorOptions::default()).unwrap();
    let executor = reactor.executor();
    let (say, said) = std::sync::mpsc::channel();
    let patience = std::time::Duration::from_millis(400);
    let pulse = executor.pulse().unwrap();
    let watchdog = watchdog::Watchdog::with(pulse, patience, move |sign| drop(say.send(sign)));
    let rt = executor.rt().clone();
    let run = async {
        rt.sleep(Nanos::from_millis(1_000)).await;
        let inner = rt.clone();
        let stuck = rt.spawn(async move {
            inner.name_task("a task that holds up everything");
            inner.yield_now().await;
            std::thread::sleep(std::time::Duration::from_millis(1_500));
        });
        stuck.await;
        rt.sleep(Nanos::from_millis(1_000)).await;
    };
    executor.block_on(run).unwrap();
    drop(watchdog);
    let said: Vec<watchdog::Sign> = said.into_iter().collect();
    match &said[..] {
        [watchdog::Sign::Stuck(name, duration), watchdog::Sign::GoesOn] => {
            assert_eq!(name, "a task that holds up everything");
            assert!(*duration >= patience, "{duration:?}");
        }
        other => panic!("{other:?}"),
    }
}

/// A file that is readable soon, late, or closed is noticed each time, while timers, I/O and other tasks go on. Method: a
/// thread that answers each byte after a pause, mostly at once, sometimes later than the engine looks for it.
#[test]
fn busy_polling_misses_nothing() {
    const ROUNDS: u32 = 1_500;
    on_each_backend(|reactor, executor| {
        let (asked, ask) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let (answered, answer) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC).unwrap();
        let answering = std::thread::spawn(move || {
            let mut byte = [0];
            for round in 0.. {
                if rustix::io::read(&asked, &mut byte).unwrap() == 0 {
                    return;
                }
                // Bursts, then pauses around the time for which the engine looks.
                match round % 100 {
                    0..60 => {}
                    late => std::thread::sleep(Duration::from_micros((late - 60) * 8)),
                }
                rustix::io::write(&answer, &byte).unwrap();
            }
        });
        let (rt, file, beside) = (executor.rt().clone(), scratch(4096), Rc::new(Cell::new(0)));
        let (inner, busy, ticks) = (rt.clone(), reactor.clone(), beside.clone());
        drop(rt.spawn(async move {
            loop {
                inner.sleep(Nanos::from_micros(100)).await;
                busy.write_at(&file, 0, Data::zeroes(512), false).await.unwrap();
                ticks.set(ticks.get() + 1);
            }
        }));
        let answered: File = Arc::new(answered);
        let run = async {
            for round in 0..ROUNDS {
                rustix::io::write(&ask, &[round as u8]).unwrap();
                reactor.readable_soon(&rt, &answered).await;
                let mut byte = [0];
                assert_eq!(rustix::io::read(&*answered, &mut byte), Ok(1));
                assert_eq!(byte, [round as u8]);
            }
            drop(ask);
            // Its end is noticed, too.
            reactor.readable_soon(&rt, &answered).await;
            assert_eq!(rustix::io::read(&*answered, &mut [0]), Ok(0));
        };
        executor.block_on(run).unwrap();
        answering.join().unwrap();
        assert!(beside.get() > 0);
        let count = |name| reactor.counters().iter().find(|(found, _)| *found == name).unwrap().1;
        assert!(count("busy_polls_found") <= count("busy_polls"));
    });
}

/// A processor is shared until the last of several mounts that ask for it has ended.
#[test]
fn the_last_share_ends_sharing() {
    on_each_backend(|reactor, _| {
        let is_counted = || reactor.counters().iter().any(|(name, _)| *name == "processor_shares");
        let first = reactor.share_processor(ShareWhen::Faster);
        let second = reactor.share_processor(ShareWhen::Faster);
        drop(first);
        assert!(is_counted());
        drop(second);
        assert!(!is_counted());
        drop(reactor.share_processor(ShareWhen::Faster));
        assert!(!is_counted());
    });
}
