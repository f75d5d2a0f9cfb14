//! How a row with parity is written: what must be read first, and how the new parity is computed.
//!
//! 1) Where the row's parity is on an absent member, no parity is written, and nothing is read; nor where parity does not
//!    match and the data for it cannot be read.
//! 2) Where the new data covers all units, nothing is read: a full-stripe write.
//! 3) Otherwise either the old data and the old parity are read (read-modify-write), or the data that stays
//!    (reconstruct-write). On a complete row, an array with metadata takes the first: if a member silently returns
//!    wrong data, parity still allows a correction, while a reconstruct-write would make parity match the wrong data.
//!    For timing only, or with an absent member, the way with fewer reads is taken. At a tie the data is read, because
//!    then the new parity does not depend on the old one.
//!    While a member is short of space, the first way is also taken instead of 2): what cannot be completed is undone
//!    with the old data. On a row whose parity does not match, the second one is.
//! 4) Where a data unit is absent, only a way that does not need it is taken. If the write changes a part of it,
//!    everything else is read and the unit is computed first.
//!
//! All of this covers one range of the units: from the first sector that changes in any of them to the last.

use crate::codec::xor;
use crate::device::{Buf, Data};
use crate::volume::members::bytes;

use super::shape::Shape;

/// New data for a part of a data unit.
#[derive(Clone)]
pub(super) struct Fragment {
    pub(super) index: usize,
    /// First sector in the unit.
    pub(super) from: u64,
    pub(super) data: Data,
}

impl Fragment {
    pub(super) fn sectors(&self) -> u64 {
        self.data.len() as u64 / crate::units::SECTOR_BYTES
    }

    fn end(&self) -> u64 {
        self.from + self.sectors()
    }

    pub(super) fn overlaps(&self, other: &Fragment) -> bool {
        self.index == other.index && self.from < other.end() && other.from < self.end()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Method {
    /// There is no parity to maintain.
    Bare,
    FullStripe,
    ReadModifyWrite,
    ReconstructWrite,
    /// As reconstruct-write, after the absent unit has been computed.
    Recover,
}

/// Plan for writing one row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct RowPlan {
    pub(super) row: u64,
    pub(super) method: Method,
    /// The range of the units that is processed.
    pub(super) from: u64,
    pub(super) to: u64,
    /// Members whose range is read.
    pub(super) reads: Vec<usize>,
}

/// What counts when a complete row is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aim {
    /// Few reads.
    Speed,
    /// Parity keeps its redundancy for the units that are not written.
    Redundancy,
    /// The same, and all that is overwritten is read before.
    Undo,
    /// Parity becomes right within the range, whatever it is now.
    Resync,
    /// Only data is written: the row is out of sync, and its parity cannot be computed.
    Data,
}

/// Plans writing `fragments`, which do not overlap, to `row` while `absent` cannot be used.
pub(super) fn plan(shape: &Shape, row: u64, fragments: &[Fragment], absent: Option<usize>, aim: Aim) -> RowPlan {
    let from = fragments.iter().map(|fragment| fragment.from).min().unwrap_or(0);
    let to = fragments.iter().map(Fragment::end).max().unwrap_or(0);
    let with = |method, reads: Vec<usize>| {
        debug_assert!(reads.iter().all(|&member| Some(member) != absent), "a plan reads what is there");
        debug_assert!(
            reads.iter().enumerate().all(|(at, member)| !reads[..at].contains(member)),
            "a plan reads each member once"
        );
        RowPlan { row, method, from, to, reads }
    };
    debug_assert!(from < to && to <= shape.unit, "what is written lies in its units");
    debug_assert!(
        fragments.iter().enumerate().all(|(at, one)| fragments[..at].iter().all(|other| !one.overlaps(other))),
        "the parts of a row that are written together do not overlap"
    );
    let parity = shape.parity(row);
    if absent == Some(parity) || aim == Aim::Data {
        return with(Method::Bare, Vec::new());
    }
    let new = |index: usize| fragments.iter().filter(move |fragment| fragment.index == index);
    // Fragments do not overlap, so the covered length is their sum.
    let is_covered = |index: usize| new(index).map(Fragment::sectors).sum::<u64>() == to - from;
    let is_touched = |index: usize| new(index).next().is_some();
    let absent = absent.and_then(|member| shape.index(row, member));
    let member = |index: usize| shape.member(row, index);
    let reconstruct: Vec<usize> = (0..shape.width()).filter(|&index| !is_covered(index)).collect();
    let modify: Vec<usize> = (0..shape.width()).filter(|&index| is_touched(index)).collect();
    let can_reconstruct = absent.is_none_or(|absent| !reconstruct.contains(&absent));
    let can_modify = absent.is_none_or(|absent| !modify.contains(&absent));
    let members = |units: Vec<usize>| units.into_iter().map(member).collect::<Vec<_>>();
    let is_whole = absent.is_none();
    if can_reconstruct && reconstruct.is_empty() && !(is_whole && aim == Aim::Undo) {
        return with(Method::FullStripe, Vec::new());
    }
    let must_modify = is_whole && matches!(aim, Aim::Redundancy | Aim::Undo);
    let can_modify = can_modify && !(is_whole && aim == Aim::Resync);
    if can_reconstruct && !must_modify && (!can_modify || reconstruct.len() <= modify.len() + 1) {
        return with(Method::ReconstructWrite, members(reconstruct));
    }
    if can_modify {
        let reads = members(modify).into_iter().chain([parity]).collect();
        return with(Method::ReadModifyWrite, reads);
    }
    let others = (0..shape.width()).filter(|&index| Some(index) != absent).collect();
    with(Method::Recover, members(others).into_iter().chain([parity]).collect())
}

