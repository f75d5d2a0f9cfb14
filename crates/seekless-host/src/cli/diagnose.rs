//! Error messages for a store that does not hold what its stack expects.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use seekless::device::DeviceError;
use seekless::fs::FsError;
use seekless::fs::ffs::PLACES;
use seekless::stack::{Cause, Probed, Property, Stack, StackError, Value, quoted};
use seekless::volume::format::Superblock;

use super::{Failure, WRONG_USAGE};
use crate::leaves::{HostLeaves, signature};

/// An error of a stack on files, with the file's content where that explains it.
pub(super) fn explain(stack: &Stack, leaves: &HostLeaves, error: StackError) -> Failure {
    let is_unknown =
        matches!(&error.cause, Some(Cause::FileSystem(FsError::Corrupt { what: "volume" | "superblock", .. })));
    if let Some(failure) = is_unknown.then(|| member_alone(stack, leaves)).flatten() {
        return failure;
    }
    match &error.cause {
        Some(Cause::FileSystem(FsError::Corrupt { what: "volume", .. })) => {}
        Some(Cause::FileSystem(FsError::Corrupt { what: PLACES, .. })) => {
            let line = quoted(&stack.to_string());
            let failure = Failure::new(&error);
            return failure.hint(format!(
                "if they are assembled as before, a block is damaged; for one of them, run: seekless fsck {line}\n\
                 for more: seekless fsck --trust-order {line}\n\
                 to copy what is there first, mount it with -o ro"
            ));
        }
        Some(Cause::FileSystem(FsError::Corrupt { what: "superblock", .. })) => {
            return Failure::new(&error).hint("`seekless fsck` says whether it can be repaired");
        }
        Some(Cause::FileSystem(FsError::Corrupt { .. })) => {
            return Failure::new(&error)
                .hint("`seekless fsck` says what else is damaged; mount it with -o ro to copy what can still be read");
        }
        Some(
            Cause::FileSystem(FsError::Device(DeviceError::Unaligned { .. }))
            | Cause::Device(DeviceError::Unaligned { .. }),
        ) => {
            return Failure::new(&error).hint(
                "it was made for a device with smaller blocks; where that was this image, open it without `direct=on`, or copy it to \
                 a device with such blocks",
            );
        }
        _ => return Failure::new(&error),
    }
    let own = stack.file_system().and_then(|word| word.spec().signature()).map(|own| own.name);
    match &contents(leaves)[..] {
        [content] if content.as_deref() != own => something_else(stack, leaves),
        _ => Failure::new(&error),
    }
}

/// How long to search for content, which only improves a message.
const PATIENCE: Duration = Duration::from_secs(2);

/// What the opened files and block devices hold; `None` for a blank one. Empty where that cannot be determined.
pub(super) fn contents(leaves: &HostLeaves) -> Vec<Option<String>> {
    let content = |path: &Path| -> Option<Option<String>> {
        let file = std::fs::File::open(path).ok()?;
        let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).ok()?;
        let content = signature::content(&file, size, PATIENCE).ok()?;
        Some(content.text().map(str::to_owned))
    };
    leaves.files().iter().map(|file| content(file.path())).collect::<Option<_>>().unwrap_or_default()
}

/// Name of a stack in a sentence: the path of its image, or else its line.
pub(super) fn place_of(stack: &Stack) -> String {
    let leaf = stack.words().last().filter(|leaf| leaf.name() == "file");
    leaf.and_then(|leaf| leaf.text("path")).map_or_else(|| stack.to_string(), str::to_owned)
}

/// The failure of a command whose changes would be gone with it, for a stack that keeps them in memory alone.
pub(super) fn forgotten(stack: &Stack) -> Option<Failure> {
    let word = stack.keeps_in_memory()?;
    let problem = format!("this would be lost at once: `{}` keeps changes only in memory", word.name());
    Some(Failure::new(problem).code(WRONG_USAGE))
}

