//! Aim: an fsync does not wait long for the cleaner. Method: writers that overwrite blocks at random on a part of the disk
//! of [se95], each block durable before the next, in virtual time, which is exact; beside them the same on a volume that is
//! nearly empty.

use futures_util::future::join_all;

use super::*;
use crate::disk::{DataSheet, Disk, Drive};
use crate::rng::Rng;
use crate::testing::parts::parts;

const BLOCK: u64 = 4 * KIB;


async fn overwritten(rt: &Rt, device: Device, percent: u64, writers: u64, turns: u64) -> String {
    let lfs = open(rt.clone(), device, Options::default()).await.unwrap();
    let layout = lfs.state.borrow().log.layout;
    let blocks = layout.segment_count() * layout.segment_bytes() * percent / 100 / BLOCK;
    let client = Client::new(lfs.clone());
    if client.stat(b"/0").await.is_err() {
        for writer in 0..writers {
            let file = client.create(format!("/{writer}").as_bytes()).await.unwrap();
            for block in 0..blocks / writers {
                client.write(file, block * BLOCK, &[0; BLOCK as usize]).await.unwrap();
            }
            client.close(file).await.unwrap();
        }
        client.sync().await.unwrap();
    }
    let before = lfs.state.borrow().log.counters;
    let start = rt.now();
    let tasks = (0..writers).map(|writer| {
        let (rt, client) = (rt.clone(), client.clone());
        rt.clone().spawn(async move {
            let file = client.open(format!("/{writer}").as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
            let mut rng = Rng::new(writer);
            let (mut fs, mut ws) = (Vec::new(), Vec::new());
            for _ in 0..turns * blocks / writers {
                let begun = rt.now();
                client.write(file, rng.below(blocks / writers) * BLOCK, &[0; BLOCK as usize]).await.unwrap();
                let written = rt.now();
                client.fsync(file).await.unwrap();
                fs.push(rt.now() - written);
                ws.push(written - begun);
                rt.sleep(Nanos::from_millis(1)).await;
            }
            client.close(file).await.unwrap();
            (fs, ws)
        })
    });
    let all = join_all(tasks.collect::<Vec<_>>()).await;
    let after = lfs.state.borrow().log.counters;
    let took = rt.now() - start;
    lfs.close().await.unwrap();
    let show = |mut t: Vec<Nanos>| {
        t.sort_unstable();
        let at = |p: usize| t[(t.len() * p / 10000).min(t.len() - 1)].as_millis_f64();
        format!("{:.2} {:.1} {:.1} {:.0}", at(5000), at(9900), at(9990), at(10000))
    };
    let fsync = show(all.iter().flat_map(|a| a.0.clone()).collect());
    let write = show(all.iter().flat_map(|a| a.1.clone()).collect());
    format!("fsync {fsync} | write {write} | cost {:.3} | {:.0} s | cp {} tx {}",
        (after.log_bytes - before.log_bytes) as f64 / (after.log_data_bytes - before.log_data_bytes) as f64, took.as_secs_f64(),
        after.checkpoints - before.checkpoints, after.transactions - before.transactions)
}

fn on_a_disk(slow: bool, percent: u64, writers: u64, again: bool) -> String {
    simulate(1, async |rt| {
        let drive = if slow { Drive::named("dec-rz26").unwrap().clone() } else { DataSheet::new(7200, Nanos::from_micros(8500), 4_000_000_000, 180_000_000).drive().unwrap() };
        let disk = Rc::new(Disk::new(rt.clone(), &drive, crate::disk::Options::default()).unwrap());
        let whole: Device = disk;
        let volume: u64 = std::env::var("VOL").ok().map_or(128, |v| v.parse().unwrap()) * MIB;
        let device = parts(&whole, whole.geometry().sectors / (volume / 512)).swap_remove(0);
        mkfs(&rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
        let turns = if again { 1 } else { 2 };
        let waits = overwritten(&rt, device.clone(), percent, writers, turns).await;
        if again { overwritten(&rt, device, percent, writers, turns).await } else { waits }
    })
}

#[test]
fn an_fsync_waits_little_for_the_cleaner() {
    for slow in [false, true] {
    for (percent, writers, again) in [(10, 1, false), (79, 1, false), (87, 1, false), (79, 4, false), (79, 1, true)] {
        let waits = on_a_disk(slow, percent, writers, again);
        println!("RES {} {percent} % {writers} w {again}: {waits}", if slow { "1992" } else { "7200" });
    }
    }
}
