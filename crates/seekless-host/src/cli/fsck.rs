//! `seekless fsck`

use seekless::fs::FsError;
use seekless::fs::ffs::PLACES;
use seekless::stack::{Cause, CheckOptions, Checked, Finding, Purpose, Stack, StackError, Verdict, quoted};
use seekless::units::counted;
use serde_json::{Value, json};

use super::diagnose::{member_alone, place_of, something_else};
use super::world::World;
use super::{Done, Failure, output, read_stack};

/// Exit codes of fsck(8), which are bits.
const CORRECTED: u8 = 1;
pub(super) const UNCORRECTED: u8 = 4;
pub(super) const OPERATIONAL: u8 = 8;
pub(super) const WRONG_USAGE: u8 = 16;

/// Check a file system that is not mounted
///
/// Reads every reachable structure and compares it with the counts. ffs is repaired, unless -n forbids changes. Of lfs
/// and vlfs, damaged copies of the superblock are rewritten. Of lfs, counts are repaired, too: live bytes of segments,
/// files being removed, links and sizes. Mounting repairs what a crash leaves behind, which is not damage. Files of a
/// compressing layer over a directory get a new index, made from their records, where the old one is damaged, again
/// unless -n is given.
///
/// Wrong data on one member of raid1 or raid5, which the checksums of lfs and vlfs reveal, is read from the others, and
/// corrected unless -n is given. An array alone is checked by comparing its members, as `seekless scrub` does. With a `fork`,
/// which keeps changes in memory alone, nothing is repaired.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless fsck 'lfs / file:a.img'
  seekless fsck --data 'lfs / file:a.img'     # read all file data, too, and compare its checksums
  seekless fsck -n 'zstd / hostdir:/srv'      # all files that are compressed in a directory
  seekless fsck -n 'ffs / file:ufs.img'       # say what is wrong, and repair nothing

Exit codes, as of fsck(8): 0 no damage, 1 damage was repaired, 4 damage is left or not all members could \
                      be compared, 8 the check could not be done, 16 wrong usage")]
pub(super) struct Args {
    /// For example 'lfs / file:a.img'; see `seekless list`
    stack: String,

    /// Repair nothing
    #[arg(short = 'n', long)]
    no_changes: bool,

    /// Read all file data and compare it with its checksums
    #[arg(long)]
    data: bool,

    /// Of ffs on several devices, or on chunks in another order: they are put together as they were, and blocks that
    /// show it are damaged. Where that is wrong, the repair destroys what is on them
    #[arg(long)]
    trust_order: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Done {
    // A mistake in the stack line is the user's; every other failure here is the check's.
    let stack = read_stack(&args.stack).map_err(|failure| failure.code(WRONG_USAGE))?;
    stack.needs_checkable().map_err(|error| Failure::new(error).code(WRONG_USAGE))?;
    if args.trust_order && stack.file_system().is_none_or(|word| word.name() != "ffs") {
        return Err(Failure::new("--trust-order is only for ffs: in other file systems no repair depends on it")
            .code(WRONG_USAGE));
    }
    check(args, &stack)
}

fn check(args: &Args, stack: &Stack) -> Done {
    let world = World::new().map_err(|failure| failure.code(OPERATIONAL))?;
    let leaves = world.leaves();
    // What a `fork` keeps in memory is no repair.
    let repair = stack.repairs() && !args.no_changes && stack.forgets().is_none();
    let options = CheckOptions { repair, data: args.data, trust_order: args.trust_order };
    let purpose = if options.repair { Purpose::Use } else { Purpose::Inspect };
    let checked = world.run(async {
        let opened = stack.open_below(&world.rt, &leaves, purpose).await.map_err(failure)?;
        if stack.volume().is_none() {
            return opened.fsck(options).await.map_err(failure);
        }
        match opened.probe().await {
            Ok(None) => return Err(something_else(stack, &leaves).code(OPERATIONAL)),
            Err(_) if let Some(alone) = member_alone(stack, &leaves) => return Err(alone.code(OPERATIONAL)),
            // The check may be able to repair what prevents opening the volume.
            Ok(Some(_)) | Err(_) => opened.fsck(options).await.or_else(beyond_checking),
        }
        .map_err(|error| match &error.cause {
            Some(Cause::FileSystem(FsError::Corrupt { what: PLACES, .. })) => refused(stack, &error),
            _ => failure(error),
        })
    })?;
    match args.json {
        true => output::print_json(&to_json(stack, &checked, args.data)),
        false => output::print(&to_text(stack, &checked, args)),
    }
    .map_err(|failure| failure.code(OPERATIONAL | code_of(&checked)))?;
    Ok(code_of(&checked))
}

pub(super) fn code_of(checked: &Checked) -> u8 {
    match checked.verdict() {
        _ if checked.not_compared > 0 => UNCORRECTED,
        Verdict::Clean => 0,
        Verdict::Repaired => CORRECTED,
        Verdict::Damaged => UNCORRECTED,
    }
}

fn failure(error: StackError) -> Failure {
    Failure::new(error).code(OPERATIONAL)
}

/// Blocks are not in their places, and only the user may know whether they are damaged.
fn refused(stack: &Stack, error: &StackError) -> Failure {
    let line = quoted(&stack.to_string());
    let hint = format!(
        "nothing was changed; to copy what is there, mount it with -o ro\n\
         if they are assembled as before, the blocks are damaged: seekless fsck --trust-order {line}"
    );
    Failure::new(error).hint(hint).code(UNCORRECTED)
}

/// A file system that is too damaged to be checked counts as damaged; any other error has prevented the check.
fn beyond_checking(error: StackError) -> Result<Checked, StackError> {
    match &error.cause {
        Some(Cause::FileSystem(cause @ FsError::Corrupt { what, .. })) if *what != PLACES => {
            let finding = Finding { text: cause.to_string(), repaired: false };
            Ok(Checked { findings: vec![finding], ..Checked::default() })
        }
        _ => Err(error),
    }
}

pub(super) fn verdict_text(checked: &Checked) -> &'static str {
    match checked.verdict() {
        _ if checked.not_compared > 0 => "incomplete",
        Verdict::Clean => "clean",
        Verdict::Repaired => "repaired",
        Verdict::Damaged => "damaged",
    }
}

