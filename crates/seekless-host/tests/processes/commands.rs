//! Aim: whatever commands meet on one volume, what programs have made durable stays, each command ends, and none panics.
//!
//! Method: three administrators mount one volume at two places, unmount it, remount it, check, repair, pack, sync and look at it,
//! all at once, as the seed says, and kill daemons and commands. Two clients work on whatever is mounted at that moment. Then the
//! volume is checked and compared with what the clients were told was durable; and the same again, on the same volume.
//!
//! `SEEKLESS_SOAK` is a factor for the number of rounds; the usual number is one. Scheduling differs each time, so that a failure may
//! take several runs to reproduce.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use seekless::rng::Rng;
use seekless::testing::environment::soak;
use seekless_host::testing::{Need, skip};

use crate::{PATIENCE, Scratch, text_of, variable, wait_within};

const PLACES: [&str; 2] = ["first", "second"];
const ADMINISTRATORS: u64 = 3;
const CLIENTS: u64 = 2;
/// Milliseconds of a round.
const ROUND: u64 = 2500;

/// By it the processes of a test are found, daemons too: its value is the directory of the test.
const MARK: &str = "SEEKLESS_TEST_COMMANDS";

/// What a test runs on.
struct Volume {
    test: &'static str,
    line: &'static str,
    /// What is put behind `file:…` when it is made; empty for a directory.
    size: &'static str,
}

macro_rules! volumes {
    ($($test:ident: $line:literal, $size:literal;)*) => {
        $(
            #[test]
            fn $test() {
                rounds(&Volume { test: concat!("commands::", stringify!($test)), line: $line, size: $size });
            }
        )*
    };
}

volumes! {
    on_lfs: "lfs / file:a.img", ",size=96MiB";
    on_vlfs: "vlfs / file:a.img", ",size=96MiB";
    on_ffs: "ffs:metadata=softdep / file:a.img", ",size=96MiB";
    on_a_mirror: "lfs / raid1 / file:a-{}.img", ",size=96MiB";
    on_zstd: "zstd / hostdir:data", "";
    on_encrypt: "encrypt:a.key / hostdir:data", "";
}

/// What a name may lead to, by what its client knows.
#[derive(Clone, Debug)]
enum Known {
    /// This content is durable.
    Durable(Vec<u8>),
    /// More was appended to it, and no answer came.
    Appended(Vec<u8>),
    /// It was being removed or renamed to or from here, and no answer came.
    Perhaps(Vec<u8>),
}

impl Known {
    /// What is wrong with what was found.
    fn objection(&self, found: &std::io::Result<Vec<u8>>) -> Option<String> {
        let wanted = match (self, found) {
            (Known::Durable(content), Ok(found)) if content == found => return None,
            (Known::Appended(content), Ok(found)) if found.starts_with(content) => return None,
            (Known::Perhaps(content), Ok(found)) if content == found => return None,
            (Known::Perhaps(_), Err(error)) if error.kind() == std::io::ErrorKind::NotFound => return None,
            (Known::Durable(content) | Known::Appended(content) | Known::Perhaps(content), _) => content.len(),
        };
        match found {
            Ok(found) => Some(format!("{} bytes, which differ from the {wanted} that are durable", found.len())),
            Err(error) => Some(format!("{error}; {wanted} bytes are durable")),
        }
    }
}

type Names = BTreeMap<String, Known>;

/// A client: makes files durable on whatever is mounted.
struct Client<'a> {
    scratch: &'a Scratch,
    /// Device numbers of the two directories while nothing is mounted on them.
    bare: [u64; 2],
    rng: Rng,
    number: u64,
    made: u64,
    names: Names,
    /// Calls that were answered as durable.
    durable: u64,
}

