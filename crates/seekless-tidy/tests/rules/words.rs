//! Plain English in comments, messages, scripts and pages: the actor has a name, and each thing the field's own word.

use std::path::Path;

use seekless_tidy::project::{files_under, read, root, short};
use seekless_tidy::report;

/// Words to avoid in comments, string literals, scripts and pages, in lower case, and what to write instead.
const PHRASES: &[(&str, &str)] = &[
    ("whoever", "name the actor: the caller, the reader, the writer"),
    ("nobody", "name the actor, or use the passive: \"is not used\", \"no request waits\""),
    ("somebody", "name the actor: another process, a request, the user"),
    ("anybody", "name the actor: any process, any user"),
    ("everybody", "name the actors: all users, all readers"),
    ("for who", "\"for a reader that ...\""),
    ("who reads", "\"a reader that ...\", \"readers\""),
    ("who writes", "\"a writer that ...\", \"writers\""),
    ("who wants", "\"a caller that needs ...\""),
    ("who waits", "\"a task that waits\", \"waiting requests\""),
    ("stands", "\"is\", \"is stored in\", \"represents\""),
    ("is told", "\"receives\", \"gets\", \"learns\"; or \"can be distinguished\""),
    ("are told", "\"receive\", \"get\", \"learn\"; or \"can be distinguished\""),
    ("be told", "\"receive\", \"get\", \"learn\"; or \"be distinguished\""),
    ("has to say", "\"reports\""),
    ("bears", "\"tolerates\", \"survives\""),
    ("for want of", "\"for lack of\", \"without\", or the error's name"),
    ("in vain", "\"needlessly\", \"is wasted\""),
    ("for ever", "\"indefinitely\", \"permanently\""),
    ("meanwhile", "\"in the meantime\", \"concurrently\""),
    ("he", "\"it\", or the name of the part"),
    ("him", "\"it\", or the name of the part"),
    ("half a turn", "\"half a revolution\""),
    ("turn of the disk", "\"a revolution\""),
    ("turn of the platters", "\"a revolution\""),
    ("nothing but", "\"only\""),
    ("anew", "\"again\", or the verb: rewrite, rebuild, recount, reread"),
];

/// Crates that still have such words.
const NOT_SWEPT: &[&str] = &[];

/// Files that need such a word: file, word, reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("crates/seekless-host/src/leaves/hostdir/tests/owners.rs", "nobody", "a user of the system"),
    ("scripts/pjdfstest.sh", "nobody", "a user of the system"),
];

/// Aim: messages of commands show values as users write them, and not as the program holds them (`Sectors { sectors: 64 }`). Method:
/// no `{:?}` in the sources of commands, but in tests and asserts.
#[test]
fn messages_of_commands_have_no_debug_output() {
    let mut found = Vec::new();
    for path in files_under(&root().join("crates/seekless-host/src/cli"), &["rs"]) {
        let text = read(&path);
        let text = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (line, number) in text.lines().zip(1..) {
            let is_message = !["assert", "panic!", "unreachable!"].iter().any(|word| line.contains(word));
            if is_message && (line.contains(":?}") || line.contains(":#?}")) {
                found.push(format!("{}:{number}: {}", short(&path), line.trim()));
            }
        }
    }
    report(&found, "write values in messages as users write them, without {:?}");
}

/// The comments of a source as paragraphs, each with the number of its first line. Code in backticks is left out.
fn comments(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut goes_on = false;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        if trimmed.starts_with("//") {
            let words = trimmed.trim_start_matches(['/', '!']).trim();
            match found.last_mut() {
                Some((_, paragraph)) if goes_on => paragraph.extend([" ", words]),
                _ => found.push((index + 1, words.to_string())),
            }
            goes_on = !words.is_empty();
            continue;
        }
        goes_on = false;
        // Two slashes in a string are not a comment.
        if let Some((code, words)) = line.split_once("// ")
            && code.matches('"').count().is_multiple_of(2)
        {
            found.push((index + 1, words.to_string()));
        }
    }
    found.iter_mut().for_each(|(_, words)| *words = words.split('`').step_by(2).collect::<Vec<_>>().join("``"));
    found
}

