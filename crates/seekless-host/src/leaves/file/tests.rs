//! Aim: the device stores every write, reports what it cannot do, and never hides a lost write. Method: real files in a
//! temporary directory, on both backends; full disks and failing syncs on a small tmpfs (as root).

mod lost;

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::task::Poll;

use futures_util::future::{join_all, poll_fn};
use seekless::rng::Rng;
use seekless::rt::Executor;
use seekless::units::{KIB, MIB};

use super::*;
use crate::leaves::users::WHOLE;
use crate::reactor::{Backend, ReactorOptions};
use crate::testing::{LoopDevice, Need, SmallTmpfs, skip};

struct Bench {
    executor: Executor,
    reactor: Reactor,
    directory: tempfile::TempDir,
}

impl Bench {
    fn new(backend: Backend) -> Bench {
        let reactor = Reactor::new(ReactorOptions { backend, ..ReactorOptions::default() }).unwrap();
        Bench { executor: reactor.executor(), reactor, directory: tempfile::tempdir().unwrap() }
    }

    /// With its images beside the tests: a temporary directory may be a tmpfs, which has no direct I/O.
    fn on_disk(backend: Backend) -> Bench {
        let tests = std::env::current_exe().unwrap();
        let directory = tempfile::tempdir_in(tests.parent().unwrap()).unwrap();
        Bench { directory, ..Bench::new(backend) }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("image")
    }

    fn create(&self, bytes: u64, options: FileOptions) -> FileDevice {
        FileDevice::create(self.executor.rt(), &self.reactor, &self.path(), bytes, options).unwrap()
    }

    fn open(&self, path: &Path, options: FileOptions) -> Result<FileDevice, FileError> {
        FileDevice::open(self.executor.rt(), &self.reactor, path, options)
    }

    /// Opens a store that is free. A process that another test starts has our locks until it runs its program.
    fn opened(&self, path: &Path, options: FileOptions) -> FileDevice {
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        loop {
            match self.open(path, options) {
                Err(FileError::InUse { .. }) if std::time::Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                opened => return opened.unwrap_or_else(|error| panic!("{}, {options:?}: {error}", path.display())),
            }
        }
    }
}

/// Every backend available on this machine.
fn benches() -> Vec<Bench> {
    all_benches(Bench::new)
}

fn all_benches(bench: impl Fn(Backend) -> Bench) -> Vec<Bench> {
    let uring = Reactor::new(ReactorOptions { backend: Backend::Uring, ..ReactorOptions::default() }).is_ok();
    let mut all = vec![bench(Backend::Pool)];
    if uring {
        all.push(bench(Backend::Uring));
    }
    all
}

const DIRECT: FileOptions = FileOptions { direct: DirectIo::On, read_only: false };
const BUFFERED: FileOptions = FileOptions { direct: DirectIo::Off, read_only: false };
const AUTO: FileOptions = FileOptions { direct: DirectIo::Auto, read_only: false };
const READ_ONLY: FileOptions = FileOptions { direct: DirectIo::Off, read_only: true };

/// Data is read back, by this device and by the next one, with any alignment in memory.
#[test]
fn writes_are_read_back() {
    for bench in benches() {
        for options in [BUFFERED, DIRECT, AUTO] {
            let device = bench.create(8 * MIB, options);
            let block = u64::from(device.geometry().block_bytes);
            let mut model = vec![0u8; 8 * MIB as usize];
            let mut rng = Rng::new(1);
            bench
                .executor
                .block_on(async {
                    for step in 0..200 {
                        let blocks = rng.between(1, 64);
                        let at = rng.below(8 * MIB / block - blocks) * block;
                        let mut bytes = vec![0; (blocks * block) as usize + 16];
                        rng.fill(&mut bytes);
                        // Starts at an odd place in memory every other time.
                        let skip = (step % 2) * 16;
                        let data = Data::from_slice(&bytes).slice(skip..skip + (blocks * block) as usize);
                        model[at as usize..][..data.len()].copy_from_slice(&data);
                        let flags = if step % 50 == 0 { WriteFlags::FUA } else { WriteFlags::NONE };
                        device.write(Sector(at / SECTOR_BYTES), data, flags).await.unwrap();
                    }
                    device.flush().await.unwrap();
                    let read = device.read(Sector::ZERO, Buf::dirty(4 * MIB as usize)).await.unwrap();
                    assert!(read[..] == model[..4 * MIB as usize]);
                })
                .unwrap();
            drop(device);
            let device = bench.opened(&bench.path(), READ_ONLY);
            let read = bench.executor.block_on(device.read(Sector(8192), Buf::dirty(4 * MIB as usize))).unwrap();
            assert!(read.unwrap()[..] == model[4 * MIB as usize..]);
            std::fs::remove_file(bench.path()).unwrap();
        }
    }
}

