//! Aim: the states after a cut are those that the declaration allows, no fewer and no more. Method: short request
//! sequences on each kind of device, all states enumerated and written as the bytes they leave.

use std::collections::BTreeMap;

use super::*;
use crate::device::cut::*;
use crate::rt::{Executor, HostProfile};

const BYTES: u64 = 64 << 10;

/// Runs `body` on a device without latency and returns its log.
fn record(options: CrashOptions, body: impl AsyncFnOnce(Rc<CrashDevice>)) -> CrashLog {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let device = CrashDevice::new(executor.rt(), Image::default(), options);
    executor.block_on(body(device.clone())).expect("nothing waits indefinitely");
    assert_eq!(device.violations(), Vec::<String>::new());
    device.log()
}

fn instant(options: CrashOptions) -> CrashOptions {
    CrashOptions { latency: Nanos::ZERO..=Nanos::ZERO, ..options }
}

async fn put(device: &CrashDevice, sector: u64, sectors: usize, byte: u8, flags: WriteFlags) {
    device.write(Sector(sector), Data::from_slice(&vec![byte; sectors * 512]), flags).await.expect("in range");
}

/// First bytes of the first `sectors` sectors in each possible state, as text; `.` for zero.
fn states(log: &CrashLog, position: usize, sectors: u64) -> BTreeSet<String> {
    let cut = log.cut(position);
    let effort = Effort { all_subsets_of: 10, singles: 10, tears: 800, samples: 400 };
    let text = |choice: &Choice| -> String {
        let image = cut.image(choice);
        let shown = |byte| if byte == 0 { '.' } else { char::from(byte) };
        (0..sectors).map(|sector| shown(first_byte(&image, sector))).collect()
    };
    cut.choices(&effort, 1).iter().map(text).collect()
}

fn first_byte(image: &Image, sector: u64) -> u8 {
    let mut bytes = [0; 512];
    image.read(Sector(sector), &mut bytes);
    bytes[0]
}

fn set(states: &[&str]) -> BTreeSet<String> {
    states.iter().map(ToString::to_string).collect()
}

/// Two cached writes: any subset, until the flush has completed.
#[test]
fn unflushed_writes_are_there_in_any_subset() {
    let log = record(instant(CrashOptions::volatile(BYTES)), async |device| {
        put(&device, 0, 1, b'a', WriteFlags::NONE).await;
        put(&device, 1, 1, b'b', WriteFlags::NONE).await;
        device.flush().await.expect("a flush");
        put(&device, 0, 1, b'c', WriteFlags::NONE).await;
    });
    // Events: issue a, done a, issue b, done b, issue flush, done flush, issue c, done c.
    assert_eq!(log.events(), 8);
    assert_eq!(states(&log, 0, 2), set(&[".."]));
    assert_eq!(states(&log, 1, 2), set(&["..", "a."]));
    assert_eq!(states(&log, 5, 2), set(&["..", "a.", ".b", "ab"]));
    assert_eq!(states(&log, 6, 2), set(&["ab"]));
    assert_eq!(states(&log, 8, 2), set(&["ab", "cb"]));
    assert_eq!(log.positions(), [0, 2, 5, 6, 8]);
}

/// A write of four sectors tears into any subset, but never inside an atomic unit.
#[test]
fn writes_tear_at_the_atomic_unit() {
    let torn = |atomic_write_bytes| {
        let mut options = instant(CrashOptions::volatile(BYTES));
        options.guarantees.atomic_write_bytes = atomic_write_bytes;
        let log = record(options, async |device| put(&device, 1, 4, b'a', WriteFlags::NONE).await);
        states(&log, 1, 5)
    };
    // The units are drawn, so this also shows that every pattern is drawn in the end.
    let any: BTreeSet<String> = (0..16u32)
        .map(|bits| {
            (0..5).map(|sector| if sector > 0 && bits & (1 << (sector - 1)) != 0 { 'a' } else { '.' }).collect()
        })
        .collect();
    assert_eq!(torn(512), any);
    // Sectors 1 and 4 are parts of 1-KiB units; sectors 2 and 3 are one.
    let pairs: BTreeSet<String> = any.iter().filter(|text| text.as_bytes()[2] == text.as_bytes()[3]).cloned().collect();
    assert_eq!(torn(1024), pairs);
    assert_eq!(torn(4096), any, "a span that covers no whole unit is promised nothing");
}

