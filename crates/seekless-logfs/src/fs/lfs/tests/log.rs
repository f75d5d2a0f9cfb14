//! Aim: the log uses all of a segment, its tasks write when they should and not after the end, and the cleaner takes
//! the segments that its policy names. Method: small programs with the timers off or fast, and a look at the state.

use std::cell::RefCell;

use super::super::format::BLOCK_BYTES;
use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::trace::{TraceDevice, TraceEvent, TraceKind};
use crate::fs::logfs::backend::SpaceAccounts;
use crate::rng::Rng;

const BYTES: u64 = 12 * MIB;

/// No timer ends while a test runs.
fn quiet() -> Options {
    let never = Nanos::from_secs(1 << 30);
    Options { checkpoint_interval: never, write_back_interval: never, ..Options::default() }
}

/// Aim: a partial segment may end where its segment ends. Method: transactions of many sizes, some of which fill a
/// segment exactly.
#[test]
fn segments_are_filled_to_the_last_sector() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device, quiet()).await.unwrap();
        let client = Client::new(lfs.clone());
        let mut rng = Rng::new(1);
        for file in 0..200 {
            client.write_file(format!("/{file}").as_bytes(), &vec![7; rng.below(40_000) as usize]).await.unwrap();
            client.sync().await.unwrap();
        }
        let (layout, image) = (lfs.state.borrow().log.layout, memory.image());
        let is_full = |segment: &u64| {
            let mut bytes = vec![0; layout.segment_bytes() as usize];
            image.read(layout.segment_start(*segment), &mut bytes);
            let partials = cleaner::partials_in(&layout, *segment, &bytes);
            partials.iter().map(|partial| u64::from(partial.summary.sectors)).sum::<u64>() == layout.segment_sectors()
        };
        let full = (0..layout.segment_count()).filter(is_full).count();
        assert!(full > 0, "each of the segments has an end that is not used");
    });
}

/// Aim: two files of a block in two directories, with all inodes, are a single write [ro92 Figure 1]. Method: the requests of a sync
/// behind their creation.
#[test]
fn two_new_files_are_a_single_write() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let events = Rc::new(RefCell::new(Vec::<TraceEvent>::new()));
        let traced = TraceDevice::new(&rt, device, events.clone());
        let lfs = open(rt.clone(), traced, quiet()).await.unwrap();
        let client = Client::new(lfs.clone());
        for dir in [b"/dir1", b"/dir2"] {
            client.mkdir(dir).await.unwrap();
        }
        client.sync().await.unwrap();
        events.borrow_mut().clear();
        for file in ["/dir1/file1", "/dir2/file2"] {
            client.write_file(file.as_bytes(), &[1; BLOCK_BYTES]).await.unwrap();
        }
        client.sync().await.unwrap();
        let is_write = |event: &&TraceEvent| matches!(event.kind, TraceKind::Write | TraceKind::WriteThrough);
        let writes: Vec<TraceEvent> = events.borrow().iter().filter(is_write).copied().collect();
        assert_eq!(writes.len(), 1, "{writes:#?}");
    });
}

