//! Makes an array, and assembles it from its members.
//!
//! The member with the highest generation is authoritative. Another one is trusted when it is at most one generation
//! behind and not recorded as failed: a change is recorded on all members before anything else happens, so a member
//! that is further behind has missed something. So has a copy of a member from before an earlier start, for each start
//! raises the generation of all members twice before it writes anything else (A5).

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::bitmap::{Bitmap, collect};
use super::core::{Core, Layout, MemberState, MemberStateByte, State, still_known};
use super::deferred::is_no_space;
use super::journal::{FoundRecord, Journal, Ring};
use super::rows::{LeftOut, Ranges, RowSet};
use super::shape::{Level, Shape};
use super::{Array, ArrayError, ArrayOptions, Contents, JournalUse};
use crate::device::fork::ForkDevice;
use crate::device::{Buf, Data, Device, DeviceError, Discard, WriteFlags};
use crate::rt::Rt;
use crate::units::{KIB, MIB, SECTOR_BYTES, Sector};
use crate::volume::format::{
    BITMAP_START, BLOCK_BYTES, BLOCK_SECTORS, BitmapSector, FLAG_JOURNAL_ALWAYS, MEMBERS_MAX, NoSuperblock,
    REGIONS_PER_SECTOR, SUPERBLOCKS, Superblock, bitmap_start, uuid_start,
};
use crate::volume::members::{ShapeError, block_bytes, bytes, check_grain, request_bytes_max, request_sectors_max};

/// Largest journal by default. Several requests of the largest size fit in.
const JOURNAL_BYTES: u64 = 32 * MIB;

/// Smallest region of the bitmap by default, and largest.
const REGION_BYTES: (u64, u64) = (64 * KIB, 64 * MIB);

/// Regions by default: few enough that not every write sets a bit, many enough that little is resynchronised
/// needlessly.
const REGIONS: u64 = 4096;

fn of_member(member: usize) -> impl Fn(DeviceError) -> ArrayError {
    move |error| ArrayError::Device { member, error }
}

/// Checks that apply to every array.
fn check_members(level: Level, members: &[Device], unit: u64) -> Result<(), ArrayError> {
    let least = if level == Level::Mirror { 2 } else { 3 };
    if members.len() < least {
        return Err(ArrayError::Count { level: level.name(), least, found: members.len() });
    }
    check_grain(members, "the unit", unit)?;
    Ok(())
}

fn smallest(members: &[Device]) -> (usize, u64) {
    let sizes = members.iter().map(|member| member.geometry().sectors).enumerate();
    sizes.min_by_key(|(_, sectors)| *sectors).unwrap_or((0, 0))
}

fn new_state(members: usize, out_of_sync: RowSet) -> State {
    State {
        now: vec![MemberState::Active; members],
        recorded: vec![MemberState::Active; members],
        cursor: 0,
        cursor_recorded: 0,
        left_out: LeftOut::default(),
        admitted: 0,
        generation: 0,
        behind: None,
        failed_at: 0,
        stopped: false,
        unflushed: None,
        out_of_sync,
        known: Ranges::default(),
        redo: BTreeMap::new(),
        queues: BTreeMap::new(),
        rebuild_error: None,
        causes: BTreeMap::new(),
    }
}

/// The longest request of an array with parity, such that a record of the journal always fits. A record holds the data,
/// the parity, and data of other writers in the two rows at the ends.
fn parity_request_bytes_max(members: &[Device], layout: Option<&Layout>) -> u32 {
    let spread = request_bytes_max(members, members.len() as u64 - 1);
    let Some(layout) = layout else { return spread };
    let block = u64::from(block_bytes(members)).max(BLOCK_BYTES);
    let quarter = layout.journal_sectors * SECTOR_BYTES / 4 / block * block;
    spread.min(u32::try_from(quarter).unwrap_or(u32::MAX))
}

