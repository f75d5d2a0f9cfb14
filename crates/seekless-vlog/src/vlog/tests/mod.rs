//! Aim: a virtual log disk stores like a plain one, writes where the head is, and keeps its promises through power cuts
//! and damage. Method in each file.

mod arms;
mod commit;
mod cuts;
mod damage;
mod eager;
mod full_host;
mod idle;
mod large;
mod reads;
mod snapshots;
mod store;
mod tree;
mod undecided;

use std::rc::Rc;

use super::*;
use crate::device::{BlockDevice, Buf, Data, Device, Image, Memory, WriteFlags};
use crate::disk::{Disk, Drive};
use crate::rng::Rng;
use crate::rt::{Executor, HostProfile, Rt};
use crate::testing::environment::soak;
use crate::units::{KIB, MIB, Nanos, SECTOR_BYTES, Sector};

/// The plan of most tests: 4 KiB blocks, 7 % reserve.
fn plan() -> Plan {
    Plan { block_bytes: 4096, reserve: 700, map_log: MapLog::Tree, snapshots: 0, uuid: [7; 16], key: [9; 16] }
}

/// A modelled disk of the catalogue.
fn disk(rt: &Rt, name: &str) -> Device {
    let drive = Drive::named(name).unwrap_or_else(|| panic!("{name} is in the catalogue"));
    Rc::new(Disk::new(rt.clone(), drive, crate::disk::Options::default()).expect("the catalogue has drives"))
}

fn run<T>(seed: u64, program: impl AsyncFnOnce(Rt) -> T) -> T {
    let executor = Executor::simulated(seed, HostProfile::NONE);
    let rt = executor.rt().clone();
    executor.block_on(program(rt)).expect("nothing waits indefinitely")
}

/// Bytes that identify their write and their block.
fn stamp(block: u64, number: u64, block_bytes: usize) -> Vec<u8> {
    if number == 0 {
        return vec![0; block_bytes];
    }
    let one = [block.to_le_bytes(), number.to_le_bytes()].concat();
    one.repeat(block_bytes / one.len())
}

/// Writes `blocks` stamped blocks from `block` on.
async fn write(vld: &Rc<Vld>, block: u64, blocks: u64, number: u64) {
    let bytes = vld.geometry().block_bytes as usize;
    let data: Vec<u8> = (block..block + blocks).flat_map(|block| stamp(block, number, bytes)).collect();
    let at = Sector(block * bytes as u64 / SECTOR_BYTES);
    vld.write(at, Data::from_slice(&data), WriteFlags::NONE).await.expect("there is room");
}

/// The number of the write that a block is from.
async fn number_of(vld: &Rc<Vld>, block: u64) -> u64 {
    let bytes = vld.geometry().block_bytes as usize;
    let read = vld.read(Sector(block * bytes as u64 / SECTOR_BYTES), Buf::dirty(bytes)).await.expect("it can be read");
    let number = u64::from_le_bytes(read[8..16].try_into().expect("eight bytes"));
    assert_eq!(read[..], stamp(block, number, bytes), "block {block} is of one write");
    number
}
