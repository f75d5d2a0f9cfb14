//! Aim: damage is noticed, and repaired where possible. Method: damage of every kind done to lower files.

use super::*;
use crate::fs::client::Client;
use crate::fs::{FileSystem, FsError};

fn text(bytes: usize) -> Vec<u8> {
    b"the quick brown fox jumps over the lazy dog; ".iter().copied().cycle().take(bytes).collect()
}

/// A file system below with one file of `content` in it, written through the layer and closed.
async fn made(rt: &Rt, options: &Options, content: &[u8]) -> (Rc<MemFs>, Client) {
    let lower = model(rt);
    let fs = stack_on(rt, lower.clone(), options.clone()).await.unwrap();
    Client::new(fs.clone()).write_file(b"/f", content).await.unwrap();
    fs.close().await.unwrap();
    let below: Fs = lower.clone();
    (lower, Client::new(below))
}

async fn mounted(rt: &Rt, lower: &Rc<MemFs>, options: &Options) -> Client {
    Client::new(stack_on(rt, lower.clone(), options.clone()).await.unwrap())
}

/// Writes `bytes` to the lower file, as a program does that does not know the layer.
async fn overwrite(below: &Client, bytes: &[u8]) {
    below.write_file(b"/f", bytes).await.unwrap();
}

/// Every single bit of a small file.
#[test]
fn every_flipped_bit_is_noticed() {
    for options in [zstd(), Options::new(Arc::new(crate::layer::codecs::Copy))] {
        simulate(1, async |rt| {
            let content = text(700);
            let (lower, below) = made(&rt, &options, &content).await;
            let good = below.read_file(b"/f").await.unwrap();
            for bit in 0..good.len() * 8 {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                overwrite(&below, &bad).await;
                let client = mounted(&rt, &lower, &options).await;
                let read = client.read_file(b"/f").await;
                assert!(matches!(read, Err(FsError::Corrupt { .. })), "bit {bit} of byte {}: {read:?}", bit / 8);
                if bit % 16 == 0 {
                    let report = check::check(&rt, lower.clone(), options.clone(), false).await.unwrap();
                    assert_eq!(report.findings.len(), 1, "bit {bit}");
                }
            }
            overwrite(&below, &good).await;
            assert_eq!(mounted(&rt, &lower, &options).await.read_file(b"/f").await, Ok(content));
        });
    }
}

/// A copy that ended early is refused with an error, whatever the rule for foreign files is. One that does not go
/// beyond its first slot is what a crash leaves of a file's first write, and empty, if that slot is an initial commit and no
/// clean mark says that the file was longer.
#[test]
fn a_file_cut_short_is_refused() {
    simulate(1, async |rt| {
        let options = tiny(Arc::new(Zstd::default()));
        let mut content = vec![0; 40_000];
        crate::rng::Rng::new(1).fill(&mut content);
        let (lower, below) = made(&rt, &options, &content).await;
        let good = below.read_file(b"/f").await.unwrap();
        let ino = below.stat(b"/f").await.unwrap().ino;
        let mark = lower.getxattr(ino, b"user.seekless.size").await.expect("a closed file has one");
        for plain in [Plain::Pass, Plain::Error] {
            let options = Options { plain, ..options.clone() };
            for length in [24, 300, 511, 512] {
                overwrite(&below, &good[..length]).await;
                lower.setxattr(ino, b"user.seekless.size", &mark, crate::fs::XattrMode::Set).await.unwrap();
                let client = mounted(&rt, &lower, &options).await;
                let read = client.read_file(b"/f").await;
                assert!(matches!(read, Err(FsError::Corrupt { .. })), "{length} bytes with a mark: {read:?}");
                client.fs().close().await.unwrap();
                let report = check::check(&rt, lower.clone(), options.clone(), false).await.unwrap();
                assert_eq!(report.findings.len(), 1, "{length} bytes with a mark");
                lower.removexattr(ino, b"user.seekless.size").await.unwrap();
                let read = mounted(&rt, &lower, &options).await.read_file(b"/f").await;
                assert_eq!(read, Ok(Vec::new()), "{length} bytes");
            }
            for length in [8, 23].into_iter().chain((513..1_100).step_by(7)).chain((1_100..good.len()).step_by(97)) {
                overwrite(&below, &good[..length]).await;
                let client = mounted(&rt, &lower, &options).await;
                let read = client.read_file(b"/f").await;
                assert!(matches!(read, Err(FsError::Corrupt { .. })), "{length} bytes: {read:?}");
                client.fs().close().await.unwrap();
                assert!(below.read_file(b"/f").await.unwrap() == good[..length], "{length} bytes are kept");
            }
        }
    });
}

