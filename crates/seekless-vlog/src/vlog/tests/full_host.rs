//! Aim: on a host that has no room, a virtual log disk refuses only what makes it hold more: blocks that it holds can be written
//! over, all blocks can be discarded, and what was provisioned can be written; so it is after a kill. What it takes for ready
//! has storage. Method: a sparse file on a host that other programs fill, requests drawn from a seed, several at a time, and
//! kills; every block says which write it is from.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use futures_util::future::join_all;

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{DeviceError, SnapshotError, Snapshots};
use crate::testing::environment;
use crate::testing::volumes::full_host::Host;

const BLOCK: u64 = 4096;
const SECTORS: u64 = BLOCK / SECTOR_BYTES;

/// A block that is ready has storage on the host.
fn check_ready(vld: &Vld, host: &Host, what: &str) {
    vld.check_invariants().unwrap_or_else(|error| panic!("{what}: {error}"));
    let state = vld.core.state.borrow();
    let wrong = (0..vld.layout().blocks).find(|&block| state.space.is_ready(block) && !host.has(u64::from(block)));
    assert_eq!(wrong, None, "{what}: this block is ready, but the host has nothing there");
}

fn data(block: u64, blocks: u64, number: u64) -> Data {
    Data::from_slice(
        &(block..block + blocks).flat_map(|block| stamp(block, number, BLOCK as usize)).collect::<Vec<u8>>(),
    )
}

async fn try_write(vld: &Vld, block: u64, blocks: u64, number: u64) -> Result<(), DeviceError> {
    vld.write(Sector(block * SECTORS), data(block, blocks, number), WriteFlags::NONE).await
}

/// What the clients expect of a disk.
struct Expected {
    /// Writes that each block may be from: the last one that was flushed, and all later ones.
    may: Vec<Vec<u64>>,
    /// Blocks that are mapped, and blocks that are promised.
    mapped: BTreeSet<u64>,
    promised: BTreeSet<u64>,
}

#[derive(Default)]
struct Counts {
    writes_refused: Cell<u64>,
    promises_refused: Cell<u64>,
    promises_used: Cell<u64>,
    overwritten_when_full: Cell<u64>,
}

fn more(count: &Cell<u64>) {
    count.update(|count| count + 1);
}

struct Life<'a> {
    vld: &'a Rc<Vld>,
    host: &'a Rc<Host>,
    expected: &'a RefCell<Expected>,
    counts: &'a Counts,
    what: String,
}

