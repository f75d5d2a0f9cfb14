//! Experiments from their folder to their verdicts, and all their possible errors.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use seekless::rt::HostProfile;

use super::*;
use crate::LabError;
use crate::run::Run;
use crate::workload::Program;

/// Nothing here runs in real time.
struct NoOutside;

impl Outside for NoOutside {
    fn files(&self, _: &RunTarget, _: &dyn Program) -> Result<Run, LabError> {
        Err(LabError::Spec("there is no real time in this test".into()))
    }

    fn mounts(&self, job: &MountJob) -> Result<Vec<Measure>, String> {
        Err(format!("there is no {} in this test", job.mount))
    }
}

const EXPERIMENT: &str = r#"
title = "Random reads on arrays"
paper = "[st05 Figure 3]"

[workload]
kind = "requests"
pattern = "random"
operation = "read"
bytes = "4KiB"
span = "64MiB"
requests = "{count}"
timing = "window:8"

[variables.count]
values = [50]

[variables.disks]
label = "disks"
values = [1, 2, 4]
quick = [1]

[variables.stripe]
label = "stripe unit"
unit = "sectors"
values = [16, 128]

[[contestant]]
name = "random"
on = "raid0:n={disks},stripe={stripe} / disk:cheetah9lp,scheduler=fcfs"

[[contestant]]
name = "sequential"
on = "raid0:n={disks},stripe={stripe} / disk:cheetah9lp,scheduler=fcfs"
workload = { pattern = "sequential", span = "32MiB" }
quick = { span = "16MiB" }

[[figure]]
id = "rates"
title = "Rates"
x = "disks"
y = "requests_per_s"
dash = "stripe"

[[figure]]
id = "relative"
title = "Beside one disk"
x = "stripe"
y = "requests_per_s"
panels = "disks"
where = { contestant = "random" }
relative_to = { disks = 1 }

[[claim]]
text = "more disks serve more"
source = "[st05 §4]"
metric = "requests_per_s"
test = "compare"
where = { contestant = "random", disks = ">1" }
to = { disks = 1 }
above = 1.2

[[claim]]
text = "more disks are not measured"
source = "[st05 §4]"
metric = "requests_per_s"
test = "value"
where = { disks = ">4" }
above = 0.0

[quick]
requests = 20
"#;

fn folder(experiment: &str, published: Option<&str>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("experiment.toml"), experiment).unwrap();
    if let Some(published) = published {
        std::fs::write(folder.path().join("published.csv"), published).unwrap();
    }
    folder
}

/// Runs every unfinished point, at most `some` of them.
fn run(experiment: &Experiment, out: &Path, some: usize) -> (usize, Vec<Row>) {
    let plan = Plan::new(experiment, "test").unwrap();
    let mut results = Results::open(out, &plan, &patiently).unwrap();
    let mut measured = 0;
    for point in &plan.points {
        if measured < some && results.rounds(point) == 0 {
            results.add(point, point.measure(experiment, &NoOutside).unwrap(), &patiently).unwrap();
            measured += 1;
        }
    }
    let rows = results.finish(experiment, &plan, &serde_json::json!({ "date": "never" }), &patiently).unwrap();
    (measured, rows)
}

