//! Aim: LFS does what its interface says, and finds it again. Method: small programs over a device in memory,
//! each followed by a remount and a full check.

mod crash;
mod damage;
mod model;
mod space;

use std::rc::Rc;

use super::*;
use crate::device::{Device, Image, Memory};
use crate::fs::client::Client;
use crate::fs::*;
use crate::rt::{Executor, HostProfile};
use crate::units::{MIB, Nanos};

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
    let found = fsck(rt.clone(), device.clone(), FsckOptions { data: true }).await.expect("fsck runs");
    assert_eq!(found.errors, Vec::<String>::new());
}

/// Mounts, runs `program`, closes, checks.
async fn session(rt: &Rt, device: &Device, program: impl AsyncFnOnce(Client)) {
    let lfs = mount(rt.clone(), device.clone(), Options::default()).await.expect("mount");
    program(Client::new(lfs.clone())).await;
    lfs.close().await.expect("close");
    drop(lfs);
    assert_clean(rt, device).await;
}

#[test]
fn an_empty_volume_is_clean() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 9 * MIB).await;
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
        session(&rt, &device, async |client| {
            client.mkdir(b"/d").await.unwrap();
            for i in 0..1000 {
                client.write_file(format!("/d/f{i}").as_bytes(), format!("content {i}").as_bytes()).await.unwrap();
            }
            client.write_file(b"/big", &big).await.unwrap();
            client.symlink(b"target", b"/link").await.unwrap();
            client.set_xattr(b"/big", b"user.a", b"value").await.unwrap();
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

/// What was synced is there after a crash without closing, by rolling forward.
#[test]
fn synced_files_survive_without_closing() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, 32 * MIB).await;
        let lfs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
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

/// Aim: a program that was given capabilities loses them with every change of data, size or owner, and keeps them, and
/// all other attributes, otherwise. Method: each kind of change, with and without another attribute.
#[test]
fn changes_take_capabilities_away() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 9 * MIB).await;
        session(&rt, &device, async |client| {
            let range = FileRange { offset: 0, bytes: 4096 };
            for (change, keeps) in [(0, false), (1, false), (2, false), (3, false), (4, true), (5, true)] {
                client.write_file(b"/program", &[1; 5000]).await.unwrap();
                client.set_xattr(b"/program", XATTR_CAPABILITY, b"all").await.unwrap();
                if change % 2 == 0 {
                    client.set_xattr(b"/program", b"user.other", b"value").await.unwrap();
                }
                client.fs().drop_caches().await.unwrap();
                match change {
                    0 => {
                        let file = client.open(b"/program", OpenFlags::READ_WRITE).await.unwrap();
                        client.write(file, 10_000, b"x").await.unwrap();
                        client.close(file).await.unwrap();
                    }
                    1 => client.truncate(b"/program", 100).await.unwrap(),
                    2 => client.fallocate(b"/program", range, AllocateMode::PunchHole).await.unwrap(),
                    3 => {
                        let owner = SetAttr { uid: Some(7), ..SetAttr::default() };
                        client.setattr(b"/program", owner).await.unwrap();
                    }
                    4 => client.rename(b"/program", b"/program2", RenameMode::Replace).await.unwrap(),
                    _ => client.link(b"/program", b"/program2").await.unwrap(),
                }
                let name: &[u8] = if change < 4 { b"/program" } else { b"/program2" };
                let found = client.get_xattr(name, XATTR_CAPABILITY).await;
                assert_eq!(
                    found,
                    if keeps { Ok(b"all".to_vec()) } else { Err(FsError::NoAttribute) },
                    "change {change}"
                );
                assert_eq!(client.get_xattr(name, b"user.other").await.is_ok(), change % 2 == 0, "change {change}");
                client.unlink(name).await.unwrap();
                let _ = client.unlink(b"/program").await;
            }
        })
        .await;
    });
}

/// Exchanging a name with itself changes nothing, not even times.
#[test]
fn a_name_exchanged_with_itself() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 9 * MIB).await;
        session(&rt, &device, async |client| {
            client.write_file(b"/a", b"x").await.unwrap();
            let (root, file) = (client.stat(b"/").await.unwrap(), client.stat(b"/a").await.unwrap());
            rt.sleep(Nanos::from_secs(1)).await;
            client.rename(b"/a", b"/a", RenameMode::Exchange).await.unwrap();
            assert_eq!((client.stat(b"/").await.unwrap(), client.stat(b"/a").await.unwrap()), (root, file));
        })
        .await;
    });
}
