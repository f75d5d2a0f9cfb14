//! Aim: a repair never frees a file that has content and links, whatever `/lost+found` is like. Method: a directory full
//! of files whose inode is damaged, and volumes on which there is no room for the names.

use super::*;
use crate::device::WriteFlags;
use crate::fs::ffs::state::inner;

pub(super) const REPAIR: FsckOptions =
    FsckOptions { repair: true, only_after_crash: false, reconnect: true, trust_order: false };

fn content(number: usize) -> Vec<u8> {
    format!("file {number} ").repeat(1 + number % 90).into_bytes()
}

/// Fills `/d` with files and a directory with a file, then clears the inode of `/d` on the volume.
pub(super) async fn lose_directory(rt: &Rt, device: &Device, files: usize, before: impl AsyncFnOnce(&Client)) {
    let ffs = mount(rt.clone(), device.clone(), Options { use_reserve: true, ..Options::default() }).await.unwrap();
    let client = Client::new(ffs.clone());
    client.mkdir(b"/d").await.unwrap();
    for number in 0..files {
        client.write_file(format!("/d/f{number}").as_bytes(), &content(number)).await.unwrap();
    }
    client.mkdir(b"/d/sub").await.unwrap();
    client.write_file(b"/d/sub/below", &content(7)).await.unwrap();
    let ino = inner(client.stat(b"/d").await.unwrap().ino).unwrap();
    before(&client).await;
    ffs.close().await.unwrap();
    assert_clean(rt, device).await;
    clear_inode(device, ino).await;
}

async fn clear_inode(device: &Device, ino: InodeNo) {
    let layout = info(device).await.unwrap().layout;
    let (block, offset) = layout.inode_place(ino);
    let mut raw = device.read(layout.sector(block), Buf::zeroed(layout.block_bytes as usize)).await.unwrap();
    Inode::FREE.encode(&mut raw[offset..]);
    device.write(layout.sector(block), raw.freeze(), WriteFlags::NONE).await.unwrap();
}

/// Asserts that the files of [`lose_directory`] are in these directories, and returns how many are in each.
async fn found_again(client: &Client, files: usize, directories: &[&str]) -> Vec<usize> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    let mut counts = Vec::new();
    let mut subdirectories = 0;
    for directory in directories {
        let names = client.read_dir(directory.as_bytes()).await.unwrap();
        counts.push(names.len());
        for name in names {
            let path = [directory.as_bytes(), b"/", &name.name[..]].concat();
            match client.read_file(&path).await {
                Ok(bytes) => all.push(bytes),
                Err(error) => {
                    assert_eq!(error, FsError::IsDirectory);
                    let below = [&path[..], b"/below"].concat();
                    assert!(client.read_file(&below).await.unwrap() == content(7));
                    subdirectories += 1;
                }
            }
        }
    }
    let mut wanted: Vec<Vec<u8>> = (0..files).map(content).collect();
    all.sort();
    wanted.sort();
    assert!(all == wanted, "{} of {files} files", all.len());
    assert_eq!(subdirectories, 1);
    counts
}

/// `/lost+found` was made by a user, with one chunk of names: it grows. When its direct blocks are full, there is
/// another one.
#[test]
fn lost_and_found_grows() {
    for (files, directories) in [(30, &["/lost+found"][..]), (6000, &["/lost+found", "/lost+found.1"])] {
        simulate(1, async |rt| {
            let mkfs = MkfsOptions { bytes_per_inode: Some(2048), ..small_groups() };
            let (_, device) = fresh(&rt, 64 * MIB, &mkfs).await;
            lose_directory(&rt, &device, files, async |client| {
                client.mkdir(b"/lost+found").await.unwrap();
            })
            .await;
            fsck(&rt, &device, REPAIR).await.unwrap();
            session(&rt, &device, Options::default(), async |client| {
                let counts = found_again(&client, files, directories).await;
                assert_eq!(counts.into_iter().sum::<usize>(), files + 1);
                assert_eq!(client.read_dir(b"/").await.unwrap().len(), directories.len());
            })
            .await;
        });
    }
}

