//! Which room may import which.

use std::collections::BTreeMap;

use seekless_tidy::project::{files_under, read, root, short};
use seekless_tidy::rust::{Named, Source, sources};
use seekless_tidy::{ENGINE, engine, report};

/// Rooms that a room must not know although they come before it in the list: importing one would couple two parts that
/// should be interchangeable. A folder inside a room is written with a slash.
const MUST_NOT_KNOW: &[(&str, &str, &str)] = &[
    ("cleaning", "device", "a policy decides about segments, and does not see what they are stored on"),
    ("cleaning", "rt", "a policy measures time in what is written"),
    ("fs", "disk", "a file system learns about its device from `geometry()`, `guarantees()` and `head()` alone"),
    ("fs", "volume", "a file system learns about its device from `geometry()`, `guarantees()` and `head()` alone"),
    ("vlog", "disk", "the virtual log learns about its device from `geometry()`, `guarantees()` and `head()` alone"),
    ("vlog", "volume", "the virtual log works on any device"),
    ("fs/lfs", "fs/ffs", "file systems share `fs/`, not each other's insides"),
    ("fs/ffs", "fs/lfs", "file systems share `fs/`, not each other's insides"),
    ("fs/lfs", "fs/vlfs", "file systems share `fs/`, not each other's insides"),
    ("fs/vlfs", "fs/lfs", "file systems share `fs/`, not each other's insides"),
    ("fs/vlfs", "fs/ffs", "file systems share `fs/`, not each other's insides"),
    ("fs/ffs", "fs/vlfs", "file systems share `fs/`, not each other's insides"),
    ("fs/ffs", "fs/logfs", "what is above a log is for file systems that have one"),
    ("fs/logfs", "fs/lfs", "what is above a log does not know which"),
    ("fs/logfs", "fs/vlfs", "what is above a log does not know which"),
    ("layer", "device", "a layer works on any file system and has no device"),
    ("layer", "disk", "a layer works on any file system and has no device"),
    ("layer", "fs/lfs", "a layer works on any file system"),
    ("layer", "fs/ffs", "a layer works on any file system"),
    ("layer", "fs/vlfs", "a layer works on any file system"),
];

/// Imports that break a rule for a reason, each with the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("layer", "crate::device::Data", "the bytes that `read` and `write` carry"),
    ("layer", "crate::device::Counter", "the counters that a layer reports"),
];

/// Rooms that a test may use although they come after its room: the model, the generators and the explorers.
const TESTS_MAY_USE: &[&str] = &["testing"];

/// The order of the rooms, as `lib.rs` lists it.
fn order() -> Vec<String> {
    let text = read(&root().join("crates/seekless/src/lib.rs"));
    let line = text.lines().find_map(|line| line.strip_prefix("//! Rooms in import order: "));
    let line = line.expect("lib.rs has a line `//! Rooms in import order: ...`");
    let names = line.split('`').nth(1).expect("the rooms stand between backquotes");
    names.split_whitespace().map(str::to_string).collect()
}

/// Macros that the engine exports, with the room in which they are.
fn macros(sources: &[Source]) -> BTreeMap<String, String> {
    let exported = |source: &Source| {
        let room = source.module.first().cloned().unwrap_or_default();
        source.macros.iter().map(move |name| (name.clone(), room.clone())).collect::<Vec<_>>()
    };
    sources.iter().flat_map(exported).collect()
}

/// True when `module` is the room `room`, or the folder in it that `room` names.
fn is_in(module: &[String], room: &str) -> bool {
    let parts: Vec<&str> = room.split('/').collect();
    module.len() >= parts.len() && module.iter().zip(&parts).all(|(one, two)| one == two)
}

/// The violation when `source` names another crate of the engine: `lib.rs` shows their contents under the paths of
/// `seekless`, and the rules are about these.
fn judge_crates(source: &Source, named: &Named) -> Option<String> {
    let is_ours = ENGINE.iter().any(|name| name.replace('-', "_") == named.parts[0]);
    let of_room = !source.module.is_empty() && named.line > 0;
    (is_ours && of_room).then(|| {
        let path = named.parts.join("::");
        format!("{}:{}: {path}: only lib.rs names other crates of the engine", short(&source.path), named.line)
    })
}

