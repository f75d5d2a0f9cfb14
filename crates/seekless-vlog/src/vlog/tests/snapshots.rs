//! Aim: a snapshot stays the disk as it was, whatever happens to the disk, and costs only the space that it holds; a
//! power cut leaves all of a snapshot operation, or nothing. Method: random requests against a model that copies the
//! disk; cuts, after which the disk with all its snapshots must be that of one moment.

use std::collections::BTreeMap;

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::device::{DeviceError, SnapshotError, Snapshots};

/// For each block, the number of the write that it is from.
type Blocks = Vec<u64>;

#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Moment {
    disk: Blocks,
    snapshots: BTreeMap<String, Blocks>,
}

fn roomy(snapshots: u32) -> Plan {
    Plan { block_bytes: 1024, reserve: 4000, snapshots, ..plan() }
}

async fn all_of(vld: &Rc<Vld>) -> Blocks {
    let blocks = vld.geometry().bytes() / u64::from(vld.geometry().block_bytes);
    let mut found = Vec::new();
    for block in 0..blocks {
        found.push(number_of(vld, block).await);
    }
    found
}

/// The disk on `device` with all its snapshots, each opened separately.
async fn moment_of(rt: &Rt, device: &Device) -> Moment {
    let vld = Vld::open(rt, device.clone(), Options::default()).await.expect("it opens");
    vld.check_invariants().expect("all promises hold");
    let mut moment = Moment { disk: all_of(&vld).await, ..Moment::default() };
    for snapshot in vld.list().await.expect("it can be read") {
        let opened = Vld::open_snapshot(rt, device.clone(), Options::default(), &snapshot.name).await;
        let blocks = all_of(&opened.expect("it opens").expect("it is there")).await;
        let mapped = blocks.iter().filter(|&&number| number != 0).count() as u64;
        assert_eq!(snapshot.mapped_bytes, mapped * 1024, "{}", snapshot.name);
        moment.snapshots.insert(snapshot.name, blocks);
    }
    moment
}

/// One random request; returns whether it makes every acknowledged request durable, including itself.
async fn act(vld: &Rc<Vld>, moment: &mut Moment, rng: &mut Rng, number: u64) -> bool {
    let blocks = moment.disk.len() as u64;
    let any = moment.snapshots.keys().nth(rng.below(3) as usize).cloned();
    match (rng.below(20), any) {
        (0..=1, _) => {
            vld.flush().await.expect("it can be flushed");
            true
        }
        (2..=3, _) => {
            let name = format!("of {number}");
            let taken = vld.take(&name).await;
            match &taken {
                Ok(()) => drop(moment.snapshots.insert(name, moment.disk.clone())),
                Err(SnapshotError::Full { most }) => assert_eq!(moment.snapshots.len(), *most as usize),
                Err(error) => panic!("{error}"),
            }
            taken.is_ok()
        }
        (4, Some(name)) => {
            vld.remove(&name).await.expect("it can be given up");
            moment.snapshots.remove(&name);
            true
        }
        (5, Some(name)) => {
            vld.revert(&name).await.expect("it can be gone back to");
            moment.disk.clone_from(&moment.snapshots[&name]);
            true
        }
        (kind, _) => {
            // Long enough to be discarded below, often.
            let length = rng.between(1, 40.min(blocks));
            let first = rng.below(blocks - length + 1);
            let at = Sector(first * 2);
            let number = if kind < 9 { 0 } else { number };
            let done = match number {
                0 => vld.discard(at, length * 2).await,
                _ => {
                    let data: Vec<u8> = (first..first + length).flat_map(|block| stamp(block, number, 1024)).collect();
                    vld.write(at, Data::from_slice(&data), WriteFlags::NONE).await
                }
            };
            done.expect("there is room");
            moment.disk[first as usize..(first + length) as usize].fill(number);
            false
        }
    }
}

/// A disk whose reserve just holds `snapshots` snapshots.
async fn small(rt: &Rt, device: Device, snapshots: u32, options: Options) -> Rc<Vld> {
    let reserve = 10_000 - 4_500 / (snapshots + 1);
    Vld::create(rt, device, &Plan { reserve, ..roomy(snapshots) }, options).await.expect("made")
}

