//! `seekless umount`

use std::path::PathBuf;
use std::time::Duration;

use seekless::stack::quoted_path;

use super::exit::{FAILED, WRONG_USAGE};
use super::sync::{told_or_refused, what_ends_with_the_daemon};
use super::{Done, Failure, output, patience};
use crate::fuse::{self, UmountError};

/// Unmount, and return when everything is durable
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless umount /mnt
  seekless umount --lazy /mnt    # take it out of sight although it is in use; returns before everything is durable

Exit codes, as of mount(8): 0 unmounted and durable, 1 wrong usage, 32 failed, or unmounted and not known to be durable")]
pub(super) struct Args {
    /// Where it is mounted
    directory: PathBuf,

    /// Do not wait for users of the mount to go, nor for what they have written to be durable
    #[arg(short, long)]
    lazy: bool,

    /// How long to wait for the daemon to answer, and to write what it holds, in seconds
    #[arg(long, default_value_t = 600, value_parser = patience::seconds())]
    timeout: u64,
}

pub(super) fn run(args: &Args) -> Done {
    if !args.lazy {
        let lost = patience::ask(&args.directory, args.timeout, || {
            // What cannot be written is said below. An image without a name is noticed when it is synced.
            let _ = fuse::sync(&args.directory);
            Ok(what_ends_with_the_daemon(&args.directory))
        });
        // It has not answered in time, and is not asked a second time.
        let lost = lost.map_err(|failure| {
            let lazy = format!("to detach it without waiting: seekless umount --lazy {}", quoted_path(&args.directory));
            Failure::new(format!("not unmounted: {}", failure.text)).hint(lazy).code(FAILED)
        })?;
        told_or_refused(&lost, &args.directory).map_err(|refused| refused.code(FAILED))?;
    }
    let done = fuse::umount(&args.directory, args.lazy, Duration::from_secs(args.timeout), output::note);
    done.map(|()| 0).map_err(|error| {
        let code = if matches!(error, UmountError::NotAMountPoint { .. }) { WRONG_USAGE } else { FAILED };
        Failure::new(error).code(code)
    })
}
