//! The targets of the fuzzer, with every compiler and in every test run: the inputs in `fuzz/seeds`, and seeded noise.
//!
//! An input that once did harm is kept in `fuzz/seeds`, in the folder of its target, as a regression test.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use seekless::rng::Rng;
use seekless::stack::WORDS;
use seekless::testing::{Replay, fuzz};

/// A target: its name, its function, and the number and maximum size of noise inputs.
struct Target {
    name: &'static str,
    body: fn(&[u8]),
    inputs: u64,
    bytes_max: u64,
}

/// The targets that are functions of the engine. `fuse_request`, `nbd_client`, `nbd_stream` and `experiment` are tested in their own
/// crates.
const TARGETS: &[Target] = &[
    Target { name: "layer_format", body: fuzz::layer::decoders, inputs: 20_000, bytes_max: 600 },
    Target { name: "layer_file", body: fuzz::layer::lower_file, inputs: 200, bytes_max: 100 },
    Target { name: "lfs_format", body: fuzz::lfs::decoders, inputs: 20_000, bytes_max: 6_000 },
    Target { name: "lfs_mount", body: fuzz::lfs::mount, inputs: 60, bytes_max: 200 },
    Target { name: "ffs_format", body: fuzz::ffs::decoders, inputs: 20_000, bytes_max: 6_000 },
    Target { name: "ffs_mount", body: fuzz::ffs::mount, inputs: 150, bytes_max: 120 },
    Target { name: "ops_differential", body: fuzz::differential, inputs: 60, bytes_max: 1_500 },
    Target { name: "raid_format", body: fuzz::raid::decoders, inputs: 20_000, bytes_max: 600 },
    Target { name: "raid_open", body: fuzz::raid::open, inputs: 300, bytes_max: 120 },
    Target { name: "vld_format", body: fuzz::vld::decoders, inputs: 20_000, bytes_max: 600 },
    Target { name: "vld_open", body: fuzz::vld::open, inputs: 300, bytes_max: 120 },
    Target { name: "vlfs_format", body: fuzz::vlfs::decoders, inputs: 20_000, bytes_max: 5_000 },
    Target { name: "vlfs_mount", body: fuzz::vlfs::mount, inputs: 100, bytes_max: 120 },
    Target { name: "zoned_format", body: fuzz::zoned::decoders, inputs: 10_000, bytes_max: 200 },
    Target { name: "zoned_open", body: fuzz::zoned::open, inputs: 2_000, bytes_max: 160 },
    Target { name: "drive_file", body: seekless::disk::file::fuzz::any, inputs: 10_000, bytes_max: 300 },
    Target { name: "drive_fit", body: seekless::disk::fit::fuzz::any, inputs: 300, bytes_max: 300 },
    Target { name: "drive_import", body: seekless::disk::import::fuzz::any, inputs: 10_000, bytes_max: 300 },
    Target { name: "stack_line", body: fuzz::stack_line, inputs: 20_000, bytes_max: 120 },
];

/// What is on a stack line beside the words of the table, and random bytes would hardly ever form.
const PARTS: &[&str] = &[
    " / ",
    "/",
    ":",
    ",",
    "=",
    "\"",
    "\\",
    " ",
    "segment",
    "cleaner",
    "greedy",
    "512KiB",
    "1GiB",
    "cheetah9lp",
    "read-error",
    "10ms",
    "\n",
    "[",
    "]",
    "#",
    "ä",
    "-1",
];

fn seeds(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// Aim: inputs that once did harm do none. Method: every stored input, into its target.
#[test]
fn kept_inputs_do_no_harm() {
    let mut problems = Vec::new();
    for target in TARGETS {
        let paths = seeds(target.name);
        assert!(!paths.is_empty(), "fuzz/seeds/{} has no inputs", target.name);
        for path in paths {
            let input = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            if catch_unwind(AssertUnwindSafe(|| (target.body)(&input))).is_err() {
                problems.push(path.display().to_string());
            }
        }
    }
    assert!(problems.is_empty(), "these inputs do harm:\n{}", problems.join("\n"));
}

/// An input of noise: bytes, or words where a target reads text.
fn noise(target: &Target, rng: &mut Rng) -> Vec<u8> {
    let length = rng.below(target.bytes_max + 1) as usize;
    if target.name == "stack_line" {
        let parts = (0..length / 4).map(|_| match rng.chance(1, 2) {
            true => rng.pick(WORDS).name,
            false => rng.pick(PARTS),
        });
        return parts.collect::<String>().into_bytes();
    }
    let mut input = vec![0; length];
    rng.fill(&mut input);
    // Half of them mostly small numbers, which are more often valid.
    if rng.chance(1, 2) {
        input.iter_mut().for_each(|byte| *byte = if *byte < 0xd0 { *byte % 16 } else { *byte });
    }
    input
}

/// Aim: no bytes do harm. Method: noise into every target; each input has its own seed, with which a failure prints the
/// command that repeats it.
#[test]
fn seeded_noise_does_no_harm() {
    #[allow(clippy::disallowed_methods)]
    let lookup = |name: &str| std::env::var(name).ok();
    let replay = Replay::read("seekless --test engine", "fuzz::seeded_noise_does_no_harm", lookup);
    let replay = replay.unwrap_or_else(|error| panic!("{error}"));
    let mut problems = Vec::new();
    for target in TARGETS {
        for seed in replay.seeds(1..1 + target.inputs) {
            let input = noise(target, &mut Rng::new(seed));
            if catch_unwind(AssertUnwindSafe(|| (target.body)(&input))).is_err() {
                let again = replay.command(seed, None, None, None);
                problems.push(format!("{} fails with {} bytes of noise: {again}", target.name, input.len()));
            }
        }
    }
    assert!(problems.is_empty(), "noise does harm:\n{}", problems.join("\n"));
}
