//! Advice for a program that uses files: which file system on which storage, from a run of it on each.

use std::collections::BTreeMap;

use seekless::units::{Nanos, human_bytes};

use super::choice::{Choice, Figures, Judged};
use super::room::Room;
use super::{Candidate, PRICE, bars, by_price, description, known_of_models, list, of_candidate, price_text};
use crate::LabError;
use crate::experiment::{Answer, Axis, Card, Figure, Row, Stored, Value};
use crate::measured::{Bound, Measured, Run, Unit};
use crate::report::{bound_text, number_text, percent_text};
use crate::trace::time_text;

/// File systems of the same size on drives of the same size differ by less, because each keeps some of the room for itself.
const SIZES_ALIKE: f64 = 1.25;

/// How a candidate serves the program.
pub struct WorkFigures {
    pub total: Nanos,
    pub phases: Vec<Measured>,
}

impl Figures for WorkFigures {
    fn time(&self) -> Nanos {
        self.total
    }

    fn limited(&self) -> Nanos {
        self.total
    }

    fn unable(&self) -> Option<String> {
        None
    }
}

impl WorkFigures {
    fn of(run: Run) -> WorkFigures {
        WorkFigures { total: Nanos(run.phases.iter().map(|phase| phase.elapsed.0).sum()), phases: run.phases }
    }

    /// Share of the whole time for which something was busy; `None` where it was not counted in every phase.
    fn share(&self, of: impl Fn(&Measured) -> Option<Nanos>) -> Option<f64> {
        let busy: u64 = self.phases.iter().map(|phase| Some(of(phase)?.0)).sum::<Option<u64>>()?;
        (self.total > Nanos::ZERO).then(|| busy as f64 / self.total.0 as f64)
    }

    pub fn disk_busy(&self) -> Option<f64> {
        self.share(|phase| phase.usage.disk)
    }

    pub fn processor_busy(&self) -> Option<f64> {
        self.share(|phase| phase.usage.processor)
    }

    /// The phase that takes most of the time, and what it waits for.
    fn longest(&self) -> Option<&Measured> {
        self.phases.iter().max_by_key(|phase| phase.elapsed)
    }

    fn bottleneck(&self) -> Option<(&'static str, String)> {
        let longest = self.longest()?;
        let value = match longest.bound() {
            Bound::Disk => "the storage",
            Bound::Processor => "the processor",
            Bound::Neither | Bound::Unknown => "neither",
        };
        let share = |share: Option<f64>| share.map_or_else(|| "an unknown share".to_owned(), percent_text);
        let arm = |time: Option<Nanos>| time.and_then(|time| longest.share(time)).filter(|share| *share >= 0.01);
        let arm = match (arm(longest.usage.disk_seek), arm(longest.usage.disk_rotation)) {
            (Some(seek), Some(rotation)) => format!(
                ", of it {} for moving the arm and {} for sectors to come round",
                percent_text(seek),
                percent_text(rotation)
            ),
            _ => String::new(),
        };
        let text = format!(
            "Most time goes into `{}`, {} of {}. There the storage is busy {} of the time{arm}, the processor {}.",
            longest.phase,
            time_text(longest.elapsed),
            time_text(self.total),
            share(longest.disk_busy()),
            share(longest.processor_busy()),
        );
        Some((value, text))
    }
}

/// The answer for a program.
pub struct WorkAdvice {
    /// What the program is called, and what it does.
    pub name: String,
    pub title: String,
    /// Of the processor; `none` costs nothing.
    profile: String,
    /// What a program that fills has to fill, by candidate.
    filled: Vec<Option<Room>>,
    choice: Choice<WorkFigures>,
}

impl WorkAdvice {
    /// Puts runs together, in the order of the candidates. `limit` is the time in which all of the work is to be done. `filled` is the
    /// room of each candidate where the program fills it, as far as it is known, and else empty.
    pub fn new(
        name: String,
        title: String,
        profile: String,
        candidates: Vec<Candidate>,
        runs: Vec<Result<Run, LabError>>,
        limit: Option<Nanos>,
        filled: Vec<Option<Room>>,
    ) -> WorkAdvice {
        let figures = runs.into_iter().map(|run| run.map(WorkFigures::of).map_err(|error| error.to_string()));
        let judged = candidates.into_iter().zip(figures).map(|(candidate, figures)| Judged { candidate, figures });
        let choice = Choice { judged: judged.collect(), limit, wanted: "do the work", able: "do the work" };
        WorkAdvice { name, title, profile, filled, choice }
    }

