//! Advice: which of several storages suits a trace, from replays of it on each.
//!
//! Two questions are asked of each candidate: how long would users have waited, had they asked at the same moments; and
//! how fast could it be, if they asked faster.

use std::collections::BTreeMap;

use seekless::stack::Stack;
use seekless::units::Nanos;

use crate::experiment::{Axis, Chart, Clock, Contestant, Description, Figure, Row, Stored, Value, Variable};
use crate::replay::{Outcome, OverTime, ReplayError, Timing};
use crate::trace::time_text;

/// Storage that is worth asking, where the user names none: a name, and a stack of devices.
pub const CANDIDATES: &[(&str, &str)] = &[
    ("one disk", "disk:nearline-4tb"),
    ("disk, nearest request first", "disk:nearline-4tb,scheduler=sptf"),
    ("mirror of two disks", "raid1:n=2,metadata=off / disk:nearline-4tb"),
    ("stripes over four disks", "raid0:n=4 / disk:nearline-4tb"),
    ("RAID-5 of four disks", "raid5:n=4,metadata=off / disk:nearline-4tb"),
    ("flash drive", "ssd:nvme-a,fill=random"),
    ("mirror of two flash drives", "raid1:n=2,metadata=off / ssd:nvme-a,fill=random"),
];

/// How a candidate is asked how fast it can be.
pub const FULL_SPEED: Timing = Timing::Window(32);

/// Storage that may suit a trace.
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
        let drive = stack.words().last().map_or_else(String::new, ToString::to_string);
        let price =
            prices.iter().filter(|(start, _)| drive.starts_with(start.as_str())).max_by_key(|(start, _)| start.len());
        let price = price.map(|(_, price)| price * drives(&stack) as f64);
        Candidate { name: name.to_owned(), stack, price }
    }
}

/// The drives of a stack: words that spread over several multiply them.
fn drives(stack: &Stack) -> u64 {
    stack
        .words()
        .iter()
        .filter(|word| word.spec().params().any(|param| param.name == "n"))
        .map(|word| word.integer("n"))
        .product()
}

