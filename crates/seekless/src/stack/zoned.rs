//! The word of the store on zones.

use async_trait::async_trait;
use uuid::Uuid;

use super::Word;
use super::arrays::new_uuid;
use super::error::BuildError;
use super::file_systems::{Checked, Fact, Finding, Probed};
use super::signature::Signature;
use super::spec::{Constructor, InOrder, OpenContext, Param, Property, StoredDevice, WordSpec};
use super::value::{ParamKind, Percent};
use crate::device::Device;
use crate::rt::Rt;
use crate::units::{KIB, MIB, SECTOR_BYTES};
use crate::volume::zoned::{Layout, Plan, Store, ZonedError, check, probe};

pub(super) const ZONED: WordSpec = WordSpec {
    name: "zoned",
    help: "for lfs on a device with zones: its segments in zones, its superblocks and checkpoints in a log of their own",
    argument: None,
    options: &[
        Param::new(
            "span",
            ParamKind::Bytes { min: 128 * KIB, max: 32 * MIB },
            "what is written in order and emptied as a whole, a segment of lfs (default a zone, or a part of it of at most 32 MiB)",
        )
        .fixed(),
        Param::new(
            "spare",
            ParamKind::Percent { max: Percent { hundredths: 9_000 } },
            "share of the zones that is not offered; at least three. Matters where a zone has several spans",
        )
        .default("5%")
        .only_mkfs(),
    ],
    properties: &[Property::ModelledZones, Property::Spans, Property::KnowsUnwritten],
    constructor: Constructor::StoredDevice(&ZonedKind),
};

struct ZonedKind;

impl From<ZonedError> for BuildError {
    fn from(error: ZonedError) -> BuildError {
        match error {
            ZonedError::Device(error) => BuildError::Device(error),
            ZonedError::Nothing => BuildError::other(error.to_string())
                .hint("check that this is the right device, and the stack that it was made with; nothing was changed"),
            ZonedError::Plan(_) => BuildError::other(error.to_string())
                .hint("for example: lfs / zoned / zns:zns-a, or lfs / zoned / smr:zone=32MiB / disk:nearline-4tb"),
            ZonedError::Damaged(_) => BuildError::other(error.to_string()),
        }
    }
}

/// What a reader of the line may want to know of the shape.
fn facts(layout: &Layout) -> Vec<(&'static str, Fact)> {
    vec![
        ("size", Fact::Bytes(layout.sectors() * SECTOR_BYTES)),
        ("span", Fact::Bytes(layout.span_sectors * SECTOR_BYTES)),
        ("spans", Fact::Count(layout.span_count.into())),
        ("zones", Fact::Count(layout.zones.count.into())),
        ("spans_per_zone", Fact::Count(layout.zone_slots())),
    ]
}

#[async_trait(?Send)]
impl StoredDevice for ZonedKind {
    fn in_order(&self) -> InOrder {
        InOrder::Zones
    }

