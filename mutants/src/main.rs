//! Mutants: small changes of the engine, each of which a test should notice.
//!
//! All mutants are woven into one copy of the sources and compiled once; the variable `SEEKLESS_MUTANT` then switches
//! one of them on (mutant schemata). The steps:
//!
//! 1. `find` lists candidates in the files of `rooms.toml`, and takes a seeded sample of each room; `chosen.toml` adds
//!    those that people chose because the promise of a room hangs on them.
//! 2. `weave` writes the copy, below `target/mutants/tree`.
//! 3. `compile` checks it, drops the mutants that the compiler rejects, and builds the tests.
//! 4. `trial` runs each test once, alone, to learn how long it takes and which mutants it reaches; then each mutant
//!    with the tests of its room that reach it, until one fails.
//! 5. `report` prints the score. A survivor is either explained in `survivors.toml` or listed.
//!
//! A run that is interrupted goes on where it was (`progress`), as long as neither the engine nor its tests have
//! changed.

mod compile;
mod find;
mod progress;
mod report;
mod rooms;
mod trial;
mod weave;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Parser;

use crate::rooms::Rooms;

#[derive(Parser)]
#[command(about = "Changes the engine in small ways, and looks whether its tests notice")]
struct Args {
    /// Only these rooms, with commas between them
    #[arg(long, value_delimiter = ',')]
    room: Vec<String>,
    /// Only mutants whose identity begins with one of these, with commas between them
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Only those that people chose
    #[arg(long)]
    chosen: bool,
    /// Draws the sample
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many of each room's sample to take, in percent
    #[arg(long, default_value_t = 100)]
    percent: u64,
    /// Print the mutants and stop
    #[arg(long)]
    list: bool,
    /// Seconds for all trials; the mutants that are left over are counted as not tried
    #[arg(long)]
    seconds: Option<u64>,
    /// Begin again, also where an interrupted run has been
    #[arg(long)]
    forget: bool,
    /// Test processes at once
    #[arg(long, default_value_t = 2)]
    jobs: usize,
    /// Write the results as JSON to this file
    #[arg(long)]
    json: Option<PathBuf>,
}

fn main() -> Result<()> {
    let args = Args::parse();
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().context("this crate is in the project")?.to_owned();
    let rooms = Rooms::read(&root)?;
    let mut mutants = find::all(&root, &rooms, args.seed, args.percent)?;
    let unknown = args.room.iter().find(|room| !rooms.rooms.contains_key(*room));
    ensure!(unknown.is_none(), "rooms.toml has no room {}", unknown.map_or("", String::as_str));
    mutants.retain(|mutant| args.room.is_empty() || args.room.contains(&mutant.room));
    mutants.retain(|mutant| args.only.is_empty() || args.only.iter().any(|only| mutant.id.starts_with(only.as_str())));
    mutants.retain(|mutant| !args.chosen || mutant.why.is_some());
    ensure!(!mutants.is_empty(), "no mutant is left to try; `--list` shows what there is");
    if args.list {
        for mutant in &mutants {
            println!("{mutant}");
        }
        println!("{} mutants", mutants.len());
        return Ok(());
    }
    let place = compile::Place::new(&root);
    let built = compile::build(&place, &root, &rooms, mutants)?;
    let manner = trial::Manner { jobs: args.jobs, seconds: args.seconds, forget: args.forget };
    let results = trial::run(&place, &rooms, built, &manner)?;
    report::print(&rooms, &results, args.json.as_deref())
}
