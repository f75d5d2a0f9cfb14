//! The size that the kernel takes a file to have, where others may change it, too.
//!
//! When an asynchronous write to a file with `O_APPEND` or `O_DIRECT` fails, or writes less than all, the kernel cuts the file back
//! to the size that it knows (`fuse_do_truncate`). It may have learned that long ago, and what others have appended since would be gone.
//! The request looks like that of an `ftruncate`. But it always has a size that this kernel knows, so that it asks for no
//! change; NFS sends no request for an `ftruncate` to a size that it knows (`nfs_setattr`). Here such a request changes
//! nothing and is answered with the attributes as they are, unless the program that waits for it is seen to be in `ftruncate`.
//!
//! Which size the kernel knows is not certain: of two answers that tell attributes, the older one may have the last word. So this keeps
//! all that may be it.

use std::cell::RefCell;

use seekless::fs::SetAttr;
use seekless::units::{FixedMap, Ino};

use super::negotiate::TRANSFER_BYTES_MAX;

/// Sizes kept for one file. More than one can be the kernel's only if several programs ask for attributes at once while others change
/// the size; each of them adds one.
const SIZES_MAX: usize = 16;

struct Known {
    /// As many as the kernel gives back when it forgets the inode.
    lookups: u64,
    /// The newest is last.
    sizes: Vec<u64>,
    append: Append,
}

/// The newest request of a program that appends: where the kernel takes its call to begin, where the request ends, and whether one of the
/// same call may follow.
#[derive(Clone, Copy, Default)]
struct Append {
    start: u64,
    end: u64,
    goes_on: bool,
}

/// Requests of a call that have a successor are at least this long, unless the program gives its data in more than 256 pieces:
/// the largest request, less one page if the data does not begin at the start of a page.
const GOES_ON_BYTES: u64 = (TRANSFER_BYTES_MAX - 4096) as u64;

impl Known {
    fn tell(&mut self, size: u64) {
        if self.sizes.last() == Some(&size) {
            return;
        }
        self.sizes.retain(|&known| known != size);
        if self.sizes.len() >= SIZES_MAX {
            self.sizes.remove(0);
        }
        self.sizes.push(size);
    }
}

/// What the kernel may know of the inodes that it has looked up.
#[derive(Default)]
pub(super) struct KernelSizes(RefCell<FixedMap<Ino, Known>>);

impl KernelSizes {
    /// The kernel gets an entry, which counts as a lookup.
    pub(super) fn entry(&self, ino: Ino, size: u64) {
        let mut all = self.0.borrow_mut();
        let known =
            all.entry(ino).or_insert_with(|| Known { lookups: 0, sizes: Vec::new(), append: Append::default() });
        known.lookups += 1;
        known.tell(size);
    }

    /// The kernel gets a size, or derives it from an answer, and may know it now.
    pub(super) fn tell(&self, ino: Ino, size: u64) {
        if let Some(known) = self.0.borrow_mut().get_mut(&ino) {
            known.tell(size);
        }
    }

    /// The kernel has set `size` itself, and has forgotten all others.
    pub(super) fn set(&self, ino: Ino, size: u64) {
        if let Some(known) = self.0.borrow_mut().get_mut(&ino) {
            known.sizes = vec![size];
            known.append = Append::default();
        }
    }

    /// A program appends `bytes`, and the kernel takes the file to end at `offset`, or at the beginning of the call of which this is
    /// a part.
    pub(super) fn append(&self, ino: Ino, offset: u64, bytes: u64) {
        if let Some(known) = self.0.borrow_mut().get_mut(&ino) {
            let before = known.append;
            let start = if before.goes_on && before.end == offset { before.start } else { offset };
            known.append = Append { start, end: offset + bytes, goes_on: bytes >= GOES_ON_BYTES };
            known.tell(offset);
        }
    }

    /// An append has failed: the kernel may go back to the beginning of its call.
    pub(super) fn append_failed(&self, ino: Ino) {
        if let Some(known) = self.0.borrow_mut().get_mut(&ino) {
            known.tell(known.append.start);
        }
    }

    /// A write up to `end` is answered: now the kernel knows no smaller size, and ignores one that is on its way.
    pub(super) fn grow(&self, ino: Ino, end: u64) {
        if let Some(known) = self.0.borrow_mut().get_mut(&ino) {
            known.sizes.retain(|&size| size > end);
            known.sizes.insert(0, end);
        }
    }

    pub(super) fn forget(&self, ino: Ino, lookups: u64) {
        let mut all = self.0.borrow_mut();
        if let Some(known) = all.get_mut(&ino) {
            known.lookups = known.lookups.saturating_sub(lookups);
            if known.lookups == 0 {
                all.remove(&ino);
            }
        }
    }

