//! The inodes that a layer has in use, each with its node and its lookup count.

use std::cell::RefCell;
use std::rc::Rc;

use crate::fs::{FsError, FsResult};
use crate::rt::Event;
use crate::units::{FixedMap, Ino};

/// Table of nodes. See the invariants of the room.
pub struct Nodes<N> {
    slots: RefCell<FixedMap<Ino, Slot<N>>>,
}

enum Slot<N> {
    Ready {
        node: Rc<N>,
        lookups: u64,
    },
    /// Its node is being opened or closed; who wants it waits.
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
        Nodes { slots: RefCell::default() }
    }

    /// The node of `ino`.
    ///
    /// # Errors
    /// `Stale` when nobody has looked it up.
    pub fn get(&self, ino: Ino) -> FsResult<Rc<N>> {
        self.slots.borrow().get(&ino).and_then(Slot::node).cloned().ok_or(FsError::Stale)
    }

    /// Every node, in the order of inode numbers.
    pub fn all(&self) -> Vec<(Ino, Rc<N>)> {
        let slots = self.slots.borrow();
        let mut all: Vec<(Ino, Rc<N>)> =
            slots.iter().filter_map(|(ino, slot)| Some((*ino, slot.node()?.clone()))).collect();
        all.sort_by_key(|(ino, _)| *ino);
        all
    }

    /// Number of inodes in use.
    pub fn count(&self) -> u64 {
        self.slots.borrow().len() as u64
    }

    fn make_busy(&self, ino: Ino) -> (Busy<'_, N>, Option<Slot<N>>) {
        let event = Rc::new(Event::new());
        let before = self.slots.borrow_mut().insert(ino, Slot::Busy(event.clone()));
        (Busy { nodes: self, ino, event }, before)
    }

    /// Counts `lookups` lookups of `ino` and returns its node, which `open` makes if there is none.
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
                Some(Slot::Ready { node, lookups: counted }) => {
                    *counted = counted.saturating_add(lookups);
                    return Ok(node.clone());
                }
                Some(Slot::Busy(event)) => event.clone(),
                None => break,
            };
            event.wait().await;
        }
        let (busy, _) = self.make_busy(ino);
        let node = Rc::new(open().await?);
        self.slots.borrow_mut().insert(ino, Slot::Ready { node: node.clone(), lookups });
        drop(busy);
        Ok(node)
    }

    /// Takes back up to `lookups` lookups of `ino` and returns how many there were to take. When they were the
    /// last, the node is closed with `close`.
    pub(super) async fn leave(&self, ino: Ino, lookups: u64, close: impl AsyncFnOnce(Rc<N>)) -> u64 {
        let taken = match self.slots.borrow_mut().get_mut(&ino) {
            Some(Slot::Ready { lookups: counted, .. }) => {
                let taken = lookups.min(*counted);
                *counted -= taken;
                if *counted > 0 {
                    return taken;
                }
                taken
            }
            // Whoever waits for a busy slot has not been counted yet.
            Some(Slot::Busy(_)) | None => return 0,
        };
        let (busy, before) = self.make_busy(ino);
        if let Some(Slot::Ready { node, .. }) = before {
            close(node).await;
        }
        drop(busy);
        taken
    }
}
