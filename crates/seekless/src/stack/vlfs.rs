//! The word `vlfs`: its options, in the file system's own terms.

use async_trait::async_trait;

use super::Word;
use super::build::{Maker, Trouble};
use super::file_systems::{CheckOptions, Checked, Fact, FileSystemKind, Finding, Identity, Probed, Usage};
use super::value::{Kind, Percent, Value};
use super::words::{Param, WordSpec};
use crate::device::{Buf, Device};
use crate::fs::Fs;
use crate::fs::vlfs::{self, CompactUse, Dump, FsckOptions, MkfsOptions, Options, VolumeInfo};
use crate::rt::Rt;
use crate::units::{KIB, MIB, Nanos, SECTOR_BYTES, Sector, WallTime};
use crate::vlog::format::{ABOVE_AT, FIXED_BYTES};

/// Longest label of a volume.
const LABEL_BYTES_MAX: usize = 63;

const DAY: Nanos = Nanos::from_secs(86_400);

pub(super) const VLFS: WordSpec = WordSpec {
    name: "vlfs",
    help: "log-structured file system on the virtual log: every write goes wherever the head is [wa99]",
    argument: None,
    options: &[
        Param::new(
            "inode-bytes",
            Kind::Bytes { min: 4 * KIB, max: 1 << 40 },
            "where mkfs makes it: one inode number for so many bytes of the volume",
        )
        .default("8KiB"),
        Param::new(
            "reserve",
            Kind::Percent { max: Percent::new(50) },
            "where mkfs makes it: space kept back, so that there is choice on a full volume",
        )
        .default("5%"),
        Param::new("label", Kind::Text { bytes_max: LABEL_BYTES_MAX }, "name of the volume, for people").fixed(),
        Param::new("uuid", Kind::Uuid, "name of the volume, for programs (default drawn by mkfs)").fixed(),
        Param::new(
            "write-back",
            Kind::Duration { min: Nanos::from_millis(1), max: DAY },
            "longest time that a change waits in memory",
        )
        .default("5s"),
        Param::new("cache", Kind::Bytes { min: MIB, max: 1 << 40 }, "memory for clean blocks").default("32MiB"),
        Param::new("dirty", Kind::Bytes { min: 64 * KIB, max: 1 << 40 }, "memory for changes before writers wait")
            .default("16MiB"),
        Param::new(
            "keep",
            Kind::Percent { max: Percent { hundredths: 9_500 } },
            "share of a track that stays free when empty tracks are filled",
        )
        .default("25%"),
        Param::new(
            "window",
            Kind::Bytes { min: 64 * KIB, max: 1 << 50 },
            "where later pieces of the log may be: what the next start searches after a power cut, at most",
        )
        .default("64MiB"),
        Param::new("discard", Kind::Switch, "give long stretches that were freed back to the storage below")
            .default("on"),
        Param::new(
            "compact",
            Kind::Switch,
            "empty tracks while there is nothing else to do, where the storage tells where its head is",
        )
        .default("on"),
        Param::new("ro", Kind::Switch, "change nothing").default("off"),
    ],
    maker: Maker::FileSystem(&Vlfs),
};

struct Vlfs;

const DUMPS: &[(&str, &str)] = &[
    ("volume", "superblock and anchors; shown when nothing is said"),
    ("map", "where each inode is, one line each"),
    ("inode:NUMBER", "one inode"),
];

/// The word's `reserve` in the unit of mkfs.
fn reserve_permille(word: &Word) -> Result<u32, Trouble> {
    let hundredths = word.percent("reserve").hundredths;
    match hundredths % 10 {
        0 => Ok(hundredths / 10),
        _ => {
            Err(Trouble::Option { key: "reserve", problem: "it is kept in tenths of a percent; give one digit".into() })
        }
    }
}

/// Options at mkfs that the line may repeat at mount, and what the superblock says.
fn check_fixed(word: &Word, info: &VolumeInfo) -> Result<(), Trouble> {
    word.check_fixed(&[("label", Value::Text(info.label.clone())), ("uuid", Value::Uuid(info.uuid))])
}

fn mount_options(word: &Word, usage: Usage) -> Options {
    Options {
        read_only: usage.read_only || word.switch("ro"),
        write_back_interval: word.duration("write-back"),
        cache_bytes: word.bytes("cache"),
        dirty_bytes_max: word.bytes("dirty"),
        keep: word.percent("keep").hundredths,
        window: word.bytes("window"),
        discard: word.switch("discard"),
        compact: if word.switch("compact") { CompactUse::WithHead } else { CompactUse::Never },
        cache_data: !usage.data_cached_above,
    }
}