/// What follows for an array.
pub(super) const NOT_COMPARED: &str = "\nnot everything could be compared, so a further loss may not be survived; `seekless info` with the \
                                       array shows its members";

/// The extent of the damage, in words.
fn damage_text(checked: &Checked) -> String {
    let listed = checked.findings.len() as u64;
    match checked.unlisted {
        0 => counted(listed, "error"),
        more => format!("{} and {more} more, which are not listed", counted(listed, "error")),
    }
}

/// True when the check got as far as the files; a volume that cannot even be opened has none to count.
fn has_seen_files(checked: &Checked) -> bool {
    !checked.counts.is_empty()
}

fn to_text(stack: &Stack, checked: &Checked, args: &Args) -> String {
    let mut text = String::new();
    for finding in &checked.findings {
        text += &format!("{}{}\n", finding.text, if finding.repaired { " (repaired)" } else { "" });
    }
    for note in &checked.notes {
        text += &format!("note: {note}\n");
    }
    let counts: Vec<String> =
        checked.counts.iter().map(|(name, count)| format!("{} {count}", name.replace('_', " "))).collect();
    text += &format!("{}: {}", place_of(stack), verdict_text(checked));
    if !counts.is_empty() {
        text += &format!(" ({})", counts.join(", "));
    }
    // A layer is checked by decoding everything.
    if has_seen_files(checked) && !args.data && stack.file_system().is_some() {
        text += "\nfile data not read (use --data)";
    }
    if checked.not_compared > 0 {
        text += NOT_COMPARED;
    }
    if checked.verdict() == Verdict::Damaged {
        let found = damage_text(checked);
        text += &match has_seen_files(checked) {
            true if checked.repairable && args.no_changes => {
                format!("\n{found}; leave out -n to repair what can be repaired")
            }
            true if checked.repairable && stack.forgets().is_some() => {
                format!("\n{found}; leave out `fork` to repair what can be repaired")
            }
            true if stack.is_array() => format!(
                "\n{found}; `seekless scrub` with the file system on the stack finds out by its checksums which is right"
            ),
            true => format!("\n{found}; save what can be read: mount it with -o ro and copy it"),
            false => format!("\n{found}; none of it can be read"),
        };
    }
    text
}

fn to_json(stack: &Stack, checked: &Checked, data: bool) -> Value {
    let findings: Vec<Value> = checked
        .findings
        .iter()
        .map(|finding| json!({ "problem": finding.text, "repaired": finding.repaired }))
        .collect();
    let counts: serde_json::Map<String, Value> =
        checked.counts.iter().map(|(name, count)| ((*name).to_owned(), json!(count))).collect();
    json!({
        "stack": stack.to_string(),
        "verdict": verdict_text(checked),
        "data_checked": data && has_seen_files(checked),
        "findings": findings,
        "findings_unlisted": checked.unlisted,
        "notes": checked.notes,
        "counts": counts,
    })
}
