//! Aim: what an fsync or a sync has acknowledged is there after a kill, whatever the host refuses, and whatever else happens to the
//! files in the time. Method: several clients, each with its own files and its own directory, on a slow host that fills up, gets some
//! room, and makes snapshots, so that anything can be refused: data, tails, indirect blocks of each level, directories, inodes,
//! groups. Kills at any moment, each of which is checked: the volume can be mounted where the host has no room; bytes that were
//! acknowledged and not touched since are there; with synchronous metadata each name is as it was when the operation returned.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use futures_util::future::{join, join_all};

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::rng::Rng;
use crate::testing::environment::replay;
use crate::testing::volumes::full_host::Host;
use crate::testing::volumes::life::must_have_covered;

const CLIENTS: u64 = 3;
const KILLS: usize = 3;
const KILLS_MAX: usize = 15;

/// What happened since the content was acknowledged, as far as it matters for what is durable.
#[derive(Clone, Debug)]
enum Change {
    Write(Range<usize>),
    /// Truncated to that size.
    Cut(usize),
    /// Removed, replaced, or not known.
    Any,
}

/// A file as its client knows it.
#[derive(Clone, Default)]
struct Known {
    /// `None`: there is none.
    now: Option<Rc<Vec<u8>>>,
    /// What is durable and when that was asked for; `None`: not known.
    acknowledged: Option<Option<Rc<Vec<u8>>>>,
    asked: u64,
    /// Changes that ended later, and when.
    changes: Vec<(u64, Change)>,
}

impl Known {
    fn acknowledge(&mut self, content: Option<Rc<Vec<u8>>>, asked: u64) {
        if self.acknowledged.is_none() || asked >= self.asked {
            (self.acknowledged, self.asked) = (Some(content), asked);
            self.changes.retain(|(ended, _)| *ended > asked);
        }
    }

    fn check(&self, found: Option<&[u8]>, tag: u8, what: &str) {
        let is_any = self.changes.iter().any(|(_, change)| matches!(change, Change::Any));
        let Some(acknowledged) = self.acknowledged.as_ref().filter(|_| !is_any) else { return };
        let Some(content) = acknowledged else {
            assert!(found.is_none() || !self.changes.is_empty(), "{what}: its removal was acknowledged");
            return;
        };
        let Some(found) = found else { panic!("{what}: it is gone") };
        let cuts = self.changes.iter().filter_map(|(_, change)| match change {
            Change::Cut(size) => Some(*size),
            _ => None,
        });
        let sure = cuts.fold(content.len(), usize::min);
        assert!(found.len() >= sure, "{what}: {} bytes of {sure}", found.len());
        let mut touched = vec![false; sure];
        for (_, change) in &self.changes {
            if let Change::Write(range) = change {
                touched[range.start.min(sure)..range.end.min(sure)].fill(true);
            }
        }
        let wrong = (0..sure).filter(|&at| !touched[at] && found[at] != content[at]);
        let wrong: Vec<usize> = wrong.take(3).collect();
        assert!(
            wrong.is_empty(),
            "{what}: from byte {} on of {sure} it holds {:x} instead of {:x}; since: {:?}",
            wrong[0],
            found[wrong[0]],
            content[wrong[0]],
            self.changes
        );
        let foreign = found[..sure].iter().position(|&byte| byte != 0 && byte >> 5 != tag);
        assert_eq!(foreign, None, "{what}: it has bytes of another file");
    }
}

type Files = BTreeMap<Vec<u8>, Known>;

/// What all clients know; the index is the client's number.
struct World {
    host: Rc<Host>,
    left: RefCell<Vec<Left>>,
    files: [RefCell<Files>; CLIENTS as usize],
    moments: Cell<u64>,
    /// Names are durable when an operation returns.
    in_order: bool,
}

impl World {
    fn tick(&self) -> u64 {
        self.moments.update(|moment| moment + 1);
        self.moments.get()
    }

    fn known<T>(&self, client: u64, path: &[u8], change: impl FnOnce(&mut Known) -> T) -> T {
        change(self.files[client as usize].borrow_mut().entry(path.to_vec()).or_default())
    }

