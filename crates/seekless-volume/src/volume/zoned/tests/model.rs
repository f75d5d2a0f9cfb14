//! Without power cuts: random operations, opening again in between, and stores that are full all the time.

use std::collections::BTreeSet;

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{Memory, ZoneAction, ZoneState, Zoned};
use crate::testing::volumes::life::must_have_covered;

const POINTS: &[&str] = &["zoned: a zone is left that holds only what is being moved"];

/// What was written is there, whether the store is opened again or not, and the counters say that every path was taken.
#[test]
fn spans_hold_what_was_written() {
    crate::rt::covered();
    for (number, shape) in SHAPES.into_iter().enumerate() {
        for seed in 0..16 {
            run(seed, async |_| {
                let below: Device = Rc::new(Memory::new(shape.bytes()));
                let mut store = shape.create(below.clone()).await;
                let (mut model, mut rng, mut last) = (Model::default(), Rng::new(seed), 0);
                let mut totals = BTreeMap::new();
                for turn in 0..600 {
                    let op = model.draw(&mut rng, store.layout(), &mut last);
                    model
                        .apply(op, &store)
                        .await
                        .unwrap_or_else(|error| panic!("{number}, {seed}, {turn}: {op:?}: {error}"));
                    store.check();
                    if turn % 97 == 0 {
                        store.flush().await.expect("it works");
                        count(&store, &mut totals);
                        store = shape.open(below.clone()).await.expect("it is whole");
                        model.compare(&store).await;
                    }
                }
                model.compare(&store).await;
                count(&store, &mut totals);
                assert!(totals["zones_reset"] > 0 && totals["spans_cut"] > 0, "{totals:?}");
            });
        }
    }
    must_have_covered("spans_hold_what_was_written", POINTS);
}

fn count(store: &Store, totals: &mut BTreeMap<&'static str, u64>) {
    store.counters().into_iter().for_each(|(name, count)| *totals.entry(name).or_default() += count);
}

/// A full store can be written without end: each span is emptied and filled again in random order, all others being full.
#[test]
fn full_stores_go_on() {
    for shape in SHAPES {
        run(1, async |_| {
            let store = shape.create(Rc::new(Memory::new(shape.bytes()))).await;
            let (mut model, mut rng) = (Model::default(), Rng::new(1));
            let blocks = shape.span_bytes / BLOCK;
            for span in 0..store.layout().span_count {
                model.apply(Op::Append { span, blocks }, &store).await.expect("there is room");
            }
            for turn in 0..200 {
                let span = rng.below(store.layout().span_count.into()) as u32;
                model.apply(Op::Cut { span, keep: 0 }, &store).await.expect("a discard needs no room");
                model
                    .apply(Op::Append { span, blocks }, &store)
                    .await
                    .unwrap_or_else(|error| panic!("{turn}: {error}"));
            }
            model.compare(&store).await;
            let counters: BTreeMap<_, _> = store.counters().into_iter().collect();
            let moves = shape.span_bytes < shape.zones.capacity_sectors * SECTOR_BYTES;
            assert_eq!(counters["spans_moved"] > 0, moves, "a zone of one span is never moved: {counters:?}");
            assert!(counters["snapshots"] > 1, "{counters:?}");
        });
    }
}

/// Writes anywhere but at the end of a span fail, say where that is, and change nothing.
#[test]
fn spans_are_written_in_order() {
    run(1, async |_| {
        let store = SHAPES[1].create(Rc::new(Memory::new(SHAPES[1].bytes()))).await;
        let start = store.layout().span_start(3);
        let write =
            |offset: u64, tag: u64| store.write(start + offset, Data::from_slice(&block_of(tag)), WriteFlags::NONE);
        write(0, 1).await.expect("the beginning");
        for wrong in [0, 16, 40] {
            let error = write(wrong, 2).await.expect_err("not at the end");
            assert_eq!(error, DeviceError::NotAtWritePointer { at: start + wrong, zone: 3, pointer: start + 8 });
        }
        assert_eq!(read_span(&store, 3).await, [1]);
        // Over the end of the span, into one that is not empty.
        let next = store.layout().span_start(4);
        store.write(next, Data::from_slice(&block_of(5)), WriteFlags::NONE).await.expect("the beginning");
        let two = Data::from_slice(&[block_of(8), block_of(9)].concat());
        store.write(Sector(next.0 - 8), two, WriteFlags::NONE).await.expect_err("neither end is there");
        assert_eq!((read_span(&store, 3).await, read_span(&store, 4).await), (vec![1], vec![5]));
        // A discard that does not reach the end of the span does nothing.
        store.discard(start, 8).await.expect("allowed");
        assert_eq!(read_span(&store, 3).await, [1]);
        store.discard(start, store.layout().span_sectors).await.expect("allowed");
        write(0, 4).await.expect("it is empty again");
        assert_eq!(read_span(&store, 3).await, [4]);
    });
}