/// What makes a single write durable: completion on a drive without a cache, `fua` elsewhere.
#[test]
fn durability_by_declaration() {
    let body = async |device: Rc<CrashDevice>| {
        put(&device, 0, 1, b'a', WriteFlags::NONE).await;
        put(&device, 1, 1, b'b', WriteFlags::FUA).await;
    };
    let cached = record(instant(CrashOptions::volatile(BYTES)), body);
    assert_eq!(states(&cached, 4, 2), set(&[".b", "ab"]), "fua says nothing about earlier writes");
    assert_eq!(states(&cached, 3, 2), set(&["..", ".b", "a.", "ab"]));
    let through = record(instant(CrashOptions::write_through(BYTES)), body);
    assert_eq!(states(&through, 2, 2), set(&["a."]));
    assert_eq!(states(&through, 3, 2), set(&["a.", "ab"]));
    let ordered = record(instant(CrashOptions::in_order(BYTES)), body);
    assert_eq!(states(&ordered, 3, 2), set(&["..", "a.", "ab"]));
    assert_eq!(states(&ordered, 4, 2), set(&["ab"]), "on an ordered device fua takes along what came before");
}

/// An ordered device keeps a prefix, and the last write of it may be torn.
#[test]
fn ordered_devices_keep_a_prefix() {
    let log = record(instant(CrashOptions::in_order(BYTES)), async |device| {
        put(&device, 0, 2, b'a', WriteFlags::NONE).await;
        put(&device, 2, 1, b'b', WriteFlags::NONE).await;
        put(&device, 3, 1, b'c', WriteFlags::NONE).await;
    });
    let expected = set(&["....", "a...", ".a..", "aa..", "aab.", "aabc"]);
    assert_eq!(states(&log, 6, 4), expected);
}

/// A flush covers only what had completed when it was issued.
#[test]
fn a_flush_does_not_cover_what_is_under_way() {
    let mut options = CrashOptions::volatile(BYTES);
    options.latency = Nanos(500)..=Nanos(1000);
    let log = record(options, async |device| {
        let (one, rt) = (device.clone(), device.0.rt.clone());
        let write = rt.spawn(async move { put(&one, 0, 1, b'a', WriteFlags::NONE).await });
        rt.sleep(Nanos(1)).await;
        device.flush().await.expect("a flush");
        write.await;
    });
    assert_eq!(log.to_text().lines().next().map(|line| line.trim()), Some("1 #0 write 0+1"));
    assert_eq!(states(&log, log.events(), 1), set(&[".", "a"]));
}

/// What a failed flush should have made durable stays undetermined for good; later writes can be made durable.
#[test]
fn a_failed_flush_is_final() {
    let log = record(instant(CrashOptions::volatile(BYTES)), async |device| {
        device.fail_flushes(1..2);
        put(&device, 0, 1, b'a', WriteFlags::NONE).await;
        assert!(matches!(device.flush().await, Err(DeviceError::Io { operation: "flush", .. })));
        put(&device, 1, 1, b'b', WriteFlags::NONE).await;
        assert_eq!(device.flush().await, Ok(()));
    });
    assert_eq!(states(&log, log.events(), 2), set(&[".b", "ab"]));
}

/// Discards take effect or not, and the content after an undefined one is drawn again for every state.
#[test]
fn discards() {
    let body = async |device: Rc<CrashDevice>| {
        put(&device, 0, 1, b'a', WriteFlags::NONE).await;
        device.flush().await.expect("a flush");
        device.discard(Sector(0), 1).await.expect("a discard");
    };
    let zeroes = record(instant(CrashOptions::host_file(BYTES)), async |device| {
        put(&device, 0, 8, b'a', WriteFlags::NONE).await;
        device.flush().await.expect("a flush");
        device.discard(Sector(0), 8).await.expect("a discard");
    });
    assert_eq!(states(&zeroes, 6, 1), set(&["a", "."]));
    let ignored = record(instant(CrashOptions::write_through(BYTES)), body);
    assert_eq!(states(&ignored, 6, 1), set(&["a"]));
    let undefined = record(instant(CrashOptions::volatile(BYTES)), body);
    assert!(states(&undefined, 6, 1).len() > 2, "also garbage");
}

