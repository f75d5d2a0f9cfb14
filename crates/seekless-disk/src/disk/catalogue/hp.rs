//! Hewlett-Packard.

use std::borrow::Cow;

use super::{DISKSIM, table, zone};
use crate::disk::drive::{
    AfterPair, Bus, Cache, Drive, Evidence, Overhead, ReadAhead, Seek, Sparing, SurfaceOrder, TwoPiece, WriteStart,
    Zone, ms,
};
use crate::units::Nanos;

/// C2247A. `hp_c2247a_validate.model`, `hp_c2247a.diskspecs`, bus of `hp_c2247a.parv`.
///
/// DiskSim has no parameter for how much of a write must have arrived before it starts: its code has these numbers for
/// drives with an "extra write disconnect", of which this is the only one.
pub(super) static C2247A: Drive = Drive {
    name: Cow::Borrowed("hp-c2247a"),
    product: Cow::Borrowed("HP C2247A"),
    source: Cow::Borrowed(DISKSIM),
    evidence: Evidence::Validated,
    heads: 13,
    cylinders: 2051,
    sectors: 2_054_864,
    rpm: 5400,
    surfaces: SurfaceOrder::Forward,
    sparing: Sparing::Tracks,
    zones: Cow::Borrowed(&C2247A_ZONES),
    seek: Seek::TwoPiece(TwoPiece {
        root_base_ms: 3.81,
        root_ms: 0.33,
        line_from: 300,
        line_base_ms: 7.75,
        line_ms: 0.0059,
        short: Cow::Borrowed(&C2247A_SHORT_SEEKS),
    }),
    write_settle_ns: 650_000,
    head_switch: ms(0.89),
    scheduler: None,
    overhead: Overhead {
        read_hit: AfterPair::ms(0.95343, 0.95343),
        read_miss: AfterPair::ms(0.55821, 0.55821),
        write_hit: AfterPair::ms(0.82391, 0.82391),
        write_miss: AfterPair::ms(0.82391, 0.82391),
        read_completion: ms(0.05665),
        write_completion: ms(0.05045),
        data_preparation: ms(0.02519),
        reselect: ms(0.16249),
        write_disconnect: ms(0.16565),
        write_seek_min: ms(0.6),
    },
    bus: Bus {
        read_sector: ms(0.1701),
        write_sector: ms(0.18686),
        disconnect_until_percent: Some(75),
        tagged_queueing: false,
    },
    cache: Cache {
        segments: 2,
        segment_sectors: 256,
        read_ahead: ReadAhead::Sectors { sectors: 128 },
        read_ahead_after_hit: true,
        stop_in_sector: true,
        write_start: Some(WriteStart { sectors: 10, long_sectors: 15, long_from: 45 }),
        write_segment_apart: true,
        ..Cache::PLAIN
    },
};

#[rustfmt::skip]
const C2247A_ZONES: [Zone; 8] = [
    zone(    0,   558,   96,  14,  32,   0,   1632,  325, &[468, 526, 1204, 1861, 2447, 2680, 3098, 3683, 4880, 4919, 6952, 7095]),
    zone(  559,   760,   92,  13,  30,  14,      0,  130, &[231, 868, 1125, 1458, 1479, 1492]),
    zone(  761,   901,   88,  13,  29,  73,      0,   65, &[585, 996, 1401, 1810]),
    zone(  902,  1051,   84,  12,  28,  80,      0,   78, &[582, 595, 699]),
    zone( 1052,  1193,   80,  12,  27,  52,      0,   52, &[569, 1098, 1518]),
    zone( 1194,  1519,   72,  11,  24,   0,      0,  104, &[693, 1489, 3102, 3115]),
    zone( 1520,  1793,   64,  10,  22,  32,      0,   78, &[1980, 1993, 3505]),
    zone( 1794,  2050,   56,   9,  19,  30,      0,   65, &[1512, 2506, 3320]),
];

const C2247A_SHORT_SEEKS: [Nanos; 10] =
    [ms(2.89), ms(3.68), ms(3.81), ms(3.98), ms(4.27), ms(4.65), ms(4.52), ms(4.65), ms(4.82), ms(4.99)];

/// C2490A. `hp_c2490a_validate.model`, `hp_c2490a.diskspecs`, bus of `hp_c2490a.parv`. The file has 2629 cylinders
/// but a zone that ends with cylinder number 2629.
pub(super) static C2490A: Drive = Drive {
    name: Cow::Borrowed("hp-c2490a"),
    product: Cow::Borrowed("HP C2490A"),
    source: Cow::Borrowed(DISKSIM),
    evidence: Evidence::Extracted,
    heads: 18,
    cylinders: 2630,
    sectors: 4_165_272,
    rpm: 6398,
    surfaces: SurfaceOrder::Forward,
    sparing: Sparing::Tracks,
    zones: Cow::Borrowed(&C2490A_ZONES),
    seek: Seek::Table(Cow::Borrowed(&C2490A_SEEK)),
    write_settle_ns: -642_000,
    head_switch: ms(0.992),
    scheduler: None,
    overhead: Overhead {
        read_hit: AfterPair::ms(1.419, 0.0),
        read_miss: AfterPair::ms(3.616, 2.275),
        write_hit: AfterPair::ms(3.283, 0.82391),
        write_miss: AfterPair::ms(3.283, 0.82391),
        read_completion: ms(0.081),
        ..Overhead::NONE
    },
    bus: Bus {
        read_sector: ms(0.14841),
        write_sector: ms(0.14841),
        disconnect_until_percent: Some(0),
        tagged_queueing: false,
    },
    cache: Cache {
        segments: 1,
        segment_sectors: 256,
        read_ahead: ReadAhead::Sectors { sectors: 128 },
        read_ahead_after_hit: true,
        stop_in_sector: true,
        ..Cache::PLAIN
    },
};

