//! Aim: packing and unpacking change only the space that files take. Method: a tree with files of every kind, packed,
//! read through the layer, unpacked, and compared with what it was; and the same, interrupted everywhere.

use super::*;
use crate::fs::acl::{Acl, XATTR_ACL_ACCESS, XATTR_ACL_DEFAULT};
use crate::fs::client::Client;
use crate::fs::*;
use crate::layer::codecs::{Key, Sealed};
use crate::layer::log::pack::{Direction, Progress, convert};
use crate::layer::tests::trouble::Trouble;
use crate::layer::{At, Layer};
use crate::testing::{MemFsOptions, Tree};
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
    client.set_xattr(b"/text", XATTR_CAPABILITY, b"all").await.unwrap();
    // New files would inherit a list that these files do not have.
    let list = |text: &str| text.parse::<Acl>().unwrap().to_xattr();
    client.set_xattr(b"/", XATTR_ACL_DEFAULT, &list("u::rwx,u:8:rwx,g::---,m::rwx,o::---")).await.unwrap();
    client.set_xattr(b"/text", XATTR_ACL_ACCESS, &list("u::rwx,u:9:r--,g::r-x,m::r-x,o::--x")).await.unwrap();
}

#[test]
fn packing_changes_only_space() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        make_tree(lower.clone()).await;
        let before = Tree::of(lower.clone()).await.unwrap();
        let below = Client::new(lower.clone());
        let mtime = below.stat(b"/text").await.unwrap().mtime;
        let packed = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
        assert_eq!((packed.files_seen, packed.files_converted, packed.files_done_before), (6, 2, 1), "{packed:?}");
        assert!(packed.bytes_after * 10 < packed.bytes_before, "{packed:?}");
        assert_eq!(packed.left.len(), 3, "two names of one file, and a short one: {packed:?}");
        assert_eq!(below.get_xattr(b"/text", XATTR_CAPABILITY).await.unwrap(), b"all");
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        assert_eq!(Tree::of(fs.clone()).await.unwrap().differences(&before), Vec::<String>::new());
        assert_eq!(Client::new(fs.clone()).stat(b"/text").await.unwrap().mtime, mtime);
        fs.close().await.unwrap();
        let again = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
        assert_eq!(again.files_converted, 0);
        let unpacked = convert(&rt, lower.clone(), zstd(), Direction::Unpack, &|_, _| {}).await.unwrap();
        assert_eq!(unpacked.files_converted, 2, "{unpacked:?}");
        assert_eq!(below.get_xattr(b"/text", XATTR_CAPABILITY).await.unwrap(), b"all");
        assert_eq!(Tree::of(lower.clone()).await.unwrap().differences(&before), Vec::<String>::new());
        assert_eq!(lower.leaks(), Default::default());
    });
}

/// Power cuts everywhere: each file is whole, in one form or the other, and starting again finishes the work.
#[test]
fn packing_can_be_interrupted() {
    use crate::testing::WeakFs;
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

/// Any user may make a file of exbibytes that holds nothing. What is stored is read, and nothing else.
#[test]
fn holes_are_not_read() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let client = Client::new(lower.clone());
        let file = client.create(b"/holes").await.unwrap();
        let places = [0, 3 << 30, (5 << 40) + 4097];
        for place in places {
            client.write(file, place, &text(50_000)).await.unwrap();
        }
        client.close(file).await.unwrap();
        let size = 1 << 42;
        client.setattr(b"/holes", SetAttr { size: Some(1 << 43), ..SetAttr::default() }).await.unwrap();
        let sectors = client.stat(b"/holes").await.unwrap().sectors;
        client.write_file(b"/only-a-hole", b"").await.unwrap();
        client.setattr(b"/only-a-hole", SetAttr { size: Some(size), ..SetAttr::default() }).await.unwrap();
        for (direction, converted) in [(Direction::Pack, 1), (Direction::Unpack, 1)] {
            let done = convert(&rt, lower.clone(), zstd(), direction, &|_, _| {}).await.unwrap();
            assert_eq!(done.files_converted, converted, "{direction:?}: {done:?}");
        }
        for place in places {
            let file = client.open(b"/holes", OpenFlags::READ).await.unwrap();
            assert_eq!(client.read(file, place, 50_000).await.unwrap(), text(50_000));
            client.close(file).await.unwrap();
        }
        let after = client.stat(b"/holes").await.unwrap();
        assert_eq!((after.size, after.sectors), (1 << 43, sectors), "holes are holes again");
    });
}

