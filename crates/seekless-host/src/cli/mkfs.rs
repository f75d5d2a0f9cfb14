//! `seekless mkfs`

use seekless::stack::{Interface, Probed, Property, Purpose, Stack, quoted};
use uuid::Uuid;

use super::diagnose::forgotten;
use super::world::{World, identity};
use super::{Done, Failure, WRONG_USAGE, info, output, read_volume};

/// Make an empty file system on an image file or a block device
///
/// Existing data is protected: a target with any byte that is not zero is refused unless --force is given. This reads
/// all of a block device, and everything but the holes of a file. A target that takes longer than 20 seconds is
/// refused, too. A target that is mounted or in use is always refused. A new image file appears when it is complete:
/// after an interrupted mkfs there is none, or on host file systems without unnamed files (NFS, FAT) an incomplete one.
///
/// Options that the stack line gives here and that `seekless list` calls fixed (segment, label, uuid) are kept in the
/// file system, and those for mkfs alone (size) are not needed later. All others belong to the line: the last line of
/// the output is the command that opens what was made.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless mkfs 'lfs / file:a.img,size=1GiB'          # makes the image file, too; it is sparse
  seekless mkfs 'lfs:segment=1MiB,reserve=10% / file:/dev/sdb1' --label data

Exit codes: 0 made, 1 not made (nothing was changed, or the error says so), 2 wrong usage")]
pub(super) struct Args {
    /// What to make, for example 'lfs / file:a.img,size=1GiB'; see `seekless list`
    stack: String,

    /// Destroy what is on the target
    #[arg(short, long)]
    force: bool,

    /// Label of the file system
    #[arg(short = 'L', long)]
    label: Option<String>,

    /// UUID of the file system; otherwise random
    #[arg(short = 'U', long)]
    uuid: Option<Uuid>,

    /// Print what was made as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Done {
    let stack = read_volume(&args.stack, "make")?;
    if stack.is_volatile() {
        let line = quoted(&stack.to_string());
        let has_spans = stack.word_with(Property::Spans).is_some();
        let (problem, hint) = match stack.is() {
            Interface::Device if has_spans => {
                let line = quoted(&format!("lfs / {stack}"));
                (
                    "this would be lost at once: a device in memory is created when it is mounted",
                    format!("mount creates it automatically: mkdir -p mnt && seekless mount {line} mnt"),
                )
            }
            Interface::FileSystem => (
                "this would be lost at once: a file system in memory is created when it is mounted",
                format!("mount creates it automatically: mkdir -p mnt && seekless mount {line} mnt"),
            ),
            Interface::Device => (
                "this would be lost at once: a device in memory is created when it is exported",
                format!("export creates it automatically: seekless export {line}"),
            ),
        };
        return Err(Failure::new(problem).hint(hint).code(WRONG_USAGE));
    }
    if let Some(failure) = forgotten(&stack) {
        return Err(failure.hint("leave it out to make the file system"));
    }
    let identity = identity()?;
    let uuid = args.uuid.or(identity.uuid);
    let label = args.label.clone();
    let identity = seekless::stack::Identity { uuid, label, ..identity };
    let world = World::new()?;
    let leaves = world.leaves().overwriting(args.force).appearing();
    let made = world.run(async {
        stack.check_leaves(Purpose::Format, |word| leaves.look(&world.rt, word))?;
        let opened = stack.open(&world.rt, &leaves, Purpose::Format).await?;
        opened.mkfs(&identity).await?;
        Ok(opened.probe().await?)
    });
    let probed = made.and_then(|probed| {
        let probed = probed.ok_or_else(|| Failure::new("the result is not recognised; this is a bug"))?;
        leaves.appear().map_err(Failure::new)?;
        Ok(probed)
    });
    let probed = match probed {
        Ok(probed) => probed,
        Err(failure) => {
            leaves.remove_created();
            return Err(failure);
        }
    };
    say(args, &stack, &probed).map_err(|failure| Failure::new(format!("it was created, but {}", failure.text)))?;
    Ok(0)
}

/// Prints what was made, and what to do with it.
fn say(args: &Args, stack: &Stack, probed: &Probed) -> Result<(), Failure> {
    if args.json {
        return output::print_json(&info::to_json(stack, probed));
    }
    if output::is_quiet() {
        return Ok(());
    }
    output::print(&info::to_text(stack, probed))?;
    let line = quoted(&stack.after_mkfs().to_string());
    let next = match stack.is() {
        Interface::FileSystem => format!("mount it with: seekless mount {line} DIR"),
        Interface::Device => format!("export it with: seekless export {line}"),
    };
    output::print(&format!("\n{next}"))
}
