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
        let (db, disk) = (256.0, 512.0);
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
            ("s to read all", disk / 2.3, 223.0, 0.5),
            ("s to write half", db / 1.7, 151.0, 0.5),
            ("MB/s, two thirds of the disk's", 2.5 * 2.0 / 3.0, 1.7, 0.05),
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
}
