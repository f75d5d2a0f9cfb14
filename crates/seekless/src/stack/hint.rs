//! Stack lines in hints: they are pasted into a shell, so each must do what the text beside it says.
//!
//! Invariants
//!   H1  The line after mkfs opens what mkfs has made. It omits what only mkfs needs and what the volume stores,
//!       according to the table of words, and nothing else: an option that affects where data is, such as a seed,
//!       stays.
//!   H2  A line for mkfs makes what the line beside it opens, and has no word or option that mkfs refuses.
//!   H3  A quoted text, read by the shell, is the original text.

use std::path::Path;

use super::error::BuildError;
use super::spec::{Constructor, Param, Purpose};
use super::vld::{SNAPSHOT, VLD};
use super::{Setting, Stack, Word, devices};

/// Suggested size of an image.
const SIZE: &str = "1GiB";

impl Stack {
    /// The stack that opens what mkfs made from this one (H1).
    pub fn after_mkfs(&self) -> Stack {
        self.rewritten(Word::after_mkfs)
    }

    /// The stack that makes what this one opens: without what keeps changes in memory, and without a snapshot, which something new has not (H2).
    pub fn for_mkfs(&self) -> Stack {
        let words = self.words.iter().filter(|word| !word.forgets()).cloned().collect();
        Stack { words, line: self.line.clone() }.rewritten(Word::as_new)
    }

    fn rewritten(&self, rewrite: fn(&Word) -> Word) -> Stack {
        let words = self.words.iter().map(rewrite).collect();
        let line = Stack { words, line: String::new() }.to_string();
        // S3. Only a line at the limit of its length can outgrow it; then the original line is used.
        Stack::parse(&line).unwrap_or_else(|_| self.clone())
    }

    /// The word that keeps all changes in memory, if there is one: nothing below it is made or changed permanently.
    pub fn forgets(&self) -> Option<&Word> {
        self.words.iter().find(|word| word.forgets())
    }

    /// The hint where a device had no room: what is below a `vld` may have none, or its snapshots hold it. A `vld` that is one of several has none, and their paths
    /// are not those of the line.
    pub(super) fn how_to_make_room(&self) -> Option<String> {
        let vld = self.words.iter().position(|word| word.name() == VLD.name)?;
        if self.words[..vld].iter().any(|word| matches!(word.spec.constructor, Constructor::Spread(_))) {
            return None;
        }
        let disk = quoted(&Stack { words: self.words[vld..].to_vec(), line: String::new() }.for_mkfs().to_string());
        Some(format!(
            "the storage below is full, or snapshots hold the room: seekless snapshot list {disk}\n\
             give one up with: seekless snapshot remove {disk} NAME\n\
             until there is room, mount it with -o ro"
        ))
    }

    /// The hint for a missing file of the leaf `word`.
    pub(super) fn how_to_make(&self, word: &Word, purpose: Purpose) -> String {
        let made = self.for_mkfs();
        let has_volume = made.needs_volume("make").is_ok();
        // A regular file there would be in memory, and take the name of a device that is not attached now.
        let is_device = |path: &Path| path.starts_with("/dev") && !path.starts_with("/dev/shm");
        if word.text("path").is_some_and(|path| is_device(Path::new(path))) {
            return "to list devices: lsblk --paths".to_owned();
        }
        match (purpose, has_volume) {
            (Purpose::Format, _) => format!("to make it, give its size: {}", word.with_size()),
            (_, true) => {
                format!("make it with: seekless mkfs {}", quoted(&made.rewritten(Word::with_size).to_string()))
            }
            (_, false) => {
                let path = quoted_path(Path::new(word.text("path").unwrap_or_default()));
                format!("make it with: truncate -s {SIZE} {path}")
            }
        }
    }
}

impl Word {
    /// See [`Stack::forgets`].
    pub(super) fn forgets(&self) -> bool {
        self.name() == devices::FORK.name
    }

    /// See [`Stack::for_mkfs`].
    fn as_new(&self) -> Word {
        let is_of_new = |setting: &&Setting| setting.param.name != SNAPSHOT.name;
        Word { settings: self.settings.iter().filter(is_of_new).cloned().collect(), ..self.clone() }
    }

    /// See [`Stack::after_mkfs`].
    fn after_mkfs(&self) -> Word {
        let is_needed = |setting: &&Setting| !setting.param.only_mkfs && !self.is_kept(setting.param);
        Word { settings: self.settings.iter().filter(is_needed).cloned().collect(), ..self.clone() }
    }

    /// True for an option that the superblock stores, so that the line need not give it.
    fn is_kept(&self, param: &Param) -> bool {
        param.fixed && param.kept_with.is_none_or(|switch| self.switch(switch))
    }

    /// The word with a size, where it is a leaf that mkfs can make.
    fn with_size(&self) -> Word {
        let mut word = self.clone();
        let is_leaf = matches!(self.spec.constructor, Constructor::DeviceLeaf);
        if let Some(param) = self.spec.param("size").filter(|param| is_leaf && param.only_mkfs)
            && self.given(param.name).is_none()
            && let Ok(value) = param.kind.read(SIZE)
        {
            word.settings.push(Setting { param, value, span: self.span() });
        }
        word
    }
}

impl BuildError {
    /// The error for a missing file, with a hint.
    pub(super) fn explained(self, stack: &Stack, original: &Word, purpose: Purpose) -> BuildError {
        match self {
            BuildError::Missing { problem } => BuildError::other(problem).hint(stack.how_to_make(original, purpose)),
            other => other,
        }
    }
}

/// `text` quoted as one word of a POSIX shell (H3).
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The same, without quotes where no character is special to a shell.
pub fn quoted_if_need_be(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ',' | ':' | '@' | '%');
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => quoted(text),
    }
}

/// A path, quoted for a shell command, which does not take it for an option.
pub fn quoted_path(path: &Path) -> String {
    let path = path.display().to_string();
    let here = if path.starts_with('-') { "./" } else { "" };
    quoted_if_need_be(&format!("{here}{path}"))
}
