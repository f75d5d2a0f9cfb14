//! Report of how a trace's lines or records were used.

use seekless::units::counted;

use super::request::Event;
use super::tally::{Tallies, Tally};

/// Why a format was chosen that the user named.
pub(super) const AS_ASKED: &str = "as asked";

/// How a trace's lines or records were used.
#[derive(Clone, Debug, Default, serde::Serialize)]
pub struct Import {
    pub files: Vec<String>,
    /// As it is written on the command line.
    pub format: String,
    /// Why this format was chosen.
    pub why: String,
    pub event: Option<Event>,
    /// Lines or records in all.
    pub units: u64,
    pub by_line: bool,
    pub requests: u64,
    /// Requests of devices that were not selected.
    pub other_devices: u64,
    pub skipped: Vec<Tally>,
    pub rejected: Vec<Tally>,
    /// Requests without a part that was invalid.
    pub in_part: Vec<Tally>,
    /// Requests with an earlier time than a previous one, and by how much at most.
    pub out_of_order: u64,
    pub back_max_ns: u64,
    /// Of those, requests that came too late to be sorted.
    pub too_late: u64,
    /// Further remarks.
    pub notes: Vec<String>,
}

impl Import {
    pub fn unit_name(&self) -> &'static str {
        if self.by_line { "lines" } else { "records" }
    }

    /// How many lines or records there are, in words.
    pub(super) fn units_text(&self) -> String {
        counted(self.units, if self.by_line { "line" } else { "record" })
    }

    /// The first occurrence of a tally, in words.
    pub fn example_of(&self, tally: &Tally) -> String {
        match (self.by_line, tally.example.is_empty()) {
            (true, false) => format!(", first line {}: {}", tally.first_at, tally.example),
            (true, true) => format!(", first line {}", tally.first_at),
            (false, _) if tally.first_at > 0 => format!(", first at byte {}", tally.first_at),
            (false, _) => String::new(),
        }
    }

    pub fn rejected_count(&self) -> u64 {
        self.rejected.iter().map(|tally| tally.count).sum()
    }

    /// What of the trace a result is without, in a line; `None` if nothing was rejected. The reasons are in [`Import::to_text`].
    pub fn rejection(&self) -> Option<String> {
        let (files, first) = (self.files.join(", "), self.rejected.first()?);
        let others = if self.rejected.len() > 1 { ", and more" } else { "" };
        Some(format!("{files}: rejected {} of {}: {}{others}", self.rejected_count(), self.units_text(), first.reason))
    }

    /// Why no result should rest on this trace: more than 1 % of it was rejected, or requests came too late to be sorted.
    pub fn unsound(&self) -> Option<String> {
        let rejected = self.rejected_count();
        if rejected * 100 > self.units {
            let first = self.rejected.first().map_or(String::new(), |tally| {
                format!("; {} x {}{}", tally.count, tally.reason, self.example_of(tally))
            });
            return Some(format!("{rejected} of its {} {} were rejected{first}", self.units, self.unit_name()));
        }
        (self.too_late > 0).then(|| format!("{} of its requests came too late to be put in order", self.too_late))
    }

    /// Adds the tallies of one input.
    pub(super) fn add(&mut self, tallies: Tallies) {
        self.units += tallies.units;
        self.by_line = tallies.by_line;
        if let Some(note) = tallies.note.filter(|note| !self.notes.iter().any(|known| known == note)) {
            self.notes.push(note.to_owned());
        }
        add_tallies(&mut self.skipped, tallies.skipped);
        add_tallies(&mut self.rejected, tallies.rejected);
        add_tallies(&mut self.in_part, tallies.in_part);
    }

    /// Adds what a stage has skipped.
    pub(super) fn skip(&mut self, reason: &'static str, count: u64) {
        if count > 0 {
            let tally = Tally { reason, count, first_at: 0, example: String::new() };
            add_tallies(&mut self.skipped, vec![tally]);
        }
    }

    /// The tallies of a trace without requests, in words.
    pub(super) fn because(&self) -> String {
        let mut text = format!(" ({}, read as {})", self.units_text(), self.format);
        for tally in self.rejected.iter().chain(&self.skipped) {
            text += &format!("\n{} x {}{}", tally.count, tally.reason, self.example_of(tally));
        }
        for note in &self.notes {
            text += &format!("\n{note}");
        }
        if self.why == AS_ASKED && self.rejected_count() > 0 {
            text += "\nis it of another format? Without --format it is looked for, and `seekless trace formats` has them all";
        }
        text
    }
}

/// Adds those of one input to those of all, the most frequent first.
fn add_tallies(all: &mut Vec<Tally>, more: Vec<Tally>) {
    for tally in more {
        match all.iter_mut().find(|known| known.reason == tally.reason) {
            Some(known) => known.count += tally.count,
            None => all.push(tally),
        }
    }
    all.sort_by(|one, two| two.count.cmp(&one.count).then(one.reason.cmp(two.reason)));
}
