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

/// Aim: an opening that a member ends names that member. Method: an array without a member, of which another one cannot be written.
#[test]
fn the_member_that_ends_an_opening_is_named() {
    run(async |rt| {
        for bad in 1..3 {
            let parts = disks(3);
            let options = ArrayOptions { degraded: true, ..small(Level::Parity) };
            put(&Array::create(&rt, all(&parts), &options, UUID, Contents::Zeroes).await.unwrap(), 3).await;
            let fault = FaultDevice::new(&rt, parts[bad].clone(), 1);
            fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Error));
            let mut members = given(&parts);
            members[0] = None;
            members[bad] = Some(fault);
            let error = Array::open(&rt, members, &options).await.err().expect("it cannot be written").to_string();
            assert!(error.contains(&format!("member {bad}")) && !error.contains("member 0"), "{error}");
        }
    });
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
        assert_eq!((first(&array).await, array.status().members[2]), (3, MemberState::Failed));
        let mut two_less = one_less(2);
        two_less[0] = None;
        assert_eq!(
            error(two_less, degraded).await,
            "2 of its members hold the data, and it needs 3: member 0: it could not be opened; member 2: it has failed"
        );
    });
}

/// Members that were cut short are named with what they have and what they need, whether the others suffice or not. Method: copies of
/// the first 500 of 600 KiB, of one member or of all, opened and looked at.
#[test]
fn members_that_were_cut_are_named() {
    run(async |rt| {
        for level in [Level::Mirror, Level::Parity] {
            let parts = disks(3);
            let options = small(level);
            let array = Array::create(&rt, all(&parts), &options, UUID, Contents::Zeroes).await.unwrap();
            let used = array.core.shape.end() * SECTOR_BYTES;
            array.release().await.unwrap();
            drop(array);
            let cut_all = |cut: &dyn Fn(usize) -> bool| -> Vec<Option<Device>> {
                let bytes = |slot| if cut(slot) { 500 << 10 } else { 600 << 10 };
                let copy = |(slot, part): (usize, &Rc<Memory>)| Memory::from_image(bytes(slot), part.image());
                parts.iter().enumerate().map(|part| Some(Rc::new(copy(part)) as Device)).collect()
            };
            let short =
                format!("is shorter than when the array was made: 512000 of the {used} bytes that the array uses");
            let error = async |members| Array::open(&rt, members, &options).await.err().unwrap().to_string();
            let one = cut_all(&|slot| slot == 1);
            let info = info(&one).await.unwrap().unwrap();
            assert_eq!((info.present(), info.given[1].why.as_deref()), (2, Some(&*short)), "{level:?}");
            assert_eq!(error(one).await, format!("member 1 is missing: it {short}"));
            let every = cut_all(&|_| true);
            assert_eq!(super::info(&every).await.unwrap().unwrap().present(), 0, "{level:?}");
            let needed = if level == Level::Mirror { 1 } else { 2 };
            let members = [0, 1, 2].map(|slot| format!("member {slot}: it {short}")).join("; ");
            let wanted = format!("0 of its members hold the data, and it needs {needed}: {members}");
            assert_eq!(error(every).await, wanted);
        }
    });
}

