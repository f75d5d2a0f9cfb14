//! Aim: what a server refuses late, and tells only to the open file that wrote, is never acknowledged: by a sync through another open
//! file, by a sync of all, by an unmount, nor below a layer. Method: a double that tells an error once, to the next sync or close of one
//! open file, as sshfs does.

use std::sync::Arc;

use seekless::layer::codecs::Zstd;
use seekless::layer::log;

use super::*;

const QUOTA: Errno = Errno::DQUOT;

fn refused() -> FsError {
    sys::error(QUOTA)
}

/// A host that tells each open file its own errors.
fn run(body: impl AsyncFnOnce(&Rt, Rc<HostDir>)) {
    let directory = tempfile::tempdir().unwrap();
    let reactor = Reactor::new(ReactorOptions::default()).unwrap();
    let executor: Executor = reactor.executor();
    let rt = executor.rt().clone();
    // With mounts inside, changes are listed on every host.
    let options = HostDirOptions { submounts: true, ..WAYS[0] };
    executor
        .block_on(async {
            let dir = Rc::new(HostDir::open(&rt, &reactor, directory.path(), options).unwrap());
            dir.late.as_ref().unwrap().all_alone.set(true);
            body(&rt, dir).await;
        })
        .unwrap();
}

/// A new file.
async fn create(dir: &HostDir, name: &[u8]) -> (Ino, Handle) {
    let (entry, opened) = dir.create(Ino::ROOT, name, FILE, OpenFlags::READ_WRITE).await.unwrap();
    (entry.attr.ino, opened.handle.unwrap())
}

async fn open(dir: &HostDir, ino: Ino) -> Handle {
    dir.open(ino, OpenFlags::READ_WRITE).await.unwrap().handle.unwrap()
}

async fn write(dir: &HostDir, ino: Ino, handle: Option<Handle>) -> FsResult<()> {
    dir.write(ino, handle, 0, Data::from_slice(b"more"), WriteMode::default()).await
}

/// The server will refuse what has been written through `handle`.
fn refuse(dir: &HostDir, ino: Ino, handle: Handle) {
    dir.opened(ino, handle).unwrap().writes.refused.set(Some(QUOTA));
}

/// All syncs of everything fail from now on, and so does an unmount.
async fn all_syncs_fail(dir: &HostDir) {
    assert_eq!(dir.syncfs().await, Err(refused()));
    assert_eq!(dir.syncfs().await, Err(FsError::Stopped(refused().to_string())));
    assert_eq!(dir.close().await, Err(FsError::Stopped(refused().to_string())));
}

/// A sync through another open file fails, and then one through the file that wrote, each once.
#[test]
fn a_sync_through_another_open_file() {
    run(async |_, dir| {
        let (ino, writer) = create(&dir, b"f").await;
        let other = open(&dir, ino).await;
        for append in [false, true] {
            let mode = WriteMode { append, ..WriteMode::default() };
            dir.write(ino, Some(writer), 0, Data::from_slice(b"more"), mode).await.unwrap();
            refuse(&dir, ino, writer);
            assert_eq!(dir.fsync(ino, Some(other), false).await, Err(refused()), "append: {append}");
            assert_eq!(dir.fsync(ino, Some(writer), true).await, Err(refused()), "append: {append}");
            assert_eq!(dir.fsync(ino, None, true).await, Err(refused()), "append: {append}");
            // A program that opens the file again, and writes again, starts over.
            let again = open(&dir, ino).await;
            write(&dir, ino, Some(again)).await.unwrap();
            for handle in [again, other, writer] {
                assert_eq!(dir.fsync(ino, Some(handle), false).await, Ok(()), "append: {append}");
            }
            dir.release(ino, again).await.unwrap();
        }
        all_syncs_fail(&dir).await;
    });
}

/// Two syncs at once both fail, through the file that wrote and through another.
#[test]
fn two_syncs_at_once() {
    run(async |rt, dir| {
        let (ino, writer) = create(&dir, b"f").await;
        let other = open(&dir, ino).await;
        write(&dir, ino, Some(writer)).await.unwrap();
        refuse(&dir, ino, writer);
        let tasks: Vec<_> = [writer, other]
            .into_iter()
            .map(|handle| {
                let dir = dir.clone();
                rt.spawn(async move { dir.fsync(ino, Some(handle), false).await })
            })
            .collect();
        for task in tasks {
            assert_eq!(task.await, Err(refused()));
        }
    });
}

/// A caller that goes away takes no error with it.
#[test]
fn a_sync_that_is_given_up() {
    run(async |rt, dir| {
        let (ino, writer) = create(&dir, b"f").await;
        write(&dir, ino, Some(writer)).await.unwrap();
        refuse(&dir, ino, writer);
        {
            let mut sync = std::pin::pin!(dir.fsync(ino, Some(writer), false));
            let first = futures_util::future::poll_immediate(sync.as_mut()).await;
            assert_eq!(first, None);
        }
        rt.yield_now().await;
        assert_eq!(dir.fsync(ino, Some(writer), false).await, Err(refused()));
    });
}

