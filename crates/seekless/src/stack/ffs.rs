//! The word `ffs`: its options, in the file system's own terms.

use async_trait::async_trait;

use super::Word;
use super::error::BuildError;
use super::file_systems::{CheckOptions, Checked, Fact, FileSystemKind, Finding, Identity, Probed, Usage};
use super::signature::{MagicOffset, Signature};
use super::spec::{Constructor, Param, WordSpec};
use super::value::{ParamKind, Percent, Value};
use crate::device::Device;
use crate::device::rescue::rescue;
use crate::fs::Fs;
use crate::fs::ffs::numbers::{FragNo, GroupNo, InodeNo};
use crate::fs::ffs::{self, DriveShape, Dump, FsckOptions, Metadata, MkfsOptions, Options, Profile, format};
use crate::rt::Rt;
use crate::units::{KIB, MIB, Nanos, SECTOR_BYTES, Sector};

/// Longest label of a volume.
const LABEL_BYTES_MAX: usize = 31;

const DAY: Nanos = Nanos::from_secs(86_400);

pub(super) const FFS: WordSpec = WordSpec {
    name: "ffs",
    help: "Berkeley Fast File System [mc84], on UFS1",
    argument: None,
    options: &[
        Param::new("block", ParamKind::Bytes { min: 4 * KIB, max: 64 * KIB }, "size of a block (default 8 KiB)")
            .fixed(),
        Param::new("fragment", ParamKind::Bytes { min: 512, max: 64 * KIB }, "size of a fragment (default 1 KiB)")
            .fixed(),
        Param::new(
            "profile",
            ParamKind::Choice(&["plain", "newfs", "m8r0", "m8r2", "m1r2"]),
            "layout: plain for drives that do not tell their shape, newfs as 4.4BSD made it, the others as in [se95]",
        )
        .default("plain")
        .fixed(),
        Param::new(
            "tracks",
            ParamKind::Integer { min: 1, max: 1024 },
            "tracks of a cylinder (default as the drive of [se95])",
        )
        .fixed(),
        Param::new("sectors", ParamKind::Integer { min: 1, max: 65_535 }, "sectors of a track (default as [se95])")
            .fixed(),
        Param::new("rpm", ParamKind::Integer { min: 60, max: 100_000 }, "revolutions in a minute (default as [se95])")
            .fixed(),
        Param::new("cylinders", ParamKind::Integer { min: 1, max: 32_768 }, "cylinders of a group (default 16)")
            .fixed(),
        Param::new("groups", ParamKind::Integer { min: 1, max: 1 << 30 }, "most cylinder groups; the rest is not used")
            .only_mkfs(),
        Param::new(
            "aged",
            ParamKind::Percent { max: Percent::new(90) },
            "how full it is from the beginning, with free space in pieces as after long use [se95]; 0%: empty",
        )
        .only_mkfs(),
        Param::new("maxcontig", ParamKind::Integer { min: 1, max: 65_536 }, "blocks laid out in a row").fixed(),
        Param::new("rotdelay", ParamKind::Integer { min: 0, max: 1000 }, "gap between rows of blocks, in ms").fixed(),
        Param::new("maxbpg", ParamKind::Integer { min: 1, max: 1 << 30 }, "blocks of one file in a group").fixed(),
        Param::new("minfree", ParamKind::Percent { max: Percent::new(50) }, "space kept back (default 5%)").fixed(),
        Param::new("inode", ParamKind::Bytes { min: 128, max: MIB }, "bytes of the volume for each inode").fixed(),
        Param::new("lite2", ParamKind::Switch, "write the superblock as 4.4BSD-Lite2 did").default("off").fixed(),
        Param::new("label", ParamKind::Text { bytes_max: LABEL_BYTES_MAX }, "name of the volume, for people").fixed(),
        Param::new(
            "metadata",
            ParamKind::Choice(&["sync", "softdep", "async"]),
            "metadata at once, later in order, or later",
        )
        .default("sync"),
        Param::new(
            "moved",
            ParamKind::Choice(&["kept", "4.4bsd"]),
            "whether synced data survives a crash while it is being moved, such as the tail of a growing file (default kept, and \
             4.4bsd with a profile other than plain)",
        ),
        Param::new("update", ParamKind::Duration { min: Nanos::from_millis(1), max: DAY }, "time between updates")
            .default("30s"),
        Param::new("cache", ParamKind::Bytes { min: 64 * KIB, max: 1 << 40 }, "memory for clean blocks")
            .default("8MiB"),
        Param::new("dirty", ParamKind::Bytes { min: 64 * KIB, max: 1 << 40 }, "memory for changes before writers wait")
            .default("4MiB"),
        Param::new("cluster", ParamKind::Bytes { min: 4 * KIB, max: 16 * MIB }, "largest request for file data")
            .default("64KiB"),
        Param::new("readahead", ParamKind::Switch, "read ahead for sequential readers").default("on"),
        Param::new("realloc", ParamKind::Switch, "move the blocks of a cluster together before it is written")
            .default("off"),
        Param::new(
            "gather",
            ParamKind::Switch,
            "updates write neighbouring blocks of a file as one request, unlike 4.4BSD",
        )
        .default("off"),
        Param::new("reserve", ParamKind::Switch, "let files fill the space that is kept back").default("off"),
    ],
    properties: &[],
    constructor: Constructor::FileSystem(&Ffs),
};

