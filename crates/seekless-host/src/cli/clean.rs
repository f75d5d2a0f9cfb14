//! `seekless clean`

use std::path::Path;

use comfy_table::{Cell, CellAlignment, Table, presets};
use seekless::cleaning::policy::Trigger;
use seekless::cleaning::{Outcome, PATTERNS, POLICIES, Setup};
use seekless::units::counted;
use seekless_lab::cleaning::{BINS, MakePolicy, Prepared, Simulation, distributions, metrics};
use serde_json::json;

use super::caller::{Caller, Step, Terminal};
use super::{Done, Failure, WRONG_USAGE, output};

/// Simulate how a log is cleaned, and compare policies
#[derive(clap::Args)]
#[command(
    after_help = "Write amplification counts the blocks written for each block of the user. Write cost also counts the \
                        blocks read for it: victims are read whole, unless they are empty.

`seekless clean --list` shows all policies and patterns with their options.

Examples:
  seekless clean greedy cost-benefit age-sort --pattern hot-and-cold --segment-blocks 512 --batch-blocks 2560
  seekless clean sepbit lifetime oracle --pattern zipf:skew=1 --utilisation 85 --histogram
  seekless clean greedy sepbit --pattern trace:file=sda.blktrace.0,times=5 --json
  seekless clean greedy --pattern trace:file=my.csv --format csv:time=1:us,op=2,offset=3:B,length=4:B

Exit codes: 0 simulated, 1 failed, 2 wrong usage"
)]
pub(super) struct Args {
    /// Policies to compare, with options: cost-benefit:age=root
    #[arg(required_unless_present = "list", value_name = "POLICY")]
    policies: Vec<String>,

    /// In which order blocks are written, with options: zipf:skew=0.9
    #[arg(long, default_value = "uniform")]
    pattern: String,

    /// The format of the trace of --pattern trace:file=..., if it cannot be detected; see `seekless trace formats`
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,

    /// Blocks of data, 262144 if not given; not with a trace, which has its own
    #[arg(long, value_name = "COUNT")]
    blocks: Option<u32>,

    /// Blocks in a segment
    #[arg(long, default_value_t = 256, value_name = "COUNT")]
    segment_blocks: u32,

    /// Live data as a share of all segments, in per cent; 75 if not given
    #[arg(long, value_name = "PERCENT", allow_negative_numbers = true)]
    utilisation: Option<f64>,

    /// How many segments there are, in place of the utilisation; open and clean ones count
    #[arg(long, conflicts_with = "utilisation", value_name = "COUNT")]
    segments: Option<u32>,

    /// A pass reads victims until they have this many live blocks; it has at least one
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    batch_blocks: u64,

    /// Cleaning begins when no more than this many segments are clean; 0 if not given
    #[arg(long, value_name = "COUNT")]
    reserve_segments: Option<u32>,

    /// Once begun, it goes on until this many segments are clean, and in any case until the user can write
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    target_segments: u32,

    /// Cleaning begins at this share of dead blocks, as in SepBIT's simulator, and space is not limited: in place of
    /// --utilisation, --segments and --reserve-segments
    #[arg(long, conflicts_with_all = ["utilisation", "segments", "reserve_segments"], value_name = "PERCENT", allow_negative_numbers = true)]
    garbage: Option<f64>,

    /// Writes before anything is counted, in multiples of the data; with a trace, see --writes
    #[arg(long, default_value_t = 20.0, value_name = "MULTIPLE", allow_negative_numbers = true)]
    warm_up: f64,

    /// Writes that are counted, in multiples of the data. A trace has as many as it has, and counts from the share
    /// WARM_UP / (WARM_UP + WRITES) of it on: `--warm-up 1 --writes 3` leaves out the first quarter
    #[arg(long, default_value_t = 20.0, value_name = "MULTIPLE", allow_negative_numbers = true)]
    writes: f64,

    /// Decides what is written, and what policies draw
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,

    /// Show how full the segments are when cleaning begins, and those that are cleaned
    #[arg(long)]
    histogram: bool,

    /// Show all policies and patterns, and stop
    #[arg(long)]
    list: bool,

