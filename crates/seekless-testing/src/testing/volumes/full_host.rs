//! Aim: a host that is full at any moment costs nothing that was synced. Files can be deleted, the volume of a daemon that was
//! killed can be mounted, and what is deleted has room for others, without room on the host. Method: an image on a host
//! that other programs fill; lives that end by a kill.

pub mod cuts;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use async_trait::async_trait;
use futures_util::future::try_join;

use super::assert_clean;
use crate::device::{BlockDevice, Buf, Data, Device, DeviceError, Geometry, Guarantees, Image, Memory, WriteFlags};
use crate::fs::client::{Client, OpenFile};
use crate::fs::{FsError, FsResult, OpenFlags};
use crate::rng::Rng;
use crate::rt::Rt;
use crate::testing::FsUnderTest;
use crate::testing::life::is_no_space;
use crate::units::{KIB, Nanos, SECTOR_BYTES, Sector};

const HOST_BLOCK_SECTORS: u64 = 8;

/// A sparse file on a host that has room for so many blocks more.
pub struct Host {
    file: Rc<Memory>,
    allocated: RefCell<BTreeSet<u64>>,
    /// Blocks that a snapshot of the host has, too: writing over one takes a block.
    held: RefCell<BTreeSet<u64>>,
    pub room: Cell<u64>,
    /// Another program takes what is given back.
    is_busy: Cell<bool>,
    /// Writes until the daemon is killed, and what was there then.
    writes_left: Cell<u64>,
    at_kill: RefCell<Option<(Image, BTreeSet<u64>)>>,
}

impl Host {
    pub fn new(bytes: u64) -> Rc<Host> {
        Rc::new(Host {
            file: Rc::new(Memory::new(bytes)),
            allocated: RefCell::default(),
            held: RefCell::default(),
            room: Cell::new(u64::MAX / 2),
            is_busy: Cell::new(false),
            writes_left: Cell::new(u64::MAX),
            at_kill: RefCell::default(),
        })
    }

    /// Blocks that the file takes.
    pub fn blocks(&self) -> u64 {
        self.allocated.borrow().len() as u64
    }

    /// Whether the file has a block.
    pub fn has(&self, block: u64) -> bool {
        self.allocated.borrow().contains(&block)
    }

    /// Another program fills the host.
    pub fn fill(&self) {
        self.room.set(0);
        self.is_busy.set(true);
    }

    /// It has room for so many blocks again.
    pub fn free(&self, blocks: u64) {
        self.room.set(blocks);
        self.is_busy.set(false);
    }

    /// The host, which copies on write, makes a snapshot of the file.
    pub fn snapshot(&self) {
        self.held.replace(self.allocated.borrow().clone());
    }

    /// The daemon will be killed in so many writes.
    pub fn kill_after(&self, writes: u64) {
        self.writes_left.set(writes);
    }

    pub fn has_been_killed(&self) -> bool {
        self.at_kill.borrow().is_some()
    }

    /// What is there when the daemon is killed: all that it had written by then. The snapshot is removed.
    pub fn killed(&self) -> Rc<Host> {
        let now = || (self.file.image(), self.allocated.borrow().clone());
        let (image, allocated) = self.at_kill.take().unwrap_or_else(now);
        Rc::new(Host {
            file: Rc::new(Memory::from_image(self.file.geometry().bytes(), image)),
            allocated: allocated.into(),
            held: RefCell::default(),
            room: self.room.clone(),
            is_busy: self.is_busy.clone(),
            writes_left: Cell::new(u64::MAX),
            at_kill: RefCell::default(),
        })
    }

    /// Allocates from the beginning on. What there is room for stays allocated when the rest fails, as on ext4.
    fn allocate(&self, at: Sector, bytes: u64) -> Result<(), DeviceError> {
        for block in at.0 / HOST_BLOCK_SECTORS..(at.0 + bytes / SECTOR_BYTES).div_ceil(HOST_BLOCK_SECTORS) {
            if !self.allocated.borrow().contains(&block) || self.held.borrow().contains(&block) {
                let Some(room) = self.room.get().checked_sub(1) else { return Err(DeviceError::NoSpace { at, bytes }) };
                self.room.set(room);
                self.allocated.borrow_mut().insert(block);
                self.held.borrow_mut().remove(&block);
            }
        }
        Ok(())
    }
}

#[async_trait(?Send)]
impl BlockDevice for Host {
    fn geometry(&self) -> Geometry {
        self.file.geometry()
    }

