//! The engine's behaviour as recorded numbers: a change of behaviour is a change of `digests.txt`.
//!
//! Each line of `digests.txt` is one short life of a stack, drawn from a seed: operations of one client or of two at
//! once, a close or a power cut, a second mount, a close. The line holds a digest of the answers, a digest of what the
//! leaves store at the end, and the virtual time at the end. Every file system, layer, array and disk model has its
//! stacks: a new one goes to the end of [`ADDED`].
//!
//! A commit that changes behaviour on purpose rewrites the file and says why:
//! `SEEKLESS_BLESS=1 cargo test -p seekless --test engine digests`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use futures_util::future::join_all;
use seekless::codec::crc32c_append;
use seekless::device::{Buf, Data, Device, Image, Memory, WriteFlags};
use seekless::disk::{AfterPair, DataSheet, Disk, Drive, Options, Scheduler};
use seekless::fs::Fs;
use seekless::layer::codecs::Key;
use seekless::rng::Rng;
use seekless::rt::{Executor, HostProfile, Limits, Rt};
use seekless::stack::{BuildError, Identity, Interface, LeafOpener, Purpose, Sharing, Stack, Usage, Word};
use seekless::testing::ops::Path as FsPath;
use seekless::testing::runner::Outcome;
use seekless::testing::{Generator, MemFs, Op, OpMix, Runner, Space, Tree};
use seekless::units::{MIB, Nanos, SECTOR_BYTES, Sector};

/// Runs of [`LINES`]. A leaf `file:NAME` is memory; with the name of a drive it is that drive, and `sheet` is one known
/// only from a data sheet. The last character of a drive's name chooses the scheduler.
const SEEDS: u64 = 200;

/// Operations of one mount, of all clients.
const OPS: usize = 60;

const LIMITS: Limits = Limits { events: 20_000_000, until: Nanos::from_secs(1_000_000) };

/// Seed `s` takes line `s % LINES.len()`.
const LINES: &[&str] = &[
    "lfs:segment=128KiB / file:a,size=12MiB",
    "lfs:segment=256KiB,cleaner=greedy,dirty=64KiB / file:sheet-a,size=20MiB",
    "lfs:segment=128KiB,indirect=log,checkpoint=1s,write-back=500ms / file:a,size=12MiB",
    "lfs:segment=256KiB,dirty=256KiB,cache=1MiB / file:hp97560-wa99-b",
    "lfs:segment=128KiB,reserve=20%,discard=off / vld / file:a,size=16MiB",
    "lfs:segment=128KiB / raid0:n=3,stripe=16KiB / file:{}-c,size=6MiB",
    "lfs:segment=128KiB / raid1:n=2 / file:{}-d,size=14MiB",
    "lfs:segment=128KiB / raid5:n=3,stripe=16KiB / file:{}-a,size=10MiB",
    "lfs:segment=128KiB / raid5:n=4,stripe=8KiB,journal=always / file:sheet-{}-a,size=16MiB",
    "vlfs:reserve=10% / file:a,size=12MiB",
    "vlfs / file:hp97560-wa99-a",
    "vlfs:compact=off,dirty=64KiB / file:st19101-wa99-c",
    "vlfs:keep=50% / file:sheet-b,size=16MiB",
    "vlfs / concat:n=2 / file:sheet-{}-a,size=16MiB",
    "vlfs / remap:chunk=64KiB,seed=5 / file:a,size=12MiB",
    "ffs / file:a,size=12MiB",
    "ffs:metadata=sync,profile=newfs / file:sheet-a,size=16MiB",
    "ffs:metadata=async / file:a,size=12MiB",
    "ffs:metadata=async,dirty=256KiB,cache=256KiB / file:hp97560-wa99-d",
    "ffs:metadata=softdep / file:a,size=12MiB",
    "ffs:metadata=softdep,update=1s,realloc=on / file:hp97560-wa99-a",
    "ffs:metadata=softdep,block=4KiB,fragment=512,inode=2KiB / file:sheet-c,size=16MiB",
    "ffs:metadata=softdep,block=32KiB,fragment=4KiB / vld:commit=flush / file:st19101-wa99-a",
    "ffs:metadata=sync,fragment=4KiB / vld / file:hp97560-wa99-a",
    "ffs:metadata=softdep / raid1:n=3 / file:{}-a,size=12MiB",
    "ffs:metadata=sync / raid5:n=3,stripe=8KiB,metadata=off / file:sheet-{}-b,size=16MiB",
    "ffs:metadata=async / volume:n=2,chunk=64KiB,stripe=16KiB / file:{}-a,size=8MiB",
    "ffs:metadata=softdep / permute:block=8KiB,seed=3 / file:a,size=12MiB",
    "vld:snapshots=2 / file:hp97560-wa99-a",
    "vld:log=append / file:a,size=12MiB",
    "vld:compact=off,commit=each / concat:n=2 / file:sheet-{}-a,size=8MiB",
    "raid1:n=2 / file:{}-a,size=4MiB",
    "raid5:n=5,stripe=4KiB / file:sheet-{}-a,size=8MiB",
    "wrap / lfs:segment=128KiB / file:a,size=12MiB",
    "zstd:chunk=16KiB / lfs:segment=128KiB / file:a,size=16MiB",
    "lz4 / vlfs / file:st19101-wa99-a",
    "gzip:chunk=4KiB,write-back=200ms / ffs:metadata=softdep / file:a,size=16MiB",
    "encrypt:key,chunk=8KiB / ffs:metadata=async / file:a,size=16MiB",
    "zstd:index=classic / memfs",
    "uuencode:index=classic,tails=off / memfs",
    "copy:chunk=4KiB,dirty=1MiB / memfs",
    "uuencode:chunk=4KiB,plain=error / memfs",
    "encrypt:key,compress=lz4 / memfs",
    "gzip:level=1 / copy:chunk=8KiB / memfs",
    "wrap / memfs",
    "lfs:segment=128KiB / fault:delay=2ms / file:sheet-a,size=16MiB",
];

