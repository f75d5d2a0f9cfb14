//! Drives known only from data sheets and from figures in papers.

use crate::disk::datasheet::DataSheet;
use crate::units::{KIB, Nanos, SECTOR_BYTES};

/// Every drive of this file. A new one is a function and a row.
pub(super) const SHEETS: &[fn() -> DataSheet] = &[wren_iv, m2694exa, fireball_lct10];

/// CDC Wren IV (94171), the disk of [ro92]: 3600 rpm, 45 sectors on each of 9 tracks in 1546 cylinders, 17.5 ms,
/// 32 KB of buffer, a bus of 1.3 MB/s [se95 Table 1]. The real drive is zoned; the paper's figures are not.
fn wren_iv() -> DataSheet {
    DataSheet {
        name: "wren4".into(),
        product: "CDC Wren IV 94171".into(),
        source: "Seltzer et al., File System Logging versus Clustering, 1995, Table 1".into(),
        heads: 9,
        sectors_per_track_outer: 45,
        sectors_per_track_inner: 45,
        bus_rate: Some(1_300_000),
        buffer_bytes: 32 * KIB,
        ..DataSheet::new(3600, Nanos::from_micros(17_500), 1546 * 9 * 45 * SECTOR_BYTES, 0)
    }
}

/// Fujitsu M2694EXA, the disk of [se95 §5]: 5400 rpm, 68 to 111 sectors per track, 15 heads, 9.5 ms, 512 KB
/// [se95 Table 5]; 1084 MB, 2.5 ms to the next track, fast SCSI at 10 MB/s (data sheet of the M2694ESA).
fn m2694exa() -> DataSheet {
    DataSheet {
        name: "m2694exa".into(),
        product: "Fujitsu M2694EXA".into(),
        source: "Seltzer et al., File System Logging versus Clustering, 1995, Table 5; data sheet of the M2694ESA"
            .into(),
        heads: 15,
        sectors_per_track_outer: 111,
        sectors_per_track_inner: 68,
        seek_one: Nanos::from_micros(2_500),
        bus_rate: Some(10_000_000),
        buffer_bytes: 512 * KIB,
        ..DataSheet::new(5400, Nanos::from_micros(9_500), 1_084_000_000, 0)
    }
}

/// Quantum Fireball lct10, the disk of [za01]: 5400 rpm, 8.9 ms, 512 KB, 297 Mbit/s, ATA at 66 MB/s, 10.2 GB on two
/// surfaces (figures collected by redhill.net.au).
fn fireball_lct10() -> DataSheet {
    DataSheet {
        name: "fireball-lct10".into(),
        product: "Quantum Fireball lct10".into(),
        source: "redhill.net.au, hard drive history".into(),
        heads: 2,
        bus_rate: Some(66_000_000),
        buffer_bytes: 512 * KIB,
        ..DataSheet::new(5400, Nanos::from_micros(8_900), 10_200_000_000, 297_000_000 / 8)
    }
}
