//! Drives with zones: states, limits, write pointers, and the costs of changes as they were measured.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::small;
use crate::device::trace::{TraceDevice, TraceKind};
use crate::device::{BlockDevice, Buf, Data, DeviceError, Memory, WriteFlags, ZoneAction, ZoneState, Zoned};
use crate::flash::validation::MEASURED_ZONES;
use crate::flash::{Fill, HostManaged, Known, Options, WriteBuffer, Zns, ZnsDevice, ZoneController, ZoneCosts};
use crate::rng::Rng;
use crate::rt::{Executor, HostProfile, Rt};
use crate::units::{MIB, Nanos, Sector};

/// 8 zones of 1 MiB, of which 768 KiB can be written; 3 may be active and 2 open.
fn zoned(protected: bool) -> Zns {
    let ssd = small(MIB, 4, 0);
    Zns {
        name: "small",
        product: "for tests",
        known: Known::Assumed,
        source: "",
        zones: 8,
        zone_bytes: MIB,
        capacity_bytes: 3 * MIB / 4,
        open_max: 2,
        active_max: 3,
        cells: ssd.cells,
        interface: ssd.interface,
        buffer: WriteBuffer { bytes: MIB / 2, protected },
        costs: ZoneCosts {
            open: Nanos::from_micros(5),
            open_by_write: Nanos::from_micros(3),
            close: Nanos::from_micros(5),
            finish_empty: Nanos::from_micros(8),
            finish: Nanos::from_millis(2),
            reset_empty: Nanos::from_millis(1),
            reset: Nanos::from_millis(1),
            reset_unit: Nanos(50),
        },
    }
}

fn run<T: 'static>(drive: Zns, body: impl AsyncFnOnce(Rc<ZnsDevice>, Rt) -> T + 'static) -> T {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let options = Options { block_bytes: 4096, ..Options::default() };
    let device = Rc::new(ZnsDevice::new(rt.clone(), &drive, options).expect("a drive"));
    executor.block_on(async move { body(device, rt).await }).expect("it ends")
}

fn data(byte: u8, blocks: usize) -> Data {
    Data::from_slice(&vec![byte; blocks * 4096])
}

/// Aim: a write goes to the write pointer or nowhere, and the error says where the pointer is. Method: a write at it, behind
/// it, before it, beyond the capacity and to a full zone; after each failure everything is as it was.
#[test]
fn writes_go_to_the_write_pointer() {
    run(zoned(true), async |device, _| {
        let write = |at: u64, blocks| device.write(Sector(at), data(1, blocks), WriteFlags::NONE);
        assert_eq!(device.geometry().zones.map(|zones| (zones.count, zones.capacity_sectors)), Some((8, 1536)));
        write(2048, 2).await.expect("at the pointer");
        for (at, blocks) in [(2048, 1), (2072, 1), (0, 0)] {
            let before = device.zone(1);
            let answer = write(at, blocks).await;
            let pointer = Sector(2064);
            match blocks {
                0 => assert_eq!(answer, Ok(())),
                _ => assert_eq!(answer, Err(DeviceError::NotAtWritePointer { at: Sector(at), zone: 1, pointer })),
            }
            assert_eq!(device.zone(1), before);
        }
        let beyond = write(2064, 191).await.expect_err("it passes the capacity");
        assert!(beyond.to_string().contains("capacity"), "{beyond}");
        write(2064, 190).await.expect("up to the capacity");
        let full = device.zone(1).expect("a zone");
        assert_eq!((full.state, full.pointer), (ZoneState::Full, Sector(2048 + 1536)));
        assert!(write(2048 + 1536, 1).await.is_err_and(|error| error.to_string().contains("full")));
        assert!(device.zone(8).is_err() && device.manage(8, ZoneAction::Reset).await.is_err());
        device.manage(1, ZoneAction::Reset).await.expect("a reset");
        let read = device.read(Sector(2048), Buf::dirty(4096)).await.expect("a read");
        assert!(read.iter().all(|byte| *byte == 0));
        assert_eq!(device.zone(1).map(|zone| zone.state), Ok(ZoneState::Empty));
    });
}

