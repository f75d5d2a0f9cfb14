//! Workloads that are written outside. Method: lists of calls, right and wrong, on a stack in virtual time and in a directory.

use std::io;
use std::sync::{Arc, Mutex};

use seekless::rt::{HostProfile, Work};
use seekless::stack::Stack;
use seekless::units::Nanos;
use seekless_lab::LabError;
use seekless_lab::run::{Run, run_in_directory, simulate};
use seekless_lab::target::{Coldness, Host};
use seekless_lab::workload::Unit;
use seekless_lab::workload::script::{Answer, Call, Calls, Next, Path, Script, Scripted};

use crate::GO_ON;

/// Makes its calls one after another, whatever the answers are, and keeps these as texts.
#[derive(Clone)]
struct Fixed {
    calls: Vec<Call>,
    answers: Arc<Mutex<Vec<String>>>,
}

struct Playing {
    fixed: Fixed,
    next: usize,
}

impl Script for Fixed {
    fn name(&self) -> &str {
        "Fixed"
    }

    fn parameters(&self) -> serde_json::Value {
        serde_json::json!({ "calls": self.calls.len() })
    }

    fn begin(&self, _: u64, _: bool) -> Result<Box<dyn Calls>, LabError> {
        Ok(Box::new(Playing { fixed: self.clone(), next: 0 }))
    }
}

impl Calls for Playing {
    fn next(&mut self, answer: &Result<Answer, LabError>, _: Nanos) -> Result<Next, LabError> {
        let text = match answer {
            Ok(answer) => format!("{answer:?}"),
            Err(error) => error.to_string(),
        };
        self.fixed.answers.lock().unwrap().push(text);
        self.next += 1;
        let call = self.fixed.calls.get(self.next - 1).cloned();
        Ok(call.map_or(Next::End, |call| Next::Call { call, count: 0, bytes: 0 }))
    }
}

fn at(path: &str) -> Path {
    Path { path: path.to_owned(), is_log: false }
}

fn begin(phase: &str) -> Call {
    Call::Begin { phase: phase.to_owned(), unit: Unit::Files, total: 1 }
}

const END: Call = Call::End { durable: true };

/// What comes of calls in virtual time, and their answers, without that to the beginning.
fn played(calls: Vec<Call>) -> (Result<Run, LabError>, Vec<String>) {
    let fixed = Fixed { calls, answers: Arc::default() };
    let program = Scripted { script: Box::new(fixed.clone()), seed: 1 };
    let stack = Stack::parse("lfs / disk:dec-rz26").unwrap();
    let run = simulate(&stack, None, HostProfile::NONE, &program, &GO_ON);
    let answers = fixed.answers.lock().unwrap().split_off(1);
    (run, answers)
}

fn in_one_phase(calls: Vec<Call>) -> Vec<Call> {
    [vec![begin("one")], calls, vec![END]].concat()
}

/// Calls are answered as a target answers them, and what is left open is closed.
#[test]
fn calls_have_answers() {
    let calls = in_one_phase(vec![
        Call::Mkdir(at("d")),
        Call::Create(at("d/a")),
        Call::Write { file: 1, offset: 3, bytes: b"text".to_vec() },
        Call::Stat(at("d/a")),
        Call::Read { file: 1, offset: 2, bytes: 100 },
        Call::Rename { from: at("d/a"), to: at("b") },
        Call::List(at("")),
        Call::Mkdir(at("d")),
        Call::Unlink(at("nothing")),
        Call::Open(at("b")),
    ]);
    let (run, answers) = played(calls);
    let run = run.unwrap();
    assert_eq!((run.phases.len(), run.phases[0].phase.as_str()), (1, "one"));
    assert!(run.phases[0].elapsed > Nanos::ZERO);
    let listed = "Names([Listed { name: \"d\", is_directory: true }, Listed { name: \"b\", is_directory: false }])";
    assert_eq!(
        answers[1..11],
        [
            "Nothing",
            "File(1)",
            "Nothing",
            "Size(7)",
            "Bytes([0, 116, 101, 120, 116])",
            "Nothing",
            listed,
            "cannot make the directory d: file exists",
            "cannot delete nothing: no such file or directory",
            "File(2)",
        ]
    );
}

