//! Power cuts: a device that records every request, and the states in which it can be after a cut at any moment.
//!
//! [`CrashDevice`] keeps its bytes in memory and logs the issue and the completion of every write, flush and discard.
//! [`CrashLog`] derives what may be on the medium if the power fails between two of those events.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::{Range, RangeInclusive};
use std::rc::Rc;

use async_trait::async_trait;

use super::cut::{CrashLog, Effect, Logged, Request};
use super::{BlockDevice, Buf, Counter, Data, DeviceError, Discard, Geometry, Guarantees, Image, WriteFlags};
use crate::rng::Rng;
use crate::rt::Rt;
use crate::units::{Nanos, SECTOR_BYTES, Sector, human_bytes};

/// Properties of a [`CrashDevice`].
#[derive(Clone, Debug)]
pub struct CrashOptions {
    pub bytes: u64,
    pub block_bytes: u32,
    pub request_bytes_max: u32,
    pub guarantees: Guarantees,
    /// Each request takes a time drawn from this range, so that several are under way at once and complete out of
    /// order. With a range of zero, requests take no time.
    pub latency: RangeInclusive<Nanos>,
    pub seed: u64,
    /// Keep the log. Without it, there is no [`CrashDevice::log`], and memory use does not grow with time.
    pub record: bool,
}

impl CrashOptions {
    /// A drive with a volatile write cache: 512-byte sectors, nothing durable before a flush, no order, 10 to 200 µs
    /// for a request, discarded sectors undefined. These are the weakest guarantees that [`Guarantees`] can declare.
    pub fn volatile(bytes: u64) -> CrashOptions {
        CrashOptions {
            bytes,
            block_bytes: 512,
            request_bytes_max: 1 << 20,
            guarantees: Guarantees {
                atomic_write_bytes: 512,
                durable_on_completion: false,
                ordered: false,
                discard: Discard::Undefined,
            },
            latency: Nanos::from_micros(10)..=Nanos::from_micros(200),
            seed: 1,
            record: true,
        }
    }

    /// A drive without a write cache: what has completed is durable.
    pub fn write_through(bytes: u64) -> CrashOptions {
        let mut options = CrashOptions::volatile(bytes);
        options.guarantees.durable_on_completion = true;
        options.guarantees.discard = Discard::Ignored;
        options
    }

    /// A file on a host: nothing durable before a flush, 4 KiB pages that do not tear, discard makes zeroes.
    pub fn host_file(bytes: u64) -> CrashOptions {
        let mut options = CrashOptions::volatile(bytes);
        options.block_bytes = 4096;
        options.guarantees.atomic_write_bytes = 4096;
        options.guarantees.discard = Discard::Zeroes;
        options
    }

    /// A device that writes back in order, such as a log-structured store: a prefix survives.
    pub fn in_order(bytes: u64) -> CrashOptions {
        let mut options = CrashOptions::volatile(bytes);
        options.guarantees.ordered = true;
        options.guarantees.discard = Discard::Zeroes;
        options
    }

    /// One of each kind that loses something when the power is cut.
    pub fn each_cached(bytes: u64) -> [CrashOptions; 3] {
        [CrashOptions::host_file(bytes), CrashOptions::volatile(bytes), CrashOptions::in_order(bytes)]
    }

    /// One of each kind.
    pub fn each(bytes: u64) -> [CrashOptions; 4] {
        let write_through = CrashOptions::write_through(bytes);
        [CrashOptions::volatile(bytes), CrashOptions::host_file(bytes), write_through, CrashOptions::in_order(bytes)]
    }
}

/// A device in memory that can lose its power at any moment of its past.
///
/// A request continues when its caller is dropped, as it would on hardware.
pub struct CrashDevice(Rc<Inner>);

struct Inner {
    rt: Rt,
    options: CrashOptions,
    geometry: Geometry,
    rng: RefCell<Rng>,
    base: Image,
    live: RefCell<Image>,
    log: RefCell<Vec<Logged>>,
    under_way: RefCell<BTreeSet<usize>>,
    events: Cell<usize>,
    violations: RefCell<Vec<String>>,
    /// Flushes so far, and which of them fail.
    flushes: Cell<u64>,
    failing_flushes: RefCell<Range<u64>>,
}

