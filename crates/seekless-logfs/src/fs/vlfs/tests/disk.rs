//! Aim: on a disk, an fsync costs VLFS what eager writing promises: no seek to a fixed place. Method: modelled drives
//! in virtual time.

use super::*;
use crate::disk::{Disk, Drive};
use crate::rng::Rng;

fn disk(rt: &Rt, name: &str) -> Device {
    let drive = Drive::named(name).unwrap_or_else(|| panic!("{name} is in the catalogue"));
    Rc::new(Disk::new(rt.clone(), drive, crate::disk::Options::default()).expect("the catalogue has drives"))
}

/// Random updates of 4 KiB in a file, each synced: mean time of one.
async fn updates(rt: &Rt, client: &Client, blocks: u64, count: u64) -> Nanos {
    let file = client.create(b"/file").await.unwrap();
    client.write(file, 0, &vec![1; (blocks * 4096) as usize]).await.unwrap();
    client.fsync_path(b"/file").await.unwrap();
    let mut rng = Rng::new(1);
    println!("{:?}", client.fs().counters());
    let start = rt.now();
    for number in 0..count {
        client.write(file, rng.below(blocks) * 4096, &[number as u8; 4096]).await.unwrap();
        client.fsync_path(b"/file").await.unwrap();
    }
    client.close(file).await.unwrap();
    Nanos(rt.now().saturating_sub(start).0 / count)
}

/// Half a revolution of an HP 97560, at 4002 rpm, is 7.5 ms: an update in place costs more than that, and VLFS writes
/// data, indirect block, inode and a piece of the map in less.
#[test]
fn an_fsync_needs_less_than_half_a_revolution() {
    simulate(1, async |rt| {
        let device = disk(&rt, "hp97560");
        let before = device.clone();
        mkfs(&rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await.expect("mkfs");
        let mean = session(&rt, &device, async |client| updates(&rt, client, 256, 200).await).await;
        println!("{} us for an update, {:?}", mean.0 / 1000, before.counters());
        assert!(mean < Nanos::from_micros(15_000), "{mean:?}");
        let vlfs = mount(rt.clone(), device, Options::default()).await.expect("mount");
        println!("{:?}", vlfs.counters());
    });
}
