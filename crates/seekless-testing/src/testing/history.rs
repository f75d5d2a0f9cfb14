//! What a program did to a file system, step by step, according to the model; and what a power cut may leave of it.
//!
//! A [`History`] knows the state of every inode after every operation, when each operation was issued and acknowledged
//! on the device's log, and what each acknowledged fsync covered. `oracle` compares it with the result of recovery.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::ops::{Op, Target};
use super::runner::{Outcome, Runner};
use super::tree::{NodeState, Tree};
use super::{MemFs, MemFsOptions};
use crate::fs::{FileKind, Fs, FsResult};
use crate::rt::Rt;
use crate::units::Ino;

/// What an acknowledged sync covered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncCoverage {
    Everything,
    File { ino: Ino, data_only: bool },
    Directory { ino: Ino },
}

/// A sync that was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyncPoint {
    pub coverage: SyncCoverage,
    /// It covers the first `steps` operations.
    pub steps: usize,
    /// Position in the device's log at which it was acknowledged.
    pub acknowledged: usize,
}

/// An operation, and the positions in the device's log between which it ran.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    pub op: Op,
    pub issued: usize,
    /// `None` until it is acknowledged.
    pub acknowledged: Option<usize>,
    pub failed: bool,
}

/// The step after which an inode changed, and its new state.
type Change = (usize, Option<Rc<NodeState>>);

/// A name that a step changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct NameChange {
    /// Number of the step, from 1.
    pub(super) step: usize,
    pub(super) directory: Ino,
    pub(super) name: Vec<u8>,
    /// The inode that it names from then on.
    pub(super) value: Option<Ino>,
}

/// A write, recognisable when only a prefix of it is there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct WriteStep {
    pub(super) ino: Ino,
    pub(super) offset: u64,
    pub(super) content: Vec<u8>,
}

/// See the module. "After step n" means after the first n operations; step 0 is the beginning.
#[derive(Clone, Default)]
pub struct History {
    pub steps: Vec<Step>,
    pub syncs: Vec<SyncPoint>,
    /// For each inode, the steps after which it changed, and its new states; `None` once it is gone.
    states: BTreeMap<Ino, Vec<Change>>,
    pub(super) names: Vec<NameChange>,
    pub(super) writes: BTreeMap<usize, WriteStep>,
    /// Steps that cut, extended, allocated or punched a file, also where its content stayed the same.
    pub(super) reshapes: BTreeMap<usize, Ino>,
}

impl History {
    /// Operations issued before `position`, which may have had an effect.
    pub fn issued_by(&self, position: usize) -> usize {
        self.steps.iter().take_while(|step| step.issued < position).count()
    }

    /// Syncs that had been acknowledged at `position`.
    pub fn synced_by(&self, position: usize) -> impl Iterator<Item = &SyncPoint> {
        self.syncs.iter().filter(move |sync| sync.acknowledged <= position)
    }

    /// The inode after `step`.
    pub(super) fn state(&self, ino: Ino, step: usize) -> Option<&Rc<NodeState>> {
        let states = self.states.get(&ino)?;
        let after = states.partition_point(|(since, _)| *since <= step);
        states[..after].last()?.1.as_ref()
    }

    /// The states that the inode had after the steps `first..=last`, each with the first of these steps.
    pub(super) fn states(&self, ino: Ino, first: usize, last: usize) -> Vec<(usize, &Rc<NodeState>)> {
        let later = self.states.get(&ino).into_iter().flatten();
        let later = later.filter(|(since, _)| first < *since && *since <= last);
        let all = self.state(ino, first).map(|state| (first, state)).into_iter();
        all.chain(later.filter_map(|(since, state)| Some((*since, state.as_ref()?)))).collect()
    }

    /// Steps that changed some name.
    pub(super) fn name_steps(&self) -> impl Iterator<Item = usize> {
        self.names.iter().map(|change| change.step)
    }

    /// The whole tree after `step`.
    pub fn tree(&self, step: usize) -> Tree {
        let mut tree = Tree::default();
        let mut open = vec![Ino::ROOT];
        while let Some(ino) = open.pop() {
            if let Some(state) = self.state(ino, step)
                && !tree.nodes.contains_key(&ino)
            {
                open.extend(state.entries.values());
                tree.nodes.insert(ino, NodeState::clone(state));
            }
        }
        tree
    }

    /// The operations with their positions, for reports. Those not acknowledged at `position` are marked.
    pub fn to_text(&self, position: usize) -> String {
        let mut text = String::new();
        for (index, step) in self.steps.iter().enumerate() {
            let state = match step.acknowledged {
                Some(acknowledged) if acknowledged <= position => "acknowledged",
                _ if step.issued < position => "under way",
                _ => break,
            };
            let failed = if step.failed { " (failed)" } else { "" };
            text += &format!("    {:4} {state:<12} {}{failed}\n", index + 1, step.op);
        }
        text
    }
}

/// Runs a model beside a file system, and records the history.
pub struct Recorder {
    model: Rc<MemFs>,
    runner: Runner,
    history: History,
}

