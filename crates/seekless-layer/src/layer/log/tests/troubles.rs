//! Aim: data that could not be written or synced below is never acknowledged as durable, and does no harm to later
//! data. Method: `WeakFs` with syncs and writes that fail, every kind of sync, and the state that a power cut leaves.

use super::*;
use crate::device::DeviceError;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::fs::client::Client;
use crate::fs::ffs::{self, Metadata};
use crate::fs::{AllocateMode, Attr, EntryName, FileRange, FsError, FsResult, SetAttr, XATTR_CAPABILITY};
use crate::layer::Layer;
use crate::layer::codecs::Copy;
use crate::layer::tests::trouble::Trouble;
use crate::rng::Rng;
use crate::testing::{MemFsOptions, WeakFs};
use crate::units::{MIB, Sector};

fn weak_fs(rt: &Rt) -> Rc<WeakFs> {
    WeakFs::new(rt, MemFsOptions { capacity_bytes: 1 << 40, ..MemFsOptions::default() })
}

/// A file system that counts no links, as some do over a network.
struct Uncounted;

impl Layer for Uncounted {
    type Node = ();

    const NAME: &'static str = "uncounted";

    async fn open_node(&self, _lower: &Fs, _attr: &Attr, _place: Option<EntryName<'_>>) -> FsResult<()> {
        Ok(())
    }

    fn show(&self, _node: &(), lower: Attr) -> Attr {
        Attr { links: 0, ..lower }
    }
}

/// A file whose links the file system below does not count is not taken for one without a name: what was written before it was closed is
/// there after a sync. So it is with files that were there before, empty or not, plain or not.
#[test]
fn files_whose_links_are_not_counted_keep_what_is_written() {
    simulate(1, async |rt| {
        let options =
            Options { plain: Plain::Pass, write_back_interval: Nanos::from_secs(1000), ..tiny(Arc::new(Copy)) };
        let model = model(&rt);
        let below = Client::new(model.clone() as Fs);
        below.write_file(b"/empty", b"").await.unwrap();
        below.write_file(b"/plain", &[7; 2_000]).await.unwrap();
        let lower: Fs = Rc::new(Stacked::new(model.clone(), Uncounted).await.unwrap());
        let mut rng = Rng::new(1);
        let content: Vec<u8> = (0..6_000).map(|_| rng.below(256) as u8).collect();
        for life in 0..2 {
            let fs = stack_on(&rt, lower.clone(), options.clone()).await.unwrap();
            let client = Client::new(fs.clone());
            for path in [b"/new".as_slice(), b"/empty", b"/plain"] {
                if life == 1 {
                    assert!(client.read_file(path).await.unwrap() == content, "{path:?}");
                    client.truncate(path, 0).await.unwrap();
                }
                client.write_file(path, &content).await.unwrap();
            }
            client.sync().await.unwrap();
            drop((client, fs)); // As when it is killed.
        }
        let fs = stack_on(&rt, lower, options).await.unwrap();
        let client = Client::new(fs.clone());
        for path in [b"/new".as_slice(), b"/empty", b"/plain"] {
            assert!(client.read_file(path).await.unwrap() == content, "{path:?}");
        }
        fs.close().await.unwrap();
    });
}

/// An error after which the content of the medium is unknown.
fn unknown() -> FsError {
    FsError::Host(5)
}

fn no_space_of_device() -> FsError {
    FsError::Device(DeviceError::NoSpace { at: Sector(8), bytes: 4096 })
}

fn too_many_files() -> FsError {
    FsError::Host(24)
}

/// Content of `/f` when only synced data is left.
async fn durable(rt: &Rt, lower: &Rc<WeakFs>, options: &Options) -> Vec<u8> {
    let left: Fs = lower.cut(lower.position(), 1).await.unwrap();
    Client::new(stack_on(rt, left, options.clone()).await.unwrap()).read_file(b"/f").await.unwrap()
}

