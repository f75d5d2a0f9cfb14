//! Stack lines that the program proposes: they are pasted into a shell, so each must do what the text beside it says.
//!
//! Invariants
//!   H1  The line that follows mkfs opens what mkfs has made. It leaves out what mkfs alone needs and what the volume keeps,
//!       as the table of words says, and nothing else: an option that moves data, such as a seed, stays.
//!   H2  A text that the shell has read is the text that was quoted.

use super::error::Trouble;
use super::spec::{Maker, Param, Purpose};
use super::{Setting, Stack, Word, devices};

/// Size that is proposed for an image.
const SIZE: &str = "1GiB";

impl Stack {
    /// The stack that opens what mkfs has made of this one (H1).
    pub fn after_mkfs(&self) -> Stack {
        self.rewritten(Word::after_mkfs)
    }

    /// The stack as mkfs takes it to make the image files, too.
    fn for_mkfs(&self) -> Stack {
        self.rewritten(Word::with_size)
    }

    fn rewritten(&self, rewrite: fn(&Word) -> Word) -> Stack {
        let words = self.words.iter().map(rewrite).collect();
        let line = Stack { words, line: String::new() }.to_string();
        // S3. Only a line at the limit of its length can outgrow it; then the line that was given has to do.
        Stack::parse(&line).unwrap_or_else(|_| self.clone())
    }

    /// The word that keeps all changes in memory, if there is one: below it nothing is made or changed for good.
    pub fn forgets(&self) -> Option<&Word> {
        let is_fork = |word: &&Word| word.name() == devices::FORK.name;
        self.words.iter().find(is_fork)
    }

    /// What to do about a missing file that the leaf `word` names.
    pub(super) fn how_to_make(&self, word: &Word, purpose: Purpose) -> String {
        let has_volume = self.needs_volume("make").is_ok();
        match (purpose, has_volume) {
            (Purpose::Format, _) => format!("to make it, say how large: {}", word.with_size()),
            (_, true) => format!("make it with: seekless mkfs {}", quoted(&self.for_mkfs().to_string())),
            (_, false) => {
                let path = quoted_if_need_be(word.text("path").unwrap_or_default());
                format!("make it with: truncate -s {SIZE} {path}")
            }
        }
    }
}

impl Word {
    /// See [`Stack::after_mkfs`].
    fn after_mkfs(&self) -> Word {
        let is_needed = |setting: &&Setting| !setting.param.only_mkfs && !self.is_kept(setting.param);
        Word { settings: self.settings.iter().filter(is_needed).cloned().collect(), ..self.clone() }
    }

    /// True for what a superblock says, so that the line need not.
    fn is_kept(&self, param: &Param) -> bool {
        param.fixed && param.kept_with.is_none_or(|switch| self.switch(switch))
    }

    /// The word with a size, where it is a leaf that mkfs can make.
    fn with_size(&self) -> Word {
        let mut word = self.clone();
        let is_leaf = matches!(self.spec.maker, Maker::DeviceLeaf);
        if let Some(param) = self.spec.param("size").filter(|param| is_leaf && param.only_mkfs)
            && self.given(param.name).is_none()
            && let Ok(value) = param.kind.read(SIZE)
        {
            word.settings.push(Setting { param, value, span: self.span() });
        }
        word
    }
}

impl Trouble {
    /// A missing file, in words, with what to do about it.
    pub(super) fn explained(self, stack: &Stack, original: &Word, purpose: Purpose) -> Trouble {
        match self {
            Trouble::Missing { problem } => Trouble::other(problem).hint(stack.how_to_make(original, purpose)),
            other => other,
        }
    }
}

/// `text` as one word of a POSIX shell (H2).
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// The same, without quotes where no character means anything to a shell.
pub fn quoted_if_need_be(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ',' | ':' | '@' | '%');
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => quoted(text),
    }
}

/// A path as a word of a command for a shell.
pub fn quoted_path(path: &std::path::Path) -> String {
    quoted_if_need_be(&path.display().to_string())
}