    fn guarantees(&self) -> Guarantees {
        self.file.guarantees()
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.file.read(at, buf).await
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        if self.writes_left.get() == 0 && !self.has_been_killed() {
            let then = (self.file.image(), self.allocated.borrow().clone());
            *self.at_kill.borrow_mut() = Some(then);
        }
        self.writes_left.update(|left| left.saturating_sub(1));
        self.allocate(at, data.len() as u64)?;
        self.file.write(at, data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.file.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let whole = at.0.div_ceil(HOST_BLOCK_SECTORS)..(at.0 + sectors) / HOST_BLOCK_SECTORS;
        for block in whole {
            let was_allocated = self.allocated.borrow_mut().remove(&block) && !self.held.borrow_mut().remove(&block);
            self.room.update(|room| room + u64::from(was_allocated && !self.is_busy.get()));
        }
        self.file.discard(at, sectors).await
    }

    async fn provision(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.allocate(at, sectors * SECTOR_BYTES)
    }

    fn describe(&self) -> String {
        "a sparse file on a small host".to_owned()
    }
}

/// Files of one byte each, over and over.
#[derive(Default)]
struct Expected {
    /// What was synced and not touched since.
    synced: BTreeMap<u64, (u8, usize)>,
    /// Files without a name that are open.
    nameless: Vec<OpenFile>,
}

/// Files without a name that are open at once.
const NAMELESS_MAX: usize = 6;

fn path(file: u64) -> Vec<u8> {
    format!("/f{file}").into_bytes()
}

impl Expected {
    async fn check(&self, client: &Client, what: &str) {
        for (&file, &(byte, length)) in &self.synced {
            let found = client.read_file(&path(file)).await;
            let found = found.unwrap_or_else(|error| panic!("{what}: file {file} of {length} bytes: {error}"));
            assert!(found == vec![byte; length], "{what}: file {file} holds {} other bytes", found.len());
        }
    }

