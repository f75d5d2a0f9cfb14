//! What the tests of LFS and of VLFS share, and what needs more than calls.

use std::rc::Rc;

use super::LogFs;
use super::backend::LogBackend;
use crate::fs::client::Client;

/// Bytes of attributes in memory.
pub(in crate::fs) fn attribute_bytes<L: LogBackend>(fs: &LogFs<L>) -> u64 {
    let state = fs.state.borrow();
    state.inodes.values().filter_map(|known| known.xattr.as_ref()).map(|data| data.len() as u64).sum()
}

/// Writes and reads many times as many attributes as may be in memory: `most` bytes.
pub(in crate::fs) async fn attributes_have_a_limit<L: LogBackend>(fs: &Rc<LogFs<L>>, most: u64) {
    const FILES: u32 = 300;
    let client = Client::new(fs.clone());
    let held = || attribute_bytes(fs);
    for file in 0..FILES {
        let name = format!("/f{file}");
        client.write_file(name.as_bytes(), b"").await.unwrap();
        client.set_xattr(name.as_bytes(), b"user.a", &[file as u8; 60_000]).await.unwrap();
    }
    client.sync().await.unwrap();
    assert!(held() <= most, "{} bytes when all is written", held());
    for round in 0..2 {
        for file in 0..FILES {
            let read = client.get_xattr(format!("/f{file}").as_bytes(), b"user.a").await.unwrap();
            assert!(read == [file as u8; 60_000], "round {round}, file {file}");
            assert!(held() <= most, "{} bytes with file {file} of round {round}", held());
        }
    }
}