/// Aim: a sync that fails below fails above, the one of an fsync and each of the two of a sync of all; afterwards a file is
/// stopped, unless the error was lack of space and nothing can have been lost, or lack of files, and nothing was tried. Method: each sync, each error, each kind of
/// file system below.
#[test]
fn syncs_that_fail() {
    for (of_all, syncs) in [(false, 1), (true, 2)] {
        for earlier in 0..syncs {
            for (error, exclusive) in [
                (FsError::NoSpace, true),
                (FsError::NoSpace, false),
                (FsError::NoSpaceBelow("a file".into()), true),
                (FsError::NoSpaceBelow("a file".into()), false),
                (no_space_of_device(), true),
                (no_space_of_device(), false),
                (too_many_files(), false),
                (unknown(), true),
                (unknown(), false),
            ] {
                let name = format!("of all: {of_all}, after {earlier}, {error}, exclusive: {exclusive}");
                simulate(1, async |rt| {
                    let (lower, options) = (weak_fs(&rt), tiny(Arc::new(Copy)));
                    lower.set_exclusive(exclusive);
                    let fs = stack_on(&rt, lower.clone(), options.clone()).await.unwrap();
                    let client = Client::new(fs.clone());
                    let file = client.create(b"/f").await.unwrap();
                    let sync = async || if of_all { fs.syncfs().await } else { client.fsync(file).await };
                    client.write(file, 0, &[1; 9_000]).await.unwrap();
                    sync().await.unwrap();
                    client.write(file, 3_000, &[2; 3_000]).await.unwrap();
                    let good = std::iter::repeat_n(Ok(()), earlier);
                    lower.end_syncs_with(good.chain([Err(error.clone())]));
                    let failed = sync().await;
                    assert!(failed.is_err(), "{name}");
                    lower.end_syncs_with([]);
                    let new = [vec![1; 3_000], vec![2; 3_000], vec![1; 3_000]].concat();
                    if exclusive && error.is_no_space() || error == too_many_files() {
                        sync().await.expect(&name);
                        assert!(durable(&rt, &lower, &options).await == new, "{name}");
                        client.write(file, 0, b"more").await.expect(&name);
                        return;
                    }
                    for _ in 0..2 {
                        let again = client.fsync(file).await;
                        assert!(matches!(again, Err(FsError::Stopped(_))), "{name}: {again:?}");
                        let all = fs.syncfs().await;
                        assert!(matches!(all, Err(FsError::Stopped(_))), "{name}: {all:?}");
                    }
                    let write = client.write(file, 0, b"more").await;
                    assert!(matches!(write, Err(FsError::Stopped(_))), "{name}: {write:?}");
                    let left = durable(&rt, &lower, &options).await;
                    assert!(left == vec![1; 9_000] || left == new, "{name}: a mixture");
                    client.close(file).await.unwrap();
                    // Also when the file is not in use any more.
                    let all = fs.syncfs().await;
                    assert!(matches!(all, Err(FsError::Stopped(_))), "{name}: {all:?}");
                    fs.close().await.expect_err(&name);
                });
            }
        }
    }
}

/// Aim: a file over FFS whose image is on a full host is not stopped: each fsync and sync fails, and the file goes on when there is
/// room. Method: a device that refuses all writes for a while.
#[test]
fn a_full_host_below_ffs_stops_no_file() {
    for metadata in [Metadata::Sync, Metadata::Async, Metadata::Softdep] {
        simulate(1, async |rt| {
            let memory: Device = Rc::new(Memory::new(16 * MIB));
            ffs::mkfs(&rt, &memory, &ffs::MkfsOptions::new([1, 2])).await.unwrap();
            let fault = FaultDevice::new(&rt, memory.clone(), 1);
            let options = ffs::Options { metadata, ..ffs::Options::default() };
            let lower: Fs = ffs::mount(rt.clone(), fault.clone(), options).await.unwrap();
            let fs = stack_on(&rt, lower, tiny(Arc::new(Copy))).await.unwrap();
            let client = Client::new(fs.clone());
            let file = client.create(b"/f").await.unwrap();
            client.write(file, 0, &[1; 90_000]).await.unwrap();
            client.fsync(file).await.unwrap();
            fs.syncfs().await.unwrap();
            for round in 0..3u8 {
                fault.add(Rule::new(Kinds::WRITE | Kinds::PROVISION, When::Always, Effect::NoSpace));
                client.write(file, 3_000, &[2 + round; 3_000]).await.unwrap();
                let synced = [client.fsync(file).await, fs.syncfs().await, client.fsync(file).await];
                for failed in synced {
                    let is_known = failed.as_ref().is_err_and(|error| error.is_no_space());
                    assert!(is_known, "{metadata:?}, round {round}: {failed:?}");
                }
                fault.clear();
                match round {
                    0 => client.fsync(file).await,
                    _ => fs.syncfs().await,
                }
                .unwrap_or_else(|error| panic!("{metadata:?}, round {round}: {error}"));
                let new = [vec![1; 3_000], vec![2 + round; 3_000], vec![1; 84_000]].concat();
                assert!(client.read_file(b"/f").await.unwrap() == new, "{metadata:?}, round {round}");
            }
            client.close(file).await.unwrap();
            fs.close().await.unwrap_or_else(|error| panic!("{metadata:?}: {error}"));
        });
    }
}

