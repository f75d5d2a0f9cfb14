//! Aim: a sector that cannot be read, in a row that a power cut left out of sync, costs at most itself. Method: rows are written and
//! not flushed, a sector is lost, and the members are opened as after a power cut.

use super::faults::{Members, SECTORS};
use super::*;

const ROWS: u64 = 12;

/// Members of an array, of which the first rows hold `data` and are out of sync.
async fn written(rt: &Rt, options: &ArrayOptions, data: &[u8]) -> Members {
    let before = Members::new(rt, 3, 1);
    let array = Array::create(rt, before.devices(), options, UUID, Contents::Zeroes).await.unwrap();
    array.write(Sector(0), Data::from_slice(data), WriteFlags::NONE).await.unwrap();
    let copy = |memory: &Rc<Memory>| Rc::new(Memory::from_image(SECTORS * SECTOR_BYTES, memory.image()));
    Members::around(rt, before.memories.iter().map(copy).collect(), 1)
}

async fn open(rt: &Rt, members: &Members, options: &ArrayOptions) -> Rc<Array> {
    let array = Array::open(rt, members.devices().into_iter().map(Some).collect(), options).await.unwrap();
    assert!(array.status().out_of_sync >= ROWS);
    array
}

fn run(body: impl AsyncFnOnce(Rt, ArrayOptions, Vec<u8>)) {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let options = small(Level::Parity);
    let mut data = vec![0; (ROWS * 2 * options.unit * SECTOR_BYTES) as usize];
    crate::rng::Rng::new(3).fill(&mut data);
    executor.block_on(body(rt, options, data)).unwrap();
}

/// Parity that cannot be read is written again from the data.
#[test]
fn unreadable_parity_is_written_again() {
    for row in 0..ROWS {
        run(async |rt, options, mut data| {
            let members = written(&rt, &options, &data).await;
            let array = open(&rt, &members, &options).await;
            let shape = array.core.shape;
            members.faults[shape.parity(row)].lose(Sector(shape.at(row, 3))..Sector(shape.at(row, 4)));
            let length = (shape.row_sectors() * SECTOR_BYTES) as usize;
            let (at, start) = (Sector(row * shape.row_sectors()), row as usize * length);
            let read = array.read(at, Buf::dirty(length)).await.unwrap();
            assert!(read[..] == data[start..start + length], "row {row}");
            array.write(at + 3, Data::from_slice(&[9; 512]), WriteFlags::NONE).await.unwrap();
            data[start + 3 * 512..start + 4 * 512].fill(9);
            array.resynced().await;
            assert!(array.status().is_healthy() && array.status().error.is_none(), "row {row}: {:?}", array.status());
            assert_eq!(array.scrub().await, Ok(0), "row {row}");
            let other = (shape.parity(row) + 1) % 3;
            array.give_up(other).await.unwrap();
            array.replace(other, Rc::new(Memory::new(SECTORS * SECTOR_BYTES))).await.unwrap();
            array.resynced().await;
            assert!(array.status().is_healthy(), "row {row}: {:?}", array.status());
            assert_eq!(array.scrub().await, Ok(0), "row {row}, rebuilt");
            compare(&(array as Device), &data).await.unwrap();
        });
    }
}

/// The same for the task in the background alone, and for a scrub that comes before it.
#[test]
fn unreadable_parity_ends_no_resync_and_no_scrub() {
    for scrubs in [false, true] {
        run(async |rt, options, data| {
            let members = written(&rt, &options, &data).await;
            let array = open(&rt, &members, &options).await;
            let shape = array.core.shape;
            for row in [0, 2, 7] {
                members.faults[shape.parity(row)].lose(Sector(shape.at(row, 3))..Sector(shape.at(row, 4)));
            }
            if scrubs {
                assert_eq!(array.scrub().await, Ok(0));
            }
            array.resynced().await;
            assert!(array.status().is_healthy(), "{:?}", array.status());
            assert_eq!(array.scrub().await, Ok(0));
            compare(&(array as Device), &data).await.unwrap();
        });
    }
}

/// Data that cannot be read leaves its row out of sync: everything else can be read, and other rows are resynchronised. A discard of
/// the row heals it.
#[test]
fn unreadable_data_costs_itself() {
    for (row, index) in (0..ROWS).flat_map(|row| [(row, 0), (row, 1)]) {
        run(async |rt, options, mut data| {
            let members = written(&rt, &options, &data).await;
            let array = open(&rt, &members, &options).await;
            let shape = array.core.shape;
            let bad = Sector(shape.at(row, 5))..Sector(shape.at(row, 6));
            members.faults[shape.member(row, index)].lose(bad);
            let lost = row * shape.row_sectors() + index as u64 * shape.unit + 5;
            for sector in 0..ROWS * shape.row_sectors() {
                let read = array.read(Sector(sector), Buf::dirty(512)).await;
                match read {
                    Ok(read) => assert!(read[..] == data[(sector * 512) as usize..][..512], "sector {sector}"),
                    Err(error) => assert!(sector == lost && error.is_of_medium(), "sector {sector}: {error}"),
                }
                assert_ne!(sector == lost, array.read(Sector(sector), Buf::dirty(512)).await.is_ok());
            }
            array.resynced().await;
            let status = array.status();
            assert!(status.out_of_sync == 1 && status.error.is_some(), "{status:?}");
            array.scrub().await.unwrap();
            array.discard(Sector(row * shape.row_sectors()), shape.row_sectors()).await.unwrap();
            data[(row * shape.row_sectors() * 512) as usize..][..(shape.row_sectors() * 512) as usize].fill(0);
            assert!(array.status().is_healthy(), "{:?}", array.status());
            assert_eq!(array.scrub().await, Ok(0));
            compare(&(array as Device), &data).await.unwrap();
        });
    }
}