/// One file with a damaged chunk keeps no other from being converted, and keeps the form of the layer.
#[test]
fn a_damaged_file_is_left() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let client = Client::new(lower.clone() as Fs);
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        for path in [b"/a", b"/b", b"/c"] {
            Client::new(fs.clone()).write_file(path, &text(200_000)).await.unwrap();
        }
        fs.close().await.unwrap();
        let records = check::dump(&(lower.clone() as Fs), client.stat(b"/b").await.unwrap().ino).await.unwrap();
        let chunk = records.lines().find(|line| line.contains(": chunk 1 of ")).unwrap();
        let chunk: usize = chunk.split(':').next().unwrap().parse().unwrap();
        let mut bytes = client.read_file(b"/b").await.unwrap();
        bytes[chunk + super::super::format::Head::BYTES + 5] ^= 0x10;
        client.write_file(b"/b", &bytes).await.unwrap();
        for converted in [2, 0] {
            let done = convert(&rt, lower.clone(), zstd(), Direction::Unpack, &|_, _| {}).await.unwrap();
            assert_eq!((done.files_converted, done.files_failed), (converted, 1), "{done:?}");
            assert!(done.left.len() == 1 && done.left[0].0 == b"/b", "{done:?}");
            assert!(done.left[0].1.contains("damaged"), "{done:?}");
        }
        for path in [b"/a", b"/c"] {
            assert!(client.read_file(path).await.unwrap() == text(200_000));
        }
        assert!(client.read_file(b"/b").await.unwrap() == bytes, "it is as it was");
        assert_eq!(client.read_dir(b"/").await.unwrap().len(), 3, "nothing unfinished is left");
    });
}

/// So is one with a damaged head, in both directions.
#[test]
fn a_file_with_a_damaged_head_is_left() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let client = Client::new(lower.clone() as Fs);
        let fs = stack_on(&rt, lower.clone(), zstd()).await.unwrap();
        for path in [b"/a", b"/b"] {
            Client::new(fs.clone()).write_file(path, &text(200_000)).await.unwrap();
        }
        fs.close().await.unwrap();
        client.write_file(b"/plain", &text(200_000)).await.unwrap();
        let mut bytes = client.read_file(b"/b").await.unwrap();
        bytes[20] ^= 0x10;
        client.write_file(b"/b", &bytes).await.unwrap();
        for (direction, converted) in [(Direction::Pack, 1), (Direction::Unpack, 2), (Direction::Unpack, 0)] {
            let done = convert(&rt, lower.clone(), zstd(), direction, &|_, _| {}).await.unwrap();
            assert_eq!((done.files_converted, done.files_failed), (converted, 1), "{direction:?}: {done:?}");
            assert!(done.left.len() == 1 && done.left[0].0 == b"/b", "{direction:?}: {done:?}");
            assert!(done.left[0].1.contains("damaged"), "{direction:?}: {done:?}");
            assert!(client.read_file(b"/b").await.unwrap() == bytes, "{direction:?}: it is as it was");
        }
    });
}

