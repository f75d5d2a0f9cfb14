//! Speed of LFS on a device in memory, in processor time, and what its cleaner costs: `cargo bench -p seekless --bench
//! lfs [-- directory|writes|messages|overwrite|recovery]`.
//!
//! `cargo bench -p seekless --bench lfs -- cost volume=1GiB full=75,80,85,90 pattern=zipf cleaner=greedy` compares what
//! the log writes for each byte of the user with the simulator of the same policy at the same utilisation.
//!
//! The device takes no time, so this is the cost of the file system's own work; the laboratory measures the cost on
//! disks. Times are those of one run each: the long ones are steady, and the shape is what matters.

#![allow(clippy::disallowed_methods)]

use std::rc::Rc;

use cpu_time::ProcessTime;
use seekless::cleaning::patterns::Given;
use seekless::cleaning::policy::{Limits, Trigger};
use seekless::cleaning::{PatternSpec, PolicySpec, Setup};
use seekless::device::{Data, Device, Memory};
use seekless::fs::client::{Client, OpenFile};
use seekless::fs::lfs::{self, CleanerPolicy, MkfsOptions, Options};
use seekless::fs::{DirEntry, DirSink, Fs, FsResult, NewNode, NodeKind, OpenFlags, WriteMode};
use seekless::rng::Rng;
use seekless::rt::{Executor, HostProfile, Rt};
use seekless::units::{GIB, Ino, KIB, MIB, Nanos};

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

/// Names of one directory: made, found at random, and removed, in operations a second, and the log that a new name takes. As
/// on a mount, other tasks run between two operations.
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
            rt.yield_now().await;
        }
        client.sync().await?;
        let created = files as f64 / start.elapsed().as_secs_f64();
        let log = counter(&fs, "log_bytes") / files;

        let mut rng = Rng::new(1);
        let reads = counter(&fs, "block_reads") + counter(&fs, "inode_reads");
        let start = ProcessTime::now();
        for _ in 0..LOOKUPS {
            let entry = fs.lookup(directory, name(rng.below(files)).as_bytes()).await?;
            client.forget(entry.attr.ino).await;
            rt.yield_now().await;
        }
        let found = LOOKUPS as f64 / start.elapsed().as_secs_f64();
        let reads = (counter(&fs, "block_reads") + counter(&fs, "inode_reads") - reads) as f64 / LOOKUPS as f64;

        let removals = files.min(LOOKUPS);
        let start = ProcessTime::now();
        for number in 0..removals {
            fs.unlink(directory, name(number * (files / removals)).as_bytes()).await?;
            rt.yield_now().await;
        }
        client.sync().await?;
        let removed = removals as f64 / start.elapsed().as_secs_f64();
        println!(
            "{files:>9} names, cache {:>4} MiB {created:>9.0} created/s ({log:>4} bytes of log each) {found:>9.0} found/s \
             ({reads:.2} device reads each) {removed:>9.0} removed/s",
            cache_bytes / MIB
        );
        client.forget(directory).await;
        fs.close().await
    });
}

/// A file of 256 MiB written in order, in writes of `unit` bytes as a mount gets them: each in a buffer of its own, and other
/// tasks run between two of them. The kernel caches what is read, so the file system does not.
///
/// The processor time includes two copies for each byte that a mount leaves to the kernel: into the buffer, and to the device. It
/// is short, so count instructions where few per cent matter: `valgrind --tool=callgrind target/release/deps/lfs-… writes 1024`
/// (of 1024 KiB each).
fn writes(unit: usize) {
    const FILE: u64 = 256 * MIB;
    run(async |rt| {
        let (_memory, fs) = fresh(&rt, GIB, Options { cache_data: false, ..Options::default() }).await?;
        let client = Client::new(fs.clone());
        let mut piece = vec![0; unit];
        Rng::new(1).fill(&mut piece);
        let file = client.create(b"/file").await?;
        let start = ProcessTime::now();
        for at in (0..FILE).step_by(unit) {
            piece[..8].copy_from_slice(&at.to_le_bytes());
            fs.write(file.ino, None, at, Data::from_slice(&piece), WriteMode::default()).await?;
            rt.yield_now().await;
        }
        fs.fsync(file.ino, None, false).await?;
        let taken = start.elapsed();
        println!("writes of {:>4} KiB: {:>6.1} us for each MiB", unit as u64 / KIB, taken.as_secs_f64() * 1e6 / 256.0);
        fs.close().await
    });
}

