//! Garbage collection: the books, and what it costs against closed forms.

use super::{FILLS, small};
use crate::cleaning::model;
use crate::flash::{Controller, Fill, Ssd};
use crate::rng::Rng;
use crate::units::{MIB, Nanos};

const UNIT_SECTORS: u64 = 8;

/// Aim: no unit is lost or counted twice, whatever comes: writes of parts of units, overwrites of what the collection is
/// moving, discards of what waits in the buffer, flushes while it runs. Method: random commands on drives so small that they
/// collect all the time, each invariant recounted after every few commands.
#[test]
fn books_balance() {
    for seed in 0..24 {
        let mut rng = Rng::new(seed);
        let mut drive = small(4 * MIB, 4, [700, 2500][seed as usize % 2]);
        drive.buffer.protected = seed % 4 < 2;
        drive.buffer.bytes = MIB / 4;
        let sectors = drive.bytes / 512;
        let mut controller = Controller::new(&drive, FILLS[seed as usize % 3], 512).expect("a drive");
        let mut now = Nanos::ZERO;
        for step in 0..1500 {
            now += Nanos(rng.below(40_000));
            let longest = if rng.chance(1, 4) { 256 } else { 16 };
            let length = 1 + rng.below(longest);
            let first = rng.below(sectors - length + 1);
            let done = match rng.below(20) {
                0 => controller.flush(now),
                1 | 2 => controller.discard(now, first, length),
                3..=7 => controller.read(now, first, length),
                _ => controller.write(now, first, length, rng.chance(1, 10)),
            };
            assert!(done > now && done < now + Nanos::from_secs(1), "seed {seed}, step {step}: {done:?} after {now:?}");
            if step % 25 == 0 {
                controller.check();
            }
        }
    }
}

/// Aim: flushes that pad stripes, of what the host writes and of what is moved for it, leave room for the garbage collection. Method:
/// the fewest stripes in a superblock that are allowed, overwritten at random with a flush behind each write, also without spare space.
#[test]
fn padded_stripes_leave_room() {
    for (fill, spare) in FILLS.into_iter().flat_map(|fill| [(fill, 0), (fill, 700)]) {
        let mut drive = small(16 * MIB, 16, spare);
        (drive.cells.dies, drive.cells.channels, drive.buffer.protected) = (1, 1, false);
        let mut controller = Controller::new(&drive, fill, 512).expect("a drive");
        let (mut rng, mut now) = (Rng::new(1), Nanos::ZERO);
        for step in 0..10_000 {
            now = controller.write(now, rng.below(drive.bytes / 4096) * UNIT_SECTORS, UNIT_SECTORS, false);
            now = controller.flush(now);
            if step % 1000 == 0 {
                controller.check();
            }
        }
        assert!(controller.counts.collections > 0, "{fill:?}, {spare}");
        assert_eq!(drive.pages_for_size(), 16);
        drive.cells.pages = 4;
        let error = Controller::new(&drive, fill, 512).map(|_| ()).expect_err("too few").to_string();
        assert!(error.contains("16 stripes"), "{error}");
    }
}

/// Aim: what a drive remembers depends on what is written to, not on how often. Method: 4 MiB of a drive of 1 GiB are overwritten at
/// random until nearly all superblocks are used and none has been collected.
#[test]
fn memory_does_not_grow_with_the_trace() {
    let drive = small(1 << 30, 4, 700);
    let mut controller = Controller::new(&drive, Fill::Fresh, 512).expect("a drive");
    let tables = |controller: &Controller| {
        controller
            .readings(Nanos::ZERO)
            .into_iter()
            .find(|(name, _)| *name == "tables_bytes")
            .map_or(0, |(_, bytes)| bytes)
    };
    let (mut rng, mut now, mut most) = (Rng::new(3), Nanos::ZERO, 0);
    for count in 0..200_000 {
        now = controller.write(now, rng.below(1024) * UNIT_SECTORS, UNIT_SECTORS, false);
        if count % 1000 == 0 {
            most = most.max(tables(&controller));
        }
    }
    assert_eq!(controller.counts.units_moved, 0);
    assert!((4096..256 << 10).contains(&most), "{most} bytes after 200,000 writes of 4 bytes each");
    controller.check();
}