/// An array without metadata.
pub(super) fn bare(rt: &Rt, level: Level, members: Vec<Device>, unit: u64) -> Result<Rc<Array>, ArrayError> {
    check_members(level, &members, unit)?;
    let (member, sectors) = smallest(&members);
    let shape = Shape { level, members: members.len(), unit, rows: sectors / unit, data_start: 0 };
    if shape.rows == 0 {
        return Err(ShapeError::TooSmall { member, sectors, needed: unit }.into());
    }
    check_size(&shape)?;
    let state = new_state(members.len(), RowSet::default());
    Ok(build(
        rt,
        shape,
        None,
        members.into_iter().map(Some).collect(),
        state,
        Bitmap::default(),
        Journal::default(),
        &ArrayOptions::new(level),
    ))
}

fn check_size(shape: &Shape) -> Result<(), ArrayError> {
    let sectors = u128::from(shape.rows) * u128::from(shape.row_sectors());
    match sectors * u128::from(SECTOR_BYTES) > u128::from(u64::MAX) {
        true => Err(ShapeError::TooLarge { sectors }.into()),
        false => Ok(()),
    }
}

#[allow(clippy::too_many_arguments)]
fn build(
    rt: &Rt,
    shape: Shape,
    layout: Option<Layout>,
    members: Vec<Option<Device>>,
    state: State,
    bitmap: Bitmap,
    journal: Journal,
    options: &ArrayOptions,
) -> Rc<Array> {
    let present: Vec<Device> = members.iter().flatten().cloned().collect();
    let request_bytes_max = match shape.level {
        Level::Mirror => request_bytes_max(&present, 1),
        Level::Parity => parity_request_bytes_max(&present, layout.as_ref()),
    };
    let core =
        Core::new(rt.clone(), shape, layout, members, state, bitmap, journal, options, request_sectors_max(&present));
    Rc::new(Array::around(core, &present, request_bytes_max))
}

/// The parameters of a new array.
fn plan(members: &[Device], options: &ArrayOptions, uuid: [u8; 16]) -> Result<(Shape, Layout), ArrayError> {
    let ArrayOptions { level, unit, region, journal, .. } = *options;
    check_members(level, members, unit)?;
    if members.len() > MEMBERS_MAX {
        return Err(ArrayError::TooMany { found: members.len() });
    }
    check_grain(members, "a block of metadata", BLOCK_SECTORS)?;
    let (member, sectors) = smallest(members);
    let count = members.len() as u64;
    let region_bytes = region.unwrap_or_else(|| {
        (sectors * SECTOR_BYTES / REGIONS).clamp(REGION_BYTES.0, REGION_BYTES.1).next_power_of_two()
    });
    let region_rows = (region_bytes / SECTOR_BYTES).div_ceil(unit).max(1);
    let rows_at_most = sectors / unit;
    let bitmap_sectors =
        rows_at_most.div_ceil(region_rows).div_ceil(REGIONS_PER_SECTOR).next_multiple_of(BLOCK_SECTORS);
    let journal_start = bitmap_start(2, bitmap_sectors);
    let journal_sectors = match level {
        Level::Mirror => 0,
        Level::Parity => {
            let least = 4 * count * unit + 64 * KIB / SECTOR_BYTES;
            let wanted = (sectors / 64).min(JOURNAL_BYTES / SECTOR_BYTES);
            wanted.max(least).next_multiple_of(BLOCK_SECTORS)
        }
    };
    // Data begins where partitions do, on devices where that costs little space.
    let align = if sectors * SECTOR_BYTES >= 256 * MIB { MIB / SECTOR_BYTES } else { BLOCK_SECTORS };
    let data_start = (journal_start + journal_sectors).next_multiple_of(align);
    let rows = sectors.saturating_sub(data_start) / unit;
    if rows == 0 {
        return Err(ShapeError::TooSmall { member, sectors, needed: data_start + unit }.into());
    }
    let shape = Shape { level, members: members.len(), unit, rows, data_start };
    check_size(&shape)?;
    let journal_always = journal == JournalUse::Always;
    Ok((shape, Layout { uuid, region_rows, bitmap_sectors, journal_start, journal_sectors, journal_always }))
}