/// An experiment is read, swept, checked and stored, and stored results are read back unchanged. Method: a small one
/// that uses every part of a description.
#[test]
fn an_experiment_runs() {
    let published = "contestant,disks,stripe,metric,value,source,note\nrandom,4,16,requests_per_s,500,[x],\"a, b\"\n";
    let folder = folder(EXPERIMENT, Some(published));
    let experiment = Experiment::read(folder.path()).unwrap();
    assert_eq!(experiment.description.dims().unwrap(), ["contestant", "count", "disks", "stripe"]);
    let out = folder.path().join("out");
    let (measured, rows) = run(&experiment, &out, usize::MAX);
    // A single disk is the same for every stripe unit, but its line is not.
    assert_eq!((measured, rows.len()), (12, 12));
    assert!(rows.iter().all(|row| row.metrics["requests"] == 50.0));
    let stored = Stored::read(&out).unwrap();
    assert!(stored.rows == rows, "numbers are read as they were written");
    assert_eq!(stored.description, experiment.description);
    assert_eq!((&stored.published, &stored.name), (&experiment.published, &experiment.name));
    let verdicts: Vec<Verdict> =
        stored.description.claims.iter().map(|claim| claim.verify(&rows, &stored.published).verdict).collect();
    assert_eq!(verdicts, [Verdict::Holds, Verdict::Open]);
    let beside = deviations(&stored.published, &rows);
    assert!(beside[0].relative().is_some_and(|relative| relative.abs() < 0.5), "{beside:?}");
    let figure = |index: usize| draw(&stored.description.figures[index], &stored.description, &rows, &stored.published);
    let drawing = figure(0);
    assert_eq!((drawing.panels.len(), drawing.panels[0].curves.len()), (1, 5), "{drawing:?}");
    assert_eq!((drawing.x_label.as_str(), drawing.dash_label.as_str()), ("disks", "stripe unit (sectors)"));
    // A dimension that the figure does not name has dashes, too: no two curves look the same.
    let unnamed = Figure { dash: String::new(), ..stored.description.figures[0].clone() };
    let drawing = draw(&unnamed, &stored.description, &rows, &[]);
    let looks: std::collections::BTreeSet<(&str, &str)> =
        drawing.panels[0].curves.iter().map(|curve| (curve.colour.as_str(), curve.dash.as_str())).collect();
    assert_eq!((drawing.panels[0].curves.len(), looks.len()), (4, 4), "{drawing:?}");
    // What says the same as x makes no curves of its own.
    let twice: Vec<Row> = rows
        .iter()
        .cloned()
        .map(|mut row| {
            let disks = row.dims["disks"].clone();
            row.dims.insert("members".to_owned(), disks);
            row
        })
        .collect();
    let drawing = draw(&stored.description.figures[0], &stored.description, &twice, &stored.published);
    assert_eq!(drawing.panels[0].curves.len(), 5, "{drawing:?}");
    let relative = figure(1);
    assert_eq!(relative.panels.len(), 3);
    assert!(relative.panels[0].curves[0].marks.iter().all(|mark| mark.y == 1.0), "{relative:?}");
    assert!(relative.absent.is_empty());
    // A figure that shows nothing says why.
    let is_random = |row: &&Row| row.dims["contestant"].to_string() == "random";
    let others: Vec<Row> = rows.iter().filter(|row| !is_random(row)).cloned().collect();
    let empty = draw(&stored.description.figures[1], &stored.description, &others, &stored.published);
    assert_eq!((empty.panels.len(), empty.absent.len()), (0, 2));
    assert!(empty.absent[1].starts_with("It shows contestant random; this run has "), "{empty:?}");
    assert_eq!(empty.y_label, "requests_per_s, times that of disks 1");
    let quick = experiment.quick();
    let titles = [&quick.description.title, &quick.description.figures[1].title];
    assert!(titles.iter().all(|title| title.ends_with(" (quick)")), "{titles:?}");
    let quick = Plan::new(&quick, "test").unwrap();
    assert_eq!(quick.points.len(), 4);
    assert_eq!(quick.points[0].workload["requests"], toml::Value::Integer(20));
    // What a contestant has of its own, it makes smaller itself.
    let spans = [0, 1].map(|point| quick.points[point].workload["span"].as_str().unwrap_or_default());
    assert_eq!(spans, ["64MiB", "16MiB"]);
}

/// Aim: a result depends on what the experiment's drive files say, and not on where they are. Method: one beside the experiment, named by a
/// contestant and by the stack of a log; changed, and taken away.
#[test]
fn results_depend_on_drive_files() {
    let text = EXPERIMENT.replace("disk:cheetah9lp,", "disk:file=drives/a.toml,");
    let folder = folder(&text, None);
    let file = folder.path().join("drives/a.toml");
    std::fs::create_dir(folder.path().join("drives")).unwrap();
    let drive = seekless::disk::Drive::file_text("cheetah9lp").unwrap();
    std::fs::write(&file, drive).unwrap();
    let experiment = Experiment::read(folder.path()).unwrap();
    let keys =
        || Plan::new(&experiment, "test").unwrap().points.iter().map(|point| point.key.clone()).collect::<Vec<_>>();
    let before = keys();
    let (measured, rows) = run(&experiment, &folder.path().join("out"), usize::MAX);
    assert_eq!(measured, 12);
    assert_eq!(keys(), before);
    // The same drive by its name gives the same numbers.
    let named = self::folder(EXPERIMENT, None);
    let (_, of_catalogue) = run(&Experiment::read(named.path()).unwrap(), &named.path().join("out"), usize::MAX);
    assert!(rows == of_catalogue);
    // What was planned with one file is not measured with another.
    let plan = Plan::new(&experiment, "test").unwrap();
    plan.points[0].measure(&experiment, &NoOutside).unwrap();
    std::fs::write(&file, format!("{drive}# another file that says the same\n")).unwrap();
    let error = plan.points[0].measure(&experiment, &NoOutside).unwrap_err();
    assert!(error.contains("drives/a.toml was written to"), "{error}");
    std::fs::write(&file, drive.replace("rpm = 10045", "rpm = 5400")).unwrap();
    assert!(keys().iter().all(|key| !before.contains(key)));
    let (measured, slower) = run(&experiment, &folder.path().join("out"), usize::MAX);
    assert_eq!(measured, 12);
    assert!(slower[0].metrics["requests_per_s"] < 0.9 * rows[0].metrics["requests_per_s"]);
    std::fs::write(&file, "rpm = 0").unwrap();
    let error = Plan::new(&experiment, "test").unwrap_err().to_string();
    assert!(error.contains("drives/a.toml: line 1: `cylinders`: this key is missing"), "{error}");
    std::fs::remove_file(&file).unwrap();
    let error = Plan::new(&experiment, "test").unwrap_err().to_string();
    assert!(error.contains("there is no file"), "{error}");

    let log = "title = \"Log\"\n[workload]\nkind = \"tpcb\"\nlog = \"ffs / disk:file=log.toml\"\n\
               [[contestant]]\nname = \"a\"\non = \"ffs / disk:cheetah9lp\"\n\
               [[figure]]\nid = \"a\"\ntitle = \"a\"\nx = \"contestant\"\ny = \"per_s\"\n";
    let folder = self::folder(log, None);
    std::fs::write(folder.path().join("log.toml"), drive).unwrap();
    let experiment = Experiment::read(folder.path()).unwrap();
    let key = || Plan::new(&experiment, "test").unwrap().points[0].key.clone();
    let before = key();
    std::fs::write(folder.path().join("log.toml"), drive.replace("rpm = 10045", "rpm = 5400")).unwrap();
    assert_ne!(key(), before);
}

