//! Aim: VLFS does what its interface says, and finds it again. Method: small programs over a device in memory or a
//! modelled disk, each followed by a remount and a full check.

mod crash;
mod damage;
mod disk;
mod idle;
mod model;
mod space;

use std::rc::Rc;

use super::*;
use crate::device::{Device, Image, Memory};
use crate::fs::client::Client;
use crate::fs::*;
use crate::rt::{Executor, HostProfile};
use crate::units::MIB;

/// Runs `program` in virtual time; a stall is a failure.
pub(super) fn simulate<T>(seed: u64, program: impl AsyncFnOnce(Rt) -> T) -> T {
    let executor = Executor::simulated(seed, HostProfile::NONE);
    let rt = executor.rt().clone();
    match executor.block_on(program(rt)) {
        Ok(value) => value,
        Err(stalled) => panic!("{stalled}"),
    }
}

pub(super) async fn fresh(rt: &Rt, bytes: u64) -> (Rc<Memory>, Device) {
    let memory = Rc::new(Memory::new(bytes));
    let device: Device = memory.clone();
    mkfs(rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await.expect("mkfs");
    (memory, device)
}

pub(super) async fn assert_clean(rt: &Rt, device: &Device) {
    let found = fsck(rt.clone(), device.clone(), FsckOptions { data: true }).await.expect("a volume");
    assert_eq!(found.errors, Vec::<String>::new());
}

/// Mounts, lets `program` work, closes, and checks.
pub(super) async fn session<T>(rt: &Rt, device: &Device, program: impl AsyncFnOnce(&Client) -> T) -> T {
    let fs = mount(rt.clone(), device.clone(), Options::default()).await.expect("mount");
    let client = Client::new(fs.clone());
    let result = program(&client).await;
    fs.close().await.expect("close");
    assert_clean(rt, device).await;
    result
}

#[test]
fn an_empty_volume_is_clean() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, MIB).await;
        assert_clean(&rt, &device).await;
        session(&rt, &device, async |client| {
            assert_eq!(client.read_dir(b"/").await, Ok(vec![]));
        })
        .await;
    });
}

#[test]
fn files_survive_a_remount() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 32 * MIB).await;
        let big: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
        let long_value = vec![9; 60_000];
        session(&rt, &device, async |client| {
            client.mkdir(b"/d").await.unwrap();
            for i in 0..1000 {
                client.write_file(format!("/d/f{i}").as_bytes(), format!("content {i}").as_bytes()).await.unwrap();
            }
            client.write_file(b"/big", &big).await.unwrap();
            client.symlink(b"target", b"/link").await.unwrap();
            client.set_xattr(b"/big", b"user.a", b"value").await.unwrap();
            client.set_xattr(b"/d/f7", b"user.long", &long_value).await.unwrap();
        })
        .await;
        session(&rt, &device, async |client| {
            assert_eq!(client.read_dir(b"/d").await.unwrap().len(), 1000);
            for i in 0..1000 {
                let read = client.read_file(format!("/d/f{i}").as_bytes()).await.unwrap();
                assert_eq!(read, format!("content {i}").as_bytes());
            }
            assert!(client.read_file(b"/big").await.unwrap() == big);
            assert_eq!(client.read_link(b"/link").await.unwrap(), b"target");
            assert_eq!(client.get_xattr(b"/big", b"user.a").await.unwrap(), b"value");
            assert!(client.get_xattr(b"/d/f7", b"user.long").await.unwrap() == long_value);
            for i in 0..1000 {
                client.unlink(format!("/d/f{i}").as_bytes()).await.unwrap();
            }
            client.rmdir(b"/d").await.unwrap();
            client.truncate(b"/big", 100_000).await.unwrap();
        })
        .await;
        session(&rt, &device, async |client| {
            assert!(client.read_file(b"/big").await.unwrap() == big[..100_000]);
            assert_eq!(client.read_dir(b"/").await.unwrap().len(), 2);
        })
        .await;
    });
}

