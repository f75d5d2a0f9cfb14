//! Aim: what a transaction promises holds where something goes wrong: numbers are used once, what a failed transaction took is given
//! back, and a start believes what is sealed only where it can be. Method: images that are cut, changed or made on purpose.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{DeviceError, Geometry, Guarantees};
use crate::vlog::claim::Claim;
use crate::vlog::eager::AllocPurpose;
use crate::vlog::format::{ANCHOR_MAGIC, ANCHORS, Anchor, Key, NUMBER_MAX, PARKED, Piece, RawPointer};
use crate::vlog::layout::Layout;

const MADE: Key = Key { uuid: [7; 16], key: [9; 16] };

/// With blocks so small that the map has many pieces.
fn many_pieces() -> Plan {
    Plan { block_bytes: 512, reserve: 2000, ..plan() }
}

fn by_flush() -> Options {
    Options { commit: CommitUse::Flush, window: 64 * KIB, ..Options::default() }
}

/// All pieces that are intact, old ones too, with their cells.
fn pieces(image: &Image, layout: &Layout) -> Vec<(u64, Piece)> {
    let mut bytes = vec![0; layout.cell_bytes() as usize];
    let piece = |cell: u64| {
        image.read(layout.cell_sector(cell), &mut bytes);
        Piece::from_cell(&bytes, &MADE, cell).map(|piece| (cell, piece))
    };
    (0..layout.cells()).filter_map(piece).collect()
}

/// Aim: no two pieces have the same number, also after a transaction that a power cut ended (C4). Method: transactions of many
/// pieces, each cut at several places, a transaction after the next start, and a look at all cells.
#[test]
fn numbers_are_used_once() {
    const BYTES: u64 = MIB;
    run(1, async |rt: Rt| {
        let device =
            CrashDevice::new(&rt, Image::default(), CrashOptions { record: true, ..CrashOptions::volatile(BYTES) });
        let vld = Vld::create(&rt, device.clone(), &many_pieces(), by_flush()).await.expect("made");
        let layout = vld.layout().clone();
        assert!(layout.pieces > 8, "{} pieces", layout.pieces);
        let blocks = vld.geometry().bytes() / 512;
        let mut rng = Rng::new(1);
        let mut begun = 0;
        for number in 1..=6 {
            for _ in 0..40 {
                write(&vld, rng.below(blocks), 1, number).await;
            }
            begun = device.position();
            vld.flush().await.expect("it can be flushed");
        }
        let (log, mut cut_off) = (device.log(), 0);
        for position in log.positions().into_iter().filter(|&position| position >= begun) {
            let cut = log.cut(position);
            for choice in cut.choices(&Effort::SAMPLED, 1) {
                let memory = Rc::new(Memory::from_image(BYTES, cut.image(&choice)));
                let before = pieces(&memory.image(), &layout);
                let tail = before.iter().filter(|(_, piece)| piece.commits).map(|(_, piece)| piece.sequence).max();
                cut_off += u32::from(before.iter().any(|(_, piece)| Some(piece.sequence) > tail));
                let vld = Vld::open(&rt, memory.clone(), by_flush()).await.expect("it opens");
                for _ in 0..3 {
                    write(&vld, rng.below(blocks), 1, 9).await;
                }
                vld.flush().await.expect("it can be flushed");
                let mut seen: BTreeMap<u64, u64> = BTreeMap::new();
                for (cell, piece) in pieces(&memory.image(), &layout) {
                    if let Some(other) = seen.insert(piece.sequence, cell) {
                        panic!("cut {position}:{choice:?}: number {} is in cells {cell} and {other}", piece.sequence);
                    }
                }
            }
        }
        assert!(cut_off > 3, "{cut_off} transactions were cut off");
    });
}