/// Plans that cannot be are refused with a reason.
#[test]
fn plans_are_checked() {
    run(1, async |_| {
        let good = SHAPES[1];
        for (zones, span_bytes, problem) in [
            (Zones { open_max: 3, ..good.zones }, good.span_bytes, "4 zones must be open at once"),
            (Zones { active_max: 2, ..good.zones }, good.span_bytes, "4 zones must be active at once"),
            (good.zones, 601 * KIB, "no larger than what a zone holds"),
            (good.zones, 6 * KIB, "a multiple of 4 KiB"),
            (Zones { count: 5, ..good.zones }, good.span_bytes, "5 zones are too few"),
            (super::zones(9, 128 * KIB), 128 * KIB, "a metadata zone needs"),
        ] {
            let shape = Shape { zones, span_bytes };
            let below = shape.zones_on(Rc::new(Memory::new(shape.bytes()))).await;
            let error = Store::create(below, &shape.plan()).await.err().expect(problem).to_string();
            assert!(error.contains(problem), "{error}");
        }
        let plain: Device = Rc::new(Memory::new(1 << 20));
        assert!(
            Store::create(plain.clone(), &good.plan()).await.is_err_and(|error| error.to_string().contains("no zones"))
        );
        assert!(probe(&plain).await.is_err_and(|error| error.to_string().contains("no zones")));
        let empty = good.zones_on(Rc::new(Memory::new(good.bytes()))).await;
        assert_eq!(probe(&empty).await, Ok(None));
        assert!(Store::open(empty, false).await.is_err_and(|error| error == ZonedError::Nothing));
    });
}

/// A device in front that fails writes leaves the beginning of them, and the span continues there.
#[test]
fn a_write_that_fails_leaves_its_beginning() {
    let mut lengths = BTreeSet::new();
    for seed in 0..20 {
        run(seed, async |rt| {
            let store = SHAPES[1].create(Rc::new(Memory::new(SHAPES[1].bytes()))).await;
            let fault = FaultDevice::new(&rt, store.clone(), seed);
            fault.add(Rule::new(Kinds::WRITE, When::Nth(1), Effect::Error));
            assert_eq!(fault.spans(), store.spans());
            let start = store.layout().span_start(2);
            let five: Vec<u8> = (1..=5).flat_map(block_of).collect();
            let error =
                fault.write(start, Data::from_slice(&five), WriteFlags::NONE).await.expect_err("a rule says so");
            assert!(matches!(error, DeviceError::Io { .. }), "{error}");
            let found = read_span(&store, 2).await;
            assert_eq!(found, (1..=found.len() as u64).collect::<Vec<_>>());
            let next = start + found.len() as u64 * format::BLOCK_SECTORS;
            fault.write(next, Data::from_slice(&block_of(9)), WriteFlags::NONE).await.expect("the span goes on there");
            lengths.insert(found.len());
        });
    }
    assert!(lengths.len() > 2, "{lengths:?}");
}

