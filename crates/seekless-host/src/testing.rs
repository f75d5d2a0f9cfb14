//! For the tests of this crate: what they need of a machine, and what happens where it is missing.
//!
//! A test that cannot run here says so and passes, so that `make test` is of use on any machine. Where it must run,
//! `SEEKLESS_REQUIRE=fuse,root` turns what was skipped into a failure; `SEEKLESS_REQUIRE=all` allows no skipping.

use std::fmt;
use std::io::Write;

/// What the fuzzer calls: requests as no kernel sends them. Panics when something that always holds does not.
pub fn fuse_request(input: &[u8]) {
    crate::fuse::fuzz::requests(input);
}

/// Something that a machine may not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// To be root, with all rights.
    Root,
    /// `/dev/fuse`, and being allowed to mount it.
    Fuse,
    /// FUSE for ordinary users: `fusermount3`, and a `/dev/fuse` that anybody may open.
    UserFuse,
    /// A free loop device.
    Loop,
    /// A tmpfs of a test's own.
    Tmpfs,
    /// io_uring.
    Uring,
    /// A temporary directory in which holes can be punched.
    Punch,
    /// Clients of NBD: `nbdinfo`, `nbdcopy`, `qemu-img`, `fio`.
    Nbd,
}

impl Need {
    pub const ALL: [Need; 8] =
        [Need::Root, Need::Fuse, Need::UserFuse, Need::Loop, Need::Tmpfs, Need::Uring, Need::Punch, Need::Nbd];

    /// The word for it in `SEEKLESS_REQUIRE`.
    pub fn word(self) -> &'static str {
        match self {
            Need::Root => "root",
            Need::Fuse => "fuse",
            Need::UserFuse => "user-fuse",
            Need::Loop => "loop",
            Need::Tmpfs => "tmpfs",
            Need::Uring => "uring",
            Need::Punch => "punch",
            Need::Nbd => "nbd",
        }
    }
}

/// Whether `wanted`, the value of `SEEKLESS_REQUIRE`, contains `need`.
///
/// # Errors
/// Which word of it means nothing.
fn is_required(wanted: &str, need: Need) -> Result<bool, String> {
    let words: Vec<&str> = wanted.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
    let known = |word: &str| word == "all" || Need::ALL.iter().any(|need| need.word() == word);
    if let Some(unknown) = words.iter().find(|word| !known(word)) {
        let all: Vec<&str> = Need::ALL.iter().map(|need| need.word()).collect();
        return Err(format!("SEEKLESS_REQUIRE: {unknown:?} is none of all, {}", all.join(", ")));
    }
    Ok(words.contains(&"all") || words.contains(&need.word()))
}

/// Says that the running test, or a part of it, is left out for want of `need`.
///
/// # Panics
/// When `SEEKLESS_REQUIRE` asks for `need`.
#[track_caller]
pub fn skip(need: Need, why: impl fmt::Display) {
    let wanted = std::env::var("SEEKLESS_REQUIRE").unwrap_or_default();
    match is_required(&wanted, need) {
        Ok(true) => panic!("{why}, and SEEKLESS_REQUIRE={wanted} demands it"),
        Ok(false) => {
            let thread = std::thread::current();
            let test = thread.name().unwrap_or("a test");
            // Not `eprintln`, which the test harness keeps to itself when a test passes.
            let _ = writeln!(std::io::stderr(), "skipped ({}) {test}: {why}", need.word());
        }
        Err(error) => panic!("{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: a word that is demanded is found, and a misspelt one is not taken for nothing. Method: a few values.
    #[test]
    fn requirements() {
        assert_eq!(is_required("", Need::Fuse), Ok(false));
        assert_eq!(is_required("root, fuse", Need::Fuse), Ok(true));
        assert_eq!(is_required("root,user-fuse", Need::Fuse), Ok(false));
        assert_eq!(is_required("all", Need::Loop), Ok(true));
        assert!(is_required("fuse,rooot", Need::Fuse).is_err_and(|error| error.contains("rooot")));
    }
}
