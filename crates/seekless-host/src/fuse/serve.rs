//! The life of a mount: start, serve, stop.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{Either, select};
use rustix::io::Errno;
use rustix::mount::MountFlags;
use seekless::device::DeviceError;
use seekless::fs::{Fs, FsError};
use seekless::rt::{Event, Rt};
use seekless::units::Nanos;

use super::abi::InitFlags;
use super::backlog::{Backlog, Source};
use super::errno::errno_of;
use super::farewell::Farewell;
use super::mount::{Call, MountError, MountOptions, Mounted, Unmounted, mount};
use super::names::daemon_identity;
use super::negotiate::{Negotiated, RequestedFeatures, TRANSFER_BYTES_MAX, negotiate};
use super::operations::Operations;
use super::options::{InitError, TransportChoice};
use super::passthrough::Passthrough;
use super::presence::Presence;
use super::request::{Operation, Request};
use super::session::{AtOnce, Session};
use super::transport::{DevFuse, End, Message, Transport, Uring};
use crate::leaves::OpenedLeaves;
use crate::mount_mark::MountMark;
use crate::mount_table;
use crate::reactor::{File, Reactor};

/// Without a request for this long, the file system may do background work. Longer than the gaps between the requests
/// of a busy program, shorter than a person would notice.
const QUIET: Nanos = Nanos::from_millis(100);

/// How long the file system works before the daemon looks for new requests.
const IDLE_SLICE: Nanos = Nanos::from_millis(20);

/// Pause between two such slices: a file system that wrongly reports more work does not keep a processor busy.
const IDLE_PAUSE: Nanos = Nanos::from_millis(5);

/// How long the kernel may take to end the connection after the mount has been detached.
const GOODBYE: Nanos = Nanos::from_secs(2);

/// Why serving failed.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("the file system could not be closed; the last changes may be lost: {0}")]
    Close(#[source] FsError),
    #[error("the connection to the kernel failed: {0}")]
    Transport(Errno),
    #[error("the connection was aborted from outside; everything that was answered is durable")]
    Aborted,
    #[error(
        "it was unmounted before and is still in use; its users get errors now, and what they have written without a sync is lost. \
         Everything that was answered is durable"
    )]
    InUseElsewhere,
    #[error(
        "it could not be unmounted and was ended by force; its users get errors now, and what they have written without a sync is lost. \
         Everything that was answered is durable"
    )]
    ByForce,
}

/// What is durable after a proper end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// Everything.
    Everything,
    /// Everything that was answered. Programs used the mount to its end; what they have written since without a sync is lost.
    Answered,
}

/// A mounted file system.
pub struct Mount {
    rt: Rt,
    reactor: Reactor,
    session: Rc<Session>,
    transport: Box<dyn Transport>,
    commit_interval: Option<Nanos>,
    negotiated: Negotiated,
    farewell: Farewell,
    leaves: OpenedLeaves,
    guard: Guard,
}

/// Ends the connection unless it was ended properly: after an error, or when a panic unwinds. Programs then get errors
/// instead of waiting for answers that never come.
struct Guard {
    mounted: Arc<Mounted>,
    left: Cell<Left>,
}

/// What a mount that ends leaves behind.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Left {
    /// The mount point, as it was: no program has used the mount yet, or its connection was aborted from outside.
    Nothing,
    /// A mount that gives errors. Without it, programs would go on in the directory below.
    DeadMount,
    /// What is there: the kernel has unmounted it.
    AsItIs,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let panics = std::thread::panicking();
        match self.left.get() {
            Left::AsItIs => {}
            Left::Nothing if !panics => self.mounted.abort(),
            Left::Nothing | Left::DeadMount => {
                if panics {
                    log::error!("a bug ends the mount on {}; its users get errors", self.mounted.mount_point.display());
                }
                self.mounted.disconnect();
            }
        }
    }
}