    /// One change, and often an fsync. Lack of room is no failure.
    async fn change(&mut self, client: &Client, rng: &mut Rng) -> u64 {
        let file = rng.below(90);
        let (byte, length) = (rng.below(256) as u8, rng.below(60 * 1024) as usize);
        self.synced.remove(&file);
        let done = async {
            match rng.below(10) {
                0 => client.unlink(&path(file)).await,
                8 => {
                    let open = client.open(&path(file), OpenFlags::READ).await?;
                    self.nameless.push(open);
                    client.unlink(&path(file)).await
                }
                9 if !self.nameless.is_empty() => {
                    let open = self.nameless.swap_remove(rng.below(self.nameless.len() as u64) as usize);
                    client.close(open).await
                }
                1 => client.truncate(&path(file), 4096 * rng.below(20)).await,
                2 => client.sync().await,
                _ => {
                    client.unlink(&path(file)).await.or_else(|error| match error {
                        FsError::NotFound => Ok(()),
                        error => Err(error),
                    })?;
                    client.write_file(&path(file), &vec![byte; length]).await?;
                    client.fsync_path(&path(file)).await?;
                    self.synced.insert(file, (byte, length));
                    Ok(())
                }
            }
        };
        match done.await {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(error) if is_no_space(&error) => {}
            Err(error) => panic!("file {file}: {error}"),
        }
        if self.nameless.len() > NAMELESS_MAX {
            client.close(self.nameless.remove(0)).await.unwrap_or_else(|error| panic!("a close: {error}"));
        }
        file
    }
}

/// Twelve lives on a host that other programs fill, each ended by a kill. After those where the host has no room, files can be
/// deleted and synced. `what` says how to repeat a failure.
pub async fn lives(rt: &Rt, subject: &dyn FsUnderTest, bytes: u64, rng: &mut Rng, what: &str) {
    let mut host = Host::new(bytes);
    subject.mkfs(rt, host.clone()).await.expect("mkfs");
    let mut expected = Expected::default();
    for life in 0..12 {
        let what = format!("life {life} with {what}");
        let mounted = subject.mount(rt, host.clone()).await;
        let fs =
            mounted.unwrap_or_else(|error| panic!("a mount with room for {} blocks, {what}: {error}", host.room.get()));
        let client = Client::new(fs.clone());
        expected.check(&client, &what).await;
        // Files can be deleted, and then others have room.
        if host.room.get() == 0 {
            for file in 0..30 {
                let gone = client.unlink(&path(file)).await;
                assert!(matches!(gone, Ok(()) | Err(FsError::NotFound)), "{what}: unlink {file}: {gone:?}");
                expected.synced.remove(&file);
            }
            client.sync().await.unwrap_or_else(|error| panic!("{what}: a sync after deleting: {error}"));
        }
        // What was synced when it is killed: not what is being changed then.
        let mut at_kill: Option<BTreeMap<u64, (u8, usize)>> = None;
        host.kill_after(rng.below(2000));
        let room = 1 << rng.between(4, 13);
        host.free(rng.below(room));
        for _ in 0..rng.between(20, 200) {
            let mut changed = None;
            match rng.below(30) {
                0 => host.fill(),
                1 => host.free(rng.below(600)),
                2 => rt.sleep(Nanos::from_millis(rng.below(3000))).await,
                _ => changed = Some(expected.change(&client, rng).await),
            }
            if host.has_been_killed() && at_kill.is_none() {
                let mut synced = expected.synced.clone();
                changed.map(|file| synced.remove(&file));
                at_kill = Some(synced);
            }
        }
        let problems = fs.check().await.unwrap();
        assert_eq!(problems, Vec::<String>::new(), "{what}");
        host.fill();
        expected.nameless.clear();
        expected.synced = at_kill.unwrap_or(expected.synced);
        host = host.killed();
    }
    let device: Device = host.clone();
    assert_clean(rt, subject, &device).await;
}

const FILE_BYTES: usize = 200 * KIB as usize;

/// Writes and syncs files until there is no room, from number `from` on; returns the number of the next.
async fn fill_synced(client: &Client, from: u64) -> u64 {
    for file in from.. {
        let written = async {
            client.write_file(&path(file), &vec![file as u8; FILE_BYTES]).await?;
            client.fsync_path(&path(file)).await
        };
        match written.await {
            Ok(()) => {}
            Err(error) if is_no_space(&error) => {
                let _ = client.unlink(&path(file)).await;
                return file;
            }
            Err(error) => panic!("file {file}: {error}"),
        }
    }
    unreachable!("the host has an end")
}

/// Files that are deleted at a time.
const DELETED: u64 = 20;

/// On a full host, two clients delete and sync, twice in a row; the host gets room, and files of the same size fit again.
/// Killed there, the volume can be mounted, what was deleted is gone and everything else is there; and so on, three
/// times. In the last life everything is deleted; if the subject `discards`, the host then has the space again. It stores so many
/// `copies` of its data.
pub async fn deleting_needs_no_room(rt: &Rt, subject: &dyn FsUnderTest, bytes: u64, copies: f64, discards: bool) {
    let room = bytes / 4096 / 4;
    let mut host = Host::new(bytes);
    subject.mkfs(rt, host.clone()).await.expect("mkfs");
    host.free(room);
    let (mut first, mut end) = (0, 0);
    for life in 0..3 {
        let fs = subject.mount(rt, host.clone()).await.unwrap_or_else(|error| panic!("life {life}: mount: {error}"));
        let client = Client::new(fs.clone());
        for file in 0..first {
            let found = client.read_file(&path(file)).await;
            assert_eq!(found, Err(FsError::NotFound), "life {life}: file {file} was deleted");
        }
        for file in first..end {
            let found = client.read_file(&path(file)).await;
            let found = found.unwrap_or_else(|error| panic!("life {life}: file {file}: {error}"));
            assert!(found == vec![file as u8; FILE_BYTES], "life {life}: file {file}");
        }
        if life == 0 {
            end = fill_synced(&client, 0).await;
            assert!((end as usize * FILE_BYTES) as f64 * copies > (room * 3072) as f64, "{end} files in {room} blocks");
        }
        for round in 0..2 {
            host.fill();
            let what = format!("life {life}, round {round}, files {first}..{end}");
            let before = host.blocks();
            let delete = async |from: u64, files: u64| -> FsResult<()> {
                for file in from..from + files {
                    client.unlink(&path(file)).await?;
                    client.sync().await?;
                }
                Ok(())
            };
            let clients = try_join(delete(first, DELETED / 2), delete(first + DELETED / 2, DELETED / 2));
            clients.await.unwrap_or_else(|error| panic!("{what}: {error}"));
            first += DELETED;
            // File systems that discard after a while do so at once on a full host.
            rt.sleep(Nanos::from_secs(40)).await;
            client.sync().await.unwrap_or_else(|error| panic!("{what}: a sync: {error}"));
            let freed = before.saturating_sub(host.blocks());
            host.free(freed);
            let written = fill_synced(&client, end).await - end;
            println!("{what}: {freed} of {before} blocks came back; {written} files fit again");
            assert!(written >= DELETED / 2, "{what}: {written} files in {freed} blocks");
            end += written;
        }
        assert_eq!(fs.check().await.expect("recounted"), Vec::<String>::new());
        host.fill();
        if life < 2 {
            drop((client, fs));
            host = host.killed();
            continue;
        }
        let before = host.blocks();
        for file in first..end {
            client.unlink(&path(file)).await.unwrap();
        }
        client.sync().await.unwrap();
        fs.close().await.unwrap();
        println!("{} of {before} blocks are left when everything is deleted", host.blocks());
        assert!(!discards || host.blocks() < before / 2, "{} of {before} blocks are left", host.blocks());
    }
    let device: Device = host.clone();
    assert_clean(rt, subject, &device).await;
}
