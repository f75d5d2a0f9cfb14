//! The segment usage table: how many bytes of each segment are live, and which segments the log may write next.
//!
//! Paper: [ro92 §3.6, "segment usage table"]. Format: FORMAT.md, "Segment usage table".
//!
//! Life of a segment: *clean* (nothing in it is needed) → *ready* (clean, with storage below it) → written → empty
//! (nothing alive) → clean.
//!
//! Invariants
//!   G1  An empty segment becomes clean only once neither checkpoint slot needs it, neither for its contents nor for
//!       rolling forward. So either slot alone is enough to recover from. A slot needs every segment that was not empty
//!       in its checkpoint, and every segment that the log has passed through since. So it releases a segment that was
//!       empty in it and that the log has not taken since.
//!       A slot needs less once the log behind it says where everything is that has left a segment: rolling forward
//!       reads nothing of a segment that held neither indirect blocks nor tables when the slot's checkpoint was made,
//!       and that the log has not passed through since. Such a segment becomes clean *early*, as soon as the
//!       transaction that emptied it is durable.
//!   G2  The live bytes of a segment are exact: the sum of what pointers reach in it.
//!   G3  A segment is in at most one of `clean`, `ready`, `leaving` and `empty`, and in none while something in it is
//!       alive or the log continues in it.

use std::collections::{BTreeMap, BTreeSet};

use super::format::{BLOCK_BYTES, USAGES_PER_BLOCK, Usage};
use super::layout::{Layout, SegmentNo};
use super::victims::{Victims, blocks};
use crate::cleaning::policy::{self, Ticks};
use crate::rt::cover;
use crate::units::Nanos;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Segment {
    pub live_bytes: u64,
    /// Modification time of its youngest block, nanoseconds since 1970.
    pub youngest: i64,
    /// Serial of the first checkpoint in which it was empty; 0 while it is not empty, and when it was never used.
    pub empty_since: u64,
    /// Serial of the newest assembled checkpoint when the log was last in this segment. A slot with this checkpoint or
    /// an older one needs the segment for rolling forward.
    pub passed_after: u64,
    /// Bytes of live indirect blocks and blocks of internal files, which recovery reads by way of the checkpoint; more
    /// than a segment where that is not known.
    pub tree_bytes: u64,
    /// Checkpoints older than this may still lead to indirect blocks or blocks of internal files in it.
    pub tree_until: u64,
    /// How often the log has begun to write it since the mount.
    pub uses: u64,
    /// When the log began to write it, and when it left it, in nanoseconds since 1970. Not on the volume.
    pub opened: i64,
    pub closed: i64,
    /// The log has written it since the mount, and the cleaner has not read it since then.
    unread: bool,
}

impl Segment {
    /// The segment as a policy sees it at `now`.
    pub(super) fn described(&self, number: SegmentNo, now: Ticks) -> policy::Segment {
        let before_now = |nanos: i64| (nanos.max(0) as Ticks).min(now);
        policy::Segment {
            number: number as u32,
            head: 0,
            live: blocks(self.live_bytes),
            opened: before_now(self.opened),
            closed: before_now(self.closed),
            youngest: before_now(self.youngest),
            now,
        }
    }
}

/// Represents a serial that the table has no room for.
const SERIAL_TOO_LARGE: u32 = u32::MAX;

/// More bytes than a segment has.
const TREE_UNKNOWN: u64 = 1 << 40;

