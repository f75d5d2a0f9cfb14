//! What DiskSim's files of real drives have: small drives with the flags, the layouts and the notation of each file of its distribution and of its
//! 64 bit branch that we know of. Zones and curves are shorter; the flags are those of the files.

use super::*;
use crate::disk::import::{Imported, ReadError};

/// What a file says other than most files do, and what the drive must have then.
struct Wild {
    name: &'static str,
    /// `Number of buffer segments`, `Segment size (in blks)`.
    segments: (u32, u32),
    flags: &'static str,
    /// `LBN-to-PBN mapping scheme`, `Sparing scheme used`, `Rangesize for sparing`, spares, slips.
    layout: (u32, u32, u32, u32, &'static str),
    mechanics: &'static str,
    curve: &'static str,
    /// Parts of notes, of which each has one, and there are no others beside those of all files.
    notes: &'static [&'static str],
    cache: Cache,
    /// `disconnect_until_percent`, and the reselect overhead in milliseconds.
    bus: (Option<u32>, f64),
    sectors: u64,
}

/// As most files have it. The last of two values counts, so that what a drive has comes after it; such pairs make notes, which are left out.
const FLAGS: &str = "Per-request overhead time = 0.000000, Time scale for overheads = 1.000000,
   Bulk sector transfer time = 0.106000, Hold bus entire read xfer = 0, Hold bus entire write xfer = 0,
   Allow almost read hits = 0, Allow sneaky full read hits = 0, Allow sneaky partial read hits = 0,
   Allow sneaky intermediate read hits = 0, Allow read hits on write data = 1, Allow write prebuffering = 0,
   Preseeking level = 0, Never disconnect = 0, Print stats = 1, Avg sectors per cylinder = 2207, Max queue length = 1,
   Scheduler = disksim_ioqueue {
      Scheduling policy = 1, Cylinder mapping strategy = 0, Write initiation delay = 0.000000,
      Read initiation delay = 0.000000, Sequential stream scheme = 0, Maximum concat size = 0,
      Overlapping request scheme = 0, Sequential stream diff maximum = 0, Scheduling timeout scheme = 0,
      Timeout time/weight = 0, Timeout scheduling = 0, Scheduling priority scheme = 0, Priority scheduling = 0
   },
   Maximum number of write segments = 1, Use separate write segment = 0,
   Low (write) water mark = 0.000000, High (read) water mark = 0.000000, Set watermark by reqsize = 1,
   Calc sector by sector = 1, Enable caching in buffer = 1, Minimum read-ahead (blks) = 0,
   Read-ahead over requested = 0, Read-ahead on idle hit = 0, Read any free blocks = 0, Fast write level = 0,
   Immediate buffer read = 0, Immediate buffer write = 0, Combine seq writes = 1, Stop prefetch in sector = 0,
   Disconnect write if seek = 0, Write hit stop prefetch = 1, Read directly to buffer = 1,
   Immed transfer partial hit = 1, Read hit over. after read = 0.374000, Read hit over. after write = 0.335000,
   Read miss over. after read = 0.25, Read miss over. after write = 0.25, Write hit over. after read = 0.414000,
   Write hit over. after write = 0.396000, Write miss over. after read = 0.478280,
   Write miss over. after write = 0.500200, Read completion overhead = 0.000000,
   Write completion overhead = 0.000000, Data preparation overhead = 0.000000, First reselect overhead = 0.000000,
   Other reselect overhead = 0.000000, Read disconnect afterread = 0.000000, Read disconnect afterwrite = 0.000000,
   Write disconnect overhead = 0.000000, Extra write disconnect = 0, Extradisc command overhead = 0.000000,
   Extradisc disconnect overhead = 0.000000, Extradisc inter-disconnect delay = 0.000000,
   Extradisc 2nd disconnect overhead = 0.000000, Extradisc seek delta = 0.000000, Minimum seek delay = 0.000000,";

const CURVE: &str = "Seek distances measured: 4\n1, 1.01400\n2, 1.22000\n30, 3.10000\n99, 5.90000\n";

const EXTRACTED: &str = "Seek type = extracted, Single cylinder seek time = 0.200000, Full seek curve = drive.seek,
   Full strobe seek time = 2.300000, Add. write settling delay = 0.000000,
#      HPL seek equation values = [
#         300,
#         -1.000000
#      ],";

const PLAIN: Cache = Cache { read_written: true, ..Cache::PLAIN };

