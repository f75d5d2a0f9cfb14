//! Aim: other systems read what is written here, and what they wrote is read here. Method: the tools of other systems,
//! where they are installed (Debian: makefs, sleuthkit, grub-common); a test that lacks one says so and is skipped.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::*;
use crate::device::{Data, WriteFlags};
use crate::rng::Rng;

/// The tool, if it is installed.
///
/// # Panics
/// When it is not, and `SEEKLESS_REQUIRE` asks for `ufs-tools`.
fn tool(name: &str) -> Option<PathBuf> {
    let dirs = ["/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/usr/local/sbin"];
    let found = dirs.iter().map(|dir| Path::new(dir).join(name)).find(|path| path.exists());
    if found.is_none() {
        #[allow(clippy::disallowed_methods)]
        let wanted = std::env::var("SEEKLESS_REQUIRE").unwrap_or_default();
        let demanded = wanted.split(',').any(|word| matches!(word.trim(), "ufs-tools" | "all"));
        assert!(!demanded, "{name} is not installed, and SEEKLESS_REQUIRE={wanted} demands it");
        println!("skipped (ufs-tools): {name} is not installed");
    }
    found
}

/// A directory of this test's own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("seekless-ffs-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn run(command: &mut Command) -> Vec<u8> {
    let output = command.output().expect("the tool runs");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn content(seed: u64, bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    Rng::new(seed).fill(&mut content);
    content
}

/// Paths with contents: files around all sizes that matter, deep directories, and one with many names.
fn tree(seed: u64) -> Vec<(String, Vec<u8>)> {
    let mut rng = Rng::new(seed);
    let mut files = Vec::new();
    for (index, bytes) in [0, 1, 511, 1024, 7000, 8192, 8193, 98_304, 98_305, 250_000].into_iter().enumerate() {
        files.push((format!("f{index}"), content(seed * 100 + index as u64, bytes)));
    }
    for depth in 1..6 {
        let dir: String = (0..depth).map(|level| format!("d{level}/")).collect();
        files.push((format!("{dir}file"), content(seed + depth, rng.below(30_000) as usize)));
    }
    for index in 0..80 {
        let name = format!("many/{}{index}", "n".repeat(rng.between(1, 60) as usize));
        files.push((name, content(index, rng.below(3_000) as usize)));
    }
    if seed.is_multiple_of(3) {
        files.push(("large".into(), content(seed, 17_500_000)));
    }
    files
}

fn load(path: &Path) -> (Rc<Memory>, Device) {
    let bytes = std::fs::read(path).expect("the image");
    let memory = Rc::new(Memory::new(bytes.len() as u64));
    let mut image = memory.image();
    image.write(Sector(0), &bytes);
    memory.set_image(image);
    (memory.clone(), memory)
}

fn store(memory: &Memory, path: &Path) {
    use crate::device::BlockDevice;
    let mut bytes = vec![0; memory.geometry().bytes() as usize];
    memory.image().read(Sector(0), &mut bytes);
    std::fs::write(path, bytes).expect("the image");
}

/// Images of `makefs` are clean, hold every file, and take changes.
#[test]
fn images_of_makefs() {
    let Some(makefs) = tool("makefs") else { return };
    let scratch = Scratch::new("makefs");
    for seed in 0..4 {
        let (source, image) = (scratch.0.join(format!("t{seed}")), scratch.0.join(format!("i{seed}")));
        let files = tree(seed);
        for (name, content) in &files {
            let path = source.join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
            std::fs::write(path, content).expect("write");
        }
        std::os::unix::fs::symlink("f1", source.join("short")).expect("symlink");
        std::os::unix::fs::symlink("x".repeat(100), source.join("long")).expect("symlink");
        let shape = ["bsize=8192,fsize=1024", "bsize=16384,fsize=2048", "bsize=4096,fsize=512"][seed as usize % 3];
        let options = format!("version=1,{shape}");
        let free = format!("{}m", 4 + seed % 2);
        run(Command::new(&makefs)
            .args(["-t", "ffs", "-B", "le", "-b", &free, "-f", "100", "-o", &options])
            .arg(&image)
            .arg(&source));
        let (_, device) = load(&image);
        simulate(seed, async |rt| {
            let found = fsck(&rt, &device, FsckOptions::default()).await.expect("fsck");
            assert_eq!(found.problems, Vec::new(), "{shape}");
            session(&rt, &device, Options::default(), async |client| {
                for (name, content) in &files {
                    let read = client.read_file(format!("/{name}").as_bytes()).await.expect(name);
                    assert!(read == *content, "{name}, seed {seed}");
                }
                assert_eq!(client.read_link(b"/short").await.unwrap(), b"f1");
                assert_eq!(client.read_link(b"/long").await.unwrap(), "x".repeat(100).as_bytes());
                client.mkdir(b"/new").await.unwrap();
                client.write_file(b"/new/f", &content(9, 300_000)).await.unwrap();
                client.unlink(b"/f9").await.unwrap();
                client.rename(b"/many", b"/new/many", RenameMode::Replace).await.unwrap();
            })
            .await;
        });
    }
}

