//! Aim: layers of one scheme and one key use a directory, and any other is refused before it writes anything. Method:
//! every pair of layers, one after the other, with and without the directory's attribute, at once, and with power cuts
//! while it is written.

use super::*;
use crate::fs::client::Client;
use crate::fs::{FileSystem, FsError, XattrMode};
use crate::layer::codecs::{Key, Sealed};
use crate::layer::log::pack::{Direction, convert};
use crate::layer::{classic, directory};
use crate::testing::{MemFsOptions, Tree, WeakFs};
use crate::units::Ino;

/// Number of kinds of layers that a directory distinguishes.
const KINDS: usize = 4;

fn encrypt(key: u8) -> Options {
    Options { plain: Plain::Error, ..tiny(Arc::new(Sealed::new(&Key::new([key; 32]), None))) }
}

async fn put_on(rt: &Rt, lower: Fs, kind: usize) -> FsResult<Fs> {
    match kind {
        0 => stack_on(rt, lower, tiny(Arc::new(Zstd::default()))).await,
        1 => stack_on(rt, lower, encrypt(1)).await,
        2 => stack_on(rt, lower, encrypt(2)).await,
        _ => classic::stack_on(rt, lower, classic::Options::new(Arc::new(Deflate::default()))).await,
    }
}

fn text(bytes: usize) -> Vec<u8> {
    b"whose is this; ".iter().copied().cycle().take(bytes).collect()
}

/// A directory that one layer has written to refuses every other layer. That holds too for a directory without the
/// attribute, whose files show the layer: small files and files whose index has nodes, beside plain ones and in a
/// subdirectory. The right layer is accepted, and has written the attribute afterwards.
#[test]
fn a_directory_is_of_one_layer() {
    for bytes in [300, 20_000, 300_000] {
        for first in 0..KINDS {
            simulate(1, async |rt| {
                let lower = model(&rt);
                let below = Client::new(lower.clone() as Fs);
                below.write_file(b"/plain", b"it was here before").await.unwrap();
                let fs = put_on(&rt, lower.clone(), first).await.unwrap();
                let client = Client::new(fs.clone());
                client.mkdir(b"/d").await.unwrap();
                client.write_file(b"/d/f", &text(bytes)).await.unwrap();
                fs.close().await.unwrap();
                let mark = below.get_xattr(b"/", directory::NAME).await.unwrap();
                for with_mark in [true, false] {
                    if !with_mark {
                        below.remove_xattr(b"/", directory::NAME).await.unwrap();
                    }
                    let before = Tree::of(lower.clone()).await.unwrap();
                    for other in (0..KINDS).filter(|&other| other != first) {
                        let put = put_on(&rt, lower.clone(), other).await.map(drop);
                        assert!(
                            matches!(put, Err(FsError::Invalid(_))),
                            "{other} on {first}, {bytes} bytes, {with_mark}: {put:?}"
                        );
                    }
                    let options = if first == 1 { encrypt(2) } else { encrypt(1) };
                    assert!(check::check(&rt, lower.clone(), options, true).await.is_err(), "D1");
                    assert_eq!(Tree::of(lower.clone()).await.unwrap().differences(&before), Vec::<String>::new(), "D1");
                    let fs = put_on(&rt, lower.clone(), first).await.unwrap();
                    let client = Client::new(fs.clone());
                    assert!(client.read_file(b"/d/f").await.unwrap() == text(bytes));
                    // It is hidden above, and an attribute of that name set from above is a separate one.
                    assert_eq!(client.list_xattr(b"/").await.unwrap(), Vec::<Vec<u8>>::new());
                    client.set_xattr(b"/", directory::NAME, b"mine").await.unwrap();
                    assert_eq!(client.get_xattr(b"/", directory::NAME).await.unwrap(), b"mine");
                    client.remove_xattr(b"/", directory::NAME).await.unwrap();
                    fs.close().await.unwrap();
                    assert_eq!(below.get_xattr(b"/", directory::NAME).await.unwrap(), mark);
                }
            });
        }
    }
}

