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

use crate::compile::{Built, Place, Tests};
use crate::find::Mutant;
use crate::rooms::{Room, Rooms};

/// What became of a mutant.
#[derive(Clone, PartialEq, Eq, Debug)]
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
    pub(crate) time: Duration,
}

/// A test: how long it takes, and which mutants it reaches.
struct Test {
    program: Tests,
    name: String,
    time: Duration,
    reaches: BTreeSet<u32>,
}

/// A test may take so many times as long as without mutants, and so much more.
const PATIENCE: (u32, Duration) = (10, Duration::from_secs(20));

/// Runs one test. `None` when it did not end within `limit`.
fn run_test(tests: &Tests, name: &str, variable: (&str, &str), limit: Duration) -> Result<Option<bool>> {
    let mut child = Command::new(&tests.program)
        .args(["--exact", name, "--test-threads=1", "-q"])
        .current_dir(&tests.folder)
        .env(variable.0, variable.1)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("starting {}", tests.program.display()))?;
    let start = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status.success()));
        }
        if start.elapsed() > limit {
            child.kill()?;
            child.wait()?;
            return Ok(None);
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

fn survey(place: &Place, rooms: &Rooms, built: &Built, jobs: usize) -> Result<Vec<Test>> {
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
        let file = place.work.join(number.to_string());
        let ((program, name), start) = (&names[number], Instant::now());
        let text = file.to_str().context("the folder's name is text")?;
        let passed = run_test(program, name, ("SEEKLESS_MUTANTS_REACHED", text), Duration::from_secs(600))?;
        ensure!(passed == Some(true), "{name} fails without any mutant");
        bar.inc(1);
        let reached = fs::read_to_string(&file).unwrap_or_default();
        let reaches = reached.lines().filter_map(|line| line.parse().ok()).collect();
        Ok(Test { program: (*program).clone(), name: name.clone(), time: start.elapsed(), reaches })
    })?;
    bar.finish_and_clear();
    Ok(tests)
}

fn trial(number: u32, tests: &[&Test]) -> Result<Fate> {
    if tests.is_empty() {
        return Ok(Fate::Unreached);
    }
    let text = number.to_string();
    for test in tests {
        let limit = test.time * PATIENCE.0 + PATIENCE.1;
        match run_test(&test.program, &test.name, ("SEEKLESS_MUTANT", &text), limit)? {
            Some(true) => {}
            Some(false) => return Ok(Fate::Killed(test.name.clone())),
            None => return Ok(Fate::Hung(test.name.clone())),
        }
    }
    Ok(Fate::Survived(tests.len()))
}

/// Learns what each test reaches, then tries every mutant.
pub(crate) fn run(place: &Place, rooms: &Rooms, built: Built, jobs: usize, seconds: Option<u64>) -> Result<Results> {
    let start = Instant::now();
    let tests = survey(place, rooms, &built, jobs)?;
    let total: Duration = tests.iter().map(|test| test.time).sum();
    eprintln!("mutants: {} tests, {:.0} s one after another", tests.len(), total.as_secs_f64());
    let numbers: Vec<u32> = built.mutants.keys().copied().collect();
    let bar = bar(numbers.len(), "mutants");
    let fates = each(numbers.len(), jobs, |index| {
        let number = numbers[index];
        let mutant = &built.mutants[&number];
        let room = &rooms.rooms[&mutant.room];
        let mut reaching: Vec<&Test> =
            tests.iter().filter(|test| is_of(room, &test.name) && test.reaches.contains(&number)).collect();
        reaching.sort_by_key(|test| test.time);
        let fate = match seconds {
            Some(seconds) if start.elapsed() > Duration::from_secs(seconds) => Fate::NotTried,
            _ => trial(number, &reaching)?,
        };
        // A run that is ended early has said what it knows.
        let word = match &fate {
            Fate::Survived(_) | Fate::Unreached if rooms.survivors.contains_key(&mutant.id) => "explained",
            Fate::Survived(_) => "survives ",
            Fate::Unreached => "unreached",
            Fate::Killed(_) | Fate::Hung(_) => "noticed  ",
            Fate::NotTried => "not tried",
        };
        if bar.is_hidden() {
            eprintln!("{word} {mutant}");
        } else if matches!(word, "survives " | "unreached") {
            bar.println(format!("{word} {mutant}"));
        }
        bar.inc(1);
        Ok(fate)
    })?;
    bar.finish_and_clear();
    let mut mutants: BTreeMap<u32, Mutant> = built.mutants;
    let fates = numbers.iter().filter_map(|number| mutants.remove(number)).zip(fates).collect();
    let _ = fs::remove_dir_all(Path::new(&place.work));
    Ok(Results { fates, rejected: built.rejected, time: start.elapsed() })
}