/// How a candidate serves the trace.
pub struct Figures {
    pub mean: Nanos,
    /// 99 of 100 requests take no longer.
    pub p99: Nanos,
    pub max: Nanos,
    /// Requests arrive faster than it answers; the last answer comes so long after the last request.
    pub saturated: bool,
    pub behind: Nanos,
    /// How many times as fast as recorded it could serve the trace.
    pub times_as_fast: Option<f64>,
    /// What is busy for the largest share of the time, and that share.
    pub busiest: Option<(&'static str, f64)>,
    pub over_time: OverTime,
}

impl Figures {
    fn of(recorded: &Outcome, full_speed: &Outcome) -> Figures {
        let (all, arrivals) = (recorded.total(), recorded.arrivals.as_ref());
        let span = arrivals.map_or(Nanos::ZERO, |arrivals| arrivals.span);
        let elapsed = full_speed.elapsed.as_secs_f64();
        Figures {
            mean: all.mean(),
            p99: all.quantile(0.99),
            max: all.max(),
            saturated: arrivals.is_some_and(|arrivals| arrivals.is_saturated()),
            behind: arrivals.map_or(Nanos::ZERO, |arrivals| arrivals.behind),
            times_as_fast: (elapsed > 0.0 && span > Nanos::ZERO).then(|| span.as_secs_f64() / elapsed),
            busiest: busiest(recorded),
            over_time: arrivals.map(|arrivals| arrivals.over_time.clone()).unwrap_or_default(),
        }
    }
}

/// Parts of drives that count how long they are busy, and how many of them there are.
const PARTS: &[(&str, Option<&str>, &str)] = &[
    ("dies_busy_ns", Some("dies"), "flash dies"),
    ("channels_busy_ns", Some("channels"), "flash channels"),
    ("firmware_busy_ns", None, "drive's processor"),
];

fn busiest(outcome: &Outcome) -> Option<(&'static str, f64)> {
    let elapsed = outcome.elapsed.as_secs_f64();
    let counters: BTreeMap<&str, u64> =
        outcome.counters.iter().flat_map(|(_, counters)| counters.iter().copied()).collect();
    let is_flash = PARTS.iter().any(|(busy, ..)| counters.contains_key(busy));
    let whole = outcome.disk_busy().filter(|_| !is_flash).map(|share| ("disks", share));
    let part = |&(busy, count, name): &(&str, Option<&str>, &'static str)| {
        // Counters of drives below an array are sums.
        let parts = match count {
            Some(count) => *counters.get(count)?,
            None => outcome.drives.len() as u64,
        };
        let all = elapsed * parts as f64;
        let busy = *counters.get(busy)? as f64 / 1e9;
        (all > 0.0).then_some((name, busy / all))
    };
    PARTS.iter().filter_map(part).chain(whole).max_by(|one, other| one.1.total_cmp(&other.1))
}

/// A candidate and what came of it; the error says why it is out of the question.
pub struct Judged {
    pub candidate: Candidate,
    pub figures: Result<Figures, String>,
}

/// The answer for a trace.
pub struct Advice {
    pub trace: String,
    pub judged: Vec<Judged>,
    /// The wanted limit of 99 of 100 response times.
    pub limit: Option<Nanos>,
}

/// Differences below this are none: models are not more accurate.
const ALIKE: f64 = 1.1;

impl Advice {
    /// Puts outcomes together: `recorded` with [`Timing::Open`], `full_speed` with [`FULL_SPEED`], both in the order of
    /// the candidates.
    pub fn new(
        trace: String,
        candidates: Vec<Candidate>,
        recorded: Vec<Result<Outcome, ReplayError>>,
        full_speed: Vec<Result<Outcome, ReplayError>>,
        limit: Option<Nanos>,
    ) -> Advice {
        let figures = recorded.into_iter().zip(full_speed).map(|(recorded, full_speed)| match (recorded, full_speed) {
            (Ok(recorded), Ok(full_speed)) => Ok(Figures::of(&recorded, &full_speed)),
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        });
        let judged = candidates.into_iter().zip(figures).map(|(candidate, figures)| Judged { candidate, figures });
        Advice { trace, judged: judged.collect(), limit }
    }

    fn able(&self) -> impl Iterator<Item = (&Candidate, &Figures)> {
        let able = self.judged.iter().filter_map(|judged| Some((&judged.candidate, judged.figures.as_ref().ok()?)));
        able.filter(|(_, figures)| !figures.saturated)
    }

    /// The one that answers fastest, of those that keep up.
    pub fn fastest(&self) -> Option<(&Candidate, &Figures)> {
        self.able().min_by_key(|(_, figures)| figures.mean)
    }

    /// Those that keep up, and within the limit if there is one.
    fn good_enough(&self) -> Vec<(&Candidate, &Figures)> {
        self.able().filter(|(_, figures)| self.limit.is_none_or(|limit| figures.p99 <= limit)).collect()
    }

    /// The cheapest of those that are good enough and have a price.
    pub fn cheapest(&self) -> Option<(&Candidate, f64)> {
        let priced = self.good_enough().into_iter().filter_map(|(candidate, _)| Some((candidate, candidate.price?)));
        priced.min_by(|(_, one), (_, other)| one.total_cmp(other))
    }