/// Makes an array. The content of the members is lost.
pub(super) async fn create(
    rt: &Rt,
    members: Vec<Device>,
    options: &ArrayOptions,
    uuid: [u8; 16],
    contents: Contents,
) -> Result<Rc<Array>, ArrayError> {
    let (shape, layout) = plan(&members, options, uuid)?;
    let makes_zeroes = members.iter().all(|member| member.guarantees().discard == Discard::Zeroes);
    let discards = contents == Contents::Unknown && makes_zeroes;
    let is_zero = contents == Contents::Zeroes || discards;
    for (index, member) in members.iter().enumerate() {
        // First invalidates any old array, so that a power cut before the new one is complete leaves none.
        for at in SUPERBLOCKS {
            let zeroes = Data::zeroes(BLOCK_BYTES as usize);
            member.write(Sector(at), zeroes, WriteFlags::FUA).await.map_err(of_member(index))?;
        }
        if discards {
            let (at, sectors) = (Sector(shape.data_start), shape.rows * shape.unit);
            member.discard(at, sectors).await.map_err(of_member(index))?;
        }
        // The journal is read from its start, which must hold no record of an earlier array; such records have another
        // UUID.
        member.flush().await.map_err(of_member(index))?;
    }
    let mut out_of_sync = RowSet::default();
    let mut dirty = BTreeSet::new();
    if !is_zero {
        (0..shape.rows).for_each(|row| out_of_sync.insert(row));
        dirty = (0..shape.rows.div_ceil(layout.region_rows)).collect();
    }
    let state = new_state(members.len(), out_of_sync);
    let members = members.into_iter().map(Some).collect();
    let array =
        build(rt, shape, Some(layout), members, state, Bitmap::new(0, dirty), Journal::new((1, 0), (1, 0)), options);
    let core = array.core();
    core.allocate_metadata().await;
    core.record(true).await.map_err(ArrayError::Members)?;
    if core.in_use().len() < shape.members {
        return Err(ArrayError::Made);
    }
    array.start();
    Ok(array)
}

/// Content of one member.
struct FoundMember {
    device: Device,
    superblock: Superblock,
}

const NO_ARRAY: &str = "it holds no array";

/// What a device says about itself as a member.
pub(super) enum Membership {
    /// It is one, and this is its newest superblock.
    Member(Box<Superblock>),
    None(NoSuperblock),
}

/// Reads the superblocks of a device.
pub(super) async fn look(device: &Device) -> Result<Membership, DeviceError> {
    let mut why = NoSuperblock::Other;
    if device.geometry().bytes() < BITMAP_START * SECTOR_BYTES {
        return Ok(Membership::None(why));
    }
    let mut newest: Option<Superblock> = None;
    for at in SUPERBLOCKS {
        let block = device.read(Sector(at), Buf::dirty(BLOCK_BYTES as usize)).await?;
        match Superblock::from_block(&block) {
            Ok(found) if newest.is_none_or(|newest| newest.generation < found.generation) => newest = Some(found),
            Ok(_) => {}
            Err(bad) if why == NoSuperblock::Other => why = bad,
            Err(_) => {}
        }
    }
    Ok(newest.map_or(Membership::None(why), |found| Membership::Member(Box::new(found))))
}

/// What one device says as a possible member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberInfo {
    /// Its number as a member; `None` if it is not a member, or is missing.
    pub slot: Option<usize>,
    /// The state of the array that it knows; the highest is valid.
    pub generation: u64,
    /// Why it is not a member; or, where it has a number, what it is that it cannot be used: "is shorter than ...".
    pub why: Option<String>,
}

/// What superblocks say about an array, without opening it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ArrayInfo {
    pub uuid: [u8; 16],
    pub level: Level,
    /// Usable bytes.
    pub bytes: u64,
    pub unit_bytes: u64,
    pub journal: JournalUse,
    pub journal_bytes: u64,
    /// Bytes of a member per bit of the bitmap.
    pub region_bytes: u64,
    pub generation: u64,
    /// State of each member according to the newest superblock.
    pub members: Vec<MemberState>,
    /// Rows, and how many of them a rebuild has certainly completed.
    pub rows: u64,
    pub rebuilt_rows: u64,
    /// Regions that a power cut may have left inconsistent.
    pub dirty_regions: u64,
    /// In the order of the call.
    pub given: Vec<MemberInfo>,
}

