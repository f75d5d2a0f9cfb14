//! The names of a volume: a UUID for programs, and a label for people.

use uuid::Uuid;

use crate::fs::{FsError, FsResult};

/// Size of a label in a superblock: UTF-8, padded with zeroes, of which there is at least one.
const LABEL_BYTES: usize = 64;

/// A UUID of version 4 from two random numbers.
pub(crate) fn random_uuid(random: [u64; 2]) -> Uuid {
    let bytes = (u128::from(random[0]) << 64 | u128::from(random[1])).to_be_bytes(); // Any order serves.
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// A label as it is stored.
///
/// # Errors
/// `Invalid` when it is longer than 63 bytes or has a zero.
pub(crate) fn stored_label(label: &str) -> FsResult<[u8; LABEL_BYTES]> {
    let (mut stored, bytes) = ([0; LABEL_BYTES], label.as_bytes());
    if bytes.len() >= stored.len() || bytes.contains(&0) {
        return Err(FsError::Invalid("a label is at most 63 bytes long"));
    }
    stored[..bytes.len()].copy_from_slice(bytes);
    Ok(stored)
}

/// The label that is stored as `stored`.
pub(crate) fn label_text(stored: &[u8; LABEL_BYTES]) -> String {
    let end = stored.iter().position(|&byte| byte == 0).unwrap_or(stored.len());
    String::from_utf8_lossy(&stored[..end]).into_owned()
}