/// The string literals of a source, each with the number of its first line.
fn literals(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(next) = text[at..].find(['"', '/', '\'']).map(|next| at + next) {
        let rest = &text[next..];
        let after_raw = text[..next].trim_end_matches('#');
        let hashes = next - after_raw.len();
        at = next
            + match rest.as_bytes()[0] {
                b'/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
                b'\'' if rest.starts_with("'\"'") || rest.starts_with("'/'") => 3,
                b'\'' if rest.starts_with("'\\") => 4,
                b'"' => {
                    let is_raw = after_raw.ends_with('r') && !after_raw[..after_raw.len() - 1].ends_with(is_of_a_name);
                    let length = match is_raw {
                        true => rest[1..].find(&format!("\"{}", "#".repeat(hashes))),
                        false => end_of_string(&rest[1..]),
                    }
                    .unwrap_or(rest.len() - 1);
                    let line = text[..next].matches('\n').count() + 1;
                    found.push((line, rest[1..=length].to_owned()));
                    (length + 2).min(rest.len())
                }
                _ => 1,
            };
    }
    found
}

fn is_of_a_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// Where a string ends whose quotation marks may be escaped.
fn end_of_string(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.find(|letter| {
        let ends = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        ends
    })
}

/// True when `text`, in lower case, has `phrase` as whole words.
fn has(text: &str, phrase: &str) -> bool {
    text.match_indices(phrase).any(|(at, _)| {
        let is_end = |beside: Option<char>| beside.is_none_or(|beside| !beside.is_alphanumeric() && beside != '_');
        is_end(text[..at].chars().next_back()) && is_end(text[at + phrase.len()..].chars().next())
    })
}

/// The names of functions in a source, as words, each with the number of its line.
fn names(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (at, _) in line.match_indices("fn ").filter(|(at, _)| !line[..*at].ends_with(is_of_a_name)) {
            let name = line[at + 3..].split(|letter| !is_of_a_name(letter)).next().unwrap_or_default();
            found.push((index + 1, name.replace('_', " ")));
        }
    }
    found
}

/// The phrases in the comments, literals and names of `text`: line, phrase, what to write instead.
fn phrases_in(text: &str) -> Vec<(usize, &'static str, &'static str)> {
    phrases_of(comments(text).into_iter().chain(literals(text)).chain(names(text)))
}

fn phrases_of(parts: impl IntoIterator<Item = (usize, String)>) -> Vec<(usize, &'static str, &'static str)> {
    let mut found = Vec::new();
    for (line, words) in parts {
        let words = words.to_lowercase();
        found.extend(PHRASES.iter().filter(|(bad, _)| has(&words, bad)).map(|(bad, good)| (line, *bad, *good)));
    }
    found
}

/// The sources and tests of every crate that has been swept, except this file, which quotes bad comments.
fn swept() -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(root().join("crates")).expect("there are crates");
    let crates = entries.map(|entry| entry.expect("an entry").path());
    let is_swept = |folder: &Path| !NOT_SWEPT.iter().any(|name| folder.ends_with(name));
    let mut files: Vec<_> =
        crates.filter(|folder| is_swept(folder)).flat_map(|folder| files_under(&folder, &[".rs"])).collect();
    files.retain(|path| !path.ends_with("rules/words.rs"));
    files
}

/// Scripts, programs in other languages, and experiments.
fn scripts() -> Vec<std::path::PathBuf> {
    let folders = ["scripts", "python/seekless", "python/tests", "mutants", "fuzz", ".ci", "experiments"];
    let ends = [".sh", ".py", ".toml", "run"];
    let mut files: Vec<_> = folders.iter().flat_map(|folder| files_under(&root().join(folder), &ends)).collect();
    files.push(root().join("Makefile"));
    files.retain(|path| !path.iter().any(|part| part == "target" || part == "corpus"));
    files
}

