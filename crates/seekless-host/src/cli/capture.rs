//! `seekless trace capture`: records the requests of a block device, in its own tracefs instance.
//!
//! An instance is a separate set of trace buffers: other users' tracing is not affected, and the instance is removed at
//! the end, however the recording ends.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use seekless::stack::quoted_path;
use seekless::units::{Nanos, counted, human_bytes};
use seekless_lab::output::{Replace, Sources, Wish};
use seekless_lab::trace::{Format, Import, Options, Output, Trace};

use super::traces::{describe, duration, survey};
use super::{Done, Failure, WRONG_USAGE, output};
use crate::reactor::Signals;

const TRACEFS: &str = "/sys/kernel/tracing";

/// Recorded events: a request is issued to the driver, given back by it, and completes.
const EVENTS: [&str; 3] = ["block_rq_issue", "block_rq_requeue", "block_rq_complete"];

/// Record the requests to a block device
///
/// Requests are recorded while a command runs, for a while, or until Ctrl-C. The device can be the file behind a loop
/// device. Needs root and the kernel's tracing file system. The output file gets its name only when the recording ends;
/// a killed recording leaves nothing.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless trace capture /dev/sda -o sda.trace.zst --for 10min
  seekless trace capture /dev/loop0 -o build.trace -- make -C /mnt/project
  seekless trace capture disk.img -o disk.trace

Exit codes: 0 recorded, 1 failed or the command failed, 2 wrong usage")]
pub(super) struct CaptureArgs {
    /// A block device, or the file behind a loop device
    device: PathBuf,

    /// The file to write, compressed if it ends in .gz or .zst
    #[arg(short = 'o', long, value_name = "FILE")]
    output: PathBuf,

    /// Replace the file if it already exists; never the one behind the device
    #[arg(short, long)]
    force: bool,

    /// How long to record
    #[arg(long = "for", value_parser = duration, value_name = "TIME", conflicts_with = "command")]
    length: Option<Nanos>,

    /// Memory for events that have not been written yet, for each processor
    #[arg(long, default_value_t = 8192, value_name = "KIB", value_parser = clap::value_parser!(u32).range(1..))]
    buffer: u32,

    /// Record while this command runs
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<std::ffi::OsString>,
}

pub(super) fn run(args: &CaptureArgs) -> Done {
    if args.length == Some(Nanos::ZERO) {
        return Err(Failure::new("--for 0: nothing would be recorded").code(WRONG_USAGE));
    }
    let device = device_number(&args.device)?;
    check_events(&sysfs(device), &args.device)?;
    let behind = file_behind(device);
    let sources = Sources::of(&[Some(&args.device), behind.as_ref()].into_iter().flatten().collect::<Vec<_>>());
    let wish = Wish::new(Replace::forced(args.force)).sources(sources);
    seekless_lab::output::check(&args.output, &wish)?;
    // Before anything is changed in the kernel, so that Ctrl-C always leads to the cleanup, and so does a terminal that is
    // closed, unless the user wants the recording to outlive it.
    let hangup = Some(libc::SIGHUP).filter(|hangup| !Signals::is_ignored(*hangup));
    let signals = Signals::new(&[libc::SIGINT, libc::SIGTERM].into_iter().chain(hangup).collect::<Vec<_>>())?;
    let name = args.output.display();
    let cannot_write = |error: io::Error| Failure::new(format!("cannot write {name}: {error}"));
    let instance = Instance::new(device, args.buffer)?;
    let mut out = Output::file(&args.output, &wish)?;
    let (major, minor) = (device >> 20, device & 0xf_ffff);
    writeln!(out, "# requests of {major},{minor}, recorded by seekless {}", env!("CARGO_PKG_VERSION"))
        .map_err(cannot_write)?;
    let mut pipe = instance.pipe()?;
    instance.start()?;
    let mut child = Started::new(&args.command, &signals)?;
    let bar = output::counter("recording");
    let start = Instant::now();
    let mut command_failed = None;
    loop {
        let got = copy(&mut pipe, &mut out).map_err(cannot_write)?;
        bar.inc(got);
        if signals.pending().is_some() {
            break;
        }
        if let Some(child) = &mut child.0
            && let Some(status) = child.try_wait()?
        {
            // The last writes may still be on their way to the device.
            command_failed = (!status.success()).then_some(status);
            break;
        }
        if args.length.is_some_and(|length| start.elapsed() >= Duration::from_nanos(length.0)) {
            break;
        }
        if got == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    instance.stop()?;
    while copy(&mut pipe, &mut out).map_err(cannot_write)? > 0 {}
    bar.finish_and_clear();
    out.finish()?;
    let lost = instance.lost();
    drop(pipe); // Buffers with an open reader cannot be removed.
    drop(instance);
    let size = fs::metadata(&args.output).map_or(0, |file| file.len());
    output::note(&format!("{name}: {}", human_bytes(size)));
    if lost > 0 {
        let lost = counted(lost, "lost event");
        output::note(&format!("warning: {lost}; give more memory with --buffer"));
    }
    // The format is known, also of a recording without events.
    let options =
        Options { format: Some(Format::parse("tracefs").map_err(Failure::new)?), latency: true, ..Options::default() };
    let mut trace = Trace::open(std::slice::from_ref(&args.output), &options)?;
    let checked = survey(&mut trace, "checking");
    // A line that is not understood is named; without any, the device was idle.
    let is_idle = trace.import().requests == 0 && trace.import().rejected.is_empty();
    checked.map_err(|failure| match is_idle {
        true => failure.hint("the device got no such request during the recording"),
        false => failure,
    })?;
    let why = "the kernel's events".to_owned();
    describe(&Import { why, ..trace.import() });
    match command_failed {
        None => Ok(0),
        Some(status) => {
            let how = match (status.code(), status.signal()) {
                (Some(code), _) => format!("ended with {code}"),
                (_, Some(signal)) => format!("was ended by signal {signal}"),
                _ => "failed".to_owned(),
            };
            Err(Failure::new(format!("the command {how}; its requests until then are in {name}")))
        }
    }
}

/// The kernel's number of a block device, or of the loop device that shows a file.
pub(super) fn device_number(path: &Path) -> Result<u32, Failure> {
    let failed = |error: io::Error| Failure::new(format!("cannot look at {}: {error}", path.display()));
    let file = fs::metadata(path).map_err(failed)?;
    if file.file_type().is_block_device() {
        let (major, minor) = (rustix::fs::major(file.rdev()), rustix::fs::minor(file.rdev()));
        return Ok(major << 20 | minor);
    }
    let whole = fs::canonicalize(path).map_err(failed)?;
    for entry in fs::read_dir("/sys/block").map_err(failed)?.flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(backing.trim_end()) == whole
            && let Ok(number) = fs::read_to_string(entry.path().join("dev"))
            && let Some((major, minor)) = number.trim().split_once(':')
            && let (Ok(major), Ok(minor)) = (major.parse::<u32>(), minor.parse::<u32>())
        {
            return Ok(major << 20 | minor);
        }
    }
    let problem = format!("{} is neither a block device nor the file behind a loop device", path.display());
    Err(Failure::new(problem).hint(format!("make one with: losetup --find --show {}", quoted_path(path))))
}

