//! The golden virtual log disk: an image that was made once and is kept, so that disks of old code open with new code.
//!
//! `golden_vld/vld-1.img.gz` is a disk of 1 MiB as a power cut leaves it, with blocks that were overwritten and discarded;
//! every block says which write it is from. `SEEKLESS_BLESS=1 cargo test -p seekless --test engine golden_vld` creates
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

fn make() -> Vec<u8> {
    run(async |rt: Rt| {
        let memory = Rc::new(Memory::new(BYTES));
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
        let mut bytes = vec![0; BYTES as usize];
        memory.image().read(Sector::ZERO, &mut bytes);
        bytes
    })
}

/// Aim: disks of old code open with the current code, which writes the same bytes. Method: every stored image is
/// checked, opened, read and used; the newest is made again.
#[test]
fn golden_disks_open() {
    if is_blessing() {
        std::fs::create_dir_all(folder()).expect("a folder for golden images");
        let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        packer.write_all(&make()).expect("memory does not fail");
        let packed = packer.finish().expect("memory does not fail");
        std::fs::write(folder().join("vld-1.img.gz"), packed).expect("the image can be written");
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
        if path.ends_with("vld-1.img.gz") {
            let made = make();
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