impl Life<'_> {
    /// One request for some of the blocks of a slice, which is the client's alone.
    async fn request(&self, rng: &mut Rng, slice: std::ops::Range<u64>, number: u64) {
        let Life { vld, what, .. } = self;
        let longest = vld.transaction_bytes_max() / BLOCK;
        let blocks = match rng.below(3) {
            0 => 1,
            1 => rng.between(1, 20),
            _ => rng.between(1, longest * 3 / 2),
        };
        let blocks = blocks.min(slice.end - slice.start);
        let first = slice.start + rng.below(slice.end - slice.start - blocks + 1);
        let range = first..first + blocks;
        let (at, sectors) = (Sector(first * SECTORS), blocks * SECTORS);
        match rng.below(12) {
            0..=6 => {
                let is_sure = {
                    let mut expected = self.expected.borrow_mut();
                    range.clone().for_each(|block| expected.may[block as usize].push(number));
                    let Expected { mapped, promised, .. } = &*expected;
                    range.clone().all(|block| mapped.contains(&block) || promised.contains(&block))
                };
                let is_full = self.host.room.get() == 0;
                match try_write(vld, first, blocks, number).await {
                    Ok(()) => {
                        let mut expected = self.expected.borrow_mut();
                        let used = range.clone().any(|block| expected.promised.contains(&block));
                        self.counts.promises_used.update(|count| count + u64::from(used && is_full));
                        self.counts.overwritten_when_full.update(|count| count + u64::from(is_sure && is_full));
                        for block in range {
                            expected.mapped.insert(block);
                            expected.promised.remove(&block);
                        }
                    }
                    Err(DeviceError::NoSpace { .. }) if !is_sure => {
                        more(&self.counts.writes_refused);
                        // A write longer than a transaction may have come half-way.
                        for block in range {
                            let is_written = number_of(vld, block).await == number;
                            let mut expected = self.expected.borrow_mut();
                            match is_written {
                                true => {
                                    expected.mapped.insert(block);
                                    expected.promised.remove(&block);
                                }
                                false => drop(expected.may[block as usize].pop()),
                            }
                        }
                    }
                    Err(error) => panic!("{what}: write {number} of {blocks} blocks, sure: {is_sure}: {error}"),
                }
            }
            7 | 8 => {
                {
                    let mut expected = self.expected.borrow_mut();
                    range.clone().for_each(|block| expected.may[block as usize].push(0));
                    for block in range.clone() {
                        expected.mapped.remove(&block);
                        expected.promised.remove(&block);
                    }
                }
                let discarded = vld.discard(at, sectors).await;
                discarded.unwrap_or_else(|error| panic!("{what}: discard {number}: {error}"));
            }
            9 | 10 => match vld.provision(at, sectors).await {
                Ok(()) => {
                    let mut guard = self.expected.borrow_mut();
                    let Expected { mapped, promised, .. } = &mut *guard;
                    promised.extend(range.filter(|block| !mapped.contains(block)));
                }
                Err(DeviceError::NoSpace { .. }) => more(&self.counts.promises_refused),
                Err(error) => panic!("{what}: provision {number}: {error}"),
            },
            _ => {
                let read = vld.read(at, Buf::dirty((blocks * BLOCK) as usize)).await;
                read.unwrap_or_else(|error| panic!("{what}: read {number}: {error}"));
            }
        }
    }

    /// Everything is durable.
    async fn flush(&self) {
        let done = self.vld.flush().await;
        done.unwrap_or_else(|error| panic!("{}: a flush: {error}", self.what));
        if self.host.has_been_killed() {
            return;
        }
        for writes in &mut self.expected.borrow_mut().may {
            writes.drain(..writes.len() - 1);
        }
    }

    /// What each block is from, which is then what it is expected to be from.
    async fn look(&self) {
        let blocks = self.expected.borrow().may.len() as u64;
        for block in 0..blocks {
            let number = number_of(self.vld, block).await;
            let writes = &mut self.expected.borrow_mut().may[block as usize];
            assert!(writes.contains(&number), "{}: block {block} is of write {number}, not of {writes:?}", self.what);
            *writes = vec![number];
        }
        let map = self.vld.core.state.borrow().map.clone();
        let mut expected = self.expected.borrow_mut();
        expected.mapped = (0..blocks).filter(|&block| map[block as usize] != 0).collect();
        expected.promised.clear();
    }
}

