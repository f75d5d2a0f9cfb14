//! `count`: how many requests a trace has, whole or cut into blocks. Nothing is replayed.

use std::path::PathBuf;

use serde::Deserialize;

use super::replay::Wanted;
use super::{Bytes, Context, Measure, Read, RunTarget, Workload, WorkloadKind, existing, parse};
use crate::trace::{Op, Options};

pub(super) const KIND: WorkloadKind = WorkloadKind {
    name: "count",
    help: "requests of a block trace, counted",
    dims: &["operation"],
    metrics: &[
        ("requests", "how many"),
        ("bytes", "of all of them together"),
        ("request_mean_bytes", "of one, on average"),
        ("requests_share", "share of this operation among all requests"),
        ("requests_more", "requests more than the trace has, because they are cut into blocks"),
    ],
    read: Read::Other(|table| parse::<Count>(table).map(|count| Box::new(count) as Box<dyn Workload>)),
};

/// Its parameters in `[workload]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Count {
    trace: PathBuf,
    #[serde(default)]
    format: Option<String>,
    /// Requests are cut into blocks of this size, each a separate request.
    #[serde(default)]
    block: Option<Bytes>,
    #[serde(default)]
    requests: Option<u64>,
}

impl Count {
    fn wanted(&self, path: PathBuf) -> Wanted {
        let Count { format, block, requests, .. } = self;
        Wanted { path, format: format.clone(), block: *block, permute: None, size: None, requests: *requests }
    }
}

impl Workload for Count {
    fn inputs(&self) -> Vec<PathBuf> {
        vec![self.trace.clone()]
    }

    fn check(&self, on: &RunTarget) -> Result<(), String> {
        self.wanted(self.trace.clone()).check()?;
        match on {
            RunTarget::Nothing => Ok(()),
            _ => Err("nothing runs here, so a contestant has no `on`".into()),
        }
    }

    fn run(&self, _: &RunTarget, context: &Context<'_>) -> Result<Vec<Measure>, String> {
        let path = existing(context.folder, &self.trace)?;
        let cut = counts(&self.wanted(path.clone()))?;
        let whole = counts(&Wanted { block: None, ..self.wanted(path) })?;
        let all = cut.iter().fold((0, 0), |(requests, bytes), one| (requests + one.0, bytes + one.1));
        let all_whole: u64 = whole.iter().map(|(requests, _)| requests).sum();
        // Even when there are none: that is information, too.
        let measure = |name: &str, (requests, bytes): (u64, u64), before: u64| {
            let metrics = [
                ("requests", Some(requests as f64)),
                ("bytes", Some(bytes as f64)),
                ("request_mean_bytes", (requests > 0).then(|| bytes as f64 / requests as f64)),
                ("requests_share", Some(requests as f64 / all.0 as f64)),
                ("requests_more", Some(requests as f64 - before as f64)),
            ];
            Measure::new(metrics).at("operation", name)
        };
        let of = |op: Op| measure(op.name(), cut[op.index()], whole[op.index()].0);
        Ok(vec![of(Op::Read), of(Op::Write), measure("all", all, all_whole)])
    }
}

/// Requests and bytes of each operation.
fn counts(wanted: &Wanted) -> Result<[(u64, u64); Op::ALL.len()], String> {
    let mut counts = [(0_u64, 0_u64); Op::ALL.len()];
    for request in wanted.open(Options::default())? {
        let request = request.map_err(|error| error.to_string())?;
        let (requests, bytes) = &mut counts[request.op.index()];
        (*requests, *bytes) = (*requests + 1, bytes.saturating_add(request.bytes));
    }
    Ok(counts)
}
