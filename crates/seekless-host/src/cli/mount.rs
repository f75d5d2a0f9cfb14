//! `seekless mount`

use std::cell::Cell;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use clap::ValueEnum;
use seekless::fs::Fs;
use seekless::stack::{self, Interface, Mounted, Part, Purpose, Stack, Target, Usage, Word};

use serde_json::Value;

use super::daemon::{Report, Side};
use super::exit::{FAILED, WRONG_USAGE};
use super::mount_options::{self, MountWords, Waiting};
use super::pid_file::PidFile;
use super::statistics::MountFacts;
use super::supervise::{self, Life};
use super::world::{World, identity};
use super::{
    Done, Failure, daemon, diagnose, logging, meant, metrics, notify, output, panic, patience, read_stack, statistics,
};
use crate::disk_file::DiskFile;
use crate::fuse::{self, DeadMount, Kept, Mount, MountOptions, Operations, Remount, RemountError, TransportChoice};
use crate::leaves::{FileDevice, HostLeaves};
use crate::memory;
use crate::mount_table::{self, MountInfo};
use crate::nbd::Listener;
use crate::reactor::{ShareWhen, Signals};

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Transport {
    /// The best available
    Auto,
    /// Reads and writes of /dev/fuse
    Devfuse,
    /// io_uring, where the kernel offers it
    Uring,
}

/// Mount a stack on a directory, over FUSE; with --as-disk, a block device as one file
///
/// Returns when the mount works; a daemon serves it until it is unmounted, or gets SIGTERM or SIGINT, which unmounts it
/// cleanly. SIGUSR1 has it log what it has counted.
///
/// What is durable: what fsync has acknowledged, at once; all else after a few seconds (-o commit=SECONDS), and when
/// `seekless umount` or `seekless sync` returns.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless mount 'lfs / file:a.img' /mnt
  seekless mount 'lfs:cleaner=greedy / file:/dev/sdb1' /mnt -o noatime,allow_other
  seekless mount 'wrap / hostdir:/srv/data' /mnt -o ro --foreground
  seekless mount 'lfs / file:/dev/sdb1' /srv --supervise
  mount -t fuse.seekless @/etc/seekless/data.toml /mnt       and so in fstab(5)
  seekless mount --as-disk 'vld / file:disk.img,direct=on' disk
  losetup --find --show --direct-io=on --sector-size 4096 disk

Exit codes, as of mount(8): 0 mounted, 1 wrong usage, 32 failed")]
pub(super) struct Args {
    /// What to mount, for example 'lfs / file:a.img'; see `seekless list`
    stack: String,

    /// Where: an empty directory; with --as-disk an empty file, or a name that is not there
    directory: PathBuf,

    /// Show a stack of devices, for example 'vld / file:disk.img', as a file that is its disk
    #[arg(long)]
    as_disk: bool,

    /// Stay in the foreground until it is unmounted; control-C unmounts it
    #[arg(short, long)]
    foreground: bool,

    /// As for mount(8): ro, allow_other, nonempty, writeback, nopassthrough, nobusypoll, sharecpu, commit=SECONDS, fsname=NAME, noatime, remount ...
    #[arg(short, value_name = "OPTION,...")]
    options: Vec<String>,

    /// How requests come from the kernel
    #[arg(long, value_enum)]
    transport: Option<Transport>,

    /// Write the number of the daemon's process into this file while it is mounted; a file of a process that is gone is
    /// replaced
    #[arg(long, value_name = "FILE")]
    pid_file: Option<PathBuf>,

    /// Tell over HTTP what the mount has counted: /metrics in the format of Prometheus, /statistics as JSON; to every client
    /// that can connect
    #[arg(long, value_name = "unix:PATH|tcp:ADDRESS:PORT")]
    metrics: Option<metrics::Address>,

    /// Mount again when the daemon has died: a second process waits for that. After three times within a minute it stays down
    #[arg(long, conflicts_with = "foreground")]
    supervise: bool,

    /// Where a mount of this program is still there, although its daemon is gone, remove it first
    #[arg(long)]
    replace_dead: bool,

