//! `seekless flash info`: a flash drive's figures, and what they amount to.

use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless::cleaning::model::{cleaned_utilisation, write_amplification};
use seekless::flash::validation::{FioRun, Operation, Predicted, predict};
use seekless::flash::{Cells, Controller, Fill, FlashError, Interface, Model, Ssd, UNIT_BYTES, WriteBuffer, Zns};
use seekless::units::{KIB, Nanos, counted, human_bytes};
use seekless_lab::trace::time_text;
use serde_json::{Value, json};

use super::flash_drives::{known, operation, read_model};
use super::{Done, Failure, output};

/// Show the parameters of a flash drive, where they come from, and how fast they make it
#[derive(clap::Args)]
#[command(
    after_help = "The speeds are those of the model, asked by one thread without a kernel, with commands of one kind: \
                        of a new drive for writes, and of one that was filled in order for reads.

Examples:
  seekless flash info nvme-a
  seekless flash info ssd:nvme-a,size=4GiB,spare=28%
  seekless flash info zns-a --json

Exit codes: 0 shown, 1 failed, 2 wrong usage"
)]
pub(super) struct Args {
    /// A drive of the catalogue, or a stack that is one flash drive
    #[arg(value_name = "DRIVE")]
    drive: String,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let model = read_model(&args.drive)?;
    let speeds = speeds(&model).map_err(Failure::new)?;
    let spare = match &model {
        Model::Ssd(drive) => Some(Spare::of(drive, &speeds).map_err(Failure::new)?),
        Model::Zns(_) => None,
    };
    match args.json {
        true => output::print_json(&to_json(&model, spare.as_ref(), &speeds))?,
        false => output::print(&to_text(&model, spare.as_ref(), &speeds))?,
    }
    Ok(0)
}

/// How fast the drive serves commands of one kind.
struct Speed {
    operation: Operation,
    bytes: u64,
    /// Commands outstanding.
    depth: u32,
    answer: Predicted,
}

/// Depths at which a drive is asked: what one command takes, and what it can do at most.
const ALONE: u32 = 1;
const SATURATED: u32 = 256;

/// What conventional drives are asked, by operation and bytes.
const OF_SSDS: [(Operation, u64); 4] = [
    (Operation::ReadRandom, 4 * KIB),
    (Operation::WriteRandom, 4 * KIB),
    (Operation::Read, 128 * KIB),
    (Operation::Write, 128 * KIB),
];

/// What drives with zones are asked: appends are writes that may be outstanding together.
const OF_ZONED: [(Operation, u64); 4] = [
    (Operation::ReadRandom, 4 * KIB),
    (Operation::Append, 4 * KIB),
    (Operation::Read, 128 * KIB),
    (Operation::Append, 128 * KIB),
];

fn speeds(model: &Model) -> Result<Vec<Speed>, FlashError> {
    let asked = match model {
        Model::Ssd(_) => OF_SSDS,
        Model::Zns(_) => OF_ZONED,
    };
    let mut speeds = Vec::new();
    for (operation, bytes) in asked {
        for depth in [ALONE, SATURATED] {
            // Without a kernel, and with blocks of 4 KiB.
            let case = FioRun {
                engine: "spdk".to_owned(),
                format: String::new(),
                name: String::new(),
                operation,
                block_bytes: bytes,
                zones: 1,
                depth,
                iops: 0.0,
                latency_us: 0.0,
            };
            if let Some(answer) = predict(model, &case)? {
                speeds.push(Speed { operation, bytes, depth, answer });
            }
        }
    }
    Ok(speeds)
}

/// What the garbage collection has, and what it costs in the long run.
struct Spare {
    superblocks: u64,
    /// Of all places, with those that the host does not see.
    bytes: u64,
    /// Closed form for uniform overwrites of the whole drive, see `docs/guide/cleaning.md`.
    amplification: f64,
    /// Random writes of 4 KiB a second that this leaves at most.
    writes_per_s: f64,
}

