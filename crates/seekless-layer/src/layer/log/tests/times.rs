//! Aim: times and attributes set from above are the final ones, above and below, whenever the layer writes back; and
//! write-back changes no attribute. Method: several clients at once over a slow file system, in virtual time, with the
//! order of tasks drawn from the seed.

use super::*;
use crate::fs::client::Client;
use crate::fs::*;
use crate::layer::{At, Layer, Nodes};
use crate::rng::Rng;
use crate::units::WallTime;

/// Waits before and after each call that reads or changes something.
struct Slow {
    rt: Rt,
    rng: RefCell<Rng>,
    nanos_max: u64,
}

impl Slow {
    async fn pause(&self) {
        let nanos = self.rng.borrow_mut().below(self.nanos_max);
        self.rt.sleep(Nanos(nanos)).await;
    }

    async fn around<T>(&self, call: impl Future<Output = T>) -> T {
        self.pause().await;
        let answer = call.await;
        self.pause().await;
        answer
    }
}

impl Layer for Slow {
    type Node = ();

    const NAME: &'static str = "slow";

    async fn open_node(&self, _lower: &Fs, _attr: &Attr, _place: Option<EntryName<'_>>) -> FsResult<()> {
        Ok(())
    }

    async fn getattr(&self, at: At<'_, ()>) -> FsResult<Attr> {
        self.around(at.lower.getattr(at.ino, at.handle)).await
    }

    async fn setattr(&self, at: At<'_, ()>, changes: SetAttr) -> FsResult<Attr> {
        self.around(at.lower.setattr(at.ino, at.handle, changes)).await
    }

    async fn read(&self, at: At<'_, ()>, offset: u64, bytes: u32) -> FsResult<Vec<crate::device::Data>> {
        self.around(at.lower.read(at.ino, at.handle, offset, bytes)).await
    }

    async fn write(&self, at: At<'_, ()>, offset: u64, data: crate::device::Data, mode: WriteMode) -> FsResult<()> {
        self.around(at.lower.write(at.ino, at.handle, offset, data, mode)).await
    }

    async fn getxattr(&self, at: At<'_, ()>, name: &[u8]) -> FsResult<Vec<u8>> {
        self.around(at.lower.getxattr(at.ino, name)).await
    }

    async fn setxattr(&self, at: At<'_, ()>, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.around(at.lower.setxattr(at.ino, name, value, mode)).await
    }

    async fn removexattr(&self, at: At<'_, ()>, name: &[u8]) -> FsResult<()> {
        self.around(at.lower.removexattr(at.ino, name)).await
    }

    async fn fsync(&self, at: At<'_, ()>, data_only: bool) -> FsResult<()> {
        self.around(at.lower.fsync(at.ino, at.handle, data_only)).await
    }

    async fn syncfs(&self, lower: &Fs, _nodes: &Nodes<()>) -> FsResult<()> {
        self.around(lower.syncfs()).await
    }

    async fn rename(
        &self,
        lower: &Fs,
        _nodes: &Nodes<()>,
        from: EntryName<'_>,
        to: EntryName<'_>,
        mode: RenameMode,
    ) -> FsResult<()> {
        self.around(lower.rename(from, to, mode)).await
    }
}

/// A slow file system below.
pub(super) async fn slow(rt: &Rt, lower: Fs, seed: u64, nanos_max: u64) -> Fs {
    let slow = Slow { rt: rt.clone(), rng: RefCell::new(Rng::new(seed)), nanos_max };
    Rc::new(Stacked::new(lower, slow).await.expect("it mounts"))
}

fn moment(seconds: u64) -> WallTime {
    WallTime { seconds: seconds as i64, nanos: 5 }
}

/// The values that one client has set last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Last {
    mtime: WallTime,
    permissions: u16,
    uid: u32,
    size: u64,
    value: u8,
}