/// Paths below `folder`, with contents.
fn files_below(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let (mut files, mut open) = (Vec::new(), vec![folder.to_path_buf()]);
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).expect("a directory").map(|entry| entry.expect("an entry").path()));
        } else {
            let name = path.strip_prefix(folder).expect("it is below").to_str().expect("text").to_string();
            files.push((name, std::fs::read(&path).expect("a file")));
        }
    }
    files
}

/// Ten real trees, which are this project's own, in images of `makefs` of several shapes: the check finds nothing, and every
/// file is the same, also after all of them have been moved and copied by us.
#[test]
fn images_of_real_trees() {
    const TREES: [&str; 10] = [
        "crates/seekless-ffs/src/fs",
        "crates/seekless-disk/src/disk",
        "crates/seekless-core/src/device",
        "crates/seekless-volume/src/volume",
        "crates/seekless/src/stack",
        "crates/seekless-testing/src/testing",
        "crates/seekless/tests",
        "crates/seekless-host",
        "crates/seekless-lab",
        "fuzz/seeds",
    ];
    let Some(makefs) = tool("makefs") else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let scratch = Scratch::new("real-trees");
    for (number, tree) in TREES.iter().enumerate() {
        let (source, image) = (root.join(tree), scratch.0.join(format!("i{number}")));
        let files = files_below(&source);
        assert!(files.len() > 5, "{tree}");
        let shape =
            ["bsize=8192,fsize=1024", "bsize=32768,fsize=4096", "bsize=4096,fsize=512", "bsize=8192,fsize=8192"];
        let options = format!("version=1,density=2048,{}", shape[number % shape.len()]);
        run(Command::new(&makefs)
            .args(["-t", "ffs", "-B", "le", "-b", "8m", "-f", "99%", "-o", &options])
            .arg(&image)
            .arg(&source));
        let (_, device) = load(&image);
        simulate(1, async |rt| {
            assert_clean(&rt, &device).await;
            session(&rt, &device, Options::default(), async |client| {
                client.mkdir(b"/of ours").await.unwrap();
                for (index, (name, content)) in files.iter().enumerate() {
                    let path = format!("/{name}");
                    assert!(client.read_file(path.as_bytes()).await.expect(name) == *content, "{name} in {tree}");
                    let new = format!("/of ours/{index}");
                    match index % 2 {
                        0 => client.rename(path.as_bytes(), new.as_bytes(), RenameMode::NoReplace).await.unwrap(),
                        _ => client.write_file(new.as_bytes(), content).await.unwrap(),
                    }
                }
            })
            .await;
            session(&rt, &device, Options::default(), async |client| {
                for (index, (name, content)) in files.iter().enumerate() {
                    let read = client.read_file(format!("/of ours/{index}").as_bytes()).await.expect(name);
                    assert!(read == *content, "{name} in {tree}");
                }
            })
            .await;
        });
    }
}

