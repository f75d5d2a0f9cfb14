//! What the tests of LFS and of VLFS share, and what needs more than calls.

use std::cell::RefCell;
use std::pin::pin;
use std::rc::Rc;

use futures_util::future::{Either, join_all, select};

use super::LogFs;
use super::backend::LogBackend;
use crate::device::Device;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::disk::{Disk, Drive};
use crate::fs::client::Client;
use crate::fs::{FileSystem, FsError, FsResult};
use crate::rng::Rng;
use crate::rt::Rt;
use crate::testing::FsUnderTest;
use crate::testing::crash::LIMITS;
use crate::testing::subject::simulate;
use crate::testing::volumes;
use crate::units::{MIB, Nanos};

/// A disk that is durable on completion.
fn rz26(rt: &Rt) -> Rc<Disk> {
    let drive = Drive::named("dec-rz26").expect("it is in the catalogue");
    Rc::new(Disk::new(rt.clone(), drive, crate::disk::Options::default()).expect("the drive is in order"))
}

/// How many times as fast as one writer so many append records, each to a file of its own and durable before the next.
pub(in crate::fs) fn speed_up(subject: &dyn FsUnderTest, writers: u64) -> f64 {
    const RECORDS: u64 = 96;
    const BYTES: u64 = 1000;
    let time = |writers: u64| {
        let took = simulate(1, LIMITS, async |rt| {
            let device = rz26(&rt);
            subject.mkfs(&rt, device.clone()).await.unwrap();
            let fs = subject.mount(&rt, device).await.unwrap();
            let began = rt.now();
            let tasks = (0..writers).map(|writer| {
                let client = Client::new(fs.clone());
                rt.spawn(async move {
                    let file = client.create(format!("/{writer}").as_bytes()).await.unwrap();
                    for record in 0..RECORDS / writers {
                        client.write(file, record * BYTES, &[writer as u8; BYTES as usize]).await.unwrap();
                        client.fsync(file).await.unwrap();
                    }
                    client.close(file).await.unwrap();
                })
            });
            join_all(tasks.collect::<Vec<_>>()).await;
            rt.now().saturating_sub(began)
        });
        took.unwrap_or_else(|why| panic!("{writers} writers: {why}")).0 as f64
    };
    time(1) / time(writers)
}

/// Aim: callers of fsync that go away at any moment hold up no other, and what is acknowledged is on the device by then. Method:
/// writers that give up some of their fsyncs after a time of the seed's; what the device holds at some of the returns is mounted.
pub(in crate::fs) fn dropped_callers(subject: &dyn FsUnderTest) {
    const WRITERS: u64 = 4;
    const RECORDS: u64 = 12;
    for seed in 0..10 {
        let done = simulate(seed, LIMITS, async |rt| {
            let device = rz26(&rt);
            subject.mkfs(&rt, device.clone()).await.unwrap();
            let fs = subject.mount(&rt, device.clone()).await.unwrap();
            let acknowledged = Rc::new(RefCell::new(Vec::new()));
            let tasks = (0..WRITERS).map(|writer| {
                let (rt, client, device, acknowledged) =
                    (rt.clone(), Client::new(fs.clone()), device.clone(), acknowledged.clone());
                rt.clone().spawn(async move {
                    let mut rng = Rng::new(seed * WRITERS + writer);
                    let path = format!("/{writer}");
                    let file = client.create(path.as_bytes()).await.unwrap();
                    for record in 0..RECORDS {
                        client.write(file, 0, &[record as u8; 1000]).await.unwrap();
                        let gives_up = rng.below(3) == 0;
                        let patience = if gives_up { Nanos(rng.below(30_000_000)) } else { Nanos::from_secs(60) };
                        let syncing = pin!(client.fsync(file));
                        match select(syncing, rt.sleep(patience)).await {
                            Either::Left((result, _)) => {
                                result.unwrap();
                                if rng.below(4) == 0 {
                                    acknowledged.borrow_mut().push((path.clone(), record as u8, device.image()));
                                }
                            }
                            Either::Right(_) => assert!(gives_up, "an fsync takes a minute"),
                        }
                    }
                })
            });
            join_all(tasks.collect::<Vec<_>>()).await;
            let acknowledged = acknowledged.take();
            for (path, record, image) in acknowledged {
                let left = rz26(&rt);
                left.set_image(image);
                let client = Client::new(subject.mount(&rt, left).await.unwrap());
                let found = client.read_file(path.as_bytes()).await.unwrap();
                assert!(
                    found.len() == 1000 && found[0] >= record,
                    "{path}: {record} was durable, {:?} is",
                    found.first()
                );
            }
        });
        done.unwrap_or_else(|why| panic!("{}, seed {seed}: {why}", subject.name()));
    }
}

