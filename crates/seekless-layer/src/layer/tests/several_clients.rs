//! Aim: layers lose nothing that was acknowledged to one client, whatever other clients do, over every file system that
//! guarantees less than, or something other than, LFS. Method: programs of several clients over a layer over a file system on a crash
//! device, cut anywhere; the oracle checks each client's every acknowledgement.
//!
//! Names and attributes are as the file system below keeps them. In the scheme `log` the content of each file is whole, at a moment
//! of its own, also where the file system below overwrites in place; only over FFS with ordered metadata a file that was never synced
//! may read as anything, as it may there without a layer. In the scheme `classic` the content of a file that was
//! changed since its last sync may be anything or unreadable, and that of every other file is there (`classic/FORMAT.md`,
//! "After a crash").

use std::sync::Arc;

use async_trait::async_trait;

use crate::device::Device;
use crate::device::crash::CrashOptions;
use crate::fs::{Fs, FsResult, ffs, lfs, vlfs};
use crate::layer::codecs::{Codec, Copy, Deflate, Key, Sealed, Uuencode, Zstd};
use crate::layer::{Plain, Report, classic, log};
use crate::rt::Rt;
use crate::testing::volumes::clients::Clients;
use crate::testing::{ChangedContent, FsUnderTest, Op, Promise, Strength};
use crate::units::{MIB, Nanos};

/// The file system below. Each writes back often, so that its own work meets that of the layer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Below {
    Lfs,
    Vlfs,
    Ffs(ffs::Metadata),
}

#[derive(Clone)]
enum Scheme {
    Log(log::Options),
    /// With `repairs`, every directory is checked and repaired before it is mounted.
    Classic {
        options: classic::Options,
        repairs: bool,
    },
}

/// A layer over a file system, as one file system.
struct Stack {
    scheme: Scheme,
    below: Below,
}

impl Below {
    fn bytes(self) -> u64 {
        match self {
            Below::Lfs => 12 * MIB,
            Below::Vlfs | Below::Ffs(_) => 6 * MIB,
        }
    }

    /// The devices whose guarantees it is made for.
    fn devices(self) -> Vec<CrashOptions> {
        let bytes = self.bytes();
        match self {
            Below::Lfs | Below::Vlfs => CrashOptions::each(bytes).to_vec(),
            Below::Ffs(_) => {
                vec![CrashOptions::volatile(bytes), CrashOptions::write_through(bytes), CrashOptions::in_order(bytes)]
            }
        }
    }

    /// What it keeps of names.
    fn strength(self) -> Strength {
        match self {
            Below::Lfs | Below::Vlfs => Strength::PerOperation,
            Below::Ffs(metadata) => Strength::InPlace { at_once: metadata == ffs::Metadata::Sync },
        }
    }

    async fn mkfs(self, rt: &Rt, device: Device) -> FsResult<()> {
        match self {
            Below::Lfs => lfs::mkfs(rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await,
            Below::Vlfs => vlfs::mkfs(rt, &device, &vlfs::MkfsOptions::new([1, 2, 3, 4])).await,
            Below::Ffs(_) => {
                let shape = ffs::MkfsOptions::new([1, 2]);
                let shape = ffs::MkfsOptions { cylinders_per_group: 2, bytes_per_inode: Some(16_384), ..shape };
                ffs::mkfs(rt, &device, &shape).await
            }
        }
    }

    async fn mount(self, rt: &Rt, device: Device, read_only: bool) -> FsResult<Fs> {
        let often = Nanos::from_millis(2);
        match self {
            Below::Lfs => {
                let options = lfs::Options { read_only, write_back_interval: often, ..lfs::Options::default() };
                let options = lfs::Options { checkpoint_interval: Nanos::from_millis(5), ..options };
                Ok(lfs::mount(rt.clone(), device, options).await?)
            }
            Below::Vlfs => {
                let options = vlfs::Options { read_only, write_back_interval: often, ..vlfs::Options::default() };
                Ok(vlfs::mount(rt.clone(), device, options).await?)
            }
            Below::Ffs(metadata) => {
                if !read_only && !ffs::info(&device).await?.clean {
                    // Files without names are freed: the oracle knows nothing of `lost+found`.
                    let repair =
                        ffs::FsckOptions { repair: true, reconnect: false, only_after_crash: true, trust_order: false };
                    ffs::fsck(rt, &device, repair).await?;
                }
                let options = ffs::Options { read_only, metadata, update_interval: often, ..ffs::Options::default() };
                Ok(ffs::mount(rt.clone(), device, options).await?)
            }
        }
    }

    async fn fsck(self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        match self {
            Below::Lfs => {
                let options = lfs::FsckOptions { data: true, ..lfs::FsckOptions::default() };
                Ok(lfs::fsck(rt.clone(), device, options).await?.errors)
            }
            Below::Vlfs => {
                let options = vlfs::FsckOptions { data: true, ..vlfs::FsckOptions::default() };
                Ok(vlfs::fsck(rt.clone(), device, options).await?.errors)
            }
            Below::Ffs(_) => {
                let found = ffs::fsck(rt, &device, ffs::FsckOptions::default()).await?;
                Ok(found.problems.into_iter().map(|problem| problem.text).collect())
            }
        }
    }

    fn can(self, op: &Op) -> bool {
        !matches!(self, Below::Ffs(_)) || op.is_possible_on_ufs1()
    }
}

impl Scheme {
    async fn stack_on(&self, rt: &Rt, lower: Fs) -> FsResult<Fs> {
        match self {
            Scheme::Log(options) => log::stack_on(rt, lower, options.clone()).await,
            Scheme::Classic { options, .. } => classic::stack_on(rt, lower, options.clone()).await,
        }
    }

