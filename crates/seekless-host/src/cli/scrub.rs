//! `seekless scrub`: compares the members of arrays.

use std::cell::Cell;

use seekless::device::{Device, MemberState, Scrubbed};
use seekless::stack::{Checked, Finding, Purpose, Stack, StackError, Verdict, scrubbed_as_checked};
use seekless::units::counted;
use seekless::volume::raid::Level;
use serde_json::json;

use super::diagnose::forgotten;
use super::world::World;
use super::{Done, Failure, fsck, output, read_stack};

/// Read all members of an array and compare them
///
/// Damage on one member goes unnoticed until another one fails. This reads everything, rewrites what cannot be read,
/// and finds where copies differ, or data and parity do not match.
///
/// An array alone does not know which member is wrong then. With lfs or vlfs on it, their checksums do: all that the
/// file system holds is read and compared first, what is wrong is corrected from the other members, and copies and
/// parity are then made to match. Three or more copies follow the majority. Everything else is reported and left; where
/// you know that the data is right as it reads, --believe-data makes copies and parity from it.
///
/// The stack must not be mounted.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  seekless scrub 'lfs / raid5:n=3 / file:disk-{}.img'
  seekless scrub -n 'raid1 / file:disk-{}.img'                   # say what is wrong, and change nothing
  seekless scrub --believe-data 'ffs / raid5:n=4 / file:disk-{}.img'

Exit codes, as of fsck(8): 0 all members agree, 1 differences were corrected, 4 differences are left or not all could \
                      be compared, as without a member, 8 it could not be done, 16 wrong usage")]
pub(super) struct Args {
    /// A stack with raid1 or raid5, for example 'lfs / raid5:n=3 / file:disk-{}.img'; see `seekless list`
    stack: String,

    /// Change nothing
    #[arg(short = 'n', long)]
    no_changes: bool,

