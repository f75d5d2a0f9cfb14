//! `seekless merge`: one folder of results from those of shards.

use std::path::PathBuf;

use seekless_lab::experiment::Results;

use super::conclude::{self, Origin, Show, missing, this_program};
use super::run::{Which, installed};
use super::sweep::is_simulated;
use super::{Done, Failure, output};

/// Put the results of shards together, and check what the experiment claims
///
/// Reads the folders that seekless run --shard has left, on whatever machines, and makes the folder that one run of the
/// whole experiment would have made. The folders may be of runs that were killed, may overlap, and may be merged again
/// later: what is there is not added twice, and points that two of them measured in virtual time have to be the same.
#[derive(clap::Args)]
#[command(
    after_help = "Every shard has to come from this very program, since results of another one are not used. What no folder has is \
                        named; seekless run --out with the merged folder measures just that.

Examples:
  seekless run experiments/st05-fig6 --shard 1/2
  seekless run experiments/st05-fig6 --shard 2/2
  seekless merge experiments/st05-fig6 results/st05-fig6.*-of-2
  seekless report results/st05-fig6 -o fig6.html

Exit codes: 0 complete, 1 failed, points are missing, or with --check a claim did not hold, 2 wrong usage"
)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,

    /// Folders of results
    #[arg(required = true, value_name = "RESULTS")]
    from: Vec<PathBuf>,

    /// Where the results go; results/NAME without, and results/NAME-quick with --quick
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,

    #[command(flatten)]
    show: Show,
}

/// Missing points that are named; of more, the number.
const NAMED_MAX: usize = 10;

pub(super) fn run(args: &Args) -> Done {
    let experiment = args.which.read(installed)?;
    let program = this_program()?;
    let plan = args.which.plan(&experiment, &program)?;
    let folder = args.out.clone().unwrap_or_else(|| args.which.results(&experiment, None));
    let mut results = Results::open(&folder, &plan)?;
    let (mut added, mut only_foreign, mut origins) = (0, false, Vec::new());
    let bar = output::points(args.from.len() as u64);
    for from in &args.from {
        bar.set_message(from.display().to_string());
        let merged = results.merge(from, &plan, |point| is_simulated(&experiment, point).unwrap_or(false))?;
        added += merged.added;
        only_foreign |= merged.known == 0 && merged.foreign > 0;
        if merged.foreign > 0 {
            output::note(&format!(
                "{}: {} points belong to another program or another experiment, and are left out",
                from.display(),
                merged.foreign
            ));
        }
        origins.extend(Results::provenance_of(from)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let origin = Origin::new(&experiment, program, 0).merged(origins);
    let provenance = origin.provenance(added, &results, &plan);
    let rows = results.finish(&experiment, &plan, &provenance)?;
    let missing = missing(&results, &plan);
    if missing.is_empty() {
        return conclude::print(&experiment, &rows, &folder, args.which.quick, &args.show);
    }
    if args.show.json {
        output::print_raw(&conclude::to_json(&rows, &[], &[]))?;
    }
    let named: Vec<String> = missing.iter().take(NAMED_MAX).map(|&point| plan.name_of(point)).collect();
    let others = match missing.len() - named.len() {
        0 => String::new(),
        count => format!("\n  and {count} more"),
    };
    let text =
        format!("{} of {} points are missing:\n  {}{others}", missing.len(), plan.points.len(), named.join("\n  "));
    let hint = match only_foreign {
        false => format!(
            "merge the other shards too, or measure them here: seekless run {}{} --out {}",
            seekless::stack::quoted_path(args.which.folder()),
            if args.which.quick { " --quick" } else { "" },
            seekless::stack::quoted_path(&folder)
        ),
        true => "run the shards with this program, and with the same --quick and --over".to_owned(),
    };
    Err(Failure::new(text).hint(hint))
}