/// A full file system is why people pack: one file that does not fit twice keeps no other from being packed.
#[test]
fn a_file_without_space_is_left() {
    simulate(1, async |rt| {
        const CAPACITY: u64 = 16 << 20;
        let lower = MemFs::with_options(&rt, MemFsOptions { capacity_bytes: CAPACITY, ..MemFsOptions::default() });
        let client = Client::new(lower.clone() as Fs);
        client.write_file(b"/large", &text(2 << 20)).await.unwrap();
        client.write_file(b"/small", &text(40_000)).await.unwrap();
        client.write_file(b"/other", &vec![1; (CAPACITY - (2 << 20) - 40_000 - 800_000) as usize]).await.unwrap();
        let left = |done: &Progress| done.left.iter().map(|(path, _)| path.clone()).collect::<Vec<_>>();
        let done = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
        assert_eq!((done.files_converted, done.files_without_space), (1, 2), "{done:?}");
        assert!(left(&done).contains(&b"/large".to_vec()) && done.left[0].1.contains("not enough space"), "{done:?}");
        client.unlink(b"/other").await.unwrap();
        let done = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
        assert_eq!((done.files_converted, done.files_done_before, done.files_without_space), (1, 1, 0), "{done:?}");
        // The other way: what stays packed is the layer's, and so is the directory.
        client.write_file(b"/other", &vec![1; (CAPACITY - (1 << 20)) as usize]).await.unwrap();
        let done = convert(&rt, lower.clone(), zstd(), Direction::Unpack, &|_, _| {}).await.unwrap();
        assert_eq!((left(&done), done.files_without_space), (vec![b"/large".to_vec()], 1), "{done:?}");
        let other = Options { plain: Plain::Error, ..tiny(Arc::new(Sealed::new(&Key::new([1; 32]), None))) };
        assert!(
            stack_on(&rt, lower.clone(), other).await.is_err(),
            "another layer took a directory with files of zstd"
        );
        let fs = Client::new(stack_on(&rt, lower.clone(), zstd()).await.unwrap());
        assert_eq!(fs.read_file(b"/large").await.unwrap(), text(2 << 20));
        assert_eq!(fs.read_file(b"/small").await.unwrap(), text(40_000));
    });
}

/// One file that may not be replaced keeps no other from being converted. It is named, and keeps its form.
#[test]
fn a_file_that_may_not_be_replaced_is_left() {
    simulate(1, async |rt| {
        let lower = Trouble::over(model(&rt)).await;
        let client = Client::new(lower.clone() as Fs);
        for path in [b"/a", b"/b", b"/c"] {
            client.write_file(path, &text(200_000)).await.unwrap();
        }
        lower.layer().fixed.set(b"b");
        let done = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
        assert_eq!((done.files_converted, done.files_failed), (2, 1), "{done:?}");
        assert_eq!(done.left, [(b"/b".to_vec(), "operation not permitted".to_string())]);
        assert!(client.read_file(b"/b").await.unwrap() == text(200_000));
        assert_eq!(client.read_dir(b"/").await.unwrap().len(), 3, "nothing unfinished is left");
        lower.layer().fixed.set(b"c");
        let done = convert(&rt, lower.clone(), zstd(), Direction::Unpack, &|_, _| {}).await.unwrap();
        assert_eq!((done.files_converted, done.files_failed, done.left.len()), (1, 1, 1), "{done:?}");
        let fs = Client::new(stack_on(&rt, lower.clone(), zstd()).await.unwrap());
        assert!(fs.read_file(b"/c").await.unwrap() == text(200_000), "the directory is still the layer's");
    });
}

/// A directory that keeps all files gets one that nothing can remove, and not one for each file in it. It is listed in their place.
#[test]
fn a_directory_that_keeps_its_files_is_left() {
    simulate(1, async |rt| {
        let lower = Trouble::over(model(&rt)).await;
        let client = Client::new(lower.clone() as Fs);
        client.mkdir(b"/d").await.unwrap();
        for path in [&b"/d/a"[..], b"/d/b", b"/d/c", b"/other"] {
            client.write_file(path, &text(200_000)).await.unwrap();
        }
        client.write_file(b"/d/empty", b"").await.unwrap();
        lower.layer().keeps_names.set(Some(client.stat(b"/d").await.unwrap().ino));
        // The one left over has the form of the layer.
        for (converted, failed) in [(1, 3), (0, 4), (0, 4)] {
            let done = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
            assert_eq!((done.files_converted, done.files_failed), (converted, failed), "{done:?}");
            assert!(done.left.len() == 1 && done.left[0].0 == b"/d", "{done:?}");
            assert!(done.left[0].1.contains("operation not permitted"), "{done:?}");
            assert_eq!(client.read_dir(b"/d").await.unwrap().len(), 5);
        }
        // Where nothing else is to be converted, it still is a failure.
        let done = convert(&rt, lower.clone(), zstd(), Direction::Unpack, &|_, _| {}).await.unwrap();
        assert_eq!((done.files_converted, done.files_failed), (1, 1), "{done:?}");
        assert!(done.left[0].0 == b"/d" && done.left[0].1.contains("cannot be removed"), "{done:?}");
        lower.layer().keeps_names.set(None);
        let done = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
        assert_eq!((done.files_converted, done.left.len()), (4, 0), "{done:?}");
        assert_eq!(client.read_dir(b"/d").await.unwrap().len(), 4, "what was left over is gone");
    });
}

