//! Aim: a volume on members that keep nothing about how they were put together is not destroyed by a mount that puts them together in
//! another way. Method: two members, arranged in each of several ways, then in each other one, then in the first one again.

use std::rc::Rc;

use seekless::device::{Buf, Device, Memory, WriteFlags};
use seekless::fs::client::Client;
use seekless::fs::lfs::{self, FsckOptions, MkfsOptions, Options};
use seekless::rt::{Limits, Rt};
use seekless::testing::subject::simulate;
use seekless::units::{MIB, Nanos, Sector};
use seekless::volume;
use seekless::volume::raid::{Array, ArrayOptions, Contents, Level};

const MEMBER_BYTES: u64 = 6 * MIB;
const LIMITS: Limits = Limits { events: 10_000_000, until: Nanos::from_secs(100_000) };

/// Stripe units and chunks in sectors.
const WAYS: [&str; 6] = ["stripe 32", "stripe 64", "stripe 128", "stripe 512", "permute 64", "volume 128"];

fn arranged(way: &str, members: &[Rc<Memory>]) -> Device {
    let members: Vec<Device> = members.iter().map(|member| member.clone() as Device).collect();
    let (word, sectors) = way.split_once(' ').unwrap();
    let sectors: u64 = sectors.parse().unwrap();
    match word {
        "stripe" => volume::raid0(members, sectors).unwrap(),
        "permute" => volume::permute(volume::raid0(members, 64).unwrap(), sectors, 7, None).unwrap(),
        _ => volume::volume(members, sectors, 64, 7).unwrap(),
    }
}

async fn make(rt: &Rt, device: &Device) {
    lfs::mkfs(rt, device, &MkfsOptions::new([1, 2, 3, 4])).await.unwrap();
    let fs = lfs::mount(rt.clone(), device.clone(), Options::default()).await.unwrap();
    let client = Client::new(fs.clone());
    for file in 0..30u8 {
        client.write_file(format!("/f{file}").as_bytes(), &[file; 50_000]).await.unwrap();
    }
    fs.close().await.unwrap();
}

async fn compare(rt: &Rt, device: &Device, what: &str) -> Vec<String> {
    let fs = lfs::mount(rt.clone(), device.clone(), Options::default())
        .await
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    let client = Client::new(fs.clone());
    for file in 0..30u8 {
        let found = client.read_file(format!("/f{file}").as_bytes()).await;
        assert!(found == Ok(vec![file; 50_000]), "{what}: file {file}");
    }
    let warnings = fs.warnings();
    fs.close().await.unwrap();
    warnings
}

#[test]
fn a_forgotten_arrangement_destroys_nothing() {
    let run = async |rt: Rt| {
        for (made, opened) in WAYS.iter().flat_map(|made| WAYS.iter().map(move |opened| (made, opened))) {
            let what = format!("made as {made}, opened as {opened}");
            let members = [(); 2].map(|()| Rc::new(Memory::new(MEMBER_BYTES)));
            make(&rt, &arranged(made, &members)).await;
            let mounted = lfs::mount(rt.clone(), arranged(opened, &members), Options::default()).await;
            assert_eq!(mounted.is_ok(), made == opened, "{what}");
            if let Ok(fs) = mounted {
                fs.close().await.unwrap();
            }
            assert_eq!(compare(&rt, &arranged(made, &members), &what).await, Vec::<String>::new(), "{what}");
        }
    };
    simulate(1, LIMITS, run).unwrap_or_else(|why| panic!("{why}"));
}

async fn all_of(device: &Device) -> Buf {
    device.read(Sector(0), Buf::zeroed(device.geometry().bytes() as usize)).await.unwrap()
}

