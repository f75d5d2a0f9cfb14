//! Aim: what is damaged costs itself and nothing else: the check reports all of it, and a repair brings the last commit back. Method:
//! damage to chosen records, slots and nodes, of files that were written in many ways.

use super::*;
use crate::fs::client::Client;
use crate::fs::{FileSystem, OpenFlags, WriteMode};
use crate::layer::codecs::Copy;
use crate::layer::log::format::{Commit, Head, RECORD_ALIGN, SlotState};
use crate::rng::Rng;
use crate::testing::{MemFsOptions, WeakFs};
use crate::units::{Ino, SECTOR_BYTES};

const CHUNK: usize = 4096;

fn options() -> Options {
    // Nothing is committed before it is asked for.
    Options { write_back_interval: Nanos::from_secs(1_000), dirty_bytes_max: 32 * MIB, ..tiny(Arc::new(Copy)) }
}

/// The records of `/f` in the lower file, as the dump has them: what they are, and where they begin.
async fn records(lower: &Fs) -> Vec<(String, usize)> {
    let ino = Client::new(lower.clone()).stat(b"/f").await.unwrap().ino;
    let dump = check::dump(lower, ino).await.unwrap();
    let record = |line: &str| {
        let (offset, what) = line.split_once(": ").unwrap();
        (what.split(" of generation").next().unwrap().to_string(), offset.parse().unwrap())
    };
    dump.lines().map(record).collect()
}

/// The last record of this name.
fn place_of(records: &[(String, usize)], name: &str) -> usize {
    records.iter().rev().find(|(found, _)| found == name).unwrap().1
}

async fn flip(below: &Client, places: &[usize]) {
    let mut bytes = below.read_file(b"/f").await.unwrap();
    places.iter().for_each(|&at| bytes[at] ^= 0x10);
    below.write_file(b"/f", &bytes).await.unwrap();
}

/// A file of `chunks` chunks, committed once.
async fn made(rt: &Rt, lower: &Fs, chunks: usize) -> Vec<u8> {
    let mut content = vec![0; chunks * CHUNK];
    Rng::new(1).fill(&mut content);
    let fs = stack_on(rt, lower.clone(), options()).await.unwrap();
    Client::new(fs.clone()).write_file(b"/f", &content).await.unwrap();
    fs.close().await.unwrap();
    content
}

/// Chunks that cannot be read, and others that are damaged, are found in one check, and those that are well can be read.
#[test]
fn each_lost_chunk_is_reported() {
    simulate(1, async |rt| {
        let weak = WeakFs::new(&rt, MemFsOptions { capacity_bytes: 1 << 40, ..MemFsOptions::default() });
        let lower: Fs = weak.clone();
        let content = made(&rt, &lower, 600).await;
        let below = Client::new(lower.clone());
        let (ino, records) = (below.stat(b"/f").await.unwrap().ino, records(&lower).await);
        let body = |number: usize| place_of(&records, &format!("chunk {number}")) + Head::BYTES + 1_000;
        let (damaged, lost) = ([3, 300, 450], [1, 90, 310, 599]);
        flip(&below, &damaged.map(body)).await;
        lost.iter().for_each(|&number| weak.lose(ino, body(number) as u64 / SECTOR_BYTES));
        for repair in [false, true] {
            let report = check::check(&rt, lower.clone(), options(), repair).await.unwrap();
            let mut wrong: Vec<usize> = damaged.into_iter().chain(lost).collect();
            wrong.sort_unstable();
            let ranges: Vec<String> = report
                .findings
                .iter()
                .map(|finding| finding.problem.split(" are lost").next().unwrap().to_string())
                .collect();
            let expected = |number: &usize| format!("bytes {} to {}", number * CHUNK, (number + 1) * CHUNK);
            assert_eq!(ranges, wrong.iter().map(expected).collect::<Vec<_>>(), "{report:?}");
            assert!(report.findings.iter().all(|finding| !finding.repaired), "{report:?}");
            assert_eq!(report.records, 600);
            let client = Client::new(stack_on(&rt, lower.clone(), options()).await.unwrap());
            let file = client.open(b"/f", OpenFlags::READ).await.unwrap();
            for chunk in 0..600 {
                let read = client.read(file, (chunk * CHUNK) as u64, CHUNK as u32).await;
                assert_eq!(read.is_ok(), !wrong.contains(&chunk), "chunk {chunk}");
                assert!(read.is_err() || read.unwrap() == content[chunk * CHUNK..][..CHUNK], "chunk {chunk}");
            }
        }
    });
}