/// A file that is left over and immutable keeps no other from being converted, however often that is tried. It is named, and counts as
/// a failure.
#[test]
fn an_immutable_leftover_is_left() {
    const LEFT: &[u8] = b".seekless-pack-";
    simulate(1, async |rt| {
        let lower = Trouble::over(with_handles(&rt)).await;
        let client = Client::new(lower.clone() as Fs);
        client.mkdir(b"/d").await.unwrap();
        for path in [&b"/d/a"[..], b"/d/b", b"/d/c"] {
            client.write_file(path, &text(200_000)).await.unwrap();
        }
        let name = [LEFT, client.stat(b"/d/b").await.unwrap().ino.to_string().as_bytes()].concat();
        let path = [b"/d/", &name[..]].concat();
        client.write_file(&path, &text(10_000)).await.unwrap();
        let ino = client.stat(&path).await.unwrap().ino;
        lower.layer().immutable.set(Some((ino, name.leak())));
        for converted in [2, 0] {
            let done = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
            assert_eq!((done.files_converted, done.files_failed), (converted, 1), "{done:?}");
            assert_eq!(done.left.len(), 2, "{done:?}");
            assert!(done.left[0].0 == path && done.left[0].1.contains("cannot be removed"), "{done:?}");
            assert_eq!(done.left[1].0, b"/d/b", "{done:?}");
            assert_eq!(client.read_dir(b"/d").await.unwrap().len(), 4);
        }
        let done = convert(&rt, lower.clone(), zstd(), Direction::Unpack, &|_, _| {}).await.unwrap();
        assert_eq!((done.files_converted, done.files_failed, done.left.len()), (2, 1, 1), "{done:?}");
        lower.layer().immutable.set(None);
        let done = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
        assert_eq!((done.files_converted, done.files_failed, done.left.len()), (3, 0, 0), "{done:?}");
        assert_eq!(client.read_dir(b"/d").await.unwrap().len(), 3, "what was left over is gone");
    });
}

fn with_handles(rt: &Rt) -> Rc<MemFs> {
    MemFs::with_options(rt, MemFsOptions { open_protocol: OpenProtocol::Handles, ..MemFsOptions::default() })
}

/// What a program writes into a file that it had open before the conversion is in the file of that name afterwards.
#[test]
fn files_that_are_open_for_writing_are_left() {
    simulate(1, async |rt| {
        let lower = with_handles(&rt);
        let client = Client::new(lower.clone() as Fs);
        client.write_file(b"/open", &text(100_000)).await.unwrap();
        client.write_file(b"/other", &text(100_000)).await.unwrap();
        for (direction, content) in [(Direction::Pack, text(100_000)), (Direction::Unpack, vec![])] {
            if direction == Direction::Unpack {
                convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
            }
            let before = client.read_file(b"/open").await.unwrap();
            let file = client.open(b"/open", OpenFlags::READ_WRITE).await.unwrap();
            let done = convert(&rt, lower.clone(), zstd(), direction, &|_, _| {}).await.unwrap();
            assert_eq!((done.files_converted, done.files_in_use, done.left.len()), (1, 1, 1), "{done:?}");
            assert!(done.left[0].0 == b"/open" && done.left[0].1.contains("open for writing"), "{done:?}");
            assert!(content.is_empty() || before == content);
            client.write(file, 0, b"new").await.unwrap();
            client.close(file).await.unwrap();
            assert_eq!(client.read_file(b"/open").await.unwrap(), [b"new", &before[3..]].concat(), "{direction:?}");
            // Back as it was.
            let file = client.open(b"/open", OpenFlags::READ_WRITE).await.unwrap();
            client.write(file, 0, &before[..3]).await.unwrap();
            client.close(file).await.unwrap();
            let done = convert(&rt, lower.clone(), zstd(), direction, &|_, _| {}).await.unwrap();
            assert_eq!((done.files_converted, done.files_in_use), (1, 0), "{done:?}");
        }
        assert_eq!(client.read_file(b"/open").await.unwrap(), text(100_000));
        assert_eq!(lower.leaks(), Default::default());
    });
}