/// Creates volumes of both generations with files, one of them after a crash and a check, and passes them to `read`
/// with their contents.
fn with_volumes(name: &str, read: impl Fn(&Path, &[(String, Vec<u8>)])) {
    let scratch = Scratch::new(name);
    for (seed, lite2) in [(1, false), (2, true), (3, false)] {
        let image = scratch.0.join(format!("i{seed}"));
        let files = tree(seed);
        simulate(seed, async |rt| {
            let (memory, device) = fresh(&rt, 40 * MIB, &MkfsOptions { lite2, ..small_groups() }).await;
            let ffs = mount(rt.clone(), device.clone(), Options::default()).await.expect("mount");
            let client = Client::new(ffs.clone());
            for (name, content) in &files {
                for (at, _) in name.match_indices('/') {
                    match client.mkdir(format!("/{}", &name[..at]).as_bytes()).await {
                        Ok(()) | Err(FsError::Exists) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
                client.write_file(format!("/{name}").as_bytes(), content).await.expect(name);
            }
            client.sync().await.expect("sync");
            if seed == 2 {
                // Cut off with something in progress, and repaired.
                client.write_file(b"/halfway", &content(1, 100_000)).await.expect("write");
                let crashed = Rc::new(Memory::from_image(40 * MIB, memory.image()));
                let device: Device = crashed.clone();
                let options = FsckOptions { repair: true, ..FsckOptions::default() };
                fsck(&rt, &device, options).await.expect("fsck");
                store(&crashed, &image);
            } else {
                ffs.close().await.expect("close");
                store(&memory, &image);
            }
        });
        read(&image, &files);
    }
}

/// The Sleuth Kit finds every file of our volumes, with its content.
#[test]
fn read_by_the_sleuth_kit() {
    let (Some(fls), Some(icat)) = (tool("fls"), tool("icat")) else { return };
    with_volumes("tsk", |image, files| {
        let listing =
            String::from_utf8(run(Command::new(&fls).args(["-f", "ufs1", "-r", "-p"]).arg(image))).expect("text");
        for (name, content) in files {
            let suffix = format!("\t{name}");
            let line =
                listing.lines().find(|line| line.ends_with(&suffix)).unwrap_or_else(|| panic!("{name} is not listed"));
            let inode = line.split_whitespace().nth(1).expect("an inode").trim_end_matches(':');
            let read = run(Command::new(&icat).args(["-f", "ufs1"]).arg(image).arg(inode));
            assert!(read == *content, "{name}: {} bytes instead of {}", read.len(), content.len());
        }
    });
}

/// GRUB's file system code reads every file of our volumes.
#[test]
fn read_by_grub() {
    let Some(grub) = tool("grub-fstest") else { return };
    with_volumes("grub", |image, files| {
        // It reads one file for each call.
        for (name, content) in files.iter().step_by(7) {
            let read = run(Command::new(&grub).arg(image).args(["cat", &format!("(loop0)/{name}")]));
            assert!(read == *content, "{name}: {} bytes instead of {}", read.len(), content.len());
        }
    });
}

/// A byte whose meaning is unknown here stays where it is.
#[test]
fn unknown_fields_are_kept() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 8 * MIB, &small_groups()).await;
        let place = Sector(SUPERBLOCK_OFFSET / SECTOR_BYTES);
        let mut block = device.read(place, Buf::zeroed(SUPERBLOCK_BYTES)).await.unwrap();
        // Spare fields, and bytes behind the last field.
        let marked = [860 + 40, 1204 + 8, 1500, 8000];
        for at in marked {
            block[at] = 0xa5;
        }
        device.write(place, block.freeze(), WriteFlags::NONE).await.unwrap();
        session(&rt, &device, Options::default(), async |client| {
            client.write_file(b"/f", &[1; 10_000]).await.unwrap();
        })
        .await;
        let block: Data = device.read(place, Buf::zeroed(SUPERBLOCK_BYTES)).await.unwrap().freeze();
        assert!(marked.iter().all(|&at| block[at] == 0xa5));
    });
}

