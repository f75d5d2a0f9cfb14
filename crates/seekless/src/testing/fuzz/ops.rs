//! Operations from arbitrary bytes, and LFS against the model with them.

use std::rc::Rc;

use super::Bytes;
use crate::device::{Device, Memory};
use crate::fs::acl::{Acl, AclKind};
use crate::fs::lfs::{self, CleanerPolicy, FsckOptions, MkfsOptions, Options};
use crate::fs::{AllocateMode, FileRange, FsError, NodeKind, RenameMode, SeekTo, XattrMode};
use crate::rt::{Limits, Rt};
use crate::testing::ops::{Filling, LEAVE_WHITEOUT, Op, Path, Target};
use crate::testing::subject::simulate;
use crate::testing::{Comparison, MemFs, MemFsOptions, Pair};
use crate::units::{KIB, MIB, Nanos};

/// Limit of operations in one input, so that no input takes long.
const OPS_MAX: usize = 400;

/// Limits of a run: some operations move megabytes, none takes hours.
const LIMITS: Limits = Limits { events: 5_000_000, until: Nanos::from_secs(1_000_000) };

/// One of few names in few directories, so that operations meet.
fn path(bytes: &mut Bytes<'_>) -> Path {
    let choice = bytes.u8();
    let directory = ["", "/a", "/b", "/a/c"][usize::from(choice / 8) % 4];
    match choice % 8 {
        6 => Path([directory.as_bytes(), b"/", &[b'n'; 255][..]].concat()),
        // Many names, for directories that grow and shrink.
        7 => Path::from(&*format!("{directory}/n{}", bytes.u8())),
        name => Path::from(&*format!("{directory}/{}", ["a", "b", "c", "f", "g", "h"][usize::from(name)])),
    }
}

fn target(bytes: &mut Bytes<'_>) -> Target {
    match bytes.u8() {
        slot @ 0..16 => Target::Slot(slot % 2),
        _ => Target::Path(path(bytes)),
    }
}

/// Near boundaries: sectors, blocks, direct and indirect blocks, and occasionally far away.
fn offset(bytes: &mut Bytes<'_>) -> u64 {
    let choice = bytes.u8();
    let base = [0, 512, 4096, 7 * 4096, 8 * 4096, 348 * 4096, 1 << 30, 1 << 42][usize::from(choice) % 8];
    (base + u64::from(bytes.u16()) % 5000).saturating_sub(u64::from(choice / 8) * 16)
}

fn length(bytes: &mut Bytes<'_>) -> u32 {
    let choice = bytes.u16();
    match choice % 4 {
        0 => u32::from(choice / 4) % 64,
        1 => u32::from(choice / 4) % 5000,
        2 => 4096 * (u32::from(choice / 4) % 16),
        _ => u32::from(choice / 4) * 8,
    }
}