/// Refuses a device of which the kernel's events say nothing. `folder` is the device's in sysfs.
/// They name the whole disk for the requests to a partition; and a device without queues of its own, such as those of
/// the device mapper, md and zram, has no requests: it hands all on to other devices, or serves them at once.
fn check_events(folder: &Path, path: &Path) -> Result<(), Failure> {
    // Where sysfs is missing, nothing is known.
    let Ok(folder) = fs::canonicalize(folder) else { return Ok(()) };
    // A slash in a device's name is an exclamation mark in sysfs.
    let device = |name: &OsStr| format!("/dev/{}", name.to_string_lossy().replace('!', "/"));
    let path = path.display();
    if folder.join("partition").exists() {
        let whole = folder.parent().and_then(Path::file_name).map(device).unwrap_or_default();
        let problem = format!("{path} is a partition, and the kernel records the requests of whole disks");
        return Err(Failure::new(problem).code(WRONG_USAGE).hint(format!("record the whole disk: {whole}")));
    }
    if folder.join("mq").exists() {
        return Ok(());
    }
    let failure = Failure::new(format!("{path} has no requests that the kernel could record")).code(WRONG_USAGE);
    let below = fs::read_dir(folder.join("slaves")).into_iter().flatten().flatten();
    let mut below: Vec<String> = below.map(|entry| device(&entry.file_name())).collect();
    below.sort();
    Err(match below.is_empty() {
        true => failure,
        false => failure.hint(format!("record the devices below: {}", below.join(", "))),
    })
}

/// A device's folder.
fn sysfs(device: u32) -> PathBuf {
    Path::new("/sys/dev/block").join(format!("{}:{}", device >> 20, device & 0xf_ffff))
}

/// The file that a loop device, or the whole device of a partition, shows.
pub(super) fn file_behind(device: u32) -> Option<PathBuf> {
    let folder = sysfs(device);
    let mut names = ["loop/backing_file", "../loop/backing_file"].into_iter();
    let name = names.find_map(|name| fs::read_to_string(folder.join(name)).ok())?;
    Some(PathBuf::from(name.strip_suffix('\n').unwrap_or(&name)))
}

/// Copies the kernel's events; returns their number.
fn copy(pipe: &mut File, out: &mut Output) -> io::Result<u64> {
    let mut buffer = [0; 64 << 10];
    match pipe.read(&mut buffer) {
        Ok(count) => {
            out.write_all(&buffer[..count])?;
            Ok(buffer[..count].iter().filter(|&&byte| byte == b'\n').count() as u64)
        }
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(0),
        Err(error) => Err(error),
    }
}

