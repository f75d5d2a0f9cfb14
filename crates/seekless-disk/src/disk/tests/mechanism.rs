use super::*;
use crate::rng::Rng;
use crate::units::SECTOR_BYTES;

/// Megabytes a second, as [se95] counts them.
fn rate(bytes: u64, time: Nanos) -> f64 {
    bytes as f64 / 1e6 / time.as_secs_f64()
}

/// Long sequential reads run at the media rate with skew. The RZ26's cylinder takes 16 revolutions of 11.194 ms
/// for 14 tracks of 57 sectors: 2.28 MB/s, the "2.3 MB/s SCSI bus" of [se95].
#[test]
fn sequential_rate_is_media_rate() {
    let mut disk = Closed::new(drive("dec-rz26"), Nanos::ZERO);
    let (requests, sectors) = (100, 4096);
    for index in 0..requests {
        disk.serve(read(index * u64::from(sectors), sectors));
    }
    let expected = 14.0 * 57.0 * 512.0 / 1e6 / (16.0 * 60.0 / 5360.0);
    // The first seek and a command overhead per request that the bus does not hide: under 1 %.
    assert_near("RZ26", rate(requests * u64::from(sectors) * SECTOR_BYTES, disk.now), expected, 0.01);
    // Another drive, whose bus is the limit: 512 B / 0.105 ms.
    let mut disk = Closed::new(drive("cheetah9lp"), Nanos::ZERO);
    for index in 0..requests {
        disk.serve(read(index * u64::from(sectors), sectors));
    }
    let moved = rate(requests * u64::from(sectors) * SECTOR_BYTES, disk.now);
    assert_near("Cheetah 9LP", moved, 512.0 / 105.0, 0.01);
}

/// A write larger than the cache is limited by the medium, not by the bus.
#[test]
fn long_buffered_writes_run_at_media_rate() {
    let mut drive = drive("nearline-4tb").clone();
    let mut disk = Closed::new(&drive, Nanos::ZERO);
    let sectors = 200_000;
    for index in 0..10u64 {
        disk.serve(write(index * u64::from(sectors), sectors));
    }
    // 3072 sectors in one revolution and a skew of 435 sectors, at 120 revolutions a second.
    let expected = 3072.0 * 512.0 / 1e6 * 120.0 * 3072.0 / (3072.0 + 435.0);
    assert_near("stream", rate(10 * u64::from(sectors) * SECTOR_BYTES, disk.now), expected, 0.02);
    // One write at a time: the same, because each is long.
    drive.cache.write_behind = WriteBehind::One;
    let mut disk = Closed::new(&drive, Nanos::ZERO);
    for index in 0..10u64 {
        disk.serve(write(index * u64::from(sectors), sectors));
    }
    assert_near("one", rate(10 * u64::from(sectors) * SECTOR_BYTES, disk.now), expected, 0.03);
}

/// Short sequential writes: with write-behind in a stream they cost the bus; one at a time, a revolution each.
#[test]
fn write_behind_streams_or_not() {
    let serve = |behind| {
        let mut drive = drive("cheetah9lp").clone();
        drive.cache.write_behind = behind;
        let mut disk = Closed::new(&drive, Nanos::ZERO);
        for index in 0..1000 {
            disk.serve(write(index * 8, 8));
        }
        1000.0 / disk.now.as_secs_f64()
    };
    // 0.5 ms overhead and 8 sectors of 0.105 ms.
    assert_near("stream", serve(WriteBehind::Stream), 1000.0 / 1.34, 0.01);
    // A revolution of 5.973 ms and 8 of 254 sectors; now and then a track skew.
    assert_near("one", serve(WriteBehind::One), 1000.0 / (5.973 * (1.0 + 8.0 / 254.0)), 0.02);
    assert_near("none", serve(WriteBehind::None), 1000.0 / (5.973 * (1.0 + 8.0 / 254.0)), 0.02);
}

/// The mean over random seeks is that of the drive's specification.
#[test]
fn mean_seeks() {
    let mean = |drive: &Drive| drive.seek_figures().unwrap().average.as_millis_f64();
    // Measured with DiskSim over random requests, which weights outer zones more: 2 %.
    for (name, expected) in [
        ("cheetah9lp", 5.47),
        ("cheetah4lp", 7.96),
        ("atlas10k", 5.60),
        ("atlas3", 8.31),
        ("barracuda", 9.32),
        ("ultrastar18es", 7.20),
        ("hp-c3323a", 9.52),
        ("hp-c2490a", 9.19),
        ("dec-rz26", 10.44),
        ("st41601n", 11.14),
        ("hp97560", 12.8),
    ] {
        assert_near(name, mean(drive(name)), expected, 0.06);
    }
    // The three-point curve passes through its three figures.
    for (name, average, one, full) in [("wren4", 17.5, 2.625, 32.725), ("m2694exa", 9.5, 2.5, 17.765)] {
        let seeks = crate::disk::seek::tabulate(drive(name)).unwrap();
        assert_near(name, mean(drive(name)), average, 0.01);
        assert_near(name, f64::from(seeks[1]) / 1e6, one, 0.001);
        assert_near(name, f64::from(seeks[seeks.len() - 1]) / 1e6, full, 0.01);
    }
}