    /// A change begins: from now on a kill may find a part of it.
    fn begin(&self, client: u64, path: &[u8], change: Change) {
        self.known(client, path, |known| known.changes.push((u64::MAX, change)));
    }

    /// The change of the file that has begun has ended; `result` makes of the content what it is now.
    fn end(&self, client: u64, path: &[u8], result: impl FnOnce(&mut Option<Rc<Vec<u8>>>)) {
        let now = self.tick();
        self.known(client, path, |known| {
            result(&mut known.now);
            known.changes.iter_mut().filter(|(ended, _)| *ended == u64::MAX).for_each(|(ended, _)| *ended = now);
        });
    }

    fn content(&self, client: u64, path: &[u8]) -> Option<Rc<Vec<u8>>> {
        self.known(client, path, |known| known.now.clone())
    }

    /// The daemon is killed now, in one course of events.
    fn kill(&self) {
        let files = self.files.iter().map(|files| files.borrow().clone()).collect();
        self.left.borrow_mut().push(Left { host: self.host.killed(), files });
    }

    /// Something was acknowledged: now and then the daemon is killed at once.
    fn may_kill(&self, rng: &mut Rng) {
        if self.left.borrow().len() < KILLS_MAX && rng.chance(1, 10) {
            self.kill();
        }
    }

    /// Everything as it is now, for a sync that begins.
    fn contents(&self) -> Vec<(u64, Vec<u8>, Option<Rc<Vec<u8>>>)> {
        let all = (0..CLIENTS).map(|client| (client, self.files[client as usize].borrow()));
        all.flat_map(|(client, files)| {
            let files: Vec<_> = files.iter().map(|(path, known)| (client, path.clone(), known.now.clone())).collect();
            files
        })
        .collect()
    }
}

/// What a kill leaves, and what has to be there.
struct Left {
    host: Rc<Host>,
    files: Vec<Files>,
}

fn bytes(rng: &mut Rng, client: u64, length: usize) -> Vec<u8> {
    let seed = rng.below(31) as usize;
    (0..length).map(|at| (client as u8 + 1) << 5 | ((seed + at / 512 + at) % 31 + 1) as u8).collect()
}

/// One client, which changes only its own files.
struct Worker<'a> {
    rt: &'a Rt,
    client: Client,
    number: u64,
    world: &'a World,
    rng: Rng,
    /// Where the blocks of files are that are far behind their beginning.
    far: usize,
    what: &'a str,
}