impl Mount {
    /// Mounts `fs` and returns when the kernel has accepted it, so that the first program finds it working.
    ///
    /// # Errors
    /// A failed start leaves nothing behind.
    pub async fn start(rt: &Rt, reactor: &Reactor, fs: Fs, options: MountOptions) -> Result<Mount, MountError> {
        // Needed only for a writeback cache, and only where memory is scarce.
        let _ = crate::memory::avoid_reclaim_deadlock();
        let traits = fs.traits();
        let at_once = AtOnce {
            names: options.flags.contains(MountFlags::DIRSYNC),
            everything: options.flags.contains(MountFlags::SYNCHRONOUS),
        };
        let call = Call::new(&options, traits.read_only);
        if let Some(store) = &options.store {
            store.release_claim();
        }
        let mounted = Arc::new(reactor.blocking(move || mount(&call)).await?);
        let guard = Guard { mounted: mounted.clone(), left: Cell::new(Left::Nothing) };
        if let Some(store) = options.store.as_ref().filter(|_| !mounted.as_block) {
            store.claim_again()?;
        }
        let device: File = Arc::new(rustix::io::fcntl_dupfd_cloexec(mounted.device(), 0).map_err(MountError::Device)?);
        let devfuse = Rc::new(DevFuse::new(rt, reactor, device.clone(), &options));
        // Determined before the kernel is asked: once it has agreed, it waits for the registration.
        let connection = device.clone();
        let uring = match options.transport {
            TransportChoice::Uring => Uring::new(rt, reactor, device, devfuse.clone(), options.uring_depth),
            TransportChoice::Auto | TransportChoice::DevFuse => None,
        };
        let requested = RequestedFeatures {
            writeback_cache: options.writeback_cache,
            // Without a message for each open directory, the kernel keeps its listings: see `Session::durable_at_once`.
            zero_message_open: options.zero_message_open && !options.as_file && at_once == AtOnce::default(),
            direct: options.as_file,
            uring: uring.is_some(),
            passthrough: options.passthrough && !options.as_file && at_once == AtOnce::default(),
            times: options.cache_times,
        };
        let negotiated = loop {
            let Message { header, body, .. } =
                devfuse.receive_one().await.map_err(MountError::Talk)?.ok_or(MountError::EndedEarly)?;
            let init = match Request::decode(&header, &body, None, InitFlags::empty()) {
                Ok(Request { operation: Operation::Init(init), .. }) => init,
                _ => return Err(InitError::NotInit(header.opcode).into()),
            };
            match negotiate(&init, &traits, &requested) {
                Ok((negotiated, out)) => {
                    let reply = super::reply::Reply::of(&out);
                    if !devfuse.send(header.unique, &reply.body) {
                        return Err(MountError::EndedEarly);
                    }
                    // A newer major version is answered with ours; the kernel then asks again.
                    if init.major == super::abi::MAJOR {
                        break negotiated;
                    }
                }
                Err(error) => {
                    devfuse.send(header.unique, &Err(libc::EPROTO));
                    return Err(error.into());
                }
            }
        };
        let for_worker = mounted.clone();
        reactor.blocking(move || for_worker.set_read_ahead(TRANSFER_BYTES_MAX)).await;
        let transport: Box<dyn Transport> = match uring {
            Some(uring) if negotiated.flags.contains(InitFlags::OVER_IO_URING) => Box::new(Rc::new(uring)),
            _ => Box::new(devfuse),
        };
        let source = match transport.name() {
            "uring" => Source::Rings,
            _ => Source::Device(connection.clone()),
        };
        let backlog = Backlog::of(rt, source, mounted.control_directory());
        let passthrough = negotiated.flags.contains(InitFlags::PASSTHROUGH).then(|| Passthrough::new(connection));
        let identity = daemon_identity();
        Ok(Mount {
            rt: rt.clone(),
            reactor: reactor.clone(),
            farewell: Farewell::listen(&identity),
            leaves: OpenedLeaves::default(),
            session: Rc::new(
                Session::new(fs, negotiated, identity)
                    .durable_at_once(at_once)
                    .with_passthrough(passthrough)
                    .with_backlog(backlog),
            ),
            transport,
            commit_interval: options.commit_interval,
            negotiated,
            guard,
        })
    }

    /// What was agreed with the kernel.
    pub fn negotiated(&self) -> &Negotiated {
        &self.negotiated
    }

    /// What has been answered so far.
    pub fn operations(&self) -> Rc<Operations> {
        self.session.operations.clone()
    }

    /// Answers [`super::statistics`] by calling `statistics`.
    pub fn tell_statistics(&self, statistics: impl Fn() -> String + 'static) {
        self.session.tell_statistics(Box::new(statistics));
    }

    /// Marks `leaves` as mounted, for other processes that find them in use, and at the end as unmounted.
    pub fn mark(&mut self, leaves: OpenedLeaves) {
        self.leaves = leaves;
        self.say_mounted(false);
    }

    fn say_mounted(&self, ending: bool) {
        if let Some(mark) = self.own_mark() {
            self.leaves.say_mounted(mark, ending);
        }
    }

