//! Comparison with service times measured on real drives. The traces come with DiskSim and are not part of the project:
//! the test looks for them where `SEEKLESS_VALIDATION_DATA` points, and in `../shared/data/disk-validation` beside the
//! checkout. Without them the test says so and passes.

use std::path::{Path, PathBuf};

use super::*;
use crate::disk::validation::{DISKSIM, Fit, Measured, Published, ReplayError, TimeUnit, fit, published, replay};

#[allow(clippy::disallowed_methods)] // Tests may look at their environment.
pub(super) fn data() -> Option<PathBuf> {
    if let Ok(path) = std::env::var("SEEKLESS_VALIDATION_DATA") {
        return Some(path.into());
    }
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|above| above.join("../shared/data/disk-validation"))
        .find(|path| path.is_dir())
}

pub(super) fn trace(path: &Path) -> Vec<Measured> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter(|line| !line.trim().is_empty()).map(|line| Measured::parse(line).unwrap()).collect()
}

/// On every drive with a trace, our demerit is no worse than DiskSim's, from the catalogue's parameters alone; with a
/// microsecond for rounding.
#[test]
fn demerits_no_worse_than_disksim() {
    let Some(data) = data() else {
        eprintln!("skipped: no validation traces; SEEKLESS_VALIDATION_DATA can point at them");
        return;
    };
    let mut found = 0;
    for known in &DISKSIM {
        let path = data.join(known.file);
        if !path.exists() {
            continue;
        }
        found += 1;
        let fit = fit(&replay(drive(known.drive), &trace(&path)).unwrap()).unwrap();
        println!("{}", line(known, &fit));
        assert!(fit.demerit_ms <= known.demerit_ms + 0.001, "{}", line(known, &fit));
        assert!(fit.mean_error().abs() < 0.05, "{}", line(known, &fit));
        assert_eq!(published(known.drive, &fit), Some(known), "{}", line(known, &fit));
    }
    assert!(found > 0, "{} holds none of the traces that are known", data.display());
}

fn line(known: &Published, fit: &Fit) -> String {
    format!(
        "{:<14} demerit {:.3} ms ({:.1} %), DiskSim {:.3} ms; mean {:.2} ms ({:+.1} %), per request {:.2} ms, within 0.5 ms {:.0} %",
        known.drive,
        fit.demerit_ms,
        100.0 * fit.demerit(),
        known.demerit_ms,
        fit.modelled_mean_ms,
        100.0 * fit.mean_error(),
        fit.per_request_ms,
        100.0 * fit.within_half_ms
    )
}

/// Valid lines of a trace are parsed, and bad ones are refused with the reason.
#[test]
fn trace_lines() {
    let measured = Measured::parse("W Doub 1194877    15     17221.000     21894.380").unwrap();
    assert_eq!(measured.request, write(1_194_877, 15));
    assert_eq!((measured.service, measured.think), (Nanos(17_221_000), Nanos(21_894_380)));
    for (line, problem) in [
        ("", "0 fields"),
        ("R Hit 1 2 3", "5 fields"),
        ("X Hit 1 2 3 4", "neither R nor W"),
        ("R Hit -1 2 3 4", "no sector number"),
        ("R Hit 1 many 3 4", "not a number of sectors"),
        ("R Hit 1 2 fast 4", "no time"),
        ("R Hit 1 2 3 NaN", "no time"),
        ("R Hit 1 2 3 -4", "no time"),
        ("R Hit 1 2 3 1e300", "no time"),
    ] {
        let error = Measured::parse(line).unwrap_err();
        assert!(error.contains(problem), "{line:?}: {error}");
    }
    let outside = Measured::parse("R Hit 99999999999 2 3 4").unwrap();
    let error = replay(drive("hp97560"), &[measured, outside]).unwrap_err().to_string();
    assert!(error.contains("request 1 of the trace"), "{error}");
    assert_eq!(fit(&[]), None);
}

