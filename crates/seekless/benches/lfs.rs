//! Speed of LFS on a device in memory, in processor time, and what its cleaner costs: `cargo bench -p seekless --bench
//! lfs [-- directory|overwrite|recovery]`.
//!
//! The device takes no time, so this is the cost of the file system's own work; the laboratory measures the cost on
//! disks. Times are those of one run each: the long ones are steady, and the shape is what matters.

#![allow(clippy::disallowed_methods)]

use std::rc::Rc;

use cpu_time::ProcessTime;
use seekless::device::{Device, Memory};
use seekless::fs::client::{Client, OpenFile};
use seekless::fs::lfs::{self, CleanerPolicy, MkfsOptions, Options};
use seekless::fs::{Fs, FsResult, NewNode, NodeKind};
use seekless::rng::Rng;
use seekless::rt::{Executor, HostProfile, Rt};
use seekless::units::{GIB, KIB, MIB, Nanos};

fn run<T>(program: impl AsyncFnOnce(Rt) -> FsResult<T>) -> T {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let result = executor.block_on(program(rt)).expect("the program ends");
    result.unwrap_or_else(|error| panic!("{error}"))
}

/// A new volume, mounted.
async fn fresh(rt: &Rt, bytes: u64, options: Options) -> FsResult<(Rc<Memory>, Fs)> {
    let memory = Rc::new(Memory::new(bytes));
    let device: Device = memory.clone();
    lfs::mkfs(rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await?;
    Ok((memory, lfs::mount(rt.clone(), device, options).await?))
}

fn counter(fs: &Fs, name: &str) -> u64 {
    fs.counters().into_iter().find(|(found, _)| *found == name).map_or(0, |(_, value)| value)
}

/// Names of one directory: made, found at random, and removed, in operations a second.
///
/// Once with a cache that holds everything, which shows the data structure, and once with the usual one, which adds the
/// cost of a volume larger than the cache.
fn directory(files: u64, cache_bytes: u64) {
    const LOOKUPS: u64 = 200_000;
    run(async |rt| {
        let options = Options { cache_bytes, ..Options::default() };
        let (_memory, fs) = fresh(&rt, 4 * GIB, options).await?;
        let client = Client::new(fs.clone());
        client.mkdir(b"/d").await?;
        let directory = client.resolve(b"/d").await?;
        let name = |number: u64| format!("file number {number}");
        let new = NewNode { permissions: 0o644, umask: 0, uid: 0, gid: 0 };

        let start = ProcessTime::now();
        for number in 0..files {
            let entry = fs.mknod(directory, name(number).as_bytes(), NodeKind::Regular, new).await?;
            client.forget(entry.attr.ino).await;
        }
        client.sync().await?;
        let created = files as f64 / start.elapsed().as_secs_f64();

        let mut rng = Rng::new(1);
        let reads = counter(&fs, "block_reads") + counter(&fs, "inode_reads");
        let start = ProcessTime::now();
        for _ in 0..LOOKUPS {
            let entry = fs.lookup(directory, name(rng.below(files)).as_bytes()).await?;
            client.forget(entry.attr.ino).await;
        }
        let found = LOOKUPS as f64 / start.elapsed().as_secs_f64();
        let reads = (counter(&fs, "block_reads") + counter(&fs, "inode_reads") - reads) as f64 / LOOKUPS as f64;

        let removals = files.min(LOOKUPS);
        let start = ProcessTime::now();
        for number in 0..removals {
            fs.unlink(directory, name(number * (files / removals)).as_bytes()).await?;
        }
        client.sync().await?;
        let removed = removals as f64 / start.elapsed().as_secs_f64();
        println!(
            "{files:>9} names, cache {:>4} MiB {created:>9.0} created/s {found:>9.0} found/s ({reads:.2} device reads \
             each) {removed:>9.0} removed/s",
            cache_bytes / MIB
        );
        client.forget(directory).await;
        fs.close().await
    });
}

/// The utilisation of cleaned segments when blocks are overwritten uniformly at random and the volume holds `rho` of
/// what would fit: u = e^(-(1-u)/ρ), for segments of many blocks and a greedy cleaner. [ro92 §3.5]
fn utilisation_of_cleaned(rho: f64) -> f64 {
    // Iterating converges to the lower of the two solutions; the other one is u = 1.
    (0..100_000).fold(0.0, |u: f64, _| (-(1.0 - u) / rho).exp())
}

/// Overwrites blocks of 4 KiB at random on a volume that is `df_percent` full according to `df`, until the cleaner
/// reaches a steady state; then prints the rate and the cost.
fn overwrite(df_percent: u64, cleaner: CleanerPolicy) {
    const VOLUME: u64 = GIB;
    const FILE_BLOCKS: u64 = 1024;
    const BLOCK: u64 = 4 * KIB;
    run(async |rt| {
        let (memory, fs) = fresh(&rt, VOLUME, Options { cleaner, ..Options::default() }).await?;
        let client = Client::new(fs.clone());
        let space = fs.statfs().await?;
        let mut files: Vec<OpenFile> = Vec::new();
        let mut bytes = vec![0; BLOCK as usize];
        let is_below = |free: u64| (space.blocks - free) * 100 < space.blocks * df_percent;
        while is_below(fs.statfs().await?.blocks_free) {
            let file = client.create(format!("/file{}", files.len()).as_bytes()).await?;
            for block in 0..FILE_BLOCKS {
                client.write(file, block * BLOCK, &bytes).await?;
            }
            files.push(file);
        }
        let blocks = files.len() as u64 * FILE_BLOCKS;
        let mut rng = Rng::new(1);
        let mut write = async |count: u64| {
            for number in 0..count {
                let block = rng.below(blocks);
                bytes[..8].copy_from_slice(&number.to_le_bytes());
                client.write(files[(block / FILE_BLOCKS) as usize], block % FILE_BLOCKS * BLOCK, &bytes).await?;
                // 10,000 a second, so that blocks have ages.
                rt.sleep(Nanos::from_micros(100)).await;
            }
            FsResult::Ok(())
        };
        write(3 * blocks).await?;
        client.sync().await?;
        let names = ["log_data_bytes", "log_metadata_bytes", "log_cleaned_bytes", "cleaner_read_bytes", "log_bytes"];
        let before = names.map(|name| counter(&fs, name));
        let start = ProcessTime::now();
        write(2 * blocks).await?;
        client.sync().await?;
        let seconds = start.elapsed().as_secs_f64();
        let after = names.map(|name| counter(&fs, name));
        let [data, metadata, cleaned, read, log] = std::array::from_fn(|at| (after[at] - before[at]) as f64);
        let new = data + metadata;
        let user = (2 * blocks * BLOCK) as f64;
        let device: Device = memory;
        let info = lfs::info(&device).await?;
        let rho = info.live_bytes as f64 / (info.segment_count * info.segment_bytes) as f64;
        let predicted = 2.0 / (1.0 - utilisation_of_cleaned(rho));
        println!(
            "{df_percent} % of df, {:<12} live {:>4.1} % of the log: write cost {:>5.2} (closed form {predicted:>5.2}), log \
             {:>4.2} bytes a byte, {:>5.1} MB/s",
            format!("{cleaner:?}"),
            rho * 100.0,
            (read + cleaned + new) / new,
            log / user,
            user / seconds / 1e6
        );
        for file in files {
            client.close(file).await?;
        }
        fs.close().await
    });
}

/// Mounting after a power cut, by the amount written since the last checkpoint; the configurations are those of [ro92
/// §4.2, Table III].
fn recovery(file_bytes: u64, total_bytes: u64) {
    run(async |rt| {
        let never = Options { checkpoint_interval: Nanos::from_secs(1_000_000), ..Options::default() };
        let (memory, fs) = fresh(&rt, GIB, never).await?;
        let client = Client::new(fs.clone());
        for number in 0..total_bytes / file_bytes {
            client.write_file(format!("/file{number}").as_bytes(), &vec![1; file_bytes as usize]).await?;
        }
        // Time for write-back. Not `sync`, which may take a checkpoint.
        rt.sleep(Nanos::from_secs(20)).await;
        client.fsync_dir(b"/").await?;
        let device: Device = Rc::new(Memory::from_image(GIB, memory.image()));
        let start = ProcessTime::now();
        let lfs = lfs::mount(rt.clone(), device.clone(), Options::default()).await?;
        let seconds = start.elapsed().as_secs_f64();
        let replayed = lfs.counters().into_iter().find(|(name, _)| *name == "replayed_transactions");
        let replayed = replayed.map_or(0, |(_, count)| count);
        let start = ProcessTime::now();
        lfs.close().await?;
        let closing = start.elapsed().as_secs_f64();
        drop(lfs);
        let start = ProcessTime::now();
        let lfs = lfs::mount(rt.clone(), device, Options::default()).await?;
        println!(
            "{:>4} MB in files of {:>3} KB, {replayed:>5} transactions: mounting {:>7.2} ms, closing {:>7.2} ms, mounting \
             again {:>5.2} ms",
            total_bytes / 1_000_000,
            file_bytes / 1_000,
            seconds * 1e3,
            closing * 1e3,
            start.elapsed().as_secs_f64() * 1e3
        );
        let last = format!("/file{}", total_bytes / file_bytes - 1);
        let found = Client::new(lfs.clone()).read_file(last.as_bytes()).await?;
        assert_eq!(found.len() as u64, file_bytes, "what was synced is there");
        lfs.close().await
    });
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |part: &str| wanted.is_empty() || wanted.iter().any(|word| word == part);
    if is_wanted("directory") {
        for cache_bytes in [2 * GIB, Options::default().cache_bytes] {
            for files in [1_000, 10_000, 100_000, 1_000_000] {
                directory(files, cache_bytes);
            }
        }
    }
    if is_wanted("overwrite") {
        for cleaner in [CleanerPolicy::Greedy, CleanerPolicy::CostBenefit] {
            for df_percent in [80, 90, 95] {
                overwrite(df_percent, cleaner);
            }
        }
    }
    if is_wanted("recovery") {
        for file_bytes in [1_000, 10_000, 100_000] {
            for total_bytes in [1_000_000, 10_000_000, 50_000_000] {
                recovery(file_bytes, total_bytes);
            }
        }
    }
}
