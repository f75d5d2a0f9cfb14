//! Aim: a file system does what its interface says, and keeps it across mounts. Method: small programs over a device in
//! memory, each followed by a remount and a full check.

use std::collections::BTreeSet;
use std::rc::Rc;

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::*;
use crate::units::{MIB, Nanos, Sector};

pub fn an_empty_volume_is_clean(subject: &dyn FsUnderTest, bytes: u64) {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, bytes).await;
        assert_clean(&rt, subject, &device).await;
        session(&rt, subject, &device, async |client| {
            assert_eq!(client.read_dir(b"/").await, Ok(vec![]));
        })
        .await;
    });
}

pub fn files_survive_a_remount(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 32 * MIB).await;
        let big: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
        let long_value = vec![9; 60_000];
        session(&rt, subject, &device, async |client| {
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
        session(&rt, subject, &device, async |client| {
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
        session(&rt, subject, &device, async |client| {
            assert!(client.read_file(b"/big").await.unwrap() == big[..100_000]);
            assert_eq!(client.read_dir(b"/").await.unwrap().len(), 2);
        })
        .await;
    });
}

/// Aim: an inode number that is used again has another generation, so that a handle of the old file never leads to the new one.
/// Method: files are created and removed until numbers come back. With `anew`, for a file system that continues its
/// counters from mount to mount, it is mounted again and again, half of the times as a crash left it.
pub fn numbers_come_back_with_another_generation(subject: &dyn FsUnderTest, anew: bool) {
    const BYTES: u64 = 9 * MIB;
    simulate(1, async |rt| {
        let (mut memory, _) = fresh(&rt, subject, BYTES).await;
        let mut fs = subject.mount(&rt, memory.clone()).await.expect("mount");
        let (mut seen, mut numbers, mut again) = (BTreeSet::new(), BTreeSet::new(), 0);
        for file in 0..6000 {
            let client = Client::new(fs.clone());
            client.write_file(b"/f", b"f").await.unwrap();
            let root = client.resolve(b"/").await.unwrap();
            let entry = fs.lookup(root, b"f").await.unwrap();
            fs.forget(entry.attr.ino, 1).await;
            let (ino, generation) = (entry.attr.ino, entry.generation);
            assert!(seen.insert((ino, generation)), "file {file}: {ino} of generation {generation} occurs twice");
            again += u32::from(!numbers.insert(ino));
            if file % 20 == 19 {
                client.sync().await.unwrap();
            }
            client.unlink(b"/f").await.unwrap();
            if anew && file % 100 == 99 {
                client.sync().await.unwrap();
                if file % 200 == 99 {
                    fs.close().await.unwrap();
                }
                memory = Rc::new(Memory::from_image(BYTES, memory.image()));
                fs = subject.mount(&rt, memory.clone()).await.expect("mount");
            }
        }
        assert!(again > 100, "{again} numbers came back");
    });
}

/// Synced data survives a crash without closing, and the volume is consistent as the crash left it.
pub fn synced_files_survive_without_closing(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, subject, 32 * MIB).await;
        let fs = subject.mount(&rt, device).await.unwrap();
        let client = Client::new(fs.clone());
        let big = vec![7; 2_000_000];
        client.mkdir(b"/d").await.unwrap();
        client.write_file(b"/d/big", &big).await.unwrap();
        client.fsync_path(b"/d/big").await.unwrap();
        client.write_file(b"/d/small", b"hello").await.unwrap();
        client.fsync_path(b"/d/small").await.unwrap();
        let device: Device = Rc::new(Memory::from_image(32 * MIB, memory.image()));
        assert_clean(&rt, subject, &device).await;
        session(&rt, subject, &device, async |client| {
            assert!(client.read_file(b"/d/big").await.unwrap() == big);
            assert_eq!(client.read_file(b"/d/small").await.unwrap(), b"hello");
        })
        .await;
    });
}

