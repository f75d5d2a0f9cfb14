//! Aim: a lower file is taken for ours only when that is certain; any other is shown and changed as it is, or refused,
//! and in neither case damaged. Method: files that contain more and more of ours at different offsets; each is read,
//! appended to through the layer, and compared below.

use super::*;
use crate::fs::client::Client;
use crate::fs::{FsError, OpenFlags};
use crate::layer::log::format::{Commit, RECORDS_START};
use crate::rng::Rng;

/// The lower file of a file of `bytes` bytes that was committed `commits` times.
async fn ours(rt: &Rt, bytes: usize, commits: u64) -> Vec<u8> {
    let lower = model(rt);
    let fs = stack_on(rt, lower.clone(), tiny(Arc::new(Zstd::default()))).await.unwrap();
    let client = Client::new(fs.clone());
    let mut content = vec![0; bytes];
    Rng::new(bytes as u64).fill(&mut content);
    let file = client.create(b"/f").await.unwrap();
    for commit in 0..commits {
        client.write(file, commit, &content).await.unwrap();
        client.fsync(file).await.unwrap();
    }
    client.close(file).await.unwrap();
    fs.close().await.unwrap();
    Client::new(lower as Fs).read_file(b"/f").await.unwrap()
}

/// `bytes` zeroes with `inner` at `offset`.
fn image(bytes: usize, offset: usize, inner: &[u8]) -> Vec<u8> {
    let mut image = vec![0; bytes.max(offset + inner.len())];
    image[offset..offset + inner.len()].copy_from_slice(inner);
    image
}

/// The file is shown as it is, and an append appends below.
async fn assert_plain(rt: &Rt, what: &str, content: &[u8]) {
    let lower = model(rt);
    let below = Client::new(lower.clone() as Fs);
    below.write_file(b"/f", content).await.unwrap();
    let fs = stack_on(rt, lower.clone(), zstd()).await.unwrap();
    let client = Client::new(fs.clone());
    assert_eq!(client.stat(b"/f").await.unwrap().size, content.len() as u64, "{what}");
    assert!(client.read_file(b"/f").await.unwrap() == content, "{what}");
    let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
    client.write(file, content.len() as u64, b"more").await.unwrap();
    client.close(file).await.unwrap();
    fs.close().await.unwrap();
    assert!(below.read_file(b"/f").await.unwrap() == [content, b"more"].concat(), "{what}: changed below");
}

/// The file is refused, and unchanged below.
async fn assert_untouched(rt: &Rt, what: &str, content: &[u8], mark: Option<&[u8]>) {
    let lower = model(rt);
    let below = Client::new(lower.clone() as Fs);
    below.write_file(b"/f", content).await.unwrap();
    if let Some(mark) = mark {
        below.set_xattr(b"/f", mark::NAME, mark).await.unwrap();
    }
    let fs = stack_on(rt, lower.clone(), zstd()).await.unwrap();
    let client = Client::new(fs.clone());
    let read = client.read_file(b"/f").await;
    assert!(matches!(read, Err(FsError::Corrupt { .. })), "{what}: {read:?}");
    assert!(client.open(b"/f", OpenFlags { truncate: true, ..OpenFlags::READ_WRITE }).await.is_err(), "{what}");
    fs.close().await.unwrap();
    assert!(below.read_file(b"/f").await.unwrap() == content, "{what}: changed below");
}

/// An image of a disk, an archive or a memory dump can contain whole files of ours, anywhere.
#[test]
fn files_that_contain_ours_are_plain() {
    simulate(1, async |rt| {
        let inner = ours(&rt, 20_000, 1).await;
        let record = &inner[RECORDS_START as usize..];
        for offset in [512, 1024, 1088, 2048, 4096, 4160, 65_536, 1 << 20, 63 << 20] {
            assert_plain(&rt, &format!("a file of ours at {offset}"), &image(0, offset, &inner)).await;
        }
        for offset in [1024, 4096, 1 << 20] {
            // At the offset of ext4's superblock.
            let mut disk = image(2 << 20, offset, record);
            disk[1024 + 0x38..1024 + 0x3a].copy_from_slice(&[0x53, 0xef]);
            assert_plain(&rt, &format!("records at {offset}, and something else"), &disk).await;
            let mut other = image(2 << 20, offset, record);
            other[(2 << 20) - 1] = 1;
            assert_plain(&rt, &format!("records at {offset}, and a byte at the end"), &other).await;
            let mut turned = image(2 << 20, offset, record);
            turned[offset + 200] ^= 1;
            assert_plain(&rt, &format!("records at {offset}, one of them with other bytes"), &turned).await;
        }
        // Slots alone, at offsets that are not theirs.
        assert_plain(&rt, "slots behind zeroes", &image(0, 512, &inner[..512])).await;
        rt.sleep(Nanos::from_secs(1)).await;
        let other = ours(&rt, 300, 1).await;
        let both = [vec![0; 1024], record.to_vec(), other[RECORDS_START as usize..].to_vec()].concat();
        assert_plain(&rt, "records of two files", &both).await;
    });
}

