//! A whole file system as a value: names, kinds, attributes, contents, links. Read through the interface, or taken from
//! the model, and comparable.

use std::collections::BTreeMap;

use super::Contents;
use super::memfs::{Body, Node};
use super::ops::Path;
use crate::fs::*;
use crate::units::Ino;

/// State of one inode: everything on which correct file systems agree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeState {
    pub kind: FileKind,
    pub permissions: u16,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    pub device: u32,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Of a regular file.
    pub contents: Contents,
    /// Reading `contents` failed: see [`Tree::with_unreadable`].
    pub is_unreadable: bool,
    /// Of a symbolic link.
    pub target: Vec<u8>,
    /// Of a directory.
    pub entries: BTreeMap<Vec<u8>, Ino>,
}

impl From<&Node> for NodeState {
    fn from(node: &Node) -> NodeState {
        let attr = node.attr(Ino::ROOT);
        let (mut contents, mut target, mut entries) = (Contents::default(), Vec::new(), BTreeMap::new());
        match &node.body {
            Body::Regular(bytes) => contents = bytes.clone(),
            Body::Symlink(path) => target = path.clone(),
            Body::Directory(directory) => {
                entries = directory.entries.iter().map(|(name, &(ino, _))| (name.clone(), ino)).collect();
            }
            Body::Special(_) => {}
        }
        let Attr { kind, permissions, links, uid, gid, device, .. } = attr;
        let (xattrs, is_unreadable) = (node.xattrs.clone(), false);
        NodeState { kind, permissions, links, uid, gid, device, xattrs, contents, is_unreadable, target, entries }
    }
}

impl NodeState {
    /// Differences of attributes, that is, of everything except contents and entries.
    pub fn attribute_differences(&self, other: &NodeState, links: bool) -> Vec<String> {
        let mut found = Vec::new();
        let attributes = |state: &NodeState| {
            let NodeState { kind, permissions, uid, gid, device, .. } = *state;
            (kind, permissions, if links { state.links } else { 0 }, uid, gid, device)
        };
        // Nearly always, and then nothing needs to be put in words.
        if attributes(self) == attributes(other) && self.target == other.target && self.xattrs == other.xattrs {
            return found;
        }
        let mut note = |what: &str, differ: bool, show: &dyn Fn(&NodeState) -> String| {
            if differ {
                found.push(format!("{what} {} here, {} there", show(self), show(other)));
            }
        };
        note("kind", self.kind != other.kind, &|state| format!("{:?}", state.kind));
        note("permissions", self.permissions != other.permissions, &|state| format!("{:o}", state.permissions));
        note("links", links && self.links != other.links, &|state| state.links.to_string());
        note("owner", (self.uid, self.gid) != (other.uid, other.gid), &|state| format!("{}:{}", state.uid, state.gid));
        note("device", self.device != other.device, &|state| state.device.to_string());
        note("target", self.target != other.target, &|state| Path(state.target.clone()).to_string());
        for name in self.xattrs.keys().chain(other.xattrs.keys().filter(|name| !self.xattrs.contains_key(*name))) {
            note(
                &format!("attribute {}", String::from_utf8_lossy(name)),
                self.xattrs.get(name) != other.xattrs.get(name),
                &|state| state.xattrs.get(name).map_or("absent".to_string(), |value| shorten(value)),
            );
        }
        found
    }
}

fn shorten(bytes: &[u8]) -> String {
    const SHOWN_BYTES: usize = 16;
    let hex: String = bytes.iter().take(SHOWN_BYTES).map(|byte| format!("{byte:02x}")).collect();
    // The checksum distinguishes long values that differ late.
    format!("{} bytes {hex} (crc {:08x})", bytes.len(), crate::codec::crc32c(bytes))
}