struct Ffs;

const DUMPS: &[(&str, &str)] = &[
    ("volume", "superblock; shown when nothing is said"),
    ("groups", "one line for each cylinder group"),
    ("group:NUMBER", "one cylinder group"),
    ("inode:NUMBER", "one inode"),
    ("fragment:NUMBER", "the bytes of one fragment"),
];

fn number(word: &Word, key: &str) -> Option<u32> {
    word.given(key).map(|_| word.integer(key) as u32)
}

/// The line's options for a new volume.
fn mkfs_options(word: &Word, identity: &Identity) -> Result<MkfsOptions, BuildError> {
    // The format has 64 bits for the identifier of a volume.
    let name = identity.uuid.map_or(identity.random[0], |uuid| uuid.as_u64_pair().0);
    let plain = MkfsOptions::new([(name >> 32) as u32, name as u32]);
    let mut options = MkfsOptions {
        label: identity.label.clone().or(word.text("label").map(str::to_owned)).unwrap_or_default(),
        uid: identity.uid,
        gid: identity.gid,
        lite2: word.switch("lite2"),
        ..plain
    };
    if word.given("block").is_some() {
        options.block_bytes = word.bytes("block") as u32;
        options.frag_bytes = options.block_bytes / format::FRAGS_MAX as u32;
    }
    if word.given("fragment").is_some() {
        options.frag_bytes = word.bytes("fragment") as u32;
    }
    let mut drive = DriveShape::DSP3105;
    drive.tracks_per_cylinder = number(word, "tracks").unwrap_or(drive.tracks_per_cylinder);
    drive.sectors_per_track = number(word, "sectors").unwrap_or(drive.sectors_per_track);
    drive.revolutions_per_minute = number(word, "rpm").unwrap_or(drive.revolutions_per_minute);
    let shaped = ["tracks", "sectors", "rpm"].iter().any(|key| word.given(key).is_some());
    options = match word.choice("profile") {
        "newfs" => options.profile(Profile::Newfs, drive),
        "m8r0" => options.profile(Profile::M8R0, drive),
        "m8r2" => options.profile(Profile::M8R2, drive),
        "m1r2" => options.profile(Profile::M1R2, drive),
        _ if shaped => MkfsOptions { drive, ..options },
        _ => options,
    };
    options.cylinders_per_group = number(word, "cylinders").unwrap_or(options.cylinders_per_group);
    options.groups_max = number(word, "groups").unwrap_or(options.groups_max);
    if word.given("aged").is_some() {
        options.aged = Some(whole_percent(word, "aged")?).filter(|&percent| percent > 0);
    }
    options.maxcontig = number(word, "maxcontig").unwrap_or(options.maxcontig);
    options.rotdelay = number(word, "rotdelay").unwrap_or(options.rotdelay);
    options.maxbpg = number(word, "maxbpg").or(options.maxbpg);
    if word.given("inode").is_some() {
        options.bytes_per_inode = Some(word.bytes("inode") as u32);
    }
    if word.given("minfree").is_some() {
        options.minfree = whole_percent(word, "minfree")?;
    }
    Ok(options)
}

fn whole_percent(word: &Word, key: &'static str) -> Result<u32, BuildError> {
    match word.percent(key).hundredths {
        hundredths if hundredths % 100 == 0 => Ok(hundredths / 100),
        _ => Err(BuildError::Option { key, problem: "it goes in steps of 1%".into() }),
    }
}

