//! Faults: a pass-through device that fails or delays the requests that its rules pick.
//!
//! A rule says which requests it looks at, when it fires and what then happens. Rules are evaluated in the order in
//! which they were added; each counts the requests it looked at. The first that fires with an error decides; delays add
//! up. All random choices come from the seed.
//!
//! Sectors can also be lost: reading them fails until they are written again, as on a drive that remaps bad sectors.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use async_trait::async_trait;

use super::{
    BlockDevice, Buf, Counter, Data, Device, DeviceError, Geometry, Guarantees, HeadView, Spans, WriteFlags,
    ZoneAction, ZoneInfo, Zoned,
};
use crate::rng::Rng;
use crate::rt::Rt;
use crate::units::{Nanos, SECTOR_BYTES, Sector};

bitflags::bitflags! {
    /// Kinds of request.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub struct Kinds: u8 {
        const READ = 1;
        const WRITE = 2;
        const FLUSH = 4;
        const DISCARD = 8;
        const PROVISION = 16;
    }
}

impl Kinds {
    fn verb(self) -> &'static str {
        match self {
            Kinds::READ => "read",
            Kinds::WRITE => "write",
            Kinds::FLUSH => "flush",
            Kinds::DISCARD => "discard",
            _ => "provision",
        }
    }
}

/// When a rule fires, by its own count of the requests it looked at, starting at 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum When {
    Always,
    Nth(u64),
    /// The nth and all after it.
    From(u64),
    /// Every nth.
    Every(u64),
    Chance {
        numerator: u64,
        denominator: u64,
    },
}

/// What happens to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It fails with `Io`. Of a write, a part drawn from the seed may have reached the device, and a discard may have been
    /// done. A failed flush does not reach it.
    Error,
    /// It fails with `NoSpace`; of a write, a part drawn from the seed may have reached the device. On reads and flushes it
    /// acts as `Error`.
    NoSpace,
    ReadOnly,
    /// It fails with `Gone`, and so does every request after it. Of a write, a part drawn from the seed may have reached
    /// the device before.
    Gone,
    /// It starts later, by a time drawn from the range.
    Delay(RangeInclusive<Nanos>),
}

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rule {
    pub kinds: Kinds,
    /// Only requests that touch these sectors; `None` for all, and for flushes always.
    pub sectors: Option<Range<Sector>>,
    pub when: When,
    pub effect: Effect,
}

impl Rule {
    /// A rule for requests of `kinds` anywhere.
    pub fn new(kinds: Kinds, when: When, effect: Effect) -> Rule {
        Rule { kinds, sectors: None, when, effect }
    }

    /// The same rule for requests that touch `sectors` alone.
    pub fn within(self, sectors: Range<Sector>) -> Rule {
        Rule { sectors: Some(sectors), ..self }
    }

    fn looks_at(&self, kind: Kinds, at: Sector, sectors: u64) -> bool {
        let touches = |range: &Range<Sector>| at < range.end && range.start < at + sectors;
        self.kinds.contains(kind) && (kind == Kinds::FLUSH || self.sectors.as_ref().is_none_or(touches))
    }
}

struct Armed {
    rule: Rule,
    looked_at: u64,
}

/// Lost sectors, as ranges that neither overlap nor are empty: the end of each, by its start. A test may lose most of a
/// large device.
#[derive(Default)]
struct Lost(BTreeMap<Sector, Sector>);

impl Lost {
    /// The ranges that overlap `sectors`, the last one first.
    fn overlapping(&self, sectors: Range<Sector>) -> impl Iterator<Item = Range<Sector>> {
        let before_end = self.0.range(..sectors.end).rev().map(|(&start, &end)| start..end);
        before_end.take_while(move |lost| lost.end > sectors.start && !sectors.is_empty())
    }

    fn add(&mut self, sectors: Range<Sector>) {
        self.remove(sectors.clone());
        if !sectors.is_empty() {
            self.0.insert(sectors.start, sectors.end);
        }
    }

