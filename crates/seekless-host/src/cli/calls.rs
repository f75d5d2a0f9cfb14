//! Long commands as functions, for programs in other languages: the words of the command line, and a value for an answer.
//!
//! The words are parsed by the program's own parser, and the same code measures, so that a function of another language has
//! the options of its command, refuses what it refuses, and computes nothing of its own. What differs is the caller: it gets
//! values instead of text, sees the progress, and ends the command without a signal.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Parser};
use seekless_lab::LabError;
pub use seekless_lab::cleaning::MakePolicy;
use seekless_lab::experiment::{
    Checked, Experiment, Measure, Plan, PointClaim, Results, Stop, Stored, Verdict, deviations, draw,
};
use seekless_lab::replay::Listener;
use seekless_lab::trace::Trace;
pub use seekless_lab::workload::script;
use seekless_lab::workload::script::Script;
use serde_json::{Value, json};

use super::bench::ProgramBench;
use super::caller::waits;
pub use super::caller::{Caller, Step};
use super::clean::FirstImport;
use super::conclude::{Origin, digest_of};
use super::replay::Source;
use super::run::{Finished, Prepared};
use super::{Cli, Command, Failure, WRONG_USAGE, advise, bench, clean, drive_info, list, replay, sweep};
use crate::fuse;
use crate::report::to_svg;

/// Why there is no answer.
#[derive(Debug)]
pub struct Problem {
    pub kind: ProblemKind,
    /// What is wrong, where, and what to do next; in several lines where a stack line has a caret below it.
    pub text: String,
    /// The answer for what did not fail, where there is such a thing.
    pub partial: Option<Box<Answer>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProblemKind {
    /// The words are wrong: nothing was done.
    Usage,
    Failed,
    /// The caller ended it.
    Interrupted,
}

/// What a command has found.
#[derive(Debug)]
pub struct Answer {
    /// What the command prints with `--json`; its lines are an array.
    pub value: Value,
    /// What it prints without.
    pub text: String,
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Problem {
        let kind = if failure.code == WRONG_USAGE { ProblemKind::Usage } else { ProblemKind::Failed };
        Problem { kind, text: failure.text, partial: None }
    }
}

/// Where the library is, and what is installed with it.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The file of the library that calls: results of another build are not reused.
    pub library: PathBuf,
    /// The folder that has `experiments`.
    pub share: Option<PathBuf>,
}

/// Remembers that the caller has ended the command, whose error then says no more than that.
struct Remembering<'a> {
    caller: &'a dyn Caller,
    ended: Cell<bool>,
}

impl Caller for Remembering<'_> {
    fn at(&self, step: Step<'_>) -> ControlFlow<()> {
        let flow = if self.ended.get() { ControlFlow::Break(()) } else { self.caller.at(step) };
        self.ended.set(flow.is_break());
        flow
    }

    fn note(&self, text: &str) {
        self.caller.note(text);
    }
}

/// Calls `command`, whose errors are [`Problem`]s.
fn called<T>(caller: &dyn Caller, command: impl FnOnce(&dyn Caller) -> Result<T, Problem>) -> Result<T, Problem> {
    let remembering = Remembering { caller, ended: Cell::new(false) };
    let result = command(&remembering);
    match remembering.ended.get() {
        true => Err(Problem { kind: ProblemKind::Interrupted, text: "it was interrupted".to_owned(), partial: None }),
        false => result,
    }
}

/// An answer, and what failed beside it.
fn answered(answer: Answer, failure: Option<Failure>) -> Result<Answer, Problem> {
    match failure {
        None => Ok(answer),
        Some(failure) => Err(Problem { partial: Some(Box::new(answer)), ..failure.into() }),
    }
}

fn parsed(words: &[String]) -> Result<Command, Problem> {
    let line = std::iter::once("seekless").chain(words.iter().map(String::as_str));
    Cli::try_parse_from(line).map(|cli| cli.command).map_err(wrong_words)
}

