//! Aim: whatever is on members that keep nothing about how they were put together survives that they are put together in another way,
//! mounted for writing, and written to. Method: each kind of volume, arranged in each way, with much or little on it; then in each
//! other way or order, where it is checked, repaired, mounted and filled as far as that is possible; then in the first way again,
//! where all is compared.

use std::collections::BTreeSet;
use std::rc::Rc;

use seekless::device::{BlockDevice, Buf, Data, Device, Memory, WriteFlags};
use seekless::fs::client::Client;
use seekless::fs::ffs::format::{SUPERBLOCK_BYTES, decode_superblock};
use seekless::fs::{Fs, FsError, ffs, lfs, vlfs};
use seekless::rng::Rng;
use seekless::rt::{Limits, Rt};
use seekless::testing::environment::soak;
use seekless::testing::subject::simulate;
use seekless::units::{KIB, MIB, Nanos, Sector};
use seekless::vlog::{self, Vld};
use seekless::volume;

const MEMBER_BYTES: u64 = 6 * MIB;
/// Grows with what is drawn.
const SOAK_LIMITS: Limits = Limits { events: u64::MAX, until: Nanos(u64::MAX) };
const LIMITS: Limits = Limits { events: 10_000_000, until: Nanos::from_secs(100_000) };

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum VolumeKind {
    Lfs,
    Vlfs,
    Ffs,
    Vld,
}

/// How members are put together; units and chunks in sectors.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Concat,
    Stripe(u64),
    Permute(u64),
    Remap(u64),
    Volume(u64),
}

const WAYS: [Way; 9] = [
    Way::Concat,
    Way::Stripe(32),
    Way::Stripe(64),
    Way::Stripe(128),
    Way::Stripe(512),
    Way::Permute(64),
    Way::Remap(128),
    Way::Remap(2048),
    Way::Volume(128),
];

fn arranged(way: Way, members: &[Rc<Memory>]) -> Device {
    let members: Vec<Device> = members.iter().map(|member| member.clone() as Device).collect();
    match way {
        Way::Concat => volume::concat(members).unwrap(),
        Way::Stripe(sectors) => volume::raid0(members, sectors).unwrap(),
        Way::Permute(sectors) => volume::permute(volume::raid0(members, 64).unwrap(), sectors, 7, None).unwrap(),
        Way::Remap(sectors) => volume::remap(volume::concat(members).unwrap(), sectors, 7).unwrap(),
        Way::Volume(sectors) => volume::volume(members, sectors, 64, 7).unwrap(),
    }
}

fn content(file: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (file.wrapping_mul(37) + (at / 512) as u64 * 11 + at as u64 % 7) as u8).collect()
}

const FILE_BYTES: usize = 50_000;

async fn mount(rt: &Rt, kind: VolumeKind, device: Device) -> Result<Fs, String> {
    let rt = rt.clone();
    match kind {
        VolumeKind::Lfs => lfs::mount(rt, device, lfs::Options::default()).await.map_err(|error| error.to_string()),
        VolumeKind::Vlfs => vlfs::mount(rt, device, vlfs::Options::default()).await.map_err(|error| error.to_string()),
        _ => match ffs::mount(rt, device, ffs::Options::default()).await {
            Ok(fs) => Ok(fs),
            Err(error) => Err(error.to_string()),
        },
    }
}

async fn open_vld(rt: &Rt, device: Device) -> Result<Rc<Vld>, String> {
    Vld::open(rt, device, vlog::Options::default()).await.map_err(|error| error.to_string())
}