impl ArrayInfo {
    /// Members that are present and valid in every row.
    pub fn present(&self) -> usize {
        let is_there = |slot: usize| {
            let knows = |given: &MemberInfo| given.generation + 1 >= self.generation && given.why.is_none();
            self.given.iter().any(|given| given.slot == Some(slot) && knows(given))
        };
        let members = self.members.iter().enumerate();
        members.filter(|(slot, member_state)| **member_state == MemberState::Active && is_there(*slot)).count()
    }
}

/// Examines the array of which `given` are members; `None` where there is none. Nothing is written.
///
/// # Errors
/// When the members contradict each other: they are of two arrays.
pub async fn info(given: &[Option<Device>]) -> Result<Option<ArrayInfo>, ArrayError> {
    let Discovered { found, unknown } = discover(given).await;
    let mut members: BTreeMap<usize, MemberInfo> = BTreeMap::new();
    for (index, why) in unknown {
        members.insert(index, MemberInfo { slot: None, generation: 0, why: Some(why) });
    }
    for (index, FoundMember { superblock, .. }) in &found {
        let (slot, generation) = (Some(superblock.slot as usize), superblock.generation);
        members.insert(*index, MemberInfo { slot, generation, why: None });
    }
    let slots = by_slot(found)?;
    let Some(truth) = slots.values().map(|found| found.superblock).max_by_key(|found| found.generation) else {
        return Ok(None);
    };
    let (shape, layout) = numbers(&truth);
    for given in members.values_mut() {
        let found = given.slot.and_then(|slot| slots.get(&slot)).filter(|found| !fits(&found.device, &shape));
        given.why = given.why.take().or(found.map(|found| too_short(&found.device, &shape)));
    }
    let states = &truth.states[..shape.members];
    let active: Vec<(usize, Device)> = slots
        .iter()
        .filter(|(slot, found)| {
            let member_state = states.get(**slot).map(|&state| MemberState::from_byte(state));
            member_state == Some(MemberState::Active) && found.superblock.generation + 1 >= truth.generation
        })
        .map(|(&slot, found)| (slot, found.device.clone()))
        .collect();
    let dirty = read_bitmap(&active, &layout, &shape, truth.bitmap_epoch).await;
    Ok(Some(ArrayInfo {
        uuid: truth.uuid,
        level: shape.level,
        bytes: shape.sectors() * SECTOR_BYTES,
        unit_bytes: shape.unit * SECTOR_BYTES,
        journal: if layout.journal_always { JournalUse::Always } else { JournalUse::Degraded },
        journal_bytes: layout.journal_sectors * SECTOR_BYTES,
        region_bytes: layout.region_rows * shape.unit * SECTOR_BYTES,
        generation: truth.generation,
        members: states.iter().map(|&state| MemberState::from_byte(state)).collect(),
        rows: shape.rows,
        rebuilt_rows: truth.rebuilt_rows,
        dirty_regions: dirty.len() as u64,
        given: members.into_values().collect(),
    }))
}

/// The parameters of an array from a checked superblock (F2).
fn numbers(truth: &Superblock) -> (Shape, Layout) {
    let shape = Shape {
        level: if truth.level == 1 { Level::Mirror } else { Level::Parity },
        members: truth.member_count as usize,
        unit: truth.unit_sectors,
        rows: truth.row_count,
        data_start: truth.data_start,
    };
    let layout = Layout {
        uuid: truth.uuid,
        region_rows: truth.region_rows,
        bitmap_sectors: truth.bitmap_sectors,
        journal_start: truth.journal_start,
        journal_sectors: truth.journal_sectors,
        journal_always: truth.flags & FLAG_JOURNAL_ALWAYS != 0,
    };
    (shape, layout)
}

/// The superblocks of the devices that are given, and why others are no members.
struct Discovered {
    found: Vec<(usize, FoundMember)>,
    unknown: Vec<(usize, String)>,
}