impl Client<'_> {
    fn work(&mut self, end: &AtomicBool) {
        while !end.load(Ordering::Relaxed) {
            let Some(root) = self.open_root() else {
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            for _ in 0..self.rng.between(1, 10) {
                // Errors are answers: the daemon may be dead, or the mount read-only.
                if end.load(Ordering::Relaxed) || self.step(&root).is_err() {
                    break;
                }
            }
        }
    }

    /// The root of a mount, and not the directory below it.
    fn open_root(&mut self) -> Option<OwnedFd> {
        let place = self.rng.below(2) as usize;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(self.scratch.path(PLACES[place]), flags, Mode::empty()).ok()?;
        (rustix::fs::fstat(&root).ok()?.st_dev != self.bare[place]).then_some(root)
    }

    fn new_name(&mut self) -> String {
        self.made += 1;
        format!("client-{}-{}", self.number, self.made)
    }

    fn new_content(&mut self, name: &str) -> Vec<u8> {
        let times = [1, 40, 600, 9000][self.rng.below(4) as usize];
        format!("{name} {} ", self.rng.below(1000)).repeat(times).into_bytes()
    }

    /// A file whose content is certain.
    fn any_file(&mut self) -> Option<(String, Vec<u8>)> {
        let certain = self.names.iter().filter_map(|(name, known)| match known {
            Known::Durable(content) => Some((name, content)),
            _ => None,
        });
        let certain: Vec<_> = certain.collect();
        let chosen = certain.get(self.rng.below(certain.len().max(1) as u64) as usize)?;
        Some((chosen.0.clone(), chosen.1.clone()))
    }

    fn step(&mut self, root: &OwnedFd) -> Result<(), Errno> {
        let name = self.new_name();
        let tail = self.new_content(&name);
        let wish = self.rng.below(10);
        let Some((old, content)) = (if wish < 5 { None } else { self.any_file() }) else {
            write_durably(root, &name, OFlags::CREATE | OFlags::EXCL, &tail)?;
            rustix::fs::fsync(root)?;
            self.names.insert(name, Known::Durable(tail));
            self.durable += 1;
            return Ok(());
        };
        match wish {
            5 | 6 => {
                self.names.insert(old.clone(), Known::Appended(content.clone()));
                write_durably(root, &old, OFlags::APPEND, &tail)?;
                self.names.insert(old, Known::Durable([content, tail].concat()));
            }
            7 | 8 => {
                self.names.insert(old.clone(), Known::Perhaps(content.clone()));
                self.names.insert(name.clone(), Known::Perhaps(content.clone()));
                rustix::fs::renameat(root, &old, root, &name)?;
                rustix::fs::fsync(root)?;
                self.names.remove(&old);
                self.names.insert(name, Known::Durable(content));
            }
            _ => {
                self.names.insert(old.clone(), Known::Perhaps(content));
                rustix::fs::unlinkat(root, &old, rustix::fs::AtFlags::empty())?;
                rustix::fs::fsync(root)?;
                self.names.remove(&old);
            }
        }
        self.durable += 1;
        Ok(())
    }
}

fn write_durably(root: &OwnedFd, name: &str, flags: OFlags, content: &[u8]) -> Result<(), Errno> {
    let file = rustix::fs::openat(root, name, flags | OFlags::WRONLY | OFlags::CLOEXEC, Mode::from(0o644))?;
    let mut written = 0;
    while written < content.len() {
        written += rustix::io::write(&file, &content[written..])?;
    }
    rustix::fs::fsync(&file)
}

/// What an administrator does, and how often of all.
#[rustfmt::skip]
const DEEDS: &[(u64, Deed)] = &[
    (10, Deed::Command(&["mount", "LINE", "PLACE"])),
    (3, Deed::Command(&["mount", "-o", "ro", "LINE", "PLACE"])),
    (2, Deed::Command(&["mount", "-o", "remount,ro", "LINE", "PLACE"])),
    (2, Deed::Command(&["mount", "-o", "remount,rw", "LINE", "PLACE"])),
    (7, Deed::Command(&["umount", "PLACE"])),
    (2, Deed::Command(&["umount", "--lazy", "PLACE"])),
    (3, Deed::Command(&["sync", "PLACE"])),
    (1, Deed::Command(&["stat", "PLACE"])),
    (3, Deed::Command(&["fsck", "LINE"])),
    (2, Deed::Command(&["fsck", "-n", "LINE"])),
    (1, Deed::Command(&["info", "LINE"])),
    (2, Deed::Command(&["pack", "LINE"])),
    (2, Deed::Command(&["unpack", "LINE"])),
    (2, Deed::InterruptMount),
    (3, Deed::Kill),
];

#[derive(Clone, Copy, Debug)]
enum Deed {
    Command(&'static [&'static str]),
    /// `mount` that gets a signal while it begins.
    InterruptMount,
    /// SIGKILL of any process of the test: a daemon, or another command.
    Kill,
}

struct Administrator<'a> {
    volume: &'a Volume,
    scratch: &'a Scratch,
    rng: Rng,
    /// All that administrators have done, with what was answered.
    history: &'a Mutex<Vec<String>>,
}

