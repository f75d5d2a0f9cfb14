//! Recounts the books of soft updates: that each waiting record has something to wait for (U6), and that the counts are
//! right.

use std::collections::{BTreeMap, BTreeSet};

use super::super::cache::BufferKind;
use super::super::numbers::{FragNo, InodeNo};
use super::super::state::*;
use super::{Event, Freeing, Job, RecordKind, Soft};

/// Most problems listed.
const PROBLEMS_MAX: usize = 20;

impl State {
    /// The problems, one line each. Between any two steps there are none.
    pub(in super::super) fn soft_problems(&self) -> Vec<String> {
        let Some(soft) = self.soft.as_deref() else { return Vec::new() };
        let mut wrong = Vec::new();
        self.check_waits(soft, &mut wrong);
        self.check_records(soft, &mut wrong);
        check_lists(soft, &mut wrong);
        check_rings(soft, &mut wrong);
        if soft.jobs_running == 0 {
            self.check_counts(soft, &mut wrong);
        }
        wrong.truncate(PROBLEMS_MAX);
        wrong
    }

    /// Whether a write of the buffer, as of `since` or later, is to come or is not durable yet. `written`: when the
    /// youngest write that waits for a flush had begun, for each buffer.
    fn will_be_durable(&self, written: &BTreeMap<FragNo, u64>, at: FragNo, since: u64) -> bool {
        self.cache.peek(at).is_some_and(|buffer| buffer.dirty.is_some())
            || self.cache.begun(at) >= since
            || written.get(&at).is_some_and(|&begun| begun >= since)
    }

    /// Each event that follows a write follows one that will come, and is on the list of a buffer.
    fn check_waits(&self, soft: &Soft, wrong: &mut Vec<String>) {
        let (mut written, mut taken, mut born) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        let mut indirect = BTreeSet::new();
        let mut unflushed: BTreeMap<FragNo, u64> = BTreeMap::new();
        for &(at, begun) in self.flushes.values().flatten().chain(&soft.unflushed) {
            let youngest = unflushed.entry(at).or_insert(begun);
            *youngest = begun.max(*youngest);
        }
        for (&at, events) in &soft.waits {
            for (since, event) in events {
                let is_wanted = match event {
                    Event::Written { at, since } => {
                        let is_wanted = soft.fresh.get(at).is_some_and(|fresh| fresh.unwritten == Some(*since));
                        if is_wanted {
                            written.insert(*at);
                        }
                        is_wanted
                    }
                    Event::Taken { at, since } => {
                        let is_wanted = soft.fresh.get(at).is_some_and(|fresh| fresh.untaken == Some(*since));
                        if is_wanted {
                            taken.insert(*at);
                        }
                        is_wanted
                    }
                    Event::Born { ino, since } => {
                        let is_wanted = soft.unallocated_inodes.get(ino) == Some(since);
                        if is_wanted {
                            born.insert(*ino);
                        }
                        is_wanted
                    }
                    Event::Inode { ino, .. } => self.inodes.contains_key(ino),
                    Event::Indirect { ino, at, since } => {
                        let is_wanted = soft.indirects.get(&(*ino, *at)).is_some_and(|it| it.changed == *since);
                        if is_wanted {
                            indirect.insert((*ino, *at));
                        }
                        is_wanted
                    }
                    Event::Name(id) | Event::Met(id) => soft.records.contains_key(id),
                };
                if is_wanted && !self.will_be_durable(&unflushed, at, *since) {
                    wrong.push(format!(
                        "no write of the block at {at} is to come, for which {event:?} waits since {since}"
                    ));
                }
            }
        }
        for (at, fresh) in &soft.fresh {
            let is_listed = |since: Option<u64>, listed: &BTreeSet<FragNo>| since.is_none() || listed.contains(at);
            if !is_listed(fresh.unwritten, &written) || !is_listed(fresh.untaken, &taken) {
                wrong.push(format!("the block at {at} stays fresh"));
            }
        }
        let fresh_of: BTreeSet<(InodeNo, FragNo)> = soft.fresh.iter().map(|(&at, fresh)| (fresh.owner, at)).collect();
        if fresh_of != soft.fresh_of {
            wrong.push(format!("{fresh_of:?} are fresh by owner, and {:?} are listed", soft.fresh_of));
        }
        for ino in soft.unallocated_inodes.keys().filter(|ino| !born.contains(ino)) {
            wrong.push(format!("inode {ino} stays unallocated"));
        }
        for (&(ino, at), it) in &soft.indirects {
            let is_dirty = self.cache.peek(at).is_some_and(|buffer| buffer.dirty.is_some());
            if !is_dirty && (!indirect.contains(&(ino, at)) || !it.waiters.is_empty()) {
                wrong.push(format!("the indirect block at {at} of inode {ino} stays ahead of the volume"));
            }
        }
        for (ino, waiters) in &soft.inode_waiters {
            let is_dirty = self.inodes.get(ino).is_some_and(|known| known.dirty);
            if !is_dirty && waiters.iter().any(|waiter| soft.records.contains_key(&waiter.id)) {
                wrong.push(format!("no image of inode {ino} is to come, for which records wait"));
            }
        }
    }

