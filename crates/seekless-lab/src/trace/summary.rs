//! A trace in numbers, in one pass and in constant memory.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use seekless::units::{FixedMap, MIB, Nanos, SECTOR_BYTES, counted};

use super::request::{DeviceId, Names, Op, Request};
use super::{Format, Import};

/// Limit of distinguished devices.
const DEVICES_MAX: usize = 1 << 16;

/// Grain of the footprint, and limit of stored words of 64 grains.
const FOOTPRINT_GRAIN: u64 = MIB;
const FOOTPRINT_WORDS_MAX: usize = 1 << 20;

/// A shorter time without requests is not worth a warning, whatever its share of the trace: a machine that was left alone.
const GAP_WARNED: Nanos = Nanos::from_secs(3600);

/// Numbers of one operation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct OpSummary {
    pub requests: u64,
    pub bytes: u64,
    /// Requests that begin where the previous one on the same device ended.
    pub sequential: u64,
}

/// Numbers of one device.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct DeviceSummary {
    pub requests: u64,
    pub bytes: u64,
    /// The end of the last request: the minimum size of the device.
    pub end: u64,
    #[serde(skip)]
    next: Option<u64>,
}

/// A trace in numbers.
pub struct Summary {
    pub ops: [OpSummary; 4],
    pub devices: BTreeMap<DeviceId, DeviceSummary>,
    /// Requests of devices beyond the limit.
    pub devices_lost: u64,
    pub first: Option<Nanos>,
    pub last: Nanos,
    /// The longest time without a request.
    gap_max: Nanos,
    /// Requests by the power of two of their length.
    pub lengths: [u64; 64],
    /// Requests whose address and length are multiples of 512 and of 4096.
    pub aligned_512: u64,
    pub aligned_4096: u64,
    /// Lengths, taken as sectors, that are themselves multiples of 512; see [`Summary::warnings`].
    sector_lengths_512: u64,
    latencies: Option<Histogram<u64>>,
    /// Exact, as the histogram is not.
    latency_sum_ns: u128,
    latency_max: Nanos,
    footprint: FixedMap<(DeviceId, u64), u64>,
    footprint_lost: bool,
}

impl Default for Summary {
    fn default() -> Summary {
        Summary {
            ops: [OpSummary::default(); 4],
            devices: BTreeMap::new(),
            devices_lost: 0,
            first: None,
            last: Nanos::ZERO,
            gap_max: Nanos::ZERO,
            lengths: [0; 64],
            aligned_512: 0,
            aligned_4096: 0,
            sector_lengths_512: 0,
            latencies: None,
            latency_sum_ns: 0,
            latency_max: Nanos::ZERO,
            footprint: FixedMap::default(),
            footprint_lost: false,
        }
    }
}

impl Summary {
    /// Counts a request.
    pub fn add(&mut self, request: &Request) {
        let Request { time, device, op, offset, bytes, latency, .. } = *request;
        if self.first.is_some() {
            self.gap_max = self.gap_max.max(time.saturating_sub(self.last));
        }
        self.first = Some(self.first.map_or(time, |first| first.min(time)));
        self.last = self.last.max(time);
        let known = self.devices.len();
        let counted = match self.devices.get_mut(&device) {
            Some(counted) => Some(counted),
            None if known < DEVICES_MAX => Some(self.devices.entry(device).or_default()),
            None => None,
        };
        let counts = &mut self.ops[op.index()];
        counts.requests += 1;
        counts.bytes = counts.bytes.saturating_add(bytes);
        match counted {
            Some(counted) => {
                counted.requests += 1;
                if op != Op::Flush {
                    counts.sequential += u64::from(counted.next == Some(offset));
                    counted.bytes = counted.bytes.saturating_add(bytes);
                    counted.end = counted.end.max(offset + bytes);
                    counted.next = Some(offset + bytes);
                }
            }
            None => self.devices_lost += 1,
        }
        if let Some(latency) = latency {
            let histogram = self.latencies.get_or_insert_with(super::super::replay::new_histogram);
            histogram.saturating_record(latency.0);
            self.latency_sum_ns += u128::from(latency.0);
            self.latency_max = self.latency_max.max(latency);
        }
        if op == Op::Flush {
            return;
        }
        self.lengths[bytes.max(1).ilog2() as usize] += 1;
        self.aligned_512 += u64::from((offset | bytes) % SECTOR_BYTES == 0);
        self.aligned_4096 += u64::from((offset | bytes) % 4096 == 0);
        self.sector_lengths_512 += u64::from(bytes % (SECTOR_BYTES * SECTOR_BYTES) == 0);
        if op != Op::Discard {
            self.touch(device, offset, bytes);
        }
    }

    fn touch(&mut self, device: DeviceId, offset: u64, bytes: u64) {
        let (mut grain, last) = (offset / FOOTPRINT_GRAIN, (offset + bytes - 1) / FOOTPRINT_GRAIN);
        if last - grain > FOOTPRINT_WORDS_MAX as u64 {
            self.footprint_lost = true; // Longer than any device.
            return;
        }
        while grain <= last {
            let (word, from) = (grain / 64, grain % 64);
            let to = if last / 64 == word { last % 64 } else { 63 };
            let mask = (u64::MAX << from) & (u64::MAX >> (63 - to));
            if self.footprint.len() >= FOOTPRINT_WORDS_MAX && !self.footprint.contains_key(&(device, word)) {
                self.footprint_lost = true;
                return;
            }
            *self.footprint.entry((device, word)).or_insert(0) |= mask;
            grain = (word + 1) * 64;
        }
    }

