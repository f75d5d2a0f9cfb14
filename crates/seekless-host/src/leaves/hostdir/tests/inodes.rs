//! Aim: inodes keep their identity, with few files open, whatever happens to their names. Method: few files allowed,
//! many in use; names changed by the daemon and by others.

use super::*;

impl Bench {
    pub(super) fn count(&self, name: &str) -> u64 {
        self.dir.counters().iter().find(|(other, _)| *other == name).unwrap().1
    }

    pub(super) async fn lookup(&self, parent: Ino, name: &[u8]) -> Ino {
        self.dir.lookup(parent, name).await.unwrap().attr.ino
    }

    pub(super) async fn read_ino(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let pieces = self.dir.read(ino, None, 0, 1000).await?;
        Ok(pieces.iter().flat_map(|piece| piece.to_vec()).collect())
    }
}

/// Hundreds of inodes in use in a deep tree, sixteen open: all of them still work, renamed or not.
#[test]
fn many_inodes_need_few_files() {
    for options in [WAYS[1], WAYS[2]] {
        run(options, async |bench| {
            let (mut held, mut parent) = (Vec::new(), Ino::ROOT);
            for depth in 0..30 {
                let made =
                    bench.dir.mkdir(parent, b"d", NewNode { permissions: 0o755, ..FILE }).await.unwrap().attr.ino;
                for number in 0..10 {
                    let name = format!("f{number}");
                    let entry = bench.dir.mknod(made, name.as_bytes(), NodeKind::Regular, FILE).await.unwrap();
                    let content = format!("{depth} {number}");
                    let data = Data::from_slice(content.as_bytes());
                    bench.dir.write(entry.attr.ino, None, 0, data, WriteMode::default()).await.unwrap();
                    held.push((entry.attr.ino, content.into_bytes(), made, name));
                }
                parent = made;
            }
            assert!(bench.count("inodes_open") <= 40, "{:?}", bench.dir.counters());
            assert!(bench.count("inodes_closed") > 200);
            for (ino, content, ..) in &held {
                assert_eq!(&bench.read_ino(*ino).await.unwrap(), content);
            }
            // Every second one gets a new name, and so do the directories of the upper half.
            for (index, (_, _, directory, name)) in held.iter().enumerate() {
                if index % 2 == 0 {
                    let (from, to) = (name.as_bytes(), [name.as_bytes(), b"x"].concat());
                    let (from, to) =
                        (EntryName { parent: *directory, name: from }, EntryName { parent: *directory, name: &to });
                    bench.dir.rename(from, to, RenameMode::Replace).await.unwrap();
                }
            }
            let host_root = bench.lookup(Ino::ROOT, b"d").await;
            let (from, to) = (EntryName { parent: host_root, name: b"d" }, EntryName { parent: Ino::ROOT, name: b"e" });
            bench.dir.rename(from, to, RenameMode::Replace).await.unwrap();
            bench.dir.drop_caches().await.unwrap();
            for (ino, content, ..) in &held {
                assert_eq!(&bench.read_ino(*ino).await.unwrap(), content);
            }
            // An inode that loses its last name stays, with its contents.
            for (index, (_, _, directory, name)) in held.iter().enumerate() {
                let name = if index % 2 == 0 { format!("{name}x") } else { name.clone() };
                bench.dir.unlink(*directory, name.as_bytes()).await.unwrap();
            }
            bench.dir.drop_caches().await.unwrap();
            for (ino, content, ..) in &held {
                assert_eq!(bench.dir.getattr(*ino, None).await.unwrap().links, 0);
                assert_eq!(&bench.read_ino(*ino).await.unwrap(), content);
            }
            let mut directories: Vec<Ino> = held.iter().map(|(_, _, directory, _)| *directory).collect();
            directories.dedup();
            for (ino, ..) in held {
                bench.dir.forget(ino, 1).await;
            }
            bench.dir.forget(host_root, 1).await;
            for ino in directories {
                bench.dir.forget(ino, 1).await;
            }
        });
    }
}