/// E3: a sweep that is killed at any moment continues from there, and ends with the same files. Method: some points,
/// then a torn line as a kill leaves it, then the others; beside an uninterrupted run.
#[test]
fn a_killed_sweep_goes_on() {
    let folder = folder(EXPERIMENT, None);
    let experiment = Experiment::read(folder.path()).unwrap();
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    assert_eq!(run(&experiment, &whole, usize::MAX).0, 12);
    assert_eq!(run(&experiment, &parts, 5).0, 5);
    let journal = parts.join("points.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    for torn in [1, 30, text.lines().last().unwrap().len()] {
        std::fs::write(&journal, &text[..text.len() - torn]).unwrap();
        let plan = Plan::new(&experiment, "test").unwrap();
        let results = Results::open(&parts, &plan, &patiently).unwrap();
        assert_eq!(plan.points.iter().filter(|point| results.rounds(point) == 1).count(), 4, "{torn} bytes torn off");
    }
    assert_eq!(run(&experiment, &parts, usize::MAX).0, 8);
    assert_eq!(run(&experiment, &parts, usize::MAX).0, 0);
    for name in ["rows.jsonl", "rows.csv", "resolved.toml"] {
        let read = |folder: &PathBuf| std::fs::read(folder.join(name)).unwrap();
        // E3, to the last digit.
        assert!(read(&whole) == read(&parts), "{name} differs");
    }
}

/// E2: another program, another seed or other content of a trace is another point; and points outside the plan do not
/// count.
#[test]
fn keys_cover_what_a_result_hangs_on() {
    let text = r#"
        title = "t"
        workload = { kind = "count", trace = "a.csv" }
        contestant = [{ name = "whole" }]
    "#;
    let folder = folder(text, None);
    let trace = folder.path().join("a.csv");
    let lines = |count: u64| -> String { (0..count).map(|n| format!("0,R,{n},4096,{n}000\n")).collect() };
    std::fs::write(&trace, lines(20)).unwrap();
    let experiment = Experiment::read(folder.path()).unwrap();
    let key = |experiment: &Experiment, program: &str| Plan::new(experiment, program).unwrap().points[0].key.clone();
    let first = key(&experiment, "one");
    assert_eq!(first, key(&experiment, "one"));
    assert_ne!(first, key(&experiment, "two"));
    let mut seeded = experiment.clone();
    seeded.description.seed = 2;
    assert_ne!(first, key(&seeded, "one"));
    let out = folder.path().join("out");
    let (_, rows) = run(&experiment, &out, 9);
    assert_eq!(rows.iter().map(|row| row.metrics["requests"]).collect::<Vec<_>>(), [20.0, 0.0, 20.0]);
    std::fs::write(&trace, lines(21)).unwrap();
    assert_ne!(first, key(&experiment, "one"));
    let plan = Plan::new(&experiment, "test").unwrap();
    let results = Results::open(&out, &plan, &patiently).unwrap();
    assert_eq!((results.rounds(&plan.points[0]), results.foreign(&plan).count()), (0, 1));
    let _ = std::fs::remove_file(&trace);
    let error = Plan::new(&experiment, "one").unwrap_err().to_string();
    assert!(error.contains("there is no file") && error.contains("a.csv"), "{error}");
}

