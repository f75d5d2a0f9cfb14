//! The words of devices over devices: striping, mirrors, parity, remapping, permuting.
//!
//! A word that spreads over `n` members has `n` instances of the words below it, numbered from 0. A path has `{}` in
//! place of the number: `raid0:n=4 / file:a-{}.img` is on `a-0.img` to `a-3.img`. A word with a seed adds the number to
//! it.

use std::hash::Hasher;
use std::rc::Rc;

use async_trait::async_trait;
use siphasher::sip::SipHasher13;
use uuid::Uuid;

use super::Word;
use super::error::BuildError;
use super::file_systems::{CheckOptions, Checked, Fact, Finding, Probed};
use super::signature::{MagicOffset, Signature};
use super::spec::{Constructor, InOrder, OpenContext, Param, Spread, StoredArray, WordSpec};
use super::value::{ParamKind, Value};
use crate::device::{BlockDevice, Device, Scrubbed};
use crate::rt::Rt;
use crate::units::{GIB, KIB, Nanos, SECTOR_BYTES, counted, human_bytes};
use crate::volume::format::{MAGIC, SUPERBLOCKS};
use crate::volume::raid::{
    self, Array, ArrayError, ArrayInfo, ArrayOptions, Contents, JournalUse, Level, MemberState, UncertainData,
};
use crate::volume::{ShapeError, concat, permute, raid0, remap, volume};

/// Limit of the members of one word: as many as [st05] used, and some more.
const MEMBERS_MAX: u64 = 1024;

/// Units, chunks and blocks: from one sector to more than any array has had.
const GRAIN: ParamKind = ParamKind::Bytes { min: SECTOR_BYTES, max: GIB };

const MEMBERS: Param = Param::new(
    "n",
    ParamKind::Integer { min: 1, max: MEMBERS_MAX },
    "number of members, each an instance of what is below",
)
.default("2");
const STRIPE: Param = Param::new("stripe", GRAIN, "stripe unit: so much on one member, then the next").default("64KiB");
const SEED: Param = Param::new("seed", ParamKind::Integer { min: 0, max: u64::MAX }, "seed of the order").default("1");
const CHUNK: Param = Param::new("chunk", GRAIN, "unit that stays together").default("1MiB");

const METADATA: Param = Param::new(
    "metadata",
    ParamKind::Switch,
    "keep on the members what survives a power cut and a failed member; off only to ask for times",
)
.default("on");
const DEGRADED: Param = Param::new(
    "degraded",
    ParamKind::Switch,
    "go on without a member that cannot be opened; one in use is not missing",
)
.default("off");
const REPLACE: Param = Param::new(
    "replace",
    ParamKind::Integer { min: 0, max: MEMBERS_MAX - 1 },
    "number of a member that is new: it is filled while the array is used",
);
const OVERWRITE: Param =
    Param::new("overwrite", ParamKind::Switch, "the member of replace= may hold data, which is lost").default("off");

/// How long to search a new member for data that would be lost. A host file with holes is read at gigabytes a second.
const SEARCH_PATIENCE: Nanos = Nanos::from_secs(20);

fn sectors(word: &Word, key: &'static str) -> Result<u64, BuildError> {
    let bytes = word.bytes(key);
    match bytes.is_multiple_of(SECTOR_BYTES) {
        true => Ok(bytes / SECTOR_BYTES),
        false => Err(BuildError::Option { key, problem: format!("{bytes} bytes are no multiple of {SECTOR_BYTES}") }),
    }
}

/// The seed of this instance.
fn seed(word: &Word) -> u64 {
    word.integer("seed").wrapping_add(word.instance() as u64)
}

impl From<ShapeError> for BuildError {
    fn from(error: ShapeError) -> BuildError {
        BuildError::other(error.to_string())
    }
}

impl From<ArrayError> for BuildError {
    fn from(error: ArrayError) -> BuildError {
        let cause = BuildError::other(error.to_string());
        match error {
            ArrayError::Missing { slot, .. } => {
                cause.hint(format!("degraded=on goes on without it; replace={slot} fills a new one in its place"))
            }
            ArrayError::Conflict { one, two } => cause.hint(format!(
                "replace={two},overwrite goes on with what member {one} has, and what only member {two} has is lost; \
                 replace={one},overwrite the other way round. To look at one first, take the other away, and mount it read-only with degraded"
            )),
            ArrayError::Foreign { .. } => cause.hint(
                "put this array's own member in its place, or overwrite the other one: replace=N,overwrite",
            ),
            ArrayError::Nothing { .. } => {
                cause.hint("check that these are its members; on new and blank ones, mkfs makes an array")
            }
            _ => cause,
        }
    }
}