fn lives(seed: u64, map_log: MapLog, counts: &Counts, again: &str) {
    let bytes = 12 * MIB;
    run(seed, async |rt: Rt| {
        let mut rng = Rng::new(seed);
        let mut host = Host::new(bytes);
        let plan = Plan { map_log, ..plan() };
        let options = Options { discard: rng.chance(3, 4), window: 512 * KIB, ..Options::default() };
        Vld::create(&rt, host.clone(), &plan, options).await.expect("made");
        let mut number = 0;
        let expected = RefCell::new(Expected { may: Vec::new(), mapped: BTreeSet::new(), promised: BTreeSet::new() });
        for life in 0..8 {
            let what = format!("life {life} with {map_log:?}, {options:?}; again: {again}");
            let slow = FaultDevice::new(&rt, host.clone(), seed);
            let kinds = Kinds::READ | Kinds::WRITE | Kinds::DISCARD | Kinds::PROVISION | Kinds::FLUSH;
            let time = Nanos::ZERO..=Nanos::from_millis(1);
            slow.add(Rule::new(kinds, When::Chance { numerator: 1, denominator: 3 }, Effect::Delay(time)));
            let vld = Vld::open(&rt, slow, options).await.unwrap_or_else(|error| panic!("{what}: {error}"));
            let blocks = vld.geometry().bytes() / BLOCK;
            expected.borrow_mut().may.resize(blocks as usize, vec![0]);
            let one = Life { vld: &vld, host: &host, expected: &expected, counts, what: what.clone() };
            one.look().await;
            // The first one has room for what is committed.
            host.kill_after(rng.below(600));
            for round in 0..12 {
                match rng.below(4) {
                    0 if life > 0 || round > 0 => host.fill(),
                    1 if life > 0 || round > 0 => host.free(rng.below(300)),
                    _ => host.free(rng.between(1000, 1800) * u64::from(life + round == 0) + rng.below(200)),
                }
                let clients = (0..3).map(|client| {
                    let (one, mut rng) = (&one, rng.fork());
                    let from = number + client * 100;
                    async move {
                        let slice = blocks / 3 * client..blocks / 3 * (client + 1);
                        for turn in 0..rng.between(1, 8) {
                            one.request(&mut rng, slice.clone(), from + turn + 1).await;
                        }
                    }
                });
                join_all(clients.collect::<Vec<_>>()).await;
                number += 300;
                check_ready(&vld, &host, &what);
                one.flush().await;
                check_ready(&vld, &host, &what);
                if host.has_been_killed() {
                    break;
                }
            }
            drop(vld);
            host = host.killed();
            host.fill();
        }
    });
}

#[test]
fn what_is_there_can_be_written_over() {
    let replay = environment::replay("vlog::tests::full_host::what_is_there_can_be_written_over");
    for map_log in [MapLog::Tree, MapLog::Append] {
        let counts = Counts::default();
        for seed in replay.seeds(1..7) {
            lives(seed, map_log, &counts, &replay.command(seed, None, None, None));
        }
        let [refused, promises_refused, used, overwritten] =
            [&counts.writes_refused, &counts.promises_refused, &counts.promises_used, &counts.overwritten_when_full]
                .map(Cell::get);
        println!(
            "{map_log:?}: refused {refused} writes and {promises_refused} promises; on a full host, {used} promises were used, and {overwritten} writes needed nothing"
        );
        let is_enough = refused > 50 && promises_refused > 20 && used > 20 && overwritten > 50;
        assert!(is_enough || !replay.runs_everything(), "the host was rarely full");
    }
}

/// A disk on a host with so many blocks of room, on which the first `written` blocks are written.
async fn begin(rt: &Rt, room: u64, written: u64) -> (Rc<Host>, Rc<Vld>) {
    let host = Host::new(32 * MIB);
    Vld::create(rt, host.clone(), &plan(), Options::default()).await.expect("made");
    host.free(room);
    let vld = Vld::open(rt, host.clone(), Options::default()).await.expect("opened");
    for first in (0..written).step_by(64) {
        try_write(&vld, first, 64.min(written - first), 1).await.expect("there is room");
    }
    vld.flush().await.expect("there is room");
    (host, vld)
}

/// Writes single blocks from `first` on until there is no room; returns the number of blocks.
async fn fill(vld: &Vld, first: u64) -> u64 {
    for block in first.. {
        match try_write(vld, block, 1, 2).await {
            Ok(()) => {}
            Err(DeviceError::NoSpace { .. }) => return block - first,
            Err(error) => panic!("block {block}: {error}"),
        }
    }
    unreachable!("the host has an end")
}