    fn remove(&mut self, sectors: Range<Sector>) {
        let cut: Vec<Range<Sector>> = self.overlapping(sectors.clone()).collect();
        for lost in cut {
            self.0.remove(&lost.start);
            if lost.start < sectors.start {
                self.0.insert(lost.start, sectors.start);
            }
            if sectors.end < lost.end {
                self.0.insert(sectors.end, lost.end);
            }
        }
    }

    /// The first lost sector of `sectors`.
    fn first_of(&self, sectors: Range<Sector>) -> Option<Sector> {
        self.overlapping(sectors.clone()).last().map(|lost| lost.start.max(sectors.start))
    }
}

/// What a device that has gone answers.
const GONE: DeviceError = DeviceError::Gone("removed by a fault rule");

/// A device that fails or delays requests as its rules say.
pub struct FaultDevice {
    rt: Rt,
    inner: Device,
    rng: RefCell<Rng>,
    rules: RefCell<Vec<Armed>>,
    lost: RefCell<Lost>,
    gone: Cell<bool>,
    failed: Cell<u64>,
    delayed: Cell<u64>,
}

impl FaultDevice {
    /// Passes everything on to `inner` until rules are added.
    pub fn new(rt: &Rt, inner: Device, seed: u64) -> Rc<FaultDevice> {
        Rc::new(FaultDevice {
            rt: rt.clone(),
            inner,
            rng: RefCell::new(Rng::new(seed)),
            rules: RefCell::default(),
            lost: RefCell::default(),
            gone: Cell::new(false),
            failed: Cell::new(0),
            delayed: Cell::new(0),
        })
    }

    pub fn add(&self, rule: Rule) {
        self.rules.borrow_mut().push(Armed { rule, looked_at: 0 });
    }

    /// Makes reads of `sectors` fail with `Io` until they are written again.
    pub fn lose(&self, sectors: Range<Sector>) {
        self.lost.borrow_mut().add(sectors);
    }

    /// Sectors that have been lost and not been written since.
    pub fn lost(&self) -> Vec<Sector> {
        let lost = self.lost.borrow();
        lost.0.iter().flat_map(|(start, end)| (start.0..end.0).map(Sector)).collect()
    }

    /// What has been written or discarded is readable again.
    fn found(&self, at: Sector, sectors: u64) {
        self.lost.borrow_mut().remove(at..at + sectors);
    }

    fn check_lost(&self, at: Sector, bytes: usize) -> Result<(), DeviceError> {
        let end = at + bytes as u64 / SECTOR_BYTES;
        let Some(sector) = self.lost.borrow().first_of(at..end) else { return Ok(()) };
        self.failed.set(self.failed.get() + 1);
        let (bytes, cause) = (bytes as u64, format!("sector {sector} is lost"));
        Err(DeviceError::Io { operation: "read", at, bytes, cause })
    }

    /// Removes all rules; a device that has gone stays gone, and lost sectors stay lost.
    pub fn clear(&self) {
        self.rules.borrow_mut().clear();
    }

    /// Requests that failed so far because of a rule.
    pub fn failed(&self) -> u64 {
        self.failed.get()
    }

    /// How many requests the rule added as number `index` has looked at.
    pub fn looked_at(&self, index: usize) -> u64 {
        self.rules.borrow().get(index).map_or(0, |armed| armed.looked_at)
    }

    /// The delay and the error that the rules have for a request.
    fn judge(&self, kind: Kinds, at: Sector, bytes: u64) -> (Nanos, Option<Effect>) {
        let mut rng = self.rng.borrow_mut();
        let (mut delay, mut error) = (Nanos::ZERO, None);
        for armed in self.rules.borrow_mut().iter_mut() {
            if !armed.rule.looks_at(kind, at, bytes.div_ceil(SECTOR_BYTES)) {
                continue;
            }
            armed.looked_at += 1;
            let count = armed.looked_at;
            let fires = match armed.rule.when {
                When::Always => true,
                When::Nth(nth) => count == nth,
                When::From(nth) => count >= nth,
                When::Every(nth) => nth > 0 && count.is_multiple_of(nth),
                When::Chance { numerator, denominator } => denominator > 0 && rng.chance(numerator, denominator),
            };
            match &armed.rule.effect {
                Effect::Delay(range) if fires => {
                    delay += Nanos(rng.between(range.start().0.min(range.end().0), range.end().0));
                }
                effect if fires && error.is_none() => error = Some(effect.clone()),
                _ => {}
            }
        }
        (delay, error)
    }