/// Layers can be put on other storage than the experiment says, and repeated measurements count by their median.
/// Method: a sweep over a memory file system; invented rows.
#[test]
fn other_storage_and_several_rounds() {
    let text = r#"
        title = "t"
        workload = { kind = "attributes", files = 5 }
        variables.codec.values = ["copy", "gzip:level=9"]
        contestant = [
            { name = "plain", on = "lfs / memory:8MiB" },
            { name = "layer", on = "wrap / {codec}  /  lfs / memory:8MiB" },
            { name = "directory", on = "./here" },
        ]
    "#;
    let folder = folder(text, None);
    let experiment = Experiment::read(folder.path()).unwrap().over("wrap / memfs");
    let plan = Plan::new(&experiment, "test").unwrap();
    let lines: Vec<&str> = plan.points.iter().map(|point| point.on.as_str()).collect();
    assert_eq!(
        lines,
        ["wrap / memfs", "wrap / copy  /  wrap / memfs", "./here", "wrap / gzip:level=9  /  wrap / memfs",]
    );
    let wrong = Plan::new(&experiment.clone().over("disk:no-such"), "test").unwrap_err().to_string();
    assert!(wrong.contains("no-such"), "{wrong}");
    let out = folder.path().join("out");
    let mut results = Results::open(&out, &plan, &patiently).unwrap();
    for seconds in [3.0, 1.0, 2.0] {
        let metrics = [("elapsed_s".to_owned(), seconds)].into();
        results.add(&plan.points[0], vec![Measure { dims: [].into(), metrics }], &patiently).unwrap();
    }
    drop(results);
    let mut results = Results::open(&out, &plan, &patiently).unwrap();
    assert_eq!((results.foreign(&plan).count(), results.rounds(&plan.points[0])), (0, 3));
    let rows = results.finish(&experiment, &plan, &serde_json::json!({}), &patiently).unwrap();
    assert_eq!(rows.iter().map(|row| row.metrics["elapsed_s"]).collect::<Vec<_>>(), [2.0, 2.0]);
    assert_eq!(Stored::read(&out).unwrap().description.over, "wrap / memfs");
}

/// Aim: with several seeds a place is measured with each, its medians count, and a figure shows quartiles; a place counts once all of its seeds
/// are there. Method: a random workload with three seeds, interrupted and whole; the same with one.
#[test]
fn several_seeds_show_their_spread() {
    let seeds = |count: u32| {
        let folder = folder(&EXPERIMENT.replacen("[workload]", &format!("seeds = {count}\n[workload]"), 1), None);
        let experiment = Experiment::read(folder.path()).unwrap();
        (folder, experiment)
    };
    let (folder, experiment) = seeds(3);
    let out = folder.path().join("out");
    let plan = Plan::new(&experiment, "test").unwrap();
    assert_eq!((plan.points.len(), plan.places.len()), (36, 12));
    assert!(plan.points[..3].iter().map(|point| point.seed).eq(1..=3));
    assert_eq!(run(&experiment, &out, 5).1.len(), 1, "of the second place two seeds are there");
    let (measured, rows) = run(&experiment, &out, usize::MAX);
    assert_eq!((measured, rows.len()), (31, 12));
    let metric = |row: &Row, name: &str| row.metrics[name];
    for row in &rows {
        let [low, middle, high] =
            ["requests_per_s_low", "requests_per_s", "requests_per_s_high"].map(|name| metric(row, name));
        assert!(low <= middle && middle <= high, "{row:?}");
    }
    let random = |row: &&Row| row.dims["contestant"].to_string() == "random";
    let mut spreads = rows.iter().filter(random);
    assert!(spreads.all(|row| metric(row, "requests_per_s_low") < metric(row, "requests_per_s_high")));
    let drawing = draw(&experiment.description.figures[0], &experiment.description, &rows, &[]);
    assert!(drawing.panels[0].curves.iter().flat_map(|curve| &curve.marks).all(|mark| mark.spread.is_some()));
    let (_one, single) = seeds(1);
    assert_eq!(Plan::new(&single, "test").unwrap().points[0].key, plan.points[0].key, "the first seed is the only one");
    let quick = experiment.quick().description;
    assert_eq!((quick.seeds, quick.is_quick), (1, true));
}

