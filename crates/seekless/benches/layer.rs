//! What the layers that store files encoded cost: `cargo bench -p seekless --bench layer [-- overwrite|append|space|stat]`, or
//! `-- overwrite 64` for files of up to 64 MiB.
//!
//! Bytes below are exact and the same on every machine; times are processor time of one run each, or virtual time where
//! a disk is modelled. The data exist on every machine: this repository's sources for text, this program for binaries,
//! that program compressed for incompressible data, and a single letter for highly compressible data.

#![allow(clippy::disallowed_methods)]

use std::io::Write;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use cpu_time::ProcessTime;
use flate2::Compression;
use flate2::write::GzEncoder;
use seekless::device::Device;
use seekless::disk::{self, Disk, Drive};
use seekless::fs::client::Client;
use seekless::fs::{Fs, FsResult, lfs};
use seekless::layer::codecs::{Codec, Copy, Deflate, Lz4, Uuencode, Zstd};
use seekless::layer::{classic, log, wrap};
use seekless::rng::Rng;
use seekless::rt::{Executor, HostProfile, Rt};
use seekless::testing::{MemFs, MemFsOptions};
use seekless::units::{KIB, MIB};

fn run<T>(program: impl AsyncFnOnce(Rt) -> FsResult<T>) -> T {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let result = executor.block_on(program(rt)).expect("the program ends");
    result.unwrap_or_else(|error| panic!("{error}"))
}

fn counter(fs: &Fs, name: &str) -> u64 {
    fs.counters().into_iter().find(|(found, _)| *found == name).map_or(0, |(_, value)| value)
}

fn memory(rt: &Rt) -> Fs {
    MemFs::with_options(rt, MemFsOptions { capacity_bytes: 1 << 50, ..MemFsOptions::default() })
}

/// A scheme with a codec, by name.
#[derive(Clone)]
struct Scheme {
    name: String,
    options: Options,
}

#[derive(Clone)]
enum Options {
    Log(log::Options),
    Classic(classic::Options),
}

impl Scheme {
    fn log(codec: Arc<dyn Codec>, chunk_shift: u8) -> Scheme {
        let name = format!("{} log {} KiB", codec.name(), (1u64 << chunk_shift) / KIB);
        Scheme { name, options: Options::Log(log::Options { chunk_shift, ..log::Options::new(codec) }) }
    }

    fn classic(codec: Arc<dyn Codec>, fast_tails: bool) -> Scheme {
        let name = format!("{} classic, tails {}", codec.name(), if fast_tails { "on" } else { "off" });
        Scheme { name, options: Options::Classic(classic::Options { fast_tails, ..classic::Options::new(codec) }) }
    }

    /// How many bytes of each MiB of a file must exist so that an overwrite at `places` costs the same as in a complete
    /// file. In `log` that depends only on the nodes of the index: those with an overwritten chunk are filled, the
    /// others have one chunk. In `classic` it depends on everything.
    fn needs(&self, megabytes: u64, places: &[u64]) -> impl Fn(u64) -> u64 {
        let chunk_bytes = match &self.options {
            Options::Log(options) if megabytes >= 1024 => 1 << options.chunk_shift,
            _ => 0,
        };
        let node_bytes = log::format::NODE_ENTRIES as u64 * chunk_bytes;
        let filled: Vec<u64> = places.iter().filter_map(|place| place.checked_div(node_bytes)).collect();
        move |at| match (at * MIB).checked_div(node_bytes) {
            Some(node) if filled.contains(&node) => MIB,
            Some(_) if (at * MIB).is_multiple_of(node_bytes) => chunk_bytes,
            Some(_) => 0,
            None => MIB,
        }
    }

    async fn stack_on(&self, rt: &Rt, lower: Fs) -> FsResult<Fs> {
        match &self.options {
            Options::Log(options) => log::stack_on(rt, lower, options.clone()).await,
            Options::Classic(options) => classic::stack_on(rt, lower, options.clone()).await,
        }
    }
}

/// The first 4 MiB of this repository's sources and pages, in the order of their paths.
fn text() -> Vec<u8> {
    fn collect(directory: &Path, all: &mut Vec<std::path::PathBuf>) {
        let Ok(entries) = std::fs::read_dir(directory) else { return };
        for entry in entries.flatten() {
            let path = entry.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                _ if path.is_dir() => collect(&path, all),
                Some("rs" | "md") => all.push(path),
                _ => {}
            }
        }
    }
    let mut paths = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut paths);
    paths.sort();
    let mut text: Vec<u8> = paths.iter().flat_map(|path| std::fs::read(path).expect("a source")).collect();
    text.truncate(4 * MIB as usize);
    text
}

