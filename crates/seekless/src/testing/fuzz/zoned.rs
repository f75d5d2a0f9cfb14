//! Stores on zones from arbitrary bytes: the decoder of records, and whole stores whose log goes on with records that make no sense and
//! have right checksums.

use std::rc::Rc;

use super::Bytes;
use crate::device::{BlockDevice, Buf, Data, Device, DeviceError, Memory, WriteFlags, ZoneAction, Zoned, Zones};
use crate::rt::Limits;
use crate::testing::stored_zones::StoredZones;
use crate::testing::subject::simulate;
use crate::units::{KIB, Nanos, SECTOR_BYTES, Sector};
use crate::volume::zoned::format::{
    BLOCK_BYTES, Change, FIXED_BLOCKS, MAGIC, MetadataRecord, RecordHead, VERSION, head_of,
};
use crate::volume::zoned::{Plan, Store, ZonedError, check, probe};

const UUID: [u8; 16] = [5; 16];
const CAPACITY_SECTORS: u64 = 600 * KIB / SECTOR_BYTES;
const ZONES: Zones =
    Zones { count: 8, zone_sectors: 2048, capacity_sectors: CAPACITY_SECTORS, open_max: 4, active_max: 4 };
const SPAN_BYTES: u64 = 196 * KIB;

/// Limits for one store: checked, opened, read, written and opened again.
const LIMITS: Limits = Limits { events: 1_000_000, until: Nanos::from_secs(100_000) };

/// Limit of records and changes of zones in one input.
const STEPS_MAX: usize = 16;

/// The decoder, with any bytes. What it accepts, the encoder reproduces.
pub fn decoders(input: &[u8]) {
    let _ = head_of(input);
    if let Some(record) = MetadataRecord::decode(input) {
        assert_eq!(record.encode()[record.head.copy as usize * input.len()..][..input.len()], *input);
    }
    // With a right checksum, as damage never has.
    let mut bytes = Bytes::new(input);
    let made = record(&mut bytes, 1).encode();
    let copy = &made[..made.len() / 2];
    let read = MetadataRecord::decode(copy).unwrap_or_else(|| panic!("what was encoded is not decoded"));
    assert_eq!(read.encode()[..copy.len()], *copy);
}

/// A record that may contradict everything.
fn record(bytes: &mut Bytes<'_>, sequence: u64) -> MetadataRecord {
    let shape = bytes.u8();
    let odd = |bytes: &mut Bytes<'_>, bit: u8, usual: u64| if shape & bit != 0 { bytes.edge() } else { usual };
    let head = RecordHead {
        magic: MAGIC,
        version: VERSION,
        crc: 0,
        uuid: UUID,
        sequence: odd(bytes, 1, sequence),
        flags: odd(bytes, 2, 0) as u32,
        copy: 0,
        bytes: 0,
        change_count: 0,
        block_count: 0,
        zone_count: ZONES.count,
        zone_sectors: ZONES.zone_sectors,
        capacity_sectors: odd(bytes, 4, CAPACITY_SECTORS),
        span_sectors: odd(bytes, 8, SPAN_BYTES / SECTOR_BYTES),
        span_count: odd(bytes, 16, 9) as u32,
        reserved: 0,
    };
    let small =
        |bytes: &mut Bytes<'_>| if bytes.u8() < 0xe0 { u32::from(bytes.u8() % 20) } else { bytes.edge() as u32 };
    let changes =
        (0..bytes.u8() % 12).map(|_| Change { span: small(bytes), slot: small(bytes), sectors: bytes.edge() as u32 });
    let changes = changes.collect();
    let blocks = (0..u64::from(bytes.u8() % 4)).map(|_| (small(bytes), vec![bytes.u8(); BLOCK_BYTES].into())).collect();
    MetadataRecord { head, changes, blocks }
}

