//! `seekless sync`

use std::path::{Path, PathBuf};

use seekless::stack::quoted_path;
use serde_json::Value;

use super::{Done, Failure, output, patience};
use crate::fuse::to_unmount;
use crate::leaves::REMOVED;

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
    let lost = patience::ask(&args.directory, args.timeout, || {
        crate::fuse::sync(&args.directory)?;
        Ok(what_ends_with_the_daemon(&args.directory))
    })?;
    told_or_refused(&lost, &args.directory)?;
    if args.verbose {
        output::note(&format!("{}: everything is durable", args.directory.display()));
    }
    Ok(0)
}

/// Begins the line of a loss that cannot be made good.
const ALL: &str = "all: ";

/// What has been written and is gone with the daemon, because its image has no name any more, one line each.
pub(super) fn what_ends_with_the_daemon(directory: &Path) -> String {
    let statistics = crate::fuse::statistics(directory).ok().flatten();
    let statistics: Value = statistics.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let parts = statistics["parts"].as_array().into_iter().flatten();
    let removed = parts.filter(|part| part["counters"][REMOVED].as_u64().is_some_and(|count| count > 0));
    let line = |part: &Value| {
        let image = part["part"].as_str().unwrap_or("an image");
        // Members of an array are one part, which has the name of the first.
        let members = image.split_once(" x ").and_then(|(count, first)| Some((count.parse::<u64>().ok()?, first)));
        match (members, part["counters"][REMOVED].as_u64()) {
            (Some((count, first)), Some(removed)) if removed < count => {
                let verb = if removed == 1 { "was" } else { "were" };
                format!("{removed} of {count} images of an array ({first} ..) {verb} removed\n")
            }
            (Some((count, first)), _) => format!("{ALL}the {count} images of an array ({first} ..) were removed\n"),
            (None, _) => format!("{ALL}{image} was removed\n"),
        }
    };
    removed.map(line).collect()
}

/// Warns of what an array may do without.
///
/// # Errors
/// When what is written is gone with the daemon.
pub(super) fn told_or_refused(lost: &str, directory: &Path) -> Result<(), Failure> {
    for line in lost.lines() {
        if let Some(what) = line.strip_prefix(ALL) {
            let problem = format!("{what}: all that is in it is gone after the unmount");
            let hint = format!(
                "the daemon's log has a command that copies it; then, or to give it up: seekless umount --lazy {}",
                quoted_path(&to_unmount(directory))
            );
            return Err(Failure::new(problem).hint(hint));
        }
        output::note(&format!(
            "warning: {line}: its content is gone after the unmount; the daemon's log has a command that copies it"
        ));
    }
    Ok(())
}
