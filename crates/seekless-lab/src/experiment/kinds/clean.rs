//! `clean`: what cleaning a log costs, simulated and by formula; `utilisations`: how full the segments are then [ro92 §3].

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use seekless::cleaning::{Outcome, model};
use seekless::stack::Stack;
use serde::Deserialize;

use super::{Context, Measure, Read, RunTarget, Workload, WorkloadKind, parse, with_drives};
use crate::cleaning::{BINS, METRICS, Prepared, Recording, Simulation, distributions, metrics};
use crate::run::{can_be_simulated, record};
use crate::workload::{PhaseProgress, Program, WORKLOADS, WorkloadSpec};

pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "clean",
    help: "what cleaning a log costs, by simulation or formula",
    dims: &[],
    metrics: METRICS,
    read: Read::Other(|table| Clean::read(table).map(|clean| Box::new(clean) as Box<dyn Workload>)),
};

pub(super) const DISTRIBUTION: WorkloadKind = WorkloadKind {
    name: "utilisations",
    help: "how full the segments of a log are when cleaning begins",
    dims: &["segment_utilisation"],
    metrics: &[
        ("segments_share", "of the closed segments when cleaning begins, in a bin of 5 % around this utilisation"),
        ("cleaned_share", "of the segments that are cleaned, in the same bin"),
    ],
    read: Read::Other(|table| Clean::read(table).map(|clean| Box::new(Utilisations(clean)) as Box<dyn Workload>)),
};

/// Its parameters in `[workload]`.
struct Clean {
    method: Method,
    simulation: Simulation,
    /// Where a trace without a file comes from.
    recorded: Option<Recorded>,
}

/// A program whose writes to the device below a file system are recorded.
struct Recorded {
    stack: Stack,
    spec: &'static WorkloadSpec,
    numbers: toml::Table,
}

impl Recorded {
    /// Takes `record = "NAME"` and `[workload.recordings.NAME]` from the parameters. A recording has `on`, a stack, and a
    /// `kind` of program with its keys.
    fn take(table: &mut toml::Table) -> Result<Option<Recorded>, String> {
        let (recordings, name) = match (table.remove("recordings"), table.remove("record")) {
            (None, None) => return Ok(None),
            (Some(toml::Value::Table(recordings)), Some(toml::Value::String(name))) => (recordings, name),
            _ => return Err("[workload]: `record` is the name of a table of [workload.recordings]".into()),
        };
        match recordings.get(&name) {
            Some(toml::Value::Table(numbers)) => Recorded::read(numbers.clone()).map(Some),
            _ => Err(format!("[workload]: there is no [workload.recordings.{name}]")),
        }
    }

    fn read(mut numbers: toml::Table) -> Result<Recorded, String> {
        let wrong = |problem: &str| format!("[workload]: recordings: {problem}");
        let mut text = |key: &str| match numbers.remove(key) {
            Some(toml::Value::String(text)) => Ok(text),
            _ => Err(wrong(&format!("it needs `{key}`, a text"))),
        };
        let (on, kind) = (text("on")?, text("kind")?);
        let stack = Stack::parse(&on).map_err(|error| wrong(&error.to_string()))?;
        if !can_be_simulated(&stack) {
            return Err(wrong("what is recorded runs in virtual time, and `on` lies in the real world"));
        }
        let spec = WORKLOADS.iter().find(|spec| spec.name == kind);
        let spec = *spec.ok_or_else(|| wrong(&format!("there is no workload `{kind}`")))?;
        let recorded = Recorded { stack, spec, numbers };
        recorded.program(1)?;
        Ok(recorded)
    }

    fn program(&self, seed: u64) -> Result<Box<dyn Program>, String> {
        self.spec.read(&self.numbers, Some(seed)).map_err(|error| format!("[workload]: recordings: {error}"))
    }

