//! Aim: access-control lists are the host's, and the model behaves as the host. Method: generated operations, many of
//! them on lists, on both; and the results, seen by the host.

use seekless::fs::acl::{Acl, XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT};
use seekless::testing::{OpMix, Space};

use super::compare::compare;
use super::*;

fn list(text: &str) -> Vec<u8> {
    text.parse::<Acl>().unwrap().to_xattr()
}

/// True where `bench` supports lists; prints a note otherwise.
fn keeps_lists(bench: &Bench) -> bool {
    let keeps = bench.dir.traits().access_lists;
    if !keeps {
        skip(Need::Root, "it needs root, and a temporary directory whose file system has access-control lists");
    }
    keeps
}

/// The kernel is the reference for setting, changing, inheriting and removing lists.
#[test]
fn the_model_does_what_the_host_does() {
    for (number, options) in WAYS.into_iter().enumerate() {
        for seed in 0..4 {
            run(options, async |bench| {
                if keeps_lists(&bench) {
                    let weights = OpMix { data: 5, overlays: false, ..OpMix::CURIOUS.with_access_lists() };
                    compare(bench, seed * 10 + number as u64, 800, Space::small(), weights).await;
                }
            });
        }
    }
}

/// A default list replaces the umask; without one the umask holds. For every creator.
#[test]
fn the_host_decides_about_the_umask() {
    run(WAYS[0], async |bench| {
        if !keeps_lists(&bench) {
            return;
        }
        let new = NewNode { permissions: 0o666, umask: 0o027, uid: 4001, gid: 4002 };
        let made = async |name: &[u8]| {
            let (entry, opened) = bench.dir.create(Ino::ROOT, name, new, OpenFlags::READ_WRITE).await.unwrap();
            bench.dir.release(entry.attr.ino, opened.handle.unwrap()).await.unwrap();
            bench.dir.forget(entry.attr.ino, 1).await;
            let found = bench.client.get_xattr(name, XATTR_ACL_ACCESS).await;
            (entry.attr.permissions, entry.attr.uid, found)
        };
        assert_eq!(made(b"masked").await, (0o640, 4001, Err(FsError::NoAttribute)));
        let default = list("u::rwx,u:7:rwx,g::r-x,m::rwx,o::--x");
        bench.client.set_xattr(b"", XATTR_ACL_DEFAULT, &default).await.unwrap();
        let inherited = list("u::rw-,u:7:rwx,g::r-x,m::rw-,o::---");
        assert_eq!(made(b"inherited").await, (0o660, 4001, Ok(inherited)));
        let directory = bench.dir.mkdir(Ino::ROOT, b"d", NewNode { permissions: 0o2777, ..new }).await.unwrap();
        bench.dir.forget(directory.attr.ino, 1).await;
        assert_eq!(directory.attr.permissions & 0o777, 0o771);
        assert_eq!(bench.client.get_xattr(b"d", XATTR_ACL_DEFAULT).await, Ok(default));
    });
}

/// A value that is not a list, and an inode without lists, are refused as by the model.
#[test]
fn bad_lists_are_refused() {
    run(WAYS[0], async |bench| {
        bench.client.write_file(b"f", b"1").await.unwrap();
        bench.client.symlink(b"f", b"s").await.unwrap();
        let good = list("u::rw-,u:7:r--,g::r--,m::r--,o::---");
        if !keeps_lists(&bench) {
            assert_eq!(bench.client.set_xattr(b"f", XATTR_ACL_ACCESS, &good).await, Err(FsError::Unsupported));
            return;
        }
        let client = &bench.client;
        let bad = client.set_xattr(b"f", XATTR_ACL_ACCESS, &good[..20]).await;
        assert!(matches!(bad, Err(FsError::Invalid(_))), "{bad:?}");
        assert_eq!(client.set_xattr(b"f", XATTR_ACL_DEFAULT, &good).await, Err(FsError::NotPermitted));
        assert_eq!(client.set_xattr(b"s", XATTR_ACL_ACCESS, &good).await, Err(FsError::Unsupported));
        assert_eq!(client.get_xattr(b"s", XATTR_ACL_ACCESS).await, Err(FsError::Unsupported));
        assert_eq!(client.set_xattr(b"f", b"system.other", b"x").await, Err(FsError::Unsupported));
        assert_eq!(client.get_xattr(b"f", XATTR_ACL_ACCESS).await, Err(FsError::NoAttribute));
        assert_eq!(client.remove_xattr(b"f", XATTR_ACL_ACCESS).await, Ok(()));
        client.set_xattr(b"f", XATTR_ACL_ACCESS, &good).await.unwrap();
        assert_eq!(client.list_xattr(b"f").await, Ok(vec![XATTR_ACL_ACCESS.to_vec()]));
    });
}
