//! File-system operations as data, which can be generated, run on several file systems, printed and parsed.
//!
//! One operation is one line of words, so that a failing sequence can be sent, edited and replayed:
//!
//! ```text
//! create /d0/f1 644
//! write /d0/f1 100+4096 #7
//! fsync /d0/f1; rename /d0/f1 /f2; fsyncdir /
//! ```

use std::fmt;
use std::str::FromStr;

use crate::fs::acl::{Acl, AclKind};
use crate::fs::{AllocateMode, FileRange, NodeKind, RenameMode, SeekTo, XattrMode};

/// A path: `/`-separated bytes from the root. In text, bytes other than letters, digits and `._-/` are `%xx`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Path(pub Vec<u8>);

impl From<&str> for Path {
    fn from(text: &str) -> Path {
        Path(text.as_bytes().to_vec())
    }
}

impl Path {
    /// The path of `name` in this directory.
    pub fn join(&self, name: &[u8]) -> Path {
        let parent = if self.0 == b"/" { &[][..] } else { &self.0[..] };
        Path([parent, b"/", name].concat())
    }

    /// The directory that holds this name.
    pub fn parent(&self) -> Path {
        match self.0.iter().rposition(|&byte| byte == b'/') {
            Some(slash) if slash > 0 => Path(self.0[..slash].to_vec()),
            _ => Path::from("/"),
        }
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &byte in &self.0 {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' | b'/' => write!(f, "{}", byte as char)?,
                _ => write!(f, "%{byte:02x}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Path {
    type Err = String;

    fn from_str(text: &str) -> Result<Path, String> {
        let (mut bytes, mut rest) = (Vec::new(), text.bytes());
        while let Some(byte) = rest.next() {
            if byte != b'%' {
                bytes.push(byte);
                continue;
            }
            let digits = [rest.next(), rest.next()].map(|digit| digit.and_then(|digit| (digit as char).to_digit(16)));
            match digits {
                [Some(high), Some(low)] => bytes.push((high * 16 + low) as u8),
                _ => return Err(format!("{text:?} has a % without two hexadecimal digits")),
            }
        }
        Ok(Path(bytes))
    }
}

/// Target of an operation: what a path names now, or what a program has held open since.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Target {
    Path(Path),
    Slot(u8),
}

impl From<&str> for Target {
    fn from(path: &str) -> Target {
        Target::Path(path.into())
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Path(path) => path.fmt(f),
            Target::Slot(slot) => write!(f, "@{slot}"),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        match text.strip_prefix('@') {
            Some(slot) => Ok(Target::Slot(number(slot)?)),
            None => Ok(Target::Path(text.parse()?)),
        }
    }
}

/// Bytes that a write stores or an attribute holds. They follow from the tag, which distinguishes every write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Filling {
    pub bytes: u32,
    pub tag: u32,
}

impl Filling {
    /// One in four tags gives bytes that compress well, one gives text, the others noise; none gives zeroes.
    pub fn content(self) -> Vec<u8> {
        let bytes = self.bytes as usize;
        match self.tag % 4 {
            0 => vec![(self.tag / 4 % 255 + 1) as u8; bytes],
            1 => {
                let sentence = format!("write {} of a test. ", self.tag);
                let mut content = sentence.repeat(bytes.div_ceil(sentence.len())).into_bytes();
                content.truncate(bytes);
                content
            }
            _ => {
                let mut content = vec![0; bytes];
                crate::rng::Rng::new(u64::from(self.tag)).fill(&mut content);
                content
            }
        }
    }
}

/// The rename of overlays. In these operations, root owns all new inodes.
pub const LEAVE_WHITEOUT: RenameMode = RenameMode::Whiteout { replace: true, uid: 0, gid: 0 };

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    Create {
        path: Path,
        permissions: u16,
    },
    /// Holds a new file without a name in a slot.
    TmpFile {
        slot: u8,
        directory: Path,
        permissions: u16,
        linkable: bool,
    },
    Mkdir {
        path: Path,
        permissions: u16,
    },
    Mknod {
        path: Path,
        kind: NodeKind,
        permissions: u16,
    },
    Symlink {
        path: Path,
        to: Path,
    },
    Link {
        existing: Target,
        path: Path,
    },
    Unlink {
        path: Path,
    },
    Rmdir {
        path: Path,
    },
    Rename {
        from: Path,
        to: Path,
        mode: RenameMode,
    },

