//! Virtual log disks from arbitrary bytes: decoders, and whole disks that were changed and given valid seals and
//! checksums again.
//!
//! Everything on such a disk is sealed or has a checksum, so a fuzzer that only flips bits never gets further. [`open`]
//! takes a real disk, changes fields of its records and bytes anywhere, and corrects seals and checksums.

use std::rc::Rc;
use std::sync::OnceLock;

use super::Bytes;
use crate::codec::Field;
use crate::device::{BlockDevice, Buf, Data, Device, DeviceError, Image, Memory, Snapshots, WriteFlags};
use crate::rt::Limits;
use crate::testing::subject::simulate;
use crate::units::{KIB, Nanos, SECTOR_BYTES, Sector};
use crate::vlog::format::{
    ANCHORS, Anchor, FIXED_BYTES, FIXED_SECTORS, Key, Piece, PieceHead, RawPointer, Record, RecordHead, Superblock,
};
use crate::vlog::layout::Layout;
use crate::vlog::{MapLog, Options, Plan, Vld, VldError, check, probe};

const DISK_BYTES: u64 = 512 * KIB;
const KEY: Key = Key { uuid: [3; 16], key: [4; 16] };

/// Limits for one disk: checked, opened, read, written and opened again.
const LIMITS: Limits = Limits { events: 1_000_000, until: Nanos::from_secs(100_000) };

/// Limit of changes in one input.
const CHANGES_MAX: usize = 24;

/// Every decoder, with any bytes. What one accepts, its encoder reproduces.
pub fn decoders(input: &[u8]) {
    let mut block = input.to_vec();
    block.resize(FIXED_BYTES, 0);
    if let Ok(superblock) = Layout::read(&block) {
        assert_eq!(Layout::read(&superblock.to_block()), Ok(superblock));
    }
    if let Some(superblock) = Superblock::decode(input)
        && let Some(layout) = Layout::new(superblock).filter(|_| !superblock.is_above())
    {
        assert!(layout.offered() > 0 && layout.span < layout.blocks);
        assert_eq!(layout.map_start(layout.snapshots) + layout.span, layout.logical_blocks);
        assert!(layout.is_reserved(0) && layout.is_reserved(layout.blocks));
        let last = layout.piece_of(layout.logical_blocks - 1).0;
        assert_eq!(last + 1, layout.pieces);
    }
    let _ = Anchor::from_block(&block, &KEY.uuid);
    for cell in [0, 24] {
        let _ = (Piece::from_cell(input, &KEY, cell), Record::from_cell(input, &KEY, cell));
    }
    // Sealed, as outside data never is.
    let mut cell = input.to_vec();
    cell.resize(512, 0);
    KEY.put_seal(&mut cell);
    let number = PieceHead::decode(&cell).map_or(0, |head| head.cell);
    if let Some(piece) = Piece::from_cell(&cell, &KEY, number) {
        let again = piece.to_cell(&KEY, number, 512);
        assert_eq!(Piece::from_cell(&again, &KEY, number), Some(piece));
    }
    if let Some(record) = Record::from_cell(&cell, &KEY, number) {
        let again = record.to_cell(&KEY, number, 512);
        assert_eq!(Record::from_cell(&again, &KEY, number), Some(record));
    }
}

/// A disk to start from.
struct Base {
    image: Image,
    /// Cells in which there are pieces or records.
    cells: Vec<u64>,
}

/// With a virtual log and with an append-only one, in use and parked; then with snapshots.
fn bases() -> &'static [Base; 6] {
    static BASES: OnceLock<[Base; 6]> = OnceLock::new();
    BASES.get_or_init(|| {
        let (tree, append) = (MapLog::Tree, MapLog::Append);
        [(tree, false, 0), (tree, true, 0), (append, false, 0), (append, true, 0), (tree, false, 2), (tree, true, 2)]
            .map(|(map_log, park, snapshots)| Base::new(map_log, park, snapshots))
    })
}

/// Which of them: snapshots came later, and stored inputs keep their meaning.
fn base_of(shape: u8) -> &'static Base {
    let number = if shape < 0xc0 { shape % 4 } else { 4 + shape % 2 };
    &bases()[usize::from(number)]
}

