//! Finds current users of a store: the mount table, swap, loop devices and other kernel drivers.
//!
//! The lock of the file leaf keeps other Seekless processes away, and an exclusive open keeps mounts of a block device
//! away. The remaining users are those in the kernel that ignore both.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The user of the file or block device at `path`, for an error message; `None` when none is known.
pub(super) fn user_of(path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let full = fs::canonicalize(path).ok()?;
    if metadata.file_type().is_block_device() {
        let number = format!("{}:{}", rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
        if let Some(place) = mounted_device(&fs::read_to_string("/proc/self/mountinfo").ok()?, &number) {
            return Some(format!("mounted on {place}"));
        }
        if let Some(holder) = first_entry(&format!("/sys/dev/block/{number}/holders")) {
            return Some(format!("used by {holder}"));
        }
    }
    let text = full.to_str()?;
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    if swaps.lines().skip(1).any(|line| unescape(line.split_whitespace().next().unwrap_or_default()) == text) {
        return Some("used for swap".to_owned());
    }
    loop_device(text).map(|device| format!("the backing file of /dev/{device}"))
}

/// The mount point of the file system on the device `number`, from the text of mountinfo (proc(5)).
fn mounted_device(table: &str, number: &str) -> Option<String> {
    let line = table.lines().find(|line| line.split(' ').nth(2) == Some(number))?;
    Some(unescape(line.split(' ').nth(4)?))
}

/// The loop device whose backing file is at `path`.
fn loop_device(path: &str) -> Option<String> {
    let devices = fs::read_dir("/sys/block").ok()?.filter_map(Result::ok);
    let mut names = devices.filter_map(|entry| entry.file_name().into_string().ok());
    names.find(|name| {
        let backing = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
        backing.is_ok_and(|backing| backing.trim_end_matches('\n') == path)
    })
}

fn first_entry(directory: &str) -> Option<String> {
    fs::read_dir(directory).ok()?.next()?.ok()?.file_name().into_string().ok()
}

/// Undoes the `\040` of the kernel's tables, for the characters that it escapes there.
fn unescape(word: &str) -> String {
    word.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mounted device is found by its number, even with blanks in its mount point.
    #[test]
    fn mounted_devices_are_found() {
        let table =
            "22 1 254:0 / / rw - ext4 /dev/vda rw\n40 22 7:0 / /mnt/my\\040disk rw shared:1 - ext4 /dev/loop0 rw\n";
        assert_eq!(mounted_device(table, "7:0"), Some("/mnt/my disk".into()));
        assert_eq!(mounted_device(table, "7:1"), None);
        assert_eq!(mounted_device("nonsense", "7:1"), None);
    }

    /// A file that only this process uses is free; a missing one has no user.
    #[test]
    fn free_files_have_no_user() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(user_of(file.path()), None);
        assert_eq!(user_of(Path::new("/nowhere/at/all")), None);
    }
}
