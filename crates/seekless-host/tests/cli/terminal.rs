//! Habits of a terminal: its width, `NO_COLOR`, progress, `--quiet`.

use std::process::{Command, Stdio};

use seekless_host::testing::{Need, skip};

use crate::{Ended, Scratch};

const EXPERIMENT: &str = r#"
title = "How long it takes to read blocks of several sizes from an array of several disks"
paper = "[x]"
workload = { kind = "requests", pattern = "random", operation = "read", bytes = "4KiB", span = "64MiB", requests = "{n}", timing = "closed" }
contestant = [{ name = "one", on = "disk:cheetah9lp" }]
variables.n.values = [100, 200]
[[claim]]
text = "a claim that takes more words than a narrow terminal has room for in one of its lines"
source = "[x], in a section with a long name"
metric = "elapsed_s"
test = "value"
where = { n = 100 }
below = 1000.0
"#;

fn scratch() -> Scratch {
    let scratch = Scratch::new();
    scratch.make_directory("study");
    scratch.write("study/experiment.toml", EXPERIMENT);
    let line = |n: u64| format!("0,{},{},4096,{}000\n", if n.is_multiple_of(3) { "W" } else { "R" }, n * 4096, n * 20);
    scratch.write("a.csv", (0..200).map(line).collect::<String>());
    scratch.good(&["mkfs", "lfs / file:a.img,size=32MiB", "-q"]);
    scratch
}

/// Commands that print text for people, each with what it prints in words.
const COMMANDS: &[&[&str]] = &[
    &["list"],
    &["list", "profiles"],
    &["list", "workloads"],
    &["disk", "list"],
    &["disk", "info", "cheetah9lp"],
    &["flash", "list"],
    &["flash", "info", "nvme-a"],
    &["flash", "info", "zns-a"],
    &["trace", "formats"],
    &["trace", "info", "a.csv"],
    &["replay", "a.csv", "--on", "raid5:n=4,metadata=off / disk:cheetah9lp", "--on", "disk:hp97560"],
    &["advise", "a.csv", "-o", "page.html", "--force"],
    &["clean", "greedy", "sepbit", "--blocks", "5000"],
    &["clean", "--list"],
    &["bench", "smallfile", "--files", "50", "--on", "lfs / disk:dec-rz26", "--on", "ffs / disk:dec-rz26"],
    &["bench", "mount", "--list"],
    &["run", "study", "--out", "found"],
    &["info", "lfs / file:a.img"],
    &["stat", "lfs / file:a.img"],
    &["fsck", "lfs / file:a.img"],
    &["mkfs", "lfs / file:b.img,size=32MiB", "--force"],
];

/// A line that is too long only because it is one word, or ends in a command to be copied.
fn cannot_be_broken(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("seekless ") || !line.trim_start_matches(['|', ' ']).contains(' ') || line.contains("  /")
}

/// Aim: no line is wider than what `COLUMNS` says, and without it a pipe has every line whole. Method: all commands for people,
/// in three widths; the words are the same.
#[test]
fn text_fits_the_width() {
    let scratch = scratch();
    let in_columns = |command: &[&str], columns: &str| {
        let output = scratch.command().args(command).env("COLUMNS", columns).output().unwrap();
        scratch.ended(&output)
    };
    for command in COMMANDS {
        for width in [60, 80, 120] {
            let ended = in_columns(command, &width.to_string());
            assert_eq!(ended.code, 0, "{command:?}: {}", ended.err);
            for line in ended.out.lines().filter(|line| line.chars().count() > width) {
                assert!(cannot_be_broken(line), "{command:?} in {width} columns: {line}");
            }
        }
        let mut words: Vec<String> = Vec::new();
        for output in [scratch.run(command).out, in_columns(command, "60").out] {
            // A column without a value has no line in a record.
            let output = output.replace("| price |", "").replace("price |", "");
            let mut found: Vec<&str> = output.split([' ', '\n', '|']).filter(|word| !word.starts_with('-')).collect();
            // Times of day, and identities, differ from run to run.
            found.retain(|word| !word.is_empty() && !word.contains("-") && !word.ends_with('Z'));
            found.sort_unstable();
            found.dedup();
            let lost = words.iter().find(|word| !found.contains(&word.as_str()));
            assert_eq!(lost, None, "{command:?}: a word is lost in 60 columns");
            words = found.into_iter().map(str::to_owned).collect();
        }
    }
    let wide = scratch.good(&["disk", "list"]);
    assert!(wide.lines().any(|line| line.chars().count() > 100), "{wide}");
    let json = in_columns(&["disk", "list", "--json"], "30");
    assert_eq!(json.out, scratch.good(&["disk", "list", "--json"]), "programs get the same, whatever the width");
}

