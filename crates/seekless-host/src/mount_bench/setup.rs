//! A contestant on its storage: made, mounted, measured, unmounted.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use seekless_lab::experiment::{ImageState, Measure, MountJob, Placement, Stop, Value};

use super::client::{READY, Report};
use super::contestants::{Contestant, ContestantKind};
use super::device::{Counted, Counters};
use super::phases::Phase;
use super::process::{self, run};
use super::scratch::{LoopDevice, Scratch, unmount_below};
use super::{INTERRUPTED, cannot, kernel};
use crate::{fuse, mount_table};

/// A daemon is mounted, or has ended, within this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// A contestant on new storage. Dropping it unmounts it, however far it came.
pub(super) struct ContestantSetup<'a> {
    scratch: &'a Scratch,
    contestant: &'static Contestant,
    job: &'a MountJob,
    stop: &'a Stop,
    loop_device: Option<LoopDevice>,
    daemon: Option<Child>,
    /// Where what it makes is to be mounted.
    directory: PathBuf,
    is_mounted: bool,
}

impl<'a> ContestantSetup<'a> {
    /// Makes a new file system and mounts it. One that is made as a whole is not mounted yet.
    ///
    /// # Errors
    /// What failed, in words.
    pub(super) fn make(
        scratch: &'a Scratch,
        contestant: &'static Contestant,
        job: &'a MountJob,
        stop: &'a Stop,
    ) -> Result<ContestantSetup<'a>, String> {
        let directory = scratch.path(if contestant.kind == ContestantKind::Directory { "plain" } else { "mnt" });
        let mut setup = ContestantSetup {
            scratch,
            contestant,
            job,
            stop,
            loop_device: None,
            daemon: None,
            directory,
            is_mounted: false,
        };
        if setup.has_image() {
            scratch.prepare_image(job)?;
        }
        if contestant.has_loop() {
            setup.loop_device = Some(LoopDevice::attach(&scratch.image(), job.loop_direct)?);
        }
        setup.make_file_system()?;
        if contestant.kind != ContestantKind::Squashfs {
            setup.mount()?;
        }
        Ok(setup)
    }

    fn has_image(&self) -> bool {
        !matches!(self.contestant.kind, ContestantKind::Directory | ContestantKind::Null { .. })
    }

    fn device(&self) -> PathBuf {
        self.loop_device.as_ref().map_or_else(|| self.scratch.image(), |device| device.path().to_owned())
    }

    fn lower(&self) -> PathBuf {
        self.scratch.path("lower")
    }

    /// Where the file system that stores nothing has its names between two mounts.
    fn names_of_null(&self) -> PathBuf {
        self.scratch.path("null-names")
    }

    /// The file system whose space the contestant fills.
    fn storing(&self) -> PathBuf {
        if self.contestant.has_lower() { self.lower() } else { self.directory.clone() }
    }

    fn make_file_system(&self) -> Result<(), String> {
        let device = self.device();
        match self.contestant.kind {
            ContestantKind::Kernel { name, mkfs, .. } => {
                let inodes = if name == "ext4" { kernel::inodes(self.names()) } else { Vec::new() };
                run(Command::new(format!("mkfs.{name}")).args(mkfs).args(inodes).arg(&device)).map(drop)?;
            }
            ContestantKind::Volume { .. } => {
                run(seekless().arg("mkfs").arg("--force").arg(self.stack())).map(drop)?;
            }
            ContestantKind::Fuse2fs => kernel::make_ext4(&device, self.names())?,
            ContestantKind::Null { .. } => {
                let names = self.names_of_null();
                if names.exists() {
                    fs::remove_file(&names).map_err(|error| cannot("remove", &names, error))?;
                }
            }
            _ => {}
        }
        if self.contestant.has_lower() {
            kernel::make_ext4(&device, self.names())?;
        }
        // Before anything is mounted: a mounted file system may write what was a hole a moment ago.
        if self.has_image() {
            self.scratch.write_holes(self.job)?;
        }
        if self.contestant.has_lower() {
            kernel::mount("ext4", "noatime", &device, &self.lower())?;
            fs::remove_dir(self.lower().join("lost+found"))
                .map_err(|error| cannot("remove", &self.lower().join("lost+found"), error))?;
        }
        match self.contestant.kind {
            ContestantKind::Gocryptfs => {
                let word = self.scratch.path("word");
                fs::write(&word, "word\n").map_err(|error| cannot("write", &word, error))?;
                let mut init = Command::new("gocryptfs");
                // A cheap derivation: the key is derived once for each mount, and that is not what is measured.
                init.args(["-q", "-init", "-scryptn", "10", "-passfile"]).arg(&word).arg(self.lower());
                run(&mut init).map(drop)
            }
            ContestantKind::Layer { words } if words.contains("KEY") => {
                let key = self.scratch.path("key");
                // Each round makes one.
                if key.exists() { Ok(()) } else { run(seekless().arg("key").arg(&key)).map(drop) }
            }
            _ => Ok(()),
        }
    }

    /// Files of the suite that has most of them.
    fn names(&self) -> u64 {
        let is_large = self.job.phases.iter().any(|name| name == "names-1m");
        self.job.files * if is_large { 510 } else { 10 }
    }

    /// The stack of one of ours.
    fn stack(&self) -> String {
        let text = |path: &Path| path.display().to_string();
        match self.contestant.kind {
            ContestantKind::Volume { words, .. } => {
                // A written image stays written only if nothing is given back. FFS gives nothing back.
                let keeps = self.job.image_state == ImageState::Written && !words.starts_with("ffs");
                let words = if keeps { format!("{words}:discard=off") } else { words.to_owned() };
                format!("{words} / file:{}", text(&self.device()))
            }
            ContestantKind::Layer { words: "" } => format!("hostdir:{}", text(&self.lower())),
            ContestantKind::Layer { words } => {
                let words = words.replace("KEY", &text(&self.scratch.path("key")));
                format!("{words} / hostdir:{}", text(&self.lower()))
            }
            _ => String::new(),
        }
    }

    fn mount(&mut self) -> Result<(), String> {
        let (device, directory) = (self.device(), self.directory.clone());
        let mut command = match self.contestant.kind {
            ContestantKind::Directory => {
                self.is_mounted = true;
                return Ok(());
            }
            ContestantKind::Kernel { name, options, .. } => {
                kernel::mount(name, options, &device, &directory)?;
                self.is_mounted = true;
                return Ok(());
            }
            ContestantKind::Squashfs => {
                kernel::mount("squashfs", "ro,loop", &self.lower().join("image"), &directory)?;
                self.is_mounted = true;
                return Ok(());
            }
            ContestantKind::Volume { mount, .. } => self.daemon_of_ours(mount),
            ContestantKind::Layer { .. } => self.daemon_of_ours(&[]),
            ContestantKind::Null { arguments } => {
                let mut command = part(["bench-part", "null"], arguments);
                command.arg("--names").arg(self.names_of_null());
                command
            }
            ContestantKind::Bindfs => part_of("bindfs", &["-f"], &self.lower()),
            ContestantKind::Gocryptfs => {
                let mut command =
                    part_of("gocryptfs", &["-q", "-fg", "-nosyslog", "-passfile"], &self.scratch.path("word"));
                command.arg(self.lower());
                command
            }
            ContestantKind::Fuse2fs => part_of("fuse2fs", &["-f"], &device),
        };
        command.arg(&directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let daemon = process::spawn(&mut command, self.is_pinned());
        self.daemon = Some(daemon.map_err(|error| format!("cannot start {}: {error}", self.contestant.name))?);
        self.wait_for_mount()
    }

    fn daemon_of_ours(&self, options: &[&str]) -> Command {
        let mut command = part(["bench-part", "exec"], &["--"]);
        command.arg(this_program()).arg("mount").arg("--foreground").args(options).arg(self.stack());
        command
    }

    fn is_pinned(&self) -> bool {
        self.job.placement == Placement::Pinned
    }

    fn wait_for_mount(&mut self) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        let daemon = self.daemon.as_mut().ok_or("no daemon was started")?;
        while mount_table::find(&self.directory).is_none() {
            if let Some(status) = daemon.try_wait().map_err(|error| error.to_string())? {
                let mut complaint = String::new();
                if let Some(mut stderr) = daemon.stderr.take() {
                    // What it said is an addition to the exit status.
                    let _ = io_read(&mut stderr, &mut complaint);
                }
                return Err(format!("{} did not mount ({status}): {}", self.contestant.name, complaint.trim()));
            }
            if Instant::now() > deadline {
                return Err(format!("{} has not mounted after {} s", self.contestant.name, PATIENCE.as_secs()));
            }
            if self.stop.is_set() {
                return Err(INTERRUPTED.into());
            }
            thread::sleep(Duration::from_millis(1));
        }
        self.is_mounted = true;
        // Its later messages would fill the pipe.
        if let Some(mut stderr) = self.daemon.as_mut().and_then(|daemon| daemon.stderr.take()) {
            thread::spawn(move || std::io::copy(&mut stderr, &mut std::io::sink()));
        }
        Ok(())
    }

    fn check_stop(&self) -> Result<(), String> {
        if self.stop.is_set() { Err(INTERRUPTED.into()) } else { Ok(()) }
    }

    /// Unmounts, and waits until the daemon has written everything and ended.
    fn unmount(&mut self) -> Result<(), String> {
        if !self.is_mounted || self.contestant.kind == ContestantKind::Directory {
            return Ok(());
        }
        if self.contestant.is_ours() {
            fuse::umount(&self.directory, false, PATIENCE, |_| {}).map_err(|error| error.to_string())?;
        } else {
            kernel::unmount_when_free(&self.directory)?;
        }
        self.is_mounted = false;
        match &mut self.daemon {
            Some(daemon) => process::wait(daemon, PATIENCE),
            None => Ok(()),
        }
    }

    /// A new mount and empty caches of the kernel. A directory of the host stays where it is.
    pub(super) fn make_cold(&mut self) -> Result<(), String> {
        let stays = self.contestant.kind == ContestantKind::Directory;
        if self.contestant.kind == ContestantKind::Squashfs && !self.is_mounted {
            self.make_squashfs()?;
        } else if !stays {
            self.unmount()?;
        }
        kernel::forget()?;
        if stays { Ok(()) } else { self.mount() }
    }

    fn make_squashfs(&self) -> Result<(), String> {
        let mut make = Command::new("mksquashfs");
        make.arg(self.lower().join("source")).arg(self.lower().join("image"));
        run(make.args(["-comp", "zstd", "-quiet", "-no-progress"])).map(drop)
    }

    /// Runs a phase in a client, and returns what it took.
    pub(super) fn measure(&mut self, phase: &Phase, below: Option<&Counters>) -> Result<Measure, String> {
        let in_words = |problem: String| format!("{}: {problem}", phase.name);
        if phase.is_cold {
            self.make_cold().map_err(in_words)?;
        }
        if phase.kernel_forgets {
            kernel::forget().map_err(in_words)?;
        }
        let directory = match self.contestant.kind {
            ContestantKind::Squashfs if !self.is_mounted => {
                let source = self.lower().join("source");
                fs::create_dir_all(&source).map_err(|error| cannot("make the directory", &source, error))?;
                source
            }
            _ => self.directory.clone(),
        };
        let mut client = process::spawn(&mut self.client(phase, &directory), self.is_pinned())
            .map_err(|error| format!("cannot start a client: {error}"))?;
        let measured = self.watch(&mut client, below);
        process::end(&mut client);
        self.check_stop()?;
        let taken = measured.map_err(in_words)?;
        Ok(taken.measure(phase))
    }

    fn client(&self, phase: &Phase, directory: &Path) -> Command {
        let settle = match self.contestant.settle() {
            super::client::Settle::Ours => "ours",
            super::client::Settle::Kernel => "kernel",
            super::client::Settle::Fsync => "fsync",
            super::client::Settle::Below => "below",
        };
        let mut command = part(["bench-part", "client"], &[]);
        command.args(["--phase", phase.name, "--settle", settle]).arg("--directory").arg(directory);
        match self.contestant.kind {
            ContestantKind::Bindfs | ContestantKind::Gocryptfs => command.arg("--below").arg(self.lower()),
            ContestantKind::Fuse2fs => command.arg("--below").arg(self.scratch.path("plain")),
            _ => &mut command,
        };
        if !matches!(self.contestant.kind, ContestantKind::Null { .. }) {
            command.arg("--checks");
        }
        let number = |number: u64| number.to_string();
        command.args(["--files", &number(self.job.files), "--large", &number(self.job.large)]);
        command.args(["--syncs", &number(self.job.syncs)]).arg("--material").arg(self.scratch.path("material"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Lets a client begin when it is ready, and reads counters before and after.
    fn watch(&mut self, client: &mut Child, below: Option<&Counters>) -> Result<Taken, String> {
        let (Some(mut input), Some(output)) = (client.stdin.take(), client.stdout.take()) else {
            return Err("the client has no pipes".into());
        };
        let mut output = BufReader::new(output);
        let line = self.next_line(client, &mut output)?;
        if line != READY {
            return Err(format!("the client said `{line}`, not `{READY}`"));
        }
        let daemon = self.daemon.as_ref().map(Child::id);
        let storing = self.storing();
        let used = kernel::used_bytes(&storing);
        let before = (below.and_then(Counters::read), daemon.and_then(process::processor_ns));
        writeln!(input, "go").map_err(|error| format!("the client does not listen: {error}"))?;
        let line = self.next_line(client, &mut output)?;
        let after = (below.and_then(Counters::read), daemon.and_then(process::processor_ns));
        let report = Report::read(&line).ok_or_else(|| format!("the client reported `{line}`"))?;
        Ok(Taken {
            report,
            device: before.0.zip(after.0),
            used: used.zip(kernel::used_bytes(&storing)),
            daemon_ns: before.1.zip(after.1).map(|(before, after)| after.saturating_sub(before)),
            daemon_kib: daemon.and_then(process::most_memory_kib),
        })
    }

    /// The next line of a client, unless the bench is stopped before. A client writes whole lines.
    fn next_line(&self, client: &mut Child, output: &mut BufReader<ChildStdout>) -> Result<String, String> {
        let patience = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
        loop {
            self.check_stop()?;
            let mut waiting = [PollFd::new(output.get_ref(), PollFlags::IN)];
            match poll(&mut waiting, Some(&patience)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => break,
                Err(error) => return Err(format!("cannot wait for the client: {error}")),
            }
        }
        let mut line = String::new();
        match output.read_line(&mut line) {
            Ok(0) | Err(_) => Err(complaint_of(client)),
            Ok(_) => Ok(line.trim_end().to_owned()),
        }
    }

    /// Unmounts everything, and reports what does not go.
    pub(super) fn remove(mut self) -> Result<(), String> {
        self.unmount()?;
        if self.contestant.has_lower() {
            kernel::unmount_when_free(&self.lower())?;
        }
        if self.contestant.kind == ContestantKind::Directory {
            self.empty_directory()?;
        }
        Ok(())
    }

    fn empty_directory(&self) -> Result<(), String> {
        let failed = |error| cannot("empty", &self.directory, error);
        fs::remove_dir_all(&self.directory).and_then(|()| fs::create_dir(&self.directory)).map_err(failed)
    }
}

impl Drop for ContestantSetup<'_> {
    fn drop(&mut self) {
        // After `remove` there is nothing left of this. Daemons first: one of ours unmounts when it is asked to end.
        if let Some(daemon) = &mut self.daemon {
            process::end(daemon);
        }
        unmount_below(&self.scratch.path("mnt"));
        unmount_below(&self.lower());
        if self.contestant.kind == ContestantKind::Directory {
            // The scratch directory is removed at the end in any case.
            let _ = self.empty_directory();
        }
    }
}

/// What a phase took, as counted from outside and by the client.
struct Taken {
    report: Report,
    device: Option<(Counted, Counted)>,
    /// Bytes in use before and after.
    used: Option<(u64, u64)>,
    daemon_ns: Option<u64>,
    daemon_kib: Option<u64>,
}

impl Taken {
    fn measure(&self, phase: &Phase) -> Measure {
        let count = self.report.operations.max(1) as f64;
        let us = |ns: u64| ns as f64 / 1000.0 / count;
        let mut metrics: Vec<(&str, f64)> = vec![
            ("op_us", us(self.report.elapsed_ns)),
            ("op_us_low", us(self.report.elapsed_ns)),
            ("op_us_high", us(self.report.elapsed_ns)),
            ("client_us", us(self.report.processor_ns)),
            ("operations", self.report.operations as f64),
        ];
        if phase.writes {
            metrics.push(("durable_us", us(self.report.elapsed_ns + self.report.settle_ns)));
            let kept = self.used.map(|(before, after)| (after as f64 - before as f64) / 1024.0 / count);
            metrics.extend(kept.map(|kib| ("kept_kib", kib)));
        }
        metrics.extend(self.daemon_ns.map(|ns| ("daemon_us", us(ns))));
        metrics.extend(self.daemon_kib.map(|kib| ("daemon_kib", kib as f64)));
        if let Some((before, after)) = self.device {
            let flushes = after.flushes.saturating_sub(before.flushes);
            let written = after.written_bytes.saturating_sub(before.written_bytes);
            metrics.push(("flushes", flushes as f64 * 1000.0 / count));
            metrics.push(("written_kib", written as f64 / 1024.0 / count));
        }
        Measure {
            dims: [("phase".to_owned(), Value::Text(phase.name.to_owned()))].into(),
            metrics: metrics.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }
    }
}

fn this_program() -> &'static str {
    "/proc/self/exe"
}

/// This program, for a part of the bench in a process of its own.
fn seekless() -> Command {
    Command::new(this_program())
}

/// A hidden part of this program.
fn part(words: [&str; 2], arguments: &[&str]) -> Command {
    let mut command = seekless();
    command.args(words).args(arguments);
    command
}

/// A daemon of others, which ends with the bench.
fn part_of(program: &str, arguments: &[&str], last: &Path) -> Command {
    let mut command = part(["bench-part", "exec"], &["--", program]);
    command.args(arguments).arg(last);
    command
}

/// What a client that has ended said.
fn complaint_of(client: &mut Child) -> String {
    let mut complaint = String::new();
    if let Some(mut stderr) = client.stderr.take() {
        // Without it there is still the exit status.
        let _ = io_read(&mut stderr, &mut complaint);
    }
    let complaint = complaint.trim().trim_start_matches("seekless: ");
    match client.wait() {
        Ok(status) if complaint.is_empty() => format!("the client ended ({status}) and said nothing"),
        Ok(_) => complaint.to_owned(),
        Err(error) => error.to_string(),
    }
}

fn io_read(from: &mut impl std::io::Read, to: &mut String) -> std::io::Result<usize> {
    from.read_to_string(to)
}
