//! Aim: a file stays whole when a node is closed, or its file removed, while a call below takes long; and one file that
//! cannot be read or written keeps no other from being looked after. Method: a file system below that holds one call until
//! the test lets it continue, and refuses those that the test chooses.

use super::*;
use crate::device::Data;
use crate::fs::client::Client;
use crate::fs::*;
use crate::layer::{At, Layer, Nodes};
use crate::rt::Event;
use crate::testing::{MemFsOptions, WeakFs};
use crate::units::Ino;

/// What can be held or refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Call {
    Read,
    Write,
    GetXattr,
    /// A sync of one file, or, with the root, of all.
    Sync,
    /// Once begun it is done, whatever becomes of the caller, as in a thread of its own.
    SetSize,
}

/// Which error a call gets, by the inode and the offset.
type Refusal = Box<dyn Fn(Call, Ino, u64) -> Option<FsError>>;

/// Passes everything on. Reached through `Stacked::layer`.
#[derive(Default)]
struct Held {
    next: Cell<Option<(Call, Ino)>>,
    is_held: Cell<bool>,
    changed: Event,
    refusal: RefCell<Option<Refusal>>,
    /// How often it was asked to work in idle time.
    idles: Cell<u64>,
    /// For work in tasks of its own.
    stacked: RefCell<std::rc::Weak<Stacked<Held>>>,
    rt: RefCell<Option<Rt>>,
}

impl Held {
    /// Holds the next such call.
    fn hold(&self, call: Call, ino: Ino) {
        self.next.set(Some((call, ino)));
    }

    /// Waits until the call is held.
    async fn until_held(&self) {
        while !self.is_held.get() {
            self.changed.wait().await;
        }
    }

    fn go_on(&self) {
        self.is_held.set(false);
        self.changed.notify();
    }

    fn refuse(&self, refusal: impl Fn(Call, Ino, u64) -> Option<FsError> + 'static) {
        *self.refusal.borrow_mut() = Some(Box::new(refusal));
    }

    fn allow(&self) {
        *self.refusal.borrow_mut() = None;
    }

    async fn meet(&self, call: Call, ino: Ino, offset: u64) -> FsResult<()> {
        if self.next.get() == Some((call, ino)) {
            self.next.set(None);
            self.is_held.set(true);
            self.changed.notify();
            while self.is_held.get() {
                self.changed.wait().await;
            }
        }
        let refused = self.refusal.borrow().as_ref().and_then(|refusal| refusal(call, ino, offset));
        refused.map_or(Ok(()), Err)
    }
}

impl Layer for Held {
    type Node = ();

    const NAME: &'static str = "held";

    async fn open_node(&self, _lower: &Fs, _attr: &Attr, _place: Option<EntryName<'_>>) -> FsResult<()> {
        Ok(())
    }

    async fn read(&self, at: At<'_, ()>, offset: u64, bytes: u32) -> FsResult<Vec<Data>> {
        self.meet(Call::Read, at.ino, offset).await?;
        at.lower.read(at.ino, at.handle, offset, bytes).await
    }

    async fn write(&self, at: At<'_, ()>, offset: u64, data: Data, mode: WriteMode) -> FsResult<()> {
        self.meet(Call::Write, at.ino, offset).await?;
        at.lower.write(at.ino, at.handle, offset, data, mode).await
    }

    async fn setattr(&self, at: At<'_, ()>, changes: SetAttr) -> FsResult<Attr> {
        let At { lower, ino, handle, .. } = at;
        if self.next.get() != Some((Call::SetSize, ino)) || changes.size.is_none() {
            return lower.setattr(ino, handle, changes).await;
        }
        let (held, lower) = (self.stacked.borrow().upgrade().unwrap(), lower.clone());
        let done = async move {
            held.layer().meet(Call::SetSize, ino, 0).await?;
            lower.setattr(ino, None, changes).await
        };
        let rt = self.rt.borrow().clone().unwrap();
        rt.spawn(done).await
    }