/// A file has the name of `/lost+found`: it keeps it.
#[test]
fn lost_and_found_is_a_file() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 32 * MIB, &small_groups()).await;
        lose_directory(&rt, &device, 30, async |client| {
            client.write_file(b"/lost+found", b"a file").await.unwrap();
        })
        .await;
        fsck(&rt, &device, REPAIR).await.unwrap();
        session(&rt, &device, Options::default(), async |client| {
            assert_eq!(client.read_file(b"/lost+found").await.unwrap(), b"a file");
            found_again(&client, 30, &["/lost+found.1"]).await;
        })
        .await;
    });
}

/// Other inodes have the names that lost files would get: one, two, or one that the same repair removes.
#[test]
fn names_that_are_taken() {
    const FILES: usize = 30;
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 32 * MIB, &small_groups()).await;
        let (mut names, mut gone) = (Vec::new(), Vec::new());
        lose_directory(&rt, &device, FILES, async |client| {
            client.mkdir(b"/lost+found").await.unwrap();
            for number in 0..FILES {
                let ino = inner(client.stat(format!("/d/f{number}").as_bytes()).await.unwrap().ino).unwrap();
                let name = format!("/lost+found/#{ino:08}");
                client.write_file(name.as_bytes(), name.as_bytes()).await.unwrap();
                match number % 3 {
                    0 => {}
                    1 => client.write_file(format!("{name}.1").as_bytes(), b"another").await.unwrap(),
                    _ => gone.push(inner(client.stat(name.as_bytes()).await.unwrap().ino).unwrap()),
                }
                names.push(name);
            }
        })
        .await;
        for ino in gone {
            clear_inode(&device, ino).await;
        }
        fsck(&rt, &device, REPAIR).await.unwrap();
        assert_clean(&rt, &device).await;
        session(&rt, &device, Options::default(), async |client| {
            for (number, name) in names.iter().enumerate() {
                let (taken, found) = match number % 3 {
                    0 => (Ok(name.as_bytes()), ".1"),
                    1 => (Ok(name.as_bytes()), ".2"),
                    _ => (Err(FsError::NotFound), ".1"),
                };
                assert_eq!(client.read_file(name.as_bytes()).await, taken.map(<[u8]>::to_vec));
                assert!(client.read_file(format!("{name}{found}").as_bytes()).await.unwrap() == content(number));
            }
        })
        .await;
    });
}

/// `/lost+found` has a name twice, of which the later one is the only one of its inode: one repair gives that another name.
#[test]
fn a_name_that_is_there_twice() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 32 * MIB, &small_groups()).await;
        let mut name = String::new();
        let mut lost = None;
        session(&rt, &device, Options::default(), async |client| {
            client.mkdir(b"/lost+found").await.unwrap();
            client.write_file(b"/found", b"found").await.unwrap();
            name = format!("{:08}", inner(client.stat(b"/found").await.unwrap().ino).unwrap());
            client.write_file(format!("/lost+found/#{name}").as_bytes(), b"other").await.unwrap();
            client.rename(b"/found", format!("/lost+found/@{name}").as_bytes(), RenameMode::Replace).await.unwrap();
            lost = inner(client.stat(b"/lost+found").await.unwrap().ino);
        })
        .await;
        let layout = info(&device).await.unwrap().layout;
        let (at, offset) = layout.inode_place(lost.unwrap());
        let raw = device.read(layout.sector(at), Buf::zeroed(layout.block_bytes as usize)).await.unwrap();
        let at = layout.sector(Inode::decode(&raw[offset..]).unwrap().db[0]);
        let mut chunk = device.read(at, Buf::zeroed(DIR_CHUNK_BYTES)).await.unwrap();
        let mark = chunk.iter().position(|&byte| byte == b'@').unwrap();
        chunk[mark] = b'#';
        device.write(at, chunk.freeze(), WriteFlags::NONE).await.unwrap();

        fsck(&rt, &device, REPAIR).await.unwrap();
        assert_clean(&rt, &device).await;
        session(&rt, &device, Options::default(), async |client| {
            assert_eq!(client.read_file(format!("/lost+found/#{name}").as_bytes()).await.unwrap(), b"other");
            assert_eq!(client.read_file(format!("/lost+found/#{name}.1").as_bytes()).await.unwrap(), b"found");
        })
        .await;
    });
}

