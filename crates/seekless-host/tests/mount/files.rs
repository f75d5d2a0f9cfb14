//! Aim: file data behaves as on any Linux file system. Method: the system calls of programs.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use seekless::rng::Rng;

use crate::daemon::{Daemon, on_every_mount};

fn patterned(bytes: usize, seed: u64) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Rng::new(seed).fill(&mut content);
    content
}

/// Makes the kernel forget its pages, so that reads ask the daemon.
fn forget_pages(file: &File) {
    file.sync_all().unwrap();
    // SAFETY: plain system call on an open file.
    assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) }, 0);
}

/// What is written in pieces of all sizes is read back, from the cache and from the daemon.
#[test]
fn data_is_read_back() {
    on_every_mount(|daemon, _| {
        let content = patterned(5 << 20, 1);
        let path = daemon.path("data");
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        let mut rest = &content[..];
        let mut rng = Rng::new(2);
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(rest.len().min(rng.between(1, 1 << 20) as usize));
            file.write_all(piece).unwrap();
            rest = later;
        }
        assert!(fs::read(&path).unwrap() == content);
        forget_pages(&file);
        assert!(fs::read(&path).unwrap() == content);
        for _ in 0..50 {
            let at = rng.below(content.len() as u64) as usize;
            let mut piece = vec![0; rng.between(1, 100_000).min((content.len() - at) as u64) as usize];
            file.read_exact_at(&mut piece, at as u64).unwrap();
            assert!(piece == content[at..at + piece.len()]);
        }
        assert_eq!(file.read_at(&mut [0; 10], 5 << 20).unwrap(), 0);
    });
}

/// Direct I/O goes around the cache and sees the same data.
#[test]
fn direct_io_is_coherent() {
    on_every_mount(|daemon, _| {
        let path = daemon.path("direct");
        let content = patterned(3 << 20, 3);
        fs::write(&path, &content).unwrap();
        let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_DIRECT).open(&path).unwrap();
        let mut buf = seekless::device::Buf::zeroed(3 << 20);
        file.read_exact_at(&mut buf, 0).unwrap();
        assert!(buf[..] == content[..]);
        buf[..4096].fill(9);
        file.write_all_at(&buf[..2 << 20], 1 << 20).unwrap();
        let seen = fs::read(&path).unwrap();
        assert!(seen[..1 << 20] == content[..1 << 20] && seen[1 << 20..] == buf[..2 << 20]);
    });
}

/// Pages changed through a shared mapping arrive, and a mapping sees what is written.
#[test]
fn shared_mappings_work() {
    on_every_mount(|daemon, _| {
        let path = daemon.path("mapped");
        fs::write(&path, [1; 8192]).unwrap();
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        // SAFETY: a mapping of a file that stays as long as it is, unmapped below.
        unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            let map = libc::mmap(std::ptr::null_mut(), 8192, protection, libc::MAP_SHARED, file.as_raw_fd(), 0);
            assert_ne!(map, libc::MAP_FAILED);
            let bytes = map.cast::<u8>();
            assert_eq!(bytes.add(5000).read_volatile(), 1);
            bytes.add(5000).write_volatile(7);
            assert_eq!(libc::msync(map, 8192, libc::MS_SYNC), 0);
            file.write_all_at(&[8], 1).unwrap();
            assert_eq!(bytes.add(1).read_volatile(), 8);
            libc::munmap(map, 8192);
        }
        forget_pages(&file);
        let seen = fs::read(&path).unwrap();
        assert_eq!((seen[0], seen[1], seen[5000]), (1, 8, 7));
    });
}

/// Truncation, appending, holes and allocation.
#[test]
fn sizes_and_holes() {
    on_every_mount(|daemon, _| {
        let path = daemon.path("sparse");
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        file.write_all_at(&[1; 4096], 1 << 20).unwrap();
        file.set_len(4 << 20).unwrap();
        file.sync_all().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 4 << 20);
        let seek = |offset, whence| {
            rustix::fs::seek(
                &file,
                match whence {
                    libc::SEEK_DATA => rustix::fs::SeekFrom::Data(offset),
                    _ => rustix::fs::SeekFrom::Hole(offset),
                },
            )
        };
        assert_eq!(seek(0, libc::SEEK_DATA), Ok(1 << 20));
        assert_eq!(seek(1 << 20, libc::SEEK_HOLE), Ok((1 << 20) + 4096));
        assert_eq!(seek(2 << 20, libc::SEEK_DATA), Err(Errno::NXIO));

        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, mode, 1 << 20, 2048).unwrap();
        let mut byte = [9; 2];
        file.read_exact_at(&mut byte, (1 << 20) + 2047).unwrap();
        assert_eq!(byte, [0, 1]);
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 4 << 20, 4096).unwrap();
        assert_eq!(file.metadata().unwrap().len(), (4 << 20) + 4096);
        rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 8 << 20, 4096).unwrap();
        assert_eq!(file.metadata().unwrap().len(), (4 << 20) + 4096);
        rustix::fs::fallocate(&file, FallocateFlags::ZERO_RANGE, (1 << 20) + 2048, 2048).unwrap();
        assert_eq!(rustix::fs::fallocate(&file, FallocateFlags::COLLAPSE_RANGE, 0, 4096), Err(Errno::OPNOTSUPP));
        assert!(fs::read(&path).unwrap().iter().all(|&byte| byte == 0));

        file.set_len(3).unwrap();
        let mut append = OpenOptions::new().append(true).open(&path).unwrap();
        append.write_all(b"def").unwrap();
        file.seek(SeekFrom::Start(0)).unwrap();
        let mut all = Vec::new();
        file.read_to_end(&mut all).unwrap();
        assert_eq!(all, b"\0\0\0def");
        OpenOptions::new().write(true).truncate(true).open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    });
}

