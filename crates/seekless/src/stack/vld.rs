//! The word of the virtual log disk.

use async_trait::async_trait;
use uuid::Uuid;

use super::Word;
use super::arrays::new_uuid;
use super::error::BuildError;
use super::file_systems::{Checked, Fact, Finding, Probed};
use super::logs::{KEEP, WINDOW};
use super::signature::{MagicOffset, Signature};
use super::spec::{Constructor, OpenContext, Param, Property, StoredDevice, WordSpec};
use super::value::{ParamKind, Percent, Value};
use crate::device::Device;
use crate::rt::Rt;
use crate::units::{Nanos, SECTOR_BYTES};
use crate::vlog::format::{MAGIC, NAME_BYTES_MAX, SNAPSHOTS_MAX};
use crate::vlog::layout::BLOCK_BYTES_MAX;
use crate::vlog::{CommitUse, MapLog, Options, Plan, Vld, VldError, check, probe};

pub(super) const SNAPSHOT: Param = Param::new(
    "snapshot",
    ParamKind::Text { bytes_max: NAME_BYTES_MAX },
    "the disk as it was when the snapshot of this name was taken, to be read only",
);

pub(super) const VLD: WordSpec = WordSpec {
    name: "vld",
    help: "a virtual log disk: writes go near the head, or are sequential where there is none [wa99]",
    argument: None,
    options: &[
        Param::new("block", ParamKind::Bytes { min: SECTOR_BYTES, max: BLOCK_BYTES_MAX as u64 }, "unit of the map")
            .default("4KiB")
            .fixed(),
        Param::new(
            "log",
            ParamKind::Choice(&["tree", "append"]),
            "how the map is kept: the virtual log, or a log in a fixed place",
        )
        .default("tree")
        .fixed(),
        Param::new(
            "reserve",
            ParamKind::Percent { max: Percent { hundredths: 9_000 } },
            "share of the space that is held back, so that a full disk still has free blocks to choose from",
        )
        .default("7%")
        .only_mkfs(),
        Param::new(
            "snapshots",
            ParamKind::Integer { min: 0, max: SNAPSHOTS_MAX as u64 },
            "number of snapshots that fit; each costs two percent of the disk",
        )
        .default("0")
        .fixed(),
        SNAPSHOT,
        Param::new(
            "commit",
            ParamKind::Choice(&["auto", "each", "flush"]),
            "writes are durable each by itself, or with the next flush; auto: each where there is a head or no cache",
        )
        .default("auto"),
        KEEP,
        WINDOW,
        Param::new("compact", ParamKind::Switch, "empty tracks while idle, where there is a head").default("on"),
        Param::new("order", ParamKind::Switch, "also put blocks in order, for sequential reads").default("on"),
        Param::new(
            "quiet",
            ParamKind::Duration { min: Nanos::from_millis(1), max: Nanos::from_secs(3600) },
            "idle time before that begins",
        )
        .default("10ms"),
        Param::new(
            "tracks",
            ParamKind::Integer { min: 0, max: 1024 },
            "whole tracks to keep in memory for sequential reads, where there is a head",
        )
        .default("4"),
        Param::new(
            "command",
            ParamKind::Duration { min: Nanos::ZERO, max: Nanos::from_secs(1) },
            "overhead of each request in a drive with this inside; give the disk below overhead=off",
        )
        .default("0ns"),
        Param::new("discard", ParamKind::Switch, "discard long freed ranges on the device below").default("on"),
    ],
    properties: &[Property::KnowsUnwritten],
    constructor: Constructor::StoredDevice(&VldKind),
};

struct VldKind;

impl From<VldError> for BuildError {
    fn from(error: VldError) -> BuildError {
        match error {
            VldError::Device(error) => BuildError::Device(error),
            VldError::Nothing => BuildError::other(error.to_string())
                .hint("check that this is the right store, and the stack that it was made with; nothing was changed"),
            other => BuildError::other(other.to_string()),
        }
    }
}

fn map_log(word: &Word) -> MapLog {
    if word.choice("log") == "append" { MapLog::Append } else { MapLog::Tree }
}

fn log_name(map_log: MapLog) -> &'static str {
    match map_log {
        MapLog::Tree => "tree",
        MapLog::Append => "append",
    }
}

