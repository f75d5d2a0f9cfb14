//! Aim: where a volume has sectors that cannot be read, everything that does not need them works, nothing gets worse, and a check
//! goes on: it says what it cannot read, repairs what it can, and gives up nothing that may come back. Method: a small volume
//! with every kind of metadata, of which each block, single sectors and pairs of blocks are lost in turn; then mounts, checks
//! and repairs, and the same again with the sectors back.

use super::*;
use crate::device::fault::FaultDevice;
use crate::fs::ffs::io::read_bytes;
use crate::fs::ffs::state::inner;
use crate::rng::Rng;
use std::collections::BTreeMap;
use std::ops::Range;

const BYTES: u64 = 8 * MIB;

/// A file, what it contains, and the metadata that leads to it.
#[derive(Clone, Debug)]
struct Known {
    path: String,
    ino: InodeNo,
    size: u64,
    /// Offset and length of what was written.
    pieces: Vec<(u64, usize)>,
    /// The directories above it, with their inodes and indirect blocks.
    above: Vec<Range<FragNo>>,
    inode: Range<FragNo>,
    indirect: Vec<Range<FragNo>>,
}

impl Known {
    fn bytes(&self, (offset, length): (u64, usize)) -> Vec<u8> {
        (0..length as u64).map(|at| ((offset + at) * 7 + u64::from(self.ino.0) * 31 + (offset + at) / 251) as u8).collect()
    }

    /// Each piece as it is, an error, or nothing else.
    async fn look(&self, client: &Client, path: &[u8], whole: bool, what: &str) {
        let stat = client.stat(path).await;
        if !whole && stat.is_err() {
            return;
        }
        assert_eq!(stat.as_ref().map(|stat| stat.size), Ok(self.size), "{what}: {}", self.path);
        let open = match client.open(path, OpenFlags::READ).await {
            Ok(open) => open,
            Err(error) => panic!("{what}: {}: {error}", self.path),
        };
        for &piece in &self.pieces {
            match client.read(open, piece.0, piece.1 as u32).await {
                Ok(found) => assert!(found == self.bytes(piece), "{what}: {} at {piece:?}", self.path),
                Err(error) => assert!(!whole, "{what}: {} at {piece:?}: {error}", self.path),
            }
        }
        client.close(open).await.expect("closed");
    }
}

/// A volume with its files, and all of its metadata.
struct Sample {
    image: Image,
    known: Vec<Known>,
    metadata: Vec<(String, Range<FragNo>)>,
    layout: Layout,
}

fn meets(one: &Range<FragNo>, other: &Range<FragNo>) -> bool {
    one.start < other.end && other.start < one.end
}

/// Everything that a file system of UFS1 can have, and some of it removed again.
async fn fill(client: &Client) -> Vec<(String, Vec<(u64, usize)>)> {
    let mut files = Vec::new();
    for dir in ["/a", "/a/b", "/a/b/c", "/long", "/e"] {
        client.mkdir(dir.as_bytes()).await.unwrap();
    }
    client.mkdir(b"/e/empty").await.unwrap();
    let long = "n".repeat(180);
    for i in 0..300 {
        files.push((format!("/long/{i}{long}"), if i % 10 == 0 { vec![(0, 100 + i)] } else { vec![] }));
    }
    for (i, dir) in ["", "/a", "/a/b", "/a/b/c", "/e"].into_iter().enumerate() {
        for (j, size) in [0, 10, 700, 4097, 30_000, 100_000].into_iter().enumerate() {
            files.push((format!("{dir}/f{i}{j}"), if size > 0 { vec![(0, size + i)] } else { vec![] }));
        }
        client.write_file(format!("{dir}/old").as_bytes(), &[1; 60_000]).await.unwrap();
    }
    files.push(("/a/sparse".into(), vec![(0, 9_000), (200_000, 3_000), (4_500_000, 5_000), (8_600_000, 20)]));
    files
}

