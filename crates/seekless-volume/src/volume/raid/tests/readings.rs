//! Aim: through every pass-through device, a caller with a checksum reads correct data that one member silently returns
//! wrong, and the member is corrected. Method: members whose bytes are changed behind the array, and a caller that
//! knows what was stored.

use super::*;
use crate::device::fork::ForkDevice;
use crate::device::{read_right, read_span};
use crate::rng::Rng;
use crate::volume::{concat, permute, raid0, remap};

const SECTORS: u64 = 700;

fn memories(count: usize) -> Vec<Rc<Memory>> {
    (0..count).map(|_| Rc::new(Memory::new(SECTORS * SECTOR_BYTES))).collect()
}

async fn array(rt: &Rt, level: Level, members: Vec<Device>) -> Device {
    Array::create(rt, members, &small(level), UUID, Contents::Zeroes).await.unwrap()
}

/// A stack of devices, the members at its bottom, and how much of each holds data.
async fn stack(rt: &Rt, name: &str) -> (Device, Vec<Rc<Memory>>) {
    let disks = |count: usize| {
        let disks = memories(count);
        (disks.iter().map(|disk| disk.clone() as Device).collect::<Vec<_>>(), disks)
    };
    match name {
        "raid1" => {
            let (devices, disks) = disks(2);
            (array(rt, Level::Mirror, devices).await, disks)
        }
        "raid1 of 3" => {
            let (devices, disks) = disks(3);
            (array(rt, Level::Mirror, devices).await, disks)
        }
        "raid5" => {
            let (devices, disks) = disks(3);
            (array(rt, Level::Parity, devices).await, disks)
        }
        "remap / raid5" => {
            let (devices, disks) = disks(4);
            (remap(array(rt, Level::Parity, devices).await, 16, 3).unwrap(), disks)
        }
        "permute / fault / trace / raid1" => {
            let (devices, disks) = disks(2);
            let array = array(rt, Level::Mirror, devices).await;
            let sink = Rc::new(RefCell::new(Vec::<crate::device::trace::TraceEvent>::new()));
            let traced = crate::device::trace::TraceDevice::new(rt, array, sink);
            (permute(FaultDevice::new(rt, traced, 1), 8, 3, None).unwrap(), disks)
        }
        "raid0 / raid5" => {
            let (mut devices, disks) = disks(6);
            let second = devices.split_off(3);
            let arrays = vec![array(rt, Level::Parity, devices).await, array(rt, Level::Parity, second).await];
            (raid0(arrays, 8).unwrap(), disks)
        }
        "concat / raid1, memory" => {
            let (mut devices, disks) = disks(3);
            let single = devices.pop().unwrap();
            let disks = disks[..2].to_vec();
            (concat(vec![array(rt, Level::Mirror, devices).await, single]).unwrap(), disks)
        }
        "raid1 / raid5" => {
            let (mut devices, disks) = disks(6);
            let second = devices.split_off(3);
            let arrays = vec![array(rt, Level::Parity, devices).await, array(rt, Level::Parity, second).await];
            (array(rt, Level::Mirror, arrays).await, disks)
        }
        "raid5 / raid1" => {
            let (devices, disks) = disks(6);
            let mut arrays = Vec::new();
            for pair in devices.chunks(2) {
                arrays.push(array(rt, Level::Mirror, pair.to_vec()).await);
            }
            (array(rt, Level::Parity, arrays).await, disks)
        }
        _ => unreachable!("{name}"),
    }
}

const STACKS: [&str; 9] = [
    "raid1",
    "raid1 of 3",
    "raid5",
    "remap / raid5",
    "permute / fault / trace / raid1",
    "raid0 / raid5",
    "concat / raid1, memory",
    "raid1 / raid5",
    "raid5 / raid1",
];

