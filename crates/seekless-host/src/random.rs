//! Randomness from the system, which the engine does not have.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Numbers that nobody can guess.
///
/// # Errors
/// What `getrandom(2)` says.
pub(crate) fn numbers<const N: usize>() -> Result<[u64; N], Errno> {
    let mut numbers = [0; N];
    for number in &mut numbers {
        let mut bytes = [0; 8];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
        }
        *number = u64::from_ne_bytes(bytes);
    }
    Ok(numbers)
}
