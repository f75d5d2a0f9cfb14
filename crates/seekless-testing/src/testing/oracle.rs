//! The oracle: may a power cut have left this tree, given that history?
//!
//! All strengths except [`Strength::InPlace`] and [`Promise::changed_content`], which state how they require less, require that
//!
//! * everything covered by an acknowledged fsync, fsyncdir or syncfs is there;
//! * every other operation is atomic, a rename with both its names; only a prefix of a write larger than
//!   [`Promise::write_atomic_bytes`] may survive;
//! * nothing is there that was never done.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use super::Contents;
use super::history::{History, NameChange, SyncCoverage, WriteStep};
use super::ops::{Op, Path};
use super::tree::{NodeState, Tree, content_difference};
use crate::fs::{FileKind, RenameMode};
use crate::units::Ino;

/// How unsynced operations depend on each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strength {
    /// Independent: any subset of the changed names may be there, and each file's content and attributes may be of
    /// different moments. The minimum for any file system, and what [`crate::fs`] promises.
    PerOperation,
    /// As [`Strength::PerOperation`], for a file system that overwrites in place: each name is independent, so that a
    /// rename may be there with its new name alone or with both. With `at_once`, a changed name is durable as soon as the
    /// operation is acknowledged.
    InPlace { at_once: bool },
    /// All names are those after some prefix of the operations, not before the last synced one. Content and
    /// attributes of each file are together those after some prefix of the operations on that file.
    NamespacePrefix,
    /// Whatever is there after a check is fine, as long as it makes sense.
    Nothing,
}

/// What a power cut may leave of the content of a file that was changed since it was last synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChangedContent {
    /// The content of one moment since then, as far as [`Promise::write_atomic_bytes`] reaches.
    OneMoment,
    /// Bytes that were changed, and those behind the end, may be anything. Others are as they were.
    OtherBytesKept,
    /// Where the file has been synced since it was made, and was not empty then, the content of one moment. Otherwise anything, and reading it may fail: where
    /// a file system gives a new file blocks of a removed one, all of that one may be there.
    OneMomentOnceSynced,
    /// Anything that can be read.
    Readable,
    /// Anything, and reading it may fail; it may change once more with a later mount.
    Anything,
}

/// What a file system guarantees after a power cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promise {
    pub strength: Strength,
    /// Writes up to this length are atomic.
    pub write_atomic_bytes: u64,
    /// With [`Strength::NamespacePrefix`], [`ChangedContent::OneMoment`].
    pub changed_content: ChangedContent,
}

impl Promise {
    pub const PER_OPERATION: Promise =
        Promise { strength: Strength::PerOperation, write_atomic_bytes: 0, changed_content: ChangedContent::OneMoment };
    /// The promise of layers that write files out of place: the content of a file is whole, at a moment of its own.
    pub const WHOLE_FILES: Promise = Promise { write_atomic_bytes: u64::MAX, ..Promise::PER_OPERATION };
    /// The promise of the Berkeley file system with synchronous metadata.
    pub const IN_PLACE: Promise = Promise {
        strength: Strength::InPlace { at_once: true },
        write_atomic_bytes: 0,
        changed_content: ChangedContent::OtherBytesKept,
    };
    /// As 4.4BSD kept it: a file that grows can lose its last block.
    pub const IN_PLACE_4_4BSD: Promise = Promise { changed_content: ChangedContent::Readable, ..Promise::IN_PLACE };
    pub const NAMESPACE_PREFIX: Promise = Promise { strength: Strength::NamespacePrefix, ..Promise::PER_OPERATION };
    pub const NOTHING: Promise = Promise { strength: Strength::Nothing, ..Promise::PER_OPERATION };
}

/// Limit of explanations tried per question.
const TRIES_MAX: usize = 200_000;

impl History {
    /// Checks that a cut at `position` may have left `found`.
    ///
    /// # Errors
    /// What cannot be explained.
    pub fn check(&self, position: usize, promise: Promise, found: &Tree) -> Result<(), String> {
        if let Some(problem) = found.problems.first() {
            return Err(problem.clone());
        }
        let question = Question::new(self, position, promise, found);
        match promise.strength {
            Strength::PerOperation | Strength::InPlace { .. } => question.any_subset(),
            Strength::NamespacePrefix => question.some_prefix(),
            Strength::Nothing => Ok(()),
        }
    }
}

