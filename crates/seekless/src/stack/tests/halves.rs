//! Aim: two halves of a mirror that were each used alone become one, `replace=N,overwrite`, whenever the power fails in between.
//! Method: cuts at every request of that start, several states of each. After each, the halves are mounted together as always, and
//! then once more as the user did before.

use std::cell::RefCell;
use std::rc::Rc;

use async_trait::async_trait;

use super::*;
use crate::device::crash::{CrashDevice, CrashOptions};
use crate::device::cut::{CrashLog, Effort};
use crate::device::{BlockDevice, Image};
use crate::fs::client::Client;
use crate::testing::environment::soak;
use crate::units::SECTOR_BYTES;

/// Bytes of a half.
const BYTES: u64 = 10 * MIB;

/// `file:0` and `file:1` are parts of one device, so that one cut falls on both. A half may be taken away.
struct Halves {
    whole: Rc<CrashDevice>,
    missing: RefCell<Option<u64>>,
}

#[async_trait(?Send)]
impl LeafOpener for Halves {
    async fn device(&self, _: &Rt, word: &Word, _: Purpose) -> Result<Device, BuildError> {
        let number: u64 = word.text("path").unwrap_or_default().parse().expect("a number");
        match *self.missing.borrow() == Some(number) {
            true => Err(BuildError::other("it is missing")),
            false => Ok(self.whole.part(Sector(number * BYTES / SECTOR_BYTES), BYTES / SECTOR_BYTES)),
        }
    }

    async fn file_system(&self, _: &Rt, word: &Word, _: Purpose, _: Sharing) -> Result<crate::fs::Fs, BuildError> {
        Err(BuildError::other(format!("no {word}")))
    }

    fn random(&self) -> Option<[u64; 4]> {
        Some([1, 2, 3, 4])
    }
}

fn line(options: &str) -> Stack {
    parse(&format!("lfs / raid1:n=2{options} / file:{{}}"))
}

impl Halves {
    fn new(rt: &Rt, image: Image, record: bool) -> Halves {
        let options = CrashOptions { record, ..CrashOptions::volatile(2 * BYTES) };
        Halves { whole: CrashDevice::new(rt, image, options), missing: RefCell::new(None) }
    }

    async fn mount(&self, rt: &Rt, options: &str) -> Result<Mounted, String> {
        let mounted = line(options).mount(rt, self, &identity(), Usage::default()).await;
        mounted.map_err(|error| error.to_string())
    }

    /// Two halves, of which `kept` has the file `kept` and the other one the file `lost`.
    async fn used_alone(rt: &Rt, kept: u64) -> Image {
        let halves = Halves::new(rt, Image::default(), false);
        line("").open(rt, &halves, Purpose::Format).await.unwrap().mkfs(&identity()).await.unwrap();
        for (missing, name) in [(1 - kept, b"/kept"), (kept, b"/lost")] {
            *halves.missing.borrow_mut() = Some(missing);
            let mounted = halves.mount(rt, ",degraded").await.unwrap();
            Client::new(mounted.fs.clone()).write_file(name, &name.repeat(4000)).await.unwrap();
            mounted.fs.close().await.unwrap();
        }
        halves.whole.flush().await.unwrap();
        halves.whole.image()
    }

    /// Makes them one, and waits until the half that is overwritten has everything.
    async fn made_one(&self, rt: &Rt, kept: u64) -> Result<(), String> {
        let mounted = self.mount(rt, &format!(",replace={},overwrite", 1 - kept)).await?;
        rt.sleep(Nanos::from_secs(2)).await;
        mounted.fs.close().await.map_err(|error| error.to_string())
    }
}

/// What a mount of both holds, if it is there: only what was kept.
async fn look(mounted: Mounted) -> Result<(), String> {
    let client = Client::new(mounted.fs.clone());
    let read = client.read_file(b"/kept").await.map_err(|error| format!("/kept: {error}"))?;
    if read != b"/kept".repeat(4000) {
        return Err("/kept has other bytes".into());
    }
    if client.read_file(b"/lost").await.is_ok() {
        return Err("/lost is there".into());
    }
    mounted.fs.close().await.map_err(|error| error.to_string())
}

async fn examine(rt: &Rt, image: Image, kept: u64) -> Result<(), String> {
    // As always: it is refused as before, or has what is kept.
    let halves = Halves::new(rt, image.clone(), false);
    match halves.mount(rt, "").await {
        Ok(mounted) => look(mounted).await?,
        Err(said) => {
            let new = 1 - kept;
            if !said.contains("without the other") && !said.contains(&format!("member {new} is missing")) {
                return Err(said);
            }
        }
    }
    // Once more as before, and then the half that was overwritten alone.
    let halves = Halves::new(rt, image, false);
    halves.made_one(rt, kept).await.map_err(|error| format!("once more: {error}"))?;
    *halves.missing.borrow_mut() = Some(kept);
    let alone = halves.mount(rt, ",degraded").await.map_err(|error| format!("alone: {error}"))?;
    look(alone).await
}

fn simulated<T>(body: impl AsyncFnOnce(&Rt) -> T) -> T {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    executor.block_on(body(&rt)).expect("nothing waits indefinitely")
}

fn recorded(kept: u64) -> CrashLog {
    simulated(async |rt| {
        let image = Halves::used_alone(rt, kept).await;
        let halves = Halves::new(rt, image, true);
        halves.made_one(rt, kept).await.unwrap();
        halves.whole.log()
    })
}

#[test]
fn cuts_while_two_halves_become_one() {
    let mut states = 0;
    for kept in 0..2 {
        let log = recorded(kept);
        let positions = log.positions();
        let each = (positions.len() / soak().times(40) as usize).max(1);
        // Every request of the start, and some of the copying.
        let chosen =
            positions.iter().enumerate().filter(|(index, _)| *index < soak().times(60) as usize || index % each == 0);
        for (_, &position) in chosen {
            let cut = log.cut(position);
            for choice in cut.choices(&Effort::SAMPLED, kept) {
                states += 1;
                let image = cut.image(&choice);
                if let Err(what) = simulated(async |rt| examine(rt, image, kept).await) {
                    panic!("{kept} is kept: {what}\n{}", cut.to_text(&choice));
                }
            }
        }
    }
    println!("{states} states");
    assert!(states > 200, "{states}");
}
