//! Statements of papers: what each of them says in numbers, and what came out here.
//!
//! A list is a CSV file with a row for each quantitative sentence, table cell and curve of one paper, in the order of its text. A
//! claim of an experiment names the statements that it answers.
//!
//! | column | holds |
//! |---|---|
//! | `id` | a name for claims: `se95/3.1-2k` is row `3.1-2k` of `se95.csv` |
//! | `place` | section, table or figure |
//! | `quote` | the words of the paper; ` ... ` is in place of what was left out |
//! | `value`, `unit` | what it says; a word for a qualitative statement may be missing |
//! | `low`, `high`, `bounds` | what counts as the same, in the unit of `measured`, and why; a bound may be missing where `bounds` says why |
//! | `kind` | see [`StatementKind`] |
//! | `experiment`, `metric` | what answers it: a folder of `experiments`, or a file of the project |
//! | `measured_low`, `measured_high` | the least and the most that came out, of all cases |
//! | `verdict` | `holds`, `differs` or `not measured` |
//! | `note` | why it differs, or why it is not measured |
//!
//! Invariants
//!   T1  `holds` means that everything that was measured is within the bounds, and `differs` that something is not.
//!   T2  What differs or is not measured says why.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::experiment::{Verdict, rounded};

/// Where a statement's number comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StatementKind {
    /// The paper measured it.
    Measured,
    /// The paper calculated it.
    Derived,
    /// The paper says it without a number.
    Qualitative,
    /// How the paper's experiment was set up: its machines, sizes and parameters. Ours is the same, or not.
    Setup,
    /// The paper repeats it from another work.
    Cited,
    /// We remember it, and have not seen the paper's text.
    Recalled,
    /// Read off a drawing that is not in the text that was at hand, or off another work's drawing of the same.
    Digitised,
}

impl StatementKind {
    /// True for what the text says to come out.
    pub fn is_result(self) -> bool {
        matches!(self, StatementKind::Measured | StatementKind::Derived | StatementKind::Qualitative)
    }
}

/// A row of a list.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Statement {
    pub id: String,
    pub place: String,
    pub quote: String,
    pub value: String,
    pub unit: String,
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub bounds: String,
    pub kind: StatementKind,
    pub experiment: String,
    pub metric: String,
    pub measured_low: Option<f64>,
    pub measured_high: Option<f64>,
    pub verdict: String,
    pub note: String,
}

impl Statement {
    /// The least and the most that was measured.
    pub fn measured(&self) -> Option<(f64, f64)> {
        Some((self.measured_low?, self.measured_high?))
    }

    /// What follows from the bounds and what was measured.
    pub fn judged(&self) -> Verdict {
        match self.measured() {
            None => Verdict::Open,
            Some((least, most)) => {
                let within = self.low.is_none_or(|low| least >= low) && self.high.is_none_or(|high| most <= high);
                if within { Verdict::Holds } else { Verdict::Differs }
            }
        }
    }

    /// Takes what was measured now: with four digits, or with as many as the verdict needs.
    pub fn set_measured(&mut self, (least, most): (f64, f64)) {
        let (low, high) = (self.low, self.high);
        self.measured_low = Some(rounded(least, |least| low.is_none_or(|low| least >= low)));
        self.measured_high = Some(rounded(most, |most| high.is_none_or(|high| most <= high)));
        self.verdict = self.judged().name().to_owned();
    }

    /// What is wrong with it, if anything.
    fn problem(&self) -> Option<&'static str> {
        let is_missing = |text: &str| text.trim().is_empty();
        let required = [
            (&self.id, "there is no id"),
            (&self.place, "there is no place"),
            (&self.quote, "there is no quotation"),
            (&self.bounds, "nothing says where the bounds come from"),
        ];
        if let Some((_, problem)) = required.iter().find(|(text, _)| is_missing(text)) {
            return Some(problem);
        }
        if self.low.zip(self.high).is_some_and(|(low, high)| low > high) {
            return Some("the bounds are the wrong way round");
        }
        if self.measured_low.is_some() != self.measured_high.is_some() {
            return Some("one end of what was measured is missing");
        }
        if self.measured().is_some_and(|(least, most)| least > most) {
            return Some("what was measured is the wrong way round");
        }
        let verdict = self.judged();
        if self.verdict != verdict.name() {
            return Some("the verdict is not what follows from the bounds");
        }
        if verdict == Verdict::Open {
            return is_missing(&self.note).then_some("it is not measured, and no note says why");
        }
        if self.low.is_none() && self.high.is_none() {
            return Some("it is measured, and has no bounds");
        }
        if is_missing(&self.experiment) {
            return Some("it is measured, and nothing says by which experiment");
        }
        (verdict == Verdict::Differs && is_missing(&self.note)).then_some("it differs, and no note says why")
    }
}