/// What was synced is there after a crash without closing; what was removed is free.
#[test]
fn synced_files_survive_without_closing() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, 32 * MIB).await;
        let fs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(fs.clone());
        let big = vec![7; 2_000_000];
        client.mkdir(b"/d").await.unwrap();
        client.write_file(b"/d/big", &big).await.unwrap();
        client.fsync_path(b"/d/big").await.unwrap();
        client.write_file(b"/d/small", b"hello").await.unwrap();
        client.fsync_path(b"/d/small").await.unwrap();
        let crashed: Image = memory.image();
        let device: Device = Rc::new(Memory::from_image(32 * MIB, crashed));
        assert_clean(&rt, &device).await;
        session(&rt, &device, async |client| {
            assert!(client.read_file(b"/d/big").await.unwrap() == big);
            assert_eq!(client.read_file(b"/d/small").await.unwrap(), b"hello");
        })
        .await;
    });
}

/// Everything that can show is a function of the seed: the bytes on the device, and the time it took.
#[test]
fn same_seed_same_bytes_and_time() {
    let run = |seed| {
        simulate(seed, async |rt| {
            let (memory, device) = fresh(&rt, 16 * MIB).await;
            session(&rt, &device, async |client| {
                for i in 0..200 {
                    client.write_file(format!("/f{i}").as_bytes(), &[i as u8; 5000]).await.unwrap();
                    rt.sleep(Nanos::from_millis(100)).await;
                }
            })
            .await;
            let mut bytes = vec![0; 16 * MIB as usize];
            memory.image().read(crate::units::Sector(0), &mut bytes);
            (crate::codec::crc32c(&bytes), rt.now())
        })
    };
    assert_eq!(run(1), run(1));
}

/// A device that writes whole blocks of 4 KiB only, as drives of today.
struct Advanced(Rc<Memory>);

#[async_trait::async_trait(?Send)]
impl crate::device::BlockDevice for Advanced {
    fn geometry(&self) -> crate::device::Geometry {
        crate::device::Geometry { block_bytes: 4096, ..self.0.geometry() }
    }
    fn guarantees(&self) -> crate::device::Guarantees {
        self.0.guarantees()
    }
    async fn read(
        &self,
        at: crate::units::Sector,
        buf: crate::device::Buf,
    ) -> Result<crate::device::Buf, crate::device::DeviceError> {
        self.geometry().check(at, buf.len() as u64)?;
        self.0.read(at, buf).await
    }
    async fn write(
        &self,
        at: crate::units::Sector,
        data: crate::device::Data,
        flags: crate::device::WriteFlags,
    ) -> Result<(), crate::device::DeviceError> {
        self.geometry().check(at, data.len() as u64)?;
        self.0.write(at, data, flags).await
    }
    async fn flush(&self) -> Result<(), crate::device::DeviceError> {
        self.0.flush().await
    }
    async fn discard(&self, at: crate::units::Sector, sectors: u64) -> Result<(), crate::device::DeviceError> {
        self.0.discard(at, sectors).await
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

/// Where nothing shorter than a block can be written, cells are blocks, and 16 inodes share one.
#[test]
fn sectors_of_4096_bytes() {
    simulate(1, async |rt| {
        let device: Device = Rc::new(Advanced(Rc::new(Memory::new(16 * MIB))));
        mkfs(&rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await.expect("mkfs");
        session(&rt, &device, async |client| {
            for i in 0..300 {
                client.write_file(format!("/f{i}").as_bytes(), &vec![i as u8; i * 20]).await.unwrap();
                if i % 10 == 0 {
                    client.fsync_path(format!("/f{i}").as_bytes()).await.unwrap();
                }
            }
            for i in (0..300).step_by(2) {
                client.unlink(format!("/f{i}").as_bytes()).await.unwrap();
            }
        })
        .await;
        session(&rt, &device, async |client| {
            for i in (1..300).step_by(2) {
                assert!(client.read_file(format!("/f{i}").as_bytes()).await.unwrap() == vec![i as u8; i * 20]);
            }
        })
        .await;
    });
}
