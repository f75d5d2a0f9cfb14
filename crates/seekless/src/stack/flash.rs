//! The words of modelled flash drives.

use std::rc::Rc;

use super::error::{BuildError, StackError};
use super::spec::{Constructor, InOrder, Param, Property, WordSpec};
use super::value::{ParamKind, Percent};
use super::{Stack, Word};
use crate::device::Device;
use crate::flash::{Cells, Fill, HostManaged, Interface, Model, Options, Ssd, SsdDevice, WriteBuffer, Zns, ZnsDevice};
use crate::rt::Rt;
use crate::units::{KIB, Nanos};

fn ssds() -> Vec<&'static str> {
    Ssd::names().collect()
}

const COUNT: ParamKind = ParamKind::Integer { min: 1, max: 65_536 };
const TIME: ParamKind = ParamKind::Duration { min: Nanos::ZERO, max: Nanos::from_secs(10) };
const RATE: ParamKind = ParamKind::Bytes { min: 1 << 10, max: 1 << 40 };

/// The options of a word: its own, and those of the cells and of the interface, which all flash drives have.
macro_rules! options {
    ($($own:expr),* $(,)?) => {
        &[
            $($own,)*
            Param::new("channels", COUNT, "channels to the dies"),
            Param::new("dies", COUNT, "dies, on all channels together"),
            Param::new("planes", ParamKind::Integer { min: 1, max: 64 }, "planes of a die, which work together"),
            Param::new("page", ParamKind::Bytes { min: 4 * KIB, max: 1 << 20 }, "bytes of a page"),
            Param::new("read", TIME, "time to read a page"),
            Param::new("program", TIME, "time to program a page in each plane"),
            Param::new("erase", TIME, "time to erase a block in each plane"),
            Param::new("channel-rate", RATE, "bytes a second over a channel"),
            Param::new("channel-setup", TIME, "time of a channel for each transfer, before its bytes"),
            Param::new("correction", TIME, "from a read's transfer until it is corrected; reads overlap in it"),
            Param::new("link-rate", RATE, "bytes a second between host and drive, in each direction"),
            Param::new("link-setup", TIME, "time of the link for each read, before its bytes"),
            Param::new("transfer-rate", RATE, "bytes a second of the transfer of one command"),
            Param::new("queue", COUNT, "commands that the drive holds at once"),
            Param::new("command", TIME, "the controller's processor for a write; commands wait for each other"),
            Param::new("read-command", TIME, "the same for a read"),
            Param::new("write-latency", TIME, "further latency of a write, which overlaps that of other writes"),
            Param::new("read-latency", TIME, "further latency of a read, which overlaps that of other reads"),
            Param::new("list-latency", TIME, "the same, for a command of more than two pages of 4 KiB"),
            Param::new("merge", TIME, "the controller's processor for each piece of a 4 KiB unit that is written"),
            Param::new("merge-sector", TIME, "the same, for each of its sectors"),
            Param::new("merge-after", TIME, "the same, once for a command, after its confirmation"),
            Param::new("narrow", TIME, "with sectors of 512 bytes: the controller's processor for a write of 4 KiB"),
        ]
    };
}

pub(super) const SSD: WordSpec = WordSpec {
    name: "ssd",
    help: "a modelled flash drive; every figure of a drive in the catalogue can be replaced",
    argument: Some(
        &Param::new(
            "drive",
            ParamKind::Name {
                catalogue: ssds,
                otherwise: "and its figures as options: ssd:nvme-a,dies=64,program=700us",
            },
            "a drive in the catalogue",
        )
        .default("nvme-a"),
    ),
    options: options![
        Param::new("size", ParamKind::Bytes { min: 1 << 20, max: 15 << 40 }, "capacity (default that of the drive)"),
        Param::new("fill", ParamKind::Choice(&["fresh", "sequential", "random"]), "what was written before")
            .default("fresh"),
        Param::new(
            "spare",
            ParamKind::Percent { max: Percent::ALL },
            "spare capacity for garbage collection, as a share of the size",
        ),
        Param::new(
            "pages",
            ParamKind::Integer { min: 1, max: 1 << 20 },
            "pages of an erase block (default that of the drive; fewer with a smaller size)",
        ),
        Param::new("buffer", ParamKind::Bytes { min: 64 * KIB, max: 1 << 40 }, "its write buffer"),
        Param::new("protected", ParamKind::Switch, "the write buffer survives power cuts, and a flush costs nothing"),
        Param::new(
            "journal",
            ParamKind::Bytes { min: 0, max: 1 << 20 },
            "mapping journal for each write that is not sequential"
        ),
        Param::new("block", ParamKind::Bytes { min: 512, max: 4096 }, "smallest unit that the host can address")
            .default("512B"),
        Param::new(
            "request",
            ParamKind::Bytes { min: 4 * KIB, max: 32 << 20 },
            "largest request that the host issues (default 128KiB)",
        ),
        Param::new("keep", ParamKind::Switch, "store the data; without it, only the times are right").default("on"),
    ],
    properties: &[],
    constructor: Constructor::VolatileDevice(|rt, word| Box::pin(async { make_ssd(rt, word) })),
};

