//! Aim: lack of space, on the volume or below it, is a clean error; deleting then works, and nothing is lost. Errors of
//! unknown effect stop all changes. Method: volumes filled completely, and devices that refuse.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::logfs::backend::SpaceAccounts;
use crate::fs::logfs::tests::{self as shared, attribute_bytes, attributes_have_a_limit};
use crate::fs::logfs::tree::{BlockId, is_internal};
use crate::testing::environment::soak;
use crate::testing::volumes::space::{self, fill};
use crate::units::KIB;

#[test]
fn overwritten_twenty_times_at_95_percent() {
    space::overwritten_twenty_times_at_95_percent(&Small::default());
}

/// Aim: what `df` calls full can still be overwritten, by any policy. Method: one file, and as many small ones, until there
/// is no space; then skewed overwrites, several times as much as the volume.
#[test]
fn a_full_volume_can_be_overwritten() {
    for (&cleaner, seed) in CLEANERS.iter().zip(1..) {
        simulate(seed, async |rt| {
            let (_, device) = fresh(&rt, 16 * MIB).await;
            let options = Options { cleaner, ..Options::default() };
            let fs = mount(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(fs.clone());
            fill(&client, 50_000).await;
            let file = client.create(b"/one").await;
            if let Ok(file) = file {
                client.close(file).await.unwrap();
            }
            client.unlink(b"/f0").await.unwrap();
            let names = client.read_dir(b"/").await.unwrap().len() as u64 - 2;
            let space = fs.statfs().await.unwrap();
            assert!(space.blocks_available < 32, "{} blocks are available", space.blocks_available);
            let mut rng = crate::rng::Rng::new(seed);
            for round in 0..soak().times(12_000) {
                // A tenth of the files get most of the writes.
                let among = if rng.below(10) == 0 { names } else { names / 10 };
                let name = format!("/f{}", 1 + rng.below(among.saturating_sub(3).max(1)));
                let open = client.open(name.as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
                let written = client.write(open, rng.below(12) * 4096, &[round as u8; 4096]).await;
                written.unwrap_or_else(|error| panic!("{cleaner:?}, overwrite {round}: {error}"));
                if round % 50 == 0 {
                    client.fsync(open).await.unwrap();
                }
                client.close(open).await.unwrap();
            }
            assert_eq!(fs.check().await.unwrap(), Vec::<String>::new());
            fs.close().await.unwrap();
            drop((client, fs));
            assert_clean(&rt, &device).await;
        });
    }
}

/// Aim: what changes data and frees nothing leaves the cleaner its room on a full volume (C4). Method: one byte of each block is
/// punched, in any order, or all files lose a byte, again and again; then all is overwritten, and removed.
#[test]
fn punches_of_a_full_volume_leave_room() {
    const BLOCKS: u64 = 13;
    for truncates in [false, true] {
        simulate(1, async |rt| {
            let (_, device) = fresh(&rt, 16 * MIB).await;
            let fs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
            let client = Client::new(fs.clone());
            let count = fill(&client, (BLOCKS * 4096) as usize).await;
            client.unlink(b"/f0").await.unwrap();
            let mut places: Vec<(u64, u64)> =
                (1..count).flat_map(|file| (0..BLOCKS).map(move |block| (file, block))).collect();
            crate::rng::Rng::new(1).shuffle(&mut places);
            let mut bytes = vec![BLOCKS * 4096; count as usize];
            for &(file, block) in &places {
                let name = format!("/f{file}");
                if truncates {
                    bytes[file as usize] -= 1;
                    client.truncate(name.as_bytes(), bytes[file as usize]).await.unwrap();
                } else {
                    let range = FileRange { offset: block * 4096 + 1, bytes: 1 };
                    client.fallocate(name.as_bytes(), range, AllocateMode::PunchHole).await.unwrap();
                }
            }
            for &(file, block) in &places {
                let open = client.open(format!("/f{file}").as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
                let written = client.write(open, block * 4096, &[7; 4000]).await;
                written.unwrap_or_else(|error| panic!("truncates {truncates}, block {block} of file {file}: {error}"));
                client.close(open).await.unwrap();
            }
            assert_eq!(fs.check().await.unwrap(), Vec::<String>::new());
            for file in 1..count {
                client.unlink(format!("/f{file}").as_bytes()).await.unwrap();
            }
            fs.close().await.unwrap();
            drop((client, fs));
            assert_clean(&rt, &device).await;
        });
    }
}

/// Aim: the last block of a file, which takes fewer sectors than others, takes no more when it is moved, though the file has grown
/// past it. Method: one byte at the start of each block, each made durable alone; between them idle time.
#[test]
fn short_blocks_stay_short() {
    const BLOCKS: u64 = 8_000;
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 16 * MIB).await;
        let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        let file = client.create(b"/f").await.unwrap();
        for block in 0..BLOCKS {
            let written = client.write(file, block * 4096, &[1 + block as u8 % 100]).await;
            written.unwrap_or_else(|error| panic!("block {block}: {error}"));
            client.fsync(file).await.unwrap_or_else(|error| panic!("block {block}: {error}"));
            if block % 500 == 499 {
                lfs.idle(rt.now() + Nanos::from_secs(1)).await.unwrap();
            }
        }
        client.close(file).await.unwrap();
        let (live, counters) = {
            let log = &lfs.state.borrow().log;
            (log.segments.live_bytes, log.counters)
        };
        assert!(counters.log_cleaned_bytes > MIB / 2, "{} bytes were moved", counters.log_cleaned_bytes);
        assert!(live < BLOCKS * 512 * 5 / 4, "{live} bytes are alive");
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
        client.fs().drop_caches().await.unwrap();
        let read = client.read_file(b"/f").await.unwrap();
        for (block, bytes) in read.chunks(4096).enumerate() {
            assert!(bytes[0] == 1 + block as u8 % 100 && bytes[1..].iter().all(|&byte| byte == 0), "block {block}");
        }
        lfs.close().await.unwrap();
        drop((client, lfs));
        assert_clean(&rt, &device).await;
    });
}