/// Aim: the blocks of a file lie in its order in one piece, but where a segment ends [se95 §3.2]. Method: files of each size whose blocks
/// have a number, which is looked for on the device.
#[test]
fn files_lie_in_one_piece() {
    simulate(1, async |rt| {
        let (mut files, mut whole, mut within) = (0, 0, 0);
        for kib in [64, 128, 256, 512] {
            let memory = Rc::new(Memory::new(128 * MIB));
            let device: Device = memory.clone();
            // As in the experiments of [se95].
            let shape = MkfsOptions { segment_bytes: Some(MIB), ..MkfsOptions::new([1, 2, 3, 4]) };
            mkfs(&rt, &device, &shape).await.unwrap();
            let lfs = open(rt.clone(), device, quiet()).await.unwrap();
            let client = Client::new(lfs.clone());
            let blocks = (kib << 10) / BLOCK_BYTES;
            let tag = |file: u64, block: usize| {
                [0x5eea_7e55_0000_0000 + (file << 16) + block as u64; 4].map(u64::to_le_bytes).concat()
            };
            for file in 0..10u64 {
                let content: Vec<u8> =
                    (0..blocks).flat_map(|block| tag(file, block).repeat(BLOCK_BYTES / 32)).collect();
                client.write_file(format!("/f{file}").as_bytes(), &content).await.unwrap();
            }
            client.sync().await.unwrap();
            let (layout, image) = (lfs.state.borrow().log.layout, memory.image());
            let mut places = std::collections::BTreeMap::new();
            for segment in 0..layout.segment_count() {
                let mut bytes = vec![0; layout.segment_bytes() as usize];
                image.read(layout.segment_start(segment), &mut bytes);
                let is_tagged = |bytes: &[u8]| bytes[4..8] == 0x5eea_7e55_u32.to_le_bytes();
                for (sector, bytes) in bytes.chunks_exact(512).enumerate().filter(|(_, bytes)| is_tagged(bytes)) {
                    places.entry(bytes[..32].to_vec()).or_insert(layout.segment_start(segment).0 + sector as u64);
                }
            }
            for file in 0..10 {
                let found: Vec<u64> = (0..blocks).map(|block| places[&tag(file, block)]).collect();
                let segment = |place: u64| place / layout.segment_sectors();
                let breaks = found.windows(2).filter(|pair| pair[1] != pair[0] + (BLOCK_BYTES / 512) as u64);
                let (mut all, mut inside) = (0, 0);
                for pair in breaks {
                    all += 1;
                    inside += u32::from(
                        segment(pair[0] - layout.segment_start(0).0) == segment(pair[1] - layout.segment_start(0).0),
                    );
                }
                files += 1;
                whole += u32::from(all == 0);
                within += inside;
            }
        }
        assert_eq!((whole, within, files), (32, 0, 40), "in one piece, and in two within a segment");
    });
}

/// Aim: what the cleaner moves stays as old as the segment that it comes from, also when a user has changed the file's
/// attributes since ([ro92 §3.6]). Method: a file that is old when its blocks are moved to another segment.
#[test]
fn moved_blocks_keep_their_age() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device, quiet()).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/a", &[1; 20_000]).await.unwrap();
        client.sync().await.unwrap();
        rt.sleep(Nanos::from_secs(1_000)).await;
        let permissions = Some(0o600);
        client.setattr(b"/a", SetAttr { permissions, ..SetAttr::default() }).await.unwrap();
        // Moved data goes to another segment, whose age is that of the moved data alone.
        let (here, end, age) = {
            let mut state = lfs.state.borrow_mut();
            let here = state.log.end.segment;
            state.log.end.offset = state.log.layout.segment_sectors();
            (here, state.log.end.next_segment, state.log.segments.get(here).youngest)
        };
        assert!(i128::from(age) < rt.wall().nanos_since_epoch() - 900_000_000_000);
        lfs.move_segment(here, 0).await.unwrap();
        lfs.submit_loading(assemble::TransactionScope::Cleaned).await.unwrap();
        let state = lfs.state.borrow();
        assert_eq!(state.log.end.segment, end);
        let younger = age - state.log.segments.get(end).youngest;
        assert!((0..1 << format::STAMP_SHIFT).contains(&younger), "{younger} ns");
        let moved = state.log.counters.log_cleaned_bytes;
        assert!(moved > 20_000, "{moved} bytes are moved");
    });
}

/// Aim: a segment becomes clean early only when the transaction that emptied it is durable, and neither slot's checkpoint
/// leads to indirect blocks in it or has the log in it behind itself (G1). Method: one segment, with each in turn.
#[test]
fn what_becomes_clean_early() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device, quiet()).await.unwrap();
        let mut state = lfs.state.borrow_mut();
        let segments = &mut state.log.segments;
        let segment = *segments.ready.last().unwrap();
        segments.serial = 8;
        segments.take(segment);
        segments.note_emptied(segment, 100);
        assert_eq!(segments.next_early(8), None, "checkpoint 8 has the log in it behind itself");
        assert_eq!(segments.next_early(9), Some(100));
        assert_eq!(segments.let_go_early(9, 99), [], "it is not durable that it is empty");
        segments.add_tree(segment, 4096);
        assert_eq!(segments.next_early(9), None, "there is an indirect block in it");
        segments.serial = 11;
        segments.remove_tree(segment, 4096);
        assert_eq!(segments.next_early(11), None, "checkpoint 11 leads to an indirect block in it");
        assert_eq!(segments.let_go_early(12, 100), [segment]);
        assert_eq!(segments.let_go_early(12, 100), []);
    });
}

