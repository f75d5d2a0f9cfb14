//! Reading a lower file: what it is, its slots, its records.

use super::file::{File, Form, Node, Tail};
use super::format::{Commit, Entry, Head, RECORD_ALIGN, RECORDS_START, Record, SLOT_BYTES, SlotState, kinds};
use super::index::{NodeAt, Step};
use super::{Log, Plain, count};
use crate::fs::{Fs, FsError, FsResult, Handle, SeekTo};
use crate::layer::read_lower;
use crate::units::Ino;

/// What a lower file holds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Content {
    /// Nothing, or what was under way before the first commit.
    Empty,
    Log(Commit),
    /// Not ours.
    Plain,
    /// Ours, and it cannot be read; the text says why.
    Damaged(String),
}

/// So much of a file that begins with zeroes is searched for a record of ours. More than that is never staged before the
/// first commit.
const SEARCH_BYTES_MAX: u64 = 64 << 20;

/// Bytes read at once where much is read.
pub(super) const PIECE_BYTES: u32 = 1 << 20;

/// Looks at the slots of a lower file of `lower_size` bytes.
///
/// 1. A file of no bytes is an empty one.
/// 2. A slot that is damaged, of a later version, or good but of more bytes than there are makes a damaged file.
/// 3. Of good slots, the newer counts.
/// 4. Without any slot of ours the file is plain; except that where it begins with zeroes, as before its first commit, a
///    record of ours shows that it is ours, and empty.
pub(super) async fn look(lower: &Fs, ino: Ino, handle: Option<Handle>, lower_size: u64) -> FsResult<Content> {
    if lower_size == 0 {
        return Ok(Content::Empty);
    }
    let start = read_lower(lower, ino, handle, 0, RECORDS_START as u32).await?;
    let (first, second) = start.split_at(start.len().min(SLOT_BYTES as usize));
    let states = [Commit::decode(first), Commit::decode(second)];
    let mut newest: Option<Commit> = None;
    for (number, state) in states.iter().enumerate() {
        match state {
            SlotState::Damaged(problem) => return Ok(Content::Damaged(format!("slot {number}: {problem}"))),
            SlotState::Newer(version) => {
                let problem = format!("it was written by version {version} of the format, which is not known here");
                return Ok(Content::Damaged(problem));
            }
            SlotState::Good(commit) => {
                if newest.as_ref().is_none_or(|newest| newest.generation < commit.generation) {
                    newest = Some(commit.clone());
                }
            }
            SlotState::Blank | SlotState::CutOff | SlotState::Foreign => {}
        }
    }
    let foreign = states.contains(&SlotState::Foreign);
    match newest {
        Some(_) if states[1] == SlotState::CutOff => {
            Ok(Content::Damaged("it was cut off in its second slot".to_string()))
        }
        Some(_) if foreign => Ok(Content::Damaged("one of its two slots has been overwritten".to_string())),
        Some(commit) if commit.end > lower_size && commit.live_bytes > 0 => {
            Ok(Content::Damaged(format!("it has {lower_size} bytes of {}: it was cut off", commit.end)))
        }
        Some(commit) => Ok(Content::Log(commit)),
        None if foreign => Ok(Content::Plain),
        // The very first write was cut off.
        None if states[0] == SlotState::CutOff => Ok(Content::Empty),
        None if states[1] == SlotState::CutOff => Ok(Content::Plain),
        None => match has_record(lower, ino, handle).await? {
            true => Ok(Content::Empty),
            false => Ok(Content::Plain),
        },
    }
}

/// True when there is the head of a record in a file that begins with zeroes.
async fn has_record(lower: &Fs, ino: Ino, handle: Option<Handle>) -> FsResult<bool> {
    let mut at = RECORDS_START;
    let mut searched = 0;
    while searched < SEARCH_BYTES_MAX {
        at = match lower.lseek(ino, handle, at, SeekTo::Data).await {
            Ok(data) => data / RECORD_ALIGN * RECORD_ALIGN,
            Err(FsError::NoSuchOffset) => return Ok(false),
            Err(FsError::Unsupported) => at,
            Err(error) => return Err(error),
        };
        let piece = read_lower(lower, ino, handle, at, PIECE_BYTES).await?;
        if piece.is_empty() {
            return Ok(false);
        }
        let mut heads = (0..piece.len()).step_by(RECORD_ALIGN as usize);
        if heads.any(|head| Head::checked(&piece[head..]).is_ok()) {
            return Ok(true);
        }
        at += (piece.len() as u64).next_multiple_of(RECORD_ALIGN);
        searched += piece.len() as u64;
    }
    Ok(false)
}

