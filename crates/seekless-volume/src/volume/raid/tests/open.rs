//! Aim: an array is assembled exactly when its content can be trusted. Method: members in every state.

use super::*;

fn disks(count: usize) -> Vec<Rc<Memory>> {
    (0..count).map(|_| Rc::new(Memory::new(600 << 10))).collect()
}

fn all(disks: &[Rc<Memory>]) -> Vec<Device> {
    disks.iter().map(|disk| disk.clone() as Device).collect()
}

fn given(disks: &[Rc<Memory>]) -> Vec<Option<Device>> {
    all(disks).into_iter().map(Some).collect()
}

async fn put(array: &Array, byte: u8) {
    array.write(Sector(0), Data::from_slice(&[byte; 65_536]), WriteFlags::NONE).await.unwrap();
    array.flush().await.unwrap();
}

async fn first(array: &Array) -> u8 {
    array.read(Sector(9), Buf::dirty(512)).await.unwrap()[0]
}

fn run(body: impl AsyncFnOnce(Rt)) {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    executor.block_on(body(rt)).unwrap();
}

/// In any order; members that do not fit are refused with a reason.
#[test]
fn members_are_recognised() {
    run(async |rt| {
        let parts = disks(4);
        let options = small(Level::Parity);
        put(&Array::create(&rt, all(&parts), &options, UUID, Contents::Unknown).await.unwrap(), 3).await;
        let mut mixed = given(&parts);
        mixed.rotate_left(1);
        assert_eq!(first(&Array::open(&rt, mixed, &options).await.unwrap()).await, 3);
        let error = async |members: Vec<Option<Device>>, options: ArrayOptions| {
            Array::open(&rt, members, &options).await.err().map(|error| error.to_string()).unwrap_or_default()
        };
        let one_less = |slot: usize| {
            let mut members = given(&parts);
            members[slot] = None;
            members
        };
        assert_eq!(error(one_less(2), options).await, "member 2 is missing: it could not be opened");
        assert_eq!(
            error(given(&parts), options.unit(16)).await,
            "the stripe unit: 8 KiB is asked for, and the array has 4 KiB"
        );
        assert!(error(given(&parts), small(Level::Mirror)).await.starts_with("the kind of array: raid1"));
        assert!(error(given(&parts[..3]), options).await.starts_with("the number of members"));
        let copy = |slot: usize| {
            let mut members = given(&parts);
            members[slot] = Some(Rc::new(Memory::from_image(600 << 10, parts[0].image())));
            members
        };
        assert!(error(copy(1), options).await.contains("one is a copy of the other"));
        assert!(error(given(&disks(4)), options).await.starts_with("there is no array: member 0: it holds no array"));
        let others = disks(4);
        Array::create(&rt, all(&others), &options, [8; 16], Contents::Unknown).await.unwrap();
        let mut foreign = given(&parts);
        foreign[3] = Some(others[3].clone());
        assert_eq!(error(foreign, options).await, "member 3 belongs to another array");
        let degraded = ArrayOptions { degraded: true, ..options };
        let array = Array::open(&rt, one_less(2), &degraded).await.unwrap();
        assert_eq!((first(&array).await, array.status().members[2]), (3, Standing::Failed));
        let mut two_less = one_less(2);
        two_less[0] = None;
        assert!(error(two_less, degraded).await.starts_with("2 members hold the data and 3 are needed"));
    });
}

