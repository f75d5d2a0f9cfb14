//! Power cuts: for each span and each fixed block, what is found afterwards is a state between the last one that was durable and the
//! newest one; a write may be there in part, up to some block. Method: a recorded run, cuts at many positions, several states of
//! each; then the store is used again.

use std::cell::Cell;

use super::*;
use crate::device::cut::{CrashLog, Effort};
use crate::testing::volumes::life::must_have_covered;

/// Tags of one span, or the tag of a fixed block, after each operation on it.
#[derive(Clone, Default, Debug)]
struct History {
    states: Vec<State>,
}

#[derive(Clone, Debug)]
struct State {
    tags: Vec<u64>,
    issued: usize,
    durable: Option<usize>,
}

impl History {
    /// Whether `found` may be there after a cut at `position`.
    fn allows(&self, position: usize, found: &[u64]) -> bool {
        let durable = |state: &State| state.durable.is_some_and(|when| when <= position);
        let first = self.states.iter().rposition(durable);
        let issued = self.states.iter().take_while(|state| state.issued < position).count();
        let empty = Vec::new();
        let before = first.map_or(&empty, |index| &self.states[index].tags);
        let later = &self.states[first.map_or(0, |index| index + 1).min(issued)..issued];
        let mut states = vec![before];
        states.extend(later.iter().map(|state| &state.tags));
        // Each state, and what is between it and the next where that only adds.
        states.iter().any(|state| *state == found)
            || states
                .windows(2)
                .any(|pair| found.len() > pair[0].len() && pair[1].starts_with(found) && found.starts_with(pair[0]))
    }
}

/// What the runs and what follows the cuts must come to.
const POINTS: &[&str] = &[
    "zoned: a new log in the other metadata zone",
    "zoned: a record is cut short",
    "zoned: a zone is emptied",
    "zoned: the end of a span is cut off",
];

struct Recording {
    log: CrashLog,
    spans: BTreeMap<u32, History>,
    fixed: BTreeMap<u64, History>,
    from: usize,
}

/// Up to `ops` operations, until the store is as `stop` says.
async fn record(
    rt: Rt,
    shape: Shape,
    options: CrashOptions,
    seed: u64,
    ops: usize,
    stop: impl Fn(&Store) -> bool,
) -> Recording {
    let device = CrashDevice::new(&rt, Image::default(), CrashOptions { seed, ..options });
    let store = shape.create(device.clone()).await;
    let from = device.position();
    let (mut model, mut rng, mut last) = (Model::default(), Rng::new(seed), 0);
    let mut recording = Recording { log: device.log(), spans: BTreeMap::new(), fixed: BTreeMap::new(), from };
    for _ in 0..ops {
        if stop(&store) {
            break;
        }
        let issued = device.position();
        if rng.chance(1, 7) {
            store.flush().await.expect("it works");
            let now = device.position();
            let all = recording.spans.values_mut().chain(recording.fixed.values_mut());
            for state in all.flat_map(|history| &mut history.states) {
                state.durable.get_or_insert(now);
            }
            continue;
        }
        let op = model.draw(&mut rng, store.layout(), &mut last);
        model.apply(op, &store).await.expect("it works");
        let durable = options_durable(&device).then(|| device.position());
        let (history, tags) = match op {
            Op::Append { span, .. } | Op::Cut { span, .. } => {
                (recording.spans.entry(span).or_default(), model.spans.get(&span).cloned().unwrap_or_default())
            }
            Op::Fixed { block } => (recording.fixed.entry(block).or_default(), vec![model.fixed[&block]]),
        };
        history.states.push(State { tags, issued, durable });
    }
    recording.log = device.log();
    assert!(device.violations().is_empty(), "{:?}", device.violations());
    recording
}

fn options_durable(device: &CrashDevice) -> bool {
    device.guarantees().durable_on_completion
}

/// Opens the store in one state of a cut, compares, and writes everywhere.
async fn examine(rt: Rt, shape: Shape, recording: &Recording, position: usize, image: Image) -> Result<(), String> {
    let options = CrashOptions { record: false, ..CrashOptions::volatile(shape.bytes()) };
    let below = CrashDevice::new(&rt, image, options);
    let checkup = super::check(&shape.zones_on(below.clone()).await).await.map_err(|error| error.to_string())?;
    if !checkup.errors.is_empty() {
        return Err(format!("{checkup:?}"));
    }
    let store = shape.open(below.clone()).await.map_err(|error| error.to_string())?;
    let mut model = Model { tags: 1 << 32, ..Model::default() };
    for span in 0..store.layout().span_count {
        let found = read_span(&store, span).await;
        let history = recording.spans.get(&span).cloned().unwrap_or_default();
        if !history.allows(position, &found) {
            return Err(format!("span {span} has {found:?}: {history:?}"));
        }
        model.spans.insert(span, found);
    }
    for block in 0..format::FIXED_BLOCKS {
        let found = read_fixed(&store, block).await;
        let found = if found == 0 { Vec::new() } else { vec![found] };
        let history = recording.fixed.get(&block).cloned().unwrap_or_default();
        if !history.allows(position, &found) {
            return Err(format!("block {block} has {found:?}: {history:?}"));
        }
        model.fixed.insert(block, found.first().copied().unwrap_or(0));
    }
    for span in 0..store.layout().span_count {
        let found = model.spans[&span].len() as u64;
        let (bytes, length) = (found * BLOCK, store.room().length(span) * SECTOR_BYTES);
        // Every other span continues where it ends, unless it is full, or seems to end with zeroes because its end was not recorded.
        let is_cut = span % 2 == 0 || length == shape.span_bytes || bytes != length;
        let work = async {
            if is_cut {
                model.apply(Op::Cut { span, keep: found / 2 }, &store).await?;
            }
            model.apply(Op::Append { span, blocks: 1 }, &store).await?;
            model.apply(Op::Fixed { block: u64::from(span) % format::FIXED_BLOCKS }, &store).await
        };
        work.await.map_err(|error: DeviceError| format!("span {span}, used again: {error}"))?;
    }
    store.flush().await.map_err(|error| error.to_string())?;
    model.compare(&store).await;
    let again = shape.open(below).await.map_err(|error| error.to_string())?;
    model.compare(&again).await;
    Ok(())
}

