//! `clean`: what cleaning a log costs, simulated and by formula; `utilisations`: how full the segments are then [ro92 §3].

use std::ops::ControlFlow;
use std::path::PathBuf;

use seekless::cleaning::model;
use serde::Deserialize;

use super::{Context, Measure, Read, RunTarget, Workload, WorkloadKind, parse};
use crate::cleaning::{BINS, METRICS, Prepared, Simulation, distributions, metrics};

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
        Ok(Clean { method, simulation: parse(&table)? })
    }

    fn prepared(&self, on: &RunTarget) -> Result<Prepared, String> {
        match on {
            RunTarget::Nothing => self.simulation.prepare().map_err(|problem| format!("[workload]: {problem}")),
            _ => Err("nothing runs here, so a contestant has no `on`".into()),
        }
    }

    fn inputs(&self) -> Vec<PathBuf> {
        let prepared = self.simulation.prepare();
        prepared.ok().and_then(|prepared| prepared.trace().map(PathBuf::from)).into_iter().collect()
    }
}

impl Workload for Clean {
    fn inputs(&self) -> Vec<PathBuf> {
        self.inputs()
    }

    fn check(&self, on: &RunTarget) -> Result<(), String> {
        self.prepared(on).map(|_| ())
    }

    fn is_simulated(&self, _: &RunTarget, _: &Context<'_>) -> bool {
        true
    }

    fn run(&self, on: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let prepared = self.prepared(on)?;
        let utilisation = self.simulation.utilisation_percent / 100.0;
        let cleaned = match self.method {
            Method::Formula => utilisation,
            Method::Greedy => model::greedy_utilisation(utilisation, self.simulation.segment_blocks),
            Method::Simulate => {
                let outcome = prepared.run(context.folder, context.seed, &mut |_, _| ControlFlow::Continue(()))?.1;
                return Ok(vec![Measure::new(metrics(&outcome))]);
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

    fn is_simulated(&self, _: &RunTarget, _: &Context<'_>) -> bool {
        true
    }

    fn run(&self, on: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let prepared = self.0.prepared(on)?;
        let (_, outcome) = prepared.run(context.folder, context.seed, &mut |_, _| ControlFlow::Continue(()))?;
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
