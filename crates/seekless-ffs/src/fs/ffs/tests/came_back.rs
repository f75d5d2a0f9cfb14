//! Aim: sectors that cannot be read for a while cost nothing that was written in the meantime, when they are back. Method: an
//! inode's sector is lost, or becomes unreadable in the middle of a repair; the volume is then filled to its last fragment, every
//! file made durable; with the sector back it is checked, repaired and read.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{BlockDevice, Data, WriteFlags};
use crate::fs::ffs::io::read_bytes;
use crate::fs::ffs::numbers::InodeNo;
use crate::fs::ffs::state::inner;
use crate::units::{SECTOR_BYTES, Sector};

const BYTES: u64 = 8 * MIB;
const REPAIR: FsckOptions = FsckOptions { repair: true, only_after_crash: false, reconnect: true, trust_order: false };

fn shape() -> MkfsOptions {
    MkfsOptions { bytes_per_inode: Some(4096), block_bytes: 4096, frag_bytes: 512, ..small_groups() }
}

/// A file that was made durable: its path, its size and each of its bytes.
type Kept = (String, usize, u8);

/// Fills the volume with durable files, the last ones of a fragment.
async fn fill(client: &Client) -> Vec<Kept> {
    let mut kept = Vec::new();
    let mut number = 0;
    for bytes in [1 << 19, 1 << 15, 4096, 512] {
        loop {
            number += 1;
            let (path, byte) = (format!("/new{number}"), (number % 250 + 1) as u8);
            match client.write_file(path.as_bytes(), &vec![byte; bytes]).await {
                Ok(()) => match client.fsync_path(path.as_bytes()).await {
                    Ok(()) => kept.push((path, bytes, byte)),
                    Err(_) => break,
                },
                Err(_) => {
                    let _ = client.unlink(path.as_bytes()).await;
                    break;
                }
            }
        }
    }
    kept
}

async fn look(client: &Client, kept: &[Kept], what: &str) {
    assert!(kept.len() > 16, "{what}: {} files", kept.len());
    for (path, bytes, byte) in kept {
        let found = client.read_file(path.as_bytes()).await;
        let is_there = found.as_ref().is_ok_and(|found| *found == vec![*byte; *bytes]);
        assert!(is_there, "{what}: {path} of {bytes} bytes: {:?}", found.map(|found| found.len()));
    }
}

fn sector_of(layout: &Layout, ino: InodeNo) -> Sector {
    let (at, offset) = layout.inode_place(ino);
    layout.sector(at) + offset as u64 / SECTOR_BYTES
}

/// Reads of the sector fail from the `nth` on.
fn losing(rt: &Rt, memory: &Rc<Memory>, sector: Sector, nth: u64) -> Device {
    let fault = FaultDevice::new(rt, memory.clone(), 1);
    fault.add(Rule::new(Kinds::READ, When::From(nth), Effect::Error).within(sector..sector + 1));
    fault
}

/// Room for what a repair has to reconnect. It is used until the volume is full.
async fn reserve_room(client: &Client) {
    client.write_file(b"/room", &[9; 1 << 16]).await.unwrap();
}

/// The volume is mounted and filled while reads of the sector fail from the `nth` on. With the sector back, a repair and a mount
/// find all of it.
async fn fill_beside(rt: &Rt, memory: &Rc<Memory>, sector: Sector, nth: u64, options: Options, what: &str) {
    let options = Options { use_reserve: true, ..options };
    let ffs = mount(rt.clone(), losing(rt, memory, sector, nth), options).await.unwrap();
    let client = Client::new(ffs.clone());
    let kept = fill(&client).await;
    client.unlink(b"/room").await.unwrap();
    let _ = ffs.close().await;
    drop((client, ffs));

    let device: Device = memory.clone();
    let found = fsck(rt, &device, REPAIR).await.unwrap();
    let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
    look(&Client::new(ffs.clone()), &kept, &format!("{what}: {:#?}", found.problems)).await;
    ffs.close().await.unwrap();
    drop(ffs);
    assert_clean(rt, &device).await;
}

