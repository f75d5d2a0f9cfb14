//! Aim: every device of this room stores like one plain device. Method: random requests, several at once, on it and on
//! plain bytes; then the guarantees of each.

mod figures;

use std::collections::BTreeSet;
use std::rc::Rc;

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{BlockDevice, Buf, Data, Device, DeviceError, Discard, Memory, WriteFlags};
use crate::rt::{Executor, HostProfile};
use crate::testing::exercise::{Mix, exercise, slow};
use crate::units::{Nanos, SECTOR_BYTES, Sector};

fn memories(sectors: &[u64]) -> Vec<Device> {
    sectors.iter().map(|&sectors| Rc::new(Memory::new(sectors * SECTOR_BYTES)) as Device).collect()
}

/// Devices of every kind and odd sizes over `members`.
fn devices(members: impl Fn(&[u64]) -> Vec<Device>) -> Vec<Rc<Mapped>> {
    let one = || members(&[331]).remove(0);
    vec![
        raid0(members(&[200]), 8).unwrap(),
        raid0(members(&[100, 90, 133]), 7).unwrap(),
        raid0(members(&[64; 8]), 1).unwrap(),
        remap(one(), 8, 1).unwrap(),
        remap(one(), 50, 2).unwrap(),
        remap(one(), 331, 2).unwrap(),
        permute(one(), 8, 3, None).unwrap(),
        permute(one(), 1, 3, Some(100)).unwrap(),
        volume(members(&[120; 3]), 16, 8, 4).unwrap(),
        volume(members(&[120; 3]), 8, 24, 5).unwrap(),
        volume(members(&[120, 100, 117, 90]), 9, 6, 6).unwrap(),
        raid0(vec![remap(one(), 10, 1).unwrap(), permute(one(), 4, 9, None).unwrap()], 5).unwrap(),
    ]
}

/// Reads return what was written, whatever happens at the same time elsewhere.
#[test]
fn they_store_like_one_device() {
    for seed in 0..6 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        for device in devices(|sizes| slow(&rt, sizes, seed)) {
            let name = device.describe();
            let run = exercise(&rt, device, seed, 150, Mix::ALL);
            executor.block_on(run).unwrap().unwrap_or_else(|what| panic!("{name}, seed {seed}: {what}"));
        }
    }
}

/// Every sector has its own place.
#[test]
fn places_are_a_bijection() {
    for device in devices(memories) {
        let sectors = device.geometry().sectors;
        let places: BTreeSet<_> = (0..sectors).map(|sector| device.locate(Sector(sector)).unwrap()).collect();
        assert_eq!(places.len() as u64, sectors, "{}", device.describe());
        for (member, at) in places {
            assert!(at.0 < device.members()[member].geometry().sectors, "{}", device.describe());
        }
        assert!(device.locate(Sector(sectors)).is_err());
    }
}

/// Aim: a search for data skips the holes of the members, and passes over nothing that was written. Method: some sectors written
/// to every kind of device over sparse members; each is met by a search from the start, and what lies between its answers is no such sector.
#[test]
fn holes_of_members_are_skipped() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let run = async {
        let sparse = |sizes: &[u64]| memories(&sizes.iter().map(|size| size * 1000).collect::<Vec<_>>());
        for device in devices(sparse).into_iter().chain([concat(sparse(&[70, 1, 130])).unwrap()]) {
            let (name, sectors) = (device.describe(), device.geometry().sectors);
            assert_eq!(device.next_data(Sector(0)).await, Ok(None), "{name}");
            let mut written = BTreeSet::new();
            for at in [0, 7, sectors / 3, sectors / 2 + 1, sectors - 1] {
                device.write(Sector(at), Data::from_slice(&[7; 512]), WriteFlags::NONE).await.unwrap();
                written.insert(Sector(at));
            }
            let (mut at, mut searches) = (Sector(0), 0);
            while let Some(data) = device.next_data(at).await.unwrap() {
                assert_eq!(written.range(at..data).next(), None, "{name}: from {at} to {data}");
                assert!(data >= at && data.0 < sectors, "{name}: from {at} to {data}");
                (at, searches) = (data + 1, searches + 1);
                written.remove(&data);
            }
            assert!(written.is_empty(), "{name}: {written:?}");
            // Memory knows of its 8 sectors together whether they were written, and those can be in 8 places.
            assert!(searches <= 5 * 8 * 9 + sectors / 1000, "{name}: {searches} answers for {sectors} sectors");
        }
    };
    executor.block_on(run).unwrap();
}

/// A search of a device as large as it gets ends at once, whatever is below: with members without data, and with data in one place.
#[test]
fn a_search_of_a_large_device_ends() {
    const LARGE: u64 = 1 << 41;
    let executor = Executor::simulated(1, HostProfile::NONE);
    let run = async {
        for device in [
            concat(memories(&[LARGE, LARGE])).unwrap(),
            raid0(memories(&[LARGE, LARGE]), 128).unwrap(),
            permute(memories(&[LARGE]).remove(0), 8, 1, None).unwrap(),
            volume(memories(&[LARGE; 3]), 2048, 128, 1).unwrap(),
        ] {
            assert_eq!(device.next_data(Sector(8)).await, Ok(None), "{}", device.describe());
            let last = Sector(device.geometry().sectors - 8);
            device.write(last, Data::from_slice(&[7; 512]), WriteFlags::NONE).await.unwrap();
            let found = device.next_data(Sector(8)).await.unwrap().expect("there is data");
            assert!(found > Sector(8) && found <= last, "{}: {found}", device.describe());
        }
    };
    executor.block_on(run).unwrap();
}