/// Aim: dirty data is written once there is a batch of it, without a timer and without a waiting caller. Method: less
/// than the amount that makes writers wait, and then time without any call. A checkpoint counts as one.
#[test]
fn a_batch_is_written_by_itself() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device, quiet()).await.unwrap();
        let client = Client::new(lfs.clone());
        rt.sleep(Nanos::from_secs(1)).await; // The task waits.
        client.write_file(b"/f", &vec![1; 3 * MIB as usize]).await.unwrap();
        rt.sleep(Nanos::from_secs(1)).await;
        let dirty = lfs.state.borrow().dirty_bytes();
        assert!(dirty < MIB, "{dirty} bytes are dirty");
        let checkpoints = lfs.state.borrow().log.counters.checkpoints;
        lfs.checkpoint(false).await.unwrap();
        assert_eq!(lfs.state.borrow().log.counters.checkpoints, checkpoints + 1);
    });
}

/// Aim: blocks of a large directory are not written again for each few names, and names wait neither beyond the limit of dirty
/// data nor for longer than the interval. Method: more names than a batch of blocks holds, one after another with time for the
/// task in between; what is dirty and what the log has got; names that are removed; then the interval without any call.
#[test]
fn blocks_of_a_large_directory_wait_for_more_names() {
    const NAMES: u64 = 20_000;
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, 512 * MIB).await;
        let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        let (most, batch) = {
            let state = lfs.state.borrow();
            (state.log.options.dirty_bytes_max, Segmented::batch_bytes(&state))
        };
        let mut dirtiest = 0;
        for number in 0..NAMES {
            client.write_file(format!("/a name of the usual length {number}").as_bytes(), b"").await.unwrap();
            rt.yield_now().await;
            dirtiest = dirtiest.max(lfs.state.borrow().dirty_bytes());
        }
        assert!((batch + batch / 2..most).contains(&dirtiest), "{dirtiest} bytes were dirty; {batch} to {most} may be");
        let blocks = client.stat(b"/").await.unwrap().size / BLOCK_BYTES as u64;
        assert!(blocks * BLOCK_BYTES as u64 > batch, "{blocks} blocks");
        let written = lfs.state.borrow().log.counters.log_data_bytes / BLOCK_BYTES as u64;
        assert!(written < NAMES / 8, "{written} blocks for {NAMES} names in {blocks} blocks");
        assert_eq!(lfs.recount().await.unwrap(), Vec::<String>::new());
        for number in (0..NAMES).step_by(3) {
            client.unlink(format!("/a name of the usual length {number}").as_bytes()).await.unwrap();
            rt.yield_now().await;
        }
        assert_eq!(lfs.recount().await.unwrap(), Vec::<String>::new());
        rt.sleep(Nanos(2 * Options::default().write_back_interval.0)).await;
        assert_eq!((lfs.state.borrow().dirty_bytes(), lfs.state.borrow().blocks.dirty_of_directories()), (0, 0));
        // A power cut, without closing.
        let after: Device = Rc::new(Memory::from_image(512 * MIB, memory.image()));
        assert_clean(&rt, &after).await;
        let found = session(&rt, &after, async |client| client.read_dir(b"/").await.unwrap().len() as u64).await;
        assert_eq!(found, NAMES - NAMES.div_ceil(3));
        lfs.close().await.unwrap();
    });
}

