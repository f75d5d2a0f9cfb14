//! Aim: a device that passes requests on passes all of them on, also those that have a default in the trait and are easily
//! forgotten: without them a checksum above does not reach the copies below. Method: every word of that kind over a device
//! that writes down what arrives.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use async_trait::async_trait;

use super::*;
use crate::device::{BlockDevice, Data, DeviceError, Discard, Geometry, Guarantees};
use crate::stack::spec::InOrder;

/// Words that keep something from the device below, and what, with the reason.
const EXCEPTIONS: &[(&str, &[&str], &str)] =
    &[("fork", &["correct", "discard", "flush", "provision", "release", "write"], "what is below stays as it is")];

/// A redundant device that holds zeroes, and says of two devices below how they are put together.
#[derive(Default)]
struct Probe(RefCell<Vec<String>>, Cell<u32>);

impl Probe {
    fn note(&self, what: impl Into<String>) {
        self.0.borrow_mut().push(what.into());
    }
}

#[async_trait(?Send)]
impl BlockDevice for Probe {
    fn geometry(&self) -> Geometry {
        Geometry { sectors: GIB / 512, block_bytes: 512, request_bytes_max: 1 << 20, zones: None }
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { atomic_write_bytes: 512, durable_on_completion: false, ordered: false, discard: Discard::Zeroes }
    }

    fn arrangement(&self) -> u32 {
        self.1.get()
    }

    fn parts(&self) -> u32 {
        2
    }

    fn part_at(&self, _: Sector) -> (u32, u64) {
        (1, 8)
    }

    async fn read(&self, _: Sector, buf: Buf) -> Result<Buf, DeviceError> {
        self.note("read");
        Ok(Buf::zeroed(buf.len()))
    }

    fn readings(&self) -> u32 {
        self.note("readings");
        3
    }

    async fn read_as(&self, _: Sector, buf: Buf, reading: u32) -> Result<Buf, DeviceError> {
        self.note(format!("read_as {reading}"));
        Ok(Buf::zeroed(buf.len()))
    }

    async fn correct(&self, _: Sector, _: Data) -> Result<bool, DeviceError> {
        self.note("correct");
        Ok(true)
    }

    async fn write(&self, _: Sector, _: Data, _: WriteFlags) -> Result<(), DeviceError> {
        self.note("write");
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.note("flush");
        Ok(())
    }

    async fn discard(&self, _: Sector, _: u64) -> Result<(), DeviceError> {
        self.note("discard");
        Ok(())
    }

    async fn next_data(&self, at: Sector) -> Result<Option<Sector>, DeviceError> {
        self.note("next_data");
        Ok(Some(at))
    }

    async fn provision(&self, _: Sector, _: u64) -> Result<(), DeviceError> {
        self.note("provision");
        Ok(())
    }

    async fn release(&self) -> Result<(), DeviceError> {
        self.note("release");
        Ok(())
    }

    fn describe(&self) -> String {
        "probe".to_owned()
    }
}

struct Probes(Rc<Probe>);

#[async_trait(?Send)]
impl LeafOpener for Probes {
    async fn device(&self, _: &Rt, _: &Word, _: Purpose) -> Result<Device, BuildError> {
        Ok(self.0.clone())
    }

    async fn file_system(&self, _: &Rt, _: &Word, _: Purpose, _: Sharing) -> Result<crate::fs::Fs, BuildError> {
        Err(FsError::NotDirectory.into())
    }
}

/// One request of each kind.
async fn ask_everything(device: &dyn BlockDevice) -> Result<(), DeviceError> {
    const AT: Sector = Sector(8);
    device.read(AT, Buf::zeroed(4096)).await?;
    if device.readings() > 1 {
        device.read_as(AT, Buf::zeroed(4096), 1).await?;
    }
    device.correct(AT, Data::zeroes(4096)).await?;
    device.next_data(AT).await?;
    device.provision(AT, 8).await?;
    device.write(AT, Data::zeroes(4096), WriteFlags::NONE).await?;
    device.flush().await?;
    device.discard(AT, 8).await?;
    device.release().await
}