/// How two contents differ, in one line; `None` when they read alike.
pub fn content_difference(one: &Contents, two: &Contents) -> Option<String> {
    if one == two {
        return None;
    }
    const PIECE_BYTES: u64 = 1 << 16;
    let end = one.size().max(two.size());
    // Both are compared sparsely: only where one of them has data.
    let mut at = 0;
    while at < end {
        let next = [one.next_data(at), two.next_data(at)].into_iter().flatten().min();
        let Some(start) = next else { break };
        let flat = |contents: &Contents| -> Vec<u8> {
            let mut bytes: Vec<u8> =
                contents.read(start, PIECE_BYTES).iter().flat_map(|piece| piece.to_vec()).collect();
            bytes.resize(PIECE_BYTES as usize, 0);
            bytes
        };
        let (first, second) = (flat(one), flat(two));
        if let Some(index) = first.iter().zip(&second).position(|(a, b)| a != b) {
            let position = start + index as u64;
            let show =
                |bytes: &[u8]| bytes[index..].iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>();
            let sizes = if one.size() == two.size() {
                format!("{} bytes", one.size())
            } else {
                format!("{} bytes here, {} there", one.size(), two.size())
            };
            return Some(format!(
                "content ({sizes}) differs first at byte {position}: {} here, {} there",
                show(&first),
                show(&second)
            ));
        }
        at = start + PIECE_BYTES;
    }
    Some(format!("size {} here, {} there", one.size(), two.size()))
}

/// Everything reachable from the root.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Tree {
    pub nodes: BTreeMap<Ino, NodeState>,
    /// Contradictions found while reading: a listing that disagrees with lookups, a short read, wrong link counts.
    pub problems: Vec<String>,
}

/// More inodes than any test makes: a damaged file system may claim any number.
const INODES_MAX: usize = 1_000_000;

impl Tree {
    /// Reads all of `fs`.
    ///
    /// # Errors
    /// The first error of `fs`, and `Corrupt` when a directory is reached twice.
    pub async fn of(fs: Fs) -> FsResult<Tree> {
        let mut tree = Tree::default();
        let mut reader = Reader { fs, tree: &mut tree, lookups: Vec::new(), errors: None, may_be_unreadable: false };
        let read = reader.walk().await;
        reader.give_back().await;
        read?;
        tree.check_links();
        Ok(tree)
    }

    /// Reads all of `fs`, in which the content of files may be damaged.
    ///
    /// # Errors
    /// As [`Tree::of`], except that files with damaged content are [`NodeState::is_unreadable`].
    pub async fn with_unreadable(fs: Fs) -> FsResult<Tree> {
        let mut tree = Tree::default();
        let mut reader = Reader { fs, tree: &mut tree, lookups: Vec::new(), errors: None, may_be_unreadable: true };
        let read = reader.walk().await;
        reader.give_back().await;
        read?;
        tree.check_links();
        Ok(tree)
    }

    /// Reads everything readable of `fs`. Also returns the errors, by path.
    pub async fn readable(fs: Fs) -> (Tree, BTreeMap<Path, FsError>) {
        let mut tree = Tree::default();
        let mut errors = BTreeMap::new();
        let errors_here = Some(&mut errors);
        let mut reader =
            Reader { fs, tree: &mut tree, lookups: Vec::new(), errors: errors_here, may_be_unreadable: false };
        // Errors of single files are collected; an error returned here concerns the root.
        let read = reader.walk().await;
        reader.give_back().await;
        if let Err(error) = read {
            errors.insert(Path::from("/"), error);
        }
        (tree, errors)
    }

    /// Every path, each with its inode, in order.
    pub fn paths(&self) -> Vec<(Path, Ino)> {
        let mut paths = Vec::new();
        let mut open = vec![(Path::from("/"), Ino::ROOT)];
        while let Some((path, ino)) = open.pop() {
            let entries = self.nodes.get(&ino).map(|node| &node.entries);
            open.extend(entries.into_iter().flatten().rev().map(|(name, &child)| (path.join(name), child)));
            paths.push((path, ino));
        }
        paths
    }