/// Aim: a failed write of a slot is as if it had not been tried, if nothing can have been written; otherwise the file
/// is stopped. Method: one write before the records that fails; then the same commit again. The space of the failed
/// commits is reused.
#[test]
fn slots_that_cannot_be_written() {
    simulate(1, async |rt| {
        let (lower, options) = (weak_fs(&rt), tiny(Arc::new(Copy)));
        let fs = stack_on(&rt, lower.clone(), options.clone()).await.unwrap();
        let client = Client::new(fs.clone());
        let file = client.create(b"/f").await.unwrap();
        let mut content = vec![1; 100_000];
        client.write(file, 0, &content).await.unwrap();
        client.fsync(file).await.unwrap();
        let mut rng = Rng::new(3);
        for round in 0..100u64 {
            let at = rng.below(95_000) as usize;
            content[at..at + 5_000].fill(round as u8);
            client.write(file, at as u64, &content[at..at + 5_000]).await.unwrap();
            lower.fail_write_before(format::RECORDS_START, FsError::NoSpace);
            assert_eq!(client.fsync(file).await, Err(FsError::NoSpace), "round {round}");
            client.fsync(file).await.unwrap();
            if round % 20 == 0 {
                assert!(durable(&rt, &lower, &options).await == content, "round {round}");
            }
        }
        let below = Client::new(lower.clone() as Fs);
        let size = below.stat(b"/f").await.unwrap().size;
        assert!(size < 200_000, "{size} bytes for 100000");
        client.write(file, 0, b"more").await.unwrap();
        lower.fail_write_before(format::RECORDS_START, unknown());
        assert_eq!(client.fsync(file).await, Err(unknown()));
        for _ in 0..2 {
            let again = client.fsync(file).await;
            assert!(matches!(again, Err(FsError::Stopped(_))), "{again:?}");
        }
        assert!(durable(&rt, &lower, &options).await == content);
    });
}

/// After the write-back in the background had to stop a file, each later sync of all fails, and so does the work in the
/// background.
#[test]
fn a_write_back_that_fails_is_reported() {
    simulate(1, async |rt| {
        let lower = weak_fs(&rt);
        let fs = stack_on(&rt, lower.clone(), tiny(Arc::new(Copy))).await.unwrap();
        let client = Client::new(fs.clone());
        let file = client.create(b"/f").await.unwrap();
        fs.syncfs().await.unwrap();
        client.write(file, 0, &[1; 9_000]).await.unwrap();
        lower.end_syncs_with([Err(unknown())]);
        rt.sleep(Nanos::from_secs(20)).await;
        lower.end_syncs_with([]);
        assert_eq!(fs.idle(rt.now()).await, Err(FsError::Stopped(unknown().to_string())));
        client.close(file).await.unwrap();
        for _ in 0..2 {
            assert_eq!(fs.syncfs().await, Err(FsError::Stopped(unknown().to_string())));
        }
        fs.close().await.unwrap_err();
    });
}