/// Changes sectors of a member behind the array's back, in its later half, where no metadata is.
async fn spoil(disk: &Memory, rng: &mut Rng) -> u64 {
    let mut spoilt = 0;
    for sector in SECTORS / 2..SECTORS {
        if rng.chance(1, 6) {
            let mut bytes = vec![0; 512];
            rng.fill(&mut bytes);
            disk.write(Sector(sector), Data::from_slice(&bytes), WriteFlags::NONE).await.unwrap();
            spoilt += 1;
        }
    }
    spoilt
}

const BLOCK: u64 = 8;

/// Every block is read correctly, first by a caller with checksums, then by any caller.
async fn check_all(device: &Device, bytes: &[u8], name: &str) -> u64 {
    let mut wrong = 0;
    for (index, right) in bytes.chunks((BLOCK * SECTOR_BYTES) as usize).enumerate() {
        let at = Sector(index as u64 * BLOCK);
        let mut seen_wrong = false;
        // Whichever copy a usual read takes.
        for reading in 0..device.readings() {
            let read = read_span(device, at, BLOCK, Some(reading)).await.unwrap();
            seen_wrong |= read[..] != *right;
        }
        if seen_wrong {
            wrong += 1;
            let read = read_right(device, at, BLOCK, |bytes| bytes == right).await;
            assert_eq!(read.as_deref(), Some(right), "{name}: block {index} has no right reading");
        }
        let read = device.read(at, Buf::dirty(right.len())).await.unwrap();
        assert_eq!(read[..], *right, "{name}: block {index} after it was corrected");
    }
    wrong
}

#[test]
fn one_wrong_member_is_read_right_and_corrected() {
    for (turn, name) in STACKS.into_iter().enumerate() {
        for seed in 0..3 {
            let executor = Executor::simulated(seed, HostProfile::NONE);
            let rt = executor.rt().clone();
            let run = async {
                let (device, disks) = stack(&rt, name).await;
                let mut rng = Rng::new(seed * 100 + turn as u64);
                let blocks = device.geometry().sectors / BLOCK;
                let mut bytes = vec![0; (blocks * BLOCK * SECTOR_BYTES) as usize];
                rng.fill(&mut bytes);
                for (index, block) in bytes.chunks(1 << 16).enumerate() {
                    let at = Sector(index as u64 * 128);
                    device.write(at, Data::from_slice(block), WriteFlags::NONE).await.unwrap();
                }
                device.release().await.unwrap();
                let disk = rng.pick(&disks).clone();
                assert!(spoil(&disk, &mut rng).await > 20);
                // First on a fork, which leaves the stack unchanged.
                let before = disk.read(Sector(0), Buf::dirty((SECTORS * SECTOR_BYTES) as usize)).await.unwrap();
                let fork: Device = ForkDevice::new(device.clone());
                let wrong = check_all(&fork, &bytes, name).await;
                assert!(wrong > 5, "{name}: {wrong}");
                assert_eq!(
                    compare(&(disk.clone() as Device), &before).await,
                    Ok(()),
                    "{name}: a fork changes what is below"
                );
                // Correcting one unit of a row corrects the others' reconstructed data.
                let corrected = check_all(&device, &bytes, name).await;
                assert!((1..=wrong).contains(&corrected), "{name}: {corrected} of {wrong}");
                // With parity, wrong parity units remain: no single reading shows them.
                let again = check_all(&device, &bytes, name).await;
                assert!(again == 0 || name.contains("raid5"), "{name}: {again}");
                if name == "raid5" || name == "raid1 of 3" {
                    let array = device.redundancy().unwrap();
                    let scrubbed = array.scrub(true, &|_| ()).await.unwrap();
                    assert_eq!(scrubbed.corrected, scrubbed.inconsistent, "{name}");
                    assert_eq!(array.scrub(false, &|_| ()).await.unwrap().inconsistent, 0, "{name}");
                    assert_eq!(check_all(&device, &bytes, name).await, 0, "{name}");
                }
            };
            executor.block_on(run).unwrap();
        }
    }
}

