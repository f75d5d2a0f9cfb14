//! Operation sequences: drawn from a seed, or all short ones.

use std::collections::BTreeSet;

use super::ops::{Filling, LEAVE_WHITEOUT, Op, Path, Target};
use crate::fs::acl::{Acl, AclKind};
use crate::fs::{AllocateMode, FileKind, FileRange, Fs, NodeKind, RenameMode, SeekTo, XattrMode};
use crate::rng::Rng;
use crate::rt::{Executor, HostProfile};
use crate::testing::{MemFs, Runner, Tree};

/// Names, sizes and places from which a generator draws. Small, so that operations meet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Space {
    /// Everything happens under this directory, which must exist.
    pub root: Path,
    pub directories: u32,
    pub depth_max: u32,
    pub files: u32,
    /// Limit of the ends of writes and of sizes.
    pub file_bytes_max: u64,
    pub slots: u8,
    /// Also the longest name, one that is not text, and one with blanks.
    pub odd_names: bool,
    /// Minimum length of a file's name: with long ones, directories split soon.
    pub name_bytes: usize,
    /// Occasionally a write far behind the end, up to this offset; 0 for never.
    pub far_offset: u64,
    /// Places in files near which every third offset is drawn, for example where a further level of indirect blocks
    /// begins.
    pub edges: &'static [u64],
}

impl Space {
    /// A few names and files of some pages.
    pub fn small() -> Space {
        Space {
            root: Path::from("/"),
            directories: 3,
            depth_max: 2,
            files: 5,
            file_bytes_max: 40_000,
            slots: 2,
            odd_names: false,
            name_bytes: 0,
            far_offset: 0,
            edges: &[],
        }
    }

    /// Many names, including odd ones, and files that need indirect blocks and many segments.
    pub fn large() -> Space {
        Space {
            directories: 8,
            depth_max: 4,
            files: 60,
            file_bytes_max: 3 << 20,
            slots: 4,
            odd_names: true,
            far_offset: 1 << 42,
            ..Space::small()
        }
    }
}

/// How often each class of operation is drawn, relative to the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpMix {
    pub names: u32,
    pub data: u32,
    pub attributes: u32,
    pub queries: u32,
    pub slots: u32,
    pub durability: u32,
    pub upkeep: u32,
    /// Access-control lists and related operations. Not every file system has them.
    pub access_lists: u32,
    /// Also renames that leave whiteouts, files without names, and attributes in all namespaces.
    pub overlays: bool,
}

impl OpMix {
    pub const BALANCED: OpMix = OpMix {
        names: 30,
        data: 30,
        attributes: 10,
        queries: 12,
        slots: 6,
        durability: 10,
        upkeep: 2,
        access_lists: 0,
        overlays: true,
    };

    /// For comparison with the model: many queries.
    pub const CURIOUS: OpMix = OpMix { queries: 40, durability: 4, ..OpMix::BALANCED };

    /// For power cuts: no queries, as other tests compare the answers.
    pub const CRASHY: OpMix = OpMix { queries: 0, durability: 15, ..OpMix::BALANCED };

    /// As many access-control lists as names.
    pub const fn with_access_lists(self) -> OpMix {
        OpMix { access_lists: self.names, ..self }
    }
}

/// Draws an endless sequence of operations. The same seed, space and weights always give the same operations, apart
/// from changes to this file.
pub struct Generator {
    rng: Rng,
    space: Space,
    weights: OpMix,
    next_tag: u32,
    belief: Belief,
    /// The operations are run on a model, so that later ones find targets.
    executor: Executor,
    runner: Runner,
}

/// The names that exist, according to the model.
#[derive(Default)]
struct Belief {
    directories: BTreeSet<Path>,
    files: BTreeSet<Path>,
}

impl Belief {
    /// Removes `path` and everything below it from `set`.
    fn take(set: &mut BTreeSet<Path>, path: &Path) -> Vec<Path> {
        let prefix = [&path.0[..], b"/"].concat();
        let inside: Vec<Path> =
            set.iter().filter(|other| *other == path || other.0.starts_with(&prefix)).cloned().collect();
        set.retain(|path| !inside.contains(path));
        inside
    }

