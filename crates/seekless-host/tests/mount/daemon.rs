//! The daemon under test: this test program, started once more with parameters in its environment.
//!
//! It is a separate process, because a program that waits for a mount that it serves itself cannot even be killed.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use seekless::fs::OpenProtocol;
use seekless::layer::codecs::Zstd;
use seekless::layer::log;
use seekless::testing::{MemFs, MemFsOptions};
use seekless::units::Nanos;
use seekless_host::fuse::{Mount, MountOptions, TransportChoice};
use seekless_host::leaves::{FileDevice, FileOptions};
use seekless_host::reactor::{Backend, Reactor, ReactorOptions, ShareWhen, Signals};
use seekless_host::testing::{Need, skip};

use crate::troubled::Troubled;

const WISH: &str = "SEEKLESS_TEST_DAEMON";

/// Parameters of a daemon for a test.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    pub(crate) transport: &'static str,
    pub(crate) backend: &'static str,
    pub(crate) handles: bool,
    pub(crate) exclusive: bool,
    pub(crate) writeback: bool,
    /// A compressing layer on what is served.
    pub(crate) compressed: bool,
    pub(crate) allow_other: bool,
    /// What is served has access-control lists.
    pub(crate) access_lists: bool,
    pub(crate) read_only: bool,
    /// The engine thread shares the processor of a program that alone makes requests, whether that is faster or not.
    pub(crate) shares: bool,
    pub(crate) block_device: Option<PathBuf>,
    pub(crate) close_takes: Nanos,
    pub(crate) commit_interval: Nanos,
    /// Runs the daemon as this user, who needs `fusermount3` to mount.
    pub(crate) as_user: Option<u32>,
}

impl Default for Wish {
    fn default() -> Wish {
        Wish {
            transport: "devfuse",
            backend: "auto",
            handles: false,
            exclusive: true,
            writeback: false,
            compressed: false,
            allow_other: false,
            access_lists: true,
            read_only: false,
            shares: false,
            block_device: None,
            close_takes: Nanos::ZERO,
            commit_interval: Nanos::from_secs(3600),
            as_user: None,
        }
    }
}

impl Wish {
    /// Every way in which requests can travel and opens can be done.
    pub(crate) fn every_way() -> Vec<Wish> {
        let plain = Wish::default();
        let mut all = vec![
            plain.clone(),
            Wish { handles: true, exclusive: false, ..plain.clone() },
            Wish { backend: "pool", ..plain.clone() },
            Wish { writeback: true, ..plain.clone() },
            Wish { compressed: true, ..plain.clone() },
            Wish { compressed: true, handles: true, exclusive: false, ..plain.clone() },
        ];
        if uring_is_offered() {
            all.push(Wish { transport: "uring", ..plain.clone() });
            all.push(Wish { transport: "uring", handles: true, ..plain });
        }
        all
    }

    fn to_line(&self, mount_point: &Path, marks: &Path) -> String {
        let block_device = self.block_device.clone().unwrap_or_default();
        [
            mount_point.display().to_string(),
            marks.display().to_string(),
            self.transport.into(),
            self.backend.into(),
            self.handles.to_string(),
            self.exclusive.to_string(),
            self.writeback.to_string(),
            self.compressed.to_string(),
            self.allow_other.to_string(),
            self.access_lists.to_string(),
            self.read_only.to_string(),
            self.shares.to_string(),
            block_device.display().to_string(),
            self.close_takes.0.to_string(),
            self.commit_interval.0.to_string(),
        ]
        .join("\n")
    }
}

/// FUSE over io_uring is a module parameter that is off by default.
pub(crate) fn uring_is_offered() -> bool {
    std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring").is_ok_and(|text| text.trim() == "Y")
}

