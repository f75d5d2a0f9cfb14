//! `seekless disk`: the drives of the disk model. This file has the list.

use super::{Done, list, output};

/// Look at modelled disk drives, and compare them with measurements of the real ones
#[derive(clap::Subcommand)]
pub(super) enum Command {
    List(ListArgs),
    Info(super::drive_info::Args),
    Import(super::drive_import::Args),
    Fit(super::drive_fit::Args),
    Measure(super::drive_measure::Args),
    Validate(super::validate::Args),
}

/// Show the drives of the catalogue, and what is known of each
#[derive(clap::Args)]
#[command(after_help = "The same as `seekless list drives`.

Examples:
  seekless disk list
  seekless disk list --json

Exit codes: 0 shown, 2 wrong usage")]
pub(super) struct ListArgs {
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn list(args: &ListArgs) -> Done {
    match args.json {
        true => output::print_json(&list::drives_json())?,
        false => output::print(&list::drives())?,
    }
    Ok(0)
}
