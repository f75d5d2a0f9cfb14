//! Traces of service times on arbitrary bytes: panics when an invariant is violated.

use std::ops::ControlFlow;

use super::super::drive::Drive;
use super::super::validation::Measured;
use super::{Effort, fit_drive};

/// The target of the fuzzer: lines of a trace, as `seekless disk fit` reads them. What can be fitted ends in a drive that a drive
/// file can hold.
pub fn any(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let lines: Vec<Measured> = text.lines().take(2000).filter_map(|line| Measured::parse(line).ok()).collect();
    let Some(start) = Drive::named("hp97560") else { return };
    // Repeated, because few inputs have as many lines as a fit needs.
    let trace: Vec<Measured> = lines.iter().cycle().take(if lines.is_empty() { 0 } else { 240 }).copied().collect();
    let fitted = fit_drive(start, &trace, Effort { replays_max: 60 }, &mut |_, _| ControlFlow::Continue(()));
    let Ok(fitted) = fitted else { return };
    assert!(fitted.replays <= 60);
    let text = fitted.drive.to_toml();
    let again = Drive::from_toml(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(again, fitted.drive);
}
