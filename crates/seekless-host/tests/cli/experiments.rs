//! Experiments and reports as a user sees them.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Scratch;

/// Twenty points, each of which takes a while.
const SWEEP: &str = r#"
title = "A sweep <of> \"points\""
workload = { kind = "requests", pattern = "random", operation = "read", bytes = "4KiB", span = "64MiB", requests = 4000, timing = "window:4" }
contestant = [{ name = "fcfs", on = "raid0:n={n} / disk:cheetah9lp,scheduler=fcfs" }, { name = "sptf", on = "raid0:n={n} / disk:cheetah9lp,scheduler=sptf" }]
quick = { requests = 100 }

[variables.n]
values = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
quick = [1, 2]

[[figure]]
id = "rate"
title = "Rate"
x = "n"
y = "requests_per_s"

[[claim]]
text = "looking ahead helps"
source = "[wo94]"
metric = "elapsed_s"
test = "compare"
where = { n = 1 }
of = { contestant = "sptf" }
to = { contestant = "fcfs" }
below = 1.0

[[claim]]
text = "the moon is made of cheese"
source = "none"
metric = "elapsed_s"
test = "value"
where = { n = 1 }
below = 0.0

[[claim]]
text = "ten disks are fast"
source = "none"
metric = "elapsed_s"
test = "value"
where = { n = 10 }
below = 1000.0
"#;

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.make_directory("sweep");
    scratch.write("sweep/experiment.toml", SWEEP);
    scratch.write("sweep/published.csv", "contestant,n,metric,value,source\nfcfs,10,requests_per_s,100,[x]\n");
    scratch
}

