//! Comparison with service times measured on real drives. The traces come with DiskSim and are not part of the
//! project: they are looked for where `SEEKLESS_VALIDATION_DATA` points, and in `../shared/data/disk-validation`
//! beside the checkout. Without them the test says so and passes.

use std::path::{Path, PathBuf};

use super::*;
use crate::disk::validation::{Fit, Measured, fit, replay};

/// Drive, trace file, and DiskSim's own demerit on it in microseconds, as the same computation gives it.
const TRACES: &[(&str, &str, u64)] = &[
    ("atlas10k", "atlas10k.trace", 268),
    ("atlas3", "atlas_III.trace", 378),
    ("barracuda", "barracuda.trace", 350),
    ("cheetah4lp", "cheetah4LP.trace", 318),
    ("cheetah9lp", "cheetah9LP.trace", 108),
    ("dec-rz26", "dec_rz26.trace", 341),
    ("hp-c2247a", "hp_c2247a.trace", 94),
    ("hp-c2490a", "hp_c2490a.trace", 256),
    ("hp-c3323a", "hp_c3323a.trace", 288),
    ("ultrastar18es", "ibm18es.trace", 136),
];

#[allow(clippy::disallowed_methods)] // Tests may look at their environment.
fn data() -> Option<PathBuf> {
    if let Ok(path) = std::env::var("SEEKLESS_VALIDATION_DATA") {
        return Some(path.into());
    }
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .map(|above| above.join("../shared/data/disk-validation"))
        .find(|path| path.is_dir())
}

fn trace(path: &Path) -> Vec<Measured> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().filter(|line| !line.trim().is_empty()).map(|line| Measured::parse(line).unwrap()).collect()
}

/// On every drive that a trace is there for, our demerit is no worse than DiskSim's, from the catalogue's
/// parameters alone; a microsecond for rounding.
#[test]
fn demerits_no_worse_than_disksim() {
    let Some(data) = data() else {
        eprintln!("skipped: no validation traces; SEEKLESS_VALIDATION_DATA can point at them");
        return;
    };
    let mut found = 0;
    for &(name, file, disksim) in TRACES {
        let path = data.join(file);
        if !path.exists() {
            continue;
        }
        found += 1;
        let fit = fit(&replay(drive(name), &trace(&path)).unwrap()).unwrap();
        println!("{}", line(name, &fit, disksim));
        assert!(fit.demerit_ms * 1000.0 <= disksim as f64 + 1.0, "{}", line(name, &fit, disksim));
        assert!(fit.mean_error().abs() < 0.05, "{}", line(name, &fit, disksim));
    }
    assert!(found > 0, "{} holds none of the traces that are known", data.display());
}

fn line(name: &str, fit: &Fit, disksim: u64) -> String {
    format!(
        "{name:<14} demerit {:.3} ms ({:.1} %), DiskSim 0.{disksim:03} ms; mean {:.2} ms ({:+.1} %), per request {:.2} ms, within 0.5 ms {:.0} %",
        fit.demerit_ms,
        100.0 * fit.demerit(),
        fit.modelled_mean_ms,
        100.0 * fit.mean_error(),
        fit.per_request_ms,
        100.0 * fit.within_half_ms
    )
}

/// Lines of a trace are read as they are meant, and bad ones are refused with what is wrong.
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
        ("R Hit 1 many 3 4", "no number of sectors"),
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

/// The demerit figure on samples whose answer is known.
#[test]
fn fit_of_known_samples() {
    let answer = |measured, modelled| crate::disk::validation::Answer {
        measured: Nanos::from_millis(measured),
        modelled: Nanos::from_millis(modelled),
        hit: Hit::Miss,
        write: false,
    };
    // The same times on the wrong requests: no demerit, but an error per request.
    let swapped = fit(&[answer(1, 3), answer(3, 1)]).unwrap();
    assert_eq!((swapped.demerit_ms, swapped.per_request_ms, swapped.mean_error()), (0.0, 2.0, 0.0));
    let shifted = fit(&[answer(10, 13), answer(20, 23)]).unwrap();
    assert_eq!((shifted.demerit_ms, shifted.demerit(), shifted.within_half_ms), (3.0, 0.2, 0.0));
}
