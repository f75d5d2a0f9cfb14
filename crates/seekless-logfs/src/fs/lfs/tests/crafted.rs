//! Aim: crafted numbers and pointers with right checksums cost no more time and memory than the volume is large.
//! Method: volumes created and changed here, with limits on events and memory.

use super::format::*;
use super::*;
use crate::device::WriteFlags;
use crate::rt::Limits;
use crate::testing::subject;
use crate::units::{SECTOR_BYTES, Sector};

const BYTES: u64 = 16 * MIB;

/// Limits of everything done with one image, the longest loop included.
const LIMITS: Limits = Limits { events: 400_000, until: Nanos::from_secs(1_000_000) };

/// Most bytes of memory at one time: a small multiple of the volume's size.
const MEMORY_MAX: u64 = 4 * BYTES;

/// Checks, mounts and reads the image; each ends within the limits. Returns the message of each.
fn bounded(image: &Image) -> Vec<String> {
    let mut said = Vec::new();
    for what in ["fsck", "read-only", "for writing"] {
        let mut ended = Err(String::new());
        let memory = allocation_counter::measure(|| {
            ended = subject::simulate(1, LIMITS, async |rt| {
                let device: Device = Rc::new(Memory::from_image(BYTES, image.clone()));
                // Each request takes time, so that an endless loop of them runs into the limit.
                let slow = crate::device::fault::FaultDevice::new(&rt, device, 1);
                let delay = crate::device::fault::Effect::Delay(Nanos(1)..=Nanos(1));
                let all = crate::device::fault::Kinds::all();
                slow.add(crate::device::fault::Rule::new(all, crate::device::fault::When::Always, delay));
                if what == "fsck" {
                    let found = fsck(rt.clone(), slow, FsckOptions { data: true, ..FsckOptions::default() }).await;
                    return found.map_or_else(|error| error.to_string(), |found| found.errors.join("\n"));
                }
                let options = Options { read_only: what == "read-only", ..Options::default() };
                match mount(rt.clone(), slow, options).await {
                    Err(error) => error.to_string(),
                    Ok(fs) => {
                        let client = Client::new(fs.clone());
                        let _ = client.read_dir(b"/").await;
                        let _ = client.unlink(b"/f").await;
                        let _ = fs.syncfs().await;
                        let _ = fs.close().await;
                        fs.warnings().join("\n")
                    }
                }
            });
        });
        let text = ended.unwrap_or_else(|why| panic!("{what}: {why}"));
        assert!(memory.bytes_max <= MEMORY_MAX, "{what}: {} bytes of memory: {text}", memory.bytes_max);
        said.push(text);
    }
    said
}

/// A volume that was not closed, with the record of a hole in its last transaction, and the address of that partial
/// segment.
fn with_a_hole() -> (Image, Sector, Vec<u8>) {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        let options = Options { checkpoint_interval: Nanos::from_secs(3600), ..Options::default() };
        let lfs = open(rt.clone(), device, options).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/f", &vec![b'x'; 40 * BLOCK_BYTES]).await.unwrap();
        client.fsync_path(b"/f").await.unwrap();
        client.fsync_path(b"/").await.unwrap();
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        let hole = FileRange { offset: 10 * BLOCK_BYTES as u64, bytes: 5 * BLOCK_BYTES as u64 };
        client.fallocate(b"/f", hole, AllocateMode::PunchHole).await.unwrap();
        client.fsync(file).await.unwrap();
        let (layout, end) = (lfs.state.borrow().log.layout, lfs.state.borrow().log.end);
        let image = memory.image();
        let mut bytes = vec![0; layout.segment_bytes() as usize];
        image.read(layout.segment_start(end.segment), &mut bytes);
        let last = partials::partials_in(&layout, end.segment, &bytes).pop().unwrap();
        assert!(last.items.iter().any(|item| matches!(item, Item::Unmapped { count: 5, .. })), "{:?}", last.items);
        let from = (u64::from(last.summary.offset) * SECTOR_BYTES) as usize;
        let partial = bytes[from..from + last.summary.sectors as usize * SECTOR_BYTES as usize].to_vec();
        (image, last.start, partial)
    })
}

/// The record of the hole, with these numbers instead.
fn with_record(kind: u8, first: u64, count: u32) -> Image {
    with_entries(|item, entry| match item {
        Item::Unmapped { .. } => SummaryEntry { kind, count, detail: first, ..entry },
        _ => entry,
    })
}