    Write {
        target: Target,
        offset: u64,
        filling: Filling,
    },
    /// A write at the end of the file.
    Append {
        target: Target,
        filling: Filling,
    },
    Truncate {
        target: Target,
        size: u64,
    },
    Allocate {
        target: Target,
        range: FileRange,
        mode: AllocateMode,
    },

    Chmod {
        target: Target,
        permissions: u16,
    },
    Chown {
        target: Target,
        uid: u32,
        gid: u32,
    },
    /// Sets mtime to this many seconds after 1970.
    Touch {
        target: Target,
        seconds: i64,
    },
    SetXattr {
        target: Target,
        name: String,
        filling: Filling,
        mode: XattrMode,
    },
    RemoveXattr {
        target: Target,
        name: String,
    },
    /// Sets an access-control list. It can be read and removed as an attribute.
    SetAcl {
        target: Target,
        kind: AclKind,
        acl: Acl,
    },

    Read {
        target: Target,
        range: FileRange,
    },
    Stat {
        target: Target,
    },
    ReadLink {
        path: Path,
    },
    ReadDir {
        path: Path,
    },
    Seek {
        target: Target,
        offset: u64,
        seek: SeekTo,
    },
    GetXattr {
        target: Target,
        name: String,
    },
    ListXattr {
        target: Target,
    },

    /// Holds what is at `path` open in a slot, closing what the slot held.
    Open {
        slot: u8,
        path: Path,
    },
    Close {
        slot: u8,
    },

    Fsync {
        target: Target,
        data_only: bool,
    },
    FsyncDir {
        path: Path,
    },
    Sync,

    DropCaches,
    /// No request for this many milliseconds.
    Idle {
        millis: u32,
    },
}

impl Op {
    /// Whether all that it does is to make something durable.
    pub fn makes_durable(&self) -> bool {
        matches!(self, Op::Sync | Op::Fsync { .. } | Op::FsyncDir { .. })
    }

    /// Whether it leaves what names and slots refer to as it is.
    pub fn keeps_names(&self) -> bool {
        self.makes_durable()
            || matches!(self, Op::Write { .. } | Op::Append { .. } | Op::Truncate { .. } | Op::Allocate { .. })
    }

    /// Whether UFS1 can do it: it has no extended attributes, no space behind the end of a file, and times of 32 bits.
    pub fn is_possible_on_ufs1(&self) -> bool {
        match self {
            Op::SetXattr { .. } | Op::RemoveXattr { .. } | Op::GetXattr { .. } | Op::SetAcl { .. } => false,
            Op::Allocate { mode: AllocateMode::Allocate { keep_size } | AllocateMode::Zero { keep_size }, .. } => {
                !keep_size
            }
            Op::Touch { seconds, .. } => i32::try_from(*seconds).is_ok(),
            _ => true,
        }
    }

    /// Targets that the operation may change: names, and the directories that hold them.
    pub fn touched(&self) -> Vec<Target> {
        let named = |paths: &[&Path]| -> Vec<Target> {
            let all = paths.iter().flat_map(|path| [path.parent(), (*path).clone()]);
            all.map(Target::Path).collect()
        };
        match self {
            Op::Create { path, .. } | Op::Mkdir { path, .. } | Op::Mknod { path, .. } | Op::Symlink { path, .. } => {
                named(&[path])
            }
            Op::TmpFile { slot, directory, .. } => vec![Target::Path(directory.clone()), Target::Slot(*slot)],
            Op::Unlink { path } | Op::Rmdir { path } => named(&[path]),
            Op::Link { existing, path } => {
                let mut touched = named(&[path]);
                touched.push(existing.clone());
                touched
            }
            Op::Rename { from, to, .. } => named(&[from, to]),
            Op::Write { target, .. }
            | Op::Append { target, .. }
            | Op::Truncate { target, .. }
            | Op::Allocate { target, .. }
            | Op::Chmod { target, .. }
            | Op::Chown { target, .. }
            | Op::Touch { target, .. }
            | Op::SetXattr { target, .. }
            | Op::RemoveXattr { target, .. }
            | Op::SetAcl { target, .. }
            | Op::Fsync { target, .. }
            | Op::Read { target, .. }
            | Op::Stat { target }
            | Op::Seek { target, .. }
            | Op::GetXattr { target, .. }
            | Op::ListXattr { target } => vec![target.clone()],
            Op::ReadLink { path } | Op::ReadDir { path } | Op::Open { path, .. } | Op::FsyncDir { path } => {
                vec![Target::Path(path.clone())]
            }
            Op::Close { slot } => vec![Target::Slot(*slot)],
            Op::Sync | Op::DropCaches | Op::Idle { .. } => Vec::new(),
        }
    }
}

