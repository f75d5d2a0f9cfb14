//! The shape of the virtual log: which piece points to which, and which pieces a transaction writes.
//!
//! A piece points only to older ones, since it is written wherever the head is and its place is not known in advance.
//! [wa99 §3.2] makes the new tail point to the old one and to the children of the piece that it replaces, so that the
//! replaced one can be freed at once. With two pointers that soon fails: a piece that had two children leaves two to
//! adopt, and the old tail makes three. So a piece has [`POINTERS`] pointers here, and a transaction for which they do
//! not suffice rewrites further pieces, each of which brings free pointers along.
//!
//! **That this always suffices.** Let a transaction write `m` pieces with `k` places each. They must point to the
//! `m - 1` of them that are not the tail, and to the *orphans*: the children of the replaced pieces, and the old tail,
//! unless rewritten themselves. So `orphans <= m(k - 1) + 1` is needed. Also writing the orphan with the fewest
//! children, `d`, changes the orphans by `d - 1` and the places by `k - 1`: it gains `k - d`, at least one unless that
//! orphan is full. In a tree with `n` pieces, and so `n - 1` edges, at most `(n - 1)/k` are full; among the descendants
//! of any piece there is one that is not full at a depth of at most `log_k n`, as a deeper full tree has more than `n`
//! pieces. So a piece costs at most `log_k n` further ones, and mostly none (`tests/tree.rs` counts).
//!
//! Invariants
//!   T1  No piece has more than [`POINTERS`] children.
//!   T2  Every live piece but the tail has one live parent, which is younger. So every live piece is reachable from the
//!       tail through live pieces alone, and a visitor in order of age, youngest first, knows for each pointer, before
//!       reading its target, whether there is a younger piece with the same index.
//!   T3  A piece is freed only when a tail that does not need it is durable.

use std::collections::BTreeSet;

use super::format::POINTERS;

/// A piece that is part of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    pub sequence: u64,
    pub cell: u64,
    parent: Option<u32>,
    children: Vec<u32>,
}

/// The log as it is on the device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    nodes: Vec<Option<Node>>,
    tail: Option<u32>,
    live: u32,
    places: usize,
}

/// A piece to write: its index, and the pieces it will point to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Planned {
    pub index: u32,
    pub children: Vec<u32>,
}

impl Tree {
    /// An empty log, for indices below `pieces`.
    pub fn new(pieces: u32) -> Tree {
        Tree::with_places(pieces, POINTERS)
    }

    /// The same with another number of pointers, for measurements.
    pub fn with_places(pieces: u32, places: usize) -> Tree {
        assert!(places >= 2, "T1: a piece has places for two children");
        Tree { nodes: vec![None; pieces as usize], tail: None, live: 0, places }
    }

    pub fn tail(&self) -> Option<u32> {
        self.tail
    }

    pub fn live(&self) -> u32 {
        self.live
    }

    pub fn node(&self, index: u32) -> Option<&Node> {
        self.nodes.get(index as usize)?.as_ref()
    }

    pub fn children(&self, index: u32) -> &[u32] {
        self.node(index).map_or(&[], |node| &node.children)
    }

    /// Live pieces with their index, by index.
    pub fn nodes(&self) -> impl Iterator<Item = (u32, &Node)> {
        self.nodes.iter().enumerate().filter_map(|(index, node)| Some((index as u32, node.as_ref()?)))
    }

    /// The pieces of a transaction that rewrites the pieces `wanted`: those and extra ones, in write order, which is that of
    /// their indices. The last one is the new tail.
    ///
    /// # Panics
    /// When `wanted` is empty.
    pub fn plan(&self, wanted: &BTreeSet<u32>) -> Vec<Planned> {
        assert!(!wanted.is_empty(), "a transaction writes something");
        let mut written = wanted.clone();
        let mut orphans = BTreeSet::new();
        for &index in wanted {
            orphans.extend(self.children(index).iter().filter(|child| !written.contains(child)));
        }
        orphans.extend(self.tail.filter(|tail| !written.contains(tail)));
        while orphans.len() > written.len() * (self.places - 1) + 1 {
            let fewest = orphans.iter().min_by_key(|&&orphan| self.children(orphan).len()).copied();
            let Some(adopted) = fewest else { unreachable!("there are orphans") };
            orphans.remove(&adopted);
            written.insert(adopted);
            orphans.extend(self.children(adopted).iter().filter(|child| !written.contains(child)));
        }
        self.thread(&written, &orphans)
    }

