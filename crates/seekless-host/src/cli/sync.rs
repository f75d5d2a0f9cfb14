//! `seekless sync`

use std::path::PathBuf;

use super::{Done, output, patience};

/// Make everything in a mounted file system durable
///
/// sync(1) and syncfs(2) reach a mount on a block device, but not one on an image file or a directory, because the
/// kernel does not pass them on there. This command does.
#[derive(clap::Args)]
#[command(after_help = "Example:
  seekless sync /mnt

Exit codes: 0 everything is durable, 1 it is not, 2 wrong usage")]
pub(super) struct Args {
    /// A mount point, or any directory inside the mount
    directory: PathBuf,

    /// How long to wait for the daemon, in seconds
    #[arg(long, default_value_t = 600, value_parser = patience::seconds())]
    timeout: u64,

    /// Say when it is done
    #[arg(short, long)]
    verbose: bool,
}

pub(super) fn run(args: &Args) -> Done {
    patience::ask(&args.directory, args.timeout, || {
        crate::fuse::sync(&args.directory)?;
        Ok(String::new())
    })?;
    if args.verbose {
        output::note(&format!("{}: everything is durable", args.directory.display()));
    }
    Ok(0)
}