pub(super) struct Segments {
    segments: Vec<Segment>,
    /// Not needed, but storage below them is not certain.
    pub clean: BTreeSet<SegmentNo>,
    /// The log may write them.
    pub ready: BTreeSet<SegmentNo>,
    /// Empty, but a checkpoint slot may still need them; with the serial of the first checkpoint that does not count
    /// them. Segments that became empty since the last checkpoint, by roll-forward too, are not here yet.
    pub empty: BTreeMap<SegmentNo, u64>,
    /// Segments that transactions have emptied, and the end of the log that records this: candidates for becoming
    /// clean early. They may be in `empty` as well.
    pub emptied: BTreeMap<SegmentNo, u64>,
    /// Clean, ready and leaving segments that became so early, and the newest checkpoint assembled by then: a mount after
    /// a crash does not know of them before the checkpoint after that.
    pub early: BTreeMap<SegmentNo, u64>,
    /// Ready segments that the timer has seen, and when it saw them first.
    unused_since: BTreeMap<SegmentNo, Nanos>,
    /// Released segments that are neither clean nor ready yet.
    pub leaving: BTreeSet<SegmentNo>,
    /// Segments that were cleaned since the last checkpoint. Their remaining content needs a checkpoint, and so do
    /// those that the log has written again since: no slot would release them (G1).
    pub cleaned: BTreeSet<SegmentNo>,
    /// Segments of which the cleaner could move nothing, because what describes their content is damaged. Until less is alive
    /// in them they are no victims: they would be chosen again and again, as the emptiest, and keep all others from being cleaned.
    pub immovable: BTreeSet<SegmentNo>,
    /// Those that can be cleaned; while the volume is recovered there are none.
    pub victims: Option<Victims>,
    /// Segments that became clean although the cleaner had not read them: their content was overwritten or removed.
    pub cleaned_empty: u64,
    /// Serial of the newest assembled checkpoint.
    pub serial: u64,
    /// Blocks of the table that differ from those in the log.
    pub dirty_blocks: BTreeSet<u64>,
    pub live_bytes: u64,
    /// Segments in which something is alive.
    used: u64,
    segment_bytes: u64,
}