/// Reads the superblocks of all devices.
async fn discover(given: &[Option<Device>]) -> Discovered {
    let mut discovered = Discovered { found: Vec::new(), unknown: Vec::new() };
    for (index, device) in given.iter().enumerate() {
        let why = match device {
            None => "it could not be opened".to_string(),
            Some(device) => match look(device).await {
                Ok(Membership::Member(superblock)) => {
                    let member = FoundMember { device: device.clone(), superblock: *superblock };
                    discovered.found.push((index, member));
                    continue;
                }
                Ok(Membership::None(NoSuperblock::Bad(why))) => format!("it holds an array, but {why}"),
                Ok(Membership::None(NoSuperblock::Other)) => NO_ARRAY.to_string(),
                Err(error) => error.to_string(),
            },
        };
        discovered.unknown.push((index, why));
    }
    discovered
}

/// What the superblocks say about the array, and which of its members take part from now on.
struct Judgement {
    /// That of the highest generation.
    truth: Superblock,
    shape: Shape,
    layout: Layout,
    recorded: Vec<MemberState>,
    now: Vec<MemberState>,
    /// By number; `None` for one that is missing or failed.
    members: Vec<Option<Device>>,
    /// The power failed while superblocks were being written. A member that lags must not be left alone until all agree: it
    /// names another copy of the bitmap than the one used from now on.
    lagging: Vec<(usize, Device)>,
}

/// Decides which members are valid. `given` is the number of devices.
///
/// # Errors
/// When there is no array, when its superblocks contradict each other or the options, or when too few members are valid; when
/// one that should be valid is not and `options` do not allow that.
fn judge(discovered: Discovered, given: usize, options: &ArrayOptions) -> Result<Judgement, ArrayError> {
    let Discovered { found, unknown } = discovered;
    let slots = by_slot(found)?;
    let Some(truth) = slots.values().map(|found| found.superblock).max_by_key(|found| found.generation) else {
        let why = unknown.into_iter().map(|(member, why)| format!("member {member}: {why}")).collect::<Vec<_>>();
        return Err(ArrayError::Nothing { why: why.join("; ") });
    };
    check_truth(&truth, &slots, given, options)?;
    let (shape, layout) = numbers(&truth);
    let recorded: Vec<MemberState> =
        truth.states[..shape.members].iter().map(|&state| MemberState::from_byte(state)).collect();
    let is_current = |found: &&FoundMember| is_recent(&found.superblock, &truth);
    let has_room = |found: &&FoundMember| fits(&found.device, &shape);
    let mut judgement = Judgement {
        truth,
        recorded: recorded.clone(),
        now: Vec::new(),
        members: Vec::new(),
        lagging: Vec::new(),
        shape,
        layout,
    };
    let mut lost = Vec::new();
    for (slot, &member_state) in recorded.iter().enumerate() {
        let found = slots.get(&slot);
        let valid = found.filter(|_| member_state != MemberState::Failed).filter(is_current).filter(has_room);
        if valid.is_none() || member_state != MemberState::Active {
            let why = match member_state {
                MemberState::Failed => "it has failed".to_string(),
                MemberState::Rebuilding => "it is not rebuilt yet".to_string(),
                MemberState::Active => why_missing(found, found.as_ref().is_some_and(is_current), &shape, &unknown),
            };
            lost.push((slot, why));
        }
        if let Some(member) = valid.filter(|member| member.superblock.generation < truth.generation) {
            judgement.lagging.push((slot, member.device.clone()));
        }
        judgement.now.push(if valid.is_some() { member_state } else { MemberState::Failed });
        judgement.members.push(valid.map(|found| found.device.clone()));
    }
    let active = judgement.active().count();
    let needed = if judgement.shape.level == Level::Mirror { 1 } else { judgement.shape.members - 1 };
    if active < needed {
        return Err(ArrayError::TooFew { active, needed, lost });
    }
    let is_missing = |(slot, _): &(usize, String)| recorded[*slot] == MemberState::Active;
    match lost.into_iter().find(is_missing) {
        Some((slot, why)) if !options.degraded => Err(ArrayError::Missing { slot, why }),
        _ => Ok(judgement),
    }
}