/// A read of what was just read, or read ahead, costs overhead and bus only; one elsewhere does not.
#[test]
fn cache_hits() {
    let mut disk = Closed::new(drive("dec-rz26"), Nanos::from_millis(20));
    assert_eq!(disk.serve(read(5700, 4)).hit, Hit::Miss);
    let hit = Nanos(1_229_000 + 4 * 70_690);
    for (at, what) in [(5700, "read again"), (5704, "read ahead"), (5740, "further ahead")] {
        let service = disk.serve(read(at, 4));
        assert_eq!((service.hit, service.done - service.start), (Hit::Full, hit), "{what}");
    }
    assert_eq!(disk.serve(read(9000, 4)).hit, Hit::Miss);
    assert_eq!(disk.serve(read(5704, 4)).hit, Hit::Full, "another segment kept it");
    // A write removes what it changes.
    disk.serve(write(5702, 4));
    assert_eq!(disk.serve(read(5700, 4)).hit, Hit::Miss);
    assert_eq!(disk.serve(read(5702, 4)).hit, Hit::Full);
}

/// Service time is the sum of its stated parts, for any drive and any requests; the heads and the cache never make it
/// negative, and the same requests give the same times.
#[test]
fn any_requests_on_any_drive() {
    for drive in Drive::all() {
        let run = || {
            let mut rng = Rng::new(11);
            let mut disk = Closed::new(drive, Nanos::ZERO);
            let mut at = 0;
            let mut hash = 0u64;
            for _ in 0..3000 {
                let (think_bits, size_bits) = (rng.below(26), rng.below(12));
                disk.think = Nanos(rng.below(1 << think_bits));
                let sectors = 1 + rng.below(1 << size_bits) as u32;
                at = match rng.below(4) {
                    0 => at,
                    1 => (at + rng.below(300)).saturating_sub(150),
                    _ => rng.below(drive.sectors),
                }
                .min(drive.sectors - u64::from(sectors));
                let request = Request { sector: Sector(at), sectors, write: rng.chance(1, 3), fua: rng.chance(1, 10) };
                let service = disk.serve(request);
                let parts = service.overhead + service.seek + service.rotation;
                let whole = service.done - service.start;
                assert!(parts <= whole, "{}: {request:?} {service:?}", drive.name);
                // Two seconds would be more than any drive needs: some unit is wrong.
                let slowest = Nanos::from_millis(200) + Nanos(u64::from(sectors) * 1_000_000);
                assert!(whole < slowest, "{}: {request:?} takes {whole:?}", drive.name);
                let durable = disk.mechanism.durable(service.done);
                assert!(
                    durable - service.done < slowest && (!request.fua || !request.write || durable == service.done)
                );
                hash = (hash ^ whole.0).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                at += u64::from(sectors);
            }
            hash
        };
        assert_eq!(run(), run(), "{}", drive.name);
    }
}

/// Requests outside the disk are refused and change nothing.
#[test]
fn out_of_range() {
    let mut mechanism = Mechanism::new(drive("hp97560")).unwrap();
    let sectors = mechanism.sectors();
    for request in [read(sectors, 1), read(sectors - 1, 2), read(u64::MAX, 1), read(0, 0), write(sectors - 7, 8)] {
        assert!(mechanism.service(Nanos::ZERO, Nanos::ZERO, request).is_err(), "{request:?}");
    }
    assert!(mechanism.service(Nanos::ZERO, Nanos::ZERO, read(sectors - 1, 1)).is_ok());
    assert_eq!(mechanism.positioning(Nanos::ZERO, Sector(sectors), true), None);
}

/// The head view predicts the service time: positioning plus overhead is when its sector passes.
#[test]
fn positioning_predicts_service() {
    let mut drive = drive("st19101-wa99").clone();
    drive.cache.read_ahead = ReadAhead::None;
    drive.overhead = Overhead::NONE;
    let mut disk = Closed::new(&drive, Nanos::from_micros(300));
    let mut rng = Rng::new(5);
    for _ in 0..1000 {
        let at = rng.below(drive.sectors);
        let (now, sector_time) = (disk.now, 60_000_000_000 / 10_000 / 256);
        let predicted = disk.mechanism.positioning(now, Sector(at), true).unwrap();
        let service = disk.serve(write(at, 1));
        // The data must be in the buffer first, and the bus takes its time for that.
        let took = service.done - now;
        let revolution = Nanos(6_000_000);
        let expected = predicted + Nanos(sector_time);
        let missed = predicted < drive.bus.write_sector;
        assert!(
            took.0.abs_diff(expected.0 + if missed { revolution.0 } else { 0 }) <= 1,
            "{took:?} instead of {expected:?}"
        );
        let (track, len) = disk.mechanism.current_track().unwrap();
        assert!((track.0..track.0 + len).contains(&at) && len == 256);
    }
}