/// The same behind nodes of the index, and of a file with a lost tail. A repair makes the index again, but not what is lost with a chunk.
#[test]
fn what_is_behind_a_lost_node_is_reported() {
    simulate(1, async |rt| {
        let weak = WeakFs::new(&rt, MemFsOptions { capacity_bytes: 1 << 40, ..MemFsOptions::default() });
        let lower: Fs = weak.clone();
        let mut content = made(&rt, &lower, 600).await;
        let below = Client::new(lower.clone());
        let fs = stack_on(&rt, lower.clone(), options()).await.unwrap();
        let client = Client::new(fs.clone());
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        client.truncate(b"/f", content.len() as u64 - 1_000).await.unwrap();
        client.fsync(file).await.unwrap();
        client.write(file, content.len() as u64 - 1_000, b"tail").await.unwrap();
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
        content.truncate(600 * CHUNK - 1_000);
        content.extend_from_slice(b"tail");
        let records = records(&lower).await;
        let body = |name: &str| place_of(&records, name) + Head::BYTES + 2;
        flip(&below, &[body("node 0"), body("node 2"), body("chunk 300"), body("tail 599")]).await;
        let lost = [0..256, 512..600, 300..301];
        let report = check::check(&rt, lower.clone(), options(), false).await.unwrap();
        assert_eq!(report.findings.len(), 4, "{report:?}");
        for chunks in &lost {
            let range = format!("bytes {} to {}", chunks.start * CHUNK, (chunks.end * CHUNK).min(content.len()));
            assert!(report.findings.iter().any(|finding| finding.problem.contains(&range)), "{range}: {report:?}");
        }
        let lost_tail = format!("bytes {} to {} are lost", 600 * CHUNK - 1_000, content.len());
        assert!(report.repairable && report.findings.iter().any(|finding| finding.problem.starts_with(&lost_tail)));
        let report = check::check(&rt, lower.clone(), options(), true).await.unwrap();
        let left: Vec<_> = report.findings.iter().filter(|finding| !finding.repaired).collect();
        assert_eq!(left.len(), 2, "{report:?}");
        assert!(left[0].problem.starts_with(&lost_tail), "{report:?}");
        let report = check::check(&rt, lower.clone(), options(), false).await.unwrap();
        assert_eq!(report.findings.len(), 1, "{report:?}");
        let client = Client::new(stack_on(&rt, lower.clone(), options()).await.unwrap());
        let file = client.open(b"/f", OpenFlags::READ).await.unwrap();
        content.truncate(600 * CHUNK - 1_000);
        for chunk in (0..600).filter(|chunk| *chunk != 300) {
            let expected = content[chunk * CHUNK..].iter().copied().take(CHUNK).collect::<Vec<u8>>();
            let read = client.read(file, (chunk * CHUNK) as u64, expected.len() as u32).await.unwrap();
            assert!(read == expected, "chunk {chunk}");
        }
        // An index that cannot be read is not made again: what cannot be read may be intact. The rest is checked nevertheless.
        let ino = below.stat(b"/f").await.unwrap().ino;
        let records = self::records(&lower).await;
        weak.lose(ino, (place_of(&records, "node 1") as u64 + 2_048) / SECTOR_BYTES);
        flip_in(&weak, ino, place_of(&records, "chunk 20") + Head::BYTES + 8).await;
        for repair in [false, true] {
            let report = check::check(&rt, lower.clone(), options(), repair).await.unwrap();
            let has = |text: &str| report.findings.iter().any(|finding| finding.problem.contains(text));
            assert!(has(&format!("bytes {} to {}", 20 * CHUNK, 21 * CHUNK)), "{report:?}");
            assert!(has(&format!("bytes {} to {}", 256 * CHUNK, 512 * CHUNK)), "{report:?}");
            assert!(report.findings.iter().all(|finding| !finding.repaired), "{report:?}");
        }
    });
}