    /// Waits as the rules say, and fails as they say.
    async fn gate(&self, kind: Kinds, at: Sector, bytes: u64) -> Result<(), DeviceError> {
        if self.gone.get() {
            return Err(GONE);
        }
        let (delay, error) = self.judge(kind, at, bytes);
        if delay > Nanos::ZERO {
            self.delayed.set(self.delayed.get() + 1);
            self.rt.sleep(delay).await;
        }
        let Some(effect) = error else { return Ok(()) };
        self.failed.set(self.failed.get() + 1);
        let needs_space = matches!(kind, Kinds::WRITE | Kinds::DISCARD | Kinds::PROVISION);
        Err(match effect {
            Effect::NoSpace if needs_space => DeviceError::NoSpace { at, bytes },
            Effect::ReadOnly => DeviceError::ReadOnly,
            Effect::Gone => {
                self.gone.set(true);
                GONE
            }
            _ => DeviceError::Io { operation: kind.verb(), at, bytes, cause: "injected by a fault rule".into() },
        })
    }

    /// Blocks of a failed write that reached the device nevertheless, in byte offsets.
    fn surviving_blocks(&self, bytes: usize) -> Vec<Range<usize>> {
        let block = self.inner.geometry().block_bytes as usize;
        let mut rng = self.rng.borrow_mut();
        let blocks = bytes / block;
        // Nothing, everything, the first few blocks, or a random subset.
        let kept: Vec<bool> = match rng.below(4) {
            0 => vec![false; blocks],
            1 => vec![true; blocks],
            2 => {
                let first = rng.below(blocks as u64 + 1) as usize;
                (0..blocks).map(|index| index < first).collect()
            }
            _ => (0..blocks).map(|_| rng.chance(1, 2)).collect(),
        };
        (0..blocks).filter(|&index| kept[index]).map(|index| index * block..(index + 1) * block).collect()
    }
}

#[async_trait(?Send)]
impl BlockDevice for FaultDevice {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn zoned(&self) -> Option<&dyn Zoned> {
        self.inner.zoned().map(|_| self as &dyn Zoned)
    }

    fn spans(&self) -> Option<Spans> {
        self.inner.spans()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn head(&self) -> Option<&dyn HeadView> {
        self.inner.head()
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.gate(Kinds::READ, at, buf.len() as u64).await?;
        self.check_lost(at, buf.len())?;
        self.inner.read(at, buf).await
    }

    /// A lost sector is no hole.
    async fn next_data(&self, at: Sector) -> Result<Option<Sector>, DeviceError> {
        if self.gone.get() {
            return Err(GONE);
        }
        let block = u64::from(self.inner.geometry().block_bytes) / SECTOR_BYTES;
        let lost = self.lost.borrow().first_of(at..Sector(self.inner.geometry().sectors));
        let lost = lost.map(|lost| Sector(lost.0 / block * block).max(at));
        let data = self.inner.next_data(at).await?;
        Ok(lost.into_iter().chain(data).min())
    }

    fn readings(&self) -> u32 {
        self.inner.readings()
    }

    async fn read_as(&self, at: Sector, buf: Buf, reading: u32) -> Result<Buf, DeviceError> {
        self.gate(Kinds::READ, at, buf.len() as u64).await?;
        self.check_lost(at, buf.len())?;
        self.inner.read_as(at, buf, reading).await
    }

    async fn correct(&self, at: Sector, data: Data) -> Result<bool, DeviceError> {
        self.gate(Kinds::WRITE, at, data.len() as u64).await?;
        self.check_lost(at, data.len())?;
        self.inner.correct(at, data).await
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        let was_gone = self.gone.get();
        let gate = self.gate(Kinds::WRITE, at, data.len() as u64).await;
        let arrives_in_part = match &gate {
            Err(DeviceError::Io { .. } | DeviceError::NoSpace { .. }) => true,
            Err(DeviceError::Gone(_)) => !was_gone,
            _ => false,
        };
        if arrives_in_part {
            let mut end = 0;
            for block in self.surviving_blocks(data.len()) {
                // What is written in order survives up to some place.
                if self.is_in_order() && std::mem::replace(&mut end, block.end) != block.start {
                    break;
                }
                self.inner.write(at + block.start as u64 / SECTOR_BYTES, data.slice(block), WriteFlags::NONE).await?;
            }
        }
        gate?;
        let sectors = data.len() as u64 / SECTOR_BYTES;
        self.inner.write(at, data, flags).await?;
        self.found(at, sectors);
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.gate(Kinds::FLUSH, Sector::ZERO, 0).await?;
        self.inner.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let gate = self.gate(Kinds::DISCARD, at, sectors.saturating_mul(SECTOR_BYTES)).await;
        if let Err(DeviceError::Io { .. }) = gate
            && self.rng.borrow_mut().chance(1, 2)
        {
            self.inner.discard(at, sectors).await?;
        }
        gate?;
        self.inner.discard(at, sectors).await?;
        self.found(at, sectors);
        Ok(())
    }

    async fn provision(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.gate(Kinds::PROVISION, at, sectors.saturating_mul(SECTOR_BYTES)).await?;
        self.inner.provision(at, sectors).await
    }

    async fn release(&self) -> Result<(), DeviceError> {
        self.inner.release().await
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("requests_failed", self.failed.get()), ("requests_delayed", self.delayed.get())]
    }

