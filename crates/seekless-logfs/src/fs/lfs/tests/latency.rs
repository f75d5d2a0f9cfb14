//! Aim: the cleaner works while users pause, also where too little is ever dirty for write-back to wake it; but on a device on
//! which a pass takes long, no fsync waits behind one. Method: blocks are overwritten at random, each durable before the next, on a
//! fast and on a slow device, in virtual time, which is exact.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::rng::Rng;

const BLOCK: u64 = 4 * KIB;
const VOLUME: u64 = 64 * MIB;
const PAUSE: Nanos = Nanos::from_millis(100);

struct Waits {
    writes: usize,
    /// Writes that waited for the cleaner.
    waited: usize,
    longest_sync: Nanos,
}

/// `request` is what each request takes.
fn waits(request: Nanos) -> Waits {
    simulate(1, async |rt| {
        let memory: Device = Rc::new(Memory::new(VOLUME));
        mkfs(&rt, &memory, &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
        let device = FaultDevice::new(&rt, memory, 1);
        device.add(Rule::new(Kinds::all(), When::Always, Effect::Delay(request..=request)));
        let lfs = open(rt.clone(), device, Options::default()).await.unwrap();
        let client = Client::new(lfs.clone());
        let file = client.create(b"/f").await.unwrap();
        let blocks = VOLUME * 3 / 4 / BLOCK;
        for block in 0..blocks {
            client.write(file, block * BLOCK, &[0; BLOCK as usize]).await.unwrap();
        }
        client.sync().await.unwrap();

        let (mut rng, writes) = (Rng::new(1), blocks as usize);
        let (mut waited, mut longest_sync) = (0, Nanos::ZERO);
        for _ in 0..writes {
            rt.sleep(PAUSE).await;
            let begun = rt.now();
            client.write(file, rng.below(blocks) * BLOCK, &[1; BLOCK as usize]).await.unwrap();
            let written = rt.now();
            waited += usize::from(written > begun);
            client.fsync(file).await.unwrap();
            longest_sync = longest_sync.max(rt.now() - written);
        }
        let cleaned = lfs.state.borrow().log.counters.cleaner_segments_read;
        assert!(cleaned > 500, "{cleaned} segments cleaned");
        assert_eq!(lfs.check().await.unwrap(), Vec::<String>::new());
        lfs.close().await.unwrap();
        Waits { writes, waited, longest_sync }
    })
}

#[test]
fn writes_with_pauses_seldom_wait_for_the_cleaner() {
    let Waits { writes, waited, .. } = waits(Nanos::from_micros(100));
    assert!(waited * 200 < writes, "{waited} of {writes} writes waited"); // 29; without being woken by syncs, 297
}

#[test]
fn syncs_do_not_wait_for_long_passes() {
    let longest_sync = waits(Nanos::from_millis(10)).longest_sync;
    assert!(longest_sync < Nanos::from_millis(30), "an fsync took {longest_sync:?}");
}
