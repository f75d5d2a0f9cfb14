//! Programs: operations in the order in which real programs issue them, drawn from a seed.
//!
//! The operations of [`Generator`](super::Generator) are independent. A program consists of habits, in which each
//! operation relies on earlier ones: save a file under another name and rename it over the old one, append to a log and
//! fsync it, unpack a tree, move everything out of a directory and remove it.
//! [`PowerCuts::run_concurrently`](super::PowerCuts::run_concurrently) interleaves several programs, each in its own
//! directory.

use std::collections::BTreeSet;

use super::ops::{Filling, LEAVE_WHITEOUT, Op, Path, Target};
use crate::fs::{AllocateMode, FileRange, RenameMode, XattrMode};
use crate::rng::Rng;

/// The dominant habits of programs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mix {
    /// Write and fsync, with pauses, so that an fsync of one program meets those of others.
    Fsyncs,
    /// Create, move and remove files and directories.
    Names,
    /// All of it.
    All,
    /// What fewer programs do: files that get their first name when they are complete, holes, attributes, several names
    /// of a file, exchanges, whiteouts; beside what [`Mix::Names`] does.
    Rare,
}

/// Programs of `clients` clients with about `length` operations each; client n stays below `/cn`.
pub fn programs(seed: u64, clients: u64, length: usize, mix: Mix) -> Vec<Vec<Op>> {
    (0..clients).map(|client| Program::new(seed, client, mix).take_ops(length)).collect()
}

/// Limit of the files, and of the directories, that a program uses. Few, so that its habits meet.
const NAMES: u64 = 4;

struct Program {
    rng: Rng,
    root: Path,
    mix: Mix,
    tag: u32,
    ops: Vec<Op>,
    files: BTreeSet<Path>,
    /// Directories in the root, and how many numbered files each has.
    directories: Vec<(Path, u64)>,
}

impl Program {
    fn new(seed: u64, client: u64, mix: Mix) -> Program {
        let root = Path::from(&*format!("/c{client}"));
        let rng = Rng::new(seed.wrapping_mul(0x9e37_79b9).wrapping_add(client + 1));
        let tag = 1 + client as u32 * 100_000;
        Program { rng, root, mix, tag, ops: Vec::new(), files: BTreeSet::new(), directories: Vec::new() }
    }

    fn take_ops(mut self, length: usize) -> Vec<Op> {
        while self.ops.len() < length {
            let habit = match self.mix {
                Mix::Fsyncs => self.rng.below(5),
                Mix::Names => self.rng.between(3, 10),
                Mix::All => self.rng.below(11),
                Mix::Rare => self.rng.between(3, 17),
            };
            match habit {
                0 => self.overwrite(),
                1 => self.append(),
                2 => self.rewrite(),
                3 => self.pause(),
                4 => self.save(),
                5 => self.unpack(),
                6 => self.remove_tree(),
                7 => self.move_out(),
                8 => self.rename_directory(),
                9 => self.unlink(),
                10 => self.hold_open(),
                11 => self.publish(),
                12 => self.punch(),
                13 => self.label(),
                14 => self.link(),
                15 => self.exchange(),
                _ => self.move_with_whiteout(),
            }
        }
        self.ops
    }

    fn chance(&mut self, of: u64) -> bool {
        self.rng.chance(1, of)
    }

    fn filling(&mut self) -> Filling {
        self.tag += 1;
        let bytes = match self.rng.below(6) {
            0..=2 => self.rng.between(1, 900),
            3..=4 => self.rng.between(900, 9_000),
            _ => self.rng.between(9_000, 30_000),
        };
        Filling { bytes: bytes as u32, tag: self.tag }
    }

    /// A file of the program; it is made if it is not there.
    fn file(&mut self) -> Path {
        let name = format!("f{}", self.rng.below(NAMES));
        let path = self.root.join(name.as_bytes());
        if self.files.insert(path.clone()) {
            self.ops.push(Op::Create { path: path.clone(), permissions: 0o644 });
        }
        path
    }

    fn fsync(&mut self, path: &Path) {
        let data_only = self.chance(4);
        self.ops.push(Op::Fsync { target: Target::Path(path.clone()), data_only });
    }