    pub fn judged(&self) -> &[Judged<WorkFigures>] {
        &self.choice.judged
    }

    /// The one that takes the shortest time.
    pub fn fastest(&self) -> Option<(&Candidate, &WorkFigures)> {
        self.choice.fastest()
    }

    /// The cheapest of those that take no longer than is wanted and have a price.
    pub fn cheapest(&self) -> Option<(&Candidate, f64)> {
        self.choice.cheapest().map(|(candidate, _, price)| (candidate, price))
    }

    /// The phases, with the file size of each where it is repeated with several.
    fn phases(&self) -> Vec<(String, Option<u64>)> {
        let mut phases: Vec<(String, Option<u64>)> = Vec::new();
        for (_, figures) in self.choice.able() {
            for phase in &figures.phases {
                let key = (phase.phase.clone(), phase.file_bytes);
                if !phases.contains(&key) {
                    phases.push(key);
                }
            }
        }
        phases
    }

    /// The fastest contestant of each phase.
    fn by_phase(&self) -> Option<Card> {
        let mut winners: Vec<(&str, Vec<String>)> = Vec::new();
        for (name, bytes) in self.phases() {
            let of_phase = |figures: &'_ WorkFigures| {
                figures.phases.iter().find(|phase| phase.phase == name && phase.file_bytes == bytes).cloned()
            };
            let runs = self.choice.able().filter_map(|(candidate, figures)| Some((candidate, of_phase(figures)?)));
            let (candidate, phase) = runs.min_by_key(|(_, phase)| phase.elapsed)?;
            let text = format!("`{}` ({})", phase_name(&name, bytes), rate_of(&phase));
            match winners.iter_mut().find(|(winner, _)| *winner == candidate.name) {
                Some((_, phases)) => phases.push(text),
                None => winners.push((&candidate.name, vec![text])),
            }
        }
        let others = winners.len() > 1;
        let texts = winners.iter().map(|(winner, phases)| {
            let phases: Vec<&str> = phases.iter().map(String::as_str).collect();
            format!("{winner}: {}.", list(&phases))
        });
        others.then(|| {
            let value = format!("{} winners", winners.len());
            Card::new("Fastest in each phase", &value, texts.collect::<Vec<_>>().join(" "))
        })
    }

    fn cards(&self) -> Vec<Card> {
        let took = |figures: &WorkFigures| format!("{} for all of the work", time_text(figures.total));
        let mut cards = vec![self.choice.fastest_card(took), self.choice.cheapest_card(took)];
        let fastest = self.fastest();
        let cheapest = self.choice.cheapest().map(|(candidate, figures, _)| (candidate, figures));
        let is_other = |(candidate, _): &(&Candidate, _)| fastest.is_none_or(|(other, _)| candidate.name != other.name);
        for (candidate, figures) in fastest.into_iter().chain(cheapest.filter(is_other)) {
            if let Some((value, text)) = figures.bottleneck() {
                cards.push(Card::new(&format!("Bottleneck of {}", candidate.name), value, text));
            }
        }
        cards.extend(self.by_phase());
        cards
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.choice.refusals();
        notes.push(match self.profile.as_str() {
            "none" => "How sure this is: the processor costs nothing here, so that what is limited by it on a real machine is \
                       slower than this (--profile)."
                .to_owned(),
            profile => format!("How sure this is: the processor is that of `{profile}`."),
        });
        notes.push(match self.sizes() {
            None => "Every file system is new and fills its drives; what age and other users do to it is not in this."
                .to_owned(),
            Some(sizes) => sizes,
        });
        let models = known_of_models(self.choice.able().map(|(candidate, _)| &candidate.stack));
        notes.extend(models.into_iter().map(str::to_owned));
        notes
    }

    /// How large the file systems are that the program fills.
    fn sizes(&self) -> Option<String> {
        let sizes =
            self.choice.judged.iter().zip(&self.filled).filter_map(|(judged, room)| Some((judged, (*room)?.files)));
        let smallest = sizes.clone().min_by_key(|(_, bytes)| *bytes)?;
        let largest = sizes.max_by_key(|(_, bytes)| *bytes)?;
        let differ = largest.1 as f64 > smallest.1 as f64 * SIZES_ALIKE;
        let [(smallest, least), (largest, most)] =
            [smallest, largest].map(|(judged, bytes)| (&judged.candidate.name, human_bytes(bytes)));
        Some(match differ {
            false => {
                format!("The program fills file systems that are new before, and have room for {least} to {most}.")
            }
            true => format!(
                "The program fills the file systems, which differ in size: {smallest} has room for {least}, {largest} for {most}. Where there \
                 is more to fill, it takes longer."
            ),
        })
    }

    /// The answer in sentences.
    pub fn sentences(&self) -> Vec<String> {
        self.cards().iter().map(Card::sentence).chain(self.notes()).collect()
    }

    /// Phases that have a column of their own: all, or none where there are many.
    fn columns(&self) -> Vec<(String, Option<u64>)> {
        const COLUMNS_MAX: usize = 5;
        Some(self.phases()).filter(|phases| phases.len() <= COLUMNS_MAX).unwrap_or_default()
    }

    /// Titles of the columns; the last is whether the candidate is good enough.
    pub fn header(&self) -> Vec<String> {
        let good = match self.choice.limit {
            Some(limit) => format!("within {}", time_text(limit)),
            None => "answers".to_owned(),
        };
        let phases = self.columns().into_iter().map(|(phase, bytes)| phase_name(&phase, bytes));
        let first = ["storage".to_owned(), "time".to_owned()].into_iter().chain(phases);
        first.chain(["bound by", "price"].map(str::to_owned)).chain([good]).collect()
    }

    /// What is shown of each candidate beside its name.
    pub fn cells(&self, judged: &Judged<WorkFigures>) -> Vec<String> {
        let price = judged.candidate.price.map_or_else(String::new, price_text);
        let columns = self.columns();
        let mut cells = Vec::new();
        match &judged.figures {
            Ok(figures) => {
                cells.push(time_text(figures.total));
                for (name, bytes) in &columns {
                    let phase = figures.phases.iter().find(|it| it.phase == *name && it.file_bytes == *bytes);
                    cells.push(phase.map_or_else(String::new, rate_of));
                }
                cells.push(figures.longest().map_or_else(String::new, |phase| bound_text(phase.bound()).to_owned()));
            }
            Err(_) => cells.extend(std::iter::repeat_n("-".to_owned(), columns.len() + 2)),
        }
        cells.extend([price, self.choice.verdict(judged).0.to_owned()]);
        cells
    }

    /// For programs: one object for each candidate, and the answer.
    pub fn to_json(&self) -> Vec<serde_json::Value> {
        let phase = |phase: &Measured| {
            serde_json::json!({
                "phase": phase.phase, "file_bytes": phase.file_bytes, "elapsed_ns": phase.elapsed.0,
                "per_second": phase.per_second(), "bytes_per_second": phase.bytes_per_second(), "bound_by": phase.bound(),
            })
        };
        let figures = |figures: &WorkFigures| {
            serde_json::json!({
                "elapsed_ns": figures.total.0,
                "disk_busy": figures.disk_busy(),
                "processor_busy": figures.processor_busy(),
                "phases": figures.phases.iter().map(phase).collect::<Vec<_>>(),
            })
        };
        self.choice.to_json(figures, self.sentences())
    }

    /// As results, of which a report makes a page. `provenance` says by which command.
    pub fn to_stored(&self, provenance: serde_json::Value) -> Stored {
        let mut rows = Vec::new();
        for Judged { candidate, figures } in &self.choice.judged {
            let Ok(figures) = figures else { continue };
            let seconds = figures.total.as_secs_f64();
            rows.push(Row {
                dims: of_candidate(candidate),
                metrics: BTreeMap::from([("total_s".to_owned(), seconds)]),
            });
            if let Some(price) = candidate.price {
                let mut dims = of_candidate(candidate);
                dims.insert(PRICE.to_owned(), Value::Number(price));
                rows.push(Row { dims, metrics: BTreeMap::from([("total_at_price_s".to_owned(), seconds)]) });
            }
            for phase in &figures.phases {
                let mut dims = of_candidate(candidate);
                dims.insert("phase".to_owned(), Value::Text(phase_name(&phase.phase, phase.file_bytes)));
                let known = [
                    ("phase_s", Some(phase.elapsed.as_secs_f64())),
                    ("per_second", phase.per_second()),
                    ("disk_busy_percent", phase.disk_busy().map(|share| share * 100.0)),
                ];
                let metrics = known.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
                rows.push(Row { dims, metrics });
            }
        }
        let description = description(
            format!("File system and storage for {}", self.name),
            format!("The program: {}.", self.title),
            &self.name,
            &[("phase", "phase"), (PRICE, "price of its drives")],
            self.figures(),
        );
        let answer = Answer { cards: self.cards(), header: self.header(), rows: Vec::new(), notes: self.notes() };
        self.choice.stored(description, rows, answer, |judged| self.cells(judged), provenance)
    }

    fn figures(&self) -> Vec<Figure> {
        let within = self.choice.limit.map_or_else(String::new, |limit| format!(" (wanted: {})", time_text(limit)));
        let mut figures = vec![
            bars("total", &format!("Time for all of the work{within}"), "total_s", "time (s)", true),
            Figure {
                panels: "phase".to_owned(),
                x_axis: Axis { label: "storage".to_owned(), ..Axis::default() },
                ..bars("phases", "Time of each phase", "phase_s", "time (s)", true)
            },
        ];
        if self.choice.judged.iter().any(|judged| judged.candidate.price.is_some()) {
            figures.insert(1, by_price("total_at_price_s", "time for all of the work (s)"));
        }
        figures
    }
}

