//! Tests of the room: mapping, closed forms, the device, and comparisons with DiskSim and with real drives.

mod datasheet;
mod device;
mod disksim;
mod file;
mod fit;
mod import;
mod import_meaning;
mod import_wild;
mod index;
mod layout;
mod map;
mod measure;
mod mechanism;
mod queue;
mod validation;

use super::*;
use crate::units::{Nanos, Sector};

fn drive(name: &str) -> &'static Drive {
    Drive::named(name).unwrap_or_else(|| panic!("{name} is not in the catalogue"))
}

/// A mechanism that serves one request after another, with a pause of `think` between them.
struct Closed {
    mechanism: Mechanism,
    now: Nanos,
    think: Nanos,
}

impl Closed {
    fn new(drive: &Drive, think: Nanos) -> Closed {
        Closed { mechanism: Mechanism::new(drive).unwrap(), now: Nanos::ZERO, think }
    }

    /// Serves a request; returns its service time.
    fn serve(&mut self, request: Request) -> Service {
        let service = self.mechanism.service(self.now, self.now, request).unwrap();
        assert!(service.done >= service.start, "{request:?} ends before it starts: {service:?}");
        self.now = service.done + self.think;
        service
    }
}

/// Asserts that `value` is within `tolerance` (a part of it) of `expected`.
#[track_caller]
fn assert_near(what: &str, value: f64, expected: f64, tolerance: f64) {
    assert!(
        (value / expected - 1.0).abs() <= tolerance,
        "{what}: {value} instead of {expected} ± {:.1} %",
        tolerance * 100.0
    );
}

fn read(at: u64, sectors: u32) -> Request {
    Request::read(Sector(at), sectors)
}

fn write(at: u64, sectors: u32) -> Request {
    Request::write(Sector(at), sectors)
}