    fn pause(&mut self) {
        let millis = self.rng.between(1, 3) as u32;
        self.ops.push(Op::Idle { millis });
    }

    fn overwrite(&mut self) {
        let path = self.file();
        for _ in 0..self.rng.between(1, 2) {
            let (offset, filling) = (self.rng.below(20_000), self.filling());
            self.ops.push(Op::Write { target: Target::Path(path.clone()), offset, filling });
        }
        self.fsync(&path);
    }

    /// As a database does with its log.
    fn append(&mut self) {
        let path = self.file();
        for _ in 0..self.rng.between(1, 3) {
            let filling = self.filling();
            self.ops.push(Op::Append { target: Target::Path(path.clone()), filling });
            self.fsync(&path);
        }
    }

    /// Truncates and rewrites, occasionally far behind the beginning, where indirect blocks are.
    fn rewrite(&mut self) {
        let path = self.file();
        let size = if self.chance(2) { 0 } else { self.rng.below(12_000) };
        self.ops.push(Op::Truncate { target: Target::Path(path.clone()), size });
        if self.chance(2) {
            self.fsync(&path);
        }
        let offset = if self.chance(3) { 120_000 + self.rng.below(200_000) } else { size };
        let filling = self.filling();
        self.ops.push(Op::Write { target: Target::Path(path.clone()), offset, filling });
        self.fsync(&path);
        if self.chance(3) {
            self.ops.push(Op::Truncate { target: Target::Path(path.clone()), size: offset / 2 });
            self.fsync(&path);
        }
    }

    /// As an editor does: new content under another name, renamed over the old file.
    fn save(&mut self) {
        let (target, other) = (self.file(), self.root.join(b"saving"));
        let filling = self.filling();
        self.ops.push(Op::Create { path: other.clone(), permissions: 0o600 });
        self.ops.push(Op::Write { target: Target::Path(other.clone()), offset: 0, filling });
        self.fsync(&other);
        self.ops.push(Op::Rename { from: other, to: target.clone(), mode: RenameMode::Replace });
        if self.chance(2) {
            self.ops.push(Op::FsyncDir { path: self.root.clone() });
        }
        if self.chance(2) {
            self.fsync(&target);
        }
    }

    /// As an archiver or a checkout does.
    fn unpack(&mut self) {
        let name = format!("d{}", self.rng.below(NAMES));
        let path = self.root.join(name.as_bytes());
        if self.directories.iter().any(|(other, _)| *other == path) {
            return self.overwrite();
        }
        let files = self.rng.between(1, 4);
        self.ops.push(Op::Mkdir { path: path.clone(), permissions: 0o755 });
        for file in 0..files {
            let (file, filling) = (path.join(format!("n{file}").as_bytes()), self.filling());
            self.ops.push(Op::Create { path: file.clone(), permissions: 0o644 });
            self.ops.push(Op::Write { target: Target::Path(file.clone()), offset: 0, filling });
            if self.chance(3) {
                self.fsync(&file);
            }
        }
        self.directories.push((path.clone(), files));
        match self.rng.below(4) {
            0 => self.ops.push(Op::Sync),
            1 => self.ops.push(Op::FsyncDir { path }),
            _ => {}
        }
    }

    fn take_directory(&mut self) -> Option<(Path, u64)> {
        if self.directories.is_empty() {
            self.unpack();
        }
        let index = self.rng.below((self.directories.len() as u64).max(1)) as usize;
        (index < self.directories.len()).then(|| self.directories.swap_remove(index))
    }

    fn remove_tree(&mut self) {
        let Some((path, files)) = self.take_directory() else { return };
        for file in 0..files {
            self.ops.push(Op::Unlink { path: path.join(format!("n{file}").as_bytes()) });
        }
        self.ops.push(Op::Rmdir { path });
        if self.chance(3) {
            self.ops.push(Op::FsyncDir { path: self.root.clone() });
        }
    }

    /// Moves everything out of a directory and removes it at once.
    fn move_out(&mut self) {
        let Some((path, files)) = self.take_directory() else { return };
        for file in 0..files {
            let from = path.join(format!("n{file}").as_bytes());
            let to = self.root.join(format!("f{file}").as_bytes());
            self.ops.push(Op::Rename { from, to: to.clone(), mode: RenameMode::Replace });
            self.files.insert(to.clone());
            if self.chance(3) {
                self.fsync(&to);
            }
        }
        self.ops.push(Op::Rmdir { path });
    }

