//! How much memory there is for what a command keeps in it.

use std::path::{Path, PathBuf};

/// Bytes that this process can get without taking them from other programs: what the machine can give, or less where a control group
/// of this process allows less. `None` where the system does not say it.
pub(super) fn available() -> Option<u64> {
    let machine = of_machine(&std::fs::read_to_string("/proc/meminfo").ok()?);
    let groups = std::fs::read_to_string("/proc/self/cgroup").map(|text| groups(&text)).unwrap_or_default();
    machine.into_iter().chain(groups.iter().filter_map(|group| in_group(group))).min()
}

/// Of the text of `/proc/meminfo`.
fn of_machine(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The directories of the control group of this process and of all groups around it. In the text of `/proc/self/cgroup` the line of
/// the unified hierarchy begins with `0::`.
fn groups(text: &str) -> Vec<PathBuf> {
    let Some(group) = text.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    let root = Path::new("/sys/fs/cgroup");
    let innermost = root.join(group);
    innermost.ancestors().take_while(|directory| directory.starts_with(root)).map(Path::to_owned).collect()
}

/// What a control group with a limit has left. Pages of files that were not used for a while are given back first.
fn in_group(group: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(group.join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    // Without a limit it says `max`.
    let limit = number("memory.max")?;
    let current = number("memory.current")?;
    let cached = read("memory.stat").and_then(|text| {
        let pages = text.lines().find_map(|line| line.strip_prefix("inactive_file "))?;
        pages.trim().parse::<u64>().ok()
    });
    Some(limit.saturating_sub(current.saturating_sub(cached.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel writes is read, and where it writes something else, nothing is known.
    #[test]
    fn memory_is_read() {
        let text =
            "MemTotal:       24595240 kB\nMemFree:        21363140 kB\nMemAvailable:   23363144 kB\nBuffers: 1 kB\n";
        assert_eq!(of_machine(text), Some(23_363_144 * 1024));
        assert_eq!(of_machine(&text.replace("23363144", "1 2")), None);
        assert_eq!(of_machine("MemFree: 1 kB\n"), None);
        assert!(available().is_none_or(|bytes| bytes > 0));
    }

    /// A limit of any group around the process counts, without the pages of files that can be given back.
    #[test]
    fn limits_of_control_groups_are_read() {
        let expected = ["/sys/fs/cgroup/a/b c", "/sys/fs/cgroup/a", "/sys/fs/cgroup"].map(PathBuf::from);
        assert_eq!(groups("3:cpu:/x\n0::/a/b c\n"), expected);
        assert_eq!(groups("0::/\n"), expected[2..]);
        assert!(groups("3:memory:/x\n").is_empty());
        let group = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(group.path().join(name), text).unwrap();
        assert_eq!(in_group(group.path()), None);
        write("memory.current", "700\n");
        write("memory.max", "max\n");
        assert_eq!(in_group(group.path()), None);
        write("memory.max", "1000\n");
        assert_eq!(in_group(group.path()), Some(300));
        write("memory.stat", "anon 500\ninactive_file 150\nactive_file 50\n");
        assert_eq!(in_group(group.path()), Some(450));
        write("memory.max", "100\n");
        assert_eq!(in_group(group.path()), Some(0));
    }
}