fn wrong_words(error: clap::Error) -> Problem {
    Problem { kind: ProblemKind::Usage, text: error.to_string(), partial: None }
}

/// The words are of another command than the function is for.
fn other_command() -> Problem {
    Problem { kind: ProblemKind::Usage, text: "these are the arguments of another command".to_owned(), partial: None }
}

/// `seekless bench`.
///
/// # Errors
/// With what was measured all the same, where there are several contestants.
pub fn bench(words: &[String], caller: &dyn Caller) -> Result<Answer, Problem> {
    let Command::Bench(bench::Bench::Program(bench)) = parsed(words)? else { return Err(other_command()) };
    measured(&bench, caller)
}

/// `seekless bench` with a workload of the caller. The words are those that follow the name of a workload.
///
/// # Errors
/// As [`bench()`].
pub fn bench_script(words: &[String], script: Box<dyn Script>, caller: &dyn Caller) -> Result<Answer, Problem> {
    let bench = ProgramBench::of_script(words, script).map_err(wrong_words)?;
    measured(&bench, caller)
}

fn measured(bench: &ProgramBench, caller: &dyn Caller) -> Result<Answer, Problem> {
    called(caller, |caller| {
        let report = bench::measure(bench, caller)?;
        answered(Answer { value: report.to_json(), text: report.to_text() }, bench::not_measured(&report))
    })
}

/// The number by which the C library knows an error of a target.
pub fn errno_of(error: &LabError) -> i32 {
    match error {
        LabError::FileSystem { cause, .. } => fuse::errno_of(cause),
        LabError::Host { cause, .. } => cause.raw_os_error().unwrap_or(libc::EIO),
        LabError::Spec(_) => libc::EINVAL,
        _ => libc::EIO,
    }
}

/// `seekless clean`, with a value for each policy.
///
/// # Errors
/// Those of the words and of the simulation.
pub fn clean(words: &[String], caller: &dyn Caller) -> Result<Answer, Problem> {
    let Command::Clean(args) = parsed(words)? else { return Err(other_command()) };
    called(caller, |caller| {
        let (mut results, mut first) = (Vec::new(), FirstImport::default());
        for prepared in args.prepare()? {
            let result = args.simulate(&prepared, caller);
            first.describe(&prepared, caller);
            let (setup, outcome) = result?;
            results.push((prepared, setup, outcome));
        }
        let value = |(prepared, setup, outcome): &_| clean::to_json(prepared, setup, outcome);
        Ok(Answer { value: results.iter().map(value).collect(), text: clean::to_text(&results, false) })
    })
}

/// The same for a policy of the caller, which takes the place of the one that the words have.
///
/// # Errors
/// Those of `make`, too.
pub fn clean_with(words: &[String], name: &str, make: MakePolicy<'_>, caller: &dyn Caller) -> Result<Answer, Problem> {
    let Command::Clean(args) = parsed(words)? else { return Err(other_command()) };
    called(caller, |caller| {
        let (mut values, mut first) = (Vec::new(), FirstImport::default());
        for prepared in args.prepare()? {
            let result = args.simulate_with(&prepared, name, make, caller);
            first.describe(&prepared, caller);
            let (setup, outcome) = result?;
            let mut value = clean::to_json(&prepared, &setup, &outcome);
            (value["policy"], value["knows_future"]) = (json!(name), Value::Null);
            values.push(value);
        }
        Ok(Answer { value: values.into(), text: String::new() })
    })
}

/// Opens requests of the caller as a trace; may be called twice.
pub type OpenRequests<'a> = &'a dyn Fn() -> Result<Trace, String>;

struct Given<'a>(OpenRequests<'a>);

impl Source for Given<'_> {
    fn is_a_stream(&self) -> bool {
        false
    }

    fn open(&self, _: bool) -> Result<Trace, Failure> {
        self.0().map_err(|problem| Failure::new(problem).code(WRONG_USAGE))
    }
}