    fn rename_directory(&mut self) {
        let Some((from, files)) = self.take_directory() else { return };
        let to = self.root.join(format!("d{}", self.rng.below(NAMES)).as_bytes());
        let taken = from == to || self.directories.iter().any(|(other, _)| *other == to);
        let parent = self.directories.iter().map(|(path, _)| path.clone()).next();
        if taken {
            self.directories.push((from, files));
        } else if let (Some(parent), true) = (parent, self.chance(2)) {
            // Into another directory and back, which changes its parent twice.
            let below = parent.join(b"moved");
            self.ops.push(Op::Rename { from, to: below.clone(), mode: RenameMode::Replace });
            if self.chance(2) {
                self.ops.push(Op::FsyncDir { path: below.clone() });
            }
            self.ops.push(Op::Rename { from: below, to: to.clone(), mode: RenameMode::Replace });
            self.directories.push((to, files));
        } else {
            // Half of the time over an empty directory.
            if self.chance(2) {
                self.ops.push(Op::Mkdir { path: to.clone(), permissions: 0o700 });
            }
            self.ops.push(Op::Rename { from, to: to.clone(), mode: RenameMode::Replace });
            self.directories.push((to, files));
        }
    }

    fn unlink(&mut self) {
        let path = self.file();
        self.files.remove(&path);
        self.ops.push(Op::Unlink { path });
        if self.chance(3) {
            self.ops.push(Op::FsyncDir { path: self.root.clone() });
        }
    }

    /// Uses a file that has lost its name, or has got another one.
    fn hold_open(&mut self) {
        let (path, filling) = (self.file(), self.filling());
        let target = Target::Slot(0);
        self.ops.push(Op::Open { slot: 0, path: path.clone() });
        if self.chance(2) {
            self.files.remove(&path);
            self.ops.push(Op::Unlink { path });
        } else {
            let to = self.file();
            if to != path {
                self.files.remove(&path);
                self.ops.push(Op::Rename { from: path, to, mode: RenameMode::Replace });
            }
        }
        self.ops.push(Op::Append { target: target.clone(), filling });
        self.ops.push(Op::Fsync { target, data_only: false });
        self.ops.push(Op::Close { slot: 0 });
    }

    /// A name that no file of the program has; another one is removed if there is none.
    fn free_name(&mut self) -> Path {
        let path = self.root.join(format!("f{}", self.rng.below(NAMES)).as_bytes());
        if self.files.remove(&path) {
            self.ops.push(Op::Unlink { path: path.clone() });
        }
        path
    }

    /// A file that gets a name only once it is complete.
    fn publish(&mut self) {
        let (path, filling) = (self.free_name(), self.filling());
        let target = Target::Slot(0);
        let directory = self.root.clone();
        self.ops.push(Op::TmpFile { slot: 0, directory, permissions: 0o644, linkable: true });
        self.ops.push(Op::Write { target: target.clone(), offset: 0, filling });
        if !self.chance(4) {
            self.ops.push(Op::Fsync { target: target.clone(), data_only: false });
        }
        self.ops.push(Op::Link { existing: target.clone(), path: path.clone() });
        self.files.insert(path.clone());
        match self.rng.below(4) {
            0 => self.fsync(&path),
            1 => self.ops.push(Op::Fsync { target, data_only: false }),
            2 => self.ops.push(Op::FsyncDir { path: self.root.clone() }),
            _ => {}
        }
        self.ops.push(Op::Close { slot: 0 });
    }

    /// Makes holes, and sets space aside.
    fn punch(&mut self) {
        let path = self.file();
        if self.chance(2) {
            let (offset, filling) = (self.rng.below(60_000), self.filling());
            self.ops.push(Op::Write { target: Target::Path(path.clone()), offset, filling });
        }
        let range = FileRange { offset: self.rng.below(60_000), bytes: self.rng.between(1, 50_000) };
        let mode = match self.rng.below(6) {
            0 => AllocateMode::Allocate { keep_size: true },
            1 => AllocateMode::Allocate { keep_size: false },
            2 => AllocateMode::Zero { keep_size: self.chance(2) },
            _ => AllocateMode::PunchHole,
        };
        self.ops.push(Op::Allocate { target: Target::Path(path.clone()), range, mode });
        if self.chance(2) {
            self.fsync(&path);
        }
    }