fn make_ssd(rt: &Rt, word: &Word) -> Result<Device, BuildError> {
    let drive = ssd(word)?;
    let block_bytes = u32::try_from(word.bytes("block")).unwrap_or(u32::MAX);
    if !block_bytes.is_power_of_two() {
        return Err(BuildError::Option { key: "block", problem: "it must be a power of two".into() });
    }
    let fill = match word.choice("fill") {
        "sequential" => Fill::Sequential,
        "random" => Fill::Random,
        _ => Fill::Fresh,
    };
    let request_bytes_max = match word.given("request") {
        Some(_) => narrow(word.bytes("request") / (4 * KIB) * (4 * KIB)),
        None => Options::default().request_bytes_max,
    };
    let options = Options { fill, block_bytes, keep_bytes: word.switch("keep"), request_bytes_max };
    let device = SsdDevice::new(rt.clone(), &drive, options).map_err(|error| BuildError::other(error.to_string()))?;
    Ok(Rc::new(device))
}

/// The drive of an `ssd` word.
fn ssd(word: &Word) -> Result<Ssd, BuildError> {
    let name = word.choice("drive");
    let base = Ssd::named(name).ok_or_else(|| BuildError::other(format!("no flash drive is called `{name}`")))?;
    let given = |key: &str| word.given(key).is_some();
    let bytes = |key: &'static str, base: u64| if given(key) { word.bytes(key) } else { base };
    let count = |key: &'static str, base: u32| if given(key) { narrow(word.integer(key)) } else { base };
    let mut drive = Ssd {
        bytes: bytes("size", base.bytes) / (4 * KIB) * (4 * KIB),
        spare: if given("spare") { word.percent("spare").hundredths } else { base.spare },
        cells: Cells { pages: count("pages", base.cells.pages), ..cells(word, &base.cells) },
        interface: interface(word, &base.interface),
        buffer: WriteBuffer {
            bytes: bytes("buffer", base.buffer.bytes),
            protected: if given("protected") { word.switch("protected") } else { base.buffer.protected },
        },
        journal_bytes: narrow(bytes("journal", base.journal_bytes.into())),
        ..*base
    };
    if given("size") && !given("pages") {
        drive.cells.pages = drive.pages_for_size();
        if !given("erase") {
            // Erasures keep their share of the time, though there are more of them.
            let erase = base.cells.erase.0 * u64::from(drive.cells.pages) / u64::from(base.cells.pages);
            drive.cells.erase = Nanos(erase);
        }
    }
    Ok(drive)
}

fn time(word: &Word, key: &'static str, base: Nanos) -> Nanos {
    if word.given(key).is_some() { word.duration(key) } else { base }
}

/// The cells of a drive, with what the word says otherwise.
fn cells(word: &Word, base: &Cells) -> Cells {
    let given = |key: &str| word.given(key).is_some();
    let count = |key: &'static str, base: u32| if given(key) { narrow(word.integer(key)) } else { base };
    Cells {
        channels: count("channels", base.channels),
        dies: count("dies", base.dies),
        planes: count("planes", base.planes),
        page_bytes: if given("page") { narrow(word.bytes("page")) } else { base.page_bytes },
        pages: base.pages,
        read: time(word, "read", base.read),
        program: time(word, "program", base.program),
        erase: time(word, "erase", base.erase),
        channel_rate: if given("channel-rate") { word.bytes("channel-rate") } else { base.channel_rate },
        channel_setup: time(word, "channel-setup", base.channel_setup),
        correction: time(word, "correction", base.correction),
    }
}

