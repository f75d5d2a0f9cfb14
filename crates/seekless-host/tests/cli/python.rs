//! The functions of the Python package, read as text: their own tests need an interpreter and a wheel.

use std::collections::BTreeSet;

use seekless_host::cli::calls::options;
use seekless_tidy::project::{read, root};

/// Options that say what is printed or written, which a function returns.
const PRINTED: &[&str] = &["json", "list", "histogram", "check", "dry_run", "rows", "svg", "force", "output"];

/// Parameters of functions that no option is for.
const ADDED: &[&str] = &["progress", "requests", "executor", "batch"];

/// Each function, its file, and the name of its first parameter with the name that the command has for it.
const FUNCTIONS: &[(&str, &str, (&str, &str))] = &[
    ("replay", "_commands.py", ("trace", "files")),
    ("advise", "_commands.py", ("trace", "files")),
    ("clean", "_commands.py", ("policies", "policies")),
    ("run", "_experiments.py", ("experiment", "experiment")),
];

/// A function of Python has the options of its command, and gives each of them on.
#[test]
fn functions_have_the_options_of_their_commands() {
    for (name, file, (first, positional)) in FUNCTIONS {
        let text = read(&root().join("python/seekless").join(file));
        let (parameters, body) = function(&text, name);
        let known = options(&[(*name).to_owned()]).expect("a command");
        let known = known.as_array().expect("a list").iter().map(|option| option["name"].as_str().expect("a name"));
        let known: BTreeSet<&str> = known
            .filter(|name| !PRINTED.contains(name))
            .map(|name| if name == *positional { first } else { name })
            .collect();
        let own: BTreeSet<&str> = parameters.iter().copied().filter(|name| !ADDED.contains(name)).collect();
        assert_eq!(own, known, "{file}: parameters of {name}, and options of `seekless {name}`");
        let used: BTreeSet<&str> = body.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let unused: Vec<&&str> = own.iter().filter(|name| !used.contains(**name)).collect();
        assert!(unused.is_empty(), "{file}: {name} does not use {unused:?}");
    }
}

/// The parameters of a function at the outermost level of a file, one on each line, and its statements without the description.
fn function<'a>(text: &'a str, name: &str) -> (Vec<&'a str>, &'a str) {
    let begin = format!("\ndef {name}(\n");
    let (_, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("there is no function {name}"));
    let (parameters, rest) = rest.split_once("\n) -> ").expect("the end of the parameters");
    let names = parameters.lines().filter_map(|line| line.split([':', '=']).next()).map(str::trim);
    let names = names.filter(|name| *name != "*,").collect();
    let body = rest.split_once("\ndef ").map_or(rest, |(body, _)| body);
    let statements = body.splitn(3, "\"\"\"").nth(2).expect("statements behind the description");
    (names, statements)
}
