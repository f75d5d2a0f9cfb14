//! Aim: the needs of overlays: renames that leave a whiteout, and files that have no name yet. Method: small programs
//! over a device in memory, with the answers of ext4 to the same calls, each followed by a remount and a full check.

use super::*;
use crate::device::Data;
use crate::fs::*;
use crate::units::{Ino, MIB};

fn whiteout(replace: bool) -> RenameMode {
    RenameMode::Whiteout { replace, uid: 3, gid: 4 }
}

async fn assert_whiteout(client: &Client, path: &[u8], gid: u32) {
    let Attr { kind, device, permissions, links, uid, gid: found, size, .. } = client.stat(path).await.unwrap();
    let shown = (kind, device, permissions, links, uid, found, size);
    assert_eq!(shown, (FileKind::CharDevice, 0, 0, 1, 3, gid, 0), "{}", String::from_utf8_lossy(path));
}

pub fn renames_leave_whiteouts(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 24 * MIB).await;
        let links = async |client: &Client, path: &str| client.stat(path.as_bytes()).await.unwrap().links;
        session(&rt, subject, &device, async |client| {
            for path in ["/a", "/b", "/a/d", "/a/e", "/b/full", "/b/full/x", "/b/empty"] {
                client.mkdir(path.as_bytes()).await.unwrap();
            }
            let group = SetAttr { gid: Some(7), permissions: Some(0o755 | SET_GROUP_ID), ..SetAttr::default() };
            client.setattr(b"/a", group).await.unwrap();
            for path in ["/a/f", "/a/g", "/b/old"] {
                client.write_file(path.as_bytes(), path.as_bytes()).await.unwrap();
            }
            client.link(b"/a/g", b"/a/twin").await.unwrap();
            client.rename(b"/a/f", b"/b/f", whiteout(true)).await.unwrap();
            client.rename(b"/a/g", b"/b/old", whiteout(true)).await.unwrap();
            assert_eq!(client.read_file(b"/b/old").await.unwrap(), b"/a/g");
            assert_eq!(links(client, "/b/old").await, 2);
            // A directory is moved away, and the whiteout in its place is not a directory.
            assert_eq!((links(client, "/a").await, links(client, "/b").await), (4, 4));
            client.rename(b"/a/d", b"/b/d", whiteout(false)).await.unwrap();
            client.rename(b"/a/e", b"/b/empty", whiteout(true)).await.unwrap();
            assert_eq!((links(client, "/a").await, links(client, "/b").await), (2, 5));
            client.rename(b"/b/d", b"/b/moved", whiteout(true)).await.unwrap();
            client.rename(b"/b/moved", b"/b/d", RenameMode::Exchange).await.unwrap();
            for path in ["/a/f", "/a/g", "/a/d", "/a/e"] {
                assert_whiteout(client, path.as_bytes(), 7).await;
            }
            assert_whiteout(client, b"/b/moved", 4).await;

            let refused = [
                ("/b/f", "/b/old", false, FsError::Exists),
                ("/b/f", "/b/full", true, FsError::IsDirectory),
                ("/b/d", "/b/full", true, FsError::NotEmpty),
                ("/b/d", "/b/f", true, FsError::NotDirectory),
                ("/b/full", "/b/full/x/y", true, FsError::Loop),
                ("/b/none", "/b/f", true, FsError::NotFound),
                ("/b/twin", "/b/twin", false, FsError::NotFound),
            ];
            for (from, to, replace, error) in refused {
                assert_eq!(
                    client.rename(from.as_bytes(), to.as_bytes(), whiteout(replace)).await,
                    Err(error),
                    "{from}"
                );
            }
            // Two names of one file: nothing happens.
            client.rename(b"/a/twin", b"/b/old", whiteout(true)).await.unwrap();
            assert_eq!(links(client, "/a/twin").await, 2);
            // A whiteout is a file like any other.
            client.rename(b"/a/f", b"/a/g", RenameMode::Replace).await.unwrap();
            client.rename(b"/a/d", b"/a/h", whiteout(true)).await.unwrap();
            client.unlink(b"/a/d").await.unwrap();
        })
        .await;
        session(&rt, subject, &device, async |client| {
            for path in ["/a/g", "/a/h", "/a/e"] {
                assert_whiteout(client, path.as_bytes(), 7).await;
            }
            assert_eq!(client.read_file(b"/b/f").await.unwrap(), b"/a/f");
            let mut names: Vec<_> = client.read_dir(b"/a").await.unwrap().into_iter().map(|entry| entry.name).collect();
            names.sort();
            assert_eq!(names, [&b"e"[..], b"g", b"h", b"twin"]);
        })
        .await;
    });
}

