//! Aim: a host that is full at any moment costs nothing that was synced. The volume of a daemon that was killed there can be
//! mounted, and files deleted, without room. Method: an image on a host that other programs fill; lives that end by a kill.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use super::*;
use crate::device::{BlockDevice, Buf, Data, DeviceError, Geometry, Guarantees, WriteFlags};
use crate::fs::lfs::CLEANERS;
use crate::rng::Rng;
use crate::testing::environment;
use crate::units::{SECTOR_BYTES, Sector};

const HOST_BLOCK_SECTORS: u64 = 8;

/// A sparse file on a host that has room for so many blocks more.
struct Host {
    file: Rc<Memory>,
    allocated: RefCell<BTreeSet<u64>>,
    room: Cell<u64>,
    /// Another program takes what is given back.
    is_busy: Cell<bool>,
}

impl Host {
    fn new(bytes: u64) -> Rc<Host> {
        let (allocated, is_busy) = (RefCell::default(), Cell::new(false));
        Rc::new(Host { file: Rc::new(Memory::new(bytes)), allocated, room: Cell::new(u64::MAX / 2), is_busy })
    }

    /// Another program fills the host.
    fn fill(&self) {
        self.room.set(0);
        self.is_busy.set(true);
    }

    fn free(&self, blocks: u64) {
        self.room.set(blocks);
        self.is_busy.set(false);
    }

    /// What is there when the daemon is killed: all that it has written.
    fn killed(&self) -> Rc<Host> {
        Rc::new(Host {
            file: Rc::new(Memory::from_image(self.file.geometry().bytes(), self.file.image())),
            allocated: self.allocated.clone(),
            room: self.room.clone(),
            is_busy: self.is_busy.clone(),
        })
    }

    /// Allocates from the beginning on. What there is room for stays allocated when the rest fails, as on ext4.
    fn allocate(&self, at: Sector, bytes: u64) -> Result<(), DeviceError> {
        for block in at.0 / HOST_BLOCK_SECTORS..(at.0 + bytes / SECTOR_BYTES).div_ceil(HOST_BLOCK_SECTORS) {
            if !self.allocated.borrow().contains(&block) {
                let Some(room) = self.room.get().checked_sub(1) else { return Err(DeviceError::NoSpace { at, bytes }) };
                self.room.set(room);
                self.allocated.borrow_mut().insert(block);
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
        self.allocate(at, data.len() as u64)?;
        self.file.write(at, data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.file.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        let whole = at.0.div_ceil(HOST_BLOCK_SECTORS)..(at.0 + sectors) / HOST_BLOCK_SECTORS;
        for block in whole {
            let was_allocated = self.allocated.borrow_mut().remove(&block);
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
}

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
    async fn change(&mut self, client: &Client, rng: &mut Rng) {
        let file = rng.below(90);
        let (byte, length) = (rng.below(256) as u8, rng.below(60 * 1024) as usize);
        self.synced.remove(&file);
        let done = async {
            match rng.below(8) {
                0 => client.unlink(&path(file)).await,
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
            Ok(()) | Err(FsError::NoSpace | FsError::NotFound) => {}
            Err(error) => panic!("file {file}: {error}"),
        }
    }
}

/// Aim: what is removed keeps its storage for a while, and what is written in the meantime needs none of the host. Then the host gets it
/// back; at the latest when the volume is closed. Method: blocks of the host are counted.
#[test]
fn storage_is_kept_for_a_while() {
    simulate(1, async |rt| {
        let after = Nanos::from_secs(30);
        let options = Options { discard_after: after, ..Options::default() };
        let host = Host::new(128 * MIB);
        let blocks = || host.allocated.borrow().len() as u64;
        mkfs(&rt, &(host.clone() as Device), &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
        let lfs = mount(rt.clone(), host.clone(), options).await.unwrap();
        let client = Client::new(lfs.clone());
        let few = blocks();
        let round = async |byte: u8| {
            for file in 0..40 {
                client.write_file(&path(file), &vec![byte; MIB as usize]).await.unwrap();
            }
            client.sync().await.unwrap();
            let full = blocks();
            for file in 0..40 {
                client.unlink(&path(file)).await.unwrap();
            }
            // Two checkpoints: all of it is let go of.
            for _ in 0..3 {
                client.write_file(b"/small", &[byte; 100]).await.unwrap();
                rt.sleep(Nanos::from_secs(2)).await;
                client.sync().await.unwrap();
                client.fs().syncfs().await.unwrap();
            }
            full
        };
        let full = round(1).await;
        assert!(full > few + 35 * 256, "{full} blocks, {few} when it was empty");
        assert!(blocks() > few + 30 * 256, "{} blocks of {full} are left at once", blocks());
        // Two checkpoints, and the time.
        rt.sleep(Nanos::from_secs(100)).await;
        assert!(blocks() < few + 8 * 256, "{} blocks are left, {few} when it was empty", blocks());

        round(2).await;
        client.write_file(b"/large", &vec![3; 40 * MIB as usize]).await.unwrap();
        client.sync().await.unwrap();
        client.unlink(b"/large").await.unwrap();
        lfs.close().await.unwrap();
        assert!(blocks() < few + 8 * 256, "{} blocks are left by a close, {few} when it was empty", blocks());
        drop((client, lfs));
        assert_clean(&rt, &(host.clone() as Device)).await;
    });
}

#[test]
fn killed_on_a_full_host() {
    let replay = environment::replay("fs::lfs::tests::full_host::killed_on_a_full_host");
    for seed in replay.seeds(1..9) {
        let again = replay.command(seed, None, None, None);
        simulate(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let options = Options {
                cleaner: CLEANERS[(seed % CLEANERS.len() as u64) as usize],
                dirty_bytes_max: KIB << rng.between(7, 13),
                discard: rng.chance(3, 4),
                discard_after: Nanos::from_millis(rng.below(2) * rng.below(9000)),
                checkpoint_interval: Nanos::from_millis(rng.between(20, 20_000)),
                ..Options::default()
            };
            let mut host = Host::new(MIB << (4 + seed % 3));
            mkfs(&rt, &(host.clone() as Device), &MkfsOptions::new([1, 2, 3, seed])).await.unwrap();
            let mut expected = Expected::default();
            for life in 0..12 {
                let what = format!("life {life} with {options:?}; again: {again}");
                let mounted = mount(rt.clone(), host.clone(), options).await;
                let lfs = mounted.unwrap_or_else(|error| {
                    panic!("a mount with room for {} blocks, {what}: {error}", host.room.get())
                });
                let client = Client::new(lfs.clone());
                expected.check(&client, &what).await;
                // Files can be deleted, and then others have room.
                if host.room.get() == 0 {
                    for file in 0..30 {
                        let gone = client.unlink(&path(file)).await;
                        assert!(matches!(gone, Ok(()) | Err(FsError::NotFound)), "{what}: unlink {file}: {gone:?}");
                        expected.synced.remove(&file);
                    }
                    client.sync().await.unwrap();
                }
                let room = 1 << rng.between(4, 13);
                host.free(rng.below(room));
                for _ in 0..rng.between(20, 200) {
                    match rng.below(30) {
                        0 => host.fill(),
                        1 => host.free(rng.below(600)),
                        2 => rt.sleep(Nanos::from_millis(rng.below(3000))).await,
                        _ => expected.change(&client, &mut rng).await,
                    }
                }
                let problems = lfs.check().await.unwrap();
                assert_eq!(problems, Vec::<String>::new(), "{what}");
                host.fill();
                host = host.killed();
            }
        });
    }
}