/// Every observable result is a function of the seed: the bytes on the device, and the time.
pub fn same_seed_same_bytes_and_time(subject: &dyn FsUnderTest) {
    let run = |seed| {
        simulate(seed, async |rt| {
            let (memory, device) = fresh(&rt, subject, 16 * MIB).await;
            session(&rt, subject, &device, async |client| {
                for i in 0..200 {
                    client.write_file(format!("/f{i}").as_bytes(), &[i as u8; 5000]).await.unwrap();
                    rt.sleep(Nanos::from_millis(300)).await;
                }
            })
            .await;
            let mut bytes = vec![0; 16 * MIB as usize];
            memory.image().read(Sector(0), &mut bytes);
            (crate::codec::crc32c(&bytes), rt.now())
        })
    };
    assert_eq!(run(1), run(1));
}

/// Aim: a program file with capabilities loses them with every change of data, size or owner; otherwise it keeps them,
/// and all other attributes. Method: each kind of change, with and without another attribute.
pub fn changes_take_capabilities_away(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 9 * MIB).await;
        session(&rt, subject, &device, async |client| {
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
                let expected = if keeps { Ok(b"all".to_vec()) } else { Err(FsError::NoAttribute) };
                assert_eq!(found, expected, "change {change}");
                assert_eq!(client.get_xattr(name, b"user.other").await.is_ok(), change % 2 == 0, "change {change}");
                client.unlink(name).await.unwrap();
                let _ = client.unlink(b"/program").await;
            }
        })
        .await;
    });
}

/// Aim: a hole that is punched through all of a file of `size`, the largest, takes the time of what is there, and everything goes.
/// Method: data in several places of a sparse file, reserved space, or nothing; it would take minutes for every block of a hole.
pub fn a_hole_as_large_as_a_file_can_be(subject: &dyn FsUnderTest, size: u64) {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 9 * MIB).await;
        session(&rt, subject, &device, async |client| {
            for places in [&[][..], &[0], &[5 * MIB + 3], &[size - 9_000], &[100, 3 << 30, size / 2]] {
                client.write_file(b"/f", b"").await.unwrap();
                client.truncate(b"/f", size).await.unwrap();
                let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
                for &place in places {
                    client.write(file, place, &[1; 9_000]).await.unwrap();
                    client.fsync(file).await.unwrap();
                    let reserved = FileRange { offset: place / 2, bytes: 9_000 };
                    client.fallocate(b"/f", reserved, AllocateMode::Allocate { keep_size: true }).await.unwrap();
                }
                let everything = FileRange { offset: 0, bytes: size };
                client.fallocate(b"/f", everything, AllocateMode::PunchHole).await.unwrap();
                for &place in places {
                    assert_eq!(client.read(file, place, 9_000).await.unwrap(), [0; 9_000], "{places:?}");
                }
                client.close(file).await.unwrap();
                let found = client.stat(b"/f").await.unwrap();
                assert_eq!((found.size, found.sectors), (size, 0), "{places:?}");
                client.unlink(b"/f").await.unwrap();
            }
        })
        .await;
    });
}

