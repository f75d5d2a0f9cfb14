//! The orders in which a drive's queue can be served; [`super::queue`] has them.

/// In which order waiting requests are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Scheduler {
    /// First come, first served.
    Fcfs,
    /// One-way elevator by address, as in the BSD kernels' `disksort`: upwards to the last waiting request, then
    /// again from the lowest.
    #[default]
    CLook,
    /// The nearest cylinder first; equal ones in the order of arrival.
    Sstf,
    /// The shortest command overhead, seek and rotation first. For each millisecond that it has waited, a request
    /// counts as `age_micros` microseconds nearer than it is, so that none starves (\[wo94\], ASPTF); 0 is pure SPTF.
    Sptf { age_micros: u32 },
}
