//! Aim: acknowledged durable data survives the death of the daemon, with real processes on real mounts.
//!
//! Method: eight clients write, append, rename over, exchange, truncate, punch holes, set attributes, give names to files
//! that had none, remove and make durable at once, in every way that there is (fsync, fdatasync, O_SYNC, msync, fsync of
//! a directory, `seekless sync`), and log each call to another file system. The daemon gets SIGKILL at some moment; the
//! volume is checked, mounted again, occasionally killed during that as well, and its content compared with the logs.
//! Then the same again, on the same volume.
//!
//! The seed decides what clients do and how long a round takes. Scheduling differs each time, so that a failure may
//! take several runs to reproduce.
//!
//! `SEEKLESS_SOAK` is a factor for the number of rounds; the usual number is two.

mod clients;
mod commands;
mod oracle;
mod stacks;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use seekless::rng::Rng;
use seekless::testing::environment::soak;

use oracle::Oracle;
use stacks::Stack;

const CLIENTS: usize = 8;
/// Rounds when nothing else is said.
const ROUNDS: u64 = 2;
/// Nothing here takes as long, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name}={text:?} is not a number")))
}

/// A directory of a test's own, with the volume, the mount point and the logs.
struct Scratch {
    directory: tempfile::TempDir,
}

impl Scratch {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn program<A: AsRef<std::ffi::OsStr>>(&self, arguments: &[A]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_seekless"));
        command.current_dir(self.directory.path()).args(arguments).stdin(Stdio::null());
        command
    }

    /// Runs a program, which must end in time.
    fn finish(&self, mut command: Command) -> Output {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_within(&mut child, &format!("{command:?}"));
        child.wait_with_output().unwrap()
    }

    fn run<A: AsRef<std::ffi::OsStr>>(&self, arguments: &[A]) -> Output {
        self.finish(self.program(arguments))
    }

    /// The same, and it must succeed.
    fn good<A: AsRef<std::ffi::OsStr>>(&self, arguments: &[A]) -> Output {
        let output = self.run(arguments);
        let words: Vec<_> = arguments.iter().map(|word| word.as_ref().to_string_lossy()).collect();
        assert!(output.status.success(), "{}: {}", words.join(" "), text_of(&output));
        output
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let places = table.lines().filter_map(|line| line.split(' ').nth(1));
        let mut places: Vec<&str> =
            places.filter(|place| Path::new(place).starts_with(self.directory.path())).collect();
        places.reverse();
        for place in places {
            // A test that has failed has said so already.
            let _ = Command::new("umount").args(["--lazy", place]).output();
        }
        if std::thread::panicking() {
            self.directory.disable_cleanup(true);
            eprintln!("what there is of it stays in {}", self.directory.path().display());
        }
    }
}

fn text_of(output: &Output) -> String {
    format!("{} {}{}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn wait_within(child: &mut Child, what: &str) {
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("{what} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A running daemon. It dies with the test.
struct Daemon(Child);

impl Daemon {
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Figures of a run.
#[derive(Default, Debug)]
struct Figures {
    rounds: u64,
    kills: u64,
    calls: u64,
}

/// Runs the rounds on one volume of `stack`.
fn rounds(stack: &Stack) {
    if !stacks::can_run(stack) {
        return;
    }
    let soak = soak();
    let rounds = soak.times(ROUNDS);
    let seed = variable("SEEKLESS_SEED").unwrap_or(1);
    let mut rng = Rng::new(seed);
    let scratch = Scratch { directory: tempfile::tempdir().unwrap() };
    let again = format!(
        "SEEKLESS_SEED={seed} SEEKLESS_SOAK={soak} cargo test -p seekless-host --test processes {} -- --exact",
        stack.test
    );
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut run =
            Run { stack, scratch: &scratch, oracle: Oracle::new(CLIENTS, !stack.is_disk), figures: Figures::default() };
        run.begin();
        for round in 0..rounds {
            run.round(round, &mut rng);
        }
        run.end();
        (run.figures, run.oracle.acknowledged)
    }));
    match told {
        Ok((figures, acknowledged)) => println!(
            "{}: {} rounds, {} kills, {} calls, {acknowledged} acknowledgements checked, none lost (seed {seed})",
            stack.line, figures.rounds, figures.kills, figures.calls
        ),
        Err(panic) => {
            eprintln!("{} failed; to run it again: {again}", stack.line);
            std::panic::resume_unwind(panic);
        }
    }
}

struct Run<'a> {
    stack: &'a Stack,
    scratch: &'a Scratch,
    oracle: Oracle,
    figures: Figures,
}

impl Run<'_> {
    /// Where clients work.
    fn place(&self) -> PathBuf {
        self.scratch.path("mnt")
    }

    fn begin(&mut self) {
        self.stack.make(self.scratch);
        let daemon = self.stack.show(self.scratch);
        for number in 0..CLIENTS {
            std::fs::create_dir(self.place().join(clients::own_directory(number))).unwrap();
        }
        self.stack.sync(self.scratch);
        self.stack.hide(self.scratch, daemon);
    }

    fn round(&mut self, round: u64, rng: &mut Rng) {
        let daemon = self.stack.show(self.scratch);
        let log = |number: usize| self.scratch.path(&format!("log-{round}-{number}"));
        let seed = rng.next_u64();
        let place = self.place();
        let abilities = self.stack.abilities();
        let mut children: Vec<Child> =
            (0..CLIENTS).map(|number| clients::start(seed, number, abilities, &place, &log(number))).collect();
        let end = Instant::now() + Duration::from_millis(rng.between(700, 1500));
        let mut syncs = Vec::new();
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(rng.between(100, 500)).min(end - Instant::now()));
            if Instant::now() < end {
                let begun = clients::now();
                self.stack.sync(self.scratch);
                syncs.push(begun);
            }
        }
        for (number, child) in children.iter_mut().enumerate() {
            let ended = child.try_wait().unwrap();
            let error = clients::read_log(&log(number)).last().and_then(|logged| logged.error.clone());
            assert!(ended.is_none(), "client {number} ended before the kill: {ended:?} {error:?}");
        }
        self.stack.kill(self.scratch, daemon);
        for (number, child) in children.iter_mut().enumerate() {
            wait_within(child, &format!("client {number} of a mount whose daemon is dead"));
        }
        for number in 0..CLIENTS {
            let calls = clients::read_log(&log(number));
            self.figures.calls += calls.len() as u64;
            self.oracle.add(number, &calls, &syncs);
        }
        self.figures.kills += 1;
        self.stack.check(self.scratch);
        // Again during recovery, or soon after.
        while rng.chance(1, 3) {
            self.stack.show_and_kill(self.scratch, Duration::from_millis(rng.between(1, 60)));
            self.figures.kills += 1;
        }
        self.verify(round);
        self.figures.rounds += 1;
    }

    fn verify(&mut self, round: u64) {
        let daemon = self.stack.show(self.scratch);
        let wrong = self.oracle.verify(&self.place(), self.stack.promises);
        let some: Vec<&String> = wrong.iter().take(5).collect();
        assert!(wrong.is_empty(), "round {round}: {} promises are broken, for example {some:#?}", wrong.len());
        // What has been found is durable from here on.
        self.stack.sync(self.scratch);
        self.stack.hide(self.scratch, daemon);
    }

    fn end(&mut self) {
        self.stack.check_clean(self.scratch);
        self.verify(u64::MAX);
    }
}