    pub fn requests(&self) -> u64 {
        self.ops.iter().map(|op| op.requests).sum()
    }

    pub fn bytes(&self) -> u64 {
        self.ops.iter().fold(0, |sum, op| sum.saturating_add(op.bytes))
    }

    /// The end of the last request of any device: the minimum size of the storage, if all devices were one.
    pub fn end(&self) -> u64 {
        self.devices.values().map(|device| device.end).max().unwrap_or(0)
    }

    /// From the first request to the last.
    pub fn span(&self) -> Nanos {
        self.last.saturating_sub(self.first.unwrap_or(self.last))
    }

    /// Bytes that were read or written at least once, to a MiB; `None` when there were too many places.
    pub fn footprint(&self) -> Option<u64> {
        let grains: u64 = self.footprint.values().map(|word| u64::from(word.count_ones())).sum();
        (!self.footprint_lost).then_some(grains * FOOTPRINT_GRAIN)
    }

    /// Share of reads and writes that begin where the previous request on their device ended.
    pub fn sequential_share(&self) -> f64 {
        let (read, write) = (self.ops[Op::Read.index()], self.ops[Op::Write.index()]);
        (read.sequential + write.sequential) as f64 / ((read.requests + write.requests) as f64).max(1.0)
    }

    /// Recorded latencies: how many, mean, median, 99th percentile and longest.
    pub fn latencies(&self) -> Option<(u64, Nanos, Nanos, Nanos, Nanos)> {
        let histogram = self.latencies.as_ref()?;
        let at = |quantile| Nanos(histogram.value_at_quantile(quantile)).min(self.latency_max);
        let count = histogram.len();
        // The mean of 64-bit numbers fits.
        let mean = Nanos((self.latency_sum_ns / u128::from(count.max(1))) as u64);
        Some((count, mean, at(0.5), at(0.99), self.latency_max))
    }

    /// Signs that the trace is not what its format says.
    pub fn warnings(&self, format: &Format, import: &Import) -> Vec<String> {
        let mut warnings = Vec::new();
        let moved = self.requests() - self.ops[Op::Flush.index()].requests;
        if format.spec().counts_sectors && moved >= 100 && self.sector_lengths_512 == moved {
            warnings.push(
                "every length is a multiple of 512 sectors: lengths may be bytes, which this format does not have"
                    .into(),
            );
        }
        if !format.spec().counts_sectors && moved >= 100 && self.aligned_512 == 0 {
            warnings.push("no request is of whole sectors: addresses or lengths may be in another unit".into());
        }
        if import.rejected_count() * 100 > import.units {
            let share = import.rejected_count() as f64 * 100.0 / import.units as f64;
            warnings.push(format!("{share:.1} % of the {} could not be read", import.unit_name()));
        }
        if self.gap_max >= GAP_WARNED && self.gap_max.0 > self.span().0 / 2 {
            warnings.push(format!(
                "no request comes for {:.0} h, more than half of the trace: one at its beginning or end may have a wrong time, and `seekless \
                 trace slice` cuts it off",
                self.gap_max.as_secs_f64() / 3600.0
            ));
        }
        if import.too_late > 0 {
            let (count, back) = (import.too_late, import.back_max_ns as f64 / 1e9);
            warnings.push(format!(
                "{} came too late to be put in order, up to {back:.3} s behind; a larger --sort-window, in requests, holds back more to sort them",
                counted(count, "request")
            ));
        }
        warnings
    }

    /// Everything, for programs.
    pub fn to_json(&self, names: &Names) -> serde_json::Value {
        let ops: serde_json::Map<String, serde_json::Value> =
            Op::ALL.iter().map(|op| (op.name().to_owned(), serde_json::json!(self.ops[op.index()]))).collect();
        let devices: serde_json::Map<String, serde_json::Value> =
            self.devices.iter().map(|(id, device)| (names.text(*id), serde_json::json!(device))).collect();
        let lengths: serde_json::Map<String, serde_json::Value> = self
            .lengths
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
            .map(|(power, count)| ((1u64 << power).to_string(), (*count).into()))
            .collect();
        let latencies = self.latencies().map(|(count, mean, median, p99, max)| {
            serde_json::json!({
                "requests": count, "mean_ns": mean.0, "p50_ns": median.0, "p99_ns": p99.0, "max_ns": max.0
            })
        });
        serde_json::json!({
            "requests": self.requests(),
            "bytes": self.bytes(),
            "first_ns": self.first.map(|first| first.0),
            "last_ns": self.last.0,
            "span_ns": self.span().0,
            "operations": ops,
            "devices": devices,
            "requests_of_further_devices": self.devices_lost,
            "footprint_bytes": self.footprint(),
            "sequential_share": self.sequential_share(),
            "aligned_512": self.aligned_512,
            "aligned_4096": self.aligned_4096,
            "lengths_from": lengths,
            "recorded_latency": latencies,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A request is sequential where the previous one on its device ended; a flush has no end.
    #[test]
    fn a_flush_is_no_predecessor() {
        let mut summary = Summary::default();
        let read = |offset| Request::new(Nanos(0), Op::Read, offset, 512);
        for request in [Request::new(Nanos(0), Op::Flush, 0, 0), read(0)] {
            summary.add(&request);
        }
        assert_eq!(summary.ops[Op::Read.index()].sequential, 0);
        for request in [read(512), Request::new(Nanos(0), Op::Flush, 0, 0), read(1024), read(0)] {
            summary.add(&request);
        }
        assert_eq!(summary.ops[Op::Read.index()].sequential, 2);
    }
}