impl Segments {
    pub(super) fn new(layout: &Layout) -> Segments {
        Segments {
            // Nothing is known of any yet.
            segments: vec![Segment { tree_bytes: TREE_UNKNOWN, ..Segment::default() }; layout.segment_count() as usize],
            clean: BTreeSet::new(),
            ready: BTreeSet::new(),
            empty: BTreeMap::new(),
            emptied: BTreeMap::new(),
            early: BTreeMap::new(),
            unused_since: BTreeMap::new(),
            leaving: BTreeSet::new(),
            cleaned: BTreeSet::new(),
            immovable: BTreeSet::new(),
            victims: None,
            cleaned_empty: 0,
            serial: 0,
            dirty_blocks: BTreeSet::new(),
            live_bytes: 0,
            used: 0,
            segment_bytes: layout.segment_bytes(),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.segments.len() as u64
    }

    /// Blocks of the table.
    pub(super) fn table_blocks(&self) -> u64 {
        self.count().div_ceil(USAGES_PER_BLOCK)
    }

    pub(super) fn get(&self, segment: SegmentNo) -> Segment {
        self.segments[segment as usize]
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SegmentNo, &Segment)> {
        self.segments.iter().enumerate().map(|(number, segment)| (number as u64, segment))
    }

    /// Fills in one block of the table. The caller takes the segments that the log continues in.
    ///
    /// # Errors
    /// The number of a segment with more live bytes than fit.
    pub(super) fn load_block(&mut self, block: u64, bytes: &[u8]) -> Result<(), SegmentNo> {
        debug_assert!(self.victims.is_none(), "K1: the table is loaded before the first victim");
        let first = block * USAGES_PER_BLOCK;
        for (within, raw) in bytes.chunks_exact(Usage::BYTES).enumerate() {
            let number = first + within as u64;
            let Some(segment) = self.segments.get_mut(number as usize) else { break };
            let Some(usage) = Usage::decode(raw) else { break };
            if u64::from(usage.live_bytes) > self.segment_bytes {
                return Err(number);
            }
            debug_assert!(self.live_bytes >= segment.live_bytes, "G2: the sum is that of all segments");
            self.live_bytes -= segment.live_bytes;
            self.used -= u64::from(segment.live_bytes > 0);
            *segment = Segment {
                live_bytes: usage.live_bytes.into(),
                youngest: usage.youngest,
                // The newest serial that it can mean: no slot lets go of the segment too early.
                empty_since: match usage.empty_since {
                    SERIAL_TOO_LARGE => self.serial,
                    serial => serial.into(),
                },
                passed_after: self.serial,
                tree_bytes: TREE_UNKNOWN,
                tree_until: self.serial,
                ..Segment::default()
            };
            self.live_bytes += segment.live_bytes;
            self.used += u64::from(segment.live_bytes > 0);
        }
        Ok(())
    }

    /// Called after all blocks of the table but `unread` are filled in: segments empty in it wait for the slots to
    /// release them (G1). For unread blocks it is unknown since when segments are empty; the next checkpoint will
    /// record that.
    pub(super) fn loaded(&mut self, unread: &[u64]) {
        debug_assert!(
            self.clean.is_empty() && self.ready.is_empty(),
            "G1: no segment is free before the slots let it go"
        );
        let empty = |(number, segment): (SegmentNo, &Segment)| {
            let is_empty = segment.live_bytes == 0 && !unread.contains(&(number / USAGES_PER_BLOCK));
            is_empty.then_some((number, segment.empty_since))
        };
        self.empty = self.iter().filter_map(empty).collect();
        unread.iter().for_each(|&block| self.touch(block * USAGES_PER_BLOCK));
    }

    /// Sets the recounted live bytes.
    pub(super) fn set_live(&mut self, segment: SegmentNo, bytes: u64) {
        assert!(bytes <= self.segment_bytes, "G2: a segment holds no more than its size");
        debug_assert!(self.victims.is_none(), "K1: a recount comes before the first victim");
        let entry = &mut self.segments[segment as usize];
        if entry.live_bytes == bytes {
            return;
        }
        debug_assert!(self.live_bytes >= entry.live_bytes, "G2: the sum is that of all segments");
        self.live_bytes = self.live_bytes - entry.live_bytes + bytes;
        self.used = self.used - u64::from(entry.live_bytes > 0) + u64::from(bytes > 0);
        entry.live_bytes = bytes;
        // Whatever the table said: a slot may need it.
        entry.empty_since = 0;
        self.empty.remove(&segment);
        self.emptied.remove(&segment);
        self.clean.remove(&segment);
        self.ready.remove(&segment);
        self.unused_since.remove(&segment);
        self.early.remove(&segment);
        self.leaving.remove(&segment);
        self.touch(segment);
    }

    /// One block of the table as it is stored.
    pub(super) fn store_block(&self, block: u64, bytes: &mut [u8]) {
        bytes[..BLOCK_BYTES].fill(0);
        let first = (block * USAGES_PER_BLOCK) as usize;
        for (segment, raw) in self.segments[first..].iter().zip(bytes.chunks_exact_mut(Usage::BYTES)) {
            let usage = Usage {
                live_bytes: segment.live_bytes as u32,
                empty_since: u32::try_from(segment.empty_since).unwrap_or(SERIAL_TOO_LARGE),
                youngest: segment.youngest,
            };
            usage.encode(raw);
        }
    }

    #[cfg(test)]
    pub(super) fn set_empty_since(&mut self, segment: SegmentNo, serial: u64) {
        self.segments[segment as usize].empty_since = serial;
    }

    /// Has the next checkpoint update and write the entry of `segment`.
    pub(super) fn touch(&mut self, segment: SegmentNo) {
        self.dirty_blocks.insert(segment / USAGES_PER_BLOCK);
    }

    /// `bytes` of live data have been written to `segment`.
    pub(super) fn add_live(&mut self, segment: SegmentNo, bytes: u64, youngest: i64) {
        self.touch(segment);
        debug_assert!(!self.clean.contains(&segment), "G3: what is written to has been taken");
        debug_assert!(!self.ready.contains(&segment), "G3: what is written to has been taken");
        let entry = &mut self.segments[segment as usize];
        entry.youngest = if entry.live_bytes == 0 { youngest } else { entry.youngest.max(youngest) };
        self.used += u64::from(entry.live_bytes == 0 && bytes > 0);
        entry.live_bytes += bytes;
        entry.empty_since = 0;
        self.live_bytes += bytes;
        assert!(entry.live_bytes <= self.segment_bytes, "G2: a segment holds no more than its size");
        self.empty.remove(&segment);
        self.emptied.remove(&segment);
    }

    /// `bytes` of `segment` are no longer alive. Returns false when it does not hold as much, which only damage can
    /// cause.
    #[must_use]
    pub(super) fn remove_live(&mut self, segment: SegmentNo, bytes: u64) -> bool {
        self.touch(segment);
        let entry = &mut self.segments[segment as usize];
        let Some(rest) = entry.live_bytes.checked_sub(bytes) else { return false }; // G2
        self.used -= u64::from(entry.live_bytes > 0 && rest == 0);
        entry.live_bytes = rest;
        debug_assert!(self.live_bytes >= bytes, "G2: the sum is that of all segments");
        self.live_bytes -= bytes;
        debug_assert!(bytes == 0 || !self.clean.contains(&segment), "G3: what is clean holds nothing");
        debug_assert!(bytes == 0 || !self.ready.contains(&segment), "G3: what is ready holds nothing");
        if let Some(victims) = &mut self.victims {
            victims.died(&self.segments[segment as usize].described(segment, victims.now()));
            if self.immovable.remove(&segment) && rest > 0 && !self.cleaned.contains(&segment) {
                victims.left(segment);
            }
        }
        true
    }

    // ---- Victims ----

    /// Segments can be cleaned from now on. The log continues in the segments `kept`.
    pub(super) fn find_victims(&mut self, mut victims: Victims, kept: &[SegmentNo]) {
        let used = self.iter().filter(|(number, segment)| segment.live_bytes > 0 && !kept.contains(number));
        // Policies know segments in the order in which the log left them.
        let mut used: Vec<(i64, SegmentNo)> = used.map(|(number, segment)| (segment.youngest, number)).collect();
        used.sort_unstable();
        let now = victims.now() as i64;
        for (_, number) in used {
            let segment = &mut self.segments[number as usize];
            (segment.opened, segment.closed) = (now, now);
            victims.settle(&segment.described(number, victims.now()));
        }
        self.victims = Some(victims);
    }

    /// The log has begun to write `segment` at `now`.
    pub(super) fn opened(&mut self, segment: SegmentNo, now: i64) {
        debug_assert!(!self.is_free(segment), "G3: what is written to has been taken");
        let entry = &mut self.segments[segment as usize];
        (entry.opened, entry.unread) = (now, true);
    }

    /// The log has left `segment` at `now`.
    pub(super) fn left(&mut self, segment: SegmentNo, now: i64) {
        self.segments[segment as usize].closed = now;
        if let Some(victims) = &mut self.victims
            && !self.cleaned.contains(&segment)
        {
            victims.left(segment);
        }
    }

    /// Segments that were cleaned can be cleaned again. The log continues in the segments `kept`.
    pub(super) fn clean_again(&mut self, kept: &[SegmentNo]) {
        let cleaned = std::mem::take(&mut self.cleaned);
        if let Some(victims) = &mut self.victims {
            let is_used = |segment: &SegmentNo| self.segments[*segment as usize].live_bytes > 0;
            let is_left = |segment: &SegmentNo| is_used(segment) && !self.immovable.contains(segment);
            let again = cleaned.into_iter().filter(|segment| is_left(segment) && !kept.contains(segment));
            again.for_each(|segment| victims.left(segment));
        }
    }

    /// The best victim of those that are not `in_flight`; see [`Victims::choose`].
    pub(super) fn choose_victim(
        &mut self,
        nanos_since_epoch: i128,
        room_is_short: bool,
        in_flight: impl Fn(SegmentNo) -> bool,
    ) -> Option<SegmentNo> {
        let victims = self.victims.as_mut()?;
        victims.set_now(nanos_since_epoch);
        let mut leaving = victims.leaving();
        leaving.sort_by_key(|&segment| (self.segments[segment as usize].closed, segment));
        for segment in leaving.into_iter().filter(|&segment| !in_flight(segment)) {
            victims.settle(&self.segments[segment as usize].described(segment, victims.now()));
        }
        victims.choose(room_is_short)
    }

    /// `segment` is being cleaned: it is no victim again before the next checkpoint.
    pub(super) fn cleaned(&mut self, segment: SegmentNo) {
        if let Some(victims) = &mut self.victims {
            victims.cleaned(&self.segments[segment as usize].described(segment, victims.now()));
        }
        self.cleaned.insert(segment);
        self.segments[segment as usize].unread = false;
    }

    /// Nothing that is alive in `segment`, which was cleaned, could be moved.
    pub(super) fn stays(&mut self, segment: SegmentNo) {
        if self.segments[segment as usize].live_bytes > 0 {
            cover("lfs: nothing of a victim can be moved");
            self.immovable.insert(segment);
        }
    }

    /// The log begins to write `segment`: it is no longer clean, whatever happens to the write.
    pub(super) fn take(&mut self, segment: SegmentNo) {
        if self.segments[segment as usize].empty_since > 0 {
            cover("lfs: the log reuses a segment");
        }
        debug_assert!(!self.leaving.contains(&segment), "G3: what is on its way to the free ones is not written to");
        self.touch(segment);
        if let Some(victims) = &mut self.victims {
            victims.taken(segment);
        }
        self.clean.remove(&segment);
        let is_fresh = self.ready.remove(&segment);
        self.unused_since.remove(&segment);
        self.early.remove(&segment);
        self.empty.remove(&segment);
        self.emptied.remove(&segment);
        let entry = &mut self.segments[segment as usize];
        entry.empty_since = 0;
        if is_fresh {
            debug_assert_eq!(entry.live_bytes, 0, "G3: what is ready holds nothing");
            (entry.tree_bytes, entry.tree_until) = (0, 0);
            entry.uses += 1;
        }
        entry.passed_after = self.serial;
    }

    /// Neither indirect blocks nor blocks of internal files have been written to `segment` since it was clean.
    pub(super) fn has_no_tree(&mut self, segment: SegmentNo) {
        let entry = &mut self.segments[segment as usize];
        (entry.tree_bytes, entry.tree_until) = (0, 0);
    }

    /// `bytes` of those in `segment` are indirect blocks or blocks of internal files.
    pub(super) fn add_tree(&mut self, segment: SegmentNo, bytes: u64) {
        self.segments[segment as usize].tree_bytes += bytes;
    }

    /// `bytes` of these blocks have been written elsewhere. The checkpoints so far still lead to them.
    pub(super) fn remove_tree(&mut self, segment: SegmentNo, bytes: u64) {
        let entry = &mut self.segments[segment as usize];
        if entry.tree_bytes < TREE_UNKNOWN {
            debug_assert!(entry.tree_bytes >= bytes, "G1: all that was written to segment {segment} is counted");
            entry.tree_bytes -= bytes;
            entry.tree_until = self.serial + 1;
        }
    }

    /// A transaction has removed the last live byte from `segment`; the log that records this ends at `sequence`.
    pub(super) fn note_emptied(&mut self, segment: SegmentNo, sequence: u64) {
        if self.get(segment).live_bytes == 0 && !self.is_free(segment) {
            self.emptied.insert(segment, sequence);
        }
    }

    fn may_go_early(&self, segment: SegmentNo, older: u64) -> bool {
        let entry = self.get(segment);
        entry.tree_bytes == 0 && entry.tree_until <= older && entry.passed_after < older
    }

    /// The end of the log that has to be durable before any segment can become clean early.
    pub(super) fn next_early(&self, older: u64) -> Option<u64> {
        let soon = self.emptied.iter().filter(|&(&segment, _)| self.may_go_early(segment, older));
        soon.map(|(_, &sequence)| sequence).max()
    }

    /// Removes the segments that become clean early, now that the log is durable up to `durable` (G1). `older` is the
    /// older of the two slots' checkpoints.
    #[must_use]
    pub(super) fn let_go_early(&mut self, older: u64, durable: u64) -> Vec<SegmentNo> {
        let goes =
            |&(&segment, &sequence): &(&SegmentNo, &u64)| sequence <= durable && self.may_go_early(segment, older);
        let released: Vec<SegmentNo> = self.emptied.iter().filter(goes).map(|(&segment, _)| segment).collect();
        for &segment in &released {
            cover("lfs: a segment becomes clean before the next checkpoint");
            assert_eq!(self.get(segment).live_bytes, 0, "G3: what is empty holds nothing");
            debug_assert!(!self.is_free(segment), "G3: a segment becomes clean once");
            self.emptied.remove(&segment);
            self.empty.remove(&segment);
            let entry = &mut self.segments[segment as usize];
            entry.empty_since = 0;
            self.cleaned_empty += u64::from(std::mem::take(&mut entry.unread));
            self.touch(segment);
            self.early.insert(segment, self.serial);
            self.leaving.insert(segment);
        }
        released
    }

    /// The checkpoint `serial` is durable: a mount after a crash knows of the segments that were clean in it.
    pub(super) fn checkpointed(&mut self, serial: u64) {
        debug_assert!(serial <= self.serial, "G1: what is durable was assembled");
        self.early.retain(|_, known| *known >= serial);
    }

    /// Clean segments, ready or not, that a mount after a crash knows of.
    pub(super) fn surely_clean(&self) -> u64 {
        let early = self.early.len() - self.leaving.iter().filter(|segment| self.early.contains_key(segment)).count();
        let free = self.clean.len() + self.ready.len();
        debug_assert!(early <= free, "G3: what became clean early and is not leaving is clean or ready");
        (free - early) as u64
    }

    /// Of these, those with storage below: they can be written even if the storage below is full by then.
    pub(super) fn surely_ready(&self) -> u64 {
        self.ready.iter().filter(|segment| !self.early.contains_key(segment)).count() as u64
    }

    /// Whether there are `count` of them, without counting them all.
    pub(super) fn are_surely_ready(&self, count: u64) -> bool {
        let sure = self.ready.iter().filter(|segment| !self.early.contains_key(segment));
        self.ready.len() >= self.early.len() + count as usize || sure.take(count as usize).count() as u64 == count
    }

    /// Whether there is a clean segment, without certain storage, that a mount after a crash knows of.
    pub(super) fn has_surely_clean(&self) -> bool {
        self.surely_clean() > self.surely_ready()
    }

    /// At most `most` clean segments, in the order in which the log would take them: those behind `after` first, and before all
    /// others those that a mount after a crash knows of.
    pub(super) fn to_provision(&self, after: SegmentNo, most: usize) -> Vec<SegmentNo> {
        let following = self.clean.range(after + 1..).chain(self.clean.range(..=after)).copied();
        let is_early = |segment: &SegmentNo| self.early.contains_key(segment);
        let sure = following.clone().filter(|segment| !is_early(segment));
        sure.chain(following.filter(is_early)).take(most).collect()
    }

    /// Whether nothing needs the segment.
    pub(super) fn is_free(&self, segment: SegmentNo) -> bool {
        self.clean.contains(&segment) || self.ready.contains(&segment) || self.leaving.contains(&segment)
    }

    /// The first ready segment after `after` on the device, or the first one of all.
    pub(super) fn next_ready(&self, after: SegmentNo, taken: &[SegmentNo]) -> Option<SegmentNo> {
        let following = self.ready.range(after + 1..).chain(self.ready.range(..=after));
        let is_untaken = |segment: &SegmentNo| !taken.contains(segment);
        // Those that a mount after a crash does not know of first, so that it has room for its checkpoint (S3).
        let early = following.clone().copied().filter(|segment| self.early.contains_key(segment)).find(is_untaken);
        let found = early.or_else(|| following.copied().find(is_untaken));
        if found.is_some_and(|found| found < after) {
            cover("lfs: the log goes on at the start of the volume");
        }
        debug_assert!(found.is_none_or(|segment| self.get(segment).live_bytes == 0), "G3: what is ready holds nothing");
        debug_assert!(found.is_none_or(|segment| !self.clean.contains(&segment)), "G3: a segment is in one set");
        debug_assert!(found.is_none_or(|segment| !self.empty.contains_key(&segment)), "G3: a segment is in one set");
        found
    }

    /// Segments in which something is alive.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Segments that one or two checkpoints would make clean. The log continues in the segments `kept`.
    pub(super) fn waiting(&self, kept: [SegmentNo; 2]) -> u64 {
        let free = (self.clean.len() + self.ready.len() + self.leaving.len()) as u64;
        let is_empty = |segment: &&SegmentNo| self.get(**segment).live_bytes == 0;
        debug_assert!(self.used + free <= self.count(), "G3: what is free holds nothing");
        // G3: those in which the log continues are not free.
        self.count() - self.used - free - kept.iter().filter(is_empty).count() as u64
    }

    /// The released `segment` is ready, or clean if storage below it is not certain.
    pub(super) fn put_back(&mut self, segment: SegmentNo, is_ready: bool) {
        assert!(self.leaving.remove(&segment), "G3: a segment becomes clean once");
        debug_assert_eq!(self.get(segment).live_bytes, 0, "G3: what is leaving holds nothing");
        let into = if is_ready { &mut self.ready } else { &mut self.clean };
        let is_new = into.insert(segment);
        debug_assert!(is_new, "G3: a segment is in one set");
    }

    /// Releases ready segments that the log has not needed for so long, in the order of the device: at most `most`, and
    /// at most `spare` of those that a mount after a crash knows of (S3).
    #[must_use]
    pub(super) fn leave_unused(
        &mut self,
        now: Nanos,
        unused_for: Nanos,
        mut spare: u64,
        most: usize,
    ) -> Vec<SegmentNo> {
        let mut due = Vec::new();
        for &segment in &self.ready {
            let since = *self.unused_since.entry(segment).or_insert(now);
            let is_sure = !self.early.contains_key(&segment);
            if since + unused_for <= now && (spare > 0 || !is_sure) && due.len() < most {
                spare -= u64::from(is_sure);
                due.push(segment);
            }
        }
        for segment in &due {
            self.unused_since.remove(segment);
            self.ready.remove(segment);
            self.leaving.insert(*segment);
        }
        due
    }

    /// Records, for the checkpoint `serial` that is being assembled, which segments are empty now. The log continues in
    /// the segments `kept`.
    pub(super) fn note_empty(&mut self, serial: u64, kept: &[SegmentNo]) {
        debug_assert!(serial >= self.serial, "G1: checkpoints are numbered upwards");
        let blocks: Vec<u64> = self.dirty_blocks.iter().copied().collect();
        for block in blocks {
            let first = block * USAGES_PER_BLOCK;
            for number in first..(first + USAGES_PER_BLOCK).min(self.count()) {
                let is_free = self.is_free(number) || kept.contains(&number);
                let entry = &mut self.segments[number as usize];
                if entry.live_bytes == 0 && entry.empty_since == 0 && !is_free {
                    entry.empty_since = serial;
                    self.empty.insert(number, serial);
                }
            }
        }
    }

    /// Removes from `empty` the segments that neither slot needs any more; `older` is the older of the two checkpoints
    /// (G1).
    #[must_use]
    pub(super) fn let_go(&mut self, older: u64) -> Vec<SegmentNo> {
        let released: Vec<SegmentNo> =
            self.empty.iter().filter(|&(_, &since)| since <= older).map(|(&segment, _)| segment).collect();
        for segment in &released {
            self.empty.remove(segment);
            self.emptied.remove(segment);
            let is_new = self.leaving.insert(*segment);
            debug_assert!(is_new, "G3: a segment becomes clean once");
            let entry = &mut self.segments[*segment as usize];
            self.cleaned_empty += u64::from(std::mem::take(&mut entry.unread));
            assert_eq!(self.get(*segment).live_bytes, 0, "G3: what is empty holds nothing");
            debug_assert!(!self.clean.contains(segment), "G3: a segment is in one set");
            debug_assert!(!self.ready.contains(segment), "G3: a segment is in one set");
        }
        released
    }
}
