//! What shows that a file is a plain one, and which changes can alter that.

use super::format::{Head, RECORD_ALIGN, RECORDS_START};
use crate::codec::is_zero;
use crate::layer::change::Change;

/// Why a file counts as a plain one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Evidence {
    /// The file begins with this many zeroes, slots included; or with 0 where that is not what matters.
    pub(super) zeroes: u64,
    /// Bytes from here on do not matter.
    pub(super) end: u64,
}

impl Evidence {
    /// Each change has to be looked at.
    pub(super) const UNKNOWN: Evidence = Evidence { zeroes: 0, end: u64::MAX };

    /// The whole file is zeroes.
    pub(super) const ALL_ZERO: Evidence = Evidence { zeroes: u64::MAX, end: u64::MAX };

    pub(super) fn is_untouched_by(self, change: &Change<'_>) -> bool {
        match *change {
            Change::Write { data: [], .. } => true,
            Change::Write { offset, .. } => offset >= self.end,
            Change::Zero { start, .. } => start >= self.end,
            // Between the smaller and the larger size.
            Change::Resize(size) => size >= self.end,
            // What it adds is zero, and lies behind the end.
            Change::Grow(_) => self.end < u64::MAX,
        }
    }

    /// The evidence after `change`, where that is clear without looking at the file.
    pub(super) fn after(self, change: &Change<'_>) -> Option<Evidence> {
        match *change {
            _ if self.is_untouched_by(change) => Some(self),
            Change::Write { offset, data } => match data.iter().position(|&byte| byte != 0) {
                None => (offset.saturating_add(data.len() as u64) <= self.zeroes).then_some(self),
                // The first unit of the file that is not zero, as a search for records goes through it.
                Some(first) => {
                    let start = offset.checked_add(first as u64)?;
                    let at = start / RECORD_ALIGN * RECORD_ALIGN;
                    let end = at.checked_add(RECORD_ALIGN).filter(|&end| at >= RECORDS_START && end <= self.zeroes)?;
                    let mut unit = [0; RECORD_ALIGN as usize];
                    let within = (start - at) as usize;
                    let length = (unit.len() - within).min(data.len() - first);
                    unit[within..within + length].copy_from_slice(&data[first..first + length]);
                    debug_assert!(!is_zero(&unit), "the piece with evidence was chosen because it is not zero");
                    Head::checked(&unit).is_err().then_some(Evidence { zeroes: at, end })
                }
            },
            _ => (self == Evidence::ALL_ZERO && !matches!(change, Change::Resize(0))).then_some(self),
        }
    }
}
