//! Several outcomes side by side, and the answer in one sentence.

use seekless::units::{Nanos, counted, human_bytes};

use super::run::Outcome;
use crate::trace::{Op, time_text};

/// The answer to "which is better for this trace".
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Comparison {
    /// The compared quantity: the time for the whole trace, or the mean response time of reads and writes.
    pub quantity: &'static str,
    /// Place of the best outcome in the list.
    pub best: usize,
    /// How many times as long each outcome takes, in the order of the list; 1 for the best.
    pub ratios: Vec<f64>,
    pub sentence: String,
}

/// Smaller differences are reported as none. The model is not more accurate than that.
const ALIKE: f64 = 1.01;

/// Compares outcomes of the same trace; `None` when there are none.
pub fn compare(outcomes: &[Outcome]) -> Option<Comparison> {
    let fast = outcomes.first()?.timing.is_as_fast_as_possible();
    let quantity = if fast { "time" } else { "mean response time" };
    let value = |outcome: &Outcome| if fast { outcome.elapsed } else { outcome.reads_and_writes().mean() };
    let (best, winner) = outcomes.iter().enumerate().min_by_key(|(_, outcome)| value(outcome))?;
    // Storage without cost takes no time at all.
    let floor = |time: Nanos| time.0.max(1) as f64;
    let ratios: Vec<f64> = outcomes.iter().map(|other| floor(value(other)) / floor(value(winner))).collect();
    let answer = match outcomes {
        [only] => alone(only),
        _ => against(outcomes, best, &ratios, quantity, value),
    };
    let sentence = outcomes.iter().filter_map(saturated).fold(answer, |text, more| format!("{text} {more}"));
    Some(Comparison { quantity, best, ratios, sentence })
}

fn alone(outcome: &Outcome) -> String {
    let (total, both) = (outcome.total(), outcome.reads_and_writes());
    // Of a trace with flushes and discards, the mean is that of a part of the requests.
    let mean = time_text(both.mean());
    let mean = match both.requests {
        all if all == total.requests => format!(", {mean} each on average"),
        1 => format!("; its one read or write takes {mean} on average"),
        more => format!("; its {more} reads and writes take {mean} on average"),
    };
    let busy =
        outcome.disk_busy().map_or(String::new(), |busy| format!("; its drives are busy for {:.0} %", busy * 100.0));
    format!(
        "{} serves {} in {}{mean}{}{busy}.",
        outcome.stack,
        counted(total.requests, "request"),
        time_text(outcome.elapsed),
        tail(outcome).map_or(String::new(), |(what, time)| format!(" ({what} {})", time_text(time))),
    )
}

/// What to know of storage that requests reach faster than it answers.
fn saturated(outcome: &Outcome) -> Option<String> {
    let arrivals = outcome.arrivals.as_ref().filter(|arrivals| arrivals.is_saturated())?;
    /// In a shorter time, how many arrive in a second says nothing.
    const MOMENT: Nanos = Nanos(1_000_000);
    let requests = outcome.reads_and_writes().requests;
    let rate = |time: Nanos| requests as f64 / time.as_secs_f64();
    let arrive = match arrivals.span < MOMENT {
        true => format!("{} arrive within {}", counted(requests, "request"), time_text(arrivals.span)),
        false => format!("{:.0} requests a second arrive", rate(arrivals.span)),
    };
    Some(format!(
        "{} cannot keep up: {arrive} and {:.0} a second are answered, the last of them {} after the last one arrived; \
         its response times reflect the length of the trace, not the storage.",
        outcome.stack,
        rate(outcome.elapsed.max(Nanos(1))),
        time_text(arrivals.behind),
    ))
}

fn against(
    outcomes: &[Outcome],
    best: usize,
    ratios: &[f64],
    quantity: &str,
    value: impl Fn(&Outcome) -> Nanos,
) -> String {
    let winner = &outcomes[best];
    let mut others: Vec<usize> = (0..outcomes.len()).filter(|&index| index != best).collect();
    others.sort_by(|&one, &two| ratios[one].total_cmp(&ratios[two]));
    let (alike, slower): (Vec<usize>, Vec<usize>) = others.iter().partition(|&&index| ratios[index] < ALIKE);
    if slower.is_empty() {
        let names: Vec<&str> = outcomes.iter().map(|outcome| outcome.stack.as_str()).collect();
        return format!("{} do equally well: their {quantity} differs by less than 1 %.", names.join(" and "));
    }
    let names: Vec<&str> = std::iter::once(best).chain(alike).map(|index| outcomes[index].stack.as_str()).collect();
    let verb = if names.len() == 1 { "has" } else { "have" };
    let factors: Vec<String> =
        slower.iter().map(|&index| format!("{} {}", outcomes[index].stack, factor(ratios[index]))).collect();
    // Figures for the nearest rival.
    let rival = &outcomes[slower[0]];
    let figures = match (tail(winner), tail(rival)) {
        (Some((what, mine)), Some((_, theirs))) => {
            format!(" The {what} is {} against {} on {}.", time_text(mine), time_text(theirs), rival.stack)
        }
        _ => String::new(),
    };
    format!(
        "{} {verb} the shortest {quantity}, {}; {} times as long.{figures}",
        names.join(" and "),
        time_text(value(winner)),
        factors.join(" and "),
    )
}

/// The slow end of response times: of reads if there are any.
fn tail(outcome: &Outcome) -> Option<(&'static str, Nanos)> {
    [(Op::Read, "p99 read"), (Op::Write, "p99 write")]
        .into_iter()
        .map(|(op, what)| (what, &outcome.ops[op.index()]))
        .find(|(_, stats)| stats.requests > 0)
        .map(|(what, stats)| (what, stats.quantile(0.99)))
}

/// `1.42`, `13`.
fn factor(ratio: f64) -> String {
    if ratio < 10.0 { format!("{ratio:.2}") } else { format!("{ratio:.0}") }
}

/// Names of the columns of [`table`].
pub const COLUMNS: [&str; 9] = ["", "operation", "requests", "mean", "p50", "p99", "max", "bytes", "drives busy"];

/// The outcomes as rows of text, one for each operation, under [`COLUMNS`]. The first row of an outcome has its name.
pub fn table(outcomes: &[Outcome]) -> Vec<[String; 9]> {
    let mut rows = Vec::new();
    for (number, outcome) in outcomes.iter().enumerate() {
        let mut name = format!("[{}] {}", number + 1, outcome.stack);
        for op in Op::ALL {
            let stats = &outcome.ops[op.index()];
            if stats.requests == 0 {
                continue;
            }
            let busy = outcome.disk_busy().filter(|_| !name.is_empty());
            rows.push([
                std::mem::take(&mut name),
                op.name().to_owned(),
                stats.requests.to_string(),
                time_text(stats.mean()),
                time_text(stats.quantile(0.5)),
                time_text(stats.quantile(0.99)),
                time_text(stats.max()),
                human_bytes(stats.bytes),
                busy.map_or(String::new(), |busy| format!("{:.0} %", busy * 100.0)),
            ]);
        }
    }
    rows
}