/// Aim: a transaction that finds no space before its tail leaves everything as it was: a block that it had alone is free again.
/// Method: a block is written again while the first piece of a transaction is being written, for which there is no space; later
/// there is.
#[test]
fn a_transaction_without_space_is_taken_back() {
    run(1, async |rt: Rt| {
        let device = CrashDevice::new(&rt, Image::default(), CrashOptions::volatile(2 * MIB));
        let fault = FaultDevice::new(&rt, device, 1);
        let vld = Vld::create(&rt, fault.clone(), &many_pieces(), by_flush()).await.expect("made");
        let (one, other) = (5, 1000);
        let piece_of = |block: u32| vld.layout().piece_of(block).0;
        assert_ne!(piece_of(one as u32), piece_of(other as u32), "there is a piece before the tail");
        for number in [1, 2] {
            write(&vld, one, 1, number).await;
            write(&vld, other, 1, number).await;
            if number == 1 {
                vld.flush().await.expect("it can be flushed");
            }
        }
        let unused = |vld: &Rc<Vld>| vld.core.state.borrow().space.free_blocks();
        let free = unused(&vld);
        let delay = Nanos::from_millis(100);
        fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(delay..=delay)));
        let writing = rt.spawn({
            let vld = vld.clone();
            async move { write(&vld, one, 1, 3).await }
        });
        rt.sleep(Nanos::from_millis(50)).await;
        fault.add(Rule::new(Kinds::WRITE, When::Nth(1), Effect::NoSpace));
        let failed = vld.flush().await;
        assert!(matches!(failed, Err(DeviceError::NoSpace { .. })), "{failed:?}");
        writing.await;
        vld.check_invariants().expect("after the failure");
        assert_eq!(unused(&vld), free, "the block of the second write is free again");
        fault.clear();
        assert_eq!(number_of(&vld, one).await, 3);
        vld.flush().await.expect("it can be flushed");
        vld.check_invariants().expect("at the end");
        let again = Vld::open(&rt, fault.clone(), by_flush()).await.expect("it opens");
        assert_eq!((number_of(&again, one).await, unused(&again)), (3, unused(&vld)));
    });
}

/// Aim: a write of unknown effect stops all writing, also where another write of the same request finds no space: otherwise its place is
/// taken again, and it lands over other data later. Method: one request to several places, of which the first or the second write is
/// of unknown effect, and all others find no space; and the same for a flush with several pieces.
#[test]
fn an_error_counts_for_more_than_a_lack_of_space() {
    for (of_pieces, failing) in [(false, 1), (false, 2), (true, 1), (true, 2)] {
        run(1, async |rt: Rt| {
            let fault = FaultDevice::new(&rt, Rc::new(Memory::new(MIB)), 1);
            let vld = Vld::create(&rt, fault.clone(), &many_pieces(), by_flush()).await.expect("made");
            let blocks = vld.geometry().bytes() / 512;
            write(&vld, 0, blocks, 1).await;
            let mut rng = Rng::new(1);
            for number in 2..400 {
                write(&vld, rng.below(blocks), 1, number).await;
                if number % 10 == 0 {
                    vld.flush().await.expect("it can be flushed");
                }
            }
            for other in [1, 2].into_iter().filter(|nth| *nth != failing) {
                fault.add(Rule::new(Kinds::WRITE, When::Nth(other), Effect::NoSpace));
            }
            fault.add(Rule::new(Kinds::WRITE, When::Nth(failing), Effect::Error));
            fault.add(Rule::new(Kinds::WRITE, When::From(3), Effect::NoSpace));
            let failed = match of_pieces {
                false => {
                    let data: Vec<u8> = (0..64).flat_map(|block| stamp(block, 500, 512)).collect();
                    vld.write(Sector::ZERO, Data::from_slice(&data), WriteFlags::NONE).await
                }
                true => vld.flush().await,
            };
            let name = format!("pieces: {of_pieces}, write {failing} fails");
            assert!(fault.failed() >= 2, "{name}: there are several writes");
            assert!(matches!(failed, Err(DeviceError::Io { .. })), "{name}: {failed:?}");
            fault.clear();
            let next = vld.write(Sector::ZERO, Data::from_slice(&stamp(0, 501, 512)), WriteFlags::NONE).await;
            assert!(matches!(next, Err(DeviceError::Io { .. })), "{name}: {next:?}");
        });
    }
}

