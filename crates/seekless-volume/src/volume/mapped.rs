//! Devices that only translate addresses: concatenation, striping, remapping, permuting, and remapping before striping.
//!
//! They keep no metadata on their members and no data in memory, so they need no format, and also work over members
//! that keep no data. Data stored through one of them can be read only through the same one: same members in the same
//! order, same units, same seed.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use async_trait::async_trait;
use futures_util::future::join_all;

use super::members::{
    MemberPart, Run, ShapeError, block_bytes, check_grain, flush_all, joined, read_runs, relocate, request_bytes_max,
    request_sectors_max, runs, scatter_all, write_runs,
};
use super::permutation::Permutation;
use crate::device::{
    BlockDevice, Buf, Counter, Data, Device, DeviceError, Geometry, Guarantees, HeadView, TrackPlace, WriteFlags,
    ZoneAction, ZoneInfo, Zoned, Zones, worse,
};
use crate::units::{Nanos, SECTOR_BYTES, Sector, human_bytes};

/// Location of a sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct MemberSector {
    pub(super) member: usize,
    pub(super) at: u64,
    /// Length of the run of consecutive sectors on the member, from this one on.
    pub(super) run: u64,
}

/// Maps each sector of a device to its location. It is a bijection between the sectors of the device and the used
/// sectors of its members.
#[derive(Clone, Debug)]
enum Map {
    Concat(Concat),
    Stripe(Stripe),
    Chunks(Chunks),
    /// [st05 Figure 1]: the chunk is remapped first, then striped.
    ChunksThenStripe(Chunks, Stripe),
}

impl Map {
    fn place(&self, sector: u64) -> MemberSector {
        match self {
            Map::Concat(concat) => concat.place(sector),
            Map::Stripe(stripe) => stripe.place(sector),
            Map::Chunks(chunks) => chunks.place(sector),
            Map::ChunksThenStripe(chunks, stripe) => {
                let remapped = chunks.place(sector);
                let place = stripe.place(remapped.at);
                MemberSector { run: place.run.min(remapped.run), ..place }
            }
        }
    }
}

impl Map {
    /// What has to be the same whenever the same members are assembled again.
    fn numbers(&self) -> Vec<u64> {
        // One member has every unit in its place.
        let stripe = |stripe: &Stripe| match stripe.members {
            1 => Vec::new(),
            members => vec![1, members, stripe.unit],
        };
        match self {
            Map::Concat(_) => Vec::new(),
            Map::Stripe(units) => stripe(units),
            Map::Chunks(chunks) => chunks.numbers(),
            Map::ChunksThenStripe(chunks, units) => [chunks.numbers(), stripe(units)].concat(),
        }
    }
}

/// The members one after the other.
#[derive(Clone, Debug)]
struct Concat {
    /// First sector of each member, then the end of the last.
    starts: Vec<u64>,
}

impl Concat {
    fn place(&self, sector: u64) -> MemberSector {
        let member = self.member(sector);
        debug_assert!(self.starts[member] <= sector, "a sector is not before the member that has it");
        MemberSector { member, at: sector - self.starts[member], run: self.starts[member + 1].saturating_sub(sector) }
    }

    /// The member of a sector, or the last one.
    fn member(&self, sector: u64) -> usize {
        let behind = self.starts.partition_point(|&start| start <= sector);
        behind.clamp(1, self.starts.len() - 1) - 1
    }
}

/// RAID-0: units of the device are placed on the members in turn.
#[derive(Clone, Copy, Debug)]
struct Stripe {
    members: u64,
    unit: u64,
}

impl Stripe {
    fn place(&self, sector: u64) -> MemberSector {
        let (unit, within) = (sector / self.unit, sector % self.unit);
        let (row, member) = (unit / self.members, unit % self.members);
        // With one member, unit follows unit.
        let run = if self.members == 1 { u64::MAX - sector } else { self.unit - within };
        MemberSector { member: member as usize, at: row * self.unit + within, run }
    }
}

/// Chunks of the first part of a device are permuted; the rest stays in place.
#[derive(Clone, Debug)]
struct Chunks {
    chunk: u64,
    permutation: Permutation,
}