impl Base {
    fn new(map_log: MapLog, park: bool, snapshots: u32) -> Base {
        let made = simulate(1, LIMITS, async |rt| {
            let memory = Rc::new(Memory::new(DISK_BYTES));
            let reserve = if snapshots > 0 { 5000 } else { 2000 };
            let plan = Plan { block_bytes: 1024, reserve, map_log, snapshots, uuid: KEY.uuid, key: KEY.key };
            let vld = Vld::create(&rt, memory.clone(), &plan, Options::default()).await?;
            let blocks = if snapshots > 0 { 150 } else { 350 };
            for turn in 0..200u64 {
                if snapshots > 0 && turn == 160 {
                    let taken = vld.take("one").await;
                    taken.unwrap_or_else(|error| unreachable!("the disk to start from has room: {error}"));
                }
                let at = Sector(turn * 37 % blocks * 2);
                vld.write(at, Data::from_slice(&[turn as u8; 1024]), WriteFlags::NONE).await?;
            }
            if park {
                vld.release().await?;
            }
            Ok::<Image, VldError>(memory.image())
        });
        let image = match made {
            Ok(Ok(image)) => image,
            Ok(Err(error)) => unreachable!("the disk to start from cannot be made: {error}"),
            Err(why) => unreachable!("the disk to start from cannot be made: {why}"),
        };
        let holds = |&cell: &u64| {
            let mut bytes = vec![0; SECTOR_BYTES as usize];
            image.read(Sector(cell), &mut bytes);
            Piece::from_cell(&bytes, &KEY, cell).is_some() || Record::from_cell(&bytes, &KEY, cell).is_some()
        };
        let cells = (0..DISK_BYTES / SECTOR_BYTES).filter(holds).collect();
        Base { image, cells }
    }
}

/// An inconsistent disk with valid seals and checksums: it is refused, or opened, read, written, and opened again.
pub fn open(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let shape = bytes.u8();
    let base = base_of(shape);
    let mut image = base.image.clone();
    let mut changes = 0;
    while !bytes.is_empty() && changes < CHANGES_MAX {
        changes += 1;
        change(&mut image, base, &mut bytes);
    }
    let before = youngest(&image);
    let run = simulate(1, LIMITS, async |rt| {
        let memory = Rc::new(Memory::from_image(DISK_BYTES, image));
        let device: Device = memory.clone();
        let _ = probe(&device).await;
        let checked = check(&device).await;
        let opened = Vld::open(&rt, device.clone(), Options::default()).await;
        if let Ok(checkup) = &checked {
            assert_eq!(checkup.errors.is_empty(), opened.is_ok(), "{checkup:?}");
        }
        let Ok(vld) = opened else { return };
        vld.check_invariants().unwrap_or_else(|why| panic!("{why}"));
        let block = vld.geometry().block_bytes as usize;
        let step = block as u64 / SECTOR_BYTES;
        for at in (0..vld.geometry().sectors).step_by(step as usize) {
            let _ = vld.read(Sector(at), Buf::dirty(block)).await;
        }
        let snapshots = use_snapshots(&vld).await;
        let data = Data::from_slice(&vec![0x5a; block]);
        for at in (0..vld.geometry().sectors).step_by(step as usize * 5).take(40) {
            match vld.write(Sector(at), data.clone(), WriteFlags::NONE).await {
                // Blocks that snapshots hold may leave no room for more.
                Err(DeviceError::NoSpace { .. }) if snapshots.is_some() && at > 0 => break,
                written => written.unwrap_or_else(|error| panic!("{error}")),
            }
        }
        vld.flush().await.unwrap_or_else(|error| panic!("{error}"));
        vld.check_invariants().unwrap_or_else(|why| panic!("{why}"));
        // A sealed piece that nothing led to, with a higher number than all later ones: a search takes it for the tail.
        // Only this fuzzer makes one.
        if vld.layout().map_log == MapLog::Tree && youngest(&memory.image()) == before {
            return;
        }
        drop(vld);
        if let Some(name) = snapshots.flatten() {
            let shown = Vld::open_snapshot(&rt, device.clone(), Options::default(), &name).await;
            let shown = shown.unwrap_or_else(|error| panic!("{error}"));
            let shown = shown.unwrap_or_else(|| panic!("the snapshot that was taken is not there"));
            let _ = shown.read(Sector(0), Buf::dirty(block)).await;
        }
        let again = Vld::open(&rt, device, Options::default()).await;
        let again = again.unwrap_or_else(|error| panic!("what was opened and used does not open again: {error}"));
        let read = again.read(Sector(0), Buf::dirty(block)).await.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(read[..], data[..]);
    });
    run.unwrap_or_else(|why| panic!("{why}"));
}