/// Aim: the limits of open and active zones hold, and a zone that a write opened makes room for another. Method: each limit
/// reached, with zones that were opened by a write and by a command.
#[test]
fn limits_hold() {
    run(zoned(true), async |device, _| {
        let state = |zone| device.zone(zone).expect("a zone").state;
        for zone in 0..3 {
            device.append(zone, data(1, 1), WriteFlags::NONE).await.expect("an append");
        }
        assert_eq!([0, 1, 2].map(state), [ZoneState::Closed, ZoneState::OpenedImplicitly, ZoneState::OpenedImplicitly]);
        let active = device.append(3, data(1, 1), WriteFlags::NONE).await.expect_err("three are active");
        assert!(active.to_string().contains("active"), "{active}");
        for zone in [0, 1] {
            device.manage(zone, ZoneAction::Open).await.expect("zones opened by writes are closed");
        }
        assert_eq!(state(2), ZoneState::Closed);
        let open = device.append(2, data(1, 1), WriteFlags::NONE).await.expect_err("two are open");
        assert!(open.to_string().contains("open"), "{open}");
        device.manage(1, ZoneAction::Finish).await.expect("a finish");
        device.append(2, data(1, 1), WriteFlags::NONE).await.expect("there is room");
        device.manage(2, ZoneAction::Open).await.expect("it is open already");
        device.append(3, data(1, 1), WriteFlags::NONE).await.expect_err("both were opened by a command");
        device.manage(0, ZoneAction::Close).await.expect("a close");
        device.manage(3, ZoneAction::Open).await.expect("room again");
        device.manage(3, ZoneAction::Close).await.expect("it was never written");
        assert_eq!([0, 1, 2, 3].map(state), [ZoneState::Closed, ZoneState::Full, ZoneState::Opened, ZoneState::Empty]);
        for zone in [1, 3] {
            assert!(device.manage(zone, ZoneAction::Close).await.is_err());
        }
    });
}

/// Aim: appends that are outstanding at once all find a place of their own. Method: 100 of them, of random lengths, to two
/// zones; each is read where the drive said.
#[test]
fn appends_at_once_do_not_meet() {
    run(zoned(true), async |device, rt| {
        let mut rng = Rng::new(1);
        let tasks: Vec<_> = (0..100_u64)
            .map(|index| {
                let (device, blocks) = (device.clone(), 1 + rng.below(3) as usize);
                let byte = index as u8 + 1;
                let task = rt.spawn(async move {
                    let at = device.append(index as u32 % 2, data(byte, blocks), WriteFlags::NONE).await;
                    at.expect("an append")
                });
                (task, byte, blocks)
            })
            .collect();
        let mut places = BTreeMap::new();
        for (task, byte, blocks) in tasks {
            let at = task.await;
            let read = device.read(at, Buf::dirty(blocks * 4096)).await.expect("a read");
            assert!(read.iter().all(|found| *found == byte));
            places.insert(at, blocks);
        }
        let mut behind: BTreeMap<u64, u64> = BTreeMap::new();
        for (at, blocks) in places {
            assert_eq!(*behind.entry(at.0 / 2048).or_insert(at.0 / 2048 * 2048), at.0, "without a gap");
            behind.insert(at.0 / 2048, at.0 + 8 * blocks as u64);
        }
    });
}

