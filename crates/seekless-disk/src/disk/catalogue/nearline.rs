//! A modern nearline drive.

use std::borrow::Cow;

use super::{table, zone};
use crate::disk::drive::{
    AfterPair, Bus, Cache, Drive, Evidence, Overhead, ReadAhead, Seek, Sparing, SurfaceOrder, WriteBehind, Zone, ms,
};
use crate::units::Nanos;

/// A 4 TB drive of Western Digital, 7200 rpm: `G4_LBA_64bit_4T.model`, `.layout`, `.seeks` and `.diskspecs` of the
/// vendor's own fork of DiskSim.
///
/// The capacity is what that layout holds. Its zones of equal density are joined. The seek table is thinned from 1792
/// to a few dozen points, which stays within 0.2 ms of the original from 400 cylinders on; below, the original is noise
/// between 1.4 and 2.1 ms. A seek over one cylinder takes 1.8 ms there, more than the skew of 0.1417 revolutions (1.18
/// ms) hides, so that every track of a sequential read would cost a revolution; here it takes what the skew hides. The
/// bus is SAS at 6 Gbit/s (600 MB/s), because the file's time per sector is negative.
pub(super) static NEARLINE_4TB: Drive = Drive {
    name: Cow::Borrowed("nearline-4tb"),
    product: Cow::Borrowed("Western Digital 4 TB nearline"),
    source: Cow::Borrowed("Western Digital's fork of DiskSim, model of a 4 TB drive"),
    evidence: Evidence::Extracted,
    heads: 10,
    cylinders: 310_194,
    sectors: 7_542_225_920,
    rpm: 7200,
    surfaces: SurfaceOrder::Bands { cylinders: 128 },
    sparing: Sparing::None,
    zones: Cow::Borrowed(&ZONES),
    seek: Seek::Table(Cow::Borrowed(&SEEK)),
    write_settle_ns: 0,
    head_switch: ms(0.001),
    scheduler: None,
    overhead: Overhead {
        read_hit: AfterPair::ms(0.162, 0.158),
        read_miss: AfterPair::ms(0.0, 0.105657),
        write_hit: AfterPair::ms(0.276, 0.456),
        write_miss: AfterPair::ms(0.62867, 0.22798),
        ..Overhead::NONE
    },
    bus: Bus {
        read_sector: ms(0.000853),
        write_sector: ms(0.000853),
        disconnect_until_percent: Some(0),
        tagged_queueing: true,
    },
    cache: Cache {
        segments: 32,
        segment_sectors: 3072,
        read_ahead: ReadAhead::NextTrack,
        write_on_arrival: true,
        write_behind: WriteBehind::Stream,
        ..Cache::PLAIN
    },
};