/// Aim: a short block that is moved counts as it is stored until a user changes it, so that a pass of the cleaner makes no full
/// volume. Method: files that end in a short block, until none fits; what is in the fullest segments is moved, and waits; then as much
/// is written as there was room for. Each moved block that a user changes counts as a whole one again.
#[test]
fn short_blocks_count_as_short_while_they_move() {
    const BYTES: usize = 4196;
    const REMOVED: u64 = 24;
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 16 * MIB).await;
        let never = Nanos::from_secs(1 << 30);
        let options = Options { checkpoint_interval: never, write_back_interval: never, ..Options::default() };
        let lfs = open(rt.clone(), device.clone(), options).await.unwrap();
        let client = Client::new(lfs.clone());
        let mut count = 0;
        // What has been written takes less than what waits to be.
        loop {
            let before = count;
            while client.write_file(format!("/f{count}").as_bytes(), &[count as u8; BYTES]).await.is_ok() {
                count += 1;
            }
            client.unlink(format!("/f{count}").as_bytes()).await.unwrap();
            client.sync().await.unwrap();
            if count == before {
                break;
            }
        }
        for file in 0..REMOVED {
            client.unlink(format!("/f{file}").as_bytes()).await.unwrap();
        }
        client.sync().await.unwrap();
        lfs.checkpoint(false).await.unwrap();
        let used = || {
            let state = lfs.state.borrow();
            Segmented::used_bytes(&state) - (state.dirty_inodes.len() * format::Inode::BYTES) as u64
        };
        let before = used();
        for _ in 0..2 {
            // The policy gets to know segments that the log has left, and those that a checkpoint made worth cleaning again.
            lfs.state.borrow_mut().choose_victim(true);
            let victim = {
                let state = lfs.state.borrow();
                let ends = [state.log.end.segment, state.log.end.next_segment];
                let all = state.log.segments.iter().filter(|(number, _)| !ends.contains(number));
                let not_moved = all.filter(|(number, _)| !state.log.segments.cleaned.contains(number));
                not_moved.max_by_key(|(_, segment)| segment.live_bytes).map(|(number, _)| number).unwrap()
            };
            lfs.state.borrow_mut().log.segments.cleaned(victim);
            lfs.move_segment(victim, 0).await.unwrap();
        }
        let moved: Vec<BlockId> = {
            let state = lfs.state.borrow();
            let is_of_user = |id: &BlockId| id.key.is_data() && !is_internal(id.ino);
            state.blocks.dirty_ids().filter(is_of_user).collect()
        };
        assert!(moved.len() > 100, "{} blocks wait", moved.len());
        assert_eq!(used(), before, "what is moved takes no more than it did");
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
        // The last block of one of the moved files, changed in place.
        let short = moved.iter().find(|id| id.key.0 == 1).unwrap();
        let names = client.read_dir(b"/").await.unwrap();
        let name = names.into_iter().find(|entry| entry.ino == short.ino).unwrap().name;
        let path = [b"/", &name[..]].concat();
        let sectors = client.stat(&path).await.unwrap().sectors;
        assert_eq!(sectors, 9, "a block and a sector");
        let file = client.open(&path, OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 4096, b"x").await.unwrap();
        client.close(file).await.unwrap();
        assert_eq!((used(), client.stat(&path).await.unwrap().sectors), (before + 4096 - 512, 16));
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
        for file in 0..REMOVED / 2 {
            let written = client.write_file(format!("/f{file}").as_bytes(), &[file as u8; BYTES]).await;
            written.unwrap_or_else(|error| panic!("file {file}: {error}"));
        }
        client.unlink(&path).await.unwrap();
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
        client.sync().await.unwrap();
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
        lfs.close().await.unwrap();
        drop((client, lfs));
        assert_clean(&rt, &device).await;
    });
}