/// Aim: a flush makes durable what a request has written, also when idle work has moved it during an earlier flush that found no
/// space. Method: the block is moved as idle work does while the first piece of a transaction with its change is written.
#[test]
fn what_idle_work_moves_during_a_flush_without_space_is_flushed_later() {
    run(1, async |rt: Rt| {
        let memory = Rc::new(Memory::new(2 * MIB));
        let fault = FaultDevice::new(&rt, memory.clone(), 1);
        let vld = Vld::create(&rt, fault.clone(), &many_pieces(), by_flush()).await.expect("made");
        let (one, other) = (5, 1000);
        for number in [1, 2] {
            write(&vld, one, 1, number).await;
            write(&vld, other, 1, number).await;
            if number == 1 {
                vld.flush().await.expect("it can be flushed");
            }
        }
        assert!(vld.core.try_admit(Claim::Move { blocks: 1 }), "there is room");
        let copy = Data::from_slice(&stamp(one, 2, 512));
        let runs = vld.core.place(&copy, AllocPurpose::Data, None).await.expect("there is room");
        let time = Nanos::from_millis(100);
        fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(time..=time)));
        fault.add(Rule::new(Kinds::WRITE, When::Nth(1), Effect::NoSpace));
        let flush = rt.spawn({
            let vld = vld.clone();
            async move { vld.flush().await }
        });
        rt.sleep(Nanos::from_millis(50)).await;
        vld.core.state.borrow_mut().relocate(one as u32, runs[0].first);
        let flushed = flush.await;
        assert!(matches!(flushed, Err(DeviceError::NoSpace { .. })), "{flushed:?}");
        fault.clear();
        vld.check_invariants().expect("after the failure");
        vld.flush().await.expect("there is space again");
        let cut = Rc::new(Memory::from_image(2 * MIB, memory.image()));
        let again = Vld::open(&rt, cut, by_flush()).await.expect("it opens");
        assert_eq!((number_of(&again, one).await, number_of(&again, other).await), (2, 2));
    });
}

/// Aim: a piece counts only where pieces may be: not behind an anchor, in the part of its block that no checksum covers. Method: a
/// piece there that both anchors name as the tail, for a disk and for the map of a file system.
#[test]
fn a_piece_beside_an_anchor_is_refused() {
    run(1, async |rt: Rt| {
        for is_above in [false, true] {
            let memory = Rc::new(Memory::new(MIB));
            let device: Device = memory.clone();
            match is_above {
                true => Store::create(&device, &plan(), 500, b"owner").await.expect("made"),
                false => drop(Vld::create(&rt, device.clone(), &plan(), Options::default()).await.expect("made")),
            }
            let cell = ANCHORS[0] + 1;
            let piece =
                Piece { index: 0, sequence: 5, commits: true, live_pieces: 1, pointers: vec![], entries: vec![0; 98] };
            for (slot, at) in ANCHORS.into_iter().enumerate() {
                let mut block = Buf::dirty(4096);
                block.fill(0);
                let anchor = Anchor {
                    magic: ANCHOR_MAGIC,
                    crc: 0,
                    state: PARKED,
                    uuid: MADE.uuid,
                    generation: 2 + slot as u64,
                    tail_sequence: 5,
                    tail_cell: cell,
                    window_start: 0,
                    window_blocks: 0,
                };
                block.copy_from_slice(&anchor.to_block());
                if slot == 0 {
                    block[512..1024].copy_from_slice(&piece.to_cell(&MADE, cell, 512));
                }
                device.write(Sector(at), block.freeze(), WriteFlags::NONE).await.expect("the device works");
            }
            let opened = match is_above {
                true => Store::open(&rt, device, Options::default()).await.map(drop),
                false => Vld::open(&rt, device, Options::default()).await.map(drop),
            };
            let why = opened.expect_err("nothing may be there").to_string();
            assert!(why.contains("reserved"), "{why}");
        }
    });
}

/// A disk with some blocks, not put away, and the tail of its log.
async fn with_tail(rt: &Rt) -> (Rc<Memory>, Layout, u64, Piece) {
    let memory = Rc::new(Memory::new(MIB));
    let vld = Vld::create(rt, memory.clone(), &plan(), Options::default()).await.expect("made");
    for block in 0..10 {
        write(&vld, block, 1, block + 1).await;
    }
    vld.flush().await.expect("it can be flushed");
    let layout = vld.layout().clone();
    let tail = pieces(&memory.image(), &layout).into_iter().max_by_key(|(_, piece)| piece.sequence);
    let (cell, piece) = tail.expect("there is a tail");
    assert!(piece.commits);
    (memory, layout, cell, piece)
}

