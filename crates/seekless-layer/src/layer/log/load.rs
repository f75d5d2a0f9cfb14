//! Reading a lower file: its kind, its slots, its records.

use std::cell::RefCell;
use std::ops::Range;

use super::evidence::Evidence;
use super::file::{File, Form, Tail};
use super::format::{
    Commit, Entry, FileRecord, Head, RECORD_ALIGN, RECORDS_START, SLOT_BYTES, SizeMark, SlotState,
    UNCOMMITTED_GENERATION_MAX, kinds,
};
use super::index::{NodeAt, Step};
use super::mark::{NAME, may_hide_a_mark};
use super::node::OpenFile;
use super::{ChunkedLayer, Plain, count};
use crate::codec::is_zero;
use crate::fs::{Fs, FsError, FsResult, Handle};
use crate::layer::change::View;
use crate::layer::read_lower;
use crate::rt::cover;
use crate::units::{Ino, SECTOR_BYTES};

/// Content of a lower file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// Empty, or left by an interrupted first commit.
    Empty,
    Log(Commit),
    /// Not ours.
    Plain(Evidence),
    /// One of ours that cannot be read; the text says why.
    Damaged(String),
}

/// Length of the search for the first record of ours in a file that begins with zeroes. Staging writes records from the
/// start on, so that a power cut hardly ever loses more than that before a record that it keeps.
const SEARCH_BYTES_MAX: u64 = 64 << 20;

/// Bytes of one read in long scans.
pub(super) const PIECE_BYTES: u32 = 1 << 20;

/// Reads the slots of a lower file of `lower_size` bytes. Only a file with a valid checksum counts as ours.
///
/// 1. A file of no bytes is an empty one.
/// 2. A slot that is damaged, of a later version, or good but of more bytes than there are makes a damaged file. One
///    that is not in the slot for its generation is foreign.
/// 3. Of two good slots, the newer counts; a provisional one only if the records written for it are intact, and
///    otherwise the older, which is durable.
/// 4. Without any slot of ours the file is plain, with one exception: where it begins with zeroes, as before its first
///    commit, and contains only records of ours behind them, it is ours: see [`look_behind_zeroes`].
pub(super) async fn look(lower: &Fs, ino: Ino, handle: Option<Handle>, lower_size: u64) -> FsResult<Content> {
    look_at(View::now(lower, ino, handle, lower_size)).await
}

