//! What each drive of a stack had to do during a replay.

use seekless::device::{BlockDevice, Device};
use seekless::units::Nanos;

use super::bars::bar;

/// What one drive did.
#[derive(Clone, PartialEq, Debug)]
pub struct DriveLoad {
    /// The drive, as it describes itself. Members of an array have equal names; their order distinguishes them.
    pub name: String,
    pub requests: u64,
    /// Time during which it served requests.
    pub busy: Nanos,
    /// Times that requests waited in its queue before they were served, added up; `None` if the drive does not count them.
    pub waiting: Option<Nanos>,
}

impl DriveLoad {
    /// Share of `elapsed` during which it was busy.
    pub fn busy_share(&self, elapsed: Nanos) -> Option<f64> {
        (elapsed > Nanos::ZERO).then(|| self.busy.as_secs_f64() / elapsed.as_secs_f64())
    }

    /// Requests in its queue, on average over `elapsed`: their rate times the time that each waits (Little's law).
    pub fn queue_mean(&self, elapsed: Nanos) -> Option<f64> {
        self.waiting.filter(|_| elapsed > Nanos::ZERO).map(|waiting| waiting.as_secs_f64() / elapsed.as_secs_f64())
    }

    pub(super) fn to_json(&self, elapsed: Nanos) -> serde_json::Value {
        serde_json::json!({
            "drive": self.name,
            "requests": self.requests,
            "busy_ns": self.busy.0,
            "busy": self.busy_share(elapsed),
            "waiting_ns": self.waiting.map(|waiting| waiting.0),
            "queue_mean": self.queue_mean(elapsed),
        })
    }
}

/// What drives counted before a replay.
pub(super) struct Meter<'a> {
    before: Vec<(&'a Device, DriveLoad)>,
}

impl<'a> Meter<'a> {
    /// Of those devices that count how busy they are.
    pub(super) fn new(devices: &'a [Device]) -> Meter<'a> {
        Meter { before: devices.iter().filter_map(|device| Some((device, reading(device.as_ref())?))).collect() }
    }

    /// What they did since then.
    pub(super) fn since(&self) -> Vec<DriveLoad> {
        let less = |(device, before): &(&Device, DriveLoad)| {
            let after = reading(device.as_ref())?;
            Some(DriveLoad {
                requests: after.requests - before.requests,
                busy: after.busy - before.busy,
                waiting: after.waiting.zip(before.waiting).map(|(after, before)| after - before),
                name: after.name,
            })
        };
        self.before.iter().filter_map(less).collect()
    }
}

/// What a device has counted until now; `None` for one that is no drive.
fn reading(device: &dyn BlockDevice) -> Option<DriveLoad> {
    let counters = device.counters();
    let count = |wanted: &str| counters.iter().find(|(name, _)| *name == wanted).map(|&(_, count)| count);
    Some(DriveLoad {
        name: device.describe(),
        requests: count("requests")?,
        busy: Nanos(count("busy_ns")?),
        waiting: count("waiting_ns").map(Nanos),
    })
}

/// What people read of several drives: how busy they were, from the idlest to the busiest, their queues, and a bar for
/// each drive. One drive has its queue alone, as the table of outcomes has the rest.
pub fn describe_loads(drives: &[DriveLoad], elapsed: Nanos) -> Option<String> {
    let shares: Vec<f64> = drives.iter().map(|drive| drive.busy_share(elapsed)).collect::<Option<_>>()?;
    let queues: Option<Vec<f64>> = drives.iter().map(|drive| drive.queue_mean(elapsed)).collect();
    let span = |values: &[f64], show: &dyn Fn(f64) -> String| {
        let (low, high) = values.iter().fold((f64::MAX, 0.0_f64), |(low, high), &v| (low.min(v), high.max(v)));
        let (low, high) = (show(low), show(high));
        if low == high { low } else { format!("{low} to {high}") }
    };
    let waiting = queues.map(|queues| format!("{} requests waiting on average", span(&queues, &|v| format!("{v:.2}"))));
    if let [_] = drives {
        return waiting;
    }
    let busy = span(&shares, &|share| format!("{:.0}", share * 100.0));
    let bars: String = drives.iter().map(|drive| bar(drive.busy.0.into(), elapsed.0.into())).collect();
    let waiting = waiting.map_or(String::new(), |text| format!(", {text}"));
    (!drives.is_empty()).then(|| format!("{} drives, {busy} % busy{waiting}: {bars}", drives.len()))
}