/// A copy of all bytes, as the array shows them, is a volume in its own right, however its members are put together. It is read once, and then it is
/// noted.
#[test]
fn a_copy_on_another_arrangement_is_whole() {
    let run = async |rt: Rt| {
        for to in WAYS {
            let from = [(); 2].map(|()| Rc::new(Memory::new(MEMBER_BYTES)));
            let members = [(); 2].map(|()| Rc::new(Memory::new(MEMBER_BYTES)));
            let (from, copy) = (arranged("stripe 128", &from), arranged(to, &members));
            make(&rt, &from).await;
            copy.write(Sector(0), all_of(&from).await.freeze(), WriteFlags::NONE).await.unwrap();
            let warnings = compare(&rt, &copy, to).await;
            assert_eq!(warnings.len(), usize::from(to != "stripe 128"), "{to}: {warnings:?}");
            assert_eq!(compare(&rt, &copy, to).await, Vec::<String>::new(), "{to}: it is noted");
            // One device, as a client of NBD sees it, and back.
            let bytes = all_of(&copy).await;
            let plain: Device = Rc::new(Memory::new(bytes.len() as u64));
            plain.write(Sector(0), bytes.freeze(), WriteFlags::NONE).await.unwrap();
            for (device, expected) in [(&plain, 1), (&plain, 0)] {
                assert_eq!(compare(&rt, device, to).await.len(), expected, "{to}, as one device");
            }
            copy.write(Sector(0), all_of(&plain).await.freeze(), WriteFlags::NONE).await.unwrap();
            assert_eq!(compare(&rt, &copy, to).await, Vec::<String>::new(), "{to}: it was not known");
        }
    };
    simulate(1, LIMITS, run).unwrap_or_else(|why| panic!("{why}"));
}

/// Three members in each order but theirs: the mount is refused before anything is written.
#[test]
fn another_order_of_members_destroys_nothing() {
    let run = async |rt: Rt| {
        let mut accepted = 0;
        for way in ["stripe 32", "stripe 64", "stripe 128", "stripe 512"] {
            for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                let what = format!("{way}, members in the order {order:?}");
                let members = [(); 3].map(|()| Rc::new(Memory::new(MEMBER_BYTES)));
                make(&rt, &arranged(way, &members)).await;
                let others = order.map(|member: usize| members[member].clone());
                let repair = FsckOptions { repair: true, ..FsckOptions::default() };
                let _ = lfs::fsck(rt.clone(), arranged(way, &others), repair).await;
                if let Ok(fs) = lfs::mount(rt.clone(), arranged(way, &others), Options::default()).await {
                    accepted += 1;
                    let client = Client::new(fs.clone());
                    for file in 0..200 {
                        let _ = client.write_file(format!("/new{file}").as_bytes(), &[9; 70_000]).await;
                    }
                    let _ = fs.close().await;
                }
                compare(&rt, &arranged(way, &members), &what).await;
            }
        }
        assert_eq!(accepted, 0);
    };
    simulate(1, LIMITS, run).unwrap_or_else(|why| panic!("{why}"));
}

/// A mirror of stripes finds its own metadata also where the stripes below have another unit; the volume on it is not mounted.
#[test]
fn another_stripe_below_a_mirror_destroys_nothing() {
    let run = async |rt: Rt| {
        let options = ArrayOptions::new(Level::Mirror);
        for (made, opened) in [("stripe 256", "stripe 128"), ("stripe 128", "stripe 512")] {
            let members = [(); 4].map(|()| Rc::new(Memory::new(MEMBER_BYTES)));
            let halves = |way: &str| vec![arranged(way, &members[..2]), arranged(way, &members[2..])];
            let open = async |way: &str| {
                let array = Array::open(&rt, halves(way).into_iter().map(Some).collect(), &options).await;
                array.map(|array| array as Device)
            };
            let array: Device = Array::create(&rt, halves(made), &options, [1; 16], Contents::Zeroes).await.unwrap();
            make(&rt, &array).await;
            array.release().await.unwrap();
            drop(array);
            let other = open(opened).await.unwrap();
            let repair = FsckOptions { repair: true, ..FsckOptions::default() };
            let _ = lfs::fsck(rt.clone(), other.clone(), repair).await;
            let mounted = lfs::mount(rt.clone(), other.clone(), Options::default()).await;
            assert!(mounted.is_err(), "made as {made}, opened as {opened}");
            drop(other);
            let array = open(made).await.unwrap();
            compare(&rt, &array, &format!("made as {made}, opened as {opened}")).await;
        }
    };
    simulate(1, LIMITS, run).unwrap_or_else(|why| panic!("{why}"));
}
