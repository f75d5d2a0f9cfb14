//! Aim: a sector of another member that cannot be read costs a rebuild its row, and no other one; what the row still has is read right,
//! the rest is an error; and the rebuild ends once the row has been written. Method: sectors are lost before, and a member is replaced;
//! with random writes at the same time, and with power cuts in between.

use super::faults::{Members, SECTORS};
use super::*;
use crate::rng::Rng;
use crate::testing::environment::soak;

/// Arrays on which a lost sector of another member cannot be computed: of a mirror, two copies.
const SHAPES: [(Level, usize); 3] = [(Level::Mirror, 2), (Level::Parity, 3), (Level::Parity, 4)];

fn on(seed: u64, body: impl AsyncFnOnce(Rt)) {
    let executor = Executor::simulated(seed, HostProfile::NONE);
    let rt = executor.rt().clone();
    executor.block_on(body(rt)).expect("nothing waits indefinitely");
}

/// An array whose member `victim` is replaced, and what it holds.
struct Lossy {
    rt: Rt,
    members: Members,
    array: Rc<Array>,
    options: ArrayOptions,
    bytes: Vec<u8>,
    /// What sectors may hold instead, after a write that was refused or cut off.
    other: Vec<u8>,
}

impl Lossy {
    async fn new(rt: &Rt, level: Level, count: usize, rng: &mut Rng) -> Lossy {
        let members = Members::new(rt, count, 1);
        let options = ArrayOptions { degraded: true, ..small(level) };
        let array = Array::create(rt, members.devices(), &options, UUID, Contents::Zeroes).await.unwrap();
        let mut bytes = vec![0; array.geometry().bytes() as usize];
        rng.fill(&mut bytes);
        array.write(Sector(0), Data::from_slice(&bytes), WriteFlags::NONE).await.unwrap();
        array.flush().await.unwrap();
        rt.sleep(Nanos::from_secs(3)).await; // No bit is set, so no unit is in doubt.
        Lossy { rt: rt.clone(), members, array, options, other: bytes.clone(), bytes }
    }

    /// Loses a sector of `row` on a member other than `victim`.
    fn lose(&self, row: u64, within: u64, victim: usize, which: usize) {
        let member = (victim + 1 + which % (self.members.faults.len() - 1)) % self.members.faults.len();
        let at = self.array.core.shape.at(row, within);
        self.members.faults[member].lose(Sector(at)..Sector(at + 1));
    }

    async fn replace(&mut self, victim: usize) {
        let memory = Rc::new(Memory::new(SECTORS * SECTOR_BYTES));
        let new = Members::around(&self.rt, vec![memory], 5);
        self.members.memories[victim] = new.memories[0].clone();
        self.members.faults[victim] = new.faults[0].clone();
        self.array.give_up(victim).await.unwrap();
        self.array.replace(victim, new.faults[0].clone()).await.unwrap();
    }

    /// Power fails: the members have what they have now, and what is lost stays lost.
    async fn cut(&mut self) {
        let copy = |memory: &Rc<Memory>| Rc::new(Memory::from_image(SECTORS * SECTOR_BYTES, memory.image()));
        let members = Members::around(&self.rt, self.members.memories.iter().map(copy).collect(), 1);
        for (old, new) in self.members.faults.iter().zip(&members.faults) {
            old.lost().into_iter().for_each(|sector| new.lose(sector..sector + 1));
        }
        self.members = members;
        let devices = self.members.devices().into_iter().map(Some).collect();
        self.array = Array::open(&self.rt, devices, &self.options).await.unwrap();
    }

    /// Reads each sector by itself; returns those that cannot be read.
    async fn compare(&self, when: &str) -> Vec<u64> {
        let mut unread = Vec::new();
        for at in 0..self.bytes.len() / 512 {
            match self.array.read(Sector(at as u64), Buf::dirty(512)).await {
                Ok(read) => {
                    let is = |bytes: &[u8]| read[..] == bytes[at * 512..][..512];
                    assert!(is(&self.bytes) || is(&self.other), "{when}: sector {at} is wrong");
                }
                Err(error) => {
                    assert!(error.is_of_medium(), "{when}, sector {at}: {error}");
                    unread.push(at as u64);
                }
            }
        }
        unread
    }

