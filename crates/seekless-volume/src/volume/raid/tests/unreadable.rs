//! Aim: a sector that cannot be read, in a row that a power cut left out of sync, costs at most itself. Method: rows are written and
//! not flushed, a sector is lost, and the members are opened as after a power cut.

use super::faults::{Members, SECTORS};
use super::*;
use crate::device::fault::{Effect, Kinds, Rule, When};

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
    run_on(Level::Parity, body);
}

fn run_on(level: Level, body: impl AsyncFnOnce(Rt, ArrayOptions, Vec<u8>)) {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let options = small(level);
    let units = if level == Level::Parity { 2 } else { 1 };
    let mut data = vec![0; (ROWS * units * options.unit * SECTOR_BYTES) as usize];
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

/// Aim: a row that a power cut left out of sync, with data that cannot be read, can be written, and a write of what is lost heals it.
/// Method: sectors of another column and of the same one, then the lost sector; or the whole row at once.
#[test]
fn a_row_with_unreadable_data_can_be_written() {
    for (row, index, whole) in (0..ROWS).flat_map(|row| [(row, 0, false), (row, 1, false), (row, 0, true)]) {
        run(async |rt, options, mut data| {
            let what = format!("row {row}, unit {index}, as a whole {whole}");
            let members = written(&rt, &options, &data).await;
            let array = open(&rt, &members, &options).await;
            let shape = array.core.shape;
            members.faults[shape.member(row, index)].lose(Sector(shape.at(row, 5))..Sector(shape.at(row, 6)));
            let first = row * shape.row_sectors();
            let (lost, beside) = (first + index as u64 * shape.unit + 5, first + (1 - index as u64) * shape.unit + 5);
            let mut write = async |sector: u64, sectors: u64, byte: u8| {
                let new = vec![byte; (sectors * SECTOR_BYTES) as usize];
                let written = array.write(Sector(sector), Data::from_slice(&new), WriteFlags::NONE).await;
                written.unwrap_or_else(|error| panic!("{what}, sector {sector}: {error}"));
                data[(sector * SECTOR_BYTES) as usize..][..new.len()].copy_from_slice(&new);
            };
            match whole {
                true => write(first, shape.row_sectors(), 7).await,
                false => {
                    write(lost + 2, 1, 1).await;
                    write(beside, 1, 2).await;
                    write(lost, 1, 3).await;
                }
            }
            array.flush().await.unwrap();
            array.resynced().await;
            array.scrub().await.unwrap();
            assert!(array.status().out_of_sync == 0, "{what}: {:?}", array.status());
            assert_eq!(array.scrub().await, Ok(0), "{what}");
            compare(&(array as Device), &data).await.unwrap();
        });
    }
}

/// Aim: sectors that cannot be read cost a mirror nothing as long as one copy has them. Method: a different one on each of three
/// copies, in each row that a power cut left out of sync; and a single copy, of which only the lost sector cannot be read.
#[test]
fn unreadable_sectors_of_mirrors_cost_themselves() {
    for row in 0..ROWS {
        for alone in [false, true] {
            run_on(Level::Mirror, async |rt, options, mut data| {
                let what = format!("row {row}, alone {alone}");
                let members = written(&rt, &options, &data).await;
                let options = ArrayOptions { degraded: alone, ..options };
                let shape_at = |array: &Array, sector: u64| array.core.shape.data_start + sector;
                let devices = members.devices().into_iter().enumerate();
                let devices = devices.map(|(member, device)| (member == 0 || !alone).then_some(device)).collect();
                let array = Array::open(&rt, devices, &options).await.unwrap();
                let unit = array.core.shape.unit;
                let lost = row * unit + 3;
                for (member, fault) in members.faults.iter().enumerate() {
                    let at = shape_at(&array, row * unit + [3, 4, 5][member]);
                    fault.lose(Sector(at)..Sector(at + 1));
                }
                for sector in 0..ROWS * unit {
                    let read = array.read(Sector(sector), Buf::dirty(512)).await;
                    match read {
                        Ok(read) => assert!(read[..] == data[(sector * 512) as usize..][..512], "{what}, {sector}"),
                        Err(error) => {
                            assert!(error.is_of_medium(), "{what}, {sector}: {error}");
                            assert!(alone && sector == lost, "{what}, {sector}: {error}");
                        }
                    }
                }
                array.write(Sector(row * unit), Data::from_slice(&[7; 512]), WriteFlags::NONE).await.unwrap();
                array.write(Sector(lost), Data::from_slice(&[8; 4 * 512]), WriteFlags::NONE).await.unwrap();
                data[(row * unit * 512) as usize..][..512].fill(7);
                data[(lost * 512) as usize..][..4 * 512].fill(8);
                array.flush().await.unwrap();
                compare(&(array as Device), &data).await.unwrap();
            });
        }
    }
}

/// Aim: a write that is served together with another does not fail for it. Method: of two at once, one also needs a row whose data is
/// lost, on an array without a member.
#[test]
fn a_joint_write_does_not_fail_for_another() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let members = Members::new(&rt, 3, 1);
        let array = Array::create(&rt, members.devices(), &small(Level::Parity), UUID, Contents::Zeroes).await.unwrap();
        let shape = array.core.shape;
        let row = |row: u64| Sector(row * shape.row_sectors());
        array.write(Sector(0), Data::from_slice(&[1; 16 * 4096]), WriteFlags::NONE).await.unwrap();
        array.flush().await.unwrap();
        array.give_up(shape.member(3, 0)).await.unwrap();
        members.faults[shape.member(3, 1)].lose(Sector(shape.at(3, 0))..Sector(shape.at(3, 0) + 8));
        // The first holds row 2 while the others come.
        for fault in &members.faults {
            fault.add(Rule::new(Kinds::WRITE, When::From(1), Effect::Delay(Nanos(10_000)..=Nanos(10_000))));
        }
        let writes = [(row(2), 1, 0), (row(2) + 8, 10, 1000), (row(2) + 3, 2, 2000)].map(|(at, sectors, later)| {
            let (array, inner) = (array.clone(), rt.clone());
            rt.spawn(async move {
                inner.sleep(Nanos(later)).await;
                let data = Data::from_slice(&vec![2; sectors * 512]);
                array.write(at, data, WriteFlags::NONE).await
            })
        });
        let mut results = Vec::new();
        for write in writes {
            results.push(write.await.is_ok());
        }
        assert_eq!(results, [true, false, true], "only the one that reaches row 3 needs what is lost");
    };
    executor.block_on(run).unwrap();
}