    async fn getxattr(&self, at: At<'_, ()>, name: &[u8]) -> FsResult<Vec<u8>> {
        self.meet(Call::GetXattr, at.ino, 0).await?;
        at.lower.getxattr(at.ino, name).await
    }

    async fn fsync(&self, at: At<'_, ()>, data_only: bool) -> FsResult<()> {
        self.meet(Call::Sync, at.ino, 0).await?;
        at.lower.fsync(at.ino, at.handle, data_only).await
    }

    async fn syncfs(&self, lower: &Fs, _nodes: &Nodes<()>) -> FsResult<()> {
        self.meet(Call::Sync, Ino::ROOT, 0).await?;
        lower.syncfs().await
    }

    async fn idle(&self, lower: &Fs, _nodes: &Nodes<()>, until: Nanos) -> FsResult<bool> {
        self.idles.set(self.idles.get() + 1);
        lower.idle(until).await
    }
}

/// The model, with `Held` on it.
struct Bench {
    rt: Rt,
    model: Rc<MemFs>,
    lower: Rc<Stacked<Held>>,
    options: Options,
}

impl Bench {
    async fn new(rt: Rt, options: Options) -> Bench {
        let memory = MemFsOptions { capacity_bytes: 1 << 40, reuses_numbers: true, ..MemFsOptions::default() };
        let model = MemFs::with_options(&rt, memory);
        let lower = Rc::new(Stacked::new(model.clone(), Held::default()).await.unwrap());
        *lower.layer().stacked.borrow_mut() = Rc::downgrade(&lower);
        *lower.layer().rt.borrow_mut() = Some(rt.clone());
        Bench { rt, model, lower, options }
    }

    fn held(&self) -> &Held {
        self.lower.layer()
    }

    async fn stack(&self) -> Fs {
        stack_on(&self.rt, self.lower.clone(), self.options.clone()).await.unwrap()
    }

    /// The content of `path` for the next mount, which finds nothing wrong.
    async fn read_again(&self, path: &[u8]) -> Vec<u8> {
        let model: Fs = self.model.clone();
        assert_clean(&self.rt, &model, &self.options).await;
        Client::new(stack_on(&self.rt, model, self.options.clone()).await.unwrap()).read_file(path).await.unwrap()
    }
}

fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut noise = vec![0; bytes];
    crate::rng::Rng::new(seed).fill(&mut noise);
    noise
}

/// Long enough that no write-back happens by itself.
fn patient(codec: Arc<dyn Codec>) -> Options {
    Options { write_back_interval: Nanos::from_secs(1_000), ..tiny(codec) }
}

/// Counts what it is given.
#[derive(Default)]
struct Listing(Vec<Ino>);

impl DirSink for Listing {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.0.extend(entry.entry.map(|entry| entry.attr.ino));
        true
    }
}

/// A listing reads the attributes of an empty file, and waits for another one; until it continues, the file is written and its
/// node closed.
#[test]
fn a_listing_does_not_reopen_a_file_as_it_was() {
    simulate(1, async |rt| {
        let bench = Bench::new(rt.clone(), patient(Arc::new(Zstd::default()))).await;
        {
            let client = Client::new(bench.stack().await);
            client.write_file(b"/slow", &noise(1, 9_000)).await.unwrap();
            client.fs().close().await.unwrap();
        }
        let fs = bench.stack().await;
        let client = Client::new(fs.clone());
        client.write_file(b"/f", &noise(2, 9_000)).await.unwrap();
        bench.held().hold(Call::GetXattr, bench.model.lookup(Ino::ROOT, b"slow").await.unwrap().attr.ino);
        let lists = {
            let fs = fs.clone();
            rt.spawn(async move {
                let mut listing = Listing::default();
                fs.readdir(Ino::ROOT, None, 0, true, &mut listing).await.unwrap();
                listing.0
            })
        };
        bench.held().until_held().await;
        fs.syncfs().await.unwrap();
        bench.held().go_on();
        let listed = lists.await;
        assert_eq!(listed.len(), 2);
        assert!(client.read_file(b"/f").await.unwrap() == noise(2, 9_000));
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        client.write(file, 9_000, b"more").await.unwrap();
        client.close(file).await.unwrap();
        for ino in listed {
            fs.forget(ino, 1).await;
        }
        fs.close().await.unwrap();
        assert!(bench.read_again(b"/f").await == [&noise(2, 9_000)[..], b"more"].concat());
    });
}