    /// Each record has as many unmet dependencies as the lists contain; and one without any gets its turn.
    fn check_records(&self, soft: &Soft, wrong: &mut Vec<String>) {
        let mut lacking: BTreeMap<u64, u32> = BTreeMap::new();
        let mut named: BTreeSet<u64> = soft.unreached.values().flatten().copied().collect();
        let mut lacks = |id: u64| *lacking.entry(id).or_default() += 1;
        for (_, event) in soft.waits.values().flatten() {
            match event {
                Event::Met(id) => lacks(*id),
                Event::Name(id) => drop(named.insert(*id)),
                _ => {}
            }
        }
        soft.inode_waiters.values().flatten().for_each(|waiter| lacks(waiter.id));
        soft.indirects.values().flat_map(|it| &it.waiters).for_each(|(_, id)| lacks(*id));
        soft.records.values().flat_map(|record| &record.dependents).for_each(|id| lacks(*id));
        let taking_out = |id: u64| soft.jobs.iter().any(|(job, _)| matches!(job, Job::TakeOut(other) if *other == id));
        for (&id, record) in &soft.records {
            let listed = lacking.get(&id).copied().unwrap_or(0);
            if listed != record.unmet {
                let (what, unmet) = (record.what.to_text(), record.unmet);
                wrong.push(format!("{id}, {what}, lacks {unmet} things, and {listed} are on lists"));
            }
            let has_turn = match &record.what {
                _ if record.unmet > 0 => true,
                RecordKind::Entry { dir, offset, .. } => {
                    let lbn = offset / u64::from(self.layout.block_bytes);
                    named.contains(&id) || self.is_dirty_block_of(*dir, lbn)
                }
                RecordKind::Removal { dir, lbn, .. } => named.contains(&id) || self.is_dirty_block_of(*dir, *lbn),
                RecordKind::Ghost { .. } => soft.jobs_running > 0 || taking_out(id),
                RecordKind::Free(_) => false,
            };
            if !has_turn {
                wrong.push(format!("{id}, {}, has everything, and nothing comes of it", record.what.to_text()));
            }
        }
    }

    fn is_dirty_block_of(&self, dir: InodeNo, lbn: u64) -> bool {
        let wanted = BufferKind::Directory { ino: dir, lbn };
        self.cache.dirty_of(dir).into_iter().any(|at| self.cache.peek(at).is_some_and(|buffer| buffer.kind == wanted))
    }

    /// The counts are the sums over records and jobs.
    fn check_counts(&self, soft: &Soft, wrong: &mut Vec<String>) {
        let (mut frags, mut inodes) = (0_i64, 0_i64);
        let mut held: BTreeMap<InodeNo, u64> = BTreeMap::new();
        let mut ghosts: BTreeMap<InodeNo, u32> = BTreeMap::new();
        let mut names: BTreeMap<InodeNo, u32> = BTreeMap::new();
        let mut hold = |links: &[(InodeNo, u16)]| {
            links.iter().for_each(|&(ino, count)| *held.entry(ino).or_default() += u64::from(count));
        };
        let mut give_back = |freeing: &Freeing| {
            frags += freeing.frags[freeing.done..].iter().map(|&(_, count)| i64::from(count)).sum::<i64>();
            inodes += i64::from(freeing.inode.is_some());
        };
        for record in soft.records.values() {
            match &record.what {
                RecordKind::Entry { ino, releases, .. } => {
                    hold(releases);
                    *names.entry(*ino).or_default() += 1;
                }
                RecordKind::Removal { releases, .. } => hold(releases),
                RecordKind::Ghost { dir, releases, .. } => {
                    hold(releases);
                    *ghosts.entry(*dir).or_default() += 1;
                }
                RecordKind::Free(freeing) => {
                    hold(&freeing.releases);
                    give_back(freeing);
                }
            }
        }
        for (job, _) in &soft.jobs {
            match job {
                Job::Free(freeing) => {
                    hold(&freeing.releases);
                    give_back(freeing);
                }
                Job::Release(links) => hold(links),
                Job::TakeOut(_) => {}
            }
        }
        if (frags, inodes) != (soft.pending_frags, soft.pending_inodes) {
            let counted = (soft.pending_frags, soft.pending_inodes);
            wrong.push(format!(
                "{frags} fragments and {inodes} inodes are going to be free, and {counted:?} are counted"
            ));
        }
        if let Some((id, ino)) = soft.moved.iter().find(|(id, _)| !soft.records.contains_key(id)) {
            wrong.push(format!("directory {ino} keeps its old name {id} and nothing will remove it"));
        }
        if names != soft.new_names {
            wrong.push(format!(
                "inodes have {names:?} names that are not durable, and {:?} are counted",
                soft.new_names
            ));
        }
        for (ino, known) in self.inodes.iter() {
            let Some(own) = known.soft.as_deref() else { continue };
            let (links, names) = (held.remove(ino).unwrap_or(0), ghosts.remove(ino).unwrap_or(0));
            if (links, names) != (u64::from(own.held), own.ghosts) {
                let counted = (own.held, own.ghosts);
                wrong.push(format!(
                    "inode {ino} has {links} links held and {names} ghosts, and {counted:?} are counted"
                ));
            }
        }
        held.retain(|_, links| *links > 0);
        if !held.is_empty() || !ghosts.is_empty() {
            wrong.push(format!("links {held:?} and ghosts {ghosts:?} are of inodes that are not in memory"));
        }
    }
}

