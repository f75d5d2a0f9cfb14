//! Aim: where one member of an array silently returns wrong data, a file system with checksums reads right data from
//! the others, and has the member corrected: superblocks, checkpoints, the log that is rolled forward, inodes, indirect
//! blocks, attributes, data. The hardest case is a member that has lost everything. Method: files of every kind on
//! arrays, one member spoilt behind the file system's back, closed properly or not; then everything is compared, and
//! checked.

use std::rc::Rc;

use crate::device::{BlockDevice, Data, Device, Memory, WriteFlags};
use crate::fs::client::Client;
use crate::fs::{Fs, lfs, vlfs};
use crate::rng::Rng;
use crate::rt::{Executor, HostProfile, Rt};
use crate::testing::environment::soak;
use crate::units::{KIB, MIB, SECTOR_BYTES, Sector};
use crate::volume::raid::{Array, ArrayOptions, Contents, Level};
use crate::volume::remap;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FsKind {
    Lfs,
    Vlfs,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    kind: FsKind,
    level: Level,
    members: usize,
    remapped: bool,
    /// Left for roll-forward, not closed.
    is_open: bool,
    /// All that the member holds, or some sectors of it.
    everything: bool,
    seed: u64,
}

impl Case {
    fn options(&self) -> ArrayOptions {
        ArrayOptions { region: Some(64 * KIB), ..ArrayOptions::new(self.level).unit(32) }
    }

    fn over(&self, array: Rc<Array>) -> Device {
        if self.remapped { remap(array, 128, 5).unwrap() } else { array }
    }

    async fn open(&self, rt: &Rt, disks: &[Rc<Memory>]) -> (Rc<Array>, Device) {
        let members = disks.iter().map(|disk| Some(disk.clone() as Device)).collect();
        let array = Array::open(rt, members, &self.options()).await.unwrap();
        (array.clone(), self.over(array))
    }

    async fn mount(&self, rt: &Rt, device: &Device) -> Fs {
        let mounted = match self.kind {
            FsKind::Lfs => lfs::mount(rt.clone(), device.clone(), lfs::Options::default()).await,
            FsKind::Vlfs => vlfs::mount(rt.clone(), device.clone(), vlfs::Options::default()).await,
        };
        mounted.unwrap_or_else(|error| panic!("{self:?}: {error}"))
    }

    async fn fsck(&self, rt: &Rt, device: &Device) -> Vec<String> {
        match self.kind {
            FsKind::Lfs => {
                lfs::fsck(rt.clone(), device.clone(), lfs::FsckOptions { data: true, ..Default::default() })
                    .await
                    .unwrap()
                    .errors
            }
            FsKind::Vlfs => {
                vlfs::fsck(rt.clone(), device.clone(), vlfs::FsckOptions { data: true, ..Default::default() })
                    .await
                    .unwrap()
                    .errors
            }
        }
    }

    fn contents(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut rng = Rng::new(self.seed);
        let sizes = [0, 1, 700, 4096, 5000, 65_536, 300_000, 2_000_000];
        let file = |(index, size): (usize, &usize)| {
            let mut bytes = vec![0; *size];
            rng.fill(&mut bytes);
            (format!("/d/f{index}").into_bytes(), bytes)
        };
        sizes.iter().enumerate().map(file).collect()
    }

    async fn fill(&self, client: &Client) {
        client.mkdir(b"/d").await.unwrap();
        for index in 0..200 {
            let path = format!("/small{index}").into_bytes();
            client.write_file(&path, format!("number {index}").as_bytes()).await.unwrap();
            client.fsync_path(&path).await.unwrap();
        }
        for (path, bytes) in self.contents() {
            client.write_file(&path, &bytes).await.unwrap();
            client.set_xattr(&path, b"user.name", &path.repeat(60)).await.unwrap();
            client.fsync_path(&path).await.unwrap();
        }
        client.fsync_dir(b"/d").await.unwrap();
        client.fsync_dir(b"/").await.unwrap();
    }

    async fn compare(&self, client: &Client) {
        for (path, bytes) in self.contents() {
            let name = String::from_utf8_lossy(&path).into_owned();
            let read = client.read_file(&path).await.unwrap_or_else(|error| panic!("{self:?}: {name}: {error}"));
            assert!(read == bytes, "{self:?}: {name} holds something else");
            let value = client.get_xattr(&path, b"user.name").await.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(value, path.repeat(60), "{self:?}");
        }
        for index in 0..200 {
            let read = client.read_file(format!("/small{index}").as_bytes()).await.unwrap();
            assert_eq!(read, format!("number {index}").as_bytes(), "{self:?}");
        }
    }