impl Worker<'_> {
    fn path(&mut self) -> Vec<u8> {
        format!("/c{}/f{}", self.number, self.rng.below(3)).into_bytes()
    }

    /// After an error it is not known what has happened: the file is read again.
    async fn look(&self, path: &[u8], error: FsError) {
        assert!(error.is_no_space(), "{}: {error}", self.what);
        let found = match self.client.read_file(path).await {
            Ok(content) => Some(Rc::new(content)),
            Err(FsError::NotFound) => None,
            Err(error) => panic!("{}: {}: {error}", self.what, String::from_utf8_lossy(path)),
        };
        self.world.begin(self.number, path, Change::Any);
        self.world.end(self.number, path, |now| *now = found);
    }

    async fn write(&mut self) {
        let (path, number) = (self.path(), self.number);
        let size = self.world.content(number, &path).map_or(0, |content| content.len());
        let from = match self.rng.below(6) {
            0 => self.far + self.rng.below(50_000) as usize,
            1 => self.rng.below(150_000) as usize,
            // Over something, which a snapshot may have.
            2 => self.rng.below(1 + size as u64) as usize,
            _ => size,
        };
        let most = 1 << self.rng.between(8, 16);
        let length = 1 + self.rng.below(most) as usize;
        let bytes = bytes(&mut self.rng, number, length);
        let is_new = self.world.content(number, &path).is_none();
        self.world.begin(number, &path, if is_new { Change::Any } else { Change::Write(from..from + length) });
        let done = async {
            let file = self.client.open_or_create(&path).await?;
            let written = self.client.write(file, from as u64, &bytes).await;
            self.client.close(file).await.and(written)
        };
        match done.await {
            Ok(()) => self.world.end(number, &path, |now| {
                let content = Rc::make_mut(now.get_or_insert_default());
                content.resize(content.len().max(from + length), 0);
                content[from..from + length].copy_from_slice(&bytes);
            }),
            Err(error) => self.look(&path, error).await,
        }
    }

    async fn truncate(&mut self) {
        let (path, number) = (self.path(), self.number);
        let Some(content) = self.world.content(number, &path) else { return };
        let size = self.rng.below(1 + content.len() as u64 + 20_000) as usize;
        self.world.begin(number, &path, Change::Cut(size));
        match self.client.truncate(&path, size as u64).await {
            Ok(()) => self.world.end(number, &path, |now| Rc::make_mut(now.get_or_insert_default()).resize(size, 0)),
            Err(error) => self.look(&path, error).await,
        }
    }

    /// Whole blocks become holes, or zeroes.
    async fn punch(&mut self) {
        let (path, number) = (self.path(), self.number);
        let Some(content) = self.world.content(number, &path).filter(|content| !content.is_empty()) else { return };
        let from = self.rng.below(content.len() as u64) as usize;
        let to = (from + 1 + self.rng.below(100_000) as usize).min(content.len());
        self.world.begin(number, &path, Change::Write(from..to));
        let range = FileRange { offset: from as u64, bytes: (to - from) as u64 };
        match self.client.fallocate(&path, range, AllocateMode::PunchHole).await {
            Ok(()) => self.world.end(number, &path, |now| Rc::make_mut(now.get_or_insert_default())[from..to].fill(0)),
            Err(error) => self.look(&path, error).await,
        }
    }

    async fn rename(&mut self) {
        let (from, to, number) = (self.path(), self.path(), self.number);
        let Some(content) = self.world.content(number, &from).filter(|_| from != to) else { return };
        self.world.begin(number, &from, Change::Any);
        self.world.begin(number, &to, Change::Any);
        match self.client.rename(&from, &to, RenameMode::Replace).await {
            Ok(()) => {
                self.world.end(number, &from, |now| *now = None);
                self.world.end(number, &to, |now| *now = Some(content));
            }
            Err(error) => {
                self.look(&from, error.clone()).await;
                self.look(&to, error).await;
            }
        }
    }

    async fn unlink(&mut self) {
        let (path, number) = (self.path(), self.number);
        if self.world.content(number, &path).is_none() {
            return;
        }
        self.world.begin(number, &path, Change::Any);
        match self.client.unlink(&path).await {
            Ok(()) => self.world.end(number, &path, |now| *now = None),
            Err(error) => self.look(&path, error).await,
        }
    }

    /// A long name, so that the directory soon has several blocks, is created or removed.
    async fn name(&mut self) {
        let number = self.number;
        let path = format!("/c{number}/{}", format!("{:03}", self.rng.below(150)).repeat(70)).into_bytes();
        let exists = self.world.content(number, &path).is_some();
        self.world.begin(number, &path, Change::Any);
        let done = match exists {
            true => self.client.unlink(&path).await,
            false => self.client.write_file(&path, b"").await,
        };
        match done {
            Ok(()) => {
                self.world.end(number, &path, |now| *now = (!exists).then(Rc::default));
                if self.world.in_order && !exists {
                    let asked = self.world.tick();
                    self.world.known(number, &path, |known| known.acknowledge(known.now.clone(), asked));
                    self.world.may_kill(&mut self.rng);
                }
            }
            Err(error) => self.look(&path, error).await,
        }
    }

    async fn fsync(&mut self) {
        let (path, number) = (self.path(), self.number);
        let (asked, content) = (self.world.tick(), self.world.content(number, &path));
        if content.is_none() {
            return;
        }
        match self.client.fsync_path(&path).await {
            Ok(()) => {
                self.world.known(number, &path, |known| known.acknowledge(content, asked));
                self.world.may_kill(&mut self.rng);
            }
            Err(error) => assert!(error.is_no_space(), "{}: {error}", self.what),
        }
    }

    async fn sync(&mut self) {
        let (asked, contents) = (self.world.tick(), self.world.contents());
        match self.client.sync().await {
            Ok(()) => {
                for (client, path, content) in contents {
                    self.world.known(client, &path, |known| known.acknowledge(content, asked));
                }
                self.world.may_kill(&mut self.rng);
            }
            Err(error) => assert!(error.is_no_space(), "{}: {error}", self.what),
        }
    }

    /// Files with indirect blocks, which snapshots will have.
    async fn begin(&mut self) {
        for file in 0..3 {
            let path = format!("/c{}/f{file}", self.number).into_bytes();
            let length = 100_000 + self.rng.below(60_000) as usize;
            let content = bytes(&mut self.rng, self.number, length);
            self.world.begin(self.number, &path, Change::Any);
            self.client.write_file(&path, &content).await.unwrap_or_else(|error| panic!("{}: {error}", self.what));
            self.world.end(self.number, &path, |now| *now = Some(Rc::new(content)));
        }
        self.sync().await;
    }

    async fn work(mut self, steps: u64) {
        for _ in 0..steps {
            match self.rng.below(40) {
                0 => self.unlink().await,
                1 => self.truncate().await,
                2..4 => self.punch().await,
                4 => self.rename().await,
                5..11 => self.name().await,
                11..17 => self.fsync().await,
                17..20 => self.sync().await,
                _ => self.write().await,
            }
            self.rt.sleep(Nanos::from_millis(self.rng.below(12))).await;
        }
    }
}