/// Two zones of 50 cylinders with 2 surfaces, of 60 and 40 sectors a track.
const ALL: u64 = 50 * 2 * 60 + 50 * 2 * 40;

const EARLY_HP: &str = "Never disconnect = 0, Hold bus entire read xfer = 1, Low (write) water mark = 0.750000,
   High (read) water mark = 0.750000, Use separate write segment = 1, Buffer continuous read = 3,
   Maximum read-ahead (blks) = 128, Read-ahead over requested = 1, Read-ahead on idle hit = 1,
   Stop prefetch in sector = 1, First reselect overhead = 0.162490, Other reselect overhead = 0.128830,
   Read disconnect afterread = 0.022660, Read disconnect afterwrite = 0.045510, Extra write disconnect = 1,
   Extradisc command overhead = 0.642440, Extradisc seek delta = 0.250000, Minimum seek delay = 0.600000";

const EARLY_HP_NOTES: &[&str] = &[
    "`Low (write) water mark` is left out",
    "`Other reselect overhead` is left out",
    "`Read disconnect afterread` is left out",
    "`Read disconnect afterwrite` is left out",
    "Of the extra write disconnect",
];

const EARLY_HP_CACHE: Cache = Cache {
    segments: 2,
    segment_sectors: 256,
    read_ahead: ReadAhead::Sectors { sectors: 128 },
    read_ahead_after_hit: true,
    stop_in_sector: true,
    write_segment_apart: true,
    write_start: Some(WriteStart { sectors: 10, long_sectors: 15, long_from: 45 }),
    ..PLAIN
};