impl CrashDevice {
    /// A device whose medium holds `base`, all of it durable.
    pub fn new(rt: &Rt, base: Image, options: CrashOptions) -> Rc<CrashDevice> {
        let (block_bytes, request_bytes_max) = (options.block_bytes, options.request_bytes_max);
        Rc::new(CrashDevice(Rc::new(Inner {
            rt: rt.clone(),
            geometry: Geometry { sectors: options.bytes / SECTOR_BYTES, block_bytes, request_bytes_max, zones: None },
            rng: RefCell::new(Rng::new(options.seed)),
            live: RefCell::new(base.clone()),
            base,
            options,
            log: RefCell::default(),
            under_way: RefCell::default(),
            events: Cell::new(0),
            violations: RefCell::default(),
            flushes: Cell::new(0),
            failing_flushes: RefCell::new(0..0),
        })))
    }

    /// Number of events so far: the position at which a cut would come now.
    pub fn position(&self) -> usize {
        self.0.events.get()
    }

    /// What reads return now.
    pub fn image(&self) -> Image {
        self.0.live.borrow().clone()
    }

    /// Everything that happened so far.
    ///
    /// # Panics
    /// When it was not recorded.
    pub fn log(&self) -> CrashLog {
        assert!(self.0.options.record, "a crash device without a record has no log");
        let Inner { geometry, options, base, log, events, .. } = &*self.0;
        CrashLog::new(*geometry, options.guarantees, base.clone(), log.borrow().clone(), events.get())
    }

    /// Requests that [`BlockDevice`] forbids: those that overlap while both are under way, and those longer than the
    /// geometry allows. Code that issues them may work here and fail elsewhere.
    pub fn violations(&self) -> Vec<String> {
        self.0.violations.borrow().clone()
    }

    /// A part of the device that is flushed by itself, as if it were one of several drives that lose their power
    /// together.
    ///
    /// # Panics
    /// When it passes the end of the device.
    pub fn part(&self, at: Sector, sectors: u64) -> Rc<CrashPart> {
        assert!(at.0 + sectors <= self.0.geometry.sectors, "a part of the device");
        Rc::new(CrashPart { whole: CrashDevice(self.0.clone()), at, sectors })
    }

    /// Flushes so far, including failed ones.
    pub fn flushes(&self) -> u64 {
        self.0.flushes.get()
    }

    /// Makes flushes fail from now on: those with these numbers, counted from 1 over the life of the device. Writes
    /// that had completed before a failed flush and were not durable never become durable, however many flushes succeed
    /// later: a host drops such pages once it has reported the error.
    pub fn fail_flushes(&self, numbers: Range<u64>) {
        *self.0.failing_flushes.borrow_mut() = numbers;
    }

    async fn perform(&self, request: Request) {
        let id = self.0.begin(request);
        match self.0.draw_latency() {
            None => self.0.end(id),
            Some(latency) => {
                let inner = self.0.clone();
                let task = async move {
                    inner.rt.sleep(latency).await;
                    inner.end(id);
                };
                self.0.rt.spawn(task).await;
            }
        }
    }
}

impl Inner {
    fn step(&self) -> usize {
        self.events.set(self.events.get() + 1);
        self.events.get()
    }

    fn begin(&self, request: Request) -> usize {
        self.check_promises(&request);
        let mut log = self.log.borrow_mut();
        log.push(Logged { request, issued: self.step(), completed: None });
        let id = log.len() - 1;
        self.under_way.borrow_mut().insert(id);
        id
    }

    fn end(&self, id: usize) {
        let mut log = self.log.borrow_mut();
        let discard = Effect::draw(self.options.guarantees.discard, self.options.seed ^ id as u64);
        log[id].request.apply(&mut self.live.borrow_mut(), discard);
        log[id].completed = Some(self.step());
        if let (false, Request::Write { data, .. }) = (self.options.record, &mut log[id].request) {
            *data = Data::zeroes(0);
        }
        self.under_way.borrow_mut().remove(&id);
    }