/// As `cp -a` does it: content, then owner, mode, attributes and times, while everything is written back again and
/// again.
#[test]
fn what_is_set_during_write_back_stays() {
    let replay = replay("times::what_is_set_during_write_back_stays");
    for seed in replay.seeds(0..30) {
        simulate(seed, async |rt| {
            let model = model(&rt);
            let lower = slow(&rt, model.clone(), seed, 40).await;
            let options = Options { write_back_interval: Nanos(200), ..tiny(Arc::new(Zstd::default())) };
            let fs = stack_on(&rt, lower.clone(), options).await.unwrap();
            let client = |number: u64| {
                let (fs, rt) = (fs.clone(), rt.clone());
                async move {
                    let client = Client::new(fs);
                    let mut rng = Rng::new(seed << 8 | number);
                    let path = format!("/f{number}").into_bytes();
                    let mut last = None;
                    for round in 0..12u64 {
                        let file = client.open_or_create(&path).await.unwrap();
                        let bytes = rng.between(1, 9_000);
                        client.write(file, rng.below(3_000), &vec![round as u8 + 1; bytes as usize]).await.unwrap();
                        rt.sleep(Nanos(rng.below(300))).await;
                        if rng.chance(1, 4) {
                            client.truncate(&path, rng.below(5_000)).await.unwrap();
                        }
                        let size = client.stat(&path).await.unwrap().size;
                        client.close(file).await.unwrap();
                        rt.sleep(Nanos(rng.below(300))).await;
                        let set = Last {
                            mtime: moment(1_000 + round * 10 + number),
                            permissions: rng.below(0o1000) as u16,
                            uid: rng.below(100) as u32,
                            size,
                            value: round as u8,
                        };
                        let owner = SetAttr { uid: Some(set.uid), ..SetAttr::default() };
                        client.setattr(&path, owner).await.unwrap();
                        let mode = SetAttr { permissions: Some(set.permissions), ..SetAttr::default() };
                        client.setattr(&path, mode).await.unwrap();
                        client.set_xattr(&path, b"user.v", &[set.value]).await.unwrap();
                        let times = SetAttr {
                            atime: Some(SetTime::At(moment(7))),
                            mtime: Some(SetTime::At(set.mtime)),
                            ..SetAttr::default()
                        };
                        let attr = client.setattr(&path, times).await.unwrap();
                        assert_eq!(attr.mtime, set.mtime, "seed {seed}, file {number}, round {round}");
                        last = Some(set);
                        rt.sleep(Nanos(rng.below(600))).await;
                        let attr = client.stat(&path).await.unwrap();
                        assert_eq!(attr.mtime, set.mtime, "seed {seed}, file {number}, round {round}, later");
                    }
                    (path, last.unwrap())
                }
            };
            let syncs = {
                let (fs, rt) = (fs.clone(), rt.clone());
                rt.clone().spawn(async move {
                    let mut rng = Rng::new(seed ^ 99);
                    for _ in 0..60 {
                        rt.sleep(Nanos(rng.below(200))).await;
                        fs.syncfs().await.unwrap();
                    }
                })
            };
            let clients: Vec<_> = (0..3).map(|number| rt.spawn(client(number))).collect();
            let mut expected = Vec::new();
            for client in clients {
                expected.push(client.await);
            }
            syncs.await;
            fs.close().await.unwrap();
            let below = Client::new(model.clone() as Fs);
            let again = Client::new(stack_on(&rt, model.clone(), zstd()).await.unwrap());
            for (path, last) in expected {
                let attr = below.stat(&path).await.unwrap();
                let found = Last {
                    mtime: attr.mtime,
                    permissions: attr.permissions,
                    uid: attr.uid,
                    size: again.stat(&path).await.unwrap().size,
                    value: below.get_xattr(&path, b"user.v").await.unwrap()[0],
                };
                assert_eq!(found, last, "seed {seed}, {}", String::from_utf8_lossy(&path));
                assert_eq!(attr.atime, moment(7), "seed {seed}: reading and writing back leave the time of access");
            }
        });
    }
}

/// Moving records and truncating free space changes no time of a file that was not written to.
#[test]
fn compaction_leaves_times() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let fs = stack_on(&rt, lower.clone(), tiny(Arc::new(crate::layer::codecs::Copy))).await.unwrap();
        let client = Client::new(fs.clone());
        let mut noise = vec![0; 400_000];
        Rng::new(7).fill(&mut noise);
        let file = client.create(b"/f").await.unwrap();
        client.write(file, 0, &noise).await.unwrap();
        client.fsync(file).await.unwrap();
        let hole = FileRange { offset: 0, bytes: 300_000 };
        client.fallocate(b"/f", hole, AllocateMode::PunchHole).await.unwrap();
        let mtime = Some(SetTime::At(moment(1_000)));
        client.setattr(b"/f", SetAttr { mtime, ..SetAttr::default() }).await.unwrap();
        fs.syncfs().await.unwrap();
        rt.sleep(Nanos::from_secs(1)).await;
        let below = Client::new(lower.clone() as Fs);
        let before = below.stat(b"/f").await.unwrap();
        assert_eq!(before.mtime, moment(1_000));
        while fs.idle(Nanos(rt.now().0 + 1_000_000)).await.unwrap() {}
        let moved = fs.counters().into_iter().find(|(name, _)| *name == "records_moved").map(|(_, count)| count);
        assert!(moved > Some(0) && below.stat(b"/f").await.unwrap().size < before.size);
        for client in [&client, &below] {
            let after = client.stat(b"/f").await.unwrap();
            // The time of the last change of attributes is that of the move: a host sets it by itself.
            assert_eq!((after.mtime, after.atime), (before.mtime, before.atime));
        }
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
    });
}

/// How much storage a file takes is known when its data is compressed, which no request announces.
#[test]
fn sectors_of_waiting_data_will_change() {
    simulate(1, async |rt| {
        let fs = stack_on(&rt, model(&rt), zstd()).await.unwrap();
        let client = Client::new(fs.clone());
        let file = client.create(b"/f").await.unwrap();
        assert!(!client.stat(b"/f").await.unwrap().sectors_will_change);
        client.write(file, 0, &[7; 300_000]).await.unwrap();
        let waits = client.stat(b"/f").await.unwrap();
        assert!(waits.sectors_will_change);
        client.fsync(file).await.unwrap();
        let written = client.stat(b"/f").await.unwrap();
        assert!(!written.sectors_will_change && written.sectors < waits.sectors, "{written:?}");
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
    });
}