/// A file without a name lives as long as a process has it open, and no longer.
#[test]
fn unlinked_files_live_while_open() {
    on_every_mount(|daemon, _| {
        let path = daemon.path("gone");
        let mut file = OpenOptions::new().read(true).write(true).create_new(true).open(&path).unwrap();
        file.write_all(&[5; 10_000]).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(!path.exists());
        assert_eq!(file.metadata().unwrap().nlink(), 0);
        forget_pages(&file);
        file.write_all_at(b"more", 20_000).unwrap();
        let mut all = Vec::new();
        file.seek(SeekFrom::Start(0)).unwrap();
        file.read_to_end(&mut all).unwrap();
        assert_eq!((all.len(), all[9_999], &all[20_000..]), (20_004, 5, &b"more"[..]));
        let used = |daemon: &Daemon| {
            let stat = rustix::fs::statvfs(daemon.root()).unwrap();
            stat.f_blocks - stat.f_bfree
        };
        assert!(used(daemon) > 0);
        drop(file);
        // FORGET or RELEASE travels by itself.
        for _ in 0..200 {
            if used(daemon) == 0 {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("{} blocks are still in use", used(daemon));
    });
}

/// Attributes are kept, and an unprivileged change of the data takes set-user-id away.
#[test]
fn attributes() {
    on_every_mount(|daemon, _| {
        let path = daemon.path("attributes");
        fs::write(&path, b"#!").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).unwrap();
        std::os::unix::fs::chown(&path, Some(1234), Some(5678)).unwrap();
        let times = fs::FileTimes::new()
            .set_accessed(std::time::UNIX_EPOCH - std::time::Duration::from_nanos(1))
            .set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1 << 33));
        File::options().write(true).open(&path).unwrap().set_times(times).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid()), (1234, 5678));
        assert_eq!((metadata.atime(), metadata.atime_nsec(), metadata.mtime()), (-1, 999_999_999, 1 << 33));
        assert!(metadata.created().is_ok(), "the birth time is there");
        // chown by root keeps the bits off: Linux clears them also then for regular files.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o4777)).unwrap();
        let status =
            std::process::Command::new("/bin/sh").arg("-c").arg("printf x >> \"$0\"").arg(&path).status().unwrap();
        assert!(status.success());
        // Root has CAP_FSETID: the bit stays.
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o4777);
    });
}

/// Extended attributes: values of all sizes, listing, and the errors that programs expect.
#[test]
fn extended_attributes() {
    use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
    on_every_mount(|daemon, _| {
        let path = &daemon.path("xattr");
        fs::write(path, b"").unwrap();
        let long = patterned(20_000, 9);
        setxattr(path, "user.short", b"value", XattrFlags::empty()).unwrap();
        setxattr(path, "user.long", &long, XattrFlags::CREATE).unwrap();
        setxattr(path, "user.empty", b"", XattrFlags::empty()).unwrap();
        assert_eq!(setxattr(path, "user.long", b"", XattrFlags::CREATE), Err(Errno::EXIST));
        assert_eq!(setxattr(path, "user.none", b"", XattrFlags::REPLACE), Err(Errno::NODATA));
        let mut value = vec![0; 65536];
        assert_eq!(getxattr(path, "user.long", &mut value), Ok(20_000));
        assert!(value[..20_000] == long);
        assert_eq!(getxattr(path, "user.empty", &mut value), Ok(0));
        assert_eq!(rustix::fs::getxattr_query(path, "user.short"), Ok(5));
        assert_eq!(getxattr(path, "user.short", &mut value[..4]), Err(Errno::RANGE));
        assert_eq!(getxattr(path, "user.none", &mut value), Err(Errno::NODATA));
        let length = listxattr(path, &mut value).unwrap();
        let mut names: Vec<_> = value[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
        names.sort();
        assert_eq!(names, [&b"user.empty"[..], b"user.long", b"user.short"]);
        removexattr(path, "user.long").unwrap();
        assert_eq!(removexattr(path, "user.long"), Err(Errno::NODATA));
    });
}