/// Operations from text: one on a line or after a `;`. Empty lines and lines that start with `//` do not count.
///
/// # Errors
/// The line and what is wrong with it.
pub fn parse(text: &str) -> Result<Vec<Op>, String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let pieces = lines.flat_map(|line| line.split(';')).map(str::trim).filter(|piece| !piece.is_empty());
    pieces.map(|piece| piece.parse().map_err(|error| format!("{piece:?}: {error}"))).collect()
}

/// `ops` in the syntax of [`parse`], one on a line.
pub fn to_text(ops: &[Op]) -> String {
    ops.iter().map(|op| format!("{op}\n")).collect()
}

fn number<T: FromStr>(word: &str) -> Result<T, String> {
    word.parse().map_err(|_| format!("{word:?} is not a number in range"))
}

fn octal(word: &str) -> Result<u16, String> {
    u16::from_str_radix(word, 8).map_err(|_| format!("{word:?} is not an octal number"))
}

fn pair<A: FromStr, B: FromStr>(word: &str, separator: char) -> Result<(A, B), String> {
    let (first, second) = word.split_once(separator).ok_or(format!("{word:?} has no {separator:?}"))?;
    Ok((number(first)?, number(second)?))
}

fn range(word: &str) -> Result<FileRange, String> {
    let (offset, bytes) = pair(word, '+')?;
    Ok(FileRange { offset, bytes })
}

fn tag(word: &str) -> Result<u32, String> {
    number(word.strip_prefix('#').ok_or(format!("{word:?} is not a tag like #7"))?)
}

fn node_kind(word: &str) -> Result<NodeKind, String> {
    Ok(match word.split_once(':') {
        None if word == "regular" => NodeKind::Regular,
        None if word == "fifo" => NodeKind::Fifo,
        None if word == "socket" => NodeKind::Socket,
        Some(("char", device)) => NodeKind::CharDevice { device: number(device)? },
        Some(("block", device)) => NodeKind::BlockDevice { device: number(device)? },
        _ => return Err(format!("{word:?} is not a kind of node")),
    })
}

struct KindWord(NodeKind);

impl fmt::Display for KindWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            NodeKind::Regular => f.write_str("regular"),
            NodeKind::Fifo => f.write_str("fifo"),
            NodeKind::Socket => f.write_str("socket"),
            NodeKind::CharDevice { device } => write!(f, "char:{device}"),
            NodeKind::BlockDevice { device } => write!(f, "block:{device}"),
        }
    }
}

fn rename_word(mode: RenameMode) -> &'static str {
    match mode {
        RenameMode::Replace => "rename",
        RenameMode::NoReplace => "rename-noreplace",
        RenameMode::Exchange => "exchange",
        RenameMode::Whiteout { replace: true, .. } => "rename-whiteout",
        RenameMode::Whiteout { replace: false, .. } => "rename-whiteout-noreplace",
    }
}

fn allocate_word(mode: AllocateMode) -> &'static str {
    match mode {
        AllocateMode::Allocate { keep_size: false } => "allocate",
        AllocateMode::Allocate { keep_size: true } => "allocate-keep",
        AllocateMode::PunchHole => "punch",
        AllocateMode::Zero { keep_size: false } => "zero",
        AllocateMode::Zero { keep_size: true } => "zero-keep",
    }
}

