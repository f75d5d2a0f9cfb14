//! Recipes of docs/guide/sweeps.md: schedulers run shards, and the results are those of one process.

use std::process::{Command, Stdio};

use seekless_host::testing::{Need, skip};

use crate::Scratch;

/// A heading of the page, and a command that succeeds where the recipe can run.
const RECIPES: &[(&str, &str)] = &[
    ("Slurm", "command -v sbatch && sinfo --noheader --states=idle,mixed,allocated | grep -q ."),
    ("Snakemake", "command -v snakemake"),
    ("Dask, Ray, and whatever else has an executor, without the package", "python3 -c 'import dask.distributed'"),
];

/// The experiment of the page.
const EXPERIMENT: &str = "ro92-fig4";

const SMALL: &str = r#"
title = "Small"
workload = { kind = "requests", pattern = "random", operation = "read", bytes = "4KiB", span = "64MiB", requests = "{n}", timing = "closed" }
contestant = [{ name = "one", on = "disk:cheetah9lp" }, { name = "other", on = "disk:hp97560" }]
variables.n.values = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110, 120, 130, 140, 150, 160, 170, 180, 190, 200]
"#;

/// Runs a script; the error is what it printed.
fn run(scratch: &Scratch, script: &str) -> Result<(), String> {
    let here = std::path::Path::new(env!("CARGO_BIN_EXE_seekless")).parent().expect("a program has a directory");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("sh");
    shell.args(["-e", "-c", script]).current_dir(scratch.path("")).stdin(Stdio::null());
    shell.env("PATH", format!("{}:{path}", here.display()));
    let output = shell.output().expect("there is a shell");
    let printed = [output.stdout, output.stderr].concat();
    output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&printed).into_owned())
}

/// Each recipe of the page gives the rows of one process. Method: its block as written, on a small experiment of the same
/// name.
#[test]
fn recipes_give_the_rows_of_one_process() {
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
        scratch.write(&format!("experiments/{EXPERIMENT}/experiment.toml"), SMALL);
        let experiment = format!("experiments/{EXPERIMENT}");
        scratch.good(&["run", &experiment, "--out", "whole"]);
        let ended = run(&scratch, block.expect("a block of commands"));
        ended.unwrap_or_else(|printed| panic!("{heading}: {printed}"));
        for file in ["rows.jsonl", "rows.csv", "resolved.toml"] {
            let read = |folder: &str| std::fs::read(scratch.path(&format!("{folder}/{file}"))).expect(file);
            assert_eq!(read("whole"), read(&format!("results/{EXPERIMENT}")), "{heading}: {file}");
        }
    }
}
