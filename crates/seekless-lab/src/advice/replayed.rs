//! Advice for a trace, from replays of it on each candidate.

use std::collections::BTreeMap;

use seekless::stack::Stack;
use seekless::units::{Nanos, counted, human_bytes};

use super::choice::{Choice, Figures, Judged};
use super::{Candidate, PRICE, bars, by_price, description, known_of_models, of_candidate, price_text};
use crate::experiment::{Answer, Axis, Card, Chart, Figure, Row, Stored, Value};
use crate::replay::{Outcome, OverTime, ReplayError, Timing, unwritten_reads};
use crate::report::number_text;
use crate::trace::{Op, Summary, time_text};

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

/// How a candidate serves the trace.
pub struct TraceFigures {
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
    /// Of the time that requests spend at its disks, the share in which they wait for others.
    pub waiting: Option<f64>,
    /// Of the time in which a disk serves them, what takes most, and its share.
    pub service: Option<(&'static str, f64)>,
    pub over_time: OverTime,
    /// Of storage that is new, what that does to the figures.
    pub new: Option<String>,
}

impl Figures for TraceFigures {
    fn time(&self) -> Nanos {
        self.mean
    }

    fn limited(&self) -> Nanos {
        self.p99
    }

    fn unable(&self) -> Option<String> {
        let behind = time_text(self.behind);
        self.saturated.then(|| format!("cannot keep up: its last answer comes {behind} after the last request"))
    }
}

impl TraceFigures {
    fn of(stack: &Stack, recorded: &Outcome, full_speed: &Outcome) -> TraceFigures {
        let (all, arrivals) = (recorded.reads_and_writes(), recorded.arrivals.as_ref());
        let span = arrivals.map_or(Nanos::ZERO, |arrivals| arrivals.span);
        let elapsed = full_speed.elapsed.as_secs_f64();
        TraceFigures {
            mean: all.mean(),
            p99: all.quantile(0.99),
            max: all.max(),
            saturated: arrivals.is_some_and(|arrivals| arrivals.is_saturated()),
            behind: arrivals.map_or(Nanos::ZERO, |arrivals| arrivals.behind),
            times_as_fast: (elapsed > 0.0 && span > Nanos::ZERO).then(|| span.as_secs_f64() / elapsed),
            busiest: busiest(recorded),
            waiting: waiting(recorded),
            service: service(recorded),
            over_time: arrivals.map(|arrivals| arrivals.over_time.clone()).unwrap_or_default(),
            new: unwritten_reads(stack, recorded),
        }
    }

