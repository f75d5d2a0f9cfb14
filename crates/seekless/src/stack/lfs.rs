//! The word `lfs`: its options, in the file system's own terms.

use async_trait::async_trait;

use super::Word;
use super::build::{Maker, Trouble};
use super::file_systems::{CheckOptions, Checked, FileSystemKind, Finding, Identity, Probed};
use super::value::{Kind, Percent, Value};
use super::words::{Param, WordSpec};
use crate::device::{Buf, Device};
use crate::fs::Fs;
use crate::fs::lfs::{self, CleanerPolicy, Dump, FsckOptions, MkfsOptions, Options, VolumeInfo, format, layout};
use crate::rt::Rt;
use crate::units::{KIB, MIB, Nanos, SECTOR_BYTES, human_bytes};

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
        Param::new("cleaner", Kind::Choice(&["greedy", "cost-benefit"]), "which segments are cleaned first")
            .default("cost-benefit"),
        Param::new(
            "checkpoint",
            Kind::Duration { min: Nanos::from_millis(1), max: DAY },
            "longest time between checkpoints",
        )
        .default("30s"),
        Param::new(
            "writeback",
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
    ],
    maker: Maker::FileSystem(&Lfs),
};

struct Lfs;

/// Part of the volume in per mille, as the superblock counts it.
fn reserve_permille(word: &Word) -> Result<u32, Trouble> {
    match word.percent("reserve").hundredths {
        hundredths if hundredths % 10 == 0 => Ok(hundredths / 10),
        _ => Err(Trouble::Option { key: "reserve", problem: "it goes in steps of 0.1%".into() }),
    }
}

/// Compares what the line says with what the volume says.
fn check_fixed(word: &Word, volume: &VolumeInfo) -> Result<(), Trouble> {
    word.check_fixed(&[("segment", Value::Bytes(volume.segment_bytes)), ("label", Value::Text(volume.label.clone()))])?;
    if word.given("reserve").is_some() {
        let wanted = lfs::reserve_segments(volume.segment_count, reserve_permille(word)?);
        if wanted != volume.reserve_segments {
            let problem = format!(
                "the line asks for {wanted} segments, but the volume was made with {} of {}",
                volume.reserve_segments, volume.segment_count
            );
            return Err(Trouble::Option { key: "reserve", problem });
        }
    }
    Ok(())
}

#[async_trait(?Send)]
impl FileSystemKind for Lfs {
    async fn mkfs(&self, rt: &Rt, device: Device, word: &Word, identity: &Identity) -> Result<(), Trouble> {
        let options = MkfsOptions {
            uuid: identity.uuid,
            label: identity.label.clone().or(word.text("label").map(str::to_owned)).unwrap_or_default(),
            segment_bytes: word.given("segment").map(|_| word.bytes("segment")),
            reserve_permille: reserve_permille(word)?,
            uid: identity.uid,
            gid: identity.gid,
            ..MkfsOptions::new([0, 0, identity.secret[0], identity.secret[1]])
        };
        Ok(lfs::mkfs(rt, &device, &options).await?)
    }

    async fn mount(&self, rt: &Rt, device: Device, word: &Word, read_only: bool) -> Result<Fs, Trouble> {
        check_fixed(word, &lfs::info(&device).await?)?;
        let cleaner = match word.choice("cleaner") {
            "greedy" => CleanerPolicy::Greedy,
            _ => CleanerPolicy::CostBenefit,
        };
        let options = Options {
            read_only,
            cleaner,
            checkpoint_interval: word.duration("checkpoint"),
            write_back_interval: word.duration("writeback"),
            cache_bytes: word.bytes("cache"),
            dirty_bytes_max: word.bytes("dirty"),
            discard: word.switch("discard"),
            indirect_in_log: word.choice("indirect") == "log",
            // On a real clock there is a kernel above, which keeps file data already.
            cache_data: rt.is_virtual(),
        };
        Ok(lfs::mount(rt.clone(), device, options).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device, word: &Word, options: CheckOptions) -> Result<Checked, Trouble> {
        check_fixed(word, &lfs::info(&device).await?)?;
        let found = lfs::fsck(rt.clone(), device, FsckOptions { data: options.data }).await?;
        Ok(Checked {
            // Mounting mends what a crash leaves behind. What is found here nobody can mend.
            findings: found.errors.into_iter().map(|text| Finding { text, repaired: false }).collect(),
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

    async fn dump(&self, _rt: &Rt, device: Device, word: &Word, what: Option<&str>) -> Result<String, Trouble> {
        check_fixed(word, &lfs::info(&device).await?)?;
        let number = |text: &str| text.parse().ok();
        let part = match what.map(|what| what.split_once(':').unwrap_or((what, ""))) {
            None | Some(("volume", "")) => Some(Dump::Volume),
            Some(("log", "")) => Some(Dump::Log),
            Some(("segment", segment)) => number(segment).map(Dump::Segment),
            Some(("inode", address)) => number(address).map(Dump::InodeSlot),
            Some(_) => None,
        };
        match part {
            Some(part) => Ok(lfs::dump(&device, part).await?),
            None => Err(Trouble::other(format!("lfs has no part `{}` to dump", what.unwrap_or_default()))
                .hint("one of: volume, log, segment:NUMBER, inode:ADDRESS")),
        }
    }

    async fn probe(&self, _rt: &Rt, device: Device) -> Result<Option<Probed>, Trouble> {
        if !has_superblock(&device).await? {
            return Ok(None);
        }
        let volume = lfs::info(&device).await?;
        Ok(Some(Probed {
            uuid: volume.uuid,
            label: Some(volume.label).filter(|label| !label.is_empty()),
            facts: vec![
                ("version", volume.version.to_string()),
                ("volume", human_bytes(volume.volume_bytes)),
                ("segment", human_bytes(volume.segment_bytes)),
                ("segments", volume.segment_count.to_string()),
                ("reserve", format!("{} segments", volume.reserve_segments)),
                ("closed", if volume.clean { "cleanly" } else { "no; mounting rolls forward" }.to_string()),
                ("inodes", volume.inodes.to_string()),
                ("live", human_bytes(volume.live_bytes)),
                ("capacity", human_bytes(volume.capacity_bytes)),
            ],
        }))
    }
}

/// True when a superblock of this kind begins in one of its places, intact or not.
async fn has_superblock(device: &Device) -> Result<bool, Trouble> {
    let sectors = device.geometry().sectors;
    for place in format::SUPERBLOCK_SECTORS {
        if place.0 + format::BLOCK_SECTORS > sectors {
            continue;
        }
        let block = device.read(place, Buf::zeroed(format::BLOCK_BYTES)).await?;
        if block.starts_with(&format::SUPERBLOCK_MAGIC.to_le_bytes()) {
            return Ok(true);
        }
    }
    Ok(false)
}