#[test]
fn snapshots_are_the_disk_as_it_was() {
    for seed in 1..=soak().times(6) {
        run(seed, async |rt: Rt| {
            let memory = Rc::new(Memory::new(MIB));
            let vld = small(&rt, memory.clone(), 3, Options::default()).await;
            let mut moment = Moment { disk: all_of(&vld).await, ..Moment::default() };
            let mut rng = Rng::new(seed);
            for number in 1..=150 {
                act(&vld, &mut moment, &mut rng, number).await;
                if number % 10 == 0 {
                    vld.flush().await.expect("it can be flushed");
                    vld.check_invariants().unwrap_or_else(|what| panic!("seed {seed}, {number}: {what}"));
                    let copy: Device = Rc::new(Memory::from_image(MIB, memory.image()));
                    assert_eq!(check(&copy).await.expect("it can be read").errors, Vec::<String>::new());
                    assert_eq!(moment_of(&rt, &copy).await, moment, "seed {seed}, after {number}");
                }
            }
        });
    }
}

#[test]
fn a_cut_leaves_one_moment() {
    let mut states = 0;
    for seed in 1..=soak().times(4) {
        let kinds = [CrashOptions::volatile, CrashOptions::write_through, CrashOptions::in_order];
        let options = kinds[seed as usize % 3](512 * KIB);
        let commit = if seed % 2 == 0 { CommitUse::Flush } else { CommitUse::Each };
        states += run(seed, async |rt: Rt| {
            let record = CrashOptions { seed, record: true, ..options.clone() };
            let device = CrashDevice::new(&rt, Image::default(), record);
            let below = Options { commit, ..Options::default() };
            let vld = small(&rt, device.clone(), 2, below).await;
            let mut moment = Moment { disk: all_of(&vld).await, ..Moment::default() };
            let mut rng = Rng::new(seed);
            // Moments, with the positions from which each may be there, and from which it or a later one must be.
            let mut moments = vec![(device.position(), Some(device.position()), moment.clone())];
            for number in 1..=40 {
                let issued = device.position();
                let is_durable = act(&vld, &mut moment, &mut rng, number).await || vld.commits_each();
                moments.push((issued, is_durable.then(|| device.position()), moment.clone()));
            }
            let log = device.log();
            let from = moments[0].0;
            let mut positions: Vec<usize> = log.positions().into_iter().filter(|&at| at >= from).collect();
            rng.shuffle(&mut positions);
            positions.truncate(40);
            let mut states = 0;
            for position in positions {
                let cut = log.cut(position);
                let durable = moments.iter().rposition(|(_, durable, _)| durable.is_some_and(|at| at <= position));
                let issued = moments.iter().rposition(|(issued, ..)| *issued <= position);
                let allowed = &moments[durable.unwrap_or(0)..=issued.unwrap_or(0)];
                for choice in cut.choices(&Effort::SAMPLED, seed) {
                    states += 1;
                    let quiet = CrashOptions { latency: Nanos::ZERO..=Nanos::ZERO, ..options.clone() };
                    let left: Device = CrashDevice::new(&rt, cut.image(&choice), quiet);
                    let found = moment_of(&rt, &left).await;
                    let is_one = allowed.iter().any(|(_, _, moment)| *moment == found);
                    assert!(is_one, "seed {seed}, cut at {position}: {found:?}\n{}", cut.to_text(&choice));
                }
            }
            states
        });
    }
    println!("{states} states");
    assert!(states > 300, "{states}");
}

/// Blocks that only a snapshot holds take space, and removing it frees them.
#[test]
fn a_full_disk_keeps_its_snapshots() {
    run(1, async |rt: Rt| {
        let memory = Rc::new(Memory::new(MIB));
        let vld = Vld::create(&rt, memory.clone(), &Plan { reserve: 3000, ..roomy(1) }, Options::default()).await;
        let vld = vld.expect("made");
        let blocks = vld.geometry().bytes() / 1024;
        for block in 0..blocks {
            write(&vld, block, 1, 1).await;
        }
        vld.take("full").await.expect("there is room for a label");
        assert_eq!(vld.list().await.expect("it can be read")[0].own_bytes, 0);
        let mut written = 0;
        let error = loop {
            let data = Data::from_slice(&stamp(written, 2, 1024));
            match vld.write(Sector(written * 2), data, WriteFlags::NONE).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(error, DeviceError::NoSpace { .. }), "{error}");
        assert!(written > 50 && written < blocks, "{written} of {blocks}");
        assert_eq!(vld.list().await.expect("it can be read")[0].own_bytes, written * 1024);
        vld.flush().await.expect("it can be flushed");
        let device: Device = memory.clone();
        let moment = moment_of(&rt, &device).await;
        assert_eq!(moment.snapshots["full"], vec![1; blocks as usize]);
        assert!(moment.disk.iter().take(written as usize).all(|&number| number == 2));
        vld.remove("full").await.expect("it can be given up");
        for block in 0..blocks {
            write(&vld, block, 1, 3).await;
        }
        vld.check_invariants().expect("all promises hold");
    });
}