/// A repair that finds the newest record of a chunk, or of the tail, damaged says which bytes are older than they were.
#[test]
fn a_repair_says_what_is_older_than_it_was() {
    simulate(1, async |rt| {
        let lower: Fs = model(&rt);
        let mut content = made(&rt, &lower, 300).await;
        let fs = stack_on(&rt, lower.clone(), options()).await.unwrap();
        let client = Client::new(fs.clone());
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        let old = content[20 * CHUNK..21 * CHUNK].to_vec();
        content[20 * CHUNK..21 * CHUNK].fill(7);
        // In one commit, since the next one may use the space of what this one replaces.
        client.write(file, 20 * CHUNK as u64, &content[20 * CHUNK..21 * CHUNK]).await.unwrap();
        client.write(file, content.len() as u64, b"what comes last").await.unwrap();
        client.fsync(file).await.unwrap();
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
        content.extend_from_slice(b"what comes last");
        let below = Client::new(lower.clone());
        let good = below.read_file(b"/f").await.unwrap();
        let records = records(&lower).await;
        let body = |name: &str| place_of(&records, name) + Head::BYTES + 2;
        // The chunk alone: its node refers to it, and nothing takes its place. With its node, or with both slots, an older record does.
        for (places, older) in [
            (vec![body("chunk 20")], false),
            (vec![body("chunk 20"), body("node 0")], true),
            (vec![body("chunk 20"), 50, 562], true),
        ] {
            below.write_file(b"/f", &good).await.unwrap();
            flip(&below, &places).await;
            let report = check::check(&rt, lower.clone(), options(), true).await.unwrap();
            let left: Vec<_> = report.findings.iter().filter(|finding| !finding.repaired).collect();
            assert_eq!(left.len(), 1, "{places:?}: {report:?}");
            let range = format!("bytes {} to {} ", 20 * CHUNK, 21 * CHUNK);
            assert!(left[0].problem.starts_with(&range), "{places:?}: {report:?}");
            assert_eq!(left[0].problem.contains("an older record"), older, "{places:?}: {report:?}");
            let client = Client::new(stack_on(&rt, lower.clone(), options()).await.unwrap());
            let file = client.open(b"/f", OpenFlags::READ).await.unwrap();
            let read = client.read(file, 20 * CHUNK as u64, CHUNK as u32).await;
            assert_eq!(read.ok(), older.then(|| old.clone()), "{places:?}");
            let rest = client.read(file, 21 * CHUNK as u64, content.len() as u32).await.unwrap();
            assert!(rest == content[21 * CHUNK..], "{places:?}");
        }
    });
}

/// A file of no bytes has no chunk 0 that a tail could belong to: a repair drops the tail, and nothing is lost with it.
#[test]
fn an_empty_file_has_no_chunks() {
    let of = |size| Commit { size, ..Commit::initial(12, 1) };
    assert_eq!([0, 1, 4096, 4097].map(|size| of(size).chunks()), [0, 1, 1, 2]);
    simulate(1, async |rt| {
        let lower: Fs = model(&rt);
        let fs = stack_on(&rt, lower.clone(), options()).await.unwrap();
        let client = Client::new(fs.clone());
        let file = client.create(b"/f").await.unwrap();
        for piece in [&b"the chunk"[..], b" and its tail"] {
            client.write(file, client.stat(b"/f").await.unwrap().size, piece).await.unwrap();
            client.fsync(file).await.unwrap();
        }
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
        let below = Client::new(lower.clone());
        let mut bytes = below.read_file(b"/f").await.unwrap();
        let commits = [0, 512].map(|at| Commit::decode(&bytes[at..at + 512]));
        let newest = commits.into_iter().filter_map(|state| match state {
            SlotState::Good(commit) => Some(commit),
            _ => None,
        });
        let commit = newest.max_by_key(|commit| commit.generation).unwrap();
        assert!(!commit.tail.is_hole(), "it has a tail");
        let at = commit.slot_offset() as usize;
        bytes[at..at + 512].copy_from_slice(&Commit { size: 0, ..commit }.encode());
        below.write_file(b"/f", &bytes).await.unwrap();
        let report = check::check(&rt, lower.clone(), options(), true).await.unwrap();
        let of_tail: Vec<_> = report.findings.iter().filter(|finding| finding.problem.contains("tail")).collect();
        assert!(of_tail.len() == 1 && of_tail[0].repaired, "{report:?}");
        assert!(!report.findings.iter().any(|finding| finding.problem.contains("are lost")), "{report:?}");
    });
}

