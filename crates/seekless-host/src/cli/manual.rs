//! `seekless completions` and `seekless man`

use std::path::PathBuf;

use clap::Command;
use clap_complete::Shell;

use super::{Done, Failure, output};

/// Print a completion script for a shell
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless completions bash > ~/.local/share/bash-completion/completions/seekless
  seekless completions fish > ~/.config/fish/completions/seekless.fish

Exit codes: 0 printed, 2 wrong usage")]
pub(super) struct CompletionsArgs {
    /// Which shell
    #[arg(value_enum)]
    shell: Shell,
}

/// Write the manual pages into a directory
#[derive(clap::Args)]
#[command(after_help = "Example:
  seekless man /usr/local/share/man/man1

Exit codes: 0 written, 1 failed, 2 wrong usage")]
pub(super) struct ManArgs {
    /// A directory that is there
    directory: PathBuf,
}

pub(super) fn completions(args: &CompletionsArgs, mut command: Command) -> Done {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "seekless", &mut script);
    output::print(&String::from_utf8_lossy(&script))?;
    Ok(0)
}

pub(super) fn pages(args: &ManArgs, command: Command) -> Done {
    let failed = |error| Failure::new(format!("cannot write the manual into {}: {error}", args.directory.display()));
    clap_mangen::generate_to(command, &args.directory).map_err(failed)?;
    Ok(0)
}
