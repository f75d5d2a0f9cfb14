//! The queue against an oracle that looks at every waiting request.

use super::*;
use crate::disk::queue::{Queue, Ticket, Waiting};
use crate::rng::Rng;

/// Waiting requests in the order of their arrival. Of equal ones the first is best.
struct Oracle {
    scheduler: Scheduler,
    waiting: Vec<Waiting<u64>>,
}

impl Oracle {
    fn next(&mut self, now: Nanos, position: u64, mechanism: &Mechanism) -> Option<u64> {
        let cylinder = |sector| mechanism.track_of(sector).unwrap().cylinder;
        let here = mechanism.cylinder();
        let best = match self.scheduler {
            Scheduler::Fcfs => self.smallest(|_| 0),
            Scheduler::CLook => self.smallest(|waiting| {
                let at = waiting.request.sector.0;
                (at < position, at)
            }),
            Scheduler::Sstf => self.smallest(|waiting| cylinder(waiting.request.sector).abs_diff(here)),
            Scheduler::Sptf { age_micros } => self.smallest(|waiting| {
                let Request { sector, write, .. } = waiting.request;
                let overhead = &mechanism.drive().overhead;
                let pair = if write { overhead.write_miss } else { overhead.read_miss };
                let time = pair.get(mechanism.last_was_read);
                let time = time + mechanism.positioning(now + time, sector, write).unwrap();
                let age = u128::from(now.saturating_sub(waiting.arrived).0) * u128::from(age_micros) / 1000;
                i128::from(time.0) - age as i128
            }),
        }?;
        Some(self.waiting.remove(best).who)
    }

    fn smallest<K: Ord>(&self, key: impl Fn(&Waiting<u64>) -> K) -> Option<usize> {
        (0..self.waiting.len()).min_by_key(|&index| key(&self.waiting[index]))
    }
}

/// Aim: the order of service is that of a search through everything that waits, ties by arrival. Method: random
/// arrivals, many of them in few places, callers that give up, services, which move the heads, and heads that are anywhere after
/// requests that did not wait; on drives with and without head switch, with seeks that writes shorten, with read-ahead and with a
/// noisy seek curve.
#[test]
fn same_order_as_a_search() {
    let drives = ["dec-rz26", "st41601n", "cheetah9lp", "atlas10k", "nearline-4tb", "hp97560-wa99"];
    let mut schedulers = vec![Scheduler::Fcfs, Scheduler::CLook, Scheduler::Sstf];
    schedulers.extend([0, 1, 30, 1000, u32::MAX].map(|age_micros| Scheduler::Sptf { age_micros }));
    for (seed, (name, &scheduler)) in
        drives.iter().flat_map(|name| schedulers.iter().map(move |scheduler| (name, scheduler))).enumerate()
    {
        let mut rng = Rng::new(seed as u64);
        let mut mechanism = Mechanism::new(drive(name)).unwrap();
        let mut queue = Queue::new(scheduler);
        let mut oracle = Oracle { scheduler, waiting: Vec::new() };
        let mut tickets: Vec<(u64, Ticket)> = Vec::new();
        let (mut now, mut arrived, mut position, mut longest) = (Nanos::ZERO, Nanos::ZERO, 0, 0);
        // Of four requests, so many are in these places: with three, many wait at the same address.
        let in_places = [1, 3][seed % 2];
        let places: Vec<u64> = (0..20).map(|_| rng.below(mechanism.sectors() - 8)).collect();
        for step in 0..1500 {
            // Mostly fills for a while, then mostly empties.
            let filling = step / 250 % 2 == 0;
            if rng.chance(if filling { 3 } else { 1 }, 4) {
                let sector = match rng.below(4) {
                    kind if kind < in_places => *rng.pick(&places),
                    1 => (position + rng.below(3000)).min(mechanism.sectors() - 8),
                    _ => rng.below(mechanism.sectors() - 8),
                };
                let request = if rng.chance(1, 3) { write(sector, 8) } else { read(sector, 8) };
                arrived = arrived.max(Nanos(now.0.saturating_sub(rng.below(3_000_000))));
                let waiting = || Waiting { arrived, request, who: step };
                tickets.push((step, queue.push(waiting(), &mechanism)));
                oracle.waiting.push(waiting());
            } else if rng.chance(1, 10) && !tickets.is_empty() {
                let (who, ticket) = tickets.swap_remove(rng.below(tickets.len() as u64) as usize);
                assert_eq!(queue.remove(ticket).map(|waiting| waiting.who), Some(who));
                assert!(queue.remove(ticket).is_none(), "a ticket is good for once");
                oracle.waiting.retain(|waiting| waiting.who != who);
            } else {
                if (queue.len() == 0 && rng.chance(1, 2)) || rng.chance(1, 50) {
                    let request = read(rng.below(mechanism.sectors() - 8), 8);
                    now = mechanism.service(now, now, request).unwrap().done;
                    position = request.sector.0 + 8;
                }
                let best = queue.next(now, position, &mechanism);
                let who = best.as_ref().map(|(_, waiting)| waiting.who);
                assert_eq!(who, oracle.next(now, position, &mechanism), "{name}, {scheduler:?}, step {step}");
                if let Some((ticket, Waiting { request, who, .. })) = best {
                    let given_back = tickets.iter().position(|&(other, _)| other == who).unwrap();
                    assert_eq!(tickets.swap_remove(given_back).1, ticket);
                    assert!(queue.remove(ticket).is_none(), "it waits no longer");
                    now = mechanism.service(now, now, request).unwrap().done + Nanos(rng.below(1_000_000));
                    position = request.sector.0 + u64::from(request.sectors);
                }
            }
            queue.check();
            assert_eq!(queue.len(), oracle.waiting.len());
            longest = longest.max(queue.len());
        }
        assert!(longest > 60, "{longest} at most waited");
    }
}

