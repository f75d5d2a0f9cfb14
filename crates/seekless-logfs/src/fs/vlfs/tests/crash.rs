//! Aim: VLFS keeps its promises through power cuts: all names are those of one moment, each file's content is that of
//! one moment, nothing synced is lost. Method: the crash explorer, on devices with different guarantees.

use super::*;
use crate::device::crash::CrashOptions;
use crate::testing::Promise;
use crate::testing::volumes::clients;
use crate::testing::volumes::cuts::Cuts;
use crate::testing::volumes::life::{LEVELS, Lives, Manner};

const CUTS: Cuts = Cuts { module: "fs::vlfs::tests::crash", bytes: 6 * MIB };

const LIFE_BYTES: u64 = 10 * MIB;

#[test]
fn scripts() {
    CUTS.scripts(&Small::default());
}

#[test]
fn short_sequences() {
    CUTS.short_sequences(&Small::default());
}

/// With transactions as often as the timer says.
#[test]
fn random_runs() {
    let options = Options { write_back_interval: Nanos::from_millis(2), ..Options::default() };
    CUTS.random_runs(|_| Small { options });
}

/// One volume through many power cuts, on all code paths that a healthy volume can take.
#[test]
fn a_long_life() {
    let lives = Lives {
        test: "fs::vlfs::tests::crash::a_long_life",
        manners: &[Manner::Sparse, Manner::Crowded, Manner::Names],
        devices: &CrashOptions::each_cached(LIFE_BYTES),
        promise: Promise::NAMESPACE_PREFIX,
        edges: LEVELS,
        setbacks: true,
        errors: false,
        kills: true,
        fsck_unrecovered: true,
        rounds: 16,
        seeds: 4,
        points: POINTS,
    };
    let options =
        Options { write_back_interval: Nanos::from_millis(2), compact: CompactUse::Always, ..Options::default() };
    lives.live(|_| Small { options });
}

/// The same with requests that fail.
#[test]
fn a_long_life_with_errors() {
    let lives = Lives {
        test: "fs::vlfs::tests::crash::a_long_life_with_errors",
        manners: &[Manner::Sparse, Manner::Crowded, Manner::Names],
        devices: &CrashOptions::each_cached(LIFE_BYTES),
        promise: Promise::NAMESPACE_PREFIX,
        edges: LEVELS,
        setbacks: true,
        errors: true,
        kills: true,
        fsck_unrecovered: true,
        rounds: 16,
        seeds: 3,
        points: &[],
    };
    let options =
        Options { write_back_interval: Nanos::from_millis(2), compact: CompactUse::Always, ..Options::default() };
    lives.live(|_| Small { options });
}

/// Cover points that a long life reaches.
const POINTS: &[&str] = &[
    "logfs: a leaf of a directory is split",
    "logfs: an empty indirect block is dropped",
    "logfs: an indirect block of level 1 is written",
    "logfs: an indirect block of level 2 is written",
    "logfs: an indirect block of level 3 is written",
    "logfs: two leaves of a directory are joined",
    "vlfs: a block moves off a track",
    "vlfs: a cell of inodes becomes free",
    "vlfs: a change finds the volume full, or what was freed not free yet",
    "vlfs: a mount finds an orphan",
    "vlfs: a mount frees an orphan",
    "vlfs: an indirect block moves off a track",
    "vlfs: an inode moves off a track",
    "vlog: a parked log names its tail",
    "vlog: the tail is found by a search",
];

/// With and without timers during the programs. Fsyncs that share a transaction write less, so that each seed has fewer positions to
/// cut at: there are more seeds, and more positions of each, than in other file systems.
#[test]
fn several_clients() {
    CUTS.clients_with(24, 60, |seed| {
        let write_back_interval =
            if seed % 2 == 1 { Nanos::from_millis(1) } else { Options::default().write_back_interval };
        Small { options: Options { write_back_interval, ..Options::default() } }
    });
}

#[test]
fn two_close_at_once() {
    clients::two_close_at_once(&Small::default(), CUTS.bytes);
}

/// Aim: a volume closed after a kill is closed, even if nothing was written since. Method: a file synced, then the device as it
/// is; a mount of that, closed; a check before and after.
#[test]
fn closed_after_a_kill_without_a_change() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, CUTS.bytes).await;
        let client = Client::new(Small::default().mount(&rt, device).await.unwrap());
        client.write_file(b"/file", b"hello").await.unwrap();
        client.fsync_path(b"/file").await.unwrap();
        let left: Device = Rc::new(Memory::from_image(CUTS.bytes, memory.image()));
        let is_searched = async || {
            let checked = fsck(rt.clone(), left.clone(), FsckOptions::default()).await.unwrap();
            checked.notes.iter().any(|note| note.starts_with("the volume was not closed"))
        };
        assert!(!info(&left).await.unwrap().clean && is_searched().await);
        session(&rt, &left, async |client| assert_eq!(client.read_file(b"/file").await.unwrap(), b"hello")).await;
        assert!(info(&left).await.unwrap().clean && !is_searched().await);
    });
}