/// The same image with the record of the hole, and with what `change` makes of each entry of its partial segment.
fn with_entries(change: impl Fn(Item, SummaryEntry) -> SummaryEntry) -> Image {
    let (mut image, at, mut partial) = with_a_hole();
    let summary = Summary::decode(&partial).unwrap();
    for index in 0..summary.entry_count as usize {
        let place = Summary::BYTES + index * SummaryEntry::BYTES;
        let entry = SummaryEntry::decode(&partial[place..]).unwrap();
        change(Item::from_entry(&entry).unwrap(), entry).encode(&mut partial[place..]);
    }
    seal_partial(&mut partial);
    image.write(at, &partial);
    image
}

/// A record of an inode that no file can have is refused, whatever it says.
#[test]
fn inodes_that_cannot_be() {
    const KINDS: [u8; 5] = [16, 17, 18, 19, 20];
    for kind in KINDS {
        for subject in [0, 2, 3, 4, 1 << 40, u64::MAX] {
            let said = bounded(&with_entries(|item, entry| match item {
                Item::Unmapped { .. } => {
                    SummaryEntry { kind, subject, count: u32::from(kind >= 19), detail: 0, ..entry }
                }
                _ => entry,
            }));
            let is_refused = |said: &String| said.contains("an inode that no file can have");
            assert!(said.iter().all(is_refused), "kind {kind} of {subject}: {said:?}");
        }
    }
}

/// An indirect block in the log that is shorter than a block is refused. Method: two blocks of data become one, and a block below
/// it.
#[test]
fn a_part_of_an_indirect_block() {
    const BLOCK: u8 = 1;
    let file = |place: usize| layout::BlockKey::node(1, 1, 0).0 * u64::from(place == 0) + 60 * u64::from(place > 0);
    let (mut image, at, _) = with_a_hole();
    // A partial segment with two items of a sector each in place of the last one.
    let mut sectors = vec![0; 4096];
    image.read(at, &mut sectors);
    let old = Summary::decode(&sectors).unwrap();
    let count = u64::from(old.summary_sectors) + 2;
    let mut partial = vec![0; (count * SECTOR_BYTES) as usize];
    Summary { sectors: count as u32, entry_count: 2, ..old }.encode(&mut partial);
    let ino = simulate(1, async |rt| {
        let device: Device = Rc::new(Memory::from_image(BYTES, image.clone()));
        let fs = mount(rt.clone(), device, Options { read_only: true, ..Options::default() }).await.unwrap();
        Client::new(fs).stat(b"/f").await.unwrap().ino
    });
    for place in 0..2 {
        let none = SummaryEntry::decode(&[0; SummaryEntry::BYTES]).unwrap();
        let entry = SummaryEntry { kind: BLOCK, sectors: 1, subject: ino.0, detail: file(place), ..none };
        entry.encode(&mut partial[Summary::BYTES + place * SummaryEntry::BYTES..]);
    }
    seal_partial(&mut partial);
    image.write(at, &partial);
    let said = bounded(&image);
    assert!(said.iter().all(|said| said.contains("a part of an indirect block")), "{said:?}");
}

/// Aim: many records that reserve all of the volume cost no more than so many visits of its indirect blocks, and other tasks get
/// their turn. Method: one partial segment with only these; what replay changes is counted, and the turns of another task.
#[test]
fn reserved_again_and_again() {
    let (few, many) = (reserve_all(1), reserve_all(500));
    assert!(many >= few + 4, "{many} turns, and {few} with one record");
}