/// A writer that begins at any moment of the conversion keeps its file.
#[test]
fn a_writer_that_begins_during_the_conversion_is_noticed() {
    simulate(1, async |rt| {
        for direction in [Direction::Pack, Direction::Unpack] {
            let mut moments = 0;
            for number in 1.. {
                let lower = with_handles(&rt);
                let client = Client::new(lower.clone() as Fs);
                client.write_file(b"/f", &text(3 << 20)).await.unwrap();
                if direction == Direction::Unpack {
                    convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
                }
                let (before, ino) = (client.read_file(b"/f").await.unwrap(), client.stat(b"/f").await.unwrap().ino);
                lower.let_a_writer_begin_at(number);
                let done = convert(&rt, lower.clone(), zstd(), direction, &|_, _| {}).await.unwrap();
                assert_eq!(client.read_dir(b"/").await.unwrap().len(), 1, "nothing is left beside it");
                assert_eq!(lower.leaks(), Default::default());
                if done.files_converted == 1 {
                    break;
                }
                moments += 1;
                assert_eq!(done.files_in_use, 1, "{done:?}");
                assert_eq!(client.stat(b"/f").await.unwrap().ino, ino, "question {number}");
                assert!(client.read_file(b"/f").await.unwrap() == before, "question {number}");
            }
            assert!(moments > 5, "{direction:?}: {moments}");
        }
    });
}

/// Names that only look like those of unfinished files belong to users.
#[test]
fn only_unfinished_files_are_removed() {
    simulate(1, async |rt| {
        let lower = with_handles(&rt);
        let client = Client::new(lower.clone() as Fs);
        client.mkdir(b"/.seekless-pack-dir").await.unwrap();
        client.mkdir(b"/.seekless-pack-4").await.unwrap();
        for name in
            [&b"/.seekless-pack-notes"[..], b"/.seekless-pack-", b"/.seekless-pack-077", b"/.seekless-pack-99999"]
        {
            client.write_file(name, b"precious").await.unwrap();
        }
        client.write_file(b"/f", &text(100_000)).await.unwrap();
        let ino = client.stat(b"/f").await.unwrap().ino;
        let unfinished = format!("/.seekless-pack-{ino}");
        client.write_file(unfinished.as_bytes(), &text(30_000)).await.unwrap();
        let before = client.read_dir(b"/").await.unwrap().len();
        let done = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
        assert_eq!(done.files_converted, 1, "{done:?}");
        assert_eq!(client.read_dir(b"/").await.unwrap().len(), before - 1);
        assert_eq!(client.stat(unfinished.as_bytes()).await, Err(crate::fs::FsError::NotFound));
        assert_eq!(client.read_file(b"/.seekless-pack-notes").await.unwrap(), b"precious");
        // A directory with the name that an unfinished file would need: the file is left.
        client.write_file(b"/g", &text(100_000)).await.unwrap();
        let ino = client.stat(b"/g").await.unwrap().ino;
        client.mkdir(format!("/.seekless-pack-{ino}").as_bytes()).await.unwrap();
        let done = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
        assert!(done.left.iter().any(|(path, why)| path == b"/g" && why.contains("name")), "{done:?}");
    });
}