    fn own_mark(&self) -> Option<MountMark> {
        let Mounted { number, mount_point, .. } = &*self.guard.mounted;
        number.map(|number| MountMark::new(number, mount_point))
    }

    /// Has other processes know which process serves this mount, without asking the mount, until the result is dropped: at the
    /// very end, so that they can wait for it.
    pub fn announce(&self) -> Option<Presence> {
        let mark = self.own_mark()?;
        Presence::of(mark, mount_table::unique_id(mark.number, &self.guard.mounted.mount_point))
    }

    /// Whether the kernel reads and writes files of the host itself, unless it refuses the first one.
    pub fn passes_files_through(&self) -> bool {
        self.negotiated.flags.contains(InitFlags::PASSTHROUGH)
    }

    pub fn transport_name(&self) -> &'static str {
        self.transport.name()
    }

    /// True when `sync(1)` and `umount` reach the file system and wait for it (`fuseblk`).
    pub fn is_synced_by_kernel(&self) -> bool {
        self.guard.mounted.as_block
    }

    /// Answers requests until the file system is unmounted, or `stop` completes, which unmounts it. Then closes the
    /// file system.
    ///
    /// # Errors
    /// When it could not be closed, or has ended in another way, perhaps with users.
    pub async fn serve(mut self, stop: impl Future<Output = ()>) -> Result<Kept, ServeError> {
        let farewell = std::mem::take(&mut self.farewell);
        let served = self.serve_and_close(stop).await;
        farewell.say(served.as_ref().err().map(ToString::to_string));
        served
    }

    async fn serve_and_close(self, stop: impl Future<Output = ()>) -> Result<Kept, ServeError> {
        self.guard.left.set(Left::DeadMount);
        let ending = Ending::default();
        let chores = [
            self.commit_interval.map(|interval| self.rt.spawn(commit(self.chore(&ending), interval))),
            Some(self.rt.spawn(idle(self.chore(&ending)))),
        ];
        let ended = self.run_until(stop).await;
        self.session.backlog.end_all();
        self.say_mounted(true);
        ending.begin();
        for chore in chores.into_iter().flatten() {
            chore.await;
        }
        self.session.activity.settled(0).await;
        let closed = self.session.close().await;
        if ended.is_ok() {
            self.guard.left.set(Left::AsItIs);
        }
        closed.map_err(ServeError::Close)?;
        match ended.map_err(ServeError::Transport)? {
            Ended::Unmounted => Ok(Kept::Everything),
            Ended::InUse => Ok(Kept::Answered),
            Ended::InUseElsewhere => Err(ServeError::InUseElsewhere),
            Ended::ByForce => Err(ServeError::ByForce),
            Ended::Aborted => {
                self.guard.left.set(Left::Nothing); // A dead mount remains in the table.
                Err(ServeError::Aborted)
            }
        }
    }

    fn chore(&self, ending: &Ending) -> Chore {
        Chore { rt: self.rt.clone(), session: self.session.clone(), ending: ending.clone() }
    }

    /// What becomes of users of a mount that ends.
    fn what_users_get(&self) -> String {
        let get = "its users get errors now, and what they have written since without a sync is lost";
        match self.negotiated.flags.contains(InitFlags::WRITEBACK_CACHE) {
            true => {
                format!("{get}. The kernel collects writes (-o writeback), so write(2) may give no error: fsync does")
            }
            false => get.into(),
        }
    }

    async fn run_until(&self, stop: impl Future<Output = ()>) -> Result<Ended, Errno> {
        let run = pin!(self.transport.run(&self.session));
        let run = match select(run, pin!(stop)).await {
            Either::Left((ended, _)) => return ended.map(Ended::from),
            Either::Right(((), run)) => run,
        };
        self.session.backlog.hurry();
        // The kernel may have to send requests before it detaches the mount, so a worker unmounts while this thread
        // keeps serving (U1).
        let unmounter = self.guard.mounted.unmounter();
        let unmounted = match self.reactor.apart(move || unmounter.unmount()) {
            Ok(unmounted) => unmounted,
            Err(error) => {
                let mount_point = self.guard.mounted.mount_point.display();
                log::error!(
                    "no thread can be started to unmount {mount_point} ({error}), so it ends by force: is there a limit of processes?"
                );
                self.guard.mounted.abort();
                return match select(run, self.rt.sleep(GOODBYE)).await {
                    Either::Left((Err(error), _)) => Err(error),
                    _ => Ok(Ended::ByForce),
                };
            }
        };
        let (ended, unmounted) = match select(run, unmounted).await {
            // The connection is gone, so the worker can finish.
            Either::Left((ended, unmounted)) => (Either::Left(ended), unmounted.await),
            // The kernel ends the connection after the mount has been detached; a lazy unmount by another process ends
            // it only when the last user has gone.
            Either::Right((unmounted, run)) => (Either::Right(run), unmounted),
        };
        let mount_point = self.guard.mounted.mount_point.display();
        match unmounted {
            Ok(Unmounted::Before | Unmounted::Now) => {}
            Ok(Unmounted::InUse) => log::warn!("{mount_point} was in use; {}", self.what_users_get()),
            Err(error) => log::error!("cannot unmount {mount_point}: {error}"),
        }
        let proper_end = if let Ok(Unmounted::InUse) = unmounted { Ended::InUse } else { Ended::Unmounted };
        let run = match ended {
            Either::Left(ended) => return ended.map(|_| proper_end),
            Either::Right(run) => run,
        };
        match select(run, self.rt.sleep(GOODBYE)).await {
            // The unmount was requested, so this is a proper end, even if it took an abort.
            Either::Left((ended, _)) => ended.map(|_| proper_end),
            Either::Right(((), run)) => {
                self.guard.mounted.abort();
                if let Either::Left((Err(error), _)) = select(run, self.rt.sleep(GOODBYE)).await {
                    return Err(error);
                }
                match unmounted {
                    Ok(Unmounted::Before) => Ok(Ended::InUseElsewhere),
                    Err(_) => Ok(Ended::ByForce),
                    _ => {
                        let get = self.what_users_get();
                        log::warn!("{mount_point} was still in use elsewhere, as in another mount namespace; {get}");
                        Ok(Ended::InUse)
                    }
                }
            }
        }
    }
}

