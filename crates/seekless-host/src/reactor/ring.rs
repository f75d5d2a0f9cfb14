//! Everything through one io_uring.
//!
//! A future queues its operation when it is first polled; the queue goes to the kernel with the next wait, in
//! the same system call. Operations live in a slab that owns their buffers and files (H2), so a dropped future
//! leaves an orphan behind, which goes when its completion arrives.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use io_uring::types::{CancelBuilder, Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::event::PollFlags;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use seekless::device::{Buf, Counter, Data};
use slab::Slab;

use super::File;
use super::lent::{LentMemory, Loan};
use super::notify::Notifier;

/// FUSE commands need 128-byte entries, so every entry of the one ring has that size.
type Sqe = squeue::Entry128;

/// User data of completions that belong to no operation of the slab.
const USER_DATA_NOTIFIER: u64 = u64::MAX;
const USER_DATA_CANCEL: u64 = u64::MAX - 1;
const USER_DATA_WORKER: u64 = u64::MAX - 2;

pub(crate) struct Ring {
    uring: RefCell<IoUring<Sqe>>,
    operations: RefCell<Slab<Operation>>,
    notifier: Arc<Notifier>,
    /// True while a read of the notifier is queued or under way.
    notifier_armed: Cell<bool>,
    /// Buffer of that read, eight bytes.
    notifier_value: Box<Cell<u64>>,
    /// Result of the operation that starts the kernel's worker.
    worker: Cell<Option<i32>>,
    /// Operations in the slab whose future is alive.
    awaited: Cell<usize>,
    submitted: Cell<u64>,
    enters: Cell<u64>,
}

/// An operation submitted to the kernel, or about to be.
struct Operation {
    resources: Resources,
    state: State,
}

enum State {
    Pending(Waker),
    Completed(i32),
    /// The future was dropped.
    Orphaned,
}

/// Resources that must stay alive until the kernel is done.
enum Resources {
    Read {
        buf: Buf,
        _file: File,
    },
    Write {
        data: Data,
        _file: File,
    },
    File {
        _file: File,
    },
    /// A poll, which may never complete by itself.
    Poll {
        _file: File,
    },
    /// The memory of a FUSE queue entry, and its device.
    Command {
        memory: Loan,
        _file: File,
    },
}