    /// Make copies and parity from the data as it reads now
    #[arg(long, conflicts_with = "no_changes")]
    believe_data: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Result for one array.
struct One {
    description: String,
    scrubbed: Scrubbed,
    checked: Checked,
}

pub(super) fn run(args: &Args) -> Done {
    let stack = read_stack(&args.stack).map_err(|failure| failure.code(fsck::WRONG_USAGE))?;
    let world = World::new().map_err(|failure| failure.code(fsck::OPERATIONAL))?;
    let leaves = world.leaves();
    if let Some(failure) = forgotten(&stack).filter(|_| !args.no_changes && stack.forgets().is_some()) {
        let hint = "leave it out to correct what is wrong; -n says what that is";
        return Err(failure.hint(hint).code(fsck::WRONG_USAGE));
    }
    let purpose = if args.no_changes { Purpose::Inspect } else { Purpose::Use };
    let bar = output::progress(0, "rows");
    let found = world.run(async {
        let opened = stack.open(&world.rt, &leaves, purpose).await.map_err(failed)?;
        let arrays = opened.arrays();
        if arrays.is_empty() {
            return Err(Failure::new("this stack has no array with redundancy")
                .hint("for example: seekless scrub 'lfs / raid5:n=3 / file:disk-{}.img'")
                .code(fsck::WRONG_USAGE));
        }
        for array in arrays.iter().filter_map(|array| array.redundancy()) {
            array.read_from_first(true);
            if !args.no_changes {
                bar.set_message("resynchronising and rebuilding");
                array.resynced().await;
            }
        }
        bar.set_message("reading the file system");
        let verified = opened.verify().await.map_err(failed)?;
        let is_verified = verified.as_ref().is_some_and(|checked| checked.verdict() == Verdict::Clean);
        let mut above = verified.unwrap_or_default();
        above.counts.clear();
        above.notes.clear();
        above.add(opened.corrected());
        let mut all = Vec::new();
        let is_array = |device: &Device| device.redundancy().is_some();
        let top: Vec<Device> =
            opened.instances().iter().find(|all| all.iter().any(is_array)).cloned().unwrap_or_default();
        // Lower arrays first: the ones above read what they correct.
        for array in arrays.iter().rev() {
            // Below another array there is also that array's metadata, which has not been verified.
            let is_top = top.iter().any(|device| std::rc::Rc::ptr_eq(device, array));
            let believe_data = is_top && (args.believe_data || is_verified);
            let scrubbed = scrub(array, believe_data, &bar).await?;
            let level = if array.describe().starts_with("raid1") { Level::Mirror } else { Level::Parity };
            let mut checked = scrubbed_as_checked(level, &scrubbed, !args.no_changes);
            if lacks_a_member(array) {
                checked.not_compared = checked.not_compared.max(1);
            }
            all.push(One { description: array.describe(), scrubbed, checked });
        }
        if let (false, Some(device)) = (args.no_changes, opened.device()) {
            device.flush().await.map_err(could_not)?;
            device.release().await.map_err(could_not)?;
        }
        Ok((above, all, is_verified))
    });
    bar.finish_and_clear();
    let (above, all, is_verified) = found?;
    let mut checked = above.clone();
    all.iter().for_each(|one| checked.add(one.checked.clone()));
    let code = fsck::code_of(&checked);
    match args.json {
        true => output::print_json(&to_json(&stack, &above, &all, &checked, is_verified)),
        false => output::print(&to_text(&above, &all, &checked, is_verified)),
    }
    .map_err(|failure| failure.code(fsck::OPERATIONAL | code))?;
    Ok(code)
}

fn failed(error: StackError) -> Failure {
    Failure::new(error).code(fsck::OPERATIONAL)
}

fn could_not(error: seekless::device::DeviceError) -> Failure {
    Failure::new(error).code(fsck::OPERATIONAL)
}

async fn scrub(array: &Device, believe_data: bool, bar: &indicatif::ProgressBar) -> Result<Scrubbed, Failure> {
    let Some(redundancy) = array.redundancy() else { return Ok(Scrubbed::default()) };
    bar.set_length(redundancy.status().rows);
    bar.set_position(0);
    bar.set_message("comparing members");
    let done = Cell::new(0);
    let tell = |rows: u64| {
        bar.inc(rows.saturating_sub(done.replace(rows)));
    };
    redundancy.scrub(believe_data, &tell).await.map_err(could_not)
}

/// Also where the other members could be compared with each other.
fn lacks_a_member(array: &Device) -> bool {
    let status = array.redundancy().map(|redundancy| redundancy.status());
    status.is_some_and(|status| status.members.iter().any(|member| member.state != MemberState::Active))
}

fn lines(findings: &[Finding]) -> String {
    findings
        .iter()
        .map(|finding| format!("{}{}\n", finding.text, if finding.repaired { " (repaired)" } else { "" }))
        .collect()
}

fn to_text(above: &Checked, all: &[One], checked: &Checked, is_verified: bool) -> String {
    let mut text = lines(&above.findings);
    for One { description, scrubbed, checked } in all {
        text += &lines(&checked.findings);
        checked.notes.iter().for_each(|note| text += &format!("note: {note}\n"));
        let compared = scrubbed.rows - scrubbed.degraded;
        text +=
            &format!("{description}: {} compared, {} did not agree\n", counted(compared, "row"), scrubbed.inconsistent);
    }
    if checked.not_compared > 0 {
        return text.trim_end().to_owned() + fsck::NOT_COMPARED;
    }
    text += match checked.verdict() {
        Verdict::Clean if is_verified => "all members agree, and all data matches its checksums",
        Verdict::Clean => "all members agree",
        Verdict::Repaired => "all differences were corrected",
        Verdict::Damaged => {
            "differences remain: nothing above the array shows which member is right, or -n forbade changes"
        }
    };
    text
}

fn to_json(stack: &Stack, above: &Checked, all: &[One], checked: &Checked, is_verified: bool) -> serde_json::Value {
    let findings = |findings: &[Finding]| -> Vec<serde_json::Value> {
        findings.iter().map(|finding| json!({ "problem": finding.text, "repaired": finding.repaired })).collect()
    };
    let arrays: Vec<serde_json::Value> = all
        .iter()
        .map(|One { description, scrubbed, checked }| {
            let sectors_without_space: u64 = scrubbed.without_space.values().sum();
            json!({
                "array": description,
                "rows": scrubbed.rows,
                "rows_inconsistent": scrubbed.inconsistent,
                "rows_corrected": scrubbed.corrected,
                "rows_not_compared": scrubbed.degraded,
                "units_unreadable": scrubbed.unreadable,
                "sectors_without_space": sectors_without_space,
                "rows_left": scrubbed.left,
                "findings": findings(&checked.findings),
                "notes": checked.notes,
            })
        })
        .collect();
    json!({
        "stack": stack.to_string(),
        "verdict": fsck::verdict_text(checked),
        "data_verified": is_verified,
        "findings": findings(&above.findings),
        "arrays": arrays,
    })
}