/// Aim: freeing a file takes memory for one path of indirect blocks, however many it has: with a cache of 64 blocks, which `subject` has, it
/// ends, and reads each of them once. Method: a block below each of 200 indirect blocks, written or reserved behind the end, and punched or
/// not; then the file is removed, truncated to nothing or to the size that it has, or removed while open at a power cut.
pub fn files_with_more_indirect_blocks_than_the_cache_are_freed(subject: &dyn FsUnderTest) {
    // What an indirect block covers, at least.
    const SPAN: u64 = 1 << 20;
    for case in 0..16 {
        let [is_reserved, is_punched] = [case & 1 > 0, case & 2 > 0];
        let what = format!("case {case}");
        simulate(1, async |rt| {
            let (memory, device) = fresh(&rt, subject, 64 * MIB).await;
            session(&rt, subject, &device, async |client| {
                client.write_file(b"/f", b"text").await.unwrap();
                let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
                for place in (1..200).map(|index| index * 4 * SPAN / 3) {
                    if is_reserved {
                        let range = FileRange { offset: place, bytes: 4096 };
                        client.fallocate(b"/f", range, AllocateMode::Allocate { keep_size: true }).await.unwrap();
                    } else {
                        client.write(file, place, b"1").await.unwrap();
                    }
                }
                if is_punched {
                    let range = FileRange { offset: 4096, bytes: 400 * SPAN };
                    client.fallocate(b"/f", range, AllocateMode::PunchHole).await.unwrap();
                }
                client.close(file).await.unwrap();
            })
            .await;
            let image = memory.image();
            // Each read takes time, so that an endless loop of them is seen.
            let slow = |device: Rc<Memory>| {
                let slow = FaultDevice::new(&rt, device, 1);
                slow.add(Rule::new(Kinds::READ, When::Always, Effect::Delay(Nanos(1)..=Nanos(1))));
                slow.add(Rule::new(Kinds::READ, When::From(2_000), Effect::Error));
                slow
            };
            let memory = Rc::new(Memory::from_image(64 * MIB, image));
            let under: Device = slow(memory.clone());
            match case >> 2 {
                3 => {
                    let fs = subject.mount(&rt, under).await.unwrap();
                    let client = Client::new(fs.clone());
                    client.open(b"/f", OpenFlags::READ).await.unwrap();
                    client.unlink(b"/f").await.unwrap();
                    client.sync().await.unwrap();
                    let after: Device = slow(Rc::new(Memory::from_image(64 * MIB, memory.image())));
                    session(&rt, subject, &after, async |client| {
                        assert_eq!(client.stat(b"/f").await.unwrap_err(), FsError::NotFound, "{what}");
                    })
                    .await;
                }
                how => {
                    let freed = session(&rt, subject, &under, async |client| match how {
                        0 => client.unlink(b"/f").await,
                        1 => client.truncate(b"/f", 0).await,
                        _ => {
                            let size = client.stat(b"/f").await?.size;
                            client.truncate(b"/f", size).await
                        }
                    });
                    assert_eq!(freed.await, Ok(()), "{what}");
                }
            }
        });
    }
}

/// A directory whose default list is too long to be inherited takes no new names, and everything else goes on.
pub fn inherited_lists_have_a_limit(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 16 * MIB).await;
        session(&rt, subject, &device, async |client| {
            client.mkdir(b"/d").await.unwrap();
            // A directory gets two of these lists.
            let users: String = (0..8_160).map(|user| format!("u:{user}:r--,")).collect();
            let list = format!("u::rwx,{users}g::r-x,m::rwx,o::---").parse::<acl::Acl>().unwrap().to_xattr();
            client.set_xattr(b"/d", acl::XATTR_ACL_DEFAULT, &list).await.unwrap();
            assert!(matches!(client.mkdir(b"/d/e").await, Err(FsError::AttributesTooLarge(_))));
            client.write_file(b"/f", b"text").await.unwrap();
            client.sync().await.unwrap();
        })
        .await;
        session(&rt, subject, &device, async |client| {
            assert_eq!(client.stat(b"/d/e").await.unwrap_err(), FsError::NotFound);
            assert_eq!(client.read_file(b"/f").await.unwrap(), b"text");
        })
        .await;
    });
}

/// Space that is reserved past the end of a file is free again when the file is truncated to the size that it has. Files of several sizes,
/// with data or without, and a reservation right behind the end or far away.
pub fn truncating_to_the_same_size_frees_what_is_reserved(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 9 * MIB).await;
        session(&rt, subject, &device, async |client| {
            for (written, size) in [(0, 0), (10, 10), (5_000, 5_000), (4096, 4096), (200_000, 200_000), (10, 5 * MIB)] {
                for distance in [0, 40_000, 3 * MIB] {
                    let what = format!("{written} bytes of {size}, {distance} bytes in front of what is reserved");
                    client.write_file(b"/f", &vec![7; written]).await.unwrap();
                    client.truncate(b"/f", size).await.unwrap();
                    client.sync().await.unwrap();
                    let before = client.stat(b"/f").await.unwrap().sectors;
                    let reserved = FileRange { offset: size + distance, bytes: 100_000 };
                    client.fallocate(b"/f", reserved, AllocateMode::Allocate { keep_size: true }).await.unwrap();
                    assert!(client.stat(b"/f").await.unwrap().sectors > before, "{what}");
                    client.truncate(b"/f", size).await.unwrap();
                    client.sync().await.unwrap();
                    let found = client.stat(b"/f").await.unwrap();
                    assert_eq!((found.size, found.sectors), (size, before), "{what}");
                    let content = client.read_file(b"/f").await.unwrap();
                    assert!(content[..written] == vec![7; written][..], "{what}");
                    assert!(content[written..].iter().all(|&byte| byte == 0), "{what}");
                    client.unlink(b"/f").await.unwrap();
                }
            }
        })
        .await;
    });
}