/// An error in a description is reported with its place. Method: one mistake after another.
#[test]
fn wrong_descriptions_are_explained() {
    for (from, to, said) in [
        ("title = \"Random reads on arrays\"", "", "missing field `title`"),
        ("[[figure]]", "[[figuer]]", "unknown field `figuer`"),
        ("kind = \"requests\"", "kind = \"reqests\"", "there is no workload `reqests`; there are: replay, requests"),
        ("pattern = \"random\"", "patern = \"random\"", "unknown field `patern`"),
        ("unit = \"sectors\"", "unit = \"furlongs\"", "unknown variant `furlongs`"),
        ("values = [16, 128]", "values = [16, \"many\"]", "`many` is not a number, and has a unit"),
        ("values = [16, 128]", "values = []", "at least one value"),
        ("[workload]", "seeds = 0\n[workload]", "seeds: from 1 to 100, not 0"),
        ("[variables.stripe]", "[variables.requests_per_s]", "this name is taken by a metric"),
        ("quick = [1]", "quick = [3]", "3 is among the quick values only"),
        ("span = \"64MiB\"", "span = 64", "invalid type: integer `64`, expected a string"),
        (
            "[variables.count]",
            "[variables.count]\nunit = \"%\"",
            "leave out `unit = \"%\"` of [variables.count], and name it in its label",
        ),
        ("span = \"64MiB\"", "span = \"64 parsecs\"", "there is no unit `parsecs`"),
        ("timing = \"window:8\"", "timing = \"window\"", "a window needs its size"),
        ("timing = \"window:8\"", "timing = \"open\"", "requests without times"),
        ("n={disks}", "n={dsks}", "there is no variable `dsks`; there are: count, disks, stripe"),
        ("n={disks}", "n={disks", "a brace without its partner"),
        ("raid0:n", "radi0:n", "radi0"),
        ("name = \"sequential\"", "name = \"random\"", "two contestants are called `random`"),
        ("x = \"disks\"", "x = \"discs\"", "figure `rates`: there is no dimension `discs`"),
        ("y = \"requests_per_s\"", "y = \"speed\"", "there is no metric `speed`"),
        ("disks = \">1\"", "disks = \">one\"", "is no comparison of disks with a number"),
        ("disks = \">4\"", "disks = 64", "disks is never `64`; there are: 1, 2, 4"),
        ("values = [16, 128]", "values = [16, 16]", "`16` occurs twice"),
        ("above = 1.2", "", "this test needs `above` or `below`"),
        ("above = 1.2", "above = nan", "NaN is not a bound"),
        ("above = 1.2", "above = 0.95\nbelow = 0.4", "nothing is `above` 0.95 and `below` 0.4"),
        ("requests = \"{count}\"", "requests = 50", "[variables.count]: no contestant uses it"),
        ("requests = \"{count}\"", "requests = \"{{count}}\"", "[variables.count]: no contestant uses it"),
        ("paper =", "profile = \"cray\"\npaper =", "there is no processor profile `cray`"),
    ] {
        let text = EXPERIMENT.replacen(from, to, 1);
        assert_ne!(text, EXPERIMENT, "{from} is in the description");
        let folder = folder(&text, None);
        let error = match Experiment::read(folder.path()) {
            Ok(experiment) => Plan::new(&experiment, "test").map(|_| ()).unwrap_err(),
            Err(error) => error,
        };
        assert!(error.to_string().contains(said), "{to}: {error}");
    }
    // An update has its number in its first eight bytes.
    for (unit, said) in [("4B", "a unit of updates has at least 8 bytes"), ("8B", ""), ("4B\"\nzeroes = true #", "")] {
        let text = format!(
            "title = 't'\ncontestant = [{{ name = 'a', on = 'lfs / disk:cheetah9lp' }}]\n\
             [workload]\nkind = 'updates'\nfile = '1MiB'\nupdates = 1\nunit = \"{unit}\"\n"
        );
        let experiment = Experiment::read(folder(&text, None).path()).unwrap();
        let error = Plan::new(&experiment, "test").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(said) && error.is_empty() == said.is_empty(), "{unit}: {error}");
    }
    let nothing = tempfile::tempdir().unwrap();
    let error = Experiment::read(nothing.path()).unwrap_err().to_string();
    assert!(error.contains("this folder is no experiment"), "{error}");
    for (table, said) in [
        ("metric,value\n", "there is no column `source`"),
        ("metric,value,source,speed\n", "the column `speed` is no dimension"),
        ("metric,value,source\nrequests_per_s,many,[x]\n", "line 2: the value `many` is not a number"),
        ("metric,value,source\nspeed,1,[x]\n", "line 2: there is no metric `speed`"),
        ("metric,value,source\nrequests_per_s,1,\n", "line 2: there is no source"),
    ] {
        let folder = folder(EXPERIMENT, Some(table));
        let error = Experiment::read(folder.path()).unwrap_err().to_string();
        assert!(error.contains(said) && error.contains("published.csv"), "{error}");
    }
}