pub fn files_without_names(subject: &dyn FsUnderTest) {
    const NEW: NewNode = NewNode { permissions: 0o666, umask: 0o027, uid: 3, gid: 4 };
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 32 * MIB).await;
        let big: Vec<u8> = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
        session(&rt, subject, &device, async |client| {
            client.mkdir(b"/d").await.unwrap();
            let group = SetAttr { gid: Some(7), permissions: Some(0o755 | SET_GROUP_ID), ..SetAttr::default() };
            let dir = client.setattr(b"/d", group).await.unwrap();
            let fs = client.fs();
            let make = async |linkable| {
                let (entry, opened) = fs.tmpfile(dir.ino, NEW, OpenFlags::READ_WRITE, linkable).await.unwrap();
                assert_eq!(opened.handle, None);
                entry.attr
            };
            let write = async |ino, bytes: &[u8]| {
                fs.write(ino, None, 0, Data::from_slice(bytes), WriteMode::default()).await.unwrap();
            };
            fs.syncfs().await.unwrap();
            let before = fs.statfs().await.unwrap();
            let Attr { ino, kind, permissions, links, uid, gid, size, .. } = make(true).await;
            assert_eq!((kind, permissions, links, uid, gid, size), (FileKind::Regular, 0o640, 0, 3, 7, 0));
            assert_eq!(client.stat(b"/d").await.unwrap(), dir, "the directory has not changed");
            assert_eq!(client.read_dir(b"/d").await.unwrap(), []);
            // It gets its first name during the truncation, which must not affect later writes.
            write(ino, &big).await;
            fs.fsync(ino, None, false).await.unwrap();
            fs.setattr(ino, None, SetAttr { size: Some(5), ..SetAttr::default() }).await.unwrap();
            assert_eq!(fs.link(ino, Ino::ROOT, b"d").await, Err(FsError::Exists));
            assert_eq!(fs.link(ino, dir.ino, b"t").await.unwrap().attr.links, 1);
            write(ino, &big).await;
            fs.forget(ino, 2).await;
            // Once it has lost all its names it is like any other, even while it is in use.
            let other = make(true).await.ino;
            for name in [&b"x"[..], b"y"] {
                fs.link(other, dir.ino, name).await.unwrap();
            }
            client.unlink(b"/d/x").await.unwrap();
            client.unlink(b"/d/y").await.unwrap();
            assert_eq!(fs.link(other, dir.ino, b"z").await, Err(FsError::NotFound));
            fs.forget(other, 3).await;
            let exclusive = make(false).await.ino;
            assert_eq!(fs.link(exclusive, dir.ino, b"z").await, Err(FsError::NotFound));
            assert_eq!(fs.getattr(exclusive, None).await.unwrap().links, 0);
            fs.forget(exclusive, 1).await;
            // An unused inode is freed, with all that it held.
            client.unlink(b"/d/t").await.unwrap();
            for _ in 0..3 {
                let ino = make(true).await.ino;
                write(ino, &big).await;
                fs.fsync(ino, None, false).await.unwrap();
                fs.forget(ino, 1).await;
            }
            fs.syncfs().await.unwrap();
            let after = fs.statfs().await.unwrap();
            assert_eq!(after.inodes_free, before.inodes_free);
            assert!(after.blocks_free + 40 > before.blocks_free, "{before:?} {after:?}");
            assert_eq!(fs.getattr(ino, None).await, Err(FsError::Stale));
            // Some that are in use when the volume is closed, with a name and without.
            let kept = make(true).await.ino;
            write(kept, &big).await;
            fs.link(kept, dir.ino, b"kept").await.unwrap();
            write(make(true).await.ino, &big).await;
            assert_eq!(fs.tmpfile(kept, NEW, OpenFlags::READ_WRITE, true).await.err(), Some(FsError::NotDirectory));
            client.mkdir(b"/gone").await.unwrap();
            let gone = client.resolve(b"/gone").await.unwrap();
            client.rmdir(b"/gone").await.unwrap();
            assert_eq!(fs.tmpfile(gone, NEW, OpenFlags::READ_WRITE, true).await.err(), Some(FsError::NotFound));
            client.forget(gone).await;
        })
        .await;
        session(&rt, subject, &device, async |client| {
            assert!(client.read_file(b"/d/kept").await.unwrap() == big);
            let Attr { links, uid, gid, permissions, .. } = client.stat(b"/d/kept").await.unwrap();
            assert_eq!((links, uid, gid, permissions), (1, 3, 7, 0o640));
            assert_eq!(client.read_dir(b"/d").await.unwrap().len(), 1);
        })
        .await;
    });
}