fn read(scratch: &Scratch, name: &str) -> String {
    std::fs::read_to_string(scratch.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// An experiment is run, its claims are checked, a second run measures nothing, and the report is self-contained.
#[test]
fn experiments_are_run_and_reported() {
    let scratch = scratch();
    let quick = ["run", "sweep", "--quick"];
    let ended = scratch.run(&quick);
    assert_eq!(ended.code, 0, "{}", ended.err);
    let held = "1 of 3 claims hold, 1 not measured: --quick omits their points.";
    assert!(ended.out.contains("looking ahead helps") && ended.out.contains(held), "{}", ended.out);
    assert!(!ended.out.contains("ten disks are fast") && !ended.out.contains("published"), "{}", ended.out);
    assert!(ended.out.contains("4 rows in results/sweep-quick"), "{}", ended.out);
    let rows = read(&scratch, "results/sweep-quick/rows.jsonl");
    let again = scratch.run(&[&quick[..], &["--json", "--check"]].concat());
    assert_eq!(again.code, 1, "a claim does not hold");
    assert!(again.err.contains("4 of 4 points are already measured"), "{}", again.err);
    let kinds: Vec<Value> = again.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()).collect();
    assert_eq!(kinds.iter().filter(|line| line["kind"] == "row").count(), 4);
    assert_eq!(kinds.iter().filter(|line| line["kind"] == "claim").count(), 3);
    assert_eq!(rows, read(&scratch, "results/sweep-quick/rows.jsonl"));
    let provenance: Value = serde_json::from_str(&read(&scratch, "results/sweep-quick/provenance.json")).unwrap();
    assert_eq!((&provenance["points_measured"], &provenance["seed"]), (&0.into(), &1.into()));
    // The resolved description is itself a valid experiment.
    assert!(read(&scratch, "results/sweep-quick/resolved.toml").contains("raid0:n=2 / disk:cheetah9lp,scheduler=sptf"));

    let made = scratch.good(&["report", "results/sweep-quick", "-o", "page.html", "--svg", "pictures"]);
    assert!(made.contains("page.html") && made.ends_with(", and 1 picture\n"), "{made}");
    let page = read(&scratch, "page.html");
    assert!(page.contains("default-src 'none'") && !page.contains("<of>"), "the title is text");
    for outside in ["src=\"", "@import", "href=\"http"] {
        assert!(!page.contains(outside), "the page asks for {outside}");
    }
    assert!(read(&scratch, "pictures/sweep-rate.svg").starts_with("<svg"));
}

/// Aim: `--check` succeeds only where claims were checked, and what was not is said with the true reason. Method: claims about points that
/// `--quick` omits, and about rows that no run has, quick and whole; an experiment without claims, and a shard.
#[test]
fn a_check_says_what_it_did_not_check() {
    let claims = |name: &str, parts: &[&str], quick: &str| {
        let scratch = Scratch::new();
        scratch.make_directory(name);
        let head = "title = \"t\"\ncontestant = [{ name = \"disk\", on = \"raid0:n={n} / disk:cheetah9lp\" }]\n\
            workload = { kind = \"requests\", pattern = \"random\", operation = \"read\", bytes = \"4KiB\", span = \"64MiB\", \
            requests = 50, timing = \"window:4\" }\n";
        let text = format!("{head}[variables.n]\nvalues = [1, 2, 3]\n{quick}{}", parts.concat());
        scratch.write(&format!("{name}/experiment.toml"), text);
        scratch
    };
    let claim = |place: &str, rest: &str| {
        format!("[[claim]]\ntext = \"t\"\nsource = \"s\"\ntest = \"value\"\n{rest}\nwhere = {{ {place} }}\n")
    };
    let good = claim("n = 1", "metric = \"elapsed_s\"\nabove = 0.0");
    let of_three = claim("n = 3", "metric = \"elapsed_s\"\nabove = 0.0");
    // Nothing is written.
    let of_nothing = claim("n = 1", "metric = \"write_p99_ms\"\nabove = 0.0");
    let quick = "quick = [1]\n";
    for (parts, quick_values, words, code, said, printed) in [
        (
            &[&good[..], &of_three][..],
            quick,
            &["--quick"][..],
            0,
            "not checked: 1 of 2 claims, whose points --quick omits",
            "--quick omits",
        ),
        (
            &[&of_three],
            quick,
            &["--quick"],
            1,
            "none of 1 claim was checked",
            "0 of 1 claims hold, 1 not measured: --quick omits",
        ),
        (&[&of_three], quick, &[], 0, "", "1 of 1 claims hold.\n"),
        (
            &[&good, &of_nothing],
            quick,
            &[],
            1,
            "not checked: 1 of 2 claims, for which there are no rows",
            "1 of 2 claims hold, 1 without rows",
        ),
        (
            &[&good, &of_nothing],
            quick,
            &["--quick"],
            1,
            "for which there are no rows",
            "1 of 2 claims hold, 1 without rows.\n",
        ),
        (
            &[&good, &of_nothing],
            "",
            &["--quick"],
            1,
            "for which there are no rows",
            "1 of 2 claims hold, 1 without rows.\n",
        ),
        (&[], quick, &[], 0, "there was nothing to check", "3 rows"),
    ] {
        let scratch = claims("one", parts, quick_values);
        let ended = scratch.run(&[&["run", "one", "--check"], words].concat());
        assert_eq!(ended.code, code, "{parts:?} {words:?}: {}{}", ended.err, ended.out);
        assert!(ended.err.contains(said), "{parts:?} {words:?}: {}", ended.err);
        assert!(ended.out.contains(printed), "{parts:?} {words:?}: {}", ended.out);
        assert_eq!(scratch.run(&[&["run", "one"], words].concat()).code, 0, "without --check");
    }
    let scratch = claims("one", &[&good], quick);
    let ended = scratch.run(&["run", "one", "--check", "--shard", "1/2"]);
    assert!(ended.code == 2 && ended.err.contains("give --check to `seekless merge`"), "{}", ended.err);
}

/// An experiment about modelled disks runs over a directory of the host: in real time, round after round, and further rounds
/// add to those that there are.
#[test]
fn experiments_run_on_other_storage() {
    let scratch = Scratch::new();
    scratch.make_directory("layers");
    scratch.make_directory("lower");
    let text = r#"
        title = "Layers"
        workload = { kind = "attributes", files = 20 }
        contestant = [{ name = "plain", on = "lfs / disk:hp97560" }, { name = "zstd", on = "zstd / lfs / disk:hp97560" }]
    "#;
    scratch.write("layers/experiment.toml", text);
    let over = ["run", "layers", "--over", "hostdir:lower", "--out", "here", "--rounds"];
    scratch.good(&[&over[..], &["2"]].concat());
    let ended = scratch.run(&[&over[..], &["5"]].concat());
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains("4 of 10 points are already measured"), "{}", ended.err);
    let measured: Vec<Value> =
        read(&scratch, "here/points.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let keys: Vec<&str> = measured.iter().map(|point| point["key"].as_str().unwrap()).collect();
    // The first two rounds came from a separate run, and each covered both.
    let (plain, zstd) = (keys[0], keys[1]);
    assert_eq!(keys, [plain, zstd, plain, zstd, plain, zstd, plain, zstd, plain, zstd]);
    assert!(read(&scratch, "here/resolved.toml").contains("on = \"zstd / hostdir:lower\""));
    let wrong = scratch.run(&["run", "layers", "--over", "hostdir"]);
    assert_eq!(wrong.code, 2, "{}", wrong.err);
}

/// Layers that store files differently are measured over the same directory, one after another and again and again; nothing of
/// them is left in it. So a directory that a layer uses can be measured over, too.
#[test]
fn layers_of_all_kinds_share_a_directory() {
    let scratch = Scratch::new();
    scratch.make_directory("layers");
    scratch.make_directory("lower");
    let text = r#"
        title = "Layers"
        workload = { kind = "attributes", files = 20 }
        contestant = [
            { name = "classic", on = "copy:index=classic / lfs / disk:hp97560" },
            { name = "log", on = "copy / lfs / disk:hp97560" },
            { name = "wrap", on = "wrap / lfs / disk:hp97560" },
        ]
    "#;
    scratch.write("layers/experiment.toml", text);
    let run = |out: &str| {
        scratch.good(&["run", "layers", "--over", "hostdir:lower", "--rounds", "2", "--out", out]);
        for contestant in ["classic", "log", "wrap"] {
            assert!(read(&scratch, &format!("{out}/rows.csv")).contains(&format!("\n{contestant},")), "{contestant}");
        }
    };
    run("one");
    assert_eq!(std::fs::read_dir(scratch.path("lower")).unwrap().count(), 0);
    // A directory of a layer's files, which the next measurements leave alone.
    scratch.write("lower/a", "what is in it\n".repeat(1000));
    scratch.good(&["pack", "zstd / hostdir:lower"]);
    let packed = std::fs::read(scratch.path("lower/a")).unwrap();
    run("two");
    assert_eq!(std::fs::read(scratch.path("lower/a")).unwrap(), packed);
    scratch.good(&["bench", "attributes", "--files", "5", "--on", "copy:index=classic / hostdir:lower"]);
    scratch.good(&["unpack", "zstd / hostdir:lower"]);
    assert!(read(&scratch, "lower/a").starts_with("what is in it"));
}

/// A sweep that is killed in the middle continues from there, and ends with the same files as an uninterrupted one.
/// Method: SIGKILL as soon as some points are in the folder, at two moments.
#[test]
fn a_killed_sweep_goes_on() {
    let scratch = scratch();
    let run = |out: &str| scratch.run(&["run", "sweep", "--out", out, "--jobs", "2"]);
    assert_eq!(run("whole").code, 0);
    for wanted in [1, 7] {
        let out = format!("killed-{wanted}");
        let mut child = scratch.command().args(["run", "sweep", "--jobs", "2", "--out", &out]).spawn().unwrap();
        let journal = scratch.path(&format!("{out}/points.jsonl"));
        let lines = || std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
        let start = Instant::now();
        while lines() < wanted && start.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let kept = lines();
        assert!(kept >= wanted, "{kept} points were kept");
        let ended = run(&out);
        assert_eq!(ended.code, 0, "{}", ended.err);
        for file in ["rows.jsonl", "rows.csv", "resolved.toml"] {
            let (one, other) = (read(&scratch, &format!("whole/{file}")), read(&scratch, &format!("{out}/{file}")));
            assert_eq!(one, other, "{file} after a kill with {kept} points");
        }
    }
}

/// A signal ends a sweep at once, however long the points under way would take; those that are finished are kept, and the same
/// command measures the others. Method: a short point beside one of hours, in virtual time; and one of hours in real time, whose
/// files must be gone afterwards.
#[test]
fn a_signal_ends_a_sweep_at_once() {
    let scratch = Scratch::new();
    scratch.make_directory("lower");
    scratch.make_directory("long");
    let text = |short: u64, long: u64| {
        let on = "lfs / disk:hp97560";
        format!(
            "title = \"Long\"\nworkload = {{ kind = \"postmark\", files = 20, transactions = {short} }}\n\
             contestant = [{{ name = \"short\", on = \"{on}\" }},\n\
             {{ name = \"long\", on = \"{on}\", workload = {{ transactions = {long} }} }}]\n"
        )
    };
    for (over, points) in [(&[][..], 2), (&["--over", "hostdir:lower"][..], 2)] {
        scratch.write("long/experiment.toml", text(5, 50_000_000));
        let out = format!("out-{}", over.len());
        let arguments = [&["run", "long", "--jobs", "2", "--out", &out][..], over].concat();
        let mut child = scratch.command();
        let mut child = child.args(&arguments).stderr(std::process::Stdio::null()).spawn().unwrap();
        let journal = scratch.path(&format!("{out}/points.jsonl"));
        let lines = || std::fs::read_to_string(&journal).map_or(0, |text| text.lines().count());
        while lines() == 0 {
            assert!(child.try_wait().unwrap().is_none(), "the sweep has ended");
            std::thread::sleep(Duration::from_millis(5));
        }
        let start = Instant::now();
        std::process::Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
        let ended = child.wait().unwrap();
        // It takes half a second; the rest is for a machine that is busy.
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
        assert_eq!((ended.code(), lines()), (Some(130), 1));
        assert_eq!(std::fs::read_dir(scratch.path("lower")).unwrap().count(), 0, "{over:?}");
        // The same command goes on, here with less to do; the short point is not measured again.
        scratch.write("long/experiment.toml", text(5, 6));
        let went_on = scratch.run(&arguments);
        assert_eq!(went_on.code, 0, "{}", went_on.err);
        assert!(went_on.err.contains(&format!("1 of {points} points are already measured")), "{}", went_on.err);
    }
}

/// A dry run predicts what the run would take: points in real time once for each round, and what is measured already not at all.
#[test]
fn a_dry_run_predicts_every_round_that_is_left() {
    let scratch = Scratch::new();
    scratch.make_directory("lower");
    scratch.make_directory("few");
    let text = "title = 't'\nworkload = { kind = 'attributes', files = 5 }\n\
                contestant = [{ name = 'a', on = 'wrap / memfs' }, { name = 'b', on = 'zstd / memfs' }]\n";
    scratch.write("few/experiment.toml", text);
    scratch.make_directory("costs");
    scratch.write("costs/seconds.jsonl", "{\"place\":\"a\",\"seconds\":600.0}\n");
    let run = |more: &[&str]| {
        let words = ["run", "few", "--over", "hostdir:lower", "--out", "out", "--costs", "costs"];
        scratch.run(&[&words[..], more].concat())
    };
    let last = |more: &[&str]| run(&[more, &["--dry-run"]].concat()).out.trim_end().lines().last().map(str::to_owned);
    let of = |time: &str| Some(format!("about {time} of processor time, {time} with --jobs 1"));
    assert_eq!(last(&["--jobs", "1"]), of("20 minutes"));
    assert_eq!(last(&["--jobs", "1", "--rounds", "3"]), of("60 minutes"));
    assert!(!scratch.path("out").exists(), "it writes nothing");
    let measured = run(&["--rounds", "2", "--jobs", "1"]);
    assert_eq!(measured.code, 0, "{}", measured.err);
    assert!(measured.err.contains("4 points to measure, about 40 minutes of"), "{}", measured.err);
    assert_eq!(last(&["--jobs", "1", "--rounds", "3"]), of("20 minutes"));
    assert_eq!(last(&["--rounds", "2"]).as_deref(), Some("4 of 4 measurements are already made"));
}

/// An experiment in shards, merged, leaves the files that one run leaves. Method: three processes, one of them killed and not
/// run again, then run again; a folder of another program; real time.
#[test]
fn shards_are_one_experiment() {
    let scratch = scratch();
    scratch.good(&["run", "sweep", "--out", "whole"]);
    for shard in ["1/3", "2/3"] {
        let out = scratch.good(&["run", "sweep", "--shard", shard]);
        assert!(out.contains("seekless merge sweep results/sweep.*-of-3"), "{out}");
    }
    let planned: usize = ["1/3", "2/3", "3/3"]
        .iter()
        .map(|shard| {
            let plan = scratch.good(&["run", "sweep", "--dry-run", "--shard", shard, "--costs", "whole"]);
            assert!(plan.contains(" of processor time, "), "{plan}");
            plan.lines().filter(|line| line.contains(": raid0")).count()
        })
        .sum();
    assert_eq!(planned, 20);
    let mut child = scratch.command().args(["run", "sweep", "--jobs", "1", "--shard", "3/3"]).spawn().unwrap();
    let third = scratch.path("results/sweep.3-of-3/points.jsonl");
    while std::fs::read(&third).map_or(0, |text| text.len()) == 0 && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let merge = ["merge", "sweep", "results/sweep.1-of-3", "results/sweep.2-of-3", "results/sweep.3-of-3"];
    let early = scratch.run(&merge);
    // The killed one may have come to its end.
    assert!(early.code == 0 || early.err.contains("points are missing:"), "{}", early.err);
    let again = scratch.run(&["run", "sweep", "--shard", "3/3"]);
    assert_eq!(again.code, 0, "{}", again.err);
    let merged = scratch.good(&merge);
    assert!(merged.contains("claims hold"), "{merged}");
    for file in ["rows.jsonl", "rows.csv", "resolved.toml"] {
        assert_eq!(
            read(&scratch, &format!("whole/{file}")),
            read(&scratch, &format!("results/sweep/{file}")),
            "{file}"
        );
    }
    let provenance: Value = serde_json::from_str(&read(&scratch, "results/sweep/provenance.json")).unwrap();
    assert_eq!((&provenance["points_missing"], provenance["merged"].as_array().map(Vec::len)), (&0.into(), Some(3)));
    scratch.good(&["report", "results/sweep", "-o", "page.html"]);

    let lacks = scratch.run(&["merge", "sweep", "results/sweep.1-of-3", "--out", "part"]);
    assert_eq!(lacks.code, 1);
    assert!(lacks.err.contains("seekless run sweep --out part"), "{}", lacks.err);
    let filled = scratch.run(&["run", "sweep", "--out", "part"]);
    assert!(filled.err.contains("of 20 points are already measured"), "{}", filled.err);
    assert_eq!(read(&scratch, "whole/rows.csv"), read(&scratch, "part/rows.csv"));

    let points = read(&scratch, "results/sweep.1-of-3/points.jsonl");
    scratch.make_directory("foreign");
    let changed = points.replace("{\"key\":\"", "{\"key\":\"0");
    scratch.write("foreign/points.jsonl", &changed);
    let damaged = scratch.run(&["merge", "sweep", "foreign", "--out", "from-foreign"]);
    assert_eq!(damaged.code, 1);
    assert!(damaged.err.contains("foreign/points.jsonl, line 1: this point is damaged"), "{}", damaged.err);
    scratch.write("foreign/points.jsonl", without_sums(&changed));
    let foreign = scratch.run(&["merge", "sweep", "foreign", "--out", "from-foreign"]);
    assert_eq!(foreign.code, 1);
    assert!(foreign.err.contains("of another experiment, or of other files or options"), "{}", foreign.err);
    for (arguments, code) in [
        (&["run", "sweep", "--shard", "4/3"][..], 2),
        (&["merge", "sweep"], 2),
        (&["merge", "sweep", "nowhere"], 1),
        (&["run", "sweep", "--costs", "nowhere"], 1),
    ] {
        assert_eq!(scratch.run(arguments).code, code, "{arguments:?}");
    }
}

/// Points without their digests, as builds before wrote them: for points that a test changes.
fn without_sums(points: &str) -> String {
    let line = |line: &str| format!("{}}}\n", line.split(",\"sum\"").next().unwrap_or_default());
    points.lines().map(line).collect()
}

/// Aim: a sweep of which shards are lost, and one is of another build, says so, and becomes whole when these run again. Method:
/// six shards, of which two are never run, and of one the points are named as by another program.
#[test]
fn lost_shards_are_named() {
    let scratch = scratch();
    scratch.good(&["run", "sweep", "--out", "whole"]);
    for shard in ["1/6", "3/6", "4/6", "6/6"] {
        scratch.good(&["run", "sweep", "--shard", shard]);
    }
    let foreign = "results/sweep.4-of-6/points.jsonl";
    let ours = read(&scratch, foreign);
    let (at, digest) = ours.split_once("\"program\":\"").map(|(_, rest)| ("\"program\":\"", &rest[..12])).unwrap();
    let theirs =
        ours.replace(&format!("{at}{digest}"), &format!("{at}0123456789ab")).replace("{\"key\":\"", "{\"key\":\"0");
    let theirs = without_sums(&theirs);
    scratch.write(foreign, &theirs);
    let merge = |folders: &[&str], more: &[&str]| {
        let folders: Vec<String> = folders.iter().map(|shard| format!("results/sweep.{shard}-of-6")).collect();
        let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
        scratch.run(&[&["merge", "sweep"], &folders[..], more].concat())
    };
    let count = |shards: &[&str]| -> usize {
        shards
            .iter()
            .map(|shard| read(&scratch, &format!("results/sweep.{shard}-of-6/points.jsonl")).lines().count())
            .sum()
    };
    let (there, left) = (count(&["1", "3", "6"]), count(&["4"]));
    for more in [&["--dry-run"][..], &[]] {
        let ended = merge(&["1", "3", "4", "6"], more);
        assert_eq!(ended.code, 1, "{}", ended.err);
        for said in [
            format!("results/sweep.4-of-6: left out: {left} point"),
            "of another build of seekless (0123456789ab)".to_owned(),
            format!("{} of 20 points are missing:", 20 - there),
            "of 6 shards, these are not among the folders: 2, 5".to_owned(),
            "seekless run sweep --out results/sweep".to_owned(),
        ] {
            assert!(ended.err.contains(&said), "{said}: {}", ended.err);
        }
        let is_dry = !more.is_empty();
        assert_eq!(scratch.path("results/sweep/points.jsonl").exists(), !is_dry);
        assert_eq!(ended.out.contains(&format!("{there} of 20 points are measured")), is_dry, "{}", ended.out);
    }
    for shard in ["2/6", "5/6"] {
        scratch.good(&["run", "sweep", "--shard", shard]);
    }
    let again = scratch.run(&["run", "sweep", "--shard", "4/6"]);
    assert!(
        again.code == 0 && again.err.contains("of another build of seekless (0123456789ab); they stay"),
        "{}",
        again.err
    );
    assert!(read(&scratch, foreign).starts_with(&theirs), "what another build has measured is kept");
    let all = ["1", "2", "3", "4", "5", "6"];
    let counted = merge(&all, &["--dry-run"]);
    assert_eq!((counted.code, counted.out.as_str()), (0, "20 of 20 points are measured\n"));
    assert_eq!(merge(&all, &[]).code, 0);
    for file in ["rows.jsonl", "rows.csv", "resolved.toml"] {
        assert_eq!(
            read(&scratch, &format!("whole/{file}")),
            read(&scratch, &format!("results/sweep/{file}")),
            "{file}"
        );
    }
    // What has been measured into the merged folder counts, too.
    let counted = merge(&["1"], &["--dry-run"]);
    assert_eq!((counted.code, counted.out.as_str()), (0, "20 of 20 points are measured\n"), "{}", counted.err);
    let over = merge(&["1"], &["--dry-run", "--over", "disk:dec-rz26"]);
    assert!(over.err.contains("seekless run sweep --over disk:dec-rz26 --out results/sweep"), "{}", over.err);
}

/// Aim: shards that were run with `--quick` and are merged without, or the other way round, are refused with that reason and the command
/// that merges them, before anything is written; shards of which some are missing are not taken for such. Method: both ways round, one
/// shard and all, an experiment whose quick points are some of all.
#[test]
fn quick_shards_are_merged_as_such() {
    let scratch = scratch();
    scratch.make_directory("alike");
    scratch.write("alike/experiment.toml", SWEEP.replace("quick = { requests = 100 }\n", ""));
    let folders = |name: &str, quick: &str, shards: &[u32]| -> Vec<String> {
        shards.iter().map(|shard| format!("results/{name}{quick}.{shard}-of-2")).collect()
    };
    let merge = |name: &str, folders: &[String], more: &[&str]| {
        let folders: Vec<&str> = folders.iter().map(String::as_str).collect();
        scratch.run(&[&["merge", name], &folders[..], more].concat())
    };
    for name in ["sweep", "alike"] {
        for shard in ["1/2", "2/2"] {
            scratch.good(&["run", name, "--quick", "--shard", shard]);
            scratch.good(&["run", name, "--shard", shard]);
        }
        for (shards, more) in [(&[1, 2][..], &["--dry-run"][..]), (&[1, 2], &[]), (&[2], &[])] {
            let from = folders(name, "-quick", shards);
            let ended = merge(name, &from, more);
            let said = "these shards were run with --quick, and are merged without it: they have";
            assert!(ended.code == 2 && ended.err.contains(said), "{name}: {}", ended.err);
            let command = format!("seekless merge {name} --quick {}", from.join(" "));
            assert!(ended.err.contains(&command), "{name}: {}", ended.err);
        }
        assert!(!scratch.path(&format!("results/{name}")).exists(), "{name}: nothing is written");
        // A shard of the whole experiment alone lacks the others, and is no quick one.
        let ended = merge(name, &folders(name, "", &[1]), &["--dry-run"]);
        assert!(ended.code == 1 && ended.err.contains("points are missing"), "{name}: {}", ended.err);
        for quick in ["", "-quick"] {
            let more: &[&str] = if quick.is_empty() { &[] } else { &["--quick"] };
            let ended = merge(name, &folders(name, quick, &[1, 2]), more);
            assert_eq!(ended.code, 0, "{name}: {}", ended.err);
        }
    }
    let ended = merge("sweep", &folders("sweep", "", &[1, 2]), &["--quick", "--out", "other"]);
    let said = "these shards were run without --quick, and are merged with it: they have 20 of the 20 points without --quick, and 0 of the 4";
    assert!(ended.code == 2 && ended.err.contains(said), "{}", ended.err);
    assert!(
        ended.err.contains("seekless merge sweep results/sweep.1-of-2 results/sweep.2-of-2 --out other"),
        "{}",
        ended.err
    );
}

/// What is wrong is said with what to do about it.
#[test]
fn troubles_are_explained() {
    let scratch = scratch();
    scratch.make_directory("empty");
    scratch.make_directory("typo");
    scratch.write("typo/experiment.toml", SWEEP.replace("pattern", "patern"));
    scratch.make_directory("failing");
    scratch.write("failing/experiment.toml", SWEEP.replace("span = \"64MiB\"", "span = \"1TiB\""));
    scratch.make_directory("torn");
    scratch.write("torn/points.jsonl", "these are\nno points\n");
    for (arguments, code, said) in [
        (&["run", "nowhere"][..], 2, "cannot read nowhere/experiment.toml"),
        (&["run", "swep"], 2, "did you mean sweep?"),
        (&["run", "swe"], 2, "did you mean sweep?"),
        (&["run", "./sweeep"], 2, "did you mean ./sweep?"),
        (&["run", "f"], 2, "did you mean failing?"),
        (&["merge", "swep", "x"], 2, "did you mean sweep?"),
        (&["run", "empty"], 2, "this folder is no experiment"),
        (&["run", "sweep/published.csv"], 2, "an experiment is a folder with a file experiment.toml"),
        (&["run", "typo"], 2, "unknown field `patern`"),
        (&["run", "failing", "--quick"], 1, "--map wrap"),
        (&["run", "sweep", "--jobs", "0"], 2, "0 is not from 1 to 1024"),
        (&["run", "sweep", "--out", "torn"], 1, "torn/points.jsonl, line 1: this is no measured point"),
        (&["run", "sweep", "--out", "sweep/experiment.toml"], 1, "cannot make sweep/experiment.toml"),
        (&["report", "empty"], 1, "`seekless run` makes one"),
        (&["report", "emty"], 1, "did you mean empty?"),
        (&["report"], 2, "RESULTS"),
    ] {
        let ended = scratch.run(arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(said), "{arguments:?}: {}", ended.err);
    }
    // The file is as good as its folder.
    for named in ["sweep", "sweep/experiment.toml", "./sweep/experiment.toml"] {
        let plan = scratch.good(&["run", named, "--dry-run"]);
        assert!(plan.ends_with("20 points for 20 places\n"), "{named}: {plan}");
    }
    scratch.good(&["run", "sweep/experiment.toml", "--quick"]);
    assert!(scratch.path("results/sweep-quick/rows.csv").exists(), "it is named as its folder is");
}

/// Every experiment of the repository can be run, whole and quick.
#[test]
fn experiments_of_the_repository() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let scratch = Scratch::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).expect("the repository has experiments") {
        let path = entry.expect("it can be listed").path();
        if path.join("experiment.toml").exists() {
            let path = path.to_str().expect("its name is text");
            for arguments in [&["run", path, "--dry-run"][..], &["run", path, "--dry-run", "--quick"]] {
                let plan = scratch.good(arguments);
                assert!(plan.contains(" points for "), "{plan}");
            }
            seen += 1;
        }
    }
    assert!(seen > 20, "only {seen} experiments");
}
