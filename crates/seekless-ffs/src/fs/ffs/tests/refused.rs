//! Aim: a rename or link that is refused has changed nothing. Method: counts and blocks that make it impossible.

use super::super::format::*;
use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::state::inner;

const BYTES: u64 = 16 * MIB;

const MODES: [Metadata; 3] = [Metadata::Sync, Metadata::Async, Metadata::Softdep];

async fn number(client: &Client, path: &[u8]) -> InodeNo {
    inner(client.stat(path).await.unwrap().ino).unwrap()
}

/// A directory cannot move to a directory that has as many links as it can have. Its old name is as before, also where a
/// whiteout would have replaced it.
#[test]
fn a_parent_with_too_many_links() {
    for metadata in MODES {
        for mode in [RenameMode::Replace, RenameMode::Whiteout { replace: true, uid: 0, gid: 0 }] {
            simulate(1, async |rt| {
                let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
                let options = Options { metadata, ..Options::default() };
                let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
                let client = Client::new(ffs.clone());
                for path in ["/p", "/q", "/p/d"] {
                    client.mkdir(path.as_bytes()).await.unwrap();
                }
                client.sync().await.unwrap();
                let (p, q) = (number(&client, b"/p").await, number(&client, b"/q").await);
                let links = |count| {
                    let ffs = ffs.clone();
                    async move {
                        let set = |state: &mut State| Ok(std::mem::replace(&mut state.inode_mut(q)?.nlink, count));
                        ffs.step(set).await.unwrap()
                    }
                };
                let before = links(LINKS_MAX).await;
                let moved = client.rename(b"/p/d", b"/q/d", mode).await;
                assert_eq!(moved, Err(FsError::TooManyLinks), "{metadata:?}, {mode:?}");
                links(before).await;
                let found = ffs.step(|state| state.find(p, b"d")).await.unwrap().unwrap();
                assert_eq!(found.kind, dirent_type(FileKind::Directory), "{metadata:?}, {mode:?}");
                ffs.close().await.unwrap();
                drop((client, ffs));
                assert_clean(&rt, &device).await;
            });
        }
    }
}

/// With soft updates, the volume counts the links of names that are gone until their directory is written. Where that finds no
/// room, further links are refused before the volume counts too many; with room, they wait for it.
#[test]
fn links_whose_names_stay_on_the_volume() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        let fault = FaultDevice::new(&rt, device.clone(), 1);
        let options = Options { metadata: Metadata::Softdep, ..Options::default() };
        let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/f", b"f").await.unwrap();
        client.mkdir(b"/d").await.unwrap();
        for name in 0..20 {
            client.link(b"/f", format!("/d/{name}").as_bytes()).await.unwrap();
        }
        client.sync().await.unwrap();
        let (f, d) = (number(&client, b"/f").await, number(&client, b"/d").await);
        let at = ffs.step(|state| state.block_at(d, 0)).await.unwrap().unwrap();
        let layout = ffs.state.borrow().layout.clone();
        fault.add(
            Rule::new(Kinds::WRITE, When::Always, Effect::NoSpace)
                .within(layout.sector(at)..layout.sector(at + layout.frag)),
        );
        fault.add(Rule::new(Kinds::PROVISION, When::Always, Effect::NoSpace)); // The block cannot move.
        let names = 21;
        let count = async |links: fn(u16, u16) -> u16, by: u16| {
            let set = |state: &mut State| {
                let inode = state.inode_mut(f)?;
                inode.nlink = links(inode.nlink, by);
                Ok(())
            };
            ffs.step(set).await.unwrap();
        };
        count(|links, by| links + by, LINKS_MAX - 2 - names).await;
        for name in 0..10 {
            client.unlink(format!("/d/{name}").as_bytes()).await.unwrap();
            let linked = client.link(b"/f", format!("/new{name}").as_bytes()).await;
            assert_eq!(linked, if name < 2 { Ok(()) } else { Err(FsError::TooManyLinks) }, "{name}");
        }
        assert!(client.sync().await.is_err(), "the names are still there");
        let (block, offset) = layout.inode_place(f);
        let raw = device.read(layout.sector(block), Buf::zeroed(layout.block_bytes as usize)).await.unwrap();
        assert_eq!(Inode::decode(&raw[offset..]).unwrap().nlink, LINKS_MAX);
        fault.clear();
        for name in 2..10 {
            client.link(b"/f", format!("/new{name}").as_bytes()).await.unwrap();
        }
        count(|links, by| links - by, LINKS_MAX - 2 - names).await;
        ffs.close().await.unwrap();
        drop((client, ffs));
        assert_clean(&rt, &device).await;
    });
}

/// A directory whose `..` cannot be read does not get another parent.
#[test]
fn a_way_up_that_cannot_be_read() {
    for metadata in MODES {
        for mode in [RenameMode::Replace, RenameMode::Exchange] {
            simulate(1, async |rt| {
                let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
                let fault = FaultDevice::new(&rt, device.clone(), 1);
                let ffs = mount(rt.clone(), fault.clone(), Options { metadata, ..Options::default() }).await.unwrap();
                let client = Client::new(ffs.clone());
                for path in ["/p", "/q", "/p/d"] {
                    client.mkdir(path.as_bytes()).await.unwrap();
                }
                client.write_file(b"/q/f", b"f").await.unwrap();
                let d = number(&client, b"/p/d").await;
                let at = ffs.step(|state| state.block_at(d, 0)).await.unwrap().unwrap();
                client.fs().drop_caches().await.unwrap();
                let place = {
                    let layout = &ffs.state.borrow().layout;
                    layout.sector(at)..layout.sector(at + 1)
                };
                fault.add(Rule::new(Kinds::READ, When::Always, Effect::Error).within(place));
                let new: &[u8] = if mode == RenameMode::Exchange { b"/q/f" } else { b"/q/new" };
                let moved = client.rename(b"/p/d", new, mode).await;
                assert!(matches!(moved, Err(FsError::Device(_))), "{metadata:?}, {mode:?}: {moved:?}");
                if mode == RenameMode::Exchange {
                    let moved = client.rename(new, b"/p/d", mode).await;
                    assert!(matches!(moved, Err(FsError::Device(_))), "{metadata:?}, {mode:?}: {moved:?}");
                }
                fault.clear();
                assert_eq!(client.read_dir(b"/p/d").await.unwrap().len(), 0, "{metadata:?}, {mode:?}");
                assert_eq!(client.read_dir(b"/q").await.unwrap().len(), 1, "{metadata:?}, {mode:?}");
                ffs.close().await.unwrap();
                drop((client, ffs));
                assert_clean(&rt, &device).await;
            });
        }
    }
}