impl Spare {
    fn of(drive: &Ssd, speeds: &[Speed]) -> Result<Spare, FlashError> {
        let controller = Controller::new(drive, Fill::Fresh, UNIT_BYTES as u32)?;
        let bytes = controller.physical_bytes();
        let amplification = write_amplification(cleaned_utilisation(controller.utilisation()));
        let of_dies = drive.cells.program_rate() as f64 / UNIT_BYTES as f64 / amplification;
        let is_fresh = |speed: &&Speed| speed.operation == Operation::WriteRandom && speed.depth == SATURATED;
        let fresh = speeds.iter().find(is_fresh).map_or(f64::INFINITY, |speed| speed.answer.iops);
        let superblocks = bytes / (drive.cells.superblock_units() * UNIT_BYTES);
        Ok(Spare { superblocks, bytes, amplification, writes_per_s: of_dies.min(fresh) })
    }

    /// Places beyond those of the host's data, as a share of these.
    fn share(&self, drive: &Ssd) -> f64 {
        self.bytes as f64 / drive.bytes as f64 - 1.0
    }
}

/// What drives of both kinds have.
struct Common<'a> {
    name: &'static str,
    product: &'static str,
    known: &'static str,
    source: &'static str,
    cells: &'a Cells,
    interface: &'a Interface,
    buffer: &'a WriteBuffer,
}

impl Common<'_> {
    fn of(model: &Model) -> Common<'_> {
        match model {
            Model::Ssd(Ssd { name, product, known: evidence, source, cells, interface, buffer, .. }) => {
                Common { name, product, known: known(*evidence), source, cells, interface, buffer }
            }
            Model::Zns(Zns { name, product, known: evidence, source, cells, interface, buffer, .. }) => {
                Common { name, product, known: known(*evidence), source, cells, interface, buffer }
            }
        }
    }
}

fn bytes_of(model: &Model) -> u64 {
    match model {
        Model::Ssd(drive) => drive.bytes,
        Model::Zns(drive) => drive.capacity_bytes * u64::from(drive.zones),
    }
}

fn to_text(model: &Model, spare: Option<&Spare>, speeds: &[Speed]) -> String {
    let Common { name, product, known, source, cells, interface, buffer } = Common::of(model);
    let mut rows = vec![
        ("product", product.to_owned()),
        ("known from", known.to_owned()),
        ("source", source.to_owned()),
        ("capacity", format!("{} ({} units of 4 KiB)", human_bytes(bytes_of(model)), bytes_of(model) / UNIT_BYTES)),
    ];
    match (model, spare) {
        (Model::Ssd(drive), Some(spare)) => {
            let share = percent(spare.share(drive));
            rows.push(("spare space", format!("{share} of the capacity, {} in all", human_bytes(spare.bytes))));
        }
        (Model::Zns(drive), _) => rows.push(("zones", zones_text(drive))),
        _ => {}
    }
    let superblock = cells.superblock_units() * UNIT_BYTES;
    let superblocks = spare.map_or(String::new(), |spare| format!("{} superblocks of ", spare.superblocks));
    rows.extend([
        (
            "flash",
            format!(
                "{} on {}, {} each, pages of {}, {} in a block",
                counted(cells.dies.into(), "die"),
                counted(cells.channels.into(), "channel"),
                counted(cells.planes.into(), "plane"),
                human_bytes(cells.page_bytes.into()),
                counted(cells.pages.into(), "page")
            ),
        ),
        (
            "written in",
            format!(
                "stripes of {} (a page in each plane of a die), {superblocks}{}{}",
                human_bytes(cells.stripe_units() * UNIT_BYTES),
                if superblocks.is_empty() { "rows of blocks of " } else { "" },
                human_bytes(superblock)
            ),
        ),
        (
            "a die",
            format!(
                "reads a page in {}, programs a stripe in {}, erases in {}",
                time_text(cells.read),
                time_text(cells.program),
                time_text(cells.erase)
            ),
        ),
        ("a channel", format!("{} and {} for each transfer", rate(cells.channel_rate), time_text(cells.channel_setup))),
        ("link", format!("{} and {} for each command", rate(interface.link_rate), time_text(interface.link_setup))),
        (
            "controller",
            format!(
                "{} for a write, {} for a read; {} at once",
                time_text(interface.command),
                time_text(interface.read_command),
                counted(interface.queue.into(), "command")
            ),
        ),
        (
            "write buffer",
            format!(
                "{}, {}",
                human_bytes(buffer.bytes),
                if buffer.protected { "protected against power cuts" } else { "lost when power fails" }
            ),
        ),
    ]);
    let mut text = format!("{name}\n");
    for (name, value) in rows {
        text += &format!("  {name:<12}  {value}\n");
    }
    text += &format!("\n{}\n", speed_table(speeds));
    text += &format!("\nAll dies together program {}.\n", rate(cells.program_rate()));
    if let Some(spare) = spare {
        text += &format!(
            "After uniform random overwrites (fill=random), the garbage collection makes {:.2} programmed units of each \
             that is written: {:.0} random writes of 4 KiB a second, {}, at most.\n",
            spare.amplification,
            spare.writes_per_s,
            rate((spare.writes_per_s * UNIT_BYTES as f64) as u64)
        );
    }
    text
}