/// Reads a list, whatever its rows say.
///
/// # Errors
/// When a cell is not of its column.
pub fn parse(text: &str) -> Result<Vec<Statement>, String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(|record| record.map_err(|error| error.to_string())).collect()
}

/// Reads a list.
///
/// # Errors
/// When a row breaks a rule, with its id.
pub fn read(text: &str) -> Result<Vec<Statement>, String> {
    let statements = parse(text)?;
    let mut ids = BTreeSet::new();
    for statement in &statements {
        let wrong = |problem: &str| Err(format!("`{}`: {problem}", statement.id));
        if let Some(problem) = statement.problem() {
            return wrong(problem);
        }
        if !ids.insert(statement.id.clone()) {
            return wrong("there are two with this id");
        }
    }
    Ok(statements)
}

/// The list as text.
///
/// # Errors
/// When the text cannot be made, which is a bug.
pub fn to_csv(statements: &[Statement]) -> Result<String, String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for statement in statements {
        writer.serialize(statement).map_err(|error| error.to_string())?;
    }
    let bytes = writer.into_inner().map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

/// How many statements there are of each verdict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub holds: usize,
    pub differs: usize,
    pub open: usize,
}

impl Counts {
    /// Those of `statements` for which `wanted` is true.
    pub fn of<'a>(
        statements: impl IntoIterator<Item = &'a Statement>,
        wanted: impl Fn(StatementKind) -> bool,
    ) -> Counts {
        let mut counts = Counts::default();
        for statement in statements.into_iter().filter(|statement| wanted(statement.kind)) {
            match statement.judged() {
                Verdict::Holds => counts.holds += 1,
                Verdict::Differs => counts.differs += 1,
                Verdict::Open => counts.open += 1,
            }
        }
        counts
    }

    pub fn all(self) -> usize {
        self.holds + self.differs + self.open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str =
        "id,place,quote,value,unit,low,high,bounds,kind,experiment,metric,measured_low,measured_high,verdict,note\n";

    fn row(row: &str) -> Result<Vec<Statement>, String> {
        read(&format!("{HEADER}{row}\n"))
    }

    /// Aim: a list says what it must. Method: a good row, and one with each fault.
    #[test]
    fn rows_follow_the_rules() {
        let good =
            "2k,3.1,a factor of four,4,times,3.5,4.5,to the whole number,measured,se95-sizes,per_s,3.9,4.1,holds,";
        let read = row(good).unwrap();
        assert_eq!(to_csv(&read).unwrap(), format!("{HEADER}{good}\n"));
        for (from, to, problem) in [
            ("4.1,holds", "12.4,holds", "the verdict is not what follows"),
            ("4.1,holds", "12.4,differs", "no note says why"),
            ("3.9,4.1,holds", ",,not measured", "no note says why"),
            ("3.9,4.1,holds", ",4.1,not measured", "one end"),
            ("3.9,4.1,holds", "4.2,4.1,holds", "what was measured is the wrong way round"),
            ("to the whole number", "", "where the bounds come from"),
            ("3.5,4.5", "4.5,3.5", "the bounds are the wrong way round"),
            ("3.5,4.5", ",", "has no bounds"),
            ("se95-sizes", "", "by which experiment"),
            ("a factor of four", "", "no quotation"),
            ("measured,se", "guessed,se", "guessed"),
        ] {
            let error = row(&good.replacen(from, to, 1)).unwrap_err();
            assert!(error.contains(problem), "{from} -> {to}: {error}");
        }
        assert!(row(&format!("{good}\n{good}")).unwrap_err().contains("two with this id"));
    }

    /// Aim: the verdict follows from the bounds, at their ends too. Method: by hand.
    #[test]
    fn verdicts_follow_from_bounds() {
        let good = "2k,3.1,q,4,times,3.5,4.5,b,measured,e,per_s,3.5,4.5,holds,";
        let mut statement = row(good).unwrap().remove(0);
        assert_eq!(statement.judged(), Verdict::Holds);
        statement.set_measured((3.4, 4.0));
        assert_eq!((statement.judged(), statement.verdict.as_str()), (Verdict::Differs, "differs"));
        statement.set_measured((3.499_96, 4.123_45));
        assert_eq!((statement.judged(), statement.measured()), (Verdict::Differs, Some((3.499_96, 4.123))));
        statement.set_measured((3.500_01, 4.500_04));
        assert_eq!((statement.judged(), statement.measured()), (Verdict::Differs, Some((3.5, 4.500_04))));
        statement.set_measured((3.4, 4.499_96));
        statement.low = None;
        assert_eq!((statement.judged(), statement.measured()), (Verdict::Holds, Some((3.4, 4.5))));
        let counts = Counts::of([&statement], StatementKind::is_result);
        assert_eq!((counts.holds, counts.all()), (1, 1));
    }
}
