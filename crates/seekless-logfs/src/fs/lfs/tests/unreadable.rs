//! Aim: what cannot be read keeps nothing else from working. Method: an inode, its attributes or a block of the inode map is
//! lost, one and two at once, under a volume that is then used, mounted again and checked.

use super::*;
use crate::device::fault::FaultDevice;
use crate::fs::logfs::file::root_key;
use crate::fs::logfs::format::{DIRECT_POINTERS, Pointer};
use crate::fs::logfs::tree::BlockId;
use crate::units::{Ino, Sector};

const BYTES: u64 = 32 * MIB;

fn place(lfs: &Lfs, id: BlockId) -> Sector {
    match lfs.state.borrow_mut().pointer(id) {
        Ok(Pointer::Mapped { at, .. }) => at,
        _ => panic!("{id:?} is not in the log"),
    }
}

/// New files get numbers from parts of the inode map that can be read.
#[test]
fn blocks_of_the_inode_map() {
    let at_node = DIRECT_POINTERS as u64 * format::IMAP_ENTRIES_PER_BLOCK;
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        // In the first three blocks of the map, and in one with an indirect block above it.
        for (file, cursor) in [("/a", 600), ("/b", 1100), ("/c", at_node + 5), ("/kept", 100)] {
            lfs.state.borrow_mut().ino_cursor = cursor;
            client.write_file(file.as_bytes(), b"content").await.unwrap();
        }
        client.sync().await.unwrap();
        lfs.checkpoint(false).await.unwrap();
        let block = |number| BlockId::data(format::IMAP_INO, number);
        let node = BlockId { ino: format::IMAP_INO, key: root_key(DIRECT_POINTERS) };
        let [one, two, node] = [block(1), block(2), node].map(|id| place(&lfs, id));
        lfs.close().await.unwrap();
        drop((client, lfs));
        let image = memory.image();
        for (cursor, lost) in
            [(600, vec![one]), (600, vec![one, two]), (at_node, vec![node]), (600, vec![one, two, node])]
        {
            let device: Device = Rc::new(Memory::from_image(BYTES, image.clone()));
            let fault = FaultDevice::new(&rt, device, 1);
            lost.iter().for_each(|&at| fault.lose(at..at + 8));
            for mount in 0..2 {
                let lfs = open(rt.clone(), fault.clone(), Options::default()).await.unwrap();
                lfs.state.borrow_mut().ino_cursor = cursor;
                let client = Client::new(lfs.clone());
                for number in 0..3 {
                    let path = format!("/new{mount}{number}");
                    client
                        .write_file(path.as_bytes(), b"new")
                        .await
                        .unwrap_or_else(|error| panic!("{lost:?}: {error}"));
                }
                client.mkdir(format!("/d{mount}").as_bytes()).await.unwrap();
                assert_eq!(client.read_file(b"/kept").await.unwrap(), b"content");
                for (file, is_lost) in
                    [("/a", lost.contains(&one)), ("/b", lost.contains(&two)), ("/c", lost.contains(&node))]
                {
                    lfs.drop_caches().await.unwrap();
                    assert_eq!(client.read_file(file.as_bytes()).await.is_err(), is_lost, "{file}, {lost:?}");
                }
                lfs.close().await.unwrap();
            }
        }
    });
}

/// A number whose entry in the map is damaged is not given out, and the next one is.
#[test]
fn an_entry_of_the_inode_map() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device, Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/a", b"a").await.unwrap();
        let cursor = lfs.state.borrow().ino_cursor;
        {
            let mut state = lfs.state.borrow_mut();
            let (block, _) = layout::imap_place(Ino(cursor));
            let bytes = state.blocks.dirty_bytes_mut(block).unwrap();
            for number in cursor..cursor + 2 {
                crate::codec::put_at(bytes, layout::imap_place(Ino(number)).1, u64::MAX >> 20);
            }
        }
        client.write_file(b"/b", b"b").await.unwrap();
        assert_eq!(client.stat(b"/b").await.unwrap().ino, Ino(cursor + 2));
    });
}

/// What a listing has passed on.
#[derive(Default)]
struct Names(Vec<(Vec<u8>, Option<Ino>)>);

impl DirSink for Names {
    fn add(&mut self, entry: &DirEntry<'_>) -> bool {
        self.0.push((entry.name.to_vec(), entry.entry.map(|entry| entry.attr.ino)));
        true
    }
}