    fn moved(&mut self, from: &Path, to: &Path, mode: RenameMode) {
        for set in [&mut self.directories, &mut self.files] {
            let (departing, replaced) = (Belief::take(set, from), Belief::take(set, to));
            set.extend(departing.iter().map(|path| Path([&to.0, &path.0[from.0.len()..]].concat())));
            if mode == RenameMode::Exchange {
                set.extend(replaced.iter().map(|path| Path([&from.0, &path.0[to.0.len()..]].concat())));
            }
        }
    }

    /// Records an operation that succeeded.
    fn learn(&mut self, op: &Op) {
        match op {
            Op::Create { path, .. } | Op::Mknod { path, .. } | Op::Symlink { path, .. } | Op::Link { path, .. } => {
                self.files.insert(path.clone());
            }
            Op::Mkdir { path, .. } => {
                self.directories.insert(path.clone());
            }
            Op::Unlink { path } => {
                self.files.remove(path);
            }
            Op::Rmdir { path } => {
                self.directories.remove(path);
            }
            Op::Rename { from, to, mode } if from != to => {
                self.moved(from, to, *mode);
                if mode.whiteout().is_some() {
                    self.files.insert(from.clone());
                }
            }
            _ => {}
        }
    }
}

/// One of `set`, uniformly.
fn pick_from(rng: &mut Rng, set: &BTreeSet<Path>) -> Option<Path> {
    let index = rng.below((set.len() as u64).max(1)) as usize;
    set.iter().nth(index).cloned()
}

/// One is in no namespace, and must be refused.
const XATTR_NAMES: [&str; 7] = ["user.a", "user.bb", "trusted.c", "user.a", "user.bb", "trusted.overlay.x", "other.d"];
/// Lists of all forms: no more than permissions, only a mask, named users and groups, less and more than the mask.
const LISTS: [&str; 7] = [
    "u::rwx,g::r-x,o::r--",
    "u::rw-,g::---,o::---",
    "u::rwx,g::r-x,m::rwx,o::---",
    "u::rwx,u:1:rwx,g::---,m::r-x,o::---",
    "u::rwx,u:1:r--,u:2:---,g::rwx,g:0:--x,g:2:rw-,m::rwx,o::r-x",
    "u::---,g::rwx,g:1:rwx,m::---,o::rwx",
    "u::r--,u:0:rwx,u:4294967294:-w-,g::r-x,m::rw-,o::--x",
];
const PERMISSIONS: [u16; 8] = [0o644, 0o600, 0o755, 0o777, 0, 0o4755, 0o2755, 0o1777];

impl Generator {
    pub fn new(seed: u64, space: Space, weights: OpMix) -> Generator {
        let belief = Belief { directories: BTreeSet::from([space.root.clone()]), files: BTreeSet::new() };
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let runner = Runner::new(executor.rt(), MemFs::new(executor.rt()));
        let mut generator = Generator { rng: Rng::new(seed), space, weights, next_tag: 1, belief, executor, runner };
        let root = generator.space.root.clone();
        generator.run(&Op::Mkdir { path: root, permissions: 0o755 });
        generator
    }

    /// A generator that knows what is in `tree`.
    pub fn with_tree(seed: u64, space: Space, weights: OpMix, tree: &Tree) -> Generator {
        let mut generator = Generator::new(seed, space, weights);
        let model: Fs = generator.runner.client().fs().clone();
        let built = generator.executor.block_on(tree.build(&model));
        if matches!(built, Ok(Ok(()))) {
            for (path, ino) in tree.paths().into_iter().skip(1) {
                let is_directory = tree.nodes.get(&ino).is_some_and(|node| node.kind == FileKind::Directory);
                let set = if is_directory { &mut generator.belief.directories } else { &mut generator.belief.files };
                set.insert(path);
            }
        }
        generator
    }

    /// The generator once `ops` have run before its own.
    pub fn after(mut self, ops: &[Op]) -> Generator {
        ops.iter().for_each(|op| self.run(op));
        self
    }

