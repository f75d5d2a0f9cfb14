//! Aim: idle time empties tracks, which makes later writes faster; it stops when a request arrives, and changes nothing
//! that a read, a check or a power cut could show. Method: modelled drives with times taken, the model, and the crash
//! explorer, on volumes whose `compact` option is `always`.

use super::*;
use crate::device::crash::CrashOptions;
use crate::device::fault::FaultDevice;
use crate::disk::{Disk, Drive};
use crate::rng::Rng;
use crate::testing::environment::replay;
use crate::testing::{CrashReport, Generator, MemFs, Op, OpMix, PowerCuts, Promise, Runner, Space, Tree};
use crate::units::KIB;
use crate::vlog::eager::Run;
use crate::vlog::{Need, Tenant};

fn disk(rt: &Rt, name: &str) -> Device {
    let drive = Drive::named(name).unwrap_or_else(|| panic!("{name} is in the catalogue"));
    Rc::new(Disk::new(rt.clone(), drive, crate::disk::Options::default()).expect("the catalogue has drives"))
}

fn counter(fs: &Fs, name: &str) -> u64 {
    fs.counters().iter().find(|(counted, _)| *counted == name).map_or(0, |&(_, value)| value)
}

/// Aim: dirty data is written once there is a batch of it, without a timer and without a waiting caller. Method: less
/// than the amount that makes writers wait, and then time without any call.
#[test]
fn a_batch_is_written_by_itself() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 12 * MIB).await;
        let options = Options { write_back_interval: Nanos::from_secs(1 << 30), ..Options::default() };
        let fs = mount(rt.clone(), device, options).await.unwrap();
        let client = Client::new(fs.clone());
        rt.sleep(Nanos::from_secs(1)).await; // The task waits.
        let before = counter(&fs, "data_blocks_written");
        client.write_file(b"/f", &vec![1; 3 * MIB as usize]).await.unwrap();
        rt.sleep(Nanos::from_secs(1)).await;
        let written = counter(&fs, "data_blocks_written") - before;
        assert!(written > 2 * MIB / 4096, "{written} blocks");
    });
}

/// Aim: blocks of large directories are written less often than names are added, a sync writes them nevertheless, and what
/// waits for more names costs no name that was synced. Method: two clients, each with a directory, and the two are larger than a batch; a
/// sync half-way, and later a power cut while blocks wait.
#[test]
fn blocks_of_large_directories_wait_for_more_names() {
    const NAMES: u64 = 12_000;
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, 512 * MIB).await;
        let fs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let clients = [Client::new(fs.clone()), Client::new(fs.clone())];
        clients[0].mkdir(b"/0").await.unwrap();
        clients[0].mkdir(b"/1").await.unwrap();
        let before = counter(&fs, "data_blocks_written");
        for number in 0..NAMES {
            for (directory, client) in clients.iter().enumerate() {
                client
                    .write_file(format!("/{directory}/a name of the usual length {number}").as_bytes(), b"")
                    .await
                    .unwrap();
                rt.yield_now().await;
            }
            if number == NAMES / 2 {
                clients[1].sync().await.unwrap();
            }
        }
        assert!(counter(&fs, "cache_dirty_bytes") > MIB, "blocks wait");
        let written = counter(&fs, "data_blocks_written") - before;
        assert!(written < NAMES / 4, "{written} blocks for {} names", 2 * NAMES);
        let after: Device = Rc::new(Memory::from_image(512 * MIB, memory.image()));
        volumes::assert_clean(&rt, &Small::default(), &after).await;
        session(&rt, &after, async |client| {
            for directory in [b"/0", b"/1"] {
                let found = client.read_dir(directory).await.unwrap().len() as u64;
                assert!((NAMES / 2..=NAMES).contains(&found), "{found} names");
            }
        })
        .await;
        fs.close().await.unwrap();
    });
}

/// A file that is updated at random, a block at a time, and the expected content of its blocks.
struct Updated<'a> {
    rt: &'a Rt,
    client: &'a Client,
    file: crate::fs::client::OpenFile,
    versions: Vec<u64>,
    rng: Rng,
}

fn content(version: u64, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    Rng::new(version << 32 | block).fill(&mut bytes);
    bytes
}

