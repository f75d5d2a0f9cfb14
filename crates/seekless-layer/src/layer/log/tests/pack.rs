//! Aim: packing and unpacking change only the space that files take. Method: a tree with files of every kind, packed,
//! read through the layer, unpacked, and compared with what it was; and the same, interrupted everywhere.

use super::*;
use crate::fs::acl::{Acl, XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT};
use crate::fs::client::Client;
use crate::fs::{SetAttr, SetTime};
use crate::layer::log::pack::{Direction, convert};
use crate::testing::Tree;
use crate::units::WallTime;

fn text(bytes: usize) -> Vec<u8> {
    b"the same again and again; ".iter().copied().cycle().take(bytes).collect()
}

async fn make_tree(fs: Fs) {
    let client = Client::new(fs);
    client.mkdir(b"/d").await.unwrap();
    client.write_file(b"/text", &text(100_000)).await.unwrap();
    client.write_file(b"/d/empty", b"").await.unwrap();
    client.write_file(b"/d/short", b"x").await.unwrap();
    client.write_file(b"/d/twice", &text(50_000)).await.unwrap();
    client.link(b"/d/twice", b"/again").await.unwrap();
    client.symlink(b"/text", b"/link").await.unwrap();
    let sparse = client.create(b"/sparse").await.unwrap();
    client.write(sparse, 1 << 20, &text(9_000)).await.unwrap();
    client.close(sparse).await.unwrap();
    client.set_xattr(b"/text", b"user.a", b"value").await.unwrap();
    let when = WallTime { seconds: 1_000_000, nanos: 5 };
    let attributes =
        SetAttr { permissions: Some(0o4751), uid: Some(7), mtime: Some(SetTime::At(when)), ..SetAttr::default() };
    client.setattr(b"/text", attributes).await.unwrap();
    // New files would inherit a list that these files do not have.
    let list = |text: &str| text.parse::<Acl>().unwrap().to_xattr();
    client.set_xattr(b"/", XATTR_ACL_DEFAULT, &list("u::rwx,u:8:rwx,g::---,m::rwx,o::---")).await.unwrap();
    client.set_xattr(b"/text", XATTR_ACL_ACCESS, &list("u::rwx,u:9:r--,g::r-x,m::r-x,o::--x")).await.unwrap();
}

#[test]
fn packing_changes_nothing_but_space() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        make_tree(lower.clone()).await;
        let before = Tree::of(lower.clone()).await.unwrap();
        let mtime = Client::new(lower.clone()).stat(b"/text").await.unwrap().mtime;
        let packed = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
        assert_eq!((packed.files_seen, packed.files_converted, packed.files_done_before), (6, 2, 1), "{packed:?}");
        assert!(packed.bytes_after * 10 < packed.bytes_before, "{packed:?}");
        assert_eq!(packed.left.len(), 3, "two names of one file, and a short one: {packed:?}");
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        assert_eq!(Tree::of(fs.clone()).await.unwrap().differences(&before), Vec::<String>::new());
        assert_eq!(Client::new(fs.clone()).stat(b"/text").await.unwrap().mtime, mtime);
        fs.close().await.unwrap();
        let again = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
        assert_eq!(again.files_converted, 0);
        let unpacked = convert(&rt, lower.clone(), zstd(), Direction::Unpack, &|_, _| {}).await.unwrap();
        assert_eq!(unpacked.files_converted, 2, "{unpacked:?}");
        assert_eq!(Tree::of(lower.clone()).await.unwrap().differences(&before), Vec::<String>::new());
        assert_eq!(lower.leaks(), Default::default());
    });
}

/// Power cuts everywhere: each file is whole, in one form or the other, and starting again finishes the work.
#[test]
fn packing_can_be_interrupted() {
    use crate::testing::{MemFsOptions, WeakFs};
    simulate(1, async |rt| {
        let lower = WeakFs::new(&rt, MemFsOptions::default());
        make_tree(lower.clone()).await;
        crate::fs::FileSystem::syncfs(&*lower).await.unwrap();
        let start = lower.position();
        let before = Tree::of(lower.clone()).await.unwrap();
        convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
        for position in (start..=lower.position()).rev().step_by(2) {
            for state in 0..3 {
                let left = lower.cut(position, state).await.unwrap();
                convert(&rt, left.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
                let fs = stack_on(&rt, left.clone(), zstd()).await.unwrap();
                let differences = Tree::of(fs).await.unwrap().differences(&before);
                assert_eq!(differences, Vec::<String>::new(), "cut at {position}, state {state}");
            }
        }
    });
}