impl Ring {
    pub(super) fn new(entries: u32, notifier: Arc<Notifier>) -> io::Result<Ring> {
        let uring = IoUring::<Sqe>::builder()
            .dontfork()
            // More completions than submissions may be outstanding: FUSE entries stay permanently.
            .setup_cqsize(entries * 4)
            .setup_clamp()
            // One thread submits and reaps, and wants completions only on request: no interrupts in between.
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(entries)?;
        if !uring.params().is_feature_ext_arg() || !uring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "io_uring of this kernel is too old"));
        }
        let ring = Ring {
            uring: RefCell::new(uring),
            operations: RefCell::default(),
            notifier,
            notifier_armed: Cell::new(false),
            notifier_value: Box::default(),
            worker: Cell::new(None),
            awaited: Cell::new(0),
            submitted: Cell::new(0),
            enters: Cell::new(0),
        };
        ring.start_worker()?;
        Ok(ring)
    }

    /// Lets the kernel start the thread on which it serves regular files where that may take time, as every sync does. It keeps one
    /// such thread from then on. Where it cannot start one, as the limit of processes is reached, it answers `ECANCELED`, of
    /// which a sync could not tell whether it has consumed the report of a lost write.
    fn start_worker(&self) -> io::Result<()> {
        const PATIENCE: Duration = Duration::from_secs(5);
        let Ok(file) = rustix::fs::memfd_create("seekless", MemfdFlags::CLOEXEC) else { return Ok(()) };
        let sync = opcode::Fsync::new(Fd(file.as_raw_fd())).build().flags(squeue::Flags::ASYNC);
        self.push(&sync.user_data(USER_DATA_WORKER).into());
        let deadline = Instant::now() + PATIENCE;
        while self.worker.get().is_none() && Instant::now() < deadline {
            self.enter(1, Some(Duration::from_millis(100)));
            self.reap();
        }
        match self.worker.get() {
            Some(0) => Ok(()),
            Some(error) => Err(io::Error::from_raw_os_error(-error)),
            None => Err(io::ErrorKind::TimedOut.into()),
        }
    }

    pub(super) async fn read_at(&self, file: File, offset: u64, buf: Buf, from: usize) -> (Result<usize, Errno>, Buf) {
        let fd = Fd(file.as_raw_fd());
        let (resources, result) = self
            .operation(Resources::Read { buf, _file: file }, |resources| {
                let Resources::Read { buf, .. } = resources else { unreachable!("made above") };
                let target = &mut buf[from..];
                let length = u32::try_from(target.len()).unwrap_or(u32::MAX);
                opcode::Read::new(fd, target.as_mut_ptr(), length).offset(offset).build().into()
            })
            .await;
        let Resources::Read { buf, .. } = resources else { unreachable!("an operation gives back what it held") };
        (count(result), buf)
    }

    pub(super) async fn write_at(&self, file: File, offset: u64, data: Data, durable: bool) -> Result<usize, Errno> {
        let fd = Fd(file.as_raw_fd());
        let flags = if durable { libc::RWF_DSYNC } else { 0 };
        let (_, result) = self
            .operation(Resources::Write { data, _file: file }, |resources| {
                let Resources::Write { data, .. } = resources else { unreachable!("made above") };
                let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
                opcode::Write::new(fd, data.as_ptr(), length).offset(offset).rw_flags(flags).build().into()
            })
            .await;
        count(result)
    }

    pub(super) async fn sync(&self, file: File, metadata: bool) -> Result<(), Errno> {
        let fd = Fd(file.as_raw_fd());
        let flags = if metadata { FsyncFlags::empty() } else { FsyncFlags::DATASYNC };
        let (_, result) = self
            .operation(Resources::File { _file: file }, |_| opcode::Fsync::new(fd).flags(flags).build().into())
            .await;
        count(result).map(drop)
    }

    pub(super) async fn fallocate(
        &self,
        file: File,
        mode: FallocateFlags,
        offset: u64,
        bytes: u64,
    ) -> Result<(), Errno> {
        let fd = Fd(file.as_raw_fd());
        let mode = mode.bits() as i32;
        let (_, result) = self
            .operation(Resources::File { _file: file }, |_| {
                opcode::Fallocate::new(fd, bytes).offset(offset).mode(mode).build().into()
            })
            .await;
        count(result).map(drop)
    }

    pub(super) async fn ready(&self, file: File, events: PollFlags) {
        let fd = Fd(file.as_raw_fd());
        let events = u32::from(events.bits());
        // An error here is an error of the file; the following read or write reports it.
        self.operation(Resources::Poll { _file: file }, |_| opcode::PollAdd::new(fd, events).build().into()).await;
    }

    /// Sends a command to the FUSE device, lends `memory` to the kernel, and waits for the completion.
    pub(crate) async fn command(
        &self,
        device: File,
        memory: &Rc<LentMemory>,
        command: FuseCommand,
    ) -> Result<usize, Errno> {
        let fd = Fd(device.as_raw_fd());
        let resources = Resources::Command { memory: memory.lend(), _file: device };
        let (_, result) = self
            .operation(resources, |resources| {
                let Resources::Command { memory, .. } = resources else { unreachable!("a command holds its memory") };
                command.entry(fd, memory)
            })
            .await;
        count(result)
    }

    /// Queues an operation on `resources`. `entry` builds it once the held resources have their final address.
    fn operation(&self, resources: Resources, entry: impl FnOnce(&mut Resources) -> Sqe) -> InFlight<'_> {
        let mut operations = self.operations.borrow_mut();
        let slot = operations.vacant_entry();
        let key = slot.key();
        let operation = slot.insert(Operation { resources, state: State::Pending(Waker::noop().clone()) });
        let entry = entry(&mut operation.resources).user_data(key as u64);
        drop(operations);
        self.awaited.set(self.awaited.get() + 1);
        self.push(&entry);
        InFlight { ring: self, key: Some(key) }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.awaited.get()
    }

    pub(super) fn wait(&self, timeout: Option<Duration>) {
        self.arm_notifier();
        let want = if self.reap() { 0 } else { 1 };
        self.enter(want, timeout);
        self.reap();
    }

    pub(super) fn poll(&self) {
        let due = {
            let mut uring = self.uring.borrow_mut();
            let queue = uring.submission();
            !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
        };
        if due {
            self.enter(0, None);
        }
        self.reap();
    }

    pub(super) fn counters(&self) -> Vec<Counter> {
        vec![("ring_submitted", self.submitted.get()), ("ring_enters", self.enters.get())]
    }

    /// Puts `entry` into the submission queue, making room if it is full.
    fn push(&self, entry: &Sqe) {
        self.submitted.set(self.submitted.get() + 1);
        loop {
            {
                let mut uring = self.uring.borrow_mut();
                // SAFETY: buffers and files of the operation stay where they are and alive until its completion
                // has been reaped: `Operation::resources` owns them (H2), or the ring itself (`notifier_value`).
                if unsafe { uring.submission().push(entry) }.is_ok() {
                    return;
                }
            }
            self.enter(0, None);
        }
    }

    /// Submits what is queued and waits for `want` completions, at most for `timeout`.
    fn enter(&self, want: usize, timeout: Option<Duration>) {
        self.enters.set(self.enters.get() + 1);
        let uring = self.uring.borrow();
        let entered = match timeout {
            Some(timeout) if want > 0 => {
                let timespec = Timespec::from(timeout);
                uring.submitter().submit_with_args(want, &SubmitArgs::new().timespec(&timespec))
            }
            _ => uring.submitter().submit_and_wait(want),
        };
        match entered {
            Ok(_) => {}
            // A timeout, a signal, a full completion queue, or lack of memory for requests: the caller reaps and
            // retries.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN | libc::ENOMEM)
                ) => {}
            // Any other error is a mistake in how this module uses the ring.
            Err(error) => panic!("io_uring_enter failed: {error}"),
        }
    }

    /// Takes completions and wakes their tasks. True when there was one.
    fn reap(&self) -> bool {
        /// Completions taken at once; the limit only bounds the stack.
        const BATCH: usize = 64;
        let mut any = false;
        loop {
            let mut batch: [Option<(u64, i32)>; BATCH] = [None; BATCH];
            {
                let mut uring = self.uring.borrow_mut();
                let mut queue: cqueue::CompletionQueue<'_, _> = uring.completion();
                for (slot, completion) in batch.iter_mut().zip(&mut queue) {
                    *slot = Some((completion.user_data(), completion.result()));
                }
            }
            for (user_data, result) in batch.into_iter().flatten() {
                any = true;
                self.complete(user_data, result);
            }
            if batch[BATCH - 1].is_none() {
                return any;
            }
        }
    }

    fn complete(&self, user_data: u64, result: i32) {
        match user_data {
            USER_DATA_NOTIFIER => self.notifier_armed.set(false),
            USER_DATA_CANCEL => {}
            USER_DATA_WORKER => self.worker.set(Some(result)),
            key => {
                let mut operations = self.operations.borrow_mut();
                let Some(operation) = operations.get_mut(key as usize) else {
                    unreachable!("an operation stays in the slab until its one completion")
                };
                match std::mem::replace(&mut operation.state, State::Completed(result)) {
                    State::Pending(waker) => {
                        drop(operations);
                        waker.wake();
                    }
                    State::Orphaned => {
                        let orphan = operations.remove(key as usize);
                        drop(operations);
                        drop(orphan);
                    }
                    State::Completed(_) => unreachable!("an operation completes once"),
                }
            }
        }
    }

    /// Keeps a read of the notifier under way while the engine thread waits.
    fn arm_notifier(&self) {
        if self.notifier_armed.replace(true) {
            return;
        }
        let fd = Fd(self.notifier.as_fd().as_raw_fd());
        let target = self.notifier_value.as_ptr().cast::<u8>();
        let entry = opcode::Read::new(fd, target, size_of::<u64>() as u32).build().user_data(USER_DATA_NOTIFIER);
        self.push(&entry.into());
    }
}

