//! Damage to records: one of two copies costs nothing and is replaced; both are an error, never an older state.

use super::*;
use crate::device::Memory;
use crate::device::fault::FaultDevice;
use crate::device::fork::ForkDevice;

/// A store with some records, and the blocks of zone 0 and 1 that hold them.
async fn prepared(shape: Shape, below: &Device) -> Model {
    let store = shape.create(below.clone()).await;
    let (mut model, mut rng, mut last) = (Model::default(), Rng::new(5), 0);
    for _ in 0..40 {
        let op = model.draw(&mut rng, store.layout(), &mut last);
        model.apply(op, &store).await.expect("it works");
    }
    store.flush().await.expect("it works");
    model
}

/// The place of each block of the metadata log on the device below the zones, found by what it holds.
async fn record_blocks(shape: Shape, below: &Device) -> Vec<Sector> {
    let mut found = Vec::new();
    for block in 0..shape.bytes() / BLOCK {
        let at = Sector(block * format::BLOCK_SECTORS);
        let bytes = below.read(at, Buf::dirty(BLOCK as usize)).await.expect("it works");
        if format::head_of(&bytes).is_some() {
            found.push(at);
        }
    }
    found
}

async fn flip(below: &Device, at: Sector) {
    let mut bytes = below.read(at, Buf::dirty(BLOCK as usize)).await.expect("it works");
    bytes[100] ^= 1;
    below.write(at, bytes.freeze(), WriteFlags::NONE).await.expect("it works");
}

#[test]
fn one_copy_is_enough() {
    let shape = SHAPES[1];
    run(1, async |rt| {
        let below: Device = Rc::new(Memory::new(shape.bytes()));
        let model = prepared(shape, &below).await;
        let heads = record_blocks(shape, &below).await;
        assert!(heads.len() > 20, "records in two copies: {}", heads.len());
        for (number, &at) in heads.iter().enumerate() {
            let damaged: Device = ForkDevice::new(below.clone());
            flip(&damaged, at).await;
            let checkup = check(&shape.zones_on(damaged.clone()).await).await.expect("it can be checked");
            assert!(checkup.errors.is_empty() && checkup.notes.len() == 1, "head {number}: {checkup:?}");
            let store = shape.open(damaged.clone()).await.expect("the other copy is good");
            model.compare(&store).await;
            // The next record begins a new log.
            let mut model = model.clone();
            model.apply(Op::Fixed { block: 1 }, &store).await.expect("it works");
            store.flush().await.expect("it works");
            let checkup = check(&shape.zones_on(damaged.clone()).await).await.expect("it can be checked");
            assert_eq!((checkup.errors.len(), checkup.notes.len()), (0, 0), "{checkup:?}");
            model.compare(&shape.open(damaged).await.expect("it is whole")).await;
            // The same where the block cannot be read.
            let lost = FaultDevice::new(&rt, below.clone(), 1);
            lost.lose(at..at + format::BLOCK_SECTORS);
            let checkup = check(&shape.zones_on(lost).await).await.expect("it can be checked");
            assert!(checkup.errors.is_empty() && checkup.notes.len() == 1, "head {number}: {checkup:?}");
        }
    });
}

#[test]
fn both_copies_are_an_error() {
    let shape = SHAPES[1];
    run(1, async |_| {
        let below: Device = Rc::new(Memory::new(shape.bytes()));
        prepared(shape, &below).await;
        let heads = record_blocks(shape, &below).await;
        for pair in heads.chunks_exact(2) {
            let damaged: Device = ForkDevice::new(below.clone());
            flip(&damaged, pair[0]).await;
            flip(&damaged, pair[1]).await;
            let error = shape.open(damaged.clone()).await.err().expect("nothing is good").to_string();
            assert!(error.contains("both copies"), "{error}");
            let checkup = check(&shape.zones_on(damaged).await).await.expect("it can be checked");
            assert_eq!(checkup.errors.len(), 1, "{checkup:?}");
        }
    });
}

/// Any bytes as a record: an error or nothing, without a panic.
#[test]
fn records_of_any_bytes() {
    let head = record();
    let good = head.encode();
    let mut rng = Rng::new(1);
    for _ in 0..2000 {
        let mut bytes = good.clone();
        for _ in 0..rng.between(1, 4) {
            let at = rng.below(120) as usize;
            bytes[at] = rng.next_u64() as u8;
        }
        let half = bytes.len() / 2;
        if let Some(record) = format::MetadataRecord::decode(&bytes[..half]) {
            assert_eq!(bytes, good, "a checksum covers every byte: {record:?}");
        }
        format::head_of(&bytes[..rng.below(half as u64) as usize]);
    }
}

fn record() -> format::MetadataRecord {
    let head = format::RecordHead::decode(&[0; format::RecordHead::BYTES]).expect("the size is right");
    let head = format::RecordHead { magic: format::MAGIC, version: format::VERSION, ..head };
    format::MetadataRecord {
        head,
        changes: vec![format::Change { span: 1, slot: 2, sectors: format::OPEN }; 3],
        blocks: vec![(0, vec![3; format::BLOCK_BYTES].into())],
    }
}
