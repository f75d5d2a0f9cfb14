//! Workloads on stacks and directories, from the first open to the last close.

use std::cell::RefCell;
use std::future::Future;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use seekless::device::Device;
use seekless::device::trace::{TraceDevice, TraceSink};
use seekless::fs::{Fs, FsError};
use seekless::rng::Rng;
use seekless::rt::{Executor, HostProfile, Rt};
use seekless::stack::{BuildError, Identity, LeafOpener, Mounted, Part, Purpose, Sharing, Stack, Usage, Word};
use seekless::testing::MemFs;
use seekless::units::Nanos;

use crate::LabError;
pub use crate::measured::{Bound, Clock, Failed, Run};
use crate::target::{Directory, Host, Target, Vfs};
use crate::workload::{Outcome, PhaseProgress, Program, ProgramTarget, Unit, Watch, remove_all};

/// Leaves of the simulated world: only the model file system.
pub(crate) struct SimulatedLeaves;

#[async_trait(?Send)]
impl LeafOpener for SimulatedLeaves {
    async fn device(&self, _: &Rt, word: &Word, _: Purpose) -> Result<Device, BuildError> {
        Err(outside(word))
    }

    async fn file_system(&self, rt: &Rt, word: &Word, _: Purpose, _: Sharing) -> Result<Fs, BuildError> {
        match word.name() {
            "memfs" => Ok(MemFs::new(rt) as Fs),
            _ => Err(outside(word)),
        }
    }
}

/// The same, and each request to a device of the stack is recorded.
struct RecordingLeaves(Rc<RefCell<dyn TraceSink>>);

#[async_trait(?Send)]
impl LeafOpener for RecordingLeaves {
    async fn device(&self, rt: &Rt, word: &Word, purpose: Purpose) -> Result<Device, BuildError> {
        SimulatedLeaves.device(rt, word, purpose).await
    }

    async fn file_system(&self, rt: &Rt, word: &Word, purpose: Purpose, sharing: Sharing) -> Result<Fs, BuildError> {
        SimulatedLeaves.file_system(rt, word, purpose, sharing).await
    }

    fn watched(&self, rt: &Rt, device: Device) -> Device {
        TraceDevice::new(rt, device, self.0.clone())
    }
}

fn outside(word: &Word) -> BuildError {
    BuildError::other(format!("`{}` lies in the real world, where virtual time cannot go", word.name()))
        .hint("run it in real time, or put a modelled disk in its place: disk:dec-rz26")
}

/// True when everything in the stack can be simulated, so that it can run in virtual time.
pub fn can_be_simulated(stack: &Stack) -> bool {
    stack.is_volatile() || stack.words().last().is_some_and(|leaf| leaf.name() == "memfs")
}

/// Runs `spec` on a stack in virtual time, with separate files, such as a log, on the stack `beside`. The same
/// arguments give the same nanoseconds.
///
/// # Errors
/// Those of the stacks.
pub fn simulate(
    stack: &Stack,
    beside: Option<&Stack>,
    profile: HostProfile,
    spec: &dyn Program,
    watch: Watch<'_>,
) -> Result<Run, LabError> {
    simulate_on(&SimulatedLeaves, stack, beside, profile, spec, watch)
}

/// The same on one stack, and `sink` learns of each request to a device at its bottom, in the order in which they
/// complete.
///
/// # Errors
/// Those of the stack.
pub fn record(
    stack: &Stack,
    profile: HostProfile,
    spec: &dyn Program,
    watch: Watch<'_>,
    sink: Rc<RefCell<dyn TraceSink>>,
) -> Result<Run, LabError> {
    simulate_on(&RecordingLeaves(sink), stack, None, profile, spec, watch)
}

fn simulate_on(
    leaves: &dyn LeafOpener,
    stack: &Stack,
    beside: Option<&Stack>,
    profile: HostProfile,
    spec: &dyn Program,
    watch: Watch<'_>,
) -> Result<Run, LabError> {
    let mut rng = Rng::new(spec.seed());
    let mut random = || [(); 4].map(|()| rng.next_u64());
    let (own, other) = (Identity::new(random()), Identity::new(random()));
    let executor = Executor::simulated(rng.next_u64(), profile);
    let rt = executor.rt().clone();
    executor.block_on(async {
        let mount = async |stack: &Stack, identity| {
            watched(stack.mount(&rt, leaves, identity, Usage::default()), "making the file system", watch).await
        };
        let mounted = mount(stack, &own).await??;
        let (parts, counted) = (described(&mounted), mounted.parts.clone());
        let mut target = Vfs::new(rt.clone(), mounted);
        if let Some(beside) = beside {
            let mounted = mount(beside, &other).await??;
            target = target.with_beside(Vfs::new(rt.clone(), mounted));
        }
        let outcome = spec.run_on(ProgramTarget::Stack(&target), watch).await?;
        watched(close(target.fs()), "closing", watch).await??;
        if let Some(beside) = target.beside() {
            watched(close(beside.fs()), "closing", watch).await??;
        }
        Ok(run_of(stack, parts, &counted, Clock::Virtual, Some(profile.name), outcome))
    })?
}

