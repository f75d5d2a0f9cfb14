//! The disk as a block device: a mechanism, a queue in front of it, and the bytes.

use std::cell::{RefCell, RefMut};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;

use super::drive::{Drive, WriteBehind};
use super::layout::DriveError;
use super::mechanism::{Hit, Mechanism, Request};
use super::queue::{Coming, Queue, Ticket, Waiting};
use super::scheduler::Scheduler;
use super::spent::Spent;
use crate::device::{
    BlockDevice, Buf, Counter, Data, DeviceError, Discard, Geometry, Guarantees, HeadView, HeadsAt, Image, TrackPlace,
    WriteFlags,
};
use crate::rt::{Rt, Sleep, Sleeper, Work};
use crate::units::{Nanos, SECTOR_BYTES, Sector, human_bytes};

/// Longest request in bytes. SCSI's READ(10) and WRITE(10) count blocks with 16 bits; rounded down to whole 4 KiB.
const REQUEST_BYTES_MAX: u32 = 0xffff / 8 * 4096;

/// How a modelled disk is used; its [`Drive`] says what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    pub scheduler: Scheduler,
    /// Keep the data. Without it, a disk costs no memory, and reads return zeroes: for experiments about timing only.
    pub keep_bytes: bool,
    /// Largest request that the host hands over: its own limit, not the drive's.
    pub request_bytes_max: u32,
}

impl Default for Options {
    fn default() -> Options {
        Options { scheduler: Scheduler::default(), keep_bytes: true, request_bytes_max: REQUEST_BYTES_MAX }
    }
}

/// A modelled disk. It serves one request at a time and takes virtual time for it; on a real clock it takes
/// real time.
pub struct Disk {
    rt: Rt,
    geometry: Geometry,
    write_behind: bool,
    name: String,
    image: Option<RefCell<Image>>,
    state: RefCell<State>,
}

struct State {
    mechanism: Mechanism,
    /// The drive is serving a request.
    busy: bool,
    /// Whom to wake when their turn comes.
    queue: Queue<Option<Sleeper>>,
    /// The request that left the queue last, and when it will be done.
    called: Option<(Ticket, Nanos)>,
    /// End of the request that was served last.
    position: u64,
    spent: Spent,
    counts: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    reads: u64,
    writes: u64,
    sectors_read: u64,
    sectors_written: u64,
    cache_hits: u64,
    cache_hits_partial: u64,
    writes_buffered: u64,
    flushes: u64,
    waiting_ns: u64,
    waiting_max: u64,
}

impl Disk {
    /// A drive that reads as zeroes and has just spun up.
    ///
    /// # Errors
    /// When the drive record contradicts itself.
    pub fn new(rt: Rt, drive: &Drive, options: Options) -> Result<Disk, DriveError> {
        Ok(Disk::from_mechanism(rt, Mechanism::new(drive)?, options))
    }

    /// A disk around a mechanism that has no other user.
    pub fn from_mechanism(rt: Rt, mechanism: Mechanism, options: Options) -> Disk {
        Disk {
            rt,
            geometry: Geometry {
                sectors: mechanism.sectors(),
                block_bytes: SECTOR_BYTES as u32,
                request_bytes_max: options.request_bytes_max,
                zones: None,
            },
            write_behind: mechanism.drive().cache.write_behind != WriteBehind::None,
            name: mechanism.drive().name.to_string(),
            image: options.keep_bytes.then(RefCell::default),
            state: RefCell::new(State {
                mechanism,
                busy: false,
                queue: Queue::new(options.scheduler),
                called: None,
                position: 0,
                spent: Spent::default(),
                counts: Counts::default(),
            }),
        }
    }

    /// The current content; empty without [`Options::keep_bytes`].
    pub fn image(&self) -> Image {
        self.image.as_ref().map(|image| image.borrow().clone()).unwrap_or_default()
    }

    /// Replaces the content, for example by that of another run. Does nothing without [`Options::keep_bytes`].
    pub fn set_image(&self, image: Image) {
        if let Some(own) = &self.image {
            *own.borrow_mut() = image;
        }
    }

    /// Time until now during which the drive served requests of the host, or wrote what it had taken into its cache.
    pub fn busy(&self) -> Nanos {
        self.state.borrow().spent.at(self.rt.now()).busy
    }