/// Each test of a claim distinguishes right from wrong. Method: invented rows, and claims that hold or do not.
#[test]
fn claims_are_checked() {
    let row = |who: &str, x: i64, y: f64| Row {
        dims: [("contestant".to_owned(), Value::Text(who.into())), ("x".to_owned(), Value::Integer(x))].into(),
        metrics: [("y".to_owned(), y)].into(),
    };
    let line = |who: &'static str, ys: [f64; 4]| ys.into_iter().enumerate().map(move |(x, y)| row(who, x as i64, y));
    let rows: Vec<Row> = line("flat", [10.0, 10.1, 9.9, 10.0]).chain(line("valley", [20.0, 8.0, 9.0, 15.0])).collect();
    for (claim, holds) in [
        ("test = 'spread', along = 'x', at_most = 0.021, where = { contestant = 'flat' }", true),
        ("test = 'spread', along = 'x', at_most = 0.019, where = { contestant = 'flat' }", false),
        ("test = 'compare', of = { contestant = 'valley' }, to = { contestant = 'flat' }, above = 1.0", false),
        (
            "test = 'compare', where = { x = ['0', 3] }, of = { contestant = 'valley' }, to = { contestant = 'flat' }, above = 1.4",
            true,
        ),
        ("test = 'compare', where = { contestant = 'valley', x = '>0' }, to = { x = 0 }, below = 0.76", true),
        ("test = 'shape', along = 'x', shape = 'valley', where = { contestant = 'valley' }", true),
        ("test = 'shape', along = 'x', shape = 'falls', where = { contestant = 'valley' }", false),
        ("test = 'shape', along = 'x', shape = 'falls', where = { contestant = 'valley', x = '<=1' }", true),
        ("test = 'shape', along = 'x', shape = 'falls', where = { contestant = 'valley', x = '<=0' }", false),
        ("test = 'shape', along = 'x', shape = 'rises', where = { contestant = 'valley', x = '>=1' }", true),
        ("test = 'value', where = { contestant = 'flat', x = 1 }, expect = 10.0, tolerance = 0.02", true),
        ("test = 'value', where = { contestant = 'flat', x = 1 }, expect = 10.0, tolerance = 0.005", false),
    ] {
        let text = format!("claim = {{ text = 't', source = 's', metric = 'y', {claim} }}");
        let table: toml::Table = toml::from_str(&text).unwrap();
        let claim: Claim = table["claim"].clone().try_into().unwrap();
        let checked = claim.verify(&rows, &[]);
        assert_eq!(checked.verdict == Verdict::Holds, holds, "{text}: {checked:?}");
        // A list of statements judges by the range and the bounds alone.
        let (low, high) = claim.bounds();
        let is_within = |(least, most)| low.is_none_or(|low| least >= low) && high.is_none_or(|high| most <= high);
        let within = checked.range.is_some_and(is_within);
        assert_eq!(within, holds, "{text}: {checked:?}");
    }
}

/// Values keep their type and get their unit, and braces can be written.
#[test]
fn texts_are_filled() {
    use super::value::{Values, fill, fill_all, uses};
    let values: Values = [
        ("n".to_owned(), (Value::Integer(4), Unit::None)),
        ("s".to_owned(), (Value::Integer(16), Unit::Sectors)),
        ("k".to_owned(), (Value::Integer(64), Unit::KiB)),
    ]
    .into();
    assert_eq!(
        fill("raid0:n={n},stripe={s} / a-{{}}.img {k}", &values).unwrap(),
        "raid0:n=4,stripe=8192B / a-{}.img 64KiB"
    );
    let filled = fill_all(&toml::Value::String("{n}".into()), &values).unwrap();
    assert_eq!(filled, toml::Value::Integer(4));
    let filled = fill_all(&toml::Value::String("{n}{{".into()), &values).unwrap();
    assert_eq!(filled, toml::Value::String("4{".into()));
    for (text, used) in [("a {n}", true), ("{k} {{n}}", false), ("{{ {n}", true), ("} {n}", false), ("{k{n}", false)] {
        assert_eq!(uses(&toml::Value::String(text.into()), "n"), used, "{text}");
    }
    assert!(fill("{n", &values).is_err() && fill("n}", &values).is_err() && fill("{m}", &values).is_err());
}

/// Measures one point of a kind.
fn measured(workload: &str, on: &str) -> Result<BTreeMap<String, f64>, String> {
    let table: toml::Table = workload.parse().expect("TOML");
    let kind = kinds().find(|kind| Some(kind.name) == table["kind"].as_str()).expect("a kind");
    let (workload, on) = (kind.read(&table)?, RunTarget::read(on)?);
    workload.check(&on)?;
    let (folder, profile, clock) = (Path::new("."), HostProfile::NONE, Clock::Virtual);
    let context = Context { folder, seed: 1, profile, clock, outside: &NoOutside };
    let rows = workload.run(&on, &context)?;
    Ok(rows.into_iter().next().expect("a row").metrics)
}

/// A request waits as long for the first sector on one of several disks as on a single one. Method: the same random reads on both.
#[test]
fn rotation_is_that_of_a_request() {
    let rotation = |on: &str| {
        let table: toml::Table = "kind = 'largefile'\nbytes = '8MiB'\nunit = '8KiB'".parse().expect("TOML");
        let kind = kinds().find(|kind| kind.name == "largefile").expect("a kind");
        let (workload, on) = (kind.read(&table).expect("largefile"), RunTarget::read(on).expect(on));
        let (folder, profile, clock) = (Path::new("."), HostProfile::NONE, Clock::Virtual);
        let context = Context { folder, seed: 1, profile, clock, outside: &NoOutside };
        let rows = workload.run(&on, &context).expect("measured");
        let random = Value::Text("random read".into());
        rows.iter().find(|row| row.dims.get("phase") == Some(&random)).expect("the phase").metrics["rotation_ms"]
    };
    let (one, four) = (rotation("ffs / disk:hp97560"), rotation("ffs / raid0:n=4 / disk:hp97560"));
    assert!((0.7..1.4).contains(&(four / one)), "{one} ms on one disk, {four} ms on four");
}