    fn check_promises(&self, request: &Request) {
        let (at, sectors) = request.span();
        let mut violations = self.violations.borrow_mut();
        let long = sectors * SECTOR_BYTES > u64::from(self.geometry.request_bytes_max);
        if long && matches!(request, Request::Write { .. }) {
            violations.push(format!("{request} is longer than {} bytes", self.geometry.request_bytes_max));
        }
        let log = self.log.borrow();
        for other in self.under_way.borrow().iter().map(|&id| &log[id].request) {
            let (start, length) = other.span();
            if at < start + length && start < at + sectors {
                violations.push(format!("{request} overlaps {other}, which is still under way"));
            }
        }
    }

    fn draw_latency(&self) -> Option<Nanos> {
        let (low, high) = (self.options.latency.start().0, self.options.latency.end().0);
        (high > 0).then(|| Nanos(self.rng.borrow_mut().between(low.min(high), high)))
    }
}

#[async_trait(?Send)]
impl BlockDevice for CrashDevice {
    fn geometry(&self) -> Geometry {
        self.0.geometry
    }

    fn guarantees(&self) -> Guarantees {
        self.0.options.guarantees
    }

    async fn read(&self, at: Sector, mut buf: Buf) -> Result<Buf, DeviceError> {
        self.0.geometry.check(at, buf.len() as u64)?;
        if let Some(latency) = self.0.draw_latency() {
            self.0.rt.sleep(latency).await;
        }
        self.0.live.borrow().read(at, &mut buf);
        Ok(buf)
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.0.geometry.check(at, data.len() as u64)?;
        self.perform(Request::Write { at, data, fua: flags.fua }).await;
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.0.flushes.set(self.0.flushes.get() + 1);
        if self.0.failing_flushes.borrow().contains(&self.0.flushes.get()) {
            self.perform(Request::FailedFlush).await;
            let cause = "the device was told to fail this flush".to_string();
            return Err(DeviceError::Io { operation: "flush", at: Sector::ZERO, bytes: 0, cause });
        }
        self.perform(Request::Flush).await;
        Ok(())
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.0.geometry.check(at, sectors.saturating_mul(SECTOR_BYTES))?;
        self.perform(Request::Discard { at, sectors }).await;
        Ok(())
    }

    fn counters(&self) -> Vec<Counter> {
        let log = self.0.log.borrow();
        let count = |wanted: fn(&Request) -> bool| log.iter().filter(|logged| wanted(&logged.request)).count() as u64;
        vec![
            ("writes", count(|request| matches!(request, Request::Write { .. }))),
            ("flushes", count(|request| matches!(request, Request::Flush))),
            ("discards", count(|request| matches!(request, Request::Discard { .. }))),
        ]
    }

    fn describe(&self) -> String {
        format!("crash:{}", human_bytes(self.0.geometry.bytes()))
    }
}

/// See [`CrashDevice::part`].
pub struct CrashPart {
    whole: CrashDevice,
    at: Sector,
    sectors: u64,
}

impl CrashPart {
    fn check(&self, at: Sector, bytes: u64) -> Result<Sector, DeviceError> {
        self.geometry().check(at, bytes)?;
        Ok(self.at + at.0)
    }
}

#[async_trait(?Send)]
impl BlockDevice for CrashPart {
    fn geometry(&self) -> Geometry {
        Geometry { sectors: self.sectors, ..self.whole.geometry() }
    }

    fn guarantees(&self) -> Guarantees {
        self.whole.guarantees()
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        let at = self.check(at, buf.len() as u64)?;
        self.whole.read(at, buf).await
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        let at = self.check(at, data.len() as u64)?;
        self.whole.write(at, data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.whole.perform(Request::FlushPart { at: self.at, sectors: self.sectors }).await;
        Ok(())
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let at = self.check(at, sectors.min(u64::MAX / SECTOR_BYTES) * SECTOR_BYTES)?;
        self.whole.discard(at, sectors).await
    }

    fn describe(&self) -> String {
        format!("part:{} of {}", human_bytes(self.sectors * SECTOR_BYTES), self.whole.describe())
    }
}

#[cfg(test)]
mod tests;