/// A store whose log goes on with such records, in zones in any state: it is refused, or opened, read, written, and opened again.
pub fn open(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let run = simulate(1, LIMITS, async |_| {
        let memory: Device = Rc::new(Memory::new(StoredZones::bytes(&ZONES)));
        prepare(&memory, &mut bytes).await.unwrap_or_else(|error| panic!("the store to start from: {error}"));
        let zones: Device = opened_zones(&memory).await;
        let _ = probe(&zones).await;
        let checked = check(&zones).await;
        let opened = Store::open(zones, false).await;
        if let Ok(checkup) = &checked {
            assert_eq!(checkup.errors.is_empty(), opened.is_ok(), "{checkup:?}, {:?}", opened.err());
        }
        let Ok(store) = opened else { return };
        let written = exercise(&store).await;
        drop(store);
        let again = Store::open(opened_zones(&memory).await, false).await;
        let again = again.unwrap_or_else(|error| panic!("what was opened and used does not open again: {error}"));
        for span in written {
            let read = again.read(again.layout().span_start(span), Buf::dirty(BLOCK_BYTES)).await;
            assert_eq!(
                read.unwrap_or_else(|error| panic!("{error}"))[..],
                [span as u8 + 1; BLOCK_BYTES],
                "span {span}"
            );
        }
    });
    run.unwrap_or_else(|why| panic!("{why}"));
}

async fn opened_zones(memory: &Device) -> Device {
    StoredZones::open(memory.clone(), ZONES).await.unwrap_or_else(|error| panic!("memory: {error}"))
}

/// A store with some content; then what the input says.
async fn prepare(memory: &Device, bytes: &mut Bytes<'_>) -> Result<(), ZonedError> {
    let zones = StoredZones::open(memory.clone(), ZONES).await?;
    let plan = Plan { uuid: UUID, span_bytes: Some(SPAN_BYTES), spare: 0 };
    let store = Store::create(zones.clone(), &plan).await?;
    let mut sequence = 2;
    for span in 0..u32::from(bytes.u8() % 6) {
        store.write(store.layout().span_start(span), Data::zeroes(3 * BLOCK_BYTES), WriteFlags::NONE).await?;
        store.write(Sector(u64::from(span) * 8), Data::zeroes(BLOCK_BYTES), WriteFlags::NONE).await?;
    }
    if let Ok(Some(info)) = probe(&(zones.clone() as Device)).await {
        sequence = info.records + 1;
    }
    for _ in 0..STEPS_MAX {
        if bytes.is_empty() {
            break;
        }
        let zone = u32::from(bytes.u8()) % ZONES.count;
        // A zone may be full, or too many active: then nothing happens.
        let _ = match bytes.u8() % 8 {
            0 => zones.manage(zone, ZoneAction::Reset).await,
            1 => zones.manage(zone, ZoneAction::Finish).await,
            2 => zones.append(zone, Data::zeroes(BLOCK_BYTES), WriteFlags::NONE).await.map(drop),
            _ => {
                let log = zone % 2 * u32::from(bytes.u8().is_multiple_of(8));
                let record = record(bytes, sequence).encode();
                sequence += 1;
                // Now and then only a part of it.
                let kept = if bytes.u8() == 1 { record.len() / 2 } else { record.len() };
                zones.append(log, Data::from_slice(&record[..kept]), WriteFlags::NONE).await.map(drop)
            }
        };
    }
    Ok(zones.flush().await?)
}

/// Reads everything, and writes to each span again. Returns those that could be written.
async fn exercise(store: &Rc<Store>) -> Vec<u32> {
    let layout = *store.layout();
    let mut written = Vec::new();
    for span in 0..layout.span_count {
        let bytes = (layout.span_sectors * SECTOR_BYTES) as usize;
        store.read(layout.span_start(span), Buf::dirty(bytes)).await.unwrap_or_else(|error| panic!("{error}"));
    }
    for span in (0..layout.span_count).take(12) {
        let all = store.discard(layout.span_start(span), layout.span_sectors).await;
        all.unwrap_or_else(|error| panic!("{error}"));
        let data = Data::from_slice(&[span as u8 + 1; BLOCK_BYTES]);
        match store.write(layout.span_start(span), data, WriteFlags::NONE).await {
            Ok(()) => written.push(span),
            // Records that put spans into all zones leave none to move anything to (Z4).
            Err(DeviceError::NoSpace { .. }) => {}
            Err(error) => panic!("span {span}: {error}"),
        }
    }
    let fixed = store.write(Sector((FIXED_BLOCKS - 2) * 8), Data::zeroes(BLOCK_BYTES), WriteFlags::NONE).await;
    fixed.unwrap_or_else(|error| panic!("{error}"));
    store.flush().await.unwrap_or_else(|error| panic!("{error}"));
    written
}
