//! Aim: new files belong to the user who asked for them, with the requested permissions. Method: as root, for another
//! user, in plain and set-group-id directories; then as that user.

use super::*;

const ALICE: NewNode = NewNode { permissions: 0o640, umask: 0, uid: 4001, gid: 4002 };

/// Every call that creates, seen from the host.
#[test]
fn new_files_belong_to_the_caller() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    if !is_root() {
        return;
    }
    run(WAYS[0], async |bench| {
        assert!(bench.dir.keeps_owners());
        bench.client.mkdir(b"plain").await.unwrap();
        bench.client.mkdir(b"group").await.unwrap();
        let changes = SetAttr { permissions: Some(0o2775), gid: Some(4003), ..SetAttr::default() };
        bench.client.setattr(b"group", changes).await.unwrap();
        for (directory, gid) in [("plain", 4002), ("group", 4003)] {
            let parent = bench.dir.lookup(Ino::ROOT, directory.as_bytes()).await.unwrap().attr.ino;
            let new = NewNode { permissions: 0o4771, ..ALICE };
            let mut made = Vec::new();
            let (entry, opened) = bench.dir.create(parent, b"file", new, OpenFlags::READ_WRITE).await.unwrap();
            bench.dir.release(entry.attr.ino, opened.handle.unwrap()).await.unwrap();
            made.push(entry);
            made.push(bench.dir.mkdir(parent, b"directory", NewNode { permissions: 0o777, ..ALICE }).await.unwrap());
            made.push(bench.dir.symlink(parent, b"link", b"target", ALICE).await.unwrap());
            made.push(bench.dir.mknod(parent, b"fifo", NodeKind::Fifo, ALICE).await.unwrap());
            let device = NodeKind::CharDevice { device: 0x103 };
            made.push(bench.dir.mknod(parent, b"null", device, ALICE).await.unwrap());
            for entry in made {
                assert_eq!((entry.attr.uid, entry.attr.gid), (4001, gid), "{entry:?} in {directory}");
                bench.dir.forget(entry.attr.ino, 1).await;
            }
            bench.dir.forget(parent, 1).await;
            let host = |name: &str| std::fs::symlink_metadata(bench.path.join(directory).join(name)).unwrap();
            assert_eq!(host("file").permissions().mode() & 0o7777, 0o4771, "whatever the umask of this process");
            assert_eq!(host("fifo").permissions().mode() & 0o7777, 0o640);
            let inherited = if directory == "group" { 0o2000 } else { 0 };
            assert_eq!(host("directory").permissions().mode() & 0o7777, 0o777 | inherited);
            assert_eq!((host("null").rdev(), host("link").uid()), (rustix::fs::makedev(1, 3), 4001));
        }
        // Afterwards the thread has its own credentials again.
        std::fs::write(bench.path.join("mine"), b"").unwrap();
        assert_eq!(std::fs::metadata(bench.path.join("mine")).unwrap().uid(), 0);
        let nobody = NewNode { uid: u32::MAX, ..ALICE };
        let made = bench.dir.mkdir(Ino::ROOT, b"nobody", nobody).await;
        assert_eq!(made.err(), Some(FsError::Host(libc::EINVAL)));
        std::fs::write(bench.path.join("mine2"), b"").unwrap();
        assert_eq!(std::fs::metadata(bench.path.join("mine2")).unwrap().uid(), 0);
    });
}

/// An ordinary user's daemon creates its own files, keeps inodes by name, and gives the model's answers in what it may
/// do.
#[test]
fn an_ordinary_user_can_serve_a_directory() {
    use std::os::unix::fs::MetadataExt;
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("root");
    std::fs::create_dir(&path).unwrap();
    std::os::unix::fs::chown(&path, Some(4001), Some(4002)).unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    on_own_thread(move || {
        become_user(4001, 4002);
        let options = HostDirOptions { open_inodes_max: 1, ..HostDirOptions::default() };
        run_in(path, options, async |bench| {
            assert!(!bench.dir.keeps_owners());
            let mut held = Vec::new();
            for number in 0..100 {
                let name = format!("f{number}");
                let new = NewNode { uid: 0, gid: 0, umask: 0, permissions: 0o600 };
                let entry = bench.dir.mknod(Ino::ROOT, name.as_bytes(), NodeKind::Regular, new).await.unwrap();
                assert_eq!((entry.attr.uid, entry.attr.gid), (4001, 4002));
                held.push((entry.attr.ino, name));
            }
            bench.client.set_xattr(b"f1", b"user.x", b"1").await.unwrap();
            assert_eq!(bench.client.get_xattr(b"f1", b"user.x").await.unwrap(), b"1");
            let chown = SetAttr { uid: Some(1), ..SetAttr::default() };
            assert_eq!(bench.client.setattr(b"f1", chown).await, Err(FsError::NotPermitted));
            // A file is written through the handle of its creation, whatever its permissions.
            let new = NewNode { permissions: 0o444, ..FILE };
            let (entry, opened) = bench.dir.create(Ino::ROOT, b"r", new, OpenFlags::READ_WRITE).await.unwrap();
            let data = Data::from_slice(b"written");
            bench.dir.write(entry.attr.ino, opened.handle, 0, data.clone(), WriteMode::default()).await.unwrap();
            bench.dir.fsync(entry.attr.ino, None, false).await.unwrap();
            let refused = bench.dir.write(entry.attr.ino, None, 0, data, WriteMode::default()).await;
            assert_eq!(refused, Err(FsError::Host(libc::EACCES)));
            bench.dir.release(entry.attr.ino, opened.handle.unwrap()).await.unwrap();
            bench.dir.forget(entry.attr.ino, 1).await;
            bench.client.link(b"f1", b"g").await.unwrap();
            bench.client.sync().await.unwrap();
            for (ino, name) in held {
                bench.dir.unlink(Ino::ROOT, name.as_bytes()).await.unwrap();
                assert!(bench.dir.getattr(ino, None).await.is_ok());
                bench.dir.forget(ino, 1).await;
            }
            assert_eq!(std::fs::metadata(bench.path.join("g")).unwrap().uid(), 4001);
        });
    });
}