impl RowPlan {
    pub(super) fn sectors(&self) -> u64 {
        self.to - self.from
    }

    /// The new parity of the range, from the data read: one buffer for each of `reads`, in that order. What takes no memory is all zeroes and
    /// changes no parity: where members keep no data, parity takes no memory either.
    pub(super) fn parity(&self, shape: &Shape, fragments: &[Fragment], read: &[Buf]) -> Data {
        let old = |member: usize| {
            let at = self.reads.iter().position(|&read| read == member);
            at.map(|at| &read[at])
        };
        let length = bytes(0, self.sectors()).len();
        let mut parity = Buf::zeroed(length);
        debug_assert_eq!(read.len(), self.reads.len(), "a plan gets what it reads");
        debug_assert_ne!(self.method, Method::Bare, "a row has a parity to compute when its member is there");
        if self.method == Method::ReadModifyWrite {
            add(&mut parity, read); // The old parity, with the old data removed.
        }
        for index in 0..shape.width() {
            let old_unit = old(shape.member(self.row, index));
            let new = fragments.iter().filter(|fragment| fragment.index == index);
            let mut unit = Buf::zeroed(length);
            let mut is_touched = false;
            match old_unit {
                Some(old) if !old.is_hole() => unit.copy_from_slice(old),
                None if self.method == Method::Recover => add(&mut unit, read),
                _ => {}
            }
            for fragment in new {
                is_touched = true;
                if fragment.data.is_hole() && unit.is_hole() {
                    continue;
                }
                unit[bytes(fragment.from - self.from, fragment.sectors())].copy_from_slice(&fragment.data);
            }
            if is_touched || self.method != Method::ReadModifyWrite {
                add(&mut parity, std::slice::from_ref(&unit));
            }
        }
        parity.freeze()
    }
}