impl Administrator<'_> {
    fn work(&mut self, end: &AtomicBool) {
        while !end.load(Ordering::Relaxed) {
            self.act();
            std::thread::sleep(Duration::from_millis(self.rng.below(60)));
        }
    }

    fn note(&self, text: String) {
        self.history.lock().unwrap().push(text);
    }

    fn act(&mut self) {
        let mut at = self.rng.below(DEEDS.iter().map(|(weight, _)| weight).sum());
        let chosen = DEEDS.iter().find(|(weight, _)| {
            let is_it = at < *weight;
            at = at.wrapping_sub(*weight);
            is_it
        });
        let place = PLACES[self.rng.below(2) as usize];
        match chosen.unwrap().1 {
            Deed::Command(words) => self.command(words, place),
            Deed::InterruptMount => self.interrupt_mount(place),
            Deed::Kill => {
                let found = processes(self.scratch);
                if let Some(&pid) = found.get(self.rng.below(found.len().max(1) as u64) as usize) {
                    self.note(format!("kill -9 {}", pid.as_raw_nonzero()));
                    // It may have ended.
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
        }
    }

    fn command(&mut self, words: &[&str], place: &str) {
        let arguments: Vec<&str> = words
            .iter()
            .map(|&word| match word {
                "LINE" => self.volume.line,
                "PLACE" => place,
                _ => word,
            })
            .collect();
        let mut command = self.scratch.program(&arguments);
        command.env(MARK, self.scratch.directory.path());
        let output = self.scratch.finish(command);
        let told = text_of(&output);
        self.note(format!("{}: {told}", arguments.join(" ")));
        // A killed command has no exit code.
        assert!(output.status.code() != Some(101) && !told.contains("panicked"), "{}: {told}", arguments.join(" "));
    }

    fn interrupt_mount(&mut self, place: &str) {
        let mut command = self.scratch.program(&["mount", self.volume.line, place]);
        command.env(MARK, self.scratch.directory.path()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(self.rng.below(100)));
        let signal = [Signal::INT, Signal::TERM, Signal::KILL][self.rng.below(3) as usize];
        self.note(format!("{signal:?} to mount {place}"));
        // It is a child that has not been waited for: the number is its own.
        let _ = kill_process(Pid::from_child(&child), signal);
        wait_within(&mut child, "mount, which got a signal");
    }
}

/// The processes of a test that run the program.
fn processes(scratch: &Scratch) -> Vec<Pid> {
    let mark = format!("{MARK}={}", scratch.directory.path().display());
    let is_of_test = |process: &Path| {
        let mut environment = Vec::new();
        // Processes end at any time.
        let read = std::fs::File::open(process.join("environ")).and_then(|mut file| file.read_to_end(&mut environment));
        read.is_ok() && environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let all = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let path: PathBuf = entry.ok()?.path();
        let pid = Pid::from_raw(path.file_name()?.to_str()?.parse().ok()?)?;
        is_of_test(&path).then_some(pid)
    });
    let mut all: Vec<Pid> = all.collect();
    all.sort_by_key(|pid| pid.as_raw_nonzero());
    all
}

fn rounds(volume: &Volume) {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        skip(Need::Fuse, "mounting needs root and /dev/fuse");
        return;
    }
    let soak = soak();
    let seed = variable("SEEKLESS_SEED").unwrap_or(1);
    let scratch = Scratch { directory: tempfile::tempdir().unwrap() };
    let history = Mutex::new(Vec::new());
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut run =
            Run { volume, scratch: &scratch, history: &history, rng: Rng::new(seed), known: Vec::new(), durable: 0 };
        run.begin();
        for round in 0..soak.times(1) {
            run.round(round);
        }
        run.durable
    }));
    let history = history.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    match told {
        Ok(durable) => println!(
            "{}: {} commands, {durable} acknowledgements checked, none lost (seed {seed})",
            volume.line,
            history.len()
        ),
        Err(panic) => {
            let last = &history[history.len().saturating_sub(40)..];
            eprintln!("{} failed; the last commands were\n{}", volume.line, last.join("\n"));
            eprintln!(
                "to run it again: SEEKLESS_SEED={seed} SEEKLESS_SOAK={soak} cargo test -p seekless-host --test processes {} -- --exact",
                volume.test
            );
            std::panic::resume_unwind(panic);
        }
    }
}