/// The interface of a drive, in the same way.
fn interface(word: &Word, base: &Interface) -> Interface {
    let given = |key: &str| word.given(key).is_some();
    let rate = |key: &'static str, base: u64| if given(key) { word.bytes(key) } else { base };
    Interface {
        queue: if given("queue") { narrow(word.integer("queue")) } else { base.queue },
        command: time(word, "command", base.command),
        read_command: time(word, "read-command", base.read_command),
        append: base.append,
        append_latency: base.append_latency,
        write_latency: time(word, "write-latency", base.write_latency),
        read_latency: time(word, "read-latency", base.read_latency),
        list_latency: time(word, "list-latency", base.list_latency),
        transfer_rate: rate("transfer-rate", base.transfer_rate),
        link_setup: time(word, "link-setup", base.link_setup),
        link_rate: rate("link-rate", base.link_rate),
        merge: time(word, "merge", base.merge),
        merge_sector: time(word, "merge-sector", base.merge_sector),
        merge_after: time(word, "merge-after", base.merge_after),
        narrow: time(word, "narrow", base.narrow),
    }
}

fn narrow(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

fn znss() -> Vec<&'static str> {
    Zns::names().collect()
}

const LIMIT: ParamKind = ParamKind::Integer { min: 0, max: 1 << 20 };

pub(super) const ZNS: WordSpec = WordSpec {
    name: "zns",
    help: "a modelled flash drive with zones, which are written in order; lfs can be on it, with zoned between them",
    argument: Some(
        &Param::new(
            "drive",
            ParamKind::Name {
                catalogue: znss,
                otherwise: "and its figures as options: zns:zns-a,zones=64,capacity=96MiB",
            },
            "a drive in the catalogue",
        )
        .default("zns-a"),
    ),
    options: options![
        Param::new("zones", ParamKind::Integer { min: 1, max: 1 << 20 }, "zones (default those of the drive)"),
        Param::new("zone", ParamKind::Bytes { min: 64 * KIB, max: 1 << 40 }, "distance from one zone to the next"),
        Param::new("capacity", ParamKind::Bytes { min: 64 * KIB, max: 1 << 40 }, "bytes of a zone that can be written"),
        Param::new("open", LIMIT, "zones that can be open at once; 0 for no limit"),
        Param::new("active", LIMIT, "zones that can be open or closed at once; 0 for no limit"),
        Param::new("fill", ParamKind::Choice(&["fresh", "sequential"]), "fresh: all zones are empty; sequential: full")
            .default("fresh"),
        Param::new("append", TIME, "the controller's processor for an append beyond a write"),
        Param::new("append-latency", TIME, "further latency of an append, which overlaps that of other appends"),
        Param::new("buffer", ParamKind::Bytes { min: 64 * KIB, max: 1 << 40 }, "its write buffer"),
        Param::new("protected", ParamKind::Switch, "the write buffer survives power cuts, and a flush costs nothing"),
        Param::new("block", ParamKind::Bytes { min: 512, max: 4096 }, "smallest unit that the host can address")
            .default("4KiB"),
        Param::new("keep", ParamKind::Switch, "store the data; without it, only the times are right").default("on"),
    ],
    properties: &[Property::ModelledZones],
    constructor: Constructor::VolatileDevice(|rt, word| Box::pin(async { make_zns(rt, word) })),
};

fn make_zns(rt: &Rt, word: &Word) -> Result<Device, BuildError> {
    let block_bytes = u32::try_from(word.bytes("block")).unwrap_or(u32::MAX);
    if !block_bytes.is_power_of_two() {
        return Err(BuildError::Option { key: "block", problem: "it must be a power of two".into() });
    }
    let fill = if word.choice("fill") == "sequential" { Fill::Sequential } else { Fill::Fresh };
    let options = Options { fill, block_bytes, keep_bytes: word.switch("keep"), ..Options::default() };
    let drive = zns(word)?;
    let device = ZnsDevice::new(rt.clone(), &drive, options).map_err(|error| BuildError::other(error.to_string()))?;
    Ok(Rc::new(device))
}

