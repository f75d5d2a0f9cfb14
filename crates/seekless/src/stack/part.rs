//! The parts of a running stack, one for each word, for counters, descriptions and warnings.

use crate::device::{Counter, Device};
use crate::fs::{Fs, LogUsage};

/// A part of a running stack, for counters and descriptions.
#[derive(Clone)]
pub enum Part {
    FileSystem(Fs),
    Device(Device),
    /// The instances of one word, below a word that spreads.
    Devices(Vec<Device>),
}

impl Part {
    pub(super) fn of(mut instances: Vec<Device>) -> Part {
        match instances.pop() {
            Some(only) if instances.is_empty() => Part::Device(only),
            last => Part::Devices(instances.into_iter().chain(last).collect()),
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Part::FileSystem(fs) => fs.describe(),
            Part::Device(device) => device.describe(),
            Part::Devices(devices) => {
                let first = devices.first().map(|device| device.describe()).unwrap_or_default();
                format!("{} x {first}", devices.len())
            }
        }
    }

    /// What the user should know at mount. See [`crate::fs::FileSystem::warnings`].
    pub fn warnings(&self) -> Vec<String> {
        match self {
            Part::FileSystem(fs) => fs.warnings(),
            Part::Device(_) | Part::Devices(_) => self
                .arrays()
                .iter()
                .flat_map(|array| array.redundancy().into_iter())
                .flat_map(|it| it.status().warnings())
                .collect(),
        }
    }

    /// The devices of this part that tolerate failed members.
    pub fn arrays(&self) -> Vec<Device> {
        let devices = match self {
            Part::FileSystem(_) => &[],
            Part::Device(device) => std::slice::from_ref(device),
            Part::Devices(devices) => &devices[..],
        };
        devices.iter().filter(|device| device.redundancy().is_some()).cloned().collect()
    }

    /// See [`crate::fs::FileSystem::log_usage`].
    pub fn log_usage(&self) -> Option<LogUsage> {
        match self {
            Part::FileSystem(fs) => fs.log_usage(),
            Part::Device(_) | Part::Devices(_) => None,
        }
    }

    /// For several instances: sums, and the largest of maxima.
    pub fn counters(&self) -> Vec<Counter> {
        match self {
            Part::FileSystem(fs) => fs.counters(),
            Part::Device(device) => device.counters(),
            Part::Devices(devices) => crate::volume::counters_of(devices),
        }
    }
}
