//! Aim: sectors that a repair cannot write end neither the check nor a mount after a crash, and cost no file and no space. Method: a
//! volume of which a crash has left most inodes, groups and some names to be repaired; in turn, each block of its metadata, and
//! one sector of each, cannot be written.

use std::ops::Range;

use super::unreadable::{BYTES, Sample, sample};
use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{Data, WriteFlags};
use crate::fs::ffs::io::read_bytes;
use crate::rng::Rng;
use crate::testing::environment::soak;

/// A file that the crash leaves without a name.
const NAMELESS: &str = "/e/f44";

const NEW: &str = "/e/new";
const NEW_BYTES: usize = 50_000;

/// The sample, as a crash before the last writes of links and of a removal leaves it.
async fn crashed(rt: &Rt) -> Sample {
    let mut sample = sample(rt, false).await;
    let memory = Rc::new(Memory::from_image(BYTES, sample.image.clone()));
    let device: Device = memory.clone();
    let layout = sample.layout.clone();
    for file in &sample.known {
        let (at, offset) = layout.inode_place(file.ino);
        let mut block = read_bytes(&device, layout.sector(at), layout.block_bytes as usize).await.unwrap().to_vec();
        let mut inode = Inode::decode(&block[offset..]).unwrap();
        inode.nlink += u16::from(file.path != NAMELESS);
        inode.encode(&mut block[offset..]);
        device.write(layout.sector(at), Data::from_slice(&block), WriteFlags::NONE).await.unwrap();
    }
    let (_, names) = sample.metadata.iter().find(|(what, _)| what == "names of /e").expect("the directory has names");
    let bytes = ((names.end - names.start) * layout.frag_bytes) as usize;
    let mut block = read_bytes(&device, layout.sector(names.start), bytes).await.unwrap().to_vec();
    let mut is_erased = false;
    for start in (0..bytes).step_by(DIR_CHUNK_BYTES) {
        let entries = dirents(&block[start..start + DIR_CHUNK_BYTES]).unwrap();
        let found = entries.iter().find(|entry| entry.name == b"f44").map(|entry| entry.offset);
        if let Some(offset) = found {
            block[start + offset..][..4].fill(0);
            is_erased = true;
        }
    }
    assert!(is_erased, "{NAMELESS} had a name");
    device.write(layout.sector(names.start), Data::from_slice(&block), WriteFlags::NONE).await.unwrap();
    sample.image = memory.image();
    sample
}

/// What cannot be written, in one case.
struct Loss<'a> {
    sample: &'a Sample,
    what: String,
    lost: Range<FragNo>,
}