fn acl_word(kind: AclKind) -> &'static str {
    match kind {
        AclKind::Access => "setacl",
        AclKind::Default => "setacl-default",
    }
}

fn xattr_word(mode: XattrMode) -> &'static str {
    match mode {
        XattrMode::Set => "setxattr",
        XattrMode::Create => "setxattr-create",
        XattrMode::Replace => "setxattr-replace",
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Create { path, permissions } => write!(f, "create {path} {permissions:o}"),
            Op::TmpFile { slot, directory, permissions, linkable } => {
                let word = if *linkable { "tmpfile" } else { "tmpfile-exclusive" };
                write!(f, "{word} @{slot} {directory} {permissions:o}")
            }
            Op::Mkdir { path, permissions } => write!(f, "mkdir {path} {permissions:o}"),
            Op::Mknod { path, kind, permissions } => write!(f, "mknod {path} {} {permissions:o}", KindWord(*kind)),
            Op::Symlink { path, to } => write!(f, "symlink {path} {to}"),
            Op::Link { existing, path } => write!(f, "link {existing} {path}"),
            Op::Unlink { path } => write!(f, "unlink {path}"),
            Op::Rmdir { path } => write!(f, "rmdir {path}"),
            Op::Rename { from, to, mode } => write!(f, "{} {from} {to}", rename_word(*mode)),
            Op::Write { target, offset, filling: Filling { bytes, tag } } => {
                write!(f, "write {target} {offset}+{bytes} #{tag}")
            }
            Op::Append { target, filling: Filling { bytes, tag } } => write!(f, "append {target} {bytes} #{tag}"),
            Op::Truncate { target, size } => write!(f, "truncate {target} {size}"),
            Op::Allocate { target, range: FileRange { offset, bytes }, mode } => {
                write!(f, "{} {target} {offset}+{bytes}", allocate_word(*mode))
            }
            Op::Chmod { target, permissions } => write!(f, "chmod {target} {permissions:o}"),
            Op::Chown { target, uid, gid } => write!(f, "chown {target} {uid}:{gid}"),
            Op::Touch { target, seconds } => write!(f, "touch {target} {seconds}"),
            Op::SetXattr { target, name, filling: Filling { bytes, tag }, mode } => {
                write!(f, "{} {target} {name} {bytes} #{tag}", xattr_word(*mode))
            }
            Op::RemoveXattr { target, name } => write!(f, "removexattr {target} {name}"),
            Op::SetAcl { target, kind, acl } => write!(f, "{} {target} {acl}", acl_word(*kind)),
            Op::Read { target, range: FileRange { offset, bytes } } => write!(f, "read {target} {offset}+{bytes}"),
            Op::Stat { target } => write!(f, "stat {target}"),
            Op::ReadLink { path } => write!(f, "readlink {path}"),
            Op::ReadDir { path } => write!(f, "readdir {path}"),
            Op::Seek { target, offset, seek: SeekTo::Data } => write!(f, "seek-data {target} {offset}"),
            Op::Seek { target, offset, seek: SeekTo::Hole } => write!(f, "seek-hole {target} {offset}"),
            Op::GetXattr { target, name } => write!(f, "getxattr {target} {name}"),
            Op::ListXattr { target } => write!(f, "listxattr {target}"),
            Op::Open { slot, path } => write!(f, "open @{slot} {path}"),
            Op::Close { slot } => write!(f, "close @{slot}"),
            Op::Fsync { target, data_only: false } => write!(f, "fsync {target}"),
            Op::Fsync { target, data_only: true } => write!(f, "fdatasync {target}"),
            Op::FsyncDir { path } => write!(f, "fsyncdir {path}"),
            Op::Sync => f.write_str("sync"),
            Op::DropCaches => f.write_str("drop-caches"),
            Op::Idle { millis } => write!(f, "idle {millis}"),
        }
    }
}

fn slot(word: &str) -> Result<u8, String> {
    number(word.strip_prefix('@').ok_or(format!("{word:?} is not a slot like @1"))?)
}