/// Seeded images: zeroes, with pieces of files of ours and of noise at random places.
#[test]
fn images_of_anything_are_plain() {
    let replay = replay("foreign::images_of_anything_are_plain");
    for seed in replay.seeds(0..40) {
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let inner = ours(&rt, rng.between(1, 40_000) as usize, rng.between(1, 4)).await;
            let mut image = vec![0; 1 << 20];
            for _ in 0..rng.between(1, 4) {
                let from = rng.below(inner.len() as u64 / 64) as usize * 64;
                let length = rng.between(64, (inner.len() - from) as u64) as usize;
                let at = 65_536 + rng.below(12_000) as usize * 64;
                image[at..at + length].copy_from_slice(&inner[from..from + length]);
            }
            // A foreign piece, before or behind the rest: without it, the file could be an interrupted first commit.
            let at =
                if rng.chance(1, 2) { 1024 + rng.below(60_000) } else { (1 << 20) - 700 - rng.below(60_000) } as usize;
            rng.fill(&mut image[at..at + 600]);
            assert_plain(&rt, &format!("seed {seed}"), &image).await;
        });
    }
}

/// What a cut leaves of a file's first write is an empty file, and can be written; a file that only begins like it is
/// foreign.
#[test]
fn a_short_file_is_ours_only_if_it_begins_with_an_initial_commit() {
    simulate(1, async |rt| {
        let initial = Commit::initial(16, 77).encode();
        for length in [24, 100, 511, 512] {
            let lower = model(&rt);
            let below = Client::new(lower.clone() as Fs);
            below.write_file(b"/f", &initial[..length]).await.unwrap();
            let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
            let client = Client::new(fs.clone());
            assert_eq!(client.read_file(b"/f").await, Ok(Vec::new()), "{length} bytes");
            let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
            client.write(file, 0, b"new").await.unwrap();
            client.close(file).await.unwrap();
            fs.close().await.unwrap();
            assert_clean(&rt, &(lower as Fs), &zstd()).await;
        }
        assert_untouched(&rt, "the magic alone", &initial[..8], None).await;
        assert_untouched(&rt, "too short to be sure", &initial[..20], None).await;
        assert_untouched(&rt, "text that begins with the magic", b"SKLSlog1 is what a file begins with\n", None).await;
        let whole = ours(&rt, 20_000, 2).await;
        for length in [24, 300, 511] {
            assert_untouched(&rt, "a copy that was cut", &whole[..length], None).await;
        }
    });
}

/// A file whose first kilobyte is gone counts as empty where it may never have been committed, and as damaged where it
/// was: it is not changed, and the check builds a new head from its records.
#[test]
fn a_lost_head_is_damage_once_there_was_a_commit() {
    simulate(1, async |rt| {
        let headless = |mut file: Vec<u8>| {
            file[..RECORDS_START as usize].fill(0);
            file
        };
        let once = headless(ours(&rt, 20_000, 1).await);
        let lower = model(&rt);
        Client::new(lower.clone() as Fs).write_file(b"/f", &once).await.unwrap();
        let client = Client::new(stack_on(&rt, lower, zstd()).await.unwrap());
        assert_eq!(client.read_file(b"/f").await, Ok(Vec::new()), "a first commit that never was");
        // Torn, as a power cut leaves it.
        for cut in [2048, 6144] {
            let mut torn = once.clone();
            torn[cut..cut + 1024].fill(0);
            let lower = model(&rt);
            Client::new(lower.clone() as Fs).write_file(b"/f", &torn[..once.len() - 700]).await.unwrap();
            let client = Client::new(stack_on(&rt, lower, zstd()).await.unwrap());
            assert_eq!(client.read_file(b"/f").await, Ok(Vec::new()), "torn at {cut}");
        }
        for mark in [format::SizeMark::new(true, 20_000, 2, 5), format::SizeMark::new(false, 0, 0, 0)] {
            assert_untouched(&rt, "it has a mark", &once, Some(&mark.to_bytes())).await;
        }
        let often = headless(ours(&rt, 20_000, 5).await);
        assert_untouched(&rt, "its records are of later commits", &often, None).await;
        let lower = model(&rt);
        Client::new(lower.clone() as Fs).write_file(b"/f", &often).await.unwrap();
        let report = check::check(&rt, lower.clone(), zstd(), true).await.unwrap();
        assert!(report.findings.len() == 1 && report.findings[0].repaired, "{:?}", report.findings);
        assert_clean(&rt, &(lower.clone() as Fs), &zstd()).await;
        let client = Client::new(stack_on(&rt, lower, zstd()).await.unwrap());
        assert_eq!(client.stat(b"/f").await.unwrap().size, 20_004);
        assert!(client.read_file(b"/f").await.is_ok());
    });
}

/// Aim: a file of ours that another program has replaced is plain for good. Method: what `cat x > file` leaves on an unmounted
/// directory, with the mark of what was there; through the layer it becomes as long as the mark says.
#[test]
fn a_replaced_file_stays_plain_whatever_its_length() {
    for grows in [true, false] {
        simulate(1, async |rt| {
            let lower = model(&rt);
            let below = Client::new(lower.clone() as Fs);
            let content = [5; 5_000];
            below.write_file(b"/f", &content).await.unwrap();
            let length = if grows { 6_000 } else { 4_000 };
            let mark = format::SizeMark::new(true, 20_000, 5, length as u64).to_bytes();
            below.set_xattr(b"/f", mark::NAME, &mark).await.unwrap();
            let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
            let client = Client::new(fs.clone());
            assert!(client.read_file(b"/f").await.unwrap() == content);
            match grows {
                true => {
                    let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
                    client.write(file, 5_000, &[6; 1_000]).await.unwrap();
                    client.close(file).await.unwrap();
                }
                false => client.truncate(b"/f", length as u64).await.unwrap(),
            }
            let changed = client.read_file(b"/f").await.unwrap();
            assert_eq!(changed.len(), length);
            fs.close().await.unwrap();
            let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
            assert!(Client::new(fs.clone()).read_file(b"/f").await.unwrap() == changed, "mounted again");
            fs.close().await.unwrap();
        });
    }
}