impl<'a> Updated<'a> {
    async fn new(rt: &'a Rt, client: &'a Client, blocks: u64) -> Updated<'a> {
        let file = client.create(b"/file").await.expect("a file");
        for block in 0..blocks {
            client.write(file, block * 4096, &content(0, block)).await.expect("written");
        }
        client.fsync_path(b"/file").await.expect("synced");
        Updated { rt, client, file, versions: vec![0; blocks as usize], rng: Rng::new(1) }
    }

    /// Updates, each synced. Returns their mean time and the longest.
    async fn burst(&mut self, count: u64) -> (f64, f64) {
        let (mut sum, mut longest) = (0.0, 0.0_f64);
        for _ in 0..count {
            let block = self.rng.below(self.versions.len() as u64);
            let version = &mut self.versions[block as usize];
            *version += 1;
            let bytes = content(*version, block);
            let start = self.rt.now();
            self.client.write(self.file, block * 4096, &bytes).await.expect("written");
            self.client.fsync_path(b"/file").await.expect("synced");
            let spent = (self.rt.now() - start).as_millis_f64();
            sum += spent;
            longest = longest.max(spent);
        }
        (sum / count as f64, longest)
    }

    async fn compare(&self) {
        self.client.fs().drop_caches().await.expect("dropped");
        for (block, &version) in self.versions.iter().enumerate() {
            let read = self.client.read(self.file, block as u64 * 4096, 4096).await.expect("read");
            assert!(read == content(version, block as u64), "block {block} of version {version}");
        }
    }
}

/// Uses idle time until there is nothing left to do.
async fn settle(rt: &Rt, fs: &Fs) {
    while fs.idle(rt.now() + Nanos::from_millis(20)).await.expect("idle work succeeds") {}
}