    fn arrangement(&self) -> u32 {
        self.inner.arrangement()
    }

    fn parts(&self) -> u32 {
        self.inner.parts()
    }

    fn part_at(&self, sector: Sector) -> (u32, u64) {
        self.inner.part_at(sector)
    }

    fn describe(&self) -> String {
        format!("fault / {}", self.inner.describe())
    }
}

/// For the rules, an append is a write to the beginning of its zone, a reset is a discard of the zone, and what else changes its
/// state is a write of no bytes.
#[async_trait(?Send)]
impl Zoned for FaultDevice {
    fn zone(&self, zone: u32) -> Result<ZoneInfo, DeviceError> {
        self.zones_below()?.zone(zone)
    }

    async fn append(&self, zone: u32, data: Data, flags: WriteFlags) -> Result<Sector, DeviceError> {
        let gate = self.gate(Kinds::WRITE, self.zone_start(zone), data.len() as u64).await;
        if let Err(DeviceError::Io { .. } | DeviceError::NoSpace { .. }) = gate {
            let whole = self.surviving_blocks(data.len());
            let survives = whole.iter().zip(0..).take_while(|(block, number)| block.start == number * block.len());
            if let Some((last, _)) = survives.last() {
                self.zones_below()?.append(zone, data.slice(0..last.end), WriteFlags::NONE).await?;
            }
        }
        gate?;
        let sectors = data.len() as u64 / SECTOR_BYTES;
        let at = self.zones_below()?.append(zone, data, flags).await?;
        self.found(at, sectors);
        Ok(at)
    }

    async fn manage(&self, zone: u32, action: ZoneAction) -> Result<(), DeviceError> {
        let (at, sectors) = (self.zone_start(zone), self.inner.geometry().zones.map_or(0, |zones| zones.zone_sectors));
        let is_reset = action == ZoneAction::Reset;
        match is_reset {
            true => self.gate(Kinds::DISCARD, at, sectors.saturating_mul(SECTOR_BYTES)).await?,
            false => self.gate(Kinds::WRITE, at, 0).await?,
        }
        self.zones_below()?.manage(zone, action).await?;
        if is_reset {
            self.found(at, sectors);
        }
        Ok(())
    }
}

impl FaultDevice {
    fn is_in_order(&self) -> bool {
        self.inner.spans().is_some() || self.inner.zoned().is_some()
    }

    fn zones_below(&self) -> Result<&dyn Zoned, DeviceError> {
        self.inner.zoned().ok_or(DeviceError::Gone("its zones have gone"))
    }

