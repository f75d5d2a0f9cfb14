//! Aim: two mounts of one directory lose nothing that either has acknowledged, also when the daemon of one is killed: it is in the other
//! mount, in the directory, and in the next mount. Method: programs in both mounts and in the directory make, sync, rename and remove files of
//! their own, and append lines to one that they share, until one daemon gets SIGKILL.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use seekless_host::testing::{Need, skip};

use crate::mounts::{Mapping, daemon, wait_for};
use crate::{Scratch, can_mount};

/// Longer than a mount shows names and attributes that others have changed.
const CACHED: Duration = Duration::from_millis(1500);

/// How long the programs work before the kill.
const BEFORE: Duration = Duration::from_millis(700);

/// What a program knows to be done: the files with their contents (`None` for one that is gone), and its lines in the shared file. The
/// call that failed when the daemon died may have been done or not.
#[derive(Default)]
struct Acknowledged {
    files: BTreeMap<String, Option<String>>,
    lines: Vec<String>,
    failed_line: Option<String>,
    /// The names of the call that failed.
    unknown: Vec<String>,
}

/// Works in `place` until it is to stop, or a call fails.
fn work(name: &str, place: &Path, shall_stop: &AtomicBool) -> Acknowledged {
    let mut known = Acknowledged::default();
    for number in 0.. {
        if shall_stop.load(Ordering::Relaxed) {
            break;
        }
        if step(name, number, place, &mut known).is_err() {
            break;
        }
    }
    known
}

fn step(name: &str, number: u32, place: &Path, known: &mut Acknowledged) -> io::Result<()> {
    let path = |name: &str| place.join(name);
    let (first, second) = (format!("{name}-{number}"), format!("{name}-{number}-renamed"));
    let content = format!("{name} has written this as number {number}. ").repeat(1 + number as usize % 300);
    known.unknown = vec![first.clone()];
    let mut file = File::create(path(&first))?;
    known.files.insert(first.clone(), Some(String::new()));
    file.write_all(content.as_bytes())?;
    file.sync_all()?;
    drop(file);
    known.files.insert(first.clone(), Some(content.clone()));
    known.unknown = vec![first.clone(), second.clone()];
    fs::rename(path(&first), path(&second))?;
    known.files.insert(first, None);
    known.files.insert(second, Some(content));
    known.unknown.clear();
    if number % 3 == 2 {
        let removed = format!("{name}-{}-renamed", number - 1);
        known.unknown = vec![removed.clone()];
        fs::remove_file(path(&removed))?;
        known.files.insert(removed, None);
        known.unknown.clear();
    }
    // Of lengths that cross pages often.
    let line = format!("{name} {number} {}", ".".repeat(number as usize % 700));
    known.failed_line = Some(line.clone());
    let mut shared = OpenOptions::new().append(true).open(path("shared"))?;
    shared.write_all(format!("{line}\n").as_bytes())?;
    known.lines.push(line);
    known.failed_line = None;
    if number.is_multiple_of(5) { shared.sync_data() } else { Ok(()) }
}

/// Everything that is known is in `place`.
fn check(place: &Path, all: &[Acknowledged], what: &str) {
    for known in all {
        for (name, content) in known.files.iter().filter(|(name, _)| !known.unknown.contains(name)) {
            let found = fs::read(place.join(name)).ok();
            let wanted = content.as_ref().map(|content| content.as_bytes());
            assert!(
                found.as_deref() == wanted,
                "{what}: {name}: {:?} of {:?}",
                found.map(|it| it.len()),
                wanted.map(<[u8]>::len)
            );
        }
    }
    let shared = fs::read_to_string(place.join("shared")).unwrap_or_else(|error| panic!("{what}: {error}"));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    shared.lines().for_each(|line| *counts.entry(line).or_default() += 1);
    for known in all {
        let lost: Vec<&String> = known.lines.iter().filter(|line| counts.remove(&***line) != Some(1)).collect();
        let lines = known.lines.len();
        assert!(lost.is_empty(), "{what}: {} of {lines} lines are not there once, such as {}", lost.len(), lost[0]);
        known.failed_line.as_ref().map(|line| counts.remove(&**line));
    }
    assert!(counts.is_empty(), "{what}: these lines were not written: {counts:?}");
}