/// One check under way.
struct Question<'a> {
    history: &'a History,
    promise: Promise,
    found: &'a Tree,
    /// Everything up to this step is there.
    everything: usize,
    /// Last step that may be there.
    last: usize,
    /// Steps that had been acknowledged.
    acknowledged: BTreeSet<usize>,
    /// Steps up to which the data of a file, its attributes, and the names in a directory must be there.
    data: BTreeMap<Ino, usize>,
    attributes: BTreeMap<Ino, usize>,
    directories: BTreeMap<Ino, usize>,
}

impl<'a> Question<'a> {
    fn new(history: &'a History, position: usize, promise: Promise, found: &'a Tree) -> Question<'a> {
        let (data, attributes, directories) = Default::default();
        let last = history.issued_by(position);
        let acknowledged = history.steps.iter().enumerate();
        let acknowledged = acknowledged.filter(|(_, step)| step.acknowledged.is_some_and(|at| at <= position));
        let acknowledged = acknowledged.map(|(index, _)| index + 1).collect();
        let mut question =
            Question { history, promise, found, everything: 0, last, acknowledged, data, attributes, directories };
        let raise = |map: &mut BTreeMap<Ino, usize>, ino, steps: usize| {
            let bound = map.entry(ino).or_insert(0);
            *bound = steps.max(*bound);
        };
        for sync in history.synced_by(position) {
            match sync.coverage {
                SyncCoverage::Everything => question.everything = question.everything.max(sync.steps),
                SyncCoverage::Directory { ino } => {
                    raise(&mut question.directories, ino, sync.steps);
                    raise(&mut question.attributes, ino, sync.steps);
                }
                SyncCoverage::File { ino, data_only } => {
                    raise(&mut question.data, ino, sync.steps);
                    if !data_only {
                        raise(&mut question.attributes, ino, sync.steps);
                    }
                }
            }
        }
        question.last = question.last.max(question.everything);
        question
    }

    fn bound(&self, map: &BTreeMap<Ino, usize>, ino: Ino) -> usize {
        self.everything.max(map.get(&ino).copied().unwrap_or(0))
    }

    /// Checks attributes and content of one inode.
    fn check_node(&self, path: &Path, ino: Ino, found: &NodeState) -> Result<(), String> {
        let (data_since, attributes_since) = (self.bound(&self.data, ino), self.bound(&self.attributes, ino));
        let attributes_match = |state: &NodeState| state.attribute_differences(found, false).is_empty();
        // After fdatasync alone the attributes may lag behind the data.
        let together = self.promise.strength == Strength::NamespacePrefix && attributes_since >= data_since;
        let since = if together { attributes_since } else { data_since };
        let data_states = self.history.states(ino, since, self.last);
        let data_match = |state: &NodeState| !found.is_unreadable && state.contents == found.contents;
        if together {
            if data_states.iter().any(|(_, state)| attributes_match(state) && data_match(state)) {
                return Ok(());
            }
            let torn = |(before, after): (&NodeState, &NodeState)| attributes_match(before) || attributes_match(after);
            if self
                .torn_writes(ino, since)
                .any(|(write, before, after)| torn((before, after)) && is_prefix(write, before, found))
            {
                return Ok(());
            }
        } else {
            let attribute_states = self.history.states(ino, attributes_since, self.last);
            if !attribute_states.iter().any(|(_, state)| attributes_match(state)) {
                return Err(self.complain(path, &attribute_states, found, "attributes"));
            }
            // Of an empty file, a layer has no bytes below either.
            let is_new = self.history.state(ino, since).is_none_or(|state| state.contents.size() == 0);
            let is_whole = match self.promise.changed_content {
                ChangedContent::OneMoment => true,
                ChangedContent::OneMomentOnceSynced => !is_new,
                ChangedContent::OtherBytesKept | ChangedContent::Readable | ChangedContent::Anything => false,
            };
            if !is_whole && found.kind == FileKind::Regular {
                let mut writes = self.writes(ino, since).peekable();
                // A layer may have written its file below without a change of the content above.
                let is_reshaped = || {
                    let mut later =
                        self.history.reshapes.range(since + 1..).take_while(|(step, _)| **step <= self.last);
                    self.promise.changed_content == ChangedContent::OneMomentOnceSynced
                        && later.any(|(_, reshaped)| *reshaped == ino)
                };
                let is_written = writes.peek().is_some() || is_reshaped();
                if is_written || data_states.windows(2).any(|pair| pair[0].1.contents != pair[1].1.contents) {
                    let lost = match self.promise.changed_content {
                        ChangedContent::OtherBytesKept => first_lost(&data_states, writes, found),
                        _ => None,
                    };
                    return match lost {
                        None => Ok(()),
                        Some(at) => {
                            let complaint = self.complain(path, &data_states, found, "content");
                            Err(format!("{complaint}\n    byte {at} was not changed after step {since}"))
                        }
                    };
                }
            }
            let torn = self.torn_writes(ino, since).any(|(write, before, _)| is_prefix(write, before, found));
            if torn || data_states.iter().any(|(_, state)| data_match(state)) {
                return Ok(());
            }
        }
        Err(self.complain(path, &data_states, found, "content"))
    }

    /// Writes to `ino` after step `since`.
    fn writes(&self, ino: Ino, since: usize) -> impl Iterator<Item = &WriteStep> {
        let later = self.history.writes.range(since + 1..).take_while(|(step, _)| **step <= self.last);
        later.map(|(_, write)| write).filter(move |write| write.ino == ino)
    }

    /// Writes to `ino` that may be there in part, with the states before and after.
    fn torn_writes(&self, ino: Ino, since: usize) -> impl Iterator<Item = (&WriteStep, &NodeState, &NodeState)> {
        let unsynced = self.history.writes.range(since + 1..).take_while(|(step, _)| **step <= self.last);
        let large = unsynced
            .filter(move |(_, write)| write.ino == ino && write.content.len() as u64 > self.promise.write_atomic_bytes);
        large.filter_map(move |(&step, write)| {
            let (before, after) = (self.history.state(ino, step - 1)?, self.history.state(ino, step)?);
            Some((write, &**before, &**after))
        })
    }

    fn complain(
        &self,
        path: &Path,
        states: &[(usize, &std::rc::Rc<NodeState>)],
        found: &NodeState,
        what: &str,
    ) -> String {
        let mut text = format!("{path}: {what} matches no possible state (found here, expected there)");
        if found.is_unreadable {
            text += "\n    it cannot be read";
        }
        for (step, state) in states.iter().rev().take(4) {
            let mut lines = found.attribute_differences(state, false);
            lines.extend(content_difference(&found.contents, &state.contents));
            text += &format!("\n    after step {step}: {}", lines.join("; "));
        }
        if states.is_empty() {
            text += "\n    it should not be there at all";
        }
        text
    }

    // Strength: NamespacePrefix.

    fn some_prefix(&self) -> Result<(), String> {
        // A synced directory implies the last step before the sync that changed it.
        let synced =
            |change: &&NameChange| self.directories.get(&change.directory).is_some_and(|&steps| change.step <= steps);
        let first = self.history.names.iter().filter(synced).map(|change| change.step).max().unwrap_or(0);
        let first = first.max(self.everything);
        let mut candidates: BTreeSet<usize> =
            self.history.name_steps().filter(|&step| first < step && step <= self.last).collect();
        candidates.insert(first);
        if candidates.iter().rev().any(|&step| self.compare_names(step, 1).is_empty()) {
            return Ok(());
        }
        // None fits. The report shows the latest of those with the fewest contradictions.
        let complaints = candidates.iter().rev().map(|&step| (step, self.compare_names(step, usize::MAX)));
        let best = complaints.min_by_key(|(_, complaints)| complaints.len());
        let (step, complaints) = best.unwrap_or_default();
        let steps = format!("steps {first} to {}", self.last);
        Err(format!("names are of no moment in {steps}; nearest is step {step}:\n    {}", complaints.join("\n    ")))
    }

    /// Contradictions to the names after `step`; stops after about `enough`.
    fn compare_names(&self, step: usize, enough: usize) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut twins = Twins::default();
        let mut open = vec![(Path::from("/"), Ino::ROOT, Ino::ROOT)];
        while let Some((path, model, found)) = open.pop() {
            if complaints.len() >= enough {
                break;
            }
            match twins.pair(model, found) {
                Pairing::Known => continue,
                Pairing::Contradiction => {
                    complaints.push(format!("{path} is linked to another file than it should be"));
                    continue;
                }
                Pairing::New => {}
            }
            let (Some(expected), Some(node)) = (self.history.state(model, step), self.found.nodes.get(&found)) else {
                complaints.push(format!("{path}: a name without a file"));
                continue;
            };
            complaints.extend(self.check_node(&path, model, node).err());
            if node.links != expected.links && node.kind == expected.kind {
                complaints.push(format!("{path}: {} links instead of {}", node.links, expected.links));
            }
            for (name, &child) in &expected.entries {
                match node.entries.get(name) {
                    Some(&twin) => open.push((path.join(name), child, twin)),
                    None => complaints.push(format!("{} is missing", path.join(name))),
                }
            }
            let extra = node.entries.keys().filter(|name| !expected.entries.contains_key(*name));
            complaints.extend(extra.map(|name| format!("{} should not be there", path.join(name))));
        }
        complaints
    }

    // Strength: PerOperation.

    /// Searches for a set of operations that explains all names: each changed name tells which of its changes was the
    /// last to take effect, and operations that change several names take effect on all of them.
    fn any_subset(&self) -> Result<(), String> {
        let search = Search::new(self);
        let mut state = SearchState::default();
        let root = Path::from("/");
        let slots = search.pair(&mut state, &root, Ino::ROOT, Ino::ROOT)?;
        if search.solve(state, slots, 0) {
            return Ok(());
        }
        let (_, complaint) = search.nearest.take();
        Err(complaint)
    }
}

