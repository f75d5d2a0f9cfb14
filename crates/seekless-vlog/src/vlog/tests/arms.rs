//! Aim: with several arms a write goes to the soonest one, in the time that the models give, and several writes go to
//! several arms at once. Method: modelled drives one after the other, against calculation and against one drive.

use futures_util::future::join_all;

use super::*;
use crate::vlog::eager::{AllocPurpose, EagerAllocator, Head};
use crate::vlog::layout::Layout;
use crate::vlog::model;
use crate::vlog::space::Space;
use crate::vlog::tracks::Tracks;
use crate::volume::{Mapped, concat};

fn drives(rt: &Rt, name: &str, count: usize) -> Rc<Mapped> {
    concat((0..count).map(|_| disk(rt, name)).collect()).expect("they fit")
}

/// One sector to write, with each arm at a random place: the minimum of several independent waits.
#[test]
fn several_drives_take_as_long_as_the_model() {
    let (n, t, switch, turn) = (256.0, 16.0, 0.5, 6.0);
    let sector_ms = turn / n;
    for (count, free) in [(1, 20), (2, 20), (4, 20), (4, 5)] {
        let measured = run(free + count, async |rt: Rt| {
            let mut rng = Rng::new(free);
            let device = drives(&rt, "st19101-wa99", count as usize);
            let view = device.head().expect("all of them have heads");
            assert_eq!(view.arms(), count as u32);
            let superblock = Layout::plan(device.geometry(), &Plan { block_bytes: 512, ..plan() }).expect("it fits");
            let layout = Layout::new(superblock).expect("it was planned");
            let mut space = Space::new(&layout, Tracks::new(&layout, Some(view)));
            assert_eq!(space.tracks.arm_count(), count as u32);
            for block in 0..layout.blocks {
                if !layout.is_reserved(block) && rng.below(100) >= free {
                    space.take(block);
                }
            }
            let mut allocator = EagerAllocator::new(0);
            let (mut total, mut draws) = (0.0, 0);
            for _ in 0..1200 {
                for member in device.members() {
                    let at = Sector(rng.below(member.geometry().sectors));
                    member.write(at, Data::zeroes(512), WriteFlags::NONE).await.expect("it can be written");
                }
                rt.sleep(Nanos(rng.below(50_000_000))).await;
                let head = Head { view, now: rt.now(), busy: &[] };
                let run = allocator.run(&space, &layout, Some(head), AllocPurpose::Data, 1).expect("there is room");
                let wait = view.write_access(rt.now(), layout.sector_of(run.first), 1);
                // Without the command and the first sector's bus transfer; the next sector edge is half a sector away,
                // or less with several arms to choose from.
                let edge = 1.0 / (count as f64 + 1.0);
                total += (wait.as_millis_f64() - 0.1 - 0.0128) / sector_ms - edge;
                draws += 1;
            }
            total / f64::from(draws)
        });
        let p = free as f64 / 100.0;
        let model = model::arms(count as f64, p, t, switch / sector_ms);
        println!("{count} drives, {free} % free: {measured:.2} sectors, the model {model:.2}");
        assert!((measured - model).abs() < 0.15 * model + 0.3, "{count} drives, {free} %: {measured} and {model}");
    }
    assert!((model::arms(1.0, 0.2, t, 21.3) - model::cylinder(0.2, t, 21.3)).abs() < 1e-6);
}

/// A disk on `count` drives that holds `blocks` blocks, written again and again until nothing is in order.
async fn used(rt: &Rt, name: &str, count: usize, blocks: u64) -> Rc<Vld> {
    let options = Options { compact: false, ..Options::default() };
    let vld = Vld::create(rt, drives(rt, name, count), &plan(), options).await.expect("made");
    for block in (0..blocks).step_by(64) {
        write(&vld, block, 64.min(blocks - block), 1).await;
    }
    let mut rng = Rng::new(1);
    for number in 2..2 * blocks {
        write(&vld, rng.below(blocks), 1, number).await;
    }
    vld
}

/// Four writers are served by four drives at once.
#[test]
fn writers_share_the_arms() {
    let time = |count: usize| {
        run(1, async |rt: Rt| {
            let vld = used(&rt, "hp97560-wa99", count, 4000).await;
            let start = rt.now();
            let writers = (0..4u64).map(|writer| {
                let vld = vld.clone();
                async move {
                    for number in 0..50 {
                        // Long enough that the data dominates, not the map.
                        write(&vld, writer * 1000 + number * 8, 8, 200_000 + number).await;
                    }
                }
            });
            join_all(writers).await;
            vld.check_invariants().expect("all promises hold");
            (rt.now() - start).as_millis_f64()
        })
    };
    let (one, four) = (time(1), time(4));
    println!("one drive {one:.0} ms, four {four:.0} ms");
    assert!(four < 0.5 * one, "{four} ms and {one} ms");
}