    /// Zones are a model, so no file has any.
    fn signature(&self) -> Option<&'static Signature> {
        None
    }

    /// Always a new one: the stack is one that keeps nothing.
    async fn open(&self, rt: &Rt, below: Device, word: &Word, context: OpenContext) -> Result<Device, BuildError> {
        let uuid = match context.random {
            Some([one, two, ..]) => {
                uuid::Builder::from_random_bytes((u128::from(one) << 64 | u128::from(two)).to_be_bytes())
                    .into_uuid()
                    .into_bytes()
            }
            None => new_uuid(rt, std::slice::from_ref(&below)),
        };
        let span_bytes = word.given("span").map(|_| word.bytes("span"));
        Ok(Store::create(below, &Plan { uuid, span_bytes, spare: word.percent("spare").hundredths }).await?)
    }

    async fn probe(&self, below: Device) -> Result<Option<Probed>, BuildError> {
        let Some(info) = probe(&below).await? else { return Ok(None) };
        let mut facts = facts(&info.layout);
        facts.extend([("spans_used", Fact::Count(info.spans_used)), ("records", Fact::Count(info.records))]);
        Ok(Some(Probed { uuid: Uuid::from_bytes(info.uuid), label: None, facts }))
    }

    async fn check(&self, below: Device) -> Result<Checked, BuildError> {
        let checkup = check(&below).await?;
        let finding = |text: String| Finding { text, repaired: false };
        Ok(Checked {
            findings: checkup.errors.into_iter().map(finding).collect(),
            notes: checkup.notes,
            counts: vec![("records", checkup.records), ("spans_used", checkup.spans_used)],
            ..Checked::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rt::{Executor, HostProfile};
    use crate::stack::{Identity, NoLeaves, Purpose, Stack, Usage, WORDS};
    use crate::units::MIB;

    /// Aim: LFS runs on both kinds of zones, with spans of its own choice and of the user's, and below devices that pass spans on. Method: a
    /// file is written, made durable and read again; twice, with the same nanoseconds.
    #[test]
    fn lfs_runs_on_zones() {
        for (line, segment_bytes) in [
            ("lfs / zoned / zns:zones=80,zone=1MiB,capacity=768KiB,open=4,active=4", 768 * KIB),
            ("lfs / zoned:span=256KiB / zns:zones=40,zone=1MiB,capacity=768KiB", 256 * KIB),
            ("lfs / fault:delay=1us / zoned:span=1MiB,spare=20% / zns:zones=40,zone=4MiB,capacity=4MiB", MIB),
            ("lfs / zoned / smr:zone=1MiB / disk:size=96MiB,rpm=7200,seek=8ms,rate=100MB", MIB),
            ("lfs / zoned / fault:delay=1us / zns:zones=80,zone=1MiB,capacity=768KiB", 768 * KIB),
            ("lfs / zoned / concat:n=2 / zns:zones=48,zone=1MiB,capacity=768KiB,open=4,active=4", 768 * KIB),
            (
                "lfs / zoned / fault / concat:n=3 / fault / smr:zone=1MiB / disk:size=32MiB,rpm=7200,seek=8ms,rate=100MB",
                MIB,
            ),
        ] {
            let run = || {
                let executor = Executor::simulated(1, HostProfile::NONE);
                let rt = executor.rt().clone();
                let stack = Stack::parse(line).unwrap();
                assert!(stack.is_volatile());
                let run = async {
                    let identity = Identity::new([1, 2, 3, 4]);
                    let mounted = stack.mount(&rt, &NoLeaves, &identity, Usage::default()).await.unwrap();
                    let client = crate::fs::client::Client::new(mounted.fs.clone());
                    client.write_file(b"f", &[1; 3_000_000]).await.unwrap();
                    client.sync().await.unwrap();
                    assert_eq!(client.read_file(b"f").await.unwrap(), [1; 3_000_000]);
                    assert!(mounted.fs.check().await.unwrap().is_empty());
                    mounted.fs.close().await.unwrap();
                    let counters: Vec<_> = mounted.parts.iter().flat_map(|part| part.counters()).collect();
                    let count =
                        |wanted: &str| counters.iter().find(|(name, _)| *name == wanted).map(|(_, count)| *count);
                    assert!(count("spans_begun").unwrap() >= 3_000_000 / segment_bytes, "{line}: {counters:?}");
                    rt.now()
                };
                executor.block_on(run).unwrap()
            };
            assert_eq!(run(), run(), "{line}");
        }
    }

    /// Aim: what cannot be is refused before anything is written, with a line that works. Method: each mistake.
    #[test]
    fn other_lines_are_refused() {
        let zns = "zns:zones=80,zone=1MiB,capacity=768KiB";
        for (line, problem, hint) in [
            (format!("lfs / {zns}"), "needs `zoned`", "lfs / zoned / zns:zns-a"),
            (format!("ffs / {zns}"), "writes anywhere", "lfs / zoned / zns:zns-a"),
            (format!("vlfs / {zns}"), "writes anywhere", "lfs / zoned / zns:zns-a"),
            (format!("ffs / zoned / {zns}"), "writes anywhere", "lfs / zoned / zns:zns-a"),
            (format!("vlfs / zoned / {zns}"), "writes anywhere", "lfs / zoned / zns:zns-a"),
            (format!("lfs:segment=256KiB / zoned / {zns}"), "as large as a span", ""),
            (format!("lfs / zoned:span=800KiB / {zns}"), "no larger than what a zone holds", "lfs / zoned"),
            (format!("lfs / zoned / {zns},open=3,active=12"), "4 zones must be open", "lfs / zoned"),
            ("lfs / zoned / memory:64MiB".to_owned(), "no zones", "lfs / zoned"),
            ("lfs / zoned / zns:zones=20,zone=1MiB,capacity=768KiB".to_owned(), "too small", ""),
            (format!("lfs / zoned / fork / {zns}"), "`fork` writes anywhere", "concat:n=2 / zns:zns-a"),
            (format!("lfs / zoned / raid0:n=2 / {zns}"), "`raid0` writes anywhere", "concat:n=2 / zns:zns-a"),
            (format!("lfs / zoned / raid1:n=2 / {zns}"), "`raid1` writes anywhere", "concat:n=2 / zns:zns-a"),
            (
                format!("lfs / raid5:n=3,metadata=off / zoned / {zns}"),
                "`raid5` writes anywhere",
                "several drives go below it",
            ),
            (format!("lfs / concat:n=2 / zoned / {zns}"), "`concat` writes anywhere", "several drives go below it"),
            (format!("lfs / vld / {zns}"), "`vld` writes anywhere", "concat:n=2 / zns:zns-a"),
            (format!("lfs / zoned / zoned / {zns}"), "`zoned` writes anywhere", "several drives go below it"),
        ] {
            let error = refusal(&line);
            assert!(error.contains(problem) && error.contains(hint), "{line}: {error}");
        }
        // Zones are models: on what is kept, nothing is opened or made.
        for line in [
            "lfs / zoned / smr:zone=32MiB / file:a.img",
            "lfs / smr / file:a.img,size=1GiB",
            "lfs / zoned / file:a.img",
        ] {
            let error = refusal(line);
            assert!(
                error.contains("is for modelled storage") && error.contains("disk:nearline-4tb"),
                "{line}: {error}"
            );
        }
    }

    /// The hint names every device that can be there, and no other. Method: the table of words.
    #[test]
    fn the_hint_names_what_can_be_on_zones() {
        let zns = "zns:zones=80,zone=1MiB,capacity=768KiB";
        for (line, order) in [
            (format!("lfs / zoned / fork / {zns}"), InOrder::Zones),
            (format!("lfs / fork / zoned / {zns}"), InOrder::ZonesAndSpans),
        ] {
            let error = refusal(&line);
            let (_, hint) = error.split_once("of devices, ").expect("a hint");
            let (named, _) = hint.split_once(" can be on ").expect("a list of words");
            let named: Vec<&str> = named.split('`').skip(1).step_by(2).collect();
            let can: Vec<&str> = WORDS.iter().filter(|word| word.in_order() >= order).map(|word| word.name).collect();
            assert!(named == can && !can.is_empty(), "{line}: {error}");
        }
    }

    fn refusal(line: &str) -> String {
        let executor = Executor::simulated(1, HostProfile::NONE);
        let rt = executor.rt().clone();
        let stack = Stack::parse(line).unwrap();
        let made = executor.block_on(async {
            let opened = stack.open(&rt, &NoLeaves, Purpose::Format).await?;
            opened.mkfs(&Identity::new([1, 2, 3, 4])).await
        });
        made.unwrap().expect_err(line).to_string()
    }
}