/// Aim: what a piece says under a right seal is trusted only where it can be. Method: the tail with one thing changed.
#[test]
fn a_map_that_cannot_be_is_refused() {
    run(1, async |rt: Rt| {
        type Spoil = fn(&mut Piece, u32);
        let cases: [(&str, Spoil); 7] = [
            ("", |_, _| {}),
            ("two uses", |piece, _| piece.entries[1] = piece.entries[0]),
            ("two uses", |piece, own| piece.entries[0] = own),
            ("where no data may be", |piece, _| piece.entries[0] = RESERVED),
            ("which cannot be", |piece, _| {
                piece.pointers.push(RawPointer { index: u32::MAX / 2, cell: 9, sequence: 1 });
            }),
            ("which cannot be", |piece, _| {
                piece.pointers.push(RawPointer { index: 0, cell: 9, sequence: piece.sequence });
            }),
            // What is written after it would not be found.
            ("which cannot be", |piece, _| piece.sequence = NUMBER_MAX - 1),
        ];
        // A block of an anchor.
        const RESERVED: u32 = 1;
        for (what, spoil) in cases {
            let (memory, layout, cell, mut piece) = with_tail(&rt).await;
            spoil(&mut piece, layout.block_of(cell));
            let bytes = piece.to_cell(&MADE, cell, layout.cell_bytes());
            memory.write(layout.cell_sector(cell), Data::from_slice(&bytes), WriteFlags::NONE).await.unwrap();
            match Vld::open(&rt, memory.clone(), Options::default()).await {
                Ok(vld) => {
                    assert_eq!(what, "", "it opens");
                    assert_eq!(vld.recovery().mapped_blocks, 10);
                }
                Err(error) => {
                    assert!(!what.is_empty() && error.to_string().contains(what), "{what}: {error}");
                }
            }
        }
    });
}

/// What is said about a disk without using it: whether it was put away, and that its device was cut short.
#[test]
fn a_disk_is_described() {
    run(1, async |rt: Rt| {
        let (memory, ..) = with_tail(&rt).await;
        let device: Device = memory.clone();
        let parked = async || probe(&device).await.expect("it can be read").expect("there is one").is_parked;
        assert!(!parked().await);
        let vld = Vld::open(&rt, memory.clone(), Options::default()).await.expect("it opens");
        write(&vld, 0, 1, 99).await;
        assert!(!parked().await);
        vld.release().await.expect("it can be put away");
        assert!(parked().await);
        let short: Device = Rc::new(Memory::from_image(MIB - 64 * KIB, memory.image()));
        match probe(&short).await {
            Err(error) => assert!(error.to_string().contains("it is of a larger device"), "{error}"),
            Ok(_) => panic!("it is not refused"),
        }
    });
}

/// The counter of pieces that nothing asked to write.
#[test]
fn pieces_that_are_rewritten_are_counted() {
    run(1, async |rt: Rt| {
        let memory = Rc::new(Memory::new(MIB));
        let vld = Vld::create(&rt, memory, &many_pieces(), by_flush()).await.expect("made");
        let counter = |name: &str| {
            let counters = vld.counters();
            counters.iter().find(|(counted, _)| *counted == name).map_or(u64::MAX, |&(_, value)| value)
        };
        write(&vld, 0, 1, 1).await;
        vld.flush().await.expect("it can be flushed");
        assert_eq!((counter("pieces_written"), counter("pieces_rewritten")), (1, 0));
        let blocks = vld.geometry().bytes() / 512;
        let mut rng = Rng::new(1);
        for number in 2..200 {
            write(&vld, rng.below(blocks), 1, number).await;
            vld.flush().await.expect("it can be flushed");
        }
        // Each transaction has one piece that was asked for.
        assert_eq!(counter("pieces_rewritten"), counter("pieces_written") - counter("transactions"));
        assert!(counter("pieces_rewritten") > 0);
    });
}

/// Aim: an append-only log whose ring is lost counts on from its checkpoints: what is written then is newer than they are. Method:
/// many changes, the ring as zeroes, a change, and a start.
#[test]
fn an_append_only_log_counts_on_from_its_checkpoints() {
    run(1, async |rt: Rt| {
        let memory = Rc::new(Memory::new(MIB));
        let plan = Plan { map_log: MapLog::Append, ..many_pieces() };
        let vld = Vld::create(&rt, memory.clone(), &plan, by_flush()).await.expect("made");
        let blocks = vld.geometry().bytes() / 512;
        let mut rng = Rng::new(1);
        for number in 1..2000 {
            write(&vld, rng.below(blocks), 1, number).await;
            vld.flush().await.expect("it can be flushed");
        }
        let layout = vld.layout().clone();
        drop(vld);
        let mut image = memory.image();
        let slots = 2 * u64::from(layout.pieces);
        let (first, cells) = (layout.superblock.region_start + slots, layout.superblock.region_cells - slots);
        image.zero(layout.cell_sector(first), cells * layout.cell_sectors);
        memory.set_image(image);
        let vld = Vld::open(&rt, memory.clone(), by_flush()).await.expect("it opens");
        for block in (0..blocks).step_by(50) {
            write(&vld, block, 1, 5000 + block).await;
        }
        vld.flush().await.expect("it can be flushed");
        drop(vld);
        let again = Vld::open(&rt, memory.clone(), by_flush()).await.expect("it opens");
        for block in (0..blocks).step_by(50) {
            assert_eq!(number_of(&again, block).await, 5000 + block);
        }
    });
}

