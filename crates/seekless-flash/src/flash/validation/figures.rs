//! Figures of a drive that follow from measurements.

use super::super::drive::{Interface, Model};
use crate::units::Nanos;

/// What a figure may be: times up to 100 ms, rates from 1 MB/s to 1 TB/s, bytes to 1 MiB.
const TIME_MAX: f64 = 1e8;
const RATES: (f64, f64) = (1e6, 1e12);
const BYTES_MAX: f64 = 1e6;

/// A change of a figure by a part is one of the figure and this.
const TIME_OFFSET: f64 = 1_000.0;
const BYTES_OFFSET: f64 = 100.0;

/// A figure that can be fitted.
pub struct Figure {
    /// Its option in a stack line.
    pub option: &'static str,
    place: fn(&mut Model) -> Option<FigureMut<'_>>,
}

/// Where a drive has a figure.
enum FigureMut<'a> {
    Time(&'a mut Nanos),
    Rate(&'a mut u64),
    Bytes(&'a mut u32),
}

impl FigureMut<'_> {
    fn get(&self) -> f64 {
        match self {
            FigureMut::Time(time) => time.0 as f64,
            FigureMut::Rate(rate) => **rate as f64,
            FigureMut::Bytes(bytes) => f64::from(**bytes),
        }
    }

    fn set(self, value: f64) {
        match self {
            FigureMut::Time(time) => *time = Nanos(value.clamp(0.0, TIME_MAX).round() as u64),
            FigureMut::Rate(rate) => *rate = value.clamp(RATES.0, RATES.1).round() as u64,
            FigureMut::Bytes(bytes) => *bytes = value.clamp(0.0, BYTES_MAX).round() as u32,
        }
    }

    /// What is added before a figure is changed by a factor: a time or a number of bytes can leave zero.
    fn offset(&self) -> f64 {
        match self {
            FigureMut::Time(_) => TIME_OFFSET,
            FigureMut::Rate(_) => 0.0,
            FigureMut::Bytes(_) => BYTES_OFFSET,
        }
    }
}

fn interface(model: &mut Model) -> &mut Interface {
    match model {
        Model::Ssd(drive) => &mut drive.interface,
        Model::Zns(drive) => &mut drive.interface,
    }
}

macro_rules! figure {
    ($option:literal, interface.$field:ident, $kind:ident) => {
        Figure { option: $option, place: |model| Some(FigureMut::$kind(&mut interface(model).$field)) }
    };
    ($option:literal, cells.$field:ident, $kind:ident) => {
        Figure {
            option: $option,
            place: |model| {
                Some(FigureMut::$kind(match model {
                    Model::Ssd(drive) => &mut drive.cells.$field,
                    Model::Zns(drive) => &mut drive.cells.$field,
                }))
            },
        }
    };
}

/// All of them.
pub const FIGURES: &[Figure] = &[
    figure!("program", cells.program, Time),
    figure!("command", interface.command, Time),
    figure!("write-latency", interface.write_latency, Time),
    figure!("transfer-rate", interface.transfer_rate, Rate),
    figure!("list-latency", interface.list_latency, Time),
    figure!("merge", interface.merge, Time),
    figure!("merge-sector", interface.merge_sector, Time),
    figure!("merge-after", interface.merge_after, Time),
    figure!("narrow", interface.narrow, Time),
    Figure {
        option: "journal",
        place: |model| match model {
            Model::Ssd(drive) => Some(FigureMut::Bytes(&mut drive.journal_bytes)),
            Model::Zns(_) => None,
        },
    },
    figure!("append", interface.append, Time),
    figure!("append-latency", interface.append_latency, Time),
    figure!("read", cells.read, Time),
    figure!("correction", cells.correction, Time),
    figure!("channel-setup", cells.channel_setup, Time),
    figure!("channel-rate", cells.channel_rate, Rate),
    figure!("read-command", interface.read_command, Time),
    figure!("read-latency", interface.read_latency, Time),
    figure!("link-setup", interface.link_setup, Time),
    figure!("link-rate", interface.link_rate, Rate),
];

impl Figure {
    /// Its value in nanoseconds, bytes a second, or bytes; `None` where the drive does not have it.
    pub fn of(&self, model: &Model) -> Option<f64> {
        (self.place)(&mut model.clone()).map(|place| place.get())
    }

    /// Gives it the value that it has in another drive.
    pub fn copy(&self, from: &Model, to: &mut Model) {
        if let (Some(value), Some(place)) = (self.of(from), (self.place)(to)) {
            place.set(value);
        }
    }

    /// Changes it by a part, as a natural logarithm; false where that changes nothing, such as a time of 0 that was to be shorter.
    pub(super) fn change(&self, model: &mut Model, part: f64) -> bool {
        let before = self.of(model);
        if let Some(place) = (self.place)(model) {
            let value = (place.get() + place.offset()) * part.exp() - place.offset();
            place.set(value);
        }
        self.of(model) != before
    }

    /// As a stack line has it: `command=3000ns`.
    pub fn text(&self, model: &Model) -> Option<String> {
        let mut model = model.clone();
        let unit = match (self.place)(&mut model)? {
            FigureMut::Time(_) => "ns",
            FigureMut::Rate(_) | FigureMut::Bytes(_) => "B",
        };
        Some(format!("{}={:.0}{unit}", self.option, self.of(&model)?))
    }
}

/// The drive with `figures` that are round and the same for any drive, so that nothing that was known of its times has a part in
/// what is fitted: times of 2 us, programs of 1 ms, reads of 50 us, 2 GB/s, and 0 for what only some drives have.
#[must_use]
pub fn round_figures(model: &Model, figures: &[&'static Figure]) -> Model {
    let mut model = model.clone();
    for figure in figures {
        let Some(place) = (figure.place)(&mut model) else { continue };
        let value = match (figure.option, &place) {
            ("program", _) => 1e6,
            ("read", _) => 5e4,
            ("merge" | "merge-sector" | "merge-after" | "narrow" | "append" | "append-latency" | "journal", _) => 0.0,
            ("channel-rate", _) => 4e8,
            (_, FigureMut::Rate(_)) => 2e9,
            _ => 2_000.0,
        };
        place.set(value);
    }
    model
}