/// All members are present; otherwise the array would not have been made.
fn complete(members: Vec<Option<Device>>) -> Vec<Device> {
    members.into_iter().flatten().collect()
}

pub(super) const CONCAT: WordSpec = WordSpec {
    name: "concat",
    help: "n members, concatenated; below vld each is an arm of its own; stores no metadata on them",
    argument: None,
    options: &[MEMBERS],
    properties: &[],
    constructor: Constructor::Spread(&Spread {
        in_order: InOrder::Zones,
        stored: None,
        members: |word| word.integer("n"),
        tolerates_missing: |_| false,
        make: |_, members, _, _| Box::pin(async { Ok(concat(complete(members))? as Device) }),
    }),
};

pub(super) const RAID0: WordSpec = WordSpec {
    name: "raid0",
    help: "striping over n members; stores no metadata on them",
    argument: None,
    options: &[MEMBERS, STRIPE],
    properties: &[],
    constructor: Constructor::Spread(&Spread {
        in_order: InOrder::No,
        stored: None,
        members: |word| word.integer("n"),
        tolerates_missing: |_| false,
        make: |_, members, word, _| {
            Box::pin(async { Ok(raid0(complete(members), sectors(word, "stripe")?)? as Device) })
        },
    }),
};

pub(super) const VOLUME: WordSpec = WordSpec {
    name: "volume",
    help: "chunks in random order, striped over n members [st05]; stores no metadata on them",
    argument: None,
    options: &[MEMBERS, CHUNK, STRIPE, SEED],
    properties: &[],
    constructor: Constructor::Spread(&Spread {
        in_order: InOrder::No,
        stored: None,
        members: |word| word.integer("n"),
        tolerates_missing: |_| false,
        make: |_, members, word, _| {
            Box::pin(async {
                let (chunk, stripe) = (sectors(word, "chunk")?, sectors(word, "stripe")?);
                Ok(volume(complete(members), chunk, stripe, seed(word))? as Device)
            })
        },
    }),
};

pub(super) const REMAP: WordSpec = WordSpec {
    name: "remap",
    help: "the chunks of the device below in random order [st05]; stores no metadata on it",
    argument: None,
    options: &[CHUNK, SEED],
    properties: &[],
    constructor: Constructor::DeviceLayer(InOrder::No, |_, below, word| {
        Box::pin(async { Ok(remap(below, sectors(word, "chunk")?, seed(word))? as Device) })
    }),
};

pub(super) const PERMUTE: WordSpec = WordSpec {
    name: "permute",
    help: "the blocks of the device below in random order, the \"stupid\" layout [st05]; stores no metadata on it",
    argument: None,
    options: &[
        Param::new("block", GRAIN, "unit that stays together").default("4KiB"),
        Param::new("size", ParamKind::Bytes { min: 4 * KIB, max: 1 << 60 }, "only this much of the start is permuted"),
        SEED,
    ],
    properties: &[],
    constructor: Constructor::DeviceLayer(InOrder::No, |_, below, word| {
        Box::pin(async {
            let size = match word.given("size") {
                Some(_) => Some(sectors(word, "size")?),
                None => None,
            };
            Ok(permute(below, sectors(word, "block")?, seed(word), size)? as Device)
        })
    }),
};

pub(super) const RAID1: WordSpec = WordSpec {
    name: "raid1",
    help: "a mirror: n members hold the same, and all but one may fail",
    argument: None,
    options: &[MEMBERS, DEGRADED, REPLACE, OVERWRITE, METADATA],
    properties: &[],
    constructor: Constructor::Spread(&Spread {
        in_order: InOrder::No,
        stored: Some(&Kept(Level::Mirror)),
        members: |word| word.integer("n"),
        tolerates_missing: |word| word.switch("degraded"),
        make: |rt, members, word, context| {
            Box::pin(redundant(rt, members, word, context, ArrayOptions::new(Level::Mirror)))
        },
    }),
};

