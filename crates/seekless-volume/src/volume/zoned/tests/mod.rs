//! Aim: a store on zones returns what was written, in order and after power cuts, and never runs out of zones. Method: a plain model of
//! spans beside the store, on zones that allow no more to be open than the store needs.

mod cuts;
mod damage;
mod model;

use std::collections::BTreeMap;
use std::rc::Rc;

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::{BlockDevice, Buf, Data, Image, WriteFlags, Zones};
use crate::rng::Rng;
use crate::rt::{Executor, HostProfile, Rt};
use crate::testing::stored_zones::StoredZones;
use crate::units::{KIB, SECTOR_BYTES, Sector};

const BLOCK: u64 = format::BLOCK_BYTES as u64;

/// Zones of a size, and how many spans they have.
#[derive(Clone, Copy, Debug)]
struct Shape {
    zones: Zones,
    span_bytes: u64,
}

const fn zones(count: u32, capacity: u64) -> Zones {
    let capacity_sectors = capacity / SECTOR_BYTES;
    let zone_sectors = capacity_sectors.next_power_of_two();
    Zones { count, zone_sectors, capacity_sectors, open_max: 4, active_max: 4 }
}

/// A span in a zone, three with a rest, and eight.
const SHAPES: [Shape; 3] = [
    Shape { zones: zones(9, 600 * KIB), span_bytes: 600 * KIB },
    Shape { zones: zones(8, 600 * KIB), span_bytes: 196 * KIB },
    Shape { zones: zones(7, 640 * KIB), span_bytes: 80 * KIB },
];

impl Shape {
    fn plan(&self) -> Plan {
        Plan { uuid: [7; 16], span_bytes: Some(self.span_bytes), spare: 0 }
    }

    fn bytes(&self) -> u64 {
        StoredZones::bytes(&self.zones)
    }

    async fn zones_on(&self, below: Device) -> Device {
        StoredZones::open(below, self.zones).await.expect("the device works")
    }

    async fn create(&self, below: Device) -> Rc<Store> {
        Store::create(self.zones_on(below).await, &self.plan()).await.expect("the plan fits")
    }

    async fn open(&self, below: Device) -> Result<Rc<Store>, ZonedError> {
        Store::open(self.zones_on(below).await, false).await
    }
}

/// A block that says which write it is from; 0 is a block of zeroes.
fn block_of(tag: u64) -> Vec<u8> {
    tag.to_le_bytes().repeat(BLOCK as usize / 8)
}

/// The tag of a block.
fn tag_of(block: &[u8]) -> u64 {
    let tag = u64::from_le_bytes(block[..8].try_into().expect("eight bytes"));
    assert_eq!(block, block_of(tag), "a block from one write");
    tag
}

/// What the store should hold: tags of the blocks of each span that were written, and of fixed blocks.
#[derive(Clone, Default, Debug)]
struct Model {
    spans: BTreeMap<u32, Vec<u64>>,
    fixed: BTreeMap<u64, u64>,
    tags: u64,
}

/// A change of one span or fixed block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Op {
    Append { span: u32, blocks: u64 },
    Cut { span: u32, keep: u64 },
    Fixed { block: u64 },
}

impl Model {
    /// A next operation: mostly continues where the last one was, as a log does.
    fn draw(&self, rng: &mut Rng, layout: &Layout, last: &mut u32) -> Op {
        let span_blocks = layout.span_sectors * SECTOR_BYTES / BLOCK;
        if rng.chance(1, 6) {
            return Op::Fixed { block: rng.below(format::FIXED_BLOCKS) };
        }
        if rng.chance(1, 5) {
            *last = rng.below(layout.span_count.into()) as u32;
        }
        let length = self.spans.get(last).map_or(0, Vec::len) as u64;
        if length == span_blocks || length > 0 && rng.chance(1, 8) {
            let keep = if rng.chance(1, 3) { rng.below(length) } else { 0 };
            return Op::Cut { span: *last, keep };
        }
        Op::Append { span: *last, blocks: rng.between(1, (span_blocks - length).min(12)) }
    }

    /// Does it here and on `store`.
    async fn apply(&mut self, op: Op, store: &Store) -> Result<(), DeviceError> {
        let layout = *store.layout();
        match op {
            Op::Append { span, blocks } => {
                let tags: Vec<u64> = (1..=blocks).map(|number| self.tags + number).collect();
                self.tags += blocks;
                let bytes: Vec<u8> = tags.iter().flat_map(|&tag| block_of(tag)).collect();
                let known = self.spans.entry(span).or_default();
                let at = layout.span_start(span) + known.len() as u64 * BLOCK / SECTOR_BYTES;
                known.extend(tags);
                store.write(at, Data::from_slice(&bytes), WriteFlags::NONE).await
            }
            Op::Cut { span, keep } => {
                if let Some(known) = self.spans.get_mut(&span) {
                    known.truncate(keep as usize);
                }
                let offset = keep * BLOCK / SECTOR_BYTES;
                store.discard(layout.span_start(span) + offset, layout.span_sectors - offset).await
            }
            Op::Fixed { block } => {
                self.tags += 1;
                self.fixed.insert(block, self.tags);
                let bytes = block_of(self.tags);
                store.write(fixed_at(&layout, block), Data::from_slice(&bytes), WriteFlags::NONE).await
            }
        }
    }

    /// Compares everything.
    async fn compare(&self, store: &Store) {
        for span in 0..store.layout().span_count {
            let found = read_span(store, span).await;
            let expected = self.spans.get(&span).cloned().unwrap_or_default();
            assert_eq!(found, expected, "span {span}");
        }
        for block in 0..format::FIXED_BLOCKS {
            assert_eq!(read_fixed(store, block).await, self.fixed.get(&block).copied().unwrap_or(0), "block {block}");
        }
        store.check();
    }
}

fn fixed_at(layout: &Layout, block: u64) -> Sector {
    match block < format::FRONT_BLOCKS {
        true => Sector(block * format::BLOCK_SECTORS),
        false => layout.span_start(layout.span_count) + (block - format::FRONT_BLOCKS) * format::BLOCK_SECTORS,
    }
}

async fn read_fixed(store: &Store, block: u64) -> u64 {
    tag_of(&store.read(fixed_at(store.layout(), block), Buf::dirty(BLOCK as usize)).await.expect("it can be read"))
}

/// The tags of a span, up to the first block of zeroes; behind that there is nothing else.
async fn read_span(store: &Store, span: u32) -> Vec<u64> {
    let bytes = (store.layout().span_sectors * SECTOR_BYTES) as usize;
    let found = store.read(store.layout().span_start(span), Buf::dirty(bytes)).await.expect("it can be read");
    let mut tags: Vec<u64> = found.chunks_exact(BLOCK as usize).map(tag_of).collect();
    let length = tags.iter().position(|tag| *tag == 0).unwrap_or(tags.len());
    assert!(tags[length..].iter().all(|tag| *tag == 0), "span {span} has a hole: {tags:?}");
    tags.truncate(length);
    tags
}

fn run<T>(seed: u64, program: impl AsyncFnOnce(Rt) -> T) -> T {
    let executor = Executor::simulated(seed, HostProfile::NONE);
    let rt = executor.rt().clone();
    executor.block_on(program(rt)).expect("nothing waits indefinitely")
}
