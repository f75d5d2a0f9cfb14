//! Where threads run, and with which policy.

use std::cell::Cell;
use std::ffi::CStr;
use std::io::Write;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

/// The observer that has moved an engine thread last. No thread binds it, so its processors are those that this process may use at
/// present: it follows the cpuset, and `taskset -a`.
static OBSERVER: AtomicI32 = AtomicI32::new(NO_OBSERVER);

/// No engine thread has been moved so far.
const NO_OBSERVER: i32 = 0;

/// One has been, and its observer has ended.
const ENDED: i32 = -1;

/// An engine thread with the ordinary policy, and the processors that it may use.
pub(super) struct Engine {
    thread: Pid,
    /// The clock of its run time.
    clock: libc::clockid_t,
    /// Those that it had at the start, or was given back.
    processors: Cell<CpuSet>,
    /// Where it is bound, if the system has refused to give it something back.
    lost_at: Cell<Option<usize>>,
}

impl Engine {
    /// `None` where there is nothing to choose, where the administrator has chosen, or where `/proc` shows other processes than this.
    pub(super) fn this_thread() -> Option<Engine> {
        let (processors, lost_at) = (Cell::new(sched_getaffinity(None).ok()?), Cell::new(None));
        let engine = Engine { thread: gettid(), clock: clock_of_this_thread()?, processors, lost_at };
        let this = std::fs::read_link("/proc/self").ok()?;
        let may_choose = engine.processors.get().count() > 1
            && policy_of(engine.thread) == Some(libc::SCHED_OTHER)
            && this.to_str()?.parse() == Ok(std::process::id());
        (may_choose && keep_io_priority()).then_some(engine)
    }