/// O1: a correction never overwrites what another client has written since the read.
#[test]
fn correcting_brings_nothing_back() {
    for (level, count) in [(Level::Mirror, 2), (Level::Parity, 3)] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let disks = memories(count);
            let devices = disks.iter().map(|disk| disk.clone() as Device).collect();
            let array = Array::create(&rt, devices, &small(level), UUID, Contents::Zeroes).await.unwrap();
            let old = Data::from_slice(&[1; 4096]);
            array.write(Sector(0), old.clone(), WriteFlags::NONE).await.unwrap();
            let member = array.core.shape.member(0, 0);
            let at = Sector(array.core.shape.at(0, 0));
            disks[member].write(at, Data::from_slice(&[7; 512]), WriteFlags::NONE).await.unwrap();
            let new = Data::from_slice(&[2; 4096]);
            array.write(Sector(0), new.clone(), WriteFlags::NONE).await.unwrap();
            assert_eq!(array.correct(Sector(0), old.clone()).await, Ok(false), "{level:?}");
            assert_eq!(array.read(Sector(0), Buf::dirty(4096)).await.unwrap()[..], new[..]);
            // Data that no reading returns is refused.
            assert_eq!(array.correct(Sector(8), old).await, Ok(false));
            assert_eq!(array.read(Sector(8), Buf::dirty(4096)).await.unwrap()[..], [0; 4096]);
        };
        executor.block_on(run).unwrap();
    }
}

/// A reading that needs a missing member is an error; the others still work.
#[test]
fn a_missing_member_leaves_one_reading() {
    for (level, count) in [(Level::Mirror, 3), (Level::Parity, 3)] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            let devices = memories(count).into_iter().map(|disk| disk as Device).collect();
            let array = Array::create(&rt, devices, &small(level), UUID, Contents::Zeroes).await.unwrap();
            array.write(Sector(0), Data::from_slice(&[5; 65_536]), WriteFlags::NONE).await.unwrap();
            array.give_up(1).await.unwrap();
            let mut good = 0;
            for reading in 0..array.readings() {
                match array.read_as(Sector(0), Buf::dirty(65_536), reading).await {
                    Ok(read) => {
                        assert!(read.iter().all(|byte| *byte == 5));
                        good += 1;
                    }
                    Err(error) => assert!(error.to_string().contains("member 1"), "{error}"),
                }
            }
            assert_eq!(good, if level == Level::Mirror { 2 } else { 1 }, "{level:?}");
            assert!(array.read_as(Sector(0), Buf::dirty(512), 99).await.is_err());
        };
        executor.block_on(run).unwrap();
    }
}

/// Data that one member silently holds wrong can still be read correctly after its rows have been written: parity is
/// never made to match wrong data. Method: small writes everywhere over a spoilt member.
#[test]
fn writes_beside_what_is_wrong_keep_what_is_right() {
    for seed in 1..=4 {
        for count in [3, 4, 5] {
            let executor = Executor::simulated(seed, HostProfile::NONE);
            let rt = executor.rt().clone();
            let run = async {
                let disks = memories(count);
                let devices = disks.iter().map(|disk| disk.clone() as Device).collect();
                let device = array(&rt, Level::Parity, devices).await;
                let mut rng = Rng::new(seed);
                let sectors = device.geometry().sectors / BLOCK * BLOCK;
                let mut bytes = vec![0; (sectors * SECTOR_BYTES) as usize];
                rng.fill(&mut bytes);
                device.write(Sector(0), Data::from_slice(&bytes), WriteFlags::NONE).await.unwrap();
                device.release().await.unwrap();
                spoil(&disks[seed as usize % count], &mut rng).await;
                for _ in 0..100 {
                    // A block has one checksum, so it is written as a whole.
                    let length = rng.between(1, 4) * BLOCK;
                    let at = rng.below((sectors - length) / BLOCK) * BLOCK;
                    let range = (at * 512) as usize..((at + length) * 512) as usize;
                    rng.fill(&mut bytes[range.clone()]);
                    device.write(Sector(at), Data::from_slice(&bytes[range]), WriteFlags::NONE).await.unwrap();
                }
                check_all(&device, &bytes, "raid5").await;
            };
            executor.block_on(run).unwrap();
        }
    }
}