    /// How long to wait until the mount works, in seconds: then it is given up, and exists neither then nor later. Without it there is no limit, as
    /// the last daemon may have much to write, and a volume much to recover. With -o remount: how long to wait for the daemon; 600 without it
    #[arg(long, value_name = "SECONDS", conflicts_with = "foreground", value_parser = patience::seconds())]
    timeout: Option<u64>,

    #[command(flatten)]
    logging: logging::LogOptions,

    /// Ignore unknown mount options
    #[arg(long, hide = true)]
    sloppy: bool,

    /// Do everything but mount
    #[arg(long, hide = true)]
    fake: bool,
}

pub(super) fn run(args: &Args) -> Done {
    if mount_options::ask_for_remount(&args.options) {
        return remount(args);
    }
    let stack = read_stack(&args.stack).map_err(|failure| {
        let failure = failure.code(WRONG_USAGE);
        match meant::exchanged(&args.stack, &args.directory) {
            Some(line) => failure.hint(format!("the stack comes before the directory: {line}")),
            None => failure,
        }
    })?;
    check_interface(args, &stack)?;
    let words = mount_options::parse(&args.options, args.sloppy)?;
    let options = mount_options(args, &stack, &words);
    let place = if args.as_disk { MadeFile::made(&args.directory)? } else { MadeFile(None) };
    options.check_mount_point().map_err(|error| Failure::new(error).code(FAILED))?;
    check_pid_file(args)?;
    if args.fake {
        return Ok(0);
    }
    if let Some(word) = stack.keeps_in_memory().filter(|_| !words.read_only) {
        let word = word.name();
        output::note(&format!("note: `{word}` keeps what is written in memory: it is gone after the unmount"));
    }
    logging::start(&args.logging).map_err(|failure| failure.code(FAILED))?;
    panic::ends_the_process();
    if args.supervise {
        return run_supervised(args, stack, options, words.commit.is_some(), place);
    }
    let pid_file = pid_file(args)?;
    let metrics = args.metrics.clone();
    let wish = Wish { stack, options, commit_is_given: words.commit.is_some(), pid_file, place, metrics };
    if args.foreground {
        return serve(wish, None);
    }
    match daemon::split()? {
        Side::Parent(waiting) => {
            let outcome = waiting.outcome_within(limit(args));
            if outcome.is_ok() {
                // The daemon has taken it over.
                wish.place.keep();
            }
            outcome
        }
        Side::Child(report) => serve_in_background(wish, report),
    }
}

/// How long a remount waits for the daemon.
const REMOUNT_SECONDS: u64 = 600;

/// How long a mount may take until it works.
fn limit(args: &Args) -> Option<Duration> {
    args.timeout.map(Duration::from_secs)
}

/// The process that would write a pid file in the mount is the one that answers for the mount, so it would wait for itself.
fn check_pid_file(args: &Args) -> Result<(), Failure> {
    let real = |path: &Path| std::fs::canonicalize(path).or_else(|_| std::path::absolute(path)).ok();
    let Some(pid_file) = &args.pid_file else { return Ok(()) };
    let directory = std::path::absolute(pid_file).ok().and_then(|path| real(path.parent()?));
    match directory.zip(real(&args.directory)) {
        Some((directory, mount_point)) if directory.starts_with(&mount_point) => {
            let problem =
                format!("the pid file {} would be inside the mount, which does not exist yet", pid_file.display());
            Err(Failure::new(problem).hint("choose a place outside the mount, such as /run").code(FAILED))
        }
        _ => Ok(()),
    }
}

fn pid_file(args: &Args) -> Result<Option<PidFile>, Failure> {
    args.pid_file.as_deref().map(PidFile::new).transpose().map_err(|failure| failure.code(FAILED))
}