/// Aim: where few files may be open below, new files of several clients that wait for their write-back leave room for more. Method:
/// ten times as many files as may be open, each closed at once, in no time.
#[test]
fn few_files_may_be_open() {
    simulate(1, async |rt| {
        let options = MemFsOptions {
            open_protocol: crate::fs::OpenProtocol::Handles,
            open_files_max: Some(20),
            ..MemFsOptions::default()
        };
        let lower = MemFs::with_options(&rt, options);
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        let name = |client: usize, file: usize| format!("/{client}-{file}").into_bytes();
        let write = async |client: usize| {
            let user = Client::new(fs.clone());
            for file in 0..40 {
                user.write_file(&name(client, file), &[client as u8; 500]).await.unwrap();
                rt.yield_now().await;
            }
        };
        futures_util::future::join_all((0..5).map(write)).await;
        let reader = Client::new(fs.clone());
        for (client, file) in (0..5).flat_map(|client| (0..40).map(move |file| (client, file))) {
            assert_eq!(reader.read_file(&name(client, file)).await, Ok(vec![client as u8; 500]));
        }
        fs.close().await.unwrap();
        assert_eq!(lower.leaks(), Default::default());
    });
}

/// A file that cannot be written below keeps no other file from being written, however much that is.
#[test]
fn one_file_that_cannot_be_written() {
    simulate(1, async |rt| {
        let lower = Trouble::over(model(&rt)).await;
        let options = Options { write_back_interval: Nanos::from_secs(1_000_000), ..tiny(Arc::new(Copy)) };
        let fs = stack_on(&rt, lower.clone(), options).await.unwrap();
        let client = Client::new(fs.clone());
        let bad = client.create(b"/bad").await.unwrap();
        lower.layer().write.set(Some(bad.ino));
        client.write(bad, 0, &[1; 20_000]).await.unwrap();
        for number in 0..20 {
            let path = format!("/{number}").into_bytes();
            for round in 0..5 {
                let file = match round {
                    0 => client.create(&path).await.unwrap(),
                    _ => client.open(&path, crate::fs::OpenFlags::READ_WRITE).await.unwrap(),
                };
                let written = client.write(file, round * 20_000, &[number; 20_000]).await;
                assert_eq!(written, Ok(()), "file {number}, round {round}");
                client.close(file).await.unwrap();
            }
        }
        // Its own users get the error.
        client.fsync(bad).await.unwrap_err();
        for number in 0..20 {
            let path = format!("/{number}").into_bytes();
            assert!(client.read_file(&path).await.unwrap() == vec![number; 100_000], "file {number}");
        }
    });
}

/// A mark that could not be read when its file was opened is made unclean before it is wrong (M1). Method: one error of reading it;
/// then the file is changed, and only what was synced is left.
#[test]
fn a_mark_that_cannot_be_read_once() {
    simulate(1, async |rt| {
        let (weak, options) = (weak_fs(&rt), tiny(Arc::new(Copy)));
        let fs = stack_on(&rt, weak.clone(), options.clone()).await.unwrap();
        Client::new(fs.clone()).write_file(b"/f", &[1; 9_000]).await.unwrap();
        fs.close().await.unwrap();
        let mark = async |lower: Fs| {
            let below = Client::new(lower);
            format::SizeMark::from_bytes(&below.get_xattr(b"/f", mark::NAME).await.unwrap()).unwrap()
        };
        let first = mark(weak.clone()).await;
        assert_eq!((first.clean, first.size), (1, 9_000));
        let lower = Trouble::over(weak.clone()).await;
        let client = Client::new(stack_on(&rt, lower.clone(), options.clone()).await.unwrap());
        lower.layer().getxattr.replace(Some(unknown()));
        let file = client.open(b"/f", crate::fs::OpenFlags::READ_WRITE).await.unwrap();
        assert_eq!(*lower.layer().getxattr.borrow(), None);
        for round in 1..4 {
            client.write(file, 9_000, &vec![2; round * 1_000]).await.unwrap();
            client.fsync(file).await.unwrap();
            let left: Fs = weak.cut(weak.position(), 1).await.unwrap();
            let found = mark(left.clone()).await;
            assert!(
                found.clean == 0 || found.size == 9_000 + round as u64 * 1_000,
                "round {round}: it is clean, and wrong"
            );
            let again = Client::new(stack_on(&rt, left, options.clone()).await.unwrap());
            assert_eq!(again.stat(b"/f").await.unwrap().size, 9_000 + round as u64 * 1_000);
        }
    });
}

