//! Seagate.

use std::borrow::Cow;

use super::{DISKSIM, table, zone};
use crate::disk::drive::{
    AfterPair, Bus, Cache, Drive, Evidence, Overhead, ReadAhead, Seek, Sparing, SurfaceOrder, WriteBehind, Zone, ms,
};
use crate::units::Nanos;

/// ST34501N, the 4.5 GB Cheetah. `cheetah4LP.model`, `cheetah4LP.diskspecs`.
pub(super) static CHEETAH_4LP: Drive = Drive {
    name: Cow::Borrowed("cheetah4lp"),
    product: Cow::Borrowed("Seagate Cheetah 4LP ST34501N"),
    source: Cow::Borrowed(DISKSIM),
    evidence: Evidence::Validated,
    heads: 8,
    cylinders: 6581,
    sectors: 8_887_200,
    rpm: 10_033,
    surfaces: SurfaceOrder::Forward,
    sparing: Sparing::SectorsPerRange { cylinders: 12 },
    zones: Cow::Borrowed(&CHEETAH_4LP_ZONES),
    seek: Seek::Table(Cow::Borrowed(&CHEETAH_4LP_SEEK)),
    write_settle_ns: 0,
    head_switch: ms(0.195),
    scheduler: None,
    overhead: Overhead {
        read_hit: AfterPair::ms(0.068, 0.309),
        read_miss: AfterPair::ms(0.60773, 0.56883),
        write_hit: AfterPair::ms(0.474, 0.095),
        write_miss: AfterPair::ms(0.43133, 0.53776),
        ..Overhead::NONE
    },
    bus: Bus {
        read_sector: ms(0.106),
        write_sector: ms(0.106),
        disconnect_until_percent: Some(0),
        tagged_queueing: false,
    },
    cache: Cache {
        segments: 3,
        segment_sectors: 282,
        read_ahead: ReadAhead::Sectors { sectors: 282 },
        write_behind: WriteBehind::One,
        ..Cache::PLAIN
    },
};

#[rustfmt::skip]
const CHEETAH_4LP_ZONES: [Zone; 7] = [
    zone(    0,  1343,  195,  22,  37,   0,      0,  108, &[1448762, 1916532, 1918075, 1919618, 1921161]),
    zone( 1345,  2448,  187,  22,  35,   0,      0,  108, &[234713, 236193, 237860, 239340, 240820, 242299, 1624216]),
    zone( 2450,  3541,  176,  20,  33,   0,      0,  108, &[]),
    zone( 3543,  4406,  166,  19,  31,   0,      0,  108, &[365917, 367310, 368623, 369937, 820783, 822097, 823410, 824724]),
    zone( 4408,  5223,  155,  18,  29,   0,      0,  108, &[]),
    zone( 5225,  5956,  145,  17,  27,   0,      0,  108, &[]),
    zone( 5958,  6580,  131,  15,  25,   0,      0,  108, &[]),
];

#[rustfmt::skip]
const CHEETAH_4LP_SEEK: [(u32, Nanos); 103] = table([
    (1, 0.636), (2, 1.146), (3, 1.16), (4, 1.275), (5, 1.285), (6, 1.403), (7, 1.287), (8, 1.42), (9, 1.539),
    (10, 1.416), (12, 1.527), (14, 1.55), (16, 1.547), (18, 1.547), (20, 1.679), (25, 1.928), (30, 1.936),
    (35, 1.937), (40, 2.07), (45, 2.187), (50, 2.314), (60, 2.325), (70, 2.324), (80, 2.459), (90, 2.586),
    (100, 2.705), (125, 3.111), (150, 3.627), (175, 3.622), (200, 3.754), (225, 3.875), (250, 3.878), (275, 3.843),
    (300, 4.008), (325, 4.007), (350, 4.135), (375, 4.136), (400, 4.138), (425, 4.266), (450, 4.397), (475, 4.4),
    (500, 4.414), (600, 4.795), (700, 5.056), (800, 5.426), (900, 5.576), (1000, 5.838), (1100, 6.099),
    (1200, 6.356), (1300, 6.606), (1400, 6.744), (1500, 7.003), (1600, 7.138), (1700, 7.269), (1800, 7.398),
    (1900, 7.779), (2000, 7.788), (2100, 8.05), (2200, 8.178), (2300, 8.433), (2400, 8.568), (2500, 8.817),
    (2600, 8.824), (2700, 9.082), (2800, 9.221), (2900, 9.474), (3000, 9.727), (3100, 9.857), (3200, 9.997),
    (3300, 10.254), (3400, 10.383), (3500, 10.513), (3600, 10.647), (3700, 10.905), (3800, 11.039), (3900, 11.297),
    (4000, 11.429), (4100, 11.552), (4200, 11.817), (4300, 11.946), (4400, 12.176), (4500, 12.334), (4600, 12.466),
    (4700, 12.723), (4800, 12.856), (4900, 12.99), (5000, 13.241), (5100, 13.368), (5200, 13.635), (5300, 13.758),
    (5400, 13.904), (5500, 14.157), (5600, 14.288), (5700, 14.414), (5800, 14.673), (5900, 14.809), (6000, 15.06),
    (6100, 15.186), (6200, 15.33), (6300, 15.579), (6400, 15.727), (6500, 15.969), (6580, 16.107),
]);