/// No request is longer than the device takes, also where a start reads the region of an append-only log.
#[test]
fn a_device_that_takes_short_requests() {
    for map_log in [MapLog::Tree, MapLog::Append] {
        run(1, async |rt: Rt| {
            let options = CrashOptions { request_bytes_max: 8 << 10, ..CrashOptions::volatile(2 * MIB) };
            let device = CrashDevice::new(&rt, Image::default(), options);
            let plan = Plan { map_log, ..many_pieces() };
            let vld = Vld::create(&rt, device.clone(), &plan, by_flush()).await.expect("made");
            for number in 1..50 {
                write(&vld, number * 7, 3, number).await;
            }
            vld.flush().await.expect("it can be flushed");
            drop(vld);
            let vld = Vld::open(&rt, device.clone(), by_flush()).await.expect("it opens");
            assert_eq!(number_of(&vld, 7 * 49).await, 49);
            assert_eq!(device.violations(), Vec::<String>::new(), "{map_log:?}");
        });
    }
}

/// A device with two readings, of which the usual one does not have some sectors.
struct Redundant {
    inner: Rc<Memory>,
    lost: std::ops::Range<Sector>,
}

#[async_trait(?Send)]
impl BlockDevice for Redundant {
    fn geometry(&self) -> Geometry {
        self.inner.geometry()
    }

    fn guarantees(&self) -> Guarantees {
        self.inner.guarantees()
    }

    fn describe(&self) -> String {
        "redundant".to_string()
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        let end = at + buf.len() as u64 / SECTOR_BYTES;
        match at < self.lost.end && self.lost.start < end {
            true => {
                let cause = "lost".to_string();
                Err(DeviceError::Io { operation: "read", at, bytes: buf.len() as u64, cause })
            }
            false => self.inner.read(at, buf).await,
        }
    }

    fn readings(&self) -> u32 {
        2
    }

    async fn read_as(&self, at: Sector, buf: Buf, reading: u32) -> Result<Buf, DeviceError> {
        if reading == 0 { self.read(at, buf).await } else { self.inner.read(at, buf).await }
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.inner.write(at, data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.inner.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.inner.discard(at, sectors).await
    }
}

/// Aim: where the tail is looked for, what one reading has lost is taken from another. Method: each block lost in turn, with and
/// without a second reading; and the same in the region of an append-only log.
#[test]
fn what_one_reading_has_lost_is_in_another() {
    run(1, async |rt: Rt| {
        let (memory, layout, cell, _) = with_tail(&rt).await;
        let tail = layout.cell_sector(cell);
        let blocks = |blocks: std::ops::Range<u32>| {
            blocks.map(|block| layout.sector_of(block)..layout.sector_of(block) + layout.block_sectors)
        };
        for lost in blocks(1..layout.blocks) {
            let device: Device = Rc::new(Redundant { inner: memory.clone(), lost: lost.clone() });
            let vld = Vld::open(&rt, device, Options::default()).await;
            let vld = vld.unwrap_or_else(|error| panic!("{lost:?} of one reading is lost: {error}"));
            assert_eq!(vld.recovery().mapped_blocks, 10, "{lost:?}");
            if !lost.contains(&tail) {
                continue;
            }
            let alone = FaultDevice::new(&rt, memory.clone(), 1);
            alone.lose(lost);
            assert!(Vld::open(&rt, alone, Options::default()).await.is_err(), "nothing else has the tail");
        }
        let memory = Rc::new(Memory::new(MIB));
        let plan = Plan { map_log: MapLog::Append, ..plan() };
        let vld = Vld::create(&rt, memory.clone(), &plan, by_flush()).await.expect("made");
        for number in 1..200 {
            write(&vld, number % 20, 1, number).await;
            vld.flush().await.expect("it can be flushed");
        }
        let layout = vld.layout().clone();
        drop(vld);
        let start = layout.cell_sector(layout.superblock.region_start);
        for sector in 0..layout.superblock.region_cells * layout.cell_sectors {
            let lost = start + sector..start + sector + 1;
            let device: Device = Rc::new(Redundant { inner: memory.clone(), lost });
            let vld = Vld::open(&rt, device, by_flush()).await.expect("another reading has it");
            for number in 180..200 {
                assert_eq!(number_of(&vld, number % 20).await, number, "sector {sector} of the region is lost");
            }
        }
    });
}