/// Aim: idle work that its caller drops half-way, as an unmount does, harms nothing that is written and closed afterwards. Method: the cut of a file behind its
/// last record takes long below, and ends whatever becomes of the caller.
#[test]
fn idle_work_that_is_dropped_cuts_nothing_off() {
    simulate(1, async |rt| {
        let bench = Bench::new(rt.clone(), patient(Arc::new(crate::layer::codecs::Copy))).await;
        let fs = bench.stack().await;
        let client = Client::new(fs.clone());
        // More than is moved in one step: the next step cuts the file.
        let mut content = noise(1, 24_000_000);
        client.write_file(b"/f", &content).await.unwrap();
        fs.syncfs().await.unwrap();
        let ino = bench.model.lookup(Ino::ROOT, b"f").await.unwrap().attr.ino;
        let used = fs.lookup(Ino::ROOT, b"f").await.unwrap().attr.ino;
        client.fallocate(b"/f", FileRange { offset: 0, bytes: 14_000_000 }, AllocateMode::PunchHole).await.unwrap();
        content[..14_000_000].fill(0);
        // Twice, so that everything is settled and what is free is known.
        fs.syncfs().await.unwrap();
        fs.syncfs().await.unwrap();
        bench.held().hold(Call::SetSize, ino);
        {
            let idles = async { while fs.idle(Nanos(rt.now().0 + 1)).await.unwrap() {} };
            let held = bench.held().until_held();
            futures_util::pin_mut!(idles, held);
            let first = futures_util::future::select(idles, held).await;
            assert!(matches!(first, futures_util::future::Either::Right(_)), "the file is cut");
        }
        let late = rt.spawn({
            let (rt, lower) = (rt.clone(), bench.lower.clone());
            async move {
                rt.sleep(Nanos::from_secs(1)).await;
                lower.layer().go_on();
            }
        });
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        // More than has room before the cut.
        content = noise(2, content.len());
        client.write(file, 0, &content).await.unwrap();
        client.close(file).await.unwrap();
        fs.forget(used, 1).await;
        fs.close().await.unwrap();
        late.await;
        rt.sleep(Nanos::from_secs(1)).await;
        assert!(bench.read_again(b"/f").await == content);
    });
}

/// Compaction waits for a read below; until it continues, its file is closed, opened again, written and synced.
#[test]
fn compaction_does_not_go_on_with_a_closed_node() {
    for call in [Call::GetXattr, Call::Read, Call::Sync] {
        simulate(1, async |rt| {
            let bench = Bench::new(rt.clone(), patient(Arc::new(crate::layer::codecs::Copy))).await;
            let fs = bench.stack().await;
            let client = Client::new(fs.clone());
            let mut content = noise(1, 400_000);
            client.write_file(b"/f", &content).await.unwrap();
            fs.syncfs().await.unwrap();
            let ino = bench.model.lookup(Ino::ROOT, b"f").await.unwrap().attr.ino;
            let used = fs.lookup(Ino::ROOT, b"f").await.unwrap().attr.ino;
            let hole = FileRange { offset: 0, bytes: 300_000 };
            client.fallocate(b"/f", hole, AllocateMode::PunchHole).await.unwrap();
            content[..300_000].fill(0);
            // Twice, so that everything is settled and what is free is known.
            fs.syncfs().await.unwrap();
            fs.syncfs().await.unwrap();
            bench.held().hold(call, ino);
            let idles = {
                let (fs, rt) = (fs.clone(), rt.clone());
                rt.clone().spawn(async move { while fs.idle(Nanos(rt.now().0 + 1)).await.unwrap() {} })
            };
            bench.held().until_held().await;
            fs.forget(used, 1).await;
            let writes = {
                let client = Client::new(fs.clone());
                rt.spawn(async move {
                    let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
                    for round in 0..20 {
                        client.write(file, round * 20_000, &noise(round, 9_000)).await.unwrap();
                        client.fsync(file).await.unwrap();
                    }
                    client.close(file).await.unwrap();
                })
            };
            for round in 0..20 {
                content[round * 20_000..][..9_000].copy_from_slice(&noise(round as u64, 9_000));
            }
            rt.sleep(Nanos::from_secs(1)).await;
            bench.held().go_on();
            writes.await;
            idles.await;
            assert!(client.read_file(b"/f").await.unwrap() == content, "{call:?}");
            fs.close().await.unwrap();
            assert!(bench.read_again(b"/f").await == content, "{call:?}");
        });
    }
}

