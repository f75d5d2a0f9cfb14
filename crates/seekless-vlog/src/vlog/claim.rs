//! What a change of a virtual log disk asks for before it is admitted: see [`super::room`].

/// A change that needs blocks.
#[derive(Clone, Copy, Debug)]
pub(super) enum Claim {
    /// Of logical blocks.
    Write { first: u32, blocks: u32 },
    /// Of the same content at other places, while idle.
    Move { blocks: u64 },
    /// Of a label, in a transaction with the map of a snapshot.
    Label,
    /// Of the map of the whole disk, in one transaction.
    Map,
    /// That logical blocks will have room.
    Promise { first: u32, blocks: u32 },
}
