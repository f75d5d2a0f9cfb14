//! The properties of a device that an NBD client sees.

/// The exported device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    pub bytes: u64,
    pub block_bytes: u32,
    pub read_only: bool,
    /// Text for display.
    pub description: String,
}