/// Aim: requests that take the page cache and such that by-pass it see each other. Method: four clients at once, each with a
/// part of the file that begins and ends within a page, write, read, allocate and discard at random, and each finds in its
/// part what it has written there; then all of it through the cache alone. Both ways were used.
#[test]
fn both_ways_show_the_same() {
    const CLIENTS: u64 = 4;
    const PART: u64 = MIB + 7 * SECTOR_BYTES;
    for (seed, bench) in (1..).zip(all_benches(Bench::on_disk)) {
        let device = bench.create(8 * MIB, AUTO);
        let Some(direct) = &device.shared.direct else {
            return skip(Need::DirectIo, "the file system below is not ext4, or states no alignment");
        };
        let client = async |client: u64| {
            let (mut rng, mut model) = (Rng::new(seed * 100 + client), vec![0u8; PART as usize]);
            let begin = client * PART + 3 * SECTOR_BYTES;
            for step in 0..300 {
                let sectors = rng.between(1, 256);
                let from = rng.below(PART / SECTOR_BYTES - sectors) * SECTOR_BYTES;
                let (at, bytes) = (Sector((begin + from) / SECTOR_BYTES), (sectors * SECTOR_BYTES) as usize);
                let part = from as usize..from as usize + bytes;
                match rng.below(10) {
                    0 => {
                        device.discard(at, sectors).await.unwrap();
                        model[part].fill(0);
                    }
                    1 => device.provision(at, sectors).await.unwrap(),
                    2 => device.flush().await.unwrap(),
                    3..6 => {
                        let read = device.read(at, Buf::dirty(bytes)).await.unwrap();
                        assert!(read[..] == model[part], "seed {seed}, client {client}, step {step}");
                    }
                    _ => {
                        rng.fill(&mut model[part.clone()]);
                        device.write(at, Data::from_slice(&model[part]), WriteFlags::NONE).await.unwrap();
                    }
                }
            }
            model
        };
        let models = bench.executor.block_on(join_all((0..CLIENTS).map(client))).unwrap();
        let counts = &device.shared.counts;
        assert!((1..counts.writes.get()).contains(&counts.direct_writes.get()));
        assert!(!direct.is_refused());
        drop(device);
        let stored = std::fs::read(bench.path()).unwrap();
        for (client, model) in (0..).zip(models) {
            let begin = (client * PART + 3 * SECTOR_BYTES) as usize;
            assert!(stored[begin..begin + PART as usize] == model, "seed {seed}, client {client}");
        }
    }
}

/// F2: one writer at a time, or any number of readers.
#[test]
fn use_is_exclusive() {
    let bench = Bench::new(Backend::Pool);
    let writer = bench.create(MIB, BUFFERED);
    let refused = bench.open(&bench.path(), BUFFERED).unwrap_err();
    assert!(matches!(refused, FileError::InUse { .. }) && refused.to_string().contains("in use by another"));
    assert!(matches!(bench.open(&bench.path(), READ_ONLY), Err(FileError::InUse { .. })));
    drop(writer);
    let readers = [bench.opened(&bench.path(), READ_ONLY), bench.opened(&bench.path(), READ_ONLY)];
    assert!(matches!(bench.open(&bench.path(), BUFFERED), Err(FileError::InUse { .. })));
    drop(readers);
    bench.opened(&bench.path(), BUFFERED);
}

/// Aim: direct, cached and durable writes of one page at once are all there, and the kernel has no error to report (F4). Method: 32
/// tasks, four in a page, each with two sectors of its own, which it writes together or one of them, every third time durably,
/// with syncs in between.
#[test]
fn writes_of_one_page_at_once() {
    const TASKS: u64 = 32;
    const OWN: u64 = 2;
    for (seed, bench) in (1..).zip(all_benches(Bench::on_disk)) {
        let device = bench.create(MIB, AUTO);
        let task = async |task: u64| {
            let (mut rng, mut model) = (Rng::new(seed * 1000 + task), [0; (OWN * SECTOR_BYTES) as usize]);
            for round in 0..60 {
                let first = rng.below(OWN);
                let part = &mut model[(first * SECTOR_BYTES) as usize..];
                rng.fill(part);
                let flags = if rng.chance(1, 3) { WriteFlags::FUA } else { WriteFlags::NONE };
                device.write(Sector(task * OWN + first), Data::from_slice(part), flags).await.unwrap();
                if round % 8 == 0 {
                    device.flush().await.unwrap();
                }
            }
            model
        };
        bench
            .executor
            .block_on(async {
                device.write(Sector::ZERO, Data::from_slice(&[0; MIB as usize]), WriteFlags::NONE).await.unwrap();
                device.provision(Sector::ZERO, MIB / SECTOR_BYTES).await.unwrap();
                let models = join_all((0..TASKS).map(task)).await;
                device.flush().await.unwrap();
                for (number, model) in (0..).zip(models) {
                    let read = device.read(Sector(number * OWN), Buf::dirty(model.len())).await.unwrap();
                    assert!(read[..] == model, "seed {seed}, sectors of task {number}");
                }
            })
            .unwrap();
        if device.shared.direct.is_none() {
            return skip(Need::DirectIo, "the file system below is not ext4, or states no alignment");
        }
        let counts = &device.shared.counts;
        assert!(counts.direct_writes.get() > 0 && counts.durable_writes.get() > 0);
    }
}

