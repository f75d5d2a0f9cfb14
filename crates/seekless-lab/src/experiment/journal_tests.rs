//! Several runs in one folder. Here they are several open journals of one process, whose locks exclude each other like those of
//! processes.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use super::journal::{self, Journal, Line, Points, Turn, patiently};
use super::results_error::ResultsError;
use super::{Measure, Round};

fn measures(value: f64) -> Round {
    vec![Measure { dims: [].into(), metrics: [("n".to_owned(), value)].into() }]
}

fn line(key: &str, value: f64) -> Line {
    Line { key: key.to_owned(), program: "build".to_owned(), measures: measures(value) }
}

fn open(folder: &Path) -> (Journal, Points) {
    Journal::open(&folder.join("points.jsonl"), &patiently).unwrap()
}

/// J2: a claim is held by one, and ends when it is released or its holder is gone.
#[test]
fn claims_exclude_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let (one, _) = open(folder.path());
    let (other, _) = open(folder.path());
    assert!(one.claim("a").unwrap());
    assert!(one.claim("a").unwrap(), "its own claim is no obstacle");
    assert!(!other.claim("a").unwrap());
    assert!(other.claim("b").unwrap(), "another name");
    assert!(!one.claim("b").unwrap());
    one.release("a").unwrap();
    assert!(other.claim("a").unwrap());
    drop(other);
    assert!(one.claim("a").unwrap() && one.claim("b").unwrap());
}

/// J2: claims end with their holder, even where a process that it forked keeps a copy of the descriptor, as the workers of a pool do.
#[test]
fn claims_end_while_forked_workers_live() {
    let folder = tempfile::tempdir().unwrap();
    let (one, _) = open(folder.path());
    let (other, _) = open(folder.path());
    assert!(one.claim("a").unwrap() && one.claim("b").unwrap());
    let worker = one.copied();
    drop(one);
    assert!(other.claim("a").unwrap() && other.claim("b").unwrap());
    // What a worker drops is not its own.
    let mut copy = other.copied();
    copy.process += 1;
    drop(copy);
    let (third, _) = open(folder.path());
    assert!(!third.claim("a").unwrap());
    drop(worker);
}

/// A run can claim as many points as a plan has.
#[test]
fn ten_thousand_claims() {
    let folder = tempfile::tempdir().unwrap();
    let (one, _) = open(folder.path());
    let (other, _) = open(folder.path());
    let names: Vec<String> = (0..10_000).map(|number| format!("{number:032x}")).collect();
    assert!(names.iter().all(|name| one.claim(name).unwrap()));
    assert!(!names.iter().any(|name| other.claim(name).unwrap()));
    names.iter().for_each(|name| one.release(name).unwrap());
    assert!(names.iter().all(|name| other.claim(name).unwrap()));
}

/// J1, J3: lines of several runs come whole into the journal, and each run learns those of the others. Method: threads append
/// at the same time, and read now and then.
#[test]
fn all_lines_of_all_runs_are_there() {
    const RUNS: usize = 4;
    const LINES: usize = 200;
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for run in 0..RUNS {
            let folder = folder.path();
            scope.spawn(move || {
                let (mut journal, mut points) = open(folder);
                for number in 0..LINES {
                    journal.append(line(&format!("{run} {number}"), number as f64), &mut points, &patiently).unwrap();
                    if number % 7 == 0 {
                        journal.refresh(&mut points).unwrap();
                    }
                }
                let mine = points.keys().filter(|key| key.starts_with(&format!("{run} "))).count();
                assert_eq!(mine, LINES);
            });
        }
    });
    let (mut journal, mut points) = open(folder.path());
    assert_eq!(points.len(), RUNS * LINES);
    assert!(points.values().all(|measured| measured.rounds.len() == 1));
    let whole = points.clone();
    journal.refresh(&mut points).unwrap();
    assert_eq!(points, whole, "nothing is read twice");
}

