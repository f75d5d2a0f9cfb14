//! Aim: a name is acknowledged once everything that leads to it is on the volume, also in a directory so long that indirect
//! blocks lead to its end. Method: directories that are about to need another block are synced; then names are added in
//! every way, and the power is cut at every write. Each state is mounted, and has the names acknowledged by then.

use super::crash::{Checked, Unordered, devices, lives, update_interval};
use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::{CrashLog, Effort};
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::state::inner;
use crate::testing::environment::{or_panic, replay};
use crate::testing::ops::{Path, Target};
use crate::testing::volumes::life::{Lives, Manner};
use crate::testing::{CrashReport, Generator, OpMix, PowerCuts, Promise, Space};

const BYTES: u64 = 16 * MIB;

/// Blocks of 4 KiB: chunks of 512 bytes in each, and pointers in an indirect one.
const CHUNKS: u64 = 8;
const POINTERS: u64 = 1024;

/// The numbers of blocks behind which a directory needs an indirect block, a doubly indirect one, and a second one below
/// that.
const EDGES: [u64; 3] = [12, 12 + POINTERS, 12 + 2 * POINTERS];

fn small_blocks() -> MkfsOptions {
    MkfsOptions { block_bytes: 4096, frag_bytes: 512, bytes_per_inode: Some(16_384), ..small_groups() }
}

/// A name that fills a chunk of a directory by itself.
fn name(directory: &str, number: u64) -> Vec<u8> {
    format!("{directory}/{number:-<250}").into_bytes()
}

/// A volume with `/d`, which has room for `room` names in its first `blocks` blocks.
fn with_directory(blocks: u64, room: u64) -> Image {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES, &small_blocks()).await;
        session(&rt, &device, Options { metadata: Metadata::Async, ..Options::default() }, async |client| {
            client.mkdir(b"/d").await.unwrap();
            client.mkdir(b"/from").await.unwrap();
            client.mkdir(b"/from/d").await.unwrap();
            for file in ["/f", "/from/f", "/from/g"] {
                client.write_file(file.as_bytes(), b"content").await.unwrap();
            }
            // The first chunk has room for one of them beside `.` and `..`.
            for number in 0..blocks * CHUNKS - room {
                client.link(b"/f", &name("/d", number)).await.unwrap();
            }
            assert_eq!(client.stat(b"/d").await.unwrap().size, blocks * 4096 - room * 512);
        })
        .await;
        memory.image()
    })
}

/// Adds a name to `/d`.
async fn add(client: &Client, number: u64) -> Vec<u8> {
    let name = name("/d", 1_000_000 + number);
    match number % 6 {
        0 => drop(client.create(&name).await.unwrap()),
        1 => client.mkdir(&name).await.unwrap(),
        2 => client.symlink(&[b't'; 300], &name).await.unwrap(),
        3 => client.link(b"/f", &name).await.unwrap(),
        4 => client.rename(b"/from/f", &name, RenameMode::Replace).await.unwrap(),
        _ => client.rename(b"/from/d", &name, RenameMode::Replace).await.unwrap(),
    }
    name
}

/// Mounts what each cut from `begun` on leaves. Every name of `acknowledged`, which holds when it was, is there.
fn look(log: &CrashLog, begun: usize, acknowledged: &[(usize, Vec<u8>)], what: &str) {
    let mut states = 0;
    for position in log.positions().into_iter().filter(|&position| position >= begun) {
        let cut = log.cut(position);
        for choice in cut.choices(&Effort::SAMPLED, 1) {
            let what = format!("{what}, {}", cut.to_text(&choice));
            states += 1;
            simulate(1, async |rt| {
                let device: Device = Rc::new(Memory::from_image(BYTES, cut.image(&choice)));
                let ffs = mount(rt.clone(), device, Options::default())
                    .await
                    .unwrap_or_else(|error| panic!("{what}: {error}"));
                let client = Client::new(ffs);
                for (_, name) in acknowledged.iter().filter(|(when, _)| *when <= position) {
                    let shown = String::from_utf8_lossy(&name[..name.len().min(16)]);
                    client.stat(name).await.unwrap_or_else(|error| panic!("{what}: {shown}: {error}"));
                }
            });
        }
    }
    assert!(states > 10, "{what}: {states} states");
}

