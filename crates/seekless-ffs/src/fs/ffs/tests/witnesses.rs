//! Aim: choosing witnesses takes a bounded number of reads, many at once, whatever the volume has, and finds some where there are some. Method: a device of two
//! parts that counts requests, and files of zeroes.

use std::cell::Cell;

use super::*;
use crate::device::{BlockDevice, Data, DeviceError, Geometry, Guarantees, WriteFlags};
use crate::rng::Rng;
use crate::units::{Nanos, SECTOR_BYTES, Sector};

const BYTES: u64 = 256 * MIB;

/// The time that a read takes.
const LATENCY: Nanos = Nanos::from_millis(8);

/// Two parts, one behind the other.
struct TwoParts {
    rt: Rt,
    memory: Memory,
    reads: Cell<u64>,
}

#[async_trait(?Send)]
impl BlockDevice for TwoParts {
    fn geometry(&self) -> Geometry {
        self.memory.geometry()
    }

    fn guarantees(&self) -> Guarantees {
        self.memory.guarantees()
    }

    fn parts(&self) -> u32 {
        2
    }

    fn part_at(&self, sector: Sector) -> (u32, u64) {
        let half = BYTES / SECTOR_BYTES / 2;
        ((sector.0 / half) as u32, half - sector.0 % half)
    }

    async fn read(&self, at: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.reads.set(self.reads.get() + 1);
        self.rt.sleep(LATENCY).await;
        self.memory.read(at, buf).await
    }

    async fn write(&self, at: Sector, data: Data, flags: WriteFlags) -> Result<(), DeviceError> {
        self.memory.write(at, data, flags).await
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.memory.flush().await
    }

    async fn discard(&self, at: Sector, sectors: u64) -> Result<(), DeviceError> {
        self.memory.discard(at, sectors).await
    }

    fn describe(&self) -> String {
        "two parts".into()
    }
}

/// The number of reads that closing takes, its time, and the number of witnesses in each part. `bytes` of zeroes are in a file,
/// and random bytes in others.
async fn close(rt: &Rt, bytes: u64, others: bool) -> (u64, Nanos, [usize; 2]) {
    let device = Rc::new(TwoParts { rt: rt.clone(), memory: Memory::new(BYTES), reads: Cell::new(0) });
    mkfs(rt, &(device.clone() as Device), &MkfsOptions::new([1, 2])).await.unwrap();
    let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
    let client = Client::new(ffs.clone());
    let range = FileRange { offset: 0, bytes };
    client.write_file(b"/zeroes", b"").await.unwrap();
    client.fallocate(b"/zeroes", range, AllocateMode::Allocate { keep_size: false }).await.unwrap();
    for directory in 0..if others { 32 } else { 0 } {
        client.mkdir(format!("/{directory}").as_bytes()).await.unwrap();
        let mut content = vec![0; 1 << 20];
        Rng::new(directory).fill(&mut content);
        client.write_file(format!("/{directory}/f").as_bytes(), &content).await.unwrap();
    }
    client.sync().await.unwrap();
    let (before, begun) = (device.reads.get(), rt.now());
    ffs.close().await.unwrap();
    let (reads, time) = (device.reads.get() - before, rt.now() - begun);
    let raw = find_volume(&(device.clone() as Device)).await.unwrap();
    let mut counts = [0; 2];
    for (at, _) in super::super::assembly::witnesses(&raw.superblock) {
        counts[device.part_at(raw.layout.sector(at)).0 as usize] += 1;
    }
    (reads, time, counts)
}

#[test]
fn reads_for_witnesses_are_bounded() {
    simulate(1, async |rt| {
        let (reads, time, counts) = close(&rt, 200 * MIB, false).await;
        assert!(reads < (1 << 16) + 100, "{reads} reads, {counts:?}");
        // One after another, they would take 32 times as long.
        assert!(time.0 < LATENCY.0 * reads / 16, "{reads} reads, {time:?}");
        let (reads, time, counts) = close(&rt, 20 * MIB, true).await;
        assert!(reads < 800 && counts[0] > 0 && counts[1] > 0, "{reads} reads, {time:?}, {counts:?}");
    });
}
