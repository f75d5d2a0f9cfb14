//! Aim: what is in the way of an operation halfway costs no space and no other file's data: a block that left memory while
//! the operation waited, or one that cannot be read. Method: small programs on devices that are slow or fail at the one
//! block that matters.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::ffs::state::inner;

const BYTES: u64 = 16 * MIB;

async fn begin(rt: &Rt, options: Options) -> (Device, Rc<FaultDevice>, Rc<Ffs>, Client) {
    let (_, device) = fresh(rt, BYTES, &small_groups()).await;
    let fault = FaultDevice::new(rt, device.clone(), 1);
    let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
    let client = Client::new(ffs.clone());
    (device, fault, ffs, client)
}

fn unreadable(ffs: &Ffs, at: FragNo) -> Rule {
    let layout = &ffs.state.borrow().layout;
    Rule::new(Kinds::READ, When::Always, Effect::Error).within(layout.sector(at)..layout.sector(at + layout.frag))
}

/// A file goes while its indirect block cannot be read: everything else is free, and the volume is checked before it is used
/// again.
#[test]
fn a_file_of_which_a_part_cannot_be_freed() {
    for metadata in [Metadata::Sync, Metadata::Async] {
        simulate(1, async |rt| {
            let (device, fault, ffs, client) = begin(&rt, Options { metadata, ..Options::default() }).await;
            let empty = client.fs().statfs().await.unwrap().blocks_free;
            client.write_file(b"/f", &vec![1; 1 << 20]).await.unwrap();
            let ino = inner(client.stat(b"/f").await.unwrap().ino).unwrap();
            let indirect = ffs.step(|state| Ok(state.inode(ino)?.inode.ib[0])).await.unwrap();
            client.fs().drop_caches().await.unwrap();
            fault.add(unreadable(&ffs, indirect));
            assert!(matches!(client.unlink(b"/f").await, Err(FsError::Device(_))), "{metadata:?}");
            fault.clear();
            let left = (128 - 12 + 1) * 8; // The indirect block, and what is below it.
            assert_eq!(client.fs().statfs().await.unwrap().blocks_free, empty - left, "{metadata:?}");
            ffs.close().await.unwrap();
            drop((client, ffs));
            assert!(!info(&device).await.unwrap().clean, "{metadata:?}: space is lost");
            session(&rt, &device, Options { metadata, ..Options::default() }, async |client| {
                assert_eq!(client.fs().statfs().await.unwrap().blocks_free, empty, "{metadata:?}");
                assert_eq!(client.read_dir(b"/").await.unwrap().len(), 0, "{metadata:?}");
            })
            .await;
        });
    }
}
