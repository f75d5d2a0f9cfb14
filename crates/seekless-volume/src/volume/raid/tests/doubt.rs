//! Aim: data written to a unit that cannot be known is there afterwards, immediately and after every later start, and
//! only that. Method: an array that loses power during writes and comes back without a member; random requests against
//! plain bytes and a flag for each unknown sector, with further power cuts in between.

use super::*;
use crate::rng::Rng;
use crate::testing::environment::soak;

const SECTORS: u64 = 420;
const UNIT: u64 = 8;

fn options() -> ArrayOptions {
    ArrayOptions { degraded: true, ..small(Level::Parity) }
}

/// The present content of the members, as a power cut leaves it.
fn copies(memories: &[Rc<Memory>]) -> Vec<Rc<Memory>> {
    let copy = |memory: &Rc<Memory>| Rc::new(Memory::from_image(SECTORS * SECTOR_BYTES, memory.image()));
    memories.iter().map(copy).collect()
}

fn without(memories: &[Rc<Memory>], missing: usize) -> Vec<Option<Device>> {
    let given = |slot: usize| (slot != missing).then(|| memories[slot].clone() as Device);
    (0..memories.len()).map(given).collect()
}

/// The array, its expected content, and which sectors cannot be known.
struct Doubted {
    array: Rc<Array>,
    memories: Vec<Rc<Memory>>,
    missing: usize,
    bytes: Vec<u8>,
    in_doubt: Vec<bool>,
}

impl Doubted {
    /// An array of `members` that lost power during writes, and comes back without `missing`.
    async fn new(rt: &Rt, members: usize, missing: usize, rng: &mut Rng) -> Doubted {
        let memories: Vec<Rc<Memory>> = (0..members).map(|_| Rc::new(Memory::new(SECTORS * SECTOR_BYTES))).collect();
        let devices = memories.iter().map(|memory| memory.clone() as Device).collect();
        let array = Array::create(rt, devices, &options(), UUID, Contents::Zeroes).await.unwrap();
        let sectors = array.geometry().sectors;
        let mut bytes = vec![0; (sectors * SECTOR_BYTES) as usize];
        rng.fill(&mut bytes);
        array.write(Sector(0), Data::from_slice(&bytes), WriteFlags::NONE).await.unwrap();
        Box::pin(array.release()).await.unwrap();
        let region = array.core.layout.unwrap().region_rows;
        let mut in_doubt = vec![false; sectors as usize];
        for _ in 0..2 {
            let at = rng.below(sectors);
            let range = (at * SECTOR_BYTES) as usize..((at + 1) * SECTOR_BYTES) as usize;
            array.write(Sector(at), Data::from_slice(&bytes[range]), WriteFlags::NONE).await.unwrap();
            let shape = &array.core.shape;
            let regions = at / shape.row_sectors() / region;
            for part in shape.parts(Sector(0), sectors).filter(|part| part.row / region == regions) {
                if shape.member(part.row, part.index) == missing {
                    in_doubt[part.offset as usize..(part.offset + part.sectors) as usize].fill(true);
                }
            }
        }
        let memories = copies(&memories);
        let array = Array::open(rt, without(&memories, missing), &options()).await.unwrap();
        assert!(array.status().doubtful > 0);
        Doubted { array, memories, missing, bytes, in_doubt }
    }

    async fn compare(&self) {
        for at in 0..self.in_doubt.len() {
            let read = self.array.read(Sector(at as u64), Buf::dirty(512)).await;
            match (self.in_doubt[at], read) {
                (false, Ok(read)) => assert!(read[..] == self.bytes[at * 512..][..512], "sector {at} is wrong"),
                (false, Err(error)) => panic!("sector {at} is known, and cannot be read: {error}"),
                (true, Ok(_)) => panic!("sector {at} cannot be known, and is read"),
                (true, Err(error)) => assert!(error.to_string().contains("cannot be known"), "{error}"),
            }
        }
    }