    /// Moves it to `processor`, for the calling thread, its observer. `None` where it may not use that, where the administrator has given
    /// it another policy or other processors, or where the system would not let it come back.
    pub(super) fn move_to(&self, processor: usize) -> Option<Moved<'_>> {
        OBSERVER.store(gettid().as_raw_nonzero().get(), Ordering::Relaxed);
        self.renew();
        let is_as_before = sched_getaffinity(Some(self.thread)).is_ok_and(|now| now == self.processors.get());
        let may_move = is_as_before && policy_of(self.thread) == Some(libc::SCHED_OTHER);
        if self.is_lost() || !may_move || !may_use(processor) || !self.could_return() {
            return None;
        }
        let moved = Moved { engine: self, processor };
        (set_policy(self.thread, libc::SCHED_IDLE) && bind(self.thread, processor)).then_some(moved)
    }

    /// Where the processors of this process have changed since the engine thread was given its own back, it has those of now. (Linux keeps what
    /// a thread was given, and takes only what the cpuset lacks away from it.)
    pub(super) fn renew(&self) {
        let (now, given) = (sched_getaffinity(Some(self.thread)), self.processors.get());
        if let (Ok(now), Ok(own)) = (now, sched_getaffinity(None))
            && own != given
            && (now == given || now == own)
            && sched_setaffinity(Some(self.thread), &own).is_ok()
        {
            self.processors.set(own);
        }
    }

    /// `None` where the kernel does not count.
    pub(super) fn turns(&self) -> Option<Turns> {
        let thread = self.thread.as_raw_nonzero().get().cast_unsigned();
        let mut text = [0; TEXT_BYTES];
        let waited = waited_of(read(thread, "schedstat", &mut text)?)?;
        let ran = time_of(self.clock)?;
        // "Running or runnable" (proc_pid_stat(5), field 3).
        let wants_one = fields_of(read(thread, "stat", &mut text)?)?.next()? == "R";
        Some(Turns { ran, waited, wants_one })
    }

    /// Gives it back what it had before it was bound to `processor`. First the processors: a thread that it starts in between is known by its
    /// policy ([`be_ordinary`]).
    fn give_back(&self, processor: usize) {
        let went = self.give_processors(processor);
        let returned = self.give_policy();
        if went && returned {
            self.lost_at.set(None);
        } else if self.lost_at.replace(Some(processor)).is_none() {
            log::warn!(
                "the system does not let the engine thread go back to its processors and the policy SCHED_OTHER; until it does, requests \
                 may wait for a processor for long"
            );
        }
    }

    /// The system has refused to give it something back.
    pub(super) fn is_lost(&self) -> bool {
        self.lost_at.get().is_some()
    }

    /// Tries again.
    pub(super) fn regain(&self) {
        if let Some(processor) = self.lost_at.get() {
            self.give_back(processor);
        }
    }

    /// Where its nice value has been lowered to one with which `RLIMIT_NICE` does not let it come back, it has that of the observer.
    fn give_policy(&self) -> bool {
        let give = || policy_of(self.thread) != Some(libc::SCHED_IDLE) || set_policy(self.thread, libc::SCHED_OTHER);
        let be_nicer = |own: i32| {
            getpriority_process(Some(self.thread)).is_ok_and(|nice| nice < own)
                && setpriority_process(Some(self.thread), own).is_ok()
        };
        give() || getpriority_process(None).is_ok_and(be_nicer) && give()
    }

    /// Tries with the calling thread, its observer. The kernel allows it to a thread according to its nice value, so this one takes that of
    /// the engine thread where that is lower.
    fn could_return(&self) -> bool {
        let (Ok(nice), Ok(own)) = (getpriority_process(Some(self.thread)), getpriority_process(None)) else {
            return false;
        };
        (nice >= own || setpriority_process(None, nice).is_ok()) && can_return()
    }

    /// Unless the administrator has given it others: then it has neither `processor` alone, nor, as where the cpuset has lost that one,
    /// all that this process may use.
    fn give_processors(&self, processor: usize) -> bool {
        let (Ok(now), Ok(own)) = (sched_getaffinity(Some(self.thread)), sched_getaffinity(None)) else { return false };
        if !is_only(&now, processor) && now != own {
            return true;
        }
        self.processors.set(own);
        // Where the cpuset has just lost all of them, what there is instead.
        [own, everything()].iter().any(|processors| sched_setaffinity(Some(self.thread), processors).is_ok())
    }

    /// Gives the ordinary policy and all processors to the kernel's workers for this process (those of io_uring), which the engine
    /// thread may have started while it shared a processor. Before Linux 6.2 the kernel alone chooses their processors.
    ///
    /// Without the allocator: the engine thread may hold its lock while it waits for the caller.
    pub(super) fn release_workers(&self) {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(directory) = rustix::fs::open(c"/proc/self/task", flags, Mode::empty()) else { return };
        let mut entries = [const { MaybeUninit::uninit() }; TEXT_BYTES];
        let mut threads = RawDir::new(directory, &mut entries);
        while let Some(Ok(thread)) = threads.next() {
            if let Some(thread) = thread.file_name().to_str().ok().and_then(|name| name.parse().ok()) {
                release_if_worker(thread);
            }
        }
    }
}

fn release_if_worker(thread: u32) {
    let mut name = [0; TEXT_BYTES];
    let is_worker =
        read_of(std::process::id(), thread, "comm", &mut name).is_some_and(|name| name.starts_with(b"iou-"));
    if let Some(thread) = i32::try_from(thread).ok().and_then(Pid::from_raw)
        && is_worker
        && policy_of(thread) == Some(libc::SCHED_IDLE)
    {
        let _ = sched_setaffinity(Some(thread), &ordinary_processors());
        set_policy(thread, libc::SCHED_OTHER);
    }
}

/// How a thread has got processors since it began.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Turns {
    /// How long it has run.
    pub ran: Duration,
    /// How long it has waited for a processor. The kernel adds a wait when it ends.
    pub waited: Duration,
    /// It runs now, or waits for a processor.
    pub wants_one: bool,
}

/// An engine thread that shares a processor; dropping it gives the thread its policy and its processors back.
pub(super) struct Moved<'a> {
    engine: &'a Engine,
    processor: usize,
}

