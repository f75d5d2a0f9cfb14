//! Calculations that papers make by hand for their benchmarks, for comparison with simulations.

use seekless::units::Nanos;

/// TPC-B as calculated in [se95 §4]: each transaction waits for one page to be read, and dirty pages go out in large
/// writes on LFS, one by one on FFS.
pub mod tpcb {
    use super::Nanos;

    /// Time in which the paper's disk reads a random page of 4 KB, including the processor time.
    pub const LFS_READ: Nanos = Nanos::from_micros(18_400);

    /// Time in which LFS writes a segment for 115 transactions: 115 pages, 58 indirect blocks, 700 KB in all.
    pub const LFS_SEGMENT_WRITE: Nanos = Nanos::from_millis(500);
    pub const TRANSACTIONS_PER_SEGMENT: u64 = 115;

    /// Time in which the disk reads or writes one page at random.
    pub const FFS_ACCESS: Nanos = Nanos::from_micros(17_500);

    /// The cleaner reads two segments of 1 MB and writes one, which makes room for 168 transactions.
    pub const SEGMENT_READ: Nanos = Nanos::from_millis(450);
    pub const SEGMENT_WRITE: Nanos = Nanos::from_millis(603);
    pub const TRANSACTIONS_PER_CLEANING: u64 = 168;

    /// Transactions a second on LFS while nothing is cleaned.
    pub fn lfs_without_cleaning() -> f64 {
        let time = LFS_READ.as_secs_f64() * TRANSACTIONS_PER_SEGMENT as f64 + LFS_SEGMENT_WRITE.as_secs_f64();
        TRANSACTIONS_PER_SEGMENT as f64 / time
    }

    /// Transactions a second on LFS when it has to clean as much as it writes, on a disk that is half full. The paper
    /// takes the 41 that it measured without the cleaner, and has 30.0; this takes the 44 that it calculated.
    pub fn lfs() -> f64 {
        let cleaning = 2.0 * SEGMENT_READ.as_secs_f64() + SEGMENT_WRITE.as_secs_f64();
        let transactions = TRANSACTIONS_PER_CLEANING as f64;
        transactions / (transactions / lfs_without_cleaning() + cleaning)
    }