    /// Checks that link counts match the names.
    fn check_links(&mut self) {
        let mut names: BTreeMap<Ino, u32> = BTreeMap::new();
        let mut directories: BTreeMap<Ino, u32> = BTreeMap::new();
        for (&parent, node) in &self.nodes {
            for child in node.entries.values() {
                *names.entry(*child).or_default() += 1;
                let is_directory = self.nodes.get(child).is_some_and(|child| child.kind == FileKind::Directory);
                *directories.entry(parent).or_default() += u32::from(is_directory);
            }
        }
        for (path, ino) in self.paths() {
            let Some(node) = self.nodes.get(&ino) else { continue };
            let expected = match node.kind {
                FileKind::Directory => 2 + directories.get(&ino).copied().unwrap_or(0),
                _ => names.get(&ino).copied().unwrap_or(0),
            };
            if node.links != expected {
                self.problems.push(format!("{path}: {} links, but the names make {expected}", node.links));
            }
        }
    }

    /// Differences between this tree ("here") and `other` ("there"), one line each.
    pub fn differences(&self, other: &Tree) -> Vec<String> {
        self.compared(other, true)
    }

    /// The same, where files may have any content, or none that can be read.
    pub fn differences_beside_content(&self, other: &Tree) -> Vec<String> {
        self.compared(other, false)
    }

    fn compared(&self, other: &Tree, with_content: bool) -> Vec<String> {
        let mut found = Vec::new();
        let mut twins: BTreeMap<Ino, (Ino, Path)> = BTreeMap::new();
        let mut twins_back: BTreeMap<Ino, (Ino, Path)> = BTreeMap::new();
        let mut open = vec![(Path::from("/"), Ino::ROOT, Ino::ROOT)];
        while let Some((path, one, two)) = open.pop() {
            if let Some((twin, first)) = twins.get(&one) {
                if *twin != two {
                    found.push(format!("{first} and {path} are one file here, and two there"));
                }
                continue;
            }
            if let Some((twin, first)) = twins_back.get(&two)
                && *twin != one
            {
                found.push(format!("{first} and {path} are two files here, and one there"));
                continue;
            }
            twins.insert(one, (two, path.clone()));
            twins_back.insert(two, (one, path.clone()));
            let (Some(one), Some(two)) = (self.nodes.get(&one), other.nodes.get(&two)) else { continue };
            found.extend(one.attribute_differences(two, true).into_iter().map(|line| format!("{path}: {line}")));
            if with_content && one.is_unreadable != two.is_unreadable {
                let say = |node: &NodeState| if node.is_unreadable { "unreadable" } else { "readable" };
                found.push(format!("{path}: {} here, {} there", say(one), say(two)));
            }
            if with_content {
                found.extend(content_difference(&one.contents, &two.contents).map(|line| format!("{path}: {line}")));
            }
            for (name, &child) in one.entries.iter().rev() {
                match two.entries.get(name) {
                    Some(&twin) => open.push((path.join(name), child, twin)),
                    None => found.push(format!("{} is here and not there", path.join(name))),
                }
            }
            let missing = two.entries.keys().filter(|name| !one.entries.contains_key(*name));
            found.extend(missing.map(|name| format!("{} is there and not here", path.join(name))));
        }
        found.extend(self.problems.iter().map(|problem| format!("here: {problem}")));
        found.extend(other.problems.iter().map(|problem| format!("there: {problem}")));
        found
    }

