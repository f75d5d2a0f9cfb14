//! Random requests on a device and on plain bytes, several at once.

use std::rc::Rc;

use futures_util::future::join_all;

use crate::device::fault::{Effect, FaultDevice, Kinds, Rule, When};
use crate::device::{Buf, Data, Device, Discard, Memory, WriteFlags};
use crate::rng::Rng;
use crate::rt::Rt;
use crate::units::{Nanos, SECTOR_BYTES, Sector};

/// Devices in memory with random request times, so that requests complete out of order.
pub fn slow(rt: &Rt, sectors: &[u64], seed: u64) -> Vec<Device> {
    let device = |(index, &sectors): (usize, &u64)| {
        let device = FaultDevice::new(rt, Rc::new(Memory::new(sectors * SECTOR_BYTES)), seed * 100 + index as u64);
        device.add(Rule::new(Kinds::all(), When::Always, Effect::Delay(Nanos(1)..=Nanos(100))));
        device as Device
    };
    sectors.iter().enumerate().map(device).collect()
}

/// Shares of the requests.
#[derive(Clone, Copy)]
pub struct Mix {
    pub reads: u64,
    pub writes: u64,
    pub discards: u64,
    pub flushes: u64,
}

impl Mix {
    pub const ALL: Mix = Mix { reads: 4, writes: 6, discards: 1, flushes: 1 };
}

enum Request {
    Read,
    Write(Data, bool),
    Discard,
    Flush,
}

/// A device and its expected content.
pub struct Exercise {
    pub device: Device,
    pub bytes: Vec<u8>,
    rng: Rng,
}

impl Exercise {
    /// A device that reads as zeroes.
    pub fn new(device: Device, seed: u64) -> Exercise {
        let bytes = vec![0; device.geometry().bytes() as usize];
        Exercise { device, bytes, rng: Rng::new(seed) }
    }

    /// A few concurrent requests that do not overlap. `settle` decides the bytes of a write.
    pub async fn round(&mut self, rt: &Rt, mix: Mix) -> Result<(), String> {
        let sectors = self.device.geometry().sectors;
        let block = u64::from(self.device.geometry().block_bytes) / SECTOR_BYTES;
        let count = self.rng.between(1, 6);
        // Disjoint places: each request stays in its own slice.
        let slice = sectors / count / block * block;
        let mut requests = Vec::new();
        for turn in 0..count {
            let longest = (u64::from(self.device.geometry().request_bytes_max) / SECTOR_BYTES).min(slice);
            let length = match self.rng.chance(1, 3) {
                true => longest,
                false => (self.rng.between(1, 24)).min(longest),
            };
            let length = (length / block).max(1) * block;
            let at = turn * slice + self.rng.below((slice - length) / block + 1) * block;
            let mut pick = self.rng.below(mix.reads + mix.writes + mix.discards + mix.flushes);
            let mut is = |share: u64| {
                let hit = pick < share;
                pick = pick.saturating_sub(share);
                hit
            };
            let request = if is(mix.reads) {
                Request::Read
            } else if is(mix.writes) {
                let mut data = Buf::dirty((length * SECTOR_BYTES) as usize);
                self.rng.fill(&mut data);
                Request::Write(data.freeze(), self.rng.chance(1, 8))
            } else if is(mix.discards) {
                Request::Discard
            } else {
                Request::Flush
            };
            requests.push((at, length, request));
        }
        let results = join_all(requests.iter().map(|(at, length, request)| {
            let (device, at, length) = (self.device.clone(), Sector(*at), *length);
            let bytes = (length * SECTOR_BYTES) as usize;
            let work: futures_util::future::LocalBoxFuture<'_, _> = match request {
                Request::Read => Box::pin(async move { device.read(at, Buf::dirty(bytes)).await.map(Some) }),
                Request::Write(data, fua) => {
                    let (data, flags) = (data.clone(), WriteFlags { fua: *fua });
                    Box::pin(async move { device.write(at, data, flags).await.map(|()| None) })
                }
                Request::Discard => Box::pin(async move { device.discard(at, length).await.map(|()| None) }),
                Request::Flush => Box::pin(async move { device.flush().await.map(|()| None) }),
            };
            work
        }))
        .await;
        let _ = rt;
        for ((at, length, request), result) in requests.into_iter().zip(results) {
            let range = (at * SECTOR_BYTES) as usize..((at + length) * SECTOR_BYTES) as usize;
            let name = match &request {
                Request::Read => "read",
                Request::Write(..) => "write",
                Request::Discard => "discard",
                Request::Flush => "flush",
            };
            let read = result.map_err(|error| format!("{name} {at}+{length}: {error}"))?;
            match request {
                Request::Read if read.as_ref().is_none_or(|read| read[..] != self.bytes[range.clone()]) => {
                    return Err(format!("read {at}+{length} returned something else"));
                }
                Request::Read | Request::Flush => {}
                Request::Write(data, _) => self.bytes[range].copy_from_slice(&data),
                Request::Discard if self.device.guarantees().discard == Discard::Zeroes => self.bytes[range].fill(0),
                Request::Discard => {}
            }
        }
        Ok(())
    }

    /// The device holds the expected content.
    pub async fn compare(&self) -> Result<(), String> {
        compare(&self.device, &self.bytes).await
    }
}

/// `device` holds `bytes`.
pub async fn compare(device: &Device, bytes: &[u8]) -> Result<(), String> {
    let step = device.geometry().request_bytes_max as usize;
    for (index, expected) in bytes.chunks(step).enumerate() {
        let at = Sector((index * step) as u64 / SECTOR_BYTES);
        let read = device.read(at, Buf::dirty(expected.len())).await.map_err(|error| error.to_string())?;
        if read[..] != *expected {
            let sectors = read.chunks(SECTOR_BYTES as usize).zip(expected.chunks(SECTOR_BYTES as usize));
            let wrong = sectors.take_while(|(found, expected)| found == expected).count();
            return Err(format!("sector {} holds something else", at.0 + wrong as u64));
        }
    }
    Ok(())
}

/// Rounds of requests on a device that reads as zeroes, with a full comparison.
pub async fn exercise(rt: &Rt, device: Device, seed: u64, rounds: u32, mix: Mix) -> Result<(), String> {
    let mut exercise = Exercise::new(device, seed);
    for round in 0..rounds {
        exercise.round(rt, mix).await.map_err(|what| format!("round {round}: {what}"))?;
    }
    exercise.compare().await
}