/// Runs the program on a terminal of 72 columns. What it has printed is standard output and errors in one.
fn on_a_terminal(scratch: &Scratch, command: &str, environment: &[(&str, &str)]) -> Option<Ended> {
    let program = env!("CARGO_BIN_EXE_seekless");
    let line = format!("stty cols 72; '{program}' {command}");
    let mut script = Command::new("script");
    script.args(["-qec", &line, "/dev/null"]).current_dir(scratch.path("")).stdin(Stdio::null());
    script.env_remove("COLUMNS").env_remove("NO_COLOR").env("TERM", "xterm-256color");
    script.envs(environment.iter().copied());
    match script.output() {
        Ok(output) => Some(scratch.ended(&output)),
        Err(error) => {
            skip(Need::Terminal, format_args!("script: {error}"));
            None
        }
    }
}

fn has_colour(text: &str) -> bool {
    // Escape, bracket, digits and semicolons, m.
    text.split("\u{1b}[")
        .skip(1)
        .any(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';').starts_with('m'))
}

/// Aim: help has bold text on a terminal, except with `NO_COLOR`, and never in a pipe; tables have the width of the terminal.
#[test]
fn terminals_have_a_width_and_colour() {
    let scratch = scratch();
    let Some(plain) = on_a_terminal(&scratch, "disk --help", &[]) else { return };
    assert!(has_colour(&plain.out), "{:?}", plain.out);
    for command in ["disk --help", "disk list", "replay a.csv --on disk:hp97560", "run study --out colours", "no-such"]
    {
        let ended = on_a_terminal(&scratch, command, &[("NO_COLOR", "1")]).expect("as before");
        assert!(!has_colour(&ended.out), "{command}: {:?}", ended.out);
    }
    assert!(!has_colour(&scratch.run(&["disk", "--help"]).out));
    let table = on_a_terminal(&scratch, "disk list", &[]).expect("as before");
    assert!(table.out.lines().all(|line| line.trim_end().chars().count() <= 72), "{}", table.out);
    let asked = on_a_terminal(&scratch, "disk list", &[("COLUMNS", "200")]).expect("as before");
    assert!(asked.out.lines().any(|line| line.trim_end().chars().count() > 100), "{}", asked.out);
}

/// Aim: a bar tells simulated files a second from the speed of the simulation; with `--quiet`, and in a pipe, there is none.
#[test]
fn progress_says_what_it_counts() {
    let scratch = scratch();
    let bench = "bench smallfile --files 30000 --on 'lfs / disk:dec-rz26'";
    let Some(loud) = on_a_terminal(&scratch, bench, &[]) else { return };
    assert!(loud.out.contains("/30000 files, ") && loud.out.contains("/s simulated, "), "{}", loud.out);
    let quiet = on_a_terminal(&scratch, &format!("{bench} --quiet"), &[]).expect("as before");
    assert!(!quiet.out.contains("simulated") && quiet.out.contains("files/s"), "{}", quiet.out);
}

/// Aim: `--quiet` leaves results, warnings and errors. Method: what a replay says on standard error with and without it, and what
/// is wrong.
#[test]
fn quiet_leaves_results_and_errors() {
    let scratch = scratch();
    let replay = ["replay", "a.csv", "--on", "disk:hp97560"];
    let (loud, quiet) = (scratch.run(&replay), scratch.run(&[&replay[..], &["--quiet"]].concat()));
    assert!(loud.err.contains("read as"), "{}", loud.err);
    assert!(quiet.err.lines().all(|line| line.trim_start().starts_with("warning")), "{}", quiet.err);
    assert_eq!(loud.out, quiet.out);
    assert_eq!(scratch.run(&["-q", "mkfs", "lfs / file:c.img,size=32MiB"]).out, "");
    let wrong = scratch.run(&["--quiet", "disk", "info", "no-such-drive"]);
    assert!(wrong.code != 0 && wrong.err.contains("no-such-drive"), "{}", wrong.err);
}