struct Run<'a> {
    volume: &'a Volume,
    scratch: &'a Scratch,
    history: &'a Mutex<Vec<String>>,
    rng: Rng,
    /// What each client knows.
    known: Vec<Names>,
    durable: u64,
}

impl Run<'_> {
    fn begin(&mut self) {
        for name in [PLACES[0], PLACES[1], "data"] {
            std::fs::create_dir(self.scratch.path(name)).unwrap();
        }
        if self.volume.line.contains("a.key") {
            self.scratch.good(&["key", "a.key"]);
        }
        if !self.volume.size.is_empty() {
            let line = self.volume.line.replace(".img", &format!(".img{}", self.volume.size));
            self.scratch.good(&["mkfs", "-q", &line]);
        }
        self.known = vec![Names::new(); CLIENTS as usize];
    }

    fn round(&mut self, round: u64) {
        let end = AtomicBool::new(false);
        let bare = PLACES.map(|place| rustix::fs::stat(self.scratch.path(place)).unwrap().st_dev);
        let (scratch, volume, history) = (self.scratch, self.volume, self.history);
        let mut clients: Vec<Client> = Vec::new();
        for (number, names) in self.known.drain(..).enumerate() {
            let rng = Rng::new(self.rng.next_u64());
            // Names differ from those of other rounds, of which some may be there or not.
            clients.push(Client { scratch, bare, rng, number: number as u64, made: round << 32, names, durable: 0 });
        }
        let administrators: Vec<Administrator> = (0..ADMINISTRATORS)
            .map(|_| Administrator { volume, scratch, rng: Rng::new(self.rng.next_u64()), history })
            .collect();
        let length = Duration::from_millis(ROUND);
        std::thread::scope(|scope| {
            for client in &mut clients {
                scope.spawn(|| client.work(&end));
            }
            let acting: Vec<_> = administrators
                .into_iter()
                .map(|mut administrator| {
                    scope.spawn({
                        let end = &end;
                        move || administrator.work(end)
                    })
                })
                .collect();
            let begun = Instant::now();
            while begun.elapsed() < length && !acting.iter().any(|administrator| administrator.is_finished()) {
                std::thread::sleep(Duration::from_millis(20));
            }
            end.store(true, Ordering::Relaxed);
        });
        self.durable += clients.iter().map(|client| client.durable).sum::<u64>();
        self.known = clients.into_iter().map(|client| client.names).collect();
        self.unmount();
        self.verify(round);
    }

    /// Unmounts all that is mounted, and waits for the daemons, which write until they end.
    fn unmount(&self) {
        for place in PLACES {
            // One for each that is mounted on another one.
            while is_mounted(&self.scratch.path(place)) {
                let _ = self.scratch.run(&["umount", "--lazy", place]);
            }
        }
        let begun = Instant::now();
        loop {
            let left = processes(self.scratch);
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "nothing is mounted, and {left:?} do not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn verify(&mut self, round: u64) {
        let is_image = !self.volume.size.is_empty();
        if is_image {
            // After a kill there is something to repair on some.
            let _ = self.scratch.run(&["fsck", self.volume.line]);
        } else {
            // An `unpack` may have been the last command, and may have been killed: `encrypt` refuses plain files.
            self.scratch.good(&["pack", self.volume.line]);
        }
        let checked = self.scratch.run(&["fsck", "-n", self.volume.line]);
        assert!(checked.status.success(), "round {round}: {}", text_of(&checked));
        let place = PLACES[0];
        self.scratch.good(&["mount", self.volume.line, place]);
        let mut wrong = Vec::new();
        for names in &mut self.known {
            for (name, known) in names.iter() {
                let found = std::fs::read(self.scratch.path(&format!("{place}/{name}")));
                wrong.extend(known.objection(&found).map(|objection| format!("{name}: {objection}")));
            }
            names.retain(|_, known| matches!(known, Known::Durable(_)));
        }
        let some: Vec<&String> = wrong.iter().take(5).collect();
        assert!(wrong.is_empty(), "round {round}: {} of the files are wrong, for example {some:#?}", wrong.len());
        self.scratch.good(&["umount", place]);
    }
}

fn is_mounted(place: &Path) -> bool {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    table.lines().any(|line| line.split(' ').nth(1).is_some_and(|mounted| Path::new(mounted) == place))
}
