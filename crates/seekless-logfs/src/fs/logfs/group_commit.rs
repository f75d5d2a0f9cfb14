//! Group commit: the callers of fsync that come while a commit is under way share the next one.
//!
//! A caller takes a *turn*, which most logs give to one caller at a time: it waits a little for others, closes the group
//! of the callers that have come, and has the log assemble one transaction of all their files. It keeps the turn until
//! that transaction is durable, and later callers gather in the next group until then. A disk takes about twice as long
//! for a transaction of eight small files as for one of a single file.
//!
//! A group that closed as soon as the last commit has ended would lack the callers of that commit, which are just about
//! to write their next records: two groups would alternate, and two writers would share nothing. So the turn's holder
//! waits for as many callers as there were when the last commit ended, but at most for an eighth of the time that it
//! took. A single caller never waits.
//!
//! Callers that do more between two fsyncs would wait for each other and share nothing. When a caller has waited and is
//! still alone, the next few transactions start at once, side by side, and twice as many each time that it happens again.
//!
//! All of this runs in the futures of the callers, and each of these may be dropped at any await.
//!
//! Invariants
//!   Q1  A caller returns only after a transaction that was assembled after the call, with the caller's file.
//!   Q2  A turn ends with its holder's future. A group that has no transaction by then still gets one: while it is
//!       open, from another of its callers; once it is closed, each of its callers starts its own.
//!   Q3  An error in assembling a transaction of several files is not passed on: each caller then starts its own.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::select;

use crate::fs::FsResult;
use crate::rt::{Event, Rt};
use crate::units::{Ino, Nanos};

/// What a log does for a group.
pub(in crate::fs) trait GroupLog {
    /// Number of turns, at least one.
    fn turns(&self) -> u64;

    /// Assembles a transaction of these files as they are then, and starts writing it. Returns its number in the log.
    ///
    /// # Errors
    /// Nothing has changed then.
    async fn start_transaction(&self, files: &BTreeSet<Ino>) -> FsResult<u64>;

    /// Waits until the transaction of this number is durable, for several callers at once.
    async fn until_durable(&self, number: u64) -> FsResult<()>;
}

/// The fsyncs of a volume.
#[derive(Default)]
pub(in crate::fs) struct GroupCommit {
    /// The group that callers join.
    open: RefCell<Rc<Group>>,
    /// Callers whose commit has not ended.
    callers: Cell<u64>,
    turns_taken: Cell<u64>,
    /// Signalled when a caller joins the open group.
    joined: Event,
    /// Signalled when a turn is free, and when a group has its transaction or will get none.
    advanced: Event,
    pace: Cell<GroupPace>,
}

/// How long the next groups stay open.
#[derive(Clone, Copy, Default)]
struct GroupPace {
    /// Callers when the last commit ended.
    callers: u64,
    /// Longest wait for as many.
    wait_max: Nanos,
    /// Groups that neither wait for callers nor for a turn.
    at_once: u64,
    /// Waits one after another whose caller stayed alone.
    waits_wasted: u32,
}

/// A commit takes so many times as long as the next group waits for callers, at least.
const COMMIT_PER_WAIT: u64 = 8;

/// Wasted waits are counted up to here. From then on one group in 65 waits, and an eighth of a commit in 65 is .2 %.
const WAITS_WASTED_MAX: u32 = 6;

#[derive(Default)]
struct Group {
    files: RefCell<BTreeSet<Ino>>,
    callers: Cell<u64>,
    /// One of them has a turn.
    has_turn: Cell<bool>,
    stage: Cell<Stage>,
    closed_at: Cell<Nanos>,
    /// The transaction is durable.
    has_ended: Cell<bool>,
}

#[derive(Clone, Copy, Default)]
enum Stage {
    #[default]
    Open,
    /// The transaction is being assembled.
    Closed,
    /// The transaction with this number is on its way.
    Started(u64),
    /// Each caller starts a transaction of its own.
    Apart,
}

/// A caller's place in a group.
struct GroupMembership<'a>(&'a GroupCommit, Rc<Group>);

