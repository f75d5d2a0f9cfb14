//! What reaches the block device below, by the kernel's counters (`Documentation/block/stat.rst`).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A block device whose requests are counted.
#[derive(Clone, Debug)]
pub(super) struct Counters {
    pub(super) name: String,
    stat: PathBuf,
}

/// Requests so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Counted {
    pub(super) flushes: u64,
    pub(super) written_bytes: u64,
}

impl Counters {
    /// Those of the device that stores `path`; `None` where no single block device does.
    pub(super) fn below(path: &Path) -> Option<Counters> {
        let device = fs::metadata(path).ok()?.dev();
        let number = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let mut folder = fs::canonicalize(format!("/sys/dev/block/{number}")).ok()?;
        if folder.join("partition").exists() {
            // Flushes are counted for the whole disk only.
            folder.pop();
        }
        let name = folder.file_name()?.to_string_lossy().into_owned();
        let counters = Counters { name, stat: folder.join("stat") };
        counters.read().map(|_| counters)
    }

    pub(super) fn read(&self) -> Option<Counted> {
        parse(&fs::read_to_string(&self.stat).ok()?)
    }
}

/// Sectors written are the seventh field, flushes the sixteenth, since Linux 5.5. Sectors have 512 bytes there, whatever the
/// device has.
fn parse(text: &str) -> Option<Counted> {
    let fields: Vec<u64> = text.split_whitespace().map_while(|field| field.parse().ok()).collect();
    Some(Counted { written_bytes: fields.get(6)? * 512, flushes: *fields.get(15)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_those_of_the_kernel() {
        let text = "   1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n";
        assert_eq!(parse(text), Some(Counted { written_bytes: 7 * 512, flushes: 16 }));
        assert_eq!(parse("1 2 3"), None);
    }
}