/// The next operation from `bytes`.
pub fn op(bytes: &mut Bytes<'_>) -> Op {
    const PERMISSIONS: [u16; 5] = [0o644, 0o755, 0o4755, 0o2770, 0];
    const NAMES: [&str; 3] = ["user.a", "user.b", "security.capability"];
    let permissions = bytes.pick(&PERMISSIONS);
    let name = |bytes: &mut Bytes<'_>| bytes.pick(&NAMES).to_string();
    let filling = |bytes: &mut Bytes<'_>| Filling { bytes: length(bytes), tag: bytes.u8().into() };
    match bytes.u8() % 32 {
        0 | 1 => Op::Create { path: path(bytes), permissions },
        2 => Op::Mkdir { path: path(bytes), permissions },
        3 => {
            let kinds = [NodeKind::Regular, NodeKind::Fifo, NodeKind::Socket, NodeKind::CharDevice { device: 0x401 }];
            Op::Mknod { path: path(bytes), kind: bytes.pick(&kinds), permissions }
        }
        4 => Op::Symlink { path: path(bytes), to: Path(vec![b'x'; 1 + usize::from(bytes.u8())]) },
        5 => Op::Link { existing: target(bytes), path: path(bytes) },
        6 => Op::Unlink { path: path(bytes) },
        7 => Op::Rmdir { path: path(bytes) },
        8 => {
            let spare = RenameMode::Whiteout { replace: false, uid: 0, gid: 0 };
            let all = [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange, LEAVE_WHITEOUT, spare];
            let mode = bytes.pick(&all);
            Op::Rename { from: path(bytes), to: path(bytes), mode }
        }
        9..=12 => Op::Write { target: target(bytes), offset: offset(bytes), filling: filling(bytes) },
        13 => Op::Append { target: target(bytes), filling: filling(bytes) },
        14 | 15 => Op::Truncate { target: target(bytes), size: offset(bytes) },
        16 | 17 => {
            let mode = match bytes.u8() % 5 {
                0 => AllocateMode::Allocate { keep_size: false },
                1 => AllocateMode::Allocate { keep_size: true },
                2 => AllocateMode::Zero { keep_size: false },
                3 => AllocateMode::Zero { keep_size: true },
                _ => AllocateMode::PunchHole,
            };
            let range = FileRange { offset: offset(bytes), bytes: u64::from(length(bytes)).max(1) };
            Op::Allocate { target: target(bytes), range, mode }
        }
        18 => Op::Chmod { target: target(bytes), permissions },
        19 => Op::Chown { target: target(bytes), uid: bytes.u8().into(), gid: bytes.u8().into() },
        20 => Op::Touch { target: target(bytes), seconds: bytes.edge() as i64 / 2 },
        21 => {
            let mode = bytes.pick(&[XattrMode::Set, XattrMode::Create, XattrMode::Replace]);
            let mut filling = filling(bytes);
            filling.bytes %= 65_537;
            Op::SetXattr { target: target(bytes), name: name(bytes), filling, mode }
        }
        22 => Op::RemoveXattr { target: target(bytes), name: name(bytes) },
        23 => {
            let range = FileRange { offset: offset(bytes), bytes: length(bytes).into() };
            Op::Read { target: target(bytes), range }
        }
        24 => Op::ReadDir { path: path(bytes) },
        25 => {
            let seek = bytes.pick(&[SeekTo::Data, SeekTo::Hole]);
            Op::Seek { target: target(bytes), offset: offset(bytes), seek }
        }
        26 => Op::Open { slot: bytes.u8() % 2, path: path(bytes) },
        27 => Op::Close { slot: bytes.u8() % 2 },
        28 => Op::Fsync { target: target(bytes), data_only: bytes.u8() % 2 == 1 },
        29 => Op::FsyncDir { path: path(bytes) },
        30 if bytes.u8().is_multiple_of(2) => Op::DropCaches,
        30 => Op::Sync,
        _ => match bytes.u8() {
            choice @ 96..128 => Op::TmpFile {
                slot: choice % 2,
                directory: path(bytes),
                permissions,
                linkable: !choice.is_multiple_of(5),
            },
            choice @ 0..96 => Op::Idle { millis: u32::from(choice) * 200 },
            choice => access_list(choice, bytes),
        },
    }
}

fn access_list(choice: u8, bytes: &mut Bytes<'_>) -> Op {
    let kind = bytes.pick(&[AclKind::Access, AclKind::Default]);
    if choice.is_multiple_of(4) {
        return Op::RemoveXattr { target: target(bytes), name: String::from_utf8_lossy(kind.xattr()).into_owned() };
    }
    let rights = |bytes: &mut Bytes<'_>| ["---", "r--", "rw-", "rwx", "--x"][usize::from(bytes.u8()) % 5];
    let mut text = format!("u::{}", rights(bytes));
    for _ in 0..choice / 4 % 3 {
        text += &format!(",u:{}:{}", bytes.u8(), rights(bytes));
    }
    text += &format!(",g::{}", rights(bytes));
    for _ in 0..choice / 16 % 2 {
        text += &format!(",g:{}:{}", bytes.u8(), rights(bytes));
    }
    if text.matches(',').count() > 1 || choice.is_multiple_of(3) {
        text += &format!(",m::{}", rights(bytes));
    }
    text += &format!(",o::{}", rights(bytes));
    let acl: Acl = text.parse().unwrap_or_else(|error| unreachable!("{error}"));
    Op::SetAcl { target: target(bytes), kind, acl }
}

