//! Response times over the time of a trace, in constant memory.

use hdrhistogram::Histogram;
use seekless::units::Nanos;

use super::bars::bar;
use super::stats::LATENCY_MAX;

/// Most intervals. When a trace goes on beyond the last, two become one.
const INTERVALS_MAX: usize = 60;

/// An interval's width at the beginning.
const WIDTH: Nanos = Nanos(1_000_000);

/// Responses to the requests that arrived in one interval.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct Interval {
    pub requests: u64,
    /// Reads and writes that arrived, and how many requests each found under way, in all.
    arrived: u64,
    found: u128,
    sum_ns: u128,
    pub max: Nanos,
    /// To two digits, as there are many of them, of 30 KB each.
    histogram: Option<Box<Histogram<u32>>>,
}

fn new_histogram() -> Box<Histogram<u32>> {
    match Histogram::new_with_bounds(1, LATENCY_MAX, 2) {
        Ok(histogram) => Box::new(histogram),
        Err(error) => unreachable!("the bounds are right: {error}"),
    }
}

impl Interval {
    /// Zero where nothing arrived.
    pub fn mean(&self) -> Nanos {
        Nanos(u64::try_from(self.sum_ns / u128::from(self.requests.max(1))).unwrap_or(u64::MAX))
    }

    /// The response time that a share of the requests did not exceed, to two digits.
    pub fn quantile(&self, share: f64) -> Nanos {
        let value = self.histogram.as_ref().map_or(0, |histogram| histogram.value_at_quantile(share));
        Nanos(value).min(self.max)
    }

    /// How many requests one found under way that arrived, on average; `None` where none arrived.
    fn queue(&self) -> Option<f64> {
        (self.arrived > 0).then(|| self.found as f64 / self.arrived as f64)
    }

    fn add(&mut self, response: Nanos) {
        self.requests += 1;
        self.sum_ns += u128::from(response.0);
        self.max = self.max.max(response);
        self.histogram.get_or_insert_with(new_histogram).saturating_record(response.0);
    }

    fn join(mut self, other: &Interval) -> Interval {
        self.requests += other.requests;
        self.arrived += other.arrived;
        self.found += other.found;
        self.sum_ns += other.sum_ns;
        self.max = self.max.max(other.max);
        if let Some(more) = &other.histogram
            && let Err(error) = self.histogram.get_or_insert_with(new_histogram).add(&**more)
        {
            unreachable!("the bounds are the same: {error}");
        }
        self
    }
}

/// Response times by when requests arrived: equal intervals from the first arrival on.
#[derive(Clone, PartialEq, Debug)]
pub struct OverTime {
    pub width: Nanos,
    pub intervals: Vec<Interval>,
}

impl Default for OverTime {
    fn default() -> OverTime {
        OverTime { width: WIDTH, intervals: Vec::new() }
    }
}

impl OverTime {
    /// Adds the response to a request that arrived so long after the first.
    pub(super) fn add(&mut self, arrived: Nanos, response: Nanos) {
        self.interval(arrived).add(response);
    }

    /// Notes that a request arrived so long after the first, and how many it found under way.
    pub(super) fn arrive(&mut self, arrived: Nanos, under_way: u64) {
        let interval = self.interval(arrived);
        interval.arrived += 1;
        interval.found += u128::from(under_way);
    }

    fn interval(&mut self, arrived: Nanos) -> &mut Interval {
        while arrived.0 / self.width.0 >= INTERVALS_MAX as u64 {
            self.intervals =
                self.intervals.chunks(2).map(|two| two.iter().fold(Interval::default(), Interval::join)).collect();
            self.width.0 *= 2;
        }
        let index = (arrived.0 / self.width.0) as usize;
        if self.intervals.len() <= index {
            self.intervals.resize(index + 1, Interval::default());
        }
        &mut self.intervals[index]
    }

    /// By how many requests the queue grows from the first arrival to the last, `span` later, and how many arrive: twice the
    /// difference between what is found on average in the two halves of that time, to within an interval. `None` when
    /// nothing arrives in a half.
    pub(super) fn growth(&self, span: Nanos) -> Option<(f64, u64)> {
        let middle = (span.0 / 2).div_ceil(self.width.0).min(self.intervals.len() as u64) as usize;
        let (first, second) = self.intervals.split_at(middle);
        let together = |half: &[Interval]| half.iter().fold(Interval::default(), Interval::join);
        let (first, second) = (together(first), together(second));
        Some((2.0 * (second.queue()? - first.queue()?), first.arrived + second.arrived))
    }

    /// A line of bars as high as the mean response, the highest one full; empty where everything is answered at once.
    pub fn bars(&self) -> String {
        let most = self.intervals.iter().map(|interval| interval.mean().0).max().unwrap_or(0);
        if most == 0 {
            return String::new();
        }
        let bar = |interval: &Interval| match interval.requests {
            0 => ' ',
            _ => bar(interval.mean().0.into(), most.into()),
        };
        self.intervals.iter().map(bar).collect()
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        let each = |value: &dyn Fn(&Interval) -> u64| self.intervals.iter().map(value).collect::<Vec<u64>>();
        serde_json::json!({
            "interval_ns": self.width.0,
            "requests": each(&|interval| interval.requests),
            "mean_ns": each(&|interval| interval.mean().0),
            "p50_ns": each(&|interval| interval.quantile(0.5).0),
            "p99_ns": each(&|interval| interval.quantile(0.99).0),
            "max_ns": each(&|interval| interval.max.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every request is in one interval, whatever the length of the trace and the order of answers.
    #[test]
    fn intervals_hold_all_requests() {
        for step in [1, 999_999, 1_000_000, 123_456_789, 1 << 50] {
            let mut over_time = OverTime::default();
            let count = 5000_u64;
            for number in 0..count {
                // Out of order, as answers are.
                let number = number * 7919 % count;
                over_time.add(Nanos(number * step), Nanos(number));
            }
            let intervals = &over_time.intervals;
            assert!(intervals.len() <= INTERVALS_MAX && (step > 1 << 40 || over_time.width.0 >= WIDTH.0));
            assert_eq!(intervals.iter().map(|interval| interval.requests).sum::<u64>(), count);
            assert_eq!(intervals.iter().map(|interval| interval.sum_ns).sum::<u128>(), 4999 * 2500);
            let means: Vec<u64> = intervals.iter().map(|interval| interval.mean().0).collect();
            assert!(means.is_sorted(), "{means:?}");
            for (interval, mean) in intervals.iter().zip(&means) {
                // Responses rise evenly in an interval: its median is its mean, to the two digits that are kept.
                let (median, high) = (interval.quantile(0.5).0, interval.quantile(0.99).0);
                assert!(median.abs_diff(*mean) <= 1 + mean / 50, "{median} and {mean}");
                assert!(median <= high && high <= interval.max.0);
            }
            assert_eq!(intervals.last().map(|last| last.max), Some(Nanos(count - 1)));
            assert!(over_time.bars().ends_with('█'));
        }
        assert_eq!(OverTime::default().bars(), "");
    }
}