impl Chunks {
    /// The places of some chunks stand for the seed.
    fn numbers(&self) -> Vec<u64> {
        let count = self.permutation.count();
        if count == 0 {
            return Vec::new();
        }
        let some = [0, count / 3, count / 2].map(|chunk| self.permutation.forward(chunk));
        [&[2, self.chunk, count][..], &some].concat()
    }

    /// `paddr = tbl[b / chunk] + b % chunk` [st05 §3].
    fn place(&self, sector: u64) -> MemberSector {
        let (chunk, within) = (sector / self.chunk, sector % self.chunk);
        if chunk >= self.permutation.count() {
            return MemberSector { member: 0, at: sector, run: u64::MAX - sector };
        }
        let at = self.permutation.forward(chunk) * self.chunk + within;
        MemberSector { member: 0, at, run: self.chunk - within }
    }
}

/// Places that one call of `next_data` looks at before it answers, so that it ends soon on a large device: a millisecond's work. A search then
/// reads one piece, and goes on.
const PLACES_MAX: u32 = 1 << 16;

/// Members that one such call asks, each with a system call: where chunks are in random order, each may be in another hole.
const ASKED_MAX: u32 = 1 << 10;

/// A device over others that only translates addresses. Members are served in parallel.
pub struct Mapped {
    members: Vec<Device>,
    map: Map,
    geometry: Geometry,
    guarantees: Guarantees,
    run_sectors_max: u64,
    name: String,
    requests: Cell<u64>,
    split: Cell<u64>,
    member_requests: Cell<u64>,
}

/// `members` one after the other, of any sizes. It reports head positions if all of them do, with one arm for each, and
/// has their zones if they all have zones of one shape.
///
/// # Errors
/// Without a member, when a member's size is not a multiple of another one's block size, and when zones differ.
pub fn concat(members: Vec<Device>) -> Result<Rc<Mapped>, ShapeError> {
    let mut starts = vec![0];
    let mut end = 0u64;
    for device in &members {
        check_grain(&members, "a member", device.geometry().sectors)?;
        let sectors = u128::from(end) + u128::from(device.geometry().sectors);
        end = total(1, u64::try_from(sectors).map_err(|_| ShapeError::TooLarge { sectors })?)?;
        starts.push(end);
    }
    if members.is_empty() {
        return Err(ShapeError::NoMember);
    }
    let name = format!("concat of {}", members.len());
    let grain = starts.iter().fold(0, |grain, &start| gcd(start, grain));
    let zones = zones_behind_each_other(&members)?;
    Ok(Mapped::with_zones(members, Map::Concat(Concat { starts }), grain, end, name, zones))
}

/// The zones of all members. Which of them are open on which member is for the caller to choose, so that what can be open
/// is what each member permits.
fn zones_behind_each_other(members: &[Device]) -> Result<Option<Zones>, ShapeError> {
    /// The stricter of two limits, where 0 is none.
    fn stricter(one: u32, two: u32) -> u32 {
        if one == 0 || two == 0 { one.max(two) } else { one.min(two) }
    }
    let first = members.first().and_then(|member| member.geometry().zones);
    let mut all = first;
    for (member, device) in members.iter().enumerate() {
        let geometry = device.geometry();
        let is_alike = match (first, geometry.zones) {
            (None, None) => true,
            (Some(first), Some(zones)) => {
                first.zone_sectors == zones.zone_sectors
                    && first.capacity_sectors == zones.capacity_sectors
                    && geometry.sectors == u64::from(zones.count) * zones.zone_sectors
            }
            _ => false,
        };
        let count = match (all, geometry.zones) {
            (Some(all), Some(zones)) if member > 0 => all.count.checked_add(zones.count),
            (all, _) => all.map_or(Some(0), |all| Some(all.count)),
        };
        let (true, Some(count)) = (is_alike, count) else { return Err(ShapeError::Zones { member }) };
        if let (Some(all), Some(zones)) = (&mut all, geometry.zones) {
            all.count = count;
            all.open_max = stricter(all.open_max, zones.open_max);
            all.active_max = stricter(all.active_max, zones.active_max);
        }
    }
    Ok(all)
}

