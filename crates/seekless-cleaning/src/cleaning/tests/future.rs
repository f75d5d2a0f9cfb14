//! What a policy learns of the future comes true.

use std::ops::ControlFlow;

use super::{given, setup};
use crate::cleaning::policy::{Destination, Fresh, Moved, Needs, Note, Policy, Segment, SegmentNo, Ticks};
use crate::cleaning::{PATTERNS, PatternSpec, Setup, simulate};

/// Remembers of each block when it will die.
struct Witness {
    closed: Vec<(SegmentNo, u32)>,
    told: u64,
}

const UNKNOWN: Note = Note::MAX;

fn note(dies: Ticks) -> Note {
    Note::try_from(dies).unwrap_or(UNKNOWN)
}

impl Policy for Witness {
    fn needs(&self) -> Needs {
        Needs { times: true, notes: true, future: true }
    }

    fn write(&mut self, block: &Fresh) -> Destination {
        if let Some(before) = block.before {
            assert_eq!(before.note, note(block.now), "a block dies when it was foretold");
            self.told += 1;
        }
        assert!(block.dies > block.now);
        Destination { head: 0, note: note(block.dies) }
    }

    fn relocate(&mut self, block: &Moved) -> Destination {
        assert_eq!(block.note, note(block.dies), "what is foretold goes with the block");
        assert!(block.dies > block.now || block.dies == block.now && block.written < block.now);
        assert!(block.written <= block.now);
        Destination { head: 0, note: block.note }
    }

    fn choose(&mut self, _: Ticks) -> Option<SegmentNo> {
        self.closed.iter().min_by_key(|(_, live)| *live).map(|(number, _)| *number)
    }

    fn closed(&mut self, segment: &Segment) {
        assert!(segment.opened <= segment.closed && segment.youngest <= segment.now);
        self.closed.push((segment.number, segment.live));
    }

    fn died(&mut self, segment: SegmentNo, live: u32) {
        self.closed.iter_mut().filter(|(number, _)| *number == segment).for_each(|(_, old)| *old = live);
    }

    fn cleaned(&mut self, segment: &Segment) {
        self.closed.retain(|(number, _)| *number != segment.number);
    }

    fn known(&self) -> Vec<(SegmentNo, u32)> {
        self.closed.clone()
    }
}

/// Aim: as above. Method: a policy that compares, under every pattern; ticks fit into a note.
#[test]
fn prophecies_come_true() {
    for pattern in PATTERNS {
        let setup = Setup { writes: 10_000, warm_up: 10_000, ..setup(1000, 8, 0.6, 1) };
        let mut policy = Witness { closed: Vec::new(), told: 0 };
        let line = if pattern.name == "trace" { "trace:times=100" } else { pattern.name };
        let (_, options) = PatternSpec::parse(line).expect("a pattern");
        let mut made = pattern.make(&options, &given(1000, 3)).expect("a pattern");
        simulate(&setup, &mut policy, &mut *made, &mut |_, _| ControlFlow::Continue(())).expect("an outcome");
        // Files are discarded before their blocks are written again.
        assert!(policy.told > 5_000 || pattern.name == "files", "{}: {}", pattern.name, policy.told);
    }
}
