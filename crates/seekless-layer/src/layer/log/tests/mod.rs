//! Aim: the layer returns what was written, whatever is below it and whatever happens. Method: the harnesses for all
//! file systems, over several file systems below, and damage done to lower files.

mod cases;
mod crash;
mod damage;
mod directory;
mod foreign;
mod held;
mod model;
mod pack;
mod rebuild;
mod replaced;
mod secret;
mod space;
mod swapped;
mod times;
mod troubles;
mod weak_fs;

use std::rc::Rc;

use async_trait::async_trait;

use super::*;
use crate::device::{Device, Memory};
use crate::fs::lfs;
use crate::layer::codecs::{Deflate, Uuencode, Zstd};
use crate::testing::volumes::simulate;
use crate::testing::{FsUnderTest, MemFs, Replay};

fn replay(test: &str) -> Replay {
    crate::testing::environment::replay(&format!("layer::log::tests::{test}"))
}

fn zstd() -> Options {
    Options::new(Arc::new(Zstd::default()))
}

/// Small chunks and little memory, so that small files reach every path.
fn tiny(codec: Arc<dyn Codec>) -> Options {
    Options {
        chunk_shift: 12,
        dirty_bytes_max: 64 << 10,
        cache_bytes: 16 << 10,
        write_back_interval: Nanos::from_millis(20),
        ..Options::new(codec)
    }
}

/// The layer over LFS on a device, as one file system.
struct OverLfs {
    options: Options,
    lfs: lfs::Options,
    /// A second layer below the first.
    below: Option<Options>,
}

impl OverLfs {
    fn new(options: Options) -> OverLfs {
        OverLfs { options, lfs: lfs::Options::default(), below: None }
    }

    async fn lower(&self, rt: &Rt, device: Device, read_only: bool) -> FsResult<Fs> {
        let lfs: Fs = lfs::mount(rt.clone(), device, lfs::Options { read_only, ..self.lfs }).await?;
        match &self.below {
            Some(options) => stack_on(rt, lfs, options.clone()).await,
            None => Ok(lfs),
        }
    }
}

#[async_trait(?Send)]
impl FsUnderTest for OverLfs {
    fn name(&self) -> String {
        format!("{} / lfs", self.options.codec.name())
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        lfs::mkfs(rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        stack_on(rt, self.lower(rt, device, false).await?, self.options.clone()).await
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let mut found =
            lfs::fsck(rt.clone(), device.clone(), lfs::FsckOptions { data: true, ..lfs::FsckOptions::default() })
                .await?
                .errors;
        let lower = self.lower(rt, device, true).await?;
        let report = check::check(rt, lower, self.options.clone(), false).await?;
        let line = |finding: check::Finding| format!("{}: {}", String::from_utf8_lossy(&finding.path), finding.problem);
        found.extend(report.findings.into_iter().map(line));
        Ok(found)
    }
}

/// Checks the files of `lower`.
async fn assert_clean(rt: &Rt, lower: &Fs, options: &Options) {
    let report = check::check(rt, lower.clone(), options.clone(), false).await.expect("the check runs");
    assert_eq!(report.findings, []);
}

async fn memory_lfs(rt: &Rt, bytes: u64) -> (Device, Fs) {
    let device: Device = Rc::new(Memory::new(bytes));
    lfs::mkfs(rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await.expect("mkfs");
    let fs = lfs::mount(rt.clone(), device.clone(), lfs::Options::default()).await.expect("mount");
    (device, fs)
}

fn model(rt: &Rt) -> Rc<MemFs> {
    let options = crate::testing::MemFsOptions { capacity_bytes: 1 << 50, ..Default::default() };
    MemFs::with_options(rt, options)
}

fn uuencode() -> Options {
    tiny(Arc::new(Uuencode))
}

fn deflate() -> Options {
    tiny(Arc::new(Deflate::default()))
}