/// Compares the line with the volume. Options that only shape a new volume (its profile, the drive's shape, bytes for
/// an inode) cannot be derived from the result, and are not compared.
fn check_fixed(word: &Word, volume: &ffs::VolumeInfo) -> Result<(), BuildError> {
    let layout = &volume.layout;
    word.check_fixed(&[
        ("block", Value::Bytes(layout.block_bytes.into())),
        ("fragment", Value::Bytes(layout.frag_bytes.into())),
        ("maxcontig", Value::Integer(layout.maxcontig.into())),
        ("rotdelay", Value::Integer(layout.rotation.rotdelay.into())),
        ("maxbpg", Value::Integer(layout.maxbpg.into())),
        ("minfree", Value::Percent(Percent::new(layout.minfree))),
        ("label", Value::Text(volume.label.clone())),
    ])?;
    Ok(())
}

#[async_trait(?Send)]
impl FileSystemKind for Ffs {
    /// Volumes of other implementations, too, also those that cannot be mounted.
    fn signature(&self) -> &'static Signature {
        const UFS1: MagicOffset = MagicOffset::Start(format::SUPERBLOCK_OFFSET + format::SUPERBLOCK_MAGIC_AT);
        const fn ufs2(index: usize) -> MagicOffset {
            MagicOffset::Start(format::UFS2_OFFSETS[index] + format::SUPERBLOCK_MAGIC_AT)
        }
        const SIGNATURE: Signature = Signature {
            name: "a UFS file system",
            magics: &[
                (UFS1, &format::UFS1_MAGIC.to_le_bytes()),
                (UFS1, &format::UFS1_MAGIC.to_be_bytes()),
                (ufs2(0), &format::UFS2_MAGIC.to_le_bytes()),
                (ufs2(0), &format::UFS2_MAGIC.to_be_bytes()),
                (ufs2(1), &format::UFS2_MAGIC.to_le_bytes()),
                (ufs2(1), &format::UFS2_MAGIC.to_be_bytes()),
            ],
        };
        &SIGNATURE
    }

    async fn mkfs(&self, rt: &Rt, device: Device, word: &Word, identity: &Identity) -> Result<(), BuildError> {
        let mut options = mkfs_options(word, identity)?;
        let least = device.geometry().block_bytes;
        if word.given("fragment").is_none() && options.frag_bytes < least {
            options.frag_bytes = least;
            if word.given("block").is_none() {
                options.block_bytes = (least * format::FRAGS_MAX as u32).min(format::BLOCK_BYTES_MAX);
            }
        }
        Ok(ffs::mkfs(rt, &device, &options).await?)
    }

    async fn mount(&self, rt: &Rt, device: Device, word: &Word, usage: Usage) -> Result<Fs, BuildError> {
        check_fixed(word, &ffs::info(&device).await?)?;
        let options = Options {
            read_only: usage.read_only,
            metadata: match word.choice("metadata") {
                "async" => Metadata::Async,
                "softdep" => Metadata::Softdep,
                _ => Metadata::Sync,
            },
            update_interval: word.duration("update"),
            cache_bytes: word.bytes("cache"),
            dirty_bytes_max: word.bytes("dirty"),
            cluster_bytes: word.bytes("cluster"),
            read_ahead: word.switch("readahead"),
            realloc_blocks: word.switch("realloc"),
            use_reserve: word.switch("reserve"),
            cache_data: !usage.data_cached_above,
            cluster_updates: word.switch("gather"),
            keep_moved: match word.given("moved") {
                Some(_) => word.choice("moved") == "kept",
                None => word.choice("profile") == "plain",
            },
        };
        Ok(ffs::mount(rt.clone(), device, options).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device, word: &Word, options: CheckOptions) -> Result<Checked, BuildError> {
        // The check finds a damaged superblock.
        if let Ok(volume) = ffs::info(&device).await {
            check_fixed(word, &volume)?;
        }
        let wanted = FsckOptions { repair: options.repair, trust_order: options.trust_order, ..FsckOptions::default() };
        let found = ffs::fsck(rt, &device, wanted).await?;
        let repairable = !found.problems.is_empty();
        let findings = found.problems.into_iter();
        Ok(Checked {
            repairable,
            findings: findings.map(|problem| Finding { text: problem.text, repaired: problem.repaired }).collect(),
            unlisted: 0,
            not_compared: 0,
            notes: found.notes,
            counts: vec![
                ("files", found.files),
                ("directories", found.directories),
                ("others", found.others),
                ("fragments_used", found.frags_used),
                ("fragments_free", found.frags_free),
            ],
        })
    }

    fn repairs(&self) -> bool {
        true
    }

    fn dumps(&self) -> &'static [(&'static str, &'static str)] {
        DUMPS
    }

    async fn dump(&self, _rt: &Rt, device: Device, word: &Word, what: Option<&str>) -> Result<String, BuildError> {
        check_fixed(word, &ffs::info(&device).await?)?;
        let number = |text: &str| text.parse().ok();
        let part = match what.map(|what| what.split_once(':').unwrap_or((what, ""))) {
            None | Some(("volume", "")) => Some(Dump::Volume),
            Some(("groups", "")) => Some(Dump::Groups),
            Some(("group", group)) => number(group).map(GroupNo).map(Dump::Group),
            Some(("inode", ino)) => number(ino).map(InodeNo).map(Dump::Inode),
            Some(("fragment", at)) => number(at).map(FragNo).map(Dump::Fragment),
            Some(_) => None,
        };
        match part {
            Some(part) => Ok(ffs::dump(&device, part).await?),
            None => Err(BuildError::other(format!("ffs has no part `{}` to dump", what.unwrap_or_default()))
                .hint("one of: volume, groups, group:NUMBER, inode:NUMBER, fragment:NUMBER")),
        }
    }

    async fn probe(&self, _rt: &Rt, device: Device) -> Result<Option<Probed>, BuildError> {
        if !has_superblock(&device).await? {
            return Ok(None);
        }
        let volume = ffs::info(&device).await?;
        let layout = &volume.layout;
        let bytes = |frags: u64| Fact::Bytes(frags * u64::from(layout.frag_bytes));
        Ok(Some(Probed {
            // The format has 64 bits for it.
            uuid: uuid::Uuid::from_u64_pair(u64::from(volume.id[0]) << 32 | u64::from(volume.id[1]), 0),
            label: Some(volume.label.clone()).filter(|label| !label.is_empty()),
            facts: vec![
                ("format", Fact::Text(if volume.later_generation { "UFS1" } else { "UFS1, as 4.4BSD-Lite2" }.into())),
                ("size", bytes(layout.size.into())),
                ("capacity", bytes(layout.dsize.into())),
                (
                    "inodes",
                    Fact::Count(u64::from(layout.ino_end().0).saturating_sub(volume.totals.nifree.max(0) as u64)),
                ),
                ("block", Fact::Bytes(layout.block_bytes.into())),
                ("fragment", Fact::Bytes(layout.frag_bytes.into())),
                ("groups", Fact::Count(layout.groups.into())),
                ("contiguous_blocks", Fact::Count(layout.maxcontig.into())),
                ("rotdelay_ms", Fact::Count(layout.rotation.rotdelay.into())),
                ("reserve_percent", Fact::Count(layout.minfree.into())),
                ("clean", Fact::Flag(volume.clean)),
            ],
        }))
    }
}