/// A directory with inodes that cannot be read is listed, with attributes where there are some.
#[test]
fn inodes_of_a_directory() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, BYTES).await;
        let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        let names: Vec<String> = (0..6).map(|number| format!("f{number}")).collect();
        let mut places = Vec::new();
        for name in &names {
            client.write_file(format!("/{name}").as_bytes(), &[1; 3000]).await.unwrap();
            client.sync().await.unwrap();
            let ino = client.stat(format!("/{name}").as_bytes()).await.unwrap().ino;
            places.push((name.clone().into_bytes(), lfs.state.borrow().inodes.get(&ino).unwrap().slot.sector()));
        }
        // The directory's inode goes elsewhere.
        client.setattr(b"/", SetAttr { permissions: Some(0o700), ..SetAttr::default() }).await.unwrap();
        lfs.close().await.unwrap();
        drop((client, lfs));
        for lost in [vec![0], vec![5], vec![1, 2], vec![0, 3, 4], (0..6).collect()] {
            let device: Device = Rc::new(Memory::from_image(BYTES, memory.image()));
            let fault = FaultDevice::new(&rt, device, 1);
            lost.iter().for_each(|&file: &usize| fault.lose(places[file].1..places[file].1 + 1));
            let lfs = open(rt.clone(), fault.clone(), Options::default()).await.unwrap();
            for attributes in [true, false, true] {
                lfs.drop_caches().await.unwrap();
                let mut listed = Names::default();
                lfs.readdir(Ino::ROOT, None, 0, attributes, &mut listed).await.unwrap();
                let mut found: Vec<Vec<u8>> = listed.0.iter().skip(2).map(|(name, _)| name.clone()).collect();
                found.sort();
                assert_eq!(found, names.iter().map(|name| name.clone().into_bytes()).collect::<Vec<_>>(), "{lost:?}");
                for (name, ino) in &listed.0[2..] {
                    let is_lost = lost.iter().any(|&file| places[file].0 == *name);
                    assert_eq!(ino.is_some(), attributes && !is_lost, "{lost:?}: {}", String::from_utf8_lossy(name));
                    if let Some(ino) = ino {
                        lfs.forget(*ino, 1).await;
                    }
                }
            }
            assert!(lfs.state.borrow().users.is_empty(), "what was not passed on does not count as looked up");
            lfs.close().await.unwrap();
        }
    });
}

/// A file whose attributes cannot be read can be removed, and all that it had is freed, also by a mount that finds it removed.
#[test]
fn attributes() {
    simulate(1, async |rt| {
        for (bytes, is_open) in [(100, false), (20_000, false), (100, true), (20_000, true)] {
            let (_, device) = fresh(&rt, BYTES).await;
            let fault = FaultDevice::new(&rt, device, 1);
            let device: Device = fault.clone();
            let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
            let client = Client::new(lfs.clone());
            client.write_file(b"/kept", b"kept").await.unwrap();
            client.sync().await.unwrap();
            let free = lfs.statfs().await.unwrap().blocks_free;
            client.write_file(b"/f", &[1; 100_000]).await.unwrap();
            client.set_xattr(b"/f", b"user.a", &vec![7; bytes]).await.unwrap();
            client.sync().await.unwrap();
            let ino = client.stat(b"/f").await.unwrap().ino;
            let pointer = lfs.state.borrow().inodes.get(&ino).unwrap().inode.xattr_pointer();
            let Some(Pointer::Mapped { at, sectors, .. }) = pointer else { panic!("it has attributes") };
            fault.lose(at..at + u64::from(sectors));
            lfs.drop_caches().await.unwrap();
            assert_eq!(client.read_file(b"/f").await.unwrap(), [1; 100_000]);
            if is_open {
                // The last user goes with the mount.
                client.open(b"/f", OpenFlags::READ).await.unwrap();
            }
            client.unlink(b"/f").await.unwrap();
            client.sync().await.unwrap();
            // The list of orphans takes a block, and the file had 25.
            let is_freed = async |fs: &Rc<Lfs>| free - fs.statfs().await.unwrap().blocks_free < 3;
            assert_eq!(is_freed(&lfs).await, !is_open, "{bytes} bytes");
            lfs.close().await.unwrap();
            drop((client, lfs));
            let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
            assert_eq!(lfs.warnings(), Vec::<String>::new(), "{bytes} bytes");
            assert!(is_freed(&lfs).await, "{bytes} bytes, open: {is_open}");
            lfs.close().await.unwrap();
            assert_clean(&rt, &device).await;
        }
    });
}

/// Attributes that cannot be read keep no volume with a damaged usage table from being written: where they are is known.
#[test]
fn attributes_and_the_usage_table() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES).await;
        let fault = FaultDevice::new(&rt, device, 1);
        let device: Device = fault.clone();
        let lfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        client.write_file(b"/f", &[1; 100_000]).await.unwrap();
        client.set_xattr(b"/f", b"user.a", b"value").await.unwrap();
        client.sync().await.unwrap();
        let ino = client.stat(b"/f").await.unwrap().ino;
        let pointer = lfs.state.borrow().inodes.get(&ino).unwrap().inode.xattr_pointer();
        lfs.close().await.unwrap();
        let Some(Pointer::Mapped { at, .. }) = pointer else { panic!("it has attributes") };
        let table = place(&lfs, BlockId::data(format::USAGE_INO, 0));
        [at, table].iter().for_each(|&at| fault.lose(at..at + 1));
        drop((client, lfs));
        let fs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(fs.clone());
        client.write_file(b"/new", &[2; 500_000]).await.unwrap();
        assert_eq!(client.read_file(b"/f").await.unwrap(), [1; 100_000]);
        client.unlink(b"/f").await.unwrap();
        fs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}