/// Reads the record of `entry`.
///
/// # Errors
/// `Corrupt` when it is not there, or not whole.
pub(super) async fn read_record(
    lower: &Fs,
    ino: Ino,
    handle: Option<Handle>,
    what: &'static str,
    entry: Entry,
) -> FsResult<Record> {
    let bytes = read_lower(lower, ino, handle, entry.offset, entry.bytes).await?;
    Record::decode(&bytes, &entry).map_err(|problem| damaged(what, ino, entry, problem))
}

pub(super) fn damaged(what: &'static str, ino: Ino, entry: Entry, problem: String) -> FsError {
    FsError::corrupt(what, format_args!("byte {} of the lower file of inode {ino}", entry.offset), problem)
}

impl Log {
    /// A number for a new file, to be found in all its records: different from that of any other, for all practical
    /// purposes.
    pub(super) fn new_file_id(&self, ino: Ino) -> u64 {
        let now = self.rt.wall().nanos_since_epoch() as u64;
        let serial = self.next_serial.get();
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&now.to_le_bytes());
        bytes[8..16].copy_from_slice(&ino.0.to_le_bytes());
        bytes[16..].copy_from_slice(&serial.to_le_bytes());
        // Two halves with different starts: a checksum is no hash, but it keeps apart what differs.
        let (low, high) = (crate::codec::crc32c(&bytes), crate::codec::crc32c_append(0x5345_454b, &bytes[4..]));
        u64::from(high) << 32 | u64::from(low)
    }

    /// Makes sure that the slots of the file have been read.
    ///
    /// # Errors
    /// Those of reading. What is wrong with the file itself is its form, and an error of whoever asks for its data.
    pub(super) async fn ensure_loaded(&self, lower: &Fs, handle: Option<Handle>, node: &Node) -> FsResult<()> {
        let Some(file) = node.regular() else { return Ok(()) };
        if file.borrow().form != Form::Unread {
            return Ok(());
        }
        let lower_size = lower.getattr(node.ino, handle).await?.size;
        let content = look(lower, node.ino, handle, lower_size).await?;
        let tail = match &content {
            Content::Log(commit) if !commit.tail.is_hole() => {
                Some(read_record(lower, node.ino, handle, "tail", commit.tail).await.map(|record| Tail {
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
            return Ok(()); // Somebody else was faster, and may have changed it since.
        }
        let file_id = self.new_file_id(node.ino);
        let corrupt = |problem: &str| FsError::corrupt("compressed file", format_args!("inode {}", node.ino), problem);
        let mark = file.mark;
        match (content, tail) {
            (Content::Log(_), Some(Err(error))) => file.form = Form::Broken(error),
            (Content::Log(commit), Some(Ok(tail)))
                if tail.chunk > commit.size.saturating_sub(1) >> commit.chunk_shift =>
            {
                file.form = Form::Broken(corrupt("its tail is of a chunk that it does not have"));
            }
            (Content::Log(commit), tail) => file.load(&commit, tail.and_then(Result::ok), lower_size),
            (Content::Empty, _) => *file = File { mark, ..File::empty(self.options.chunk_shift, file_id) },
            (Content::Plain, _) if self.options.plain == Plain::Pass => file.form = Form::Plain,
            (Content::Plain, _) => {
                file.form = Form::Broken(corrupt("it was not written by this layer, and `plain=error` refuses it"));
            }
            (Content::Damaged(problem), _) => file.form = Form::Broken(corrupt(&problem)),
        }
        Ok(())
    }

    /// Answers a question to the index of a file, reading the nodes that it needs.
    ///
    /// # Errors
    /// Those of reading; `Corrupt` when a node is not what it should be.
    pub(super) async fn with_index<T>(
        &self,
        lower: &Fs,
        handle: Option<Handle>,
        node: &Node,
        mut ask: impl FnMut(&mut File) -> Step<T>,
    ) -> FsResult<T> {
        let Some(file) = node.regular() else { return Err(FsError::Invalid("not a regular file")) };
        loop {
            let at = match ask(&mut file.borrow_mut()) {
                Step::Done(answer) => return Ok(answer),
                Step::Load(at) => at,
            };
            let entries = read_node(lower, handle, node, at).await;
            // While it was read, it may have been replaced and its space used again.
            let is_current = match ask(&mut file.borrow_mut()) {
                Step::Done(answer) => return Ok(answer),
                Step::Load(again) => again == at,
            };
            if is_current {
                file.borrow_mut().index.insert(at, entries?);
            }
        }
    }
}

/// Reads a node of the index.
async fn read_node(lower: &Fs, handle: Option<Handle>, node: &Node, at: NodeAt) -> FsResult<Vec<Entry>> {
    let record = read_record(lower, node.ino, handle, "index", at.entry).await?;
    let wrong = |problem: String| damaged("index", node.ino, at.entry, problem);
    let Some(file) = node.regular() else { return Err(FsError::Invalid("not a regular file")) };
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
