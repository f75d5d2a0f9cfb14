//! File systems on storage that are worth asking about a program, where the user names none.
//!
//! All drives of a page have the same size, and a volume fills them. It is 32 GiB, so that the volume is made quickly, except for a
//! program that fills the file system: what modelled drives store is in memory, and what there is to write grows with the volume. For such a
//! program all volumes have 1 GiB, and drives the share that they have in that. The disk has the speed, the rate and the average seek of
//! `nearline-4tb`.

use seekless::stack::Value;

use crate::workload::Program;

struct Layout {
    name: &'static str,
    /// With `{size}` in place of the size of a drive.
    line: &'static str,
    /// How many drives hold the data of a volume, copies and parities apart.
    drives: u64,
}

/// A disk of a size.
macro_rules! disk {
    () => {
        "disk:size={size},rpm=7200,seek=7.45ms,rate=180MiB"
    };
}

const LAYOUTS: &[Layout] = &[
    layout("LFS, one disk", concat!("lfs / ", disk!()), 1),
    layout("FFS, one disk", concat!("ffs / ", disk!()), 1),
    layout("FFS with soft updates, one disk", concat!("ffs:metadata=softdep / ", disk!()), 1),
    layout("VLFS, one disk", concat!("vlfs / ", disk!()), 1),
    layout("LFS, mirror of two disks", concat!("lfs / raid1:n=2,metadata=off / ", disk!()), 1),
    layout("LFS, stripes over four disks", concat!("lfs / raid0:n=4 / ", disk!()), 4),
    layout(
        "FFS with soft updates, stripes over four disks",
        concat!("ffs:metadata=softdep / raid0:n=4 / ", disk!()),
        4,
    ),
    layout("LFS, RAID-5 of four disks", concat!("lfs / raid5:n=4,metadata=off / ", disk!()), 3),
    layout(
        "FFS with soft updates, RAID-5 of four disks",
        concat!("ffs:metadata=softdep / raid5:n=4,metadata=off / ", disk!()),
        3,
    ),
    layout("LFS, flash drive", "lfs / ssd:nvme-a,size={size},fill=random", 1),
    layout("FFS with soft updates, flash drive", "ffs:metadata=softdep / ssd:nvme-a,size={size},fill=random", 1),
];

const fn layout(name: &'static str, line: &'static str, drives: u64) -> Layout {
    Layout { name, line, drives }
}

/// A drive with zones: in its size count the zones that `zoned` keeps for itself, and those of `zns-a` are as large as a volume that a
/// program fills.
const ZONES: &str = "LFS, flash drive with zones";
const ZONES_OF_32_GIB: &str = "lfs / zoned / zns:zns-a,zones=36";
const ZONES_OF_1_GIB: &str = "lfs / zoned / zns:zns-a,zones=152,zone=8MiB,capacity=8MiB";

const DRIVE_BYTES: u64 = 32 << 30;
const FILLED_BYTES: u64 = 1 << 30;

/// Names and lines of candidates for `program`.
pub fn layouts(program: &dyn Program) -> Vec<(&'static str, String)> {
    let fills = program.fills();
    let line = |Layout { name, line, drives }: &Layout| {
        let bytes = if fills { FILLED_BYTES.div_ceil(*drives).next_multiple_of(1 << 20) } else { DRIVE_BYTES };
        (*name, line.replace("{size}", &Value::Bytes(bytes).to_string()))
    };
    let zones = if fills { ZONES_OF_1_GIB } else { ZONES_OF_32_GIB };
    LAYOUTS.iter().map(line).chain([(ZONES, zones.to_owned())]).collect()
}

#[cfg(test)]
mod tests {
    use seekless::stack::Stack;

    use super::*;
    use crate::advice::Room;
    use crate::workload::WORKLOADS;

    fn program(name: &str, keys: &str) -> Box<dyn Program> {
        let spec = WORKLOADS.iter().find(|spec| spec.name == name).expect("a workload");
        spec.read(&toml::from_str(keys).expect("keys"), None).expect("numbers of it")
    }

    /// Aim: candidates of one page are alike in size, and what a program fills fits into memory. Method: every candidate is made, with
    /// `df` of its file system and the bytes of its drives: for programs that fill, file systems of about 1 GiB on drives with 2 GiB at
    /// most; for others, drives of 32 GiB, and zones for as much.
    #[test]
    fn candidates_are_alike() {
        for (program, filled) in [
            (program("aged", ""), true),
            (program("tpcb", "full = 60"), true),
            (program("tpcb", ""), false),
            (program("aged", "full = 0"), false),
        ] {
            assert_eq!(program.fills(), filled);
            for (name, line) in layouts(&*program) {
                let stack = Stack::parse(&line).unwrap_or_else(|error| panic!("{name}: {error}"));
                // The others say how large their drives are.
                if !filled && name != ZONES {
                    assert!(line.contains("size=32GiB"), "{line}");
                    continue;
                }
                let Room { files, devices } = Room::of(&stack).unwrap_or_else(|error| panic!("{name}: {error}"));
                let mib = if filled { 1024 } else { 32 << 10 };
                assert!((mib * 7 / 8..mib * 17 / 16).contains(&(files >> 20)), "{name}: {} MiB", files >> 20);
                assert!(devices >> 20 <= mib * 9 / 4, "{name}: {} MiB", devices >> 20);
            }
        }
    }
}
