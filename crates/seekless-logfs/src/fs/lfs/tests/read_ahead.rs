//! Aim: a caller that reads in order finds its next blocks read while it works, and never reads old or foreign bytes.
//! Method: a slow device in virtual time; then readers beside writers that change the same files, delays drawn from the
//! seed.

use futures_util::future::join_all;

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{BlockDevice, Data, WriteFlags};
use crate::fs::logfs::format::Pointer;
use crate::fs::logfs::tree::BlockId;
use crate::fs::{DirEntry, DirSink, FileSystem};
use crate::rng::Rng;
use crate::testing::environment::replay;
use crate::units::Ino;

const BLOCK: usize = format::BLOCK_BYTES;

/// A volume with the file `/f` of `bytes`, on a device whose reads take the times of `reads`, mounted with a cold cache.
async fn with_file(rt: &Rt, bytes: usize, reads: std::ops::RangeInclusive<Nanos>) -> (Client, Rc<FaultDevice>) {
    let (_, device) = fresh(rt, 64 * MIB).await;
    let slow = FaultDevice::new(rt, device, 1);
    let client = Client::new(mount(rt.clone(), slow.clone(), Options::default()).await.expect("mount"));
    let content: Vec<u8> = (0..bytes).map(|at| (at / BLOCK % 251) as u8).collect();
    client.write_file(b"/f", &content).await.expect("write");
    client.fs().drop_caches().await.expect("drop");
    slow.add(Rule::new(Kinds::READ, When::Always, Effect::Delay(reads)));
    (client, slow)
}

/// Aim: neither the device nor the caller waits for the other but at the beginning. Method: a caller that works for as
/// long as the device takes for what it has read; one after the other, the two would take twice as long.
#[test]
fn the_device_reads_while_the_caller_works() {
    simulate(1, async |rt| {
        const MILLISECOND: Nanos = Nanos::from_micros(1000);
        for request in [2 * BLOCK, 16 * BLOCK, 128 * BLOCK] {
            let bytes = 4 * MIB as usize;
            let (client, slow) = with_file(&rt, bytes, MILLISECOND..=MILLISECOND).await;
            let file = client.open(b"/f", OpenFlags::default()).await.expect("open");
            let (began, reads_before) = (rt.now(), slow.looked_at(0));
            // A window takes the device a millisecond.
            let work = Nanos(MILLISECOND.0 * request as u64 / (64 << 10).max(request as u64));
            for offset in (0..bytes).step_by(request) {
                let read = client.read(file, offset as u64, request as u32).await.expect("read");
                assert_eq!(read[0], (offset / BLOCK % 251) as u8);
                rt.sleep(work).await;
            }
            let (took, reads) = (rt.now() - began, slow.looked_at(0) - reads_before);
            let worked = Nanos(work.0 * (bytes / request) as u64);
            assert!(
                took.0 < worked.0 * 13 / 10,
                "requests of {request}: {took:?} for {worked:?} of work, {reads} reads"
            );
            client.close(file).await.expect("close");
            client.fs().close().await.expect("close");
        }
    });
}