/// Why a member that should be valid is not. `unknown` are devices that are no members, with the reason.
fn why_missing(found: Option<&FoundMember>, is_current: bool, shape: &Shape, unknown: &[(usize, String)]) -> String {
    match found {
        Some(_) if !is_current => "it is out of date".to_string(),
        Some(found) => format!("it {}", too_short(&found.device, shape)),
        None if unknown.is_empty() => "it is not among them".to_string(),
        // Any of them may be it.
        None => {
            let mut reasons: Vec<&str> = unknown.iter().map(|(_, why)| why.as_str()).collect();
            reasons.dedup();
            reasons.join("; ")
        }
    }
}

/// Whether the array on it does not end behind a member.
fn fits(device: &Device, shape: &Shape) -> bool {
    device.geometry().sectors >= shape.end()
}

/// What a member is on which the array does not fit.
fn too_short(device: &Device, shape: &Shape) -> String {
    let (bytes, used) = (device.geometry().bytes(), shape.end() * SECTOR_BYTES);
    format!("is shorter than when the array was made: {bytes} of the {used} bytes that the array uses")
}

impl Judgement {
    /// Members that are valid in every row.
    fn active(&self) -> impl Iterator<Item = (usize, &Device)> {
        let is_active = |slot: &usize| self.now[*slot] == MemberState::Active;
        (0..self.shape.members).filter(is_active).filter_map(|slot| Some((slot, self.members[slot].as_ref()?)))
    }

    /// Rows that a power cut may have left inconsistent: those of the `dirty` regions, without what is `known`.
    fn out_of_sync(&self, dirty: &BTreeSet<u64>, known: &Ranges) -> RowSet {
        let (unit, region_rows) = (self.shape.unit, self.layout.region_rows);
        let mut out_of_sync = RowSet::default();
        for &region in dirty {
            let rows = region * region_rows..((region + 1) * region_rows).min(self.shape.rows);
            let is_open = |row: &u64| !known.contains(row * unit..(row + 1) * unit);
            rows.filter(is_open).for_each(|row| out_of_sync.insert(row));
        }
        out_of_sync
    }
}

/// Assembles an array: discovers its members, judges them, and makes them agree.
pub(super) async fn open(rt: &Rt, given: Vec<Option<Device>>, options: &ArrayOptions) -> Result<Rc<Array>, ArrayError> {
    let given: Vec<Option<Device>> = match options.read_only {
        // Recovery then happens in memory.
        true => given.into_iter().map(|device| device.map(|device| ForkDevice::new(device) as Device)).collect(),
        false => given,
    };
    let judgement = judge(discover(&given).await, given.len(), options)?;
    let array = recover(rt, judgement, options).await?;
    if !options.read_only {
        array.start();
    }
    Ok(array)
}

