//! The environment of the tests of all crates of the engine, and how they report.

use super::{CrashReport, Replay, Soak};

/// Crates of the tests, by the prefix of their names. The first match counts; all others are in `seekless`.
const PACKAGES: &[(&str, &str)] = &[
    ("cleaning::", "seekless-cleaning"),
    ("disk::", "seekless-disk"),
    ("flash::", "seekless-flash"),
    ("volume::", "seekless-volume"),
    ("vlog::", "seekless-vlog"),
    ("fs::ffs::", "seekless-ffs"),
    ("fs::lfs::", "seekless-logfs"),
    ("fs::logfs::", "seekless-logfs"),
    ("fs::vlfs::", "seekless-logfs"),
    ("layer::", "seekless-layer"),
    ("testing::tests::compare::", "seekless-testing"),
    ("testing::tests::crash::", "seekless-testing"),
    ("testing::tests::damage::", "seekless-testing"),
    ("testing::tests::faults::", "seekless-testing"),
];

/// The crate with the unit test `test`, for `cargo test -p`.
pub fn package(test: &str) -> &'static str {
    PACKAGES.iter().find(|(start, _)| test.starts_with(start)).map_or("seekless", |(_, package)| package)
}

/// The replay that the environment asks for, for the unit test `test` of the engine.
pub fn replay(test: &str) -> Replay {
    read(package(test), test)
}

/// How much of the usual work the environment asks for. Cargo names the crate whose tests run.
pub fn soak() -> Soak {
    read(&variable("CARGO_PKG_NAME").unwrap_or_default(), "").soak
}

fn read(package: &str, test: &str) -> Replay {
    Replay::read(package, test, variable).unwrap_or_else(|error| panic!("{error}"))
}

fn variable(name: &str) -> Option<String> {
    #[allow(clippy::disallowed_methods)]
    std::env::var(name).ok()
}

/// The report of an exploration; a finding is a failure.
pub fn or_panic(result: Result<CrashReport, String>) -> CrashReport {
    result.unwrap_or_else(|report| panic!("{report}"))
}