    fn operations(&self, context: &Context<'_>) -> Result<(Arc<[u32]>, u32), String> {
        let recording = Rc::new(RefCell::new(Recording::default()));
        let stop = context.outside.stop();
        let watch = &|_: PhaseProgress<'_>| stop.flow();
        let program = self.program(context.seed)?;
        let stack = with_drives(self.stack.clone(), context.folder)?;
        record(&stack, context.profile, &*program, watch, recording.clone()).map_err(|error| error.to_string())?;
        let recording = std::mem::take(&mut *recording.borrow_mut());
        recording.finish().map_err(|problem| format!("[workload]: {} {problem}", self.spec.name))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Method {
    Simulate,
    /// [ro92 §3.4, formula 1], as if every segment were as full as all together.
    Formula,
    /// What greedy costs under uniform writes.
    Greedy,
}

impl Clean {
    /// A simulation with one more key; both refuse what they do not know.
    fn read(table: &toml::Table) -> Result<Clean, String> {
        let mut table = table.clone();
        let method = match table.remove("method") {
            None => Method::Simulate,
            Some(method) => Method::deserialize(method).map_err(|error| format!("[workload]: {}", error.message()))?,
        };
        let recorded = Recorded::take(&mut table)?;
        Ok(Clean { method, simulation: parse(&table)?, recorded })
    }

    fn prepared(&self, on: &RunTarget) -> Result<Prepared, String> {
        match on {
            RunTarget::Nothing => {
                let prepared = self.simulation.prepare().map_err(|problem| format!("[workload]: {problem}"))?;
                match prepared.needs_recording() == self.recorded.is_some() {
                    true => Ok(prepared),
                    false => {
                        Err("[workload]: the pattern `trace` needs either `file=` or `record`, and only it can have \
                                  `record`"
                            .into())
                    }
                }
            }
            _ => Err("nothing runs here, so a contestant has no `on`".into()),
        }
    }

    /// Of all segments together: what is asked for, or what follows from their number.
    fn utilisation(&self) -> Result<f64, String> {
        let Simulation { blocks, segments, segment_blocks, .. } = self.simulation;
        let Some(segments) = segments else { return Ok(self.simulation.utilisation() / 100.0) };
        let places = u64::from(segments) * u64::from(segment_blocks);
        match u64::from(blocks) < places {
            true => Ok(f64::from(blocks) / places as f64),
            false => Err(format!("[workload]: {blocks} blocks leave nothing of {segments} segments to clean")),
        }
    }

    /// What a formula would not use, although it is not as the formula has it. How long to write, and in how many blocks, are the
    /// accuracy of a simulation.
    fn unused_by_formulas(&self) -> Option<&'static str> {
        let (ours, plain) = (&self.simulation, Simulation::default());
        [
            ("policy", ours.policy != plain.policy),
            ("pattern", ours.pattern != plain.pattern),
            ("batch_blocks", ours.batch_blocks != plain.batch_blocks),
            ("reserve_segments", ours.reserve_segments.unwrap_or(0) != 0),
            ("target_segments", ours.target_segments != plain.target_segments),
            ("garbage_percent", ours.garbage_percent.is_some()),
        ]
        .into_iter()
        .find_map(|(name, differs)| differs.then_some(name))
    }

    fn simulate(&self, prepared: &Prepared, context: &Context<'_>) -> Result<Outcome, String> {
        let stop = context.outside.stop();
        let watch = &mut |_, _| stop.flow();
        let simulated = match &self.recorded {
            Some(recorded) => prepared.run_on(Some(recorded.operations(context)?), context.seed, watch),
            None => prepared.run(context.folder, context.seed, watch),
        };
        let unsound =
            prepared.import().and_then(|import| Some(format!("{}: {}", import.files.join(", "), import.unsound()?)));
        match unsound {
            Some(problem) => Err(problem),
            None => simulated.map(|(_, outcome)| outcome),
        }
    }

    fn inputs(&self) -> Vec<PathBuf> {
        let prepared = self.simulation.prepare();
        let trace = prepared.ok().and_then(|prepared| prepared.trace().map(PathBuf::from));
        let drives = self.recorded.iter().flat_map(|recorded| recorded.stack.drive_files()).map(PathBuf::from);
        trace.into_iter().chain(drives).collect()
    }
}

impl Workload for Clean {
    fn inputs(&self) -> Vec<PathBuf> {
        self.inputs()
    }

    fn check(&self, on: &RunTarget) -> Result<(), String> {
        let prepared = self.prepared(on)?;
        if self.method == Method::Simulate {
            return Ok(());
        }
        if prepared.trace().is_some() || prepared.needs_recording() {
            return Err("[workload]: the formulas are those of random writes, and know no trace".into());
        }
        if let Some(name) = self.unused_by_formulas() {
            return Err(format!(
                "[workload]: the formulas are those of `greedy` under `uniform` writes, one victim at a time and without a reserve, \
                 and would not use this `{name}`; leave it out here, or simulate"
            ));
        }
        self.utilisation().map(|_| ())
    }

