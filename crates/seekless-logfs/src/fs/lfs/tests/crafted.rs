//! Aim: numbers and pointers that were put on a volume on purpose, with right checksums, cost no more time and
//! memory than the volume is large. Method: volumes made here and changed, with limits on events and memory.

use super::format::*;
use super::*;
use crate::device::WriteFlags;
use crate::rt::Limits;
use crate::testing::subject;
use crate::units::{SECTOR_BYTES, Sector};

const BYTES: u64 = 16 * MIB;

/// What everything done with one image may take, the longest loop included.
const LIMITS: Limits = Limits { events: 400_000, until: Nanos::from_secs(1_000_000) };

/// Bytes in memory at a time: some of the volume's size.
const MEMORY_MAX: u64 = 4 * BYTES;

/// Checks, mounts and reads the image; each ends within the limits. Returns what each said.
fn bounded(image: &Image) -> Vec<String> {
    let mut said = Vec::new();
    for what in ["fsck", "read-only", "for writing"] {
        let mut ended = Err(String::new());
        let memory = allocation_counter::measure(|| {
            ended = subject::simulate(1, LIMITS, async |rt| {
                let device: Device = Rc::new(Memory::from_image(BYTES, image.clone()));
                // Each request takes time, so that a loop of them is one of events.
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

/// A volume that was not closed, with the record of a hole in its last transaction, and that partial segment's place.
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
        let last = cleaner::partials_in(&layout, end.segment, &bytes).pop().unwrap();
        assert!(last.items.iter().any(|item| matches!(item, Item::Unmapped { count: 5, .. })), "{:?}", last.items);
        let from = (u64::from(last.summary.offset) * SECTOR_BYTES) as usize;
        let partial = bytes[from..from + last.summary.sectors as usize * SECTOR_BYTES as usize].to_vec();
        (image, last.start, partial)
    })
}

/// The record of the hole, with these numbers instead.
fn with_record(kind: u8, first: u64, count: u32) -> Image {
    let (mut image, at, mut partial) = with_a_hole();
    let summary = Summary::decode(&partial).unwrap();
    for index in 0..summary.entry_count as usize {
        let place = Summary::BYTES + index * SummaryEntry::BYTES;
        let entry = SummaryEntry::decode(&partial[place..]).unwrap();
        if matches!(Item::from_entry(&entry), Some(Item::Unmapped { .. })) {
            SummaryEntry { kind, count, detail: first, ..entry }.encode(&mut partial[place..]);
        }
    }
    seal_partial(&mut partial);
    image.write(at, &partial);
    image
}

/// A hole of four thousand million blocks is nothing but what there was; as much cannot be set aside.
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
            (state.inodes[&ino].inode, state.inodes[&ino].slot)
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
