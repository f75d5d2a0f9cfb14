//! Requirements on every file system, whatever is below it. A file system's own tests call these, with itself as the
//! subject.

pub mod basics;
pub mod clients;
pub mod copies;
pub mod cuts;
mod declares;
pub mod full_host;
pub mod life;
pub mod model;
pub mod returning;
pub mod space;
pub mod unnamed;

use std::rc::Rc;

pub use declares::Declares;

use crate::device::{Device, Memory};
use crate::fs::FileSystem;
use crate::fs::client::Client;
use crate::rt::{Executor, HostProfile, Rt};
use crate::testing::FsUnderTest;

/// Runs `program` in virtual time; a stall is a failure.
// Inline, as `Executor::block_on`.
#[inline]
pub fn simulate<T>(seed: u64, program: impl AsyncFnOnce(Rt) -> T) -> T {
    let executor = Executor::simulated(seed, HostProfile::NONE);
    let rt = executor.rt().clone();
    executor.block_on(program(rt)).unwrap_or_else(|stalled| panic!("{stalled}"))
}

/// An empty volume in memory, as its own type and as a device.
pub async fn fresh(rt: &Rt, subject: &dyn FsUnderTest, bytes: u64) -> (Rc<Memory>, Device) {
    let memory = Rc::new(Memory::new(bytes));
    subject.mkfs(rt, memory.clone()).await.expect("mkfs");
    (memory.clone(), memory)
}

pub async fn assert_clean(rt: &Rt, subject: &dyn FsUnderTest, device: &Device) {
    let errors = subject.fsck(rt, device.clone()).await.expect("fsck runs");
    assert_eq!(errors, Vec::<String>::new());
}

/// Mounts, lets `program` work, closes, and checks.
pub async fn session<T>(
    rt: &Rt,
    subject: &dyn FsUnderTest,
    device: &Device,
    program: impl AsyncFnOnce(&Client) -> T,
) -> T {
    let fs = subject.mount(rt, device.clone()).await.expect("mount");
    let client = Client::new(fs.clone());
    let result = program(&client).await;
    drop(client);
    end_session(rt, subject, device, fs).await;
    result
}

/// Apart from [`session`], so that it is compiled once and not for each program.
async fn end_session(rt: &Rt, subject: &dyn FsUnderTest, device: &Device, fs: Rc<dyn FileSystem>) {
    assert_eq!(fs.check().await.expect("recounted"), Vec::<String>::new());
    fs.close().await.expect("close");
    drop(fs);
    assert_clean(rt, subject, device).await;
}