/// Aim: a free inode number is found in one pass over the map, however little of it is in memory; and where none is free there is
/// no space. Method: a map larger than the cache, searched from its start; and a volume with all its numbers in use.
#[test]
fn free_inode_numbers_behind_many() {
    const FILES: u64 = 40_000;
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 256 * MIB).await;
        let options = Options { cache_bytes: 256 * KIB, ..Options::default() };
        let lfs = open(rt.clone(), device, options).await.unwrap();
        let client = Client::new(lfs.clone());
        for file in 0..FILES {
            client.write_file(format!("/f{file}").as_bytes(), b"").await.unwrap();
        }
        lfs.checkpoint(false).await.unwrap();
        lfs.drop_caches().await.unwrap();
        let before = {
            let mut state = lfs.state.borrow_mut();
            state.ino_cursor = 16;
            state.block_reads
        };
        client.write_file(b"/one", b"1").await.unwrap();
        let reads = lfs.state.borrow().block_reads - before;
        assert!(reads < 2 * FILES / format::IMAP_ENTRIES_PER_BLOCK, "{reads} blocks were read");
        lfs.close().await.unwrap();
    });
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 9 * MIB).await;
        session(&rt, &device, async |client| {
            let free = client.fs().statfs().await.unwrap().inodes_free;
            for round in 0..3 {
                for file in 0.. {
                    match client.write_file(format!("/f{file}").as_bytes(), b"").await {
                        Ok(()) => {}
                        Err(FsError::NoSpace) => break,
                        Err(error) => panic!("round {round}, file {file}: {error}"),
                    }
                }
                let names = client.read_dir(b"/").await.unwrap().len() as u64 - 2;
                assert!(free - names <= 1, "round {round}: {names} files, and {free} numbers were free");
                client.unlink(format!("/f{}", 700 * round).as_bytes()).await.unwrap();
            }
        })
        .await;
    });
}