async fn sample(rt: &Rt, closed: bool) -> Sample {
    let mkfs = MkfsOptions { bytes_per_inode: Some(16_384), block_bytes: 4096, frag_bytes: 512, ..small_groups() };
    let (memory, device) = fresh(rt, BYTES, &mkfs).await;
    let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
    let client = Client::new(ffs.clone());
    let layout = ffs.state.borrow().layout.clone();
    let mut known = Vec::new();
    for (path, pieces) in fill(&client).await {
        client.write_file(path.as_bytes(), b"").await.unwrap();
        let ino = inner(client.stat(path.as_bytes()).await.unwrap().ino).unwrap();
        let (inode, _) = layout.inode_place(ino);
        let size = pieces.last().map_or(0, |piece| piece.0 + piece.1 as u64);
        let file = Known { path, ino, size, pieces, above: vec![], inode: inode..inode + layout.frag, indirect: vec![] };
        let open = client.open(file.path.as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
        for &piece in &file.pieces {
            client.write(open, piece.0, &file.bytes(piece)).await.unwrap();
        }
        client.close(open).await.unwrap();
        known.push(file);
    }
    for dir in ["", "/a", "/a/b", "/a/b/c", "/e"] {
        client.unlink(format!("{dir}/old").as_bytes()).await.unwrap();
    }
    client.link(b"/f02", b"/a/b/second").await.unwrap();
    client.symlink(&[b't'; 90], b"/a/link").await.unwrap();
    client.sync().await.unwrap();
    let mut metadata: BTreeMap<FragNo, (String, Range<FragNo>)> = BTreeMap::new();
    let mut add = |what: String, at: Range<FragNo>| metadata.insert(at.start, (what, at));
    for group in layout.group_numbers() {
        add(format!("group {group}"), layout.group_block(group)..layout.group_block(group) + layout.frag);
        for first in layout.first_ino(group).until(layout.first_ino(group) + layout.inodes_per_group) {
            let (at, _) = layout.inode_place(first);
            add(format!("inodes of group {group} at {at}"), at..at + layout.frag);
        }
    }
    add("summary".into(), layout.csaddr..layout.csaddr + layout.cssize.div_ceil(layout.frag_bytes));
    let mut directories: BTreeMap<String, Vec<Range<FragNo>>> = BTreeMap::new();
    for dir in ["/", "/a", "/a/b", "/a/b/c", "/long", "/e", "/e/empty"] {
        let (places, _) = places_of(&ffs, &client, dir).await;
        places.iter().skip(1).for_each(|(what, at)| drop(add(format!("{what} of {dir}"), at.clone())));
        directories.insert(dir.into(), places.into_iter().map(|(_, at)| at).collect());
    }
    for file in &mut known {
        let (places, _) = places_of(&ffs, &client, &file.path).await;
        file.indirect = places.iter().skip(1).map(|(_, at)| at.clone()).collect();
        places.iter().skip(1).for_each(|(what, at)| drop(add(format!("{what} of {}", file.path), at.clone())));
        let above = std::path::Path::new(&file.path).ancestors().skip(1).map(|dir| dir.to_str().unwrap().to_string());
        file.above = above.flat_map(|dir| directories[&dir].clone()).collect();
    }
    if closed {
        ffs.close().await.unwrap();
        drop((client, ffs));
        assert_clean(rt, &device).await;
    }
    Sample { image: memory.image(), known, metadata: metadata.into_values().collect(), layout }
}

/// The inode's block, the indirect blocks, and the blocks of a directory.
async fn places_of(ffs: &Ffs, client: &Client, path: &str) -> (Vec<(&'static str, Range<FragNo>)>, InodeNo) {
    let ino = inner(client.stat(path.as_bytes()).await.unwrap().ino).unwrap();
    let inode = ffs.step(|state| Ok(state.inode(ino)?.inode)).await.unwrap();
    let layout = ffs.state.borrow().layout.clone();
    let (at, _) = layout.inode_place(ino);
    let mut places = vec![("inode", at..at + layout.frag)];
    let mut blocks = inode.db.to_vec();
    for (slot, &root) in inode.ib.iter().enumerate().filter(|(_, at)| **at != FragNo::NONE) {
        let mut level = vec![root];
        for _ in 0..=slot {
            let mut below = Vec::new();
            for &at in &level {
                places.push(("indirect block", at..at + layout.frag));
                let block = read_bytes(&ffs.device, layout.sector(at), layout.block_bytes as usize).await.unwrap();
                below.extend((0..layout.pointers_per_block as usize).map(|slot| pointer_in(&block, slot)));
            }
            level = below.into_iter().filter(|at| *at != FragNo::NONE).collect();
        }
        blocks.extend(level);
    }
    if inode.is_directory() {
        for (lbn, &at) in blocks.iter().enumerate().filter(|(_, at)| **at != FragNo::NONE) {
            places.push(("names", at..at + layout.block_frags(inode.size, lbn as u64)));
        }
    }
    (places, ino)
}

/// What cannot be read, in one case.
struct Loss<'a> {
    sample: &'a Sample,
    what: String,
    lost: Vec<Range<FragNo>>,
}

impl Loss<'_> {
    fn device(&self, rt: &Rt, memory: &Rc<Memory>) -> Device {
        let fault = FaultDevice::new(rt, memory.clone(), 1);
        for lost in &self.lost {
            fault.lose(self.sample.layout.sector(lost.start)..self.sample.layout.sector(lost.end));
        }
        fault
    }

    fn is_lost(&self, places: &[Range<FragNo>]) -> bool {
        places.iter().any(|place| self.lost.iter().any(|lost| meets(place, lost)))
    }

    fn has_lost_root(&self) -> bool {
        let (at, offset) = self.sample.layout.inode_place(ROOT_INO);
        let at = at + offset as u32 / self.sample.layout.frag_bytes;
        self.is_lost(&[at..at + 1])
    }

    /// The root, or the file of its names.
    fn hides_root(&self) -> bool {
        self.has_lost_root() || self.is_lost(&self.sample.known.iter().find(|file| file.path == "/f00").unwrap().above)
    }

    /// Every file at its place, as far as it does not need what is lost, and never anything wrong.
    async fn look(&self, client: &Client, when: &str) {
        for file in &self.sample.known {
            let whole = !self.is_lost(&[&file.above[..], &[file.inode.clone()], &file.indirect].concat());
            let what = format!("{}: {when}", self.what);
            file.look(client, file.path.as_bytes(), whole, &what).await;
        }
    }

    /// Every file under any name, as far as its inode and its own indirect blocks are not lost; nothing is lost if `back`.
    async fn look_anywhere(&self, client: &Client, back: bool, when: &str) {
        let what = format!("{}: {when}", self.what);
        let mut names: BTreeMap<InodeNo, Vec<u8>> = BTreeMap::new();
        let mut directories = vec![Vec::new()];
        while let Some(dir) = directories.pop() {
            let path = if dir.is_empty() { b"/".to_vec() } else { dir.clone() };
            let Ok(entries) = client.read_dir(&path).await else { continue };
            for entry in entries {
                let path = [&dir[..], b"/", &entry.name].concat();
                let Ok(stat) = client.stat(&path).await else { continue };
                if stat.kind == FileKind::Directory {
                    directories.push(path.clone());
                }
                names.insert(inner(stat.ino).unwrap(), path);
            }
        }
        for file in &self.sample.known {
            // With the root, its neighbours in the sector are given up.
            let with_root = self.has_lost_root() && self.sample.layout.inode_place(ROOT_INO).0 == file.inode.start;
            match names.get(&file.ino) {
                Some(path) => {
                    let whole = back || !self.is_lost(&[&[file.inode.clone()], &file.indirect[..]].concat());
                    file.look(client, path, whole && !with_root, &what).await;
                }
                None => {
                    let gone = !back && self.is_lost(std::slice::from_ref(&file.inode));
                    assert!(gone || with_root, "{what}: {} is nowhere", file.path);
                }
            }
        }
    }

    /// New files can be made and kept.
    async fn work(&self, client: &Client, must: bool, when: &str) {
        let content = vec![0xa5; 150_000];
        for path in ["/new1", "/new2", "/new3"] {
            match client.write_file(path.as_bytes(), &content).await {
                Ok(_) => assert!(client.read_file(path.as_bytes()).await == Ok(content.clone()), "{}: {when}: {path}", self.what),
                Err(error) => assert!(!must && !matches!(error, FsError::Stopped(_)), "{}: {when}: {path}: {error}", self.what),
            }
        }
    }

    async fn session(&self, rt: &Rt, device: &Device, options: Options, when: &str, program: impl AsyncFnOnce(&Client)) {
        let ffs = match mount(rt.clone(), device.clone(), options).await {
            Ok(ffs) => ffs,
            Err(error) => panic!("{}: {when}: {error}", self.what),
        };
        let client = Client::new(ffs.clone());
        program(&client).await;
        let closed = ffs.close().await;
        assert!(matches!(closed, Ok(()) | Err(FsError::Device(_) | FsError::Corrupt { .. })), "{}: {when}: {closed:?}", self.what);
    }

    /// With everything readable again, what is wrong is repaired.
    async fn bring_back(&self, rt: &Rt, memory: &Rc<Memory>, moved: bool, when: &str) {
        let device: Device = memory.clone();
        self.repair(rt, &device, when).await;
        assert_eq!(fsck(rt, &device, FsckOptions::default()).await.unwrap().problems, vec![], "{}: {when}", self.what);
        self.session(rt, &device, Options::default(), when, async |client| match moved {
            true => self.look_anywhere(client, true, when).await,
            false => {
                for file in &self.sample.known {
                    file.look(client, file.path.as_bytes(), true, &format!("{}: {when}", self.what)).await;
                }
            }
        })
        .await;
    }

    async fn repair(&self, rt: &Rt, device: &Device, when: &str) {
        let repair = FsckOptions { repair: true, ..FsckOptions::default() };
        let found = fsck(rt, device, repair).await.unwrap_or_else(|error| panic!("{}: {when}: {error}", self.what));
        for problem in &found.problems {
            assert!(problem.repaired || problem.cause == Cause::Unread, "{}: {when}: {problem:?}", self.what);
        }
    }

    async fn only_unread(&self, rt: &Rt, device: &Device, when: &str) {
        let found = fsck(rt, device, FsckOptions::default()).await.unwrap();
        let others: Vec<_> = found.problems.iter().filter(|problem| problem.cause != Cause::Unread).collect();
        assert!(others.is_empty(), "{}: {when}: {others:?}", self.what);
    }

    /// A mount of the volume, closed or not, with nothing repaired by hand.
    async fn mounted(&self, rt: &Rt, options: Options) {
        let memory = Rc::new(Memory::from_image(BYTES, self.sample.image.clone()));
        let device = self.device(rt, &memory);
        let read_only = Options { read_only: true, ..options };
        if self.hides_root() {
            if let Ok(ffs) = mount(rt.clone(), device.clone(), options).await {
                let _ = ffs.close().await;
            }
        } else {
            self.session(rt, &device, read_only, "read-only", async |client| self.look(client, "read-only").await).await;
            self.session(rt, &device, options, "mounted", async |client| {
                self.look(client, "mounted").await;
                self.work(client, false, "mounted").await;
                let _ = client.sync().await;
                self.look(client, "mounted, later").await;
            })
            .await;
            self.session(rt, &device, options, "again", async |client| self.look(client, "again").await).await;
        }
        self.bring_back(rt, &memory, false, "back after mounts").await;
    }

    /// The volume, checked and repaired.
    async fn repaired(&self, rt: &Rt, options: Options) {
        let memory = Rc::new(Memory::from_image(BYTES, self.sample.image.clone()));
        let device = self.device(rt, &memory);
        let found = fsck(rt, &device, FsckOptions::default()).await.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        assert!(found.problems.iter().any(|problem| problem.text.contains("cannot be read")), "{}: {found:?}", self.what);
        assert!(!found.problems.iter().any(|problem| problem.repaired), "{}", self.what);
        self.repair(rt, &device, "repair").await;
        self.only_unread(rt, &device, "second check").await;
        self.session(rt, &device, options, "repaired", async |client| {
            self.look_anywhere(client, false, "repaired").await;
            self.work(client, true, "repaired").await;
            client.sync().await.unwrap();
            self.look_anywhere(client, false, "repaired, later").await;
        })
        .await;
        self.only_unread(rt, &device, "third check").await;
        self.bring_back(rt, &memory, true, "back after a repair").await;
    }
}

