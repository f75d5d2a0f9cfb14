//! The two drives of [wa99], which ran the Dartmouth simulator of the HP 97560 in the kernel over 24 MB of memory: 36
//! cylinders of the HP, or 11 cylinders of the same model with a few parameters changed towards the ST19101. For
//! comparison also the whole ST19101; the whole HP is in `hp.rs`. The table was not at hand, so all figures of it are recalled.

use std::borrow::Cow;

use super::hp::{HP97560, HP97560_CURVE};
use super::zone;
use crate::disk::drive::{AfterPair, Bus, Drive, Evidence, Overhead, Seek, TwoPiece, ms};

const SOURCE: &str =
    "Wang, Anderson and Patterson, Virtual Log Based File Systems, OSDI 1999, Table 1 (recalled, not verifiable here)";

fn always(time: f64) -> Overhead {
    let pair = AfterPair::always(ms(time));
    Overhead { read_hit: pair, read_miss: pair, write_hit: pair, write_miss: pair, ..Overhead::NONE }
}

/// HP 97560 as in [wa99 Table 1], which is recalled: head switch 2.5 ms instead of the 1.6 ms of [rw94], SCSI overhead 2.3 ms instead
/// of 2.2 ms; 36 cylinders.
pub(super) fn hp97560() -> Drive {
    Drive {
        name: Cow::Borrowed("hp97560-wa99"),
        product: Cow::Borrowed("HP 97560, 36 cylinders"),
        source: Cow::Borrowed(SOURCE),
        evidence: Evidence::Recalled,
        cylinders: 36,
        sectors: 36 * 19 * 72,
        zones: vec![zone(0, 35, 72, 8, 18, 0, 0, 0, &[])].into(),
        head_switch: ms(2.5),
        overhead: always(2.3),
        ..HP97560.clone()
    }
}

/// Seagate ST19101 as in [wa99 Table 1]: 16 surfaces of 256 sectors at 10,000 rpm, head switch and shortest seek 0.5
/// ms, SCSI overhead 0.1 ms; 11 cylinders. The table has no other seek than the shortest: the curve is that of the HP,
/// on whose model the paper's is based, scaled to it. It has no skews: these are the smallest that hide the switches
/// (0.5 ms of 6 ms, of 256 sectors). It has no bus: this is Ultra Wide SCSI, 40 MB/s, as on the drive (recalled); the
/// HP's is slower than these platters, so that every write of two sectors would lose a revolution.
pub(super) fn st19101() -> Drive {
    let scale = 0.5 / (HP97560_CURVE.root_base_ms + HP97560_CURVE.root_ms);
    Drive {
        name: Cow::Borrowed("st19101-wa99"),
        product: Cow::Borrowed("Seagate ST19101-like, 11 cylinders"),
        source: Cow::Borrowed(SOURCE),
        evidence: Evidence::Recalled,
        heads: 16,
        cylinders: 11,
        sectors: 11 * 16 * 256,
        rpm: 10_000,
        zones: vec![zone(0, 10, 256, 22, 22, 0, 0, 0, &[])].into(),
        seek: Seek::TwoPiece(TwoPiece {
            root_base_ms: HP97560_CURVE.root_base_ms * scale,
            root_ms: HP97560_CURVE.root_ms * scale,
            ..HP97560_CURVE
        }),
        head_switch: ms(0.5),
        overhead: always(0.1),
        bus: Bus { read_sector: ms(0.0128), write_sector: ms(0.0128), ..HP97560.bus },
        ..HP97560.clone()
    }
}

/// As many cylinders of [`st19101`] as make the 9.1 GB of the product. The seeks over more than a few cylinders, which
/// [wa99] does not need, are those of the product (recalled): 8 ms on average. The longest follows from that as in
/// [`crate::disk::DataSheet`].
pub(super) fn st19101_whole() -> Drive {
    const CYLINDERS: u32 = 4340;
    Drive {
        name: Cow::Borrowed("st19101-whole"),
        product: Cow::Borrowed("Seagate ST19101-like, 9.1 GB"),
        cylinders: CYLINDERS,
        sectors: u64::from(CYLINDERS) * 16 * 256,
        zones: vec![zone(0, CYLINDERS - 1, 256, 22, 22, 0, 0, 0, &[])].into(),
        seek: Seek::ThreePoint { one: ms(0.5), average: ms(8.0), full: ms(15.0) },
        ..st19101()
    }
}