/// A directory stays with its layer when its last file goes, and is released by unpacking; then nothing is left behind.
#[test]
fn unpacking_lets_go() {
    simulate(1, async |rt| {
        let lower = model(&rt);
        let below = Client::new(lower.clone() as Fs);
        for kind in [0, 1, 2, 1, 0] {
            let fs = put_on(&rt, lower.clone(), kind).await.unwrap();
            let client = Client::new(fs.clone());
            client.write_file(b"/f", &text(20_000)).await.unwrap();
            client.unlink(b"/f").await.unwrap();
            fs.close().await.unwrap();
            assert!(put_on(&rt, lower.clone(), (kind + 1) % 3).await.is_err(), "it may still be mounted elsewhere");
            let options = [zstd(), encrypt(1), encrypt(2)][kind].clone();
            convert(&rt, lower.clone(), options, Direction::Unpack, &|_, _| {}).await.unwrap();
            assert_eq!(below.list_xattr(b"/").await.unwrap(), Vec::<Vec<u8>>::new());
        }
        below.write_file(b"/f", &text(40_000)).await.unwrap();
        let before = Tree::of(lower.clone()).await.unwrap();
        convert(&rt, lower.clone(), encrypt(1), Direction::Pack, &|_, _| {}).await.unwrap();
        assert!(convert(&rt, lower.clone(), encrypt(2), Direction::Unpack, &|_, _| {}).await.is_err());
        assert!(convert(&rt, lower.clone(), zstd(), Direction::Pack, &|_, _| {}).await.is_err());
        convert(&rt, lower.clone(), encrypt(1), Direction::Unpack, &|_, _| {}).await.unwrap();
        assert_eq!(Tree::of(lower.clone()).await.unwrap().differences(&before), Vec::<String>::new());
        let fs = put_on(&rt, lower.clone(), 2).await.unwrap();
        fs.close().await.unwrap();
    });
}

/// A read-only mount leaves no attribute, and is refused nevertheless; a damaged attribute is an error, not a guess.
#[test]
fn it_is_not_guessed_and_not_forced() {
    simulate(1, async |rt| {
        let (_, lower) = memory_lfs(&rt, 16 << 20).await;
        let fs = put_on(&rt, lower.clone(), 1).await.unwrap();
        Client::new(fs.clone()).write_file(b"/f", &text(9_000)).await.unwrap();
        fs.syncfs().await.unwrap();
        let below = Client::new(lower.clone());
        let mark = below.get_xattr(b"/", directory::NAME).await.unwrap();
        for bit in 0..mark.len() * 8 {
            let mut bad = mark.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            below.set_xattr(b"/", directory::NAME, &bad).await.unwrap();
            for kind in 0..KINDS {
                let put = put_on(&rt, lower.clone(), kind).await.map(drop);
                assert!(matches!(put, Err(FsError::Corrupt { .. })), "bit {bit}, {kind}: {put:?}");
            }
        }
        for short in [0, 1, mark.len() - 1] {
            below.set_xattr(b"/", directory::NAME, &mark[..short]).await.unwrap();
            assert!(put_on(&rt, lower.clone(), 1).await.is_err(), "{short} bytes");
        }
    });
}

