//! What a read-only mount shows of a damaged volume (V3): its latest verifiable state.
//!
//! Either checkpoint slot alone is enough to recover from (G1), so there are up to four states to try: each checkpoint
//! with the log behind it, as far as that is intact, and each without.

use std::rc::Rc;

use super::find::FoundVolume;
use super::recovery::Follow;
use super::{Lfs, Options};
use crate::device::Device;
use crate::fs::{FsError, FsResult};
use crate::rt::Rt;

impl Lfs {
    /// The recovered volume, with nothing written. `starts_max` limits the search for evidence of damage. `warnings`
    /// says what is missing.
    ///
    /// # Errors
    /// The error of the newest checkpoint, when no state can be shown.
    pub(super) async fn salvaged(
        rt: Rt,
        device: Device,
        options: Options,
        found: &FoundVolume,
        starts_max: usize,
    ) -> FsResult<Rc<Lfs>> {
        let mut first_error: Option<FsError> = None;
        for checkpoint in [Some(found.checkpoint), found.older].into_iter().flatten() {
            for follow in [Follow::ToTheDamage, Follow::Nowhere] {
                let recovered = match Lfs::at(rt.clone(), device.clone(), options, found, &checkpoint) {
                    Ok(lfs) => lfs.recover(found, &checkpoint, follow, starts_max).await.map(|()| lfs),
                    Err(error) => Err(error),
                };
                match (recovered, &first_error) {
                    (Ok(lfs), None) => return Ok(lfs),
                    (Ok(lfs), Some(error)) => {
                        let serial = checkpoint.serial;
                        let log = match follow {
                            Follow::Nowhere => ", without the log behind it",
                            _ => "",
                        };
                        lfs.warn(format!("{error}. The volume is shown as of checkpoint {serial}{log}"));
                        return Ok(lfs);
                    }
                    (Err(error @ FsError::Corrupt { .. }), _) => {
                        first_error.get_or_insert(error);
                    }
                    (Err(FsError::Device(error)), _) if error.is_of_medium() => {
                        first_error.get_or_insert(FsError::Device(error));
                    }
                    (Err(error), _) => return Err(error),
                }
            }
        }
        Err(first_error.unwrap_or_else(|| FsError::corrupt("volume", "checkpoint", "there is none")))
    }
}