fn reserve_all(entries: usize) -> u64 {
    const RESERVED: u8 = 20;
    let (mut image, at, _) = with_a_hole();
    let superblock = {
        let mut block = vec![0; BLOCK_BYTES];
        image.read(SUPERBLOCK_SECTORS[0], &mut block);
        Superblock::from_block(&block).unwrap()
    };
    let layout = layout::Layout::new(superblock, BYTES / SECTOR_BYTES).unwrap();
    let mut sectors = vec![0; 4096];
    image.read(at, &mut sectors);
    let old = Summary::decode(&sectors).unwrap();
    let count = (Summary::BYTES + entries * SummaryEntry::BYTES).div_ceil(SECTOR_BYTES as usize) as u32;
    let mut partial = vec![0; count as usize * SECTOR_BYTES as usize];
    Summary { sectors: count, summary_sectors: count, entry_count: entries as u32, ..old }.encode(&mut partial);
    let blocks = layout.capacity_bytes() / BLOCK_BYTES as u64;
    let nodes = blocks.div_ceil(POINTERS_PER_BLOCK as u64) + 2;
    simulate(1, async |rt| {
        let device: Device = Rc::new(Memory::from_image(BYTES, image.clone()));
        let fs = mount(rt.clone(), device, Options { read_only: true, ..Options::default() }).await.unwrap();
        let ino = Client::new(fs).stat(b"/f").await.unwrap().ino;
        for place in 0..entries {
            let none = SummaryEntry::decode(&[0; SummaryEntry::BYTES]).unwrap();
            let entry = SummaryEntry { kind: RESERVED, subject: ino.0, detail: 7, count: blocks as u32, ..none };
            entry.encode(&mut partial[Summary::BYTES + place * SummaryEntry::BYTES..]);
        }
        seal_partial(&mut partial);
        image.write(at, &partial);
        let device: Device = Rc::new(Memory::from_image(BYTES, image.clone()));
        let turns = Rc::new(std::cell::Cell::new(0));
        let (counted, other) = (turns.clone(), rt.clone());
        let counting = async move {
            loop {
                counted.set(counted.get() + 1);
                other.yield_now().await;
            }
        };
        let opening = open(rt.clone(), device, Options { read_only: true, ..Options::default() });
        let counting = std::pin::pin!(counting);
        let futures_util::future::Either::Left((lfs, _)) = futures_util::future::select(opening, counting).await;
        let lfs = lfs.unwrap();
        assert!(lfs.state.borrow().blocks.dirty_count() >= nodes - 4, "they are replayed: {:?}", lfs.warnings());
        let changes = crate::fs::step::CountsChanges::changes(&*lfs.state.borrow());
        assert!(
            changes < 10 * (entries as u64 + 10) * nodes,
            "{changes} changes for {entries} records, {nodes} indirect blocks each"
        );
        turns.get()
    })
}

/// A hole of four thousand million blocks frees only the blocks that existed; as many blocks cannot be reserved.
#[test]
fn counts_of_records() {
    const UNMAPPED: u8 = 19;
    const RESERVED: u8 = 20;
    for (kind, first, count) in [
        (UNMAPPED, 0, u32::MAX),
        (UNMAPPED, layout::FILE_BLOCKS_MAX - u64::from(u32::MAX), u32::MAX),
        (RESERVED, 0, u32::MAX),
        (RESERVED, 1 << 30, (BYTES / BLOCK_BYTES as u64) as u32 - 200),
        (RESERVED, u64::MAX, u32::MAX),
    ] {
        let said = bounded(&with_record(kind, first, count));
        if kind == RESERVED && count == u32::MAX {
            assert!(
                said.iter().all(|said| said.contains("inode") && said.contains("blocks")),
                "{first}+{count}: {said:?}"
            );
        }
    }
}

/// Records of indirect blocks that no file can have are refused, whichever end of the run is wrong.
#[test]
fn indirect_blocks_that_cannot_be() {
    const UNMAPPED: u8 = 19;
    let last = |tree: usize, level: usize| (POINTERS_PER_BLOCK as u64).pow((tree - level) as u32) - 1;
    for (tree, level) in [(1, 1), (2, 1), (3, 2), (4, 4)] {
        let key = layout::BlockKey::node(tree, level, last(tree, level));
        assert!(key.is_valid());
        for (first, count) in [(key.0, 2), (key.0 + 1, 1), (key.0 + 1, 2), (key.0, u32::MAX)] {
            let said = bounded(&with_record(UNMAPPED, first, count));
            let is_refused = |said: &String| said.contains("a record of indirect blocks that cannot be");
            assert!(said.iter().all(is_refused), "{first:#x}+{count}: {said:?}");
        }
        let said = bounded(&with_record(UNMAPPED, key.0, 1));
        assert_eq!(said[2], "", "{key:?} can be");
    }
}