/// A drive with its own queue hides the command overhead of waiting requests.
#[test]
fn tagged_queueing_hides_overhead() {
    let random = |tagged| {
        let mut drive = drive("cheetah9lp").clone();
        drive.bus.tagged_queueing = tagged;
        let mut mechanism = Mechanism::new(&drive).unwrap();
        let (mut rng, mut now) = (Rng::new(9), Nanos::ZERO);
        for _ in 0..5000 {
            let at = rng.below(drive.sectors / 8 - 1) * 8;
            let arrived = now.saturating_sub(Nanos::from_millis(5));
            now = mechanism.service(arrived, now, read(at, 8)).unwrap().done;
        }
        now.as_millis_f64() / 5000.0
    };
    // The seeks and rotations differ in detail, the mean overhead of 0.284 ms shows: to 0.1 ms.
    let saved = random(false) - random(true);
    assert!((saved - 0.284).abs() < 0.1, "{saved} ms");
}

/// Generic drives behave as their data sheet says.
#[test]
fn data_sheets() {
    let drive = DataSheet::new(7200, Nanos::from_micros(8_500), 4_000_000_000_000, 180_000_000).drive().unwrap();
    assert_eq!(drive.sectors, 4_000_000_000_000 / 512);
    let mut disk = Closed::new(&drive, Nanos::ZERO);
    for index in 0..200u64 {
        disk.serve(read(index * 4096, 4096));
    }
    // The media rate less the skews, which are 12 % of a track here.
    let sequential = rate(200 * 4096 * SECTOR_BYTES, disk.now);
    assert!((150.0..180.0).contains(&sequential), "{sequential} MB/s");
    let mut rng = Rng::new(4);
    let start = disk.now;
    for _ in 0..5000 {
        let at = rng.below(drive.sectors / 8) * 8;
        disk.serve(read(at, 8));
    }
    // Seek, half a revolution, overhead, transfer.
    let expected = 8.5 + 30_000.0 / 7200.0 + 0.3 + 8.0 * 8.333 / 2480.0;
    assert_near("random read", (disk.now - start).as_millis_f64() / 5000.0, expected, 0.03);
}

/// Aim: drives of any size that there is can be described by four figures. Method: sizes from 1 GB to 100 TB, with media as fast
/// as such drives have; the first and the last sector are read, and the capacity is that of the sheet.
#[test]
fn data_sheets_of_all_sizes() {
    for (bytes, rate) in [
        (1_000_000_000, 5_000_000),
        (500_000_000_000, 100_000_000),
        (8_000_000_000_000, 200_000_000),
        (14_000_000_000_000, 250_000_000),
        (20_000_000_000_000, 280_000_000),
        (36_000_000_000_000, 300_000_000),
        (100_000_000_000_000, 500_000_000),
    ] {
        let drive = DataSheet::new(7200, Nanos::from_micros(8_500), bytes, rate).drive().unwrap();
        assert_eq!(drive.sectors, bytes / 512, "{bytes}");
        let mut disk = Closed::new(&drive, Nanos::ZERO);
        disk.serve(read(0, 8));
        let start = disk.now;
        disk.serve(read(drive.sectors - 8, 8));
        let took = (disk.now - start).as_millis_f64();
        assert!((8.5..30.0).contains(&took), "{bytes}: {took} ms over all of it");
        assert_eq!(Drive::from_toml(&drive.to_toml()).unwrap(), drive, "{bytes}");
    }
}

/// The three figures of a curve are those from which it was made; a table's are its own.
#[test]
fn seek_figures_of_known_curves() {
    let constant = Drive { seek: Seek::Constant(Nanos::from_millis(5)), cylinders: 4, ..drive("hp97560").clone() };
    let figures = constant.seek_figures().unwrap();
    // Of the 16 pairs of 4 cylinders, 4 are equal.
    let expected =
        SeekFigures { one: Nanos::from_millis(5), average: Nanos::from_micros(3750), full: Nanos::from_millis(5) };
    assert_eq!(figures, expected);
    let sheet = drive("m2694exa").seek_figures().unwrap();
    assert_eq!(sheet.one, Nanos::from_micros(2_500));
    // The formula is of continuous distances.
    assert_near("average", sheet.average.as_millis_f64(), 9.5, 0.01);
    assert_near("full", sheet.full.as_millis_f64(), 9.5 * 1.87, 0.01);
}