/// A file is removed while it is written back, and another program creates one, which could get its number.
#[test]
fn a_write_back_does_not_go_on_in_another_file() {
    for call in [Call::Write, Call::Sync] {
        simulate(1, async |rt| {
            let bench = Bench::new(rt.clone(), patient(Arc::new(Zstd::default()))).await;
            let fs = bench.stack().await;
            let client = Client::new(fs.clone());
            client.write_file(b"/f", &noise(1, 20_000)).await.unwrap();
            let ino = fs.lookup(Ino::ROOT, b"f").await.unwrap().attr.ino;
            bench.held().hold(call, ino);
            let syncs = {
                let fs = fs.clone();
                rt.spawn(async move { fs.syncfs().await })
            };
            bench.held().until_held().await;
            client.unlink(b"/f").await.unwrap();
            fs.forget(ino, 1).await;
            let other = Client::new(bench.model.clone() as Fs);
            other.write_file(b"/g", &noise(2, 100_000)).await.unwrap();
            bench.held().go_on();
            assert_eq!(syncs.await, Ok(()), "{call:?}");
            assert!(other.read_file(b"/g").await.unwrap() == noise(2, 100_000), "{call:?}");
            assert!(other.list_xattr(b"/g").await.unwrap().is_empty(), "{call:?}");
            let leaks = bench.model.leaks();
            assert_eq!((leaks.orphans, leaks.forgets_too_many), (0, 0), "{call:?}");
            fs.close().await.unwrap();
        });
    }
}

/// An error below that has nothing to do with the layer.
fn broken() -> FsError {
    FsError::Host(5)
}

/// One file cannot be read: idle time is used for all others, and for the file system below.
#[test]
fn one_unreadable_file_does_not_end_idle_work() {
    simulate(1, async |rt| {
        let bench = Bench::new(rt.clone(), patient(Arc::new(crate::layer::codecs::Copy))).await;
        let fs = bench.stack().await;
        let client = Client::new(fs.clone());
        for path in [b"/a", b"/b"] {
            client.write_file(path, &noise(1, 400_000)).await.unwrap();
            fs.syncfs().await.unwrap();
            // In use, so that its node stays.
            client.resolve(path).await.unwrap();
            let hole = FileRange { offset: 0, bytes: 300_000 };
            client.fallocate(path, hole, AllocateMode::PunchHole).await.unwrap();
        }
        fs.syncfs().await.unwrap();
        fs.syncfs().await.unwrap();
        let below = Client::new(bench.model.clone() as Fs);
        let damaged = below.stat(b"/a").await.unwrap().ino;
        let before = below.stat(b"/b").await.unwrap().size;
        bench.held().refuse(move |call, ino, _| ((call, ino) == (Call::Read, damaged)).then(broken));
        assert_eq!(fs.idle(Nanos(rt.now().0 + 1_000_000)).await, Err(broken()));
        assert!(below.stat(b"/b").await.unwrap().size < before / 2);
        assert_eq!(bench.held().idles.get(), 1);
        bench.held().allow();
        while fs.idle(Nanos(rt.now().0 + 1_000_000)).await.unwrap() {}
        assert!(below.stat(b"/a").await.unwrap().size < before / 2);
        fs.close().await.unwrap();
        assert!(bench.read_again(b"/a").await[300_000..] == noise(1, 400_000)[300_000..]);
    });
}

