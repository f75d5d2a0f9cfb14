//! `FORMAT.md` matches `format.rs`: the tables of the page and the records of the code are the same.

use std::path::Path;

use seekless::codec::Field;
use seekless::fs::ffs::format as ffs;
use seekless::fs::lfs::format as lfs;
use seekless::fs::vlfs::format as vlfs;
use seekless::layer::classic::format as classic;
use seekless::layer::log::format as layer;
use seekless::vlog::format as vlog;
use seekless::volume::format as volume;
use seekless::volume::zoned::format as zoned;
use seekless_tidy::markdown::Page;
use seekless_tidy::project::{read, root, short};
use seekless_tidy::{engine, file_systems, report};

/// The tables of one page, in its order, and the records that they describe.
struct Format {
    folder: &'static str,
    tables: &'static [(&'static str, &'static [Field])],
}

/// Every file system with its tables, the arrays, the virtual log, and layers. A new one is one more row.
const FORMATS: &[Format] = &[LFS, FFS, VLFS, VOLUME, ZONED, VLOG, LAYER, CLASSIC];

const LFS: Format = Format {
    folder: "crates/seekless-logfs/src/fs/lfs",
    tables: &[
        ("Superblock", lfs::Superblock::FIELDS),
        ("Checkpoint", lfs::Checkpoint::FIELDS),
        ("Summary", lfs::Summary::FIELDS),
        ("SummaryEntry", lfs::SummaryEntry::FIELDS),
        ("Inode", lfs::Inode::FIELDS),
        ("RawPointer", lfs::RawPointer::FIELDS),
        ("Usage", lfs::Usage::FIELDS),
        ("Leaf", lfs::Leaf::FIELDS),
        ("LeafEntry", lfs::LeafEntry::FIELDS),
    ],
};

const FFS: Format = Format {
    folder: "crates/seekless-ffs/src/fs/ffs",
    tables: &[
        ("Superblock", ffs::Superblock::FIELDS),
        ("Csum", ffs::Csum::FIELDS),
        ("Group", ffs::Group::FIELDS),
        ("Inode", ffs::Inode::FIELDS),
    ],
};

const VLFS: Format =
    Format { folder: "crates/seekless-logfs/src/fs/vlfs", tables: &[("VolumeRecord", vlfs::VolumeRecord::FIELDS)] };

const VOLUME: Format = Format {
    folder: "crates/seekless-volume/src/volume",
    tables: &[
        ("Superblock", volume::Superblock::FIELDS),
        ("BitmapSector", volume::BitmapSector::FIELDS),
        ("RecordHead", volume::RecordHead::FIELDS),
        ("RecordEntry", volume::RecordEntry::FIELDS),
    ],
};

const ZONED: Format = Format {
    folder: "crates/seekless-volume/src/volume/zoned",
    tables: &[("RecordHead", zoned::RecordHead::FIELDS), ("Change", zoned::Change::FIELDS)],
};

const LAYER: Format = Format {
    folder: "crates/seekless-layer/src/layer/log",
    tables: &[
        ("Slot", layer::Slot::FIELDS),
        ("Entry", layer::Entry::FIELDS),
        ("Head", layer::Head::FIELDS),
        ("SizeMark", layer::SizeMark::FIELDS),
        ("DirectoryMark", layer::DirectoryMark::FIELDS),
    ],
};

const VLOG: Format = Format {
    folder: "crates/seekless-vlog/src/vlog",
    tables: &[
        ("Superblock", vlog::Superblock::FIELDS),
        ("Anchor", vlog::Anchor::FIELDS),
        ("PieceHead", vlog::PieceHead::FIELDS),
        ("RawPointer", vlog::RawPointer::FIELDS),
        ("RecordHead", vlog::RecordHead::FIELDS),
        ("RawChange", vlog::RawChange::FIELDS),
        ("Label", vlog::Label::FIELDS),
        ("Landmark", vlog::Landmark::FIELDS),
    ],
};

const CLASSIC: Format = Format {
    folder: "crates/seekless-layer/src/layer/classic",
    tables: &[
        ("UnitHead", classic::UnitHead::FIELDS),
        ("IndexHead", classic::IndexHead::FIELDS),
        ("IndexHeadLarge", classic::IndexHeadLarge::FIELDS),
    ],
};

/// `FIELDS` as rows of a table: name, offset, size.
fn rows(fields: &[Field]) -> Vec<[String; 3]> {
    fields.iter().map(|field| [field.name.to_string(), field.offset.to_string(), field.size.to_string()]).collect()
}

/// Compares one page with its records; returns the differences, one line each.
fn differences(page: &Page, tables: &[(&str, &[Field])], name: &str) -> Vec<String> {
    let described: Vec<_> = page.tables.iter().filter(|table| table.header.iter().take(3).eq(COLUMNS)).collect();
    let mut problems = Vec::new();
    if described.len() != tables.len() {
        let (found, expected) = (described.len(), tables.len());
        problems.push(format!("{name} has {found} tables of fields, and the code {expected} records"));
    }
    for (table, (record, fields)) in described.iter().zip(tables) {
        let found: Vec<[String; 3]> = table.rows.iter().map(|row| [0, 1, 2].map(|at| row[at].clone())).collect();
        let expected = rows(fields);
        for at in 0..found.len().max(expected.len()) {
            let show = |row: Option<&[String; 3]>| row.map_or("no row".to_string(), |row| row.join(" | "));
            if found.get(at) != expected.get(at) {
                let (found, expected) = (show(found.get(at)), show(expected.get(at)));
                let heading = &table.heading;
                problems.push(format!("{name}, {heading:?}, row {at}: {found}; {record} in the code: {expected}"));
            }
        }
    }
    problems
}

