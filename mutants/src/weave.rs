//! Weaves all mutants into the text of a file, each behind a question whether it is switched on.

use std::ops::Range;

use crate::find::{Form, Mutant};

/// The text with the mutants in it, and for each mutant where its changed text is.
pub(crate) struct Woven {
    pub(crate) text: String,
    /// Number of the mutant, and the bytes that exist for it alone.
    pub(crate) places: Vec<(u32, Range<usize>)>,
}

/// Weaves `mutants`, each with its number, into `text`.
pub(crate) fn weave(text: &str, mutants: &[(u32, &Mutant)]) -> Woven {
    let mut sorted = mutants.to_vec();
    // The outer one first; of the same range, in order of number.
    sorted.sort_by_key(|(number, mutant)| (mutant.range.start, std::cmp::Reverse(mutant.range.end), *number));
    let mut woven = Woven { text: String::with_capacity(text.len() * 2), places: Vec::new() };
    emit(text, 0..text.len(), &sorted, &mut woven);
    woven
}

/// Emits `range` of `text`. `inside` are the mutants in it, in order.
fn emit(text: &str, range: Range<usize>, inside: &[(u32, &Mutant)], woven: &mut Woven) {
    let mut at = range.start;
    let mut rest = inside;
    while let Some(&(number, mutant)) = rest.first() {
        // What overlaps without lying inside cannot be woven in; there are none among parts of a syntax tree, only
        // among texts that were chosen.
        if mutant.range.start < at {
            rest = &rest[1..];
            continue;
        }
        let count = rest[1..].iter().take_while(|(_, other)| other.range.start < mutant.range.end).count();
        let (within, after) = rest[1..].split_at(count);
        woven.text.push_str(&text[at..mutant.range.start]);
        one(text, number, mutant, within, woven);
        at = mutant.range.end;
        rest = after;
    }
    woven.text.push_str(&text[at..range.end]);
}

fn one(text: &str, number: u32, mutant: &Mutant, within: &[(u32, &Mutant)], woven: &mut Woven) {
    let question = format!("if crate::mutant::on({number}) {{ ");
    let (open, close) = match mutant.form {
        Form::Expression => ("(", ")"),
        Form::Statements | Form::Entry => ("", ""),
    };
    woven.text.push_str(open);
    let start = woven.text.len();
    woven.text.push_str(&question);
    woven.text.push_str(&mutant.after);
    woven.text.push_str(" }");
    woven.places.push((number, start..woven.text.len()));
    if mutant.form != Form::Entry {
        woven.text.push_str(" else { ");
        let fitting: Vec<_> = within.iter().copied().filter(|(_, other)| other.range.end <= mutant.range.end).collect();
        emit(text, mutant.range.clone(), &fitting, woven);
        woven.text.push_str(" }");
    }
    woven.text.push_str(close);
}

/// What the libraries of the other crates of the copy get.
pub(crate) const HOOK_ELSEWHERE: &str = "\n#[allow(warnings)]\npub use seekless_core::mutant;\n";

/// What the library of the first crate of the copy gets, for the mutants of all crates to ask.
pub(crate) const HOOK: &str = r#"

/// Which mutant is switched on. Woven in by the tool `mutants`.
#[allow(warnings, clippy::all)]
pub mod mutant {
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    static CHOSEN: LazyLock<u32> =
        LazyLock::new(|| std::env::var("SEEKLESS_MUTANT").ok().and_then(|text| text.parse().ok()).unwrap_or(u32::MAX));
    static REACHED_FILE: LazyLock<Option<std::path::PathBuf>> =
        LazyLock::new(|| std::env::var_os("SEEKLESS_MUTANTS_REACHED").map(Into::into));
    static REACHED: [AtomicBool; 8192] = [const { AtomicBool::new(false) }; 8192];

    #[inline(never)]
    pub fn on(number: u32) -> bool {
        if *CHOSEN == number {
            return true;
        }
        if let Some(path) = &*REACHED_FILE {
            if !REACHED[number as usize].swap(true, Relaxed) {
                use std::io::Write;
                let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).expect("a file");
                writeln!(file, "{number}").expect("room for a line");
            }
        }
        false
    }
}
"#;

#[cfg(test)]
mod tests {
    use super::*;

    fn mutant(form: Form, range: Range<usize>, after: &str) -> Mutant {
        Mutant {
            id: String::new(),
            room: String::new(),
            file: String::new(),
            line: 1,
            function: String::new(),
            kind: "",
            form,
            range,
            before: String::new(),
            after: after.into(),
            why: None,
        }
    }

    /// Aim: mutants inside others, and several of one place, are all there. Method: a small text.
    #[test]
    fn nested() {
        let text = "f(a < b);";
        let (outer, less) = (mutant(Form::Statements, 0..9, ""), mutant(Form::Expression, 2..7, "a <= b"));
        let more = mutant(Form::Expression, 2..7, "a >= b");
        let woven = weave(text, &[(1, &outer), (2, &less), (3, &more)]);
        assert_eq!(
            woven.text,
            "if crate::mutant::on(1) {  } else { f((if crate::mutant::on(2) { a <= b } else { \
             (if crate::mutant::on(3) { a >= b } else { a < b }) })); }"
        );
        assert_eq!(woven.places.len(), 3);
        assert!(woven.text[woven.places[1].1.clone()].contains("a <= b"));
    }
}