/// Aim: a store whose writes have not all ended is in use, also when their caller has gone (F2). Method: each descriptor that a
/// write under way would hold is held; the store opens only once it is let go.
#[test]
fn writes_that_have_not_ended_keep_a_store() {
    for bench in all_benches(Bench::on_disk) {
        for which in 0..3 {
            let _ = std::fs::remove_file(bench.path());
            let device = bench.create(MIB, AUTO);
            let shared = &device.shared;
            let under_way = match which {
                0 => shared.file.clone(),
                1 => shared.durable_file.clone(),
                _ => match &shared.direct {
                    Some(direct) => direct.file.clone(),
                    None => return skip(Need::DirectIo, "the file system below is not ext4, or states no alignment"),
                },
            };
            drop(device);
            for _ in 0..3 {
                assert!(matches!(bench.open(&bench.path(), AUTO), Err(FileError::InUse { .. })), "descriptor {which}");
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(under_way);
            let deadline = std::time::Instant::now() + Duration::from_secs(20);
            while let Err(error) = bench.open(&bench.path(), AUTO) {
                assert!(std::time::Instant::now() < deadline, "{error}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// A file that is not a store is refused with a helpful reason.
#[test]
fn bad_stores_are_refused() {
    let bench = Bench::new(Backend::Pool);
    let refused = |path: &Path| bench.open(path, BUFFERED).unwrap_err().to_string();
    let directory = refused(bench.directory.path());
    assert!(directory.contains("is a directory") && directory.contains("hostdir:PATH"), "{directory}");
    assert!(refused(Path::new("/dev/null")).contains("a character device"));
    assert!(refused(&bench.path()).contains("No such file or directory"));
    std::fs::write(bench.path(), [0; 511]).unwrap();
    assert!(refused(&bench.path()).contains("511 bytes"));
    let exists = FileDevice::create(bench.executor.rt(), &bench.reactor, &bench.path(), MIB, BUFFERED).unwrap_err();
    assert!(exists.to_string().contains("File exists"), "{exists}");
    assert!(bench.path().exists(), "a failed create leaves what was there");
}

/// Discarded space reads as zeroes and is returned to the host; provisioned space is allocated there.
#[test]
fn space_is_given_back_and_provisioned() {
    for bench in benches() {
        let device = bench.create(4 * MIB, BUFFERED);
        if device.guarantees().discard != Discard::Zeroes {
            return skip(Need::Punch, format_args!("no holes can be punched in {}", bench.path().display()));
        }
        let used = || std::fs::metadata(bench.path()).unwrap().blocks() * 512;
        bench
            .executor
            .block_on(async {
                device.provision(Sector::ZERO, 4096).await.unwrap();
                assert!(used() >= 2 * MIB);
                device.write(Sector::ZERO, Data::from_slice(&vec![1; MIB as usize]), WriteFlags::NONE).await.unwrap();
                device.flush().await.unwrap();
                device.discard(Sector(1024), 3072).await.unwrap();
                let read = device.read(Sector::ZERO, Buf::dirty(MIB as usize)).await.unwrap();
                assert!(read[..512 * KIB as usize].iter().all(|&byte| byte == 1));
                assert!(read[512 * KIB as usize..].iter().all(|&byte| byte == 0));
            })
            .unwrap();
        assert!(used() <= MIB, "{} bytes in use", used());
        assert_eq!(std::fs::metadata(bench.path()).unwrap().len(), 4 * MIB);
    }
}

/// Aim: a search of a sparse image skips its holes, and passes over no written block. Method: a terabyte with three written blocks, of
/// which one begins where the host's blocks do not.
#[test]
fn holes_are_skipped() {
    const BYTES: u64 = 1 << 40;
    for bench in benches() {
        let device = bench.create(BYTES, BUFFERED);
        let sectors = BYTES / SECTOR_BYTES;
        let written = [0, sectors / 3 + 1, sectors - 1].map(Sector);
        let searched = async {
            assert_eq!(device.next_data(Sector(0)).await, Ok(None));
            for at in written {
                device.write(at, Data::from_slice(&[7; 512]), WriteFlags::NONE).await.unwrap();
            }
            for from in [0, 1 << 20, sectors / 3 - 12345, sectors / 3 + 1, sectors / 3 + (1 << 20), sectors - 1] {
                let next = written.into_iter().find(|at| at.0 >= from).unwrap();
                let found = device.next_data(Sector(from)).await.unwrap().expect("something was written behind");
                // Not behind it, and at most a large page of the host before it.
                assert!(found <= next && found.0 >= from && next.0 - found.0 < 4096, "{from}: {found}, not {next}");
            }
            assert_eq!(device.next_data(Sector(sectors)).await, Ok(None));
        };
        bench.executor.block_on(searched).unwrap();
    }
}

/// Concurrent flushes and durable writes share their syncs.
#[test]
fn concurrent_flushes_share_a_sync() {
    for bench in benches() {
        let device = bench.create(MIB, BUFFERED);
        bench
            .executor
            .block_on(async {
                let flushes = join_all((0..16).map(|_| device.flush())).await;
                assert!(flushes.into_iter().all(|flushed| flushed.is_ok()));
                let writes = (0..16).map(|i| device.write(Sector(i), Data::zeroes(512), WriteFlags::FUA));
                assert!(join_all(writes).await.into_iter().all(|written| written.is_ok()));
            })
            .unwrap();
        let counters: std::collections::BTreeMap<_, _> = device.counters().into_iter().collect();
        assert_eq!((counters["flushes"], counters["durable_writes"]), (16, 16));
        // On a busy machine a thread can be done before the next one asks; alone it takes four or fewer.
        assert!(counters["syncs"] <= 16, "{} syncs for 32 requests", counters["syncs"]);
    }
}

/// An invalid request is refused; a file that shrank is an error of the read.
#[test]
fn bad_requests_are_errors() {
    for bench in benches() {
        let device = bench.create(MIB, BUFFERED);
        bench
            .executor
            .block_on(async {
                let read = device.read(Sector(2047), Buf::dirty(1024)).await;
                assert!(matches!(read, Err(DeviceError::OutOfRange { .. })));
                let write = device.write(Sector(0), Data::zeroes(100), WriteFlags::NONE).await;
                assert!(matches!(write, Err(DeviceError::Unaligned { .. })));
                assert!(matches!(device.discard(Sector(1), 1 << 50).await, Err(DeviceError::OutOfRange { .. })));
                std::fs::OpenOptions::new().write(true).open(bench.path()).unwrap().set_len(1024).unwrap();
                let read = device.read(Sector(1), Buf::dirty(1024)).await;
                assert!(matches!(&read, Err(DeviceError::Io { cause, .. }) if cause.contains("shrunk")), "{read:?}");
            })
            .unwrap();
        drop(device);
        let device = bench.opened(&bench.path(), READ_ONLY);
        let write = bench.executor.block_on(device.write(Sector(0), Data::zeroes(512), WriteFlags::NONE)).unwrap();
        assert_eq!(write, Err(DeviceError::ReadOnly));
    }
}

/// When the host is full under a sparse image, a write reports it, and works again after a discard.
#[test]
fn a_full_host_gives_no_space() {
    for bench in benches() {
        let Some(_tmpfs) = SmallTmpfs::mount(bench.directory.path(), MIB) else { return };
        let device = bench.create(16 * MIB, BUFFERED);
        bench
            .executor
            .block_on(async {
                let write = |at| device.write(Sector(at), Data::zeroes(256 * KIB as usize), WriteFlags::NONE);
                let mut at = 0;
                let full = loop {
                    match write(at).await {
                        Ok(()) => at += 512,
                        Err(error) => break error,
                    }
                };
                assert!(matches!(full, DeviceError::NoSpace { .. }), "{full:?}");
                assert!((3 * 512..=4 * 512).contains(&at));
                let provisioned = device.provision(Sector(at), 2048).await;
                assert!(matches!(provisioned, Err(DeviceError::NoSpace { .. })), "{provisioned:?}");
                device.flush().await.unwrap();
                device.discard(Sector(0), 1024).await.unwrap();
                write(at).await.unwrap();
                device.flush().await.unwrap();
            })
            .unwrap();
    }
}

/// F1: writes that the host accepted and then lost make the flush fail, and everything after it, although Linux itself
/// reports success the second time. Method: a loop device over a sparse file on a full tmpfs.
#[test]
fn a_failed_flush_is_never_forgotten() {
    for bench in benches() {
        let Some(_tmpfs) = SmallTmpfs::mount(bench.directory.path(), MIB) else { return };
        std::fs::File::create(bench.path()).unwrap().set_len(16 * MIB).unwrap();
        let Some(disk) = LoopDevice::attach(&bench.path(), 512) else { return };
        let device = bench.opened(Path::new(disk.path()), BUFFERED);
        bench
            .executor
            .block_on(async {
                device.write(Sector(0), Data::from_slice(&[1; 4096]), WriteFlags::NONE).await.unwrap();
                device.flush().await.unwrap();
                let lost = Data::from_slice(&vec![2; 4 * MIB as usize]);
                device.write(Sector(4096), lost, WriteFlags::NONE).await.unwrap();
                // A caller that gives up does not take the error with it.
                let mut impatient = Box::pin(device.flush());
                poll_fn(|context| {
                    assert!(impatient.as_mut().poll(context).is_pending());
                    Poll::Ready(())
                })
                .await;
                drop(impatient);
                let (first, second) = futures_util::future::join(device.flush(), device.flush()).await;
                assert!(matches!(first, Err(DeviceError::Io { .. })), "{first:?}");
                assert!(matches!(second, Err(DeviceError::Io { .. })), "{second:?}");
                for _ in 0..3 {
                    let error = device.flush().await.unwrap_err().to_string();
                    assert!(error.contains("earlier writes were lost: fdatasync failed"), "{error}");
                }
                let write = device.write(Sector(0), Data::zeroes(4096), WriteFlags::NONE).await;
                assert!(matches!(write, Err(DeviceError::Io { operation: "write", .. })), "{write:?}");
                let read = device.read(Sector(0), Buf::dirty(4096)).await.unwrap();
                assert!(read.iter().all(|&byte| byte == 1));
            })
            .unwrap();
    }
}

/// Aim: F2 holds for the bytes, by whichever name and loop device they are reached. Method: one user has the file, or a loop device
/// over it, or one over that; all other ways are refused, and free again when it ends. Readers are many.
#[test]
fn a_file_is_used_once_through_loop_devices_too() {
    let bench = Bench::new(Backend::Pool);
    std::fs::File::create(bench.path()).unwrap().set_len(4 * MIB).unwrap();
    let link = bench.path().with_extension("link");
    std::fs::hard_link(bench.path(), &link).unwrap();
    let Some(one) = LoopDevice::attach(&bench.path(), 512) else { return };
    let Some(two) = LoopDevice::attach(&link, 512) else { return };
    let Some(above) = LoopDevice::attach(Path::new(one.path()), 512) else { return };
    let ways = [&bench.path(), &link, Path::new(one.path()), Path::new(two.path()), Path::new(above.path())];
    let reading = FileOptions { read_only: true, ..BUFFERED };
    for user in ways {
        let device = bench.opened(user, BUFFERED);
        // The same one again is tested elsewhere: a block device is tried for a second, because of udev.
        for other in ways.into_iter().filter(|other| *other != user) {
            for options in [BUFFERED, reading] {
                let refused = bench.open(other, options).err();
                assert!(matches!(refused, Some(FileError::InUse { .. })), "{user:?} {other:?}: {refused:?}");
            }
        }
        drop(device);
        let readers: Vec<FileDevice> = ways.iter().map(|way| bench.opened(way, reading)).collect();
        assert!(matches!(bench.open(&link, BUFFERED), Err(FileError::InUse { .. })), "{user:?}");
        drop(readers);
    }
    // A user in the kernel, of which locks say nothing.
    let claim = claim::open_exclusively(two.path()).unwrap();
    assert!(matches!(bench.open(&link, BUFFERED), Err(FileError::InUse { .. })));
    drop(claim);
}

/// Aim: a file is not written through a loop device when its other users cannot be kept away, as its name is gone. Method: with a user of
/// the file, with a reader of it, with none; and a user of the loop device, in the kernel.
#[test]
fn a_loop_device_over_a_name_that_is_gone_is_only_read() {
    let bench = Bench::new(Backend::Pool);
    std::fs::File::create(bench.path()).unwrap().set_len(4 * MIB).unwrap();
    let link = bench.path().with_extension("link");
    std::fs::hard_link(bench.path(), &link).unwrap();
    let Some(disk) = LoopDevice::attach(&link, 512) else { return };
    let Some(above) = LoopDevice::attach(Path::new(disk.path()), 512) else { return };
    std::fs::remove_file(&link).unwrap();
    let ways = [Path::new(disk.path()), Path::new(above.path())];
    let reading = FileOptions { read_only: true, ..BUFFERED };
    for way in ways {
        let user = bench.opened(&bench.path(), BUFFERED);
        for options in [BUFFERED, reading] {
            let refused = bench.open(way, options).err();
            assert!(matches!(refused, Some(FileError::InUse { .. })), "{way:?}: {refused:?}");
        }
        drop(user);
        let reader = bench.opened(&bench.path(), reading);
        assert!(matches!(bench.open(way, BUFFERED), Err(FileError::InUse { .. })));
        drop(bench.opened(way, reading));
        drop(reader);
        let refused = bench.open(way, BUFFERED).err();
        assert!(matches!(refused, Some(FileError::MayBeInUse { .. })), "{way:?}: {refused:?}");
        drop(bench.opened(way, reading));
    }
    let claim = claim::open_exclusively(disk.path()).unwrap();
    assert!(matches!(bench.open(&bench.path(), BUFFERED), Err(FileError::InUse { .. })));
    drop(claim);
    drop(bench.opened(&bench.path(), BUFFERED));
}

/// Aim: a lock is found in the kernel's table while other processes take and drop theirs. Method: a thread drops and takes hundreds
/// of others again and again.
#[test]
fn a_lock_is_found_among_locks_that_change() {
    use rustix::fs::{FlockOperation, flock};
    const OTHERS: usize = 400;
    let folder = tempfile::tempdir().unwrap();
    let file = |name: usize| std::fs::File::create(folder.path().join(name.to_string())).unwrap();
    let others: Vec<_> = (0..OTHERS).map(file).collect();
    others.iter().for_each(|other| flock(other, FlockOperation::LockShared).unwrap());
    let held = std::os::fd::OwnedFd::from(file(OTHERS));
    flock(&held, FlockOperation::LockExclusive).unwrap();
    let identity = super::found::identity(&held).unwrap();
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                for operation in [FlockOperation::Unlock, FlockOperation::LockShared] {
                    others.iter().for_each(|other| flock(other, operation).unwrap());
                }
            }
        });
        let missed = (0..2000).filter(|_| !super::below::is_locked(identity, true, &WHOLE)).count();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        assert_eq!(missed, 0, "looks that did not find it");
    });
}

/// F2 on block devices: the kernel's own mounts are kept away, and keep Seekless away.
#[test]
fn block_devices_are_claimed() {
    let bench = Bench::new(Backend::Pool);
    std::fs::File::create(bench.path()).unwrap().set_len(4 * MIB).unwrap();
    let Some(disk) = LoopDevice::attach(&bench.path(), 512) else { return };
    let device = bench.opened(Path::new(disk.path()), BUFFERED);
    assert_eq!(device.geometry().bytes(), 4 * MIB);
    assert!(device.is_block_device());
    let exclusive = || rustix::fs::open(disk.path(), rustix::fs::OFlags::EXCL, rustix::fs::Mode::empty());
    assert_eq!(exclusive().unwrap_err(), Errno::BUSY);
    device.release_claim();
    let other = claim::open_exclusively(disk.path()).unwrap();
    assert!(matches!(device.claim_again(), Err(FileError::InUse { .. })));
    drop(other);
    device.claim_again().unwrap();
    assert_eq!(exclusive().unwrap_err(), Errno::BUSY);
    bench.executor.block_on(async { device.discard(Sector(0), 8192).await.unwrap() }).unwrap();
}

/// Aim: what was written to a file by its name is read from a loop device over it, in turn. Method: another program has the device open and
/// has read from it, so that the kernel keeps what it knows of it.
#[test]
fn a_loop_device_shows_what_its_file_has_now() {
    let bench = Bench::new(Backend::Pool);
    std::fs::File::create(bench.path()).unwrap().set_len(4 * MIB).unwrap();
    let Some(disk) = LoopDevice::attach(&bench.path(), 512) else { return };
    let Some(above) = LoopDevice::attach(disk.path(), 512) else { return };
    let mut others = [&disk, &above].map(|device| std::fs::File::open(device.path()).unwrap());
    for round in 1..4_u8 {
        for other in &mut others {
            std::io::Seek::rewind(other).unwrap();
            std::io::Read::read_exact(other, &mut [0; 4096]).unwrap();
        }
        let device = bench.opened(&bench.path(), BUFFERED);
        let written = async {
            device.write(Sector(0), Data::from_slice(&[round; 4096]), WriteFlags::NONE).await.unwrap();
            device.flush().await.unwrap();
        };
        bench.executor.block_on(written).unwrap();
        drop(device);
        for way in [&disk, &above] {
            let device = bench.opened(way.path(), READ_ONLY);
            let read = bench.executor.block_on(device.read(Sector(0), Buf::dirty(4096))).unwrap().unwrap();
            assert!(read.iter().all(|&byte| byte == round), "{} in round {round}", way.path().display());
        }
    }
}

/// Loop devices over a file, by the options of `losetup`.
fn attached<const N: usize>(file: &Path, options: [&[&str]; N]) -> Option<[LoopDevice; N]> {
    let devices = options.map(|options| LoopDevice::attach_with(file, 512, options));
    devices.iter().all(Option::is_some).then(|| devices.map(|device| device.expect("looked at above")))
}

/// Aim: of loop devices over parts of a file, those with a byte in common have one user that writes, or any that read; others do not disturb
/// each other; and a user of the whole file keeps all away, as they do it. Method: parts side by side and overlapping, with an end and without,
/// and parts of a part; every pair.
#[test]
fn parts_of_a_file_are_used_once() {
    const MI: &str = "1048576";
    let bench = Bench::new(Backend::Pool);
    std::fs::File::create(bench.path()).unwrap().set_len(4 * MIB).unwrap();
    let first = ["--sizelimit", MI];
    let second = ["--offset", MI, "--sizelimit", MI];
    let from_second = ["--offset", MI];
    let last = ["--offset", "3145728"];
    let Some(direct) = attached(&bench.path(), [&first, &first, &second, &from_second, &last]) else { return };
    let Some(inner) = attached(direct[3].path(), [&first, &["--offset", MI, "--sizelimit", MI]]) else { return };
    // Where they begin and end in the file, in MiB.
    let places = [(0, 1), (0, 1), (1, 2), (1, 4), (3, 4), (1, 2), (2, 3), (0, 4)];
    let (devices, whole) = (direct.iter().chain(&inner).map(LoopDevice::path), bench.path());
    let ways: Vec<(&Path, (u64, u64))> = devices.chain([whole.as_path()]).zip(places).collect();
    for (user, used) in &ways {
        for (mine, theirs) in
            [(BUFFERED, BUFFERED), (BUFFERED, READ_ONLY), (READ_ONLY, BUFFERED), (READ_ONLY, READ_ONLY)]
        {
            let device = bench.opened(user, mine);
            for (other, wanted) in ways.iter().filter(|(other, _)| other != user) {
                let meet = used.0.max(wanted.0) < used.1.min(wanted.1);
                let is_refused = meet && !(mine.read_only && theirs.read_only);
                match is_refused {
                    true => {
                        let opened = bench.open(other, theirs);
                        assert!(
                            matches!(opened, Err(FileError::InUse { .. })),
                            "{used:?} {mine:?}, {wanted:?} {theirs:?}: {opened:?}"
                        );
                    }
                    false => drop(bench.opened(other, theirs)),
                }
            }
            drop(device);
        }
    }
}

/// Aim: a user in the kernel, of which locks say nothing, is seen from the other ways to what it uses (F2). Method: a claim on one loop device, as
/// a mount has it, and its file and another device opened; and a partition, beside which there is room.
#[test]
fn users_in_the_kernel_are_seen_through_loop_devices() {
    let bench = Bench::new(Backend::Pool);
    std::fs::File::create(bench.path()).unwrap().set_len(4 * MIB).unwrap();
    let first: [&str; 2] = ["--sizelimit", "1048576"];
    let rest: [&str; 2] = ["--offset", "1048576"];
    let Some([one, two, first, rest]) = attached(&bench.path(), [&[], &[], &first, &rest]) else { return };
    let Some(above) = LoopDevice::attach(one.path(), 512) else { return };
    let is_refused = |path: &Path| match bench.open(path, BUFFERED) {
        Ok(_) => false,
        Err(FileError::InUse { .. }) => true,
        Err(error) => panic!("{}: {error}", path.display()),
    };
    let file = bench.path();
    for (used, free) in
        [(&one, &[][..]), (&two, &[]), (&above, &[]), (&first, &[rest.path()]), (&rest, &[first.path()])]
    {
        let claim = claim::open_exclusively(used.path()).unwrap();
        for other in [&one, &two, &above, &first, &rest].map(LoopDevice::path).into_iter().chain([file.as_path()]) {
            match free.contains(&other) {
                true => drop(bench.opened(other, BUFFERED)),
                false => assert!(is_refused(other), "{} after {}", other.display(), used.path().display()),
            }
        }
        drop(claim);
        drop(bench.opened(used.path(), BUFFERED));
    }
}

/// Aim: a file is in use while a partition of a loop device over it is, and its other bytes are not, also where a partition has no node in `/dev`.
/// Method: claims, as mounts have them, on the device and its partitions; each opened by name and through other loop devices.
#[test]
fn users_of_partitions_are_seen() {
    let bench = Bench::new(Backend::Pool);
    std::fs::File::create(bench.path()).unwrap().set_len(4 * MIB).unwrap();
    const MI: &str = "1048576";
    let [before, one, two] = ["0", MI, "2097152"].map(|offset| ["--offset", offset, "--sizelimit", MI]);
    let Some([disk, before, over_one, over_two]) = attached(&bench.path(), [&["--partscan"], &before, &one, &two])
    else {
        return;
    };
    let sectors = MIB / SECTOR_BYTES;
    let Some(one) = disk.partition(1, sectors, sectors) else { return };
    let Some(two) = disk.partition(2, 2 * sectors, sectors) else { return };
    let [before, over_one, over_two] = [&before, &over_one, &over_two].map(LoopDevice::path);
    let (file, disk) = (bench.path(), disk.path());
    let check = |used: &str, refused: &[&Path], free: &[&Path]| {
        for way in refused {
            let opened = bench.open(way, BUFFERED);
            assert!(matches!(opened, Err(FileError::InUse { .. })), "{} after {used}: {opened:?}", way.display());
        }
        for way in free {
            let free = || bench.open(way, BUFFERED).is_ok();
            assert!((0..20).any(|_| free()), "{} after {used}", way.display());
        }
    };
    let claim = |path: &Path| claim::open_exclusively(path).unwrap();
    let all = [&file, disk, before, over_one, over_two, &one, &two];
    check("nothing", &[], &all);
    let device = bench.opened(&two, BUFFERED);
    check("a store in the second", &[&file, over_two], &[before, over_one, &one]);
    drop(device);
    let used = claim(disk);
    check("the device", &all, &[]);
    drop(used);
    let used = claim(&one);
    check("the first", &[&file, disk, over_one, &one], &[before, over_two, &two]);
    let also = claim(&two);
    check("both", &[&file, disk, over_one, over_two, &one, &two], &[]);
    std::fs::remove_file(&one).unwrap();
    check("both, one without a node", &[&file, disk, over_one, over_two, &two], &[]);
    drop(also);
    check("one without a node", &[&file, disk, over_one], &[before, over_two, &two]);
    drop(used);
    let used = claim(disk);
    check("the device, with a partition without a node", &[&file, disk, before, over_one, over_two, &two], &[]);
    drop(used);
    check("nothing any more", &[], &[&file, disk, before, over_one, over_two, &two]);
}

/// Aim: looking whether one file is in use does not keep others from devices that show other bytes, as trying one does for a moment. Method:
/// one that is held, for which a look that tried it would wait.
#[test]
fn looks_do_not_try_devices_that_show_other_bytes() {
    const LOOKS: u32 = 20;
    let directory = tempfile::tempdir().unwrap();
    let [other, mine] = ["other", "mine"].map(|name| directory.path().join(name));
    [&other, &mine].iter().for_each(|file| std::fs::File::create(file).unwrap().set_len(MIB).unwrap());
    let Some(other) = LoopDevice::attach(&other, 512) else { return };
    let _held = claim::open_exclusively(other.path()).unwrap();
    let file = OwnedFd::from(std::fs::File::open(&mine).unwrap());
    let begun = std::time::Instant::now();
    for _ in 0..LOOKS {
        assert!(below::look_above(&[(&file, &WHOLE)]).is_ok());
    }
    let wait = Duration::from_millis(claim::WAITS_MS.iter().sum());
    assert!(begun.elapsed() < wait * LOOKS / 2, "{:?} for {LOOKS} looks", begun.elapsed());
}

/// Aim: users of different parts of a file do not take each other's looks for users. Method: threads that look at their parts of a file
/// at once, again and again, each at a loop device over all of it.
#[test]
fn looks_at_once_do_not_see_each_other() {
    const PARTS: u64 = 4;
    let bench = Bench::new(Backend::Pool);
    let file = bench.path();
    std::fs::File::create(&file).unwrap().set_len(PARTS * MIB).unwrap();
    let Some(_whole) = LoopDevice::attach(&file, 512) else { return };
    std::thread::scope(|scope| {
        for part in 0..PARTS {
            let file = OwnedFd::from(std::fs::File::open(&file).unwrap());
            scope.spawn(move || {
                for look in 0..2000 {
                    let looked = below::look_above(&[(&file, &(part * MIB..(part + 1) * MIB))]);
                    assert!(looked.is_ok(), "look {look} at part {part}");
                }
            });
        }
    });
}

/// io_uring takes a file that was opened with `O_NONBLOCK` for one whose reads never wait, and reads in the engine's thread.
#[test]
fn no_store_is_open_for_nonblocking_use() {
    for bench in all_benches(Bench::on_disk) {
        drop(bench.create(MIB, FileOptions::default()));
        let device = bench.opened(&bench.path(), FileOptions::default());
        let mut found = 0;
        for entry in std::fs::read_dir("/proc/self/fd").unwrap().map(Result::unwrap) {
            if std::fs::read_link(entry.path()).is_ok_and(|path| path == bench.path()) {
                let info =
                    std::fs::read_to_string(format!("/proc/self/fdinfo/{}", entry.file_name().display())).unwrap();
                let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).unwrap().trim();
                let flags = rustix::fs::OFlags::from_bits_retain(u32::from_str_radix(flags, 8).unwrap());
                assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK), "{info}");
                found += 1;
            }
        }
        assert!(found > 0, "the store is open");
        drop(device);
    }
}