    /// Whether the kernel may know this size, or nothing is known of it.
    pub(super) fn may_be(&self, ino: Ino, size: u64) -> bool {
        self.0.borrow().get(&ino).is_none_or(|known| known.sizes.contains(&size))
    }
}

/// The size, if nothing else is changed, as by the kernel after a write that has failed.
pub(super) fn only_size(changes: &SetAttr) -> Option<u64> {
    let only = SetAttr { size: changes.size, kill_privileges: changes.kill_privileges, ..SetAttr::default() };
    changes.size.filter(|_| *changes == only)
}

/// Whether the thread `pid`, which waits for an answer, is seen to be in `ftruncate` with this size. The system may
/// not show it to this process.
pub(super) fn is_in_ftruncate(pid: u32, size: u64) -> bool {
    let text = std::fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap_or_default();
    says_ftruncate(&text, size)
}

/// The number of the call, its arguments in hexadecimal digits, and two addresses.
fn says_ftruncate(text: &str, size: u64) -> bool {
    let mut words = text.split_whitespace();
    let call = words.next().and_then(|word| word.parse().ok());
    let length = words.nth(1).and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok());
    call == Some(libc::SYS_ftruncate) && length == Some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A size that was told stays the kernel's until it has written beyond it, set another one or forgotten the inode.
    #[test]
    fn all_sizes_that_the_kernel_may_know_are_kept() {
        let (sizes, ino) = (KernelSizes::default(), Ino(7));
        let known = |sizes: &KernelSizes| (0..300).filter(|&size| sizes.may_be(ino, size)).collect::<Vec<_>>();
        assert_eq!(known(&sizes).len(), 300, "an unknown inode");
        sizes.entry(ino, 100);
        sizes.tell(ino, 120);
        sizes.tell(ino, 100);
        assert_eq!(known(&sizes), [100, 120]);
        sizes.grow(ino, 110);
        assert_eq!(known(&sizes), [110, 120]);
        sizes.grow(ino, 130);
        assert_eq!(known(&sizes), [130]);
        sizes.tell(ino, 5);
        sizes.set(ino, 50);
        assert_eq!(known(&sizes), [50]);
        for size in 0..100 {
            sizes.tell(ino, size);
        }
        assert_eq!(known(&sizes), (84..100).collect::<Vec<_>>());
        sizes.entry(ino, 3);
        sizes.forget(ino, 1);
        assert!(!sizes.may_be(ino, 1), "one lookup is left");
        sizes.forget(ino, 1);
        assert!(sizes.may_be(ino, 1));
    }

    /// A call that fails in a later part goes back to its beginning.
    #[test]
    fn the_beginning_of_a_failed_append_is_known() {
        let (sizes, ino, part) = (KernelSizes::default(), Ino(7), u64::from(TRANSFER_BYTES_MAX));
        sizes.entry(ino, 100);
        for number in 0..40 {
            let offset = 100 + number * part;
            sizes.append(ino, offset, part);
            if number < 39 {
                sizes.grow(ino, offset + part);
            }
        }
        assert!(!sizes.may_be(ino, 100));
        sizes.append_failed(ino);
        assert!(sizes.may_be(ino, 100));
        // Two calls.
        sizes.set(ino, 50);
        sizes.append(ino, 50, 10);
        sizes.grow(ino, 60);
        sizes.append(ino, 60, 10);
        sizes.append_failed(ino);
        assert!(sizes.may_be(ino, 60) && !sizes.may_be(ino, 50));
    }

    #[test]
    fn a_call_of_ftruncate_is_recognized() {
        let number = libc::SYS_ftruncate;
        let line = |number, size: u64| format!("{number} 0x3 {size:#x} 0x0 0x0 0x0 0x0 0x7ffd 0x7f00\n");
        assert!(says_ftruncate(&line(number, 12), 12));
        assert!(!says_ftruncate(&line(number, 13), 12) && !says_ftruncate(&line(number + 1, 12), 12));
        assert!(!says_ftruncate("running\n", 12) && !says_ftruncate("", 12) && !says_ftruncate("-1 0x1 0x2", 2));
    }

    #[test]
    fn only_a_size_may_be_the_kernels_own() {
        let size = SetAttr { size: Some(5), kill_privileges: true, ..SetAttr::default() };
        assert_eq!(only_size(&size), Some(5));
        assert_eq!(only_size(&SetAttr { uid: Some(1), ..size }), None);
        assert_eq!(only_size(&SetAttr { size: None, ..size }), None);
    }
}