/// The daemon. As a test it does nothing.
#[test]
fn serve() {
    let Ok(wish) = std::env::var(WISH) else { return };
    let words: Vec<&str> = wish.split('\n').collect();
    let [mount_point, marks, transport, backend, handles, exclusive, writeback, compressed, rest @ ..] = &words[..]
    else {
        panic!("a wish has more words");
    };
    let &[allow_other, access_lists, read_only, shares, block_device, close_takes, commit_interval] = rest else {
        panic!("a wish has more words")
    };
    let signals = Signals::new(&[libc::SIGTERM, libc::SIGINT]).unwrap();
    let backend = if *backend == "pool" { Backend::Pool } else { Backend::Auto };
    let reactor = Reactor::new(ReactorOptions { backend, ..ReactorOptions::default() }).unwrap();
    let executor = reactor.executor();
    let rt = executor.rt().clone();
    let mut options = MountOptions::new(mount_point, "test, with a comma");
    options.transport = match *transport {
        "uring" => TransportChoice::Uring,
        _ => TransportChoice::DevFuse,
    };
    options.writeback_cache = *writeback == "true";
    options.allow_other = allow_other == "true";
    options.read_only = read_only == "true";
    options.share_processor = (shares == "true").then_some(ShareWhen::Possible);
    if !block_device.is_empty() {
        let store = FileDevice::open(&rt, &reactor, Path::new(block_device), FileOptions::default()).unwrap();
        options.store = Some(std::rc::Rc::new(store));
    }
    options.commit_interval = Some(Nanos(commit_interval.parse().unwrap()));
    let open_protocol = if *handles == "true" { OpenProtocol::Handles } else { OpenProtocol::ZeroMessage };
    let access_lists = access_lists == "true";
    let memory = MemFsOptions { open_protocol, access_lists, ..MemFsOptions::default() };
    let fs = std::rc::Rc::new(Troubled {
        fs: MemFs::with_options(&rt, memory),
        rt: rt.clone(),
        exclusive: *exclusive == "true",
        closed_mark: Path::new(marks).join("closed"),
        close_takes: Nanos(close_takes.parse().unwrap()),
        closes: std::cell::Cell::new(false),
        synced_mark: Path::new(marks).join("synced"),
        synced_late_mark: Path::new(marks).join("synced late"),
        idle_mark: Path::new(marks).join("idle"),
    });
    let compressed = *compressed == "true";
    let result = executor.block_on(async {
        let mut fs: seekless::fs::Fs = fs;
        if compressed {
            // Chunks as large as pages, so that holes are where programs make them.
            let layer = log::Options { chunk_shift: 12, ..log::Options::new(Arc::new(Zstd::default())) };
            fs = log::stack_on(&rt, fs, layer).await.map_err(|error| error.to_string())?;
        }
        let mount = Mount::start(&rt, &reactor, fs, options).await.map_err(|error| error.to_string())?;
        let counted = reactor.clone();
        mount.tell_statistics(move || format!("{:?}", counted.counters()));
        println!("\nmounted {}", mount.transport_name());
        let stop = async {
            signals.next(&reactor).await;
        };
        mount.serve(stop).await.map_err(|error| error.to_string())
    });
    if let Err(error) = result.unwrap() {
        println!("\nfailed {error}");
        std::process::exit(3);
    }
    std::process::exit(0);
}

/// A second place of a mount, which is unmounted at the end.
pub(crate) struct Bind(pub(crate) PathBuf);

impl Drop for Bind {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(&self.0, rustix::mount::UnmountFlags::DETACH);
    }
}

/// A running daemon and its mount. Dropping it takes both away, whatever state they are in.
pub(crate) struct Daemon {
    child: Child,
    directory: tempfile::TempDir,
    pub(crate) transport: String,
}

/// Why a daemon did not start.
pub(crate) enum NoDaemon {
    /// This machine cannot, and the test is to be skipped.
    Skipped,
    Failed(String),
}

impl Daemon {
    /// Starts a daemon and waits until it is mounted. `None`, with a message, where that cannot be.
    pub(crate) fn start(wish: &Wish) -> Option<Daemon> {
        match Daemon::try_start(wish) {
            Ok(daemon) => Some(daemon),
            Err(NoDaemon::Skipped) => None,
            Err(NoDaemon::Failed(why)) => panic!("the daemon did not start: {why} ({wish:?})"),
        }
    }

