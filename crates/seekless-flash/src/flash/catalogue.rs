//! Flash drives by name.

use super::drive::{Cells, Interface, Known, Ssd, WriteBuffer};
use crate::units::{KIB, MIB, Nanos};

const SSDS: &[&Ssd] = &[&NVME_A];

impl Ssd {
    /// Names of the catalogue.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SSDS.iter().map(|drive| drive.name)
    }

    pub fn named(name: &str) -> Option<&'static Ssd> {
        SSDS.iter().copied().find(|drive| drive.name == name)
    }
}

/// The shape of the drive with zones that was measured on the same machine: its zones hold 1077 times 1 MiB, which is one row of
/// 32 dies with two planes and pages of 16 KiB. Writes alone cannot distinguish shapes of the same program rate.
///
/// * `program`: fitted to the bandwidth of large writes, 1.25 GB/s: 1 MiB in 839 us.
/// * `read`, `channel_rate`: from random reads of the drive with zones: 72.6 us for 4 KiB and 2.4 us for each KiB more, at a
///   depth of 1; at most 437,000 a second, as 32 dies give when requests meet at random.
/// * `erase`: what data sheets of TLC flash say, 3 to 10 ms; nothing that was measured depends on it.
pub(super) const CELLS: Cells = Cells {
    channels: 8,
    dies: 32,
    planes: 2,
    page_bytes: 16 * KIB as u32,
    pages: 1077,
    read: Nanos::from_micros(57),
    program: Nanos::from_micros(839),
    erase: Nanos::from_millis(5),
    channel_rate: 420_000_000,
};

/// A conventional NVMe drive whose writes were measured \[do23\]. Fitted to the half of the cases that
/// [`Case::half`](super::validation::Case::half) names:
///
/// * `command`: 4 KiB at depths of 2 and 4, where more commands are on the way than the latency alone explains.
/// * `write_latency`: 4 KiB at a depth of 1. `transfer_rate` and `list_latency`: the larger sizes there.
/// * `merge`, `merge_sector`: writes of 512 and 2048 bytes, 239,000 and 165,000 a second at most.
/// * `journal_bytes`: random writes reach less bandwidth than sequential ones, by the time of 630 bytes for each command,
///   whatever its size.
///
/// Not measured, and therefore assumed: size, spare, queue, the size of the buffer (any of 2 MiB and more gives the same
/// results), its protection, and all that reads need (that is from the drive with zones).
static NVME_A: Ssd = Ssd {
    name: "nvme-a",
    product: "conventional NVMe drive of [do23]",
    known: Known::Writes,
    source: "writes fitted to half of the cases of [do23] (docs/guide/flash.md); reads as the drive with zones there; size, \
             spare space, erase time and the buffer's size are assumed",
    bytes: 960_197_124_096,
    spare: 700,
    cells: CELLS,
    interface: Interface {
        queue: 1024,
        command: Nanos(3000),
        write_latency: Nanos(5600),
        read_latency: Nanos(1500),
        list_latency: Nanos(3600),
        transfer_rate: 1_600_000_000,
        link_rate: 3_280_000_000,
        merge: Nanos(580),
        merge_sector: Nanos(610),
    },
    buffer: WriteBuffer { bytes: 4 * MIB, protected: true },
    journal_bytes: 630,
};
