//! Files that import each other, in a circle: none of them can be read, tested or moved alone.

use std::collections::{BTreeMap, BTreeSet};

use seekless_tidy::project::{root, short};
use seekless_tidy::rust::{Source, sources};
use seekless_tidy::{ENGINE, OTHERS, report};

/// What a file imports, and shows under its own path: the file and the name, and the path of the item.
fn shown<'a>(sources: &'a [Source]) -> BTreeMap<(usize, &'a str), Vec<String>> {
    let of_file = |(index, source): (usize, &'a Source)| {
        let uses = source.named.iter().filter(|named| named.in_use && !named.in_test);
        uses.filter_map(move |named| {
            let path = match named.parts[0].as_str() {
                "crate" => named.parts[1..].to_vec(),
                _ => [&source.module[..], &named.parts].concat(),
            };
            Some(((index, named.parts.last()?.as_str()), path))
        })
    };
    sources.iter().enumerate().flat_map(of_file).collect()
}

/// Which files each file of a crate imports. A `mod.rs` re-exports its own children, which is not an import.
fn imports(sources: &[Source]) -> BTreeMap<usize, BTreeSet<usize>> {
    let places: BTreeMap<&[String], usize> =
        sources.iter().enumerate().map(|(index, source)| (&source.module[..], index)).collect();
    let shown = shown(sources);
    let target = |parts: &[String]| {
        let mut path = parts.strip_prefix(&["crate".to_owned()])?;
        // Names of types and of functions are not told apart, so two files may seem to show each other's.
        for _ in 0..8 {
            let (file, length) =
                (1..=path.len()).rev().find_map(|length| Some((*places.get(&path[..length])?, length)))?;
            match path.get(length).and_then(|name| shown.get(&(file, &name[..]))) {
                Some(real) => path = real,
                None => return Some(file),
            }
        }
        None
    };
    let imported = |(index, source): (usize, &Source)| {
        let named = source.named.iter().filter(|named| !named.in_test).filter_map(|named| target(&named.parts));
        let others = named.filter(|&other| other != index && !sources[other].module.starts_with(&source.module));
        (index, others.collect())
    };
    sources.iter().enumerate().map(imported).collect()
}

/// The files reachable from `start`.
fn reached(imports: &BTreeMap<usize, BTreeSet<usize>>, start: usize) -> BTreeSet<usize> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
    while let Some(at) = next.pop() {
        next.extend(imports[&at].iter().filter(|other| seen.insert(**other)));
    }
    seen
}

/// The circles of a crate: sets of files each of which reaches all others.
fn circles(sources: &[Source]) -> Vec<Vec<String>> {
    let imports = imports(sources);
    let reached: Vec<_> = (0..sources.len()).map(|index| reached(&imports, index)).collect();
    let circle_of = |index: usize| -> Vec<String> {
        let all =
            (0..sources.len()).filter(|&other| reached[index].contains(&other) && reached[other].contains(&index));
        all.map(|other| short(&sources[other].path)).collect()
    };
    let found: BTreeSet<Vec<String>> = (0..sources.len()).map(circle_of).filter(|circle| circle.len() > 1).collect();
    found.into_iter().collect()
}

/// Aim: there are no circles. Method: the imports of every file of every crate, tests left out.
#[test]
fn files_do_not_import_each_other_in_circles() {
    let mut problems = Vec::new();
    for name in ENGINE.iter().chain(OTHERS) {
        let sources = sources(&root().join("crates").join(name).join("src"));
        problems.extend(
            circles(&sources).iter().map(|circle| format!("these files import each other: {}", circle.join(", "))),
        );
    }
    report(&problems, "Move what both need into a file of its own, or hand it in as an argument.");
}