    fn label(&mut self) {
        let target = Target::Path(self.file());
        let op = match self.rng.below(4) {
            0 => Op::Chmod { target: target.clone(), permissions: 0o600 + self.rng.below(64) as u16 },
            1 => Op::Touch { target: target.clone(), seconds: self.rng.below(1 << 30) as i64 },
            _ => {
                let (name, filling) = (format!("user.{}", self.rng.below(2)), self.filling());
                let filling = Filling { bytes: filling.bytes.min(2_000), ..filling };
                Op::SetXattr { target: target.clone(), name, filling, mode: XattrMode::Set }
            }
        };
        self.ops.push(op);
        if self.chance(2) {
            self.ops.push(Op::Fsync { target, data_only: false });
        }
    }

    /// A second name, of which one of both is removed.
    fn link(&mut self) {
        let (path, other) = (self.file(), self.free_name());
        if !self.files.contains(&path) {
            return; // The name that was needed is that of the file.
        }
        self.ops.push(Op::Link { existing: Target::Path(path.clone()), path: other.clone() });
        if self.chance(2) {
            self.fsync(&other);
        }
        let (kept, removed) = if self.chance(2) { (path, other) } else { (other, path) };
        let filling = self.filling();
        self.ops.push(Op::Append { target: Target::Path(removed.clone()), filling });
        self.ops.push(Op::Unlink { path: removed.clone() });
        self.files.remove(&removed);
        self.files.insert(kept.clone());
        if self.chance(2) {
            self.fsync(&kept);
        }
    }

    fn exchange(&mut self) {
        let (from, to) = (self.file(), self.file());
        self.ops.push(Op::Rename { from: from.clone(), to, mode: RenameMode::Exchange });
        match self.rng.below(3) {
            0 => self.fsync(&from),
            1 => self.ops.push(Op::FsyncDir { path: self.root.clone() }),
            _ => {}
        }
    }

    /// As an overlay does with what also exists below it; later it removes the whiteout.
    fn move_with_whiteout(&mut self) {
        let (from, to) = (self.file(), self.free_name());
        if !self.files.remove(&from) {
            return;
        }
        self.ops.push(Op::Rename { from: from.clone(), to: to.clone(), mode: LEAVE_WHITEOUT });
        self.files.insert(to.clone());
        if self.chance(2) {
            self.fsync(&to);
        }
        self.ops.push(Op::Unlink { path: from });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt::{Executor, HostProfile};
    use crate::testing::{MemFs, Runner};

    /// Programs are realistic: nearly all of their operations succeed, and every kind occurs. Method: run them on the
    /// model and count.
    #[test]
    fn programs_succeed() {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let (mut done, mut failed, mut kinds) = (0, 0, BTreeSet::new());
        let ran = executor.block_on(async {
            const MIXES: [Mix; 4] = [Mix::Fsyncs, Mix::Names, Mix::All, Mix::Rare];
            for (seed, mix) in (0..40).flat_map(|seed| MIXES.map(|mix| (seed, mix))) {
                let mut runner = Runner::new(&rt, MemFs::new(&rt));
                for (client, ops) in programs(seed, 3, 40, mix).into_iter().enumerate() {
                    let path = Path::from(&*format!("/c{client}"));
                    runner.apply(&Op::Mkdir { path, permissions: 0o755 }).await;
                    for op in ops {
                        let outcome = runner.apply(&op).await;
                        *if outcome.error().is_some() { &mut failed } else { &mut done } += 1;
                        kinds.insert(op.to_string().split(' ').next().unwrap_or_default().to_string());
                    }
                }
                assert!(runner.close().await.is_ok());
            }
        });
        assert_eq!(ran, Ok(()));
        assert!(failed * 100 < done, "{done} done, {failed} failed");
        assert_eq!(kinds.len(), 27, "{kinds:?}");
    }
}