#[test]
fn pass_through_devices_pass_everything_on() {
    const ALL: [&str; 10] =
        ["correct", "discard", "flush", "next_data", "provision", "read", "read_as 1", "readings", "release", "write"];
    // `smr` is over one modelled disk, which has no copies.
    let passes_on = |word: &&&WordSpec| matches!(word.constructor, Constructor::DeviceLayer(..)) && word.name != "smr";
    let mut seen = 0;
    for word in WORDS.iter().filter(passes_on) {
        seen += 1;
        let probe = Rc::new(Probe::default());
        let (leaves, executor) = (Probes(probe.clone()), Executor::simulated(1, HostProfile::NONE));
        let (rt, stack) = (executor.rt(), parse(&format!("{} / file:probe", word.name)));
        let asked = executor.block_on(async {
            let opened = stack.open(rt, &leaves, Purpose::Use).await.unwrap_or_else(|error| panic!("{error}"));
            let device = opened.device().expect("the top is a device");
            assert_eq!(device.geometry().zones.is_some(), device.zoned().is_some(), "`{}` and its zones", word.name);
            let arrangements = [1, 2].map(|below| {
                probe.1.set(below);
                device.arrangement()
            });
            assert_ne!(arrangements[0], arrangements[1], "`{}` keeps the `arrangement` below to itself", word.name);
            assert_eq!(device.parts(), 2, "`{}` keeps the `parts` below to itself", word.name);
            assert_eq!(device.part_at(Sector(8)).0, 1, "`{}` keeps `part_at` to itself", word.name);
            ask_everything(&**device).await
        });
        asked.unwrap().unwrap_or_else(|error| panic!("`{}`: {error}", word.name));
        let arrived = probe.0.borrow();
        let kept: Vec<&str> = ALL.into_iter().filter(|what| !arrived.iter().any(|found| found == what)).collect();
        let expected = EXCEPTIONS.iter().find(|(name, ..)| *name == word.name).map_or(&[][..], |(_, kept, _)| kept);
        assert_eq!(kept, expected, "`{}` keeps this from the device below", word.name);
    }
    assert!(seen >= EXCEPTIONS.len() + 2, "the search is broken");
}

/// What a word says of devices that are written in order agrees with its device: with zones below it passes them on exactly if it
/// can be on zones, and likewise with the spans of `zoned`. Those over several devices, and `zoned` itself, are in `stack/zoned.rs`.
#[test]
fn what_a_word_can_be_on_agrees_with_its_device() {
    const ZNS: &str = "zns:zones=80,zone=1MiB,capacity=768KiB,open=4,active=4";
    let layers = || {
        let make_of = |word: &'static WordSpec| match word.constructor {
            Constructor::DeviceLayer(in_order, make) if word.name != "smr" => Some((word.name, in_order, make)),
            _ => None,
        };
        WORDS.iter().filter_map(move |word| make_of(word))
    };
    let executor = Executor::simulated(1, HostProfile::NONE);
    let rt = executor.rt();
    let run = async {
        let mut in_order_words = 0;
        for (name, in_order, make) in layers() {
            let words = parse(&format!("{name} / {ZNS}"));
            let (on_spans, on_zones) = (parse(&format!("zoned / {ZNS}")), parse(ZNS));
            let spans = on_spans.open(rt, &NoLeaves, Purpose::Format).await.expect("it is made");
            let spans = spans.device().expect("a device").clone();
            assert!(spans.spans().is_some(), "the search is broken");
            let zones = on_zones.open(rt, &NoLeaves, Purpose::Format).await.expect("it is made");
            let zones = zones.device().expect("a device").clone();
            let passes = |device: Device| (device.geometry().zones.is_some(), device.spans().is_some());
            let over = |below: Device| make(rt, below, &words.words()[0]);
            // A device that moves data may refuse them at once.
            let passes_zones = over(zones).await.is_ok_and(|device| passes(device).0);
            let passes_spans = over(spans).await.is_ok_and(|device| passes(device).1);
            let expected = match in_order {
                InOrder::No => (false, false),
                InOrder::Zones => (true, false),
                InOrder::ZonesAndSpans => (true, true),
            };
            assert_eq!((passes_zones, passes_spans), expected, "`{name}`, which says {in_order:?}");
            in_order_words += u32::from(in_order != InOrder::No);
        }
        assert!(in_order_words > 0, "the search is broken");
    };
    executor.block_on(run).unwrap_or_else(|stalled| panic!("{stalled}"));
}