/// The same with a supervisor between the user's process and the daemons.
fn run_supervised(args: &Args, stack: Stack, options: MountOptions, commit_is_given: bool, place: MadeFile) -> Done {
    let made = place.path().map(Path::to_owned);
    // Only the supervisor, which is the last to end, removes the file; and a process that it does not become keeps it.
    place.keep();
    let image = Image::of(&stack);
    let user = std::process::id();
    let is_daemon = Cell::new(false);
    let outcome =
        supervise::run(&args.directory, has_relative_paths(args, &stack), limit(args), |report, life, place| {
            is_daemon.set(true);
            let mut options = options;
            if let Some(place) = place {
                options.mount_point = place;
            }
            if life == Life::Later {
                options.dead = DeadMount::Required;
                // A remount may have changed its flags. The volume is opened as the user said at first, so that another can change them back.
                if let Some(dead) = mount_table::find(&options.mount_point).filter(MountInfo::is_ours) {
                    options.flags = mount_options::as_listed(options.flags, &dead.options);
                }
                if let Some(failure) = image.and_then(|image| image.replaced()) {
                    report.failed(&failure);
                    return Ok(failure.code);
                }
            }
            let pid_file = match pid_file(args) {
                Ok(pid_file) => pid_file,
                Err(failure) => {
                    report.failed(&failure);
                    return Ok(failure.code);
                }
            };
            let metrics = args.metrics.clone();
            serve_in_background(
                Wish { stack, options, commit_is_given, pid_file, place: MadeFile(None), metrics },
                report,
            )
        });
    let is_supervisor = std::process::id() != user && !is_daemon.get();
    if is_supervisor || (std::process::id() == user && outcome.is_err()) {
        drop(MadeFile(made));
    }
    outcome
}

/// True when a path that a later daemon needs is relative to the directory of this process.
fn has_relative_paths(args: &Args, stack: &Stack) -> bool {
    let is_relative = |path: &Path| path.is_relative();
    let in_word = |word: &Word| {
        let mut given = word.spec().params().filter_map(|param| word.given(param.name));
        given.any(|value| matches!(value, stack::Value::Path(path) if is_relative(path.as_ref())))
    };
    is_relative(&args.directory)
        || args.pid_file.as_deref().is_some_and(is_relative)
        || stack.words().iter().any(in_word)
}

/// Which file an image was, or which directory, when it was first mounted.
struct Image {
    path: PathBuf,
    kind: &'static str,
    identity: (u64, u64),
}

impl Image {
    /// That of a stack on one image, or on a directory. Members of an array know each other.
    fn of(stack: &Stack) -> Option<Image> {
        let leaf = stack.words().last()?;
        let kind = match leaf.name() {
            "file" => "file",
            "hostdir" => "directory",
            _ => return None,
        };
        let path = PathBuf::from(leaf.text("path")?);
        let identity = Image::identity(&path)?;
        Some(Image { path, kind, identity })
    }

    fn identity(path: &Path) -> Option<(u64, u64)> {
        let found = std::fs::metadata(path).ok().filter(|found| found.is_file() || found.is_dir());
        found.map(|found| (found.dev(), found.ino()))
    }

    /// What to report when another file has its name now, as an older copy would: what was synced is not in that one.
    fn replaced(&self) -> Option<Failure> {
        (Image::identity(&self.path)? != self.identity).then(|| {
            let (path, kind) = (self.path.display(), self.kind);
            Failure::new(format!("{path} is not the {kind} that was mounted: synced data is not in it"))
                .hint("put the original back, or end this mount with `seekless umount --lazy` and mount what you want")
                .code(FAILED)
        })
    }
}

/// Changes the flags of a mount, as mount(8) requires of its helpers. The stack and other options stay as they were at
/// mount.
fn remount(args: &Args) -> Done {
    mount_options::parse(&args.options, args.sloppy)?;
    let listed = || fuse::listed_options_of(&args.directory);
    let before = listed();
    let answer = patience::answer(&args.directory, args.timeout.unwrap_or(REMOUNT_SECONDS), FAILED, || {
        let failed = |error: RemountError| Failure::new(error).code(FAILED);
        let mount = Remount::of(&args.directory).map_err(failed)?;
        let flags = mount_options::remounted(mount.options(), &args.options)?;
        let waiting = fuse::statistics(&args.directory).ok().flatten().and_then(|told| statistics::waiting_of(&told));
        if let Some(word) = waiting.and_then(|present| mount_options::changes_waiting(&args.options, present)) {
            return Err(failed(RemountError::Fixed { path: args.directory.clone(), word }));
        }
        if !args.fake {
            mount.set(flags).map_err(failed)?;
        }
        Ok(String::new())
    });
    let answer = answer.map_err(|no_answer| {
        let so_far = match listed() == before {
            true => "not remounted",
            false => "remounted, but whether everything is durable is not known",
        };
        Failure::new(format!("{so_far}: {no_answer}")).code(FAILED)
    })?;
    answer.map(|_| 0)
}