pub(super) const RAID5: WordSpec = WordSpec {
    name: "raid5",
    help: "striping with parity, left-symmetric: any one of n members may fail",
    argument: None,
    options: &[
        MEMBERS.default("3"),
        STRIPE.fixed().kept_with("metadata"),
        Param::new(
            "journal",
            ParamKind::Choice(&["degraded", "always"]),
            "writes go to a journal first while a member is missing, or always: then a power cut and the loss of a \
             member at once lose nothing",
        )
        .default("degraded")
        .fixed()
        .kept_with("metadata"),
        DEGRADED,
        REPLACE,
        OVERWRITE,
        Param::new(
            "doubt",
            ParamKind::Choice(&["refuse", "accept"]),
            "reading what a power cut and the loss of a member at once have made uncertain is an error, or not",
        )
        .default("refuse"),
        METADATA,
    ],
    properties: &[],
    constructor: Constructor::Spread(&Spread {
        in_order: InOrder::No,
        stored: Some(&Kept(Level::Parity)),
        members: |word| word.integer("n"),
        tolerates_missing: |word| word.switch("degraded"),
        make: |rt, members, word, context| {
            Box::pin(async move {
                let journal =
                    if word.choice("journal") == "always" { JournalUse::Always } else { JournalUse::Degraded };
                let doubt =
                    if word.choice("doubt") == "accept" { UncertainData::Accept } else { UncertainData::Refuse };
                let unit_given = word.given("stripe").is_some();
                let unit = sectors(word, "stripe")?;
                let options = ArrayOptions { journal, doubt, ..ArrayOptions::new(Level::Parity).unit(unit) };
                redundant(rt, members, word, context, ArrayOptions { unit_given, ..options }).await
            })
        },
    }),
};

/// An array alone, for mkfs, info, fsck and dump.
struct Kept(Level);