/// A directory has the layer's attribute, which cannot be read: mounting ends, with that error.
#[test]
fn an_unreadable_attribute_ends_the_mount() {
    simulate(1, async |rt| {
        let bench = Bench::new(rt.clone(), patient(Arc::new(Zstd::default()))).await;
        bench.stack().await.close().await.unwrap();
        let asked = Cell::new(0);
        bench.held().refuse(move |call, ino, _| {
            asked.set(asked.get() + 1);
            assert!(asked.get() < 1_000, "it never ends");
            ((call, ino) == (Call::GetXattr, Ino::ROOT)).then_some(FsError::Host(13))
        });
        let stacked = stack_on(&rt, bench.lower.clone(), bench.options.clone()).await;
        assert_eq!(stacked.err(), Some(FsError::Host(13)));
    });
}

/// The index of a file cannot be read for a while: its lower file does not grow with each sync that fails, and what was
/// written is synced once it can be read again.
#[test]
fn an_unreadable_index_costs_no_space() {
    const CHUNKS: usize = 40;
    simulate(1, async |rt| {
        let bench = Bench::new(rt.clone(), patient(Arc::new(crate::layer::codecs::Copy))).await;
        {
            let client = Client::new(bench.stack().await);
            client.write_file(b"/f", &noise(1, CHUNKS * 4096)).await.unwrap();
            client.fs().close().await.unwrap();
        }
        let below = Client::new(bench.model.clone() as Fs);
        // A daemon that was killed leaves no mark.
        below.remove_xattr(b"/f", mark::NAME).await.unwrap();
        let bytes = below.read_file(b"/f").await.unwrap();
        let slots = [0, 512].map(|at| format::Commit::decode(&bytes[at..at + 512]));
        let nodes: Vec<u64> = slots
            .into_iter()
            .filter_map(|slot| match slot {
                format::SlotState::Good(commit) if commit.depth > 0 => Some(commit.root),
                _ => None,
            })
            .flatten()
            .map(|entry| entry.offset)
            .collect();
        assert!(!nodes.is_empty(), "the file has an index below its slots");
        let client = Client::new(bench.stack().await);
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        bench.held().refuse(move |call, _, at| (call == Call::Read && nodes.contains(&at)).then(broken));
        let content = noise(2, CHUNKS * 4096);
        client.write(file, 0, &content).await.unwrap();
        for _ in 0..10 {
            assert_eq!(client.fsync(file).await, Err(broken()));
        }
        let size = below.stat(b"/f").await.unwrap().size;
        assert!(size <= 2 * bytes.len() as u64, "{size} bytes for {}", bytes.len());
        bench.held().allow();
        client.sync().await.unwrap();
        client.write(file, 5_000, &content[5_000..6_000]).await.unwrap();
        client.sync().await.unwrap();
        client.close(file).await.unwrap();
        client.fs().close().await.unwrap();
        assert!(bench.read_again(b"/f").await == content);
    });
}

