//! The policies. Each is a file here and a row of [`POLICIES`].

mod age_sort;
mod choices;
mod cost_age_time;
mod cost_benefit;
mod dac;
mod fifo;
mod fk;
mod greedy;
mod lifetime;
mod midas;
mod multi_log;
mod oracle;
mod select;
mod sep_gc;
mod sepbit;

use std::ops::ControlFlow;

use super::outcome::Outcome;
use super::patterns::Pattern;
use super::policy::{Policy, Shape};
use super::simulator::{Setup, SetupError, simulate};
use super::words::{self, Key, Options};

/// A policy that can be made from its options.
trait Made: Policy + Sized + 'static {
    fn make(options: &Options, shape: &Shape) -> Result<Self, String>;
}

/// A policy of the table.
pub struct PolicySpec {
    pub name: &'static str,
    /// What it does, in one line.
    pub help: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    pub keys: &'static [Key],
    /// It uses what only a simulator knows.
    pub knows_future: bool,
    make: Make,
    simulate: Simulate,
}

type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> ControlFlow<()>;
type Make = fn(&Options, &Shape) -> Result<Box<dyn Policy>, String>;
type Simulate = fn(&Options, &Setup, &mut dyn Pattern, Progress<'_>) -> Result<Outcome, SetupError>;

/// Every policy.
pub const POLICIES: &[PolicySpec] = &[
    spec::<fifo::Fifo>("fifo", "the oldest segment, as a circular log", "[ro92 §3.2]", &[]),
    spec::<greedy::Greedy>("greedy", "the emptiest segment", "[ro92 §3.4]", &[]),
    spec::<choices::Choices>("d-choices", "the emptiest of some that are drawn", "Van Houdt 2013", choices::KEYS),
    spec::<cost_benefit::CostBenefit>(
        "cost-benefit",
        "the most free space for the longest time, by the cost of cleaning",
        "[ro92 §3.5]",
        cost_benefit::KEYS,
    ),
    spec::<age_sort::AgeSort>(
        "age-sort",
        "cost-benefit, and live blocks are sorted by age",
        "[ro92 §3.5]",
        age_sort::KEYS,
    ),
    spec::<cost_age_time::CostAgeTime>(
        "cost-age-time",
        "cost-benefit that also cleans all segments equally often; two heads",
        "Chiang and Chang 1999",
        cost_age_time::KEYS,
    ),
    spec::<multi_log::MultiLog>(
        "multi-log",
        "a log for each frequency of writes, each with its share of the free space",
        "Stoica and Ailamaki 2013",
        multi_log::KEYS,
    ),
    spec::<sep_gc::SepGc>("sep-gc", "two heads: for the user and for the cleaner", "Van Houdt 2014", sep_gc::KEYS),
    spec::<dac::Dac>("dac", "blocks rise a region when written, and sink when moved", "Chiang et al. 1999", dac::KEYS),
    spec::<sepbit::SepBit>(
        "sepbit",
        "six heads, by the lifetimes inferred from former ones and from ages",
        "[sepbit]",
        sepbit::KEYS,
    ),
    spec::<midas::Midas>(
        "midas",
        "a chain of groups by age, after MiDAS, which would choose their number and sizes",
        "Oh et al. 2024",
        midas::KEYS,
    ),
    spec::<lifetime::Lifetime>(
        "lifetime",
        "heads by expected lifetime, from a mean of former ones",
        "ours",
        lifetime::KEYS,
    ),
    spec::<fk::Fk>("fk", "six heads by true lifetime, in segments", "[sepbit §4.1]", fk::KEYS).knows_future(),
    spec::<oracle::Oracle>("oracle", "heads by true lifetime, in powers", "ours", oracle::KEYS).knows_future(),
];

const fn spec<P: Made>(
    name: &'static str,
    help: &'static str,
    source: &'static str,
    keys: &'static [Key],
) -> PolicySpec {
    PolicySpec {
        name,
        help,
        source,
        keys,
        knows_future: false,
        make: |options, shape| Ok(Box::new(P::make(options, shape)?)),
        // A function of its own for each policy, in which its decisions are not calls.
        simulate: |options, setup, pattern, progress| {
            // Before the policy allocates anything.
            setup.check(0)?;
            let mut policy = P::make(options, &setup.shape()).map_err(SetupError::Options)?;
            simulate(setup, &mut policy, pattern, progress)
        },
    }
}

impl PolicySpec {
    const fn knows_future(self) -> PolicySpec {
        PolicySpec { knows_future: true, ..self }
    }

    /// Parses a policy with its options.
    ///
    /// # Errors
    /// An unknown word or option.
    pub fn parse(line: &str) -> Result<(&'static PolicySpec, Options), String> {
        let table: Vec<(&'static str, &'static [Key])> = POLICIES.iter().map(|spec| (spec.name, spec.keys)).collect();
        let (index, options) = words::parse(line, "policy", &table)?;
        Ok((&POLICIES[index], options))
    }

    /// The policy of these options for a log.
    ///
    /// # Errors
    /// An invalid option.
    pub fn make(&self, options: &Options, shape: &Shape) -> Result<Box<dyn Policy>, String> {
        (self.make)(options, shape)
    }

    /// Simulates this policy: as [`simulate`], and faster than through [`PolicySpec::make`].
    ///
    /// # Errors
    /// An invalid option, and those of [`simulate`].
    pub fn simulate(
        &self,
        options: &Options,
        setup: &Setup,
        pattern: &mut dyn Pattern,
        progress: Progress<'_>,
    ) -> Result<Outcome, SetupError> {
        (self.simulate)(options, setup, pattern, progress)
    }
}