#[test]
fn two_mounts_of_a_directory_lose_nothing() {
    if !can_mount() {
        return;
    }
    for (one, other, options) in [
        ("hostdir:data", "hostdir:data", "nosuid"),
        ("hostdir:data", "hostdir:data", "nopassthrough"),
        ("hostdir:data", "wrap / hostdir:data", "nosuid"),
        ("wrap / hostdir:data", "wrap / hostdir:data", "nosuid"),
    ] {
        let what = format!("`{one}` and `{other}` with {options}");
        let scratch = Scratch::new();
        for directory in ["data", "one", "other"] {
            scratch.make_directory(directory);
        }
        scratch.write("data/shared", "");
        scratch.good(&["mount", one, "one", "-o", options]);
        scratch.good(&["mount", other, "other", "-o", options, "--pid-file", "pid"]);
        let shall_stop = &AtomicBool::new(false);
        let places: Vec<(String, PathBuf)> = ["one", "other", "data", "one", "other"]
            .iter()
            .enumerate()
            .map(|(number, place)| (format!("{place}-{number}"), scratch.path(place)))
            .collect();
        let all: Vec<Acknowledged> = std::thread::scope(|scope| {
            let start = |(name, place)| scope.spawn(move || work(name, place, shall_stop));
            let programs: Vec<_> = places.iter().map(|(name, place)| start((name, place))).collect();
            std::thread::sleep(BEFORE);
            kill_process(daemon(&scratch), Signal::KILL).unwrap();
            std::thread::sleep(BEFORE);
            shall_stop.store(true, Ordering::Relaxed);
            programs.into_iter().map(|program| program.join().unwrap()).collect()
        });
        assert!(all.iter().all(|known| known.lines.len() > 3), "{what}: all programs have worked");
        check(&scratch.path("data"), &all, &format!("{what}: in the directory"));
        std::thread::sleep(CACHED);
        check(&scratch.path("one"), &all, &format!("{what}: in the other mount"));
        scratch.run(&["umount", "--lazy", "other"]);
        wait_for("the end of the mount", || !scratch.is_mounted("other"));
        scratch.good(&["mount", other, "other", "-o", options]);
        check(&scratch.path("other"), &all, &format!("{what}: in the next mount"));
        scratch.good(&["umount", "one"]);
        scratch.good(&["umount", "other"]);
    }
}

/// A record of `bytes` that says where it came from: the parts of two of them cannot be taken for one.
fn record(source: usize, number: usize, bytes: usize) -> Vec<u8> {
    let mut record = format!("<{source} {number} {bytes} ").into_bytes();
    record.extend((record.len()..bytes).map(|at| b'a' + ((source * 7 + number + at) % 26) as u8));
    record
}

/// The source and the number of the record at the beginning of `bytes`, and its length.
fn read_record(bytes: &[u8]) -> Option<(usize, usize, usize)> {
    let head = std::str::from_utf8(bytes.get(1..40.min(bytes.len()))?).ok()?;
    let mut numbers = head.split(' ').map_while(|number| number.parse().ok());
    let (source, number, length) = (numbers.next()?, numbers.next()?, numbers.next()?);
    (bytes.get(..length)? == record(source, number, length)).then_some((source, number, length))
}