/// What a mount asks of small files, message by message, as the kernel sends them: 20,000 files of 1 KB in directories of 100
/// are created, looked up in random order, listed with their attributes, and deleted. `until` is the last of `create`, `find`,
/// `list` and `delete` to run, so that instructions can be counted for each by subtraction:
/// `valgrind --tool=callgrind target/release/deps/lfs-… messages find`.
fn messages(until: &str) {
    const FILES: u64 = 20_000;
    const OF_DIRECTORY: u64 = 100;
    run(async |rt| {
        let (_memory, fs) = fresh(&rt, GIB, Options { cache_data: false, ..Options::default() }).await?;
        let new = NewNode { permissions: 0o644, umask: 0o22, uid: 0, gid: 0 };
        let mut directories = Vec::new();
        for number in 0..FILES / OF_DIRECTORY {
            directories.push(fs.mkdir(Ino::ROOT, format!("d{number:04}").as_bytes(), new).await?.attr.ino);
        }
        let place = |number: u64| (directories[(number / OF_DIRECTORY) as usize], format!("f{number:07}"));
        let bytes = vec![7; 1024];
        let mut inos = Vec::new();
        let mut lap = ProcessTime::now();
        let mut told = |what: &str| {
            println!("{what:<7} {:>7.3} us for each file", lap.elapsed().as_secs_f64() * 1e6 / FILES as f64);
            lap = ProcessTime::now();
            what == until
        };
        for number in 0..FILES {
            let (parent, name) = place(number);
            let _ = fs.lookup(parent, name.as_bytes()).await;
            rt.yield_now().await;
            fs.getattr(parent, None).await?;
            rt.yield_now().await;
            let (entry, _) = fs.create(parent, name.as_bytes(), new, OpenFlags::READ_WRITE).await?;
            rt.yield_now().await;
            let _ = fs.getxattr(entry.attr.ino, b"security.capability").await;
            rt.yield_now().await;
            fs.write(entry.attr.ino, None, 0, Data::from_slice(&bytes), WriteMode::default()).await?;
            rt.yield_now().await;
            inos.push(entry.attr.ino);
        }
        fs.syncfs().await?;
        if told("create") {
            return Ok(());
        }
        for &ino in &inos {
            fs.forget(ino, 1).await;
        }
        fs.drop_caches().await?;
        let mut rng = Rng::new(1);
        let mut order: Vec<u64> = (0..FILES).collect();
        rng.shuffle(&mut order);
        for number in order {
            let (parent, name) = place(number);
            fs.lookup(parent, name.as_bytes()).await?;
            rt.yield_now().await;
        }
        if told("find") {
            return Ok(());
        }
        fs.drop_caches().await?;
        for &directory in &directories {
            let mut list = Listed { cookie: 0, room: 0 };
            loop {
                let from = list.cookie;
                list.room = 40;
                fs.readdir(directory, None, from, true, &mut list).await?;
                rt.yield_now().await;
                if list.cookie == from {
                    break;
                }
            }
        }
        if told("list") {
            return Ok(());
        }
        for number in 0..FILES {
            let (parent, name) = place(number);
            fs.getattr(parent, None).await?;
            rt.yield_now().await;
            fs.unlink(parent, name.as_bytes()).await?;
            rt.yield_now().await;
            fs.forget(inos[number as usize], 2).await;
            rt.yield_now().await;
        }
        fs.syncfs().await?;
        told("delete");
        fs.close().await
    });
}

/// Takes the entries of a listing that a reply of a page has room for.
struct Listed {
    cookie: u64,
    room: u64,
}

