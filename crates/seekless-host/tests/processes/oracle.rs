//! What must be there after a crash: each acknowledgement, and nothing that was never written.
//!
//! For each file, its content when it was last made durable is there, or what later calls have put in its place, byte
//! by byte: a later write may be there in part. For each name, the file that it had when its directory was last made
//! durable, or one that a later call has given it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;

use crate::clients::{Call, LABEL, Logged, byte_of, directory_of};

const PAGE: u64 = 4096;

/// A file of UFS1 that grows may have its last block, of which it had a part, moved.
const FFS_BLOCK_BYTES: u64 = 8192;

/// What is in a file. Pages that are not there are zeroes.
#[derive(Clone, Default)]
pub(crate) struct Content {
    size: u64,
    pages: BTreeMap<u64, Rc<Vec<u8>>>,
}

impl Content {
    fn read(path: &Path) -> std::io::Result<Content> {
        let file = File::open(path)?;
        let mut content = Content { size: file.metadata()?.len(), pages: BTreeMap::new() };
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        while at < content.size {
            let wanted = (content.size - at).min(buffer.len() as u64) as usize;
            file.read_exact_at(&mut buffer[..wanted], at)?;
            for (index, page) in buffer[..wanted].chunks(PAGE as usize).enumerate() {
                if page.iter().any(|&byte| byte != 0) {
                    let mut page = page.to_vec();
                    page.resize(PAGE as usize, 0);
                    content.pages.insert(at / PAGE + index as u64, Rc::new(page));
                }
            }
            at += wanted as u64;
        }
        Ok(content)
    }

    fn page(&self, number: u64) -> Option<&Rc<Vec<u8>>> {
        self.pages.get(&number)
    }

    fn byte(&self, offset: u64) -> u8 {
        self.page(offset / PAGE).map_or(0, |page| page[(offset % PAGE) as usize])
    }

