//! Tracing: a pass-through device that records each request and its times.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;

use async_trait::async_trait;

use super::{
    BlockDevice, Buf, Counter, Data, Device, DeviceError, Geometry, Guarantees, HeadView, Spans, WriteFlags,
    ZoneAction, ZoneInfo, Zoned,
};
use crate::rt::Rt;
use crate::units::{Nanos, SECTOR_BYTES, Sector};

/// Kind of request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TraceKind {
    Read,
    Write,
    /// A write with `fua`.
    WriteThrough,
    Flush,
    Discard,
    Provision,
}

impl fmt::Display for TraceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            TraceKind::Read => "read",
            TraceKind::Write => "write",
            TraceKind::WriteThrough => "write-fua",
            TraceKind::Flush => "flush",
            TraceKind::Discard => "discard",
            TraceKind::Provision => "provision",
        })
    }
}

/// One request that has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TraceEvent {
    pub kind: TraceKind,
    pub at: Sector,
    pub sectors: u64,
    /// When the request was made, on the runtime's clock.
    pub start: Nanos,
    /// When it had completed or failed.
    pub end: Nanos,
    /// Requests that were under way when this one was made.
    pub depth: u32,
    pub ok: bool,
}

/// `start-ns latency-ns kind sector+sectors`.
impl fmt::Display for TraceEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TraceEvent { kind, at, sectors, start, end, ok, .. } = self;
        let failed = if *ok { "" } else { " failed" };
        write!(f, "{:>12} {:>9} {kind:<9} {at}+{sectors}{failed}", start.0, end.saturating_sub(*start).0)
    }
}

/// Receives events, in the order in which requests complete.
pub trait TraceSink {
    fn record(&mut self, event: &TraceEvent);
}

/// Keeps every event.
impl TraceSink for Vec<TraceEvent> {
    fn record(&mut self, event: &TraceEvent) {
        self.push(*event);
    }
}

/// A device that passes everything on and reports each request to a sink.
pub struct TraceDevice {
    rt: Rt,
    inner: Device,
    sink: Rc<RefCell<dyn TraceSink>>,
    under_way: Cell<u32>,
    recorded: Cell<u64>,
}

impl TraceDevice {
    pub fn new(rt: &Rt, inner: Device, sink: Rc<RefCell<dyn TraceSink>>) -> Rc<TraceDevice> {
        Rc::new(TraceDevice { rt: rt.clone(), inner, sink, under_way: Cell::new(0), recorded: Cell::new(0) })
    }

    fn begin(&self, kind: TraceKind, at: Sector, bytes: u64) -> UnderWay<'_> {
        let depth = self.under_way.get();
        self.under_way.set(depth + 1);
        let (start, sectors) = (self.rt.now(), bytes / SECTOR_BYTES);
        UnderWay { device: self, event: TraceEvent { kind, at, sectors, start, end: start, depth, ok: false } }
    }
}

/// A request under way. One whose caller drops it is recorded as failed at that moment.
struct UnderWay<'a> {
    device: &'a TraceDevice,
    event: TraceEvent,
}

impl UnderWay<'_> {
    fn end<T>(mut self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        self.event.ok = result.is_ok();
        result
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.event.end = self.device.rt.now();
        self.device.under_way.set(self.device.under_way.get() - 1);
        self.device.recorded.set(self.device.recorded.get() + 1);
        self.device.sink.borrow_mut().record(&self.event);
    }
}

#[async_trait(?Send)]
impl BlockDevice for TraceDevice {
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
        let request = self.begin(TraceKind::Read, at, buf.len() as u64);
        request.end(self.inner.read(at, buf).await)
    }

    async fn next_data(&self, at: Sector) -> Result<Option<Sector>, DeviceError> {
        self.inner.next_data(at).await
    }

    fn readings(&self) -> u32 {
        self.inner.readings()
    }

    async fn read_as(&self, at: Sector, buf: Buf, reading: u32) -> Result<Buf, DeviceError> {
        let request = self.begin(TraceKind::Read, at, buf.len() as u64);
        request.end(self.inner.read_as(at, buf, reading).await)
    }

    async fn correct(&self, at: Sector, data: Data) -> Result<bool, DeviceError> {
        let request = self.begin(TraceKind::Write, at, data.len() as u64);
        request.end(self.inner.correct(at, data).await)
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        let kind = if flags.fua { TraceKind::WriteThrough } else { TraceKind::Write };
        let request = self.begin(kind, at, data.len() as u64);
        request.end(self.inner.write(at, data, flags).await)
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        let request = self.begin(TraceKind::Flush, Sector::ZERO, 0);
        request.end(self.inner.flush().await)
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let request = self.begin(TraceKind::Discard, at, sectors.saturating_mul(SECTOR_BYTES));
        request.end(self.inner.discard(at, sectors).await)
    }

    async fn provision(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let request = self.begin(TraceKind::Provision, at, sectors.saturating_mul(SECTOR_BYTES));
        request.end(self.inner.provision(at, sectors).await)
    }

    async fn release(&self) -> Result<(), DeviceError> {
        self.inner.release().await
    }

    fn counters(&self) -> Vec<Counter> {
        vec![("requests_traced", self.recorded.get())]
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
        format!("trace / {}", self.inner.describe())
    }
}