/// Aim: after a volume was closed nothing more is written, and its checkpoint is marked clean. Method: a slow device, a
/// fast timer, and a program that continues during the last checkpoint.
#[test]
fn nothing_is_written_after_the_end() {
    for seed in 0..20 {
        simulate(seed, async |rt| {
            let (memory, device) = fresh(&rt, BYTES).await;
            let slow = FaultDevice::new(&rt, device, seed);
            let delay = Effect::Delay(Nanos::from_millis(2)..=Nanos::from_millis(9));
            slow.add(Rule::new(Kinds::all(), When::Always, delay));
            let interval = Nanos::from_millis(1);
            let options =
                Options { checkpoint_interval: interval, write_back_interval: interval, ..Options::default() };
            let lfs = open(rt.clone(), slow, options).await.unwrap();
            let client = Client::new(lfs.clone());
            client.write_file(b"/f", &[1; 10_000]).await.unwrap();
            let (other, clock) = (Client::new(lfs.clone()), rt.clone());
            rt.spawn(async move {
                for byte in 0..100 {
                    clock.sleep(Nanos::from_millis(1)).await;
                    let _ = other.write_file(b"/g", &[byte; 5_000]).await;
                }
            });
            rt.sleep(Nanos::from_millis(20)).await;
            lfs.close().await.unwrap();
            let closed = all(&memory.image());
            rt.sleep(Nanos::from_secs(1)).await;
            assert!(all(&memory.image()) == closed, "seed {seed}: something was written");
            let device: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
            let newest = find::find_volume(&device).await.unwrap().checkpoint;
            assert!(newest.flags & format::CHECKPOINT_CLEAN != 0, "seed {seed}: checkpoint {}", newest.serial);
        });
    }
}

fn all(image: &Image) -> Vec<u8> {
    let mut bytes = vec![0; BYTES as usize];
    image.read(crate::units::Sector(0), &mut bytes);
    bytes
}

/// Aim: in idle time empty segments become clean, also when there is room enough; and when there is not, segments that
/// hold little are emptied until nine tenths of the possible number are clean ([se93]). What a read returns does not
/// change. Method: a small file that is removed; then a volume that is filled, of which every second block is removed.
#[test]
fn idle_time_makes_room() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device, quiet()).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/f", &[1; 400_000]).await.unwrap();
        lfs.checkpoint(false).await.unwrap();
        client.unlink(b"/f").await.unwrap();
        client.sync().await.unwrap();
        let waiting = || {
            let state = lfs.state.borrow();
            let (segments, end) = (&state.log.segments, [state.log.end.segment, state.log.end.next_segment]);
            let is_free = |number: &u64| segments.clean.contains(number) || segments.ready.contains(number);
            let empty = segments.iter().filter(|(number, segment)| segment.live_bytes == 0 && !end.contains(number));
            empty.filter(|(number, _)| !is_free(number)).count()
        };
        assert!(waiting() >= 2, "{} segments wait", waiting());
        while client.fs().idle(rt.now() + Nanos::from_secs(1)).await.unwrap() {}
        assert_eq!(waiting(), 0);

        let segment = lfs.state.borrow().log.layout.segment_bytes();
        let mut count = 0;
        while lfs.clean_segments() > lfs.state.borrow().cleaner_segments() + 20 {
            client.write_file(format!("/{count}").as_bytes(), &vec![count as u8; segment as usize / 4]).await.unwrap();
            client.sync().await.unwrap();
            count += 1;
        }
        for file in (0..count).filter(|file| file % 2 == 0) {
            client.unlink(format!("/{file}").as_bytes()).await.unwrap();
        }
        client.sync().await.unwrap();
        let before = lfs.clean_segments();
        while client.fs().idle(rt.now() + Nanos::from_secs(1)).await.unwrap() {}
        let possible = {
            let state = lfs.state.borrow();
            (state.log.layout.capacity_bytes() - state.log.segments.live_bytes) / segment
        };
        let clean = lfs.clean_segments();
        assert!(clean > before + 10 && clean * 10 >= possible * 9, "{before} were clean, {clean} of {possible} are");
        assert_eq!(client.fs().check().await.unwrap(), Vec::<String>::new());
        lfs.state.borrow_mut().drop_caches();
        for file in (0..count).filter(|file| file % 2 == 1) {
            let read = client.read_file(format!("/{file}").as_bytes()).await.unwrap();
            assert!(read == vec![file as u8; segment as usize / 4], "file {file}");
        }
    });
}