#[async_trait(?Send)]
impl StoredArray for Kept {
    fn signature(&self) -> &'static Signature {
        const SECOND: u64 = SUPERBLOCKS[1] * SECTOR_BYTES;
        const SIGNATURE: Signature = Signature {
            name: "a member of a Seekless array",
            magics: &[(MagicOffset::Start(0), &MAGIC), (MagicOffset::Start(SECOND), &MAGIC)],
        };
        &SIGNATURE
    }

    fn is_stored(&self, word: &Word) -> bool {
        word.switch("metadata")
    }

    async fn probe(&self, members: &[Option<Device>]) -> Result<Option<Probed>, BuildError> {
        let Some(info) = raid::info(members).await? else { return Ok(None) };
        if info.level != self.0 {
            return Err(BuildError::other(format!("there is a {} on these members", info.level.name())));
        }
        let needed = if self.0 == Level::Mirror { 1 } else { info.members.len() - 1 };
        let state = match info.present() {
            all if all == info.members.len() => "complete",
            some if some >= needed => "degraded",
            _ => "too many members are missing",
        };
        let mut facts = vec![
            ("size", Fact::Bytes(info.bytes)),
            ("members", Fact::Count(info.members.len() as u64)),
            ("state", Fact::Text(state.to_string())),
            ("unit", Fact::Bytes(info.unit_bytes)),
            ("region", Fact::Bytes(info.region_bytes)),
            ("dirty_regions", Fact::Count(info.dirty_regions)),
            ("generation", Fact::Count(info.generation)),
        ];
        if self.0 == Level::Parity {
            let journal =
                if info.journal == JournalUse::Always { "always used" } else { "used while a member is missing" };
            facts.push(("journal", Fact::Text(journal.to_string())));
        }
        facts.push(("state_of_members", Fact::Text(member_states(&info).join("; "))));
        Ok(Some(Probed { uuid: Uuid::from_bytes(info.uuid), label: None, facts }))
    }

    async fn check(
        &self,
        rt: &Rt,
        members: Vec<Option<Device>>,
        word: &Word,
        options: CheckOptions,
    ) -> Result<Checked, BuildError> {
        // What opens for repair without a member records it as failed: only where the line says so.
        let degraded = !options.repair || word.switch("degraded");
        let array_options = ArrayOptions { degraded, read_only: !options.repair, ..ArrayOptions::new(self.0) };
        let unit_given = word.given("stripe").is_some();
        let array_options = match unit_given {
            true => array_options.unit(sectors(word, "stripe")?),
            false => array_options,
        };
        let array = Array::open(rt, members, &array_options).await?;
        let device: Device = array.clone();
        if let (true, Some(redundancy)) = (options.repair, device.redundancy()) {
            redundancy.resynced().await;
        }
        let scrubbed = match device.redundancy() {
            Some(redundancy) => redundancy.scrub(false, &|_| ()).await?,
            None => Scrubbed::default(),
        };
        let mut checked = scrubbed_as_checked(self.0, &scrubbed, options.repair);
        for (slot, member_state) in array.status().members.iter().enumerate() {
            match member_state {
                MemberState::Active => continue,
                MemberState::Failed => checked.notes.push(format!("member {slot} is missing or has failed")),
                MemberState::Rebuilding => checked.notes.push(not_rebuilt(slot, array.status().left_out)),
            }
            // Also where the other members have been compared with each other.
            checked.not_compared = checked.not_compared.max(1);
        }
        if options.repair {
            array.release().await?;
        }
        Ok(checked)
    }

    async fn dump(&self, members: &[Option<Device>]) -> Result<String, BuildError> {
        let Some(info) = raid::info(members).await? else {
            return Err(BuildError::other("there is no array on these members"));
        };
        let mut text = format!(
            "{} {}\n{} of {} on each of {}\ngeneration {}; {} of {} may be inconsistent\n",
            info.level.name(),
            Uuid::from_bytes(info.uuid),
            counted(info.rows, "row"),
            human_bytes(info.unit_bytes),
            counted(info.members.len() as u64, "member"),
            info.generation,
            counted(info.dirty_regions, "region"),
            human_bytes(info.region_bytes),
        );
        if info.journal_bytes > 0 {
            let use_of = if info.journal == JournalUse::Always { "always" } else { "where a member is missing" };
            text += &format!("journal of {}, used {use_of}\n", human_bytes(info.journal_bytes));
        }
        member_states(&info).iter().for_each(|line| text += &format!("member {line}\n"));
        for (index, given) in info.given.iter().enumerate() {
            text += &match (&given.slot, &given.why) {
                (Some(slot), Some(why)) => format!("device {index}: member {slot}, which {why}\n"),
                (Some(slot), None) => format!("device {index}: member {slot}, generation {}\n", given.generation),
                (None, why) => format!("device {index}: no member: {}\n", why.as_deref().unwrap_or("unknown")),
            };
        }
        Ok(text)
    }
}

/// A member that is being rebuilt, with the number of rows that its rebuild has left out.
fn not_rebuilt(slot: usize, left_out: u64) -> String {
    match left_out {
        0 => format!("member {slot} is not rebuilt yet"),
        rows => {
            let rows = counted(rows, "row");
            format!("member {slot} is not rebuilt yet: {rows} cannot be, as a sector of another member is unreadable")
        }
    }
}

/// Each member in a few words.
fn member_states(info: &ArrayInfo) -> Vec<String> {
    let text = |(slot, member_state): (usize, &MemberState)| {
        let given = info.given.iter().find(|given| given.slot == Some(slot));
        let is_current = given.is_some_and(|given| given.generation + 1 >= info.generation);
        let what = match (member_state, given) {
            (MemberState::Failed, _) => "has failed; put a new one in its place with replace".to_string(),
            (_, None) => "is missing".to_string(),
            _ if !is_current => "is out of date".to_string(),
            (_, Some(raid::MemberInfo { why: Some(why), .. })) => why.clone(),
            (MemberState::Rebuilding, _) => {
                format!("is being rebuilt: {} of {} rows are recorded", info.rebuilt_rows, info.rows)
            }
            (MemberState::Active, _) => "holds everything".to_string(),
        };
        format!("{slot} {what}")
    };
    info.members.iter().enumerate().map(text).collect()
}

