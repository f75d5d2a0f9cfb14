//! Trials: each mutant with the tests that reach it, until one fails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::compile::{Built, Place, Tests};
use crate::find::{Mutant, hash};
use crate::progress::{Progress, Surveyed};
use crate::rooms::{Room, Rooms};

/// What became of a mutant.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Fate {
    /// By this test.
    Killed(String),
    /// This test did not end in time.
    Hung(String),
    /// So many tests passed.
    Survived(usize),
    /// No test of the room reaches it.
    Unreached,
    /// The time was over.
    NotTried,
}

pub(crate) struct Results {
    pub(crate) fates: Vec<(Mutant, Fate)>,
    pub(crate) rejected: usize,
    /// Processor time of all trials, those of earlier runs too.
    pub(crate) time: Duration,
}

struct Test {
    program: Tests,
    name: String,
    surveyed: Surveyed,
}

/// A test may take so many times as long as without mutants, and so much more, of a processor.
const PATIENCE: (u32, Duration) = (10, Duration::from_secs(20));

/// A test that waits for what never comes takes no processor. So long may one take on a busy machine, at most.
const WAIT_MAX: Duration = Duration::from_secs(3600);

/// Processor time that a process has used, as the kernel counts it; nothing when it is gone.
fn processor_time(process: u32) -> Option<Duration> {
    /// The kernel shows times in this unit on every architecture (`USER_HZ`).
    const TICKS_PER_SECOND: u64 = 100;
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // Behind the name of the program, which may hold anything: user and system time are the twelfth and thirteenth.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 1000 / TICKS_PER_SECOND))
}

/// Runs one test. `None` when it did not end within `limit` of processor time. Also returns how much it took.
fn run_test(tests: &Tests, name: &str, variable: (&str, &str), limit: Duration) -> Result<(Option<bool>, Duration)> {
    let mut child = Command::new(&tests.program)
        .args(["--exact", name, "--test-threads=1", "-q"])
        .current_dir(&tests.folder)
        .env(variable.0, variable.1)
        .env("SEEKLESS_SOAK", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {}", tests.program.display()))?;
    let (start, mut used) = (Instant::now(), Duration::ZERO);
    let mut pause = Duration::from_millis(1);
    loop {
        // Before it is asked whether it has ended, after which the kernel has forgotten it.
        used = processor_time(child.id()).unwrap_or(used);
        if let Some(status) = child.try_wait()? {
            return Ok((Some(status.success()), used));
        }
        if used > limit || start.elapsed() > WAIT_MAX {
            child.kill()?;
            child.wait()?;
            return Ok((None, used));
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

fn bar(count: usize, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {bar:40} {pos}/{len} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(count as u64).with_style(style).with_message(what)
}

/// Does `work` for each number below `count`, on `jobs` threads.
fn each<T: Send>(count: usize, jobs: usize, work: impl Fn(usize) -> Result<T> + Sync) -> Result<Vec<T>> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::new());
    let outcome: Result<Vec<()>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs.max(1))
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return Ok(());
                        }
                        let made = work(number)?;
                        done.lock().expect("no thread panics with it").push((number, made));
                    }
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it returns its errors")).collect()
    });
    outcome?;
    let mut done = done.into_inner().expect("no thread panics with it");
    done.sort_by_key(|&(number, _)| number);
    Ok(done.into_iter().map(|(_, made)| made).collect())
}

fn is_of(room: &Room, test: &str) -> bool {
    room.tests.iter().any(|prefix| test.starts_with(prefix.as_str()))
}

fn survey(
    place: &Place,
    rooms: &Rooms,
    built: &Built,
    progress: &Progress,
    mutants: &str,
    jobs: usize,
) -> Result<Vec<Test>> {
    let wanted: BTreeSet<&str> = built.mutants.values().map(|mutant| mutant.room.as_str()).collect();
    let mut names: Vec<(&Tests, String)> = Vec::new();
    for tests in &built.tests {
        let listed =
            Command::new(&tests.program).args(["--list", "--format", "terse"]).output().context("listing the tests")?;
        let listed = String::from_utf8(listed.stdout)?;
        let listed = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        let of_rooms = listed.filter(|test| wanted.iter().any(|room| is_of(&rooms.rooms[*room], test)));
        names.extend(of_rooms.map(|test| (tests, test.to_owned())));
    }
    ensure!(!names.is_empty(), "no test is in the rooms that are mutated: see `tests` in rooms.toml");
    let _ = fs::remove_dir_all(&place.work);
    fs::create_dir_all(&place.work)?;
    let bar = bar(names.len(), "tests");
    let tests = each(names.len(), jobs, |number| {
        let (program, name) = &names[number];
        let crate_name = program.folder.file_name().and_then(|name| name.to_str()).context("a crate has a name")?;
        let surveyed = match progress.test(crate_name, name) {
            Some(surveyed) => surveyed,
            None => {
                let file = place.work.join(number.to_string());
                let text = file.to_str().context("the folder's name is text")?;
                let (passed, time) = run_test(program, name, ("SEEKLESS_MUTANTS_REACHED", text), WAIT_MAX)?;
                ensure!(passed == Some(true), "{name} fails without any mutant");
                let reached = fs::read_to_string(&file).unwrap_or_default();
                let numbers = reached.lines().filter_map(|line| line.parse::<u32>().ok());
                let reaches = numbers.filter_map(|number| built.mutants.get(&number)).map(|mutant| mutant.id.clone());
                let surveyed = Surveyed { time, reaches: reaches.collect() };
                progress.learned_test(mutants, crate_name, name, &surveyed)?;
                surveyed
            }
        };
        bar.inc(1);
        Ok(Test { program: (*program).clone(), name: name.clone(), surveyed })
    })?;
    bar.finish_and_clear();
    Ok(tests)
}