/// `files` of 50 kB, or as much in blocks.
async fn make(rt: &Rt, kind: VolumeKind, device: Device, files: u64) {
    match kind {
        VolumeKind::Lfs => lfs::mkfs(rt, &device, &lfs::MkfsOptions::new([1, 2, 3, 4])).await.unwrap(),
        VolumeKind::Vlfs => vlfs::mkfs(rt, &device, &vlfs::MkfsOptions::new([1, 2, 3, 4])).await.unwrap(),
        VolumeKind::Ffs => ffs::mkfs(rt, &device, &ffs::MkfsOptions::new([1, 2])).await.unwrap(),
        VolumeKind::Vld => {
            let plan = vlog::Plan {
                block_bytes: 4096,
                reserve: 1000,
                map_log: vlog::MapLog::Tree,
                snapshots: 0,
                uuid: [1; 16],
                key: [2; 16],
            };
            let vld = Vld::create(rt, device, &plan, vlog::Options::default()).await.unwrap();
            for file in 0..files {
                let data = Data::from_slice(&content(file, 48 * KIB as usize));
                vld.write(Sector(file * 96), data, WriteFlags::NONE).await.unwrap();
                if file % 20 == 0 {
                    vld.flush().await.unwrap();
                }
            }
            vld.flush().await.unwrap();
            vld.release().await.unwrap();
            return;
        }
    }
    let fs = mount(rt, kind, device).await.unwrap();
    let client = Client::new(fs.clone());
    for file in 0..files {
        client.write_file(format!("/f{file}").as_bytes(), &content(file, FILE_BYTES)).await.unwrap();
    }
    fs.close().await.unwrap();
}

/// All that a user could do to the volume. False where it was not mounted.
async fn misuse(rt: &Rt, kind: VolumeKind, device: Device) -> bool {
    let _ = match kind {
        VolumeKind::Lfs => {
            let options = lfs::FsckOptions { repair: true, ..lfs::FsckOptions::default() };
            lfs::fsck(rt.clone(), device.clone(), options).await.map(drop)
        }
        VolumeKind::Vlfs => {
            let options = vlfs::FsckOptions { repair: true, ..vlfs::FsckOptions::default() };
            vlfs::fsck(rt.clone(), device.clone(), options).await.map(drop)
        }
        VolumeKind::Ffs => {
            let options = ffs::FsckOptions { repair: true, ..ffs::FsckOptions::default() };
            ffs::fsck(rt, &device, options).await.map(drop)
        }
        VolumeKind::Vld => Ok(()),
    };
    if kind == VolumeKind::Vld {
        let Ok(vld) = open_vld(rt, device).await else { return false };
        let from = vld.geometry().sectors / 2;
        for file in 0..100 {
            let data = Data::from_slice(&content(file + 1000, 48 * KIB as usize));
            let _ = vld.write(Sector(from / 8 * 8 + file * 96), data, WriteFlags::NONE).await;
        }
        let _ = vld.flush().await;
        let _ = vld.release().await;
        return true;
    }
    let Ok(fs) = mount(rt, kind, device).await else { return false };
    let client = Client::new(fs.clone());
    for file in 0..200 {
        let _ = client.write_file(format!("/new{file}").as_bytes(), &[9; 70_000]).await;
    }
    let _ = fs.close().await;
    true
}

/// What has been lost.
async fn compare(rt: &Rt, kind: VolumeKind, device: Device, files: u64) -> Result<(), String> {
    if kind == VolumeKind::Vld {
        let vld = open_vld(rt, device).await?;
        for file in 0..files {
            let found = vld.read(Sector(file * 96), Buf::zeroed(48 * KIB as usize)).await;
            let found = found.map_err(|error| error.to_string())?;
            if found[..] != content(file, 48 * KIB as usize)[..] {
                return Err(format!("file {file}"));
            }
        }
        return vld.release().await.map_err(|error| error.to_string());
    }
    let fs = mount(rt, kind, device).await?;
    let client = Client::new(fs.clone());
    for file in 0..files {
        let found = client.read_file(format!("/f{file}").as_bytes()).await;
        if found != Ok(content(file, FILE_BYTES)) {
            return Err(format!("file {file}: {:?}", found.map(drop)));
        }
    }
    fs.close().await.map_err(|error| error.to_string())
}