/// The first byte that is in all of `states`, the same and not written by any of `writes`, and that `found` does not have.
fn first_lost<'a>(
    states: &[(usize, &std::rc::Rc<NodeState>)],
    writes: impl Iterator<Item = &'a WriteStep>,
    found: &NodeState,
) -> Option<u64> {
    const PIECE_BYTES: u64 = 1 << 16;
    let ((_, first), later) = states.split_first()?;
    let (first, found) = (&first.contents, &found.contents);
    let end = states.iter().map(|(_, state)| state.contents.size()).min()?;
    let written: Vec<_> = writes.map(|write| write.offset..write.offset + write.content.len() as u64).collect();
    let end_of_both = end.min(found.size());
    let piece = |contents: &Contents, start: u64| {
        let count = PIECE_BYTES.min(end_of_both - start);
        let mut bytes = Vec::with_capacity(count as usize);
        contents.read(start, count).iter().for_each(|piece| bytes.extend_from_slice(piece));
        bytes.resize(count as usize, 0);
        bytes
    };
    let mut at = 0;
    // Both are compared sparsely, as far as `found` goes: only where one of them has data.
    while let Some(start) = [first.next_data(at), found.next_data(at)].into_iter().flatten().min()
        && start < end_of_both
    {
        let (old, new) = (piece(first, start), piece(found, start));
        at = start + PIECE_BYTES;
        if old == new {
            continue;
        }
        let differ = (start..).zip(old.iter().zip(&new)).filter(|(_, (old, new))| old != new);
        let is_unchanged = |at: u64, old: u8| {
            let is_old = |(_, state): &(usize, &std::rc::Rc<NodeState>)| {
                state.contents.read(at, 1).first().and_then(|piece| piece.first().copied()) == Some(old)
            };
            !written.iter().any(|range| range.contains(&at)) && later.iter().all(is_old)
        };
        if let Some((at, _)) = differ.into_iter().find(|&(at, (&old, _))| is_unchanged(at, old)) {
            return Some(at);
        }
    }
    (found.size() < end).then_some(found.size())
}