/// What becomes of a mutant with `tests`, and how much processor time that took.
fn trial(number: u32, tests: &[&Test]) -> Result<(Fate, Duration)> {
    let mut spent = Duration::ZERO;
    if tests.is_empty() {
        return Ok((Fate::Unreached, spent));
    }
    let text = number.to_string();
    for test in tests {
        let limit = test.surveyed.time * PATIENCE.0 + PATIENCE.1;
        let (passed, time) = run_test(&test.program, &test.name, ("SEEKLESS_MUTANT", &text), limit)?;
        spent += time;
        match passed {
            Some(true) => {}
            Some(false) => return Ok((Fate::Killed(test.name.clone()), spent)),
            None => return Ok((Fate::Hung(test.name.clone()), spent)),
        }
    }
    Ok((Fate::Survived(tests.len()), spent))
}

/// How a run goes.
pub(crate) struct Manner {
    pub(crate) jobs: usize,
    /// Seconds for all trials.
    pub(crate) seconds: Option<u64>,
    /// Begin again with everything.
    pub(crate) forget: bool,
}

/// Learns what each test reaches, then tries every mutant. What an interrupted run has learned is not tried again.
pub(crate) fn run(place: &Place, rooms: &Rooms, built: Built, manner: &Manner) -> Result<Results> {
    let start = Instant::now();
    let ids: Vec<&str> = built.mutants.values().map(|mutant| mutant.id.as_str()).collect();
    let set = format!("{:016x}", hash(&ids));
    let progress = Progress::of(place.progress.clone(), &built.sources, &set, manner.forget)?;
    let tests = survey(place, rooms, &built, &progress, &set, manner.jobs)?;
    let total: Duration = tests.iter().map(|test| test.surveyed.time).sum();
    eprintln!("mutants: {} tests, {:.0} s of a processor", tests.len(), total.as_secs_f64());
    let mut numbers: Vec<u32> = built.mutants.keys().copied().collect();
    // First those that people chose: a run may be ended early.
    numbers.sort_by_key(|number| built.mutants[number].why.is_none());
    let bar = bar(numbers.len(), "mutants");
    let fates = each(numbers.len(), manner.jobs, |index| {
        let number = numbers[index];
        let mutant = &built.mutants[&number];
        let room = &rooms.rooms[&mutant.room];
        let reaches = |test: &&Test| is_of(room, &test.name) && test.surveyed.reaches.contains(&mutant.id);
        let mut reaching: Vec<&Test> = tests.iter().filter(reaches).collect();
        reaching.sort_by_key(|test| test.surveyed.time);
        let known = progress.fate(&mutant.id);
        let is_new = known.is_none();
        let (fate, time) = match (known, manner.seconds) {
            (Some(known), _) => known,
            (None, Some(seconds)) if start.elapsed() > Duration::from_secs(seconds) => (Fate::NotTried, Duration::ZERO),
            (None, _) => trial(number, &reaching)?,
        };
        if is_new && fate != Fate::NotTried {
            progress.learned_fate(&mutant.id, &fate, time)?;
        }
        let word = match &fate {
            Fate::Survived(_) | Fate::Unreached if rooms.survivors.contains_key(&mutant.id) => "explained",
            Fate::Survived(_) => "survives ",
            Fate::Unreached => "unreached",
            Fate::Killed(_) | Fate::Hung(_) => "noticed  ",
            Fate::NotTried => "not tried",
        };
        // A run that is ended early has said what it knows.
        if bar.is_hidden() {
            eprintln!("{word} {mutant}");
        } else if matches!(word, "survives " | "unreached") {
            bar.println(format!("{word} {mutant}"));
        }
        bar.inc(1);
        Ok((fate, time))
    })?;
    bar.finish_and_clear();
    let time = fates.iter().map(|(_, time)| *time).sum();
    let mut mutants: BTreeMap<u32, Mutant> = built.mutants;
    let mutants = numbers.iter().filter_map(|number| mutants.remove(number));
    let fates = mutants.zip(fates.into_iter().map(|(fate, _)| fate)).collect();
    let _ = fs::remove_dir_all(Path::new(&place.work));
    Ok(Results { fates, rejected: built.rejected, time })
}