/// ST32171W. `barracuda.model`, `barracuda.diskspecs`.
pub(super) static BARRACUDA: Drive = Drive {
    name: Cow::Borrowed("barracuda"),
    product: Cow::Borrowed("Seagate Barracuda ST32171W"),
    source: Cow::Borrowed(DISKSIM),
    evidence: Evidence::Extracted,
    heads: 5,
    cylinders: 5172,
    sectors: 4_110_000,
    rpm: 7200,
    surfaces: SurfaceOrder::Forward,
    sparing: Sparing::SectorsPerRange { cylinders: 6 },
    zones: Cow::Borrowed(&BARRACUDA_ZONES),
    seek: Seek::Table(Cow::Borrowed(&BARRACUDA_SEEK)),
    write_settle_ns: 0,
    head_switch: ms(0.1),
    scheduler: None,
    overhead: Overhead {
        read_hit: AfterPair::ms(0.082, 0.596),
        read_miss: AfterPair::ms(0.61307, 0.56813),
        write_hit: AfterPair::ms(1.01, 0.9291),
        write_miss: AfterPair::ms(1.05363, 0.8156),
        ..Overhead::NONE
    },
    bus: Bus {
        read_sector: ms(0.134),
        write_sector: ms(0.134),
        disconnect_until_percent: Some(0),
        tagged_queueing: false,
    },
    cache: Cache {
        segments: 3,
        segment_sectors: 281,
        read_ahead: ReadAhead::Sectors { sectors: 281 },
        write_behind: WriteBehind::One,
        ..Cache::PLAIN
    },
};

const BARRACUDA_SLIPS_1: &[u32] = &[
    740235, 741151, 742067, 742068, 742069, 742070, 742983, 742984, 742985, 742986, 743979, 744895, 985358, 986274,
    987190,
];

#[rustfmt::skip]
const BARRACUDA_ZONES: [Zone; 11] = [
    zone(    0,  1127,  186,  37,  52,   0,      0,   88, &[112508, 113430, 114351, 303401, 304322, 305243, 338539, 339460, 340452]),
    zone( 1129,  2352,  185,  37,  52,   0,      0,   88, BARRACUDA_SLIPS_1),
    zone( 2354,  2761,  177,  35,  49,   0,      0,   88, &[]),
    zone( 2763,  3098,  170,  34,  47,   0,      0,   88, &[]),
    zone( 3100,  3387,  163,  32,  46,   0,      0,   88, &[]),
    zone( 3389,  3700,  157,  31,  44,   0,      0,   88, &[]),
    zone( 3702,  4013,  148,  29,  41,   0,      0,   88, &[]),
    zone( 4015,  4326,  141,  28,  39,   0,      0,   88, &[133034, 133733, 133734, 133735, 134431]),
    zone( 4328,  4615,  135,  27,  38,   0,      0,   88, &[]),
    zone( 4617,  4928,  126,  25,  35,   0,      0,   88, &[10320, 10944, 11520]),
    zone( 4930,  5171,  119,  23,  33,   0,      0,   88, &[]),
];

#[rustfmt::skip]
const BARRACUDA_SEEK: [(u32, Nanos); 87] = table([
    (1, 1.943), (2, 1.956), (3, 1.933), (4, 2.175), (5, 2.176), (6, 2.334), (7, 2.344), (8, 2.326), (9, 2.328),
    (10, 2.351), (12, 2.358), (14, 2.549), (16, 2.534), (18, 2.549), (20, 2.548), (25, 2.556), (30, 3.549),
    (35, 3.721), (40, 3.743), (45, 3.754), (50, 3.768), (60, 3.939), (70, 4.141), (80, 4.138), (90, 4.14),
    (100, 4.158), (125, 4.514), (150, 4.729), (175, 4.929), (200, 5.307), (225, 5.342), (250, 5.485), (275, 5.533),
    (300, 5.523), (325, 5.524), (350, 5.526), (375, 5.717), (400, 5.711), (425, 5.901), (450, 5.758), (475, 5.943),
    (500, 6.137), (600, 6.333), (700, 6.73), (800, 7.322), (900, 7.915), (1000, 8.114), (1100, 8.507),
    (1200, 8.702), (1300, 8.727), (1400, 8.858), (1500, 9.117), (1600, 9.461), (1700, 9.479), (1800, 9.888),
    (1900, 10.086), (2000, 10.092), (2100, 10.487), (2200, 10.851), (2300, 10.884), (2400, 11.27), (2500, 11.284),
    (2600, 11.658), (2700, 11.873), (2800, 12.053), (2900, 12.244), (3000, 12.471), (3100, 12.64), (3200, 12.845),
    (3300, 13.025), (3400, 13.268), (3500, 13.447), (3600, 13.625), (3700, 14.006), (3800, 14.215), (3900, 14.215),
    (4000, 14.615), (4100, 14.794), (4200, 15.002), (4300, 15.231), (4400, 15.405), (4500, 15.623), (4600, 15.831),
    (4700, 16.031), (4800, 16.193), (4900, 16.419), (4986, 16.679),
]);