/// Aim: what is appended with one call is in one piece, beside appends through another mount and in the directory. Method: programs
/// append records of any length up to the longest that is promised; the file is then read as records.
#[test]
fn appended_records_are_whole() {
    const LONGEST: usize = 1020 << 10;
    if !can_mount() {
        return;
    }
    for (line, options) in
        [("hostdir:data", "nopassthrough"), ("wrap / hostdir:data", "nosuid"), ("hostdir:data", "nosuid")]
    {
        let scratch = Scratch::new();
        for directory in ["data", "one", "other"] {
            scratch.make_directory(directory);
        }
        scratch.write("data/shared", "");
        scratch.good(&["mount", line, "one", "-o", options]);
        scratch.good(&["mount", line, "other", "-o", options]);
        let shall_stop = &AtomicBool::new(false);
        let work = |source: usize, path: PathBuf| {
            let mut options = OpenOptions::new();
            let mut file = options.append(true).read(source.is_multiple_of(2)).open(path).unwrap();
            let mut number = 0;
            while !shall_stop.load(Ordering::Relaxed) {
                let bytes = if number % 60 == 59 { LONGEST - source } else { 40 + (number * 977 + source * 31) % 6000 };
                file.write_all(&record(source, number, bytes)).unwrap();
                number += 1;
            }
            number
        };
        let counts: Vec<usize> = std::thread::scope(|scope| {
            let places = ["one", "other", "data", "one", "other"].into_iter().enumerate();
            let start = |(source, place): (usize, &str)| {
                let path = scratch.path(place).join("shared");
                scope.spawn(move || work(source, path))
            };
            let programs: Vec<_> = places.map(start).collect();
            std::thread::sleep(BEFORE);
            shall_stop.store(true, Ordering::Relaxed);
            programs.into_iter().map(|program| program.join().unwrap()).collect()
        });
        let found = fs::read(scratch.path("data/shared")).unwrap();
        let mut next = vec![0; counts.len()];
        let mut at = 0;
        while at < found.len() {
            let what = || String::from_utf8_lossy(&found[at..found.len().min(at + 60)]).into_owned();
            let (source, number, bytes) = read_record(&found[at..])
                .unwrap_or_else(|| panic!("{line}, {options}: no whole record at {at}: {:?}, after {next:?}", what()));
            assert_eq!(number, next[source], "{line}, {options}: the next record of {source} at {at}");
            next[source] += 1;
            at += bytes;
        }
        assert_eq!(next, counts, "{line}, {options}: the records of each program");
        assert!(counts.iter().all(|&count| count > 3), "{line}, {options}: all programs have worked: {counts:?}");
        scratch.good(&["umount", "one"]);
        scratch.good(&["umount", "other"]);
    }
}

/// How a program makes one long append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Way {
    Write,
    /// io_uring: the kernel sends the parts at once.
    Ring,
}

/// Appends the beginning of `bytes`, and returns how much.
pub(crate) fn append(file: &File, bytes: &[u8], way: Way) -> io::Result<usize> {
    match way {
        Way::Write => (&*file).write(bytes),
        Way::Ring => {
            let mut ring = io_uring::IoUring::new(2)?;
            let target = io_uring::types::Fd(file.as_raw_fd());
            // No place of its own, as write(2) has none.
            let entry = io_uring::opcode::Write::new(target, bytes.as_ptr(), bytes.len() as u32).offset(u64::MAX);
            // SAFETY: the file and the bytes live until the wait below has returned.
            unsafe { ring.submission().push(&entry.build()) }.map_err(io::Error::other)?;
            ring.submit_and_wait(1)?;
            let result = ring.completion().next().expect("it was waited for").result();
            usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
        }
    }
}

