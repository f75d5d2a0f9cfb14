//! Digital Equipment.

use std::borrow::Cow;

use super::{DISKSIM, table, zone};
use crate::disk::drive::{
    AfterPair, Bus, Cache, Drive, Evidence, Overhead, ReadAhead, Seek, Sparing, SurfaceOrder, Zone, ms,
};
use crate::units::Nanos;

/// RZ26, which by its geometry is the mechanism of the DSP3105 of [se95]: 4.4BSD's disktab gives the RZ26 57
/// sectors, 14 heads and 2570 cylinders, and [se95 Table 1] gives the DSP3105 57, 14 and 2568, at 5400 rpm.
///
/// `dec_rz26_validate.model`, `dec_rz26.diskspecs`, bus of `dec_rz26.parv`. A track has 58 sectors, one of them a
/// spare; 29 cylinders in front are reserved. The file sets DiskSim's flag for reading on arrival ("Immediate
/// buffer read"), which DiskSim 4.0 does not act on, and the other parameters fit that: with it, the error per
/// request falls from 3.59 to 3.47 ms, but the demerit rises from 0.34 to 0.44 ms. So it is off.
pub(super) static RZ26: Drive = Drive {
    name: Cow::Borrowed("dec-rz26"),
    product: Cow::Borrowed("DEC RZ26"),
    source: Cow::Borrowed(DISKSIM),
    evidence: Evidence::Validated,
    heads: 14,
    cylinders: 2599,
    sectors: 2_050_860,
    rpm: 5360,
    surfaces: SurfaceOrder::Forward,
    sparing: Sparing::SectorsPerTrack,
    zones: Cow::Borrowed(&RZ26_ZONES),
    seek: Seek::Table(Cow::Borrowed(&RZ26_SEEK)),
    write_settle_ns: -483_000,
    head_switch: ms(0.865),
    scheduler: None,
    overhead: Overhead {
        read_hit: AfterPair::ms(1.229, 1.143),
        read_miss: AfterPair::ms(1.489, 1.489),
        write_hit: AfterPair::ms(2.167, 1.942),
        write_miss: AfterPair::ms(2.167, 1.942),
        write_completion: ms(0.113),
        ..Overhead::NONE
    },
    bus: Bus {
        read_sector: ms(0.07069),
        write_sector: ms(0.07069),
        disconnect_until_percent: None,
        tagged_queueing: false,
    },
    cache: Cache {
        segments: 10,
        segment_sectors: 57,
        read_ahead: ReadAhead::TrackEnd { sectors: 57 },
        read_ahead_after_hit: true,
        stop_in_sector: true,
        write_segment_apart: true,
        ..Cache::PLAIN
    },
};

const RZ26_ZONES: [Zone; 1] = [zone(0, 2598, 58, 7, 25, 0, 23_142, 1, &[])];

#[rustfmt::skip]
const RZ26_SEEK: [(u32, Nanos); 64] = table([
    (1, 1.014397), (2, 1.902233), (3, 2.284186), (4, 2.55131), (5, 2.656589), (6, 2.792434), (7, 2.795289),
    (8, 2.88344), (9, 2.898454), (10, 2.883264), (12, 3.059284), (14, 3.104144), (16, 3.168781), (18, 3.182312),
    (20, 3.356966), (25, 3.435946), (30, 3.760655), (35, 3.802014), (40, 4.017083), (45, 4.191732), (50, 4.270231),
    (60, 4.659682), (70, 4.880789), (80, 5.087342), (90, 5.227582), (100, 5.490036), (125, 6.051907),
    (150, 6.37949), (175, 6.817439), (200, 6.904685), (225, 7.140182), (250, 7.280423), (275, 7.467306),
    (300, 7.698261), (325, 7.813913), (350, 7.937919), (375, 8.079734), (400, 8.235509), (425, 8.429694),
    (450, 8.718009), (475, 8.919579), (500, 8.95509), (600, 9.471913), (700, 10.02048), (800, 10.578962),
    (900, 11.062421), (1000, 11.662869), (1100, 12.091804), (1200, 12.633691), (1300, 13.081321), (1400, 13.458244),
    (1500, 13.879749), (1600, 14.338197), (1700, 14.8412), (1800, 15.314939), (1900, 15.819995), (2000, 16.187663),
    (2100, 16.575325), (2200, 16.934447), (2300, 17.585034), (2400, 17.965906), (2500, 18.676422),
    (2569, 19.098796), (2599, 19.098796),
]);