/// `seekless replay`, with the command's lines. With `requests`, these take the place of the file that the words name.
/// `listeners` are one for each stack, or none.
///
/// # Errors
/// With the outcomes of the other stacks, where one has failed.
pub fn replay(
    words: &[String],
    requests: Option<OpenRequests<'_>>,
    listeners: Vec<Listener>,
    caller: &dyn Caller,
) -> Result<Answer, Problem> {
    let Command::Replay(args) = parsed(words)? else { return Err(other_command()) };
    called(caller, |caller| {
        let replayed = match requests {
            Some(open) => replay::replay(&args, &Given(open), listeners, caller),
            None => replay::replay(&args, &args.trace, listeners, caller),
        }?;
        let (import, outcomes, failed) = replayed.split();
        let texts: Vec<String> = failed.into_iter().map(|failure| failure.text).collect();
        let failure = (!texts.is_empty()).then(|| Failure::new(texts.join("\n")));
        let text = replay::to_text(&import, args.timing, &outcomes);
        answered(Answer { value: replay::to_json(&import, &outcomes).into(), text }, failure)
    })
}

/// `seekless advise`, with the command's lines, and the page that it writes. With `requests`, these take the place of the file
/// that the words name.
///
/// # Errors
/// Those of the words and of the trace.
pub fn advise(
    words: &[String],
    requests: Option<OpenRequests<'_>>,
    caller: &dyn Caller,
) -> Result<(Answer, String), Problem> {
    let Command::Advise(args) = parsed(words)? else { return Err(other_command()) };
    called(caller, |caller| {
        let given = requests.map(Given);
        let source = given.as_ref().map(|given| given as &dyn Source);
        let advised = advise::advise(&args, source, caller)?;
        Ok((Answer { value: advised.lines.into(), text: advised.text }, advised.page))
    })
}

/// `seekless disk list`.
pub fn drives() -> Value {
    list::drives_json()
}

/// `seekless disk info`.
///
/// # Errors
/// When there is no such drive.
pub fn drive(drive: &str) -> Result<Value, Problem> {
    drive_info::value_of(drive).map_err(Problem::from)
}

/// The options of a command, in the words of its help.
///
/// # Errors
/// When there is no such command.
pub fn options(command: &[String]) -> Result<Value, Problem> {
    let mut found = Cli::command();
    for name in command {
        found = found.find_subcommand(name).cloned().ok_or_else(other_command)?;
    }
    let option = |option: &clap::Arg| {
        let defaults: Vec<String> = option.get_default_values().iter().map(|it| it.to_string_lossy().into()).collect();
        json!({
            "name": option.get_id().as_str(),
            "option": option.get_long(),
            "help": option.get_help().map(ToString::to_string),
            "takes_value": option.get_action().takes_values(),
            "repeats": matches!(option.get_action(), clap::ArgAction::Append),
            "default": defaults.first(),
        })
    };
    Ok(found.get_arguments().filter(|option| option.get_id() != "help").map(option).collect())
}

/// An experiment and its plan, as every process makes it that measures a part of it.
pub struct Study {
    prepared: Prepared,
    stop: Stop,
}

/// A point that is to be measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Task {
    pub point: usize,
    /// The same in every process with the same build and the same files.
    pub key: String,
    /// For people.
    pub name: String,
}

impl Study {
    /// Reads the words of `seekless run`, and makes the plan.
    ///
    /// # Errors
    /// What is wrong with the words or the experiment.
    pub fn read(words: &[String], installation: &Installation) -> Result<Study, Problem> {
        let Command::Run(args) = parsed(words)? else { return Err(other_command()) };
        let experiment: Experiment = args.which.read(|| installation.share.clone())?;
        let prepared = Prepared::new(&args, experiment, digest_of(&installation.library)?)?;
        Ok(Study { prepared, stop: Stop::default() })
    }