impl DirSink for Listed {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if self.room == 0 {
            return false;
        }
        (self.cookie, self.room) = (entry.cookie, self.room - 1);
        true
    }
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
            cleaner.name,
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

/// What `cost` measures.
struct Cost {
    volume: u64,
    /// Live bytes in per cent of all segments.
    full: f64,
    pattern: String,
    cleaner: CleanerPolicy,
    /// Overwrites before and while everything is counted, in multiples of the data.
    rounds: (f64, f64),
    file_blocks: u64,
}

/// Write amplification of the simulator with `cleaner` and `pattern` at the utilisation `full`. As on the volume, a pass
/// moves 2 MiB, and what it moves has segments of its own.
fn simulated(cost: &Cost, blocks: u64, segment_blocks: u32) -> f64 {
    let blocks = blocks.min(500_000) as u32;
    let setup = Setup {
        blocks,
        segment_blocks,
        segments: Setup::segments_for(blocks, segment_blocks, cost.full),
        limits: Limits { trigger: Trigger::Clean(1), batch_blocks: 512, target: 1 },
        warm_up: u64::from(blocks) * 10,
        writes: u64::from(blocks) * 10,
        seed: 1,
    };
    let (policy, options) = PolicySpec::parse(cost.cleaner.line).expect("a policy");
    let (pattern, words) = PatternSpec::parse(&cost.pattern).expect("a pattern");
    let mut pattern = pattern.make(&words, &Given { blocks, seed: 1, recorded: None }).expect("a pattern");
    let outcome = policy.simulate(&options, &setup, &mut *pattern, &mut |_, _| std::ops::ControlFlow::Continue(()));
    outcome.map_or(f64::NAN, |outcome| outcome.write_amplification())
}

/// Overwrites blocks of 4 KiB on a volume that is `full`, until the cleaner is in a steady state; then prints what the
/// log wrote for each byte of the user. Contents are zeroes, so that a large device needs little memory.
fn cost(cost: &Cost) {
    const BLOCK: u64 = 4 * KIB;
    /// A prime that does not divide the number of blocks.
    const SCATTER: u64 = 7_368_787;
    run(async |rt| {
        let (memory, fs) = fresh(&rt, cost.volume, Options { cleaner: cost.cleaner, ..Options::default() }).await?;
        let client = Client::new(fs.clone());
        let device: Device = memory;
        let info = lfs::info(&device).await?;
        let total = info.segment_count * info.segment_bytes;
        let blocks = (total as f64 * cost.full) as u64 / (BLOCK + BLOCK / 341 + 1);
        let bytes = vec![0; BLOCK as usize];
        let mut files: Vec<OpenFile> = Vec::new();
        for block in 0..blocks {
            if block % cost.file_blocks == 0 {
                files.push(client.create(format!("/file{}", files.len()).as_bytes()).await?);
            }
            client.write(files[files.len() - 1], block % cost.file_blocks * BLOCK, &bytes).await?;
        }
        client.sync().await?;
        let (pattern, words) = PatternSpec::parse(&cost.pattern).expect("a pattern");
        let given = Given { blocks: blocks as u32, seed: 1, recorded: None };
        let mut pattern = pattern.make(&words, &given).expect("a pattern");
        let mut operations: Vec<u32> = Vec::new();
        let mut write = async |count: u64| {
            for _ in 0..count {
                if operations.is_empty() {
                    pattern.more(&mut operations);
                    operations.reverse();
                }
                // Patterns have the hot blocks first. Scattered, so that their neighbours in the file are not hot, too.
                let block = u64::from(operations.pop().expect("patterns do not end")) * SCATTER % blocks;
                let file = files[(block / cost.file_blocks) as usize];
                client.write(file, block % cost.file_blocks * BLOCK, &bytes).await?;
                rt.sleep(Nanos::from_micros(20)).await;
            }
            FsResult::Ok(())
        };
        write((blocks as f64 * cost.rounds.0) as u64).await?;
        let names = [
            "log_data_bytes",
            "log_metadata_bytes",
            "log_cleaned_bytes",
            "cleaner_read_bytes",
            "log_bytes",
            "checkpoints",
        ];
        let before = names.map(|name| counter(&fs, name));
        let start = ProcessTime::now();
        let count = (blocks as f64 * cost.rounds.1) as u64;
        write(count).await?;
        let seconds = start.elapsed().as_secs_f64();
        let after = names.map(|name| counter(&fs, name));
        let [data, metadata, cleaned, read, log, checkpoints] =
            std::array::from_fn(|at| (after[at] - before[at]) as f64);
        let user = (count * BLOCK) as f64;
        client.sync().await?;
        let live = lfs::info(&device).await?.live_bytes as f64 / total as f64;
        let simulated = simulated(
            &Cost { full: live, pattern: cost.pattern.clone(), ..*cost },
            blocks,
            (info.segment_bytes / BLOCK) as u32,
        );
        // Hot blocks are overwritten in memory, and the log has them once.
        let written = log / data;
        println!(
            "{:>5} MiB, {:.3} alive, {}, {}: log {written:.2} bytes a byte (simulated {simulated:.2}, {:+.0} %); metadata \
             {:.3}, moved {:.2}, cleaned at {:.2}; {checkpoints} checkpoints; {:.1} MB/s",
            cost.volume / MIB,
            live,
            cost.pattern,
            cost.cleaner.name,
            (written / simulated - 1.0) * 100.0,
            metadata / data,
            cleaned / data,
            cleaned / read,
            user / seconds / 1e6
        );
        for file in files {
            client.close(file).await?;
        }
        fs.close().await
    });
}