/// The violation when `source` names `named`, if any.
fn judge(source: &Source, named: &Named, order: &[String], macros: &BTreeMap<String, String>) -> Option<String> {
    if named.parts[0] != "crate" || source.module.is_empty() || named.line == 0 {
        return None;
    }
    let mut target = named.parts[1..].to_vec();
    if let Some(room) = macros.get(&target[0]) {
        target = vec![room.clone()];
    }
    let place = |room: &String| order.iter().position(|other| other == room);
    let (from, to) = (&source.module[0], &target[0]);
    let path = named.parts.join("::");
    let at = format!("{}:{}: {path}", short(&source.path), named.line);
    let (Some(from_place), Some(to_place)) = (place(from), place(to)) else {
        return Some(format!("{at}: `{to}` or `{from}` is no room of lib.rs"));
    };
    if to_place > from_place && !(named.in_test && TESTS_MAY_USE.contains(&to.as_str())) {
        let hint = if named.in_test { "tests of a room may use `testing` besides what lies above" } else { "" };
        return Some(format!("{at}: `{from}` is above `{to}` and must not use it {hint}"));
    }
    let excepted = EXCEPTIONS.iter().any(|(room, exception, _)| is_in(&source.module, room) && path == *exception);
    let forbidden = MUST_NOT_KNOW.iter().find(|(room, other, _)| is_in(&source.module, room) && is_in(&target, other));
    match forbidden {
        Some((room, other, why)) if !named.in_test && !excepted => {
            Some(format!("{at}: `{room}` must not know `{other}`: {why}"))
        }
        _ => None,
    }
}

/// Aim: each room of the engine uses only those above it. Method: every path in every source that begins at the root of
/// the crate.
#[test]
fn rooms_use_only_rooms_above() {
    let sources = engine();
    let (order, macros) = (order(), macros(&sources));
    assert!(macros.contains_key("record"), "exported macros are found");
    for source in &sources {
        if let Some(room) = source.module.first() {
            assert!(order.contains(room), "lib.rs does not say where `{room}` is in the order of the rooms");
        }
    }
    let all = sources.iter().flat_map(|source| source.named.iter().map(move |named| (source, named)));
    let (mut checked, mut problems) = (0, Vec::new());
    for (source, named) in all {
        checked += 1;
        problems.extend(judge(source, named, &order, &macros));
        problems.extend(judge_crates(source, named));
    }
    assert!(checked > 1_000, "only {checked} paths were found: the search is broken");
    report(&problems, "Move what is used into a room above, or hand it in from outside (DESIGN: \"The house\").");
}

/// Aim: a file system behaves the same mounted and simulated. Method: no code of the engine or the laboratory asks whether
/// time is virtual, but `rt` itself, which knows.
#[test]
fn the_engine_does_not_ask_which_clock_runs() {
    let lab = sources(&root().join("crates/seekless-lab/src"));
    let mut problems = Vec::new();
    for source in engine().into_iter().chain(lab).filter(|source| source.module.first().is_none_or(|room| room != "rt"))
    {
        for (_, line) in source.words.iter().filter(|(word, _)| word == "is_virtual") {
            problems.push(format!("{}:{line}: asks whether time is virtual", short(&source.path)));
        }
    }
    report(&problems, "Make it an option with a default that holds for both, or let the caller hand in what differs.");
}

/// Only for tests, not for the engine: it reads the variables of `docs/testing.md`.
const FOR_TESTS: [&str; 2] = ["testing", "environment"];

