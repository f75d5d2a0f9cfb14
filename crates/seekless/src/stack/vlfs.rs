//! The word `vlfs`: its options, in the file system's own terms.

use async_trait::async_trait;

use super::Word;
use super::error::BuildError;
use super::file_systems::{CheckOptions, Checked, Fact, FileSystemKind, Identity, Probed, Usage};
use super::logs::{
    CACHE, DIRTY, KEEP, LABEL, READ_ONLY, UUID, WINDOW, WRITE_BACK, checked, given_label, given_uuid, is_anywhere,
    part_to_dump, reserve_permille,
};
use super::signature::{MagicOffset, Signature};
use super::spec::{Constructor, Param, WordSpec};
use super::value::{ParamKind, Percent, Value};
use crate::device::Device;
use crate::fs::Fs;
use crate::fs::vlfs::{self, CompactUse, Dump, FsckOptions, MkfsOptions, Options, VolumeInfo};
use crate::rt::Rt;
use crate::units::{KIB, Sector, WallTime};
use crate::vlog::format::{ABOVE_AT, FIXED_BYTES};

pub(super) const VLFS: WordSpec = WordSpec {
    name: "vlfs",
    help: "log-structured file system on the virtual log: every write goes near the head [wa99]",
    argument: None,
    options: &[
        Param::new(
            "inode-bytes",
            ParamKind::Bytes { min: 4 * KIB, max: 1 << 40 },
            "bytes of the volume for each inode number",
        )
        .default("8KiB")
        .only_mkfs(),
        Param::new(
            "reserve",
            ParamKind::Percent { max: Percent::new(50) },
            "space held back, so that a full volume still has free blocks to choose from",
        )
        .default("5%")
        .only_mkfs(),
        LABEL,
        UUID,
        WRITE_BACK,
        CACHE,
        DIRTY,
        KEEP,
        WINDOW,
        Param::new("discard", ParamKind::Switch, "discard long freed ranges on the storage below").default("on"),
        Param::new(
            "compact",
            ParamKind::Switch,
            "empty tracks while idle, where the storage reports the position of its head",
        )
        .default("on"),
        READ_ONLY,
    ],
    properties: &[],
    constructor: Constructor::FileSystem(&Vlfs),
};

struct Vlfs;

const DUMPS: &[(&str, &str)] = &[
    ("volume", "superblock and anchors; the default"),
    ("map", "where each inode is, one line each"),
    ("inode:NUMBER", "one inode"),
];

/// Compares options fixed at mkfs, which the line may repeat at mount, with the superblock.
fn check_fixed(word: &Word, info: &VolumeInfo) -> Result<(), BuildError> {
    word.check_fixed(&[("label", Value::Text(info.label.clone())), ("uuid", Value::Uuid(info.uuid))])
}

fn mount_options(word: &Word, usage: Usage) -> Options {
    Options {
        read_only: usage.read_only || word.switch("ro"),
        write_back_interval: word.duration("write-back"),
        cache_bytes: word.bytes("cache"),
        dirty_bytes_max: word.bytes("dirty"),
        track_fill_reserve: word.percent("keep").hundredths,
        window: word.bytes("window"),
        discard: word.switch("discard"),
        compact: if word.switch("compact") { CompactUse::WithHead } else { CompactUse::Never },
        cache_data: !usage.data_cached_above,
    }
}

fn has_magic(block: &[u8]) -> bool {
    block[ABOVE_AT..].starts_with(&vlfs::format::MAGIC)
}

#[async_trait(?Send)]
impl FileSystemKind for Vlfs {
    fn signature(&self) -> &'static Signature {
        const AT: u64 = ABOVE_AT as u64;
        const SIGNATURE: Signature = Signature {
            name: "a Seekless VLFS file system",
            magics: &[
                (MagicOffset::Start(AT), &vlfs::format::MAGIC),
                (MagicOffset::LastUnit(4096 - AT), &vlfs::format::MAGIC),
            ],
        };
        &SIGNATURE
    }

    async fn mkfs(&self, rt: &Rt, device: Device, word: &Word, identity: &Identity) -> Result<(), BuildError> {
        let drawn = MkfsOptions::new(identity.random);
        let options = MkfsOptions {
            uuid: given_uuid(word, identity).unwrap_or(drawn.uuid),
            label: given_label(word, identity),
            bytes_per_inode: word.bytes("inode-bytes"),
            reserve_permille: reserve_permille(word)?,
            discard: word.switch("discard"),
            uid: identity.uid,
            gid: identity.gid,
            ..drawn
        };
        Ok(vlfs::mkfs(rt, &device, &options).await?)
    }

    async fn mount(&self, rt: &Rt, device: Device, word: &Word, usage: Usage) -> Result<Fs, BuildError> {
        check_fixed(word, &vlfs::info(&device).await?)?;
        Ok(vlfs::mount(rt.clone(), device, mount_options(word, usage)).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device, word: &Word, options: CheckOptions) -> Result<Checked, BuildError> {
        check_fixed(word, &vlfs::info(&device).await?)?;
        let options = FsckOptions { data: options.data, repair: options.repair };
        Ok(checked(vlfs::fsck(rt.clone(), device, options).await?))
    }

    fn has_checksums(&self) -> bool {
        true
    }

    fn repairs(&self) -> bool {
        true
    }

    async fn dump(&self, rt: &Rt, device: Device, word: &Word, what: Option<&str>) -> Result<String, BuildError> {
        let what = part_to_dump(what, word, DUMPS, |part, argument| match (part, argument) {
            ("volume", None) => Some(Dump::Volume),
            ("map", None) => Some(Dump::Map),
            ("inode", Some(text)) => text.parse().ok().map(Dump::Inode),
            _ => None,
        })?;
        check_fixed(word, &vlfs::info(&device).await?)?;
        Ok(vlfs::dump(rt, &device, what).await?)
    }

    fn dumps(&self) -> &'static [(&'static str, &'static str)] {
        DUMPS
    }

    async fn probe(&self, _: &Rt, device: Device) -> Result<Option<Probed>, BuildError> {
        if !is_anywhere(&device, &[Sector::ZERO], FIXED_BYTES, has_magic).await? {
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