/// Where a superblock is, and where the copy of the first group is: in the first block behind it, of whatever size.
const SUPERBLOCK_OFFSETS: [u64; 4] = [format::SUPERBLOCK_OFFSET, 16 * KIB, 32 * KIB, 64 * KIB];

/// True when there is a superblock of UFS1 in either byte order, intact or not, or a copy of one.
///
/// # Errors
/// When no superblock is found, and some of the places cannot be read.
async fn has_superblock(device: &Device) -> Result<bool, BuildError> {
    let mut lost = None;
    for offset in SUPERBLOCK_OFFSETS {
        if device.geometry().bytes() < offset + format::SUPERBLOCK_BYTES as u64 {
            break;
        }
        let sectors = format::SUPERBLOCK_BYTES as u64 / SECTOR_BYTES;
        let mut read = rescue(device, Sector(offset / SECTOR_BYTES), sectors).await?;
        let magic: u32 = crate::codec::get_at(&read.bytes, format::SUPERBLOCK_MAGIC_AT as usize).unwrap_or(0);
        if magic == format::UFS1_MAGIC || magic == format::UFS1_MAGIC.swap_bytes() {
            return Ok(true);
        }
        lost = lost.or(read.lost.pop());
    }
    match lost {
        Some((_, error)) => Err(error.into()),
        None => Ok(false),
    }
}