/// Aim: all that is there can be written over, the longest requests one after the other, without a flush and with one, while other
/// programs take what the host gets back; then all of it can be discarded, and the host has it again.
#[test]
fn long_requests_write_over_what_is_there() {
    run(1, async |rt: Rt| {
        let (host, vld) = begin(&rt, 3000, 1024).await;
        host.fill();
        let longest = vld.transaction_bytes_max() / BLOCK;
        let end = 1024 + fill(&vld, 1024).await;
        for number in 10..16 {
            for first in (0..1024).step_by(longest as usize) {
                let written = try_write(&vld, first, longest.min(1024 - first), number).await;
                written.unwrap_or_else(|error| panic!("write {number} from {first} on: {error}"));
            }
            if number % 2 == 0 {
                vld.flush().await.expect("what is written over is freed");
            }
        }
        check_ready(&vld, &host, "written over");
        host.free(0);
        let before = host.blocks();
        vld.discard(Sector::ZERO, end * SECTORS).await.expect("a discard needs no room");
        vld.flush().await.expect("pieces have room");
        check_ready(&vld, &host, "discarded");
        let kept = vld.core.kept_blocks(&vld.core.state.borrow());
        assert!(
            host.blocks() < before - end + kept + 64,
            "{before} blocks before, {} after; {kept} are kept",
            host.blocks()
        );
    });
}

/// The same for single blocks, each with a flush, which scatters pieces.
#[test]
fn single_blocks_are_written_over() {
    run(1, async |rt: Rt| {
        let (host, vld) = begin(&rt, 3000, 1024).await;
        host.fill();
        fill(&vld, 1024).await;
        let mut rng = Rng::new(1);
        for number in 10..1500 {
            let written = try_write(&vld, rng.below(1024), 1, number).await;
            written.unwrap_or_else(|error| panic!("write {number}: {error}"));
            vld.flush().await.unwrap_or_else(|error| panic!("flush {number}: {error}"));
        }
        check_ready(&vld, &host, "written over");
        let longest = vld.transaction_bytes_max() / BLOCK;
        try_write(&vld, 100, longest, 2000).await.expect("it is there");
    });
}

/// Aim: a sparse copy has holes where there were blocks of zeroes, and what such a block leaves has no storage: other places
/// are found while there are some. Method: places of mapped blocks are dug out below the disk.
#[test]
fn holes_of_a_sparse_copy_are_left_alone() {
    run(1, async |rt: Rt| {
        let (host, vld) = begin(&rt, 3000, 1024).await;
        host.fill();
        fill(&vld, 1024).await;
        for block in 100..150 {
            let place = vld.core.state.borrow().map[block];
            host.discard(vld.layout().sector_of(place), SECTORS).await.expect("dug out");
        }
        for number in 10..20 {
            try_write(&vld, 90, 100, number).await.unwrap_or_else(|error| panic!("write {number}: {error}"));
            vld.flush().await.expect("pieces have room");
        }
        for block in 90..190 {
            assert_eq!(number_of(&vld, block).await, 19);
        }
        check_ready(&vld, &host, "written over");
    });
}

/// Aim: storage that refuses every write, also where it has allocated, is asked a few times for each request, and what follows works
/// when it takes writes again. Method: much that is free and ready, because nothing is discarded; then no write has room.
#[test]
fn storage_without_room_for_any_write_is_asked_a_few_times() {
    const WRITTEN: u64 = 24_000;
    run(1, async |rt: Rt| {
        let fault = FaultDevice::new(&rt, Rc::new(Memory::new(16 * MIB)), 1);
        let options = Options { discard: false, commit: CommitUse::Flush, ..Options::default() };
        let vld = Vld::create(&rt, fault.clone(), &Plan { block_bytes: 512, ..plan() }, options).await.expect("made");
        for first in (0..WRITTEN).step_by(64) {
            write(&vld, first, 64, 1).await;
        }
        vld.flush().await.expect("there is room");
        vld.discard(Sector(100), WRITTEN - 100).await.expect("there is room");
        vld.flush().await.expect("there is room");
        let ready = vld.core.state.borrow().space.ready_blocks();
        assert!(ready >= 20_000, "{ready} blocks are ready");
        write(&vld, 0, 1, 2).await;
        fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace));
        for turn in 0..4 {
            let before = fault.failed();
            let refused = match turn {
                0 | 2 => vld.write(Sector(50), Data::from_slice(&stamp(50, 3, 512)), WriteFlags::NONE).await,
                _ => vld.flush().await,
            };
            assert!(matches!(refused, Err(DeviceError::NoSpace { .. })), "turn {turn}: {refused:?}");
            let asked = fault.failed() - before;
            assert!(asked <= 40, "turn {turn}: {asked} writes were refused");
            vld.check_invariants().unwrap_or_else(|what| panic!("turn {turn}: {what}"));
        }
        fault.clear();
        vld.flush().await.expect("there is room again");
        for block in 0..100 {
            write(&vld, block, 1, 4).await;
        }
        vld.flush().await.expect("there is room again");
        vld.check_invariants().expect("all promises hold");
        assert_eq!((number_of(&vld, 0).await, number_of(&vld, 99).await, number_of(&vld, 200).await), (4, 4, 0));
    });
}