/// The old file that had swapped names before an interruption is removed, but not if it was written to afterwards.
#[test]
fn a_swapped_file_is_removed_unless_it_changed() {
    simulate(1, async |rt| {
        for changes in [false, true] {
            let lower = with_handles(&rt);
            let client = Client::new(lower.clone() as Fs);
            client.write_file(b"/f", &text(100_000)).await.unwrap();
            rt.sleep(Nanos::from_secs(1)).await;
            let old = client.stat(b"/f").await.unwrap();
            let swapped = format!("/.seekless-pack-{}", old.ino);
            client.rename(b"/f", swapped.as_bytes(), crate::fs::RenameMode::Replace).await.unwrap();
            client.write_file(b"/f", &text(100_000)).await.unwrap();
            let same = SetAttr { mtime: Some(SetTime::At(old.mtime)), ..SetAttr::default() };
            client.setattr(b"/f", same).await.unwrap();
            if changes {
                client.write_file(swapped.as_bytes(), b"written by a program that had it open").await.unwrap();
            }
            convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
            assert_eq!(client.stat(swapped.as_bytes()).await.is_ok(), changes);
        }
    });
}

/// What a power cut left of a first commit reads as an empty file, and is one after it has been unpacked.
#[test]
fn a_first_commit_that_was_cut_off_becomes_an_empty_file() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let client = Client::new(lower.clone() as Fs);
        client.write_file(b"/f", &format::Commit::initial(16, 7).encode()[..300]).await.unwrap();
        client.write_file(b"/empty", b"").await.unwrap();
        let fs = Client::new(stack_on(&rt, lower.clone(), zstd()).await.unwrap());
        assert_eq!(fs.read_file(b"/f").await.unwrap(), b"");
        fs.fs().close().await.unwrap();
        let packed = convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
        assert_eq!((packed.files_converted, packed.files_done_before), (0, 2), "{packed:?}");
        let unpacked = convert(&rt, lower.clone(), zstd(), Direction::Unpack, &|_, _| {}).await.unwrap();
        assert_eq!((unpacked.files_converted, unpacked.files_done_before), (1, 1), "{unpacked:?}");
        assert_eq!(client.read_file(b"/f").await.unwrap(), b"");
        assert_eq!(lower.leaks(), Default::default());
    });
}

/// Of two layers, the upper one is taken off first: with the lower one alone, nothing could read the files any more.
#[test]
fn the_lower_of_two_layers_is_not_taken_off_first() {
    let encrypt = || Options { plain: Plain::Error, ..tiny(Arc::new(Sealed::new(&Key::new([7; 32]), None))) };
    for (upper, under, line) in [
        (encrypt(), zstd(), "'encrypt:KEYFILE / zstd / hostdir:DIR'"),
        (zstd(), encrypt(), "'zstd / encrypt:KEYFILE / hostdir:DIR'"),
        (zstd(), zstd(), "'zstd / zstd / hostdir:DIR'"),
        (encrypt(), encrypt(), "'encrypt:KEYFILE_ABOVE / encrypt:KEYFILE / hostdir:DIR'"),
    ] {
        simulate(1, async |rt| {
            let lower: Fs = model(&rt);
            let content = text(200_000);
            let both = async || {
                let middle = stack_on(&rt, lower.clone(), under.clone()).await.unwrap();
                stack_on(&rt, middle, upper.clone()).await.unwrap()
            };
            let top = both().await;
            Client::new(top.clone()).write_file(b"/f", &content).await.unwrap();
            top.close().await.unwrap();
            let refused = convert(&rt, lower.clone(), under.clone(), Direction::Unpack, &|_, _| {}).await;
            assert!(matches!(refused, Err(FsError::Invalid(why)) if why.contains(line)), "{line}: {refused:?}");
            let top = both().await;
            assert!(Client::new(top.clone()).read_file(b"/f").await.unwrap() == content);
            top.close().await.unwrap();
            let middle = stack_on(&rt, lower.clone(), under.clone()).await.unwrap();
            convert(&rt, middle.clone(), upper.clone(), Direction::Unpack, &|_, _| {}).await.unwrap();
            middle.close().await.unwrap();
            convert(&rt, lower.clone(), under.clone(), Direction::Unpack, &|_, _| {}).await.unwrap();
            assert!(Client::new(lower.clone()).read_file(b"/f").await.unwrap() == content);
            lower.close().await.unwrap();
        });
    }
}

