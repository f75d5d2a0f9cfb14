//! The choice among candidates: the fastest, and the cheapest that is good enough.

use seekless::units::Nanos;
use serde_json::{Value, json};

use super::{ALIKE, Candidate, list, price_text};
use crate::experiment::{Answer, AnswerRow, Card, Contestant, Description, Row, Stored, Tone};
use crate::trace::time_text;

/// What was found out about a candidate.
pub trait Figures {
    /// The time by which candidates are compared; the shorter, the better.
    fn time(&self) -> Nanos;

    /// The time that has to be within the limit.
    fn limited(&self) -> Nanos;

    /// Why it is out of the question.
    fn unable(&self) -> Option<String>;
}

/// A candidate and what came of it; the error says why it could not be asked.
pub struct Judged<F> {
    pub candidate: Candidate,
    pub figures: Result<F, String>,
}

/// All candidates, and what is wanted of them.
pub(super) struct Choice<F> {
    pub(super) judged: Vec<Judged<F>>,
    pub(super) limit: Option<Nanos>,
    /// What being good enough is called: to "answer 99 of 100 requests".
    pub(super) wanted: &'static str,
    /// And without a limit: to "keep up with the trace".
    pub(super) able: &'static str,
}

impl<F: Figures> Choice<F> {
    pub(super) fn able(&self) -> impl Iterator<Item = (&Candidate, &F)> {
        let able = self.judged.iter().filter_map(|judged| Some((&judged.candidate, judged.figures.as_ref().ok()?)));
        able.filter(|(_, figures)| figures.unable().is_none())
    }

    pub(super) fn fastest(&self) -> Option<(&Candidate, &F)> {
        self.able().min_by_key(|(_, figures)| figures.time())
    }

    /// Names of those that differ from the fastest by no more than models do.
    pub(super) fn alike(&self) -> Vec<&str> {
        let Some((winner, best)) = self.fastest() else { return Vec::new() };
        let time = best.time().0.max(1) as f64 * ALIKE;
        let alike = self.able().filter(|(it, figures)| it.name != winner.name && figures.time().0 as f64 <= time);
        alike.map(|(candidate, _)| candidate.name.as_str()).collect()
    }

    pub(super) fn is_good_enough(&self, figures: &F) -> bool {
        figures.unable().is_none() && self.limit.is_none_or(|limit| figures.limited() <= limit)
    }

    pub(super) fn good_enough(&self) -> Vec<&Candidate> {
        self.able().filter(|(_, figures)| self.is_good_enough(figures)).map(|(candidate, _)| candidate).collect()
    }

    /// The cheapest of those that are good enough and have a price; of several, the fastest.
    pub(super) fn cheapest(&self) -> Option<(&Candidate, &F, f64)> {
        let good = self.able().filter(|(_, figures)| self.is_good_enough(figures));
        let priced = good.filter_map(|(candidate, figures)| Some((candidate, figures, candidate.price?)));
        priced.min_by(|one, other| one.2.total_cmp(&other.2).then(one.1.time().cmp(&other.1.time())))
    }

    /// "answer 99 of 100 requests within 20 ms".
    pub(super) fn condition(&self) -> String {
        match self.limit {
            Some(limit) => format!("{} within {}", self.wanted, time_text(limit)),
            None => self.able.to_owned(),
        }
    }

    /// What is said of the fastest; `took` says how fast it is.
    pub(super) fn fastest_card(&self, took: impl Fn(&F) -> String) -> Card {
        let Some((winner, best)) = self.fastest() else {
            return Card::new("Fastest", "none", format!("No candidate can {}.", self.able)).tone(Tone::Bad);
        };
        let alike = self.alike();
        let alike = match alike[..] {
            [] => String::new(),
            [one] => format!(" {one} is within 10 % of that, which is less than models can tell apart."),
            _ => format!(" {} are within 10 % of that, which is less than models can tell apart.", list(&alike)),
        };
        Card::new("Fastest", &winner.name, format!("{}.{alike}", took(best)))
    }

    /// What is said of the cheapest that is good enough, or of those that are where there are no prices.
    pub(super) fn cheapest_card(&self, took: impl Fn(&F) -> String) -> Card {
        let good = self.good_enough();
        let condition = self.condition();
        let label = format!("Cheapest of those that {condition}");
        match (&good[..], self.cheapest()) {
            ([], _) => Card::new(&label, "none", format!("No candidate can {condition}.")).tone(Tone::Bad),
            (_, Some((candidate, figures, price))) => {
                let unpriced = good.iter().filter(|candidate| candidate.price.is_none()).count();
                let unpriced = match unpriced {
                    0 => String::new(),
                    count => format!(" {count} of the {} that keep up have no price.", good.len()),
                };
                let note = format!("Price {}; {}.{unpriced}", price_text(price), took(figures));
                Card::new(&label, &candidate.name, note).tone(Tone::Good)
            }
            (_, None) => {
                let names: Vec<&str> = good.iter().map(|candidate| candidate.name.as_str()).collect();
                let all = match good.len() == self.judged.len() {
                    true => "all of them".to_owned(),
                    false => list(&names),
                };
                let label = format!("These {condition}");
                Card::new(&label, &all, format!("Which of them is cheapest, prices say: {}.", self.example_of_prices()))
            }
        }
    }