/// RAID-0 over `members`: `unit` sectors on the first, as many on the second, and so on. Each member contributes as
/// much as the smallest one.
///
/// # Errors
/// Without a member, and when the unit does not fit their blocks.
pub fn raid0(members: Vec<Device>, unit: u64) -> Result<Rc<Mapped>, ShapeError> {
    let stripe = striped(&members, unit)?;
    let units = units_of_smallest(&members, unit)?;
    let sectors = total(members.len(), units * unit)?;
    let name = format!("raid0 of {}, {} each", members.len(), human_bytes(unit * SECTOR_BYTES));
    Ok(Mapped::new(members, Map::Stripe(stripe), unit, sectors, name))
}

/// `below` with its chunks of `chunk` sectors in random order: \[st05\]'s disk. A partial last chunk is left out.
///
/// # Errors
/// When a chunk does not fit the blocks of the device, or is larger than it.
pub fn remap(below: Device, chunk: u64, seed: u64) -> Result<Rc<Mapped>, ShapeError> {
    let members = vec![below];
    check_grain(&members, "the chunk", chunk)?;
    let count = units_of_smallest(&members, chunk)?;
    let name = format!("remap in chunks of {}, seed {seed}", human_bytes(chunk * SECTOR_BYTES));
    let chunks = Chunks { chunk, permutation: Permutation::new(count, seed) };
    Ok(Mapped::new(members, Map::Chunks(chunks), chunk, count * chunk, name))
}

/// `below` with the blocks of its first `sectors` sectors in random order and the others in place: \[st05\]'s "stupid"
/// layout of the partition that they hold. Without `sectors`, all whole blocks of the device.
///
/// # Errors
/// When a block does not fit the blocks of the device, or the part is larger than it.
pub fn permute(below: Device, block: u64, seed: u64, sectors: Option<u64>) -> Result<Rc<Mapped>, ShapeError> {
    let members = vec![below];
    check_grain(&members, "the block", block)?;
    let all = units_of_smallest(&members, block)? * block;
    let count = sectors.unwrap_or(all) / block;
    if count * block > all {
        return Err(ShapeError::TooSmall { member: 0, sectors: all, needed: count * block });
    }
    let name = format!("permute blocks of {}, seed {seed}", human_bytes(block * SECTOR_BYTES));
    let chunks = Chunks { chunk: block, permutation: Permutation::new(count, seed) };
    Ok(Mapped::new(members, Map::Chunks(chunks), block, all, name))
}

/// [st05 Figure 1]'s volume: chunks in random order over units that go round the members.
///
/// # Errors
/// As [`raid0`] and [`remap`].
pub fn volume(members: Vec<Device>, chunk: u64, unit: u64, seed: u64) -> Result<Rc<Mapped>, ShapeError> {
    check_grain(&members, "the chunk", chunk)?;
    let stripe = striped(&members, unit)?;
    let sectors = total(members.len(), units_of_smallest(&members, unit)? * unit)?;
    let count = sectors / chunk;
    if count == 0 {
        return Err(ShapeError::TooSmall { member: 0, sectors, needed: chunk });
    }
    let name = format!(
        "volume of {}, chunks of {}, stripes of {}, seed {seed}",
        members.len(),
        human_bytes(chunk * SECTOR_BYTES),
        human_bytes(unit * SECTOR_BYTES)
    );
    let chunks = Chunks { chunk, permutation: Permutation::new(count, seed) };
    Ok(Mapped::new(members, Map::ChunksThenStripe(chunks, stripe), gcd(chunk, unit), count * chunk, name))
}

fn striped(members: &[Device], unit: u64) -> Result<Stripe, ShapeError> {
    if members.is_empty() {
        return Err(ShapeError::NoMember);
    }
    check_grain(members, "the stripe unit", unit)?;
    Ok(Stripe { members: members.len() as u64, unit })
}

/// Whole units on the smallest member, which must be at least one.
fn units_of_smallest(members: &[Device], unit: u64) -> Result<u64, ShapeError> {
    let mut units = u64::MAX;
    for (member, device) in members.iter().enumerate() {
        let sectors = device.geometry().sectors;
        if sectors < unit {
            return Err(ShapeError::TooSmall { member, sectors, needed: unit });
        }
        units = units.min(sectors / unit);
    }
    Ok(units)
}