/// Checks what can be checked without a look at the machine: the options, and the stack unless it is in a file.
pub(super) fn check_words(args: &Args) -> Result<(), Failure> {
    mount_options::parse(&args.options, args.sloppy)?;
    let is_in_a_file = matches!(Target::of(&args.stack), Target::StackFile(_));
    if is_in_a_file || mount_options::ask_for_remount(&args.options) {
        return Ok(());
    }
    let stack = Stack::parse(&args.stack).map_err(|error| Failure::new(error).code(WRONG_USAGE))?;
    check_interface(args, &stack)
}

/// Disks are shown as files and file systems as directories.
fn check_interface(args: &Args, stack: &Stack) -> Result<(), Failure> {
    let is_device = stack.is() == Interface::Device;
    match (args.as_disk, is_device) {
        (true, false) => {
            let problem = format!("`{}` is a file system, and --as-disk is for block devices", stack.words()[0].name());
            Err(Failure::new(problem).hint("without --as-disk it is mounted on a directory").code(WRONG_USAGE))
        }
        _ => Ok(()),
    }
}

/// The file over which a disk is mounted, if this mount made it: removed at the end.
struct MadeFile(Option<PathBuf>);

impl MadeFile {
    /// Makes the file, unless the name exists.
    fn made(path: &Path) -> Result<MadeFile, Failure> {
        let failed = |error: std::io::Error| {
            Failure::new(format!("cannot create the file {}: {error}", path.display())).code(FAILED)
        };
        match std::fs::OpenOptions::new().write(true).create_new(true).open(path) {
            Ok(_) => Ok(MadeFile(Some(std::path::absolute(path).map_err(failed)?))),
            // Also a mount whose daemon is gone; checking the mount point says more.
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(MadeFile(None)),
            Err(error) => Err(failed(error)),
        }
    }

    fn path(&self) -> Option<&Path> {
        self.0.as_deref()
    }

