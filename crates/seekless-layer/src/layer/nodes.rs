//! The inodes that a layer has in use, each with its node and its lookup count.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::fs::{FsError, FsResult};
use crate::rt::Event;
use crate::units::{FixedMap, Ino};

/// Table of nodes. The invariants are in the parent module.
pub struct Nodes<N> {
    /// Counts nodes that have been closed.
    closings: Cell<u64>,
    slots: RefCell<FixedMap<Ino, Slot<N>>>,
}

enum Slot<N> {
    Ready {
        node: Rc<N>,
        /// Lookups counted above.
        lookups: u64,
        /// Lookups counted below and not yet forgotten there: more than `lookups` while the node lingers.
        held: u64,
    },
    /// Its node is being opened or closed; other tasks wait for it.
    Busy(Rc<Event>),
}

impl<N> Slot<N> {
    fn node(&self) -> Option<&Rc<N>> {
        match self {
            Slot::Ready { node, .. } => Some(node),
            Slot::Busy(_) => None,
        }
    }
}

/// Marks a slot as busy until it is dropped, also when the task that opens or closes the node is cancelled.
struct Busy<'a, N> {
    nodes: &'a Nodes<N>,
    ino: Ino,
    event: Rc<Event>,
}

impl<N> Drop for Busy<'_, N> {
    fn drop(&mut self) {
        {
            let mut slots = self.nodes.slots.borrow_mut();
            if matches!(slots.get(&self.ino), Some(Slot::Busy(_))) {
                slots.remove(&self.ino);
            }
        }
        self.event.notify();
    }
}

impl<N> Nodes<N> {
    pub(super) fn new() -> Nodes<N> {
        Nodes { closings: Cell::new(0), slots: RefCell::default() }
    }

    /// The node of `ino`.
    ///
    /// # Errors
    /// `Stale` when the inode has not been looked up.
    pub fn get(&self, ino: Ino) -> FsResult<Rc<N>> {
        match self.slots.borrow().get(&ino) {
            Some(Slot::Ready { node, lookups, .. }) if *lookups > 0 => Ok(node.clone()),
            _ => Err(FsError::Stale),
        }
    }

    /// True when a user of the layer has `ino` in use; a node can outlive that for a while.
    pub fn is_in_use(&self, ino: Ino) -> bool {
        !matches!(self.slots.borrow().get(&ino), Some(Slot::Ready { lookups: 0, .. }) | None)
    }

    /// True while `node` is the node of `ino`: it has not been closed.
    pub fn holds(&self, ino: Ino, node: &Rc<N>) -> bool {
        self.slots.borrow().get(&ino).and_then(Slot::node).is_some_and(|held| Rc::ptr_eq(held, node))
    }

    /// Every node, in the order of inode numbers, including those that linger.
    pub fn all(&self) -> Vec<(Ino, Rc<N>)> {
        let slots = self.slots.borrow();
        let mut all: Vec<(Ino, Rc<N>)> =
            slots.iter().filter_map(|(ino, slot)| Some((*ino, slot.node()?.clone()))).collect();
        all.sort_by_key(|(ino, _)| *ino);
        all
    }

    /// Number of nodes closed so far. Attributes that were read below before a node was closed do not show what the
    /// node wrote as it was closed.
    pub(super) fn closings(&self) -> u64 {
        self.closings.get()
    }

    /// Number of inodes in use.
    pub fn count(&self) -> u64 {
        self.slots.borrow().len() as u64
    }

    fn make_busy(&self, ino: Ino) -> (Busy<'_, N>, Option<Slot<N>>) {
        let event = Rc::new(Event::new());
        let before = self.slots.borrow_mut().insert(ino, Slot::Busy(event.clone()));
        debug_assert!(!matches!(before, Some(Slot::Busy(_))), "Y2: one task at a time opens or closes a node");
        (Busy { nodes: self, ino, event }, before)
    }

