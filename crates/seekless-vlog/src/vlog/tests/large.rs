//! Aim: a transaction of many pieces keeps few requests under way, and is one moment all the same: a cut, an error or a writer
//! between two groups of its pieces changes nothing of that. Method: snapshots of a disk with a block in each of so many pieces
//! that they take two groups; it is opened again from what is left on the device.

use std::cell::RefCell;

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::trace::{TraceDevice, TraceEvent};
use crate::device::{DeviceError, SnapshotError, Snapshots};
use crate::vlog::commit::PIECES_AT_ONCE;

const BLOCK_BYTES: u32 = 512;
const DEVICE_BYTES: u64 = 160 * MIB;

/// So many pieces are two groups.
const PIECES: u64 = PIECES_AT_ONCE as u64 * 3 / 2;

/// A block of each piece of the disk's map.
fn blocks() -> impl Iterator<Item = u64> {
    let stride = u64::from(format::entries_per_piece(SECTOR_BYTES as u32));
    (0..PIECES).map(move |piece| piece * stride)
}

/// A disk with one block in each piece, of write 1.
async fn scattered(rt: &Rt, device: Device) -> Rc<Vld> {
    let plan = Plan { block_bytes: BLOCK_BYTES, reserve: 4000, snapshots: 1, ..plan() };
    let vld = Vld::create(rt, device, &plan, Options::default()).await.expect("made");
    for block in blocks() {
        write(&vld, block, 1, 1).await;
    }
    vld.flush().await.expect("it can be flushed");
    vld
}

/// The numbers of the writes that the blocks are from, each once.
async fn numbers(vld: &Rc<Vld>) -> Vec<u64> {
    let mut found = Vec::new();
    for block in blocks() {
        found.push(number_of(vld, block).await);
    }
    found.dedup();
    found
}

/// What is on the device: the numbers of the disk, and those of its snapshot if it has one.
async fn found(rt: &Rt, device: &Device) -> (Vec<u64>, Option<Vec<u64>>) {
    let vld = Vld::open(rt, device.clone(), Options::default()).await.expect("it opens");
    vld.check_invariants().expect("all promises hold");
    let disk = numbers(&vld).await;
    let snapshot = Vld::open_snapshot(rt, device.clone(), Options::default(), "one").await.expect("it opens");
    match snapshot {
        Some(snapshot) => (disk, Some(numbers(&snapshot).await)),
        None => (disk, None),
    }
}

fn crash_device(rt: &Rt, record: bool, base: Image) -> Rc<CrashDevice> {
    CrashDevice::new(rt, base, CrashOptions { record, ..CrashOptions::volatile(DEVICE_BYTES) })
}

/// However many pieces a transaction has, so many requests are under way at most.
#[test]
fn a_snapshot_of_many_pieces_keeps_few_requests_under_way() {
    run(1, async |rt: Rt| {
        let events: Rc<RefCell<Vec<TraceEvent>>> = Rc::default();
        let device = TraceDevice::new(&rt, crash_device(&rt, false, Image::default()), events.clone());
        let vld = scattered(&rt, device).await;
        for operation in ["take", "revert", "remove"] {
            events.borrow_mut().clear();
            match operation {
                "take" => vld.take("one").await.expect("there is room"),
                "revert" => {
                    for block in blocks() {
                        write(&vld, block, 1, 2).await;
                    }
                    vld.flush().await.expect("it can be flushed");
                    events.borrow_mut().clear();
                    vld.revert("one").await.expect("it can be gone back to");
                }
                _ => vld.remove("one").await.expect("it can be given up"),
            }
            let events = events.borrow();
            assert!(events.len() as u64 > PIECES, "{operation}: {} requests", events.len());
            let most = events.iter().map(|event| event.depth as usize + 1).max();
            assert_eq!(most, Some(PIECES_AT_ONCE), "{operation}: requests under way at once");
        }
        assert_eq!(numbers(&vld).await, [1]);
        vld.check_invariants().expect("all promises hold");
    });
}