fn zones_text(drive: &Zns) -> String {
    let most = |count: u32, what: &str| match count {
        0 => format!("any number {what}"),
        count => format!("at most {count} {what}"),
    };
    format!(
        "{} of {}, {} apart; {}, {}",
        drive.zones,
        human_bytes(drive.capacity_bytes),
        human_bytes(drive.zone_bytes),
        most(drive.open_max, "open"),
        most(drive.active_max, "active")
    )
}

fn speed_table(speeds: &[Speed]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "commands",
        "size",
        "outstanding",
        "latency",
        "a second",
        "rate",
    ]);
    for Speed { operation: kind, bytes, depth, answer } in speeds {
        let (kind, size) = (operation(*kind), human_bytes(*bytes));
        let latency = time_text(Nanos((answer.latency_us * 1e3) as u64));
        let numbers =
            [depth.to_string(), latency, format!("{:.0}", answer.iops), rate((answer.iops * *bytes as f64) as u64)];
        let numbers = numbers.map(|text| Cell::new(text).set_alignment(CellAlignment::Right));
        table.add_row([Cell::new(kind), Cell::new(size)].into_iter().chain(numbers));
    }
    table
}

fn rate(bytes_per_s: u64) -> String {
    match bytes_per_s {
        0..1_000_000_000 => format!("{:.0} MB/s", bytes_per_s as f64 / 1e6),
        _ => format!("{:.2} GB/s", bytes_per_s as f64 / 1e9),
    }
}

fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