/// Aim: damage in what is read ahead concerns only the caller that asks for it, whether it is read with a request or by
/// a task. Method: a file with one block that cannot be read, or holds other bytes; each request in order, of several
/// sizes, with a cold cache.
#[test]
fn damage_ahead_is_met_where_it_is() {
    const BLOCKS: u64 = 100;
    let replay = replay("fs::lfs::tests::read_ahead::damage_ahead_is_met_where_it_is");
    for seed in replay.seeds(0..60) {
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let (bad, request) = (rng.between(1, BLOCKS - 1), rng.between(1, 24));
            let (memory, device) = fresh(&rt, 64 * MIB).await;
            let slow = FaultDevice::new(&rt, device, seed);
            let lfs = open(rt.clone(), slow.clone(), Options::default()).await.expect("mount");
            let client = Client::new(lfs.clone());
            let content: Vec<u8> = (0..BLOCKS).flat_map(|block| [block as u8; BLOCK]).collect();
            client.write_file(b"/f", &content).await.expect("write");
            client.fs().drop_caches().await.expect("drop");
            let ino = client.resolve(b"/f").await.expect("resolve");
            let pointer = lfs.run(|state| state.pointer(BlockId::data(ino, bad))).await.expect("a pointer");
            let Pointer::Mapped { at, sectors, .. } = pointer else { panic!("{pointer:?}") };
            match seed % 2 {
                0 => slow.lose(at..at + u64::from(sectors)),
                _ => memory.write(at, Data::from_slice(&[0xee; 512]), WriteFlags::NONE).await.expect("damage"),
            }
            let delays = Nanos::from_micros(1)..=Nanos::from_micros(300);
            slow.add(Rule::new(Kinds::READ, When::Always, Effect::Delay(delays)));
            let file = client.open(b"/f", OpenFlags::default()).await.expect("open");
            for first in (0..BLOCKS).step_by(request as usize) {
                let end = (first + request).min(BLOCKS);
                let bytes = ((end - first) as usize * BLOCK) as u32;
                let read = client.read(file, first * BLOCK as u64, bytes).await;
                let right = &content[first as usize * BLOCK..end as usize * BLOCK];
                match (first..end).contains(&bad) {
                    true => drop(read.expect_err("a damaged block")),
                    false => {
                        assert!(read.is_ok_and(|read| read == right), "{}", replay.command(seed, None, None, None))
                    }
                }
                rt.sleep(Nanos::from_micros(rng.below(200))).await;
            }
        });
    }
}

/// Takes every entry.
struct CountEntries(usize);

impl DirSink for CountEntries {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        assert!(entry.entry.is_some() || entry.name.starts_with(b"."), "{entry:?}");
        self.0 += 1;
        true
    }
}

/// Aim: a listing with attributes reads each group of inodes once, and those of a leaf at the same time. Method: small
/// files, whose inodes lie between their data and so begin at any sector; a cold cache, and reads of a millisecond.
#[test]
fn a_listing_reads_groups_of_inodes_together() {
    const FILES: u64 = 400;
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 64 * MIB).await;
        let slow = FaultDevice::new(&rt, device, 1);
        let lfs = open(rt.clone(), slow.clone(), Options::default()).await.expect("mount");
        let client = Client::new(lfs.clone());
        for file in 0..FILES {
            client.write_file(format!("/{file}").as_bytes(), &[7; 1024]).await.expect("write");
        }
        client.fs().drop_caches().await.expect("drop");
        const MILLISECOND: Nanos = Nanos::from_micros(1000);
        slow.add(Rule::new(Kinds::READ, When::Always, Effect::Delay(MILLISECOND..=MILLISECOND)));
        let reads = |lfs: &Lfs| (lfs.state.borrow().inode_reads, lfs.state.borrow().block_reads);
        let (began, before) = (rt.now(), reads(&lfs));
        let mut listed = CountEntries(0);
        lfs.readdir(Ino::ROOT, None, 0, true, &mut listed).await.expect("a listing");
        let (took, after) = (rt.now() - began, reads(&lfs));
        assert_eq!(listed.0 as u64, FILES + 2);
        let (inode_reads, block_reads) = (after.0 - before.0, after.1 - before.1);
        assert!(inode_reads <= FILES / 16 + 8, "{inode_reads} reads of inodes");
        // The root's inode, blocks one after the other, and for each leaf one time for all groups.
        let most = Nanos(MILLISECOND.0 * (2 * block_reads + 2));
        assert!(took <= most, "{took:?} for {inode_reads} reads of inodes and {block_reads} of blocks");
        client.fs().close().await.expect("close");
    });
}

/// Each block holds its file's number, its own, and the number of the write that stored it.
fn stamped(file: u64, block: u64, version: u64) -> Vec<u8> {
    let mut bytes = vec![0; BLOCK];
    for (place, word) in bytes.chunks_exact_mut(24).zip(std::iter::repeat([file, block, version])) {
        for (at, value) in place.chunks_exact_mut(8).zip(word) {
            at.copy_from_slice(&value.to_le_bytes());
        }
    }
    bytes
}