/// A record of holes in a file whose indirect blocks are all one block, on four levels: there are more paths through
/// them than the volume has blocks. Replay finds no pointer to clear in any of them, so only the number of blocks
/// visited shows that the pointers lead in circles.
#[test]
fn a_hole_in_a_tangle() {
    const UNMAPPED: u8 = 19;
    const TREES: usize = 4;
    let mut image = with_record(UNMAPPED, layout::FILE_BLOCKS_MAX - u64::from(u32::MAX), u32::MAX);
    let (_, at, _) = with_a_hole();
    let superblock = {
        let mut block = vec![0; BLOCK_BYTES];
        image.read(SUPERBLOCK_SECTORS[0], &mut block);
        Superblock::from_block(&block).unwrap()
    };
    let layout = layout::Layout::new(superblock, BYTES / SECTOR_BYTES).unwrap();
    // A segment that the log has not used.
    let unused = layout.segment_start(layout.segment_count() - 2);
    let mut block = vec![0; BLOCK_BYTES];
    let mut root = Pointer::Hole;
    for level in 0..TREES as u64 {
        (0..POINTERS_PER_BLOCK).for_each(|slot| set_pointer_in_block(&mut block, slot, root));
        root = Pointer::to(unused + level * BLOCK_SECTORS, &block);
        image.write(unused + level * BLOCK_SECTORS, &block);
    }
    let mut head = vec![0; SECTOR_BYTES as usize];
    image.read(at, &mut head);
    let summary = Summary::decode(&head).unwrap();
    let mut partial = vec![0; summary.sectors as usize * SECTOR_BYTES as usize];
    image.read(at, &mut partial);
    let mut place = summary.summary_sectors as usize * SECTOR_BYTES as usize;
    let mut changed = 0;
    for item in summary_items(&partial, &summary).unwrap() {
        if let Item::Inodes { count, .. } = item {
            for raw in partial[place..].chunks_exact_mut(Inode::BYTES).take(count as usize) {
                let mut inode = Inode::unseal(raw).unwrap();
                if inode.size == 40 * BLOCK_BYTES as u64 {
                    inode.set_pointer(POINTERS_IN_INODE - 1, root);
                    inode.size = layout::FILE_BYTES_MAX;
                    inode.seal_into(raw);
                    changed += 1;
                }
            }
        }
        place += (item.sectors() * SECTOR_BYTES) as usize;
    }
    assert_eq!(changed, 1);
    seal_partial(&mut partial);
    image.write(at, &partial);
    let said = bounded(&image);
    assert!(said.iter().all(|said| said.contains("form a cycle")), "{said:?}");
}

/// Aim: a summary is accepted only where all of its fields fit its segment and address. Method: an intact partial
/// segment, and each field with a wrong value under a right checksum.
#[test]
fn summaries_of_another_place() {
    let (_, _, partial) = with_a_hole();
    let good = Summary::decode(&partial).unwrap();
    let superblock = simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        find::find_volume(&device).await.unwrap().layout.superblock
    });
    // Also on a device with sectors of 4096 bytes, where more values are impossible.
    for align_sectors in [1, 8] {
        let layout = layout::Layout::new(Superblock { align_sectors, ..superblock }, BYTES / SECTOR_BYTES).unwrap();
        let sectors = good.sectors.next_multiple_of(align_sectors);
        let good = Summary { sectors, offset: 16, ..good };
        let is_found = |summary: Summary| {
            let mut segment = vec![0; layout.segment_bytes() as usize];
            let own = &mut segment[16 * SECTOR_BYTES as usize..];
            own[..partial.len()].copy_from_slice(&partial);
            summary.encode(own);
            seal_partial(&mut own[..(u64::from(summary.sectors.max(1)) * SECTOR_BYTES) as usize]);
            partials::partial_at(&layout, good.segment, 16, &segment).is_some()
        };
        assert!(is_found(good));
        let wrong = [
            Summary { magic: good.magic + 1, ..good },
            Summary { uuid: [9; 16], ..good },
            Summary { segment: good.segment + 1, ..good },
            Summary { offset: 8, ..good },
            Summary { next_segment: layout.segment_count(), ..good },
            Summary { next_segment: good.segment, ..good },
            Summary { sectors: 0, ..good },
            Summary { sectors: good.sectors + 1, ..good },
            Summary { entry_count: u32::MAX, ..good },
            Summary { summary_sectors: good.sectors + 1, ..good },
        ];
        for (number, summary) in wrong.into_iter().enumerate() {
            // One sector more is right when the alignment is one sector.
            let fits = number == 7 && align_sectors == 1;
            assert_eq!(is_found(summary), fits, "field {number}, sectors of {align_sectors}");
        }
    }
}