/// An array of flash drives moves as much as one of them, beside the closed form. Method: random overwrites of one, and four times as many
/// of four.
#[test]
fn flash_of_an_array_costs_what_one_does() {
    let over = |span: u64, requests: u64, array: &str| {
        let text = format!(
            "kind = 'requests'\npattern = 'random'\noperation = 'write'\nbytes = '4KiB'\nspan = '{span}MiB'\n\
             requests = {requests}\ntiming = 'closed'"
        );
        let on = format!("{array}ssd:nvme-a,size=64MiB,channels=2,dies=16,fill=random");
        measured(&text, &on).unwrap_or_else(|why| panic!("{on}: {why}"))["flash_over_closed_form"]
    };
    let (one, four) = (over(64, 20_000, ""), over(256, 80_000, "raid0:n=4 / "));
    assert!((0.9..1.1).contains(&(four / one)), "{one} on one drive, {four} on four");
}

/// Ends every point before it begins.
struct Stopped;

impl Outside for Stopped {
    fn files(&self, on: &RunTarget, program: &dyn Program) -> Result<Run, LabError> {
        NoOutside.files(on, program)
    }

    fn mounts(&self, job: &MountJob) -> Result<Vec<Measure>, String> {
        NoOutside.mounts(job)
    }

    fn stop(&self) -> Stop {
        let stop = Stop::default();
        stop.set();
        stop
    }
}

/// A simulated point can be ended. Method: kinds that may take long, as sizes that would take hours, of which each returns at once.
#[test]
fn points_can_be_ended() {
    for (workload, on) in [
        ("kind = 'smallfile'\nfiles = 1000000", "lfs / disk:hp97560"),
        (
            "kind = 'requests'\npattern = 'random'\noperation = 'read'\nbytes = '4KiB'\nspan = '64MiB'\nrequests = 1000000000\ntiming = 'closed'",
            "disk:hp97560",
        ),
        ("kind = 'clean'\nwrites = 10000\nblocks = 100000", ""),
        ("kind = 'updates'\nfile = '64MiB'\nupdates = 100000000", "ffs / disk:cheetah9lp"),
    ] {
        let table: toml::Table = workload.parse().expect("TOML");
        let kind = kinds().find(|kind| Some(kind.name) == table["kind"].as_str()).expect("a kind");
        let (read, on) = (kind.read(&table).expect(workload), RunTarget::read(on).expect(on));
        let (folder, profile, clock) = (Path::new("."), HostProfile::NONE, Clock::Virtual);
        let context = Context { folder, seed: 1, profile, clock, outside: &Stopped };
        let ended = read.run(&on, &context).expect_err(workload);
        assert!(["interrupted", "stopped", "not read to its end"].iter().any(|word| ended.contains(word)), "{ended}");
    }
}

/// The wait for a free sector is about the same by calculation, by sampling, and on the modelled drive; invalid
/// parameters are refused.
#[test]
fn free_sectors_are_located() {
    for drive in ["hp97560-wa99", "st19101-wa99"] {
        let wait = |method: &str, where_: &str| {
            let text = format!("kind = 'locate'\ndrive = '{drive}'\nmethod = '{method}'\n{where_}\ndraws = 500");
            measured(&text, "").map(|metrics| metrics["locate_ms"])
        };
        let near = |one: f64, other: f64| (one / other - 1.0).abs() < 0.3;
        let (model, drawn) = (wait("cylinder", "free_percent = 20.0"), wait("draw", "free_percent = 20.0"));
        let (model, drawn) = (model.expect("calculated"), drawn.expect("drawn"));
        let disk = wait("disk", "free_percent = 20.0").expect("measured");
        assert!(near(drawn, model) && near(disk, model), "{drive}: {model} {drawn} {disk}");
        let (model, drawn) = (wait("track", "keep_percent = 25.0"), wait("draw", "keep_percent = 25.0"));
        let (model, drawn) = (model.expect("calculated"), drawn.expect("drawn"));
        let disk = wait("disk", "keep_percent = 25.0").expect("measured");
        assert!(near(drawn, model) && disk < 2.0 * drawn, "{drive}: {model} {drawn} {disk}");
        for (method, where_) in [("disk", ""), ("cylinder", "keep_percent = 1.0"), ("disk", "free_percent = 0.0")] {
            wait(method, where_).expect_err("this makes no sense");
        }
    }
}

