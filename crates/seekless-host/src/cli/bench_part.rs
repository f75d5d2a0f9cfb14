//! `seekless bench-part`: processes that `seekless bench mount` starts. Not for people.

use std::path::PathBuf;

use super::{Done, Failure};
use crate::mount_bench::{self, NullOptions, Settle, Task};

/// A part of `seekless bench mount` in a process of its own
#[derive(clap::Subcommand)]
pub(super) enum Command {
    /// Become a program that ends with the bench
    Exec {
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Mount a file system that stores nothing
    Null {
        #[arg(long)]
        uring: bool,
        #[arg(long)]
        messages: bool,
        #[arg(long)]
        writeback: bool,
        #[arg(long)]
        names: Option<PathBuf>,
        directory: PathBuf,
    },
    /// Do a phase
    Client(Client),
}

#[derive(clap::Args)]
pub(super) struct Client {
    #[arg(long)]
    phase: String,
    #[arg(long)]
    directory: PathBuf,
    #[arg(long, value_enum)]
    settle: Settle,
    #[arg(long)]
    below: Option<PathBuf>,
    #[arg(long)]
    files: u64,
    #[arg(long)]
    large: u64,
    #[arg(long)]
    syncs: u64,
    #[arg(long)]
    checks: bool,
    #[arg(long)]
    material: PathBuf,
}

pub(super) fn run(command: &Command) -> Done {
    match command {
        Command::Exec { command } => {
            let error = mount_bench::become_part(command);
            return Err(Failure::new(format!("cannot run {}: {error}", command.join(" "))));
        }
        Command::Null { uring, messages, writeback, names, directory } => {
            mount_bench::end_with_parent()?;
            let (uring, messages, writeback) = (*uring, *messages, *writeback);
            let options = NullOptions { uring, messages, writeback, names: names.clone() };
            mount_bench::serve_null(directory, options).map_err(Failure::new)?;
        }
        Command::Client(client) => {
            mount_bench::end_with_parent()?;
            let task = Task {
                phase: client.phase.clone(),
                directory: client.directory.clone(),
                settle: client.settle,
                below: client.below.clone(),
                files: client.files,
                large: client.large,
                syncs: client.syncs,
                checks: client.checks,
                material: client.material.clone(),
            };
            mount_bench::run_client(&task).map_err(Failure::new)?;
        }
    }
    Ok(0)
}
