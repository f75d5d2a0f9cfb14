//! Aim: nothing leads out of the directory. Method: links, names and renames that try.

use super::*;

/// Links are returned and not followed, whatever they point to; a name is one step, not a path.
#[test]
fn links_and_names_do_not_lead_out() {
    run_all_ways(async |bench| {
        let secret = bench.path.parent().unwrap().join("secret");
        std::fs::create_dir(&secret).unwrap();
        std::fs::write(secret.join("f"), b"secret").unwrap();
        for (name, target) in [("absolute", secret.as_path()), ("relative", Path::new("../secret"))] {
            std::os::unix::fs::symlink(target, bench.path.join(name)).unwrap();
            let attr = bench.client.stat(name.as_bytes()).await.unwrap();
            assert_eq!(attr.kind, FileKind::Symlink);
            assert_eq!(bench.client.read_link(name.as_bytes()).await.unwrap(), target.as_os_str().as_encoded_bytes());
            // It cannot be used as a directory.
            let ino = bench.dir.lookup(Ino::ROOT, name.as_bytes()).await.unwrap().attr.ino;
            assert_eq!(bench.dir.lookup(ino, b"f").await, Err(FsError::NotDirectory));
            assert!(bench.dir.create(ino, b"g", FILE, OpenFlags::READ_WRITE).await.is_err());
            assert!(bench.dir.open(ino, OpenFlags::READ).await.is_err());
            assert!(bench.dir.read(ino, None, 0, 10).await.is_err());
            assert!(bench.dir.setattr(ino, None, SetAttr { size: Some(0), ..SetAttr::default() }).await.is_err());
            bench.dir.forget(ino, 1).await;
            // A new file of that name is refused, and not created at the target.
            let made = bench.dir.create(Ino::ROOT, name.as_bytes(), FILE, OpenFlags::READ_WRITE).await;
            assert_eq!(made.err(), Some(FsError::Exists));
        }
        let root = EntryName { parent: Ino::ROOT, name: b"absolute" };
        for name in [&b""[..], b".", b"..", b"../secret", b"a/b", b"/", b"a\0b"] {
            let place = EntryName { parent: Ino::ROOT, name };
            assert!(matches!(bench.dir.lookup(Ino::ROOT, name).await, Err(FsError::Invalid(_))));
            assert!(matches!(bench.dir.mkdir(Ino::ROOT, name, FILE).await, Err(FsError::Invalid(_))));
            assert!(matches!(bench.dir.unlink(Ino::ROOT, name).await, Err(FsError::Invalid(_))));
            assert!(matches!(bench.dir.rmdir(Ino::ROOT, name).await, Err(FsError::Invalid(_))));
            assert!(matches!(bench.dir.rename(place, root, RenameMode::Replace).await, Err(FsError::Invalid(_))));
            assert!(matches!(bench.dir.rename(root, place, RenameMode::Exchange).await, Err(FsError::Invalid(_))));
            assert!(matches!(bench.dir.symlink(Ino::ROOT, name, b"x", FILE).await, Err(FsError::Invalid(_))));
            let made = bench.dir.mknod(Ino::ROOT, name, NodeKind::Fifo, FILE).await;
            assert!(matches!(made, Err(FsError::Invalid(_))));
        }
        assert_eq!(std::fs::read(secret.join("f")).unwrap(), b"secret");
        assert_eq!(std::fs::read_dir(&secret).unwrap().count(), 1);
    });
}

/// A directory that is replaced by a link to another place, between lookup and use, is still the directory.
#[test]
fn a_swapped_directory_does_not_lead_out() {
    run(WAYS[0], async |bench| {
        let secret = bench.path.parent().unwrap().join("secret");
        std::fs::create_dir(&secret).unwrap();
        std::fs::create_dir(bench.path.join("d")).unwrap();
        let ino = bench.dir.lookup(Ino::ROOT, b"d").await.unwrap().attr.ino;
        std::fs::rename(bench.path.join("d"), bench.path.join("moved")).unwrap();
        std::os::unix::fs::symlink(&secret, bench.path.join("d")).unwrap();
        let (entry, opened) = bench.dir.create(ino, b"f", FILE, OpenFlags::READ_WRITE).await.unwrap();
        bench.dir.release(entry.attr.ino, opened.handle.unwrap()).await.unwrap();
        bench.dir.forget(entry.attr.ino, 1).await;
        bench.dir.forget(ino, 1).await;
        assert!(bench.path.join("moved/f").exists());
        assert_eq!(std::fs::read_dir(&secret).unwrap().count(), 0);
    });
    // Where the directory must be found again by name, it is compared with the expected one.
    run(WAYS[2], async |bench| {
        let secret = bench.path.parent().unwrap().join("secret");
        std::fs::create_dir(&secret).unwrap();
        std::fs::create_dir(bench.path.join("d")).unwrap();
        let ino = bench.dir.lookup(Ino::ROOT, b"d").await.unwrap().attr.ino;
        bench.dir.drop_caches().await.unwrap();
        std::fs::rename(bench.path.join("d"), bench.path.join("moved")).unwrap();
        std::fs::rename(&secret, bench.path.join("d")).unwrap();
        let made = bench.dir.create(ino, b"f", FILE, OpenFlags::READ_WRITE).await;
        assert_eq!(made.err(), Some(FsError::Stale));
        bench.dir.forget(ino, 1).await;
        assert_eq!(std::fs::read_dir(bench.path.join("d")).unwrap().count(), 0);
    });
}

