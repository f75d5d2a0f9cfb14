//! Aim: with soft updates any block may be written at any time, and inodes may be evicted that need not be in memory:
//! the volume is always consistent but for leaks, has each file that was made durable, and never shows a file another
//! one's data. Method: programs drawn from seeds on few names, on directories that are about to need another fragment,
//! block or indirect block; between their operations single blocks are written, in any order, each followed by a check
//! of what a power cut would leave at that moment, and by a recount of the books.

use std::collections::{BTreeMap, BTreeSet};

use super::soft::softly;
use super::*;
use crate::fs::ffs::soft::SyncScope;
use crate::fs::ffs::state::inner;
use crate::rng::Rng;
use crate::testing::environment::replay;

const BYTES: u64 = 6 * MIB;

/// Small blocks, so that directories soon need indirect ones.
fn small_blocks() -> MkfsOptions {
    MkfsOptions { block_bytes: 4096, frag_bytes: 512, bytes_per_inode: Some(16_384), ..small_groups() }
}

/// The letter of a whiteout.
const WHITEOUT_LETTER: u8 = b'w';

/// A running program, and its expectations. Each file is full of one letter; those of capital letters are never
/// removed.
struct World {
    rt: Rt,
    memory: Rc<Memory>,
    ffs: Rc<Ffs>,
    client: Client,
    rng: Rng,
    /// The letter of each name.
    names: BTreeMap<String, u8>,
    directories: BTreeSet<String>,
    sizes: BTreeMap<u8, u64>,
    /// For each letter, the size that was made durable, and has not been truncated since.
    durable: BTreeMap<u8, u64>,
    letters: u8,
    steps: Vec<String>,
}

/// The names below the root, with letters and sizes, and directories.
async fn tree(client: &Client, path: String, found: &mut BTreeMap<String, Option<(u8, u64)>>) {
    for entry in client.read_dir(path.as_bytes()).await.expect("it can be listed") {
        let below = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        let what = match entry.kind {
            FileKind::Directory => {
                Box::pin(tree(client, below.clone(), found)).await;
                None
            }
            FileKind::Regular => {
                let bytes = client.read_file(below.as_bytes()).await.expect("it can be read");
                let letter = bytes.iter().copied().find(|&byte| byte != 0).unwrap_or(0);
                let foreign = bytes.iter().find(|&&byte| byte != 0 && byte != letter);
                assert_eq!(foreign, None, "{below} has letters of others than {letter}");
                let written = bytes.iter().take_while(|&&byte| byte != 0).count();
                Some((letter, written as u64))
            }
            FileKind::CharDevice => Some((WHITEOUT_LETTER, 0)),
            _ => continue,
        };
        found.insert(below, what);
    }
}

impl World {
    async fn begin(rt: &Rt, seed: u64) -> World {
        let (memory, device) = fresh(rt, BYTES, &small_blocks()).await;
        let options = Options { update_interval: Nanos::from_secs(30), ..softly() };
        let ffs = mount(rt.clone(), device, options).await.unwrap();
        let client = Client::new(ffs.clone());
        let mut world = World {
            rt: rt.clone(),
            memory,
            ffs,
            client,
            rng: Rng::new(seed),
            names: BTreeMap::new(),
            directories: BTreeSet::new(),
            sizes: BTreeMap::new(),
            durable: BTreeMap::new(),
            letters: b'a',
            steps: Vec::new(),
        };
        // Chunks of 512 bytes: a block has 8 of them, and an inode leads to 12 blocks by itself.
        for (directory, chunks) in [("/p", 1), ("/q", 7), ("/r", 94)] {
            world.client.mkdir(directory.as_bytes()).await.unwrap();
            world.directories.insert(directory.into());
            for number in 0..chunks {
                let name = format!("{directory}/{number:-<250}");
                world.client.symlink(b"x", name.as_bytes()).await.unwrap();
            }
        }
        for (letter, size) in [(b'A', 300), (b'B', 5_000), (b'C', 60_000)] {
            let path = format!("/p/{}", letter as char);
            world.client.write_file(path.as_bytes(), &vec![letter; size]).await.unwrap();
            world.names.insert(path, letter);
            world.sizes.insert(letter, size as u64);
        }
        world.client.sync().await.unwrap();
        world.durable = world.sizes.clone();
        world
    }