/// Compaction moves one record, and cannot read the next: the file is synced before a commit that relies on the moved record.
/// Method: after that, an append and an fsync, on the weak model; cuts everywhere, each with many of the states that it may
/// leave.
#[test]
fn a_compaction_that_failed_loses_nothing() {
    simulate(1, async |rt| {
        let weak = WeakFs::new(&rt, MemFsOptions { capacity_bytes: 1 << 40, ..MemFsOptions::default() });
        let lower = Rc::new(Stacked::new(weak.clone(), Held::default()).await.unwrap());
        let options = patient(Arc::new(crate::layer::codecs::Copy));
        let fs = stack_on(&rt, lower.clone(), options.clone()).await.unwrap();
        let client = Client::new(fs.clone());
        let mut content = noise(1, 122_880);
        let file = client.create(b"/f").await.unwrap();
        client.write(file, 0, &content).await.unwrap();
        fs.syncfs().await.unwrap();
        let hole = FileRange { offset: 0, bytes: 25 << 12 };
        client.fallocate(b"/f", hole, AllocateMode::PunchHole).await.unwrap();
        content[..25 << 12].fill(0);
        fs.syncfs().await.unwrap();
        fs.syncfs().await.unwrap();
        let records = check::dump(&(weak.clone() as Fs), file.ino).await.unwrap();
        let live = (25..30).map(|chunk| format!(": chunk {chunk} of "));
        let offset_of = |what: String| records.lines().rfind(|line| line.contains(&what)).unwrap().split(':').next();
        let mut offsets: Vec<u64> = live.map(|what| offset_of(what).unwrap().parse().unwrap()).collect();
        offsets.sort_unstable();
        let second = offsets[offsets.len() - 2];
        let moved = || fs.counters().into_iter().find(|(name, _)| *name == "records_moved").unwrap().1;
        let start = weak.position();
        lower.layer().refuse(move |call, _, at| ((call, at) == (Call::Read, second)).then(broken));
        assert_eq!(fs.idle(Nanos(rt.now().0 + 1_000_000)).await, Err(broken()));
        assert_eq!(moved(), 1);
        lower.layer().allow();
        let before = content.clone();
        content.extend_from_slice(&noise(2, 9_000));
        client.write(file, 122_880, &content[122_880..]).await.unwrap();
        client.fsync(file).await.unwrap();
        for position in start..=weak.position() {
            for state in 0..100 {
                let left: Fs = weak.cut(position, state).await.unwrap();
                let again = Client::new(stack_on(&rt, left, options.clone()).await.unwrap());
                let found = again.read_file(b"/f").await;
                let found = found.unwrap_or_else(|error| panic!("cut at {position}, state {state}: {error}"));
                assert!(found == content || found == before && position < weak.position(), "{position}, {state}");
            }
        }
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
    });
}

/// A record cannot be read while the check builds a new index: that is what the check says, and has given up nothing.
#[test]
fn a_repair_gives_up_no_record_that_cannot_be_read_once() {
    simulate(1, async |rt| {
        let bench = Bench::new(rt.clone(), patient(Arc::new(crate::layer::codecs::Copy))).await;
        let content = noise(1, 40_000);
        {
            let client = Client::new(bench.stack().await);
            client.write_file(b"/f", &content).await.unwrap();
            client.fs().close().await.unwrap();
        }
        let below = Client::new(bench.model.clone() as Fs);
        let ino = below.stat(b"/f").await.unwrap().ino;
        let records = check::dump(&(bench.model.clone() as Fs), ino).await.unwrap();
        let third = records.lines().find(|line| line.contains(": chunk 3 of ")).unwrap();
        let third: u64 = third.split(':').next().unwrap().parse().unwrap();
        let mut bytes = below.read_file(b"/f").await.unwrap();
        for slot in [3, 512 + 3] {
            bytes[slot] ^= 0x10;
        }
        below.write_file(b"/f", &bytes).await.unwrap();
        bench.held().refuse(move |call, _, at| ((call, at) == (Call::Read, third)).then(broken));
        let repair = async || check::check(&rt, bench.lower.clone(), bench.options.clone(), true).await;
        let findings = repair().await.unwrap().findings;
        let problems: Vec<&str> = findings.iter().map(|finding| finding.problem.as_str()).collect();
        let unread = format!("it cannot be repaired as long as this is so: {}", broken());
        assert_eq!(problems, ["slot 0: it does not begin as it should", &unread]);
        assert!(findings.iter().all(|finding| !finding.repaired), "{findings:?}");
        bench.held().allow();
        let findings = repair().await.unwrap().findings;
        assert!(!findings.is_empty() && findings.iter().all(|finding| finding.repaired), "{findings:?}");
        assert!(bench.read_again(b"/f").await == content);
    });
}