fn total(members: usize, sectors_each: u64) -> Result<u64, ShapeError> {
    let sectors = members as u128 * u128::from(sectors_each);
    // Byte addresses must fit into 64 bits too.
    match u64::try_from(sectors * u128::from(SECTOR_BYTES)) {
        Ok(bytes) => Ok(bytes / SECTOR_BYTES),
        Err(_) => Err(ShapeError::TooLarge { sectors }),
    }
}

fn gcd(one: u64, two: u64) -> u64 {
    if two == 0 { one } else { gcd(two, one % two) }
}

impl Mapped {
    /// `grain`: requests are cut only at multiples of this many sectors, above and below.
    fn new(members: Vec<Device>, map: Map, grain: u64, sectors: u64, name: String) -> Rc<Mapped> {
        Mapped::with_zones(members, map, grain, sectors, name, None)
    }

    fn with_zones(
        members: Vec<Device>,
        map: Map,
        grain: u64,
        sectors: u64,
        name: String,
        zones: Option<Zones>,
    ) -> Rc<Mapped> {
        let spread = match &map {
            Map::Stripe(stripe) | Map::ChunksThenStripe(_, stripe) => stripe.members,
            Map::Chunks(_) | Map::Concat(_) => 1,
        };
        debug_assert!(
            u128::from(sectors) <= members.iter().map(|member| u128::from(member.geometry().sectors)).sum(),
            "no two sectors are at one place: there are no more than the members have"
        );
        let mut guarantees = joined(&members, grain);
        // A single member, alone or in a stripe, is that member.
        let is_plain = members.len() == 1 && matches!(&map, Map::Stripe(_) | Map::Concat(_));
        guarantees.ordered = is_plain && members[0].guarantees().ordered;
        let geometry = Geometry {
            sectors,
            block_bytes: block_bytes(&members),
            request_bytes_max: request_bytes_max(&members, spread),
            zones,
        };
        Rc::new(Mapped {
            run_sectors_max: request_sectors_max(&members),
            members,
            map,
            geometry,
            guarantees,
            name,
            requests: Cell::new(0),
            split: Cell::new(0),
            member_requests: Cell::new(0),
        })
    }

    /// The devices below, in their order.
    pub fn members(&self) -> &[Device] {
        &self.members
    }

    /// Where `sector` lies: the member, and the sector there.
    ///
    /// # Errors
    /// `OutOfRange`.
    pub fn locate(&self, sector: Sector) -> Result<(usize, Sector), DeviceError> {
        let Geometry { sectors, .. } = self.geometry;
        if sector.0 >= sectors {
            return Err(DeviceError::OutOfRange { at: sector, bytes: SECTOR_BYTES, sectors });
        }
        let place = self.map.place(sector.0);
        Ok((place.member, Sector(place.at)))
    }

    /// The location of a request that need not be split, the usual case.
    fn single(&self, at: Sector, sectors: u64) -> Option<(usize, Sector)> {
        let place = self.map.place(at.0);
        let is_single = place.run >= sectors && sectors <= self.run_sectors_max;
        debug_assert!(
            !is_single || place.at + sectors <= self.members[place.member].geometry().sectors,
            "what is mapped lies on its member"
        );
        is_single.then_some((place.member, Sector(place.at)))
    }

    /// `error` of a member, with the address that the caller used.
    fn blame(&self, error: DeviceError, member: usize, at: Sector, sectors: u64) -> DeviceError {
        if matches!(error, DeviceError::NotAtWritePointer { .. } | DeviceError::Zone { .. }) {
            return self.zone_error(error, member);
        }
        relocate(error, member, at, sectors * SECTOR_BYTES)
    }

    /// The first sector from `from` on that a member may have data in; `u64::MAX` where there is none. The caller used address `at`.
    async fn data_on_member(&self, member: usize, from: u64, at: Sector) -> Result<u64, DeviceError> {
        let data = self.members[member].next_data(Sector(from)).await;
        let data = data.map_err(|error| self.blame(error, member, at, self.geometry.sectors - at.0))?;
        Ok(data.map_or(u64::MAX, |data| data.0))
    }

