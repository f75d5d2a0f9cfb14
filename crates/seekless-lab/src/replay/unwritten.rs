//! Reads of what was never written, which new storage answers without reading.

use seekless::stack::{Property, Stack};
use seekless::units::counted;

use super::run::Outcome;

/// A warning where reads of what was never written take no time: a storage in use is not so fast. Flash drives count these reads.
pub fn unwritten_reads(stack: &Stack, outcome: &Outcome) -> Option<String> {
    if let Some(word) = stack.word_with(Property::KnowsUnwritten) {
        let name = word.name();
        return Some(format!(
            "{stack} is new: `{name}` answers reads of what the trace has not written before in no time"
        ));
    }
    let drive = stack.words().last()?;
    let in_use = match drive.name() {
        "ssd" => "fill=random",
        "zns" => "fill=sequential",
        _ => return None,
    };
    if drive.choice("fill") != "fresh" {
        return None;
    }
    let sum = |wanted: &str| -> u64 {
        let counters = outcome.counters.iter().flat_map(|(_, counters)| counters);
        counters.filter(|(name, _)| *name == wanted).map(|(_, value)| *value).sum()
    };
    let (units, unwritten) = (sum("units_read"), sum("units_unwritten"));
    (unwritten > units / 2).then(|| {
        let units = counted(units, "unit");
        format!(
            "{stack} is new: {unwritten} of {units} of 4 KiB that were read had never been written, and are answered \
             without flash; a drive in use is {in_use}"
        )
    })
}