/// As [`look`], for a file that may be about to change.
pub(super) async fn look_at(view: View<'_>) -> FsResult<Content> {
    let lower_size = view.size;
    if lower_size == 0 {
        return Ok(Content::Empty);
    }
    let start = view.read(0, RECORDS_START as u32).await?;
    let (first, second) = start.split_at(start.len().min(SLOT_BYTES as usize));
    let states = [Commit::decode(first), Commit::decode(second)];
    let states = [0, SLOT_BYTES].into_iter().zip(states).map(|(offset, state)| match state {
        SlotState::Good(commit) if commit.slot_offset() != offset => SlotState::Foreign,
        state => state,
    });
    let states: Vec<SlotState> = states.collect();
    let (mut newest, mut older): (Option<Commit>, Option<Commit>) = (None, None);
    for (number, state) in states.iter().enumerate() {
        match state {
            SlotState::Damaged(problem) => return Ok(Content::Damaged(format!("slot {number}: {problem}"))),
            SlotState::Newer(version) => {
                let problem = format!("it was written by version {version} of the format, which is not known here");
                return Ok(Content::Damaged(problem));
            }
            SlotState::Good(commit) => {
                match newest.as_ref().is_none_or(|newest| newest.generation < commit.generation) {
                    true => older = newest.replace(commit.clone()),
                    false => older = Some(commit.clone()),
                }
            }
            SlotState::Blank | SlotState::CutOff | SlotState::Foreign => {}
        }
    }
    let foreign = states.contains(&SlotState::Foreign);
    let is_complete = !foreign && states[1] != SlotState::CutOff;
    if let Some(commit) = newest.take_if(|commit| is_complete && commit.is_provisional) {
        newest = match (is_whole(view, &commit).await?, older) {
            (true, _) => {
                cover("layer: a provisional commit is whole");
                Some(commit)
            }
            (false, Some(older)) => {
                cover("layer: the commit before a provisional one counts");
                if older.is_provisional {
                    cover("layer: two provisional commits, of which the older counts");
                }
                // It was durable before the newer one was written (P1).
                Some(Commit { is_provisional: false, ..older })
            }
            // Not even its initial commit was durable.
            (false, None) => return Ok(Content::Empty),
        };
    }
    // A shorter file may still get the rest of a slot.
    let slots = match lower_size < RECORDS_START {
        true => Evidence::UNKNOWN,
        false => Evidence { zeroes: 0, end: RECORDS_START },
    };
    match newest {
        Some(_) if states[1] == SlotState::CutOff => {
            Ok(Content::Damaged("it was cut off in its second slot".to_string()))
        }
        Some(_) if foreign => Ok(Content::Damaged("one of its two slots has been overwritten".to_string())),
        Some(commit) if commit.end > lower_size && commit.live_bytes > 0 => {
            Ok(Content::Damaged(format!("it has {lower_size} bytes of {}: it was cut off", commit.end)))
        }
        // So short, it holds at most an initial commit, as later ones are in the second slot.
        Some(commit) if commit.end > lower_size => Ok(cut_by_others(view).await?.unwrap_or(Content::Log(commit))),
        Some(commit) => Ok(Content::Log(commit)),
        None if foreign => Ok(without_head(view).await?.unwrap_or(Content::Plain(slots))),
        // The first write was cut off.
        None if states[0] == SlotState::CutOff && Commit::is_cut_initial(first) => {
            Ok(cut_by_others(view).await?.unwrap_or(Content::Empty))
        }
        None if states[0] == SlotState::CutOff => {
            Ok(Content::Damaged("it was cut off in its first slot, or begins like a file of ours".to_string()))
        }
        None if states[1] == SlotState::CutOff => Ok(without_head(view).await?.unwrap_or(Content::Plain(slots))),
        None => match look_behind_zeroes(view).await? {
            Content::Plain(evidence) => Ok(without_head(view).await?.unwrap_or(Content::Plain(evidence))),
            other => Ok(other),
        },
    }
}

/// What is known of a file without a slot of ours if its mark is clean and of a file as long as it is: it was one of ours, and
/// something has overwritten its slots. Should another program have stored something else of just that length, an error is still
/// the safer answer.
async fn without_head(view: View<'_>) -> FsResult<Option<Content>> {
    let is_as_long = clean_mark(view).await?.is_some_and(|mark| mark.lower_size == view.size);
    Ok(is_as_long
        .then(|| Content::Damaged("something has overwritten its first kilobyte, with both slots".to_string())))
}

/// The mark of a file, if it is clean.
async fn clean_mark(view: View<'_>) -> FsResult<Option<SizeMark>> {
    let mark = match view.lower.getxattr(view.ino, NAME).await {
        Err(error) if may_hide_a_mark(&error) => return Err(error),
        other => SizeMark::from_bytes(&other.unwrap_or_default()),
    };
    Ok(mark.filter(|mark| mark.clean == 1))
}

/// What is known of a file whose rest looks as if its first write was cut off, if its mark is clean and of a longer file: it had a durable
/// commit, and another program has cut it off.
async fn cut_by_others(view: View<'_>) -> FsResult<Option<Content>> {
    let longer = clean_mark(view).await?.filter(|mark| mark.lower_size > view.size);
    Ok(longer
        .map(|mark| Content::Damaged(format!("it has {} bytes of {}: it was cut off", view.size, mark.lower_size))))
}

/// Whether all records that were written for a provisional commit are intact: those of its generation, or of later ones
/// where a commit failed in between. All others were durable before.
///
/// # Errors
/// Those of reading: an unreadable record may be intact.
async fn is_whole(view: View<'_>, commit: &Commit) -> FsResult<bool> {
    let nodes = commit.root.iter().map(|entry| (commit.depth, *entry));
    let mut open: Vec<(u8, Entry)> = nodes.chain([(0, commit.tail)]).filter(|(_, entry)| !entry.is_hole()).collect();
    // Bound on the number of records: with more, some of them overlap.
    let mut left = commit.end / RECORD_ALIGN;
    while let Some((level, entry)) = open.pop() {
        if entry.end() > view.size.min(commit.end) || left == 0 {
            return Ok(false);
        }
        left -= 1;
        let head = view.read(entry.offset, Head::BYTES as u32).await?;
        if let Ok(head) = Head::checked(&head)
            && (head.head_crc, head.file_id) == (entry.crc, commit.file_id)
            && head.generation < commit.generation
        {
            continue;
        }
        let bytes = view.read(entry.offset, entry.bytes).await?;
        let record = match FileRecord::decode(&bytes, &entry) {
            Ok(record) if record.file_id == commit.file_id => record,
            _ => return Ok(false),
        };
        if level > 0 {
            let entries = super::format::entries_from_bytes(&record.body);
            open.extend(entries.into_iter().filter(|entry| !entry.is_hole()).map(|entry| (level - 1, entry)));
        }
    }
    Ok(true)
}