impl Drop for GroupMembership<'_> {
    fn drop(&mut self) {
        let GroupMembership(commits, group) = self;
        debug_assert!(group.callers.get() > 0, "Q2: each caller of a group is counted until it leaves");
        group.callers.update(|callers| callers - 1);
        if !group.has_ended.get() {
            commits.callers.update(|callers| callers - 1);
        }
    }
}

/// A turn, held by a caller of this group.
struct Turn<'a>(&'a GroupCommit, &'a Group);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Turn(commits, group) = self;
        if let Stage::Closed = group.stage.get() {
            group.stage.set(Stage::Apart); // Q2, Q3
        }
        debug_assert!(group.has_turn.get(), "Q2: a turn is that of its group until it ends");
        debug_assert!(commits.turns_taken.get() > 0, "Q2: a turn that is held is counted");
        group.has_turn.set(false);
        commits.turns_taken.update(|turns| turns - 1);
        commits.advanced.notify();
    }
}

impl GroupCommit {
    /// Makes one file durable, with every change of the name space.
    ///
    /// # Errors
    /// Those of the log that the caller would meet without other callers. Where the storage below has no room for a
    /// transaction, its callers get `NoSpace`, as with the transactions of earlier callers.
    pub(in crate::fs) async fn commit(&self, rt: &Rt, log: &impl GroupLog, file: Ino) -> FsResult<()> {
        let GroupMembership(_, group) = &self.join(file);
        let turn = loop {
            let advanced = self.advanced.wait();
            match group.stage.get() {
                Stage::Open if let Some(turn) = self.take_turn(log, group) => break turn,
                Stage::Open | Stage::Closed => advanced.await,
                Stage::Started(number) => return self.until_durable(rt, log, group, number).await,
                Stage::Apart => return commit_alone(log, file).await,
            }
        };
        self.wait_for_callers(rt, group).await;
        let files = self.close(rt, group);
        debug_assert!(files.contains(&file), "Q1: the file of each caller is in its group");
        match log.start_transaction(&files).await {
            Ok(number) => {
                group.stage.set(Stage::Started(number));
                self.advanced.notify();
                self.until_durable(rt, log, group, number).await
            }
            Err(error) if files.len() == 1 => Err(error),
            Err(_) => {
                drop(turn);
                commit_alone(log, file).await
            }
        }
    }

    fn join(&self, file: Ino) -> GroupMembership<'_> {
        let group = self.open.borrow().clone();
        debug_assert!(matches!(group.stage.get(), Stage::Open), "Q1: callers join the open group");
        group.files.borrow_mut().insert(file);
        group.callers.update(|callers| callers + 1);
        self.callers.update(|callers| callers + 1);
        self.joined.notify();
        GroupMembership(self, group)
    }

    fn take_turn<'a>(&'a self, log: &impl GroupLog, group: &'a Group) -> Option<Turn<'a>> {
        let is_free = self.turns_taken.get() < log.turns() || self.pace.get().at_once > 0;
        if !is_free || group.has_turn.replace(true) {
            return None;
        }
        self.turns_taken.update(|turns| turns + 1);
        Some(Turn(self, group))
    }

    /// Waits for the callers that there were when the last commit ended.
    async fn wait_for_callers(&self, rt: &Rt, group: &Group) {
        let pace = self.pace.get();
        if pace.at_once > 0 {
            self.pace.set(GroupPace { at_once: pace.at_once - 1, ..pace });
            return;
        }
        // Those of a commit that is under way do not come.
        if self.callers.get() >= pace.callers || pace.wait_max == Nanos::ZERO {
            return;
        }
        let mut timer = rt.sleep(pace.wait_max);
        while self.callers.get() < pace.callers && rt.now() < timer.deadline() {
            let joined = pin!(self.joined.wait());
            select(joined, &mut timer).await;
        }
        let waits_wasted = match group.callers.get() {
            1 => (pace.waits_wasted + 1).min(WAITS_WASTED_MAX),
            _ => 0,
        };
        let at_once = if waits_wasted > 0 { 1 << waits_wasted } else { 0 };
        self.pace.set(GroupPace { at_once, waits_wasted, ..self.pace.get() });
    }

    /// Closes the group: callers join the next one from now on.
    fn close(&self, rt: &Rt, group: &Group) -> BTreeSet<Ino> {
        debug_assert!(matches!(group.stage.get(), Stage::Open), "Q1: a group is closed once");
        debug_assert!(group.has_turn.get(), "Q2: the holder of the turn closes its group");
        self.open.replace(Rc::default());
        group.stage.set(Stage::Closed);
        group.closed_at.set(rt.now());
        group.files.take()
    }

    async fn until_durable(&self, rt: &Rt, log: &impl GroupLog, group: &Group, number: u64) -> FsResult<()> {
        log.until_durable(number).await?;
        // The first caller to get here, before any of this group can have come again.
        if !group.has_ended.replace(true) {
            let callers = self.callers.get();
            debug_assert!(group.callers.get() <= callers, "Q2: the callers of a group are among all");
            let wait_max = Nanos(rt.now().saturating_sub(group.closed_at.get()).0 / COMMIT_PER_WAIT);
            self.pace.set(GroupPace { callers, wait_max, ..self.pace.get() });
            self.callers.set(callers - group.callers.get());
        }
        Ok(())
    }
}