/// What is left of a directory whose name is not on the volume is to be freed, and its inode becomes unreadable before that.
#[test]
fn a_repair_that_is_left_out_gives_no_space_away() {
    let modes = [Metadata::Sync, Metadata::Async, Metadata::Softdep];
    for (metadata, nth) in modes.into_iter().flat_map(|mode| (1..5).map(move |nth| (mode, nth))) {
        simulate(1, async |rt| {
            let options = Options { metadata, ..Options::default() };
            let (memory, device) = fresh(&rt, BYTES, &shape()).await;
            let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            reserve_room(&client).await;
            client.mkdir(b"/p").await.unwrap();
            client.mkdir(b"/p/victim").await.unwrap();
            client.sync().await.unwrap();
            let layout = ffs.state.borrow().layout.clone();
            let ino = inner(client.stat(b"/p/victim").await.unwrap().ino).unwrap();
            let parent = inner(client.stat(b"/p").await.unwrap().ino).unwrap();
            let parent = ffs.step(|state| Ok(state.inode(parent)?.inode)).await.unwrap();
            let crashed = Rc::new(Memory::from_image(BYTES, memory.image()));
            ffs.close().await.unwrap();

            let at = layout.sector(parent.db[0]);
            let mut chunk = read_bytes(&(crashed.clone() as Device), at, DIR_CHUNK_BYTES).await.unwrap().to_vec();
            let name = dirents(&chunk).unwrap().iter().find(|entry| entry.name == b"victim").unwrap().offset;
            crate::codec::put_at(&mut chunk, name, InodeNo::NONE);
            crashed.write(at, Data::from_slice(&chunk), WriteFlags::NONE).await.unwrap();
            let what = format!("{metadata:?}, lost at read {nth}");
            fill_beside(&rt, &crashed, sector_of(&layout, ino), nth, options, &what).await;
        });
    }
}

/// What an inode got shortly before a crash is not in the maps, and its inode cannot be read after it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Late {
    Directory,
    Names,
    Link,
    File,
}

/// What others got in the meantime is theirs when the inode is back. A directory keeps the names that it had before.
#[test]
fn space_that_the_maps_lacked_stays_with_its_new_owner() {
    for late in [Late::Directory, Late::Names, Late::Link, Late::File] {
        simulate(1, async |rt| {
            let options = Options { metadata: Metadata::Sync, ..Options::default() };
            let (memory, device) = fresh(&rt, BYTES, &shape()).await;
            let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            reserve_room(&client).await;
            client.mkdir(b"/p").await.unwrap();
            client.write_file(b"/p/data", &[3; 100]).await.unwrap();
            client.mkdir(b"/p/late").await.unwrap();
            // The fragment behind its first one is free, so that it can grow there.
            client.link(b"/p/data", b"/p/late/old").await.unwrap();
            client.sync().await.unwrap();
            let path = match late {
                Late::Directory => client.mkdir(b"/p/late/new").await.map(|_| "/p/late/new"),
                Late::Link => client.symlink(&[b't'; 90], b"/p/late/new").await.map(|_| "/p/late/new"),
                Late::File => {
                    client.write_file(b"/p/late/new", &[4; 400]).await.unwrap();
                    client.fsync_path(b"/p/late/new").await.map(|()| "/p/late/new")
                }
                Late::Names => {
                    for number in 0..6 {
                        let name = format!("/p/late/{number}{}", "n".repeat(200));
                        client.write_file(name.as_bytes(), b"").await.unwrap();
                    }
                    Ok("/p/late")
                }
            };
            let layout = ffs.state.borrow().layout.clone();
            let ino = inner(client.stat(path.unwrap().as_bytes()).await.unwrap().ino).unwrap();
            let (at, _) = layout.inode_place(ino);
            assert_ne!(at, layout.inode_place(ROOT_INO).0, "the root can be read");
            let crashed = Rc::new(Memory::from_image(BYTES, memory.image()));
            ffs.close().await.unwrap();
            drop((client, ffs));

            fill_beside(&rt, &crashed, sector_of(&layout, ino), 1, options, &format!("{late:?}")).await;
            let ffs = mount(rt.clone(), crashed.clone(), options).await.unwrap();
            let old = Client::new(ffs.clone()).read_file(b"/p/late/old").await;
            assert_eq!(old, Ok(vec![3; 100]), "{late:?}");
            ffs.close().await.unwrap();
        });
    }
}