/// A daemon that is not root cannot write to a program below without removing its set-user-id: what it has to write is written
/// before that is given, and idle time moves no records of it.
#[test]
fn a_daemon_that_is_not_root_spares_set_user_id() {
    simulate(1, async |rt| {
        let lower = Trouble::over(model(&rt)).await;
        lower.layer().writes_take_privileges.set(true);
        let fs = stack_on(&rt, lower.clone(), tiny(Arc::new(Copy))).await.unwrap();
        let client = Client::new(fs.clone());
        let mut noise = vec![0; 400_000];
        Rng::new(7).fill(&mut noise);
        let file = client.create(b"/program").await.unwrap();
        client.write(file, 0, &noise).await.unwrap();
        fs.syncfs().await.unwrap();
        let hole = FileRange { offset: 0, bytes: 300_000 };
        client.fallocate(b"/program", hole, AllocateMode::PunchHole).await.unwrap();
        client.setattr(b"/program", SetAttr { permissions: Some(0o4755), ..SetAttr::default() }).await.unwrap();
        rt.sleep(Nanos::from_secs(20)).await;
        while fs.idle(Nanos(rt.now().0 + 1_000_000)).await.unwrap() {}
        assert_eq!(client.stat(b"/program").await.unwrap().permissions, 0o4755);
        let moved = fs.counters().into_iter().find(|(name, _)| *name == "records_moved");
        assert_eq!(moved, Some(("records_moved", 0)));
        // Without it there is something to do.
        client.setattr(b"/program", SetAttr { permissions: Some(0o755), ..SetAttr::default() }).await.unwrap();
        while fs.idle(Nanos(rt.now().0 + 1_000_000)).await.unwrap() {}
        let moved = fs.counters().into_iter().find(|(name, _)| *name == "records_moved");
        assert!(moved.is_some_and(|(_, moved)| moved > 0));
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
    });
}

/// An error of reading a capability does not mean that there is none: a write removes it, and idle time does not. Method: one such
/// error at each of them.
#[test]
fn a_capability_that_cannot_be_read_once() {
    simulate(1, async |rt| {
        let (lower, options) = (Trouble::over(model(&rt)).await, tiny(Arc::new(Copy)));
        let fs = stack_on(&rt, lower.clone(), options).await.unwrap();
        let client = Client::new(fs.clone());
        let mut noise = vec![0; 400_000];
        Rng::new(7).fill(&mut noise);
        let file = client.create(b"/program").await.unwrap();
        client.write(file, 0, &noise).await.unwrap();
        client.fsync(file).await.unwrap();
        let hole = FileRange { offset: 0, bytes: 300_000 };
        client.fallocate(b"/program", hole, AllocateMode::PunchHole).await.unwrap();
        fs.syncfs().await.unwrap();
        fs.syncfs().await.unwrap();
        client.set_xattr(b"/program", XATTR_CAPABILITY, b"all").await.unwrap();
        let before = lower.lower().getattr(file.ino, None).await.unwrap();
        lower.layer().getxattr.replace(Some(unknown()));
        let _ = fs.idle(Nanos(rt.now().0 + 1_000_000)).await;
        assert_eq!(*lower.layer().getxattr.borrow(), None, "idle time looks for a capability");
        assert_eq!(client.get_xattr(b"/program", XATTR_CAPABILITY).await.unwrap(), b"all");
        assert_eq!(lower.lower().getattr(file.ino, None).await.unwrap().size, before.size);
        lower.layer().getxattr.replace(Some(unknown()));
        client.write(file, 0, b"x").await.unwrap();
        assert_eq!(*lower.layer().getxattr.borrow(), None, "a write looks for a capability");
        assert_eq!(client.get_xattr(b"/program", XATTR_CAPABILITY).await, Err(FsError::NoAttribute));
        client.close(file).await.unwrap();
        fs.close().await.unwrap();
    });
}