/// A file system without attributes, as sshfs is one.
struct Bare;

impl Layer for Bare {
    type Node = ();

    const NAME: &'static str = "bare";

    async fn open_node(&self, _lower: &Fs, _attr: &Attr, _place: Option<EntryName<'_>>) -> FsResult<()> {
        Ok(())
    }

    async fn getxattr(&self, _at: At<'_, ()>, _name: &[u8]) -> FsResult<Vec<u8>> {
        Err(FsError::Unsupported)
    }

    async fn setxattr(&self, _at: At<'_, ()>, _name: &[u8], _value: &[u8], _mode: XattrMode) -> FsResult<()> {
        Err(FsError::Unsupported)
    }

    async fn listxattr(&self, _at: At<'_, ()>) -> FsResult<Vec<Vec<u8>>> {
        Err(FsError::Unsupported)
    }

    async fn removexattr(&self, _at: At<'_, ()>, _name: &[u8]) -> FsResult<()> {
        Err(FsError::Unsupported)
    }

    fn traits(&self, lower: FsTraits) -> FsTraits {
        FsTraits { access_lists: false, ..lower }
    }
}

/// Files are packed and unpacked where no file can have attributes.
#[test]
fn files_without_attributes_are_converted() {
    simulate(1, async |rt| {
        let lower = Rc::new(Stacked::new(with_handles(&rt), Bare).await.unwrap());
        let client = Client::new(lower.clone() as Fs);
        client.write_file(b"/f", &text(100_000)).await.unwrap();
        for direction in [Direction::Pack, Direction::Unpack] {
            let done = convert(&rt, lower.clone(), zstd(), direction, &|_, _| {}).await.unwrap();
            assert_eq!((done.files_converted, done.left.len()), (1, 0), "{direction:?}: {done:?}");
            assert_eq!(client.read_file(b"/f").await.unwrap() == text(100_000), direction == Direction::Unpack);
        }
    });
}

/// A user's file whose name has come to be that of an unfinished copy, because another file has its number, stays; so does what says so in its
/// content alone. What is left of a copy, whole, half or with missing sectors, is removed. In both directions.
#[test]
fn a_file_of_another_content_is_not_taken_for_a_copy() {
    let half = text(60_000);
    let mut torn = text(100_000);
    torn[4_096..9_216].fill(0);
    let mut longer = text(100_000);
    longer.extend_from_slice(b"and more");
    let mut other = text(100_000);
    other[70_000] ^= 1;
    let cases = [(half, true), (torn, true), (longer, false), (other, false), (b"precious".to_vec(), false)];
    for direction in [Direction::Pack, Direction::Unpack] {
        for (number, (content, is_copy)) in cases.iter().enumerate() {
            simulate(1, async |rt| {
                let lower = with_handles(&rt);
                let client = Client::new(lower.clone() as Fs);
                client.write_file(b"/f", &text(100_000)).await.unwrap();
                if direction == Direction::Unpack {
                    convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.unwrap();
                }
                let unfinished = format!("/.seekless-pack-{}", client.stat(b"/f").await.unwrap().ino);
                let unfinished = unfinished.as_bytes();
                // A copy in the form of the layer, where that is what it would be.
                let makes_encoded = direction == Direction::Pack && *is_copy;
                if makes_encoded {
                    let top = Client::new(stack_on(&rt, lower.clone(), zstd()).await.unwrap());
                    top.write_file(unfinished, content).await.unwrap();
                    top.fs().close().await.unwrap();
                } else {
                    client.write_file(unfinished, content).await.unwrap();
                }
                let done = convert(&rt, lower.clone(), zstd(), direction, &|_, _| {}).await.unwrap();
                let top = Client::new(stack_on(&rt, lower.clone(), zstd()).await.unwrap());
                let left = top.read_file(unfinished).await;
                let expected = if *is_copy { Err(FsError::NotFound) } else { Ok(content.clone()) };
                assert!(left == expected, "{direction:?}, case {number}: {done:?}");
                assert!(top.read_file(b"/f").await.unwrap() == text(100_000), "{direction:?}, case {number}");
            });
        }
    }
}