impl FromStr for Op {
    type Err = String;

    fn from_str(line: &str) -> Result<Op, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let rename = |from: &str, to: &str, mode| Ok(Op::Rename { from: from.parse()?, to: to.parse()?, mode });
        let allocate =
            |target: &str, span: &str, mode| Ok(Op::Allocate { target: target.parse()?, range: range(span)?, mode });
        let set_xattr = |target: &str, name: &str, bytes: &str, word: &str, mode| {
            let filling = Filling { bytes: number(bytes)?, tag: tag(word)? };
            Ok(Op::SetXattr { target: target.parse()?, name: name.to_string(), filling, mode })
        };
        let seek =
            |target: &str, offset: &str, seek| Ok(Op::Seek { target: target.parse()?, offset: number(offset)?, seek });
        let set_acl =
            |target: &str, acl: &str, kind| Ok(Op::SetAcl { target: target.parse()?, kind, acl: acl.parse()? });
        match words[..] {
            ["create", path, mode] => Ok(Op::Create { path: path.parse()?, permissions: octal(mode)? }),
            [word @ ("tmpfile" | "tmpfile-exclusive"), held, directory, mode] => Ok(Op::TmpFile {
                slot: slot(held)?,
                directory: directory.parse()?,
                permissions: octal(mode)?,
                linkable: word == "tmpfile",
            }),
            ["mkdir", path, mode] => Ok(Op::Mkdir { path: path.parse()?, permissions: octal(mode)? }),
            ["mknod", path, kind, mode] => {
                Ok(Op::Mknod { path: path.parse()?, kind: node_kind(kind)?, permissions: octal(mode)? })
            }
            ["symlink", path, to] => Ok(Op::Symlink { path: path.parse()?, to: to.parse()? }),
            ["link", existing, path] => Ok(Op::Link { existing: existing.parse()?, path: path.parse()? }),
            ["unlink", path] => Ok(Op::Unlink { path: path.parse()? }),
            ["rmdir", path] => Ok(Op::Rmdir { path: path.parse()? }),
            ["rename", from, to] => rename(from, to, RenameMode::Replace),
            ["rename-noreplace", from, to] => rename(from, to, RenameMode::NoReplace),
            ["exchange", from, to] => rename(from, to, RenameMode::Exchange),
            ["rename-whiteout", from, to] => rename(from, to, LEAVE_WHITEOUT),
            ["rename-whiteout-noreplace", from, to] => {
                rename(from, to, RenameMode::Whiteout { replace: false, uid: 0, gid: 0 })
            }
            ["write", target, span, word] => {
                let (offset, bytes) = pair(span, '+')?;
                Ok(Op::Write { target: target.parse()?, offset, filling: Filling { bytes, tag: tag(word)? } })
            }
            ["append", target, bytes, word] => {
                let filling = Filling { bytes: number(bytes)?, tag: tag(word)? };
                Ok(Op::Append { target: target.parse()?, filling })
            }
            ["truncate", target, size] => Ok(Op::Truncate { target: target.parse()?, size: number(size)? }),
            ["allocate", target, span] => allocate(target, span, AllocateMode::Allocate { keep_size: false }),
            ["allocate-keep", target, span] => allocate(target, span, AllocateMode::Allocate { keep_size: true }),
            ["punch", target, span] => allocate(target, span, AllocateMode::PunchHole),
            ["zero", target, span] => allocate(target, span, AllocateMode::Zero { keep_size: false }),
            ["zero-keep", target, span] => allocate(target, span, AllocateMode::Zero { keep_size: true }),
            ["chmod", target, mode] => Ok(Op::Chmod { target: target.parse()?, permissions: octal(mode)? }),
            ["chown", target, owner] => {
                let (uid, gid) = pair(owner, ':')?;
                Ok(Op::Chown { target: target.parse()?, uid, gid })
            }
            ["touch", target, seconds] => Ok(Op::Touch { target: target.parse()?, seconds: number(seconds)? }),
            ["setxattr", target, name, bytes, word] => set_xattr(target, name, bytes, word, XattrMode::Set),
            ["setxattr-create", target, name, bytes, word] => set_xattr(target, name, bytes, word, XattrMode::Create),
            ["setxattr-replace", target, name, bytes, word] => set_xattr(target, name, bytes, word, XattrMode::Replace),
            ["removexattr", target, name] => Ok(Op::RemoveXattr { target: target.parse()?, name: name.to_string() }),
            ["setacl", target, acl] => set_acl(target, acl, AclKind::Access),
            ["setacl-default", target, acl] => set_acl(target, acl, AclKind::Default),
            ["read", target, span] => Ok(Op::Read { target: target.parse()?, range: range(span)? }),
            ["stat", target] => Ok(Op::Stat { target: target.parse()? }),
            ["readlink", path] => Ok(Op::ReadLink { path: path.parse()? }),
            ["readdir", path] => Ok(Op::ReadDir { path: path.parse()? }),
            ["seek-data", target, offset] => seek(target, offset, SeekTo::Data),
            ["seek-hole", target, offset] => seek(target, offset, SeekTo::Hole),
            ["getxattr", target, name] => Ok(Op::GetXattr { target: target.parse()?, name: name.to_string() }),
            ["listxattr", target] => Ok(Op::ListXattr { target: target.parse()? }),
            ["open", word, path] => Ok(Op::Open { slot: slot(word)?, path: path.parse()? }),
            ["close", word] => Ok(Op::Close { slot: slot(word)? }),
            ["fsync", target] => Ok(Op::Fsync { target: target.parse()?, data_only: false }),
            ["fdatasync", target] => Ok(Op::Fsync { target: target.parse()?, data_only: true }),
            ["fsyncdir", path] => Ok(Op::FsyncDir { path: path.parse()? }),
            ["sync"] => Ok(Op::Sync),
            ["drop-caches"] => Ok(Op::DropCaches),
            ["idle", millis] => Ok(Op::Idle { millis: number(millis)? }),
            _ => Err("not an operation, or not with so many words".to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::generate::{Generator, OpMix, Space};

    /// Aim: printed operations can be parsed. Method: many generated operations, of all kinds, with odd names.
    #[test]
    fn text_round_trip() {
        let space = Space { odd_names: true, ..Space::small() };
        let ops: Vec<Op> = Generator::new(1, space, OpMix::BALANCED.with_access_lists()).take(5_000).collect();
        assert_eq!(parse(&to_text(&ops)), Ok(ops.clone()));
        let kinds: std::collections::BTreeSet<String> =
            ops.iter().map(|op| op.to_string().split(' ').next().unwrap_or_default().to_string()).collect();
        assert!(kinds.len() >= 45, "{} kinds: {kinds:?}", kinds.len());
    }

    /// The operations of overlays have words, too.
    #[test]
    fn words_of_overlays() {
        let text =
            "tmpfile @0 /d 600\ntmpfile-exclusive @1 / 644\nrename-whiteout /a /b\nrename-whiteout-noreplace /a /b\n";
        let ops = parse(text).unwrap();
        assert_eq!(to_text(&ops), text);
        assert!(matches!(ops[1], Op::TmpFile { slot: 1, permissions: 0o644, linkable: false, .. }));
        assert!(matches!(ops[2], Op::Rename { mode: LEAVE_WHITEOUT, .. }));
    }

    /// Invalid text is refused with the offending words.
    #[test]
    fn bad_text_is_refused() {
        for (text, word) in [
            ("creat /a 644", "creat"),
            ("create /a", "create"),
            ("create /a 999", "999"),
            ("write /a 5 #1", "\"5\""),
            ("write /a 0+99999999999 #1", "99999999999"),
            ("write /a 0+1 1", "tag"),
            ("open 1 /a", "slot"),
            ("stat /a%f", "hexadecimal"),
            ("mknod /a pipe 644", "pipe"),
            ("setacl /a u::rwx,g::r-x", "the others"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(word), "{error}");
        }
        assert_eq!(parse(" ; \n// a comment; with a semicolon\nsync ; idle 5").map(|ops| ops.len()), Ok(2));
    }
}