/// The same log, position and choice give the same bytes, in whatever order positions are looked at; and states
/// with the same key have the same bytes.
#[test]
fn states_are_functions_of_their_names() {
    let mut options = CrashOptions::volatile(BYTES);
    options.guarantees.discard = Discard::Zeroes;
    let log = record(options, async |device| {
        let rt = device.0.rt.clone();
        let mut rng = Rng::new(5);
        for round in 0..12u8 {
            let tasks: Vec<_> = (0..3)
                .map(|lane| {
                    let (device, sector) = (device.clone(), lane * 20 + rng.below(16));
                    rt.spawn(async move { put(&device, sector, 3, b'a' + round, WriteFlags::NONE).await })
                })
                .collect();
            for task in tasks {
                task.await;
            }
            if round % 4 == 3 {
                device.flush().await.expect("a flush");
            }
        }
    });
    let bytes = |image: &Image| {
        let mut bytes = vec![0; 64 * 512];
        image.read(Sector(0), &mut bytes);
        bytes
    };
    let positions = log.positions();
    let mut by_name = BTreeMap::new();
    let mut by_key = BTreeMap::new();
    let (mut by_hash, mut hash_of) = (BTreeMap::new(), BTreeMap::new());
    for &position in &positions {
        let cut = log.cut(position);
        for (index, choice) in cut.choices(&Effort::THOROUGH, 9).iter().enumerate() {
            let (image, hash) = cut.image_and_hash(choice);
            assert_eq!(hash, image.content_hash(), "kept up to date from request to request");
            let image = bytes(&image);
            assert_eq!(by_key.entry(cut.key(choice)).or_insert_with(|| image.clone()), &image);
            assert_eq!(by_hash.entry(hash).or_insert_with(|| image.clone()), &image, "equal hashes, equal bytes");
            assert_eq!(*hash_of.entry(image.clone()).or_insert(hash), hash, "equal bytes, equal hashes");
            by_name.insert((position, index), image);
        }
    }
    assert!(by_key.len() < by_name.len(), "keys find states that were looked at before");
    assert!(by_hash.len() < by_key.len(), "different requests leave equal bytes");
    for &position in positions.iter().rev() {
        let cut = log.cut(position);
        for (index, choice) in cut.choices(&Effort::THOROUGH, 9).iter().enumerate() {
            assert_eq!(by_name[&(position, index)], bytes(&cut.image(choice)));
        }
    }
}

/// Requests that overlap in space and time are reported, and so are overlong ones.
#[test]
fn forbidden_requests_are_reported() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let device = CrashDevice::new(&rt, Image::default(), CrashOptions::volatile(8 << 20));
    let shared = device.clone();
    executor
        .block_on(async move {
            let other = shared.clone();
            let task = rt.spawn(async move { put(&other, 0, 4, b'a', WriteFlags::NONE).await });
            put(&shared, 3, 4, b'b', WriteFlags::NONE).await;
            task.await;
            put(&shared, 0, 4000, b'c', WriteFlags::NONE).await;
        })
        .expect("nothing waits indefinitely");
    assert_eq!(device.violations().len(), 2, "{:?}", device.violations());
}

/// A part is flushed by itself: writes to other parts stay undetermined. Method: one write in each of two parts, and a
/// flush of the first.
#[test]
fn a_part_is_flushed_by_itself() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let device = CrashDevice::new(executor.rt(), Image::default(), CrashOptions::volatile(64 << 10));
    let done = executor.block_on(async {
        let (one, two) = (device.part(Sector(0), 64), device.part(Sector(64), 64));
        for part in [&one, &two] {
            part.write(Sector(3), Data::from_slice(&[7; 512]), WriteFlags::NONE).await.expect("in range");
            assert!(part.write(Sector(64), Data::zeroes(512), WriteFlags::NONE).await.is_err());
        }
        one.flush().await.expect("flushes succeed");
        assert_eq!(two.read(Sector(3), Buf::dirty(512)).await.expect("in range")[0], 7);
    });
    assert_eq!(done, Ok(()));
    let log = device.log();
    let cut = log.cut(log.events());
    let pending: Vec<String> = cut.pending().map(ToString::to_string).collect();
    assert_eq!(pending, ["write 67+1"]);
}