    /// Options that give the drives of the candidates a price.
    fn example_of_prices(&self) -> String {
        const PRICES: [u32; 4] = [85, 140, 160, 300];
        let mut drives: Vec<String> = Vec::new();
        for Judged { candidate, .. } in &self.judged {
            let drive = candidate.drive();
            let word = drive.split(':').next().unwrap_or_default();
            if !drives.iter().any(|known| known == word) {
                drives.push(word.to_owned());
            }
        }
        let prices = drives.iter().zip(PRICES.iter().cycle()).map(|(drive, price)| format!("--price {drive}={price}"));
        prices.collect::<Vec<_>>().join(" ")
    }

    /// For programs: one object for each candidate, with its `figures`, and the answer.
    pub(super) fn to_json(&self, figures: impl Fn(&F) -> Value, sentences: Vec<String>) -> Vec<Value> {
        let candidate = |Judged { candidate, figures: found }: &Judged<F>| {
            let figures = match found {
                Ok(found) => {
                    let mut figures = figures(found);
                    figures["good_enough"] = self.is_good_enough(found).into();
                    figures
                }
                Err(problem) => json!({ "problem": problem }),
            };
            json!({
                "kind": "candidate", "name": candidate.name, "stack": candidate.stack.to_string(), "price": candidate.price,
                "figures": figures,
            })
        };
        let answer = json!({
            "kind": "advice",
            "fastest": self.fastest().map(|(candidate, _)| &candidate.name),
            "cheapest": self.cheapest().map(|(candidate, ..)| &candidate.name),
            "sentences": sentences,
        });
        self.judged.iter().map(candidate).chain([answer]).collect()
    }

    /// A sentence for each candidate that is out of the question.
    pub(super) fn refusals(&self) -> Vec<String> {
        let refusal = |judged: &Judged<F>| {
            let name = &judged.candidate.name;
            match &judged.figures {
                Ok(figures) => figures.unable().map(|why| format!("{name} {why}.")),
                Err(problem) => {
                    let problem = problem.lines().next().unwrap_or_default();
                    Some(format!("{name} is out of the question: {}.", problem.trim_end_matches('.')))
                }
            }
        };
        self.judged.iter().filter_map(refusal).collect()
    }

    /// "yes", "no", or why not, for a table.
    pub(super) fn verdict(&self, judged: &Judged<F>) -> (&'static str, Tone) {
        match &judged.figures {
            Err(_) => ("no answer", Tone::Bad),
            Ok(figures) if figures.unable().is_some() => ("cannot keep up", Tone::Bad),
            Ok(figures) if !self.is_good_enough(figures) => ("too slow", Tone::Bad),
            Ok(_) => ("yes", Tone::Good),
        }
    }

    /// Results, of which a report makes a page. The contestants of `description`, the rows of `answer` and the text are filled in here;
    /// `cells` has what is in a row of the answer's table.
    pub(super) fn stored(
        &self,
        description: Description,
        rows: Vec<Row>,
        answer: Answer,
        cells: impl Fn(&Judged<F>) -> Vec<String>,
        provenance: Value,
    ) -> Stored {
        let answer_row = |judged: &Judged<F>| AnswerRow {
            name: judged.candidate.name.clone(),
            below: judged.candidate.stack.to_string(),
            cells: cells(judged),
            tone: self.verdict(judged).1,
        };
        let candidates = || self.judged.iter().map(|judged| &judged.candidate);
        Stored {
            name: "advice".to_owned(),
            description: Description { contestants: candidates().map(contestant).collect(), ..description },
            published: Vec::new(),
            rows,
            provenance,
            text: candidates().map(|candidate| format!("{}: {}\n", candidate.name, candidate.stack)).collect(),
            answer: Some(Answer { rows: self.judged.iter().map(answer_row).collect(), ..answer }),
        }
    }
}

/// The candidate in the description of a page.
fn contestant(candidate: &Candidate) -> Contestant {
    Contestant {
        name: candidate.name.clone(),
        on: candidate.stack.to_string(),
        workload: toml::Table::new(),
        quick: toml::Table::new(),
        profile: None,
        clock: None,
    }
}