/// True when `found` is `before` plus a prefix of `write`.
fn is_prefix(write: &WriteStep, before: &NodeState, found: &NodeState) -> bool {
    if found.is_unreadable {
        return false;
    }
    let (start, end) = (write.offset, write.offset + write.content.len() as u64);
    let (old, new) = (before.contents.size(), found.contents.size());
    // If the file grew, its size gives the length of the prefix; otherwise the bytes do.
    let lengths: Vec<u64> = if new > old.max(start) {
        vec![new - start]
    } else if new == old {
        let there = found.contents.read(start, end - start);
        let there = there.iter().flat_map(|piece| piece.iter());
        let same = there.zip(&write.content).take_while(|(one, two)| one == two).count() as u64;
        // A shorter prefix explains nothing more, as old and new bytes agree there.
        vec![same.min(old.saturating_sub(start))]
    } else {
        return false;
    };
    lengths.into_iter().any(|length| {
        let mut expected: Contents = before.contents.clone();
        expected.write(start, &write.content[..length.min(end - start) as usize]);
        length <= end - start && expected == found.contents
    })
}

enum Pairing {
    New,
    Known,
    Contradiction,
}

/// Pairs of inodes: in the model, and found.
#[derive(Clone, Default)]
struct Twins {
    found: BTreeMap<Ino, Ino>,
    model: BTreeMap<Ino, Ino>,
}