/// Aim: the books balance, and a zone that is reset while its stripes are still being programmed is empty and can be written at
/// once. Method: random commands at random times, each invariant recounted; protected and not.
#[test]
fn zone_books_balance() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let mut controller = ZoneController::new(&zoned(seed % 2 == 0), Fill::Fresh, 512).expect("a drive");
        let (mut now, mut good) = (Nanos::ZERO, 0);
        for step in 0..2000 {
            now += Nanos(rng.below(30_000));
            let zone = rng.below(8) as u32;
            let sectors = 1 + rng.below(100);
            let pointer = controller.zone(zone).expect("a zone").pointer;
            let done = match rng.below(16) {
                0 => controller.manage(now, zone, ZoneAction::Reset),
                1 => controller.manage(now, zone, ZoneAction::Finish),
                2 => controller.manage(now, zone, ZoneAction::Open),
                3 => controller.manage(now, zone, ZoneAction::Close),
                4 => Ok(controller.flush(now)),
                5..=7 => Ok(controller.read(now, Sector(u64::from(zone) * 2048 + rng.below(1900)), sectors)),
                8..=11 => controller.append(now, zone, sectors, rng.chance(1, 8)).map(|(at, done)| {
                    assert_eq!(at, pointer);
                    done
                }),
                _ => controller.write(now, pointer, sectors, rng.chance(1, 8)),
            };
            if let Ok(done) = done {
                good += 1;
                assert!(
                    done > now && done < now + Nanos::from_secs(2),
                    "seed {seed}, step {step}: {done:?} after {now:?}"
                );
            }
            controller.check();
        }
        assert!(good > 800, "seed {seed}: {good}");
    }
}

/// Aim: what was confirmed is durable after a flush, also the units of a stripe that is not complete, and the zone is written
/// on afterwards. Method: without protection a flush waits for a program operation each time, with protection it does not; a second
/// flush has nothing to program, and one beside the first waits as long as it.
#[test]
fn zone_flushes_wait() {
    for protected in [true, false] {
        let drive = zoned(protected);
        let program = drive.cells.program;
        run(drive, async move |device, rt| {
            for _ in 0..5 {
                device.append(0, data(1, 3), WriteFlags::NONE).await.expect("an append");
                let before = rt.now();
                device.flush().await.expect("a flush");
                assert_eq!(rt.now() - before > program, !protected);
                let before = rt.now();
                device.flush().await.expect("a flush");
                assert!(rt.now() - before < program, "what the first has saved is saved");
            }
        });
        let mut controller = ZoneController::new(&zoned(protected), Fill::Fresh, 512).expect("a drive");
        let programs = |controller: &mut ZoneController| {
            controller.readings(Nanos::ZERO).into_iter().find(|(name, _)| *name == "programs").map(|(_, count)| count)
        };
        // Less than a unit, and then the rest of it.
        for sectors in [3, 5, 8] {
            let (_, now) = controller.append(Nanos::from_secs(sectors), 0, sectors, false).expect("an append");
            let before = programs(&mut controller);
            let first = controller.flush(now);
            let beside = controller.flush(now + Nanos(1000));
            assert_eq!(beside >= first.max(now + program), !protected, "{sectors}: {first:?}, {beside:?}");
            assert_eq!(programs(&mut controller), before.map(|count| count + u64::from(!protected)), "{sectors}");
        }
    }
}

