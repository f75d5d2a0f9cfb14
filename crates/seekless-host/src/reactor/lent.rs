//! Memory that the daemon and the kernel use in turn.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;

use seekless::device::Buf;

/// Two parts of memory at fixed addresses, which a command to the kernel can lend it.
///
/// The kernel gets the addresses once, when the memory is registered, and may read and write both parts during every later
/// command, until that completes. So the parts are never moved, replaced or resized, and each command holds a [`Loan`]:
/// the memory lives at least as long as the command, and the daemon cannot touch it until then.
pub struct LentMemory {
    parts: [RefCell<Buf>; 2],
    /// Where the parts are, as the registration tells the kernel.
    iovecs: [libc::iovec; 2],
    is_lent: Cell<bool>,
}

impl LentMemory {
    /// Two parts of these lengths in bytes, each aligned to a page, with any content.
    pub fn new(lengths: [usize; 2]) -> Rc<LentMemory> {
        let mut parts = lengths.map(Buf::dirty);
        let iovecs =
            parts.each_mut().map(|part| libc::iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
        Rc::new(LentMemory { parts: parts.map(RefCell::new), iovecs, is_lent: Cell::new(false) })
    }

    /// The bytes of a part.
    ///
    /// # Panics
    /// While a command is under way: the kernel may be writing to them.
    pub fn part(&self, part: usize) -> RefMut<'_, [u8]> {
        assert!(!self.is_lent.get(), "the kernel has this memory");
        RefMut::map(self.parts[part].borrow_mut(), |part| &mut **part)
    }

    /// Lends both parts to the kernel for one command.
    ///
    /// # Panics
    /// When they are lent already, or borrowed.
    pub(super) fn lend(self: &Rc<LentMemory>) -> Loan {
        assert!(self.parts.iter().all(|part| part.try_borrow_mut().is_ok()), "the daemon still uses this memory");
        assert!(!self.is_lent.replace(true), "the kernel has this memory already");
        Loan(self.clone())
    }
}

/// Memory while the kernel may use it. Dropped when the command has completed.
pub(super) struct Loan(Rc<LentMemory>);

impl Loan {
    /// Address of the two `iovec`s.
    pub(super) fn iovecs(&self) -> u64 {
        self.0.iovecs.as_ptr() as u64
    }

    /// Their number.
    pub(super) fn iovec_count(&self) -> u32 {
        self.0.iovecs.len() as u32
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.0.is_lent.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_has_cannot_be_touched() {
        let memory = LentMemory::new([16, 4096]);
        memory.part(0)[3] = 7;
        let loan = memory.lend();
        let refused = |what: &dyn Fn()| std::panic::catch_unwind(std::panic::AssertUnwindSafe(what)).is_err();
        assert!(refused(&|| drop(memory.part(1))));
        assert!(refused(&|| drop(memory.lend())));
        drop(loan);
        assert_eq!(memory.part(0)[3], 7);
        let held = memory.part(1);
        assert!(refused(&|| drop(memory.lend())));
        drop(held);
        drop(memory.lend());
    }

    #[test]
    fn parts_stay_where_the_registration_says() {
        let memory = LentMemory::new([16, 4096]);
        for (part, iovec) in memory.iovecs.iter().enumerate() {
            let bytes = memory.part(part);
            assert_eq!((bytes.as_ptr(), bytes.len()), (iovec.iov_base.cast_const().cast(), iovec.iov_len));
        }
    }
}