    #[expect(clippy::zombie_processes, reason = "a `Daemon` is waited for when it is dropped")]
    pub(crate) fn try_start(wish: &Wish) -> Result<Daemon, NoDaemon> {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            skip(Need::Fuse, "mounting needs root and /dev/fuse");
            return Err(NoDaemon::Skipped);
        }
        let directory = tempfile::tempdir().unwrap();
        let mount_point = directory.path().join("mount point");
        std::fs::create_dir(&mount_point).unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "daemon::serve", "--nocapture", "--test-threads=1"]);
        command.env(WISH, wish.to_line(&mount_point, directory.path()));
        command.env("RUST_BACKTRACE", "0");
        command.stdout(Stdio::piped());
        if let Some(user) = wish.as_user {
            for path in [directory.path(), &mount_point] {
                std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
            }
            command.uid(user).gid(user);
        }
        // The test harness has threads of its own, which must not take the daemon's signals. SAFETY: between fork and
        // exec only async-signal-safe calls are made, on local memory.
        unsafe {
            command.pre_exec(|| {
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&raw mut set);
                libc::sigaddset(&raw mut set, libc::SIGTERM);
                libc::sigaddset(&raw mut set, libc::SIGINT);
                libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
                Ok(())
            });
        }
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        loop {
            line.clear();
            if output.read_line(&mut line).unwrap_or(0) == 0 {
                let _ = child.kill();
                let status = child.wait().unwrap();
                return Err(NoDaemon::Failed(format!("ended with {status}")));
            }
            if let Some(transport) = line.trim().strip_prefix("mounted ") {
                let transport = transport.to_owned();
                // The rest must not fill the pipe.
                std::thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
                return Ok(Daemon { child, directory, transport });
            }
            if let Some(error) = line.trim().strip_prefix("failed ") {
                let error = error.to_owned();
                let _ = output.read_to_string(&mut line);
                let _ = child.wait();
                return Err(NoDaemon::Failed(error));
            }
        }
    }

    /// The mount point.
    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("mount point")
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root().join(relative)
    }

    pub(crate) fn pid(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(&self.child)
    }

    /// Whether the daemon has left this mark; see `troubled`.
    pub(crate) fn has_mark(&self, mark: &str) -> bool {
        self.directory.path().join(mark).exists()
    }

    pub(crate) fn remove_mark(&self, mark: &str) {
        let _ = std::fs::remove_file(self.directory.path().join(mark));
    }

    /// Waits for the mark.
    pub(crate) fn await_mark(&self, mark: &str, patience: Duration) -> bool {
        let deadline = Instant::now() + patience;
        while !self.has_mark(mark) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        self.has_mark(mark)
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        rustix::process::kill_process(self.pid(), signal).unwrap();
    }

    /// Mounts a directory of the mount at a second place, which this returns.
    pub(crate) fn bind(&self, relative: &str) -> Bind {
        let place = self.directory.path().join("second");
        std::fs::create_dir_all(&place).unwrap();
        rustix::mount::mount_bind(self.path(relative), &place).unwrap();
        Bind(place)
    }

    /// Waits for the end of the daemon.
    pub(crate) fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            match self.child.try_wait().unwrap() {
                Some(status) => return Some(status),
                None if Instant::now() > deadline => return None,
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    /// True while the mount is in the kernel's table.
    pub(crate) fn is_mounted(&self) -> bool {
        let point = self.root().display().to_string().replace(' ', "\\040");
        let table = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
        table.lines().any(|line| line.split(' ').nth(4) == Some(&point))
    }

    pub(crate) fn unmount(&self) {
        // A child newly forked by another test may still hold a copy of a closed file.
        for _ in 0..100 {
            match rustix::mount::unmount(self.root(), rustix::mount::UnmountFlags::empty()) {
                Err(rustix::io::Errno::BUSY) => std::thread::sleep(Duration::from_millis(10)),
                unmounted => return unmounted.unwrap(),
            }
        }
        panic!("{} stays busy", self.root().display());
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = rustix::mount::unmount(self.root(), rustix::mount::UnmountFlags::DETACH);
        if self.wait(Duration::from_secs(5)).is_none() {
            eprintln!("the daemon does not end by itself");
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Runs `check` on a daemon of every kind.
pub(crate) fn on_every_mount(check: impl Fn(&Daemon, &Wish)) {
    for wish in Wish::every_way() {
        let Some(daemon) = Daemon::start(&wish) else { return };
        eprintln!("with {wish:?}");
        assert_eq!(daemon.transport, wish.transport);
        check(&daemon, &wish);
    }
}