/// Bytes of attributes in memory.
pub(in crate::fs) fn attribute_bytes<L: LogBackend>(fs: &LogFs<L>) -> u64 {
    let state = fs.state.borrow();
    state.inodes.values().filter_map(|known| known.xattr.as_ref()).map(|data| data.len() as u64).sum()
}

/// Writes and reads many times as many attributes as may be in memory: `most` bytes.
pub(in crate::fs) async fn attributes_have_a_limit<L: LogBackend>(fs: &Rc<LogFs<L>>, most: u64) {
    const FILES: u32 = 300;
    let client = Client::new(fs.clone());
    let held = || attribute_bytes(fs);
    for file in 0..FILES {
        let name = format!("/f{file}");
        client.write_file(name.as_bytes(), b"").await.unwrap();
        client.set_xattr(name.as_bytes(), b"user.a", &[file as u8; 60_000]).await.unwrap();
    }
    client.sync().await.unwrap();
    assert!(held() <= most, "{} bytes when all is written", held());
    for round in 0..2 {
        for file in 0..FILES {
            let read = client.get_xattr(format!("/f{file}").as_bytes(), b"user.a").await.unwrap();
            assert!(read == [file as u8; 60_000], "round {round}, file {file}");
            assert!(held() <= most, "{} bytes with file {file} of round {round}", held());
        }
    }
}

/// Aim: a close for which the storage below has no room fails, can be repeated, and leaves the volume in use: nothing that was written is
/// lost. Method: writes find no room while the volume is closed, twice; then there is room, the background work goes on, and the volume
/// is closed.
pub(in crate::fs) fn a_close_without_room_below_can_be_repeated<L: LogBackend>(
    subject: &dyn FsUnderTest,
    open: impl AsyncFn(Rt, Device) -> FsResult<Rc<LogFs<L>>>,
) {
    for synced_before in [false, true] {
        volumes::simulate(1, async |rt| {
            let (_, memory) = volumes::fresh(&rt, subject, 64 * MIB).await;
            let fault = FaultDevice::new(&rt, memory.clone(), 1);
            let volume = open(rt.clone(), fault.clone()).await.unwrap();
            let client = Client::new(volume.clone());
            client.write_file(b"/before", &[1; 100_000]).await.unwrap();
            client.sync().await.unwrap();
            fault.add(Rule::new(Kinds::WRITE, When::From(0), Effect::NoSpace));
            // The timer of the volume runs during the close.
            let long = Nanos::from_secs(100);
            fault.add(Rule::new(Kinds::WRITE, When::From(0), Effect::Delay(long..=long)));
            client.write_file(b"/waits", &[2; 100_000]).await.unwrap();
            if synced_before {
                assert_eq!(client.sync().await, Err(FsError::NoSpace));
            }
            for _ in 0..2 {
                assert_eq!(volume.close().await, Err(FsError::NoSpace));
                rt.sleep(Nanos::from_secs(100)).await;
                assert_eq!(client.read_file(b"/waits").await.unwrap(), [2; 100_000]);
            }
            fault.clear();
            client.sync().await.unwrap();
            client.write_file(b"/more", &[3; 100_000]).await.unwrap();
            rt.sleep(Nanos::from_secs(100)).await;
            assert_eq!(volume.state.borrow().dirty_bytes(), 0, "it is still written back in the background");
            volume.close().await.unwrap();
            drop((client, volume));
            volumes::assert_clean(&rt, subject, &memory).await;
            volumes::session(&rt, subject, &memory, async |client| {
                for (name, byte) in [(&b"/before"[..], 1), (b"/waits", 2), (b"/more", 3)] {
                    assert_eq!(client.read_file(name).await.unwrap(), [byte; 100_000]);
                }
            })
            .await;
        });
    }
}
