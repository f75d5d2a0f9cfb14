//! Aim: operations on long ranges of a file end, whatever the size of the cache, and keep little in memory. Method: small
//! limits of memory, and devices that count.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};

const ALLOCATE: AllocateMode = AllocateMode::Allocate { keep_size: false };

/// A range with more indirect blocks than the cache holds is allocated again, with a number of reads that is
/// proportional to it: its indirect blocks are read once for the count, and once more with the blocks.
#[test]
fn more_indirect_blocks_than_memory() {
    simulate(1, async |rt| {
        let mkfs = MkfsOptions { block_bytes: 4096, frag_bytes: 512, ..small_groups() };
        let (_, device) = fresh(&rt, 288 * MIB, &mkfs).await;
        let fault = FaultDevice::new(&rt, device.clone(), 1);
        let options = Options { cache_bytes: 0, ..Options::default() };
        let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
        let client = Client::new(ffs.clone());
        let file = client.create(b"/f").await.unwrap();
        let range = FileRange { offset: 0, bytes: 240 * MIB };
        client.fallocate(b"/f", range, ALLOCATE).await.unwrap();
        client.fs().drop_caches().await.unwrap();
        fault.add(Rule::new(Kinds::READ, When::From(1000), Effect::Error));
        client.fallocate(b"/f", range, ALLOCATE).await.unwrap();
        fault.clear();
        client.close(file).await.unwrap();
        ffs.close().await.unwrap();
        assert_clean(&rt, &device).await;
    });
}

/// A range is overwritten with zeroes in as little memory as a writer has.
#[test]
fn zeroes_in_little_memory() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let (_, device) = fresh(&rt, 32 * MIB, &small_groups()).await;
            let fault = FaultDevice::new(&rt, device.clone(), 1);
            let options = Options { metadata, dirty_bytes_max: 64 << 10, ..Options::default() };
            let ffs = mount(rt.clone(), fault.clone(), options).await.unwrap();
            let client = Client::new(ffs.clone());
            client.write_file(b"/f", &vec![1; 16 << 20]).await.unwrap();
            client.sync().await.unwrap();
            let delay = Nanos::from_micros(100)..=Nanos::from_micros(100);
            fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Delay(delay)));
            let zeroing = {
                let client = Client::new(ffs.clone());
                let range = FileRange { offset: 0, bytes: 16 << 20 };
                rt.spawn(async move { client.fallocate(b"/f", range, AllocateMode::Zero { keep_size: false }).await })
            };
            let mut most = 0;
            while !zeroing.is_finished() {
                rt.sleep(Nanos::from_micros(50)).await;
                most = most.max(ffs.state.borrow().cache.dirty_bytes);
            }
            zeroing.await.unwrap();
            assert!(most < 512 << 10, "{metadata:?}: {most} bytes");
            assert!(client.read_file(b"/f").await.unwrap() == vec![0; 16 << 20]);
            ffs.close().await.unwrap();
            assert_clean(&rt, &device).await;
        });
    }
}