/// The host makes a snapshot and becomes full. Files that were written since and are gone leave storage that the snapshot does not
/// have: there is room for some of what it refuses.
async fn hold(client: &Client, host: &Host, rng: &mut Rng) -> FsResult<()> {
    let paths: Vec<Vec<u8>> = (0..rng.between(2, 8)).map(|file| format!("/new{file}").into_bytes()).collect();
    host.snapshot();
    host.free(600);
    for path in &paths {
        client.write_file(path, &[0xff; 50_000]).await?;
    }
    client.sync().await?;
    host.fill();
    for path in &paths {
        client.unlink(path).await?;
    }
    client.sync().await
}

/// Other files come and go, and the host is full, has room, or makes a snapshot.
async fn change_host(rt: &Rt, client: &Client, host: &Host, rng: &mut Rng, what: &str) {
    for _ in 0..40 {
        rt.sleep(Nanos::from_millis(rng.below(60))).await;
        let path = format!("/other{}", rng.below(40)).into_bytes();
        let most = 1 << rng.between(2, 8);
        let done = match rng.below(10) {
            0 => Ok(host.free(rng.below(most))),
            1 | 2 => Ok(host.fill()),
            3 => Ok(host.snapshot()),
            6 | 7 => hold(client, host, rng).await,
            4 | 5 => client.write_file(&path, &vec![0xff; rng.below(100_000) as usize]).await,
            _ => client.unlink(&path).await,
        };
        match done {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) => assert!(error.is_no_space(), "{what}: {error}"),
        }
    }
}

/// Checks what a kill has left. The host has no room then, if it had none before.
async fn check(rt: &Rt, left: Left, options: Options, what: &str) {
    let ffs = mount(rt.clone(), left.host.clone(), options).await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let client = Client::new(ffs.clone());
    for (number, files) in left.files.iter().enumerate() {
        for (path, known) in files {
            let what = format!("{what}: {}", String::from_utf8_lossy(path));
            let found = match client.read_file(path).await {
                Ok(content) => Some(content),
                Err(FsError::NotFound) => None,
                Err(error) => panic!("{what}: {error}"),
            };
            known.check(found.as_deref(), number as u8 + 1, &what);
        }
    }
    let ffs = match ffs.has_nameless {
        false => ffs,
        true => {
            // Inodes whose names were not on the volume yet get names in `/lost+found` when there is room for these.
            drop((client, ffs));
            left.host.free(10_000);
            mount(rt.clone(), left.host.clone(), options).await.unwrap_or_else(|error| panic!("{what}: {error}"))
        }
    };
    assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new(), "{what}");
    ffs.close().await.unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_clean(rt, &(left.host.clone() as Device)).await;
}

