//! The lists are of the program as it is: cheap experiments are run again, all of their points, and compared with what the lists have of them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use seekless_lab::LabError;
use seekless_lab::experiment::{Experiment, Measure, MountJob, Outside, Plan, Results, Row, RunTarget, patiently};
use seekless_lab::run::Run;
use seekless_lab::workload::Program;

use super::statements::{answers, experiments, list, papers};

/// What is run again: of each file system that the papers compare, by what takes little time.
const CHEAP: &[&str] = &["ro92-fig8", "se95-fig1", "wa99-delayed", "wa99-fig6", "za01-fig8b"];

/// All of it is simulated.
struct Simulated;

impl Outside for Simulated {
    fn files(&self, _: &RunTarget, _: &dyn Program) -> Result<Run, LabError> {
        Err(LabError::Spec("there is no real time in this test".into()))
    }

    fn mounts(&self, job: &MountJob) -> Result<Vec<Measure>, String> {
        Err(format!("there is no {} in this test", job.mount))
    }
}

/// Runs all points of an experiment, one on each processor.
fn run(experiment: &Experiment) -> Vec<Row> {
    let plan = Plan::new(experiment, "this program").unwrap_or_else(|error| panic!("{error}"));
    let (next, measured) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(point) = plan.points.get(next.fetch_add(1, Ordering::Relaxed)) {
            let measures = point.measure(experiment, &Simulated).unwrap_or_else(|problem| panic!("{problem}"));
            measured.lock().expect("no other thread has failed").push((point, measures));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let folder = tempfile::tempdir().expect("a directory");
    let mut results = Results::open(folder.path(), &plan, &patiently).expect("a folder of results");
    for (point, measures) in measured.into_inner().expect("no thread has failed") {
        results.add(point, measures, &patiently).expect("a point can be added");
    }
    results.finish(experiment, &plan, &serde_json::json!({}), &patiently).expect("all points were measured")
}

/// Aim: a change of a file system or of a model that changes results changes the lists and the pages with them. Method: some experiments in full, and
/// each number that a list has from them.
#[test]
fn lists_are_of_this_program() {
    let experiments = experiments();
    let (mut compared, mut old) = (0, Vec::new());
    for name in CHEAP {
        let experiment = experiments.get(*name).unwrap_or_else(|| panic!("there is no experiment {name}"));
        let found = answers(experiment, &run(experiment));
        for paper in papers() {
            for statement in list(paper) {
                let Some(range) = found.get(&format!("{paper}/{}", statement.id)) else { continue };
                let mut now = statement.clone();
                now.set_measured(*range);
                compared += 1;
                if now.measured() != statement.measured() {
                    let text = |range: Option<(f64, f64)>| {
                        range.map_or("nothing".into(), |(least, most)| format!("{least} to {most}"))
                    };
                    let (was, is) = (text(statement.measured()), text(now.measured()));
                    old.push(format!("{paper}.csv, {}: {was}; experiments/{name} gives {is}", statement.id));
                }
            }
        }
    }
    assert!(compared > 20, "only {compared} numbers were compared");
    assert!(
        old.is_empty(),
        "\ndocs/papers/statements has numbers of another program:\n{}\nIf the change is right, run every experiment that it may have changed, \
         not only these, with `seekless run experiments/NAME`, and renew the lists, the pages and the pictures as docs/papers.md says: \
         SEEKLESS_RESULTS=results SEEKLESS_BLESS=1 cargo test -p seekless-host --test pages",
        old.join("\n")
    );
}