/// Classifies a file that begins with zeroes where the slots would be.
///
/// A power cut during the first commit can leave records without the slot that was written before them. They are ours
/// when the file contains nothing else: every byte that is not zero belongs to a record of one file, and each record is
/// intact or torn, which means that a sector of it is missing. Any other byte makes the file a plain one.
///
/// Where records or the mark show that there was a commit, no power cut lost the head: the file is damaged, and the
/// check builds a new head from its records.
async fn look_behind_zeroes(view: View<'_>) -> FsResult<Content> {
    let lower_size = view.size;
    let mut nothing = Evidence::ALL_ZERO;
    let mut first_at = None;
    let mut first: Option<Head> = None;
    let mut generation_max = 0;
    let mut searched = 0;
    let (mut at, mut piece, mut piece_start) = (RECORDS_START, Vec::new(), RECORDS_START);
    while at < lower_size {
        let wanted = RECORD_ALIGN.min(lower_size - at) as usize;
        let within = (at - piece_start) as usize;
        if piece.len() < within + wanted {
            at = match view.next_data(at).await {
                Ok(data) => at.max(data / RECORD_ALIGN * RECORD_ALIGN),
                Err(FsError::NoSuchOffset) => break,
                Err(FsError::Unsupported) => at,
                Err(error) => return Err(error),
            };
            (piece, piece_start) = (view.read(at, PIECE_BYTES).await?, at);
            searched += piece.len() as u64;
            let is_short = (piece.len() as u64) < RECORD_ALIGN.min(lower_size.saturating_sub(at));
            if first.is_none() && searched > SEARCH_BYTES_MAX {
                nothing = Evidence { zeroes: at, end: at + piece.len() as u64 };
                break;
            }
            if piece.is_empty() || is_short {
                nothing = Evidence::UNKNOWN;
                break;
            }
            continue;
        }
        let bytes = &piece[within..];
        if is_zero(&bytes[..wanted]) {
            at += RECORD_ALIGN;
            continue;
        }
        let plain = |bytes: u64| Ok(Content::Plain(Evidence { zeroes: first_at.unwrap_or(at), end: at + bytes }));
        let Ok(head) = Head::checked(bytes) else { return plain(RECORD_ALIGN) };
        let same_file = |first: Head| (first.file_id, first.chunk_shift) == (head.file_id, head.chunk_shift);
        if !first.is_none_or(same_file) {
            return plain(RECORD_ALIGN);
        }
        let record = view.read(at, head.record_bytes() as u32).await?;
        if !is_whole_or_torn(at, &record, &head) {
            return plain(head.record_bytes());
        }
        first = first.or(Some(head));
        first_at = first_at.or(Some(at));
        generation_max = generation_max.max(head.generation);
        at += head.record_bytes();
        if at - piece_start > piece.len() as u64 {
            (piece, piece_start) = (Vec::new(), at);
        }
    }
    if first.is_none() {
        return Ok(Content::Plain(nothing));
    }
    let mark = match view.lower.getxattr(view.ino, NAME).await {
        Err(error) if may_hide_a_mark(&error) => return Err(error),
        other => other.unwrap_or_default(),
    };
    match generation_max > UNCOMMITTED_GENERATION_MAX || SizeMark::from_bytes(&mark).is_some() {
        true => Ok(Content::Damaged("its first kilobyte, with both slots, is gone".to_string())),
        false => Ok(Content::Empty),
    }
}