/// First columns of a table that describes a record.
const COLUMNS: [&str; 3] = ["field", "offset", "size"];

/// Aim: the page is true. Method: its tables, row by row, against the field tables of the records.
#[test]
fn format_pages_equal_the_code() {
    let mut problems = Vec::new();
    for format in FORMATS {
        let path = root().join(format.folder).join("FORMAT.md");
        problems.extend(differences(&Page::read(&path), format.tables, &short(&path)));
    }
    report(&problems, "Change the page together with format.rs; a change of the format needs a new version.");
}

/// Aim: every record is described. Method: the records declared in the sources, and the existing folders.
#[test]
fn every_record_is_described() {
    let sources = engine();
    let mut problems = Vec::new();
    let others = [VOLUME, ZONED, VLOG, LAYER, CLASSIC].map(|format| root().join(format.folder));
    for folder in file_systems().into_iter().chain(others) {
        let name = short(&folder);
        let Some(format) = FORMATS.iter().find(|format| Path::new(format.folder) == Path::new(&name)) else {
            problems.push(format!("{name} is not in FORMATS of this test"));
            continue;
        };
        // A folder in it may have a format of its own.
        let inner = FORMATS.iter().map(|other| root().join(other.folder)).filter(|other| *other != folder);
        let inner: Vec<_> = inner.filter(|other| other.starts_with(&folder)).collect();
        let is_own = |path: &Path| path.starts_with(&folder) && !inner.iter().any(|other| path.starts_with(other));
        let declared = sources.iter().filter(|source| is_own(&source.path)).flat_map(|s| &s.records);
        let declared: Vec<&String> = declared.collect();
        assert!(!declared.is_empty(), "{name} declares no record: the search is broken");
        let unknown = declared.iter().filter(|name| !format.tables.iter().any(|(known, _)| known == *name));
        problems.extend(unknown.map(|record| format!("{name}: {record} is in no table of this test")));
    }
    report(&problems, "A record of a format belongs into FORMAT.md and into FORMATS above.");
}

/// Aim: the table of log items has the numbers of the code. Method: each item encoded, against its row.
#[test]
fn lfs_items_have_their_numbers() {
    use seekless::units::Ino;
    let (ino, sectors, first, count) = (Ino(16), 2, 0, 1);
    let items = [
        ("block", lfs::Item::Block { ino, key: 0, sectors, written: 0 }),
        ("inodes", lfs::Item::Inodes { count, sectors }),
        ("attributes", lfs::Item::Xattr { ino, sectors }),
        ("checkpoint", lfs::Item::Checkpoint { sectors }),
        ("inode freed", lfs::Item::InodeFreed { ino }),
        ("orphan added", lfs::Item::OrphanAdded { ino }),
        ("orphan removed", lfs::Item::OrphanRemoved { ino }),
        ("unmapped", lfs::Item::Unmapped { ino, first, count }),
        ("reserved", lfs::Item::Reserved { ino, first, count }),
        ("segment freed", lfs::Item::SegmentFreed { segment: 0, bytes: 0 }),
    ];
    let page = Page::read(&root().join("crates/seekless-logfs/src/fs/lfs/FORMAT.md"));
    let table = page.tables.iter().find(|table| table.header.first().is_some_and(|cell| cell == "kind"));
    let table = table.expect("the page has a table of kinds");
    let found: Vec<(String, String)> = table.rows.iter().map(|row| (row[1].clone(), row[0].clone())).collect();
    let expected = items.map(|(name, item)| (name.to_string(), item.to_entry().kind.to_string()));
    assert_eq!(found, expected);
}

/// Aim: the table of codecs has every number that is stored. Method: the numbers that a layer knows, and that of the codec with a key,
/// against the rows.
#[test]
fn codecs_have_their_numbers() {
    use seekless::layer::codecs::{ids, known};
    let page = Page::read(&root().join(LAYER.folder).join("FORMAT.md"));
    let table = page.tables.iter().find(|table| table.header.first().is_some_and(|cell| cell == "codec"));
    let table = table.expect("the page has a table of codecs");
    let found: Vec<String> = table.rows.iter().map(|row| row[1].clone()).collect();
    let stored = (0..=u8::MAX).filter(|&id| known(id).is_some() || id == ids::SEALED);
    let expected: Vec<String> = stored.map(|id| id.to_string()).collect();
    assert_eq!(found, expected, "{}/FORMAT.md, the table of codecs", LAYER.folder);
}

/// Aim: a wrong page is caught. Method: the real page with one change after another.
#[test]
fn a_wrong_page_is_noticed() {
    let format = &FORMATS[0];
    let text = read(&root().join(format.folder).join("FORMAT.md"));
    assert_eq!(differences(&Page::parse(&text), format.tables, "page"), Vec::<String>::new());
    for (from, to) in [
        ("| crc | 12 | 4 |", "| crc | 12 | 8 |"),
        ("| uuid | 16 | 16 |", "| uiud | 16 | 16 |"),
        ("| links | 24 | 4 |", "| links | 25 | 4 |"),
        ("| name_bytes | 17 | 1 | length of the name, which follows |\n", ""),
    ] {
        let wrong = text.replacen(from, to, 1);
        assert_ne!(wrong, text, "{from} is on the page");
        assert_ne!(differences(&Page::parse(&wrong), format.tables, "page"), Vec::<String>::new(), "{from}");
    }
}
