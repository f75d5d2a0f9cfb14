//! The word `lfs`: its options, in the file system's own terms.

use async_trait::async_trait;

use super::Word;
use super::build::{Maker, Trouble};
use super::file_systems::{CheckOptions, Checked, Fact, FileSystemKind, Finding, Identity, Probed, Usage};
use super::value::{Kind, Percent, Value};
use super::words::{Param, WordSpec};
use crate::device::{Buf, Device};
use crate::fs::Fs;
use crate::fs::lfs::{self, CleanerPolicy, Dump, FsckOptions, MkfsOptions, Options, VolumeInfo, layout};
use crate::rt::Rt;
use crate::units::{KIB, MIB, Nanos, SECTOR_BYTES, Sector, WallTime};

/// Longest label of a volume.
const LABEL_BYTES_MAX: usize = 63;

const DAY: Nanos = Nanos::from_secs(86_400);

pub(super) const LFS: WordSpec = WordSpec {
    name: "lfs",
    help: "log-structured file system [ro92] [se93]",
    argument: None,
    options: &[
        Param::new(
            "segment",
            Kind::Bytes {
                min: layout::SEGMENT_SECTORS_MIN * SECTOR_BYTES,
                max: layout::SEGMENT_SECTORS_MAX * SECTOR_BYTES,
            },
            "size of a segment of the log (default by the size of the volume)",
        )
        .fixed(),
        Param::new("reserve", Kind::Percent { max: Percent::new(50) }, "space kept back for the cleaner")
            .default("5%")
            .fixed(),
        Param::new("label", Kind::Text { bytes_max: LABEL_BYTES_MAX }, "name of the volume, for people").fixed(),
        Param::new("uuid", Kind::Uuid, "name of the volume, for programs (default drawn by mkfs)").fixed(),
        Param::new("cleaner", Kind::Choice(&["greedy", "cost-benefit"]), "which segments are cleaned first")
            .default("cost-benefit"),
        Param::new(
            "checkpoint",
            Kind::Duration { min: Nanos::from_millis(1), max: DAY },
            "longest time between checkpoints [ro92 §4.1]",
        )
        .default("30s"),
        Param::new(
            "write-back",
            Kind::Duration { min: Nanos::from_millis(1), max: DAY },
            "longest time that a change waits in memory",
        )
        .default("5s"),
        Param::new("cache", Kind::Bytes { min: MIB, max: 1 << 40 }, "memory for clean blocks").default("32MiB"),
        Param::new("dirty", Kind::Bytes { min: 64 * KIB, max: 1 << 40 }, "memory for changes before writers wait")
            .default("16MiB"),
        Param::new("discard", Kind::Switch, "give the space of cleaned segments back to the storage below")
            .default("on"),
        Param::new(
            "indirect",
            Kind::Choice(&["checkpoint", "log"]),
            "when indirect blocks are written: at checkpoints, or with every transaction as in [ro92]",
        )
        .default("checkpoint"),
        Param::new("ro", Kind::Switch, "change nothing").default("off"),
    ],
    maker: Maker::FileSystem(&Lfs),
};

struct Lfs;

const DUMPS: &[(&str, &str)] = &[
    ("volume", "superblock and checkpoints; shown when nothing is said"),
    ("log", "one line for each segment that holds a part of the log"),
    ("segment:NUMBER", "what is in one segment"),
    ("inode:ADDRESS", "one inode, at an address as the inode map has it"),
];

/// The word's `reserve` in the unit of the format.
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
    word.check_fixed(&[
        ("segment", Value::Bytes(info.segment_bytes)),
        ("label", Value::Text(info.label.clone())),
        ("uuid", Value::Uuid(info.uuid)),
    ])?;
    if word.given("reserve").is_some() {
        let wanted = lfs::reserve_segments(info.segment_count, reserve_permille(word)?);
        if wanted != info.reserve_segments {
            let problem = format!(
                "the line says {} ({wanted} of {} segments), but the file system was made with {}",
                word.percent("reserve"),
                info.segment_count,
                info.reserve_segments
            );
            return Err(Trouble::Option { key: "reserve", problem });
        }
    }
    Ok(())
}

fn mount_options(word: &Word, usage: Usage) -> Options {
    Options {
        read_only: usage.read_only || word.switch("ro"),
        cleaner: match word.choice("cleaner") {
            "greedy" => CleanerPolicy::Greedy,
            _ => CleanerPolicy::CostBenefit,
        },
        checkpoint_interval: word.duration("checkpoint"),
        write_back_interval: word.duration("write-back"),
        cache_bytes: word.bytes("cache"),
        dirty_bytes_max: word.bytes("dirty"),
        discard: word.switch("discard"),
        indirect_in_log: word.choice("indirect") == "log",
        cache_data: !usage.data_cached_above,
    }
}