    /// What its response times are made of.
    fn bottleneck(&self) -> String {
        /// Below this, a part is not what others wait for.
        const BUSY: f64 = 0.5;
        const WAITING: f64 = 0.5;
        let Some((part, share)) = self.busiest else { return "Nothing that it has counts how busy it is.".to_owned() };
        let busy = format!("the {part}, busy {} of the time", percent(share));
        let waiting = self.waiting.filter(|waiting| *waiting > WAITING).map(percent);
        let of_service = self.service.map_or(String::new(), |(what, share)| {
            format!(" Of the time of a request at a disk, {} is {what}.", percent(share))
        });
        match waiting {
            Some(waiting) if share < BUSY => format!(
                "Bursts: requests wait for each other, {waiting} of their time at the disks, though these are busy only {} of the time.{of_service}",
                percent(share)
            ),
            Some(waiting) => {
                format!("{}, and requests wait for others {waiting} of their time there.{of_service}", capital(&busy))
            }
            None if share < BUSY => {
                let busiest = match part == BUSIEST_DISK {
                    true => format!("the {part} is busy {} of the time", percent(share)),
                    false => format!("the busiest is {busy}"),
                };
                format!(
                    "No part is busy most of the time; {busiest}. A request takes what the drive itself takes.{of_service}"
                )
            }
            None => format!("{}.{of_service}", capital(&busy)),
        }
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn percent(share: f64) -> String {
    match share * 100.0 {
        part if part > 0.0 && part < 1.0 => "less than 1 %".to_owned(),
        part => format!("{part:.0} %"),
    }
}

/// Parts of drives that count how long they are busy, and how many of them there are.
const PARTS: &[(&str, Option<&str>, &str)] = &[
    ("dies_busy_ns", Some("dies"), "flash dies"),
    ("channels_busy_ns", Some("channels"), "flash channels"),
    ("firmware_busy_ns", None, "drive's processor"),
];

/// What an array waits for.
const BUSIEST_DISK: &str = "busiest of its disks";

fn counters(outcome: &Outcome) -> BTreeMap<&str, u64> {
    outcome.counters.iter().flat_map(|(_, counters)| counters.iter().copied()).collect()
}

fn busiest(outcome: &Outcome) -> Option<(&'static str, f64)> {
    let elapsed = outcome.elapsed.as_secs_f64();
    let counters = counters(outcome);
    let is_flash = PARTS.iter().any(|(busy, ..)| counters.contains_key(busy));
    // The busiest drive: an array waits for it.
    let shares = outcome.drives.iter().filter_map(|drive| drive.busy_share(outcome.elapsed));
    let disks = if outcome.drives.len() > 1 { BUSIEST_DISK } else { "disk" };
    let whole = shares.reduce(f64::max).filter(|_| !is_flash).map(|share| (disks, share));
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

/// Of the time that requests spend at disks, the share in which they wait.
fn waiting(outcome: &Outcome) -> Option<f64> {
    let waiting: Option<u64> = outcome.drives.iter().map(|drive| Some(drive.waiting?.0)).sum();
    let (waiting, busy) = (waiting? as f64, outcome.disk_time()?.as_secs_f64() * 1e9);
    (waiting + busy > 0.0).then(|| waiting / (waiting + busy))
}

/// What takes most of the time in which disks serve requests.
fn service(outcome: &Outcome) -> Option<(&'static str, f64)> {
    const PHASES: &[(&str, &str)] = &[
        ("overhead_ns", "the drive's electronics and the bus"),
        ("seek_ns", "moving the arm"),
        ("rotation_ns", "waiting for the sector to come round"),
        ("transfer_ns", "moving data"),
    ];
    let counters = counters(outcome);
    let all: u64 = PHASES.iter().map(|(name, _)| counters.get(name).copied()).sum::<Option<u64>>()?;
    let (name, what) = PHASES.iter().max_by_key(|(name, _)| counters.get(name))?;
    (all > 0).then(|| (*what, counters[name] as f64 / all as f64))
}

/// The answer for a trace.
pub struct Advice {
    pub trace: String,
    /// What is in the trace, in a sentence.
    pub about: String,
    requests: u64,
    choice: Choice<TraceFigures>,
}

impl Advice {
    /// Puts outcomes together: `recorded` with [`Timing::Open`], `full_speed` with [`FULL_SPEED`], both in the order of
    /// the candidates. `limit` is the wanted limit of 99 of 100 response times.
    pub fn new(
        trace: String,
        summary: &Summary,
        candidates: Vec<Candidate>,
        recorded: Vec<Result<Outcome, ReplayError>>,
        full_speed: Vec<Result<Outcome, ReplayError>>,
        limit: Option<Nanos>,
    ) -> Advice {
        let judged = candidates.into_iter().zip(recorded.into_iter().zip(full_speed)).map(|(candidate, outcomes)| {
            let figures = match outcomes {
                (Ok(recorded), Ok(full_speed)) => Ok(TraceFigures::of(&candidate.stack, &recorded, &full_speed)),
                (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
            };
            Judged { candidate, figures }
        });
        let choice = Choice {
            judged: judged.collect(),
            limit,
            wanted: "answer 99 of 100 requests",
            able: "keep up with the trace",
        };
        Advice { trace, about: about(summary), requests: summary.requests(), choice }
    }

    pub fn judged(&self) -> &[Judged<TraceFigures>] {
        &self.choice.judged
    }

    /// The one that answers fastest, of those that keep up.
    pub fn fastest(&self) -> Option<(&Candidate, &TraceFigures)> {
        self.choice.fastest()
    }

    /// The cheapest of those that are good enough and have a price.
    pub fn cheapest(&self) -> Option<(&Candidate, f64)> {
        self.choice.cheapest().map(|(candidate, _, price)| (candidate, price))
    }

    fn cards(&self) -> Vec<Card> {
        let took = |figures: &TraceFigures| {
            format!("{} on average, 99 of 100 requests within {}", time_text(figures.mean), time_text(figures.p99))
        };
        let mut cards = vec![self.choice.fastest_card(took), self.choice.cheapest_card(took)];
        let fastest = self.fastest();
        let cheapest = self.choice.cheapest().map(|(candidate, figures, _)| (candidate, figures));
        let is_other = |(candidate, _): &(&Candidate, _)| fastest.is_none_or(|(other, _)| candidate.name != other.name);
        for (candidate, figures) in fastest.into_iter().chain(cheapest.filter(is_other)) {
            let room = match figures.times_as_fast {
                Some(times) if times >= 1.0 => {
                    format!(" It could serve the trace {} times as fast.", number_text(times))
                }
                _ => String::new(),
            };
            let label = format!("Bottleneck of {}", candidate.name);
            let value = match figures.busiest {
                Some((part, share)) if share >= 0.5 => format!("the {part}"),
                _ if figures.waiting.is_some_and(|waiting| waiting > 0.5) => "bursts".to_owned(),
                _ => "none".to_owned(),
            };
            cards.push(Card::new(&label, &value, format!("{}{room}", figures.bottleneck())));
        }
        cards
    }

    /// What the answer depends on.
    fn notes(&self) -> Vec<String> {
        let base = "How sure this is: the trace says when requests were made to the storage on which it was recorded. On faster \
                    storage, programs that wait for it would ask sooner.";
        let models = known_of_models(self.choice.able().map(|(candidate, _)| &candidate.stack));
        let mut notes = self.choice.refusals();
        let new = self.choice.judged.iter().filter_map(|judged| judged.figures.as_ref().ok()?.new.as_ref());
        notes.extend(new.map(|new| format!("Not comparable: {new}.")));
        notes.push(base.to_owned());
        if self.requests < 100 {
            let all = counted(self.requests, "request");
            notes
                .push(format!("The trace has {all}, so `99 of 100` is the slowest of them: a longer trace says more."));
        }
        notes.extend(models.into_iter().map(str::to_owned));
        notes
    }

    /// The answer in sentences.
    pub fn sentences(&self) -> Vec<String> {
        self.cards().iter().map(Card::sentence).chain(self.notes()).collect()
    }

    /// What is shown of each candidate beside its name, in the order of [`Self::header`].
    pub fn cells(&self, judged: &Judged<TraceFigures>) -> Vec<String> {
        let price = judged.candidate.price.map_or_else(String::new, price_text);
        let verdict = self.choice.verdict(judged).0.to_owned();
        match &judged.figures {
            Ok(figures) => vec![
                time_text(figures.mean),
                time_text(figures.p99),
                time_text(figures.max),
                figures.times_as_fast.map_or_else(String::new, number_text),
                figures.busiest.map_or_else(String::new, |(what, share)| format!("{what} {}", percent(share))),
                price,
                verdict,
            ],
            Err(_) => ["-", "-", "-", "-", "-", &price, &verdict].map(str::to_owned).to_vec(),
        }
    }

    /// Titles of the columns; the last is whether the candidate is good enough.
    pub fn header(&self) -> Vec<String> {
        let good = match self.choice.limit {
            Some(limit) => format!("99 % within {}", time_text(limit)),
            None => "keeps up".to_owned(),
        };
        let fixed = ["storage", "mean", "99 of 100 within", "worst", "times as fast", "busiest part", "price"];
        fixed.into_iter().map(str::to_owned).chain([good]).collect()
    }

    /// For programs: one object for each candidate, and the answer.
    pub fn to_json(&self) -> Vec<serde_json::Value> {
        let share = |part: Option<(&'static str, f64)>| {
            part.map(|(what, share)| serde_json::json!({ "part": what, "share": share }))
        };
        let figures = |figures: &TraceFigures| {
            serde_json::json!({
                "mean_ns": figures.mean.0,
                "p99_ns": figures.p99.0,
                "max_ns": figures.max.0,
                "saturated": figures.saturated,
                "behind_ns": figures.behind.0,
                "times_as_fast": figures.times_as_fast,
                "busiest": share(figures.busiest),
                "waiting": figures.waiting,
                "service": share(figures.service),
            })
        };
        self.choice.to_json(figures, self.sentences())
    }

    /// As results, of which a report makes a page. `provenance` says by which command.
    pub fn to_stored(&self, provenance: serde_json::Value) -> Stored {
        let milliseconds = |time: Nanos| time.as_secs_f64() * 1e3;
        let mut rows = Vec::new();
        for Judged { candidate, figures } in &self.choice.judged {
            let Ok(figures) = figures else { continue };
            let mut metrics = BTreeMap::from([
                ("mean_ms".to_owned(), milliseconds(figures.mean)),
                ("p99_ms".to_owned(), milliseconds(figures.p99)),
            ]);
            let known = [
                ("times_as_fast", figures.times_as_fast),
                ("busy_percent", figures.busiest.map(|(_, share)| share * 100.0)),
            ];
            metrics.extend(known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
            rows.push(Row { dims: of_candidate(candidate), metrics });
            if let Some(price) = candidate.price {
                let mut dims = of_candidate(candidate);
                dims.insert(PRICE.to_owned(), Value::Number(price));
                rows.push(Row {
                    dims,
                    metrics: BTreeMap::from([("p99_at_price_ms".to_owned(), milliseconds(figures.p99))]),
                });
            }
            for (number, interval) in figures.over_time.intervals.iter().enumerate().filter(|(_, it)| it.requests > 0) {
                let mut dims = of_candidate(candidate);
                let at = figures.over_time.width.as_secs_f64() * (number as f64 + 0.5);
                dims.insert("time".to_owned(), Value::Number((at * 1e3).round() / 1e3));
                let metrics = BTreeMap::from([
                    ("response_ms".to_owned(), milliseconds(interval.mean())),
                    ("response_p99_ms".to_owned(), milliseconds(interval.quantile(0.99))),
                ]);
                rows.push(Row { dims, metrics });
            }
        }
        let variables = [("time", "time of the trace (s)"), (PRICE, "price of its drives")];
        let description = description(
            format!("Storage for {}", self.trace),
            self.about.clone(),
            "replay",
            &variables,
            self.figures(),
        );
        let answer = Answer { cards: self.cards(), header: self.header(), rows: Vec::new(), notes: self.notes() };
        self.choice.stored(description, rows, answer, |judged| self.cells(judged), provenance)
    }

    fn figures(&self) -> Vec<Figure> {
        let within = self.choice.limit.map_or_else(String::new, |limit| format!(" (wanted: {})", time_text(limit)));
        let over_time = |id: &str, title: &str, y: &str, label: &str| Figure {
            chart: Chart::Line,
            x: "time".to_owned(),
            x_axis: Axis { label: "time of the trace (s)".to_owned(), ..Axis::default() },
            ..bars(id, title, y, label, true)
        };
        let mut figures = vec![
            bars(
                "p99",
                &format!("99 of 100 requests take no longer{within}"),
                "p99_ms",
                "99th percentile of response times (ms)",
                true,
            ),
            bars("mean", "Mean response time, requests as recorded", "mean_ms", "mean response time (ms)", true),
            over_time("over-time", "Over the trace: mean response time", "response_ms", "mean response time (ms)"),
            over_time(
                "p99-over-time",
                "Over the trace: 99 of 100 requests take no longer",
                "response_p99_ms",
                "99th percentile of response times (ms)",
            ),
            bars("speed", "How many times as fast it could be", "times_as_fast", "times as fast as recorded", true),
            bars("busy", "How busy its busiest part is", "busy_percent", "busy (%)", false),
        ];
        if self.choice.judged.iter().any(|judged| judged.candidate.price.is_some()) {
            figures.insert(1, by_price("p99_at_price_ms", "99th percentile of response times (ms)"));
        }
        figures
    }
}

/// What is in a trace.
fn about(summary: &Summary) -> String {
    let (requests, span) = (summary.requests(), summary.span());
    let share = |op: Op| summary.ops[op.index()].requests as f64 / (requests as f64).max(1.0);
    let rate = match span.as_secs_f64() {
        0.0 => String::new(),
        seconds => format!(" in {}, {:.0} a second", time_text(span), requests as f64 / seconds),
    };
    let touched =
        summary.footprint().map_or_else(String::new, |bytes| format!(", on {} of storage", human_bytes(bytes)));
    // A discard may be as long as the device, and moves nothing.
    let moved = [Op::Read, Op::Write].map(|op| summary.ops[op.index()]);
    let bytes = moved.iter().map(|op| op.bytes as f64).sum::<f64>()
        / (moved.iter().map(|op| op.requests as f64).sum::<f64>()).max(1.0);
    format!(
        "The trace has {}{rate}: {} reads, {} writes, {} each on average, {} of them in order{touched}.",
        counted(requests, "request"),
        percent(share(Op::Read)),
        percent(share(Op::Write)),
        human_bytes(bytes.round() as u64),
        percent(summary.sequential_share()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::{Spec, simulate};
    use crate::trace::{Request, TraceError};

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
        let mut summary = Summary::default();
        reads(gap).filter_map(Result::ok).for_each(|request| summary.add(&request));
        Advice::new("a trace".into(), &summary, candidates, recorded, full_speed, limit)
    }

    const LINES: &[(&str, &str)] = &[
        ("disk", "disk:nearline-4tb"),
        ("pair", "raid1:n=2,metadata=off / disk:nearline-4tb"),
        ("flash", "ssd:nvme-a,fill=random"),
        ("small", "disk:dec-rz26,scheduler=fcfs"),
    ];

    /// A new drive answers reads of what was never written at once. The answer says so wherever it is read; of a drive that is full, it does not.
    #[test]
    fn the_answer_says_which_storage_is_new() {
        let lines = [("new", "ssd:nvme-a"), ("used", "ssd:nvme-a,fill=random"), ("mapped", "vld / disk:nearline-4tb")];
        let advice = advise(1_000_000, None, &[], &lines);
        let said = |texts: Vec<String>| {
            let new: Vec<String> = texts.into_iter().filter(|text| text.starts_with("Not comparable: ")).collect();
            assert_eq!(new.len(), 2, "{new:?}");
            assert!(
                new[0].contains("ssd:nvme-a is new: 400 of 400 units") && new[0].contains("fill=random"),
                "{new:?}"
            );
            assert!(new[1].contains("vld / disk:nearline-4tb is new"), "{new:?}");
        };
        said(advice.sentences());
        said(advice.to_stored(serde_json::json!({})).answer.expect("an answer").notes);
        assert!(advice.to_json().iter().any(|line| line.to_string().contains("ssd:nvme-a is new: ")));
    }

    /// The fastest is flash; the cheapest within a limit is a disk or flash, as prices and the limit say; what is too small or
    /// cannot keep up is out, and said.
    #[test]
    fn the_answer_follows_from_figures_limits_and_prices() {
        let prices = [("disk", 80.0), ("ssd", 200.0), ("disk:dec-rz26", 1.0)];
        let slowly = advise(200_000_000, Some(Nanos::from_millis(100)), &prices, &LINES[..3]);
        assert_eq!(slowly.fastest().map(|(candidate, _)| candidate.name.as_str()), Some("flash"));
        assert_eq!(slowly.cheapest().map(|(candidate, price)| (candidate.name.as_str(), price)), Some(("disk", 80.0)));
        assert_eq!(slowly.judged()[1].candidate.price, Some(160.0), "two drives");
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
        assert!(
            text.contains("disk cannot keep up") && text.contains("prices say: --price disk=85 --price "),
            "{text}"
        );
        assert!(text.contains("Bottleneck of flash"), "{text}");
        // Which one depends on the figures of the drive.
        let is_of_flash = |part: &str| ["flash", "processor", "link", "channel"].iter().any(|word| part.contains(word));
        let flash = hurried.judged()[2].figures.as_ref().map(|figures| figures.busiest);
        assert!(
            matches!(flash, Ok(Some((part, share))) if is_of_flash(part) && (0.0..=1.0).contains(&share)),
            "{flash:?}"
        );

        let mut longest = Summary::default();
        longest.add(&Request::new(Nanos(0), Op::Read, 0, u64::MAX));
        assert!(about(&longest).contains("16384 PiB each"), "{}", about(&longest));

        assert!(!text.contains("a longer trace"), "400 requests have a percentile: {text}");

        let pair = advise(200_000_000, None, &[], &LINES[1..2]).sentences().join(" ");
        assert!(pair.contains("; the busiest of its disks is busy "), "{pair}");

        let small = advise(200_000_000, None, &[], &[("tiny", "memory:1MiB"), ("disk", "disk:nearline-4tb")]);
        let text = small.sentences().join("\n");
        assert!(text.contains("tiny is out of the question: the trace touches"), "{text}");
        let stored = small.to_stored(serde_json::json!({}));
        assert!(stored.rows.iter().all(|row| row.dims["contestant"].to_string() == "disk"));
        assert!(stored.rows.len() > 2 && small.to_json().len() == 3);
        let answer = stored.answer.expect("it gives one");
        assert!(answer.rows.iter().all(|row| row.cells.len() + 1 == answer.header.len()));
        assert_eq!(answer.rows[0].cells.last().map(String::as_str), Some("no answer"));
        assert!(stored.description.about.starts_with("The trace has 400 requests in"), "{}", stored.description.about);

        // Storage that cannot be asked is said to be so also when there is no other.
        let none = advise(200_000_000, None, &[], &[("tiny", "memory:1MiB")]).sentences().join("\n");
        assert!(none.contains("Fastest: none") && none.contains("tiny is out of the question"), "{none}");
    }
}