/// Whether `bytes`, which begin at `offset` of the lower file, are the record of `head`, or what a power cut left of
/// it.
fn is_whole_or_torn(offset: u64, bytes: &[u8], head: &Head) -> bool {
    let entry = Entry { offset, bytes: head.record_bytes() as u32, crc: head.head_crc };
    if bytes.len() < entry.bytes as usize || FileRecord::decode(bytes, &entry).is_ok() {
        return true;
    }
    // A write is torn between sectors. The sector with the head exists.
    let first_sector = (SECTOR_BYTES - offset % SECTOR_BYTES) as usize;
    let rest = bytes.get(first_sector..).unwrap_or_default();
    rest.chunks(SECTOR_BYTES as usize).any(is_zero)
}

/// Reads the record of `entry`.
///
/// # Errors
/// `Corrupt` when it is missing or not intact.
pub(super) async fn read_record(
    lower: &Fs,
    ino: Ino,
    handle: Option<Handle>,
    what: &'static str,
    entry: Entry,
) -> FsResult<FileRecord> {
    let bytes = read_lower(lower, ino, handle, entry.offset, entry.bytes).await?;
    FileRecord::decode(&bytes, &entry).map_err(|problem| damaged(what, ino, entry, problem))
}

impl OpenFile<'_> {
    /// Reads the record of `entry` in the lower file.
    ///
    /// # Errors
    /// `Corrupt` when it is missing or not intact.
    pub(super) async fn read_record(&self, what: &'static str, entry: Entry) -> FsResult<FileRecord> {
        read_record(self.lower, self.ino(), self.handle, what, entry).await
    }
}

/// The file that was asked for is damaged or cannot be read, which says nothing about others.
pub(super) fn is_of_one_file(error: &FsError) -> bool {
    const EIO: i32 = 5;
    error.is_of_one_place() || matches!(error, FsError::Host(EIO))
}

/// This user may not do it, which says nothing about other files and directories.
pub(super) fn is_forbidden(error: &FsError) -> bool {
    const EACCES: i32 = 13;
    matches!(error, FsError::NotPermitted | FsError::Host(EACCES))
}

pub(super) fn damaged(what: &'static str, ino: Ino, entry: Entry, problem: String) -> FsError {
    FsError::corrupt(what, format_args!("byte {} of the lower file of inode {ino}", entry.offset), problem)
}