impl Loss<'_> {
    /// The check or the mount may end: without the inode of the root, or with maps that give away what is in use.
    fn may_end(&self, is_mount: bool) -> bool {
        let (at, offset) = self.sample.layout.inode_place(ROOT_INO);
        let root = at + offset as u32 / self.sample.layout.frag_bytes;
        let is_summary = self.what.contains("summary");
        let is_group = self.what.contains("group") && !self.what.contains("inodes");
        self.lost.contains(&root) || is_group || is_mount && is_summary
    }

    /// All that has a name can be read.
    async fn look(&self, client: &Client, is_whole: bool, when: &str) {
        let what = format!("{}: {when}", self.what);
        for file in &self.sample.known {
            if file.path != NAMELESS {
                file.look(client, file.path.as_bytes(), true, &what).await;
            } else if is_whole {
                let path = format!("/lost+found/#{:08}", file.ino);
                file.look(client, path.as_bytes(), true, &what).await;
            }
        }
    }

    /// Returns whether a sector could not be written.
    async fn run(&self, rt: &Rt, is_mount: bool, options: Options) -> bool {
        let layout = &self.sample.layout;
        let memory = Rc::new(Memory::from_image(BYTES, self.sample.image.clone()));
        let fault = FaultDevice::new(rt, memory.clone(), 1);
        let sectors = layout.sector(self.lost.start)..layout.sector(self.lost.end);
        fault.add(Rule::new(Kinds::WRITE, When::Always, Effect::Error).within(sectors));
        let device: Device = fault.clone();
        let repair = FsckOptions { repair: true, ..FsckOptions::default() };
        let (mut is_told, mut is_kept, mut has_ended) = (false, false, false);
        if is_mount {
            match mount(rt.clone(), device.clone(), options).await {
                Ok(ffs) => {
                    is_told = ffs.warnings().iter().any(|text| text.contains("cannot be written"));
                    let client = Client::new(ffs.clone());
                    self.look(&client, false, "mounted").await;
                    is_kept = client.write_file(NEW.as_bytes(), &[7; NEW_BYTES]).await.is_ok()
                        && client.fsync_path(NEW.as_bytes()).await.is_ok();
                    let _ = ffs.close().await;
                }
                Err(error) => assert!(self.may_end(is_mount), "{}: mount: {error}", self.what),
            }
        } else {
            for round in 0..2 {
                match fsck(rt, &device, repair).await {
                    Ok(found) => {
                        let left: Vec<_> = found.problems.iter().filter(|one| one.cause == Cause::Unread).collect();
                        is_told |= left.iter().any(|one| one.text.contains("cannot be written"));
                        for problem in &found.problems {
                            assert!(problem.cause != Cause::Damage, "{}, {round}: {problem:?}", self.what);
                            assert!(
                                problem.repaired || problem.cause == Cause::Unread,
                                "{}, {round}: {problem:?}",
                                self.what
                            );
                        }
                        if left.len() < found.problems.len() && round == 1 && !has_ended {
                            let others: Vec<_> =
                                found.problems.iter().filter(|one| one.cause != Cause::Unread).collect();
                            let is_known =
                                others.iter().all(|one| one.cause == Cause::Leak || one.text.contains("summary"));
                            assert!(is_known && is_told, "{}: second repair: {others:?}", self.what);
                        }
                        assert_eq!(info(&device).await.unwrap().clean, left.is_empty(), "{}, {round}", self.what);
                    }
                    Err(error) => {
                        assert!(self.may_end(is_mount), "{}: repair {round}: {error}", self.what);
                        has_ended = true;
                    }
                }
            }
        }
        let read_only = mount(rt.clone(), device.clone(), Options { read_only: true, ..options }).await.unwrap();
        self.look(&Client::new(read_only.clone()), false, "read-only").await;
        read_only.close().await.unwrap();
        // It can be written again.
        let device: Device = memory;
        let found = fsck(rt, &device, repair).await.unwrap();
        let others: Vec<_> = found.problems.iter().filter(|one| !one.repaired || one.cause == Cause::Damage).collect();
        assert!(others.is_empty(), "{}: back: {others:?}", self.what);
        assert_eq!(fsck(rt, &device, FsckOptions::default()).await.unwrap().problems, vec![], "{}: back", self.what);
        session(rt, &device, options, async |client| {
            self.look(&client, true, "back").await;
            if is_kept {
                assert!(client.read_file(NEW.as_bytes()).await == Ok(vec![7; NEW_BYTES]), "{}: new file", self.what);
            }
        })
        .await;
        is_told
    }
}

#[test]
fn repairs_of_what_cannot_be_written() {
    let mut made = None;
    simulate(1, async |rt| made = Some(crashed(&rt).await));
    let sample = made.expect("a sample");
    let mut losses = Vec::new();
    let mut rng = Rng::new(5);
    for (what, at) in &sample.metadata {
        losses.push(Loss { sample: &sample, what: what.clone(), lost: at.clone() });
        let one = at.start + rng.below((at.end - at.start).into()) as u32;
        losses.push(Loss { sample: &sample, what: format!("one sector of {what}"), lost: one..one + 1 });
    }
    // Most blocks need no repair. Those of inodes and groups do.
    losses.sort_by_key(|loss| {
        !loss.what.contains("inodes") && !loss.what.contains("group") && !loss.what.contains("of /")
    });
    losses.truncate(soak().times(losses.len() as u64) as usize);
    let (mut failed, mut told) = (Vec::new(), 0);
    for (number, loss) in losses.iter().enumerate() {
        let options = Options { metadata: [Metadata::Sync, Metadata::Softdep][number % 2], ..Options::default() };
        for is_mount in [false, true] {
            let mut is_told = false;
            let run = || simulate(1, async |rt| is_told = loss.run(&rt, is_mount, options).await);
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err() {
                failed.push(format!("{} (mount: {is_mount}, case {number})", loss.what));
            }
            told += u32::from(is_told);
        }
    }
    assert!(failed.is_empty(), "{} of {} fail: {failed:#?}", failed.len(), 2 * losses.len());
    assert!(told > 8, "{told} cases meet what cannot be written");
}
