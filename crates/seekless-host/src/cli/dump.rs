//! `seekless dump`

use seekless::stack::Purpose;

use super::world::World;
use super::{Done, diagnose, output, read_volume};

/// Show the on-disk structures of a file system
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless dump 'lfs / file:a.img'                # superblock and checkpoints
  seekless dump 'lfs / file:a.img' log            # where the log is
  seekless dump 'lfs / file:a.img' segment:3      # what is in one segment
  seekless dump 'lfs / file:a.img' inode:123456   # one inode, at its address in the log
  seekless dump 'raid5:n=3 / file:disk-{}.img'    # what the members of an array say

Exit codes: 0 shown, 1 it cannot be read or is something else, 2 wrong usage")]
pub(super) struct Args {
    /// For example 'lfs / file:a.img'; see `seekless list`
    stack: String,

    /// What to show; an unknown word prints the choices
    what: Option<String>,
}

pub(super) fn run(args: &Args) -> Done {
    let stack = read_volume(&args.stack, "dump")?;
    let world = World::new()?;
    let leaves = world.leaves();
    let text = world.run(async {
        let opened = stack.open_below(&world.rt, &leaves, Purpose::Inspect).await?;
        diagnose::probed(&stack, &leaves, opened.probe().await)?;
        opened.unopened().for_each(|error| output::note(&format!("warning: {}", error.problem)));
        Ok(opened.dump(args.what.as_deref()).await?)
    })?;
    output::print_raw(&text)?;
    Ok(0)
}
