//! Aim: an array stores like one plain device, through failures, and power cuts lose nothing that was promised.

mod cuts;
mod damage;
mod doubt;
mod faults;
mod full;
mod left_out;
mod life;
mod open;
mod readings;
mod recorded;
mod rewriting;
mod unreadable;
mod unrecorded;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::*;
use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{Device, Image, Memory};
use crate::rt::{Executor, HostProfile};
use crate::testing::exercise::{Exercise, Mix, compare, exercise, slow};

pub(super) const UUID: [u8; 16] = [7; 16];

pub(super) fn small(level: Level) -> ArrayOptions {
    ArrayOptions { region: Some(16 * KIB), batch: 16 * KIB, progress: 32 * KIB, ..ArrayOptions::new(level).unit(8) }
}

/// Random requests against plain bytes, on complete arrays of many shapes, with and without metadata.
#[test]
fn arrays_store_like_one_device() {
    for seed in 0..4 {
        let executor = Executor::simulated(seed, HostProfile::NONE);
        let rt = executor.rt().clone();
        let run = async {
            for (level, members, unit) in [
                (Level::Mirror, 2, 8),
                (Level::Mirror, 3, 5),
                (Level::Parity, 3, 8),
                (Level::Parity, 5, 3),
                (Level::Parity, 6, 16),
            ] {
                for journal in [None, Some(JournalUse::Degraded), Some(JournalUse::Always)] {
                    let devices = slow(&rt, &vec![1200; members], seed);
                    let array = match journal {
                        None => Array::bare(&rt, level, devices, unit).unwrap(),
                        Some(journal) => {
                            let options = ArrayOptions { journal, ..small(level).unit(unit) };
                            Array::create(&rt, devices, &options, UUID, Contents::Zeroes).await.unwrap()
                        }
                    };
                    let name = format!("{} {journal:?}, seed {seed}", array.describe());
                    let done = exercise(&rt, array.clone(), seed, 120, Mix::ALL).await;
                    done.unwrap_or_else(|what| panic!("{name}: {what}"));
                    assert_eq!(array.scrub().await, Ok(0), "{name}");
                    assert!(array.status().is_healthy());
                }
            }
        };
        executor.block_on(run).unwrap();
    }
}

/// Small sequential writes that wait for a row become one; large ones are full stripes with merged requests.
#[test]
fn writes_are_merged() {
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt().clone();
    let run = async {
        let members = slow(&rt, &[4096; 5], 1);
        let array = Array::bare(&rt, Level::Parity, members, 64).unwrap();
        array.write(Sector(0), Data::zeroes(5 * 4 * 64 * 512), WriteFlags::NONE).await.unwrap();
        assert_eq!(array.core.counts.full_stripes.get(), 5);
        let small = (0..32).map(|index| {
            let array = array.clone();
            async move { array.write(Sector(4096 + index * 8), Data::zeroes(4096), WriteFlags::NONE).await }
        });
        assert!(futures_util::future::join_all(small).await.into_iter().all(|result| result.is_ok()));
        let counts = &array.core.counts;
        let rows = counts.full_stripes.get() + counts.read_modify_writes.get() + counts.reconstruct_writes.get();
        assert!(rows - 5 <= 4, "{rows}");
    };
    executor.block_on(run).unwrap();
}
