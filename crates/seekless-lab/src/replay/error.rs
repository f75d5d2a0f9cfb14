//! Why a replay has no result.

use seekless::device::DeviceError;
use seekless::rt::Stalled;
use seekless::stack::StackError;
use seekless::units::{Nanos, human_bytes};

use crate::trace::TraceError;

/// Why a replay has no result.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Trace(#[from] TraceError),
    #[error(transparent)]
    Stack(#[from] StackError),
    #[error("request {number} of the trace: {cause}{}", in_order(cause))]
    Device { number: u64, cause: DeviceError },
    #[error("{}", too_far(*needed, *capacity))]
    TooFar { needed: u64, capacity: u64 },
    #[error(
        "the trace has {count} devices ({first} ..), whose addresses overlap\n\
             choose one with --device, or lay them end to end with --devices concatenate"
    )]
    SeveralDevices { count: usize, first: String },
    #[error(
        "{outstanding} requests wait at {} of the trace: they arrive faster than the storage answers\n\
             use --timing think or window:N, or a slower --timing open:0.5",
        crate::trace::time_text(*at)
    )]
    Overload { outstanding: u64, at: Nanos },
    #[error(
        "at {} of the trace, {count} requests are under way at once, if they took as long as it says: is its unit of latencies right?\n\
             use --timing window:N or open, which need no latencies",
        crate::trace::time_text(*at)
    )]
    LongLatencies { count: usize, at: Nanos },
    #[error(
        "the trace does not say how long requests took, which `think` needs; use --timing open, closed or window:N"
    )]
    NoLatencies,
    #[error(
        "the trace does not say when requests arrived: all {count} have the same time, and `open` needs the times; use \
         --timing window:N or closed"
    )]
    NoTimes { count: u64 },
    #[error("the replay cannot go on: {0}")]
    Stalled(#[from] Stalled),
    #[error("{0}")]
    Spec(String),
    /// What should have been done with an answer failed.
    #[error("{0}")]
    Listener(String),
    /// The caller ended the replay.
    #[error("the replay was interrupted")]
    Interrupted,
}

/// A hint where the storage is written in order.
fn in_order(cause: &DeviceError) -> &'static str {
    match cause {
        DeviceError::NotAtWritePointer { .. } | DeviceError::Zone { .. } => {
            "\nthis storage is written in order, in zones, and a trace writes anywhere; ask it with files instead: \
             seekless bench smallfile --on 'lfs / zoned / zns:zns-a'"
        }
        _ => "",
    }
}

/// The text of [`ReplayError::TooFar`].
fn too_far(needed: u64, capacity: u64) -> String {
    let needed = if needed == u64::MAX { "more than 16 EiB".to_owned() } else { human_bytes(needed) };
    format!(
        "the trace touches {needed}, but the storage has {}\nuse --map wrap or --map scale, or a larger storage",
        human_bytes(capacity)
    )
}