    /// The pieces of a request, in its order.
    fn pieces(&self, at: Sector, sectors: u64) -> impl Iterator<Item = MemberPart> + '_ {
        let mut offset = 0;
        std::iter::from_fn(move || {
            if offset == sectors {
                return None;
            }
            let place = self.map.place(at.0 + offset);
            let piece =
                MemberPart { member: place.member, at: place.at, sectors: place.run.min(sectors - offset), offset };
            debug_assert!(piece.sectors > 0, "a request is cut into parts that are something");
            debug_assert!(
                piece.at + piece.sectors <= self.members[piece.member].geometry().sectors,
                "what is mapped lies on its member"
            );
            offset += piece.sectors;
            Some(piece)
        })
    }

    fn runs(&self, at: Sector, sectors: u64) -> Vec<Run> {
        let runs = runs(self.pieces(at, sectors), self.run_sectors_max);
        self.count(runs.len() as u64);
        runs
    }

    fn count(&self, runs: u64) {
        self.requests.set(self.requests.get() + 1);
        self.member_requests.set(self.member_requests.get() + runs);
        self.split.set(self.split.get() + u64::from(runs > 1));
    }

    /// Applies an operation to every member's runs, which are not cut to the longest request: discards and provisions
    /// have no such limit.
    async fn for_runs(
        &self,
        at: Sector,
        sectors: u64,
        ask: impl AsyncFn(&Device, Sector, u64) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.geometry.check(at, sectors.min(u64::MAX / SECTOR_BYTES) * SECTOR_BYTES)?;
        let runs = runs(self.pieces(at, sectors), u64::MAX);
        let asked = runs.iter().map(|run| ask(&self.members[run.member], Sector(run.at), run.sectors));
        let results = join_all(asked).await;
        runs.iter().zip(results).map(|(run, result)| result.map_err(|error| run.blame(error, at))).fold(Ok(()), worse)
    }
}

impl Mapped {
    /// The member of consecutive sectors, the sector there, and what precedes the member: sectors and arms. `None`
    /// beyond the last sector.
    fn member_of(&self, sector: Sector) -> Option<(&dyn HeadView, Sector, u64, u32)> {
        let Map::Concat(concat) = &self.map else { return None };
        let member = concat.member(sector.0);
        let arms = self.members[..member].iter().filter_map(|member| member.head()).map(HeadView::arms).sum();
        let start = concat.starts[member];
        Some((self.members[member].head()?, Sector(sector.0 - start), start, arms))
    }
}

/// Only for [`concat()`], of members with heads.
impl HeadView for Mapped {
    fn arms(&self) -> u32 {
        self.members.iter().filter_map(|member| member.head()).map(HeadView::arms).sum()
    }

    fn current_track(&self, arm: u32) -> (Sector, u64) {
        let Map::Concat(concat) = &self.map else { return (Sector::ZERO, 0) };
        let mut before = 0;
        for (member, &start) in self.members.iter().zip(&concat.starts) {
            let Some(head) = member.head() else { continue };
            if arm < before + head.arms() {
                let (first, sectors) = head.current_track(arm - before);
                return (first + start, sectors);
            }
            before += head.arms();
        }
        (Sector::ZERO, 0)
    }

    fn write_access(&self, at: Nanos, sector: Sector, sectors: u32) -> Nanos {
        self.member_of(sector).map_or(Nanos::MAX, |(head, sector, ..)| head.write_access(at, sector, sectors))
    }

    fn track_of(&self, sector: Sector) -> Option<TrackPlace> {
        let (head, on_member, start, arms) = self.member_of(sector)?;
        let place = head.track_of(on_member)?;
        Some(TrackPlace { first: place.first + start, arm: place.arm + arms, ..place })
    }
}

impl Mapped {
    /// The member of a zone, its number there, and what the member has for it.
    fn zone_on_member(&self, zone: u32) -> Result<(usize, u32, &dyn Zoned), DeviceError> {
        let mut first = 0;
        for (number, member) in self.members.iter().enumerate() {
            let (Some(zones), Some(zoned)) = (member.geometry().zones, member.zoned()) else { break };
            if zone - first < zones.count {
                return Ok((number, zone - first, zoned));
            }
            first += zones.count;
        }
        Err(DeviceError::Zone { zone, problem: "there is no such zone" })
    }