    /// Leaves the file to another process.
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for MadeFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Unless it has content: it was empty, and is again after the unmount.
            if path.symlink_metadata().is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// What to mount, and how.
struct Wish {
    stack: Stack,
    options: MountOptions,
    /// The user has set how often everything is made durable.
    commit_is_given: bool,
    pid_file: Option<PidFile>,
    place: MadeFile,
    metrics: Option<metrics::Address>,
}

fn mount_options(args: &Args, stack: &Stack, words: &MountWords) -> MountOptions {
    let source = words.source.clone().unwrap_or_else(|| stack.to_string());
    let mut options = MountOptions::new(&args.directory, source);
    options.read_only = words.read_only || stack.says_read_only();
    options.allow_other = words.allow_other;
    options.over_content = words.over_content;
    options.dead = if args.replace_dead { DeadMount::Replaced } else { DeadMount::Refused };
    options.as_file = args.as_disk;
    options.writeback_cache = words.writeback_cache;
    options.passthrough = words.passthrough;
    options.busy_poll = words.busy_poll;
    options.share_processor = words.share_processor.then(ShareWhen::default);
    options.flags = words.flags;
    if words.commit.is_some() {
        options.commit_interval = words.commit;
    }
    options.transport = match args.transport {
        Some(Transport::Auto) => TransportChoice::Auto,
        Some(Transport::Devfuse) => TransportChoice::DevFuse,
        Some(Transport::Uring) => TransportChoice::Uring,
        None => words.transport.unwrap_or_default(),
    };
    options
}

/// The daemon: failures before it works go to the parent, later ones to the log.
fn serve_in_background(wish: Wish, report: Report) -> Done {
    let mut report = Some(report);
    match serve(wish, Some(&mut report)) {
        Ok(code) => Ok(code),
        Err(failure) => {
            match report.take() {
                Some(report) => report.failed(&failure),
                None => log::error!("{}", failure.text),
            }
            Ok(failure.code)
        }
    }
}

/// Mounts, reports that, and serves until the end.
fn serve(wish: Wish, report: Option<&mut Option<Report>>) -> Done {
    let Wish { stack, mut options, commit_is_given, pid_file, place: made, metrics } = wish;
    // Before there are threads, which would otherwise take the signals.
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGUSR1])
        .map_err(|error| Failure::new(format!("cannot receive signals: {error}")).code(FAILED))?;
    if let Some(report) = report.as_ref().and_then(|report| report.as_ref()) {
        report.end_with_parent();
    }
    if options.as_file && !options.read_only {
        keep_memory();
    }
    let world = World::new().map_err(|failure| failure.code(FAILED))?;
    let watchdog = world.watchdog();
    // Until the pid file is gone.
    let presence = Cell::new(None);
    let ended_by = Cell::new(None);
    let served = world.run(async {
        let leaves = world.leaves();
        let open = open_stack(&world, &leaves, &stack, &options);
        let mounted = world.opened(&signals, &ended_by, open).await?;
        // Readers of the log are in another directory.
        let place = std::fs::canonicalize(&options.mount_point).unwrap_or_else(|_| options.mount_point.clone());
        let place = place.display().to_string();
        // A disk is flushed when its user asks for it. Data that is also reached another way is cached by another
        // system, which writes it back itself.
        if !commit_is_given && (options.as_file || !mounted.fs.traits().exclusive) {
            options.commit_interval = None;
        }
        let metrics = metrics.as_ref().map(metrics::listen).transpose()?;
        options.store = if options.as_file { None } else { store(&leaves, &stack) };
        if let Some(report) = report.as_ref().and_then(|report| report.as_ref()) {
            report.outlive_parent();
        }
        let waiting = Waiting { busy_poll: options.busy_poll, share_processor: options.share_processor.is_some() };
        let mut mount = start(&world, &mounted, options).await?;
        mount.mark(leaves.opened());
        presence.set(mount.announce());
        if let Some(failure) = pid_file.as_ref().and_then(|pid_file| pid_file.write().err()) {
            // The first error is the one to report.
            let _ = mount.serve(std::future::ready(())).await;
            return Err(failure);
        }
        tell(&world, Rc::new(Told::new(&stack, &mounted, &mount, waiting)), metrics, &mut mount);
        let passes = if mount.passes_files_through() { ", files passed through" } else { "" };
        log::info!("mounted on {place} ({}, {}{passes})", mount.transport_name(), world.reactor.backend_name());
        log_counters(&mounted, |name, count| name == "replayed_transactions" && count > 0);
        let warnings: Vec<String> = mounted.parts.iter().flat_map(Part::warnings).collect();
        for warning in &warnings {
            output::note(&format!("warning: {warning}"));
        }
        match report {
            Some(report) => {
                if let Some(report) = report.take() {
                    report.ready();
                    if let Some(watchdog) = &watchdog {
                        watchdog.leave_directory();
                    }
                }
                // They were shown on the terminal; this records them in the log.
                warnings.iter().for_each(|warning| log::warn!("{warning}"));
            }
            None => {
                output::note(&format!("mounted on {place}; control-C unmounts it"));
                notify::ready();
            }
        }
        let arrays: Vec<_> = mounted.parts.iter().flat_map(Part::arrays).collect();
        let watch = super::arrays::watch(&world.rt, &arrays);
        drop(arrays);
        let stop = async {
            while signals.next(&world.reactor).await == libc::SIGUSR1 {
                log_counters(&mounted, |_, _| true);
            }
        };
        let ended = mount.serve(stop).await;
        watch.look();
        let durable = match ended? {
            Kept::Everything => "everything",
            Kept::Answered => "everything that was answered",
        };
        log::info!("unmounted from {place}; {durable} is durable");
        Ok(0)
    });
    if let Some(pid_file) = &pid_file {
        pid_file.remove();
    }
    drop(presence);
    drop(made);
    if let Some(signal) = ended_by.get() {
        signals.end_by(signal);
    }
    served.map_err(|failure| failure.code(FAILED))
}

/// For the daemon of a disk: the kernel may write to it to free memory, so it must not wait for memory itself. Threads inherit this from
/// the one that starts them.
fn keep_memory() {
    if let Err(error) = memory::avoid_reclaim_deadlock() {
        log::warn!(
            "the daemon is not marked as one that writes wait for ({error}): do not run it in a small memory control group"
        );
    }
    if let Err(why) = memory::lock() {
        log::warn!("memory is not locked: {why}");
    }
}