/// Makes a volume, puts its members together in another way, and then again in the first. Returns whether the other way was mounted, and
/// what was lost: on one of both everything is whole, on the other one nothing can be done.
async fn attempt(
    rt: &Rt,
    kind: VolumeKind,
    files: u64,
    (made, members): (Way, usize),
    opened: Way,
    order: &[usize],
) -> (bool, Result<(), String>) {
    let members: Vec<Rc<Memory>> = (0..members).map(|_| Rc::new(Memory::new(MEMBER_BYTES))).collect();
    make(rt, kind, arranged(made, &members), files).await;
    let others: Vec<Rc<Memory>> = order.iter().map(|&member| members[member].clone()).collect();
    let accepted = misuse(rt, kind, arranged(opened, &others)).await;
    if !accepted {
        return (false, compare(rt, kind, arranged(made, &members), files).await);
    }
    // What was swapped held nothing.
    let found = compare(rt, kind, arranged(opened, &others), files).await;
    let found = found.map_err(|why| format!("in the other way: {why}"));
    let (whole, which) = match misuse(rt, kind, arranged(made, &members)).await {
        true => (arranged(made, &members), "in the first way again"),
        false => (arranged(opened, &others), "in the other way, after the first"),
    };
    let again = compare(rt, kind, whole, files).await.map_err(|why| format!("{which}: {why}"));
    (true, found.and(again))
}

fn check(kind: VolumeKind) {
    let run = async move |rt: Rt| {
        let (mut tried, mut accepted, mut lost) = (0, Vec::new(), Vec::new());
        let mut note = |what: String, (is_accepted, result): (bool, Result<(), String>)| {
            tried += 1;
            if is_accepted {
                accepted.push(what.clone());
            }
            if let Err(why) = result {
                lost.push(format!("{what}: {why}"));
            }
        };
        for files in [3, 100] {
            for made in WAYS {
                for opened in WAYS.into_iter().filter(|opened| *opened != made) {
                    let result = attempt(&rt, kind, files, (made, 2), opened, &[0, 1]).await;
                    note(format!("{files} files, made as {made:?}, opened as {opened:?}"), result);
                }
                let single = attempt(&rt, kind, files, (made, 2), made, &[0]).await;
                note(format!("{files} files, made as {made:?}, the first member alone"), single);
                let orders: [&[usize]; 9] = [
                    &[1, 0],
                    &[0, 2, 1],
                    &[1, 0, 2],
                    &[2, 1, 0],
                    &[0, 2, 1, 3],
                    &[1, 2, 3, 0],
                    &[0, 1, 3, 2, 4],
                    &[0, 3, 2, 1, 4],
                    &[0, 2, 3, 1, 4],
                ];
                for order in orders {
                    let result = attempt(&rt, kind, files, (made, order.len()), made, order).await;
                    note(format!("{files} files, {made:?} in the order {order:?}"), result);
                }
            }
        }
        eprintln!("{kind:?}: {tried} tried, {} accepted, {} lost", accepted.len(), lost.len());
        accepted.iter().for_each(|what| eprintln!("accepted: {what}"));
        lost.iter().for_each(|what| eprintln!("LOST {what}"));
        assert!(lost.is_empty());
    };
    simulate(1, LIMITS, run).unwrap_or_else(|why| panic!("{why}"));
}

