//! Aim: a power cut damages only the file that is being written [za01 §5], and lack of space only the bytes that are written. Method: files are written
//! and synced one after another over the weak model `WeakFs`, cut everywhere. Of the files that no change has touched
//! since their sync, every byte must be there; the others must lead to results or errors.

use super::*;
use crate::fs::{FsError, OpenFlags};
use crate::layer::tests::trouble::Trouble;
use crate::testing::WeakFs;

/// The file being written from a given position on, and its content once it is synced.
struct Written {
    name: Vec<u8>,
    from: usize,
    to: usize,
    content: Vec<u8>,
}

#[test]
fn a_cut_damages_one_file() {
    for seed in replay("crash::a_cut_damages_one_file").seeds(0..4) {
        simulate(seed, async |rt| {
            let lower = WeakFs::new(&rt, MemFsOptions { capacity_bytes: 1 << 40, ..MemFsOptions::default() });
            let fs = stack_on(&rt, lower.clone(), codec(seed)).await.unwrap();
            let client = Client::new(fs.clone());
            let mut rng = Rng::new(seed);
            let mut contents = vec![Vec::new(); 3];
            let mut written: Vec<Written> = Vec::new();
            for _ in 0..14 {
                let number = rng.below(3) as usize;
                let name = format!("/f{number}").into_bytes();
                let from = lower.position();
                let file = client.open_or_create(&name).await.unwrap();
                let content: &mut Vec<u8> = &mut contents[number];
                for _ in 0..3 {
                    let at = rng.below(content.len() as u64 + 1) as usize;
                    let piece = text(rng.between(1, 9_000) as usize);
                    content.resize(content.len().max(at + piece.len()), 0);
                    content[at..at + piece.len()].copy_from_slice(&piece);
                    client.write(file, at as u64, &piece).await.unwrap();
                }
                client.fsync(file).await.unwrap();
                client.close(file).await.unwrap();
                written.push(Written { name, from, to: lower.position(), content: content.clone() });
            }
            fs.close().await.unwrap();
            for position in (0..=lower.position()).rev().step_by(3) {
                for state in 0..4 {
                    let left: Fs = lower.cut(position, state).await.unwrap();
                    let fs = stack_on(&rt, left.clone(), codec(seed)).await.unwrap();
                    let client = Client::new(fs.clone());
                    for number in 0..3 {
                        let name = format!("/f{number}").into_bytes();
                        let of_file = || written.iter().filter(|written| written.name == name);
                        if of_file().any(|written| (written.from..written.to).contains(&position)) {
                            let _ = client.read_file(&name).await;
                            continue;
                        }
                        let Some(last) = of_file().rfind(|written| written.to <= position) else { continue };
                        let read = client.read_file(&name).await;
                        let same = read.as_ref().is_ok_and(|read| *read == last.content);
                        assert!(same, "seed {seed}, cut at {position}, state {state}, file {number}: {:?}", read.err());
                    }
                    fs.close().await.unwrap();
                    check::check(&rt, left, gzip(), true).await.unwrap();
                }
            }
        });
    }
}

/// Space runs out at every change below: the other files are unchanged, and the file being written can be read or
/// reports an error.
#[test]
fn a_full_file_system_damages_one_file() {
    simulate(1, async |rt| {
        let first = text(30_000);
        let mut number = 0;
        loop {
            let lower = WeakFs::new(&rt, MemFsOptions { capacity_bytes: 1 << 40, ..MemFsOptions::default() });
            let fs = stack_on(&rt, lower.clone(), gzip()).await.unwrap();
            let client = Client::new(fs.clone());
            client.write_file(b"/other", &first).await.unwrap();
            let file = client.create(b"/f").await.unwrap();
            let before = lower.needs();
            lower.fill(before + number..before + number + 1);
            let mut refused = 0;
            let mut content = Vec::new();
            for round in 0..6usize {
                let piece = text(3_000 + round * 1_000);
                let at = (round * 1_700) as u64;
                match client.write(file, at, &piece).await {
                    Ok(()) => {
                        content.resize(content.len().max(at as usize + piece.len()), 0);
                        content[at as usize..at as usize + piece.len()].copy_from_slice(&piece);
                    }
                    Err(FsError::NoSpace) => {
                        refused += 1;
                        break;
                    }
                    Err(error) => panic!("at {number}: {error}"),
                }
            }
            let ended = lower.needs() < before + number;
            client.close(file).await.unwrap();
            fs.close().await.unwrap();
            let client = Client::new(stack_on(&rt, lower.clone(), gzip()).await.unwrap());
            assert!(client.read_file(b"/other").await.unwrap() == first);
            let read = client.read_file(b"/f").await;
            match refused {
                // Without its index, whose loss is no error.
                0 => assert!(read.unwrap() == content, "at {number}"),
                _ => assert!(matches!(read, Ok(_) | Err(FsError::Corrupt { .. })), "at {number}: {read:?}"),
            }
            if ended {
                break;
            }
            number += 1;
        }
        assert!(number > 5, "{number}");
    });
}