/// A file without a name inherits the directory's list, as one with a name does; so does a whiteout, whose permissions
/// leave nothing of it.
pub fn lists_are_inherited_without_names(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 9 * MIB).await;
        session(&rt, subject, &device, async |client| {
            let list = |text: &str| text.parse::<acl::Acl>().unwrap().to_xattr();
            client.mkdir(b"/d").await.unwrap();
            client.write_file(b"/d/f", b"x").await.unwrap();
            client
                .set_xattr(b"/d", acl::XATTR_ACL_DEFAULT, &list("u::rwx,u:8:rwx,g::---,m::rwx,o::r--"))
                .await
                .unwrap();
            let dir = client.stat(b"/d").await.unwrap().ino;
            let new = NewNode { permissions: 0o640, umask: 0o077, uid: 3, gid: 4 };
            let (entry, _) = client.fs().tmpfile(dir, new, OpenFlags::READ_WRITE, true).await.unwrap();
            client.fs().link(entry.attr.ino, dir, b"t").await.unwrap();
            client.fs().forget(entry.attr.ino, 2).await;
            assert_eq!(client.stat(b"/d/t").await.unwrap().permissions, 0o640);
            let found = client.get_xattr(b"/d/t", acl::XATTR_ACL_ACCESS).await;
            assert_eq!(found, Ok(list("u::rw-,u:8:rwx,g::---,m::r--,o::---")));
            client.rename(b"/d/f", b"/g", whiteout(true)).await.unwrap();
            assert_whiteout(client, b"/d/f", 4).await;
            let found = client.get_xattr(b"/d/f", acl::XATTR_ACL_ACCESS).await;
            assert_eq!(found, Ok(list("u::---,u:8:rwx,g::---,m::---,o::---")));
        })
        .await;
    });
}

/// Names outside the namespaces are refused, and known ones are accepted, including those of overlayfs.
pub fn attribute_names_are_checked(subject: &dyn FsUnderTest) {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, subject, 9 * MIB).await;
        session(&rt, subject, &device, async |client| {
            client.mkdir(b"/d").await.unwrap();
            for name in ["user.a", "trusted.overlay.opaque", "user.overlay.opaque", "security.selinux"] {
                client.set_xattr(b"/d", name.as_bytes(), b"y").await.unwrap();
                assert_eq!(client.get_xattr(b"/d", name.as_bytes()).await, Ok(b"y".to_vec()));
            }
            for name in ["a", "other.a", "system.other"] {
                assert_eq!(client.set_xattr(b"/d", name.as_bytes(), b"y").await, Err(FsError::Unsupported), "{name}");
                assert_eq!(client.get_xattr(b"/d", name.as_bytes()).await, Err(FsError::Unsupported), "{name}");
                assert_eq!(client.remove_xattr(b"/d", name.as_bytes()).await, Err(FsError::Unsupported), "{name}");
            }
            assert!(matches!(client.set_xattr(b"/d", b"user.", b"y").await, Err(FsError::Invalid(_))));
            assert_eq!(client.list_xattr(b"/d").await.unwrap().len(), 4);
        })
        .await;
    });
}