    async fn write(&mut self, at: u64, length: u64, rng: &mut Rng) {
        let range = (at * SECTOR_BYTES) as usize..((at + length) * SECTOR_BYTES) as usize;
        if rng.chance(1, 8) {
            self.bytes[range.clone()].fill(0);
            self.array.discard(Sector(at), length).await.unwrap();
        } else {
            rng.fill(&mut self.bytes[range.clone()]);
            let data = Data::from_slice(&self.bytes[range]);
            self.array.write(Sector(at), data, WriteFlags { fua: rng.chance(1, 2) }).await.unwrap();
        }
        self.in_doubt[at as usize..(at + length) as usize].fill(false);
    }

    /// The power fails; the member is still missing.
    async fn restart(&mut self, rt: &Rt) {
        self.memories = copies(&self.memories);
        self.array = Array::open(rt, without(&self.memories, self.missing), &options()).await.unwrap();
    }
}

fn every_shape(seeds: u64, body: impl AsyncFn(&Rt, Doubted, Rng)) {
    for seed in 1..=soak().times(seeds) {
        for members in [3, 4] {
            let executor = Executor::simulated(seed, HostProfile::NONE);
            let rt = executor.rt().clone();
            let mut rng = Rng::new(seed);
            println!("seed {seed}, {members} members");
            let run = async {
                let doubted = Doubted::new(&rt, members, seed as usize % members, &mut rng).await;
                body(&rt, doubted, rng).await;
            };
            executor.block_on(run).unwrap();
        }
    }
}

/// Parts of units and whole ones, and starts in between.
#[test]
fn what_is_written_in_doubt_is_there() {
    every_shape(6, async |rt, mut doubted, mut rng| {
        let sectors = doubted.in_doubt.len() as u64;
        doubted.compare().await;
        for _ in 0..30 {
            let length = rng.between(1, 3 * UNIT);
            let at = rng.below(sectors - length);
            doubted.write(at, length, &mut rng).await;
            if rng.chance(1, 3) {
                doubted.compare().await;
            }
            if rng.chance(1, 4) {
                doubted.restart(rt).await;
                doubted.compare().await;
            }
        }
    });
}

/// Two clients that write to one unit at once: the answer of each holds.
#[test]
fn writers_of_one_unit_are_served_together() {
    every_shape(4, async |rt, mut doubted, mut rng| {
        let first = doubted.in_doubt.iter().position(|is_in_doubt| *is_in_doubt).unwrap() as u64;
        let array = doubted.array.clone();
        let write = |at: u64, byte: u8| {
            let array = array.clone();
            async move { array.write(Sector(at), Data::from_slice(&[byte; 512]), WriteFlags::NONE).await }
        };
        let writes = (0..UNIT - 1).map(|within| write(first + within, within as u8 + 1));
        for result in futures_util::future::join_all(writes).await {
            result.unwrap();
        }
        for within in 0..UNIT - 1 {
            let at = (first + within) as usize;
            doubted.bytes[at * 512..][..512].fill(within as u8 + 1);
            doubted.in_doubt[at] = false;
        }
        drop(array);
        doubted.compare().await;
        doubted.restart(rt).await;
        doubted.compare().await;
        doubted.write(first, UNIT, &mut rng).await;
        doubted.compare().await;
    });
}