    fn start_of_member(&self, member: usize) -> u64 {
        match &self.map {
            Map::Concat(concat) => concat.starts[member],
            _ => 0,
        }
    }

    /// What a member says of its zones, in the addresses of the whole.
    fn zone_error(&self, error: DeviceError, member: usize) -> DeviceError {
        let start = self.start_of_member(member);
        let zones_before = |zones: Zones| u32::try_from(start / zones.zone_sectors).unwrap_or(u32::MAX);
        let before = self.geometry.zones.map_or(0, zones_before);
        match error {
            DeviceError::NotAtWritePointer { at, zone, pointer } => {
                DeviceError::NotAtWritePointer { at: at + start, zone: zone + before, pointer: pointer + start }
            }
            DeviceError::Zone { zone, problem } => DeviceError::Zone { zone: zone + before, problem },
            other => other,
        }
    }
}

/// Only for [`concat()`], of members with zones.
#[async_trait(?Send)]
impl Zoned for Mapped {
    fn zone(&self, zone: u32) -> Result<ZoneInfo, DeviceError> {
        let (member, inner, zoned) = self.zone_on_member(zone)?;
        let info = zoned.zone(inner).map_err(|error| self.zone_error(error, member))?;
        Ok(ZoneInfo { pointer: info.pointer + self.start_of_member(member), ..info })
    }

    async fn append(&self, zone: u32, data: Data, flags: WriteFlags) -> Result<Sector, DeviceError> {
        let (member, inner, zoned) = self.zone_on_member(zone)?;
        self.count(1);
        let sectors = data.len() as u64 / SECTOR_BYTES;
        let at = zoned.append(inner, data, flags).await;
        let start = self.geometry.zones.map_or(Sector::ZERO, |zones| zones.start(zone));
        at.map(|at| at + self.start_of_member(member)).map_err(|error| self.blame(error, member, start, sectors))
    }

    async fn manage(&self, zone: u32, action: ZoneAction) -> Result<(), DeviceError> {
        let (member, inner, zoned) = self.zone_on_member(zone)?;
        let start = self.geometry.zones.map_or(Sector::ZERO, |zones| zones.start(zone));
        zoned.manage(inner, action).await.map_err(|error| self.blame(error, member, start, 0))
    }
}

#[async_trait(?Send)]
impl BlockDevice for Mapped {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn zoned(&self) -> Option<&dyn Zoned> {
        self.geometry.zones.map(|_| self as &dyn Zoned)
    }

    fn guarantees(&self) -> Guarantees {
        self.guarantees
    }

    fn head(&self) -> Option<&dyn HeadView> {
        let has_heads = self.members.iter().all(|member| member.head().is_some());
        (has_heads && matches!(self.map, Map::Concat(_))).then_some(self as &dyn HeadView)
    }

    async fn read(&self, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        self.geometry.check(at, buf.len() as u64)?;
        let sectors = buf.len() as u64 / SECTOR_BYTES;
        if sectors == 0 {
            return Ok(buf);
        }
        if let Some((member, place)) = self.single(at, sectors) {
            self.count(1);
            return self.members[member].read(place, buf).await.map_err(|error| self.blame(error, member, at, sectors));
        }
        let runs = self.runs(at, sectors);
        read_runs(&self.members, &runs, at, &mut buf).await?;
        Ok(buf)
    }

    /// Looks at a bounded number of places, then answers with the next one.
    async fn next_data(&self, at: Sector) -> Result<Option<Sector>, DeviceError> {
        let end = self.geometry.sectors;
        let mut holes = vec![0..0; self.members.len()];
        let (mut sector, mut asked) = (at.0, 0);
        for _ in 0..PLACES_MAX {
            if sector >= end {
                return Ok(None);
            }
            let place = self.map.place(sector);
            let hole = &mut holes[place.member];
            if !hole.contains(&place.at) {
                if asked == ASKED_MAX {
                    break;
                }
                asked += 1;
                *hole = place.at..self.data_on_member(place.member, place.at, at).await?;
            }
            let run = place.run.min(end - sector);
            if hole.end - place.at < run {
                return Ok(Some(Sector(sector + hole.end - place.at)));
            }
            sector += run;
        }
        for member in 0..self.members.len() {
            if self.data_on_member(member, 0, at).await? < u64::MAX {
                return Ok(Some(Sector(sector)));
            }
        }
        Ok(None)
    }

