//! Arrays as their users see them: which members hold what, and a scrub of all rows.

use std::collections::BTreeMap;

use async_trait::async_trait;

use super::DeviceError;

/// State of a member in its array.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// It holds everything.
    Active,
    /// It holds no valid data.
    Failed,
    /// It is being rebuilt, and is valid up to some row.
    Rebuilding,
}

/// A member of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    pub state: MemberState,
    /// Times that it returned wrong data, as a checksum or the majority of members showed.
    pub wrong: u64,
    /// Why it has failed, if that was since the array was opened.
    pub cause: Option<String>,
}

/// State of an array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedundancyStatus {
    /// For example `raid5`.
    pub name: &'static str,
    pub members: Vec<MemberStatus>,
    pub rows: u64,
    /// Data bytes of a row.
    pub row_bytes: u64,
    /// Rows that the member being rebuilt holds.
    pub rebuilt: u64,
    /// Rows that its rebuild has left out: a sector of another member cannot be read, or a unit cannot be known.
    pub left_out: u64,
    /// Rows that a power cut may have left inconsistent and that are not yet resynchronised.
    pub out_of_sync: u64,
    /// Of these, the rows with a unit that cannot be reconstructed.
    pub doubtful: u64,
    /// More members are lost than the array tolerates.
    pub stopped: bool,
    /// Why the resync or the rebuild ended early.
    pub error: Option<DeviceError>,
    /// What was asked for when it was opened, and had no effect.
    pub remark: Option<String>,
}

impl RedundancyStatus {
    /// Every member holds everything, and all rows are consistent.
    pub fn is_healthy(&self) -> bool {
        self.is_complete() && self.out_of_sync == 0 && !self.stopped
    }

    /// Every member holds everything.
    pub fn is_complete(&self) -> bool {
        self.members.iter().all(|member| member.state == MemberState::Active)
    }

    /// What the user should know, a line for each; none when all is well.
    pub fn warnings(&self) -> Vec<String> {
        let name = self.name;
        let mut lines = Vec::new();
        for (slot, member) in self.members.iter().enumerate() {
            match member.state {
                MemberState::Active => {}
                MemberState::Failed if self.members.iter().any(|member| member.state == MemberState::Rebuilding) => {
                    lines.push(format!("{name}: member {slot} has failed"));
                }
                MemberState::Failed => lines.push(format!(
                    "{name} is degraded: member {slot} is missing or has failed, and its data is no longer redundant"
                )),
                MemberState::Rebuilding => lines.push(format!(
                    "{name} is degraded: member {slot} is being rebuilt, {} done",
                    percent(self.rebuilt, self.rows)
                )),
            }
            if member.wrong > 0 {
                let times = crate::units::counted(member.wrong, "time");
                lines.push(format!("{name}: member {slot} returned wrong data, {times}; it was corrected"));
            }
        }
        lines.extend(self.left_out_line());
        if self.doubtful > 0 {
            let rows = crate::units::counted(self.doubtful, "row");
            lines.push(format!("{name}: {rows} have a unit whose data is unknown, see FORMAT.md on the write hole"));
        }
        if self.stopped {
            lines.push(self.stop_line());
        }
        lines.extend(self.error_line());
        lines.extend(self.remark.as_ref().map(|remark| format!("{name}: {remark}")));
        lines
    }

    fn stop_line(&self) -> String {
        format!("{} has lost more members than it tolerates, and has stopped", self.name)
    }

    fn left_out_line(&self) -> Option<String> {
        let rows = (self.left_out > 0).then(|| crate::units::counted(self.left_out, "row"))?;
        Some(format!(
            "{}: the rebuild has left out {rows} in which a sector of another member cannot be read; \
             a row is tried again once it has been written, and by a scrub",
            self.name
        ))
    }

    fn error_line(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        Some(format!("{}: rebuilding or resynchronising ended early: {error}", self.name))
    }
}

/// What has changed between two states of an array, for a log: whether it is a warning, and the line.
pub fn news(before: &RedundancyStatus, after: &RedundancyStatus) -> Vec<(bool, String)> {
    let name = after.name;
    let mut lines = Vec::new();
    for (slot, (old, new)) in before.members.iter().zip(&after.members).enumerate() {
        match (old.state, new.state) {
            (MemberState::Active | MemberState::Rebuilding, MemberState::Failed) => {
                let cause = new.cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
                lines.push((true, format!("{name}: member {slot} has failed, and is no longer used{cause}")));
            }
            (_, MemberState::Active) if old.state != MemberState::Active => {
                lines.push((false, format!("{name}: member {slot} has been rebuilt completely")));
            }
            (MemberState::Failed | MemberState::Active, MemberState::Rebuilding) => {
                lines.push((false, format!("{name}: member {slot} is being rebuilt")));
            }
            (MemberState::Rebuilding, MemberState::Rebuilding) => {
                let tenth = |status: &RedundancyStatus| tenths(status.rebuilt, status.rows);
                if tenth(after) > tenth(before) {
                    let done = percent(after.rebuilt, after.rows);
                    lines.push((false, format!("{name}: member {slot} is being rebuilt, {done} done")));
                }
            }
            _ => {}
        }
        if new.wrong > old.wrong {
            lines.push((true, format!("{name}: member {slot} returned wrong data; it was corrected")));
        }
    }
    if before.out_of_sync > 0 && after.out_of_sync == 0 {
        lines.push((false, format!("{name}: all rows are consistent again")));
    }
    if after.left_out > 0 && before.left_out == 0 {
        lines.extend(after.left_out_line().map(|line| (true, line)));
    }
    if after.stopped && !before.stopped {
        lines.push((true, after.stop_line()));
    }
    if after.error != before.error {
        lines.extend(after.error_line().map(|line| (true, line)));
    }
    lines
}