/// Layers that are stacked on a directory for the first time concurrently: those of one kind all succeed, and of
/// several kinds one.
#[test]
fn the_first_of_several_has_it() {
    for seed in replay("directory::the_first_of_several_has_it").seeds(0..40) {
        simulate(seed, async |rt| {
            let lower = model(&rt);
            let slow = super::times::slow(&rt, lower.clone(), seed, 20).await;
            let kinds = [[1, 1], [1, 2], [0, 1], [3, 0]][seed as usize % 4];
            let tasks: Vec<_> = kinds
                .into_iter()
                .map(|kind| {
                    let (rt, slow) = (rt.clone(), slow.clone());
                    rt.clone().spawn(async move {
                        let fs = put_on(&rt, slow, kind).await?;
                        Client::new(fs.clone()).write_file(format!("/f{kind}").as_bytes(), &text(5_000)).await?;
                        fs.syncfs().await
                    })
                })
                .collect();
            let mut ended = Vec::new();
            for task in tasks {
                ended.push(task.await);
            }
            let done = ended.iter().filter(|ended| ended.is_ok()).count();
            if kinds[0] == kinds[1] {
                assert_eq!(done, 2, "seed {seed}: {ended:?}");
                return;
            }
            assert_eq!(done, 1, "seed {seed}: {ended:?}");
            let mounts: Vec<bool> =
                [put_on(&rt, lower.clone(), kinds[0]).await, put_on(&rt, lower.clone(), kinds[1]).await]
                    .map(|put| put.is_ok())
                    .to_vec();
            assert_eq!(mounts.iter().filter(|&&is_ok| is_ok).count(), 1, "seed {seed}: {mounts:?}");
        });
    }
}

/// A power cut while the attribute is written: it exists or not, and the next mount with the right key succeeds either
/// way.
#[test]
fn a_cut_leaves_it_or_not() {
    simulate(1, async |rt| {
        let lower = WeakFs::new(&rt, MemFsOptions { capacity_bytes: 1 << 40, ..MemFsOptions::default() });
        let fs = stack_on(&rt, lower.clone(), encrypt(1)).await.unwrap();
        let client = Client::new(fs.clone());
        client.write_file(b"/f", &text(9_000)).await.unwrap();
        fs.close().await.unwrap();
        // A directory as it was before the attribute existed.
        lower.removexattr(Ino::ROOT, directory::NAME).await.unwrap();
        lower.syncfs().await.unwrap();
        let start = lower.position();
        stack_on(&rt, lower.clone(), encrypt(1)).await.unwrap().close().await.unwrap();
        let mut seen = [0; 2];
        for position in start..=lower.position() {
            for state in 0..6 {
                let left = lower.cut(position, state).await.unwrap();
                seen[usize::from(left.getxattr(Ino::ROOT, directory::NAME).await.is_ok())] += 1;
                assert!(stack_on(&rt, left.clone(), encrypt(2)).await.is_err());
                assert!(stack_on(&rt, left.clone(), zstd()).await.is_err());
                let again = Client::new(stack_on(&rt, left.clone(), encrypt(1)).await.unwrap());
                assert!(again.read_file(b"/f").await.unwrap() == text(9_000));
                assert!(left.getxattr(Ino::ROOT, directory::NAME).await.is_ok());
            }
        }
        assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    });
}

/// Over a file system without attributes, and one that has no room for one, files are sampled at each mount.
#[test]
fn without_attributes_files_are_asked() {
    simulate(1, async |rt| {
        let device: Device = Rc::new(Memory::new(16 << 20));
        crate::fs::ffs::mkfs(&rt, &device, &crate::fs::ffs::MkfsOptions::new([1, 2])).await.unwrap();
        let lower: Fs = crate::fs::ffs::mount(rt.clone(), device, crate::fs::ffs::Options::default()).await.unwrap();
        let no = lower.setxattr(Ino::ROOT, directory::NAME, b"x", XattrMode::Set).await;
        assert_eq!(no, Err(FsError::Unsupported));
        let fs = put_on(&rt, lower.clone(), 1).await.unwrap();
        Client::new(fs.clone()).write_file(b"/f", &text(9_000)).await.unwrap();
        fs.syncfs().await.unwrap();
        for kind in [0, 2, 3] {
            let put = put_on(&rt, lower.clone(), kind).await.map(drop);
            assert!(matches!(put, Err(FsError::Invalid(_))), "{kind}: {put:?}");
        }
        assert!(put_on(&rt, lower.clone(), 1).await.is_ok());
    });
}