/// The result of a scrub, as that of a check.
pub fn scrubbed_as_checked(level: Level, scrubbed: &Scrubbed, is_written: bool) -> Checked {
    let Scrubbed { rows, inconsistent, corrected, left, degraded, unreadable, without_space } = scrubbed;
    let mut findings = Vec::new();
    let mut found = |count: u64, text: String, repaired: bool| {
        if count > 0 {
            findings.push(Finding { text, repaired });
        }
    };
    let units = counted(*unreadable, "unit");
    found(*unreadable, format!("{units} could not be read, and can be restored from the other members"), is_written);
    let rows_of = |count: u64| counted(count, "row");
    found(
        *corrected,
        format!("{}: the members disagreed, and the right data is known", rows_of(*corrected)),
        is_written,
    );
    let open = inconsistent - corrected;
    let why = match level {
        Level::Mirror => "the copies differ, and nothing here says which is right",
        Level::Parity => "data and parity do not match, and nothing here says which is wrong",
    };
    let list: Vec<String> = left.iter().map(u64::to_string).collect();
    let more = if open > left.len() as u64 { " ..." } else { "" };
    found(open, format!("{}: {why}: {}{more}", rows_of(open), list.join(", ")), false);
    for (member, sectors) in without_space {
        let sectors_of = counted(*sectors, "sector");
        let text = format!("{sectors_of} of member {member} could not be rewritten: there is no space below it");
        found(*sectors, text, false);
    }
    let mut notes = Vec::new();
    if *degraded > 0 {
        notes.push(format!(
            "{} could not be compared: a member is missing or lacks space, or they are not resynchronised",
            rows_of(*degraded)
        ));
    }
    let repairable = *unreadable > 0 || *corrected > 0;
    Checked {
        findings,
        repairable,
        not_compared: *degraded,
        notes,
        counts: vec![("rows", *rows)],
        ..Checked::default()
    }
}

/// Makes or opens a RAID-1 or RAID-5.
async fn redundant(
    rt: &Rt,
    members: Vec<Option<Device>>,
    word: &Word,
    context: OpenContext,
    options: ArrayOptions,
) -> Result<Device, BuildError> {
    let all_there = members.iter().all(Option::is_some);
    if !word.switch("metadata") {
        if !all_there {
            let problem = "without metadata, the content of a missing member is unknown".to_string();
            return Err(BuildError::Option { key: "degraded", problem });
        }
        return Ok(Array::bare(rt, options.level, complete(members), options.unit)?);
    }
    if context.is_fresh() {
        if !all_there {
            let problem = "a new array needs all its members".to_string();
            return Err(BuildError::Option { key: "degraded", problem });
        }
        let members = complete(members);
        let uuid = new_uuid(rt, &members);
        let contents = match context {
            OpenContext { is_volatile: true, .. } => Contents::Zeroes,
            OpenContext { discard: false, .. } => Contents::Allocated,
            _ => Contents::Unknown,
        };
        return Ok(Array::create(rt, members, &options, uuid, contents).await?);
    }
    let options = ArrayOptions { degraded: word.switch("degraded"), read_only: context.is_read_only(), ..options };
    let array = open(rt, members, word, options).await?;
    if let Some(Value::Choice(said)) = word.given("journal")
        && (*said == "always") != (array.journal() == JournalUse::Always)
    {
        let problem = format!("the line says {said}, but the array was made differently");
        return Err(BuildError::Option { key: "journal", problem });
    }
    Ok(array)
}