    /// Where the results go.
    pub fn folder(&self) -> &Path {
        &self.prepared.folder
    }

    /// How many points are measured at the same time in this process.
    pub fn jobs(&self) -> usize {
        self.prepared.jobs
    }

    /// Whether a task is of this plan: not when it was made by another build, or from other files.
    pub fn has(&self, task: &Task) -> bool {
        self.prepared.plan.points.get(task.point).is_some_and(|point| point.key == task.key)
    }

    /// Measures a point in this process. Another process may have made the task.
    ///
    /// # Errors
    /// Why there is no result; also when the task was made by another build, or from other files.
    pub fn measure(&self, task: &Task) -> Result<String, Problem> {
        let plan: &Plan = &self.prepared.plan;
        let failed = |text: String| Problem { kind: ProblemKind::Failed, text, partial: None };
        let point = plan.points.get(task.point).filter(|point| point.key == task.key).ok_or_else(|| {
            let problem =
                "this is another build of seekless, or the experiment's files differ from those where it was planned";
            failed(format!(
                "{}: {problem}\ninstall the same wheel everywhere, and give all workers the same folder",
                task.name
            ))
        })?;
        let measures = sweep::measure(&self.prepared.experiment, point, self.stop.clone());
        measures.map(|measures| json!(measures).to_string()).map_err(|text| failed(format!("{}: {text}", task.name)))
    }

    /// Ends the points that are being measured in this process. None begins any more.
    pub fn stop(&self) {
        self.stop.set();
    }

    /// Opens the folder of results. Other runs may write to it, too.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn open(self, caller: &dyn Caller) -> Result<OpenStudy, Problem> {
        let results = self.prepared.open(caller)?;
        Ok(OpenStudy { study: self, results, added: 0, failed: Vec::new() })
    }
}

/// A study whose results are being collected.
pub struct OpenStudy {
    study: Study,
    results: Results,
    /// Points that others have measured.
    added: usize,
    failed: Vec<(String, String)>,
}

