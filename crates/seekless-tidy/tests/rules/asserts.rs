//! Assertions: how many name what they rely on, in the code itself and not in its tests.

use std::collections::BTreeMap;
use std::str::FromStr;

use proc_macro2::{TokenStream, TokenTree};
use seekless_tidy::project::{files_under, read, root};
use seekless_tidy::{ENGINE, OTHERS};

/// The crates that keep the promise that nothing acknowledged is lost.
const KEEPERS: &[&str] = &["seekless-vlog", "seekless-volume", "seekless-layer", "seekless-ffs", "seekless-logfs"];

/// Least named assertions in a hundred functions of these crates.
const IN_HUNDRED_MIN: u64 = 19;

#[derive(Clone, Copy, Default)]
struct Count {
    /// With a message.
    named: u64,
    bare: u64,
    functions: u64,
}

impl Count {
    fn add(&mut self, other: Count) {
        self.named += other.named;
        self.bare += other.bare;
        self.functions += other.functions;
    }
}

/// Counts in everything but what only tests compile.
fn count(tokens: TokenStream) -> Count {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let (mut found, mut for_test) = (Count::default(), false);
    let mut index = 0;
    while index < tokens.len() {
        match (&tokens[index], tokens.get(index + 1), tokens.get(index + 2)) {
            (TokenTree::Punct(mark), Some(TokenTree::Group(group)), _) if mark.as_char() == '#' => {
                let text: String = group.stream().to_string().split_whitespace().collect();
                for_test |= text == "cfg(test)" || text == "test";
                index += 1;
            }
            (TokenTree::Punct(mark), ..) if mark.as_char() == ';' => for_test = false,
            (TokenTree::Ident(word), Some(TokenTree::Punct(mark)), Some(TokenTree::Group(group)))
                if mark.as_char() == '!' && !for_test && conditions(&word.to_string()).is_some() =>
            {
                let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(mark) if mark.as_char() == ',');
                let inner: Vec<TokenTree> = group.stream().into_iter().collect();
                let arguments = inner.split(is_comma).filter(|argument| !argument.is_empty()).count();
                match Some(arguments) > conditions(&word.to_string()) {
                    true => found.named += 1,
                    false => found.bare += 1,
                }
                index += 2;
            }
            (TokenTree::Ident(word), Some(TokenTree::Ident(_)), _) if word == "fn" && !for_test => found.functions += 1,
            (TokenTree::Group(group), ..) => {
                if !for_test {
                    found.add(count(group.stream()));
                }
                if group.delimiter() == proc_macro2::Delimiter::Brace {
                    for_test = false;
                }
            }
            _ => {}
        }
        index += 1;
    }
    found
}

/// Arguments of an assertion before its message.
fn conditions(word: &str) -> Option<usize> {
    match word.trim_start_matches("debug_") {
        "assert" => Some(1),
        "assert_eq" | "assert_ne" => Some(2),
        _ => None,
    }
}

fn of_crate(name: &str) -> Count {
    let mut all = Count::default();
    for path in files_under(&root().join("crates").join(name).join("src"), &[".rs"]) {
        let of_tests = path.iter().any(|part| part == "tests" || part == "tests.rs");
        if !of_tests {
            all.add(count(TokenStream::from_str(&read(&path)).expect("it is Rust")));
        }
    }
    all
}

/// Aim: code says what it relies on, and new code no less than the old. Method: assertions with a message are counted, and
/// functions. `--nocapture` shows the numbers for `docs/testing.md`.
#[test]
fn assertions_are_named() {
    let counts: BTreeMap<&str, Count> =
        [ENGINE, OTHERS].concat().into_iter().map(|name| (name, of_crate(name))).collect();
    let (mut all, mut keepers) = (Count::default(), Count::default());
    for (name, count) in &counts {
        let Count { named, bare, functions } = count;
        println!("{name}: {named} assertions with a message, {bare} without, in {functions} functions");
        all.add(*count);
        if KEEPERS.contains(name) {
            keepers.add(*count);
        }
    }
    println!("all: {} in {}; {KEEPERS:?}: {} in {}", all.named, all.functions, keepers.named, keepers.functions);
    assert!(
        keepers.named * 100 >= keepers.functions * IN_HUNDRED_MIN,
        "{} assertions with a message in {} functions: state the invariants that new code relies on, with their keys",
        keepers.named,
        keepers.functions
    );
}

/// Aim: what only tests compile is not counted, and messages are no conditions. Method: a source with both.
#[test]
fn messages_are_no_conditions() {
    let source = r#"
        fn one() { assert!(a, "why"); debug_assert!(a(b, c)); }
        fn two() { debug_assert_eq!(a, b, "why {}", c); assert_ne!(a, b); if x { assert!(y(|| 1), "why",); } }
        #[cfg(test)] use x::y;
        #[cfg(test)] fn three() { assert!(a, "why"); }
        #[cfg(test)] mod tests { #[test] fn four() { assert!(a, "why"); } }
        fn five() {}
    "#;
    let Count { named, bare, functions } = count(TokenStream::from_str(source).expect("it is Rust"));
    assert_eq!((named, bare, functions), (3, 2, 3));
}