    /// Assigns the orphans, and all written pieces but the last, to later written pieces.
    ///
    /// Earlier pieces get none, and later ones two or as many as needed. This avoids chains as long as the transaction,
    /// which recovery would have to read piece by piece, and full pieces.
    fn thread(&self, written: &BTreeSet<u32>, orphans: &BTreeSet<u32>) -> Vec<Planned> {
        let count = written.len();
        let needed = orphans.len() + count - 1;
        debug_assert!(written.is_disjoint(orphans), "T2: what is rewritten is pointed to at its new place");
        let share = needed.div_ceil(count).max(2);
        assert!(needed.div_ceil(count) <= self.places, "T1: as many pieces are planned as have places"); // T1
        let mut left = needed;
        let mut shares: Vec<usize> = (0..count)
            .map(|_| {
                let taken = share.min(left);
                left -= taken;
                taken
            })
            .collect();
        shares.reverse();
        let mut waiting: std::collections::VecDeque<u32> = orphans.iter().copied().collect();
        let mut planned = Vec::with_capacity(count);
        for (&index, share) in written.iter().zip(shares) {
            let children: Vec<u32> = waiting.drain(..share.min(waiting.len())).collect();
            waiting.push_back(index);
            planned.push(Planned { index, children });
        }
        debug_assert!(
            planned.is_sorted_by(|one, two| one.index < two.index),
            "T2: the pieces of a plan are found by their indices"
        );
        debug_assert_eq!(waiting.len(), 1, "T2: every piece but the tail has a parent");
        debug_assert_eq!(
            planned.iter().map(|piece| piece.children.len()).sum::<usize>(),
            needed,
            "T2: every orphan and every piece but the tail gets one parent"
        );
        debug_assert_eq!(
            waiting.front(),
            planned.last().map(|piece| &piece.index),
            "T2: the piece without a parent is written last"
        );
        planned
    }

    /// Applies a durable plan. `places` has the sequence and the cell of each piece. Returns the freed cells.
    pub fn apply(&mut self, planned: &[Planned], places: &[(u64, u64)]) -> Vec<u64> {
        debug_assert_eq!(planned.len(), places.len(), "T2: every piece of a plan has been written");
        debug_assert!(
            places.is_sorted_by(|one, two| one.0 < two.0),
            "C4: pieces are numbered in the order in which they are written"
        );
        debug_assert!(
            planned
                .iter()
                .zip(places)
                .all(|(piece, (sequence, _))| { self.node(piece.index).is_none_or(|old| old.sequence < *sequence) }),
            "C4: a piece is replaced by a younger one"
        );
        let mut freed = Vec::new();
        for piece in planned {
            if let Some(old) = self.nodes[piece.index as usize].take() {
                freed.push(old.cell);
                debug_assert!(self.live > 0, "T2: each live piece is counted");
                self.live -= 1;
                if let Some(parent) = old.parent.and_then(|parent| self.nodes[parent as usize].as_mut()) {
                    debug_assert!(parent.children.contains(&piece.index), "T2: a parent knows its child");
                    parent.children.retain(|&child| child != piece.index);
                }
                for child in old.children {
                    if let Some(child) = self.nodes[child as usize].as_mut() {
                        debug_assert_eq!(child.parent, Some(piece.index), "T2: a child knows its parent");
                        child.parent = None; // A piece of the plan adopts it.
                    }
                }
            }
        }
        for (piece, &(sequence, cell)) in planned.iter().zip(places) {
            debug_assert!(piece.children.len() <= self.places, "T1: a piece has so many children at most");
            for &child in &piece.children {
                debug_assert!(
                    self.node(child).is_some_and(|child| child.sequence < sequence && child.parent.is_none()),
                    "T2: a child lives, is older, and has no other parent"
                );
                if let Some(child) = self.nodes[child as usize].as_mut() {
                    child.parent = Some(piece.index);
                }
            }
            self.nodes[piece.index as usize] =
                Some(Node { sequence, cell, parent: None, children: piece.children.clone() });
            self.live += 1;
            self.tail = Some(piece.index);
        }
        freed
    }

    /// Adds a piece found on the device, as a child of `parent`. Pieces come in the order in which they are found, the
    /// tail first.
    pub fn found(&mut self, index: u32, sequence: u64, cell: u64, parent: Option<u32>) {
        debug_assert!(self.node(index).is_none(), "T2: a piece is found once, the youngest first");
        debug_assert!(parent.is_some() || self.tail.is_none(), "T2: every piece but the tail has a parent");
        debug_assert!(
            parent.is_none_or(|parent| self.node(parent).is_some_and(|parent| parent.sequence > sequence)),
            "T2: a parent is found before its child, and is younger"
        );
        self.nodes[index as usize] = Some(Node { sequence, cell, parent, children: Vec::new() });
        self.live += 1;
        match parent.and_then(|parent| self.nodes[parent as usize].as_mut()) {
            Some(parent) => parent.children.push(index),
            None => self.tail = Some(index),
        }
    }

    /// Checks T1 and T2.
    ///
    /// # Errors
    /// The violated invariant.
    pub fn check(&self) -> Result<(), String> {
        let mut reached = 0;
        let mut open: Vec<u32> = self.tail.into_iter().collect();
        while let Some(index) = open.pop() {
            reached += 1;
            if reached > self.live {
                return Err("T2: a piece is reached twice".to_string());
            }
            let node = self.node(index).ok_or_else(|| format!("T2: piece {index} is reached and not live"))?;
            if node.children.len() > self.places {
                return Err(format!("T1: piece {index} has {} children", node.children.len()));
            }
            for &child in &node.children {
                let below = self.node(child).ok_or_else(|| format!("T2: piece {index} points to {child}, freed"))?;
                if below.parent != Some(index) || below.sequence >= node.sequence {
                    return Err(format!("T2: piece {index} points to {child}, which is not younger's child"));
                }
                open.push(child);
            }
        }
        match reached == self.live {
            true => Ok(()),
            false => Err(format!("T2: {reached} of {} pieces are reached", self.live)),
        }
    }
}