    fn some_directory(&mut self) -> String {
        let all: Vec<String> = self.directories.iter().cloned().collect();
        self.rng.pick(&all).clone()
    }

    /// A name that exists or not.
    fn some_path(&mut self) -> String {
        let directory = self.some_directory();
        let number = self.rng.below(6);
        match self.rng.chance(1, 2) {
            true => format!("{directory}/n{number}"),
            false => format!("{directory}/{number:x<250}"),
        }
    }

    fn some_file(&mut self) -> Option<(String, u8)> {
        let all: Vec<(String, u8)> = self.names.iter().map(|(path, &letter)| (path.clone(), letter)).collect();
        if all.is_empty() { None } else { Some(self.rng.pick(&all).clone()) }
    }

    fn may_go(&self, path: &str) -> bool {
        let Some(&letter) = self.names.get(path) else { return !self.directories.contains(path) };
        !letter.is_ascii_uppercase() || self.names.values().filter(|&&other| other == letter).count() > 1
    }

    /// Directories that may be removed.
    fn empty_directories(&self) -> Vec<String> {
        let below_others = self.directories.iter().filter(|path| path.matches('/').count() > 1);
        below_others.filter(|path| self.is_empty(path)).cloned().collect()
    }

    fn is_empty(&self, directory: &str) -> bool {
        let below = format!("{directory}/");
        !self.names.keys().chain(&self.directories).any(|path| path.starts_with(&below))
    }