/// Stacks that came later. Each has seeds of its own behind those of [`LINES`], so that what is recorded of other stacks stays:
/// a new one goes to the end.
const ADDED: &[&str] = &["ffs:metadata=async / concat:n=2 / file:{}-a,size=8MiB"];

/// Runs of each stack in [`ADDED`].
const SEEDS_ADDED: u64 = 4;

/// The stack of a seed.
fn line_of(seed: u64) -> &'static str {
    match seed.checked_sub(SEEDS + 1) {
        None => LINES[(seed % LINES.len() as u64) as usize],
        Some(behind) => ADDED[(behind / SEEDS_ADDED) as usize],
    }
}

/// Kind of a leaf.
#[derive(Clone)]
enum Store {
    Memory(Rc<Memory>),
    Disk(Rc<Disk>),
    Directory(Rc<MemFs>),
}

/// Leaves that outlive the stacks on them.
#[derive(Default)]
struct Stores(RefCell<BTreeMap<String, Store>>);

/// The drive whose name is a prefix of the leaf's name, if any.
fn disk(rt: &Rt, word: &Word, path: &str) -> Option<Disk> {
    let sheet = || {
        let overhead = Nanos::from_micros(300);
        let sheet = DataSheet {
            sectors_per_track_inner: 60,
            seek_one: Nanos::from_micros(1_800),
            seek_full: Nanos::from_micros(22_440),
            head_switch: Nanos::from_micros(1_200),
            read_hit: AfterPair::always(overhead),
            read_miss: overhead,
            write_hit: overhead,
            write_miss: overhead,
            bus_rate: None,
            ..DataSheet::new(5400, Nanos::from_millis(12), word.bytes("size"), 4 * MIB)
        };
        sheet.drive().expect("a drive can be made of the sheet")
    };
    let known = Drive::names().find(|name| path.starts_with(name));
    let drive = match known {
        Some(name) => Drive::named(name).expect("a drive in the catalogue").clone(),
        None if path.starts_with("sheet") => sheet(),
        None => return None,
    };
    let scheduler = match path.chars().last() {
        Some('b') => Scheduler::Fcfs,
        Some('c') => Scheduler::Sstf,
        Some('d') => Scheduler::Sptf { age_micros: 6 },
        _ => Scheduler::CLook,
    };
    let options = Options { scheduler, ..Options::default() };
    Some(Disk::new(rt.clone(), &drive, options).expect("the drive is in order"))
}

