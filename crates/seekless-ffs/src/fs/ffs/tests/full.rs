//! Aim: a volume whose counts promise space that its maps do not have reports that it is full, and keeps its content.
//! Method: a full volume, and the summary of free space changed on it.

use super::super::format::*;
use super::*;
use crate::testing::volumes::life::must_have_covered;

const BYTES: u64 = 4 * MIB;

/// Cover points that only wrong counts reach.
const POINTS: &[&str] = &["ffs: no group has room for a block"];

#[test]
fn counts_that_promise_too_much() {
    crate::rt::covered();
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let (memory, device) = fresh(&rt, BYTES, &small_groups()).await;
            let options = Options { metadata, use_reserve: true, ..Options::default() };
            let mut blocks = 0;
            session(&rt, &device, options, async |client| {
                client.write_file(b"/full", b"").await.unwrap();
                let file = client.open(b"/full", OpenFlags::READ_WRITE).await.unwrap();
                loop {
                    match client.write(file, blocks * 8192, &[1; 8192]).await {
                        Ok(_) => blocks += 1,
                        Err(error) => break assert_eq!(error, FsError::NoSpace, "{metadata:?}"),
                    }
                }
                client.close(file).await.unwrap();
                // A block of a large file may need another for its address.
                let mut rest = 0;
                while client.write_file(format!("/rest{rest}").as_bytes(), &[3; 8192]).await.is_ok() {
                    rest += 1;
                }
                assert!(rest < 20, "{metadata:?}: {rest}");
                client.write_file(b"/more", b"").await.unwrap();
            })
            .await;
            assert!(blocks > 300, "{metadata:?}: {blocks}");
            let layout = info(&device).await.unwrap().layout;
            let mut image = memory.image();
            let mut summaries = [0; 512];
            image.read(layout.sector(layout.csaddr), &mut summaries);
            for raw in summaries.chunks_exact_mut(Csum::BYTES).take(layout.groups as usize) {
                let summary = Csum::decode(raw).unwrap();
                Csum { nbfree: summary.nbfree + 7, ..summary }.encode(raw);
            }
            image.write(layout.sector(layout.csaddr), &summaries);
            memory.set_image(image);

            let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            let file = client.open(b"/more", OpenFlags::READ_WRITE).await.unwrap();
            assert_eq!(client.write(file, 0, &[2; 8192]).await, Err(FsError::NoSpace), "{metadata:?}");
            client.close(file).await.unwrap();
            assert!(!ffs.check().await.unwrap().is_empty(), "{metadata:?}: the counts are wrong");
            client.sync().await.unwrap();
            assert!(client.read_file(b"/full").await.unwrap() == vec![1; blocks as usize * 8192], "{metadata:?}");
            ffs.close().await.unwrap();
            drop((client, ffs));
            let found = fsck(&rt, &device, FsckOptions { repair: true, ..FsckOptions::default() }).await.unwrap();
            assert!(!found.is_clean(), "{metadata:?}");
            session(&rt, &device, options, async |client| {
                assert!(client.read_file(b"/full").await.unwrap() == vec![1; blocks as usize * 8192], "{metadata:?}");
                client.unlink(b"/full").await.unwrap();
                client.sync().await.unwrap();
                client.write_file(b"/more", &[2; 8192]).await.unwrap();
            })
            .await;
        });
    }
    must_have_covered("fs::ffs::tests::full::counts_that_promise_too_much", POINTS);
}

/// A cluster that moves takes no blocks that are promised to writes.
#[test]
fn a_cluster_leaves_what_is_promised() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, BYTES, &small_groups()).await;
        session(&rt, &device, Options { realloc_blocks: true, ..Options::default() }, async |client| {
            client.write_file(b"/f", &[1; 8192]).await.unwrap();
        })
        .await;
        let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        for left in 0..6 {
            let taken = ffs.step(|state| {
                let promised = state.totals.nbfree - left;
                state.promised_blocks += promised;
                let taken = state.take_cluster(state.layout.group_data(GroupNo(0)), 4);
                state.promised_blocks -= promised;
                if let Ok(Some(at)) = taken {
                    for block in 0..4 {
                        state.free_frags(at + block * state.layout.frag, state.layout.frag)?;
                    }
                }
                taken
            });
            assert_eq!(taken.await.unwrap().is_some(), left >= 4, "{left} blocks are promised to no write");
        }
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}