    fn readings(&self) -> u32 {
        self.members.iter().map(|member| member.readings()).max().unwrap_or(1)
    }

    /// A member with fewer readings than others starts over with its first.
    async fn read_as(&self, at: Sector, mut buf: Buf, reading: u32) -> Result<Buf, DeviceError> {
        self.geometry.check(at, buf.len() as u64)?;
        let runs = self.runs(at, buf.len() as u64 / SECTOR_BYTES);
        let read = |run: &Run| {
            let (member, at) = (self.members[run.member].clone(), Sector(run.at));
            let buf = Buf::dirty((run.sectors * SECTOR_BYTES) as usize);
            async move { member.read_as(at, buf, reading % member.readings().max(1)).await }
        };
        let results = join_all(runs.iter().map(read)).await.into_iter();
        let blamed = runs.iter().zip(results).map(|(run, result)| result.map_err(|error| run.blame(error, at)));
        scatter_all(&runs, &blamed.collect::<Result<Vec<Buf>, DeviceError>>()?, &mut buf);
        Ok(buf)
    }

    async fn correct(&self, at: Sector, data: Data) -> Result<bool, DeviceError> {
        self.geometry.check(at, data.len() as u64)?;
        let runs = self.runs(at, data.len() as u64 / SECTOR_BYTES);
        let results = join_all(runs.iter().map(|run| {
            let (member, at, data) = (self.members[run.member].clone(), Sector(run.at), run.data(&data));
            async move { member.correct(at, data).await }
        }))
        .await;
        let mut any = false;
        for (run, result) in runs.iter().zip(results) {
            any |= result.map_err(|error| run.blame(error, at))?;
        }
        Ok(any)
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.geometry.check(at, data.len() as u64)?;
        let sectors = data.len() as u64 / SECTOR_BYTES;
        if sectors == 0 {
            return Ok(());
        }
        if let Some((member, place)) = self.single(at, sectors) {
            self.count(1);
            let written = self.members[member].write(place, data, flags).await;
            return written.map_err(|error| self.blame(error, member, at, sectors));
        }
        if let Some(zones) = self.geometry.zones {
            return Err(DeviceError::Zone { zone: zones.zone_of(at), problem: "a write must stay in one zone" });
        }
        let runs = self.runs(at, sectors);
        write_runs(&self.members, &runs, at, &data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        flush_all(&self.members).await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.for_runs(at, sectors, async |member, at, sectors| member.discard(at, sectors).await).await
    }

    async fn provision(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.for_runs(at, sectors, async |member, at, sectors| member.provision(at, sectors).await).await
    }

    async fn release(&self) -> Result<(), DeviceError> {
        let results = join_all(self.members.iter().map(|member| member.release())).await;
        results.into_iter().collect()
    }

    fn arrangement(&self) -> u32 {
        let members = self.members.iter().flat_map(|member| u64::from(member.arrangement()).to_le_bytes());
        let bytes: Vec<u8> = self.map.numbers().into_iter().flat_map(u64::to_le_bytes).chain(members).collect();
        // Members one after the other can get more behind them.
        if bytes.iter().all(|&byte| byte == 0) { 0 } else { crate::codec::crc32c(&bytes).max(1) }
    }

    fn parts(&self) -> u32 {
        self.members.iter().map(|member| member.parts()).sum()
    }

    fn part_at(&self, sector: Sector) -> (u32, u64) {
        let place = self.map.place(sector.0);
        let before: u32 = self.members[..place.member].iter().map(|member| member.parts()).sum();
        let (part, run) = self.members[place.member].part_at(Sector(place.at));
        (before + part, run.min(place.run))
    }

    fn counters(&self) -> Vec<Counter> {
        vec![
            ("requests", self.requests.get()),
            ("requests_split", self.split.get()),
            ("member_requests", self.member_requests.get()),
        ]
    }

    fn describe(&self) -> String {
        let below = self.members[0].describe();
        format!("{} ({}) / {below}", self.name, human_bytes(self.geometry.capacity_bytes()))
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe())
    }
}