/// Aim: a span whose end was recorded, and behind which nothing was written after all, continues there and keeps what is appended.
/// Method: the padding for the span behind it fails, then the store continues, or is opened again as after a power cut.
#[test]
fn a_span_goes_on_behind_its_recorded_end() {
    const POINTS: &[&str] = &["zoned: a span goes on behind its recorded end"];
    crate::rt::covered();
    // How much of the padding is there nevertheless is up to the seed.
    for (is_opened_again, seed) in (0..40).map(|number| (number % 2 == 0, number / 2)) {
        run(seed, async |rt| {
            let shape = SHAPES[1];
            let below: Device = Rc::new(Memory::new(shape.bytes()));
            let fault = FaultDevice::new(&rt, shape.zones_on(below.clone()).await, seed);
            let mut store = Store::create(fault.clone(), &shape.plan()).await.expect("there is no rule yet");
            let mut model = Model::default();
            model.apply(Op::Append { span: 2, blocks: 3 }, &store).await.expect("it works");
            let spans = shape.zones.start(format::METADATA_ZONES)..shape.zones.start(shape.zones.count);
            fault.add(Rule::new(Kinds::WRITE, When::Nth(1), Effect::NoSpace).within(spans));
            let before = model.clone();
            model.apply(Op::Append { span: 3, blocks: 1 }, &store).await.expect_err("a rule says so");
            model = before;
            store.flush().await.expect("it works");
            if is_opened_again {
                store = shape.open(below.clone()).await.expect("it is whole");
                model.compare(&store).await;
            }
            for blocks in [1, 2] {
                model.apply(Op::Append { span: 2, blocks }, &store).await.expect("the span goes on");
                store.flush().await.expect("it works");
                model.compare(&store).await;
                model.compare(&shape.open(below.clone()).await.expect("it is whole")).await;
            }
            model.apply(Op::Append { span: 3, blocks: 1 }, &store).await.expect("it works");
            store.flush().await.expect("it works");
            model.compare(&shape.open(below).await.expect("it is whole")).await;
        });
    }
    must_have_covered("a_span_goes_on_behind_its_recorded_end", POINTS);
}

/// Aim: what is acknowledged after a record could not be written is there when the store is opened again. Method: requests to the
/// metadata zones fail by chance, and are repeated; after each that was, a copy of the device, which has no cache, is opened.
#[test]
fn records_that_fail_are_made_up_for() {
    let mut repeated = 0;
    for shape in SHAPES {
        for seed in 0..4 {
            run(seed, async |rt| {
                let below = Rc::new(Memory::new(shape.bytes()));
                let fault = FaultDevice::new(&rt, shape.zones_on(below.clone()).await, seed);
                let store = Store::create(fault.clone(), &shape.plan()).await.expect("there is no rule yet");
                let (kinds, one_in_five) =
                    (Kinds::WRITE.union(Kinds::DISCARD), When::Chance { numerator: 1, denominator: 5 });
                let records = Sector::ZERO..shape.zones.start(format::METADATA_ZONES);
                fault.add(Rule::new(kinds, one_in_five, Effect::NoSpace).within(records));
                let (mut model, mut rng, mut last) = (Model::default(), Rng::new(seed), 0);
                for _ in 0..200 {
                    let op = model.draw(&mut rng, store.layout(), &mut last);
                    let (before, failed) = (model.clone(), fault.failed());
                    while model.apply(op, &store).await.is_err() {
                        model = before.clone();
                    }
                    if fault.failed() > failed {
                        let copy = Rc::new(Memory::from_image(shape.bytes(), below.image()));
                        model.compare(&shape.open(copy).await.expect("it is whole")).await;
                        repeated += 1;
                    }
                }
                model.compare(&store).await;
            });
        }
    }
    assert!(repeated > 200, "{repeated}");
}

/// Aim: a device with zones that has gone is gone for everything, and what changes the state of a zone can fail. Method: each
/// action and an append, before and after.
#[test]
fn zones_that_have_gone() {
    const ACTIONS: [ZoneAction; 4] = [ZoneAction::Open, ZoneAction::Close, ZoneAction::Finish, ZoneAction::Reset];
    run(1, async |rt| {
        let zones = SHAPES[0].zones;
        let below: Device = Rc::new(Memory::new(StoredZones::bytes(&zones)));
        let inner = StoredZones::open(below, zones).await.expect("memory");
        let fault = FaultDevice::new(&rt, inner.clone(), 1);
        let append = async || fault.append(0, Data::from_slice(&block_of(1)), WriteFlags::NONE).await;
        append().await.expect("there is no rule yet");
        fault.add(Rule::new(Kinds::WRITE, When::Nth(1), Effect::Error));
        let failed = fault.manage(0, ZoneAction::Finish).await.expect_err("a rule says so");
        assert!(matches!(failed, DeviceError::Io { .. }), "{failed}");
        assert_ne!(inner.zone(0).expect("it is there").state, ZoneState::Full);
        fault.add(Rule::new(Kinds::WRITE, When::Nth(1), Effect::Gone));
        append().await.expect_err("a rule says so");
        fault.clear();
        for action in ACTIONS {
            let gone = fault.manage(0, action).await.expect_err("it has gone");
            assert!(matches!(gone, DeviceError::Gone(_)), "{action:?}: {gone}");
        }
        assert!(matches!(append().await, Err(DeviceError::Gone(_))));
        assert_ne!(inner.zone(0).expect("it is there").state, ZoneState::Empty);
    });
}
