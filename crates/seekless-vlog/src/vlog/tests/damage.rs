//! Aim: damage is found or harmless, and no user data passes for a piece of the map. Method: known places changed, one
//! after the other, and copies of real pieces as data.

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::device::fault::FaultDevice;
use crate::device::fork::ForkDevice;
use crate::vlog::format::{ANCHORS, FIXED_SECTORS, Key, Piece};

const MADE: Key = Key { uuid: [7; 16], key: [9; 16] };

/// A disk that was used and not parked, its content, and the number of its blocks.
async fn used(rt: &Rt, bytes: u64, window: u64, park: bool) -> (Device, Vec<u64>) {
    let memory: Device = Rc::new(Memory::new(bytes));
    let options = Options { window, ..Options::default() };
    let vld = Vld::create(rt, memory.clone(), &plan(), options).await.expect("made");
    let blocks = vld.geometry().bytes() / 4096;
    let mut newest = vec![0; blocks as usize];
    let mut rng = Rng::new(5);
    for number in 1..=600 {
        let block = rng.below(blocks);
        write(&vld, block, 1, number).await;
        newest[block as usize] = number;
    }
    if park {
        vld.release().await.expect("it can be put away");
    }
    (memory, newest)
}

async fn has(vld: &Rc<Vld>, newest: &[u64]) -> bool {
    for (block, &number) in newest.iter().enumerate() {
        if number_of(vld, block as u64).await != number {
            return false;
        }
    }
    true
}

async fn zero(device: &Device, at: u64) {
    device.write(Sector(at), Data::zeroes(4096), WriteFlags::NONE).await.expect("the device works");
}

/// A lost park record, anchor or superblock costs time at most.
#[test]
fn fixed_places_may_be_lost() {
    run(1, async |rt: Rt| {
        for park in [true, false] {
            let (device, newest) = used(&rt, 4 * MIB, 512 * KIB, park).await;
            let back = device.geometry().sectors - FIXED_SECTORS;
            for lost in [vec![0], vec![back], vec![ANCHORS[0]], vec![ANCHORS[1]], ANCHORS.to_vec()] {
                let fork: Device = ForkDevice::new(device.clone());
                for &at in &lost {
                    zero(&fork, at).await;
                }
                let checkup = check(&fork).await.expect("it can be checked");
                assert_eq!((checkup.errors.len(), checkup.notes.len()), (0, 1), "{lost:?}: {checkup:?}");
                if let Some(info) = probe(&fork).await.expect("it can be described") {
                    let is_found_at_once = park && !ANCHORS.contains(&lost[0]);
                    assert_eq!(info.is_parked, is_found_at_once, "{lost:?}: as the next start finds it");
                }
                let vld = Vld::open(&rt, fork.clone(), Options::default()).await.expect("it opens");
                assert!(has(&vld, &newest).await, "{lost:?}");
                let is_anchor = ANCHORS.contains(&lost[0]);
                assert_eq!(vld.recovery().was_parked, park && !is_anchor, "{lost:?}");
                if is_anchor {
                    assert_eq!(vld.recovery().blocks_scanned, 1024, "the whole device is searched");
                }
            }
            let fork: Device = ForkDevice::new(device.clone());
            zero(&fork, 0).await;
            zero(&fork, back).await;
            assert_eq!(Vld::open(&rt, fork, Options::default()).await.err(), Some(VldError::Nothing));
        }
    });
}