/// Aim: a run can be ended while it waits for one that was stopped in the middle of writing, and has then written nothing. Method:
/// one run has its turn, for appending or for the files of the folder; another asks for it and is ended; then the first ends its turn.
#[test]
fn the_wait_for_a_turn_can_be_ended() {
    let folder = tempfile::tempdir().unwrap();
    let (mut one, mut points) = open(folder.path());
    let (mut other, mut others) = open(folder.path());
    let asked = std::cell::Cell::new(0);
    let at_the_third = || {
        asked.set(asked.get() + 1);
        if asked.get() % 3 == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    one.alone(Turn::Append, &patiently, |_| {
        let ended = other.append(line("a", 1.0), &mut others, &at_the_third);
        assert!(matches!(ended, Err(ResultsError::Interrupted { .. })) && asked.get() == 3, "{ended:?}");
        let ended = Journal::open(&folder.path().join("points.jsonl"), &at_the_third).map(drop);
        assert!(matches!(ended, Err(ResultsError::Interrupted { .. })) && asked.get() == 6, "{ended:?}");
        other.alone(Turn::Finish, &at_the_third, |_| Ok(()))
    })
    .unwrap();
    assert!(others.is_empty() && asked.get() == 6, "the other turn was free");
    other.append(line("a", 1.0), &mut others, &at_the_third).unwrap();
    one.refresh(&mut points).unwrap();
    assert_eq!((points, asked.get()), (others, 6));
}

/// Part of a line is what another run is writing, or what a kill has left of one: the next line to be appended removes it. What
/// could not be such a part is refused.
#[test]
fn a_torn_line_is_removed_by_the_next_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("points.jsonl");
    let (mut one, mut points) = open(folder.path());
    one.append(line("a", 1.0), &mut points, &patiently).unwrap();
    let tear = |text: &str| File::options().append(true).open(&path).unwrap().write_all(text.as_bytes()).unwrap();
    tear("{\"key\":\"b\",\"meas");
    let whole = std::fs::read(&path).unwrap();
    one.refresh(&mut points).unwrap();
    assert_eq!((points.len(), std::fs::read(&path).unwrap()), (1, whole), "readers leave it alone");
    one.append(line("c", 2.0), &mut points, &patiently).unwrap();
    let (_, found) = open(folder.path());
    assert_eq!(found, points);
    assert_eq!(found.keys().collect::<Vec<_>>(), ["a", "c"]);

    // A power cut may leave the length of what was appended, and zeros in place of all or some of its bytes.
    for torn in [&"\0".repeat(300), "{\"key\":\"d\",\"meas\0\0\0", "{\"ke\0"] {
        tear(torn);
        assert_eq!(journal::read(&path).unwrap(), points, "{torn:?}");
        let (mut again, mut known) = open(folder.path());
        assert_eq!(known, points, "{torn:?}");
        again.append(line("c", 2.0), &mut known, &patiently).unwrap();
        one.refresh(&mut points).unwrap();
        assert_eq!((known, std::fs::read(&path).unwrap().contains(&0)), (points.clone(), false), "{torn:?}");
    }
    tear("\0\0a");
    let error = journal::read(&path).unwrap_err().to_string();
    let whole = std::fs::read(&path).unwrap().len() - 3;
    assert!(error.contains(&format!("truncate --size {whole}")), "{error}");
    File::options().write(true).open(&path).unwrap().set_len(whole as u64).unwrap();

    tear("a letter");
    let refused = one.append(line("d", 3.0), &mut points, &patiently);
    assert!(matches!(refused, Err(ResultsError::Content { .. })));
    assert!(std::fs::read_to_string(&path).unwrap().ends_with("a letter"));
    std::fs::write(&path, "").unwrap();
    let error = one.refresh(&mut points).unwrap_err().to_string();
    assert!(error.contains("another program has shortened it"), "{error}");
}

/// J4: a line of which a byte has changed is refused with its number, wherever that is; one of a build that wrote no digest is not.
/// Method: every bit of a line, once.
#[test]
fn a_changed_line_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("points.jsonl");
    let (mut journal, mut points) = open(folder.path());
    for (key, value) in [("a", 1.25), ("b", 2.5), ("c", 3.0)] {
        journal.append(line(key, value), &mut points, &patiently).unwrap();
    }
    let whole = std::fs::read(&path).unwrap();
    let second = whole.split_inclusive(|&byte| byte == b'\n').nth(1).unwrap().len();
    let first = whole.len() - whole.split_inclusive(|&byte| byte == b'\n').skip(1).map(<[u8]>::len).sum::<usize>();
    for bit in 0..8 * (second - 1) {
        let mut changed = whole.clone();
        changed[first + bit / 8] ^= 1 << (bit % 8);
        std::fs::write(&path, &changed).unwrap();
        // What is left where the name of the digest itself is damaged is what was measured.
        match journal::read(&path) {
            Err(error) => {
                let error = error.to_string();
                assert!(error.contains(", line 2: ") || error.contains(", line 3: "), "bit {bit}: {error}");
            }
            Ok(found) => assert_eq!(found, points, "bit {bit}"),
        }
    }
    let text = String::from_utf8(whole).unwrap();
    let without: String = text.lines().map(|line| format!("{}}}\n", line.split(",\"sum\"").next().unwrap())).collect();
    assert!(!without.contains("sum"));
    std::fs::write(&path, without).unwrap();
    assert_eq!(journal::read(&path).unwrap(), points);
}