#[test]
fn what_cannot_be_is_refused() {
    run(1, async |rt: Rt| {
        let memory = Rc::new(Memory::new(MIB));
        let vld = Vld::create(&rt, memory.clone(), &roomy(1), Options::default()).await.expect("made");
        for name in ["", "two\nlines", &"x".repeat(65)] {
            assert!(matches!(vld.take(name).await, Err(SnapshotError::Name { .. })), "{name:?}");
        }
        vld.take("one").await.expect("there is room");
        assert_eq!(vld.take("one").await, Err(SnapshotError::Exists { name: "one".into() }));
        assert_eq!(vld.take("two").await, Err(SnapshotError::Full { most: 1 }));
        assert_eq!(vld.remove("two").await, Err(SnapshotError::NotFound { name: "two".into() }));
        assert_eq!(vld.revert("two").await, Err(SnapshotError::NotFound { name: "two".into() }));
        let missing = Vld::open_snapshot(&rt, memory.clone(), Options::default(), "two").await;
        assert!(missing.expect("the disk is").is_none());
        let shown = Vld::open_snapshot(&rt, memory.clone(), Options::default(), "one").await;
        let shown = shown.expect("it opens").expect("it is there");
        assert_eq!(shown.write(Sector::ZERO, Data::zeroes(1024), WriteFlags::NONE).await, Err(DeviceError::ReadOnly));
        assert_eq!(shown.take("two").await, Err(DeviceError::ReadOnly.into()));
        for plan in [Plan { snapshots: 65, ..roomy(1) }, Plan { map_log: MapLog::Append, ..roomy(1) }] {
            let made = Vld::create(&rt, Rc::new(Memory::new(MIB)), &plan, Options::default()).await;
            assert!(matches!(made, Err(VldError::Plan(PlanError::Snapshots { .. }))));
        }
        let none = Vld::create(&rt, Rc::new(Memory::new(MIB)), &plan(), Options::default()).await.expect("made");
        assert!(none.snapshots().is_none() && vld.snapshots().is_some());
    });
}

/// A damaged label loses the name of its snapshot, and nothing else.
#[test]
fn a_damaged_label_can_be_given_up() {
    run(1, async |rt: Rt| {
        let memory = Rc::new(Memory::new(MIB));
        let vld = Vld::create(&rt, memory.clone(), &roomy(2), Options::default()).await.expect("made");
        write(&vld, 3, 1, 7).await;
        vld.take("one").await.expect("there is room");
        vld.release().await.expect("it can be put away");
        let device: Device = memory.clone();
        let mut damaged = 0;
        for sector in 0..device.geometry().sectors {
            let mut bytes = device.read(Sector(sector), Buf::dirty(512)).await.expect("it can be read").to_vec();
            if bytes.starts_with(&format::LABEL_MAGIC) {
                bytes[30] ^= 1;
                device.write(Sector(sector), Data::from_slice(&bytes), WriteFlags::NONE).await.expect("written");
                damaged += 1;
            }
        }
        assert_eq!(damaged, 1);
        let moment = moment_of(&rt, &device).await;
        assert_eq!(moment.snapshots["damaged-1"][3], 7);
        let vld = Vld::open(&rt, device, Options::default()).await.expect("it opens");
        vld.remove("damaged-1").await.expect("it can be given up");
        assert_eq!(vld.list().await, Ok(Vec::new()));
    });
}

/// A label that cannot be read takes no other snapshot away, and no snapshot is named as those are that lost theirs.
#[test]
fn an_unreadable_label_can_be_given_up() {
    use crate::device::fault::FaultDevice;
    run(1, async |rt: Rt| {
        let memory = Rc::new(Memory::new(MIB));
        let fault = FaultDevice::new(&rt, memory, 1);
        let vld = Vld::create(&rt, fault.clone(), &roomy(3), Options::default()).await.expect("made");
        write(&vld, 3, 1, 7).await;
        vld.take("one").await.expect("there is room");
        vld.take("two").await.expect("there is room");
        let block = vld.core.state.borrow().map[vld.core.layout.label_of(1) as usize];
        let at = vld.core.layout.sector_of(block);
        fault.lose(at..Sector(at.0 + 1));
        let names = async |vld: &Rc<Vld>| -> Vec<String> {
            vld.list().await.expect("they can be listed").into_iter().map(|found| found.name).collect()
        };
        assert_eq!(names(&vld).await, ["damaged-1", "two"]);
        for name in ["damaged-1", "damaged-2", "damaged-64"] {
            assert!(matches!(vld.take(name).await, Err(SnapshotError::Name { .. })), "{name}");
        }
        vld.take("damaged-door").await.expect("there is room");
        vld.remove("damaged-1").await.expect("it can be given up");
        assert_eq!(names(&vld).await, ["two", "damaged-door"]);
    });
}
