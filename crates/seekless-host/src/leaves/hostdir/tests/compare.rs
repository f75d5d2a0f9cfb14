//! Aim: the host gives the model's answers. Method: generated operations on both at once; each answer and the final
//! trees are compared.

use seekless::fs::OpenProtocol;
use seekless::layer::wrap;
use seekless::testing::runner::AttrView;
use seekless::testing::{Generator, MemFs, MemFsOptions, Op, OpMix, Outcome, Runner, Space, Tree};

use super::*;

/// Operations that Linux file systems refuse and the model does not: these are skipped on the model.
fn refused_by_hosts(op: &Op, host: &Outcome) -> bool {
    match (op, host) {
        // They have less room for attributes.
        (Op::SetXattr { .. } | Op::SetAcl { .. }, Outcome::Failed(FsError::NoSpace)) => true,
        // Links and devices have no user attributes.
        (Op::SetXattr { name, .. } | Op::RemoveXattr { name, .. }, Outcome::Failed(FsError::NotPermitted)) => {
            name.starts_with("user.")
        }
        // A symbolic link has no permissions of its own.
        (Op::Chmod { .. }, Outcome::Failed(FsError::Unsupported)) => true,
        _ => false,
    }
}

/// Runs `op` on both and compares the answers.
async fn compare_one(op: &Op, on_model: &mut Runner, on_host: &mut Runner) -> Result<(), String> {
    let found = on_host.apply(op).await;
    if refused_by_hosts(op, &found) {
        return Ok(());
    }
    let expected = on_model.apply(op).await;
    let agree = match (op, &expected, &found) {
        // The host decides where data ends and a hole begins, and whether there are holes.
        (Op::Seek { .. }, Outcome::Offset(_) | Outcome::Failed(FsError::NoSuchOffset), found) => {
            matches!(found, Outcome::Offset(_) | Outcome::Failed(FsError::NoSuchOffset))
        }
        // Of two reasons to refuse, either may come first.
        (Op::Link { .. } | Op::Rename { .. }, Outcome::Failed(_), Outcome::Failed(_)) => true,
        // The model opens any inode; only its listing reports that it is not a directory.
        (Op::ReadDir { .. }, Outcome::Failed(FsError::NotDirectory), Outcome::Failed(FsError::Invalid(_))) => true,
        _ => expected.agrees(&found),
    };
    if agree { Ok(()) } else { Err(format!("{op}\n  model: {expected}\n  host:  {found}")) }
}

/// A model with the options that the host is expected to have.
fn model_options(bench: &Bench) -> MemFsOptions {
    let access_lists = bench.dir.traits().access_lists;
    MemFsOptions { open_protocol: OpenProtocol::Handles, access_lists, ..MemFsOptions::default() }
}

/// Overlay operations need privileges, and support by the file system below.
const CURIOUS: OpMix = OpMix { overlays: false, ..OpMix::CURIOUS };

/// Operations on lists, where they are supported.
fn weights(bench: &Bench) -> OpMix {
    if bench.dir.traits().access_lists { CURIOUS.with_access_lists() } else { CURIOUS }
}

pub(super) async fn compare(bench: Bench, seed: u64, steps: usize, space: Space, weights: OpMix) {
    as_the_model(&bench).await;
    let options = model_options(&bench);
    let model = MemFs::with_options(&bench.rt, options);
    let (mut on_model, mut on_host) =
        (Runner::new(&bench.rt, model.clone()), Runner::new(&bench.rt, bench.dir.clone()));
    let mut done = Vec::new();
    for op in Generator::new(seed, space, weights).take(steps) {
        let op = match op {
            // Idle time would be real time here.
            Op::Idle { .. } => continue,
            op => op,
        };
        done.push(op.clone());
        if let Err(difference) = compare_one(&op, &mut on_model, &mut on_host).await {
            let before = seekless::testing::ops::to_text(&done[done.len().saturating_sub(40)..]);
            panic!("seed {seed}, {difference}\nafter\n{before}");
        }
    }
    on_model.close().await.unwrap();
    on_host.close().await.unwrap();
    let (expected, found) = (Tree::of(model).await.unwrap(), Tree::of(bench.dir.clone()).await.unwrap());
    assert_eq!(found.problems, Vec::<String>::new(), "seed {seed}");
    assert_eq!(expected.differences(&found), Vec::<String>::new(), "seed {seed}");
}

/// The root's owner and permissions are the temporary directory's; make them the model's.
async fn as_the_model(bench: &Bench) {
    let changes = SetAttr { permissions: Some(0o755), uid: Some(0), gid: Some(0), ..SetAttr::default() };
    bench.dir.setattr(Ino::ROOT, None, changes).await.unwrap();
}

/// With every way of keeping inodes, two of which close all files.
#[test]
fn the_host_answers_as_the_model() {
    if !is_root() {
        return;
    }
    for (number, options) in WAYS.into_iter().enumerate() {
        for seed in 0..6 {
            run(options, async |bench| {
                let space = Space { odd_names: true, far_offset: 1 << 40, ..Space::small() };
                compare(bench, seed * 10 + number as u64, 600, space, CURIOUS).await;
            });
        }
    }
}

