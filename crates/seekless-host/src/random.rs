//! Randomness from the system; the engine has none.

use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

/// Unpredictable numbers.
///
/// # Errors
/// Those of `getrandom(2)`.
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
