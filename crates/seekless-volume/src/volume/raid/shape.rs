//! Where the data and the parity of an array are placed.
//!
//! Members are cut into units; the units at one place of all members are a *row*. On a mirror all units of a row are
//! equal. With parity, one unit of a row is the exclusive or of the others, and the layout is left-symmetric, as in
//! Linux md and DiskSim: parity begins on the last member and moves down by one each row, and the data units follow it
//! round, so that a long run of data touches all members in turn.
//!
//! ```text
//! member   0   1   2   3
//! row 0    0   1   2   P
//! row 1    4   5   P   3
//! row 2    8   P   6   7
//! row 3    P   9  10  11
//! ```

use std::ops::Range;

use crate::units::Sector;

/// What an array does about a failing member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Level {
    /// RAID-1: every member holds all data.
    Mirror,
    /// RAID-5: each row has one unit of parity.
    Parity,
}

impl Level {
    /// Its name on a stack line.
    pub fn name(self) -> &'static str {
        match self {
            Level::Mirror => "raid1",
            Level::Parity => "raid5",
        }
    }
}

/// Parameters that never change during an array's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shape {
    pub(super) level: Level,
    pub(super) members: usize,
    /// Sectors of a unit. On a mirror, the unit of locking and resync.
    pub(super) unit: u64,
    pub(super) rows: u64,
    /// First data sector on each member.
    pub(super) data_start: u64,
}

/// A part of a data unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Part {
    pub(super) row: u64,
    /// Which data unit of the row.
    pub(super) index: usize,
    /// First sector in the unit.
    pub(super) from: u64,
    pub(super) sectors: u64,
    /// Sectors from the start of the request.
    pub(super) offset: u64,
}

impl Shape {
    /// Data units of a row.
    pub(super) fn width(&self) -> usize {
        match self.level {
            Level::Mirror => 1,
            Level::Parity => self.members - 1,
        }
    }

    /// Data sectors of a row.
    pub(super) fn row_sectors(&self) -> u64 {
        self.unit * self.width() as u64
    }

    pub(super) fn sectors(&self) -> u64 {
        self.rows * self.row_sectors()
    }

    /// The first sector behind the data on each member.
    pub(super) fn end(&self) -> u64 {
        self.data_start + self.rows * self.unit
    }

    /// The member that holds the parity of `row`.
    pub(super) fn parity(&self, row: u64) -> usize {
        debug_assert_eq!(self.level, Level::Parity, "a mirror has no parity");
        self.members - 1 - (row % self.members as u64) as usize
    }

    /// The member that holds data unit `index` of `row`.
    pub(super) fn member(&self, row: u64, index: usize) -> usize {
        debug_assert!(index < self.width(), "a row has so many data units");
        match self.level {
            Level::Mirror => 0,
            Level::Parity => (self.parity(row) + 1 + index) % self.members,
        }
    }

    /// The data unit of `row` that `member` holds; `None` for parity.
    pub(super) fn index(&self, row: u64, member: usize) -> Option<usize> {
        debug_assert!(member < self.members, "what has a unit of a row is a member");
        match self.level {
            Level::Mirror => Some(0),
            Level::Parity => {
                let after = (member + self.members - self.parity(row)) % self.members;
                after.checked_sub(1)
            }
        }
    }

    /// The sector at offset `from` in the units of `row`, the same on every member.
    pub(super) fn at(&self, row: u64, from: u64) -> u64 {
        debug_assert!(row < self.rows && from < self.unit, "a unit lies in the data of its member");
        self.data_start + row * self.unit + from
    }

    /// The rows that a request touches.
    pub(super) fn rows_of(&self, at: Sector, sectors: u64) -> Range<u64> {
        debug_assert!(at.0 + sectors <= self.sectors(), "a request lies in the rows of the array");
        at.0 / self.row_sectors()..(at.0 + sectors).div_ceil(self.row_sectors())
    }

    /// The parts of a request, in its order.
    pub(super) fn parts(&self, at: Sector, sectors: u64) -> impl Iterator<Item = Part> + use<> {
        let shape = *self;
        let mut offset = 0;
        std::iter::from_fn(move || {
            if offset == sectors {
                return None;
            }
            let sector = at.0 + offset;
            let (unit, from) = (sector / shape.unit, sector % shape.unit);
            let (row, index) = (unit / shape.width() as u64, (unit % shape.width() as u64) as usize);
            let part = Part { row, index, from, sectors: (shape.unit - from).min(sectors - offset), offset };
            debug_assert!(part.row < shape.rows && part.sectors > 0, "each part of a request is in a row of the array");
            offset += part.sectors;
            Some(part)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The picture at the head of this file.
    #[test]
    fn the_layout_is_left_symmetric() {
        let shape = Shape { level: Level::Parity, members: 4, unit: 8, rows: 4, data_start: 100 };
        let mut picture = vec![vec![None; 4]; 4];
        for part in shape.parts(Sector(0), shape.sectors()) {
            picture[part.row as usize][shape.member(part.row, part.index)] = Some(part.offset / 8);
        }
        assert_eq!(
            picture,
            [
                [Some(0), Some(1), Some(2), None],
                [Some(4), Some(5), None, Some(3)],
                [Some(8), None, Some(6), Some(7)],
                [None, Some(9), Some(10), Some(11)]
            ]
        );
        for row in 0..9 {
            assert_eq!(shape.index(row, shape.parity(row)), None);
            for index in 0..3 {
                assert_eq!(shape.index(row, shape.member(row, index)), Some(index));
            }
        }
        assert_eq!(shape.rows_of(Sector(23), 2), 0..2);
        assert_eq!(shape.rows_of(Sector(24), 24), 1..2);
    }
}