#[rustfmt::skip]
const ZONES: [Zone; 50] = [
    zone(     0,  37119, 3072, 435, 435, 0, 0, 0, &[]),
    zone( 37120,  41727, 3040, 431, 431, 0, 0, 0, &[]),
    zone( 41728,  46335, 3017, 427, 427, 0, 0, 0, &[]),
    zone( 46336,  51199, 3008, 426, 426, 0, 0, 0, &[]),
    zone( 51200,  60927, 2995, 424, 424, 0, 0, 0, &[]),
    zone( 60928,  65791, 2976, 422, 422, 0, 0, 0, &[]),
    zone( 65792,  70911, 2962, 420, 420, 0, 0, 0, &[]),
    zone( 70912,  76031, 2932, 415, 415, 0, 0, 0, &[]),
    zone( 76032,  81151, 2907, 412, 412, 0, 0, 0, &[]),
    zone( 81152,  86271, 2880, 408, 408, 0, 0, 0, &[]),
    zone( 86272,  91647, 2852, 404, 404, 0, 0, 0, &[]),
    zone( 91648,  97023, 2822, 400, 400, 0, 0, 0, &[]),
    zone( 97024, 102399, 2792, 396, 396, 0, 0, 0, &[]),
    zone(102400, 107775, 2764, 392, 392, 0, 0, 0, &[]),
    zone(107776, 113151, 2742, 388, 388, 0, 0, 0, &[]),
    zone(113152, 118527, 2710, 384, 384, 0, 0, 0, &[]),
    zone(118528, 124159, 2688, 381, 381, 0, 0, 0, &[]),
    zone(124160, 129791, 2649, 375, 375, 0, 0, 0, &[]),
    zone(129792, 135167, 2645, 375, 375, 0, 0, 0, &[]),
    zone(135168, 140799, 2611, 370, 370, 0, 0, 0, &[]),
    zone(140800, 146431, 2581, 366, 366, 0, 0, 0, &[]),
    zone(146432, 152063, 2578, 365, 365, 0, 0, 0, &[]),
    zone(152064, 163327, 2560, 363, 363, 0, 0, 0, &[]),
    zone(163328, 168959, 2528, 358, 358, 0, 0, 0, &[]),
    zone(168960, 174591, 2496, 354, 354, 0, 0, 0, &[]),
    zone(174592, 180223, 2464, 349, 349, 0, 0, 0, &[]),
    zone(180224, 185599, 2432, 345, 345, 0, 0, 0, &[]),
    zone(185600, 190975, 2400, 340, 340, 0, 0, 0, &[]),
    zone(190976, 196351, 2325, 329, 329, 0, 0, 0, &[]),
    zone(196352, 201727, 2304, 326, 326, 0, 0, 0, &[]),
    zone(201728, 207103, 2258, 320, 320, 0, 0, 0, &[]),
    zone(207104, 212479, 2227, 315, 315, 0, 0, 0, &[]),
    zone(212480, 217855, 2194, 311, 311, 0, 0, 0, &[]),
    zone(217856, 223231, 2162, 306, 306, 0, 0, 0, &[]),
    zone(223232, 228607, 2129, 302, 302, 0, 0, 0, &[]),
    zone(228608, 233983, 2059, 292, 292, 0, 0, 0, &[]),
    zone(233984, 239103, 2024, 287, 287, 0, 0, 0, &[]),
    zone(239104, 244223, 1989, 282, 282, 0, 0, 0, &[]),
    zone(244224, 249343, 1958, 277, 277, 0, 0, 0, &[]),
    zone(249344, 254463, 1920, 272, 272, 0, 0, 0, &[]),
    zone(254464, 259583, 1885, 267, 267, 0, 0, 0, &[]),
    zone(259584, 264703, 1850, 262, 262, 0, 0, 0, &[]),
    zone(264704, 269567, 1815, 257, 257, 0, 0, 0, &[]),
    zone(269568, 274431, 1778, 252, 252, 0, 0, 0, &[]),
    zone(274432, 279295, 1742, 247, 247, 0, 0, 0, &[]),
    zone(279296, 284159, 1713, 243, 243, 0, 0, 0, &[]),
    zone(284160, 289023, 1680, 238, 238, 0, 0, 0, &[]),
    zone(289024, 293887, 1645, 233, 233, 0, 0, 0, &[]),
    zone(293888, 298495, 1612, 228, 228, 0, 0, 0, &[]),
    zone(298496, 303103, 1560, 221, 221, 0, 0, 0, &[]),
];

#[rustfmt::skip]
const SEEK: [(u32, Nanos); 43] = table([
    (1, 1.18), (2, 1.8), (141, 1.4), (423, 1.6), (705, 1.7), (987, 2.0), (1551, 2.3), (2397, 2.4), (3530, 2.8),
    (5222, 2.9), (7215, 3.3), (9189, 3.4), (11163, 3.6), (13419, 3.8), (16521, 4.0), (20187, 4.1), (23289, 4.4),
    (26109, 4.6), (30057, 4.8), (35133, 5.1), (40209, 5.3), (45003, 5.6), (50166, 5.8), (60108, 6.2), (70066, 6.7),
    (80233, 7.0), (90169, 7.3), (100066, 7.7), (110002, 7.9), (120250, 8.3), (130086, 8.6), (140242, 8.9),
    (150112, 9.2), (160278, 9.6), (170266, 9.9), (180153, 10.2), (190050, 10.4), (200015, 10.8), (210266, 11.1),
    (220237, 11.4), (230223, 11.7), (236986, 11.9), (310000, 14.3),
]);