impl ChunkedLayer {
    /// A number for a new file, stored in all its records: unique for all practical purposes.
    pub(super) fn new_file_id(&self, ino: Ino) -> u64 {
        let now = self.rt.wall().nanos_since_epoch() as u64;
        let serial = self.next_serial.get();
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&now.to_le_bytes());
        bytes[8..16].copy_from_slice(&ino.0.to_le_bytes());
        bytes[16..].copy_from_slice(&serial.to_le_bytes());
        // Two halves with different starts: a checksum is no hash, but different inputs give different results often
        // enough.
        let (low, high) = (crate::codec::crc32c(&bytes), crate::codec::crc32c_append(0x5345_454b, &bytes[4..]));
        u64::from(high) << 32 | u64::from(low)
    }

    /// Reads the slots of the file unless that has been done.
    ///
    /// # Errors
    /// Those of reading. An error in the file itself becomes its form, and callers that ask for its data get it.
    pub(super) async fn ensure_loaded(&self, file: OpenFile<'_>) -> FsResult<()> {
        self.load(file.lower, file.ino(), file.handle, file.state).await
    }

    /// As [`ChunkedLayer::ensure_loaded`], for the state of a lower file that no node has yet.
    pub(super) async fn load(
        &self,
        lower: &Fs,
        ino: Ino,
        handle: Option<Handle>,
        file: &RefCell<File>,
    ) -> FsResult<()> {
        if file.borrow().form != Form::Unread {
            return Ok(());
        }
        let lower_size = lower.getattr(ino, handle).await?.size;
        let content = look(lower, ino, handle, lower_size).await?;
        let tail = match &content {
            Content::Log(commit) if !commit.tail.is_hole() => {
                Some(read_record(lower, ino, handle, "tail", commit.tail).await.map(|record| Tail {
                    entry: commit.tail,
                    chunk: record.number,
                    start: record.raw_bytes,
                }))
            }
            _ => None,
        };
        count(&self.counts.headers_read, 1);
        let mut file = file.borrow_mut();
        if file.form != Form::Unread {
            return Ok(()); // Another task was faster, and may have changed it since.
        }
        let file_id = self.new_file_id(ino);
        let corrupt = |problem: &str| FsError::corrupt("compressed file", format_args!("inode {ino}"), problem);
        let mark = file.mark;
        match (content, tail) {
            (Content::Log(_), Some(Err(error))) => file.form = Form::Broken(error),
            (Content::Log(commit), Some(Ok(tail))) if tail.chunk >= commit.chunks() => {
                file.form = Form::Broken(corrupt("its tail is of a chunk that it does not have"));
            }
            (Content::Log(commit), tail) => {
                file.load(&commit, tail.and_then(Result::ok), lower_size);
                if file.is_provisional && self.read_only {
                    // It cannot be confirmed on a read-only mount, which writes nothing that could endanger it.
                    file.is_provisional = false;
                    file.durable_generation = file.generation;
                }
                if file.is_provisional {
                    self.set_timer();
                }
            }
            (Content::Empty, _) => {
                let has_no_link_count = file.has_no_link_count;
                let has_remains = lower_size > 0;
                let empty = File::empty(self.options.chunk_shift, file_id);
                *file = File { mark, has_remains, has_no_link_count, ..empty };
            }
            (Content::Plain(evidence), _) if self.options.plain == Plain::Pass => file.form = Form::Plain(evidence),
            (Content::Plain(_), _) => {
                file.form = Form::Broken(corrupt("it was not written by this layer, and `plain=error` refuses it"));
            }
            (Content::Damaged(problem), _) => file.form = Form::Broken(corrupt(&problem)),
        }
        Ok(())
    }

    /// Runs a query on the index of a file, and reads the nodes that it needs.
    ///
    /// # Errors
    /// Those of reading; `Corrupt` when a node is damaged.
    pub(super) async fn with_index<T>(
        &self,
        file: OpenFile<'_>,
        mut ask: impl FnMut(&mut File) -> Step<T>,
    ) -> FsResult<T> {
        loop {
            let at = match ask(&mut file.borrow_mut()) {
                Step::Done(answer) => return Ok(answer),
                Step::Load(at) => at,
            };
            let entries = read_node(file, at).await;
            // During the read, the node may have been replaced and its space reused.
            let is_current = match ask(&mut file.borrow_mut()) {
                Step::Done(answer) => return Ok(answer),
                Step::Load(again) => again == at,
            };
            if is_current {
                file.borrow_mut().index.insert(at, entries?);
            }
        }
    }

    /// Reads the whole index of a file, also behind a node that is damaged or cannot be read.
    ///
    /// # Errors
    /// Those that are not about this file alone.
    pub(super) async fn list(&self, file: OpenFile<'_>) -> FsResult<Listed> {
        let mut listed = Listed::default();
        let mut from = 0;
        loop {
            match self.with_index(file, |file| file.index.next(from)).await {
                Ok(Some((chunk, entry))) => {
                    listed.chunks.push((chunk, entry));
                    from = chunk + 1;
                }
                Ok(None) => return Ok(listed),
                Err(error) if is_of_one_file(&error) => {
                    let Step::Load(at) = file.borrow().index.next(from) else { return Err(error) };
                    from = at.chunks().end;
                    listed.unknown.push((at.chunks(), error));
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// What the index of a file says, as far as it can be read.
#[derive(Default)]
pub(super) struct Listed {
    /// The chunks that have a record, in order.
    pub(super) chunks: Vec<(u64, Entry)>,
    /// Chunks of which nothing is known, and the error of their node.
    pub(super) unknown: Vec<(Range<u64>, FsError)>,
}

/// Reads a node of the index.
async fn read_node(file: OpenFile<'_>, at: NodeAt) -> FsResult<Vec<Entry>> {
    let record = file.read_record("index", at.entry).await?;
    let wrong = |problem: String| damaged("index", file.ino(), at.entry, problem);
    let file = file.borrow();
    file.check_record(&record, kinds::NODE, at.number).map_err(wrong)?;
    if record.codec != at.level {
        return Err(wrong(format!("a node of level {} instead of {}", record.codec, at.level)));
    }
    let entries = super::format::entries_from_bytes(&record.body);
    let end = file.space.end();
    entries.iter().try_for_each(|entry| entry.check(end)).map_err(wrong)?;
    if entries.len() > super::format::NODE_ENTRIES {
        return Err(wrong(format!("{} entries in a node", entries.len())));
    }
    Ok(entries)
}
