//! Aim: where a volume has sectors that cannot be read, everything that does not need them works, nothing gets worse, and a check
//! goes on: it says what it cannot read, repairs what it can, and gives up nothing that may come back. Method: a small volume
//! with every kind of metadata, closed or not, of which blocks, single sectors and pairs of blocks are lost; then mounts, checks
//! and repairs, also repairs that are cut short and losses in the middle of one. With the sectors back, everything is there.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{Data, WriteFlags};
use crate::fs::ffs::io::read_bytes;
use crate::fs::ffs::state::inner;
use crate::rng::Rng;
use crate::testing::environment::soak;
use crate::units::Sector;
use std::collections::BTreeMap;
use std::ops::Range;

pub(super) const BYTES: u64 = 8 * MIB;

/// The target of `/a/link`, which is too long for an inode.
const TARGET: &[u8] = &[b't'; 90];

/// Files that are made beside unreadable metadata, and their size.
const WORK: [&str; 3] = ["/new1", "/new2", "/new3"];
const WORK_BYTES: usize = 150_000;

/// A file, what it contains, and the metadata that leads to it.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) path: String,
    pub(super) ino: InodeNo,
    size: u64,
    /// Offset and length of what was written.
    pieces: Vec<(u64, usize)>,
    /// The directories above it, with their inodes and indirect blocks.
    above: Vec<Range<FragNo>>,
    pub(super) inode: Range<FragNo>,
    indirect: Vec<Range<FragNo>>,
}

impl Known {
    fn bytes(&self, (offset, length): (u64, usize)) -> Vec<u8> {
        (0..length as u64)
            .map(|at| ((offset + at) * 7 + u64::from(self.ino.0) * 31 + (offset + at) / 251) as u8)
            .collect()
    }