/// True when one of the superblock's places holds something of this format, intact or not.
async fn has_magic(device: &Device) -> Result<bool, Trouble> {
    let geometry = device.geometry();
    let block_sectors = lfs::format::BLOCK_BYTES as u64 / SECTOR_BYTES;
    let last = (geometry.sectors / block_sectors).checked_sub(1).map(|block| Sector(block * block_sectors));
    for place in lfs::format::SUPERBLOCK_SECTORS.into_iter().chain(last) {
        if place.0 + block_sectors > geometry.sectors {
            continue;
        }
        let block = device.read(place, Buf::dirty(lfs::format::BLOCK_BYTES)).await?;
        if crate::codec::get_at::<u64>(&block, 0) == Some(lfs::format::SUPERBLOCK_MAGIC) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn what_to_dump(what: Option<&str>) -> Result<Dump, Trouble> {
    let Some(what) = what else { return Ok(Dump::default()) };
    let number = |text: &str| match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let found = match what.split_once(':') {
        None if what == "volume" => Some(Dump::Volume),
        None if what == "log" => Some(Dump::Log),
        Some(("segment", text)) => number(text).map(Dump::Segment),
        Some(("inode", text)) => number(text).map(Dump::InodeSlot),
        _ => None,
    };
    found.ok_or_else(|| {
        let forms: Vec<&str> = DUMPS.iter().map(|(form, _)| *form).collect();
        Trouble::other(format!("lfs cannot dump `{what}`")).hint(format!("one of: {}", forms.join(", ")))
    })
}

#[async_trait(?Send)]
impl FileSystemKind for Lfs {
    async fn mkfs(&self, rt: &Rt, device: Device, word: &Word, identity: &Identity) -> Result<(), Trouble> {
        let drawn = MkfsOptions::new(identity.random);
        let given = match word.given("uuid") {
            Some(Value::Uuid(uuid)) => Some(*uuid),
            _ => None,
        };
        let options = MkfsOptions {
            uuid: identity.uuid.or(given).unwrap_or(drawn.uuid),
            label: identity.label.as_deref().or(word.text("label")).unwrap_or_default().to_owned(),
            segment_bytes: word.given("segment").map(|_| word.bytes("segment")),
            reserve_permille: reserve_permille(word)?,
            uid: identity.uid,
            gid: identity.gid,
            ..drawn
        };
        Ok(lfs::mkfs(rt, &device, &options).await?)
    }

    async fn mount(&self, rt: &Rt, device: Device, word: &Word, usage: Usage) -> Result<Fs, Trouble> {
        check_fixed(word, &lfs::info(&device).await?)?;
        Ok(lfs::mount(rt.clone(), device, mount_options(word, usage)).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device, word: &Word, options: CheckOptions) -> Result<Checked, Trouble> {
        check_fixed(word, &lfs::info(&device).await?)?;
        // There is nothing to repair by rule: what a power cut leaves behind is mended by mounting.
        let found = lfs::fsck(rt.clone(), device, FsckOptions { data: options.data }).await?;
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

    async fn dump(&self, _: &Rt, device: Device, word: &Word, what: Option<&str>) -> Result<String, Trouble> {
        let what = what_to_dump(what)?;
        check_fixed(word, &lfs::info(&device).await?)?;
        Ok(lfs::dump(&device, what).await?)
    }

    fn dumps(&self) -> &'static [(&'static str, &'static str)] {
        DUMPS
    }

    async fn probe(&self, _: &Rt, device: Device) -> Result<Option<Probed>, Trouble> {
        if !has_magic(&device).await? {
            return Ok(None);
        }
        let info = lfs::info(&device).await?;
        Ok(Some(Probed {
            uuid: info.uuid,
            label: Some(info.label).filter(|label| !label.is_empty()),
            facts: vec![
                ("format", Fact::Text(format!("lfs version {}", info.version))),
                ("created", Fact::Time(WallTime { seconds: info.created_seconds, nanos: 0 })),
                ("size", Fact::Bytes(info.volume_bytes)),
                ("capacity", Fact::Bytes(info.capacity_bytes)),
                ("live", Fact::Bytes(info.live_bytes)),
                ("inodes", Fact::Count(info.inodes)),
                ("segment", Fact::Bytes(info.segment_bytes)),
                ("segments", Fact::Count(info.segment_count)),
                ("reserve_segments", Fact::Count(info.reserve_segments)),
                ("clean", Fact::Flag(info.clean)),
                ("checkpoint", Fact::Count(info.checkpoint_serial)),
                ("checkpoint_time", Fact::Time(info.checkpoint_time)),
            ],
        }))
    }
}