/// Each list of names contains exactly the names that wait.
fn check_lists(soft: &Soft, wrong: &mut Vec<String>) {
    let (mut entries, mut removals, mut removed, mut ghosts) = (0, 0, BTreeSet::new(), 0);
    for (&id, record) in &soft.records {
        let is_listed = match &record.what {
            RecordKind::Entry { dir, offset, .. } => {
                entries += 1;
                soft.entries.get(&(*dir, *offset)) == Some(&id)
            }
            RecordKind::Removal { dir, lbn, name, .. } => {
                removals += 1;
                let name = (*dir, name.clone());
                // Of several removals of a name the last one counts.
                let is_last = soft.removed_names.get(&name).is_some_and(|&last| last >= id);
                removed.insert(name);
                is_last && soft.removals.get(&(*dir, *lbn)).is_some_and(|ids| ids.contains(&id))
            }
            RecordKind::Ghost { dir, name, .. } => {
                ghosts += 1;
                soft.ghosts.get(&(*dir, name.clone())) == Some(&id)
            }
            RecordKind::Free(_) => true,
        };
        if !is_listed {
            wrong.push(format!("{id}, {}, is not on its list", record.what.to_text()));
        }
    }
    let listed = soft.removals.values().map(BTreeSet::len).sum::<usize>();
    let none = soft.removals.values().filter(|ids| ids.is_empty()).count();
    let counted = (soft.entries.len(), listed, none, soft.removed_names.len(), soft.ghosts.len());
    let found = (entries, removals, 0, removed.len(), ghosts);
    if counted != found {
        wrong.push(format!(
            "entries, removals, blocks without removals, removed names and ghosts are {found:?}, and {counted:?} are listed"
        ));
    }
}

/// No record waits for itself.
fn check_rings(soft: &Soft, wrong: &mut Vec<String>) {
    let mut waits: BTreeMap<u64, usize> = soft.records.keys().map(|&id| (id, 0)).collect();
    for id in soft.records.values().flat_map(|record| &record.dependents) {
        if let Some(count) = waits.get_mut(id) {
            *count += 1;
        }
    }
    let mut free: Vec<u64> = waits.iter().filter(|(_, count)| **count == 0).map(|(&id, _)| id).collect();
    while let Some(id) = free.pop() {
        waits.remove(&id);
        for dependent in soft.records.get(&id).into_iter().flat_map(|record| &record.dependents) {
            if let Some(count) = waits.get_mut(dependent) {
                *count -= 1;
                if *count == 0 {
                    free.push(*dependent);
                }
            }
        }
    }
    if !waits.is_empty() {
        wrong.push(format!("records wait for each other in a cycle: {:?}", waits.keys().collect::<Vec<_>>()));
    }
}

#[cfg(test)]
mod tests {
    //! Aim: a recount notices each wrong book of soft updates, and does not complain about what is left over. Method: a volume on
    //! which names, blocks and directories wait; each book falsified in memory, one at a time.

    use super::super::super::tests::{fresh, simulate, small_groups};
    use super::super::super::{Metadata, Options, mount};
    use super::super::records::{DependencyRecord, Fresh};
    use super::*;
    use crate::fs::client::Client;
    use crate::units::{MIB, Nanos};

