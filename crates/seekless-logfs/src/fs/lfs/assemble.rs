//! Assembling a transaction: from the dirty data in memory to partial segments ready for the device.
//!
//! Paper: [ro92 §3.2, §3.3]. Format: FORMAT.md, "Partial segments" and "Transactions".
//!
//! The whole transaction is assembled in one synchronous step, so it is a snapshot: no operation is half in it. The
//! step first plans everything (`plan`: what is written, what that frees, where it goes) without changing anything. Then it
//! assigns addresses and lays out bytes, children before parents (`lay_down`).
//!
//! Invariants
//!   A1  Every transaction holds every change of the name space made so far, and of each file either all changes or
//!       none.
//!   A2  Indirect blocks and the tables reach the log at checkpoints only (unless `indirect=log`). Between checkpoints
//!       the summaries say where blocks are, and which indirect blocks were dropped.
//!   A3  A transaction frees exactly the places that were unmapped since the last transaction, each once.

use super::lay_down::lay_down;
pub(super) use super::lay_down::{PartialWrite, SlotWrite, Transaction};
pub(super) use super::plan::TransactionScope;
use super::plan::plan;
use super::state::{State, Step};

/// Assembles the transaction of `scope`; `None` when there is nothing to write.
///
/// # Errors
/// `Load` when a block of the tables is not in memory; `NoSpace` when there are not enough clean segments, which S3
/// excludes. After an error nothing has changed, except that more may be dirty.
pub(super) fn assemble(state: &mut State, scope: TransactionScope<'_>) -> Step<Option<Transaction>> {
    let plan = plan(state, scope)?;
    Ok(plan.map(|plan| lay_down(state, scope, plan)))
}