/// The volume is a remap over a stripe: [st05 Figure 1].
#[test]
fn a_volume_is_remap_then_stripe() {
    let two = volume(memories(&[120; 3]), 16, 8, 4).unwrap();
    let stripe = raid0(memories(&[120; 3]), 8).unwrap();
    let one = remap(stripe.clone(), 16, 4).unwrap();
    assert_eq!(one.geometry().sectors, two.geometry().sectors);
    for sector in 0..one.geometry().sectors {
        let (_, below) = one.locate(Sector(sector)).unwrap();
        assert_eq!(stripe.locate(below), two.locate(Sector(sector)), "sector {sector}");
    }
}

/// Only the given part is permuted.
#[test]
fn permute_leaves_the_rest() {
    let device = permute(memories(&[1000]).remove(0), 8, 1, Some(804)).unwrap();
    let moved = |range: std::ops::Range<u64>| {
        range.filter(|&sector| device.locate(Sector(sector)) != Ok((0, Sector(sector)))).count()
    };
    assert_eq!(moved(800..1000), 0);
    assert!(moved(0..800) > 700);
    assert!((0..800).all(|sector| device.locate(Sector(sector)).unwrap().1.0 < 800));
}

/// The guarantees of members are passed on only where they still hold.
#[test]
fn promises_are_those_of_the_members() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let host = |count: usize| -> Vec<Device> {
        let options = || crate::device::crash::CrashOptions::host_file(1 << 20);
        let device = || crate::device::crash::CrashDevice::new(executor.rt(), Default::default(), options()) as Device;
        (0..count).map(|_| device()).collect()
    };
    let same = raid0(host(2), 16).unwrap().guarantees();
    assert_eq!((same.atomic_write_bytes, same.durable_on_completion, same.discard), (4096, false, Discard::Zeroes));
    let torn = volume(host(2), 24, 16, 1).unwrap();
    assert_eq!((torn.guarantees().atomic_write_bytes, torn.geometry().block_bytes), (4096, 4096));
    let large = volume(memories(&[128; 2]), 16, 24, 1).unwrap().guarantees();
    assert_eq!((large.atomic_write_bytes, large.durable_on_completion, large.ordered), (512, true, false));
    let mixed = raid0(host(1).into_iter().chain(memories(&[256])).collect(), 16).unwrap().guarantees();
    assert_eq!((mixed.atomic_write_bytes, mixed.durable_on_completion), (512, false));
    assert!(raid0(memories(&[128]), 16).unwrap().guarantees().ordered);
    assert!(!remap(memories(&[128]).remove(0), 16, 1).unwrap().guarantees().ordered);
    assert!(raid0(memories(&[128; 2]), 16).unwrap().head().is_none());
    for bad in
        [raid0(host(2), 7), remap(host(1).remove(0), 4, 1), raid0(Vec::new(), 8), volume(memories(&[8]), 16, 8, 1)]
    {
        assert!(bad.is_err());
    }
    assert_eq!(
        raid0(host(2), 7).unwrap_err().to_string(),
        "the stripe unit is 3584 bytes, which is no multiple of the 4096 bytes that member 0 reads and writes at once"
    );
}

/// A member's error is reported with the caller's address, after all other parts have ended.
#[test]
fn errors_name_the_place() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let faulty = FaultDevice::new(&rt, Rc::new(Memory::new(64 << 10)), 1);
        faulty.add(Rule::new(Kinds::all(), When::Always, Effect::Error));
        let late = FaultDevice::new(&rt, Rc::new(Memory::new(64 << 10)), 1);
        late.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(Nanos(100)..=Nanos(100))));
        let device = raid0(vec![late, faulty], 8).unwrap();
        let data = Data::zeroes(32 << 10);
        let error = device.write(Sector(4), data, WriteFlags::NONE).await.unwrap_err();
        let DeviceError::Io { operation: "write", at, cause, .. } = error else { panic!("{error:?}") };
        assert_eq!((at, &cause[..], rt.now()), (Sector(8), "member 1: injected by a fault rule", Nanos(100)));
        let error = device.read(Sector(9), Buf::dirty(512)).await.unwrap_err();
        assert!(matches!(error, DeviceError::Io { at: Sector(9), .. }), "{error:?}");
        assert!(device.flush().await.is_err() && device.discard(Sector(0), 9).await.is_err());
        assert!(device.read(Sector(256), Buf::dirty(512)).await.is_err());
        assert!(device.read(Sector(256), Buf::dirty(0)).await.is_ok());
        assert!(device.discard(Sector(0), u64::MAX).await.is_err());
    };
    executor.block_on(run).unwrap();
}

/// A member's error of unknown effect counts for more than another one's lack of space, after which a caller goes on.
#[test]
fn an_error_counts_for_more_than_a_lack_of_space() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let member = |effect: Effect| {
            let fault = FaultDevice::new(&rt, Rc::new(Memory::new(64 << 10)), 1);
            fault.add(Rule::new(Kinds::all(), When::Always, effect));
            fault as Device
        };
        for failing in 0..2 {
            let effects =
                if failing == 0 { [Effect::Error, Effect::NoSpace] } else { [Effect::NoSpace, Effect::Error] };
            let device = raid0(effects.map(member).to_vec(), 8).unwrap();
            let written = device.write(Sector(0), Data::zeroes(8 << 10), WriteFlags::NONE).await;
            assert!(matches!(written, Err(DeviceError::Io { .. })), "member {failing} fails: {written:?}");
            let provisioned = device.provision(Sector(0), 16).await;
            assert!(matches!(provisioned, Err(DeviceError::Io { .. })), "member {failing} fails: {provisioned:?}");
        }
    };
    executor.block_on(run).unwrap();
}
