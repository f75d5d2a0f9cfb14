//! What a quick look at an experiment leaves out, so that a claim without rows can say why it has none.

use std::collections::BTreeMap;

use super::claim::{Claim, Test};
use super::rows::{CONTESTANT, Selection};
use super::value::Value;

/// What [`Experiment::quick`](super::Experiment::quick) has left out; nothing for the whole experiment.
#[derive(Clone, Default, Debug)]
pub struct Omitted {
    /// All variables.
    variables: BTreeMap<String, Values>,
    /// The workload is smaller, and may have fewer rows.
    is_smaller: bool,
}

/// Values of a variable.
#[derive(Clone, Default, Debug)]
struct Values {
    kept: Vec<Value>,
    left_out: Vec<Value>,
}

impl Omitted {
    pub(super) fn new(is_smaller: bool) -> Omitted {
        Omitted { variables: BTreeMap::new(), is_smaller }
    }

    /// Counts a variable of which only the `quick` values are kept, or all of them if there are none.
    pub(super) fn add(&mut self, name: &str, all: &[Value], quick: &[Value]) {
        let is_kept = |value: &&Value| quick.is_empty() || quick.iter().any(|kept| kept.is_same(value));
        let (kept, left_out) = all.iter().cloned().partition(|value| is_kept(&value));
        self.variables.insert(name.to_owned(), Values { kept, left_out });
    }

    /// True when `claim` can lack rows because of what was left out: values that it names or is along of, or with which figures were published,
    /// or rows of the workload itself.
    pub fn explains(&self, claim: &Claim) -> bool {
        let lacks_value = |selection: &Selection| {
            selection.0.iter().any(|(name, condition)| {
                self.variables.get(name).is_some_and(|values| {
                    values.left_out.iter().any(|value| condition.holds(value))
                        && !values.kept.iter().any(|value| condition.holds(value))
                })
            })
        };
        let is_shorter = |name: &String| self.variables.get(name).is_some_and(|values| !values.left_out.is_empty());
        let is_of_workload =
            |name: &String| !name.is_empty() && name != CONTESTANT && !self.variables.contains_key(name);
        let mut names = claim.selections().into_iter().flat_map(Selection::names).chain([&claim.along]);
        claim.selections().into_iter().any(lacks_value)
            || is_shorter(&claim.along)
            || claim.test == Test::Published && self.variables.keys().any(is_shorter)
            || self.is_smaller && names.any(is_of_workload)
    }
}