    /// The answer in sentences.
    pub fn sentences(&self) -> Vec<String> {
        let mut text = Vec::new();
        let Some((winner, best)) = self.fastest() else {
            text.push(
                "No candidate keeps up with the trace: requests arrive faster than any of them answers.".to_owned(),
            );
            return text;
        };
        let alike: Vec<&str> = self
            .able()
            .filter(|(candidate, figures)| {
                candidate.name != winner.name && figures.mean.0 as f64 <= best.mean.0.max(1) as f64 * ALIKE
            })
            .map(|(candidate, _)| candidate.name.as_str())
            .collect();
        let as_fast = match alike[..] {
            [] => String::new(),
            _ => format!("; {} within 10 % of that, which is less than models can tell apart", alike.join(", ")),
        };
        text.push(format!(
            "Fastest: {}, {} on average, 99 of 100 requests within {}{as_fast}.",
            winner.name,
            time_text(best.mean),
            time_text(best.p99)
        ));
        let good: Vec<&str> = self.good_enough().iter().map(|(candidate, _)| candidate.name.as_str()).collect();
        let condition = match self.limit {
            Some(limit) => format!("answer 99 of 100 requests within {}", time_text(limit)),
            None => "keep up with the trace".to_owned(),
        };
        match (&good[..], self.cheapest()) {
            ([], _) => text.push(format!("No candidate can {condition}.")),
            (_, Some((candidate, price))) => {
                text.push(format!("Cheapest of those that {condition}: {}, {price:.0}.", candidate.name));
            }
            (_, None) => {
                text.push(format!("These {condition}: {}. Which is cheapest, --price tells.", good.join(", ")))
            }
        }
        for judged in &self.judged {
            match &judged.figures {
                Ok(figures) if figures.saturated => text.push(format!(
                    "{} cannot keep up: its last answer comes {} after the last request.",
                    judged.candidate.name,
                    time_text(figures.behind)
                )),
                Err(problem) => {
                    let problem = problem.lines().next().unwrap_or_default();
                    text.push(format!("{} is out of the question: {problem}.", judged.candidate.name));
                }
                Ok(_) => {}
            }
        }
        if let Some((what, share)) = best.busiest {
            let room = match best.times_as_fast {
                Some(times) if times >= 1.0 => format!("; it could serve the trace {times:.1} times as fast"),
                _ => String::new(),
            };
            text.push(format!(
                "Busiest part of {}: the {what}, {:.0} % of the time{room}.",
                winner.name,
                share * 100.0
            ));
        }
        text.push(self.sureness());
        text
    }

    /// What the answer hangs on.
    fn sureness(&self) -> String {
        let mut known: Vec<String> = Vec::new();
        for (candidate, _) in self.able() {
            let leaf = candidate.stack.words().last();
            let text = match leaf.map(|word| word.name()) {
                Some("ssd" | "zns") => {
                    "writes of modelled flash were compared with measurements, its reads and its collection are predictions".to_owned()
                }
                Some("disk") => "means of modelled disks are within some per cent where `seekless disk list` says `validated`, \
                                 and may be off by a quarter where it says `data sheet`"
                    .to_owned(),
                _ => continue,
            };
            if !known.contains(&text) {
                known.push(text);
            }
        }
        let base = "How sure this is: the trace says when requests were made to the storage on which it was recorded; on faster \
                    storage, programs that wait for it would ask sooner";
        [base.to_owned()].into_iter().chain(known).collect::<Vec<_>>().join("; ") + "."
    }

    /// For programs: one object for each candidate, and the answer.
    pub fn to_json(&self) -> Vec<serde_json::Value> {
        let candidate = |judged: &Judged| {
            let (candidate, figures) = (&judged.candidate, judged.figures.as_ref());
            let figures = match figures {
                Ok(figures) => serde_json::json!({
                    "mean_ns": figures.mean.0,
                    "p99_ns": figures.p99.0,
                    "max_ns": figures.max.0,
                    "saturated": figures.saturated,
                    "behind_ns": figures.behind.0,
                    "times_as_fast": figures.times_as_fast,
                    "busiest": figures.busiest.map(|(what, share)| serde_json::json!({ "part": what, "share": share })),
                }),
                Err(problem) => serde_json::json!({ "problem": problem }),
            };
            serde_json::json!({
                "kind": "candidate", "name": candidate.name, "stack": candidate.stack.to_string(), "price": candidate.price,
                "figures": figures,
            })
        };
        let answer = serde_json::json!({
            "kind": "advice",
            "fastest": self.fastest().map(|(candidate, _)| &candidate.name),
            "cheapest": self.cheapest().map(|(candidate, _)| &candidate.name),
            "sentences": self.sentences(),
        });
        self.judged.iter().map(candidate).chain([answer]).collect()
    }