/// How a mount ended.
enum Ended {
    Unmounted,
    /// We unmounted it although it had users.
    InUse,
    Aborted,
    /// Something else had unmounted it, and users were left, which get errors now.
    InUseElsewhere,
    /// It could not be unmounted.
    ByForce,
}

impl From<End> for Ended {
    fn from(end: End) -> Ended {
        match end {
            End::Unmounted => Ended::Unmounted,
            End::Aborted => Ended::Aborted,
        }
    }
}

/// Makes background tasks stop.
#[derive(Clone, Default)]
struct Ending {
    begun: Rc<Cell<bool>>,
    event: Rc<Event>,
}

impl Ending {
    fn begin(&self) {
        self.begun.set(true);
        self.event.notify();
    }

    /// Returns true when `wait` ended first.
    async fn or(&self, wait: impl Future) -> bool {
        let event = pin!(self.event.wait());
        if self.begun.get() {
            return false;
        }
        matches!(select(pin!(wait), event).await, Either::Left(_))
    }
}

/// State of a background task.
struct Chore {
    rt: Rt,
    session: Rc<Session>,
    ending: Ending,
}

/// The last error, so that repetitions of the same error are reported once.
#[derive(Default)]
struct LastError(Option<FsError>);

impl LastError {
    /// True when `error` differs from the last one.
    fn is_news(&mut self, error: &FsError) -> bool {
        // `NoSpace` names another place each time.
        let known = match (&self.0, error) {
            (Some(FsError::Device(DeviceError::NoSpace { .. })), FsError::Device(DeviceError::NoSpace { .. })) => true,
            (last, error) => last.as_ref() == Some(error),
        };
        self.0 = Some(error.clone());
        !known
    }

    /// Records a success; true when the last attempt had failed.
    fn has_ended(&mut self) -> bool {
        self.0.take().is_some()
    }
}

/// Makes changes durable every `interval`.
async fn commit(chore: Chore, interval: Nanos) {
    let activity = &chore.session.activity;
    let mut committed = 0;
    let mut last_error = LastError::default();
    while chore.ending.or(chore.rt.sleep(interval)).await {
        let changes = activity.changes.get();
        // What the kernel writes itself sends no message.
        let is_unchanged = changes == committed && !chore.session.has_writers_past_us();
        if is_unchanged || chore.session.closes() {
            continue;
        }
        // Not to be dropped half-way: background tasks end only between commits.
        match chore.session.fs().syncfs().await {
            Ok(()) => {
                committed = changes;
                if last_error.has_ended() {
                    log::warn!("changes are made durable again");
                }
            }
            // Closing does the same, and reports how that ends.
            Err(_) if chore.session.closes() => {}
            Err(error) => {
                if last_error.is_news(&error) {
                    log::error!("changes could not be made durable: {error}");
                }
                // Room may come back without a change here. Other errors would only be repeated; the next change tries again.
                if !matches!(errno_of(&error), libc::ENOSPC | libc::EDQUOT) {
                    committed = changes;
                }
            }
        }
    }
}