/// What `future` returns, unless the caller ends the run while it waits: a file system on terabytes takes long to make. For virtual time, in
/// which nothing is left behind.
async fn watched<T>(future: impl Future<Output = T>, phase: &str, watch: Watch<'_>) -> Result<T, LabError> {
    let mut future = pin!(future);
    let step = PhaseProgress { phase, unit: Unit::Files, done: 0, total: 0, elapsed: Nanos::ZERO };
    std::future::poll_fn(|context| match watch(step) {
        ControlFlow::Break(()) => Poll::Ready(Err(LabError::Interrupted)),
        ControlFlow::Continue(()) => future.as_mut().poll(context).map(Ok),
    })
    .await
}

/// Runs `spec` on a mounted stack in real time, in this process. `image_files` are those that the host caches.
/// Afterwards the stack is closed.
///
/// # Errors
/// Those of the stack.
pub async fn run_here(
    rt: &Rt,
    stack: &Stack,
    mounted: Mounted,
    image_files: Vec<PathBuf>,
    spec: &dyn Program,
    watch: Watch<'_>,
) -> Result<Run, LabError> {
    /// The file system may be in use by others before and after.
    const HOME: &str = "seekless-bench";
    let (parts, counted) = (described(&mounted), mounted.parts.clone());
    let drop_host_caches = move || crate::target::drop_caches_of(&image_files);
    let outside = Vfs::new(rt.clone(), mounted).over_host(drop_host_caches);
    outside.mkdir(HOME).await?;
    let target = outside.at(HOME);
    let outcome = spec.run_on(ProgramTarget::Stack(&target), watch).await;
    // What a failed run has left, or one that was written outside.
    remove_all(&target, "").await;
    let target = target.at("");
    let removed = target.rmdir(HOME).await;
    let closed = close(target.fs()).await;
    let outcome = outcome?; // The first error is the most informative.
    removed?;
    closed?;
    Ok(run_of(stack, parts, &counted, Clock::Real, None, outcome))
}

/// Runs `spec` in a directory of the host.
///
/// # Errors
/// Those of the host.
pub fn run_in_directory(argument: &str, host: Host, spec: &dyn Program, watch: Watch<'_>) -> Result<Run, LabError> {
    let target = Directory::new(Path::new(argument), host)?;
    let outcome = at_once(spec.run_on(ProgramTarget::Directory(&target), watch))?;
    Ok(Run {
        contestant: argument.to_owned(),
        parts: vec![target.describe()],
        clock: Clock::Real,
        profile: None,
        phases: outcome.phases,
        coldness: outcome.coldness,
        counters: Vec::new(),
    })
}

/// The result of a future that never waits, as those of a target whose calls block.
fn at_once<T>(future: impl Future<Output = Result<T, LabError>>) -> Result<T, LabError> {
    match pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => unreachable!("a call of the host blocks until it is done"),
    }
}

pub(crate) async fn close(fs: &Fs) -> Result<(), LabError> {
    let path = "the file system".to_owned();
    fs.close().await.map_err(|cause: FsError| LabError::FileSystem { action: "close", path, cause })
}

fn described(mounted: &Mounted) -> Vec<String> {
    let all: Vec<String> = mounted.parts.iter().map(Part::describe).collect();
    let below = mounted.parts.iter().zip(&all).skip(1).map(Some).chain([None]);
    // A device names what is below it, which follows by itself; an array names one of its members.
    let alone = |(part, below): (&String, Option<(&Part, &String)>)| {
        let named = below.map(|(below, text)| match below {
            Part::Devices(members) => members.first().map(|member| member.describe()).unwrap_or_default(),
            Part::FileSystem(_) | Part::Device(_) => text.clone(),
        });
        let names_it = named.and_then(|named| part.strip_suffix(named.as_str())?.strip_suffix(" / "));
        names_it.unwrap_or(part).to_owned()
    };
    all.iter().zip(below).map(alone).collect()
}

fn run_of(
    stack: &Stack,
    parts: Vec<String>,
    counted: &[Part],
    clock: Clock,
    profile: Option<&'static str>,
    outcome: Outcome,
) -> Run {
    // Of two parts of one kind that let requests through, each is named with what is below it.
    let is_alone = |name: &String| parts.iter().filter(|other| *other == name).count() == 1;
    let named =
        |(part, name): (&Part, &String)| (if is_alone(name) { name.clone() } else { part.describe() }, part.counters());
    let counters = counted.iter().zip(&parts).map(named);
    Run {
        contestant: stack.to_string(),
        counters: counters.filter(|(_, counters)| !counters.is_empty()).collect(),
        parts,
        clock,
        profile,
        phases: outcome.phases,
        coldness: outcome.coldness,
    }
}