    /// As results, of which a report makes a page. `provenance` says by which command.
    pub fn to_stored(&self, provenance: serde_json::Value) -> Stored {
        let milliseconds = |time: Nanos| time.as_secs_f64() * 1e3;
        let mut rows = Vec::new();
        for Judged { candidate, figures } in &self.judged {
            let Ok(figures) = figures else { continue };
            let dims = || BTreeMap::from([("contestant".to_owned(), Value::Text(candidate.name.clone()))]);
            let mut metrics = BTreeMap::from([
                ("mean_ms".to_owned(), milliseconds(figures.mean)),
                ("p99_ms".to_owned(), milliseconds(figures.p99)),
            ]);
            let known = [
                ("times_as_fast", figures.times_as_fast),
                ("busy_percent", figures.busiest.map(|(_, share)| share * 100.0)),
                ("price", candidate.price),
            ];
            metrics.extend(known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
            rows.push(Row { dims: dims(), metrics });
            for (number, interval) in figures.over_time.intervals.iter().enumerate().filter(|(_, it)| it.requests > 0) {
                let mut dims = dims();
                let at = figures.over_time.width.as_secs_f64() * (number as f64 + 0.5);
                dims.insert("time".to_owned(), Value::Number((at * 1e3).round() / 1e3));
                let metrics = BTreeMap::from([("response_ms".to_owned(), milliseconds(interval.mean()))]);
                rows.push(Row { dims, metrics });
            }
        }
        let description = self.description();
        let lines = self.judged.iter().map(|judged| format!("{}: {}\n", judged.candidate.name, judged.candidate.stack));
        Stored {
            name: "advice".to_owned(),
            description,
            published: Vec::new(),
            rows,
            provenance,
            text: lines.collect(),
        }
    }

    fn description(&self) -> Description {
        let contestant = |judged: &Judged| Contestant {
            name: judged.candidate.name.clone(),
            on: judged.candidate.stack.to_string(),
            workload: toml::Table::new(),
            quick: toml::Table::new(),
            profile: None,
            clock: None,
        };
        let bars = |id: &str, title: &str, y: &str, label: &str, log: bool| Figure {
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
        };
        let mut figures = vec![
            bars("mean", "Mean response time, requests as recorded", "mean_ms", "mean response time (ms)", true),
            bars("p99", "99 of 100 requests take no longer", "p99_ms", "99th percentile (ms)", true),
            bars("speed", "How many times as fast it could be", "times_as_fast", "times as fast as recorded", true),
            bars("busy", "How busy its busiest part is", "busy_percent", "busy (%)", false),
            Figure {
                chart: Chart::Line,
                x: "time".to_owned(),
                x_axis: Axis { label: "time of the trace (s)".to_owned(), ..Axis::default() },
                ..bars("over-time", "Mean response time over the trace", "response_ms", "mean response time (ms)", true)
            },
        ];
        if self.judged.iter().any(|judged| judged.candidate.price.is_some()) {
            figures.push(bars("price", "What its drives cost", "price", "price", false));
        }
        let time = Variable {
            label: "time of the trace (s)".to_owned(),
            unit: Default::default(),
            values: Vec::new(),
            quick: Vec::new(),
        };
        Description {
            title: format!("Storage for {}", self.trace),
            paper: String::new(),
            about: self.sentences().join("\n"),
            seed: 1,
            seeds: 1,
            is_quick: false,
            clock: Clock::Virtual,
            profile: "none".to_owned(),
            over: String::new(),
            workload: toml::Table::from_iter([("kind".to_owned(), toml::Value::String("replay".to_owned()))]),
            variables: BTreeMap::from([("time".to_owned(), time)]),
            contestants: self.judged.iter().map(contestant).collect(),
            figures,
            claims: Vec::new(),
            quick: toml::Table::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Spec, simulate};
    use crate::trace::{Op, Request, TraceError};

    /// Random reads of 4 KiB, one every `gap`.
    fn reads(gap: u64) -> impl Iterator<Item = Result<Request, TraceError>> + 'static {
        (0..400u64)
            .map(move |number| Ok(Request::new(Nanos(number * gap), Op::Read, number * 7919 % 10_000 * 65536, 4096)))
    }

    fn advise(gap: u64, limit: Option<Nanos>, prices: &[(&str, f64)], lines: &[(&str, &str)]) -> Advice {
        let prices: Vec<(String, f64)> = prices.iter().map(|(drive, price)| ((*drive).to_owned(), *price)).collect();
        let candidate =
            |(name, line): &(&str, &str)| Candidate::new(name, Stack::parse(line).expect("a stack"), &prices);
        let candidates: Vec<Candidate> = lines.iter().map(candidate).collect();
        let replay = |timing: Timing| {
            let spec = Spec { timing, ..Spec::default() };
            candidates.iter().map(|candidate| simulate(&candidate.stack, reads(gap), &spec, &|_| {})).collect()
        };
        let (recorded, full_speed) = (replay(Timing::Open { speed: 1.0 }), replay(FULL_SPEED));
        Advice::new("a trace".into(), candidates, recorded, full_speed, limit)
    }

    const LINES: &[(&str, &str)] = &[
        ("disk", "disk:nearline-4tb"),
        ("pair", "raid1:n=2,metadata=off / disk:nearline-4tb"),
        ("flash", "ssd:nvme-a,fill=random"),
        ("small", "disk:dec-rz26,scheduler=fcfs"),
    ];

    /// The fastest is flash; the cheapest within a limit is a disk or flash, as prices and the limit say; what is too small or
    /// cannot keep up is out, and said.
    #[test]
    fn the_answer_follows_from_figures_limits_and_prices() {
        let prices = [("disk", 80.0), ("ssd", 200.0), ("disk:dec-rz26", 1.0)];
        let slowly = advise(200_000_000, Some(Nanos::from_millis(100)), &prices, &LINES[..3]);
        assert_eq!(slowly.fastest().map(|(candidate, _)| candidate.name.as_str()), Some("flash"));
        assert_eq!(slowly.cheapest().map(|(candidate, price)| (candidate.name.as_str(), price)), Some(("disk", 80.0)));
        assert_eq!(slowly.judged[1].candidate.price, Some(160.0), "two drives");
        let strict = advise(200_000_000, Some(Nanos::from_millis(1)), &prices, &LINES[..3]);
        assert_eq!(
            strict.cheapest().map(|(candidate, price)| (candidate.name.as_str(), price)),
            Some(("flash", 200.0))
        );
        let impossible = advise(200_000_000, Some(Nanos(1)), &prices, &LINES[..3]).sentences().join(" ");
        assert!(impossible.contains("No candidate can answer 99 of 100 requests within 1 ns."), "{impossible}");

        // 400 reads in 40 ms are too many for a disk, and the trace touches 625 MiB.
        let hurried = advise(100_000, None, &[], LINES);
        let text = hurried.sentences().join("\n");
        assert!(text.starts_with("Fastest: flash"), "{text}");
        assert!(text.contains("disk cannot keep up") && text.contains("Which is cheapest, --price tells."), "{text}");
        let flash = hurried.judged[2].figures.as_ref().map(|figures| figures.busiest);
        assert!(
            matches!(flash, Ok(Some((part, share))) if part.contains("flash") && (0.0..=1.0).contains(&share)),
            "{flash:?}"
        );

        let small = advise(200_000_000, None, &[], &[("tiny", "memory:1MiB"), ("disk", "disk:nearline-4tb")]);
        let text = small.sentences().join("\n");
        assert!(text.contains("tiny is out of the question: the trace touches"), "{text}");
        let stored = small.to_stored(serde_json::json!({}));
        assert!(stored.rows.iter().all(|row| row.dims["contestant"].to_string() == "disk"));
        assert!(stored.rows.len() > 2 && small.to_json().len() == 3);
    }

    /// Every candidate of the table is a stack of modelled devices, and large enough to be asked.
    #[test]
    fn candidates_can_be_asked() {
        for (name, line) in CANDIDATES {
            let stack = Stack::parse(line).unwrap_or_else(|error| panic!("{name}: {error}"));
            crate::replay::check_stack(&stack).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(drives(&stack) >= 1, "{name}");
        }
    }
}