/// Aim: a pass leaves room for its checkpoints (C3) where as many indirect blocks become dirty as blocks are moved, or three times
/// as many. Method: a full volume of sparse files with one block each, below a tree of one or of three levels, overwritten at
/// random; an assertion in the cleaner looks after each victim.
#[test]
fn a_full_volume_of_sparse_files_can_be_overwritten() {
    const PER_BLOCK: u64 = format::POINTERS_PER_BLOCK as u64;
    const FIRST: u64 = format::DIRECT_POINTERS as u64;
    const POINTS: &[&str] = &["lfs: a pass ends in the middle of a victim"];
    crate::rt::covered();
    let trees = [(1, FIRST), (3, FIRST + PER_BLOCK + PER_BLOCK * PER_BLOCK)];
    let volumes = [(34 * MIB, 512 * KIB), (9 * MIB, 128 * KIB)];
    let cases = trees.iter().flat_map(|tree| volumes.iter().map(move |volume| (tree, volume)));
    for (seed, (&(levels, block), &(bytes, segment_bytes))) in (1..).zip(cases) {
        simulate(seed, async |rt| {
            let device: Device = Rc::new(Memory::new(bytes));
            let made = MkfsOptions { segment_bytes: Some(segment_bytes), ..MkfsOptions::new([1, 2, 3, 4]) };
            mkfs(&rt, &device, &made).await.unwrap();
            let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
            let client = Client::new(lfs.clone());
            let write = async |number: u64, content: u8, sync: bool| {
                let file = client.open_or_create(format!("/f{number}").as_bytes()).await?;
                let mut done = client.write(file, block * 4096, &[content; 4096]).await.map(|_| ());
                if sync && done.is_ok() {
                    done = client.fsync(file).await;
                }
                client.close(file).await?;
                done
            };
            let mut files = 0;
            while write(files, 0, false).await.is_ok() {
                files += 1;
            }
            client.unlink(b"/f0").await.unwrap();
            let mut rng = crate::rng::Rng::new(seed);
            for round in 0..soak().times(2_000) {
                let written = write(rng.between(1, files - 1), round as u8, round % 20 == 0).await;
                written.unwrap_or_else(|error| panic!("{levels} levels, {files} files, overwrite {round}: {error}"));
            }
            assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
            lfs.close().await.unwrap();
            drop((client, lfs));
            assert_clean(&rt, &device).await;
        });
    }
    let covered = crate::rt::covered();
    let missed = POINTS.iter().find(|point| !covered.contains_key(*point));
    assert!(missed.is_none() || soak().is_shorter(), "nothing came to {missed:?}");
}