/// The file system below has room for a part of what a change needs, for every part: the change is refused, and what it does not
/// write is as it was, now and after another start.
#[test]
fn lack_of_space_leaves_the_rest_of_a_file() {
    let replay = replay("crash::lack_of_space_leaves_the_rest_of_a_file");
    let (mut refused, mut done) = (0, 0);
    for seed in replay.seeds(0..400) {
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let lower = Trouble::over(model(&rt)).await;
            let options = codec(seed);
            let client = Client::new(stack_on(&rt, lower.clone(), options.clone()).await.unwrap());
            let mut content = text(rng.between(0, 40_000) as usize);
            if rng.chance(1, 2) {
                rng.fill(&mut content);
            }
            let file = client.create(b"/f").await.unwrap();
            client.write(file, 0, &content).await.unwrap();
            client.fsync(file).await.unwrap();
            // Append, overwrite, behind a hole, across the end; which grows or not, depending on the bytes.
            let at = match rng.below(3) {
                0 => content.len() as u64,
                1 => rng.below(content.len() as u64 + 1),
                _ => content.len() as u64 + rng.below(20_000),
            };
            let mut piece = text(rng.between(1, 30_000) as usize);
            if rng.chance(2, 3) {
                rng.fill(&mut piece);
            }
            lower.layer().room.set(Some(rng.below(piece.len() as u64 * 3 / 2)));
            let mut expected = content.clone();
            expected.resize(expected.len().max(at as usize + piece.len()), 0);
            expected[at as usize..at as usize + piece.len()].copy_from_slice(&piece);
            let again = replay.command(seed, None, None, None);
            match client.write(file, at, &piece).await {
                Ok(()) => done += 1,
                Err(FsError::NoSpace) => {
                    refused += 1;
                    // Of the bytes that it has, those that were being written may be either.
                    let read = client.read(file, 0, 1 << 20).await.unwrap_or_else(|error| panic!("{error}: {again}"));
                    assert_eq!(read.len(), content.len(), "{again}");
                    let is_either = |(place, byte): (usize, &u8)| {
                        let was_written = place as u64 >= at && (place as u64) < at + piece.len() as u64;
                        *byte == content[place] || was_written && *byte == expected[place]
                    };
                    assert!(read.iter().enumerate().all(is_either), "{again}");
                    expected = read;
                }
                Err(error) => panic!("{error}: {again}"),
            }
            client.close(file).await.unwrap();
            client.fs().close().await.unwrap();
            let client = Client::new(stack_on(&rt, lower.clone(), options.clone()).await.unwrap());
            assert!(
                client.read_file(b"/f").await.unwrap_or_else(|error| panic!("{error}: {again}")) == expected,
                "{again}"
            );
            // With room again, the same write succeeds.
            lower.layer().room.set(None);
            let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
            client.write(file, at, &piece).await.unwrap();
            expected.resize(expected.len().max(at as usize + piece.len()), 0);
            expected[at as usize..at as usize + piece.len()].copy_from_slice(&piece);
            assert!(client.read(file, 0, 1 << 20).await.unwrap() == expected, "{again}");
            client.close(file).await.unwrap();
            client.fs().close().await.unwrap();
            let report = check::check(&rt, lower.clone(), options, false).await.expect("the check runs");
            assert_eq!(report.findings, [], "{again}");
        });
    }
    assert!(replay.seed.is_some() || refused > 50 && done > 50, "{refused} refused, {done} done");
}