#[async_trait::async_trait(?Send)]
impl LeafOpener for Stores {
    async fn device(&self, rt: &Rt, word: &Word, _: Purpose) -> Result<Device, BuildError> {
        let path = word.text("path").expect("a file has a path").to_owned();
        let make = || match disk(rt, word, &path) {
            Some(disk) => Store::Disk(Rc::new(disk)),
            None => Store::Memory(Rc::new(Memory::new(word.bytes("size")))),
        };
        match self.0.borrow_mut().entry(path.clone()).or_insert_with(make) {
            Store::Memory(memory) => Ok(memory.clone()),
            Store::Disk(disk) => Ok(disk.clone()),
            Store::Directory(_) => Err(BuildError::other(format!("{path} is a directory"))),
        }
    }

    async fn file_system(&self, rt: &Rt, _: &Word, _: Purpose, _: Sharing) -> Result<Fs, BuildError> {
        let mut stores = self.0.borrow_mut();
        let store = stores.entry("memfs".to_owned()).or_insert_with(|| Store::Directory(MemFs::new(rt)));
        match store {
            Store::Directory(fs) => Ok(fs.clone()),
            _ => Err(BuildError::other("memfs is a device".to_owned())),
        }
    }

    fn random(&self) -> Option<[u64; 4]> {
        Some([11, 12, 13, 14])
    }

    async fn secret(&self, _: &Word, _: &str) -> Result<Vec<u8>, BuildError> {
        Ok(Key::new([7; 32]).to_file().into_bytes())
    }
}

impl Stores {
    /// The same stores as a power cut at this moment leaves them, for a device that has completed every request.
    fn cut(&self, rt: &Rt, stack: &Stack) -> Stores {
        let word = stack.words().last().expect("a stack has a leaf");
        let copy = |(path, store): (&String, &Store)| {
            let copied = match store {
                Store::Memory(memory) => Store::Memory(Rc::new(Memory::from_image(word.bytes("size"), memory.image()))),
                Store::Disk(old) => {
                    let new = disk(rt, word, path).expect("it was a disk before");
                    new.set_image(old.image());
                    Store::Disk(Rc::new(new))
                }
                Store::Directory(fs) => Store::Directory(fs.clone()),
            };
            (path.clone(), copied)
        };
        Stores(RefCell::new(self.0.borrow().iter().map(copy).collect()))
    }

    /// A digest of their whole content.
    async fn digest(&self) -> u32 {
        let stores = self.0.borrow().clone();
        let mut digest = 0;
        for (path, store) in stores {
            digest = crc32c_append(digest, path.as_bytes());
            digest = match store {
                Store::Memory(memory) => image_digest(digest, &memory.image(), memory.bytes()),
                Store::Disk(disk) => image_digest(digest, &disk.image(), disk.bytes()),
                Store::Directory(fs) => tree_digest(digest, fs).await,
            };
        }
        digest
    }
}

/// Bytes of a device.
trait Bytes {
    fn bytes(&self) -> u64;
}

impl<D: seekless::device::BlockDevice> Bytes for D {
    fn bytes(&self) -> u64 {
        self.geometry().bytes()
    }
}

fn image_digest(mut digest: u32, image: &Image, bytes: u64) -> u32 {
    let mut piece = vec![0; MIB as usize];
    let mut at = 0;
    while at < bytes {
        let take = (bytes - at).min(MIB) as usize;
        image.read(Sector(at / SECTOR_BYTES), &mut piece[..take]);
        digest = crc32c_append(digest, &piece[..take]);
        at += take as u64;
    }
    digest
}

async fn tree_digest(mut digest: u32, fs: Rc<MemFs>) -> u32 {
    let tree = Tree::of(fs).await.expect("the model can be read");
    digest = crc32c_append(digest, tree.to_text().as_bytes());
    for node in tree.nodes.values() {
        let size = node.contents.size();
        for piece in node.contents.read(0, size) {
            digest = crc32c_append(digest, &piece);
        }
        for (name, value) in &node.xattrs {
            digest = crc32c_append(crc32c_append(digest, name), value);
        }
        digest = crc32c_append(digest, &node.target);
    }
    digest
}

