//! Opens that end with an error.

use std::sync::Arc;

use super::*;

/// A file whose open fails is not used any more, also when closing it fails; the first error is the answer. Method: a file that the
/// file system itself has closed before, so that it knows nothing of the handle; and a passthrough, which asks for its owner.
#[test]
fn a_file_that_cannot_be_opened_is_not_used() {
    for (is_known, is_made) in [(false, true), (true, true), (false, false)] {
        let what = format!("known: {is_known}, made: {is_made}");
        let executor = Executor::simulated(1, HostProfile::NONE);
        let (fs, session) = session(&executor, OpenProtocol::Handles);
        let Ok(session) = Rc::try_unwrap(session) else { unreachable!("it has one owner") };
        let device = std::fs::File::open("/dev/null").expect("it is always there");
        let session = session.with_passthrough(Some(Passthrough::new(Arc::new(device.into()))));
        let run = async {
            let (flags, opener) = (OpenFlags::READ_WRITE, Opener { uid: 0, writes: true });
            let (entry, opened) = fs.create(Ino::ROOT, b"file", NEW, flags).await.unwrap();
            let (ino, handle) = (entry.attr.ino, opened.handle.unwrap());
            fs.unlink(Ino::ROOT, b"file").await.unwrap();
            if !is_known {
                fs.release(ino, handle).await.unwrap();
            }
            match is_made {
                true => match session.made((entry, opened), opener, flags).await {
                    Ok(reply) if is_known => session.undo(reply.undo).await,
                    Err(FsError::BadHandle) if !is_known => {}
                    _ => panic!("{what}"),
                },
                false => {
                    let out = open_out(opened, 0);
                    let refused = session.pass(ino, handle, opener, out).await;
                    let answered = session.give_back(ino, opened, refused).await.map(|_| ());
                    assert_eq!(answered, Err(FsError::BadHandle), "{what}");
                    session.forget(ino, 1).await;
                }
            }
            assert!(fs.node(ino).is_none(), "{what}: it is still in use");
        };
        executor.block_on(run).unwrap();
    }
}