/// When everything has been rewritten the missing member can be rebuilt, and ranges once known are in doubt again when
/// the same happens to the complete array.
#[test]
fn doubt_ends_and_can_begin_again() {
    every_shape(3, async |rt, mut doubted, mut rng| {
        let sectors = doubted.in_doubt.len() as u64;
        let wanted: Vec<u64> = (0..sectors).filter(|&at| doubted.in_doubt[at as usize]).collect();
        for &at in &wanted {
            doubted.write(at, 1, &mut rng).await;
        }
        assert_eq!(doubted.array.status().doubtful, 0);
        doubted.restart(rt).await;
        assert_eq!(doubted.array.status().doubtful, 0);
        doubted.compare().await;
        let spare = Rc::new(Memory::new(SECTORS * SECTOR_BYTES));
        doubted.memories[doubted.missing] = spare.clone();
        doubted.array.replace(doubted.missing, spare).await.unwrap();
        while !doubted.array.status().is_healthy() {
            assert_eq!(doubted.array.status().error, None);
            rt.sleep(Nanos(1)).await;
        }
        assert_eq!(doubted.array.scrub().await, Ok(0));
        doubted.compare().await;
        // In the middle of a write to it, this time without another member.
        let at = wanted[0];
        doubted.write(at, 1, &mut rng).await;
        doubted.missing = (doubted.missing + 1) % doubted.memories.len();
        doubted.restart(rt).await;
        let shape = doubted.array.core.shape;
        let region = doubted.array.core.layout.unwrap().region_rows;
        let first = at / shape.row_sectors() / region * region;
        let rows = first..(first + region).min(shape.rows);
        let expected = rows.filter(|&row| shape.parity(row) != doubted.missing).count();
        assert_eq!(doubted.array.status().doubtful, expected as u64);
    });
}

/// More scattered parts than the superblocks have room for: an error, and every acknowledged write is there.
#[test]
fn what_is_known_has_its_limit() {
    const MEMBER_SECTORS: u64 = 2000;
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let memories: Vec<Rc<Memory>> = (0..3).map(|_| Rc::new(Memory::new(MEMBER_SECTORS * SECTOR_BYTES))).collect();
        let devices = memories.iter().map(|memory| memory.clone() as Device).collect();
        let array = Array::create(&rt, devices, &options(), UUID, Contents::Zeroes).await.unwrap();
        let sectors = array.geometry().sectors;
        let zeroes = Data::zeroes((sectors * SECTOR_BYTES) as usize);
        array.write(Sector(0), zeroes, WriteFlags::NONE).await.unwrap();
        let left = |memories: &[Rc<Memory>]| -> Vec<Option<Device>> {
            let copy = |memory: &Rc<Memory>| Memory::from_image(MEMBER_SECTORS * SECTOR_BYTES, memory.image());
            let given = |slot: usize| (slot != 1).then(|| Rc::new(copy(&memories[slot])) as Device);
            (0..3).map(given).collect()
        };
        let given = left(&memories);
        let array = Array::open(&rt, given.clone(), &options()).await.unwrap();
        let (mut written, mut refused) = (Vec::new(), 0);
        for at in (0..sectors).step_by(2) {
            if array.read(Sector(at), Buf::dirty(512)).await.is_ok() {
                continue;
            }
            let data = Data::from_slice(&[at as u8; 512]);
            match array.write(Sector(at), data, WriteFlags::NONE).await {
                Ok(()) => written.push(at),
                Err(error) => {
                    assert!(error.to_string().contains("parts have been written"), "{error}");
                    refused += 1;
                }
            }
        }
        assert_eq!(written.len(), crate::volume::format::KNOWN_MAX);
        assert!(refused > 0);
        drop(array);
        let array = Array::open(&rt, given, &options()).await.unwrap();
        for at in written {
            assert!(array.read(Sector(at), Buf::dirty(512)).await.unwrap()[..] == [at as u8; 512], "sector {at}");
        }
    };
    executor.block_on(run).unwrap();
}

/// With `doubt=accept`, the reading without the missing member is the usual one.
#[test]
fn accepted_doubt_is_a_reading() {
    every_shape(2, async |rt, doubted, _| {
        let accepting = ArrayOptions { doubt: UncertainData::Accept, ..options() };
        let members = without(&copies(&doubted.memories), doubted.missing);
        let array: Device = Array::open(rt, members, &accepting).await.unwrap();
        assert_eq!(array.readings(), doubted.memories.len() as u32);
        for at in (0..array.geometry().sectors).map(Sector) {
            let usual = array.read(at, Buf::dirty(512)).await.unwrap();
            let without = array.read_as(at, Buf::dirty(512), doubted.missing as u32).await;
            assert!(without.unwrap_or_else(|error| panic!("{at}: {error}"))[..] == usual[..], "{at}");
        }
    });
}