/// The highest number of a piece that completes a transaction.
fn youngest(image: &Image) -> u64 {
    let piece = |cell: u64| {
        let mut bytes = vec![0; SECTOR_BYTES as usize];
        image.read(Sector(cell), &mut bytes);
        Piece::from_cell(&bytes, &KEY, cell).filter(|piece| piece.commits)
    };
    (0..DISK_BYTES / SECTOR_BYTES).filter_map(piece).map(|piece| piece.sequence).max().unwrap_or(0)
}

/// Removes all snapshots and takes one; returns its name. `None` for a disk without room for any.
async fn use_snapshots(vld: &Rc<Vld>) -> Option<Option<String>> {
    let snapshots = vld.snapshots()?;
    for snapshot in snapshots.list().await.unwrap_or_default() {
        snapshots.remove(&snapshot.name).await.unwrap_or_else(|error| panic!("{error}"));
    }
    let name = "another".to_owned();
    let taken = snapshots.take(&name).await.is_ok();
    Some(taken.then_some(name))
}

/// One change, usually with the seal or the checksum corrected.
fn change(image: &mut Image, base: &Base, bytes: &mut Bytes<'_>) {
    let kind = bytes.u8();
    let mends = kind & 0x80 == 0;
    match kind % 4 {
        0 => {
            let at = [0, DISK_BYTES / SECTOR_BYTES - FIXED_SECTORS][usize::from(bytes.u8() % 2)];
            let mut block = vec![0; FIXED_BYTES];
            image.read(Sector(at), &mut block);
            set_field(&mut block, Superblock::FIELDS, bytes);
            match Superblock::decode(&block) {
                Some(superblock) if mends => image.write(Sector(at), &superblock.to_block()),
                _ => image.write(Sector(at), &block),
            }
        }
        1 => {
            let at = ANCHORS[usize::from(bytes.u8() % 2)];
            let mut block = vec![0; FIXED_BYTES];
            image.read(Sector(at), &mut block);
            set_field(&mut block, Anchor::FIELDS, bytes);
            match Anchor::decode(&block) {
                Some(anchor) if mends => image.write(Sector(at), &anchor.to_block()),
                _ => image.write(Sector(at), &block),
            }
        }
        2 => {
            let at = bytes.below(DISK_BYTES / SECTOR_BYTES);
            let mut sector = vec![0; SECTOR_BYTES as usize];
            image.read(Sector(at), &mut sector);
            sector[usize::from(bytes.u8()) * 2] ^= bytes.u8();
            image.write(Sector(at), &sector);
        }
        _ => {
            let Some(&cell) = base.cells.get(bytes.below(base.cells.len().max(1) as u64) as usize) else { return };
            let mut content = vec![0; SECTOR_BYTES as usize];
            image.read(Sector(cell), &mut content);
            match bytes.u8() % 4 {
                0 => set_field(&mut content, PieceHead::FIELDS, bytes),
                1 => set_field(&mut content, RecordHead::FIELDS, bytes),
                2 => {
                    let slot = usize::from(bytes.u8() % 4);
                    set_field(&mut content[PieceHead::BYTES + slot * RawPointer::BYTES..], RawPointer::FIELDS, bytes);
                }
                _ => {
                    let at = 40 + usize::from(bytes.u8()) % 118 * 4;
                    let value = bytes.edge() as u32;
                    content[at..at + 4].copy_from_slice(&value.to_le_bytes());
                }
            }
            if mends {
                KEY.put_seal(&mut content);
            }
            image.write(Sector(cell), &content);
        }
    }
}

/// Gives one field of a record a number that is often a boundary value.
fn set_field(record: &mut [u8], fields: &[Field], bytes: &mut Bytes<'_>) {
    let field = fields[usize::from(bytes.u8()) % fields.len()];
    let old = &mut record[field.offset..field.offset + field.size];
    let value = bytes.edge().to_le_bytes();
    let length = old.len().min(value.len());
    old[..length].copy_from_slice(&value[..length]);
}