/// Aim: a caller that goes away in idle time leaves no pass in the middle, where its checkpoint may be half written and
/// the segments that it takes back are in no list; and a volume closes nevertheless. Method: a file is removed, and a caller of `idle`
/// goes away at its first wait; then the same with an unmount at once.
#[test]
fn idle_work_ends_its_pass_without_its_caller() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device.clone(), quiet()).await.unwrap();
        let client = Client::new(lfs.clone());
        for closes_at_once in [false, true] {
            client.write_file(b"/f", &[1; 400_000]).await.unwrap();
            lfs.checkpoint(false).await.unwrap();
            client.unlink(b"/f").await.unwrap();
            client.sync().await.unwrap();
            let before = lfs.waiting_segments();
            assert!(before >= 2, "{before} segments wait");
            let mut idle = Box::pin(client.fs().idle(rt.now() + Nanos::from_secs(1)));
            assert!(futures_util::poll!(idle.as_mut()).is_pending());
            drop(idle);
            if !closes_at_once {
                rt.sleep(Nanos::from_secs(2)).await;
                assert_eq!(lfs.waiting_segments(), 0);
                assert_eq!(client.fs().check().await.unwrap(), Vec::<String>::new());
            }
        }
        client.fs().close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// Aim: the cleaner chooses by free space, not by its policy, once it uses up its own segments. Method: numbers of clean
/// segments that the test sets, on both sides of that.
#[test]
fn the_policy_changes_when_room_is_short() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device, quiet()).await.unwrap();
        for (beside, is_short) in [(9, false), (0, false), (-1, true)] {
            let mut state = lfs.state.borrow_mut();
            let left = state.cleaner_segments().strict_add_signed(beside);
            let (clean, ready) = (std::mem::take(&mut state.log.segments.clean), state.log.segments.ready.len() as u64);
            state.log.segments.clean = clean.into_iter().take(left.saturating_sub(ready) as usize).collect();
            while state.log.segments.ready.len() as u64 > left {
                state.log.segments.ready.pop_last();
            }
            drop(state);
            assert_eq!((lfs.clean_segments(), lfs.room_is_short()), (left, is_short));
        }
    });
}

/// A full segment that holds data of users alone, and in which the log does not continue.
fn segment_of_data(lfs: &Lfs) -> u64 {
    let state = lfs.state.borrow();
    let end = [state.log.end.segment, state.log.end.next_segment];
    let full = state.log.segments.iter().filter(|(number, segment)| !end.contains(number) && segment.tree_bytes == 0);
    full.max_by_key(|(_, segment)| segment.live_bytes).map(|(number, _)| number).unwrap()
}

/// Has the next transaction begin in `segment`, which is ready.
async fn go_on_in(lfs: &Lfs, client: &Client, segment: u64) {
    for round in 0.. {
        if lfs.state.borrow().log.end.next_segment == segment {
            break;
        }
        assert!(round < 1_000, "the log does not come to segment {segment}");
        client.write_file(b"/filling", &[round as u8; 25_000]).await.unwrap();
        client.sync().await.unwrap();
    }
    let mut state = lfs.state.borrow_mut();
    state.log.end.offset = state.log.layout.segment_sectors();
}

/// Aim: what the cleaner reads in a segment that the log has begun to write again says nothing about the new content (G1).
/// Method: a segment of data that is emptied by the time its turn in a pass comes, and in which a checkpoint is on its way.
#[test]
fn a_segment_is_written_again_before_its_turn() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let slow = FaultDevice::new(&rt, device, 1);
        let lfs = open(rt.clone(), slow.clone(), Options { discard: false, ..quiet() }).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/kept", &[1; 200_000]).await.unwrap();
        client.write_file(b"/f", &[1; 600_000]).await.unwrap();
        client.sync().await.unwrap();
        let segment = segment_of_data(&lfs);
        client.unlink(b"/f").await.unwrap();
        for _ in 0..3 {
            lfs.checkpoint(false).await.unwrap();
        }
        assert!(lfs.state.borrow().log.segments.ready.contains(&segment), "segment {segment} is ready");
        go_on_in(&lfs, &client, segment).await;
        let file = client.open(b"/kept", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 100_000, &[2; 4096]).await.unwrap();
        let start = lfs.state.borrow().log.layout.segment_start(segment);
        let end = start + lfs.state.borrow().log.layout.segment_sectors();
        let delay = Effect::Delay(Nanos::from_secs(1)..=Nanos::from_secs(1));
        slow.add(Rule::new(Kinds::WRITE, When::Always, delay).within(start..end));
        let checkpoint = {
            let lfs = lfs.clone();
            rt.spawn(async move { lfs.checkpoint(false).await })
        };
        rt.sleep(Nanos::from_millis(1)).await;
        assert!(lfs.state.borrow().log.segments.get(segment).tree_bytes > 0, "a checkpoint is on its way");
        lfs.move_segment(segment, 0).await.unwrap();
        checkpoint.await.unwrap();
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
    });
}