/// Aim: a finish programs what is left of a zone, on the dies, and nothing of a zone that is empty or full; then what was programmed
/// is what was written and what was padded. Reads come between, and two finishes share the dies. Method: a zone of 48 stripes with
/// 2.5 of them written, another with one unit; counters once the finish is done, a read in the middle, and finishes without others.
#[test]
fn finishes_program_the_rest() {
    let count = |controller: &mut ZoneController, now, name: &str| {
        controller.readings(now).into_iter().find(|(found, _)| *found == name).expect(name).1
    };
    let drive = zoned(true);
    let written = || {
        let mut controller = ZoneController::new(&drive, Fill::Fresh, 4096).expect("a drive");
        controller.append(Nanos::ZERO, 0, 80, false).expect("an append");
        controller.append(Nanos::ZERO, 1, 8, false).expect("an append");
        controller
    };
    let finish = |controller: &mut ZoneController, zone| {
        controller.manage(Nanos::from_secs(1), zone, ZoneAction::Finish).expect("a finish")
    };
    let mut controller = written();
    let alone = finish(&mut controller, 0);
    assert_eq!(count(&mut controller, alone, "units_padded"), 192 - 10);
    assert_eq!(count(&mut controller, alone, "programs"), 48);
    assert_eq!(count(&mut controller, alone, "dies_busy_ns"), 48 * drive.cells.program.0);
    for zone in [0, 2] {
        controller.manage(alone, zone, ZoneAction::Finish).expect("it is full or empty");
    }
    let later = Nanos::from_secs(2);
    assert_eq!(count(&mut controller, later, "programs"), 48);
    assert_eq!(count(&mut controller, later, "units_padded"), 192 - 10);
    controller.check();

    // The first stripe of the zone, whose die is being padded: the read waits for what its die has begun.
    let mut controller = written();
    let done = finish(&mut controller, 0);
    let middle = Nanos(Nanos::from_secs(1).0 + (done.0 - Nanos::from_secs(1).0) / 3);
    let read = controller.read(middle, Sector::ZERO, 8) - middle;
    assert!(read.0 > drive.cells.program.0 / 4 && read.0 < drive.cells.program.0 * 2, "{read:?}");

    let mut controller = written();
    let first = finish(&mut controller, 0);
    let second = finish(&mut controller, 1);
    let length = |done: Nanos| (done - Nanos::from_secs(1)).0 as f64;
    assert_eq!(first, alone);
    let rests = length(second) - drive.costs.finish.0 as f64;
    assert!(rests > 1.9 * (length(first) - drive.costs.finish.0 as f64), "{first:?}, {second:?}");
    assert_eq!(count(&mut controller, second, "programs"), 96);
    assert_eq!(count(&mut controller, second, "units_padded"), 192 - 10 + 192 - 1);
}

/// Aim: a reset gives up the rest of a finish that no die has begun, so that no more is programmed or counted for it, and a later
/// finish does not wait for it; other zones' finishes go on as they were announced. Method: a finish, ended by a reset at once, in its
/// middle, and when it is done; counters long afterwards, and a second finish compared with one that was alone.
#[test]
fn a_reset_ends_the_rest_of_a_finish() {
    let drive = zoned(true);
    let stripes = 48;
    let counted = |controller: &mut ZoneController, now| {
        let readings = controller.readings(now);
        let of = |name: &str| readings.iter().find(|(found, _)| *found == name).expect(name).1;
        (of("programs"), of("units_padded"))
    };
    let (start, later) = (Nanos::from_secs(1), Nanos::from_secs(9));
    let written = |zones: &[u32]| {
        let mut controller = ZoneController::new(&drive, Fill::Fresh, 4096).expect("a drive");
        for zone in zones {
            controller.append(Nanos::ZERO, *zone, 8, false).expect("an append");
        }
        controller
    };
    let change = |controller: &mut ZoneController, now, zone, action| {
        let done = controller.manage(now, zone, action).expect("allowed");
        controller.check();
        done
    };
    let alone = change(&mut written(&[0]), start, 0, ZoneAction::Finish);
    let rest = alone - drive.costs.finish - start;
    for (after, least, most) in
        [(Nanos(1), 1, 20), (Nanos(rest.0 / 2), 12, 40), (rest + drive.costs.finish, stripes, stripes)]
    {
        let mut controller = written(&[0]);
        change(&mut controller, start, 0, ZoneAction::Finish);
        change(&mut controller, start + after, 0, ZoneAction::Reset);
        let (programs, padded) = counted(&mut controller, start + after);
        assert!((least..=most).contains(&programs), "{after:?}: {programs}");
        assert_eq!(padded, programs * 4 - 1, "{after:?}");
        assert_eq!(counted(&mut controller, later), (programs, padded), "{after:?}: nothing is programmed any more");
    }

    // The dies are free as soon as what they have begun is done.
    let mut controller = written(&[0, 1]);
    change(&mut controller, start, 0, ZoneAction::Finish);
    change(&mut controller, start + Nanos(1), 0, ZoneAction::Reset);
    let second = change(&mut controller, start + Nanos(2), 1, ZoneAction::Finish);
    let begun = Nanos(2 * drive.cells.program.0);
    assert!(second - alone < begun, "{alone:?}, {second:?}");

    // A finish that waits behind another is given up as a whole, and one behind it keeps its time. Given up too, it leaves nothing.
    let mut controller = written(&[0, 1, 2]);
    let ends = [0, 1, 2].map(|zone| change(&mut controller, start, zone, ZoneAction::Finish));
    let mut other = controller.clone();
    change(&mut controller, start + Nanos(1), 1, ZoneAction::Reset);
    let (programs, padded) = counted(&mut controller, later);
    // The stripe that holds the host's unit was programmed with the finish.
    assert_eq!((programs, padded), (2 * stripes + 1, (2 * stripes + 1) * 4 - 3));
    for zone in [1, 2] {
        change(&mut other, start + Nanos(1), zone, ZoneAction::Reset);
    }
    other.append(start + Nanos(2), 3, 8, false).expect("an append");
    let last = change(&mut other, start + Nanos(3), 3, ZoneAction::Finish);
    assert!(last < ends[1] + begun, "{last:?}, {ends:?}");
    assert_eq!(counted(&mut other, later).0, 2 * stripes + 2);
}

