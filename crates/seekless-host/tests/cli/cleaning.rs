//! `seekless clean` as a user sees it.

use serde_json::Value;

use crate::Scratch;

/// Small enough for a test.
const SMALL: [&str; 8] = ["--blocks", "4096", "--segment-blocks", "16", "--warm-up", "3", "--writes", "3"];

/// Aim: policies are compared in a table, and as JSON with every parameter that the result depends on. Method: two
/// policies, one known cost, and the same twice.
#[test]
fn policies_are_compared() {
    let scratch = Scratch::new();
    let run = |more: &[&str]| {
        let arguments: Vec<&str> = [&["clean", "greedy", "oracle"][..], &SMALL, more].concat();
        let ended = scratch.run(&arguments);
        assert_eq!(ended.code, 0, "{arguments:?}: {}", ended.err);
        ended.out
    };
    let text = run(&["--histogram"]);
    for part in
        ["write amplification", "write cost", "4096 blocks in 341 segments of 16", "knows the future", "95 to 100 %"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let text = run(&["--json"]);
    assert_eq!(text, run(&["--json"]));
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(lines.len(), 2);
    let figure = |line: &Value, name: &str| line["metrics"][name].as_f64().expect("a number");
    assert!((1.9..2.3).contains(&figure(&lines[0], "write_amplification")), "{text}");
    assert!((3.8..4.6).contains(&figure(&lines[0], "write_cost")), "{text}");
    assert!(figure(&lines[1], "write_amplification") < 1.2, "{text}");
    for key in
        ["policy", "pattern", "segments", "batch_blocks", "reserve_segments", "target_segments", "seed", "blocks"]
    {
        assert!(!lines[0][key].is_null(), "{key} is missing");
    }
    assert!(scratch.run(&["clean", "--list"]).out.contains("cost-benefit"));
}

/// Aim: where space is not limited no number of segments is named, as there is none, and how full the log is follows from its garbage. Method: the
/// text and the JSON of such a log.
#[test]
fn a_log_without_a_limit_has_no_number_of_segments() {
    let scratch = Scratch::new();
    let run = |more: &[&str]| {
        let ended = scratch.run(&[&["clean", "greedy", "--garbage", "20"][..], &SMALL, more].concat());
        assert_eq!(ended.code, 0, "{}", ended.err);
        ended.out
    };
    let text = run(&[]);
    let expected = "4096 blocks in as many segments of 16 as it takes: 80.0 % full when cleaning begins; cleaning begins at 20.0 % garbage,";
    assert!(text.contains(expected), "{text}");
    let line: Value = serde_json::from_str(run(&["--json"]).trim()).expect("JSON");
    assert_eq!((&line["segments"], &line["garbage"], &line["utilisation"]), (&Value::Null, &0.2.into(), &0.8.into()));
}

/// Aim: what is misspelt or impossible is an error with a hint. Method: some of each, with their exit codes.
#[test]
fn errors_have_hints() {
    let scratch = Scratch::new();
    for (arguments, code, hint) in [
        (&["clean", "gredy"][..], 2, "did you mean `greedy`?"),
        (&["clean", "greedy", "--pattern", "zip"], 2, "did you mean `zipf`?"),
        (&["clean", "greedy", "--utilisation", "120"], 2, "percentage"),
        (&["clean", "greedy", "--pattern", "zipf:skew=x"], 2, "write a number"),
        (&["clean", "greedy", "--pattern", "trace:file=none"], 1, "none"),
        (&["clean", "greedy", "--blocks", "100", "--utilisation", "99"], 1, "do not fit"),
        (&["clean", "greedy", "--pattern", "trace:file=none", "--blocks", "100"], 2, "--blocks is not for a trace"),
        (&["clean", "greedy", "--writes", "0"], 2, "above 0"),
        (&["clean", "greedy", "--writes", "nan"], 2, "above 0"),
        (&["clean", "greedy", "--garbage", "15", "--utilisation", "50"], 2, "cannot be used with '--utilisation"),
        (&["clean", "greedy", "--garbage", "15", "--segments", "50"], 2, "cannot be used with '--segments"),
        (
            &["clean", "greedy", "--garbage", "15", "--reserve-segments", "5"],
            2,
            "cannot be used with '--reserve-segments",
        ),
        (&["clean", "greedy", "--garbage", "0"], 2, "above 0 and below 100, not 0"),
        (&["clean", "greedy", "--utilisation", "50", "--segments", "50"], 2, "cannot be used with '--segments"),
        (&["clean", "greedy", "--blocks", "0"], 2, "between 2 and"),
        (&["clean", "d-choices:d=0"], 2, "d=0: write a number"),
        (&["clean", "greedy", "--blocks", "20", "--segment-blocks", "1000"], 1, "or take smaller segments"),
        (&["clean", "greedy", "--segments", "0"], 2, "at least one segment"),
        (&["clean", "greedy", "--writes", "-1"], 2, "above 0 and up to a million, not -1"),
        (&["clean", "greedy", "--warm-up", "-1"], 2, "from 0 to a million, not -1"),
        (&["clean", "greedy", "--utilisation", "-5"], 2, "percentage from 0.1 to below 100, not -5"),
        (&["clean", "greedy", "--garbage", "-5"], 2, "above 0 and below 100, not -5"),
        (&["clean", "greedy", "--seed", "-1"], 2, "invalid value '-1' for '--seed"),
        (&["clean"], 2, "POLICY"),
    ] {
        let ended = scratch.run(arguments);
        assert_eq!(ended.code, code, "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(hint), "{arguments:?}: {}", ended.err);
    }
}

/// Aim: a trace of any format can be cleaned by, the lines that it does not use are said once, and each hint of an error works. Method: columns
/// with a bad line, their description as an option and in the pattern.
#[test]
fn traces_are_described() {
    let scratch = Scratch::new();
    let mut text: String = (0..400).map(|n| format!("{n},w,{},4096\n", n * 37 % 64 * 4096)).collect();
    text += "401,w,here,4096\n";
    std::fs::write(scratch.path("a.csv"), text).expect("a file");
    let run = |more: &[&str]| {
        let words = [&["clean", "greedy", "cost-benefit", "--segment-blocks", "4", "--json"][..], more].concat();
        scratch.run(&words)
    };
    let columns = "csv:time=1:us,op=2,offset=3:B,length=4:B";
    let asked = run(&["--pattern", "trace:file=a.csv"]);
    assert!(asked.code == 1 && asked.err.contains(&format!("--format '{columns}'")), "{}", asked.err);
    let one = run(&["--pattern", "trace:file=a.csv", "--format", columns]);
    assert_eq!(one.code, 0, "{}", one.err);
    assert_eq!(one.err.matches("rejected: 1 x the offset is not a number, first line 401").count(), 1, "{}", one.err);
    // Without the rest of the report, what the result is without is still said, once.
    let quiet = run(&["--pattern", "trace:file=a.csv", "--format", columns, "-q"]);
    let warning = "warning: a.csv: rejected 1 of 401 lines: the offset is not a number\n";
    assert_eq!((quiet.code, quiet.err.as_str()), (0, warning));
    // A trace has its own length: the options say which part of it is counted, and their help says so.
    let part = run(&["--pattern", "trace:file=a.csv", "--format", columns, "--warm-up", "1", "--writes", "3"]);
    let part: Value = serde_json::from_str(part.out.lines().next().expect("a line")).expect("JSON");
    assert_eq!((&part["warm_up_blocks"], &part["metrics"]["user_blocks"]), (&100.into(), &300.0.into()), "{part}");
    let help = scratch.run(&["clean", "--help"]).out;
    let help: Vec<&str> = help.split_whitespace().collect();
    assert!(help.join(" ").contains("in multiples of the data; with a trace, see --writes"), "{help:?}");
    let pattern = format!("trace:file=a.csv,format=\"{columns}\"");
    let other = run(&["--pattern", &pattern]);
    assert_eq!((other.code, other.out), (0, one.out), "{}", other.err);
    let bare = run(&["--pattern", &format!("trace:file=a.csv,format={columns}")]);
    assert!(bare.code == 2 && bare.err.contains("Put a value with commas in quotes"), "{}", bare.err);
    let none = run(&["--format", columns]);
    assert!(none.code == 2 && none.err.contains("--format is for --pattern trace:file=FILE"), "{}", none.err);
    let open = run(&["--pattern", "trace:file=\"a.csv"]);
    assert!(open.code == 2 && open.err.contains("does not end"), "{}", open.err);
}