    /// Takes the time that the drive needs for `request`, including the wait for its turn.
    fn serve(&self, request: Option<Request>) -> Serve<'_> {
        let stage = request.map_or(Stage::Over, |request| Stage::Charge(request, self.rt.charge(Work::DeviceRequest)));
        Serve { disk: self, stage }
    }

    /// Starts `request`, or queues it when the drive is busy.
    fn enter(&self, request: Request) -> Stage {
        let now = self.rt.now();
        let mut state = self.state.borrow_mut();
        if state.busy {
            let State { queue, mechanism, counts, .. } = &mut *state;
            let ticket = queue.push(Waiting { arrived: now, request, who: None }, mechanism);
            counts.waiting_max = counts.waiting_max.max(queue.len() as u64);
            Stage::Queue(ticket)
        } else {
            state.busy = true;
            Stage::Drive(self.rt.sleep_until(state.start(now, now, now, request)))
        }
    }

    /// Gives the drive, which will be free at `done`, to the next request.
    fn leave(&self, done: Nanos) {
        let now = self.rt.now();
        let next = {
            let mut state = self.state.borrow_mut();
            let State { mechanism, queue, position, busy, .. } = &mut *state;
            let next = queue.next(done, *position, mechanism);
            *busy = next.is_some();
            next
        };
        let Some((ticket, next)) = next else { return };
        // Before the drive's work is computed, so that the processor fetches the task while it does that.
        if let Some(sleeper) = next.who {
            self.rt.wake(sleeper);
        }
        let mut state = self.state.borrow_mut();
        state.queue.fetch_coming(|coming, who| match (coming, who) {
            (Coming::Soon, Some(sleeper)) => self.rt.fetch_task(sleeper),
            (Coming::Next, Some(sleeper)) => self.rt.fetch_future(sleeper),
            (_, None) => {}
        });
        let done = state.start(now, next.arrived, done, next.request);
        state.called = Some((ticket, done));
    }

    /// The heads where they are now, or will be after the request that the drive serves: an idle drive may have read ahead since
    /// its last request.
    fn heads(&self) -> RefMut<'_, Mechanism> {
        let mut state = self.state.borrow_mut();
        if !state.busy {
            state.mechanism.advance(self.rt.now());
        }
        RefMut::map(state, |state| &mut state.mechanism)
    }

    /// A request of `bytes` at `at`, checked; `None` when there is nothing to do.
    fn request(&self, at: Sector, bytes: usize, write: bool, fua: bool) -> Result<Option<Request>, DeviceError> {
        let bytes = bytes as u64;
        self.geometry.check(at, bytes)?;
        let sectors = u32::try_from(bytes / SECTOR_BYTES).map_err(|_| DeviceError::OutOfRange {
            at,
            bytes,
            sectors: self.geometry.sectors,
        })?;
        Ok((sectors > 0).then_some(Request { sector: at, sectors, write, fua }))
    }
}

impl State {
    /// When a request that waited will be done, once it has left the queue.
    fn done(&self, ticket: Ticket) -> Option<Nanos> {
        self.called.filter(|(called, _)| *called == ticket).map(|(_, done)| done)
    }

    /// Lets the mechanism serve `request`; returns when it will be done.
    fn start(&mut self, now: Nanos, arrived: Nanos, start: Nanos, request: Request) -> Nanos {
        self.spent.settle(now);
        let Ok(service) = self.mechanism.service(arrived, start, request) else {
            unreachable!("requests are checked before they enter");
        };
        self.position = request.sector.0 + u64::from(request.sectors);
        let counts = &mut self.counts;
        let sectors = u64::from(request.sectors);
        if request.write {
            counts.writes += 1;
            counts.sectors_written += sectors;
        } else {
            counts.reads += 1;
            counts.sectors_read += sectors;
        }
        match service.hit {
            Hit::Miss => {}
            Hit::Partial => counts.cache_hits_partial += 1,
            Hit::Full => counts.cache_hits += 1,
            Hit::Buffered => counts.writes_buffered += 1,
        }
        counts.waiting_ns += service.start.saturating_sub(arrived).0;
        self.spent.add(&service);
        service.done
    }
}

/// A request on its way: see [`Disk::serve`]. Dropping it passes the drive on: at the end of the request, or at once when the
/// waiting caller is gone. The mechanism still spends its time on that request.
///
/// Not an async function, with which the future of a read would be twice as long: 65,536 of them may wait.
struct Serve<'a> {
    disk: &'a Disk,
    stage: Stage,
}

enum Stage {
    /// The host's processor hands it over.
    Charge(Request, Sleep),
    /// It waits, or its turn has come and it does not know yet.
    Queue(Ticket),
    /// It is being served until then.
    Drive(Sleep),
    Over,
}

impl Future for Serve<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Serve { disk, stage } = self.get_mut();
        loop {
            *stage = match stage {
                Stage::Charge(request, charge) => {
                    ready!(Pin::new(charge).poll(context));
                    disk.enter(*request)
                }
                Stage::Queue(ticket) => {
                    let mut state = disk.state.borrow_mut();
                    let Some(done) = state.done(*ticket) else {
                        state.queue.set_who(*ticket, Some(disk.rt.sleeper(context.waker())));
                        return Poll::Pending;
                    };
                    Stage::Drive(disk.rt.sleep_until(done))
                }
                Stage::Drive(service) => {
                    ready!(Pin::new(&mut *service).poll(context));
                    disk.leave(service.deadline());
                    Stage::Over
                }
                Stage::Over => return Poll::Ready(()),
            };
        }
    }
}