/// Builds the array from what its members hold, replays the journal, and records what has changed.
async fn recover(rt: &Rt, judgement: Judgement, options: &ArrayOptions) -> Result<Rc<Array>, ArrayError> {
    let in_use: Vec<(usize, Device)> = judgement.active().map(|(slot, device)| (slot, device.clone())).collect();
    let truth = judgement.truth;
    let dirty = read_bitmap(&in_use, &judgement.layout, &judgement.shape, truth.bitmap_epoch).await;
    let mut known = Ranges::default();
    for range in truth.known.chunks(2) {
        known.insert(range[0]..range[1]);
    }
    let known = still_known(&known, &judgement.recorded, truth.rebuilt_rows, judgement.shape.unit);
    let out_of_sync = judgement.out_of_sync(&dirty, &known);
    let Judgement { shape, layout, recorded, now, members, lagging, .. } = judgement;
    let tail = (truth.journal_sequence, truth.journal_position);
    let (slots, devices): (Vec<usize>, Vec<Device>) = in_use.into_iter().unzip();
    let sectors_max = request_sectors_max(&devices);
    let (records, next) = match shape.level {
        Level::Mirror => (Vec::new(), tail),
        Level::Parity => {
            let Layout { uuid, journal_start: start, journal_sectors: size, .. } = &layout;
            let ring = Ring { members: &devices, uuid, start: *start, size: *size, sectors_max };
            ring.records(tail).await
        }
    };
    let mut changed = !records.is_empty() || now != recorded;
    let state = State {
        now,
        recorded,
        cursor: truth.rebuilt_rows,
        cursor_recorded: truth.rebuilt_rows,
        generation: truth.generation,
        failed_at: truth.failed_at,
        known,
        ..new_state(shape.members, out_of_sync)
    };
    let bitmap = Bitmap::new(truth.bitmap_epoch, dirty);
    let array = build(rt, shape, Some(layout), members, state, bitmap, Journal::new(tail, next), options);
    let core = array.core();
    for (slot, device) in lagging {
        // Over the older of the two: if this is torn, the member lags as before.
        let block = Data::from_slice(&Superblock { slot: slot as u32, ..truth }.to_block());
        let at = Sector(SUPERBLOCKS[(truth.generation % 2) as usize]);
        if let Err(error) = device.write(at, block, WriteFlags::FUA).await {
            if !core.fail(slot, &error) {
                return Err(ArrayError::Device { member: slot, error });
            }
            changed = true;
        }
    }
    if !options.read_only {
        // Also records members that are missing now, before the others are written to. No bit has to vanish with that
        // (B4): rows that may be inconsistent without them have been since before.
        core.outdate_copies(|state| state.recorded.clone_from(&state.now)).await.map_err(ArrayError::Members)?;
    }
    if !options.read_only {
        core.allocate_metadata().await;
    }
    for FoundRecord { position, image, holders, .. } in &records {
        let holders: Vec<usize> = holders.iter().map(|&holder| slots[holder]).collect();
        core.copy_record(*position, image, &holders).await.map_err(ArrayError::Members)?;
    }
    replay(&core, records).await?;
    let is_kept = core.journal.has_kept();
    if changed && !is_kept {
        core.journal.skip_number(); // Half of a record with the next one may be on a member.
    }
    if changed || core.is_unrecorded() {
        match core.record(true).await {
            Err(error) if is_no_space(&error) && !core.is_unrecorded() => core.begin_journal().await,
            recorded => recorded,
        }
        .map_err(ArrayError::Members)?;
    }
    if is_kept {
        core.erase_next().await.map_err(ArrayError::Members)?; // A number that is left out would end each reading (J1).
    }
    Ok(array)
}

/// The members of the array to which most devices belong.
fn by_slot(found: Vec<(usize, FoundMember)>) -> Result<BTreeMap<usize, FoundMember>, ArrayError> {
    let mut votes: BTreeMap<[u8; 16], usize> = BTreeMap::new();
    for (_, found) in &found {
        *votes.entry(found.superblock.uuid).or_insert(0) += 1;
    }
    let uuid = votes.into_iter().max_by_key(|(_, votes)| *votes).map(|(uuid, _)| uuid);
    let mut slots = BTreeMap::new();
    for (member, found) in found {
        if Some(found.superblock.uuid) != uuid {
            return Err(ArrayError::Foreign { member });
        }
        let slot = found.superblock.slot as usize;
        if slots.insert(slot, found).is_some() {
            return Err(ArrayError::Twice { slot });
        }
    }
    Ok(slots)
}

fn is_active(superblock: &Superblock, slot: u32) -> bool {
    superblock.states[slot as usize] == MemberState::Active.to_byte()
}

/// At most one generation behind.
fn is_recent(found: &Superblock, truth: &Superblock) -> bool {
    found.generation + 1 >= truth.generation
}

