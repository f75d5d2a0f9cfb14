//! The lists of what the papers say in numbers, `docs/papers/statements/*.csv`: that they agree with the claims of the experiments, and
//! that the pages say what they say.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use seekless_lab::experiment::{Checked, Experiment, Row, Verdict};
use seekless_lab::statements::{self, Counts, Statement, StatementKind};

use super::generated::check;
use super::{read, root};

/// The papers with a list, and what of each was at hand.
const PAPERS: &[(&str, &str)] = &[
    ("ro92", "excerpts"),
    ("se95", "the whole text, without its figures"),
    ("st05", "the whole text, without its figures"),
    ("wa99", "the section on small files"),
    ("za01", "section 7, without its figures"),
];

/// The papers' keys.
pub(super) fn papers() -> impl Iterator<Item = &'static str> {
    PAPERS.iter().map(|(paper, _)| *paper)
}

fn path_of(paper: &str) -> PathBuf {
    root().join(format!("docs/papers/statements/{paper}.csv"))
}

pub(super) fn list(paper: &str) -> Vec<Statement> {
    statements::read(&read(&path_of(paper)))
        .unwrap_or_else(|problem| panic!("docs/papers/statements/{paper}.csv: {problem}"))
}

/// Every experiment, by name.
pub(super) fn experiments() -> BTreeMap<String, Experiment> {
    let folders = std::fs::read_dir(root().join("experiments")).expect("there are experiments");
    let folders = folders.map(|entry| entry.expect("an entry").path());
    let all = folders.filter(|path| path.join("experiment.toml").exists()).map(|path| {
        let experiment = Experiment::read(&path).unwrap_or_else(|error| panic!("{error}"));
        (experiment.name.clone(), experiment)
    });
    all.collect()
}