    /// Makes the same tree in an empty file system.
    ///
    /// # Errors
    /// The first error of `fs`.
    pub async fn build(&self, fs: &Fs) -> FsResult<()> {
        let mut made: BTreeMap<Ino, Ino> = BTreeMap::from([(Ino::ROOT, Ino::ROOT)]);
        for (path, ino) in self.paths() {
            let Some(node) = self.nodes.get(&ino) else { continue };
            if ino == Ino::ROOT {
                continue;
            }
            let client = client::Client::new(fs.clone());
            let (parent, name) = client.resolve_parent(&path.0).await?;
            if let Some(&twin) = made.get(&ino) {
                fs.link(twin, parent, name).await?;
                fs.forget(twin, 1).await;
                client.forget(parent).await;
                continue;
            }
            let new = NewNode { permissions: node.permissions, umask: 0, uid: node.uid, gid: node.gid };
            let special = |kind| fs.mknod(parent, name, kind, new);
            let entry = match node.kind {
                FileKind::Regular => special(NodeKind::Regular).await?,
                FileKind::Directory => fs.mkdir(parent, name, new).await?,
                FileKind::Symlink => fs.symlink(parent, name, &node.target, new).await?,
                FileKind::Fifo => special(NodeKind::Fifo).await?,
                FileKind::Socket => special(NodeKind::Socket).await?,
                FileKind::CharDevice => special(NodeKind::CharDevice { device: node.device }).await?,
                FileKind::BlockDevice => special(NodeKind::BlockDevice { device: node.device }).await?,
            };
            client.forget(parent).await;
            made.insert(ino, entry.attr.ino);
            if node.kind == FileKind::Regular {
                self.fill(&client, &path, &node.contents).await?;
            }
        }
        // Attributes last, because creating children changed some, and set-group-id directories others.
        for (&ino, &twin) in &made {
            let Some(node) = self.nodes.get(&ino) else { continue };
            for (name, value) in &node.xattrs {
                fs.setxattr(twin, name, value, XattrMode::Set).await?;
            }
            let (permissions, uid, gid) = (Some(node.permissions), Some(node.uid), Some(node.gid));
            let owner = SetAttr { uid, gid, ..SetAttr::default() };
            fs.setattr(twin, None, owner).await?;
            fs.setattr(twin, None, SetAttr { permissions, ..SetAttr::default() }).await?;
            if twin != Ino::ROOT {
                fs.forget(twin, 1).await;
            }
        }
        Ok(())
    }

    async fn fill(&self, client: &client::Client, path: &Path, contents: &Contents) -> FsResult<()> {
        let file = client.open(&path.0, OpenFlags::READ_WRITE).await?;
        let mut at = 0;
        while let Some(data) = contents.next_data(at) {
            let end = contents.next_hole(data).unwrap_or(contents.size());
            let mut offset = data;
            for piece in contents.read(data, end - data) {
                client.write(file, offset, &piece).await?;
                offset += piece.len() as u64;
            }
            at = end;
        }
        client.close(file).await?;
        client.truncate(&path.0, contents.size()).await
    }

    /// The tree as text, one path on a line, for reports.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        for (path, ino) in self.paths() {
            let Some(node) = self.nodes.get(&ino) else { continue };
            let NodeState { kind, permissions, links, uid, gid, .. } = node;
            text += &format!("{path} {kind:?} {permissions:o} links {links} owner {uid}:{gid}");
            if *kind == FileKind::Regular {
                text += &format!(" {} bytes", node.contents.size());
            }
            for (name, value) in &node.xattrs {
                text += &format!(" {}={}", String::from_utf8_lossy(name), shorten(value));
            }
            text.push('\n');
        }
        text
    }
}

/// Walks a file system.
struct Reader<'a> {
    fs: Fs,
    tree: &'a mut Tree,
    /// Lookups to give back.
    lookups: Vec<Ino>,
    /// Receives errors, so that reading continues after them.
    errors: Option<&'a mut BTreeMap<Path, FsError>>,
    /// Damaged content of a file is noted in its state, and is neither an error nor a problem.
    may_be_unreadable: bool,
}

/// An entry of a listing.
struct Listed {
    name: Vec<u8>,
    ino: Ino,
    kind: FileKind,
    cookie: u64,
    entry: Option<Entry>,
}

/// A listing in memory.
#[derive(Default)]
struct Names {
    entries: Vec<Listed>,
    room: usize,
}

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        if self.room == 0 {
            return false;
        }
        self.room -= 1;
        let DirEntry { ino, kind, name, cookie, entry } = *entry;
        self.entries.push(Listed { name: name.to_vec(), ino, kind, cookie, entry });
        true
    }
}

