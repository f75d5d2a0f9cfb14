//! `mount`: how long it takes until a volume with files on it is usable, after a close and after a power cut.
//!
//! [ro92 §4, Table 3] measured roll-forward by the amount to recover; here the volume size is varied as well.
//! Everything is made durable before the end: a cut is a moment at which the file system is gone and the drive is not.

use seekless::device::Device;
use seekless::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use seekless::rt::Rt;
use seekless::stack::{Identity, Opened, Purpose, Stack, Usage};
use seekless::units::{MIB, Nanos, SECTOR_BYTES};
use serde::Deserialize;

use super::{Bytes, Context, Measure, Read, RunTarget, Workload, WorkloadKind, in_virtual_time, parse};
use crate::LabError;
use crate::run::{SimulatedLeaves, can_be_simulated, close};
use crate::target::{Target, Vfs};

pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "mount",
    help: "how long it takes to mount a volume with files, closed or left by a power cut, on modelled devices",
    dims: &[],
    metrics: &[
        ("mount_s", "from the first request until the volume can be used, with a check where there has to be one"),
        ("requests", "requests that drives served for that"),
        ("read_mib", "what was read, in MiB"),
        ("written_mib", "what was written, in MiB"),
        ("first_ms", "then: a file's name looked up and its first block read"),
    ],
    read: Read::Other(|table| parse::<Mount>(table).map(|mount| Box::new(mount) as Box<dyn Workload>)),
};

/// Its parameters in `[workload]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Mount {
    files: u64,
    /// Size of each. Only the first bytes are not zero: a modelled disk stores zeroes without memory.
    #[serde(default = "ten_kib")]
    bytes: Bytes,
    #[serde(default = "hundred")]
    files_per_directory: u64,
    /// Each file is made durable before the next, so that its place does not depend on the others.
    #[serde(default)]
    sync_each: bool,
    /// Files created after the others were made durable together, each with an fsync.
    #[serde(default = "hundred")]
    after: u64,
    end: End,
}

/// The mean of [ro92 Table 2] lies between 10 and 40 KB; its Table 3 has 1, 10 and 100 KB.
fn ten_kib() -> Bytes {
    Bytes(10 << 10)
}

