//! Exit codes that other programs know: mount(8) and umount(8).

pub(super) const WRONG_USAGE: u8 = 1;
pub(super) const FAILED: u8 = 32;