fn gzipped(bytes: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// The four kinds of data of [za01 §7], as far as this machine has them.
fn kinds() -> Vec<(&'static str, Vec<u8>)> {
    let program = std::fs::read(std::env::current_exe().expect("a path")).expect("this program");
    let binary: Vec<u8> = program.iter().copied().take(4 * MIB as usize).collect();
    let mut compressed = gzipped(&program, 6);
    compressed.truncate(4 * MIB as usize);
    vec![("text", text()), ("binary", binary), ("compressed", compressed), ("letter", vec![b'a'; 4 * MIB as usize])]
}

/// Bytes written below for a random overwrite of 4 KiB, by size of the file. The content is text of 4 MiB, repeated.
fn overwrite(largest: u64) {
    let text = text();
    let schemes = [
        Scheme::log(Arc::new(Zstd::default()), 15),
        Scheme::log(Arc::new(Zstd::default()), 16),
        Scheme::log(Arc::new(Deflate::default()), 12),
        Scheme::log(Arc::new(Deflate::default()), 14),
        Scheme::log(Arc::new(Deflate::default()), 16),
        Scheme::log(Arc::new(Deflate::default()), 17),
        Scheme::log(Arc::new(Copy), 16),
        Scheme::classic(Arc::new(Deflate::default()), true),
    ];
    println!("\nbytes written below for a random overwrite of 4 KiB, each synced");
    print!("{:<28}", "file of MiB");
    let sizes: Vec<u64> = [4u64, 64, 1024, 4096].into_iter().filter(|&size| size <= largest).collect();
    sizes.iter().for_each(|size| print!("{size:>14}"));
    println!();
    for scheme in schemes {
        print!("{:<28}", scheme.name);
        for &megabytes in &sizes {
            let cost = run(async |rt| {
                let fs = scheme.stack_on(&rt, memory(&rt)).await?;
                let client = Client::new(fs.clone());
                let file = client.create(b"/f").await?;
                // Where every overwrite moves everything, a few suffice.
                let rounds = if megabytes >= 1024 { 8 } else { 100 };
                let mut rng = Rng::new(1);
                let places: Vec<u64> = (0..rounds).map(|_| rng.below(megabytes * MIB / 4096) * 4096).collect();
                let needs = scheme.needs(megabytes, &places);
                for at in 0..megabytes {
                    let from = (at % 4 * MIB) as usize;
                    let piece = text.get(from..from + MIB as usize).unwrap_or(&text[..MIB as usize]);
                    client.write(file, at * MIB, &piece[..needs(at) as usize]).await?;
                }
                client.truncate(b"/f", megabytes * MIB).await?;
                client.fsync(file).await?;
                let before = counter(&fs, "bytes_written");
                for &place in &places {
                    let from = rng.below(text.len() as u64 - 4096) as usize;
                    client.write(file, place, &text[from..from + 4096]).await?;
                    client.fsync(file).await?;
                }
                Ok((counter(&fs, "bytes_written") - before) / rounds)
            });
            print!("{cost:>14}");
            std::io::stdout().flush().expect("a terminal");
        }
        println!();
    }
}

/// Processor time of an append, with and without fast tails.
fn append() {
    const BYTES: usize = 256 * KIB as usize;
    println!("\nprocessor time of an append, us: tails off, tails on, and how many times that is faster");
    println!("{:<24}{:>22}{:>22}{:>22}", "", "10 bytes", "100 bytes", "1000 bytes");
    let codecs: [Arc<dyn Codec>; 4] =
        [Arc::new(Deflate { level: 9 }), Arc::new(Zstd::default()), Arc::new(Uuencode), Arc::new(Copy)];
    for codec in codecs {
        for (kind, data) in kinds() {
            print!("{:<24}", format!("{}, {kind}", codec.name()));
            for unit in [10, 100, 1000] {
                let cost = |fast_tails: bool| {
                    run(async |rt| {
                        let fs = Scheme::classic(codec.clone(), fast_tails).stack_on(&rt, memory(&rt)).await?;
                        let client = Client::new(fs.clone());
                        let file = client.create(b"/f").await?;
                        let start = ProcessTime::now();
                        let mut appends = 0;
                        for (number, piece) in data[..BYTES].chunks(unit).enumerate() {
                            client.write(file, (number * unit) as u64, piece).await?;
                            appends += 1;
                        }
                        Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(appends))
                    })
                };
                let (off, on) = (cost(false), cost(true));
                print!("{:>22}", format!("{off:.1} {on:.1} {:.1}x", off / on));
                std::io::stdout().flush().expect("a terminal");
            }
            println!();
        }
    }
}

