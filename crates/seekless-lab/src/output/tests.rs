//! Aim: a name refers to the old file or to the complete new one, and protected files are not replaced. Method: files,
//! links and devices in a temporary directory, for both ways of making a new file.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

const NEVER: Wish = Wish { replace: Replace::Never(FORCE), permissions: 0o666, sources: Sources(Vec::new()) };
const ALWAYS: Wish = Wish { replace: Replace::Always, permissions: 0o666, sources: Sources(Vec::new()) };

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = entries.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

/// A file with a temporary name until it is complete, as on file systems without unnamed files.
fn begin_named(path: &Path, wish: &Wish) -> NewFile {
    let place = Destination::of(path).unwrap();
    place.admit(wish).unwrap();
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
    let make = |name: &OsStr| rustix::fs::openat(&place.directory, name, flags, Mode::from_raw_mode(wish.permissions));
    let (file, name) = place.under_new_name(make).unwrap();
    NewFile { file: file.into(), place, wish: wish.clone(), temporary: Some(name) }
}

type Begin = fn(&Path, &Wish) -> NewFile;
const BOTH: [Begin; 2] = [|path, wish| NewFile::begin(path, wish).unwrap(), begin_named];

/// The old file is there until the new one is complete; an abandoned one leaves nothing.
#[test]
fn a_file_is_there_as_a_whole() {
    for begin in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let mut file = begin(&path, &NEVER);
        file.write_all(b"half").unwrap();
        assert!(!path.exists());
        drop(file);
        assert_eq!(names(directory.path()), [""; 0]);

        let mut file = begin(&path, &NEVER);
        file.write_all(b"one").unwrap();
        file.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        let mut file = begin(&path, &ALWAYS);
        file.write_all(b"tw").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        file.write_all(b"o").unwrap();
        let mut still_open = file.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        still_open.write_all(b"!").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two!");
        assert_eq!(names(directory.path()), ["f"]);
    }
}

/// Of two concurrent writers to one new name one is too late, and gets an error; with force both are complete, and the
/// later one stays.
#[test]
fn of_two_writers_one_gets_an_error() {
    for begin in BOTH {
        for other in BOTH {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("f");
            let (mut one, mut two) = (begin(&path, &NEVER), other(&path, &NEVER));
            one.write_all(b"one").unwrap();
            two.write_all(b"two").unwrap();
            one.commit().unwrap();
            let error = two.commit().unwrap_err().to_string();
            assert_eq!(error, format!("{} already exists; --force replaces it", path.display()));
            assert_eq!(
                (std::fs::read(&path).unwrap(), names(directory.path())),
                (b"one".to_vec(), vec!["f".to_owned()])
            );
            let (mut one, mut two) = (begin(&path, &ALWAYS), other(&path, &ALWAYS));
            one.write_all(b"three").unwrap();
            two.write_all(b"four").unwrap();
            two.commit().unwrap();
            one.commit().unwrap();
            assert_eq!(
                (std::fs::read(&path).unwrap(), names(directory.path())),
                (b"three".to_vec(), vec!["f".to_owned()])
            );
        }
    }
}

