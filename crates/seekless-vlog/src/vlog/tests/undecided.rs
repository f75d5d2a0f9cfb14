//! Aim: a tail or an anchor that finds no space, and is on the device nevertheless, loses nothing: nothing that either map
//! leads to is written over before one is certainly the durable one. Method: a nearly full disk whose device answers some
//! of these writes with `NoSpace`, and keeps them or not; from the first one on, the disk is opened again from a copy after each
//! write, as after a power cut.

use std::cell::{Cell, RefCell};

use async_trait::async_trait;

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{DeviceError, Geometry, Guarantees};
use crate::vlog::format::{ANCHORS, Key, Piece};
use crate::vlog::map_state::MapState;

const KEY: Key = Key { uuid: [7; 16], key: [9; 16] };
const CELL_SECTORS: u64 = 1;

/// What each block may hold: the numbers of its last write that is certainly durable and of all later ones, and whether each
/// write was acknowledged. One that was not may be there or not.
#[derive(Clone, Default)]
struct Expected(Vec<Vec<(u64, bool)>>);

impl Expected {
    /// Everything acknowledged is durable that was there when the blocks had so many writes.
    fn flushed(&mut self, lengths: &[usize]) {
        for (writes, &length) in self.0.iter_mut().zip(lengths) {
            let certain = writes[..length].iter().rposition(|(_, is_acknowledged)| *is_acknowledged).unwrap_or(0);
            writes.drain(..certain);
        }
    }

    fn lengths(&self) -> Vec<usize> {
        self.0.iter().map(Vec::len).collect()
    }