async fn flip_in(weak: &Rc<WeakFs>, ino: Ino, at: usize) {
    let read = crate::layer::read_lower(&(weak.clone() as Fs), ino, None, at as u64, 1).await.unwrap();
    let data = crate::device::Data::from_slice(&[read[0] ^ 0x10]);
    weak.write(ino, None, at as u64, data, WriteMode::default()).await.unwrap();
}

/// What is damaged before a repair.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Damage {
    Slot(usize),
    BothSlots,
}

/// Aim: of a chunk that is written several times before one commit, a repair finds the record that counts, where slots are damaged. Method: overwrites in
/// random order and of random length, staged at once, in a file with free space here and there.
#[test]
fn of_one_generation_the_last_record_counts() {
    let replay = replay("rebuild::of_one_generation_the_last_record_counts");
    for seed in replay.seeds(0..12) {
        for damage in [Damage::Slot(0), Damage::Slot(1), Damage::BothSlots] {
            simulate(seed, async |rt| overwritten(&rt, seed, damage).await);
        }
    }
}

async fn overwritten(rt: &Rt, seed: u64, damage: Damage) {
    let mut rng = Rng::new(seed);
    let chunks = [8, 27, 60, 400][seed as usize % 4];
    let lower: Fs = model(rt);
    let stacked = stack(rt, lower.clone(), options()).await.unwrap();
    let client = Client::new(stacked.clone() as Fs);
    let mut content = vec![0; chunks * CHUNK];
    client.write_file(b"/f", &content).await.unwrap();
    let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
    for _commit in 0..4 {
        for _staging in 0..rng.between(1, 6) {
            for _write in 0..chunks {
                let chunk = rng.below(chunks as u64) as usize;
                let mut new = vec![0; CHUNK];
                let filled = rng.between(1, CHUNK as u64) as usize;
                rng.fill(&mut new[..filled]);
                content[chunk * CHUNK..][..CHUNK].copy_from_slice(&new);
                client.write(file, (chunk * CHUNK) as u64, &new).await.unwrap();
            }
            for (_, node) in stacked.nodes().all() {
                if let Some(file) = node.open(stacked.lower()) {
                    stacked.layer().stage_full_chunks(file).await.unwrap();
                }
            }
        }
        client.fsync(file).await.unwrap();
    }
    client.close(file).await.unwrap();
    stacked.close().await.unwrap();
    let below = Client::new(lower.clone());
    let mut bytes = below.read_file(b"/f").await.unwrap();
    match damage {
        Damage::Slot(slot) => bytes[slot * 512 + 50] ^= 0x10,
        Damage::BothSlots => [50, 562].iter().for_each(|&at| bytes[at] ^= 0x10),
    }
    below.write_file(b"/f", &bytes).await.unwrap();
    let report = check::check(rt, lower.clone(), options(), true).await.unwrap();
    let name = format!("seed {seed}, {damage:?}");
    assert!(report.findings.iter().all(|finding| finding.repaired), "{name}: {report:?}");
    assert_clean(rt, &lower, &options()).await;
    let read = Client::new(stack_on(rt, lower.clone(), options()).await.unwrap()).read_file(b"/f").await.unwrap();
    let wrong: Vec<usize> =
        (0..chunks).filter(|at| read[at * CHUNK..][..CHUNK] != content[at * CHUNK..][..CHUNK]).collect();
    assert!(read.len() == content.len() && wrong.is_empty(), "{name}: chunks {wrong:?}");
}