impl Moved<'_> {
    pub(super) fn is_at(&self, processor: usize) -> bool {
        self.processor == processor
    }

    /// `None` where it may not go there, or the administrator has chosen in between.
    pub(super) fn go_to(mut self, processor: usize) -> Option<Self> {
        let went = self.is_as_left() && may_use(processor) && bind(self.engine.thread, processor);
        if went {
            self.processor = processor;
        }
        went.then_some(self)
    }

    /// Its policy and its processors are as they were set here.
    fn is_as_left(&self) -> bool {
        let processors = sched_getaffinity(Some(self.engine.thread));
        policy_of(self.engine.thread) == Some(libc::SCHED_IDLE)
            && processors.is_ok_and(|found| is_only(&found, self.processor))
    }
}

impl Drop for Moved<'_> {
    fn drop(&mut self) {
        self.engine.give_back(self.processor);
    }
}

/// Tries with the calling thread whether a thread may leave `SCHED_IDLE` again, which needs `CAP_SYS_NICE` or `RLIMIT_NICE`
/// (sched(7)). Where it may not, the thread keeps that policy until the next try.
pub(super) fn can_return() -> bool {
    let this = gettid();
    set_policy(this, libc::SCHED_IDLE) && set_policy(this, libc::SCHED_OTHER)
}

/// The calling thread, which may have been started by an engine thread that shares a processor, has the ordinary policy and all
/// processors.
pub(in crate::reactor) fn be_ordinary() {
    if OBSERVER.load(Ordering::Relaxed) != NO_OBSERVER {
        let this = gettid();
        if policy_of(this) == Some(libc::SCHED_IDLE) {
            let _ = sched_setaffinity(Some(this), &ordinary_processors());
            set_policy(this, libc::SCHED_OTHER);
        }
    }
}

/// The calling thread observes no longer.
pub(super) fn stop_observing() {
    let this = gettid().as_raw_nonzero().get();
    let _ = OBSERVER.compare_exchange(this, ENDED, Ordering::Relaxed, Ordering::Relaxed);
}

/// The processors that threads of this process may use.
fn ordinary_processors() -> CpuSet {
    let observer = OBSERVER.load(Ordering::Relaxed);
    let observed = Pid::from_raw(observer.max(0)).and_then(|observer| sched_getaffinity(Some(observer)).ok());
    // Without one, all that the cpuset has: the kernel leaves out others.
    observed.unwrap_or_else(everything)
}

fn everything() -> CpuSet {
    let mut everything = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|processor| everything.set(processor));
    everything
}

/// The calling thread, an observer, may use `processor`.
fn may_use(processor: usize) -> bool {
    processor < CpuSet::MAX_CPU && sched_getaffinity(None).is_ok_and(|own| own.is_set(processor))
}

fn is_only(processors: &CpuSet, processor: usize) -> bool {
    processors.count() == 1 && processors.is_set(processor)
}

/// The processor on which a thread runs, or ran last (proc_pid_stat(5), field 39).
pub(super) fn processor_of(thread: u32) -> Option<usize> {
    let mut text = [0; TEXT_BYTES];
    fields_of(read(thread, "stat", &mut text)?)?.nth(39 - 3)?.parse().ok()
}

/// The fields of `stat` from the third one on. The second one is a name in parentheses, which may contain anything, and end within a
/// character.
fn fields_of(stat: &[u8]) -> Option<impl Iterator<Item = &str>> {
    let name_end = stat.iter().rposition(|&byte| byte == b')')?;
    Some(std::str::from_utf8(&stat[name_end + 1..]).ok()?.split_ascii_whitespace())
}

/// The second number of `schedstat`. The first one is the time that the thread has run, and so above zero where the kernel counts: one
/// that does not shows three zeros.
fn waited_of(schedstat: &[u8]) -> Option<Duration> {
    let mut numbers = std::str::from_utf8(schedstat).ok()?.split_ascii_whitespace();
    let ran: u64 = numbers.next()?.parse().ok()?;
    let waited = numbers.next()?.parse().ok()?;
    (ran > 0).then_some(Duration::from_nanos(waited))
}