/// Aim: a large volume that is full can be overwritten, although a checkpoint of all its indirect blocks takes several segments;
/// and cleaning continues without one. With too few clean segments beside those, each pass makes more dirty than it gains, and
/// the checkpoints take the rest. Method: one file of as much as `df` promises, overwritten at random.
#[test]
fn a_large_full_volume_can_be_overwritten() {
    simulate(1, async |rt| {
        let device: Device = Rc::new(Memory::new(1024 * MIB));
        mkfs(&rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
        let lfs = open(rt.clone(), device, Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        let file = client.create(b"/one").await.unwrap();
        let (mut end, zeroes) = (0, vec![0; MIB as usize]);
        for length in [MIB, 64 * KIB, 4 * KIB] {
            while client.write(file, end, &zeroes[..length as usize]).await.is_ok() {
                end += length;
            }
        }
        let space = client.fs().statfs().await.unwrap();
        assert!(space.blocks_available < 32, "{} blocks are available", space.blocks_available);
        client.sync().await.unwrap();

        let (mut rng, before) = (crate::rng::Rng::new(1), lfs.state.borrow().log.counters);
        for round in 0..soak().times(40_000) {
            let written = client.write(file, rng.below(end / 4096) * 4096, &zeroes[..4096]).await;
            written.unwrap_or_else(|error| panic!("overwrite {round}: {error}"));
            if round % 256 == 0 {
                client.fsync(file).await.unwrap();
            }
        }
        let after = lfs.state.borrow().log.counters;
        let of = |get: fn(&Counters) -> u64| (get(&after) - get(&before)) as f64;
        let data = of(|counters| counters.log_data_bytes);
        let (log, metadata) =
            (of(|counters| counters.log_bytes) / data, of(|counters| counters.log_metadata_bytes) / data);
        println!("{log:.2} bytes of log for each byte, {metadata:.2} of them metadata");
        assert!(metadata < 0.25, "{metadata:.2} bytes of metadata for each byte");
        client.close(file).await.unwrap();
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
        lfs.close().await.unwrap();
    });
}

/// Aim: at each moment a power cut leaves room for the checkpoint of the next mount (S3), although a mount does not know of
/// the segments that became clean early. Method: volumes filled completely with files that have an indirect block each,
/// overwritten at random without a timer; after each fsync the books are recounted, with a recovery from either slot.
#[test]
fn a_full_volume_leaves_room_for_a_mount() {
    let mut early = 0;
    for seed in 0..4u64 {
        early += simulate(seed, async |rt| {
            let (_, device) = fresh(&rt, 9 * MIB + seed % 2 * 9 * MIB).await;
            let never = Nanos::from_secs(1 << 30);
            let options = Options {
                checkpoint_interval: never,
                write_back_interval: never,
                indirect_in_log: seed == 3,
                ..Options::default()
            };
            let lfs = open(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(lfs.clone());
            let count = fill(&client, 32_768 + seed as usize * 5_000).await;
            client.unlink(b"/f0").await.unwrap();
            let mut rng = crate::rng::Rng::new(seed);
            for round in 0..soak().times(80) {
                for _ in 0..rng.between(1, 20) {
                    let name = format!("/f{}", 1 + rng.below(count as u64 - 1));
                    let open = client.open(name.as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
                    client.write(open, rng.below(8) * 4096, &[round as u8; 4096]).await.unwrap();
                    if rng.below(4) == 0 {
                        client.fsync(open).await.unwrap();
                    }
                    client.close(open).await.unwrap();
                }
                client.sync().await.unwrap();
                assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new(), "seed {seed}, round {round}");
            }
            lfs.state.borrow().log.counters.cleaner_segments_early
        });
    }
    assert!(early > 50 || soak().is_shorter(), "{early} segments became clean early");
}

/// Aim: of many changes that wait for room at once, none waits for a pass of each other one, and their number alone makes no full
/// volume. Method: more of them than there may be passes without a gain for users, on a volume with much to gain.
#[test]
fn those_who_wait_together_share_a_pass() {
    const WAITING: usize = 300;
    simulate(1, async |rt| {
        let device: Device = Rc::new(Memory::new(64 * MIB));
        mkfs(&rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
        let lfs = open(rt.clone(), device, Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        let file = client.create(b"/f").await.unwrap();
        for (step, blocks) in [(1, 6000), (2, 3000)] {
            for block in 0..blocks {
                client.write(file, block * step * 4096, &[step as u8; 4096]).await.unwrap();
            }
            client.sync().await.unwrap();
        }
        let passes = || lfs.state.borrow().log.counters.cleaner_passes;
        let before = passes();
        let waited = futures_util::future::join_all((0..WAITING).map(|_| lfs.wait_for_clean())).await;
        assert_eq!(waited.iter().filter(|waited| waited.is_err()).count(), 0, "there was much to gain");
        let passes = passes() - before;
        assert!((1..=3).contains(&passes), "{passes} passes for {WAITING} that waited");
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
        client.close(file).await.unwrap();
        lfs.close().await.unwrap();
    });
}

/// Aim: a write that is larger than several segments finds room on a full volume, also when most clean segments became so
/// early. Method: small overwrites, and now and then a large one, of files that have their space.
#[test]
fn a_full_volume_takes_large_overwrites() {
    for seed in 0..3u64 {
        simulate(seed, async |rt| {
            let (_, device) = fresh(&rt, 9 * MIB).await;
            let never = Nanos::from_secs(1 << 30);
            let options = Options { checkpoint_interval: never, write_back_interval: never, ..Options::default() };
            let lfs = open(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(lfs.clone());
            client.write_file(b"/large", &vec![1; MIB as usize]).await.unwrap();
            let count = fill(&client, 40_000).await;
            client.unlink(b"/f0").await.unwrap();
            let large = client.open(b"/large", OpenFlags::READ_WRITE).await.unwrap();
            let mut rng = crate::rng::Rng::new(seed);
            for round in 0..60u64 {
                for _ in 0..rng.below(60) {
                    let name = format!("/f{}", 1 + rng.below(count - 1));
                    let open = client.open(name.as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
                    client.write(open, rng.below(9) * 4096, &[round as u8; 4096]).await.unwrap();
                    client.close(open).await.unwrap();
                    if rng.below(20) == 0 {
                        client.sync().await.unwrap();
                    }
                }
                let written = client.write(large, 0, &vec![round as u8; MIB as usize]).await;
                written.unwrap_or_else(|error| panic!("seed {seed}, round {round}: {error}"));
                assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new(), "seed {seed}, round {round}");
            }
            let counters = lfs.state.borrow().log.counters;
            println!("{counters:?}");
        });
    }
}

#[test]
fn attributes_can_be_set_again() {
    space::attributes_can_be_set_again(&Small::default());
}

#[test]
fn a_full_volume_lets_go() {
    space::a_full_volume_lets_go(&Small::default());
}

#[test]
fn errors_of_unknown_effect_stop_all_changes() {
    space::errors_of_unknown_effect_stop_all_changes(&Small::default());
}

/// Cleaned segments go back to the storage below, and come back from it.
#[test]
fn freed_space_is_given_back() {
    space::freed_space_is_given_back(&Small::default(), 128 * MIB, 100 * MIB, 20 * MIB);
}

#[test]
fn what_df_promises_can_be_allocated() {
    space::what_df_promises_can_be_allocated(&Small::default());
}

#[test]
fn a_full_volume_has_nothing_available() {
    space::a_full_volume_has_nothing_available(&Small::default());
}

/// Aim: attributes in memory have a limit. Method: more of them than that, written and then read, and moved by the cleaner.
#[test]
fn attributes_in_memory_have_a_limit() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 64 * MIB).await;
        let options = Options { cache_bytes: 16 * MIB, ..Options::default() };
        let lfs = open(rt.clone(), device, options).await.unwrap();
        let client = Client::new(lfs.clone());
        attributes_have_a_limit(&lfs, 4 * MIB).await;
        for segment in 0..100 {
            lfs.move_segment(segment, 0).await.unwrap();
        }
        client.sync().await.unwrap();
        let held = attribute_bytes(&lfs);
        assert!(held <= 4 * MIB, "{held} bytes when the cleaner has moved them");
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
        // What is not accepted leaves no more.
        lfs.state.borrow_mut().stopped = Some("for this test".to_string());
        for segment in 0..100 {
            let _ = lfs.move_segment(segment, 0).await;
        }
        let held = attribute_bytes(&lfs);
        assert!(held <= 4 * MIB, "{held} bytes when the cleaner could not move them");
    });
}

/// When the storage below has no room for more segments, writing ends with `NoSpace`, deleting and syncing still work,
/// and existing data stays readable. When there is room below again, writing continues.
#[test]
fn no_room_below() {
    simulate(1, async |rt| {
        let (_, memory) = fresh(&rt, 64 * MIB).await;
        let fault = FaultDevice::new(&rt, memory.clone(), 1);
        let device: Device = fault.clone();
        // This device would lose discarded storage for good.
        let options = Options { discard: false, ..Options::default() };
        let lfs = mount(rt.clone(), device.clone(), options).await.unwrap();
        let client = Client::new(lfs.clone());
        fault.add(Rule::new(Kinds::PROVISION, When::From(100), Effect::NoSpace));
        let count = fill(&client, 100 * KIB as usize).await;
        assert!((60..400).contains(&count), "{count} files");
        client.sync().await.unwrap();
        for file in 0..count / 2 {
            client.unlink(format!("/f{file}").as_bytes()).await.unwrap();
        }
        client.sync().await.unwrap();
        // The storage of the deleted files is still allocated below, so as much can be written again.
        for file in 0..count / 4 {
            client.write_file(format!("/g{file}").as_bytes(), &vec![file as u8; 100 * KIB as usize]).await.unwrap();
        }
        client.sync().await.unwrap();
        fault.clear();
        let more = fill(&client, 100 * KIB as usize).await;
        assert!(more > 0);
        lfs.close().await.unwrap();
        drop((client, lfs));
        assert_clean(&rt, &memory).await;
        session(&rt, &memory, async |client| {
            for file in 0..count / 4 {
                let read = client.read_file(format!("/g{file}").as_bytes()).await.unwrap();
                assert!(read == vec![file as u8; 100 * KIB as usize]);
            }
        })
        .await;
    });
}

#[test]
fn a_close_without_room_below_can_be_repeated() {
    shared::a_close_without_room_below_can_be_repeated(&Small::default(), async |rt, device| {
        open(rt, device, Options::default()).await
    });
}

/// Aim: a removed file that could not be freed for lack of room is freed later, and not only by the next mount. Method: what frees it reports that at
/// its last close.
#[test]
fn what_had_no_room_is_freed_later() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 32 * MIB).await;
        let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        client.sync().await.unwrap();
        let free = lfs.statfs().await.unwrap().blocks_free;
        client.write_file(b"/removed", &vec![7; 4 * MIB as usize]).await.unwrap();
        let removed = client.open(b"/removed", OpenFlags::READ).await.unwrap();
        let ino = client.resolve(b"/removed").await.unwrap();
        client.unlink(b"/removed").await.unwrap();
        client.sync().await.unwrap();
        let is_orphan = || lfs.state.borrow().log.orphans.list().contains(&ino);
        lfs.later_if_full(ino, Err(FsError::NoSpace)).unwrap();
        rt.sleep(Nanos::from_secs(60)).await;
        assert!(is_orphan(), "it is still in use");
        assert!(client.read(removed, 0, 100).await.unwrap() == [7; 100]);
        lfs.state.borrow_mut().users.remove(&ino);
        lfs.later_if_full(ino, Err(FsError::NoSpace)).unwrap();
        rt.sleep(Nanos::from_secs(60)).await;
        assert!(!is_orphan());
        client.sync().await.unwrap();
        let again = lfs.statfs().await.unwrap().blocks_free;
        assert!(again.abs_diff(free) < 20, "{free} blocks were free, and {again} are");
        lfs.close().await.unwrap();
        drop((client, lfs));
        assert_clean(&rt, &device).await;
    });
}

/// A task that comes late to free what was cut off a file frees nothing that was allocated since. Method: a truncation, whose blocks
/// another task frees first; space past the end is allocated before the first task goes on.
#[test]
fn a_late_reclaim_frees_nothing_new() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 16 * MIB).await;
        let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/f", &[1; 100_000]).await.unwrap();
        let ino = client.stat(b"/f").await.unwrap().ino;
        let shorter = SetAttr { size: Some(1000), ..SetAttr::default() };
        let changed = lfs.run(|state| crate::fs::logfs::file::setattr(state, ino, &shorter)).await.unwrap();
        assert!(changed.must_reclaim);
        lfs.reclaim(ino).await.unwrap();
        let range = FileRange { offset: 50_000, bytes: 200_000 };
        client.fallocate(b"/f", range, AllocateMode::Allocate { keep_size: true }).await.unwrap();
        let allocated = client.stat(b"/f").await.unwrap().sectors;
        lfs.free_left(ino).await.unwrap();
        assert_eq!(client.stat(b"/f").await.unwrap().sectors, allocated);
        lfs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}