/// A cut in the first group, between the groups, in the second one, or before the tail: there is no snapshot, and the disk is
/// as it was; and removing one takes all of it or nothing.
#[test]
fn a_cut_between_two_groups_leaves_one_moment() {
    let mut seen = [0; 2];
    run(1, async |rt: Rt| {
        let device = crash_device(&rt, true, Image::default());
        let vld = scattered(&rt, device.clone()).await;
        for is_taking in [true, false] {
            let start = device.position();
            match is_taking {
                true => vld.take("one").await.expect("there is room"),
                false => vld.remove("one").await.expect("it can be given up"),
            }
            let end = device.position();
            let log = device.log();
            let positions: Vec<usize> = log.positions().into_iter().filter(|&at| at > start && at <= end).collect();
            let last = positions.len() - 1;
            for at in (0..=6).map(|part| last * part / 6).chain([last - 1]) {
                let cut = log.cut(positions[at]);
                let Some(choice) = cut.choices(&Effort::SAMPLED, at as u64).into_iter().next_back() else { continue };
                let left: Device = crash_device(&rt, false, cut.image(&choice));
                let (disk, snapshot) = found(&rt, &left).await;
                assert_eq!(disk, [1], "taking {is_taking}, cut {at} of {last}");
                assert!(snapshot.as_ref().is_none_or(|numbers| *numbers == [1]), "{is_taking}, {at}: {snapshot:?}");
                if at < last - 1 {
                    assert_eq!(snapshot.is_none(), is_taking, "taking {is_taking}, cut {at} of {last}");
                }
                seen[usize::from(snapshot.is_some())] += 1;
            }
        }
    });
    println!("{seen:?} without and with the snapshot");
    assert!(seen.iter().all(|&count| count > 4), "{seen:?}");
}

/// No room for a piece of the second group: there is no snapshot, nothing is lost, and the next attempt works, twice.
#[test]
fn a_group_without_space_is_taken_back() {
    run(1, async |rt: Rt| {
        let memory = Rc::new(Memory::new(DEVICE_BYTES));
        let fault = FaultDevice::new(&rt, memory.clone(), 1);
        let vld = scattered(&rt, fault.clone()).await;
        let free = vld.core.state.borrow().space.free_blocks();
        // The label is the first write.
        let nth = When::Nth(PIECES_AT_ONCE as u64 + 100);
        fault.add(Rule::new(Kinds::WRITE, nth, Effect::NoSpace));
        let taken = vld.take("one").await;
        assert!(matches!(taken, Err(SnapshotError::Device(DeviceError::NoSpace { .. }))), "{taken:?}");
        assert_eq!(fault.failed(), 1);
        let events = fault.looked_at(0);
        vld.flush().await.expect("it can be flushed");
        assert_eq!(fault.looked_at(0), events, "there is nothing to write");
        vld.check_invariants().expect("all promises hold");
        assert_eq!(vld.core.state.borrow().space.free_blocks(), free, "the cells of all groups are free again");
        let device: Device = Rc::new(Memory::from_image(DEVICE_BYTES, memory.image()));
        assert_eq!(found(&rt, &device).await, (vec![1], None));
        for _ in 0..2 {
            vld.take("one").await.expect("there is room");
            let device: Device = Rc::new(Memory::from_image(DEVICE_BYTES, memory.image()));
            assert_eq!(found(&rt, &device).await, (vec![1], Some(vec![1])));
            vld.remove("one").await.expect("it can be given up");
        }
    });
}

/// A piece of the second group fails otherwise: writing stops, and the next start finds what was there before.
#[test]
fn a_group_that_fails_stops_writing() {
    run(1, async |rt: Rt| {
        let memory = Rc::new(Memory::new(DEVICE_BYTES));
        let fault = FaultDevice::new(&rt, memory.clone(), 1);
        let vld = scattered(&rt, fault.clone()).await;
        let nth = When::Nth(PIECES_AT_ONCE as u64 + 100);
        fault.add(Rule::new(Kinds::WRITE, nth, Effect::Error));
        vld.take("one").await.expect_err("a write fails");
        vld.flush().await.expect_err("writing has stopped");
        let device: Device = Rc::new(Memory::from_image(DEVICE_BYTES, memory.image()));
        assert_eq!(found(&rt, &device).await, (vec![1], None));
    });
}

/// What is written while the groups are is not in the snapshot, and not lost.
#[test]
fn writers_beside_the_groups_are_not_in_the_snapshot() {
    run(1, async |rt: Rt| {
        let events: Rc<RefCell<Vec<TraceEvent>>> = Rc::default();
        let device = TraceDevice::new(&rt, crash_device(&rt, false, Image::default()), events.clone());
        let vld = scattered(&rt, device.clone()).await;
        events.borrow_mut().clear();
        let writer = async {
            // A third of the first group is written.
            while events.borrow().len() < PIECES_AT_ONCE / 3 {
                rt.sleep(Nanos::from_micros(10)).await;
            }
            for block in blocks() {
                write(&vld, block, 1, 2).await;
            }
            vld.flush().await.expect("it can be flushed");
        };
        let (taken, ()) = futures_util::future::join(vld.take("one"), writer).await;
        taken.expect("there is room");
        let device: Device = device;
        assert_eq!(found(&rt, &device).await, (vec![2], Some(vec![1])));
    });
}
