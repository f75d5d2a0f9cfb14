//! Writes past the kernel's page cache.

use seekless::device::Data;
use seekless::testing::WeakFs;

use super::super::super::past_cache::Durable;
use super::*;

/// A write that a program wants to be durable is so when it is answered, where no FSYNC follows: to all files past the page cache, or
/// to those that are opened to append. An error of the sync is that of the write.
#[test]
fn synchronous_writes_past_the_cache_are_durable() {
    for (direct, append, flags, syncs) in [
        (true, false, libc::O_DSYNC, 1),
        (true, false, libc::O_SYNC, 1),
        (true, false, 0, 0),
        (false, true, libc::O_APPEND | libc::O_DSYNC, 1),
        (false, true, libc::O_APPEND | libc::O_SYNC, 1),
        (false, true, libc::O_APPEND, 0),
        // The kernel sends an FSYNC.
        (false, false, libc::O_SYNC, 0),
    ] {
        let what = format!("{direct} {append} {flags:o}");
        let executor = Executor::simulated(1, HostProfile::NONE);
        let options = MemFsOptions { open_protocol: OpenProtocol::Handles, ..MemFsOptions::default() };
        let fs = WeakFs::new(executor.rt(), options);
        let traits = FsTraits { appends_at_end: true, ..fs.traits() };
        let init = Init { major: 7, minor: 45, max_readahead: 0, flags: InitFlags::all() };
        let (negotiated, _) =
            negotiate(&init, &traits, &RequestedFeatures { direct, ..RequestedFeatures::PLAIN }).unwrap();
        let session = Session::new(fs.clone(), negotiated, "me".into());
        let opened = OpenFlags { append, ..OpenFlags::READ_WRITE };
        let create = Operation::Create { name: b"file", new: NEW, flags: opened, exclusive: true };
        let (ino, handle) = ask(&executor, &session, create).unwrap().undo.opened.unwrap();
        let write = |flags: i32| {
            let (data, durable) = (Data::from_slice(b"record"), Durable::of(flags as u32));
            let (handle, mode) = (Some(handle), seekless::fs::WriteMode::default());
            let operation = Operation::Write { handle, offset: 0, data, mode, durable };
            let request = Request { opcode: abi::WRITE, unique: 1, ino, uid: 0, pid: 0, operation };
            executor.block_on(session.handle(request)).unwrap().unwrap()
        };
        assert!(write(flags).body.is_ok(), "{what}");
        assert_eq!(fs.syncs(), syncs, "{what}");
        let left = executor.block_on(fs.cut(fs.position(), 1)).unwrap().unwrap();
        let found = executor.block_on(left.lookup(Ino::ROOT, b"file")).unwrap().unwrap();
        assert_eq!(found.attr.size, if syncs == 1 { 6 } else { 0 }, "{what}: what a power cut leaves");
        fs.end_syncs_with([Err(FsError::NoSpace)]);
        assert_eq!(write(flags).body.is_err(), syncs == 1, "{what}");
    }
}

/// After a write past the cache has failed, the kernel may cut the file to a size that it learned before others appended. That takes
/// nothing away. A program that cuts the file itself succeeds the second time; nothing else is refused.
#[test]
fn a_failed_write_takes_nothing_away() {
    for (append, direct, fails, refused) in
        [(true, false, true, true), (false, true, true, true), (true, false, false, false), (false, false, true, false)]
    {
        let what = format!("{append} {direct} {fails}");
        let executor = Executor::simulated(1, HostProfile::NONE);
        let options = MemFsOptions { open_protocol: OpenProtocol::Handles, ..MemFsOptions::default() };
        let fs = MemFs::with_options(executor.rt(), options);
        let traits = FsTraits { appends_at_end: true, exclusive: false, ..fs.traits_now() };
        let init = Init { major: 7, minor: 45, max_readahead: 0, flags: InitFlags::all() };
        let (negotiated, _) = negotiate(&init, &traits, &RequestedFeatures::PLAIN).unwrap();
        let mut session = Session::new(fs.clone(), negotiated, "me".into());
        session.traits.exclusive = false;
        let flags = OpenFlags { append, direct, ..OpenFlags::READ_WRITE };
        let create = Operation::Create { name: b"file", new: NEW, flags, exclusive: true };
        let (ino, handle) = ask(&executor, &session, create).unwrap().undo.opened.unwrap();
        let handle = Some(handle);
        let answer = |operation| {
            let request = Request { opcode: abi::WRITE, unique: 1, ino, uid: 0, pid: 0, operation };
            executor.block_on(session.handle(request)).unwrap().unwrap().body.is_ok()
        };
        let write = |offset| {
            let data = Data::from_slice(b"record");
            answer(Operation::Write {
                handle,
                offset,
                data,
                mode: seekless::fs::WriteMode::default(),
                durable: Durable::Later,
            })
        };
        let cut =
            |size| answer(Operation::Setattr { handle, changes: SetAttr { size: Some(size), ..SetAttr::default() } });
        let size = || executor.block_on(fs.getattr(ino, None)).unwrap().unwrap().size;
        assert!(write(0) && write(6));
        if fails {
            assert!(!write(u64::MAX), "{what}: beyond the largest file");
            assert!(cut(12), "{what}: nothing is taken away");
            assert!(!write(u64::MAX), "{what}");
        }
        assert_eq!(cut(6), !refused, "{what}");
        assert_eq!(size(), if refused { 12 } else { 6 }, "{what}");
        assert!(cut(6) && size() == 6, "{what}");
    }
}

/// The same where each change is made durable at once, and that fails.
#[test]
fn a_failed_sync_takes_nothing_away() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let options = MemFsOptions { open_protocol: OpenProtocol::Handles, ..MemFsOptions::default() };
    let fs = WeakFs::new(executor.rt(), options);
    let traits = FsTraits { appends_at_end: true, exclusive: false, ..fs.traits() };
    let init = Init { major: 7, minor: 45, max_readahead: 0, flags: InitFlags::all() };
    let (negotiated, _) = negotiate(&init, &traits, &RequestedFeatures::PLAIN).unwrap();
    let mut session = Session::new(fs.clone(), negotiated, "me".into());
    session.traits.exclusive = false;
    let flags = OpenFlags { append: true, ..OpenFlags::READ_WRITE };
    let create = Operation::Create { name: b"file", new: NEW, flags, exclusive: true };
    let (ino, handle) = ask(&executor, &session, create).unwrap().undo.opened.unwrap();
    session.durable_at_once = AtOnce { everything: true, ..AtOnce::default() };
    let answer = |operation| {
        let request = Request { opcode: abi::WRITE, unique: 1, ino, uid: 0, pid: 0, operation };
        executor.block_on(session.handle(request)).unwrap().unwrap().body.is_ok()
    };
    let (handle, mode) = (Some(handle), seekless::fs::WriteMode::default());
    let data = Data::from_slice(b"record");
    fs.end_syncs_with([Err(FsError::NoSpace)]);
    assert!(!answer(Operation::Write { handle, offset: 0, data, mode, durable: Durable::Later }));
    let changes = SetAttr { size: Some(0), ..SetAttr::default() };
    assert!(!answer(Operation::Setattr { handle, changes }), "the cut is refused");
    assert!(answer(Operation::Setattr { handle, changes }), "the second one is a program's");
}
