//! Aim: what cannot be read is written again, and nothing is worse for it: not where the member has no space for that, and not where
//! the reader goes away. Method: sectors that are lost on chosen members, full members, and reads that are dropped.

use async_trait::async_trait;

use super::faults::Members;
use super::*;

/// Rows that are written, each of one byte of its own.
const ROWS: u64 = 8;

fn run(body: impl AsyncFnOnce(Rt)) {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    executor.block_on(body(rt)).unwrap();
}

const ARRAYS: [(Level, usize); 3] = [(Level::Mirror, 2), (Level::Mirror, 3), (Level::Parity, 4)];

/// An array with something in its first rows, and what that is.
async fn written(rt: &Rt, level: Level, count: usize) -> (Members, Rc<Array>, Vec<u8>) {
    let members = Members::new(rt, count, 1);
    let array = Array::create(rt, members.devices(), &small(level), UUID, Contents::Zeroes).await.unwrap();
    let mut data = vec![0; (ROWS * array.core.shape.row_sectors() * SECTOR_BYTES) as usize];
    crate::rng::Rng::new(3).fill(&mut data);
    array.write(Sector(0), Data::from_slice(&data), WriteFlags::NONE).await.unwrap();
    array.flush().await.unwrap();
    (members, array, data)
}

/// The third sector of each of `rows` on `member` cannot be read, until it is written.
fn lose(members: &Members, array: &Array, member: usize, rows: &[u64]) {
    for &row in rows {
        let at = array.core.shape.at(row, 3);
        members.faults[member].lose(Sector(at)..Sector(at + 1));
    }
}

/// No space for writes to data of `member`.
fn fill(members: &Members, array: &Array, member: usize) {
    let data = Sector(array.core.shape.at(0, 0))..Sector(array.core.shape.at(ROWS, 0));
    members.faults[member].add(Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace).within(data));
}

fn repairs_without_space(array: &Array) -> u64 {
    array.counters().into_iter().find(|(name, _)| *name == "repairs_without_space").unwrap().1
}

/// A scrub of an array with a full member continues, says what that member could not take, and ends the work when there is space.
#[test]
fn a_scrub_goes_on_without_space() {
    for (level, count) in ARRAYS {
        for full in 0..count {
            run(async |rt| {
                let name = format!("{level:?} of {count}, member {full}");
                let (members, array, data) = written(&rt, level, count).await;
                let other = (full + 1) % count;
                lose(&members, &array, full, &[1, 4]);
                lose(&members, &array, other, &[6]);
                fill(&members, &array, full);
                for _ in 0..2 {
                    let scrubbed = Redundancy::scrub(&*array, false, &|_| ()).await.unwrap();
                    let lacking = BTreeMap::from([(full, 2 * array.core.shape.unit)]);
                    assert_eq!((&scrubbed.without_space, scrubbed.degraded), (&lacking, 2), "{name}");
                    assert_eq!((scrubbed.rows, scrubbed.inconsistent), (array.core.shape.rows, 0), "{name}");
                    assert!(array.status().is_healthy(), "{name}: {:?}", array.status());
                    compare(&(array.clone() as Device), &data).await.unwrap();
                }
                members.faults[full].clear();
                let scrubbed = Redundancy::scrub(&*array, false, &|_| ()).await.unwrap();
                let said = (scrubbed.without_space.len(), scrubbed.degraded, scrubbed.inconsistent);
                assert_eq!(said, (0, 0, 0), "{name}");
                assert!(array.status().is_healthy(), "{name}: {:?}", array.status());
                array.check().await.unwrap();
            });
        }
    }
}

/// The same for copies and parity that can be read and are wrong.
#[test]
fn a_correction_waits_for_space() {
    for (level, count, full, believe_data) in
        [(Level::Mirror, 3, 0, false), (Level::Mirror, 3, 1, true), (Level::Parity, 4, 0, true)]
    {
        run(async |rt| {
            let (members, array, data) = written(&rt, level, count).await;
            let shape = array.core.shape;
            let full = if level == Level::Parity { shape.parity(2) } else { full };
            rt.sleep(Nanos::from_secs(3)).await; // Bits are cleared: no row is resynchronised.
            let wrong = members.memories[full].clone();
            fill(&members, &array, full);
            for _ in 0..2 {
                // Each time, as a refused write may arrive nevertheless.
                wrong.write(Sector(shape.at(2, 5)), Data::from_slice(&[7; 512]), WriteFlags::NONE).await.unwrap();
                let scrubbed = Redundancy::scrub(&*array, believe_data, &|_| ()).await.unwrap();
                let lacking = BTreeMap::from([(full, shape.unit)]);
                assert_eq!((scrubbed.rows, scrubbed.without_space), (shape.rows, lacking), "{level:?}");
                assert_eq!((scrubbed.inconsistent, scrubbed.corrected, scrubbed.left), (1, 0, vec![2]), "{level:?}");
                assert!(array.core.state.borrow().redo.is_empty(), "{level:?}: it waits");
            }
            members.faults[full].clear();
            wrong.write(Sector(shape.at(2, 5)), Data::from_slice(&[7; 512]), WriteFlags::NONE).await.unwrap();
            let scrubbed = Redundancy::scrub(&*array, believe_data, &|_| ()).await.unwrap();
            assert_eq!((scrubbed.without_space.len(), scrubbed.corrected), (0, 1), "{level:?}");
            assert!(array.status().is_healthy(), "{level:?}: {:?}", array.status());
            array.check().await.unwrap();
            compare(&(array as Device), &data).await.unwrap();
        });
    }
}

