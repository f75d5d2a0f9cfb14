//! Commands that are not run are right as they are written: the program's own parser accepts them.

use std::ffi::OsString;

use seekless::stack::Stack;
use seekless_host::cli::accept;

use super::commands::blocks;
use super::shell::calls;
use super::{pages, read, short};

/// A call of the program on a page.
struct Call {
    place: String,
    words: Vec<String>,
    is_run: bool,
}

/// All calls in command blocks.
fn all_calls() -> Vec<Call> {
    let mut found = Vec::new();
    for page in pages() {
        let name = short(&page);
        for block in blocks(&read(&page)).unwrap_or_else(|problem| panic!("{name}: {problem}")) {
            let place = format!("{name}:{}", block.line);
            let calls = calls("seekless", &block.text).unwrap_or_else(|problem| panic!("{place}: {problem}"));
            let is_run = block.not_run.is_none();
            found.extend(calls.into_iter().map(|words| Call { place: place.clone(), words, is_run }));
        }
    }
    found
}

fn parse(words: &[String]) -> Result<(), String> {
    accept(&words.iter().map(OsString::from).collect::<Vec<_>>())
}

/// Aim: no page has a command that is wrong as written, though no test runs it. Method: the program parses each call, with the
/// words inside its arguments. Blocks that are run count, too: those that mount are left out where that is impossible.
#[test]
fn calls_on_pages_are_accepted() {
    let calls = all_calls();
    let not_run = calls.iter().filter(|call| !call.is_run).count();
    eprintln!("{} calls were parsed, {not_run} of them of blocks that are not run", calls.len());
    let problems: Vec<String> = calls
        .iter()
        .filter_map(|Call { place, words, .. }| Some(format!("{place}: {}\n{}", words.join(" "), parse(words).err()?)))
        .collect();
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n\n"));
    // On 29 November there were 183, 51 of them not run.
    assert!(calls.len() > 150 && not_run > 35, "only {} and {not_run} calls: the search is broken", calls.len());
}

/// Aim: a mistake in a command of a page is noticed. Method: each call with a misspelt command, with an unknown option, and with an
/// unknown option in each of its stack lines.
#[test]
fn changed_calls_are_refused() {
    let (mut accepted, mut stacks) = (Vec::new(), 0);
    let mut try_one = |call: &Call, change: &dyn Fn(&mut Vec<String>)| {
        let mut words = call.words.clone();
        change(&mut words);
        if parse(&words).is_ok() {
            accepted.push(format!("{}: {}", call.place, words.join(" ")));
        }
    };
    for call in all_calls().iter().filter(|call| call.words.len() > 1) {
        try_one(call, &|words| words[1].push('x'));
        try_one(call, &|words| words.insert(2, "--no-such-option".to_owned()));
        for at in 2..call.words.len() {
            let word = &call.words[at];
            if !word.contains(':') || Stack::parse(word).is_err() {
                continue;
            }
            stacks += 1;
            try_one(call, &|words| words[at] += ",no-such-option=1");
        }
    }
    assert!(accepted.is_empty(), "these are accepted:\n{}", accepted.join("\n"));
    assert!(stacks > 70, "only {stacks} stack lines were changed");
}