    /// Print JSON, one line for each policy
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Done {
    if args.list {
        output::print(&list())?;
        return Ok(0);
    }
    let mut results = Vec::new();
    let mut first = FirstImport::default();
    for prepared in args.prepare()? {
        let terminal = Terminal::new(output::progress(0, "writes"), None);
        let result = args.simulate(&prepared, &terminal);
        terminal.clear();
        first.describe(&prepared, &terminal);
        let (setup, outcome) = result?;
        match args.json {
            // At once, because the next may take long.
            true => output::print_raw(&format!("{}\n", to_json(&prepared, &setup, &outcome)))?,
            false => results.push((prepared, setup, outcome)),
        }
    }
    if !args.json {
        output::print(&to_text(&results, args.histogram))?;
    }
    Ok(0)
}

/// Reports once how the trace was read: every policy reads the same.
#[derive(Default)]
pub(super) struct FirstImport {
    is_described: bool,
}

impl FirstImport {
    /// Reports it of the first that has read one, whether or not its simulation succeeded.
    pub(super) fn describe(&mut self, prepared: &Prepared, caller: &dyn Caller) {
        let Some(import) = prepared.import().filter(|_| !self.is_described) else { return };
        import.to_text().lines().for_each(|line| caller.note(line));
        if let Some(rejection) = import.rejection() {
            caller.note(&format!("warning: {rejection}"));
        }
        self.is_described = true;
    }
}

impl Args {
    /// The policies, parsed and checked.
    pub(super) fn prepare(&self) -> Result<Vec<Prepared>, Failure> {
        let wrong = |problem: String| Failure::new(problem).code(WRONG_USAGE);
        if self.format.is_some() && self.pattern.split(':').next().is_none_or(|word| word.trim() != "trace") {
            let problem = format!("--format is for --pattern trace:file=FILE, and the pattern is {}", self.pattern);
            return Err(wrong(problem));
        }
        let all = self.policies.iter().map(|policy| self.simulation(policy).prepare().map_err(wrong));
        let all: Vec<Prepared> = all.collect::<Result<_, _>>()?;
        if self.blocks.is_some() && all.iter().any(|prepared| prepared.trace().is_some()) {
            return Err(wrong("--blocks is not for a trace, which has its own blocks; leave it out".to_owned()));
        }
        Ok(all)
    }

    pub(super) fn simulate(&self, prepared: &Prepared, caller: &dyn Caller) -> Result<(Setup, Outcome), Failure> {
        let policy = prepared.policy();
        let mut progress = |done, all| caller.at(Step { what: &policy, done, total: Some(all), rate: None });
        let result = prepared.run(Path::new(""), self.seed, &mut progress);
        result.map_err(|problem| Failure::new(format!("{policy}: {problem}")))
    }

    /// The same with a policy of the caller, called `name`.
    pub(super) fn simulate_with(
        &self,
        prepared: &Prepared,
        name: &str,
        make: MakePolicy<'_>,
        caller: &dyn Caller,
    ) -> Result<(Setup, Outcome), Failure> {
        let mut progress = |done, all| caller.at(Step { what: name, done, total: Some(all), rate: None });
        let result = prepared.run_with(Path::new(""), self.seed, make, &mut progress);
        result.map_err(|problem| Failure::new(format!("{name}: {problem}")))
    }