fn phase_name(phase: &str, bytes: Option<u64>) -> String {
    match bytes {
        Some(bytes) => format!("{phase}, {}", human_bytes(bytes)),
        None => phase.to_owned(),
    }
}

/// A phase's speed in the unit that it counts.
fn rate_of(phase: &Measured) -> String {
    const MIB: f64 = (1 << 20) as f64;
    let (rate, unit) = match phase.unit {
        _ if phase.is_about_bytes() => (phase.bytes_per_second().map(|rate| rate / MIB), "MiB/s"),
        Unit::Files => (phase.per_second(), "files/s"),
        Unit::Transactions => (phase.per_second(), "/s"),
        Unit::Bytes => (phase.per_second(), "B/s"),
    };
    rate.map_or_else(|| "no time".to_owned(), |rate| format!("{} {unit}", number_text(rate)))
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use seekless::rt::HostProfile;
    use seekless::stack::Stack;

    use super::*;
    use crate::run::simulate;
    use crate::workload::WORKLOADS;

    /// Aim: the answer is that of the runs: the shortest, and the cheapest within the time. Method: small files on three
    /// storages of which one cannot hold a file system, with limits that all, one and none of them keep.
    #[test]
    fn the_answer_follows_from_runs() {
        let spec = WORKLOADS.iter().find(|spec| spec.name == "smallfile").expect("a workload");
        let mut keys = toml::Table::new();
        keys.insert("files".into(), toml::Value::Integer(30));
        let program = spec.read(&keys, None).expect("a number of files");
        let lines =
            [("disk", "ffs / disk:dec-rz26"), ("flash", "lfs / ssd:nvme-a,size=1GiB"), ("tiny", "lfs / memory:64KiB")];
        let prices = [("disk".to_owned(), 10.0), ("ssd".to_owned(), 99.5)];
        let advise = |limit: Option<Nanos>| {
            let candidate = |(name, line): &(&str, &str)| Candidate::new(name, Stack::parse(line).unwrap(), &prices);
            let candidates: Vec<Candidate> = lines.iter().map(candidate).collect();
            let run = |it: &Candidate| {
                simulate(&it.stack, None, HostProfile::NONE, &*program, &|_| ControlFlow::Continue(()))
            };
            let runs = candidates.iter().map(run).collect();
            WorkAdvice::new("smallfile".into(), program.title(), "none".into(), candidates, runs, limit, Vec::new())
        };
        let name = |found: Option<(&Candidate, f64)>| found.map(|(candidate, price)| (candidate.name.clone(), price));
        let any = advise(None);
        let fastest = any.fastest().expect("two can do it");
        assert_eq!((fastest.0.name.as_str(), name(any.cheapest())), ("flash", Some(("disk".into(), 10.0))));
        let total: u64 = fastest.1.phases.iter().map(|phase| phase.elapsed.0).sum();
        assert_eq!(fastest.1.total, Nanos(total));
        let text = any.sentences().join("\n");
        assert!(text.contains("tiny is out of the question"), "{text}");
        assert!(text.contains("Bottleneck of disk: the storage. Most time goes into"), "{text}");
        let stored = any.to_stored(serde_json::json!({}));
        let answer = stored.answer.expect("it gives one");
        assert!(answer.rows.iter().all(|row| row.cells.len() + 1 == answer.header.len()), "{:?}", answer.rows);
        assert_eq!(any.to_json().len(), 4);

        let strict = advise(Some(fastest.1.total));
        assert_eq!(name(strict.cheapest()), Some(("flash".into(), 99.5)));
        let impossible = advise(Some(Nanos(1))).sentences().join("\n");
        assert!(impossible.contains("none. No candidate can do the work within 1 ns."), "{impossible}");
    }
}
