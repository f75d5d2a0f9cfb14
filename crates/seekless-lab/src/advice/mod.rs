//! Advice: which of several storages suits a trace, or a program that uses files, from a run on each.
//!
//! Of a trace two questions are asked of each candidate: how long would users have waited, had they asked at the same
//! moments; and how fast could it be, if they asked faster ([`replayed`]). Of a program: how long does it take ([`worked`]).

mod choice;
mod layouts;
mod replayed;
mod room;
mod worked;

use std::collections::BTreeMap;

pub use choice::{Figures, Judged};
pub use layouts::layouts;
pub use replayed::{Advice, CANDIDATES, FULL_SPEED, TraceFigures};
pub use room::Room;
use seekless::stack::{Constructor, Stack};
pub use worked::{WorkAdvice, WorkFigures};

use crate::experiment::{Axis, Chart, Clock, Description, Figure, Value, Variable};

/// Storage that may be suitable.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub name: String,
    pub stack: Stack,
    /// What all of its drives cost, in any currency.
    pub price: Option<f64>,
}

impl Candidate {
    /// With a price where one is given for its drives: `prices` are those of one drive, by the beginning of its word.
    pub fn new(name: &str, stack: Stack, prices: &[(String, f64)]) -> Candidate {
        let drive = drive(&stack);
        let price =
            prices.iter().filter(|(start, _)| drive.starts_with(start.as_str())).max_by_key(|(start, _)| start.len());
        let price = price.map(|(_, price)| price * drives(&stack) as f64);
        Candidate { name: name.to_owned(), stack, price }
    }

    /// The word of its drives, by whose beginning a price is found.
    pub fn drive(&self) -> String {
        drive(&self.stack)
    }
}

fn drive(stack: &Stack) -> String {
    stack.words().last().map_or_else(String::new, ToString::to_string)
}

/// The drives of a stack: words that spread over several multiply them.
fn drives(stack: &Stack) -> u64 {
    let members = |word: &seekless::stack::Word| match &word.spec().constructor {
        Constructor::Spread(_) => Some(word.integer("n")),
        _ => None,
    };
    stack.words().iter().filter_map(members).product()
}

/// Differences below this are none: models are not more accurate.
const ALIKE: f64 = 1.1;

/// How far models can be believed, for each kind of drive among `stacks`.
fn known_of_models<'a>(stacks: impl Iterator<Item = &'a Stack>) -> Vec<&'static str> {
    let mut known = Vec::new();
    for stack in stacks {
        let text = match stack.words().last().map(|word| word.name()) {
            Some("ssd" | "zns") => {
                "Writes of modelled flash were compared with measurements; its reads and its collection are predictions."
            }
            Some("disk") => {
                "Means of modelled disks are within some per cent where `seekless disk list` says `validated`. Where it says \
                 `data sheet`, requests at random may be off by a sixth, reads in order by more than half, and writes in \
                 order may take many times as long as on the drive."
            }
            _ => continue,
        };
        if !known.contains(&text) {
            known.push(text);
        }
    }
    known
}

/// Bars, one for each candidate.
fn bars(id: &str, title: &str, y: &str, label: &str, log: bool) -> Figure {
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        caption: String::new(),
        chart: Chart::Bar,
        x: "contestant".to_owned(),
        x_axis: Axis { label: "storage".to_owned(), ..Axis::default() },
        y: y.to_owned(),
        y_axis: Axis { label: label.to_owned(), log, from: None },
        only: Default::default(),
        relative_to: Default::default(),
        colour: "contestant".to_owned(),
        dash: String::new(),
        panels: String::new(),
    }
}

/// The time that is wanted against the price, a dot for each candidate that has one.
fn by_price(y: &str, label: &str) -> Figure {
    Figure {
        chart: Chart::Line,
        x: PRICE.to_owned(),
        x_axis: Axis { label: "price of its drives".to_owned(), ..Axis::default() },
        ..bars("price", "Price and performance", y, label, true)
    }
}

/// The dimension of a candidate's price.
const PRICE: &str = "price";

/// A description of a page of advice, without its contestants. `variables` are the dimensions of its rows beside the contestant,
/// with their labels.
fn description(
    title: String,
    about: String,
    kind: &str,
    variables: &[(&str, &str)],
    figures: Vec<Figure>,
) -> Description {
    let variable = |(name, label): &(&str, &str)| {
        let variable =
            Variable { label: (*label).to_owned(), unit: Default::default(), values: Vec::new(), quick: Vec::new() };
        ((*name).to_owned(), variable)
    };
    Description {
        title,
        paper: String::new(),
        about,
        seed: 1,
        seeds: 1,
        is_quick: false,
        clock: Clock::Virtual,
        profile: "none".to_owned(),
        over: String::new(),
        workload: toml::Table::from_iter([("kind".to_owned(), toml::Value::String(kind.to_owned()))]),
        variables: variables.iter().map(variable).collect(),
        contestants: Vec::new(),
        figures,
        claims: Vec::new(),
        quick: toml::Table::new(),
    }
}

/// The dimension by which rows of a candidate are known.
fn of_candidate(candidate: &Candidate) -> BTreeMap<String, Value> {
    BTreeMap::from([("contestant".to_owned(), Value::Text(candidate.name.clone()))])
}

/// A price as people write it.
fn price_text(price: f64) -> String {
    match price.fract().abs() < 0.005 {
        true => format!("{price:.0}"),
        false => format!("{price:.2}"),
    }
}

/// `one`, `one and two`, `one, two and three`.
fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every candidate of the tables is a stack of modelled devices: devices for a trace, file systems for programs.
    #[test]
    fn candidates_can_be_asked() {
        for (name, line) in CANDIDATES {
            let stack = Stack::parse(line).unwrap_or_else(|error| panic!("{name}: {error}"));
            crate::replay::check_stack(&stack).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(drives(&stack) >= 1, "{name}");
        }
        let programs = crate::workload::WORKLOADS.iter().map(|spec| spec.read(&toml::Table::new(), None).unwrap());
        for (name, line) in programs.flat_map(|program| layouts(&*program)) {
            let stack = Stack::parse(&line).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(crate::run::can_be_simulated(&stack) && stack.file_system().is_some(), "{name}");
        }
        let drives_of = |line: &str| drives(&Stack::parse(line).unwrap());
        assert_eq!(drives_of("lfs / raid0:n=3 / raid1:n=2 / disk:cheetah9lp"), 6);
        assert_eq!(drives_of("lfs / zoned / zns:zns-a"), 1);
    }

    #[test]
    fn lists_and_prices_are_for_people() {
        assert_eq!([list(&[]), list(&["a"]), list(&["a", "b", "c"])], ["", "a", "a, b and c"]);
        assert_eq!([price_text(85.0), price_text(0.5), price_text(1e6)], ["85", "0.50", "1000000"]);
    }
}