    fn run(&self, on: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let prepared = self.prepared(on)?;
        let cleaned = match self.method {
            Method::Formula => self.utilisation()?,
            Method::Greedy => model::greedy_utilisation(self.utilisation()?, self.simulation.segment_blocks),
            Method::Simulate => {
                return Ok(vec![Measure::new(metrics(&self.simulate(&prepared, context)?))]);
            }
        };
        let formulas = [
            ("write_cost", Some(model::write_cost(cleaned))),
            ("write_amplification", Some(model::write_amplification(cleaned))),
            ("cleaned_utilisation", Some(cleaned)),
        ];
        Ok(vec![Measure::new(formulas)])
    }
}

/// The same, for its distributions.
struct Utilisations(Clean);

impl Workload for Utilisations {
    fn inputs(&self) -> Vec<PathBuf> {
        self.0.inputs()
    }

    fn check(&self, on: &RunTarget) -> Result<(), String> {
        match self.0.method {
            Method::Simulate => self.0.check(on),
            _ => Err("[workload]: formulas know no distributions".into()),
        }
    }

    fn run(&self, on: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let prepared = self.0.prepared(on)?;
        let outcome = self.0.simulate(&prepared, context)?;
        let (segments, cleaned) = distributions(&outcome);
        let measure = |(bin, (segments, cleaned)): (usize, (&f64, &f64))| {
            let shares = [("segments_share", Some(*segments)), ("cleaned_share", Some(*cleaned))];
            let mut measure = Measure::new(shares);
            let middle = (bin as f64 + 0.5) / BINS as f64;
            measure.dims.insert("segment_utilisation".to_owned(), crate::experiment::Value::Number(middle));
            measure
        };
        Ok(segments.iter().zip(&cleaned).enumerate().map(measure).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clean(text: &str) -> Clean {
        Clean::read(&text.parse().expect("a table")).expect("a description")
    }

    /// Aim: the size of a log is given in one way, as on the command line, where the second would say nothing. Method: each pair.
    #[test]
    fn the_size_of_a_log_is_given_once() {
        for (pair, unused) in [
            ("garbage_percent = 15\nutilisation_percent = 60", "utilisation_percent"),
            ("garbage_percent = 15\nsegments = 2000", "segments"),
            ("garbage_percent = 15\nreserve_segments = 4", "reserve_segments"),
            ("segments = 2000\nutilisation_percent = 60", "utilisation_percent"),
        ] {
            let error = clean(pair).check(&RunTarget::Nothing).unwrap_err();
            assert!(error.contains(&format!("would not use `{unused}`")), "{pair}: {error}");
        }
    }

    /// The formulas count the segments that are given, as a simulation does, and refuse what they know nothing about.
    #[test]
    fn formulas_take_the_given_segments() {
        for method in ["formula", "greedy"] {
            let of = |rest: &str| clean(&format!("method = '{method}'\nblocks = 4096\nsegment_blocks = 128\n{rest}"));
            let check = |rest: &str| of(rest).check(&RunTarget::Nothing);
            assert_eq!(of("segments = 64").utilisation(), Ok(0.5));
            assert_eq!(of("utilisation_percent = 60").utilisation(), Ok(0.6));
            assert_eq!(check("segments = 64"), Ok(()));
            assert!(check("segments = 32").unwrap_err().contains("nothing of 32 segments"));
            assert!(check("pattern = 'trace:file=a.csv'").unwrap_err().contains("know no trace"));
            for same in ["policy = 'greedy'", "pattern = 'uniform'", "reserve_segments = 0", "writes = 3\nwarm_up = 2"]
            {
                assert_eq!(check(same), Ok(()), "{same}");
            }
            for other in [
                "policy = 'fifo'",
                "pattern = 'zipf:skew=1'",
                "batch_blocks = 2560",
                "reserve_segments = 12",
                "target_segments = 1",
                "garbage_percent = 15",
            ] {
                let (name, error) = (other.split(' ').next().unwrap(), check(other).unwrap_err());
                assert!(error.contains(&format!("would not use this `{name}`")), "{other}: {error}");
            }
        }
    }
}