/// A file without its slots, or without its index, is repaired from the heads of its records.
#[test]
fn an_index_is_made_again() {
    simulate(1, async |rt| {
        let options = tiny(Arc::new(Zstd::default()));
        // Many chunks, so that there are nodes; some of them written twice, one appended to.
        let mut content = text(300_000);
        let (lower, below) = made(&rt, &options, &content).await;
        let client = mounted(&rt, &lower, &options).await;
        let file = client.open(b"/f", crate::fs::OpenFlags::READ_WRITE).await.unwrap();
        for at in [5_000usize, 100_000, 200_001] {
            content[at..at + 3_000].fill(at as u8);
            client.write(file, at as u64, &content[at..at + 3_000]).await.unwrap();
            client.fsync(file).await.unwrap();
        }
        client.write(file, 300_000, b"the end").await.unwrap();
        content.extend_from_slice(b"the end");
        client.fsync(file).await.unwrap();
        client.close(file).await.unwrap();
        client.fs().close().await.unwrap();
        let good = below.read_file(b"/f").await.unwrap();
        let ino = below.stat(b"/f").await.unwrap().ino;
        let nodes: Vec<usize> = check::dump(&(lower.clone() as Fs), ino)
            .await
            .unwrap()
            .lines()
            .filter(|line| line.contains(": node"))
            .map(|line| line.split(':').next().unwrap().parse().unwrap())
            .collect();
        assert!(!nodes.is_empty());
        let mut damages: Vec<Vec<usize>> = vec![vec![3], vec![600], vec![20, 700], vec![0, 512]];
        damages.extend(nodes.iter().map(|node| vec![node + 100]));
        for damage in damages {
            let mut bad = good.clone();
            for &at in &damage {
                bad[at] ^= 0x10;
            }
            overwrite(&below, &bad).await;
            let report = check::check(&rt, lower.clone(), options.clone(), true).await.unwrap();
            // The nodes of earlier commits do not matter.
            assert!(report.findings.iter().all(|finding| finding.repaired), "{damage:?}: {:?}", report.findings);
            assert_clean(&rt, &(lower.clone() as Fs), &options).await;
            let read = mounted(&rt, &lower, &options).await.read_file(b"/f").await.unwrap();
            assert!(read == content, "{damage:?}");
        }
    });
}

/// Foreign files are shown as they are or refused, and never lost.
#[test]
fn foreign_files_follow_the_rule() {
    let foreign = [
        b"#!/bin/sh\necho hello\n".to_vec(),
        text(100_000),
        vec![0; 500],
        vec![0; 5_000],
        // A file that begins like a disk image.
        [vec![0; 32_768], text(3_000)].concat(),
        b"S".to_vec(),
        vec![0xff; 1024],
    ];
    simulate(1, async |rt| {
        for (number, content) in foreign.into_iter().enumerate() {
            let lower = model(&rt);
            let below = Client::new(lower.clone());
            overwrite(&below, &content).await;
            let strict = Options { plain: Plain::Error, ..zstd() };
            let client = mounted(&rt, &lower, &strict).await;
            assert_eq!(client.stat(b"/f").await.unwrap().size, content.len() as u64, "file {number}");
            assert!(matches!(client.read_file(b"/f").await, Err(FsError::Corrupt { .. })), "file {number}");
            assert!(client.truncate(b"/f", 0).await.is_err(), "file {number}");
            let client = mounted(&rt, &lower, &zstd()).await;
            assert_eq!(client.read_file(b"/f").await.as_ref(), Ok(&content), "file {number}");
            let file = client.open(b"/f", crate::fs::OpenFlags::READ_WRITE).await.unwrap();
            client.write(file, content.len() as u64, b"more").await.unwrap();
            client.close(file).await.unwrap();
            client.fs().syncfs().await.unwrap();
            assert_eq!(below.read_file(b"/f").await.unwrap(), [&content[..], b"more"].concat(), "file {number}");
            // When written again as a whole, it becomes one of ours.
            client.write_file(b"/f", &content).await.unwrap();
            client.fs().close().await.unwrap();
            let client = mounted(&rt, &lower, &strict).await;
            assert_eq!(client.read_file(b"/f").await.as_ref(), Ok(&content), "file {number}");
        }
    });
}

