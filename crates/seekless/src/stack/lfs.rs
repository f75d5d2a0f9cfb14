//! The word `lfs`: its options, in the file system's own terms.

use async_trait::async_trait;

use super::Word;
use super::error::BuildError;
use super::file_systems::{CheckOptions, Checked, Fact, FileSystemKind, Identity, Probed, Usage};
use super::logs::{
    CACHE, DAY, DIRTY, LABEL, READ_ONLY, UUID, WRITE_BACK, checked, given_label, given_uuid, is_anywhere, part_to_dump,
    reserve_permille,
};
use super::signature::{MagicOffset, Signature};
use super::spec::{Constructor, Param, WordSpec};
use super::value::{ParamKind, Percent, Value};
use crate::device::Device;
use crate::fs::Fs;
use crate::fs::lfs::format::{SUPERBLOCK_MAGIC, SUPERBLOCK_SECTORS};
use crate::fs::lfs::{self, CleanerPolicy, Dump, FsckOptions, MkfsOptions, Options, VolumeInfo, layout};
use crate::rt::Rt;
use crate::units::{Nanos, SECTOR_BYTES, WallTime};

pub(super) const LFS: WordSpec = WordSpec {
    name: "lfs",
    help: "log-structured file system [ro92] [se93]",
    argument: None,
    options: &[
        Param::new(
            "segment",
            ParamKind::Bytes {
                min: layout::SEGMENT_SECTORS_MIN * SECTOR_BYTES,
                max: layout::SEGMENT_SECTORS_MAX * SECTOR_BYTES,
            },
            "size of a segment of the log (default by the size of the volume)",
        )
        .fixed(),
        Param::new("reserve", ParamKind::Percent { max: Percent::new(50) }, "space reserved for the cleaner")
            .default("5%")
            .fixed(),
        LABEL,
        UUID,
        Param::new("cleaner", ParamKind::Choice(&lfs::CLEANER_NAMES), "which segments are cleaned first")
            .default("age-sort"),
        Param::new(
            "checkpoint",
            ParamKind::Duration { min: Nanos::from_millis(1), max: DAY },
            "longest time between checkpoints [ro92 §4.1]",
        )
        .default("30s"),
        WRITE_BACK,
        CACHE,
        DIRTY,
        Param::new("discard", ParamKind::Switch, "discard cleaned segments on the storage below").default("on"),
        Param::new(
            "discard-after",
            ParamKind::Duration { min: Nanos::ZERO, max: DAY },
            "how long a cleaned segment waits to be reused before it is discarded (default 0s; a mount: 30s)",
        ),
        Param::new(
            "indirect",
            ParamKind::Choice(&["checkpoint", "log"]),
            "when indirect blocks are written: at checkpoints, or with every transaction as in [ro92]",
        )
        .default("checkpoint"),
        Param::new(
            "overlap",
            ParamKind::Switch,
            "programs make changes while earlier ones are being written; off: they wait, as in the arithmetic of [se95 §4]",
        )
        .default("on"),
        Param::new("readahead", ParamKind::Switch, "read ahead for sequential readers").default("on"),
        Param::new(
            "read-around",
            ParamKind::Bytes { min: 0, max: READ_AROUND_BYTES },
            "inodes near a wanted one are read with it, up to this size (default 0, only its group; a mount with read-ahead: 128KiB)",
        ),
        READ_ONLY,
    ],
    properties: &[],
    constructor: Constructor::FileSystem(&Lfs),
};

struct Lfs;

const DUMPS: &[(&str, &str)] = &[
    ("volume", "superblock and checkpoints; the default"),
    ("log", "one line for each segment that holds a part of the log"),
    ("segment:NUMBER", "contents of one segment"),
    ("inode:ADDRESS", "one inode, by its address in the inode map"),
];

/// Compares options fixed at mkfs, which the line may repeat at mount, with the superblock.
fn check_fixed(word: &Word, info: &VolumeInfo) -> Result<(), BuildError> {
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
            return Err(BuildError::Option { key: "reserve", problem });
        }
    }
    Ok(())
}

/// Default of a mount. A read of so much takes little longer than one of a group of inodes, on a drive without moving parts or
/// with them. A modelled drive shows what the published system does.
const READ_AROUND_BYTES: u64 = 128 << 10;

/// Default of a mount. On ext4 a write of 512 KiB and fdatasync take 200 us where the file has been written before, and 340 us where it has only been allocated;
/// one of 8 KiB takes 104 and 163 us.
const DISCARD_AFTER: Nanos = Nanos::from_secs(30);

