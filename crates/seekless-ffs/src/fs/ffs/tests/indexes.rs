//! Aim: the names of directories take bounded memory, and operations that need many directories work with little. Method: many
//! directories, and a deep one, with a cache that has room for none.

use super::*;
use crate::fs::ffs::state::inner;

/// Mounted so that hardly anything stays in memory.
fn small() -> Options {
    Options { cache_bytes: 64 << 10, ..Options::default() }
}

#[test]
fn names_take_bounded_memory() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 16 * MIB, &small_groups()).await;
        session(&rt, &device, Options { metadata: Metadata::Async, ..Options::default() }, async |client| {
            client.write_file(b"/f", b"").await.unwrap();
            for directory in 0..100 {
                client.mkdir(format!("/{directory}").as_bytes()).await.unwrap();
                for name in 0..100 {
                    client.link(b"/f", format!("/{directory}/{name}").as_bytes()).await.unwrap();
                }
            }
        })
        .await;
        let ffs = mount(rt.clone(), device.clone(), small()).await.unwrap();
        let client = Client::new(ffs.clone());
        let mut most = 0;
        for round in 0..2 {
            for directory in 0..100 {
                let found = client.read_dir(format!("/{directory}").as_bytes()).await.unwrap();
                assert_eq!(found.len(), 100, "round {round}, directory {directory}");
                most = ffs.state.borrow().index_bytes.get().max(most);
            }
        }
        // The cache, and what is used last.
        assert!(most < (64 << 10) + 4 * 100 * 200, "{most} bytes");
        let bytes = ffs.state.borrow().index_bytes.clone();
        ffs.state.borrow_mut().drop_caches();
        assert_eq!(bytes.get(), 0, "what is forgotten takes nothing");
        ffs.close().await.unwrap();
    });
}

/// A directory moves below a deep one, whose ancestors are not all in memory.
#[test]
fn a_move_below_a_deep_directory() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let (_, device) = fresh(&rt, 16 * MIB, &small_groups()).await;
            session(&rt, &device, Options { metadata, cache_bytes: 0, ..small() }, async |client| {
                let mut path = String::new();
                for _ in 0..60 {
                    path += "/d";
                    client.mkdir(path.as_bytes()).await.unwrap();
                    client.mkdir(format!("{path}/other").as_bytes()).await.unwrap();
                }
                client.mkdir(b"/moved").await.unwrap();
                client.fs().drop_caches().await.unwrap();
                let to = format!("{path}/moved");
                client.rename(b"/moved", to.as_bytes(), RenameMode::Replace).await.unwrap();
                let below = format!("{path}/d");
                assert_eq!(client.rename(b"/d/d", below.as_bytes(), RenameMode::Replace).await, Err(FsError::Loop));
                client.write_file(format!("{path}/f").as_bytes(), b"1").await.unwrap();
                client.fsync_path(format!("{path}/f").as_bytes()).await.unwrap();
                assert!(inner(client.stat(to.as_bytes()).await.unwrap().ino).is_some());
            })
            .await;
        });
    }
}
