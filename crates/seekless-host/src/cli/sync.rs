//! `seekless sync`

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{Done, output, patience};
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
    let warnings = patience::ask(&args.directory, args.timeout, || {
        crate::fuse::sync(&args.directory)?;
        Ok(warnings(&args.directory))
    })?;
    warnings.lines().for_each(output::note);
    if args.verbose {
        output::note(&format!("{}: everything is durable", args.directory.display()));
    }
    Ok(0)
}

/// What is not as durable as it seems, one line each.
fn warnings(directory: &Path) -> String {
    let statistics = crate::fuse::statistics(directory).ok().flatten();
    let statistics: Value = statistics.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let parts = statistics["parts"].as_array().into_iter().flatten();
    let removed = parts.filter(|part| part["counters"][REMOVED].as_u64().is_some_and(|count| count > 0));
    let warning = |part: &Value| {
        let image = part["part"].as_str().unwrap_or("an image");
        // Members of an array are one part, which has the name of the first.
        let members = image.split_once(" x ").and_then(|(count, first)| Some((count.parse::<u64>().ok()?, first)));
        let (which, verb) = match (members, part["counters"][REMOVED].as_u64()) {
            (Some((count, first)), Some(removed)) => (
                format!("{removed} of {count} images of an array ({first} ..)"),
                if removed == 1 { "was" } else { "were" },
            ),
            _ => (image.to_owned(), "was"),
        };
        format!(
            "warning: {which} {verb} removed: the content is gone after the unmount; the daemon's log has a command that copies it\n"
        )
    };
    removed.map(warning).collect()
}