fn mount_options(word: &Word, usage: Usage) -> Options {
    let is_mount = usage.data_cached_above;
    let discard_after = match word.given("discard-after") {
        Some(&Value::Duration(given)) => given,
        _ if is_mount => DISCARD_AFTER,
        _ => Nanos::ZERO,
    };
    let read_around_bytes = match word.given("read-around") {
        Some(&Value::Bytes(given)) => given,
        _ if is_mount && word.switch("readahead") => READ_AROUND_BYTES,
        _ => 0,
    };
    Options {
        read_only: usage.read_only || word.switch("ro"),
        cleaner: CleanerPolicy::named(word.choice("cleaner")).unwrap_or_default(),
        checkpoint_interval: word.duration("checkpoint"),
        write_back_interval: word.duration("write-back"),
        cache_bytes: word.bytes("cache"),
        dirty_bytes_max: word.bytes("dirty"),
        discard: word.switch("discard"),
        discard_after,
        indirect_in_log: word.choice("indirect") == "log",
        overlap: word.switch("overlap"),
        read_ahead: word.switch("readahead"),
        cache_data: !is_mount,
        read_around_bytes,
    }
}

fn has_magic(block: &[u8]) -> bool {
    crate::codec::get_at::<u64>(block, 0) == Some(SUPERBLOCK_MAGIC)
}

#[async_trait(?Send)]
impl FileSystemKind for Lfs {
    fn signature(&self) -> &'static Signature {
        const MAGIC: &[u8] = &SUPERBLOCK_MAGIC.to_le_bytes();
        const SECOND: u64 = SUPERBLOCK_SECTORS[1].0 * SECTOR_BYTES;
        const SIGNATURE: Signature = Signature {
            name: "a Seekless LFS file system",
            magics: &[
                (MagicOffset::Start(0), MAGIC),
                (MagicOffset::Start(SECOND), MAGIC),
                (MagicOffset::LastUnit(4096), MAGIC),
            ],
        };
        &SIGNATURE
    }

    async fn mkfs(&self, rt: &Rt, device: Device, word: &Word, identity: &Identity) -> Result<(), BuildError> {
        let drawn = MkfsOptions::new(identity.random);
        let given = given_uuid(word, identity);
        let options = MkfsOptions {
            uuid: given.unwrap_or(drawn.uuid),
            uuid_is_given: given.is_some(),
            label: given_label(word, identity),
            segment_bytes: word.given("segment").map(|_| word.bytes("segment")),
            reserve_permille: reserve_permille(word)?,
            discard: word.switch("discard"),
            uid: identity.uid,
            gid: identity.gid,
            ..drawn
        };
        Ok(lfs::mkfs(rt, &device, &options).await?)
    }

    async fn mount(&self, rt: &Rt, device: Device, word: &Word, usage: Usage) -> Result<Fs, BuildError> {
        check_fixed(word, &lfs::info(&device).await?)?;
        Ok(lfs::mount(rt.clone(), device, mount_options(word, usage)).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device, word: &Word, options: CheckOptions) -> Result<Checked, BuildError> {
        check_fixed(word, &lfs::info(&device).await?)?;
        let options = FsckOptions { data: options.data, repair: options.repair };
        Ok(checked(lfs::fsck(rt.clone(), device, options).await?))
    }

    fn writes_in_order(&self) -> bool {
        true
    }

    fn has_checksums(&self) -> bool {
        true
    }

    fn repairs(&self) -> bool {
        true
    }

    async fn dump(&self, _: &Rt, device: Device, word: &Word, what: Option<&str>) -> Result<String, BuildError> {
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        let what = part_to_dump(what, word, DUMPS, |part, argument| match (part, argument) {
            ("volume", None) => Some(Dump::Volume),
            ("log", None) => Some(Dump::Log),
            ("segment", Some(text)) => number(text).map(Dump::Segment),
            ("inode", Some(text)) => number(text).map(Dump::InodeSlot),
            _ => None,
        })?;
        check_fixed(word, &lfs::info(&device).await?)?;
        Ok(lfs::dump(&device, what).await?)
    }

    fn dumps(&self) -> &'static [(&'static str, &'static str)] {
        DUMPS
    }

    async fn probe(&self, _: &Rt, device: Device) -> Result<Option<Probed>, BuildError> {
        if !is_anywhere(&device, &lfs::format::SUPERBLOCK_SECTORS, lfs::format::BLOCK_BYTES, has_magic).await? {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Stack;

    /// What a mount does by default can be given for a simulation, and the other way round.
    #[test]
    fn both_uses_take_the_options_of_the_line() {
        let options = |line: &str, is_mount: bool| {
            let stack = Stack::parse(line).unwrap();
            let usage = Usage { read_only: false, data_cached_above: is_mount };
            let Options { discard_after, read_around_bytes, .. } = mount_options(&stack.words[0], usage);
            (discard_after, read_around_bytes)
        };
        assert_eq!(options("lfs / memory:64MiB", false), (Nanos::ZERO, 0));
        assert_eq!(options("lfs / memory:64MiB", true), (Nanos::from_secs(30), 128 << 10));
        for is_mount in [false, true] {
            let given = options("lfs:discard-after=7s,read-around=64KiB / memory:64MiB", is_mount);
            assert_eq!(given, (Nanos::from_secs(7), 64 << 10));
            let given = options("lfs:discard-after=0s,read-around=0 / memory:64MiB", is_mount);
            assert_eq!(given, (Nanos::ZERO, 0));
        }
    }
}