#[rustfmt::skip]
const C2490A_ZONES: [Zone; 11] = [
    zone(    0,   186,  108,  18,  36,   0,   2376,  198, &[1626, 1850]),
    zone(  187,   501,  104,  17,  35,  60,      0,   90, &[1644, 3579]),
    zone(  502,   785,  100,  16,  33,  10,      0,   72, &[3541]),
    zone(  786,  1097,   96,  16,  32,   0,      0,   72, &[1580, 3447, 4756, 5614]),
    zone( 1098,  1356,   92,  15,  31,  32,      0,   54, &[3361]),
    zone( 1357,  1609,   88,  15,  30,  73,      0,   54, &[3193]),
    zone( 1610,  1850,   84,  14,  28,  28,      0,   90, &[1354, 1462, 1686, 4147]),
    zone( 1851,  2070,   80,  13,  27,   8,      0,   36, &[1684, 1862]),
    zone( 2071,  2277,   76,  13,  26,  57,      0,   54, &[]),
    zone( 2278,  2497,   72,  12,  25,  22,      0,   36, &[1547, 2329, 2783]),
    zone( 2498,  2629,   68,  12,  23,  62,      0,   72, &[1071, 1380, 2187]),
];

#[rustfmt::skip]
const C2490A_SEEK: [(u32, Nanos); 64] = table([
    (1, 1.264422), (2, 1.469684), (3, 1.643377), (4, 1.833935), (5, 2.636023), (6, 2.833675), (7, 2.962086),
    (8, 2.967054), (9, 3.001742), (10, 3.068618), (12, 3.130127), (14, 3.185683), (16, 3.294035), (18, 3.380656),
    (20, 3.479389), (25, 3.575284), (30, 3.68679), (35, 3.891154), (40, 3.932848), (45, 4.023544), (50, 4.11411),
    (60, 4.278517), (70, 4.377506), (80, 4.532303), (90, 4.689112), (100, 4.77538), (125, 5.071355),
    (150, 5.372516), (175, 5.699116), (200, 6.009874), (225, 6.232143), (250, 6.387933), (275, 6.527165),
    (300, 6.670516), (325, 6.800063), (350, 6.933237), (375, 7.051069), (400, 7.212067), (425, 7.325844),
    (450, 7.499706), (475, 7.636876), (500, 7.696176), (600, 8.127483), (700, 8.540879), (800, 8.920783),
    (900, 9.409034), (1000, 9.868807), (1100, 10.352732), (1200, 10.820077), (1300, 11.343922), (1400, 11.793578),
    (1500, 12.261259), (1600, 12.676072), (1700, 13.176173), (1800, 13.61533), (1900, 14.136851), (2000, 14.581241),
    (2100, 14.995291), (2200, 15.469941), (2300, 15.957957), (2400, 16.364918), (2500, 16.822909),
    (2600, 17.267944), (2625, 17.37756),
]);

/// C3323A. `hp_c3323a_validate.model`, `hp_c3323a_validate.diskspecs`, bus of `hp_c3323a.parv`; the capacity is
/// that of the original file, which its zones hold exactly.
pub(super) static C3323A: Drive = Drive {
    name: Cow::Borrowed("hp-c3323a"),
    product: Cow::Borrowed("HP C3323A"),
    source: Cow::Borrowed(DISKSIM),
    evidence: Evidence::Extracted,
    heads: 7,
    cylinders: 2982,
    sectors: 2_056_008,
    rpm: 5396,
    surfaces: SurfaceOrder::Forward,
    sparing: Sparing::Tracks,
    zones: Cow::Borrowed(&C3323A_ZONES),
    seek: Seek::Table(Cow::Borrowed(&C3323A_SEEK)),
    write_settle_ns: 70_000,
    head_switch: ms(0.65),
    scheduler: None,
    overhead: Overhead {
        read_hit: AfterPair::ms(0.348, 1.387),
        read_miss: AfterPair::ms(2.502, 2.502),
        write_hit: AfterPair::ms(3.29, 2.92),
        write_miss: AfterPair::ms(3.29, 2.92),
        read_completion: ms(0.241),
        ..Overhead::NONE
    },
    bus: Bus {
        read_sector: ms(0.1455),
        write_sector: ms(0.1455),
        disconnect_until_percent: Some(100),
        tagged_queueing: false,
    },
    cache: Cache {
        segments: 2,
        segment_sectors: 512,
        read_ahead: ReadAhead::Sectors { sectors: 256 },
        read_ahead_after_hit: true,
        stop_in_sector: true,
        write_segment_apart: true,
        ..Cache::PLAIN
    },
};

