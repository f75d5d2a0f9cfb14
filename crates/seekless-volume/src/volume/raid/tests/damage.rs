//! Aim: one flipped bit or one unreadable sector of one member changes nothing that the array returns, except that a bit of data is
//! returned as it is where no checksum above asks for another reading. Method: one damage at a time, half of them in the metadata,
//! where every bit of the superblocks' fields comes up; then the array is opened, read, written and scrubbed, and opened again.

use super::faults::{Members, SECTORS};
use super::*;
use crate::rng::Rng;
use crate::rt::Limits;
use crate::testing::environment::replay;
use crate::testing::subject::simulate;

/// Some hundred times what an undamaged array needs.
const LIMITS: Limits = Limits { events: 3_000_000, until: Nanos::from_secs(100_000) };

const TEST: &str = "volume::raid::tests::damage::damaged_members";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Harm {
    Flip,
    Lose,
}

/// Everything that the array holds.
async fn read_all(array: &Array, bytes: usize) -> Result<Vec<u8>, DeviceError> {
    let step = array.geometry().request_bytes_max as usize;
    let mut all = Vec::with_capacity(bytes);
    while all.len() < bytes {
        let at = Sector(all.len() as u64 / SECTOR_BYTES);
        all.extend_from_slice(&array.read(at, Buf::dirty(step.min(bytes - all.len()))).await?);
    }
    Ok(all)
}

/// An orderly end.
async fn end(array: &Array) -> Result<(), String> {
    array.release().await.map_err(|error| format!("release: {error}"))?;
    array.flush().await.map_err(|error| format!("flush: {error}"))
}

/// Examines one damage. Returns whether it was in the metadata.
async fn examine(rt: &Rt, level: Level, harm: Harm, seed: u64) -> Result<bool, String> {
    let mut rng = Rng::new(seed);
    let count = if level == Level::Mirror { 2 } else { 3 };
    let journal = if level == Level::Parity && rng.chance(1, 2) { Some(JournalUse::Always) } else { None };
    let options = ArrayOptions { journal: journal.unwrap_or(small(level).journal), ..small(level) };
    let made = Members::new(rt, count, seed);
    let array = Array::create(rt, made.devices(), &options, UUID, Contents::Zeroes).await;
    let array = array.map_err(|error| error.to_string())?;
    let data_start = array.data_start();
    let mut exercise = Exercise::new(array.clone(), seed);
    for _ in 0..3 {
        exercise.round(rt, Mix::ALL).await?;
    }
    array.flush().await.map_err(|error| error.to_string())?;
    rt.sleep(Nanos::from_secs(3)).await; // Until no region is out of sync.
    if rng.chance(1, 2) {
        end(&array).await?;
    }
    let mut bytes = exercise.bytes.clone();
    drop((array, exercise));

    let images: Vec<Image> = made.memories.iter().map(|memory| memory.image()).collect();
    let victim = rng.below(count as u64) as usize;
    let in_metadata = rng.chance(1, 2);
    let sector = match (in_metadata, rng.chance(1, 2)) {
        // The superblocks, and everything else before the data.
        (true, true) => Sector(rng.below(2) * 8),
        (true, false) => Sector(rng.below(data_start)),
        (false, _) => Sector(rng.between(data_start, SECTORS - 1)),
    };
    let memory = |(member, image): (usize, Image)| {
        let mut image = image;
        if harm == Harm::Flip && member == victim {
            let mut raw = [0; SECTOR_BYTES as usize];
            image.read(sector, &mut raw);
            raw[rng.below(SECTOR_BYTES) as usize] ^= 1 << rng.below(8);
            image.write(sector, &raw);
        }
        Rc::new(Memory::from_image(SECTORS * SECTOR_BYTES, image))
    };
    let damaged = Members::around(rt, images.into_iter().enumerate().map(memory).collect(), seed);
    if harm == Harm::Lose {
        damaged.faults[victim].lose(sector..sector + 1);
    }
    let devices = || -> Vec<Option<Device>> { damaged.devices().into_iter().map(Some).collect() };
    let options = ArrayOptions { degraded: true, ..options };
    for round in 0..2 {
        let array = Array::open(rt, devices(), &options).await.map_err(|error| format!("open {round}: {error}"))?;
        let found = read_all(&array, bytes.len()).await.map_err(|error| format!("read: {error}"))?;
        let wrong = found.iter().zip(&bytes).filter(|(found, expected)| found != expected).count();
        let is_allowed = wrong == 0 || wrong == 1 && harm == Harm::Flip && !in_metadata;
        if !is_allowed {
            return Err(format!("{wrong} wrong bytes after start {round}"));
        }
        bytes.copy_from_slice(&found);
        let piece = vec![seed as u8; 3 * SECTOR_BYTES as usize];
        let at = rng.below(bytes.len() as u64 / SECTOR_BYTES - 3);
        array.write(Sector(at), Data::from_slice(&piece), WriteFlags::NONE).await.map_err(|error| error.to_string())?;
        let start = (at * SECTOR_BYTES) as usize;
        bytes[start..start + piece.len()].copy_from_slice(&piece);
        // A flipped bit of data makes parity disagree, which the scrub corrects, and one more byte can then be wrong.
        let scrubbed = array.scrub().await.map_err(|error| format!("scrub: {error}"))?;
        if scrubbed > 1 {
            return Err(format!("{scrubbed} rows disagree"));
        }
        end(&array).await?;
    }
    Ok(in_metadata)
}

#[test]
fn damaged_members() {
    let replay = replay(TEST);
    for level in [Level::Mirror, Level::Parity] {
        for harm in [Harm::Flip, Harm::Lose] {
            let (mut cases, mut in_metadata) = (0, 0);
            for seed in replay.seeds(0..60) {
                let examined = simulate(seed, LIMITS, async |rt| examine(&rt, level, harm, seed).await);
                let was_in_metadata = examined.and_then(|examined| examined).unwrap_or_else(|what| {
                    panic!("{level:?}, {harm:?}: {what}\n\nrun again:\n  {}\n", replay.command(seed, None, None, None))
                });
                cases += 1;
                in_metadata += u64::from(was_in_metadata);
            }
            println!("{level:?}, {harm:?}: {cases} members with one damage, {in_metadata} of them in the metadata");
            assert!(replay.seed.is_some() || (cases > in_metadata && in_metadata > 0), "{in_metadata} of {cases}");
        }
    }
}