impl OpenStudy {
    /// The simulated points that are not measured yet, and that no other run is measuring. What takes real time is left to
    /// [`OpenStudy::finish`], because times of different machines cannot be compared. No other run measures these points until
    /// they are added, or this is dropped.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn tasks(&mut self) -> Result<Vec<Task>, Problem> {
        let OpenStudy { study: Study { prepared, .. }, results, .. } = self;
        let mut tasks = Vec::new();
        let candidates: Vec<usize> = prepared.wanted(results).simulated().collect();
        let mut claimed = Vec::new();
        for point in candidates {
            if results.claim(&prepared.plan.points[point], PointClaim::Point).map_err(Failure::new)? {
                claimed.push(point);
            }
        }
        // Another run may have measured some before they were claimed here.
        results.refresh().map_err(Failure::new)?;
        for index in claimed {
            let point = &prepared.plan.points[index];
            match results.rounds(point) {
                0 => tasks.push(Task { point: index, key: point.key.clone(), name: prepared.plan.name_of(index) }),
                _ => results.release(point, PointClaim::Point).map_err(Failure::new)?,
            }
        }
        Ok(tasks)
    }

    /// Keeps what [`Study::measure`] has returned for a task, here or elsewhere, and how long it took.
    ///
    /// # Errors
    /// When it is not what that returns, or the folder cannot be written.
    pub fn add(&mut self, task: &Task, measures: &str, seconds: f64, caller: &dyn Caller) -> Result<(), Problem> {
        let failed = |text: String| Problem { kind: ProblemKind::Failed, text, partial: None };
        let measures: Vec<Measure> =
            serde_json::from_str(measures).map_err(|error| failed(format!("{}: {error}", task.name)))?;
        let point = self.study.prepared.plan.points.get(task.point).ok_or_else(other_command)?;
        self.results.add(point, measures, &waits(caller)).map_err(|error| failed(error.to_string()))?;
        self.results
            .add_seconds(task.name.clone(), seconds, &waits(caller))
            .map_err(|error| failed(error.to_string()))?;
        self.results.release(point, PointClaim::Point).map_err(|error| failed(error.to_string()))?;
        self.added += 1;
        Ok(())
    }

    /// Keeps that a task has no result. Another run may measure it then.
    ///
    /// # Errors
    /// When it is no task of this study, or the folder cannot be used.
    pub fn add_failure(&mut self, task: &Task, problem: String) -> Result<(), Problem> {
        self.failed.push((task.name.clone(), problem));
        let point = self.study.prepared.plan.points.get(task.point).ok_or_else(other_command)?;
        self.results.release(point, PointClaim::Point).map_err(|error| Failure::new(error).into())
    }

    /// Measures what is left, unless something has failed, and writes the rows. The answer is that of [`results`].
    ///
    /// # Errors
    /// The first point that failed; with the answer for the others.
    pub fn finish(mut self, caller: &dyn Caller) -> Result<Answer, Problem> {
        called(caller, |caller| {
            if !self.failed.is_empty() {
                self.write(caller)?;
                let prepared = &self.study.prepared;
                return answered(results(&prepared.folder)?, prepared.failure(&self.failed));
            }
            let OpenStudy { study: Study { prepared, .. }, mut results, added, .. } = self;
            let Finished { ended, .. } = prepared.measure(&mut results, added, caller)?;
            match ended.interrupted {
                true => Err(Failure::new("it was interrupted").into()),
                false => answered(self::results(&prepared.folder)?, prepared.failure(&ended.failed)),
            }
        })
    }

    /// Writes the rows that there are, and measures nothing.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write(&mut self, caller: &dyn Caller) -> Result<(), Problem> {
        let prepared = &self.study.prepared;
        let origin: Origin = prepared.origin();
        let provenance = origin.provenance(self.added, &self.results, &prepared.plan);
        let written = self.results.finish(&prepared.experiment, &prepared.plan, &provenance, &waits(caller));
        written.map(drop).map_err(|error| Failure::new(error).into())
    }
}