/// Lets the file system work while no request is pending.
async fn idle(chore: Chore) {
    let activity = &chore.session.activity;
    let mut last_error = LastError::default();
    let quiet_since = |requests| activity.requests.get() == requests;
    loop {
        let requests = activity.requests.get();
        if !chore.ending.or(chore.rt.sleep(QUIET)).await {
            return;
        }
        while quiet_since(requests) && !chore.session.closes() {
            let until = chore.rt.now() + IDLE_SLICE;
            let more = Cell::new(false);
            let work = async {
                match chore.session.fs().idle(until).await {
                    Ok(again) => {
                        more.set(again);
                        if last_error.has_ended() {
                            log::warn!("background work continues");
                        }
                    }
                    Err(_) if chore.session.closes() => {}
                    Err(error) if last_error.is_news(&error) => log::error!("background work stopped: {error}"),
                    Err(_) => {}
                }
            };
            if !chore.ending.or(work).await {
                return;
            }
            if !more.get() {
                break;
            }
            if !chore.ending.or(chore.rt.sleep(IDLE_PAUSE)).await {
                return;
            }
        }
        if quiet_since(requests) {
            let began = activity.began.wait();
            activity.watched.set(true);
            let going_on = chore.ending.or(began).await;
            activity.watched.set(false);
            if !going_on {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use seekless::fs::{FileSystem, OpenProtocol};
    use seekless::rt::{Executor, HostProfile};
    use seekless::testing::{MemFsOptions, WeakFs};
    use seekless::units::Sector;

    use super::*;
    use crate::fuse::request::Init;

    /// Changes that found no room are made durable when there is room again, without a further request; an error that would only be
    /// repeated waits for the next change. Method: syncs that fail, and minutes without a request.
    #[test]
    fn what_found_no_room_is_tried_again() {
        const INTERVAL: Nanos = Nanos::from_secs(5);
        let intervals = |number| Nanos(INTERVAL.0 * number);
        let no_space = || FsError::Device(DeviceError::NoSpace { at: Sector(8), bytes: 4096 });
        for (error, times, is_tried_again) in [
            (FsError::NoSpace, 1, true),
            (FsError::NoSpace, 6, true),
            (no_space(), 1, true),
            (FsError::Host(libc::EDQUOT), 2, true),
            (FsError::Stopped("an earlier error".into()), 1, false),
            (FsError::corrupt("block", "sector 8", "bad"), 1, false),
            (FsError::Host(libc::EIO), 1, false),
        ] {
            let what = format!("{error}, {times} times");
            let executor = Executor::simulated(1, HostProfile::NONE);
            let rt = executor.rt().clone();
            let options = MemFsOptions { open_protocol: OpenProtocol::Handles, ..MemFsOptions::default() };
            let fs = WeakFs::new(&rt, options);
            let init = Init { major: 7, minor: 45, max_readahead: 0, flags: InitFlags::all() };
            let (negotiated, _) = negotiate(&init, &fs.traits(), &RequestedFeatures::PLAIN).unwrap();
            let session = Rc::new(Session::new(fs.clone(), negotiated, "me".into()));
            let ending = Ending::default();
            let chore = Chore { rt: rt.clone(), session: session.clone(), ending: ending.clone() };
            let change = || session.activity.changes.set(session.activity.changes.get() + 1);
            let run = async {
                let task = rt.spawn(commit(chore, INTERVAL));
                fs.end_syncs_with(std::iter::repeat_n(Err(error), times));
                change();
                rt.sleep(intervals(times as u64 + 2)).await;
                assert_eq!(fs.syncs(), usize::from(is_tried_again), "{what}");
                rt.sleep(intervals(20)).await;
                assert_eq!(fs.syncs(), usize::from(is_tried_again), "{what}: later");
                change();
                rt.sleep(intervals(3)).await;
                assert_eq!(fs.syncs(), 1 + usize::from(is_tried_again), "{what}: after a change");
                ending.begin();
                task.await;
            };
            executor.block_on(run).unwrap();
        }
    }
}