/// Reads are served, whatever a full member cannot take, and it is counted.
#[test]
fn reads_go_on_without_space() {
    for (level, count) in ARRAYS {
        run(async |rt| {
            let (members, array, data) = written(&rt, level, count).await;
            lose(&members, &array, 0, &[0, 1, 4]);
            fill(&members, &array, 0);
            for _ in 0..2 {
                compare(&(array.clone() as Device), &data).await.unwrap();
            }
            assert!(repairs_without_space(&array) > 0, "{level:?}");
            assert!(array.status().is_healthy(), "{level:?}: {:?}", array.status());
        });
    }
}

/// A device whose writes end even when their caller is dropped, as those of the host do. The next takes the time that is set.
struct Lasting {
    rt: Rt,
    below: Device,
    takes: Cell<Nanos>,
    begun: Rc<Cell<u64>>,
}

#[async_trait(?Send)]
impl BlockDevice for Lasting {
    fn geometry(&self) -> Geometry {
        self.below.geometry()
    }

    fn guarantees(&self) -> Guarantees {
        self.below.guarantees()
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.below.read(at, buf).await
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        let (rt, below, takes) = (self.rt.clone(), self.below.clone(), self.takes.replace(Nanos(1)));
        self.begun.set(self.begun.get() + 1);
        self.rt
            .spawn(async move {
                rt.sleep(takes).await;
                below.write(at, data, flags).await
            })
            .await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.below.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.below.discard(at, sectors).await
    }

    fn describe(&self) -> String {
        self.below.describe()
    }
}

/// What a reader writes again is not there after what has been written since, when the reader goes away in between. Method: a
/// read, or a scrub, that is dropped as soon as the repair has begun, at a device that ends it nevertheless, late.
#[test]
fn a_dropped_repair_brings_nothing_back() {
    for (level, count) in ARRAYS {
        for is_scrub in [false, true] {
            for member in 0..count {
                run(async |rt| dropped(&rt, level, count, is_scrub, member).await);
            }
        }
    }
}

async fn dropped(rt: &Rt, level: Level, count: usize, is_scrub: bool, member: usize) {
    let name = format!("{level:?} of {count}, member {member}, scrub: {is_scrub}");
    let members = Members::new(rt, count, 1);
    let lasting = |fault: &Rc<FaultDevice>| {
        let begun = Rc::default();
        Rc::new(Lasting { rt: rt.clone(), below: fault.clone(), takes: Cell::new(Nanos(1)), begun })
    };
    let devices: Vec<Rc<Lasting>> = members.faults.iter().map(lasting).collect();
    let all: Vec<Device> = devices.iter().map(|device| device.clone() as Device).collect();
    let array = Array::create(rt, all, &small(level), UUID, Contents::Zeroes).await.unwrap();
    let length = (2 * array.core.shape.row_sectors() * SECTOR_BYTES) as usize;
    let mut data = vec![1; length];
    array.write(Sector(0), Data::from_slice(&data), WriteFlags::NONE).await.unwrap();
    array.flush().await.unwrap();
    lose(&members, &array, member, &[0, 1]);
    let (begun, before) = (devices[member].begun.clone(), devices[member].begun.get());
    devices[member].takes.set(Nanos::from_millis(1));
    // A mirror reads from the member that is the nearest.
    array.core.balance.iter().enumerate().for_each(|(slot, load)| load.set((0, if slot == member { 0 } else { 900 })));
    {
        let reading = async {
            match is_scrub {
                true => drop(Redundancy::scrub(&*array, false, &|_| ()).await.unwrap()),
                false => drop(array.read(Sector(0), Buf::dirty(length)).await.unwrap()),
            }
        };
        let has_begun = async {
            while begun.get() == before {
                rt.sleep(Nanos(1)).await;
            }
        };
        futures_util::future::select(Box::pin(reading), Box::pin(has_begun)).await;
    }
    assert!(begun.get() > before, "{name}: nothing was repaired");
    for (at, byte) in data.chunks_mut(512).enumerate() {
        byte.fill(2);
        array.write(Sector(at as u64), Data::from_slice(&[2; 512]), WriteFlags::NONE).await.unwrap();
    }
    rt.sleep(Nanos::from_secs(1)).await;
    array.flush().await.unwrap();
    assert!(array.status().is_healthy(), "{name}: {:?}", array.status());
    array.check().await.unwrap_or_else(|what| panic!("{name}: {what}"));
    compare(&(array as Device), &data).await.unwrap_or_else(|what| panic!("{name}: {what}"));
}
