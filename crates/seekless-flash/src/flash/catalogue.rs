//! Flash drives by name.

use super::drive::{Cells, Interface, Known, Ssd, WriteBuffer, Zns, ZoneCosts};
use crate::units::{KIB, MIB, Nanos};

const SSDS: &[&Ssd] = &[&NVME_A];
const ZNSS: &[&Zns] = &[&ZNS_A];

impl Ssd {
    /// Names of the catalogue.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SSDS.iter().map(|drive| drive.name)
    }

    pub fn named(name: &str) -> Option<&'static Ssd> {
        SSDS.iter().copied().find(|drive| drive.name == name)
    }
}

impl Zns {
    /// Names of the catalogue.
    pub fn names() -> impl Iterator<Item = &'static str> {
        ZNSS.iter().map(|drive| drive.name)
    }

    pub fn named(name: &str) -> Option<&'static Zns> {
        ZNSS.iter().copied().find(|drive| drive.name == name)
    }
}

/// The shape of the drive with zones that was measured on the same machine: its zones hold 1077 times 1 MiB, which is one row of
/// 32 dies with two planes and pages of 16 KiB. Writes alone cannot distinguish shapes of the same program rate.
///
/// All figures but `erase` are those of that drive, see [`ZNS_A`]. `erase`: what data sheets of TLC flash say, 3 to 10 ms; nothing
/// that was measured depends on it.
pub(super) const CELLS: Cells = Cells {
    channels: 8,
    dies: 32,
    planes: 2,
    page_bytes: 16 * KIB as u32,
    pages: 1077,
    read: Nanos(46_335),
    program: Nanos(865_641),
    erase: Nanos::from_millis(5),
    channel_rate: 473_832_747,
    channel_setup: Nanos(11_675),
    correction: Nanos::ZERO,
};

/// A conventional NVMe drive whose writes were measured \[do23\]. Its figures are what
///
/// ```text
/// seekless flash fit nvme-a --round --keep link-rate,link-setup,channel-rate,channel-setup
/// ```
///
/// finds, which begins with round figures and sees the half of the cases that [`FioRun::half`](super::validation::FioRun::half)
/// names. What they follow from:
///
/// * `program`: the bandwidth of large writes, 1.25 GB/s.
/// * `command`: 4 KiB at depths of 2 and 4, where more commands are on the way than the latency alone explains.
/// * `write_latency`: 4 KiB at a depth of 1. `transfer_rate` and `list_latency`: the larger sizes there.
/// * `merge`, `merge_sector`, `merge_after`: writes of 512 and 2048 bytes, 239,000 and 165,000 a second at most.
/// * `journal_bytes`: random writes reach less bandwidth than sequential ones, by the same time for each command, whatever its
///   size.
///
/// Not measured, and therefore assumed: size, spare, queue, the size of the buffer (any of 2 MiB and more gives the same
/// results), its protection, and all that reads need, with the link and the channels: that is from the drive with zones.
static NVME_A: Ssd = Ssd {
    name: "nvme-a",
    product: "conventional NVMe drive of [do23]",
    known: Known::Writes,
    source: "writes fitted to half of the cases of [do23] (docs/guide/flash.md); reads as the drive with zones there; size, \
             spare space, erase time and the buffer's size are assumed",
    bytes: 960_197_124_096,
    spare: 700,
    cells: Cells { program: Nanos(847_028), ..CELLS },
    interface: Interface {
        queue: 1024,
        command: Nanos(3_304),
        read_command: Nanos(2_777),
        append: Nanos::ZERO,
        append_latency: Nanos::ZERO,
        write_latency: Nanos(4_674),
        read_latency: Nanos(3_231),
        list_latency: Nanos(217),
        transfer_rate: 1_585_712_099,
        link_setup: Nanos(543),
        link_rate: 2_926_081_622,
        merge: Nanos(373),
        merge_sector: Nanos(562),
        merge_after: Nanos(150),
        narrow: Nanos::ZERO,
    },
    buffer: WriteBuffer { bytes: 4 * MIB, protected: true },
    journal_bytes: 437,
};

/// A drive with zones \[do23\], which names a WD Ultrastar DC ZN540: 904 zones of 2 GiB, of which 1077 MiB can be written; 14 may be
/// open or active. Its figures are what `seekless flash fit zns-a --round --cases 4` finds, as for [`NVME_A`]. What they follow from:
///
/// * `command`, `write_latency`, `list_latency`: writes to one and to eight zones, 4 to 16 KiB.
/// * `append`, `append_latency`: appends of 4 KiB, 132,000 a second at most, and their latency at a depth of 1.
/// * `merge`, `merge_after`, `narrow`: writes of less than 4 KiB, and of 4 KiB, where the namespace has sectors of 512 bytes:
///   40,000 and 65,000 a second.
/// * `read_command`, `read_latency`, `link_rate`, `link_setup`: sequential reads of one zone.
/// * `read`, `channel_rate`, `channel_setup`: random reads, 72.6 us for 4 KiB and 2.4 us for each KiB more at a depth of 1, and at
///   most 437,000 a second. A `correction` is not in what was measured, beside `read` and `channel_setup`.
/// * `program`: the bandwidth of large writes, 1.206 GB/s.
/// * `costs`: from the changes of zones, see the test `zones_change_as_measured`; all of these were used. That of opening alone was
///   not measured and is that of closing.
static ZNS_A: Zns = Zns {
    name: "zns-a",
    product: "drive with zones of [do23]",
    known: Known::Measured,
    source: "fitted to half of the cases of [do23] (docs/guide/flash.md); the buffer's size is assumed",
    zones: 904,
    zone_bytes: 2 << 30,
    capacity_bytes: 275_712 * 4096,
    open_max: 14,
    active_max: 14,
    cells: CELLS,
    interface: Interface {
        queue: 8192,
        command: Nanos(7_195),
        read_command: Nanos(2_777),
        append: Nanos(270),
        append_latency: Nanos(3_402),
        write_latency: Nanos(2_135),
        read_latency: Nanos(3_231),
        list_latency: Nanos(908),
        transfer_rate: 2_357_176_746,
        link_setup: Nanos(543),
        link_rate: 2_926_081_622,
        merge: Nanos(298),
        merge_sector: Nanos::ZERO,
        merge_after: Nanos(17_197),
        narrow: Nanos(8_023),
    },
    buffer: WriteBuffer { bytes: 4 * MIB, protected: true },
    costs: ZoneCosts {
        open: Nanos(3_500),
        open_by_write: Nanos(3_500),
        close: Nanos(3_500),
        finish_empty: Nanos(6_300),
        finish: Nanos::from_micros(2_570),
        reset_empty: Nanos::from_micros(1_600),
        reset: Nanos::from_micros(1_630),
        reset_unit: Nanos(50),
    },
};