impl Recorder {
    /// Starts from `tree`, all of which is durable at `position`.
    ///
    /// # Errors
    /// When the model cannot take the tree.
    pub async fn new(rt: &Rt, tree: &Tree, position: usize) -> FsResult<Recorder> {
        let model = MemFs::with_options(rt, MemFsOptions { capacity_bytes: 1 << 50, ..MemFsOptions::default() });
        let fs: Fs = model.clone();
        tree.build(&fs).await?;
        let mut recorder = Recorder { runner: Runner::new(rt, fs), model, history: History::default() };
        recorder.note_changes();
        recorder.history.names.clear();
        recorder.history.syncs.push(SyncPoint { coverage: SyncCoverage::Everything, steps: 0, acknowledged: position });
        Ok(recorder)
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    pub fn into_history(self) -> History {
        self.history
    }

    /// `op` is about to be issued at `position`.
    pub fn issue(&mut self, op: &Op, position: usize) {
        self.history.steps.push(Step { op: op.clone(), issued: position, acknowledged: None, failed: false });
    }

    /// The last issued operation was answered with `outcome`, at `position`.
    ///
    /// # Errors
    /// The model's answer, if it differs.
    pub async fn acknowledge(&mut self, op: &Op, outcome: &Outcome, position: usize) -> Result<(), String> {
        let coverage = self.coverage(op).await;
        let (write, reshape) = (self.write(op).await, self.reshape(op).await);
        let expected = self.runner.apply(op).await;
        if !matches!(op, Op::Seek { .. }) && !expected.agrees(outcome) {
            return Err(format!("{op}\n    here:  {outcome}\n    model: {expected}"));
        }
        if let Some(step) = self.history.steps.last_mut() {
            step.acknowledged = Some(position);
            step.failed = outcome.error().is_some();
        }
        self.note_changes();
        if outcome.error().is_none() {
            let steps = self.answered();
            let sync = coverage.map(|coverage| SyncPoint { coverage, steps, acknowledged: position });
            self.history.syncs.extend(sync);
            self.history.writes.extend(write.map(|write| (self.history.steps.len(), write)));
            self.history.reshapes.extend(reshape.map(|ino| (self.history.steps.len(), ino)));
        }
        Ok(())
    }

    /// Steps before the first unanswered one: a sync covers no other.
    fn answered(&self) -> usize {
        let first = self.history.steps.iter().position(|step| step.acknowledged.is_none());
        first.unwrap_or(self.history.steps.len())
    }

    /// The last issued operation was refused and had no effect: as if it had never been issued.
    pub fn refused(&mut self) {
        self.history.steps.pop();
    }

    /// The last issued operation failed, and it is unknown whether it had an effect.
    pub async fn unanswered(&mut self, op: &Op) {
        let (write, reshape) = (self.write(op).await, self.reshape(op).await);
        // The model's answer does not matter: its whole effect may have happened.
        let _ = self.runner.apply(op).await;
        self.note_changes();
        self.history.writes.extend(write.map(|write| (self.history.steps.len(), write)));
        self.history.reshapes.extend(reshape.map(|ino| (self.history.steps.len(), ino)));
    }

    /// Everything became durable in another way, for example by closing.
    pub fn synced(&mut self, steps: usize, position: usize) {
        let steps = steps.min(self.answered());
        self.history.syncs.push(SyncPoint { coverage: SyncCoverage::Everything, steps, acknowledged: position });
    }

    async fn coverage(&self, op: &Op) -> Option<SyncCoverage> {
        let (target, data_only) = match op {
            Op::Sync => return Some(SyncCoverage::Everything),
            Op::Fsync { target, data_only } => (target.clone(), *data_only),
            Op::FsyncDir { path } => (Target::Path(path.clone()), false),
            _ => return None,
        };
        let ino = self.runner.ino(&target).await.ok()?;
        let kind = self.model.node(ino)?.kind();
        Some(if kind == FileKind::Directory {
            SyncCoverage::Directory { ino }
        } else {
            SyncCoverage::File { ino, data_only }
        })
    }

    async fn write(&self, op: &Op) -> Option<WriteStep> {
        let (target, offset, filling) = match op {
            Op::Write { target, offset, filling } => (target, Some(*offset), filling),
            Op::Append { target, filling } => (target, None, filling),
            _ => return None,
        };
        let ino = self.runner.ino(target).await.ok()?;
        let size = self.model.node(ino)?.attr(ino).size;
        Some(WriteStep { ino, offset: offset.unwrap_or(size), content: filling.content() })
    }

    async fn reshape(&self, op: &Op) -> Option<Ino> {
        match op {
            Op::Truncate { target, .. } | Op::Allocate { target, .. } => self.runner.ino(target).await.ok(),
            _ => None,
        }
    }

    /// Records the new state of every inode that has changed.
    fn note_changes(&mut self) {
        let step = self.history.steps.len();
        for ino in self.model.take_touched() {
            let state = self.model.node(ino).map(|node| Rc::new(NodeState::from(&node)));
            let states = self.history.states.entry(ino).or_default();
            let before = states.last().and_then(|(_, state)| state.clone());
            if before == state && !states.is_empty() {
                continue;
            }
            let empty = BTreeMap::new();
            let old = before.as_ref().map_or(&empty, |before| &before.entries);
            let new = state.as_ref().map_or(&empty, |state| &state.entries);
            let gone = old.keys().filter(|name| !new.contains_key(*name)).map(|name| (name.clone(), None));
            let came = new.iter().filter(|(name, child)| old.get(*name) != Some(*child));
            for (name, value) in gone.chain(came.map(|(name, child)| (name.clone(), Some(*child)))) {
                self.history.names.push(NameChange { step, directory: ino, name, value });
            }
            states.push((step, state));
        }
    }
}