fn to_json(model: &Model, spare: Option<&Spare>, speeds: &[Speed]) -> Value {
    let Common { name, product, known, source, cells, interface, buffer } = Common::of(model);
    let speed = |speed: &Speed| {
        json!({
            "operation": operation(speed.operation),
            "bytes": speed.bytes,
            "depth": speed.depth,
            "latency_ns": (speed.answer.latency_us * 1e3).round() as u64,
            "commands_per_s": speed.answer.iops,
            "bytes_per_s": (speed.answer.iops * speed.bytes as f64).round() as u64,
        })
    };
    let (zones, spare) = match (model, spare) {
        (Model::Zns(drive), _) => {
            let zones = json!({
                "count": drive.zones,
                "zone_bytes": drive.zone_bytes,
                "capacity_bytes": drive.capacity_bytes,
                "open_max": drive.open_max,
                "active_max": drive.active_max,
            });
            (zones, Value::Null)
        }
        (Model::Ssd(drive), Some(spare)) => {
            let spare = json!({
                "share": spare.share(drive),
                "physical_bytes": spare.bytes,
                "superblocks": spare.superblocks,
                "journal_bytes": drive.journal_bytes,
                "random_overwrites": {
                    "write_amplification": spare.amplification,
                    "commands_per_s_max": spare.writes_per_s,
                },
            });
            (Value::Null, spare)
        }
        (Model::Ssd(_), None) => (Value::Null, Value::Null),
    };
    json!({
        "name": name,
        "product": product,
        "known": known,
        "source": source,
        "bytes": bytes_of(model),
        "spare": spare,
        "zones": zones,
        "cells": {
            "channels": cells.channels,
            "dies": cells.dies,
            "planes": cells.planes,
            "page_bytes": cells.page_bytes,
            "pages": cells.pages,
            "stripe_bytes": cells.stripe_units() * UNIT_BYTES,
            "superblock_bytes": cells.superblock_units() * UNIT_BYTES,
            "read_ns": cells.read.0,
            "program_ns": cells.program.0,
            "erase_ns": cells.erase.0,
            "channel_bytes_per_s": cells.channel_rate,
            "channel_setup_ns": cells.channel_setup.0,
            "correction_ns": cells.correction.0,
            "program_bytes_per_s": cells.program_rate(),
        },
        "interface": {
            "queue": interface.queue,
            "command_ns": interface.command.0,
            "read_command_ns": interface.read_command.0,
            "write_latency_ns": interface.write_latency.0,
            "read_latency_ns": interface.read_latency.0,
            "link_bytes_per_s": interface.link_rate,
            "link_setup_ns": interface.link_setup.0,
            "transfer_bytes_per_s": interface.transfer_rate,
        },
        "buffer": { "bytes": buffer.bytes, "protected": buffer.protected },
        "speeds": speeds.iter().map(speed).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every drive of the catalogue, and small, narrow and odd ones, can be shown.
    #[test]
    fn every_drive_can_be_shown() {
        let catalogue = Ssd::names().chain(Zns::names()).map(str::to_owned);
        let odd = [
            "ssd:size=64MiB,dies=8,page=8KiB,spare=28%",
            "ssd:nvme-a,size=1GiB,dies=1,channels=1,planes=1,page=4KiB",
            "zns:zones=2,zone=1MiB,capacity=1MiB,open=1,active=1",
        ];
        for drive in catalogue.chain(odd.map(str::to_owned)) {
            let model = read_model(&drive).unwrap_or_else(|failure| panic!("{drive}: {}", failure.text));
            let speeds = speeds(&model).unwrap_or_else(|problem| panic!("{drive}: {problem}"));
            assert!(!speeds.is_empty() && speeds.iter().all(|speed| speed.answer.iops > 0.0), "{drive}");
            let spare = match &model {
                Model::Ssd(drive) => Some(Spare::of(drive, &speeds).expect("it was asked already")),
                Model::Zns(_) => None,
            };
            let text = to_text(&model, spare.as_ref(), &speeds);
            assert!(text.contains("All dies together program"), "{text}");
            assert!(to_json(&model, spare.as_ref(), &speeds)["cells"]["program_bytes_per_s"].as_u64() > Some(0));
        }
    }

    /// What is said of sequential writes agrees with what the dies program, and of spare space with the line.
    #[test]
    fn figures_agree() {
        let model = read_model("nvme-a").unwrap_or_else(|failure| panic!("{}", failure.text));
        let Model::Ssd(drive) = &model else { panic!("nvme-a has no zones") };
        let speeds = speeds(&model).expect("a drive");
        let spare = Spare::of(drive, &speeds).expect("a drive");
        let share = spare.share(drive);
        assert!((0.07..0.072).contains(&share), "7 %, in whole superblocks: {share}");
        let written = speeds.iter().find(|speed| speed.operation == Operation::Write && speed.depth == SATURATED);
        let written = written.map_or(0.0, |speed| speed.answer.iops * speed.bytes as f64);
        let programmed = drive.cells.program_rate() as f64;
        assert!((0.97..=1.001).contains(&(written / programmed)), "{written} of {programmed}");
    }
}