/// More names, larger files, deeper directories.
#[test]
fn large_trees_agree_too() {
    if !is_root() {
        return;
    }
    for (number, options) in WAYS.into_iter().enumerate() {
        run(options, async |bench| {
            compare(bench, 100 + number as u64, 2_000, Space::large(), CURIOUS).await;
        });
    }
}

/// The same through a layer over the host.
#[test]
fn wrap_on_the_host_answers_as_the_model() {
    if !is_root() {
        return;
    }
    run(WAYS[0], async |bench| {
        as_the_model(&bench).await;
        let wrapped = wrap::stack_on(bench.dir.clone(), wrap::Options::default()).await.unwrap();
        let model = MemFs::with_options(&bench.rt, model_options(&bench));
        let mut on_model = Runner::new(&bench.rt, model.clone());
        let mut on_host = Runner::new(&bench.rt, wrapped.clone());
        for op in Generator::new(7, Space::small(), weights(&bench)).take(600) {
            if !matches!(op, Op::Idle { .. }) {
                compare_one(&op, &mut on_model, &mut on_host).await.unwrap();
            }
        }
        on_model.close().await.unwrap();
        on_host.close().await.unwrap();
        let (expected, found) = (Tree::of(model).await.unwrap(), Tree::of(wrapped).await.unwrap());
        assert_eq!(found.problems, Vec::<String>::new());
        assert_eq!(expected.differences(&found), Vec::<String>::new());
    });
}

/// The same through a layer that stores files encoded, with chunks small enough to use all of its code; the files that
/// it leaves in the directory are consistent.
#[test]
fn zstd_on_the_host_answers_as_the_model() {
    use seekless::layer::codecs::Zstd;
    use seekless::layer::log::{Options, check, stack_on};
    if !is_root() {
        return;
    }
    for (number, way) in WAYS.into_iter().enumerate() {
        run(way, async |bench| {
            as_the_model(&bench).await;
            let options =
                Options { chunk_shift: 12, dirty_bytes_max: 64 << 10, ..Options::new(Arc::new(Zstd::default())) };
            let layer = stack_on(&bench.rt, bench.dir.clone(), options.clone()).await.unwrap();
            let model = MemFs::with_options(&bench.rt, model_options(&bench));
            let mut on_model = Runner::new(&bench.rt, model.clone());
            let mut on_host = Runner::new(&bench.rt, layer.clone());
            let space = Space { far_offset: 1 << 40, ..Space::small() };
            for op in Generator::new(70 + number as u64, space, weights(&bench)).take(500) {
                if !matches!(op, Op::Idle { .. }) {
                    compare_one(&op, &mut on_model, &mut on_host).await.unwrap();
                }
            }
            on_model.close().await.unwrap();
            on_host.close().await.unwrap();
            layer.close().await.unwrap();
            let layer = stack_on(&bench.rt, bench.dir.clone(), options.clone()).await.unwrap();
            let (expected, found) = (Tree::of(model).await.unwrap(), Tree::of(layer.clone()).await.unwrap());
            assert_eq!(found.problems, Vec::<String>::new());
            assert_eq!(expected.differences(&found), Vec::<String>::new());
            layer.close().await.unwrap();
            let report = check::check(&bench.rt, bench.dir.clone(), options, false).await.unwrap();
            assert_eq!(report.findings, []);
        });
    }
}

/// Attributes and owners are right on the host itself, too.
#[test]
fn attributes_are_the_hosts() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    run(WAYS[0], async |bench| {
        bench.client.write_file(b"f", b"hello").await.unwrap();
        bench.client.link(b"f", b"g").await.unwrap();
        let attr = bench.client.stat(b"f").await.unwrap();
        let host = std::fs::metadata(bench.path.join("g")).unwrap();
        assert_eq!(attr.ino.0, host.ino());
        assert_eq!((attr.size, attr.sectors, attr.links), (host.size(), host.blocks(), 2));
        assert_eq!(u32::from(attr.permissions), host.permissions().mode() & 0o7777);
        assert_eq!((attr.mtime.seconds, i64::from(attr.mtime.nanos)), (host.mtime(), host.mtime_nsec()));
        assert_eq!(AttrView::from(&attr).kind, FileKind::Regular);
        let times = SetAttr {
            atime: Some(SetTime::At(WallTime { seconds: 1, nanos: 2 })),
            mtime: Some(SetTime::At(WallTime { seconds: -3, nanos: 4 })),
            ..SetAttr::default()
        };
        let set = bench.client.setattr(b"f", times).await.unwrap();
        assert_eq!((set.atime.seconds, set.atime.nanos, set.mtime.seconds, set.mtime.nanos), (1, 2, -3, 4));
        bench.client.symlink(b"nowhere", b"s").await.unwrap();
        let set = bench.client.setattr(b"s", times).await.unwrap();
        assert_eq!((set.mtime.seconds, set.kind), (-3, FileKind::Symlink));
        let stat = bench.client.fs().statfs().await.unwrap();
        assert!(stat.blocks >= stat.blocks_free && stat.block_bytes >= 512 && stat.name_bytes_max >= 14);
    });
}
