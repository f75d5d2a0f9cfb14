//! Operations that were recorded before: those of a block trace.

use std::sync::Arc;

use super::{BATCH, Given, Key, Options, Pattern};

pub(super) const KEYS: &[Key] = &[
    Key::new("file", "", "the trace, in any format of `seekless trace formats`"),
    Key::new("format", "", "its format, if it cannot be detected; one with commas is in double quotes"),
    Key::new("times", "1", "how often it is repeated"),
];

pub(super) struct Recorded {
    operations: Arc<[u32]>,
    next: usize,
    times: u32,
}

impl Recorded {
    pub(super) fn new(options: &Options, given: &Given) -> Result<Recorded, String> {
        let times = options.number("times", 1, 1_000_000)?;
        if given.recorded.is_none() {
            return Err("trace: which one? For example trace:file=my.trace".to_owned());
        }
        let operations = given.recorded.clone().filter(|operations| !operations.is_empty());
        let operations = operations.ok_or("trace: there are no writes in it")?;
        Ok(Recorded { operations, next: 0, times })
    }
}

impl Pattern for Recorded {
    fn more(&mut self, operations: &mut Vec<u32>) {
        if self.next == self.operations.len() && self.times > 1 {
            self.times -= 1;
            self.next = 0;
        }
        let end = (self.next + BATCH).min(self.operations.len());
        operations.extend(&self.operations[self.next..end]);
        self.next = end;
    }
}