/// The failure for a store that is a member of an array, and is opened without the others.
pub(super) fn member_alone(stack: &Stack, leaves: &HostLeaves) -> Option<Failure> {
    let files = leaves.files();
    let ([file], [above @ .., leaf]) = (&files[..], stack.words()) else { return None };
    if leaf.name() != "file" {
        return None;
    }
    let found = signature::as_member(&File::open(file.path()).ok()?)?;
    let level = if found.level == 1 { "raid1" } else { "raid5" };
    // The others may be missing.
    if above.iter().any(|word| word.name() == level) {
        return None;
    }
    let (slot, count) = (found.slot, found.member_count);
    let problem = format!("{} is member {slot} of a {level} of {count}", file.path().display());
    let line = |path: &str| {
        let leaf = format!("file:{}", Value::Path(path.to_owned()));
        let above = above.iter().map(ToString::to_string);
        quoted(&above.chain([format!("{level}:n={count}"), leaf]).collect::<Vec<_>>().join(" / "))
    };
    Some(Failure::new(problem).hint(match names_of_members(file.path(), &found) {
        Some(names) => format!("open the array: {}", line(&names)),
        None => format!("open the array, with a number for {{}} in the names of its members: {}", line("NAME-{}.img")),
    }))
}

/// The path of member `member` with `{}` for its number, if all the others have such names.
fn names_of_members(path: &Path, member: &Superblock) -> Option<String> {
    let (path, number) = (path.to_str()?, member.slot.to_string());
    let file_name = path.rfind('/').map_or(0, |slash| slash + 1);
    let is_digit = |at: Option<usize>| at.and_then(|at| path.as_bytes().get(at)).is_some_and(u8::is_ascii_digit);
    let mut places = path
        .rmatch_indices(&number)
        .filter(|&(at, _)| at >= file_name && !is_digit(at.checked_sub(1)) && !is_digit(Some(at + number.len())));
    places.find_map(|(at, _)| {
        let (before, after) = (&path[..at], &path[at + number.len()..]);
        let is_there = |slot: u32| {
            let other = File::open(format!("{before}{slot}{after}")).ok().and_then(|file| signature::as_member(&file));
            other.is_some_and(|other| (other.uuid, other.slot) == (member.uuid, slot))
        };
        (0..member.member_count).all(is_there).then(|| format!("{before}{{}}{after}"))
    })
}

/// What a probe has found, which `None` says is another thing. A member of an array alone may look like a damaged volume.
pub(super) fn probed(
    stack: &Stack,
    leaves: &HostLeaves,
    found: Result<Option<Probed>, StackError>,
) -> Result<Probed, Failure> {
    match found {
        Ok(Some(probed)) => Ok(probed),
        Ok(None) => Err(something_else(stack, leaves)),
        Err(error) => Err(member_alone(stack, leaves).unwrap_or_else(|| Failure::new(error))),
    }
}

/// The failure for a store that does not hold the stack's file system.
///
/// It suggests mkfs only where that would destroy nothing.
pub(super) fn something_else(stack: &Stack, leaves: &HostLeaves) -> Failure {
    if let Some(failure) = member_alone(stack, leaves) {
        return failure;
    }
    let name = stack.volume().map_or("file system", |word| word.name());
    if stack.is_volatile() {
        let problem =
            format!("there is no {name} here: every command creates this store empty, and discards it at its end");
        let has_zones = stack.word_with(Property::ModelledZones).is_some();
        return Failure::new(problem).hint(match has_zones {
            true => "mount and bench make a file system on it automatically; one on zones cannot be kept, because zones exist only as a model",
            false => "mount and bench make a file system on it automatically; to keep one, put it on file:PATH",
        });
    }
    let stores = contents(leaves);
    let is_blank = !stores.is_empty() && stores.iter().all(Option::is_none);
    let failure = match &stores[..] {
        [None] => Failure::new(format!("there is no {name} on {}: it is blank", place_of(stack))),
        [Some(content)] => Failure::new(format!("there is no {name} on {}: it holds {content}", place_of(stack))),
        [_, ..] if is_blank => Failure::new(format!("there is no {name} here: all {} stores are blank", stores.len())),
        _ => Failure::new(format!("there is no {name} here")),
    };
    match is_blank {
        true => failure.hint(format!("make one with: seekless mkfs {}", quoted(&stack.for_mkfs().to_string()))),
        false => {
            failure.hint("check that this is the right store, and the stack that it was made with; nothing was changed")
        }
    }
}