/// Storage of a file against the whole file compressed.
fn space() {
    println!("\nstorage, in percent of what gzip -9 makes of the whole file, and of what zstd -3 does");
    print!("{:<28}", "");
    let kinds = kinds();
    kinds.iter().for_each(|(kind, _)| print!("{kind:>18}"));
    println!();
    let whole: Vec<(usize, usize)> = kinds
        .iter()
        .map(|(_, data)| (gzipped(data, 9).len(), zstd::bulk::compress(data, 3).expect("memory").len()))
        .collect();
    let mut schemes = Vec::new();
    for chunk_shift in [12, 14, 15, 16, 17, 18, 20] {
        schemes.push(Scheme::log(Arc::new(Deflate { level: 9 }), chunk_shift));
        schemes.push(Scheme::log(Arc::new(Zstd::default()), chunk_shift));
    }
    schemes.push(Scheme::log(Arc::new(Lz4), 16));
    schemes.push(Scheme::classic(Arc::new(Deflate { level: 9 }), true));
    for scheme in schemes {
        print!("{:<28}", scheme.name);
        for ((_, data), (gzip, zstd)) in kinds.iter().zip(&whole) {
            let stored = run(async |rt| {
                let lower = memory(&rt);
                let fs = scheme.stack_on(&rt, lower.clone()).await?;
                Client::new(fs.clone()).write_file(b"/f", data).await?;
                fs.close().await?;
                let below = Client::new(lower);
                let mut bytes = 0;
                for entry in below.read_dir(b"").await? {
                    // In blocks of 4 KiB, as most file systems store them.
                    bytes += below.stat(&entry.name).await?.size.next_multiple_of(4096);
                }
                Ok(bytes)
            });
            let percent = |of: usize| stored as f64 * 100.0 / of as f64;
            print!("{:>18}", format!("{:.1} {:.1}", percent(*gzip), percent(*zstd)));
        }
        println!();
    }
}

/// Virtual time of a cold `stat` of every file, over LFS on a modelled disk.
fn stat() {
    const FILES: usize = 1_225;
    println!(
        "\ncold stat of {FILES} files over lfs on cheetah9lp: us of virtual time each, requests, and against wrap"
    );
    let drive = Drive::named("cheetah9lp").expect("a drive in the catalogue");
    let schemes = [
        None,
        Some(Scheme::log(Arc::new(Zstd::default()), 15)),
        Some(Scheme::classic(Arc::new(Deflate { level: 9 }), true)),
    ];
    let mut base = (0.0, 0.0);
    for scheme in schemes {
        let (micros, requests) = run(async |rt| {
            let disk = Disk::new(rt.clone(), drive, disk::Options::default()).expect("a valid drive");
            let device: Device = Rc::new(disk);
            lfs::mkfs(&rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await?;
            let open = async || -> FsResult<(Client, Fs)> {
                let lower: Fs = lfs::mount(rt.clone(), device.clone(), lfs::Options::default()).await?;
                let fs = match &scheme {
                    None => wrap::stack_on(lower, wrap::Options::default()).await?,
                    Some(scheme) => scheme.stack_on(&rt, lower).await?,
                };
                Ok((Client::new(fs.clone()), fs))
            };
            let (client, fs) = open().await?;
            let text = text();
            let mut rng = Rng::new(1);
            for number in 0..FILES {
                if number % 25 == 0 {
                    client.mkdir(format!("/d{}", number / 25).as_bytes()).await?;
                }
                // The sources and programs of a package, about 18 KiB each.
                let bytes = rng.between(200, 36_000) as usize;
                let from = rng.below((text.len() - bytes) as u64) as usize;
                client.write_file(format!("/d{}/{number}", number / 25).as_bytes(), &text[from..from + bytes]).await?;
            }
            fs.close().await?;
            let (client, fs) = open().await?;
            let requests = || device.counters().iter().find(|(name, _)| *name == "requests").map_or(0, |found| found.1);
            let (start, before) = (rt.now(), requests());
            for number in 0..FILES {
                client.stat(format!("/d{}/{number}", number / 25).as_bytes()).await?;
            }
            let found = ((rt.now().0 - start.0) as f64 / 1e3 / FILES as f64, (requests() - before) as f64);
            fs.close().await?;
            Ok(found)
        });
        if base == (0.0, 0.0) {
            base = (micros, requests);
        }
        let name = scheme.map_or("wrap".to_string(), |scheme| scheme.name);
        println!("{name:<28}{micros:>10.1}{requests:>8}{:>10.3}{:>8.3}", micros / base.0, requests / base.1);
    }
}

fn main() {
    // Arguments that are not names of a part, such as cargo's `--bench`, are ignored.
    let wanted: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with('-')).collect();
    let is_wanted = |part: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == part);
    if is_wanted("stat") {
        stat();
    }
    if is_wanted("space") {
        space();
    }
    if is_wanted("append") {
        append();
    }
    if is_wanted("overwrite") {
        let largest = wanted.iter().find_map(|argument| argument.parse().ok());
        overwrite(largest.unwrap_or(4096));
    }
}