    /// One operation.
    async fn operate(&mut self) {
        let client = self.client.clone();
        let path = self.some_path();
        let is_free = !self.names.contains_key(&path) && !self.directories.contains(&path);
        match self.rng.below(17) {
            0..4 => {
                let Some((from, letter)) = self.some_file() else { return };
                if letter == WHITEOUT_LETTER
                    || from == path
                    || !self.may_go(&path)
                    || self.names.get(&path) == Some(&letter)
                {
                    return;
                }
                let leaves = self.rng.chance(1, 4);
                self.steps.push(format!("rename {from} {path}, whiteout {leaves}"));
                let mode = match leaves {
                    true => RenameMode::Whiteout { replace: true, uid: 0, gid: 0 },
                    false => RenameMode::Replace,
                };
                client.rename(from.as_bytes(), path.as_bytes(), mode).await.unwrap();
                self.names.remove(&from);
                if leaves {
                    self.names.insert(from, WHITEOUT_LETTER);
                }
                self.names.insert(path, letter);
            }
            4 => {
                let Some((from, letter)) = self.some_file() else { return };
                if !is_free || letter == WHITEOUT_LETTER {
                    return;
                }
                self.steps.push(format!("link {from} {path}"));
                client.link(from.as_bytes(), path.as_bytes()).await.unwrap();
                self.names.insert(path, letter);
            }
            5..7 => {
                let Some((path, _)) = self.some_file() else { return };
                if !self.may_go(&path) {
                    return;
                }
                self.steps.push(format!("unlink {path}"));
                client.unlink(path.as_bytes()).await.unwrap();
                self.names.remove(&path);
            }
            7 => {
                if !is_free {
                    return;
                }
                let letter = self.letters;
                self.letters = if letter == b'v' { b'a' } else { letter + 1 };
                let size = *self.rng.pick(&[0, 300, 5_000, 60_000]);
                self.names.retain(|_, other| *other != letter || *other == WHITEOUT_LETTER);
                self.steps.push(format!("make {path}, {size} bytes"));
                client.write_file(path.as_bytes(), &vec![letter; size]).await.unwrap();
                self.names.insert(path, letter);
                self.sizes.insert(letter, size as u64);
                self.durable.remove(&letter);
            }
            8..10 => {
                let Some((path, letter)) = self.some_file() else { return };
                if letter == WHITEOUT_LETTER {
                    return;
                }
                let size = self.sizes[&letter];
                let cut = self.rng.chance(1, 3);
                self.steps.push(format!("change {path}, cut {cut}"));
                if cut {
                    let new = self.rng.below(size + 1);
                    client.truncate(path.as_bytes(), new).await.unwrap();
                    self.sizes.insert(letter, new);
                    if let Some(durable) = self.durable.get_mut(&letter) {
                        *durable = new.min(*durable);
                    }
                } else {
                    let more = 1 + *self.rng.pick(&[400, 3_000, 30_000]);
                    let file = client.open(path.as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
                    client.write(file, size, &vec![letter; more]).await.unwrap();
                    client.close(file).await.unwrap();
                    self.sizes.insert(letter, size + more as u64);
                }
            }
            10..12 => {
                if !is_free || path.matches('/').count() > 4 || path.len() > 800 {
                    return;
                }
                self.steps.push(format!("mkdir {path}"));
                client.mkdir(path.as_bytes()).await.unwrap();
                self.directories.insert(path);
            }
            12 => {
                let all = self.empty_directories();
                if all.is_empty() {
                    return;
                }
                let directory = self.rng.pick(&all).clone();
                self.remove_directory(directory).await;
            }
            13..15 => self.move_directory(path, is_free).await,
            15 => {
                let Some((path, letter)) = self.some_file() else { return };
                if letter == WHITEOUT_LETTER {
                    return;
                }
                self.steps.push(format!("fsync {path}"));
                client.fsync_path(path.as_bytes()).await.unwrap();
                self.durable.insert(letter, self.sizes[&letter]);
                let found = self.look(true).await;
                let wanted = Some((letter, self.sizes[&letter])).filter(|(_, size)| *size > 0).unwrap_or((0, 0));
                assert_eq!(found.get(&path), Some(&Some(wanted)), "{}", self.story());
            }
            _ => {
                if self.rng.chance(1, 2) {
                    return;
                }
                self.steps.push("sync".into());
                client.sync().await.unwrap();
                let found = self.look(true).await;
                let mut wanted: BTreeMap<String, Option<(u8, u64)>> = BTreeMap::new();
                wanted.extend(self.directories.iter().map(|path| (path.clone(), None)));
                for (path, &letter) in &self.names {
                    let size = self.sizes.get(&letter).copied().unwrap_or(0);
                    let is_whiteout = letter == WHITEOUT_LETTER;
                    let letter = if size == 0 && !is_whiteout { 0 } else { letter };
                    wanted.insert(path.clone(), Some((letter, if is_whiteout { 0 } else { size })));
                }
                assert_eq!(found, wanted, "{}", self.story());
                self.durable = self.sizes.clone();
                self.ffs.sync_soft(SyncScope::Quiet).await.unwrap();
                // Nothing waits, so nothing has to stay in memory.
                let mut state = self.ffs.state.borrow_mut();
                state.drop_caches();
                let kept: Vec<InodeNo> = state.inodes.keys().copied().collect();
                assert_eq!(kept, Vec::new(), "{}", state.soft_text());
            }
        }
    }

    async fn remove_directory(&mut self, directory: String) {
        self.steps.push(format!("rmdir {directory}"));
        self.client.rmdir(directory.as_bytes()).await.unwrap();
        self.directories.remove(&directory);
    }

    async fn move_directory(&mut self, to: String, is_free: bool) {
        let all: Vec<String> = self.directories.iter().filter(|path| path.matches('/').count() > 1).cloned().collect();
        if all.is_empty() {
            return;
        }
        let from = self.rng.pick(&all).clone();
        let below = format!("{from}/");
        if from == to || to.starts_with(&below) || to.len() > 800 {
            return;
        }
        let mode = match self.rng.below(4) {
            0 | 1 if self.names.contains_key(&to) && self.is_one_block(&from, &to).await => RenameMode::Exchange,
            1 if is_free => RenameMode::Whiteout { replace: true, uid: 0, gid: 0 },
            _ if is_free || self.directories.contains(&to) && self.is_empty(&to) => RenameMode::Replace,
            _ => return,
        };
        self.steps.push(format!("move {from} {to} {mode:?}"));
        self.client.rename(from.as_bytes(), to.as_bytes(), mode).await.unwrap();
        let moved = |path: &String| match path.strip_prefix(&below) {
            Some(rest) => format!("{to}/{rest}"),
            None => path.clone(),
        };
        let other = self.names.remove(&to);
        self.names = self.names.iter().map(|(path, &letter)| (moved(path), letter)).collect();
        self.directories = self.directories.iter().map(moved).filter(|path| *path != from).collect();
        self.directories.insert(to.clone());
        match mode {
            RenameMode::Exchange => drop(self.names.insert(from, other.unwrap())),
            RenameMode::Whiteout { .. } => drop(self.names.insert(from, WHITEOUT_LETTER)),
            _ => {}
        }
        if self.is_empty(&to) && self.rng.chance(1, 2) {
            if self.rng.chance(1, 2) {
                self.disturb().await;
            }
            self.remove_directory(to).await;
        }
    }

    /// Writes one block, or does something else that may happen at any time.
    async fn disturb(&mut self) {
        match self.rng.below(10) {
            0..6 => {
                let dirty = self.ffs.state.borrow().cache.dirty_until(u64::MAX);
                if !dirty.is_empty() {
                    let at = *self.rng.pick(&dirty);
                    self.ffs.write_now(at).await.unwrap();
                    self.look(false).await;
                }
            }
            6..8 => {
                let dirty = self.ffs.state.borrow().dirty_inodes();
                if !dirty.is_empty() {
                    let ino = *self.rng.pick(&dirty);
                    self.ffs.step(|state| state.update_inode(ino).map(drop)).await.unwrap();
                }
            }
            8 => self.ffs.run_jobs().await.unwrap(),
            _ => self.ffs.state.borrow_mut().drop_caches(),
        }
    }

    /// Whether both names are in one block of one directory. When others are exchanged, a cut can leave both names with
    /// one inode.
    async fn is_one_block(&self, one: &str, two: &str) -> bool {
        let ((dir, one), (other, two)) = (one.rsplit_once('/').unwrap(), two.rsplit_once('/').unwrap());
        if dir != other {
            return false;
        }
        let ino = inner(self.client.stat(dir.as_bytes()).await.unwrap().ino).unwrap();
        let places = self.ffs.step(|state| Ok([state.find(ino, one.as_bytes())?, state.find(ino, two.as_bytes())?]));
        let [one, two] = places.await.unwrap().map(|found| found.map(|found| found.offset / 4096));
        one == two
    }

    /// The last operations, for messages: long names without their ends.
    fn story(&self) -> String {
        let last = self.steps.iter().rev().take(20).rev();
        last.map(|step| format!("\n  {}", step.replace("xxxxxxxxxx", ""))).collect()
    }

    /// Examines what a power cut would leave now. Returns the names that exist once that is repaired.
    async fn look(&mut self, closely: bool) -> BTreeMap<String, Option<(u8, u64)>> {
        let left: Device = Rc::new(Memory::from_image(BYTES, self.memory.image()));
        let options = FsckOptions { reconnect: false, ..FsckOptions::default() };
        let found = fsck(&self.rt, &left, options).await.unwrap();
        let harm = found.problems.iter().find(|problem| problem.cause != Cause::Leak);
        assert!(harm.is_none(), "after {}: {harm:?}, {}", self.story(), self.ffs.state.borrow().soft_text());
        if !closely && self.rng.chance(2, 3) {
            return BTreeMap::new();
        }
        let mended = FsckOptions { repair: true, only_after_crash: true, ..options };
        fsck(&self.rt, &left, mended).await.unwrap();
        let ffs = mount(self.rt.clone(), left, Options { read_only: true, ..softly() }).await.unwrap();
        let mut found = BTreeMap::new();
        tree(&Client::new(ffs), String::new(), &mut found).await;
        for (&letter, &size) in self.durable.iter().filter(|(letter, _)| letter.is_ascii_uppercase()) {
            let names = || found.iter().filter_map(|(path, what)| what.map(|what| (path, what)));
            let has = |what: (u8, u64)| what.0 == letter && what.1 >= size;
            if size > 0 {
                let is_there = names().any(|(_, what)| has(what));
                assert!(is_there, "after {}: {} lost {size} bytes or its names", self.story(), letter as char);
            }
        }
        found
    }
}

#[test]
fn any_order() {
    let replay = replay("fs::ffs::tests::any_order::any_order");
    for seed in replay.seeds(0..24) {
        simulate(seed, async |rt| {
            let mut world = World::begin(&rt, seed).await;
            for _ in 0..80 {
                world.operate().await;
                for _ in 0..world.rng.below(5) {
                    world.disturb().await;
                    let wrong = world.ffs.state.borrow().soft_problems();
                    assert_eq!(wrong, Vec::<String>::new(), "seed {seed}, after {}", world.story());
                }
                assert_eq!(world.ffs.check().await.unwrap(), Vec::<String>::new(), "seed {seed}, {}", world.story());
            }
            world.ffs.close().await.unwrap();
            assert_clean(&rt, &(world.memory.clone() as Device)).await;
        });
    }
}