/// The command, which ends when the recording fails.
struct Started(Option<Child>);

impl Started {
    fn new(command: &[std::ffi::OsString], signals: &Signals) -> Result<Started, Failure> {
        let Some((program, arguments)) = command.split_first() else { return Ok(Started(None)) };
        // Children inherit blocked signals; the command must take Ctrl-C as usual.
        let child = signals.unblocked(|| Command::new(program).args(arguments).spawn());
        let failed = |error| Failure::new(format!("cannot start {}: {error}", program.display()));
        Ok(Started(Some(child.map_err(failed)?)))
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            // It has already ended, except after a failure or Ctrl-C; an error here cannot be reported.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Our own trace buffers.
struct Instance {
    path: PathBuf,
}

impl Instance {
    /// Buffers for events of one device. Nothing is recorded yet.
    fn new(device: u32, buffer_kib: u32) -> Result<Instance, Failure> {
        let path = Path::new(TRACEFS).join(format!("instances/seekless-{}", std::process::id()));
        if !Path::new(TRACEFS).join("instances").is_dir() {
            let failure = Failure::new(format!("the kernel's tracing file system is not at {TRACEFS}"));
            return Err(failure.hint(format!("as root: mount -t tracefs none {TRACEFS}")));
        }
        if let Err(error) = fs::create_dir(&path) {
            let failure = Failure::new(format!("cannot make trace buffers in {TRACEFS}: {error}"));
            return Err(match error.kind() {
                io::ErrorKind::PermissionDenied => failure.hint("recording needs root"),
                _ => failure,
            });
        }
        let instance = Instance { path };
        instance.set("tracing_on", "0")?;
        instance.set("trace_clock", "mono")?;
        instance.set("buffer_size_kb", &buffer_kib.to_string())?;
        for event in EVENTS {
            instance.set(&format!("events/block/{event}/filter"), &format!("dev == {device}"))?;
            instance.set(&format!("events/block/{event}/enable"), "1")?;
        }
        Ok(instance)
    }

    fn set(&self, file: &str, value: &str) -> Result<(), Failure> {
        let path = self.path.join(file);
        let written = OpenOptions::new().write(true).open(&path).and_then(|mut file| file.write_all(value.as_bytes()));
        written.map_err(|error| Failure::new(format!("cannot write {value} to {}: {error}", path.display())))
    }

    fn pipe(&self) -> Result<File, Failure> {
        let path = self.path.join("trace_pipe");
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path);
        file.map_err(|error| Failure::new(format!("cannot read {}: {error}", path.display())))
    }

    fn start(&self) -> Result<(), Failure> {
        self.set("tracing_on", "1")
    }

    fn stop(&self) -> Result<(), Failure> {
        self.set("tracing_on", "0")
    }

    /// Events lost for lack of room.
    fn lost(&self) -> u64 {
        let Ok(processors) = fs::read_dir(self.path.join("per_cpu")) else { return 0 };
        let count = |text: String| -> u64 {
            let overrun = text.lines().find_map(|line| line.strip_prefix("overrun:")).unwrap_or("0").trim().parse();
            overrun.unwrap_or(0)
        };
        processors.flatten().filter_map(|entry| fs::read_to_string(entry.path().join("stats")).ok()).map(count).sum()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // An instance with events on cannot be removed. An error here cannot be reported.
        for event in EVENTS {
            let _ = fs::write(self.path.join(format!("events/block/{event}/enable")), "0");
        }
        let _ = fs::remove_dir(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk is recorded; for a partition the disk is named, and for a device without requests those below it.
    #[test]
    fn devices_without_events_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["sda/mq", "sda/sda1", "dm-0/slaves/sda1", "dm-0/slaves/sdb", "zram0/slaves", "cciss!c0d0/p1"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        for name in ["sda/sda1", "cciss!c0d0/p1"] {
            fs::write(folder.path().join(name).join("partition"), "1\n").unwrap();
        }
        let check = |name: &str| {
            let failure = check_events(&folder.path().join(name), Path::new("/dev/x")).err();
            failure.map(|failure| (failure.code, failure.text))
        };
        assert_eq!(check("sda"), None);
        assert_eq!(check("no-sysfs"), None);
        for (name, said) in [
            ("sda/sda1", "record the whole disk: /dev/sda"),
            ("cciss!c0d0/p1", "record the whole disk: /dev/cciss/c0d0"),
            ("dm-0", "record the devices below: /dev/sda1, /dev/sdb"),
            ("zram0", "/dev/x has no requests"),
        ] {
            let (code, text) = check(name).expect(name);
            assert_eq!(code, WRONG_USAGE, "{name}: {text}");
            assert!(text.contains(said), "{name}: {text}");
        }
    }
}
