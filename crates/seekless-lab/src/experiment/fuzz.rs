//! What is done with arbitrary bytes as an experiment's files: any input is accepted, and invariants are checked.

use super::Description;
use super::plan;
use super::published;

/// The target of the fuzzer. The first byte gives the length of the description in the rest; published points follow.
pub fn any(input: &[u8]) {
    let Some((&share, input)) = input.split_first() else { return };
    let split = match share {
        u8::MAX => input.len(),
        share => input.len() * usize::from(share) / usize::from(u8::MAX),
    };
    let (description, points) = input.split_at(split);
    let (Ok(description), Ok(points)) = (std::str::from_utf8(description), std::str::from_utf8(points)) else { return };
    let read: Description = match toml::from_str(description) {
        Ok(read) => read,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    if let Err(problem) = read.check() {
        return assert!(!problem.is_empty());
    }
    // A valid description is written and read again unchanged.
    let written = toml::to_string(&read).unwrap_or_else(|error| panic!("{error}: {description:?}"));
    let again: Description = toml::from_str(&written).unwrap_or_else(|error| panic!("{error}: {written:?}"));
    assert_eq!(toml::to_string(&again).ok().as_ref(), Some(&written), "{description:?}");
    assert_eq!(again.check(), Ok(()), "{written:?}");
    // A plan has a bounded number of places, however many values are combined.
    match plan::combinations(&read) {
        Ok(combinations) => {
            assert!(combinations.len() * read.contestants.len() <= plan::PLACES_MAX);
            assert!(read.variables.values().all(|variable| combinations.len().is_multiple_of(variable.values.len())));
        }
        Err(problem) => assert!(problem.contains("places")),
    }
    match published::parse(points, &read.columns().expect("a description that was checked")) {
        Ok(points) => assert!(points.iter().all(|point| point.value.is_finite() && !point.source.is_empty())),
        Err(problem) => assert!(!problem.is_empty()),
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::path::Path;

    use seekless::rng::Rng;

    use super::*;

    const PIECES: &[&[u8]] = &[
        b"1e308",
        b"-1",
        b"99999999999999999999",
        b"[",
        b"]",
        b"{",
        b"}",
        b"\"",
        b"\n",
        b"values = []",
        b"values = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]",
        b"\n[variables.more]\n",
        b"\xff",
    ];

    /// Aim: no description does harm. Method: the inputs kept in `fuzz/seeds`, and random changes of them.
    #[test]
    fn damaged_descriptions_do_no_harm() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/experiment");
        let entries = std::fs::read_dir(&folder).unwrap();
        let kept: Vec<Vec<u8>> = entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
        assert!(!kept.is_empty());
        kept.iter().for_each(|input| any(input));
        for seed in 0..600 {
            let mut rng = Rng::new(seed);
            let mut input = rng.pick(&kept).clone();
            for _ in 0..rng.between(1, 3) {
                let at = rng.below(input.len() as u64) as usize;
                let end = at + rng.below((input.len() - at).min(60) as u64 + 1) as usize;
                match rng.below(4) {
                    0 => input[at] ^= 1 << rng.below(8),
                    1 => drop(input.drain(at..end)),
                    2 => {
                        let part = input[at..end].to_vec();
                        input.splice(at..at, part);
                    }
                    _ => drop(input.splice(at..at, rng.pick(PIECES).iter().copied())),
                }
                if input.is_empty() {
                    input.push(u8::MAX);
                }
            }
            let calm = catch_unwind(AssertUnwindSafe(|| any(&input)));
            assert!(calm.is_ok(), "seed {seed}: {:?}", String::from_utf8_lossy(&input));
        }
    }
}