/// An unused directory is kept as long as a closed file must be found through it.
#[test]
fn closed_files_keep_their_directories() {
    run(WAYS[2], async |bench| {
        bench.client.mkdir(b"a").await.unwrap();
        bench.client.mkdir(b"a/b").await.unwrap();
        bench.client.write_file(b"a/b/f", b"content").await.unwrap();
        let a = bench.lookup(Ino::ROOT, b"a").await;
        let b = bench.lookup(a, b"b").await;
        let f = bench.lookup(b, b"f").await;
        bench.dir.drop_caches().await.unwrap();
        bench.dir.forget(a, 1).await;
        bench.dir.forget(b, 1).await;
        assert_eq!(bench.count("inodes_in_use"), 3);
        assert_eq!(bench.read_ino(f).await.unwrap(), b"content");
        bench.dir.forget(f, 1).await;
    });
}

/// One file has one inode under all its names; a file that reuses a number is not taken for the old one.
#[test]
fn numbers_mean_one_file() {
    for options in WAYS {
        run(options, async |bench| {
            bench.client.write_file(b"f", b"1").await.unwrap();
            bench.client.link(b"f", b"g").await.unwrap();
            let (f, g) = (bench.lookup(Ino::ROOT, b"f").await, bench.lookup(Ino::ROOT, b"g").await);
            assert_eq!(f, g);
            bench.dir.forget(f, 2).await;

            // Another process replaces a file whose inode is in use and closed; ext4 reuses the number.
            let old = bench.dir.lookup(Ino::ROOT, b"f").await.unwrap();
            bench.dir.drop_caches().await.unwrap();
            for _ in 0..10 {
                for name in ["f", "g"] {
                    let _ = std::fs::remove_file(bench.path.join(name));
                }
                std::fs::write(bench.path.join("f"), b"2").unwrap();
            }
            let new = bench.dir.lookup(Ino::ROOT, b"f").await.unwrap();
            if options.open_inodes_max == 1 {
                assert_ne!((old.attr.ino, old.generation), (new.attr.ino, new.generation));
                assert_eq!(bench.dir.getattr(old.attr.ino, None).await, Err(FsError::Stale));
            }
            assert_eq!(bench.read_ino(new.attr.ino).await.unwrap(), b"2");
            bench.dir.forget(old.attr.ino, 1).await;
            bench.dir.forget(new.attr.ino, 1).await;
            assert_eq!(bench.dir.getattr(new.attr.ino, None).await, Err(FsError::Stale), "it is not used");
        });
    }
}

/// An inode renamed by another process is still found by handle; by name it is found under its new name.
#[test]
fn renames_by_others_are_survived() {
    run(WAYS[1], async |bench| {
        bench.client.write_file(b"f", b"1").await.unwrap();
        let f = bench.lookup(Ino::ROOT, b"f").await;
        bench.dir.drop_caches().await.unwrap();
        std::fs::rename(bench.path.join("f"), bench.path.join("g")).unwrap();
        assert_eq!(bench.read_ino(f).await.unwrap(), b"1");
        bench.dir.forget(f, 1).await;
    });
    run(WAYS[2], async |bench| {
        bench.client.write_file(b"f", b"1").await.unwrap();
        let f = bench.lookup(Ino::ROOT, b"f").await;
        bench.dir.drop_caches().await.unwrap();
        std::fs::rename(bench.path.join("f"), bench.path.join("g")).unwrap();
        assert_eq!(bench.read_ino(f).await, Err(FsError::Stale));
        let again = bench.lookup(Ino::ROOT, b"g").await;
        assert_eq!(bench.read_ino(again).await.unwrap(), b"1");
        bench.dir.forget(f, 1).await;
        bench.dir.forget(again, 1).await;
        // One that is open when it is renamed is not closed, since it could not be found again.
        let g = bench.lookup(Ino::ROOT, b"g").await;
        std::fs::rename(bench.path.join("g"), bench.path.join("h")).unwrap();
        bench.dir.drop_caches().await.unwrap();
        assert_eq!(bench.read_ino(g).await.unwrap(), b"1");
        bench.dir.forget(g, 1).await;
    });
}