/// Updates that are synced one by one take less time where idle time has emptied tracks, on an old drive and on a newer
/// one; and reads return what was written.
#[test]
fn idle_time_makes_updates_faster() {
    for drive in ["hp97560-wa99", "st19101-wa99"] {
        simulate(1, async |rt| {
            let device = disk(&rt, drive);
            mkfs(&rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await.expect("mkfs");
            session(&rt, &device, async |client| {
                let mut updated = Updated::new(&rt, client, 12 * MIB / 4096).await;
                updated.burst(2500).await;
                let (steady, _) = updated.burst(200).await;
                let before = counter(client.fs(), "tracks_empty");
                settle(&rt, client.fs()).await;
                let empty = counter(client.fs(), "tracks_empty");
                let (rested, _) = updated.burst(200).await;
                println!(
                    "{drive}: {steady:.2} ms, {rested:.2} ms after idle time; {before} tracks empty, then {empty}"
                );
                assert!(empty > before + 20, "{before}, {empty}");
                assert!(rested < 0.8 * steady, "{drive}: {steady:.2} ms, {rested:.2} ms after idle time");
                updated.compare().await;
                updated.client.close(updated.file).await.expect("closed");
            })
            .await;
        });
    }
}

/// A request during the emptying of a track waits for a few of its requests, not for a whole track.
#[test]
fn idle_work_gives_way() {
    simulate(1, async |rt| {
        let device = disk(&rt, "st19101-wa99");
        mkfs(&rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await.expect("mkfs");
        session(&rt, &device, async |client| {
            let mut updated = Updated::new(&rt, client, 12 * MIB / 4096).await;
            updated.burst(2500).await;
            let (_, alone) = updated.burst(200).await;
            let mut longest: f64 = 0.0;
            let mut pauses = Rng::new(5);
            for _ in 0..100 {
                let fs = client.fs().clone();
                let until = rt.now() + Nanos::from_secs(1);
                drop(rt.spawn(async move { fs.idle(until).await.expect("idle work succeeds") }));
                rt.sleep(Nanos::from_micros(pauses.between(100, 60_000))).await;
                longest = longest.max(updated.burst(1).await.1);
            }
            let moved = counter(client.fs(), "blocks_moved");
            println!("longest: {alone:.1} ms alone, {longest:.1} ms in idle time; {moved} blocks moved");
            assert!(moved > 300, "{moved} blocks");
            // A revolution takes 6 ms. At worst 4 indirect blocks and an inode are in flight, each half a revolution
            // from the other.
            assert!(longest < alone + 9.0, "{longest:.1} ms, {alone:.1} ms alone");
            updated.compare().await;
            updated.client.close(updated.file).await.expect("closed");
        })
        .await;
    });
}

fn always() -> Options {
    Options { compact: CompactUse::Always, ..Options::default() }
}

/// Idle time shows in no answer: generated operations, with idle time in between, on volumes nearly full and less full.
#[test]
fn it_answers_as_the_model_does() {
    let replay = replay("fs::vlfs::tests::idle::it_answers_as_the_model_does");
    let mut moved = 0;
    for seed in replay.seeds(0..4) {
        let again = replay.command(seed, None, None, None);
        moved += simulate(seed, async |rt| {
            let (_, device) = fresh(&rt, 24 * MIB).await;
            let options = Options { cache_bytes: if seed % 2 == 0 { 1 } else { 32 * MIB }, ..always() };
            let fs = mount(rt.clone(), device.clone(), options).await.expect("mount");
            let (mut model, mut subject) = (Runner::new(&rt, MemFs::new(&rt)), Runner::new(&rt, fs.clone()));
            let space = Space { file_bytes_max: 300_000, ..Space::small() };
            let mut generator = Generator::new(seed, space, OpMix::CURIOUS);
            for number in 0..800 {
                let op = match number % 40 {
                    39 => Op::Idle { millis: 100 },
                    _ => generator.next().expect("generators do not end"),
                };
                let (expected, found) = (model.apply(&op).await, subject.apply(&op).await);
                assert!(expected.agrees(&found), "operation {number} {op}: model {expected}, vlfs {found}\n{again}");
            }
            let (one, two) = (Tree::of(model.client().fs().clone()).await, Tree::of(fs.clone()).await);
            assert_eq!(one.expect("model").differences(&two.expect("vlfs")), Vec::<String>::new(), "{again}");
            let moved = counter(&fs, "blocks_moved");
            subject.close().await.expect("close");
            fs.close().await.expect("close");
            volumes::assert_clean(&rt, &Small::default(), &device).await;
            moved
        });
    }
    assert!(moved > 40, "{moved} blocks moved");
}

/// Files of which two in three are removed again, so that every track is partly used; then idle time, with a program
/// that runs in between.
fn idle_script() -> (Vec<Op>, Vec<Op>) {
    let make = |file: u32| {
        format!(
            "create /f{file} 644; write /f{file} 0+140000 #{file}; setxattr /f{file} user.a 5000 #{file}; \
             create /s{file} 644; write /s{file} 0+3000 #{file}; fsync /f{file}"
        )
    };
    let remove = |file: u32| format!("unlink /f{file}; unlink /s{file}");
    let setup: Vec<String> = (0..24).map(make).chain((0..24).filter(|file| file % 3 != 0).map(remove)).collect();
    let body = "idle 50; write /f0 0+9000 #77; fsync /f0; idle 50; create /g 644; write /g 0+50000 #78; unlink /f3; \
                fsyncdir /; idle 50; sync";
    let read = |text: &str| crate::testing::ops::parse(text).unwrap_or_else(|error| panic!("{error}"));
    let mut setup = read(&setup.join("; "));
    setup.push(Op::Sync);
    (setup, read(body))
}

/// Power cuts at every write of idle work: nothing that was durable is lost, and every state is that of one moment.
#[test]
fn power_cuts_in_idle_time() {
    const BYTES: u64 = 6 * MIB;
    let (setup, body) = idle_script();
    let moved = simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let fs = mount(rt.clone(), device.clone(), always()).await.expect("mount");
        let mut runner = Runner::new(&rt, fs.clone());
        for op in setup.iter().chain(&body) {
            runner.apply(op).await;
        }
        counter(&fs, "blocks_moved")
    });
    assert!(moved > 100, "{moved} blocks moved");
    let replay = replay("fs::vlfs::tests::idle::power_cuts_in_idle_time");
    let mut total = CrashReport::default();
    for (seed, device) in CrashOptions::each(BYTES).into_iter().enumerate() {
        let subject = Small { options: always() };
        let cuts = PowerCuts::sampled(&subject, device, Promise::NAMESPACE_PREFIX, replay.clone());
        let cuts = PowerCuts { seed: seed as u64, positions_max: replay.soak.times(100) as usize, ..cuts };
        total.add(cuts.run(&setup, &body).unwrap_or_else(|report| panic!("{report}")));
    }
    println!("{total}");
    assert!(total.states > 200 || !replay.runs_everything(), "{total}");
}

/// Unreadable blocks stay where they are, and idle work continues elsewhere and comes to an end.
#[test]
fn damage_does_not_keep_it_busy() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, 16 * MIB).await;
        let fs = mount(rt.clone(), device.clone(), always()).await.expect("mount");
        let client = Client::new(fs.clone());
        for number in 0..600 {
            let name = format!("/f{number}");
            client.write_file(name.as_bytes(), &vec![number as u8; 8 * KIB as usize]).await.expect("written");
        }
        fs.syncfs().await.expect("synced");
        for number in (0..600).filter(|number| number % 5 != 0) {
            client.unlink(format!("/f{number}").as_bytes()).await.expect("removed");
        }
        fs.drop_caches().await.expect("synced");
        // Every inode that has a sector of its own is damaged; those in memory are not read again.
        let mut bytes = vec![0; 16 * MIB as usize];
        memory.image().read(crate::units::Sector(0), &mut bytes);
        let mut damaged = 0;
        for (sector, bytes) in bytes.chunks_exact_mut(512).enumerate() {
            if super::super::format::Inode::unseal(&bytes[..256]).is_some_and(|inode| inode.ino > 100) {
                bytes[17] ^= 1;
                let data = crate::device::Data::from_slice(bytes);
                let at = crate::units::Sector(sector as u64);
                device.write(at, data, crate::device::WriteFlags::NONE).await.expect("written");
                damaged += 1;
            }
        }
        assert!(damaged > 50, "{damaged} sectors");
        let mut rounds = 0;
        // A round may end with an error; the next one does not try the same track.
        while fs.idle(rt.now()).await.unwrap_or(true) {
            rounds += 1;
            assert!(rounds < 1000, "idle work does not end");
        }
    });
}