/// The same with ways, orders and amounts that the seed draws: `SEEKLESS_SOAK` times as many.
#[test]
fn drawn_ways_lose_nothing() {
    let run = async |rt: Rt| {
        let (mut tried, mut accepted) = ([0; 4], [0; 4]);
        for seed in 0..soak().times(24) as u64 {
            let mut rng = Rng::new(seed);
            let at = seed as usize % 4;
            let kind = [VolumeKind::Lfs, VolumeKind::Vlfs, VolumeKind::Ffs, VolumeKind::Vld][at];
            let mut way = || match rng.below(5) {
                0 => Way::Concat,
                1 => Way::Stripe(8 << rng.below(9)),
                2 => Way::Permute(64 << rng.below(4)),
                3 => Way::Remap(64 << rng.below(6)),
                _ => Way::Volume(64 << rng.below(4)),
            };
            let (made, mut opened) = (way(), way());
            let members = rng.between(2, 6) as usize;
            let mut order: Vec<usize> = (0..members).collect();
            if rng.chance(2, 3) {
                opened = made;
                rng.shuffle(&mut order);
            }
            // As much as fits twice.
            let files = rng.below(40 * members as u64).max(1);
            let is_same = made == opened && order.is_sorted();
            let (is_accepted, result) = attempt(&rt, kind, files, (made, members), opened, &order).await;
            tried[at] += 1;
            accepted[at] += u32::from(is_accepted && !is_same);
            let what =
                format!("seed {seed}, {kind:?}, {files} files, made as {made:?}, opened as {opened:?}, {order:?}");
            result.unwrap_or_else(|why| panic!("{what}: {why}"));
            assert!(is_accepted || !is_same, "{what}: refused");
        }
        eprintln!("LFS, VLFS, FFS, VLD: {tried:?} tried, {accepted:?} accepted in another way");
    };
    simulate(1, SOAK_LIMITS, run).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn lfs_put_together_wrongly_loses_nothing() {
    check(VolumeKind::Lfs);
}

#[test]
fn vlfs_put_together_wrongly_loses_nothing() {
    check(VolumeKind::Vlfs);
}

#[test]
fn ffs_put_together_wrongly_loses_nothing() {
    check(VolumeKind::Ffs);
}

#[test]
fn vld_put_together_wrongly_loses_nothing() {
    check(VolumeKind::Vld);
}

/// Of blocks that show how FFS was put together, a repair allows for one that is damaged, and for more where the user says so; a check
/// without a repair reports them. On one device no order can be wrong, and nothing is looked at. Method: flipped bits in data of files that is among
/// the witnesses, and in what names these.
#[test]
fn damaged_witnesses_of_ffs_end_after_a_repair() {
    let run = async |rt: Rt| {
        let one = |memory: &Rc<Memory>| memory.clone() as Device;
        let members = [(); 3].map(|()| Rc::new(Memory::new(MEMBER_BYTES)));
        let alone = || Rc::new(Memory::new(MEMBER_BYTES));
        let assembled = [
            arranged(Way::Concat, &members),
            arranged(Way::Stripe(64), &[alone(), alone()]),
            arranged(Way::Remap(128), &[alone()]),
        ];
        for device in assembled {
            for (wanted, trust_order) in [(1, false), (1, true), (2, true)] {
                make(&rt, VolumeKind::Ffs, device.clone(), 100).await;
                let mut flipped = 0;
                let mut raw = device.read(Sector(16), Buf::zeroed(SUPERBLOCK_BYTES)).await.unwrap();
                let mut superblock = decode_superblock(&raw).unwrap();
                let witnesses: Vec<Sector> =
                    superblock.sparecon64[6..16].iter().map(|field| Sector(u64::from(*field as u32) * 2)).collect();
                let known: BTreeSet<Vec<u8>> = (0..100)
                    .flat_map(|file| content(file, FILE_BYTES).chunks(512).map(<[u8]>::to_vec).collect::<Vec<_>>())
                    .collect();
                for &at in &witnesses {
                    let mut bytes = device.read(at, Buf::zeroed(512)).await.unwrap().to_vec();
                    if known.contains(&bytes) && flipped < wanted {
                        bytes[9] ^= 1;
                        device.write(at, Data::from_slice(&bytes), WriteFlags::NONE).await.unwrap();
                        flipped += 1;
                    }
                }
                let damaged = ffs::fsck(&rt, &device, ffs::FsckOptions::default()).await.unwrap().problems;
                assert_eq!(damaged.len(), wanted, "{}", device.describe());
                assert!(damaged[0].text.contains(" of inode "), "{}", damaged[0].text);
                let refused =
                    mount(&rt, VolumeKind::Ffs, device.clone()).await.err().expect("a block is something else");
                assert!(refused.contains("assembled differently"), "{refused}");
                let repair = ffs::FsckOptions { repair: true, ..ffs::FsckOptions::default() };
                if wanted > 1 {
                    let refused = ffs::fsck(&rt, &device, repair).await;
                    assert!(matches!(refused, Err(FsError::Corrupt { what: ffs::PLACES, .. })), "{refused:?}");
                }
                let found = ffs::fsck(&rt, &device, ffs::FsckOptions { trust_order, ..repair }).await.unwrap();
                assert!(found.problems.len() == wanted && found.problems.iter().all(|problem| problem.repaired));
                assert!(found.notes.iter().any(|note| note.contains("-inum")), "{:?}", found.notes);
                assert!(ffs::fsck(&rt, &device, repair).await.unwrap().is_clean());
                // The next life has witnesses again. What names them may be damaged, too.
                mount(&rt, VolumeKind::Ffs, device.clone()).await.unwrap().close().await.unwrap();
                raw = device.read(Sector(16), Buf::zeroed(SUPERBLOCK_BYTES)).await.unwrap();
                superblock = decode_superblock(&raw).unwrap();
                assert!(superblock.sparecon64[6..16].iter().all(|field| *field != 0));
                superblock.sparecon64[7..9].iter_mut().for_each(|field| *field ^= 1 << 40);
                superblock.encode(&mut raw);
                device.write(Sector(16), raw.freeze(), WriteFlags::NONE).await.unwrap();
                mount(&rt, VolumeKind::Ffs, device.clone()).await.unwrap().close().await.unwrap();
            }
        }
        let alone: [Device; 3] =
            [one(&alone()), arranged(Way::Concat, &[alone()]), arranged(Way::Stripe(64), &[alone()])];
        for device in alone {
            make(&rt, VolumeKind::Ffs, device.clone(), 100).await;
            let raw = device.read(Sector(16), Buf::zeroed(SUPERBLOCK_BYTES)).await.unwrap();
            let mut superblock = decode_superblock(&raw).unwrap();
            assert_eq!(superblock.sparecon64[4..16], [0; 12]);
            // As if it had come from an array.
            let mut raw = raw;
            superblock.sparecon64[4..16].fill(0x5774_6e73_0000_1234);
            superblock.encode(&mut raw);
            device.write(Sector(16), raw.freeze(), WriteFlags::NONE).await.unwrap();
            mount(&rt, VolumeKind::Ffs, device.clone()).await.unwrap().close().await.unwrap();
            assert!(ffs::fsck(&rt, &device, ffs::FsckOptions::default()).await.unwrap().is_clean());
        }
    };
    simulate(1, LIMITS, run).unwrap_or_else(|why| panic!("{why}"));
}

/// A single damaged landmark is written again, and two are taken for another order of members, but for a use that is read-only.
#[test]
fn a_damaged_landmark_is_mended() {
    let run = async |rt: Rt| {
        let members = [(); 3].map(|()| Rc::new(Memory::new(MEMBER_BYTES)));
        let device = arranged(Way::Stripe(64), &members);
        make(&rt, VolumeKind::Vld, device.clone(), 10).await;
        let landmarks: Vec<Sector> = {
            let vld = open_vld(&rt, device.clone()).await.unwrap();
            vld.layout().landmarks().iter().map(|&block| vld.layout().sector_of(block)).collect()
        };
        assert!(landmarks.len() > 30, "{landmarks:?}");
        let read = async |at: Sector| device.read(at, Buf::zeroed(4096)).await.unwrap();
        let damage = async |at: Sector| device.write(at + 3, Data::zeroes(512), WriteFlags::NONE).await.unwrap();
        let before = read(landmarks[7]).await;
        damage(landmarks[7]).await;
        open_vld(&rt, device.clone()).await.unwrap();
        assert_eq!(read(landmarks[7]).await[..], before[..]);
        damage(landmarks[7]).await;
        damage(landmarks[8]).await;
        assert!(open_vld(&rt, device.clone()).await.is_err());
        assert_ne!(read(landmarks[7]).await[..], before[..]);
        let options = vlog::Options { read_only: true, ..vlog::Options::default() };
        Vld::open(&rt, device.clone(), options).await.unwrap();
    };
    simulate(1, LIMITS, run).unwrap_or_else(|why| panic!("{why}"));
}