    /// Runs `spoil` on the state of a volume on which much waits.
    fn spoilt(spoil: impl FnOnce(&mut State)) -> Vec<String> {
        simulate(1, async |rt| {
            let (_, device) = fresh(&rt, 12 * MIB, &small_groups()).await;
            // Nothing is written by itself.
            let update_interval = Nanos::from_secs(1 << 20);
            let options = Options { metadata: Metadata::Softdep, update_interval, ..Options::default() };
            let ffs = mount(rt.clone(), device, options).await.expect("mount");
            let client = Client::new(ffs.clone());
            client.mkdir(b"/d").await.expect("made");
            client.write_file(b"/old", &[1; 50_000]).await.expect("written");
            client.write_file(b"/gone", &[2; 9_000]).await.expect("written");
            client.sync().await.expect("synced");
            client.write_file(b"/new", &[3; 200_000]).await.expect("written");
            client.unlink(b"/gone").await.expect("removed");
            client.rename(b"/old", b"/d/old", crate::fs::RenameMode::Replace).await.expect("moved");
            let mut state = ffs.state.borrow_mut();
            assert_eq!(state.soft_problems(), Vec::<String>::new(), "before anything is falsified");
            spoil(&mut state);
            state.soft_problems()
        })
    }

    fn soft(state: &mut State) -> &mut Soft {
        state.soft().expect("they are on")
    }

    /// An address of which no write is to come.
    const NEVER: FragNo = FragNo(1 << 30);

    /// What a problem says, and what leads to it.
    type Case = (&'static str, fn(&mut State));

    #[test]
    fn each_wrong_book_is_noticed() {
        let cases: &[Case] = &[
            ("things, and", |state| {
                soft(state).records.values_mut().next().expect("a record").unmet += 1;
            }),
            ("has everything, and nothing comes of it", |state| {
                let record =
                    DependencyRecord { unmet: 0, what: RecordKind::Free(Freeing::default()), dependents: Vec::new() };
                soft(state).records.insert(u64::MAX, record);
            }),
            ("no write of the block at", |state| {
                let events: Vec<_> = std::mem::take(&mut soft(state).waits).into_values().flatten().collect();
                let late = events.into_iter().map(|(_, event)| (u64::MAX, event)).collect();
                soft(state).waits.insert(NEVER, late);
            }),
            ("stays fresh", |state| {
                let fresh = Fresh { owner: InodeNo(2), unwritten: Some(1), untaken: None };
                soft(state).fresh.insert(NEVER, fresh);
            }),
            ("are fresh by owner, and", |state| {
                soft(state).fresh_of.insert((InodeNo(2), NEVER));
            }),
            ("stays unallocated", |state| {
                soft(state).unallocated_inodes.insert(InodeNo(9999), 1);
            }),
            ("are of inodes that are not in memory", |state| {
                let freeing = Freeing { releases: vec![(InodeNo(9999), 1)], ..Freeing::default() };
                let record = DependencyRecord { unmet: 1, what: RecordKind::Free(freeing), dependents: Vec::new() };
                soft(state).records.insert(u64::MAX, record);
            }),
            ("are going to be free, and", |state| soft(state).pending_frags += 1),
            ("names that are not durable, and", |state| {
                soft(state).new_names.insert(InodeNo(9999), 1);
            }),
            ("keeps its old name", |state| {
                soft(state).moved.insert((u64::MAX, InodeNo(2)));
            }),
            ("links held and", |state| {
                let known = state.inodes.values_mut().find_map(|known| known.soft.as_deref_mut());
                known.expect("an inode with links that are held").held += 1;
            }),
            ("removal of", |state| {
                let removed = soft(state).removed_names.pop_first().expect("a removed name");
                // Another one keeps the count.
                soft(state).removed_names.insert((removed.0.0, b"other".to_vec()), removed.1);
            }),
            ("is not on its list", |state| {
                soft(state).entries.pop_first().expect("an entry");
            }),
            ("are listed", |state| {
                soft(state).removals.insert((InodeNo(2), 1 << 40), BTreeSet::new());
            }),
            ("in a cycle", |state| {
                let id = *soft(state).records.keys().next().expect("a record");
                soft(state).records.get_mut(&id).expect("it is there").dependents.push(id);
            }),
        ];
        for (what, spoil) in cases {
            let found = spoilt(spoil);
            assert!(found.iter().any(|problem| problem.contains(what)), "{what:?} is not in {found:#?}");
        }
    }

    /// What has been overtaken is no problem: an event of an indirect block that waits no longer.
    #[test]
    fn what_is_left_over_is_not_noticed() {
        let found = spoilt(|state| {
            let event = Event::Indirect { ino: InodeNo(9999), at: NEVER, since: 1 };
            soft(state).waits.entry(NEVER).or_default().push((u64::MAX, event));
        });
        assert_eq!(found, Vec::<String>::new());
    }

    /// However much is wrong, the list stays short.
    #[test]
    fn the_list_is_bounded() {
        let found = spoilt(|state| {
            for id in 0..3 * PROBLEMS_MAX as u64 {
                let record =
                    DependencyRecord { unmet: 7, what: RecordKind::Free(Freeing::default()), dependents: Vec::new() };
                soft(state).records.insert(u64::MAX - id, record);
            }
        });
        assert_eq!(found.len(), PROBLEMS_MAX);
    }
}