/// The drive of a `zns` word.
fn zns(word: &Word) -> Result<Zns, BuildError> {
    let name = word.choice("drive");
    let base = Zns::named(name).ok_or_else(|| BuildError::other(format!("no drive with zones is called `{name}`")))?;
    let given = |key: &str| word.given(key).is_some();
    let bytes = |key: &'static str, base: u64| if given(key) { word.bytes(key) } else { base };
    let count = |key: &'static str, base: u32| if given(key) { narrow(word.integer(key)) } else { base };
    let capacity_bytes = match (given("capacity"), given("zone")) {
        (true, _) => word.bytes("capacity"),
        (false, true) => word.bytes("zone").min(base.capacity_bytes),
        (false, false) => base.capacity_bytes,
    };
    let zone_bytes = match (given("zone"), given("capacity")) {
        (true, _) => word.bytes("zone"),
        (false, true) => capacity_bytes.next_power_of_two(),
        (false, false) => base.zone_bytes,
    };
    Ok(Zns {
        zones: count("zones", base.zones),
        zone_bytes,
        capacity_bytes,
        open_max: count("open", base.open_max),
        active_max: count("active", base.active_max),
        cells: cells(word, &base.cells),
        interface: Interface {
            append: time(word, "append", base.interface.append),
            append_latency: time(word, "append-latency", base.interface.append_latency),
            ..interface(word, &base.interface)
        },
        buffer: WriteBuffer {
            bytes: bytes("buffer", base.buffer.bytes),
            protected: if given("protected") { word.switch("protected") } else { base.buffer.protected },
        },
        ..*base
    })
}

pub(super) const SMR: WordSpec = WordSpec {
    name: "smr",
    help: "zones over a modelled disk, as a host-managed shingled disk has them; lfs can be on it, with zoned between them",
    argument: None,
    options: &[
        Param::new("zone", ParamKind::Bytes { min: 64 * KIB, max: 1 << 40 }, "size of a zone").default("256MiB"),
        Param::new("open", LIMIT, "zones that can be open at once; 0 for no limit").default("128"),
    ],
    properties: &[Property::ModelledZones],
    constructor: Constructor::DeviceLayer(InOrder::No, |_, below, word| Box::pin(async move { make_smr(below, word) })),
};

fn make_smr(below: Device, word: &Word) -> Result<Device, BuildError> {
    let disk = HostManaged::new(below, word.bytes("zone"), narrow(word.integer("open")));
    Ok(Rc::new(disk.map_err(|error| BuildError::other(error.to_string()))?))
}