/// More than `stat` has: 52 fields, of up to 20 digits.
const TEXT_BYTES: usize = 1280;

/// What `/proc` says of a thread that may be one of another process. Without the allocator: a thread that waits for this one may hold
/// its lock.
fn read<'a>(thread: u32, file: &str, text: &'a mut [u8]) -> Option<&'a [u8]> {
    read_of(thread, thread, file, text)
}

/// The same for one of `process`.
fn read_of<'a>(process: u32, thread: u32, file: &str, text: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0; 64];
    write!(&mut path[..], "/proc/{process}/task/{thread}/{file}\0").ok()?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let count = rustix::io::read(&file, &mut *text).ok()?;
    text.get(..count)
}

/// The calling thread's I/O has the priority that follows from its nice value, whatever its policy: without this, Linux would give that
/// of a thread with `SCHED_IDLE` the class "idle" (ioprio_set(2)). False where the system refuses.
fn keep_io_priority() -> bool {
    /// `linux/ioprio.h`.
    const WHO_PROCESS: libc::c_int = 1;
    const CLASS_SHIFT: u32 = 13;
    const CLASS_BEST_EFFORT: libc::c_int = 2;
    // SAFETY: the calls take numbers; thread 0 is the calling one.
    unsafe {
        let now = libc::syscall(libc::SYS_ioprio_get, WHO_PROCESS, 0);
        if now < 0 || now >> CLASS_SHIFT != 0 {
            return now >= 0;
        }
        let nice = libc::getpriority(libc::PRIO_PROCESS, 0);
        let best_effort = (CLASS_BEST_EFFORT << CLASS_SHIFT) | ((nice + 20) / 5);
        libc::syscall(libc::SYS_ioprio_set, WHO_PROCESS, 0, best_effort) == 0
    }
}

/// The clock of the calling thread's run time, which the other threads of this process can read, too. Other than in `schedstat`, it
/// includes the present turn.
fn clock_of_this_thread() -> Option<libc::clockid_t> {
    let mut clock = 0;
    // SAFETY: the call writes a number, which lives until it returns.
    (unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &raw mut clock) } == 0).then_some(clock)
}

fn time_of(clock: libc::clockid_t) -> Option<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time, which lives until it returns.
    let was_read = unsafe { libc::clock_gettime(clock, &raw mut time) } == 0;
    was_read.then(|| Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32))
}

fn bind(thread: Pid, processor: usize) -> bool {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(Some(thread), &only).is_ok()
}

fn policy_of(thread: Pid) -> Option<i32> {
    // SAFETY: the call takes a number.
    let policy = unsafe { libc::sched_getscheduler(thread.as_raw_nonzero().get()) };
    (policy >= 0).then_some(policy)
}

/// True if the kernel allows it.
pub(super) fn set_policy(thread: Pid, policy: i32) -> bool {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the call reads the parameters, which live until it returns.
    unsafe { libc::sched_setscheduler(thread.as_raw_nonzero().get(), policy, &parameters) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel that counts no waits shows zeros, which do not mean that the thread never waits.
    #[test]
    fn zeros_are_no_waits() {
        assert_eq!(waited_of(b"54961 1200 1\n"), Some(Duration::from_nanos(1200)));
        assert_eq!(waited_of(b"54961 0 1\n"), Some(Duration::ZERO));
        for nothing in ["0 0 0\n", "", "5", "x 1 1"] {
            assert_eq!(waited_of(nothing.as_bytes()), None, "{nothing:?}");
        }
    }

    /// A thread's name may have parentheses, and is cut after 15 bytes, which may be within a character.
    #[test]
    fn names_contain_anything() {
        for name in [&b"sh"[..], b"a) R (b", b"fifteen bytes \xc3"] {
            let stat = [b"12 (", name, b") S 1 2\n"].concat();
            assert_eq!(fields_of(&stat).unwrap().collect::<Vec<_>>(), ["S", "1", "2"]);
        }
        assert!(fields_of(b"12 (sh").is_none());
    }
}
