//! The golden virtual log disk: an image that was made once and is kept, so that disks of old code open with new code.
//!
//! `golden_vld/vld-1.img.gz` is a disk of 1 MiB as a power cut leaves it, with blocks that were overwritten and discarded;
//! every block says which write it is from. `vld-landmarks-1.img.gz` has landmarks. `SEEKLESS_BLESS=1 cargo test -p seekless --test engine golden_vld` creates
//! it again. Before the bytes change in a way that was released, keep the old one under another name: all are tested.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use seekless::device::{BlockDevice, Buf, Data, Device, Image, Memory, WriteFlags};
use seekless::rt::{Limits, Rt};
use seekless::testing::subject::simulate;
use seekless::units::{MIB, Nanos, SECTOR_BYTES, Sector};
use seekless::vlog::{MapLog, Options, Plan, Vld, check, probe};

const BYTES: u64 = MIB;
const LIMITS: Limits = Limits { events: 1_000_000, until: Nanos::from_secs(10_000) };
const WRITES: u64 = 400;

/// Images that today's code makes, and whether they have landmarks.
const NEWEST: [(&str, bool); 2] = [("vld-1.img.gz", false), ("vld-landmarks-1.img.gz", true)];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine/golden_vld")
}

#[allow(clippy::disallowed_methods)]
fn is_blessing() -> bool {
    std::env::var("SEEKLESS_BLESS").is_ok_and(|value| value == "1")
}

fn run<T>(program: impl AsyncFnOnce(Rt) -> T) -> T {
    simulate(1, LIMITS, program).unwrap_or_else(|why| panic!("{why}"))
}

/// Which block write `number` is to, and what it holds; every seventh is a discard.
fn request(number: u64) -> (u64, Option<Vec<u8>>) {
    let block = number * number % 401 % 200;
    (block, (!number.is_multiple_of(7)).then(|| number.to_le_bytes().repeat(512)))
}

/// With landmarks, what the device shows is kept, and not how it puts that into memory.
fn make(has_landmarks: bool) -> Vec<u8> {
    run(async |rt: Rt| {
        let memory: Device = Rc::new(Memory::new(BYTES));
        let memory: Device = match has_landmarks {
            true => seekless::volume::permute(memory, 8, 7, None).expect("it fits"),
            false => memory,
        };
        let plan =
            Plan { block_bytes: 4096, reserve: 700, map_log: MapLog::Tree, snapshots: 0, uuid: [5; 16], key: [6; 16] };
        let vld = Vld::create(&rt, memory.clone(), &plan, Options::default()).await.expect("it can be made");
        for number in 1..=WRITES {
            let (block, data) = request(number);
            let at = Sector(block * 8);
            match data {
                Some(data) => vld.write(at, Data::from_slice(&data), WriteFlags::NONE).await.expect("there is room"),
                None => vld.discard(at, 8).await.expect("it can be discarded"),
            }
            if number == WRITES / 2 {
                vld.release().await.expect("it can be put away");
            }
        }
        assert_eq!(vld.layout().landmarks().is_empty(), !has_landmarks);
        memory.read(Sector::ZERO, Buf::zeroed(BYTES as usize)).await.expect("memory does not fail").to_vec()
    })
}

/// Aim: disks of old code open with the current code, which writes the same bytes. Method: every stored image is
/// checked, opened, read and used; the newest is made again.
#[test]
fn golden_disks_open() {
    if is_blessing() {
        std::fs::create_dir_all(folder()).expect("a folder for golden images");
        for (name, has_landmarks) in NEWEST {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            packer.write_all(&make(has_landmarks)).expect("memory does not fail");
            let packed = packer.finish().expect("memory does not fail");
            std::fs::write(folder().join(name), packed).expect("the image can be written");
        }
    }
    let entries = std::fs::read_dir(folder()).expect("golden images");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        let packed = std::fs::read(&path).expect("a golden image");
        let mut bytes = Vec::new();
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut bytes).expect("a golden image is gzip");
        assert_eq!(bytes.len() as u64, BYTES);
        if let Some((_, has_landmarks)) = NEWEST.into_iter().find(|(name, _)| path.ends_with(name)) {
            let made = make(has_landmarks);
            let differing: Vec<usize> =
                (0..bytes.len() / 512).filter(|at| bytes[at * 512..][..512] != made[at * 512..][..512]).collect();
            assert!(
                differing.is_empty(),
                "today's code writes other sectors: {differing:?}; if that is intended, bless"
            );
        }
        let mut image = Image::default();
        image.write(Sector::ZERO, &bytes);
        lives_on(&path, image);
    }
}

fn lives_on(path: &Path, image: Image) {
    run(async |rt: Rt| {
        let device: Device = Rc::new(Memory::from_image(BYTES, image));
        let name = path.display();
        let info = probe(&device).await.expect("it can be read").expect("it is recognised");
        assert_eq!((info.uuid, info.block_bytes, info.is_parked), ([5; 16], 4096, false), "{name}");
        let checkup = check(&device).await.expect("it can be checked");
        assert_eq!((checkup.errors, checkup.notes), (vec![], vec![]), "{name}");
        let vld = Vld::open(&rt, device.clone(), Options::default()).await.expect("it opens");
        let mut expected = vec![vec![0; 4096]; 200];
        for number in 1..=WRITES {
            let (block, data) = request(number);
            expected[block as usize] = data.unwrap_or_else(|| vec![0; 4096]);
        }
        for (block, expected) in expected.iter().enumerate() {
            let at = Sector(block as u64 * 4096 / SECTOR_BYTES);
            let read = vld.read(at, Buf::dirty(4096)).await.expect("it can be read");
            assert_eq!(read[..], expected[..], "{name}: block {block}");
        }
        vld.write(Sector(0), Data::zeroes(4096), WriteFlags::NONE).await.expect("there is room");
        vld.release().await.expect("it can be put away");
        assert!(Vld::open(&rt, device, Options::default()).await.expect("it opens again").recovery().was_parked);
    });
}