/// Aim: anchors that cannot be read at a start and can be later are not believed then, though they have higher generations: nothing that is
/// acknowledged between is lost, nor what was there before. Method: both are lost for one life, which a power cut ends at any write,
/// and can be read again; they are parked or not, and the newer one is in either slot.
#[test]
fn anchors_that_can_be_read_again_are_not_believed() {
    const BYTES: u64 = 2 * MIB;
    let options = Options { window: 256 * KIB, commit: CommitUse::Flush, ..Options::default() };
    for (lives, park) in [(1, true), (1, false), (2, true), (2, false), (3, true), (3, false)] {
        run(1, async |rt: Rt| {
            let name = format!("{lives} lives before, parked: {park}");
            let memory = Rc::new(Memory::new(BYTES));
            Vld::create(&rt, memory.clone(), &plan(), options).await.expect("made");
            let blocks = 60;
            let (mut newest, mut number, mut rng) = (vec![0; blocks as usize], 0, Rng::new(lives));
            let mut write_some = async |vld: &Rc<Vld>, newest: &mut Vec<u64>| {
                let block = rng.below(blocks);
                number += 1;
                write(vld, block, 1, number).await;
                vld.flush().await.expect("it can be flushed");
                newest[block as usize] = number;
            };
            for life in 0..lives {
                let vld = Vld::open(&rt, memory.clone(), options).await.expect("it opens");
                for _ in 0..100 + life * 57 {
                    write_some(&vld, &mut newest).await;
                }
                if park {
                    vld.release().await.expect("it can be put away");
                }
            }
            let recorded = CrashOptions { record: true, ..CrashOptions::volatile(BYTES) };
            let crash = CrashDevice::new(&rt, memory.image(), recorded);
            let fault = FaultDevice::new(&rt, crash.clone(), 1);
            fault.lose(Sector(ANCHORS[0])..Sector(ANCHORS[1] + FIXED_SECTORS));
            let vld = Vld::open(&rt, fault, options).await.expect("it opens");
            let mut states = vec![(0, newest.clone())];
            for _ in 0..40 {
                write_some(&vld, &mut newest).await;
                states.push((crash.position(), newest.clone()));
            }
            let log = crash.log();
            for position in log.positions() {
                let cut = log.cut(position);
                let acknowledged = states.iter().rposition(|(at, _)| *at <= position).expect("there is the beginning");
                for choice in cut.choices(&Effort::SAMPLED, 1) {
                    let copy = Rc::new(Memory::from_image(BYTES, cut.image(&choice)));
                    let again = Vld::open(&rt, copy, options).await;
                    let again = again.unwrap_or_else(|error| panic!("{name}, cut {position}:{choice:?}: {error}"));
                    let mut may = states[acknowledged..].iter().take(2);
                    let mut is_one = false;
                    while let Some((_, state)) = may.next().filter(|_| !is_one) {
                        is_one = has(&again, state).await;
                    }
                    assert!(is_one, "{name}, cut {position}:{choice:?}: {acknowledged} flushes were acknowledged");
                }
            }
        });
    }
}

/// After a power cut one window is searched and every piece read once, however large the device is.
#[test]
fn recovery_is_bounded() {
    run(1, async |rt: Rt| {
        for mib in [4, 16, 64] {
            let (device, newest) = used(&rt, mib * MIB, 512 * KIB, false).await;
            let vld = Vld::open(&rt, device.clone(), Options::default()).await.expect("it opens");
            assert!(has(&vld, &newest).await);
            let recovery = vld.recovery();
            assert!(recovery.blocks_scanned <= 128, "{recovery:?}");
            // Few of the pieces that are read ahead turn out to be obsolete.
            assert!(recovery.pieces_read <= 2 * u64::from(vld.layout().pieces) + 32, "{recovery:?}");
        }
    });
}

/// A missing piece is always noticed; an older one never takes its place.
#[test]
fn lost_pieces_are_noticed() {
    run(1, async |rt: Rt| {
        for park in [true, false] {
            let (device, newest) = used(&rt, 4 * MIB, 4 * MIB, park).await;
            let (mut live, mut obsolete) = (0, 0);
            let mut youngest = (0, 0);
            for cell in 24..device.geometry().sectors {
                let read = device.read(Sector(cell), Buf::dirty(512)).await.expect("the device works");
                if let Some(piece) = Piece::from_cell(&read, &MADE, cell) {
                    youngest = youngest.max((piece.sequence, cell));
                }
            }
            for cell in 24..device.geometry().sectors {
                // Only the tail itself tells of the tail of a disk that was not parked: without it the log ends
                // earlier.
                if !park && cell == youngest.1 {
                    continue;
                }
                let read = device.read(Sector(cell), Buf::dirty(512)).await.expect("the device works");
                if Piece::from_cell(&read, &MADE, cell).is_none() {
                    continue;
                }
                let fork: Device = ForkDevice::new(device.clone());
                let mut damaged = Buf::from_slice(&read);
                damaged[200] ^= 4;
                fork.write(Sector(cell), damaged.freeze(), WriteFlags::NONE).await.expect("it can be written");
                match Vld::open(&rt, fork.clone(), Options::default()).await {
                    Ok(vld) => {
                        assert!(has(&vld, &newest).await, "cell {cell}");
                        obsolete += 1;
                    }
                    Err(VldError::Corrupt { .. }) => {
                        assert_eq!(check(&fork).await.expect("it can be checked").errors.len(), 1);
                        live += 1;
                    }
                    Err(error) => panic!("cell {cell}: {error}"),
                }
            }
            // Ten pieces of 98 entries.
            assert!(live >= 9 && obsolete > 20, "{live} {obsolete}");
        }
    });
}