/// Opens what is to be mounted: a file system, or a disk as a file system of one file.
async fn open_stack(
    world: &World,
    leaves: &HostLeaves,
    stack: &Stack,
    options: &MountOptions,
) -> Result<Mounted, Failure> {
    if options.as_file {
        return open_disk(world, leaves, stack, options.read_only).await;
    }
    let usage = Usage { read_only: options.read_only, data_cached_above: true };
    let mounted = stack.mount(&world.rt, leaves, &identity()?, usage).await;
    mounted.map_err(|error| diagnose::explain(stack, leaves, error))
}

/// Mounts what is open, or closes it.
async fn start(world: &World, mounted: &Mounted, options: MountOptions) -> Result<Mount, Failure> {
    match Mount::start(&world.rt, &world.reactor, mounted.fs.clone(), options).await {
        Ok(mount) => Ok(mount),
        Err(error) => {
            // The first error is the one to report.
            let _ = mounted.fs.close().await;
            Err(error.into())
        }
    }
}

/// Has the mount answer questions about itself, also at the address of `metrics`.
fn tell(world: &World, told: Rc<Told>, metrics: Option<Listener>, mount: &mut Mount) {
    if let Some(listener) = metrics {
        log::info!("metrics on {}", metrics::Address(listener.address.clone()));
        let (rt, reactor, told) = (world.rt.clone(), world.reactor.clone(), told.clone());
        let tell = move || told.clone().with_space();
        drop(world.rt.spawn(metrics::serve(rt, reactor, listener, tell)));
    }
    mount.tell_statistics(move || told.statistics().to_string());
}

/// What a mount tells about itself.
struct Told {
    facts: MountFacts,
    parts: Vec<Part>,
    operations: Rc<Operations>,
    fs: Fs,
}

impl Told {
    fn new(stack: &Stack, mounted: &Mounted, mount: &Mount, waiting: Waiting) -> Told {
        let facts = MountFacts {
            stack: stack.to_string(),
            transport: mount.transport_name(),
            passthrough: mount.passes_files_through(),
            waiting,
        };
        Told { facts, parts: mounted.parts.clone(), operations: mount.operations(), fs: mounted.fs.clone() }
    }

    fn statistics(&self) -> Value {
        statistics::of_mount(&self.parts, &self.facts, &self.operations)
    }

    /// A file system that cannot say how much space it has says nothing about it.
    async fn with_space(self: Rc<Self>) -> Value {
        let space = self.fs.statfs().await;
        let mut statistics = self.statistics();
        if let Ok(space) = space {
            statistics["space"] = statistics::space_of(&space);
        }
        statistics
    }
}

/// Opens a stack of devices as a file system that is one file.
async fn open_disk(world: &World, leaves: &HostLeaves, stack: &Stack, read_only: bool) -> Result<Mounted, Failure> {
    let purpose = if read_only { Purpose::Inspect } else { Purpose::Use };
    let opened = stack.open(&world.rt, leaves, purpose).await?;
    let Some(device) = opened.device().cloned() else { return Err(Failure::new("there is no device")) };
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let fs = DiskFile::show(&world.rt, device, read_only, owner);
    Ok(Mounted { fs, parts: opened.parts() })
}

/// The store that holds the whole file system, if there is one.
fn store(leaves: &HostLeaves, stack: &Stack) -> Option<Rc<FileDevice>> {
    let [file] = &leaves.files()[..] else { return None };
    let file_system =
        stack.words().iter().position(|word| Some(word.name()) == stack.file_system().map(|it| it.name()));
    // The file system is directly on the leaf.
    let direct = file_system.is_some_and(|position| position + 2 == stack.words().len());
    direct.then(|| file.clone())
}

/// Logs the counters that `wanted` picks, of every part.
fn log_counters(mounted: &Mounted, wanted: impl Fn(&str, u64) -> bool) {
    for part in &mounted.parts {
        let (name, counters) = (part.describe(), part.counters());
        for (counter, count) in counters.into_iter().filter(|(counter, count)| wanted(counter, *count)) {
            log::info!("{name}: {counter} {count}");
        }
    }
}