/// Every mount option that affects how operations work.
fn options(bytes: &mut Bytes<'_>) -> Options {
    let choice = bytes.u8();
    Options {
        cleaner: if choice & 1 == 0 { CleanerPolicy::COST_BENEFIT } else { CleanerPolicy::GREEDY },
        cache_bytes: if choice & 2 == 0 { 32 * MIB } else { 1 },
        dirty_bytes_max: if choice & 4 == 0 { 16 * MIB } else { 64 * KIB },
        indirect_in_log: choice & 8 != 0,
        overlap: choice & 128 == 0,
        read_ahead: choice & 64 == 0,
        cache_data: choice & 16 == 0,
        discard: choice & 32 == 0,
        discard_after: Nanos::from_secs(if choice & 16 == 0 { 0 } else { 7 }),
        read_around_bytes: if choice & 16 == 0 { 0 } else { 128 * KIB },
        ..Options::default()
    }
}

/// Operations on LFS and on the model: the answers are equal, occasionally the volume is closed, checked and mounted
/// again, and at the end both hold the same tree.
pub fn differential(input: &[u8]) {
    let mut bytes = Bytes::new(input);
    let (seed, options) = (bytes.u8(), options(&mut bytes));
    // The smallest volume makes the cleaner work.
    let volume = bytes.pick(&[9 * MIB, 16 * MIB, 64 * MIB]);
    let mut done = Vec::new();
    let run = simulate(seed.into(), LIMITS, async |rt| compare(&rt, bytes, volume, options, &mut done).await);
    if let Err(why) | Ok(Err(why)) = run {
        panic!("{why}\n\nafter, on {volume} bytes with {options:?}:\n{}", crate::testing::ops::to_text(&done));
    }
}

async fn compare(
    rt: &Rt,
    mut bytes: Bytes<'_>,
    volume: u64,
    options: Options,
    done: &mut Vec<Op>,
) -> Result<(), String> {
    let device: Device = Rc::new(Memory::new(volume));
    let text = |what: &str, error: FsError| format!("{what}: {error}");
    lfs::mkfs(rt, &device, &MkfsOptions::new([1, 2, 3, 4])).await.map_err(|error| text("mkfs", error))?;
    let mount = async || lfs::mount(rt.clone(), device.clone(), options).await.map_err(|error| text("mount", error));
    let model = MemFs::with_options(rt, MemFsOptions { capacity_bytes: 1 << 50, ..MemFsOptions::default() });
    let comparison = Comparison { tree_every: OPS_MAX, may_be_full: true, ..Comparison::default() };
    let mut pair = Pair::new(rt, mount().await?, model, comparison);
    while !bytes.is_empty() && done.len() < OPS_MAX {
        let remount = bytes.u8() == 0xff;
        let next = op(&mut bytes);
        done.push(next.clone());
        pair.apply(&next).await.map_err(|mismatch| mismatch.to_string())?;
        if remount || bytes.is_empty() || done.len() == OPS_MAX {
            pair.release().await.map_err(|mismatch| mismatch.to_string())?;
            pair.check_trees().await.map_err(|mismatch| mismatch.to_string())?;
            pair.fs().close().await.map_err(|error| text("close", error))?;
            let check =
                lfs::fsck(rt.clone(), device.clone(), FsckOptions { data: true, ..FsckOptions::default() }).await;
            let check = check.map_err(|error| text("fsck", error))?;
            if !check.is_clean() {
                return Err(format!("fsck found {:#?}", check.errors));
            }
            pair.remounted(mount().await?);
            pair.check_trees().await.map_err(|mismatch| mismatch.to_string())?;
        }
    }
    pair.fs().close().await.map_err(|error| text("close", error))
}