    fn zone_start(&self, zone: u32) -> Sector {
        self.inner.geometry().zones.map_or(Sector::ZERO, |zones| zones.start(zone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;
    use crate::rt::{Executor, HostProfile};

    fn run(rules: Vec<Rule>, body: impl AsyncFnOnce(Rt, Rc<FaultDevice>)) {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let device = FaultDevice::new(&rt, Rc::new(Memory::new(64 << 10)), 7);
        rules.into_iter().for_each(|rule| device.add(rule));
        executor.block_on(body(rt, device)).expect("nothing waits indefinitely");
    }

    async fn put(device: &FaultDevice, sector: u64, bytes: usize, byte: u8) -> Result<(), DeviceError> {
        device.write(Sector(sector), Data::from_slice(&vec![byte; bytes]), WriteFlags::NONE).await
    }

    async fn get(device: &FaultDevice, sector: u64, bytes: usize) -> Vec<u8> {
        device.read(Sector(sector), Buf::dirty(bytes)).await.expect("no rule for reads").to_vec()
    }

    /// Rules count the requests they look at, and only those.
    #[test]
    fn rules_pick_by_count_kind_and_place() {
        let rules = vec![
            Rule::new(Kinds::WRITE, When::Nth(2), Effect::NoSpace).within(Sector(8)..Sector(16)),
            Rule::new(Kinds::FLUSH, When::From(2), Effect::Error),
        ];
        run(rules, async |_, device| {
            for (sector, ok) in [(0, true), (8, true), (16, true), (15, false), (15, true), (6, true)] {
                let result = put(&device, sector, 512, 1).await;
                assert_eq!(result.is_ok(), ok, "sector {sector}");
            }
            let flushes = [device.flush().await.is_ok(), device.flush().await.is_ok(), device.flush().await.is_ok()];
            assert_eq!(flushes, [true, false, false]);
            assert_eq!((device.looked_at(0), device.failed()), (3, 3));
            device.clear();
            assert_eq!(device.flush().await, Ok(()));
        });
    }

    /// A write that fails with `NoSpace` or `Io` leaves some blocks of the new and some of the old.
    #[test]
    fn failed_writes_leave_what_the_interface_says() {
        for effect in [Effect::NoSpace, Effect::Error] {
            run(vec![Rule::new(Kinds::WRITE, When::Always, effect.clone())], async |_, device| {
                let mut outcomes = std::collections::BTreeSet::new();
                for sector in (0..128).step_by(8) {
                    match put(&device, sector, 4096, 1).await {
                        Err(DeviceError::Io { operation: "write", .. }) => assert_eq!(effect, Effect::Error),
                        Err(DeviceError::NoSpace { bytes: 4096, .. }) => assert_eq!(effect, Effect::NoSpace),
                        other => panic!("{other:?}"),
                    }
                    let blocks: Vec<u8> = get(&device, sector, 4096).await.chunks(512).map(|block| block[0]).collect();
                    outcomes.insert(blocks.iter().map(|&block| u32::from(block)).sum::<u32>());
                }
                assert!(outcomes.contains(&0) && outcomes.contains(&8) && outcomes.len() > 3, "{outcomes:?}");
            });
        }
    }

    /// A search for data skips holes, but no lost sector, and fails when the device has gone.
    #[test]
    fn lost_sectors_are_no_holes() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let memory = Rc::new(Memory::new(1 << 20));
        let device = FaultDevice::new(executor.rt(), memory.clone(), 1);
        let run = async {
            assert_eq!(device.next_data(Sector(9)).await, Ok(None));
            memory.write(Sector(800), Data::from_slice(&[1; 512]), WriteFlags::NONE).await.expect("in range");
            assert_eq!(device.next_data(Sector(9)).await, Ok(Some(Sector(800))));
            device.lose(Sector(77)..Sector(79));
            assert_eq!(device.next_data(Sector(9)).await, Ok(Some(Sector(77))));
            assert_eq!(device.next_data(Sector(79)).await, Ok(Some(Sector(800))));
            device.add(Rule::new(Kinds::READ, When::Always, Effect::Gone));
            device.read(Sector(0), Buf::dirty(512)).await.expect_err("it is gone");
            assert_eq!(device.next_data(Sector(9)).await, Err(GONE));
        };
        executor.block_on(run).expect("it ends");
    }

    /// A lost sector fails every read that touches it, until it is written.
    #[test]
    fn lost_until_written() {
        run(Vec::new(), async |_, device| {
            put(&device, 0, 4096, 1).await.expect("memory");
            device.lose(Sector(3)..Sector(5));
            assert!(device.read(Sector(0), Buf::dirty(4096)).await.is_err_and(|error| error.is_of_medium()));
            assert_eq!(get(&device, 0, 1536).await, vec![1; 1536]);
            put(&device, 3, 512, 2).await.expect("memory");
            assert_eq!(device.lost(), [Sector(4)]);
            assert_eq!(get(&device, 3, 512).await, vec![2; 512]);
            assert!(device.read(Sector(4), Buf::dirty(512)).await.is_err());
        });
    }

    /// What is lost is lost in every way of reading it, and is not corrected from another copy.
    #[test]
    fn lost_in_every_reading() {
        run(Vec::new(), async |_, device| {
            device.lose(Sector(4)..Sector(5));
            assert!(device.read(Sector(0), Buf::zeroed(4096)).await.is_err());
            assert!(device.read_as(Sector(0), Buf::zeroed(4096), 0).await.is_err());
            assert!(device.correct(Sector(0), Data::zeroes(4096)).await.is_err());
            assert!(device.read_as(Sector(8), Buf::zeroed(4096), 0).await.is_ok());
        });
    }

    /// Ranges are lost and found as single sectors would be. Method: random ranges, beside a set.
    #[test]
    fn lost_ranges_equal_a_set() {
        let mut rng = Rng::new(7);
        let (mut lost, mut set) = (Lost::default(), std::collections::BTreeSet::new());
        for _ in 0..2_000 {
            let start = Sector(rng.below(60));
            let range = start..start + rng.below(12);
            match rng.below(3) {
                0 => {
                    set.extend((range.start.0..range.end.0).map(Sector));
                    lost.add(range);
                }
                1 => {
                    set.retain(|sector| !range.contains(sector));
                    lost.remove(range);
                }
                _ => assert_eq!(lost.first_of(range.clone()), set.range(range).next().copied()),
            }
            let all = lost.0.iter().flat_map(|(start, end)| (start.0..end.0).map(Sector));
            assert!(all.eq(set.iter().copied()) && lost.0.iter().all(|(start, end)| start < end));
        }
    }

    /// A device that has gone does not come back.
    #[test]
    fn gone_is_gone() {
        run(vec![Rule::new(Kinds::READ, When::Nth(1), Effect::Gone)], async |_, device| {
            assert_eq!(put(&device, 0, 512, 1).await, Ok(()));
            assert!(matches!(device.read(Sector(0), Buf::dirty(512)).await, Err(DeviceError::Gone(_))));
            device.clear();
            assert!(matches!(put(&device, 0, 512, 1).await, Err(DeviceError::Gone(_))));
        });
    }

    /// Delays come from their range and add up; the same seed gives the same delays.
    #[test]
    fn delays() {
        let times = || {
            let seen = RefCell::new(Vec::new());
            let delay = || Effect::Delay(Nanos(100)..=Nanos(200));
            let rules =
                vec![Rule::new(Kinds::all(), When::Always, delay()), Rule::new(Kinds::FLUSH, When::Every(2), delay())];
            run(rules, async |rt, device| {
                for _ in 0..20 {
                    let start = rt.now();
                    device.flush().await.expect("no error rule");
                    seen.borrow_mut().push((rt.now() - start).0);
                }
            });
            seen.into_inner()
        };
        let first = times();
        assert!(first.iter().step_by(2).all(|time| (100..=200).contains(time)));
        assert!(first.iter().skip(1).step_by(2).all(|time| (200..=400).contains(time)));
        assert_eq!(first, times());
    }
}
