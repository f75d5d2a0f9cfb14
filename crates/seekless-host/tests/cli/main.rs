//! The program as a user sees it: its output, its answers to bad input, and its exit.
//!
//! Tests that mount need root and `/dev/fuse`; without, they say so and pass.

mod access;
mod aliases;
mod arrays;
mod as_disk;
mod bad_input;
mod bench_mounts;
mod browser;
mod cleaning;
mod disks;
mod experiments;
mod exports;
mod failed_appends;
mod in_use;
mod interrupted;
mod layers;
mod metrics;
mod mounts;
mod moved;
mod occupied;
mod output;
mod outputs;
mod packing;
mod passthrough;
mod python;
mod remount;
mod same_folder;
mod sharing;
mod supervised;
mod sweeps;
mod terminal;
mod traces;
mod two_mounts;

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use seekless_host::testing::{Need, skip};

/// A directory for a test, in which the program runs. Anything left mounted in it is unmounted at the end.
struct Scratch(tempfile::TempDir);

/// Outcome of the program.
#[derive(Debug)]
struct Ended {
    code: i32,
    out: String,
    err: String,
}

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path(name), bytes).unwrap();
    }

    fn make_directory(&self, name: &str) {
        std::fs::create_dir(self.path(name)).unwrap();
    }

    /// The program, to be run here.
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seekless"));
        command.current_dir(self.0.path()).env_remove("COLUMNS");
        command
    }

    fn run<A: AsRef<OsStr>>(&self, arguments: &[A]) -> Ended {
        self.ended(&self.command().args(arguments).output().unwrap())
    }

    /// Runs the program under another name, as a link to it would.
    fn run_as<A: AsRef<OsStr>>(&self, name: &str, arguments: &[A]) -> Ended {
        self.ended(&self.command().arg0(name).args(arguments).output().unwrap())
    }

    /// Runs the program, which must succeed, and returns what it printed.
    fn good<A: AsRef<OsStr>>(&self, arguments: &[A]) -> String {
        let ended = self.run(arguments);
        assert_eq!((ended.code, &*ended.complaints()), (0, ""));
        ended.out
    }

    /// With `T` for the name of the directory, which is another one each time.
    fn ended(&self, output: &Output) -> Ended {
        let text = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            text.replace(self.0.path().to_str().unwrap(), "T")
        };
        Ended { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }

    /// The same for a program whose error output began with `said`.
    fn ended_after(&self, said: u8, child: std::process::Child) -> Ended {
        let mut output = child.wait_with_output().unwrap();
        output.stderr.insert(0, said);
        self.ended(&output)
    }

    fn is_mounted(&self, name: &str) -> bool {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let place = format!(" {} ", self.path(name).display());
        table.lines().any(|line| line.contains(&place))
    }
}

impl Ended {
    /// The errors, without reports of waiting: on a busy machine a daemon takes its time to end, and `umount` and
    /// `mount` say that they wait for it.
    fn complaints(&self) -> String {
        let is_wait = |line: &str| line.contains("aiting for it, ") && line.ends_with(" s at most");
        self.err.split_inclusive('\n').filter(|line| !is_wait(line.trim_end())).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = table.lines().filter_map(|line| line.split(' ').nth(1));
        for place in places.filter(|place| Path::new(place).starts_with(self.0.path())) {
            // Ignored: a failed test has already reported its error.
            let _ = self.command().args(["umount", "--lazy", place]).output();
        }
    }
}

/// True where this process can mount. Otherwise reports why nothing is tested.
fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && Path::new("/dev/fuse").exists();
    if !can {
        skip(Need::Fuse, "mounting needs root and /dev/fuse");
    }
    can
}

/// Reports of waiting are no errors, and everything else is.
#[test]
fn waiting_is_no_complaint() {
    let wait = "unmounted here; the daemon (process 7) still writes. Waiting for it, 598 s at most\n";
    let other =
        "T/a was unmounted, but its daemon is still writing or serving programs: waiting for it, 60 s at most\n";
    for (err, wanted) in [(format!("{wait}{other}"), ""), (format!("{wait}wrong\n{other}"), "wrong\n")] {
        assert_eq!(Ended { code: 0, out: String::new(), err }.complaints(), wanted);
    }
}
