//! Aim: whatever happens to a lower file, reading, checking, repairing and writing lead to results or errors, in
//! bounded time and memory, and other files are unchanged. The log scheme, which has checksums, never returns a wrong
//! byte, and a repair reports what it could not bring back. Method: one or two flipped bits, lost sectors or overwritten ones at a
//! time in files of both schemes.

use std::sync::Arc;

use crate::fs::client::Client;
use crate::fs::{Fs, FsResult};
use crate::layer::codecs::{Codec, Copy, Deflate, Zstd};
use crate::layer::{Report, classic, log};
use crate::rng::Rng;
use crate::rt::{Limits, Rt};
use crate::testing::environment::replay;
use crate::testing::subject::simulate;
use crate::testing::{MemFs, MemFsOptions, WeakFs};
use crate::units::{Nanos, SECTOR_BYTES};

/// A hundred times the needs of an undamaged file.
const LIMITS: Limits = Limits { events: 300_000, until: Nanos::from_secs(100_000) };

/// Most bytes of memory at one time, likewise.
const MEMORY_MAX: u64 = 64 << 20;

const FILES: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scheme {
    Log,
    Classic,
}

impl Scheme {
    fn codec(self, seed: u64) -> Arc<dyn Codec> {
        match seed % 3 {
            0 => Arc::new(Deflate::default()),
            1 => Arc::new(Zstd::default()),
            _ => Arc::new(Copy),
        }
    }

    async fn stack_on(self, rt: &Rt, lower: Fs, seed: u64) -> FsResult<Fs> {
        let codec = self.codec(seed);
        match self {
            Scheme::Log => {
                let options = log::Options { chunk_shift: 12, ..log::Options::new(codec) };
                log::stack_on(rt, lower, options).await
            }
            Scheme::Classic => classic::stack_on(rt, lower, classic::Options::new(codec)).await,
        }
    }

    async fn check(self, rt: &Rt, lower: Fs, seed: u64, repair: bool) -> FsResult<Report> {
        let codec = self.codec(seed);
        match self {
            Scheme::Log => log::check::check(rt, lower, log::Options::new(codec), repair).await,
            Scheme::Classic => classic::check::check(rt, lower, classic::Options::new(codec), repair).await,
        }
    }
}

fn name(file: usize) -> Vec<u8> {
    format!("/f{file}").into_bytes()
}

