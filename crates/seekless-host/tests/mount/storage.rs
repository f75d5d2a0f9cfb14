//! LFS on real files whose host fails: it runs out of space, or loses accepted writes.
//!
//! In this process and without a mount, because the tested code is below the file system.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use seekless::fs::client::Client;
use seekless::fs::{Fs, FsError, FsResult};
use seekless::stack::{CheckOptions, Identity, Purpose, Stack, Usage};
use seekless::units::MIB;
use seekless_host::leaves::HostLeaves;
use seekless_host::reactor::{Reactor, ReactorOptions};
use seekless_host::testing::{LoopDevice, Need, skip};

/// A tmpfs for the test, so that a full host affects only this test.
struct SmallHost(tempfile::TempDir);

impl SmallHost {
    fn mount(bytes: u64) -> Option<SmallHost> {
        let directory = tempfile::tempdir().unwrap();
        let options = format!("size={bytes}");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(directory.path()).output();
        match mount {
            Ok(output) if output.status.success() => Some(SmallHost(directory)),
            Ok(output) => {
                skip(Need::Tmpfs, format_args!("cannot mount: {}", String::from_utf8_lossy(&output.stderr)));
                None
            }
            Err(error) => {
                skip(Need::Tmpfs, format_args!("cannot run mount: {error}"));
                None
            }
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Takes all the space that there is.
    fn fill(&self) {
        let mut ballast = File::options().append(true).create(true).open(self.path("ballast")).unwrap();
        for bytes in [1 << 20, 4096] {
            while std::io::Write::write_all(&mut ballast, &vec![0xB5; bytes]).is_ok() {}
        }
    }

    fn empty(&self) {
        fs::remove_file(self.path("ballast")).unwrap();
    }
}

impl Drop for SmallHost {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Mounts `line` on a reactor of its own, lets `body` use it, and closes it.
fn with_mounted<T>(line: &str, body: impl AsyncFnOnce(&Client) -> T) -> (T, FsResult<()>) {
    let reactor = Reactor::new(ReactorOptions::default()).unwrap();
    let executor = reactor.executor();
    let rt = executor.rt().clone();
    let run = async {
        let leaves = HostLeaves::new(&reactor);
        let fs: Fs = Stack::parse(line).unwrap().mount(&rt, &leaves, &identity(), Usage::default()).await.unwrap().fs;
        let result = body(&Client::new(fs.clone())).await;
        (result, fs.close().await)
    };
    executor.block_on(run).unwrap()
}

fn make(line: &str) {
    let reactor = Reactor::new(ReactorOptions::default()).unwrap();
    let executor = reactor.executor();
    let rt = executor.rt().clone();
    let run = async {
        let leaves = HostLeaves::new(&reactor);
        let stack = Stack::parse(line).unwrap();
        stack.open(&rt, &leaves, Purpose::Format).await.unwrap().mkfs(&identity()).await.unwrap();
    };
    executor.block_on(run).unwrap();
}

/// Asserts that a full check, with all file data, finds nothing.
fn check(line: &str) {
    let reactor = Reactor::new(ReactorOptions::default()).unwrap();
    let executor = reactor.executor();
    let rt = executor.rt().clone();
    let run = async {
        let leaves = HostLeaves::new(&reactor);
        let stack = Stack::parse(line).unwrap();
        let options = CheckOptions { data: true, ..CheckOptions::default() };
        let checked = stack.open(&rt, &leaves, Purpose::Inspect).await.unwrap().fsck(options).await.unwrap();
        assert!(checked.findings.is_empty(), "{:?}", checked.findings);
    };
    executor.block_on(run).unwrap();
}

fn identity() -> Identity {
    Identity::new([1, 2, 3, 4])
}

fn name(number: usize) -> Vec<u8> {
    format!("/f{number}").into_bytes()
}

fn content(number: usize) -> Vec<u8> {
    (0..256 << 10).map(|at: usize| (at / 7 + number) as u8).collect()
}

async fn write_durably(client: &Client, number: usize) -> FsResult<()> {
    client.write_file(&name(number), &content(number)).await?;
    client.fsync_path(&name(number)).await?;
    client.fsync_dir(b"/").await
}

async fn assert_intact(client: &Client, numbers: impl Iterator<Item = usize>) {
    for number in numbers {
        assert!(client.read_file(&name(number)).await.unwrap() == content(number), "f{number} differs");
    }
}

fn stored_bytes(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// A sparse image larger than the capacity of its host: writing ends in a clean ENOSPC, synced data stays, deleting
/// works and returns space to the host, and writing continues. The same when other files take the space.
#[test]
fn a_full_host_is_a_full_volume() {
    let Some(host) = SmallHost::mount(128 * MIB) else { return };
    let image = host.path("a.img");
    let line = format!("lfs / file:{}", image.display());
    make(&format!("{line},size=512MiB"));
    let (kept, closed) = with_mounted(&line, async |client| {
        let mut written = 0;
        let error = loop {
            match write_durably(client, written).await {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error, FsError::NoSpace, "after {written} files");
        // 128 MiB would hold 512 files of 256 KiB, and there is a checkpoint and a summary here and there.
        assert!((400..512).contains(&written), "{written} files");
        assert_intact(client, 0..written).await;

        let before = stored_bytes(&image);
        let _ = client.unlink(&name(written)).await; // Whether its creation was still possible is not the point.
        for number in 0..written * 3 / 4 {
            client.unlink(&name(number)).await.unwrap();
        }
        client.sync().await.unwrap();
        while client.fs().idle(seekless::units::Nanos(u64::MAX)).await.unwrap() {}
        client.sync().await.unwrap();
        let after = stored_bytes(&image);
        // A quarter is in use, and as much as 36 MiB is kept for what may be written next (`ready_target`).
        assert!(after < before * 3 / 5, "{before} bytes before deleting three quarters, {after} after");

        for number in 0..written / 3 {
            write_durably(client, number).await.unwrap();
        }
        // Now other files fill the host. Acknowledgements from here on must hold as well.
        host.fill();
        let mut kept: Vec<usize> = (0..written / 3).chain(written * 3 / 4..written).collect();
        for number in written + 1.. {
            match write_durably(client, number).await {
                Ok(()) => kept.push(number),
                Err(error) => {
                    assert_eq!(error, FsError::NoSpace);
                    break;
                }
            }
        }
        assert_intact(client, kept.iter().copied()).await;
        host.empty();
        write_durably(client, 1_000).await.unwrap();
        kept.push(1_000);
        kept
    });
    closed.unwrap();
    check(&line);
    let (_, closed) = with_mounted(&line, async |client| assert_intact(client, kept.iter().copied()).await);
    closed.unwrap();
}

/// Unmounts even when its test fails.
struct UnmountedAtLast<'a>(&'a str);

impl Drop for UnmountedAtLast<'_> {
    fn drop(&mut self) {
        // After a test that went well there is nothing mounted.
        let _ = Command::new(env!("CARGO_BIN_EXE_seekless")).args(["umount", "--lazy", self.0]).output();
    }
}

/// A daemon whose host is full reports when that begins and when it ends, however many requests fail in between. On a busy machine
/// what is given back may end it for a moment.
#[test]
fn a_full_host_is_reported_once() {
    if !std::path::Path::new("/dev/fuse").exists() {
        return skip(Need::Fuse, "there is no /dev/fuse");
    }
    let Some(host) = SmallHost::mount(48 * MIB) else { return };
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_seekless")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let line = format!("lfs / file:{}", host.path("a.img").display());
    // Where there is room.
    let outside = tempfile::tempdir().unwrap();
    let (log, mount_point) = (outside.path().join("log").display().to_string(), outside.path().join("mnt"));
    let place = mount_point.display().to_string();
    fs::create_dir(&mount_point).unwrap();
    run(&["mkfs", "-q", &format!("{line},size=512MiB")]);
    run(&["mount", &line, &place, "--log-file", &log, "-o", "commit=1"]);
    let _unmounted = UnmountedAtLast(&place);
    let write = |number: usize| -> std::io::Result<()> {
        let file = File::create(mount_point.join(format!("f{number}")))?;
        std::os::unix::fs::FileExt::write_all_at(&file, &content(number), 0)?;
        file.sync_all()
    };
    let first_refused = (0..200).find(|&number| write(number).is_err()).expect("the host has room for fewer");
    let begun = std::time::Instant::now();
    let refused = (0..40).filter(|number| write(first_refused + number).is_err()).count();
    assert!(refused > 20, "{refused} of 40 refused");
    std::thread::sleep(std::time::Duration::from_millis(2500));
    for number in 0..first_refused {
        fs::remove_file(mount_point.join(format!("f{number}"))).unwrap();
    }
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while write(1_000).is_err() {
        assert!(std::time::Instant::now() < deadline, "no room although everything is deleted");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    (1_001..1_010).for_each(|number| write(number).unwrap());
    run(&["umount", &place]);
    // Each commit may give back room for a moment.
    let times = 3 + begun.elapsed().as_secs() as usize;
    let log = fs::read_to_string(log).unwrap();
    let [began, ended] = ["the host has no room", "the host has room again"].map(|text| log.matches(text).count());
    assert!(
        began == ended && (1..=times.min(refused / 2)).contains(&began),
        "{began} times no room, {ended} times room again\n{log}"
    );
    assert!(log.lines().count() < 8 + 2 * began, "{log}");
}

/// A loop device over a sparse file on a full host accepts writes and loses them: the sync reports it, once. From then
/// on nothing succeeds, whatever the host reports later; data acknowledged before is there afterwards.
#[test]
fn a_failed_sync_of_the_host_is_final() {
    let Some(host) = SmallHost::mount(32 * MIB) else { return };
    let image = host.path("disk");
    File::create(&image).unwrap().set_len(256 * MIB).unwrap();
    // A write of which the host had room for a part is a success to Linux's loop driver (`lo_complete_rq` looks for
    // errors, not at the length; seen on 6.18). With sectors as large as pages there is no such write here.
    let Some(disk) = LoopDevice::attach(&image, 4096) else { return };
    let line = format!("lfs:discard=off / file:{}", disk.path().display());
    make(&line);
    let (acknowledged, closed) = with_mounted(&line, async |client| {
        for number in 0..8 {
            write_durably(client, number).await.unwrap();
        }
        host.fill();
        let mut acknowledged = 8;
        let error = loop {
            match write_durably(client, acknowledged).await {
                Ok(()) => acknowledged += 1,
                Err(error) => break error,
            }
            assert!(acknowledged < 200, "the host has no room for this");
        };
        assert!(matches!(error, FsError::Stopped(_)), "{error}");
        host.empty();
        for _ in 0..3 {
            let refused = [
                client.sync().await,
                client.fsync_path(&name(0)).await,
                client.write_file(b"/new", b"x").await,
                client.unlink(&name(0)).await,
            ];
            for result in refused {
                assert!(matches!(result, Err(FsError::Stopped(_))), "{result:?}");
            }
        }
        assert_intact(client, 0..8).await;
        acknowledged
    });
    assert!(closed.is_err(), "what was lost was reported as safe");
    let (_, closed) = with_mounted(&line, async |client| assert_intact(client, 0..acknowledged).await);
    closed.unwrap();
    check(&line);
}