impl Drop for Ring {
    /// The kernel may write to a buffer until its operation has ended, and closing the ring does not wait for that. So
    /// everything is cancelled and awaited; what does not end in time is leaked rather than freed.
    fn drop(&mut self) {
        const PATIENCE: Duration = Duration::from_secs(5);
        let deadline = Instant::now() + PATIENCE;
        if let Ok(mut operations) = self.operations.try_borrow_mut() {
            operations.iter_mut().for_each(|(_, operation)| {
                if matches!(operation.state, State::Pending(_)) {
                    operation.state = State::Orphaned;
                }
            });
            operations.retain(|_, operation| matches!(operation.state, State::Orphaned));
        }
        self.push(&opcode::AsyncCancel2::new(CancelBuilder::any().all()).build().user_data(USER_DATA_CANCEL).into());
        while (!self.operations.borrow().is_empty() || self.notifier_armed.get()) && Instant::now() < deadline {
            self.enter(1, Some(Duration::from_millis(100)));
            self.reap();
        }
        let leftover = std::mem::take(&mut *self.operations.borrow_mut());
        if !leftover.is_empty() {
            std::mem::forget(leftover);
        }
        if self.notifier_armed.get() {
            std::mem::forget(std::mem::take(&mut self.notifier_value));
        }
    }
}