/// Aim: two things meet: blocks on their way into memory, and their overwriting, truncation or removal. Method: clients
/// that read files in order, each beside one that changes them; a block read is never older than the last write that was
/// acknowledged before the read began.
#[test]
fn readers_beside_writers() {
    let replay = replay("fs::lfs::tests::read_ahead::readers_beside_writers");
    for seed in replay.seeds(0..30) {
        simulate(seed, async |rt| {
            let options = Options { cache_bytes: [1, 1 << 20, 32 << 20][seed as usize % 3], ..Options::default() };
            let (_, device) = fresh(&rt, 64 * MIB).await;
            let slow = FaultDevice::new(&rt, device, seed);
            let reads = Nanos::from_micros(5)..=Nanos::from_micros(2000);
            slow.add(Rule::new(Kinds::READ, When::Always, Effect::Delay(reads)));
            let fs = mount(rt.clone(), slow, options).await.expect("mount");
            let clients = (0..3).map(|number| {
                let (rt, fs, replay) = (rt.clone(), fs.clone(), &replay);
                async move {
                    let mut rng = Rng::new(seed * 8 + number);
                    churn(&rt, fs, number, &mut rng).await.unwrap_or_else(|error| {
                        panic!("{error}\n{}", replay.command(seed, None, None, None));
                    });
                }
            });
            join_all(clients).await;
            assert_eq!(fs.check().await.expect("recounted"), Vec::<String>::new());
            fs.close().await.expect("close");
        });
    }
}

/// A writer and two readers of one file.
async fn churn(rt: &Rt, fs: Fs, number: u64, rng: &mut Rng) -> FsResult<()> {
    const BLOCKS: u64 = 200;
    let name = format!("/{number}").into_bytes();
    let client = Client::new(fs);
    // What has been acknowledged: the version of each block of the file.
    let versions = std::cell::RefCell::new(Vec::new());
    let file = client.create(&name).await?;
    let done = std::cell::Cell::new(false);
    let (mut of_writer, of_readers) = (Rng::new(rng.next_u64()), [rng.next_u64(), rng.next_u64()]);
    let writer = async {
        for version in 1..60 {
            match of_writer.below(8) {
                0 => {
                    let blocks = of_writer.below(BLOCKS);
                    // Readers may see the file shorter from now on.
                    versions.borrow_mut().truncate(blocks as usize);
                    client.truncate(&name, blocks * BLOCK as u64).await?;
                    versions.borrow_mut().resize(blocks as usize, 0);
                }
                1 => client.fs().drop_caches().await?,
                2 => client.sync().await?,
                _ => {
                    let first = of_writer.below(BLOCKS);
                    for block in first..(first + of_writer.between(1, 60)).min(BLOCKS) {
                        client.write(file, block * BLOCK as u64, &stamped(number, block, version)).await?;
                        let mut versions = versions.borrow_mut();
                        let blocks = versions.len().max(block as usize + 1);
                        versions.resize(blocks, 0);
                        versions[block as usize] = version;
                    }
                }
            }
            rt.sleep(Nanos::from_micros(of_writer.below(3000))).await;
        }
        done.set(true);
        FsResult::Ok(())
    };
    let readers = of_readers.map(|seed| {
        let (client, done, versions) = (&client, &done, &versions);
        async move {
            let mut rng = Rng::new(seed);
            while !done.get() {
                let (mut block, step) = (rng.below(BLOCKS), rng.between(1, 20));
                loop {
                    let known = versions.borrow().clone();
                    let read = client.read(file, block * BLOCK as u64, step as u32 * BLOCK as u32).await?;
                    for (index, bytes) in (block..).zip(read.chunks_exact(BLOCK)) {
                        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
                        let (version, oldest) = (word(16), known.get(index as usize).copied().unwrap_or(0));
                        let is_whole = version == 0 || *bytes == stamped(number, index, version);
                        assert!(is_whole, "block {index} of {number} holds [{}, {}, {version}]", word(0), word(8));
                        let still = versions.borrow().get(index as usize).is_some_and(|&now| now >= oldest && now > 0);
                        assert!(
                            !still || version >= oldest,
                            "block {index}: {version} after {oldest} was acknowledged"
                        );
                    }
                    block += step;
                    if read.len() < step as usize * BLOCK {
                        break;
                    }
                    rt.sleep(Nanos::from_micros(rng.below(800))).await;
                }
                rt.sleep(Nanos::from_micros(rng.below(5000))).await;
            }
            FsResult::Ok(())
        }
    });
    let (wrote, read) = futures_util::future::join(writer, join_all(readers)).await;
    wrote?;
    read.into_iter().collect::<FsResult<()>>()?;
    client.close(file).await
}