/// Aim: many requests at few addresses are served in the order of a search, also where callers give up in between, and each choice costs few
/// steps: with a heap that moves each request that is passed, this test takes minutes. Method: 30,000 requests at three addresses, within
/// one request's length of each other.
#[test]
fn many_wait_at_one_address() {
    let mechanism = Mechanism::new(drive("cheetah9lp")).unwrap();
    for gives_up in [false, true] {
        let mut queue = Queue::new(Scheduler::CLook);
        let waiting = |who: u64| Waiting { arrived: Nanos::ZERO, request: read(1000 + who % 3 * 4, 8), who };
        let tickets: Vec<Ticket> = (0..30_000).map(|who| queue.push(waiting(who), &mechanism)).collect();
        let is_gone = |who: u64| gives_up && who % 7 < 4;
        let mut next: Vec<u64> = vec![0, 1, 2];
        let mut position = 0;
        for served in 0.. {
            if served == 5000 {
                tickets.iter().enumerate().filter(|(who, _)| is_gone(*who as u64)).for_each(|(_, ticket)| {
                    queue.remove(*ticket);
                });
                queue.check();
            }
            let Some((_, Waiting { request, who, .. })) = queue.next(Nanos::ZERO, position, &mechanism) else { break };
            let at = |address: u64| 1000 + address * 4;
            // The first address at or after the place that has any left, and else the lowest.
            let left = |address: &u64| next[*address as usize] < 30_000;
            let after = (0..3).filter(left).find(|address| at(*address) >= position);
            let address = after.or_else(|| (0..3).find(left)).expect("some are left");
            assert_eq!((request.sector.0, who), (at(address), next[address as usize]), "{served} served");
            let later = |who: &u64| served < 5000 || !is_gone(*who);
            next[address as usize] = (1..).map(|step| who + 3 * step).find(later).expect("there is no end");
            if served == 4999 {
                for first in &mut next {
                    *first = (0..).map(|step| *first + 3 * step).find(|who| !is_gone(*who)).expect("there is no end");
                }
            }
            position = request.sector.0 + 8;
        }
        assert_eq!(queue.len(), 0);
        queue.check();
    }
}

/// Aim: callers that give up cost no more than others, and leave nothing behind. Method: many wait and all but a few leave, the
/// oldest first and the youngest first; what is left is served in order, and a queue in which most leave does not grow.
#[test]
fn many_give_up() {
    let mechanism = Mechanism::new(drive("cheetah9lp")).unwrap();
    for scheduler in [Scheduler::Fcfs, Scheduler::CLook, Scheduler::Sstf, Scheduler::Sptf { age_micros: 10 }] {
        for oldest_first in [false, true] {
            let mut queue = Queue::new(scheduler);
            let mut rng = Rng::new(1);
            let mut waiting =
                |who: u64| Waiting { arrived: Nanos::ZERO, request: read(rng.below(mechanism.sectors() - 8), 8), who };
            let mut tickets: Vec<(u64, Ticket)> =
                (0..40_000).map(|who| (who, queue.push(waiting(who), &mechanism))).collect();
            if !oldest_first {
                tickets.reverse();
            }
            for (who, ticket) in &tickets {
                if who % 1000 != 7 {
                    assert!(queue.remove(*ticket).is_some());
                }
            }
            queue.check();
            for who in 0..10_000 {
                let ticket = queue.push(waiting(who), &mechanism);
                assert!(queue.remove(ticket).is_some());
            }
            queue.check();
            let served = std::iter::from_fn(|| queue.next(Nanos::ZERO, 0, &mechanism));
            assert_eq!(served.filter(|(_, waiting)| waiting.who % 1000 == 7).count(), 40, "{scheduler:?}");
        }
    }
}

/// The bound by which SPTF stops its search holds for every distance, on every drive, for reads and writes.
#[test]
fn no_request_is_nearer_than_its_bound() {
    for drive in Drive::all() {
        let mut rng = Rng::new(7);
        let mut mechanism = Mechanism::new(drive).unwrap();
        let mut now = Nanos::ZERO;
        for _ in 0..200 {
            let (from, to) = (rng.below(mechanism.sectors()), rng.below(mechanism.sectors()));
            let request = if rng.chance(1, 2) { write(from, 1) } else { read(from, 1) };
            now = mechanism.service(now, now, request).unwrap().done;
            let spot = mechanism.spot(Sector(to));
            let distance = spot.track.cylinder.abs_diff(mechanism.cylinder());
            let time = [false, true].map(|write| mechanism.access_time(now, &spot, write));
            let least = mechanism.access_time_min(now, distance);
            let nearer = mechanism.access_time_min(now, distance / 2);
            assert!(nearer <= least && least <= time[0].min(time[1]), "{}: {least:?}, {time:?}", drive.name);
        }
    }
}
