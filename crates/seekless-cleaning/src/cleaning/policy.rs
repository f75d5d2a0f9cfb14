//! The interface of cleaning policies.
//!
//! A log, simulated or of a mounted file system, has segments, each of them clean, open, or closed. It writes blocks to
//! the ends of its open segments, one for each *head*. The policy says which head each block goes to, and which closed
//! segment is cleaned next. It sees neither names nor contents: what it remembers of a block is the [`Note`] that it
//! gave, and the log keeps that with the block, as in a segment's summary.
//!
//! Invariants
//!   P1  Each closed segment that has not been cleaned since is known to the policy: [`Policy::closed`] comes before
//!       [`Policy::died`], and [`Policy::cleaned`] is the last call for it.
//!   P2  The policy changes its books only in these calls. [`Policy::choose`] alone changes nothing of them, so the log
//!       may refuse a victim.
//!   P3  A policy draws chance only from the seed in its [`Shape`].

/// Time as a policy measures it: any count that never falls. The simulator counts blocks that the user wrote.
pub type Ticks = u64;

/// Number of a segment.
pub type SegmentNo = u32;

/// What a policy remembers of a block.
pub type Note = u16;

/// What a policy knows of its log from the start.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Shape {
    /// All there can be.
    pub segments: u32,
    /// Those that are used before the log is cleaned: all, unless space is not limited.
    pub segments_used: u32,
    /// Blocks that a segment holds. A log that counts in another unit, such as sectors, uses that unit throughout.
    pub segment_blocks: u32,
    /// Blocks alive when all data is there.
    pub live_blocks: u64,
    pub seed: u64,
}

impl Shape {
    /// Live blocks as a share of all in the segments that are used.
    pub fn utilisation(&self) -> f64 {
        self.live_blocks as f64 / (f64::from(self.segments_used) * f64::from(self.segment_blocks))
    }
}

/// What a policy needs to learn about blocks. A log may leave out what no policy in use needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Needs {
    /// When the user wrote each block. A log that does not keep it may give the time of the block's segment.
    pub times: bool,
    /// The policy's own notes.
    pub notes: bool,
    /// When each block will be overwritten. Only a simulator knows.
    pub future: bool,
}

/// A block that the user writes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Fresh {
    pub now: Ticks,
    /// The block's former place, unless it is new.
    pub before: Option<Before>,
    /// When it will be overwritten; [`Ticks::MAX`] when that never happens, or the log does not know.
    pub dies: Ticks,
}

/// The former version of a block.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Before {
    /// When the user wrote it.
    pub written: Ticks,
    pub note: Note,
}

/// A live block of a segment that is being cleaned.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Moved {
    pub now: Ticks,
    /// When the user wrote it.
    pub written: Ticks,
    pub note: Note,
    /// The head that wrote it to the segment that is being cleaned.
    pub head: u8,
    /// See [`Fresh::dies`].
    pub dies: Ticks,
}

/// Where a block goes, and what to remember of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Destination {
    pub head: u8,
    pub note: Note,
}

impl Destination {
    pub const fn at(head: u8) -> Destination {
        Destination { head, note: 0 }
    }
}

/// A segment that is full, or that is cleaned.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Segment {
    pub number: SegmentNo,
    pub head: u8,
    /// Blocks alive in it.
    pub live: u32,
    /// When its first and its last block were written to it.
    pub opened: Ticks,
    pub closed: Ticks,
    /// The latest time at which the user wrote a block of it.
    pub youngest: Ticks,
    pub now: Ticks,
}

/// How the live blocks of a pass are arranged before they are written again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// As they were found.
    Found,
    /// The block first that the user wrote first [ro92 §3.4].
    Age,
}

/// The state of a log, for deciding whether to clean.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Room {
    /// Segments that can be written.
    pub clean: u32,
    /// Segments that could be cleaned.
    pub closed: u32,
    /// Dead blocks as a share of all blocks in use, dead or alive.
    pub garbage: f64,
    /// Victims of the pass under way, and blocks alive in them; `None` between passes.
    pub pass: Option<(u32, u64)>,
    /// Passes that have been made since the user had to wait.
    pub passes: u32,
    /// The segment that the user writes to has room, because moved blocks went there too and did not fill it.
    pub open: bool,
    pub limits: Limits,
}

impl Room {
    /// What the log's limits say: whether a pass begins, or takes one more victim.
    pub fn is_short(&self) -> bool {
        match (self.pass, self.limits.trigger) {
            (Some((victims, live)), _) => victims == 0 || live < self.limits.batch_blocks,
            (None, Trigger::Clean(reserve)) if self.passes == 0 => self.clean <= reserve,
            (None, Trigger::Clean(reserve)) => self.clean < self.limits.target || !self.open && self.clean <= reserve,
            (None, Trigger::Garbage(share)) => self.garbage > share,
        }
    }
}

/// When a log is cleaned, and how much at once.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Limits {
    pub trigger: Trigger,
    /// A pass goes on until its victims have this many live blocks; it has at least one victim.
    pub batch_blocks: u64,
    /// Once it has begun, cleaning goes on until this many segments are clean; and in any case until the user can write.
    ///
    /// With one head this matters much where some blocks are hotter than others. At 0 the user's blocks fill up a segment
    /// of moved ones; at 1 they have segments of their own, which separates hot from cold as a second head does.
    pub target: u32,
}

/// What starts a pass.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Trigger {
    /// No more than this many clean segments are left.
    Clean(u32),
    /// More than this share of the blocks in use is dead, as in `sepbit`. Space is not limited.
    Garbage(f64),
}

/// A cleaning policy.
pub trait Policy {
    /// How many segments it writes at the same time.
    fn heads(&self) -> u8 {
        1
    }

    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// *Where*: the head for a block that the user writes.
    fn write(&mut self, block: &Fresh) -> Destination;

    /// *Where*: the head for a live block of a victim.
    fn relocate(&mut self, block: &Moved) -> Destination;

    /// In which order the live blocks of a pass are written again.
    fn order(&self) -> Order {
        Order::Found
    }

    /// *When* and *how many*: true when the log should begin a pass, or take one more victim into the pass under way.
    fn wants(&self, room: &Room) -> bool {
        room.is_short()
    }

    /// *Which*: the best victim. `None` when there is no closed segment.
    fn choose(&mut self, now: Ticks) -> Option<SegmentNo>;

    /// A segment is full, and can be cleaned from now on. Some of its blocks may be dead already.
    fn closed(&mut self, segment: &Segment);

    /// A block of a closed segment is dead; `live` are left.
    fn died(&mut self, segment: SegmentNo, live: u32);

    /// A segment is being cleaned: it is no longer closed, and its live blocks are about to be relocated.
    fn cleaned(&mut self, segment: &Segment);

    /// Segments that it knows, with the blocks alive in each, in any order: for tests.
    fn known(&self) -> Vec<(SegmentNo, u32)>;
}