/// Volumes that are not supported are refused by name.
#[test]
fn refusals() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, 8 * MIB, &small_groups()).await;
        let whole = memory.image();
        let magic = SUPERBLOCK_OFFSET as usize + Superblock::BYTES - 4;
        for (at, value, said) in [
            (magic, UFS1_MAGIC.swap_bytes(), "big-endian"),
            (magic, UFS2_MAGIC, "UFS2"),
            (magic - 32 - 16, 0xffff_ffff, "4.2BSD"),
            (magic - 16, 0xffff_ffff, "4.2BSD"),
            (magic, 7, "magic"),
        ] {
            memory.set_image(whole.clone());
            let sector = Sector(at as u64 / SECTOR_BYTES);
            let mut bytes = device.read(sector, Buf::zeroed(512)).await.unwrap();
            crate::codec::put_at(&mut bytes, at % 512, value);
            device.write(sector, bytes.freeze(), WriteFlags::NONE).await.unwrap();
            let error =
                mount(rt.clone(), device.clone(), Options::default()).await.err().map(|error| error.to_string());
            assert!(error.as_deref().is_some_and(|error| error.contains(said)), "{said}: {error:?}");
        }
    });
}

/// Changes the superblock of the volume on `device`.
async fn change_superblock(device: &Device, change: impl FnOnce(&mut Superblock)) {
    let volume = find_volume(device).await.unwrap();
    let (mut superblock, mut raw) = (volume.superblock, volume.raw);
    change(&mut superblock);
    superblock.encode(&mut raw);
    let place = Sector(SUPERBLOCK_OFFSET / SECTOR_BYTES);
    device.write(place, Data::from_slice(&raw), WriteFlags::NONE).await.unwrap();
}

/// NetBSD marks a volume that it has mounted as one that was closed before, by 2 in place of 1: it is checked like any other that
/// was not closed. Method: an image without maps of what is in use, which a crash leaves.
#[test]
fn a_volume_that_netbsd_has_not_closed() {
    simulate(1, async |rt| {
        let (memory, device) = fresh(&rt, 32 * MIB, &small_groups()).await;
        let ffs = mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
        let client = Client::new(ffs.clone());
        client.write_file(b"/f", &[1; 100_000]).await.unwrap();
        client.fsync_path(b"/f").await.unwrap();
        let crashed: Device = Rc::new(Memory::from_image(32 * MIB, memory.image()));
        change_superblock(&crashed, |superblock| superblock.clean = 2).await;
        assert!(!info(&crashed).await.unwrap().clean);
        let found = fsck(&rt, &crashed, FsckOptions::default()).await.unwrap();
        assert!(!found.problems.is_empty() && !found.notes.is_empty(), "{found:?}");
        session(&rt, &crashed, Options::default(), async |client| {
            client.write_file(b"/g", &[2; 100_000]).await.unwrap();
            assert!(client.read_file(b"/f").await.unwrap() == [1; 100_000]);
        })
        .await;
    });
}

/// A journal that NetBSD has not replayed makes a volume read-only. One that was closed there has nothing to replay, also when it
/// was not closed here since.
#[test]
fn a_journal_of_netbsd() {
    simulate(1, async |rt| {
        let (_, device) = fresh(&rt, 16 * MIB, &small_groups()).await;
        session(&rt, &device, Options::default(), async |client| {
            client.write_file(b"/f", &[1; 5000]).await.unwrap();
        })
        .await;
        for (clean, is_replayed) in [(2, false), (CLEAN, true), (0, true)] {
            change_superblock(&device, |superblock| {
                superblock.old_flags |= FLAGS_UPDATED;
                superblock.flags |= FLAG_JOURNAL;
                superblock.clean = clean;
            })
            .await;
            let repaired = fsck(&rt, &device, FsckOptions { repair: true, ..FsckOptions::default() }).await;
            assert_eq!(repaired.is_ok(), is_replayed, "{clean}: {repaired:?}");
            let found = fsck(&rt, &device, FsckOptions::default()).await.unwrap();
            assert_eq!(found.notes.iter().any(|note| note.contains("journal")), !is_replayed, "{clean}: {found:?}");
            let options = Options { read_only: !is_replayed, ..Options::default() };
            if !is_replayed {
                let writable = mount(rt.clone(), device.clone(), Options::default()).await;
                assert!(matches!(writable.map(drop), Err(FsError::Invalid(_))));
            }
            let ffs = mount(rt.clone(), device.clone(), options).await.unwrap();
            assert!(Client::new(ffs.clone()).read_file(b"/f").await.unwrap() == [1; 5000]);
            ffs.close().await.unwrap();
        }
    });
}
