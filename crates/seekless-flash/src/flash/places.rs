//! The mapping table: the place of each unit that moved since the start. Everything else follows from [`Start`].
//!
//! Entries are kept in chunks. A chunk of which little has moved lists what did, so that a unit that moves costs seven bytes and
//! not a whole chunk; one of which more has moved has an entry of four bytes for each unit, which is what the table of a real
//! drive has, and the most that one of this kind can take.

use std::collections::BTreeMap;

use super::start::{NONE, Start};

/// Units of a chunk.
pub(super) const CHUNK: u32 = 1024;

/// Entries that a chunk lists at most. A listed one takes six bytes and some room to grow, one in a whole chunk four.
const LISTED_MAX: usize = CHUNK as usize / 2;

#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    chunks: BTreeMap<u32, Chunk>,
}

#[derive(Clone, Debug)]
enum Chunk {
    /// Units that have moved, in the order of their offsets. The others are where `rest` says.
    Listed { moved: Vec<Moved>, rest: Rest },
    /// The place of each unit.
    Whole(Box<[u32]>),
}

/// A unit's offset in its chunk, and its place: its lower half and its upper one. A pair would take eight bytes.
#[derive(Clone, Copy, Debug)]
struct Moved([u16; 3]);

impl Moved {
    fn new(offset: u16, place: u32) -> Moved {
        Moved([offset, place as u16, (place >> 16) as u16])
    }

    fn offset(self) -> u16 {
        self.0[0]
    }

    fn place(self) -> u32 {
        u32::from(self.0[2]) << 16 | u32::from(self.0[1])
    }
}

/// Where the units are that a chunk does not list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rest {
    /// Where they were at the start.
    Start,
    /// Nowhere: the chunk was discarded as a whole.
    Nowhere,
}

impl Rest {
    fn place(self, start: &Start, unit: u32) -> u32 {
        match self {
            Rest::Start => start.place(unit),
            Rest::Nowhere => NONE,
        }
    }
}

impl Places {
    /// Where a unit is, or [`NONE`].
    pub(super) fn get(&self, start: &Start, unit: u32) -> u32 {
        let offset = unit % CHUNK;
        match self.chunks.get(&(unit / CHUNK)) {
            None => start.place(unit),
            Some(Chunk::Whole(places)) => places[offset as usize],
            Some(Chunk::Listed { moved, rest }) => match find(moved, offset as u16) {
                Ok(index) => moved[index].place(),
                Err(_) => rest.place(start, unit),
            },
        }
    }

    pub(super) fn set(&mut self, start: &Start, unit: u32, place: u32) {
        let (number, offset) = (unit / CHUNK, unit % CHUNK);
        let chunk = self.chunks.entry(number).or_insert_with(|| Chunk::Listed { moved: Vec::new(), rest: Rest::Start });
        match chunk {
            Chunk::Whole(places) => places[offset as usize] = place,
            Chunk::Listed { moved, rest } => match find(moved, offset as u16) {
                Ok(index) => moved[index] = Moved::new(offset as u16, place),
                Err(index) if moved.len() < LISTED_MAX => {
                    if moved.len() == moved.capacity() {
                        // By an eighth. A drive has hundreds of thousands of lists: doubled, they would take half as much again.
                        moved.reserve_exact(4 + moved.len() / 8);
                    }
                    moved.insert(index, Moved::new(offset as u16, place));
                }
                Err(_) => {
                    // The last chunk is longer than the drive.
                    let units = number * CHUNK..(number * CHUNK + CHUNK).min(start.units());
                    let mut places: Box<[u32]> = units.map(|unit| rest.place(start, unit)).collect();
                    moved.iter().for_each(|moved| places[usize::from(moved.offset())] = moved.place());
                    places[offset as usize] = place;
                    *chunk = Chunk::Whole(places);
                }
            },
        }
    }

    /// The units of a chunk are nowhere any more.
    pub(super) fn discard(&mut self, chunk: u32) {
        self.chunks.insert(chunk, Chunk::Listed { moved: Vec::new(), rest: Rest::Nowhere });
    }