/// What a script must not do is an error that it gets, and changes nothing.
#[test]
fn wrong_calls_are_refused() {
    let write = |offset| Call::Write { file: 1, offset, bytes: vec![1] };
    let read = |offset, bytes| Call::Read { file: 1, offset, bytes };
    let elsewhere = Path { path: "a".to_owned(), is_log: true };
    let wrong = vec![
        (Call::Create(at("../a")), "relative"),
        (Call::Create(at("/a")), "relative"),
        (Call::Unlink(at("d/../../a")), "relative"),
        (Call::Mkdir(at("d//a")), "relative"),
        (Call::Stat(at("./a")), "relative"),
        (Call::Open(at("a\0b")), "relative"),
        (Call::Create(elsewhere), "no separate storage"),
        (write(u64::MAX), "2^62"),
        (write(1 << 62), "2^62"),
        (read(u64::MAX, 1), "2^62"),
        (read(0, u64::MAX), "1 GiB"),
        (Call::Close(7), "the file is closed"),
        (Call::Fsync(7), "the file is closed"),
        (begin("two"), "`one` has not ended"),
        (Call::Compute(Work::Cycles(u64::MAX)), "146 years"),
        (Call::Compute(Work::Cycles(1 << 55)), "146 years"),
        (Call::Compute(Work::Compute { time: Nanos(u64::MAX) }), "146 years"),
    ];
    let (calls, said): (Vec<Call>, Vec<&str>) = wrong.into_iter().unzip();
    let (run, answers) = played(in_one_phase([vec![Call::Create(at("f"))], calls.clone()].concat()));
    assert_eq!(run.unwrap().phases.len(), 1);
    for ((call, said), answer) in calls.iter().zip(said).zip(&answers[2..]) {
        assert!(answer.contains(said), "{call:?}: {answer}");
    }
    for (calls, said) in [
        (vec![], "it has no phase"),
        (vec![begin("one")], "`one` has not ended"),
        (vec![begin("one"), Call::Discard], "it has no phase"),
    ] {
        let error = played(calls).0.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let (run, answers) = played(vec![END, begin("one"), END]);
    assert!(run.is_ok() && answers[0].contains("no phase has begun"), "{answers:?}");
}

/// In a directory of the host nothing is left, and nothing outside of the workload's own directory is reached.
/// A user who may not empty the caches of a mount measures all the same, and the result says so.
#[test]
fn caches_that_stay_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = Fixed { calls: in_one_phase(vec![Call::DropCaches]), answers: Arc::default() };
    let program = Scripted { script: Box::new(fixed), seed: 1 };
    let run = |drop_caches: fn(&std::path::Path) -> io::Result<()>| {
        let host = Host { sync: |_, _| Ok(()), drop_caches };
        run_in_directory(folder.path().to_str().unwrap(), host, &program, &GO_ON)
    };
    let refused = run(|_| Err(io::Error::new(io::ErrorKind::PermissionDenied, "only root may"))).unwrap();
    assert!(
        matches!(&refused.coldness, Coldness::Partly(left) if left.contains("only root may")),
        "{:?}",
        refused.coldness
    );
    assert!(run(|_| Err(io::Error::other("the disk is broken"))).is_err());
}

#[test]
fn directories_are_left_as_they_were() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine"), b"kept").unwrap();
    let calls = in_one_phase(vec![
        Call::Unlink(at("../mine")),
        Call::Mkdir(at("d")),
        Call::Create(at("d/left")),
        Call::Write { file: 1, offset: 0, bytes: b"x".to_vec() },
    ]);
    let fixed = Fixed { calls, answers: Arc::default() };
    let program = Scripted { script: Box::new(fixed), seed: 1 };
    let host = Host { sync: |_, _| Ok(()), drop_caches: |_| Ok(()) };
    let run = run_in_directory(folder.path().to_str().unwrap(), host, &program, &GO_ON).unwrap();
    assert_eq!(run.phases.len(), 1);
    let names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["mine"]);
}