/// Aim: after a host has refused writes everywhere, the next requests try a few places each, and do not go through the whole disk
/// again, until a write finds room; then they may. Method: a host that promises room for all and takes no write.
#[test]
fn a_host_that_refuses_all_writes_is_asked_about_the_whole_disk_once() {
    run(1, async |rt: Rt| {
        let fault = FaultDevice::new(&rt, Rc::new(Memory::new(16 * MIB)), 1);
        let options = Options { commit: CommitUse::Flush, ..Options::default() };
        let vld = Vld::create(&rt, fault.clone(), &Plan { block_bytes: 512, ..plan() }, options).await.expect("made");
        write(&vld, 0, 64, 1).await;
        vld.flush().await.expect("there is room");
        for round in 0..2 {
            fault.add(Rule::new(Kinds::PROVISION, When::Always, Effect::Delay(Nanos::ZERO..=Nanos::ZERO)));
            fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace));
            for turn in 0..12 {
                let (refused_before, provisioned_before) = (fault.failed(), fault.looked_at(0));
                let refused = try_write_sectors(&vld, 100 + turn).await;
                assert!(matches!(refused, Err(DeviceError::NoSpace { .. })), "turn {turn}: {refused:?}");
                let (asked, provisioned) = (fault.failed() - refused_before, fault.looked_at(0) - provisioned_before);
                println!("{round} {turn}: {asked} {provisioned}");
                assert!(asked <= 20, "turn {turn}: {asked} writes were refused");
                assert_eq!(
                    provisioned > 0,
                    turn == 0,
                    "round {round}, turn {turn}: {provisioned} ranges were provisioned"
                );
                vld.check_invariants().unwrap_or_else(|what| panic!("turn {turn}: {what}"));
            }
            fault.clear();
            write(&vld, 100, 12, 2 + round).await;
            vld.flush().await.expect("there is room again");
        }
        assert_eq!((number_of(&vld, 0).await, number_of(&vld, 111).await), (1, 3));
    });
}

async fn try_write_sectors(vld: &Vld, at: u64) -> Result<(), DeviceError> {
    vld.write(Sector(at), Data::from_slice(&stamp(at, 9, 512)), WriteFlags::NONE).await
}

/// Aim: requests that wait for room while others are under way do not wake each other again and again. Method: writes that
/// take time, so that virtual time does not pass while the others wait.
#[test]
fn requests_that_wait_for_room_wait() {
    run(1, async |rt: Rt| {
        let (host, vld) = begin(&rt, 3000, 1024).await;
        vld.release().await.expect("parked");
        drop(vld);
        let slow = FaultDevice::new(&rt, host.clone(), 1);
        let time = Nanos::from_millis(1);
        slow.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(time..=time)));
        let vld = Vld::open(&rt, slow, Options::default()).await.expect("opened");
        host.fill();
        fill(&vld, 1024).await;
        let over = (0..2).map(|client| try_write(&vld, client * 100, 100, 3));
        let new = (0..3).map(async |client| {
            // The others have been admitted.
            rt.sleep(Nanos::from_micros(100 + client)).await;
            try_write(&vld, 5000 + client * 100, 100, 4).await
        });
        let (over, new) = futures_util::future::join(join_all(over), join_all(new)).await;
        over.into_iter().for_each(|written| written.expect("it is there"));
        assert!(new.iter().all(|written| matches!(written, Err(DeviceError::NoSpace { .. }))), "{new:?}");
    });
}