/// One file of the host cannot be read: the check says so, and continues with the others.
#[test]
fn one_unreadable_file_does_not_end_the_check() {
    simulate(1, async |rt| {
        let bench = Bench::new(rt.clone(), patient(Arc::new(crate::layer::codecs::Copy))).await;
        let content = noise(1, 40_000);
        {
            let client = Client::new(bench.stack().await);
            for path in [b"/a", b"/b", b"/c"] {
                client.write_file(path, &content).await.unwrap();
            }
            client.fs().close().await.unwrap();
        }
        let below = Client::new(bench.model.clone() as Fs);
        for path in [b"/a", b"/c"] {
            let mut bytes = below.read_file(path).await.unwrap();
            bytes[3] ^= 0x10;
            below.write_file(path, &bytes).await.unwrap();
        }
        let unreadable = below.stat(b"/b").await.unwrap().ino;
        bench.held().refuse(move |call, ino, _| ((call, ino) == (Call::Read, unreadable)).then(broken));
        let report = check::check(&rt, bench.lower.clone(), bench.options.clone(), true).await.unwrap();
        let found: Vec<_> = report.findings.iter().map(|finding| (&finding.path[..], finding.repaired)).collect();
        assert_eq!(found, [(&b"/a"[..], true), (b"/b", false), (b"/c", true)]);
        assert_eq!(report.files, 3);
        bench.held().allow();
        assert_clean(&rt, &(bench.model.clone() as Fs), &bench.options).await;
    });
}

/// A range of nearly an exbibyte does not fit, and that is the answer.
#[test]
fn an_enormous_range_does_not_fit() {
    simulate(1, async |rt| {
        let bench = Bench::new(rt.clone(), patient(Arc::new(Zstd::default()))).await;
        let client = Client::new(bench.stack().await);
        client.write_file(b"/f", b"here").await.unwrap();
        for bytes in [1 << 59, 15 << 56, 1 << 62, i64::MAX as u64] {
            let range = FileRange { offset: 0, bytes };
            let allocated = client.fallocate(b"/f", range, AllocateMode::Allocate { keep_size: true }).await;
            assert!(matches!(allocated, Err(FsError::NoSpace | FsError::FileTooLarge)), "{bytes}: {allocated:?}");
        }
        client.fs().close().await.unwrap();
        assert_eq!(bench.read_again(b"/f").await, b"here");
    });
}

/// Aim: a read of a plain file never shows how the layer stores it. Method: the read takes long below; until it ends, the file is
/// truncated to nothing, rewritten and synced.
#[test]
fn a_read_of_a_plain_file_shows_no_encoded_bytes() {
    simulate(1, async |rt| {
        let bench = Bench::new(rt.clone(), patient(Arc::new(Zstd::default()))).await;
        let (old, new) = (noise(1, 9_000), vec![7; 9_000]);
        Client::new(bench.model.clone() as Fs).write_file(b"/f", &old).await.unwrap();
        let fs = bench.stack().await;
        let client = Client::new(fs.clone());
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        assert!(client.read(file, 0, 9_000).await.unwrap() == old);
        let ino = bench.model.lookup(Ino::ROOT, b"f").await.unwrap().attr.ino;
        bench.held().hold(Call::Read, ino);
        let (fs_too, at) = (fs.clone(), file);
        let reads = rt.spawn(async move { Client::new(fs_too).read(at, 0, 9_000).await.unwrap() });
        bench.held().until_held().await;
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        fs.setattr(file.ino, file.handle, cut).await.unwrap();
        client.write(file, 0, &new).await.unwrap();
        client.fsync(file).await.unwrap();
        bench.held().go_on();
        let read = reads.await;
        assert!(read == new || read == old, "it begins with {:?}", String::from_utf8_lossy(&read[..8]));
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
        assert!(bench.read_again(b"/f").await == new);
    });
}

