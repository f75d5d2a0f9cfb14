//! Generated traces are read back unchanged from every writable format.

use seekless::rng::Rng;
use seekless::units::Nanos;

use super::{as_format, trace, written};
use crate::trace::{DeviceId, FORMATS, Flags, Names, Op, Options, Request};

/// What a format keeps of a request.
struct Keeps {
    name: &'static str,
    /// The smallest difference of times.
    time_unit: u64,
    /// Differences of times alone.
    relative_times: bool,
    /// Flushes and discards.
    all_operations: bool,
    /// Of all operations, discards too.
    discards: bool,
    flags: bool,
    latency: bool,
    process_and_cpu: bool,
    devices: Devices,
    /// Addresses and lengths need not be whole sectors.
    bytes: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Devices {
    One,
    Numbers,
    Block,
    Named,
}

const fn keeps(name: &'static str, time_unit: u64, devices: Devices) -> Keeps {
    Keeps {
        name,
        time_unit,
        relative_times: false,
        all_operations: false,
        discards: true,
        flags: false,
        latency: false,
        process_and_cpu: false,
        devices,
        bytes: false,
    }
}

const KEPT: &[Keeps] = &[
    Keeps {
        all_operations: true,
        flags: true,
        latency: true,
        process_and_cpu: true,
        bytes: true,
        ..keeps("seekless", 1, Devices::Named)
    },
    Keeps {
        all_operations: true,
        flags: true,
        latency: true,
        process_and_cpu: true,
        ..keeps("blktrace", 1, Devices::Block)
    },
    Keeps {
        all_operations: true,
        flags: true,
        latency: true,
        process_and_cpu: true,
        ..keeps("blkparse", 1, Devices::Block)
    },
    Keeps {
        all_operations: true,
        flags: true,
        latency: true,
        process_and_cpu: true,
        ..keeps("tracefs", 1000, Devices::Block)
    },
    Keeps { latency: true, bytes: true, ..keeps("msr", 100, Devices::Named) },
    keeps("spc", 1, Devices::Numbers),
    Keeps { bytes: true, ..keeps("alibaba", 1000, Devices::Numbers) },
    keeps("tencent", 1_000_000_000, Devices::Numbers),
    Keeps { latency: true, bytes: true, ..keeps("systor17", 1, Devices::Numbers) },
    Keeps { all_operations: true, bytes: true, relative_times: true, ..keeps("iolog2", 1000, Devices::Named) },
    Keeps { all_operations: true, bytes: true, ..keeps("iolog3", 1000, Devices::Named) },
    keeps("disksim", 1, Devices::Numbers),
    Keeps { all_operations: true, discards: false, ..keeps("vscsi1", 1000, Devices::One) },
    Keeps { all_operations: true, discards: false, ..keeps("vscsi2", 1000, Devices::One) },
    keeps("cloudphysics", 1, Devices::One),
    keeps("mqsim", 1, Devices::Numbers),
];

/// A trace of which `kept` loses nothing: times do not go back, and no two requests begin at the same byte, so that
/// every completion has one request.
fn generate(kept: &Keeps, rng: &mut Rng, names: &mut Names) -> Vec<Request> {
    let devices: Vec<DeviceId> = (0..3)
        .map(|index| match kept.devices {
            Devices::One => DeviceId::Number(0),
            Devices::Numbers => DeviceId::Number(index * 7),
            Devices::Block => DeviceId::Block(8 << 20 | index),
            Devices::Named => names.intern(format!("disk_{index}").as_bytes()).expect("few names"),
        })
        .collect();
    let mut time = rng.below(1 << 40) / kept.time_unit * kept.time_unit;
    (0..rng.between(1, 300))
        .map(|index| {
            time += rng.below(5) * rng.below(1_000_000) / kept.time_unit * kept.time_unit;
            if kept.time_unit == 1_000_000_000 {
                time += kept.time_unit; // One request a second, so that none is moved.
            }
            let op = match *rng.pick(if kept.all_operations { &Op::ALL } else { &Op::ALL[..2] }) {
                Op::Discard if !kept.discards => Op::Flush,
                op => op,
            };
            let grain = if kept.bytes { 1 } else { 512 };
            let (offset, bytes) = match op {
                Op::Flush => (0, 0),
                _ => ((index << 20 | rng.below(2000)) * grain, rng.between(1, 2000) * grain),
            };
            let flags = rng.below(16) as u8;
            let latency = kept.latency.then(|| Nanos(rng.below(1 << 20) * 1000));
            Request {
                device: *rng.pick(&devices),
                flags: if kept.flags { Flags(flags) } else { Flags::NONE },
                latency: latency.filter(|_| op != Op::Flush),
                process: kept.process_and_cpu.then(|| rng.below(100_000) as u32),
                cpu: kept.process_and_cpu.then(|| rng.below(64) as u32),
                ..Request::new(Nanos(time), op, offset, bytes)
            }
        })
        .collect()
}

/// Aim: readers read what writers write. Method: for every format with a writer, generated traces with its fields pass
/// through it and come back equal; devices are compared as written.
#[test]
fn every_writer_is_read_back() {
    for info in FORMATS.iter().filter(|spec| spec.writes() && spec.parameter.is_none()) {
        let kept = KEPT.iter().find(|kept| kept.name == info.name);
        let kept = kept.unwrap_or_else(|| panic!("{} has a writer and no row here", info.name));
        for seed in 0..40 {
            let mut names = Names::default();
            let generated = generate(kept, &mut Rng::new(seed), &mut names);
            let bytes = written(info.name, &generated, &names);
            for told in [true, false] {
                let options = if told { as_format(info.name) } else { Options::default() };
                let options = Options { latency: true, ..options };
                let mut read = trace(&bytes, &options).unwrap_or_else(|error| panic!("{}: {error}", info.name));
                let mut back = Vec::new();
                while read.next_batch(&mut back).unwrap_or_else(|error| panic!("{}: {error}", info.name)) {}
                assert_eq!(back.len(), generated.len(), "{} with seed {seed}", info.name);
                assert_eq!(read.import().rejected_count(), 0, "{} with seed {seed}", info.name);
                let from = if kept.relative_times { generated[0].time } else { Nanos::ZERO };
                for (one, two) in generated.iter().zip(&back) {
                    assert_eq!(names.text(one.device), read.names().text(two.device), "{} with seed {seed}", info.name);
                    assert_eq!(
                        Request { device: two.device, time: one.time - from, ..*one },
                        *two,
                        "{} with seed {seed}",
                        info.name
                    );
                }
            }
        }
    }
}