/// By the names of their files.
const WILD: [Wild; 13] = [
    Wild {
        name: "QUANTUM_QM39100TD-SW",
        segments: (6, 64),
        flags: "Buffer continuous read = 4, Maximum read-ahead (blks) = 64, Fast write level = 2",
        layout: (0, 9, 1, 20, "7, 5"),
        mechanics: EXTRACTED,
        curve: CURVE,
        notes: &[],
        cache: Cache {
            segments: 6,
            segment_sectors: 64,
            read_ahead: ReadAhead::NextTrack,
            write_behind: WriteBehind::One,
            ..PLAIN
        },
        bus: (Some(0), 0.0),
        sectors: ALL - 40,
    },
    Wild {
        name: "QUANTUM_TORNADO_validate",
        segments: (10, 374),
        flags: "Buffer continuous read = 4, Maximum read-ahead (blks) = 354, Read any free blocks = 1, Fast write level = 2,
            Immediate buffer read = 1, Immediate buffer write = 1",
        layout: (1, 9, 1, 20, "7"),
        mechanics: EXTRACTED,
        curve: CURVE,
        notes: &["`Immediate buffer read` is off", "`Read any free blocks` is off", "`Immediate buffer write` is off"],
        cache: Cache {
            segments: 10,
            segment_sectors: 374,
            read_ahead: ReadAhead::NextTrack,
            write_behind: WriteBehind::One,
            ..PLAIN
        },
        bus: (Some(0), 0.0),
        sectors: ALL - 40,
    },
    // Ranges of cylinders; zones that do not touch are those of the file, and not those here.
    Wild {
        name: "SEAGATE_ST32171W",
        segments: (3, 281),
        flags: "Buffer continuous read = 3, Maximum read-ahead (blks) = 281, Read-ahead over requested = 1, Fast write level = 1",
        layout: (0, 8, 6, 8, "1, 100"),
        mechanics: EXTRACTED,
        curve: CURVE,
        notes: &[],
        cache: Cache {
            segments: 3,
            segment_sectors: 281,
            read_ahead: ReadAhead::Sectors { sectors: 281 },
            write_behind: WriteBehind::One,
            ..PLAIN
        },
        bus: (Some(0), 0.0),
        sectors: ALL - 2 * 8 * 8,
    },
    Wild {
        name: "SEAGATE_ST34501N_validate",
        segments: (3, 282),
        flags: "Buffer continuous read = 3, Maximum read-ahead (blks) = 282, Read-ahead over requested = 1, Fast write level = 1",
        layout: (0, 8, 12, 8, ""),
        mechanics: EXTRACTED,
        curve: CURVE,
        notes: &[],
        cache: Cache {
            segments: 3,
            segment_sectors: 282,
            read_ahead: ReadAhead::Sectors { sectors: 282 },
            write_behind: WriteBehind::One,
            ..PLAIN
        },
        bus: (Some(0), 0.0),
        sectors: ALL - 2 * 4 * 8,
    },
    Wild {
        name: "SEAGATE_ST39102LW_validate",
        segments: (3, 561),
        flags: "Maximum number of write segments = 3, Buffer continuous read = 4, Maximum read-ahead (blks) = 561,
            Read-ahead over requested = 1, Fast write level = 2",
        layout: (0, 9, 1, 20, ""),
        mechanics: EXTRACTED,
        curve: CURVE,
        notes: &[],
        cache: Cache {
            segments: 3,
            segment_sectors: 561,
            read_ahead: ReadAhead::NextTrack,
            write_behind: WriteBehind::One,
            ..PLAIN
        },
        bus: (Some(0), 0.0),
        sectors: ALL - 40,
    },
    // Holds the bus.
    Wild {
        name: "DEC_RZ26_validate",
        segments: (10, 57),
        flags: "Hold bus entire read xfer = 1, Hold bus entire write xfer = 1, Never disconnect = 1,
            Use separate write segment = 1, Buffer continuous read = 1, Maximum read-ahead (blks) = 57,
            Read-ahead over requested = 1, Read-ahead on idle hit = 1, Immediate buffer read = 1, Stop prefetch in sector = 1",
        layout: (0, 3, 1, 1, "5"),
        mechanics: EXTRACTED,
        curve: CURVE,
        notes: &["`Immediate buffer read` is off"],
        cache: Cache {
            segments: 10,
            segment_sectors: 57,
            read_ahead: ReadAhead::TrackEnd { sectors: 57 },
            read_ahead_after_hit: true,
            stop_in_sector: true,
            write_segment_apart: true,
            ..PLAIN
        },
        bus: (None, 0.0),
        sectors: ALL - 200,
    },
    Wild {
        name: "HP_C2247A_validate",
        segments: (2, 256),
        flags: EARLY_HP,
        layout: (0, 1, 1, 3, "2"),
        mechanics: "Seek type = hplplus10, Single cylinder seek time = 0.2, Average seek time = 1.1,
            Full strobe seek time = 2.3, Add. write settling delay = 0.650000,
            HPL seek equation values = [ 300, 3.810000, 0.330000, 7.750000, 0.005900, -1.000000 ],
            First ten seek times = [ 2.89, 3.68, 3.81, 3.98, 4.27, 4.65, 4.52, 4.65, 4.82, 4.99 ],",
        curve: "",
        notes: EARLY_HP_NOTES,
        cache: EARLY_HP_CACHE,
        bus: (Some(75), 0.162490),
        sectors: ALL - 3 * 60 - 3 * 40,
    },
    Wild {
        name: "HP_C2249A",
        segments: (2, 256),
        flags: EARLY_HP,
        layout: (0, 1, 1, 3, ""),
        mechanics: "Seek type = hpl, Single cylinder seek time = 0.2, Average seek time = 1.1,
            Full strobe seek time = 2.3, Add. write settling delay = 0.65,
            HPL seek equation values = [ 300, 3.75, 0.33, 7.69, 0.0059, -1.0 ],",
        curve: "",
        notes: EARLY_HP_NOTES,
        cache: EARLY_HP_CACHE,
        bus: (Some(75), 0.162490),
        sectors: ALL - 3 * 60 - 3 * 40,
    },
    // Caching of the second kind, which counts as the first.
    Wild {
        name: "HP_C2490A_validate",
        segments: (1, 256),
        flags: "Hold bus entire read xfer = 1, Enable caching in buffer = 2, Buffer continuous read = 3,
            Maximum read-ahead (blks) = 128, Read-ahead over requested = 1, Read-ahead on idle hit = 1,
            Stop prefetch in sector = 1",
        layout: (0, 1, 1, 3, "2, 3"),
        mechanics: EXTRACTED,
        curve: CURVE,
        notes: &[],
        cache: Cache {
            segments: 1,
            segment_sectors: 256,
            read_ahead: ReadAhead::Sectors { sectors: 128 },
            read_ahead_after_hit: true,
            stop_in_sector: true,
            ..PLAIN
        },
        bus: (Some(0), 0.0),
        sectors: ALL - 3 * 60 - 3 * 40,
    },
    // A mark at the whole request.
    Wild {
        name: "HP_C3323A_validate",
        segments: (2, 512),
        flags: "Hold bus entire read xfer = 1, Low (write) water mark = 1.000000, High (read) water mark = 1.000000,
            Use separate write segment = 1, Buffer continuous read = 3, Maximum read-ahead (blks) = 256,
            Read-ahead on idle hit = 1, Stop prefetch in sector = 1",
        layout: (0, 1, 1, 4, ""),
        mechanics: EXTRACTED,
        curve: CURVE,
        notes: &["`Low (write) water mark` is left out"],
        cache: Cache {
            segments: 2,
            segment_sectors: 512,
            read_ahead: ReadAhead::Sectors { sectors: 256 },
            read_ahead_after_hit: true,
            stop_in_sector: true,
            write_segment_apart: true,
            ..PLAIN
        },
        bus: (Some(100), 0.0),
        sectors: ALL - 4 * 60 - 4 * 40,
    },
    Wild {
        name: "IBM_DNES-309170W_validate",
        segments: (7, 511),
        flags: "Allow read hits on write data = 0, Use separate write segment = 1, Buffer continuous read = 3,
            Maximum read-ahead (blks) = 511, Read any free blocks = 1, Fast write level = 2",
        layout: (0, 10, 1, 20, "3"),
        mechanics: EXTRACTED,
        curve: CURVE,
        notes: &["`Read any free blocks` is off"],
        cache: Cache {
            segments: 7,
            segment_sectors: 511,
            read_ahead: ReadAhead::Sectors { sectors: 511 },
            read_written: false,
            write_segment_apart: true,
            write_behind: WriteBehind::One,
            ..PLAIN
        },
        bus: (Some(0), 0.0),
        sectors: ALL - 41,
    },
    // Forgets what it has sent.
    Wild {
        name: "Seagate_ST41601N_validate",
        segments: (1, 384),
        flags: "Buffer continuous read = 3, Maximum read-ahead (blks) = 384, Read-ahead over requested = -1,
            Read-ahead on idle hit = 1, Stop prefetch in sector = 1",
        layout: (0, 2, 1, 6, "119, 239, 240"),
        mechanics: EXTRACTED,
        curve: CURVE,
        notes: &[],
        cache: Cache {
            segments: 1,
            segment_sectors: 384,
            read_ahead: ReadAhead::Sectors { sectors: 384 },
            read_ahead_after_hit: true,
            stop_in_sector: true,
            forget_sent: true,
            ..PLAIN
        },
        bus: (Some(0), 0.0),
        sectors: ALL - 600,
    },
    // A curve of writes, and flags that no older file has.
    Wild {
        name: "MAXTOR_ATLAS10K5_300SCA_D808RXMK_00007",
        segments: (2048, 128),
        flags: "Allow almost read hits = 1, Allow sneaky full read hits = 1, Allow sneaky partial read hits = 1,
            Allow sneaky intermediate read hits = 1, Allow write prebuffering = 1, Maximum number of write segments = 128,
            Buffer continuous read = 4, Maximum read-ahead (blks) = 512, Fast write level = 2, Immediate buffer read = 1,
            Immediate buffer write = 1",
        layout: (0, 0, 1, 0, ""),
        mechanics: EXTRACTED,
        curve: "Seek distances measured: 4\n0,    0.000, 0,    0.000\n1,    0.434, 0,    0.584\n30,   2.100, 0,    2.250\n99,   4.100, 0,    4.250\n",
        notes: &[
            "`Allow almost read hits` is left out",
            "`Allow sneaky full read hits` is left out",
            "`Allow sneaky partial read hits` is left out",
            "`Allow sneaky intermediate read hits` is left out",
            "`Allow write prebuffering` is left out",
            "`Immediate buffer read` is off",
            "`Immediate buffer write` is off",
        ],
        cache: Cache {
            segments: 2048,
            segment_sectors: 128,
            read_ahead: ReadAhead::NextTrack,
            write_behind: WriteBehind::One,
            ..PLAIN
        },
        bus: (Some(0), 0.0),
        sectors: ALL,
    },
];