fn content(file: usize) -> Vec<u8> {
    let mut content = vec![file as u8; [700, 23_000, 60_000][file]];
    Rng::new(file as u64).fill(&mut content[..400]);
    content
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Harm {
    FlippedBit,
    UnreadableSector,
    /// Other bytes in up to eight sectors.
    Overwritten,
}

impl Harm {
    fn of(seed: u64) -> Harm {
        [Harm::FlippedBit, Harm::UnreadableSector, Harm::Overwritten][(seed % 3) as usize]
    }
}

/// Applies one damage. Returns whether it was noticed.
async fn one(rt: &Rt, scheme: Scheme, seed: u64) -> Result<bool, String> {
    let text = |error: crate::fs::FsError| error.to_string();
    let options = MemFsOptions { capacity_bytes: 1 << 40, ..MemFsOptions::default() };
    let lower = WeakFs::around(rt, options, MemFs::with_options(rt, options));
    let below: Fs = lower.clone();
    let fs = scheme.stack_on(rt, below.clone(), seed).await.map_err(text)?;
    let client = Client::new(fs.clone());
    for file in 0..FILES {
        client.write_file(&name(file), &content(file)).await.map_err(text)?;
        client.fsync_path(&name(file)).await.map_err(text)?;
    }
    fs.close().await.map_err(text)?;
    drop((client, fs));
    let mut rng = Rng::new(seed);
    let damaged = rng.below(FILES as u64) as usize;
    let direct = Client::new(below.clone());
    let mut bytes = direct.read_file(&name(damaged)).await.map_err(text)?;
    for _ in 0..1 + seed / 3 % 2 {
        // Half of them where heads and indexes are: at the start, and at the end.
        let length = bytes.len() as u64;
        let at = match rng.below(4) {
            0 => rng.below(length.min(1_024)),
            1 => length - 1 - rng.below(length.min(1_024)),
            _ => rng.below(length),
        };
        let ino = direct.stat(&name(damaged)).await.map_err(text)?.ino;
        match Harm::of(seed) {
            Harm::FlippedBit => bytes[at as usize] ^= 1 << rng.below(8),
            Harm::UnreadableSector => lower.lose(ino, at / SECTOR_BYTES),
            Harm::Overwritten => {
                let start = at / SECTOR_BYTES * SECTOR_BYTES;
                let end = (start + SECTOR_BYTES * [1, 2, 8][rng.below(3) as usize]).min(length);
                rng.fill(&mut bytes[start as usize..end as usize]);
            }
        }
        // A write makes a sector readable.
        if Harm::of(seed) != Harm::UnreadableSector {
            direct.write_file(&name(damaged), &bytes).await.map_err(text)?;
        }
    }
    let mut noticed = false;
    for repair in [false, true] {
        let mut is_reported = true;
        match scheme.check(rt, below.clone(), seed, repair).await {
            Ok(report) => {
                noticed |= !report.findings.is_empty();
                is_reported = report.findings.iter().any(|finding| !finding.repaired);
            }
            Err(_) => noticed = true,
        }
        let fs = scheme.stack_on(rt, below.clone(), seed).await.map_err(text)?;
        let client = Client::new(fs.clone());
        for file in 0..FILES {
            let read = client.read_file(&name(file)).await;
            noticed |= read.is_err();
            let is_right = read.as_ref().is_ok_and(|read| *read == content(file));
            if file != damaged && !is_right {
                return Err(format!("file {file} has changed with file {damaged}: {:?}", read.err()));
            }
            // A repair brings back an earlier moment of a file, and reports that.
            if scheme == Scheme::Log && !(repair && is_reported) && read.is_ok() && !is_right {
                return Err(format!("file {file} has wrong bytes, and nothing was said (repair: {repair})"));
            }
        }
        // Whatever these return, they end.
        let _ = client.truncate(&name(damaged), 5_000).await;
        let _ = client.write_file(&name(damaged), &content(damaged)).await;
        let _ = fs.close().await;
        drop((client, fs));
        if !repair {
            // The repair must repair the damage, not the bytes that were just written over it.
            direct.write_file(&name(damaged), &bytes).await.map_err(text)?;
        }
    }
    Ok(noticed)
}

fn explore(scheme: Scheme, test: &str, usual: u64) {
    let replay = replay(&format!("layer::tests::lower::{test}"));
    // Files with each kind of harm, and those of them in which it was noticed.
    let mut files = [Harm::FlippedBit, Harm::UnreadableSector, Harm::Overwritten].map(|harm| (harm, 0, 0));
    for seed in replay.seeds(0..usual) {
        let mut ended = Err(String::new());
        let memory = allocation_counter::measure(|| {
            ended = simulate(seed, LIMITS, async |rt| one(&rt, scheme, seed).await).and_then(|ended| ended);
        });
        let again = replay.command(seed, None, None, None);
        match ended {
            Ok(was_noticed) => {
                for (harm, count, noticed) in &mut files {
                    *count += u64::from(*harm == Harm::of(seed));
                    *noticed += u64::from(*harm == Harm::of(seed) && was_noticed);
                }
            }
            Err(what) => panic!("{scheme:?}: {what}\n\nrun again:\n  {again}\n"),
        }
        assert!(memory.bytes_max <= MEMORY_MAX, "{scheme:?}: {} bytes of memory: {again}", memory.bytes_max);
    }
    for (harm, count, noticed) in files {
        println!("{scheme:?}, {harm:?}: {count} files, {noticed} noticed");
        let least = if scheme == Scheme::Log { count } else { count / 8 };
        assert!(noticed >= least || replay.seed.is_some(), "{scheme:?}, {harm:?}: {noticed} of {count} were noticed");
    }
}

#[test]
fn damaged_files_of_the_log_scheme() {
    explore(Scheme::Log, "damaged_files_of_the_log_scheme", 400);
}

#[test]
fn damaged_files_of_the_classic_scheme() {
    explore(Scheme::Classic, "damaged_files_of_the_classic_scheme", 200);
}