/// Awaits an operation; returns its resources.
struct InFlight<'a> {
    ring: &'a Ring,
    key: Option<usize>,
}

impl Future for InFlight<'_> {
    type Output = (Resources, i32);

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<(Resources, i32)> {
        let Some(key) = self.key else { unreachable!("polled after it was done") };
        let mut operations = self.ring.operations.borrow_mut();
        match &mut operations[key].state {
            State::Pending(waker) => {
                waker.clone_from(context.waker());
                Poll::Pending
            }
            State::Completed(result) => {
                let result = *result;
                let operation = operations.remove(key);
                drop(operations);
                self.key = None;
                self.ring.awaited.set(self.ring.awaited.get() - 1);
                Poll::Ready((operation.resources, result))
            }
            State::Orphaned => unreachable!("only dropping the future orphans its operation"),
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let Some(key) = self.key else { return };
        self.ring.awaited.set(self.ring.awaited.get() - 1);
        let mut operations = self.ring.operations.borrow_mut();
        if matches!(operations[key].state, State::Completed(_)) {
            let landed = operations.remove(key);
            drop(operations);
            drop(landed);
            return;
        }
        operations[key].state = State::Orphaned;
        // Other operations end by themselves. A poll might never, and would keep its file open.
        let endless = matches!(operations[key].resources, Resources::Poll { .. });
        drop(operations);
        if endless {
            let cancel = opcode::AsyncCancel::new(key as u64).build().user_data(USER_DATA_CANCEL);
            self.ring.push(&cancel.into());
        }
    }
}

/// A completion's result as count or errno.
fn count(result: i32) -> Result<usize, Errno> {
    if result < 0 { Err(Errno::from_raw_os_error(-result)) } else { Ok(result as usize) }
}

/// A command to the FUSE device (`IORING_OP_URING_CMD`).
#[derive(Clone, Copy, Debug)]
pub struct FuseCommand {
    /// `FUSE_IO_URING_CMD_*`.
    pub operation: u32,
    /// Tells the kernel where the memory is.
    pub registers: bool,
    /// `struct fuse_uring_cmd_req`.
    pub request: [u8; 24],
}

impl FuseCommand {
    fn entry(&self, device: Fd, memory: &Loan) -> Sqe {
        /// Offset of `len` in `struct io_uring_sqe`.
        const SQE_LEN_AT: usize = 24;
        const _: () = assert!(size_of::<Sqe>() == 128);
        let mut command = [0; 80];
        command[..self.request.len()].copy_from_slice(&self.request);
        let iovecs = if self.registers { memory.iovecs() } else { 0 };
        let mut entry = opcode::UringCmd80::new(device, self.operation).cmd(command).addr(Some(iovecs)).build();
        if self.registers {
            let count = memory.iovec_count();
            // SAFETY: an `Entry128` is the 128 bytes of the kernel's submission entry, plain old data; the crate
            // offers no way to set this field of a command.
            unsafe { (&raw mut entry).cast::<u8>().add(SQE_LEN_AT).cast::<u32>().write_unaligned(count) };
        }
        entry
    }
}