impl Stack {
    /// The drive of a stack that is one modelled flash drive, such as `ssd:nvme-a` or `zns:zns-a`.
    ///
    /// # Errors
    /// When it is something else.
    pub fn flash(&self) -> Result<Model, StackError> {
        match &self.words[..] {
            [word] if word.name() == SSD.name => match ssd(word) {
                Ok(drive) => Ok(Model::Ssd(drive)),
                Err(cause) => Err(self.blame(word, "make", cause)),
            },
            [word] if word.name() == ZNS.name => match zns(word) {
                Ok(drive) => Ok(Model::Zns(drive)),
                Err(cause) => Err(self.blame(word, "make", cause)),
            },
            [first, ..] => {
                let problem = "this is no single modelled flash drive";
                Err(StackError::new(&self.line, first.name_span.clone(), problem).hint("for example: ssd:nvme-a"))
            }
            [] => unreachable!("S1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Data, DeviceError, WriteFlags};
    use crate::rt::{Executor, HostProfile};
    use crate::stack::{Identity, NoLeaves, Purpose, Usage};
    use crate::units::Sector;

    /// Aim: every file system runs on flash, and so do arrays. Method: a file is written, made durable and read again, in less
    /// time than a disk would take; twice, with the same nanoseconds.
    #[test]
    fn file_systems_run_on_flash() {
        for line in [
            "lfs / ssd:nvme-a,size=64MiB,block=4KiB",
            "vlfs / ssd:size=64MiB,fill=random,protected=off",
            "ffs / ssd:size=64MiB,fill=sequential",
            "lfs / raid0:n=2 / ssd:size=64MiB,dies=8,page=8KiB,program=2ms,spare=28%",
        ] {
            let run = || {
                let executor = Executor::simulated(1, HostProfile::NONE);
                let rt = executor.rt().clone();
                let stack = Stack::parse(line).unwrap();
                assert!(stack.is_volatile());
                let run = async {
                    let mounted =
                        stack.mount(&rt, &NoLeaves, &Identity::new([1, 2, 3, 4]), Usage::default()).await.unwrap();
                    let before = rt.now();
                    let client = crate::fs::client::Client::new(mounted.fs.clone());
                    client.write_file(b"f", &[1; 100_000]).await.unwrap();
                    client.sync().await.unwrap();
                    assert_eq!(client.read_file(b"f").await.unwrap(), [1; 100_000]);
                    let took = rt.now() - before;
                    mounted.fs.close().await.unwrap();
                    took
                };
                executor.block_on(run).unwrap()
            };
            let took = run();
            assert!(took > Nanos::from_micros(50) && took < Nanos::from_millis(60), "{line}: {took:?}");
            assert_eq!(took, run(), "{line}");
        }
        for (line, problem) in [
            ("ssd:dies=30", "spread evenly"),
            ("ssd:page=5KiB", "multiple of 4096"),
            ("ssd:block=1000B", "power of two"),
            ("ssd:pages=1,dies=2,channels=1", "16 stripes"),
            ("ssd:buffer=64KiB,planes=8", "two stripes"),
        ] {
            let executor = Executor::simulated(1, HostProfile::NONE);
            let rt = executor.rt().clone();
            let stack = Stack::parse(line).unwrap();
            let opened = executor.block_on(async { stack.open(&rt, &NoLeaves, Purpose::Use).await }).unwrap();
            let error = opened.err().expect(line).to_string();
            assert!(error.contains(problem), "{line}: {error}");
        }
        assert!(Stack::parse("zns:zones=16").unwrap().flash().is_ok_and(|model| model.name() == "zns-a"));
        assert!(Stack::parse("ssd:nvme-a,dies=64").unwrap().flash().is_ok_and(|model| model.name() == "nvme-a"));
        assert!(Stack::parse("lfs / ssd:nvme-a").unwrap().flash().is_err());
    }

    /// Aim: drives with zones are built and have zones, `fault` above passes them on, and a file system fails on them without
    /// harm. Method: each word, a write away from the write pointer, and mkfs.
    #[test]
    fn zones_are_built() {
        for (line, count) in [
            ("zns:zones=16", 16),
            ("zns:zones=16,zone=1MiB,capacity=768KiB,open=4,active=8", 16),
            ("smr:zone=1MiB / disk:size=64MiB,rpm=7200,seek=8ms,rate=100MB", 64),
        ] {
            let executor = Executor::simulated(1, HostProfile::NONE);
            let rt = executor.rt().clone();
            let (stack, above) = (Stack::parse(line).unwrap(), Stack::parse(&format!("fault / {line}")).unwrap());
            let volume = Stack::parse(&format!("lfs / {line}")).unwrap();
            let run = async {
                let opened = stack.open(&rt, &NoLeaves, Purpose::Use).await.unwrap();
                let device = opened.device().unwrap();
                let zones = device.geometry().zones.unwrap();
                assert!(zones.count.abs_diff(count) <= 1, "{line}: {}", zones.count);
                let data = Data::zeroes(4096);
                let wrong = device.write(Sector(8), data.clone(), WriteFlags::NONE).await.unwrap_err();
                assert!(matches!(wrong, DeviceError::NotAtWritePointer { pointer: Sector(0), .. }), "{line}: {wrong}");
                let zoned = device.zoned().unwrap();
                assert_eq!(zoned.append(1, data, WriteFlags::NONE).await.unwrap(), zones.start(1));
                let opened = above.open(&rt, &NoLeaves, Purpose::Use).await.unwrap();
                let device = opened.device().unwrap();
                assert_eq!(device.geometry().zones, Some(zones));
                assert_eq!(
                    device.zoned().unwrap().append(1, Data::zeroes(4096), WriteFlags::NONE).await.unwrap(),
                    zones.start(1)
                );
                let opened = volume.open(&rt, &NoLeaves, Purpose::Format).await.unwrap();
                assert!(opened.mkfs(&Identity::new([1, 2, 3, 4])).await.is_err());
            };
            executor.block_on(run).unwrap();
        }
        for (line, problem) in [
            ("zns:capacity=100KiB", "multiple of a stripe"),
            ("zns:open=9,active=8", "no more can be open"),
            ("zns:buffer=64KiB", "a stripe for each zone"),
            ("smr:zone=1GiB / memory:64MiB", "smaller than a zone"),
        ] {
            let executor = Executor::simulated(1, HostProfile::NONE);
            let rt = executor.rt().clone();
            let stack = Stack::parse(line).unwrap();
            let opened = executor.block_on(async { stack.open(&rt, &NoLeaves, Purpose::Use).await }).unwrap();
            let error = opened.err().expect(line).to_string();
            assert!(error.contains(problem), "{line}: {error}");
        }
    }
}
