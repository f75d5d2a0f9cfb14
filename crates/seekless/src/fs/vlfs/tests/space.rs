//! Aim: lack of space, on the volume or below it, is a clean error; deleting then works, and nothing is lost. Errors
//! of unknown effect stop all changes. Method: volumes filled to the brim, and devices that refuse.

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::rng::Rng;

/// Writes files of `bytes` until there is no more space. Returns how many there are.
async fn fill(client: &Client, bytes: usize) -> u64 {
    for count in 0.. {
        match client.write_file(format!("/f{count}").as_bytes(), &vec![count as u8; bytes]).await {
            Ok(()) => {}
            Err(FsError::NoSpace) => {
                let _ = client.unlink(format!("/f{count}").as_bytes()).await;
                return count;
            }
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

fn content(version: u64, file: u64, block: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    Rng::new(version << 40 | file << 20 | block).fill(&mut bytes);
    bytes
}

/// A volume at 95 % of what `df` says is overwritten twenty times over, at random. Each block then holds what was
/// written last, and the check finds nothing.
#[test]
fn overwritten_twenty_times_at_95_percent() {
    const VOLUME: u64 = 16 * MIB;
    const BLOCKS: u64 = 16;
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, VOLUME).await;
        let mut versions: Vec<u64> = Vec::new();
        session(&rt, &device, async |client| {
            let space = client.fs().statfs().await.unwrap();
            while client.fs().statfs().await.unwrap().blocks_available > space.blocks / 20 {
                let file = versions.len() as u64 / BLOCKS;
                let open = client.create(format!("/f{file}").as_bytes()).await.unwrap();
                for block in 0..BLOCKS {
                    client.write(open, block * 4096, &content(0, file, block)).await.unwrap();
                    versions.push(0);
                }
                client.close(open).await.unwrap();
            }
            let mut rng = Rng::new(1);
            for version in 1..=20 * VOLUME / 4096 {
                let index = rng.below(versions.len() as u64);
                let (file, block) = (index / BLOCKS, index % BLOCKS);
                let open = client.open(format!("/f{file}").as_bytes(), OpenFlags::READ_WRITE).await.unwrap();
                client.write(open, block * 4096, &content(version, file, block)).await.unwrap();
                client.close(open).await.unwrap();
                versions[index as usize] = version;
            }
            println!("{:?}", client.fs().counters());
        })
        .await;
        session(&rt, &device, async |client| {
            for (index, &version) in versions.iter().enumerate() {
                let (file, block) = (index as u64 / BLOCKS, index as u64 % BLOCKS);
                let open = client.open(format!("/f{file}").as_bytes(), OpenFlags::READ).await.unwrap();
                let read = client.read(open, block * 4096, 4096).await.unwrap();
                client.close(open).await.unwrap();
                assert!(read == content(version, file, block), "file {file}, block {block}");
            }
        })
        .await;
    });
}

/// `NoSpace` leaves everything as it was, deleting works, and the space can be used again. Several times over, with
/// files of different sizes.
#[test]
fn a_full_volume_lets_go() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 16 * MIB).await;
        for bytes in [1_000, 70_000, 2_000_000] {
            session(&rt, &device, async |client| {
                let before = client.fs().statfs().await.unwrap().blocks_available;
                let count = fill(client, bytes).await;
                assert!(count as usize * bytes > 7 << 20 || bytes < 4096, "only {count} files of {bytes} bytes");
                for file in 0..count {
                    let read = client.read_file(format!("/f{file}").as_bytes()).await.unwrap();
                    assert!(read == vec![file as u8; bytes]);
                    client.unlink(format!("/f{file}").as_bytes()).await.unwrap();
                }
                client.sync().await.unwrap();
                let after = client.fs().statfs().await.unwrap().blocks_available;
                assert!(after + 64 >= before, "{before} blocks before, {after} after");
            })
            .await;
        }
    });
}

/// When the storage below has no room, writing ends with `NoSpace` once enough waits, and what is there stays readable.
/// When there is room again, everything goes on, and what had been written is there.
#[test]
fn no_room_below() {
    simulate(1, async |rt| {
        let (_, memory) = fresh(&rt, 64 * MIB).await;
        let fault = FaultDevice::new(&rt, memory.clone(), 1);
        let device: Device = fault.clone();
        let vlfs = mount(rt.clone(), device, Options::default()).await.unwrap();
        let client = Client::new(vlfs.clone());
        client.write_file(b"/before", &[1; 100_000]).await.unwrap();
        client.sync().await.unwrap();
        fault.add(Rule::new(Kinds::WRITE, When::From(0), Effect::NoSpace));
        client.write_file(b"/waits", &[2; 100_000]).await.unwrap();
        assert_eq!(client.sync().await, Err(FsError::NoSpace));
        assert_eq!(client.write_file(b"/more", &[3; 100_000]).await, Err(FsError::NoSpace));
        assert_eq!(client.read_file(b"/waits").await.unwrap(), [2; 100_000]);
        assert_eq!(vlfs.statfs().await.unwrap().blocks_available, 0);
        fault.clear();
        client.sync().await.unwrap();
        client.write_file(b"/more", &[3; 100_000]).await.unwrap();
        vlfs.close().await.unwrap();
        drop((client, vlfs));
        session(&rt, &memory, async |client| {
            for (name, byte) in [(&b"/before"[..], 1), (b"/waits", 2), (b"/more", 3)] {
                assert_eq!(client.read_file(name).await.unwrap(), [byte; 100_000]);
            }
        })
        .await;
    });
}