fn tenths(done: u64, of: u64) -> u64 {
    if of == 0 { 10 } else { (u128::from(done) * 10 / u128::from(of)) as u64 }
}

/// A percentage for display. It is 100% only when all is done.
fn percent(done: u64, of: u64) -> String {
    format!("{}%", if of == 0 { 100 } else { u128::from(done) * 100 / u128::from(of) })
}

/// Result of a scrub.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scrubbed {
    /// Rows checked.
    pub rows: u64,
    /// Of these, rows whose members did not agree.
    pub inconsistent: u64,
    /// Of these, rows that were corrected.
    pub corrected: u64,
    /// The first rows that still do not agree.
    pub left: Vec<u64>,
    /// Rows that could not be checked: a unit is missing.
    pub degraded: u64,
    /// Units that could not be read and were rewritten.
    pub unreadable: u64,
    /// Sectors that could not be rewritten, by the member that has no space for them.
    pub without_space: BTreeMap<usize, u64>,
}

/// Operations on an array that is in use.
#[async_trait(?Send)]
pub trait Redundancy {
    fn status(&self) -> RedundancyStatus;

    /// Reads all members and compares them, row by row. It repairs a unit that cannot be read, and where members
    /// differ, writes what most of them hold. A member that has no space for that is still used. With `believe_data`, rows that do not agree get copies and parity made
    /// from the data as a read returns it: for a caller that knows that all data is right. `tell` receives the number
    /// of rows done.
    ///
    /// # Errors
    /// When a member that the array needs fails.
    async fn scrub(&self, believe_data: bool, tell: &dyn Fn(u64)) -> Result<Scrubbed, DeviceError>;

    /// From now on reads use the first member that holds the data, not any member, so that they return what
    /// [`Redundancy::scrub`] with `believe_data` keeps.
    fn read_from_first(&self, on: bool);

    /// Waits until the resync and the rebuild have finished or ended with an error.
    async fn resynced(&self);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Aim: a log reports each event of a member once. Method: the life of an array, state by state.
    #[test]
    fn news_are_reported_once() {
        let member = |state| MemberStatus { state, wrong: 0, cause: None };
        let well = RedundancyStatus {
            name: "raid5",
            members: vec![member(MemberState::Active); 3],
            rows: 1000,
            row_bytes: 4096,
            rebuilt: 0,
            left_out: 0,
            out_of_sync: 0,
            doubtful: 0,
            stopped: false,
            error: None,
            remark: None,
        };
        let mut failed = well.clone();
        failed.members[1] = member(MemberState::Failed);
        let mut rebuilding = well.clone();
        rebuilding.members[1] = member(MemberState::Rebuilding);
        let at = |rebuilt| RedundancyStatus { rebuilt, ..rebuilding.clone() };
        let told = |one: &RedundancyStatus, two: &RedundancyStatus| -> Vec<String> {
            news(one, two).into_iter().map(|(_, line)| line).collect()
        };
        assert_eq!(told(&well, &well), Vec::<String>::new());
        assert_eq!(told(&well, &failed), ["raid5: member 1 has failed, and is no longer used"]);
        failed.members[1].cause = Some("no such device".to_owned());
        let line = "raid5: member 1 has failed, and is no longer used: no such device";
        assert_eq!(told(&well, &failed), [line]);
        assert_eq!(told(&failed, &at(0)), ["raid5: member 1 is being rebuilt"]);
        assert_eq!(told(&at(0), &at(99)), Vec::<String>::new());
        assert_eq!(told(&at(99), &at(420)), ["raid5: member 1 is being rebuilt, 42% done"]);
        let lacking = RedundancyStatus { left_out: 2, ..at(498) };
        let line = told(&at(499), &lacking).remove(0);
        assert!(line.contains("left out 2 rows") && lacking.warnings().contains(&line), "{line}");
        assert!(told(&lacking, &lacking).is_empty());
        assert_eq!(told(&at(420), &well), ["raid5: member 1 has been rebuilt completely"]);
        assert!(well.warnings().is_empty() && well.is_healthy());
        assert!(failed.warnings()[0].contains("degraded: member 1") && !failed.is_complete());
        assert!(at(999).warnings()[0].contains("99% done"));
        let remark = Some("it had no effect".to_owned());
        let remarked = RedundancyStatus { remark, ..well.clone() };
        assert_eq!((remarked.warnings(), remarked.is_healthy()), (vec!["raid5: it had no effect".to_owned()], true));
    }
}
