//! Recipes of docs/guide/sweeps.md: schedulers run shards, and the results are those of one process.

use std::process::{Child, Command, Stdio};

use seekless_host::testing::{Need, skip};

use crate::Scratch;

/// A heading of the page, and a command that succeeds where the recipe can run.
const RECIPES: &[(&str, &str)] = &[
    ("Slurm", "command -v sbatch && sinfo --noheader --states=idle,mixed,allocated | grep -q ."),
    ("Snakemake", "command -v snakemake"),
    ("Dask, Ray and other executors, without the package", "python3 -c 'import dask.distributed'"),
];

/// The experiment of the page.
const EXPERIMENT: &str = "ro92-fig4";

const SMALL: &str = r#"
title = "Small"
workload = { kind = "requests", pattern = "random", operation = "read", bytes = "4KiB", span = "64MiB", requests = "{n}", timing = "closed" }
contestant = [{ name = "one", on = "disk:cheetah9lp" }, { name = "other", on = "disk:hp97560" }]
variables.n.values = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150, 160, 170, 180, 190, 200]
"#;

/// The same with points that take a while.
const SLOWER: &str = r#"
title = "Slower"
workload = { kind = "requests", pattern = "random", operation = "read", bytes = "4KiB", span = "64MiB", requests = 40000, timing = "window:4" }
contestant = [{ name = "array", on = "raid0:n={n} / disk:cheetah9lp,scheduler=sptf" }]
variables.n.values = [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
"#;

/// A shell that runs a script where the program is found.
fn shell(scratch: &Scratch, script: &str) -> Command {
    let here = std::path::Path::new(env!("CARGO_BIN_EXE_seekless")).parent().expect("a program has a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", script]).current_dir(scratch.path("")).stdin(Stdio::null());
    shell.env("PATH", format!("{}:{path}", here.display()));
    shell
}

/// Starts a script, which prints into the file `printed`.
fn begin(scratch: &Scratch, script: &str) -> Child {
    let printed = std::fs::File::create(scratch.path("printed")).expect("a file can be made");
    let errors = printed.try_clone().expect("a file has a second descriptor");
    shell(scratch, script).stdout(printed).stderr(errors).spawn().expect("there is a shell")
}

/// The end of a script; the error is what it printed.
fn end(scratch: &Scratch, mut script: Child) -> Result<(), String> {
    match script.wait().expect("it can be waited for").success() {
        true => Ok(()),
        false => Err(std::fs::read_to_string(scratch.path("printed")).unwrap_or_default()),
    }
}

fn run(scratch: &Scratch, script: &str) -> Result<(), String> {
    end(scratch, begin(scratch, script))
}

/// Calls `check` with each recipe that can run here: its heading, and its commands.
fn for_each_recipe(check: impl Fn(&Scratch, &str, &str)) {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide/sweeps.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    for (heading, probe) in RECIPES {
        let scratch = Scratch::new();
        if run(&scratch, probe).is_err() {
            skip(Need::Schedulers, format_args!("{heading}: `{probe}` fails"));
            continue;
        }
        let section = page.split("\n## ").find_map(|section| section.strip_prefix(heading)).expect(heading);
        let block = section.split("```sh no-run=client\n").nth(1).and_then(|rest| rest.split("```").next());
        std::fs::create_dir_all(scratch.path(&format!("experiments/{EXPERIMENT}"))).expect("a directory can be made");
        check(&scratch, heading, block.expect("a block of commands"));
    }
}

fn put(scratch: &Scratch, experiment: &str) {
    scratch.write(&format!("experiments/{EXPERIMENT}/experiment.toml"), experiment);
    scratch.good(&["run", &format!("experiments/{EXPERIMENT}"), "--out", "whole"]);
}

fn check_rows_of_one_run(scratch: &Scratch, heading: &str) {
    for file in ["rows.jsonl", "rows.csv", "resolved.toml"] {
        let read = |folder: &str| std::fs::read(scratch.path(&format!("{folder}/{file}"))).expect(file);
        assert_eq!(read("whole"), read(&format!("results/{EXPERIMENT}")), "{heading}: {file}");
    }
}

/// Each recipe of the page gives the rows of one process. Method: its block as written, on a small experiment of the same
/// name.
#[test]
fn recipes_give_the_rows_of_one_process() {
    for_each_recipe(|scratch, heading, block| {
        put(scratch, SMALL);
        run(scratch, block).unwrap_or_else(|printed| panic!("{heading}: {printed}"));
        check_rows_of_one_run(scratch, heading);
    });
}

/// A worker that is killed while it measures does no harm, and what another build has measured is kept and not used. Method: a shard
/// has a point of another build from the start; one process of a shard gets SIGKILL; the progress is asked in the middle.
#[test]
fn recipes_survive_a_killed_worker() {
    const STALE: &str = "{\"key\":\"0123\",\"measures\":[],\"program\":\"0123456789ab\"}\n";
    for_each_recipe(|scratch, heading, block| {
        put(scratch, SLOWER);
        let stale = format!("results/{EXPERIMENT}.3-of-16");
        std::fs::create_dir_all(scratch.path(&stale)).expect("a directory can be made");
        scratch.write(&format!("{stale}/points.jsonl"), STALE);
        let mut recipe = begin(scratch, block);
        let start = std::time::Instant::now();
        let killed = loop {
            let ended = recipe.try_wait().expect("it can be waited for");
            match worker(scratch) {
                Some(worker) => break rustix::process::kill_process(worker, rustix::process::Signal::KILL).is_ok(),
                None if ended.is_some() || start.elapsed().as_secs() > 300 => break false,
                None => std::thread::sleep(std::time::Duration::from_millis(5)),
            }
        };
        let folders = format!("results/{EXPERIMENT}.*-of-16");
        let progress = format!("seekless merge experiments/{EXPERIMENT} {folders} --dry-run || true");
        let asked = shell(scratch, &progress).output().expect("there is a shell").stdout;
        let asked = String::from_utf8_lossy(&asked);
        assert!(asked.contains(" of 16 points are measured"), "{heading}: {asked}");
        end(scratch, recipe).unwrap_or_else(|printed| panic!("{heading}: {printed}"));
        assert!(killed, "{heading}: it ended before a worker was killed");
        check_rows_of_one_run(scratch, heading);
        let journal = std::fs::read_to_string(scratch.path(&format!("{stale}/points.jsonl"))).expect("the shard");
        assert!(journal.starts_with(STALE), "{heading}: {journal}");
    });
}

/// A process of a shard which has begun to measure.
fn worker(scratch: &Scratch) -> Option<rustix::process::Pid> {
    let here = std::fs::canonicalize(scratch.path("")).ok()?;
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes.into_iter().find_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(process.path().join("cmdline")).ok()?;
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let shard = line.split_once(" --shard ")?.1.trim().replace('/', "-of-");
        let is_ours = line.contains("seekless run ") && std::fs::read_link(process.path().join("cwd")).ok()? == here;
        let has_begun = scratch.path(&format!("results/{EXPERIMENT}.{shard}/points.jsonl")).exists();
        (is_ours && has_begun).then(|| rustix::process::Pid::from_raw(pid)).flatten()
    })
}