impl Drop for Serve<'_> {
    fn drop(&mut self) {
        match &self.stage {
            Stage::Queue(ticket) => {
                let mut state = self.disk.state.borrow_mut();
                if let Some(done) = state.done(*ticket) {
                    drop(state);
                    self.disk.leave(done);
                } else {
                    state.queue.remove(*ticket);
                }
            }
            Stage::Drive(service) => self.disk.leave(service.deadline()),
            Stage::Charge(..) | Stage::Over => {}
        }
    }
}

impl HeadView for Disk {
    fn current_track(&self, arm: u32) -> (Sector, u64) {
        HeadView::current_track(&*self.heads(), arm)
    }

    fn write_access(&self, at: Nanos, sector: Sector, sectors: u32) -> Nanos {
        HeadView::write_access(&*self.heads(), at, sector, sectors)
    }

    fn track_of(&self, sector: Sector) -> Option<TrackPlace> {
        self.state.borrow().mechanism.track_of(sector)
    }

    fn after_write(&self, at: Nanos, sector: Sector, sectors: u32, flags: WriteFlags) -> Option<HeadsAt> {
        self.heads().after_write(at, sector, sectors, flags)
    }
}

/// The heads of an otherwise idle drive.
impl HeadView for Mechanism {
    fn current_track(&self, _: u32) -> (Sector, u64) {
        // A track without sectors is one that no request reaches, such as a reserved one at power-on.
        self.current_track().unwrap_or((Sector::ZERO, 0))
    }

    /// `Nanos::MAX` beyond the last sector.
    fn write_access(&self, at: Nanos, sector: Sector, sectors: u32) -> Nanos {
        self.write_access(at, sector, sectors).unwrap_or(Nanos::MAX)
    }

    fn track_of(&self, sector: Sector) -> Option<TrackPlace> {
        self.track_of(sector)
    }

    fn after_write(&self, at: Nanos, sector: Sector, sectors: u32, flags: WriteFlags) -> Option<HeadsAt> {
        let mut later = self.clone();
        let served = later.service(at, at, Request { sector, sectors, write: true, fua: flags.fua }).ok()?;
        Some((served.done, Box::new(later)))
    }
}

#[async_trait(?Send)]
impl BlockDevice for Disk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees {
            // Drives of these years write whole sectors even when power fails, and promise nothing beyond that.
            atomic_write_bytes: SECTOR_BYTES as u32,
            durable_on_completion: !self.write_behind,
            // Write-behind is a single stream: the write that completed first is written first.
            ordered: true,
            discard: Discard::Ignored,
        }
    }

    fn head(&self) -> Option<&dyn HeadView> {
        Some(self)
    }

    // As `async_trait` writes it, but without a second copy of the arguments in the future.
    fn read<'a, 'b>(&'a self, at: Sector, mut buf: Buf) -> Pin<Box<dyn Future<Output = Result<Buf, DeviceError>> + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let request = self.request(at, buf.len(), false, false)?;
            self.serve(request).await;
            match &self.image {
                Some(image) => image.borrow().read(at, &mut buf),
                None => buf = Buf::zeroed(buf.len()),
            }
            Ok(buf)
        })
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        let request = self.request(at, data.len(), true, flags.fua)?;
        self.serve(request).await;
        if let Some(image) = &self.image {
            image.borrow_mut().write(at, &data);
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        if self.write_behind {
            self.rt.charge(Work::DeviceRequest).await;
            let durable = {
                let mut state = self.state.borrow_mut();
                state.counts.flushes += 1;
                state.mechanism.durable(self.rt.now())
            };
            self.rt.sleep_until(durable).await;
        }
        Ok(())
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        // Longer than any device, and still whole sectors.
        self.geometry.check(at, sectors.min(u64::MAX / SECTOR_BYTES) * SECTOR_BYTES)
    }

    fn counters(&self) -> Vec<Counter> {
        let state = self.state.borrow();
        let (counts, times) = (&state.counts, state.spent.at(self.rt.now()));
        let transfer = times.busy - times.overhead - times.seek - times.rotation;
        vec![
            ("requests", counts.reads + counts.writes),
            ("reads", counts.reads),
            ("writes", counts.writes),
            ("sectors_read", counts.sectors_read),
            ("sectors_written", counts.sectors_written),
            ("cache_hits", counts.cache_hits),
            ("cache_hits_partial", counts.cache_hits_partial),
            ("writes_buffered", counts.writes_buffered),
            ("flushes", counts.flushes),
            ("busy_ns", times.busy.0),
            ("overhead_ns", times.overhead.0),
            ("seek_ns", times.seek.0),
            ("rotation_ns", times.rotation.0),
            ("transfer_ns", transfer.0),
            ("waiting_ns", counts.waiting_ns),
            ("waiting_max", counts.waiting_max),
        ]
    }

    fn describe(&self) -> String {
        format!("disk:{} ({})", self.name, human_bytes(self.geometry.bytes()))
    }
}
