//! Aim: VLFS keeps its promises through power cuts: all names are those of one moment, each file's content is that of
//! one moment, nothing synced is lost. Method: the crash explorer, on devices with different guarantees.

use async_trait::async_trait;

use super::*;
use crate::device::crash::CrashOptions;
use crate::device::cut::Effort;
use crate::testing::generate::bounded;
use crate::testing::scripts::SCRIPTS;
use crate::testing::tests::replay;
use crate::testing::{CrashReport, Generator, Op, PowerCuts, Promise, Replay, Space, Subject, Weights};

/// VLFS on a small volume.
#[derive(Default)]
pub(super) struct Small {
    pub options: Options,
}

#[async_trait(?Send)]
impl Subject for Small {
    fn name(&self) -> String {
        "vlfs".to_string()
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        mkfs(rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        Ok(mount(rt.clone(), device, self.options).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        Ok(fsck(rt.clone(), device, FsckOptions { data: true }).await?.errors)
    }
}

const BYTES: u64 = 6 * MIB;

fn devices() -> [CrashOptions; 4] {
    [
        CrashOptions::volatile(BYTES),
        CrashOptions::host_file(BYTES),
        CrashOptions::write_through(BYTES),
        CrashOptions::in_order(BYTES),
    ]
}

fn here(test: &str) -> Replay {
    replay(&format!("fs::vlfs::tests::crash::{test}"))
}

fn or_panic(result: Result<CrashReport, String>) -> CrashReport {
    result.unwrap_or_else(|report| panic!("{report}"))
}

/// Every position of every script.
#[test]
fn scripts() {
    let mut total = CrashReport::default();
    for device in devices() {
        for script in SCRIPTS {
            let subject = Small::default();
            let cuts = PowerCuts::new(&subject, device.clone(), Promise::NAMESPACE_PREFIX, here("scripts"));
            let cuts = PowerCuts { fsck_unrecovered: true, ..cuts };
            total.add(or_panic(cuts.run(&script.setup_ops(), &script.body_ops())));
        }
    }
    println!("{total}");
    assert!(total.states > 1_000, "{total}");
}

/// Short sequences of operations of every kind.
#[test]
fn short_sequences() {
    let mut total = CrashReport::default();
    let sequences = bounded(2);
    let prologue = crate::testing::generate::Bounded::prologue().len();
    let replay = here("short_sequences");
    for ops in sequences.sample(60 * replay.soak.max(1), replay.seed.unwrap_or(7)) {
        let (setup, body) = ops.split_at(prologue);
        let subject = Small::default();
        let device = CrashOptions::volatile(BYTES);
        let cuts = PowerCuts::new(&subject, device, Promise::NAMESPACE_PREFIX, here("short_sequences"));
        total.add(or_panic(PowerCuts { effort: Effort::SAMPLED, again: None, ..cuts }.run(setup, body)));
    }
    println!("{total}");
}

/// Long random sequences, with transactions as often as the clock says.
#[test]
fn random_runs() {
    let mut total = CrashReport::default();
    for seed in here("random_runs").seeds(0..4) {
        let device = devices()[seed as usize % 4].clone();
        let options = Options { write_back_interval: Nanos::from_millis(2), ..Options::default() };
        let subject = Small { options };
        let space = Space { file_bytes_max: if seed % 2 == 0 { 40_000 } else { 400_000 }, ..Space::small() };
        let ops: Vec<Op> = Generator::new(seed, space, Weights::CRASHY).take(250).collect();
        let cuts = PowerCuts::sampled(&subject, device, Promise::NAMESPACE_PREFIX, here("random_runs"));
        let cuts = PowerCuts { seed, positions_max: 120, ..cuts };
        total.add(or_panic(cuts.run(&[], &ops)));
    }
    println!("{total}");
}

/// Several programs at once: their operations overlap, and so do their fsyncs.
#[test]
fn several_clients() {
    let mut total = CrashReport::default();
    for seed in here("several_clients").seeds(0..1) {
        let bodies: Vec<Vec<Op>> = (0..3)
            .map(|client| {
                let root = crate::testing::ops::Path::from(&*format!("/c{client}"));
                let space = Space { root, slots: 1, ..Space::small() };
                Generator::new(seed * 3 + client, space, Weights::CRASHY).take(120).collect()
            })
            .collect();
        let subject = Small::default();
        let device = CrashOptions::volatile(BYTES);
        let cuts = PowerCuts::sampled(&subject, device, Promise::NAMESPACE_PREFIX, here("several_clients"));
        total.add(or_panic(PowerCuts { seed, positions_max: 150, ..cuts }.run_concurrently(&bodies)));
    }
    println!("{total}");
}