/// Runs `cost` for every combination of the words `key=value,value`.
fn costs(words: &[String]) {
    let values = |key: &str, default: &str| -> Vec<String> {
        let given = words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        given.unwrap_or(default).split(',').map(str::to_owned).collect()
    };
    let number = |text: &String| text.parse::<f64>().unwrap_or_else(|_| panic!("{text} is not a number"));
    let size = |text: &String| match text.strip_suffix("GiB") {
        Some(gib) => gib.parse::<u64>().expect("a size") * GIB,
        None => text.trim_end_matches("MiB").parse::<u64>().expect("a size") * MIB,
    };
    for volume in values("volume", "128MiB").iter().map(size) {
        for pattern in values("pattern", "uniform") {
            for cleaner in values("cleaner", "greedy") {
                let cleaner = CleanerPolicy::named(&cleaner).unwrap_or_else(|| panic!("{cleaner} is no cleaner"));
                for full in values("full", "75,80,85").iter().map(number) {
                    cost(&Cost {
                        volume,
                        full: full / 100.0,
                        pattern: pattern.replace('+', ","),
                        cleaner,
                        rounds: (number(&values("warm", "3")[0]), number(&values("rounds", "1")[0])),
                        file_blocks: number(&values("file", "1000000000")[0]) as u64,
                    });
                }
            }
        }
    }
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
    if is_wanted("writes") {
        let units: Vec<u64> = wanted.iter().filter_map(|word| word.parse().ok()).collect();
        for unit in if units.is_empty() { vec![4, 8, 128, 1024] } else { units } {
            writes((unit * KIB) as usize);
        }
    }
    if is_wanted("messages") {
        let last = ["create", "find", "list", "delete"].into_iter().find(|last| wanted.iter().any(|word| word == last));
        messages(last.unwrap_or("delete"));
    }
    if is_wanted("overwrite") {
        for cleaner in [CleanerPolicy::GREEDY, CleanerPolicy::COST_BENEFIT] {
            for df_percent in [80, 90, 95] {
                overwrite(df_percent, cleaner);
            }
        }
    }
    if wanted.iter().any(|word| word == "cost") {
        costs(&wanted);
    }
    if is_wanted("recovery") {
        for file_bytes in [1_000, 10_000, 100_000] {
            for total_bytes in [1_000_000, 10_000_000, 50_000_000] {
                recovery(file_bytes, total_bytes);
            }
        }
    }
}