/// Aim: what was provisioned has room when others have none; a promise that is refused changes nothing; a discard ends one.
#[test]
fn a_promise_is_kept() {
    run(1, async |rt: Rt| {
        let (host, vld) = begin(&rt, 2500, 300).await;
        let promises = || vld.core.state.borrow().promises.count();
        vld.provision(Sector(2000 * SECTORS), 128 * SECTORS).await.expect("there is room");
        vld.provision(Sector(200 * SECTORS), 200 * SECTORS).await.expect("a part of it is there");
        assert_eq!(promises(), 128 + 100);
        host.fill();
        let more = fill(&vld, 3000).await;
        let refused = vld.provision(Sector(5000 * SECTORS), 128 * SECTORS).await;
        assert!(matches!(refused, Err(DeviceError::NoSpace { .. })), "after {more} blocks: {refused:?}");
        assert_eq!(promises(), 128 + 100, "a promise that is refused changes nothing");
        for block in 2000..2100 {
            try_write(&vld, block, 1, 3).await.unwrap_or_else(|error| panic!("block {block}: {error}"));
            if block % 9 == 0 {
                vld.flush().await.expect("pieces have room");
            }
        }
        try_write(&vld, 200, 200, 3).await.expect("it is there, or promised");
        assert_eq!(promises(), 28);
        check_ready(&vld, &host, "used");
        host.free(0);
        vld.discard(Sector(2000 * SECTORS), 128 * SECTORS).await.expect("a discard needs no room");
        vld.flush().await.expect("pieces have room");
        assert_eq!(promises(), 0);
        vld.provision(Sector(5000 * SECTORS), 100 * SECTORS).await.expect("what was discarded has room for it");
        try_write(&vld, 5000, 100, 4).await.expect("it is promised");
    });
}

/// Aim: what was promised in a life is found in the next, one request after the other, though its storage is in runs that are
/// too short to be discarded, between others that were, and the first request needs less. Method: both are freed on a full host.
#[test]
fn promises_can_be_made_again_after_a_kill() {
    run(1, async |rt: Rt| {
        let (host, vld) = begin(&rt, 3000, 1024).await;
        host.fill();
        fill(&vld, 2000).await;
        for (from, blocks) in [(0, 24), (24, 8)] {
            for first in (from..1024).step_by(32) {
                vld.discard(Sector(first * SECTORS), blocks * SECTORS).await.expect("a discard needs no room");
            }
            vld.flush().await.expect("pieces have room");
        }
        let promise = async |vld: &Vld| {
            for first in (4000..4224).step_by(32) {
                let promised = vld.provision(Sector(first * SECTORS), 32 * SECTORS).await;
                promised.unwrap_or_else(|error| panic!("from block {first} on: {error}"));
            }
        };
        promise(&vld).await;
        drop(vld);
        let host = host.killed();
        host.fill();
        let vld = Vld::open(&rt, host.clone(), Options::default()).await.expect("opened");
        vld.discard(Sector(2000 * SECTORS), SECTORS).await.expect("a discard needs no room");
        promise(&vld).await;
        for block in 4000..4224 {
            try_write(&vld, block, 1, 3).await.unwrap_or_else(|error| panic!("block {block}: {error}"));
        }
        vld.flush().await.expect("pieces have room");
        check_ready(&vld, &host, "used");
    });
}

