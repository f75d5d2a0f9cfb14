//! Aim: what is overwritten makes room for what comes after it, also in files that were written by an earlier mount, whether
//! that was closed or killed. Method: a file is overwritten and made durable many times over; the file below stays small. And
//! changes wait in no more memory than they may.

use super::*;
use crate::fs::client::Client;
use crate::fs::{AllocateMode, FileRange};
use crate::rng::Rng;
use crate::testing::{MemFsOptions, WeakFs};

const FILE_BYTES: usize = 64 << 10;

/// Bytes that no codec makes smaller.
fn noise(rng: &mut Rng, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    rng.fill(&mut noise);
    noise
}

#[test]
fn space_is_used_again() {
    for (seed, is_closed) in [(1, true), (2, false)] {
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let lower: Fs = model(&rt);
            let options = tiny(Arc::new(Zstd::default()));
            let mut content = noise(&mut rng, FILE_BYTES);
            {
                let fs = stack_on(&rt, lower.clone(), options.clone()).await.expect("stack");
                let client = Client::new(fs.clone());
                client.write_file(b"/f", &content).await.expect("written");
                client.sync().await.expect("synced");
                if is_closed {
                    fs.close().await.expect("closed");
                }
            }
            let fs = stack_on(&rt, lower.clone(), options.clone()).await.expect("stacked again");
            let client = Client::new(fs.clone());
            let file = client.open(b"/f", crate::fs::OpenFlags::READ_WRITE).await.expect("open");
            for round in 0..200 {
                let (at, piece) = (round * 7 % 16 * 4096, noise(&mut rng, 4096));
                client.write(file, at as u64, &piece).await.expect("written");
                client.fsync(file).await.expect("synced");
                content[at..at + 4096].copy_from_slice(&piece);
            }
            client.close(file).await.expect("released");
            let size = Client::new(lower.clone()).stat(b"/f").await.expect("it is there").size;
            assert!(
                size < 2 * FILE_BYTES as u64,
                "{size} bytes below after 200 times 4 KiB in {FILE_BYTES} (closed: {is_closed})"
            );
            assert!(client.read_file(b"/f").await.expect("read") == content);
            fs.close().await.expect("closed");
            assert_clean(&rt, &lower, &options).await;
        });
    }
}

/// Each hole in a chunk and each cut of one leaves the rest of the chunk in memory, until it is written below. Where the volume
/// is full nothing can be written, and they must not fail for that. Method: many of both in no time.
#[test]
fn holes_and_cuts_wait_in_bounded_memory() {
    const CHUNKS: u64 = 200;
    for (is_cut, is_full) in [(false, false), (false, true), (true, false), (true, true)] {
        simulate(1, async |rt| {
            let options =
                Options { write_back_interval: Nanos::from_secs(1_000), ..tiny(Arc::new(crate::layer::codecs::Copy)) };
            let most = options.dirty_bytes_max + (1 << options.chunk_shift);
            let lower = WeakFs::around(&rt, MemFsOptions::default(), model(&rt));
            let fs = stack_on(&rt, lower.clone(), options).await.expect("stack");
            let client = Client::new(fs.clone());
            let waiting =
                || fs.counters().into_iter().find(|(name, _)| *name == "bytes_waiting").map(|(_, bytes)| bytes);
            let mut expected = Vec::new();
            for number in 0..CHUNKS {
                let path = format!("/{number}").into_bytes();
                let content = noise(&mut Rng::new(number), 4096);
                client.write_file(&path, &content).await.expect("written");
                expected.push((path, content));
            }
            client.sync().await.expect("synced");
            lower.fill(0..if is_full { u64::MAX } else { 0 });
            for (path, content) in &mut expected {
                if is_cut {
                    client.truncate(path, 3_000).await.expect("cut");
                    content.truncate(3_000);
                } else {
                    let hole = FileRange { offset: 0, bytes: 1_000 };
                    client.fallocate(path, hole, AllocateMode::PunchHole).await.expect("punched");
                    content[..1_000].fill(0);
                }
                assert!(is_full || waiting().is_some_and(|bytes| bytes <= most), "{:?} of {most} bytes", waiting());
            }
            lower.fill(0..0);
            for (path, content) in &expected {
                assert!(client.read_file(path).await.expect("read") == *content);
            }
            fs.close().await.expect("closed");
        });
    }
}