/// Appends are recorded as writes, where they went, and resets as discards.
#[async_trait(?Send)]
impl Zoned for TraceDevice {
    fn zone(&self, zone: u32) -> Result<ZoneInfo, DeviceError> {
        self.zones_below()?.zone(zone)
    }

    async fn append(&self, zone: u32, data: Data, flags: WriteFlags) -> Result<Sector, DeviceError> {
        let kind = if flags.fua { TraceKind::WriteThrough } else { TraceKind::Write };
        let mut request = self.begin(kind, self.start_of(zone), data.len() as u64);
        let result = self.zones_below()?.append(zone, data, flags).await;
        if let Ok(at) = result {
            request.event.at = at;
        }
        request.end(result)
    }

    async fn manage(&self, zone: u32, action: ZoneAction) -> Result<(), DeviceError> {
        if action != ZoneAction::Reset {
            return self.zones_below()?.manage(zone, action).await;
        }
        let sectors = self.inner.geometry().zones.map_or(0, |zones| zones.zone_sectors);
        let request = self.begin(TraceKind::Discard, self.start_of(zone), sectors * SECTOR_BYTES);
        request.end(self.zones_below()?.manage(zone, action).await)
    }
}

impl TraceDevice {
    fn zones_below(&self) -> Result<&dyn Zoned, DeviceError> {
        self.inner.zoned().ok_or(DeviceError::Gone("its zones have gone"))
    }

    fn start_of(&self, zone: u32) -> Sector {
        self.inner.geometry().zones.map_or(Sector::ZERO, |zones| zones.start(zone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Memory;
    use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
    use crate::rt::{Executor, HostProfile};

    /// Aim: every request is recorded once, with its times, depth and outcome. Method: requests with known delays, two
    /// at once, one that fails, and one whose caller drops it.
    #[test]
    fn requests_are_recorded() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let log = Rc::new(RefCell::new(Vec::new()));
        let slow = FaultDevice::new(&rt, Rc::new(Memory::new(1 << 20)), 1);
        slow.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(Nanos(30)..=Nanos(30))));
        slow.add(Rule::new(Kinds::FLUSH, When::Always, Effect::Error));
        let device = TraceDevice::new(&rt, slow, log.clone());
        let done = executor.block_on(async {
            let one = device.write(Sector(8), Data::zeroes(1024), WriteFlags::NONE);
            let two = device.write(Sector(16), Data::zeroes(512), WriteFlags::FUA);
            let (one, two) = futures_util::future::join(one, two).await;
            assert!(one.is_ok() && two.is_ok());
            device.read(Sector(8), Buf::dirty(512)).await.expect("in range");
            device.flush().await.expect_err("a rule says so");
            drop(
                futures_util::future::poll_immediate(device.write(Sector(0), Data::zeroes(512), WriteFlags::NONE))
                    .await,
            );
        });
        assert_eq!(done, Ok(()));
        let words: Vec<String> = log
            .borrow()
            .iter()
            .map(|event| event.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        assert_eq!(
            words,
            [
                "0 30 write 8+2",
                "0 30 write-fua 16+1",
                "30 0 read 8+1",
                "30 0 flush 0+0 failed",
                "30 0 write 0+1 failed"
            ]
        );
        assert_eq!(log.borrow().iter().map(|event| event.depth).collect::<Vec<_>>(), [0, 1, 0, 0, 0]);
        assert_eq!(device.counters(), [("requests_traced", 5)], "its own alone");
    }
}
