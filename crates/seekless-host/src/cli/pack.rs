//! `seekless pack` and `seekless unpack`

use seekless::layer::log::pack::{Direction, Progress};
use seekless::stack::Purpose;
use seekless::units::human_bytes;
use serde_json::json;

use super::diagnose::forgotten;
use super::world::World;
use super::{Done, Failure, WRONG_USAGE, output, read_stack};

/// Compress the files that a directory has already
///
/// The stack is the one that the directory is mounted with afterwards; as long as it is in use, it is refused. Each
/// file is written again, made durable, read back and compared, and then replaces the old one, with its owner,
/// permissions, times and attributes. It can be interrupted at any time: every name has one whole file at every moment,
/// and running it again continues where it ended.
///
/// Files with several names are left as they are, and so are those that would not take less space, and those that another program has open
/// for writing. A mount of a compressing layer shows them like the others. Files for which there is not enough space are left, too, and so are
/// damaged ones, and those that may not be read or replaced (of another owner, or immutable); the exit code is 1 then. It is 1 as well where `encrypt` leaves files with several names: they are
/// not encrypted, and the mount cannot read them. Copy them into the mount (cp -a keeps their names together).
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless pack 'zstd / hostdir:/srv/data'
  seekless mount 'zstd / hostdir:/srv/data' /mnt

Exit codes: 0 success, 1 failure, 2 wrong usage")]
pub(super) struct Args {
    /// For example 'zstd:level=9 / hostdir:/srv/data'; see `seekless list`
    stack: String,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Turn compressed files back into what they were
///
/// The opposite of `pack`, with the same care. Afterwards the directory needs no mount, unless the exit code is 1: files that were in use, damaged
/// or without space, those that may not be replaced, and those with several names, are still encoded. Copy those out of a mount (cp -a keeps their names together).
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless unpack 'zstd / hostdir:/srv/data'

Exit codes: 0 success, 1 failure, 2 wrong usage")]
pub(super) struct UnpackArgs {
    #[command(flatten)]
    args: Args,
}

pub(super) fn pack(args: &Args) -> Done {
    convert(args, Direction::Pack)
}

pub(super) fn unpack(args: &UnpackArgs) -> Done {
    convert(&args.args, Direction::Unpack)
}

fn convert(args: &Args, direction: Direction) -> Done {
    let stack = read_stack(&args.stack)?;
    stack.converter().map_err(|error| Failure::new(error).code(WRONG_USAGE))?;
    if let Some(failure) = forgotten(&stack) {
        return Err(failure);
    }
    let world = World::new()?;
    let leaves = world.leaves();
    let bar = output::files();
    let tell = |progress: &Progress, path: &[u8]| {
        bar.set_position(progress.files_seen);
        bar.set_message(String::from_utf8_lossy(path).into_owned());
    };
    let converted = world.run(async {
        let opened = stack.open(&world.rt, &leaves, Purpose::Use).await?;
        Ok(opened.convert(direction, &tell).await?)
    });
    bar.finish_and_clear();
    let progress = converted?;
    match args.json {
        true => output::print_json(&to_json(&progress))?,
        false => output::print(&to_text(&progress, direction))?,
    }
    let in_use = if direction == Direction::Unpack { progress.files_in_use } else { 0 };
    let left = progress.files_without_space + progress.files_unconverted + progress.files_failed;
    Ok(u8::from(left + progress.files_with_names + in_use > 0))
}

fn to_text(progress: &Progress, direction: Direction) -> String {
    let mut text = String::new();
    for (path, reason) in &progress.left {
        text += &format!("left unchanged: {}: {reason}\n", String::from_utf8_lossy(path));
    }
    let done = match direction {
        Direction::Pack => "packed",
        Direction::Unpack => "unpacked",
    };
    let (before, after) = (human_bytes(progress.bytes_before), human_bytes(progress.bytes_after));
    text += &format!("{} of {} files {done}: {before} became {after}", progress.files_converted, progress.files_seen);
    if progress.files_done_before > 0 {
        text += &format!("; {} already had the right form", progress.files_done_before);
    }
    if progress.files_in_use > 0 {
        text += &format!("; {} are in use and were skipped", progress.files_in_use);
    }
    if progress.files_with_names > 0 {
        text += &match direction {
            Direction::Pack => format!(
                "; {} have several names and are not encrypted: copy them into a mount",
                progress.files_with_names
            ),
            Direction::Unpack => format!(
                "; {} have several names and are still encoded: copy them out of a mount",
                progress.files_with_names
            ),
        };
    }
    if progress.files_without_space > 0 {
        text += &format!("; {} were skipped for lack of space", progress.files_without_space);
    }
    if progress.files_unconverted > 0 {
        text += &format!("; {} could not be {done}", progress.files_unconverted);
    }
    if progress.files_failed > 0 {
        text += &format!("; {} are damaged, or may not be read or replaced", progress.files_failed);
    }
    if progress.files_unguarded > 0 {
        text += &format!(
            "\nnot known: whether other programs had {} of these files open for writing, which cannot be found out here: what such a \
             program writes later is lost",
            progress.files_unguarded
        );
    }
    text
}

fn to_json(progress: &Progress) -> serde_json::Value {
    let left: Vec<serde_json::Value> = progress
        .left
        .iter()
        .map(|(path, reason)| json!({ "path": String::from_utf8_lossy(path), "reason": reason }))
        .collect();
    json!({
        "files_seen": progress.files_seen,
        "files_converted": progress.files_converted,
        "files_done_before": progress.files_done_before,
        "files_in_use": progress.files_in_use,
        "files_with_names": progress.files_with_names,
        "files_without_space": progress.files_without_space,
        "files_unconverted": progress.files_unconverted,
        "files_failed": progress.files_failed,
        "files_unguarded": progress.files_unguarded,
        "bytes_before": progress.bytes_before,
        "bytes_after": progress.bytes_after,
        "left": left,
    })
}
