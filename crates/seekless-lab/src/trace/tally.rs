//! Counts of lines that are unused, or used in part, by reason, each with its first example.

/// Why a line or a record is not a request, or not all of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Aside {
    /// It is something else in the format: a comment, another event.
    Skipped(&'static str),
    /// It should be a request, but is invalid.
    Rejected(&'static str),
    /// It is a request, but for a part that is invalid and was left out.
    InPart(&'static str),
}

/// How often something happened, and where first.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Tally {
    pub reason: &'static str,
    pub count: u64,
    /// Line number from one, or byte position of a record.
    pub first_at: u64,
    /// The line, shortened; empty for records.
    pub example: String,
}

/// Lines or records of one input that are unused, or used in part.
#[derive(Clone, Default, Debug)]
pub(super) struct Tallies {
    pub(super) skipped: Vec<Tally>,
    pub(super) rejected: Vec<Tally>,
    pub(super) in_part: Vec<Tally>,
    /// Lines or records in all.
    pub(super) units: u64,
    /// A remark of the parser.
    pub(super) note: Option<&'static str>,
    /// Positions are line numbers.
    pub(super) by_line: bool,
}

/// Limit of characters of an example.
const EXAMPLE_MAX: usize = 120;

impl Tallies {
    pub(super) fn of_lines() -> Tallies {
        Tallies { by_line: true, ..Tallies::default() }
    }

    pub(super) fn add(&mut self, aside: Aside, at: u64, example: &[u8]) {
        let (tallies, reason) = match aside {
            Aside::Skipped(reason) => (&mut self.skipped, reason),
            Aside::Rejected(reason) => (&mut self.rejected, reason),
            Aside::InPart(reason) => (&mut self.in_part, reason),
        };
        match tallies.iter_mut().find(|tally| std::ptr::eq(tally.reason, reason) || tally.reason == reason) {
            Some(tally) => tally.count += 1,
            None => {
                let text: String = String::from_utf8_lossy(&example[..example.len().min(4 * EXAMPLE_MAX)])
                    .chars()
                    .map(|c| if c.is_control() && c != '\t' { '\u{fffd}' } else { c })
                    .take(EXAMPLE_MAX)
                    .collect();
                let cut = example.len() > 4 * EXAMPLE_MAX || text.chars().count() == EXAMPLE_MAX;
                let example = if cut { format!("{text}...") } else { text };
                tallies.push(Tally { reason, count: 1, first_at: at, example });
            }
        }
    }
}