impl Reader<'_> {
    async fn walk(&mut self) -> FsResult<()> {
        let mut open = vec![(Path::from("/"), Ino::ROOT, Ino::ROOT)];
        while let Some((path, ino, parent)) = open.pop() {
            match (self.visit(&path, ino, parent).await, &mut self.errors) {
                (Ok(children), _) => {
                    open.extend(children.into_iter().map(|(name, child)| (path.join(&name), child, ino)).rev())
                }
                (Err(error), Some(errors)) => {
                    errors.insert(path, error);
                }
                (Err(error), None) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads one inode, once. Returns the names in it.
    async fn visit(&mut self, path: &Path, ino: Ino, parent: Ino) -> FsResult<Vec<(Vec<u8>, Ino)>> {
        let attr = self.fs.getattr(ino, None).await?;
        if self.tree.nodes.contains_key(&ino) {
            if attr.kind == FileKind::Directory {
                return Err(FsError::corrupt("directory", path, "it is reached by two names"));
            }
            return Ok(Vec::new());
        }
        if self.tree.nodes.len() >= INODES_MAX {
            return Err(FsError::corrupt("tree", path, format!("more than {INODES_MAX} inodes")));
        }
        if attr.ino != ino {
            self.problem(path, format!("attributes of {:?} say {:?}", ino, attr.ino));
        }
        let Attr { kind, permissions, links, uid, gid, device, .. } = attr;
        let (xattrs, contents, target, entries, is_unreadable) = Default::default();
        let mut node =
            NodeState { kind, permissions, links, uid, gid, device, xattrs, contents, is_unreadable, target, entries };
        for name in self.fs.listxattr(ino).await? {
            let value = self.fs.getxattr(ino, &name).await?;
            node.xattrs.insert(name, value);
        }
        match kind {
            FileKind::Regular => match self.contents(path, &attr).await {
                Err(FsError::Corrupt { .. }) if self.may_be_unreadable => node.is_unreadable = true,
                contents => node.contents = contents?,
            },
            FileKind::Symlink => {
                node.target = self.fs.readlink(ino).await?;
                if attr.size != node.target.len() as u64 {
                    self.problem(path, format!("size {}, but the target has {} bytes", attr.size, node.target.len()));
                }
            }
            FileKind::Directory => node.entries = self.entries(path, ino, parent).await?,
            _ => {}
        }
        let children = node.entries.iter().map(|(name, child)| (name.clone(), *child)).collect();
        self.tree.nodes.insert(ino, node);
        Ok(children)
    }

    fn problem(&mut self, path: &Path, what: String) {
        self.tree.problems.push(format!("{path}: {what}"));
    }

    async fn give_back(&mut self) {
        for ino in std::mem::take(&mut self.lookups) {
            self.fs.forget(ino, 1).await;
        }
    }

    /// Opens `ino` if the file system uses handles.
    async fn open(&self, ino: Ino) -> FsResult<Option<Handle>> {
        match self.fs.traits().open_protocol {
            OpenProtocol::ZeroMessage => Ok(None),
            OpenProtocol::Handles => Ok(self.fs.open(ino, OpenFlags::READ).await?.handle),
        }
    }

    async fn close(&self, ino: Ino, handle: Option<Handle>) -> FsResult<()> {
        match handle {
            Some(handle) => self.fs.release(ino, handle).await,
            None => Ok(()),
        }
    }

    /// Lists a directory twice, by name alone and with attributes, and looks every name up.
    async fn entries(&mut self, path: &Path, ino: Ino, parent: Ino) -> FsResult<BTreeMap<Vec<u8>, Ino>> {
        let handle = self.open(ino).await?;
        let plain = self.list(ino, handle, false).await;
        let full = self.list(ino, handle, true).await;
        self.close(ino, handle).await?;
        let (plain, full) = (plain?, full?);
        let names = |list: &Names| {
            list.entries.iter().map(|entry| (entry.name.clone(), entry.ino, entry.kind)).collect::<Vec<_>>()
        };
        if names(&plain) != names(&full) {
            self.problem(path, "listings with and without attributes differ".to_string());
        }
        let dots: Vec<_> = plain.entries.iter().take(2).map(|entry| (&entry.name[..], entry.ino)).collect();
        if dots != [(&b"."[..], ino), (&b".."[..], parent)] {
            self.problem(path, format!("the listing starts with {dots:?} instead of . and .."));
        }
        let mut entries = BTreeMap::new();
        for Listed { name, ino: listed, kind, entry, .. } in full.entries.into_iter().skip(2) {
            let child = path.join(&name);
            let found = self.fs.lookup(ino, &name).await?;
            self.lookups.push(found.attr.ino);
            if found.attr.ino != listed || found.attr.kind != kind {
                self.problem(
                    &child,
                    format!("listed as {listed:?} {kind:?}, found as {:?} {:?}", found.attr.ino, found.attr.kind),
                );
            }
            if entry != Some(found) {
                self.problem(
                    &child,
                    format!("attributes from the listing {entry:?} are not those of lookup {found:?}"),
                );
            }
            if entries.insert(name, found.attr.ino).is_some() {
                self.problem(&child, "listed twice".to_string());
            }
        }
        Ok(entries)
    }

    async fn list(&mut self, ino: Ino, handle: Option<Handle>, attributes: bool) -> FsResult<Names> {
        const ENTRIES_PER_CALL: usize = 64;
        let mut all = Names::default();
        loop {
            let cookie = all.entries.last().map_or(0, |entry| entry.cookie);
            let mut part = Names { entries: Vec::new(), room: ENTRIES_PER_CALL };
            let listed = self.fs.readdir(ino, handle, cookie, attributes, &mut part).await;
            let counted =
                part.entries.iter().filter(|entry| entry.entry.is_some() && entry.name != b"." && entry.name != b"..");
            self.lookups.extend(counted.map(|entry| entry.ino));
            listed?;
            if part.entries.is_empty() {
                return Ok(all);
            }
            all.entries.extend(part.entries);
            if all.entries.len() > INODES_MAX {
                return Err(FsError::corrupt("directory", ino, "its listing does not end"));
            }
        }
    }

    /// Reads a file: all of a short one, and the data regions of a long one.
    async fn contents(&mut self, path: &Path, attr: &Attr) -> FsResult<Contents> {
        const WHOLE_BYTES: u64 = 4 << 20;
        const PIECE_BYTES: u64 = 1 << 20;
        let handle = self.open(attr.ino).await?;
        let mut contents = Contents::default();
        let mut at = 0;
        let result = loop {
            if attr.size > WHOLE_BYTES {
                match self.fs.lseek(attr.ino, handle, at, SeekTo::Data).await {
                    Ok(data) if data < at => {
                        break Err(FsError::corrupt("file", path, format!("data after {at} found at {data}")));
                    }
                    Ok(data) => at = data,
                    Err(FsError::NoSuchOffset) => break Ok(()),
                    Err(error) => break Err(error),
                }
            }
            if at >= attr.size {
                break Ok(());
            }
            let wanted = PIECE_BYTES.min(attr.size - at);
            let pieces = match self.fs.read(attr.ino, handle, at, wanted as u32).await {
                Ok(pieces) => pieces,
                Err(error) => break Err(error),
            };
            let mut offset = at;
            for piece in &pieces {
                contents.write_sparse(offset, piece);
                offset += piece.len() as u64;
            }
            if offset != at + wanted && self.may_be_unreadable {
                break Err(FsError::corrupt("file", path, "it is shorter than it says"));
            }
            if offset != at + wanted {
                self.problem(path, format!("a read of {wanted} bytes at {at} gave {}", offset - at));
                break Ok(());
            }
            at = offset;
        };
        contents.resize(attr.size);
        self.close(attr.ino, handle).await.and(result)?;
        Ok(contents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt::{Executor, HostProfile};
    use crate::testing::generate::{Generator, OpMix, Space};
    use crate::testing::{MemFs, MemFsOptions, Runner};

    fn block_on<T>(body: impl AsyncFnOnce(crate::rt::Rt) -> T) -> T {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        executor.block_on(body(rt)).expect("the model never waits")
    }

    /// Aim: a tree holds everything, and can be built elsewhere. Method: generated trees, read, built in another model
    /// with the other open protocol, read again, compared.
    #[test]
    fn a_tree_can_be_copied() {
        block_on(async |rt| {
            for seed in 0..8 {
                let fs = MemFs::new(&rt);
                let mut runner = Runner::new(&rt, fs.clone());
                let space = Space { odd_names: true, far_offset: 1 << 40, ..Space::small() };
                for op in Generator::new(seed, space, OpMix::BALANCED).take(400) {
                    runner.apply(&op).await;
                }
                runner.close().await.expect("slots close");
                let tree = Tree::of(fs.clone()).await.expect("the model can be read");
                assert_eq!(tree.problems, Vec::<String>::new());
                assert!(tree.nodes.len() > 5);
                assert_eq!(fs.leaks(), crate::testing::memfs::Leaks::default());
                let options = MemFsOptions { open_protocol: OpenProtocol::Handles, ..MemFsOptions::default() };
                let copy = MemFs::with_options(&rt, options);
                tree.build(&(copy.clone() as Fs)).await.expect("the model has room");
                let copied = Tree::of(copy.clone()).await.expect("the model can be read");
                assert_eq!(tree.differences(&copied), Vec::<String>::new(), "seed {seed}");
                assert_eq!(copy.leaks(), crate::testing::memfs::Leaks::default());
            }
        });
    }

    /// Aim: every kind of difference is found and reported. Method: one change at a time to a small tree.
    #[test]
    fn differences_are_said() {
        let ops = |extra: &str| {
            let all = format!(
                "create /f 644; write /f 0+5000 #1; mkdir /d 755; create /d/g 600; link /d/g /h; symlink /s /x; {extra}"
            );
            let ops = crate::testing::ops::parse(&all).expect("good text");
            block_on(async |rt| {
                let fs = MemFs::new(&rt);
                let mut runner = Runner::new(&rt, fs.clone());
                for op in &ops {
                    let outcome = runner.apply(op).await;
                    assert_eq!(outcome.error(), None, "{op}");
                }
                Tree::of(fs).await.expect("the model can be read")
            })
        };
        let base = ops("");
        assert_eq!(base.differences(&ops("stat /f")), Vec::<String>::new());
        for (change, expected) in [
            ("write /f 4096+1 #3", "/f: content (5000 bytes) differs first at byte 4096"),
            ("truncate /f 4999", "/f: content (5000 bytes here, 4999 there) differs first at byte 4999"),
            ("truncate /f 6000", "/f: size 5000 here, 6000 there"),
            ("chmod /d 700", "/d: permissions 755 here, 700 there"),
            ("chown /f 1:0", "/f: owner 0:0 here, 1:0 there"),
            ("unlink /h; create /h 600", "/d/g and /h are one file here, and two there"),
            ("unlink /h", "/h is here and not there"),
            ("create /e 644", "/e is there and not here"),
            ("setxattr /f user.a 3 #1", "/f: attribute user.a absent here, 3 bytes"),
            ("unlink /s; symlink /s /y", "/s: target /x here, /y there"),
            ("unlink /s; mknod /s fifo 777", "/s: kind Symlink here, Fifo there"),
        ] {
            let found = base.differences(&ops(change));
            assert!(found.iter().any(|line| line.starts_with(expected)), "{change}: {found:#?}");
        }
        let mut wrong = base.clone();
        wrong.nodes.get_mut(&Ino::ROOT).expect("a root").links = 9;
        wrong.check_links();
        assert_eq!(wrong.problems, ["/: 9 links, but the names make 3"]);
    }
}