/// A zone that was left without being full, one that was begun, and one to which spans were moved: a cut that loses that the first was
/// finished leaves three zones that are partly written, and the device allows no more.
#[test]
fn three_zones_are_partly_written() {
    const POINTS: &[&str] = &["zoned: more than two zones are partly written"];
    let (shape, seed) = (SHAPES[1], 3);
    let finished = Cell::new(0);
    let stop = |store: &Store| {
        let counted =
            store.counters().iter().find(|(name, _)| *name == "zones_finished").map_or(0, |(_, count)| *count);
        let both = store.room().heads.iter().all(|head| head.is_some_and(|head| head.pointer > 0));
        both && finished.replace(counted) < counted
    };
    let options = CrashOptions::volatile(shape.bytes());
    let recording = run(seed, async |rt| record(rt, shape, options, seed, 4000, stop).await);
    crate::rt::covered();
    let cut = recording.log.cut(recording.log.events());
    let choices = cut.choices(&Effort { all_subsets_of: 9, ..Effort::THOROUGH }, seed);
    for choice in &choices {
        let image = cut.image(choice);
        let examined = run(seed, async |rt| examine(rt, shape, &recording, recording.log.events(), image).await);
        examined.unwrap_or_else(|what| panic!("{}: {what}", cut.to_text(choice)));
    }
    println!("{} states of {} requests", choices.len(), cut.pending().count());
    must_have_covered("three_zones_are_partly_written", POINTS);
}

/// Z2: a span that begins in a zone which was just reset shows nothing of what was there, also after a cut that loses the reset but not
/// the record. Method: runs that end with such a beginning, with all subsets of what the device has not made durable.
#[test]
fn a_span_shows_nothing_of_the_one_before_it() {
    let mut states = 0;
    for (shape, seed) in SHAPES.into_iter().flat_map(|shape| (0..6).map(move |seed| (shape, seed))) {
        let counted = Cell::new((0, 0));
        let stop = |store: &Store| {
            let count =
                |wanted: &str| store.counters().iter().find(|(name, _)| *name == wanted).map_or(0, |(_, count)| *count);
            let now = (count("zones_reset"), count("spans_begun"));
            let before = counted.replace(now);
            before.0 < now.0 && before.1 < now.1
        };
        let options = CrashOptions::volatile(shape.bytes());
        let recording = run(seed, async |rt| record(rt, shape, options, seed, 4000, stop).await);
        let (end, effort) = (recording.log.events(), Effort { all_subsets_of: 10, ..Effort::THOROUGH });
        let cut = recording.log.cut(end);
        for choice in cut.choices(&effort, seed) {
            states += 1;
            let image = cut.image(&choice);
            let examined = run(seed, async |rt| examine(rt, shape, &recording, end, image).await);
            examined.unwrap_or_else(|what| panic!("{shape:?}, seed {seed}: {}: {what}", cut.to_text(&choice)));
        }
    }
    assert!(states > 500, "{states} states");
}

#[test]
fn cuts_lose_nothing_durable() {
    let effort = Effort { tears: 4, samples: 4, ..Effort::SAMPLED };
    let mut states = 0;
    for (number, shape) in SHAPES.into_iter().enumerate() {
        for (seed, options) in CrashOptions::each(shape.bytes()).into_iter().enumerate() {
            let seed = seed as u64;
            let recording = run(seed, async |rt| record(rt, shape, options.clone(), seed, 250, |_| false).await);
            let mut positions: Vec<usize> =
                recording.log.positions().into_iter().filter(|&position| position >= recording.from).collect();
            Rng::new(seed).shuffle(&mut positions);
            positions.truncate(30);
            for position in positions {
                let cut = recording.log.cut(position);
                for (index, choice) in cut.choices(&effort, seed).iter().enumerate() {
                    states += 1;
                    let image = cut.image(choice);
                    let examined = run(seed, async |rt| examine(rt, shape, &recording, position, image).await);
                    examined.unwrap_or_else(|what| {
                        panic!("shape {number}, seed {seed}, state {index}: {}: {what}", cut.to_text(choice))
                    });
                }
            }
        }
    }
    println!("{states} states");
    must_have_covered("volume::zoned::tests::cuts", POINTS);
    assert!(states > 1000, "{states}");
}