/// A reopened file keeps its cached data only if it has not been changed; a change that a time stamp could hide counts
/// as one.
#[test]
fn caches_are_kept_for_unchanged_files() {
    run(WAYS[0], async |bench| {
        let host = bench.path.join("f");
        std::fs::write(&host, b"1").unwrap();
        let f = bench.lookup(Ino::ROOT, b"f").await;
        let kept = async || {
            let opened = bench.dir.open(f, OpenFlags::READ).await.unwrap();
            bench.dir.release(f, opened.handle.unwrap()).await.unwrap();
            opened.keep_cache
        };
        kept().await;
        kept().await;
        let settled = std::time::Duration::from_millis(150);
        std::thread::sleep(settled);
        assert_eq!((kept().await, kept().await, kept().await), (false, true, true));
        // A process that is held up for longer looks at a file that was changed a while ago.
        loop {
            let begun = std::time::Instant::now();
            std::fs::write(&host, b"2").unwrap();
            let found = (kept().await, kept().await);
            if begun.elapsed() < settled / 3 {
                assert_eq!(found, (false, false));
                break;
            }
        }
        std::thread::sleep(settled);
        assert_eq!((kept().await, kept().await), (false, true));
        // A change that resets one time changes another.
        let modified = std::fs::metadata(&host).unwrap().modified().unwrap();
        std::fs::write(&host, b"3").unwrap();
        std::fs::File::options().write(true).open(&host).unwrap().set_modified(modified).unwrap();
        std::thread::sleep(settled);
        assert_eq!((kept().await, kept().await), (false, true));
        bench.dir.forget(f, 1).await;
    });
}

/// When the process may not open more files, inodes are closed to make room. Method: this test again, in a process that
/// may open 64.
#[test]
fn running_out_of_files_makes_room() {
    const FEW_FILES: &str = "SEEKLESS_TEST_FEW_FILES";
    if std::env::var_os(FEW_FILES).is_none() {
        let this = "leaves::hostdir::tests::inodes::running_out_of_files_makes_room";
        let program = std::env::current_exe().unwrap();
        let limited = "ulimit -n 64 && exec \"$0\" --exact \"$1\" --nocapture";
        let mut command = std::process::Command::new("sh");
        let output = command.arg("-c").arg(limited).arg(program).arg(this).env(FEW_FILES, "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    for options in WAYS {
        run(HostDirOptions { open_inodes_max: 1000, ..options }, async |bench| {
            let mut held = Vec::new();
            for number in 0..200 {
                let name = format!("f{number}");
                let entry = bench.dir.mknod(Ino::ROOT, name.as_bytes(), NodeKind::Regular, FILE).await.unwrap();
                held.push(entry.attr.ino);
            }
            // Open files of programs cannot be closed: there the limit gives an error.
            let mut opened = Vec::new();
            let refused = loop {
                match bench.dir.open(held[opened.len()], OpenFlags::READ).await {
                    Ok(open) => opened.push(open.handle.unwrap()),
                    Err(error) => break error,
                }
            };
            assert_eq!(refused, FsError::Host(libc::EMFILE));
            assert!(opened.len() > 10, "{}", opened.len());
            for (handle, ino) in opened.into_iter().zip(&held) {
                bench.dir.release(*ino, handle).await.unwrap();
            }
            for ino in held {
                bench.dir.getattr(ino, None).await.unwrap();
                bench.dir.forget(ino, 1).await;
            }
        });
    }
}

/// A new link whose name another program has given to a file of its own in the meantime: that file stays, and the kernel looks again.
#[test]
fn a_link_that_was_replaced_is_left_alone() {
    run_all_ways(async |bench| {
        let file = bench.dir.mknod(Ino::ROOT, b"f", NodeKind::Regular, FILE).await.unwrap().attr.ino;
        std::fs::write(bench.path.join("link"), b"another program's").unwrap();
        let entry = bench.dir.lookup(Ino::ROOT, b"link").await.unwrap();
        assert_eq!(bench.dir.check_link(file, entry, Ino::ROOT, b"link").err(), Some(FsError::Stale));
        assert_eq!(std::fs::read(bench.path.join("link")).unwrap(), b"another program's");
        assert_eq!(bench.count("inodes_in_use"), 1, "its lookup is taken back");
        bench.dir.forget(file, 1).await;
    });
}