/// Losses: each block of metadata, one sector of each, and pairs.
fn losses<'a>(sample: &'a Sample, pairs: u64) -> Vec<Loss<'a>> {
    let mut losses = Vec::new();
    let mut rng = Rng::new(7);
    for (what, at) in &sample.metadata {
        losses.push(Loss { sample, what: what.clone(), lost: vec![at.clone()] });
        let one = at.start + rng.below((at.end - at.start).into()) as u32;
        losses.push(Loss { sample, what: format!("one sector of {what}"), lost: vec![one..one + 1] });
    }
    for seed in 0..pairs {
        let mut rng = Rng::new(seed);
        let mut pick = || sample.metadata[rng.below(sample.metadata.len() as u64) as usize].clone();
        let (one, two) = (pick(), pick());
        let what = format!("{} and {} (pair {seed})", one.0, two.0);
        losses.push(Loss { sample, what, lost: vec![one.1, two.1] });
    }
    losses
}

fn options(number: usize) -> Options {
    let metadata = [Metadata::Sync, Metadata::Softdep][number % 2];
    Options { metadata, ..Options::default() }
}

/// Runs each case, and reports all that fail.
fn every(cases: &str, case: impl AsyncFn(&Loss<'_>, &Rt, Options)) {
    let mut failed = Vec::new();
    for closed in [true, false] {
        let mut made = None;
        simulate(1, async |rt| made = Some(sample(&rt, closed).await));
        let sample = made.expect("a sample");
        for (number, loss) in losses(&sample, 40).into_iter().enumerate() {
            let run = || simulate(1, async |rt| case(&loss, &rt, options(number)).await);
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
                failed.push(format!("{} (closed: {closed}, case {number})", loss.what));
            }
        }
    }
    assert!(failed.is_empty(), "{cases}: {} fail: {failed:#?}", failed.len());
}

#[test]
fn mounts_with_unreadable_metadata() {
    every("mounts", async |loss, rt, options| loss.mounted(rt, options).await);
}

#[test]
fn repairs_of_unreadable_metadata() {
    every("repairs", async |loss, rt, options| loss.repaired(rt, options).await);
}