/// The parent of the root is the root, not the host's directory above.
#[test]
fn the_root_has_nothing_above() {
    run(WAYS[0], async |bench| {
        let mut names = Vec::new();
        struct Sink<'a>(&'a mut Vec<(Vec<u8>, Ino)>);
        impl DirSink for Sink<'_> {
            fn add(&mut self, entry: &seekless::fs::DirEntry<'_>) -> bool {
                self.0.push((entry.name.to_vec(), entry.ino));
                true
            }
        }
        bench.dir.readdir(Ino::ROOT, None, 0, false, &mut Sink(&mut names)).await.unwrap();
        assert_eq!(names, [(b".".to_vec(), Ino::ROOT), (b"..".to_vec(), Ino::ROOT)]);
    });
}

/// Paths that are not directories, or not readable, give a helpful error.
#[test]
fn what_cannot_be_opened_says_why() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), b"").unwrap();
    let reactor = Reactor::new(ReactorOptions::default()).unwrap();
    let executor = reactor.executor();
    let error = |path: PathBuf| {
        let opened = HostDir::open(executor.rt(), &reactor, &path, HostDirOptions::default());
        opened.err().unwrap().to_string().replace(&*directory.path().to_string_lossy(), "T")
    };
    assert_eq!(error(directory.path().join("missing")), "there is no directory T/missing; create it first");
    assert_eq!(error(directory.path().join("file")), "T/file is not a directory");
    assert_eq!(error(directory.path().join("file/x")), "T/file/x is not a directory");
    if is_root() {
        use std::os::unix::fs::PermissionsExt;
        let closed = directory.path().join("closed");
        std::fs::create_dir(&closed).unwrap();
        std::fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        on_own_thread(move || {
            become_user(65534, 65534);
            let reactor = Reactor::new(ReactorOptions::default()).unwrap();
            let executor = reactor.executor();
            let opened = HostDir::open(executor.rt(), &reactor, &closed, HostDirOptions::default());
            let text = opened.err().unwrap().to_string();
            assert!(text.ends_with("/closed may not be read by this user"), "{text}");
        });
    }
}

/// Hundreds of inodes in use on a file system mounted inside need few open files, too, though the root's handles do not reach them:
/// all of them still work, renamed or not, and deleted.
async fn many_inside(bench: Bench) {
    let open_files = || std::fs::read_dir("/proc/thread-self/fd").unwrap().count();
    let sub = bench.lookup(Ino::ROOT, b"sub").await;
    let deep = bench.dir.mkdir(sub, b"deep", NewNode { permissions: 0o755, ..FILE }).await.unwrap().attr.ino;
    let mut held = Vec::new();
    for number in 0..500 {
        let parent = if number % 2 == 0 { sub } else { deep };
        let name = format!("many{number}");
        let entry = bench.dir.mknod(parent, name.as_bytes(), NodeKind::Regular, FILE).await.unwrap();
        let data = Data::from_slice(name.as_bytes());
        bench.dir.write(entry.attr.ino, None, 0, data, WriteMode::default()).await.unwrap();
        held.push((entry.attr.ino, parent, name));
    }
    assert!(open_files() <= 100, "{} files are open", open_files());
    assert!(bench.count("inodes_open") <= 40, "{:?}", bench.dir.counters());
    let check = async || {
        for (ino, _, name) in &held {
            assert_eq!(bench.read_ino(*ino).await.unwrap(), name.as_bytes());
        }
    };
    check().await;
    let (from, to) = (EntryName { parent: sub, name: b"deep" }, EntryName { parent: sub, name: b"deeper" });
    bench.dir.rename(from, to, RenameMode::Replace).await.unwrap();
    bench.dir.drop_caches().await.unwrap();
    check().await;
    for (_, parent, name) in &held[..20] {
        bench.dir.unlink(*parent, name.as_bytes()).await.unwrap();
    }
    bench.dir.drop_caches().await.unwrap();
    check().await;
    for (_, parent, name) in &held[20..] {
        bench.dir.unlink(*parent, name.as_bytes()).await.unwrap();
    }
    bench.dir.rmdir(sub, b"deeper").await.unwrap();
    for (ino, ..) in held {
        bench.dir.forget(ino, 1).await;
    }
    for ino in [deep, sub] {
        bench.dir.forget(ino, 1).await;
    }
}

