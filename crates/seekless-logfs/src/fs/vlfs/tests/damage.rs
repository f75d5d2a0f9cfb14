//! Aim: whatever happens to an image, mounting, reading and checking end in an error or a right answer. A failed
//! request never claims success. Method: the damage and fault explorers.

use std::cell::Cell;

use super::format::BLOCK_SECTORS;
use super::*;
use crate::device::crash::CrashOptions;
use crate::device::fault::FaultDevice;
use crate::fs::logfs::format::Pointer;
use crate::testing::volumes::copies::{Copies, Repairable};
use crate::testing::volumes::cuts::Cuts;
use crate::testing::{DamageTest, Generator, Op, OpMix, Space};
use crate::units::Sector;

const CUTS: Cuts = Cuts { module: "fs::vlfs::tests::damage", bytes: 4 * MIB };

/// Every bit of a superblock, of the record in it and of an anchor, a sample of all other bits, and larger damage.
#[test]
fn damaged_images() {
    explore(&Small::default(), true, 200, 100, "damaged_images");
}

/// The same for read-only mounts, which show the latest verifiable state rather than refuse.
#[test]
fn damaged_images_read_only() {
    explore(&ThenReadOnly::default(), false, 200, 80, "damaged_images_read_only");
}

/// Mounted for writing once, after mkfs.
#[derive(Default)]
struct ThenReadOnly {
    written: Cell<bool>,
}

#[async_trait(?Send)]
impl FsUnderTest for ThenReadOnly {
    fn name(&self) -> String {
        "vlfs, read-only".to_string()
    }

    async fn mkfs(&self, rt: &Rt, device: Device) -> FsResult<()> {
        self.written.set(false);
        mkfs(rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await
    }

    async fn mount(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        let options = Options { read_only: self.written.replace(true), ..Options::default() };
        Ok(mount(rt.clone(), device, options).await?)
    }

    async fn fsck(&self, rt: &Rt, device: Device) -> FsResult<Vec<String>> {
        Small::default().fsck(rt, device).await
    }
}

fn explore(subject: &dyn FsUnderTest, all: bool, flips: usize, splices: usize, test: &str) {
    let ops: Vec<Op> = Generator::new(3, Space::small(), OpMix::BALANCED).take(300).collect();
    let (superblock, anchor) = (0..112, 4096..4096 + 72);
    let record = 512..512 + 16;
    let damage = DamageTest {
        subject,
        device: CrashOptions::volatile(CUTS.bytes),
        flip_all: if all { vec![superblock, record, anchor] } else { Vec::new() },
        flips,
        losses: flips / 2,
        splices,
        data_checked: true,
        memory: None,
        seed: 1,
        replay: CUTS.here(test),
    };
    match damage.run(&ops) {
        Ok(report) => println!("{report}"),
        Err(report) => panic!("{report}"),
    }
}

#[async_trait(?Send)]
impl Repairable for Small {
    async fn mount_read_only(&self, rt: &Rt, device: Device) -> FsResult<Fs> {
        Ok(mount(rt.clone(), device, Options { read_only: true, ..self.options }).await?)
    }

    async fn repair(&self, rt: &Rt, device: Device) -> FsResult<(Vec<String>, Vec<String>)> {
        let found = fsck(rt.clone(), device, FsckOptions { repair: true, ..FsckOptions::default() }).await?;
        Ok((found.repaired, found.errors))
    }
}

fn copies() -> Copies {
    let block = |at: u64| at..at + 8;
    Copies {
        superblocks: vec![block(0), block(CUTS.bytes / 512 - 8)],
        others: crate::vlog::format::ANCHORS.map(block).to_vec(),
    }
}

#[test]
fn copies_may_be_lost() {
    copies().may_be_lost(&Small::default(), CUTS.bytes);
}

#[test]
fn sectors_that_come_back() {
    let replay = CUTS.here("sectors_that_come_back");
    crate::testing::volumes::returning::sectors_that_come_back(&Small::default(), CUTS.bytes, &replay, |_| Vec::new());
}

#[test]
fn mending_never_makes_it_worse() {
    copies().mending_never_makes_it_worse(&Small::default(), CUTS.bytes);
}

#[test]
fn gone_is_no_damage() {
    copies().gone_is_no_damage(&Small::default(), CUTS.bytes);
}

#[test]
fn failing_requests() {
    CUTS.failing_requests(&Small::default(), 0..2);
}

/// A file whose attributes cannot be read can be removed, and all that it had is freed. Method: attributes of one block, and of
/// several, of which the first one is lost; where they are is known, or has to be read again.
#[test]
fn attributes() {
    simulate(1, async |rt| {
        for (bytes, is_known) in [(100, true), (9_000, true), (9_000, false)] {
            let (_, device) = fresh(&rt, CUTS.bytes).await;
            let fault = FaultDevice::new(&rt, device, 1);
            let device: Device = fault.clone();
            let vlfs = open(rt.clone(), device.clone(), Options::default()).await.unwrap();
            let client = Client::new(vlfs.clone());
            client.sync().await.unwrap();
            let free = vlfs.statfs().await.unwrap().blocks_free;
            client.write_file(b"/f", &[1; 100_000]).await.unwrap();
            client.set_xattr(b"/f", b"user.a", &vec![7; bytes]).await.unwrap();
            client.sync().await.unwrap();
            let ino = client.stat(b"/f").await.unwrap().ino;
            let lost = {
                let mut state = vlfs.state.borrow_mut();
                let pointer = state.inodes.get(&ino).unwrap().inode.xattr_pointer();
                let Some(Pointer::Mapped { at, .. }) = pointer else { panic!("it has attributes") };
                let parts = state.log.parts.get(&at).cloned();
                if !is_known {
                    state.log.parts.clear();
                }
                parts.map_or(at, |parts| Sector(u64::from(parts[0]) * BLOCK_SECTORS))
            };
            fault.lose(lost..lost + BLOCK_SECTORS);
            vlfs.drop_caches().await.unwrap();
            assert!(client.get_xattr(b"/f", b"user.a").await.is_err());
            client.unlink(b"/f").await.unwrap_or_else(|error| panic!("{bytes} bytes, known: {is_known}: {error}"));
            client.sync().await.unwrap();
            let left = free - vlfs.statfs().await.unwrap().blocks_free;
            assert!(left < 3, "{bytes} bytes, known: {is_known}: {left} blocks are left");
            assert_eq!(vlfs.check().await.unwrap(), Vec::<String>::new());
            vlfs.close().await.unwrap();
            volumes::assert_clean(&rt, &Small::default(), &device).await;
        }
    });
}