    /// Runs `op` on the model and records its effect.
    fn run(&mut self, op: &Op) {
        let runner = &mut self.runner;
        let outcome = self.executor.block_on(async { runner.apply(op).await });
        if outcome.is_ok_and(|outcome| outcome.error().is_none()) {
            self.belief.learn(op);
        }
    }

    /// A directory that probably exists, or any.
    fn directory(&mut self) -> Path {
        if self.rng.chance(3, 4)
            && let Some(path) = pick_from(&mut self.rng, &self.belief.directories)
        {
            return path;
        }
        let mut path = self.space.root.clone();
        for _ in 0..self.space.depth_max {
            // Shallow paths exist more often.
            if !self.rng.chance(2, 5) {
                break;
            }
            let name = format!("d{}", self.rng.below(u64::from(self.space.directories)));
            path = path.join(name.as_bytes());
        }
        path
    }

    /// A name in a directory. Files and directories have separate names, but occasionally they meet.
    fn name(&mut self, of_directory: bool) -> Path {
        let mut directory = self.directory();
        let depth = |path: &Path| path.0.iter().filter(|&&byte| byte == b'/').count() as u32;
        if of_directory && depth(&directory) > depth(&self.space.root) + self.space.depth_max {
            directory = self.space.root.clone();
        }
        let swapped = self.rng.chance(1, 16);
        if self.space.odd_names && self.rng.chance(1, 16) {
            let odd: [&[u8]; 4] = [&[b'x'; 255], b"\xff\xfe", b"a b\tc", &[b'y'; 256]];
            let name = *self.rng.pick(&odd);
            return directory.join(name);
        }
        let name = if of_directory != swapped {
            format!("d{}", self.rng.below(u64::from(self.space.directories)))
        } else {
            format!(
                "{:n<width$}",
                format!("f{}", self.rng.below(u64::from(self.space.files))),
                width = self.space.name_bytes
            )
        };
        directory.join(name.as_bytes())
    }

    fn file(&mut self) -> Path {
        self.name(false)
    }

    /// Target of a data operation.
    fn target(&mut self) -> Target {
        if self.space.slots > 0 && self.rng.chance(1, 8) {
            return Target::Slot(self.rng.below(u64::from(self.space.slots)) as u8);
        }
        Target::Path(self.likely_file())
    }

    /// A file that probably exists, or any.
    fn likely_file(&mut self) -> Path {
        if self.rng.chance(4, 5)
            && let Some(path) = pick_from(&mut self.rng, &self.belief.files)
        {
            return path;
        }
        self.file()
    }

    /// A directory with a name that probably exists, or any.
    fn likely_directory(&mut self) -> Path {
        let path = self.directory();
        if path == self.space.root { self.name(true) } else { path }
    }

    /// Target of an attribute operation: includes directories.
    fn any_target(&mut self) -> Target {
        match self.rng.below(4) {
            0 => Target::Path(self.directory()),
            _ => self.target(),
        }
    }

    fn filling(&mut self, bytes: u64) -> Filling {
        let tag = self.next_tag;
        self.next_tag += 1;
        Filling { bytes: bytes.min(u64::from(u32::MAX)) as u32, tag }
    }

    /// A length: most are small, some near a page or two, a few near the maximum.
    fn length(&mut self) -> u64 {
        let max = self.space.file_bytes_max;
        let length = match self.rng.below(8) {
            0..=2 => self.rng.between(1, 200),
            3..=4 => (self.rng.between(1, 3) * 4096).saturating_sub(1) + self.rng.below(3),
            5..=6 => self.rng.between(1, (max / 8).max(1)),
            _ => self.rng.between(1, max.max(1)),
        };
        length.min(max.max(1))
    }

    fn offset(&mut self) -> u64 {
        let max = self.space.file_bytes_max;
        if !self.space.edges.is_empty() && self.rng.chance(1, 3) {
            let edge = *self.rng.pick(self.space.edges);
            let beside = self.rng.below(5) * 4096;
            return (edge + beside).saturating_sub(8192) + if self.rng.chance(1, 4) { self.rng.below(4096) } else { 0 };
        }
        match self.rng.below(8) {
            0..=2 => 0,
            3..=4 => self.rng.below(max / 4096 + 1) * 4096,
            5 if self.space.far_offset > 0 && self.rng.chance(1, 8) => self.rng.below(self.space.far_offset),
            _ => self.rng.below(max + 1),
        }
    }

