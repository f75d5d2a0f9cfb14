//! Drive files on arbitrary bytes: panics when an invariant is violated.

use super::super::drive::Drive;
use super::super::mechanism::{Mechanism, Request};
use crate::rng::Rng;
use crate::units::{Nanos, Sector};

/// A drive with more cylinders has a seek table that takes longer to make than all the rest.
const CYLINDERS_MAX: u32 = 20_000;

/// The target of the fuzzer. What is read can be written and read again, and serves requests.
pub fn any(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    let drive = match Drive::from_toml(&text) {
        Ok(drive) => drive,
        Err(error) => {
            assert!(error.line >= 1 && error.line <= 1 + text.lines().count(), "{error}: {text:?}");
            assert!(!error.problem.is_empty() && error.to_string().chars().count() < 2000, "{error}");
            return;
        }
    };
    let written = drive.to_toml();
    let again = Drive::from_toml(&written).unwrap_or_else(|error| panic!("{error}: {written}"));
    assert_eq!(again, drive, "{written}");
    if drive.cylinders <= CYLINDERS_MAX {
        serve(&drive, u64::from(input.len() as u32));
    }
}

/// Serves a few requests, some of them long.
fn serve(drive: &Drive, seed: u64) {
    let mut mechanism = Mechanism::new(drive).unwrap_or_else(|error| panic!("{error}"));
    let mut rng = Rng::new(seed);
    let (mut now, sectors) = (Nanos::ZERO, mechanism.sectors());
    let mut at = 0;
    for index in 0..40_u64 {
        let count = if index % 8 == 0 { rng.below(5000) } else { rng.below(40) }.min(sectors - 1) + 1;
        at = if rng.chance(1, 3) { at } else { rng.below(sectors) }.min(sectors - count);
        let request =
            Request { sector: Sector(at), sectors: count as u32, write: rng.chance(1, 2), fua: rng.chance(1, 9) };
        let service = mechanism.service(now, now, request).unwrap_or_else(|error| panic!("{error}"));
        assert!(service.done >= service.start && service.start >= now, "{request:?}: {service:?}");
        now = service.done + Nanos(rng.below(20_000_000));
        at += count;
    }
    now = now.max(mechanism.durable(now));
    mechanism.positioning(now, Sector(sectors - 1), true);
}