fn options(word: &Word, context: OpenContext) -> Options {
    Options {
        commit: match word.choice("commit") {
            "each" => CommitUse::Each,
            "flush" => CommitUse::Flush,
            _ => CommitUse::Auto,
        },
        track_fill_reserve: word.percent("keep").hundredths,
        window: word.bytes("window"),
        compact: word.switch("compact"),
        order: word.switch("order"),
        quiet: word.duration("quiet"),
        tracks: word.integer("tracks") as usize,
        command: word.duration("command"),
        discard: word.switch("discard"),
        read_only: context.is_read_only() && !context.is_fresh(),
    }
}

/// UUID and key of a new one: random where randomness is available. In virtual time the same stack gets the same ones,
/// and there is no attacker.
fn secrets(rt: &Rt, below: &Device, context: OpenContext) -> ([u8; 16], [u8; 16]) {
    let pair = |one: u64, two: u64| {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&one.to_le_bytes());
        bytes[8..].copy_from_slice(&two.to_le_bytes());
        bytes
    };
    match context.random {
        Some([one, two, three, four]) => {
            (*uuid::Builder::from_random_bytes(pair(one, two)).as_uuid().as_bytes(), pair(three, four))
        }
        None => {
            let name = new_uuid(rt, std::slice::from_ref(below));
            (name, name)
        }
    }
}

#[async_trait(?Send)]
impl StoredDevice for VldKind {
    fn signature(&self) -> Option<&'static Signature> {
        const SIGNATURE: Signature = Signature {
            name: "a Seekless virtual log disk",
            magics: &[(MagicOffset::Start(0), &MAGIC), (MagicOffset::LastUnit(4096), &MAGIC)],
        };
        Some(&SIGNATURE)
    }

    async fn open(&self, rt: &Rt, below: Device, word: &Word, context: OpenContext) -> Result<Device, BuildError> {
        let options = options(word, context);
        if !context.is_fresh() {
            let vld = match word.text("snapshot") {
                Some(name) => Vld::open_snapshot(rt, below, options, name).await?.ok_or_else(|| {
                    BuildError::other(format!("there is no snapshot `{name}`"))
                        .hint("`seekless snapshot list` lists them")
                })?,
                None => Vld::open(rt, below, options).await?,
            };
            word.check_fixed(&[
                ("block", Value::Bytes(u64::from(vld.layout().block_bytes()))),
                ("log", Value::Choice(log_name(vld.layout().map_log))),
                ("snapshots", Value::Integer(vld.layout().snapshots.into())),
            ])?;
            return Ok(vld);
        }
        if word.given("snapshot").is_some() {
            let problem = "a new disk has no snapshots; leave it out".to_owned();
            return Err(BuildError::Option { key: "snapshot", problem });
        }
        let (uuid, key) = secrets(rt, &below, context);
        let plan = Plan {
            block_bytes: u32::try_from(word.bytes("block")).unwrap_or(u32::MAX),
            reserve: word.percent("reserve").hundredths,
            map_log: map_log(word),
            snapshots: u32::try_from(word.integer("snapshots")).unwrap_or(u32::MAX),
            uuid,
            key,
        };
        Ok(Vld::create(rt, below, &plan, options).await?)
    }

    async fn probe(&self, below: Device) -> Result<Option<Probed>, BuildError> {
        let Some(info) = probe(&below).await? else { return Ok(None) };
        let log = match info.map_log {
            MapLog::Tree => "virtual log",
            MapLog::Append => "append-only log",
        };
        Ok(Some(Probed {
            uuid: Uuid::from_bytes(info.uuid),
            label: None,
            facts: vec![
                ("size", Fact::Bytes(info.bytes)),
                ("block", Fact::Bytes(u64::from(info.block_bytes))),
                ("cell", Fact::Bytes(u64::from(info.cell_bytes))),
                ("map", Fact::Text(log.to_string())),
                ("snapshots_max", Fact::Count(u64::from(info.snapshots))),
                ("pieces", Fact::Count(u64::from(info.pieces))),
                ("entries_per_piece", Fact::Count(u64::from(info.entries_per_piece))),
                ("parked", Fact::Flag(info.is_parked)),
            ],
        }))
    }

    async fn check(&self, below: Device) -> Result<Checked, BuildError> {
        let checkup = check(&below).await?;
        let finding = |text: String| Finding { text, repaired: false };
        Ok(Checked {
            findings: checkup.errors.into_iter().map(finding).collect(),
            notes: checkup.notes,
            counts: vec![
                ("pieces", checkup.pieces),
                ("mapped_blocks", checkup.recovery.mapped_blocks),
                ("searched_blocks", checkup.recovery.blocks_scanned),
            ],
            ..Checked::default()
        })
    }
}