/// File systems mounted inside are not entered unless requested. Method: a private mount namespace; as root, which can
/// hide them, and as a user, who cannot and gets an error.
#[test]
fn submounts_are_left_out() {
    if !is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("root");
    std::fs::create_dir_all(path.join("sub")).unwrap();
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::write(path.join("sub/covered"), b"").unwrap();
    let shared = path.clone();
    on_own_thread(move || {
        let path = shared;
        // SAFETY: the call changes the mounts and the working directory of this thread.
        assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNS | libc::CLONE_FS) }, 0);
        let private = rustix::mount::MountPropagationFlags::PRIVATE | rustix::mount::MountPropagationFlags::REC;
        rustix::mount::mount_change("/", private).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", path.join("sub"), "tmpfs", flags, Some(c"mode=777")).unwrap();
        std::fs::write(path.join("sub/inside"), b"").unwrap();

        run_in(path.clone(), HostDirOptions::default(), async |bench| {
            assert!(bench.client.stat(b"sub/covered").await.is_ok(), "what is mounted there is not there");
            assert_eq!(bench.client.stat(b"sub/inside").await, Err(FsError::NotFound));
        });

        run_in(path.clone(), HostDirOptions { submounts: true, ..HostDirOptions::default() }, async |bench| {
            let (inside, outside) =
                (bench.client.stat(b"sub/inside").await.unwrap(), bench.client.stat(b"").await.unwrap());
            assert!(inside.ino.0 >> 48 == 1 && outside.ino == Ino::ROOT, "{:?}", inside.ino);
            let listed = bench.client.read_dir(b"").await.unwrap();
            assert_eq!(listed.len(), 1);
            bench.client.write_file(b"f", b"1").await.unwrap();
            let across = bench.client.rename(b"f", b"sub/f", RenameMode::Replace).await;
            assert_eq!(across, Err(FsError::Host(libc::EXDEV)));
            assert_eq!(bench.client.link(b"f", b"sub/f").await, Err(FsError::Host(libc::EXDEV)));
            bench.client.write_file(b"sub/g", b"2").await.unwrap();
            bench.dir.drop_caches().await.unwrap();
            assert_eq!(bench.client.read_file(b"sub/g").await.unwrap(), b"2");
            bench.client.sync().await.unwrap();
            bench.client.unlink(b"f").await.unwrap();
        });

        let few = HostDirOptions { open_inodes_max: 16, submounts: true, ..HostDirOptions::default() };
        run_in(path.clone(), few, many_inside);

        become_user(65534, 65534);
        run_in(path, HostDirOptions::default(), async |bench| {
            assert_eq!(bench.client.stat(b"sub").await, Err(FsError::Host(libc::EXDEV)));
            let names: Vec<_> = bench.client.read_dir(b"").await.unwrap().into_iter().map(|entry| entry.name).collect();
            assert_eq!(names, [b"sub".to_vec()]);
            let mut plus = entries_with_attributes(&bench).await;
            assert_eq!(plus.pop(), Some((b"sub".to_vec(), false)), "listed, without attributes");
        });
    });
}

/// Names of the root, each with whether it came with attributes.
async fn entries_with_attributes(bench: &Bench) -> Vec<(Vec<u8>, bool)> {
    struct Sink(Vec<(Vec<u8>, bool, Ino)>);
    impl DirSink for Sink {
        fn add(&mut self, entry: &seekless::fs::DirEntry<'_>) -> bool {
            self.0.push((entry.name.to_vec(), entry.entry.is_some(), entry.ino));
            true
        }
    }
    let mut sink = Sink(Vec::new());
    bench.dir.readdir(Ino::ROOT, None, 0, true, &mut sink).await.unwrap();
    for (_, has_entry, ino) in &sink.0 {
        if *has_entry {
            bench.dir.forget(*ino, 1).await;
        }
    }
    sink.0.into_iter().map(|(name, has_entry, _)| (name, has_entry)).collect()
}