/// Aim: one block that cannot be read does not end the emptying of tracks. Method: the track that is next has a block that cannot be
/// read; then all idle work.
#[test]
fn an_unreadable_block_costs_one_track() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 16 * MIB).await;
        let device = FaultDevice::new(&rt, device, 1);
        let fs = open(rt.clone(), device.clone(), always()).await.expect("mount");
        let client = Client::new(fs.clone());
        for number in 0..600 {
            let name = format!("/f{number}");
            client.write_file(name.as_bytes(), &vec![number as u8; 8 * KIB as usize]).await.expect("written");
        }
        client.sync().await.expect("synced");
        for number in (0..600).filter(|number| number % 5 != 0) {
            client.unlink(format!("/f{number}").as_bytes()).await.expect("removed");
        }
        client.fs().drop_caches().await.expect("synced");
        let store = fs.state.borrow().log.store.clone();
        let emptying = store.begin_emptying(|used| used, |_| true).expect("a track to empty");
        let (track, mut look) = (emptying.track, Look::default());
        assert!(store.copy_out(&emptying, &mut look).await.expect("nothing is copied"));
        drop(emptying);
        let of_file = |block: &u32| fs.state.borrow().log.owners.get(*block).is_some_and(|id| id.key.is_data());
        let lost = look.asked.take().into_iter().find(of_file).expect("a block of a file");
        let at = store.layout().sector_of(lost);
        device.lose(at..at + 1);
        let before = store.empty_tracks();
        settle(&rt, client.fs()).await;
        assert!(store.empty_tracks() > before + 1, "{before} tracks were empty, {} are", store.empty_tracks());
        assert!(fs.work.stubborn.borrow().contains(&track));
    });
}

/// Aim: idle work copies no block whose own write is still on its way. Method: requests that take their time, and a sync under way when
/// idle time begins; then everything is read.
#[test]
fn what_is_on_its_way_is_not_copied() {
    let content = |number: u64, round: u64| vec![(number + 100 * round) as u8; 8 * KIB as usize];
    for seed in 0..16 {
        simulate(seed, async |rt| {
            let (memory, _) = fresh(&rt, 16 * MIB).await;
            let options = CrashOptions { seed, ..CrashOptions::volatile(16 * MIB) };
            let device = crate::device::crash::CrashDevice::new(&rt, memory.image(), options);
            let fs = open(rt.clone(), device, always()).await.expect("mount");
            let client = Rc::new(Client::new(fs.clone()));
            let name = |number: u64| format!("/f{number}").into_bytes();
            for number in 0..600 {
                client.write_file(&name(number), &content(number, 0)).await.expect("written");
            }
            client.sync().await.expect("synced");
            for number in (0..600).filter(|number| number % 5 != 0) {
                client.unlink(&name(number)).await.expect("removed");
            }
            client.sync().await.expect("synced");
            for round in 1..6 {
                for number in (0..600).step_by(5 * round as usize) {
                    client.write_file(&name(number), &content(number, round)).await.expect("written");
                }
                let syncing = client.clone();
                rt.spawn(async move { syncing.sync().await.expect("synced") });
                rt.sleep(Nanos::from_micros(1 + 37 * seed)).await;
                fs.idle(rt.now() + Nanos::from_millis(20)).await.expect("idle work");
            }
            client.fs().drop_caches().await.expect("synced");
            for number in (0..600).step_by(5) {
                let round = (1..6).rfind(|round| number % (5 * round) == 0).unwrap_or(0);
                assert_eq!(client.read_file(&name(number)).await.expect("read"), content(number, round), "/f{number}");
            }
            fs.close().await.expect("closed");
        });
    }
}

/// Notes which blocks a track has, and moves none.
#[derive(Default)]
struct Look {
    asked: std::cell::RefCell<Vec<u32>>,
}

impl Tenant for Look {
    fn is_wanted(&self) -> bool {
        false
    }

    fn need(&self, block: u32) -> Need {
        self.asked.borrow_mut().push(block);
        Need::Nothing
    }

    fn copied(&mut self, _: u32, _: &[Run]) {}

    fn inspect(&mut self, _: u32, _: &[u8]) {}
}