/// A member that has missed a write is never trusted again, even when the up-to-date members come back late.
#[test]
fn stale_members_are_not_believed() {
    run(async |rt| {
        for level in [Level::Mirror, Level::Parity] {
            let parts = disks(3);
            let options = small(level);
            let array = Array::create(&rt, all(&parts), &options, UUID, Contents::Unknown).await.unwrap();
            put(&array, 1).await;
            array.give_up(1).await.unwrap();
            put(&array, 2).await;
            drop(array);
            let array = Array::open(&rt, given(&parts), &options).await.unwrap();
            assert_eq!((first(&array).await, array.status().members[1]), (2, Standing::Failed), "{level:?}");
            assert!(array.give_up(0).await.is_err() == (level == Level::Parity));
            // A new one takes its place; the array is then complete without it.
            let spare = Rc::new(Memory::new(600 << 10));
            if level == Level::Parity {
                array.replace(1, spare.clone()).await.unwrap();
                while !array.status().is_healthy() {
                    rt.yield_now().await;
                    assert_eq!(array.status().error, None);
                }
                drop(array);
                let mut members = given(&parts);
                let stale = members[1].replace(spare);
                let array = Array::open(&rt, members.clone(), &options).await.unwrap();
                assert!(array.status().is_healthy());
                assert_eq!(first(&array).await, 2);
                members[1] = stale;
                assert_eq!(
                    Array::open(&rt, members, &options).await.err().map(|error| error.to_string()).unwrap(),
                    "member 1 is missing: it is out of date"
                );
            }
        }
    });
}

/// Two halves of a mirror that were each used alone are distinguished from a stale half.
#[test]
fn split_mirrors_are_noticed() {
    run(async |rt| {
        let parts = disks(2);
        let options = ArrayOptions { degraded: true, ..small(Level::Mirror) };
        put(&Array::create(&rt, all(&parts), &options, UUID, Contents::Unknown).await.unwrap(), 1).await;
        for alone in 0..2 {
            let members = (0..2).map(|slot| (slot == alone).then(|| parts[slot].clone() as Device)).collect();
            put(&Array::open(&rt, members, &options).await.unwrap(), 2 + alone as u8).await;
        }
        let error = Array::open(&rt, given(&parts), &options).await.err().unwrap();
        assert_eq!(error, ArrayError::Conflict { one: 0, two: 1 }, "{error}");
    });
}

/// Looking changes nothing.
#[test]
fn read_only_changes_nothing() {
    run(async |rt| {
        let parts = disks(3);
        let options = ArrayOptions { degraded: true, ..small(Level::Parity) };
        put(&Array::create(&rt, all(&parts), &options, UUID, Contents::Unknown).await.unwrap(), 1).await;
        let mut members = given(&parts);
        let faulty = FaultDevice::new(&rt, parts[0].clone(), 1);
        faulty.add(Rule::new(Kinds::WRITE | Kinds::DISCARD, When::Always, Effect::ReadOnly));
        members[0] = Some(faulty.clone());
        members[2] = None;
        let array = Array::open(&rt, members, &ArrayOptions { read_only: true, ..options }).await.unwrap();
        assert_eq!((first(&array).await, faulty.failed()), (1, 0));
        assert!(Array::open(&rt, given(&parts), &small(Level::Parity)).await.unwrap().status().is_healthy());
    });
}

/// Bytes of superblock, bitmap and journal are input: whatever they are, opening returns and does not panic, and an
/// array that it opens can be read. Method: random damage.
#[test]
fn damaged_metadata_is_survived() {
    run(async |rt| {
        let parts = disks(3);
        let options = ArrayOptions { degraded: true, ..small(Level::Parity) };
        let array = Array::create(&rt, all(&parts), &options, UUID, Contents::Unknown).await.unwrap();
        array.give_up(2).await.unwrap();
        put(&array, 1).await;
        drop(array);
        let images: Vec<Image> = parts.iter().map(|part| part.image()).collect();
        let mut rng = crate::rng::Rng::new(1);
        let (mut opened, mut refused) = (0, 0);
        for _ in 0..300 {
            let members = images.iter().map(|image| {
                let mut image = image.clone();
                for _ in 0..rng.below(12) {
                    let at = Sector(rng.below(40));
                    let mut sector = [0; 512];
                    image.read(at, &mut sector);
                    for _ in 0..rng.between(1, 4) {
                        sector[rng.below(200) as usize] = rng.next_u64() as u8;
                    }
                    image.write(at, &sector);
                }
                Some(Rc::new(Memory::from_image(600 << 10, image)) as Device)
            });
            match Array::open(&rt, members.collect(), &options).await {
                Ok(array) => {
                    opened += 1;
                    assert_eq!(first(&array).await, 1);
                }
                Err(_) => refused += 1,
            }
        }
        assert!(opened > 20 && refused > 10, "{opened} {refused}");
    });
}