impl Twins {
    fn pair(&mut self, model: Ino, found: Ino) -> Pairing {
        match (self.found.get(&model), self.model.get(&found)) {
            (None, None) => {
                self.found.insert(model, found);
                self.model.insert(found, model);
                Pairing::New
            }
            (Some(&twin), Some(&back)) if twin == found && back == model => Pairing::Known,
            _ => Pairing::Contradiction,
        }
    }
}

/// A name in a directory that was found, and the inode that it names.
#[derive(Clone)]
struct Slot {
    path: Path,
    directory: Ino,
    name: Vec<u8>,
    found: Option<Ino>,
}

/// Assumptions so far.
#[derive(Clone, Default)]
struct SearchState {
    twins: Twins,
    /// Steps that took effect, or did not.
    effective: BTreeMap<usize, bool>,
}

struct Search<'a> {
    question: &'a Question<'a>,
    /// Unsynced changes of each name, in order.
    changes: BTreeMap<(Ino, &'a [u8]), Vec<&'a NameChange>>,
    /// Names that changed at all, by directory.
    changed_names: BTreeMap<Ino, BTreeSet<&'a [u8]>>,
    /// Steps that a synced directory implies.
    forced: BTreeSet<usize>,
    tries: RefCell<usize>,
    /// The complaint of the attempt that explained the most.
    nearest: RefCell<(usize, String)>,
}