/// Write amplification of uniform overwrites, by units of 4 KiB, after `warm` times the drive's size.
fn amplification(drive: &Ssd, fill: Fill, warm: u64, measured: u64) -> (f64, Controller) {
    let mut controller = Controller::new(drive, fill, 512).expect("a drive");
    let units = drive.bytes / 4096;
    let mut rng = Rng::new(5);
    let mut now = Nanos::ZERO;
    let mut write = |controller: &mut Controller, count: u64| {
        for _ in 0..count {
            now = controller.write(now, rng.below(units) * UNIT_SECTORS, UNIT_SECTORS, false);
        }
    };
    write(&mut controller, warm * units);
    let before = controller.counts;
    write(&mut controller, measured * units);
    let after = controller.counts;
    let written = after.units_written - before.units_written;
    let moved = after.units_moved - before.units_moved;
    assert_eq!(after.units_padded, before.units_padded);
    ((written + moved) as f64 / written as f64, controller)
}

/// Aim: greedy garbage collection costs what the closed form says. Method: uniform overwrites of a drive with 256 superblocks
/// and more, at three sizes of the spare space, within 2 %. The utilisation counts the places that data can take: all but
/// those of superblocks that are open, free, or about to be.
#[test]
fn uniform_overwrites_cost_what_is_known() {
    for spare in [1200, 2800, 5000] {
        let drive = small(128 * MIB, 4, spare);
        let (found, controller) = amplification(&drive, Fill::Sequential, 5, 2);
        let superblock = drive.cells.superblock_units() as u32;
        let known = model::write_amplification(model::greedy_utilisation(controller.utilisation(), superblock));
        assert!((found / known - 1.0).abs() < 0.02, "{spare}: {found} and not {known}");
    }
}

/// Aim: a drive that begins overwritten is in the steady state from the beginning. Method: its write amplification over the
/// first half of its size against that of a drive that was overwritten five times, within 4 %.
#[test]
fn random_fill_is_the_steady_state() {
    for spare in [1200, 2800] {
        let drive = small(128 * MIB, 8, spare);
        let (after_long, _) = amplification(&drive, Fill::Sequential, 5, 1);
        let (at_once, controller) = amplification(&drive, Fill::Random, 0, 1);
        assert!((at_once / after_long - 1.0).abs() < 0.04, "{spare}: {at_once} and not {after_long}");
        controller.check();
    }
}

/// Aim: sequential overwrites cost nothing. Method: three times around, from every fill that has one order.
#[test]
fn sequential_overwrites_are_free() {
    let drive = small(32 * MIB, 8, 700);
    let mut controller = Controller::new(&drive, Fill::Fresh, 512).expect("a drive");
    let mut now = Nanos::ZERO;
    for _ in 0..3 {
        for command in 0..drive.bytes / (128 << 10) {
            now = controller.write(now, command * 256, 256, false);
        }
    }
    assert!(controller.counts.collections > 0);
    assert_eq!(controller.counts.units_moved, 0);
}

/// Aim: a drive of any size costs memory for what is used of it. Method: 8 TiB, in every fill, with 1,000 random writes.
#[test]
fn large_drives_are_sparse() {
    for fill in FILLS {
        let mut drive = small(8 << 40, 1024, 700);
        drive.cells.dies = 64;
        let mut controller = Controller::new(&drive, fill, 512).expect("a drive");
        let (mut rng, mut now) = (Rng::new(1), Nanos::ZERO);
        for _ in 0..1000 {
            now = controller.write(now, rng.below(drive.bytes / 4096) * UNIT_SECTORS, UNIT_SECTORS, false);
        }
        // mkfs discards a device as a whole.
        controller.discard(now, drive.bytes / 512 / 4, drive.bytes / 512 / 1024);
        let readings = controller.readings(now);
        let (_, bytes) = readings.iter().find(|(name, _)| *name == "tables_bytes").expect("it is counted");
        assert!(*bytes < 16 << 20, "{fill:?}: {bytes}");
    }
}
