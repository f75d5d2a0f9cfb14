//! `seekless stat`

use std::io::ErrorKind;
use std::path::Path;

use seekless::fs::StatFs;
use seekless::stack::{Purpose, Usage, WORDS};
use serde_json::Value;

use super::world::World;
use super::{Done, Failure, output, patience, prometheus, read_volume, statistics};

/// Show what a mount has counted, and how full the segments of a log are
///
/// For a mount: what its parts have counted since they were mounted, and for a log-structured file system how full
/// its segments are and what writing has cost so far. For a stack that is not mounted: what is on the storage.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless stat /mnt
  seekless stat /mnt --prometheus
  seekless stat /mnt --json | jq '.parts[0].counters'
  seekless stat 'lfs / file:a.img'

Exit codes: 0 shown, 1 it cannot be read, 2 wrong usage")]
pub(super) struct Args {
    /// A mount point, any directory inside the mount, or a stack that is not mounted
    #[arg(value_name = "DIR|STACK")]
    what: String,

    /// How long to wait for the daemon of a mount, in seconds
    #[arg(long, default_value_t = 60, value_parser = patience::seconds())]
    timeout: u64,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Print in the text format of Prometheus, for example for its node exporter; a daemon can also be asked directly, with
    /// `seekless mount --metrics`
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let mounted = patience::ask(Path::new(&args.what), args.timeout, || of_mount(&args.what))?;
    let statistics = match &*mounted {
        "" => of_stack(&args.what)?,
        mounted => serde_json::from_str(mounted)?,
    };
    // A node exporter has the files of all mounts in one folder, where two samples must not have the same name and labels.
    let mount = (!mounted.is_empty()).then(|| crate::fuse::mount_point_of(Path::new(&args.what))).flatten();
    let mount = mount.map(|mount| mount.display().to_string());
    match (args.json, args.prometheus) {
        (true, _) => output::print_json(&statistics)?,
        (_, true) => output::print_raw(&prometheus::to_text(&statistics, mount.as_deref()))?,
        _ => output::print(&statistics::to_text(&statistics))?,
    }
    Ok(0)
}

/// The statistics of the mount at `what`, as JSON; empty where that is no path.
fn of_mount(what: &str) -> Result<String, Failure> {
    let path = Path::new(what);
    // A dead mount does not exist for `exists`.
    if path.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
        return Ok(String::new());
    }
    match crate::fuse::statistics(path)? {
        Some(text) => {
            let mut statistics: Value = serde_json::from_str(&text)
                .map_err(|error| Failure::new(format!("{what}: the daemon's answer is not JSON: {error}")))?;
            statistics["space"] = space(path)?;
            Ok(statistics.to_string())
        }
        None if path.is_dir() => {
            let moved = crate::fuse::moved_text(path, "stat");
            Err(Failure::new(format!("{what} is not inside a Seekless mount{moved}")))
        }
        None => Ok(String::new()),
    }
}

/// The space of a mount, as its users see it.
fn space(path: &Path) -> Result<Value, Failure> {
    let space = rustix::fs::statvfs(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))?;
    Ok(statistics::space_of(&StatFs {
        block_bytes: u32::try_from(space.f_frsize).unwrap_or(u32::MAX),
        blocks: space.f_blocks,
        blocks_free: space.f_bfree,
        blocks_available: space.f_bavail,
        inodes: space.f_files,
        inodes_free: space.f_ffree,
        name_bytes_max: u32::try_from(space.f_namemax).unwrap_or(u32::MAX),
    }))
}

/// The statistics of a stack that is not mounted: nothing has been counted, but a log has its segments.
fn of_stack(line: &str) -> Result<Value, Failure> {
    // A name alone, which may have been meant as a mount point.
    let is_name = !line.contains([' ', ':', '/', '@']) && WORDS.iter().all(|word| word.name != line);
    let stack = read_volume(line, "look at").map_err(|failure| match is_name {
        true => failure.hint(format!("and there is no directory {line} here, where a mount could be")),
        false => failure,
    })?;
    let world = World::new()?;
    let leaves = world.leaves();
    world.run(async {
        let opened = stack.open_below(&world.rt, &leaves, Purpose::Inspect).await?;
        let mounted = opened.mount(Usage { read_only: true, ..Usage::default() }).await;
        let mounted = mounted.map_err(|error| super::diagnose::explain(&stack, &leaves, error))?;
        let statistics = statistics::of(&mounted.parts);
        mounted.parts.iter().flat_map(seekless::stack::Part::warnings).for_each(|warning| {
            output::note(&format!("warning: {warning}"));
        });
        mounted.fs.close().await.map_err(|error| Failure::new(error.to_string()))?;
        Ok(statistics)
    })
}