impl Wild {
    fn import(&self) -> Imported {
        let (name, (segments, sectors)) = (self.name, self.segments);
        let system = format!(
            "disksim_iodriver DRIVER0 {{ type = 1, Constant access time = 0.0, Use queueing in subsystem = 1 }}
disksim_bus BUS0 {{ type = 1, Arbitration type = 1, Arbitration time = 0.0, Read block transfer time = 0.0,
   Write block transfer time = 0.0, Print stats = 0 }}
disksim_ctlr CTLR0 {{ type = 1, Scale for delays = 0.0, Bulk sector transfer time = 0.0, Maximum queue length = 0 }}
source {name}.diskspecs
instantiate [ statfoo ] as Stats instantiate [ bus0 ] as  BUS0 instantiate [ disk0 ] as  {name}
instantiate [ driver0 ] as  DRIVER0 instantiate [ ctlr0 ] as  CTLR0
topology disksim_iodriver driver0 [ disksim_bus bus0 [ disksim_ctlr ctlr0 [ disksim_disk disk0 [] ] ] ]
disksim_logorg org0 {{ Addressing mode = Parts, devices = [ disk0 ], Stripe unit  =  17783250 }}
"
        );
        let specs = format!(
            "disksim_disk {name} {{ Model = source {name}.model,\n {FLAGS}
   Number of buffer segments = {segments}, Segment size (in blks) = {sectors}, {} }} # end of {name} spec\n",
            self.flags
        );
        let (mapping, sparing, range, spares, slips) = self.layout;
        let zone = |first: u32, sectors: u32, slips: &str| {
            format!(
                "dm_layout_g1_zone {{ First cylinder number = {first}, Last cylinder number = {},
   Blocks per track = {sectors}, Offset of first block = 0.000000, Empty space at zone front = 0,
   Skew for track switch = 7.000000, Skew for cylinder switch = 12.000000, Number of spares = {spares},
   slips = [ {slips} ], defects = [] }}",
                first + 49
            )
        };
        let model = format!(
            "dm_disk {name}.model {{ Number of data surfaces = 2, Number of cylinders = 100, Block count = 4110000,
   Layout Model = dm_layout_g1 {{ LBN-to-PBN mapping scheme = {mapping}, Sparing scheme used = {sparing},
      Rangesize for sparing = {range}, Skew units = sectors, Zones = [ {}, {} ] }},
   Mechanical Model = dm_mech_g1 {{ Access time type = trackSwitchPlusRotation, {}
   Head switch time = 0.100000, Rotation speed (in rpms) = 10025, Percent error in rpms = 0.000000 }}
}} # end of {name}.model spec\n",
            zone(0, 60, slips),
            zone(50, 40, ""),
            self.mechanics
        );
        let read = |file: &str| match file.rsplit('.').next() {
            Some("parv") => Ok(system.clone()),
            Some("diskspecs") => Ok(specs.clone()),
            Some("model") => Ok(model.clone()),
            Some("seek") if file == "drive.seek" && !self.curve.is_empty() => Ok(self.curve.to_owned()),
            _ => Err(ReadError::Missing(format!("there is no file {file}"))),
        };
        Imported::read("system.parv", None, &read).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }
}

