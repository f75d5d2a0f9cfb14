//! A store on a device with zones: what a log-structured file system needs where nothing can be written in place.
//!
//! Most of its addresses are *spans*, each of which is written in order, as a zone is, and becomes empty by a discard. So a segment of
//! LFS is a span, and LFS cleans as on any device. A few blocks at both ends can be written in any order: LFS has its
//! superblocks and checkpoints there. They are stored as records of a small log in two metadata zones, which also
//! records the *slot*, and so the zone, of each span. Format: `FORMAT.md`.
//!
//! Invariants
//!   Z1  A zone is reset only when a durable record says that it holds no span.
//!   Z2  A zone is written only after its reset is durable; so a span never shows what another span left in its slot.
//!   Z3  A moved span is durable before the record of the move is written.
//!   Z4  Beside the zone to which users write, one zone is empty, so that a zone can be emptied at any time.
//!   Z5  Writes to a zone are sequential, each at the write pointer.
//!
//! Tried and dropped: spans that can be written in any order, at the cost of a copy of the span. That works for any
//! file system, but is so slow that an error is the better answer.

mod data;
pub mod format;
pub mod layout;
mod load;
mod metadata;
mod room;
mod store;
#[cfg(test)]
mod tests;

use crate::device::{Device, DeviceError};
pub use layout::{Layout, Plan};
pub use store::Store;

/// Why a store cannot be made or opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ZonedError {
    #[error(transparent)]
    Device(#[from] DeviceError),
    #[error("there is no zoned store here")]
    Nothing,
    #[error("{0}")]
    Plan(String),
    #[error("the zoned store is damaged: {0}")]
    Damaged(String),
}

/// What is known of a store without opening it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Info {
    pub uuid: [u8; 16],
    pub layout: Layout,
    pub spans_used: u64,
    pub records: u64,
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Checkup {
    /// What is lost or contradictory.
    pub errors: Vec<String>,
    /// What was damaged and had a good copy: the next opening for writing replaces it.
    pub notes: Vec<String>,
    pub records: u64,
    pub spans_used: u64,
}

/// Recognises a store; `None` when there is none.
///
/// # Errors
/// `Damaged` when there is one whose records cannot be read; `Plan` when the device has no zones.
pub async fn probe(device: &Device) -> Result<Option<Info>, ZonedError> {
    match load::load(device).await {
        Ok(loaded) => Ok(Some(Info {
            uuid: loaded.uuid,
            layout: loaded.layout,
            spans_used: loaded.map.iter().filter(|slot| **slot != format::NO_SLOT).count() as u64,
            records: loaded.records,
        })),
        Err(ZonedError::Nothing) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Compares the records with each other and with the zones. Nothing is written.
///
/// # Errors
/// When the device fails, or nothing on it is a store.
pub async fn check(device: &Device) -> Result<Checkup, ZonedError> {
    let loaded = match load::load(device).await {
        Ok(loaded) => loaded,
        Err(ZonedError::Damaged(what)) => return Ok(Checkup { errors: vec![what], ..Checkup::default() }),
        Err(error) => return Err(error),
    };
    Ok(Checkup {
        errors: Vec::new(),
        spans_used: loaded.map.iter().filter(|slot| **slot != format::NO_SLOT).count() as u64,
        records: loaded.records,
        notes: loaded.notes,
    })
}