/// After a failed flush or write nothing is acknowledged as durable any more, every change is refused, reading goes
/// on, and the volume mounts again with all that had been synced before.
#[test]
fn errors_of_unknown_effect_stop_all_changes() {
    for kinds in [Kinds::FLUSH, Kinds::WRITE] {
        simulate(1, async |rt| {
            let (_, memory) = fresh(&rt, 32 * MIB).await;
            let volatile = crate::device::Guarantees { durable_on_completion: false, ..memory.guarantees() };
            let fault = FaultDevice::new(&rt, Rc::new(Declares(memory.clone(), volatile)), 1);
            let vlfs = mount(rt.clone(), fault.clone(), Options::default()).await.unwrap();
            let client = Client::new(vlfs.clone());
            client.write_file(b"/synced", b"kept").await.unwrap();
            client.sync().await.unwrap();
            fault.add(Rule::new(kinds, When::Nth(1), Effect::Error));
            client.write_file(b"/lost", b"perhaps").await.unwrap();
            assert!(matches!(client.sync().await, Err(FsError::Stopped(_))));
            // The device works again, and yet no success is claimed.
            assert!(matches!(client.sync().await, Err(FsError::Stopped(_))));
            assert!(matches!(client.fsync_path(b"/lost").await, Err(FsError::Stopped(_))));
            assert!(matches!(client.write_file(b"/more", b"no").await, Err(FsError::Stopped(_))));
            assert_eq!(client.read_file(b"/synced").await.unwrap(), b"kept");
            assert!(vlfs.close().await.is_err());
            drop((client, vlfs));
            session(&rt, &memory, async |client| {
                assert_eq!(client.read_file(b"/synced").await.unwrap(), b"kept");
            })
            .await;
        });
    }
}

/// A device that declares other guarantees than the one below.
struct Declares(Device, crate::device::Guarantees);

#[async_trait::async_trait(?Send)]
impl crate::device::BlockDevice for Declares {
    fn geometry(&self) -> crate::device::Geometry {
        self.0.geometry()
    }
    fn guarantees(&self) -> crate::device::Guarantees {
        self.1
    }
    async fn read(
        &self,
        at: crate::units::Sector,
        buf: crate::device::Buf,
    ) -> Result<crate::device::Buf, crate::device::DeviceError> {
        self.0.read(at, buf).await
    }
    async fn write(
        &self,
        at: crate::units::Sector,
        data: crate::device::Data,
        flags: crate::device::WriteFlags,
    ) -> Result<(), crate::device::DeviceError> {
        self.0.write(at, data, flags).await
    }
    async fn flush(&self) -> Result<(), crate::device::DeviceError> {
        self.0.flush().await
    }
    async fn discard(&self, at: crate::units::Sector, sectors: u64) -> Result<(), crate::device::DeviceError> {
        self.0.discard(at, sectors).await
    }
    fn describe(&self) -> String {
        self.0.describe()
    }
}

/// What was removed goes back to the storage below.
#[test]
fn freed_space_is_given_back() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, 64 * MIB).await;
        let vlfs = mount(rt.clone(), device, Options::default()).await.unwrap();
        let client = Client::new(vlfs.clone());
        let count = fill(&client, 1 << 20).await;
        client.sync().await.unwrap();
        let full = memory.image().allocated_bytes();
        for file in 0..count {
            client.unlink(format!("/f{file}").as_bytes()).await.unwrap();
        }
        vlfs.close().await.unwrap();
        let after = memory.image().allocated_bytes();
        assert!(full > 50 * MIB && after < 4 * MIB, "{full} bytes below when full, {after} when emptied");
    });
}

/// `df` says that nothing is available when nothing more is accepted. Method: a file is written until there is no space.
#[test]
fn a_full_volume_has_nothing_available() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 9 * MIB).await;
        let vlfs = mount(rt.clone(), device, Options::default()).await.unwrap();
        let client = Client::new(vlfs.clone());
        client.write_file(b"/f", b"").await.unwrap();
        let file = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
        let mut written = 0;
        let full = loop {
            match client.write(file, written, &[7; 4096]).await {
                Ok(_) => written += 4096,
                Err(error) => break error,
            }
        };
        assert_eq!(full, FsError::NoSpace);
        let statfs = vlfs.statfs().await.unwrap();
        assert_eq!(statfs.blocks_available, 0, "{statfs:?}");
        client.close(file).await.unwrap();
        client.unlink(b"/f").await.unwrap();
        vlfs.syncfs().await.unwrap();
        assert!(vlfs.statfs().await.unwrap().blocks_available > written / 4096 * 9 / 10);
    });
}