    /// Each piece as it is, an error, or nothing else.
    pub(super) async fn look(&self, client: &Client, path: &[u8], whole: bool, what: &str) {
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
pub(super) struct Sample {
    pub(super) image: Image,
    pub(super) known: Vec<Known>,
    pub(super) metadata: Vec<(String, Range<FragNo>)>,
    pub(super) layout: Layout,
    closed: bool,
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

pub(super) async fn sample(rt: &Rt, closed: bool) -> Sample {
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
        let file =
            Known { path, ino, size, pieces, above: vec![], inode: inode..inode + layout.frag, indirect: vec![] };
        let open = client.open(file.path.as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
        for &piece in &file.pieces {
            client.write(open, piece.0, &file.bytes(piece)).await.unwrap();
        }
        client.close(open).await.unwrap();
        known.push(file);
    }
    for dir in ["", "/a/b", "/a/b/c", "/e"] {
        client.unlink(format!("{dir}/old").as_bytes()).await.unwrap();
    }
    client.link(b"/f02", b"/a/b/second").await.unwrap();
    client.symlink(TARGET, b"/a/link").await.unwrap();
    client.sync().await.unwrap();
    let mut metadata: BTreeMap<FragNo, (String, Range<FragNo>)> = BTreeMap::new();
    let mut add = |what: String, at: Range<FragNo>| metadata.insert(at.start, (what, at));
    for group in layout.group_numbers() {
        let block = layout.group_block(group);
        add(format!("group {group}"), block..block + layout.group_block_frags());
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
    let (places, _) = places_of(&ffs, &client, "/a/link").await;
    add("target of /a/link".into(), places[1].1.clone());
    if closed {
        ffs.close().await.unwrap();
        drop((client, ffs));
        assert_clean(rt, &device).await;
    } else {
        // What a crash leaves half done.
        for dir in ["/a", "/e"] {
            client.write_file(format!("{dir}/late").as_bytes(), &[2; 70_000]).await.unwrap();
        }
        client.unlink(b"/a/old").await.unwrap();
    }
    Sample { image: memory.image(), known, metadata: metadata.into_values().collect(), layout, closed }
}

/// The inode's block, the indirect blocks, and the blocks of a directory or of a symbolic link.
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
    if inode.kind() != Some(FileKind::Regular) {
        let what = if inode.is_directory() { "names" } else { "target" };
        for (lbn, &at) in blocks.iter().enumerate().filter(|(_, at)| **at != FragNo::NONE) {
            places.push((what, at..at + layout.block_frags(inode.size, lbn as u64)));
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

    /// The inode or the names of the root.
    fn hides_root(&self) -> bool {
        self.has_lost_root() || self.is_lost(&self.sample.known.iter().find(|file| file.path == "/f00").unwrap().above)
    }

    /// Every file at its place, as far as it does not need what is lost, and never anything wrong.
    async fn look(&self, client: &Client, when: &str) {
        for path in ["/f02", "/a/b/second"] {
            let links = client.stat(path.as_bytes()).await.map(|stat| stat.links);
            assert!(!matches!(links, Ok(links) if links != 2), "{}: {when}: links of {path}: {links:?}", self.what);
        }
        for file in &self.sample.known {
            let whole = !self.is_lost(&[&file.above[..], std::slice::from_ref(&file.inode), &file.indirect].concat());
            let what = format!("{}: {when}", self.what);
            file.look(client, file.path.as_bytes(), whole, &what).await;
        }
    }

    /// New files can be made and kept. Returns whether all were made.
    async fn work(&self, client: &Client, must: bool, when: &str) -> bool {
        let mut is_done = true;
        let content = vec![0xa5; WORK_BYTES];
        for path in WORK {
            match client.write_file(path.as_bytes(), &content).await {
                Ok(_) => assert!(
                    client.read_file(path.as_bytes()).await == Ok(content.clone()),
                    "{}: {when}: {path}",
                    self.what
                ),
                Err(error) => {
                    assert!(!must && !matches!(error, FsError::Stopped(_)), "{}: {when}: {path}: {error}", self.what);
                    is_done = false;
                }
            }
        }
        is_done
    }

    /// What [`Loss::work`] has left.
    async fn is_kept(&self, client: &Client) {
        for path in WORK {
            assert!(client.read_file(path.as_bytes()).await == Ok(vec![0xa5; WORK_BYTES]), "{}: {path}", self.what);
        }
    }

    async fn session(
        &self,
        rt: &Rt,
        device: &Device,
        options: Options,
        when: &str,
        program: impl AsyncFnOnce(&Client),
    ) {
        let ffs = match mount(rt.clone(), device.clone(), options).await {
            Ok(ffs) => ffs,
            Err(error) => panic!("{}: {when}: {error}", self.what),
        };
        let client = Client::new(ffs.clone());
        program(&client).await;
        let closed = ffs.close().await;
        assert!(
            matches!(closed, Ok(()) | Err(FsError::Device(_) | FsError::Corrupt { .. })),
            "{}: {when}: {closed:?}",
            self.what
        );
    }

    /// With everything readable again, what is wrong is repaired, and everything is at its place.
    async fn bring_back(&self, rt: &Rt, memory: &Rc<Memory>, when: &str) {
        let device: Device = memory.clone();
        let what = format!("{}: {when}", self.what);
        self.repair(rt, &device, when).await;
        assert_eq!(fsck(rt, &device, FsckOptions::default()).await.unwrap().problems, vec![], "{what}");
        self.session(rt, &device, Options::default(), when, async |client| {
            for file in &self.sample.known {
                file.look(client, file.path.as_bytes(), true, &what).await;
            }
            assert_eq!(client.read_link(b"/a/link").await.as_deref(), Ok(TARGET), "{what}");
            assert_eq!(client.stat(b"/a/b/second").await, client.stat(b"/f02").await, "{what}");
            assert_eq!(
                client.stat(b"/lost+found").await.err(),
                Some(FsError::NotFound),
                "{what}: nothing has lost its name"
            );
        })
        .await;
    }

    async fn repair(&self, rt: &Rt, device: &Device, when: &str) -> Fsck {
        let repair = FsckOptions { repair: true, ..FsckOptions::default() };
        let found = fsck(rt, device, repair).await.unwrap_or_else(|error| panic!("{}: {when}: {error}", self.what));
        for problem in &found.problems {
            assert!(problem.repaired || problem.cause == Cause::Unread, "{}: {when}: {problem:?}", self.what);
            assert!(problem.cause != Cause::Damage, "{}: {when}: nothing was damaged: {problem:?}", self.what);
        }
        found
    }

    async fn only_unread(&self, rt: &Rt, device: &Device, when: &str) {
        let found = fsck(rt, device, FsckOptions::default()).await.unwrap();
        let others: Vec<_> = found.problems.iter().filter(|problem| problem.cause != Cause::Unread).collect();
        assert!(others.is_empty(), "{}: {when}: {others:?}", self.what);
        let clean = info(device).await.unwrap().clean;
        assert_eq!(clean, found.problems.is_empty(), "{}: {when}: the next mount looks again", self.what);
    }

    /// A mount of the volume, closed or not, with nothing repaired by hand.
    async fn mounted(&self, rt: &Rt, options: Options) {
        let memory = Rc::new(Memory::from_image(BYTES, self.sample.image.clone()));
        let device = self.device(rt, &memory);
        let read_only = Options { read_only: true, ..options };
        if self.hides_root() {
            for options in [read_only, options] {
                let mounted = mount(rt.clone(), device.clone(), options).await.map(drop);
                assert!(matches!(mounted, Err(FsError::Device(_))), "{}: {mounted:?}", self.what);
            }
        } else {
            self.session(rt, &device, read_only, "read-only", async |client| self.look(client, "read-only").await)
                .await;
            self.session(rt, &device, options, "mounted", async |client| {
                self.look(client, "mounted").await;
                self.work(client, false, "mounted").await;
                let _ = client.sync().await;
                self.look(client, "mounted, later").await;
            })
            .await;
            self.session(rt, &device, options, "again", async |client| self.look(client, "again").await).await;
        }
        self.bring_back(rt, &memory, "back after mounts").await;
    }

    /// The volume, checked and repaired.
    async fn repaired(&self, rt: &Rt, options: Options) {
        let memory = Rc::new(Memory::from_image(BYTES, self.sample.image.clone()));
        let device = self.device(rt, &memory);
        if self.has_lost_root() {
            for repair in [false, true] {
                let found = fsck(rt, &device, FsckOptions { repair, ..FsckOptions::default() }).await;
                assert!(matches!(found, Err(FsError::Device(_))), "{}: {found:?}", self.what);
            }
            return self.bring_back(rt, &memory, "back after no repair").await;
        }
        let found =
            fsck(rt, &device, FsckOptions::default()).await.unwrap_or_else(|error| panic!("{}: {error}", self.what));
        let is_told = found.problems.iter().any(|problem| problem.text.contains("cannot be read"));
        assert!(is_told || self.what.contains("target"), "{}: {found:?}", self.what);
        assert!(!found.problems.iter().any(|problem| problem.repaired), "{}", self.what);
        let says_no_mount = found.notes.iter().any(|note| note.starts_with("no mount works"));
        assert_eq!(says_no_mount, self.hides_root(), "{}: {:?}", self.what, found.notes);
        let found = self.repair(rt, &device, "repair").await;
        let changes_inode = |problem: &&Problem| problem.repaired && problem.text.starts_with("inode ");
        let changed = found.problems.iter().find(changes_inode);
        assert!(!self.sample.closed || changed.is_none(), "{}: all were right: {changed:?}", self.what);
        self.only_unread(rt, &device, "second check").await;
        if !self.hides_root() {
            self.session(rt, &device, options, "repaired", async |client| {
                self.look(client, "repaired").await;
                self.work(client, true, "repaired").await;
                client.sync().await.unwrap();
                self.look(client, "repaired, later").await;
            })
            .await;
            self.only_unread(rt, &device, "third check").await;
        }
        self.bring_back(rt, &memory, "back after a repair").await;
    }

    /// A repair that the device ends at its `nth` write, and then another. Returns whether it was ended.
    async fn cut(&self, rt: &Rt, nth: u64) -> bool {
        let memory = Rc::new(Memory::from_image(BYTES, self.sample.image.clone()));
        let fault = FaultDevice::new(rt, self.device(rt, &memory), nth);
        fault.add(Rule::new(Kinds::WRITE, When::Nth(nth), Effect::Gone));
        let device: Device = fault;
        let repair = FsckOptions { repair: true, ..FsckOptions::default() };
        let is_cut = fsck(rt, &device, repair).await.is_err();
        if !self.has_lost_root() {
            let device = self.device(rt, &memory);
            let when = format!("after a cut at write {nth}");
            self.repair(rt, &device, &when).await;
            self.only_unread(rt, &device, &when).await;
            if !self.hides_root() {
                self.session(rt, &device, Options::default(), &when, async |client| self.look(client, &when).await)
                    .await;
            }
        }
        self.bring_back(rt, &memory, &format!("back after a cut at write {nth}")).await;
        is_cut
    }

    /// A repair during which the sectors are lost: all reads of them from the `nth` on fail.
    async fn lost_on_the_way(&self, rt: &Rt, nth: u64) {
        let memory = Rc::new(Memory::from_image(BYTES, self.sample.image.clone()));
        let fault = FaultDevice::new(rt, memory.clone(), nth);
        for lost in &self.lost {
            let sectors = self.sample.layout.sector(lost.start)..self.sample.layout.sector(lost.end);
            fault.add(Rule::new(Kinds::READ, When::From(nth), Effect::Error).within(sectors));
        }
        let device: Device = fault;
        let repair = FsckOptions { repair: true, ..FsckOptions::default() };
        let found = fsck(rt, &device, repair).await;
        assert!(found.is_ok() || self.has_lost_root(), "{}: lost at read {nth}: {found:?}", self.what);
        let mut is_kept = false;
        if !self.hides_root() {
            self.session(rt, &device, Options::default(), "in the meantime", async |client| {
                is_kept = self.work(client, false, "in the meantime").await && client.sync().await.is_ok();
            })
            .await;
        }
        self.bring_back(rt, &memory, &format!("back after a loss at read {nth}")).await;
        if is_kept {
            let device: Device = memory.clone();
            self.session(rt, &device, Options::default(), "back", async |client| self.is_kept(client).await).await;
        }
    }
}

/// Each block of metadata, one sector of each, and pairs of blocks.
fn losses(sample: &Sample, pairs: u64) -> Vec<Loss<'_>> {
    let mut losses = Vec::new();
    let mut rng = Rng::new(7);
    for (what, at) in &sample.metadata {
        losses.push(Loss { sample, what: what.clone(), lost: vec![at.clone()] });
        let one = at.start + rng.below((at.end - at.start).into()) as u32;
        losses.push(Loss { sample, what: format!("one sector of {what}"), lost: vec![one..one + 1] });
    }
    for pair in 0..pairs {
        let (one, two) = (rng.pick(&sample.metadata).clone(), rng.pick(&sample.metadata).clone());
        let what = format!("{} and {} (pair {pair})", one.0, two.0);
        losses.push(Loss { sample, what, lost: vec![one.1, two.1] });
    }
    losses
}

fn options(number: usize) -> Options {
    let metadata = [Metadata::Sync, Metadata::Softdep][number % 2];
    Options { metadata, ..Options::default() }
}

/// Runs a seeded share of the cases, as `SEEKLESS_SOAK` asks, and reports all that fail.
fn every(share: u64, case: impl AsyncFn(&Loss<'_>, &Rt, Options)) {
    let mut failed = Vec::new();
    for closed in [true, false] {
        let mut made = None;
        simulate(1, async |rt| made = Some(sample(&rt, closed).await));
        let sample = made.expect("a sample");
        let mut cases: Vec<(usize, Loss<'_>)> = losses(&sample, 40).into_iter().enumerate().collect();
        Rng::new(3).shuffle(&mut cases);
        cases.truncate(soak().times(cases.len() as u64 / share) as usize);
        for (number, loss) in cases {
            let run = || simulate(1, async |rt| case(&loss, &rt, options(number)).await);
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
                failed.push(format!("{} (closed: {closed}, case {number})", loss.what));
            }
        }
    }
    assert!(failed.is_empty(), "{} fail: {failed:#?}", failed.len());
}

#[test]
fn mounts_with_unreadable_metadata() {
    every(1, async |loss, rt, options| loss.mounted(rt, options).await);
}

#[test]
fn repairs_of_unreadable_metadata() {
    every(1, async |loss, rt, options| loss.repaired(rt, options).await);
}

#[test]
fn cuts_of_repairs_with_unreadable_metadata() {
    every(8, async |loss, rt, _| {
        let mut nth = 1;
        while loss.cut(rt, nth).await {
            nth += 1;
        }
    });
}

#[test]
fn losses_during_a_repair() {
    every(4, async |loss, rt, _| {
        for nth in 1..6 {
            loss.lost_on_the_way(rt, nth).await;
        }
    });
}

/// A file that was open when its last name went, and of which an indirect block cannot be read, is freed when it can.
#[test]
fn a_removed_file_with_an_unreadable_indirect_block() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
        let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/f", &[1; 300_000]).await.unwrap();
        let (places, ino) = places_of(&ffs, &client, "/f").await;
        let open = client.open(b"/f", OpenFlags::READ).await.unwrap();
        client.unlink(b"/f").await.unwrap();
        client.sync().await.unwrap();
        let layout = ffs.state.borrow().layout.clone();
        let crashed = Rc::new(Memory::from_image(BYTES, memory.image()));
        let fault = FaultDevice::new(&rt, crashed.clone(), 1);
        let (_, indirect) = places[1].clone();
        fault.lose(layout.sector(indirect.start)..layout.sector(indirect.end));
        let device: Device = fault;
        for round in 0..2 {
            let repair = FsckOptions { repair: true, ..FsckOptions::default() };
            let found = fsck(&rt, &device, repair).await.unwrap();
            let left = found.problems.iter().filter(|problem| problem.cause == Cause::Unread).count();
            assert!(left == 2 && (round == 0 || found.problems.len() == left), "{ino}, {round}: {:?}", found.problems);
        }
        let device: Device = crashed;
        session(&rt, &device, Options::default(), async |client| {
            assert_eq!(client.read_dir(b"/").await.unwrap().len(), 0);
        })
        .await;
        client.close(open).await.unwrap();
        ffs.close().await.unwrap();
    });
}

/// A symbolic link whose target cannot be read keeps its name.
#[test]
fn a_link_with_an_unreadable_target() {
    let mut made = None;
    simulate(1, async |rt| made = Some(sample(&rt, true).await));
    let sample = made.expect("a sample");
    let (what, at) = sample.metadata.iter().find(|(what, _)| what.starts_with("target")).expect("a target").clone();
    let loss = Loss { sample: &sample, what, lost: vec![at] };
    simulate(1, async |rt| loss.repaired(&rt, Options::default()).await);
}

/// A mount repairs no damage, however many other problems and unreadable sectors there are. Method: more wrong counts than a check
/// lists, and one pointer that cannot be right, with and without an unreadable sector.
#[test]
fn damage_beside_many_problems_is_not_repaired_unasked() {
    const FILES: usize = 300;
    for is_lost in [false, true] {
        simulate(1, async |rt| {
            let mkfs =
                MkfsOptions { bytes_per_inode: Some(4096), block_bytes: 4096, frag_bytes: 512, ..small_groups() };
            let (memory, device) = fresh(&rt, BYTES, &mkfs).await;
            let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
            let client = Client::new(ffs.clone());
            let layout = ffs.state.borrow().layout.clone();
            let mut inodes = Vec::new();
            for number in 0..FILES {
                let path = format!("/{number}");
                client.write_file(path.as_bytes(), &[7; 300]).await.unwrap();
                inodes.push(inner(client.stat(path.as_bytes()).await.unwrap().ino).unwrap());
            }
            client.sync().await.unwrap();
            let crashed = Rc::new(Memory::from_image(BYTES, memory.image()));
            ffs.close().await.unwrap();
            let device: Device = crashed.clone();
            inodes.sort();
            for (number, &ino) in inodes.iter().enumerate() {
                let (at, offset) = layout.inode_place(ino);
                let at = layout.sector(at);
                let mut block = read_bytes(&device, at, layout.block_bytes as usize).await.unwrap().to_vec();
                let mut inode = Inode::decode(&block[offset..]).unwrap();
                match number + 1 == FILES {
                    true => inode.db[0] = FragNo(1),
                    false => inode.blocks += 1,
                }
                inode.encode(&mut block[offset..]);
                device.write(at, Data::from_slice(&block), WriteFlags::NONE).await.unwrap();
            }
            let fault = FaultDevice::new(&rt, crashed.clone(), 1);
            let (at, _) = layout.inode_place(inodes[FILES / 2]);
            assert_ne!(at, layout.inode_place(ROOT_INO).0, "the root can be read");
            if is_lost {
                fault.lose(layout.sector(at)..layout.sector(at) + 1);
            }
            let before = read_bytes(&device, Sector(0), BYTES as usize).await.unwrap();
            let mounted = mount(rt.clone(), fault, Options::default()).await;
            match mounted {
                Err(FsError::Corrupt { .. }) => {}
                other => panic!("lost: {is_lost}: {:?}", other.map(|ffs| ffs.warnings())),
            }
            let after = read_bytes(&device, Sector(0), BYTES as usize).await.unwrap();
            assert!(after[..] == before[..], "lost: {is_lost}: nothing is written");
        });
    }
}