    async fn write(&mut self, at: u64, sectors: u64, rng: &mut Rng) {
        let range = (at * 512) as usize..((at + sectors) * 512) as usize;
        let mut data = vec![0; range.len()];
        let discards = rng.chance(1, 6);
        if !discards {
            rng.fill(&mut data);
        }
        self.other[range.clone()].copy_from_slice(&data);
        let written = match discards {
            true => self.array.discard(Sector(at), sectors).await,
            false => self.array.write(Sector(at), Data::from_slice(&data), WriteFlags::NONE).await,
        };
        match written {
            Ok(()) => self.bytes[range].copy_from_slice(&data),
            Err(error) => assert!(error.is_of_medium(), "{error}"),
        }
    }

    /// Writes whole rows: what is lost in them is there again.
    async fn heal(&mut self, rows: impl Iterator<Item = u64>, rng: &mut Rng) {
        let length = self.array.core.shape.row_sectors();
        for row in rows {
            let range = (row * length * 512) as usize..((row + 1) * length * 512) as usize;
            rng.fill(&mut self.bytes[range.clone()]);
            let data = Data::from_slice(&self.bytes[range]);
            self.array.write(Sector(row * length), data, WriteFlags::NONE).await.unwrap();
        }
    }

    /// All is there again, also without any one member.
    async fn expect_whole(&mut self, when: &str) {
        self.array.resynced().await;
        let status = self.array.status();
        assert!(status.is_healthy() && status.error.is_none() && status.left_out == 0, "{when}: {status:?}");
        assert_eq!(self.array.scrub().await, Ok(0), "{when}");
        assert_eq!(self.array.check().await, Ok(()), "{when}");
        compare(&(self.array.clone() as Device), &self.bytes).await.unwrap();
        self.array.release().await.unwrap();
        for missing in 0..self.members.memories.len() {
            let copy = |memory: &Rc<Memory>| Memory::from_image(SECTORS * SECTOR_BYTES, memory.image());
            let members = self.members.memories.iter().enumerate();
            let devices = members.map(|(at, memory)| (at != missing).then(|| Rc::new(copy(memory)) as Device));
            let array = Array::open(&self.rt, devices.collect(), &self.options).await.unwrap();
            compare(&(array as Device), &self.bytes).await.unwrap_or_else(|what| panic!("{when}: {what}"));
        }
    }
}

/// One sector in each row in turn, on each of the other members. A power cut, and a second rebuild, find the same.
#[test]
fn a_lost_sector_costs_its_row_until_it_is_written() {
    for (level, count) in SHAPES {
        for (row, victim, which) in (0..6).flat_map(|row| (0..count).map(move |victim| (row * 7, victim, row as usize)))
        {
            on(1, async |rt| {
                let mut rng = Rng::new(row);
                let mut lossy = Lossy::new(&rt, level, count, &mut rng).await;
                let what = format!("{level:?} of {count}, row {row}, member {victim}");
                lossy.lose(row, 3, victim, which);
                lossy.replace(victim).await;
                for when in ["rebuilt", "cut", "replaced again"] {
                    match when {
                        "cut" => lossy.cut().await,
                        "replaced again" => lossy.replace(victim).await,
                        _ => {}
                    }
                    lossy.array.resynced().await;
                    let status = lossy.array.status();
                    assert_eq!((status.left_out, status.rebuilt), (1, status.rows - 1), "{what}, {when}: {status:?}");
                    assert!(status.error.is_some() && status.members[victim] == MemberState::Rebuilding, "{status:?}");
                    let recorded = lossy.array.core.state.borrow().cursor_recorded;
                    assert!(recorded <= row, "R1: {what}, {when}: {recorded}");
                    let unread = lossy.compare(&format!("{what}, {when}")).await;
                    let length = lossy.array.core.shape.row_sectors();
                    assert!(unread.iter().all(|at| at / length == row), "{what}, {when}: {unread:?}");
                    // Of parity, the sector and that of the missing unit; of missing parity, only what is lost.
                    assert!(unread.len() <= 2, "{what}, {when}: {unread:?}");
                }
                lossy.heal(row..row + 1, &mut rng).await;
                lossy.expect_whole(&what).await;
            });
        }
    }
}