/// Adds `count` names behind the edge, the first in the way that `first` says, and cuts.
fn cross(image: &Image, device: CrashOptions, (first, count): (u64, u64), millis: u64, what: &str) {
    let what = format!("{what}, from {first}, updates after {millis} ms");
    let recording = CrashOptions { seed: first, record: true, bytes: BYTES, ..device };
    let (log, begun, acknowledged) = simulate(first, async |rt| {
        let device = CrashDevice::new(&rt, image.clone(), recording);
        let options = Options { update_interval: Nanos::from_millis(millis), ..Options::default() };
        let client = Client::new(mount(rt.clone(), device.clone(), options).await.unwrap());
        client.stat(&name("/d", 0)).await.unwrap();
        let (begun, mut acknowledged) = (device.position(), Vec::new());
        for number in first..first + count {
            let name = add(&client, number).await;
            acknowledged.push((device.position(), name));
        }
        (device.log(), begun, acknowledged)
    });
    look(&log, begun, &acknowledged, &what);
}

/// Names in each order, with updates in between and without.
#[test]
fn names_behind_the_direct_blocks() {
    let image = with_directory(EDGES[0], 1);
    for first in 0..6 {
        let device = devices()[first as usize % 3].clone();
        cross(&image, device.clone(), (first, 4), 60_000, "12 blocks");
        cross(&image, device, (first, 2), 2, "12 blocks");
    }
}

/// The same where two new indirect blocks are needed, and where a doubly indirect one points to another.
#[test]
fn names_behind_indirect_blocks() {
    for (blocks, first) in [(EDGES[1], 0), (EDGES[2], 3)] {
        cross(&with_directory(blocks, 0), devices()[0].clone(), (first, 1), 60_000, &format!("{blocks} blocks"));
    }
}

/// A name finds no room below from each write on in turn; then there is room again, and another name goes where the directory
/// has grown, or a directory is made there, for which the inode is written.
#[test]
fn a_growth_that_was_refused() {
    let image = with_directory(EDGES[0], 0);
    let mut refused = 0;
    for (index, device) in devices().into_iter().enumerate() {
        for nth in 1..8 {
            for next in ["name", "directory", "removal"].into_iter().filter(|_| index == nth as usize % 3) {
                let what = format!("device {index}, from write {nth}, then a {next}");
                let recording = CrashOptions { seed: nth, record: true, bytes: BYTES, ..device.clone() };
                let (log, begun, acknowledged) = simulate(nth, async |rt| {
                    let device = CrashDevice::new(&rt, image.clone(), recording);
                    let fault = FaultDevice::new(&rt, device.clone(), 1);
                    let client = Client::new(mount(rt.clone(), fault.clone(), Options::default()).await.unwrap());
                    client.stat(&name("/d", 0)).await.unwrap();
                    let (begun, mut acknowledged) = (device.position(), Vec::new());
                    fault.add(Rule::new(Kinds::WRITE, When::From(nth), Effect::NoSpace));
                    let (first, second) = (name("/d", 1_000_000), name("/d", 1_000_001));
                    let made = client.create(&first).await;
                    fault.clear();
                    match made {
                        Ok(_) => acknowledged.push((device.position(), first)),
                        Err(error) => {
                            assert_eq!(error, FsError::NoSpace, "{what}");
                            refused += 1;
                        }
                    }
                    match next {
                        "name" => drop(client.create(&second).await.unwrap()),
                        "directory" => client.mkdir(&second).await.unwrap(),
                        _ => {
                            client.unlink(&name("/d", 5)).await.unwrap();
                            client.rename(b"/from/f", &second, RenameMode::Replace).await.unwrap();
                        }
                    }
                    acknowledged.push((device.position(), second));
                    client.rename(b"/from/d", b"/d/short", RenameMode::Replace).await.unwrap();
                    acknowledged.push((device.position(), b"/d/short".to_vec()));
                    client.sync().await.unwrap();
                    (device.log(), begun, acknowledged)
                });
                look(&log, begun, &acknowledged, &what);
            }
        }
    }
    assert!(refused > 5, "{refused} names were refused");
}