    fn permissions(&mut self) -> u16 {
        if self.rng.chance(1, 2) { 0o644 } else { *self.rng.pick(&PERMISSIONS) }
    }

    fn xattr_name(&mut self) -> String {
        let names = if self.weights.overlays { &XATTR_NAMES[..] } else { &XATTR_NAMES[..3] };
        self.rng.pick(names).to_string()
    }

    fn names_op(&mut self) -> Op {
        match self.rng.below(30) {
            0..=8 => Op::Create { path: self.file(), permissions: self.permissions() },
            9..=12 => Op::Mkdir { path: self.name(true), permissions: self.permissions() | 0o700 },
            13 => {
                let device = self.rng.below(1 << 20) as u32;
                let kinds = [
                    NodeKind::Regular,
                    NodeKind::Fifo,
                    NodeKind::Socket,
                    NodeKind::CharDevice { device },
                    NodeKind::BlockDevice { device },
                ];
                Op::Mknod { path: self.file(), kind: *self.rng.pick(&kinds), permissions: self.permissions() }
            }
            14..=15 => Op::Symlink { path: self.file(), to: self.file() },
            16..=18 => Op::Link { existing: self.target(), path: self.file() },
            19..=22 => Op::Unlink { path: self.likely_file() },
            23..=24 => Op::Rmdir { path: self.likely_directory() },
            _ => {
                let directories = self.rng.chance(1, 3);
                let from = if directories { self.likely_directory() } else { self.likely_file() };
                let to = self.name(directories);
                let mode = match self.rng.below(if self.weights.overlays { 8 } else { 6 }) {
                    0 => RenameMode::NoReplace,
                    1 => RenameMode::Exchange,
                    2 if self.weights.overlays => {
                        RenameMode::Whiteout { replace: self.rng.chance(3, 4), uid: 0, gid: 0 }
                    }
                    _ => RenameMode::Replace,
                };
                Op::Rename { from, to, mode }
            }
        }
    }

    fn data_op(&mut self) -> Op {
        let target = self.target();
        match self.rng.below(16) {
            0..=8 => {
                let (offset, bytes) = (self.offset(), self.length());
                Op::Write { target, offset, filling: self.filling(bytes) }
            }
            9..=10 => {
                let bytes = self.length();
                Op::Append { target, filling: self.filling(bytes) }
            }
            11..=13 => {
                let size = if self.rng.chance(1, 4) { 0 } else { self.offset() };
                Op::Truncate { target, size }
            }
            _ => {
                let range = FileRange { offset: self.offset(), bytes: self.length() };
                let keep_size = self.rng.chance(1, 2);
                let mode = match self.rng.below(4) {
                    0 => AllocateMode::Allocate { keep_size },
                    1 => AllocateMode::Zero { keep_size },
                    _ => AllocateMode::PunchHole,
                };
                Op::Allocate { target, range, mode }
            }
        }
    }