/// Aim: what was confirmed before a flush is durable after it, also if a finish of its zone is still on its way. Method: a unit, a
/// finish, and a flush beside it, without protection: it waits for a program operation.
#[test]
fn a_flush_beside_a_finish_waits() {
    let mut controller = ZoneController::new(&zoned(false), Fill::Fresh, 4096).expect("a drive");
    let (_, now) = controller.append(Nanos::ZERO, 0, 8, false).expect("an append");
    let finished = controller.manage(now, 0, ZoneAction::Finish).expect("a finish");
    let flushed = controller.flush(now + Nanos(1000));
    assert!(flushed >= now + zoned(false).cells.program && flushed < finished, "{now:?}, {flushed:?}, {finished:?}");
}

/// Aim: changes of zones cost what they cost on the real drive. Method: each line of the measurements on the model: all within
/// 13 %, and half of them within 4 %.
///
/// Left out: `reset_0`, for which the source has 2 us and 1.6 ms, in different runs.
#[test]
fn zones_change_as_measured() {
    let drive = Zns::named("zns-a").expect("a drive");
    let mut errors = Vec::new();
    for line in MEASURED_ZONES.lines().filter(|line| !line.starts_with('#') && !line.starts_with("run,")) {
        let fields: Vec<&str> = line.split(',').collect();
        let (operation, measured) = (fields[1], fields[3].parse::<f64>().expect("microseconds"));
        let mut controller = ZoneController::new(drive, Fill::Fresh, 4096).expect("a drive");
        let mut now = Nanos::ZERO;
        let (word, units) = match operation.rsplit_once('_') {
            Some((word, units)) if units.parse::<u64>().is_ok() => (word, units.parse::<u64>().expect("a number")),
            _ => (operation, 1),
        };
        if operation == "reset_0" {
            continue;
        }
        let mut rest = units;
        while rest > 0 && word != "close_write" && word != "close_implicit_write" {
            let take = rest.min(32);
            (_, now) = controller.append(now, 0, take * 8, false).expect("an append");
            rest -= take;
        }
        let mut change = |now: Nanos, action| controller.manage(now, 0, action).expect(operation);
        // The source pauses between the steps; what is being programmed is then done.
        let pause = Nanos::from_millis(100);
        let start = now + pause;
        let time = match word {
            "finish" => change(start, ZoneAction::Finish) - start,
            "reset" => change(start, ZoneAction::Reset) - start,
            "reset_finished" => {
                let start = change(start, ZoneAction::Finish) + pause;
                change(start, ZoneAction::Reset) - start
            }
            "close" | "close_implicit" => change(start, ZoneAction::Close) - start,
            "close_write" | "close_implicit_write" => {
                controller.append(start, 0, 8, false).map(|_| ()).expect("an append");
                let mut controller = ZoneController::new(drive, Fill::Fresh, 4096).expect("a drive");
                controller.write(start, Sector::ZERO, 8, false).expect("a write") - start
            }
            other => panic!("{other} is no change of a zone"),
        };
        let error = time.0 as f64 / 1e3 / measured - 1.0;
        errors.push((error.abs(), operation.to_owned()));
    }
    errors.sort_unstable_by(|one, other| one.0.total_cmp(&other.0));
    assert!(errors.len() > 30, "{}", errors.len());
    assert!(errors[errors.len() / 2].0 < 0.04, "{errors:?}");
    let off: Vec<_> = errors.iter().filter(|(error, _)| *error > 0.13).collect();
    assert!(off.is_empty(), "{off:?}");
}