/// What is in a folder of results: rows, claims with their verdicts, published figures, and drawings with their pictures.
///
/// # Errors
/// When it is not a folder of results.
pub fn results(folder: &Path) -> Result<Answer, Problem> {
    let stored = Stored::read(folder).map_err(Failure::new)?;
    let Stored { name, description, published, rows, provenance, .. } = &stored;
    let claims: Vec<Checked> = description.claims.iter().map(|claim| claim.verify(rows, published)).collect();
    let mut figures = Vec::new();
    for figure in &description.figures {
        let drawing = draw(figure, description, rows, published);
        let svg = to_svg(&drawing).map_err(Failure::new)?;
        figures.push(json!({ "drawing": drawing, "svg": svg }));
    }
    let published: Vec<Value> = deviations(published, rows)
        .iter()
        .map(|it| json!({ "published": it.published, "measured": it.measured, "deviation": it.relative() }))
        .collect();
    let held = claims.iter().filter(|checked| checked.verdict == Verdict::Holds).count();
    let text = format!(
        "{} {}\n{} rows in {}; {held} of {} claims hold\n",
        description.title,
        description.paper,
        rows.len(),
        folder.display(),
        claims.len()
    );
    let value = json!({
        "name": name,
        "title": description.title,
        "paper": description.paper,
        "about": description.about.trim(),
        "folder": folder,
        "rows": rows,
        "claims": claims,
        "published": published,
        "figures": figures,
        "provenance": provenance,
    });
    Ok(Answer { value, text })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use seekless::units::Nanos;
    use seekless_lab::trace::{Op, Options, Request};

    use super::*;

    struct Silent;

    impl Caller for Silent {
        fn at(&self, _: Step<'_>) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }

        fn note(&self, _: &str) {}
    }

    /// A point that failed is left to other runs, even while its own has not finished.
    #[test]
    fn a_failed_point_is_not_kept_from_others() {
        let folder = tempfile::tempdir().unwrap();
        let text = "title = 't'\nworkload = { kind = 'attributes', files = 5 }\n\
                    contestant = [{ name = 'a', on = 'lfs / memory:8MiB' }, { name = 'b', on = 'wrap / memfs' }]\n";
        std::fs::write(folder.path().join("experiment.toml"), text).unwrap();
        let words: Vec<String> = ["run", &folder.path().display().to_string(), "--out"].map(str::to_owned).into();
        let words = [words, vec![folder.path().join("out").display().to_string()]].concat();
        let installation = Installation { library: std::env::current_exe().unwrap(), share: None };
        let open = || Study::read(&words, &installation).unwrap().open(&Silent).unwrap();
        let (mut one, mut other) = (open(), open());
        let tasks = one.tasks().unwrap();
        assert_eq!((tasks.len(), other.tasks().unwrap().len()), (2, 0));
        one.add_failure(&tasks[1], "no memory".to_owned()).unwrap();
        assert_eq!(other.tasks().unwrap(), [tasks[1].clone()]);
    }

    /// What a simulation did not use of its trace is reported, once for all policies, also for a policy of the caller.
    #[test]
    fn rejected_lines_of_a_trace_are_noted() {
        #[derive(Default)]
        struct Noting(RefCell<Vec<String>>);
        impl Caller for Noting {
            fn at(&self, _: Step<'_>) -> ControlFlow<()> {
                ControlFlow::Continue(())
            }

            fn note(&self, text: &str) {
                self.0.borrow_mut().push(text.to_owned());
            }
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.csv");
        let good: String = (0..400).map(|n| format!("{n},w,{},4096\n", n * 37 % 64 * 4096)).collect();
        std::fs::write(&file, good + "401,w,here,4096\n").unwrap();
        let pattern = format!("trace:file={}", file.display());
        let words = |policies: &[&str]| -> Vec<String> {
            let options = ["--segment-blocks", "4", "--format", "csv:time=1:us,op=2,offset=3:B,length=4:B"];
            let words = [&["clean"], policies, &options, &["--pattern", &pattern]].concat();
            words.into_iter().map(str::to_owned).collect()
        };
        let rejected = |caller: Noting| {
            caller.0.into_inner().iter().filter(|note| note.contains("rejected: 1 x the offset")).count()
        };
        let caller = Noting::default();
        clean(&words(&["greedy", "cost-benefit"]), &caller).unwrap();
        assert_eq!(rejected(caller), 1);
        let caller = Noting::default();
        let none: MakePolicy<'_> = &|_| Err("there is no policy".to_owned());
        let problem = clean_with(&words(&["greedy"]), "own", none, &caller).unwrap_err();
        assert!(problem.text.contains("there is no policy"), "{}", problem.text);
        assert_eq!(rejected(caller), 1);
    }

    /// Requests of the caller are the trace of each command that reads one, whatever the words call it.
    #[test]
    fn requests_take_the_place_of_a_file() {
        let open = || {
            let reads = (0..20).map(|n| Ok(Request::new(Nanos(n * 10_000_000), Op::Read, n * 4096, 4096)));
            Trace::of_requests("the table", reads, &[], &Options::default()).map_err(|error| error.to_string())
        };
        let words = |command: &str| [command, "the table", "--on", "disk:cheetah9lp"].map(str::to_owned);
        let replayed = replay(&words("replay"), Some(&open), Vec::new(), &Silent).unwrap();
        assert!(replayed.text.starts_with("20 requests of the table"), "{}", replayed.text);
        let (advised, page) = advise(&words("advise"), Some(&open), &Silent).unwrap();
        assert!(advised.text.contains("disk:cheetah9lp") && page.contains("</html>"), "{}", advised.text);
    }
}