/// Adds `bufs` to a sum of units.
fn add(sum: &mut Buf, bufs: &[Buf]) {
    bufs.iter().filter(|buf| !buf.is_hole()).for_each(|buf| xor(sum, buf));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use crate::units::SECTOR_BYTES;
    use crate::volume::raid::Level;

    fn shape(members: usize) -> Shape {
        Shape { level: Level::Parity, members, unit: 8, rows: 16, data_start: 0 }
    }

    fn fragment(index: usize, from: u64, sectors: u64) -> Fragment {
        Fragment { index, from, data: Data::zeroes((sectors * SECTOR_BYTES) as usize) }
    }

    /// The way with fewer reads is taken. Row 0: data units are on the members of their number, parity on the last.
    #[test]
    fn the_cheaper_way_is_taken() {
        type Case<'a> = (usize, &'a [(usize, u64, u64)], Option<usize>, Method, &'a [usize]);
        let cases: &[Case<'_>] = &[
            (5, &[(0, 0, 8)], None, Method::ReadModifyWrite, &[0, 4]),
            (5, &[(0, 0, 8), (1, 0, 8)], None, Method::ReconstructWrite, &[2, 3]),
            (5, &[(0, 0, 8), (1, 0, 8), (2, 0, 8), (3, 0, 8)], None, Method::FullStripe, &[]),
            (5, &[(0, 2, 3), (1, 2, 3), (2, 2, 3), (3, 2, 3)], None, Method::FullStripe, &[]),
            (3, &[(0, 0, 1)], None, Method::ReconstructWrite, &[1]),
            (4, &[(0, 0, 1)], None, Method::ReconstructWrite, &[1, 2]),
            (4, &[(0, 0, 1), (1, 7, 1)], None, Method::ReconstructWrite, &[0, 1, 2]),
            (5, &[(0, 0, 8)], Some(4), Method::Bare, &[]),
            (5, &[(0, 0, 8)], Some(0), Method::ReconstructWrite, &[1, 2, 3]),
            (5, &[(0, 0, 8), (1, 0, 8)], Some(2), Method::ReadModifyWrite, &[0, 1, 4]),
            (5, &[(0, 0, 4), (1, 4, 4)], Some(0), Method::Recover, &[1, 2, 3, 4]),
        ];
        for (members, fragments, absent, method, reads) in cases {
            let fragments: Vec<_> =
                fragments.iter().map(|&(index, from, sectors)| fragment(index, from, sectors)).collect();
            let plan = plan(&shape(*members), 0, &fragments, *absent, Aim::Speed);
            assert_eq!((plan.method, &plan.reads[..]), (*method, *reads), "{members} {absent:?}");
        }
    }

    /// Every way produces the parity of the row after the write. Method: random rows, writes and absent members,
    /// against the definition.
    #[test]
    fn parity_is_that_of_the_new_row() {
        let mut rng = Rng::new(5);
        let mut seen = std::collections::BTreeMap::new();
        for step in 0..2000 {
            let shape = shape(rng.between(3, 6) as usize);
            let row = rng.below(16);
            let mut units: Vec<Vec<u8>> = vec![vec![0; 8 * SECTOR_BYTES as usize]; shape.width()];
            units.iter_mut().for_each(|unit| rng.fill(unit));
            let mut disks = vec![vec![0; 8 * SECTOR_BYTES as usize]; shape.members];
            for (index, unit) in units.iter().enumerate() {
                disks[shape.member(row, index)].copy_from_slice(unit);
                xor(&mut disks[shape.parity(row)], unit);
            }
            let mut fragments: Vec<Fragment> = Vec::new();
            for _ in 0..rng.between(1, 6) {
                let from = if rng.chance(1, 2) { 0 } else { rng.below(8) };
                let sectors = if rng.chance(1, 2) { 8 - from } else { rng.between(1, 8 - from) };
                let mut new = fragment(rng.below(shape.width() as u64) as usize, from, sectors);
                rng.fill(new.data.make_mut());
                if !fragments.iter().any(|old| old.overlaps(&new)) {
                    units[new.index][bytes(from, sectors)].copy_from_slice(&new.data);
                    fragments.push(new);
                }
            }
            let absent = rng.chance(1, 2).then(|| rng.below(shape.members as u64) as usize);
            let aim = *rng.pick(&[Aim::Speed, Aim::Redundancy, Aim::Undo, Aim::Resync, Aim::Data]);
            let plan = plan(&shape, row, &fragments, absent, aim);
            let allowed: &[Method] = match aim {
                _ if absent.is_some() => &[],
                Aim::Speed => &[],
                Aim::Redundancy => &[Method::ReadModifyWrite, Method::FullStripe],
                Aim::Undo => &[Method::ReadModifyWrite],
                Aim::Resync => &[Method::ReconstructWrite, Method::FullStripe],
                Aim::Data => &[Method::Bare],
            };
            assert!(allowed.is_empty() || allowed.contains(&plan.method), "step {step}: {aim:?} {plan:?}");
            *seen.entry(format!("{:?}", plan.method)).or_insert(0) += 1;
            assert!(plan.reads.iter().all(|&member| Some(member) != absent), "step {step}");
            if plan.method == Method::Bare {
                continue;
            }
            let range = bytes(plan.from, plan.sectors());
            let read: Vec<Buf> =
                plan.reads.iter().map(|&member| Buf::from_slice(&disks[member][range.clone()])).collect();
            let mut expected = vec![0; range.len()];
            units.iter().for_each(|unit| xor(&mut expected, &unit[range.clone()]));
            assert_eq!(plan.parity(&shape, &fragments, &read)[..], expected, "step {step}: {plan:?}");
        }
        assert_eq!(seen.len(), 5, "{seen:?}");
    }
}