/// Aim: every drive that DiskSim has files of is imported, with the flags that it has, and nothing is said that is not so. Method: small files
/// with the flags of each.
#[test]
fn drives_of_all_files() {
    for wild in &WILD {
        let imported = wild.import();
        let (name, drive) = (wild.name, &imported.drive);
        assert_eq!(drive.cache, wild.cache, "{name}");
        assert_eq!(drive.bus.disconnect_until_percent, wild.bus.0, "{name}");
        assert_eq!(drive.overhead.reselect, Nanos::from_millis_f64(wild.bus.1), "{name}");
        assert_eq!(drive.sectors, wild.sectors, "{name}");
        assert_eq!(Drive::from_toml(&imported.to_toml()).as_ref(), Ok(drive), "{name}");
        // Every sector can be read and written, and no note is a surprise.
        let mut mechanism = Mechanism::new(drive).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut now = Nanos::ZERO;
        for at in (0..drive.sectors).step_by(977).chain([drive.sectors - 1]) {
            for write in [false, true] {
                let request = Request { write, ..Request::read(Sector(at), 1) };
                now = mechanism.service(now, now, request).unwrap_or_else(|error| panic!("{name}: {error}")).done;
            }
        }
        let of_all = ["is given twice", "not the 4110000 of `Block count`", "`Scheduler` ("];
        let (common, own): (Vec<&String>, Vec<&String>) =
            imported.notes.iter().partition(|note| of_all.iter().any(|part| note.contains(part)));
        assert!(common.len() >= 2, "{name}: {common:#?}");
        for part in wild.notes {
            assert!(own.iter().any(|note| note.contains(part)), "{name}: {part}: {own:#?}");
        }
        assert_eq!(own.len(), wild.notes.len(), "{name}: {own:#?}");
    }
    let dual = WILD.iter().find(|wild| wild.name.starts_with("MAXTOR")).unwrap().import().drive;
    assert_eq!(
        dual.write_seek,
        Some(Seek::Table(vec![(1, Nanos(584_000)), (30, Nanos(2_250_000)), (99, Nanos(4_250_000))].into()))
    );
}