    /// Transactions a second on FFS: a page is read, and another one written.
    pub fn ffs() -> f64 {
        1.0 / (2.0 * FFS_ACCESS.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use seekless::layer::codecs::{self, Codec, Deflate, Position, Uuencode};

    use super::tpcb;

    /// The arithmetic gives the paper's results: 44, 28.6 and, where the paper begins with a measured rate, 31.6 for 30.
    #[test]
    fn gives_the_published_rates() {
        let near = |found: f64, published: f64, share: f64| {
            assert!((found / published - 1.0).abs() < share, "{found} where {published} is published");
        };
        near(tpcb::lfs_without_cleaning(), 44.0, 0.01);
        near(tpcb::ffs(), 28.6, 0.01);
        near(tpcb::lfs(), 30.0, 0.07);
    }

    /// Aim: the steps of the calculation are right as printed, which the list of the paper's statements says. Method: each of them from
    /// the numbers before it.
    #[test]
    fn steps_are_as_printed() {
        let (seek, rotation, transfer, copies) = (9.5, 5.5, 1.6, 1.8);
        let read = seek + rotation + transfer + copies;
        let megabyte_read = seek + rotation + 1000.0 / 2.3;
        let megabyte_written = seek + rotation + 1000.0 / 1.7;
        let (db, disk, segment) = (256.0, 512.0, 1.0);
        let (cluster, revolution) = (64.0 / 1024.0 / 2.5 * 1000.0, 60_000.0 / 5400.0);
        let transactions = db * 168.0;
        let cleaning = 0.450 * 2.0 + 0.603;
        for (what, found, printed, half_a_digit) in [
            ("ms for a page", read, 18.4, 0.05),
            ("pages a second", 1000.0 / read, 54.0, 0.5),
            ("KB in a segment", (115.0 + 58.0 + 2.0) * 4.0, 700.0, 5.0),
            ("s to write it", 0.7 / 1.3, 0.5, 0.05),
            ("ms to transfer a page", 4.096 / 2.5, 1.6, 0.05),
            ("ms to transfer a page, in MiB", 1000.0 * 4.0 / (2.5 * 1024.0), 1.6, 0.05),
            ("ms for a page on FFS, copied once", seek + rotation + transfer + copies / 2.0, 17.5, 0.05),
            ("transactions in a segment", 115.0 * 1024.0 / 700.0, 168.0, 0.5),
            ("transactions until the disk is full", transactions, 43_000.0, 500.0),
            ("s for these, which are rounded up", transactions / tpcb::lfs_without_cleaning(), 1000.0, 50.0),
            ("segments to read", disk / segment, 512.0, 0.5),
            ("segments to write", db / segment, 256.0, 0.5),
            ("s to read all", disk / 2.3, 223.0, 0.5),
            ("s to write half", db / 1.7, 151.0, 0.5),
            ("MB/s, two thirds of the disk's", 2.5 * 2.0 / 3.0, 1.7, 0.05),
            ("share of the bandwidth, rotations missed", cluster / (cluster + revolution), 2.0 / 3.0, 0.0667),
            ("s to clean, of the rounded parts", 223.0 + 151.0, 374.0, 0.5),
            ("minutes to clean", 374.0 / 60.0, 6.0, 0.5),
            ("transactions a second at best", 43_000.0 / (1000.0 + 374.0), 31.3, 0.05),
            ("ms to transfer a segment to the host", 1000.0 / 2.3, 435.0, 0.5),
            ("ms to transfer one to the disk", 1000.0 / 1.7, 588.0, 0.5),
            ("ms to read a segment", megabyte_read, 450.0, 0.5),
            ("ms to write one", megabyte_written, 603.0, 0.5),
            ("s to clean one", cleaning, 1.5, 0.05),
            ("s for 168 transactions", 168.0 / 41.0, 4.1, 0.05),
            ("transactions a second with cleaning", 168.0 / (4.1 + cleaning), 30.0, 0.05),
            ("s between segments", 115.0 / 41.0, 3.0, 0.5),
        ] {
            let error: f64 = found - printed;
            assert!(error.abs() <= half_a_digit, "{what}: {found} where {printed} is printed");
        }
    }

    /// Aim: the steps that do not follow from what the paper prints differ as the list of its statements says. Method: each of them from
    /// the numbers before it.
    #[test]
    fn some_steps_are_not_as_printed() {
        let half_a_revolution = 60_000.0 / 5400.0 / 2.0;
        let (indirect, pages) = (57.0_f64, 115);
        let dirtied = indirect * (1.0 - (1.0 - 1.0 / indirect).powi(pages));
        for (what, found, listed, printed) in [
            ("ms for half a revolution", half_a_revolution, 5.56, 5.5),
            ("accesses a second", 1000.0 / (9.5 + half_a_revolution), 66.4, 67.0),
            ("indirect blocks, and the one that leads to them", dirtied + 1.0, 50.6, 58.0),
            ("revolutions in a gap of two blocks", 2.0 * 16.0 / 57.0, 0.56, 2.0 / 3.0),
        ] {
            let error: f64 = found - listed;
            assert!(error.abs() < listed * 0.005, "{what}: {found} where {listed} is listed");
            assert!((found / printed - 1.0).abs() > 0.005, "{what}: {found} is the {printed} that is printed");
        }
        let blocks = (237e6_f64 / (1024.0 * 4096.0)).ceil();
        assert_eq!(blocks, indirect, "blocks of 1024 pointers to pages of 4 KB");
    }

    /// Aim: what [za01 §7.3.2] and [za01 §7.6] say of cached pages adds up. Method: a page is cached decoded and encoded, by our codecs; the
    /// machine of the paper has 128 MB, and its files double from 1 MB on.
    #[test]
    fn cached_pages_are_as_published() {
        const PAGE: usize = 4096;
        let text: Vec<u8> = (0..PAGE as u32).flat_map(|number| number.to_string().into_bytes()).take(PAGE).collect();
        let cached = |codec: &dyn Codec| {
            let encoded = codec.encode(&text, &Position::NONE).map_or(PAGE, |encoded| encoded.len());
            1.0 + encoded as f64 / PAGE as f64
        };
        assert_eq!(cached(&codecs::Copy), 2.0, "doubled");
        let uuencode = cached(&Uuencode);
        assert!((uuencode - 2.33).abs() < 0.005, "{uuencode} where 2.33 is printed");
        let gzip = cached(&Deflate { level: 9 });
        assert!((1.45..1.55).contains(&gzip), "{gzip} where fewer than 2 are printed");
        let sizes = (0..8).map(|doublings| f64::from(1 << doublings));
        let first_that_fills = sizes.into_iter().find(|megabytes| megabytes * cached(&codecs::Copy) >= 128.0);
        assert_eq!(first_that_fills, Some(64.0), "MB of the smallest file that fills the memory");
    }

    /// The drive of `experiments/physics-*`: milliseconds of a revolution and a sector, and cylinders.
    const REVOLUTION: f64 = 10.0;
    const SECTOR: f64 = 0.1;
    const CYLINDERS: u32 = 1000;

    /// Mean wait for a sector at random after a seek that began at the end of another sector: half a revolution, less half a sector
    /// for what the end of the seek has left of the one that passes.
    fn mean_wait(seek: f64) -> f64 {
        let begun = (seek / SECTOR).fract();
        let left = if (1e-9..1.0 - 1e-9).contains(&begun) { 1.0 - begun } else { 0.0 };
        SECTOR * (49.5 + left)
    }

    /// Mean time for a sector at random within the first `cylinders`, where a seek over `d` takes 1 + 0.3 √d ms.
    fn mean_access(cylinders: u32) -> f64 {
        let count = f64::from(cylinders);
        let of_distance = |distance: u32| {
            let d = f64::from(distance);
            let (share, seek) = match distance {
                0 => (1.0 / count, 0.0),
                _ => (2.0 * (count - d) / (count * count), 1.0 + 0.3 * d.sqrt()),
            };
            share * (seek + mean_wait(seek) + SECTOR)
        };
        (0..cylinders).map(of_distance).sum()
    }

    /// Mean and variance of the time for a sector at random where every seek takes 5.05 ms, but for one in a thousand that has none.
    fn constant_seek() -> (f64, f64) {
        let (seek, none) = (5.05, 1.0 / f64::from(CYLINDERS));
        let mean = seek * (1.0 - none) + REVOLUTION / 2.0 + SECTOR;
        (mean, REVOLUTION * REVOLUTION / 12.0 + seek * seek * none * (1.0 - none))
    }

    /// Aim: the open marks of the experiments in physics are the closed forms. Method: these are calculated again, and compared with the
    /// files.
    #[test]
    fn closed_forms_are_as_published() {
        let value = |text: &str, row: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(row)).unwrap_or_else(|| panic!("no row {row}"));
            line.split(',').next().and_then(|value| value.parse().ok()).expect("a number")
        };
        let near = |found: f64, published: f64| {
            assert!((found / published - 1.0).abs() < 2e-4, "{found} where {published} is published");
        };
        let access = include_str!("../../../experiments/physics-access/published.csv");
        for cylinders in [1, 10, 100, CYLINDERS] {
            near(mean_access(cylinders), value(access, &format!("drive,{},response_mean_ms,", cylinders * 100)));
        }
        let (mean, variance) = constant_seek();
        let queue = include_str!("../../../experiments/physics-queue/published.csv");
        for rate in [20, 40, 60, 80] {
            // Pollaczek and Khinchine.
            let busy = f64::from(rate) / 1000.0 * mean;
            let waits = f64::from(rate) / 1000.0 * (variance + mean * mean) / (2.0 * (1.0 - busy));
            near(mean + waits, value(queue, &format!("drive,{rate},response_mean_ms,")));
            near(busy, value(queue, &format!("drive,{rate},disk_busy,")));
        }
        let raid5 = include_str!("../../../experiments/physics-raid5/published.csv");
        near(1000.0 / mean, value(raid5, "striped,1,requests_per_s,"));
        near(1000.0 / (5.05 + REVOLUTION / 2.0 + SECTOR + REVOLUTION), value(raid5, "RAID-5,1,requests_per_s,"));
        near(5.0 * 1000.0 / mean, value(raid5, "striped,512,requests_per_s,"));
        near(5.0 * 1000.0 / (4.0 * mean), value(raid5, "RAID-5,512,requests_per_s,"));
    }
}