/// Aim: a segment whose last sectors are damaged is not taken for one without indirect blocks (G1). Method: an indirect
/// block in a small partial segment at the end of a segment of data, whose summary is overwritten before the cleaner comes.
#[test]
fn an_indirect_block_behind_damage() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device.clone(), quiet()).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/f", &[1; 200_000]).await.unwrap();
        for sectors in 1..=8 {
            client.write_file(format!("/{sectors}").as_bytes(), &vec![1; sectors * 512]).await.unwrap();
        }
        lfs.checkpoint(false).await.unwrap();
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 100_000, &[2; 4096]).await.unwrap();
        client.fsync(file).await.unwrap();
        let segment = lfs.state.borrow().log.end.next_segment;
        go_on_in(&lfs, &client, segment).await;
        // A summary and an inode besides the data.
        let left = || {
            let state = lfs.state.borrow();
            (state.log.end.segment == segment).then(|| state.log.layout.segment_sectors() - state.log.end.offset)
        };
        loop {
            let sectors = match left() {
                Some(12) => break,
                Some(left @ 15..=22) => left - 14,
                _ => 4,
            };
            let name = format!("/{sectors}");
            let small = client.open(name.as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
            client.write(small, 0, &[3; 9]).await.unwrap();
            client.fsync(small).await.unwrap();
            client.close(small).await.unwrap();
        }
        // Neither slot has the segment behind itself.
        for byte in 0..2 {
            lfs.checkpoint(false).await.unwrap();
            client.write_file(b"/9", &[byte]).await.unwrap();
        }
        lfs.checkpoint(false).await.unwrap();
        assert!(lfs.state.borrow().log.segments.get(segment).tree_bytes > 0, "there is an indirect block in it");
        let layout = lfs.state.borrow().log.layout;
        let last = layout.segment_start(segment) + (layout.segment_sectors() - 12);
        device.write(last, crate::device::Data::zeroes(512), crate::device::WriteFlags::NONE).await.unwrap();
        lfs.move_segment(segment, 0).await.unwrap();
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
        client.write(file, 100_000, &[4; 4096]).await.unwrap();
        lfs.checkpoint(false).await.unwrap();
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
    });
}

/// Aim: a segment that becomes clean early, and that takes long to discard below, is in no other set (G3).
/// Method: slow discards, and checkpoints during them.
#[test]
fn discarded_while_checkpoints_are_made() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let slow = FaultDevice::new(&rt, device, 1);
        let lfs = open(rt.clone(), slow.clone(), quiet()).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/f", &vec![1; 5_000_000]).await.unwrap();
        for round in 0..3 {
            client.write_file(b"/g", &[round; 9_000]).await.unwrap();
            lfs.checkpoint(false).await.unwrap();
        }
        client.unlink(b"/f").await.unwrap();
        client.sync().await.unwrap();
        let delay = Effect::Delay(Nanos::from_secs(1)..=Nanos::from_secs(1));
        slow.add(Rule::new(Kinds::DISCARD, When::Always, delay));
        let (discarded, other) = (lfs.state.borrow().log.counters.discarded_segments, lfs.clone());
        let released = rt.spawn(async move { other.release_early().await });
        for round in 0..6 {
            rt.sleep(Nanos::from_millis(100)).await;
            client.write_file(b"/g", &[round; 9_000]).await.unwrap();
            lfs.checkpoint(false).await.unwrap();
        }
        let released = released.await;
        assert!(released > 20, "{released} segments are released");
        let discarded = lfs.state.borrow().log.counters.discarded_segments - discarded;
        assert!(discarded > 5, "{discarded} segments are discarded");
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
        for round in 0..2 {
            client.write_file(b"/g", &[round; 9_000]).await.unwrap();
            lfs.checkpoint(false).await.unwrap();
        }
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
    });
}