    /// From here on, each block is expected to hold what it does.
    async fn check(&mut self, vld: &Rc<Vld>, name: &str) {
        for (block, writes) in self.0.iter_mut().enumerate() {
            let number = number_of(vld, block as u64).await;
            let is_one = writes.iter().any(|(written, _)| *written == number);
            assert!(is_one, "{name}: block {block} is of write {number}, and not of {writes:?}");
            *writes = vec![(number, true)];
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Victim {
    Tail,
    Anchor,
}

/// A device without space for some tails or anchors.
struct Full {
    memory: Rc<Memory>,
    victim: Victim,
    /// How many writes to the victims find no space, from now on.
    left: Cell<u32>,
    /// They are on the device nevertheless.
    keeps: bool,
    expected: RefCell<Expected>,
    /// The device after each write since the first of these, and what may then be on the disk.
    copies: RefCell<Vec<(Image, Expected)>>,
}

impl Full {
    fn on(memory: &Rc<Memory>, victim: Victim, keeps: bool) -> Rc<Full> {
        Rc::new(Full {
            memory: memory.clone(),
            victim,
            left: Cell::default(),
            keeps,
            expected: RefCell::default(),
            copies: RefCell::default(),
        })
    }

    fn is_victim(&self, at: Sector, data: &Data) -> bool {
        match self.victim {
            Victim::Anchor => ANCHORS.contains(&at.0),
            Victim::Tail => {
                data.len() as u64 == CELL_SECTORS * SECTOR_BYTES
                    && Piece::from_cell(data, &KEY, at.0 / CELL_SECTORS).is_some_and(|piece| piece.commits)
            }
        }
    }
}

#[async_trait(?Send)]
impl BlockDevice for Full {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn guarantees(&self) -> Guarantees {
        self.memory.guarantees()
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.memory.read(at, buf).await
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        let (is_full, bytes) = (self.left.get() > 0 && self.is_victim(at, &data), data.len() as u64);
        if !is_full || self.keeps {
            self.memory.write(at, data, flags).await?;
        }
        if is_full || !self.copies.borrow().is_empty() {
            self.copies.borrow_mut().push((self.memory.image(), self.expected.borrow().clone()));
        }
        if is_full {
            self.left.set(self.left.get() - 1);
            return Err(DeviceError::NoSpace { at, bytes });
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.memory.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.memory.discard(at, sectors).await
    }

    fn describe(&self) -> String {
        "full".into()
    }
}

/// Writes few blocks often, so that places that are given back are soon taken again, and flushes; returns how often there was
/// no space.
async fn life(vld: &Rc<Vld>, expected: &RefCell<Expected>, rng: &mut Rng, first: u64, turns: u64) -> u32 {
    let (bytes, blocks) = (vld.geometry().block_bytes as usize, expected.borrow().0.len() as u64);
    let mut full = 0;
    for number in first..first + turns {
        let hot: Vec<u64> = (0..rng.between(1, 12)).map(|_| rng.below(blocks)).collect();
        for _ in 0..rng.between(1, 40) {
            let block = *rng.pick(&hot);
            let at = Sector(block * bytes as u64 / SECTOR_BYTES);
            expected.borrow_mut().0[block as usize].push((number, false));
            let written = vld.write(at, Data::from_slice(&stamp(block, number, bytes)), WriteFlags::NONE).await;
            let writes = &mut expected.borrow_mut().0[block as usize];
            match written {
                Ok(()) if vld.commits_each() => *writes = vec![(number, true)],
                Ok(()) => writes.iter_mut().for_each(|write| write.1 |= write.0 == number),
                Err(DeviceError::NoSpace { .. }) => full += 1,
                Err(error) => panic!("{error}"),
            }
        }
        let lengths = expected.borrow().lengths();
        match vld.flush().await {
            Ok(()) => expected.borrow_mut().flushed(&lengths),
            Err(DeviceError::NoSpace { .. }) => full += 1,
            Err(error) => panic!("{error}"),
        }
    }
    full
}

/// Whichever tail a start has found, all later ones count for more: what is acknowledged after it is there after further cuts, also
/// when the window has come back to where another tail may be.
async fn second_life(rt: &Rt, vld: Rc<Vld>, memory: &Rc<Memory>, expected: Expected, rng: &mut Rng, name: &str) {
    let expected = RefCell::new(expected);
    for turn in 0..6 {
        life(&vld, &expected, rng, 1000 + turn, 1).await;
        let copy = Rc::new(Memory::from_image(memory.geometry().bytes(), memory.image()));
        let name = format!("{name}, turn {turn} of the second life");
        let again = Vld::open(rt, copy, vld.core.options).await.unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut then = expected.borrow().clone();
        then.check(&again, &name).await;
    }
}

fn without_space(victim: Victim, device_bytes: u64, block_bytes: u32, commit: CommitUse) {
    let options = Options { commit, window: 16 * KIB, ..Options::default() };
    let plan = Plan { block_bytes, reserve: 1200, ..plan() };
    let (mut found_full, mut opened) = (0, 0);
    for seed in 0..12 {
        run(seed, async |rt: Rt| {
            let (keeps, left) = (seed % 4 != 3, 1 + seed as u32 % 3);
            let name = format!("{victim:?}, {block_bytes}, {commit:?}, seed {seed}");
            let memory = Rc::new(Memory::new(device_bytes));
            let full = Full::on(&memory, victim, keeps);
            let vld = Vld::create(&rt, full.clone(), &plan, options).await.expect("made");
            assert_eq!(u64::from(vld.layout().cell_bytes()), CELL_SECTORS * SECTOR_BYTES);
            let blocks = vld.geometry().bytes() / u64::from(block_bytes);
            write(&vld, 0, blocks, 1).await;
            vld.flush().await.expect("it can be flushed");
            *full.expected.borrow_mut() = Expected(vec![vec![(1, true)]; blocks as usize]);
            let mut rng = Rng::new(seed);
            life(&vld, &full.expected, &mut rng, 10, 6).await;
            full.left.set(left);
            found_full += life(&vld, &full.expected, &mut rng, 100, 8).await;
            vld.check_invariants().unwrap_or_else(|what| panic!("{name}: {what}"));
            drop(vld);
            let mut copies = full.copies.take();
            copies.push((memory.image(), full.expected.take()));
            for (number, (image, mut expected)) in copies.into_iter().enumerate() {
                let name = format!("{name}, copy {number}");
                let copy = Rc::new(Memory::from_image(device_bytes, image));
                let again = Vld::open(&rt, copy.clone(), options).await;
                let again = again.unwrap_or_else(|error| panic!("{name}: {error}"));
                expected.check(&again, &name).await;
                again.check_invariants().unwrap_or_else(|what| panic!("{name}: {what}"));
                opened += 1;
                if number % 16 == 0 {
                    second_life(&rt, again, &copy, expected, &mut rng, &name).await;
                }
            }
        });
    }
    println!("{victim:?}, {block_bytes}, {commit:?}: {found_full} times full, {opened} copies");
    assert!(found_full >= 12 && opened > 500, "{found_full} times full, {opened} copies");
}

#[test]
fn a_tail_without_space_loses_nothing() {
    for commit in [CommitUse::Flush, CommitUse::Each] {
        without_space(Victim::Tail, 256 * KIB, 512, commit);
        without_space(Victim::Tail, MIB, 4096, commit);
    }
}

#[test]
fn an_anchor_without_space_loses_nothing() {
    for commit in [CommitUse::Flush, CommitUse::Each] {
        // With larger blocks, the tail stays in one for as long as another piece is there, and needs no other window.
        without_space(Victim::Anchor, 256 * KIB, 512, commit);
    }
}

/// Aim: a start continues with numbers beyond those of a tail that may be on the device, however many transactions were taken back before
/// it (C4); and it finds that tail, also when it has been repeated in another window (C3). Method: more transactions without space than
/// there are pieces, then a tail that finds no space and is on the device nevertheless, and others that find none, either.
#[test]
fn an_undecided_tail_is_found_after_many_attempts() {
    for seed in 0..12 {
        run(seed, async |rt: Rt| {
            let memory = Rc::new(Memory::new(256 * KIB));
            let full = Full::on(&memory, Victim::Tail, true);
            let fault = FaultDevice::new(&rt, full.clone(), seed);
            let options = Options { commit: CommitUse::Flush, window: 16 * KIB, ..Options::default() };
            let plan = Plan { block_bytes: 512, reserve: 2000, ..plan() };
            let vld = Vld::create(&rt, fault.clone(), &plan, options).await.expect("made");
            let (blocks, pieces) = (vld.geometry().bytes() / 512, u64::from(vld.layout().pieces));
            write(&vld, 0, blocks, 1).await;
            vld.flush().await.expect("it can be flushed");
            let MapState::Tree(log) = &vld.core.log else { unreachable!("it is a virtual log") };
            let last = || log.borrow().sequence;
            let tail = last();
            // Different pieces, so that there is one before the tail.
            write(&vld, 0, 1, 2).await;
            write(&vld, blocks - 1, 1, 2).await;
            for _ in 0..pieces + 2 {
                fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace));
                let flushed = vld.flush().await;
                assert!(matches!(flushed, Err(DeviceError::NoSpace { .. })), "{flushed:?}");
                fault.clear();
            }
            assert_eq!(last(), tail, "what was taken back has no numbers");
            full.left.set(u32::MAX);
            for _ in 0..4 {
                let flushed = vld.flush().await;
                assert!(matches!(flushed, Err(DeviceError::NoSpace { .. })), "{flushed:?}");
                let used = last() - tail;
                assert!(used > 0 && used <= pieces, "{used} numbers for {pieces} pieces");
            }
            let copies = full.copies.take();
            for (number, (image, _)) in copies.into_iter().enumerate() {
                let copy = Rc::new(Memory::from_image(256 * KIB, image));
                let again = Vld::open(&rt, copy, options).await.expect("it opens");
                let found = number_of(&again, 0).await;
                assert_eq!(found, 2, "seed {seed}, copy {number}: a tail is on the device, and is found");
            }
            full.left.set(0);
            vld.flush().await.expect("there is space again");
            write(&vld, 0, 1, 3).await;
            vld.flush().await.expect("there is space again");
            vld.check_invariants().expect("all promises hold");
            drop(vld);
            let again = Vld::open(&rt, memory, options).await.expect("it opens");
            assert_eq!((number_of(&again, 0).await, number_of(&again, blocks - 1).await), (3, 2));
            let searched = again.recovery().blocks_scanned;
            assert!(searched <= 16 * KIB / 512, "a window is not wider than it has to be: {searched}");
        });
    }
}

/// Aim: a log that cannot be parked, as there is no space below, continues, and is parked later. Method: the record finds no space, once
/// or twice, and is on the device or not; then it is tried again, at once or after a write. Each time the disk is opened from a copy.
#[test]
fn what_cannot_be_parked_goes_on() {
    for (keeps, times, writes) in [(true, 1, false), (false, 1, false), (true, 2, true), (false, 2, true)] {
        let name = format!("on the device: {keeps}, {times} times, written between: {writes}");
        run(1, async |rt: Rt| {
            let memory = Rc::new(Memory::new(MIB));
            let full = Full::on(&memory, Victim::Anchor, keeps);
            let options = Options { window: 16 * KIB, ..Options::default() };
            let vld = Vld::create(&rt, full.clone(), &plan(), options).await.expect("made");
            write(&vld, 0, 20, 1).await;
            vld.flush().await.expect("it can be flushed");
            for time in 0..times {
                full.left.set(1);
                let released = vld.release().await;
                assert!(matches!(released, Err(DeviceError::NoSpace { .. })), "{name}: {released:?}");
                if writes {
                    write(&vld, time, 1, 10 + time).await;
                    vld.flush().await.expect("there is space again");
                }
                // As after a power cut.
                let copy = Vld::open(&rt, Rc::new(Memory::from_image(MIB, memory.image())), options).await;
                let copy = copy.unwrap_or_else(|error| panic!("{name}: {error}"));
                for block in 0..20 {
                    let number = if writes && block <= time { 10 + block } else { 1 };
                    assert_eq!(number_of(&copy, block).await, number, "{name}: block {block}");
                }
            }
            vld.release().await.unwrap_or_else(|error| panic!("{name}: {error}"));
            let anchors = vld.core.counts.anchors_written.get();
            vld.release().await.expect("it is parked");
            assert_eq!(vld.core.counts.anchors_written.get(), anchors, "{name}: it is parked once");
            vld.check_invariants().expect("all promises hold");
            drop(vld);
            let again = Vld::open(&rt, memory, options).await.expect("it can be opened");
            assert_eq!(again.recovery().blocks_scanned, 0, "{name}: the tail is found at once");
            write(&again, 3, 1, 50).await;
            assert_eq!((number_of(&again, 3).await, number_of(&again, 19).await), (50, 1));
        });
    }
}

/// Aim: a log that is parked beside requests is not parked while its tail is undecided (C6), and loses nothing. Method: a task parks it
/// again and again while another writes and flushes, and tails find no space; the disk is opened from copies.
#[test]
fn a_log_is_parked_beside_undecided_tails() {
    let (mut parked, mut refused, mut opened) = (0, 0, 0);
    for seed in 0..24 {
        run(seed, async |rt: Rt| {
            let name = format!("seed {seed}");
            let memory = Rc::new(Memory::new(256 * KIB));
            let full = Full::on(&memory, Victim::Tail, seed % 4 != 3);
            let fault = FaultDevice::new(&rt, full.clone(), seed);
            let options = Options { commit: CommitUse::Flush, window: 16 * KIB, ..Options::default() };
            let plan = Plan { block_bytes: 512, reserve: 1200, ..plan() };
            let vld = Vld::create(&rt, fault.clone(), &plan, options).await.expect("made");
            let blocks = vld.geometry().bytes() / 512;
            write(&vld, 0, blocks, 1).await;
            vld.flush().await.expect("it can be flushed");
            *full.expected.borrow_mut() = Expected(vec![vec![(1, true)]; blocks as usize]);
            fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(Nanos::ZERO..=Nanos::from_micros(300))));
            let is_over = Rc::new(Cell::new(false));
            let parking = {
                let (vld, rt2, is_over) = (vld.clone(), rt.clone(), is_over.clone());
                let mut rng = Rng::new(seed + 100);
                rt.spawn(async move {
                    let (mut parked, mut refused) = (0, 0);
                    while !is_over.get() {
                        match vld.release().await {
                            Ok(()) => parked += 1,
                            Err(DeviceError::NoSpace { .. }) => refused += 1,
                            Err(error) => panic!("{error}"),
                        }
                        rt2.sleep(Nanos::from_micros(1 + rng.below(2000))).await;
                    }
                    (parked, refused)
                })
            };
            let mut rng = Rng::new(seed);
            for turn in 0..6 {
                full.left.set(1 + (seed as u32 + turn) % 3);
                life(&vld, &full.expected, &mut rng, 100 + 10 * u64::from(turn), 3).await;
            }
            is_over.set(true);
            let found = parking.await;
            (parked, refused) = (parked + found.0, refused + found.1);
            vld.check_invariants().unwrap_or_else(|what| panic!("{name}: {what}"));
            drop(vld);
            let mut copies = full.copies.take();
            copies.push((memory.image(), full.expected.take()));
            for (number, (image, mut expected)) in copies.into_iter().enumerate().step_by(7) {
                let name = format!("{name}, copy {number}");
                let copy = Rc::new(Memory::from_image(256 * KIB, image));
                let again = Vld::open(&rt, copy, options).await.unwrap_or_else(|error| panic!("{name}: {error}"));
                expected.check(&again, &name).await;
                again.check_invariants().unwrap_or_else(|what| panic!("{name}: {what}"));
                opened += 1;
            }
        });
    }
    println!("parked {parked} times, {refused} times without space, {opened} copies");
    assert!(parked > 100 && refused > 20 && opened > 300, "{parked}, {refused}, {opened}");
}
