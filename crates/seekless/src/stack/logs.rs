//! Common code of the words over a log: the file systems `lfs` and `vlfs`, and `vld`.

use uuid::Uuid;

use super::Word;
use super::error::BuildError;
use super::file_systems::{Checked, Finding, Identity};
use super::spec::Param;
use super::value::{ParamKind, Percent, Value};
use crate::device::Device;
use crate::device::rescue::rescue_right;
use crate::fs::lfs::Fsck;
use crate::units::{KIB, MIB, Nanos, SECTOR_BYTES, Sector};

/// Longest label of a volume.
const LABEL_BYTES_MAX: usize = 63;

pub(super) const DAY: Nanos = Nanos::from_secs(86_400);

pub(super) const LABEL: Param =
    Param::new("label", ParamKind::Text { bytes_max: LABEL_BYTES_MAX }, "name of the volume, for people").fixed();

pub(super) const UUID: Param =
    Param::new("uuid", ParamKind::Uuid, "name of the volume, for programs (default drawn by mkfs)").fixed();

pub(super) const WRITE_BACK: Param = Param::new(
    "write-back",
    ParamKind::Duration { min: Nanos::from_millis(1), max: DAY },
    "longest time that a change waits in memory",
)
.default("5s");

pub(super) const CACHE: Param =
    Param::new("cache", ParamKind::Bytes { min: MIB, max: 1 << 40 }, "memory for clean blocks").default("32MiB");

pub(super) const DIRTY: Param =
    Param::new("dirty", ParamKind::Bytes { min: 64 * KIB, max: 1 << 40 }, "memory for changes before writers wait")
        .default("16MiB");

pub(super) const READ_ONLY: Param = Param::new("ro", ParamKind::Switch, "change nothing").default("off");

/// Of the virtual log.
pub(super) const KEEP: Param = Param::new(
    "keep",
    ParamKind::Percent { max: Percent { hundredths: 9_500 } },
    "share of a track that stays free when empty tracks are filled",
)
.default("25%");

/// Of the virtual log.
pub(super) const WINDOW: Param = Param::new(
    "window",
    ParamKind::Bytes { min: 64 * KIB, max: 1 << 50 },
    "where later pieces of the log may be: what the next start searches after a power cut, at most",
)
.default("64MiB");

/// The word's `reserve` in the unit of the formats.
pub(super) fn reserve_permille(word: &Word) -> Result<u32, BuildError> {
    let hundredths = word.percent("reserve").hundredths;
    match hundredths % 10 {
        0 => Ok(hundredths / 10),
        _ => Err(BuildError::Option {
            key: "reserve",
            problem: "it is kept in tenths of a percent; give one digit".into(),
        }),
    }
}

/// The UUID given by the caller or the line for a new volume, if any.
pub(super) fn given_uuid(word: &Word, identity: &Identity) -> Option<Uuid> {
    let in_line = match word.given("uuid") {
        Some(Value::Uuid(uuid)) => Some(*uuid),
        _ => None,
    };
    identity.uuid.or(in_line)
}

/// The label; empty if none is given.
pub(super) fn given_label(word: &Word, identity: &Identity) -> String {
    identity.label.as_deref().or(word.text("label")).unwrap_or_default().to_owned()
}

/// True when a trace of the format is in one of `places` or in the last `bytes` of the device, intact or not.
pub(super) async fn is_anywhere(
    device: &Device,
    places: &[Sector],
    bytes: usize,
    is_it: impl Fn(&[u8]) -> bool,
) -> Result<bool, BuildError> {
    let (end, sectors) = (device.geometry().sectors, bytes as u64 / SECTOR_BYTES);
    let last = (end / sectors).checked_sub(1).map(|unit| Sector(unit * sectors));
    let mut lost = None;
    for place in places.iter().copied().chain(last) {
        if place.0 + sectors > end {
            continue;
        }
        // An unreadable place may have held it; the other places are read, too.
        let read = rescue_right(device, place, sectors, &is_it).await?;
        if read.lost.is_empty() && is_it(&read.bytes) {
            return Ok(true);
        }
        lost = lost.or(read.lost.into_iter().next());
    }
    match lost {
        None => Ok(false),
        Some((_, error)) => Err(error.into()),
    }
}

/// The findings of a check, and the repaired ones. What a power cut leaves behind is repaired by mounting, and is not
/// damage.
pub(super) fn checked(found: Fsck) -> Checked {
    let mended = found.repaired.into_iter().map(|text| Finding { text, repaired: true });
    let left = found.errors.into_iter().map(|text| Finding { text, repaired: false });
    Checked {
        findings: mended.chain(left).collect(),
        unlisted: found.errors_unlisted,
        repairable: found.repairable,
        not_compared: 0,
        notes: found.notes,
        counts: vec![
            ("files", found.files),
            ("directories", found.directories),
            ("others", found.others),
            ("live_bytes", found.live_bytes),
            ("data_blocks", found.data_blocks),
        ],
    }
}

/// The part to dump that `what` names: `read` parses its name and argument. Without a name, the first part.
///
/// # Errors
/// When there is no such part, with those that exist.
pub(super) fn part_to_dump<T>(
    what: Option<&str>,
    word: &Word,
    dumps: &[(&str, &str)],
    read: impl Fn(&str, Option<&str>) -> Option<T>,
) -> Result<T, BuildError> {
    let forms: Vec<&str> = dumps.iter().map(|(form, _)| *form).collect();
    let what = what.unwrap_or(forms[0]);
    let found = match what.split_once(':') {
        Some((name, argument)) => read(name, Some(argument)),
        None => read(what, None),
    };
    found.ok_or_else(|| {
        BuildError::other(format!("{} cannot dump `{what}`", word.name())).hint(format!("one of: {}", forms.join(", ")))
    })
}