/// Times are read in each unit, to the nanosecond, and the unit that was meant is found where another one makes no sense.
#[test]
fn units_of_times() {
    for (unit, service, think) in [
        (TimeUnit::Microseconds, "17221.001", "21894.38"),
        (TimeUnit::Milliseconds, "17.221001", "21.89438"),
        (TimeUnit::Seconds, "0.017221001", "0.02189438"),
    ] {
        let measured = Measured::parse_in(unit, &format!("W Hit 1 15 {service} {think}")).unwrap();
        assert_eq!((measured.service, measured.think), (Nanos(17_221_001), Nanos(21_894_380)), "{unit:?}");
        let error = Measured::parse_in(unit, "W Hit 1 15 1e15 1").unwrap_err();
        assert!(error.contains(&format!("no time in {}", unit.words())), "{error}");
    }
    let us = TimeUnit::Microseconds;
    // Drives are between a sixth and six times as fast as others.
    for (measured_ms, mistaken) in [
        (1.0, None),
        (40.0, None),
        (0.006, Some(TimeUnit::Milliseconds)),
        (0.036, Some(TimeUnit::Milliseconds)),
        (6e-6, Some(TimeUnit::Seconds)),
        (1e-9, None),
        (0.0, None),
    ] {
        assert_eq!(us.mistaken(measured_ms, 6.0), mistaken, "{measured_ms}");
    }
    assert_eq!(TimeUnit::Milliseconds.mistaken(6000.0, 6.0), Some(us));
}

/// The demerit figure on samples whose result is known.
#[test]
fn fit_of_known_samples() {
    let answer = |measured, modelled| crate::disk::validation::Answer {
        measured: Nanos::from_millis(measured),
        modelled: Nanos::from_millis(modelled),
        hit: Hit::Miss,
        write: false,
    };
    // The same times on swapped requests: no demerit, but an error per request.
    let swapped = fit(&[answer(1, 3), answer(3, 1)]).unwrap();
    assert_eq!((swapped.demerit_ms, swapped.per_request_ms, swapped.mean_error()), (0.0, 2.0, 0.0));
    let shifted = fit(&[answer(10, 13), answer(20, 23)]).unwrap();
    assert_eq!((shifted.demerit_ms, shifted.demerit(), shifted.within_half_ms), (3.0, 0.2, 0.0));
}

/// DiskSim's figure is shown only beside its own trace.
#[test]
fn published_figures_belong_to_their_trace() {
    let of = |requests, measured_mean_ms| Fit {
        requests,
        measured_mean_ms,
        modelled_mean_ms: 4.0,
        demerit_ms: 0.1,
        per_request_ms: 1.0,
        within_half_ms: 0.5,
    };
    assert_eq!(published("cheetah9lp", &of(10_000, 4.2749)).map(|known| known.demerit_ms), Some(0.108));
    assert_eq!(published("my-cheetah", &of(10_000, 4.2749)).map(|known| known.demerit_ms), Some(0.108));
    assert_eq!(published("my-cheetah", &of(10_001, 4.2749)), None);
    assert_eq!(published("cheetah9lp", &of(9_999, 4.2749)), None);
    assert_eq!(published("cheetah9lp", &of(10_000, 4.28)), None);
    assert_eq!(published("cheetah4lp", &of(10_000, 4.2749)), None);
    // The mean of this trace is close to the middle between two figures of two digits.
    assert_eq!(published("hp-c3323a", &of(9_074, 15.7649)).map(|known| known.demerit_ms), Some(0.288));
    for known in &DISKSIM {
        drive(known.drive);
    }
}

/// Times that add up to more than the clock holds are an error, not an overflow.
#[test]
fn centuries_are_refused() {
    let days = Measured::parse("R Hit 0 1 1000 999999999999").unwrap();
    let error = replay(drive("hp97560"), &vec![days; 20_000]).unwrap_err();
    assert!(matches!(error, ReplayError::TooLong { index } if index > 3000), "{error}");
}
