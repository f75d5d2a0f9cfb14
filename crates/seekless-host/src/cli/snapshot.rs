//! `seekless snapshot`: a disk as it was at some moment.

use comfy_table::{Table, presets};
use seekless::device::{Device, SnapshotError, SnapshotInfo, Snapshots};
use std::path::Path;

use seekless::stack::{Opened, Purpose, quoted_path};
use seekless::units::{WallTime, human_bytes};
use serde_json::json;

use super::diagnose::forgotten;
use super::info::time_text;
use super::world::World;
use super::{Done, Failure, WRONG_USAGE, output, read_stack};

/// Take, list, remove and revert to snapshots of a virtual log disk
///
/// A snapshot is a second map to the same blocks: nothing is copied, and it holds the blocks that the disk changes
/// later. The disk must be made with room for some (`vld:snapshots=8`), and must not be in use by another command. To
/// read one, name it where the disk is named: 'vld:snapshot=monday / file:disk.img'.
#[derive(clap::Subcommand)]
pub(super) enum Command {
    Take(TakeArgs),
    List(ListArgs),
    Remove(RemoveArgs),
    Revert(RevertArgs),
}

/// Which snapshot of which disk.
#[derive(clap::Args)]
pub(super) struct Which {
    /// For example 'vld / file:disk.img'
    stack: String,

    /// Name of the snapshot
    name: String,
}

/// Keep the disk as it is now
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless mkfs 'vld:snapshots=8,reserve=30% / file:disk.img,size=10GiB'
  seekless snapshot take 'vld / file:disk.img' monday
  seekless export 'vld:snapshot=monday / file:disk.img' --read-only --socket monday.sock

Exit codes: 0 taken, 1 failed, 2 wrong usage")]
pub(super) struct TakeArgs {
    #[command(flatten)]
    which: Which,
}

/// Show the snapshots of a disk, the oldest first
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless snapshot list 'vld / file:disk.img'
  seekless snapshot list 'vld / file:disk.img' --json | jq -r .name

Exit codes: 0 shown, 1 failed, 2 wrong usage")]
pub(super) struct ListArgs {
    /// For example 'vld / file:disk.img'
    stack: String,

    /// Print JSON, a line for each
    #[arg(long)]
    json: bool,
}

/// Remove a snapshot; blocks that only it holds are freed
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless snapshot remove 'vld / file:disk.img' monday

Exit codes: 0 given up, 1 failed, 2 wrong usage")]
pub(super) struct RemoveArgs {
    #[command(flatten)]
    which: Which,
}

/// Revert the disk to a snapshot; its current state is lost, unless it has a snapshot too
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless snapshot take 'vld / file:disk.img' before && seekless snapshot revert 'vld / file:disk.img' monday

Exit codes: 0 gone back, 1 failed, 2 wrong usage")]
pub(super) struct RevertArgs {
    #[command(flatten)]
    which: Which,
}

pub(super) fn run(command: &Command) -> Done {
    match command {
        Command::List(args) => list(args),
        Command::Take(TakeArgs { which }) => change(which, async |snapshots, name| snapshots.take(name).await),
        Command::Remove(RemoveArgs { which }) => change(which, async |snapshots, name| snapshots.remove(name).await),
        Command::Revert(RevertArgs { which }) => change(which, async |snapshots, name| snapshots.revert(name).await),
    }
}

/// The snapshots of the first device that can have any. A member of an array has none: they would be of a part alone.
fn snapshots_of<'a>(opened: &'a Opened<'_>, device: &Device) -> Result<&'a dyn Snapshots, Failure> {
    let single = opened.instances().iter().map_while(|instances| match &instances[..] {
        [only] => Some(only),
        _ => None,
    });
    single.filter_map(|device| device.snapshots()).next().ok_or_else(|| {
        Failure::new(format!("{} has no snapshots, and takes none", device.describe()))
            .hint("a virtual log disk takes as many as it was made for, with vld:snapshots=8 for example")
    })
}

fn failed(error: SnapshotError, stack: &str) -> Failure {
    let stack = quoted_path(Path::new(stack));
    let hint = match &error {
        SnapshotError::Full { .. } => format!(
            "see them with: seekless snapshot list {stack}\nremove one with: seekless snapshot remove {stack} NAME"
        ),
        SnapshotError::NotFound { .. } => format!("see them with: seekless snapshot list {stack}"),
        SnapshotError::Device(_) | SnapshotError::Exists { .. } | SnapshotError::Name { .. } => String::new(),
    };
    let failure = Failure::new(&error);
    let failure = if hint.is_empty() { failure } else { failure.hint(hint) };
    if matches!(error, SnapshotError::Name { .. }) { failure.code(WRONG_USAGE) } else { failure }
}

fn change(which: &Which, change: impl AsyncFnOnce(&dyn Snapshots, &str) -> Result<(), SnapshotError>) -> Done {
    let stack = read_stack(&which.stack)?;
    let world = World::new()?;
    let leaves = world.leaves();
    world.run(async {
        let opened = stack.open(&world.rt, &leaves, Purpose::Use).await?;
        let device = opened.device().ok_or_else(|| no_device(&which.stack))?;
        let snapshots = snapshots_of(&opened, device)?;
        if let Some(failure) = forgotten(&stack) {
            return Err(failure.hint("for example: seekless snapshot take 'vld / file:disk.img' NAME"));
        }
        let changed = change(snapshots, &which.name).await;
        // Even when nothing was changed: the next start then finds the end of the log at once.
        let released = device.release().await;
        changed.map_err(|error| failed(error, &which.stack))?;
        released?;
        Ok(0)
    })
}

fn no_device(stack: &str) -> Failure {
    Failure::new(format!("`{stack}` is a file system, and only disks have snapshots"))
        .hint("for example: seekless snapshot list 'vld / file:disk.img'")
        .code(WRONG_USAGE)
}

fn list(args: &ListArgs) -> Done {
    let stack = read_stack(&args.stack)?;
    let world = World::new()?;
    let leaves = world.leaves();
    let found: Vec<SnapshotInfo> = world.run(async {
        let opened = stack.open(&world.rt, &leaves, Purpose::Inspect).await?;
        let device = opened.device().ok_or_else(|| no_device(&args.stack))?;
        snapshots_of(&opened, device)?.list().await.map_err(|error| failed(error, &args.stack))
    })?;
    let taken = |snapshot: &SnapshotInfo| time_text(WallTime { seconds: snapshot.created_seconds, nanos: 0 });
    if args.json {
        for snapshot in &found {
            let line = json!({
                "name": snapshot.name,
                "taken": taken(snapshot),
                "mapped_bytes": snapshot.mapped_bytes,
                "own_bytes": snapshot.own_bytes,
            });
            output::print_raw(&line.to_string())?;
        }
        return Ok(0);
    }
    if found.is_empty() {
        output::print("there are no snapshots\n")?;
        return Ok(0);
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(["name", "taken", "in use", "held by it alone"]);
    for snapshot in &found {
        let bytes = [snapshot.mapped_bytes, snapshot.own_bytes].map(human_bytes);
        table.add_row([snapshot.name.clone(), taken(snapshot), bytes[0].clone(), bytes[1].clone()]);
    }
    output::print(&format!("{table}\n"))?;
    Ok(0)
}
