//! Aim: what cannot be read for a while, as behind a bad cable, is not lost for good: no mount for writing and no repair writes over
//! it. Method: some sectors of a closed volume read as zeroes; then it is repaired, or mounted and all free space is written; then they
//! come back. One damage at a time never showed what two did: a table that is
//! recounted, and something that the recount cannot read.

use super::copies::Repairable;
use super::*;
use crate::device::Image;
use crate::fs::FsError;
use crate::rng::Rng;
use crate::testing::replay::Replay;
use crate::units::{SECTOR_BYTES, Sector};

const FILES: u64 = 60;

fn name(file: u64) -> Vec<u8> {
    format!("/d{}/kept{file}", file % 4).into_bytes()
}

/// Bytes by which a sector of a file's data differs from everything else.
fn content(file: u64) -> Vec<u8> {
    vec![file as u8 + 1; 300 + 400 * file as usize]
}

fn sector(image: &Image, at: Sector) -> [u8; SECTOR_BYTES as usize] {
    let mut bytes = [0; SECTOR_BYTES as usize];
    image.read(at, &mut bytes);
    bytes
}

/// What is neither zero nor data.
fn metadata(image: &Image, bytes: u64) -> Vec<Sector> {
    let is_metadata = |&at: &Sector| sector(image, at).windows(2).any(|two| two[0] != two[1]);
    (0..bytes / SECTOR_BYTES).map(Sector).filter(is_metadata).collect()
}

async fn write_everywhere(client: &Client) {
    for round in 100..102 {
        for file in 0.. {
            let written = client.write_file(format!("/new{file}").as_bytes(), &[round; 100_000]).await;
            if written.is_err() || client.sync().await.is_err() {
                break;
            }
        }
    }
}

/// See the head of the file. `beside` are sectors of the volume that are taken away with the others each time.
pub fn sectors_that_come_back(
    subject: &dyn Repairable,
    bytes: u64,
    replay: &Replay,
    beside: impl Fn(&Image) -> Vec<Sector>,
) {
    let original = simulate(1, async |rt| {
        let memory = Rc::new(Memory::new(bytes));
        let device: Device = memory.clone();
        subject.mkfs(&rt, device.clone()).await.expect("mkfs");
        let fs = subject.mount(&rt, device).await.expect("mount");
        let client = Client::new(fs.clone());
        for directory in 0..4 {
            client.mkdir(format!("/d{directory}").as_bytes()).await.expect("mkdir");
        }
        for file in 0..FILES {
            client.write_file(&name(file), &content(file)).await.expect("write");
            if file % 7 == 0 {
                client.sync().await.expect("sync");
            }
        }
        fs.close().await.expect("close");
        memory.image()
    });
    let places = metadata(&original, bytes);
    let beside = beside(&original);
    let (mut refused, mut accepted) = (0, 0);
    for seed in replay.seeds(0..150) {
        let case = |what: &str| format!("{what}; {}", replay.command(seed, None, None, None));
        let mut rng = Rng::new(seed);
        let count = rng.below(6) as usize + 1;
        let place = || places[rng.below(places.len() as u64) as usize];
        let others = std::iter::repeat_with(place).take(count);
        let taken: Vec<Sector> = beside.iter().copied().chain(others).collect();
        simulate(seed, async |rt| {
            let mut image = original.clone();
            taken.iter().for_each(|&at| image.zero(at, 1));
            let memory = Rc::new(Memory::from_image(bytes, image));
            let device: Device = memory.clone();
            if seed % 2 == 0 {
                let _ = subject.repair(&rt, device.clone()).await;
            }
            match subject.mount(&rt, device.clone()).await {
                Err(FsError::Corrupt { .. }) => refused += 1,
                Err(error) => panic!("{}", case(&error.to_string())),
                Ok(fs) => {
                    accepted += 1;
                    write_everywhere(&Client::new(fs.clone())).await;
                    let _ = fs.close().await;
                }
            }
            let mut image = memory.image();
            for &at in &taken {
                if sector(&image, at).iter().all(|&byte| byte == 0) {
                    image.write(at, &sector(&original, at));
                }
            }
            let device: Device = Rc::new(Memory::from_image(bytes, image));
            let fs = match subject.mount(&rt, device.clone()).await {
                Ok(fs) => fs,
                Err(error) => panic!("{}", case(&format!("{taken:?} are back: {error}"))),
            };
            let client = Client::new(fs);
            for file in 0..FILES {
                let found = client.read_file(&name(file)).await;
                assert!(
                    found == Ok(content(file)),
                    "{}",
                    case(&format!("file {file} with {taken:?}: {:?}", found.map(|found| found.len())))
                );
            }
        });
    }
    if replay.seeds(0..150) == (0..150) {
        assert!(refused > 0 && accepted > 5, "{refused} refused, {accepted} accepted");
    }
}