/// There is no room for `/lost+found`. Repairs leave the files, again and again, and a mount works, so that its user can
/// make room. The next mount then gives them names.
#[test]
fn no_room_for_lost_and_found() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 8 * MIB, &small_groups()).await;
        let mut filler = 0;
        lose_directory(&rt, &device, 30, async |client| {
            for bytes in [1 << 20, 8192, 1024] {
                while client.write_file(format!("/filler{filler}").as_bytes(), &vec![1; bytes]).await.is_ok() {
                    filler += 1;
                }
            }
        })
        .await;
        for turn in 0..3 {
            // The directory's own block is free now: without it there is no room.
            if turn == 0 {
                let ffs = mount(rt.clone(), device.clone(), Options { use_reserve: true, ..Options::default() });
                let client = Client::new(ffs.await.unwrap());
                let _ = client.write_file(b"/last", &[1; 8192]).await;
                client.fs().close().await.unwrap();
            }
            let found = fsck(&rt, &device, REPAIR).await.unwrap();
            let left = found.problems.iter().filter(|problem| problem.cause == Cause::NoRoom);
            assert_eq!(left.clone().count(), 31, "{:#?}", found.problems);
            assert!(left.clone().all(|problem| !problem.repaired));
            assert!(!info(&device).await.unwrap().clean);
        }
        let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(ffs.clone());
        for number in 0..filler {
            let _ = client.unlink(format!("/filler{number}").as_bytes()).await;
        }
        ffs.close().await.unwrap();
        // The next mount finds that there is room now.
        assert!(!info(&device).await.unwrap().clean);
        session(&rt, &device, Options::default(), async |client| {
            found_again(&client, 30, &["/lost+found"]).await;
        })
        .await;
        assert!(info(&device).await.unwrap().clean);
        assert_eq!(fsck(&rt, &device, FsckOptions::default()).await.unwrap().problems, []);
    });
}

/// A mount after a crash says how many files it has put into `/lost+found`: otherwise they seem to be gone. Method: the first
/// names of a directory are erased on a volume that was not closed.
#[test]
fn a_mount_says_that_names_are_lost() {
    for (lost, says) in [(0, None), (1, Some("a file had no name")), (3, Some("3 files had no names"))] {
        simulate(1, async |rt| {
            let (_, device) = fresh(&rt, 32 * MIB, &small_groups()).await;
            let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
            let client = Client::new(ffs.clone());
            client.mkdir(b"/d").await.unwrap();
            for number in 0..5 {
                client.write_file(format!("/d/f{number}").as_bytes(), &content(number)).await.unwrap();
            }
            ffs.syncfs().await.unwrap();
            let ino = inner(client.stat(b"/d").await.unwrap().ino).unwrap();
            drop((client, ffs));
            let layout = info(&device).await.unwrap().layout;
            let (block, offset) = layout.inode_place(ino);
            let raw = device.read(layout.sector(block), Buf::zeroed(layout.block_bytes as usize)).await.unwrap();
            let at = layout.sector(Inode::decode(&raw[offset..]).unwrap().db[0]);
            let mut names = device.read(at, Buf::zeroed(DIR_CHUNK_BYTES)).await.unwrap();
            let entries = dirents(&names).unwrap();
            let files: Vec<usize> =
                entries.iter().filter(|entry| entry.name.starts_with(b"f")).map(|entry| entry.offset).collect();
            files[..lost].iter().for_each(|&offset| names[offset..offset + 4].fill(0));
            device.write(at, names.freeze(), WriteFlags::NONE).await.unwrap();

            let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
            let warnings = ffs.warnings();
            assert_eq!(warnings.len(), usize::from(says.is_some()), "{warnings:?}");
            assert!(says.is_none_or(|says| warnings[0].contains(says)), "{warnings:?}");
            let found = Client::new(ffs.clone()).read_dir(b"/lost+found").await;
            assert_eq!(found.map_or(0, |found| found.len()), lost);
            ffs.close().await.unwrap();
        });
    }
}
