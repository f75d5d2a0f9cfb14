//! How much a stack has room for, of which a program that fills it takes most.

use std::cell::Cell;

use async_trait::async_trait;
use seekless::device::Device;
use seekless::fs::Fs;
use seekless::rng::Rng;
use seekless::rt::{Executor, HostProfile, Rt};
use seekless::stack::{BuildError, Identity, LeafOpener, Purpose, Sharing, Stack, Usage, Word};
use seekless::units::SECTOR_BYTES;

use crate::LabError;
use crate::run::{SimulatedLeaves, close};
use crate::target::{Target, Vfs};

/// The room on a stack of modelled storage, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// For files, according to `df`.
    pub files: u64,
    /// On all devices together. What is written to them is in memory.
    pub devices: u64,
}

impl Room {
    /// That of a new file system on `stack`.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn of(stack: &Stack) -> Result<Room, LabError> {
        let mut rng = Rng::new(1);
        let identity = Identity::new([(); 4].map(|()| rng.next_u64()));
        let executor = Executor::simulated(rng.next_u64(), HostProfile::NONE);
        let rt = executor.rt().clone();
        let leaves = CountingLeaves::default();
        executor.block_on(async {
            let mounted = stack.mount(&rt, &leaves, &identity, Usage::default()).await?;
            let target = Vfs::new(rt.clone(), mounted);
            let files = target.space().await?.total();
            close(target.fs()).await?;
            Ok(Room { files, devices: leaves.bytes.get() })
        })?
    }

    /// What this process needs at most while the stack is filled: the bytes on the devices, and a fifth for what is known of them
    /// and of the files. With `aged` on a mirror of two disks of 1 GiB it was an eighth.
    pub fn memory(&self) -> u64 {
        self.devices.saturating_add(self.devices / 5)
    }
}

/// Leaves of the simulated world, whose devices are added up.
#[derive(Default)]
struct CountingLeaves {
    bytes: Cell<u64>,
}

#[async_trait(?Send)]
impl LeafOpener for CountingLeaves {
    async fn device(&self, rt: &Rt, word: &Word, purpose: Purpose) -> Result<Device, BuildError> {
        SimulatedLeaves.device(rt, word, purpose).await
    }

    async fn file_system(&self, rt: &Rt, word: &Word, purpose: Purpose, sharing: Sharing) -> Result<Fs, BuildError> {
        SimulatedLeaves.file_system(rt, word, purpose, sharing).await
    }

    fn watched(&self, _: &Rt, device: Device) -> Device {
        let geometry = device.geometry();
        // Of a zone, only its capacity is written.
        let sectors = geometry.zones.map_or(geometry.sectors, |zones| u64::from(zones.count) * zones.capacity_sectors);
        self.bytes.set(self.bytes.get().saturating_add(sectors.saturating_mul(SECTOR_BYTES)));
        device
    }
}
