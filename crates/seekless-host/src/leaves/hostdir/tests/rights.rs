//! Aim: data goes to its place, and privileges are cleared when they should be. Method: one rule at a time, seen from
//! the host.

use seekless::fs::client::OpenFile as ClientFile;

use super::*;

fn permissions(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Set-user-id is cleared by a change of an unprivileged user, and kept otherwise, as in the model.
#[test]
fn privileges_go_when_told() {
    run(WAYS[0], async |bench| {
        let file = bench.path.join("f");
        let kill = WriteMode { kill_privileges: true, ..WriteMode::default() };
        for (mode, left) in [(0o6775, 0o775), (0o6765, 0o2765), (0o4755, 0o755), (0o644, 0o644)] {
            bench.client.write_file(b"f", b"12345").await.unwrap();
            let ino = bench.dir.lookup(Ino::ROOT, b"f").await.unwrap().attr.ino;
            let again = async || {
                let changes = SetAttr { permissions: Some(mode), ..SetAttr::default() };
                bench.dir.setattr(ino, None, changes).await.unwrap();
            };
            let cut = SetAttr { size: Some(3), ..SetAttr::default() };
            let mode = u32::from(mode);
            again().await;
            bench.dir.write(ino, None, 0, Data::from_slice(b"x"), kill).await.unwrap();
            assert_eq!(permissions(&file), left);
            again().await;
            bench.dir.setattr(ino, None, SetAttr { kill_privileges: true, ..cut }).await.unwrap();
            assert_eq!(permissions(&file), left);
            again().await;
            let opened = bench.dir.open(ino, OpenFlags { truncate: true, ..OpenFlags::READ_WRITE }).await.unwrap();
            bench.dir.release(ino, opened.handle.unwrap()).await.unwrap();
            assert_eq!((permissions(&file), std::fs::metadata(&file).unwrap().len()), (left, 0));
            if is_root() {
                again().await;
                bench.dir.write(ino, None, 0, Data::from_slice(b"x"), WriteMode::default()).await.unwrap();
                bench.dir.setattr(ino, None, cut).await.unwrap();
                assert_eq!(permissions(&file), mode, "root may write to it");
                let chown = SetAttr { uid: Some(4001), ..SetAttr::default() };
                bench.dir.setattr(ino, None, chown).await.unwrap();
                assert_eq!(permissions(&file), mode, "the caller says what goes");
                bench.dir.setattr(ino, None, SetAttr { kill_privileges: true, ..chown }).await.unwrap();
                assert_eq!(permissions(&file), left);
                let both = SetAttr { permissions: Some(0o4711), uid: Some(4002), kill_privileges: true, ..chown };
                bench.dir.setattr(ino, None, both).await.unwrap();
                assert_eq!(permissions(&file), 0o4711, "what is set at the same time is set");
            }
            bench.dir.forget(ino, 1).await;
            bench.client.unlink(b"f").await.unwrap();
        }
    });
}

/// Direct reads and writes, aligned or not, give the same result as through the page cache.
#[test]
fn direct_files_take_any_request() {
    run(WAYS[0], async |bench| {
        bench.client.write_file(b"f", &vec![1; 100_000]).await.unwrap();
        let direct = OpenFlags { direct: true, ..OpenFlags::READ_WRITE };
        let file: ClientFile = bench.client.open(b"f", direct).await.unwrap();
        let mut expected = vec![1; 100_000];
        for (offset, bytes) in [(0, 4096), (4096, 8192), (1, 7), (8191, 4096), (99_000, 3_000), (65_536, 512)] {
            let content = vec![(offset % 250) as u8 + 2; bytes];
            bench.client.write(file, offset as u64, &content).await.unwrap();
            expected.resize(expected.len().max(offset + bytes), 0);
            expected[offset..offset + bytes].copy_from_slice(&content);
            for (offset, bytes) in [(0, 4096), (offset, bytes), (4096, 65_536), (3, 99), (98_304, 8_192)] {
                let read = bench.client.read(file, offset as u64, bytes as u32).await.unwrap();
                let end = expected.len().min(offset + bytes);
                assert_eq!(read, expected[offset.min(end)..end], "{offset}+{bytes}");
            }
        }
        bench.client.close(file).await.unwrap();
        assert_eq!(std::fs::read(bench.path.join("f")).unwrap(), expected);
    });
}

/// Data in the page cache is read on the engine thread; other reads are handed over and do not delay other requests.
#[test]
fn cold_reads_are_handed_over() {
    run(WAYS[0], async |bench| {
        const BYTES: usize = 256 << 10;
        bench.client.write_file(b"f", &vec![7; BYTES]).await.unwrap();
        bench.client.fsync_path(b"f").await.unwrap();
        let count = |name| bench.dir.counters().iter().find(|(other, _)| *other == name).unwrap().1;
        assert_eq!(bench.client.read_file(b"f").await.unwrap().len(), BYTES);
        assert_eq!(count("reads_handed_over"), 0);
        let host = std::fs::File::open(bench.path.join("f")).unwrap();
        rustix::fs::fadvise(&host, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        assert_eq!(bench.client.read_file(b"f").await.unwrap(), vec![7; BYTES]);
        // A host file system in memory never waits.
        let memory = rustix::fs::fstatfs(&host).unwrap().f_type == libc::TMPFS_MAGIC as rustix::fs::FsWord;
        assert!(memory || count("reads_handed_over") > 0, "{:?}", bench.dir.counters());
    });
}

/// Handles work only for their own inode and their open mode.
#[test]
fn handles_are_checked() {
    run(WAYS[0], async |bench| {
        bench.client.write_file(b"f", b"1").await.unwrap();
        bench.client.write_file(b"g", b"2").await.unwrap();
        let f = bench.client.open(b"f", OpenFlags::READ).await.unwrap();
        let g = bench.client.open(b"g", OpenFlags { read: false, ..OpenFlags::READ_WRITE }).await.unwrap();
        assert_eq!(bench.dir.read(f.ino, g.handle, 0, 1).await.err(), Some(FsError::BadHandle));
        assert_eq!(bench.dir.release(f.ino, g.handle.unwrap()).await, Err(FsError::BadHandle));
        assert_eq!(bench.client.write(f, 0, b"x").await, Err(FsError::BadHandle), "opened for reading");
        assert_eq!(bench.client.read(g, 0, 1).await, Err(FsError::BadHandle), "opened for writing");
        // A size can be set through any handle: the kernel has made the checks.
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        assert_eq!(bench.dir.setattr(f.ino, f.handle, cut).await.unwrap().size, 0);
        assert_eq!(bench.client.read(f, u64::MAX, 10).await.unwrap(), b"");
        let far = bench.dir.write(g.ino, g.handle, u64::MAX, Data::from_slice(b"x"), WriteMode::default()).await;
        assert_eq!(far, Err(FsError::FileTooLarge));
        let range = FileRange { offset: u64::MAX, bytes: u64::MAX };
        let allocated = bench.dir.fallocate(g.ino, g.handle, range, AllocateMode::PunchHole).await;
        assert_eq!(allocated, Err(FsError::FileTooLarge));
        // A file without names and lookups lives on through its handle.
        bench.client.unlink(b"g").await.unwrap();
        bench.dir.forget(g.ino, 1).await;
        bench.client.write(g, 0, b"still here").await.unwrap();
        assert_eq!(bench.dir.getattr(g.ino, g.handle).await.unwrap().size, 10);
        bench.dir.release(g.ino, g.handle.unwrap()).await.unwrap();
        bench.client.close(f).await.unwrap();
    });
}

/// Other attributes of the host are visible.
#[test]
fn attributes_are_passed_on() {
    run(WAYS[0], async |bench| {
        bench.client.write_file(b"f", b"1").await.unwrap();
        bench.client.set_xattr(b"f", b"user.a", &[9; 2000]).await.unwrap();
        assert_eq!(bench.client.get_xattr(b"f", b"user.a").await.unwrap(), [9; 2000]);
        assert_eq!(bench.client.get_xattr(b"f", b"user.b").await, Err(FsError::NoAttribute));
        assert_eq!(bench.client.list_xattr(b"f").await.unwrap(), [b"user.a".to_vec()]);
    });
}

/// A large file is truncated and deleted by another thread.
#[test]
fn large_files_are_freed_elsewhere() {
    run(WAYS[0], async |bench| {
        let file = bench.client.create(b"f").await.unwrap();
        let range = FileRange { offset: 0, bytes: 200 << 20 };
        let mode = AllocateMode::Allocate { keep_size: false };
        match bench.dir.fallocate(file.ino, file.handle, range, mode).await {
            // A full disk, or a host that cannot preallocate: nothing to check here.
            Err(FsError::NoSpace | FsError::Unsupported) => {}
            result => {
                result.unwrap();
                let jobs = || bench.reactor.counters().iter().find(|(name, _)| *name == "blocking_jobs").unwrap().1;
                let before = jobs();
                bench.client.truncate(b"f", 100 << 20).await.unwrap();
                assert_eq!(jobs(), before + 1);
                bench.client.truncate(b"f", 99 << 20).await.unwrap();
                assert_eq!(jobs(), before + 1, "a megabyte takes no time");
                bench.client.unlink(b"f").await.unwrap();
                bench.client.close(file).await.unwrap();
                bench.rt.yield_now().await;
                bench.rt.yield_now().await;
                assert!(jobs() >= before + 2);
                return;
            }
        }
        bench.client.close(file).await.unwrap();
    });
}
