//! Aim: a file system on a device that passes requests on keeps its promises through power cuts: what it promises of writes is what
//! the device below does. Method: LFS below each word of that kind, with its defaults, on a crash device under the crash explorer. So a
//! new word is explored without being named here.

use async_trait::async_trait;

use super::{replay, some_scripts};
use crate::device::{Device, DeviceError};
use crate::fs::{Fs, FsError, FsResult};
use crate::rt::Rt;
use crate::stack::{
    BuildError, CheckOptions, Constructor, Identity, LeafOpener, Purpose, Sharing, Stack, StackError, Usage, WORDS,
    Word,
};
use crate::testing::FsUnderTest;
use crate::units::{MIB, Sector};

/// Words that are not explored, with the reason.
const EXCEPTIONS: &[(&str, &str)] =
    &[("fork", "what it is given is gone after a cut, on purpose"), ("smr", "it is over one modelled disk")];

/// Large enough for the smallest LFS volume.
const BYTES: u64 = 9 * MIB;

/// Every path is one device.
struct One(Device);

#[async_trait(?Send)]
impl LeafOpener for One {
    async fn device(&self, _: &Rt, _: &Word, _: Purpose) -> Result<Device, BuildError> {
        Ok(self.0.clone())
    }

    async fn file_system(&self, _: &Rt, _: &Word, _: Purpose, _: Sharing) -> Result<Fs, BuildError> {
        Err(FsError::NotDirectory.into())
    }
}

/// A stack line whose only leaf is the device under test.
struct Line(Stack);

fn failed(error: StackError) -> FsError {
    DeviceError::Io { operation: "open", at: Sector::ZERO, bytes: 0, cause: error.to_string() }.into()
}

#[async_trait(?Send)]
impl FsUnderTest for Line {
    fn name(&self) -> String {
        self.0.line().to_owned()
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        let leaves = One(device);
        let opened = self.0.open(rt, &leaves, Purpose::Format).await.map_err(failed)?;
        opened.mkfs(&Identity::new([1, 2, 3, 4])).await.map_err(failed)
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let leaves = One(device);
        let opened = self.0.open(rt, &leaves, Purpose::Use).await.map_err(failed)?;
        Ok(opened.mount(Usage::default()).await.map_err(failed)?.fs)
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        let leaves = One(device);
        let opened = self.0.open(rt, &leaves, Purpose::Inspect).await.map_err(failed)?;
        let checked = opened.fsck(CheckOptions { data: true, ..CheckOptions::default() }).await.map_err(failed)?;
        Ok(checked.findings.into_iter().map(|finding| finding.text).collect())
    }
}

/// The words that are explored.
fn words() -> impl Iterator<Item = &'static str> {
    let pass_on = WORDS.iter().filter(|word| matches!(word.constructor, Constructor::DeviceLayer(..)));
    pass_on.map(|word| word.name).filter(|name| EXCEPTIONS.iter().all(|(exception, _)| exception != name))
}

/// A sample of the cuts of some scripts, others for each word.
#[test]
fn scripts_on_each_word() {
    let mut explored = 0;
    for (number, word) in words().enumerate() {
        let line = Line(Stack::parse(&format!("lfs / {word} / file:a")).unwrap_or_else(|error| panic!("{error}")));
        let replay = replay("testing::tests::passing::scripts_on_each_word");
        let total = some_scripts(&line, BYTES, number % 4, 4, 20, &replay);
        println!("{word}: {total}");
        assert!(total.states > 40 || !replay.runs_everything(), "{word}: {total}");
        explored += 1;
    }
    assert!(explored > 2, "the search is broken");
}