/// Every piece of a disk, written as data to every place where it could be mistaken for itself, and made for the very
/// place with another key: a search over everything finds the real tail.
#[test]
fn data_that_looks_like_a_piece_is_never_believed() {
    run(1, async |rt: Rt| {
        let (device, _) = used(&rt, MIB, MIB, false).await;
        let vld = Vld::open(&rt, device.clone(), Options::default()).await.expect("it opens");
        let mut copies = Vec::new();
        for cell in 24..device.geometry().sectors {
            let read = device.read(Sector(cell), Buf::dirty(512)).await.expect("the device works");
            if let Some(piece) = Piece::from_cell(&read, &MADE, cell) {
                copies.push((read.to_vec(), Piece { sequence: 1 << 40, commits: true, ..piece }));
            }
        }
        let blocks = vld.geometry().bytes() / 4096;
        let mut contents = Vec::new();
        for block in 0..blocks {
            let (copy, forged) = &copies[block as usize % copies.len()];
            let mut bytes = Vec::new();
            for part in 0..8 {
                match (block + part) % 2 {
                    0 => bytes.extend_from_slice(copy),
                    // As if the place were known.
                    _ => bytes.extend(forged.to_cell(&Key { key: [8; 16], ..MADE }, block * 8 + part, 512)),
                }
            }
            vld.write(Sector(block * 8), Data::from_slice(&bytes), WriteFlags::NONE).await.expect("there is room");
            contents.push(bytes);
        }
        for at in ANCHORS {
            zero(&device, at).await;
        }
        let again = Vld::open(&rt, device, Options::default()).await.expect("it opens");
        assert_eq!(again.recovery().blocks_scanned, 256);
        for (block, expected) in contents.iter().enumerate() {
            let read = again.read(Sector(block as u64 * 8), Buf::dirty(4096)).await.expect("it can be read");
            assert_eq!(read[..], expected[..], "block {block}");
        }
    });
}

/// Writing stops when the effect of a write is unknown; durable data is there after the next start. `NoSpace` does not
/// stop it.
#[test]
fn failed_writes_end_writing() {
    use crate::device::fault::{Effect, Kinds, Rule, When};
    for nth in 0..40 {
        run(nth, async |rt: Rt| {
            for effect in [Effect::Error, Effect::NoSpace] {
                let memory: Device = Rc::new(Memory::new(2 * MIB));
                let fault = FaultDevice::new(&rt, memory.clone(), nth);
                let vld = Vld::create(&rt, fault.clone(), &plan(), Options::default()).await.expect("made");
                write(&vld, 0, 20, 1).await;
                fault.add(Rule::new(Kinds::WRITE, When::Nth(nth + 1), effect.clone()));
                let mut certain = [1; 20];
                let mut failed = None;
                for turn in 0..40u64 {
                    let block = turn * 7 % 20;
                    let data = Data::from_slice(&stamp(block, turn + 2, 4096));
                    match vld.write(Sector(block * 8), data, WriteFlags::NONE).await {
                        Ok(()) => certain[block as usize] = turn + 2,
                        Err(_) => failed = failed.or(Some((block, turn + 2))),
                    }
                }
                drop(vld);
                let vld = Vld::open(&rt, memory, Options::default()).await.expect("it opens");
                for block in 0..20 {
                    let number = number_of(&vld, block).await;
                    let in_doubt = failed.is_some_and(|(failed, with)| failed == block && with == number);
                    assert!(
                        number == certain[block as usize] || in_doubt,
                        "{effect:?} {nth}: block {block} is {number}"
                    );
                }
                vld.check_invariants().expect("all promises hold");
            }
        });
    }
}