    fn attributes_op(&mut self) -> Op {
        let target = self.any_target();
        match self.rng.below(10) {
            0..=2 => Op::Chmod { target, permissions: self.permissions() },
            3 => Op::Chown { target, uid: self.rng.below(3) as u32, gid: self.rng.below(3) as u32 },
            4 => Op::Touch { target, seconds: self.rng.below(1 << 33) as i64 - (1 << 31) },
            5..=7 => {
                let bytes = match self.rng.below(12) {
                    0 => self.rng.below(9_000),
                    1 => 0,
                    _ => self.rng.between(1, 60),
                };
                let mode = *self.rng.pick(&[XattrMode::Set, XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
                Op::SetXattr { target, name: self.xattr_name(), filling: self.filling(bytes), mode }
            }
            _ => Op::RemoveXattr { target, name: self.xattr_name() },
        }
    }

    fn query_op(&mut self) -> Op {
        match self.rng.below(16) {
            0..=5 => {
                let range = FileRange { offset: self.offset(), bytes: self.length() };
                Op::Read { target: self.target(), range }
            }
            6..=8 => Op::Stat { target: self.any_target() },
            9 => Op::ReadLink { path: self.likely_file() },
            10..=11 => Op::ReadDir { path: self.directory() },
            12 => Op::Seek { target: self.target(), offset: self.offset(), seek: SeekTo::Data },
            13 => Op::Seek { target: self.target(), offset: self.offset(), seek: SeekTo::Hole },
            14 => Op::GetXattr { target: self.any_target(), name: self.xattr_name() },
            _ => Op::ListXattr { target: self.any_target() },
        }
    }

    fn slots_op(&mut self) -> Op {
        let slot = self.rng.below(u64::from(self.space.slots.max(1))) as u8;
        match self.rng.below(if self.weights.overlays { 8 } else { 5 }) {
            0 => Op::Close { slot },
            1 => Op::Open { slot, path: self.directory() },
            2..=3 if self.weights.overlays => Op::TmpFile {
                slot,
                directory: self.directory(),
                permissions: self.permissions(),
                linkable: self.rng.chance(7, 8),
            },
            4 if self.weights.overlays => Op::Link { existing: Target::Slot(slot), path: self.file() },
            _ => Op::Open { slot, path: self.likely_file() },
        }
    }

    fn durability_op(&mut self) -> Op {
        match self.rng.below(10) {
            0..=4 => Op::Fsync { target: self.target(), data_only: self.rng.chance(1, 4) },
            5..=8 => Op::FsyncDir { path: self.directory() },
            _ => Op::Sync,
        }
    }

    fn access_list_op(&mut self) -> Op {
        let kind = *self.rng.pick(&[AclKind::Access, AclKind::Default]);
        // Default lists are refused except on directories.
        let target = match kind {
            AclKind::Default if self.rng.chance(7, 8) => Target::Path(self.directory()),
            _ => self.any_target(),
        };
        match self.rng.below(10) {
            0..=5 => Op::SetAcl { target, kind, acl: self.access_list() },
            6 => Op::RemoveXattr { target, name: String::from_utf8_lossy(kind.xattr()).into_owned() },
            7 => Op::GetXattr { target, name: String::from_utf8_lossy(kind.xattr()).into_owned() },
            _ => Op::Chmod { target, permissions: self.permissions() },
        }
    }

    fn access_list(&mut self) -> Acl {
        let text = self.rng.pick(&LISTS);
        text.parse().unwrap_or_else(|error| unreachable!("{error}"))
    }

    fn upkeep_op(&mut self) -> Op {
        if self.rng.chance(1, 2) { Op::DropCaches } else { Op::Idle { millis: self.rng.between(1, 20_000) as u32 } }
    }
}

impl Iterator for Generator {
    type Item = Op;

    fn next(&mut self) -> Option<Op> {
        type Draw = fn(&mut Generator) -> Op;
        let OpMix { names, data, attributes, queries, slots, durability, upkeep, access_lists, .. } = self.weights;
        let slots = if self.space.slots > 0 { slots } else { 0 };
        let classes: [(u32, Draw); 8] = [
            (names, Generator::names_op),
            (data, Generator::data_op),
            (attributes, Generator::attributes_op),
            (queries, Generator::query_op),
            (slots, Generator::slots_op),
            (durability, Generator::durability_op),
            (upkeep, Generator::upkeep_op),
            (access_lists, Generator::access_list_op),
        ];
        let total: u32 = classes.iter().map(|(weight, _)| weight).sum();
        let mut drawn = self.rng.below(u64::from(total.max(1))) as u32;
        let class = classes.iter().find(|(weight, _)| {
            let found = drawn < *weight;
            drawn = drawn.saturating_sub(*weight);
            found
        });
        let op = class.map(|(_, draw)| draw(self))?;
        self.run(&op);
        Some(op)
    }
}

/// Every sequence of `length` operations from a small set, each operation alone or with something that makes it
/// durable, after a common prologue that makes `/foo`, `/A/foo`, `/A` and `/B` durable.
///
/// The set and the idea are those of ACE: most crash bugs found in mature file systems need two or three operations on
/// a handful of files. [Mohan et al., *CrashMonkey and ACE*, OSDI 2018]
pub fn bounded(length: u32) -> Bounded {
    let steps = bounded_steps();
    let total = (steps.len() as u64).pow(length);
    Bounded { steps, length, total, next: 0, stride: 1 }
}

/// See [`bounded`].
pub struct Bounded {
    steps: Vec<Vec<Op>>,
    length: u32,
    total: u64,
    next: u64,
    stride: u64,
}

impl Bounded {
    /// Number of sequences there are.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// About `count` of the sequences, spread over all of them.
    pub fn sample(self, count: u64, seed: u64) -> Bounded {
        let stride = (self.total / count.max(1)).max(1);
        Bounded { stride, next: Rng::new(seed).below(stride), ..self }
    }

    /// The common prologue of all sequences; it ends with a `sync`.
    pub fn prologue() -> Vec<Op> {
        let create = |path: &str| Op::Create { path: path.into(), permissions: 0o644 };
        let mkdir = |path: &str| Op::Mkdir { path: path.into(), permissions: 0o755 };
        let write =
            |path: &str, tag| Op::Write { target: path.into(), offset: 0, filling: Filling { bytes: 5_000, tag } };
        let made = vec![mkdir("/A"), mkdir("/B"), create("/foo"), create("/A/foo")];
        made.into_iter().chain([write("/foo", 101), write("/A/foo", 102), Op::Sync]).collect()
    }
}

impl Iterator for Bounded {
    type Item = Vec<Op>;

    fn next(&mut self) -> Option<Vec<Op>> {
        if self.next >= self.total {
            return None;
        }
        let mut code = self.next;
        self.next += self.stride;
        let mut ops = Bounded::prologue();
        for _ in 0..self.length {
            ops.extend(self.steps[(code % self.steps.len() as u64) as usize].iter().cloned());
            code /= self.steps.len() as u64;
        }
        Some(ops)
    }
}

/// One operation, and what makes it durable, in each applicable way.
fn bounded_steps() -> Vec<Vec<Op>> {
    let mut steps = Vec::new();
    let mut add = |op: Op, file: &str, directories: &[&str]| {
        steps.push(vec![op.clone()]);
        steps.push(vec![op.clone(), Op::Sync]);
        let fsync = Op::Fsync { target: file.into(), data_only: false };
        let mut full = vec![op, fsync];
        full.extend(directories.iter().map(|&directory| Op::FsyncDir { path: directory.into() }));
        steps.push(full);
    };
    for (path, directory) in [("/bar", "/"), ("/A/bar", "/A")] {
        add(Op::Create { path: path.into(), permissions: 0o600 }, path, &[directory]);
        add(Op::Symlink { path: path.into(), to: "/foo".into() }, path, &[directory]);
        add(Op::Link { existing: "/foo".into(), path: path.into() }, path, &[directory]);
        add(Op::Mkdir { path: path.into(), permissions: 0o755 }, path, &[directory]);
        add(Op::Unlink { path: path.into() }, path, &[directory]);
    }
    for (path, directory) in [("/foo", "/"), ("/A/foo", "/A")] {
        add(Op::Unlink { path: path.into() }, path, &[directory]);
        add(Op::Write { target: path.into(), offset: 0, filling: Filling { bytes: 9_000, tag: 1 } }, path, &[]);
        add(Op::Append { target: path.into(), filling: Filling { bytes: 4_096, tag: 2 } }, path, &[]);
        add(Op::Truncate { target: path.into(), size: 2_500 }, path, &[]);
        let set = |name: &str| Op::SetXattr {
            target: path.into(),
            name: name.to_string(),
            filling: Filling { bytes: 20, tag: 3 },
            mode: XattrMode::Set,
        };
        add(set("user.a"), path, &[]);
        add(Op::RemoveXattr { target: path.into(), name: "user.a".to_string() }, path, &[]);
        let range = FileRange { offset: 4_096, bytes: 8_192 };
        add(Op::Allocate { target: path.into(), range, mode: AllocateMode::PunchHole }, path, &[]);
        add(Op::Allocate { target: path.into(), range, mode: AllocateMode::Allocate { keep_size: false } }, path, &[]);
    }
    let moves = [
        ("/foo", "/bar"),
        ("/foo", "/A/foo"),
        ("/A/foo", "/foo"),
        ("/A/foo", "/B/foo"),
        ("/bar", "/foo"),
        ("/A", "/C"),
    ];
    for (from, to) in moves {
        let (from, to) = (Path::from(from), Path::from(to));
        let parents = [from.parent().to_string(), to.parent().to_string()];
        let mode = RenameMode::Replace;
        let target = to.to_string();
        add(Op::Rename { from, to, mode }, &target, &[&parents[0], &parents[1]]);
    }
    let (from, to, mode) = ("/foo".into(), "/A/foo".into(), RenameMode::Exchange);
    add(Op::Rename { from, to, mode }, "/foo", &["/", "/A"]);
    for (from, to, target) in [("/foo", "/A/bar", "/A/bar"), ("/A/foo", "/foo", "/foo"), ("/A", "/D", "/D")] {
        let mode = LEAVE_WHITEOUT;
        add(Op::Rename { from: from.into(), to: to.into(), mode }, target, &["/"]);
    }
    add(Op::Rmdir { path: "/B".into() }, "/", &["/"]);
    let unnamed = Op::TmpFile { slot: 0, directory: "/A".into(), permissions: 0o600, linkable: true };
    let written = Op::Write { target: Target::Slot(0), offset: 0, filling: Filling { bytes: 9_000, tag: 4 } };
    let linked = Op::Link { existing: Target::Slot(0), path: "/A/t".into() };
    let fsync = Op::Fsync { target: Target::Slot(0), data_only: false };
    steps.push(vec![unnamed.clone(), written.clone(), linked.clone()]);
    steps.push(vec![
        unnamed.clone(),
        written.clone(),
        fsync.clone(),
        linked.clone(),
        Op::FsyncDir { path: "/A".into() },
    ]);
    steps.push(vec![unnamed, fsync.clone(), linked, written, fsync, Op::FsyncDir { path: "/A".into() }]);
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: operations meet often enough to do something, and fail often enough to test errors. Method: run them on the
    /// model and count.
    #[test]
    fn most_operations_succeed() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let (mut done, mut failed, mut kinds) = (0, 0, std::collections::BTreeMap::new());
        executor
            .block_on(async {
                let fs = MemFs::new(&rt);
                let mut runner = Runner::new(&rt, fs.clone());
                for op in Generator::new(1, Space::small(), OpMix::BALANCED.with_access_lists()).take(10_000) {
                    let outcome = runner.apply(&op).await;
                    *if outcome.error().is_some() { &mut failed } else { &mut done } += 1;
                    let kind = op.to_string().split(' ').next().unwrap_or_default().to_string();
                    *kinds.entry(kind).or_insert(0) += u32::from(outcome.error().is_none());
                }
                runner.close().await.expect("slots close");
                assert_eq!(fs.leaks(), crate::testing::memfs::Leaks::default());
            })
            .expect("the model never waits");
        assert!(done > 6_000 && failed > 1_000, "{done} done, {failed} failed");
        let idle: Vec<_> = kinds.iter().filter(|(_, done)| **done == 0).collect();
        assert_eq!(idle, [], "each kind of operation succeeds now and then");
    }

    /// The bounded sequences are all different, and a sample is spread evenly.
    #[test]
    fn bounded_sequences() {
        let all: BTreeSet<String> = bounded(1).map(|ops| crate::testing::ops::to_text(&ops)).collect();
        assert_eq!(all.len() as u64, bounded(1).total());
        assert!(bounded(2).total() > 10_000);
        let sampled = bounded(2).sample(100, 1).count();
        assert!((100..=102).contains(&sampled), "{sampled}");
    }
}