/// ST41601N, an Elite. `st41601n_validate.model`, `st41601n.diskspecs`, bus of `st41601n.parv`.
pub(super) static ST41601N: Drive = Drive {
    name: Cow::Borrowed("st41601n"),
    product: Cow::Borrowed("Seagate Elite ST41601N"),
    source: Cow::Borrowed(DISKSIM),
    evidence: Evidence::Extracted,
    heads: 17,
    cylinders: 2098,
    sectors: 2_676_846,
    rpm: 5397,
    surfaces: SurfaceOrder::Forward,
    sparing: Sparing::SectorsPerCylinder,
    zones: Cow::Borrowed(&ST41601N_ZONES),
    seek: Seek::Table(Cow::Borrowed(&ST41601N_SEEK)),
    write_settle_ns: 0,
    head_switch: ms(0.0),
    scheduler: None,
    overhead: Overhead {
        read_hit: AfterPair::ms(0.896, 0.506),
        read_miss: AfterPair::ms(1.433, 1.433),
        write_hit: AfterPair::ms(2.059, 1.404),
        write_miss: AfterPair::ms(2.059, 1.404),
        read_completion: ms(0.232),
        ..Overhead::NONE
    },
    bus: Bus {
        read_sector: ms(0.09552),
        write_sector: ms(0.09552),
        disconnect_until_percent: Some(0),
        tagged_queueing: false,
    },
    cache: Cache {
        segments: 1,
        segment_sectors: 384,
        read_ahead: ReadAhead::Sectors { sectors: 384 },
        read_ahead_after_hit: true,
        stop_in_sector: true,
        forget_sent: true,
        ..Cache::PLAIN
    },
};

#[rustfmt::skip]
const ST41601N_ZONES: [Zone; 14] = [
    zone(    0,   625,   85,   2,  16,   0,      0,    6, &[351027, 572958, 780987]),
    zone(  626,   700,   83,   2,  16,  46,      0,    6, &[]),
    zone(  701,   800,   82,   2,  15,  77,      0,    6, &[127564, 130078]),
    zone(  801,   925,   79,   2,  15,  23,      0,    6, &[47535, 107971]),
    zone(  926,  1050,   78,   2,  14,  54,      0,    6, &[55028, 83029, 101300, 120855]),
    zone( 1051,  1175,   76,   2,  14,  36,      0,    6, &[75151, 83344, 84636, 85928, 87220, 88512, 89804, 91096, 92388, 116791]),
    zone( 1176,  1300,   73,   2,  13,  20,      0,    6, &[61600, 105920, 112125, 119745]),
    zone( 1301,  1400,   72,   2,  13,  28,      0,    6, &[]),
    zone( 1401,  1500,   69,   2,  12,  64,      0,    6, &[]),
    zone( 1501,  1600,   68,   2,  12,  48,      0,    6, &[]),
    zone( 1601,  1800,   65,   2,  11,  28,      0,    6, &[74599]),
    zone( 1801,  1900,   63,   2,  11,  49,      0,    6, &[]),
    zone( 1901,  2000,   62,   2,  10,   2,      0,    6, &[]),
    zone( 2001,  2097,   61,   2,  10,  48,      0,    6, &[]),
];

#[rustfmt::skip]
const ST41601N_SEEK: [(u32, Nanos); 58] = table([
    (1, 1.625627), (2, 2.026625), (3, 2.257027), (4, 2.457954), (5, 2.590314), (6, 2.668717), (7, 2.835673),
    (8, 2.850046), (9, 2.904469), (10, 2.90909), (12, 3.021371), (14, 3.157782), (16, 3.281241), (18, 3.382193),
    (20, 3.454658), (25, 4.416398), (30, 4.56963), (35, 4.656808), (40, 4.819659), (45, 4.930309), (50, 5.030418),
    (60, 5.214422), (70, 5.427181), (80, 5.600656), (90, 5.809526), (100, 5.998011), (125, 6.288896),
    (150, 6.634903), (175, 6.966304), (200, 7.258891), (225, 7.548794), (250, 7.80076), (275, 8.070144),
    (300, 8.354861), (325, 8.617527), (350, 8.842571), (375, 9.048018), (400, 9.273628), (425, 9.476206),
    (450, 9.677476), (475, 9.864026), (500, 10.054185), (600, 10.700314), (700, 11.385492), (800, 12.121747),
    (900, 12.876463), (1000, 13.621508), (1100, 14.31213), (1200, 15.01229), (1300, 15.790787), (1400, 16.542436),
    (1500, 17.291304), (1600, 18.065838), (1700, 18.816006), (1800, 19.521128), (1900, 20.275453),
    (2000, 21.021211), (2097, 21.777562),
]);