/// Opens the array; a member that the line calls new replaces a failed one.
async fn open(
    rt: &Rt,
    members: Vec<Option<Device>>,
    word: &Word,
    options: ArrayOptions,
) -> Result<Rc<Array>, BuildError> {
    let Some(&Value::Integer(slot)) = word.given("replace") else {
        return Ok(Array::open(rt, members, &options).await?);
    };
    let slot = slot as usize;
    let problem = |problem: &str| BuildError::Option { key: "replace", problem: problem.to_string() };
    let new = members.get(slot).cloned().ok_or_else(|| problem("there is no member with this number"))?;
    let new = new.ok_or_else(|| problem("the new member could not be opened"))?;
    let overwrites = word.switch("overwrite");
    let others = |members: &[Option<Device>]| -> Vec<Option<Device>> {
        members.iter().enumerate().map(|(index, member)| member.clone().filter(|_| index != slot)).collect()
    };
    let mut members = members;
    if overwrites && is_of_another(&members, slot, &others(&members)).await? {
        members = others(&members);
    }
    let info = raid::info(&members).await?;
    // An outdated copy of this member may be overwritten.
    let was_it = info.as_ref().is_some_and(|info| info.given[slot].slot == Some(slot));
    // Another member of this array may not, as long as it has not failed.
    let is_in_use = |info: &raid::ArrayInfo, other: usize| {
        other != slot && info.members.get(other).is_some_and(|state| *state != MemberState::Failed)
    };
    let in_use_as = info.and_then(|info| info.given[slot].slot.filter(|&other| is_in_use(&info, other)));
    let check_unused = || match in_use_as {
        Some(other) => Err(in_use(slot, other, &new)),
        None => Ok(()),
    };
    let is_to_be_new = |error: &ArrayError| match *error {
        // It holds no member of this array yet.
        ArrayError::Missing { slot: missing, .. } => missing == slot,
        // What only it holds is lost.
        ArrayError::Conflict { one, two } => overwrites && (one == slot || two == slot),
        _ => false,
    };
    let array = match Array::open(rt, members.clone(), &options).await {
        Err(error) if is_to_be_new(&error) => {
            check_unused()?;
            Array::open(rt, others(&members), &ArrayOptions { degraded: true, ..options }).await?
        }
        other => other?,
    };
    let states = array.status().members;
    if let Some(why) = without_effect(slot, &states, options.read_only) {
        array.remark(format!("replace={slot} has no effect: {why}"));
    }
    if !options.read_only && states[slot] == MemberState::Failed {
        check_unused()?;
        if !was_it && !overwrites {
            protect(rt, slot, &new).await?;
        }
        array.replace(slot, new).await?;
    }
    Ok(array)
}

/// Why no member is replaced. One that is being rebuilt has been, by an earlier line that said the same.
fn without_effect(slot: usize, states: &[MemberState], is_read_only: bool) -> Option<String> {
    match states[slot] {
        MemberState::Rebuilding => None,
        MemberState::Failed => is_read_only.then(|| "nothing is written".to_owned()),
        MemberState::Active => Some(match states.iter().position(|state| *state == MemberState::Failed) {
            None => format!("member {slot} belongs to the array, and holds everything"),
            Some(failed) => {
                format!("member {slot} is in use; the one without data is member {failed}: replace={failed}")
            }
        }),
    }
}

/// True when the device in `slot` says that it belongs to another array than the others.
async fn is_of_another(members: &[Option<Device>], slot: usize, others: &[Option<Device>]) -> Result<bool, BuildError> {
    let alone: Vec<Option<Device>> =
        members.iter().enumerate().map(|(index, member)| member.clone().filter(|_| index == slot)).collect();
    Ok(match (raid::info(&alone).await?, raid::info(others).await?) {
        (Some(its), Some(theirs)) => its.uuid != theirs.uuid,
        _ => false,
    })
}

/// The device in the place of `slot` is member `other` of the same array.
fn in_use(slot: usize, other: usize, new: &Device) -> BuildError {
    let what = format!("member {slot}, {}, is member {other} of this array, which needs it", new.describe());
    BuildError::other(what).hint(format!(
        "name the new device in place {slot}, counted from 0, and this one in another place, such as {other}"
    ))
}

/// Refuses a new member that holds data.
async fn protect(rt: &Rt, slot: usize, new: &Device) -> Result<(), BuildError> {
    match raid::content(rt, new, SEARCH_PATIENCE).await? {
        None => Ok(()),
        Some(content) => {
            Err(BuildError::other(format!("member {slot}, {}, holds {content}, which would be lost", new.describe()))
                .hint("to overwrite it, add overwrite=on to replace"))
        }
    }
}

/// A UUID for a new array, distinct from all others. The engine has no randomness, so it is derived from the time and
/// the members; in virtual time the same array gets the same UUID each time.
pub(super) fn new_uuid(rt: &Rt, members: &[Device]) -> [u8; 16] {
    let mut uuid = [0; 16];
    for (key, half) in uuid.chunks_exact_mut(8).enumerate() {
        let mut hasher = SipHasher13::new_with_keys(key as u64, 0x5365_656b_6c65_7373);
        hasher.write_i128(rt.wall().nanos_since_epoch());
        hasher.write_u64(rt.now().0);
        for member in members {
            hasher.write(member.describe().as_bytes());
            hasher.write_u64(member.geometry().sectors);
        }
        half.copy_from_slice(&hasher.finish().to_le_bytes());
    }
    // RFC 9562: version 8, a custom rule.
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