    /// Spoils a member from where its data begins.
    async fn spoil(&self, array: &Array, disk: &Memory) {
        let mut rng = Rng::new(self.seed + 1);
        for sector in array.data_start()..disk.geometry().sectors {
            if self.everything || rng.chance(1, 5) {
                let mut bytes = vec![0; SECTOR_BYTES as usize];
                rng.fill(&mut bytes);
                disk.write(Sector(sector), Data::from_slice(&bytes), WriteFlags::NONE).await.unwrap();
            }
        }
    }

    async fn run(&self, rt: &Rt) {
        let data = if self.level == Level::Mirror { 1 } else { self.members as u64 - 1 };
        let each = 14 * MIB / data + 768 * KIB;
        let disks: Vec<Rc<Memory>> =
            (0..self.members).map(|_| Rc::new(Memory::new(each.next_multiple_of(64 * KIB)))).collect();
        let devices = disks.iter().map(|disk| disk.clone() as Device).collect();
        let array = Array::create(rt, devices, &self.options(), [3; 16], Contents::Zeroes).await.unwrap();
        let device = self.over(array.clone());
        match self.kind {
            FsKind::Lfs => lfs::mkfs(rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await.unwrap(),
            FsKind::Vlfs => vlfs::mkfs(rt, &device, &vlfs::MkfsOptions::new([1, 2, 3, 4])).await.unwrap(),
        };
        let fs = self.mount(rt, &device).await;
        let client = Client::new(fs.clone());
        self.fill(&client).await;
        if !self.is_open {
            fs.close().await.unwrap();
        }
        drop((client, fs));
        // An open array is left as it is; bits in the bitmap would resynchronise rows from wrong data.
        array.release().await.unwrap();
        let images: Vec<_> = disks.iter().map(|disk| disk.image()).collect();
        for victim in 0..self.members {
            let disks: Vec<Rc<Memory>> = disks
                .iter()
                .zip(&images)
                .map(|(disk, image)| Rc::new(Memory::from_image(disk.geometry().bytes(), image.clone())))
                .collect();
            self.spoil(&array, &disks[victim]).await;
            let (spoilt, device) = self.open(rt, &disks).await;
            // The check alone corrects what it reads.
            if self.seed.is_multiple_of(2) {
                assert_eq!(self.fsck(rt, &device).await, Vec::<String>::new(), "{self:?}, member {victim}");
            }
            let fs = self.mount(rt, &device).await;
            let client = Client::new(fs.clone());
            self.compare(&client).await;
            client.write_file(b"/new", &[7; 100_000]).await.unwrap();
            client.fsync_path(b"/new").await.unwrap();
            fs.close().await.unwrap();
            drop((client, fs));
            assert!(spoilt.times_wrong(victim) > 0, "{self:?}: nothing was wrong on member {victim}");
            let others = (0..self.members).filter(|&member| member != victim);
            assert_eq!(others.map(|member| spoilt.times_wrong(member)).sum::<u64>(), 0, "{self:?}");
            // Now all data in use is right, both in usual reads and without the member.
            assert_eq!(self.fsck(rt, &device).await, Vec::<String>::new(), "{self:?}");
            let before = spoilt.times_wrong(victim);
            let scrubbed = {
                let redundancy = spoilt.redundancy().unwrap();
                redundancy.read_from_first(true);
                assert_eq!(self.fsck(rt, &device).await, Vec::<String>::new());
                redundancy.scrub(true, &|_| ()).await.unwrap()
            };
            assert_eq!(scrubbed.inconsistent, scrubbed.corrected, "{self:?}");
            assert!(spoilt.times_wrong(victim) >= before);
            assert_eq!((Array::scrub(&spoilt).await, spoilt.check().await), (Ok(0), Ok(())));
            spoilt.give_up((victim + 1) % self.members).await.unwrap();
            assert_eq!(self.fsck(rt, &device).await, Vec::<String>::new(), "{self:?}: after another member has gone");
            let fs = self.mount(rt, &device).await;
            let client = Client::new(fs.clone());
            self.compare(&client).await;
            assert_eq!(client.read_file(b"/new").await.unwrap(), [7; 100_000]);
            fs.close().await.unwrap();
        }
    }
}

fn check(kind: FsKind) {
    let mut seed = 0;
    for _ in 0..soak().times(1) {
        for (level, members, remapped) in
            [(Level::Mirror, 2, false), (Level::Parity, 3, true), (Level::Parity, 4, false)]
        {
            for (is_open, everything) in [(false, true), (true, true), (true, false)] {
                seed += 1;
                let case = Case { kind, level, members, remapped, is_open, everything, seed };
                let executor = Executor::simulated(seed, HostProfile::NONE);
                let rt = executor.rt().clone();
                executor.block_on(case.run(&rt)).expect("nothing waits indefinitely");
            }
        }
    }
}

#[test]
fn lfs_reads_around_a_wrong_member() {
    check(FsKind::Lfs);
}

#[test]
fn vlfs_reads_around_a_wrong_member() {
    check(FsKind::Vlfs);
}