/// Where the index is lost and the only record of a chunk is damaged, reading the chunk is an error, also after the repair.
#[test]
fn what_only_a_damaged_record_held_stays_an_error() {
    simulate(1, async |rt| {
        let lower: Fs = model(&rt);
        let client = Client::new(stack_on(&rt, lower.clone(), options()).await.unwrap());
        let mut content = vec![0; 4 * CHUNK];
        Rng::new(1).fill(&mut content);
        client.write_file(b"/f", &content).await.unwrap();
        client.fsync_path(b"/f").await.unwrap();
        client.fs().close().await.unwrap();
        let below = Client::new(lower.clone());
        let mut bytes = below.read_file(b"/f").await.unwrap();
        let body = bytes.windows(64).position(|bytes| *bytes == content[CHUNK..CHUNK + 64]);
        let body = body.expect("random bytes are stored as they are");
        [50, 562, body].iter().for_each(|&at| bytes[at] ^= 0x10);
        below.write_file(b"/f", &bytes).await.unwrap();
        let repaired = check::check(&rt, lower.clone(), options(), true).await.unwrap();
        assert!(repaired.findings.iter().any(|finding| !finding.repaired), "{repaired:?}");
        let client = Client::new(stack_on(&rt, lower.clone(), options()).await.unwrap());
        let file = client.open(b"/f", OpenFlags::READ).await.unwrap();
        for chunk in 0..4 {
            let read = client.read(file, (chunk * CHUNK) as u64, CHUNK as u32).await;
            match chunk {
                1 => assert!(
                    matches!(read, Err(crate::fs::FsError::Corrupt { .. })),
                    "{:?}",
                    read.map(|read| read.len())
                ),
                _ => assert!(read.unwrap() == content[chunk * CHUNK..][..CHUNK], "chunk {chunk}"),
            }
        }
        client.close(file).await.unwrap();
        client.fs().close().await.unwrap();
        let again = check::check(&rt, lower.clone(), options(), false).await.unwrap();
        assert!(!again.findings.is_empty(), "the loss is still reported");
    });
}

/// Aim: a stale record that one of the index has overwritten in part does not keep the index from being repaired. Method: a node is damaged, and the head
/// of a chunk that it had is found in front of a record of another node, into which it would reach.
#[test]
fn a_record_that_is_overwritten_in_part_does_not_prevent_a_repair() {
    simulate(1, async |rt| {
        let lower: Fs = model(&rt);
        let content = made(&rt, &lower, 600).await;
        let records = records(&lower).await;
        let place = |chunk: usize| place_of(&records, &format!("chunk {chunk}"));
        let below = Client::new(lower.clone());
        let mut bytes = below.read_file(b"/f").await.unwrap();
        let stale = place(255) + 8 * RECORD_ALIGN as usize;
        assert_eq!(place(256) - place(255), place(2) - place(1), "records of one size, beside each other");
        bytes.copy_within(place(1)..place(1) + Head::BYTES, stale);
        [1, 255].iter().for_each(|&chunk| bytes[place(chunk)..place(chunk) + Head::BYTES].fill(0));
        bytes[place_of(&records, "node 0") + Head::BYTES + 2] ^= 0x10;
        below.write_file(b"/f", &bytes).await.unwrap();
        let report = check::check(&rt, lower.clone(), options(), true).await.unwrap();
        assert!(report.findings.iter().any(|finding| finding.repaired), "{report:?}");
        for chunk in [1, 255] {
            let lost = format!("bytes {} to {} may be lost", chunk * CHUNK, (chunk + 1) * CHUNK);
            let is_it = |problem: &str| problem.starts_with(&lost);
            assert!(report.findings.iter().any(|finding| is_it(&finding.problem) && !finding.repaired), "{report:?}");
        }
        assert_clean(&rt, &lower, &options()).await;
        let read = Client::new(stack_on(&rt, lower.clone(), options()).await.unwrap()).read_file(b"/f").await.unwrap();
        for chunk in (0..600).filter(|chunk| ![1, 255].contains(chunk)) {
            assert!(read[chunk * CHUNK..][..CHUNK] == content[chunk * CHUNK..][..CHUNK], "chunk {chunk}");
        }
    });
}