/// Aim: where a snapshot keeps what is written over, a write over it needs room as any other, which can be provisioned; without
/// room, a snapshot is refused and changes nothing.
#[test]
fn snapshots_need_room() {
    run(1, async |rt: Rt| {
        let host = Host::new(32 * MIB);
        let plan = Plan { snapshots: 2, reserve: 3000, ..plan() };
        Vld::create(&rt, host.clone(), &plan, Options::default()).await.expect("made");
        host.free(3500);
        let vld = Vld::open(&rt, host.clone(), Options::default()).await.expect("opened");
        for first in (0..800).step_by(50) {
            try_write(&vld, first, 50, 1).await.expect("there is room");
        }
        vld.flush().await.expect("there is room");
        let snapshots = vld.snapshots().expect("it has snapshots");
        snapshots.take("one").await.expect("there is room");
        vld.provision(Sector::ZERO, 100 * SECTORS).await.expect("there is room");
        host.fill();
        fill(&vld, 3000).await;
        let over = try_write(&vld, 400, 100, 2).await;
        assert!(matches!(over, Err(DeviceError::NoSpace { .. })), "the snapshot keeps it: {over:?}");
        try_write(&vld, 0, 100, 2).await.expect("it was provisioned");
        try_write(&vld, 0, 100, 3).await.expect("the snapshot has the older one");
        let two = snapshots.take("two").await;
        assert!(two.is_err(), "there is no room");
        assert_eq!(snapshots.list().await.expect("read").len(), 1);
        snapshots.remove("one").await.expect("it frees space");
        try_write(&vld, 400, 100, 4).await.expect("nothing else has it");
        check_ready(&vld, &host, "removed");
        assert_eq!((number_of(&vld, 99).await, number_of(&vld, 400).await, number_of(&vld, 700).await), (3, 4, 1));
    });
}

/// Aim: what a reader still holds when it is freed is ready when the reader is done, and has its storage; without a reader, it
/// is given back. Method: a slow read of a stretch that is written over in the meantime.
#[test]
fn what_is_being_read_keeps_its_storage() {
    for is_read in [true, false] {
        run(1, async |rt: Rt| {
            let (host, vld) = begin(&rt, 6000, 1000).await;
            vld.release().await.expect("parked");
            drop(vld);
            let slow = FaultDevice::new(&rt, host.clone(), 1);
            let time = Nanos::from_millis(50);
            slow.add(Rule::new(Kinds::READ, When::Always, Effect::Delay(time..=time)));
            let vld = Vld::open(&rt, slow, Options::default()).await.expect("opened");
            let old = vld.core.state.borrow().map[0];
            let reader = is_read.then(|| {
                let vld = vld.clone();
                rt.spawn(async move { vld.read(Sector::ZERO, Buf::dirty((64 * BLOCK) as usize)).await })
            });
            rt.sleep(Nanos::from_millis(10)).await;
            try_write(&vld, 0, 64, 2).await.expect("there is room");
            vld.flush().await.expect("there is room");
            assert_eq!(host.has(u64::from(old)), is_read);
            assert!(!vld.core.state.borrow().space.is_ready(old), "it is being read, or was given back");
            if let Some(reader) = reader {
                let read = reader.await.expect("it can be read");
                assert_eq!(read[..BLOCK as usize], stamp(0, 1, BLOCK as usize), "the reader has what was there");
            }
            rt.sleep(Nanos::from_millis(10)).await;
            assert_eq!(vld.core.state.borrow().space.is_ready(old), is_read);
            check_ready(&vld, &host, "read");
        });
    }
}

/// Aim: a discard that changes more pieces of the map than one transaction has room for works on a full host, also beside others.
/// Method: single blocks all over a large disk, each in a piece of its own; all are discarded, by several requests at once.
#[test]
fn many_pieces_are_discarded_on_a_full_host() {
    const STEP: u64 = 100;
    const WRITTEN: u64 = 44_000;
    run(1, async |rt: Rt| {
        let host = Host::new(20 << 30);
        let plan = Plan { reserve: 0, ..plan() };
        Vld::create(&rt, host.clone(), &plan, Options::default()).await.expect("made");
        host.free(200_000);
        let vld = Vld::open(&rt, host.clone(), Options::default()).await.expect("opened");
        for number in 0..WRITTEN {
            try_write(&vld, number * STEP, 1, 1).await.expect("there is room");
        }
        vld.flush().await.expect("there is room");
        host.fill();
        fill(&vld, 1).await;
        let discards = [0, WRITTEN * STEP / 2].map(|first| {
            let vld = vld.clone();
            rt.spawn(async move { vld.discard(Sector(first * SECTORS), (WRITTEN * STEP - first) * SECTORS).await })
        });
        for discard in discards {
            discard.await.expect("a discard needs no room");
        }
        vld.flush().await.expect("pieces have room");
        check_ready(&vld, &host, "discarded");
        assert_eq!(number_of(&vld, STEP).await, 0);
        try_write(&vld, 0, 100, 4).await.expect("there is room again");
        vld.flush().await.expect("there is room");
    });
}