async fn commit_alone(log: &impl GroupLog, file: Ino) -> FsResult<()> {
    let number = log.start_transaction(&BTreeSet::from([file])).await?;
    log.until_durable(number).await
}

/// Aim: callers share commits, no caller is acknowledged too early, and none waits indefinitely, whichever futures are
/// dropped. Method: a log that takes a fixed time to assemble and to write, in virtual time, and the files' versions in
/// each transaction.
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures_util::future::{Either, join_all};

    use super::*;
    use crate::fs::FsError;
    use crate::testing::volumes::simulate;

    const COMMIT: Nanos = Nanos::from_millis(8);
    /// Between an fsync's return and the next: less than the next group stays open.
    const THINK: Nanos = Nanos::from_micros(300);

    struct Fake {
        rt: Rt,
        commits: GroupCommit,
        /// Loading, before a transaction is assembled.
        load: Nanos,
        turns: u64,
        /// The newest version of each file.
        versions: RefCell<BTreeMap<Ino, u64>>,
        transactions: RefCell<Vec<BTreeMap<Ino, u64>>>,
        durable: Cell<u64>,
        written: Event,
        /// No transaction with this file can be assembled.
        bad: Cell<Option<Ino>>,
        stopped: Cell<bool>,
    }

    fn stop() -> FsError {
        FsError::Stopped("the test stops it".into())
    }

    impl GroupLog for Rc<Fake> {
        fn turns(&self) -> u64 {
            self.turns
        }

        async fn start_transaction(&self, files: &BTreeSet<Ino>) -> FsResult<u64> {
            if self.load > Nanos::ZERO {
                self.rt.sleep(self.load).await;
            }
            if self.stopped.get() {
                return Err(stop());
            }
            if self.bad.get().is_some_and(|bad| files.contains(&bad)) {
                return Err(FsError::NoSpace);
            }
            let versions = self.versions.borrow();
            self.transactions.borrow_mut().push(files.iter().map(|file| (*file, versions[file])).collect());
            let number = self.transactions.borrow().len() as u64;
            let fake = self.clone();
            self.rt.spawn(async move {
                fake.rt.sleep(COMMIT).await;
                fake.durable.set(fake.durable.get().max(number));
                fake.written.notify();
            });
            Ok(number)
        }

        async fn until_durable(&self, number: u64) -> FsResult<()> {
            while self.durable.get() < number {
                if self.stopped.get() {
                    return Err(stop());
                }
                self.written.wait().await;
            }
            Ok(())
        }
    }

    impl Fake {
        fn new(rt: &Rt, load: Nanos) -> Rc<Fake> {
            Fake::with_turns(rt, load, 1)
        }

        fn with_turns(rt: &Rt, load: Nanos, turns: u64) -> Rc<Fake> {
            Rc::new(Fake {
                turns,
                rt: rt.clone(),
                commits: GroupCommit::default(),
                load,
                versions: RefCell::default(),
                transactions: RefCell::default(),
                durable: Cell::default(),
                written: Event::new(),
                bad: Cell::default(),
                stopped: Cell::default(),
            })
        }

        fn count(&self) -> usize {
            self.transactions.borrow().len()
        }

        /// Changes a file and makes it durable, which is checked.
        async fn change(self: &Rc<Fake>, file: u64) -> FsResult<()> {
            let file = Ino(file);
            let version = {
                let mut versions = self.versions.borrow_mut();
                let version = versions.entry(file).or_insert(0);
                *version += 1;
                *version
            };
            self.commits.commit(&self.rt, self, file).await?;
            let durable = self.durable.get() as usize;
            let transactions = self.transactions.borrow();
            let newest = transactions[..durable].iter().filter_map(|content| content.get(&file)).max();
            assert!(newest >= Some(&version), "Q1: version {version} of file {file:?}, {newest:?} is durable");
            Ok(())
        }

        async fn client(self: &Rc<Fake>, file: u64, records: u64, think: Nanos) {
            for _ in 0..records {
                self.change(file).await.unwrap();
                self.rt.sleep(think).await;
            }
        }

        /// Clients with a file each. Returns how long they took.
        async fn clients(self: &Rc<Fake>, count: u64, records: u64, think: Nanos) -> Nanos {
            let began = self.rt.now();
            let clients = (0..count).map(|file| {
                let fake = self.clone();
                self.rt.spawn(async move { fake.client(file, records, think).await })
            });
            join_all(clients.collect::<Vec<_>>()).await;
            self.rt.now().saturating_sub(began)
        }

        /// A change by a caller that goes away after `patience`. True when it had returned.
        fn dropped_change(self: &Rc<Fake>, file: u64, patience: Nanos) -> crate::rt::JoinHandle<bool> {
            let fake = self.clone();
            self.rt.spawn(async move {
                let changing = pin!(fake.change(file));
                matches!(select(changing, fake.rt.sleep(patience)).await, Either::Left((Ok(()), _)))
            })
        }
    }

    #[test]
    fn a_single_caller_waits_for_nothing() {
        simulate(1, async |rt| {
            let fake = Fake::new(&rt, Nanos::ZERO);
            assert_eq!(fake.clients(1, 10, THINK).await, Nanos(10 * (COMMIT.0 + THINK.0)));
            assert_eq!(fake.count(), 10);
        });
    }

    /// The first caller cannot know of the others, which share the second commit; then all share each.
    #[test]
    fn several_callers_share_each_commit() {
        for (callers, seed) in [2, 3, 8].into_iter().flat_map(|callers| (0..8).map(move |seed| (callers, seed))) {
            simulate(seed, async |rt| {
                let fake = Fake::new(&rt, Nanos::ZERO);
                let took = fake.clients(callers, 20, THINK).await;
                assert!(fake.count() <= 22, "{callers} callers, seed {seed}: {} commits", fake.count());
                // Each waits for the slowest at most as long as it thinks, not for an eighth of a commit.
                assert!(took < Nanos(22 * (COMMIT.0 + 2 * THINK.0)), "{callers} callers, seed {seed}: {took:?}");
            });
        }
    }

    /// Callers that cannot share commits do not wait for each other either. Method: more time between fsyncs than a group
    /// stays open, on a log that writes several transactions at once.
    #[test]
    fn callers_that_share_nothing_go_side_by_side() {
        for seed in 0..8 {
            simulate(seed, async |rt| {
                let fake = Fake::new(&rt, Nanos::ZERO);
                let think = Nanos(COMMIT.0 / 2);
                let took = fake.clients(2, 200, think).await;
                let alone = 200 * (COMMIT.0 + think.0);
                assert!(took.0 < alone + alone / 20, "seed {seed}: {took:?}");
            });
        }
    }

    /// With two turns, two callers do not wait for each other, and eight make two groups.
    #[test]
    fn two_commits_at_once() {
        for seed in 0..8 {
            simulate(seed, async |rt| {
                let fake = Fake::with_turns(&rt, Nanos::ZERO, 2);
                assert_eq!(fake.clients(2, 20, THINK).await, Nanos(20 * (COMMIT.0 + THINK.0)));
                assert_eq!(fake.count(), 40);
                let fake = Fake::with_turns(&rt, Nanos::ZERO, 2);
                fake.clients(8, 20, THINK).await;
                assert!(fake.count() <= 50, "seed {seed}: {} commits", fake.count());
            });
        }
    }

    /// Callers of the same file are a group as well.
    #[test]
    fn callers_of_one_file_share_each_commit() {
        simulate(1, async |rt| {
            let fake = Fake::new(&rt, Nanos::ZERO);
            let clients: Vec<_> = (0..4).map(|_| fake.client(7, 20, THINK)).collect();
            join_all(clients).await;
            assert!(fake.count() <= 22, "{} commits", fake.count());
        });
    }

    /// What is left of several callers waits for the others once, and for an eighth of a commit at most.
    #[test]
    fn one_of_several_callers_is_left() {
        simulate(1, async |rt| {
            let fake = Fake::new(&rt, Nanos::ZERO);
            fake.clients(4, 10, THINK).await;
            let began = rt.now();
            fake.client(1, 10, THINK).await;
            let took = rt.now().saturating_sub(began);
            let most = 10 * (COMMIT.0 + THINK.0) + COMMIT.0 / COMMIT_PER_WAIT;
            assert!(took.0 <= most, "{took:?}");
        });
    }

    /// Q1, Q2: a caller is dropped at some moment of an fsync, while it waits for others, assembles, or waits for the device, and
    /// so is another one; the rest return, with their files durable.
    #[test]
    fn callers_are_dropped_at_any_moment() {
        let load = Nanos::from_millis(1);
        for step in 0..48 {
            for seed in 0..4 {
                simulate(seed, async |rt| {
                    let fake = Fake::new(&rt, load);
                    // From now on the turn's holder waits for three others.
                    fake.clients(4, 3, THINK).await;
                    let patience = Nanos(step * (COMMIT.0 + load.0) / 20);
                    let dropped = [fake.dropped_change(1, patience), fake.dropped_change(2, Nanos(patience.0 / 2))];
                    let kept = [0, 1, 2].map(|number: u64| {
                        let fake = fake.clone();
                        fake.rt.clone().spawn(async move {
                            fake.rt.sleep(Nanos(number * 700_000)).await;
                            fake.change(3 + number).await
                        })
                    });
                    let began = rt.now();
                    for each in kept {
                        each.await.unwrap();
                    }
                    // At most one commit is under way, one may have been left in the middle, and one is their own.
                    let most = 4 * (COMMIT.0 + load.0 + COMMIT.0 / COMMIT_PER_WAIT);
                    let took = rt.now().saturating_sub(began);
                    assert!(took.0 <= most, "step {step}, seed {seed}: {took:?}");
                    for each in dropped {
                        each.await;
                    }
                    fake.change(1).await.unwrap();
                });
            }
        }
    }

    /// Q3: a file that cannot be written makes no other caller fail, whether it has the turn or another one does.
    #[test]
    fn an_error_reaches_its_caller_alone() {
        for seed in 0..8 {
            simulate(seed, async |rt| {
                let fake = Fake::new(&rt, Nanos::from_millis(1));
                fake.clients(4, 3, THINK).await;
                fake.bad.set(Some(Ino(2)));
                let changes = (0..4).map(|file| {
                    let fake = fake.clone();
                    rt.spawn(async move { fake.change(file).await })
                });
                let results = join_all(changes.collect::<Vec<_>>()).await;
                assert_eq!(results, [Ok(()), Ok(()), Err(FsError::NoSpace), Ok(())], "seed {seed}");
                assert_eq!(fake.change(2).await, Err(FsError::NoSpace));
                assert_eq!(fake.change(1).await, Ok(()));
            });
        }
    }

    /// What stops the volume reaches all callers: those whose transaction is on its way, and those of the next group.
    #[test]
    fn a_stop_reaches_every_caller() {
        simulate(1, async |rt| {
            let fake = Fake::new(&rt, Nanos::ZERO);
            fake.clients(4, 3, THINK).await;
            let changes = (0..6).map(|file| {
                let fake = fake.clone();
                rt.spawn(async move {
                    fake.rt.sleep(Nanos::from_millis(file)).await;
                    fake.change(file).await
                })
            });
            let changes: Vec<_> = changes.collect();
            rt.sleep(Nanos::from_millis(6)).await;
            fake.stopped.set(true);
            fake.durable.set(0);
            fake.written.notify();
            for result in join_all(changes).await {
                assert_eq!(result, Err(stop()));
            }
        });
    }
}