/// Aim: any device can have zones, with the same rules; what was there before a reset does not show. Method: a memory with
/// zones: written, read across a pointer, reset, written again; the rest that fills no zone is not offered.
#[test]
fn disks_have_zones() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let disk = HostManaged::new(Rc::new(Memory::new(9 * MIB + 4096)), MIB, 2).expect("a disk");
    let run = async move {
        assert_eq!((disk.geometry().sectors, disk.zoned().is_some()), (9 * 2048, true));
        disk.write(Sector(2048), data(1, 3), WriteFlags::NONE).await.expect("at the pointer");
        let pointer = Sector(2048 + 24);
        let wrong = disk.write(Sector(2048), data(1, 1), WriteFlags::NONE).await;
        assert_eq!(wrong, Err(DeviceError::NotAtWritePointer { at: Sector(2048), zone: 1, pointer }));
        assert_eq!(disk.append(1, data(2, 1), WriteFlags::NONE).await, Ok(pointer));
        disk.manage(1, ZoneAction::Reset).await.expect("a reset");
        disk.append(1, data(3, 1), WriteFlags::NONE).await.expect("an append");
        let read = disk.read(Sector(2048 - 8), Buf::dirty(3 * 4096)).await.expect("a read");
        assert!(read.iter().enumerate().all(|(index, byte)| *byte == 3 * u8::from((4096..8192).contains(&index))));
    };
    executor.block_on(run).expect("it ends");
    assert!(HostManaged::new(Rc::new(Memory::new(MIB)), 2 * MIB, 0).is_err());
    assert!(HostManaged::new(Rc::new(Memory::new(MIB)), 1000, 0).is_err());
}

/// Aim: a traced drive is the drive. Method: writes, appends and changes of zones through the trace, and what it recorded.
#[test]
fn a_trace_passes_zones_on() {
    run(zoned(true), async |device, rt| {
        let log = Rc::new(RefCell::new(Vec::new()));
        let traced = TraceDevice::new(&rt, device.clone(), log.clone());
        assert_eq!(traced.geometry(), device.geometry());
        let zoned = traced.zoned().expect("it has zones");
        traced.write(Sector(0), data(1, 1), WriteFlags::NONE).await.expect("at the pointer");
        assert_eq!(zoned.append(0, data(2, 2), WriteFlags::NONE).await, Ok(Sector(8)));
        zoned.manage(0, ZoneAction::Finish).await.expect("allowed");
        zoned.append(0, data(2, 1), WriteFlags::NONE).await.expect_err("it is full");
        zoned.manage(0, ZoneAction::Reset).await.expect("allowed");
        assert_eq!(zoned.zone(0), device.zone(0));
        let recorded: Vec<_> =
            log.borrow().iter().map(|event| (event.kind, event.at, event.sectors, event.ok)).collect();
        let expected = [
            (TraceKind::Write, Sector(0), 8, true),
            (TraceKind::Write, Sector(8), 16, true),
            (TraceKind::Write, Sector(0), 8, false),
            (TraceKind::Discard, Sector(0), 2048, true),
        ];
        assert_eq!(recorded, expected);
    });
}