/// Aim: nothing is written behind the checkpoint of a volume that was closed, whatever a task was waiting for. Method: a device that
/// takes long to discard; the volume is closed while the timer, which would write a checkpoint next, gives back storage.
#[test]
fn a_volume_closed_while_storage_is_given_back_is_clean() {
    for pause in [50, 450, 950] {
        simulate(pause, async |rt| {
            let (memory, _) = fresh(&rt, 64 * MIB).await;
            let fault = FaultDevice::new(&rt, memory.clone(), 1);
            let second = Nanos::from_secs(1);
            fault.add(Rule::new(Kinds::DISCARD, When::Always, Effect::Delay(second..=second)));
            let options = Options {
                discard_after: Nanos::from_secs(10),
                checkpoint_interval: second,
                write_back_interval: second,
                ..Options::default()
            };
            let device: Device = fault.clone();
            let lfs = open(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(lfs.clone());
            // Twice, so that some of the storage is due before the rest.
            for name in [b"/a", b"/b"] {
                client.write_file(name, &vec![1; 20 * MIB as usize]).await.unwrap();
                client.sync().await.unwrap();
            }
            for name in [b"/a", b"/b"] {
                client.unlink(name).await.unwrap();
                rt.sleep(Nanos::from_secs(6)).await;
            }
            let mut rounds = 0;
            while lfs.state.borrow().log.segments.leaving.is_empty() {
                client.write_file(b"/small", &[1; 100]).await.unwrap();
                rt.sleep(Nanos::from_millis(20)).await;
                rounds += 1;
                assert!(rounds < 2000, "nothing is given back");
            }
            client.write_file(b"/small", &[2; 100]).await.unwrap();
            rt.sleep(Nanos::from_millis(pause)).await;
            lfs.close().await.unwrap();
            let closed = slot_serials(&memory.image());
            rt.sleep(Nanos::from_secs(100)).await;
            assert_eq!(slot_serials(&memory.image()), closed, "no checkpoint after the last one");
            drop((client, lfs));
            assert!(info(&device).await.unwrap().clean, "pause {pause}");
            assert_clean(&rt, &device).await;
        });
    }
}

/// Records of blocks below indirect blocks that were dropped are dropped with them: after a power cut, a mount does not create these
/// indirect blocks again. Method: two neighbours are filled, emptied and dropped in one transaction, while what leads to them stays.
#[test]
fn nothing_is_left_below_dropped_indirect_blocks() {
    const BYTES: u64 = 16 * MIB;
    let node = |number| layout::BlockKey::node(2, 1, number);
    let block = BLOCK_BYTES as u64;
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        let options = Options { checkpoint_interval: Nanos::from_secs(3600), ..Options::default() };
        let lfs = open(rt.clone(), device, options).await.unwrap();
        let client = Client::new(lfs.clone());
        let file = client.create(b"/f").await.unwrap();
        let kept = node(0).span().0 * block;
        client.write(file, kept, &[1; BLOCK_BYTES]).await.unwrap();
        let (first, end) = (node(1).span().0, node(2).span().1);
        let range = FileRange { offset: first * block, bytes: (end - first) * block };
        client.fallocate(b"/f", range, AllocateMode::Allocate { keep_size: false }).await.unwrap();
        client.fallocate(b"/f", range, AllocateMode::PunchHole).await.unwrap();
        client.truncate(b"/f", kept + block).await.unwrap();
        client.fsync(file).await.unwrap();
        client.fsync_path(b"/").await.unwrap();
        let ino = client.stat(b"/f").await.unwrap().ino;
        let device: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
        let lfs = open(rt.clone(), device.clone(), Options { read_only: true, ..options }).await.unwrap();
        let is_there = |number| lfs.state.borrow().blocks.peek(layout::BlockId { ino, key: node(number) }).is_some();
        assert_eq!([0, 1, 2].map(is_there), [true, false, false]);
        drop(lfs);
        session(&rt, &device, async |client| {
            let file = client.open(b"/f", OpenFlags::READ).await.unwrap();
            assert_eq!(client.read(file, kept, BLOCK_BYTES as u32).await.unwrap(), [1; BLOCK_BYTES]);
            client.close(file).await.unwrap();
        })
        .await;
    });
}