/// Threads that write to one name: one of them makes it, with only its own bytes.
#[test]
fn of_many_writers_one_makes_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f");
    let made: usize = std::thread::scope(|scope| {
        let write = |number: u8| {
            let path = &path;
            scope.spawn(move || usize::from(write(path, &[number; 100_000], &NEVER).is_ok()))
        };
        let threads: Vec<_> = (0..8).map(write).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!((made, bytes.len(), names(directory.path())), (1, 100_000, vec!["f".to_owned()]));
    assert!(bytes.iter().all(|byte| *byte == bytes[0]));
}

/// Anything but a regular file is refused, even with force, and stays unchanged. Links are not followed.
#[test]
fn only_regular_files_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::create_dir(path("d")).unwrap();
    std::fs::write(path("f"), "old").unwrap();
    symlink(path("f"), path("link")).unwrap();
    symlink(path("nowhere"), path("dangling")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let before = names(directory.path());
    for (name, kind) in [
        ("d", "a directory"),
        ("d/", "a directory"),
        ("..", "a directory"),
        ("link", "a symbolic link"),
        ("dangling", "a symbolic link"),
        ("pipe", "a pipe"),
        ("/dev/null", "a device"),
        ("/proc/self/fd/0", "a symbolic link"),
    ] {
        for wish in [&NEVER, &ALWAYS] {
            let error = write(&path(name), b"new", wish).unwrap_err().to_string();
            assert!(error.contains(&format!(" is {kind}; name a regular file")), "{name}: {error}");
            assert_eq!(check(&path(name), wish).unwrap_err().to_string(), error);
        }
    }
    assert_eq!((std::fs::read(path("f")).unwrap(), names(directory.path())), (b"old".to_vec(), before));
    assert!(write(&path("gone/f"), b"new", &NEVER).unwrap_err().to_string().contains("No such file"));
}

/// A source is recognised under any of its names, even with force.
#[test]
fn a_source_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::write(path("f"), "source").unwrap();
    std::fs::hard_link(path("f"), path("hard")).unwrap();
    symlink(path("f"), path("link")).unwrap();
    std::fs::create_dir(path("d")).unwrap();
    for source in ["f", "hard", "link", "d/../f"] {
        let wish = ALWAYS.sources(Sources::of(&[path(source)]));
        for target in ["f", "hard", "d/../f", "./f"] {
            let error = write(&path(target), b"new", &wish).unwrap_err();
            assert!(matches!(error, OutputError::Source { .. }), "{source} {target}: {error}");
        }
        write(&path("other"), b"new", &wish).unwrap();
    }
    assert_eq!(std::fs::read(path("hard")).unwrap(), b"source");
}

/// A name is one however it is spelled; another file in the same directory and the same file's other name are others.
#[test]
fn names_are_one_however_they_are_spelled() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    std::fs::create_dir(path("d")).unwrap();
    symlink(path("d"), path("same")).unwrap();
    std::fs::write(path("d/g"), "").unwrap();
    std::fs::hard_link(path("d/g"), path("d/hard")).unwrap();
    for (one, two, is_one) in [
        ("f", "f", true),
        ("f", "./f", true),
        ("f", "d/../f", true),
        ("d/g", "same/g", true),
        ("d/new", "same/./new", true),
        ("f", "g", false),
        ("g", "d/g", false),
        ("d/hard", "d/g", false),
        ("gone/f", "gone/f", true),
        ("gone/f", "f", false),
    ] {
        assert_eq!(is_one_name(&path(one), &path(two)), is_one, "{one} {two}");
    }
}

/// A file of our own is replaced, another one is not, nor is one that was replaced by another in the meantime.
#[test]
fn own_files_are_replaced() {
    fn ours(file: &File) -> Result<(), String> {
        match beginning(file, 4)?.starts_with(b"ours") {
            true => Ok(()),
            false => Err(", and is not ours".to_owned()),
        }
    }
    let wish = Wish::new(Replace::Own(ours));
    for begin in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        for _ in 0..2 {
            write(&path, b"ours, new", &wish).unwrap();
        }
        let mut file = begin(&path, &wish);
        file.write_all(b"ours, newer").unwrap();
        std::fs::write(&path, "a letter").unwrap();
        let error = file.commit().unwrap_err().to_string();
        assert_eq!(error, format!("{} already exists, and is not ours", path.display()));
        assert!(NewFile::begin(&path, &wish).is_err());
        assert_eq!(
            (std::fs::read(&path).unwrap(), names(directory.path())),
            (b"a letter".to_vec(), vec!["f".to_owned()])
        );
    }
}

/// A new file has the requested permissions, and one that replaces another has the other's.
#[test]
fn permissions_are_kept() {
    for begin in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let mode = || std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        begin(&path, &NEVER.permissions(0o600)).commit().unwrap();
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
        begin(&path, &ALWAYS).commit().unwrap();
        assert_eq!(mode(), 0o640);
    }
}