    fn apply(&mut self, change: &Change) {
        match *change {
            Change::Write { offset, bytes, stamp } => {
                for at in offset..offset + bytes {
                    let page = self.pages.entry(at / PAGE).or_insert_with(|| Rc::new(vec![0; PAGE as usize]));
                    Rc::make_mut(page)[(at % PAGE) as usize] = byte_of(stamp, at);
                }
                self.size = self.size.max(offset + bytes);
            }
            Change::Zero { offset, bytes } => {
                for at in offset..(offset + bytes).min(self.size) {
                    if let Some(page) = self.pages.get_mut(&(at / PAGE)) {
                        Rc::make_mut(page)[(at % PAGE) as usize] = 0;
                    }
                }
            }
            Change::Truncate { size } => {
                self.pages.retain(|&number, _| number * PAGE < size);
                if let Some(page) = self.pages.get_mut(&(size / PAGE)) {
                    Rc::make_mut(page)[(size % PAGE) as usize..].fill(0);
                }
                self.size = size;
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Write { offset: u64, bytes: u64, stamp: u64 },
    Zero { offset: u64, bytes: u64 },
    Truncate { size: u64 },
}

impl Change {
    /// May have changed this byte, when it was inside the file before and after.
    fn concerns(self, at: u64) -> bool {
        match self {
            Change::Write { offset, bytes, .. } | Change::Zero { offset, bytes } => {
                (offset..offset + bytes).contains(&at)
            }
            Change::Truncate { size } => at >= size,
        }
    }
}

#[derive(Clone, Default)]
struct State {
    /// When it was last made durable.
    durable: Content,
    now: Content,
    /// Since then.
    changes: Vec<Change>,
    label: Label,
}

/// The extended attribute of a file.
#[derive(Clone, Default, Debug)]
struct Label {
    durable: Option<u64>,
    now: Option<u64>,
    since: Vec<Option<u64>>,
}

impl Label {
    fn read(path: &Path) -> std::io::Result<Option<u64>> {
        let mut value = [0; 32];
        match rustix::fs::getxattr(path, LABEL, &mut value) {
            Ok(bytes) => {
                let number = std::str::from_utf8(&value[..bytes]).ok().and_then(|text| text.parse().ok());
                number.map(Some).ok_or_else(|| std::io::Error::other(format!("{:?} is no label", &value[..bytes])))
            }
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn acknowledge(&mut self) {
        self.durable = self.now;
        self.since.clear();
    }

    fn may_be(&self, found: Option<u64>) -> bool {
        found == self.durable || self.since.contains(&found)
    }
}

impl State {
    /// Its content is durable, and its attributes unless this is of the data alone.
    fn acknowledge(&mut self, data_only: bool) {
        self.durable = self.now.clone();
        self.changes.clear();
        if !data_only {
            self.label.acknowledge();
        }
    }

    /// May have this size in FFS because its short last block was made whole, and the bytes behind that were still to come:
    /// no block but the last is short, so that a change that begins further back fills it first. The inode can be written
    /// at that moment. A file that is made longer without being written grows block by block.
    fn has_whole_tail(&self, size: u64) -> bool {
        let grows = |change: &Change| matches!(*change, Change::Truncate { size: end } if end > size);
        if size > self.durable.size && size.is_multiple_of(FFS_BLOCK_BYTES) && self.changes.iter().any(grows) {
            return true;
        }
        let ends = self.changes.iter().filter_map(|change| match *change {
            Change::Write { offset, bytes, .. } => Some(offset + bytes),
            Change::Truncate { size } => Some(size),
            Change::Zero { .. } => None,
        });
        let is_whole = |end: u64| end < size && end.next_multiple_of(FFS_BLOCK_BYTES) == size;
        ends.clone().any(|end| end > size) && ends.chain([self.durable.size]).any(is_whole)
    }

    /// Why `found` cannot be what is left of this file; `None` when it can.
    /// With `in_any_order`, what was not made durable may be there in any order, as ext4 writes what it has delayed: then the file
    /// ends with any of it, and with the page if there was more behind that.
    fn objection(&self, found: &Content, promises: Promises, in_any_order: bool) -> Option<String> {
        let (size, durable) = (found.size, self.durable.size);
        let is_cut = self.changes.iter().any(|change| matches!(*change, Change::Truncate { size } if size < durable));
        let may_have_size = |change: &Change| match *change {
            Change::Write { offset, bytes, .. } => {
                let end = offset + bytes;
                let last = if in_any_order { end.next_multiple_of(PAGE) } else { end };
                (offset + 1..=last).contains(&size) && (size > durable || is_cut)
            }
            Change::Zero { offset, bytes } => in_any_order && size == offset + bytes,
            Change::Truncate { size: cut } => size == cut,
        };
        let has_whole_tail = promises != Promises::Everything && !in_any_order && self.has_whole_tail(size);
        if size != durable && !has_whole_tail && !self.changes.iter().any(may_have_size) {
            return Some(format!("it has {size} bytes; {durable} are durable, and then {:?}", self.changes));
        }
        let pages: BTreeSet<u64> = found.pages.keys().chain(self.durable.pages.keys()).copied().collect();
        for number in pages.into_iter().filter(|number| number * PAGE < size) {
            let begin = number * PAGE;
            let is_whole = begin + PAGE <= size.min(durable);
            if is_whole && found.page(number) == self.durable.page(number) {
                continue;
            }
            for at in begin..(begin + PAGE).min(size) {
                let byte = found.byte(at);
                let is_durable = at < durable && byte == self.durable.byte(at);
                let zeroes = |change: &Change| !matches!(change, Change::Write { .. }) && change.concerns(at);
                let is_zero = byte == 0 && (at >= durable || self.changes.iter().any(zeroes));
                let is_later = |change: &Change| match *change {
                    Change::Write { stamp, .. } => change.concerns(at) && byte == byte_of(stamp, at),
                    Change::Zero { .. } | Change::Truncate { .. } => false,
                };
                let is_changed = at >= durable || self.changes.iter().any(|change| change.concerns(at));
                let is_open = match promises {
                    Promises::Everything => false,
                    Promises::ExceptChanged | Promises::Nothing => is_changed,
                };
                if !(is_durable || is_zero || is_open || self.changes.iter().any(is_later)) {
                    let wanted = (at < durable).then(|| self.durable.byte(at));
                    return Some(format!(
                        "byte {at} of {size} is {byte:#04x}; {wanted:02x?} is durable, of {durable} bytes, and then {:?}",
                        self.changes
                    ));
                }
            }
        }
        None
    }
}

/// What a stack promises of files after a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Promises {
    /// What was acknowledged is there; all else is old, new or zero.
    Everything,
    /// What was acknowledged is there; bytes that were changed since may be anything.
    ExceptChanged,
    /// It mounts, and a check ends.
    Nothing,
}

/// A name in a directory.
#[derive(Clone, Default)]
struct Name {
    durable: Option<usize>,
    now: Option<usize>,
    since: Vec<Option<usize>>,
}

/// The files of one client.
#[derive(Default)]
struct Files {
    states: Vec<State>,
    names: BTreeMap<String, Name>,
    /// Files whose name was removed, or given to another file. All others have one.
    removed: BTreeSet<usize>,
}

impl Files {
    fn name(&mut self, path: &str) -> &mut Name {
        self.names.entry(path.to_owned()).or_default()
    }

    fn state(&mut self, path: &str) -> &mut State {
        let file = self.name(path).now.unwrap_or_else(|| panic!("{path} is not there"));
        &mut self.states[file]
    }

    fn bind(&mut self, path: &str, file: Option<usize>, done: bool) {
        let name = self.name(path);
        name.since.push(file);
        if done {
            name.now = file;
        }
    }

    fn apply(&mut self, logged: &Logged, whole: bool) -> u64 {
        let done = logged.done.is_some();
        match &logged.call {
            Call::Create { path } => {
                self.states.push(State::default());
                let file = self.states.len() - 1;
                self.bind(path, Some(file), done);
            }
            Call::Write { path, offset, bytes, stamp, durable } => {
                let change = Change::Write { offset: *offset, bytes: *bytes, stamp: *stamp };
                let state = self.state(path);
                state.changes.push(change);
                if done {
                    state.now.apply(&change);
                    // The kernel's own file systems write the range alone; over FUSE it is an fsync of the file.
                    if *durable && (whole || state.changes.len() == 1) {
                        state.acknowledge(true);
                        return 1;
                    }
                }
            }
            Call::Zero { path, offset, bytes } => {
                let change = Change::Zero { offset: *offset, bytes: *bytes };
                let state = self.state(path);
                state.changes.push(change);
                if done {
                    state.now.apply(&change);
                }
            }
            Call::Extend { path, size } => {
                let state = self.state(path);
                let change = Change::Truncate { size: state.now.size.max(*size) };
                state.changes.push(change);
                if done {
                    state.now.apply(&change);
                }
            }
            Call::Publish { path, bytes, stamp, durable } => {
                let change = Change::Write { offset: 0, bytes: *bytes, stamp: *stamp };
                let mut state = State { changes: vec![change], ..State::default() };
                state.now.apply(&change);
                if *durable {
                    // It had no name before it was.
                    state.acknowledge(false);
                }
                self.states.push(state);
                let file = self.states.len() - 1;
                self.bind(path, Some(file), done);
                return u64::from(done && *durable);
            }
            Call::Exchange { path, other } => {
                let (file, over) = (self.name(path).now, self.name(other).now);
                self.bind(path, over, done);
                self.bind(other, file, done);
            }
            Call::Label { path, value } => {
                let label = &mut self.state(path).label;
                label.since.push(Some(*value));
                if done {
                    label.now = Some(*value);
                }
            }
            Call::Truncate { path, size } => {
                let change = Change::Truncate { size: *size };
                let state = self.state(path);
                state.changes.push(change);
                if done {
                    state.now.apply(&change);
                }
            }
            Call::Sync { path, data_only } if done => {
                self.state(path).acknowledge(*data_only);
                return 1;
            }
            Call::Rename { from, to } => {
                let file = self.name(from).now;
                let over = self.name(to).now;
                self.removed.extend(over);
                self.bind(to, file, done);
                self.bind(from, None, done);
            }
            Call::Unlink { path } => {
                let file = self.name(path).now;
                self.removed.extend(file);
                self.bind(path, None, done);
            }
            Call::SyncDirectory { path } if done => {
                self.acknowledge_names(|name| directory_of(name) == path);
                return 1;
            }
            Call::Sync { .. } | Call::SyncDirectory { .. } => {}
        }
        0
    }

    fn acknowledge_names(&mut self, wanted: impl Fn(&str) -> bool) {
        for (_, name) in self.names.iter_mut().filter(|(path, _)| wanted(path)) {
            name.durable = name.now;
            name.since.clear();
        }
    }

    /// A rename that was cut short can leave a file with its old name as well, where `promises` are not strict. It is removed,
    /// as the program would that was renaming: a rename of one of them over the other would do nothing.
    fn end_renames(
        &self,
        directory: &Path,
        found: &mut BTreeSet<String>,
        promises: Promises,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let mut by_file: BTreeMap<u64, Vec<&String>> = BTreeMap::new();
        for path in self.names.keys().filter(|path| found.contains(*path)) {
            by_file.entry(std::fs::metadata(directory.join(path))?.ino()).or_default().push(path);
        }
        for mut paths in by_file.into_values().filter(|paths| paths.len() > 1) {
            let moved = |path: &&String| self.names[*path].since.contains(&None);
            paths.remove(paths.iter().position(|path| !moved(path)).unwrap_or(0));
            if promises == Promises::Everything || promises != Promises::Nothing && !paths.iter().all(moved) {
                return Err(format!("{paths:?} are further names of a file").into());
            }
            for path in paths {
                std::fs::remove_file(directory.join(path))?;
                found.remove(path);
            }
        }
        Ok(())
    }

    fn acknowledge_all(&mut self) {
        self.states.iter_mut().for_each(|state| state.acknowledge(false));
        self.acknowledge_names(|_| true);
    }
}

/// All that clients were promised on one volume.
pub(crate) struct Oracle {
    clients: Vec<Files>,
    /// A write that is made durable makes its whole file durable.
    whole: bool,
    /// Number of acknowledgements.
    pub(crate) acknowledged: u64,
}

impl Oracle {
    pub(crate) fn new(clients: usize, whole: bool) -> Oracle {
        Oracle { clients: (0..clients).map(|_| Files::default()).collect(), whole, acknowledged: 0 }
    }

    /// Adds the calls of client `number`. `syncs` are the start times of successful `seekless sync` calls: everything
    /// done before is durable.
    pub(crate) fn add(&mut self, number: usize, calls: &[Logged], syncs: &[u64]) {
        let files = &mut self.clients[number];
        let mut syncs = syncs.iter().copied().peekable();
        for logged in calls {
            while syncs.next_if(|&sync| logged.done.is_none_or(|done| done >= sync)).is_some() {
                files.acknowledge_all();
                self.acknowledged += 1;
            }
            self.acknowledged += files.apply(logged, self.whole);
        }
        if syncs.next().is_some() && calls.iter().all(|logged| logged.done.is_some()) {
            files.acknowledge_all();
        }
    }

    /// Compares the content of `directory` with all promises, and takes it as durable from now on. Returns the
    /// differences.
    pub(crate) fn verify(&mut self, directory: &Path, promises: Promises) -> Vec<String> {
        let mut wrong = Vec::new();
        let mut found_names = BTreeSet::new();
        let own = (0..self.clients.len()).map(crate::clients::own_directory);
        for folder in std::iter::once(String::from(".")).chain(own) {
            let entries = match std::fs::read_dir(directory.join(&folder)) {
                Ok(entries) => entries,
                Err(error) => {
                    wrong.push(format!("{folder}: {error}"));
                    continue;
                }
            };
            for entry in entries {
                match entry.map(|entry| entry.file_name().into_string().unwrap()) {
                    // What a repair gives a name is missed where it was.
                    Ok(name) if name.starts_with("own") || name == "lost+found" => {}
                    Ok(name) if folder == "." => drop(found_names.insert(name)),
                    Ok(name) => drop(found_names.insert(format!("{folder}/{name}"))),
                    Err(error) => wrong.push(format!("{folder}: {error}")),
                }
            }
        }
        for files in &mut self.clients {
            // A disk has another file system on it, whose renames are one step.
            let promised = if self.whole { promises } else { Promises::Everything };
            if let Err(why) = files.end_renames(directory, &mut found_names, promised) {
                wrong.push(why.to_string());
            }
            let in_any_order = !self.whole;
            let mut next = Files::default();
            let mut present: BTreeSet<usize> = BTreeSet::new();
            for (path, name) in &files.names {
                let mut candidates = vec![name.durable];
                candidates.extend(&name.since);
                if !found_names.remove(path) {
                    if !candidates.contains(&None) && promises != Promises::Nothing {
                        wrong.push(format!("{path} is not there; its directory was made durable with it"));
                    }
                    continue;
                }
                let at = directory.join(path);
                let (content, label) = match Content::read(&at).and_then(|content| Ok((content, Label::read(&at)?))) {
                    Ok(read) => read,
                    Err(error) => {
                        wrong.push(format!("{path} cannot be read: {error}"));
                        continue;
                    }
                };
                if promises != Promises::Nothing {
                    let mut objections: Vec<String> = Vec::new();
                    let accepts = |file: &usize| {
                        let state = &files.states[*file];
                        let objection = match state.label.may_be(label) {
                            true => state.objection(&content, promises, in_any_order),
                            false => Some(format!("it has the label {label:?}, and may have {:?}", state.label)),
                        };
                        objection.map(|it| objections.push(it)).is_none()
                    };
                    let accepted: Vec<usize> = candidates.iter().flatten().copied().filter(accepts).collect();
                    present.extend(&accepted);
                    if accepted.is_empty() {
                        objections.dedup();
                        wrong.push(format!("{path}: {}", objections.join("; or: ")));
                    }
                }
                let label = Label { durable: label, now: label, since: Vec::new() };
                next.states.push(State { durable: content.clone(), now: content, changes: Vec::new(), label });
                let file = Some(next.states.len() - 1);
                next.names.insert(path.clone(), Name { durable: file, now: file, since: Vec::new() });
            }
            // A rename is one step: a file that was only renamed has its old name or its new one.
            for (path, name) in files.names.iter().filter(|_| promises != Promises::Nothing) {
                if let Some(file) = name.durable.filter(|file| !files.removed.contains(file) && !present.contains(file))
                {
                    wrong.push(format!("the file that {path} was has no name, and was only renamed ({file})"));
                }
            }
            *files = next;
        }
        wrong.extend(found_names.into_iter().map(|name| format!("{name} is there, and nothing made it")));
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logged(call: Call, done: bool) -> Logged {
        Logged { call, done: done.then_some(1), error: None }
    }

    /// The oracle itself: what was acknowledged and is missing, cut, changed or stale is found; what a later call explains is
    /// not. Method: a few calls, and a directory in which each of these things was done.
    #[test]
    fn losses_are_found() {
        let write = |offset, stamp, durable| Call::Write { path: "c0-0".into(), offset, bytes: 5000, stamp, durable };
        let calls = [
            logged(Call::Create { path: "c0-0".into() }, true),
            logged(write(0, 7, false), true),
            logged(Call::Sync { path: "c0-0".into(), data_only: false }, true),
            logged(Call::SyncDirectory { path: ".".into() }, true),
            logged(write(3000, 8, false), true),
        ];
        let old: Vec<u8> = (0..5000).map(|at| byte_of(7, at)).collect();
        let mut new = old[..3000].to_vec();
        new.extend((3000..8000).map(|at| byte_of(8, at)));
        let mut changed = old.clone();
        changed[17] ^= 2;
        let mut torn = new.clone();
        torn[4000..5000].copy_from_slice(&old[4000..5000]);
        let cases: [(&str, Option<&[u8]>, bool); 7] = [
            ("old", Some(&old), true),
            ("new", Some(&new), true),
            ("torn", Some(&torn), true),
            ("changed", Some(&changed), false),
            ("cut", Some(&old[..4999]), false),
            ("empty", Some(&[]), false),
            ("missing", None, false),
        ];
        for (case, content, right) in cases {
            let directory = tempfile::tempdir().unwrap();
            std::fs::create_dir(directory.path().join("own0")).unwrap();
            if let Some(content) = content {
                std::fs::write(directory.path().join("c0-0"), content).unwrap();
            }
            let mut oracle = Oracle::new(1, true);
            oracle.add(0, &calls, &[]);
            assert_eq!(oracle.acknowledged, 2);
            let wrong = oracle.verify(directory.path(), Promises::Everything);
            assert_eq!(wrong.is_empty(), right, "{case}: {wrong:?}");
        }
    }

    /// Where a short last block of FFS is made whole for a write behind it, the file may end there: with zeroes alone behind
    /// what is durable, if such a write was made, and in FFS.
    #[test]
    fn a_tail_is_made_whole_before_a_write_behind_it() {
        let write = |offset, bytes, stamp| Change::Write { offset, bytes, stamp };
        let objection = |found: &[u8], later: Change, promises| {
            let mut state = State::default();
            state.now.apply(&write(0, 1912, 7));
            state.acknowledge(false);
            state.changes.push(later);
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), found).unwrap();
            state.objection(&Content::read(file.path()).unwrap(), promises, false)
        };
        let mut whole: Vec<u8> = (0..1912).map(|at| byte_of(7, at)).collect();
        whole.resize(8192, 0);
        let far = write(5_270_689, 3271, 8);
        let promises = Promises::ExceptChanged;
        assert_eq!(objection(&whole, far, promises), None);
        assert_eq!(objection(&whole, Change::Truncate { size: 20_000 }, promises), None);
        assert!(objection(&whole[..8191], far, promises).is_some());
        assert!(objection(&whole, write(1912, 3271, 8), promises).is_some());
        assert!(objection(&vec![0; 16_384], far, promises).is_some());
        assert!(objection(&whole, far, Promises::Everything).is_some());
        whole[5] ^= 1;
        assert!(objection(&whole, far, Promises::ExceptChanged).is_some());
    }

    /// What else the oracle tells apart: zeroes where a hole was made, and elsewhere; an attribute that fdatasync does not
    /// make durable, and fsync does; names that changed places, and one of them lost; a file that got its name when it was
    /// complete, and then lost a part.
    #[test]
    fn rarer_losses_are_found() {
        let (a, b) = (String::from("c0-0"), String::from("c0-1"));
        let publish = |path: &String, stamp| Call::Publish { path: path.clone(), bytes: 5000, stamp, durable: true };
        let mut calls: Vec<Logged> = [publish(&a, 7), publish(&b, 8), Call::SyncDirectory { path: ".".into() }]
            .into_iter()
            .map(|call| logged(call, true))
            .collect();
        let bytes = |stamp| (0..5000).map(|at| byte_of(stamp, at)).collect::<Vec<u8>>();
        let zeroed = |range: std::ops::Range<usize>| {
            let mut bytes = bytes(7);
            bytes[range].fill(0);
            bytes
        };
        calls.push(logged(Call::Zero { path: a.clone(), offset: 1000, bytes: 9000 }, true));
        calls.push(logged(Call::Extend { path: a.clone(), size: 6000 }, true));
        let mut grown = zeroed(1000..5000);
        grown.resize(6000, 0);
        let exchange = logged(Call::Exchange { path: a.clone(), other: b.clone() }, true);
        /// What it is called, whether names are exchanged, what is found under both, and whether that is right.
        type Case<'a> = (&'a str, bool, [&'a [u8]; 2], bool);
        let cases: [Case<'_>; 8] = [
            ("as they were", false, [&bytes(7), &bytes(8)], true),
            ("a part of the hole", false, [&zeroed(1000..3000), &bytes(8)], true),
            ("a larger hole", false, [&zeroed(999..3000), &bytes(8)], false),
            ("all of it", false, [&grown, &bytes(8)], true),
            ("published and cut", false, [&bytes(7), &bytes(8)[..4096]], false),
            ("exchanged", true, [&bytes(8), &grown], true),
            ("exchanged in part", true, [&bytes(8), &bytes(8)], false),
            ("exchanged, and not asked to", false, [&bytes(8), &bytes(7)], false),
        ];
        for (case, with_exchange, [first, second], right) in cases {
            let directory = tempfile::tempdir().unwrap();
            std::fs::create_dir(directory.path().join("own0")).unwrap();
            std::fs::write(directory.path().join(&a), first).unwrap();
            std::fs::write(directory.path().join(&b), second).unwrap();
            let mut oracle = Oracle::new(1, true);
            oracle.add(0, &calls, &[]);
            oracle.add(0, if with_exchange { std::slice::from_ref(&exchange) } else { &[] }, &[]);
            let wrong = oracle.verify(directory.path(), Promises::Everything);
            assert_eq!(wrong.is_empty(), right, "{case}: {wrong:?}");
        }

        let label = |data_only| {
            let calls = [Call::Label { path: a.clone(), value: 3 }, Call::Sync { path: a.clone(), data_only }];
            let mut files = Files::default();
            for call in [publish(&a, 7)].into_iter().chain(calls) {
                files.apply(&logged(call, true), true);
            }
            files.state(&a).label.clone()
        };
        assert_eq!([None, Some(3), Some(4)].map(|found| label(true).may_be(found)), [true, true, false]);
        assert_eq!([None, Some(3), Some(4)].map(|found| label(false).may_be(found)), [false, true, false]);
    }

    /// A file with both names of a rename: the old one is removed where that can be, and else is wrong.
    #[test]
    fn both_names_of_a_rename() {
        let (from, to) = (String::from("c0-0"), String::from("c0-1"));
        let calls = [
            logged(Call::Create { path: from.clone() }, true),
            logged(Call::SyncDirectory { path: ".".into() }, true),
            logged(Call::Rename { from: from.clone(), to: to.clone() }, true),
        ];
        for (promises, right) in [(Promises::ExceptChanged, true), (Promises::Everything, false)] {
            let directory = tempfile::tempdir().unwrap();
            let path = |name: &String| directory.path().join(name);
            std::fs::create_dir(directory.path().join("own0")).unwrap();
            std::fs::write(path(&from), []).unwrap();
            std::fs::hard_link(path(&from), path(&to)).unwrap();
            let mut oracle = Oracle::new(1, true);
            oracle.add(0, &calls, &[]);
            let wrong = oracle.verify(directory.path(), promises);
            assert_eq!(wrong.is_empty(), right, "{wrong:?}");
            assert_eq!((path(&from).exists(), path(&to).exists()), (!right, true));
        }
    }
}