    async fn check(&self, rt: &Rt, lower: Fs, repair: bool) -> FsResult<Report> {
        match self {
            Scheme::Log(options) => log::check::check(rt, lower, options.clone(), repair).await,
            Scheme::Classic { options, .. } => classic::check::check(rt, lower, options.clone(), repair).await,
        }
    }

    fn changed_content(&self, below: Below) -> ChangedContent {
        match (self, below) {
            (Scheme::Log(_), Below::Ffs(ffs::Metadata::Sync)) => ChangedContent::OneMomentOnceSynced,
            (Scheme::Log(_), _) => ChangedContent::OneMoment,
            (Scheme::Classic { .. }, _) => ChangedContent::Anything,
        }
    }
}

#[async_trait(?Send)]
impl FsUnderTest for Stack {
    fn name(&self) -> String {
        match &self.scheme {
            Scheme::Log(options) => format!("{} / {:?}", options.codec.name(), self.below),
            Scheme::Classic { options, .. } => format!("{}, classic / {:?}", options.codec.name(), self.below),
        }
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        self.below.mkfs(rt, device).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let lower = self.below.mount(rt, device, false).await?;
        if let Scheme::Classic { repairs: true, .. } = self.scheme {
            self.scheme.check(rt, lower.clone(), true).await?;
        }
        self.scheme.stack_on(rt, lower).await
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let mut found = self.below.fsck(rt, device.clone()).await?;
        let lower = self.below.mount(rt, device, true).await?;
        let report = self.scheme.check(rt, lower, false).await?;
        // What was never synced may be damaged over FFS with ordered metadata. In the scheme `classic` so may what was being changed,
        // and a stale index may be left; after a repair, nothing is left that could be repaired.
        let is_wrong = match (&self.scheme, self.below) {
            (Scheme::Log(_), Below::Ffs(ffs::Metadata::Sync)) => false,
            (Scheme::Log(_), _) => true,
            (Scheme::Classic { repairs, .. }, _) => *repairs && report.repairable,
        };
        if is_wrong {
            let line = |finding: log::check::Finding| {
                format!("{}: {}", String::from_utf8_lossy(&finding.path), finding.problem)
            };
            found.extend(report.findings.into_iter().map(line));
        }
        Ok(found)
    }

    fn can(&self, op: &Op) -> bool {
        self.below.can(op)
    }
}

fn explore(test: &str, seeds: u64, states_min: usize, below: Below, scheme: fn(u64) -> Scheme) {
    let changed_content = scheme(0).changed_content(below);
    let clients = Clients {
        test: &format!("layer::tests::several_clients::{test}"),
        promise: Promise { strength: below.strength(), changed_content, ..Promise::WHOLE_FILES },
        devices: &below.devices(),
        seeds,
        positions: 40,
        states_min,
        second_cut: None,
    };
    clients.explore(|seed| Stack { scheme: scheme(seed), below });
}

/// Compressed and encrypted in turn, with small chunks and little memory, and with and without concurrent write-back.
fn log_scheme(seed: u64) -> Scheme {
    let (codec, plain): (Arc<dyn Codec>, Plain) = match seed % 2 {
        0 => (Arc::new(Zstd::default()), Plain::Pass),
        _ => (Arc::new(Sealed::new(&Key::new([7; 32]), None)), Plain::Error),
    };
    Scheme::Log(log::Options {
        chunk_shift: 12,
        dirty_bytes_max: 64 << 10,
        cache_bytes: 16 << 10,
        write_back_interval: Nanos::from_millis([1, 20][seed as usize / 2 % 2]),
        plain,
        ..log::Options::new(codec)
    })
}

/// Every codec that the scheme can use, with and without fast tails and repairs.
fn classic_scheme(seed: u64) -> Scheme {
    let codec: Arc<dyn Codec> = match seed % 4 {
        0 => Arc::new(Deflate::default()),
        1 => Arc::new(Uuencode),
        2 => Arc::new(Copy),
        _ => Arc::new(Zstd::default()),
    };
    let options = classic::Options { fast_tails: seed % 3 != 2, ..classic::Options::new(codec) };
    Scheme::Classic { options, repairs: seed / 2 % 2 == 1 }
}

#[test]
fn log_over_vlfs() {
    explore("log_over_vlfs", 12, 800, Below::Vlfs, log_scheme);
}

#[test]
fn log_over_ffs() {
    explore("log_over_ffs", 8, 1_000, Below::Ffs(ffs::Metadata::Sync), log_scheme);
}

#[test]
fn log_over_soft_updates() {
    explore("log_over_soft_updates", 8, 1_000, Below::Ffs(ffs::Metadata::Softdep), log_scheme);
}

#[test]
fn classic_over_lfs() {
    explore("classic_over_lfs", 6, 500, Below::Lfs, classic_scheme);
}

#[test]
fn classic_over_vlfs() {
    explore("classic_over_vlfs", 10, 500, Below::Vlfs, classic_scheme);
}

#[test]
fn classic_over_ffs() {
    explore("classic_over_ffs", 6, 500, Below::Ffs(ffs::Metadata::Sync), classic_scheme);
}

#[test]
fn classic_over_soft_updates() {
    explore("classic_over_soft_updates", 6, 500, Below::Ffs(ffs::Metadata::Softdep), classic_scheme);
}