/// Writes and discards during the rebuild, and power cuts at any moment, with several lost sectors, some of which share a row.
#[test]
fn what_is_left_out_is_never_read_wrong() {
    let mut left_out = 0;
    for seed in 1..=soak().times(40) {
        let (level, count) = SHAPES[seed as usize % SHAPES.len()];
        on(seed, async |rt| {
            let mut rng = Rng::new(seed);
            let mut lossy = Lossy::new(&rt, level, count, &mut rng).await;
            let shape = lossy.array.core.shape;
            let victim = rng.below(count as u64) as usize;
            let rows: Vec<u64> = (0..rng.between(1, 5)).map(|_| rng.below(shape.rows)).collect();
            for &row in &rows {
                lossy.lose(row, rng.below(shape.unit), victim, rng.below(4) as usize);
            }
            lossy.replace(victim).await;
            let sectors = lossy.array.geometry().sectors;
            for step in 0..rng.between(4, 12) {
                rt.sleep(Nanos(rng.below(3000))).await;
                let at = match rng.chance(1, 2) {
                    true => {
                        rows[rng.below(rows.len() as u64) as usize] * shape.row_sectors()
                            + rng.below(shape.row_sectors())
                    }
                    false => rng.below(sectors),
                };
                let length = rng.between(1, 3 * shape.unit).min(sectors - at);
                lossy.write(at, length, &mut rng).await;
                if rng.chance(1, 3) {
                    lossy.cut().await;
                    left_out += lossy.array.status().left_out;
                }
                if rng.chance(1, 3) {
                    let unread = lossy.compare(&format!("seed {seed}, step {step}")).await;
                    assert!(
                        unread.iter().all(|at| rows.contains(&(at / shape.row_sectors()))),
                        "seed {seed}: {unread:?}"
                    );
                }
                if rng.chance(1, 6) {
                    lossy.array.scrub().await.unwrap();
                }
                left_out += lossy.array.status().left_out;
            }
            // A refused write may have left either content.
            for at in 0..sectors {
                if let Ok(read) = lossy.array.read(Sector(at), Buf::dirty(512)).await {
                    lossy.bytes[(at * 512) as usize..][..512].copy_from_slice(&read);
                }
            }
            lossy.heal(rows.into_iter(), &mut rng).await;
            lossy.expect_whole(&format!("seed {seed}")).await;
        });
    }
    assert!(left_out > 10, "{left_out}");
}

/// With too many such rows the rebuild ends, as it does for a member that cannot be read at all; what it has left out is as before.
#[test]
fn a_member_that_cannot_be_read_ends_the_rebuild() {
    use super::super::rebuild::LEFT_OUT_MAX;
    on(1, async |rt| {
        let sectors = 4096;
        let memories: Vec<Rc<Memory>> = (0..3).map(|_| Rc::new(Memory::new(sectors * SECTOR_BYTES))).collect();
        let members = Members::around(&rt, memories, 1);
        let options = small(Level::Mirror).unit(1);
        let array =
            Array::create(&rt, members.devices()[..2].to_vec(), &options, UUID, Contents::Zeroes).await.unwrap();
        let first = array.core.shape.at(20, 0);
        members.faults[0].lose(Sector(first)..Sector(sectors));
        array.give_up(1).await.unwrap();
        array.replace(1, members.faults[2].clone()).await.unwrap();
        array.resynced().await;
        let status = array.status();
        assert_eq!((status.left_out, status.rebuilt), (LEFT_OUT_MAX, 20), "{status:?}");
        assert!(status.error.is_some());
        let length = array.geometry().sectors - 20;
        array.write(Sector(20), Data::zeroes((length * 512) as usize), WriteFlags::NONE).await.unwrap();
        array.resynced().await;
        assert!(array.status().is_healthy(), "{:?}", array.status());
        assert_eq!(array.check().await, Ok(()));
    });
}

/// A scrub tries again what a drive can read again.
#[test]
fn a_scrub_tries_again() {
    on(1, async |rt| {
        let mut rng = Rng::new(1);
        let mut lossy = Lossy::new(&rt, Level::Parity, 3, &mut rng).await;
        let at = Sector(lossy.array.core.shape.at(5, 0));
        let unreadable = Rule::new(Kinds::READ, When::Always, Effect::Error).within(at..at + 1);
        lossy.members.faults[1].add(unreadable);
        lossy.replace(0).await;
        lossy.array.resynced().await;
        assert_eq!(lossy.array.status().left_out, 1);
        lossy.array.scrub().await.unwrap();
        lossy.array.resynced().await;
        assert_eq!(lossy.array.status().left_out, 1, "still unreadable");
        lossy.members.faults[1].clear();
        lossy.array.scrub().await.unwrap();
        lossy.expect_whole("readable again").await;
    });
}