/// Aim: comments, messages and scripts can be read once and understood. Method: every comment, string literal and name of a function
/// in the sources of every swept crate, every line of the scripts, the Makefile and the experiments.
#[test]
fn sources_are_plain_english() {
    let mut problems = Vec::new();
    let mut used = vec![false; EXCEPTIONS.len()];
    let lines =
        |text: &str| text.lines().enumerate().map(|(index, line)| (index + 1, line.to_owned())).collect::<Vec<_>>();
    let of_sources = swept().into_iter().map(|path| (short(&path), phrases_in(&read(&path))));
    let of_scripts = scripts().into_iter().map(|path| (short(&path), phrases_of(lines(&read(&path)))));
    for (name, found) in of_sources.chain(of_scripts) {
        for (line, bad, good) in found {
            match EXCEPTIONS.iter().position(|(file, word, _)| *file == name && *word == bad) {
                Some(exception) => used[exception] = true,
                None => problems.push(format!("{name}:{line}: \"{bad}\": write {good}")),
            }
        }
    }
    let unused = EXCEPTIONS.iter().zip(used).filter(|(_, used)| !used);
    problems.extend(unused.map(|((file, word, _), _)| format!("{file} no longer needs \"{word}\" in EXCEPTIONS")));
    problems.sort();
    report(&problems, "A line is the first of its comment or literal. Write in the present tense, and name the actor.");
}

/// The paragraphs of a page, each with the number of its first line. Blocks of code, and code in backticks, are left out.
fn paragraphs(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut in_block, mut goes_on) = (false, false);
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        let words = line.trim();
        if fence || in_block || words.is_empty() {
            goes_on = false;
            continue;
        }
        match found.last_mut() {
            Some((_, paragraph)) if goes_on && !words.starts_with('|') => paragraph.extend([" ", words]),
            _ => found.push((index + 1, words.to_string())),
        }
        goes_on = true;
    }
    found.iter_mut().for_each(|(_, words)| *words = words.split('`').step_by(2).collect::<Vec<_>>().join("``"));
    found
}

/// Aim: pages can be read once and understood. Method: the paragraphs of every page.
#[test]
fn pages_are_plain_english() {
    let mut problems = Vec::new();
    for path in files_under(&root(), &[".md"]) {
        for (line, words) in paragraphs(&read(&path)) {
            let words = words.to_lowercase();
            let found = PHRASES.iter().filter(|(bad, _)| has(&words, bad));
            problems.extend(found.map(|(bad, good)| format!("{}:{line}: \"{bad}\": write {good}", short(&path))));
        }
    }
    report(&problems, "A line is the first of its paragraph. Write in the present tense, and name the actor.");
}

/// Sentences of a paragraph that are too long to be read once.
const SENTENCE_WORDS_MAX: usize = 60;

/// Aim: no sentence has to be read twice. Method: the paragraphs of every page, divided at stops, semicolons and items of lists; cells of
/// tables are no sentences.
#[test]
fn sentences_are_short() {
    let mut problems = Vec::new();
    let is_ours = |path: &Path| !path.ends_with("LICENCE.md");
    for path in files_under(&root(), &[".md"]).into_iter().filter(|path| is_ours(path)) {
        for (line, words) in paragraphs(&read(&path)).into_iter().filter(|(_, words)| !words.starts_with('|')) {
            let parts = words.split(". ").flat_map(|part| part.split("; ")).flat_map(|part| part.split(" - "));
            for sentence in parts {
                let count = sentence.split_whitespace().count();
                if count >= SENTENCE_WORDS_MAX {
                    problems.push(format!("{}:{line}: {count} words: {sentence:.60}...", short(&path)));
                }
            }
        }
    }
    report(&problems, "Divide them.");
}

/// Aim: the rule sees comments, literals and prose, and no code. Method: texts with a word in every kind of place.
#[test]
fn words_are_found() {
    let text = "
        //! Nobody waits.
        /// The map is
        /// told of it.
        fn f() {} // It stands here.
        let url = \"http://a// he\"; // `whoever` is code.
        let nobody = \"for ever\";
        // The header says when.
        let quote = '\"'; let escaped = \"\\\" he\"; let raw = r#\"a \" somebody\"#; let end = he;
    ";
    let found: Vec<(usize, &str)> = phrases_in(text).into_iter().map(|(line, bad, _)| (line, bad)).collect();
    assert_eq!(
        found,
        [(2, "nobody"), (2, "is told"), (5, "stands"), (6, "he"), (7, "for ever"), (9, "he"), (9, "somebody"),]
    );
    let page = "# Who\n\nThe map is\ntold, `anew`.\n\n```text\nnobody\n```\n| a |\n| stands |\n";
    let found = paragraphs(page).into_iter().filter(|(_, words)| PHRASES.iter().any(|(bad, _)| has(words, bad)));
    assert_eq!(found.map(|(line, _)| line).collect::<Vec<_>>(), [3, 10]);
}