    /// Counts `lookups` lookups of `ino` and returns its node, which `open` creates if there is none.
    ///
    /// # Errors
    /// Those of `open`; then nothing is counted.
    pub(super) async fn enter(
        &self,
        ino: Ino,
        lookups: u64,
        open: impl AsyncFnOnce() -> FsResult<N>,
    ) -> FsResult<Rc<N>> {
        loop {
            let event = match self.slots.borrow_mut().get_mut(&ino) {
                Some(Slot::Ready { node, lookups: counted, held }) => {
                    *counted = counted.saturating_add(lookups);
                    *held = held.saturating_add(lookups);
                    return Ok(node.clone());
                }
                Some(Slot::Busy(event)) => event.clone(),
                None => break,
            };
            event.wait().await;
        }
        let (busy, _) = self.make_busy(ino);
        let node = Rc::new(open().await?);
        let before = self.slots.borrow_mut().insert(ino, Slot::Ready { node: node.clone(), lookups, held: lookups });
        debug_assert!(matches!(before, Some(Slot::Busy(_))), "Y2: the slot is kept while its node is opened");
        drop(busy);
        Ok(node)
    }

    /// Forgets up to `lookups` lookups of `ino` and returns how many the caller forgets below. When they were the last,
    /// the node is closed with `close`; unless it `lingers`, and then nothing is forgotten below before
    /// [`Nodes::sweep`] finds that it no longer does.
    pub(super) async fn leave(
        &self,
        ino: Ino,
        lookups: u64,
        lingers: impl Fn(&N) -> bool,
        close: impl AsyncFnOnce(Rc<N>),
    ) -> u64 {
        match self.slots.borrow_mut().get_mut(&ino) {
            Some(Slot::Ready { node, lookups: counted, held }) => {
                let taken = lookups.min(*counted);
                *counted -= taken;
                if *counted > 0 {
                    debug_assert!(taken <= *held, "Y1: what is counted above is held below");
                    *held -= taken;
                    return taken;
                }
                if lingers(node) {
                    return 0;
                }
            }
            // A task that waits for a busy slot has not been counted yet.
            Some(Slot::Busy(_)) | None => return 0,
        }
        self.end(ino, close).await
    }

    /// Closes the nodes that lingered and no longer do, and returns each with the lookups to forget below.
    pub(super) async fn sweep(&self, lingers: impl Fn(&N) -> bool, close: impl AsyncFn(Ino, Rc<N>)) -> Vec<(Ino, u64)> {
        let mut ended = Vec::new();
        for (ino, _) in self.all() {
            // Evaluated for each node in turn, as closing takes time.
            let taken = self.sweep_one(ino, &lingers, async |node| close(ino, node).await).await;
            if taken > 0 {
                ended.push((ino, taken));
            }
        }
        ended
    }

    /// As [`Nodes::sweep`], for one inode.
    pub(super) async fn sweep_one(
        &self,
        ino: Ino,
        lingers: impl Fn(&N) -> bool,
        close: impl AsyncFnOnce(Rc<N>),
    ) -> u64 {
        let is_over = match self.slots.borrow().get(&ino) {
            Some(Slot::Ready { node, lookups: 0, .. }) => !lingers(node),
            _ => false,
        };
        match is_over {
            true => self.end(ino, close).await,
            false => 0,
        }
    }

    /// The node of an inode without users, if it lingers.
    pub(super) fn lingering(&self, ino: Ino) -> Option<Rc<N>> {
        match self.slots.borrow().get(&ino) {
            Some(Slot::Ready { node, lookups: 0, .. }) => Some(node.clone()),
            _ => None,
        }
    }

    async fn end(&self, ino: Ino, close: impl AsyncFnOnce(Rc<N>)) -> u64 {
        let (busy, before) = self.make_busy(ino);
        debug_assert!(matches!(before, Some(Slot::Ready { lookups: 0, .. })), "Y3: a node without users is closed");
        let mut all = 0;
        if let Some(Slot::Ready { node, held, .. }) = before {
            all = held;
            close(node).await;
        }
        debug_assert!(
            matches!(self.slots.borrow().get(&ino), Some(Slot::Busy(_))),
            "Y3: no other task has opened a node that is being closed"
        );
        self.closings.set(self.closings.get() + 1);
        drop(busy);
        all
    }
}