/// Aim: a mount that finds a checkpoint in the log continues from there only if the checkpoint records that address.
/// Method: a volume whose newest slot is lost, and the checkpoint in the log with one wrong number under right
/// checksums.
#[test]
fn a_checkpoint_that_does_not_know_where_it_is() {
    type Spoil = fn(&mut Checkpoint);
    let cases: [(&str, Spoil); 5] = [
        ("", |_| {}),
        ("segment", |checkpoint| checkpoint.log_segment += 7),
        ("offset", |checkpoint| checkpoint.log_offset += 8),
        ("number", |checkpoint| checkpoint.log_sequence += 1),
        ("next segment", |checkpoint| checkpoint.next_segment += 7),
    ];
    for (what, spoil) in cases {
        simulate(1, async |rt| {
            let (memory, device) = fresh(&rt, BYTES).await;
            let lfs = open(rt.clone(), device, Options::default()).await.unwrap();
            Client::new(lfs.clone()).write_file(b"/f", &[1; 50_000]).await.unwrap();
            lfs.checkpoint(false).await.unwrap();
            lfs.checkpoint(false).await.unwrap();
            let (layout, end) = (lfs.state.borrow().log.layout, lfs.state.borrow().log.end);
            let mut image = without_newest_slot(&memory.image()).unwrap();
            let start = layout.segment_start(end.segment);
            let mut bytes = vec![0; layout.segment_bytes() as usize];
            image.read(start, &mut bytes);
            let last = partials::partials_in(&layout, end.segment, &bytes).pop().unwrap();
            let from = ((last.start - start) * SECTOR_BYTES) as usize;
            let partial = &mut bytes[from..from + last.summary.sectors as usize * SECTOR_BYTES as usize];
            // The checkpoint is the last item of its transaction.
            let before = |item: &Item| !matches!(item, Item::Checkpoint { .. });
            let sectors: u64 = last.items.iter().take_while(|item| before(item)).map(|item| item.sectors()).sum();
            let at = ((u64::from(last.summary.summary_sectors) + sectors) * SECTOR_BYTES) as usize;
            let length = (CHECKPOINT_SECTORS_IN_LOG * SECTOR_BYTES) as usize;
            let mut checkpoint = Checkpoint::from_block(&partial[at..at + length]).unwrap();
            spoil(&mut checkpoint);
            partial[at..at + length].copy_from_slice(&checkpoint.to_block()[..length]);
            seal_partial(partial);
            image.write(start, &bytes);
            let device: Device = Rc::new(Memory::from_image(BYTES, image));
            match mount(rt.clone(), device, Options::default()).await {
                Ok(fs) if what.is_empty() => {
                    assert!(Client::new(fs).read_file(b"/f").await.unwrap() == [1; 50_000]);
                }
                Ok(_) => panic!("{what}: it is mounted"),
                Err(error) => assert!(error.to_string().contains("does not know where it is"), "{what}: {error}"),
            }
        });
    }
}

/// A file whose indirect blocks all lead to one child, on every level: 13 thousand million paths to one block.
fn with_a_tangle(orphan: bool) -> Image {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        for block in 0..5u8 {
            let file = client.open_or_create(b"/f").await.unwrap();
            client.write(file, u64::from(block) * BLOCK_BYTES as u64, &[block + 1; BLOCK_BYTES]).await.unwrap();
            client.close(file).await.unwrap();
        }
        client.sync().await.unwrap();
        let ino = client.stat(b"/f").await.unwrap().ino;
        lfs.close().await.unwrap();
        let (mut inode, slot) = {
            let state = lfs.state.borrow();
            state.inodes.get(&ino).map(|known| (known.inode, known.slot)).unwrap()
        };
        let places: Vec<Sector> = (0..5)
            .map(|slot| match inode.pointer(slot) {
                Some(Pointer::Mapped { at, .. }) => at,
                other => panic!("{other:?}"),
            })
            .collect();
        let mut child = Pointer::to(places[0], &[1; BLOCK_BYTES]);
        for &place in &places[1..] {
            let mut block = vec![0; BLOCK_BYTES];
            (0..POINTERS_PER_BLOCK).for_each(|slot| set_pointer_in_block(&mut block, slot, child));
            child = Pointer::to(place, &block);
            let data = crate::device::Data::from_slice(&block);
            device.write(place, data, WriteFlags::NONE).await.unwrap();
        }
        (0..POINTERS_IN_INODE).for_each(|slot| inode.set_pointer(slot, Pointer::Hole));
        inode.set_pointer(POINTERS_IN_INODE - 1, child);
        inode.size = layout::FILE_BYTES_MAX;
        if orphan {
            inode.links = 0;
        }
        let mut image = memory.image();
        let mut sector = [0; SECTOR_BYTES as usize];
        image.read(slot.sector(), &mut sector);
        inode.seal_into(&mut sector[slot.offset()..slot.offset() + Inode::BYTES]);
        image.write(slot.sector(), &sector);
        image
    })
}

#[test]
fn indirect_blocks_that_lead_to_one_place() {
    for orphan in [false, true] {
        let said = bounded(&with_a_tangle(orphan));
        assert!(said[0].contains("where something else is too"), "{said:?}");
    }
}