/// While there is no room below for what a directory has grown by, names still go where it has room on the volume, and stay there.
#[test]
fn an_old_place_needs_no_growth() {
    let image = with_directory(EDGES[0], 0);
    let mut grown = 0;
    for nth in 1..5 {
        let recording = CrashOptions { seed: nth, record: true, bytes: BYTES, ..devices()[0].clone() };
        let (log, begun, acknowledged) = simulate(nth, async |rt| {
            let device = CrashDevice::new(&rt, image.clone(), recording);
            let fault = FaultDevice::new(&rt, device.clone(), 1);
            let ffs = mount(rt.clone(), fault.clone(), Options::default()).await.unwrap();
            let client = Client::new(ffs.clone());
            client.stat(&name("/d", 0)).await.unwrap();
            let (begun, mut acknowledged) = (device.position(), Vec::new());
            fault.add(Rule::new(Kinds::WRITE, When::From(nth), Effect::NoSpace));
            let refused = client.create(&name("/d", 1_000_000)).await;
            fault.clear();
            let dir = inner(client.stat(b"/d").await.unwrap().ino).unwrap();
            let place = ffs.step(|state| state.block_at(dir, EDGES[0])).await.unwrap();
            if let (Err(FsError::NoSpace), Some(at)) = (refused, place) {
                grown += 1;
                let at = ffs.state.borrow().layout.sector(at);
                fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(at..at + CHUNKS));
                client.unlink(&name("/d", 5)).await.unwrap();
                client.create(&name("/d", 1_000_001)).await.unwrap_or_else(|error| panic!("from write {nth}: {error}"));
                acknowledged.push((device.position(), name("/d", 1_000_001)));
                fault.clear();
            }
            client.sync().await.unwrap();
            (device.log(), begun, acknowledged)
        });
        if !acknowledged.is_empty() {
            look(&log, begun, &acknowledged, &format!("from write {nth}"));
        }
    }
    assert!(grown > 0, "the directory has grown in memory only");
}

/// Random sequences on a directory that is about to need an indirect block.
#[test]
fn random_runs() {
    let replay = replay("fs::ffs::tests::long_directories::random_runs");
    let mut total = CrashReport::default();
    for seed in replay.seeds(0..6) {
        let (metadata, promise) = [
            (Metadata::Sync, Promise::IN_PLACE),
            (Metadata::Softdep, super::soft::PROMISE),
            (Metadata::Async, Promise::NOTHING),
        ][seed as usize % 3];
        let path = |number: u64| Path(format!("/{:n<250}", format!("f{number}")).into_bytes());
        let create = Op::Create { path: path(0), permissions: 0o644 };
        let link = |number| Op::Link { existing: Target::Path(path(0)), path: path(number) };
        let setup: Vec<Op> = std::iter::once(create).chain((1..EDGES[0] * CHUNKS - 1).map(link)).collect();
        let space = Space { directories: 2, files: 130, name_bytes: 250, file_bytes_max: 9_000, ..Space::small() };
        let weights = OpMix { names: 80, data: 8, ..OpMix::CRASHY };
        let generator = Generator::new(seed, space, weights).after(&setup);
        let ops: Vec<Op> = generator.filter(Op::is_possible_on_ufs1).take(60).collect();
        let options = Options { metadata, update_interval: Nanos::from_millis(3), ..Options::default() };
        let volume = || Volume { mkfs: small_blocks(), options };
        let (checked, unordered) = (Checked(volume()), Unordered(volume()));
        let subject: &dyn FsUnderTest = if metadata == Metadata::Async { &unordered } else { &checked };
        let device = CrashOptions { bytes: BYTES, ..devices()[seed as usize / 3 % 3].clone() };
        let cuts = PowerCuts::sampled(subject, device, promise, replay.clone());
        total.add(or_panic(PowerCuts { seed, positions_max: 60, ..cuts }.run(&setup, &ops)));
    }
    println!("{total}");
}

/// Cover points that only long directories reach.
const POINTS: &[&str] = &["ffs: a directory gets an indirect block"];

/// One volume through many power cuts, with each way of keeping metadata.
#[test]
fn a_long_life_of_a_long_directory() {
    let test = "fs::ffs::tests::long_directories::a_long_life_of_a_long_directory";
    let devices = devices();
    for (metadata, promise) in [
        (Metadata::Sync, Promise::IN_PLACE),
        (Metadata::Softdep, super::soft::PROMISE),
        (Metadata::Async, Promise::NOTHING),
    ] {
        let lives = Lives {
            manners: &[Manner::LongDirectory],
            errors: false,
            points: POINTS,
            ..lives(test, &devices, promise)
        };
        let volume = |seed| {
            let Checked(mut volume) = Checked::default();
            volume.mkfs = MkfsOptions { block_bytes: 4096, frag_bytes: 512, ..volume.mkfs };
            (volume.options.metadata, volume.options.update_interval) = (metadata, update_interval(seed));
            volume
        };
        match metadata {
            Metadata::Async => lives.live(|seed| Unordered(volume(seed))),
            _ => lives.live(|seed| Checked(volume(seed))),
        }
    }
}