/// A punch frees what is reserved past the end where it covers whole blocks, and the last block of the file with its end.
pub fn a_punch_leaves_reserved_blocks_that_it_covers_in_part(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 9 * MIB).await;
        session(&rt, subject, &device, async |client| {
            // The end of the file, the range, and the blocks that are left of four.
            let cases = [
                (0, 0..100, 4),
                (0, 4096..8292, 3),
                (100, 4096..8292, 3),
                (100, 8000..8292, 4),
                (100, 0..100, 3),
                (5_000, 4096..5_000, 3),
                (5_000, 4096..4_999, 4),
                (5_000, 4096..12_300, 2),
                (5_000, 4097..16_384, 2),
            ];
            for (number, (size, range, left)) in cases.into_iter().enumerate() {
                let name = format!("/f{number}");
                client.write_file(name.as_bytes(), &vec![7; size]).await.unwrap();
                let reserved = FileRange { offset: 0, bytes: 4 * 4096 };
                let reserve = AllocateMode::Allocate { keep_size: true };
                client.fallocate(name.as_bytes(), reserved, reserve).await.unwrap();
                let punched = FileRange { offset: range.start, bytes: range.end - range.start };
                client.fallocate(name.as_bytes(), punched, AllocateMode::PunchHole).await.unwrap();
                let found = client.stat(name.as_bytes()).await.unwrap();
                assert_eq!((found.size, found.sectors), (size as u64, 8 * left), "{range:?} of {size} bytes");
            }
        })
        .await;
    });
}

/// Exchanging a name with itself changes nothing, not even times.
pub fn a_name_exchanged_with_itself(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 9 * MIB).await;
        session(&rt, subject, &device, async |client| {
            client.write_file(b"/a", b"x").await.unwrap();
            let (root, file) = (client.stat(b"/").await.unwrap(), client.stat(b"/a").await.unwrap());
            rt.sleep(Nanos::from_secs(1)).await;
            client.rename(b"/a", b"/a", RenameMode::Exchange).await.unwrap();
            assert_eq!((client.stat(b"/").await.unwrap(), client.stat(b"/a").await.unwrap()), (root, file));
        })
        .await;
    });
}

/// On a device with 4 KiB blocks, every write is whole blocks.
pub fn sectors_of_4096_bytes(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        // A volume that was made for smaller ones is refused before anything is written.
        let (memory, small) = fresh(&rt, subject, 16 * MIB).await;
        session(&rt, subject, &small, async |client| client.write_file(b"/f", &[1; 3000]).await.unwrap()).await;
        let large: Device = Declares::blocks_of_4096(Rc::new(Memory::from_image(16 * MIB, memory.image())));
        let refused = subject.mount(&rt, large).await.map(drop);
        assert!(matches!(refused, Err(FsError::Device(crate::device::DeviceError::Unaligned { .. }))), "{refused:?}");
        let device: Device = Declares::blocks_of_4096(Rc::new(Memory::new(16 * MIB)));
        subject.mkfs(&rt, device.clone()).await.expect("mkfs");
        session(&rt, subject, &device, async |client| {
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
        session(&rt, subject, &device, async |client| {
            for i in (1..300).step_by(2) {
                assert!(client.read_file(format!("/f{i}").as_bytes()).await.unwrap() == vec![i as u8; i * 20]);
            }
        })
        .await;
    });
}