/// Aim: the engine stays deterministic and safe. Method: forbidden words; clippy.toml catches more, where it sees
/// types.
#[test]
fn the_engine_has_no_clock_no_thread_and_no_unsafe() {
    const FORBIDDEN: &[(&[&str], &str)] = &[
        (&["std", "thread"], "the engine starts no thread"),
        (&["std", "time"], "time is `rt.now()`, `rt.wall()` and `units::Nanos`"),
        (&["std", "env"], "the engine is configured by its caller"),
        (&["std", "net"], "the engine has no network"),
        (&["std", "process"], "the engine starts no process"),
        (&["std", "fs"], "real files live in the host crate"),
        (&["libc"], "the operating system lives in the host crate"),
        (&["rustix"], "the operating system lives in the host crate"),
    ];
    let mut problems = Vec::new();
    for source in engine() {
        let is_for_tests = source.module == FOR_TESTS;
        for named in source.named.iter().filter(|named| !named.in_test && !is_for_tests) {
            let forbidden = FORBIDDEN.iter().find(|(path, _)| {
                named.parts.len() >= path.len() && named.parts.iter().zip(*path).all(|(a, b)| a == b)
            });
            problems.extend(
                forbidden
                    .map(|(path, why)| format!("{}:{}: {}: {why}", short(&source.path), named.line, path.join("::"))),
            );
        }
        let is_unsafe = source.words.iter().filter(|(word, _)| word == "unsafe");
        problems.extend(is_unsafe.map(|(_, line)| format!("{}:{line}: unsafe", short(&source.path))));
    }
    report(&problems, "What needs the real world belongs into the host crate, behind an interface of the engine.");
    let manifest: toml::Table = read(&root().join("Cargo.toml")).parse().expect("the workspace has a manifest");
    let lints = &manifest["workspace"]["lints"];
    assert_eq!(lints["rust"]["unsafe_code"].as_str(), Some("forbid"), "the compiler forbids unsafe code, too");
    for (name, lint) in [("disallowed_methods", "deny"), ("disallowed_types", "deny")] {
        assert_eq!(lints["clippy"][name].as_str(), Some(lint), "{name}");
    }
    for name in ENGINE {
        let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
        assert!(manifest.contains("[lints]\nworkspace = true\n"), "{name} has the lints of the workspace");
    }
}

/// Aim: the laboratory stays free of mounts, hosts and Python, and the engine of both. Method: the dependencies in the
/// manifests.
#[test]
fn crates_depend_on_crates_below() {
    const RULES: &[(&str, &[&str])] = &[
        ("seekless-lab", &["seekless-host", "seekless-py", "libc", "io-uring", "fuser", "pyo3"]),
        ("seekless-host", &["seekless-py", "pyo3"]),
    ];
    const FOR_ENGINE: &[&str] =
        &["seekless-lab", "seekless-host", "seekless-py", "libc", "rustix", "io-uring", "fuser", "pyo3"];
    let mut problems = Vec::new();
    for (name, forbidden) in ENGINE.iter().map(|&name| (name, FOR_ENGINE)).chain(RULES.iter().copied()) {
        let path = root().join("crates").join(name).join("Cargo.toml");
        let manifest: toml::Table = read(&path).parse().unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for table in ["dependencies", "build-dependencies"] {
            let dependencies = manifest.get(table).and_then(toml::Value::as_table);
            let found = dependencies.into_iter().flat_map(|table| table.keys());
            let found = found.filter(|found| forbidden.contains(&found.as_str()));
            problems.extend(found.map(|found| format!("{} depends on {found}", short(&path))));
        }
    }
    report(&problems, "The engine imports neither; the laboratory imports the engine alone; the host imports both.");
}

/// Aim: the laboratory does not even name the host. Method: the sources, where a path could sneak in.
#[test]
fn the_laboratory_knows_no_mount() {
    let mut problems = Vec::new();
    for path in files_under(&root().join("crates/seekless-lab/src"), &[".rs"]) {
        for word in ["seekless_host", "/dev/fuse"] {
            if read(&path).contains(word) {
                problems.push(format!("{} names {word}", short(&path)));
            }
        }
    }
    report(&problems, "The laboratory works on any `FileSystem`.");
}