/// The parts of a long append stay in order, also if they are sent at once.
#[test]
fn long_appends_keep_their_order() {
    // The last part is so small that it could be written before the others.
    const BYTES: usize = (12 << 20) + (12 << 10);
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    for options in ["nopassthrough", "nopassthrough,transport=uring", "nosuid"] {
        scratch.good(&["mount", "hostdir:data", "mnt", "-o", options]);
        for (flags, way) in [(0, Way::Write), (0, Way::Ring), (libc::O_DIRECT, Way::Write), (libc::O_DIRECT, Way::Ring)]
        {
            let what = format!("{options}, {flags:o}, {way:?}");
            let bytes: Vec<u8> =
                (0..BYTES + 4096).map(|at| (at / 4096) as u8 ^ (at / 4096 / 256) as u8 ^ at as u8).collect();
            // Aligned, for direct I/O.
            let aligned = &bytes[bytes.as_ptr().align_offset(4096)..][..BYTES];
            let file = OpenOptions::new().append(true).create(true).custom_flags(flags).open(scratch.path("mnt/long"));
            let file = file.unwrap();
            for _ in 0..3 {
                let mut done = 0;
                while done < BYTES {
                    match append(&file, &aligned[done..], way) {
                        Ok(more) => done += more,
                        Err(error) if matches!(way, Way::Ring) && done == 0 => {
                            skip(Need::Uring, format!("{what}: {error}"));
                            break;
                        }
                        Err(error) => panic!("{what}: {error}"),
                    }
                }
                let found = fs::read(scratch.path("data/long")).unwrap();
                let first = found.iter().zip(aligned).position(|(found, wanted)| found != wanted);
                assert_eq!((first, found.len()), (None, done), "{what}");
                file.set_len(0).unwrap();
            }
            drop(file);
            fs::remove_file(scratch.path("mnt/long")).unwrap();
        }
        scratch.good(&["umount", "mnt"]);
    }
}

/// A file that is open for appending can be mapped, and what is stored there is at its place.
#[test]
fn a_file_to_append_to_can_be_mapped() {
    if !can_mount() {
        return;
    }
    let scratch = Scratch::new();
    scratch.make_directory("data");
    scratch.make_directory("mnt");
    scratch.write("data/file", [b'a'; 6000]);
    scratch.good(&["mount", "hostdir:data", "mnt", "-o", "nopassthrough"]);
    let mut file = OpenOptions::new().append(true).read(true).open(scratch.path("mnt/file")).unwrap();
    let mut mapping = Mapping::new(&file, 6000);
    mapping.store(5000, b'b');
    file.write_all(b"end").unwrap();
    mapping.store(10, b'b');
    drop(mapping);
    file.sync_all().unwrap();
    let mut expected = [b'a'; 6000].to_vec();
    (expected[5000], expected[10]) = (b'b', b'b');
    expected.extend(b"end");
    for place in ["mnt/file", "data/file"] {
        assert!(fs::read(scratch.path(place)).unwrap() == expected, "{place}");
    }
    drop(file);
    scratch.good(&["umount", "mnt"]);
}

/// What one mount has appended is where it belongs for a reader in the other, and for the one that appended itself: each appends in turn,
/// and reads what there is.
#[test]
fn appends_in_turn_are_read_at_once() {
    if !can_mount() {
        return;
    }
    for (line, options) in
        [("hostdir:data", "nopassthrough"), ("wrap / hostdir:data", "nosuid"), ("hostdir:data", "nosuid")]
    {
        let scratch = Scratch::new();
        for directory in ["data", "one", "other"] {
            scratch.make_directory(directory);
        }
        scratch.write("data/shared", "");
        let places = ["one", "other"];
        let mut expected = Vec::new();
        for place in places {
            scratch.good(&["mount", line, place, "-o", options]);
        }
        let open = |place| OpenOptions::new().append(true).read(true).open(scratch.path(place).join("shared")).unwrap();
        let mut files = places.map(open);
        for round in 0..40 {
            for (number, file) in files.iter_mut().enumerate() {
                // Small, and larger than what is written on the engine's thread or in one request.
                let bytes = if round % 8 == 7 { 1_500_000 } else { 10 + round };
                let block: Vec<u8> = (0..bytes).map(|at| (round * 2 + number + at / 100) as u8).collect();
                file.write_all(&block).unwrap();
                expected.extend(block);
                let found = fs::read(scratch.path(places[number]).join("shared")).unwrap();
                assert!(found == expected, "{line}, {options}: {} of {} bytes", found.len(), expected.len());
            }
        }
        assert!(fs::read(scratch.path("data/shared")).unwrap() == expected, "{line}, {options}: below");
        for place in places {
            drop(open(place));
        }
        drop(files);
        for place in places {
            scratch.good(&["umount", place]);
        }
    }
}
