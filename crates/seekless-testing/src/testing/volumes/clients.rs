//! Aim: what is acknowledged as durable to one client survives a power cut, whatever other clients do at that moment.
//! Method: programs of several clients, interleaved by the seed, with cuts anywhere; the oracle checks each client's
//! every acknowledgement.

use super::*;
use crate::device::Image;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::Effort;
use crate::testing::environment::{or_panic, replay};
use crate::testing::programs::{Mix, programs};
use crate::testing::{CrashReport, Op, PowerCuts, Promise, SecondCut};

/// States for each cut: few, because there are many cuts.
const EFFORT: Effort = Effort { all_subsets_of: 1, singles: 2, tears: 2, samples: 3 };

/// How much is explored.
pub struct Clients<'a> {
    /// Full name of the test.
    pub test: &'a str,
    pub promise: Promise,
    pub devices: &'a [CrashOptions],
    /// Seeds, and positions of the cut for each.
    pub seeds: u64,
    pub positions: usize,
    /// Minimum number of states checked when nothing fails.
    pub states_min: usize,
    pub second_cut: Option<SecondCut>,
}

impl Clients<'_> {
    /// Each seed gets a new subject.
    pub fn explore<S: FsUnderTest>(&self, subject: impl Fn(u64) -> S) {
        let mut total = CrashReport::default();
        let here = replay(self.test);
        for seed in here.seeds(0..self.seeds) {
            let subject = subject(seed);
            // In another order every four seeds, since subjects draw options from the same numbers.
            let mix = [Mix::Fsyncs, Mix::All, Mix::Names, Mix::Rare][(seed + seed / 4) as usize % 4];
            let clients = 3 + seed % 2;
            let bodies: Vec<Vec<Op>> = programs(seed, clients, 120 / clients as usize, mix)
                .into_iter()
                .map(|body| body.into_iter().filter(|op| subject.can(op)).collect())
                .collect();
            let device = self.devices[(seed / 4) as usize % self.devices.len()].clone();
            let cuts = PowerCuts::sampled(&subject, device, self.promise, here.clone());
            let cuts =
                PowerCuts { seed, positions_max: self.positions, effort: EFFORT, second_cut: self.second_cut, ..cuts };
            total.add(or_panic(cuts.run_concurrently(&bodies)));
        }
        println!("{total}");
        if here.runs_everything() {
            assert!(total.states >= self.states_min, "{total}");
        }
    }
}

/// A close returns only when the volume is closed, also the second of two concurrent ones. Method: after each return,
/// the certainly durable content of the device is mounted.
pub fn two_close_at_once(subject: &dyn FsUnderTest, bytes: u64) {
    for seed in 0..6 {
        let closed = crate::testing::subject::simulate(seed, crate::testing::crash::LIMITS, async |rt| {
            let options = CrashOptions { seed, ..CrashOptions::volatile(bytes) };
            let made = CrashDevice::new(&rt, Image::default(), options.clone());
            subject.mkfs(&rt, made.clone()).await.expect("mkfs");
            let device = CrashDevice::new(&rt, made.image(), options.clone());
            let fs = subject.mount(&rt, device.clone()).await.expect("mount");
            Client::new(fs.clone()).write_file(b"/written", &[7; 30_000]).await.expect("it is written");
            let closing = |_| {
                let (fs, device) = (fs.clone(), device.clone());
                rt.spawn(async move {
                    fs.close().await.expect("it closes");
                    let (log, position) = (device.log(), device.position());
                    let cut = log.cut(position);
                    // The first choice contains only durable writes.
                    cut.image(&cut.choices(&Effort::SAMPLED, 1)[0])
                })
            };
            let closing: Vec<_> = (0..2).map(closing).collect();
            for (number, closing) in closing.into_iter().enumerate() {
                let left = CrashDevice::new(&rt, closing.await, CrashOptions { record: false, ..options.clone() });
                let fs = subject.mount(&rt, left).await.expect("mount");
                let found = Client::new(fs).read_file(b"/written").await;
                assert!(found == Ok(vec![7; 30_000]), "seed {seed}, close number {number}");
            }
        });
        closed.unwrap_or_else(|why| panic!("{}: {why}", subject.name()));
    }
}