async fn live(rt: &Rt, seed: u64, metadata: Metadata, what: &str) {
    let mut rng = Rng::new(seed);
    let host = Host::new(24 * MIB);
    let is_small = seed % 2 == 0;
    let shape = match is_small {
        true => MkfsOptions { block_bytes: 4096, frag_bytes: 512, ..small_groups() },
        false => small_groups(),
    };
    mkfs(rt, &(host.clone() as Device), &shape).await.unwrap();
    let fault = FaultDevice::new(rt, host.clone(), seed);
    let options = Options {
        metadata,
        dirty_bytes_max: 1 << rng.between(17, 22),
        update_interval: Nanos::from_millis(rng.between(20, 3000)),
        realloc_blocks: rng.chance(1, 3),
        ..Options::default()
    };
    let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
    let client = Client::new(ffs.clone());
    for number in 0..CLIENTS {
        client.mkdir(format!("/c{number}").as_bytes()).await.unwrap();
    }
    for number in 0..40 {
        client.write_file(format!("/other{number}").as_bytes(), &[0xff; 60_000]).await.unwrap();
    }
    client.sync().await.unwrap();
    fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(Nanos(0)..=Nanos::from_millis(3))));
    let world = World {
        host: host.clone(),
        left: RefCell::default(),
        files: Default::default(),
        moments: Cell::new(0),
        in_order: metadata == Metadata::Sync,
    };
    let workers = (0..CLIENTS).map(|number| {
        let (client, rng) = (Client::new(ffs.clone()), Rng::new(rng.below(u64::MAX)));
        // Behind what the direct and the singly indirect pointers reach; or there.
        let far = if is_small { (12 + 1024) * 4096 - 20_000 } else { 12 * 8192 };
        Worker { rt, client, number, world: &world, rng, far, what }
    });
    let mut workers: Vec<_> = workers.collect();
    for worker in &mut workers {
        worker.begin().await;
    }
    let workers: Vec<_> = workers.into_iter().map(|worker| worker.work(90)).collect();
    let kills: Vec<u64> = (0..KILLS).map(|_| rng.below(400)).collect();
    let killing = async {
        for millis in kills {
            rt.sleep(Nanos::from_millis(millis)).await;
            world.kill();
        }
    };
    let changing = change_host(rt, &client, &host, &mut rng, what);
    join(join(join_all(workers), killing), changing).await;
    let mut ended = Ok(());
    host.free(100_000);
    for _ in 0..2 {
        ended = client.sync().await;
    }
    ended.unwrap_or_else(|error| panic!("{what}: the host has room: {error}"));
    assert_eq!(ffs.check().await.unwrap(), Vec::<String>::new(), "{what}");
    for (number, kill) in world.left.take().into_iter().enumerate() {
        check(rt, kill, options, &format!("{what}, kill {number}")).await;
    }
    let files = world.files.iter().map(|files| {
        let mut files = files.borrow().clone();
        files.values_mut().for_each(|known| known.acknowledge(known.now.clone(), u64::MAX - 1));
        files
    });
    let files: Vec<Files> = files.collect();
    check(rt, Left { host: host.killed(), files }, options, &format!("{what}, in the end")).await;
}

#[test]
fn nothing_acknowledged_is_lost() {
    crate::rt::covered();
    let replay = replay("fs::ffs::tests::acknowledged::nothing_acknowledged_is_lost");
    for seed in replay.seeds(0..24) {
        let metadata = [Metadata::Sync, Metadata::Softdep][seed as usize / 2 % 2];
        let what = format!("{metadata:?}; again: {}", replay.command(seed, None, None, None));
        simulate(seed, async |rt| live(&rt, seed, metadata, &what).await);
    }
    must_have_covered("fs::ffs::tests::acknowledged::nothing_acknowledged_is_lost", super::relocate::POINTS);
}
