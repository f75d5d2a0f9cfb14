//! Aim: tasks that meet at a file, a directory or a buffer do not wait for each other forever, and see what the other
//! has done. Method: small programs on devices that hold up the request that matters.

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{BlockDevice, Data, DeviceError, Geometry, Guarantees, WriteFlags};
use crate::fs::ffs::cache::BufferKind;
use crate::fs::ffs::state::inner;
use crate::units::Sector;

const BYTES: u64 = 64 * MIB;

/// A task that holds the lock of a file writes back what is too much. Another one holds the lock of the directory, and
/// waits for that of the file.
#[test]
fn writing_back_under_the_lock_of_a_file() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let device = CrashDevice::new(
                &rt,
                Default::default(),
                CrashOptions { record: false, ..CrashOptions::volatile(BYTES) },
            );
            mkfs(&rt, &(device.clone() as Device), &small_groups()).await.unwrap();
            let options = Options { metadata, dirty_bytes_max: 64 << 10, ..Options::default() };
            let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            client.mkdir(b"/d").await.unwrap();
            client.write_file(b"/d/f", b"").await.unwrap();
            let allocating = {
                let client = Client::new(ffs.clone());
                rt.spawn(async move {
                    for number in 0..200 {
                        let range = FileRange { offset: number * 16 * MIB, bytes: 4096 };
                        client.fallocate(b"/d/f", range, AllocateMode::Allocate { keep_size: false }).await.unwrap();
                    }
                })
            };
            for number in 0.. {
                if allocating.is_finished() {
                    break;
                }
                let (new, link) = (format!("/d/x{number}"), format!("/d/link{number}"));
                client.write_file(new.as_bytes(), b"").await.unwrap();
                client.link(b"/d/f", link.as_bytes()).await.unwrap();
                client.unlink(link.as_bytes()).await.unwrap();
                client.unlink(new.as_bytes()).await.unwrap();
                rt.sleep(Nanos::from_micros(10)).await;
            }
            allocating.await;
            ffs.close().await.unwrap();
            assert_clean(&rt, &(device as Device)).await;
        });
    }
}

/// A directory is read without its lock, by a task that makes it durable, while another task removes a name from it: the
/// name stays removed. Method: the second of its two blocks is read slowly, for the task that removes.
#[test]
fn an_index_of_before() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        for first in [false, true] {
            simulate(1, async |rt| {
                let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
                let fault = FaultDevice::new(&rt, device.clone(), 1);
                let options = Options { metadata, ..Options::default() };
                let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
                let client = Client::new(ffs.clone());
                client.mkdir(b"/d").await.unwrap();
                for number in 0..60 {
                    client.write_file(format!("/d/{number:->200}").as_bytes(), b"").await.unwrap();
                }
                let dir = client.stat(b"/d").await.unwrap().ino;
                let number = inner(dir).unwrap();
                let second = ffs.step(|state| state.block_at(number, 1)).await.unwrap().unwrap();
                let place = {
                    let layout = &ffs.state.borrow().layout;
                    layout.sector(second)..layout.sector(second + 1)
                };
                client.fs().drop_caches().await.unwrap();
                let slow = Nanos::from_millis(20)..=Nanos::from_millis(20);
                fault.add(Rule::new(Kinds::READ, When::Always, Effect::Delay(slow)).within(place));
                let name = format!("{:->200}", 0);
                let syncing = |millis| {
                    let (ffs, rt) = (ffs.clone(), rt.clone());
                    async move {
                        rt.sleep(Nanos::from_millis(millis)).await;
                        ffs.fsyncdir(dir, None).await
                    }
                };
                let before = first.then(|| rt.spawn(syncing(0)));
                let removing = {
                    let (ffs, name) = (ffs.clone(), name.clone());
                    rt.spawn(async move { ffs.unlink(dir, name.as_bytes()).await })
                };
                let after = rt.spawn(syncing(5));
                removing.await.unwrap();
                after.await.unwrap();
                if let Some(before) = before {
                    before.await.unwrap();
                }
                fault.clear();
                let found = ffs.lookup(dir, name.as_bytes()).await.map(drop);
                assert_eq!(found, Err(FsError::NotFound), "{metadata:?}");
                ffs.close().await.unwrap();
                assert_clean(&rt, &device).await;
            });
        }
    }
}

/// A buffer that another task has written, and that is no longer in memory, is durable when a task that relies on it goes
/// on.
#[test]
fn a_buffer_that_is_gone() {
    simulate(1, async |rt| {
        let options = CrashOptions { record: false, ..CrashOptions::volatile(BYTES) };
        let device = CrashDevice::new(&rt, Default::default(), options);
        mkfs(&rt, &(device.clone() as Device), &small_groups()).await.unwrap();
        let options = Options { cache_data: false, ..Options::default() };
        let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/f", &[1; 8192]).await.unwrap();
        let ino = inner(client.stat(b"/f").await.unwrap().ino).unwrap();
        let at = ffs.step(|state| state.block_at(ino, 0)).await.unwrap().unwrap();
        assert!(matches!(ffs.state.borrow().cache.peek(at).unwrap().kind, BufferKind::File { .. }));
        ffs.push(vec![at], false);
        while ffs.state.borrow().cache.peek(at).is_some() {
            rt.sleep(Nanos::from_millis(1)).await;
        }
        let flushes = ffs.state.borrow().counters.flushes;
        ffs.write_now(at).await.unwrap();
        assert_eq!(ffs.state.borrow().counters.flushes, flushes + 1);
        ffs.close().await.unwrap();
        assert_clean(&rt, &(device as Device)).await;
    });
}

/// A device with a volatile cache, whose first flush after `fails` was set takes long and fails. Only that one gets the error.
struct FailsOnce {
    memory: Memory,
    rt: Rt,
    fails: std::cell::Cell<bool>,
}

#[async_trait(?Send)]
impl BlockDevice for FailsOnce {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { durable_on_completion: false, ..self.memory.guarantees() }
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.memory.read(at, buf).await
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.memory.write(at, data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        if self.fails.take() {
            self.rt.sleep(Nanos::from_millis(50)).await;
            return Err(DeviceError::Io {
                operation: "flush",
                at: Sector(0),
                bytes: 0,
                cause: "a write before it was lost".into(),
            });
        }
        self.memory.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.memory.discard(at, sectors).await
    }

    fn describe(&self) -> String {
        "a device whose flush fails once".into()
    }
}

/// A device may report the error of a write to only one of two flushes that run at once: both callers get it.
#[test]
fn two_flushes_share_an_error() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let device = Rc::new(FailsOnce { memory: Memory::new(16 * MIB), rt: rt.clone(), fails: false.into() });
            mkfs(&rt, &(device.clone() as Device), &small_groups()).await.unwrap();
            let ffs = mount(rt.clone(), device.clone(), Options { metadata, ..Options::default() }).await.unwrap();
            device.fails.set(true);
            let first = {
                let ffs = ffs.clone();
                rt.spawn(async move { ffs.flush().await })
            };
            rt.sleep(Nanos::from_millis(1)).await;
            let second = ffs.flush().await;
            assert!(matches!(second, Err(FsError::Stopped(_))), "{metadata:?}: {second:?}");
            assert!(first.await.is_err(), "{metadata:?}");
        });
    }
}