/// A mounted log costs at least what its simulator says, and not several times as much; what cannot be overwritten is refused.
///
/// Aim: the bench of the cleaner measures the log that it says. Method: a small volume, three quarters full, greedy, so that
/// the log, its parts and the simulator's figure can be compared; and a run twice, which gives the same.
#[test]
fn overwrites_are_measured() {
    let text = "kind = 'overwrites'\npattern = 'uniform'\nlive_percent = 75\nwarm_up = 2.0\nwrites = 1.0\n\
                simulated = 'greedy'\nreserve_segments = 1\ntarget_segments = 1";
    let run = || measured(text, "lfs:cleaner=greedy / memory:24MiB").expect("measured");
    let metrics = run();
    let (all, over) = (metrics["write_amplification"], metrics["over_simulated"]);
    assert!((0.98..2.0).contains(&over), "{metrics:?}");
    let parts = 1.0 + metrics["metadata_share"] + metrics["moved_share"];
    // What is left are summaries and the ends of segments.
    assert!((1.0..1.15).contains(&(all / parts)), "{metrics:?}");
    assert!((0.75..0.78).contains(&metrics["live_share"]), "{metrics:?}");
    assert!((all - metrics["simulated_amplification"] * over).abs() < 1e-9, "{metrics:?}");
    assert_eq!(metrics, run());
    for (wrong, on) in [
        (text.replace("uniform", "files"), "lfs / memory:24MiB"),
        (text.replace("75", "100"), "lfs / memory:24MiB"),
        (text.replace("'greedy'", "'best'"), "lfs / memory:24MiB"),
        (text.to_owned(), "ffs / memory:24MiB"),
        (text.to_owned(), ""),
    ] {
        measured(&wrong, on).expect_err("this makes no sense");
    }
}

/// A synchronous update is faster on a virtual log than in place, its parts make up the whole, and a pause is not counted.
#[test]
fn updates_are_measured() {
    let text = "kind = 'updates'\nfile = '4MiB'\nwarmup = 50\nupdates = 100\n";
    let ffs = "ffs:block=4KiB,fragment=4KiB";
    let in_place = measured(text, &format!("{ffs} / disk:st19101-wa99")).expect("measured");
    let line = format!("{ffs} / vld:command=100us / disk:st19101-wa99,overhead=off");
    let eager = measured(text, &line).expect("measured");
    assert!(in_place["update_ms"] > 1.5 * eager["update_ms"], "{in_place:?} {eager:?}");
    for metrics in [&in_place, &eager] {
        let parts: f64 =
            ["overhead_ms", "locate_ms", "transfer_ms", "other_ms"].iter().map(|part| metrics[*part]).sum();
        assert!((parts - metrics["update_ms"]).abs() < 1e-6 && metrics["overhead_ms"] > 0.05, "{metrics:?}");
    }
    for between in ["fault", "concat:n=1"] {
        let passed = measured(text, &format!("{ffs} / {between} / disk:st19101-wa99")).expect("measured");
        assert_eq!(passed, in_place, "{between} passes requests on, and is no second drive");
    }
    let paused = measured(&format!("{text}burst = '32KiB'\npause_ms = 500"), &line).expect("measured");
    // Eight updates share a pause: it would be 62 ms for each. Work under way at its end may delay one of them.
    assert!(paused["update_ms"] < 20.0, "{paused:?}");
    measured("kind = 'updates'\nfile = '1KiB'\nupdates = 1", &line).expect_err("no unit fits");
}

/// A volume is usable again, closed or cut off, with all durable data; without a checkpoint to read, a file system's
/// mount time depends on the volume's content, and with a check on the volume's size.
#[test]
fn mounting_is_measured() {
    let disk = "disk:size=256MiB,rpm=10000,seek=8ms,rate=16MB";
    let mount = |fs: &str, files: u64, end: &str| {
        let text = format!("kind = 'mount'\nfiles = {files}\nsync_each = true\nafter = 20\nend = '{end}'");
        measured(&text, &format!("{fs} / {disk}")).unwrap_or_else(|why| panic!("{fs}, {files} files, {end}: {why}"))
    };
    for (fs, end) in [("lfs", "closed"), ("lfs", "cut"), ("vlfs", "closed"), ("vlfs", "cut"), ("ffs", "closed")] {
        let metrics = mount(fs, 200, end);
        assert!(metrics["requests"] > 0.0 && metrics["first_ms"] > 0.0, "{fs}, {end}: {metrics:?}");
        assert!((0.01..20.0).contains(&metrics["mount_s"]), "{fs}, {end}: {metrics:?}");
    }
    let (few, many) = (mount("vlfs", 200, "closed"), mount("vlfs", 2_000, "closed"));
    assert!(many["read_mib"] > 3.0 * few["read_mib"], "{few:?} {many:?}");
    let (closed, cut) = (mount("ffs", 200, "closed"), mount("ffs", 200, "cut"));
    assert!(cut["read_mib"] > 3.0 * closed["read_mib"], "{closed:?} {cut:?}");
    measured("kind = 'mount'\nfiles = 0\nend = 'cut'", &format!("lfs / {disk}")).expect_err("nothing to make");
    measured("kind = 'mount'\nfiles = 1\nend = 'cut'", "memfs").expect_err("nothing that could be mounted again");
}