/// Aim: what is said to answer a statement is there. Method: the folders of the experiments, the metrics of their kinds, and the files of
/// the project.
#[test]
fn statements_name_what_is_there() {
    let experiments = experiments();
    let mut problems = Vec::new();
    for (paper, _) in PAPERS {
        for Statement { id, experiment, metric, .. } in list(paper) {
            let Some(known) = experiments.get(&experiment) else {
                if !experiment.is_empty() && !root().join(&experiment).is_file() {
                    problems.push(format!("{paper}/{id}: there is no experiment or file `{experiment}`"));
                }
                continue;
            };
            let kind = known.description.kind().expect("the experiment was read");
            if !metric.is_empty() && !kind.metrics.iter().any(|(name, _)| *name == metric) {
                problems.push(format!("{paper}/{id}: `{experiment}` has no metric `{metric}`"));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Aim: a claim requires what the list says, and no number with a metric is written by hand. Method: each claim against the statements that it
/// answers, and each statement of a metric against the claims.
#[test]
fn claims_agree_with_statements() {
    let experiments = experiments();
    let lists: BTreeMap<&str, Vec<Statement>> = PAPERS.iter().map(|(paper, _)| (*paper, list(paper))).collect();
    let mut problems = Vec::new();
    let mut answered: BTreeMap<String, usize> = BTreeMap::new();
    for (name, experiment) in &experiments {
        for claim in &experiment.description.claims {
            let mut wrong = |problem: &str| problems.push(format!("{name}, \"{}\": {problem}", claim.text));
            let is_of_a_list = PAPERS.iter().any(|(paper, _)| claim.source.starts_with(&format!("[{paper} ")));
            if is_of_a_list && claim.statements.is_empty() {
                wrong(
                    "it is a paper's, and answers no statement of its list; what is ours has a source that says so first",
                );
            }
            // A number that was measured, or words; a number of another origin has that before it.
            let said = |statement: &Statement| {
                let number = format!("{} {}", statement.value, statement.unit);
                // A shape is a word, too.
                let is_number = !statement.value.is_empty() && statement.unit != "yes";
                match (statement.kind, is_number) {
                    // What is recalled is in words of ours.
                    (StatementKind::Recalled, false) => format!("recalled: {}", statement.quote),
                    (StatementKind::Qualitative, _) | (_, false) => format!("“{}”", statement.quote),
                    (StatementKind::Derived, _) => format!("calculated: {}", number.trim_end()),
                    (StatementKind::Cited, _) => format!("cited: {}", number.trim_end()),
                    (StatementKind::Recalled, _) => format!("recalled: {}", number.trim_end()),
                    (StatementKind::Digitised, _) => format!("digitised: {}", number.trim_end()),
                    _ => number.trim_end().to_owned(),
                }
            };
            let mut published: Vec<String> = Vec::new();
            for key in &claim.statements {
                let (paper, id) = key.split_once('/').unwrap_or((key, ""));
                let found = lists.get(paper).and_then(|list| list.iter().find(|statement| statement.id == id));
                let Some(statement) = found else {
                    wrong(&format!("there is no statement `{key}`"));
                    continue;
                };
                *answered.entry(key.clone()).or_default() += 1;
                if !published.contains(&said(statement)) {
                    published.push(said(statement));
                }
                if (&statement.experiment, &statement.metric) != (name, &claim.metric) {
                    wrong(&format!("`{key}` is answered by {} of {}", statement.metric, statement.experiment));
                }
                let near = |one: Option<f64>, two: Option<f64>| match (one, two) {
                    (Some(one), Some(two)) => (one - two).abs() < 1e-9,
                    (one, two) => one.is_none() && two.is_none(),
                };
                let (low, high) = claim.bounds();
                if !near(low, statement.low) || !near(high, statement.high) {
                    let (from, to) = (statement.low, statement.high);
                    wrong(&format!("its bounds are {low:?} to {high:?}, those of `{key}` {from:?} to {to:?}"));
                }
            }
            if !claim.statements.is_empty() && claim.published != published.join("; ") {
                wrong(&format!("`published` is not what the list says, {:?}", published.join("; ")));
            }
        }
    }
    for (paper, list) in &lists {
        for statement in list.iter().filter(|statement| !statement.metric.is_empty()) {
            if !answered.contains_key(&format!("{paper}/{}", statement.id)) {
                problems.push(format!("{paper}/{}: it names a metric, and no claim answers it", statement.id));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Words that say a number.
const NUMBERS: &[&str] = &[
    "one",
    "single",
    "two",
    "three",
    "four",
    "five",
    "six",
    "eight",
    "ten",
    "half",
    "third",
    "quarter",
    "twice",
    "double",
    "doubling",
    "order of magnitude",
    "order-of-magnitude",
    "saturated",
    "same number",
    "full rotation",
    "equal to the size",
];

/// Words that say that something is one, or once as much.
const ONE: &[&str] = &["one", "single", "same", "equal", "rotation"];

/// Aim: only what the text says with a number counts as a number. Method: each row of a measurement or calculation has a value, and its quotation
/// a digit or a word for a number; a value of one is said as such, as there are other numbers in most sentences.
#[test]
fn numbers_are_those_of_the_text() {
    let mut problems = Vec::new();
    for paper in papers() {
        for Statement { id, quote, value, unit, low, high, kind, .. } in list(paper) {
            // A figure whose curves were not at hand has neither.
            let is_figure = value.is_empty() && low.or(high).is_none();
            if !matches!(kind, StatementKind::Measured | StatementKind::Derived) || unit == "yes" || is_figure {
                continue;
            }
            let (quote, has) = (quote.to_lowercase(), |words: &[&str]| words.iter().any(|word| quote.contains(word)));
            let has_number = has(NUMBERS) || quote.contains(|letter: char| letter.is_ascii_digit());
            let says_it = value != "1" || has(ONE) || quote.split_whitespace().any(|word| word == "1");
            if value.is_empty() || !has_number || !says_it {
                problems.push(format!("{paper}/{id}: `{value}` is not in the text, so it is qualitative: {quote}"));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// Aim: a tie is not called better. Method: no ratio that holds is nearer to a bound of one, on the side where it must be, than results vary by
/// where blocks come to lie.
#[test]
fn ties_do_not_hold() {
    const NOISE: f64 = 0.005;
    let mut problems = Vec::new();
    for paper in papers() {
        for statement in list(paper)
            .iter()
            .filter(|one| one.unit == "times" && one.low != one.high && one.judged() == Verdict::Holds)
        {
            let Some((least, most)) = statement.measured() else { continue };
            let is_one = |bound: Option<f64>| bound.is_some_and(|bound| (bound - 1.0).abs() < NOISE);
            if is_one(statement.low) && least < 1.0 + NOISE || is_one(statement.high) && most > 1.0 - NOISE {
                problems.push(format!(
                    "{paper}/{}: {least} to {most} is a tie, so the bound is that of noise",
                    statement.id
                ));
            }
        }
    }
    assert!(problems.is_empty(), "{problems:#?}");
}

/// What a run of `experiment` measured, from a folder of results.
fn rows_of(results: &std::path::Path, experiment: &str) -> Option<Vec<Row>> {
    let text = std::fs::read_to_string(results.join(experiment).join("rows.jsonl")).ok()?;
    Some(text.lines().map(|line| serde_json::from_str(line).expect("a row of results")).collect())
}

/// What rows of an experiment say to the statements that it answers: of all its claims, the least and the most.
pub(super) fn answers(experiment: &Experiment, rows: &[Row]) -> BTreeMap<String, (f64, f64)> {
    let mut found: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for claim in &experiment.description.claims {
        let Checked { range: Some((least, most)), .. } = claim.verify(rows, &experiment.published) else {
            let (name, keys) = (&experiment.name, &claim.statements);
            assert!(keys.is_empty(), "{name}: no row answers `{}`: {keys:?}", claim.text);
            continue;
        };
        for key in &claim.statements {
            let range = found.entry(key.clone()).or_insert((least, most));
            *range = (range.0.min(least), range.1.max(most));
        }
    }
    found
}

/// Takes what was measured from the results.
fn take_results(results: &std::path::Path) {
    let mut found: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    for (name, experiment) in experiments() {
        let Some(rows) = rows_of(results, &name) else { continue };
        found.extend(answers(&experiment, &rows));
    }
    for (paper, _) in PAPERS {
        // The verdicts of a list whose bounds have changed are not right yet.
        let mut list = statements::parse(&read(&path_of(paper))).expect("the list can be read");
        for statement in &mut list {
            if let Some(range) = found.get(&format!("{paper}/{}", statement.id)) {
                statement.set_measured(*range);
            }
        }
        std::fs::write(path_of(paper), statements::to_csv(&list).expect("a list is CSV"))
            .expect("the list can be written");
    }
}

/// A cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('\n', " ")
}

/// As the list has the numbers, so that a reader can check the verdict of what is near a bound.
fn range(low: Option<f64>, high: Option<f64>) -> String {
    match (low, high) {
        (Some(low), Some(high)) if low == high => low.to_string(),
        (Some(low), Some(high)) => format!("{low} to {high}"),
        (Some(low), None) => format!("{low} or more"),
        (None, Some(high)) => format!("{high} or less"),
        (None, None) => String::new(),
    }
}

fn table_of(
    list: &[Statement],
    wanted: impl Fn(StatementKind) -> bool,
    experiments: &BTreeMap<String, Experiment>,
) -> String {
    let mut text = String::from(
        "| place | the paper's words | it says | the same is | here | | answered by | bounds, and why it differs or is not measured |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for statement in list.iter().filter(|statement| wanted(statement.kind)) {
        let Statement { place, quote, value, unit, low, high, bounds, experiment, metric, note, .. } = statement;
        let verdict = match statement.judged() {
            Verdict::Differs => "**differs**",
            other => other.name(),
        };
        let link = match experiment.as_str() {
            "" => String::new(),
            name if experiments.contains_key(name) => {
                format!("[`{name}`](../../../experiments/{name}/experiment.toml) {metric}").trim_end().to_owned()
            }
            file => {
                let name = file.rsplit('/').next().unwrap_or(file);
                format!("[{name}](../../../{file})")
            }
        };
        let found = statement.measured().map_or(String::new(), |(least, most)| range(Some(least), Some(most)));
        let why = if note.is_empty() { bounds.clone() } else { format!("{bounds}. {note}") };
        let said = if value.is_empty() { String::new() } else { format!("{value} {unit}") };
        let same = range(*low, *high);
        let _ = writeln!(
            text,
            "| {} | {} | {} | {same} | {found} | {verdict} | {link} | {} |",
            cell(place),
            cell(quote),
            cell(said.trim()),
            cell(&why)
        );
    }
    text
}

fn sentence(counts: Counts, what: &str) -> String {
    let Counts { holds, differs, open } = counts;
    format!("{} {what}: {holds} hold, {differs} differ, {open} are not measured", counts.all())
}

/// How many of the results that hold no experiment measured: the paper's own arithmetic, repeated, and what a test of the code shows or a
/// script has measured in real time.
fn held_without_metric(list: &[Statement]) -> usize {
    let held = list.iter().filter(|statement| statement.kind.is_result() && statement.judged() == Verdict::Holds);
    held.filter(|statement| statement.metric.is_empty()).count()
}

/// Says so, where there are any.
fn without_metric(list: &[Statement]) -> String {
    match held_without_metric(list) {
        0 => String::new(),
        count => format!(
            " Of those that hold, {count} need no experiment: the paper's own arithmetic, repeated, a test of the code, or a script in real time \
             shows them."
        ),
    }
}

/// How many results have a number, and not words only.
fn with_number(list: &[Statement]) -> usize {
    let has_number = |statement: &&Statement| {
        statement.kind.is_result()
            && statement.kind != StatementKind::Qualitative
            && !statement.value.is_empty()
            && statement.unit != "yes"
    };
    list.iter().filter(has_number).count()
}

/// Aim: what pages say of how much holds is so. Method: counts and tables from the lists.
#[test]
fn pages_have_the_statements() {
    let bless = std::env::var("SEEKLESS_BLESS").is_ok_and(|value| value == "1");
    if let Some(results) = std::env::var_os("SEEKLESS_RESULTS").filter(|_| bless) {
        take_results(std::path::Path::new(&results));
    }
    let experiments = experiments();
    let is_setup = |kind| kind == StatementKind::Setup;
    let mut overview = String::from(
        "| paper | at hand | results | hold | of these by arithmetic, a test or a script | differ | not measured | set-ups | the same | other | not compared | cited | recalled | digitised |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut all: Vec<Statement> = Vec::new();
    for (paper, at_hand) in PAPERS {
        let list = list(paper);
        let (results, setup) = (Counts::of(&list, StatementKind::is_result), Counts::of(&list, is_setup));
        let others = |wanted: StatementKind| list.iter().filter(|statement| statement.kind == wanted).count();
        let (cited, recalled, digitised) =
            (others(StatementKind::Cited), others(StatementKind::Recalled), others(StatementKind::Digitised));
        let _ = writeln!(
            overview,
            "| [[{paper}]](papers/statements/{paper}.md) | {at_hand} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {cited} | {recalled} | {digitised} |",
            results.all(),
            results.holds,
            held_without_metric(&list),
            results.differs,
            results.open,
            setup.all(),
            setup.holds,
            setup.differs,
            setup.open,
        );
        let line = format!(
            "The paper states {} results: {} hold here, {} differ, {} are not measured.{}\nOf {} set-ups that it describes, ours has {} and differs \
             in {}; {} were not compared.\n[The list](statements/{paper}.md) has all of them, with their bounds and what differs.",
            results.all(),
            results.holds,
            results.differs,
            results.open,
            without_metric(&list),
            setup.all(),
            setup.holds,
            setup.differs,
            setup.open,
        );
        check(&format!("papers/{paper}.md"), "statements", &line);
        let mut tables = format!(
            "{}.{}\n\n## Results\n\n{}",
            sentence(results, "statements"),
            without_metric(&list),
            table_of(&list, StatementKind::is_result, &experiments)
        );
        for (kind, title) in [
            (StatementKind::Setup, "Set-up"),
            (StatementKind::Cited, "Cited from other works"),
            (StatementKind::Recalled, "Recalled, not verifiable here"),
            (StatementKind::Digitised, "Digitised from drawings that are not in the text at hand"),
        ] {
            if others(kind) > 0 {
                let _ = write!(tables, "\n## {title}\n\n{}", table_of(&list, |other| other == kind, &experiments));
            }
        }
        check(&format!("papers/statements/{paper}.md"), "tables", &tables);
        all.extend(list);
    }
    check("papers.md", "statements", &overview);
    let Counts { holds, differs, open } = Counts::of(&all, StatementKind::is_result);
    let total = holds + differs + open;
    let arithmetic = held_without_metric(&all);
    let numbers = with_number(&all);
    let line = format!(
        "Five papers state {total} results, {numbers} of them with a number: {holds} hold here, {differs} differ, and {open} are not measured.\n\
         We had the whole text of two of these papers, and excerpts of three. Of the results that hold, {arithmetic} need no experiment:\n\
         the papers' own arithmetic, repeated, a test of the code, or a script in real time shows them.\n\
         [The lists](docs/papers.md#statement-by-statement) have every statement, with its bounds and the reason."
    );
    check("../README.md", "statements", &line);
}