impl<'a> Search<'a> {
    fn new(question: &'a Question<'a>) -> Search<'a> {
        let mut changes: BTreeMap<(Ino, &[u8]), Vec<&NameChange>> = BTreeMap::new();
        let mut changed_names: BTreeMap<Ino, BTreeSet<&[u8]>> = BTreeMap::new();
        let mut forced = BTreeSet::new();
        for change in &question.history.names {
            if question.everything < change.step && change.step <= question.last {
                changes.entry((change.directory, &change.name)).or_default().push(change);
                changed_names.entry(change.directory).or_default().insert(&change.name);
                let at_once = matches!(question.promise.strength, Strength::InPlace { at_once: true });
                if at_once && question.acknowledged.contains(&change.step)
                    || question.directories.get(&change.directory).is_some_and(|&steps| change.step <= steps)
                {
                    forced.insert(change.step);
                }
            }
        }
        Search { question, changes, changed_names, forced, tries: RefCell::new(0), nearest: RefCell::default() }
    }

    fn complain(&self, explained: usize, complaint: String) {
        let mut nearest = self.nearest.borrow_mut();
        if nearest.1.is_empty() || explained >= nearest.0 {
            *nearest = (explained, complaint);
        }
    }

    /// Assumes that `found` is `model`: checks the node and everything below it that has not changed. Returns the
    /// changed names below it, which leave a choice.
    fn pair(&self, state: &mut SearchState, path: &Path, model: Ino, found: Ino) -> Result<Vec<Slot>, String> {
        let mut slots = Vec::new();
        let mut open = vec![(path.clone(), model, found)];
        while let Some((path, model, found)) = open.pop() {
            match state.twins.pair(model, found) {
                Pairing::Known => continue,
                Pairing::Contradiction => return Err(format!("{path} is linked to another file than it should be")),
                Pairing::New => {}
            }
            let Some(node) = self.question.found.nodes.get(&found) else {
                return Err(format!("{path}: a name without a file"));
            };
            self.question.check_node(&path, model, node)?;
            if node.kind != FileKind::Directory {
                continue;
            }
            let base = self.question.history.state(model, self.question.everything);
            let none = BTreeMap::new();
            let base = base.map_or(&none, |base| &base.entries);
            let none = BTreeSet::new();
            let changed = self.changed_names.get(&model).unwrap_or(&none);
            for (name, &child) in base.iter().filter(|(name, _)| !changed.contains(&name[..])) {
                match node.entries.get(name) {
                    Some(&twin) => open.push((path.join(name), child, twin)),
                    None => return Err(format!("{} is missing", path.join(name))),
                }
            }
            let mut extra =
                node.entries.keys().filter(|name| !base.contains_key(*name) && !changed.contains(&name[..]));
            if let Some(name) = extra.next() {
                return Err(format!("{} should not be there", path.join(name)));
            }
            slots.extend(changed.iter().map(|&name| Slot {
                path: path.join(name),
                directory: model,
                name: name.to_vec(),
                found: node.entries.get(name).copied(),
            }));
        }
        Ok(slots)
    }

    /// True when one of the `changes` is an exchange, and `model` a directory. Each half of an exchange is a separate
    /// change there, so that a cut leaves both names on one of the two. A directory cannot keep both, and the other has
    /// no name until a check reconnects it in `/lost+found`.
    fn may_be_nameless(&self, changes: &[&NameChange], model: Ino) -> bool {
        let history = self.question.history;
        changes.iter().any(|change| {
            let op = change.step.checked_sub(1).and_then(|index| history.steps.get(index)).map(|step| &step.op);
            let is_directory = history.state(model, change.step).is_some_and(|it| it.kind == FileKind::Directory);
            is_directory && matches!(op, Some(Op::Rename { mode: RenameMode::Exchange, .. }))
        })
    }

    /// Explains all `slots`, trying the latest changes first.
    fn solve(&self, state: SearchState, mut slots: Vec<Slot>, explained: usize) -> bool {
        let Some(slot) = slots.pop() else { return true };
        let changes = &self.changes[&(slot.directory, &slot.name[..])];
        let base = self.question.history.state(slot.directory, self.question.everything);
        let base = base.and_then(|base| base.entries.get(&slot.name).copied());
        let forced = changes.iter().rposition(|change| self.forced.contains(&change.step));
        let mut complaint = None;
        for last in (0..=changes.len()).rev() {
            // The first `last` changes may have taken effect, and the last of them did; those after it did not.
            if forced.is_some_and(|forced| last < forced + 1) {
                break;
            }
            *self.tries.borrow_mut() += 1;
            if *self.tries.borrow() > TRIES_MAX {
                return true; // Too many ways to try all of them; those tried do not prove a fault.
            }
            let mut next = state.clone();
            let each_for_itself = matches!(self.question.promise.strength, Strength::InPlace { .. });
            let mut assume = |step, effective| *next.effective.entry(step).or_insert(effective) == effective;
            let consistent = changes[last..].iter().all(|change| assume(change.step, false))
                && changes[..last].last().is_none_or(|change| assume(change.step, true));
            if !consistent && !each_for_itself {
                continue;
            }
            let value = changes[..last].last().map_or(base, |change| change.value);
            let more = match (value, slot.found) {
                (None, None) => Ok(Vec::new()),
                (Some(model), Some(found)) => self.pair(&mut next, &slot.path, model, found),
                (None, Some(_)) => Err(format!("{} should not be there", slot.path)),
                (Some(model), None) if each_for_itself && self.may_be_nameless(changes, model) => Ok(Vec::new()),
                (Some(_), None) => Err(format!("{} is missing", slot.path)),
            };
            match more {
                Ok(more) => {
                    let slots = slots.iter().cloned().chain(more).collect();
                    if self.solve(next, slots, explained + 1) {
                        return true;
                    }
                    complaint = Some(String::new());
                }
                Err(error) => {
                    complaint.get_or_insert(error);
                }
            }
        }
        let half = || format!("{}: what is there contradicts other names that the same operations changed", slot.path);
        let complaint = complaint.unwrap_or_else(half);
        if !complaint.is_empty() {
            self.complain(explained, complaint);
        }
        false
    }
}
