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

    /// Transactions a second on LFS when it has to clean as much as it writes.
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

    /// The arithmetic gives the paper's results: 44, 28.6 and, for what the paper rounds to 30, 31.6.
    #[test]
    fn gives_the_published_rates() {
        let near = |found: f64, published: f64, share: f64| {
            assert!((found / published - 1.0).abs() < share, "{found} where {published} is published");
        };
        near(tpcb::lfs_without_cleaning(), 44.0, 0.01);
        near(tpcb::ffs(), 28.6, 0.01);
        near(tpcb::lfs(), 30.0, 0.07);
    }
}