#[rustfmt::skip]
const C3323A_ZONES: [Zone; 8] = [
    zone(    0,   993,  120,  17,  34,   0,   1320,  224, &[]),
    zone(  994,  1134,  116,  16,  33,  48,      0,   35, &[]),
    zone( 1135,  1310,  112,  16,  32,  23,      0,   28, &[]),
    zone( 1311,  1625,  104,  15,  30,  47,      0,   49, &[]),
    zone( 1626,  1966,   96,  14,  27,  48,      0,   49, &[]),
    zone( 1967,  2255,   88,  13,  25,  72,      0,   35, &[]),
    zone( 2256,  2608,   80,  12,  23,  48,      0,   35, &[]),
    zone( 2609,  2981,   72,  11,  21,  64,      0,   35, &[]),
];

#[rustfmt::skip]
const C3323A_SEEK: [(u32, Nanos); 67] = table([
    (1, 1.178043), (2, 1.612114), (3, 1.79998), (4, 1.973653), (5, 1.738735), (6, 1.920348), (7, 1.841717),
    (8, 2.402852), (9, 2.680675), (10, 2.758466), (12, 2.613908), (14, 2.730827), (16, 2.827732), (18, 2.909984),
    (20, 3.007988), (25, 3.026374), (30, 3.212906), (35, 3.399405), (40, 3.491967), (45, 3.522344), (50, 3.676197),
    (60, 3.854444), (70, 4.038595), (80, 4.147715), (90, 4.258138), (100, 4.392624), (125, 4.68917),
    (150, 4.974255), (175, 5.22119), (200, 5.476523), (225, 5.680439), (250, 5.896359), (275, 6.107165),
    (300, 6.276703), (325, 6.439122), (350, 6.632627), (375, 6.757571), (400, 6.949064), (425, 7.08648),
    (450, 7.222602), (475, 7.37409), (500, 7.532715), (600, 8.189839), (700, 8.641234), (800, 9.080836),
    (900, 9.51507), (1000, 9.951674), (1100, 10.372177), (1200, 10.764751), (1300, 11.17442), (1400, 11.578927),
    (1500, 12.029606), (1600, 12.46366), (1700, 12.890826), (1800, 13.293945), (1900, 13.686733), (2000, 14.104737),
    (2100, 14.549059), (2200, 14.907508), (2300, 15.327747), (2400, 15.771487), (2500, 16.194195),
    (2600, 16.586342), (2700, 16.991021), (2800, 17.410328), (2900, 17.81224), (2976, 18.116135),
]);

/// HP 97560, as [rw94 Table 1] describes it: one zone, sparing by track without a list of spares, a buffer of
/// 128 KB of which read-ahead may fill 64 KB. SCSI-II moves 10 MB/s. [rw94] models immediate reporting of writes
/// as an option of the drive; it is off here.
pub(super) static HP97560: Drive = Drive {
    name: Cow::Borrowed("hp97560"),
    product: Cow::Borrowed("HP 97560"),
    source: Cow::Borrowed("Ruemmler and Wilkes, An Introduction to Disk Drive Modeling, 1994, Table 1"),
    evidence: Evidence::Extracted,
    heads: 19,
    cylinders: 1962,
    sectors: 2_684_016,
    rpm: 4002,
    surfaces: SurfaceOrder::Forward,
    sparing: Sparing::None,
    zones: Cow::Borrowed(&[zone(0, 1961, 72, 8, 18, 0, 0, 0, &[])]),
    seek: Seek::TwoPiece(HP97560_CURVE),
    write_settle_ns: 0,
    head_switch: ms(1.6),
    scheduler: None,
    overhead: Overhead {
        read_hit: AfterPair::ms(2.2, 2.2),
        read_miss: AfterPair::ms(2.2, 2.2),
        write_hit: AfterPair::ms(2.2, 2.2),
        write_miss: AfterPair::ms(2.2, 2.2),
        ..Overhead::NONE
    },
    bus: Bus {
        read_sector: ms(0.0512),
        write_sector: ms(0.0512),
        disconnect_until_percent: Some(0),
        tagged_queueing: false,
    },
    cache: Cache {
        segments: 1,
        segment_sectors: 256,
        read_ahead: ReadAhead::Sectors { sectors: 128 },
        read_ahead_after_hit: true,
        stop_in_sector: true,
        ..Cache::PLAIN
    },
};

/// The curve of the HP 97560 [rw94 Table 1].
pub(super) const HP97560_CURVE: TwoPiece = TwoPiece {
    root_base_ms: 3.24,
    root_ms: 0.4,
    line_from: 384,
    line_base_ms: 8.0,
    line_ms: 0.008,
    short: Cow::Borrowed(&[]),
};