fn hundred() -> u64 {
    100
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum End {
    Closed,
    Cut,
}

/// Bytes that identify a file.
const MARK_BYTES: usize = 8;

/// Longer than a drive takes for pending work.
const SPIN_DOWN: Nanos = Nanos::from_secs(1);

impl Workload for Mount {
    fn check(&self, on: &RunTarget) -> Result<(), String> {
        if self.files == 0
            || self.files_per_directory == 0
            || self.bytes.0 < MARK_BYTES as u64
            || self.bytes.0 > 64 * MIB
        {
            return Err(format!(
                "[workload]: one file at least, in directories for one at least, of {MARK_BYTES} bytes to 64 MiB"
            ));
        }
        match on {
            RunTarget::Stack(stack) if can_be_simulated(stack) && stack.file_system().is_some() => Ok(()),
            _ => Err("a contestant needs `on`, a stack of a file system on modelled devices".into()),
        }
    }

    fn run(&self, on: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let RunTarget::Stack(stack) = on else { return self.check(on).map(|()| Vec::new()) };
        Ok(vec![in_virtual_time(context, async |rt, identity, _| self.mount(rt, stack, identity).await)?])
    }
}

impl Mount {
    async fn mount(&self, rt: &Rt, stack: &Stack, identity: &Identity) -> Result<Measure, LabError> {
        let opened = stack.open(rt, &SimulatedLeaves, Purpose::Use).await?;
        opened.mkfs(identity).await?;
        self.fill(rt, &opened).await?;

        let before = Counted::of(&opened);
        let start = rt.now();
        let target = Vfs::new(rt.clone(), opened.mount(Usage::default()).await?);
        let mounted = rt.now();
        let used = Counted::of(&opened);
        let last = self.files + self.after - 1;
        self.check_file(&target, last).await?;
        let first = rt.now() - mounted;
        self.check_names(&target).await?;
        close(target.fs()).await?;

        let mib = |after: u64, before: u64| ((after - before) * SECTOR_BYTES) as f64 / MIB as f64;
        Ok(Measure::new([
            ("mount_s", Some((mounted - start).as_secs_f64())),
            ("requests", Some((used.requests - before.requests) as f64)),
            ("read_mib", Some(mib(used.sectors_read, before.sectors_read))),
            ("written_mib", Some(mib(used.sectors_written, before.sectors_written))),
            ("first_ms", Some(first.as_millis_f64())),
        ]))
    }

    /// Creates the files, and closes or cuts.
    async fn fill(&self, rt: &Rt, opened: &Opened<'_>) -> Result<(), LabError> {
        let mut plug = None;
        let fronted = opened.behind(|device| {
            let fault = FaultDevice::new(rt, device, 0);
            plug = Some(fault.clone());
            fault as Device
        });
        let target = Vfs::new(rt.clone(), fronted.mount(Usage::default()).await?);
        for file in 0..self.files {
            self.make_file(&target, file, self.sync_each).await?;
        }
        target.sync().await?;
        for file in self.files..self.files + self.after {
            self.make_file(&target, file, true).await?;
        }
        match self.end {
            End::Closed => close(target.fs()).await?,
            End::Cut => {
                if let Some(plug) = plug {
                    plug.add(Rule::new(Kinds::all(), When::Always, Effect::Gone));
                }
            }
        }
        rt.sleep(SPIN_DOWN).await;
        Ok(())
    }

    async fn make_file(&self, target: &Vfs, file: u64, sync: bool) -> Result<(), LabError> {
        if file.is_multiple_of(self.files_per_directory) {
            target.mkdir(&self.directory(file)).await?;
        }
        let mut open = target.create(&self.path(file)).await?;
        let mut bytes = vec![0; self.bytes.0 as usize];
        bytes[..MARK_BYTES].copy_from_slice(&mark(file));
        target.write(&mut open, 0, &bytes).await?;
        if sync {
            target.fsync(&mut open).await?;
        }
        target.close(open).await
    }

    /// Checks that a file exists with its content.
    async fn check_file(&self, target: &Vfs, file: u64) -> Result<(), LabError> {
        let path = self.path(file);
        let mut open = target.open(&path).await?;
        let mut bytes = [0; MARK_BYTES];
        let read = target.read(&mut open, 0, &mut bytes).await?;
        target.close(open).await?;
        match read == MARK_BYTES && bytes == mark(file) {
            true => Ok(()),
            false => Err(LabError::Content { path, detail: "its first bytes are others".to_owned() }),
        }
    }

    /// Checks that every name exists, and that files made durable one by one have their content.
    async fn check_names(&self, target: &Vfs) -> Result<(), LabError> {
        let files = self.files + self.after;
        for first in (0..files).step_by(self.files_per_directory as usize) {
            let path = self.directory(first);
            let (wanted, found) = (self.files_per_directory.min(files - first), target.list(&path).await?.len());
            if found as u64 != wanted {
                return Err(LabError::Content { path, detail: format!("{found} names of {wanted}") });
            }
        }
        for file in self.files..files {
            self.check_file(target, file).await?;
        }
        Ok(())
    }

    fn directory(&self, file: u64) -> String {
        format!("d{:06}", file / self.files_per_directory)
    }

    fn path(&self, file: u64) -> String {
        format!("{}/f{file:07}", self.directory(file))
    }
}

/// No file begins with zeroes.
fn mark(file: u64) -> [u8; MARK_BYTES] {
    (file + 1).to_le_bytes()
}

/// Counters of a stack's drives.
#[derive(Clone, Copy, Default)]
struct Counted {
    requests: u64,
    sectors_read: u64,
    sectors_written: u64,
}

impl Counted {
    fn of(opened: &Opened<'_>) -> Counted {
        let mut counted = Counted::default();
        let drives = opened.instances().last().into_iter().flatten();
        for (name, value) in drives.flat_map(|drive| drive.counters()) {
            match name {
                "requests" => counted.requests += value,
                "sectors_read" => counted.sectors_read += value,
                "sectors_written" => counted.sectors_written += value,
                _ => {}
            }
        }
        counted
    }
}
