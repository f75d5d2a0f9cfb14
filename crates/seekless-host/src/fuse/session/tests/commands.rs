//! Extended attributes that are commands to the daemon.

use super::*;
use crate::fuse::names::{DROP_CACHES_ATTRIBUTE, SYNC_ATTRIBUTE};

/// Only root and the daemon's user empty the caches, by reading or by setting the attribute; any user may sync.
#[test]
fn caches_are_emptied_for_root_and_the_user_of_the_daemon() {
    let own = rustix::process::geteuid().as_raw();
    for (uid, name, is_allowed) in [
        (0, DROP_CACHES_ATTRIBUTE, true),
        (own, DROP_CACHES_ATTRIBUTE, true),
        (own + 1000, DROP_CACHES_ATTRIBUTE, false),
        (own + 1000, SYNC_ATTRIBUTE, true),
    ] {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let (_, session) = session(&executor, OpenProtocol::Handles);
        let set = Operation::Setxattr { name, value: b"1", mode: XattrMode::Set, kill_set_group_id: false };
        for (operation, done) in [(Operation::Getxattr { name, bytes: 1000 }, &b"done"[..]), (set, b"")] {
            let request = Request { opcode: 0, unique: 1, ino: Ino::ROOT, uid, pid: 0, operation };
            let answer = executor.block_on(session.handle(request)).unwrap().unwrap().body;
            let answer = answer.map(|body| if let Body::Bytes(bytes) = body { bytes } else { unreachable!("no data") });
            let expected = if is_allowed { Ok(done.to_vec()) } else { Err(libc::EPERM) };
            assert_eq!(answer, expected, "user {uid}, {}", String::from_utf8_lossy(name));
        }
    }
}