    /// Whether anything of a chunk has moved.
    pub(super) fn has(&self, chunk: u32) -> bool {
        self.chunks.contains_key(&chunk)
    }

    /// Memory in bytes, without that of the tree of chunks.
    pub(super) fn memory_bytes(&self) -> u64 {
        let bytes = |chunk: &Chunk| match chunk {
            Chunk::Listed { moved, .. } => moved.capacity() * size_of::<Moved>(),
            Chunk::Whole(places) => size_of_val(&**places),
        };
        self.chunks.values().map(bytes).sum::<usize>() as u64
    }
}

/// The index of an offset, or that where it would be.
fn find(moved: &[Moved], offset: u16) -> Result<usize, usize> {
    match moved.last() {
        // Units that are written in order.
        Some(last) if last.offset() < offset => Err(moved.len()),
        _ => moved.binary_search_by_key(&offset, |moved| moved.offset()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flash::Fill;
    use crate::rng::Rng;

    /// Scattered units take seven bytes each, on drives of any size, until a chunk is whole; then four. Method: one of eight units, in random order, and
    /// all of them.
    #[test]
    fn scattered_units_take_a_few_bytes() {
        let logical = 500 * CHUNK;
        let start = Start::new(Fill::Random, logical, 512, 1200);
        let (mut places, mut rng) = (Places::default(), Rng::new(1));
        let mut moved = 0;
        while moved < logical / 8 {
            let unit = rng.below(u64::from(logical)) as u32;
            moved += u32::from(places.get(&start, unit) < u32::MAX - logical);
            places.set(&start, unit, u32::MAX - 1 - unit);
        }
        let each = places.memory_bytes() as f64 / f64::from(moved);
        assert!(each < 7.0, "{each} bytes");
        (0..logical).for_each(|unit| places.set(&start, unit, unit));
        assert_eq!(places.memory_bytes(), 4 * u64::from(logical));
    }

    /// Aim: the table says what one without chunks says. Method: random entries, dense and sparse, among them those that say
    /// nowhere, and discards of chunks, beside a table of all units.
    #[test]
    fn chunks_do_not_show() {
        for (seed, fill) in [Fill::Fresh, Fill::Sequential, Fill::Random].into_iter().enumerate() {
            let mut rng = Rng::new(seed as u64);
            let logical = 5 * CHUNK - 100;
            let start = Start::new(fill, logical, 512, 12);
            let mut places = Places::default();
            let mut plain: Vec<u32> = (0..logical).map(|unit| start.place(unit)).collect();
            let mut next = 0;
            for step in 0..24_000 {
                // One chunk stays sparse, and one is written in order.
                let unit = match rng.below(8) {
                    0 if step % 32 == 0 => rng.below(u64::from(CHUNK)) as u32,
                    0..3 => CHUNK + next,
                    _ => 2 * CHUNK + rng.below(u64::from(logical - 2 * CHUNK)) as u32,
                };
                next = (next + 1) % CHUNK;
                if step < 18_000 && rng.chance(1, 4000) {
                    let chunk = rng.below(4) as u32;
                    places.discard(chunk);
                    plain[(chunk * CHUNK) as usize..((chunk + 1) * CHUNK) as usize].fill(NONE);
                }
                let place = if rng.chance(1, 9) { NONE } else { rng.below(1 << 31) as u32 };
                places.set(&start, unit, place);
                plain[unit as usize] = place;
                if step % 500 == 0 {
                    assert!(
                        (0..logical).all(|unit| places.get(&start, unit) == plain[unit as usize]),
                        "{fill:?} {step}"
                    );
                }
            }
            assert!((0..logical).all(|unit| places.get(&start, unit) == plain[unit as usize]), "{fill:?}");
            assert!(matches!(places.chunks[&0], Chunk::Listed { .. }) && matches!(places.chunks[&3], Chunk::Whole(_)));
        }
    }
}