    fn simulation(&self, policy: &str) -> Simulation {
        Simulation {
            policy: policy.to_owned(),
            pattern: match &self.format {
                None => self.pattern.clone(),
                // A list of options that may be empty.
                Some(format) => match self.pattern.contains(':') {
                    true => format!("{},format=\"{format}\"", self.pattern),
                    false => format!("{}:format=\"{format}\"", self.pattern),
                },
            },
            blocks: self.blocks.unwrap_or(Simulation::default().blocks),
            segment_blocks: self.segment_blocks,
            utilisation_percent: self.utilisation,
            segments: self.segments,
            batch_blocks: self.batch_blocks,
            reserve_segments: self.reserve_segments,
            target_segments: self.target_segments,
            garbage_percent: self.garbage,
            warm_up: self.warm_up,
            writes: self.writes,
        }
    }
}

/// The tables of policies and patterns.
fn list() -> String {
    let mut text = String::from("Policies\n");
    let keys = |keys: &[seekless::cleaning::words::Key]| -> String {
        keys.iter().map(|key| format!("      {}={}: {}\n", key.name, key.default, key.help)).collect()
    };
    for spec in POLICIES {
        let future = if spec.knows_future { "; knows the future" } else { "" };
        text += &format!("  {}: {} ({}){future}\n{}", spec.name, spec.help, spec.source, keys(spec.keys));
    }
    text += "\nPatterns\n";
    for spec in PATTERNS {
        text += &format!("  {}: {}\n{}", spec.name, spec.help, keys(spec.keys));
    }
    text
}

pub(super) fn to_json(prepared: &Prepared, setup: &Setup, outcome: &Outcome) -> serde_json::Value {
    let metrics: serde_json::Map<String, serde_json::Value> =
        metrics(outcome).into_iter().map(|(name, value)| (name.to_owned(), json!(value))).collect();
    let (segments, cleaned) = distributions(outcome);
    // Where space is not limited there is no number of segments, and garbage says how full the log is.
    let (reserve, garbage, count, full) = match setup.limits.trigger {
        Trigger::Clean(reserve) => (Some(reserve), None, Some(setup.segments), outcome.utilisation),
        Trigger::Garbage(share) => (None, Some(share), None, 1.0 - share),
    };
    json!({
        "kind": "cleaning",
        "seekless": env!("CARGO_PKG_VERSION"),
        "policy": prepared.policy(),
        "pattern": prepared.pattern(),
        "knows_future": prepared.knows_future(),
        "blocks": setup.blocks,
        "segment_blocks": setup.segment_blocks,
        "segments": count,
        "batch_blocks": setup.limits.batch_blocks,
        "reserve_segments": reserve,
        "target_segments": setup.limits.target,
        "garbage": garbage,
        "warm_up_blocks": setup.warm_up,
        "seed": setup.seed,
        "utilisation": full,
        "metrics": metrics,
        "segments_by_utilisation": segments,
        "cleaned_by_utilisation": cleaned,
        "head_blocks": outcome.heads,
    })
}

pub(super) fn to_text(results: &[(Prepared, Setup, Outcome)], histogram: bool) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "policy",
        "write amplification",
        "write cost",
        "cleaned at",
        "of these empty",
        "drift",
        "heads",
    ]);
    for (prepared, _, outcome) in results {
        let future = if prepared.knows_future() { " (knows the future)" } else { "" };
        let numbers = [
            format!("{:.3}", outcome.write_amplification()),
            format!("{:.3}", outcome.write_cost()),
            percent(outcome.cleaned_utilisation()),
            percent(outcome.cleaned_empty_share()),
            match outcome.drift() {
                drift if drift.is_finite() => format!("{:+.1} %", drift * 100.0),
                _ => "-".to_owned(),
            },
            outcome.heads.len().to_string(),
        ];
        let mut row = vec![Cell::new(format!("{}{future}", prepared.name()))];
        row.extend(numbers.iter().map(|text| Cell::new(text).set_alignment(CellAlignment::Right)));
        table.add_row(row);
    }
    let mut text = String::new();
    if let Some((prepared, setup, outcome)) = results.first() {
        text += &format!("{}\n{}\n\n", prepared.pattern(), in_words(setup, outcome));
    }
    text += &format!("{table}\nWrite cost counts reads, write amplification does not.\n");
    for (prepared, setup, outcome) in results {
        if prepared.name() != prepared.policy() {
            text += &format!("{} is {}\n", prepared.name(), prepared.policy());
        }
        if outcome.counts.diverted > 0 {
            text += &format!(
                "{}: {} of the blocks went to another head, because no segment was clean\n",
                prepared.name(),
                percent(outcome.counts.diverted as f64 / (outcome.counts.user + outcome.counts.moved) as f64)
            );
        }
        if setup.segments != results[0].1.segments {
            text += &format!("{}: {}\n", prepared.policy(), in_words(setup, outcome));
        }
    }
    if histogram {
        for (prepared, _, outcome) in results {
            text += &format!("\n{}\n{}", prepared.policy(), histogram_text(outcome));
        }
    }
    text
}

/// What was simulated, with every parameter that the result depends on.
fn in_words(setup: &Setup, outcome: &Outcome) -> String {
    let when = match setup.limits.trigger {
        Trigger::Clean(0) => "when no segment is clean".to_owned(),
        Trigger::Clean(reserve) => format!("with {} left", counted(reserve.into(), "clean segment")),
        Trigger::Garbage(share) => format!("at {} garbage", percent(share)),
    };
    let log = match setup.limits.trigger {
        Trigger::Clean(_) => {
            let (segments, full) = (setup.segments, percent(outcome.utilisation));
            format!("{segments} segments of {}, open ones included: {full} full", setup.segment_blocks)
        }
        Trigger::Garbage(share) => {
            let full = percent(1.0 - share);
            format!("as many segments of {} as it takes: {full} full when cleaning begins", setup.segment_blocks)
        }
    };
    let pass = match setup.limits.batch_blocks {
        0 => "one segment".to_owned(),
        blocks => format!("segments with at least {}", counted(blocks, "live block")),
    };
    let until = match setup.limits.target {
        0 => String::new(),
        1 => ", passes follow until a segment is clean".to_owned(),
        target => format!(", passes follow until {target} segments are clean"),
    };
    format!(
        "{} blocks in {log}; cleaning begins {when}, and a pass cleans {pass}{until}; {} writes after {}; seed {}",
        setup.blocks, outcome.counts.user, setup.warm_up, setup.seed,
    )
}

/// Bars of the two distributions, side by side.
fn histogram_text(outcome: &Outcome) -> String {
    let (segments, cleaned) = distributions(outcome);
    let mut text = format!("  utilisation  {:<30} {}\n", "segments when cleaning begins", "cleaned segments");
    for (bin, (segments, cleaned)) in segments.iter().zip(&cleaned).enumerate() {
        let width = 100 / BINS;
        let bar = |share: &f64| "#".repeat((share * 60.0).round().min(20.0) as usize);
        text += &format!(
            "  {:>3} to {:>3} %  {:>6} {:<23} {:>6} {}\n",
            bin * width,
            (bin + 1) * width,
            percent(*segments),
            bar(segments),
            percent(*cleaned),
            bar(cleaned)
        );
    }
    text
}

fn percent(share: f64) -> String {
    match share.is_finite() {
        true => format!("{:.1} %", share * 100.0),
        false => "-".to_owned(),
    }
}
