//! How long requests took.

use hdrhistogram::Histogram;
use seekless::units::Nanos;

/// The longest latency that a histogram tells from longer ones: a century. It costs half as much memory again as an hour
/// would, which a backlog exceeds.
pub(super) const LATENCY_MAX: u64 = 1 << 62;

/// Latencies from a nanosecond to [`LATENCY_MAX`], exact to three digits, in 450 KB.
pub(crate) fn new_histogram() -> Histogram<u64> {
    match Histogram::new_with_bounds(1, LATENCY_MAX, 3) {
        Ok(histogram) => histogram,
        Err(error) => unreachable!("the bounds are right: {error}"),
    }
}

/// Response times of one kind of request.
pub struct OpStats {
    pub requests: u64,
    pub bytes: u64,
    sum_ns: u128,
    max: Nanos,
    histogram: Option<Histogram<u64>>,
}

impl Default for OpStats {
    fn default() -> OpStats {
        OpStats { requests: 0, bytes: 0, sum_ns: 0, max: Nanos::ZERO, histogram: None }
    }
}

impl OpStats {
    pub(super) fn add(&mut self, bytes: u64, response: Nanos) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        self.sum_ns += u128::from(response.0);
        self.max = self.max.max(response);
        self.histogram.get_or_insert_with(new_histogram).saturating_record(response.0);
    }

    pub(super) fn join(&mut self, other: &OpStats) {
        self.requests += other.requests;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.sum_ns += other.sum_ns;
        self.max = self.max.max(other.max);
        if let Some(more) = &other.histogram {
            let sum = self.histogram.get_or_insert_with(new_histogram);
            if let Err(error) = sum.add(more) {
                unreachable!("the bounds are the same: {error}");
            }
        }
    }

    pub fn mean(&self) -> Nanos {
        Nanos(u64::try_from(self.sum_ns / u128::from(self.requests.max(1))).unwrap_or(u64::MAX))
    }

    pub fn max(&self) -> Nanos {
        self.max
    }

    /// The response time that a share of the requests did not exceed, to three digits.
    pub fn quantile(&self, share: f64) -> Nanos {
        let value = self.histogram.as_ref().map_or(0, |histogram| histogram.value_at_quantile(share));
        Nanos(value).min(self.max)
    }

    pub(super) fn to_json(&self) -> serde_json::Value {
        serde_json::json!({
            "requests": self.requests,
            "bytes": self.bytes,
            "mean_ns": self.mean().0,
            "p50_ns": self.quantile(0.5).0,
            "p90_ns": self.quantile(0.9).0,
            "p99_ns": self.quantile(0.99).0,
            "p999_ns": self.quantile(0.999).0,
            "max_ns": self.max.0,
        })
    }
}
