//! How much memory there is for what a command keeps in it.

/// Bytes that this machine can give without taking them from other programs; `None` where the system does not say it.
pub(super) fn available() -> Option<u64> {
    of(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

/// Of the text of `/proc/meminfo`.
fn of(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel writes is read, and where it writes something else, nothing is known.
    #[test]
    fn memory_is_read() {
        let text =
            "MemTotal:       24595240 kB\nMemFree:        21363140 kB\nMemAvailable:   23363144 kB\nBuffers: 1 kB\n";
        assert_eq!(of(text), Some(23_363_144 * 1024));
        assert_eq!(of(&text.replace("23363144", "1 2")), None);
        assert_eq!(of("MemFree: 1 kB\n"), None);
        assert!(available().is_none_or(|bytes| bytes > 0));
    }
}