/// Where several devices are not known, any of them may be the member that is missing.
#[test]
fn all_that_is_unknown_is_named() {
    run(async |rt| {
        let parts = disks(3);
        let options = small(Level::Mirror);
        Array::create(&rt, all(&parts), &options, UUID, Contents::Zeroes).await.unwrap();
        let members = vec![None, Some(disks(1)[0].clone() as Device), Some(parts[2].clone() as Device)];
        let error = Array::open(&rt, members, &options).await.err().unwrap().to_string();
        assert_eq!(error, "member 0 is missing: it could not be opened; it holds no array");
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
            assert_eq!((first(&array).await, array.status().members[1]), (2, MemberState::Failed), "{level:?}");
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

/// A new array on copies of `images`, the one in `slot` exchanged.
fn copies(images: &[Image], slot: usize, other: Option<&Image>) -> Vec<Option<Device>> {
    let image = |(member, image)| if member == slot { other } else { Some(image) };
    let images = images.iter().enumerate().map(image);
    images.map(|image| image.map(|image| Rc::new(Memory::from_image(600 << 10, image.clone())) as Device)).collect()
}

/// Member `slot` is the copy `old`: it is refused, what has been `stored` is there without it, and with a new member in its
/// place.
async fn is_refused(
    rt: &Rt,
    now: &[Image],
    slot: usize,
    old: &Image,
    options: &ArrayOptions,
    stored: &[u8],
    name: &str,
) {
    let given = || copies(now, slot, Some(old));
    let error = Array::open(rt, given(), options).await.err().unwrap_or_else(|| panic!("{name} is believed"));
    assert_eq!(error.to_string(), format!("member {slot} is missing: it is out of date"), "{name}");
    let degraded = ArrayOptions { degraded: true, ..*options };
    let array = Array::open(rt, given(), &degraded).await.unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(array.status().members[slot], MemberState::Failed, "{name}");
    compare(&(array.clone() as Device), stored).await.unwrap_or_else(|what| panic!("{name}: {what}"));
    array.replace(slot, Rc::new(Memory::from_image(600 << 10, old.clone()))).await.unwrap();
    while !array.status().is_healthy() {
        rt.yield_now().await;
        assert_eq!(array.status().error, None, "{name}");
    }
    array.give_up((slot + 1) % now.len()).await.unwrap();
    compare(&(array.clone() as Device), stored).await.unwrap_or_else(|what| panic!("{name}: {what}"));
}

/// Aim: a copy of a member from earlier is refused, and nothing that has been stored since is lost to it: neither where
/// the array continues without that member, nor where it takes the copy's place. Method: sessions of random writes with
/// orderly ends and others; copies from the end of each, and from within, take the place of each member after each
/// later session.
#[test]
fn an_earlier_copy_of_a_member_is_not_believed() {
    let mut refused = 0;
    for (seed, level, members, journal) in [
        (1, Level::Mirror, 2, JournalUse::Degraded),
        (2, Level::Mirror, 3, JournalUse::Degraded),
        (3, Level::Parity, 3, JournalUse::Degraded),
        (4, Level::Parity, 4, JournalUse::Always),
    ] {
        run(async |rt| {
            let mut rng = crate::rng::Rng::new(seed);
            let parts = disks(members);
            let images = || parts.iter().map(|part| part.image()).collect::<Vec<Image>>();
            let options = ArrayOptions { journal, ..small(level) };
            let mut stored = Vec::new();
            let mut earlier: Vec<Vec<Image>> = Vec::new();
            for session in 0..6 {
                let array = match session {
                    0 => Array::create(&rt, all(&parts), &options, UUID, Contents::Zeroes).await.unwrap(),
                    _ => Array::open(&rt, given(&parts), &options).await.unwrap(),
                };
                stored.resize(array.geometry().bytes() as usize, 0);
                for turn in 0..6u8 {
                    let length = rng.between(1, 40);
                    let at = rng.below(array.geometry().sectors - length);
                    let bytes = vec![session * 10 + turn + 1; (length * SECTOR_BYTES) as usize];
                    stored[(at * SECTOR_BYTES) as usize..][..bytes.len()].copy_from_slice(&bytes);
                    array.write(Sector(at), Data::from_slice(&bytes), WriteFlags::NONE).await.unwrap();
                    if turn == 3 {
                        array.flush().await.unwrap();
                    }
                }
                // Every other session ends as with a kill. Then a lost member of parity would put rows in doubt.
                let is_orderly = session % 2 == 1;
                if is_orderly {
                    // From within a session that ends in order.
                    earlier.push(images());
                    array.write(Sector(0), Data::from_slice(&[200 + session; 4096]), WriteFlags::NONE).await.unwrap();
                    stored[..4096].fill(200 + session);
                    array.release().await.unwrap();
                }
                array.flush().await.unwrap();
                drop(array);
                let now = images();
                if is_orderly || level == Level::Mirror || journal == JournalUse::Always {
                    // After a kill, copies from within that session are not told apart.
                    for (number, old) in earlier.iter().enumerate() {
                        for (slot, copy) in old.iter().enumerate() {
                            let name = format!("{level:?} of {members}, session {session}: {slot} from {number}");
                            is_refused(&rt, &now, slot, copy, &options, &stored, &name).await;
                            refused += 1;
                        }
                    }
                }
                earlier.push(now);
            }
        });
    }
    assert!(refused > 100, "{refused}");
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

/// An older copy of one half that was used alone does not outdo the other half, which went on with the newer one.
#[test]
fn a_copy_that_went_on_alone_is_noticed() {
    run(async |rt| {
        for (alone, together, old) in
            (0..25).flat_map(|turns| [(turns / 5 + 1, turns % 5 + 1, 0), (turns / 5 + 1, turns % 5 + 1, 1)])
        {
            let parts = disks(2);
            let options = small(Level::Mirror);
            put(&Array::create(&rt, all(&parts), &options, UUID, Contents::Unknown).await.unwrap(), 1).await;
            let copy = Rc::new(Memory::from_image(600 << 10, parts[old].image()));
            for turn in 0..together {
                put(&Array::open(&rt, given(&parts), &options).await.unwrap(), 10 + turn).await;
            }
            let degraded = ArrayOptions { degraded: true, ..options };
            let with_copy = |other: Option<Device>| {
                let mut members = vec![other; 2];
                members[old] = Some(copy.clone() as Device);
                members
            };
            for turn in 0..alone {
                put(&Array::open(&rt, with_copy(None), &degraded).await.unwrap(), 20 + turn).await;
            }
            let members = with_copy(Some(parts[1 - old].clone()));
            let error = Array::open(&rt, members, &options).await.err().unwrap();
            // With fewer turns it is a copy from earlier; with more, it would be the one that is trusted.
            match alone + 1 < together {
                true => assert_eq!(error.to_string(), format!("member {old} is missing: it is out of date")),
                false => assert_eq!(error, ArrayError::Conflict { one: 0, two: 1 }, "{alone} {together}"),
            }
        }
    });
}

/// A member that was one generation ahead when the power failed, and then missed a start, has failed and no more.
#[test]
fn a_member_that_was_ahead_has_not_gone_on() {
    use crate::volume::format::{SUPERBLOCKS, Superblock};
    run(async |rt| {
        for ahead in 0..2 {
            let parts = disks(2);
            let options = ArrayOptions { degraded: true, ..small(Level::Mirror) };
            put(&Array::create(&rt, all(&parts), &options, UUID, Contents::Zeroes).await.unwrap(), 1).await;
            let mut image = parts[ahead].image();
            let mut block = vec![0; 4096];
            image.read(Sector(SUPERBLOCKS[1]), &mut block);
            let found = Superblock::from_block(&block).unwrap();
            let next = Superblock { generation: found.generation + 1, ..found };
            image.write(Sector(SUPERBLOCKS[(next.generation % 2) as usize]), &next.to_block());
            parts[ahead].set_image(image);
            let mut members = given(&parts);
            members[ahead] = None;
            put(&Array::open(&rt, members, &options).await.unwrap(), 2).await;
            let array = Array::open(&rt, given(&parts), &options).await.unwrap();
            assert_eq!((first(&array).await, array.status().members[ahead]), (2, MemberState::Failed));
        }
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

/// Aim: where no member has an intact bitmap, all rows count as being written when the power failed. Method: a row that
/// a power cut has left inconsistent, and each sector of the bitmap damaged on all members; then the array is as it
/// should be.
#[test]
fn a_bitmap_that_is_lost_on_all_members() {
    run(async |rt| {
        for level in [Level::Mirror, Level::Parity] {
            for is_lost in [false, true] {
                let parts = disks(3);
                let options = small(level);
                let array = Array::create(&rt, all(&parts), &options, UUID, Contents::Zeroes).await.unwrap();
                put(&array, 1).await;
                Box::pin(array.release()).await.unwrap();
                let (layout, data_start) = (array.core.layout.unwrap(), array.data_start());
                drop(array);
                for (slot, part) in parts.iter().enumerate() {
                    let mut image = part.image();
                    if slot == 1 {
                        image.write(Sector(data_start + 3), &[9; 512]);
                    }
                    if is_lost {
                        let first = crate::volume::format::bitmap_start(0, layout.bitmap_sectors);
                        image.zero(Sector(first), layout.journal_start - first);
                    }
                    part.set_image(image);
                }
                let array = Array::open(&rt, given(&parts), &options).await.unwrap();
                let rows = array.core.shape.rows;
                assert_eq!(array.status().out_of_sync, if is_lost { rows } else { 0 }, "{level:?}");
                while !array.status().is_healthy() {
                    rt.yield_now().await;
                    assert_eq!(array.status().error, None);
                }
                assert_eq!(array.scrub().await, Ok(u64::from(!is_lost)), "{level:?}");
            }
        }
    });
}

/// Aim: where three copies of a row may differ after a kill, two that are alike decide: a fault of one member, the first
/// too, does not reach the others. Method: each member is spoilt in a row whose bit is set.
#[test]
fn two_of_three_copies_decide_after_a_kill() {
    run(async |rt| {
        for slot in 0..3 {
            let parts = disks(3);
            let options = small(Level::Mirror);
            let array = Array::create(&rt, all(&parts), &options, UUID, Contents::Zeroes).await.unwrap();
            array.write(Sector(0), Data::from_slice(&[3; 65_536]), WriteFlags::NONE).await.unwrap();
            let data_start = array.data_start();
            let mut image = parts[slot].image();
            drop(array);
            image.write(Sector(data_start + 9), &[9; 512]);
            parts[slot].set_image(image);
            let array = Array::open(&rt, given(&parts), &options).await.unwrap();
            assert!(array.status().out_of_sync > 0);
            assert_eq!(first(&array).await, 3, "member {slot}");
            while !array.status().is_healthy() {
                rt.yield_now().await;
            }
            assert_eq!(array.scrub().await, Ok(0));
        }
    });
}

/// Aim: a record of the journal is done again only where data is. Method: an intact record, and the same with one
/// number that leads elsewhere, under right checksums.
#[test]
fn records_of_the_journal_lead_to_data() {
    use crate::volume::format::{RecordEntry, RecordHead};
    run(async |rt| {
        type Spoil = fn(&mut RecordEntry, &Array);
        let cases: [(bool, Spoil); 5] = [
            (true, |_, _| {}),
            (false, |entry, array| entry.member = array.core.shape.members as u16),
            (false, |entry, array| entry.at = array.data_start() - 1),
            (false, |entry, array| {
                let shape = &array.core.shape;
                entry.at = shape.data_start + shape.rows * shape.unit - u64::from(entry.sectors) + 1;
            }),
            (false, |entry, _| entry.at = u64::MAX - 1),
        ];
        for (number, (is_good, spoil)) in cases.into_iter().enumerate() {
            let parts = disks(3);
            let options = ArrayOptions { journal: JournalUse::Always, ..small(Level::Parity) };
            let array = Array::create(&rt, all(&parts), &options, UUID, Contents::Zeroes).await.unwrap();
            array.write(Sector(0), Data::from_slice(&[5; 4096]), WriteFlags::NONE).await.unwrap();
            let layout = array.core.layout.unwrap();
            let mut changed = 0;
            for part in &parts {
                let mut image = part.image();
                let mut bytes = vec![0; (layout.journal_sectors * SECTOR_BYTES) as usize];
                image.read(Sector(layout.journal_start), &mut bytes);
                let Some(head) = RecordHead::peek(&bytes, &UUID, 1) else { continue };
                let length = (u64::from(head.head_sectors) * SECTOR_BYTES) as usize;
                let payload = &bytes[length..][..(u64::from(head.payload_sectors) * SECTOR_BYTES) as usize];
                let mut entries = head.entries(&bytes[..length], payload).unwrap();
                spoil(&mut entries[0], &array);
                image.write(Sector(layout.journal_start), &head.to_bytes(&entries));
                part.set_image(image);
                changed += 1;
            }
            assert!(changed > 0);
            drop(array);
            match Array::open(&rt, given(&parts), &options).await {
                Ok(array) => {
                    assert!(is_good, "case {number} is not noticed");
                    assert_eq!(array.read(Sector(0), Buf::dirty(4096)).await.unwrap()[..], [5; 4096]);
                }
                Err(error) => {
                    assert!(!is_good && matches!(error, ArrayError::Journal { .. }), "case {number}: {error}")
                }
            }
        }
    });
}

/// Aim: rows on both sides of where a rebuilding has come to are resynchronised on the members that hold them. Method:
/// a mirror whose power failed while a row just before that place was written; what is before it is there on the
/// rebuilt member, too.
#[test]
fn rows_around_the_end_of_a_rebuild_are_resynchronised() {
    use crate::volume::format::{SUPERBLOCKS, Superblock};
    const REBUILT: u64 = 10;
    run(async |rt| {
        let parts = disks(3);
        // Five rows are resynchronised at once, and a region has four.
        let options = ArrayOptions { batch: 20 * KIB, ..small(Level::Mirror) };
        let array = Array::create(&rt, all(&parts), &options, UUID, Contents::Zeroes).await.unwrap();
        put(&array, 1).await;
        Box::pin(array.release()).await.unwrap();
        let (unit, data_start) = (array.core.shape.unit, array.data_start());
        let row = REBUILT - 1;
        array.write(Sector(row * unit), Data::from_slice(&[2; 4096]), WriteFlags::NONE).await.unwrap();
        let copies: Vec<Rc<Memory>> =
            parts.iter().map(|part| Rc::new(Memory::from_image(600 << 10, part.image()))).collect();
        drop(array);
        for (slot, copy) in copies.iter().enumerate() {
            let mut image = copy.image();
            for at in SUPERBLOCKS {
                let mut block = vec![0; 4096];
                image.read(Sector(at), &mut block);
                // One of the two slots may be empty.
                let Ok(mut superblock) = Superblock::from_block(&block) else { continue };
                superblock.states[2] = super::super::core::MemberStateByte::to_byte(MemberState::Rebuilding);
                superblock.rebuilt_rows = REBUILT;
                image.write(Sector(at), &superblock.to_block());
            }
            if slot > 0 {
                // All three differ there, so that the first counts.
                image.write(Sector(data_start + row * unit), &[slot as u8 * 3; 4096]);
            }
            if slot == 2 {
                image.write(Sector(data_start + REBUILT * unit), &[7; 4096]);
            }
            copy.set_image(image);
        }
        let array = Array::open(&rt, given(&copies), &options).await.unwrap();
        assert_eq!((array.status().members[2], array.status().rebuilt), (MemberState::Rebuilding, REBUILT));
        assert!(array.status().out_of_sync > 0);
        while !array.status().is_healthy() {
            rt.yield_now().await;
            assert_eq!(array.status().error, None);
        }
        assert_eq!(array.scrub().await, Ok(0));
        assert_eq!(array.read(Sector(row * unit), Buf::dirty(4096)).await.unwrap()[..], [2; 4096]);
    });
}

/// Aim: no request is longer than a member takes, also where rows are resynchronised, rebuilt and compared, and where
/// the last part of what is read is shorter than the others. Method: devices that say what is too long.
#[test]
fn members_that_take_short_requests() {
    use crate::device::crash::{CrashDevice, CrashOptions};
    run(async |rt| {
        for level in [Level::Mirror, Level::Parity] {
            let disk = |seed: u64| {
                let options = CrashOptions { seed, request_bytes_max: 12 << 10, ..CrashOptions::volatile(600 << 10) };
                CrashDevice::new(&rt, Image::default(), options)
            };
            let parts: Vec<Rc<CrashDevice>> = (0..3).map(disk).collect();
            let members = parts.iter().map(|part| part.clone() as Device).collect();
            let array = Array::create(&rt, members, &small(level), UUID, Contents::Unknown).await.unwrap();
            for part in 0..6 {
                let data = Data::from_slice(&[part as u8 + 1; 12 << 10]);
                array.write(Sector(part * 24), data, WriteFlags::NONE).await.unwrap();
            }
            while array.status().out_of_sync > 0 {
                rt.sleep(Nanos::from_millis(1)).await;
            }
            array.give_up(1).await.unwrap();
            let spare = disk(9);
            array.replace(1, spare.clone()).await.unwrap();
            while !array.status().is_healthy() {
                rt.sleep(Nanos::from_millis(1)).await;
                assert_eq!(array.status().error, None);
            }
            assert_eq!(array.scrub().await, Ok(0), "{level:?}");
            for part in 0..6 {
                let read = array.read(Sector(part * 24), Buf::dirty(12 << 10)).await.unwrap();
                assert!(read.iter().all(|&byte| byte == part as u8 + 1), "{level:?}");
            }
            for part in parts.iter().chain([&spare]) {
                assert_eq!(part.violations(), Vec::<String>::new(), "{level:?}");
            }
        }
    });
}

/// Aim: one task resynchronises and rebuilds, so that the end of what is rebuilt only goes up. Method: a member is
/// replaced while rows are being resynchronised, and replaced again while it is being rebuilt.
#[test]
fn a_member_is_replaced_during_a_resync() {
    for seed in 0..20 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let body = async {
            let disk = || slow(&rt, &[1200], seed).remove(0);
            let members = (0..3).map(|_| disk()).collect();
            let array = Array::create(&rt, members, &small(Level::Mirror), UUID, Contents::Unknown).await.unwrap();
            put(&array, 4).await;
            for delay in [0, seed, 2 * seed] {
                rt.sleep(Nanos::from_millis(delay)).await;
                array.give_up(1).await.unwrap();
                array.replace(1, disk()).await.unwrap();
            }
            while !array.status().is_healthy() {
                rt.sleep(Nanos::from_millis(1)).await;
                assert_eq!(array.status().error, None, "seed {seed}");
            }
            assert_eq!((array.scrub().await, first(&array).await), (Ok(0), 4), "seed {seed}");
        };
        executor.block_on(body).unwrap();
    }
}

/// A device that promises nothing about what a discard leaves, and leaves other bytes.
struct Forgetful(Rc<Memory>);

#[async_trait::async_trait(?Send)]
impl crate::device::BlockDevice for Forgetful {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { discard: Discard::Undefined, ..self.0.guarantees() }
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.0.read(at, buf).await
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.0.write(at, data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.0.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let noise = vec![0x5a; (sectors * SECTOR_BYTES) as usize];
        self.0.write(at, Data::from_slice(&noise), WriteFlags::NONE).await
    }

    fn describe(&self) -> String {
        "forgetful".to_owned()
    }
}

/// Aim: a discard in the journal is repeated as zeroes on whatever the members are then, such as disks in place of the
/// files that promised zeroes. Method: members whose discards leave other bytes, after a kill.
#[test]
fn zeroes_in_the_journal_are_written_where_discards_promise_nothing() {
    for level in [Level::Mirror, Level::Parity] {
        run(async |rt| {
            let parts = disks(3);
            let options = ArrayOptions { journal: JournalUse::Always, ..small(level) };
            let array = Array::create(&rt, all(&parts), &options, UUID, Contents::Zeroes).await.unwrap();
            put(&array, 7).await;
            array.discard(Sector(0), 64).await.unwrap();
            array.flush().await.unwrap();
            drop(array);
            let moved = parts.iter().map(|part| Some(Rc::new(Forgetful(part.clone())) as Device)).collect();
            let array = Array::open(&rt, moved, &options).await.unwrap();
            array.resynced().await;
            assert_eq!(array.check().await, Ok(()));
            let read = array.read(Sector(0), Buf::dirty(65_536)).await.unwrap();
            let (zeroes, rest) = read.split_at(64 * 512);
            assert!(zeroes.iter().all(|&byte| byte == 0) && rest.iter().all(|&byte| byte == 7), "{level:?}");
        });
    }
}