fn answer_digest(digest: u32, outcome: &Outcome) -> u32 {
    match outcome {
        Outcome::Bytes(bytes) => crc32c_append(digest, bytes),
        // Only the variant of an error: its text is for people, and may change.
        Outcome::Failed(error) => {
            let text = format!("{error:?}");
            let variant = text.split(['(', '{', ' ']).next().unwrap_or_default();
            crc32c_append(digest, variant.as_bytes())
        }
        other => crc32c_append(digest, format!("{other:?}").as_bytes()),
    }
}

/// A client that executes its own operations.
struct Worker {
    generator: Generator,
    digest: u32,
}

impl Worker {
    async fn work(&mut self, rt: &Rt, fs: &Fs, ops: usize) {
        let mut runner = Runner::new(rt, fs.clone());
        for op in self.generator.by_ref().take(ops) {
            self.digest = answer_digest(self.digest, &runner.apply(&op).await);
        }
        let closed = runner.close().await.is_ok();
        self.digest = crc32c_append(self.digest, &[u8::from(closed)]);
    }
}

/// Two clients have a directory each.
fn workers(seed: u64) -> Vec<Worker> {
    let count = 1 + seed / LINES.len() as u64 % 2;
    let worker = |number: u64| {
        let root = if count == 1 { FsPath::from("/") } else { FsPath::from(["/one", "/two"][number as usize]) };
        let weights = OpMix { queries: 6, overlays: false, ..OpMix::BALANCED.with_access_lists() };
        Worker { generator: Generator::new(seed * 2 + number, Space { root, ..Space::small() }, weights), digest: 0 }
    };
    (0..count).map(worker).collect()
}

/// Mounts, lets the clients work, and closes.
async fn session(rt: &Rt, stack: &Stack, stores: &Stores, workers: &mut [Worker], is_cut: bool) -> Option<Stores> {
    let mounted = stack.mount(rt, stores, &Identity::new([1, 2, 3, 4]), Usage::default()).await;
    let mounted = mounted.unwrap_or_else(|error| panic!("{error}"));
    let mut runner = Runner::new(rt, mounted.fs.clone());
    for root in ["/one", "/two"].into_iter().filter(|_| workers.len() > 1) {
        // It exists, the second time.
        let _ = runner.apply(&Op::Mkdir { path: FsPath::from(root), permissions: 0o755 }).await;
    }
    let ops = OPS / workers.len();
    join_all(workers.iter_mut().map(|worker| worker.work(rt, &mounted.fs, ops))).await;
    if is_cut {
        return Some(stores.cut(rt, stack));
    }
    drop(runner);
    let closed = mounted.fs.close().await;
    closed.unwrap_or_else(|error| panic!("{stack}: {error}"));
    None
}

/// Reads and writes a device at random; returns a digest of the data read.
async fn use_device(rt: &Rt, stack: &Stack, stores: &Stores, rng: &mut Rng, mut digest: u32) -> u32 {
    let opened = stack.open(rt, stores, Purpose::Use).await.unwrap_or_else(|error| panic!("{error}"));
    let device = opened.device().expect("a device is at the top").clone();
    let sectors = device.geometry().sectors / 8 * 8;
    for _ in 0..OPS {
        let count = rng.between(1, 8) * 8;
        let at = Sector(rng.below((sectors - count) / 8) * 8);
        match rng.below(8) {
            0..=4 => {
                let mut bytes = vec![0; (count * SECTOR_BYTES) as usize];
                rng.fill(&mut bytes);
                let flags = if rng.chance(1, 4) { WriteFlags::FUA } else { WriteFlags::NONE };
                device.write(at, Data::from_slice(&bytes), flags).await.expect("it can be written");
            }
            5 => device.discard(at, count).await.expect("it can be discarded"),
            6 => device.flush().await.expect("it can be flushed"),
            _ => {
                let buf = Buf::zeroed((count * SECTOR_BYTES) as usize);
                digest = crc32c_append(digest, &device.read(at, buf).await.expect("it can be read"));
            }
        }
        if rng.chance(1, 16) {
            rt.sleep(Nanos::from_millis(rng.below(100))).await;
        }
    }
    device.release().await.expect("it can be put away");
    digest
}