/// True when one of the superblock's places holds something of this format, intact or not.
async fn has_magic(device: &Device) -> Result<bool, Trouble> {
    let sectors = device.geometry().sectors;
    let fixed = FIXED_BYTES as u64 / SECTOR_BYTES;
    let last = (sectors / fixed).checked_sub(1).map(|unit| Sector(unit * fixed));
    for place in [Some(Sector::ZERO), last].into_iter().flatten() {
        if place.0 + fixed > sectors {
            continue;
        }
        let block = device.read(place, Buf::dirty(FIXED_BYTES)).await?;
        if block[ABOVE_AT..].starts_with(&vlfs::format::MAGIC) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn what_to_dump(what: Option<&str>) -> Result<Dump, Trouble> {
    let Some(what) = what else { return Ok(Dump::default()) };
    let found = match what.split_once(':') {
        None if what == "volume" => Some(Dump::Volume),
        None if what == "map" => Some(Dump::Map),
        Some(("inode", text)) => text.parse().ok().map(Dump::Inode),
        _ => None,
    };
    found.ok_or_else(|| {
        let forms: Vec<&str> = DUMPS.iter().map(|(form, _)| *form).collect();
        Trouble::other(format!("vlfs cannot dump `{what}`")).hint(format!("one of: {}", forms.join(", ")))
    })
}

#[async_trait(?Send)]
impl FileSystemKind for Vlfs {
    async fn mkfs(&self, rt: &Rt, device: Device, word: &Word, identity: &Identity) -> Result<(), Trouble> {
        let drawn = MkfsOptions::new(identity.random);
        let given = match word.given("uuid") {
            Some(Value::Uuid(uuid)) => Some(*uuid),
            _ => None,
        };
        let options = MkfsOptions {
            uuid: identity.uuid.or(given).unwrap_or(drawn.uuid),
            label: identity.label.as_deref().or(word.text("label")).unwrap_or_default().to_owned(),
            bytes_per_inode: word.bytes("inode-bytes"),
            reserve_permille: reserve_permille(word)?,
            uid: identity.uid,
            gid: identity.gid,
            ..drawn
        };
        Ok(vlfs::mkfs(rt, &device, &options).await?)
    }

    async fn mount(&self, rt: &Rt, device: Device, word: &Word, usage: Usage) -> Result<Fs, Trouble> {
        check_fixed(word, &vlfs::info(&device).await?)?;
        Ok(vlfs::mount(rt.clone(), device, mount_options(word, usage)).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device, word: &Word, options: CheckOptions) -> Result<Checked, Trouble> {
        check_fixed(word, &vlfs::info(&device).await?)?;
        // There is nothing to repair by rule: what a power cut leaves behind is mended by mounting.
        let found = vlfs::fsck(rt.clone(), device, FsckOptions { data: options.data }).await?;
        Ok(Checked {
            findings: found.errors.into_iter().map(|text| Finding { text, repaired: false }).collect(),
            unlisted: found.errors_unlisted,
            notes: found.notes,
            counts: vec![
                ("files", found.files),
                ("directories", found.directories),
                ("others", found.others),
                ("live_bytes", found.live_bytes),
                ("data_blocks", found.data_blocks),
            ],
        })
    }

    async fn dump(&self, rt: &Rt, device: Device, word: &Word, what: Option<&str>) -> Result<String, Trouble> {
        let what = what_to_dump(what)?;
        check_fixed(word, &vlfs::info(&device).await?)?;
        Ok(vlfs::dump(rt, &device, what).await?)
    }

    fn dumps(&self) -> &'static [(&'static str, &'static str)] {
        DUMPS
    }

    async fn probe(&self, _: &Rt, device: Device) -> Result<Option<Probed>, Trouble> {
        if !has_magic(&device).await? {
            return Ok(None);
        }
        let info = vlfs::info(&device).await?;
        Ok(Some(Probed {
            uuid: info.uuid,
            label: Some(info.label).filter(|label| !label.is_empty()),
            facts: vec![
                ("format", Fact::Text(format!("vlfs version {}", info.version))),
                ("created", Fact::Time(WallTime { seconds: info.created_seconds, nanos: 0 })),
                ("size", Fact::Bytes(info.volume_bytes)),
                ("capacity", Fact::Bytes(info.capacity_bytes)),
                ("reserve", Fact::Bytes(info.reserve_bytes)),
                ("inodes_max", Fact::Count(info.inodes_max)),
                ("clean", Fact::Flag(info.clean)),
            ],
        }))
    }
}