/// Any user may make a file of exbibytes that begins like one of ours and holds nothing, or records far apart. What is
/// stored is read, and nothing else.
#[test]
fn holes_of_a_damaged_file_are_not_read() {
    simulate(1, async |rt| {
        let options = tiny(Arc::new(Zstd::default()));
        let content = text(40_000);
        let (lower, below) = made(&rt, &options, &content).await;
        let size = |size| crate::fs::SetAttr { size: Some(size), ..crate::fs::SetAttr::default() };
        let mut bad = below.read_file(b"/f").await.unwrap();
        bad[3] ^= 0x10;
        overwrite(&below, &bad).await;
        below.write_file(b"/g", b"SKLSlog1").await.unwrap();
        for path in [b"/f", b"/g"] {
            below.setattr(path, size(1 << 43)).await.unwrap();
        }
        for repair in [false, true] {
            let report = check::check(&rt, lower.clone(), options.clone(), repair).await.unwrap();
            let repaired = |path: &[u8]| {
                let finding = report.findings.iter().find(|finding| finding.path == path);
                finding.map(|finding| finding.repaired)
            };
            assert_eq!([repaired(b"/f"), repaired(b"/g")], [Some(repair), Some(false)], "{report:?}");
        }
        assert!(mounted(&rt, &lower, &options).await.read_file(b"/f").await.unwrap() == content);
    });
}

/// A file that was made longer and whose index is damaged then keeps its size, which no record has.
#[test]
fn a_repair_keeps_the_size_of_a_good_slot() {
    simulate(1, async |rt| {
        let options = tiny(Arc::new(Zstd::default()));
        let mut content = text(300_000);
        let (lower, below) = made(&rt, &options, &content).await;
        let client = mounted(&rt, &lower, &options).await;
        content.resize(500_000, 0);
        let size = crate::fs::SetAttr { size: Some(500_000), ..crate::fs::SetAttr::default() };
        client.setattr(b"/f", size).await.unwrap();
        client.fs().close().await.unwrap();
        let mut bad = below.read_file(b"/f").await.unwrap();
        let records = check::dump(&(lower.clone() as Fs), below.stat(b"/f").await.unwrap().ino).await.unwrap();
        for node in records.lines().filter(|line| line.contains(": node")) {
            bad[node.split(':').next().unwrap().parse::<usize>().unwrap() + 100] ^= 0x10;
        }
        overwrite(&below, &bad).await;
        let report = check::check(&rt, lower.clone(), options.clone(), true).await.unwrap();
        assert!(!report.findings.is_empty() && report.findings.iter().all(|finding| finding.repaired), "{report:?}");
        assert!(mounted(&rt, &lower, &options).await.read_file(b"/f").await.unwrap() == content);
        assert_clean(&rt, &(lower.clone() as Fs), &options).await;
    });
}

/// What a repair takes for the heads of records is the file's own, even if data looks like records: here the whole of another lower
/// file, written more often, lies behind the end.
#[test]
fn a_repair_takes_no_records_of_another_file() {
    simulate(1, async |rt| {
        let options = tiny(Arc::new(Zstd::default()));
        let content = text(300_000);
        let (lower, below) = made(&rt, &options, &content).await;
        let client = mounted(&rt, &lower, &options).await;
        for round in 0..5 {
            client.write_file(b"/g", &vec![round; 200_000]).await.unwrap();
            client.fs().syncfs().await.unwrap();
        }
        client.fs().close().await.unwrap();
        let mut bad = below.read_file(b"/f").await.unwrap();
        let records = check::dump(&(lower.clone() as Fs), below.stat(b"/f").await.unwrap().ino).await.unwrap();
        for node in records.lines().filter(|line| line.contains(": node")) {
            bad[node.split(':').next().unwrap().parse::<usize>().unwrap() + 100] ^= 0x10;
        }
        bad.resize(bad.len().next_multiple_of(64), 0);
        bad.extend_from_slice(&below.read_file(b"/g").await.unwrap()[1024..]);
        overwrite(&below, &bad).await;
        let report = check::check(&rt, lower.clone(), options.clone(), true).await.unwrap();
        assert!(report.findings.iter().any(|finding| finding.repaired), "{report:?}");
        assert!(mounted(&rt, &lower, &options).await.read_file(b"/f").await.unwrap() == content);
    });
}
