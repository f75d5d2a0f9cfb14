//! What a client of NBD hears about a device.

/// What is offered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    pub bytes: u64,
    pub block_bytes: u32,
    pub read_only: bool,
    /// For people.
    pub description: String,
}