/// The superblocks must be consistent with each other, with the options, and with the devices.
fn check_truth(
    truth: &Superblock,
    slots: &BTreeMap<usize, FoundMember>,
    given: usize,
    options: &ArrayOptions,
) -> Result<(), ArrayError> {
    for (&slot, found) in slots {
        if slot >= truth.member_count as usize {
            return Err(ArrayError::Twice { slot }); // F1: they do not describe the same array.
        }
        let (of_truth, of_slot) = (truth.states[slot], found.superblock.states[truth.slot as usize]);
        let failed = MemberState::Failed.to_byte();
        // No member that has failed becomes active at once.
        let is_at_odds = of_truth == failed || is_active(truth, truth.slot) && is_recent(&found.superblock, truth);
        // The power may have failed when it had one generation more than the others.
        let has_gone_on = of_truth == failed
            && truth.failed_at > 0
            && found.superblock.generation > truth.failed_at
            && is_active(&found.superblock, slot as u32);
        // Each has been used without the other; or the second one with another copy of the first.
        if (of_slot == failed && is_at_odds || has_gone_on) && found.superblock.states[slot] != failed {
            let (one, two) = (slot.min(truth.slot as usize), slot.max(truth.slot as usize));
            return Err(ArrayError::Conflict { one, two });
        }
    }
    let contradiction = |what, said: String, found: String| Err(ArrayError::Contradiction { what, said, found });
    let level = if truth.level == 1 { Level::Mirror } else { Level::Parity };
    if level != options.level {
        return contradiction("the kind of array", options.level.name().into(), level.name().into());
    }
    if given != truth.member_count as usize {
        return contradiction("the number of members", given.to_string(), truth.member_count.to_string());
    }
    if level == Level::Parity && options.unit_given && options.unit != truth.unit_sectors {
        let human = |sectors: u64| crate::units::human_bytes(sectors * SECTOR_BYTES);
        return contradiction("the stripe unit", human(options.unit), human(truth.unit_sectors));
    }
    Ok(())
}

/// Regions whose bit is set on any of `members`. A sector that is damaged on all of them counts as set.
async fn read_bitmap(members: &[(usize, Device)], layout: &Layout, shape: &Shape, epoch: u64) -> BTreeSet<u64> {
    let start = bitmap_start(epoch % 2, layout.bitmap_sectors);
    let regions = shape.rows.div_ceil(layout.region_rows);
    let mut set = BTreeSet::new();
    let mut known = BTreeSet::new();
    for (_, member) in members {
        for block in (0..layout.bitmap_sectors).step_by(BLOCK_SECTORS as usize) {
            let read = member.read(Sector(start + block), Buf::dirty(BLOCK_BYTES as usize)).await;
            // A member that cannot be read here is skipped.
            let Ok(read) = read else { continue };
            for sector in 0..BLOCK_SECTORS {
                let (bytes, index) = (&read[bytes(sector, 1)], block + sector);
                let found = BitmapSector::from_bytes(bytes, index, epoch, uuid_start(&layout.uuid));
                if let Some(found) = found {
                    collect(&found, &mut set);
                    known.insert(block + sector);
                }
            }
        }
    }
    let unknown = (0..layout.bitmap_sectors).filter(|sector| !known.contains(sector));
    set.extend(unknown.flat_map(|sector| sector * REGIONS_PER_SECTOR..(sector + 1) * REGIONS_PER_SECTOR));
    set.retain(|region| *region < regions);
    set
}

/// Replays the journal in its order. What has no space is deferred (J7).
async fn replay(core: &Rc<Core>, records: Vec<FoundRecord>) -> Result<(), ArrayError> {
    let end = core.shape.end();
    for FoundRecord { sequence, writes, position, .. } in records {
        for write in &writes {
            let is_inside = write.member < core.shape.members
                && write.at >= core.shape.data_start
                && write.at.checked_add(write.sectors).is_some_and(|stop| stop <= end);
            if !is_inside {
                return Err(ArrayError::Journal { member: write.member, at: Sector(write.at) });
            }
        }
        let _token = core.begin().await;
        let in_use = core.in_use();
        let writes = writes.into_iter().filter(|write| in_use.contains(&write.member)).collect();
        let writes = super::request::merge(writes, core.request_sectors_max);
        core.replay(writes, core.journal.reopen(sequence, position)).await.map_err(ArrayError::Members)?;
    }
    Ok(())
}