/// One line of the file: the result of seed `seed`.
fn life(seed: u64) -> String {
    let line = line_of(seed);
    let stack = Stack::parse(line).unwrap_or_else(|error| panic!("{error}"));
    let profile = HostProfile::ALL[(seed % HostProfile::ALL.len() as u64) as usize];
    let executor = Executor::simulated(seed, profile);
    let rt = executor.rt().clone();
    let run = async {
        let mut stores = Stores::default();
        let is_device = stack.is() == Interface::Device;
        if is_device || stack.file_system().is_some() {
            let opened = stack.open(&rt, &stores, Purpose::Format).await.unwrap_or_else(|error| panic!("{error}"));
            opened.mkfs(&Identity::new([1, 2, 3, 4])).await.unwrap_or_else(|error| panic!("{error}"));
        }
        let mut answers = 0;
        if is_device {
            let mut rng = Rng::new(seed);
            for _ in 0..2 {
                answers = use_device(&rt, &stack, &stores, &mut rng, answers).await;
            }
        } else {
            let mut workers = workers(seed);
            // Without a device, a power cut loses all memory.
            let is_cut = stack.file_system().is_some() && seed.is_multiple_of(3);
            if let Some(left) = session(&rt, &stack, &stores, &mut workers, is_cut).await {
                stores = left;
            }
            session(&rt, &stack, &stores, &mut workers, false).await;
            for worker in workers {
                answers = crc32c_append(answers, &worker.digest.to_le_bytes());
            }
        }
        let end = rt.now();
        (answers, stores.digest().await, end)
    };
    let (answers, stored, end) =
        executor.block_on_within(LIMITS, run).unwrap_or_else(|unfinished| panic!("{line}: {unfinished}"));
    format!("{seed} {answers:08x} {stored:08x} {} {line}", end.0)
}

fn path() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine/digests.txt")
}

/// Aim: a change of the engine's behaviour shows in a diff. Method: runs of all stacks, each compared with its line.
#[test]
fn stacks_do_what_they_did() {
    #[allow(clippy::disallowed_methods)]
    let is_blessing = std::env::var("SEEKLESS_BLESS").is_ok_and(|value| value == "1");
    let mut found = "seed, answers, what is stored, virtual nanoseconds, stack\n".to_owned();
    let seeds = SEEDS + ADDED.len() as u64 * SEEDS_ADDED;
    for seed in 1..=seeds {
        writeln!(found, "{}", life(seed)).expect("a string grows");
    }
    if is_blessing {
        std::fs::write(path(), &found).expect("the digests can be written");
    }
    let kept = std::fs::read_to_string(path()).unwrap_or_else(|error| panic!("{}: {error}", path().display()));
    let differing: Vec<String> = kept
        .lines()
        .zip(found.lines())
        .filter(|(kept, found)| kept != found)
        .map(|(kept, found)| format!("- {kept}\n+ {found}"))
        .collect();
    let added = found.lines().count().saturating_sub(kept.lines().count());
    assert!(
        kept == found,
        "{} of {seeds} lives differ, {added} are not recorded yet:\n{}\nIf that is intended, say why in the commit, and write them again: SEEKLESS_BLESS=1 \
         cargo test -p seekless --test engine digests",
        differing.len(),
        differing.join("\n")
    );
}

/// Aim: the digests detect changes. Method: one changed byte on a device, and one changed answer.
#[test]
fn digests_see_a_byte() {
    let mut image = Image::default();
    image.write(Sector(70), &[1; 512]);
    let before = image_digest(0, &image, MIB);
    image.write(Sector(70), &[[1; 511].as_slice(), &[2]].concat());
    assert_ne!(before, image_digest(0, &image, MIB));
    assert_ne!(answer_digest(0, &Outcome::Done), answer_digest(0, &Outcome::Offset(0)));
}
