//! Cost of an event of the simulation, in nanoseconds of processor time: `cargo bench -p seekless --bench executor`.
//!
//! An event is one poll of a task, with its cause: a timer that fired, a wake, the choice among ready tasks. Each line
//! is the best of several runs, because other load on the machine only adds time.

#![allow(clippy::disallowed_methods)]

use std::rc::Rc;

use cpu_time::ProcessTime;
use seekless::rng::Rng;
use seekless::rt::{Event, Executor, HostProfile, Rt};
use seekless::units::Nanos;

/// Events of one run, about.
const EVENTS: u64 = 1_000_000;
const RUNS: u32 = 5;

/// Runs `program` to its end and reports what an event costs.
fn report(what: &str, program: impl AsyncFn(Rt)) {
    let (mut best, mut events) = (f64::INFINITY, 0);
    for _ in 0..RUNS {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let start = ProcessTime::now();
        executor.block_on(program(rt)).expect("the program ends");
        let seconds = start.elapsed().as_secs_f64();
        events = executor.events();
        best = best.min(seconds / events as f64);
    }
    println!("{what:<52} {events:>10} events  {:>6.1} ns each", best * 1e9);
}

/// Starts `tasks` copies of a task and waits for all of them.
async fn together(rt: &Rt, tasks: u64, task: impl AsyncFn(Rt, u64) + 'static) {
    let task = Rc::new(task);
    let handles: Vec<_> = (0..tasks)
        .map(|number| {
            let (inner, task) = (rt.clone(), task.clone());
            rt.spawn(async move { task(inner, number).await })
        })
        .collect();
    for handle in handles {
        handle.await;
    }
}

fn main() {
    for tasks in [1, 10, 100, 1000] {
        report(&format!("sleep, {tasks} tasks, random times"), async |rt| {
            together(&rt, tasks, async move |rt, number| {
                let mut rng = Rng::new(number);
                for _ in 0..EVENTS / tasks {
                    rt.sleep(Nanos(1 + rng.below(10_000_000))).await;
                }
            })
            .await;
        });
    }
    for tasks in [1, 10, 100, 1000] {
        report(&format!("sleep, {tasks} tasks, all at the same times"), async |rt| {
            together(&rt, tasks, async move |rt, _| {
                for _ in 0..EVENTS / tasks {
                    rt.sleep(Nanos(1000)).await;
                }
            })
            .await;
        });
    }
    for tasks in [1, 10, 1000] {
        report(&format!("yield, {tasks} tasks"), async |rt| {
            together(&rt, tasks, async move |rt, _| {
                for _ in 0..EVENTS / tasks {
                    rt.yield_now().await;
                }
            })
            .await;
        });
    }
    report("spawn and join, one after another (2 events each)", async |rt| {
        for _ in 0..EVENTS / 2 {
            rt.spawn(async {}).await;
        }
    });
    report("two tasks that wake each other through events", async |rt| {
        let events = Rc::new([Event::new(), Event::new()]);
        together(&rt, 2, async move |rt, number| {
            let (mine, other) = (&events[number as usize], &events[1 - number as usize]);
            if number == 0 {
                rt.sleep(Nanos(1)).await; // The other is already waiting.
            }
            for _ in 0..EVENTS / 2 {
                match number {
                    0 => {
                        let answered = mine.wait();
                        other.notify();
                        answered.await;
                    }
                    _ => {
                        mine.wait().await;
                        other.notify();
                    }
                }
            }
        })
        .await;
    });
}