/// Aim: a file whose start cannot be read has a name that can be listed, changed and removed, and content again once it can be read.
/// Method: two files without a mark, whose reads fail.
#[test]
fn a_file_whose_start_cannot_be_read_can_be_removed() {
    for error in [FsError::Host(5), FsError::Host(13)] {
        simulate(1, async |rt| {
            let bench = Bench::new(rt.clone(), patient(Arc::new(Zstd::default()))).await;
            {
                let client = Client::new(bench.stack().await);
                client.write_file(b"/f", &noise(1, 9_000)).await.unwrap();
                client.write_file(b"/g", &noise(2, 9_000)).await.unwrap();
                client.fs().close().await.unwrap();
            }
            let below = Client::new(bench.model.clone() as Fs);
            for path in [b"/f", b"/g"] {
                below.remove_xattr(path, mark::NAME).await.unwrap();
            }
            let client = Client::new(bench.stack().await);
            let refused = error.clone();
            bench.held().refuse(move |call, _, _| (call == Call::Read).then(|| refused.clone()));
            assert_eq!(client.stat(b"/f").await.map(|attr| attr.kind), Ok(FileKind::Regular), "{error}");
            for path in [b"/f", b"/g"] {
                assert_eq!(client.read_file(path).await, Err(error.clone()));
            }
            client.unlink(b"/f").await.unwrap();
            client.rename(b"/g", b"/h", RenameMode::Replace).await.unwrap();
            bench.held().allow();
            assert!(client.read_file(b"/h").await.unwrap() == noise(2, 9_000), "{error}");
            assert_eq!(client.stat(b"/h").await.unwrap().size, 9_000, "{error}");
            assert_eq!(client.stat(b"/f").await.map(drop), Err(FsError::NotFound), "{error}");
            client.fs().close().await.unwrap();
        });
    }
}

/// A layer over a layer: the upper one compacts a file while its only user closes it. What is written to it afterwards comes below. Method: the
/// lower layer waits for a read, whichever of those of a compaction.
#[test]
fn a_file_is_closed_while_the_upper_layer_compacts_it() {
    let copy = || patient(Arc::new(crate::layer::codecs::Copy));
    let mut held_writes = 0;
    for skipped in 0..12 {
        simulate(1, async |rt| {
            let options = MemFsOptions {
                capacity_bytes: 1 << 40,
                open_protocol: OpenProtocol::Handles,
                ..MemFsOptions::default()
            };
            let model = MemFs::with_options(&rt, options);
            let held = Rc::new(Stacked::new(model.clone(), Held::default()).await.unwrap());
            let lower = stack_on(&rt, held.clone(), Options { cache_bytes: 0, ..copy() }).await.unwrap();
            let fs = stack_on(&rt, lower.clone(), copy()).await.unwrap();
            let client = Client::new(fs.clone());
            let mut content = noise(1, 400_000);
            let file = client.create(b"/f").await.unwrap();
            client.write(file, 0, &content).await.unwrap();
            fs.syncfs().await.unwrap();
            let hole = FileRange { offset: 0, bytes: 300_000 };
            client.fallocate(b"/f", hole, AllocateMode::PunchHole).await.unwrap();
            content[..300_000].fill(0);
            // Its handle is that of the writer.
            client.write(file, 399_000, b"more").await.unwrap();
            content[399_000..399_004].copy_from_slice(b"more");
            fs.syncfs().await.unwrap();
            fs.syncfs().await.unwrap();
            fs.drop_caches().await.unwrap();
            let ino = model.lookup(Ino::ROOT, b"f").await.unwrap().attr.ino;
            let idles = {
                let (fs, rt) = (fs.clone(), rt.clone());
                held.layer().hold(Call::Read, ino);
                rt.clone().spawn(async move { fs.idle(Nanos(rt.now().0 + 1)).await })
            };
            for _ in 0..skipped {
                held.layer().until_held().await;
                held.layer().hold(Call::Read, ino);
                held.layer().go_on();
            }
            held.layer().until_held().await;
            client.close(file).await.unwrap();
            held.layer().go_on();
            idles.await.unwrap();
            held_writes += 1;
            // What has come into the lower layer must leave it.
            fs.syncfs().await.unwrap_or_else(|error| panic!("after {skipped} reads: {error}"));
            assert!(client.read_file(b"/f").await.unwrap() == content, "after {skipped} reads");
            fs.close().await.unwrap();
        });
    }
    assert!(held_writes > 3);
}