/// A sync of all, and an unmount, fail for a file that is open, or was closed.
#[test]
fn a_sync_of_all() {
    for (closes, unmounts) in [(false, false), (false, true), (true, false), (true, true)] {
        run(async |_, dir| {
            let (ino, writer) = create(&dir, b"f").await;
            write(&dir, ino, Some(writer)).await.unwrap();
            refuse(&dir, ino, writer);
            if closes {
                assert_eq!(dir.release(ino, writer).await, Err(refused()));
            }
            match unmounts {
                true => assert_eq!(dir.close().await, Err(refused()), "closed before: {closes}"),
                false => all_syncs_fail(&dir).await,
            }
        });
    }
}

/// What a close reports is the result of the next sync of the file, through a file that was open or is opened later.
#[test]
fn a_close() {
    for opens_later in [false, true] {
        run(async |_, dir| {
            let (ino, writer) = create(&dir, b"f").await;
            let before = open(&dir, ino).await;
            write(&dir, ino, Some(writer)).await.unwrap();
            refuse(&dir, ino, writer);
            assert_eq!(dir.release(ino, writer).await, Err(refused()));
            let other = if opens_later { open(&dir, ino).await } else { before };
            assert_eq!(dir.fsync(ino, Some(other), false).await, Err(refused()), "opened later: {opens_later}");
            assert_eq!(dir.fsync(ino, Some(other), false).await, Ok(()));
            all_syncs_fail(&dir).await;
        });
    }
}

/// An error of a removed file is no matter of a new one that gets its number. Syncs of everything still fail.
#[test]
fn a_number_that_is_given_again() {
    for is_given_again in [false, true] {
        run(async |_, dir| {
            let (ino, writer) = create(&dir, b"f").await;
            write(&dir, ino, Some(writer)).await.unwrap();
            refuse(&dir, ino, writer);
            assert_eq!(dir.release(ino, writer).await, Err(refused()));
            if is_given_again {
                dir.note_made(ino);
            }
            let new = open(&dir, ino).await;
            let synced = dir.fsync(ino, Some(new), false).await;
            assert_eq!(synced, if is_given_again { Ok(()) } else { Err(refused()) });
            dir.release(ino, new).await.unwrap();
            all_syncs_fail(&dir).await;
        });
    }
}

/// A write without a handle, as layers make, fails itself.
#[test]
fn a_write_without_a_handle() {
    run(async |_, dir| {
        let (ino, _) = create(&dir, b"f").await;
        write(&dir, ino, None).await.unwrap();
        dir.late.as_ref().unwrap().refused_next.set(Some(QUOTA));
        assert_eq!(write(&dir, ino, None).await, Err(refused()));
        all_syncs_fail(&dir).await;
    });
}

/// What is synced is no longer listed, nor what is closed: open files do not add up.
#[test]
fn files_that_are_synced_are_not_kept() {
    run(async |_, dir| {
        let late = &dir.late.as_ref().unwrap();
        for number in 0..100_u32 {
            let (ino, writer) = create(&dir, number.to_string().as_bytes()).await;
            write(&dir, ino, Some(writer)).await.unwrap();
            write(&dir, ino, None).await.unwrap();
            match number % 3 {
                0 => dir.fsync(ino, Some(writer), true).await.unwrap(),
                1 => dir.syncfs().await.unwrap(),
                _ => dir.release(ino, writer).await.unwrap(),
            }
            assert_eq!(late.listed(), 0, "file {number}");
        }
        dir.close().await.unwrap();
    });
}

/// Below a layer that stores files encoded: a sync through another open file than the one that wrote, a sync of all and an unmount fail.
#[test]
fn below_a_layer() {
    for how in 0..3 {
        run(async |rt, dir| {
            let lower: Rc<dyn FileSystem> = dir.clone();
            let options = log::Options::new(Arc::new(Zstd::default()));
            let fs = log::stack_on(rt, lower, options).await.unwrap();
            let client = Client::new(fs.clone());
            let file = client.create(b"/f").await.unwrap();
            let other = client.open(b"/f", OpenFlags::READ_WRITE).await.unwrap();
            client.write(file, 0, &[7; 50_000]).await.unwrap();
            // Its handle below has the same number.
            let handle = *dir.handles.borrow().keys().min().unwrap();
            refuse(&dir, file.ino, handle);
            match how {
                0 => assert_eq!(client.fsync(other).await, Err(refused())),
                1 => assert_eq!(fs.syncfs().await, Err(refused())),
                _ => assert_eq!(fs.close().await, Err(refused())),
            }
            assert!(client.fsync(file).await.is_err(), "how: {how}");
        });
    }
}