/// Aim: on a full host, a revert to a snapshot is done or changes nothing, the snapshot can be removed, and after either all that is
/// there can be written over and discarded. Method: seeded histories before the host is full, with the room and the order varied.
#[test]
fn snapshots_are_reverted_to_and_removed_on_a_full_host() {
    let (mut reverted, mut refused) = (0, 0);
    for seed in 0..24 {
        run(seed, async |rt: Rt| {
            let mut rng = Rng::new(seed);
            let name = format!("seed {seed}");
            let host = Host::new(32 * MIB);
            let plan = Plan { snapshots: 1, block_bytes: [512, 4096][seed as usize % 2], ..plan() };
            let unit = u64::from(plan.block_bytes);
            Vld::create(&rt, host.clone(), &plan, Options::default()).await.expect("made");
            host.free(rng.between(2500, 4000));
            let vld = Vld::open(&rt, host.clone(), Options::default()).await.expect("opened");
            let spread = rng.between(1, 3);
            let places: Vec<u64> = (0..rng.between(300, 900)).map(|place| place * spread).collect();
            let write_one = async |place: u64, number: u64| {
                let data = Data::from_slice(&stamp(place, number, unit as usize));
                vld.write(Sector(place * unit / SECTOR_BYTES), data, WriteFlags::NONE).await
            };
            for &place in &places {
                write_one(place, 1).await.expect("there is room");
            }
            vld.flush().await.expect("there is room");
            vld.take("s").await.expect("there is room");
            let mut expected: Vec<u64> = vec![1; places.len()];
            for (at, &place) in places.iter().enumerate() {
                if rng.chance(1, 3) {
                    write_one(place, 2).await.expect("there is room");
                    expected[at] = 2;
                }
            }
            vld.flush().await.expect("there is room");
            host.fill();
            let far = vld.geometry().bytes() / unit / 2;
            for place in far.. {
                if write_one(place, 3).await.is_err() {
                    break;
                }
                if rng.chance(1, 20) {
                    let _ = vld.flush().await;
                }
            }
            vld.flush().await.expect("pieces have room");
            if seed % 3 != 2 {
                match vld.revert("s").await {
                    Ok(()) => {
                        expected.fill(1);
                        reverted += 1;
                    }
                    Err(SnapshotError::Device(DeviceError::NoSpace { .. })) => refused += 1,
                    Err(error) => panic!("{name}: {error}"),
                }
                vld.flush().await.unwrap_or_else(|error| panic!("{name}: {error}"));
            }
            vld.check_invariants().unwrap_or_else(|error| panic!("{name}: {error}"));
            vld.remove("s").await.unwrap_or_else(|error| panic!("{name}, removed: {error}"));
            for (&place, &number) in places.iter().zip(&expected) {
                assert_eq!(number_of(&vld, place).await, number, "{name}: block {place}");
            }
            for &place in &places {
                write_one(place, 4).await.unwrap_or_else(|error| panic!("{name}, block {place}: {error}"));
            }
            vld.flush().await.unwrap_or_else(|error| panic!("{name}, written over: {error}"));
            let sectors = vld.geometry().sectors;
            vld.discard(Sector(0), sectors).await.unwrap_or_else(|error| panic!("{name}, discarded: {error}"));
            vld.flush().await.unwrap_or_else(|error| panic!("{name}, discarded: {error}"));
        });
    }
    println!("{reverted} reverts, {refused} refused");
    assert!(reverted + refused == 16, "{reverted} reverts, {refused} refused");
}
